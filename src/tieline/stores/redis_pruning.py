"""What a Redis store drops: some hundred things in one step, so that nobody waits long for another's prune."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from tieline.stores.base import Keep, Pruned, Retention
from tieline.stores.pruning import TASKLESS_S, Tally
from tieline.stores.redis_link import Link
from tieline.types import TaskState

__all__ = ["Pruning"]

_ENDS: Final = [state.value for state in TaskState if state.terminal]
_STEP: Final = 300


class Pruning:
    """One prune. `told` is called after each step."""

    def __init__(self, link: Link, told: Callable[[Pruned], object] | None) -> None:
        self._link = link
        self._told = told
        self._tally = Tally()

    async def run(self, retention: Retention, now: int) -> Pruned:
        """Drop what the retention does not cover at `now`. Raises StoreError."""
        for state in _ENDS:
            keep = retention.states.get(TaskState(state)) or Keep(retention.ttl_s)
            async for one in self._dropped("drop", keep, now, f"bytes:{state}", state):
                self._task(one)
        async for one in self._dropped("drop", Keep(None, retention.max_bytes), now, "bytes", *_ENDS):
            self._task(one)
        async for size in self._dropped("drop_logs", retention.logs, now, "logs"):
            self._tally.logs += 1
            self._tally.bytes += size
        async for size in self._dropped("drop_messages", retention.messages, now, "outcomes"):
            self._tally.messages += 1
            self._tally.bytes += size
        async for gone in self._dropped("drop_taskless", Keep(TASKLESS_S), now, ""):
            self._tally.webhooks += gone
        return self._tally.pruned()

    def _task(self, dropped: tuple[bytes, int]) -> None:
        state, size = dropped
        self._tally.task(TaskState(state.decode()), size)

    async def _dropped(self, script: str, keep: Keep, now: int, count: str, *states: str) -> AsyncIterator[Any]:
        """Drop what `keep` does not cover, and give it: what is too old, then what is over the bytes in `count`."""
        limits: list[tuple[Any, ...]] = []
        if keep.ttl_s is not None:
            limits.append((now - int(keep.ttl_s * 1_000_000), b"", b""))
        if keep.max_bytes is not None:
            limits.append((b"", count, keep.max_bytes))
        for limit in limits:
            full = True
            while full:
                dropped = await self._link.run(script, os.urandom(8), *limit, _STEP, *states)
                for one in dropped:
                    yield one
                if self._told is not None and dropped:
                    self._told(self._tally.pruned())
                full = len(dropped) == _STEP
