"""A2A 0.3 over REST: the JSON of its protobuf definition (package a2a.v1), as peers in the field write it. Pure.

The text of 0.3 shows the values of its JSON schema (`kind`) there as well: who sends a message in that form is answered
in it (`spoken`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from tieline.errors import A2AError, InvalidPeerResponse
from tieline.event import Event, TextChunk
from tieline.types import (
    Encoded,
    ListTaskPushNotificationConfigsResponse,
    ListTasksResponse,
    Message,
    SendMessageRequest,
    StreamEvent,
    Task,
    TaskPushNotificationConfig,
    Value,
    encode,
)
from tieline.wire import lenient
from tieline.wire import v03_rest_schema as schema
from tieline.wire.dialect import Dialect, EventEncoder, Json
from tieline.wire.methods import METHODS, Method
from tieline.wire.mistakes import telling_mistakes
from tieline.wire.v03 import V03, goes_on, read_otherwise
from tieline.wire.v03_json import NOT_OF_SCHEMA, Reader, kept
from tieline.wire.v03_rest_files import looks_twice, once
from tieline.wire.v03_rest_values import (
    Writer,
    config_in,
    config_out,
    configs_in,
    configs_out,
    create_in,
    create_out,
    event_in,
    page_in,
    send_in,
    task_in,
)
from tieline.wire.v1 import encoded

__all__ = ["MEDIA_TYPE", "V03_REST", "V03_REST_ONCE", "V03_REST_TWICE", "spoken"]

MEDIA_TYPE: Final = "application/json"

_OTHER_NAMES: Final = {"request": "message", "msg": "message", "update": "message"}
"""What fields are called in the protobuf definition itself, where its JSON has another name."""

_read_send: Final[Reader[schema.SendRequest]] = Reader(schema.SendRequest, _OTHER_NAMES)
_read_create: Final[Reader[schema.CreateConfig]] = Reader(schema.CreateConfig)
_read_answer: Final[Reader[schema.Answer]] = Reader(schema.Answer, _OTHER_NAMES)
_read_task: Final[Reader[schema.Task]] = Reader(schema.Task, _OTHER_NAMES)
_read_config: Final[Reader[schema.Config]] = Reader(schema.Config)
_read_configs: Final[Reader[schema.Configs]] = Reader(schema.Configs)
_read_page: Final[Reader[schema.Page]] = Reader(schema.Page, _OTHER_NAMES)


class _V03Rest:
    """See Dialect. `twice`: files are written as base64 of base64, as Python's SDK wants them. `guesses`: files are
    read as what they look like, once or twice.

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
    shows_ended = False
    resumes = True

    def __init__(self, *, twice: bool = False, guesses: bool = True) -> None:
        self.twice = twice
        self.guesses = guesses
        self._write = Writer(twice)

    @telling_mistakes
    def read_params(self, method: Method, params: Json) -> Any:
        request = method.request
        try:
            if request is SendMessageRequest:
                sent = _read_send(params)
                if not sent.message.content and b'"parts"' in bytes(params):
                    raise ValueError("what has parts is not of this form")
                if not self.guesses:
                    content = tuple([once(part) for part in sent.message.content])
                    sent = replace(sent, message=replace(sent.message, content=content))
                return kept(params, send_in(sent))
            if request is TaskPushNotificationConfig:
                return create_in(_read_create(params))
        except (msgspec.ValidationError, ValueError):
            return read_otherwise(params, request, waits=False, protobuf=b'"kind"' not in bytes(params))
        return V03.read_params(method, params)

    def encode_answer(self, answer: Encoded[Task] | Encoded[Message]) -> bytes:
        return encode(self._write.event(answer.value))

    def encode_task(self, task: Encoded[Task]) -> bytes:
        return encode(self._write.task(task.value))

    def encode_page(self, page: ListTasksResponse) -> bytes:
        return encode(self._write.page(page))

    def encode_config(self, config: TaskPushNotificationConfig) -> bytes:
        return encode(config_out(config))

    def encode_configs(self, configs: ListTaskPushNotificationConfigsResponse) -> bytes:
        return encode(configs_out(configs))

    def encode_deleted(self) -> bytes:
        return b"{}"

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
            return encoded(create_out(request))
        return V03.encode_params(method, request)

    def decode_answer(self, data: Json) -> Task | Message:
        try:
            event = kept(data, event_in(_read_answer(data)))
        except NOT_OF_SCHEMA:
            return V03.decode_answer(data)
        if isinstance(event, (Task, Message)):
            return event
        raise InvalidPeerResponse("The answer is neither a task nor a message.")

    def decode_task(self, data: Json) -> Task:
        try:
            return kept(data, task_in(_read_task(data)))
        except NOT_OF_SCHEMA:
            return V03.decode_task(data)

    def decode_page(self, data: Json) -> ListTasksResponse:
        try:
            return kept(data, page_in(_read_page(data)))
        except NOT_OF_SCHEMA:
            return lenient.read_result(data, ListTasksResponse)

    def decode_config(self, data: Json) -> TaskPushNotificationConfig:
        try:
            return config_in(_read_config(data))
        except NOT_OF_SCHEMA:
            return V03.decode_config(data)

    def decode_configs(self, data: Json) -> ListTaskPushNotificationConfigsResponse:
        try:
            return configs_in(_read_configs(data))
        except NOT_OF_SCHEMA:
            return V03.decode_configs(data)

    def event_decoder(self) -> Callable[[Json], StreamEvent | None]:
        return _decode_event


