"""A2A 1.0 in protobuf: the values of tieline.types to and from the messages of package lf.a2a.v1. Pure.

What protobuf changes: a field without presence that holds its default is an absent one, and a JSON number is a double.
Integers that a double holds exactly come back as the integers that they were; one that it does not hold is refused
when it is written, as are NaN, infinities and JSON that nests deeper than protobuf's limit. Nothing is rounded.

An rpc is described once for servers and clients (`Rpc`), in `RPCS` by its name on the wire.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import copysign, isfinite
from typing import Any, Final, NamedTuple, NoReturn, TypeVar, get_args, get_type_hints

try:
    from a2a.types import a2a_pb2 as pb
    from google.protobuf.empty_pb2 import Empty
    from google.protobuf.message import DecodeError
except ImportError as error:
    raise ImportError(f"gRPC needs: pip install 'tieline[grpc]' ({error})") from error
import msgspec

from tieline.card import AgentCard
from tieline.errors import InvalidParams, InvalidPeerResponse, ParseError, UnsupportedOperation
from tieline.types import (
    Artifact,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamEvent,
    SubscribeToTaskRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    encode,
)

__all__ = ["RPCS", "SERVICE", "Fault", "Rpc", "read_struct", "rpcs_by_name", "write_struct"]

SERVICE: Final = "lf.a2a.v1.A2AService"
VERSION: Final = "1.0"

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


class Rpc(NamedTuple):
    """One method of a gRPC service, with what it carries as bytes.

    `operation` is its name in A2A 1.0, the dialect of the values. The answer of a stream is one event.

    Readers raise ParseError or InvalidParams for requests and InvalidPeerResponse for answers. What protobuf cannot
    carry is InvalidParams in a request, UnsupportedOperation in an answer; both name the field.
    """

    name: str
    operation: str
    read_request: Callable[[bytes], Any]
    write_request: Callable[[Any], bytes]
    read_answer: Callable[[bytes], Any]
    write_answer: Callable[[Any], bytes]

    @property
    def streaming(self) -> bool:
        return self.operation in ("SendStreamingMessage", "SubscribeToTask")


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
    if not 0 <= number < len(_STATES):
        raise Fault("state", f"{number} is no state of a task")
    return _STATES[number]


def read_role(number: int) -> Role:
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
    try:
        into.extend(texts)
    except UnicodeEncodeError:
        raise Fault(name, "cannot be written as UTF-8") from None


def write_count(message: Any, name: str, count: int) -> None:
    try:
        setattr(message, name, count)
    except ValueError:
        raise Fault(json_name(name), f"{count} is more than 32 bits") from None


def json_name(name: str) -> str:
    """A field's name as JSON has it."""
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)


# --- messages, tasks and their events: what is hot --------------------------------------------------------------------


def read_part(part: Any) -> Part:
    kind = part.WhichOneof("content")
    metadata = None
    if part.HasField("metadata"):
        metadata = inside("metadata", read_struct, part.metadata)
    filename, media_type = part.filename or None, part.media_type or None
    if kind == "text":
        return Part(part.text, metadata=metadata, filename=filename, media_type=media_type)
    if kind == "data":
        data = inside("data", read_value, part.data)
        return Part(data=data, metadata=metadata, filename=filename, media_type=media_type)
    if kind == "raw":
        return Part(raw=part.raw, metadata=metadata, filename=filename, media_type=media_type)
    if kind == "url":
        return Part(url=part.url, metadata=metadata, filename=filename, media_type=media_type)
    raise Fault("", "wants exactly one of text, raw, url or data, got 0")


def write_part(into: Any, part: Part) -> None:
    text, raw = part.text, part.raw
    if text is not None:
        write_text(into, "text", text)
    elif raw is not None:
        into.raw = bytes(raw)
    elif part.url is not None:
        write_text(into, "url", part.url)
    else:
        try:
            write_value(into.data, part.data)
        except Fault as fault:
            raise fault.within("data") from None
    if part.metadata is not None:
        write_metadata(into, part.metadata)
    if part.filename:
        write_text(into, "filename", part.filename)
    if part.media_type:
        write_text(into, "media_type", part.media_type)


