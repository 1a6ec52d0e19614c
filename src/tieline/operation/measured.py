"""A store with a stopwatch: what metrics say of it. It stands around the store only where there are metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, TypeVar

from tieline.event import Event
from tieline.operation.metrics import Metrics
from tieline.stores.base import Append, Outcome, Page, Pruned, Query, Record, Retention, Store, VersionConflict

__all__ = ["MeasuredStore"]

T = TypeVar("T")


class MeasuredStore:
    """Hands everything to `inner`; how long that takes, and what fails, is told to `metrics`."""

    def __init__(self, inner: Store, metrics: Metrics) -> None:
        self.inner: Any = inner
        self._metrics = metrics

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def retention(self) -> Retention:
        """The store's own."""
        retention: Retention = self.inner.retention
        return retention

    @retention.setter
    def retention(self, retention: Retention) -> None:
        self.inner.retention = retention

    def append(self, append: Append) -> asyncio.Future[Any] | None:
        began = perf_counter()
        key = (append.scope, append.task_id)
        events, ended = len(append.events), append.state.value if append.state.terminal else None

        def done(error: BaseException | None) -> None:
            failures = getattr(error, "failures", None)
            if failures is not None:  # others of the same transaction failed, perhaps not this one
                error = failures.get(key)
            self._told("append", began, error)
            if error is None:
                self._metrics.stored(events, ended)

        written: asyncio.Future[Any] | None = self._later(lambda: self.inner.append(append), done)
        return written

    def hear(self, key: bytes, task_id: str, at: int) -> Outcome | asyncio.Future[Outcome | None] | None:
        began = perf_counter()
        heard: Outcome | asyncio.Future[Outcome | None] | None
        heard = self._later(lambda: self.inner.hear(key, task_id, at), lambda error: self._told("hear", began, error))
        return heard

    def replied(self, key: bytes, reply: bytes) -> asyncio.Future[Any] | None:
        began = perf_counter()
        kept: asyncio.Future[Any] | None
        kept = self._later(lambda: self.inner.replied(key, reply), lambda error: self._told("replied", began, error))
        return kept

    def post(self, replica: str, letters: Sequence[bytes]) -> asyncio.Future[Any]:
        began = perf_counter()
        posted: asyncio.Future[Any]
        posted = self._later(lambda: self.inner.post(replica, letters), lambda error: self._told("post", began, error))
        return posted

    async def get(self, scope: str, task_id: str) -> Record | None:
        return await self._timed("get", self.inner.get(scope, task_id))

    async def events(
        self, scope: str, task_id: str, after: int, *, limit: int | None = None
    ) -> Sequence[tuple[int, Event]] | None:
        return await self._timed("events", self.inner.events(scope, task_id, after, limit=limit))

    async def list(self, query: Query) -> Page:
        return await self._timed("list", self.inner.list(query))

    async def take(self, scope_prefix: str) -> Sequence[Record]:
        return await self._timed("take", self.inner.take(scope_prefix))

    async def prune(self, now: int, told: Callable[[Pruned], object] | None = None) -> Pruned:
        return await self._timed("prune", self.inner.prune(now, told))

    async def beat(self) -> Mapping[str, int]:
        return await self._timed("beat", self.inner.beat())

    async def claim(self, scope: str, task_id: str, owner: str) -> Record | None:
        return await self._timed("claim", self.inner.claim(scope, task_id, owner))

    async def _timed(self, operation: str, doing: Awaitable[T]) -> T:
        began = perf_counter()
        try:
            done = await doing
        except Exception as error:
            self._told(operation, began, error)
            raise
        self._told(operation, began, None)
        return done

    def _later(self, begin: Callable[[], Any], done: Callable[[BaseException | None], None]) -> Any:
        """What a call gives that is done at once, or when its future is."""
        try:
            begun = begin()
        except Exception as error:
            done(error)
            raise
        if isinstance(begun, asyncio.Future):
            begun.add_done_callback(
                lambda future: done(asyncio.CancelledError() if future.cancelled() else future.exception())
            )
        else:
            done(None)
        return begun

    def _told(self, operation: str, began: float, error: BaseException | None) -> None:
        failed = error is not None and not isinstance(error, VersionConflict)  # that is an answer
        self._metrics.store(operation, perf_counter() - began, failed=failed)
