"""Messages to a task that is there: one agent at a time, each message once, nothing left behind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.engine.gated import GatedStore
from tests.engine.scene import CALLER, ask, in_loop, next_of, rest_of, says, serving, states, turns
from tieline import Limits, Turn
from tieline.engine.turn import Caller
from tieline.errors import InvalidParams, Overloaded, TaskNotFound, UnsupportedOperation
from tieline.stores.memory import MemoryStore
from tieline.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    SubscribeToTaskRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
)


async def resting_task(store: GatedStore | MemoryStore) -> str:
    """The id of a task that waits for its caller, with no agent: as after a restart."""

    async def rests(turn: Turn) -> Any:
        yield TaskStatus(TaskState.INPUT_REQUIRED, turn.reply("Which?"))

    async with serving(rests, store=store) as service:
        sending = asyncio.ensure_future(ask(service, "begin"))
        task = await sending
        assert task.state is TaskState.INPUT_REQUIRED
        assert service.runs == {}
    return task.id


@in_loop
async def test_two_follow_ups_at_the_same_moment_to_a_resting_task_start_one_agent() -> None:
    store = MemoryStore()
    task_id = await resting_task(store)
    begun: list[str] = []
    finish = asyncio.Event()

    async def works(turn: Turn) -> Any:
        begun.append(turn.text)
        await finish.wait()
        yield f"{turn.text}, {await turn.ask('And?')}"

    async with serving(works, store=store) as service:
        answers = [asyncio.ensure_future(ask(service, text, task_id=task_id)) for text in ("one", "two")]
        await turns()
        finish.set()
        tasks = [await answer for answer in answers]
        assert begun == ["one"]
        assert {task.text for task in tasks} == {"one, two"}
        assert service.runs == {}


@in_loop
async def test_two_follow_ups_whose_reads_of_the_task_are_slow_start_one_agent() -> None:
    store = GatedStore()
    store.open_gate = True
    task_id = await resting_task(store)
    begun: list[str] = []

    async def works(turn: Turn) -> str:
        begun.append(turn.text)
        return f"{turn.text}, {await turn.ask('And?')}"

    async with serving(works, store=store) as service:
        store.reads_wait = True
        answers = [asyncio.ensure_future(ask(service, text, task_id=task_id)) for text in ("one", "two")]
        await turns()
        assert store.reading == 2
        store.let_read()
        store.let_read()
        store.reads_wait = False
        tasks = [await answer for answer in answers]
        assert begun == ["one"]
        assert {task.text for task in tasks} == {"one, two"}


@in_loop
async def test_of_two_follow_ups_an_agent_that_refuses_meanwhile_takes_the_first() -> None:
    store = MemoryStore()
    task_id = await resting_task(store)
    begun: list[str] = []

    async def works(turn: Turn) -> str:
        begun.append(turn.text)
        return turn.text

    async with serving(works, store=store, while_running="refuse") as service:
        answers = [asyncio.ensure_future(ask(service, text, task_id=task_id)) for text in ("one", "two")]
        assert (await answers[0]).text == "one"
        with pytest.raises(UnsupportedOperation):
            await answers[1]
        assert begun == ["one"]


@in_loop
async def test_a_follow_up_that_looks_up_references_while_its_task_is_let_go_starts_the_only_agent() -> None:
    """Between finding the task and giving it the message there is a wait: who else lets go of it meanwhile?"""
    store = GatedStore()
    store.open_gate = True
    other_id = await resting_task(store)
    task_id = await resting_task(store)
    begun: list[str] = []
    stopped: list[str] = []

    async def works(turn: Turn) -> Any:
        begun.append(turn.text)
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(turn.text)
        yield "never"

    async with serving(works, store=store) as service:
        watching = await service.subscribe_to_task(SubscribeToTaskRequest(task_id), CALLER)
        store.reads_wait = True
        sending = asyncio.ensure_future(ask(service, "one", task_id=task_id, references=(other_id,), at_once=True))
        await turns()
        assert store.reading == 1
        watching.close()
        store.let_read()
        store.reads_wait = False
        await sending
        await turns()
        assert begun == ["one"]
        second = asyncio.ensure_future(ask(service, "two", task_id=task_id))
        await turns()
        assert begun == ["one"], "a second agent works on the same task"
        ended = await service.cancel_task(CancelTaskRequest(task_id), CALLER)
        assert ended.value.state is TaskState.CANCELED
        assert stopped == ["one"], "CANCELED was told while the agent was at work"
        assert (await second).state is TaskState.CANCELED


@in_loop
async def test_a_follow_up_that_is_refused_leaves_no_run_behind() -> None:
    store = MemoryStore()
    task_id = await resting_task(store)

    async def works(turn: Turn) -> str:
        return turn.text

    async with serving(works, store=store) as service:
        with pytest.raises(InvalidParams):
            await ask(service, "one", task_id=task_id, context_id="another")
        assert service.runs == {}
    async with serving(works, store=store, limits=Limits(concurrent_runs=0)) as service:
        with pytest.raises(Overloaded):
            await ask(service, "one", task_id=task_id)
        assert service.runs == {}


@in_loop
async def test_a_stream_of_a_follow_up_ends_when_the_agent_asks_again_at_once() -> None:
    async def asks(turn: Turn) -> Any:
        answer = "begin"
        while answer != "enough":
            answer = await turn.ask(f"After {answer}?")
        yield "done"

    async with serving(asks) as service:
        task = await ask(service, "begin")
        for text in ("one", "two"):
            cursor = await service.send_streaming_message(says(text, task_id=task.id), CALLER)
            assert states(await rest_of(cursor))[-1] == "INPUT_REQUIRED"
        cursor = await service.send_streaming_message(says("enough", task_id=task.id), CALLER)
        assert states(await rest_of(cursor))[-1] == "COMPLETED"
        assert service.runs == {}


@pytest.mark.requirement("stream.progress-at-once", over=("direct",))
@in_loop
async def test_a_stream_of_a_follow_up_opens_while_its_agent_talks_without_a_pause() -> None:
    opened_at = 0
    said = 0

    async def talks(turn: Turn) -> Any:
        nonlocal said
        await turn.ask("Which?")
        for _ in range(2000):
            said += 1
            yield "x"

    async with serving(talks) as service:
        task = await ask(service, "begin")
        cursor = await service.send_streaming_message(says("this", task_id=task.id), CALLER)
        opened_at = said
        (snapshot, *_) = await next_of(cursor)
        assert opened_at < 100
        assert isinstance(snapshot, Task)
        events = [event for _, event in await rest_of(cursor)]
        chunks = [event for event in events if isinstance(event, TaskArtifactUpdateEvent)]
        assert len(snapshot.text) + len(chunks) == 2000


@pytest.mark.requirement("turns.input-required-goes-on", over=("direct",))
@in_loop
async def test_a_message_that_was_queued_is_worked_on_when_the_agent_comes_to_rest_without_asking() -> None:
    """It was taken with the promise to keep it for the agent's next question: the rest is that question."""
    go_on = asyncio.Event()
    begun: list[str] = []

    async def rests(turn: Turn) -> Any:
        begun.append(turn.text)
        if turn.text == "two":
            yield "got two"
            return
        yield "one"
        await go_on.wait()
        yield TaskStatus(TaskState.INPUT_REQUIRED, turn.reply("Which?"))

    async with serving(rests) as service:
        first = asyncio.ensure_future(ask(service, "one"))
        await turns()
        ((_, task_id),) = service.runs
        second = asyncio.ensure_future(ask(service, "two", task_id=task_id))
        await turns()
        go_on.set()
        await first
        await second
        await turns()
        assert begun == ["one", "two"]
        task = (await service.get_task(GetTaskRequest(task_id), CALLER)).value
        assert task.state is TaskState.COMPLETED


