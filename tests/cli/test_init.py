"""`tieline init`: the project that it writes runs, and what stands in its way is told."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.cli.running import LIMIT_S, Tieline
from tests.cli.test_serve import read_until, stop
from tests.interop.processes import ROOT, free_port
from tests.test_readme import blocks_of, commands_of, first_missing
from tieline import __version__

PAGE = ROOT / "docs/deploying.md"
FILES = {
    *("agent.py", "tests/test_agent.py", "pyproject.toml", "README.md", "Dockerfile", ".gitignore", ".env.example"),
}


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def card_name(folder: Path) -> str:
    """The name that agent.py gives the agent."""
    for node in ast.walk(ast.parse((folder / "agent.py").read_text())):
        if isinstance(node, ast.keyword) and node.arg == "name" and isinstance(node.value, ast.Constant):
            name = str(node.value.value)
    return name


def test_project_passes_its_own_tests_and_answers_when_it_is_served(bare: Tieline) -> None:
    made = bare("init", "word-count")
    assert made.code == 0, made.err
    folder = bare.folder / "word-count"
    assert files_in(folder) == FILES
    assert made.fields["Project"] == str(folder)
    assert made.fields["Agent"] == "Word count"
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert tests.returncode == 0, tests.stdout
    assert "2 passed" in tests.stdout
    served = Tieline(bare.home, folder, bare.launcher)
    port = free_port()
    server = served.start("serve", "agent.py", "--port", str(port))
    read_until(server, "Ctrl-C")
    sent = served("send", "the cat and the dog", "-a", f"127.0.0.1:{port}")
    assert sent.block("Text") == "Words: 5, different: 4."
    card = served("card", "get", "-o", "json", "-a", f"127.0.0.1:{port}").json
    assert (card["name"], [skill["id"] for skill in card["skills"]]) == ("Word count", ["count-words"])
    stop(server)
    # What it has told to do next is what was done here.
    assert made.fields["Install"] == "cd word-count && pip install -e '.[test]'"
    assert made.fields["Test"] == "pytest"
    assert made.fields["Serve"] == "tieline serve agent.py"
    assert made.fields["Send"] == 'tieline send -a 127.0.0.1:8000 "the cat and the dog"'


def test_page_about_deploying_shows_what_it_prints(bare: Tieline) -> None:
    (block,) = [block for block in blocks_of(PAGE.read_text()) if "tieline init" in block.text]
    ((command, printed),) = commands_of(block.text)
    assert first_missing(printed, bare(*command.split()[1:]).out) is None


def test_project_is_written_into_the_directory_at_hand_beside_what_is_there(bare: Tieline) -> None:
    (bare.folder / "notes.txt").write_text("mine")
    made = bare("init", "--name", "Table reader", "-o", "json")
    assert made.code == 0
    document = made.json
    assert document == {
        "directory": str(bare.folder),
        "name": "Table reader",
        "project": "table-reader",
        "files": document["files"],
    }
    assert set(document["files"]) == FILES
    assert files_in(bare.folder) == {*FILES, "notes.txt"}
    assert card_name(bare.folder) == "Table reader"


def test_name_with_quotes_and_brackets_is_that_name_in_every_file(bare: Tieline) -> None:
    assert bare("init", "a/b/c", "--name", 'The "best" \\ agent <é>').code == 0
    folder = bare.folder / "a/b/c"
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    assert project["project"]["name"] == "the-best-agent"
    assert project["project"]["description"] == 'The A2A agent The "best" \\ agent <é>.'
    assert project["project"]["dependencies"] == [f"tieline>={__version__}"]
    assert card_name(folder) == 'The "best" \\ agent <é>'
    assert '# The "best" \\\\ agent \\<é\\>' in (folder / "README.md").read_text()
    for name in FILES:
        assert not re.search(r"@[A-Z]+@", (folder / name).read_text())


def test_name_that_looks_like_a_mark_of_the_templates_stays_a_name(bare: Tieline) -> None:
    assert bare("init", "x", "--name", "@PROJECT@ one").code == 0
    assert card_name(bare.folder / "x") == "@PROJECT@ one"


@pytest.mark.parametrize("name", ["agent.py", "tests/test_agent.py", ".env.example"])
def test_nothing_is_written_where_one_of_the_files_is_there_already(bare: Tieline, name: str) -> None:
    path = bare.folder / name
    path.parent.mkdir(exist_ok=True)
    os.symlink("/nowhere/at/all", path)  # a link that leads nowhere is a file of that name, too
    before = files_in(bare.folder)
    refused = bare("init", "-o", "json")
    assert refused.code == 1
    assert refused.error["code"] == "TIELINE_ERR_FILES"
    assert refused.error["message"] == f"{name} is in . already. Nothing was written."
    assert files_in(bare.folder) == before


def test_directory_that_cannot_be_one_is_told_and_nothing_is_left(bare: Tieline) -> None:
    (bare.folder / "taken").write_text("a file")
    refused = bare("init", "taken")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("Error: taken/agent.py cannot be written: ")
    assert "Traceback" not in refused.err
    (bare.folder / "half").mkdir()
    (bare.folder / "half/tests").write_text("a file in the way")
    refused = bare("init", "half")
    assert refused.code == 1
    assert files_in(bare.folder) == {"taken", "half/tests"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("x", "--name", ""), "--name has to have a letter or digit."),
        (("x", "--name", " -. "), "--name has to have a letter or digit."),
        (("x", "--name", "a\nb"), "--name has characters that cannot be printed."),
        (("x", "--name", "a" * 65), "--name has 65 characters, 64 at most can be."),
        (("x", "--name", "Tieline"), "--name makes a project called 'tieline'"),
        (("msgspec",), "The directory's name makes a project called 'msgspec'"),
        (("Uvicorn",), "The directory's name makes a project called 'uvicorn'"),  # a need of an extra
        (("pluggy",), "The directory's name makes a project called 'pluggy'"),  # a need of pytest
        (("x", "--name", "psycopg"), "--name makes a project called 'psycopg'"),
        (("pytest",), "The directory's name makes a project called 'pytest'"),
        (("/",), "The directory's name has to have a letter or digit."),
    ],
)
def test_names_that_can_be_none_are_told(bare: Tieline, words: tuple[str, ...], says: str) -> None:
    refused = bare("init", *words, "-o", "json")
    assert refused.code == 2
    assert says in refused.error["message"]
    assert "--name" in refused.error["hint"]
    assert files_in(bare.folder) == set()


def test_directory_that_looks_like_an_option_is_told_as_a_directory(bare: Tieline) -> None:
    made = bare("init", "--", "--odd")
    assert made.fields["Install"] == "cd ./--odd && pip install -e '.[test]'"
    entered = subprocess.run(
        ["sh", "-ec", made.fields["Install"].partition(" && ")[0] + "; ls"],
        cwd=bare.folder,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert "agent.py" in entered.stdout, entered.stderr


def test_directory_without_a_name_is_not_taken_for_the_one_at_hand(bare: Tieline) -> None:
    refused = bare("init", "")  # as of a shell's variable that is empty
    assert refused.code == 2
    assert "DIRECTORY is empty" in refused.err
    assert files_in(bare.folder) == set()


def test_project_of_another_script_has_a_name_of_its_own_and_a_project_name_that_installs(bare: Tieline) -> None:
    made = bare("init", "x", "--name", "数える", "-o", "json")
    assert (made.json["name"], made.json["project"]) == ("数える", "agent")
    assert card_name(bare.folder / "x") == "数える"
