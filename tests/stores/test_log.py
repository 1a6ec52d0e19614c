"""A task in a store: its snapshot, its log, its version, and who may see it."""

from __future__ import annotations

import pytest

from tests.engine.scene import in_loop
from tests.stores.conftest import Place
from tests.stores.writing import COMPLETED, WORKING, Ticks, Written, adopt, outcomes, write
from tieline.event import Event
from tieline.stores.base import Append, Query, Record, Retention, Store, VersionConflict
from tieline.types import TaskState

ASKS = (TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED)


async def log_of(store: Store, task: Written, after: int = 0) -> list[tuple[int, bytes]]:
    return [(number, event.json) for number, event in await store.events(task.scope, task.task_id, after) or ()]


async def record_of(store: Store, task: Written) -> Record:
    record = await store.get(task.scope, task.task_id)
    assert record is not None
    return record


@in_loop
async def test_a_new_store_is_empty_and_may_be_opened_twice(place: Place) -> None:
    async with place.opened() as store:
        assert await store.open() == 0
        assert await store.open() == 0
        assert await store.get("s", "t") is None
        assert not await store.events("s", "t", 0)
        page = await store.list(Query("s", 10))
        assert (page.records, page.total, page.more) == ([], 0, False)
        assert list(await store.take("")) == []


@in_loop
async def test_a_task_is_kept_as_it_was_written(place: Place) -> None:
    async with place.opened() as store:
        task = Written(Ticks(), scope="3:ann/0:/", context_id="ctx")
        await write(store, task.make())
        record = await record_of(store, task)
        assert (record.scope, record.task_id, record.context_id) == ("3:ann/0:/", task.task_id, "ctx")
        assert (record.state, record.updated, record.version) == (WORKING, task.updated, 2)
        assert (record.snapshot, record.snapshot_version) == (task.snapshot, 2)


@in_loop
async def test_chunks_leave_the_snapshot_where_it_is_and_an_end_brings_it_up(place: Place) -> None:
    async with place.opened() as store:
        task = Written(Ticks())
        await write(store, task.make(), task.chunks("a", "b"), task.chunks("c"))
        record = await record_of(store, task)
        assert (record.version, record.snapshot_version, record.snapshot) == (5, 2, task.snapshot)
        await write(store, task.go(COMPLETED))
        record = await record_of(store, task)
        assert (record.version, record.snapshot_version, record.snapshot) == (6, 6, task.snapshot)
        assert record.state is COMPLETED


@in_loop
async def test_a_message_that_was_heard_changes_the_snapshot_without_an_event(place: Place) -> None:
    async with place.opened() as store:
        task = Written(Ticks())
        await write(store, task.make(), task.chunks("a"))
        heard = Append(task.scope, task.task_id, "c", 3, [], WORKING, task.updated, b'{"heard":1}', False)
        await write(store, heard, task.chunks("b"))
        record = await record_of(store, task)
        assert (record.version, record.snapshot_version, record.snapshot) == (4, 3, b'{"heard":1}')
        assert await log_of(store, task) == list(enumerate(task.log, 1))


@in_loop
async def test_events_are_numbered_from_one_without_gaps_and_read_behind_any_of_them(place: Place) -> None:
    async with place.opened() as store:
        task = Written(Ticks())
        await write(
            store, task.make(), task.chunks("a", "b", "c"), task.chunks("d"), task.go(ASKS[0]), task.go(WORKING)
        )
        assert len(task.log) == 8
        for after in range(len(task.log) + 2):
            assert await log_of(store, task, after) == list(enumerate(task.log, 1))[after:]


@in_loop
async def test_an_event_comes_back_as_the_value_and_the_bytes_that_it_was(place: Place) -> None:
    async with place.opened() as store:
        task = Written(Ticks())
        text = 'two\nlines, a "quote", \0 and 🎈'
        await write(store, task.make(), task.chunks(text))
        *_, (_, event) = await store.events(task.scope, task.task_id, 2) or ()
        assert event.value == task.chunk(text)
        assert event.json == Event(task.chunk(text)).json


@in_loop
async def test_the_log_of_an_ended_task_that_was_streamed_is_there_for_a_reconnect(place: Place) -> None:
    async with place.opened() as store:
        task = Written(Ticks())
        await write(store, task.make(), task.chunks("a"), task.go(COMPLETED, streamed=True))
        assert await log_of(store, task, 1) == list(enumerate(task.log, 1))[1:]


