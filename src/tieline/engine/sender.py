"""POSTs to webhooks: fast, bounded, and only to addresses that a guard has allowed.

The one module of the engine with an HTTP client in it; nothing imports it while push is off. A name is resolved here,
and the connection goes to the addresses that were checked: nothing resolves it a second time.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import re
import socket
import ssl
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Final

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from tieline import __version__
from tieline.engine.addresses import Address, read_address
from tieline.engine.guard import Guard, Target

__all__ = ["Sender", "Sent"]

Resolve = Callable[[str], Awaitable[Sequence[str]]]
"""All addresses of a host name, as text. Raises OSError when there is none."""

_AT_ONCE: Final = 256
_AT_ONCE_PER_HOST: Final = 32
_CONNECT_S: Final = 5.0
_TOTAL_S: Final = 15.0  # A2A 1.0 §4.3.3 recommends 10 to 30
_RESPONSE_BYTES: Final = 64 * 1024
_REST_S: Final = 1.0  # for what an answer has behind its head
_LONG_TURN_S: Final = 0.002
_LEAST_GAP_S: Final = 0.0005
_MOST_GAP_S: Final = 0.005  # 200 a second: a tenth of a core, about
_KEPT_S: Final = 15.0  # an idle connection
_RESOLVED_S: Final = 5.0  # how long an answer of DNS is taken for true
_RESOLVED_NAMES: Final = 4096
_REDIRECTS: Final = frozenset((301, 302, 303, 307, 308))
_LONGEST_WAIT_S: Final = 86_400.0
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_VALUE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?\Z")


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
    """Sends notifications: one session for the process, which is opened by the first POST and ended by `close`.

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
        total_s: float = _TOTAL_S,
        resolve: Resolve | None = None,
        resolved_s: float = _RESOLVED_S,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.guard = guard = guard or Guard()
        self._names = _Names(guard, resolve or _system_addresses, connect_s, resolved_s)
        self._slots = asyncio.Semaphore(at_once)
        self._per_host = at_once_per_host
        self._pace = _Pace()
        self._hosts: dict[tuple[str, int], _Queue] = {}
        self._connect_s = connect_s
        self._total_s = total_s
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None
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
        await self._pace.turn()
        place = (target.host, target.port)
        queue = self._hosts.get(place)
        if queue is None:
            queue = self._hosts[place] = _Queue(self._per_host)
        queue.users += 1
        try:
            async with queue.slots, self._slots:
                return await self._post(target, headers, body)
        finally:
            queue.users -= 1
            if not queue.users:
                self._hosts.pop(place, None)

    async def close(self) -> None:
        """Close all connections. What is under way, or comes yet, is not delivered. Closing twice is allowed."""
        self._closed = True
        self._names.close()
        if self._session is not None:
            await self._session.close()

    async def _post(self, target: Target, headers: Mapping[str, str], body: bytes) -> Sent:
        try:
            async with asyncio.timeout(self._total_s):
                addresses = (target.address,) if target.address is not None else await self._names.of(target.host)
                reason = self.guard.refusal(target, addresses)
                if reason is not None:
                    return Sent(0, None, f"The webhook's URL {reason}.")
                try:
                    return await self._exchange(target, headers, body)
                except (aiohttp.ClientConnectionError, OSError) as error:
                    if not _was_closed(error):
                        raise
                return await self._exchange(target, headers, body)
        except aiohttp.ConnectionTimeoutError:
            return Sent(0, None, f"There was no connection to the webhook's host within {self._connect_s:g} seconds.")
        except TimeoutError:
            return Sent(0, None, f"The webhook did not answer within {self._total_s:g} seconds.")
        except aiohttp.ClientConnectorCertificateError:
            return Sent(0, None, "The certificate of the webhook's host is not one to be trusted.")
        except aiohttp.ClientSSLError:
            return Sent(0, None, "The webhook's host does not speak TLS as it should.")
        except _Closed:
            return _ENDING
        except (_NoAddress, aiohttp.ClientConnectorDNSError):
            return Sent(0, None, "The webhook's host has no address in DNS that may be called.")
        except (aiohttp.ClientConnectionError, OSError) as error:
            if self._closed:
                return _ENDING
            if _was_closed(error):
                return Sent(0, None, "The webhook's host closed the connection without an answer.")
            return Sent(0, None, "There was no connection to the webhook's host.")
        except (aiohttp.ClientError, ValueError):
            return Sent(0, None, "What the webhook answered is not HTTP.")

    async def _exchange(self, target: Target, headers: Mapping[str, str], body: bytes) -> Sent:
        if self._closed:
            raise _Closed
        session = self._session or self._open()
        response = await session.post(_url_of(target), data=body, headers=headers, allow_redirects=False)
        try:
            status = response.status
            if not response.content.at_eof():
                await _read_through(response)
            if 200 <= status < 300:
                return _DELIVERED if status == 200 else Sent(status)
            if status in _REDIRECTS:
                return Sent(
                    status, None, f"The webhook answered with a redirect ({status}); redirects are not followed."
                )
            return Sent(status, _retry_after_s(response.headers), f"The webhook answered with HTTP {status}.")
        finally:
            response.release()

    def _open(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            resolver=_Checked(self._names),
            use_dns_cache=False,  # the resolver has its own, which is checked at every use
            limit=0,  # slots are given out before, where waiting does not count as being slow
            keepalive_timeout=_KEPT_S,
            ssl=self._tls or True,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_s),
            auto_decompress=False,
            trust_env=False,
            headers={"User-Agent": f"tieline/{__version__}"},
            skip_auto_headers=("Accept-Encoding", "Accept"),
        )
        return self._session


