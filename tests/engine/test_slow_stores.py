"""A store that takes its time: nothing is told before it is stored, and nobody waits for more than what is stored."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.engine.gated import GatedStore
from tests.engine.scene import CALLER, ask, in_loop, next_of, rest_of, says, serving, states, turns
from tieline import Turn
from tieline.errors import TaskNotFound
from tieline.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    SubscribeToTaskRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    load,
)


def texts(events: list[Any]) -> list[str]:
    return [event.artifact.text for event in events if isinstance(event, TaskArtifactUpdateEvent)]


@in_loop
async def test_a_blocking_send_answers_only_when_the_end_is_stored() -> None:
    store = GatedStore()

    async def quick(turn: Turn) -> str:
        return "done"

    async with serving(quick, store=store) as service:
        sending = asyncio.ensure_future(ask(service, "begin"))
        await store.asked()
        await turns()
        assert not sending.done()
        store.release()
        task = await sending
        assert (task.state, task.text) == (TaskState.COMPLETED, "done")


@in_loop
async def test_a_send_that_returns_at_once_names_no_task_that_is_not_stored() -> None:
    store = GatedStore()

    async def works(turn: Turn) -> str:
        await asyncio.Event().wait()
        return "never"

    async with serving(works, store=store) as service:
        sending = asyncio.ensure_future(ask(service, "begin", at_once=True))
        made = await store.asked()
        await turns()
        assert not sending.done()
        with pytest.raises((TaskNotFound, TimeoutError)):  # whether a reader waits for it is no matter
            async with asyncio.timeout(0.01):
                await service.get_task(GetTaskRequest(made.task_id), CALLER)
        assert (await service.list_tasks(ListTasksRequest(), CALLER)).total_size == 0
        store.release()
        assert (await sending).id == made.task_id
        read = await service.get_task(GetTaskRequest(made.task_id), CALLER)
        assert read.value.state is TaskState.WORKING


@in_loop
async def test_a_stream_shows_an_event_only_when_it_is_stored() -> None:
    store = GatedStore()
    told = asyncio.Event()

    async def works(turn: Turn) -> Any:
        yield "one "
        yield "two "
        await told.wait()
        yield "three"

    async with serving(works, store=store) as service:
        cursor = await service.send_streaming_message(says("begin"), CALLER)
        await store.asked()
        await turns()
        assert cursor.take() == (1, [])
        seen: list[Any] = []
        while len(texts(seen)) < 2:
            stored = await store.asked()
            assert len(seen) == stored.after
            store.release()
            seen += await next_of(cursor)
        told.set()
        while not cursor.ended:
            stored = await store.asked()
            await turns()
            _, early = cursor.take()
            seen += [event.value for event in early]
            assert len(seen) == stored.after, "an event was told before it was stored"
            store.release()
            seen += await next_of(cursor)
        assert texts(seen) == ["one ", "two ", "three"]
        cursor.close()


@in_loop
async def test_what_was_emitted_during_a_write_goes_into_one_write_behind_it() -> None:
    store = GatedStore()
    go_on = asyncio.Event()

    async def works(turn: Turn) -> Any:
        yield "0 "
        await go_on.wait()
        for number in range(1, 100):
            yield f"{number} "

    async with serving(works, store=store) as service:
        sending = asyncio.ensure_future(ask(service, "begin"))
        await store.asked()
        go_on.set()
        await turns(200)
        store.release()
        last = await store.asked()
        assert len(last.events) == 99 + 1
        store.release()
        assert (await sending).text == "".join(f"{number} " for number in range(100))
        assert len(store.appends) == 2


@in_loop
async def test_a_reader_of_the_task_waits_for_one_write_at_most() -> None:
    """However much is emitted behind the write that is under way."""
    store = GatedStore()
    steps: asyncio.Queue[str] = asyncio.Queue()

    async def works(turn: Turn) -> Any:
        while True:
            text = await steps.get()
            if text == "ask":
                await turn.ask("Which?")
            yield text

    async with serving(works, store=store) as service:
        steps.put_nowait("one ")
        sending = asyncio.ensure_future(ask(service, "begin", at_once=True))
        while not sending.done():
            await store.asked()
            store.release()
            await turns()
        task_id = sending.result().id
        steps.put_nowait("ask")
        await store.asked()
        reading = asyncio.ensure_future(service.get_task(GetTaskRequest(task_id), CALLER))
        answering = asyncio.ensure_future(service.send_message(says("this", task_id=task_id), CALLER))
        steps.put_nowait("two ")
        await turns()
        store.release()
        await turns()
        assert reading.done()
        assert reading.result().value.state in (TaskState.INPUT_REQUIRED, TaskState.WORKING)
        answering.cancel()
        await store.pass_through()


@in_loop
async def test_a_reader_sees_the_task_as_published_while_chunks_are_being_written() -> None:
    store = GatedStore()
    go_on = asyncio.Event()

    async def works(turn: Turn) -> Any:
        yield "one "
        await go_on.wait()
        yield "two "
        await asyncio.Event().wait()

    async with serving(works, store=store) as service:
        sending = asyncio.ensure_future(ask(service, "begin", at_once=True))
        await store.asked()
        store.release()
        task_id = (await sending).id
        await store.pass_through()
        go_on.set()
        await store.asked()
        read = await service.get_task(GetTaskRequest(task_id), CALLER)
        assert read.value.text == "one "
        (listed,) = (await service.list_tasks(ListTasksRequest(include_artifacts=True), CALLER)).tasks
        assert listed.text == "one "
        store.release()
        await turns()
        read = await service.get_task(GetTaskRequest(task_id), CALLER)
        assert read.value.text == "one two "


@pytest.mark.requirement("subscribe.nothing-lost", over=("direct",))
@in_loop
async def test_a_subscription_during_a_write_has_each_event_once() -> None:
    store = GatedStore()
    go_on = asyncio.Event()

    async def works(turn: Turn) -> Any:
        for number in range(4):
            yield f"{number} "
            await go_on.wait()
            go_on.clear()

    async with serving(works, store=store) as service:
        sending = asyncio.ensure_future(ask(service, "begin", at_once=True))
        await store.asked()
        store.release()
        task_id = (await sending).id
        await store.pass_through()
        cursors = []
        for _ in range(3):
            go_on.set()
            await store.asked()
            cursors.append(await service.subscribe_to_task(SubscribeToTaskRequest(task_id), CALLER))
            store.release()
            cursors.append(await service.subscribe_to_task(SubscribeToTaskRequest(task_id), CALLER))
        go_on.set()
        reading = [asyncio.ensure_future(rest_of(cursor)) for cursor in cursors]
        await store.pass_through()
        for reader in reading:
            (number, first), *later = await reader
            assert isinstance(first, Task)
            assert first.text + "".join(texts([event for _, event in later])) == "0 1 2 3 "
            assert [at for at, _ in later] == list(range(number + 1, number + 1 + len(later)))


@in_loop
async def test_a_subscription_while_the_end_is_being_written_ends() -> None:
    store = GatedStore()
    go_on = asyncio.Event()

    async def works(turn: Turn) -> Any:
        yield "one"
        await go_on.wait()

    async with serving(works, store=store) as service:
        sending = asyncio.ensure_future(ask(service, "begin", at_once=True))
        await store.asked()
        store.release()
        task_id = (await sending).id
        await store.pass_through()
        before = await service.subscribe_to_task(SubscribeToTaskRequest(task_id), CALLER)
        go_on.set()
        assert (await store.asked()).state is TaskState.COMPLETED
        resumed = asyncio.ensure_future(
            service.subscribe_to_task(SubscribeToTaskRequest(task_id), CALLER, last_event_id=3)
        )
        await turns()
        store.release()
        assert states(await rest_of(before))[-1] == "COMPLETED"
        assert states(await rest_of(await resumed)) == ["COMPLETED"]
        assert service.runs == {}


@pytest.mark.requirement("mode.blocking-waits", over=("direct",))
@in_loop
async def test_a_blocking_send_returns_no_task_at_work_though_another_caller_answers_meanwhile() -> None:
    """Question and answer may reach the store in one write: the first caller has to hear of a rest, not of WORKING."""
    store = GatedStore()
    go_on, finish = asyncio.Event(), asyncio.Event()

    async def asks(turn: Turn) -> Any:
        yield "one"
        await go_on.wait()
        yield "two"
        await turn.ask("Which?")
        await finish.wait()

    async with serving(asks, store=store) as service:
        first = asyncio.ensure_future(ask(service, "begin"))
        task_id = (await store.asked()).task_id
        store.release()
        await store.pass_through()
        go_on.set()
        await store.asked()
        await turns()
        second = asyncio.ensure_future(ask(service, "this", task_id=task_id))
        await turns()
        while store.held:
            store.release()
            await turns()
        if first.done():
            assert first.result().state is TaskState.INPUT_REQUIRED
        finish.set()
        await store.pass_through()
        assert (await second).state is TaskState.COMPLETED
        assert (await first).state in (TaskState.INPUT_REQUIRED, TaskState.COMPLETED)


@pytest.mark.requirement("cancel.returns-updated-task", over=("direct",))
@in_loop
async def test_a_cancel_while_a_write_is_under_way_is_told_when_it_is_stored_and_is_the_last_word() -> None:
    store = GatedStore()
    stopped = asyncio.Event()

    async def works(turn: Turn) -> Any:
        try:
            yield "one"
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with serving(works, store=store) as service:
        cursor = await service.send_streaming_message(says("begin"), CALLER)
        task_id = (await store.asked()).task_id
        cancelling = asyncio.ensure_future(service.cancel_task(CancelTaskRequest(task_id), CALLER))
        await stopped.wait()
        await turns()
        assert not cancelling.done()
        assert cursor.take()[1] == []
        store.release()
        await store.asked()
        await turns()
        assert not cancelling.done()
        store.release()
        assert (await cancelling).value.state is TaskState.CANCELED
        assert states(await rest_of(cursor)) == ["SUBMITTED", "WORKING", "CANCELED"]
        assert service.runs == {}


@pytest.mark.requirement("cancel.idempotent", over=("direct",))
@in_loop
async def test_cancels_of_one_task_at_the_same_moment_all_hear_of_the_one_end() -> None:
    store = GatedStore()

    async def works(turn: Turn) -> Any:
        yield "one"
        await asyncio.Event().wait()

    async with serving(works, store=store) as service:
        sending = asyncio.ensure_future(ask(service, "begin", at_once=True))
        await store.asked()
        store.release()
        task_id = (await sending).id
        cancels = [asyncio.ensure_future(service.cancel_task(CancelTaskRequest(task_id), CALLER)) for _ in range(3)]
        await store.pass_through()
        assert [(await cancel).value.state for cancel in cancels] == [TaskState.CANCELED] * 3
        assert sum(append.state is TaskState.CANCELED for append in store.appends) == 1


@in_loop
async def test_messages_that_were_heard_stand_in_the_history_in_order_with_the_questions() -> None:
    store = GatedStore()

    async def asks(turn: Turn) -> Any:
        first = await turn.ask("First?")
        second = await turn.ask("Second?")
        yield f"{first}, {second}"

    async with serving(asks, store=store) as service:
        sending = asyncio.ensure_future(ask(service, "begin"))
        await store.pass_through()
        task_id = (await sending).id
        answers = [
            asyncio.ensure_future(service.send_message(says(text, task_id=task_id), CALLER)) for text in ("one", "two")
        ]
        await turns()
        await store.pass_through()
        for answer in answers:
            await answer
        task = (await service.get_task(GetTaskRequest(task_id), CALLER)).value
        told = [message.text for message in task.history]
        assert told[:3] == ["begin", "First?", "one"]
        assert told.index("one") < told.index("two")
        assert task.text == "one, two"
        assert sorted(told) == sorted(set(told)), "a message stands twice in the history"


@in_loop
async def test_a_message_that_is_queued_behind_a_write_is_stored_before_its_caller_hears_of_it() -> None:
    store = GatedStore()
    go_on = asyncio.Event()

    async def works(turn: Turn) -> Any:
        yield turn.text
        await go_on.wait()
        if turn.text == "begin":
            yield f" {await turn.ask('And?')}"

    async with serving(works, store=store) as service:
        sending = asyncio.ensure_future(ask(service, "begin", at_once=True))
        await store.asked()
        store.release()
        task_id = (await sending).id
        await store.pass_through()
        queued = [asyncio.ensure_future(ask(service, text, task_id=task_id, at_once=True)) for text in ("two", "three")]
        await store.asked()
        await turns()
        assert not any(one.done() for one in queued)
        store.release()
        await turns()
        while store.held:
            store.release()
            await turns()
        for text, one in zip(("two", "three"), queued, strict=True):
            assert text in [message.text for message in (await one).history]
        go_on.set()
        await store.pass_through()
        record = await store.inner.get("0:/0:/", task_id)
        assert record is not None
        assert record.state is TaskState.COMPLETED
        task = load(record.snapshot, Task)
        assert [artifact.text for artifact in task.artifacts] == ["begin two", "three"]  # each was worked on


@in_loop
async def test_the_state_of_each_append_is_that_of_its_last_event_and_versions_have_no_gap() -> None:
    store = GatedStore()

    async def asks(turn: Turn) -> Any:
        await turn.status("reading")
        yield await turn.ask("Which?")
        yield await turn.ask("And?")

    async with serving(asks, store=store) as service:
        sending = asyncio.ensure_future(ask(service, "begin"))
        await store.pass_through()
        task_id = (await sending).id
        for text in ("one", "two"):
            answering = asyncio.ensure_future(ask(service, text, task_id=task_id))
            await store.pass_through()
            await answering
        version = 0
        for append in store.appends:
            assert append.after == version
            version += len(append.events)
            told = [event.value.status.state for event in append.events if hasattr(event.value, "status")]
            if told:
                assert append.state is told[-1]
            if append.after == 0 or append.state is not TaskState.WORKING:
                assert append.snapshot is not None, "a task that is made, rests or ends is stored whole"
        record = await store.inner.get("0:/0:/", task_id)
        assert record is not None
        assert (record.version, record.snapshot_version) == (version, version)
