"""One live task: the only writer of it in this process.

What an agent says is *emitted*: checked against the transition table, encoded, and put behind the task's log. All that
is emitted in one turn of the event loop is written to the store together, and *published* when the store says that it
is durable: only then do subscribers see it and callers hear of it. A subscriber is the number of the last event it has
seen.

    quiet ── first event ──> task: SUBMITTED, WORKING ... ──> rests (INPUT_REQUIRED, AUTH_REQUIRED) or ends
      └── a Message ──> reply, no task                            └── the caller's message ──> WORKING

`fold` is the task as published, but while a write that carries a snapshot is under way (`_ahead`): who wants the task
then waits for that one write.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tieline.engine.fold import Fold, NotAllowed, may_follow
from tieline.engine.turn import Caller, Turn, message_from, part_of
from tieline.errors import (
    A2AError,
    Failed,
    InternalError,
    InvalidAgentResponse,
    Overloaded,
    Rejected,
    TaskNotCancelable,
    UnsupportedOperation,
)
from tieline.ids import new_id
from tieline.stores.base import Append, Event, Record, StoreError
from tieline.types import (
    Artifact,
    Encoded,
    Message,
    Metadata,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    encode,
    exact,
)

if TYPE_CHECKING:
    from tieline.engine.agent import Agent
    from tieline.engine.service import Service

__all__ = ["Run", "with_history", "without_blobs"]

log = logging.getLogger("tieline.engine")

BLOB_BYTES = 1024
"""A file of the caller's longer than this is not echoed to it unless it asks for history."""

_BURST_EVENTS = 16
_BURST_S = 0.001
_NEUTRAL = "The agent failed. Its operator finds the reason in the log."


class _Heard:
    """A message of the caller's on its way into the history, in order with the events."""

    __slots__ = ("message",)

    def __init__(self, message: Message) -> None:
        self.message = message


