"""The values of A2A 1.0: the only data model inside the program.

Names are the specification's in snake_case; camelCase lives on the wire only. Every value is a frozen msgspec Struct:
a change is a new value (`msgspec.structs.replace`). Lists are tuples, `()` is an absent list, None an absent string or
object. A field with explicit presence (`historyLength`) is None when absent.

`encode` and `decode` are the canonical JSON form (A2A 1.0 §5.5), the one that stores keep and that 1.0 speaks.
Source: the normative protobuf definition, package lf.a2a.v1.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from math import isfinite
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import UNSET

from tieline.errors import InvalidParams

__all__ = [
    "Artifact",
    "AuthenticationInfo",
    "CancelTaskRequest",
    "DeleteTaskPushNotificationConfigRequest",
    "Encoded",
    "GetExtendedAgentCardRequest",
    "GetTaskPushNotificationConfigRequest",
    "GetTaskRequest",
    "ListTaskPushNotificationConfigsRequest",
    "ListTaskPushNotificationConfigsResponse",
    "ListTasksRequest",
    "ListTasksResponse",
    "Message",
    "Part",
    "Role",
    "SendMessageConfiguration",
    "SendMessageRequest",
    "SendMessageResponse",
    "StreamEvent",
    "StreamResponse",
    "SubscribeToTaskRequest",
    "Task",
    "TaskArtifactUpdateEvent",
    "TaskPushNotificationConfig",
    "TaskState",
    "TaskStatus",
    "TaskStatusUpdateEvent",
    "decode",
    "encode",
    "exact",
    "load",
    "own_copy",
    "snake_names",
]

Metadata = dict[str, Any]


class TaskState(StrEnum):
    """A2A 1.0 §4.1.3. `terminal`: nothing follows. `interrupted`: the caller has to act."""

    UNSPECIFIED = "TASK_STATE_UNSPECIFIED"
    SUBMITTED = "TASK_STATE_SUBMITTED"
    WORKING = "TASK_STATE_WORKING"
    COMPLETED = "TASK_STATE_COMPLETED"
    FAILED = "TASK_STATE_FAILED"
    CANCELED = "TASK_STATE_CANCELED"
    INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"
    REJECTED = "TASK_STATE_REJECTED"
    AUTH_REQUIRED = "TASK_STATE_AUTH_REQUIRED"

    terminal: bool
    interrupted: bool

    def __init__(self, value: str) -> None:
        short = value.removeprefix("TASK_STATE_")
        self.terminal = short in ("COMPLETED", "FAILED", "CANCELED", "REJECTED")
        self.interrupted = short in ("INPUT_REQUIRED", "AUTH_REQUIRED")


class Role(StrEnum):
    """Who speaks (A2A 1.0 §4.1.5)."""

    UNSPECIFIED = "ROLE_UNSPECIFIED"
    USER = "ROLE_USER"
    AGENT = "ROLE_AGENT"


class Value(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """What all values share: frozen, untracked by the cyclic collector (they are trees), defaults left off the wire."""


class Part(Value, frozen=True, gc=False):
    """The smallest piece of content (A2A 1.0 §4.1.6): exactly one of `text`, `raw` (bytes), `url` or `data`.

    `data` is any JSON value; JSON null is None, an absent one UNSET. `Part(text="hi")`, `Part(data={"n": 1})`,
    `Part(raw=b"...", filename="a.csv", media_type="text/csv")`.

    Raises ValueError when none or more than one of the four is given.
    """

    text: str | None = None
    raw: bytes | None = None
    url: str | None = None
    data: Any = UNSET
    metadata: Metadata | None = None
    filename: str | None = None
    media_type: str | None = None

    def __post_init__(self) -> None:
        count = (self.text is not None) + (self.raw is not None) + (self.url is not None) + (self.data is not UNSET)
        if count != 1:
            raise ValueError(f"wants exactly one of text, raw, url or data, got {count}")

    @property
    def kind(self) -> str:
        """Which of the four it is: "text", "raw", "url" or "data"."""
        if self.text is not None:
            return "text"
        if self.raw is not None:
            return "raw"
        return "data" if self.url is None else "url"


class Message(Value, frozen=True, gc=False):
    """One turn between caller and agent (A2A 1.0 §4.1.4)."""

    message_id: str
    role: Role
    parts: tuple[Part, ...]
    context_id: str | None = None
    task_id: str | None = None
    metadata: Metadata | None = None
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Its text parts, joined by line feeds; "" when it has none."""
        return "\n".join(part.text for part in self.parts if part.text is not None)


