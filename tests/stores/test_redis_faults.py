"""Redis that is restarted, killed, cut off, stands still, is full, emptied or takes no writes, under a store in use."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import redis.asyncio as driver

from tests.databases import RedisServer
from tests.engine.scene import in_loop, within
from tests.stores.faults import Crowd, Wire, waited
from tests.stores.writing import COMPLETED, Ticks, Written, outcomes, write
from tieline.stores import redis_post
from tieline.stores.base import Outcome, Query, Record, Retention, SharedStore, StoredTask, StoreError, VersionConflict
from tieline.stores.redis import RedisStore
from tieline.types import TaskState

RESTS = TaskState.INPUT_REQUIRED
KILL_ALL = ("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer("--appendfsync", "always") as one:
        yield one


async def run(server: RedisServer, *command: Any) -> Any:
    """Something that an administrator does."""
    client: Any = driver.Redis(port=server.port)
    async with client:
        return await client.execute_command(*command)


@asynccontextmanager
async def opened(server: RedisServer, *, patience_s: float = 10.0, limit_s: float = 30.0) -> AsyncIterator[RedisStore]:
    """An open store on an empty server."""
    await run(server, "FLUSHALL")
    store = RedisStore(server.url(), patience_s=patience_s, limit_s=limit_s)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def several(server: RedisServer, count: int) -> AsyncIterator[list[RedisStore]]:
    """Open stores of one empty server."""
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(opened(server))]
        for _ in range(count - 1):
            store = RedisStore(server.url())
            await store.open()
            stack.push_async_callback(store.close)
            stores.append(store)
        yield stores


async def record_of(store: SharedStore, task: Written) -> Record:
    record = await store.get(task.scope, task.task_id)
    assert record is not None
    return record


async def log_of(store: SharedStore, task: Written) -> list[bytes]:
    events = await store.events(task.scope, task.task_id, 0)
    assert events is not None
    assert [number for number, _ in events] == list(range(1, len(events) + 1))
    return [event.json for _, event in events]


async def works(store: SharedStore) -> None:
    """A new message and a new task get through, from their beginning to their end."""
    task = Written(Ticks())
    assert await waited(store.hear(os.urandom(16), task.task_id, task.updated)) is None
    await write(store, task.make(), task.chunks("a"), task.go(COMPLETED))
    assert await log_of(store, task) == task.log


# --- it ends, and begins again ----------------------------------------------------------------------------------------


@within(60)
async def test_a_restart_in_the_middle_of_many_appends_loses_none_and_doubles_none(server: RedisServer) -> None:
    async with opened(server) as store:
        crowd = Crowd(store)
        async with crowd.at_work():
            for _ in range(3):
                await asyncio.to_thread(server.restart)
                await crowd.more(100)


@within(60)
async def test_a_crash_of_the_server_in_the_middle_of_many_appends_loses_none_and_doubles_none(
    server: RedisServer,
) -> None:
    async with opened(server) as store:
        crowd = Crowd(store)
        async with crowd.at_work():
            for _ in range(3):
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
                await crowd.more(100)


@within(60)
async def test_connections_that_are_cut_again_and_again_lose_nothing_and_double_nothing(server: RedisServer) -> None:
    async with opened(server) as store:
        crowd = Crowd(store)
        async with crowd.at_work():
            for _ in range(50):
                await run(server, *KILL_ALL)
                await crowd.more(10)


@within(60)
async def test_scripts_that_are_forgotten_again_and_again_are_missed_by_nobody(server: RedisServer) -> None:
    async with opened(server) as store:
        crowd = Crowd(store)
        async with crowd.at_work():
            for _ in range(30):
                await run(server, "SCRIPT", "FLUSH")
                await crowd.more(10)
        for script_of in (store.beat(), store.take(""), store.list(Query("s", 9)), store.post("nobody", [b"x"])):
            await run(server, "SCRIPT", "FLUSH")
            await script_of


# --- answers are lost -------------------------------------------------------------------------------------------------


@asynccontextmanager
async def on_a_wire(server: RedisServer) -> AsyncIterator[tuple[RedisStore, Wire]]:
    """An open store on an empty server, and the line that it is on. Its scripts are known."""
    async with opened(server) as before, Wire(server) as wire:
        await before.beat()
        store = RedisStore(wire.url)
        await store.open()
        try:
            yield store, wire
        finally:
            await store.close()


@in_loop
async def test_what_was_written_with_an_answer_that_was_lost_is_done_once(server: RedisServer) -> None:
    async with on_a_wire(server) as (store, wire):
        ticks = Ticks()
        made, changed, rests, ended = (Written(ticks) for _ in range(4))
        answered = os.urandom(16)
        await write(store, changed.make(), rests.make(), ended.make())
        assert await waited(store.hear(answered, "t", ticks.at)) is None
        wire.cut()
        key = os.urandom(16)
        heard = store.hear(key, made.task_id, ticks.at)
        replied = store.replied(answered, b"first")
        begun = [made.make(), changed.chunks("a"), rests.go(RESTS), ended.go(COMPLETED)]
        writing = asyncio.ensure_future(outcomes(store, begun))
        await asyncio.sleep(0)
        store.release(rests.scope, rests.task_id)
        assert await writing == [None] * 4
        assert wire.cuts == 1
        assert await waited(heard) is None
        assert replied is not None
        await replied
        for task in (made, changed, rests, ended):
            assert await log_of(store, task) == task.log
        assert (await record_of(store, rests)).owner == ""
        assert await waited(store.hear(key, "another", ticks.at)) == Outcome(made.task_id, None, store.replica)
        assert await waited(store.hear(answered, "another", ticks.at)) == Outcome("t", b"first", store.replica)
        assert (await store.stats()).events == sum(len(task.log) for task in (made, changed, rests, ended))


@in_loop
async def test_a_conflict_is_one_also_when_its_answer_was_lost(server: RedisServer) -> None:
    async with on_a_wire(server) as (store, wire):
        task = Written(Ticks())
        await write(store, task.make())
        stale = task.chunks("a")
        stale.after = 7
        wire.cut()
        (found,) = await outcomes(store, [stale])
        assert isinstance(found, VersionConflict)
        assert wire.cuts == 1


@in_loop
async def test_what_was_taken_and_claimed_with_an_answer_that_was_lost_is_owned(server: RedisServer) -> None:
    async with on_a_wire(server) as (store, wire):
        ticks = Ticks()
        taken, claimed = Written(ticks, scope="a"), Written(ticks, scope="b")
        key = os.urandom(16)
        before, dead = RedisStore(server.url()), RedisStore(server.url())
        await before.open()
        await write(before, taken.make(), claimed.make(), claimed.go(RESTS))
        assert await waited(before.hear(key, "task", ticks.at)) is None
        await before.close()
        await dead.beat()

        await store.stats()
        wire.cut()
        assert [record.owner for record in await store.take("a")] == [store.replica]
        wire.cut()
        found = await store.claim(claimed.scope, claimed.task_id, before.replica)
        assert found is not None
        assert found.owner == store.replica
        assert await store.claim(claimed.scope, claimed.task_id, before.replica) is None
        wire.cut()
        assert await store.claim_message(key, before.replica)
        assert not await store.claim_message(key, before.replica)
        wire.cut()
        assert await store.bury(dead.replica, 1)
        assert not await store.bury(dead.replica, 1)
        assert wire.cuts == 4
        await write(store, taken.chunks("a"), claimed.go(COMPLETED))
        await dead.close()


@in_loop
async def test_what_was_put_and_pruned_with_an_answer_that_was_lost_is_counted(server: RedisServer) -> None:
    async with on_a_wire(server) as (store, wire):
        ticks = Ticks()
        tasks = [Written(ticks) for _ in range(400)]
        assert set(await outcomes(store, [task.make() for task in tasks])) == {None}
        assert set(await outcomes(store, [task.go(COMPLETED) for task in tasks])) == {None}
        given: list[StoredTask] = [task async for task in store.tasks()]
        store.retention = Retention(ttl_s=0)
        wire.cut()
        assert (await store.prune(ticks.at + 1)).tasks == 400
        wire.cut()
        assert await store.put(given) == 400
        assert await store.put(given) == 0
        each = (await store.stats()).bytes // 400
        store.retention = Retention(max_bytes=each * 100)
        wire.cut()
        assert (await store.prune(ticks.at + 1)).tasks == 300
        assert wire.cuts == 3


# --- it stands still, or is away --------------------------------------------------------------------------------------


@asynccontextmanager
async def standing_still(server: RedisServer) -> AsyncIterator[None]:
    await asyncio.to_thread(server.pause)
    try:
        yield
    finally:
        await asyncio.to_thread(server.resume)


@within(60)
async def test_a_server_that_stands_still_for_five_seconds_is_waited_for(server: RedisServer) -> None:
    async with opened(server) as store:
        crowd = Crowd(store)
        async with crowd.at_work():
            async with standing_still(server):
                await asyncio.sleep(5)  # the fault itself: how long it lasts
            await crowd.more(100)


@within(60)
async def test_a_server_that_stands_still_for_too_long_is_an_error_in_time_and_used_again_when_it_goes_on(
    server: RedisServer,
) -> None:
    async with opened(server, patience_s=1, limit_s=1) as store:
        ticks = Ticks()
        task, other = Written(ticks), Written(ticks)
        await write(store, task.make(), other.make())
        async with standing_still(server):
            async with asyncio.timeout(5):
                lost = store.append(task.chunks("a"))
                assert isinstance(lost, asyncio.Future)
                reads = [store.get(other.scope, other.task_id) for _ in range(50)]  # far more than connections
                asked = (lost, store.stats(), store.beat(), store.take(""), store.post("nobody", [b"x"]), *reads)
                found = await asyncio.gather(*asked, return_exceptions=True)
            assert all(isinstance(one, StoreError) and "does not answer" in str(one) for one in found), found
            async with asyncio.timeout(5):  # on new connections, which are not answered either
                assert isinstance((await outcomes(store, [other.chunks("a")]))[0], StoreError)
                with pytest.raises(StoreError):
                    await store.get(other.scope, other.task_id)
        assert (await record_of(store, task)).version in (2, 3)  # what was said before it stood still may be done
        await works(store)


@within(60)
async def test_a_server_that_is_away_for_too_long_is_an_error_in_time_and_used_again_when_it_is_back(
    server: RedisServer,
) -> None:
    async with opened(server, patience_s=1) as store:
        task = Written(Ticks())
        await write(store, task.make())
        await asyncio.to_thread(server.stop)
        try:
            async with asyncio.timeout(5):
                found = await asyncio.gather(
                    *(outcomes(store, [task.chunks("lost")]), store.get(task.scope, task.task_id), store.beat()),
                    return_exceptions=True,
                )
        finally:
            await asyncio.to_thread(server.start)
        task.log.pop()
        (lost,) = found[0] if isinstance(found[0], list) else (None,)
        for error in (lost, *found[1:]):
            assert isinstance(error, StoreError)
            assert "cannot be used for 1 s now" in str(error)
            assert "Is the server up?" in str(error)
            assert ".. " not in str(error)
        assert await log_of(store, task) == task.log
        await write(store, task.chunks("a"), task.go(COMPLETED))


# --- it is emptied, full, or takes no writes --------------------------------------------------------------------------


@in_loop
async def test_a_server_that_is_emptied_in_use_says_so_and_a_beat_makes_it_ready_for_new_tasks(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(server) as store:
        gap = asyncio.Event()
        store.listen(lambda letter: None, gap.set)
        ticks = Ticks()
        first, second, third = (Written(ticks) for _ in range(3))
        key = os.urandom(16)
        assert await waited(store.hear(key, first.task_id, ticks.at)) is None
        await write(store, first.make(), second.make())
        await store.beat()
        await run(server, "FLUSHALL")
        (found,) = await outcomes(store, [first.chunks("a")])
        assert type(found) is StoreError
        assert "was emptied while in use: what was kept there is gone" in str(found)
        for asked in (store.hear(os.urandom(16), "t", 1), store.replied(key, b"reply"), store.append(third.make())):
            assert isinstance(asked, asyncio.Future)
            with pytest.raises(StoreError, match="emptied while in use"):
                await asked
        assert await store.get(first.scope, first.task_id) is None
        assert await store.events(first.scope, first.task_id, 0) is None
        assert await store.claim(first.scope, first.task_id, store.replica) is None
        assert not await run(server, "KEYS", "*")

        assert list(await store.beat()) == [store.replica]
        assert gap.is_set()
        assert "emptied while in use" in caplog.text
        (found,) = await outcomes(store, [second.chunks("a")])
        assert type(found) is StoreError
        assert "was emptied while in use" in str(found)
        assert second.task_id in str(found)
        await works(store)
        assert (await store.stats()).states == {COMPLETED: 1}


@in_loop
async def test_a_server_that_one_has_emptied_and_another_made_ready_takes_nothing_of_before(
    server: RedisServer,
) -> None:
    async with several(server, 2) as (one, other):
        task = Written(Ticks())
        await write(one, task.make())
        await run(server, "FLUSHALL")
        await other.beat()
        await works(other)
        (found,) = await outcomes(one, [task.chunks("a")])
        assert type(found) is StoreError
        assert "emptied" in str(found)
        await one.beat()
        await works(one)


@within(60)
async def test_a_full_server_is_an_error_at_once_and_over_when_there_is_room(server: RedisServer) -> None:
    async with opened(server) as store:
        ticks = Ticks()
        task, ended = Written(ticks), Written(ticks)
        await write(store, task.make(), ended.make(), ended.chunks("x" * 200_000), ended.go(COMPLETED))
        await store.beat()
        await run(server, "CONFIG", "SET", "maxmemory", "1")
        try:
            async with asyncio.timeout(5):
                (found,) = await outcomes(store, [task.chunks("a")])
                assert isinstance(found, StoreError)
                assert "it is full" in str(found)
                with pytest.raises(StoreError, match="it is full"):
                    await waited(store.hear(os.urandom(16), "t", 1))
                with pytest.raises(StoreError, match="it is full"):
                    await store.post(store.replica, [b"letter"])
                task.log.pop()
                assert await log_of(store, task) == task.log
                assert (await store.beat())[store.replica] == 2  # it lives
                assert (await store.list(Query(task.scope, 9))).total == 2
                store.retention = Retention(ttl_s=0)
                assert (await store.prune(ticks.at + 1)).tasks == 1  # which makes room
                store.release(task.scope, task.task_id)
                assert (await record_of(store, task)).owner == ""
        finally:
            await run(server, "CONFIG", "SET", "maxmemory", "0")
        assert await store.claim(task.scope, task.task_id, "") is not None
        await write(store, task.chunks("b"), task.go(COMPLETED))
        assert await log_of(store, task) == task.log


@within(60)
async def test_a_replica_of_another_server_takes_no_writes_and_says_so_until_it_is_the_first_one(
    server: RedisServer,
) -> None:
    async with opened(server) as before:
        task = Written(Ticks())
        await write(before, task.make(), task.go(RESTS))
    with RedisServer("--replicaof", f"127.0.0.1 {server.port}", "--repl-diskless-sync-delay", "0") as copy:
        await _says(copy, "replication", "'master_link_status': 'up'")
        hasty = RedisStore(copy.url(), patience_s=0.5)
        async with asyncio.timeout(5):
            with pytest.raises(StoreError, match="takes no writes, as it is a replica of another Redis"):
                await hasty.open()
        store = RedisStore(copy.url())
        try:
            async with _refusing(copy):
                opening = asyncio.ensure_future(store.open())
            await opening
            assert await store.claim(task.scope, task.task_id, before.replica) is not None
            await run(copy, "REPLICAOF", "127.0.0.1", "1")  # of nobody: it keeps what it has
            async with _refusing(copy):
                writing = asyncio.ensure_future(write(store, task.chunks("a")))
            await writing
            assert await log_of(store, task) == task.log
        finally:
            await store.close()


@asynccontextmanager
async def _refusing(server: RedisServer) -> AsyncIterator[None]:
    """A replica that becomes the first one when it has refused something."""
    await run(server, "CONFIG", "RESETSTAT")
    yield
    await _says(server, "errorstats", "errorstat_READONLY")
    await run(server, "REPLICAOF", "NO", "ONE")


async def _says(server: RedisServer, section: str, words: str) -> None:
    """Wait until the server says something of itself."""
    while words not in str(await run(server, "INFO", section)):  # noqa: ASYNC110 - it tells nobody by itself
        await asyncio.sleep(0.01)


@in_loop
async def test_what_the_user_has_no_right_to_is_an_error_at_once(server: RedisServer) -> None:
    async with opened(server):
        await run(server, "ACL", "SETUSER", "reader", "on", "nopass", "~*", "+@all", "-@write")
        store = RedisStore(server.url().replace("redis://", "redis://reader:any@"))
        async with asyncio.timeout(5):
            with pytest.raises(StoreError, match="no permissions"):
                await store.open()


@in_loop
async def test_a_server_that_may_forget_is_named_once(server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(server):
        assert not caplog.records
    with RedisServer("--appendonly", "no", "--maxmemory-policy", "allkeys-lru") as careless:
        async with opened(careless) as store:
            await store.open()
            words = [record.getMessage() for record in caplog.records]
            assert len(words) == 2
            assert "Set appendonly yes" in words[0]
            assert "Set maxmemory-policy noeviction" in words[1]
            caplog.clear()
            await run(careless, "ACL", "SETUSER", "default", "-config")
            silent = RedisStore(careless.url())
            await silent.open()
            await silent.close()
            assert not caplog.records


# --- addresses, passwords, versions -----------------------------------------------------------------------------------


@in_loop
async def test_a_wrong_password_is_an_error_at_once_and_never_shown(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await run(server, "ACL", "SETUSER", "guarded", "on", ">right", "~*", "+@all")
    right = RedisStore(server.url().replace("redis://", "redis://guarded:right@"))
    await right.open()
    await right.close()
    assert "right" not in repr(right)
    for url in (
        server.url().replace("redis://", "redis://guarded:hunter2@"),
        server.url() + "&username=guarded&password=hunter2",
    ):
        store = RedisStore(url)
        async with asyncio.timeout(5):
            with pytest.raises(StoreError, match="invalid username-password pair") as refused:
                await store.open()
        assert "hunter2" not in f"{refused.value} {refused.value!r} {store!r} {caplog.text}"


@pytest.mark.parametrize(
    "url",
    [
        "redis://u:hun/ter2@h/0",
        "redis://u:hun#ter2@h/0",
        "redis://u:1?ter2@h/0",
        "redis://u:1/ter2@h/0",
        "redis://:12#ter2@h",
        "redis://h:many/0",
        "redis://h/zero",
        "redis://h/0?prefix=",
        "redis://h/0?prefix={a}",
    ],
)
def test_an_address_that_is_none_is_an_error_that_does_not_show_its_password(url: str) -> None:
    with pytest.raises(ValueError, match=r"the address of a Redis is|prefix=") as refused:
        RedisStore(url)
    assert "ter2" not in str(refused.value)


@in_loop
async def test_parameters_that_would_change_what_comes_back_are_ours(server: RedisServer) -> None:
    async with opened(server):
        store = RedisStore(server.url() + "&protocol=3&decode_responses=true")
        await store.open()
        try:
            await works(store)
            assert (await store.list(Query("0:/0:/", 9))).total == 1
            assert [task.record.state async for task in store.tasks()] == [COMPLETED]
        finally:
            await store.close()


@in_loop
async def test_keys_of_another_version_are_refused(server: RedisServer) -> None:
    async with opened(server):
        pass
    meta = "{tieline}:meta"
    for version, words in (("7", "Use a newer one"), ("0", "tieline store migrate")):
        await run(server, "HSET", meta, "version", version)
        store = RedisStore(server.url())
        with pytest.raises(StoreError, match=f"keys of version {version}.*{words}"):
            await store.open()
        with pytest.raises(StoreError, match=f"keys of version {version}"):
            await store.migrate()
    await run(server, "FLUSHALL")
    store = RedisStore(server.url())
    assert await store.migrate() == (0, 2)
    assert await store.migrate() == (2, 2)


@in_loop
async def test_all_keys_begin_with_the_prefix_in_one_slot_and_none_is_left_of_what_is_dropped(
    server: RedisServer,
) -> None:
    async with opened(server) as store:
        ticks = Ticks()
        store.retention = Retention(ttl_s=0)
        await store.beat()
        key = os.urandom(16)
        assert await waited(store.hear(key, "t", 1)) is None
        replied = store.replied(key, b"reply")
        assert replied is not None
        await replied
        task = Written(ticks)
        await write(store, task.make(), task.chunks("a"), task.go(RESTS))
        await store.post("somebody", [b"letter"])
        keys = await run(server, "KEYS", "*")
        assert len(keys) > 10
        assert all(each.startswith(b"{tieline}:") for each in keys)
        await write(store, task.go(COMPLETED))
        pruned = await store.prune(10**15)
        assert (pruned.tasks, pruned.messages) == (1, 1)
        store.retention = Retention()
        await run(server, "DEL", "{tieline}:i:somebody")
        left = {each.removeprefix(b"{tieline}:") for each in await run(server, "KEYS", "*")}
        assert {each for each in left if not each.startswith(b"d:")} <= {b"meta", b"n", b"r", b"owners"}
        stats = await store.stats()
        assert (stats.bytes, stats.events, stats.messages, stats.oldest) == (0, 0, 0, None)


# --- several at once --------------------------------------------------------------------------------------------------


@in_loop
async def test_of_two_writers_of_one_task_exactly_one_writes_each_version(server: RedisServer) -> None:
    async with several(server, 2) as stores:
        task = Written(Ticks())
        made = task.make()
        first = await asyncio.gather(*(outcomes(store, [made]) for store in stores))
        assert sorted(type(one).__name__ for (one,) in first) == ["NoneType", "VersionConflict"]
        owner, other = stores if first[0] == [None] else reversed(stores)
        for round_ in range(30):
            chunk = task.chunks(str(round_))
            if round_ % 3 == 2:
                assert await other.claim(task.scope, task.task_id, owner.replica) is not None
                owner, other = other, owner
            found = await asyncio.gather(*(outcomes(store, [chunk]) for store in stores))
            assert sorted(type(one).__name__ for (one,) in found) == ["NoneType", "VersionConflict"]
        assert await log_of(other, task) == task.log


@in_loop
async def test_of_twenty_that_hear_one_message_at_once_one_is_first(server: RedisServer) -> None:
    async with several(server, 20) as stores:
        for round_ in range(10):
            key = bytes([round_]) * 16
            heard = await asyncio.gather(*(waited(store.hear(key, store.replica, round_)) for store in stores))
            assert heard.count(None) == 1
            first = stores[heard.index(None)].replica
            assert {one for one in heard if one is not None} == {Outcome(first, None, first)}


@within(60)
async def test_two_that_prune_at_once_while_connections_are_cut_drop_what_is_over_and_no_more(
    server: RedisServer,
) -> None:
    async with several(server, 2) as stores:
        ticks = Ticks()
        tasks = [Written(ticks) for _ in range(3000)]
        assert set(await outcomes(stores[0], [task.make() for task in tasks])) == {None}
        assert set(await outcomes(stores[0], [task.go(COMPLETED) for task in tasks[1:]])) == {None}
        each = (await stores[0].stats()).bytes / 3000
        cutting: list[asyncio.Future[Any]] = []
        for keep in (Retention(max_bytes=int(each * 1000.5)), Retention(ttl_s=0)):
            for store in stores:
                store.retention = keep
            found = await asyncio.gather(
                *(
                    store.prune(ticks.at + 1, lambda _: cutting.append(asyncio.ensure_future(run(server, *KILL_ALL))))
                    for store in stores
                )
            )
            await asyncio.gather(*cutting)
            assert sum(one.tasks for one in found) == (2000 if keep.max_bytes else 999)
        assert len(cutting) > 8
        assert (await stores[0].stats()).states == {tasks[0].state: 1}


@in_loop
async def test_a_page_is_right_while_its_tasks_change(server: RedisServer) -> None:
    async with several(server, 2) as (one, other):
        ticks = Ticks()
        tasks = [Written(ticks) for _ in range(30)]
        assert set(await outcomes(one, [task.make() for task in tasks])) == {None}
        over = False

        async def change() -> None:
            while not over:
                for task in tasks[::7]:
                    await write(one, task.go(RESTS), task.go(TaskState.WORKING))

        changing = asyncio.ensure_future(change())
        for _ in range(100):
            page = await other.list(Query(tasks[0].scope, 20, "c"))
            places = [(record.updated, record.task_id) for record in page.records]
            assert places == sorted(set(places), reverse=True)
            assert (page.total, page.more) == (30, True)
            resting = await other.list(Query(tasks[0].scope, 20, "c", RESTS))
            assert {record.state for record in resting.records} <= {RESTS}
            assert resting.total <= len(tasks[::7])
        over = True
        await changing


# --- letters ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def listening(server: RedisServer) -> AsyncIterator[tuple[RedisStore, RedisStore, asyncio.Queue[bytes]]]:
    """Who sends, who hears, and what was heard: b"GAP" is a gap."""
    async with opened(server) as sender:
        listener = RedisStore(server.url())
        letters: asyncio.Queue[bytes] = asyncio.Queue()
        listener.listen(letters.put_nowait, lambda: letters.put_nowait(b"GAP"))
        try:
            yield sender, listener, letters
        finally:
            await listener.close()


@in_loop
async def test_letters_arrive_again_after_the_listening_connection_was_cut_and_a_gap_is_told(
    server: RedisServer,
) -> None:
    async with listening(server) as (sender, listener, letters):
        await listener.open()
        sent = [b"small", b"large" * 20_000, b"", *(b"%d" % number for number in range(2500))]
        for _ in range(3):
            await sender.post(listener.replica, sent)
            assert [await letters.get() for _ in sent] == sent
            await run(server, *KILL_ALL)
            assert await letters.get() == b"GAP"
        await sender.post(listener.replica, sent)
        assert [await letters.get() for _ in sent] == sent


@in_loop
async def test_letters_that_are_sent_while_the_listening_connection_is_cut_again_and_again_arrive_once(
    server: RedisServer,
) -> None:
    async with listening(server) as (sender, listener, letters):
        await listener.open()
        heard: list[bytes] = []
        for number in range(60):
            await sender.post(listener.replica, [b"%d" % number])
            if number % 6 == 5:
                await run(server, "CLIENT", "KILL", "TYPE", "normal")
        await sender.post(listener.replica, [b"last"])
        while b"last" not in heard:
            heard.append(await letters.get())
        heard = [letter for letter in heard if letter != b"GAP"]
        assert list(dict.fromkeys(heard)) == [*(b"%d" % number for number in range(60)), b"last"]


@in_loop
async def test_a_reader_that_has_left_too_much_unread_is_told_of_a_gap(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_post, "_LETTERS", 5)
    async with listening(server) as (sender, listener, letters):
        await sender.post(listener.replica, [b"1", b"2", b"3"])
        await sender.post(listener.replica, [b"4", b"5", b"6"])
        await listener.open()
        assert [await letters.get() for _ in range(4)] == [b"GAP", b"4", b"5", b"6"]


@in_loop
async def test_who_hears_that_a_task_was_let_go_of_can_claim_it(server: RedisServer) -> None:
    async with listening(server) as (sender, listener, letters):
        await listener.open()
        ticks = Ticks()
        for _ in range(20):
            task = Written(ticks)
            await write(sender, task.make(), task.go(RESTS))
            sender.release(task.scope, task.task_id)
            sender.post(listener.replica, [b"yours"])
            assert await letters.get() == b"yours"
            assert await listener.claim(task.scope, task.task_id, "") is not None


# --- reads ------------------------------------------------------------------------------------------------------------


@in_loop
async def test_reads_that_are_given_up_leave_the_store_as_it_was(server: RedisServer) -> None:
    async with opened(server) as store:
        task = Written(Ticks())
        await write(store, task.make())
        for pause in range(40):
            reads = [asyncio.ensure_future(store.get(task.scope, task.task_id)) for _ in range(10)]
            for _ in range(pause):
                await asyncio.sleep(0)
            for read in reads:
                read.cancel()
            await asyncio.wait(reads)
        assert (await record_of(store, task)).task_id == task.task_id
        assert (await run(server, "CLIENT", "LIST")).count(b"\n") <= 10  # eight, one that listens, and this one
        await works(store)
