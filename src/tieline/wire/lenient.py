"""Values of 1.0 out of JSON in whatever shape peers of any version are known to write them. Pure.

`read` brings JSON to the canonical form by the rows of quirks.py, from the outside in, and then makes the values of it
as types.py does. It is the slow way: a dialect tries its own typed decoder first.
"""

from __future__ import annotations

import re
from functools import lru_cache
from types import UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin

import msgspec

from tieline.errors import InvalidParams, InvalidPeerResponse
from tieline.types import (
    ListTaskPushNotificationConfigsResponse,
    ListTasksResponse,
    SendMessageRequest,
    Value,
    _has_long_number,
    _protojson,
    own_copy,
    violation,
)
from tieline.wire.quirks import QUIRKS
from tieline.wire.quirks_document import Document, JsonObject, Step

__all__ = ["read", "read_result"]

T = TypeVar("T")

_LISTS: Final[dict[type[Any], str]] = {ListTasksResponse: "tasks", ListTaskPushNotificationConfigsResponse: "configs"}
"""What stands as a bare list with some peers: the member of 1.0 that it is."""


def read(data: bytes | msgspec.Raw, type_: type[T], *, root: str = "", protobuf: bool = False) -> T:
    """A value of 1.0 out of JSON in whatever shape peers of any version are known to write it.

    `protobuf`: the document is known to be protobuf's JSON of 0.3 (REST of that version); else its shape tells.

    Raises:
        InvalidParams: with the path of the bad field behind `root`, in the names as they were given.
        msgspec.DecodeError: `data` is not JSON.
    """
    try:
        value = _protojson(msgspec.json.decode(data))
    except msgspec.ValidationError as error:  # a number out of range
        raise violation(error, root) from None
    except RecursionError:
        raise InvalidParams.at(root or "params", "nests too deeply") from None
    doc = Document(request=type_ is SendMessageRequest, protobuf=protobuf or _is_protobuf(value))
    if type(value) is list and (name := _LISTS.get(type_)):
        value = JsonObject({name: value}, type_, doc)
        value.given[name] = ""
    value = _normal(value, type_, doc, root=True)
    try:
        made = msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        raise _as_given(violation(error), value, root) from None
    return own_copy(made) if _has_long_number(data) else made


def read_result(data: bytes | msgspec.Raw, type_: type[T]) -> T:
    """A result as it was meant, as `read` has it. Raises InvalidPeerResponse."""
    try:
        return read(data, type_, root="result")
    except InvalidParams as error:
        raise InvalidPeerResponse(f"The answer is not valid: {error}", violations=error.violations) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidPeerResponse(f"The answer is not valid JSON: {error}") from None


@lru_cache
def _steps(type_: type[Any]) -> tuple[Step, ...]:
    return tuple(
        quirk.step for quirk in QUIRKS if quirk.step and any(issubclass(type_, where) for where in quirk.where)
    )


@lru_cache
def _inner(type_: type[Any]) -> tuple[tuple[str, type[Any], bool], ...]:
    """The fields that hold values: name on the wire, type, and whether it is a list of them."""
    found = []
    for field in msgspec.structs.fields(type_):
        for option in get_args(field.type) if get_origin(field.type) in (Union, UnionType) else (field.type,):
            many = get_origin(option) is tuple
            held = get_args(option)[0] if many else option
            if isinstance(held, type) and issubclass(held, Value):
                found.append((field.encode_name, held, many))
    return tuple(found)


def _normal(value: Any, type_: type[Any], doc: Document, *, root: bool = False) -> Any:
    """JSON in the canonical form of `type_`, as far as the table knows how."""
    if not isinstance(value, dict) or not issubclass(type_, Value):
        return value
    if not isinstance(value, JsonObject):
        value = JsonObject(value, type_, doc, root=root)
    value.type_ = type_
    for step in _steps(type_):
        value = step(value)
    for name, inner, many in _inner(type_):
        item = value.get(name)
        if many and isinstance(item, list):
            value[name] = [_normal(one, inner, doc) for one in item]
        elif item is not None and not many:
            value[name] = _normal(item, inner, doc)
    return value


_FREE: Final = frozenset(("data", "metadata"))


def _is_protobuf(value: Any) -> bool:
    """Whether a document has a name that only protobuf's JSON of 0.3 has."""
    if isinstance(value, list):
        return any(map(_is_protobuf, value))
    if not isinstance(value, dict):
        return False
    if isinstance(value.get("content"), list) and "role" in value and "parts" not in value and "kind" not in value:
        return True
    return any(_is_protobuf(item) for name, item in value.items() if name not in _FREE)


# --- errors -----------------------------------------------------------------------------------------------------------

_SEGMENT: Final = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


def _as_given(error: InvalidParams, value: Any, root: str) -> InvalidParams:
    """The error with the path of the field as the document has it."""
    (bad,) = error.violations
    path = value.at if isinstance(value, JsonObject) else ""
    for index, name in _SEGMENT.findall("" if bad.field == "params" else bad.field):
        if index:
            value = value[int(index)] if isinstance(value, list) and int(index) < len(value) else None
            path += f"[{index}]"
        else:
            given = value.given.get(name, name) if isinstance(value, JsonObject) else name
            value = value.get(name) if isinstance(value, dict) else None
            if given.startswith("^"):
                path, given = path.rpartition(".")[0], given[1:]
            path = _joined(path, given)
        if isinstance(value, JsonObject):
            path = _joined(path, value.at)
    description = bad.description
    if isinstance(value, JsonObject) and value.refused:
        name, description = value.refused
        path = _joined(path, name)
    return InvalidParams.at(_joined(root, path) or "params", description)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path and name and not name.startswith("[") else path + name