class Run:
    """A task that is being worked on, or that somebody follows."""

    __slots__ = (
        "_ahead",
        "_asked",
        "_begun",
        "_burst",
        "_burst_began",
        "_inbox",
        "_kept",
        "_next",
        "_pending",
        "_readers",
        "_reason",
        "_response_id",
        "_rest_emitted",
        "_said",
        "_scheduled",
        "_settlers",
        "_snapshot",
        "_stopping",
        "_waiters",
        "_writing",
        "accepts",
        "agent",
        "base",
        "blobs",
        "broken",
        "caller",
        "context_id",
        "cursors",
        "deadline",
        "driver",
        "emitted",
        "events",
        "fold",
        "inputs",
        "message",
        "metadata",
        "published",
        "references",
        "reply",
        "rest",
        "scope",
        "service",
        "started",
        "state",
        "streamed",
        "task_id",
        "updated",
    )

    def __init__(self, service: Service, scope: str, caller: Caller, task_id: str, context_id: str) -> None:
        self.service = service
        self.agent: Agent = service.agent
        self.scope = scope
        self.caller = caller
        self.task_id = task_id
        self.context_id = context_id
        self.message: Message | None = None  # the one the agent is at
        self.metadata: Metadata | None = None
        self.accepts: tuple[str, ...] = ()
        self.references: tuple[Task, ...] = ()
        self.fold: Fold | None = None  # None while there is no task
        self.state: TaskState | None = None  # as emitted
        self.updated = 0
        self.base = 0  # number of the last event that is not in `events`
        self.emitted = 0
        self.published = 0
        self.events: list[Event] = []  # published ones behind `base`
        self.inputs: tuple[int, ...] = ()  # numbers of the events in state INPUT_REQUIRED
        self.rest = 0  # number of the last published event that put the task to rest or ended it
        self.reply: Event | None = None  # a direct Message, instead of a task
        self.broken: A2AError | None = None  # the store failed: nothing more can be told
        self.driver: asyncio.Task[None] | None = None
        self.cursors = 0
        self.streamed = False
        self.blobs = False
        self.started = 0.0
        self.deadline: float | None = None  # loop time at which the agent has to be done
        self._pending: list[Event | _Heard] = []
        self._scheduled = False
        self._writing = False
        self._ahead = False
        self._snapshot: bytes | None = None  # of `published`
        self._rest_emitted = 0
        self._waiters: list[asyncio.Future[Any]] = []  # want every event
        self._settlers: list[asyncio.Future[Any]] = []  # want to know when it rests
        self._next: tuple[Message, Metadata | None, tuple[str, ...]] | None = None  # heard; the agent gets it next
        self._inbox: list[tuple[Message, Metadata | None, tuple[str, ...]]] = []  # heard while the agent was at work
        self._begun = False  # whether the driver has had its first step
        self._said = 0  # events and messages put behind the log
        self._kept = 0  # those of them that are stored
        self._readers = 0  # wait for the write that the fold is ahead by
        self._asked: asyncio.Future[Message] | None = None
        self._stopping: TaskState | None = None
        self._response_id: str | None = None
        self._reason = ""
        self._burst = 0
        self._burst_began = 0.0

    @classmethod
    def revive(cls, service: Service, caller: Caller, record: Record, task: Task) -> Run:
        """A stored task as a run without an agent at work, for a follow-up, a subscription or a cancel."""
        run = cls(service, record.scope, caller, record.task_id, record.context_id)
        run.fold = Fold(task)
        run.state = record.state
        run.updated = record.updated
        run.base = run.emitted = run.published = record.version
        run.blobs = any(_has_blob(message) for message in task.history)
        return run

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self, message: Message, metadata: Metadata | None, accepts: tuple[str, ...]) -> None:
        """Put the agent to work on `message`."""
        self.message = message
        self.metadata = metadata
        self.accepts = accepts
        self._stopping = None
        self._begun = False
        loop = asyncio.get_running_loop()
        self.started = loop.time()
        limit = self.service.limits.run_s
        self.deadline = None if limit is None else self.started + limit
        self.service.began(self)
        self.driver = loop.create_task(self._drive(Turn(self, message)))

    @property
    def active(self) -> bool:
        """Whether the agent is at work or waits for an answer."""
        return self.driver is not None

    @property
    def waiting(self) -> bool:
        """Whether the agent waits for the caller."""
        return self._asked is not None

    @property
    def closed(self) -> bool:
        """Whether no event will follow those published, as far as this run knows."""
        if self.broken is not None or self.reply is not None:
            return True
        return self.state is not None and self.state.terminal and self.published == self.emitted

    async def _drive(self, turn: Turn) -> None:
        """Run the agent and make an end of its task, whatever it does."""
        self._begun = True
        try:
            if self._stopping is None and self.broken is None:
                await self._iterate(turn)
            if self._stopping is not None:  # it caught the cancellation and came home
                self._end_stopped()
            else:
                self._end_normally()
        except asyncio.CancelledError:
            self._end_stopped()
        except Rejected as words:
            self._end(TaskState.REJECTED, str(words) or "The agent rejected the task.")
        except Failed as words:
            self._end(TaskState.FAILED, str(words) or _NEUTRAL)
        except InvalidAgentResponse as error:
            log.error("agent %r gave an invalid answer in task %s: %s", self.agent.name, self.task_id, error)
            self._end(TaskState.FAILED, "The agent gave an answer that is not valid.")
        except KeyboardInterrupt:  # somebody at the terminal, not the agent
            self._end(TaskState.FAILED, "The server was interrupted.")
            raise
        except BaseException:  # an agent's bug is not the server's, whatever it raises
            log.exception("agent %r failed in task %s", self.agent.name, self.task_id)
            self._end(TaskState.FAILED, _NEUTRAL)
        finally:
            self.driver = None
            self._asked = None
            if self._inbox and self._stopping is None and self.state is not None and self.state.interrupted:
                self._next = self._inbox.pop(0)  # it rests, but there is more for it
                self._emit_status(TaskState.WORKING, None)
            self._flush()
            self.service.ended(self)
            self._wake(self._settlers)
            self._wake(self._waiters)
            self.go_on()

    async def _iterate(self, turn: Turn) -> None:
        agent = self.agent
        given: Any = agent.function(turn)
        if not agent.is_generator:
            result = await given
            if result is not None:
                self._scheduled = True  # the end follows at once, and writes both
                self.give(result, whole=True)
            return
        try:
            item = await given.__anext__()
            deferred = False
            while True:
                self.give(item)
                if self.reply is not None or (self.state is not None and self.state.terminal):
                    break
                try:
                    await self.pace()
                except asyncio.CancelledError as stop:
                    # It is the agent's to hear: where it awaits next, so that a generator inside it hears it too;
                    # or here, if it comes back without having awaited.
                    task = asyncio.current_task()
                    if deferred or task is None:
                        item = await given.athrow(stop)
                        continue
                    deferred = True
                    task.cancel()
                item = await given.__anext__()
        except StopAsyncIteration:
            pass
        finally:
            await given.aclose()

    async def pace(self) -> None:
        """Let the event loop send what was emitted, when the agent has not waited for a while by itself.

        With somebody listening, the first event of a run and every event behind a pause go out before the agent goes
        on; events in quick succession go out together, 16 at most.
        """
        now = time.perf_counter()
        burst, self._burst = self._burst, self._burst + 1
        long = now - self._burst_began > _BURST_S or burst % _BURST_EVENTS == 0
        if long if burst else self.cursors > 0:
            if self.cursors:
                await self._let_out()
            await asyncio.sleep(0)
            now = time.perf_counter()
        self._burst_began = now
        self._check_whole()

    async def _let_out(self) -> None:
        """Wait until what was emitted is published and those who follow have taken it."""
        self._flush()
        said = self._said
        while self._kept < said and self.broken is None:
            await self.changed()
        await asyncio.sleep(0)  # the followers take it and write; with the next turn of the loop it is on its way

    def _check_whole(self) -> None:
        """Raises CancelledError in an agent that talks on though nobody can be told any more."""
        if self.broken is not None:
            raise asyncio.CancelledError

    # --- what the agent says ------------------------------------------------------------------------------------------

    def give(self, item: Any, *, whole: bool = False) -> None:
        """Emit what the agent has yielded or returned. `whole`: nothing follows it.

        Raises:
            InvalidAgentResponse: it is nothing that can be told, or nothing may be told any more.
        """
        if isinstance(item, Message):
            self._give_message(item)
        elif isinstance(item, Artifact):
            self.give_artifact(replace(item, parts=tuple(part_of(part) for part in item.parts)), last_chunk=True)
        elif isinstance(item, TaskStatus):
            self.give_status(item.state, item.message)
        else:
            part = part_of(item)
            first = self._response_id is None
            if first:
                self._response_id = self._free_response_id()
            artifact = Artifact(self._response_id or "", (part,), "response" if first else None)
            self.give_artifact(artifact, append=not first, last_chunk=whole)

    def _give_message(self, message: Message) -> None:
        if self.state is None:
            reply = Event(replace(_own(message), context_id=self.context_id, task_id=None))
            _checked(reply)
            self.reply = reply
            self._wake(self._settlers)
            self._wake(self._waiters)
        else:
            self.give_status(TaskState.COMPLETED, message)

    def _free_response_id(self) -> str:
        """ "response", or "response-2" and so on where an earlier answer or the agent has used that."""
        used = set(self.fold.artifact_ids) if self.fold is not None else set()
        for item in self._pending:
            if isinstance(item, Event) and isinstance(item.value, TaskArtifactUpdateEvent):
                used.add(item.value.artifact.artifact_id)
        id_, count = "response", 1
        while id_ in used:
            count += 1
            id_ = f"response-{count}"
        return id_

    def give_artifact(self, artifact: Artifact, *, append: bool = False, last_chunk: bool = False) -> None:
        """Emit an artifact or a chunk of one."""
        if not artifact.parts:
            raise InvalidAgentResponse(f"Artifact {artifact.artifact_id!r} has no parts.")
        if artifact.metadata is not None or not artifact.artifact_id:
            id_ = artifact.artifact_id or new_id()
            artifact = replace(artifact, artifact_id=id_, metadata=exact(artifact.metadata))
        self._make_task(TaskState.WORKING)
        self._emit(
            _checked(Event(TaskArtifactUpdateEvent(self.task_id, self.context_id, artifact, append, last_chunk)))
        )

    def give_status(self, state: TaskState, message: Message | None = None, metadata: Metadata | None = None) -> None:
        """Emit a status."""
        if state in (TaskState.SUBMITTED, TaskState.UNSPECIFIED):
            raise InvalidAgentResponse(f"An agent cannot put a task into {state.value}.")
        self._make_task(state)
        if message is not None:
            message = replace(_own(message), task_id=self.task_id, context_id=self.context_id)
        self._emit_status(state, message, exact(metadata))

    def _emit_status(self, state: TaskState, message: Message | None, metadata: Metadata | None = None) -> None:
        self.updated, timestamp = self.service.clock.tick()
        status = TaskStatus(state, message, timestamp)
        event = Event(TaskStatusUpdateEvent(self.task_id, self.context_id, status, metadata))
        self._emit(event if message is None and metadata is None else _checked(event))

    def _make_task(self, coming: TaskState) -> None:
        """Make the task if there is none yet: SUBMITTED with the caller's message, then WORKING unless that comes."""
        if self.reply is not None:
            raise InvalidAgentResponse("The agent has answered with a Message: there is no task to say more in.")
        if self.state is None:
            timestamp = self._submit()
            if coming is TaskState.WORKING or coming is TaskState.COMPLETED or coming.interrupted:
                status = TaskStatus(TaskState.WORKING, None, timestamp)
                self._emit(Event(TaskStatusUpdateEvent(self.task_id, self.context_id, status)))

    def _submit(self) -> str:
        """Make the task; returns the timestamp at which."""
        assert self.message is not None
        self.updated, timestamp = self.service.clock.tick()
        message = self.message = _placed(self.message, self.task_id, self.context_id)
        status = TaskStatus(TaskState.SUBMITTED, None, timestamp)
        task = Task(self.task_id, status, self.context_id, history=(message,))
        self.blobs = self.blobs or _has_blob(message)
        self.fold = Fold(task)
        self.state = TaskState.SUBMITTED
        self.service.runs[self.task_id] = self
        self._put(Event(without_blobs(task) if self.blobs else task))
        return timestamp

    def ensure_task(self) -> None:
        """Make a quiet run a task, WORKING."""
        if self.state is None and self.reply is None and self.broken is None:
            self._make_task(TaskState.WORKING)
            self._flush()

    def agent_message(self, parts: tuple[Part, ...], metadata: Metadata | None = None) -> Message:
        """A message of the agent in this task, or in this context while there is no task."""
        return message_from(parts, self.task_id if self.state is not None else None, self.context_id, metadata)

    async def ask(self, state: TaskState, parts: tuple[Part, ...]) -> Message:
        """Put the task into `state` with a question, and wait for the caller's message."""
        self._check_whole()
        if self._inbox and state is TaskState.INPUT_REQUIRED:  # what came before authorizes nothing (§7.6.4)
            return self._inbox.pop(0)[0]
        if self._asked is not None:
            raise InvalidAgentResponse("The agent asks while a question of its own is still open.")
        self._make_task(state)
        loop = asyncio.get_running_loop()
        self._asked = loop.create_future()
        asked_at = loop.time()
        self._emit_status(state, self.agent_message(parts))
        try:
            return await self._asked
        except BaseException:
            if self._stopping is None and self.broken is None and self.state is state:
                self._emit_status(TaskState.WORKING, None)  # the agent has given up waiting, and goes on
            raise
        finally:
            self._asked = None
            self._burst = 0
            if self.deadline is not None:
                self.deadline += loop.time() - asked_at  # the caller's time is not the agent's

    # --- what the caller says -----------------------------------------------------------------------------------------

    def hear(self, message: Message, caller: Caller, metadata: Metadata | None, accepts: tuple[str, ...]) -> int:
        """Take a message for this task: an answer, a restart of a resting agent, or one for the queue.

        An agent that is free for it gets it with `go_on`, so that the caller can take its place in the log before the
        agent says more. Returns the number of the event behind which the consequences stand.

        Raises:
            UnsupportedOperation: the task has ended, or its agent takes no message while it works.
            Overloaded: too many messages wait already.
        """
        assert self.state is not None
        if self.broken is not None:
            raise self.broken
        if self.state.terminal:
            raise UnsupportedOperation(
                f"Task {self.task_id!r} is {self.state.value}: it takes no more messages. Send one without taskId.",
                metadata={"taskId": self.task_id, "state": self.state.value},
            )
        free = self._next is None and (self.driver is None or (self._asked is not None and not self._asked.done()))
        if not free:
            if self.agent.while_running == "refuse":
                raise UnsupportedOperation(
                    f"Task {self.task_id!r} is at work and its agent takes no message meanwhile. Wait until it asks.",
                    metadata={"taskId": self.task_id, "state": self.state.value},
                )
            if len(self._inbox) >= self.service.limits.queued_messages:
                raise Overloaded(f"{len(self._inbox)} messages wait for task {self.task_id!r} already.")
        after = self.emitted
        message = _placed(message, self.task_id, self.context_id)
        self.caller = caller
        self.blobs = self.blobs or _has_blob(message)
        self._pending.append(_Heard(message))
        self._said += 1
        if free:
            self._next = (message, metadata, accepts)
            self._emit_status(TaskState.WORKING, None)
        else:
            self._inbox.append((message, metadata, accepts))
        self._flush()
        return after

    def go_on(self) -> None:
        """Give the agent the message that `hear` has taken for it."""
        if self._next is None or self.state is None:
            return
        heard, self._next = self._next, None
        if self.state.terminal or self.broken is not None:  # it was cancelled meanwhile
            self.service.forget(self)
            return
        if self._asked is not None and not self._asked.done():
            self._asked.set_result(heard[0])
        elif self.driver is None:
            self._response_id = None
            self.start(*heard)
        else:
            self._inbox.append(heard)

    async def cancel(self) -> None:
        """Stop the agent, then tell CANCELED.

        Raises:
            TaskNotCancelable: it has ended, or ends another way while being stopped.
        """
        assert self.state is not None
        if self.state.terminal:
            raise TaskNotCancelable(self.task_id, self.state.value)
        if self.driver is None:
            self._end(TaskState.CANCELED, None)
            self._flush()
        else:
            await self.stop(TaskState.CANCELED, self.service.limits.cancel_s)
        await self.written()
        if self.state.terminal and self.state is not TaskState.CANCELED:
            raise TaskNotCancelable(self.task_id, self.state.value)

    async def stop(self, end: TaskState, grace_s: float) -> None:
        """Cancel the agent so that its task ends as `end` (UNSPECIFIED: stays as it is); wait at most `grace_s`."""
        driver = self.driver
        if driver is None:
            return
        if self._stopping is None:
            self._stopping = end
            self._interrupt()
        await asyncio.wait([driver], timeout=grace_s)

    def _interrupt(self) -> None:
        """Cancel the agent. One that has not begun ends at its first step: cancelled before it, it could not say so."""
        if self.driver is not None and self._begun:
            self.driver.cancel()

    def expire(self) -> None:
        """The agent has used up its time: cancel it, and the task ends FAILED."""
        if self.driver is not None and self._stopping is None:
            self._stopping = TaskState.FAILED
            self._reason = f"The agent took longer than {self.service.limits.run_s:g} s."
            self._interrupt()

    def fail(self, words: str) -> None:
        """End a task that has no agent at work FAILED."""
        self._end(TaskState.FAILED, words)

    @property
    def idle(self) -> bool:
        """Whether nothing is on its way to the store."""
        return not self._writing and not self._pending and self._next is None

    # --- ends ---------------------------------------------------------------------------------------------------------

    def _end_normally(self) -> None:
        if self.reply is not None:
            return
        if self.state is None:
            self._make_task(TaskState.COMPLETED)
        assert self.state is not None
        if not self.state.terminal and not self.state.interrupted:
            self._end(TaskState.COMPLETED, None)

    def _end_stopped(self) -> None:
        stopping = self._stopping
        if stopping is TaskState.UNSPECIFIED:
            return  # the server goes; the task rests where it is
        if stopping is TaskState.CANCELED:
            self._end(TaskState.CANCELED, None)
        elif stopping is TaskState.FAILED:
            self._end(TaskState.FAILED, self._reason or "The server stopped before the agent was done.")
        elif stopping is None:
            if self.broken is None:
                log.error(
                    "agent %r was interrupted by a cancellation of its own, task %s", self.agent.name, self.task_id
                )
            self._end(TaskState.FAILED, "The agent was interrupted.")

    def _end(self, state: TaskState, words: str | None) -> None:
        """End the task, unless it has ended: the first terminal state wins."""
        if self.broken is not None or self.reply is not None or (self.state is not None and self.state.terminal):
            return
        self._make_task(state)
        message = self.agent_message((Part(text=_printable(words)),)) if words else None
        self._emit_status(state, message)

    # --- the log ------------------------------------------------------------------------------------------------------

    def _emit(self, event: Event) -> None:
        """Put an update behind the log.

        Raises:
            InvalidAgentResponse: it may not follow what the task is.
        """
        assert self.state is not None
        value = event.value
        try:
            may_follow(self.state, value)
        except NotAllowed as error:
            raise InvalidAgentResponse(f"Task {self.task_id}: {error}.") from None
        if isinstance(value, TaskStatusUpdateEvent):
            self.state = value.status.state
        self._put(event)
        if self.state.interrupted or self.state.terminal:
            self._rest_emitted = self.emitted
            if self.state is TaskState.INPUT_REQUIRED:
                self.inputs = (*self.inputs, self.emitted)

    def _put(self, event: Event) -> None:
        self._check_whole()
        self._pending.append(event)
        self._said += 1
        self.emitted += 1
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._flush_scheduled)

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
                    if isinstance(item, Event):
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
            error = failures.get(self.task_id)
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
            assert self.fold is not None
            for event in events:
                self.fold.add(event.value)
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
        if self.driver is None:
            self.service.forget(self)

    def _break(self, error: BaseException) -> None:
        """The store failed: end everything that hangs on this run, at once."""
        trace = None if isinstance(error, StoreError) else error
        log.error("task %s cannot be stored: %s", self.task_id, error, exc_info=trace)
        self.broken = InternalError("The task could not be stored; what became of it is not known. Try again later.")
        self._ahead = False
        self._next = None
        self._pending.clear()
        if self.driver is not asyncio.current_task():
            self._interrupt()
        self.service.forget(self)
        self._wake(self._settlers)
        self._wake(self._waiters)

    # --- waiting and reading ------------------------------------------------------------------------------------------

    @staticmethod
    def _wake(futures: list[asyncio.Future[Any]]) -> None:
        for future in futures:
            if not future.done():
                future.set_result(None)
        futures.clear()

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
        future = asyncio.get_running_loop().create_future()
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
            if self.driver is None and self.idle:
                break
            future = asyncio.get_running_loop().create_future()
            self._settlers.append(future)
            try:
                await future
            finally:
                if not future.done():
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
        while self.published == 0 and self.reply is None and self.broken is None and self.driver is not None:
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
        return Encoded(Task, json=self._snapshot)

    def history_before(self, message: Message) -> tuple[Message, ...]:
        if self.fold is None:
            return ()
        heard = [item.message for item in self._pending if isinstance(item, _Heard)]
        history = (*self.fold.task().history, *heard)
        for index in range(len(history) - 1, -1, -1):  # from the end: an id may stand there twice
            if history[index].message_id == message.message_id and history[index].role == message.role:
                return history[:index]
        return history

    async def context_tasks(self, limit: int) -> tuple[Task, ...]:
        tasks = await self.service.tasks_of_context(self.scope, self.context_id, limit + 1)
        return tuple(task for task in tasks if task.id != self.task_id)[:limit]


