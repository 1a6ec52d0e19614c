"""Service parameters and media types in headers (A2A 1.0 §3.2.6, §3.6, §9.2, §11.2)."""

from __future__ import annotations

import pytest

from tieline.errors import MediaTypeNotSupported
from tieline.wire.headers import check_json, event_number, extensions_of


@pytest.mark.requirement("jsonrpc.comma-separated", "rest.comma-separated")
@pytest.mark.parametrize(
    ("values", "uris"),
    [
        ([], ()),
        ([""], ()),
        (["https://a"], ("https://a",)),
        (["https://a,https://b"], ("https://a", "https://b")),
        ([" https://a ,\thttps://b ,, "], ("https://a", "https://b")),
        (["https://b", "https://a,https://b"], ("https://b", "https://a")),
    ],
)
def test_extensions_are_parted_by_commas_in_one_header_or_several(values: list[str], uris: tuple[str, ...]) -> None:
    assert extensions_of(values) == uris


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "application/json",
        "APPLICATION/JSON",
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
        "application/a2a+json",
        "application/vnd.api+json; v=1",
        " application/json ",
    ],
)
def test_json_of_any_kind_is_taken(content_type: str) -> None:
    check_json(content_type)


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "text/plain;application/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=json",
        "application/xml",
        "application/jsonp",
        "json",
        "*/*",
    ],
)
def test_another_type_is_refused_by_its_name(content_type: str) -> None:
    with pytest.raises(MediaTypeNotSupported) as caught:
        check_json(content_type)
    assert caught.value.metadata == {"mediaType": content_type.partition(";")[0]}
    assert caught.value.http_status == 415


@pytest.mark.parametrize(
    ("given_", "number"),
    [
        (None, None),
        ("", None),
        ("0", 0),
        ("17", 17),
        ("-1", None),
        ("1.5", None),
        ("x", None),
        ("²", None),
        ("٣", None),
    ],
)
def test_an_event_number_is_digits_and_anything_else_is_none(given_: str | None, number: int | None) -> None:
    assert event_number(given_) == number


@pytest.mark.parametrize("digits", [20, 400, 5000])
def test_an_event_number_that_we_cannot_have_given_is_none(digits: int) -> None:
    assert event_number("9" * digits) is None
