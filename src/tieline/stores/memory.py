"""The store that forgets at exit: everything in dictionaries, ended tasks as bytes only."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

from tieline.event import Event
from tieline.stores.base import Append, Page, Pruned, Query, Record, Retention, VersionConflict

__all__ = ["MemoryStore"]

DEFAULT_RETENTION = Retention(ttl_s=24 * 3600, max_bytes=512 * 1024 * 1024)

_RECORD_BYTES = 500  # what a record costs beside its snapshot: the struct, its strings, its places in the tables


class MemoryStore:
    """Tasks in memory.

    The log of an ended task is kept only if someone followed it live, and then for the last `replay_tasks` of those:
    long enough for a reconnect, not as long as the task.
    """

    def __init__(self, retention: Retention = DEFAULT_RETENTION, *, replay_tasks: int = 1000) -> None:
        self.retention = retention
        self._replay_tasks = replay_tasks
        self._scopes: dict[str, dict[str, Record]] = {}  # within a scope in the order of `updated`
        self._logs: dict[tuple[str, str], list[Event]] = {}  # by scope and task id
        self._log_bytes: dict[tuple[str, str], int] = {}  # of ended tasks
        self._ended: deque[Record] = deque()  # in the order in which they ended
        self._replayable: deque[tuple[str, str]] = deque()
        self._bytes = 0  # of ended tasks

    async def open(self) -> int:
        newest = 0
        for tasks in self._scopes.values():
            for record in reversed(tasks.values()):
                newest = max(newest, record.updated)
                break
        return newest

    async def close(self) -> None:
        """Nothing to let go of: the tasks live as long as this object."""

    def append(self, append: Append) -> asyncio.Future[Any] | None:
        tasks = self._scopes.get(append.scope)
        if tasks is None:
            tasks = self._scopes[append.scope] = {}
        old = tasks.get(append.task_id)
        found = 0 if old is None else old.version
        if found != append.after:
            raise VersionConflict(f"task {append.task_id} is at {found}, not at {append.after}")
        version = append.after + len(append.events)
        snapshot, snapshot_version = append.snapshot, version
        if snapshot is None:
            assert old is not None
            snapshot, snapshot_version = old.snapshot, old.snapshot_version
        record = Record(
            append.scope,
            append.task_id,
            append.context_id,
            append.state,
            append.updated,
            version,
            snapshot,
            snapshot_version,
        )
        if old is None or old.updated != append.updated:
            tasks.pop(append.task_id, None)
            tasks[append.task_id] = record
            _keep_order(tasks, record)
        else:
            tasks[append.task_id] = record
        if append.state.terminal:
            self._end(record, append)
        else:
            log = self._logs.get((append.scope, append.task_id))
            if log is None:
                self._logs[append.scope, append.task_id] = list(append.events)
            else:
                log.extend(append.events)
        return None

    def _end(self, record: Record, append: Append) -> None:
        key = (append.scope, append.task_id)
        log = self._logs.pop(key, None)
        if append.streamed:
            events = append.events if log is None else log + append.events
            self._logs[key] = events
            size = self._log_bytes[key] = sum([len(event.json) for event in events])
            self._bytes += size
            self._replayable.append(key)
            if len(self._replayable) > self._replay_tasks:
                self._drop_log(self._replayable.popleft())
        self._ended.append(record)
        self._bytes += len(record.snapshot) + _RECORD_BYTES
        limit = self.retention.max_bytes
        if limit is not None and self._bytes > limit:
            self._drop_oldest(limit - limit // 20, None)

    async def get(self, scope: str, task_id: str) -> Record | None:
        tasks = self._scopes.get(scope)
        return tasks.get(task_id) if tasks else None

    async def events(self, scope: str, task_id: str, after: int) -> Sequence[tuple[int, Event]] | None:
        record = await self.get(scope, task_id)
        log = self._logs.get((scope, task_id))
        if record is None or log is None:
            return None
        return list(enumerate(log[after:], after + 1))

    async def list(self, query: Query) -> Page:
        tasks = self._scopes.get(query.scope, {})
        records: list[Record] = []
        total = 0
        more = False
        for record in reversed(tasks.values()):
            if query.since is not None and record.updated < query.since:
                break
            if query.context_id is not None and record.context_id != query.context_id:
                continue
            if query.state is not None and record.state is not query.state:
                continue
            total += 1
            if query.before is not None and record.updated >= query.before:
                continue
            if len(records) < query.limit:
                records.append(record)
            else:
                more = True
                if query.context_id is None and query.state is None and query.since is None:
                    total = len(tasks)
                    break
        return Page(records, total, more)

    async def unfinished(self, scope_prefix: str) -> Sequence[Record]:
        return [
            record
            for scope, tasks in self._scopes.items()
            if scope.startswith(scope_prefix)
            for record in tasks.values()
            if not record.state.terminal and not record.state.interrupted
        ]

    async def prune(self, now: int) -> Pruned:
        ttl, limit = self.retention.ttl_s, self.retention.max_bytes
        return self._drop_oldest(limit, None if ttl is None else now - int(ttl * 1_000_000))

    def _drop_oldest(self, limit: int | None, before: int | None) -> Pruned:
        tasks = freed = 0
        while self._ended:
            record = self._ended[0]
            too_many = limit is not None and self._bytes > limit
            too_old = before is not None and record.updated < before
            if not (too_many or too_old):
                break
            self._ended.popleft()
            self._scopes[record.scope].pop(record.task_id, None)
            if not self._scopes[record.scope]:
                del self._scopes[record.scope]
            size = len(record.snapshot) + _RECORD_BYTES
            self._bytes -= size
            size += self._drop_log((record.scope, record.task_id))
            freed += size
            tasks += 1
        return Pruned(tasks, freed)

    def _drop_log(self, key: tuple[str, str]) -> int:
        """Forget the log of an ended task; returns its bytes."""
        self._logs.pop(key, None)
        size = self._log_bytes.pop(key, 0)
        self._bytes -= size
        return size


def _keep_order(tasks: dict[str, Record], record: Record) -> None:
    """Put the last entry where its `updated` belongs: appends may arrive a moment out of order."""
    later = []
    for other in reversed(tasks.values()):
        if other is record:
            continue
        if other.updated <= record.updated:
            break
        later.append(other)
    for other in reversed(later):
        del tasks[other.task_id]
        tasks[other.task_id] = other
