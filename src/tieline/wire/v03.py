"""A2A 0.3, and 0.2.5 and 0.2.6, which are it: unions told by `kind`, states in lower case. Pure.

A value is read in one typed step into the shape of the 0.3 schema and carried over into that of 1.0; what does not fit
the schema goes to lenient.py. What 0.3 has no field for travels as metadata under "tieline/...", and is taken out again
when it comes back: docs/dialects.md has the table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from tieline.errors import A2AError, InvalidParams, InvalidPeerResponse
from tieline.event import Event, TextChunk
from tieline.types import (
    Artifact,
    AuthenticationInfo,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    Encoded,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksResponse,
    Message,
    Metadata,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SendMessageResponse,
    StreamEvent,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    Value,
    _has_long_number,
    encode,
    own_copy,
)
from tieline.wire import lenient
from tieline.wire.dialect import EventEncoder, Json
from tieline.wire.methods import METHODS, Method
from tieline.wire.v1 import encoded

__all__ = [
    "DataPart",
    "ENDS_STREAM",
    "File",
    "FilePart",
    "NOTHING",
    "NOT_OF_SCHEMA",
    "OF_MESSAGE",
    "OF_PARAMS",
    "OF_SEND",
    "PushConfig",
    "Reader",
    "TENANT",
    "TextPart",
    "V03",
    "V03_AT_ONCE",
    "carried",
    "carry",
    "goes_on",
    "kept",
    "part_in",
    "part_out",
    "present",
    "push_in",
    "push_out",
]

T = TypeVar("T")

# --- the schema of 0.3 ------------------------------------------------------------------------------------------------
# null is an absent field: there are peers that write all of them.


class TextPart(Value, frozen=True, gc=False, tag_field="kind", tag="text"):
    text: str
    metadata: Metadata | None = None


class File(Value, frozen=True, gc=False):
    raw: bytes | None = msgspec.field(default=None, name="bytes")
    uri: str | None = None
    mime_type: str | None = None
    name: str | None = None


class FilePart(Value, frozen=True, gc=False, tag_field="kind", tag="file"):
    file: File
    metadata: Metadata | None = None


class DataPart(Value, frozen=True, gc=False, tag_field="kind", tag="data"):
    data: dict[str, Any]
    metadata: Metadata | None = None


_Part = TextPart | FilePart | DataPart


class _Message(Value, frozen=True, gc=False, tag_field="kind", tag="message"):
    message_id: str
    role: Literal["user", "agent"]
    parts: tuple[_Part, ...]
    context_id: str | None = None
    task_id: str | None = None
    metadata: Metadata | None = None
    extensions: tuple[str, ...] | None = None
    reference_task_ids: tuple[str, ...] | None = None


_State = Literal[
    "unknown",
    "submitted",
    "working",
    "completed",
    "failed",
    "canceled",
    "input-required",
    "rejected",
    "auth-required",
]


class _Status(Value, frozen=True, gc=False):
    state: _State
    message: _Message | None = None
    timestamp: str | None = None


class _Artifact(Value, frozen=True, gc=False):
    artifact_id: str
    parts: tuple[_Part, ...]
    name: str | None = None
    description: str | None = None
    metadata: Metadata | None = None
    extensions: tuple[str, ...] | None = None


class _Task(Value, frozen=True, gc=False, tag_field="kind", tag="task"):
    id: str
    context_id: str
    status: _Status
    artifacts: tuple[_Artifact, ...] | None = None
    history: tuple[_Message, ...] | None = None
    metadata: Metadata | None = None


class _StatusUpdate(Value, frozen=True, gc=False, tag_field="kind", tag="status-update"):
    task_id: str
    context_id: str
    status: _Status
    final: bool
    metadata: Metadata | None = None


class _ArtifactUpdate(Value, frozen=True, gc=False, tag_field="kind", tag="artifact-update"):
    task_id: str
    context_id: str
    artifact: _Artifact
    append: bool | None = None
    last_chunk: bool | None = None
    metadata: Metadata | None = None


_Event = _Task | _Message | _StatusUpdate | _ArtifactUpdate


class _Authentication(Value, frozen=True, gc=False):
    schemes: tuple[str, ...] | None = None
    credentials: str | None = None


class PushConfig(Value, frozen=True, gc=False):
    url: str
    id: str | None = None
    token: str | None = None
    authentication: _Authentication | None = None


class _TaskPushConfig(Value, frozen=True, gc=False):
    task_id: str
    push_notification_config: PushConfig
    metadata: Metadata | None = None  # not of 0.3: where a tenant is carried


class _Configuration(Value, frozen=True, gc=False):
    blocking: bool | None = None
    accepted_output_modes: tuple[str, ...] | None = None
    push_notification_config: PushConfig | None = None
    history_length: int | None = None


class _SendParams(Value, frozen=True, gc=False):
    message: _Message
    configuration: _Configuration | None = None
    metadata: Metadata | None = None


class _TaskParams(Value, frozen=True, gc=False):
    """TaskIdParams, TaskQueryParams and the params of push configurations: an id and what goes with it."""

    id: str
    history_length: int | None = None
    push_notification_config_id: str | None = None
    metadata: Metadata | None = None


class _NoParams(Value, frozen=True, gc=False):
    metadata: Metadata | None = None


class _Page(Value, frozen=True, gc=False):
    tasks: tuple[_Task, ...]
    next_page_token: str
    page_size: int
    total_size: int


# --- what 0.3 has no field for ----------------------------------------------------------------------------------------

_WHOLE: Final = "tieline/metadata"
_WRAPPED: Final = "data_part_compat"
"""The official SDK's mark of a data part that is no object: {"value": it}."""

