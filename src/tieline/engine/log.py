"""A live task's log in this process: written, then published.

What is put behind the log in one turn of the event loop is written to the store together, and published when the store
says that it is durable: only then do followers see it and callers hear of it. A follower is the number of the last
event it has seen (cursor.py).

`fold` is the task as published, but while a write that carries a snapshot is under way (`_ahead`): who wants the task
then waits for that one write.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from tieline.engine.content import checked
from tieline.engine.fold import Fold, NotAllowed, may_follow
from tieline.errors import A2AError, InternalError, InvalidAgentResponse
from tieline.event import Event, TextChunk
from tieline.stores.base import Append, StoreError
from tieline.types import (
    Encoded,
    Message,
    Metadata,
    Task,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    encode,
)

if TYPE_CHECKING:
    from tieline.engine.service import Service

__all__ = ["Heard", "TaskLog"]

log = logging.getLogger("tieline.engine")


class Heard:
    """A message of the caller's on its way into the history, in order with the events."""

    __slots__ = ("message",)

    def __init__(self, message: Message) -> None:
        self.message = message


class TaskLog(ABC):
    """The log of one task, with what it folds into. What runs the agent is a Run, which is one of these."""

    __slots__ = (
        "_ahead",
        "_kept",
        "_pending",
        "_readers",
        "_rest_emitted",
        "_said",
        "_scheduled",
        "_settlers",
        "_snapshot",
        "_waiters",
        "_writing",
        "base",
        "broken",
        "context_id",
        "emitted",
        "events",
        "fold",
        "inputs",
        "loop",
        "published",
        "reply",
        "rest",
        "scope",
        "service",
        "state",
        "status",
        "streamed",
        "task_id",
        "updated",
    )

    def __init__(self, service: Service, scope: str, task_id: str, context_id: str) -> None:
        self.service = service
        self.loop = asyncio.get_running_loop()  # asked for once: asking costs a system call
        self.scope = scope
        self.task_id = task_id
        self.context_id = context_id
        self.fold: Fold | None = None  # None while there is no task
        self.state: TaskState | None = None  # as emitted
        self.status: TaskStatus | None = None  # the last update, as emitted
        self.updated = 0  # moment of the last status
        self.base = 0  # number of the last event that is not in `events`
        self.emitted = 0
        self.published = 0
        self.events: list[Event] = []  # published ones behind `base`
        self.inputs: tuple[int, ...] = ()  # numbers of the events in state INPUT_REQUIRED
        self.rest = 0  # number of the last published event that put the task to rest or ended it
        self.reply: Event | None = None  # a direct Message, instead of a task
        self.broken: A2AError | None = None  # the store failed: nothing more can be told
        self.streamed = False  # somebody follows or has followed it
        self._pending: list[Event | Heard] = []
        self._scheduled = False
        self._writing = False
        self._ahead = False
        self._snapshot: bytes | None = None  # of `published`
        self._rest_emitted = 0
        self._said = 0  # events and messages put behind the log
        self._kept = 0  # those of them that are stored
        self._readers = 0  # wait for the write that the fold is ahead by
        self._waiters: list[asyncio.Future[Any]] = []  # want every event
        self._settlers: list[asyncio.Future[Any]] = []  # want to know when it rests

    # --- what a Run adds ----------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def resting(self) -> bool:
        """Whether no agent is at work that could say more."""

    @abstractmethod
    def silence(self) -> None:
        """Stop the agent: nobody can be told any more."""

    @abstractmethod
    def let_go(self) -> None:
        """Nothing more is to be written for now: forget this run if nobody needs it."""

    # --- writing ------------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether no event will follow those published, as far as this run knows."""
        if self.broken is not None or self.reply is not None:
            return True
        return self.state is not None and self.state.terminal and self.published == self.emitted

    @property
    def idle(self) -> bool:
        """Whether nothing is on its way to the store."""
        return not self._writing and not self._pending

    def _check_whole(self) -> None:
        """Raises CancelledError in an agent that talks on though nobody can be told any more."""
        if self.broken is not None:
            raise asyncio.CancelledError

    def _emit_status(self, state: TaskState, message: Message | None, metadata: Metadata | None = None) -> None:
        self.updated, timestamp = self.service.clock.tick()
        status = TaskStatus(state, message, timestamp)
        event = Event(TaskStatusUpdateEvent(self.task_id, self.context_id, status, metadata))
        self._emit(event if message is None and metadata is None else checked(event))

    def _emit(self, event: Event) -> None:
        """Put an update behind the log.

        Raises:
            InvalidAgentResponse: it may not follow what the task is.
        """
        state = self.state
        assert state is not None
        value = event.value
        try:
            may_follow(state, value)
        except NotAllowed as error:
            raise InvalidAgentResponse(f"Task {self.task_id}: {error}.") from None
        if isinstance(value, TaskStatusUpdateEvent):
            self.status = value.status
            state = self.state = value.status.state
        self._put(event)
        if state.interrupted or state.terminal:
            self._rest_emitted = self.emitted
            if state is TaskState.INPUT_REQUIRED:
                self.inputs = (*self.inputs, self.emitted)

    def give_chunk(self, chunk: TextChunk) -> None:
        """Put the next piece of a text behind the log: `_emit` for what streams are made of."""
        state = self.state
        assert state is not None
        if state.terminal:
            raise InvalidAgentResponse(f"Task {self.task_id}: nothing can follow {state.value}.")
        self._put(chunk)
        if state.interrupted:
            self._rest_emitted = self.emitted

    def _put(self, event: Event) -> None:
        if self.broken is not None:
            raise asyncio.CancelledError  # as _check_whole has it
        self._pending.append(event)
        self._said += 1
        self.emitted += 1
        if not self._scheduled:
            self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._flush_scheduled)

    def _flush_scheduled(self) -> None:
        self._scheduled = False
        self._flush()

    def _flush(self) -> None:
        """Write what was emitted; publish it when it is durable."""
        if self._writing or not self._pending or self.broken is not None:
            return
        if self._readers:  # they read what is published before the fold goes ahead of it again
            self._schedule()
            return
        fold, state = self.fold, self.state
        assert fold is not None
        assert state is not None
        pending, self._pending = self._pending, []
        events = [item for item in pending if isinstance(item, Event)]
        made = self.published == 0 and bool(events)
        snapshot = None
        kept = self._said
        try:
            if made or len(events) != len(pending) or state.terminal or state.interrupted:
                for item in pending[1:] if made else pending:
                    if isinstance(item, TextChunk):
                        fold.add_text(item)
                    elif isinstance(item, Event):
                        fold.add(item.value)
                    else:
                        fold.add_message(item.message)
                snapshot = encode(fold.task())
                self._ahead = True
            append = Append(
                self.scope,
                self.task_id,
                self.context_id,
                self.published,
                events,
                state,
                self.updated,
                snapshot,
                self.streamed,
            )
            written = self.service.store.append(append)
        except Exception as error:  # a store may be anybody's: whatever it raises, nobody may hang
            self._break(error)
            return
        if written is None:
            self._publish(events, snapshot, kept)
        else:
            self._writing = True
            written.add_done_callback(lambda future: self._after_write(future, events, snapshot, kept))

    def _after_write(
        self, written: asyncio.Future[Any], events: list[Event], snapshot: bytes | None, kept: int
    ) -> None:
        self._writing = False
        error = None if written.cancelled() else written.exception()
        failures = getattr(error, "failures", None)
        if failures is not None:  # others of the same transaction failed, perhaps not we
            error = failures.get((self.scope, self.task_id))
        if error is not None or written.cancelled():
            self._break(error or StoreError("the write was abandoned"))
            return
        self._publish(events, snapshot, kept)
        if self._pending:
            self._flush()

    def _publish(self, events: list[Event], snapshot: bytes | None, kept: int) -> None:
        if self._ahead:
            self._ahead = False
        else:
            fold = self.fold
            assert fold is not None
            for event in events:
                if isinstance(event, TextChunk):
                    fold.add_text(event)
                else:
                    fold.add(event.value)
        self._snapshot = snapshot
        self._kept = kept
        self.events += events
        self.published += len(events)
        if self._rest_emitted <= self.published:
            self.rest = self._rest_emitted
        if self._settlers and self._rests:
            self._wake(self._settlers)
        if self._waiters:
            self._wake(self._waiters)
        if self.resting:
            self.let_go()

    def _break(self, error: BaseException) -> None:
        """The store failed: end everything that hangs on this run, at once."""
        trace = None if isinstance(error, StoreError) else error
        log.error("task %s cannot be stored: %s", self.task_id, error, exc_info=trace)
        self.broken = InternalError("The task could not be stored; what became of it is not known. Try again later.")
        self._ahead = False
        self._pending.clear()
        self.silence()
        self.let_go()
        self._wake_all()

    # --- waiting and reading ------------------------------------------------------------------------------------------

    @staticmethod
    def _wake(futures: list[asyncio.Future[Any]]) -> None:
        for future in futures:
            if not future.done():
                future.set_result(None)
        futures.clear()

    def _wake_all(self) -> None:
        if self._settlers:
            self._wake(self._settlers)
        if self._waiters:
            self._wake(self._waiters)

    def wake(self) -> None:
        """Let everyone who waits for news look again."""
        self._wake(self._waiters)

    async def changed(self) -> None:
        """Wait for news."""
        future = self.waiter()
        try:
            await future
        finally:
            if future.cancelled():
                self.forget_waiter(future)

    def waiter(self) -> asyncio.Future[Any]:
        """A future that is done with the next news."""
        future = self.loop.create_future()
        self._waiters.append(future)
        return future

    def forget_waiter(self, future: asyncio.Future[Any]) -> None:
        """Keep no place for one who waits no more."""
        if future in self._waiters:
            self._waiters.remove(future)

    async def settled(self, after: int) -> None:
        """Wait until the task rests or ends behind event `after`, or the agent has replied.

        Raises InternalError when the task could not be stored.
        """
        while not (self._rests and self.rest > after) and self.reply is None and self.broken is None:
            if self.resting and self.idle:
                break
            future = self.loop.create_future()
            self._settlers.append(future)
            try:
                await future
            finally:
                if future.cancelled() and future in self._settlers:
                    self._settlers.remove(future)
        if self.broken is not None:
            raise self.broken

    @property
    def _rests(self) -> bool:
        """Whether the task, as published, rests or has ended."""
        if self._ahead or self.fold is None:
            return False
        state = self.fold.state
        return state.terminal or state.interrupted

    async def told(self) -> None:
        """Wait until the task is stored, or the agent has replied, or nothing can come any more."""
        while self.published == 0 and self.reply is None and self.broken is None and not self.resting:
            await self.changed()
        if self.broken is not None:
            raise self.broken

    async def written(self) -> None:
        """Wait until all that has been said and heard up to now is stored. Raises InternalError if it could not be."""
        said = self._said
        while self._kept < said and self.broken is None:
            await self.changed()
        if self.broken is not None:
            raise self.broken

    async def readable(self) -> None:
        """Wait while the fold is ahead of what is published: at most for one write."""
        while self._ahead and self.broken is None:
            self._readers += 1
            try:
                await self.changed()
            finally:
                self._readers -= 1
        if self.broken is not None:
            raise self.broken

    def task(self) -> Task:
        """The task as published. Call `readable` before, with no await between."""
        assert self.fold is not None
        return self.fold.task()

    def snapshot(self) -> Encoded[Task]:
        """The task as published, encoded at most once for each state that it is in."""
        if self._snapshot is None:
            self._snapshot = encode(self.task())
        return Encoded(Task, json=self._snapshot, value=self.task())
