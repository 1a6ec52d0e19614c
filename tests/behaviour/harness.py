"""The eleven operations over direct, JSON-RPC and REST, in plain JSON: what the protocol's sentences are tested with.

A `Transport` calls one agent. `direct` calls the service in this process, JSON-RPC and REST write the specification's
JSON to a real socket; nothing of our client is used, so that a mistake made on both sides cannot hide. What comes back
is plain dicts, the same on all three, held against the data model (`shapes`). What is refused is raised as `Refused`.

    answer = await agent.send("hello")                      # {"task": {...}} or {"message": {...}}
    stream = await agent.stream("hello")
    async for event in stream: ...                          # {"task": ...}, {"statusUpdate": ...}, ...
    with refused("TaskNotFoundError") as refusal:
        await agent.get("no-such-task")
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any, ClassVar, Final, Self, TypeVar
from urllib.parse import quote, urlencode

import pytest

from tests.behaviour import raw_http
from tests.behaviour.shapes import TERMINAL, faults
from tieline import App, Caller
from tieline.card import AgentInterface
from tieline.engine.cursor import Cursor
from tieline.errors import A2AError
from tieline.types import encode
from tieline.wire import v1
from tieline.wire.methods import METHODS

__all__ = [
    "ERRORS",
    "Direct",
    "Json",
    "JsonRpc",
    "Refused",
    "Rest",
    "Stream",
    "Transport",
    "data",
    "eventually",
    "message",
    "refused",
    "state_of",
    "text_of",
]

Json = dict[str, Any]
T = TypeVar("T", bound="Transport")

ERRORS: Final[dict[str, tuple[int, int, str, str]]] = {
    "JSONParseError": (-32700, 400, "INVALID_ARGUMENT", "PARSE_ERROR"),
    "InvalidRequestError": (-32600, 400, "INVALID_ARGUMENT", "INVALID_REQUEST"),
    "MethodNotFoundError": (-32601, 404, "UNIMPLEMENTED", "METHOD_NOT_FOUND"),
    "InvalidParamsError": (-32602, 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
    "InternalError": (-32603, 500, "INTERNAL", "INTERNAL_ERROR"),
    "Overloaded": (-32603, 503, "RESOURCE_EXHAUSTED", "OVERLOADED"),  # our own: an InternalError that may pass
    "TaskNotFoundError": (-32001, 404, "NOT_FOUND", "TASK_NOT_FOUND"),
    "TaskNotCancelableError": (-32002, 400, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"),
    "PushNotificationNotSupportedError": (-32003, 400, "FAILED_PRECONDITION", "PUSH_NOTIFICATION_NOT_SUPPORTED"),
    "UnsupportedOperationError": (-32004, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
    "ContentTypeNotSupportedError": (-32005, 400, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED"),
    "InvalidAgentResponseError": (-32006, 500, "INTERNAL", "INVALID_AGENT_RESPONSE"),
    "ExtendedAgentCardNotConfiguredError": (-32007, 400, "FAILED_PRECONDITION", "EXTENDED_AGENT_CARD_NOT_CONFIGURED"),
    "ExtensionSupportRequiredError": (-32008, 400, "FAILED_PRECONDITION", "EXTENSION_SUPPORT_REQUIRED"),
    "VersionNotSupportedError": (-32009, 400, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED"),
}
"""JSON-RPC code, HTTP status, google.rpc status and ErrorInfo reason of each error (§3.3.2, §5.4, §9.5, §11.6)."""

_ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
_BAD_REQUEST = "type.googleapis.com/google.rpc.BadRequest"
_VERSION = {"A2A-Version": "1.0"}
_ids = count(1)


class Refused(Exception):
    """An error answer. Codes that a transport does not have are None."""

    def __init__(
        self,
        message: str,
        *,
        code: int | None = None,  # JSON-RPC
        status: int | None = None,  # HTTP
        rpc_status: str | None = None,  # google.rpc.Status.status
        details: Iterable[Json] = (),
        in_stream: bool = False,  # it came as an event of a stream that had been opened
        headers: Iterable[tuple[str, str]] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.status = status
        self.rpc_status = rpc_status
        self.details = list(details)
        self.in_stream = in_stream
        self.headers = dict(headers)

    def __str__(self) -> str:
        return f"{self.code} {self.status} {self.rpc_status} {self.reason} {self.message!r} {self.details}"

    def _detail(self, type_: str) -> Json:
        return next((detail for detail in self.details if detail.get("@type") == type_), {})

    @property
    def reason(self) -> str | None:
        """Of its ErrorInfo; None when it has none."""
        reason: str | None = self._detail(_ERROR_INFO).get("reason")
        return reason

    @property
    def metadata(self) -> dict[str, str]:
        """Of its ErrorInfo."""
        metadata: dict[str, str] = self._detail(_ERROR_INFO).get("metadata", {})
        return metadata

    @property
    def violations(self) -> dict[str, str]:
        """What its BadRequest says of each bad field."""
        return {v["field"]: v["description"] for v in self._detail(_BAD_REQUEST).get("fieldViolations", ())}

    def check(self, name: str) -> None:
        """Assert that this is the error `name`, in each form that its transport gives it."""
        code, status, rpc_status, reason = ERRORS[name]
        assert self.code in (code, None), f"not {name}: {self}"
        assert self.rpc_status in (rpc_status, None), f"not {name}: {self}"
        # Over JSON-RPC HTTP has no say, but that a server with too much to do tells proxies so.
        over_http = status if self.code is None or name == "Overloaded" else 200
        assert self.status in (over_http, None), f"not {name}: {self}"
        plain = code <= -32600 and name != "Overloaded"  # JSON-RPC's own errors need no ErrorInfo
        assert self.reason == reason or (plain and self.reason is None), f"not {name}: {self}"
        assert self.message, "an error has to say something to people"
        assert not self.in_stream, "a refusal has to come before the stream"


@contextmanager
def refused(name: str) -> Iterator[Refusal]:
    """Expect the error `name`; what it said is there behind the block."""
    refusal = Refusal()
    with pytest.raises(Refused) as caught:
        yield refusal
    refusal.error = caught.value
    refusal.error.check(name)


class Refusal:
    """What `refused` has caught."""

    error: Refused

    @property
    def message(self) -> str:
        return self.error.message

    @property
    def metadata(self) -> dict[str, str]:
        return self.error.metadata

    @property
    def violations(self) -> dict[str, str]:
        return self.error.violations


# --- the specification's JSON -----------------------------------------------------------------------------------------


def message(content: str | Json | list[Json] = "hello", **fields: Any) -> Json:
    """A message of the caller: of a text, a part or several parts; `fields` are added, or replace what is there."""
    parts = [{"text": content}] if isinstance(content, str) else content if isinstance(content, list) else [content]
    return {"messageId": f"message-{next(_ids)}", "role": "ROLE_USER", "parts": parts, **fields}


def text_of(value: Json) -> str:
    """The texts of a task's artifacts, of an artifact or of a message, joined."""
    if "artifactId" not in value and "messageId" not in value:
        return "".join(text_of(artifact) for artifact in value.get("artifacts", ()))
    return "".join(part.get("text", "") for part in value["parts"])