@in_loop
async def test_queued_messages_answer_the_questions_in_the_order_in_which_they_came() -> None:
    go_on = asyncio.Event()

    async def asks(turn: Turn) -> Any:
        yield "began"
        await go_on.wait()
        yield [str(await turn.ask(f"{number}?")) for number in range(3)]

    async with serving(asks) as service:
        first = asyncio.ensure_future(ask(service, "begin"))
        await turns()
        ((_, task_id),) = service.runs
        later = []
        for text in ("one", "two", "three"):
            later.append(asyncio.ensure_future(ask(service, text, task_id=task_id)))
            await turns(1)
        await turns()
        go_on.set()
        task = await first
        assert task.artifacts[0].parts[-1].data == ["one", "two", "three"]
        for one in later:
            assert (await one).state is TaskState.COMPLETED
        assert [message.text for message in task.history] == ["begin", "one", "two", "three"]


@in_loop
async def test_messages_beyond_the_limit_of_the_queue_are_refused_and_those_before_are_kept() -> None:
    go_on = asyncio.Event()

    async def asks(turn: Turn) -> Any:
        yield "began"
        await go_on.wait()
        yield [str(await turn.ask("?")) for _ in range(2)]

    async with serving(asks, limits=Limits(queued_messages=2)) as service:
        first = asyncio.ensure_future(ask(service, "begin"))
        await turns()
        ((_, task_id),) = service.runs
        for text in ("one", "two"):
            await ask(service, text, task_id=task_id, at_once=True)
        with pytest.raises(Overloaded):
            await ask(service, "three", task_id=task_id)
        go_on.set()
        assert (await first).artifacts[0].parts[-1].data == ["one", "two"]


