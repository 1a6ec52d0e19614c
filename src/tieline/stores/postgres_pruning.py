"""What a PostgreSQL store drops: some rows at a time, each time in a transaction of its own.

Several replicas may prune at once: rows that one of them holds are passed over by the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from tieline.stores.base import Keep, Pruned, Retention
from tieline.stores.postgres_link import Connection, Link, fetch
from tieline.stores.postgres_schema import Statements
from tieline.stores.pruning import TASKLESS_S, Tally
from tieline.types import TaskState

__all__ = ["Pruning"]

_ROWS: Final = 500  # in one transaction
_EVERY: Final = [state.value for state in TaskState]
_ENDS: Final = [state.value for state in TaskState if state.terminal]
_EVER: Final = (1 << 63) - 1

Row = tuple[Any, ...]


class Pruning:
    """One prune. `told` is called after each transaction."""

    def __init__(self, link: Link, statements: Statements, told: Callable[[Pruned], object] | None) -> None:
        self._link = link
        self._sql = statements
        self._told = told
        self._tally = Tally()

    async def run(self, retention: Retention, now: int) -> Pruned:
        """Drop what the retention does not cover at `now`. Raises StoreError."""
        for end in _ENDS:
            keep = retention.states.get(TaskState(end)) or Keep(retention.ttl_s)
            if keep.ttl_s is not None:
                await self._tasks([end], _before(now, keep.ttl_s), None)
            if keep.max_bytes is not None:
                await self._tasks([end], _EVER, await self._size(self._sql.size_of, [end]) - keep.max_bytes)
        if retention.max_bytes is not None:
            await self._tasks(_ENDS, _EVER, await self._size(self._sql.size_of, _EVERY) - retention.max_bytes)
        logs = retention.logs
        if logs.ttl_s is not None:
            await self._logs(_before(now, logs.ttl_s), None)
        if logs.max_bytes is not None:
            await self._logs(_EVER, await self._size(self._sql.log_size) - logs.max_bytes)
        messages = retention.messages
        if messages.ttl_s is not None:
            await self._messages(_before(now, messages.ttl_s), None)
        if messages.max_bytes is not None:
            await self._messages(_EVER, await self._size(self._sql.messages_size) - messages.max_bytes)
        await self._webhooks(_before(now, TASKLESS_S))
        await self._link.query(self._sql.drop_letters)
        return self._tally.pruned()

    async def _size(self, statement: str, *values: Any) -> int:
        ((size,),) = await self._link.query(statement, values)
        return int(size)

    async def _tasks(self, states: list[str], before: int, enough: int | None) -> None:
        def dropped(row: Row) -> None:
            self._tally.task(TaskState(row[2]), int(row[-1]))

        await self._drop(self._sql.oldest, states, before, self._sql.drop_tasks, enough, dropped)

    async def _logs(self, before: int, enough: int | None) -> None:
        def dropped(row: Row) -> None:
            self._tally.logs += 1
            self._tally.bytes += int(row[-1])

        await self._drop(self._sql.oldest_logs, _ENDS, before, self._sql.drop_logs, enough, dropped)

    async def _messages(self, before: int, enough: int | None) -> None:
        def dropped(row: Row) -> None:
            self._tally.messages += 1
            self._tally.bytes += int(row[-1])

        await self._drop(self._sql.oldest_messages, [], before, self._sql.drop_messages, enough, dropped)

    async def _webhooks(self, before: int) -> None:
        """Drop those whose task was not made; those whose task is there now are looked at no more."""

        async def step(connection: Connection) -> tuple[int, int]:
            async with connection.transaction():
                rows = await fetch(connection, self._sql.oldest_taskless, (before, _ROWS))
                gone = [key for key, there in rows if not there]
                if len(gone) < len(rows):
                    await fetch(connection, self._sql.has_task, ([key for key, there in rows if there],))
                if gone:
                    await fetch(connection, self._sql.drop_taskless, (gone,))
            return len(rows), len(gone)

        looked_at = _ROWS
        while looked_at == _ROWS:
            looked_at, gone = await self._link.use(step)
            self._tally.webhooks += gone
            if gone and self._told is not None:
                self._told(self._tally.pruned())

    async def _drop(
        self,
        oldest: str,
        states: list[str],
        before: int,
        drop: str,
        enough: int | None,
        dropped: Callable[[Row], None],
    ) -> None:
        """Drop the rows of `oldest`, from its key to its size: all of them, or as many as hold `enough` bytes.

        A transaction may have to be done again: `dropped` is told of a row when it is gone for good.
        """
        since = -_EVER

        async def step(connection: Connection) -> list[Row]:
            async with connection.transaction():
                values = {"states": states, "since": since, "before": before, "rows": _ROWS}
                chosen = _first(await fetch(connection, oldest, values), enough)
                if chosen:
                    await fetch(connection, drop, {"keys": [row[0] for row in chosen]})
            return chosen

        while (enough is None or enough > 0) and (rows := await self._link.use(step)):
            for row in rows:
                dropped(row)
            since = rows[-1][1]
            enough = None if enough is None else enough - sum(int(row[-1]) for row in rows)
            if self._told is not None:
                self._told(self._tally.pruned())


def _before(now: int, ttl_s: float) -> int:
    return now - int(ttl_s * 1_000_000)


def _first(rows: Sequence[Row], enough: int | None) -> list[Row]:
    """The first rows, until they hold `enough` bytes; None is all."""
    chosen = []
    for row in rows:
        if enough is not None:
            if enough <= 0:
                break
            enough -= int(row[-1])
        chosen.append(row)
    return chosen
