"""The floor: what uvicorn, JSON and one task's work cost at least. Not a conformant server.

Bare ASGI with typed msgspec values: a request is decoded, a task does its work in a dict, the answer is encoded.
There is no event log, no fan-out to subscribers, no owner, no validation beyond types. Texts are as in official_sdk.py.
"""

from __future__ import annotations

import asyncio
import gc
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Part(msgspec.Struct, omit_defaults=True, rename="camel", gc=False):
    text: str | None = None
    data: Any = None
    url: str | None = None
    raw: str | None = None
    filename: str = ""
    media_type: str = ""
    metadata: dict[str, Any] | None = None


class Message(msgspec.Struct, omit_defaults=True, rename="camel", gc=False):
    message_id: str
    role: str
    parts: list[Part]
    context_id: str = ""
    task_id: str = ""
    metadata: dict[str, Any] | None = None
    extensions: list[str] = []
    reference_task_ids: list[str] = []


class Status(msgspec.Struct, omit_defaults=True, rename="camel", gc=False):
    state: str
    timestamp: str = ""
    message: Message | None = None


class Artifact(msgspec.Struct, omit_defaults=True, rename="camel", gc=False):
    artifact_id: str
    parts: list[Part]
    name: str = ""


class Task(msgspec.Struct, omit_defaults=True, rename="camel", gc=False):
    id: str
    context_id: str
    status: Status
    artifacts: list[Artifact] = []
    history: list[Message] = []


class StatusUpdate(msgspec.Struct, omit_defaults=True, rename="camel", gc=False):
    task_id: str
    context_id: str
    status: Status


class ArtifactUpdate(msgspec.Struct, omit_defaults=True, rename="camel", gc=False):
    task_id: str
    context_id: str
    artifact: Artifact
    append: bool = False
    last_chunk: bool = False


class Result(msgspec.Struct, omit_defaults=True, rename="camel", gc=False):
    message: Message | None = None
    task: Task | None = None
    status_update: StatusUpdate | None = None
    artifact_update: ArtifactUpdate | None = None


class Response(msgspec.Struct, gc=False):
    id: int | str | None
    result: Result
    jsonrpc: str = "2.0"


class Params(msgspec.Struct, rename="camel", gc=False):
    message: Message | None = None
    id: str = ""
    configuration: dict[str, Any] | None = None
    history_length: int | None = None


class Request(msgspec.Struct, gc=False):
    jsonrpc: str
    method: str
    params: Params
    id: int | str | None = None


decode = msgspec.json.Decoder(Request).decode
encode = msgspec.json.Encoder().encode

tasks: dict[str, Task | bytes] = {}  # a finished one is kept as its bytes

STREAM_HEADERS = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
CARD = encode(
    {
        "name": "Floor",
        "description": "Echoes.",
        "version": "1.0.0",
        "capabilities": {"streaming": True},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "echo", "name": "Echo", "description": "Echoes.", "tags": ["echo"]}],
        "supportedInterfaces": [
            {
                "url": f"http://127.0.0.1:{os.environ.get('PORT', '8000')}/",
                "protocolBinding": "JSONRPC",
                "protocolVersion": "1.0",
            }
        ],
    }
)


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def new_id() -> str:
    return str(uuid.uuid4())


def new_task(message: Message) -> Task:
    task = Task(new_id(), message.context_id or new_id(), Status("TASK_STATE_SUBMITTED", now()), [], [message])
    message.task_id = task.id
    message.context_id = task.context_id
    tasks[task.id] = task
    return task


def answer(request: Request) -> bytes:
    """GetTask, or SendMessage to its end."""
    if request.method == "GetTask":
        found = tasks[request.params.id]
        body = found if isinstance(found, bytes) else encode(found)
        return b'{"jsonrpc":"2.0","id":' + encode(request.id) + b',"result":' + body + b"}"
    message = request.params.message
    assert message is not None
    text = message.parts[0].text or ""
    if text.startswith("msg"):
        reply = Message(new_id(), "ROLE_AGENT", [Part(text)], message.context_id or new_id())
        return encode(Response(request.id, Result(message=reply)))
    task = new_task(message)
    task.status = Status("TASK_STATE_WORKING", now())
    task.artifacts.append(Artifact(new_id(), [Part(text)], "response"))
    task.status = Status("TASK_STATE_COMPLETED", now())
    tasks[task.id] = body = encode(task)
    return b'{"jsonrpc":"2.0","id":' + encode(request.id) + b',"result":{"task":' + body + b"}}"


async def stream(request: Request) -> AsyncIterator[bytes]:
    """SendStreamingMessage: each event as the bytes of a frame."""

    def event(result: Result) -> bytes:
        return b"data: " + encode(Response(request.id, result)) + b"\r\n\r\n"

    message = request.params.message
    assert message is not None
    text = message.parts[0].text or ""
    task = new_task(message)
    yield event(Result(task=task))
    task.status = Status("TASK_STATE_WORKING", now())
    yield event(Result(status_update=StatusUpdate(task.id, task.context_id, task.status)))
    if text.startswith("hang"):
        await asyncio.Event().wait()
    chunks = int(text.split()[1]) if text.startswith("chunks") else 10
    for number in range(chunks):
        part = Part(f"chunk {number} of the answer")
        if number == 0:
            task.artifacts.append(Artifact("answer", [part]))
        else:
            task.artifacts[0].parts.append(part)
        update = ArtifactUpdate(task.id, task.context_id, Artifact("answer", [part]), number > 0, number == chunks - 1)
        yield event(Result(artifact_update=update))
    task.status = Status("TASK_STATE_COMPLETED", now())
    tasks[task.id] = encode(task)
    yield event(Result(status_update=StatusUpdate(task.id, task.context_id, task.status)))


async def respond(send: Send, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        while True:
            event = await receive()
            await send({"type": event["type"] + ".complete"})
            if event["type"] == "lifespan.shutdown":
                return
    if scope["method"] == "GET":
        await respond(send, CARD)
        return
    body = b""
    more = True
    while more:
        event = await receive()
        body += event.get("body", b"")
        more = event.get("more_body", False)
    request = decode(body)
    if request.method != "SendStreamingMessage":
        await respond(send, answer(request))
        return
    await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
    async for frame in stream(request):
        await send({"type": "http.response.body", "body": frame, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


gc.collect()
gc.freeze()