TENANT: Final = "tieline/tenant"
_OF_PART: Final = {"tieline/filename": str, "tieline/mediaType": str}
_OF_DATA: Final = {**_OF_PART, _WRAPPED: bool}
OF_MESSAGE: Final = {"tieline/role": str}
OF_SEND: Final = {TENANT: str, "tieline/pushNotificationConfig": dict}
OF_PARAMS: Final = {TENANT: str}
_OF_LIST: Final = {TENANT: str, "tieline/pageSize": int, "tieline/pageToken": str}
_OF_CONFIG: Final = {TENANT: str, "tieline/nextPageToken": str}
NOTHING: Final[Metadata] = {}


def carry(metadata: Metadata | None, extra: Metadata, names: Mapping[str, type]) -> Metadata | None:
    """`metadata` with what a dialect has no field for; `names` are all that may be carried at this place.

    Metadata that has such a name of its own, or is empty and not absent, goes whole under one name, so that
    `carried` gives back what was there.
    """
    if metadata is None:
        return extra or None
    if (extra and not metadata) or _WHOLE in metadata or any(name in metadata for name in names):
        return {_WHOLE: metadata, **extra}
    return {**metadata, **extra} if extra else metadata


def carried(metadata: Metadata | None, names: Mapping[str, type]) -> tuple[Metadata | None, Metadata]:
    """The reverse: metadata without what was carried, and what was; what has not the type it should stays metadata."""
    if not metadata:
        return metadata, NOTHING
    if _WHOLE not in metadata and not any(name in metadata for name in names):
        return metadata, NOTHING
    extra = {name: metadata[name] for name, type_ in names.items() if type(metadata.get(name)) is type_}
    rest = {name: value for name, value in metadata.items() if name not in extra}
    whole = rest.get(_WHOLE)
    if isinstance(whole, dict):
        del rest[_WHOLE]
        return {**whole, **rest}, extra
    return rest or None, extra


# --- 0.3 to 1.0 -------------------------------------------------------------------------------------------------------

_STATES: Final = {
    "unknown": TaskState.UNSPECIFIED,
    "submitted": TaskState.SUBMITTED,
    "working": TaskState.WORKING,
    "completed": TaskState.COMPLETED,
    "failed": TaskState.FAILED,
    "canceled": TaskState.CANCELED,
    "input-required": TaskState.INPUT_REQUIRED,
    "rejected": TaskState.REJECTED,
    "auth-required": TaskState.AUTH_REQUIRED,
}
_ROLES: Final = {"user": Role.USER, "agent": Role.AGENT}


