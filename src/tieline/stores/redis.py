"""Tasks in Redis 7 and later, for one process or many: logs as streams, what has to be one step in Lua.

What is written in one turn of the event loop, and while a write is under way, goes out in one round trip (group.py).
Redis keeps what it is told as well as it is set up to: with `appendonly yes` it survives its own death, up to the last
second with `appendfsync everysec`. Where it is set to forget, that is said at the start.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

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
from tieline.stores.pruning import Tally
from tieline.stores.redis_link import Link, read_url
from tieline.stores.redis_post import Post
from tieline.stores.redis_scripts import FIELDS
from tieline.stores.redis_writer import RedisWriter
from tieline.types import TaskState

__all__ = ["RedisStore"]

DEFAULT_RETENTION: Final = Retention(ttl_s=7 * 24 * 3600)

log = logging.getLogger("tieline.stores")

_SCHEMA_VERSION: Final = 1
_ENDS: Final = [state.value for state in TaskState if state.terminal]
_U63: Final = (1 << 63) - 1
_PRUNE: Final = 300  # in one step
_PAGE: Final = 200
_EXTRA_S: Final = 3600  # that Redis itself keeps outcomes longer than a prune does


class RedisStore:
    """Tasks in the database of `url`, whose parameter `prefix` (default "tieline") begins all its keys."""

    shared: ClassVar[bool] = True

    def __init__(
        self, url: str, retention: Retention = DEFAULT_RETENTION, *, patience_s: float = 10.0, limit_s: float = 30.0
    ) -> None:
        """Raises ValueError when the prefix is none.

        Args:
            patience_s: How long what breaks off is tried again.
            limit_s: How long one answer may take.
        """
        self.retention = retention
        self.replica = new_id()
        self.url = shown(url)
        self._given_url = url
        address, prefix = read_url(url)
        self._link = Link(address, self.url, prefix, patience_s, limit_s)
        self._writer = RedisWriter(self._link, self.replica)
        self._post = Post(self._link, self.replica)
        self._open = False

    def __repr__(self) -> str:
        return f"<RedisStore {self.url}>"

    def twin(self) -> RedisStore:
        """See SharedStore."""
        twin = RedisStore(self._given_url, self.retention)
        twin.replica = self.replica
        return twin

    # --- life ---------------------------------------------------------------------------------------------------------

    async def migrate(self) -> tuple[int, int]:
        """Make it ready; returns the version that its keys had (0: none), and have."""
        before = await self._version()
        await self._ready()
        if not self._open:
            await self._link.close()
        return before, _SCHEMA_VERSION

    async def _version(self) -> int:
        return int(await self._link.call("HGET", self._link.key("meta"), "version") or 0)

    async def _ready(self) -> None:
        """Check the version, and mark an empty store as ours. Raises StoreError."""
        key = self._link.key("meta")
        info = await self._link.call("INFO", "server")
        version = info["redis_version"] if isinstance(info, dict) else "?"
        if str(version).partition(".")[0].isdigit() and int(str(version).partition(".")[0]) < 7:
            raise StoreError(f"{self.url} is Redis {version}; version 7 or later is needed.")
        await self._link.call("HSETNX", key, "version", _SCHEMA_VERSION)
        await self._link.call("HSETNX", key, "epoch", os.urandom(8).hex())
        found = await self._version()
        if found != _SCHEMA_VERSION:
            raise StoreError(
                f"{self.url} has keys of version {found}; this version of tieline knows {_SCHEMA_VERSION}."
                + (" Use a newer one." if found > _SCHEMA_VERSION else f" Run: tieline store migrate '{self.url}'")
            )
        self._writer.epoch = await self._link.call("HGET", key, "epoch")

    async def open(self) -> int:
        if not self._open:
            try:
                await self._ready()
                await self._warn()
            except StoreError:
                await self._link.close()
                raise
            self._post.open()
            self._open = True
        return int(await self._link.call("HGET", self._link.key("n"), "newest") or 0)

    async def _warn(self) -> None:
        """Say it when this Redis may forget what it was told."""
        try:
            policy, appendonly, save = [
                (await self._link.call("CONFIG", "GET", name))[name]
                for name in ("maxmemory-policy", "appendonly", "save")
            ]
        except (StoreError, KeyError, TypeError):
            return  # a server that does not tell
        if appendonly == "no" and not save:
            log.warning("%s keeps nothing on disk: tasks are lost when it ends. Set appendonly yes.", self.url)
        if policy != "noeviction":
            log.warning("%s may drop tasks when it is full. Set maxmemory-policy noeviction.", self.url)

    async def close(self) -> None:
        if not self._open:
            await self._link.close()
            return
        self._open = False
        await self._writer.close()
        await self._post.close()
        with contextlib.suppress(StoreError):  # the others will see that it is gone
            await self._link.call("HDEL", self._link.key("r"), self.replica)
            await self._link.call("DEL", self._link.key("i:", self.replica.encode()))
        await self._link.close()

    # --- tasks --------------------------------------------------------------------------------------------------------

    def append(self, append: Append) -> asyncio.Future[Any] | None:
        return self._writer.append(append)

    async def get(self, scope: str, task_id: str) -> Record | None:
        await self._writer.written(scope, task_id)
        task = digest(packed(scope), packed(task_id))
        return _record(await self._link.call("HMGET", self._link.key("t:", task), *FIELDS))

    async def events(self, scope: str, task_id: str, after: int) -> Sequence[tuple[int, Event]] | None:
        await self._writer.written(scope, task_id)
        task = digest(packed(scope), packed(task_id))
        return await self._events(task, after)

    async def _events(self, task: bytes, after: int) -> builtins.list[tuple[int, Event]]:
        first = max(0, min(after, _U63 - 1)) + 1
        entries = await self._link.call("XRANGE", self._link.key("l:", task), f"{first}-0", "+")
        return [
            (number, Event(json=line))
            for _, fields in entries
            for number, line in enumerate(fields[b"b"].split(b"\n"), int(fields[b"f"]))
            if number > after
        ]

    async def list(self, query: Query) -> Page:
        scope = packed(query.scope)
        if query.context_id is not None:
            key = self._link.key("c:", digest(scope, packed(query.context_id)))
        elif query.state is not None:
            key = self._link.key("x:", digest(scope) + query.state.value.encode())
        else:
            key = self._link.key("s:", digest(scope))
        lowest: int | str = "-inf" if query.since is None else query.since
        filtered = query.context_id is not None and query.state is not None
        total = 0 if filtered else int(await self._link.call("ZCOUNT", key, lowest, "+inf"))
        records: builtins.list[Record] = []
        offset = 0
        highest: int | str = "+inf" if query.before is None or filtered else query.before[0]
        while True:
            ids = await self._link.call("ZREVRANGEBYSCORE", key, highest, lowest, "LIMIT", offset, _PAGE)
            offset += len(ids)
            for record in await self._records(scope, ids):
                if filtered:
                    if record.state is not query.state:
                        continue
                    total += 1
                if query.before is not None and (record.updated, record.task_id) >= query.before:
                    continue
                if len(records) <= query.limit:
                    records.append(record)
            if len(ids) < _PAGE or (len(records) > query.limit and not filtered):
                break
        return Page(records[: query.limit], total, len(records) > query.limit)

    async def _records(self, scope: bytes, ids: Sequence[bytes]) -> builtins.list[Record]:
        async def read(attempt: int) -> Any:
            pipeline = self._link.pipeline()
            for task_id in ids:
                pipeline.hmget(self._link.key("t:", digest(scope, task_id)), FIELDS)
            return await pipeline.execute()

        rows = await self._link.patience.retried(read) if ids else []
        return [record for row in rows if (record := _record(row)) is not None]

    async def take(self, scope_prefix: str) -> Sequence[Record]:
        mark = os.urandom(8)
        rows = await self._link.patience.retried(
            lambda attempt: self._link.run_once("take", self.replica, packed(scope_prefix), mark, 1 if attempt else 0)
        )
        return [record for row in rows if (record := _record(row)) is not None]

    # --- messages -----------------------------------------------------------------------------------------------------

    def hear(self, key: bytes, task_id: str, at: int) -> Outcome | asyncio.Future[Outcome | None] | None:
        ttl_s = self.retention.messages.ttl_s
        self._writer.message_ttl_s = None if ttl_s is None else int(ttl_s) + _EXTRA_S
        return self._writer.hear(key, task_id, at)

    def replied(self, key: bytes, reply: bytes) -> asyncio.Future[Any] | None:
        return self._writer.replied(key, reply)

    async def claim_message(self, key: bytes, replica: str) -> bool:
        """See SharedStore."""
        return bool(await self._link.run("claim_message", key, self.replica, replica))

    # --- replicas -----------------------------------------------------------------------------------------------------

    async def beat(self) -> Mapping[str, int]:
        """See SharedStore."""
        epoch, counts = await self._link.run("beat", self.replica, _SCHEMA_VERSION, os.urandom(8).hex())
        if self._writer.epoch and epoch != self._writer.epoch:
            log.error("%s was emptied while in use: what was kept there is gone", self.url)
        self._writer.epoch = epoch
        return {counts[at].decode(): int(counts[at + 1]) for at in range(0, len(counts), 2)}

    async def bury(self, replica: str, beats: int) -> bool:
        """See SharedStore."""
        return bool(await self._link.run("bury", replica, beats))

    async def claim(self, scope: str, task_id: str, owner: str) -> Record | None:
        """See SharedStore."""
        await self._writer.written(scope, task_id)
        task = digest(packed(scope), packed(task_id))
        row = await self._link.run("claim", task, self.replica, owner)
        return _record(row) if row else None

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
        await self._writer.all_written()
        for state in _ENDS:
            keep = retention.states.get(TaskState(state)) or Keep(retention.ttl_s)
            if keep.ttl_s is not None:
                await self._drop(tally, told, [state], now - int(keep.ttl_s * 1_000_000), None)
            if keep.max_bytes is not None:
                await self._drop(tally, told, [state], None, await self._count(f"bytes:{state}") - keep.max_bytes)
        if retention.max_bytes is not None:
            await self._drop(tally, told, _ENDS, None, await self._count("bytes") - retention.max_bytes)
        logs = retention.logs
        if logs.ttl_s is not None:
            await self._drop_logs(tally, told, now - int(logs.ttl_s * 1_000_000), None)
        if logs.max_bytes is not None:
            await self._drop_logs(tally, told, None, await self._count("logs") - logs.max_bytes)
        await self._drop_messages(tally, told, now)
        return tally.pruned()

    async def _count(self, name: str) -> int:
        return int(await self._link.call("HGET", self._link.key("n"), name) or 0)

    async def _drop(
        self,
        tally: Tally,
        told: Callable[[Pruned], object] | None,
        states: builtins.list[str],
        before: int | None,
        enough: int | None,
    ) -> None:
        """Drop ended tasks, the oldest first: those from before `before`, or as many as hold `enough` bytes."""
        while enough is None or enough > 0:
            dropped = await self._link.run("drop", _number(before), _number(enough), _PRUNE, *states)
            for state, size in dropped:
                tally.task(TaskState(state.decode()), int(size))
                enough = None if enough is None else enough - int(size)
            if told is not None and dropped:
                told(tally.pruned())
            if len(dropped) < _PRUNE:
                return

    async def _drop_logs(
        self, tally: Tally, told: Callable[[Pruned], object] | None, before: int | None, enough: int | None
    ) -> None:
        """Drop logs of ended tasks, as `_drop` does."""
        while enough is None or enough > 0:
            sizes = await self._link.run("drop_logs", _number(before), _number(enough), _PRUNE)
            tally.logs += len(sizes)
            tally.bytes += sum(sizes)
            enough = None if enough is None else enough - sum(sizes)
            if told is not None and sizes:
                told(tally.pruned())
            if len(sizes) < _PRUNE:
                return

    async def _drop_messages(self, tally: Tally, told: Callable[[Pruned], object] | None, now: int) -> None:
        keep = self.retention.messages
        before = -1 if keep.ttl_s is None else now - int(keep.ttl_s * 1_000_000)
        while True:
            over = 0 if keep.max_bytes is None else await self._count("outcomes") - keep.max_bytes
            sizes = await self._link.run("drop_messages", before, over, _PRUNE)
            tally.messages += len(sizes)
            tally.bytes += sum(sizes)
            if told is not None and sizes:
                told(tally.pruned())
            if len(sizes) < _PRUNE:
                return

    async def stats(self) -> Stats:
        counts = {name.decode(): int(n) for name, n in (await self._link.call("HGETALL", self._link.key("n"))).items()}
        states = {
            TaskState(name.removeprefix("tasks:")): count
            for name, count in counts.items()
            if name.startswith("tasks:") and count
        }
        oldest = await self._link.call("ZRANGE", self._link.key("u"), 0, 0)
        updated = None
        if oldest:
            updated = await self._link.call("HGET", self._link.key("t:", oldest[0]), "updated")
        return Stats(
            states,
            events=counts.get("events", 0),
            messages=int(await self._link.call("ZCARD", self._link.key("ms"))),
            bytes=counts.get("bytes", 0) + counts.get("outcomes", 0),
            oldest=None if updated is None else int(updated),
            replicas=int(await self._link.call("HLEN", self._link.key("r"))),
        )

    async def tasks(self) -> AsyncIterator[StoredTask]:
        given: set[bytes] = set()  # one that changes while this goes on would be met again
        lowest: int | str = "-inf"
        while True:
            found = await self._link.call("ZRANGEBYSCORE", self._link.key("u"), lowest, "+inf", "LIMIT", 0, _PAGE)
            offset = _PAGE
            while len(found) == _PAGE and all(task in given for task in found):  # many of one moment
                found = await self._link.call(
                    "ZRANGEBYSCORE", self._link.key("u"), lowest, "+inf", "LIMIT", offset, _PAGE
                )
                offset += _PAGE
            new = [task for task in found if task not in given]
            if not new:
                return
            for task in new:
                given.add(task)
                record = _record(await self._link.call("HMGET", self._link.key("t:", task), *FIELDS))
                if record is None:
                    continue
                lowest = record.updated if lowest == "-inf" else max(int(lowest), min(record.updated, int(lowest)))
                events = await self._events(task, 0)
                yield StoredTask(record, [pair for pair in events if pair[0] <= record.version])
            score = await self._link.call("ZSCORE", self._link.key("u"), new[-1])
            if score is not None:
                lowest = int(score)

    async def put(self, tasks: Sequence[StoredTask]) -> int:
        new = 0
        for task in tasks:
            record = task.record
            scope, task_id, context = packed(record.scope), packed(record.task_id), packed(record.context_id)
            new += await self._link.run(
                "put",
                *(digest(scope, task_id), digest(scope), digest(scope, context), scope, task_id, context),
                *(record.state.value, record.updated, record.version, record.snapshot, record.snapshot_version),
                task.events[0][0] if task.events else b"",
                b"\n".join([event.json for _, event in task.events]),
            )
        return new


def _number(value: int | None) -> int | bytes:
    return b"" if value is None else value


def _record(row: Any) -> Record | None:
    scope, task_id, context, state, updated, version, snapshot, snapshot_version, owner = row
    if scope is None:
        return None
    return Record(
        unpacked(scope),
        unpacked(task_id),
        unpacked(context),
        TaskState(state.decode()),
        int(updated),
        int(version),
        snapshot,
        int(snapshot_version),
        owner.decode(),
    )
