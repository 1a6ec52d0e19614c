"""What one process knows of an agent's tasks: runs here, logs of other replicas' runs, records in the store."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar, cast

import msgspec

from tieline.engine.agent import Agent
from tieline.engine.clock import Clock
from tieline.engine.content import with_history
from tieline.engine.fold import Fold
from tieline.engine.log import TaskLog
from tieline.engine.observer import EngineObserver
from tieline.engine.remote import Remote
from tieline.engine.replica import Replica
from tieline.engine.resume import past_of, waits_in_the_middle
from tieline.engine.run import Run
from tieline.engine.turn import Caller
from tieline.errors import InvalidParams, PermissionDenied, TaskNotFound, Unavailable
from tieline.event import Event
from tieline.stores.base import Query, Record, SharedStore, Store, StoreError
from tieline.types import Encoded, Message, Task, load

if TYPE_CHECKING:
    from tieline.engine.webhooks import Webhooks

__all__ = ["Limits", "STOPPED", "Tasks"]

log = logging.getLogger("tieline.engine")

T = TypeVar("T")

STOPPED = "The server stopped while this task was at work."
_LOST = "The server lost track of this task when its store failed."

_REFERENCES = 20


class Limits(msgspec.Struct, frozen=True):
    """What one agent may use of its server. None is no limit."""

    run_s: float | None = 24 * 3600  # seconds an agent may work on a message; waiting for the caller does not count
    concurrent_runs: int = 20_000  # agents at work at the same time; those that wait for their caller do not count
    queued_runs: int = 0  # tasks that wait, SUBMITTED, for an agent to finish; further callers are refused
    runs_per_caller: int | None = None  # at work or queued for one caller, whichever tenants it names
    queued_messages: int = 16  # messages that wait for one task whose agent is at work
    cancel_s: float = 10.0  # seconds a cancel waits for the agent to stop; the end of the server waits 2 at most
    lease_s: float = 10.0  # seconds within which other replicas take over the tasks of one that died; 5 at least


class _Reading:
    """A question to the store about a task that has no run."""

    __slots__ = ("stale", "task_id")

    def __init__(self, task_id: str) -> None:
        self.task_id = task_id
        self.stale = False


class Tasks(ABC):
    """An agent's tasks. `namespace` keeps agents apart that share a store."""

    def __init__(self, agent: Agent, store: Store, *, namespace: str = "", limits: Limits | None = None) -> None:
        self.agent = agent
        self.webhooks: Webhooks | None = None  # None: it sends no push notifications
        self.store = store
        self.limits = limits or Limits()
        self.clock = Clock()
        self.runs: dict[tuple[str, str], Run] = {}  # by scope and task id: at work, waiting, or followed
        self.remotes: dict[tuple[str, str], Remote] = {}  # those at work elsewhere that somebody follows here
        self.replica: Replica | None = None  # this process among others that share the store; None: it is the only one
        self.scope_prefix = f"{len(namespace)}:{namespace}/"
        self.observer: EngineObserver | None = None  # who wants to know what agents do
        self.waiting = 0  # how many agents wait for their caller
        self._draining = False  # no new work is taken
        self._anonymous = self.scope_prefix + "0:/"
        self._readings: set[_Reading] = set()
        self._lost: set[tuple[str, str]] = set()  # task id and scope of what a failing store has left at work
        self._seen_to: set[tuple[str, str]] | None = None  # while orphans are taken over: those that callers came for

    # --- what looks after them adds -----------------------------------------------------------------------------------

    @abstractmethod
    def began(self, run: Run) -> None:
        """A run's agent has been put to work."""

    @abstractmethod
    async def admitted(self, run: Run) -> None:
        """Wait until there is room for a queued run's agent."""

    @abstractmethod
    def paused(self, run: Run) -> None:
        """A run's agent waits for its caller, and leaves its place to others."""

    @abstractmethod
    def unpaused(self, run: Run) -> None:
        """It does not wait any more."""

    @abstractmethod
    def ended(self, run: Run) -> None:
        """A run's agent is done."""

    @abstractmethod
    def replied(self, run: Run) -> None:
        """A run's direct Message is kept."""

    @abstractmethod
    def lost(self, run: Run) -> None:
        """A run whose store has failed: its task is ended when the store takes writes again."""

    @abstractmethod
    async def _adopt_one(self, record: Record, task: Task, words: str, *, patient: bool = False) -> None:
        """Start the agent of a stored task that says it is at work again, or end the task: nobody else would ever.

        `patient`: nobody waits for it, so that one which has seen servers die can take its turn.

        Raises InternalError when that cannot be stored.
        """

    @property
    def _me(self) -> str:
        return "" if self.replica is None else self.replica.id

    # --- whose --------------------------------------------------------------------------------------------------------

    def _scope(self, caller: Caller, tenant: str | None) -> str:
        """Whose tasks a caller means. Raises PermissionDenied when it names a tenant that is not its own."""
        name = tenant or caller.tenant
        if caller.tenant and name != caller.tenant:
            raise PermissionDenied(f"You may not call for the tenant {tenant!r}.")
        if not name and not caller.principal:
            return self._anonymous
        return f"{self.scope_prefix}{len(name)}:{name}/{caller.principal}"

    def _caller_of(self, scope: str, extensions: tuple[str, ...]) -> Caller:
        """Who the tasks of a scope belong to, as `_scope` has put it."""
        length, _, behind = scope.removeprefix(self.scope_prefix).partition(":")
        return Caller(principal=behind[int(length) + 1 :], tenant=behind[: int(length)], extensions=extensions)

    # --- what there is of a task --------------------------------------------------------------------------------------

    def _run(self, task_id: str, scope: str) -> Run | None:
        return self.runs.get((scope, task_id))

    @property
    def _hands_on(self) -> bool:
        """Whether what is at work stays so for the next server, or another one: this one is stopping."""
        return self._draining and self.agent.resumable

    def _is_lost(self, record: Record) -> bool:
        """Whether a task without a run says that it is at work here: a failing store or a dead server left it so."""
        return not (record.state.terminal or record.state.interrupted) and record.owner == self._me

    async def _found(self, task_id: str, scope: str) -> Run | Record:
        """A task's run, else its record as it stands now.

        Raises TaskNotFound; InvalidParams for an empty id.
        """
        if not task_id:
            raise InvalidParams.at("id", "must not be empty")
        while True:
            run = self._run(task_id, scope)
            if run is not None and (run.broken is None or self.replica is None):
                return run
            with self._reading(task_id) as reading:
                record = await self._read(self.store.get(scope, task_id))
                if reading.stale or self._run(task_id, scope) is not run:
                    continue
            if run is not None and (record is None or record.owner == self._me):
                return run
            if record is None:
                raise TaskNotFound(task_id)
            return record

    async def _living(self, task_id: str, scope: str) -> Run | Remote | Record:
        """What there is of a task that has not ended: its run, made if need be, or what follows it elsewhere.

        Of one that has ended, its record. A task of this process's that says it is at work but has no run was left so
        by a failing store, or by a server that died: its agent is started again, or it is ended, first.

        Raises TaskNotFound.
        """
        while True:
            found = await self._found(task_id, scope)
            if isinstance(found, Run):
                if not found.closed or found.broken is not None:
                    return found
                record = await self._read(self.store.get(scope, task_id))
                if record is None:
                    raise TaskNotFound(task_id)
                return record
            if found.state.terminal:
                return found
            if self._hands_on and not found.state.interrupted and not await self.is_elsewhere(found):
                raise Unavailable("This server is shutting down.", retry_after_s=5)
            if self._is_lost(found):
                with self._reading(task_id) as reading:
                    task = await self.stored(found)
                    if reading.stale or self._run(task_id, scope) is not None:
                        continue
                if self._seen_to is not None:
                    self._seen_to.add((scope, task_id))
                await self._adopt_one(found, task, _LOST if (task_id, scope) in self._lost else STOPPED)
                continue
            if found.owner != self._me and await self.is_elsewhere(found):
                return await self.following(found)
            if found.owner != self._me:
                claimed = await self._read(cast(SharedStore, self.store).claim(scope, task_id, found.owner))
                if claimed is None or not claimed.state.interrupted:
                    continue  # if it is this replica's now, its server has died a moment ago
                found = claimed
            run = await self._revived(found)
            if run is not None:
                return run

    async def is_elsewhere(self, record: Record) -> bool:
        """Whether another replica that is alive owns a task."""
        return (
            self.replica is not None
            and record.owner not in ("", self._me)
            and await self.replica.is_alive(record.owner)
        )

    async def _revived(self, record: Record) -> Run | None:
        """The run of a task of this process's that waits for its caller; None when it has become another meanwhile."""
        key = (record.scope, record.task_id)
        with self._reading(record.task_id) as reading:
            task = await self.stored(record)
            past = None
            if self.agent.resumable and waits_in_the_middle(task):
                events = await self._read(self.store.events(*key, 0)) or ()
                past = past_of(task, [event for _, event in events])
            if reading.stale or key in self.runs:
                return None
        run = self.runs[key] = Run.revive(self, Caller(), record, task)
        run.interrupted = past
        if self.replica is not None:
            self.replica.announce([key])
        return run

    async def following(self, record: Record) -> Remote:
        """What follows a task that is at work in another replica, up to date."""
        key = (record.scope, record.task_id)
        remote = self.remotes.get(key)
        if remote is None or remote.broken is not None:
            task = await self.stored(record)
            remote = self.remotes.get(key)
            if remote is None or remote.broken is not None:
                assert self.replica is not None
                remote = self.remotes[key] = Remote(self, record, task)
                self.replica.follow(remote)
        return remote

    # --- reading the store --------------------------------------------------------------------------------------------

    async def _read(self, reading: Awaitable[T]) -> T:
        """What a store gives. Raises InternalError when it cannot; the reason is for the log."""
        try:
            return await reading
        except StoreError as error:
            log.error("%s", error)
            raise Unavailable.without_store() from error

    async def stored(self, record: Record) -> Task:
        """A record's snapshot with the events behind it folded in."""
        task = load(record.snapshot, Task)
        if record.version == record.snapshot_version:
            return task
        fold = Fold(task)
        events = await self._read(self.store.events(record.scope, record.task_id, record.snapshot_version))
        for number, event in events or ():
            if number <= record.version:
                fold.apply(event.value)
        return fold.task()

    async def _encoded(self, record: Record) -> Encoded[Task]:
        if record.version == record.snapshot_version:
            return Encoded(Task, json=record.snapshot)
        return Encoded(Task, value=await self._task_of(record))

    async def _task_of(self, record: Record) -> Task:
        """A record's task: of its run where there is one, else its snapshot with the events behind it folded in."""
        run = self._run(record.task_id, record.scope)
        if run is not None and run.published:
            await run.readable()
            return run.task()
        return await self.stored(record)

    async def _missed(self, scope: str, task_id: str, after: int) -> Sequence[tuple[int, Event]] | None:
        return await self._read(self.store.events(scope, task_id, after))

    @contextmanager
    def _reading(self, task_id: str) -> Iterator[_Reading]:
        """Watch a task while the store is asked for it: a run let go meanwhile has written behind the answer."""
        reading = _Reading(task_id)
        self._readings.add(reading)
        try:
            yield reading
        finally:
            self._readings.discard(reading)

    def _shown(self, task: Encoded[Task], history_length: int | None, blobs: bool | None) -> Encoded[Task]:
        """A task as its caller sees it. `blobs`: its history holds long files; None is unknown."""
        if history_length is not None:
            return Encoded(Task, value=with_history(task.value, history_length))
        if blobs or (blobs is None and b'"raw":"' in task.json):
            return Encoded(Task, value=with_history(task.value, None))
        return task

    async def _references(self, scope: str, message: Message) -> tuple[Task, ...]:
        found = []
        for task_id in message.reference_task_ids[:_REFERENCES]:
            record = await self._read(self.store.get(scope, task_id))
            if record is not None:
                found.append(await self._task_of(record))
        return tuple(found)

    async def tasks_of_context(self, scope: str, context_id: str, limit: int) -> tuple[Task, ...]:
        """The tasks of a context within a scope, the last changed first."""
        page = await self._read(self.store.list(Query(scope, limit, context_id=context_id)))
        return tuple([await self._task_of(record) for record in page.records])

    # --- letting go ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _held(self, log: TaskLog) -> Iterator[None]:
        """Keep a log from being let go."""
        log.held += 1
        try:
            yield
        finally:
            log.held -= 1
            self.forget(log)

    def forget(self, log: TaskLog) -> None:
        """Let go of what is known of a task when nobody needs it."""
        if log.cursors or log.held:
            return
        key = (log.scope, log.task_id)
        if type(log) is Remote:  # isinstance of an abstract class takes its time, and every task passes here
            if not log.awaited and self.remotes.get(key) is log:
                del self.remotes[key]
                if self.replica is not None:
                    self.replica.unfollow(log)
        elif log.resting and log.idle and self.runs.get(key) is log:
            del self.runs[key]
            for reading in self._readings:
                if reading.task_id == log.task_id:
                    reading.stale = True
            if self.replica is not None:
                self._release(log)

    def _release(self, run: TaskLog) -> None:
        """This replica is not at work on a task any more that has not ended, and may go on anywhere."""
        assert self.replica is not None
        if run.broken is None and run.published and not run.closed:
            cast(SharedStore, self.store).release(run.scope, run.task_id)
        self.replica.left(run)
