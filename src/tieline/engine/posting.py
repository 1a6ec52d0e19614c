"""HTTP/1.1 connections that carry POSTs, one at a time: what a sender of webhooks needs of HTTP, and nothing more.

A notification is one write, one future and one parse of a short answer, so that thousands a second leave most of a core
to the tasks. A connection knows the address it leads to, and takes no redirect, cookie, proxy or content coding.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import aiohappyeyeballs
import msgspec

from tieline.engine.addresses import Address

try:
    import httptools
except ImportError as error:  # pragma: no cover - it is there wherever CPython is
    raise ImportError("Webhooks need httptools, which is made for CPython: serve with CPython.") from error

__all__ = ["Answer", "Ended", "NotHttp", "PostConnection", "connect"]

_HEAD_BYTES: Final = 32 * 1024
_BODY_BYTES: Final = 64 * 1024  # what is read of an answer so that its connection can be kept
_REST_S: Final = 1.0  # for what an answer has behind its head
_SECOND_ADDRESS_S: Final = 0.25  # a host's next address is tried when the one before has not answered for so long
_KEPT_HEADERS: Final = (b"retry-after", b"date")


class Answer(msgspec.Struct, frozen=True):
    """What a host has answered. `headers`: Retry-After and Date, by lower-case name, where it has given them."""

    status: int
    headers: Mapping[str, str]


class Ended(Exception):
    """The connection has ended without an answer."""


class NotHttp(Exception):
    """What came is not an answer of HTTP/1.1."""


async def connect(
    addresses: Sequence[Address], port: int, *, tls: ssl.SSLContext | None = None, server_name: str = ""
) -> PostConnection:
    """Connect to the first of some addresses that takes a connection, and to nothing else.

    `tls`, `server_name`: speak TLS, with whom. Raises OSError, of which ssl.SSLError is one.
    """
    loop = asyncio.get_running_loop()
    places = [_place(address, port) for address in addresses]
    connected = await aiohappyeyeballs.start_connection(places, happy_eyeballs_delay=_SECOND_ADDRESS_S)
    name = connected.getpeername()[0]
    address = next(address for address, place in zip(addresses, places, strict=True) if place[4][0] == name)
    try:
        _, connection = await loop.create_connection(
            lambda: PostConnection(address), sock=connected, ssl=tls, server_hostname=server_name if tls else None
        )
    except BaseException:
        connected.close()
        raise
    return connection


def _place(address: Address, port: int) -> tuple[int, int, int, str, tuple[Any, ...]]:
    if address.version == 4:
        return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (str(address), port)
    return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (str(address), port, 0, 0)


class PostConnection(asyncio.Protocol):
    """One connection. `open`: whether a POST can go over it; `since`: when it was kept, by the loop's clock."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.open = False
        self.since = 0.0
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[Answer] | None = None
        self._rest: asyncio.TimerHandle | None = None
        self._begin()

    async def post(self, request: bytes) -> Answer:
        """Send a request, head and body, and return its answer; none may be under way.

        An answer counts from its head on: what is behind it is read for a moment, and its connection ended where that
        is long or late. Raises Ended, NotHttp. A call that is cancelled ends the connection.
        """
        if not self.open:
            raise Ended
        self._begin()
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._answer = answer
        self._transport.write(request)
        try:
            return await answer
        except BaseException:
            self.close()
            raise
        finally:
            self._answer = None
            if self._rest is not None:
                self._rest.cancel()
                self._rest = None

    def close(self) -> None:
        """End the connection at once; a POST under way ends with Ended. Closing twice is allowed."""
        self.open = False
        self._transport.abort()

    # --- what comes ---------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._status = 0  # of the answer whose head is complete
        self._headers: dict[str, str] = {}
        self._came_bytes = 0
        self._head_bytes = 0
        self._body_bytes = 0
        self._complete = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.open = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        self._end(Ended())

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            self.close()  # nobody has asked
            return
        self._came_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._end(NotHttp())
            return
        if not self._status:
            if self._came_bytes > _HEAD_BYTES:
                self._end(NotHttp())
        elif not self._complete:
            if self._body_bytes > _BODY_BYTES:
                self._end(Ended())
            elif self._rest is None:
                self._rest = asyncio.get_running_loop().call_later(_REST_S, self._end, Ended())

    def _end(self, error: Exception) -> None:
        """The connection is of no use any more: what has been told counts, without that it is an error."""
        if self._answer is not None and not self._answer.done():
            if self._status:
                self._answer.set_result(Answer(self._status, self._headers))
            else:
                self._answer.set_exception(error)
        self.close()

    # --- the parser's -------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._complete:
            self.open = False  # a second answer to one request: whatever it is, it is not one to the next

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > _HEAD_BYTES:
            raise ValueError("the head is too long")  # the parser makes an error of its own of this
        name = name.lower()
        if name in _KEPT_HEADERS:
            self._headers.setdefault(name.decode("ascii"), value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 100:
            raise ValueError("no status of HTTP has less than three digits")  # here, too
        if status >= 200 and not self._complete:
            self._status = status

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)

    def on_message_complete(self) -> None:
        if not self._status or self._complete:
            self._headers = {}  # 1xx: the answer is yet to come
            return
        self._complete = True
        if not self._parser.should_keep_alive():
            self.open = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(Answer(self._status, self._headers))
