"""What a store is: for each task a snapshot and a log of numbered events.

A task belongs to a scope (agent, tenant and owner in one string): a task of another scope is not there. The log is the
truth; the snapshot is what the log folds into at `snapshot_version`, written when a task is made, rests and ends, so a
long stream costs no rewrite of the task per chunk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from tieline.event import Event
from tieline.types import TaskState

__all__ = [
    "Append",
    "Page",
    "Pruned",
    "Query",
    "Record",
    "Retention",
    "Store",
    "StoreError",
    "StoreInUse",
    "VersionConflict",
]


class StoreError(Exception):
    """The store could not do what was asked; the sentence says what and what helps. Nothing was changed."""


class StoreInUse(StoreError):
    """Another process owns the store."""


class VersionConflict(StoreError):
    """Another writer has appended since the version that was expected."""


class Append(msgspec.Struct, gc=False):
    """Events to put behind a task's log, with what they make of the task."""

    scope: str
    task_id: str
    context_id: str
    after: int  # number of the last event before these; 0 makes the task
    events: list[Event]
    state: TaskState
    updated: int  # microseconds since 1970 of the last status change; unique and increasing within a store
    snapshot: bytes | None  # the task in canonical JSON behind these events; None keeps the stored one
    streamed: bool  # someone may come back with a Last-Event-ID: a store that drops logs keeps this one longer


class Record(msgspec.Struct, frozen=True, gc=False):
    """A stored task as it was when it was read."""

    scope: str
    task_id: str
    context_id: str
    state: TaskState
    updated: int
    version: int  # number of the last event in the log
    snapshot: bytes
    snapshot_version: int  # the event up to which `snapshot` is folded


class Query(msgspec.Struct, gc=False):
    """Which tasks of a scope to list, the last changed first."""

    scope: str
    limit: int
    context_id: str | None = None
    state: TaskState | None = None
    since: int | None = None  # only tasks with `updated` at or behind this
    before: int | None = None  # cursor: only tasks with `updated` before this


class Page(msgspec.Struct, gc=False):
    """Records of one page, how many match in all (cursor aside), and whether more follow."""

    records: list[Record]
    total: int
    more: bool


class Retention(msgspec.Struct, frozen=True):
    """What a store may keep of ended tasks; a task that has not ended is never dropped."""

    ttl_s: float | None = None  # seconds since the last change; None is for ever
    max_bytes: int | None = None  # bytes of tasks and logs; the oldest ended tasks go first


class Pruned(msgspec.Struct, frozen=True):
    """What a prune has dropped."""

    tasks: int
    bytes: int


class Store(Protocol):
    """Tasks and their logs. All calls come from one event loop.

    Every method may raise StoreError.
    """

    async def open(self) -> int:
        """Make the store ready; returns the highest `updated` in it (0 when empty). Opening twice is allowed."""
        ...

    async def close(self) -> None:
        """Finish what is being written and let go of everything."""
        ...

    def append(self, append: Append) -> asyncio.Future[Any] | None:
        """Begin to append.

        None means it is durable already. Else a future that is done when it is, or holds StoreError (VersionConflict
        when another writer was faster). Appends of one task must be made one after the other.
        """
        ...

    async def get(self, scope: str, task_id: str) -> Record | None:
        """The task, or None when this scope has none of that id."""
        ...

    async def events(self, scope: str, task_id: str, after: int) -> Sequence[tuple[int, Event]] | None:
        """The events behind number `after` with their numbers, in order; None when the log is not kept any more."""
        ...

    async def list(self, query: Query) -> Page:
        """A page of tasks, ordered by `updated`, highest first."""
        ...

    async def unfinished(self, scope_prefix: str) -> Sequence[Record]:
        """All SUBMITTED and WORKING tasks whose scope begins with `scope_prefix`."""
        ...

    async def prune(self, now: int) -> Pruned:
        """Drop ended tasks that the retention does not cover at `now` (microseconds since 1970)."""
        ...
