"""A message that comes to two replicas at the same time."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.engine.scene import within
from tests.replicas.scene import CALLER, DATABASES, events_of, replicas, send
from tieline import Turn, agent
from tieline.stores.base import Outcome
from tieline.types import Task, TaskState

MESSAGES = 20
LONG_ENOUGH_S = 0.5  # for the second replica to begin the message, if it wrongly did


@pytest.mark.parametrize("database", DATABASES)
@within(30)
async def test_a_message_whose_first_replica_has_still_to_hear_that_it_is_the_first_starts_firstagent(
    database: str,
) -> None:
    started = 0

    async def says(turn: Turn) -> Any:
        nonlocal started
        started += 1
        yield "well"

    async with replicas(agent(name="Says")(says), database) as here:
        written, answer = asyncio.Event(), asyncio.Event()
        hear = here[0].store.hear

        async def later(heard: asyncio.Future[Outcome | None]) -> Outcome | None:
            outcome = await heard
            written.set()
            await answer.wait()
            return outcome

        def heard_late(key: bytes, task_id: str, at: int) -> asyncio.Future[Outcome | None]:
            heard = hear(key, task_id, at)
            assert isinstance(heard, asyncio.Future)
            return asyncio.ensure_future(later(heard))

        here[0].store.hear = heard_late  # type: ignore[method-assign]

        async def told(index: int) -> list[Any]:
            return await events_of(await here[index].send_streaming_message(send("hi", id_="m"), CALLER))

        first = asyncio.ensure_future(told(0))
        await written.wait()
        second = asyncio.ensure_future(told(1))
        await asyncio.wait([second], timeout=LONG_ENOUGH_S)
        answer.set()
        one, other = await first, await second
    assert isinstance(one[0], Task)
    assert other[0].id == one[0].id
    assert one[-1].status.state is other[-1].status.state is TaskState.COMPLETED
    assert started == 1


@pytest.mark.parametrize("database", DATABASES)
@within(60)
async def test_messages_of_a_dead_replica_that_come_to_two_others_at_once_start_one_agent_each(database: str) -> None:
    started: Counter[str] = Counter()
    dead = False

    async def says(turn: Turn) -> Any:
        if not dead:
            await asyncio.Event().wait()
        started[turn.text] += 1
        yield "well"

    quiet = agent(name="Says", task_after_s=None)(says)
    async with replicas(quiet, database, 3) as here:

        async def told(index: int, number: int) -> list[Any]:
            request = send(str(number), id_=f"m{number}")
            return await events_of(await here[index].send_streaming_message(request, CALLER))

        lost = [asyncio.ensure_future(told(0, number)) for number in range(MESSAGES)]
        while here[0].busy < MESSAGES:  # noqa: ASYNC110 - nothing tells of an agent that says nothing
            await asyncio.sleep(0.01)
        await here.crash(0)
        for one in lost:
            one.cancel()
        dead = True
        streams = await asyncio.gather(*(told(index, number) for number in range(MESSAGES) for index in (1, 2)))
    for first, other in zip(streams[::2], streams[1::2], strict=True):
        assert first[0].id == other[0].id
        assert first[-1].status.state is other[-1].status.state is TaskState.COMPLETED
    assert set(started.values()) == {1}
    assert len(started) == MESSAGES
