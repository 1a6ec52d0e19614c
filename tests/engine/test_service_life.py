"""A service from its start to its end: orphans, limits, drain, several agents on one store."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.engine.gated import GatedStore
from tests.engine.scene import CALLER, ask, in_loop, next_of, rest_of, says, serving, states, turns
from tests.engine.test_follow_ups import resting_task
from tieline import Limits, TaskStatus, Turn, agent
from tieline.engine.service import Service
from tieline.errors import InternalError, TaskNotFound, Unavailable, UnsupportedOperation
from tieline.stores.memory import MemoryStore
from tieline.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    SubscribeToTaskRequest,
    TaskState,
)


@agent(name="Works", description="Works until it is stopped.")
async def works(turn: Turn) -> Any:
    yield "one"
    yield "two"
    await asyncio.Event().wait()


@agent(name="Asks", description="Asks.")
async def asks(turn: Turn) -> Any:
    yield f"got {await turn.ask('Which?')}"


@in_loop
async def test_orphans_of_an_earlier_process_are_ended_at_the_start_with_all_that_they_had() -> None:
    store = MemoryStore()
    lost = Service(works, store)
    await lost.start()
    tasks = [await ask(lost, "begin", at_once=True) for _ in range(3)]
    await turns(50)
    again = Service(works, store)  # the first is not closed: as if it had been killed
    await again.start()
    for task in tasks:
        found = (await again.get_task(GetTaskRequest(task.id), CALLER)).value
        assert found.state is TaskState.FAILED
        assert found.text == "onetwo"
        assert found.status.message is not None
        assert "stopped" in found.status.message.text
        with pytest.raises(UnsupportedOperation):
            await again.subscribe_to_task(SubscribeToTaskRequest(task.id), CALLER)
    assert again.runs == {}
    await again.close()
    await lost.close()


@in_loop
async def test_two_agents_on_one_store_know_nothing_of_each_others_tasks() -> None:
    store = MemoryStore()
    first, second = Service(works, store, namespace="first"), Service(asks, store, namespace="second")
    await first.start()
    await second.start()
    working, waiting = await ask(first, "begin", at_once=True), await ask(second, "begin")
    await turns()
    for service, other in ((first, waiting), (second, working)):
        with pytest.raises(TaskNotFound):
            await service.get_task(GetTaskRequest(other.id), CALLER)
        with pytest.raises(TaskNotFound):
            await service.cancel_task(CancelTaskRequest(other.id), CALLER)
        with pytest.raises(TaskNotFound):
            await ask(service, "this", task_id=other.id)
        assert (await service.list_tasks(ListTasksRequest(), CALLER)).total_size == 1
    again = Service(asks, store, namespace="second")
    await again.start()  # must not end what is at work under another name
    assert (await first.get_task(GetTaskRequest(working.id), CALLER)).value.state is TaskState.WORKING
    for service in (first, second, again):
        await service.close()


@in_loop
async def test_starts_at_the_same_moment_open_the_store_and_end_orphans_once() -> None:
    store = MemoryStore()
    lost = Service(works, store)
    await lost.start()
    task = await ask(lost, "begin", at_once=True)
    await turns()
    again = Service(works, store)
    starts = [asyncio.ensure_future(again.start()) for _ in range(5)]
    starts[0].cancel()
    await asyncio.wait(starts)
    assert [start.cancelled() for start in starts] == [True, False, False, False, False]
    record = await store.get("0:/0:/", task.id)
    assert record is not None
    assert record.state is TaskState.FAILED
    events = await store.events("0:/0:/", task.id, 0)
    assert events is None or sum(b"TASK_STATE_FAILED" in event.json for _, event in events) == 1
    await again.close()
    await lost.close()


@in_loop
async def test_at_the_limit_of_runs_new_tasks_are_refused_and_waiting_ones_can_still_be_answered() -> None:
    """What waits for its caller takes no place: else questions that nobody answers would fill the server for ever."""
    go_on = asyncio.Event()

    async def asks_or_works(turn: Turn) -> Any:
        if turn.text == "ask":
            yield f"got {await turn.ask('Which?')}"
        else:
            yield "one"
            await go_on.wait()

    async with serving(asks_or_works, limits=Limits(concurrent_runs=1)) as service:
        tasks = [await ask(service, "ask") for _ in range(3)]
        working = asyncio.ensure_future(ask(service, "work"))
        await turns()
        with pytest.raises(Unavailable):
            await ask(service, "ask")
        with pytest.raises(Unavailable):
            await service.send_streaming_message(says("ask"), CALLER)
        for task in tasks:
            assert (await ask(service, "this", task_id=task.id)).text == "got this"
        go_on.set()
        assert (await working).state is TaskState.COMPLETED
        assert (await ask(service, "ask")).state is TaskState.INPUT_REQUIRED
        assert service.busy == 0


@in_loop
async def test_at_the_limit_of_runs_a_message_for_an_agent_at_work_is_still_queued() -> None:
    go_on = asyncio.Event()

    async def works_then_asks(turn: Turn) -> Any:
        yield "one"
        await go_on.wait()
        yield f" {await turn.ask('And?')}"

    async with serving(works_then_asks, limits=Limits(concurrent_runs=1)) as service:
        first = asyncio.ensure_future(ask(service, "begin"))
        await turns()
        ((_, task_id),) = service.runs
        await ask(service, "two", task_id=task_id, at_once=True)
        go_on.set()
        assert (await first).text == "one two"


@in_loop
async def test_a_drain_lets_agents_finish_refuses_new_work_and_leaves_what_waits() -> None:
    go_on = asyncio.Event()

    async def either(turn: Turn) -> Any:
        if turn.text == "ask":
            yield await turn.ask("Which?")
        else:
            yield "one"
            await go_on.wait()
            yield " two"

    store = MemoryStore()
    async with serving(either, store=store) as service:
        waiting = await ask(service, "ask")
        working = asyncio.ensure_future(ask(service, "work"))
        await turns()
        draining = asyncio.ensure_future(service.drain(10.0))
        await turns()
        for task_id in (None, waiting.id):
            with pytest.raises(Unavailable):
                await ask(service, "more", task_id=task_id)
        assert (await service.get_task(GetTaskRequest(waiting.id), CALLER)).value.state is TaskState.INPUT_REQUIRED
        assert not draining.done()
        go_on.set()
        await draining
        assert (await working).text == "one two"
        await service.close()
        record = await store.get("0:/0:/", waiting.id)
        assert record is not None
        assert record.state is TaskState.INPUT_REQUIRED


@in_loop
async def test_a_close_ends_agents_at_work_with_a_reason_and_their_streams_with_it() -> None:
    async with serving(works.function) as service:
        cursor = await service.send_streaming_message(says("begin"), CALLER)
        blocking = asyncio.ensure_future(ask(service, "begin"))
        await next_of(cursor)
        await turns()
        reading = asyncio.ensure_future(rest_of(cursor))
        await service.close()
        assert states(await reading)[-1] == "FAILED"
        ended = await blocking
        assert ended.status.message is not None
        assert "server stopped" in ended.status.message.text
        assert service.runs == {}


@in_loop
async def test_a_close_waits_for_what_is_being_written() -> None:
    store = GatedStore()

    async def quick(turn: Turn) -> str:
        return "done"

    async with serving(quick, store=store) as service:
        sending = asyncio.ensure_future(ask(service, "begin"))
        await store.asked()
        closing = asyncio.ensure_future(service.close())
        await turns()
        assert not closing.done()
        store.release()
        await closing
        assert (await sending).text == "done"


@in_loop
async def test_a_run_that_goes_on_with_a_queued_message_is_still_the_one_that_is_known() -> None:
    """Its agent came to rest and was put to work again at once: a cancel in that moment has to reach it."""
    go_on = asyncio.Event()
    stopped: list[str] = []

    async def rests(turn: Turn) -> Any:
        if turn.text == "two":
            try:
                await asyncio.Event().wait()
            finally:
                stopped.append("stopped")
        yield "one"
        await go_on.wait()
        yield TaskStatus(TaskState.INPUT_REQUIRED, turn.reply("Which?"))

    async with serving(rests) as service:
        first = asyncio.ensure_future(ask(service, "one", at_once=True))
        await turns()
        task_id = (await first).id
        await ask(service, "two", task_id=task_id, at_once=True)
        go_on.set()
        await turns()
        assert [id_ for _, id_ in service.runs] == [task_id]
        assert (await service.get_task(GetTaskRequest(task_id), CALLER)).value.state is TaskState.WORKING
        ended = await service.cancel_task(CancelTaskRequest(task_id), CALLER)
        assert ended.value.state is TaskState.CANCELED
        assert stopped == ["stopped"]
        assert service.runs == {}


@in_loop
async def test_a_store_with_a_fault_of_its_own_breaks_the_task_off_instead_of_hanging_it() -> None:
    class Faulty(GatedStore):
        def append(self, append: Any) -> Any:
            raise RuntimeError("a fault of the store's author")

    async with serving(asks.function, store=Faulty()) as service:
        for at_once in (True, False):
            with pytest.raises(InternalError):
                await ask(service, "begin", at_once=at_once)
        await turns()
        assert service.runs == {}
        assert service.busy == 0


@in_loop
async def test_an_ended_task_of_a_quiet_service_costs_no_run_and_no_timer() -> None:
    async with serving(asks.function) as service:
        task = await ask(service, "begin")
        await ask(service, "this", task_id=task.id)
        assert service.runs == {}
        assert service.busy == 0
        store = MemoryStore()
        task_id = await resting_task(store)
        other = Service(service.agent, store)
        await other.start()
        for _ in range(3):
            assert (await other.get_task(GetTaskRequest(task_id), CALLER)).value.state is TaskState.INPUT_REQUIRED
            assert (await other.list_tasks(ListTasksRequest(), CALLER)).total_size == 1
        assert other.runs == {}
        await other.close()


@in_loop
async def test_a_task_that_changes_after_a_restart_is_newer_than_all_before_it_though_the_clock_was_set_back() -> None:
    store = MemoryStore()
    ahead = Service(asks, store)
    await ahead.start()
    ahead.clock.not_before(ahead.clock.tick()[0] + 3600 * 1_000_000)
    old = await ask(ahead, "begin")
    again = Service(asks, store)
    await again.start()
    new = await ask(again, "begin")
    listed = (await again.list_tasks(ListTasksRequest(), CALLER)).tasks
    assert [task.id for task in listed] == [new.id, old.id]
    await ask(again, "this", task_id=old.id)
    listed = (await again.list_tasks(ListTasksRequest(), CALLER)).tasks
    assert [task.id for task in listed] == [old.id, new.id]
    await again.close()
    await ahead.close()
