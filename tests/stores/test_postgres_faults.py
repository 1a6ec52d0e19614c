"""PostgreSQL that is restarted, killed, cut off, stands still, is full or takes no writes, under a store in use."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import psycopg
import pytest

from tests.databases import PostgresServer
from tests.engine.scene import in_loop
from tests.stores.faults import Crowd, Wire, waited
from tests.stores.writing import COMPLETED, Ticks, Written, outcomes, write
from tieline.stores.base import Outcome, Pruned, Retention, StoreError, VersionConflict
from tieline.stores.postgres import PostgresStore
from tieline.stores.postgres_link import read_url
from tieline.stores.postgres_schema import SCHEMA_VERSION
from tieline.types import TaskState

RESTS = TaskState.INPUT_REQUIRED


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(safe=True) as one:
        yield one


@asynccontextmanager
async def opened(
    server: PostgresServer, *, patience_s: float = 10.0, limit_s: float = 30.0
) -> AsyncIterator[PostgresStore]:
    """An open store in an empty schema."""
    store = PostgresStore(server.url(), patience_s=patience_s, limit_s=limit_s)
    await run(server, "DROP SCHEMA IF EXISTS tieline CASCADE")
    await store.migrate()
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def run(server: PostgresServer, statement: str) -> list[tuple[Any, ...]]:
    """Something that an administrator does."""
    url = server.url().partition("?")[0] + "?options=-c%20default_transaction_read_only%3Doff"
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        cursor = await connection.execute(statement.encode())
        return await cursor.fetchall() if cursor.description is not None else []


CUT_ALL = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND usename = 'tester'"
)


@in_loop
async def test_a_restart_in_the_middle_of_many_appends_loses_none_and_doubles_none(server: PostgresServer) -> None:
    async with opened(server) as store:
        crowd = Crowd(store)
        async with crowd.at_work():
            for _ in range(3):
                await asyncio.to_thread(server.restart)
                await crowd.more(100)


@in_loop
async def test_a_crash_of_the_server_in_the_middle_of_many_appends_loses_none_and_doubles_none(
    server: PostgresServer,
) -> None:
    async with opened(server) as store:
        crowd = Crowd(store)
        async with crowd.at_work():
            for _ in range(3):
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
                await crowd.more(100)


@in_loop
async def test_connections_that_are_cut_again_and_again_lose_nothing_and_double_nothing(server: PostgresServer) -> None:
    async with opened(server) as store:
        crowd = Crowd(store)
        async with crowd.at_work():
            for _ in range(30):
                await run(server, CUT_ALL)
                await crowd.more(20)


@asynccontextmanager
async def on_a_wire(server: PostgresServer) -> AsyncIterator[tuple[PostgresStore, Wire]]:
    """An open store in an empty schema, and the line that it is on."""
    async with opened(server), Wire(server) as wire:
        store = PostgresStore(wire.url)
        await store.open()
        try:
            yield store, wire
        finally:
            await store.close()
            assert wire.cuts, "nothing was cut"


@in_loop
async def test_what_was_written_with_an_answer_that_was_lost_is_done_once(server: PostgresServer) -> None:
    async with on_a_wire(server) as (store, wire):
        ticks = Ticks()
        made, changed, rests, ended = (Written(ticks) for _ in range(4))
        await write(store, changed.make(), rests.make(), ended.make())
        wire.cut()
        key = os.urandom(16)
        heard = store.hear(key, made.task_id, ticks.at)
        begun = [made.make(), changed.chunks("a"), rests.go(RESTS), ended.go(COMPLETED)]
        writing = asyncio.ensure_future(outcomes(store, begun))
        await asyncio.sleep(0)
        store.release(rests.scope, rests.task_id)
        assert await writing == [None] * 4
        assert isinstance(heard, asyncio.Future)
        assert await heard is None
        for task in (made, changed, rests, ended):
            events = await store.events(task.scope, task.task_id, 0)
            assert events is not None
            assert [event.json for _, event in events] == task.log
        again = store.hear(key, "another", ticks.at)
        assert isinstance(again, asyncio.Future)
        assert await again == Outcome(made.task_id, None, store.replica)


@in_loop
async def test_a_conflict_is_one_also_when_its_answer_was_lost(server: PostgresServer) -> None:
    async with on_a_wire(server) as (store, wire):
        task = Written(Ticks())
        await write(store, task.make())
        stale = task.chunks("a")
        stale.after = 7
        wire.cut()
        (found,) = await outcomes(store, [stale])
        assert isinstance(found, VersionConflict)


@in_loop
async def test_what_was_taken_and_claimed_with_an_answer_that_was_lost_is_owned(server: PostgresServer) -> None:
    async with on_a_wire(server) as (store, wire):
        ticks = Ticks()
        taken, claimed = Written(ticks, scope="a"), Written(ticks, scope="b")
        key = os.urandom(16)
        before = PostgresStore(server.url())
        await before.open()
        await write(before, taken.make(), claimed.make(), claimed.go(RESTS))
        assert await waited(before.hear(key, "task", ticks.at)) is None
        await before.close()

        await store.stats()
        wire.cut()
        assert [record.owner for record in await store.take("a")] == [store.replica]
        wire.cut()
        found = await store.claim(claimed.scope, claimed.task_id, before.replica)
        assert found is not None
        assert found.owner == store.replica
        wire.cut()
        assert await store.claim_message(key, before.replica)
        assert not await store.claim_message(key, before.replica)
        assert wire.cuts == 3
        await write(store, taken.chunks("a"), claimed.go(COMPLETED))


# --- it stands still --------------------------------------------------------------------------------------------------


@asynccontextmanager
async def standing_still(server: PostgresServer) -> AsyncIterator[None]:
    await asyncio.to_thread(server.pause)
    try:
        yield
    finally:
        await asyncio.to_thread(server.resume)


@in_loop
async def test_a_server_that_stands_still_for_five_seconds_is_waited_for(server: PostgresServer) -> None:
    async with opened(server) as store:
        crowd = Crowd(store)
        async with crowd.at_work():
            async with standing_still(server):
                await asyncio.sleep(5)  # the fault itself: how long it lasts
            await crowd.more(100)


@in_loop
async def test_a_server_that_stands_still_for_too_long_is_an_error_in_time_and_used_again_when_it_goes_on(
    server: PostgresServer,
) -> None:
    async with opened(server, patience_s=1, limit_s=1) as store:
        ticks = Ticks()
        task, other = Written(ticks), Written(ticks)
        await write(store, task.make(), other.make())
        async with standing_still(server):
            async with asyncio.timeout(8):
                lost = store.append(task.chunks("a"))
                assert isinstance(lost, asyncio.Future)
                reads = [store.get(other.scope, other.task_id) for _ in range(50)]  # far more than connections
                found = await asyncio.gather(lost, store.stats(), store.beat(), *reads, return_exceptions=True)
            assert all(isinstance(one, StoreError) and "does not answer" in str(one) for one in found), found
            async with asyncio.timeout(8):  # on new connections, which are not answered either
                assert isinstance((await outcomes(store, [other.chunks("a")]))[0], StoreError)
                with pytest.raises(StoreError):
                    await store.get(other.scope, other.task_id)
        record = await store.get(task.scope, task.task_id)
        assert record is not None
        assert record.version in (2, 3)  # what was said before it stood still it may have done behind it
        new = Written(ticks)
        await write(store, new.make(), new.chunks("a"), new.go(COMPLETED))


@in_loop
async def test_a_server_that_is_away_for_too_long_is_an_error_in_time_and_used_again_when_it_is_back(
    server: PostgresServer,
) -> None:
    async with opened(server, patience_s=1) as store:
        task = Written(Ticks())
        await write(store, task.make())
        await asyncio.to_thread(server.stop)
        try:
            async with asyncio.timeout(8):
                (found,) = await outcomes(store, [task.chunks("lost")])
                assert isinstance(found, StoreError)
                assert "cannot be used for 1 s now" in str(found)
                for work in (store.get("a", "b"), store.beat(), store.take(""), store.claim_message(b"k" * 16, "r")):
                    with pytest.raises(StoreError, match="Is the server up"):
                        await work
                with pytest.raises(StoreError, match="Is the server up"):
                    await store.post("a", [b"letter"])
        finally:
            await asyncio.to_thread(server.start)
        record = await store.get(task.scope, task.task_id)
        assert record is not None
        assert record.version == 2
        new = Written(task.ticks)
        await write(store, new.make(), new.go(COMPLETED))


# --- it refuses -------------------------------------------------------------------------------------------------------


@in_loop
async def test_a_full_disk_is_an_error_at_once_and_over_when_there_is_room(server: PostgresServer) -> None:
    """A trigger says what a server says whose disk is full."""
    async with opened(server) as store:
        task = Written(Ticks())
        await write(store, task.make())
        await run(
            server,
            "CREATE FUNCTION tieline.full_disk() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$;"
            " CREATE TRIGGER full_disk BEFORE INSERT ON tieline.log EXECUTE FUNCTION tieline.full_disk()",
        )
        chunk = task.chunks("a")
        async with asyncio.timeout(5):  # less than what passes is waited for
            (found,) = await outcomes(store, [chunk])
        assert isinstance(found, StoreError)
        assert "The disk of the server is full" in str(found)
        assert not isinstance(found, VersionConflict)
        assert await store.get(task.scope, task.task_id) is not None
        await run(server, "DROP TRIGGER full_disk ON tieline.log")
        await write(store, chunk)


@in_loop
async def test_a_server_that_takes_no_writes_is_an_error_at_once_that_says_so(server: PostgresServer) -> None:
    async with opened(server) as store:
        task = Written(Ticks())
        await write(store, task.make())
        chunk = task.chunks("a")
        await run(server, "ALTER DATABASE postgres SET default_transaction_read_only = on")
        try:
            await run(server, CUT_ALL)
            async with asyncio.timeout(5):
                (found,) = await outcomes(store, [chunk])
                assert isinstance(found, StoreError)
                assert "takes no writes" in str(found)
                with pytest.raises(StoreError, match="takes no writes"):
                    await store.beat()
                assert await store.get(task.scope, task.task_id) is not None
        finally:
            await run(server, "ALTER DATABASE postgres RESET ALL")
        await write(store, chunk)  # on another connection: this one may be with what is a standby now


@in_loop
async def test_what_the_user_has_no_right_to_is_an_error_at_once(server: PostgresServer) -> None:
    async with opened(server):
        await run(server, "DROP ROLE IF EXISTS stranger; CREATE ROLE stranger LOGIN")
        store = PostgresStore(server.url().replace("tester@", "stranger@"))
        async with asyncio.timeout(5):
            with pytest.raises(StoreError, match="permission denied"):
                await store.open()
            with pytest.raises(StoreError, match="permission denied"):
                await PostgresStore(server.url("another").replace("tester@", "stranger@")).migrate()


@in_loop
async def test_one_append_that_no_database_can_hold_harms_no_other_of_its_turn(server: PostgresServer) -> None:
    async with opened(server) as store:
        ticks = Ticks()
        good, bad, last = Written(ticks), Written(ticks), Written(ticks)
        impossible = bad.make()
        impossible.updated = 1 << 70
        heard, unheard = store.hear(b"a" * 16, "a", ticks.at), store.hear(b"b" * 16, "b", 1 << 70)
        found = await outcomes(store, [good.make(), impossible, last.make()])
        assert [isinstance(one, StoreError) for one in found] == [False, True, False]
        assert await waited(heard) is None
        with pytest.raises(StoreError):
            await waited(unheard)
        assert await store.get(bad.scope, bad.task_id) is None


# --- passwords, schemas -----------------------------------------------------------------------------------------------


@in_loop
async def test_a_wrong_password_is_an_error_at_once_and_never_shown(
    server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    rules = server.folder / "data" / "pg_hba.conf"
    before = rules.read_text()
    await run(server, "DROP ROLE IF EXISTS guarded; CREATE ROLE guarded LOGIN PASSWORD 'right'")
    rules.write_text("host all guarded 127.0.0.1/32 scram-sha-256\n" + before)
    await run(server, "SELECT pg_reload_conf()")
    try:
        for url in (
            server.url().replace("tester@", "guarded:hunter2@"),
            server.url().replace("tester@", "guarded@") + "&password=hunter2",
        ):
            store = PostgresStore(url)
            async with asyncio.timeout(5):
                with pytest.raises(StoreError, match="password authentication failed") as refused:
                    await store.open()
            assert "hunter2" not in f"{refused.value} {refused.value!r} {store!r} {caplog.text}"
    finally:
        rules.write_text(before)
        await run(server, "SELECT pg_reload_conf()")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hun%ter2@h/db",
        "postgresql://u:hun%ter2@h/db?nothing=1",
        "postgresql://u:hun%ter2@h/db?schema=Not-A-Name",
    ],
)
def test_an_address_that_is_none_is_an_error_that_does_not_show_its_password(url: str) -> None:
    with pytest.raises(ValueError, match=r"is not an address|schema=") as refused:
        PostgresStore(url)
    assert "hun%ter2" not in str(refused.value)


def test_an_address_is_libpqs_but_for_the_schema() -> None:
    options, schema = read_url("postgresql:///db?host=/tmp&schema=x&options=-c%20work_mem%3D1&connect_timeout=7", "")
    assert schema == "x"
    assert (options["dbname"], options["host"], options["options"]) == ("db", "/tmp", "-c work_mem=1")
    assert options["connect_timeout"] == "7"
    options, schema = read_url("postgres://u@h1:1,h2:2/db", "")
    assert (options["host"], options["port"], schema) == ("h1,h2", "1,2", "tieline")


@in_loop
async def test_a_schema_that_is_not_there_names_the_command_that_makes_it(server: PostgresServer) -> None:
    url = server.url("nowhere").replace("tester@", "tester:hunter2@")
    with pytest.raises(StoreError, match="tieline store migrate") as refused:
        await PostgresStore(url).open()
    assert "'nowhere'" in str(refused.value)
    assert "hunter2" not in str(refused.value)


@in_loop
async def test_a_schema_of_another_version_is_refused_and_says_which(server: PostgresServer) -> None:
    async with opened(server):
        await run(server, f"UPDATE tieline.meta SET version = {SCHEMA_VERSION + 1}")
        for refusing in (PostgresStore(server.url()).open(), PostgresStore(server.url()).migrate()):
            with pytest.raises(StoreError, match=f"has schema version {SCHEMA_VERSION + 1}.*newer"):
                await refusing
        await run(server, "UPDATE tieline.meta SET version = 0")
        with pytest.raises(StoreError, match=r"has schema version 0.*tieline store migrate"):
            await PostgresStore(server.url()).open()


@in_loop
async def test_of_several_that_migrate_at_once_one_makes_the_tables(server: PostgresServer) -> None:
    await run(server, "DROP SCHEMA IF EXISTS crowded CASCADE")
    stores = [PostgresStore(server.url("crowded")) for _ in range(6)]
    found = await asyncio.gather(*(store.migrate() for store in stores))
    assert sorted(found) == [(0, SCHEMA_VERSION), *[(SCHEMA_VERSION, SCHEMA_VERSION)] * 5]
    for store in stores:
        await store.close()


# --- several at once --------------------------------------------------------------------------------------------------


@asynccontextmanager
async def several(server: PostgresServer, count: int) -> AsyncIterator[list[PostgresStore]]:
    """Open stores of one empty schema."""
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(opened(server))]
        for _ in range(count - 1):
            store = PostgresStore(server.url())
            await store.open()
            stack.push_async_callback(store.close)
            stores.append(store)
        yield stores


@in_loop
async def test_of_two_writers_of_one_task_exactly_one_writes_each_version(server: PostgresServer) -> None:
    async with several(server, 2) as stores:
        task = Written(Ticks())
        made = task.make()
        first = [(await outcomes(store, [made]))[0] for store in stores]
        assert [type(one) for one in first] == [type(None), VersionConflict]
        owner, other = stores
        for round_ in range(30):
            chunk = task.chunks(str(round_))
            if round_ % 3 == 2:
                assert await other.claim(task.scope, task.task_id, owner.replica) is not None
                owner, other = other, owner
            found = await asyncio.gather(*(outcomes(store, [chunk]) for store in stores))
            assert sorted(type(one).__name__ for (one,) in found) == ["NoneType", "VersionConflict"]
        events = await stores[0].events(task.scope, task.task_id, 0)
        assert events is not None
        assert [event.json for _, event in events] == task.log


@in_loop
async def test_of_twenty_that_hear_one_message_at_once_one_is_first(server: PostgresServer) -> None:
    async with several(server, 20) as stores:
        for round_ in range(10):
            keys = [bytes([round_, number]) * 8 for number in range(5)]
            heard = await asyncio.gather(
                *(
                    waited(store.hear(key, store.replica, round_))
                    for store in stores
                    for key in (keys if store is not stores[0] else reversed(keys))
                )
            )
            assert heard.count(None) == len(keys)
            firsts = {(one.task_id, one.replica) for one in heard if one is not None}
            assert len(firsts) <= len(keys)
            assert all(task_id == replica for task_id, replica in firsts)


@in_loop
async def test_letters_arrive_in_order_again_after_the_listening_connection_was_cut_and_a_gap_is_told(
    server: PostgresServer,
) -> None:
    async with opened(server) as sender:
        listener = PostgresStore(server.url())
        letters: asyncio.Queue[bytes] = asyncio.Queue()
        gap = asyncio.Event()
        listener.listen(letters.put_nowait, gap.set)
        await listener.open()
        try:
            sent = [b"small", b"large" * 20_000, b"", *(bytes([n % 256]) * n for n in range(5690, 5710)), b"last"]
            for _ in range(3):
                await sender.post(listener.replica, sent)
                assert [await letters.get() for _ in sent] == sent
                gap.clear()
                await run(server, CUT_ALL)
                await gap.wait()
            many = [b"%d" % number * 3 for number in range(5000)]
            await sender.post(listener.replica, many)
            assert [await letters.get() for _ in many] == many
            big = [bytes([number % 256]) * 6000 for number in range(700)]
            await sender.post(listener.replica, big)
            assert [await letters.get() for _ in big] == big
            assert await run(server, "SELECT count(*) FROM tieline.letters") == [(0,)]
            await sender.post("nobody", [b"lost"])
        finally:
            await listener.close()


@in_loop
async def test_a_message_that_is_heard_and_answered_in_one_turn_has_its_answer(server: PostgresServer) -> None:
    async with opened(server) as store:
        key = os.urandom(16)
        heard, replied = store.hear(key, "task", 1), store.replied(key, b"reply")
        assert await waited(heard) is None
        assert replied is not None
        await replied
        assert await waited(store.hear(key, "other", 2)) == Outcome("task", b"reply", store.replica)


@in_loop
async def test_a_release_goes_behind_the_append_of_its_turn_and_before_what_is_asked_then(
    server: PostgresServer,
) -> None:
    async with several(server, 2) as (store, other):
        tasks = [Written(Ticks(), task_id=f"{number}") for number in range(1200)]  # more than go in one statement
        made = [task.make() for task in tasks]
        writing = asyncio.ensure_future(outcomes(store, made))
        await asyncio.sleep(0)
        for task in tasks:
            store.release(task.scope, task.task_id)
        late = store.append(tasks[0].chunks("late"))
        assert isinstance(late, asyncio.Future)
        with pytest.raises(VersionConflict):
            await late
        assert await writing == [None] * len(tasks)
        owners = {record.owner for task in tasks[::100] if (record := await store.get(task.scope, task.task_id))}
        assert owners == {""}
        assert await other.claim(tasks[5].scope, tasks[5].task_id, "") is not None


@in_loop
async def test_a_letter_that_is_sent_behind_a_release_arrives_when_the_task_can_be_claimed(
    server: PostgresServer,
) -> None:
    async with opened(server) as sender:
        listener = PostgresStore(server.url())
        letters: asyncio.Queue[bytes] = asyncio.Queue()
        listener.listen(letters.put_nowait, lambda: None)
        await listener.open()
        try:
            for _ in range(50):
                task = Written(Ticks())
                await write(sender, task.make(), task.go(RESTS))
                sender.release(task.scope, task.task_id)
                posted = sender.post(listener.replica, [b"yours"])
                await letters.get()
                assert await listener.claim(task.scope, task.task_id, "") is not None
                await posted
        finally:
            await listener.close()


@in_loop
async def test_two_that_prune_at_once_while_connections_are_cut_drop_all_that_is_over_and_count_it_right(
    server: PostgresServer,
) -> None:
    async with several(server, 2) as stores:
        ticks = Ticks()
        tasks = [Written(ticks) for _ in range(3000)]
        assert set(await outcomes(stores[0], [task.make() for task in tasks])) == {None}
        assert set(await outcomes(stores[0], [task.go(COMPLETED) for task in tasks[1:]])) == {None}
        for store in stores:
            store.retention = Retention(ttl_s=0)
        cutting = [asyncio.ensure_future(run(server, CUT_ALL))]
        cuts_at = {1000, 2000}

        def told(pruned: Pruned) -> None:
            if cuts_at and pruned.tasks >= min(cuts_at):
                cuts_at.discard(min(cuts_at))
                cutting.append(asyncio.ensure_future(run(server, CUT_ALL)))

        found = await asyncio.gather(*(store.prune(ticks.at + 1, told) for store in stores))
        await asyncio.gather(*cutting)
        assert sum(one.tasks for one in found) == len(tasks) - 1
        assert await run(server, "SELECT count(*), (SELECT count(*) FROM tieline.log) FROM tieline.tasks") == [(1, 1)]


@in_loop
async def test_writing_looks_nothing_up_by_reading_a_whole_table(server: PostgresServer) -> None:
    """Its plan is made while the tables are empty, and has to do when they are large."""
    async with opened(server) as store:
        ticks = Ticks()
        for _ in range(20):
            tasks = [Written(ticks) for _ in range(100)]
            heard = [store.hear(os.urandom(16), task.task_id, ticks.at) for task in tasks]
            assert set(await outcomes(store, [task.make() for task in tasks])) == {None}
            assert set(await outcomes(store, [task.go(COMPLETED) for task in tasks])) == {None}
            assert {await waited(one) for one in heard} == {None}
    counted = "SELECT sum(n_tup_ins), sum(seq_tup_read) FROM pg_stat_user_tables WHERE relname IN ('tasks', 'messages')"
    while (await run(server, counted))[0][0] < 4000:  # the server counts when a connection has been closed
        continue
    assert (await run(server, counted))[0][1] < 2000


@in_loop
async def test_reads_that_are_given_up_leave_the_store_as_it_was(server: PostgresServer) -> None:
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
        assert await store.get(task.scope, task.task_id) is not None
        ((connections,),) = await run(
            server, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tieline'"
        )
        assert connections <= 6  # one that writes, one that listens, four that read
