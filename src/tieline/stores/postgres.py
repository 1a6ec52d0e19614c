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
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

from tieline.event import Event
from tieline.ids import new_id
from tieline.stores import shown
from tieline.stores.base import (
    Append,
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
from tieline.stores.postgres_link import Connection, Link, fetch, names_nothing, read_url
from tieline.stores.postgres_post import Post
from tieline.stores.postgres_pruning import Pruning
from tieline.stores.postgres_schema import SCHEMA_VERSION, Statements
from tieline.stores.postgres_webhooks import PostgresWebhooks
from tieline.stores.postgres_writer import PostgresWriter
from tieline.types import TaskState

__all__ = ["PostgresStore"]

DEFAULT_RETENTION: Final = Retention(ttl_s=30 * 24 * 3600)

_ALL: Final = 2**63 - 1
_PAGE_TASKS: Final = 50
_PAGE_NUMBERS: Final = 10_000  # each page of them looks at all tasks


class PostgresStore(PostgresWebhooks):
    """Tasks in the database of `url`, whose parameter `schema` (default "tieline") names where its tables are.

    The tables are made by `migrate` (`tieline store migrate URL`).
    """

    shared: ClassVar[bool] = True

    def __init__(
        self, url: str, retention: Retention = DEFAULT_RETENTION, *, patience_s: float = 10.0, limit_s: float = 30.0
    ) -> None:
        """Raises ValueError when the URL, or the schema's name, is none.

        Args:
            patience_s: How long what breaks off is tried again.
            limit_s: How long one statement may take.
        """
        self.retention = retention
        self.replica = new_id()
        self.url = shown(url)
        self._given_url, self._patience_s, self._limit_s = url, patience_s, limit_s
        options, self._schema = read_url(url, self.url)
        self._link = Link(options, self.url, patience_s, limit_s)
        self._sql = Statements(self._schema)
        self._writer = PostgresWriter(self._link, self._sql, self.replica)
        self._post = Post(self._link, self._sql, self._schema, self.replica, self._writer.all_released)
        self._open = False

    def __repr__(self) -> str:
        return f"<PostgresStore {self.url}>"

    def twin(self) -> PostgresStore:
        """See SharedStore."""
        twin = PostgresStore(self._given_url, self.retention, patience_s=self._patience_s, limit_s=self._limit_s)
        twin.replica = self.replica
        return twin

    # --- life ---------------------------------------------------------------------------------------------------------

    async def migrate(self) -> tuple[int, int]:
        """Make the tables, or bring them to this version's schema; returns the version they had (0: none), and have."""
        return await self._link.use(self._migrate)

    async def _migrate(self, connection: Connection) -> tuple[int, int]:
        async with connection.transaction():
            await fetch(connection, "SELECT pg_advisory_xact_lock(hashtext(%b))", (f"tieline {self._schema}",))
            ((there,),) = await fetch(connection, self._sql.has_schema, ())
            if not there:  # else no right to make one is needed
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
            if names_nothing(error.__cause__):
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
        await self._writer.written(scope, task_id)
        rows = await self._link.query(self._sql.get, (key,))
        return _record(rows[0]) if rows else None

    async def events(
        self, scope: str, task_id: str, after: int, *, limit: int | None = None
    ) -> Sequence[tuple[int, Event]] | None:
        key = digest(packed(scope), packed(task_id))
        await self._writer.written(scope, task_id)
        rows = await self._link.query(self._sql.events, (after, key, _ALL if limit is None else limit))
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
        await self._writer.all_released()
        prefix = packed(scope_prefix)
        values = {"length": len(prefix), "prefix": prefix}
        return [_record(row) for row in await self._owned(self._sql.take, self._sql.taken, values)]

    async def _owned(self, statement: str, owned: str, values: dict[str, Any]) -> builtins.list[tuple[Any, ...]]:
        """Become the owner of what `statement` finds; with a lost answer, `owned` finds what it was by the mark."""
        values |= {"me": self.replica, "mark": os.urandom(8)}

        async def once(attempt: int) -> builtins.list[tuple[Any, ...]]:
            if attempt and (rows := await self._link.once(lambda link: fetch(link, owned, values))):
                return rows
            return await self._link.once(lambda link: fetch(link, statement, values))

        return await self._link.patience.retried(once)

    # --- messages -----------------------------------------------------------------------------------------------------

    def hear(self, key: bytes, task_id: str, at: int) -> Outcome | asyncio.Future[Outcome | None] | None:
        return self._writer.hear(key, task_id, at)

    def replied(self, key: bytes, reply: bytes) -> asyncio.Future[Any] | None:
        return self._writer.replied(key, reply)

    async def claim_message(self, key: bytes, replica: str) -> bool:
        """See SharedStore."""

        async def claimed(attempt: int) -> bool:
            before = (
                [replica, self.replica] if attempt else [replica]
            )  # that it was done before may not have been heard
            values = (self.replica, key, before)
            return bool(await self._link.once(lambda link: fetch(link, self._sql.claim_message, values)))

        return await self._link.patience.retried(claimed)

    # --- replicas -----------------------------------------------------------------------------------------------------

    async def beat(self) -> Mapping[str, int]:
        """See SharedStore."""
        return dict(await self._link.query(self._sql.beat, (self.replica, self.replica)))

    async def bury(self, replica: str, beats: int) -> bool:
        """See SharedStore."""
        return bool(await self._link.query(self._sql.bury, (replica, beats)))

    async def claim(self, scope: str, task_id: str, owner: str) -> Record | None:
        """See SharedStore."""
        await self._writer.written(scope, task_id)
        key = digest(packed(scope), packed(task_id))
        rows = await self._owned(self._sql.claim, self._sql.claimed, {"key": key, "owner": owner or None})
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
        await self._writer.all_written()
        return await Pruning(self._link, self._sql, told).run(self.retention, now)

    async def stats(self) -> Stats:
        states = {TaskState(state): int(count) for state, count in await self._link.query(self._sql.states)}
        ((events, messages, oldest, replicas, webhooks, dead, size),) = await self._link.query(self._sql.counts)
        return Stats(states, int(events), int(messages), int(size), oldest, int(replicas), int(webhooks), int(dead))

    async def tasks(self) -> AsyncIterator[StoredTask]:
        last = (-1, -1)
        given: set[int] = set()  # one that changes while this goes on would be met again
        while found := await self._link.query(self._sql.numbers, (*last, _PAGE_NUMBERS)):
            last = found[-1]
            numbers = [number for _, number in found if number not in given]
            given.update(numbers)
            for at in range(0, len(numbers), _PAGE_TASKS):
                page = numbers[at : at + _PAGE_TASKS]
                rows = {row[0]: row[1:] for row in await self._link.query(self._sql.numbered, (page,))}
                logs: dict[int, builtins.list[tuple[int, Event]]] = {}
                for number, first, body in await self._link.query(self._sql.logs, (page,)):
                    logs.setdefault(number, []).extend(_lines(first, body))
                for number in page:
                    if number in rows:  # not dropped meanwhile
                        record = _record(rows[number])  # which was read before its log
                        yield StoredTask(record, [one for one in logs.pop(number, ()) if one[0] <= record.version])

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


def _events(rows: Sequence[tuple[Any, ...]], after: int) -> builtins.list[tuple[int, Event]] | None:
    """Rows of the log, each with the task's version, as events behind `after`."""
    if not rows or (rows[0][1] is None and rows[0][0] > after):
        return None
    return [one for _, first, body in rows if first is not None for one in _lines(first, body) if one[0] > after]


def _lines(first: int, body: bytes) -> Iterable[tuple[int, Event]]:
    """One row of the log as events."""
    return ((number, Event(json=line)) for number, line in enumerate(body.split(b"\n"), first))
