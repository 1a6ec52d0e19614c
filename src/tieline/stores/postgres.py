"""Tasks in PostgreSQL, for one process or many: tables in a schema of their own.

Everything that is written in one turn of the event loop, and while a write is under way, goes out as one statement
(group.py); the rest goes over a few other connections (postgres_link.py). What breaks off is tried again for
`patience_s` seconds, then it is a StoreError.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from psycopg import errors

from tieline.event import Event
from tieline.ids import new_id
from tieline.stores import shown
from tieline.stores.base import (
    Append,
    Keep,
    Outcome,
    Page,
    Pruned,
    Query,
    Record,
    Retention,
    Stats,
    StoredTask,
    StoreError,
)
from tieline.stores.bytekeys import digest, packed, unpacked
from tieline.stores.postgres_link import Connection, Link, fetch, read_url
from tieline.stores.postgres_post import Post
from tieline.stores.postgres_schema import SCHEMA_VERSION, Statements
from tieline.stores.postgres_writer import PostgresWriter
from tieline.stores.pruning import Tally
from tieline.types import TaskState

__all__ = ["PostgresStore"]

DEFAULT_RETENTION: Final = Retention(ttl_s=30 * 24 * 3600)

_ENDS: Final = [state.value for state in TaskState if state.terminal]
_I64: Final = (1 << 63) - 1
_PRUNE_ROWS: Final = 500  # in one transaction
_PAGE_TASKS: Final = 100


class PostgresStore:
    """Tasks in the database of `url`, whose parameter `schema` (default "tieline") names where its tables are.

    The tables are made by `migrate` (`tieline store migrate URL`).
    """

    shared: ClassVar[bool] = True

    def __init__(
        self, url: str, retention: Retention = DEFAULT_RETENTION, *, patience_s: float = 10.0, limit_s: float = 30.0
    ) -> None:
        """Raises ValueError when the schema's name is none.

        Args:
            patience_s: How long what breaks off is tried again.
            limit_s: How long one statement may take.
        """
        self.retention = retention
        self.replica = new_id()
        self.url = shown(url)
        dsn, self._schema = read_url(url)
        self._link = Link(dsn, self.url, patience_s, limit_s)
        self._sql = Statements(self._schema)
        self._writer = PostgresWriter(self._link, self._sql, self.replica)
        self._post = Post(self._link, self._sql, self._schema, self.replica)
        self._open = False

    def __repr__(self) -> str:
        return f"<PostgresStore {self.url}>"

    # --- life ---------------------------------------------------------------------------------------------------------

    async def migrate(self) -> tuple[int, int]:
        """Make the tables, or bring them to this version's schema; returns the version they had (0: none), and have."""
        return await self._link.use(self._migrate)

    async def _migrate(self, connection: Connection) -> tuple[int, int]:
        async with connection.transaction():
            await fetch(connection, "SELECT pg_advisory_xact_lock(hashtext(%b))", (f"tieline {self._schema}",))
            await fetch(connection, self._sql.make_schema, ())
            await fetch(connection, self._sql.make_meta, ())
            ((found,),) = await fetch(connection, self._sql.version, ())
            version = int(found or 0)
            self._check_not_newer(version)
            for number in range(version, SCHEMA_VERSION):
                await connection.execute(self._sql.migrations[number].encode())
                await fetch(connection, self._sql.set_version, (number + 1,))
        return version, SCHEMA_VERSION

    def _check_not_newer(self, version: int) -> None:
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"{self.url} has schema version {version}; this version of tieline knows {SCHEMA_VERSION}."
                " Use a newer one."
            )

    async def open(self) -> int:
        if not self._open:
            self._link.reopen()
            await self._check()
            await self._post.open()
            self._open = True
        ((newest,),) = await self._link.query(self._sql.newest)
        return int(newest)

    async def _check(self) -> None:
        """Raises StoreError when the tables are not those of this version."""
        try:
            ((version,),) = await self._link.query(self._sql.version)
        except StoreError as error:
            if isinstance(error.__cause__, (errors.UndefinedTable, errors.InvalidSchemaName)):
                version = None
            else:
                await self._link.close()
                raise
        if version == SCHEMA_VERSION:
            return
        await self._link.close()
        if version is None:
            raise StoreError(
                f"{self.url} has no tables of tieline in its schema {self._schema!r}."
                f" Make them: tieline store migrate '{self.url}'"
            )
        self._check_not_newer(version)
        raise StoreError(
            f"{self.url} has schema version {version}; this version of tieline needs {SCHEMA_VERSION}."
            f" Bring it up: tieline store migrate '{self.url}'"
        )

    async def close(self) -> None:
        if not self._open:
            await self._link.close()
            return
        self._open = False
        await self._writer.close()
        await self._post.close()
        with contextlib.suppress(StoreError):  # the others will see that it is gone
            await self._link.query(self._sql.leave, (self.replica,))
        await self._link.close()

    # --- tasks --------------------------------------------------------------------------------------------------------

    def append(self, append: Append) -> asyncio.Future[Any] | None:
        return self._writer.append(append)

    async def get(self, scope: str, task_id: str) -> Record | None:
        key = digest(packed(scope), packed(task_id))
        await self._writer.when_released(scope, task_id)
        rows = await self._link.query(self._sql.get, (key,))
        return _record(rows[0]) if rows else None

    async def events(self, scope: str, task_id: str, after: int) -> Sequence[tuple[int, Event]] | None:
        key = digest(packed(scope), packed(task_id))
        rows = await self._link.query(self._sql.events, (key, min(after, _I64)))
        return _events(rows, after)

    async def list(self, query: Query) -> Page:
        scope = packed(query.scope)
        if query.context_id is None:
            where, values = ["scope_key = %b"], [digest(scope)]  # type: builtins.list[str], builtins.list[Any]
        else:
            where, values = ["context_key = %b"], [digest(scope, packed(query.context_id))]
        if query.state is not None:
            where.append("state = %b")
            values.append(query.state.value)
        if query.since is not None:
            where.append("updated >= %b")
            values.append(query.since)
        ((total,),) = await self._link.query(self._sql.count(" AND ".join(where)), values)
        if query.before is not None:
            where.append("(updated, id) < (%b, %b)")
            values += [query.before[0], packed(query.before[1])]
        rows = await self._link.query(self._sql.page(" AND ".join(where)), [*values, query.limit + 1])
        return Page([_record(row) for row in rows[: query.limit]], int(total), len(rows) > query.limit)

    async def take(self, scope_prefix: str) -> Sequence[Record]:
        prefix = packed(scope_prefix)
        values = {"me": self.replica, "mark": os.urandom(8), "length": len(prefix), "prefix": prefix}

        async def taken(attempt: int) -> builtins.list[tuple[Any, ...]]:
            if attempt and (rows := await self._link.query(self._sql.taken, values)):
                return rows  # they were taken, and the answer was lost
            return await self._link.once(lambda connection: fetch(connection, self._sql.take, values))

        return [_record(row) for row in await self._link.patience.retried(taken)]

    # --- messages -----------------------------------------------------------------------------------------------------

    def hear(self, key: bytes, task_id: str, at: int) -> Outcome | asyncio.Future[Outcome | None] | None:
        return self._writer.hear(key, task_id, at)

    def replied(self, key: bytes, reply: bytes) -> asyncio.Future[Any] | None:
        return self._writer.replied(key, reply)

    async def claim_message(self, key: bytes, replica: str) -> bool:
        """See SharedStore."""
        return bool(await self._link.query(self._sql.claim_message, (self.replica, key, replica)))

    # --- replicas -----------------------------------------------------------------------------------------------------

    async def beat(self) -> Mapping[str, int]:
        """See SharedStore."""
        return dict(await self._link.query(self._sql.beat, (self.replica, self.replica)))

    async def bury(self, replica: str, beats: int) -> bool:
        """See SharedStore."""
        return bool(await self._link.query(self._sql.bury, (replica, beats)))

    async def claim(self, scope: str, task_id: str, owner: str) -> Record | None:
        """See SharedStore."""
        key = digest(packed(scope), packed(task_id))
        await self._writer.when_released(scope, task_id)
        rows = await self._link.query(self._sql.claim, (self.replica, key, owner or None))
        return _record(rows[0]) if rows else None

    def release(self, scope: str, task_id: str) -> None:
        """See SharedStore."""
        self._writer.release(scope, task_id)

    def post(self, replica: str, letters: Sequence[bytes]) -> asyncio.Future[Any]:
        """See SharedStore."""
        return self._post.send(replica, letters)

    def listen(self, heard: Callable[[bytes], object], gap: Callable[[], object]) -> None:
        """See SharedStore."""
        self._post.listen(heard, gap)

    # --- upkeep -------------------------------------------------------------------------------------------------------

    async def prune(self, now: int, told: Callable[[Pruned], object] | None = None) -> Pruned:
        retention, tally = self.retention, Tally()
        for state in _ENDS:
            keep = retention.states.get(TaskState(state)) or Keep(retention.ttl_s)
            if keep.ttl_s is not None:
                await self._drop(tally, told, [state], now - int(keep.ttl_s * 1_000_000), None)
            if keep.max_bytes is not None:
                await self._drop(tally, told, [state], _I64, await self._over([state], keep.max_bytes))
        if retention.max_bytes is not None:
            every = [state.value for state in TaskState]
            await self._drop(tally, told, _ENDS, _I64, await self._over(every, retention.max_bytes))
        logs = retention.logs
        if logs.ttl_s is not None:
            await self._drop_logs(tally, told, now - int(logs.ttl_s * 1_000_000), None)
        if logs.max_bytes is not None:
            ((size,),) = await self._link.query(self._sql.log_size)
            await self._drop_logs(tally, told, _I64, int(size) - logs.max_bytes)
        await self._drop_messages(tally, told, now)
        await self._link.query(self._sql.drop_letters)
        return tally.pruned()

    async def _over(self, states: builtins.list[str], limit: int) -> int:
        """By how many bytes the tasks of these states are over a limit."""
        ((size,),) = await self._link.query(self._sql.size_of, (states,))
        return int(size) - limit

    async def _steps(
        self,
        tally: Tally,
        told: Callable[[Pruned], object] | None,
        step: Callable[[Connection], Awaitable[bool]],
    ) -> None:
        """Drop some at a time, each time in a transaction, until there is no more to drop."""

        async def one(connection: Connection) -> bool:
            async with connection.transaction():
                return await step(connection)

        while await self._link.use(one):
            if told is not None:
                told(tally.pruned())

    async def _drop(
        self,
        tally: Tally,
        told: Callable[[Pruned], object] | None,
        states: builtins.list[str],
        before: int,
        enough: int | None,
    ) -> None:
        """Drop ended tasks, the oldest first: those from before `before`, or as many as hold `enough` bytes."""
        left = enough

        async def step(connection: Connection) -> bool:
            nonlocal left
            if left is not None and left <= 0:
                return False
            rows = await fetch(connection, self._sql.oldest, (states, before, _PRUNE_ROWS))
            chosen = []
            for number, state, size in rows:
                if left is not None and left <= 0:
                    break
                chosen.append((number, state, int(size)))
                left = None if left is None else left - int(size)
            if not chosen:
                return False
            await fetch(connection, self._sql.drop_tasks, {"numbers": [number for number, _, _ in chosen]})
            for _, state, size in chosen:
                tally.task(TaskState(state), size)
            return True

        await self._steps(tally, told, step)

    async def _drop_logs(
        self, tally: Tally, told: Callable[[Pruned], object] | None, before: int, enough: int | None
    ) -> None:
        """Drop logs of ended tasks, as `_drop` does."""
        left = enough

        async def step(connection: Connection) -> bool:
            nonlocal left
            if left is not None and left <= 0:
                return False
            numbers = []
            freed = 0
            for number, size in await fetch(connection, self._sql.oldest_logs, (before, _PRUNE_ROWS)):
                if left is not None and left <= 0:
                    break
                numbers.append(number)
                freed += int(size)
                left = None if left is None else left - int(size)
            if not numbers:
                return False
            await fetch(connection, self._sql.drop_logs, (numbers,))
            tally.logs += len(numbers)
            tally.bytes += freed
            return True

        await self._steps(tally, told, step)

    async def _drop_messages(self, tally: Tally, told: Callable[[Pruned], object] | None, now: int) -> None:
        keep = self.retention.messages
        before = -1 if keep.ttl_s is None else now - int(keep.ttl_s * 1_000_000)
        over = 0
        if keep.max_bytes is not None:
            ((size,),) = await self._link.query(self._sql.messages_size)
            over = int(size) - keep.max_bytes

        async def step(connection: Connection) -> bool:
            nonlocal over
            keys = []
            freed = 0
            for key, at, size in await fetch(connection, self._sql.oldest_messages, (_PRUNE_ROWS,)):
                if at >= before and over <= 0:
                    break
                keys.append(key)
                freed += int(size)
                over -= int(size)
            if not keys:
                return False
            await fetch(connection, self._sql.drop_messages, (keys,))
            tally.messages += len(keys)
            tally.bytes += freed
            return True

        await self._steps(tally, told, step)

    async def stats(self) -> Stats:
        states = {TaskState(state): int(count) for state, count in await self._link.query(self._sql.states)}
        ((events, messages, oldest, replicas, size),) = await self._link.query(self._sql.counts)
        return Stats(states, int(events), int(messages), int(size), oldest, int(replicas))

    async def tasks(self) -> AsyncIterator[StoredTask]:
        last = (-1, -1)
        given: set[int] = set()  # one that changes while this goes on would be met again
        while rows := await self._link.query(self._sql.after, (*last, _PAGE_TASKS)):
            for number, *row in rows:
                record = _record(tuple(row))
                last = (record.updated, number)
                if number in given:
                    continue
                given.add(number)
                events = await self.events(record.scope, record.task_id, 0) or []
                yield StoredTask(record, [pair for pair in events if pair[0] <= record.version])

    async def put(self, tasks: Sequence[StoredTask]) -> int:
        async def put(connection: Connection) -> int:
            new = 0
            async with connection.transaction():
                for task in tasks:
                    new += await self._put(connection, task)
            return new

        return await self._link.use(put)

    async def _put(self, connection: Connection, task: StoredTask) -> bool:
        record = task.record
        scope, task_id, context = packed(record.scope), packed(record.task_id), packed(record.context_id)
        keys = digest(scope, task_id), digest(scope), digest(scope, context)
        rows = await fetch(
            connection,
            self._sql.put_task,
            (
                *keys,
                *(scope, task_id, context, record.state.value),
                *(record.updated, record.version, record.snapshot, record.snapshot_version),
            ),
        )
        if rows and task.events:
            body = b"\n".join([event.json for _, event in task.events])
            await fetch(connection, self._sql.put_log, (rows[0][0], task.events[-1][0], task.events[0][0], body))
        return bool(rows)


def _record(row: tuple[Any, ...]) -> Record:
    scope, task_id, context, state, updated, version, snapshot, snapshot_version, owner = row
    return Record(
        unpacked(scope),
        unpacked(task_id),
        unpacked(context),
        TaskState(state),
        updated,
        version,
        snapshot,
        snapshot_version,
        owner or "",
    )


def _events(rows: Sequence[tuple[Any, ...]], after: int) -> builtins.list[tuple[int, Event]]:
    """Rows of the log as events behind `after`."""
    return [
        (number, Event(json=line))
        for first, body in rows
        for number, line in enumerate(body.split(b"\n"), first)
        if number > after
    ]