def read_metadata(message: Any) -> dict[str, Any] | None:
    return inside("metadata", read_struct, message.metadata) if message.HasField("metadata") else None


def write_metadata(into: Any, metadata: Mapping[str, Any]) -> None:
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


def read_message(message: Any) -> Message:
    return Message(
        message.message_id,
        read_role(message.role),
        read_all("parts", read_part, message.parts),
        message.context_id or None,
        message.task_id or None,
        read_metadata(message),
        tuple(message.extensions),
        tuple(message.reference_task_ids),
    )


def write_message(into: Any, message: Message) -> None:
    into.SetInParent()
    write_text(into, "message_id", message.message_id)
    into.role = _ROLE_NUMBERS[message.role]
    write_all("parts", write_part, into.parts, message.parts)
    if message.context_id:
        write_text(into, "context_id", message.context_id)
    if message.task_id:
        write_text(into, "task_id", message.task_id)
    if message.metadata is not None:
        write_metadata(into, message.metadata)
    if message.extensions:
        write_texts(into.extensions, message.extensions, "extensions")
    if message.reference_task_ids:
        write_texts(into.reference_task_ids, message.reference_task_ids, "referenceTaskIds")


def read_status(status: Any) -> TaskStatus:
    return TaskStatus(
        read_state(status.state),
        inside("message", read_message, status.message) if status.HasField("message") else None,
        inside("timestamp", read_timestamp, status.timestamp) if status.HasField("timestamp") else None,
    )


def write_status(into: Any, status: TaskStatus) -> None:
    into.SetInParent()
    into.state = _STATE_NUMBERS[status.state]
    if status.message is not None:
        into_field("message", write_message, into.message, status.message)
    if status.timestamp:
        into_field("timestamp", write_timestamp, into.timestamp, status.timestamp)


def into_field(name: str, write: Callable[[Any, T], None], into: Any, value: T) -> None:
    """Write one message inside another; a fault has `name` before its path."""
    try:
        write(into, value)
    except Fault as fault:
        raise fault.within(name) from None


def read_artifact(artifact: Any) -> Artifact:
    return Artifact(
        artifact.artifact_id,
        read_all("parts", read_part, artifact.parts),
        artifact.name or None,
        artifact.description or None,
        read_metadata(artifact),
        tuple(artifact.extensions),
    )


def write_artifact(into: Any, artifact: Artifact) -> None:
    into.SetInParent()
    write_text(into, "artifact_id", artifact.artifact_id)
    write_all("parts", write_part, into.parts, artifact.parts)
    if artifact.name:
        write_text(into, "name", artifact.name)
    if artifact.description:
        write_text(into, "description", artifact.description)
    if artifact.metadata is not None:
        write_metadata(into, artifact.metadata)
    if artifact.extensions:
        write_texts(into.extensions, artifact.extensions, "extensions")


def read_task(task: Any) -> Task:
    return Task(
        task.id,
        inside("status", read_status, required(task, "status")),
        task.context_id or None,
        read_all("artifacts", read_artifact, task.artifacts),
        read_all("history", read_message, task.history),
        read_metadata(task),
    )


def write_task(into: Any, task: Task) -> None:
    into.SetInParent()
    write_text(into, "id", task.id)
    into_field("status", write_status, into.status, task.status)
    if task.context_id:
        write_text(into, "context_id", task.context_id)
    if task.artifacts:
        write_all("artifacts", write_artifact, into.artifacts, task.artifacts)
    if task.history:
        write_all("history", write_message, into.history, task.history)
    if task.metadata is not None:
        write_metadata(into, task.metadata)


def required(message: Any, name: str) -> Any:
    if not message.HasField(name):
        raise Fault(json_name(name), "is required")
    return getattr(message, name)


