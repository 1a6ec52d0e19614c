"""What a store lets go of: ended tasks, the oldest first, no more than it has to; never one that has not ended."""

from __future__ import annotations

import pytest

from tests.engine.scene import in_loop
from tests.stores.conftest import Place
from tests.stores.writing import COMPLETED, WORKING, Ticks, Written, outcomes, write
from tieline.stores.base import Query, Retention, Store
from tieline.types import TaskState

ENDS = [state for state in TaskState if state.terminal]
LIVING = [WORKING, TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED, TaskState.SUBMITTED]
S = 1_000_000  # microseconds


async def ids(store: Store, scope: str = "0:/0:/") -> set[str]:
    found: set[str] = set()
    before = None
    while True:
        page = await store.list(Query(scope, 100, before=before))
        found |= {record.task_id for record in page.records}
        if not page.more:
            return found
        before = (page.records[-1].updated, page.records[-1].task_id)


@in_loop
async def test_without_limits_nothing_is_dropped(place: Place) -> None:
    async with place.opened(Retention()) as store:
        task = Written(Ticks())
        await write(store, task.make(), task.go(COMPLETED))
        assert (await store.prune(task.updated + 10**15)).tasks == 0
        assert await ids(store) == {task.task_id}


@in_loop
async def test_ended_tasks_go_when_their_time_is_over_and_not_before(place: Place) -> None:
    async with place.opened(Retention(ttl_s=60)) as store:
        ticks = Ticks()
        tasks = [Written(ticks, scope=f"0:/0:/{index % 2}") for index in range(4)]
        for task, end in zip(tasks, ENDS, strict=True):
            await write(store, task.make(), task.chunks("a"), task.go(end, streamed=True))
        for kept, task in enumerate(tasks):
            assert (await store.prune(task.updated + 60 * S)).tasks == 0
            pruned = await store.prune(task.updated + 60 * S + 1)
            assert pruned.tasks == 1
            assert pruned.bytes > 0
            assert await store.get(task.scope, task.task_id) is None
            assert not await store.events(task.scope, task.task_id, 0)
            left = await ids(store, "0:/0:/0") | await ids(store, "0:/0:/1")
            assert left == {other.task_id for other in tasks[kept + 1 :]}


@pytest.mark.parametrize("retention", [Retention(ttl_s=0), Retention(max_bytes=0), Retention(ttl_s=0, max_bytes=0)])
@in_loop
async def test_a_task_that_has_not_ended_is_never_dropped(place: Place, retention: Retention) -> None:
    async with place.opened(retention) as store:
        ticks = Ticks()
        living = [Written(ticks) for _ in LIVING]
        for task, state in zip(living, LIVING, strict=True):
            await write(store, task.make())
            if state.interrupted:
                await write(store, task.go(state, padding=100_000))
            await write(store, task.chunks("x" * 100_000))
        ended = [Written(ticks) for _ in range(5)]
        for task in ended:
            await write(store, task.make(), task.go(COMPLETED, padding=100_000))
        await store.prune(ticks.at + 10**15)
        assert await ids(store) == {task.task_id for task in living}
        for task in living:
            events = await store.events(task.scope, task.task_id, 0)
            assert [event.json for _, event in events or ()] == task.log
        await write(store, *(task.chunks("goes on") for task in living))


@in_loop
async def test_over_the_limit_of_bytes_the_oldest_ended_tasks_go_and_no_more_than_have_to(place: Place) -> None:
    limit = 2_000_000
    async with place.opened(Retention(max_bytes=limit)) as store:
        ticks = Ticks()
        living = Written(ticks)
        await write(store, living.make())
        ended = []
        for _ in range(40):  # of 100,000 bytes each, twice the limit
            task = Written(ticks)
            await write(store, task.make(), task.go(COMPLETED, padding=100_000))
            ended.append(task)
        await store.prune(ticks.at)
        left = await ids(store)
        assert living.task_id in left
        kept = [task.task_id in left for task in ended]
        assert kept == sorted(kept), "a newer task went before an older one"
        assert 12 <= sum(kept) <= 20, f"{sum(kept)} of 100,000 bytes are kept where {limit} may be"
        assert (await store.prune(ticks.at)).tasks == 0


@in_loop
async def test_the_logs_of_ended_tasks_count_as_bytes(place: Place) -> None:
    """A stream of small chunks has a log many times the size of its task."""
    limit = 2_000_000
    async with place.opened(Retention(max_bytes=limit)) as store:
        ticks = Ticks()
        ended = []
        for _ in range(20):  # of 200,000 bytes and more each
            task = Written(ticks)
            await write(store, task.make(), task.chunks(*["x" * 1000] * 200), task.go(COMPLETED, streamed=True))
            ended.append(task)
        await store.prune(ticks.at)
        held = 0
        for task in ended:
            held += sum(len(event.json) for _, event in await store.events(task.scope, task.task_id, 0) or ())
        assert held <= limit
        assert held >= limit // 3, "more was dropped than had to be"


@in_loop
async def test_one_prune_drops_all_that_is_over_its_time(place: Place) -> None:
    """However many: a prune that stops half-way never catches up with a busy server."""
    async with place.opened(Retention(ttl_s=1)) as store:
        ticks = Ticks()
        tasks = [Written(ticks) for _ in range(1200)]
        assert not any(await outcomes(store, [task.make() for task in tasks]))
        assert not any(await outcomes(store, [task.go(COMPLETED) for task in tasks]))
        late = Written(Ticks(ticks.at + 10 * S))
        await write(store, late.make(), late.go(COMPLETED))
        assert (await store.prune(ticks.at + 2 * S)).tasks == 1200
        assert await ids(store) == {late.task_id}


@in_loop
async def test_a_prune_beside_appends_of_the_same_turn_loses_none_of_them(place: Place) -> None:
    async with place.opened(Retention(ttl_s=0)) as store:
        ticks = Ticks()
        living, ended = Written(ticks), Written(ticks)
        await write(store, living.make(), ended.make())
        begun = [store.append(living.chunks("a")), store.append(ended.go(COMPLETED))]
        pruned = await store.prune(ticks.at + S)
        for one in begun:
            if one is not None:
                await one
        assert pruned.tasks == 1
        events = await store.events(living.scope, living.task_id, 0)
        assert [event.json for _, event in events or ()] == living.log
        assert await store.get(ended.scope, ended.task_id) is None


@in_loop
async def test_bytes_of_what_was_pruned_are_used_again(durable_place: Place) -> None:
    """A store with a limit of bytes does not grow without end while tasks come and go."""
    async with durable_place.opened(Retention(max_bytes=1_000_000)) as store:
        ticks = Ticks()
        sizes = []
        for round_ in range(6):
            for _ in range(10):
                task = Written(ticks)
                await write(store, task.make(), task.go(COMPLETED, padding=100_000))
            await store.prune(ticks.at)
            if round_:
                sizes.append(len(await ids(store)))
        assert max(sizes) <= 10
        assert min(sizes) >= 4
