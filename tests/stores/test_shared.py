"""Stores that several processes use at once: who is at work on what, who is alive, and letters between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from tests.databases import postgres_server, redis_server
from tests.engine.scene import in_loop
from tests.stores.conftest import SharedPlace
from tests.stores.test_messages import hear, key_of
from tests.stores.writing import COMPLETED, WORKING, Ticks, Written, outcomes, write
from tieline.ids import new_id
from tieline.stores.base import Outcome, Query, Record, SharedStore, Store, VersionConflict
from tieline.stores.postgres import PostgresStore
from tieline.stores.redis import RedisStore
from tieline.types import TaskState

ASKS = TaskState.INPUT_REQUIRED


@asynccontextmanager
async def two(place: SharedPlace) -> AsyncIterator[tuple[SharedStore, SharedStore]]:
    """Two replicas of a new store, both alive."""
    async with place.first() as one, place.another() as other:
        await one.beat()
        await other.beat()
        yield one, other


async def record_of(store: Store, task: Written) -> Record:
    record = await store.get(task.scope, task.task_id)
    assert record is not None
    return record


async def conflicts(store: Store, task: Written) -> bool:
    """Whether an append that fits the task's version is refused; then nothing has changed."""
    before = await record_of(store, task)
    (error,) = await outcomes(store, [task.chunks("x")])
    if error is None:
        return False
    assert isinstance(error, VersionConflict)
    task.log.pop()
    assert await record_of(store, task) == before
    events = await store.events(task.scope, task.task_id, 0)
    assert [event.json for _, event in events or ()] == task.log
    return True


async def taken(store: SharedStore, prefix: str = "") -> list[Record]:
    """All that there is to take."""
    found: list[Record] = []
    while records := await store.take(prefix):
        found += records
    return found


# --- owners -----------------------------------------------------------------------------------------------------------


@in_loop
async def test_each_object_is_a_replica_of_its_own(shared_place: SharedPlace) -> None:
    async with two(shared_place) as (one, other):
        assert one.shared
        assert one.replica
        assert one.replica != other.replica


@in_loop
async def test_who_makes_a_task_is_its_owner_and_no_other_can_append_to_it(shared_place: SharedPlace) -> None:
    async with two(shared_place) as (one, other):
        task = Written(Ticks())
        await write(one, task.make())
        assert (await record_of(other, task)).owner == one.replica
        assert await conflicts(other, task)
        await write(one, task.chunks("a"), task.go(ASKS))
        assert (await record_of(other, task)).owner == one.replica
        assert await conflicts(other, task)
        await write(one, task.go(WORKING))
        assert [event.json for _, event in await other.events(task.scope, task.task_id, 0) or ()] == task.log


@in_loop
async def test_a_task_that_has_ended_has_no_owner_and_cannot_be_claimed(shared_place: SharedPlace) -> None:
    async with two(shared_place) as (one, other):
        task = Written(Ticks())
        await write(one, task.make(), task.go(COMPLETED))
        assert (await record_of(other, task)).owner == ""
        for owner in ("", one.replica, other.replica):
            assert await other.claim(task.scope, task.task_id, owner) is None
        assert not await taken(other)


@in_loop
async def test_a_task_that_is_there_cannot_be_made_by_another_replica(shared_place: SharedPlace) -> None:
    async with two(shared_place) as (one, other):
        ticks = Ticks()
        task, again = Written(ticks, task_id="t"), Written(ticks, task_id="t")
        first = await asyncio.gather(outcomes(one, [task.make()]), outcomes(other, [again.make()]))
        assert sorted(error is None for (error,) in first) == [False, True]
        owner = one.replica if first[0][0] is None else other.replica
        assert (await record_of(one, task)).owner == owner


@in_loop
async def test_a_claim_changes_the_owner_if_it_names_the_present_one(shared_place: SharedPlace) -> None:
    async with two(shared_place) as (one, other):
        task = Written(Ticks())
        await write(one, task.make(), task.chunks("a"))
        for wrong in ("", other.replica, "nobody"):
            assert await other.claim(task.scope, task.task_id, wrong) is None
        assert await other.claim("another scope", task.task_id, one.replica) is None
        assert await other.claim(task.scope, new_id(), one.replica) is None
        assert (await record_of(one, task)).owner == one.replica
        record = await other.claim(task.scope, task.task_id, one.replica)
        assert record == await record_of(one, task)
        assert (record.owner, record.version) == (other.replica, 3)
        assert await conflicts(one, task)
        await write(other, task.chunks("b"), task.go(COMPLETED))


