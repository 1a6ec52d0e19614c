"""Webhooks in PostgreSQL: rows of a table of their own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from typing import Any

from psycopg.types.numeric import Int8

from tieline.stores.base import Webhook
from tieline.stores.bytekeys import digest, packed, unpacked
from tieline.stores.postgres_link import Connection, Link, fetch
from tieline.stores.postgres_schema import Statements
from tieline.stores.postgres_writer import PostgresWriter

__all__ = ["PostgresWebhooks"]


class PostgresWebhooks:
    """The part of a PostgresStore that keeps webhooks. How far they have come is written by its writer."""

    replica: str
    _link: Link
    _sql: Statements
    _writer: PostgresWriter

    async def set_webhook(self, webhook: Webhook, limit: int) -> bool:
        await self._writer.webhooks_written()
        scope, task, id_ = packed(webhook.scope), packed(webhook.task_id), packed(webhook.id)
        task_key = digest(scope, task)
        values = {
            "key": digest(scope, task, id_),
            "task_key": task_key,
            "scope": scope,
            "task": task,
            "id": id_,
            "config": webhook.config,
            "version": webhook.version,
            "after": webhook.after,
            "created": webhook.created,
            "owner": self.replica if webhook.owner == self.replica else None,
            "failing": webhook.failing,
            "failed": webhook.failed,
            "dead": webhook.dead,
            "reason": packed(webhook.reason),
        }

        async def put(connection: Connection, attempt: int) -> bool:
            async with connection.transaction():
                lock = Int8(int.from_bytes(task_key[:8], signed=True))
                await fetch(connection, self._sql.lock_task, (lock,))  # two at once must not both be the last
                which = values["key"], webhook.created
                if attempt and await fetch(connection, self._sql.has_webhook, which):
                    return True  # it was done before, and its answer was lost
                ((others,),) = await fetch(connection, self._sql.count_others, (task_key, values["key"]))
                if others >= limit:
                    return False
                await fetch(connection, self._sql.set_webhook, values)
            return True

        return await self._link.patience.retried(
            lambda attempt: self._link.once(lambda connection: put(connection, attempt))
        )

    async def webhooks(self, scope: str, task_id: str) -> Sequence[Webhook]:
        await self._writer.webhooks_written()
        rows = await self._link.query(self._sql.webhooks, (digest(packed(scope), packed(task_id)),))
        return [_webhook(row) for row in rows]

    async def drop_webhook(self, scope: str, task_id: str, id: str) -> bool:
        await self._writer.webhooks_written()
        key = _key(scope, task_id, id)

        async def dropped(attempt: int) -> bool:
            rows = await self._link.once(lambda link: fetch(link, self._sql.drop_webhook, (key,)))
            return bool(rows or attempt)  # that it was done before may not have been heard

        return await self._link.patience.retried(dropped)

    async def claim_webhooks(self, scope: str, task_id: str) -> Sequence[Webhook]:
        await self._writer.webhooks_written()
        values = {"me": self.replica, "task_key": digest(packed(scope), packed(task_id))}
        return _in_order(await self._link.query(self._sql.claim_webhooks, values))

    async def take_webhooks(self, scope_prefix: str, limit: int = 100) -> Sequence[Webhook]:
        await self._writer.webhooks_written()
        prefix = packed(scope_prefix)
        values = {
            "me": self.replica,
            "mark": os.urandom(8),
            "length": len(prefix),
            "prefix": prefix,
            "limit": limit,
        }

        async def once(attempt: int) -> list[tuple[Any, ...]]:
            taken = self._sql.taken_webhooks
            if attempt and (rows := await self._link.once(lambda link: fetch(link, taken, values))):
                return rows
            return await self._link.once(lambda link: fetch(link, self._sql.take_webhooks, values))

        return _in_order(await self._link.patience.retried(once))

    def delivered(self, webhook: Webhook, after: int) -> asyncio.Future[Any] | None:
        return self._writer.delivered(webhook, after)

    def failing(self, webhook: Webhook, after: int, at: int) -> asyncio.Future[Any] | None:
        return self._writer.failing(webhook, after, at)

    def release_webhook(self, webhook: Webhook) -> None:
        """See SharedStore."""
        self._writer.release_webhook(webhook)

    async def give_up_webhook(self, webhook: Webhook, after: int, failed: int, at: int, reason: str) -> None:
        await self._writer.webhooks_written()
        values = {
            "key": _key(webhook.scope, webhook.task_id, webhook.id),
            "created": webhook.created,
            "me": self.replica,
            "after": after,
            "failed": failed,
            "at": at,
            "reason": packed(reason),
        }
        await self._link.query(self._sql.give_up_webhook, values)

    async def dead_webhooks(self, scope_prefix: str, limit: int = 1000) -> Sequence[Webhook]:
        await self._writer.webhooks_written()
        prefix = packed(scope_prefix)
        rows = await self._link.query(self._sql.dead_webhooks, (len(prefix), prefix, limit))
        return [_webhook(row) for row in rows]

    async def revive_webhook(self, scope: str, task_id: str, id: str) -> bool:
        await self._writer.webhooks_written()
        key = _key(scope, task_id, id)

        async def revived(attempt: int) -> bool:
            if await self._link.once(lambda link: fetch(link, self._sql.revive_webhook, (key,))):
                return True
            if not attempt:
                return False
            return bool(await self._link.once(lambda link: fetch(link, self._sql.is_alive, (key,))))

        return await self._link.patience.retried(revived)


def _key(scope: str, task_id: str, id_: str) -> bytes:
    return digest(packed(scope), packed(task_id), packed(id_))


def _in_order(rows: Iterable[tuple[Any, ...]]) -> list[Webhook]:
    return sorted(map(_webhook, rows), key=lambda webhook: (webhook.created, webhook.id))


def _webhook(row: tuple[Any, ...]) -> Webhook:
    scope, task, id_, config, version, after, created, owner, failing, failed, dead, reason = row
    return Webhook(
        *(unpacked(scope), unpacked(task), unpacked(id_), config, version, after, created),
        owner=owner or "",
        failing=failing,
        failed=failed,
        dead=dead,
        reason=unpacked(reason),
    )
