"""The JSON-RPC binding (A2A 1.0 §9) over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import msgspec
from yarl import URL

from tieline.client.http import Answer, Http, check_authentication, check_json, not_an_answer, request_headers
from tieline.client.transport import Events, OneEvent, encoded, event_of
from tieline.errors import A2AError, InvalidPeerResponse
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
from tieline.wire import jsonrpc, v1

__all__ = ["JsonRpcTransport"]

_ID_SHOWN = 40  # bytes of an id that is not ours
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
        id_ = next(self._ids)
        body = jsonrpc.encode_call(id_, method, encoded(request))
        headers = request_headers(_STREAM_HEADERS, extensions, last_event_id)
        opened = await self._http.open(
            "POST",
            self._url,
            headers,
            body,
            decode=lambda data: event_of(_read(data, id_)),
            last_event_id=last_event_id,
        )
        return OneEvent(v1.decode_event(_result(opened, id_))) if isinstance(opened, Answer) else opened

    async def _call(self, method: str, request: Value, extensions: Sequence[str]) -> msgspec.Raw:
        id_ = next(self._ids)
        body = jsonrpc.encode_call(id_, method, encoded(request))
        headers = request_headers(_HEADERS, extensions)
        return _result(await self._http.answer("POST", self._url, headers, body), id_)


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
