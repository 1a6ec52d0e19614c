"""HTTP/1.1 and Server-Sent Events over a plain socket: enough to call a server, with none of our own code in it.

One connection a request, so that closing it is what a caller that goes away does.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

__all__ = ["BrokenOff", "Frame", "Response", "frames", "request"]

Headers = Iterable[tuple[str, str]]

_LINE_END = re.compile(rb"\r\n|\n|\r")


class BrokenOff(AssertionError):
    """The server closed the connection before its answer was whole."""


@dataclass
class Response:
    """An answer whose headers have come; its body is read as it arrives."""

    status: int
    headers: list[tuple[str, str]]  # names in lower case
    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter

    def header(self, name: str) -> str:
        """The value of a header, "" when it is not there."""
        return next((value for given, value in self.headers if given == name.lower()), "")

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it arrives.

        Raises:
            BrokenOff: the connection ended before the body did.
        """
        try:
            if self.header("transfer-encoding") == "chunked":
                while size := int(await self._reader.readuntil(b"\r\n"), 16):
                    yield await self._reader.readexactly(size)
                    await self._reader.readexactly(2)
                await self._reader.readexactly(2)
            elif length := int(self.header("content-length") or 0):
                yield await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise BrokenOff("the connection ended in the middle of a body") from error

    async def body(self) -> bytes:
        """The whole body; the connection is closed behind it."""
        try:
            return b"".join([piece async for piece in self.pieces()])
        finally:
            self.close()

    def close(self) -> None:
        """Go away, whatever is still to come."""
        self._writer.transport.abort()


async def request(port: int, verb: str, target: str, headers: Headers = (), body: bytes | None = None) -> Response:
    """Send a request to this machine's `port`; returns when the headers of its answer are there.

    `target` is path and query as they stand in the request line. A body gets its Content-Length.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**26)
    lines = [f"{verb} {target} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b""))
    try:
        first, *rest = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").rstrip("\r\n").split("\r\n")
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        writer.transport.abort()
        raise BrokenOff("the connection ended before an answer") from error
    except asyncio.CancelledError:
        writer.transport.abort()
        raise
    pairs = [line.partition(":") for line in rest]
    return Response(int(first.split(" ")[1]), [(n.lower(), v.strip()) for n, _, v in pairs], reader, writer)


@dataclass
class Frame:
    """One event of an event stream."""

    data: str
    id: str | None  # its own id field; None when it has none


async def frames(response: Response) -> AsyncIterator[Frame]:
    """The events of a `text/event-stream` body, read by the grammar of WHATWG HTML §9.2.5; comments are left out."""
    held = b""
    data: list[str] = []
    id_: str | None = None
    async for piece in response.pieces():
        held += piece
        *lines, held = _LINE_END.split(held)  # the server ends its lines with LF, so no line end is ever cut in two
        for line in lines:
            if not line:
                if data:
                    yield Frame("\n".join(data), id_)
                data, id_ = [], None
                continue
            name, _, value = line.decode().partition(":")
            value = value.removeprefix(" ")
            if name == "data":
                data.append(value)
            elif name == "id":
                id_ = value
    assert not held.strip(), f"the stream ended in the middle of a line: {held!r}"
    assert not data, f"the stream ended in the middle of an event: {data!r}"
