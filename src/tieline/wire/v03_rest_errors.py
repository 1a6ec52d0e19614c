"""Errors over 0.3's REST. Pure.

0.3 does not say what one looks like: what is written serves the clients of both SDKs, and all that servers are known
to answer with is read.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from tieline.errors import (
    A2AError,
    ContentTypeNotSupported,
    ExtendedAgentCardNotConfigured,
    FieldViolation,
    InvalidAgentResponse,
    PushNotificationNotSupported,
    TaskNotCancelable,
    UnsupportedOperation,
    error_for,
)
from tieline.types import encode
from tieline.wire.details import details_of, error_from_details

__all__ = ["encode_error", "is_error", "read_error"]

# --- written ----------------------------------------------------------------------------------------------------------

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
    """HTTP status and body: clients look for `code` (JavaScript), `type` and `message` (Python)."""
    body = {"code": error.rpc_code, "type": error.name, "message": error.message, "data": details_of(error)}
    status = next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), error.http_status)
    return status, encode(body)


# --- read -------------------------------------------------------------------------------------------------------------


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