_DELIVERED: Final = Sent(200)
_ENDING: Final = Sent(0, None, "The server is ending.")


class _Pace:
    """How fast POSTs may follow each other, so that the event loop has its time for the tasks.

    A turn of the loop that takes long says that it has much to do: then POSTs are made further apart, all together, not
    each for itself. What is told late is told all the same.
    """

    def __init__(self) -> None:
        self._gap_s = 0.0
        self._next = 0.0

    async def turn(self) -> None:
        """Wait until it is one more POST's turn."""
        began = time.perf_counter()
        await asyncio.sleep(0)
        now = time.perf_counter()
        if now - began > _LONG_TURN_S:
            self._gap_s = min(max(self._gap_s, _LEAST_GAP_S) * 1.2, _MOST_GAP_S)
        elif self._gap_s:
            self._gap_s = self._gap_s * 0.95 if self._gap_s > _LEAST_GAP_S else 0.0
        if self._gap_s or self._next > now:
            at = max(self._next, now)
            self._next = at + self._gap_s
            if at > now:
                await asyncio.sleep(at - now)


class _Queue:
    """Who waits to send to one host and port."""

    __slots__ = ("slots", "users")

    def __init__(self, slots: int) -> None:
        self.slots = asyncio.Semaphore(slots)
        self.users = 0


@lru_cache(maxsize=1024)
def _url_of(target: Target) -> URL:
    host = f"[{target.host}]" if ":" in target.host else target.host
    url = URL(f"{target.scheme}://{host}:{target.port}{target.path}", encoded=True)
    if (url.host, url.port) != (target.host, target.port):
        raise ValueError("The URL is read in two ways.")
    return url


def _was_closed(error: Exception) -> bool:
    """Whether a connection was there and ended, as a kept one does that the receiver has closed meanwhile."""
    if isinstance(error, (aiohttp.ServerDisconnectedError, ConnectionResetError, BrokenPipeError)):
        return True
    return isinstance(error, aiohttp.ClientOSError) and error.errno in (errno.ECONNRESET, errno.EPIPE)


async def _read_through(response: aiohttp.ClientResponse) -> None:
    """Read what is left of an answer, up to a limit, so that its connection can be kept; else have it closed."""
    left = _RESPONSE_BYTES
    # The status has been told: what comes behind it, or does not come, changes nothing. TimeoutError is an OSError.
    with contextlib.suppress(aiohttp.ClientError, OSError):
        async with asyncio.timeout(_REST_S):
            async for chunk in response.content.iter_any():
                left -= len(chunk)
                if left < 0:
                    break
            else:
                return
    response.close()


