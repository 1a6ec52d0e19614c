"""The registry of requirements is well formed, and the tools that read it count what they should.

Whether every row has a test is not asked here: that is the exit code of scripts/requirements.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.requirement_marks import shown_by
from tests.requirements import SECTIONS, RegistryError, Requirement, load, missing, section_key

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 120

ROW = """
[[requirement]]
id = "send.works"
section = "3.1.1"
level = "MUST"
who = "server"
over = ["direct", "rest"]
text = "Sending works."
"""

ROWS = {row.id: row for row in load()}
NOW = Requirement("send.works", "3.1.1", "MUST", "server", "Sending works.", ("direct", "rest"))
LATER = Requirement("push.works", "3.1.7", "MUST", "server", "Push works.", ("rest",), "push", "It is not there.")


def registry(folder: Path, text: str) -> Path:
    path = folder / "requirements.toml"
    path.write_text(text, encoding="utf-8")
    return path


def pytest_collects(folder: Path, test: str) -> tuple[subprocess.CompletedProcess[str], Path]:
    path, target = folder / "test_marked.py", folder / "shown.json"
    path.write_text(f"import pytest\n\n\n{test}", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "tests.requirement_marks"]
    command += ["-p", "no:cacheprovider", f"--rootdir={folder}", f"--requirements-json={target}", str(path)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return run, target


def test_the_registry_is_well_formed_and_every_known_section_has_a_row() -> None:
    rows = load()
    assert [row.section for row in rows] == sorted((row.section for row in rows), key=section_key)
    assert {row.section for row in rows} == set(SECTIONS)
    assert list(SECTIONS) == sorted(SECTIONS, key=section_key)
    assert len({row.text for row in rows}) == len(rows)


def test_what_waits_for_a_feature_says_why_and_each_core_section_has_rows_that_do_not_wait() -> None:
    rows = load()
    assert all(row.reason for row in rows if row.later)
    assert {row.section.split(".")[0] for row in rows if row.later is None} == set("345789") | {"10", "11", "13"}


def test_bindings_ask_only_for_their_own_transport() -> None:
    for row in load():
        match row.section.split(".")[0]:
            case "9":
                assert row.over == ("jsonrpc",), row.id
            case "10":
                assert row.over == ("grpc",), row.id
            case "11":
                assert row.over == ("rest",), row.id


def test_a_row_is_read_with_all_of_its_fields(tmp_path: Path) -> None:
    later = ROW.replace("send.works", "push.works") + 'later = "push"\nreason = "It is not there."\n'
    now, waiting = load(registry(tmp_path, ROW + later))
    assert now == NOW
    assert (waiting.later, waiting.reason) == ("push", "It is not there.")


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ('id = "send.works"', 'id = "Send works"', "lower case"),
        ('id = "send.works"\n', "", "id is a string"),
        ('section = "3.1.1"', 'section = "3.1.99"', "3.1.99"),
        ('level = "MUST"', 'level = "MAY"', "level"),
        ('who = "server"', 'who = "proxy"', "who"),
        ('who = "server"', "who = 1", "who is a string"),
        ('over = ["direct", "rest"]', "over = []", "at least one transport"),
        ('over = ["direct", "rest"]', 'over = "rest"', "list"),
        ('over = ["direct", "rest"]', 'over = ["rest", "direct"]', "order"),
        ('over = ["direct", "rest"]', 'over = ["carrier pigeon"]', "transports"),
        ('over = ["direct", "rest"]', 'over = ["grpc", "rest"]', "order"),
        ("Sending works.", "Sending works", "full stop"),
        ("Sending works.", "Sending works. Always.", "one sentence"),
        ('level = "MUST"', 'level = "MUST"\nlater = "push"', "come together"),
        ('level = "MUST"', 'level = "MUST"\nreason = "So."', "come together"),
        ('level = "MUST"', 'level = "MUST"\nlater = "soon"\nreason = "So."', "later"),
        ('level = "MUST"', 'level = "MUST"\nlater = "grpc"\nreason = "So."', "later"),
        ('level = "MUST"', 'level = "MUST"\nowner = "me"', "owner"),
    ],
)
def test_a_malformed_row_is_refused_by_what_is_wrong_with_it(tmp_path: Path, old: str, new: str, word: str) -> None:
    assert old in ROW
    with pytest.raises(RegistryError, match=word):
        load(registry(tmp_path, ROW.replace(old, new)))


def test_an_id_twice_and_sections_out_of_order_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match="twice"):
        load(registry(tmp_path, ROW + ROW))
    later_section = ROW.replace("3.1.1", "3.1.10").replace("send.works", "push.works")
    with pytest.raises(RegistryError, match=r"comes after 3\.1\.10"):
        load(registry(tmp_path, later_section + ROW.replace("3.1.1", "3.1.9")))
    with pytest.raises(RegistryError, match="nothing else"):
        load(registry(tmp_path, ROW + "[other]\n"))


def test_a_row_is_missing_on_each_transport_without_a_test_and_never_when_it_is_later() -> None:
    assert missing([NOW, LATER], {}) == [(NOW, ("direct", "rest"))]
    assert missing([NOW], {"send.works": {"direct": ["test_a"], "rest": []}}) == [(NOW, ("rest",))]
    assert missing([NOW], {"send.works": {"direct": ["test_a"], "rest": ["test_b"]}}) == []


def test_a_test_shows_a_row_on_its_own_transport_or_on_all_or_on_those_the_marker_names() -> None:
    rows = {NOW.id: NOW}
    assert shown_by(rows, [NOW.id]) == {NOW.id: ("direct", "rest")}
    assert shown_by(rows, [NOW.id], over=("rest",)) == {NOW.id: ("rest",)}
    assert shown_by(rows, [NOW.id], transport="rest") == {NOW.id: ("rest",)}
    assert shown_by(rows, [NOW.id], transport="jsonrpc") == {NOW.id: ()}
    assert shown_by(rows, [NOW.id], transport="rest-0.3") == {NOW.id: ()}
    assert shown_by(rows, [NOW.id], transport="direct", over=("rest",)) == {NOW.id: ()}


@pytest.mark.parametrize(
    ("ids", "transport", "over", "word"),
    [
        (["send.nothing"], None, (), "send.nothing"),
        ([7], None, (), "7"),
        ([], None, (), "names no requirement"),
        (["send.works"], None, ("jsonrpc",), "not to be shown over jsonrpc"),
        (["send.works"], None, "rest", "tuple"),
        (["send.works"], "pigeon", (), "pigeon"),
    ],
)
def test_a_marker_that_names_what_is_not_there_is_refused(
    ids: list[object], transport: str | None, over: tuple[str, ...], word: str
) -> None:
    with pytest.raises(ValueError, match=word):
        shown_by({NOW.id: NOW}, ids, transport=transport, over=over)


def test_collection_writes_which_test_shows_what_over_which_transport(tmp_path: Path) -> None:
    test = (
        '@pytest.fixture(params=["direct", "jsonrpc", "rest"])\n'
        "def transport(request):\n    return request.param\n\n\n"
        '@pytest.mark.requirement("get.current-state", "cache.etag")\n'
        "def test_over_each(transport):\n    pass\n\n\n"
        '@pytest.mark.requirement("get.current-state", over=("rest",))\n'
        "def test_over_rest():\n    pass\n\n\n"
        '@pytest.mark.parametrize("code", [pytest.param(1, marks=pytest.mark.requirement("jsonrpc.parse-error"))])\n'
        "def test_of_one_parameter(code):\n    pass\n"
    )
    run, target = pytest_collects(tmp_path, test)
    assert run.returncode == 0, run.stdout + run.stderr
    each = "test_marked.py::test_over_each"
    assert json.loads(target.read_text(encoding="utf-8")) == {
        "shown": {
            "cache.etag": {"jsonrpc": [f"{each}[jsonrpc]"], "rest": [f"{each}[rest]"]},
            "get.current-state": {
                "direct": [f"{each}[direct]"],
                "jsonrpc": [f"{each}[jsonrpc]"],
                "rest": [f"{each}[rest]", "test_marked.py::test_over_rest"],
            },
            "jsonrpc.parse-error": {"jsonrpc": ["test_marked.py::test_of_one_parameter[1]"]},
        }
    }


@pytest.mark.parametrize(
    ("marker", "word"),
    [
        ('"get.no-such-thing"', "get.no-such-thing"),
        ('"rest.bodies", over=("jsonrpc",)', "not to be shown over jsonrpc"),
        ('"rest.bodies", on="rest"', "unexpected keyword argument 'on'"),
    ],
)
def test_a_wrong_marker_stops_the_collection_and_names_the_test(tmp_path: Path, marker: str, word: str) -> None:
    run, target = pytest_collects(tmp_path, f"@pytest.mark.requirement({marker})\ndef test_it():\n    pass\n")
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert word in run.stderr
    assert "test_marked.py::test_it" in run.stderr
    assert not target.exists()


def test_the_script_prints_the_rows_without_a_test_and_fails_while_there_are_any(tmp_path: Path) -> None:
    path = tmp_path / "test_marked.py"
    path.write_text(
        'import pytest\n\n\n@pytest.mark.requirement("rest.bodies")\ndef test_it():\n    pass\n', encoding="utf-8"
    )

    def script(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(ROOT / "scripts" / "requirements"), *arguments, str(path)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S, check=False)

    plain, full, table = script(), script("--all"), script("--markdown")
    assert (plain.returncode, full.returncode, table.returncode) == (1, 1, 1)
    now = [row for row in ROWS.values() if row.later is None]
    assert plain.stdout.splitlines()[-1].startswith(f"1 of {len(now)} requirements are shown, {len(now) - 1} are not")
    assert "rest.query-types" in plain.stdout
    assert "rest.bodies" not in plain.stdout
    waits = next(row.id for row in ROWS.values() if row.later)
    assert waits not in plain.stdout
    assert "test_marked.py::test_it" in full.stdout
    assert ROWS[waits].text in full.stdout.partition("Later:")[2]
    assert f"| {ROWS['rest.bodies'].text} `rest.bodies` | MUST | both |  |  | 1 |  |" in table.stdout


def test_the_script_says_what_pytest_said_when_tests_cannot_be_collected(tmp_path: Path) -> None:
    path = tmp_path / "test_marked.py"
    path.write_text("import a_module_that_nobody_has\n", encoding="utf-8")
    command = [sys.executable, str(ROOT / "scripts" / "requirements"), str(path)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert run.returncode == 2
    assert "a_module_that_nobody_has" in run.stderr
