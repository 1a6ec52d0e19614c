"""How deep JSON may nest."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from tests.wire.strategies import FIXED, free_json
from tieline.errors import InvalidRequest
from tieline.wire.body import MAX_DEPTH, check_depth


def deep(levels: int, opening: bytes = b"[", closing: bytes = b"]") -> bytes:
    return opening * levels + closing * levels


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")])
def test_the_limit_is_inclusive(opening: bytes, closing: bytes) -> None:
    step = opening.count(b"[") + opening.count(b"{")
    check_depth(deep(MAX_DEPTH // step, opening, closing))
    with pytest.raises(InvalidRequest, match="100"):
        check_depth(deep(MAX_DEPTH // step + 1, opening, closing))


@pytest.mark.parametrize("levels", [1000, 100_000])
def test_what_never_closes_is_too_deep(levels: int) -> None:
    with pytest.raises(InvalidRequest):
        check_depth(b"[" * levels)


def test_many_values_beside_each_other_are_not_deep() -> None:
    check_depth(b"[" + b",".join([b"[{}]"] * 10_000) + b"]")


@pytest.mark.parametrize("text", ["[" * 500, '"[' * 500, "\\[" * 500, '\\"{' * 500, "\\\\", '[\\\\"' * 200])
def test_brackets_in_strings_do_not_count(text: str) -> None:
    check_depth(json.dumps({"a": text, "b": [text, {"c": text}]}).encode())


def test_brackets_behind_a_string_with_quotes_count() -> None:
    body = json.dumps({"a": 'x"[[[' * 30}).encode()[:-1] + b',"b":' + deep(MAX_DEPTH) + b"}"
    with pytest.raises(InvalidRequest):
        check_depth(body)


@FIXED
@given(free_json)
def test_json_of_a_usual_depth_passes(value: Any) -> None:
    check_depth(json.dumps([value] * 30).encode())