def part_in(part: _Part) -> Part:
    """Raises ValueError for a file with neither bytes nor uri, or with both."""
    metadata = part.metadata
    if type(part) is TextPart:
        if metadata is None:
            return Part(part.text)
        metadata, extra = carried(metadata, _OF_PART)
        return Part(
            part.text,
            metadata=metadata,
            filename=extra.get("tieline/filename"),
            media_type=extra.get("tieline/mediaType"),
        )
    if type(part) is FilePart:
        file = part.file
        return Part(raw=file.raw, url=file.uri, metadata=metadata, filename=file.name, media_type=file.mime_type)
    assert type(part) is DataPart
    data: Any = part.data
    metadata, extra = carried(metadata, _OF_DATA)
    if extra:
        if extra.get(_WRAPPED) is True and len(data) == 1 and "value" in data:
            data = data["value"]
        elif _WRAPPED in extra:
            metadata = {**(metadata or {}), _WRAPPED: extra[_WRAPPED]}
    return Part(
        data=data,
        metadata=metadata,
        filename=extra.get("tieline/filename"),
        media_type=extra.get("tieline/mediaType"),
    )


def _message_in(message: _Message) -> Message:
    metadata = message.metadata
    role = _ROLES[message.role]
    if metadata:
        metadata, extra = carried(metadata, OF_MESSAGE)
        role = _unspecified(role, extra)
    return Message(
        message.message_id,
        role,
        tuple([part_in(part) for part in message.parts]),
        message.context_id or None,
        message.task_id or None,
        metadata,
        message.extensions or (),
        message.reference_task_ids or (),
    )


def _unspecified(role: Role, extra: Metadata) -> Role:
    return Role.UNSPECIFIED if "tieline/role" in extra else role


def _status_in(status: _Status) -> TaskStatus:
    message = status.message
    return TaskStatus(_STATES[status.state], _message_in(message) if message else None, status.timestamp)


def _artifact_in(artifact: _Artifact) -> Artifact:
    return Artifact(
        artifact.artifact_id,
        tuple([part_in(part) for part in artifact.parts]),
        artifact.name,
        artifact.description,
        artifact.metadata,
        artifact.extensions or (),
    )


def _task_in(task: _Task) -> Task:
    return Task(
        task.id,
        _status_in(task.status),
        task.context_id or None,
        tuple([_artifact_in(artifact) for artifact in task.artifacts or ()]),
        tuple([_message_in(message) for message in task.history or ()]),
        task.metadata,
    )


def _event_in(event: _Event) -> StreamEvent:
    if type(event) is _ArtifactUpdate:
        return TaskArtifactUpdateEvent(
            event.task_id,
            event.context_id,
            _artifact_in(event.artifact),
            bool(event.append),
            bool(event.last_chunk),
            event.metadata,
        )
    if type(event) is _StatusUpdate:
        return TaskStatusUpdateEvent(event.task_id, event.context_id, _status_in(event.status), event.metadata)
    return _answer_in(event)  # type: ignore[arg-type]


def _answer_in(answer: _Task | _Message) -> Task | Message:
    return _task_in(answer) if type(answer) is _Task else _message_in(answer)  # type: ignore[arg-type]


def push_in(config: PushConfig, task_id: str | None, tenant: str | None) -> TaskPushNotificationConfig:
    """A webhook of 0.3 as one of 1.0; task and tenant stand beside it in 0.3."""
    given = config.authentication
    authentication = AuthenticationInfo(given.schemes[0] if given.schemes else "", given.credentials) if given else None
    return TaskPushNotificationConfig(config.url, tenant, config.id, task_id, config.token, authentication)


def _config_in(config: _TaskPushConfig) -> TaskPushNotificationConfig:
    _, extra = carried(config.metadata, _OF_CONFIG)
    return push_in(config.push_notification_config, config.task_id or None, extra.get(TENANT))


def _configs_in(configs: tuple[_TaskPushConfig, ...]) -> ListTaskPushNotificationConfigsResponse:
    _, extra = carried(configs[-1].metadata, _OF_CONFIG) if configs else (None, NOTHING)
    return ListTaskPushNotificationConfigsResponse(
        tuple([_config_in(config) for config in configs]), extra.get("tieline/nextPageToken")
    )


def _page_in(page: _Page) -> ListTasksResponse:
    return ListTasksResponse(
        tuple([_task_in(task) for task in page.tasks]), page.next_page_token, page.page_size, page.total_size
    )


