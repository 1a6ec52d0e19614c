"""The JSON-RPC binding (A2A 1.0 §9) over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import msgspec
from yarl import URL

from tieline.client.http import Answer, Http, check_authentication, check_json, not_an_answer, request_headers
from tieline.client.transport import Events, OneEvent
from tieline.errors import A2AError, InvalidPeerResponse, UnsupportedOperation
from tieline.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    Value,
)
from tieline.wire import jsonrpc
from tieline.wire.dialect import Dialect
from tieline.wire.methods import METHODS

__all__ = ["JsonRpcTransport"]

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
            decode=lambda data: decode(_read(data, id_)),
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


class _Id(msgspec.Struct, frozen=True, gc=False):
    id: msgspec.Raw = msgspec.Raw(b"null")


_read_id = msgspec.json.Decoder(_Id).decode


def _read(body: bytes, id_: int) -> msgspec.Raw:
    """The result in a response to the call `id_`. Raises as jsonrpc.read_result does."""
    try:
        given = bytes(_read_id(body).id)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return jsonrpc.read_result(body)  # says what is wrong
    if given == b"%d" % id_:
        return jsonrpc.read_result(body)
    if given == b"null":
        jsonrpc.read_result(body)  # an error may come from an agent that could not read the id (JSON-RPC 2.0 §5)
    told = given[:_ID_SHOWN].decode("utf-8", "replace")
    raise InvalidPeerResponse(f"The answer is one to another call: its id is {told}, not {id_}.")


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
