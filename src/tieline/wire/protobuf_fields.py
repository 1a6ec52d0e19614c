"""Fields of protobuf messages: free-form JSON, timestamps, enums, and lists. Pure.

What protobuf changes: a field without presence that holds its default is an absent one, and a JSON number is a double.
Integers that a double holds exactly come back as the integers that they were; one that it does not hold is refused
when it is written, as are NaN, infinities and JSON that nests deeper than protobuf's limit. Nothing is rounded.

Readers take a message and give a value, writers take the message that is to hold one. Both raise Fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import copysign, isfinite
from typing import Any, Final, TypeVar

import msgspec

from tieline.types import Role, TaskState, encode

__all__ = [
    "Fault",
    "inside",
    "into_field",
    "json_name",
    "read_all",
    "read_metadata",
    "read_role",
    "read_state",
    "read_struct",
    "read_timestamp",
    "read_value",
    "required",
    "role_number",
    "state_number",
    "write_all",
    "write_count",
    "write_metadata",
    "write_struct",
    "write_text",
    "write_texts",
    "write_timestamp",
    "write_value",
]

_LEVELS: Final = 100  # messages inside each other that a reader of protobuf takes
_ABOVE: Final = 6  # of them above a free-form field, at most: answer, task, status, message, part, and the field itself
_EXACT: Final = 1 << 53  # every integer up to here is a double
_INTEGERS: Final = float(1 << 63)  # a larger number without fraction is read as the float that it is
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_S, _LAST_S = -62135596800, 253402300799  # the years 1 to 9999, as protobuf has them
_RFC_3339: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.(?P<fraction>\d{1,9}))?(?:[Zz]|[+-]\d\d:\d\d)\Z", re.ASCII
)

T = TypeVar("T")


class Fault(ValueError):
    """A field that cannot be read or written: its path in JSON names, grown on the way up, and what is wrong."""

    def __init__(self, field: str, description: str) -> None:
        super().__init__(description)
        self.field = field
        self.description = description

    def within(self, name: str) -> Fault:
        """The same fault with the field that it is in before its path."""
        if not self.field:
            self.field = name
        else:
            self.field = f"{name}{self.field}" if self.field.startswith("[") else f"{name}.{self.field}"
        return self


# --- free-form JSON ---------------------------------------------------------------------------------------------------


def read_value(value: Any) -> Any:
    """A google.protobuf.Value as JSON; one without a kind is null."""
    kind = value.WhichOneof("kind")
    if kind == "string_value":
        return value.string_value
    if kind == "number_value":
        number = value.number_value
        if -_INTEGERS <= number <= _INTEGERS and number.is_integer():
            return int(number) if number or copysign(1.0, number) > 0 else number
        if not isfinite(number):
            raise Fault("", f"{number} is not a JSON value")
        return number
    if kind == "struct_value":
        return read_struct(value.struct_value)
    if kind == "list_value":
        items: list[Any] = []
        try:
            for item in value.list_value.values:
                items.append(read_value(item))  # noqa: PERF401  # its length says where a fault is
        except Fault as fault:
            raise fault.within(f"[{len(items)}]") from None
        return items
    return value.bool_value if kind == "bool_value" else None


def read_struct(struct: Any) -> dict[str, Any]:
    """A google.protobuf.Struct as a JSON object."""
    read: dict[str, Any] = {}
    for key, value in struct.fields.items():
        try:
            read[key] = read_value(value)
        except Fault as fault:
            raise fault.within(key) from None
    return read


def write_struct(struct: Any, given: Mapping[str, Any], left: int = _LEVELS - _ABOVE) -> None:
    """A JSON object into a google.protobuf.Struct that has been reached. Raises Fault.

    `left` is how many messages may be inside each other below it.
    """
    struct.SetInParent()
    fields = struct.fields
    for key, value in given.items():
        if type(key) is not str:
            write_struct(struct, _plain(given), left)
            return
        try:
            write_value(fields[key], value, left - 2)
        except Fault as fault:
            raise fault.within(key) from None
        except UnicodeEncodeError:
            raise Fault("", "a name in it cannot be written as UTF-8") from None


def write_value(value: Any, given: Any, left: int = _LEVELS - _ABOVE) -> None:
    """A JSON value into a google.protobuf.Value. Raises Fault."""
    kind = type(given)
    if kind is str:
        try:
            value.string_value = given
        except UnicodeEncodeError:
            raise Fault("", "cannot be written as UTF-8") from None
    elif kind is bool:
        value.bool_value = given
    elif kind is int:
        value.number_value = _as_double(given)
    elif kind is float:
        if not isfinite(given):
            raise Fault("", f"{given} is not a JSON value")
        value.number_value = given
    elif given is None:
        value.null_value = 0
    elif left <= 1:
        raise Fault("", "nests too deep for gRPC; JSON-RPC and HTTP+JSON carry it")
    elif kind is dict:
        write_struct(value.struct_value, given, left - 1)
    elif kind is list or kind is tuple:
        values = value.list_value
        values.SetInParent()
        add = values.values.add
        for index, item in enumerate(given):
            try:
                write_value(add(), item, left - 2)
            except Fault as fault:
                raise fault.within(f"[{index}]") from None
    elif isinstance(given, int):
        value.number_value = _as_double(int(given))
    else:
        write_value(value, _plain(given), left)


def _as_double(number: int) -> float:
    if -_EXACT <= number <= _EXACT:
        return number
    try:
        double = float(number)
    except OverflowError:
        double = 0.0
    if int(double) != number:
        told = str(number) if number.bit_length() < 256 else f"an integer of {number.bit_length()} bits"
        raise Fault(
            "", f"{told} cannot be carried exactly by gRPC, whose numbers are doubles; JSON-RPC and HTTP+JSON do"
        )
    return double


def _plain(given: Any) -> Any:
    """What is more than a JSON value, as the JSON value that it is written as."""
    try:
        return msgspec.json.decode(encode(given))
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise Fault("", f"is not a JSON value: {error}") from None


# --- scalars ----------------------------------------------------------------------------------------------------------


def read_timestamp(stamp: Any) -> str:
    """RFC 3339 in UTC, with milliseconds (A2A 1.0 §5.6.1), or with as many digits more as it has."""
    seconds, nanos = stamp.seconds, stamp.nanos
    if not (_FIRST_S <= seconds <= _LAST_S and 0 <= nanos < 1_000_000_000):
        raise Fault("", "is not a timestamp between the years 1 and 9999")
    second = (_EPOCH + timedelta(seconds=seconds)).strftime("%m-%dT%H:%M:%S")
    year = (_EPOCH + timedelta(seconds=seconds)).year
    if nanos % 1_000_000 == 0:
        return f"{year:04d}-{second}.{nanos // 1_000_000:03d}Z"
    fraction = f"{nanos // 1000:06d}" if nanos % 1000 == 0 else f"{nanos:09d}"
    return f"{year:04d}-{second}.{fraction}Z"


@lru_cache(256)
def _moment(text: str) -> tuple[int, int]:
    match = _RFC_3339.match(text)
    if match is None:
        raise Fault("", f"{text[:40]!r} is not an RFC 3339 timestamp")
    fraction = match.group("fraction") or ""
    try:
        since = datetime.fromisoformat(text) - _EPOCH
    except (ValueError, OverflowError) as error:
        raise Fault("", f"{text!r} is not an RFC 3339 timestamp: {error}") from None
    seconds = since.days * 86400 + since.seconds
    if not _FIRST_S <= seconds <= _LAST_S:
        raise Fault("", f"{text!r} is not between the years 1 and 9999")
    return seconds, int(fraction.ljust(9, "0")) if fraction else 0


def write_timestamp(stamp: Any, text: str) -> None:
    """An RFC 3339 timestamp into a google.protobuf.Timestamp. Raises Fault."""
    stamp.seconds, stamp.nanos = _moment(text)
    stamp.SetInParent()


_STATES: Final = tuple(TaskState)  # members stand in the order of their numbers
_STATE_NUMBERS: Final = {state: number for number, state in enumerate(TaskState)}
_ROLES: Final = tuple(Role)
_ROLE_NUMBERS: Final = {role: number for number, role in enumerate(Role)}


state_number: Final = _STATE_NUMBERS.__getitem__
role_number: Final = _ROLE_NUMBERS.__getitem__


def read_state(number: int) -> TaskState:
    """A state by its number in 1.0. Raises Fault."""
    if not 0 <= number < len(_STATES):
        raise Fault("state", f"{number} is no state of a task")
    return _STATES[number]


def read_role(number: int) -> Role:
    """A role by its number in 1.0. Raises Fault."""
    if not 0 <= number < len(_ROLES):
        raise Fault("role", f"{number} is no role")
    return _ROLES[number]


def write_text(message: Any, name: str, text: str) -> None:
    """Set a string. Raises Fault with its JSON name."""
    try:
        setattr(message, name, text)
    except UnicodeEncodeError:
        raise Fault(json_name(name), "cannot be written as UTF-8") from None


def write_texts(into: Any, texts: Iterable[str], name: str) -> None:
    """Add to a list of strings. Raises Fault with its JSON name."""
    try:
        into.extend(texts)
    except UnicodeEncodeError:
        raise Fault(name, "cannot be written as UTF-8") from None


def write_count(message: Any, name: str, count: int) -> None:
    """Set a number that protobuf keeps in 32 bits. Raises Fault with its JSON name."""
    try:
        setattr(message, name, count)
    except ValueError:
        raise Fault(json_name(name), f"{count} is more than 32 bits") from None


def json_name(name: str) -> str:
    """A field's name as JSON has it."""
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)


