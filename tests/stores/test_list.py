"""Lists and whole lives of stores against naive models."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.scene import in_loop
from tests.stores.conftest import Place
from tests.stores.writing import COMPLETED, WORKING, Ticks, Written, adopt, outcomes, write
from tieline.event import Event
from tieline.stores.base import Append, Query, Retention, Store, VersionConflict
from tieline.types import TaskState

# One store an example, each in a folder of its own, so the fixture may serve them all.
modelled = settings(
    deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

SCOPES = ["0:/0:/", "0:/0:/ann", "1:a/0:/"]
CONTEXTS = ["c1", "c2", "c\0'%_"]
STATES = [state for state in TaskState if state is not TaskState.UNSPECIFIED]


def matching(tasks: list[Written], query: Query) -> list[Written]:
    """All tasks that a query is about, cursor aside, the last changed first."""
    found = [
        task
        for task in tasks
        if task.scope == query.scope
        and query.context_id in (None, task.context_id)
        and query.state in (None, task.state)
        and (query.since is None or task.updated >= query.since)
    ]
    return sorted(found, key=lambda task: -task.updated)


async def check_page(store: Store, tasks: list[Written], query: Query) -> None:
    wanted = matching(tasks, query)
    page = await store.list(query)
    behind = [task for task in wanted if query.before is None or (task.updated, task.task_id) < query.before]
    assert [record.task_id for record in page.records] == [task.task_id for task in behind[: query.limit]]
    assert page.total == len(wanted)
    assert page.more == (len(behind) > query.limit)
    by_id = {task.task_id: task for task in tasks}
    for record in page.records:
        task = by_id[record.task_id]
        assert (record.state, record.updated, record.version) == (task.state, task.updated, len(task.log))
        assert record.snapshot == task.snapshot


class Made(NamedTuple):
    """A task of a list example: where it is, what becomes of it, and how long after the one before."""

    scope: str
    context: str
    states: list[TaskState]
    step: int


makes = st.builds(
    Made,
    st.sampled_from(SCOPES),
    st.sampled_from(CONTEXTS),
    st.lists(st.sampled_from([WORKING, TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED]), max_size=2).flatmap(
        lambda begin: st.sampled_from([begin, *([*begin, end] for end in STATES if end.terminal)])
    ),
    st.integers(1, 3),
)


async def fill(store: Store, ticks: Ticks, made: list[Made], order: list[int]) -> list[Written]:
    """Make the tasks, then change their states in `order`, a step of one task at a time."""
    tasks = [Written(ticks, one.scope, one.context) for one in made]
    await write(store, *(task.make() for task in tasks))
    left = [list(one.states) for one in made]
    for choice in [*order, *range(len(made)), *range(len(made)), *range(len(made))]:
        index = choice % len(made) if made else 0
        if made and left[index]:
            await write(store, tasks[index].go(left[index].pop(0), step=made[index].step))
    return tasks


@pytest.mark.requirement("list.newest-first", "list.filter-context", "list.filter-status", "list.counts-present")
@given(
    made=st.lists(makes, max_size=12),
    order=st.lists(st.integers(0, 11), max_size=12),
    asked=st.lists(
        st.tuples(
            st.sampled_from(SCOPES),
            st.integers(1, 5),
            st.none() | st.sampled_from(CONTEXTS),
            st.none() | st.sampled_from(STATES),
            st.none() | st.integers(-1, 40),
            st.none() | st.integers(-1, 40),
        ),
        min_size=3,
        max_size=10,
    ),
)
@modelled
def test_any_mixture_of_filters_finds_what_a_naive_model_finds(
    place: Place, made: list[Made], order: list[int], asked: list[tuple[Any, ...]]
) -> None:
    async def scene() -> None:
        ticks = Ticks()
        began = ticks.at
        async with place.opened() as store:
            tasks = await fill(store, ticks, made, order)
            for scope, limit, context, state, since, before in asked:
                query = Query(
                    scope,
                    limit,
                    context,
                    state,
                    None if since is None else began + since,
                    None if before is None else (began + before, ""),
                )
                await check_page(store, tasks, query)

    asyncio.run(scene())


@pytest.mark.requirement("list.cursor-pages", "list.update-moves-first")
@given(
    made=st.lists(makes, min_size=1, max_size=12),
    size=st.integers(1, 4),
    context=st.none() | st.sampled_from(CONTEXTS),
    between=st.lists(st.integers(-3, 11), max_size=12),
)
@modelled
def test_pages_show_every_unchanged_task_once_whatever_changes_between_them(
    place: Place, made: list[Made], size: int, context: str | None, between: list[int]
) -> None:
    async def scene() -> None:
        ticks = Ticks()
        async with place.opened() as store:
            tasks = [Written(ticks, SCOPES[0], one.context) for one in made]
            await write(store, *(task.make() for task in tasks))
            wanted = matching(tasks, Query(SCOPES[0], 1, context))
            changes = list(between)
            changed: set[str] = set()
            seen: list[str] = []
            before = None
            while True:
                page = await store.list(Query(SCOPES[0], size, context, before=before))
                seen += [record.task_id for record in page.records]
                if not page.more:
                    break
                before = (page.records[-1].updated, page.records[-1].task_id)
                change = changes.pop() if changes else 0
                if change < 0:
                    await write(store, Written(ticks, SCOPES[0], context or CONTEXTS[0]).make())
                elif not tasks[change % len(tasks)].state.terminal:
                    task = tasks[change % len(tasks)]
                    await write(store, task.go(TaskState.COMPLETED if change % 2 else WORKING))
                    changed.add(task.task_id)
            assert len(seen) == len(set(seen)), "a task was shown twice"
            missed = {task.task_id for task in wanted} - set(seen)
            assert missed <= changed, "a task that has not changed was not shown"
            still = [task_id for task_id in seen if task_id not in changed]
            assert still == [task.task_id for task in wanted if task.task_id in still]

    asyncio.run(scene())


@pytest.mark.requirement("list.filter-timestamp", "list.newest-first")
@in_loop
async def test_tasks_whose_changes_reach_the_store_out_of_order_are_listed_in_order(place: Place) -> None:
    """Two runs tick one behind the other and write the other way round."""
    async with place.opened() as store:
        ticks = Ticks()
        tasks = [Written(ticks) for _ in range(6)]
        await write(store, *(tasks[index].make() for index in (3, 0, 5, 1, 2, 4)))
        changes = [task.go(state) for task, state in zip(tasks, [WORKING, COMPLETED] * 3, strict=True)]
        await outcomes(store, [changes[index] for index in (1, 0, 5, 4, 2, 3)])
        for limit in (1, 2, 10):
            for since in (None, *(task.updated for task in tasks)):
                for before in (None, *((task.updated, task.task_id) for task in tasks)):
                    await check_page(store, tasks, Query(tasks[0].scope, limit, None, None, since, before))


# --- a whole life -----------------------------------------------------------------------------------------------------

steps = st.one_of(
    st.tuples(st.just("make"), st.sampled_from(SCOPES), st.sampled_from(STATES[:2])),
    st.tuples(st.just("chunks"), st.integers(0, 9), st.lists(st.text(max_size=5), min_size=1, max_size=3)),
    st.tuples(st.just("go"), st.integers(0, 9), st.sampled_from(STATES[1:])),
    st.tuples(st.just("hear"), st.integers(0, 9)),
    st.tuples(st.just("stale"), st.integers(0, 9), st.integers(-2, 2)),
    st.tuples(st.just("batch"), st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True)),
    st.tuples(st.just("prune"), st.integers(0, 30)),
    st.tuples(st.just("reopen")),
)


class Life:
    """A store and its naive model, side by side."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.ticks = Ticks()
        self.tasks: list[Written] = []
        self.streamed: set[str] = set()

    def living(self, index: int) -> Written | None:
        open_ = [task for task in self.tasks if not task.state.terminal]
        return open_[index % len(open_)] if open_ else None

    async def do(self, store: Store, step: tuple[Any, ...]) -> None:
        match step:
            case ("make", scope, state):
                self.tasks.append(Written(self.ticks, scope, CONTEXTS[len(self.tasks) % 3], state=state))
                await write(store, self.tasks[-1].make())
            case ("chunks", index, texts):
                if task := self.living(index):
                    await write(store, task.chunks(*texts))
            case ("go", index, state):
                if task := self.living(index):
                    streamed = index % 2 == 0
                    if state.terminal and streamed:
                        self.streamed.add(task.task_id)
                    await write(store, task.go(state, streamed=streamed))
            case ("hear", index):
                if task := self.living(index):
                    task.snapshot = b'{"heard":%d}' % self.ticks.next()
                    task.snapshot_version = len(task.log)
                    await write(store, self.append(task, len(task.log), []))
            case ("stale", index, off):
                task = self.living(index)
                if task and off and len(task.log) + off > 0:
                    stale = self.append(task, len(task.log) + off, [Event(task.chunk("stale"))])
                    assert isinstance((await outcomes(store, [stale]))[0], VersionConflict)
            case ("batch", indexes):
                tasks = {task.task_id: task for index in indexes if (task := self.living(index))}
                assert not any(await outcomes(store, [task.chunks("batch") for task in tasks.values()]))
            case ("prune", age):
                limit = self.ticks.at - age
                gone = [task for task in self.tasks if task.state.terminal and task.updated < limit]
                store.retention = Retention(ttl_s=age / 1_000_000)
                assert (await store.prune(self.ticks.at)).tasks == len(gone)
                self.tasks = [task for task in self.tasks if task not in gone]
                for task in gone:
                    assert await store.get(task.scope, task.task_id) is None
                    assert not await store.events(task.scope, task.task_id, 0)

    def append(self, task: Written, after: int, events: list[Event]) -> Append:
        return Append(
            task.scope, task.task_id, task.context_id, after, events, task.state, task.updated, task.snapshot, False
        )

    async def check(self, store: Store) -> None:
        for task in self.tasks:
            record = await store.get(task.scope, task.task_id)
            assert record is not None
            assert (record.scope, record.task_id, record.context_id) == (task.scope, task.task_id, task.context_id)
            assert (record.state, record.updated, record.version) == (task.state, task.updated, len(task.log))
            assert (record.snapshot, record.snapshot_version) == (task.snapshot, task.snapshot_version)
            events = await store.events(task.scope, task.task_id, 0)
            if task.state.terminal and task.task_id not in self.streamed:
                assert events is None or len(events) == len(task.log)
            else:
                assert events is not None
            if events is not None:
                assert [(number, event.json) for number, event in events] == list(enumerate(task.log, 1))
        for scope in SCOPES:
            await check_page(store, self.tasks, Query(scope, 3))
        unfinished = {record.task_id for record in await store.take("0:/")}
        assert unfinished == {
            task.task_id
            for task in self.tasks
            if task.scope.startswith("0:/") and not task.state.terminal and not task.state.interrupted
        }


@given(life=st.lists(steps, max_size=25))
@modelled
def test_a_store_does_what_a_naive_model_does(place: Place, life: list[tuple[Any, ...]]) -> None:
    async def scene() -> None:
        model = Life(place)
        parts: list[list[tuple[Any, ...]]] = [[]]
        for step in life:
            if step[0] == "reopen" and place.durable:
                parts.append([])
            elif step[0] != "reopen":
                parts[-1].append(step)
        for number, part in enumerate(parts):
            async with place.reopened() if number else place.opened() as store:
                assert await store.open() >= max((task.updated for task in model.tasks), default=0)
                await adopt(store, *(task for task in model.tasks if not task.state.terminal))
                for step in part:
                    await model.do(store, step)
                await model.check(store)

    asyncio.run(scene())
