"""A task's log where it is written: written, then published.

What is put behind the log in one turn of the event loop is written to the store together, and published when the store
says that it is durable: only then do followers see it and callers hear of it.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from tieline.engine.content import checked
from tieline.engine.fold import NotAllowed, may_follow
from tieline.engine.log import TaskLog
from tieline.errors import InternalError, InvalidAgentResponse
from tieline.event import Event, TextChunk
from tieline.stores.base import Append, StoreError, VersionConflict
from tieline.types import Message, Metadata, TaskState, TaskStatus, TaskStatusUpdateEvent, encode

if TYPE_CHECKING:
    from tieline.engine.tasks import Tasks

__all__ = ["Heard", "WrittenLog"]

log = logging.getLogger("tieline.engine")


class Heard:
    """A message of the caller's on its way into the history, in order with the events."""

    __slots__ = ("message",)

    def __init__(self, message: Message) -> None:
        self.message = message


class WrittenLog(TaskLog):
    """The log of a task of which this process is the only writer. A Run, which runs the agent, is one of these."""

    __slots__ = (
        "_kept",
        "_pending",
        "_rest_emitted",
        "_said",
        "_scheduled",
        "_writing",
        "emitted",
        "hooked",
        "state",
        "status",
        "updated",
    )

    def __init__(self, service: Tasks, scope: str, task_id: str, context_id: str) -> None:
        super().__init__(service, scope, task_id, context_id)
        self.state: TaskState | None = None  # as emitted
        self.status: TaskStatus | None = None  # the last update, as emitted
        self.updated = 0  # moment of the last status
        self.emitted = 0
        self.hooked = False  # there may be webhooks for what it says next that are not being delivered
        self._pending: list[Event | Heard] = []
        self._scheduled = False
        self._writing = False
        self._rest_emitted = 0
        self._said = 0  # events and messages put behind the log
        self._kept = 0  # those of them that are stored

    # --- what a Run adds ----------------------------------------------------------------------------------------------

    @abstractmethod
    def silence(self) -> None:
        """Stop the agent: nobody can be told any more."""

    @abstractmethod
    def let_go(self) -> None:
        """Nothing more is to be written for now: forget this run if nobody needs it."""

    # --- writing ------------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        if self.broken is not None or self.reply is not None:
            return True
        return self.state is not None and self.state.terminal and self.published == self.emitted

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
        self._kept = kept
        self._take_in(events, snapshot, self._rest_emitted)
        if self.service.replica is not None:
            self.service.replica.published(self)
        if self.hooked and self.service.webhooks is not None:
            self.service.webhooks.published(self)
        if self.resting:
            self.let_go()

    def _break(self, error: BaseException) -> None:
        """The store failed: end everything that hangs on this run, at once."""
        trace = None if isinstance(error, StoreError) else error
        log.error("task %s cannot be stored: %s", self.task_id, error, exc_info=trace, extra={"task": self.task_id})
        if isinstance(error, VersionConflict) and self.service.replica is not None:
            self.moved = True
            self.broken = InternalError("Another replica has taken this task over. Read the task, or subscribe to it.")
        else:
            self.broken = InternalError(
                "The task could not be stored; what became of it is not known. Try again later."
            )
        self._ahead = False
        self._pending.clear()
        self.silence()
        self.let_go()
        self._wake_all()

    async def written(self) -> None:
        said = self._said
        while self._kept < said and self.broken is None:
            await self.changed()
        if self.broken is not None:
            raise self.broken
