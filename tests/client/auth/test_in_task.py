"""AUTH_REQUIRED: the agent's need of an authorization reaches the caller as a question, and the answer goes on
(A2A 1.0 §7.6).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.client.auth.agents import Guarded
from tests.client.auth.guarded import SECRET
from tests.client.running import run
from tests.client.serving import served
from tieline import (
    Bearer,
    Message,
    Peer,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
    Turn,
    agent,
    app,
    connect,
)
from tieline.types import StreamEvent

WHY = "May I read your calendar?"


@agent(name="Calendar", description="Wants to read a calendar.", task_after_s=None)
async def calendar(turn: Turn) -> AsyncGenerator[str, None]:
    granted = await turn.authorize(WHY, {"scopes": ["calendar.read"]})
    again = await turn.authorize(f"And write it, {granted}?")
    yield f"read and written: {again}"


@asynccontextmanager
async def connected(how: str) -> AsyncIterator[Peer]:
    """The agent in this process, or over a real socket; "polled" does not stream."""
    if how == "direct":
        async with connect(calendar) as peer:
            yield peer
        return
    async with served(app(calendar)) as url:
        binding = "JSONRPC" if how == "polled" else how
        async with connect(url, transport=binding) as peer:
            if how == "polled":
                peer._calls.streams = False
            yield peer


every_way = pytest.mark.parametrize("how", ["direct", "JSONRPC", "HTTP+JSON", "polled"])


@every_way
def test_ask_gives_the_question_and_goes_on_with_the_answer(how: str) -> None:
    async def test() -> None:
        async with connected(how) as peer:
            asked = await peer.ask("go")
            assert (asked, asked.state) == (WHY, TaskState.AUTH_REQUIRED)
            assert asked.data == {"scopes": ["calendar.read"]}
            again = await peer.ask("Ada", after=asked)
            assert (again, again.state) == ("And write it, Ada?", TaskState.AUTH_REQUIRED)
            assert again.task_id == asked.task_id
            done = await peer.ask("yes", after=again)
            assert (done, done.state) == ("read and written: yes", TaskState.COMPLETED)

    run(test())


@pytest.mark.parametrize("how", ["direct", "JSONRPC", "HTTP+JSON"])
def test_a_stream_stays_open_behind_the_question_and_tells_what_comes_of_the_answer(how: str) -> None:
    async def test() -> None:
        async with connected(how) as peer:
            events: list[StreamEvent] = []
            questions: list[str] = []
            async for event in peer.stream("go"):
                events.append(event)
                if isinstance(event, TaskStatusUpdateEvent) and event.status.state is TaskState.AUTH_REQUIRED:
                    assert event.status.message is not None
                    questions.append(event.status.message.text)
                    await peer.send("Ada", task_id=event.task_id, return_immediately=True)
            assert questions == [WHY, "And write it, Ada?"]
            assert any(isinstance(event, TaskArtifactUpdateEvent) for event in events)
            last = events[-1]
            assert isinstance(last, TaskStatusUpdateEvent)
            assert last.status.state is TaskState.COMPLETED

    run(test())


@pytest.mark.parametrize("transport", ["JSONRPC", "HTTP+JSON", "GRPC"])
def test_a_foreign_agents_question_can_be_answered(guarded: Guarded, transport: str) -> None:
    async def test() -> None:
        async with connect(guarded.agent("bearer").url, transport=transport, credentials=Bearer(SECRET)) as peer:
            asked = await peer.ask("authorize")
            assert (asked, asked.state) == ("Sign in at https://files.example", TaskState.AUTH_REQUIRED)
            done = await peer.ask("it is done", after=asked)
            assert done.strip() == "it is done"
            assert done.task_id == asked.task_id
            waiting = await peer.send("authorize")
            assert isinstance(waiting, Task)
            assert not isinstance(waiting, Message)
            assert (await peer.wait(waiting.id)).state is TaskState.AUTH_REQUIRED

    run(test())
