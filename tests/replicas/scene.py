"""Two or more services on one database in one loop: each is a replica, with a store object of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.databases import postgres_server, redis_server
from tieline.engine.agent import Agent
from tieline.engine.cursor import Cursor
from tieline.engine.service import Limits, Service
from tieline.engine.turn import Caller
from tieline.ids import new_id
from tieline.stores.base import SharedStore, StoreError
from tieline.stores.postgres import PostgresStore
from tieline.stores.redis import RedisStore
from tieline.types import (
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
)

__all__ = ["CALLER", "DATABASES", "Replicas", "events_of", "replicas", "send", "text_of"]

CALLER = Caller()
DATABASES = ("postgres", "redis")
LEASE_S = 5.0


class Replicas:
    """Services of one agent on one database; `[0]` is the first."""

    def __init__(self, agent: Agent, database: str) -> None:
        self._agent = agent
        self._name = f"r_{new_id().replace('-', '')[:20]}"
        self._database = database
        self.services: list[Service] = []

    def store(self) -> SharedStore:
        """A store object of its own on the database."""
        if self._database == "postgres":
            return PostgresStore(postgres_server().url(self._name))
        return RedisStore(redis_server().url(self._name))

    async def migrate(self) -> None:
        """Make the tables."""
        store = self.store()
        assert isinstance(store, PostgresStore | RedisStore)
        await store.migrate()
        await store.close()

    async def add(self, agent: Agent | None = None) -> Service:
        """One more replica."""
        service = Service(agent or self._agent, self.store(), limits=Limits(lease_s=LEASE_S, cancel_s=3))
        await service.start()
        self.services.append(service)
        return service

    def __getitem__(self, index: int) -> Service:
        return self.services[index]

    async def crash(self, index: int) -> None:
        """End a replica as `kill -9` does: it says nothing more, and its agents go no further."""
        service = self.services[index]
        replica = service.replica
        assert replica is not None
        await replica.leave(service)  # no beat any more
        for run in list(service.runs.values()):
            run.lose(StoreError("the process has died"))
        store = service.store
        assert isinstance(store, PostgresStore | RedisStore)
        await store._post.close()
        await store._writer.close()
        await store._link.close()

    async def close(self) -> None:
        """End all that are left."""
        for service in self.services:
            await service.close()
            await service.store.close()


@asynccontextmanager
async def replicas(agent: Agent, database: str, count: int = 2) -> AsyncIterator[Replicas]:
    """`count` replicas on a database of their own."""
    found = Replicas(agent, database)
    await found.migrate()
    try:
        for _ in range(count):
            await found.add()
        yield found
    finally:
        await found.close()


def send(text: str, *, task: str | None = None, id_: str | None = None, at_once: bool = False) -> SendMessageRequest:
    """A message with this text, to this task."""
    message = Message(id_ or new_id(), Role.USER, (Part(text),), task_id=task)
    return SendMessageRequest(message, configuration=SendMessageConfiguration(return_immediately=at_once))


async def events_of(cursor: Cursor, until: Callable[[Any], bool] = lambda event: False) -> list[Any]:
    """What a cursor gives, to its end or until an event fits."""
    found: list[Any] = []
    try:
        while True:
            _, events = cursor.take()
            for event in events:
                found.append(event.value)
                if until(event.value):
                    return found
            if not events:
                if cursor.ended:
                    break
                await cursor.wait()
        if cursor.failure is not None:
            raise cursor.failure
        return found
    finally:
        cursor.close()


def text_of(task: Task) -> str:
    """The text of a task's artifacts."""
    return "".join(part.text or "" for artifact in task.artifacts for part in artifact.parts)


async def task_of(service: Service, task_id: str) -> Task:
    """A task as one replica shows it."""
    return (await service.get_task(GetTaskRequest(task_id), CALLER)).value


def subscribe(task_id: str) -> SubscribeToTaskRequest:
    """A subscription to a task."""
    return SubscribeToTaskRequest(task_id)


def cancel(task_id: str) -> CancelTaskRequest:
    """A cancel of a task."""
    return CancelTaskRequest(task_id)


async def until_state(service: Service, task_id: str, state: str, limit_s: float = 15) -> Task:
    """Wait until a task is in this state, as one replica shows it."""
    async with asyncio.timeout(limit_s):
        while True:
            task = await task_of(service, task_id)
            if task.state.value.endswith(state):
                return task
            await asyncio.sleep(0.05)