def state_of(event: Json) -> str | None:
    """The state that a task or an event tells, without its prefix: "WORKING"; None for what tells none."""
    value = event.get("task") or event.get("statusUpdate") or event
    status = value.get("status")
    return None if status is None else str(status["state"]).removeprefix("TASK_STATE_")


def data(event: Json) -> Json:
    """The one payload of a stream event or of an answer to a send."""
    ((_, value),) = event.items()
    assert isinstance(value, dict)
    return value


def _checked(value: Any, shape: str) -> Json:
    found = faults(value, shape)
    assert not found, f"{found} in {json.dumps(value)[:2000]}"
    assert isinstance(value, dict)
    return value


_RESULTS: Final = {
    "SendMessage": "SendMessageResponse",
    "GetTask": "Task",
    "ListTasks": "ListTasksResponse",
    "CancelTask": "Task",
    "GetExtendedAgentCard": "AgentCard",
}


class Stream(ABC):
    """An open stream of events. `ids` are the numbers of the events read so far, None for one without a number."""

    def __init__(self) -> None:
        self.ids: list[int | None] = []
        self.closed = False  # it came to its end by the server's will

    @abstractmethod
    async def _next(self) -> tuple[Json, int | None] | None:
        """The next event with its number; None at the end."""

    @abstractmethod
    def close(self) -> None:
        """Break off."""

    def __aiter__(self) -> AsyncIterator[Json]:
        return self

    async def __anext__(self) -> Json:
        got = await self._next()
        if got is None:
            self.closed = True
            raise StopAsyncIteration
        event, number = got
        self.ids.append(number)
        return _checked(event, "StreamResponse")

    async def next(self) -> Json:
        """The next event; an AssertionError when the stream ends instead."""
        try:
            return await anext(self)
        except StopAsyncIteration:
            raise AssertionError("the stream has ended, an event was expected") from None

    async def until(self, state: str) -> list[Json]:
        """The events up to the one that tells `state` ("WORKING")."""
        events = [await self.next()]
        while state_of(events[-1]) != state:
            events.append(await self.next())
        return events

    async def rest(self) -> list[Json]:
        """All events that are still to come, to the end of the stream."""
        return [event async for event in self]


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    """Ask again until it holds; the time limit of the test is that of this, too."""
    while not await holds():  # noqa: ASYNC110 - what is waited for is known by asking only
        await asyncio.sleep(0)


