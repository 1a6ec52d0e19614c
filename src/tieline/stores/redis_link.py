"""Connections to Redis, the scripts that it runs for us, and what an error of it means."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from hashlib import sha1
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from tieline.stores.patience import Patience
from tieline.stores.redis_scripts import SCRIPTS

try:
    import redis.asyncio as driver
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import (
        AuthenticationError,
        AuthorizationError,
        NoScriptError,
        ReadOnlyError,
        RedisError,
        ResponseError,
    )
    from redis.exceptions import ConnectionError as Disconnected
    from redis.exceptions import TimeoutError as TimedOut
except ImportError as error:  # pragma: no cover
    raise ImportError("A Redis store needs redis-py: pip install 'tieline[redis]'") from error

__all__ = ["EMPTIED", "Link", "RedisError", "read_url"]

log = logging.getLogger("tieline.stores")

EMPTIED: Final = "EMPTIED"  # what the scripts say when the mark of the epoch is gone

_CONNECTIONS: Final = 8
_SHAS: Final = {name: sha1(script.encode(), usedforsecurity=False).hexdigest() for name, script in SCRIPTS.items()}
_PASSING: Final = ("LOADING", "BUSY ", "TRYAGAIN", "MASTERDOWN", "CLUSTERDOWN", "READONLY", "NOREPLICAS")


def read_url(url: str) -> tuple[str, str]:
    """What redis-py takes of a URL, and the prefix that it names. Raises ValueError."""
    parts = urlsplit(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    prefix = next((value for name, value in pairs if name == "prefix"), "tieline")
    if not prefix or not prefix.isprintable() or set(prefix) & set("{}:") or len(prefix) > 100:
        raise ValueError(f"prefix={prefix!r}: give up to 100 printable characters without {{, }} and :")
    rest = urlencode([pair for pair in pairs if pair[0] != "prefix"])
    return urlunsplit((parts.scheme, parts.netloc, parts.path, rest, "")), prefix


def passes(error: BaseException) -> bool:
    """Whether what failed may succeed in a moment, perhaps on another connection."""
    if isinstance(error, (AuthenticationError, AuthorizationError, TimedOut, TimeoutError)):
        return False
    if isinstance(error, (Disconnected, OSError, ReadOnlyError, NoScriptError)):
        return True
    return isinstance(error, ResponseError) and str(error).startswith(_PASSING)


class Link:
    """The connections of one store."""

    def __init__(self, url: str, shown: str, prefix: str, patience_s: float, limit_s: float) -> None:
        self._url = url
        self.shown = shown  # the URL without its password
        self.prefix = f"{{{prefix}}}:".encode()
        self.patience = Patience(shown, patience_s, (RedisError, OSError, TimeoutError), passes)
        self.limit_s = limit_s
        self._client = self.client(limit_s, _CONNECTIONS)

    def client(self, limit_s: float, connections: int) -> Any:
        """A client that waits `limit_s` for an answer. redis-py's own types do not say what comes back: hence Any."""
        pool = driver.BlockingConnectionPool.from_url(
            self._url,
            max_connections=connections,
            timeout=None,
            socket_timeout=limit_s,
            socket_connect_timeout=5,
            socket_keepalive=True,
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

    async def load(self) -> None:
        """Have Redis know the scripts."""
        pipeline = self._client.pipeline(transaction=False)
        for script in SCRIPTS.values():
            pipeline.script_load(script)
        await pipeline.execute()

    async def call(self, *command: Any) -> Any:
        """One command that may be repeated. Raises StoreError."""
        return await self.patience.retried(lambda attempt: self._client.execute_command(*command))

    async def run(self, script: str, *arguments: Any) -> Any:
        """One script that may be repeated. Raises StoreError."""
        return await self.patience.retried(lambda attempt: self.run_once(script, *arguments))

    async def run_once(self, script: str, *arguments: Any) -> Any:
        """One script, once. Raises RedisError, OSError."""
        (answer,) = await self.run_all([(script, arguments)])
        return answer

    async def run_all(self, scripts: Sequence[tuple[str, Sequence[Any]]]) -> list[Any]:
        """Several scripts in one round trip, once. Raises RedisError, OSError."""
        pipeline = self._client.pipeline(transaction=False)
        for name, arguments in scripts:
            pipeline.execute_command("EVALSHA", _SHAS[name], 1, self.prefix + b"meta", self.prefix, *arguments)
        try:
            answers: list[Any] = await pipeline.execute()
        except NoScriptError:
            await self.load()
            raise
        return answers

    def pipeline(self) -> Any:
        """Several commands in one round trip."""
        return self._client.pipeline(transaction=False)
