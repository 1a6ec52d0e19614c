"""A2A 0.3 over REST: the JSON of its protobuf definition (package a2a.v1), as peers in the field write it.

The text of 0.3 shows the values of its JSON schema (`kind`) there as well: who sends a message in that form is answered
in it. Pure.

The protobuf definition is narrower than the schema: what it has no field for is carried as metadata, too. Parsers of it
refuse unknown fields, so nothing but its own fields is written.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from tieline.errors import (
    A2AError,
    ContentTypeNotSupported,
    ExtendedAgentCardNotConfigured,
    FieldViolation,
    InvalidAgentResponse,
    InvalidPeerResponse,
    PushNotificationNotSupported,
    TaskNotCancelable,
    UnsupportedOperation,
    error_for,
)
from tieline.event import Event, TextChunk
from tieline.types import (
    Artifact,
    Encoded,
    ListTaskPushNotificationConfigsResponse,
    ListTasksResponse,
    Message,
    Metadata,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamEvent,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    Value,
    encode,
)
from tieline.wire import lenient
from tieline.wire.details import details_of, error_from_details
from tieline.wire.dialect import Dialect, EventEncoder, Json
from tieline.wire.methods import METHODS, Method
from tieline.wire.v03 import V03, goes_on
from tieline.wire.v03_json import NOT_OF_SCHEMA, Reader, kept
from tieline.wire.v03_metadata import NOTHING, OF_MESSAGE, OF_SEND, TENANT, carried, carry, present
from tieline.wire.v03_schema import DataPart, File, FilePart, PushConfig, TextPart
from tieline.wire.v03_values import ENDS_STREAM, part_in, part_out, push_in, push_out
from tieline.wire.v1 import encoded

__all__ = ["MEDIA_TYPE", "V03_REST", "V03_REST_TWICE", "encode_error", "is_error", "read_error", "spoken"]

MEDIA_TYPE: Final = "application/json"

# --- the protobuf definition, as JSON ---------------------------------------------------------------------------------
# A field that holds its default is absent, so all have one.


class _File(Value, frozen=True, gc=False):
    file_with_uri: str | None = None
    file_with_bytes: bytes | None = None
    mime_type: str | None = None
    name: str | None = None


class _Data(Value, frozen=True, gc=False):
    data: Metadata | None = None


class _Part(Value, frozen=True, gc=False):
    text: str | None = None
    file: _File | None = None
    data: _Data | None = None
    metadata: Metadata | None = None


_RoleName = Literal["ROLE_UNSPECIFIED", "ROLE_USER", "ROLE_AGENT"]


class _Message(Value, frozen=True, gc=False):
    message_id: str = ""
    context_id: str = ""
    task_id: str = ""
    role: _RoleName = "ROLE_UNSPECIFIED"
    content: tuple[_Part, ...] = ()
    metadata: Metadata | None = None
    extensions: tuple[str, ...] = ()


_StateName = Literal[
    "TASK_STATE_UNSPECIFIED",
    "TASK_STATE_SUBMITTED",
    "TASK_STATE_WORKING",
    "TASK_STATE_COMPLETED",
    "TASK_STATE_FAILED",
    "TASK_STATE_CANCELLED",
    "TASK_STATE_INPUT_REQUIRED",
    "TASK_STATE_REJECTED",
    "TASK_STATE_AUTH_REQUIRED",
]


class _Status(Value, frozen=True, gc=False):
    state: _StateName = "TASK_STATE_UNSPECIFIED"
    message: _Message | None = None
    timestamp: str | None = None


class _Artifact(Value, frozen=True, gc=False):
    artifact_id: str = ""
    name: str | None = None
    description: str | None = None
    parts: tuple[_Part, ...] = ()
    metadata: Metadata | None = None
    extensions: tuple[str, ...] = ()


class _Task(Value, frozen=True, gc=False):
    id: str
    status: _Status
    context_id: str = ""
    artifacts: tuple[_Artifact, ...] = ()
    history: tuple[_Message, ...] = ()
    metadata: Metadata | None = None


class _StatusUpdate(Value, frozen=True, gc=False):
    task_id: str
    status: _Status
    context_id: str = ""
    final: bool = False
    metadata: Metadata | None = None


class _ArtifactUpdate(Value, frozen=True, gc=False):
    task_id: str
    artifact: _Artifact
    context_id: str = ""
    append: bool = False
    last_chunk: bool = False
    metadata: Metadata | None = None


class _Answer(Value, frozen=True, gc=False):
    """SendMessageResponse and StreamResponse."""

    task: _Task | None = None
    message: _Message | None = None
    status_update: _StatusUpdate | None = None
    artifact_update: _ArtifactUpdate | None = None


class _Configuration(Value, frozen=True, gc=False):
    accepted_output_modes: tuple[str, ...] = ()
    push_notification: PushConfig | None = None
    history_length: int = 0  # messages; 0 is all
    blocking: bool = False


_WAITING: Final = _Configuration(blocking=True)


class _SendRequest(Value, frozen=True, gc=False):
    message: _Message
    configuration: _Configuration | None = None
    metadata: Metadata | None = None


class _Config(Value, frozen=True, gc=False):
    """TaskPushNotificationConfig. `name`: tasks/{id}/pushNotificationConfigs/{id}."""

    name: str = ""
    push_notification_config: PushConfig | None = None


class _CreateConfig(Value, frozen=True, gc=False):
    """The request, or only what is to be created; `task_id` stands in the path."""

    parent: str = ""
    config_id: str = ""
    config: _Config | None = None
    name: str | None = None
    push_notification_config: PushConfig | None = None
    task_id: str | None = None


class _Configs(Value, frozen=True, gc=False):
    configs: tuple[_Config, ...] = ()
    next_page_token: str | None = None


class _Page(Value, frozen=True, gc=False, omit_defaults=False):
    """No message of 0.3, which has only the path: as in 1.0."""

    tasks: tuple[_Task, ...]
    next_page_token: str
    page_size: int
    total_size: int


# --- files ------------------------------------------------------------------------------------------------------------
# The field is of bytes, and what Python's SDK puts into it is the base64 text of 0.3's schema: in JSON that is base64
# twice. JavaScript's SDK puts the bytes themselves there. Nothing tells but the content.

_BASE64: Final = "tieline/base64"
_OF_FILE: Final = {_BASE64: bool}
_IS_BASE64: Final = re.compile(rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?").fullmatch
_IS_TEXT: Final = re.compile(r"text/|application/(?:[\w.-]+\+)?(?:json|xml|yaml)|.*charset=", re.IGNORECASE).match


def _looks_twice(given: bytes, mime_type: str | None) -> bool:
    """Whether the bytes of the field are base64 text. Base64 is what few files consist of, and text is UTF-8."""
    if not given or len(given) % 4 or not _IS_BASE64(given):
        return False
    if mime_type and _IS_TEXT(mime_type):
        try:
            b64decode(given).decode()
        except UnicodeDecodeError:
            return False
    return True


def _file_in(file: _File, metadata: Metadata | None) -> FilePart:
    metadata, extra = carried(metadata, _OF_FILE)
    raw = file.file_with_bytes
    if raw is not None and extra.get(_BASE64, _looks_twice(raw, file.mime_type)):
        raw = b64decode(raw)
    return FilePart(File(raw, file.file_with_uri, file.mime_type, file.name), metadata)


def _file_out(part: FilePart, twice: bool) -> _Part:
    file = part.file
    raw, extra = file.raw, NOTHING
    if raw is not None:
        raw = b64encode(raw) if twice else raw
        if raw and _looks_twice(raw, file.mime_type) is not twice:
            extra = {_BASE64: twice}
    written = _File(file.uri, raw, file.mime_type, file.name)
    return _Part(file=written, metadata=carry(part.metadata, extra, _OF_FILE))


# --- to 1.0 -----------------------------------------------------------------------------------------------------------

_OF_MESSAGE: Final = {**OF_MESSAGE, "tieline/referenceTaskIds": list}
_OF_SEND: Final = {**OF_SEND, "tieline/historyLength": int}
_CANCELLED: Final = "TASK_STATE_CANCELLED"
_STATES: Final[dict[str, TaskState]] = {**{s.value: s for s in TaskState}, _CANCELLED: TaskState.CANCELED}
_ROLES: Final[dict[str, Role]] = {role.value: role for role in Role}


def _part_in(part: _Part) -> Part:
    """Raises ValueError for a part that holds nothing, or two things."""
    if (part.text is not None) + (part.file is not None) + (part.data is not None) != 1:
        raise ValueError("wants exactly one of text, file and data")
    if part.text is not None:
        return part_in(TextPart(part.text, part.metadata))
    if part.file is not None:
        return part_in(_file_in(part.file, part.metadata))
    assert part.data is not None
    return part_in(DataPart(part.data.data or {}, part.metadata))


def _message_in(message: _Message) -> Message:
    metadata, extra = carried(message.metadata, _OF_MESSAGE)
    referenced = extra.get("tieline/referenceTaskIds", ())
    return Message(
        message.message_id,
        _ROLES[message.role],
        tuple([_part_in(part) for part in message.content]),
        message.context_id or None,
        message.task_id or None,
        metadata,
        message.extensions,
        tuple([str(id_) for id_ in referenced]),
    )


def _status_in(status: _Status) -> TaskStatus:
    message = _message_in(status.message) if status.message else None
    return TaskStatus(_STATES[status.state], message, status.timestamp)


def _artifact_in(artifact: _Artifact) -> Artifact:
    return Artifact(
        artifact.artifact_id,
        tuple([_part_in(part) for part in artifact.parts]),
        artifact.name,
        artifact.description,
        artifact.metadata,
        artifact.extensions,
    )


def _task_in(task: _Task) -> Task:
    return Task(
        task.id,
        _status_in(task.status),
        task.context_id or None,
        tuple([_artifact_in(artifact) for artifact in task.artifacts]),
        tuple([_message_in(message) for message in task.history]),
        task.metadata,
    )


def _event_in(answer: _Answer) -> StreamEvent:
    """Raises ValueError when there is none, or more than one."""
    found = [e for e in (answer.task, answer.message, answer.status_update, answer.artifact_update) if e is not None]
    if len(found) != 1:
        raise ValueError(f"wants exactly one event, got {len(found)}")
    event = found[0]
    if isinstance(event, _Task):
        return _task_in(event)
    if isinstance(event, _Message):
        return _message_in(event)
    if isinstance(event, _StatusUpdate):
        return TaskStatusUpdateEvent(event.task_id, event.context_id, _status_in(event.status), event.metadata)
    return TaskArtifactUpdateEvent(
        event.task_id,
        event.context_id,
        _artifact_in(event.artifact),
        event.append,
        event.last_chunk,
        event.metadata,
    )


def _send_in(request: _SendRequest) -> SendMessageRequest:
    metadata, extra = carried(request.metadata, _OF_SEND)
    given = request.configuration or _Configuration()
    configuration = None
    if given != _WAITING or "tieline/historyLength" in extra:
        push, of_push = given.push_notification, extra.get("tieline/pushNotificationConfig", NOTHING)
        configuration = SendMessageConfiguration(
            given.accepted_output_modes,
            push_in(push, of_push.get("taskId"), of_push.get("tenant")) if push else None,
            extra.get("tieline/historyLength", given.history_length or None),
            not given.blocking,
        )
    return SendMessageRequest(_message_in(request.message), extra.get(TENANT), configuration, metadata)


_NAME: Final = re.compile(r"tasks/(.+?)(?:/pushNotificationConfigs(?:/.*)?)?", re.DOTALL).fullmatch


def _task_id(name: str | None) -> str | None:
    match = _NAME(name or "")
    return match.group(1) if match else None


def _config_in(config: _Config) -> TaskPushNotificationConfig:
    """Raises ValueError when there is none in it."""
    if config.push_notification_config is None:
        raise ValueError("wants a pushNotificationConfig")
    return push_in(config.push_notification_config, _task_id(config.name), None)


def _create_in(request: _CreateConfig) -> TaskPushNotificationConfig:
    config = request.config or _Config(push_notification_config=request.push_notification_config)
    made = _config_in(config)
    task_id = request.task_id or _task_id(request.parent) or _task_id(request.name) or made.task_id
    return replace(made, task_id=task_id, id=made.id or request.config_id or None)


# --- from 1.0 ---------------------------------------------------------------------------------------------------------

_STATE_NAMES: Final[dict[TaskState, Any]] = {**{s: s.value for s in TaskState}, TaskState.CANCELED: _CANCELLED}
_ROLE_NAMES: Final[dict[Role, Any]] = {role: role.value for role in Role}


class _Writer:
    """Values of 1.0 as those of the protobuf definition. `twice`: files as base64 of base64."""

    def __init__(self, twice: bool) -> None:
        self._twice = twice

    def part(self, part: Part) -> _Part:
        older = part_out(part)
        if isinstance(older, TextPart):
            return _Part(older.text, metadata=older.metadata)
        if isinstance(older, DataPart):
            return _Part(data=_Data(older.data), metadata=older.metadata)
        return _file_out(older, self._twice)

    def message(self, message: Message) -> _Message:
        referenced = message.reference_task_ids
        extra = {"tieline/referenceTaskIds": list(referenced)} if referenced else NOTHING
        return _Message(
            message.message_id,
            message.context_id or "",
            message.task_id or "",
            _ROLE_NAMES[message.role],
            tuple([self.part(part) for part in message.parts]),
            carry(message.metadata, extra, _OF_MESSAGE),
            message.extensions,
        )

    def status(self, status: TaskStatus) -> _Status:
        message = self.message(status.message) if status.message else None
        return _Status(_STATE_NAMES[status.state], message, status.timestamp)

    def artifact(self, artifact: Artifact) -> _Artifact:
        return _Artifact(
            artifact.artifact_id,
            artifact.name,
            artifact.description,
            tuple([self.part(part) for part in artifact.parts]),
            artifact.metadata,
            artifact.extensions,
        )

    def task(self, task: Task) -> _Task:
        return _Task(
            task.id,
            self.status(task.status),
            task.context_id or "",
            tuple([self.artifact(artifact) for artifact in task.artifacts]),
            tuple([self.message(message) for message in task.history]),
            task.metadata,
        )

    def event(self, event: StreamEvent) -> _Answer:
        if isinstance(event, TaskArtifactUpdateEvent):
            update = _ArtifactUpdate(
                event.task_id,
                self.artifact(event.artifact),
                event.context_id,
                event.append,
                event.last_chunk,
                event.metadata,
            )
            return _Answer(artifact_update=update)
        if isinstance(event, TaskStatusUpdateEvent):
            status, ends = self.status(event.status), event.status.state in ENDS_STREAM
            return _Answer(status_update=_StatusUpdate(event.task_id, status, event.context_id, ends, event.metadata))
        return _Answer(self.task(event)) if isinstance(event, Task) else _Answer(message=self.message(event))

    def send(self, request: SendMessageRequest) -> _SendRequest:
        extra = present({TENANT: request.tenant})
        given = request.configuration or SendMessageConfiguration()
        push = given.task_push_notification_config
        of_push = present({"taskId": push.task_id, "tenant": push.tenant}) if push else None
        if of_push:
            extra["tieline/pushNotificationConfig"] = of_push
        if given.history_length == 0:
            extra["tieline/historyLength"] = 0
        configuration = _Configuration(
            given.accepted_output_modes,
            push_out(push) if push else None,
            given.history_length or 0,
            not given.return_immediately,
        )
        return _SendRequest(self.message(request.message), configuration, carry(request.metadata, extra, _OF_SEND))


def _config_out(config: TaskPushNotificationConfig) -> _Config:
    task_id = config.task_id or ""
    return _Config(f"tasks/{task_id}/pushNotificationConfigs/{config.id or task_id}", push_out(config))


# --- JSON -------------------------------------------------------------------------------------------------------------

_OTHER_NAMES: Final = {"request": "message", "msg": "message", "update": "message"}
"""What fields are called in the protobuf definition itself, where its JSON has another name."""

_read_send: Final[Reader[_SendRequest]] = Reader(_SendRequest, _OTHER_NAMES)
_read_create: Final[Reader[_CreateConfig]] = Reader(_CreateConfig)
_read_answer: Final[Reader[_Answer]] = Reader(_Answer, _OTHER_NAMES)
_read_task: Final[Reader[_Task]] = Reader(_Task, _OTHER_NAMES)
_read_config: Final[Reader[_Config]] = Reader(_Config)
_read_configs: Final[Reader[_Configs]] = Reader(_Configs)
_read_page: Final[Reader[_Page]] = Reader(_Page, _OTHER_NAMES)


class _V03Rest:
    """See Dialect. `twice`: files are written as base64 of base64, as Python's SDK wants them.

    A message that does not say `blocking` is answered at once: protobuf does not tell unset from false.
    """

    version = "0.3"
    versions = V03.versions
    methods: Mapping[str, Method] = {**V03.methods, "tasks/list": METHODS["ListTasks"]}
    names: Mapping[str, str] = {method.name: name for name, method in methods.items()}
    codes: Mapping[type[A2AError], int] = V03.codes
    data_in_object = False
    new_task = None
    has_final = True
    resumes = True

    def __init__(self, *, twice: bool = False) -> None:
        self.twice = twice
        self._write = _Writer(twice)

    def read_params(self, method: Method, params: Json) -> Any:
        request = method.request
        try:
            if request is SendMessageRequest:
                sent = _read_send(params)
                if not sent.message.content and b'"parts"' in bytes(params):
                    raise ValueError("what has parts is not of this form")
                return kept(params, _send_in(sent))
            if request is TaskPushNotificationConfig:
                return _create_in(_read_create(params))
        except (msgspec.ValidationError, ValueError):
            value = lenient.read(params, request, protobuf=b'"kind"' not in bytes(params))
            if isinstance(value, SendMessageRequest) and b'"blocking"' not in bytes(params):
                given = value.configuration or SendMessageConfiguration()
                value = replace(value, configuration=replace(given, return_immediately=True))
            return value
        return V03.read_params(method, params)

    def encode_answer(self, answer: Encoded[Task] | Encoded[Message]) -> bytes:
        return encode(self._write.event(answer.value))

    def encode_task(self, task: Encoded[Task]) -> bytes:
        return encode(self._write.task(task.value))

    def encode_page(self, page: ListTasksResponse) -> bytes:
        tasks = tuple([self._write.task(task) for task in page.tasks])
        return encode(_Page(tasks, page.next_page_token, page.page_size, page.total_size))

    def encode_config(self, config: TaskPushNotificationConfig) -> bytes:
        return encode(_config_out(config))

    def encode_configs(self, configs: ListTaskPushNotificationConfigsResponse) -> bytes:
        return encode(_Configs(tuple([_config_out(config) for config in configs.configs]), configs.next_page_token))

    def event_encoder(self) -> EventEncoder:
        return self._tell

    def _tell(self, event: Event, ends: bool = True, /) -> Sequence[bytes]:
        told = event.told
        if told is None or told[0] is not self._write:
            if isinstance(event, TextChunk) and event.media_type is None:
                json = event.json  # the same in both
            else:
                json = encode(self._write.event(event.value))
            told = event.told = (self._write, json)
        if not ends and goes_on(event, told[1]):
            answer = self._write.event(event.value)
            assert answer.status_update is not None
            return (encode(replace(answer, status_update=replace(answer.status_update, final=False))),)
        return (told[1],)

    def encode_params(self, method: Method, request: Value) -> bytes:
        if isinstance(request, SendMessageRequest):
            return encoded(self._write.send(request))
        if isinstance(request, TaskPushNotificationConfig):
            config = _config_out(request)
            id_ = config.name.rpartition("/")[2]
            return encoded(_CreateConfig(f"tasks/{request.task_id or ''}", id_, config))
        return V03.encode_params(method, request)

    def decode_answer(self, data: Json) -> Task | Message:
        try:
            event = kept(data, _event_in(_read_answer(data)))
        except NOT_OF_SCHEMA:
            return V03.decode_answer(data)
        if isinstance(event, (Task, Message)):
            return event
        raise InvalidPeerResponse("The answer is neither a task nor a message.")

    def decode_task(self, data: Json) -> Task:
        try:
            return kept(data, _task_in(_read_task(data)))
        except NOT_OF_SCHEMA:
            return V03.decode_task(data)

    def decode_page(self, data: Json) -> ListTasksResponse:
        try:
            page = _read_page(data)
            tasks = tuple([_task_in(task) for task in page.tasks])
            return kept(data, ListTasksResponse(tasks, page.next_page_token, page.page_size, page.total_size))
        except NOT_OF_SCHEMA:
            return lenient.read_result(data, ListTasksResponse)

    def decode_config(self, data: Json) -> TaskPushNotificationConfig:
        try:
            return _config_in(_read_config(data))
        except NOT_OF_SCHEMA:
            return V03.decode_config(data)

    def decode_configs(self, data: Json) -> ListTaskPushNotificationConfigsResponse:
        try:
            read = _read_configs(data)
            configs = tuple([_config_in(config) for config in read.configs])
            return ListTaskPushNotificationConfigsResponse(configs, read.next_page_token)
        except NOT_OF_SCHEMA:
            return V03.decode_configs(data)

    def event_decoder(self) -> Callable[[Json], StreamEvent | None]:
        return _decode_event


def _decode_event(data: Json) -> StreamEvent | None:
    try:
        return kept(data, _event_in(_read_answer(data)))
    except NOT_OF_SCHEMA:
        return V03.event_decoder()(data)


V03_REST: Final = _V03Rest()
V03_REST_TWICE: Final = _V03Rest(twice=True)
"""For peers that put base64 text into `fileWithBytes` where the definition has bytes, as Python's SDK does."""


