"""Canonical JSON (RFC 8785, JCS): one sequence of bytes for a JSON value, whoever writes it.

Members are sorted by the UTF-16 code units of their names, numbers are written as ECMAScript writes doubles, strings
with the fewest escapes, and nothing stands between the tokens. What two readers might take for different values has no
canonical form and is refused: a member twice, a half of a surrogate pair, a number that no double is.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from math import isfinite
from typing import Any, Final

__all__ = ["MAX_DEPTH", "NotCanonical", "canonical", "load"]

MAX_DEPTH: Final = 128
"""Arrays and objects inside each other; more are refused, as they come from strangers."""

_MOST_DIGITS: Final = 310  # of an integer: the largest double has 309
_EXACT: Final = 2**53  # every integer up to here is a double
_FULL_DIGITS: Final = 21  # ECMA-262 Number::toString: what has more digits before its point gets an exponent
_MOST_ZEROS: Final = 6  # and what has so many zeros behind it
_ESCAPED: Final = re.compile(r'[\x00-\x1f"\\]')
_SHORT: Final = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_ESCAPES: Final = {chr(code): f"\\u{code:04x}" for code in range(0x20)} | _SHORT


class NotCanonical(ValueError):
    """This has no canonical form; the sentence says why."""


def load(document: bytes) -> Any:
    """The value of a JSON text, as `canonical` takes it.

    Raises:
        NotCanonical: it is not JSON in UTF-8, or an object has a member twice.
    """
    try:
        text = document.decode("utf-8")
        return json.loads(text, object_pairs_hook=_once, parse_int=_integer, parse_constant=_constant)
    except UnicodeDecodeError:
        raise NotCanonical("it is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise NotCanonical(f"it is not JSON: {error.msg} in line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise NotCanonical(_too_deep()) from None


def canonical(value: Any) -> bytes:
    """The canonical form of a value made of dict, list, tuple, str, int, float, bool and None.

    Raises:
        NotCanonical: it has none.
    """
    out: list[str] = []
    _write(value, out, 0)
    try:
        return "".join(out).encode("utf-8")
    except UnicodeEncodeError:
        raise NotCanonical("a string has half of a surrogate pair in it") from None


def _write(value: Any, out: list[str], depth: int) -> None:
    if isinstance(value, str):
        out.append(_string(value))
    elif value is None or isinstance(value, bool):
        out.append({None: "null", True: "true", False: "false"}[value])
    elif isinstance(value, int):
        out.append(_number(_double(value)))
    elif isinstance(value, float):
        out.append(_number(value))
    elif isinstance(value, dict | list | tuple):
        if depth == MAX_DEPTH:
            raise NotCanonical(_too_deep())
        if isinstance(value, dict):
            _write_object(value, out, depth)
        else:
            for index, item in enumerate(value):
                out.append("," if index else "[")
                _write(item, out, depth + 1)
            out.append("]" if value else "[]")
    else:
        raise NotCanonical(f"{type(value).__name__} is no type of JSON")


def _write_object(value: dict[Any, Any], out: list[str], depth: int) -> None:
    for name in value:
        if not isinstance(name, str):
            raise NotCanonical(f"the name of a member is not a string but {name!r}")
    for index, name in enumerate(sorted(value, key=_code_units)):
        out.append("," if index else "{")
        out.append(_string(name))
        out.append(":")
        _write(value[name], out, depth + 1)
    out.append("}" if value else "{}")


def _code_units(name: str) -> bytes:
    # Big-endian, bytes are in the order of the code units; code points are in another one (RFC 8785 §3.2.3).
    try:
        return name.encode("utf-16-be")
    except UnicodeEncodeError:
        raise NotCanonical("the name of a member has half of a surrogate pair in it") from None


def _string(text: str) -> str:
    return '"' + _ESCAPED.sub(lambda match: _ESCAPES[match.group()], text) + '"'


def _double(number: int) -> float:
    """The double that an integer is, or is the shortest way to write: others would come back as another number."""
    if -_EXACT <= number <= _EXACT:
        return float(number)
    try:
        double = float(number)
    except OverflowError:
        raise NotCanonical("a number is too large") from None
    if double != number and Decimal(repr(double)) != number:  # both exact: nothing is rounded to compare
        raise NotCanonical("an integer is no double-precision number: it belongs into a string")
    return double


def _number(number: float) -> str:
    """As ECMA-262 §6.1.6.1.20, Number::toString, has it; its n is `point`, its k the count of `digits`."""
    if not isfinite(number):
        raise NotCanonical("a number is too large, or is none")
    if number == 0:
        return "0"  # minus zero, too
    sign = "-" if number < 0 else ""
    mantissa, _, exponent = repr(abs(number)).partition("e")  # the shortest digits that are read back as this number
    whole, _, fraction = mantissa.partition(".")
    written = whole + fraction
    digits = written.lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(written) - len(digits))
    digits = digits.rstrip("0")
    if len(digits) <= point <= _FULL_DIGITS:
        return sign + digits.ljust(point, "0")
    if 0 < point <= _FULL_DIGITS:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -_MOST_ZEROS < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    behind = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{behind}e{point - 1:+d}"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        raise NotCanonical(f"an object has the member {twice[:80]!r} twice")
    return found


def _integer(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise NotCanonical("a number is too large")
    return int(text)


def _constant(text: str) -> Any:
    raise NotCanonical(f"{text} is no JSON")


def _too_deep() -> str:
    return f"arrays and objects stand more than {MAX_DEPTH} deep in each other"
