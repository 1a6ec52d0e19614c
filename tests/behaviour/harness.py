"""The eleven operations over every transport, in plain JSON: what the protocol's sentences are tested with.

A `Transport` calls one agent. `direct` calls the service in this process, JSON-RPC and REST write the specification's
JSON to a real socket, gRPC the messages of the official package; those of older versions (`over_older`) write what they
have for it. Nothing of our client or of our translations is used: a mistake made on both sides could hide. What comes
back is plain dicts of 1.0, the same on all of them, held against the data model (`shapes`). What is refused is raised
as `Refused`.

    answer = await agent.send("hello")                      # {"task": {...}} or {"message": {...}}
    stream = await agent.stream("hello")
    async for event in stream: ...                          # {"task": ...}, {"statusUpdate": ...}, ...
    with refused("TaskNotFoundError") as refusal:
        await agent.get("no-such-task")
"""

from __future__ import annotations

import asyncio
import builtins
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from itertools import count
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeVar

from tests.behaviour import raw_http
from tests.behaviour.refusals import Refused, refused
from tests.behaviour.shapes import TERMINAL, faults
from tieline import App

__all__ = [
    "VERSION",
    "GrpcEnd",
    "Json",
    "Refused",
    "Stream",
    "Tenant",
    "Transport",
    "checked",
    "data",
    "eventually",
    "message",
    "refused",
    "state_of",
    "text_of",
]

Json = dict[str, Any]
T = TypeVar("T", bound="Transport")

VERSION: Final = {"A2A-Version": "1.0"}
"""The service parameters of a request that asks for nothing special."""

_ids = count(1)


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


def checked(value: Any, shape: str) -> Json:
    """An answer, once it has been held against the data model."""
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
        return checked(event, "StreamResponse")

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


class GrpcEnd(NamedTuple):
    """Where an app is served by gRPC."""

    address: str
    channel: Any  # one for all calls of a test