@in_loop
async def test_of_several_that_claim_a_task_at_once_one_gets_it(shared_place: SharedPlace) -> None:
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(shared_place.first())
        others = [await stack.enter_async_context(shared_place.another()) for _ in range(5)]
        tasks = [Written(ticks) for ticks in [Ticks()] for _ in range(20)]
        await asyncio.gather(*(write(one, task.make()) for task in tasks))
        for task in tasks:
            records = await asyncio.gather(*(other.claim(task.scope, task.task_id, one.replica) for other in others))
            won = [other for other, record in zip(others, records, strict=True) if record is not None]
            assert len(won) == 1
            assert (await record_of(one, task)).owner == won[0].replica


@in_loop
async def test_a_released_task_is_nobodys_before_anything_that_is_asked_afterwards(shared_place: SharedPlace) -> None:
    async with two(shared_place) as (one, other):
        task = Written(Ticks())
        await write(one, task.make(), task.go(ASKS))
        one.release(task.scope, task.task_id)
        assert (await record_of(one, task)).owner == ""
        assert await conflicts(one, task)
        assert await other.claim(task.scope, task.task_id, "") is not None
        one.release(task.scope, task.task_id)  # of what is another one's
        await record_of(one, task)
        assert (await record_of(other, task)).owner == other.replica
        other.release(task.scope, task.task_id)
        assert await other.claim(task.scope, task.task_id, "") is not None
        await write(other, task.go(COMPLETED))


@in_loop
async def test_a_release_in_the_turn_of_an_append_goes_behind_it(shared_place: SharedPlace) -> None:
    async with two(shared_place) as (one, other):
        task = Written(Ticks())
        await write(one, task.make())
        begun = one.append(task.go(ASKS))
        one.release(task.scope, task.task_id)
        if begun is not None:
            await begun
        await record_of(one, task)
        record = await other.claim(task.scope, task.task_id, "")
        assert record is not None
        assert (record.state, record.version) == (ASKS, len(task.log))


# --- taking -----------------------------------------------------------------------------------------------------------


@in_loop
async def test_what_a_living_replica_is_at_work_on_is_not_taken(shared_place: SharedPlace) -> None:
    async with two(shared_place) as (one, other):
        ticks = Ticks()
        tasks = [Written(ticks) for _ in range(3)]
        await asyncio.gather(*(write(one, task.make()) for task in tasks))
        assert not await taken(other)
        one.release(tasks[0].scope, tasks[0].task_id)
        await record_of(one, tasks[0])
        (record,) = await taken(other)
        assert record == await record_of(other, tasks[0])
        assert (record.task_id, record.owner) == (tasks[0].task_id, other.replica)
        await write(other, tasks[0].chunks("goes on"))


@in_loop
async def test_each_task_of_a_dead_replica_goes_to_one_of_two_that_take_at_once(shared_place: SharedPlace) -> None:
    async with shared_place.first() as dead, shared_place.another() as one, shared_place.another() as other:
        beats = (await dead.beat())[dead.replica]
        await asyncio.gather(one.beat(), other.beat())
        ticks = Ticks()
        tasks = [Written(ticks, scope=f"{number % 3}") for number in range(500)]
        await asyncio.gather(*(write(dead, task.make()) for task in tasks))
        resting, ended = Written(ticks, scope="1"), Written(ticks, scope="1")
        await write(dead, resting.make(), resting.go(ASKS), ended.make(), ended.go(COMPLETED))
        assert not await one.take("")
        assert await one.bury(dead.replica, beats)
        first, second = await asyncio.gather(taken(one), taken(other))
        assert {record.owner for record in first} <= {one.replica}
        assert {record.owner for record in second} <= {other.replica}
        assert sorted(record.task_id for record in first + second) == sorted(task.task_id for task in tasks)
        by_id = {task.task_id: task for task in tasks}
        assert await conflicts(dead, tasks[0])
        for store, records in ((one, first), (other, second)):
            await asyncio.gather(*(write(store, by_id[record.task_id].go(COMPLETED)) for record in records))
        assert (await record_of(one, resting)).owner == dead.replica