# --- which form -------------------------------------------------------------------------------------------------------


class _PeekedPart(msgspec.Struct, frozen=True, gc=False):
    kind: str | None = None
    file: _File | None = None


class _PeekedMessage(msgspec.Struct, frozen=True, gc=False):
    kind: str | None = None
    role: str = ""
    parts: tuple[_PeekedPart, ...] = ()
    content: tuple[_PeekedPart, ...] = ()


class _Peeked(msgspec.Struct, frozen=True, gc=False):
    message: _PeekedMessage


_PYTHON: Final = b"python-httpx/"  # what Python's SDK calls with
_peek: Final = msgspec.json.Decoder(_Peeked).decode


def spoken(body: bytes, user_agent: bytes = b"") -> Dialect:
    """The dialect of a request with this body: V03 for a message in the form of the schema, else V03_REST.

    V03_REST_TWICE if a file in it is base64 twice; where there is no file, if Python's SDK may have sent it.
    """
    usual = V03_REST_TWICE if user_agent.startswith(_PYTHON) else V03_REST
    try:
        message = _peek(body).message
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return usual
    if message.kind is not None or message.role in ("user", "agent") or any(part.kind for part in message.parts):
        return V03
    files = [part.file for part in message.content if part.file is not None and part.file.file_with_bytes]
    if not files:
        return usual
    twice = all(_looks_twice(file.file_with_bytes or b"", file.mime_type) for file in files)
    return V03_REST_TWICE if twice else V03_REST