class TaskStatus(Value, frozen=True, gc=False):
    """Where a task stands, with an optional word from the agent (A2A 1.0 §4.1.2)."""

    state: TaskState
    message: Message | None = None
    timestamp: str | None = None  # RFC 3339 in UTC with milliseconds (§5.6.1)

    @property
    def time(self) -> datetime | None:
        """`timestamp` as an aware datetime; None when it is absent or not a timestamp."""
        try:
            return datetime.fromisoformat(self.timestamp) if self.timestamp else None
        except ValueError:
            return None


class Artifact(Value, frozen=True, gc=False):
    """An output of a task (A2A 1.0 §4.1.7)."""

    artifact_id: str
    parts: tuple[Part, ...]
    name: str | None = None
    description: str | None = None
    metadata: Metadata | None = None
    extensions: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Its text parts one behind the other: chunks of a stream join without a seam."""
        return "".join(part.text for part in self.parts if part.text is not None)


class Task(Value, frozen=True, gc=False):
    """The unit of work (A2A 1.0 §4.1.1)."""

    id: str
    status: TaskStatus
    context_id: str | None = None
    artifacts: tuple[Artifact, ...] = ()
    history: tuple[Message, ...] = ()
    metadata: Metadata | None = None

    @property
    def state(self) -> TaskState:
        return self.status.state

    @property
    def text(self) -> str:
        """The text of the answer: that of its artifacts, else of its status message, else ""."""
        texts = [artifact.text for artifact in self.artifacts]
        told = "\n".join(text for text in texts if text)
        return told or (self.status.message.text if self.status.message else "")


class TaskStatusUpdateEvent(Value, frozen=True, gc=False):
    """The state of a task has changed (A2A 1.0 §4.2.1)."""

    task_id: str
    context_id: str
    status: TaskStatus
    metadata: Metadata | None = None


class TaskArtifactUpdateEvent(Value, frozen=True, gc=False):
    """An artifact, or the next chunk of one (A2A 1.0 §4.2.2). `append`: the parts go behind those already there."""

    task_id: str
    context_id: str
    artifact: Artifact
    append: bool = False
    last_chunk: bool = False
    metadata: Metadata | None = None


StreamEvent = Task | Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent
"""What a stream carries (A2A 1.0 §3.2.3)."""


class StreamResponse(Value, frozen=True, gc=False):
    """The wrapper of a stream event on the wire: exactly one of its four fields."""

    task: Task | None = None
    message: Message | None = None
    status_update: TaskStatusUpdateEvent | None = None
    artifact_update: TaskArtifactUpdateEvent | None = None

    @property
    def event(self) -> StreamEvent:
        """The one that is there.

        Raises ValueError when none or more than one is.
        """
        found = [e for e in (self.task, self.message, self.status_update, self.artifact_update) if e is not None]
        if len(found) != 1:
            raise ValueError(f"wants exactly one of task, message, statusUpdate or artifactUpdate, got {len(found)}")
        return found[0]


class SendMessageResponse(Value, frozen=True, gc=False):
    """The answer to SendMessage on the wire: exactly one of `task` and `message`."""

    task: Task | None = None
    message: Message | None = None


class AuthenticationInfo(Value, frozen=True, gc=False):
    """How a webhook wants to be authenticated to (A2A 1.0 §4.3.2)."""

    scheme: str
    credentials: str | None = None

    def __repr__(self) -> str:
        """Without the credentials."""
        return f"AuthenticationInfo(scheme={self.scheme!r}{', credentials=***' if self.credentials else ''})"


class TaskPushNotificationConfig(Value, frozen=True, gc=False):
    """A webhook for one task (A2A 1.0 §4.3.1)."""

    url: str
    tenant: str | None = None
    id: str | None = None
    task_id: str | None = None
    token: str | None = None
    authentication: AuthenticationInfo | None = None

    def __repr__(self) -> str:
        """Without the token and the credentials."""
        shown = f"url={self.url!r}, tenant={self.tenant!r}, id={self.id!r}, task_id={self.task_id!r}"
        token = ", token=***" if self.token else ""
        authentication = f", authentication={self.authentication!r}" if self.authentication else ""
        return f"TaskPushNotificationConfig({shown}{token}{authentication})"


class SendMessageConfiguration(Value, frozen=True, gc=False):
    """How a message is to be handled (A2A 1.0 §3.2.2)."""

    accepted_output_modes: tuple[str, ...] = ()
    task_push_notification_config: TaskPushNotificationConfig | None = None
    history_length: int | None = None  # messages; None is all, 0 is none (§3.2.4)
    return_immediately: bool = False


class SendMessageRequest(Value, frozen=True, gc=False):
    """Start or continue a task (A2A 1.0 §3.1.1)."""

    message: Message
    tenant: str | None = None
    configuration: SendMessageConfiguration | None = None
    metadata: Metadata | None = None


class GetTaskRequest(Value, frozen=True, gc=False):
    """Read a task (A2A 1.0 §3.1.3)."""

    id: str
    tenant: str | None = None
    history_length: int | None = None  # messages; None is all, 0 is none (§3.2.4)


class ListTasksRequest(Value, frozen=True, gc=False):
    """Read a page of the caller's tasks, the last changed first (A2A 1.0 §3.1.4)."""

    tenant: str | None = None
    context_id: str | None = None
    status: TaskState | None = None
    page_size: int | None = None  # 1 to 100; None is 50
    page_token: str | None = None
    history_length: int | None = None
    status_timestamp_after: str | None = None  # RFC 3339
    include_artifacts: bool | None = None  # None is False


