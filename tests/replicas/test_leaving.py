"""Callers that leave, replicas that were taken for dead, and messages that come again in between."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from tests.engine.scene import within
from tests.replicas.scene import (
    CALLER,
    DATABASES,
    LEASE_S,
    Replicas,
    cancel,
    replicas,
    send,
    text_of,
    until_state,
)
from tieline import Turn, agent
from tieline.engine.letters import Cancel
from tieline.engine.service import Service
from tieline.types import Task, TaskState

both = pytest.mark.parametrize("database", DATABASES)


async def taken_for_dead(here: Replicas, victim: int, by: int) -> None:
    """Strike a replica off that lives, as after a pause, and have another one take its tasks."""
    away, looks = here[victim].replica, here[by].replica
    assert away is not None
    assert looks is not None
    counts = await looks.store.beat()
    assert await looks.store.bury(away.id, counts[away.id])
    await here[by].adopt()


async def begun(service: Service, text: str) -> Task:
    """A task that is at work."""
    task = (await service.send_message(send(text, at_once=True), CALLER)).value
    assert isinstance(task, Task)
    return task


@both
@within(30)
async def test_a_caller_that_leaves_takes_no_other_caller_with_it(database: str) -> None:
    async def hello(turn: Turn) -> Any:
        yield "hello"

    async with replicas(agent(name="Hello")(hello), database) as here:
        asks, asked = here[1].replica, here[0].replica
        assert asks is not None
        assert asked is not None
        for turns in range(1, 6):  # what they write goes together; one leaves at each place of the way
            waiting = [
                asyncio.ensure_future(asks.ask(asked.id, ("0:/0:/", f"t-{n}"), Cancel(), limit_s=10)) for n in range(3)
            ]
            for _ in range(turns):
                await asyncio.sleep(0)
            waiting[0].cancel()
            for n in (1, 2):
                answer = await waiting[n]
                assert answer.task_id == f"t-{n}"
                assert answer.error is not None  # there is no such task


@both
@within(40)
async def test_a_message_and_a_cancel_go_on_to_the_replica_that_has_taken_the_task_over(database: str) -> None:
    async def stays(turn: Turn) -> Any:
        yield "begun "
        if turn.text == "ask":
            yield await turn.ask("What?")
        else:
            await asyncio.Event().wait()

    async with replicas(agent(name="Stays", resumable=True)(stays), database) as here:
        asks, works = await begun(here[0], "ask"), await begun(here[0], "work")
        await until_state(here[0], asks.id, "INPUT_REQUIRED")
        away = here[0].replica
        assert away is not None
        await taken_for_dead(here, 0, 1)
        claimed = await here[1].cancel_task(cancel(asks.id), CALLER)  # a dead replica's, as far as this one knows
        assert claimed.value.state is TaskState.CANCELED
        stopped = (await here[0].cancel_task(cancel(works.id), CALLER)).value
        assert stopped.state is TaskState.CANCELED
        assert (await until_state(here[1], works.id, "CANCELED")).id == works.id


@both
@within(40)
async def test_an_answer_at_a_replica_that_was_taken_for_dead_reaches_the_agent_where_it_is_now(database: str) -> None:
    async def asks(turn: Turn) -> Any:
        first = await turn.ask("First?")
        yield f"{first} {await turn.ask('Second?')}"

    async with replicas(agent(name="Asks", resumable=True)(asks), database) as here:
        task = (await here[0].send_message(send("go"), CALLER)).value
        assert isinstance(task, Task)
        await taken_for_dead(here, 0, 1)
        await here[1].send_message(send("one", task=task.id), CALLER)  # claimed from the dead
        done = (await here[0].send_message(send("two", task=task.id), CALLER)).value
        assert isinstance(done, Task)
        assert (done.state, text_of(done)) == (TaskState.COMPLETED, "one two")


@both
@within(30)
async def test_a_message_of_which_nothing_has_come_is_begun_once_however_often_it_comes_again(database: str) -> None:
    started: list[str] = []

    async def counts(turn: Turn) -> Any:
        started.append(turn.text)
        await asyncio.sleep(0.1)
        yield "done"

    async with replicas(agent(name="Counts")(counts), database) as here:
        first = asyncio.ensure_future(here[0].send_message(send("go", id_="m-1"), CALLER))
        await asyncio.sleep(0)  # it is on its way to the store
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first
        again = [here[n % 2].send_message(send("go", id_="m-1"), CALLER) for n in range(8)]
        tasks = [answer.value for answer in await asyncio.gather(*again)]
        assert len({task.id for task in tasks if isinstance(task, Task)}) == 1
        assert started == ["go"]


@both
@within(40)
async def test_a_server_that_drains_leaves_to_others_what_can_go_on(database: str) -> None:
    gates = [asyncio.Event(), asyncio.Event()]

    def make(number: int) -> Any:
        async def steps(turn: Turn) -> Any:
            yield "a"
            await gates[number].wait()
            yield "b"

        return agent(name="Steps", resumable=True)(steps)

    async with replicas(make(0), database, 1) as here:
        await here.add(make(1))
        task = await begun(here[0], "go")
        await here.crash(0)
        draining = asyncio.ensure_future(here[1].drain(0.1))
        await asyncio.sleep(0)
        await taken_for_dead_by_nobody(here)
        await here[1].adopt()
        await draining
        await here[1].close()
        await here[1].store.close()
        gates[1].set()
        third = await here.add(make(1))
        done = await until_state(third, task.id, "COMPLETED")
        assert text_of(done) == "ab"


async def taken_for_dead_by_nobody(here: Replicas) -> None:
    """Nothing is told to anybody; the second replica may have looked already."""
    await asyncio.sleep(0.05)
    assert here[1].busy == 0


@both
@within(60)
async def test_one_task_that_brings_servers_down_does_not_take_the_others_with_it(database: str) -> None:
    async def stays(turn: Turn) -> Any:
        yield "a"
        await asyncio.Event().wait()

    async with replicas(agent(name="Stays", resumable=True)(stays), database, 1) as here:
        tasks = [await begun(here[0], str(n)) for n in range(5)]
        at_work: list[set[str]] = []
        for crash in range(2):
            await here.crash(crash)
            service = await here.add()
            looks = service.replica
            assert looks is not None
            counts = await looks.store.beat()
            for other, count in counts.items():
                if other != looks.id:
                    assert await looks.store.bury(other, count)
            await service.adopt()
            at_work.append({run.task_id for run in service.runs.values()})
        assert at_work[0] == {task.id for task in tasks}  # a first time is no suspicion
        assert len(at_work[1]) == 1  # the others wait for their turn
        while len(here[2].runs) < 5:  # noqa: ASYNC110 - they tell nobody
            await asyncio.sleep(0.1)


@both
@within(60)
async def test_many_tasks_that_have_seen_servers_die_are_all_at_work_again_within_the_lease(database: str) -> None:
    async def stays(turn: Turn) -> Any:
        yield "a"
        await asyncio.Event().wait()

    async with replicas(agent(name="Stays", resumable=True)(stays), database, 1) as here:
        await asyncio.gather(*(begun(here[0], str(n)) for n in range(200)))
        for crash in range(2):
            await here.crash(crash)
            service = await here.add()
            looks = service.replica
            assert looks is not None
            counts = await looks.store.beat()
            for other, count in counts.items():
                if other != looks.id:
                    assert await looks.store.bury(other, count)
            await service.adopt()
        async with asyncio.timeout(LEASE_S):
            while here[2].busy < 200:  # noqa: ASYNC110 - they tell nobody
                await asyncio.sleep(0.02)
