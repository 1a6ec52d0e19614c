"""`task download`: artifacts as files, under names that an agent cannot turn against its caller."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.agents import BYTES
from tests.cli.running import Result, Tieline
from tieline.cli.download import numbered, safe_name


@pytest.fixture
def task_id(tieline: Tieline) -> str:
    return tieline.begin("files").task_id


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_files_texts_and_data_are_saved_and_urls_are_named(tieline: Tieline, task_id: str) -> None:
    saved = tieline("task", "download", task_id, "--dir", "out/new")
    assert saved.code == 0, saved.err
    found = files(tieline.folder / "out/new")
    assert {name: found[name] for name in ("report.csv", "notes.txt", "photo.png")} == {
        "report.csv": b"a,b\n1,2\n",
        "notes.txt": b"first second",
        "photo.png": BYTES,
    }
    assert json.loads(found["numbers.json"]) == {"big": 12345678901234567890123, "none": None, "float": 1.0}
    assert len(found) == 4
    paths = [value for label, value in saved.all_fields if label == "Saved"]
    assert paths == [
        str(tieline.folder / "out/new" / name) for name in ("report.csv", "notes.txt", "numbers.json", "photo.png")
    ]
    assert saved.fields["Not saved"] == "https://files.example/a.pdf"
    assert "not fetched: https://files.example/a.pdf" in saved.err
    assert [path.name for path in tieline.folder.rglob("*") if path.is_dir()] == ["out", "new"]


def test_a_task_with_files_says_how_to_get_them(tieline: Tieline) -> None:
    sent = tieline("send", "files").fields
    assert sent["Download"] == f"tieline task download {sent['Task ID']} -a {tieline.agent}"


def test_as_json_the_task_names_the_files_as_its_parts(tieline: Tieline, task_id: str) -> None:
    task = tieline("task", "download", task_id, "-o", "json").json
    assert task["id"] == task_id
    parts = {artifact["name"]: artifact["parts"][0] for artifact in task["artifacts"]}
    assert parts["report.csv"] == {
        "url": (tieline.folder / "report.csv").as_uri(),
        "filename": "report.csv",
        "mediaType": "text/csv",
    }
    assert parts["photo"]["url"] == (tieline.folder / "photo.png").as_uri()
    assert parts["link"]["url"] == "https://files.example/a.pdf"


def test_nothing_is_overwritten_without_force_and_then_nothing_is_half_done(tieline: Tieline, task_id: str) -> None:
    (tieline.folder / "photo.png").write_bytes(b"mine")
    refused = tieline("task", "download", task_id, "-o", "json")
    assert refused.code == 1
    assert refused.error["code"] == "TIELINE_ERR_FILES"
    assert "photo.png" in refused.error["message"]
    assert "--force" in refused.error["hint"]
    assert files(tieline.folder) == {"photo.png": b"mine"}
    assert tieline("task", "download", task_id, "--force").code == 0
    assert files(tieline.folder)["photo.png"] == BYTES


def test_a_link_that_stands_in_the_way_is_replaced_and_not_written_through(tieline: Tieline, task_id: str) -> None:
    target = tieline.home / "precious"
    target.write_bytes(b"precious")
    (tieline.folder / "photo.png").symlink_to(target)
    assert tieline("task", "download", task_id).code == 1
    assert tieline("task", "download", task_id, "--force").code == 0
    assert target.read_bytes() == b"precious"
    assert not (tieline.folder / "photo.png").is_symlink()


def test_one_artifact_can_be_chosen(tieline: Tieline, task_id: str) -> None:
    assert tieline("task", "download", task_id, "--artifact", "notes").code == 0
    assert set(files(tieline.folder)) == {"notes.txt"}
    refused = tieline("task", "download", task_id, "--artifact", "nothing", "-o", "json")
    assert refused.code == 2
    assert "it has report.csv, notes, numbers, photo, link" in refused.error["message"]


def test_a_url_is_fetched_only_when_asked_for_and_only_over_http(tieline: Tieline, served: str) -> None:
    def download(url: str, *words: str) -> Result:
        task_id = tieline.begin(f"link {url}").task_id
        return tieline("task", "download", task_id, *words, "-o", "json")

    card = f"http://{served}/.well-known/agent-card.json"
    assert download(card).code == 0
    assert files(tieline.folder) == {}
    assert download(card, "--fetch").code == 0
    assert json.loads(files(tieline.folder).pop("fetched.json"))["name"] == "Command test"
    for url, why in (
        (f"http://{served}/nothing", "answered HTTP 404"),
        ("http://127.0.0.1:9/x", "could not be fetched"),
        ("http://[bad/x", "could not be fetched"),
        ("file:///etc/passwd", "only http and https are"),
        ("ftp://files.example/x", "only http and https are"),
    ):
        refused = download(url, "--fetch", "--force")
        assert refused.code == 1, url
        assert f"Warning: not fetched: {url}" in refused.err
        assert why in refused.err
    assert set(files(tieline.folder)) == {"fetched.json"}


def test_a_file_of_the_agents_naming_is_never_told_as_one_that_was_saved(tieline: Tieline) -> None:
    urls = ("file:///etc/passwd", "FILE:///etc/hosts", "file://host/x")
    task_id = tieline.begin(f"links {' '.join(urls)}").task_id
    for words in ((), ("--fetch", "--force")):
        text = tieline("task", "download", task_id, *words)
        assert [value for label, value in text.all_fields if label == "Not saved"] == list(urls)
        saved = [value for label, value in text.all_fields if label == "Saved"]
        assert [Path(path).parent for path in saved] == [tieline.folder] * 2
        assert "--fetch does" not in text.err
        told = tieline("task", "download", task_id, *words, "--force", "-o", "json").json
        for url, artifact in zip(urls, told["artifacts"], strict=False):
            assert artifact["parts"][0]["url"] == f"unsaved:{url}"


def test_one_url_that_cannot_be_fetched_does_not_keep_the_rest_from_being_saved(tieline: Tieline, served: str) -> None:
    bad, good = "http://127.0.0.1:9/x", f"http://{served}/.well-known/agent-card.json"
    task_id = tieline.begin(f"links {bad} {good}").task_id
    result = tieline("task", "download", task_id, "--fetch")
    assert result.code == 1
    assert f"not fetched: {bad}" in result.err
    assert result.fields["Not saved"] == bad
    assert set(files(tieline.folder)) == {"f1", "last-1.txt", "last-2.txt"}


@pytest.mark.parametrize(
    ("name", "second"),
    [
        ("report.csv", "report-2.csv"),
        ("a.tar.gz", "a-2.tar.gz"),
        ("v1.2 of it.pdf", "v1.2 of it-2.pdf"),
        ("plain", "plain-2"),
        ("and so on. To be continued", "and so on. To be continued-2"),
    ],
)
def test_a_number_stands_before_the_ending_of_a_name(name: str, second: str) -> None:
    assert numbered(name, 2) == second


@pytest.mark.parametrize(
    ("suggested", "name"),
    [
        ("report.csv", "report.csv"),
        ("Große Übersicht.pdf", "Große Übersicht.pdf"),
        ("../../etc/passwd", "passwd"),
        ("/etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("C:\\temp\\x.exe", "x.exe"),
        ("..", "fallback"),
        (".", "fallback"),
        ("", "fallback"),
        ("a/", "fallback"),
        (None, "fallback"),
        (".bashrc", "bashrc"),
        ("..hidden", "hidden"),
        ("con.txt", "_con.txt"),
        ("NUL", "_NUL"),
        ("-rf", "_-rf"),
        ("-1", "_-1"),
        ("~", "_~"),
        ("~root", "_~root"),
        (".-rf", "_-rf"),
        ("a\x00b\n.txt", "a_b_.txt"),
        ("x\u202egnp.exe", "x_gnp.exe"),
        ("what?*<>|:.txt", "what______.txt"),
        ("trailing. . ", "trailing"),
        ("n" * 300 + ".csv", "n" * 196 + ".csv"),
        ("ä" * 300, "ä" * 100),
    ],
)
def test_a_suggested_name_is_a_name_in_one_folder_or_none_at_all(suggested: str | None, name: str) -> None:
    assert safe_name(suggested, "fallback") == name
    assert safe_name(None, suggested or "..") not in ("", ".", "..")


def test_a_name_without_anything_usable_is_artifact() -> None:
    assert safe_name("..", "/") == "artifact"
