"""The JSON-RPC binding (A2A 1.0 §9) over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import msgspec
from yarl import URL

from tieline.client.http import Answer, Http, check_authentication, check_json, not_an_answer, request_headers
from tieline.client.transport import Events, OneEvent
from tieline.errors import A2AError, InvalidPeerResponse, UnsupportedOperation
from tieline.types import (
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
    SendMessageRequest,
    StreamEvent,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    Value,
)
from tieline.wire import jsonrpc
from tieline.wire.details import error_from_details
from tieline.wire.dialect import Dialect
from tieline.wire.methods import METHODS

__all__ = ["JsonRpcTransport"]

_NULL = b"null"
_ID_SHOWN = 40  # bytes of an id that is not ours
_HEADERS = {"Content-Type": "application/json", "Accept": "application/json"}
_STREAM_HEADERS = {"Content-Type": "application/json", "Accept": "text/event-stream, application/json"}


class JsonRpcTransport:
    """One agent's JSON-RPC endpoint. See Transport."""

    name = "JSONRPC"

    def __init__(self, http: Http, url: URL, dialect: Dialect) -> None:
        self._http = http
        self._url = url
        self._dialect = dialect
        self._headers = {**_HEADERS, "A2A-Version": dialect.version}
        self._stream_headers = {**_STREAM_HEADERS, "A2A-Version": dialect.version}
        self._ids = count(1)

    async def send(self, request: SendMessageRequest, extensions: Sequence[str]) -> Task | Message:
        return self._dialect.decode_answer(await self._call("SendMessage", request, extensions))

    async def get(self, request: GetTaskRequest, extensions: Sequence[str]) -> Task:
        return self._dialect.decode_task(await self._call("GetTask", request, extensions))

    async def list(self, request: ListTasksRequest, extensions: Sequence[str]) -> ListTasksResponse:
        return self._dialect.decode_page(await self._call("ListTasks", request, extensions))

    async def cancel(self, request: CancelTaskRequest, extensions: Sequence[str]) -> Task:
        return self._dialect.decode_task(await self._call("CancelTask", request, extensions))

    async def set_webhook(
        self, webhook: TaskPushNotificationConfig, extensions: Sequence[str]
    ) -> TaskPushNotificationConfig:
        return self._dialect.decode_config(await self._call("CreateTaskPushNotificationConfig", webhook, extensions))

    async def get_webhook(
        self, request: GetTaskPushNotificationConfigRequest, extensions: Sequence[str]
    ) -> TaskPushNotificationConfig:
        return self._dialect.decode_config(await self._call("GetTaskPushNotificationConfig", request, extensions))

    async def list_webhooks(
        self, request: ListTaskPushNotificationConfigsRequest, extensions: Sequence[str]
    ) -> ListTaskPushNotificationConfigsResponse:
        return self._dialect.decode_configs(await self._call("ListTaskPushNotificationConfigs", request, extensions))

    async def delete_webhook(self, request: DeleteTaskPushNotificationConfigRequest, extensions: Sequence[str]) -> None:
        id_, body = self._encoded("DeleteTaskPushNotificationConfig", request)
        answer = await self._http.answer("POST", self._url, request_headers(self._headers, extensions), body)
        if answer.status != 200 or not _says_nothing(answer.body):
            _result(answer, id_)

    async def extended_card(self, request: GetExtendedAgentCardRequest, extensions: Sequence[str]) -> bytes:
        return bytes(await self._call("GetExtendedAgentCard", request, extensions))

    async def open(
        self,
        request: SendMessageRequest | SubscribeToTaskRequest,
        extensions: Sequence[str],
        last_event_id: str | None = None,
    ) -> Events:
        method = "SendStreamingMessage" if isinstance(request, SendMessageRequest) else "SubscribeToTask"
        id_, body = self._encoded(method, request)
        decode = self._dialect.event_decoder()
        headers = request_headers(self._stream_headers, extensions, last_event_id)
        opened = await self._http.open(
            "POST",
            self._url,
            headers,
            body,
            decode=lambda data: _read_event(data, id_, decode),
            last_event_id=last_event_id,
        )
        return OneEvent(decode(_result(opened, id_))) if isinstance(opened, Answer) else opened

    async def close(self) -> None:
        """See Transport.close: the connections are the session's."""

    async def _call(self, method: str, request: Value, extensions: Sequence[str]) -> msgspec.Raw:
        id_, body = self._encoded(method, request)
        headers = request_headers(self._headers, extensions)
        return _result(await self._http.answer("POST", self._url, headers, body), id_)

    def _encoded(self, method: str, request: Value) -> tuple[int, bytes]:
        """A call and its id. Raises UnsupportedOperation when the dialect has no such method."""
        name = self._dialect.names.get(method)
        if name is None:
            raise UnsupportedOperation(f"A2A {self._dialect.version} has no {method}.")
        id_ = next(self._ids)
        return id_, jsonrpc.encode_call(id_, name, self._dialect.encode_params(METHODS[method], request))