@in_loop
async def test_the_log_of_an_ended_task_is_whole_or_none(place: Place) -> None:
    async with place.opened() as store:
        task = Written(Ticks())
        await write(store, task.make(), task.chunks("a"), task.go(COMPLETED))
        events = await store.events(task.scope, task.task_id, 0)
        assert events is None or [(number, event.json) for number, event in events] == list(enumerate(task.log, 1))


@pytest.mark.parametrize("snapshot", [None, b'{"wrong":1}'])
@pytest.mark.parametrize(("after", "events"), [(1, 1), (1, 4), (2, 1), (2, 2), (4, 1), (7, 1)])
@in_loop
async def test_an_append_behind_another_version_is_a_conflict_and_changes_nothing(
    place: Place, after: int, events: int, snapshot: bytes | None
) -> None:
    async with place.opened() as store:
        ticks = Ticks()
        task = Written(ticks)
        await write(store, task.make(), task.chunks("a"))
        late = [Event(task.chunk("late"))] * events
        state = WORKING if snapshot is None else COMPLETED
        append = Append(task.scope, task.task_id, "c", after, late, state, ticks.next(), snapshot, False)
        (error,) = await outcomes(store, [append])
        assert isinstance(error, VersionConflict)
        record = await record_of(store, task)
        assert (record.version, record.state, record.snapshot) == (3, WORKING, task.snapshot)
        assert record.updated == task.updated
        assert await log_of(store, task) == list(enumerate(task.log, 1))
        await write(store, task.chunks("goes on"))


@in_loop
async def test_making_a_task_that_is_there_is_a_conflict_and_changes_nothing(place: Place) -> None:
    async with place.opened() as store:
        task = Written(Ticks())
        first = task.make()
        await write(store, first, task.chunks("a"))
        (error,) = await outcomes(store, [first])
        assert isinstance(error, VersionConflict)
        assert (await record_of(store, task)).version == 3
        assert await log_of(store, task) == list(enumerate(task.log, 1))
        await write(store, task.chunks("goes on"))


@in_loop
async def test_an_append_to_a_task_that_is_not_there_is_a_conflict(place: Place) -> None:
    async with place.opened() as store:
        task = Written(Ticks())
        task.make()
        (error,) = await outcomes(store, [task.chunks("a")])
        assert isinstance(error, VersionConflict)
        assert await store.get(task.scope, task.task_id) is None


@in_loop
async def test_of_a_batch_with_a_conflict_the_others_are_written_and_only_that_one_fails(place: Place) -> None:
    async with place.opened() as store:
        ticks = Ticks()
        old, ended, stale = Written(ticks), Written(ticks), Written(ticks)
        await write(store, old.make(), ended.make(), stale.make(), stale.chunks("by the other writer"))
        late = Append(stale.scope, stale.task_id, "c", 2, [Event(stale.chunk())], COMPLETED, ticks.next(), b"{}", False)
        new = Written(ticks)
        batch = [old.chunks("a"), new.make(), late, ended.go(COMPLETED)]
        errors = await outcomes(store, batch)
        assert [type(error) for error in errors] == [type(None), type(None), VersionConflict, type(None)]
        for task in (old, new, stale):
            assert await log_of(store, task) == list(enumerate(task.log, 1))
        assert (await record_of(store, ended)).state is COMPLETED
        assert (await record_of(store, stale)).version == 3
        await write(store, old.chunks("b"), new.chunks("b"), stale.chunks("b"))


@in_loop
async def test_many_appends_of_one_turn_are_all_written(place: Place) -> None:
    async with place.opened() as store:
        ticks = Ticks()
        tasks = [Written(ticks) for _ in range(50)]
        assert not any(await outcomes(store, [task.make() for task in tasks]))
        assert not any(await outcomes(store, [task.chunks("a", "b") for task in tasks]))
        for task in tasks:
            assert await log_of(store, task) == list(enumerate(task.log, 1))


@in_loop
async def test_a_read_in_the_turn_of_an_append_sees_it(place: Place) -> None:
    async with place.opened() as store:
        task = Written(Ticks())
        begun = store.append(task.make())
        assert (await record_of(store, task)).version == 2
        if begun is not None:
            await begun
        begun = store.append(task.chunks("a"))
        assert await log_of(store, task) == list(enumerate(task.log, 1))
        if begun is not None:
            await begun


