"""Webhooks of the store that forgets at exit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from tieline.stores.base import Record, Webhook
from tieline.stores.pruning import TASKLESS_S, Tally
from tieline.stores.reach import Reach, further

__all__ = ["MemoryWebhooks"]


class MemoryWebhooks:
    """The part of a MemoryStore that keeps webhooks."""

    _scopes: dict[str, dict[str, Record]]

    def __init__(self) -> None:
        self._webhooks: dict[tuple[str, str], dict[str, Webhook]] = {}  # by scope and task id, then by their own
        self._taskless: set[tuple[str, str]] = set()  # tasks that were not there when they were given a webhook

    async def set_webhook(self, webhook: Webhook, limit: int) -> bool:
        key = webhook.scope, webhook.task_id
        found = self._webhooks.get(key, {})
        if len(found) - (webhook.id in found) >= limit:
            return False
        self._webhooks[key] = found | {webhook.id: replace(webhook, owner="")}
        if webhook.task_id not in self._scopes.get(webhook.scope, {}):
            self._taskless.add(key)
        return True

    async def webhooks(self, scope: str, task_id: str) -> Sequence[Webhook]:
        found = self._webhooks.get((scope, task_id), {})
        return sorted(found.values(), key=lambda webhook: (webhook.created, webhook.id))

    async def drop_webhook(self, scope: str, task_id: str, id: str) -> bool:
        found = self._webhooks.get((scope, task_id), {})
        if id not in found:
            return False
        del found[id]
        if not found:
            self._forget_webhooks((scope, task_id))
        return True

    def _forget_webhooks(self, key: tuple[str, str]) -> int:
        """Drop all of a task; returns how many there were."""
        self._taskless.discard(key)
        return len(self._webhooks.pop(key, {}))

    async def claim_webhooks(self, scope: str, task_id: str) -> Sequence[Webhook]:
        return [webhook for webhook in await self.webhooks(scope, task_id) if webhook.dead is None]

    async def take_webhooks(self, scope_prefix: str, limit: int = 100) -> Sequence[Webhook]:
        taken = []
        for (scope, task_id), found in self._webhooks.items():
            record = self._scopes.get(scope, {}).get(task_id)
            if record is not None and scope.startswith(scope_prefix):
                taken += [one for one in found.values() if one.dead is None and one.after < record.version]
        return taken

    def delivered(self, webhook: Webhook, after: int) -> asyncio.Future[Any] | None:
        self._come(webhook, (after, None))
        return None

    def failing(self, webhook: Webhook, after: int, at: int) -> asyncio.Future[Any] | None:
        self._come(webhook, (after, at))
        return None

    def _come(self, webhook: Webhook, told: Reach) -> None:
        kept = self._kept(webhook)
        if kept is not None:
            after, failing = further((kept.after, kept.failing), told)
            self._webhooks[webhook.scope, webhook.task_id][webhook.id] = replace(kept, after=after, failing=failing)

    def _kept(self, webhook: Webhook) -> Webhook | None:
        """A webhook as it is now; None when it was dropped or replaced."""
        kept = self._webhooks.get((webhook.scope, webhook.task_id), {}).get(webhook.id)
        return kept if kept is not None and kept.created == webhook.created else None

    async def give_up_webhook(self, webhook: Webhook, after: int, failed: int, at: int, reason: str) -> None:
        kept = self._kept(webhook)
        if kept is not None and kept.dead is None:
            after, failing = further((kept.after, kept.failing), (after, None))
            dead = replace(kept, after=after, failing=failing, failed=failed, dead=at, reason=reason)
            self._webhooks[webhook.scope, webhook.task_id][webhook.id] = dead

    async def dead_webhooks(self, scope_prefix: str, limit: int = 1000) -> Sequence[Webhook]:
        dead = [
            (webhook.dead, webhook)
            for (scope, _), found in self._webhooks.items()
            if scope.startswith(scope_prefix)
            for webhook in found.values()
            if webhook.dead is not None
        ]
        return [webhook for _, webhook in sorted(dead, key=lambda one: one[0], reverse=True)[:limit]]

    async def revive_webhook(self, scope: str, task_id: str, id: str) -> bool:
        found = self._webhooks.get((scope, task_id), {})
        if id not in found or found[id].dead is None:
            return False
        found[id] = replace(found[id], failing=None, failed=0, dead=None, reason="")
        return True

    def _prune_webhooks(self, now: int, tally: Tally) -> None:
        """Drop those that have waited too long for their task."""
        for key in list(self._taskless):
            if key[1] in self._scopes.get(key[0], {}):
                self._taskless.discard(key)
                continue
            found = self._webhooks.get(key, {})
            for webhook in list(found.values()):
                if webhook.created < now - TASKLESS_S * 1_000_000:
                    del found[webhook.id]
                    tally.webhooks += 1
            if not found:
                self._forget_webhooks(key)

    def _count_webhooks(self) -> tuple[int, int]:
        """How many there are, and how many of them are dead."""
        every = [webhook for found in self._webhooks.values() for webhook in found.values()]
        return len(every), sum(webhook.dead is not None for webhook in every)