def _send_in(params: _SendParams, waits: bool) -> SendMessageRequest:
    metadata, extra = carried(params.metadata, OF_SEND)
    given = params.configuration
    configuration = None if waits or given else SendMessageConfiguration(return_immediately=True)
    if given:
        push = given.push_notification_config
        of_push = extra.get("tieline/pushNotificationConfig", NOTHING)
        configuration = SendMessageConfiguration(
            given.accepted_output_modes or (),
            push_in(push, _text(of_push.get("taskId")), _text(of_push.get("tenant"))) if push else None,
            given.history_length,
            not (waits if given.blocking is None else given.blocking),
        )
    return SendMessageRequest(_message_in(params.message), extra.get(TENANT), configuration, metadata)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _params_in(params: _TaskParams, request: type[Any]) -> Value:
    names = _OF_LIST if request is ListTaskPushNotificationConfigsRequest else OF_PARAMS
    metadata, extra = carried(params.metadata, names)
    tenant = extra.get(TENANT)
    if request is GetTaskRequest:
        return GetTaskRequest(params.id, tenant, params.history_length)
    if request is CancelTaskRequest:
        return CancelTaskRequest(params.id, tenant, metadata)
    if request is SubscribeToTaskRequest:
        return SubscribeToTaskRequest(params.id, tenant)
    if request is ListTaskPushNotificationConfigsRequest:
        size, token = extra.get("tieline/pageSize"), extra.get("tieline/pageToken")
        return ListTaskPushNotificationConfigsRequest(params.id, tenant, size, token)
    if request is GetTaskPushNotificationConfigRequest:  # one set without an id has that of its task
        return GetTaskPushNotificationConfigRequest(params.id, params.push_notification_config_id or params.id, tenant)
    if not params.push_notification_config_id:
        raise InvalidParams.at("pushNotificationConfigId", "is required")
    return DeleteTaskPushNotificationConfigRequest(params.id, params.push_notification_config_id, tenant)


# --- 1.0 to 0.3 -------------------------------------------------------------------------------------------------------

_STATE_NAMES: Final[dict[TaskState, Any]] = {state: name for name, state in _STATES.items()}
ENDS_STREAM: Final = frozenset(state for state in TaskState if state.terminal or state is TaskState.INPUT_REQUIRED)


def part_out(part: Part) -> _Part:
    """A part of 1.0 as one of 0.3."""
    metadata = part.metadata
    if part.raw is not None or part.url is not None:
        return FilePart(File(part.raw, part.url, part.media_type, part.filename), metadata)
    extra: Metadata = NOTHING
    if part.filename is not None or part.media_type is not None:
        extra = {"tieline/filename": part.filename, "tieline/mediaType": part.media_type}
        extra = {name: value for name, value in extra.items() if value is not None}
    if part.data is UNSET:
        assert part.text is not None
        if metadata is not None or extra:
            metadata = carry(metadata, extra, _OF_PART)
        return TextPart(part.text, metadata)
    data = part.data
    if not isinstance(data, dict):
        data, extra = {"value": data}, {**extra, _WRAPPED: True}
    return DataPart(data, carry(metadata, extra, _OF_DATA))


def _message_out(message: Message) -> _Message:
    metadata = message.metadata
    unspecified = message.role is Role.UNSPECIFIED
    if metadata is not None or unspecified:
        metadata = carry(metadata, {"tieline/role": message.role.value} if unspecified else NOTHING, OF_MESSAGE)
    return _Message(
        message.message_id,
        "user" if message.role is Role.USER else "agent",
        tuple([part_out(part) for part in message.parts]),
        message.context_id,
        message.task_id,
        metadata,
        message.extensions or None,
        message.reference_task_ids or None,
    )


def _status_out(status: TaskStatus) -> _Status:
    message = status.message
    return _Status(_STATE_NAMES[status.state], _message_out(message) if message else None, status.timestamp)


def _artifact_out(artifact: Artifact) -> _Artifact:
    return _Artifact(
        artifact.artifact_id,
        tuple([part_out(part) for part in artifact.parts]),
        artifact.name,
        artifact.description,
        artifact.metadata,
        artifact.extensions or None,
    )


