"""An HTTP server that answers what a test has written down, on a real socket: whole answers, and broken ones.

    script = {"SendStreamingMessage": [Stream(task(), artifact_update("a", "one "), end="cut")],
              "SubscribeToTask": [Stream(task(WORKING, artifact("a", "one two")), status(COMPLETED))]}
    async with scripted("JSONRPC", script) as agent, connect(agent.card) as peer: ...

Each operation takes its answers in order; a call that is not written down fails the test.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from tieline import AgentCard, AgentSkill, Message, Task
from tieline.card import AgentCapabilities, AgentInterface
from tieline.errors import A2AError
from tieline.types import (
    ListTasksResponse,
    SendMessageResponse,
    StreamEvent,
    StreamResponse,
    TaskArtifactUpdateEvent,
    encode,
)
from tieline.wire import jsonrpc, rest

__all__ = [
    "LIMIT_S",
    "Answer",
    "Fault",
    "Http",
    "Raw",
    "Request",
    "Script",
    "Scripted",
    "Step",
    "Stream",
    "any_request",
    "card_of",
    "listening",
    "read_request",
    "scripted",
]

LIMIT_S = 20.0
"""No test waits longer than this for anything."""


@dataclass(frozen=True)
class Request:
    """A request as it came in. Header names are in lower case."""

    verb: str
    target: str  # path and query
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def params(self) -> Any:
        """The params of a JSON-RPC call, or the body of a REST call."""
        value = self.json
        return value["params"] if "jsonrpc" in value else value


End = Literal["clean", "cut", "reset", "hang"]


@dataclass(frozen=True)
class Raw:
    """Bytes as they are; then the connection is closed ("cut"), reset, or left open."""

    data: bytes
    end: End = "cut"


@dataclass(frozen=True)
class Http:
    """A whole response of any kind."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def data(self) -> bytes:
        lines = [f"HTTP/1.1 {self.status} Scripted", f"Content-Length: {len(self.body)}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + self.body


@dataclass(frozen=True)
class Answer:
    """The result of a call, in the form of its binding."""

    value: Task | Message | ListTasksResponse
    content_type: str | None = None  # None is the binding's own


@dataclass(frozen=True)
class Fault:
    """The agent's error to a call, in the form of its binding."""

    error: A2AError


class Stream:
    """An event stream. `first` numbers the events from there on; bytes among them go out as they are."""

    def __init__(
        self,
        *events: StreamEvent | A2AError | bytes,
        end: End = "clean",
        first: int | None = None,
        line_end: bytes = b"\n",
        cut_at: int | None = None,
        pieces: int | None = None,
        then: Stream | None = None,
    ) -> None:
        self.events = events
        self.end = end
        self.first = first
        self.line_end = line_end
        self.cut_at = cut_at  # the response's bytes end here, head included; None is all of them
        self.pieces = pieces  # bytes a write; None is all in one
        self.then = then  # its events follow, written as it says


Step = Raw | Http | Answer | Fault | Stream
Script = Mapping[str, Sequence[Step]]


class Scripted:
    """A server at work. `calls` are the operations in the order in which they came, `requests` what they came as."""

    def __init__(self, binding: str, script: Script, *, streaming: bool = True) -> None:
        self.binding = binding
        self.calls: list[str] = []
        self.requests: list[Request] = []
        self.url = ""
        self.connections = 0
        self._left = {operation: list(steps) for operation, steps in script.items()}
        self._streaming = streaming
        self.surprises: list[str] = []
        self.patient = False  # calls that are not written down are no fault of the client's

    @property
    def card(self) -> AgentCard:
        return card_of((self.url, self.binding), streaming=self._streaming)

    def script(self, operation: str, *steps: Step) -> None:
        """Write down more answers, such as those that name the server's own address."""
        self._left.setdefault(operation, []).extend(steps)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while (request := await read_request(reader)) is not None:
                operation = _operation(self.binding, request)
                self.calls.append(operation)
                self.requests.append(request)
                steps = self._left.get(operation)
                if not steps:
                    self.surprises.append(f"{operation} {request.target}")
                    return
                if not await self._answer(steps.pop(0), request, operation, reader, writer):
                    return
        finally:
            writer.close()

    async def _answer(
        self, step: Step, request: Request, operation: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Write the answer; whether the connection can be used again."""
        end: End = "clean"
        if isinstance(step, Raw):
            data, end = step.data, step.end
        elif isinstance(step, Http):
            data = step.data
        elif isinstance(step, Stream):
            data, end = self.stream_bytes(step, request), step.end
            if step.cut_at is not None:
                data, end = data[: step.cut_at], "cut"
        else:
            data = self._whole(step, request, operation)
        size = getattr(step, "pieces", None) or len(data) or 1
        for at in range(0, len(data), size):
            writer.write(data[at : at + size])
            await writer.drain()
        if end == "reset":
            writer.transport.abort()
        elif end == "hang":
            await reader.read()  # until the client has gone
        return end == "clean"

    def _whole(self, step: Answer | Fault, request: Request, operation: str) -> bytes:
        as_rpc = self.binding == "JSONRPC"
        status, content_type = 200, "application/json" if as_rpc else rest.MEDIA_TYPE
        id_ = encode(request.json["id"]) if as_rpc else b""
        if isinstance(step, Fault):
            body = jsonrpc.encode_error(id_, step.error) if as_rpc else rest.encode_error(step.error)
            status = 200 if as_rpc else step.error.http_status
        else:
            body = _result(step.value, operation)
            body = jsonrpc.encode_result(id_, body) if as_rpc else body
            content_type = step.content_type or content_type
        return Http(status, body, {"Content-Type": content_type}).data

    def stream_bytes(self, step: Stream, request: Request) -> bytes:
        """The whole response to a request."""
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        frames = self._frames(step, request) + (self._frames(step.then, request) if step.then is not None else [])
        chunks = [b"%x\r\n%b\r\n" % (len(frame), frame) for frame in frames]
        return head + b"".join(chunks) + (b"0\r\n\r\n" if step.end == "clean" else b"")

    def _frames(self, step: Stream, request: Request) -> list[bytes]:
        frames = []
        for place, event in enumerate(step.events):
            if isinstance(event, bytes):
                frames.append(event)
                continue
            lines = [b"data: " + self._event(event, request), b"", b""]
            if step.first is not None:
                lines.insert(0, b"id: %d" % (step.first + sum(not isinstance(e, bytes) for e in step.events[:place])))
            frames.append(step.line_end.join(lines))
        return frames

    def _event(self, event: StreamEvent | A2AError, request: Request) -> bytes:
        as_rpc = self.binding == "JSONRPC"
        id_ = encode(request.json["id"]) if as_rpc else b""
        if isinstance(event, A2AError):
            return jsonrpc.encode_error(id_, event) if as_rpc else rest.encode_error(event)
        data = encode(wrapped(event))
        return jsonrpc.encode_result(id_, data) if as_rpc else data


def wrapped(event: StreamEvent) -> StreamResponse:
    if isinstance(event, Task):
        return StreamResponse(task=event)
    if isinstance(event, Message):
        return StreamResponse(message=event)
    if isinstance(event, TaskArtifactUpdateEvent):
        return StreamResponse(artifact_update=event)
    return StreamResponse(status_update=event)


def card_of(*interfaces: tuple[str, str], streaming: bool = True, version: str = "1.0") -> AgentCard:
    """A card with these URLs and bindings."""
    return AgentCard(
        name="Scripted",
        description="Answers what is written down.",
        supported_interfaces=tuple(AgentInterface(url, binding, version) for url, binding in interfaces),
        version="1",
        capabilities=AgentCapabilities(streaming=streaming),
        default_input_modes=("text/plain",),
        default_output_modes=("text/plain",),
        skills=(AgentSkill("s", "S", "Does.", ("t",)),),
    )


@asynccontextmanager
async def scripted(
    binding: str, script: Script, *, streaming: bool = True, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Scripted]:
    """Serve a script until the block ends; no call may have come that is not in it."""
    agent = Scripted(binding, script, streaming=streaming)
    async with listening(agent.serve, tls=tls) as port:
        agent.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{port}/agent"
        async with asyncio.timeout(LIMIT_S):
            yield agent
    assert agent.patient or agent.surprises == []


@asynccontextmanager
async def listening(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any], *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """A server on a free port of this machine, and an end of all that it was at when the block ends."""
    at_work: set[asyncio.Task[Any]] = set()

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        at_work.add(task)
        try:
            await serve(reader, writer)
        except (asyncio.CancelledError, ConnectionError):
            pass  # the test is over, or the client has gone
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            at_work.discard(task)

    server = await asyncio.start_server(serve_one, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(at_work):
            task.cancel()
        if at_work:
            await asyncio.wait(at_work, timeout=LIMIT_S)
        await server.wait_closed()


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """The next request; None when the client has gone."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head.decode("latin-1").strip().split("\r\n")
    verb, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if target.startswith("http://"):  # it came by a proxy
        target = "/" + target.removeprefix("http://").partition("/")[2]
    return Request(verb, target, headers, await reader.readexactly(int(headers.get("content-length", "0"))))


def _operation(binding: str, request: Request) -> str:
    if request.verb == "POST" and binding == "JSONRPC":
        return str(request.json["method"])
    path = request.target.partition("?")[0]
    if "/.well-known/" in path or path.endswith(".json"):
        return "card"
    try:
        return rest.route(request.verb, path.removeprefix("/agent"))[0].name
    except A2AError:
        return f"{request.verb} {path}"


def _result(value: Task | Message | ListTasksResponse, operation: str) -> bytes:
    if operation in ("SendMessage", "SendStreamingMessage", "SubscribeToTask"):
        if isinstance(value, Task):
            return encode(SendMessageResponse(task=value))
        assert isinstance(value, Message)
        return encode(SendMessageResponse(message=value))
    return encode(value)


def any_request(transport: str) -> Request:
    """A request to make an answer for."""
    return Request("POST", "/", {}, b'{"id":1}' if transport == "jsonrpc" else b"{}")
