"""`tieline serve --workers`: real processes behind one socket, on a real database."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import tieline
from tests.databases import postgres_server, redis_server
from tests.engine.scene import within
from tieline.ids import new_id
from tieline.stores.postgres import PostgresStore

AGENT = """
import os
import time

from tieline import Turn, agent

@agent(name="Who", description="Says which process it is in.")
async def who(turn: Turn):
    if turn.text == "block":
        time.sleep(9)
    if turn.text == "ask":
        name = await turn.ask("Who?")
        yield f"{name} in "
    yield str(os.getpid())
"""


ONCE = """
from pathlib import Path
mark = Path(__file__ + ".was")
if mark.exists():
    raise SystemExit(3)
mark.touch()
"""


class Serving:
    """A running `tieline serve`: what it said until it was ready, and where it is."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said: list[str] = []
        self.url = ""

    async def ready(self) -> None:
        """Read until it says that it can be stopped."""
        assert self.process.stderr is not None
        while "Ctrl-C" not in (line := (await self.process.stderr.readline()).decode()):
            assert line, self.said
            self.said.append(line.rstrip())
            if line.startswith("Serving "):
                self.url = line.split()[1]

    async def line(self) -> str:
        """The next line that it says."""
        assert self.process.stderr is not None
        return (await self.process.stderr.readline()).decode().rstrip()

    def workers(self) -> set[int]:
        """The processes that it has started."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return {int(pid) for pid in children.split()}


@asynccontextmanager
async def serving(folder: Path, store: str, *arguments: str, source: str = AGENT) -> AsyncIterator[Serving]:
    """`tieline serve` of the agent above; ended at the end, whatever has become of it."""
    path = folder / "who.py"
    path.write_text(source)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tieline", "serve", str(path), "--port", "0", "--store", store, *arguments),
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "HOME": str(folder)},
    )
    try:
        yield Serving(process)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def store_url(database: str) -> str:
    """A new store on one of the databases."""
    name = f"w_{new_id().replace('-', '')[:20]}"
    if database == "redis":
        return redis_server().url(name)
    url = postgres_server().url(name)
    store = PostgresStore(url)
    await store.migrate()
    await store.close()
    return url


def is_there(pid: int) -> bool:
    """Whether a process runs; one that has ended and not been waited for does not."""
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


async def gone(pids: set[int]) -> None:
    """Wait until processes are no more."""
    while any(is_there(pid) for pid in pids):  # noqa: ASYNC110 - they are not ours to wait for
        await asyncio.sleep(0.05)


linux = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks at processes through /proc")
both = pytest.mark.parametrize("database", ["postgres", "redis"])


@linux
@both
@within(60)
async def test_several_processes_serve_one_agent_and_any_of_them_goes_on_with_a_task(
    tmp_path: Path, database: str
) -> None:
    async with serving(tmp_path, await store_url(database), "--workers", "3") as here:
        await here.ready()
        assert "  by     3 processes" in here.said
        pids: set[str] = set()
        while len(pids) < 2:  # the system gives connections to whoever is first
            async with tieline.connect(here.url) as peer:
                pids.add(await peer.ask("hello"))
        assert {int(pid) for pid in pids} <= here.workers()
        for _ in range(10):
            async with tieline.connect(here.url) as peer:
                asked = await peer.send("ask")
            assert isinstance(asked, tieline.Task)
            async with tieline.connect(here.url) as peer:
                done = await peer.send("Ada", task_id=asked.id)
            assert isinstance(done, tieline.Task)
            assert done.artifacts[0].parts[0].text.startswith("Ada in ")  # type: ignore[union-attr]
        here.process.send_signal(signal.SIGTERM)
        workers = here.workers()
        assert await here.process.wait() == 0
        assert not any(is_there(pid) for pid in workers)


@linux
@within(60)
async def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    async with serving(tmp_path, await store_url("redis"), "--workers", "2") as here:
        await here.ready()
        before = here.workers()
        victim = min(before)
        os.kill(victim, signal.SIGKILL)
        assert f"Worker {victim} has died (signal 9)" in await here.line()
        while len(here.workers()) < 2:  # noqa: ASYNC110 - they are not ours to wait for
            await asyncio.sleep(0.05)
        async with tieline.connect(here.url) as peer:
            assert int(await peer.ask("hello")) in here.workers()


@linux
@both
@within(60)
async def test_an_agent_that_blocks_its_process_for_longer_than_the_lease_does_not_cost_it_its_tasks(
    tmp_path: Path, database: str
) -> None:
    async with serving(tmp_path, await store_url(database), "--workers", "2", "--lease", "5s") as here:
        await here.ready()
        async with tieline.connect(here.url) as peer:
            assert int(await peer.ask("block")) in here.workers()


@linux
@within(60)
async def test_workers_do_not_outlive_their_parent(tmp_path: Path) -> None:
    async with serving(tmp_path, await store_url("redis"), "--workers", "2") as here:
        await here.ready()
        workers = here.workers()
        here.process.kill()
        await here.process.wait()
        await gone(workers)


@within(30)
async def test_a_store_of_one_process_is_refused_with_what_to_use(tmp_path: Path) -> None:
    for store in ("memory", f"sqlite:{tmp_path / 'tasks.db'}"):
        async with serving(tmp_path, store, "--workers", "2") as here:
            said = await here.line()
            assert said.startswith("Error: --workers needs a store that processes can share")
            assert "postgresql://" in said
            assert "redis://" in said
            assert await here.process.wait() == 2


@within(30)
async def test_what_keeps_workers_from_starting_is_said_once(tmp_path: Path) -> None:
    url = postgres_server().url("w_is_not_there")
    async with serving(tmp_path, url, "--workers", "4") as here:
        assert here.process.stderr is not None
        said = (await here.process.stderr.read()).decode()
        assert said.count("tieline store migrate") == 1
        assert await here.process.wait() == 1


@linux
@within(60)
async def test_a_hangup_ends_all_in_good_order(tmp_path: Path) -> None:
    async with serving(tmp_path, await store_url("redis"), "--workers", "2") as here:
        await here.ready()
        workers = here.workers()
        here.process.send_signal(signal.SIGHUP)
        assert await here.process.wait() == 0
        assert not any(is_there(pid) for pid in workers)


@linux
@within(60)
async def test_a_worker_that_cannot_start_where_the_first_one_could_ends_all(tmp_path: Path) -> None:
    async with serving(tmp_path, await store_url("redis"), "--workers", "3", source=AGENT + ONCE) as here:
        assert here.process.stderr is not None
        said = (await here.process.stderr.read()).decode()
        assert await here.process.wait() not in (0, None)
        assert "Serving" not in said
        assert "Stopped" not in said


@pytest.mark.parametrize("lease", ["none", "0", "4.9s"])
@within(30)
async def test_a_lease_that_is_too_short_to_tell_the_dead_from_the_busy_is_refused(tmp_path: Path, lease: str) -> None:
    async with serving(tmp_path, await store_url("redis"), "--lease", lease) as here:
        assert here.process.stderr is not None
        said = (await here.process.stderr.read()).decode()
        assert await here.process.wait() == 2
        assert "must be 5s or more" in said
