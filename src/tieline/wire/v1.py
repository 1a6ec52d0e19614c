"""A2A 1.0: params, results and stream events between bytes and values. Pure."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from tieline.errors import InvalidParams, InvalidPeerResponse
from tieline.types import (
    Encoded,
    Message,
    SendMessageResponse,
    StreamEvent,
    StreamResponse,
    Task,
    decode,
)
from tieline.wire.methods import Method

__all__ = ["VERSION", "decode_answer", "decode_event", "decode_result", "encode_answer", "read_params"]

VERSION = "1.0"

T = TypeVar("T")


def read_params(method: Method, params: bytes | msgspec.Raw) -> Any:
    """The request of a method.

    Raises:
        InvalidParams: with the path of the bad field.
        msgspec.DecodeError: not JSON.
    """
    return decode(params, method.request)


def encode_answer(answer: Encoded[Task] | Encoded[Message]) -> bytes:
    """A SendMessageResponse."""
    return (b'{"task":' if answer.type_ is Task else b'{"message":') + answer.json + b"}"


def decode_answer(data: bytes | msgspec.Raw) -> Task | Message:
    """What a SendMessageResponse holds. Raises InvalidPeerResponse."""
    response = decode_result(data, SendMessageResponse)
    found = [value for value in (response.task, response.message) if value is not None]
    if len(found) != 1:
        raise InvalidPeerResponse(f"The answer has to hold exactly one of task and message, it holds {len(found)}.")
    return found[0]


def decode_event(data: bytes | msgspec.Raw) -> StreamEvent:
    """What a StreamResponse holds. Raises InvalidPeerResponse."""
    try:
        return decode_result(data, StreamResponse).event
    except ValueError as error:
        raise InvalidPeerResponse(f"The stream event {error}.") from None


def decode_result(data: bytes | msgspec.Raw, type_: type[T]) -> T:
    """A result of a given type. Raises InvalidPeerResponse."""
    try:
        return decode(data, type_, root="result")
    except InvalidParams as error:
        raise InvalidPeerResponse(f"The answer is not valid: {error}", violations=error.violations) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidPeerResponse(f"The answer is not valid JSON: {error}") from None
