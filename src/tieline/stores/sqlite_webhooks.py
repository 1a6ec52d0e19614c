"""Webhooks in the SQLite file."""

from __future__ import annotations

import asyncio
import builtins
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final

from tieline.stores.base import Webhook
from tieline.stores.pruning import TASKLESS_S
from tieline.stores.reach import Reach, further

__all__ = ["DROP_OF_TASK", "SQLiteWebhooks"]

DROP_OF_TASK: Final = "DELETE FROM webhooks WHERE (scope, task)=(SELECT scope, id FROM tasks WHERE number=?)"

_COLUMNS = "scope, task, id, config, version, after, created, failing, failed, dead, reason"
_ONE = "scope=? AND task=? AND id=?"
_I64 = (1 << 63) - 1
_FURTHER = "failing=CASE WHEN after<?1 THEN ?2 ELSE coalesce(failing, ?2) END, after=?1"


class SQLiteWebhooks(ABC):
    """The part of a SQLiteStore that keeps webhooks."""

    def __init__(self) -> None:
        # How far each has come, by scope, task, id and `created`: what is not written yet.
        self._cursors: dict[tuple[str, str, str, int], Reach] = {}

    @abstractmethod
    def _commit(self) -> None:
        """Write what this turn of the loop has brought."""

    @abstractmethod
    def _answer(self) -> asyncio.Future[None]:
        """Write at the end of this turn; done when what is no append is written."""

    @abstractmethod
    def _read(self, sql: str, values: Sequence[Any]) -> builtins.list[Any]:
        """Rows. Raises StoreError."""

    @abstractmethod
    def _change(self, *statements: tuple[str, Sequence[tuple[Any, ...]]]) -> int:
        """Run statements in one transaction, each with some rows; how many were changed. Raises StoreError."""

    async def set_webhook(self, webhook: Webhook, limit: int) -> bool:
        self._commit()
        key = webhook.scope, webhook.task_id
        others = "SELECT count(*) FROM webhooks WHERE scope=? AND task=? AND id<>?"
        if self._read(others, (*key, webhook.id))[0][0] >= limit:
            return False
        taskless = not self._read("SELECT 1 FROM tasks WHERE scope=? AND id=?", key)
        values = (
            *(*key, webhook.id, webhook.config, webhook.version, webhook.after, webhook.created),
            *(webhook.failing, webhook.failed, webhook.dead, webhook.reason, taskless),
        )
        self._change(("INSERT OR REPLACE INTO webhooks VALUES(?,?,?,?,?,?,?,?,?,?,?,?)", [values]))
        return True

    async def webhooks(self, scope: str, task_id: str) -> Sequence[Webhook]:
        return self._webhooks("scope=? AND task=? ORDER BY created, id", (scope, task_id))

    def _webhooks(self, where: str, values: Sequence[Any]) -> builtins.list[Webhook]:
        self._commit()
        return [_webhook(row) for row in self._read(f"SELECT {_COLUMNS} FROM webhooks WHERE {where}", values)]

    async def drop_webhook(self, scope: str, task_id: str, id: str) -> bool:
        self._commit()
        return self._change((f"DELETE FROM webhooks WHERE {_ONE}", [(scope, task_id, id)])) > 0

    async def claim_webhooks(self, scope: str, task_id: str) -> Sequence[Webhook]:
        return self._webhooks("scope=? AND task=? AND dead IS NULL ORDER BY created, id", (scope, task_id))

    async def take_webhooks(self, scope_prefix: str, limit: int = 100) -> Sequence[Webhook]:
        undelivered = "after<(SELECT version FROM tasks WHERE tasks.id=webhooks.task AND tasks.scope=webhooks.scope)"
        return self._webhooks(
            f"dead IS NULL AND substr(scope,1,?)=? AND {undelivered}", (len(scope_prefix), scope_prefix)
        )

    def delivered(self, webhook: Webhook, after: int) -> asyncio.Future[Any] | None:
        return self._come(webhook, (min(after, _I64), None))

    def failing(self, webhook: Webhook, after: int, at: int) -> asyncio.Future[Any] | None:
        return self._come(webhook, (min(after, _I64), at))

    def _come(self, webhook: Webhook, told: Reach) -> asyncio.Future[Any]:
        key = webhook.scope, webhook.task_id, webhook.id, webhook.created
        self._cursors[key] = further(self._cursors.get(key), told)
        return self._answer()

    def _write_cursors(self, db: sqlite3.Connection) -> None:
        rows = [(*told, *key) for key, told in self._cursors.items()]
        db.executemany(
            f"UPDATE webhooks SET {_FURTHER} WHERE scope=?3 AND task=?4 AND id=?5 AND created=?6 AND after<=?1", rows
        )

    async def give_up_webhook(self, webhook: Webhook, after: int, failed: int, at: int, reason: str) -> None:
        self._commit()
        key = webhook.scope, webhook.task_id, webhook.id, webhook.created
        self._change(
            (
                "UPDATE webhooks SET failing=CASE WHEN after<?1 THEN NULL ELSE failing END, after=max(after, ?1),"
                " failed=?2, dead=?3, reason=?4"
                " WHERE scope=?5 AND task=?6 AND id=?7 AND created=?8 AND dead IS NULL",
                [(after, failed, at, reason, *key)],
            )
        )

    async def dead_webhooks(self, scope_prefix: str, limit: int = 1000) -> Sequence[Webhook]:
        return self._webhooks(
            "dead IS NOT NULL AND substr(scope,1,?)=? ORDER BY dead DESC LIMIT ?",
            (len(scope_prefix), scope_prefix, limit),
        )

    async def revive_webhook(self, scope: str, task_id: str, id: str) -> bool:
        self._commit()
        alive = f"UPDATE webhooks SET dead=NULL, failing=NULL, failed=0, reason='' WHERE {_ONE} AND dead IS NOT NULL"
        return self._change((alive, [(scope, task_id, id)])) > 0

    def _has_webhooks(self) -> bool:
        return bool(self._read("SELECT 1 FROM webhooks LIMIT 1", ()))

    def _drop_taskless(self, now: int, limit: int) -> tuple[int, int]:
        """Look at some that have waited too long for their task: drop them, or note that it is there now.

        Returns how many were looked at, at most `limit`, and how many of them were dropped.
        """
        there = "EXISTS (SELECT 1 FROM tasks WHERE tasks.id=webhooks.task AND tasks.scope=webhooks.scope)"
        rows = self._read(
            f"SELECT scope, task, id, {there} FROM webhooks WHERE taskless AND created<? ORDER BY created LIMIT ?",
            (now - TASKLESS_S * 1_000_000, limit),
        )
        gone = [row[:3] for row in rows if not row[3]]
        if rows:
            self._change(
                (f"UPDATE webhooks SET taskless=0 WHERE {_ONE}", [row[:3] for row in rows if row[3]]),
                (f"DELETE FROM webhooks WHERE {_ONE}", gone),
            )
        return len(rows), len(gone)

    def _count_webhooks(self) -> tuple[int, int]:
        """How many there are, and how many of them are dead."""
        every, dead = self._read("SELECT count(*), count(dead) FROM webhooks", ())[0]
        return every, dead


def _webhook(row: tuple[Any, ...]) -> Webhook:
    scope, task_id, id_, config, version, after, created, failing, failed, dead, reason = row
    return Webhook(scope, task_id, id_, config, version, after, created, "", failing, failed, dead, reason)
