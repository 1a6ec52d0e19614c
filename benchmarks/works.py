"""What is measured: each `Work` is measured once a round and fills one or more rows of the table."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from benchmarks import load, raw
from benchmarks.servers import CannotRun, Cores, Server, serving, start_to_first_answer

Figures = dict[str, dict[str, float]]  # row name -> contestant -> figure


@dataclass(frozen=True)
class Settings:
    cores: Cores
    seconds: float  # of load, each time
    contestants: Sequence[str]


@dataclass(frozen=True)
class Row:
    """A line of the table, and the bars that tieline has to reach in it; None is no bar."""

    name: str
    unit: Literal["/s", "ms", "µs", "B", "KB", "ratio"]
    of_floor: float | None = None  # at least, as a part of the floor
    times_sdk: float | None = None  # at least, times better than a2a-sdk
    at_least: float | None = None  # in the unit
    at_most: float | None = None  # in the unit

    @property
    def more_is_better(self) -> bool:
        return self.unit == "/s"


@dataclass(frozen=True)
class Work:
    name: str
    rows: tuple[Row, ...]
    measure: Callable[[Settings], Figures]


def _answers(kind: str, connections: int) -> Callable[[Settings], Figures]:
    def measure(settings: Settings) -> Figures:
        return {kind: {name: rate(name, kind, connections, settings) for name in settings.contestants}}

    return measure


def rate(
    name: str,
    kind: str,
    connections: int,
    settings: Settings,
    *,
    store: str = "memory",
    environment: Mapping[str, str] | None = None,
) -> float:
    """Answers a second. The server's own warm-up is its probe: a few requests, all checked in full."""
    with serving(name, settings.cores, store=store, environment=environment) as server:
        body, want = asyncio.run(probe(server, kind))
        found = load.wrk(server, body, want, connections=connections, seconds=settings.seconds, cores=settings.cores)
        asyncio.run(probe(server, kind))
        return found


async def probe(server: Server, kind: str, version: raw.Version = "1.0") -> tuple[bytes, tuple[str, ...]]:
    """Check answers of this kind in full; return the request to load with, and what every answer must contain."""
    connection = await raw.Connection.open(server.port, version)
    path = server.path
    try:
        for number in range(10):
            text = f"{kind} probe {number}"
            match kind:
                case "message":
                    await raw.send_message(connection, path, "msg " + text)
                case "stream":
                    await raw.send_stream(connection, path, text, 10)
                case _:
                    await raw.send_task(connection, path, text)
        first, second = [await raw.send_task(connection, path, "a task") for _ in range(2)]
        raw.require(first != second, "One task for two messages", first)
        await raw.read_task(connection, path, first, "a task")
    finally:
        connection.close()
    by_agent, completed = "ROLE_AGENT", "TASK_STATE_COMPLETED"
    if version == "0.3":
        by_agent, completed = '"role":"agent"', '"state":"completed"'
    request = partial(raw.send, message_id="@ID@", version=version)
    match kind:
        case "message":
            return request("msg hello"), (by_agent, "msg hello")
        case "get":
            return raw.get_task(first, version), (first, completed, "a task")
        case "stream":
            return request("stream hello", stream=True), (completed, "chunk 9 of the answer")
        case _:
            return request("task hello"), (completed, "task hello", "artifacts")


CONNECTIONS = {"message": 64, "task": 64, "stream": 16}


def _old_to_new(settings: Settings) -> Figures:
    """Speed in 0.3 as a part of that in 1.0, of one server.

    The versions take turns, 1.0 first and last: what slows the machine, and what a server keeps of its tasks, counts
    for both alike.
    """
    figures: Figures = {}
    for kind, connections in CONNECTIONS.items():
        row = figures.setdefault(f"0.3 to 1.0, {kind}", {})
        if "tieline" in settings.contestants:
            with serving("tieline", settings.cores) as server:
                row["tieline"] = _part_of_new(server, kind, connections, settings)
    return figures


def _part_of_new(server: Server, kind: str, connections: int, settings: Settings) -> float:
    rates: dict[raw.Version, list[float]] = {"1.0": [], "0.3": []}
    turns: tuple[raw.Version, ...] = ("1.0", "0.3", "0.3", "1.0")
    for version in turns:
        body, want = asyncio.run(probe(server, kind, version))
        rate = load.wrk(
            server,
            body,
            want,
            connections=connections,
            seconds=settings.seconds / 2,
            cores=settings.cores,
            version="1.0" if version == "1.0" else None,
        )
        asyncio.run(probe(server, kind, version))
        rates[version].append(rate)
    return sum(rates["0.3"]) / sum(rates["1.0"])


