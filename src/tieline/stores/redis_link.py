"""Connections to Redis, the scripts that it runs for us, and what an error of it means."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha1
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from tieline.stores.base import StoreError
from tieline.stores.patience import Patience, said
from tieline.stores.redis_scripts import SCRIPTS

try:
    import redis.asyncio as driver
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import (
        AuthenticationError,
        AuthorizationError,
        NoScriptError,
        OutOfMemoryError,
        ReadOnlyError,
        RedisError,
        ResponseError,
    )
    from redis.exceptions import ConnectionError as Disconnected
    from redis.exceptions import TimeoutError as TimedOut
except ImportError as error:  # pragma: no cover
    raise ImportError("A Redis store needs redis-py: pip install 'tieline[redis]'") from error

__all__ = ["Link", "RedisError", "read_url"]

_EMPTIED: Final = "EMPTIED"  # what the scripts say when the mark of the epoch is gone
_CONNECTIONS: Final = 8
_SHAS: Final = {name: sha1(script.encode(), usedforsecurity=False).hexdigest() for name, script in SCRIPTS.items()}
_PASSING: Final = ("LOADING", "BUSY ", "TRYAGAIN", "MASTERDOWN", "CLUSTERDOWN", "READONLY", "NOREPLICAS")
_CONNECT_S: Final = 5
_OURS: Final = ("prefix", "protocol", "decode_responses")  # parameters of URLs that are not redis-py's to know
_NOT_CONNECTED: Final = "Timeout connecting to server"  # redis-py's sentence; its error is that of a lost answer, too
# A peer that has vanished without a word is noticed in half a minute, also where nothing is sent.
_KEEPALIVE: Final = {
    getattr(socket, name): value
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
    if hasattr(socket, name)
}


def read_url(url: str) -> tuple[str, str]:
    """What redis-py takes of a URL, and the prefix that it names. Raises ValueError, which shows no password."""
    parts = urlsplit(url)
    try:
        readable = (parts.hostname or not parts.netloc) and parts.port != 0 and (parts.path[1:] or "0").isdecimal()
    except ValueError:  # the port is no number, but perhaps half a password
        readable = False
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    if not readable or parts.fragment or any("@" in name for name, _ in pairs):
        raise ValueError(
            "the address of a Redis is redis://USER:PASSWORD@HOST:PORT/NUMBER;"
            " / ? # @ : and % in a password are written with %"
        )
    prefix = next((value for name, value in pairs if name == "prefix"), "tieline")
    if not prefix or not prefix.isprintable() or set(prefix) & set("{}:") or len(prefix) > 100:
        raise ValueError(f"prefix={prefix!r}: give up to 100 printable characters without {{, }} and :")
    rest = urlencode([pair for pair in pairs if pair[0] not in _OURS])
    return urlunsplit((parts.scheme, parts.netloc, parts.path, rest, "")), prefix


def passes(error: BaseException) -> bool:
    """Whether what failed may succeed in a moment, perhaps on another connection."""
    if isinstance(error, TimedOut) and str(error) == _NOT_CONNECTED:
        return True
    if isinstance(error, (AuthenticationError, AuthorizationError, TimedOut, TimeoutError)):
        return False
    if isinstance(error, (Disconnected, OSError, ReadOnlyError, NoScriptError)):
        return True
    return isinstance(error, ResponseError) and str(error).startswith(_PASSING)


def explained(error: BaseException) -> str:
    """An error in one line that says what helps."""
    if isinstance(error, TimedOut):
        return "it does not answer"
    if isinstance(error, OutOfMemoryError):
        return "it is full; give it more memory (maxmemory), or drop tasks: tieline store prune"
    if isinstance(error, ReadOnlyError):
        return "it takes no writes, as it is a replica of another Redis; give the address of that one"
    return said(error)


class Link:
    """The connections of one store."""

    def __init__(self, url: str, shown: str, prefix: str, patience_s: float, limit_s: float) -> None:
        self._url = url
        self.shown = shown  # the URL without its password
        self.prefix = f"{{{prefix}}}:".encode()
        self.patience = Patience(shown, patience_s, (RedisError, OSError, TimeoutError), passes, explained)
        self.limit_s = limit_s
        self.epoch = b""  # the mark of what we have written to
        self.renewed = False  # whether there was another one before, which is gone
        self._client = self.client(limit_s, _CONNECTIONS)

    def client(self, limit_s: float, connections: int) -> Any:
        """A client that waits `limit_s` for an answer. redis-py's own types do not say what comes back: hence Any."""
        pool = driver.BlockingConnectionPool.from_url(
            self._url,
            max_connections=connections,
            timeout=None,
            protocol=2,
            socket_timeout=limit_s,
            socket_connect_timeout=min(_CONNECT_S, limit_s),
            socket_keepalive=True,
            socket_keepalive_options=_KEEPALIVE,
            retry=Retry(NoBackoff(), 0),
        )
        return driver.Redis(connection_pool=pool)

    def key(self, name: str, of: bytes = b"") -> bytes:
        """A key of this store."""
        return self.prefix + name.encode() + of

    async def close(self) -> None:
        """Let go of every connection; they are opened again when they are needed."""
        await self._client.aclose()
        await self._client.connection_pool.disconnect()

    async def call(self, *command: Any) -> Any:
        """One command that may be repeated. Raises StoreError."""
        return await self.retried(lambda attempt: self._client.execute_command(*command))

    async def run(self, script: str, *arguments: Any) -> Any:
        """One script that may be repeated. Raises StoreError."""
        return await self.retried(lambda attempt: self.run_once(script, *arguments))

    async def run_marked(self, script: str, *arguments: Any) -> Any:
        """One script that is told as its last argument whether it may have been done before. Raises StoreError."""
        return await self.retried(lambda attempt: self.run_once(script, *arguments, 1 if attempt else 0))

    async def retried(self, work: Callable[[int], Awaitable[Any]]) -> Any:
        """Do something as long as that may help, each time for `limit_s` at most. Raises StoreError."""

        async def limited(attempt: int) -> Any:
            async with asyncio.timeout(self.limit_s):  # the wait for a connection counts
                return await work(attempt)

        return await self.patience.retried(limited)

    async def run_once(self, script: str, *arguments: Any) -> Any:
        """One script, once. Raises RedisError, OSError; StoreError when Redis was emptied."""
        (answer,) = await self.run_all([(script, arguments)])
        return answer

    async def run_all(self, scripts: Sequence[tuple[str, Sequence[Any]]]) -> list[Any]:
        """Several scripts in one round trip, once. Raises what `run_once` does."""
        meta = self.key("meta")
        return await self.all_of(
            [("EVALSHA", _SHAS[name], 1, meta, self.prefix, *arguments) for name, arguments in scripts]
        )

    async def all_of(self, commands: Sequence[Sequence[Any]], client: Any = None) -> list[Any]:
        """Several commands in one round trip, once. Raises what `run_once` does: the first error that one has met."""
        pipeline = (client or self._client).pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        answers: list[Any] = await pipeline.execute(raise_on_error=False)  # it would tell the command with the error
        error = next((answer for answer in answers if isinstance(answer, Exception)), None)
        if error is None:
            return answers
        if str(error).startswith(_EMPTIED):
            raise StoreError(self.emptied) from error
        if isinstance(error, NoScriptError):
            await self._load()
        if isinstance(error, ReadOnlyError):  # the name may stand for another server by now
            await self._client.connection_pool.disconnect(inuse_connections=False)
        raise error

    @property
    def emptied(self) -> str:
        """The sentence about a Redis whose keys are gone."""
        return f"{self.shown} was emptied while in use: what was kept there is gone"

    async def _load(self) -> None:
        """Have Redis know the scripts."""
        pipeline = self._client.pipeline(transaction=False)
        for script in SCRIPTS.values():
            pipeline.script_load(script)
        await pipeline.execute()
