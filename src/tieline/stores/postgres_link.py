"""Connections to PostgreSQL: opened, kept alive, given up in time, and what an error of one means."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from tieline.stores.patience import Patience, said

try:
    import psycopg
except ImportError as error:  # pragma: no cover
    raise ImportError("A PostgreSQL store needs psycopg: pip install 'tieline[postgres]'") from error

__all__ = ["Connection", "Link", "fetch", "passes", "quietly_closed", "read_url"]

log = logging.getLogger("tieline.stores")

T = TypeVar("T")
Connection = psycopg.AsyncConnection[tuple[Any, ...]]

_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,39}")
_READERS: Final = 4
# The server is going, not there yet, or full of connections; two transactions were in each other's way.
_PASSING: Final = frozenset(("57P01", "57P02", "57P03", "57P05", "53300", "40001", "40P01", "55P03", "25P03"))


def read_url(url: str) -> tuple[str, str]:
    """What libpq takes of a URL, and the schema that it names. Raises ValueError."""
    parts = urlsplit(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    schema = next((value for name, value in pairs if name == "schema"), "tieline")
    if not _NAME.fullmatch(schema):
        raise ValueError(f"schema={schema!r}: give a name of at most 40 small letters, digits and _")
    rest = urlencode([pair for pair in pairs if pair[0] != "schema"])
    return urlunsplit((parts.scheme, parts.netloc, parts.path, rest, "")), schema


def passes(error: BaseException) -> bool:
    """Whether what failed may succeed in a moment, perhaps on another connection."""
    if isinstance(error, TimeoutError):
        return False
    if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
        state = error.sqlstate
        return state is None or state in _PASSING or state.startswith("08")
    return isinstance(error, OSError) or (isinstance(error, psycopg.Error) and error.sqlstate in _PASSING)


class Link:
    """The connections of one store: one that writes, and a few for everything else, opened when they are needed."""

    def __init__(self, url: str, shown: str, patience_s: float, limit_s: float) -> None:
        self._url = url
        self.shown = shown  # the URL without its password
        self.patience = Patience(shown, patience_s, (psycopg.Error, OSError, TimeoutError), passes)
        self.limit_s = limit_s
        self._idle: list[Connection] = []
        self._room = asyncio.Semaphore(_READERS)
        self._closed = False

    async def connect(self) -> Connection:
        """Open a connection of its own. Raises psycopg.Error, TimeoutError."""
        async with asyncio.timeout(self.limit_s):
            return await psycopg.AsyncConnection.connect(
                self._url,
                autocommit=True,
                connect_timeout=5,
                keepalives=1,
                keepalives_idle=10,
                keepalives_interval=5,
                keepalives_count=3,
                tcp_user_timeout=15_000,
                application_name="tieline",
                prepare_threshold=1,
            )

    async def query(self, statement: str, values: Any = ()) -> list[tuple[Any, ...]]:
        """Rows of a statement that may be repeated. Raises StoreError."""
        return await self.use(lambda connection: fetch(connection, statement, values))

    async def use(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do something on a connection; again on another one when it breaks. Raises StoreError."""
        return await self.patience.retried(lambda attempt: self.once(work))

    async def once(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do something on a connection. Raises psycopg.Error, OSError, TimeoutError."""
        async with self._room:
            connection = self._idle.pop() if self._idle else await self.connect()
            try:
                async with asyncio.timeout(self.limit_s):
                    result = await work(connection)
            except BaseException as error:
                if passes(error):
                    await self._drop_idle()  # what is over for one is over for all
                if connection.broken or not isinstance(error, psycopg.Error) or passes(error):
                    await quietly_closed(connection)
                else:
                    self._idle.append(connection)
                raise
            if self._closed:
                await quietly_closed(connection)
            else:
                self._idle.append(connection)
            return result

    async def _drop_idle(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            await quietly_closed(connection)

    async def close(self) -> None:
        self._closed = True
        await self._drop_idle()

    def reopen(self) -> None:
        self._closed = False


async def fetch(connection: Connection, statement: str, values: Any) -> list[tuple[Any, ...]]:
    """The rows of a statement; [] for one that has none."""
    cursor = await connection.execute(statement.encode(), values, binary=True)
    return await cursor.fetchall() if cursor.description is not None else []


async def quietly_closed(connection: Connection) -> None:
    """Close a connection that may be broken."""
    try:
        await connection.close()
    except (psycopg.Error, OSError) as error:
        log.debug("a connection could not be closed: %s", said(error))