def _grpc(settings: Settings) -> Figures:
    figures: Figures = {}
    for kind, at_once in CONNECTIONS.items():
        row = figures.setdefault(f"gRPC, {kind}", {})
        for name in ("a2a-sdk", "tieline"):
            if name in settings.contestants:
                with serving(name, settings.cores, grpc=True) as server:
                    row[name] = load.grpc(server, kind, at_once=at_once, seconds=settings.seconds, cores=settings.cores)
    return figures


TO_DATABASE = "task on SQLite, to a2a-sdk's database"
TO_SAME = "task on SQLite, to its database in WAL mode"
TO_MEMORY = "task on SQLite, to a2a-sdk's memory"


def _task_on_sqlite(settings: Settings) -> Figures:
    """As a2a-sdk's database comes, it syncs the disk with each commit; tieline's does not, nor does it in WAL mode."""
    figures: Figures = {TO_DATABASE: {}, TO_SAME: {}, TO_MEMORY: {}}
    if "a2a-sdk" in settings.contestants:
        figures[TO_DATABASE]["a2a-sdk"] = rate("a2a-sdk", "task", 64, settings, store="sqlite")
        figures[TO_SAME]["a2a-sdk"] = rate(
            "a2a-sdk", "task", 64, settings, store="sqlite", environment={"SQLITE_WAL": "1"}
        )
        figures[TO_MEMORY]["a2a-sdk"] = rate("a2a-sdk", "task", 64, settings)
    if "tieline" in settings.contestants:
        ours = rate("tieline", "task", 64, settings, store="sqlite")
        for row in figures.values():
            row["tieline"] = ours
    return figures


LONG, SHORT = 2_000, 20
CHUNK = f"a chunk of {LONG:,} in a stream"
GROWTH = f"a chunk of {LONG:,} to one of {SHORT}"


def _chunks(settings: Settings) -> Figures:
    """The time a chunk is the time of the whole stream, request to end, by its chunks."""
    figures: Figures = {CHUNK: {}, GROWTH: {}}
    for name in settings.contestants:
        with serving(name, settings.cores) as server:
            long, short = asyncio.run(_time_a_chunk(server))
        figures[CHUNK][name] = long * 1e6
        figures[GROWTH][name] = long / short
    return figures


async def _time_a_chunk(server: Server) -> tuple[float, float]:
    """Seconds a chunk in a long and in a short stream, medians of several, taken in turn."""
    connection = await raw.Connection.open(server.port)

    async def once(chunks: int) -> float:
        text = f"chunks {chunks}"
        request = raw.send(text, stream=True)
        started = time.perf_counter()
        body = await connection.post(server.path, request, "text/event-stream")
        took = time.perf_counter() - started
        raw.check_stream(body, chunks)
        return took / chunks

    await once(LONG)
    long, short = [], []
    for _ in range(3):
        long.append(await once(LONG))
        short += [await once(SHORT) for _ in range(10)]
    connection.close()
    return statistics.median(long), statistics.median(short)


FINISHED = "memory a finished task"
IDLE = "memory an idle stream"


def _task_memory(settings: Settings) -> Figures:
    return {FINISHED: {name: _kb_a_task(name, settings.cores) for name in settings.contestants}}


def _kb_a_task(name: str, cores: Cores) -> float:
    # At its speed, 20,000 tasks take a2a-sdk minutes; what it keeps of a task shows with fewer.
    warm, tasks = (200, 1_000) if name == "a2a-sdk" else (2_000, 20_000)
    with serving(name, cores) as server:

        async def job(connection: raw.Connection, number: int) -> None:
            await raw.send_task(connection, server.path, f"task {number}")

        asyncio.run(raw.on_connections(server.port, 16, warm, job))
        before = _settled_kb(server)
        asyncio.run(raw.on_connections(server.port, 16, tasks, job))
        return (_settled_kb(server) - before) / tasks


def _stream_memory(settings: Settings) -> Figures:
    figures = {}
    for name in settings.contestants:
        with serving(name, settings.cores) as server:
            figures[name] = asyncio.run(_kb_a_stream(server))
    return {IDLE: figures}


