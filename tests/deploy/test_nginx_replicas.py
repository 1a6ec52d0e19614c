"""Two replicas on PostgreSQL behind one address: calls go to both, and to the one that is left."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from tests.databases import postgres_server
from tests.deploy.nginx import Nginx
from tests.engine.scene import within
from tests.interop.processes import TIELINE, free_port, running
from tieline import Peer, Task, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent, connect
from tieline.ids import new_id
from tieline.stores.postgres import PostgresStore

AGENT = """
import asyncio
import os
from pathlib import Path

from tieline import Turn, agent

HERE = Path(__file__).parent

@agent(name="Waiting", description="Says where it is, and waits for a file.", resumable=True)
async def waiting(turn: Turn):
    if turn.text == "ask":
        yield f"Hello, {await turn.ask('Who are you?')}!"
        return
    yield f"in {os.getpid()}, "
    while turn.text != "quick" and not (HERE / turn.text).exists():
        await asyncio.sleep(0.02)
    yield "done"
"""


class Scene:
    """Two servers, and nginx in front of them."""

    def __init__(self, folder: Path, nginx: Nginx, servers: dict[int, subprocess.Popen[bytes]]) -> None:
        self.folder = folder
        self.nginx = nginx
        self._servers = servers

    def let(self, name: str) -> None:
        """Let the agents go on that wait for this."""
        (self.folder / name).touch()

    def at(self, text: str) -> int:
        """The port of the server that an agent has said it is in."""
        (port,) = (port for port, server in self._servers.items() if f"in {server.pid}," in text)
        return port

    def signal(self, port: int, number: int) -> None:
        """Send a signal to the server at this port."""
        self._servers[port].send_signal(number)

    def said(self, port: int) -> str:
        """What the server at this port has written."""
        return (self.folder / f"{port}.log").read_text()


@asynccontextmanager
async def scene(folder: Path) -> AsyncIterator[Scene]:
    url = postgres_server().url(f"d_{new_id().replace('-', '')[:20]}")
    store = PostgresStore(url)
    await store.migrate()
    await store.close()
    (folder / "waiting.py").write_text(AGENT)
    with ExitStack() as stack:
        servers = {}
        for _ in range(2):
            port = free_port()
            words = (TIELINE, "serve", "waiting.py", "--port", str(port), "--store", url, "--lease", "5s")
            log = folder / f"{port}.log"
            servers[port] = stack.enter_context(running([*words, "--trust-proxy", "--drain", "30s"], port, log, folder))
        try:
            yield Scene(folder, stack.enter_context(Nginx(list(servers))), servers)
        finally:
            (folder / "go").touch()  # an agent that is left at work would hold up its server's end


async def text_of(peer: Peer, task_id: str) -> str:
    return "".join(part.text or "" for each in (await peer.get(task_id)).artifacts for part in each.parts)


async def begun(peer: Peer, text: str) -> str:
    """A task that has said where it is; its id."""
    task = await peer.send(text, return_immediately=True)
    assert isinstance(task, Task)
    while "in " not in await text_of(peer, task.id):
        assert (await peer.get(task.id)).state is TaskState.WORKING
        await asyncio.sleep(0.02)
    return task.id


@within(60)
async def test_calls_go_to_both_replicas_and_each_knows_the_tasks_of_the_other(tmp_path: Path) -> None:
    async with scene(tmp_path) as here, connect(here.nginx.url) as peer:
        asked = await peer.send("ask")
        assert isinstance(asked, Task)
        assert asked.state is TaskState.INPUT_REQUIRED
        tasks = [asked.id]
        for _ in range(4):
            task = await peer.send("quick")
            assert isinstance(task, Task)
            assert task.state is TaskState.COMPLETED
            tasks.append(task.id)
        for task_id in tasks * 2:
            await peer.get(task_id)
        answered = await peer.send("Ada", task_id=asked.id)
        assert isinstance(answered, Task)
        assert answered.state is TaskState.COMPLETED
        assert await text_of(peer, asked.id) == "Hello, Ada!"
        calls = await here.nginx.logged(17, "POST")
        assert {call.status for call in calls} == {200}
        used = [call.replicas for call in calls]
        assert len({port for ports in used for port in ports}) == 2
        assert all(len(ports) == 1 for ports in used)


@within(60)
async def test_streams_of_one_task_at_both_replicas_tell_the_same(tmp_path: Path) -> None:
    async def follow(task_id: str) -> str:
        told = ""
        async for event in peer.subscribe(task_id):
            if isinstance(event, Task):
                told += "".join(part.text or "" for each in event.artifacts for part in each.parts)
                joined.release()
            elif isinstance(event, TaskArtifactUpdateEvent):
                told += "".join(part.text or "" for part in event.artifact.parts)
        return told

    joined = asyncio.Semaphore(0)
    async with scene(tmp_path) as here, connect(here.nginx.url, transport="HTTP+JSON") as peer:
        task_id = await begun(peer, "go")
        following = [asyncio.ensure_future(follow(task_id)) for _ in range(4)]
        for _ in following:
            await joined.acquire()
        here.let("go")
        told = await asyncio.gather(*following)
        assert len(set(told)) == 1
        assert told[0] == await text_of(peer, task_id)
        assert told[0].endswith("done")
        streams = await here.nginx.logged(4, ":subscribe")
        assert len(streams) == 4
        assert len({port for call in streams for port in call.replicas}) == 2


@within(60)
async def test_stream_whose_replica_is_killed_goes_on_at_the_other_through_the_proxy(tmp_path: Path) -> None:
    async with scene(tmp_path) as here, connect(here.nginx.url) as peer:
        told = ""
        task_id = ""
        states = []
        async for event in peer.stream("go"):
            if isinstance(event, Task):
                task_id = event.id
            elif isinstance(event, TaskArtifactUpdateEvent):
                told += "".join(part.text or "" for part in event.artifact.parts)
                if "in " in told and not (here.folder / "go").exists():
                    here.signal(here.at(told), signal.SIGKILL)
                    here.let("go")
            elif isinstance(event, TaskStatusUpdateEvent):
                states.append(event.status.state)
        assert told.endswith("done")
        assert states[-1] is TaskState.COMPLETED
        assert (await peer.get(task_id)).state is TaskState.COMPLETED


@within(60)
async def test_callers_notice_nothing_of_a_replica_that_is_stopped(tmp_path: Path) -> None:
    async with scene(tmp_path) as here, connect(here.nginx.url) as peer:
        task_id = await begun(peer, "go")
        port = here.at(await text_of(peer, task_id))
        here.signal(port, signal.SIGTERM)
        while "Stopping" not in here.said(port):  # noqa: ASYNC110 - it is a file
            await asyncio.sleep(0.02)
        for transport in ("JSONRPC", "HTTP+JSON"):
            async with connect(here.nginx.url, transport=transport) as other:
                for _ in range(5):
                    task = await other.send("quick")
                    assert isinstance(task, Task)
                    assert task.state is TaskState.COMPLETED
                    assert here.at(await text_of(other, task.id)) != port
                    assert (await other.ask("quick")).endswith("done")
        passed_on = [call for call in await here.nginx.logged(20, "POST") if len(call.replicas) == 2]
        assert passed_on
        assert all(call.replicas[0] == port and call.status == 200 for call in passed_on)
        here.let("go")  # the agent that was at work has had its time
        assert (await peer.wait(task_id)).state is TaskState.COMPLETED