class ListTasksResponse(Value, frozen=True, gc=False, omit_defaults=False):
    """A page of tasks. `next_page_token` is "" on the last one; `total_size` counts all that match."""

    tasks: tuple[Task, ...]
    next_page_token: str
    page_size: int
    total_size: int


class CancelTaskRequest(Value, frozen=True, gc=False):
    """Stop a task (A2A 1.0 §3.1.5)."""

    id: str
    tenant: str | None = None
    metadata: Metadata | None = None


class SubscribeToTaskRequest(Value, frozen=True, gc=False):
    """Follow a task that runs (A2A 1.0 §3.1.6)."""

    id: str
    tenant: str | None = None


class GetTaskPushNotificationConfigRequest(Value, frozen=True, gc=False):
    """Read a webhook of a task (A2A 1.0 §3.1.8)."""

    task_id: str
    id: str
    tenant: str | None = None


class ListTaskPushNotificationConfigsRequest(Value, frozen=True, gc=False):
    """Read the webhooks of a task (A2A 1.0 §3.1.9)."""

    task_id: str
    tenant: str | None = None
    page_size: int | None = None
    page_token: str | None = None


class DeleteTaskPushNotificationConfigRequest(Value, frozen=True, gc=False):
    """Remove a webhook of a task (A2A 1.0 §3.1.10)."""

    task_id: str
    id: str
    tenant: str | None = None


class ListTaskPushNotificationConfigsResponse(Value, frozen=True, gc=False):
    """The webhooks of a task."""

    configs: tuple[TaskPushNotificationConfig, ...] = ()
    next_page_token: str | None = None


class GetExtendedAgentCardRequest(Value, frozen=True, gc=False):
    """Read the card for authenticated callers (A2A 1.0 §3.1.11)."""

    tenant: str | None = None


T = TypeVar("T")


# --- JSON -------------------------------------------------------------------------------------------------------------


class _BigInt(int):
    """An integer beyond 64 bits: msgspec would write it as a string, so it takes the encoder's hook instead."""


_PLAIN: Final[tuple[Any, ...]] = (int, float, dict, list, tuple, bytes)


