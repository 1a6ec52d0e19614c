"""What an agent has said reaches the caller before the agent goes on, even one that blocks the loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.engine.scene import CALLER, ask, in_loop, says, serving
from tieline import Artifact, Part, TaskStatus, Turn
from tieline.engine.agent import AgentFunction
from tieline.engine.cursor import Cursor
from tieline.stores.base import Store
from tieline.stores.memory import MemoryStore
from tieline.stores.sqlite import SQLiteStore
from tieline.types import SubscribeToTaskRequest, Task, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent

BLOCK_S = 0.02  # longer than a burst may last; nothing is measured by it

STORES: dict[str, Callable[[Path], Store]] = {
    "memory": lambda _: MemoryStore(),
    "sqlite": lambda folder: SQLiteStore(folder / "tasks.db"),
}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return STORES[request.param](tmp_path)


class Moments(list[str]):
    """What happened, in the order in which it did."""

    def before(self, first: str, second: str) -> bool:
        return self.index(first) < self.index(second)


@asynccontextmanager
async def listening(function: AgentFunction, store: Store, moments: Moments) -> AsyncIterator[asyncio.Task[None]]:
    """A caller that streams and notes each event in the moment when it has it."""
    async with serving(function, store=store) as service:
        cursor = await service.send_streaming_message(says("begin"), CALLER)
        yield asyncio.ensure_future(note(cursor, moments))


async def note(cursor: Cursor, moments: Moments) -> None:
    while not cursor.ended:
        _, events = cursor.take()
        for event in events:
            value = event.value
            if isinstance(value, TaskArtifactUpdateEvent):
                moments.append(f"heard {value.artifact.text}")
            elif isinstance(value, TaskStatusUpdateEvent) and value.status.message is not None:
                moments.append(f"heard {value.status.message.text}")
        if not events:
            await cursor.wait()
    cursor.close()


async def give_text(turn: Turn, text: str) -> Any:
    return text


async def give_part(turn: Turn, text: str) -> Any:
    return Part(text=text)


async def give_artifact(turn: Turn, text: str) -> Any:
    return Artifact(text, (Part(text=text),))


async def give_status(turn: Turn, text: str) -> Any:
    return TaskStatus(TaskState.WORKING, turn.reply(text))


@pytest.mark.requirement("stream.progress-at-once", over=("direct",))
@pytest.mark.parametrize("give", [give_text, give_part, give_artifact, give_status])
@in_loop
async def test_what_was_yielded_is_heard_before_the_agent_blocks_the_loop(
    store: Store, give: Callable[[Turn, str], Any]
) -> None:
    moments = Moments()

    async def blocks(turn: Turn) -> Any:
        for text in ("one", "two", "three"):
            yield await give(turn, text)
            moments.append(f"behind {text}")
            time.sleep(BLOCK_S)  # noqa: ASYNC251 - the agent that does this is the case

    async with listening(blocks, store, moments) as reader:
        await reader
    for text in ("one", "two", "three"):
        assert moments.before(f"heard {text}", f"behind {text}"), moments


@pytest.mark.requirement("stream.progress-at-once", over=("direct",))
@in_loop
async def test_what_was_said_by_awaiting_is_heard_before_the_agent_blocks_the_loop(store: Store) -> None:
    moments = Moments()

    async def blocks(turn: Turn) -> None:
        for text in ("one", "two", "three"):
            await turn.status(text)
            moments.append(f"behind {text}")
            time.sleep(BLOCK_S)  # noqa: ASYNC251
            async with turn.artifact("a") as out:
                await out.write(f"chunk {text}")
            moments.append(f"behind chunk {text}")
            time.sleep(BLOCK_S)  # noqa: ASYNC251

    async with listening(blocks, store, moments) as reader:
        await reader
    for text in ("one", "chunk one", "two", "chunk two", "three", "chunk three"):
        assert moments.before(f"heard {text}", f"behind {text}"), moments


@in_loop
async def test_the_first_event_behind_an_answer_is_heard_before_the_agent_blocks_the_loop(store: Store) -> None:
    moments = Moments()

    async def asks(turn: Turn) -> Any:
        yield f"got {await turn.ask('Which?')}"
        moments.append("behind got this")
        time.sleep(BLOCK_S)  # noqa: ASYNC251

    async with serving(asks, store=store) as service:
        task = await ask(service, "begin")
        cursor = await service.send_streaming_message(says("this", task_id=task.id), CALLER)
        await note(cursor, moments)
    assert moments.before("heard got this", "behind got this"), moments


@pytest.mark.requirement("events.never-reordered", over=("direct",))
@in_loop
async def test_events_in_quick_succession_arrive_whole_and_in_order(store: Store) -> None:
    moments = Moments()

    async def quick(turn: Turn) -> Any:
        for number in range(500):
            yield f"{number} "

    async with listening(quick, store, moments) as reader:
        await reader
    assert moments == [f"heard {number} " for number in range(500)]


@in_loop
async def test_a_quick_agent_lets_others_at_the_loop_while_it_streams(store: Store) -> None:
    """An agent that never waits for anything must not hold the loop until it is done."""
    turns_of_others = 0
    at_end = 0

    async def quick(turn: Turn) -> Any:
        nonlocal at_end
        for number in range(500):
            yield f"{number} "
        at_end = turns_of_others

    async def other() -> None:
        nonlocal turns_of_others
        while True:
            turns_of_others += 1
            await asyncio.sleep(0)

    beside = asyncio.ensure_future(other())
    async with listening(quick, store, Moments()) as reader:
        await reader
    beside.cancel()
    assert at_end >= 500 // 16, f"the loop turned {at_end} times while 500 events were made"


@in_loop
async def test_a_quick_agent_lets_others_at_the_loop_when_nobody_listens(store: Store) -> None:
    turns_of_others = 0
    at_end = 0

    async def quick(turn: Turn) -> Any:
        nonlocal at_end
        for number in range(500):
            yield f"{number} "
        at_end = turns_of_others

    async def other() -> None:
        nonlocal turns_of_others
        while True:
            turns_of_others += 1
            await asyncio.sleep(0)

    beside = asyncio.ensure_future(other())
    async with serving(quick, store=store) as service:
        await service.send_message(says("begin"), CALLER)
    beside.cancel()
    assert at_end >= 500 // 16 - 1, f"the loop turned {at_end} times while 500 events were made"


@in_loop
async def test_a_subscriber_that_comes_in_the_middle_of_a_burst_loses_nothing(store: Store) -> None:
    joined: list[Cursor] = []

    async def quick(turn: Turn) -> Any:
        for number in range(100):
            yield f"{number} "
            if number == 50:
                joined.append(await join(turn.task_id))

    async with serving(quick, store=store) as service:

        async def join(task_id: str) -> Cursor:
            return await service.subscribe_to_task(SubscribeToTaskRequest(task_id), CALLER)

        task = await ask(service, "begin")
        (cursor,) = joined
        _, (first, *later) = cursor.take()
        snapshot = first.value
        assert isinstance(snapshot, Task)
        text = snapshot.text
        events = [event.value for event in later]
        while not cursor.ended:
            events += [event.value for event in cursor.take()[1]]
        text += "".join(event.artifact.text for event in events if isinstance(event, TaskArtifactUpdateEvent))
        assert text == "".join(f"{number} " for number in range(100)) == task.text
        cursor.close()
