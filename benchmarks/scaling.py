"""What one server process carries on each store, and what two carry on the stores that processes can share.

    python -m benchmarks.scaling                        # all of it: three rounds, about four minutes
    python -m benchmarks.scaling --only redis --rounds 1

It needs what scripts/bench needs, and PostgreSQL and Redis (scripts/databases --install): each row has servers of its
own, which write to the disk as in production (PostgreSQL as it comes; Redis with appendonly, appendfsync everysec).
A single process has a core for itself, the load shares the other one with the database; two processes, the load and
the database share both. Every answer is looked through, and a wrong one ends the run. Of the rounds the fastest counts:
what else runs on a machine only takes away from what a server carries.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import raw
from benchmarks.load import SCRIPT, require_tools
from benchmarks.servers import ROOT, START_LIMIT_S, CannotRun, allow_many_files
from tests.databases import DatabaseServer, PostgresServer, RedisServer

KINDS = {"message": 64, "task": 64, "stream": 16, "get": 64}  # with how many connections each is asked for


@dataclass(frozen=True)
class Row:
    """Servers to measure."""

    store: str
    workers: int

    @property
    def name(self) -> str:
        return f"{self.store}, {self.workers} process{'es' if self.workers > 1 else ''}"


ROWS = (
    Row("memory", 1),
    Row("SQLite", 1),
    Row("PostgreSQL", 1),
    Row("Redis", 1),
    Row("PostgreSQL", 2),
    Row("Redis", 2),
)


@dataclass(frozen=True)
class Figure:
    """Right answers a second, their latencies, and how many cores were at work for whom meanwhile."""

    rate: float
    p50_ms: float
    p99_ms: float
    server_cores: float
    database_cores: float


def measure(row: Row, seconds: float) -> dict[str, Figure]:
    """Each kind of work on servers that have just been started, one after the other."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    ours, theirs = ({cores[0]}, {cores[1]}) if row.workers == 1 else (set(cores), set(cores))
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, contextlib.ExitStack() as held:
        with _on(theirs):
            database = _database(row.store, held)
        store = database.url() if database else "memory" if row.store == "memory" else f"sqlite:{folder}/tasks.db"
        with _on(ours):
            port, pid = held.enter_context(_serving(row, store, folder))
        found = {}
        for kind, connections in KINDS.items():
            body, want = asyncio.run(_request(kind, port))
            pids = (pid, database._process.pid if database and database._process else 0)
            before = [_processor_s(one) for one in pids]
            with _on(theirs):
                totals = _wrk(port, body, want, connections, seconds)
            used = [(_processor_s(one) - was) / totals["seconds"] for one, was in zip(pids, before, strict=True)]
            found[kind] = Figure(
                totals["good"] / totals["seconds"], totals["p50_ms"], totals["p99_ms"], used[0], used[1]
            )
        return found


@contextlib.contextmanager
def _on(cores: set[int]) -> Iterator[None]:
    """Whatever is started inside runs on these cores."""
    all_of_them = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_of_them)


def _database(store: str, held: contextlib.ExitStack) -> DatabaseServer | None:
    """A server of its own, ready for the first process."""
    if store == "PostgreSQL":
        database: DatabaseServer = held.enter_context(PostgresServer(safe=True))
        command = [sys.executable, "-m", "tieline", "store", "migrate", database.url()]
        subprocess.run(command, check=True, capture_output=True)
        return database
    return held.enter_context(RedisServer()) if store == "Redis" else None