def _bad_header(headers: Mapping[str, str]) -> str | None:
    """What is wrong with a header: names of tokens, values of visible ASCII and inner spaces are right."""
    for name, value in headers.items():
        if not _NAME.match(name):
            return "A header has a name with a character in it that names of headers cannot have."
        if not _VALUE.match(value):
            return f"The header {name} has to be of visible ASCII characters, without line breaks."
    return None


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Retry-After (RFC 9110 §10.2.3): seconds, or a date, which is held against that of the answer. A day at most."""
    text = headers.get("Retry-After", "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), _LONGEST_WAIT_S)
    try:
        until = parsedate_to_datetime(text)
        date = headers.get("Date")
        now = parsedate_to_datetime(date) if date else datetime.now(UTC)
        return min(max((until - now).total_seconds(), 0.0), _LONGEST_WAIT_S)
    except (ValueError, TypeError, OverflowError):
        return None


# --- names ------------------------------------------------------------------------------------------------------------


class _Closed(Exception):
    """Nothing is sent any more."""


class _NoAddress(OSError):
    """A name has no address."""


class _Names:
    """What DNS says of names: kept for a moment, asked once for all who ask at the same time."""

    def __init__(self, guard: Guard, resolve: Resolve, limit_s: float, kept_s: float) -> None:
        self.guard = guard
        self._resolve = resolve
        self._limit_s = limit_s
        self._kept_s = kept_s
        self._known: OrderedDict[str, tuple[float, tuple[Address, ...]]] = OrderedDict()
        self._asked: dict[str, asyncio.Task[tuple[Address, ...]]] = {}

    async def of(self, host: str) -> tuple[Address, ...]:
        """All addresses of a name. Raises _NoAddress and _Closed."""
        known = self._known.get(host)
        if known is not None and known[0] > asyncio.get_running_loop().time():
            return known[1]
        asked = self._asked.get(host)
        if asked is None:
            asked = self._asked[host] = asyncio.create_task(self._ask(host))
            asked.add_done_callback(lambda task: self._told(host, task))
        await asyncio.wait([asked])
        if asked.cancelled():
            raise _Closed
        return asked.result()

    def close(self) -> None:
        """Ask for nothing any more."""
        for asked in self._asked.values():
            asked.cancel()

    async def _ask(self, host: str) -> tuple[Address, ...]:
        try:
            async with asyncio.timeout(self._limit_s):
                texts = await self._resolve(host)
        except (OSError, UnicodeError) as error:  # TimeoutError is one
            raise _NoAddress(host) from error
        addresses = tuple(dict.fromkeys(read_address(text) for text in texts))
        if not addresses or None in addresses:
            raise _NoAddress(host)
        return tuple(address for address in addresses if address is not None)

    def _told(self, host: str, task: asyncio.Task[tuple[Address, ...]]) -> None:
        self._asked.pop(host, None)
        if task.cancelled() or task.exception() is not None:
            return
        self._known[host] = (task.get_loop().time() + self._kept_s, task.result())
        self._known.move_to_end(host)
        while len(self._known) > _RESOLVED_NAMES:
            self._known.popitem(last=False)


class _Checked(AbstractResolver):
    """Gives aiohttp the addresses that may be connected to; it connects to these and to nothing else."""

    def __init__(self, names: _Names) -> None:
        self._names = names

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        addresses = await self._names.of(host)
        # The answer may be a newer one than that which was checked for this POST.
        reason = self._names.guard.refusal(Target("https", host, port, "/", None), addresses)
        if reason is not None:
            raise _NoAddress(host)
        return [
            ResolveResult(
                hostname=host,
                host=str(address),
                port=port,
                family=socket.AF_INET if address.version == 4 else socket.AF_INET6,
                proto=0,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        """Nothing is open."""


async def _system_addresses(host: str) -> Sequence[str]:
    infos = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(info[4][0]) for info in infos]