@in_loop
async def test_only_tasks_of_scopes_with_the_prefix_are_taken(shared_place: SharedPlace) -> None:
    scopes = ["a%/1", "a%/2", "a_/1", "A%/1", "a", "é/1"]
    async with shared_place.first() as gone, shared_place.another() as store:
        ticks = Ticks()
        for scope in scopes:
            await write(gone, Written(ticks, scope=scope).make())
        await store.beat()
        for prefix in ("a%/", "é/", "a_", "none", ""):
            fitting = {scope for scope in scopes if scope.startswith(prefix)}
            assert {record.scope for record in await taken(store, prefix)} == fitting
            scopes = [scope for scope in scopes if scope not in fitting]


# --- who is alive -----------------------------------------------------------------------------------------------------


@in_loop
async def test_replicas_are_alive_from_their_first_beat_to_their_end(shared_place: SharedPlace) -> None:
    async with shared_place.first() as one:
        assert await one.beat() == {one.replica: 1}
        async with shared_place.another() as other:
            assert await one.beat() == {one.replica: 2}
            assert await other.beat() == {one.replica: 2, other.replica: 1}
            assert (await one.stats()).replicas == 2
        assert await one.beat() == {one.replica: 3}
        assert (await one.stats()).replicas == 1


@in_loop
async def test_a_late_beat_wins_against_a_burial(shared_place: SharedPlace) -> None:
    async with two(shared_place) as (one, other):
        seen = (await one.beat())[other.replica]
        late = (await other.beat())[other.replica]
        assert not await one.bury(other.replica, seen)
        assert other.replica in await one.beat()
        assert await one.bury(other.replica, late)
        assert not await one.bury(other.replica, late)
        assert other.replica not in await one.beat()
        assert not await one.bury("nobody", 1)


@in_loop
async def test_who_was_buried_sees_it_and_is_alive_again_by_its_next_beat(shared_place: SharedPlace) -> None:
    async with two(shared_place) as (one, other):
        task = Written(Ticks())
        await write(other, task.make())
        beats = await other.beat()
        assert await one.bury(other.replica, beats[other.replica])
        again = await other.beat()
        assert again[other.replica] <= beats[other.replica]  # it begins anew: something has happened to it meanwhile
        assert not await taken(one)
        await write(other, task.chunks("nobody has taken it"))


# --- messages ---------------------------------------------------------------------------------------------------------


@in_loop
async def test_a_message_that_reaches_many_replicas_at_once_is_new_to_one(shared_place: SharedPlace) -> None:
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(shared_place.first())]
        stores += [await stack.enter_async_context(shared_place.another()) for _ in range(7)]
        for number in range(20):
            heard = await asyncio.gather(*(hear(store, number, store.replica) for store in stores))
            (winner,) = [store.replica for store, outcome in zip(stores, heard, strict=True) if outcome is None]
            assert [outcome for outcome in heard if outcome] == [Outcome(winner, None, winner)] * 7


@in_loop
async def test_a_message_is_claimed_from_who_has_heard_it_by_one(shared_place: SharedPlace) -> None:
    async with shared_place.first() as dead, shared_place.another() as one, shared_place.another() as other:
        await hear(dead, 1, "t")
        assert not await one.claim_message(key_of(1), other.replica)
        assert not await one.claim_message(key_of(2), dead.replica)
        won = await asyncio.gather(*(store.claim_message(key_of(1), dead.replica) for store in (one, other)))
        assert sorted(won) == [False, True]
        winner = (one, other)[won.index(True)]
        assert await hear(dead, 1, "x") == Outcome("t", None, winner.replica)


# --- letters ----------------------------------------------------------------------------------------------------------


