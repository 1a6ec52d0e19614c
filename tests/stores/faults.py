"""What stores on servers are tried with: a crowd that writes all the time, and a line that loses answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.databases import DatabaseServer
from tests.stores.writing import COMPLETED, Ticks, Written, write
from tieline.stores.base import Outcome, SharedStore

__all__ = ["Crowd", "Wire", "waited"]


async def waited(heard: Outcome | asyncio.Future[Outcome | None] | None) -> Outcome | None:
    """What `hear` gives, when it is known."""
    return await heard if isinstance(heard, asyncio.Future) else heard


class Crowd:
    """Tasks that are written all the time, each append behind the one before."""

    def __init__(self, store: SharedStore, size: int = 40) -> None:
        self._store = store
        ticks = Ticks()
        self._tasks = [Written(ticks) for _ in range(size)]
        self._over = asyncio.Event()
        self._appends = 0
        self._more = asyncio.Condition()

    async def _one(self, task: Written) -> None:
        await write(self._store, task.make())
        while not self._over.is_set():
            if self._appends % 7 == 0:
                record = await self._store.get(task.scope, task.task_id)
                assert record is not None
                assert record.version == len(task.log)
            await write(self._store, task.chunks("a", "b") if self._appends % 2 else task.chunks("c"))
            self._appends += 1
            async with self._more:
                self._more.notify_all()
        await write(self._store, task.go(COMPLETED))

    async def more(self, appends: int) -> None:
        """Wait for some more to be acknowledged."""
        until = self._appends + appends
        async with self._more:
            await self._more.wait_for(lambda: self._appends >= until)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Write meanwhile; then each log in the store is what was written: all of it, once, in order."""
        async with asyncio.TaskGroup() as group:
            for task in self._tasks:
                group.create_task(self._one(task))
            await self.more(50)
            yield
            await self.more(200)
            self._over.set()
        for task in self._tasks:
            record = await self._store.get(task.scope, task.task_id)
            assert record is not None
            assert (record.state, record.version, record.owner) == (COMPLETED, len(task.log), "")
            events = await self._store.events(task.scope, task.task_id, 0)
            assert events is not None
            assert [(number, event.json) for number, event in events] == list(enumerate(task.log, 1))


class Wire:
    """A line to a server that can be cut between what is asked and the answer."""

    def __init__(self, server: DatabaseServer) -> None:
        self._server = server
        self._cutting = False
        self.cuts = 0
        self._listening: asyncio.Server | None = None
        self._lines: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Wire:
        self._listening = await asyncio.start_server(self._joined, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._listening is not None
        self._listening.close()
        for line in self._lines:
            line.cancel()
        if self._lines:
            await asyncio.wait(self._lines)

    @property
    def url(self) -> str:
        assert self._listening is not None
        port = self._listening.sockets[0].getsockname()[1]
        return self._server.url().replace(f":{self._server.port}/", f":{port}/")

    def cut(self) -> None:
        """Let the server do what it is asked for next, and cut the line instead of its answer."""
        self._cutting = True

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = asyncio.current_task()
        assert line is not None
        self._lines.add(line)
        try:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self._server.port)
            try:
                await self._carry((reader, writer), (from_server, to_server))
            finally:
                to_server.close()
        finally:
            writer.close()
            self._lines.discard(line)

    async def _carry(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        asked = False  # since the line is to be cut

        async def ask() -> None:
            nonlocal asked
            with contextlib.suppress(ConnectionError):
                while data := await client[0].read(65536):
                    asked = asked or self._cutting
                    server[1].write(data)
                    await server[1].drain()

        async def answer() -> None:
            with contextlib.suppress(ConnectionError):
                while data := await server[0].read(65536):
                    if asked and self._cutting:
                        self._cutting = False
                        self.cuts += 1
                        return
                    client[1].write(data)
                    await client[1].drain()

        async with asyncio.TaskGroup() as group:
            ways = [group.create_task(ask()), group.create_task(answer())]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