class Transport(ABC):
    """One agent, reached over one transport. All answers are checked against the data model."""

    name: ClassVar[str]

    def __init__(self, app: App, port: int, root: str, agent: str = "") -> None:
        self.app = app
        self.port = port
        self.root = root  # path below which the app is served
        self.agent = agent  # path of the agent below that, "" where the app has only one
        self._streams: list[Stream] = []

    def over(self, name: str) -> Transport:
        """The same agent over another transport."""
        return self._beside({kind.name: kind for kind in (Direct, JsonRpc, Rest)}[name], self.agent)

    def at(self, agent: str) -> Self:
        """Another agent of the same app: "/name"."""
        return self._beside(type(self), agent)

    def _beside(self, kind: type[T], agent: str) -> T:
        other = kind(self.app, self.port, self.root, agent)
        other._streams = self._streams
        return other

    def as_tenant(self, tenant: str) -> Tenant:
        """The same agent with each request in the name of a tenant."""
        return Tenant(self, tenant)

    @abstractmethod
    async def call(self, operation: str, params: Json, service: Mapping[str, str] = _VERSION) -> Json:
        """One operation that answers once. `service` are the service parameters of §3.2.6. Raises Refused."""

    @abstractmethod
    async def open(
        self, operation: str, params: Json, service: Mapping[str, str] = _VERSION, last_event_id: int | None = None
    ) -> Stream:
        """One operation that answers with a stream. Raises Refused."""

    # --- the operations of §3.1 ---------------------------------------------------------------------------------------

    async def send(
        self, content: str | Json | list[Json] = "hello", *, service: Json = _VERSION, **fields: Any
    ) -> Json:
        """SendMessage. `content` is a text, parts or a whole message, `fields` are those of the request, but for the
        message's own `taskId`, `contextId`, `referenceTaskIds`."""
        answer = await self.call("SendMessage", _send_request(content, fields), service)
        return _checked(answer, "SendMessageResponse")

    async def task(self, content: str | Json | list[Json] = "hello", **fields: Any) -> Json:
        """SendMessage to an agent that answers with a task: the task."""
        answer = await self.send(content, **fields)
        assert "task" in answer, f"the agent was to make a task, and answered {answer}"
        task: Json = answer["task"]
        return task

    async def stream(
        self, content: str | Json | list[Json] = "hello", *, service: Json = _VERSION, **fields: Any
    ) -> Stream:
        """SendStreamingMessage; arguments as of `send`."""
        return self._opened(await self.open("SendStreamingMessage", _send_request(content, fields), service))

    async def get(self, task_id: str, *, service: Json = _VERSION, **fields: Any) -> Json:
        """GetTask."""
        return _checked(await self.call("GetTask", {"id": task_id, **fields}, service), "Task")

    async def list(self, *, service: Json = _VERSION, **fields: Any) -> Json:
        """ListTasks."""
        return _checked(await self.call("ListTasks", fields, service), "ListTasksResponse")

    async def cancel(self, task_id: str, *, service: Json = _VERSION, **fields: Any) -> Json:
        """CancelTask."""
        return _checked(await self.call("CancelTask", {"id": task_id, **fields}, service), "Task")

    async def subscribe(
        self, task_id: str, *, last_event_id: int | None = None, service: Json = _VERSION, **fields: Any
    ) -> Stream:
        """SubscribeToTask; with `last_event_id` it goes on behind that event."""
        return self._opened(await self.open("SubscribeToTask", {"id": task_id, **fields}, service, last_event_id))

    async def create_push_config(self, task_id: str, **fields: Any) -> Json:
        """CreateTaskPushNotificationConfig."""
        params = {"taskId": task_id, "url": "https://hooks.example/a2a", **fields}
        return await self.call("CreateTaskPushNotificationConfig", params)

    async def get_push_config(self, task_id: str, config_id: str) -> Json:
        """GetTaskPushNotificationConfig."""
        return await self.call("GetTaskPushNotificationConfig", {"taskId": task_id, "id": config_id})

    async def list_push_configs(self, task_id: str) -> Json:
        """ListTaskPushNotificationConfigs."""
        return await self.call("ListTaskPushNotificationConfigs", {"taskId": task_id})

    async def delete_push_config(self, task_id: str, config_id: str) -> Json:
        """DeleteTaskPushNotificationConfig."""
        return await self.call("DeleteTaskPushNotificationConfig", {"taskId": task_id, "id": config_id})

    async def extended_card(self) -> Json:
        """GetExtendedAgentCard."""
        return _checked(await self.call("GetExtendedAgentCard", {}), "AgentCard")

    async def card(self) -> Json:
        """The public card (§8.2)."""
        response = await raw_http.request(self.port, "GET", f"{self.root}{self.agent}/.well-known/agent-card.json")
        assert response.status == 200
        return _checked(json.loads(await response.body()), "AgentCard")

    # --- waiting ------------------------------------------------------------------------------------------------------

    async def until(self, task_id: str, state: str, **fields: Any) -> Json:
        """Wait until a task is there and in `state` ("WORKING"), and read it then."""

        async def is_there() -> bool:
            try:
                await self.get(task_id, **fields)
            except Refused as refusal:
                refusal.check("TaskNotFoundError")
                return False
            return True

        await eventually(is_there)
        task = await self.get(task_id, **fields)
        if state_of(task) != state and task["status"]["state"] not in TERMINAL:
            try:
                stream = await self.subscribe(task_id, **fields)
            except Refused as refusal:  # it has ended between the two calls
                refusal.check("UnsupportedOperationError")
            else:
                await stream.until(state)
                stream.close()
            task = await self.get(task_id, **fields)
        assert state_of(task) == state
        return task

    def _opened(self, stream: Stream) -> Stream:
        self._streams.append(stream)
        return stream

    def close(self) -> None:
        """Break off every stream that is still open."""
        for stream in self._streams:
            stream.close()