def _encode_hook(value: Any) -> Any:
    if isinstance(value, _BigInt):
        return msgspec.Raw(int.__repr__(value).encode())
    if isinstance(value, str):  # what is more than a JSON value is written as the value that it is
        return str.__str__(value)
    for plain in _PLAIN:
        if isinstance(value, plain):
            return plain(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


encode: Final = msgspec.json.Encoder(enc_hook=_encode_hook).encode
"""A value as compact UTF-8 JSON. Integers of any size stay integers if they came through `exact` or `decode`."""

_LONG_NUMBER: Final = re.compile(rb"[:,\[\s-]\d{19}").search
_SNAKE: Final = re.compile(r"_([a-z0-9])")
_I64, _U64 = -(1 << 63), (1 << 64) - 1


def exact(value: Any) -> Any:
    """A copy of a JSON value that is nobody else's, and in which integers beyond 64 bits survive `encode`.

    Raises ValueError for NaN and infinities, which JSON does not have.
    """
    if type(value) is int:
        return value if _I64 <= value <= _U64 else _BigInt(value)
    if type(value) is float and not isfinite(value):
        raise ValueError(f"{value} is not a JSON value")
    if isinstance(value, dict):
        return {key: exact(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [exact(item) for item in value]
    return value


def _has_long_number(json: bytes | msgspec.Raw) -> bool:
    """Whether an integer beyond 64 bits may stand in a free-form field: cheap for what has none, files above all."""
    view = bytes(json) if isinstance(json, msgspec.Raw) else json
    return (b'data"' in view or b'params"' in view) and _LONG_NUMBER(view) is not None


def own_copy(value: T) -> T:
    """A value whose free-form fields, anywhere inside, are nobody else's: what is done to them stays here."""
    copy: T = _exact_struct(value)
    return copy


def _exact_struct(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        changed = {}
        for name in value.__struct_fields__:
            old = getattr(value, name)
            if isinstance(old, (dict, list, tuple, int, msgspec.Struct)):
                changed[name] = _exact_struct(old)
        return msgspec.structs.replace(value, **changed)
    if isinstance(value, tuple):
        return tuple(_exact_struct(item) for item in value)
    return exact(value)


class Encoded(Generic[T]):
    """A value and its canonical JSON, each made from the other when first wanted."""

    __slots__ = ("_json", "_value", "type_")

    def __init__(self, type_: type[T], *, json: bytes | None = None, value: T | None = None) -> None:
        self.type_ = type_
        self._json = json
        self._value = value

    @property
    def json(self) -> bytes:
        if self._json is None:
            self._json = encode(self._value)
        return self._json

    @property
    def value(self) -> T:
        if self._value is None:
            assert self._json is not None
            self._value = load(self._json, self.type_)
        return self._value


_decoders: dict[type[Any], msgspec.json.Decoder[Any]] = {}
_snake_names: dict[type[Any], Callable[[bytes | msgspec.Raw], object]] = {}
_AT = re.compile(r" - at `\$(?:\.\.\.)?(?:\[\.\.\.\])?\.?(.*)`$")


def decode(data: bytes | msgspec.Raw, type_: type[T], *, root: str = "") -> T:
    """A value from JSON that came from outside; unknown fields are ignored (A2A 1.0 §5.7).

    What ProtoJSON allows beside the usual form is read too: snake_case names, null for an absent field, an enum's
    number, base64 in the URL alphabet or without padding.

    Raises:
        InvalidParams: with the path of the bad field behind `root` and what is wrong with it.
        msgspec.DecodeError: `data` is not JSON.
    """
    decoder = _decoders.get(type_)
    if decoder is None:
        decoder = _decoders[type_] = msgspec.json.Decoder(type_)
    in_snake_case = _snake_names.get(type_)
    if in_snake_case is None:
        in_snake_case = _snake_names[type_] = snake_names(type_)
    try:
        value: T = decoder.decode(data) if not in_snake_case(data) else _decode_protojson(data, type_, root)
    except InvalidParams:
        raise
    except msgspec.ValidationError as error:
        if "out of range" in str(error):
            raise violation(error, root) from None
        value = _decode_protojson(data, type_, root)
    return _exact_struct(value) if _has_long_number(data) else value


def snake_names(type_: Any) -> Callable[[bytes | msgspec.Raw], object]:
    """What finds a field of a type, or of one inside it, by its name in snake_case; names of others' it passes over."""
    names: set[str] = set()
    seen: set[type] = set()
    left: list[Any] = [msgspec.inspect.type_info(type_)]
    while left:
        info = left.pop()
        if isinstance(info, msgspec.inspect.StructType):
            if info.cls not in seen:
                seen.add(info.cls)
                names.update(field.name for field in info.fields if "_" in field.name)
                left += [field.type for field in info.fields]
        else:
            for inner in ("types", "item_types"):
                left += getattr(info, inner, ())
            left += [getattr(info, inner) for inner in ("item_type", "value_type") if hasattr(info, inner)]
    if not names:
        return lambda data: None
    return re.compile(rb'"(?:' + "|".join(sorted(names)).encode() + rb')"\s*:').search


def load(data: bytes, type_: type[T]) -> T:
    """A value from what `encode` has written."""
    decoder = _decoders.get(type_)
    if decoder is None:
        decoder = _decoders[type_] = msgspec.json.Decoder(type_)
    value: T = decoder.decode(data)
    return _exact_struct(value) if _has_long_number(data) else value


def _decode_protojson(data: bytes | msgspec.Raw, type_: type[T], root: str) -> T:
    try:
        return msgspec.convert(_protojson(msgspec.json.decode(data)), type_)
    except msgspec.ValidationError as error:
        raise violation(error, root) from None


_FREE_FORM: Final = frozenset(("data", "metadata", "params", "header"))
_NAMED: Final = frozenset(("schemes", "scopes", "securitySchemes"))  # objects whose keys are names of the caller's
_STATE_NUMBERS: Final = {number: state.value for number, state in enumerate(TaskState)}  # members stand in proto order
_COUNTS: Final = frozenset(("historyLength", "pageSize", "totalSize"))
_VALUES: Final = {
    "state": ", ".join(list(TaskState)[1:]),
    "status": ", ".join(list(TaskState)[1:]),
    "role": ", ".join(list(Role)[1:]),
}
_ROLE_NUMBERS: Final = {number: role.value for number, role in enumerate(Role)}


def _whole(value: Any) -> int | None:
    """An int32 as ProtoJSON may write it, "10" or 10.0; None when it is not one."""
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,10}", value, re.ASCII):
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else None


def _protojson(value: Any) -> Any:
    """The same JSON with ProtoJSON's permitted variants brought to the one form that the types take."""
    if isinstance(value, list):
        return [_protojson(item) for item in value]
    if not isinstance(value, dict):
        return value
    out: dict[str, Any] = {}
    for name, item in value.items():
        key = _SNAKE.sub(lambda match: match.group(1).upper(), name) if "_" in name else name
        if key in _FREE_FORM:
            if item is not None or key == "data":
                out[key] = item
        elif item is None:
            continue
        elif key in _NAMED and isinstance(item, dict):
            out[key] = {own: _protojson(inner) for own, inner in item.items()}
        elif key in ("state", "status") and type(item) is int:
            out[key] = _STATE_NUMBERS.get(item, item)
        elif key in _COUNTS and (number := _whole(item)) is not None:
            out[key] = number
        elif key == "role" and type(item) is int:
            out[key] = _ROLE_NUMBERS.get(item, item)
        elif key == "raw" and isinstance(item, str):
            text = item.rstrip("=").replace("-", "+").replace("_", "/")
            out[key] = text + "=" * (-len(text) % 4)
        else:
            out[key] = _protojson(item)
    return out


def violation(error: msgspec.ValidationError, root: str = "") -> InvalidParams:
    """What msgspec said of a bad value, as InvalidParams with one field violation."""
    text = str(error)
    begin = text.rfind(" - at `$")  # the last one: what the caller wrote may stand before it
    match = _AT.match(text, begin) if begin >= 0 else None
    path = match.group(1) if match else ""
    description = text[:begin] if match else text
    missing = re.match(r"Object missing required field `(.+)`$", description)
    if missing:
        path = f"{path}.{missing.group(1)}" if path else missing.group(1)
        description = "is required"
    if description.startswith("Invalid enum value") and (values := _VALUES.get(path.rpartition(".")[2])):
        description = f"{description}, must be one of {values}"
    field = f"{root}.{path}" if root and path and not path.startswith("[") else (f"{root}{path}" or "params")
    return InvalidParams.at(field, description)
