"""Cancelling: the agent has stopped when CANCELED is told, whenever the cancel comes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.engine.scene import CALLER, ask, in_loop, rest_of, says, serving, states, turns
from tests.engine.test_follow_ups import resting_task
from tieline import Limits, Turn
from tieline.errors import TaskNotCancelable
from tieline.stores.memory import MemoryStore
from tieline.types import CancelTaskRequest, GetTaskRequest, SubscribeToTaskRequest, TaskState

TICK_S = 0.3  # longer than a service waits before it looks at the time its agents take


@in_loop
async def test_a_cancel_in_the_moment_of_a_follow_up_ends_the_task_whatever_the_agent_has_begun() -> None:
    """The agent may have been put to work and not have had its first turn of the loop yet."""
    at_work: list[str] = []

    async def works(turn: Turn) -> Any:
        at_work.append(turn.text)
        try:
            await asyncio.Event().wait()
        finally:
            at_work.clear()
        yield "never"

    for steps in range(12):
        store = MemoryStore()
        task_id = await resting_task(store)
        async with serving(works, store=store) as service:
            watching = await service.subscribe_to_task(SubscribeToTaskRequest(task_id), CALLER)
            sending = asyncio.ensure_future(ask(service, "one", task_id=task_id))
            await turns(steps)
            ended = await service.cancel_task(CancelTaskRequest(task_id), CALLER)
            assert ended.value.state is TaskState.CANCELED, f"the cancel came after {steps} steps"
            assert not at_work
            if steps:
                assert (await sending).state is TaskState.CANCELED
            else:
                await asyncio.wait([sending])
                assert sending.exception() is None or "takes no more messages" in str(sending.exception())
            assert states(await rest_of(watching))[-1] == "CANCELED"
            await turns()
            assert service.runs == {}
            assert service.busy == 0


@in_loop
async def test_a_follow_up_and_a_cancel_of_the_same_moment_leave_no_task_at_work() -> None:
    store = MemoryStore()
    task_id = await resting_task(store)

    async def works(turn: Turn) -> Any:
        await asyncio.Event().wait()
        yield "never"

    async with serving(works, store=store) as service:
        outcomes = await asyncio.gather(
            service.send_message(says("one", task_id=task_id), CALLER),
            service.cancel_task(CancelTaskRequest(task_id), CALLER),
            return_exceptions=True,
        )
        assert not isinstance(outcomes[1], BaseException)
        assert (await service.get_task(GetTaskRequest(task_id), CALLER)).value.state is TaskState.CANCELED
        await turns()
        assert service.runs == {}
        assert service.busy == 0


@pytest.mark.requirement("cancel.returns-updated-task", over=("direct",))
@in_loop
async def test_an_agent_that_does_not_stop_is_shown_as_it_is_and_its_end_stands() -> None:
    release = asyncio.Event()

    async def stubborn(turn: Turn) -> Any:
        yield "one"
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                yield "no"
        yield "two"

    async with serving(stubborn, limits=Limits(cancel_s=0.01)) as service:
        first = asyncio.ensure_future(ask(service, "begin"))
        await turns()
        ((_, task_id),) = service.runs
        shown = await service.cancel_task(CancelTaskRequest(task_id), CALLER)
        assert shown.value.state is TaskState.WORKING
        again = await service.cancel_task(CancelTaskRequest(task_id), CALLER)
        assert again.value.state is TaskState.WORKING
        release.set()
        assert (await first).state is TaskState.CANCELED
        with pytest.raises(TaskNotCancelable):
            await service.cancel_task(CancelTaskRequest(task_id), CALLER)
        assert service.runs == {}


@in_loop
async def test_an_agent_may_clean_up_and_say_so_when_it_is_cancelled() -> None:
    async def tidy(turn: Turn) -> None:
        try:
            await turn.status("working")
            await asyncio.Event().wait()
        finally:
            await turn.status("cleaning up")

    async with serving(tidy) as service:
        cursor = await service.send_streaming_message(says("begin"), CALLER)
        await turns()
        ((_, task_id),) = service.runs
        ended = await service.cancel_task(CancelTaskRequest(task_id), CALLER)
        assert ended.value.state is TaskState.CANCELED
        events = [event for _, event in await rest_of(cursor)]
        assert "cleaning up" in str(events[-2])
        assert service.runs == {}


@in_loop
async def test_an_agent_that_completes_while_it_is_being_cancelled_has_completed() -> None:
    async def last_word(turn: Turn) -> None:
        try:
            await turn.status("working")
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await turn.complete("done in time")

    async with serving(last_word) as service:
        first = asyncio.ensure_future(ask(service, "begin"))
        await turns()
        ((_, task_id),) = service.runs
        with pytest.raises(TaskNotCancelable):
            await service.cancel_task(CancelTaskRequest(task_id), CALLER)
        assert (await first).state is TaskState.COMPLETED


@in_loop
async def test_a_cancel_of_a_waiting_agent_ends_the_question_and_the_agent() -> None:
    stopped: list[str] = []

    async def asks(turn: Turn) -> Any:
        try:
            yield await turn.ask("Which?")
        finally:
            stopped.append("stopped")

    async with serving(asks) as service:
        task = await ask(service, "begin")
        watching = await service.subscribe_to_task(SubscribeToTaskRequest(task.id), CALLER)
        ended = await service.cancel_task(CancelTaskRequest(task.id), CALLER)
        assert ended.value.state is TaskState.CANCELED
        assert [message.text for message in ended.value.history] == ["begin", "Which?"]
        assert stopped == ["stopped"]
        assert states(await rest_of(watching)) == ["INPUT_REQUIRED", "CANCELED"]
        assert service.runs == {}


@in_loop
async def test_an_agent_that_is_out_of_time_ends_failed_and_says_why() -> None:
    async def slow(turn: Turn) -> Any:
        yield "one"
        await asyncio.Event().wait()

    async with serving(slow, limits=Limits(run_s=0.0)) as service:
        task = await ask(service, "begin")
        assert task.state is TaskState.FAILED
        assert task.status.message is not None
        assert "longer than 0 s" in task.status.message.text
        assert service.runs == {}


@in_loop
async def test_waiting_for_the_caller_does_not_count_as_time_of_the_agent() -> None:
    async def asks(turn: Turn) -> Any:
        answer = await turn.ask("Which?")
        await asyncio.sleep(TICK_S)  # so that a tick finds it at work
        yield f"got {answer}"

    async with serving(asks, limits=Limits(run_s=2 * TICK_S)) as service:
        task = await ask(service, "begin")
        (run,) = service.runs.values()
        loop = asyncio.get_running_loop()
        assert run.deadline is not None
        passed = loop.create_future()
        loop.call_at(run.deadline + TICK_S, passed.set_result, None)
        await passed
        ended = await ask(service, "this", task_id=task.id)
        assert (ended.state, ended.text) == (TaskState.COMPLETED, "got this")
