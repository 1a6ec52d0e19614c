"""What becomes of tasks whose replica has died."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.engine.scene import within
from tests.replicas.scene import CALLER, DATABASES, events_of, replicas, send, subscribe, task_of, text_of, until_state
from tieline import Turn, agent
from tieline.types import Task, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent

both = pytest.mark.parametrize("database", DATABASES)


@both
@within(40)
async def test_tasks_of_a_dead_replica_end_failed_with_a_reason_and_their_followers_hear_of_it(database: str) -> None:
    async def stays(turn: Turn) -> Any:
        yield "begun"
        await asyncio.Event().wait()

    async with replicas(agent(name="Stays")(stays), database) as here:
        tasks = [(await here[0].send_message(send(str(n), at_once=True), CALLER)).value for n in range(5)]
        ids = [task.id for task in tasks if isinstance(task, Task)]
        readers = [
            asyncio.ensure_future(events_of(await here[1].subscribe_to_task(subscribe(id_), CALLER))) for id_ in ids
        ]
        await here.crash(0)
        for id_, reader in zip(ids, readers, strict=True):
            last = (await reader)[-1]
            assert isinstance(last, TaskStatusUpdateEvent)
            assert last.status.state is TaskState.FAILED
            assert last.status.message is not None
            assert last.status.message.text == "The server stopped while this task was at work."
            await until_state(here[1], id_, "FAILED")


@both
@within(60)
async def test_a_resumable_agent_goes_on_in_another_replica_where_it_was(database: str) -> None:
    started: list[int] = []

    def make(number: int) -> Any:
        async def steps(turn: Turn) -> Any:
            started.append(number)
            yield "Once "
            name = await turn.ask("Who?")
            yield f"{name} "
            if number == 0:
                await asyncio.Event().wait()
            yield "went."

        return agent(name="Steps", resumable=True)(steps)

    async with replicas(make(0), database, 1) as here:
        await here.add(make(1))
        task = (await here[0].send_message(send("tell"), CALLER)).value
        assert isinstance(task, Task)
        cursor = await here[1].send_streaming_message(send("Ada", task=task.id), CALLER)
        reading = asyncio.ensure_future(events_of(cursor))
        await asyncio.sleep(0.3)
        await here.crash(0)
        events = await reading
        assert isinstance(events[-1], TaskStatusUpdateEvent)
        assert events[-1].status.state is TaskState.COMPLETED
        done = await until_state(here[1], task.id, "COMPLETED")
        assert text_of(done) == "Once Ada went."
        assert len(done.artifacts) == 1
        assert [message.text for message in done.history] == ["tell", "Who?", "Ada"]
        assert started == [0, 1]


@both
@within(60)
async def test_who_answers_a_question_of_a_dead_replica_goes_on_with_the_agent_elsewhere(database: str) -> None:
    async def asks(turn: Turn) -> Any:
        first = await turn.ask("First?")
        second = await turn.ask("Second?")
        yield f"{first} {second}"

    async with replicas(agent(name="Asks", resumable=True)(asks), database, 2) as here:
        task = (await here[0].send_message(send("go"), CALLER)).value
        assert isinstance(task, Task)
        await here[0].send_message(send("one", task=task.id), CALLER)
        await here.crash(0)
        done = (await here[1].send_message(send("two", task=task.id), CALLER)).value
        assert isinstance(done, Task)
        assert done.state is TaskState.COMPLETED
        assert text_of(done) == "one two"


@both
@within(40)
async def test_a_replica_that_leaves_in_good_order_hands_on_what_waits(database: str) -> None:
    async def asks(turn: Turn) -> Any:
        yield await turn.ask("What?")

    async with replicas(agent(name="Asks", resumable=True)(asks), database, 2) as here:
        task = (await here[0].send_message(send("go"), CALLER)).value
        assert isinstance(task, Task)
        await here[0].close()
        await here[0].store.close()
        done = (await here[1].send_message(send("this", task=task.id), CALLER)).value
        assert isinstance(done, Task)
        assert (done.state, text_of(done)) == (TaskState.COMPLETED, "this")


@both
@within(40)
async def test_tasks_that_callers_ask_for_while_they_are_taken_over_end_once_and_with_the_same_reason(
    database: str,
) -> None:
    async def stays(turn: Turn) -> Any:
        yield "begun"
        await asyncio.Event().wait()

    async with replicas(agent(name="Stays")(stays), database) as here:
        tasks = [(await here[0].send_message(send(str(n), at_once=True), CALLER)).value for n in range(60)]
        ids = [task.id for task in tasks if isinstance(task, Task)]
        await here.crash(0)

        async def told(id_: str) -> list[Any]:
            while (await task_of(here[1], id_)).state is TaskState.WORKING:  # noqa: ASYNC110 - at every moment
                await asyncio.sleep(0)
            return await events_of(await here[1].subscribe_to_task(subscribe(id_), CALLER, last_event_id=0))

        for events in await asyncio.gather(*(told(id_) for id_ in ids)):
            ends = [
                event for event in events if isinstance(event, TaskStatusUpdateEvent) and event.status.state.terminal
            ]
            assert [end.status.state for end in ends] == [TaskState.FAILED]
            assert ends[0] is events[-1]
            message = ends[0].status.message
            assert message is not None
            assert message.text == "The server stopped while this task was at work."


@both
@within(30)
async def test_a_replica_that_looks_often_who_is_alive_does_not_take_itself_for_dead(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def says(turn: Turn) -> Any:
        yield "well"

    async with replicas(agent(name="Says")(says), database) as here:
        replica = here[0].replica
        assert replica is not None
        found = await asyncio.gather(*(replica.is_alive(f"nobody {number}") for number in range(300)))
        assert not any(found)
        assert caplog.text == ""


@both
@within(40)
async def test_a_stream_at_a_replica_that_was_taken_for_dead_ends_without_an_error_and_is_found_again(
    database: str,
) -> None:
    go_on = asyncio.Event()

    async def speaks(turn: Turn) -> Any:
        yield "begun"
        await go_on.wait()
        yield "more"

    async with replicas(agent(name="Speaks")(speaks), database) as here:
        stream = await here[0].send_streaming_message(send("go"), CALLER)
        seen = await events_of(stream, lambda event: isinstance(event, TaskArtifactUpdateEvent))
        watching = await here[0].subscribe_to_task(subscribe(seen[0].id), CALLER, last_event_id=len(seen))
        reading = asyncio.ensure_future(events_of(watching))
        away = here[0].replica
        assert away is not None
        beats = await here[1].store.beat()  # type: ignore[attr-defined]
        assert await here[1].store.bury(away.id, beats[away.id])  # type: ignore[attr-defined]
        await here[1].adopt()
        go_on.set()  # what it says now is refused
        assert await reading == []
        again = await here[0].subscribe_to_task(subscribe(seen[0].id), CALLER, last_event_id=len(seen))
        (end,) = await events_of(again)
        assert isinstance(end, TaskStatusUpdateEvent)
        assert end.status.state is TaskState.FAILED