def _task_out(task: Task) -> _Task:
    return _Task(
        task.id,
        task.context_id or "",
        _status_out(task.status),
        tuple([_artifact_out(artifact) for artifact in task.artifacts]) or None,
        tuple([_message_out(message) for message in task.history]) or None,
        task.metadata,
    )


def _event_out(event: StreamEvent) -> _Event:
    if isinstance(event, TaskArtifactUpdateEvent):
        return _ArtifactUpdate(
            event.task_id,
            event.context_id,
            _artifact_out(event.artifact),
            event.append or None,
            event.last_chunk or None,
            event.metadata,
        )
    if isinstance(event, TaskStatusUpdateEvent):
        return _StatusUpdate(
            event.task_id,
            event.context_id,
            _status_out(event.status),
            event.status.state in ENDS_STREAM,
            event.metadata,
        )
    return _task_out(event) if isinstance(event, Task) else _message_out(event)


def push_out(config: TaskPushNotificationConfig) -> PushConfig:
    """A webhook of 1.0 as one of 0.3."""
    given = config.authentication
    authentication = None
    if given:
        authentication = _Authentication((given.scheme,) if given.scheme else (), given.credentials)
    return PushConfig(config.url, config.id, config.token, authentication)


def _config_out(config: TaskPushNotificationConfig, next_page_token: str | None = None) -> _TaskPushConfig:
    extra = present({TENANT: config.tenant, "tieline/nextPageToken": next_page_token})
    return _TaskPushConfig(config.task_id or "", push_out(config), extra or None)


