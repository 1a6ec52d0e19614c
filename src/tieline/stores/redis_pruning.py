"""What a Redis store drops: some hundred things in one step, so that nobody waits long for another's prune."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tieline.stores.base import Keep, Pruned, Retention
from tieline.stores.pruning import Tally
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
            if keep.ttl_s is not None:
                await self._tasks([state], _before(now, keep.ttl_s), None)
            if keep.max_bytes is not None:
                await self._tasks([state], None, await self._count(f"bytes:{state}") - keep.max_bytes)
        if retention.max_bytes is not None:
            await self._tasks(_ENDS, None, await self._count("bytes") - retention.max_bytes)
        logs = retention.logs
        if logs.ttl_s is not None:
            await self._logs(_before(now, logs.ttl_s), None)
        if logs.max_bytes is not None:
            await self._logs(None, await self._count("logs") - logs.max_bytes)
        await self._messages(retention.messages, now)
        return self._tally.pruned()

    async def _count(self, name: str) -> int:
        return int(await self._link.call("HGET", self._link.key("n"), name) or 0)

    async def _tasks(self, states: Sequence[str], before: int | None, enough: int | None) -> None:
        """Drop ended tasks, the oldest first: those from before `before`, or as many as hold `enough` bytes."""
        while enough is None or enough > 0:
            dropped = await self._link.run("drop", _number(before), _number(enough), _STEP, *states)
            for state, size in dropped:
                self._tally.task(TaskState(state.decode()), int(size))
                enough = None if enough is None else enough - int(size)
            if not self._goes_on(len(dropped)):
                return

    async def _logs(self, before: int | None, enough: int | None) -> None:
        """Drop logs of ended tasks, as `_tasks` does."""
        while enough is None or enough > 0:
            sizes = await self._link.run("drop_logs", _number(before), _number(enough), _STEP)
            self._tally.logs += len(sizes)
            self._tally.bytes += sum(sizes)
            enough = None if enough is None else enough - sum(sizes)
            if not self._goes_on(len(sizes)):
                return

    async def _messages(self, keep: Keep, now: int) -> None:
        before = -1 if keep.ttl_s is None else _before(now, keep.ttl_s)
        while True:
            over = 0 if keep.max_bytes is None else await self._count("outcomes") - keep.max_bytes
            sizes = await self._link.run("drop_messages", before, over, _STEP)
            self._tally.messages += len(sizes)
            self._tally.bytes += sum(sizes)
            if not self._goes_on(len(sizes)):
                return

    def _goes_on(self, dropped: int) -> bool:
        """Tell what was dropped; whether there may be more."""
        if self._told is not None and dropped:
            self._told(self._tally.pruned())
        return dropped == _STEP


def _before(now: int, ttl_s: float) -> int:
    return now - int(ttl_s * 1_000_000)


def _number(value: int | None) -> int | bytes:
    return b"" if value is None else value
