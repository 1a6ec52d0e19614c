"""Webhooks of a store whose server is restarted, cut off in the middle of what it is asked for, or full; and of a file
whose process is killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis.asyncio as driver
from msgspec.structs import replace

from tests.databases import DatabaseServer, PostgresServer, RedisServer
from tests.engine.scene import in_loop
from tests.stores.faults import Wire
from tests.stores.sqlite_process import opened as opened_file
from tests.stores.sqlite_process import run_child
from tests.stores.test_shared_webhooks import set_mine
from tests.stores.test_webhooks import DAY, LIMIT, Task, give_up, hook, noted, of
from tests.stores.writing import COMPLETED, Ticks, Written, outcomes, write
from tieline.stores.base import SharedStore, StoreError, Webhook
from tieline.stores.postgres import PostgresStore
from tieline.stores.redis import RedisStore


@pytest.fixture(scope="module", params=["postgres", "redis"])
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    made: DatabaseServer = PostgresServer(safe=True) if request.param == "postgres" else RedisServer()
    with made as one:
        yield one


def made(url: str) -> PostgresStore | RedisStore:
    return PostgresStore(url) if url.startswith("postgresql") else RedisStore(url)


async def run(server: DatabaseServer, *commands: str) -> None:
    """Something that an administrator does."""
    if isinstance(server, PostgresServer):
        url = server.url().partition("?")[0]
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            for command in commands:
                await connection.execute(command.encode())
    else:
        client: Any = driver.Redis(port=server.port)
        async with client:
            for command in commands:
                await client.execute_command(*command.split())


async def cut_all(server: DatabaseServer) -> None:
    """Cut every connection."""
    if isinstance(server, PostgresServer):
        which = "pid <> pg_backend_pid() AND usename = 'tester'"
        await run(server, f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {which}")
    else:
        await run(server, "CLIENT KILL TYPE normal SKIPME yes")


@asynccontextmanager
async def opened(server: DatabaseServer, *, empty: bool = True, url: str = "") -> AsyncIterator[SharedStore]:
    """An open store on an empty server, alive."""
    if empty:
        await run(server, "DROP SCHEMA IF EXISTS tieline CASCADE" if isinstance(server, PostgresServer) else "FLUSHALL")
    store = made(url or server.url())
    await store.migrate()
    await store.open()
    try:
        await store.beat()
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def on_a_wire(server: DatabaseServer) -> AsyncIterator[tuple[SharedStore, Wire]]:
    """A store, and the line that it is on."""
    async with opened(server), Wire(server) as wire, opened(server, empty=False, url=wire.url) as store:
        yield store, wire


@in_loop
async def test_what_was_noted_with_an_answer_that_was_lost_is_noted_and_let_go_of(server: DatabaseServer) -> None:
    async with on_a_wire(server) as (store, wire):
        task = Written(Ticks())
        await write(store, task.make())
        webhook, other = await set_mine(store, hook(task)), await set_mine(store, hook(task, "other"))
        for number in range(1, 4):
            wire.cut()
            noted = [store.delivered(webhook, number), store.delivered(other, 1)]
            errors = await outcomes(store, [task.chunks("a")])
            assert errors == [None]
            await asyncio.gather(*(one for one in noted if one is not None))
            assert wire.cuts == number
            assert [one.after for one in await of(store, task)] == [number, 1]
        wire.cut()
        store.delivered(webhook, 9)
        store.failing(webhook, 9, 50)
        store.release_webhook(webhook)
        assert await of(store, task) == [replace(webhook, after=9, owner="", failing=50), replace(other, after=1)]
        assert wire.cuts == 4
        events = await store.events(task.scope, task.task_id, 0)
        assert [event.json for _, event in events or ()] == task.log


@in_loop
async def test_what_was_set_taken_claimed_and_dropped_with_an_answer_that_was_lost_is_so(
    server: DatabaseServer,
) -> None:
    async with on_a_wire(server) as (store, wire):
        task = Written(Ticks())
        await write(store, task.make())
        names = ("taken", "claimed", "dropped", "dead")
        cuts = 0
        for name in names:
            wire.cut()
            assert await store.set_webhook(hook(task, name), len(names))
            cuts += 1
            assert wire.cuts == cuts
        assert not await store.set_webhook(hook(task, "too many"), len(names))
        assert [one.id for one in await of(store, task)] == sorted(names)
        wire.cut()
        await give_up(store, hook(task, "dead"), 9, after=1)
        assert [(one.id, one.dead, one.failed, one.after) for one in await store.dead_webhooks("")] == [
            ("dead", 9, 3, 1)
        ]
        wire.cut()
        assert {one.owner for one in await store.take_webhooks("")} == {store.replica}
        wire.cut()
        assert len(await store.claim_webhooks(task.scope, task.task_id)) == 3
        wire.cut()
        assert await store.drop_webhook(task.scope, task.task_id, "dropped")
        wire.cut()
        assert await store.revive_webhook(task.scope, task.task_id, "dead")
        assert wire.cuts == cuts + 5
        assert not await store.drop_webhook(task.scope, task.task_id, "dropped")
        assert not await store.revive_webhook(task.scope, task.task_id, "dead")
        stats = await store.stats()
        assert (stats.webhooks, stats.dead_webhooks) == (3, 0)


@in_loop
async def test_notes_through_cuts_and_restarts_are_kept_and_never_go_back(server: DatabaseServer) -> None:
    async with opened(server) as store, opened(server, empty=False) as reader:
        webhooks = [await set_mine(store, hook(Task(task_id=f"{number}"))) for number in range(20)]
        told = dict.fromkeys(webhooks, 0)
        over = asyncio.Event()

        async def deliver(webhook: Webhook) -> None:
            while not over.is_set():
                writing = store.delivered(webhook, told[webhook] + 1)
                assert writing is not None
                await writing
                told[webhook] += 1

        async def look() -> None:
            before = dict(told)
            while not all(told[webhook] > count for webhook, count in before.items()):
                webhook = min(told, key=lambda one: told[one] - before[one])
                least = told[webhook]
                (found,) = await reader.webhooks(webhook.scope, webhook.task_id)
                assert found.after >= least

        async with asyncio.TaskGroup() as group:
            for webhook in webhooks:
                group.create_task(deliver(webhook))
            for _ in range(10):
                await cut_all(server)
                await look()
            for end in (server.kill, server.stop):
                await asyncio.to_thread(end)
                await asyncio.to_thread(server.start)
                await look()
            over.set()
        for webhook in webhooks:
            assert list(await reader.webhooks(webhook.scope, webhook.task_id)) == [
                replace(webhook, after=told[webhook])
            ]


@in_loop
async def test_a_note_in_the_turn_of_an_end_finishes_the_webhook(server: DatabaseServer) -> None:
    async with opened(server) as store, opened(server, empty=False) as other:
        task = Written(Ticks())
        await write(store, task.make())
        webhook = await set_mine(store, hook(task))
        ending, noted = store.append(task.go(COMPLETED)), store.delivered(webhook, 3)
        for one in (ending, noted):
            assert one is not None
            await one
        store.release_webhook(webhook)
        assert [one.owner for one in await of(store, task)] == [""]
        assert not await other.take_webhooks("")


@in_loop
async def test_a_webhook_that_is_set_while_its_task_is_dropped_is_not_left_behind() -> None:
    with PostgresServer() as postgres:
        url = postgres.url().partition("?")[0]
        async with (
            opened(postgres) as store,
            await psycopg.AsyncConnection.connect(url) as pruning,
            await psycopg.AsyncConnection.connect(url, autocommit=True) as looking,
        ):
            task = Written(Ticks())
            await write(store, task.make(), task.go(COMPLETED))
            await pruning.execute("SELECT number FROM tieline.tasks FOR UPDATE")
            setting = asyncio.ensure_future(store.set_webhook(hook(task), LIMIT))
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            while (await (await looking.execute(waiting)).fetchone()) != (1,):
                assert not setting.done()
            await pruning.execute("DELETE FROM tieline.tasks")
            await pruning.commit()
            assert await setting
            assert (await store.prune(2 * DAY)).webhooks == 1
            assert (await store.stats()).webhooks == 0


@in_loop
async def test_an_append_is_one_script_and_so_are_all_notes_of_a_turn() -> None:
    with RedisServer() as redis:

        async def scripts() -> int:
            client: Any = driver.Redis(port=redis.port)
            async with client:
                return int((await client.info("commandstats"))["cmdstat_evalsha"]["calls"])

        async with opened(redis) as store:
            task = Written(Ticks())
            await write(store, task.make())
            before = await scripts()
            for _ in range(5):
                await write(store, task.chunks("a"))
            assert await scripts() - before == 5
            webhook = hook(task)
            await store.set_webhook(webhook, LIMIT)
            noted = [store.delivered(webhook, number) for number in range(50)]
            since = await scripts()
            await asyncio.gather(*(one for one in noted if one is not None))
            assert await scripts() - since <= 1


@in_loop
async def test_a_redis_that_is_full_takes_no_webhook_and_notes_what_was_delivered() -> None:
    with RedisServer() as redis:
        async with opened(redis) as store:
            webhook, other = await set_mine(store, hook(Task(), "a")), await set_mine(store, hook(Task(), "b"))
            await run(redis, "CONFIG SET maxmemory 1")
            with pytest.raises(StoreError, match="it is full"):
                await store.set_webhook(hook(Task(), "c"), LIMIT)
            await noted(store, webhook, 5)
            assert [one.after for one in await of(store, Task())] == [5, 0]
            await give_up(store, other, 9)
            store.release_webhook(webhook)
            assert [one.owner for one in await of(store, Task())] == ["", ""]
            assert await store.drop_webhook("0:/0:/", "t", "a")


@in_loop
async def test_a_redis_that_was_emptied_in_use_takes_no_webhook_until_that_was_noticed() -> None:
    with RedisServer() as redis:
        async with opened(redis) as store:
            webhook = await set_mine(store, hook(Task()))
            await run(redis, "FLUSHALL")
            with pytest.raises(StoreError, match="was emptied while in use"):
                await store.set_webhook(hook(Task(), "b"), LIMIT)
            await noted(store, webhook, 5)
            await store.beat()
            assert await of(store, Task()) == []
            await set_mine(store, hook(Task(), "b"))
            assert (await store.stats()).webhooks == 1


KILLED = """
import asyncio, os, signal, sys
from tieline.stores.base import Webhook
from tieline.stores.sqlite import SQLiteStore
async def main():
    store = SQLiteStore(sys.argv[1])
    await store.open()
    webhook = Webhook("s", "t", "h", b"{}", "1.0", 0, 1)
    await store.set_webhook(webhook, 1)
    for after in range(1, 30):
        await store.delivered(webhook, after)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


@in_loop
async def test_what_was_noted_in_a_file_survives_the_death_of_its_process(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    assert run_child(KILLED, path).returncode == -9
    async with opened_file(path) as store:
        assert await store.webhooks("s", "t") == [Webhook("s", "t", "h", b"{}", "1.0", 29, 1)]


@in_loop
async def test_what_goes_into_a_file_that_was_removed_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    async with opened_file(path) as store:
        webhook = hook(Task())
        await store.set_webhook(webhook, LIMIT)
        path.rename(tmp_path / "elsewhere.db")
        with pytest.raises(StoreError, match="removed or replaced"):
            await noted(store, webhook, 1)
        with pytest.raises(StoreError, match="removed or replaced"):
            await store.set_webhook(hook(Task(), "b"), LIMIT)
        (tmp_path / "elsewhere.db").rename(path)
        await noted(store, webhook, 2)
        assert [one.after for one in await of(store, Task())] == [2]
