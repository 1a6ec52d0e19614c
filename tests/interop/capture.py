"""A proxy that lets everything pass and keeps it: what two peers really say to each other.

Only addresses are changed on the way: a card that names the server's names the proxy's instead.
"""

from __future__ import annotations

import asyncio
import json
import re
import struct
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any

__all__ = ["Recorder"]

_PIECE_BYTES = 65536
_SHOWN_CHARACTERS = 4000  # of what one side says before the other answers, or of one message over gRPC
_DULL = re.compile(
    r"(host|accept|accept-\w+|user-agent|connection|keep-alive|date|server|x-powered-by|etag|cache-control|vary|"
    r"last-modified|sec-fetch-\w+|content-length|access-control-[\w-]+|transfer-encoding|x-accel-buffering): ",
    re.IGNORECASE,
)
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS = 0, 1  # types of HTTP/2 frames (RFC 9113 §6)

Piece = tuple[str, bytes]  # ">" from the client or "<" from the server, and what it said


class Recorder:
    """Forwards ports of 127.0.0.1: `async with Recorder({public: target}) as recorder: ...; print(recorder.text())`.

    All ports have to have the same number of digits, so that an answer keeps its length.
    """

    def __init__(self, ports: dict[int, int]) -> None:
        self._ports = ports
        self._addresses = {b"127.0.0.1:%d" % target: b"127.0.0.1:%d" % public for public, target in ports.items()}
        assert len({len(str(port)) for pair in ports.items() for port in pair}) == 1
        self._connections: list[list[Piece]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []

    async def __aenter__(self) -> Recorder:
        for public, target in self._ports.items():
            self._servers.append(await asyncio.start_server(self._accepted_for(target), "127.0.0.1", public))
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def text(self) -> str:
        """The connections in the order of their opening, without headers that say nothing here.

        Of gRPC, a line for each message, its fields by their numbers, and the texts that stand in headers as they are.
        """
        lines = []
        for number, pieces in enumerate(self._connections, start=1):
            lines.append(f"=== connection {number}")
            is_grpc = b"".join(content for direction, content in pieces if direction == ">").startswith(_PREFACE)
            lines += _grpc_lines(pieces) if is_grpc else _http_lines(pieces)
        return "\n".join(lines)

    def _accepted_for(
        self, target: int
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]:
        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            pieces: list[Piece] = []
            self._connections.append(pieces)
            there, back = await asyncio.open_connection("127.0.0.1", target)
            try:
                await asyncio.gather(
                    _pass(reader, back, ">", pieces, {}), _pass(there, writer, "<", pieces, self._addresses)
                )
            finally:
                back.transport.abort()
                writer.transport.abort()
                self._tasks.discard(task)

        return accepted


async def _pass(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    direction: str,
    pieces: list[Piece],
    addresses: dict[bytes, bytes],
) -> None:
    with suppress(ConnectionError):
        while piece := await reader.read(_PIECE_BYTES):
            for address, shown in addresses.items():
                piece = piece.replace(address, shown)
            pieces.append((direction, piece))
            writer.write(piece)
            await writer.drain()
    with suppress(OSError, RuntimeError):
        writer.write_eof()


def _http_lines(pieces: list[Piece]) -> Iterator[str]:
    joined: list[Piece] = []
    for direction, piece in pieces:
        before = joined.pop()[1] if joined and joined[-1][0] == direction else b""
        joined.append((direction, before + piece))
    for direction, content in joined:
        lines = _cut(content.decode("utf-8", "replace")).splitlines()
        yield from (f"{direction} {line}" for line in lines if not _DULL.match(line))


def _cut(text: str) -> str:
    more = len(text) - _SHOWN_CHARACTERS
    return text if more <= 0 else f"{text[:_SHOWN_CHARACTERS]}\n... {more} characters more"


# --- gRPC -------------------------------------------------------------------------------------------------------------


def _grpc_lines(pieces: list[Piece]) -> Iterator[str]:
    """A line for each message and each block of headers. Streams of a connection are told apart by their numbers."""
    frames = {">": bytearray(), "<": bytearray()}
    messages: dict[tuple[str, int], bytearray] = {}
    first = True
    for direction, piece in pieces:
        held = frames[direction]
        held += piece
        if direction == ">" and first and len(held) >= len(_PREFACE):
            del held[: len(_PREFACE)]
            first = False
        while len(held) >= 9 and len(held) >= 9 + (size := int.from_bytes(held[:3])):
            kind, stream = held[3], int.from_bytes(held[5:9])
            payload = bytes(held[9 : 9 + size])
            del held[: 9 + size]
            if kind == _HEADERS:
                texts = [run.decode() for run in re.findall(rb"[\x20-\x7e]{4,}", payload)]
                if texts:
                    yield f"{direction} {stream} headers: {' '.join(texts)}"
            elif kind == _DATA:
                waiting = messages.setdefault((direction, stream), bytearray())
                waiting += payload
                while len(waiting) >= 5 and len(waiting) >= 5 + (length := int.from_bytes(waiting[1:5])):
                    yield _cut(f"{direction} {stream} {{{_fields(bytes(waiting[5 : 5 + length]))}}}")
                    del waiting[: 5 + length]


def _fields(content: bytes) -> str:
    """A protobuf message as text, by the numbers of its fields."""
    shown = []
    for number, value in _read(content):
        shown.append(f"{number} {value}" if isinstance(value, str) else f"{number}: {_value(value)}")
    return " ".join(shown)


def _value(value: bytes | int | float) -> str:
    if not isinstance(value, bytes):
        return repr(value)
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"
    return f'"{text}"' if all(letter.isprintable() for letter in text) else f"0x{value.hex()}"


def _read(content: bytes) -> Iterator[tuple[int, bytes | int | float | str]]:
    """Field numbers and values; a str is what is shown as it stands. Whether a field is text or a message has to be
    guessed: a message when it reads as one and is no printable text.

    Raises:
        ValueError: it is no protobuf message.
    """
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            if at >= len(content):
                raise ValueError("cut")
            byte = content[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(content):
        tag = varint()
        number, kind = tag >> 3, tag & 7
        if not number:
            raise ValueError("no field")
        if kind == 0:
            yield number, varint()
        elif kind == 1 and at + 8 <= len(content):
            yield number, struct.unpack_from("<d", content, at)[0]
            at += 8
        elif kind == 2:
            size = varint()
            if at + size > len(content):
                raise ValueError("cut")
            value = content[at : at + size]
            at += size
            yield number, _nested(value)
        else:
            raise ValueError("no type")


def _nested(value: bytes) -> bytes | str:
    if not _value(value).startswith("0x"):
        return value
    with suppress(ValueError):
        return f"{{{_fields(value)}}}"
    with suppress(UnicodeDecodeError):
        return json.dumps(value.decode(), ensure_ascii=False)
    return value