class Tenant:
    """The operations of a transport in the name of a tenant (§4.4.6)."""

    def __init__(self, transport: Transport, tenant: str) -> None:
        self._transport = transport
        self._tenant = tenant

    async def task(self, content: str | Json | list[Json] = "hello", **fields: Any) -> Json:
        return await self._transport.task(content, tenant=self._tenant, **fields)

    async def send(self, content: str | Json | list[Json] = "hello", **fields: Any) -> Json:
        return await self._transport.send(content, tenant=self._tenant, **fields)

    async def stream(self, content: str | Json | list[Json] = "hello", **fields: Any) -> Stream:
        return await self._transport.stream(content, tenant=self._tenant, **fields)

    async def get(self, task_id: str, **fields: Any) -> Json:
        return await self._transport.get(task_id, tenant=self._tenant, **fields)

    async def list(self, **fields: Any) -> Json:
        return await self._transport.list(tenant=self._tenant, **fields)

    async def cancel(self, task_id: str, **fields: Any) -> Json:
        return await self._transport.cancel(task_id, tenant=self._tenant, **fields)

    async def subscribe(self, task_id: str, **fields: Any) -> Stream:
        return await self._transport.subscribe(task_id, tenant=self._tenant, **fields)


def _send_request(content: str | Json | list[Json], fields: Json) -> Json:
    own = {name: fields.pop(name) for name in ("taskId", "contextId", "referenceTaskIds") if name in fields}
    whole = isinstance(content, dict) and ("messageId" in content or "role" in content)
    return {"message": {**content, **own} if whole else message(content, **own), **fields}  # type: ignore[dict-item]


