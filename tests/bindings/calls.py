"""The same operation over direct, JSON-RPC or REST: the same result, or the same `Refused`. No client of ours in it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from urllib.parse import quote, urlencode

from tests.server.raw import A2A_JSON, JSON, LIMIT_S, Pairs, Wire, serve
from tieline.engine.service import Service
from tieline.engine.turn import Caller as Principal
from tieline.errors import A2AError
from tieline.server.asgi import App
from tieline.types import decode, encode
from tieline.wire.methods import METHODS

TRANSPORTS: Final = ("direct", "jsonrpc", "rest")
Params = Mapping[str, Any]

REST = {  # A2A 1.0 §5.3
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


@dataclass
class Refused(Exception):
    """An error, the same for every transport: two are equal when a caller could not tell them apart."""

    reason: str  # as in ErrorInfo; for the errors of JSON-RPC itself their name in the same form
    message: str
    fields: tuple[tuple[str, str], ...] = ()  # path and description
    metadata: Mapping[str, str] = field(default_factory=dict)
    raw: Any = field(default=None, compare=False, repr=False)  # the error as it stood on the wire
    status: int = field(default=0, compare=False)


class Caller(Protocol):
    """One way to an agent. `call` gives the result as JSON, `stream` its events; both raise Refused."""

    async def call(self, method: str, params: Params) -> Any: ...
    def stream(self, method: str, params: Params) -> AsyncGenerator[Any, None]: ...


class Direct:
    """The service, without HTTP."""

    def __init__(self, app: App, *, extensions: tuple[str, ...] = ()) -> None:
        self._service: Service = app.services[""]
        self._principal = Principal(extensions=extensions)
        self._app = app

    async def call(self, method: str, params: Params) -> Any:
        service, caller = self._service, self._principal
        await self._app.start()
        try:
            request = decode(encode(params), METHODS[method].request)
            if method == "SendMessage":
                answer = await service.send_message(request, caller)
                name = type(answer.value).__name__.lower()
                return {name: json.loads(answer.json)}
            if method == "ListTasks":
                return json.loads(encode(await service.list_tasks(request, caller)))
            if method in ("GetTask", "CancelTask"):
                operation = service.get_task if method == "GetTask" else service.cancel_task
                return json.loads((await operation(request, caller)).json)
            absent: Callable[[], Awaitable[None]] = (
                service.get_extended_agent_card
                if method == "GetExtendedAgentCard"
                else service.create_push_notification_config
            )
            return await absent()
        except A2AError as error:
            raise _of_class(error) from None

    async def stream(self, method: str, params: Params) -> AsyncGenerator[Any, None]:
        await self._app.start()
        try:
            request = decode(encode(params), METHODS[method].request)
            operation = (
                self._service.send_streaming_message
                if method == "SendStreamingMessage"
                else self._service.subscribe_to_task
            )
            cursor = await operation(request, self._principal)
        except A2AError as error:
            raise _of_class(error) from None
        try:
            while True:
                _, events = cursor.take()
                for event in events:
                    yield json.loads(event.json)
                if cursor.ended:
                    return
                await cursor.wait(LIMIT_S)
        finally:
            cursor.close()


def _of_class(error: A2AError) -> Refused:
    fields = tuple((violation.field, violation.description) for violation in error.violations)
    return Refused(error.reason, error.message, fields, error.metadata, error)


_PLAIN = {-32700: "PARSE_ERROR", -32600: "INVALID_REQUEST", -32601: "METHOD_NOT_FOUND", -32602: "INVALID_PARAMS"}


def _of_details(message: str, details: Any, reason: str, raw: Any, status: int) -> Refused:
    fields: tuple[tuple[str, str], ...] = ()
    metadata: Mapping[str, str] = {}
    for detail in details or []:
        if detail["@type"].endswith("google.rpc.ErrorInfo"):
            reason, metadata = detail["reason"], detail.get("metadata", {})
        elif detail["@type"].endswith("google.rpc.BadRequest"):
            fields = tuple((item["field"], item["description"]) for item in detail["fieldViolations"])
    return Refused(reason, message, fields, metadata, raw, status)


class JsonRpc:
    """JSON-RPC over a socket."""

    def __init__(self, port: int, *, headers: Pairs | None = None) -> None:
        self.port = port
        self.headers = JSON if headers is None else headers

    async def call(self, method: str, params: Params) -> Any:
        async with Wire(self.port) as wire:
            reply = await wire.request("POST", "/", self._body(method, params), self.headers)
        return self._result(reply.json(), reply.status)

    async def stream(self, method: str, params: Params) -> AsyncGenerator[Any, None]:
        async with Wire(self.port) as wire:
            await wire.write("POST", "/", self._body(method, params), self.headers)
            status, headers = await wire.head()
            if headers["content-type"] != "text/event-stream":
                self._result(json.loads(await wire.body()), status)
                raise AssertionError("a stream was asked for and a single result came")
            async for frame in wire.frames():
                if frame.comment is None:
                    yield self._result(frame.data, status)

    @staticmethod
    def _body(method: str, params: Params) -> bytes:
        return json.dumps({"jsonrpc": "2.0", "id": "raw-1", "method": method, "params": params}).encode()

    @staticmethod
    def _result(answer: Any, status: int) -> Any:
        assert answer["jsonrpc"] == "2.0"
        assert answer["id"] == "raw-1"
        if "error" not in answer:
            return answer["result"]
        error = answer["error"]
        reason = _PLAIN.get(error["code"], "INTERNAL")
        raise _of_details(error["message"], error.get("data"), reason, error, status)


class Rest:
    """HTTP+JSON over a socket."""

    def __init__(self, port: int, *, headers: Pairs | None = None) -> None:
        self.port = port
        self.headers = A2A_JSON if headers is None else headers

    async def call(self, method: str, params: Params) -> Any:
        async with Wire(self.port) as wire:
            reply = await wire.request(*self._request(method, params), self.headers)
        return self._result(reply.json(), reply.status)

    async def stream(self, method: str, params: Params) -> AsyncGenerator[Any, None]:
        async with Wire(self.port) as wire:
            await wire.write(*self._request(method, params), self.headers)
            status, headers = await wire.head()
            if headers["content-type"] != "text/event-stream":
                self._result(json.loads(await wire.body()), status)
                raise AssertionError("a stream was asked for and a single result came")
            async for frame in wire.frames():
                if frame.comment is None:
                    yield self._result(frame.data, status)

    @staticmethod
    def _request(method: str, params: Params) -> tuple[str, str, bytes | None]:
        verb, path = REST[method]
        left = dict(params)
        for name in ("id", "taskId"):
            if "{" + name + "}" in path:
                path = path.replace("{" + name + "}", quote(str(left.pop(name)), safe=""))
        if verb == "POST":
            return verb, path, json.dumps(left).encode()
        query = urlencode({key: str(value).lower() if value in (True, False) else value for key, value in left.items()})
        return verb, f"{path}?{query}" if query else path, None

    @staticmethod
    def _result(answer: Any, status: int) -> Any:
        if status == 200 and "error" not in answer:
            return answer
        error = answer["error"]
        reason = {400: "INVALID_PARAMS", 404: "METHOD_NOT_FOUND", 405: "METHOD_NOT_FOUND"}.get(status, "INTERNAL")
        raise _of_details(error["message"], error.get("details"), reason, error, status)


@asynccontextmanager
async def caller(app: App, transport: str, *, extensions: tuple[str, ...] = ()) -> AsyncGenerator[Caller, None]:
    """A way to the one agent of `app`, which is closed at the end."""
    if transport == "direct":
        try:
            yield Direct(app, extensions=extensions)
        finally:
            await app.close()
        return
    named = [("A2A-Extensions", ",".join(extensions))] if extensions else []
    async with serve(app) as port:
        yield JsonRpc(port, headers=JSON + named) if transport == "jsonrpc" else Rest(port, headers=A2A_JSON + named)


@asynccontextmanager
async def callers(app: App) -> AsyncGenerator[dict[str, Caller], None]:
    """All ways to the one agent of `app`, by transport."""
    async with serve(app) as port:
        yield {"direct": Direct(app), "jsonrpc": JsonRpc(port), "rest": Rest(port)}


async def refused(pending: Awaitable[Any]) -> Refused:
    """The refusal that a call ends in."""
    try:
        result = await pending
    except Refused as refusal:
        return refusal
    raise AssertionError(f"nothing was refused, the result is {result!r}")


async def all_of(events: AsyncGenerator[Any, None]) -> list[Any]:
    """The events of a stream that ends."""
    return [event async for event in events]


def message(text: str = "hello", **more: Any) -> dict[str, Any]:
    """A message of the caller's."""
    return {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": text}], **more}
