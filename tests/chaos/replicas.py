"""The replicas: processes of `tieline serve` on one store, killed and started again; and their balancer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from tests.chaos.agents import STORE

__all__ = ["Balancer", "Replica", "Replicas", "replicas_on"]

AGENTS = f"{Path(__file__).with_name('agents.py')}:app"
TIELINE = Path(sys.executable).with_name("tieline")
START_S = 30.0
_SAID = 400  # lines that are kept of what a replica says


class Replica:
    """One replica: always at the same port, by another process behind each kill."""

    def __init__(self, number: int, store: str) -> None:
        self.number = number
        self.up = False
        self.started = 0  # how often
        self.said: deque[str] = deque(maxlen=_SAID)
        self._store = store
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self.port: int = one.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Start it; returns when it answers requests."""
        environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        self._process = await asyncio.create_subprocess_exec(
            *(TIELINE, "serve", AGENTS, "--port", str(self.port)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env={**environment, STORE: self._store},
        )
        self.started += 1
        ready = asyncio.get_running_loop().create_future()
        self._reading = asyncio.ensure_future(self._read(self._process, ready))
        async with asyncio.timeout(START_S):
            await ready
        self.up = True

    async def _read(self, process: asyncio.subprocess.Process, ready: asyncio.Future[None]) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            text = line.decode("utf-8", "replace").rstrip()
            self.said.append(f"{time.strftime('%X')} {text}")
            if re.match(r"Serving http", text) and not ready.done():
                ready.set_result(None)
        if not ready.done():
            ready.set_exception(RuntimeError(f"replica {self.number} does not start: {list(self.said)[-20:]}"))

    async def kill(self) -> None:
        """End it as `kill -9` does."""
        self.up = False
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            await process.wait()
        if self._reading is not None:
            await self._reading


class Replicas:
    """All replicas of a store."""

    def __init__(self, count: int, store: str) -> None:
        self.all = [Replica(number, store) for number in range(count)]

    def living(self, number: int) -> Replica:
        """The replica of this number; while it is down, the next that is up."""
        order = [*self.all[number:], *self.all[:number]]
        return next((replica for replica in order if replica.up), order[0])


class Balancer:
    """One address for all replicas: each connection goes to a random one that is up, and breaks when that is killed."""

    def __init__(self, replicas: Replicas, random: Random) -> None:
        self._replicas = replicas
        self._random = random
        self._server: asyncio.Server | None = None
        self.url = ""

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        replica = self._replicas.living(self._random.randrange(len(self._replicas.all)))
        try:
            other_reader, other_writer = await asyncio.open_connection("127.0.0.1", replica.port)
        except OSError:
            writer.transport.abort()
            return
        ways = [asyncio.ensure_future(_pump(reader, other_writer)), asyncio.ensure_future(_pump(other_reader, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            writer.transport.abort()
            other_writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def replicas_on(store: str, count: int) -> AsyncIterator[Replicas]:
    """So many replicas that answer requests; killed at the end."""
    replicas = Replicas(count, store)
    try:
        for replica in replicas.all:  # one by one: the machine may be small
            await replica.start()
        yield replicas
    finally:
        for replica in replicas.all:
            await replica.kill()