@in_loop
async def test_a_caller_that_goes_away_before_its_answer_takes_nothing_with_it() -> None:
    """The request is cancelled at every step that it may be at; the agent has the message all the same."""
    for steps in range(12):
        store = GatedStore()
        store.open_gate = True
        task_id = await resting_task(store)

        async def works(turn: Turn) -> str:
            return f"got {turn.text}"

        async with serving(works, store=store) as service:
            store.open_gate = False
            sending = asyncio.ensure_future(ask(service, "one", task_id=task_id))
            await turns(steps)
            heard = bool(store.held)
            sending.cancel()
            await store.pass_through()
            record = await store.inner.get("0:/0:/", task_id)
            assert record is not None
            if heard:
                assert record.state is TaskState.COMPLETED, f"lost when the caller left after {steps} steps"
            assert service.runs == {}, f"left behind when the caller left after {steps} steps"


@pytest.mark.parametrize("followed", [False, True])
@in_loop
async def test_an_agent_that_is_put_to_work_again_begins_an_artifact_of_its_own(followed: bool) -> None:
    """Whether or not somebody has followed the task in between, which keeps its run."""
    store = MemoryStore()

    async def rests(turn: Turn) -> Any:
        yield f"got {turn.text}"
        if turn.text == "one":
            yield TaskStatus(TaskState.INPUT_REQUIRED, turn.reply("Which?"))

    async with serving(rests, store=store) as service:
        task = await ask(service, "one")
        watching = await service.subscribe_to_task(SubscribeToTaskRequest(task.id), CALLER) if followed else None
        ended = await ask(service, "two", task_id=task.id)
        assert [artifact.text for artifact in ended.artifacts] == ["got one", "got two"]
        if watching is not None:
            assert states(await rest_of(watching)) == ["INPUT_REQUIRED", "WORKING", "COMPLETED"]


@pytest.mark.requirement("resource.missing-like-forbidden", over=("direct",))
@in_loop
async def test_a_task_at_work_is_not_there_for_another_caller() -> None:
    async def asks(turn: Turn) -> Any:
        yield await turn.ask("Which?")

    async with serving(asks) as service:
        task = await ask(service, "begin")
        assert [id_ for _, id_ in service.runs] == [task.id]
        for other in (Caller(principal="bob"), Caller(tenant="acme"), Caller(principal="bob", tenant="acme")):
            for call in (
                service.get_task(GetTaskRequest(task.id), other),
                service.cancel_task(CancelTaskRequest(task.id), other),
                service.subscribe_to_task(SubscribeToTaskRequest(task.id), other),
                service.subscribe_to_task(SubscribeToTaskRequest(task.id), other, last_event_id=0),
                service.send_message(says("this", task_id=task.id), other),
                service.send_streaming_message(says("this", task_id=task.id), other),
            ):
                with pytest.raises(TaskNotFound):
                    await call
            assert (await service.list_tasks(ListTasksRequest(), other)).total_size == 0
        assert (await ask(service, "this", task_id=task.id)).text == "this"