class Reader:
    """What one replica hears."""

    def __init__(self) -> None:
        self.letters: list[bytes] = []
        self._awaited: list[tuple[int, asyncio.Event]] = []

    def __call__(self, letter: bytes) -> None:
        self.letters.append(letter)
        for count, event in self._awaited:
            if len(self.letters) >= count:
                event.set()

    async def heard(self, count: int) -> list[bytes]:
        """All letters, when there are so many."""
        event = asyncio.Event()
        self._awaited.append((count, event))
        if len(self.letters) < count:
            await event.wait()
        return self.letters


@asynccontextmanager
async def listening(place: SharedPlace, heard: Callable[[bytes], object]) -> AsyncIterator[SharedStore]:
    """A further replica that hears letters."""
    store = place.made()
    store.listen(heard, lambda: None)
    await store.open()
    try:
        await store.beat()
        yield store
    finally:
        await store.close()


@in_loop
async def test_letters_arrive_in_order_at_whom_they_are_for(shared_place: SharedPlace) -> None:
    mine, yours = Reader(), Reader()
    async with (
        shared_place.first() as store,
        listening(shared_place, mine) as me,
        listening(shared_place, yours) as you,
    ):
        for number in range(0, 60, 3):
            store.post(me.replica, [b"%d" % number, b"%d" % (number + 1)])
            store.post(you.replica, [b"you %d" % number])
            await store.post(me.replica, [b"%d" % (number + 2)])
        assert await mine.heard(60) == [b"%d" % number for number in range(60)]
        assert await yours.heard(20) == [b"you %d" % number for number in range(0, 60, 3)]


@in_loop
async def test_a_replica_can_write_to_itself_and_to_who_answers(shared_place: SharedPlace) -> None:
    async with shared_place.first():
        answers = Reader()
        async with listening(shared_place, answers) as asks:
            answering: list[SharedStore] = []
            async with listening(
                shared_place, lambda letter: answering[0].post(asks.replica, [b"re: " + letter])
            ) as answer:
                answering.append(answer)
                await asks.post(asks.replica, [b"note"])
                assert await answers.heard(1) == [b"note"]
                await asks.post(answer.replica, [b"a", b"b"])
                assert await answers.heard(3) == [b"note", b"re: a", b"re: b"]


@in_loop
async def test_letters_of_any_bytes_and_sizes_arrive_as_they_were_sent(shared_place: SharedPlace) -> None:
    letters = [b"", b"\x00\xff\n'\\x", *(b"%d:" % size + b"x" * size for size in (5698, 5699, 5700, 5701, 7999, 8000))]
    letters += [bytes(range(256)) * 400, b"small", bytes(100_000), b"@1,2"]
    reader = Reader()
    async with shared_place.first() as store, listening(shared_place, reader) as me:
        for letter in letters:
            await store.post(me.replica, [letter])
        assert await reader.heard(len(letters)) == letters
        await store.post(me.replica, letters)
        assert sorted(await reader.heard(2 * len(letters))) == sorted(letters * 2)


@in_loop
async def test_thousands_of_letters_of_one_turn_all_arrive_in_order(shared_place: SharedPlace) -> None:
    letters = [b"%d" % number + b"x" * (number % 300) for number in range(5000)]
    reader = Reader()
    async with shared_place.first() as store, listening(shared_place, reader) as me:
        posted = [store.post(me.replica, [letter]) for letter in letters]
        await asyncio.gather(*posted)
        assert await reader.heard(5000) == letters


@in_loop
async def test_letters_to_who_is_not_there_are_lost_without_an_error(shared_place: SharedPlace) -> None:
    reader = Reader()
    async with shared_place.first() as store, listening(shared_place, reader) as me:
        async with shared_place.another() as gone:
            await gone.beat()
        for replica in (gone.replica, new_id(), "no such replica"):
            await store.post(replica, [b"lost", b"x" * 50_000])
        await store.post(me.replica, [b"kept"])
        assert await reader.heard(1) == [b"kept"]


@in_loop
async def test_a_reader_that_fails_hears_the_next_letter(shared_place: SharedPlace) -> None:
    reader = Reader()

    def fails_first(letter: bytes) -> None:
        reader(letter)
        if len(reader.letters) == 1:
            raise ValueError("of a test")

    async with shared_place.first() as store, listening(shared_place, fails_first) as me:
        await store.post(me.replica, [b"1", b"2"])
        await store.post(me.replica, [b"3"])
        assert await reader.heard(3) == [b"1", b"2", b"3"]