# --- direct -----------------------------------------------------------------------------------------------------------


class Direct(Transport):
    """The service in this process; requests and answers pass through JSON at the edge."""

    name = "direct"
    principal = ""  # who calls, as a server that authenticates would have found out

    def as_principal(self, principal: str) -> Self:
        """The same agent called by somebody else."""
        other = self._beside(type(self), self.agent)
        other.principal = principal
        return other

    async def call(self, operation: str, params: Json, service: Mapping[str, str] = _VERSION) -> Json:
        called = self.app.services[self.agent]
        try:
            request = v1.read_params(METHODS[operation], json.dumps(params).encode())
            caller = self._caller(service)
            if operation == "SendMessage":
                answer = v1.encode_answer(await called.send_message(request, caller))
            elif operation == "GetTask":
                answer = (await called.get_task(request, caller)).json
            elif operation == "ListTasks":
                answer = encode(await called.list_tasks(request, caller))
            elif operation == "CancelTask":
                answer = (await called.cancel_task(request, caller)).json
            else:
                absent = {
                    "CreateTaskPushNotificationConfig": called.create_push_notification_config,
                    "GetTaskPushNotificationConfig": called.get_push_notification_config,
                    "ListTaskPushNotificationConfigs": called.list_push_notification_configs,
                    "DeleteTaskPushNotificationConfig": called.delete_push_notification_config,
                    "GetExtendedAgentCard": called.get_extended_agent_card,
                }
                await absent[operation]()
                raise AssertionError(f"{operation} has to be refused: no agent here has what it needs")
        except A2AError as error:
            raise _refused_directly(error) from error
        result: Json = json.loads(answer)
        return result

    async def open(
        self, operation: str, params: Json, service: Mapping[str, str] = _VERSION, last_event_id: int | None = None
    ) -> Stream:
        called = self.app.services[self.agent]
        try:
            request = v1.read_params(METHODS[operation], json.dumps(params).encode())
            caller = self._caller(service)
            if operation == "SendStreamingMessage":
                return _CursorStream(await called.send_streaming_message(request, caller))
            return _CursorStream(await called.subscribe_to_task(request, caller, last_event_id=last_event_id))
        except A2AError as error:
            raise _refused_directly(error) from error

    async def card(self) -> Json:
        """The card that the agent gives to who mounts it."""
        interface = AgentInterface("https://agents.example/", "JSONRPC", "1.0")
        return _checked(json.loads(encode(self.app.agents[self.agent].card([interface]))), "AgentCard")

    def _caller(self, service: Mapping[str, str]) -> Caller:
        named = service.get("A2A-Extensions", "")
        extensions = dict.fromkeys(uri.strip() for uri in named.split(",") if uri.strip())
        return Caller(self.principal, extensions=tuple(extensions))


class _CursorStream(Stream):
    def __init__(self, cursor: Cursor) -> None:
        super().__init__()
        self._cursor = cursor
        self._ready: deque[tuple[Json, int | None]] = deque()

    async def _next(self) -> tuple[Json, int | None] | None:
        cursor = self._cursor
        while not self._ready:
            first, events = cursor.take()
            if events:
                self._ready += [(json.loads(e.json), first + i if first else None) for i, e in enumerate(events)]
            elif cursor.ended:
                failure = cursor.failure
                cursor.close()
                if failure is not None:
                    raise _refused_directly(failure, in_stream=True)
                return None
            else:
                await cursor.wait()
        return self._ready.popleft()

    def close(self) -> None:
        self._cursor.close()


