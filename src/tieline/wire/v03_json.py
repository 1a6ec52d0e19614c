"""JSON of peers of 0.3, read as the types of a schema in one step. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from tieline.types import _has_long_number, own_copy, snake_names
from tieline.wire.dialect import Json

__all__ = ["NOT_OF_SCHEMA", "Reader", "kept"]

T = TypeVar("T")

NOT_OF_SCHEMA: Final = (msgspec.DecodeError, ValueError, RecursionError)
"""What reading raises for what is not of the schema."""

_SNAKE: Final = re.compile(r"_([a-z0-9])")
_FREE_FORM: Final = frozenset(("data", "metadata"))


class Reader(Generic[T]):
    """Reads one type of a schema; names in snake_case, which some peers write, are read, too.

    `others`: more names by which a field goes.
    """

    def __init__(self, type_: Any, others: Mapping[str, str] | None = None) -> None:
        self._type = type_
        self._decode = msgspec.json.Decoder(type_).decode
        self._finder: Callable[[bytes | msgspec.Raw], object] | None = None  # made when first wanted: it takes a while
        self._others = others or {}
        self._other_name = re.compile(rb'"(?:' + b"|".join(map(str.encode, self._others)) + rb')"\s*:').search

    def __call__(self, data: Json) -> T:
        """Raises msgspec.DecodeError."""
        view = bytes(data)
        value: T
        if (b"_" in view and self._in_snake_case()(view)) or (self._others and self._other_name(view)):
            value = msgspec.convert(self._renamed(msgspec.json.decode(view)), self._type)
        else:
            value = self._decode(view)
        return value

    def _in_snake_case(self) -> Callable[[bytes | msgspec.Raw], object]:
        found = self._finder
        if found is None:
            found = self._finder = snake_names(self._type)
        return found

    def _renamed(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._renamed(item) for item in value]
        if not isinstance(value, dict):
            return value
        out = {}
        for name, item in value.items():
            key = _SNAKE.sub(lambda match: match.group(1).upper(), name) if "_" in name else name
            key = self._others.get(key, key)
            out[key] = item if key in _FREE_FORM else self._renamed(item)
        return out


def kept(data: Json, value: T) -> T:
    """`value`, read from `data`, with integers of any size."""
    return own_copy(value) if _has_long_number(data) else value
