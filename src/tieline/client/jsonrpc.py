"""The JSON-RPC binding (A2A 1.0 §9) over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import msgspec
from yarl import URL

from tieline.client.http import Answer, Http, check_authentication, not_an_answer, request_headers
from tieline.client.transport import Events, OneEvent, encoded
from tieline.errors import A2AError, InvalidPeerResponse
from tieline.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageRequest,
    StreamEvent,
    SubscribeToTaskRequest,
    Task,
    Value,
)
from tieline.wire import jsonrpc, v1

__all__ = ["JsonRpcTransport"]

_HEADERS = {"Content-Type": "application/json", "Accept": "application/json"}
_STREAM_HEADERS = {"Content-Type": "application/json", "Accept": "text/event-stream, application/json"}


class JsonRpcTransport:
    """One agent's JSON-RPC endpoint. See Transport."""

    name = "JSONRPC"

    def __init__(self, http: Http, url: URL) -> None:
        self._http = http
        self._url = url
        self._ids = count(1)

    async def send(self, request: SendMessageRequest, extensions: Sequence[str]) -> Task | Message:
        return v1.decode_answer(await self._call("SendMessage", request, extensions))

    async def get(self, request: GetTaskRequest, extensions: Sequence[str]) -> Task:
        return v1.decode_result(await self._call("GetTask", request, extensions), Task)

    async def list(self, request: ListTasksRequest, extensions: Sequence[str]) -> ListTasksResponse:
        return v1.decode_result(await self._call("ListTasks", request, extensions), ListTasksResponse)

    async def cancel(self, request: CancelTaskRequest, extensions: Sequence[str]) -> Task:
        return v1.decode_result(await self._call("CancelTask", request, extensions), Task)

    async def open(
        self,
        request: SendMessageRequest | SubscribeToTaskRequest,
        extensions: Sequence[str],
        last_event_id: str | None = None,
    ) -> Events:
        method = "SendStreamingMessage" if isinstance(request, SendMessageRequest) else "SubscribeToTask"
        body = jsonrpc.encode_call(next(self._ids), method, encoded(request))
        headers = request_headers(_STREAM_HEADERS, extensions, last_event_id)
        opened = await self._http.open("POST", self._url, headers, body, decode=_event, last_event_id=last_event_id)
        return OneEvent(v1.decode_event(_result(opened))) if isinstance(opened, Answer) else opened

    async def _call(self, method: str, request: Value, extensions: Sequence[str]) -> msgspec.Raw:
        body = jsonrpc.encode_call(next(self._ids), method, encoded(request))
        headers = request_headers(_HEADERS, extensions)
        return _result(await self._http.answer("POST", self._url, headers, body))


def _event(data: bytes) -> StreamEvent:
    return v1.decode_event(jsonrpc.read_result(data))


def _result(answer: Answer) -> msgspec.Raw:
    """The result in a response; raises the error in it, whatever its HTTP status, or what the status says."""
    if answer.status == 200:
        return jsonrpc.read_result(answer.body)
    check_authentication(answer)
    try:
        result = jsonrpc.read_result(answer.body)
    except InvalidPeerResponse:
        raise not_an_answer(answer) from None
    except A2AError as error:
        if type(error) is A2AError:  # a gateway's `error`: its code is none of JSON-RPC's or A2A's
            raise not_an_answer(answer) from None
        raise
    if not 200 <= answer.status < 300:
        raise not_an_answer(answer)
    return result
