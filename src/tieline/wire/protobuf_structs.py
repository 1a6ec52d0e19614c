"""Structs to and from protobuf messages whose fields have the names of theirs, field by field. Pure.

For all that is not hot. Readers take a message and give a value, writers take the message that is to hold one. Both
raise Fault.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar, get_args, get_type_hints

import msgspec

from tieline.types import TaskState
from tieline.wire.protobuf_fields import (
    Fault,
    inside,
    into_field,
    json_name,
    read_all,
    read_struct,
    read_timestamp,
    state_number,
    write_all,
    write_struct,
    write_timestamp,
)

__all__ = ["demanding", "reader_of", "write_fields"]

T = TypeVar("T")

_STATES: Final = tuple(TaskState)  # members stand in the order of their numbers


class _Field(NamedTuple):
    """A field of a value: how it is in protobuf, and the type of what is inside it."""

    name: str
    required: bool
    default: Any
    inner: type[msgspec.Struct] | None
    kind: str  # "map", "list", "message", "struct", "timestamp", "state" or "scalar"
    presence: bool


@lru_cache(None)
def _fields(type_: type[msgspec.Struct], descriptor: Any) -> tuple[_Field, ...]:
    hints = get_type_hints(type_)
    fields = []
    for field in msgspec.structs.fields(type_):
        described = descriptor.fields_by_name.get(field.name)
        if described is None:  # this version of the message has no such field
            continue
        message = described.message_type
        repeated = described.is_repeated
        kind = "scalar"
        if message is not None and message.GetOptions().map_entry:
            kind = "map"
        elif repeated:
            kind = "list"
        elif message is not None:
            kind = {"google.protobuf.Struct": "struct", "google.protobuf.Timestamp": "timestamp"}.get(
                message.full_name, "message"
            )
        elif described.enum_type is not None:
            kind = "state"
        fields.append(
            _Field(
                field.name,
                field.required,
                None if field.required or field.default is msgspec.NODEFAULT else field.default,
                _struct_in(hints[field.name]),
                kind,
                described.has_presence,
            )
        )
    return tuple(fields)


def _struct_in(hint: Any) -> type[msgspec.Struct] | None:
    """The Struct that an annotation speaks of: in itself, a tuple, a dict or a union."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return hint
    return next((found for inner in get_args(hint) if (found := _struct_in(inner)) is not None), None)


def reader_of(type_: type[T]) -> Callable[[Any], T]:
    """Reads a message as `type_`, whose fields have the names that they have in protobuf."""

    def read(message: Any) -> T:
        made: dict[str, Any] = {}
        for field in _fields(type_, message.DESCRIPTOR):  # type: ignore[arg-type]
            try:
                made[field.name] = _read_field(message, field)
            except Fault as fault:
                raise fault.within(json_name(field.name)) from None
        try:
            return type_(**made)
        except ValueError as error:
            raise Fault("", str(error)) from None

    return read


def _read_field(message: Any, field: _Field) -> Any:
    value = getattr(message, field.name)
    if field.kind == "map":
        inner = reader_of(field.inner) if field.inner is not None else str
        return {key: inside(key, inner, item) for key, item in value.items()}
    if field.kind == "list":
        return read_all("", reader_of(field.inner), value) if field.inner is not None else tuple(value)
    if field.presence and not message.HasField(field.name):
        if field.required:
            raise Fault("", "is required")
        return field.default
    if field.kind == "message":
        assert field.inner is not None
        return reader_of(field.inner)(value)
    if field.kind == "struct":
        return read_struct(value)
    if field.kind == "timestamp":
        return read_timestamp(value)
    if field.kind == "state":
        if not 0 <= value < len(_STATES):
            raise Fault("", f"{value} is no state of a task")
        return _STATES[value] if value else field.default
    return value if value or field.presence or field.required else field.default


def write_fields(into: Any, value: msgspec.Struct) -> None:
    """A value into the message whose fields have its fields' names."""
    into.SetInParent()
    for field in _fields(type(value), into.DESCRIPTOR):
        given = getattr(value, field.name)
        if given is not None and (given or field.presence or field.required):
            try:
                _write_field(into, field, given)
            except Fault as fault:
                raise fault.within(json_name(field.name)) from None
            except UnicodeEncodeError:
                raise Fault(json_name(field.name), "cannot be written as UTF-8") from None
            except ValueError:
                raise Fault(json_name(field.name), f"{given} is more than 32 bits") from None


def _write_field(into: Any, field: _Field, given: Any) -> None:
    if field.kind == "scalar":
        setattr(into, field.name, given)
        return
    if field.kind == "state":
        setattr(into, field.name, state_number(given))
        return
    target = getattr(into, field.name)
    if field.kind == "map":
        for key, item in given.items():
            if field.inner is None:
                target[key] = item
            else:
                into_field(key, write_fields, target[key], item)
    elif field.kind == "list":
        if field.inner is None:
            target.extend(given)
        else:
            write_all("", write_fields, target, given)
    elif field.kind == "struct":
        write_struct(target, given)
    elif field.kind == "timestamp":
        write_timestamp(target, given)
    else:
        write_fields(target, given)


def demanding(read: Callable[[Any], T], names: tuple[str, ...]) -> Callable[[Any], T]:
    """Demands strings that the specification requires: "" is an absent one."""

    def checked(message: Any) -> T:
        for name in names:
            if not getattr(message, name):
                raise Fault(json_name(name), "is required")
        return read(message)

    return checked
