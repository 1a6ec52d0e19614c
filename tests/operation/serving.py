"""`tieline serve` as a process of its own, everything that it writes, and plain HTTP to it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

__all__ = ["AGENT", "Reply", "Serving", "call", "fetch", "sending", "serving", "until"]

AGENT = """
import asyncio

from tieline import Turn, agent

@agent(name="Worker", description="Does what it is told to.")
async def worker(turn: Turn):
    word, _, rest = turn.text.partition(" ")
    if word == "ask":
        name = await turn.ask("Who?")
        yield f"hello {name}"
    elif word == "wait":
        yield "waiting"
        await asyncio.sleep(3600)
    elif word == "work":
        yield "working"
        await asyncio.sleep(float(rest))
        yield "done"
    elif word == "fail":
        raise ValueError(rest)
    elif word == "reply":
        yield turn.reply("hi")
    else:
        yield f"echo {turn.text}"
"""


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]  # by lower-case name
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Serving:
    """A running server. `url` is where its agent is, `ops` the operator's port, `grpc` HOST:PORT."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []  # of stderr
        self.out = b""
        self.url = self.ops = self.grpc = ""
        self._ready = asyncio.Event()
        self._reading = [asyncio.create_task(self._read()), asyncio.create_task(self._read_out())]

    async def _read(self) -> None:
        assert self.process.stderr is not None
        while line := (await self.process.stderr.readline()).decode():
            self.lines.append(line.rstrip("\n"))
            self._look(self.lines[-1])
        self._ready.set()

    async def _read_out(self) -> None:
        assert self.process.stdout is not None
        self.out = await self.process.stdout.read()

    def _look(self, line: str) -> None:
        if line.startswith("Serving "):
            self.url = line.split()[1]
        elif line.startswith("  ops "):
            self.ops = line.split()[1].removesuffix("/readyz")
        elif line.startswith("  grpc "):
            self.grpc = line.split()[1]
        elif line.startswith("Ctrl-C"):
            self._ready.set()
        elif line.startswith("{") and (event := json.loads(line))["message"] == "Serving.":
            self.url = event["urls"][0]
            self.ops = next(iter(event["ops"]), "")
            self.grpc = next(iter(event["grpc"]), "")
            self._ready.set()

    async def ready(self) -> None:
        """Wait until it answers requests."""
        await self._ready.wait()
        assert self.url, "\n".join(self.lines)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    async def ended(self) -> int:
        """Wait for its end; its exit code."""
        code = await self.process.wait()
        await asyncio.gather(*self._reading)
        return code

    def children(self) -> list[int]:
        """The processes that it has started, the oldest first."""
        return [
            int(pid) for pid in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        ]

    @property
    def events(self) -> list[dict[str, Any]]:
        """Every line as the JSON that it has to be."""
        return [json.loads(line) for line in self.lines]

    def event(self, **fields: Any) -> dict[str, Any]:
        """The one event with these fields."""
        found = self.having(**fields)
        assert len(found) == 1, (fields, self.lines)
        return found[0]

    def having(self, **fields: Any) -> list[dict[str, Any]]:
        """The events with these fields."""
        return [event for event in self.events if all(event.get(name) == value for name, value in fields.items())]


@asynccontextmanager
async def serving(
    folder: Path, *arguments: str, source: str = AGENT, env: Mapping[str, str] | None = None, store: str = "memory"
) -> AsyncIterator[Serving]:
    """`tieline serve` of an agent; ended at the end, whatever has become of it. It is ready where it could start."""
    path = folder / "worker.py"
    path.write_text(source)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tieline", "serve", str(path), "--port", "0", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "HOME": str(folder), "TIELINE_STORE": store, **(env or {})},
    )
    here = Serving(process)
    try:
        await here._ready.wait()
        yield here
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(15):
                    await process.wait()
            except TimeoutError:
                process.kill()
        await here.ended()


async def fetch(
    url: str, verb: str = "GET", body: Any = None, headers: Mapping[str, str] | None = None, limit_s: float = 15
) -> Reply:
    """One request on a connection of its own."""
    given = {"A2A-Version": "1.0", **(headers or {})}
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=limit_s)) as session,
        session.request(verb, url, json=body, headers=given) as response,
    ):
        names = {name.lower(): value for name, value in response.headers.items()}
        return Reply(response.status, names, await response.read())


def sending(text: str, **more: Any) -> dict[str, Any]:
    """The parameters of a SendMessage."""
    message = {"messageId": f"m-{os.urandom(6).hex()}", "role": "ROLE_USER", "parts": [{"text": text}]}
    return {"message": message | more}


async def call(url: str, method: str, params: Any, headers: Mapping[str, str] | None = None) -> Reply:
    """One call by JSON-RPC."""
    return await fetch(url, "POST", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, headers)


async def until(holds: Callable[[], Any], limit_s: float = 15) -> Any:
    """What `holds` gives once that is something; it is asked again and again."""
    async with asyncio.timeout(limit_s):
        while not (found := holds()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return found
