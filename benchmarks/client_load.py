"""One client library under load, as a process of its own.

    python -m benchmarks.client_load NAME URL message|stream AT_ONCE SECONDS

Each of AT_ONCE callers sends one request after the other and checks the answer. Prints a JSON object:
answers a second, and `busy`, the part of the time in which this process had the processor.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

EVENTS = 13  # of a stream

Call = Callable[[], Awaitable[None]]
_numbers = itertools.count()  # each text is a new one: only its own answer is right


class WrongAnswer(Exception):
    """The client gave something else than the server sent."""


@asynccontextmanager
async def tieline_client(url: str, kind: str) -> AsyncIterator[Call]:
    import tieline

    async with tieline.connect(url) as peer:

        async def message() -> None:
            text = f"msg {next(_numbers)}"
            answer = await peer.send(text)
            if not isinstance(answer, tieline.Message) or answer.parts[0].text != text:
                raise WrongAnswer(repr(answer))

        async def stream() -> None:
            events = [event async for event in peer.stream("stream hello")]
            last = events[-1]
            if not isinstance(last, tieline.TaskStatusUpdateEvent) or not last.status.state.terminal:
                raise WrongAnswer(repr(last))
            if len(events) != EVENTS:
                raise WrongAnswer(f"{len(events)} events: {events!r}")

        yield message if kind == "message" else stream


@asynccontextmanager
async def official_client(url: str, kind: str) -> AsyncIterator[Call]:
    import uuid

    from a2a.client import ClientConfig, create_client
    from a2a.types import Message, Part, Role, SendMessageRequest, TaskState

    def request(text: str) -> SendMessageRequest:
        return SendMessageRequest(
            message=Message(message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=[Part(text=text)])
        )

    async with await create_client(url, ClientConfig(streaming=kind == "stream")) as client:

        async def message() -> None:
            text = f"msg {next(_numbers)}"
            answers = [answer async for answer in client.send_message(request(text))]
            if len(answers) != 1 or answers[0].message.parts[0].text != text:
                raise WrongAnswer(repr(answers))

        async def stream() -> None:
            events = [event async for event in client.send_message(request("stream hello"))]
            if events[-1].status_update.status.state != TaskState.TASK_STATE_COMPLETED:
                raise WrongAnswer(repr(events[-1]))
            if len(events) != EVENTS:
                raise WrongAnswer(f"{len(events)} events: {events!r}")

        yield message if kind == "message" else stream


async def load(name: str, url: str, kind: str, at_once: int, seconds: float) -> dict[str, float]:
    connect = {"tieline": tieline_client, "a2a-sdk": official_client}[name]
    async with connect(url, kind) as call:
        await call()  # connections, and whatever is imported late, are not what is measured
        calls = 0
        started = time.perf_counter()
        processor = time.process_time()
        end = started + seconds

        async def caller() -> None:
            nonlocal calls
            while time.perf_counter() < end:
                await call()
                calls += 1

        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(caller())
        took = time.perf_counter() - started
        busy = (time.process_time() - processor) / took
    return {"a_second": calls / took, "busy": busy}


if __name__ == "__main__":
    _, name, url, kind, at_once, seconds = sys.argv
    print(json.dumps(asyncio.run(load(name, url, kind, int(at_once), float(seconds)))))
