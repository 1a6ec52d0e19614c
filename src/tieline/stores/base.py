"""What a store is: for each task a snapshot and a log of numbered events; who is to be told of them; and what was
answered to which message.

A task belongs to a scope (agent, tenant and owner in one string): a task of another scope is not there. The log is the
truth; the snapshot is what the log folds into at `snapshot_version`, written when a task is made, rests and ends, so a
long stream costs no rewrite of the task per chunk. A webhook is a cursor into the log, too: what is behind it has to be
delivered yet.

A `Store` belongs to one process. A `SharedStore` is used by several, each of them a replica, and keeps besides who is
at work on which task.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import msgspec

from tieline.event import Event
from tieline.types import TaskState

__all__ = [
    "Append",
    "BatchFailed",
    "Keep",
    "Outcome",
    "Page",
    "Position",
    "Pruned",
    "Query",
    "Record",
    "Retention",
    "SharedStore",
    "Stats",
    "Store",
    "StoreError",
    "StoreInUse",
    "StoredTask",
    "VersionConflict",
    "Webhook",
]

Position = tuple[int, str]
"""Where a task stands in the order of lists: its `updated` and its id."""


class StoreError(Exception):
    """The store could not do what was asked; the sentence says what and what helps. Nothing was changed."""


class StoreInUse(StoreError):
    """Another process owns the store."""


class VersionConflict(StoreError):
    """Another writer has appended since the version that was expected, or has taken the task over."""


class BatchFailed(StoreError):
    """Some appends of one transaction could not be written; `failures` holds their errors by scope and task id."""

    def __init__(self, failures: dict[tuple[str, str], StoreError]) -> None:
        super().__init__("; ".join(str(error) for error in failures.values()))
        self.failures = failures


class Append(msgspec.Struct, gc=False):
    """Events to put behind a task's log, with what they make of the task."""

    scope: str
    task_id: str
    context_id: str
    after: int  # number of the last event before these; 0 makes the task
    events: list[Event]
    state: TaskState
    updated: int  # microseconds since 1970 of the last status change; increasing, and unique within a process
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
    owner: str = ""  # the replica that is at work on it; "" is none, or a store of one process


class StoredTask(msgspec.Struct, frozen=True):
    """A whole task, to carry into another store: its record and what is kept of its log."""

    record: Record
    events: Sequence[tuple[int, Event]]


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """What has become of a message that was heard before."""

    task_id: str  # the task that was, or is to be, made of it
    reply: bytes | None = None  # the Message that answered it, as the JSON of an event; None is a task, or nothing yet
    replica: str = ""  # who heard it; "" in a store of one process


class Webhook(msgspec.Struct, frozen=True, gc=False):
    """Where the events of a task are sent to (A2A 1.0 §4.3), and how far that has come.

    `scope`, `task_id`, `id` and `created` say which one it is: another one of the same id has another `created`.
    """

    scope: str
    task_id: str
    id: str  # of the configuration, unique within its task
    config: bytes  # the TaskPushNotificationConfig as canonical JSON; holds credentials: never logged, shown, exported
    version: str  # of A2A, whose payload it gets: "1.0", "0.3", "0.2" or "0.1"
    after: int  # number of the last event of the log that has been delivered, or that was there before it
    created: int  # microseconds since 1970
    owner: str = ""  # the replica that delivers it; "" is nobody, or a store of one process
    failing: int | None = None  # since when what is behind `after` fails, microseconds since 1970; None is not known to
    failed: int = 0  # deliveries that had failed in a row when it was given up, as far as whoever did that has tried
    dead: int | None = None  # when it was given up, microseconds since 1970; None is alive
    reason: str = ""  # why, for people; no secrets

    def __repr__(self) -> str:
        state = "alive" if self.dead is None else f"dead since {self.dead}"
        return f"<Webhook {self.id!r} of task {self.task_id!r}, behind {self.after}, {state}>"


class Query(msgspec.Struct, gc=False):
    """Which tasks of a scope to list, the last changed first; those of one moment by their ids, highest first."""

    scope: str
    limit: int
    context_id: str | None = None
    state: TaskState | None = None
    since: int | None = None  # only tasks with `updated` at or behind this
    before: Position | None = None  # cursor: only tasks that stand behind this one in the list


class Page(msgspec.Struct, gc=False):
    """Records of one page, how many match in all (cursor aside), and whether more follow."""

    records: list[Record]
    total: int
    more: bool


class Keep(msgspec.Struct, frozen=True):
    """How much of one kind of thing is kept. What goes first is the oldest."""

    ttl_s: float | None = None  # seconds since the last change; None is for ever
    max_bytes: int | None = None  # None is no limit