class Transport(ABC):
    """One agent, reached over one transport. All answers are checked against the data model."""

    name: ClassVar[str]
    numbered: ClassVar[bool] = True  # events have numbers, and streams go on behind one
    kinds: ClassVar[dict[str, type[Transport]]] = {}  # by name

    def __init_subclass__(cls) -> None:
        if "name" in vars(cls):
            Transport.kinds[cls.name] = cls

    def __init__(self, app: App, port: int, root: str, agent: str = "", by_grpc: GrpcEnd | None = None) -> None:
        self.app = app
        self.port = port  # of HTTP
        self.root = root  # path below which the app is served
        self.agent = agent  # path of the agent below that, "" where the app has only one
        self._by_grpc = by_grpc
        self._streams: list[Stream] = []
        self.credentials: Json = {}  # headers, or metadata, of each request

    def over(self, name: str) -> Transport:
        """The same agent over another transport."""
        return self._beside(self.kinds[name], self.agent)

    def at(self, agent: str) -> Self:
        """Another agent of the same app: "/name"."""
        return self._beside(type(self), agent)

    def _beside(self, kind: type[T], agent: str) -> T:
        other = kind(self.app, self.port, self.root, agent, self._by_grpc)
        other._streams = self._streams
        other.credentials = self.credentials
        return other

    def showing(self, credentials: Mapping[str, str]) -> Self:
        """The same agent, called with these credentials: headers by their names."""
        other = self._beside(type(self), self.agent)
        other.credentials = dict(credentials)
        return other

    @property
    def by_grpc(self) -> GrpcEnd:
        """Where the app is served by gRPC."""
        assert self._by_grpc is not None, "the test is not run over gRPC and has not asked for it"
        return self._by_grpc

    def same(self, one: Any, other: Any) -> bool:
        """Whether two JSON values are the same, 1 and 1.0 told apart where this transport does."""
        return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)

    def as_tenant(self, tenant: str) -> Tenant:
        """The same agent with each request in the name of a tenant."""
        return Tenant(self, tenant)

    @abstractmethod
    async def call(self, operation: str, params: Json, service: Mapping[str, str] = VERSION) -> Json:
        """One operation that answers once. `service` are the service parameters of §3.2.6. Raises Refused."""

    @abstractmethod
    async def open(
        self, operation: str, params: Json, service: Mapping[str, str] = VERSION, last_event_id: int | None = None
    ) -> Stream:
        """One operation that answers with a stream. Raises Refused."""

    # --- the operations of §3.1 ---------------------------------------------------------------------------------------

    async def send(self, content: str | Json | list[Json] = "hello", *, service: Json = VERSION, **fields: Any) -> Json:
        """SendMessage. `content` is a text, parts or a whole message, `fields` are those of the request, but for the
        message's own `taskId`, `contextId`, `referenceTaskIds`."""
        answer = await self.call("SendMessage", _send_request(content, fields), service)
        return checked(answer, "SendMessageResponse")

    async def task(self, content: str | Json | list[Json] = "hello", **fields: Any) -> Json:
        """SendMessage to an agent that answers with a task: the task."""
        answer = await self.send(content, **fields)
        assert "task" in answer, f"the agent was to make a task, and answered {answer}"
        task: Json = answer["task"]
        return task

    async def stream(
        self, content: str | Json | list[Json] = "hello", *, service: Json = VERSION, **fields: Any
    ) -> Stream:
        """SendStreamingMessage; arguments as of `send`."""
        return self._opened(await self.open("SendStreamingMessage", _send_request(content, fields), service))

    async def get(self, task_id: str, *, service: Json = VERSION, **fields: Any) -> Json:
        """GetTask."""
        return checked(await self.call("GetTask", {"id": task_id, **fields}, service), "Task")

    async def list(self, *, service: Json = VERSION, **fields: Any) -> Json:
        """ListTasks."""
        return checked(await self.call("ListTasks", fields, service), "ListTasksResponse")

    async def cancel(self, task_id: str, *, service: Json = VERSION, **fields: Any) -> Json:
        """CancelTask."""
        return checked(await self.call("CancelTask", {"id": task_id, **fields}, service), "Task")

    async def subscribe(
        self, task_id: str, *, last_event_id: int | None = None, service: Json = VERSION, **fields: Any
    ) -> Stream:
        """SubscribeToTask; with `last_event_id` it goes on behind that event."""
        return self._opened(await self.open("SubscribeToTask", {"id": task_id, **fields}, service, last_event_id))

    async def create_push_config(self, task_id: str, **fields: Any) -> Json:
        """CreateTaskPushNotificationConfig."""
        params = {"taskId": task_id, "url": "https://hooks.example/a2a", **fields}
        return checked(await self.call("CreateTaskPushNotificationConfig", params), "TaskPushNotificationConfig")

    async def get_push_config(self, task_id: str, config_id: str) -> Json:
        """GetTaskPushNotificationConfig."""
        answer = await self.call("GetTaskPushNotificationConfig", {"taskId": task_id, "id": config_id})
        return checked(answer, "TaskPushNotificationConfig")

    async def list_push_configs(self, task_id: str) -> builtins.list[Json]:
        """ListTaskPushNotificationConfigs: all of them."""
        answer = await self.call("ListTaskPushNotificationConfigs", {"taskId": task_id})
        checked(answer, "ListTaskPushNotificationConfigsResponse")
        assert not answer.get("nextPageToken")
        found: builtins.list[Json] = answer.get("configs", [])
        return found

    async def delete_push_config(self, task_id: str, config_id: str) -> None:
        """DeleteTaskPushNotificationConfig."""
        answer = await self.call("DeleteTaskPushNotificationConfig", {"taskId": task_id, "id": config_id})
        assert answer == {}, f"a deletion answers with nothing: {answer}"

    async def extended_card(self) -> Json:
        """GetExtendedAgentCard."""
        return checked(await self.call("GetExtendedAgentCard", {}), "AgentCard")

    async def card(self) -> Json:
        """The public card (§8.2), as readers of this version have it."""
        path = f"{self.root}{self.agent}/.well-known/agent-card.json"
        response = await raw_http.request(self.port, "GET", path, VERSION.items())
        assert response.status == 200
        return checked(json.loads(await response.body()), "AgentCard")

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