@contextlib.contextmanager
def _serving(row: Row, store: str, folder: str) -> Iterator[tuple[int, int]]:
    """The processes of `tieline serve`; their port, and the number of the one that was started."""
    command = [sys.executable, "-m", "tieline", "serve", "benchmarks/tieline_echo.py", "--store", store, "--port", "0"]
    with open(f"{folder}/log", "w+b") as log:
        process = subprocess.Popen(
            [*command, "--workers", str(row.workers)],
            cwd=ROOT,
            env={**os.environ, "XDG_STATE_HOME": folder},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            yield _port(process, Path(log.name)), process.pid
        finally:
            process.terminate()
            process.wait(timeout=START_LIMIT_S)


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    """Where it serves, once it says so."""
    until = time.monotonic() + START_LIMIT_S
    while "Ctrl-C" not in (said := log.read_text()):
        if process.poll() is not None or time.monotonic() > until:
            raise CannotRun(f"The server does not start: {said[-2000:]}")
        time.sleep(0.02)
    return int(said.partition("Serving http://127.0.0.1:")[2].split()[0].rstrip("/"))


async def _request(kind: str, port: int) -> tuple[bytes, tuple[str, ...]]:
    """The request of this kind, and what every answer must contain; some answers are checked in full."""
    connection = await raw.Connection.open(port)
    try:
        path = await raw.find_rpc_path(connection)
        for number in range(10):
            await raw.send_message(connection, path, f"msg {number}")
            await raw.send_stream(connection, path, f"stream {number}", 10)
            task_id = await raw.send_task(connection, path, "a task")
            await raw.read_task(connection, path, task_id, "a task")
    finally:
        connection.close()
    request = partial(raw.send, message_id="@ID@")
    if kind == "message":
        return request("msg hello"), ("ROLE_AGENT", "msg hello")
    if kind == "task":
        return request("task hello"), ("TASK_STATE_COMPLETED", "task hello", "artifacts")
    if kind == "stream":
        return request("stream hello", stream=True), ("TASK_STATE_COMPLETED", "chunk 9 of the answer")
    return raw.get_task(task_id), (task_id, "TASK_STATE_COMPLETED", "a task")


def _wrk(port: int, body: bytes, want: Sequence[str], connections: int, seconds: float) -> dict[str, float]:
    done = subprocess.run(
        [
            *("wrk", "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--timeout", "60s"),
            *("-s", str(SCRIPT), f"http://127.0.0.1:{port}/"),
        ],
        env={
            **os.environ,
            "BODY": body.decode(),
            "WANT": "\n".join(want),
            "ACCEPT": "application/json, text/event-stream",
            "VERSION": "1.0",
        },
        capture_output=True,
        text=True,
        timeout=seconds + 120,
    )
    line = next((line for line in done.stdout.splitlines() if line.startswith("JSON ")), None)
    if line is None:
        raise CannotRun(f"wrk failed: {done.stdout}{done.stderr}")
    totals: dict[str, float] = json.loads(line.removeprefix("JSON "))
    if totals["bad"] or totals["lost"] or not totals["good"]:
        raise raw.WrongAnswer(f"under load: {totals} {done.stderr.strip()}")
    return totals


def _processor_s(root: int) -> float:
    """Processor time that a process and those that it has started have used so far."""
    if not root:
        return 0.0
    pids, used = [root], 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            used += sum(int(field) for field in fields[11:13])
            for thread in Path(f"/proc/{pid}/task").iterdir():
                pids += [int(child) for child in (thread / "children").read_text().split()]
    return used / os.sysconf("SC_CLK_TCK")


def _table(rounds: list[dict[Row, dict[str, Figure]]]) -> str:
    lines = [
        f"| {'store, processes':24} | {' | '.join(f'{kind:>8}' for kind in KINDS)} | task: p50, p99 | cores of server,"
        " database |",
        f"| {'-' * 24} | {' | '.join('-' * 7 + ':' for _ in KINDS)} | -------------: | ------------------------: |",
    ]
    for row in rounds[0]:
        best = {kind: max((one[row][kind] for one in rounds), key=lambda figure: figure.rate) for kind in KINDS}
        rates = [f"{figure.rate:,.0f}/s" for figure in best.values()]
        task = best["task"]
        latencies = f"{task.p50_ms:.1f}, {task.p99_ms:.1f} ms"
        cores = f"{task.server_cores:.2f}, {task.database_cores:.2f}"
        lines.append(
            f"| {row.name:24} | {' | '.join(f'{rate:>8}' for rate in rates)} | {latencies:>14} | {cores:>25} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("--only", metavar="STORE", help="rows of one store: memory, SQLite, PostgreSQL or Redis")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--seconds", type=float, default=4.0, metavar="S", help="of load, each time")
    options = parser.parse_args()
    rows = [row for row in ROWS if options.only is None or options.only.lower() == row.store.lower()]
    if not rows:
        parser.error(f"there is no store {options.only!r}")
    rounds = []
    try:
        require_tools()
        allow_many_files()
        for number in range(options.rounds):
            rounds.append({row: measure(row, options.seconds) for row in rows})
            print(f"round {number + 1} of {options.rounds} is done", file=sys.stderr)
    except (CannotRun, raw.WrongAnswer) as error:
        sys.exit(f"benchmarks.scaling: {error}")
    print(_table(rounds))


if __name__ == "__main__":
    main()