async def _kb_a_stream(server: Server) -> float:
    warm, streams, at_once = 50, 1_000, 10
    opened: list[raw.Connection] = []

    async def open_one() -> None:
        connection = await raw.Connection.open(server.port)
        opened.append(connection)
        await connection.post_until(server.path, raw.send("hang", stream=True), b"TASK_STATE_WORKING")

    async def open_streams(count: int) -> None:
        for _ in range(0, count, at_once):
            await asyncio.gather(*(open_one() for _ in range(at_once)))

    await open_streams(warm)
    before = _settled_kb(server)
    await open_streams(streams)
    after = _settled_kb(server)
    for connection in opened:
        connection.close()
    return (after - before) / streams


def _settled_kb(server: Server) -> float:
    """Resident memory once the work that follows an answer is done."""
    time.sleep(1)
    return server.resident_kb


def _clients(settings: Settings) -> Figures:
    """Both libraries against the floor, so that it is the client that is slow."""
    figures: Figures = {}
    for kind in ("message", "stream"):
        row = figures.setdefault(f"client, {kind}", {})
        for name in ("a2a-sdk", "tieline"):
            if name in settings.contestants:
                with serving("floor", settings.cores) as server:
                    row[name] = load.client(
                        name, server, kind, at_once=32, seconds=settings.seconds, cores=settings.cores
                    )
    return figures


TIMED_RUNS = 5  # a round, after one that warms the disk cache and the byte code
PYTHON = [sys.executable, "-c"]
# a2a-sdk has no command: the least program of its that could send something, printing its version, stands for one.
SDK_VERSION = "import a2a.client, importlib.metadata as m; print(m.version('a2a-sdk'))"
PROCESSES = {
    "import": {"tieline": [*PYTHON, "import tieline"], "a2a-sdk": [*PYTHON, "import a2a.types"]},
    "import of every public name": {
        "tieline": [*PYTHON, "from tieline import *"],
        "a2a-sdk": [*PYTHON, "import a2a.types, a2a.client, a2a.server.routes, a2a.server.tasks"],
    },
    "--version": {
        "tieline": [str(Path(sys.executable).with_name("tieline")), "--version"],
        "a2a-sdk": [*PYTHON, SDK_VERSION],
    },
}


def _starts(settings: Settings) -> Figures:
    names = [name for name in settings.contestants if name != "floor"]
    figures: Figures = {}
    for row, commands in PROCESSES.items():
        figures[row] = {name: _median_ms(partial(_run, commands[name])) for name in names}
    figures["start to first answer"] = {
        name: _median_ms(partial(start_to_first_answer, name, settings.cores)) for name in names
    }
    return figures


def _median_ms(once: Callable[[], float]) -> float:
    once()
    return statistics.median(once() for _ in range(TIMED_RUNS)) * 1e3


def _run(command: list[str]) -> float:
    """Seconds that the process takes from start to end."""
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    took = time.perf_counter() - started
    if done.returncode:
        raise CannotRun(f"{command} failed: {done.stderr}")
    return took


WORKS = (
    Work("message", (Row("message", "/s", of_floor=0.55, times_sdk=35),), _answers("message", 64)),
    Work("task", (Row("task", "/s", of_floor=0.6, times_sdk=40),), _answers("task", 64)),
    Work("get", (Row("get", "/s", of_floor=0.6, times_sdk=5),), _answers("get", 64)),
    Work("stream", (Row("stream", "/s", of_floor=0.9, times_sdk=45),), _answers("stream", 16)),
    Work("0.3", tuple(Row(f"0.3 to 1.0, {kind}", "ratio", at_least=0.8) for kind in CONNECTIONS), _old_to_new),
    Work(
        "grpc",
        (Row("gRPC, message", "/s", times_sdk=3), Row("gRPC, task", "/s", times_sdk=3), Row("gRPC, stream", "/s")),
        _grpc,
    ),
    Work(
        "sqlite",
        (Row(TO_DATABASE, "/s", times_sdk=45), Row(TO_SAME, "/s"), Row(TO_MEMORY, "/s", times_sdk=6)),
        _task_on_sqlite,
    ),
    Work("chunks", (Row(CHUNK, "µs"), Row(GROWTH, "ratio", at_most=1)), _chunks),
    Work("memory-task", (Row(FINISHED, "KB", at_most=1.2),), _task_memory),
    Work("memory-stream", (Row(IDLE, "KB", at_most=20),), _stream_memory),
    Work("client", (Row("client, message", "/s", times_sdk=6), Row("client, stream", "/s", times_sdk=5)), _clients),
    Work(
        "start",
        (
            Row("import", "ms", times_sdk=1, at_most=120),
            Row("import of every public name", "ms"),
            Row("--version", "ms", times_sdk=1, at_most=150),
            Row("start to first answer", "ms", times_sdk=1, at_most=400),
        ),
        _starts,
    ),
)
