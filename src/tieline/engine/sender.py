"""POSTs to webhooks: fast, bounded, and only to addresses that a guard has allowed.

The one module of the engine with an HTTP client below it; nothing imports it while push is off. A name is resolved
here, and the connection goes to the addresses that were checked: nothing resolves it a second time.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Final

import msgspec

from tieline import __version__
from tieline.engine.addresses import Address
from tieline.engine.guard import Guard, Target
from tieline.engine.names import Names, NoAddress, Resolve
from tieline.engine.notification import HEADER_VALUE
from tieline.engine.posting import Ended, NotHttp, PostConnection, connect

__all__ = ["Sender", "Sent"]

_AT_ONCE: Final = 256
_AT_ONCE_PER_HOST: Final = 32
_CONNECT_S: Final = 5.0
_KEPT_S: Final = 15.0  # a connection that nothing goes over
_RESOLVED_S: Final = 5.0  # how long an answer of DNS is taken for true
_REDIRECTS: Final = frozenset((301, 302, 303, 307, 308))
_LONGEST_WAIT_S: Final = 86_400.0
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")


class Sent(msgspec.Struct, frozen=True):
    """What became of one POST.

    `status`: the answer's, 0 when there was none. `retry_after_s`: how long the receiver asked to be left alone.
    `detail`: a sentence for the operator about what went wrong, "" when it was delivered. It has nothing of the
    request's headers, of the answer's body or of addresses in it.
    """

    status: int
    retry_after_s: float | None = None
    detail: str = ""

    @property
    def delivered(self) -> bool:
        """Whether the receiver has acknowledged it: 2xx (A2A 1.0 §4.3.3)."""
        return 200 <= self.status < 300


class Sender:
    """Sends notifications over connections of its own, which are opened when they are needed and ended by `close`.

    `at_once`, `at_once_per_host`: POSTs that are under way, in all and to one host and port; more of them wait, and
    their time limits begin when it is their turn. `total_s` is for all of one: names, connecting and the answer.
    `resolve`: instead of the system's; `resolved_s`: how long an answer of it is taken for true. `tls`: instead of the
    system's authorities.
    """

    def __init__(
        self,
        guard: Guard | None = None,
        *,
        at_once: int = _AT_ONCE,
        at_once_per_host: int = _AT_ONCE_PER_HOST,
        connect_s: float = _CONNECT_S,
        total_s: float = 15.0,
        resolve: Resolve | None = None,
        resolved_s: float = _RESOLVED_S,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.guard = guard or Guard()
        self._names = Names(resolve, limit_s=connect_s, kept_s=resolved_s)
        self._slots = asyncio.Semaphore(at_once)
        self._at_once = at_once
        self._per_host = at_once_per_host
        self._hosts: dict[tuple[str, str, int], _Host] = {}
        self._connections: set[PostConnection] = set()
        self._kept = 0
        self._clearing: asyncio.TimerHandle | None = None
        self._connect_s = connect_s
        self._total_s = total_s
        self._tls = tls
        self._closed = False

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Sent:
        """POST a body to a webhook; what went wrong is in the result, nothing but CancelledError is raised.

        Redirects are not followed: where one leads nobody has allowed. A kept connection that turns out to have been
        closed is replaced once, so a receiver may see a notification twice (§4.3.3).
        """
        if (bad := _bad_header(headers)) is not None:
            return Sent(0, None, bad)
        try:
            target = self.guard.check(url)
        except ValueError as error:
            return Sent(0, None, f"The webhook's URL {error}.")
        await asyncio.sleep(0)  # what the tasks have to do now comes first
        place = (target.scheme, target.host, target.port)
        host = self._hosts.get(place)
        if host is None:
            host = self._hosts[place] = _Host(target, self._per_host)
        host.users += 1
        try:
            async with host.slots, self._slots:
                return await self._post(target, host, _head_of(target, headers, len(body)) + body)
        finally:
            host.users -= 1
            if not host.users and not host.kept:
                self._hosts.pop(place, None)

    async def close(self) -> None:
        """Close all connections. What is under way, or comes yet, is not delivered. Closing twice is allowed."""
        self._closed = True
        self._names.close()
        if self._clearing is not None:
            self._clearing.cancel()
        for connection in list(self._connections):
            connection.close()
        self._connections.clear()

    async def _post(self, target: Target, host: _Host, request: bytes) -> Sent:
        try:
            async with asyncio.timeout(self._total_s):
                addresses = host.own or await self._names.of(target.host)
                if addresses is not host.allowed:
                    reason = self.guard.refusal(target, addresses)
                    if reason is not None:
                        return Sent(0, None, f"The webhook's URL {reason}.")
                    host.allowed = addresses
                kept = self._take(host, addresses)
                if kept is not None:
                    try:
                        return await self._exchange(kept, host, request)
                    except Ended:
                        pass  # the host has closed it meanwhile
                return await self._exchange(await self._connect(target, addresses), host, request)
        except _NotConnected:
            sent = Sent(0, None, f"There was no connection to the webhook's host within {self._connect_s:g} seconds.")
        except TimeoutError:
            sent = Sent(0, None, f"The webhook did not answer within {self._total_s:g} seconds.")
        except ssl.SSLCertVerificationError:
            sent = Sent(0, None, "The certificate of the webhook's host is not one to be trusted.")
        except ssl.SSLError:
            sent = Sent(0, None, "The webhook's host does not speak TLS as it should.")
        except NoAddress:
            sent = Sent(0, None, "The webhook's host has no address in DNS that may be called.")
        except OSError:
            sent = Sent(0, None, "There was no connection to the webhook's host.")
        except Ended:
            sent = Sent(0, None, "The webhook's host closed the connection without an answer.")
        except NotHttp:
            sent = Sent(0, None, "What the webhook answered is not HTTP.")
        return _ENDING if self._closed else sent

    async def _exchange(self, connection: PostConnection, host: _Host, request: bytes) -> Sent:
        try:
            answer = await connection.post(request)
        finally:
            self._keep(connection, host)
        status = answer.status
        if 200 <= status < 300:
            return _DELIVERED if status == 200 else Sent(status)
        if status in _REDIRECTS:
            return Sent(status, None, f"The webhook answered with a redirect ({status}); redirects are not followed.")
        return Sent(status, _retry_after_s(answer.headers), f"The webhook answered with HTTP {status}.")

    # --- connections --------------------------------------------------------------------------------------------------

    async def _connect(self, target: Target, addresses: Sequence[Address]) -> PostConnection:
        """Raises OSError, _NotConnected, Ended."""
        if self._closed:
            raise Ended
        tls = None
        if target.scheme == "https":
            tls = self._tls = self._tls or ssl.create_default_context()
        limit = asyncio.timeout(self._connect_s)
        try:
            async with limit:
                connection = await connect(addresses, target.port, tls=tls, server_name=target.host)
        except TimeoutError:
            if not limit.expired():
                raise OSError("no address answers") from None
            raise _NotConnected from None
        if self._closed:
            connection.close()
            raise Ended
        self._connections.add(connection)
        return connection

    def _take(self, host: _Host, addresses: Sequence[Address]) -> PostConnection | None:
        """A kept connection to one of these addresses."""
        while host.kept:
            connection = host.kept.pop()
            self._kept -= 1
            if connection.open and connection.address in addresses:
                return connection
            self._drop(connection)
        return None

    def _keep(self, connection: PostConnection, host: _Host) -> None:
        if not connection.open or self._closed or self._kept >= self._at_once:
            self._drop(connection)
            return
        loop = asyncio.get_running_loop()
        connection.since = loop.time()
        host.kept.append(connection)
        self._kept += 1
        if self._clearing is None:
            self._clearing = loop.call_later(_KEPT_S, self._clear)

    def _drop(self, connection: PostConnection) -> None:
        self._connections.discard(connection)
        connection.close()

    def _clear(self) -> None:
        """Drop connections that nothing has gone over for long, and hosts that nobody calls."""
        loop = asyncio.get_running_loop()
        before = loop.time() - _KEPT_S
        for place, host in list(self._hosts.items()):
            still = [connection for connection in host.kept if connection.open and connection.since > before]
            for connection in host.kept:
                if connection not in still:
                    self._drop(connection)
            self._kept -= len(host.kept) - len(still)
            host.kept[:] = still
            if not still and not host.users:
                del self._hosts[place]
        self._clearing = loop.call_later(_KEPT_S, self._clear) if self._kept else None


_DELIVERED: Final = Sent(200)
_ENDING: Final = Sent(0, None, "The server is ending.")


class _NotConnected(Exception):
    """No connection was made in time."""


class _Host:
    """One scheme, host and port: who waits to send to it, and the connections to it that nothing goes over.

    `own`: the address that stands in place of a name; `allowed`: those that the guard has allowed, the very tuple.
    """

    __slots__ = ("allowed", "kept", "own", "slots", "users")

    def __init__(self, target: Target, slots: int) -> None:
        self.own = () if target.address is None else (target.address,)
        self.allowed: tuple[Address, ...] = ()
        self.slots = asyncio.Semaphore(slots)
        self.users = 0
        self.kept: list[PostConnection] = []


def _head_of(target: Target, headers: Mapping[str, str], length: int) -> bytes:
    """The head of a request. `headers` are those that `_bad_header` finds nothing wrong with."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    return f"{_first_lines(target)}{lines}Content-Length: {length}\r\n\r\n".encode("ascii")


@lru_cache(maxsize=1024)
def _first_lines(target: Target) -> str:
    host = target.origin.partition("://")[2]
    return f"POST {target.path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: tieline/{__version__}\r\n"


def _bad_header(headers: Mapping[str, str]) -> str | None:
    """What is wrong with a header: names of tokens, values of visible ASCII and inner spaces are right."""
    for name, value in headers.items():
        if not _NAME.match(name):
            return "A header has a name with a character in it that names of headers cannot have."
        if not HEADER_VALUE.match(value):
            return f"The header {name} has to be of visible ASCII characters, without line breaks."
    return None


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Retry-After (RFC 9110 §10.2.3): seconds, or a date, which is held against that of the answer. A day at most."""
    text = headers.get("retry-after", "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), _LONGEST_WAIT_S)
    try:
        until = parsedate_to_datetime(text)
        date = headers.get("date")
        now = parsedate_to_datetime(date) if date else datetime.now(UTC)
        return min(max((until - now).total_seconds(), 0.0), _LONGEST_WAIT_S)
    except (ValueError, TypeError, OverflowError):
        return None