# --- programs beside each other ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("database", ["postgres", "redis"])
@in_loop
async def test_stores_of_different_names_on_one_server_know_nothing_of_each_other(database: str) -> None:
    def made(name: str) -> PostgresStore | RedisStore:
        return (
            PostgresStore(postgres_server().url(name))
            if database == "postgres"
            else RedisStore(redis_server().url(name))
        )

    reader = Reader()
    mark = new_id().replace("-", "")[:16]
    one, other = made(f"one_{mark}"), made(f"one_{mark}_")  # of which one begins as the other does
    other.listen(reader, lambda: None)
    for store in (one, other):
        await store.migrate()
        await store.open()
    try:
        assert list(await one.beat()) == [one.replica]
        assert list(await other.beat()) == [other.replica]
        ticks = Ticks()
        tasks = [Written(ticks, task_id="same"), Written(ticks, task_id="same")]
        for store, task in zip((one, other), tasks, strict=True):
            assert await hear(store, 1, store.replica) is None
            await write(store, task.make(), task.chunks(store.replica))
        await write(one, tasks[0].go(COMPLETED))
        assert (await record_of(other, tasks[1])).state is WORKING
        assert [event.json for _, event in await other.events(tasks[1].scope, "same", 0) or ()] == tasks[1].log
        assert (await other.list(Query(tasks[0].scope, 9))).total == 1
        one.release(tasks[1].scope, "same")
        assert not await one.take("")
        await one.post(other.replica, [b"not of this store"])
        await other.post(other.replica, [b"of this store"])
        assert await reader.heard(1) == [b"of this store"]
        assert (await other.stats()).states == {WORKING: 1}
    finally:
        await one.close()
        await other.close()


ODD = {
    "nul": "a\0b",
    "surrogate": "half \ud83d of it",
    "long": "x" * 10_000,
    "nothing": "",
    "quotes": "'; DROP TABLE tasks --\n%s %b {0} \\",
    "emoji": "🎈é" * 50,
}


@pytest.mark.parametrize("name", ODD)
@in_loop
async def test_texts_of_callers_may_be_anything(shared_place: SharedPlace, name: str) -> None:
    odd = ODD[name]
    async with two(shared_place) as (one, other):
        ticks = Ticks()
        task, near = Written(ticks, odd, odd, odd or "id"), Written(ticks, odd + "x", odd + "x", odd + "idx")
        for each in (task, near):
            append = Written(ticks).make()  # whose events are JSON, which has no lone surrogates
            append.scope, append.context_id, append.task_id = each.scope, each.context_id, each.task_id
            await write(one, append)
        record = await record_of(other, task)
        assert (record.scope, record.task_id, record.context_id) == (task.scope, task.task_id, task.context_id)
        for query in (Query(task.scope, 9), Query(task.scope, 9, task.context_id), Query(task.scope, 9, None, WORKING)):
            assert [found.task_id for found in (await other.list(query)).records] == [task.task_id]
        assert len(await other.events(task.scope, task.task_id, 0) or ()) == 2
        assert await other.claim(task.scope, task.task_id, one.replica) is not None
        other.release(task.scope, task.task_id)
        await record_of(other, task)
        assert [found.task_id for found in await taken(one, task.scope)] == [task.task_id]
        assert await hear(one, 1, odd) is None
        assert await hear(other, 1, "x") == Outcome(odd, None, one.replica)


@in_loop
async def test_what_is_open_already_can_be_made_ready_again(shared_place: SharedPlace) -> None:
    async with shared_place.first() as store:
        task = Written(Ticks())
        await write(store, task.make())
        again = [shared_place.made() for _ in range(4)]
        for each in again:
            assert isinstance(each, PostgresStore | RedisStore)
        versions = await asyncio.gather(*(each.migrate() for each in again))  # type: ignore[attr-defined]
        assert len({*versions}) == 1
        assert versions[0][0] == versions[0][1]
        await write(store, task.chunks("a"))
        for each in again:
            await each.close()