# --- errors -----------------------------------------------------------------------------------------------------------

_STATUS: Final[dict[type[A2AError], int]] = {
    TaskNotCancelable: 409,
    PushNotificationNotSupported: 501,
    UnsupportedOperation: 501,
    ContentTypeNotSupported: 415,
    InvalidAgentResponse: 502,
    ExtendedAgentCardNotConfigured: 404,
}
"""HTTP status where the SDKs of 0.3 have another one than 1.0."""


def encode_error(error: A2AError) -> tuple[int, bytes]:
    """HTTP status and body.

    0.3 does not say what an error looks like: clients look for `code` (JavaScript), `type` and `message` (Python).
    """
    body = {"code": error.rpc_code, "type": error.name, "message": error.message, "data": details_of(error)}
    status = next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), error.http_status)
    return status, encode(body)


class _ErrorBody(msgspec.Struct, frozen=True, gc=False):
    """All that servers of 0.3 are known to answer with."""

    code: Any = None
    type: Any = None
    message: Any = None
    data: Any = None
    details: Any = None
    error: Any = None
    detail: Any = None  # FastAPI's: a sentence, or a list of {"loc", "msg"}


_CODE_OF_STATUS: Final = {
    400: -32602,
    404: -32601,
    405: -32601,
    409: -32002,
    415: -32005,
    422: -32602,
    501: -32004,
}
_CODE_OF_NAME: Final = {
    "JSONParseError": -32700,
    "InvalidRequestError": -32600,
    "MethodNotFoundError": -32601,
    "InvalidParamsError": -32602,
    "InternalError": -32603,
    "TaskNotFoundError": -32001,
    "TaskNotCancelableError": -32002,
    "PushNotificationNotSupportedError": -32003,
    "UnsupportedOperationError": -32004,
    "ContentTypeNotSupportedError": -32005,
    "InvalidAgentResponseError": -32006,
    "AuthenticatedExtendedCardNotConfiguredError": -32007,
    "ExtendedAgentCardNotConfiguredError": -32007,
}
_CODE_OF_WORDS: Final = (
    (re.compile(r"task.* (not found|does not exist)", re.IGNORECASE | re.DOTALL).search, -32001),
    (re.compile(r"extended card", re.IGNORECASE).search, -32007),
    (re.compile(r"push notification", re.IGNORECASE).search, -32003),
)
"""What the sentences of the SDKs tell where the status is that of several errors (404, 501)."""

