"""A store that fails: callers hear of it promptly, and nothing of the run is left behind."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.engine.gated import GatedStore
from tests.engine.scene import CALLER, ask, in_loop, next_of, rest_of, says, serving, states, turns
from tests.engine.test_follow_ups import resting_task
from tieline import Turn
from tieline.engine import upkeep as upkeep_module
from tieline.engine.cursor import Cursor
from tieline.errors import InternalError
from tieline.stores.base import Append, StoreError, VersionConflict
from tieline.stores.sqlite import SQLiteStore
from tieline.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)

FULL = StoreError("/var/lib/tasks.db: database or disk is full")


def open_store() -> GatedStore:
    store = GatedStore()
    store.open_gate = True
    return store


async def broken_off(cursor: Cursor) -> int:
    """Read a stream to the point where it breaks off; how many events there were."""
    count = 0
    while not cursor.ended:
        _, events = cursor.take()
        count += len(events)
        if not events:
            await cursor.wait()
    assert isinstance(cursor.failure, InternalError)
    cursor.close()
    return count


@in_loop
async def test_a_send_whose_task_cannot_be_stored_gets_an_error_and_leaves_nothing() -> None:
    store = GatedStore()
    stopped: list[str] = []

    async def works(turn: Turn) -> Any:
        try:
            yield "one"
            await asyncio.Event().wait()
        finally:
            stopped.append("stopped")

    async with serving(works, store=store) as service:
        for at_once in (True, False):
            sending = asyncio.ensure_future(ask(service, "begin", at_once=at_once))
            await store.asked()
            store.fail(FULL)
            with pytest.raises(InternalError) as error:
                await sending
            assert "/var/lib" not in str(error.value)
            await turns()
            assert service.runs == {}
            assert service.busy == 0
        assert stopped == ["stopped", "stopped"]


@pytest.mark.requirement("system.errors-logged", over=("direct",))
@in_loop
async def test_a_store_that_fails_at_once_is_logged_with_its_sentence(caplog: pytest.LogCaptureFixture) -> None:
    store = open_store()
    store.refuse_now = FULL

    async def works(turn: Turn) -> Any:
        yield "one"

    async with serving(works, store=store) as service:
        with caplog.at_level(logging.ERROR), pytest.raises(InternalError):
            await ask(service, "begin")
        assert str(FULL) in caplog.text
        await turns()
        assert service.runs == {}
        assert service.busy == 0


@in_loop
async def test_a_store_that_fails_while_a_stream_is_open_breaks_it_off_with_the_reason() -> None:
    store = open_store()
    go_on = asyncio.Event()

    async def works(turn: Turn) -> Any:
        yield "one"
        await go_on.wait()
        yield "two"
        await asyncio.Event().wait()

    async with serving(works, store=store) as service:
        sent = await service.send_streaming_message(says("begin"), CALLER)
        await turns()
        ((_, task_id),) = service.runs
        subscribed = await service.subscribe_to_task(SubscribeToTaskRequest(task_id), CALLER)
        blocking = asyncio.ensure_future(ask(service, "queued", task_id=task_id))
        await turns()
        store.open_gate = False
        go_on.set()
        await store.asked()
        readers = [asyncio.ensure_future(broken_off(cursor)) for cursor in (sent, subscribed)]
        await turns()
        store.fail(FULL)
        assert [await reader for reader in readers] == [3, 1]
        with pytest.raises(InternalError):
            await blocking
        await turns()
        assert service.runs == {}
        assert service.busy == 0


@pytest.mark.parametrize("reaction", ["status", "yield", "ask", "swallow"])
@in_loop
async def test_an_agent_that_goes_on_talking_behind_a_failure_of_the_store_leaves_nothing(reaction: str) -> None:
    store = GatedStore()
    ended = asyncio.Event()

    async def talks(turn: Turn) -> Any:
        try:
            yield "one"
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            try:
                if reaction == "status":
                    await turn.status("cleaning up")
                elif reaction == "yield":
                    yield "more"
                elif reaction == "ask":
                    await turn.ask("What now?")
            finally:
                ended.set()

    async with serving(talks, store=store) as service:
        sending = asyncio.ensure_future(ask(service, "begin"))
        made = await store.asked()
        store.fail(FULL)
        with pytest.raises(InternalError):
            await sending
        await ended.wait()
        await turns()
        assert service.runs == {}, f"the run of {made.task_id} is kept"
        assert service.busy == 0


@pytest.mark.parametrize("refused_at_once", [True, False])
@pytest.mark.parametrize("returns_at_once", [True, False])
@in_loop
async def test_a_follow_up_whose_message_cannot_be_stored_leaves_a_task_that_can_be_asked_again(
    refused_at_once: bool, returns_at_once: bool
) -> None:
    store = open_store()
    task_id = await resting_task(store)
    begun: list[str] = []

    async def works(turn: Turn) -> str:
        begun.append(turn.text)
        return f"got {turn.text}"

    async with serving(works, store=store) as service:
        store.open_gate = False
        store.refuse_now = FULL if refused_at_once else None
        sending = asyncio.ensure_future(ask(service, "one", task_id=task_id, at_once=returns_at_once))
        await turns()
        if store.held:
            store.fail(FULL)
        with pytest.raises(InternalError):
            await sending
        await turns()
        assert service.runs == {}
        assert service.busy == 0
        store.refuse_now = None
        store.open_gate = True
        task = (await service.get_task(GetTaskRequest(task_id), CALLER)).value
        assert task.state is TaskState.INPUT_REQUIRED
        assert (await ask(service, "two", task_id=task_id)).text == "got two"
        assert "two" in begun


@in_loop
async def test_a_stream_of_a_follow_up_that_cannot_be_stored_is_refused_before_it_opens() -> None:
    store = open_store()
    task_id = await resting_task(store)

    async def works(turn: Turn) -> str:
        return f"got {turn.text}"

    async with serving(works, store=store) as service:
        store.refuse_now = FULL
        with pytest.raises(InternalError):
            await service.send_streaming_message(says("one", task_id=task_id), CALLER)
        await turns()
        assert service.runs == {}


@pytest.mark.parametrize("state", ["WORKING", "chunks"])
@in_loop
async def test_a_task_whose_store_has_failed_does_not_say_working_for_ever(state: str) -> None:
    store = open_store()
    go_on = asyncio.Event()

    async def works(turn: Turn) -> Any:
        yield "one"
        await go_on.wait()
        yield "two"

    async with serving(works, store=store) as service:
        first = asyncio.ensure_future(ask(service, "begin"))
        await turns()
        ((_, task_id),) = service.runs
        store.refuse_now = FULL
        go_on.set()
        with pytest.raises(InternalError):
            await first
        await turns()
        store.refuse_now = None
        if state == "WORKING":
            task = (await service.get_task(GetTaskRequest(task_id), CALLER)).value
            assert task.state is TaskState.FAILED
            assert task.text == "one"
        else:
            with pytest.raises(Exception, match="has ended"):
                await service.subscribe_to_task(SubscribeToTaskRequest(task_id), CALLER)
        assert service.runs == {}


@in_loop
async def test_a_cancel_that_cannot_be_stored_is_an_error_and_the_agent_has_stopped() -> None:
    store = open_store()
    stopped: list[str] = []

    async def works(turn: Turn) -> Any:
        try:
            yield "one"
            await asyncio.Event().wait()
        finally:
            stopped.append("stopped")

    async with serving(works, store=store) as service:
        first = asyncio.ensure_future(ask(service, "begin"))
        await turns()
        ((_, task_id),) = service.runs
        store.refuse_now = FULL
        with pytest.raises(InternalError):
            await service.cancel_task(CancelTaskRequest(task_id), CALLER)
        with pytest.raises(InternalError):
            await first
        assert stopped == ["stopped"]
        await turns()
        assert service.runs == {}


@in_loop
async def test_a_conflict_with_another_writer_ends_the_run_and_the_task_stays_as_the_other_wrote_it() -> None:
    store = open_store()
    go_on = asyncio.Event()

    async def works(turn: Turn) -> Any:
        yield "one"
        await go_on.wait()
        yield "two"

    async with serving(works, store=store) as service:
        cursor = await service.send_streaming_message(says("begin"), CALLER)
        await turns()
        store.open_gate = False
        go_on.set()
        await store.asked()
        store.fail(VersionConflict("the task has been changed by another writer"))
        await turns()
        store.open_gate = True
        assert await broken_off(cursor) == 3
        await turns()
        assert service.runs == {}


@in_loop
async def test_a_start_whose_orphans_cannot_be_ended_is_a_store_error_and_can_be_tried_again() -> None:
    store = open_store()

    async def works(turn: Turn) -> Any:
        yield "one"
        await asyncio.Event().wait()

    async with serving(works, store=store) as service:
        sending = asyncio.ensure_future(ask(service, "begin", at_once=True))
        task = await sending
        store.refuse_now = FULL  # the end of the run cannot be stored: an orphan stays
    from tieline import agent
    from tieline.engine.service import Service

    again = Service(agent(works), store)
    with pytest.raises(StoreError):
        await again.start()
    assert again.runs == {}
    store.refuse_now = None
    await again.start()
    ended = (await again.get_task(GetTaskRequest(task.id), CALLER)).value
    assert isinstance(ended, Task)
    assert ended.state is TaskState.FAILED
    await again.close()


@in_loop
async def test_of_tasks_that_are_written_together_one_that_cannot_be_is_broken_off_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    path = tmp_path / "tasks.db"
    store = SQLiteStore(path)
    go_on = asyncio.Event()

    async def works(turn: Turn) -> Any:
        yield "one"
        await go_on.wait()
        yield " two"

    async with serving(works, store=store) as service:
        cursors = [await service.send_streaming_message(says("begin"), CALLER) for _ in range(5)]
        tasks = []
        for cursor in cursors:
            (task, *_) = await next_of(cursor)
            assert isinstance(task, Task)
            tasks.append(task)
        await turns()
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("UPDATE tasks SET version=version+1 WHERE id=?", (tasks[2].id,))
        go_on.set()
        for index, cursor in enumerate(cursors):
            if index == 2:
                assert await broken_off(cursor) <= 2
            else:
                events = await rest_of(cursor)
                assert states(events)[-1] == "COMPLETED"
        await turns()
        assert service.runs == {}


def test_a_task_that_a_failing_store_left_at_work_is_ended_when_the_store_is_well_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upkeep_module, "_LOST_S", 0.01)

    class Refusing(GatedStore):
        def __init__(self) -> None:
            super().__init__()
            self.open_gate = True
            self.refusals = 0
            self.refused_thrice = asyncio.Event()

        def append(self, append: Append) -> asyncio.Future[Any] | None:
            if self.refuse_now is not None:
                self.refusals += 1
                if self.refusals == 3:
                    self.refused_thrice.set()
            return super().append(append)

    @in_loop
    async def check() -> None:
        store = Refusing()
        go_on = asyncio.Event()
        ended = asyncio.Event()

        def note(append: Append) -> None:
            if append.state.terminal:
                ended.set()

        async def works(turn: Turn) -> Any:
            yield "one"
            await go_on.wait()
            yield "two"

        async with serving(works, store=store) as service:
            task = await ask(service, "begin", at_once=True)
            await turns()
            store.refuse_now = FULL
            go_on.set()
            await store.refused_thrice.wait()  # what the agent said, and two tries to end its task
            store.when_stored = note
            store.refuse_now = None
            await ended.wait()
            listed = await service.list_tasks(ListTasksRequest(), CALLER)
            assert [(found.id, found.state) for found in listed.tasks] == [(task.id, TaskState.FAILED)]
            assert service.runs == {}

    check()