class Retention(msgspec.Struct, frozen=True):
    """What a store may keep; a task that has not ended is never dropped, nor its log."""

    ttl_s: float | None = None  # of ended tasks with their logs: seconds since the last change; None is for ever
    max_bytes: int | None = None  # of tasks and logs together; the oldest ended tasks go first
    states: Mapping[TaskState, Keep] = {}  # ended tasks of one state, with their logs, instead of `ttl_s`
    logs: Keep = Keep()  # logs of ended tasks: without one the task is still read, a stream of it not resumed
    messages: Keep = Keep(24 * 3600, 256 * 1024 * 1024)  # which message had which outcome; 0 s: nobody remembers


class Pruned(msgspec.Struct, frozen=True):
    """What a prune has dropped."""

    tasks: int = 0
    bytes: int = 0  # of all of it
    states: Mapping[TaskState, int] = {}  # the tasks by how they had ended
    logs: int = 0  # those that went before their tasks
    messages: int = 0
    webhooks: int = 0  # those whose task was never made


class Stats(msgspec.Struct, frozen=True):
    """What is in a store."""

    states: Mapping[TaskState, int]  # tasks by state
    events: int  # in the logs that are kept
    messages: int  # whose outcome is remembered
    bytes: int  # of everything, as the store counts it
    oldest: int | None  # `updated` of the task that changed first; None when there is no task
    replicas: int = 1  # processes that use it now; 0 is none
    webhooks: int = 0  # the dead ones too
    dead_webhooks: int = 0  # those that were given up


class Store(Protocol):
    """Tasks and their logs. All calls come from one event loop.

    Every method may raise StoreError.
    """

    shared: ClassVar[bool]  # whether it is a SharedStore
    retention: Retention

    async def open(self) -> int:
        """Make the store ready; returns the highest `updated` in it (0 when empty). Opening twice is allowed."""
        ...

    async def close(self) -> None:
        """Finish what is being written and let go of everything."""
        ...

    # --- tasks --------------------------------------------------------------------------------------------------------

    def append(self, append: Append) -> asyncio.Future[Any] | None:
        """Begin to append.

        None means it is durable already. Else a future that is done when it is, or holds StoreError (VersionConflict
        when another writer was faster). Appends of one task must be made one after the other.
        """
        ...

    async def get(self, scope: str, task_id: str) -> Record | None:
        """The task, or None when this scope has none of that id."""
        ...

    async def events(
        self, scope: str, task_id: str, after: int, *, limit: int | None = None
    ) -> Sequence[tuple[int, Event]] | None:
        """The events behind number `after` with their numbers, in order; None when the log is not kept any more.

        `limit`: the first ones do, about so many, and one at least if there is one; None is all.
        """
        ...

    async def list(self, query: Query) -> Page:
        """A page of tasks, by `updated` and id, highest first."""
        ...

    async def take(self, scope_prefix: str) -> Sequence[Record]:
        """SUBMITTED and WORKING tasks that nobody is at work on, of scopes that begin with `scope_prefix`.

        In a store of one process: all of them; it is asked at the start. In a shared one: those that have no owner, or
        one that is not alive; they are this replica's from now on. It may give some at a time: ask until there is none.
        """
        ...

    # --- messages -----------------------------------------------------------------------------------------------------

    def hear(self, key: bytes, task_id: str, at: int) -> Outcome | asyncio.Future[Outcome | None] | None:
        """Note that the message `key` (16 bytes) has come in at `at`, and that its task will be `task_id`.

        None when it is new. Else what was noted first, which stays. A future holds the one or the other. A store of
        one process need not have it on the disk before the next append or `replied` is.
        """
        ...

    def replied(self, key: bytes, reply: bytes) -> asyncio.Future[Any] | None:
        """Note that the message `key` was answered by the Message `reply`; durable as an append is."""
        ...

    # --- webhooks -----------------------------------------------------------------------------------------------------

    # A webhook goes with its task. Whoever asks finds it as `delivered` and `release_webhook`, called before, have left
    # it.

    async def set_webhook(self, webhook: Webhook, limit: int) -> bool:
        """Keep a webhook, in place of the one of the same id. Durable when this returns.

        The task need not be there yet. A shared store keeps the owner if it is this replica, else it is nobody's.

        Returns:
            False when the task has `limit` others, dead or alive, already; nothing is changed then.
        """
        ...

    async def webhooks(self, scope: str, task_id: str) -> Sequence[Webhook]:
        """All of a task, the dead ones too, the oldest first: by `created` and id."""
        ...

    async def drop_webhook(self, scope: str, task_id: str, id: str) -> bool:
        """Keep a webhook no more. False when there is none of that id."""
        ...

    async def claim_webhooks(self, scope: str, task_id: str) -> Sequence[Webhook]:
        """The living ones of a task that no other living replica delivers, the oldest first.

        They are this replica's from now on, those that were its already among them. In a store of one process: all
        that are alive.
        """
        ...

    async def take_webhooks(self, scope_prefix: str, limit: int = 100) -> Sequence[Webhook]:
        """Living ones, of scopes that begin so, whose task has events behind `after` and that nobody delivers.

        In a store of one process: all of them, whatever `limit` says; it is asked at the start. In a shared one those
        that have no owner, or one that is not alive, at most `limit`: they are this replica's from now on; ask until
        there is none.
        """
        ...

    def delivered(self, webhook: Webhook, after: int) -> asyncio.Future[Any] | None:
        """Note that all up to number `after` has been delivered: whoever delivers it next goes on behind that.

        The number never goes down. Nothing happens when the webhook was dropped or replaced meanwhile. None means it
        is durable already, else a future that is done when it is as durable as an append, or holds StoreError.
        """
        ...

    def failing(self, webhook: Webhook, after: int, at: int) -> asyncio.Future[Any] | None:
        """Note that all up to number `after` has been delivered, and that what is behind it fails since `at`.

        The first one of a streak of failures stays, whoever notes another; the streak ends where the number goes up.
        Nothing happens when more has been delivered already, or the webhook was dropped or replaced meanwhile. What is
        returned is that of `delivered`.

        Args:
            at: When the streak began, in microseconds since 1970.
        """
        ...

    async def give_up_webhook(self, webhook: Webhook, after: int, failed: int, at: int, reason: str) -> None:
        """Make a dead letter of a webhook, nobody's: what is behind `after` was not delivered.

        Nothing happens when it was dropped, replaced or given up meanwhile, or another replica has become its owner.

        Args:
            failed: How many deliveries have failed in a row.
            at: Now, in microseconds since 1970.
            reason: Why, for people; no secrets.
        """
        ...

    async def dead_webhooks(self, scope_prefix: str, limit: int = 1000) -> Sequence[Webhook]:
        """Those that were given up, of scopes that begin so, the last first; at most `limit`."""
        ...

    async def revive_webhook(self, scope: str, task_id: str, id: str) -> bool:
        """Have a dead one alive again, nobody's, behind the event that it had come to, with no failures.

        False when it is not dead.
        """
        ...

    # --- upkeep -------------------------------------------------------------------------------------------------------

    async def prune(self, now: int, told: Callable[[Pruned], object] | None = None) -> Pruned:
        """Drop what the retention does not cover at `now` (microseconds since 1970), and webhooks whose task has not
        been made within a day.

        `told` is called between, with what has been dropped so far.
        """
        ...

    async def stats(self) -> Stats: ...

    def tasks(self) -> AsyncIterator[StoredTask]:
        """All tasks, without their webhooks, the first changed first. Each is given once, as it was or as it is now."""
        ...

    async def put(self, tasks: Sequence[StoredTask]) -> int:
        """Put whole tasks in, without owners; returns how many were not there before. Those that were stay."""
        ...


