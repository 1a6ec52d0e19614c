"""A proxy that lets everything pass and keeps it: what two peers really say to each other."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

__all__ = ["Recorder"]

_PIECE_BYTES = 65536
_SHOWN_BYTES = 4000  # of what one side says before the other answers
_DULL = re.compile(
    r"(host|accept|accept-\w+|user-agent|connection|keep-alive|date|server|x-powered-by|etag|cache-control|vary|"
    r"last-modified|sec-fetch-\w+|content-length|access-control-[\w-]+|transfer-encoding|x-accel-buffering): ",
    re.IGNORECASE,
)


class Recorder:
    """Forwards ports of 127.0.0.1: `async with Recorder({public: target}) as recorder: ...; print(recorder.text())`."""

    def __init__(self, ports: dict[int, int]) -> None:
        self._ports = ports
        self._connections: list[list[tuple[str, bytes]]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []

    async def __aenter__(self) -> Recorder:
        for public, target in self._ports.items():
            accepted = self._accepted_for(target)
            self._servers.append(await asyncio.start_server(accepted, "127.0.0.1", public))
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def text(self) -> str:
        """The connections in the order of their opening; `>` is from the client, `<` from the server."""
        lines = []
        for number, pieces in enumerate(self._connections, start=1):
            lines.append(f"=== connection {number}")
            for direction, content in _joined(pieces):
                shown = [line for line in _readable(content).splitlines() if not _DULL.match(line)]
                lines += [f"{direction} {line}" for line in shown]
        return "\n".join(lines)

    def _accepted_for(
        self, target: int
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]:
        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            pieces: list[tuple[str, bytes]] = []
            self._connections.append(pieces)
            there, back = await asyncio.open_connection("127.0.0.1", target)
            try:
                await asyncio.gather(_pass(reader, back, ">", pieces), _pass(there, writer, "<", pieces))
            finally:
                back.transport.abort()
                writer.transport.abort()
                self._tasks.discard(task)

        return accepted


async def _pass(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: str, pieces: list[tuple[str, bytes]]
) -> None:
    with suppress(ConnectionError):
        while piece := await reader.read(_PIECE_BYTES):
            pieces.append((direction, piece))
            writer.write(piece)
            await writer.drain()
    with suppress(OSError, RuntimeError):
        writer.write_eof()


def _joined(pieces: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """Neighbouring pieces of one direction together."""
    found: list[tuple[str, bytes]] = []
    for direction, piece in pieces:
        if found and found[-1][0] == direction:
            found[-1] = (direction, found[-1][1] + piece)
        else:
            found.append((direction, piece))
    return found


def _readable(content: bytes) -> str:
    """Text as it is; of what is binary (gRPC), the runs of text in it."""
    cut = content[:_SHOWN_BYTES]
    try:
        text = cut.decode()
    except UnicodeDecodeError:
        text = cut.decode("utf-8", "replace")
    if "\x00" in text or "\ufffd" in text:
        runs = re.findall(r"[\x20-\x7e\u00a0-\ufffc]{3,}", text)
        text = " · ".join(runs)
    more = len(content) - len(cut)
    return text + (f"\n... {more} bytes more" if more else "")
