"""Carrying tasks from a store into another one: all of it goes over, and what is there already stays."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from tests.engine.scene import in_loop
from tests.stores.conftest import BACKENDS, Place
from tests.stores.writing import COMPLETED, WORKING, Ticks, Written, write
from tieline.stores.base import Query, SharedStore, Store, StoredTask
from tieline.types import TaskState

PAIRS = [(one, other) for one in BACKENDS for other in BACKENDS]
each_pair = pytest.mark.parametrize(("source", "target"), PAIRS, ids=["-to-".join(pair) for pair in PAIRS])

ASKS, FAILED = TaskState.INPUT_REQUIRED, TaskState.FAILED


class Places:
    """A place of each kind of store, made when it is first wanted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[str, Place] = {}

    def __getitem__(self, backend: str) -> Place:
        if backend not in self._made:
            (self._folder / backend).mkdir()
            self._made[backend] = Place(BACKENDS[backend], self._folder / backend)
        return self._made[backend]


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


async def all_of(store: Store) -> list[StoredTask]:
    return [task async for task in store.tasks()]


Told = tuple[str, str, str, TaskState, int, int, bytes, int, list[tuple[int, bytes]]]


def told(task: StoredTask) -> Told:
    """A task to compare with another one: without its owner, and its events as JSON."""
    record = task.record
    return (
        *(record.scope, record.task_id, record.context_id, record.state, record.updated, record.version),
        *(record.snapshot, record.snapshot_version, [(number, event.json) for number, event in task.events]),
    )


async def fill(store: Store, ticks: Ticks) -> list[Written]:
    """Tasks of several scopes in every state; some have the same id, logs of many rows, odd texts."""
    tasks = []
    for number, state in enumerate([*TaskState, *TaskState]):
        if state is TaskState.UNSPECIFIED:
            continue
        task = Written(ticks, f"{number % 3}:ü/\0", f"c{number % 2} 'é'", f"task-{number // 3}")
        await write(store, task.make(), task.chunks("one", "two\nlines"), task.chunks("three 🎈"))
        if state is not WORKING:
            await write(store, task.go(state, padding=number * 100, streamed=True))
        tasks.append(task)
    return tasks


@each_pair
@in_loop
async def test_a_round_trip_keeps_everything(places: Places, source: str, target: str) -> None:
    async with (
        places[source].opened() as first,
        places[target].opened() as second,
        places[source].opened() as third,
    ):
        tasks = await fill(first, Ticks())
        given = await all_of(first)
        assert [task.record.updated for task in given] == [task.updated for task in tasks]
        assert [[event.json for _, event in task.events] for task in given] == [task.log for task in tasks]
        assert await second.put(given) == len(tasks)
        carried = await all_of(second)
        assert [told(task) for task in carried] == [told(task) for task in given]
        assert {task.record.owner for task in carried} == {""}
        assert await third.put(carried) == len(tasks)
        assert [told(task) for task in await all_of(third)] == [told(task) for task in given]
        assert await second.open() == await third.open() == max(task.updated for task in tasks)
        assert (await second.stats()).states == (await third.stats()).states == (await first.stats()).states
        for scope in {task.scope for task in tasks}:
            for query in (Query(scope, 3), Query(scope, 99, "c1 'é'"), Query(scope, 99, None, COMPLETED)):
                pages = [await store.list(query) for store in (first, second, third)]
                ids = [[record.task_id for record in page.records] for page in pages]
                assert ids[0] == ids[1] == ids[2]
                assert pages[0].total == pages[1].total == pages[2].total


@each_pair
@in_loop
async def test_a_task_that_is_there_already_stays_as_it_is(places: Places, source: str, target: str) -> None:
    async with places[source].opened() as first, places[target].opened() as second:
        ticks = Ticks()
        old, new = Written(ticks, task_id="old"), Written(ticks, task_id="new")
        await write(first, old.make(), new.make(), old.go(FAILED, padding=50, streamed=True))
        there = Written(ticks, task_id="old", context_id="another")
        await write(second, there.make(), there.chunks("there"))
        given = await all_of(first)
        assert await second.put(given) == 1
        assert await second.put(given) == 0
        record = await second.get(there.scope, "old")
        assert record is not None
        assert (record.state, record.version, record.context_id) == (WORKING, 3, "another")
        events = await second.events(there.scope, "old", 0)
        assert [event.json for _, event in events or ()] == there.log
        await write(second, there.go(COMPLETED))
        assert (await second.stats()).states == {COMPLETED: 1, WORKING: 1}


@pytest.mark.parametrize("target", BACKENDS)
@in_loop
async def test_a_task_that_was_carried_goes_on_where_it_was(places: Places, target: str) -> None:
    async with places["memory"].opened() as first, places[target].opened() as second:
        ticks = Ticks()
        working, asks = Written(ticks), Written(ticks)
        await write(first, working.make(), working.chunks("a"), asks.make(), asks.go(ASKS))
        await second.put(await all_of(first))
        assert [record.task_id for record in await second.take("")] == [working.task_id]
        if second.shared:
            assert await cast(SharedStore, second).claim(asks.scope, asks.task_id, "") is not None
        for task in (working, asks):
            await write(second, task.chunks("b"), task.go(COMPLETED, streamed=True))
            events = await second.events(task.scope, task.task_id, 0)
            assert [(number, event.json) for number, event in events or ()] == list(enumerate(task.log, 1))


@in_loop
async def test_a_log_that_was_dropped_is_carried_as_none(places: Places) -> None:
    async with places["memory"].opened() as first:
        task = Written(Ticks())
        await write(first, task.make(), task.chunks("a"), task.go(COMPLETED, streamed=False))
        given = await all_of(first)
        assert not given[0].events
        for target in BACKENDS:
            async with places[target].opened() as second:
                assert await second.put(given) == 1
                assert [told(one) for one in await all_of(second)] == [told(one) for one in given]
                assert not await second.events(task.scope, task.task_id, 0)


@in_loop
async def test_tasks_are_given_once_though_they_change_meanwhile(place: Place) -> None:
    async with place.opened() as store:
        ticks = Ticks()
        tasks = [Written(ticks, scope=f"{number % 2}") for number in range(450)]
        for task in tasks:
            await write(store, task.make())
        seen: list[str] = []
        async for given in store.tasks():
            seen.append(given.record.task_id)
            if len(seen) % 3 == 0:  # one of those that were given, and one of those to come
                for task in (tasks[len(seen) // 2], tasks[-len(seen) // 3]):
                    if task.state is WORKING:
                        await write(store, task.go(COMPLETED if len(seen) % 2 else ASKS, streamed=True))
        assert len(seen) == len(set(seen))
        assert set(seen) == {task.task_id for task in tasks}


@in_loop
async def test_nothing_is_carried_of_an_empty_store(place: Place) -> None:
    async with place.opened() as store:
        assert await all_of(store) == []
        assert await store.put([]) == 0
