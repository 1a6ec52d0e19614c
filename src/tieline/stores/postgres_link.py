"""Connections to PostgreSQL: opened, kept alive, given up in time, and what an error of one means."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from tieline.stores.patience import Patience, said

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
except ImportError as error:  # pragma: no cover
    raise ImportError("A PostgreSQL store needs psycopg: pip install 'tieline[postgres]'") from error

__all__ = ["Connection", "Link", "fetch", "limited", "names_nothing", "quietly_closed", "read_url"]

log = logging.getLogger("tieline.stores")

T = TypeVar("T")
Connection = psycopg.AsyncConnection[tuple[Any, ...]]

_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,39}")
_READERS: Final = 4
# The server is going, not there yet, or full of connections; two transactions were in each other's way.
_PASSING: Final = frozenset(("57P01", "57P02", "57P03", "57P05", "53300", "40001", "40P01", "55P03", "25P03"))
# What a server says for good when it is connected to; libpq gives these no code.
_REFUSED: Final = ("authentication failed", "does not exist", "no pg_hba.conf entry", "no password supplied")
_HELP: Final = {
    "25006": "The server takes no writes: is it a standby, or default_transaction_read_only on?",
    "53100": "The disk of the server is full.",
}
_DEFAULTS: Final = {  # what the URL does not say
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
    "application_name": "tieline",
}


def names_nothing(error: BaseException | None) -> bool:
    """Whether a statement has failed as there is no such table, or no such schema."""
    return isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.InvalidSchemaName)


def read_url(url: str, shown: str) -> tuple[dict[str, Any], str]:
    """What libpq takes of a URL, and the schema that it names. Raises ValueError, which calls the URL `shown`."""
    address, _, query = url.partition("?")
    schema, rest = "tieline", []
    for pair in filter(None, query.split("&")):
        name, _, value = pair.partition("=")
        if name == "schema":
            schema = unquote(value)
        else:
            rest.append(pair)
    if not _NAME.fullmatch(schema):
        raise ValueError(f"schema={schema!r}: give a name of at most 40 small letters, digits and _")
    try:
        options = conninfo_to_dict(address + "?" + "&".join(rest))
    except psycopg.ProgrammingError:  # whose sentence may hold the password
        raise ValueError(
            f"{shown} is not an address that PostgreSQL takes: postgresql://USER:PASSWORD@HOST:PORT/DATABASE?schema=NAME,"
            " with % before what is special in a name or password (%40 is @)"
        ) from None
    return {**_DEFAULTS, **options}, schema


def passes(error: BaseException) -> bool:
    """Whether what failed may succeed in a moment, perhaps on another connection."""
    if isinstance(error, TimeoutError):
        return False
    if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
        state = error.sqlstate
        if state is None:
            return not any(words in str(error) for words in _REFUSED)
        return state in _PASSING or state.startswith("08")
    return isinstance(error, OSError) or (isinstance(error, psycopg.Error) and error.sqlstate in _PASSING)


def explained(error: BaseException) -> str:
    """An error as one line, with what it means where that helps."""
    meaning = _HELP.get(error.sqlstate or "") if isinstance(error, psycopg.Error) else None
    return said(error) if meaning is None else f"{said(error)}. {meaning}"


@asynccontextmanager
async def limited(connection: Connection, limit_s: float) -> AsyncIterator[None]:
    """Give what is done on a connection so many seconds; then it is cut, and TimeoutError is raised.

    The driver, cancelled, would ask the server to stop the statement and wait for that: a server that stands still
    answers neither.
    """
    over = False

    def cut() -> None:
        nonlocal over
        over = True
        with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)

    timer = asyncio.get_running_loop().call_later(limit_s, cut)
    try:
        yield
    except (psycopg.Error, OSError) as error:
        if over:
            raise TimeoutError from error
        raise
    finally:
        timer.cancel()


class Link:
    """The connections of one store: one that writes, and a few for everything else, opened when they are needed."""

    def __init__(self, options: dict[str, Any], shown: str, patience_s: float, limit_s: float) -> None:
        self._options = options
        self.shown = shown  # the URL without its password
        # A number that the database has no room for is an OverflowError of the driver.
        faults = (psycopg.Error, OSError, TimeoutError, OverflowError)
        self.patience = Patience(shown, patience_s, faults, passes, explained)
        self.limit_s = limit_s
        self._idle: list[Connection] = []
        self._room = asyncio.Semaphore(_READERS)
        self._closed = False

    async def connect(self) -> Connection:
        """Open a connection of its own. Raises psycopg.Error, OSError, TimeoutError."""
        async with asyncio.timeout(self.limit_s):
            return await psycopg.AsyncConnection.connect(autocommit=True, prepare_threshold=1, **self._options)

    async def query(self, statement: str, values: Any = ()) -> list[tuple[Any, ...]]:
        """Rows of a statement that may be repeated. Raises StoreError."""
        return await self.use(lambda connection: fetch(connection, statement, values))

    async def use(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do something on a connection; again on another one when it breaks. Raises StoreError."""
        return await self.patience.retried(lambda attempt: self.once(work))

    async def once(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do something on a connection. Raises psycopg.Error, OSError, TimeoutError."""
        async with asyncio.timeout(self.limit_s):  # behind others, who may all wait in vain
            await self._room.acquire()
        try:
            connection = self._idle.pop() if self._idle else await self.connect()
            try:
                async with limited(connection, self.limit_s):
                    result = await work(connection)
            except BaseException as error:
                await quietly_closed(connection)
                if passes(error):
                    await self._drop_idle()  # what is over for one is over for all
                raise
            if self._closed:
                await quietly_closed(connection)
            else:
                self._idle.append(connection)
            return result
        finally:
            self._room.release()

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
