"""A TCP proxy that cuts streams, as a bad network does."""

from __future__ import annotations

import asyncio
from contextlib import suppress

__all__ = ["CuttingProxy"]

_PIECE_BYTES = 4096


class CuttingProxy:
    """Forwards to `target` on 127.0.0.1, and cuts the first event streams as soon as they have brought some words.

    `async with CuttingProxy(port, target, cuts=(b"one", b"two")):` cuts two of them; later ones are left alone.
    """

    def __init__(self, port: int, target: int, *, cuts: tuple[bytes, ...]) -> None:
        self.cut = 0  # streams that were cut
        self._port = port
        self._target = target
        self._cuts = list(cuts)
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> CuttingProxy:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            forth = asyncio.ensure_future(self._forward(reader, back))
            await self._answer(there, writer)
            forth.cancel()
        finally:
            back.transport.abort()
            writer.transport.abort()
            self._connections.discard(task)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while piece := await reader.read(_PIECE_BYTES):
                writer.write(piece)
                await writer.drain()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        words: bytes | None = None  # None is: this is no stream to cut
        held = b""
        with suppress(ConnectionError):
            while piece := await reader.read(_PIECE_BYTES):
                if words is None and b"text/event-stream" in piece and self._cuts:
                    words = self._cuts.pop(0)
                writer.write(piece)
                await writer.drain()
                if words is not None:
                    held = held[-len(words) :] + piece
                    if words in held:
                        self.cut += 1
                        return
