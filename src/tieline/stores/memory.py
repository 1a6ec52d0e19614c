"""The store that forgets at exit: everything in dictionaries, ended tasks as bytes only."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, ClassVar

from msgspec.structs import replace

from tieline.event import Event
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
    VersionConflict,
)
from tieline.stores.memory_webhooks import MemoryWebhooks
from tieline.stores.pruning import Tally
from tieline.types import TaskState

__all__ = ["MemoryStore"]

DEFAULT_RETENTION = Retention(
    ttl_s=24 * 3600, max_bytes=512 * 1024 * 1024, messages=Keep(ttl_s=3600, max_bytes=64 * 1024 * 1024)
)

_RECORD_BYTES = 500  # what a record costs beside its snapshot: the struct, its strings, its places in the tables
_OUTCOME_BYTES = 150  # what an outcome costs beside the reply


class MemoryStore(MemoryWebhooks):
    """Tasks in memory.

    The log of an ended task is kept only if someone followed it live, and then for the last `replay_tasks` of those:
    long enough for a reconnect, not as long as the task.

    Outcomes of messages are in two generations: the younger one becomes the older when it is as old, or half as large,
    as an outcome may get, and the older one is forgotten then.
    """

    shared: ClassVar[bool] = False

    def __init__(self, retention: Retention = DEFAULT_RETENTION, *, replay_tasks: int = 1000) -> None:
        super().__init__()
        self.retention = retention
        self._replay_tasks = replay_tasks
        self._scopes: dict[str, dict[str, Record]] = {}  # within a scope in the order of `updated`
        self._logs: dict[tuple[str, str], list[Event]] = {}  # by scope and task id
        self._log_bytes: dict[tuple[str, str], int] = {}  # of ended tasks
        self._ended: dict[TaskState, deque[Record]] = {state: deque() for state in TaskState if state.terminal}
        self._replayable: deque[tuple[str, str]] = deque()
        self._state_bytes = dict.fromkeys(self._ended, 0)
        self._bytes = 0  # of ended tasks
        # Outcomes: the task id, or that, a line feed and the reply, as bytes: the garbage collector passes them over.
        self._young: dict[bytes, str | bytes] = {}
        self._old: dict[bytes, str | bytes] = {}
        self._young_since: int | None = None
        self._young_bytes = 0
        self._forgotten = 0  # outcomes, since the last prune

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
            self._state_bytes[append.state] += size
            self._replayable.append(key)
            if len(self._replayable) > self._replay_tasks:
                self._drop_log(self._replayable.popleft())
        self._ended[append.state].append(record)
        size = len(record.snapshot) + _RECORD_BYTES
        self._bytes += size
        self._state_bytes[append.state] += size
        limit = self.retention.max_bytes
        if limit is not None and self._bytes > limit:
            self._drop_over(limit - limit // 20, Tally())

    async def get(self, scope: str, task_id: str) -> Record | None:
        tasks = self._scopes.get(scope)
        return tasks.get(task_id) if tasks else None

    async def events(
        self, scope: str, task_id: str, after: int, *, limit: int | None = None
    ) -> Sequence[tuple[int, Event]] | None:
        record = await self.get(scope, task_id)
        log = self._logs.get((scope, task_id))
        if record is None or log is None:
            return None
        return list(enumerate(log[after : None if limit is None else after + limit], after + 1))

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
            if query.before is not None and (record.updated, record.task_id) >= query.before:
                continue
            if len(records) < query.limit:
                records.append(record)
            else:
                more = True
                if query.context_id is None and query.state is None and query.since is None:
                    total = len(tasks)
                    break
        return Page(records, total, more)

    async def take(self, scope_prefix: str) -> Sequence[Record]:
        return [
            record
            for scope, tasks in self._scopes.items()
            if scope.startswith(scope_prefix)
            for record in tasks.values()
            if not record.state.terminal and not record.state.interrupted
        ]

    # --- messages -----------------------------------------------------------------------------------------------------

    def hear(self, key: bytes, task_id: str, at: int) -> Outcome | asyncio.Future[Outcome | None] | None:
        found = self._young.get(key) or self._old.get(key)
        if found is not None:
            return _outcome(found)
        self._turn(at)
        self._young[key] = task_id
        self._young_bytes += _OUTCOME_BYTES
        return None

    def replied(self, key: bytes, reply: bytes) -> asyncio.Future[Any] | None:
        generation = self._old if key in self._old else self._young
        found = generation.get(key, "")
        task_id = found.encode() if isinstance(found, str) else found.partition(b"\n")[0]
        generation[key] = task_id + b"\n" + reply
        self._young_bytes += len(reply)
        return None

    def _turn(self, now: int) -> None:
        """Begin another generation of outcomes when it is time."""
        ttl_s, limit = self.retention.messages.ttl_s, self.retention.messages.max_bytes
        if self._young_since is None:
            self._young_since = now
        too_old = ttl_s is not None and now - self._young_since > ttl_s * 1_000_000
        if too_old or (limit is not None and self._young_bytes > limit // 2):
            self._forgotten += len(self._old)
            self._old, self._young = self._young, {}
            self._young_since, self._young_bytes = now, 0

    # --- upkeep -------------------------------------------------------------------------------------------------------

    async def prune(self, now: int, told: Callable[[Pruned], object] | None = None) -> Pruned:
        tally = Tally()
        self._turn(now)
        tally.messages, self._forgotten = self._forgotten, 0
        tally.bytes += tally.messages * _OUTCOME_BYTES
        retention = self.retention
        for state, ended in self._ended.items():
            keep = retention.states.get(state) or Keep(retention.ttl_s)
            before = None if keep.ttl_s is None else now - int(keep.ttl_s * 1_000_000)
            while ended and (
                (before is not None and ended[0].updated < before)
                or (keep.max_bytes is not None and self._state_bytes[state] > keep.max_bytes)
            ):
                self._drop_oldest(state, tally)
        if retention.max_bytes is not None:
            self._drop_over(retention.max_bytes, tally)
        self._prune_logs(now, tally)
        self._prune_webhooks(now, tally)
        pruned = tally.pruned()
        if told is not None:
            told(pruned)
        return pruned

    def _prune_logs(self, now: int, tally: Tally) -> None:
        keep = self.retention.logs
        before = None if keep.ttl_s is None else now - int(keep.ttl_s * 1_000_000)
        size = sum(self._log_bytes.values())
        while self._replayable:
            scope, task_id = self._replayable[0]
            record = self._scopes.get(scope, {}).get(task_id)
            too_old = record is not None and before is not None and record.updated < before
            if record is not None and not too_old and (keep.max_bytes is None or size <= keep.max_bytes):
                break
            self._replayable.popleft()
            freed = self._drop_log((scope, task_id))
            size -= freed
            tally.logs += record is not None
            tally.bytes += freed

    def _drop_over(self, limit: int, tally: Tally) -> None:
        """Drop the oldest ended tasks until what is left has `limit` bytes."""
        while self._bytes > limit:
            heads = [(ended[0].updated, state) for state, ended in self._ended.items() if ended]
            if not heads:
                return
            self._drop_oldest(min(heads, key=lambda head: head[0])[1], tally)

    def _drop_oldest(self, state: TaskState, tally: Tally) -> None:
        """Drop the task that was the first to end so."""
        record = self._ended[state].popleft()
        tasks = self._scopes[record.scope]
        tasks.pop(record.task_id, None)
        if not tasks:
            del self._scopes[record.scope]
        size = len(record.snapshot) + _RECORD_BYTES
        self._bytes -= size
        self._state_bytes[state] -= size
        log_size = self._log_bytes.get((record.scope, record.task_id), 0)
        self._state_bytes[state] -= log_size
        self._drop_log((record.scope, record.task_id))
        if self._webhooks:
            self._forget_webhooks((record.scope, record.task_id))
        tally.task(state, size + log_size)

    def _drop_log(self, key: tuple[str, str]) -> int:
        """Forget the log of an ended task; returns its bytes."""
        self._logs.pop(key, None)
        size = self._log_bytes.pop(key, 0)
        self._bytes -= size
        record = self._scopes.get(key[0], {}).get(key[1])
        if record is not None:
            self._state_bytes[record.state] -= size
        return size

    async def stats(self) -> Stats:
        states: dict[TaskState, int] = {}
        oldest: int | None = None
        living = 0
        for tasks in self._scopes.values():
            for record in tasks.values():
                states[record.state] = states.get(record.state, 0) + 1
                oldest = record.updated if oldest is None else min(oldest, record.updated)
                if not record.state.terminal:
                    living += len(record.snapshot) + _RECORD_BYTES
        outcomes = len(self._young) + len(self._old)
        webhooks, dead = self._count_webhooks()
        return Stats(
            states,
            events=sum(len(log) for log in self._logs.values()),
            messages=outcomes,
            bytes=self._bytes + living + outcomes * _OUTCOME_BYTES,
            oldest=oldest,
            webhooks=webhooks,
            dead_webhooks=dead,
        )

    async def tasks(self) -> AsyncIterator[StoredTask]:
        records = [record for tasks in self._scopes.values() for record in tasks.values()]
        for record in sorted(records, key=lambda record: (record.updated, record.task_id)):
            log = self._logs.get((record.scope, record.task_id)) or []
            yield StoredTask(record, list(enumerate(log, record.version - len(log) + 1)))

    async def put(self, tasks: Sequence[StoredTask]) -> int:
        new = 0
        for task in tasks:
            record = task.record
            there = self._scopes.setdefault(record.scope, {})
            if record.task_id in there:
                continue
            new += 1
            record = replace(record, owner="")
            there[record.task_id] = record
            _keep_order(there, record)
            key = (record.scope, record.task_id)
            if task.events or not record.state.terminal:
                self._logs[key] = [event for _, event in task.events]
            if record.state.terminal:
                size = self._log_bytes[key] = sum(len(event.json) for _, event in task.events)
                self._replayable.append(key)
                size += len(record.snapshot) + _RECORD_BYTES
                self._bytes += size
                self._state_bytes[record.state] += size
                ended = self._ended[record.state]
                ended.append(record)
                if len(ended) > 1 and ended[-2].updated > record.updated:
                    self._ended[record.state] = deque(sorted(ended, key=lambda one: one.updated))
        return new


def _keep_order(tasks: dict[str, Record], record: Record) -> None:
    """Put the last entry where its `updated` belongs: appends may arrive a moment out of order."""
    later = []
    for other in reversed(tasks.values()):
        if other is record:
            continue
        if (other.updated, other.task_id) <= (record.updated, record.task_id):
            break
        later.append(other)
    for other in reversed(later):
        del tasks[other.task_id]
        tasks[other.task_id] = other


def _outcome(found: str | bytes) -> Outcome:
    """What is kept of a message, as `hear` gives it."""
    if isinstance(found, str):
        return Outcome(found)
    task_id, _, reply = found.partition(b"\n")
    return Outcome(task_id.decode(), reply)
