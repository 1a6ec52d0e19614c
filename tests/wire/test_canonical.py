"""Canonical JSON: the examples of RFC 8785, what has no canonical form, and another implementation beside ours."""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.strategies import FIXED, free_json
from tieline.wire.canonical import MAX_DEPTH, NotCanonical, canonical, load

# RFC 8785, Appendix B: the bits of a double, and how it is written
NUMBERS = {
    "0000000000000000": "0",
    "8000000000000000": "0",
    "0000000000000001": "5e-324",
    "8000000000000001": "-5e-324",
    "7fefffffffffffff": "1.7976931348623157e+308",
    "ffefffffffffffff": "-1.7976931348623157e+308",
    "4340000000000000": "9007199254740992",
    "c340000000000000": "-9007199254740992",
    "4430000000000000": "295147905179352830000",
    "44b52d02c7e14af5": "9.999999999999997e+22",
    "44b52d02c7e14af6": "1e+23",
    "44b52d02c7e14af7": "1.0000000000000001e+23",
    "444b1ae4d6e2ef4e": "999999999999999700000",
    "444b1ae4d6e2ef4f": "999999999999999900000",
    "444b1ae4d6e2ef50": "1e+21",
    "3eb0c6f7a0b5ed8c": "9.999999999999997e-7",
    "3eb0c6f7a0b5ed8d": "0.000001",
    "41b3de4355555553": "333333333.3333332",
    "41b3de4355555554": "333333333.33333325",
    "41b3de4355555555": "333333333.3333333",
    "41b3de4355555556": "333333333.3333334",
    "41b3de4355555557": "333333333.33333343",
    "becbf647612f3696": "-0.0000033333333333333333",
    "43143ff3c1cb0959": "1424953923781206.2",
}

SAFE = 2**53 - 1  # what the other implementation takes of integers
same_numbers = st.integers(-SAFE, SAFE) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | same_numbers | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(("bits", "written"), NUMBERS.items())
def test_a_double_is_written_as_ecmascript_writes_it(bits: str, written: str) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical(number).decode() == written
    assert float(load(written.encode())) == number


@pytest.mark.parametrize("bits", ["7fffffffffffffff", "7ff0000000000000", "fff0000000000000"])
def test_what_is_no_number_has_no_canonical_form(bits: str) -> None:
    with pytest.raises(NotCanonical, match="too large, or is none"):
        canonical(struct.unpack(">d", bytes.fromhex(bits))[0])


@pytest.mark.requirement("signing.canonical", "signing.rfc-8785")
def test_the_sample_of_the_rfc_gives_its_canonical_form() -> None:
    document = rb"""{
      "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
      "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
      "literals": [null, true, false]
    }"""
    assert canonical(load(document)).decode() == (
        '{"literals":[null,true,false],'
        '"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


def test_members_are_sorted_by_the_code_units_of_utf_16() -> None:
    document = rb"""{"\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh",
      "1": "One", "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control",
      "\u00f6": "Latin Small Letter O With Diaeresis"}"""
    told = list(json.loads(canonical(load(document))).values())
    assert told == [
        "Carriage Return",
        "One",
        "Control",
        "Latin Small Letter O With Diaeresis",
        "Euro Sign",
        "Emoji: Grinning Face",
        "Hebrew Letter Dalet With Dagesh",
    ]
    assert canonical({"\U0001f600": 1, "\ufb33": 2}) == '{"\U0001f600":1,"\ufb33":2}'.encode()


def test_only_what_has_to_be_escaped_is_and_in_the_shortest_way() -> None:
    assert canonical('\b\t\n\f\r\0\x1f"\\/\x7f\u2028é') == '"\\b\\t\\n\\f\\r\\u0000\\u001f\\"\\\\/\x7f\u2028é"'.encode()


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        (rb'{"a":1,"b":{"x":1,"x":1}}', "the member 'x' twice"),
        (rb'"\ud800"', "surrogate pair"),
        (rb'{"\udc00": 1}', "surrogate pair"),
        (b'"\xff"', "not UTF-8"),
        (b"9007199254740993", "no double-precision number"),
        (b"-1" + b"0" * 309, "too large"),
        (b"1" * 5000, "too large"),
        (b"1e400", "too large"),
        (b"NaN", "NaN is no JSON"),
        (b"[1,]", "it is not JSON"),
        (b"", "it is not JSON"),
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), f"more than {MAX_DEPTH} deep"),
        (b"[" * 100_000, "deep"),
    ],
)
def test_what_two_readers_might_take_for_different_values_is_refused(document: bytes, fault: str) -> None:
    with pytest.raises(NotCanonical, match=fault):
        canonical(load(document))


@pytest.mark.parametrize("value", [{1: "a"}, b"bytes", {"a": {1, 2}}, object()])
def test_what_is_no_value_of_json_is_refused(value: Any) -> None:
    with pytest.raises(NotCanonical):
        canonical(value)


def test_integers_that_are_doubles_are_written_as_those_and_others_refused() -> None:
    assert canonical(2**53) == b"9007199254740992"
    assert canonical(2**53 + 2) == b"9007199254740994"
    assert canonical(10**21) == b"1e+21"
    assert canonical(10**23) == b"1e+23"  # the double is not that number, but no shorter digits mean this double
    for number in (2**53 + 1, -(2**53) - 1, 10**23 + 1, 2**64 - 1, 10**309):
        with pytest.raises(NotCanonical):
            canonical(number)


def test_the_deepest_that_is_taken_is_taken() -> None:
    document = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert canonical(load(document)) == document


@FIXED
@given(json_values)
def test_another_implementation_writes_the_same_bytes(value: Any) -> None:
    assert canonical(value) == rfc8785.dumps(value)


@FIXED
@given(json_values)
def test_the_canonical_form_is_read_back_as_the_same_value_and_is_its_own_canonical_form(value: Any) -> None:
    written = canonical(value)
    assert canonical(load(written)) == written
    assert canonical(json.loads(written, parse_int=float)) == written
    assert json.loads(written, parse_int=float) == json.loads(json.dumps(value), parse_int=float)


@FIXED
@given(json_values, st.randoms(use_true_random=False))
def test_neither_the_order_of_members_nor_white_space_makes_a_difference(value: Any, random: Any) -> None:
    def shuffled(item: Any) -> Any:
        if isinstance(item, list):
            return [shuffled(each) for each in item]
        if isinstance(item, dict):
            names = list(item)
            random.shuffle(names)
            return {name: shuffled(item[name]) for name in names}
        return item

    document = json.dumps(shuffled(value), indent=2).encode()
    assert canonical(load(document)) == canonical(value)


@FIXED
@given(st.binary(max_size=40) | free_json.map(lambda value: json.dumps(value).encode()))
def test_whatever_comes_is_either_canonical_or_refused(document: bytes) -> None:
    with suppress(NotCanonical):
        assert canonical(load(canonical(load(document))))