def _decode_event(data: Json) -> StreamEvent | None:
    try:
        return kept(data, event_in(_read_answer(data)))
    except NOT_OF_SCHEMA:
        return V03.event_decoder()(data)


V03_REST: Final = _V03Rest()
V03_REST_TWICE: Final = _V03Rest(twice=True)
"""For peers that put base64 text into `fileWithBytes` where the definition has bytes, as Python's SDK does."""
V03_REST_ONCE: Final = _V03Rest(guesses=False)
"""For peers that are known not to."""


# --- which form -------------------------------------------------------------------------------------------------------


class _Tagged(msgspec.Struct, frozen=True, gc=False):
    kind: str | None = None


class _TaggedMessage(msgspec.Struct, frozen=True, gc=False):
    kind: str | None = None
    role: str = ""
    parts: tuple[_Tagged, ...] = ()


class _TaggedSend(msgspec.Struct, frozen=True, gc=False):
    message: _TaggedMessage


class _Filed(msgspec.Struct, frozen=True, gc=False):
    file: schema.File | None = None


class _FiledMessage(msgspec.Struct, frozen=True, gc=False):
    content: tuple[_Filed, ...] = ()


class _FiledSend(msgspec.Struct, frozen=True, gc=False):
    message: _FiledMessage


_PYTHON: Final = b"python-httpx/"  # what Python's SDK calls with
_read_tags: Final = msgspec.json.Decoder(_TaggedSend).decode
_read_files: Final = msgspec.json.Decoder(_FiledSend).decode


def spoken(body: bytes, user_agent: bytes = b"") -> Dialect:
    """The dialect of a request with this body: V03 for a message in the form of the schema, else V03_REST.

    V03_REST_TWICE if a file in it is base64 twice; where there is no file, if Python's SDK may have sent it. Who says
    to be another is V03_REST_ONCE.
    """
    named = bool(user_agent) and not user_agent.startswith(_PYTHON)
    usual = V03_REST_ONCE if named else V03_REST_TWICE if user_agent else V03_REST
    if not body:
        return usual
    try:
        message = _read_tags(body).message
        if message.kind is not None or message.role in ("user", "agent") or any(part.kind for part in message.parts):
            return V03
        if named or b'"fileWithBytes"' not in body:
            return usual
        content = _read_files(body).message.content
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return usual
    files = [part.file for part in content if part.file is not None and part.file.file_with_bytes]
    if not files:
        return usual
    twice = all(looks_twice(file.file_with_bytes or b"", file.mime_type) for file in files)
    return V03_REST_TWICE if twice else V03_REST
