"""A store whose writes and reads are done when the test says so."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.stores.wrapped import WrappedStore
from tieline.stores.base import Append, Record, Store, StoreError

__all__ = ["GatedStore"]


class GatedStore(WrappedStore):
    """Hands appends to `inner` one by one, each when `release` is called; until then nothing of it is stored.

    `reads_wait` makes `get` wait for `let_read` before it looks, `answers_wait` makes it wait when it has looked: as if
    request or answer were long on their way. `refuse_now` is raised by `append` itself.
    """

    def __init__(self, inner: Store | None = None) -> None:
        super().__init__(inner)
        self.held: deque[tuple[Append, asyncio.Future[None]]] = deque()
        self.appends: list[Append] = []  # all that were ever asked for
        self.open_gate = False  # appends go through at once
        self.refuse_now: StoreError | None = None
        self.when_stored: Callable[[Append], None] = lambda append: None
        self.reads_wait = False
        self.answers_wait = False
        self._reads: deque[asyncio.Future[None]] = deque()
        self._arrived: asyncio.Future[None] | None = None

    async def close(self) -> None:
        self.let_go()
        await self.inner.close()

    def let_go(self) -> None:
        """Store all that waits, and all that comes from now on at once."""
        self.open_gate = True
        self.reads_wait = self.answers_wait = False
        while self.held:
            self.release()
        while self._reads:
            self.let_read()

    def append(self, append: Append) -> asyncio.Future[Any] | None:
        self.appends.append(append)
        if self.refuse_now is not None:
            raise self.refuse_now
        if self.open_gate and not self.held:
            self._store(append)
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.held.append((append, future))
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)
        return future

    def release(self) -> Append:
        """Store the append that waits longest, and say that it is durable."""
        append, future = self.held.popleft()
        self._store(append)
        future.set_result(None)
        return append

    def _store(self, append: Append) -> None:
        outcome = self.inner.append(append)
        assert outcome is None, "the inner store is to be one that writes at once"
        self.when_stored(append)

    def fail(self, error: StoreError) -> Append:
        """Refuse the append that waits longest."""
        append, future = self.held.popleft()
        future.set_exception(error)
        return append

    async def asked(self) -> Append:
        """Wait until an append waits; return the one that waits longest."""
        while not self.held:
            self._arrived = asyncio.get_running_loop().create_future()
            await self._arrived
        return self.held[0][0]

    async def pass_through(self) -> None:
        """Release all that waits and all that comes while the loop has anything to do."""
        quiet = 0
        while quiet < 20:
            quiet = 0 if self.held else quiet + 1
            while self.held:
                self.release()
            await asyncio.sleep(0)

    def let_read(self) -> None:
        """Let the read go on that waits longest; one that was cancelled is passed over."""
        while self._reads:
            future = self._reads.popleft()
            if not future.done():
                future.set_result(None)
                return

    @property
    def reading(self) -> int:
        """How many reads wait."""
        return sum(not future.done() for future in self._reads)

    async def get(self, scope: str, task_id: str) -> Record | None:
        if self.reads_wait:
            await self._let()
        record = await self.inner.get(scope, task_id)
        if self.answers_wait:
            await self._let()
        return record

    async def _let(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reads.append(future)
        await future