def _placed(message: Message, task_id: str, context_id: str) -> Message:
    """`message` in this task and context."""
    return Message(
        message.message_id,
        message.role,
        message.parts,
        context_id,
        task_id,
        message.metadata,
        message.extensions,
        message.reference_task_ids,
    )


def _checked(event: Event) -> Event:
    """Encode an event that carries the agent's content now, where a failure is still the agent's.

    Raises InvalidAgentResponse when it is not JSON.
    """
    try:
        _ = event.json
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise InvalidAgentResponse(f"The content cannot be written as JSON: {error}") from error
    return event


def _own(message: Message) -> Message:
    """A message that the agent has made as a message of the agent: with an id, and content that stays as it is.

    Raises InvalidAgentResponse when it has no parts.
    """
    if not message.parts:
        raise InvalidAgentResponse("A message has to have at least one part.")
    return replace(
        message,
        message_id=message.message_id or new_id(),
        role=Role.AGENT,
        parts=tuple(part_of(part) for part in message.parts),
        metadata=exact(message.metadata),
    )


def _printable(words: str) -> str:
    return words.encode("utf-8", "replace").decode("utf-8")


def _has_blob(message: Message) -> bool:
    return any(part.raw is not None and len(part.raw) > BLOB_BYTES for part in message.parts)


def without_blobs(task: Task) -> Task:
    """`task` with the caller's own long files emptied in its history: it has them already.

    The part stays, with its name and type, and says in its metadata how many bytes were left out.
    """
    return replace(
        task, history=tuple(_emptied(message) if _has_blob(message) else message for message in task.history)
    )


def with_history(task: Task, length: int | None) -> Task:
    """`task` with its last `length` messages; with all of them for None, without long files then (§3.2.4)."""
    if length is None:
        return without_blobs(task)
    return replace(task, history=task.history[-length:] if length else ())


def _emptied(message: Message) -> Message:
    parts = []
    for part in message.parts:
        if part.raw is not None and len(part.raw) > BLOB_BYTES:
            metadata = {**(part.metadata or {}), "omittedBytes": len(part.raw)}
            part = replace(part, raw=b"", metadata=metadata)
        parts.append(part)
    return replace(message, parts=tuple(parts))
