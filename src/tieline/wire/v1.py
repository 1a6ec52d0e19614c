"""A2A 1.0: its JSON is the canonical form of the values, so nothing has to be translated. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from tieline.errors import A2AError, InvalidParams, InvalidPeerResponse
from tieline.types import (
    Encoded,
    ListTaskPushNotificationConfigsResponse,
    ListTasksResponse,
    Message,
    SendMessageResponse,
    StreamEvent,
    StreamResponse,
    Task,
    TaskPushNotificationConfig,
    Value,
    decode,
    encode,
)
from tieline.wire import lenient
from tieline.wire.dialect import Json
from tieline.wire.methods import METHODS, Method
from tieline.wire.mistakes import telling_mistakes

__all__ = ["V1", "decode_result", "encoded"]

T = TypeVar("T")

_NOTHING = StreamResponse()


class _V1:
    """See Dialect."""

    version = "1.0"
    versions = ("1.0",)
    methods: Mapping[str, Method] = METHODS
    names: Mapping[str, str] = {name: name for name in METHODS}
    codes: Mapping[type[A2AError], int] = {}
    data_in_object = False
    new_task = None
    has_final = False
    shows_ended = False
    resumes = True

    @telling_mistakes
    def read_params(self, method: Method, params: Json) -> Any:
        return decode(params, method.request)

    def encode_answer(self, answer: Encoded[Task] | Encoded[Message]) -> bytes:
        return (b'{"task":' if answer.type_ is Task else b'{"message":') + answer.json + b"}"

    def encode_task(self, task: Encoded[Task]) -> bytes:
        return task.json

    def encode_page(self, page: ListTasksResponse) -> bytes:
        return encode(page)

    def encode_config(self, config: TaskPushNotificationConfig) -> bytes:
        return encode(config)

    def encode_configs(self, configs: ListTaskPushNotificationConfigsResponse) -> bytes:
        return encode(configs)

    def encode_deleted(self) -> bytes:
        return b"{}"

    def event_encoder(self) -> None:
        return None

    def encode_params(self, method: Method, request: Value) -> bytes:
        return encoded(request)

    def decode_answer(self, data: Json) -> Task | Message:
        response = decode_result(data, SendMessageResponse)
        if response.task is None and response.message is None:
            response = _read_otherwise(data, SendMessageResponse) or response
        found = [value for value in (response.task, response.message) if value is not None]
        if len(found) != 1:
            raise InvalidPeerResponse(f"The answer has to hold exactly one of task and message, it holds {len(found)}.")
        return found[0]

    def decode_task(self, data: Json) -> Task:
        return decode_result(data, Task)

    def decode_page(self, data: Json) -> ListTasksResponse:
        return decode_result(data, ListTasksResponse)

    def decode_config(self, data: Json) -> TaskPushNotificationConfig:
        return decode_result(data, TaskPushNotificationConfig)

    def decode_configs(self, data: Json) -> ListTaskPushNotificationConfigsResponse:
        return decode_result(data, ListTaskPushNotificationConfigsResponse)

    def event_decoder(self) -> Callable[[Json], StreamEvent | None]:
        return _decode_event


V1: Final = _V1()


_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def _decode_event(data: Json) -> StreamEvent | None:
    """What a StreamResponse holds; None when it holds only members that this version does not know (A2A 1.0 §5.7).

    Raises InvalidPeerResponse.
    """
    response = decode_result(data, StreamResponse)
    if response == _NOTHING and _members(data):
        response = _read_otherwise(data, StreamResponse) or response
        if response == _NOTHING:
            return None
    try:
        return response.event
    except ValueError as error:
        raise InvalidPeerResponse(f"The stream event {error}.") from None


def decode_result(data: Json, type_: type[T]) -> T:
    """A result of a given type, in whatever shape it came. Raises InvalidPeerResponse."""
    try:
        return decode(data, type_, root="result")
    except InvalidParams as error:
        value = _read_otherwise(data, type_)
        if value is not None:
            return value
        raise InvalidPeerResponse(f"The answer is not valid: {error}", violations=error.violations) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidPeerResponse(f"The answer is not valid JSON: {error}") from None


def _read_otherwise(data: Json, type_: type[T]) -> T | None:
    """What is not of 1.0, as its sender meant it; None where that cannot be told."""
    try:
        return lenient.read(data, type_)
    except (InvalidParams, msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def encoded(request: msgspec.Struct) -> bytes:
    """A request as JSON. Raises InvalidParams when it holds something that JSON has no form for."""
    try:
        return encode(request)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise InvalidParams(f"The request cannot be written as JSON: {error}") from None
