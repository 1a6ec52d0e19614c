"""What stands at the other end of a webhook in these tests: an HTTP server of bytes, and a DNS server."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from ipaddress import IPv4Address
from typing import NamedTuple, cast

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
_A, _AAAA = 1, 28


class Post(NamedTuple):
    """A request as it came. `headers`: by lower-case name; `connection`: its number."""

    target: str
    headers: dict[str, str]
    body: bytes
    connection: int
    head: bytes


class Receiver:
    """`posts` are those that have come; `answer` says what is written for one, None to close without an answer."""

    def __init__(self, answer: Callable[[Post], bytes | None]) -> None:
        self.answer = answer
        self.posts: list[Post] = []
        self.connections = 0
        self.open = 0
        self.most_open = 0
        self.names: list[str | None] = []  # that TLS was asked for
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        number = self.connections
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.decode("latin-1").split("\r\n")
                headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in lines[1:] if line)}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                post = Post(lines[0].split(" ")[1], headers, body, number, head)
                self.posts.append(post)
                answer = self.answer(post)
                if answer is None:
                    return
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.open -= 1
            writer.close()


@asynccontextmanager
async def receiver(
    answer: Callable[[Post], bytes | None] = lambda post: OK, *, tls: ssl.SSLContext | None = None, port: int = 0
) -> AsyncGenerator[Receiver, None]:
    """A server on 127.0.0.1."""
    receiving = Receiver(answer)
    if tls is not None:

        def named(_: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> None:
            receiving.names.append(name)

        tls.sni_callback = named
    server = await asyncio.start_server(receiving.serve, "127.0.0.1", port, ssl=tls)
    receiving.port = server.sockets[0].getsockname()[1]
    try:
        yield receiving
    finally:
        server.close()


class Names(asyncio.DatagramProtocol):
    """A DNS server on UDP. `answers`: what it says, one after the other, the last for ever; none: no such name."""

    def __init__(self, answers: Sequence[Sequence[str]]) -> None:
        self.answers = list(answers)
        self.asked = 0
        self.port = 0
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        assert self._transport is not None
        end = data.index(b"\0", 12) + 5
        question, (kind, _) = data[12:end], struct.unpack("!HH", data[end - 4 : end])
        addresses: Sequence[str] = ()
        if kind == _A:
            self.asked += 1
            addresses = (self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]) if self.answers else ()
        flags = 0x8180 if self.answers else 0x8183
        reply = data[:2] + struct.pack("!HHHHH", flags, 1, len(addresses), 0, 0) + question
        for address in addresses:
            reply += b"\xc0\x0c" + struct.pack("!HHIH", _A, 1, 0, 4) + IPv4Address(address).packed
        self._transport.sendto(reply, addr)

    async def resolve(self, host: str) -> list[str]:
        """Ask this server, over UDP; for a Sender's `resolve`. Raises OSError when there is no such name."""
        asking = _Asking()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: asking, remote_addr=("127.0.0.1", self.port))
        try:
            labels = b"".join(bytes([len(label)]) + label.encode() for label in host.split("."))
            transport.sendto(struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", _A, 1))
            reply = await asking.reply
        finally:
            transport.close()
        flags, _, count = struct.unpack("!HHH", reply[2:8])
        if flags & 0xF:
            raise OSError(f"no such name: {host}")
        at = reply.index(b"\0", 12) + 5
        found = []
        for _ in range(count):
            found.append(str(IPv4Address(reply[at + 12 : at + 16])))
            at += 16
        return found


class _Asking(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.reply.set_result(data)


@asynccontextmanager
async def names(*answers: Sequence[str]) -> AsyncGenerator[Names, None]:
    """A DNS server that gives these answers, one after the other."""
    serving = Names(answers)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: serving, local_addr=("127.0.0.1", 0))
    serving.port = transport.get_extra_info("sockname")[1]
    try:
        yield serving
    finally:
        transport.close()
