"""JSON-RPC and REST over a real socket, in the plain JSON of the specification."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any, Final
from urllib.parse import quote, urlencode

from tests.behaviour import raw_http
from tests.behaviour.harness import VERSION, Json, Stream, Transport
from tests.behaviour.refusals import Refused

__all__ = ["EventStream", "JsonRpc", "Rest", "rpc_result"]

_ids = count(1)


class EventStream(Stream):
    """The events of an SSE body: of JSON-RPC with `rpc_id`, else of REST.

    `error_in_10` makes of a JSON-RPC response that of 1.0.
    """

    def __init__(
        self, response: raw_http.Response, rpc_id: int | None, error_in_10: Callable[[Json], Json] = lambda given: given
    ) -> None:
        super().__init__()
        self._error_in_10 = error_in_10
        self._response = response
        self._frames = raw_http.frames(response)
        self._rpc_id = rpc_id

    async def _next(self) -> tuple[Json, int | None] | None:
        frame = await anext(self._frames, None)
        if frame is None:
            self._response.close()
            return None
        value = json.loads(frame.data)
        number = int(frame.id) if frame.id is not None else None
        if self._rpc_id is not None:
            return rpc_result(self._error_in_10(value), self._rpc_id, self._response, in_stream=True), number
        if (refusal := self._refusal_in(value)) is not None:
            raise refusal
        return value, number

    def _refusal_in(self, value: Json) -> Refused | None:
        """The error of REST that the data of a frame is."""
        return _rest_refusal(value, None, self._response, in_stream=True) if "error" in value else None

    def close(self) -> None:
        self._response.close()


class JsonRpc(Transport):
    """JSON-RPC 2.0 over HTTP (§9)."""

    name = "jsonrpc"

    async def call(self, operation: str, params: Json, service: Mapping[str, str] = VERSION) -> Json:
        rpc_id, response = await self._request(operation, params, service.items())
        body = await response.body()
        assert response.header("content-type") == "application/json"
        return rpc_result(json.loads(body), rpc_id, response)

    async def open(
        self, operation: str, params: Json, service: Mapping[str, str] = VERSION, last_event_id: int | None = None
    ) -> Stream:
        headers = [*service.items(), *_last_event(last_event_id)]
        rpc_id, response = await self._request(operation, params, headers)
        if response.header("content-type") == "text/event-stream":
            assert response.status == 200
            return EventStream(response, rpc_id)
        rpc_result(json.loads(await response.body()), rpc_id, response)
        raise AssertionError(f"{operation} has to answer with a stream or an error")

    async def _request(
        self, operation: str, params: Json, headers: Iterable[tuple[str, str]]
    ) -> tuple[int, raw_http.Response]:
        rpc_id = next(_ids)
        body = json.dumps({"jsonrpc": "2.0", "id": rpc_id, "method": operation, "params": params}).encode()
        sent = [("Content-Type", "application/json"), *self.credentials.items(), *headers]
        return rpc_id, await raw_http.request(self.port, "POST", f"{self.root}{self.agent}/", sent, body)


def rpc_result(answer: Json, rpc_id: int, response: raw_http.Response, *, in_stream: bool = False) -> Json:
    """The result in a JSON-RPC response. Raises Refused for the error in it."""
    assert answer["jsonrpc"] == "2.0"
    assert answer["id"] == rpc_id
    assert len(answer) == 3, f"a response has jsonrpc, id and one of result and error: {sorted(answer)}"
    if "error" not in answer:
        result: Json = answer["result"]
        return result
    error = answer["error"]
    raise Refused(
        error["message"],
        code=error["code"],
        status=response.status,
        details=error.get("data", ()),
        in_stream=in_stream,
        headers=response.headers,
    )


_PATHS: Final = {
    "SendMessage": ("POST", "/message:send"),
    "SendStreamingMessage": ("POST", "/message:stream"),
    "GetTask": ("GET", "/tasks/{id}"),
    "ListTasks": ("GET", "/tasks"),
    "CancelTask": ("POST", "/tasks/{id}:cancel"),
    "SubscribeToTask": ("POST", "/tasks/{id}:subscribe"),
    "CreateTaskPushNotificationConfig": ("POST", "/tasks/{taskId}/pushNotificationConfigs"),
    "GetTaskPushNotificationConfig": ("GET", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "ListTaskPushNotificationConfigs": ("GET", "/tasks/{taskId}/pushNotificationConfigs"),
    "DeleteTaskPushNotificationConfig": ("DELETE", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "GetExtendedAgentCard": ("GET", "/extendedAgentCard"),
}
"""Verb and path of each operation (§5.3)."""


class Rest(Transport):
    """HTTP+JSON (§11)."""

    name = "rest"

    async def call(self, operation: str, params: Json, service: Mapping[str, str] = VERSION) -> Json:
        response = await self._request(operation, params, service.items())
        answer = json.loads(await response.body())
        if response.status != 200:
            raise _rest_refusal(answer, response.status, response)
        assert response.header("content-type") == "application/a2a+json"
        assert isinstance(answer, dict)
        return answer

    async def open(
        self, operation: str, params: Json, service: Mapping[str, str] = VERSION, last_event_id: int | None = None
    ) -> Stream:
        response = await self._request(operation, params, [*service.items(), *_last_event(last_event_id)])
        if response.status != 200:
            raise _rest_refusal(json.loads(await response.body()), response.status, response)
        assert response.header("content-type") == "text/event-stream"
        return EventStream(response, None)

    async def _request(self, operation: str, params: Json, headers: Iterable[tuple[str, str]]) -> raw_http.Response:
        verb, path = _PATHS[operation]
        left = dict(params)
        for name in ("id", "taskId"):
            if f"{{{name}}}" in path:
                path = path.replace(f"{{{name}}}", quote(str(left.pop(name)), safe=""))
        target = self.root + self.agent + path
        if verb == "POST" and operation != "SubscribeToTask":
            sent = [("Content-Type", "application/a2a+json"), *self.credentials.items(), *headers]
            return await raw_http.request(self.port, verb, target, sent, json.dumps(left).encode())
        if left:
            target += "?" + urlencode({name: _in_query(value) for name, value in left.items()})
        return await raw_http.request(self.port, verb, target, [*self.credentials.items(), *headers])


def _in_query(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _rest_refusal(answer: Json, status: int | None, response: raw_http.Response, *, in_stream: bool = False) -> Refused:
    error = answer["error"]
    assert status is None or error["code"] == status
    return Refused(
        error["message"],
        status=status,
        rpc_status=error["status"],
        details=error.get("details", ()),
        in_stream=in_stream,
        headers=response.headers,
    )


def _last_event(last_event_id: int | None) -> list[tuple[str, str]]:
    return [] if last_event_id is None else [("Last-Event-ID", str(last_event_id))]
