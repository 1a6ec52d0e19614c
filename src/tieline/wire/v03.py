"""A2A 0.3, and 0.2.5 and 0.2.6, which are it: unions told by `kind`, states in lower case. Pure.

A value is read in one typed step into the shape of the schema (v03_schema.py) and carried over into that of 1.0
(v03_values.py); what does not fit the schema goes to lenient.py. What 0.3 has no field for travels as metadata
(v03_metadata.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from tieline.errors import A2AError, InvalidPeerResponse
from tieline.event import Event, TextChunk
from tieline.types import (
    Encoded,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksResponse,
    Message,
    SendMessageConfiguration,
    SendMessageRequest,
    SendMessageResponse,
    StreamEvent,
    StreamResponse,
    Task,
    TaskPushNotificationConfig,
    TaskStatusUpdateEvent,
    Value,
    encode,
)
from tieline.wire import lenient
from tieline.wire import v03_schema as schema
from tieline.wire.dialect import EventEncoder, Json
from tieline.wire.methods import METHODS, Method
from tieline.wire.mistakes import telling_mistakes
from tieline.wire.v03_json import NOT_OF_SCHEMA, Reader, kept
from tieline.wire.v03_values import (
    answer_in,
    config_in,
    config_out,
    configs_in,
    configs_out,
    event_in,
    event_out,
    message_out,
    no_params_in,
    page_in,
    page_out,
    params_in,
    params_out,
    send_in,
    send_out,
    task_in,
    task_out,
)
from tieline.wire.v1 import encoded

__all__ = ["V03", "V03_AT_ONCE", "goes_on", "read_otherwise"]

_read_send: Final[Reader[schema.SendParams]] = Reader(schema.SendParams)
_read_params: Final[Reader[schema.TaskParams]] = Reader(schema.TaskParams)
_read_no_params: Final[Reader[schema.NoParams]] = Reader(schema.NoParams)
_read_answer: Final[Reader[schema.Task | schema.Message]] = Reader(schema.Task | schema.Message)
_read_task: Final[Reader[schema.Task]] = Reader(schema.Task)
_read_config: Final[Reader[schema.TaskPushConfig]] = Reader(schema.TaskPushConfig)
_read_configs: Final[Reader[tuple[schema.TaskPushConfig, ...]]] = Reader(tuple[schema.TaskPushConfig, ...])
_read_page: Final[Reader[schema.Page]] = Reader(schema.Page)
_read_event: Final[Reader[schema.Event]] = Reader(schema.Event)


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
    shows_ended = False
    resumes = True

    def __init__(self, *, waits: bool = True) -> None:
        self.waits = waits

    @telling_mistakes
    def read_params(self, method: Method, params: Json) -> Any:
        request = method.request
        try:
            value: Any
            if request is SendMessageRequest:
                value = send_in(_read_send(params), self.waits)
            elif request is TaskPushNotificationConfig:
                value = config_in(_read_config(params))
            elif request is GetExtendedAgentCardRequest:
                return no_params_in(_read_no_params(params))
            else:
                return kept(params, params_in(_read_params(params), request))
        except (msgspec.ValidationError, ValueError):
            return read_otherwise(params, request, waits=self.waits)
        return kept(params, value)

    def encode_answer(self, answer: Encoded[Task] | Encoded[Message]) -> bytes:
        value = answer.value
        return encode(task_out(value) if isinstance(value, Task) else message_out(value))

    def encode_task(self, task: Encoded[Task]) -> bytes:
        return encode(task_out(task.value))

    def encode_page(self, page: ListTasksResponse) -> bytes:
        return encode(page_out(page))

    def encode_config(self, config: TaskPushNotificationConfig) -> bytes:
        return encode(config_out(config))

    def encode_configs(self, configs: ListTaskPushNotificationConfigsResponse) -> bytes:
        return encode(configs_out(configs))

    def encode_deleted(self) -> bytes:
        return b"null"

    def event_encoder(self) -> EventEncoder:
        return _tell

    def encode_params(self, method: Method, request: Value) -> bytes:
        if isinstance(request, SendMessageRequest):
            return encoded(send_out(request))
        if isinstance(request, TaskPushNotificationConfig):
            return encoded(config_out(request))
        return encoded(params_out(request))

    def decode_answer(self, data: Json) -> Task | Message:
        try:
            return kept(data, answer_in(_read_answer(data)))
        except NOT_OF_SCHEMA:
            found = lenient.read_result(data, SendMessageResponse)
            answer = found.task or found.message
            if answer is None:
                raise InvalidPeerResponse("The answer is neither a task nor a message.") from None
            return answer

    def decode_task(self, data: Json) -> Task:
        try:
            return kept(data, task_in(_read_task(data)))
        except NOT_OF_SCHEMA:
            return lenient.read_result(data, Task)

    def decode_page(self, data: Json) -> ListTasksResponse:
        try:
            return kept(data, page_in(_read_page(data)))
        except NOT_OF_SCHEMA:
            return lenient.read_result(data, ListTasksResponse)

    def decode_config(self, data: Json) -> TaskPushNotificationConfig:
        try:
            return kept(data, config_in(_read_config(data)))
        except NOT_OF_SCHEMA:
            return lenient.read_result(data, TaskPushNotificationConfig)

    def decode_configs(self, data: Json) -> ListTaskPushNotificationConfigsResponse:
        try:
            return kept(data, configs_in(_read_configs(data)))
        except NOT_OF_SCHEMA:
            return lenient.read_result(data, ListTaskPushNotificationConfigsResponse)

    def event_decoder(self) -> Callable[[Json], StreamEvent | None]:
        return _decode_event


def read_otherwise(params: Json, request: type[Any], *, waits: bool, protobuf: bool = False) -> Any:
    """Params that are not of the schema: as they were meant. Raises InvalidParams.

    `protobuf`: they are in the JSON of the protobuf definition.
    """
    value = lenient.read(params, request, protobuf=protobuf)
    if isinstance(value, SendMessageRequest) and not waits and b'"blocking"' not in bytes(params):
        given = value.configuration or SendMessageConfiguration()
        value = replace(value, configuration=replace(given, return_immediately=True))
    if isinstance(value, GetTaskPushNotificationConfigRequest) and not value.id:
        value = replace(value, id=value.task_id)
    return value


V03: Final = _V03()
V03_AT_ONCE: Final = _V03(waits=False)


# --- events of a stream -----------------------------------------------------------------------------------------------


def _tell(event: Event, ends: bool = True, /) -> Sequence[bytes]:
    told = event.told
    if told is None or told[0] is not _V03:
        told = event.told = (_V03, _event_json(event))
    if not ends and goes_on(event, told[1]):
        return (encode(replace(event_out(event.value), final=False)),)
    return (told[1],)


def goes_on(event: Event, json: bytes) -> bool:
    """Whether an event is written as the last of a stream that goes on: what it asks is answered already."""
    if b'"final":true' not in json:
        return False
    value = event.value
    return isinstance(value, TaskStatusUpdateEvent) and not value.status.state.terminal


_CHUNK: Final = b'{"kind":"artifact-update",'
_CHUNK_BEGINS: Final = len(b'{"artifactUpdate":{')


def _event_json(event: Event) -> bytes:
    if isinstance(event, TextChunk) and event.media_type is None:
        # A string cannot hold `"parts":[{`: its quotes would be escaped.
        return _CHUNK + event.json[_CHUNK_BEGINS:-1].replace(b'"parts":[{', b'"parts":[{"kind":"text",', 1)
    return encode(event_out(event.value))


def _decode_event(data: Json) -> StreamEvent | None:
    """An event of a stream; None is a kind that is not known. Raises InvalidPeerResponse."""
    try:
        return kept(data, event_in(_read_event(data)))
    except NOT_OF_SCHEMA:
        return _odd_event(data)


_read_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_NOTHING: Final = StreamResponse()
_KINDS: Final = frozenset(("task", "message", "statusupdate", "artifactupdate"))


def _odd_event(data: Json) -> StreamEvent | None:
    """An event that is not of the schema: wrapped in its name, without `kind`, or misspelt; else as _decode_event."""
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
