"""The stores that the suite is run over: a further one joins by a line in BACKENDS."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, cast

import psycopg
import pytest

from tests.databases import postgres_server, redis_server
from tieline.stores.base import Retention, SharedStore, Store
from tieline.stores.memory import MemoryStore
from tieline.stores.postgres import PostgresStore
from tieline.stores.redis import RedisStore
from tieline.stores.sqlite import SQLiteStore

FOR_EVER = Retention()

_SCHEMAS = 4  # more than any test has open at once
_TABLES = ("tasks", "log", "messages", "replicas", "letters", "webhooks")
_EMPTY = "; ".join(f"DELETE FROM {{0}}.{table}" for table in _TABLES)


class Backend(NamedTuple):
    """A kind of store. Two stores that `make` gives for one folder are one store, closed and opened, if `durable`."""

    make: Callable[[Path, Retention], Store]
    durable: bool


def _prefix(folder: Path) -> str:
    """A prefix of its own for each folder."""
    return f"t_{blake2b(str(folder).encode(), digest_size=12).hexdigest()}"


def _schema(folder: Path) -> str:
    """One of a few schemas, which are emptied for their next use: making one takes longer than most tests."""
    return f"suite_{int(folder.name) % _SCHEMAS}"


BACKENDS = {
    "memory": Backend(lambda folder, retention: MemoryStore(retention), durable=False),
    "sqlite": Backend(lambda folder, retention: SQLiteStore(folder / "tasks.db", retention), durable=True),
    "postgres": Backend(
        lambda folder, retention: PostgresStore(postgres_server().url(_schema(folder)), retention), durable=True
    ),
    "redis": Backend(
        lambda folder, retention: RedisStore(redis_server().url(_prefix(folder)), retention), durable=True
    ),
}
DURABLE = [name for name, backend in BACKENDS.items() if backend.durable]
SHARED = ["postgres", "redis"]


async def _ready(store: PostgresStore, schema: str) -> None:
    """Make the tables of a schema, or empty them."""
    made, _ = await store.migrate()
    if made:
        url = postgres_server().url().partition("?")[0]
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            await connection.execute(_EMPTY.format(schema).encode())


class Place:
    """Makes the stores of one test; `reopened` gives the one before once more, as after a restart."""

    def __init__(self, backend: Backend, folder: Path) -> None:
        self.durable = backend.durable
        self._make = backend.make
        self._folder = folder
        self._used = 0

    def opened(self, retention: Retention = FOR_EVER) -> AbstractAsyncContextManager[Store]:
        """A new, empty store, open."""
        self._used += 1
        return self._open(retention, new=True)

    def reopened(self, retention: Retention = FOR_EVER) -> AbstractAsyncContextManager[Store]:
        """The store that was made last, by another object. Only of durable backends."""
        return self._open(retention, new=False)

    def made(self, retention: Retention = FOR_EVER) -> Store:
        """A store as `reopened` gives it, not open yet."""
        folder = self._folder / str(self._used)
        folder.mkdir(exist_ok=True)
        return self._make(folder, retention)

    @asynccontextmanager
    async def _open(self, retention: Retention, *, new: bool) -> AsyncIterator[Store]:
        store = self.made(retention)
        if new and isinstance(store, PostgresStore):
            await _ready(store, _schema(self._folder / str(self._used)))
        await store.open()
        try:
            yield store
        finally:
            await store.close()


class SharedPlace:
    """Makes the replicas of one test."""

    def __init__(self, place: Place) -> None:
        self._place = place

    @asynccontextmanager
    async def first(self, retention: Retention = FOR_EVER) -> AsyncIterator[SharedStore]:
        """A replica of a new, empty store, open."""
        async with self._place.opened(retention) as store:
            yield cast(SharedStore, store)

    @asynccontextmanager
    async def another(self, retention: Retention = FOR_EVER) -> AsyncIterator[SharedStore]:
        """A further replica of the store that was made last, open."""
        async with self._place.reopened(retention) as store:
            yield cast(SharedStore, store)

    def made(self) -> SharedStore:
        """Such a replica, not open yet."""
        return cast(SharedStore, self._place.made())


@pytest.fixture(params=BACKENDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(BACKENDS[request.param], tmp_path)


@pytest.fixture(params=DURABLE)
def durable_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(BACKENDS[request.param], tmp_path)


@pytest.fixture(params=SHARED)
def shared_place(request: pytest.FixtureRequest, tmp_path: Path) -> SharedPlace:
    return SharedPlace(Place(BACKENDS[request.param], tmp_path))