class SharedStore(Store, Protocol):
    """A store that several processes use at once.

    A replica is alive while it is among those that `beat` returns. A task that has not ended has at most one owner, a
    replica; it becomes that by making the task, by `take` or by `claim`, and is it no more when the task ends or by
    `release`. An append by another one than the owner is a VersionConflict.
    """

    replica: str  # this process in the store; another one with every object

    async def beat(self) -> Mapping[str, int]:
        """Say that this replica is alive; returns, for each that has not been buried, how often it has said so."""
        ...

    async def bury(self, replica: str, beats: int) -> bool:
        """Strike a replica off, if it has not said that it is alive since it had done so `beats` times."""
        ...

    async def claim(self, scope: str, task_id: str, owner: str) -> Record | None:
        """Become the owner of a task that `owner` owns ("" is nobody); None when that is not so (any more)."""
        ...

    async def claim_message(self, key: bytes, replica: str) -> bool:
        """Be the one who heard the message, instead of `replica`; False when another one is that already."""
        ...

    def release(self, scope: str, task_id: str) -> None:
        """Own a task no more. It is done before anything that this process asks of the store afterwards."""
        ...

    def release_webhook(self, webhook: Webhook) -> None:
        """Deliver a webhook no more: it is nobody's, if it was this replica's. It goes behind what was noted by
        `delivered` before, and is done before anything that this process asks of the store afterwards.
        """
        ...

    def twin(self) -> SharedStore:
        """Another object for the same replica, for `beat` in another thread. It is closed, never opened."""
        ...

    def post(self, replica: str, letters: Sequence[bytes]) -> asyncio.Future[Any]:
        """Send letters to a replica; one that is not there loses them. Its reader is told of a gap."""
        ...

    def listen(self, heard: Callable[[bytes], object], gap: Callable[[], object]) -> None:
        """Whom to give the letters for this replica, and whom to tell that some may have been lost.

        To be called before `open`.
        """
        ...