def read_status_update(event: Any) -> TaskStatusUpdateEvent:
    status = inside("status", read_status, required(event, "status"))
    return TaskStatusUpdateEvent(event.task_id, event.context_id, status, read_metadata(event))


def write_status_update(into: Any, event: TaskStatusUpdateEvent) -> None:
    into.SetInParent()
    write_text(into, "task_id", event.task_id)
    write_text(into, "context_id", event.context_id)
    into_field("status", write_status, into.status, event.status)
    if event.metadata is not None:
        write_metadata(into, event.metadata)


def read_artifact_update(event: Any) -> TaskArtifactUpdateEvent:
    artifact = inside("artifact", read_artifact, required(event, "artifact"))
    return TaskArtifactUpdateEvent(
        event.task_id, event.context_id, artifact, event.append, event.last_chunk, read_metadata(event)
    )


def write_artifact_update(into: Any, event: TaskArtifactUpdateEvent) -> None:
    into.SetInParent()
    write_text(into, "task_id", event.task_id)
    write_text(into, "context_id", event.context_id)
    into_field("artifact", write_artifact, into.artifact, event.artifact)
    if event.append:
        into.append = True
    if event.last_chunk:
        into.last_chunk = True
    if event.metadata is not None:
        write_metadata(into, event.metadata)


_EVENTS: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "task": ("task", read_task),
    "message": ("message", read_message),
    "status_update": ("statusUpdate", read_status_update),
    "artifact_update": ("artifactUpdate", read_artifact_update),
}


def read_answer(answer: Any) -> Task | Message:
    """What a SendMessageResponse holds."""
    name = answer.WhichOneof("payload")
    if name is None:
        raise Fault("", "has to hold exactly one of task and message, it holds none")
    read: Task | Message = inside(name, _EVENTS[name][1], getattr(answer, name))
    return read


def write_answer(into: Any, answer: Task | Message) -> None:
    """A task or message into a SendMessageResponse."""
    if isinstance(answer, Task):
        into_field("task", write_task, into.task, answer)
    else:
        into_field("message", write_message, into.message, answer)


def read_event(response: Any) -> StreamEvent | None:
    """What a StreamResponse holds; None when it is something that this version does not know (A2A 1.0 §5.7)."""
    name = response.WhichOneof("payload")
    if name is None:
        return None
    told, read = _EVENTS[name]
    event: StreamEvent = inside(told, read, getattr(response, name))
    return event


def write_event(into: Any, event: StreamEvent) -> None:
    """An event into a StreamResponse."""
    if isinstance(event, TaskArtifactUpdateEvent):
        into_field("artifactUpdate", write_artifact_update, into.artifact_update, event)
    elif isinstance(event, TaskStatusUpdateEvent):
        into_field("statusUpdate", write_status_update, into.status_update, event)
    else:
        write_answer(into, event)


# --- requests ---------------------------------------------------------------------------------------------------------


def _read_send(request: Any) -> SendMessageRequest:
    configuration = None
    if request.HasField("configuration"):
        configuration = inside("configuration", _read_configuration, request.configuration)
    return SendMessageRequest(
        inside("message", read_message, required(request, "message")),
        request.tenant or None,
        configuration,
        read_metadata(request),
    )


def _write_send(into: Any, request: SendMessageRequest) -> None:
    into_field("message", write_message, into.message, request.message)
    if request.tenant:
        write_text(into, "tenant", request.tenant)
    if request.configuration is not None:
        into_field("configuration", _write_configuration, into.configuration, request.configuration)
    if request.metadata is not None:
        write_metadata(into, request.metadata)


def _read_configuration(configuration: Any) -> SendMessageConfiguration:
    webhook = None
    if configuration.HasField("task_push_notification_config"):
        read = reader_of(TaskPushNotificationConfig)
        webhook = inside("taskPushNotificationConfig", read, configuration.task_push_notification_config)
    return SendMessageConfiguration(
        tuple(configuration.accepted_output_modes),
        webhook,
        configuration.history_length if configuration.HasField("history_length") else None,
        configuration.return_immediately,
    )


