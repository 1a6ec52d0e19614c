"""What goes by how a task has ended, logs that go before their tasks, and counts of what is there."""

from __future__ import annotations

import pytest

from tests.engine.scene import in_loop
from tests.stores.conftest import Place
from tests.stores.writing import COMPLETED, WORKING, Ticks, Written, write
from tieline.stores.base import Keep, Pruned, Retention, Store
from tieline.types import TaskState

FAILED, CANCELED, REJECTED, ASKS = (
    TaskState.FAILED,
    TaskState.CANCELED,
    TaskState.REJECTED,
    TaskState.INPUT_REQUIRED,
)
S = 1_000_000  # microseconds


async def ended(store: Store, ticks: Ticks, *states: TaskState, padding: int = 0) -> list[Written]:
    """A task that has ended so, for each, one after the other."""
    tasks = [Written(ticks) for _ in states]
    for task, state in zip(tasks, states, strict=True):
        await write(store, task.make(), task.chunks("a" * padding), task.go(state, padding=padding, streamed=True))
    return tasks


async def left(store: Store) -> list[TaskState]:
    """How the tasks that are there have ended, the first one first."""
    return [task.record.state async for task in store.tasks()]


async def has_log(store: Store, task: Written) -> bool:
    events = await store.events(task.scope, task.task_id, 0)
    assert not events or [event.json for _, event in events] == task.log
    return bool(events)


@in_loop
async def test_a_state_has_a_time_of_its_own(place: Place) -> None:
    states = {FAILED: Keep(ttl_s=100), CANCELED: Keep(), REJECTED: Keep(ttl_s=0)}
    async with place.opened(Retention(ttl_s=10, states=states)) as store:
        ticks = Ticks()
        await ended(store, ticks, COMPLETED, FAILED, CANCELED, REJECTED, COMPLETED)
        living = Written(ticks)
        await write(store, living.make())
        pruned = await store.prune(ticks.at + S)
        assert (pruned.tasks, dict(pruned.states)) == (1, {REJECTED: 1})
        assert dict((await store.prune(ticks.at + 11 * S)).states) == {COMPLETED: 2}
        assert await left(store) == [FAILED, CANCELED, WORKING]
        assert dict((await store.prune(ticks.at + 101 * S)).states) == {FAILED: 1}
        assert (await store.prune(ticks.at + 10**9 * S)).tasks == 0
        assert await left(store) == [CANCELED, WORKING]


@in_loop
async def test_a_state_is_kept_by_its_bytes_the_oldest_go_first(place: Place) -> None:
    async with place.opened(Retention(states={FAILED: Keep(max_bytes=250_000)})) as store:
        ticks = Ticks()
        tasks = await ended(store, ticks, *[FAILED, COMPLETED] * 5, padding=40_000)  # twice that with their logs
        pruned = await store.prune(ticks.at)
        assert dict(pruned.states) == {FAILED: 2}
        assert pruned.bytes >= 2 * 80_000
        for task in tasks:
            gone = await store.get(task.scope, task.task_id) is None
            assert gone == (task in (tasks[0], tasks[2]))


@pytest.mark.parametrize("logs", [Keep(ttl_s=60), Keep(max_bytes=100_000)])
@in_loop
async def test_logs_go_before_their_tasks_the_oldest_first(place: Place, logs: Keep) -> None:
    async with place.opened(Retention(logs=logs)) as store:
        ticks = Ticks()
        old = await ended(store, ticks, COMPLETED, FAILED, padding=50_000)
        ticks.at += 120 * S
        (new,) = await ended(store, ticks, COMPLETED, padding=50_000)
        living, asks = Written(ticks), Written(ticks)
        await write(store, living.make(), living.chunks("x" * 200_000), asks.make(), asks.go(ASKS))
        pruned = await store.prune(ticks.at)
        assert (pruned.tasks, pruned.logs) == (0, 2)
        assert pruned.bytes >= 100_000
        for task in old:
            assert not await has_log(store, task)
            record = await store.get(task.scope, task.task_id)
            assert record is not None
            assert record.snapshot == task.snapshot
        for task in (new, living, asks):
            assert await has_log(store, task)
        assert (await store.prune(ticks.at)).logs == 0
        store.retention = Retention(ttl_s=60)
        pruned = await store.prune(ticks.at)
        assert (pruned.tasks, pruned.logs) == (2, 0)
        assert await left(store) == [COMPLETED, WORKING, ASKS]


@in_loop
async def test_a_prune_tells_how_far_it_is(place: Place) -> None:
    async with place.opened(Retention(ttl_s=0)) as store:
        ticks = Ticks()
        await ended(store, ticks, *[COMPLETED] * 30, *[FAILED] * 10)
        heard: list[Pruned] = []
        pruned = await store.prune(ticks.at + S, heard.append)
        assert dict(pruned.states) == {COMPLETED: 30, FAILED: 10}
        assert heard
        assert heard[-1] == pruned
        tasks = [one.tasks for one in heard]
        assert tasks == sorted(tasks)


@in_loop
async def test_what_is_there_is_counted(place: Place) -> None:
    async with place.opened(Retention(ttl_s=0)) as store:
        empty = await store.stats()
        assert (dict(empty.states), empty.events, empty.messages, empty.oldest) == ({}, 0, 0, None)
        ticks = Ticks()
        tasks = await ended(store, ticks, COMPLETED, FAILED, COMPLETED, padding=30_000)
        living = Written(ticks)
        await write(store, living.make(), living.chunks("a", "b"))
        full = await store.stats()
        assert dict(full.states) == {COMPLETED: 2, FAILED: 1, WORKING: 1}
        assert full.events == sum(len(task.log) for task in [*tasks, living])
        assert full.oldest == tasks[0].updated
        assert full.bytes >= 90_000
        await store.prune(ticks.at + S)
        after = await store.stats()
        assert (dict(after.states), after.events, after.oldest) == ({WORKING: 1}, len(living.log), living.updated)
        await write(store, living.go(COMPLETED))
        await store.prune(ticks.at + S)
        assert dict((await store.stats()).states) == {}