def _says_nothing(body: bytes) -> bool:
    """Whether a response has neither result nor error, as some servers leave off a result that is null."""
    try:
        return set(_read_members(body)) <= {"jsonrpc", "id"}
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False


_read_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class _Id(msgspec.Struct, frozen=True, gc=False):
    id: msgspec.Raw = msgspec.Raw(_NULL)


_read_id = msgspec.json.Decoder(_Id).decode


def _read(body: bytes, id_: int) -> msgspec.Raw:
    """The result in a response to the call `id_`. Raises as jsonrpc.read_result does.

    Over HTTP an answer belongs to its request, so an id that is missing, null, or ours as a string is taken.
    """
    try:
        given = bytes(_read_id(body).id)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return _read_result(body)  # says what is wrong
    ours = b"%d" % id_
    if given in (ours, _NULL) or given == b'"' + ours + b'"':
        return _read_result(body)
    told = given[:_ID_SHOWN].decode("utf-8", "replace")
    raise InvalidPeerResponse(f"The answer is one to another call: its id is {told}, not {id_}.")


def _read_event(body: bytes, id_: int, decode: Callable[[msgspec.Raw], StreamEvent | None]) -> StreamEvent | None:
    """The event in a response within a stream; a result that is null is none."""
    result = _read(body, id_)
    try:
        return decode(result)
    except InvalidPeerResponse:
        if bytes(result) == _NULL:
            return None
        raise


def _read_result(body: bytes) -> msgspec.Raw:
    try:
        return jsonrpc.read_result(body)
    except InvalidPeerResponse:
        error = _odd_error(body)
        if error is None:
            raise
    raise error


class _Odd(msgspec.Struct, frozen=True, gc=False):
    error: Any = None


_read_odd = msgspec.json.Decoder(_Odd).decode


def _odd_error(body: bytes) -> A2AError | None:
    """The error in a response that has not quite the form of one: a mere text, a code that is no integer."""
    try:
        error = _read_odd(body).error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    if isinstance(error, str):
        error = {"message": error}
    if not isinstance(error, dict):
        return None
    code, message = error.get("code"), error.get("message")
    try:
        number = int(code) if isinstance(code, (int, float)) or (isinstance(code, str) and len(code) < 10) else None
    except ValueError:
        number = None
    if message is None:
        message = "" if number is None else f"The agent gave the error {number} and said nothing."
    said = message if isinstance(message, str) else msgspec.json.encode(message).decode("utf-8", "replace")
    return error_from_details(error.get("data"), rpc_code=number, message=said) if said else None


def _result(answer: Answer, id_: int) -> msgspec.Raw:
    """The result in a response; raises the error in it, whatever its HTTP status, or what the status says."""
    if answer.status == 200:
        check_json(answer)
        return _read(answer.body, id_)
    check_authentication(answer)
    try:
        result = _read(answer.body, id_)
    except InvalidPeerResponse:
        raise not_an_answer(answer) from None
    except A2AError as error:
        if type(error) is A2AError:  # a gateway's `error`: its code is none of JSON-RPC's or A2A's
            raise not_an_answer(answer) from None
        raise
    if not 200 <= answer.status < 300:
        raise not_an_answer(answer)
    return result