def _write_configuration(into: Any, configuration: SendMessageConfiguration) -> None:
    into.SetInParent()
    write_texts(into.accepted_output_modes, configuration.accepted_output_modes, "acceptedOutputModes")
    webhook = configuration.task_push_notification_config
    if webhook is not None:
        into_field("taskPushNotificationConfig", write_fields, into.task_push_notification_config, webhook)
    if configuration.history_length is not None:
        write_count(into, "history_length", configuration.history_length)
    if configuration.return_immediately:
        into.return_immediately = True


def _read_get(request: Any) -> GetTaskRequest:
    history_length = request.history_length if request.HasField("history_length") else None
    return GetTaskRequest(_id_of(request), request.tenant or None, history_length)


def _id_of(request: Any) -> str:
    if not request.id:
        raise Fault("id", "is required")
    id_: str = request.id
    return id_


# --- all others: field by field, as the two definitions have them -----------------------------------------------------


class _Field(NamedTuple):
    """A field of a value: how it is in protobuf, and the type of what is inside it."""

    name: str
    required: bool
    default: Any
    inner: type[msgspec.Struct] | None
    kind: str  # "map", "list", "message", "struct", "timestamp", "state" or "scalar"
    presence: bool
    text: bool


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
                described.type == described.TYPE_STRING,
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
        setattr(into, field.name, _STATE_NUMBERS[given])
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


def _demanding(read: Callable[[Any], T], names: tuple[str, ...]) -> Callable[[Any], T]:
    """Demands strings that the specification requires: "" is an absent one."""

    def checked(message: Any) -> T:
        for name in names:
            if not getattr(message, name):
                raise Fault(json_name(name), "is required")
        return read(message)

    return checked


# --- rpcs -------------------------------------------------------------------------------------------------------------


def rpc(
    name: str,
    request: tuple[Any, Callable[[Any], Any], Callable[[Any, Any], None]],
    answer: tuple[Any, Callable[[Any], Any], Callable[[Any, Any], None]],
    *,
    operation: str = "",
) -> Rpc:
    """Puts an rpc together: for request and answer the protobuf class, how it is read and how it is written."""
    return Rpc(
        name,
        operation or name,
        _request_reader(request[0], request[1]),
        _writer(request[0], request[2], _refuse_request),
        _answer_reader(answer[0], answer[1]),
        _writer(answer[0], answer[2], _refuse_answer),
    )


def _request_reader(class_: Any, read: Callable[[Any], Any]) -> Callable[[bytes], Any]:
    parse = class_.FromString

    def read_request(data: bytes) -> Any:
        try:
            return read(parse(data))
        except Fault as fault:
            raise InvalidParams.at(fault.field or "request", fault.description) from None
        except DecodeError:
            raise ParseError(f"The request is not a {class_.DESCRIPTOR.full_name} in protobuf.") from None

    return read_request


def _answer_reader(class_: Any, read: Callable[[Any], Any]) -> Callable[[bytes], Any]:
    parse = class_.FromString

    def read_answer(data: bytes) -> Any:
        try:
            return read(parse(data))
        except Fault as fault:
            where = f"{fault.field}: " if fault.field else "it "
            raise InvalidPeerResponse(f"The answer is not valid: {where}{fault.description}") from None
        except DecodeError:
            name = class_.DESCRIPTOR.full_name
            raise InvalidPeerResponse(f"The answer is not a {name} in protobuf.") from None

    return read_answer


def _writer(
    class_: Any, write: Callable[[Any, Any], None], refuse: Callable[[Any, Fault], NoReturn]
) -> Callable[[Any], bytes]:
    def write_bytes(value: Any) -> bytes:
        message = class_()
        try:
            write(message, value)
        except Fault as fault:
            refuse(value, fault)
        except TypeError as error:
            refuse(value, Fault("", str(error)))
        data: bytes = message.SerializeToString()
        return data

    return write_bytes


