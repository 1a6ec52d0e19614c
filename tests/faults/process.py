"""`tieline serve` as a real process: started on a free port, heard, stopped or killed."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

__all__ = ["LIMIT_S", "Server", "serving"]

AGENTS = f"{Path(__file__).with_name('agents.py')}:told"
TIELINE = Path(sys.executable).with_name("tieline")
LIMIT_S = 60.0  # for a test with processes, on a busy machine; on an idle one each takes a few seconds
WAIT_S = 30.0  # for a process to start or to stop, on a busy machine


class Server:
    """A serving process and what it says on stderr."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.port = 0
        self.said: list[str] = []
        self._listening: list[tuple[re.Pattern[str], asyncio.Future[re.Match[str]]]] = []
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            text = line.decode("utf-8", "replace").rstrip()
            self.said.append(text)
            for pattern, future in self._listening:
                match = pattern.search(text)
                if match and not future.done():
                    future.set_result(match)
        for _, future in self._listening:
            if not future.done():
                future.set_exception(AssertionError(f"the process ended and said: {self.said}"))

    async def says(self, pattern: str) -> re.Match[str]:
        """Wait for a line on stderr, also one that has come already."""
        compiled = re.compile(pattern)
        for line in self.said:
            if match := compiled.search(line):
                return match
        future: asyncio.Future[re.Match[str]] = asyncio.get_running_loop().create_future()
        self._listening.append((compiled, future))
        async with asyncio.timeout(WAIT_S):
            return await future

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self) -> int:
        """Wait for the end of the process; returns its exit code."""
        async with asyncio.timeout(WAIT_S):
            code = await self.process.wait()
            await self._reading
        return code

    async def kill(self) -> None:
        """End it as `kill -9` does."""
        if self.process.returncode is None:
            self.process.kill()
        await self.ended()


@asynccontextmanager
async def serving(store: str, *options: str) -> AsyncIterator[Server]:
    """A process that serves the agent of agents.py and answers requests; killed at the end if it has not ended."""
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    process = await asyncio.create_subprocess_exec(
        TIELINE,
        "serve",
        AGENTS,
        "--port",
        "0",
        "--store",
        store,
        *options,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    server = Server(process)
    try:
        server.port = int((await server.says(r"Serving http://127\.0\.0\.1:(\d+)"))[1])
        yield server
    finally:
        await server.kill()