@in_loop
async def test_a_record_that_was_read_is_not_altered_by_later_appends(place: Place) -> None:
    async with place.opened() as store:
        task = Written(Ticks())
        await write(store, task.make())
        got = await record_of(store, task)
        (listed,) = (await store.list(Query(task.scope, 10))).records
        (open_,) = await store.take("")
        before = [(one.state, one.updated, one.version, one.snapshot) for one in (got, listed, open_)]
        await write(store, task.chunks("a"), task.go(COMPLETED))
        assert [(one.state, one.updated, one.version, one.snapshot) for one in (got, listed, open_)] == before


@pytest.mark.requirement("list.only-visible-tasks")
@in_loop
async def test_a_scope_never_sees_a_task_of_another(place: Place) -> None:
    async with place.opened() as store:
        ticks = Ticks()
        scopes = ["0:/0:/", "0:/0:/a", "0:/1:a/", "1:x/0:/", "1:x/0:/a", "0:/0:/A", "0:/0:/%", "0:/0:/a "]
        tasks = [Written(ticks, scope=scope) for scope in scopes]
        await write(store, *(task.make() for task in tasks))
        for task in tasks:
            page = await store.list(Query(task.scope, 10))
            assert ([record.task_id for record in page.records], page.total) == ([task.task_id], 1)
            for other in tasks:
                if other is not task:
                    assert await store.get(task.scope, other.task_id) is None
                    assert not await store.events(task.scope, other.task_id, 0)
                    theft = Append(
                        task.scope, other.task_id, "c", 2, [Event(task.chunk())], COMPLETED, ticks.next(), b"{}", False
                    )
                    (error,) = await outcomes(store, [theft])
                    assert isinstance(error, VersionConflict)
        assert {record.task_id for record in await store.take("0:/")} == {
            task.task_id for task in tasks if task.scope.startswith("0:/")
        }


@in_loop
async def test_unfinished_are_those_at_work_and_not_those_that_rest_or_ended(place: Place) -> None:
    async with place.opened() as store:
        ticks = Ticks()
        tasks = [Written(ticks, state=state) for state in (WORKING, TaskState.SUBMITTED, *ASKS)]
        await write(store, *(task.make() for task in tasks))
        ended = [Written(ticks) for state in TaskState if state.terminal]
        for task, state in zip(ended, (state for state in TaskState if state.terminal), strict=True):
            await write(store, task.make(), task.go(state))
        back = Written(ticks)
        await write(store, back.make(), back.go(ASKS[0]), back.go(WORKING), back.chunks("a"))
        found = {record.task_id: record for record in await store.take("")}
        assert set(found) == {tasks[0].task_id, tasks[1].task_id, back.task_id}
        assert found[back.task_id].version == 5
        assert list(await store.take("another/")) == []


@in_loop
async def test_a_store_that_was_closed_and_opened_has_all_that_was_written(durable_place: Place) -> None:
    async with durable_place.opened() as store:
        ticks = Ticks()
        working, resting, ended = Written(ticks), Written(ticks), Written(ticks)
        await write(store, working.make(), resting.make(), ended.make(), working.chunks("a", "b"))
        await write(store, resting.go(ASKS[0]), ended.go(COMPLETED))
        unheard = store.append(working.chunks("in the moment of closing"))
    if unheard is not None:
        await unheard

    async with durable_place.reopened() as store:
        assert await store.open() == ended.updated
        for task in (working, resting, ended):
            record = await record_of(store, task)
            assert (record.state, record.updated, record.version) == (task.state, task.updated, len(task.log))
            assert (record.snapshot, record.snapshot_version) == (task.snapshot, task.snapshot_version)
            assert await log_of(store, task) == list(enumerate(task.log, 1))
        assert [record.task_id for record in await store.take("")] == [working.task_id]
        new = Written(ticks)
        await adopt(store, resting)
        await write(store, working.go(COMPLETED), resting.go(WORKING), new.make(), new.chunks("a"))
        assert [len(await log_of(store, task)) for task in (working, resting, new)] == [6, 4, 3]


@in_loop
async def test_what_was_pruned_does_not_come_back_with_a_number_that_is_used_again(durable_place: Place) -> None:
    """Rows may be numbered; a new task must not find the log of one that is gone."""
    async with durable_place.opened() as store:
        ticks = Ticks()
        old = Written(ticks)
        await write(store, old.make(), old.chunks("old"), old.go(COMPLETED))
    async with durable_place.reopened(Retention(ttl_s=1)) as store:
        assert (await store.prune(ticks.at + 10_000_000)).tasks == 1
    async with durable_place.reopened() as store:
        new = Written(ticks)
        await write(store, new.make())
        assert await log_of(store, new) == list(enumerate(new.log, 1))
        assert await store.get(old.scope, old.task_id) is None
