"""What happens to tasks without anybody calling: limits, what a server has left at work, and what is too old."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import suppress
from typing import ClassVar, cast
from weakref import WeakKeyDictionary

from tieline.engine.agent import Agent
from tieline.engine.clock import SteadyClock
from tieline.engine.log import TaskLog
from tieline.engine.resume import past_of
from tieline.engine.run import Run
from tieline.engine.tasks import STOPPED, Limits, Tasks
from tieline.engine.turn import Caller
from tieline.errors import InternalError, TaskNotFound
from tieline.stores.base import Record, SharedStore, Store, StoreError, VersionConflict
from tieline.types import Task

__all__ = ["Upkeep"]

log = logging.getLogger("tieline.engine")

_TICK_S = 0.25
_PRUNE_S = 60.0
_LOST_S = 5.0
_RESUMES = 3
_SUSPECT_S = 0.25
_SUSPECTS_MORE = 8


class Upkeep(Tasks):
    """An agent's tasks, with what looks after them."""

    _pruned: ClassVar[WeakKeyDictionary[Store, float]] = WeakKeyDictionary()  # loop time at which a store was, last

    def __init__(self, agent: Agent, store: Store, *, namespace: str = "", limits: Limits | None = None) -> None:
        super().__init__(agent, store, namespace=namespace, limits=limits)
        self._active: dict[Run, str] = {}  # with an agent at work, waiting or queued, by start; and for whom
        self._quiet: dict[Run, None] = {}  # those that have said nothing yet
        self._line: dict[Run, asyncio.Future[None]] = {}  # those that wait for an agent to finish
        self._of_callers: Counter[str] = Counter()  # of those that do not wait, by caller, where they are limited
        self._finding: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None
        self._ready = False
        self._adopting = asyncio.Lock()
        self._suspects: list[tuple[int, str, str]] = []  # tasks that wait to go on: times, scope and id
        self._trying: asyncio.Task[None] | None = None
        self._ticking: asyncio.TimerHandle | None = None
        self._pruning: asyncio.Task[None] | None = None
        self._prune_timer: asyncio.TimerHandle | None = None
        self._age = SteadyClock()

    @property
    def busy(self) -> int:
        """How many agents are at work (waiting ones do not count)."""
        return len(self._active) - self.waiting - len(self._line)

    @property
    def in_line(self) -> int:
        """How many agents wait for others to finish."""
        return len(self._line)

    def _quiet_run(self, task_id: str, scope: str) -> Run | None:
        """The run of a message whose agent has not made a task of it yet."""
        return next((run for run in self._quiet if run.task_id == task_id and run.scope == scope), None)

    # --- what runs tell -----------------------------------------------------------------------------------------------

    def began(self, run: Run) -> None:
        limits = self.limits
        if limits.queued_runs and (self._line or self.busy >= limits.concurrent_runs):
            self._line[run] = run.loop.create_future()
            run.in_line = True
        whose = self._active[run] = "" if limits.runs_per_caller is None else self._whose(run.caller)
        if whose:
            self._count(whose, 1)
        if run.state is None:
            self._quiet[run] = None
        if self._ticking is None:
            self._ticking = run.loop.call_later(_TICK_S, self._tick)

    def ended(self, run: Run) -> None:
        if self.observer is not None:
            self.observer.rests(run)
        whose = self._active.pop(run, None)
        if whose:
            self._count(whose, -1)
        if whose is not None and self._line:
            self._leave_line(run)
            self._call_next()
        if run.answer is run.reply:  # else it is being kept
            self._quiet.pop(run, None)
        self.forget(run)

    async def admitted(self, run: Run) -> None:
        """Wait until there is room for a queued run's agent."""
        place = self._line.get(run)
        try:
            if place is not None:
                await place
        finally:
            self._leave_line(run)

    def _leave_line(self, run: Run) -> None:
        self._line.pop(run, None)
        run.in_line = False

    def _call_next(self) -> None:
        """Let go on who has waited longest, while there is room. A server that stops begins nothing any more."""
        while self._line and self.busy < self.limits.concurrent_runs and not self._draining:
            place = self._line.pop(next(iter(self._line)))  # it counts as at work from here on
            if not place.done():  # else it was cancelled, and is about to end
                place.set_result(None)

    def paused(self, run: Run) -> None:
        self.waiting += 1
        if whose := self._active[run]:
            self._count(whose, -1)
        if self._line:
            self._call_next()

    def unpaused(self, run: Run) -> None:
        self.waiting -= 1
        if whose := self._active[run]:
            self._count(whose, 1)

    def _whose(self, caller: Caller) -> str:
        """By what the runs of a caller are counted: whichever tenant it names, they are its own."""
        return f"{len(caller.tenant)}:{caller.tenant}/{caller.principal}"

    def _count(self, whose: str, change: int) -> None:
        self._of_callers[whose] += change
        if not self._of_callers[whose]:
            del self._of_callers[whose]

    def replied(self, run: Run) -> None:
        self._quiet.pop(run, None)

    def lost(self, run: Run) -> None:
        self._quiet.pop(run, None)  # its answer could not be kept: who sends the message again begins it again
        if run.published:
            self._lost.add((run.task_id, run.scope))
            self._find_later()

    # --- limits -------------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Look after time limits and quiet agents, while any agent is at work."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        after = self.agent.task_after_s
        for run in list(self._quiet):
            if run.state is not None or run.reply is not None:
                del self._quiet[run]
            elif run.answer is not None:
                continue
            elif after is None or now - run.started < after:
                break
            else:
                run.ensure_task()
        for run in list(self._active):
            if run.deadline is not None and now > run.deadline and not run.waiting:
                run.expire()
        self._ticking = loop.call_later(_TICK_S, self._tick) if self._active else None

    # --- what nobody is at work on ------------------------------------------------------------------------------------

    async def adopt(self) -> None:
        """Look after the tasks that nobody is at work on: start their agents again, or end them.

        Raises StoreError.
        """
        async with self._adopting:  # one at a time: each has to know what was seen to while it is at work
            self._seen_to = set()
            try:
                while not self._draining and (records := await self.store.take(self.scope_prefix)):
                    await asyncio.gather(*(self._adopt_taken(record) for record in records))
                    if self.replica is None:
                        break
                    self.replica.announce([(record.scope, record.task_id) for record in records])
            finally:
                self._seen_to = None
        if self.webhooks is not None and not self._draining:
            await self.webhooks.take()
        if self._suspects and self._trying is None:
            await self._try_suspects(1)
            self._trying = asyncio.ensure_future(self._try_more())

    async def _try_suspects(self, count: int) -> None:
        """Start the agents of some tasks again that have seen more than one server die, the least often first.

        One of them may be what brings servers down, and must not take the others with it.
        """
        self._suspects.sort()
        some, self._suspects = self._suspects[:count], self._suspects[count:]
        for _, scope, task_id in some:
            try:
                found = await self._living(task_id, scope)  # which starts it, if nobody has done so meanwhile
                if isinstance(found, TaskLog):
                    self.forget(found)
            except TaskNotFound:
                pass
            except InternalError:
                self._lost.add((task_id, scope))
                self._find_later()

    async def _try_more(self) -> None:
        """Try many more each time that the last ones have done no harm: all are to be at work within the lease."""
        count = 1
        while self._suspects and not self._draining:
            await asyncio.sleep(_SUSPECT_S)
            count *= _SUSPECTS_MORE
            await self._try_suspects(count)
        self._trying = None

    async def _adopt_taken(self, record: Record) -> None:
        try:
            task = await self.stored(record)
            if self._seen_to is not None and (record.scope, record.task_id) in self._seen_to:
                return  # and may have gone on: the record is old
            await self._adopt_one(record, task, STOPPED, patient=True)
        except InternalError as error:
            if self.replica is None:
                words = f"task {record.task_id}, left at work earlier, cannot be ended: {error}"
                raise StoreError(words) from error
            self._lost.add((record.task_id, record.scope))
            self._find_later()

    async def _adopt_one(self, record: Record, task: Task, words: str, *, patient: bool = False) -> None:
        key = (record.scope, record.task_id)
        if self._hands_on:
            if self.replica is not None:
                cast(SharedStore, self.store).release(*key)
            return  # the next server, or another one, goes on with it
        if self.agent.resumable:
            events = await self._read(self.store.events(*key, 0)) or ()
            past = past_of(task, [event for _, event in events])
            if past.times >= _RESUMES:
                words = f"The server stopped {past.times + 1} times while this task was at work."
            elif patient and past.times:
                self._suspects.append((past.times, *key))
                return
            elif key not in self.runs:
                caller = self._caller_of(record.scope, past.extensions)
                run = self.runs[key] = Run.revive(self, caller, record, task)
                log.warning("task %s goes on where its server stopped", record.task_id)
                run.resume(past)
                return
        if key in self.runs:
            return
        run = self.runs[key] = Run.revive(self, Caller(), record, task)
        run.fail(words)
        try:
            await run.written()
        finally:
            self.forget(run)

    async def check_owned(self) -> None:
        """Stop the agents whose tasks another replica has taken over, and the delivery of such webhooks."""
        if self.webhooks is not None:
            await self.webhooks.check_owned()
        for run in list(self.runs.values()):
            if run.published == 0 or run.closed:
                continue
            try:
                if await self._loss_of(run) is None:
                    continue
                # What it has said meanwhile may have ended the task, or let it go: then it is not lost.
                with suppress(InternalError):
                    await run.written()
                if (loss := await self._loss_of(run)) is not None:
                    run.lose(loss)
            except StoreError as error:
                log.error("%s", error)
                return

    async def _loss_of(self, run: Run) -> StoreError | None:
        """Why a task is not this replica's any more; None when it is, or has ended here. Raises StoreError."""
        key = (run.scope, run.task_id)
        record = await self.store.get(*key)
        if run.closed or run.broken is not None or self.runs.get(key) is not run:
            return None
        if record is None:
            return StoreError("it is not in the store any more")
        return None if record.owner == self._me else VersionConflict("another replica has taken it over")

    def _find_later(self) -> None:
        if self._finding is None:
            self._finding = asyncio.get_running_loop().call_later(_LOST_S, self._find_lost)

    def _find_lost(self) -> None:
        self._finding = None
        self._ending = asyncio.ensure_future(self._end_lost())

    async def _end_lost(self) -> None:
        for task_id, scope in list(self._lost):
            try:
                found = await self._living(task_id, scope)
            except TaskNotFound:
                self._lost.discard((task_id, scope))
            except InternalError:
                break  # not yet
            else:
                if isinstance(found, Record) or found.broken is None:
                    self._lost.discard((task_id, scope))
                    if isinstance(found, TaskLog):
                        self.forget(found)
        self._ending = None
        if self._lost:
            self._find_later()

    # --- what is too old ----------------------------------------------------------------------------------------------

    def _prune_later(self) -> None:
        replicas = 1 if self.replica is None else max(1, len(self.replica.alive))  # each in its turn, about
        self._prune_timer = asyncio.get_running_loop().call_later(_PRUNE_S * replicas, self._begin_prune)

    def _begin_prune(self) -> None:
        self._pruning = asyncio.ensure_future(self._prune())

    async def _prune(self) -> None:
        now = asyncio.get_running_loop().time()
        try:
            if now - self._pruned.get(self.store, -_PRUNE_S) < _PRUNE_S * 0.9:
                return  # by the service of another agent that shares it
            self._pruned[self.store] = now
            dropped = await self.store.prune(self._age.now())
            if dropped.bytes:
                log.info(
                    "dropped %d ended tasks, %d logs, %d outcomes of messages, %d bytes in all",
                    *(dropped.tasks, dropped.logs, dropped.messages, dropped.bytes),
                )
        except StoreError as error:
            log.error("ended tasks cannot be dropped: %s", error)
        finally:
            self._pruning = None
            if self._ready:
                self._prune_later()

    async def _stop_upkeep(self) -> None:
        """Stop every timer, and wait for what is under way."""
        for timer in (self._prune_timer, self._ticking, self._finding):
            if timer is not None:
                timer.cancel()
        if self._trying is not None:
            self._trying.cancel()
        for task in (self._pruning, self._ending, self._trying):
            if task is not None:
                await asyncio.wait([task])
