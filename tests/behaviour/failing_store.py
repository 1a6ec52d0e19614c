"""A store that fails, or takes its time, when its test says so: a full disk, a lost connection, a slow one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Literal

from tests.stores.wrapped import WrappedStore
from tieline.event import Event
from tieline.stores.base import Append, Page, Query, Record, StoreError, Webhook

__all__ = ["FailingStore"]

How = Literal["at-once", "later"]


class FailingStore(WrappedStore):
    """A memory store around which operations fail.

    `fails_append` decides which appends fail: by an exception (`how="at-once"`), as a store that keeps all in the
    process does, or by the future that they return (`"later"`), as one that writes to a disk does. With `reading_fails`
    set, everything that reads fails. With `holds` set, a store that writes later does so only when `release` is called.
    """

    def __init__(self, how: How = "at-once") -> None:
        super().__init__()
        self._how = how
        self.fails_append: Callable[[Append], bool] = lambda append: False
        self.reading_fails = False
        self.failures = 0
        self.holds = False
        self.held: list[Callable[[], None]] = []

    def append(self, append: Append) -> asyncio.Future[Any] | None:
        fails = self.fails_append(append)
        self.failures += fails
        if self._how == "at-once":
            if fails:
                raise StoreError("the disk is full: secret path")
            return self.inner.append(append)
        loop = asyncio.get_running_loop()
        written = loop.create_future()
        if self.holds:
            self.held.append(lambda: self._write(append, written, fails))
        else:
            loop.call_soon(self._write, append, written, fails)
        return written

    def release(self) -> None:
        """Write what was held back, and hold nothing any more."""
        self.holds = False
        held, self.held = self.held, []
        for write in held:
            write()

    def _write(self, append: Append, written: asyncio.Future[Any], fails: bool) -> None:
        if fails:
            written.set_exception(StoreError("the disk is full: secret path"))
        else:
            self.inner.append(append)
            written.set_result(None)

    def _check_reading(self) -> None:
        if self.reading_fails:
            self.failures += 1
            raise StoreError("the disk is gone: secret path")

    async def get(self, scope: str, task_id: str) -> Record | None:
        self._check_reading()
        return await self.inner.get(scope, task_id)

    async def events(
        self, scope: str, task_id: str, after: int, *, limit: int | None = None
    ) -> Sequence[tuple[int, Event]] | None:
        self._check_reading()
        return await self.inner.events(scope, task_id, after, limit=limit)

    async def list(self, query: Query) -> Page:
        self._check_reading()
        return await self.inner.list(query)

    async def take(self, scope_prefix: str) -> Sequence[Record]:
        self._check_reading()
        return await self.inner.take(scope_prefix)

    async def webhooks(self, scope: str, task_id: str) -> Sequence[Webhook]:
        self._check_reading()
        return await self.inner.webhooks(scope, task_id)

    async def claim_webhooks(self, scope: str, task_id: str) -> Sequence[Webhook]:
        self._check_reading()
        return await self.inner.claim_webhooks(scope, task_id)

    async def take_webhooks(self, scope_prefix: str, limit: int = 100) -> Sequence[Webhook]:
        self._check_reading()
        return await self.inner.take_webhooks(scope_prefix, limit)

    async def dead_webhooks(self, scope_prefix: str, limit: int = 1000) -> Sequence[Webhook]:
        self._check_reading()
        return await self.inner.dead_webhooks(scope_prefix, limit)
