"""The stores that the suite is run over: a further one joins by a line in BACKENDS."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import pytest
from tieline.stores.redis import RedisStore

from tests.databases import postgres_server, redis_server
from tieline.stores.base import Retention, Store
from tieline.stores.memory import MemoryStore
from tieline.stores.postgres import PostgresStore
from tieline.stores.sqlite import SQLiteStore

FOR_EVER = Retention()


class Backend(NamedTuple):
    """A kind of store. Two stores that `make` gives for one folder are one store, closed and opened, if `durable`."""

    make: Callable[[Path, Retention], Store]
    durable: bool


def _name(folder: Path) -> str:
    """A schema or prefix of its own for each folder."""
    return f"t_{blake2b(str(folder).encode(), digest_size=12).hexdigest()}"


BACKENDS = {
    "memory": Backend(lambda folder, retention: MemoryStore(retention), durable=False),
    "sqlite": Backend(lambda folder, retention: SQLiteStore(folder / "tasks.db", retention), durable=True),
    "postgres": Backend(
        lambda folder, retention: PostgresStore(postgres_server().url(_name(folder)), retention), durable=True
    ),
    "redis": Backend(lambda folder, retention: RedisStore(redis_server().url(_name(folder)), retention), durable=True),
}
DURABLE = [name for name, backend in BACKENDS.items() if backend.durable]
SHARED = ["postgres", "redis"]


class Place:
    """Makes the stores of one test; `again` gives the one before once more, as after a restart."""

    def __init__(self, backend: Backend, folder: Path) -> None:
        self.durable = backend.durable
        self._make = backend.make
        self._folder = folder
        self._used = 0

    def opened(self, retention: Retention = FOR_EVER) -> AbstractAsyncContextManager[Store]:
        """A new, empty store, open."""
        self._used += 1
        return self.reopened(retention)

    @asynccontextmanager
    async def reopened(self, retention: Retention = FOR_EVER) -> AsyncIterator[Store]:
        """The store that was made last, by another object. Only of durable backends."""
        folder = self._folder / str(self._used)
        folder.mkdir(exist_ok=True)
        store = self._make(folder, retention)
        if isinstance(store, PostgresStore | RedisStore):
            await store.migrate()
        await store.open()
        try:
            yield store
        finally:
            await store.close()


@pytest.fixture(params=BACKENDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(BACKENDS[request.param], tmp_path)


@pytest.fixture(params=DURABLE)
def durable_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(BACKENDS[request.param], tmp_path)


@pytest.fixture(params=SHARED)
def shared_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where `reopened` gives another replica of the store that was opened last."""
    return Place(BACKENDS[request.param], tmp_path)
