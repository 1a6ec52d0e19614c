"""Webhooks of real servers that are killed, stopped and joined by others: each hears every event, in order."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ParamSpec

import pytest

import tieline
from tests.chaos.run import migrated
from tests.databases import postgres_server, redis_server
from tests.faults.process import Server
from tests.push.agents import GIVE_UP_S, STORE
from tests.push.hooks import Hook, flaky, hook, state_of, status
from tests.push.receiving import OK
from tieline import Task, TaskPushNotificationConfig
from tieline.ids import new_id
from tieline.stores import open_store
from tieline.stores.base import StoredTask

P = ParamSpec("P")

AGENTS = Path(__file__).with_name("agents.py")
TIELINE = Path(sys.executable).with_name("tieline")
LIMIT_S = 90.0  # for a test with processes, on a busy machine
TASKS = 4


def run(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an async test in a loop of its own, within the limit."""

    @functools.wraps(test)
    def limited(*args: P.args, **kwargs: P.kwargs) -> None:
        async def work() -> None:
            async with asyncio.timeout(LIMIT_S):
                await test(*args, **kwargs)

        asyncio.run(work())

    return limited


@asynccontextmanager
async def served(*arguments: str, **variables: str) -> AsyncIterator[Server]:
    """`tieline serve` with these arguments; killed at the end if it has not ended."""
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    command = [str(TIELINE), "serve", *arguments]
    if "--port" not in arguments:
        command += ["--port", "0"]
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={**environment, **variables},
    )
    server = Server(process)
    try:
        server.port = int((await server.says(r"Serving http://127\.0\.0\.1:(\d+)"))[1])
        yield server
    finally:
        await server.kill()


