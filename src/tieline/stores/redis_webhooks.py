"""Webhooks in Redis: a hash each."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from typing import Any

from tieline.stores.base import Webhook
from tieline.stores.bytekeys import digest, packed, unpacked
from tieline.stores.redis_link import Link
from tieline.stores.redis_writer import RedisWriter

__all__ = ["RedisWebhooks"]


class RedisWebhooks:
    """The part of a RedisStore that keeps webhooks. How far they have come is written by its writer."""

    replica: str
    _link: Link
    _writer: RedisWriter

    async def set_webhook(self, webhook: Webhook, limit: int) -> bool:
        await self._writer.webhooks_written()
        scope, task, id_ = packed(webhook.scope), packed(webhook.task_id), packed(webhook.id)
        kept = await self._link.run_marked(
            *("set_webhook", self._link.epoch, digest(scope, task, id_), digest(scope, task), limit),
            *(webhook.owner if webhook.owner == self.replica else "", scope, task, id_, webhook.config),
            *(webhook.version, webhook.after, webhook.created, "" if webhook.failing is None else webhook.failing),
            *(webhook.failed, "" if webhook.dead is None else webhook.dead, packed(webhook.reason)),
        )
        return bool(kept)

    async def webhooks(self, scope: str, task_id: str) -> Sequence[Webhook]:
        await self._writer.webhooks_written()
        return _in_order(await self._link.run("webhooks", digest(packed(scope), packed(task_id))))

    async def drop_webhook(self, scope: str, task_id: str, id: str) -> bool:
        await self._writer.webhooks_written()
        key = _key(scope, task_id, id)
        return bool(await self._link.run_marked("drop_webhook", key, digest(packed(scope), packed(task_id))))

    async def claim_webhooks(self, scope: str, task_id: str) -> Sequence[Webhook]:
        await self._writer.webhooks_written()
        task = digest(packed(scope), packed(task_id))
        return _in_order(await self._link.run("claim_webhooks", task, self.replica))

    async def take_webhooks(self, scope_prefix: str, limit: int = 100) -> Sequence[Webhook]:
        await self._writer.webhooks_written()
        words = self.replica, packed(scope_prefix), limit, os.urandom(8)
        return _in_order(await self._link.run_marked("take_webhooks", *words))

    def delivered(self, webhook: Webhook, after: int) -> asyncio.Future[Any] | None:
        return self._writer.delivered(webhook, after)

    def failing(self, webhook: Webhook, after: int, at: int) -> asyncio.Future[Any] | None:
        return self._writer.failing(webhook, after, at)

    def release_webhook(self, webhook: Webhook) -> None:
        """See SharedStore."""
        self._writer.release_webhook(webhook)

    async def give_up_webhook(self, webhook: Webhook, after: int, failed: int, at: int, reason: str) -> None:
        await self._writer.webhooks_written()
        key = _key(webhook.scope, webhook.task_id, webhook.id)
        words = key, webhook.created, self.replica, after, failed, at, packed(reason)
        await self._link.run("give_up_webhook", *words)

    async def dead_webhooks(self, scope_prefix: str, limit: int = 1000) -> Sequence[Webhook]:
        await self._writer.webhooks_written()
        return [_webhook(row) for row in await self._link.run("dead_webhooks", packed(scope_prefix), limit)]

    async def revive_webhook(self, scope: str, task_id: str, id: str) -> bool:
        await self._writer.webhooks_written()
        return bool(await self._link.run_marked("revive_webhook", _key(scope, task_id, id)))


def _key(scope: str, task_id: str, id_: str) -> bytes:
    return digest(packed(scope), packed(task_id), packed(id_))


def _in_order(rows: Iterable[Sequence[bytes]]) -> list[Webhook]:
    return sorted(map(_webhook, rows), key=lambda webhook: (webhook.created, webhook.id))


def _webhook(row: Sequence[bytes]) -> Webhook:
    scope, task, id_, config, version, after, created, owner, failing, failed, dead, reason = row
    return Webhook(
        *(unpacked(scope), unpacked(task), unpacked(id_), config, version.decode(), int(after), int(created)),
        owner=owner.decode(),
        failing=int(failing) if failing else None,
        failed=int(failed),
        dead=int(dead) if dead else None,
        reason=unpacked(reason),
    )