_read_error: Final = msgspec.json.Decoder(_ErrorBody).decode
_read_wrapped: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def is_error(body: bytes) -> bool:
    """Whether a body is an error of an agent's, in one of the forms that `read_error` knows."""
    try:
        told = _read_error(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    return isinstance(told.message, str) or type(told.code) is int or isinstance(told.error, (dict, str))


def read_error(status: int, body: bytes) -> A2AError:
    """The error in a response, as its class; by the HTTP status alone where the body says nothing. `status` 0: none."""
    try:
        told = _read_error(body)
        if isinstance(told.error, dict):  # google.rpc.Status, or the error of JSON-RPC
            told = _read_error(_read_wrapped(body)["error"])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return error_for(rpc_code=_CODE_OF_STATUS.get(status), message=f"The agent answered HTTP {status}.")
    violations = list(_violations(told.detail))
    message = next((text for text in (told.message, told.detail, told.error) if isinstance(text, str) and text), "")
    message = message or "; ".join(f"{v.field}: {v.description}" for v in violations)
    code = _code(told, status, message)
    details = told.details if isinstance(told.details, list) else told.data
    message = message or f"The agent answered HTTP {status}."
    if violations:
        return error_for(rpc_code=code, message=message, violations=violations)
    return error_from_details(details, rpc_code=code, message=message)


def _code(told: _ErrorBody, status: int, message: str) -> int | None:
    if type(told.code) is int and told.code < 0:
        return told.code
    for name in (told.type, told.error):
        if isinstance(name, str) and name in _CODE_OF_NAME:
            return _CODE_OF_NAME[name]
    if status in (404, 501):
        for says, code in _CODE_OF_WORDS:
            if says(message):
                return code
    return _CODE_OF_STATUS.get(status)


def _violations(detail: Any) -> list[FieldViolation]:
    found = []
    for item in detail if isinstance(detail, list) else ():
        if isinstance(item, dict):
            place = item.get("loc")
            names = [str(name) for name in place if name != "body"] if isinstance(place, list) else []
            found.append(FieldViolation(".".join(names), str(item.get("msg", ""))))
    return found