async def tieline_says(*arguments: str) -> Any:
    """What a command prints, as JSON."""
    process = await asyncio.create_subprocess_exec(
        *[str(TIELINE), *arguments, "-o", "json"], stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, errors = await process.communicate()
    assert process.returncode == 0, errors
    return json.loads(out)


async def begun(server: Server, at: Hook, count: int = TASKS) -> list[str]:
    """Tasks with a webhook each, all at work."""
    ids = []
    async with tieline.connect(f"http://127.0.0.1:{server.port}") as peer:
        for number in range(count):
            webhook = TaskPushNotificationConfig(at.url_of(str(number)), token="t0ken")
            task = await peer.send("count", webhook=webhook, return_immediately=True)
            assert isinstance(task, Task)
            ids.append(task.id)
    return ids


async def stored(url: str) -> dict[str, StoredTask]:
    store = open_store(url)
    await store.open()
    try:
        return {task.record.task_id: task async for task in store.tasks()}
    finally:
        await store.close()


def ended(at: Hook, paths: int = TASKS) -> bool:
    """Whether each webhook has been told of an end."""
    ends = ("COMPLETED", "FAILED")
    return all(any(state_of(told.body) in ends for told in at.of(str(path))) for path in range(paths))


def check(at: Hook, ids: list[str], found: dict[str, StoredTask]) -> None:
    """Assert that each webhook was told of every event of its task, in order; what came again is the same."""
    for path, task_id in enumerate(ids):
        told = at.of(str(path))
        assert {one.task_id for one in told} == {task_id}
        first: dict[int, Any] = {}
        for one in told:
            assert first.setdefault(one.number, one.body) == one.body
        events = {number: json.loads(event.json) for number, event in found[task_id].events}
        assert found[task_id].record.state.terminal
        assert list(first) == sorted(events)
        assert first == events


@run
async def test_server_that_is_killed_in_between_and_started_again_tells_every_event_in_order(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'tasks.db'}"
    async with hook(flaky(7)) as at:
        async with served(f"{AGENTS}:app", **{STORE: store}) as server:
            ids = await begun(server, at)
            await at.until(lambda: len(at.told) > 15)
            await server.kill()
        before = len(at.told)
        async with served(f"{AGENTS}:app", **{STORE: store}) as server:
            await at.until(lambda: ended(at))
            await server.kill()
        assert len(at.told) > before
        check(at, ids, await stored(store))


@run
async def test_options_of_the_command_are_enough_and_kill_loses_nothing(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'tasks.db'}"
    options = ("--store", store, "--push", "--push-loopback")
    async with hook() as at:
        async with served(f"{AGENTS}:counter", *options) as server:
            ids = await begun(server, at)
            await at.until(lambda: len(at.told) > 20)
            await server.kill()
        async with served(f"{AGENTS}:counter", *options) as server:
            await at.until(lambda: ended(at))
            await server.kill()
        check(at, ids, await stored(store))


@run
async def test_server_that_is_told_to_stop_leaves_what_it_has_not_told_to_the_next_one(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'tasks.db'}"
    async with hook(flaky(11, of_ten=5)) as at:
        async with served(f"{AGENTS}:app", **{STORE: store}) as server:
            ids = await begun(server, at)
            await at.until(lambda: len(at.told) > 15)
            server.signal(signal.SIGTERM)
            assert await server.ended() == 0
            assert not [line for line in server.said if "Traceback" in line or "never retrieved" in line]
        async with served(f"{AGENTS}:app", **{STORE: store}) as server:
            await at.until(lambda: ended(at))
            server.signal(signal.SIGTERM)
            assert await server.ended() == 0
        check(at, ids, await stored(store))
        posted = [one.post.headers["idempotency-key"] for one in at.told]
        assert len(posted) == len(set(posted)), "what was acknowledged before a stop is noted"


@run
async def test_webhook_that_is_away_too_long_is_a_dead_letter_and_replayed_gets_the_rest_in_order(
    tmp_path: Path,
) -> None:
    store = f"sqlite:{tmp_path / 'tasks.db'}"
    variables = {STORE: store, GIVE_UP_S: "0.3"}
    async with hook() as at:
        at.answer = lambda post: OK if len(at.told) < 8 else status(503)
        async with served(f"{AGENTS}:app", **variables) as server:
            ids = await begun(server, at, 1)
            await server.says("is given up behind")
            async with tieline.connect(f"http://127.0.0.1:{server.port}") as peer:
                async for _ in peer.subscribe(ids[0]):
                    pass
            server.signal(signal.SIGTERM)
            assert await server.ended() == 0
        (dead,) = (await tieline_says("push", "dead", store))["dead"]
        assert (dead["taskId"], dead["url"], dead["after"]) == (ids[0], at.url_of("0"), 8)
        assert dead["failures"] > 1
        assert "503" in dead["reason"]
        assert "t0ken" not in str(dead)
        replayed = await tieline_says("push", "replay", store, "--task", ids[0], "--id", dead["id"])
        assert replayed["replayed"] == [{"taskId": ids[0], "id": dead["id"]}]
        assert (await tieline_says("push", "dead", store))["dead"] == []
        at.answer = lambda post: OK
        async with served(f"{AGENTS}:app", **variables) as server:
            await at.until(lambda: ended(at, 1))
            await server.kill()
        check(at, ids, await stored(store))


@pytest.mark.parametrize("database", ["postgres", "redis"])
@run
async def test_replica_that_delivers_is_killed_and_another_one_goes_on_in_order(database: str) -> None:
    name = f"push_{new_id().replace('-', '')[:16]}"
    url = (postgres_server() if database == "postgres" else redis_server()).url(name)
    await migrated(url)
    async with hook(flaky(13)) as at, served(f"{AGENTS}:app", **{STORE: url}) as one:
        async with served(f"{AGENTS}:app", **{STORE: url}) as other:
            ids = await begun(other, at)
            await at.until(lambda: len(at.told) > 15)
            await other.kill()
        await at.until(lambda: ended(at))
        assert not [line for line in one.said if "Traceback" in line]
        check(at, ids, await stored(url))


@pytest.mark.parametrize("database", ["postgres", "redis"])
@run
async def test_replay_beside_a_running_server_is_taken_up_by_it(database: str) -> None:
    name = f"push_{new_id().replace('-', '')[:16]}"
    url = (postgres_server() if database == "postgres" else redis_server()).url(name)
    await migrated(url)
    async with hook(lambda post: status(410)) as at, served(f"{AGENTS}:app", **{STORE: url}) as server:
        ids = await begun(server, at, 1)
        await server.says("is given up behind")
        (dead,) = (await tieline_says("push", "dead", url))["dead"]
        assert (dead["taskId"], dead["after"]) == (ids[0], 0)
        at.answer = lambda post: OK
        assert len((await tieline_says("push", "replay", url, "--all"))["replayed"]) == 1
        await at.until(lambda: ended(at, 1))
        check(at, ids, await stored(url))
