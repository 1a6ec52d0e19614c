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
from tieline.stores.redis_link import Link, read_url
from tieline.stores.redis_post import Post
from tieline.stores.redis_pruning import Pruning
from tieline.stores.redis_scripts import FIELDS
from tieline.stores.redis_webhooks import RedisWebhooks
from tieline.stores.redis_writer import RedisWriter
from tieline.types import TaskState

__all__ = ["RedisStore"]

DEFAULT_RETENTION: Final = Retention(ttl_s=7 * 24 * 3600)

log = logging.getLogger("tieline.stores")

_SCHEMA_VERSION: Final = 2  # 2 has webhooks beside what 1 has
_U63: Final = (1 << 63) - 1
_PAGE: Final = 200  # tasks that are read, or put, at a time
_PUT_BYTES: Final = 8 * 1024 * 1024
_LOOKS: Final = 5  # at a page that changes while it is read
_EXTRA_S: Final = 3600  # that Redis itself keeps outcomes longer than a prune does


class RedisStore(RedisWebhooks):
    """Tasks in the database of `url`, whose parameter `prefix` (default "tieline") begins all its keys."""

    shared: ClassVar[bool] = True

    def __init__(
        self, url: str, retention: Retention = DEFAULT_RETENTION, *, patience_s: float = 10.0, limit_s: float = 30.0
    ) -> None:
        """Raises ValueError when the URL is none of a Redis, or the prefix is none.

        Args:
            patience_s: How long what breaks off is tried again.
            limit_s: How long one answer may take.
        """
        self.retention = retention
        self.replica = new_id()
        self.url = shown(url)
        self._given_url, self._patience_s, self._limit_s = url, patience_s, limit_s
        address, prefix = read_url(url)
        self._link = Link(address, self.url, prefix, patience_s, limit_s)
        self._writer = RedisWriter(self._link, self.replica)
        self._post = Post(self._link, self.replica, self._writer.all_released)
        self._open = False

    def __repr__(self) -> str:
        return f"<RedisStore {self.url}>"

    def twin(self) -> RedisStore:
        """See SharedStore."""
        twin = RedisStore(self._given_url, self.retention, patience_s=self._patience_s, limit_s=self._limit_s)
        twin.replica = self.replica
        return twin

    # --- life ---------------------------------------------------------------------------------------------------------

    async def migrate(self) -> tuple[int, int]:
        """Make it ready, or bring it to this version's keys; returns the version that they had (0: none), and have."""
        try:
            before = await self._version()
            if before == 1:  # all its keys are there in 2, too
                await self._link.call("HSET", self._link.key("meta"), "version", _SCHEMA_VERSION)
            await self._ready()
        finally:
            if not self._open:
                await self._link.close()
        return before, _SCHEMA_VERSION

    async def _version(self) -> int:
        return int(await self._link.call("HGET", self._link.key("meta"), "version") or 0)

    async def _ready(self) -> None:
        """Check the version, and mark an empty store as ours. Raises StoreError."""
        key = self._link.key("meta")
        version = str((await self._link.call("INFO", "server")).get("redis_version", ""))
        number = version.partition(".")[0]
        if number.isdecimal() and int(number) < 7:
            raise StoreError(f"{self.url} is Redis {version}; version 7 or later is needed.")
        await self._link.call("HSETNX", key, "version", _SCHEMA_VERSION)
        await self._link.call("HSETNX", key, "epoch", os.urandom(8).hex())
        found = await self._version()
        if found != _SCHEMA_VERSION:
            raise StoreError(
                f"{self.url} has keys of version {found}; this version of tieline knows {_SCHEMA_VERSION}."
                + (" Use a newer one." if found > _SCHEMA_VERSION else f" Run: tieline store migrate '{self.url}'")
            )
        self._link.epoch = await self._link.call("HGET", key, "epoch")

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
            settings = await self._link.call("CONFIG GET", "maxmemory-policy", "appendonly", "save")
        except StoreError:
            return  # a server that does not tell
        if settings.get("appendonly") == "no" and not settings.get("save"):
            log.warning("%s keeps nothing on disk: tasks are lost when it ends. Set appendonly yes.", self.url)
        if settings.get("maxmemory-policy", "noeviction") != "noeviction":
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
        return _record(await self._link.call(*self._row(task)))

    def _row(self, task: bytes) -> tuple[Any, ...]:
        return ("HMGET", self._link.key("t:", task), *FIELDS)

    async def events(
        self, scope: str, task_id: str, after: int, *, limit: int | None = None
    ) -> Sequence[tuple[int, Event]] | None:
        await self._writer.written(scope, task_id)
        task = digest(packed(scope), packed(task_id))
        version, entries = await self._reads(
            ("HGET", self._link.key("t:", task), "version"), self._entries(task, after, limit)
        )
        if version is None or (not entries and int(version) > after):
            return None
        return _events(entries, after)

    async def _reads(self, *commands: tuple[Any, ...]) -> Any:
        """Several reads in one round trip."""
        return await self._link.retried(lambda attempt: self._link.all_of(commands))

    def _entries(self, task: bytes, after: int, limit: int | None = None) -> tuple[Any, ...]:
        count = () if limit is None else ("COUNT", limit)
        return ("XRANGE", self._link.key("l:", task), f"{max(0, min(after, _U63 - 1)) + 1}-0", "+", *count)

    async def list(self, query: Query) -> Page:
        scope = packed(query.scope)
        sets = []
        if query.context_id is not None:
            sets.append(b"c:" + digest(scope, packed(query.context_id)))
        if query.state is not None:
            sets.append(b"x:" + digest(scope) + query.state.value.encode())
        if not sets:
            sets.append(b"s:" + digest(scope))
        one, other = (*sets, b"")[:2]
        before = (b"", b"") if query.before is None else (query.before[0], packed(query.before[1]))
        since = b"" if query.since is None else query.since
        looks = 0
        while True:
            total, found = await self._link.run("list", one, other, since, *before, query.limit + 1)
            read = await self._records([digest(scope, task_id) for task_id in found[::2]])
            records = [
                record
                for record, updated in zip(read, found[1::2], strict=True)
                if record is not None
                and record.updated == int(updated)
                and (query.state is None or record.state is query.state)
            ]
            looks += 1
            if len(records) == len(read) or looks == _LOOKS:  # else some have changed since they were found
                return Page(records[: query.limit], int(total), len(found) > 2 * query.limit)

    async def _records(self, tasks: Sequence[bytes]) -> builtins.list[Record | None]:
        return [_record(row) for row in await self._reads(*[self._row(task) for task in tasks])]

    async def take(self, scope_prefix: str) -> Sequence[Record]:
        await self._writer.all_released()
        rows = await self._link.run_marked("take", self.replica, packed(scope_prefix), os.urandom(8))
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
        return bool(await self._link.run_marked("claim_message", key, self.replica, replica, os.urandom(8)))

    # --- replicas -----------------------------------------------------------------------------------------------------

    async def beat(self) -> Mapping[str, int]:
        """See SharedStore."""
        epoch, counts = await self._link.run("beat", self.replica, _SCHEMA_VERSION, os.urandom(8).hex())
        before, self._link.epoch = self._link.epoch, epoch
        if before and epoch != before:
            log.error("%s", self._link.emptied)
            self._link.renewed = True
            self._post.lost()
        return {counts[at].decode(): int(counts[at + 1]) for at in range(0, len(counts), 2)}

    async def bury(self, replica: str, beats: int) -> bool:
        """See SharedStore."""
        return bool(await self._link.run_marked("bury", replica, beats))

    async def claim(self, scope: str, task_id: str, owner: str) -> Record | None:
        """See SharedStore."""
        await self._writer.written(scope, task_id)
        task = digest(packed(scope), packed(task_id))
        row = await self._link.run_marked("claim", task, self.replica, owner, os.urandom(8))
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
        await self._writer.all_written()
        return await Pruning(self._link, told).run(self.retention, now)

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
            webhooks=counts.get("webhooks", 0),
            dead_webhooks=int(await self._link.call("ZCARD", self._link.key("hd"))),
        )

    async def tasks(self) -> AsyncIterator[StoredTask]:
        given: set[bytes] = set()  # what has not ended may change, and would be met again
        last: int | str = "-inf"
        of_last: set[bytes] = set()  # all of that moment that were met
        while True:
            found = await self._link.call(
                *("ZRANGEBYSCORE", self._link.key("u"), last, "+inf", "WITHSCORES"),
                *("LIMIT", 0, _PAGE + len(of_last)),
            )
            new = [(task, int(at)) for task, at in zip(found[::2], found[1::2], strict=True) if task not in of_last]
            if not new:
                return
            for task, updated in new:
                if updated != last:
                    last, of_last = updated, set()
                of_last.add(task)
                if task in given:
                    continue
                row, entries = await self._reads(self._row(task), self._entries(task, 0))
                record = _record(row)
                if record is None:
                    continue
                if not record.state.terminal:
                    given.add(task)
                elif record.updated != updated:
                    given.add(task)  # it has ended since it was found, and stands further on
                yield StoredTask(record, [pair for pair in _events(entries, 0) if pair[0] <= record.version])

    async def put(self, tasks: Sequence[StoredTask]) -> int:
        new, mark = 0, os.urandom(8)
        page: builtins.list[tuple[Any, ...]] = []
        room = _PUT_BYTES
        for task in tasks:
            page.append(_words(task))
            room -= len(page[-1][-1]) + len(task.record.snapshot)
            if room < 0 or len(page) == _PAGE:
                new += await self._put(mark, page)
                page, room = [], _PUT_BYTES
        return new + await self._put(mark, page)

    async def _put(self, mark: bytes, page: Sequence[Sequence[Any]]) -> int:
        return sum(
            await self._link.retried(
                lambda attempt: self._link.run_all(
                    [("put", (self._link.epoch, mark, 1 if attempt else 0, *words)) for words in page]
                )
            )
        )


def _words(task: StoredTask) -> tuple[Any, ...]:
    """A task as the script takes it."""
    record = task.record
    scope, task_id, context = packed(record.scope), packed(record.task_id), packed(record.context_id)
    return (
        *(digest(scope, task_id), digest(scope), digest(scope, context), scope, task_id, context),
        *(record.state.value, record.updated, record.version, record.snapshot, record.snapshot_version),
        task.events[0][0] if task.events else b"",
        b"\n".join([event.json for _, event in task.events]),
    )


def _events(entries: Sequence[Any], after: int) -> builtins.list[tuple[int, Event]]:
    """The events behind `after` in entries of a log."""
    return [
        (number, Event(json=line))
        for _, fields in entries
        for number, line in enumerate(fields[b"b"].split(b"\n"), int(fields[b"f"]))
        if number > after
    ]


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