def present(values: Metadata) -> Metadata:
    """The members that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def _send_out(request: SendMessageRequest) -> _SendParams:
    extra = present({TENANT: request.tenant})
    given = request.configuration
    configuration = None
    if given:
        push = given.task_push_notification_config
        of_push = present({"taskId": push.task_id, "tenant": push.tenant}) if push else None
        if of_push:
            extra["tieline/pushNotificationConfig"] = of_push
        configuration = _Configuration(
            not given.return_immediately,
            given.accepted_output_modes or None,
            push_out(push) if push else None,
            given.history_length,
        )
    return _SendParams(_message_out(request.message), configuration, carry(request.metadata, extra, OF_SEND))


def _params_out(request: Any) -> Value:
    extra = present({TENANT: request.tenant})
    if isinstance(request, GetExtendedAgentCardRequest):
        return _NoParams(extra or None)
    if isinstance(request, GetTaskRequest):
        return _TaskParams(request.id, request.history_length, metadata=extra or None)
    if isinstance(request, CancelTaskRequest):
        return _TaskParams(request.id, metadata=carry(request.metadata, extra, OF_PARAMS))
    if isinstance(request, SubscribeToTaskRequest):
        return _TaskParams(request.id, metadata=extra or None)
    if isinstance(request, ListTaskPushNotificationConfigsRequest):
        extra |= present({"tieline/pageSize": request.page_size, "tieline/pageToken": request.page_token})
        return _TaskParams(request.task_id, metadata=extra or None)
    return _TaskParams(request.task_id, push_notification_config_id=request.id, metadata=extra or None)


# --- JSON -------------------------------------------------------------------------------------------------------------

NOT_OF_SCHEMA: Final = (msgspec.DecodeError, ValueError, RecursionError)
_SNAKE_NAME: Final = re.compile(rb'"[a-z0-9]+(?:_[a-z0-9]+)+"\s*:').search
_SNAKE: Final = re.compile(r"_([a-z0-9])")
_FREE_FORM: Final = frozenset(("data", "metadata"))


class Reader(Generic[T]):
    """Reads one type of a schema; names in snake_case, which some peers write, are read, too.

    `others`: more names by which a field goes.
    """

    def __init__(self, type_: Any, others: Mapping[str, str] | None = None) -> None:
        self._type = type_
        self._decode = msgspec.json.Decoder(type_).decode
        self._others = others or {}
        self._other_name = re.compile(rb'"(?:' + b"|".join(map(str.encode, self._others)) + rb')"\s*:').search

    def __call__(self, data: Json) -> T:
        """Raises msgspec.DecodeError."""
        view = bytes(data)
        value: T
        if (b"_" in view and _SNAKE_NAME(view)) or (self._others and self._other_name(view)):
            value = msgspec.convert(self._renamed(msgspec.json.decode(view)), self._type)
        else:
            value = self._decode(view)
        return value

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


_read_send: Final[Reader[_SendParams]] = Reader(_SendParams)
_read_params: Final[Reader[_TaskParams]] = Reader(_TaskParams)
_read_no_params: Final[Reader[_NoParams]] = Reader(_NoParams)
_read_answer: Final[Reader[_Task | _Message]] = Reader(_Task | _Message)
_read_task: Final[Reader[_Task]] = Reader(_Task)
_read_config: Final[Reader[_TaskPushConfig]] = Reader(_TaskPushConfig)
_read_configs: Final[Reader[tuple[_TaskPushConfig, ...]]] = Reader(tuple[_TaskPushConfig, ...])
_read_page: Final[Reader[_Page]] = Reader(_Page)
_read_event: Final[Reader[_Event]] = Reader(_Event)


class _V03:
    """See Dialect. `waits`: whether a message without `blocking` is answered when its task rests, or at once."""

    version = "0.3"
    versions = ("0.3", "0.2")
    methods: Mapping[str, Method] = {
        "message/send": METHODS["SendMessage"],
        "message/stream": METHODS["SendStreamingMessage"],
        "tasks/get": METHODS["GetTask"],
        "tasks/cancel": METHODS["CancelTask"],
        "tasks/resubscribe": METHODS["SubscribeToTask"],
        "tasks/pushNotificationConfig/set": METHODS["CreateTaskPushNotificationConfig"],
        "tasks/pushNotificationConfig/get": METHODS["GetTaskPushNotificationConfig"],
        "tasks/pushNotificationConfig/list": METHODS["ListTaskPushNotificationConfigs"],
        "tasks/pushNotificationConfig/delete": METHODS["DeleteTaskPushNotificationConfig"],
        "agent/getAuthenticatedExtendedCard": METHODS["GetExtendedAgentCard"],
    }
    names: Mapping[str, str] = {method.name: name for name, method in methods.items()}
    codes: Mapping[type[A2AError], int] = {}
    data_in_object = False
    new_task = None
    has_final = True
    resumes = True

    def __init__(self, *, waits: bool = True) -> None:
        self.waits = waits

    def read_params(self, method: Method, params: Json) -> Any:
        request = method.request
        try:
            value: Any
            if request is SendMessageRequest:
                value = _send_in(_read_send(params), self.waits)
            elif request is TaskPushNotificationConfig:
                value = _config_in(_read_config(params))
            elif request is GetExtendedAgentCardRequest:
                _, extra = carried(_read_no_params(params).metadata, OF_PARAMS)
                return GetExtendedAgentCardRequest(extra.get(TENANT))
            else:
                return kept(params, _params_in(_read_params(params), request))
        except (msgspec.ValidationError, ValueError):
            return self._read_odd(params, request)
        return kept(params, value)

    def _read_odd(self, params: Json, request: type[Any]) -> Any:
        """Params that are not of the schema: as they were meant. Raises InvalidParams."""
        value = lenient.read(params, request)
        if isinstance(value, SendMessageRequest) and not self.waits and b'"blocking"' not in bytes(params):
            given = value.configuration or SendMessageConfiguration()
            value = replace(value, configuration=replace(given, return_immediately=True))
        if isinstance(value, GetTaskPushNotificationConfigRequest) and not value.id:
            value = replace(value, id=value.task_id)
        return value

    def encode_answer(self, answer: Encoded[Task] | Encoded[Message]) -> bytes:
        value = answer.value
        return encode(_task_out(value) if isinstance(value, Task) else _message_out(value))

    def encode_task(self, task: Encoded[Task]) -> bytes:
        return encode(_task_out(task.value))

    def encode_page(self, page: ListTasksResponse) -> bytes:
        tasks = tuple([_task_out(task) for task in page.tasks])
        return encode(_Page(tasks, page.next_page_token, page.page_size, page.total_size))

    def encode_config(self, config: TaskPushNotificationConfig) -> bytes:
        return encode(_config_out(config))

    def encode_configs(self, configs: ListTaskPushNotificationConfigsResponse) -> bytes:
        written = [_config_out(config) for config in configs.configs]
        if written and configs.next_page_token is not None:
            written[-1] = _config_out(configs.configs[-1], configs.next_page_token)
        return encode(written)

    def event_encoder(self) -> EventEncoder:
        return _tell

    def encode_params(self, method: Method, request: Value) -> bytes:
        if isinstance(request, SendMessageRequest):
            return encoded(_send_out(request))
        if isinstance(request, TaskPushNotificationConfig):
            return encoded(_config_out(request))
        return encoded(_params_out(request))

    def decode_answer(self, data: Json) -> Task | Message:
        try:
            return kept(data, _answer_in(_read_answer(data)))
        except NOT_OF_SCHEMA:
            found = lenient.read_result(data, SendMessageResponse)
            answer = found.task or found.message
            if answer is None:
                raise InvalidPeerResponse("The answer is neither a task nor a message.") from None
            return answer

    def decode_task(self, data: Json) -> Task:
        try:
            return kept(data, _task_in(_read_task(data)))
        except NOT_OF_SCHEMA:
            return lenient.read_result(data, Task)

    def decode_page(self, data: Json) -> ListTasksResponse:
        try:
            return kept(data, _page_in(_read_page(data)))
        except NOT_OF_SCHEMA:
            return lenient.read_result(data, ListTasksResponse)

    def decode_config(self, data: Json) -> TaskPushNotificationConfig:
        try:
            return kept(data, _config_in(_read_config(data)))
        except NOT_OF_SCHEMA:
            return lenient.read_result(data, TaskPushNotificationConfig)

    def decode_configs(self, data: Json) -> ListTaskPushNotificationConfigsResponse:
        try:
            return kept(data, _configs_in(_read_configs(data)))
        except NOT_OF_SCHEMA:
            return lenient.read_result(data, ListTaskPushNotificationConfigsResponse)

    def event_decoder(self) -> Callable[[Json], StreamEvent | None]:
        return decode_event


def _tell(event: Event, ends: bool = True, /) -> Sequence[bytes]:
    told = event.told
    if told is None or told[0] is not _V03:
        told = event.told = (_V03, _event_json(event))
    if not ends and goes_on(event, told[1]):
        return (encode(replace(_event_out(event.value), final=False)),)
    return (told[1],)


def goes_on(event: Event, json: bytes) -> bool:
    """Whether an event is written as the last of a stream that goes on: what it asks is answered already."""
    if b'"final":true' not in json:
        return False
    value = event.value
    return isinstance(value, TaskStatusUpdateEvent) and not value.status.state.terminal


def _event_json(event: Event) -> bytes:
    if isinstance(event, TextChunk) and event.media_type is None:
        # A string cannot hold `"parts":[{`: its quotes would be escaped.
        return _CHUNK + event.json[_CHUNK_BEGINS:-1].replace(b'"parts":[{', b'"parts":[{"kind":"text",', 1)
    return encode(_event_out(event.value))


_CHUNK: Final = b'{"kind":"artifact-update",'
_CHUNK_BEGINS: Final = len(b'{"artifactUpdate":{')


def decode_event(data: Json) -> StreamEvent | None:
    """An event of a stream; None is a kind that is not known. Raises InvalidPeerResponse."""
    try:
        return kept(data, _event_in(_read_event(data)))
    except NOT_OF_SCHEMA:
        return odd_event(data)


_read_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_NOTHING: Final = StreamResponse()
_KINDS: Final = frozenset(("task", "message", "statusupdate", "artifactupdate"))


def odd_event(data: Json) -> StreamEvent | None:
    """An event that is not of the schema: wrapped in its name, without `kind`, or misspelt; else as decode_event."""
    try:
        members = _read_members(data)
    except NOT_OF_SCHEMA as error:
        raise InvalidPeerResponse(f"The stream event is no JSON object: {error}") from None
    tag = bytes(members.get("kind", b"")).decode(errors="replace").lower()
    if tag and re.sub(r"[^a-z]", "", tag) not in _KINDS:
        return None
    response = lenient.read_result(data, StreamResponse)
    if response == _NOTHING and members:
        return None
    try:
        return response.event
    except ValueError as error:
        raise InvalidPeerResponse(f"The stream event {error}.") from None


V03: Final = _V03()
V03_AT_ONCE: Final = _V03(waits=False)
