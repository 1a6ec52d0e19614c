"""What happens to tasks without anybody calling: limits, what a server has left at work, and what is too old."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from tieline.engine.agent import Agent
from tieline.engine.clock import SteadyClock
from tieline.engine.log import TaskLog
from tieline.engine.resume import past_of
from tieline.engine.run import Run
from tieline.engine.tasks import STOPPED, Limits, Tasks
from tieline.engine.turn import Caller
from tieline.errors import InternalError, TaskNotFound
from tieline.stores.base import Record, Store, StoreError, VersionConflict
from tieline.types import Task

__all__ = ["Upkeep"]

log = logging.getLogger("tieline.engine")

_TICK_S = 0.25
_PRUNE_S = 60.0
_LOST_S = 5.0
_RESUMES = 3


class Upkeep(Tasks):
    """An agent's tasks, with what looks after them."""

    def __init__(self, agent: Agent, store: Store, *, namespace: str = "", limits: Limits | None = None) -> None:
        super().__init__(agent, store, namespace=namespace, limits=limits)
        self._active: dict[Run, None] = {}  # those with an agent at work or waiting, in the order of their start
        self._quiet: dict[Run, None] = {}  # those that have said nothing yet
        self._finding: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None
        self._ready = False
        self._draining = False
        self._ticking: asyncio.TimerHandle | None = None
        self._pruning: asyncio.Task[None] | None = None
        self._prune_timer: asyncio.TimerHandle | None = None
        self._age = SteadyClock()

    @property
    def busy(self) -> int:
        """How many agents are at work (waiting ones do not count)."""
        return len(self._active) - self.waiting

    def _quiet_run(self, task_id: str, scope: str) -> Run | None:
        """The run of a message whose agent has not made a task of it yet."""
        return next((run for run in self._quiet if run.task_id == task_id and run.scope == scope), None)

    # --- what runs tell -----------------------------------------------------------------------------------------------

    def began(self, run: Run) -> None:
        self._active[run] = None
        if run.state is None:
            self._quiet[run] = None
        if self._ticking is None:
            self._ticking = run.loop.call_later(_TICK_S, self._tick)

    def ended(self, run: Run) -> None:
        self._active.pop(run, None)
        if run.answer is run.reply:  # else it is being kept
            self._quiet.pop(run, None)
        self.forget(run)

    def replied(self, run: Run) -> None:
        self._quiet.pop(run, None)

    def lost(self, run: Run) -> None:
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
        self._seen_to = set()
        try:
            while not self._draining and (records := await self.store.take(self.scope_prefix)):
                for record in records:
                    await self._adopt_taken(record)
                if self.replica is None:
                    break
                self.replica.announce([(record.scope, record.task_id) for record in records])
        finally:
            self._seen_to = None

    async def _adopt_taken(self, record: Record) -> None:
        try:
            task = await self.stored(record)
            if self._seen_to is not None and (record.scope, record.task_id) in self._seen_to:
                return  # and may have gone on: the record is old
            await self._adopt_one(record, task, STOPPED)
        except InternalError as error:
            if self.replica is None:
                words = f"task {record.task_id}, left at work earlier, cannot be ended: {error}"
                raise StoreError(words) from error
            self._lost.add((record.task_id, record.scope))
            self._find_later()

    async def _adopt_one(self, record: Record, task: Task, words: str) -> None:
        key = (record.scope, record.task_id)
        if self.agent.resumable:
            events = await self._read(self.store.events(*key, 0)) or ()
            past = past_of(task, [event for _, event in events])
            if past.times >= _RESUMES:
                words = f"The server stopped {past.times + 1} times while this task was at work."
            elif not self._draining and key not in self.runs:
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
        """Stop the agents whose tasks another replica has taken over."""
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
        self._prune_timer = asyncio.get_running_loop().call_later(_PRUNE_S, self._begin_prune)

    def _begin_prune(self) -> None:
        self._pruning = asyncio.ensure_future(self._prune())

    async def _prune(self) -> None:
        try:
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
        for task in (self._pruning, self._ending):
            if task is not None:
                await asyncio.wait([task])
