"""What is measured of the stores that processes can share, and what a chunk costs on each store."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, aclosing, contextmanager
from typing import Any

from benchmarks import raw
from benchmarks.databases import Database, start
from benchmarks.servers import ROOT, CannotRun, Server, serving
from benchmarks.works import Figures, Row, Settings, Work, rate

DATABASES: tuple[Database, ...] = ("PostgreSQL", "Redis")

ON_POSTGRES = "task on PostgreSQL, to a2a-sdk's database"
ON_REDIS = "task on Redis, to a2a-sdk's database on PostgreSQL"


def _tasks(settings: Settings) -> Figures:
    """a2a-sdk and tieline on one and the same PostgreSQL server; then tieline on Redis."""
    figures: Figures = {ON_POSTGRES: {}, ON_REDIS: {}}
    with ExitStack() as held:
        postgres = start("PostgreSQL", held)
        if postgres is None:
            return figures
        if "a2a-sdk" in settings.contestants:
            figures[ON_POSTGRES]["a2a-sdk"] = rate("a2a-sdk", "task", 64, settings, store=postgres)
        if "tieline" in settings.contestants:
            figures[ON_POSTGRES]["tieline"] = rate("tieline", "task", 64, settings, store=postgres)
    with ExitStack() as held:
        redis = start("Redis", held)
        if redis is None:
            return figures
        if "a2a-sdk" in settings.contestants:
            figures[ON_REDIS]["a2a-sdk"] = figures[ON_POSTGRES]["a2a-sdk"]
        if "tieline" in settings.contestants:
            figures[ON_REDIS]["tieline"] = rate("tieline", "task", 64, settings, store=redis)
    return figures


LONG, SHORT = 1_000, 20
STORES = ("memory", "SQLite", *DATABASES)


def _bytes(store: str) -> str:
    return f"bytes a chunk of {LONG:,}, {store}"


def _growth(store: str) -> str:
    return f"bytes a chunk of {LONG:,} to one of {SHORT}, {store}"


def _chunk_bytes(settings: Settings) -> Figures:
    figures: Figures = {}
    for store in STORES if "tieline" in settings.contestants else ():
        with _url(store) as url:
            if url is not None:
                found = _bytes_a_chunk(url)
                figures[_bytes(store)] = {"tieline": found["long"]}
                figures[_growth(store)] = {"tieline": found["long"] / found["short"]}
    return figures


@contextmanager
def _url(store: str) -> Iterator[str | None]:
    """An empty store of this kind; None when its server is not installed."""
    with ExitStack() as held:
        if store == "memory":
            yield "memory"
        elif store == "SQLite":
            yield f"sqlite:{held.enter_context(tempfile.TemporaryDirectory(prefix='bench-'))}/tasks.db"
        else:
            yield start("PostgreSQL" if store == "PostgreSQL" else "Redis", held)


def _bytes_a_chunk(url: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.chunk_bytes", url, str(LONG), str(SHORT)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400)
    if done.returncode:
        raise CannotRun(f"benchmarks.chunk_bytes failed: {done.stderr[-4000:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


TASKS, TICKS = 40, 10  # followed, and the chunks of each that are waited for
AT_WORK = 200  # chunks that each would say; its server ends first


def _subscribe(database: str) -> str:
    return f"subscribe across replicas, {database}"


def _hear(database: str) -> str:
    return f"from said to heard across replicas, {database}"


def _across_replicas(settings: Settings) -> Figures:
    figures: Figures = {}
    for database in DATABASES if "tieline" in settings.contestants else ():
        with ExitStack() as held:
            url = start(database, held)
            if url is not None:
                one, other = (held.enter_context(serving("tieline", settings.cores, store=url)) for _ in range(2))
                subscribed, heard = asyncio.run(_follow_tasks(one, other))
                figures[_subscribe(database)] = {"tieline": subscribed * 1e3}
                figures[_hear(database)] = {"tieline": heard * 1e3}
    return figures


async def _follow_tasks(one: Server, other: Server) -> tuple[float, float]:
    """Seconds, as medians: until a task of one replica is seen at the other, and until what it says then is heard."""
    subscribed: list[float] = []
    heard: list[float] = []
    for number in range(TASKS + 1):
        first, delays = await _follow_one(one, other)
        if number:  # the first one also opens connections of the replicas to the database
            subscribed.append(first)
            heard += delays
    return statistics.median(subscribed), statistics.median(heard)


async def _follow_one(one: Server, other: Server) -> tuple[float, list[float]]:
    """Begin a task at `one` and follow it at `other` while it is at work."""
    sender, follower = [await raw.Connection.open(server.port) for server in (one, other)]
    async with aclosing(sender.events(one.path, raw.send(f"ticks {AT_WORK}", stream=True))) as said:
        async for _, event in said:
            if "task" in event:
                task_id = event["task"]["id"]
            elif "artifactUpdate" in event:
                break
    delays: list[float] = []
    started = time.monotonic()
    async with aclosing(follower.events(other.path, raw.subscribe(task_id))) as heard:
        came, event = await anext(heard)
        first = came - started
        raw.require(event.get("task", {}).get("id") == task_id, "Not the task that was subscribed to", event)
        async for came, event in heard:
            delays.append(came - _said_at(event))
            if len(delays) == TICKS:
                break
    raw.require(len(delays) == TICKS, f"Not {TICKS} chunks", delays)
    for connection in (sender, follower):
        connection.close()
    return first, delays


def _said_at(event: dict[str, Any]) -> float:
    """When a chunk of "ticks" was said."""
    parts = event.get("artifactUpdate", {}).get("artifact", {}).get("parts", [])
    raw.require(len(parts) == 1, "Not one chunk", event)
    return float(parts[0]["text"])


SHARED_WORKS = (
    Work("databases", (Row(ON_POSTGRES, "/s", times_sdk=30), Row(ON_REDIS, "/s", times_sdk=50)), _tasks),
    Work(
        "chunk-bytes",
        tuple(row for store in STORES for row in (Row(_bytes(store), "B"), Row(_growth(store), "ratio", at_most=1.1))),
        _chunk_bytes,
    ),
    Work(
        "replicas",
        tuple(
            Row(name, "ms", at_most=20) for database in DATABASES for name in (_subscribe(database), _hear(database))
        ),
        _across_replicas,
    ),
)
