"""A store around another one: what tests bend a part of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, ClassVar

from tieline.event import Event
from tieline.stores.base import Append, Outcome, Page, Pruned, Query, Record, Stats, Store, StoredTask, Webhook
from tieline.stores.memory import MemoryStore

__all__ = ["WrappedStore"]


class WrappedStore:
    """Hands everything to `inner`."""

    shared: ClassVar[bool] = False

    def __init__(self, inner: Store | None = None) -> None:
        self.inner: Store = inner or MemoryStore()
        self.retention = self.inner.retention

    async def open(self) -> int:
        return await self.inner.open()

    async def close(self) -> None:
        await self.inner.close()

    def append(self, append: Append) -> asyncio.Future[Any] | None:
        return self.inner.append(append)

    async def get(self, scope: str, task_id: str) -> Record | None:
        return await self.inner.get(scope, task_id)

    async def events(
        self, scope: str, task_id: str, after: int, *, limit: int | None = None
    ) -> Sequence[tuple[int, Event]] | None:
        return await self.inner.events(scope, task_id, after, limit=limit)

    async def list(self, query: Query) -> Page:
        return await self.inner.list(query)

    async def take(self, scope_prefix: str) -> Sequence[Record]:
        return await self.inner.take(scope_prefix)

    def hear(self, key: bytes, task_id: str, at: int) -> Outcome | asyncio.Future[Outcome | None] | None:
        return self.inner.hear(key, task_id, at)

    def replied(self, key: bytes, reply: bytes) -> asyncio.Future[Any] | None:
        return self.inner.replied(key, reply)

    async def set_webhook(self, webhook: Webhook, limit: int) -> bool:
        return await self.inner.set_webhook(webhook, limit)

    async def webhooks(self, scope: str, task_id: str) -> Sequence[Webhook]:
        return await self.inner.webhooks(scope, task_id)

    async def drop_webhook(self, scope: str, task_id: str, id: str) -> bool:
        return await self.inner.drop_webhook(scope, task_id, id)

    async def claim_webhooks(self, scope: str, task_id: str) -> Sequence[Webhook]:
        return await self.inner.claim_webhooks(scope, task_id)

    async def take_webhooks(self, scope_prefix: str, limit: int = 100) -> Sequence[Webhook]:
        return await self.inner.take_webhooks(scope_prefix, limit)

    def delivered(self, webhook: Webhook, after: int) -> asyncio.Future[Any] | None:
        return self.inner.delivered(webhook, after)

    def failing(self, webhook: Webhook, after: int, at: int) -> asyncio.Future[Any] | None:
        return self.inner.failing(webhook, after, at)

    async def give_up_webhook(self, webhook: Webhook, after: int, failed: int, at: int, reason: str) -> None:
        await self.inner.give_up_webhook(webhook, after, failed, at, reason)

    async def dead_webhooks(self, scope_prefix: str, limit: int = 1000) -> Sequence[Webhook]:
        return await self.inner.dead_webhooks(scope_prefix, limit)

    async def revive_webhook(self, scope: str, task_id: str, id: str) -> bool:
        return await self.inner.revive_webhook(scope, task_id, id)

    async def prune(self, now: int, told: Callable[[Pruned], object] | None = None) -> Pruned:
        return await self.inner.prune(now, told)

    async def stats(self) -> Stats:
        return await self.inner.stats()

    def tasks(self) -> AsyncIterator[StoredTask]:
        return self.inner.tasks()

    async def put(self, tasks: Sequence[StoredTask]) -> int:
        return await self.inner.put(tasks)