def _refused_directly(error: A2AError, *, in_stream: bool = False) -> Refused:
    info: Json = {"@type": _ERROR_INFO, "reason": error.reason, "metadata": error.metadata}
    violations = [{"field": v.field, "description": v.description} for v in error.violations]
    details = [info]
    if violations:
        details.append({"@type": _BAD_REQUEST, "fieldViolations": violations})
    return Refused(
        error.message, code=error.rpc_code, rpc_status=error.grpc_status, details=details, in_stream=in_stream
    )


# --- HTTP -------------------------------------------------------------------------------------------------------------


class _EventStream(Stream):
    """The events of an SSE body; `read` makes an event of the data of a frame, or raises Refused."""

    def __init__(self, response: raw_http.Response, rpc_id: int | None) -> None:
        super().__init__()
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
            return _rpc_result(value, self._rpc_id, self._response, in_stream=True), number
        if "error" in value:
            raise _rest_refusal(value, None, self._response, in_stream=True)
        return value, number

    def close(self) -> None:
        self._response.close()


class JsonRpc(Transport):
    """JSON-RPC 2.0 over HTTP (§9)."""

    name = "jsonrpc"

    async def call(self, operation: str, params: Json, service: Mapping[str, str] = _VERSION) -> Json:
        rpc_id, response = await self._request(operation, params, service.items())
        body = await response.body()
        assert response.header("content-type") == "application/json"
        return _rpc_result(json.loads(body), rpc_id, response)

    async def open(
        self, operation: str, params: Json, service: Mapping[str, str] = _VERSION, last_event_id: int | None = None
    ) -> Stream:
        headers = [*service.items(), *_last_event(last_event_id)]
        rpc_id, response = await self._request(operation, params, headers)
        if response.header("content-type") == "text/event-stream":
            assert response.status == 200
            return _EventStream(response, rpc_id)
        _rpc_result(json.loads(await response.body()), rpc_id, response)
        raise AssertionError(f"{operation} has to answer with a stream or an error")

    async def _request(
        self, operation: str, params: Json, headers: Iterable[tuple[str, str]]
    ) -> tuple[int, raw_http.Response]:
        rpc_id = next(_ids)
        body = json.dumps({"jsonrpc": "2.0", "id": rpc_id, "method": operation, "params": params}).encode()
        sent = [("Content-Type", "application/json"), *headers]
        return rpc_id, await raw_http.request(self.port, "POST", f"{self.root}{self.agent}/", sent, body)


def _rpc_result(answer: Json, rpc_id: int, response: raw_http.Response, *, in_stream: bool = False) -> Json:
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

    async def call(self, operation: str, params: Json, service: Mapping[str, str] = _VERSION) -> Json:
        response = await self._request(operation, params, service.items())
        answer = json.loads(await response.body())
        if response.status != 200:
            raise _rest_refusal(answer, response.status, response)
        assert response.header("content-type") == "application/a2a+json"
        assert isinstance(answer, dict)
        return answer

    async def open(
        self, operation: str, params: Json, service: Mapping[str, str] = _VERSION, last_event_id: int | None = None
    ) -> Stream:
        response = await self._request(operation, params, [*service.items(), *_last_event(last_event_id)])
        if response.status != 200:
            raise _rest_refusal(json.loads(await response.body()), response.status, response)
        assert response.header("content-type") == "text/event-stream"
        return _EventStream(response, None)

    async def _request(self, operation: str, params: Json, headers: Iterable[tuple[str, str]]) -> raw_http.Response:
        verb, path = _PATHS[operation]
        left = dict(params)
        for name in ("id", "taskId"):
            if f"{{{name}}}" in path:
                path = path.replace(f"{{{name}}}", quote(str(left.pop(name)), safe=""))
        target = self.root + self.agent + path
        if verb == "POST" and operation != "SubscribeToTask":
            sent = [("Content-Type", "application/a2a+json"), *headers]
            return await raw_http.request(self.port, verb, target, sent, json.dumps(left).encode())
        if left:
            target += "?" + urlencode({name: _in_query(value) for name, value in left.items()})
        return await raw_http.request(self.port, verb, target, headers)


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
