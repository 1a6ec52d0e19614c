"""Several processes behind one socket: the one that starts and watches them, and what each of them knows of it.

The parent binds the address and hands the socket down. A worker says on a pipe when it answers requests; it ends when
the parent's end of another pipe is gone, however the parent has ended. A worker that dies is started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tieline.server.ops import WorkerLink

__all__ = ["Worker", "supervise", "worker_command"]

_VARIABLE: Final = "TIELINE_WORKER"
_PAUSES_S: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
_STEADY_S: Final = 30.0  # a worker that has lived so long has not died of its start


class Worker:
    """A process that a parent has started."""

    def __init__(self, listening: int, ready: int, leash: int, ops: int | None = None) -> None:
        self.socket = socket.socket(fileno=listening)
        self.ops = None if ops is None else socket.socket(fileno=ops)  # on which the parent asks how it is
        self._ready = ready
        self._leash = leash
        threading.Thread(target=self._watch, name="tieline-leash", daemon=True).start()

    @classmethod
    def of_environment(cls) -> Worker | None:
        """What this process is told to be; None when it is no worker."""
        given = os.environ.pop(_VARIABLE, "")
        return cls(*(int(number) for number in given.split(","))) if given else None

    def ready(self, said: dict[str, Any]) -> None:
        """Requests are answered from now on; `said` is for the parent to tell."""
        os.write(self._ready, json.dumps(said).encode() + b"\n")
        os.close(self._ready)

    def _watch(self) -> None:
        with contextlib.suppress(OSError):
            os.read(self._leash, 1)
        os.kill(os.getpid(), signal.SIGTERM)  # the parent is gone


def supervise(
    command: Sequence[str],
    listening: socket.socket,
    count: int,
    *,
    on_ready: Callable[[dict[str, Any]], None],
    note: Callable[[str], None],
    ops: socket.socket | None = None,
) -> int:
    """Run `command` in `count` processes until SIGINT or SIGTERM; returns the exit code.

    They get the signal, too, and end as a single server does. The first one is started alone: what keeps it from
    starting would keep all of them, and is said once. At `ops`, a socket that is bound, the operator is told of all.
    """
    return asyncio.run(_Parent(command, listening, count, on_ready, note, ops).run())


class _Parent:
    def __init__(
        self,
        command: Sequence[str],
        listening: socket.socket,
        count: int,
        on_ready: Callable[[dict[str, Any]], None],
        note: Callable[[str], None],
        ops: socket.socket | None,
    ) -> None:
        self._command = command
        self._listening = listening
        self._count = count
        self._on_ready = on_ready
        self._note = note
        self._processes: set[asyncio.subprocess.Process] = set()
        self._pipes: dict[asyncio.subprocess.Process, int] = {}  # on which a worker says that it is ready
        self._ops = ops
        self._links: dict[int, WorkerLink] = {}  # by the number of a worker, from 1
        self._codes: list[int] = []
        self._ending = asyncio.Event()
        self._told: int | None = None  # the signal that they were told to end by
        self._leash, self._held = os.pipe()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for told in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(told, self._end, told)
        loop.add_signal_handler(signal.SIGHUP, self._end, signal.SIGTERM)  # there is nothing to read anew
        keepers: list[asyncio.Task[None]] = []
        server = None
        try:
            if self._ops is not None:
                from tieline.server.ops import OpsServer, WorkersPages

                server = OpsServer(WorkersPages(self._links, self._ending))
                await server.start(self._ops)
            first = await self._start(1)
            said = await self._hear(first, 1)
            if said is None:
                return await self._gone(first)
            others = [await self._start(number) for number in range(2, self._count + 1)]
            for number, process in enumerate(others, 2):
                if await self._hear(process, number) is None and not self._ending.is_set():
                    code = await self._gone(process)
                    self._end(signal.SIGTERM)
                    await asyncio.wait([asyncio.ensure_future(self._gone(left)) for left in (first, *others)])
                    return code or 1
            if not self._ending.is_set():
                self._on_ready(said)
            keepers = [
                asyncio.ensure_future(self._keep(process, number)) for number, process in enumerate((first, *others), 1)
            ]
            await asyncio.wait(keepers)
        finally:
            if server is not None:
                await server.stop()
            os.close(self._held)  # whoever is left ends now
        return max(self._codes, default=0)

    def _end(self, number: int) -> None:
        self._ending.set()
        self._told = number
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)

    async def _start(self, number: int) -> asyncio.subprocess.Process:
        ready, told = os.pipe()
        handed = [self._listening.fileno(), told, self._leash]
        theirs = None
        if self._ops is not None:
            from tieline.server.ops import WorkerLink

            ours, theirs = socket.socketpair()
            handed.append(theirs.fileno())
            if (before := self._links.pop(number, None)) is not None:
                before.close()
            self._links[number] = await WorkerLink.over(ours)
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env={**os.environ, _VARIABLE: ",".join(str(fd) for fd in handed)},
                pass_fds=tuple(handed),
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C is told by the parent, once
            )
        finally:
            os.close(told)
            if theirs is not None:
                theirs.close()
        self._pipes[process] = ready
        self._processes.add(process)
        if self._ending.is_set():
            process.terminate()
        return process

    async def _hear(self, process: asyncio.subprocess.Process, number: int) -> dict[str, Any] | None:
        """What a worker says when it is ready; None when it ends instead."""
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        pipe = os.fdopen(self._pipes.pop(process), "rb")
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        try:
            line = await reader.readline()
        finally:
            transport.close()
        if line and (link := self._links.get(number)) is not None:
            link.begun = True
        return dict(json.loads(line)) if line else None

    async def _gone(self, process: asyncio.subprocess.Process) -> int:
        code = await process.wait()
        self._processes.discard(process)
        if self._told is not None and code in (-self._told, 128 + self._told):
            return 0  # it was still starting, and ended as it was told
        return 128 - code if code < 0 else code

    async def _keep(self, process: asyncio.subprocess.Process, number: int) -> None:
        """Start a worker again whenever it dies, until all are to end."""
        loop = asyncio.get_running_loop()
        deaths = 0
        while True:
            began = loop.time()
            code = await self._gone(process)
            if self._ending.is_set():
                self._codes.append(code)
                return
            deaths = 0 if loop.time() - began > _STEADY_S else deaths + 1
            pause_s = _PAUSES_S[min(deaths, len(_PAUSES_S)) - 1] if deaths else 0.0
            how = f"signal {code - 128}" if code > 128 else f"exit code {code}"
            self._note(f"Worker {process.pid} has died ({how}). Starting another one.")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._ending.wait()
            if self._ending.is_set():
                return
            process = await self._start(number)
            await self._hear(process, number)


def worker_command(arguments: Sequence[str]) -> list[str]:
    """How this program is run once more with these arguments."""
    return [sys.executable, "-m", "tieline", *arguments]
