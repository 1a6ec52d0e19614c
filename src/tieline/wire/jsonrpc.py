"""JSON-RPC 2.0 envelopes (A2A 1.0 §9). Pure: bytes to values and back, for servers and clients.

The id of a request is kept as the bytes it came in, so that it is echoed exactly: 1, 1.0 and "1" stay what they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tieline.errors import A2AError, InvalidParams, InvalidPeerResponse, InvalidRequest, ParseError
from tieline.types import encode
from tieline.wire.body import check_depth
from tieline.wire.details import details_of, error_from_details

__all__ = [
    "Call",
    "Malformed",
    "OLD_STREAM_PATH",
    "encode_call",
    "encode_error",
    "encode_result",
    "read_call",
    "read_result",
]

OLD_STREAM_PATH = "/subscribe"
"""Where some servers of A2A 0.1 have tasks/sendSubscribe, beside the agent's own URL."""

NULL = b"null"
_NO_CODES: Mapping[type[A2AError], int] = {}
EMPTY = msgspec.Raw(b"{}")


class Call(msgspec.Struct, frozen=True, gc=False):
    """A request: its id and params as they stand in the body."""

    id: bytes
    method: str
    params: msgspec.Raw


class Malformed(Exception):
    """A request that is not one: the error to answer, and the id to answer it to (`null` where there was none)."""

    def __init__(self, error: A2AError, id_: bytes = NULL) -> None:
        super().__init__(str(error))
        self.error = error
        self.id = id_


class _Envelope(msgspec.Struct, frozen=True, gc=False):
    jsonrpc: str
    method: str
    id: msgspec.Raw = msgspec.Raw(NULL)
    params: msgspec.Raw = EMPTY


_read = msgspec.json.Decoder(_Envelope).decode
_OPENS_ID = frozenset(b'"-0123456789n')


def read_call(body: bytes) -> Call:
    """The request in a body.

    Raises:
        Malformed: with ParseError (-32700) when it is not JSON, InvalidRequest (-32600) when it is no request,
            InvalidParams (-32602) when its params are no object.
    """
    try:
        check_depth(body)
        envelope = _read(body)
    except InvalidRequest as error:
        raise Malformed(error) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise _malformed(body, error) from None
    id_ = bytes(envelope.id)
    if not (id_.isascii() or _is_utf8(id_)):
        raise Malformed(ParseError("The body is not valid JSON: id is not UTF-8"))
    if id_[0] not in _OPENS_ID:
        raise Malformed(InvalidRequest("id: must be a string, a number or null"))
    if envelope.jsonrpc != "2.0":
        raise Malformed(InvalidRequest(f'jsonrpc: must be "2.0", got {envelope.jsonrpc!r}'), id_)
    params = envelope.params
    if params is not EMPTY:
        opens = bytes(memoryview(params)[:1])
        if opens != b"{":
            if bytes(params) != NULL:
                raise Malformed(InvalidParams.at("params", "must be an object"), id_)
            params = EMPTY
    return Call(id_, envelope.method, params)


class _Loose(msgspec.Struct, frozen=True, gc=False):
    jsonrpc: msgspec.Raw = EMPTY
    method: msgspec.Raw = EMPTY
    id: msgspec.Raw = msgspec.Raw(NULL)


_read_loose = msgspec.json.Decoder(_Loose).decode


def _malformed(body: bytes, error: Exception) -> Malformed:
    """What is wrong with a body that is no envelope."""
    if not isinstance(error, msgspec.ValidationError):
        return Malformed(ParseError(f"The body is not valid JSON: {error}"))
    try:
        loose = _read_loose(body)
    except msgspec.DecodeError as worse:
        if not isinstance(worse, msgspec.ValidationError):
            return Malformed(ParseError(f"The body is not valid JSON: {worse}"))
        if body.lstrip().startswith(b"["):
            return Malformed(InvalidRequest("Batches are not part of A2A: send one request object."))
        return Malformed(InvalidRequest("The body must be a JSON-RPC request object."))
    id_ = bytes(loose.id)
    echo = id_ if id_[0] in _OPENS_ID and _is_utf8(id_) else NULL
    for name in ("jsonrpc", "method"):
        given = bytes(getattr(loose, name))
        if not given.startswith(b'"'):
            fault = "is missing" if given in (NULL, b"{}") else "must be a string"
            return Malformed(InvalidRequest(f"{name}: {fault}"), echo)
    return Malformed(InvalidRequest(str(error)), echo)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def encode_result(id_: bytes, result: bytes) -> bytes:
    """A response around a result that is JSON already."""
    return b'{"jsonrpc":"2.0","id":' + id_ + b',"result":' + result + b"}"


def encode_error(
    id_: bytes, error: A2AError, *, codes: Mapping[type[A2AError], int] = _NO_CODES, data_in_object: bool = False
) -> bytes:
    """A response around an error, with google.rpc details as `data` (§9.5).

    `codes`: those that are not 1.0's. `data_in_object`: the details are the member `details` of an object.
    """
    details = details_of(error)
    code = codes.get(type(error), error.rpc_code)
    body = {"code": code, "message": error.message, "data": {"details": details} if data_in_object else details}
    return b'{"jsonrpc":"2.0","id":' + id_ + b',"error":' + encode(body) + b"}"


def encode_call(id_: int | str, method: str, params: bytes) -> bytes:
    """A request around params that are JSON already."""
    return b'{"jsonrpc":"2.0","id":' + encode(id_) + b',"method":' + encode(method) + b',"params":' + params + b"}"


class _Error(msgspec.Struct, frozen=True, gc=False):
    code: int = 0
    message: str = ""
    data: Any = None


class _Response(msgspec.Struct, frozen=True, gc=False):
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: _Error | None = None


_read_response = msgspec.json.Decoder(_Response).decode


def read_result(body: bytes) -> msgspec.Raw:
    """The result in a response.

    Raises:
        A2AError: the error in it, as its class.
        InvalidPeerResponse: it is no JSON-RPC response.
    """
    try:
        response = _read_response(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidPeerResponse(f"The answer is not a JSON-RPC response: {error}") from None
    if response.error is not None:
        raise error_from_details(response.error.data, rpc_code=response.error.code, message=response.error.message)
    if isinstance(response.result, msgspec.Raw):
        return response.result
    raise InvalidPeerResponse("The answer has neither result nor error.")
