"""The parts of a message: order, media types, files, URLs, data, standard input."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.cli.running import Tieline


def received(tieline: Tieline, *words: str, stdin: bytes = b"") -> list[dict[str, Any]]:
    """What the agent got, as it tells it."""
    sent = tieline("send", *words, "-o", "json", stdin=stdin)
    assert sent.code == 0, sent.out + sent.err
    parts: list[dict[str, Any]] = sent.json["task"]["artifacts"][0]["parts"][0]["data"]["parts"]
    return parts


def test_part_flags_repeat_and_keep_their_order(tieline: Tieline) -> None:
    (tieline.folder / "a.csv").write_text("x\n1\n")
    (tieline.folder / "b.json").write_text('{"n": 1}')
    words = ("--text", "one", "--file", "a.csv", "--data", "b.json", "--text", "two", "--file", "a.csv")
    parts = received(tieline, "first", *words)
    assert [next(iter(part)) for part in parts] == ["text", "text", "raw", "data", "text", "raw"]
    assert [part["text"] for part in parts if "text" in part] == ["first", "one", "two"]


def test_a_file_is_sent_with_its_bytes_name_and_guessed_type(tieline: Tieline) -> None:
    table: list[tuple[str, bytes, str]] = [
        ("data.csv", b"a\n", "text/csv"),
        ("page.html", b"<p>", "text/html"),
        ("no-ending", b"plain words", "text/plain"),
        ("blob", b"\x00\xff", "application/octet-stream"),
        ("table.csv.gz", b"\x1f\x8b", "application/octet-stream"),
    ]
    for name, content, _ in table:
        (tieline.folder / name).write_bytes(content)
    parts = received(tieline, *(word for name, _, _ in table for word in ("--file", name)))
    assert [(part["filename"], base64.b64decode(part["raw"]), part["mediaType"]) for part in parts] == table


def test_a_media_type_belongs_to_the_part_in_front_of_it(tieline: Tieline) -> None:
    (tieline.folder / "report.bin").write_bytes(b"%PDF")
    (tieline.folder / "d.json").write_text("[1]")
    typed = received(
        tieline,
        *("--file", "report.bin", "--media-type", "application/pdf", "--file", "report.bin"),
        *("--text", "# hi", "--media-type", "text/markdown"),
        *("--data", "d.json", "--media-type", "application/x-mine+json"),
    )
    types = [part.get("mediaType") for part in typed]
    assert types[0] == "application/pdf"
    assert types[1] != "application/pdf"
    assert types[2:] == ["text/markdown", "application/x-mine+json"]


@pytest.mark.parametrize(
    "words",
    [
        ("--media-type", "text/csv"),
        ("hello", "--media-type", "text/csv"),
        ("--text", "a", "--media-type", "text/csv", "--media-type", "text/plain"),
        ("--text", "a", "--media-type", "nonsense"),
    ],
)
def test_a_media_type_without_its_part_is_a_usage_error(tieline: Tieline, words: tuple[str, ...]) -> None:
    refused = tieline("send", *words, "-o", "json")
    assert refused.code == 2
    assert refused.error["code"] == "A2ACLI_ERR_USAGE"
    assert "--media-type" in refused.error["message"]


def test_a_url_is_sent_as_a_reference_and_not_fetched(tieline: Tieline) -> None:
    parts = received(tieline, "--file", "https://nowhere.invalid/some%20dir/My%20Report.pdf?x=1")
    assert parts == [
        {
            "url": "https://nowhere.invalid/some%20dir/My%20Report.pdf?x=1",
            "filename": "My Report.pdf",
            "mediaType": "application/pdf",
        }
    ]


def test_data_is_json_from_a_file_or_from_standard_input_to_the_last_digit(tieline: Tieline) -> None:
    (tieline.folder / "d.json").write_text('{"big": 12345678901234567890123, "none": null, "float": 1.0}')
    assert received(tieline, "--data", "d.json") == [
        {"data": {"big": 12345678901234567890123, "none": None, "float": 1.0}}
    ]
    assert received(tieline, "--data", "-", stdin=b'[1, "\xc3\xa4"]') == [{"data": [1, "ä"]}]
    assert received(tieline, "--data", "-", stdin=b"null") == [{"data": None}]


def test_text_can_come_from_standard_input(tieline: Tieline) -> None:
    assert received(tieline, "-", stdin="tell me\nmore ä".encode()) == [{"text": "tell me\nmore ä"}]


@pytest.mark.parametrize(
    ("words", "stdin"),
    [
        ((), b""),
        (("--file", "missing.txt"), b""),
        (("--file", "."), b""),
        (("--data", "missing.json"), b""),
        (("--data", '{"a": 1}'), b""),
        (("--data", "-"), b"not json"),
        (("-", "--data", "-"), b"1"),
        (("-",), b"\xff\xfe"),
        (("two", "arguments"), b""),
    ],
)
def test_what_cannot_be_sent_is_a_usage_error_before_anything_is_sent(
    tieline: Tieline, words: tuple[str, ...], stdin: bytes
) -> None:
    refused = tieline("send", *words, "-o", "json", "-a", "http://127.0.0.1:9", stdin=stdin)
    assert refused.code == 2, refused.out
    assert refused.error["code"] == "A2ACLI_ERR_USAGE"