# --- messages inside messages, and lists of them ---------------------------------------------------------------------


def read_metadata(message: Any) -> dict[str, Any] | None:
    """The field `metadata` of a message; None when it is absent."""
    return inside("metadata", read_struct, message.metadata) if message.HasField("metadata") else None


def write_metadata(into: Any, metadata: Mapping[str, Any]) -> None:
    """Set the field `metadata` of a message. Raises Fault."""
    try:
        write_struct(into.metadata, metadata)
    except Fault as fault:
        raise fault.within("metadata") from None


def inside(name: str, read: Callable[[Any], T], message: Any) -> T:
    """What `read` gives; a fault has `name` before its path."""
    try:
        return read(message)
    except Fault as fault:
        raise fault.within(name) from None


def read_all(name: str, read: Callable[[Any], T], messages: Iterable[Any]) -> tuple[T, ...]:
    """A repeated field; a fault has the field's JSON name and the index before its path."""
    items: list[T] = []
    try:
        for message in messages:
            items.append(read(message))  # noqa: PERF401  # its length says where a fault is
    except Fault as fault:
        raise fault.within(f"{name}[{len(items)}]") from None
    return tuple(items)


def write_all(name: str, write: Callable[[Any, T], None], into: Any, values: Iterable[T]) -> None:
    """A repeated field, as `read_all` reads it."""
    try:
        for value in values:
            write(into.add(), value)
    except Fault as fault:
        raise fault.within(f"{name}[{len(into) - 1}]") from None


def into_field(name: str, write: Callable[[Any, T], None], into: Any, value: T) -> None:
    """Write one message inside another; a fault has `name` before its path."""
    try:
        write(into, value)
    except Fault as fault:
        raise fault.within(name) from None


def required(message: Any, name: str) -> Any:
    """The message in a field that has to be there. Raises Fault."""
    if not message.HasField(name):
        raise Fault(json_name(name), "is required")
    return getattr(message, name)
