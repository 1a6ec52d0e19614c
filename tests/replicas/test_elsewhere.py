"""A task that is at work in one replica, called over another."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.engine.scene import within
from tests.replicas.scene import (
    CALLER,
    DATABASES,
    cancel,
    events_of,
    replicas,
    send,
    subscribe,
    task_of,
    text_of,
    until_state,
)
from tieline import Turn, agent
from tieline.errors import InvalidParams, TaskEnded, TaskNotCancelable, TaskNotFound, UnsupportedOperation
from tieline.types import Message, Task, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent

both = pytest.mark.parametrize("database", DATABASES)


class Gate:
    """An agent that says numbers as the test lets it."""

    def __init__(self) -> None:
        self.go = asyncio.Semaphore(0)
        self.stopped = False

    async def __call__(self, turn: Turn) -> Any:
        try:
            for number in range(int(turn.text)):
                yield f"{number} "
                await self.go.acquire()
        except asyncio.CancelledError:
            self.stopped = True
            raise

    def let(self, count: int) -> None:
        for _ in range(count):
            self.go.release()


def chunks(events: list[Any]) -> str:
    pieces = [event for event in events if isinstance(event, TaskArtifactUpdateEvent)]
    return "".join(part.text or "" for piece in pieces for part in piece.artifact.parts)


@both
@within(30)
async def test_a_subscriber_on_another_replica_gets_the_task_and_every_event_behind_it(database: str) -> None:
    gate = Gate()
    async with replicas(agent(name="Gate")(gate.__call__), database) as here:
        first = await here[0].send_message(send("5", at_once=True), CALLER)
        assert isinstance(first.value, Task)
        id_ = first.value.id
        cursor = await here[1].subscribe_to_task(subscribe(id_), CALLER)
        reading = asyncio.ensure_future(events_of(cursor))
        for _ in range(5):
            gate.let(1)
            await asyncio.sleep(0.02)
        events = await reading
        assert isinstance(events[0], Task)
        assert text_of(events[0]) + chunks(events) == "0 1 2 3 4 "
        assert isinstance(events[-1], TaskStatusUpdateEvent)
        assert events[-1].status.state is TaskState.COMPLETED
        assert (await task_of(here[1], id_)) == (await task_of(here[0], id_))
        assert here[1].remotes == {}


@both
@within(30)
async def test_a_subscriber_that_comes_back_over_another_replica_goes_on_where_it_was(database: str) -> None:
    gate = Gate()
    async with replicas(agent(name="Gate")(gate.__call__), database) as here:
        cursor = await here[0].send_streaming_message(send("6"), CALLER)
        gate.let(2)
        seen = await events_of(cursor, lambda event: isinstance(event, TaskArtifactUpdateEvent))
        last = len(seen)
        again = await here[1].subscribe_to_task(subscribe(seen[0].id), CALLER, last_event_id=last)
        gate.let(6)
        assert chunks(seen) + chunks(await events_of(again)) == "0 1 2 3 4 5 "
        done = await here[1].subscribe_to_task(subscribe(seen[0].id), CALLER, last_event_id=last)
        assert chunks(seen) + chunks(await events_of(done)) == "0 1 2 3 4 5 "


@both
@within(30)
async def test_a_follower_hears_of_everything_though_the_letters_that_tell_of_it_are_lost(database: str) -> None:
    gate = Gate()
    async with replicas(agent(name="Gate")(gate.__call__), database) as here:
        first = await here[0].send_message(send("3", at_once=True), CALLER)
        assert isinstance(first.value, Task)
        cursor = await here[1].subscribe_to_task(subscribe(first.value.id), CALLER)
        owner = here[0].replica
        assert owner is not None
        while not owner._followers:  # noqa: ASYNC110 - a letter that arrives tells nobody else
            await asyncio.sleep(0.01)
        owner._followers.clear()  # as if it had never arrived
        gate.let(3)
        events = await events_of(cursor)
        assert text_of(events[0]) + chunks(events) == "0 1 2 "


@both
@within(30)
async def test_a_cancel_reaches_the_agent_wherever_it_is_and_is_told_when_it_has_stopped(database: str) -> None:
    gate = Gate()
    async with replicas(agent(name="Gate")(gate.__call__), database) as here:
        task = (await here[0].send_message(send("5", at_once=True), CALLER)).value
        assert isinstance(task, Task)
        canceled = (await here[1].cancel_task(cancel(task.id), CALLER)).value
        assert canceled.state is TaskState.CANCELED
        assert gate.stopped
        for replica in here.services:
            with pytest.raises(TaskNotCancelable):
                await replica.cancel_task(cancel(task.id), CALLER)


@both
@within(30)
async def test_an_answer_over_another_replica_reaches_the_agent_that_asked(database: str) -> None:
    async def asks(turn: Turn) -> Any:
        name = await turn.ask("Who?")
        again = await turn.ask(f"{name}, and who else?")
        yield f"{name} and {again}"

    async with replicas(agent(name="Asks")(asks), database, 3) as here:
        task = (await here[0].send_message(send("hi"), CALLER)).value
        assert isinstance(task, Task)
        assert task.state is TaskState.INPUT_REQUIRED
        asked = (await here[1].send_message(send("Ada", task=task.id), CALLER)).value
        assert isinstance(asked, Task)
        assert asked.state is TaskState.INPUT_REQUIRED
        assert asked.status.message is not None
        assert asked.status.message.text == "Ada, and who else?"
        assert asked == await task_of(here[0], task.id)
        events = await events_of(await here[2].send_streaming_message(send("Bob", task=task.id), CALLER))
        assert isinstance(events[0], Task)
        assert text_of(events[0]) + chunks(events) == "Ada and Bob"
        done = await task_of(here[1], task.id)
        assert done.state is TaskState.COMPLETED
        assert [message.text for message in done.history] == ["hi", "Who?", "Ada", "Ada, and who else?", "Bob"]


@both
@within(30)
async def test_refusals_of_the_other_replica_are_those_of_this_one(database: str) -> None:
    gate = Gate()
    busy = agent(name="Gate", while_running="refuse")(gate.__call__)
    async with replicas(busy, database) as here:
        task = (await here[0].send_message(send("2", at_once=True), CALLER)).value
        assert isinstance(task, Task)
        told = []
        for replica in here.services:
            with pytest.raises(UnsupportedOperation) as refused:
                await replica.send_message(send("more", task=task.id), CALLER)
            told.append((str(refused.value), refused.value.metadata))
        assert told[0] == told[1]
        gate.let(5)
        await until_state(here[1], task.id, "COMPLETED")
        for replica in here.services:
            with pytest.raises(TaskEnded):
                await replica.send_message(send("more", task=task.id), CALLER)
            with pytest.raises(TaskEnded):
                await replica.subscribe_to_task(subscribe(task.id), CALLER)
            with pytest.raises(TaskNotFound):
                await replica.send_message(send("more", task="another"), CALLER)
            wrong = send("more", task=task.id)
            with pytest.raises((InvalidParams, TaskEnded)):
                await replica.send_message(wrong, CALLER)


@both
@within(40)
async def test_a_message_is_heard_once_whichever_replicas_it_is_sent_to(database: str) -> None:
    started: list[str] = []

    async def counts(turn: Turn) -> Any:
        started.append(turn.text)
        if turn.text == "reply":
            await asyncio.sleep(0.2)
            return turn.reply("answered")
        if turn.text == "ask":
            answer = await turn.ask("What?")
            started.append(answer)
        await asyncio.sleep(0.2)
        await turn.complete("done")
        return None

    async with replicas(agent(name="Counts")(counts), database, 3) as here:
        answers = await asyncio.gather(*(one.send_message(send("reply", id_="m-1"), CALLER) for one in here.services))
        assert {type(answer.value) for answer in answers} == {Message}
        assert len({answer.value.message_id for answer in answers if isinstance(answer.value, Message)}) == 1
        tasks = await asyncio.gather(*(one.send_message(send("task", id_="m-2"), CALLER) for one in here.services))
        assert len({task.value.id for task in tasks if isinstance(task.value, Task)}) == 1
        assert {task.value.state for task in tasks if isinstance(task.value, Task)} == {TaskState.COMPLETED}
        assert started == ["reply", "task"]
        late = (await here[2].send_message(send("task", id_="m-2"), CALLER)).value
        assert late == tasks[0].value
        streamed = await events_of(await here[1].send_streaming_message(send("task", id_="m-2"), CALLER))
        assert isinstance(streamed[-1], TaskStatusUpdateEvent)
        assert streamed[-1].status.state is TaskState.COMPLETED
        asked = (await here[0].send_message(send("ask", id_="m-3"), CALLER)).value
        assert isinstance(asked, Task)
        for one in (1, 2, 0):
            told = (await here[one].send_message(send("this", task=asked.id, id_="m-4"), CALLER)).value
            assert isinstance(told, Task)
            assert told.state is TaskState.COMPLETED
            assert told == await task_of(here[2], asked.id)
        assert started == ["reply", "task", "ask", "this"]