def _refuse_request(value: Any, fault: Fault) -> NoReturn:
    raise InvalidParams.at(fault.field or "request", fault.description)


def _refuse_answer(value: Any, fault: Fault) -> NoReturn:
    metadata = {"field": fault.field}
    about = getattr(value, "task_id", None) or (value.id if isinstance(value, Task) else None)
    if about:
        metadata["taskId"] = about
    of_task = f" of task {about!r}" if about else ""
    raise UnsupportedOperation(
        f"The answer{of_task} cannot be given by gRPC: {fault.field}: {fault.description}.", metadata=metadata
    )


def rpcs_by_name(rpcs: Iterable[Rpc]) -> dict[str, Rpc]:
    return {each.name: each for each in rpcs}


def _generic(class_: Any, type_: type[Any], *names: str) -> tuple[Any, Callable[[Any], Any], Any]:
    return class_, _demanding(reader_of(type_), names), write_fields


def _nothing(message: Any, value: object = None) -> None:
    """Empty: nothing to read or write."""


_SEND = (pb.SendMessageRequest, _read_send, _write_send)
_TASK = (pb.Task, read_task, write_task)
_EVENT = (pb.StreamResponse, read_event, write_event)
_WEBHOOK = _generic(pb.TaskPushNotificationConfig, TaskPushNotificationConfig, "url")


def _read_page(page: Any) -> ListTasksResponse:
    tasks = read_all("tasks", read_task, page.tasks)
    return ListTasksResponse(tasks, page.next_page_token, page.page_size, page.total_size)


def _write_page(into: Any, page: ListTasksResponse) -> None:
    write_all("tasks", write_task, into.tasks, page.tasks)
    write_text(into, "next_page_token", page.next_page_token)
    write_count(into, "page_size", page.page_size)
    write_count(into, "total_size", page.total_size)


RPCS: Final = rpcs_by_name(
    (
        rpc("SendMessage", _SEND, (pb.SendMessageResponse, read_answer, write_answer)),
        rpc("SendStreamingMessage", _SEND, _EVENT),
        rpc("GetTask", (pb.GetTaskRequest, _read_get, write_fields), _TASK),
        rpc(
            "ListTasks",
            _generic(pb.ListTasksRequest, ListTasksRequest),
            (pb.ListTasksResponse, _read_page, _write_page),
        ),
        rpc("CancelTask", _generic(pb.CancelTaskRequest, CancelTaskRequest, "id"), _TASK),
        rpc("SubscribeToTask", _generic(pb.SubscribeToTaskRequest, SubscribeToTaskRequest, "id"), _EVENT),
        rpc("CreateTaskPushNotificationConfig", _WEBHOOK, _WEBHOOK),
        rpc(
            "GetTaskPushNotificationConfig",
            _generic(pb.GetTaskPushNotificationConfigRequest, GetTaskPushNotificationConfigRequest, "task_id", "id"),
            _WEBHOOK,
        ),
        rpc(
            "ListTaskPushNotificationConfigs",
            _generic(pb.ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsRequest, "task_id"),
            _generic(pb.ListTaskPushNotificationConfigsResponse, ListTaskPushNotificationConfigsResponse),
        ),
        rpc(
            "DeleteTaskPushNotificationConfig",
            _generic(
                pb.DeleteTaskPushNotificationConfigRequest, DeleteTaskPushNotificationConfigRequest, "task_id", "id"
            ),
            (Empty, _nothing, _nothing),
        ),
        rpc(
            "GetExtendedAgentCard",
            _generic(pb.GetExtendedAgentCardRequest, GetExtendedAgentCardRequest),
            _generic(pb.AgentCard, AgentCard),
        ),
    )
)
"""The rpcs of A2A 1.0 §10.3."""
