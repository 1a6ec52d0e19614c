"""One live task: the agent at work on it, and the only writer of its log in this process.

What an agent says is checked against the transition table, encoded while a fault is still the agent's, and put behind
the log (writing.py).

    quiet ── first event ──> task: SUBMITTED, WORKING ... ──> rests (INPUT_REQUIRED, AUTH_REQUIRED) or ends
      └── a Message ──> reply, no task                            └── the caller's message ──> WORKING
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tieline.engine.content import (
    TextStream,
    checked,
    has_blob,
    message_from,
    own_message,
    part_of,
    parts_of,
    placed,
    printable,
    without_blobs,
)
from tieline.engine.fold import Fold
from tieline.engine.requests import same_message
from tieline.engine.resume import RESUMED, Past, asks, request_kept
from tieline.engine.turn import Caller, Turn
from tieline.engine.writing import Heard, WrittenLog
from tieline.errors import (
    Failed,
    InvalidAgentResponse,
    Overloaded,
    Rejected,
    TaskEnded,
    TaskNotCancelable,
    UnsupportedOperation,
)
from tieline.event import Event
from tieline.ids import new_id
from tieline.stores.base import Record, StoreError
from tieline.types import (
    Artifact,
    Message,
    Metadata,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    exact,
)

if TYPE_CHECKING:
    from tieline.engine.agent import Agent
    from tieline.engine.tasks import Tasks

__all__ = ["Run"]

log = logging.getLogger("tieline.engine")

_BURST_EVENTS = 16
_BURST_S = 0.001
_NEUTRAL = "The agent failed. Its operator finds the reason in the log."


class Run(WrittenLog):
    """A task that is being worked on, or that somebody follows."""

    __slots__ = (
        "_asked",
        "_begun",
        "_burst",
        "_burst_began",
        "_inbox",
        "_keeping",
        "_next",
        "_reason",
        "_replied",
        "_response",
        "_response_id",
        "_stopping",
        "_task_metadata",
        "accepts",
        "agent",
        "answer",
        "caller",
        "deadline",
        "driver",
        "in_line",
        "interrupted",
        "key",
        "message",
        "metadata",
        "observed",
        "past",
        "references",
        "resumed_from",
        "started",
    )

    def __init__(
        self,
        service: Tasks,
        scope: str,
        caller: Caller,
        task_id: str,
        context_id: str,
        task_metadata: Metadata | None = None,
    ) -> None:
        super().__init__(service, scope, task_id, context_id)
        self._task_metadata = task_metadata  # of the task that may come of it
        self.agent: Agent = service.agent
        self.caller = caller
        self.message: Message | None = None  # the one the agent is at
        self.metadata: Metadata | None = None
        self.accepts: tuple[str, ...] = ()
        self.references: tuple[Task, ...] = ()
        self.driver: asyncio.Task[None] | None = None
        self.resumed_from: TaskStatus | None = None  # what the message that the agent is at has answered
        self.key: bytes | None = None  # by which the store knows the message that began it
        self.answer: Event | None = None  # a direct Message of the agent's; `reply` when it is kept
        self.interrupted: Past | None = None  # what an agent that waits was at, when it is not in this process any more
        self.past: Past | None = None  # what the agent had done when its server died, while it does it again
        self.in_line = False  # waits for other agents to finish
        self.observed: Any = None  # what the observer of the service keeps with it
        self.started = 0.0
        self.deadline: float | None = None  # loop time at which the agent has to be done
        self._next: tuple[Message, Metadata | None, tuple[str, ...]] | None = None  # heard; the agent gets it next
        self._inbox: list[tuple[Message, Metadata | None, tuple[str, ...]]] = []  # heard while the agent was at work
        self._keeping = False  # whether the answer is on its way to the store
        self._begun = False  # whether the driver has had its first step
        self._asked: asyncio.Future[Message] | None = None
        self._stopping: TaskState | None = None
        self._replied: Message | None = None  # what `Turn.reply` has made last
        self._response_id: str | None = None  # of the artifact that holds what the agent yields
        self._response: TextStream | None = None  # makes its text
        self._reason = ""
        self._burst = 0
        self._burst_began = 0.0

    @classmethod
    def revive(cls, service: Tasks, caller: Caller, record: Record, task: Task) -> Run:
        """A stored task as a run without an agent at work, for a follow-up, a subscription or a cancel."""
        run = cls(service, record.scope, caller, record.task_id, record.context_id)
        run.fold = Fold(task)
        run.state = record.state
        run.status = task.status
        run.updated = record.updated
        service.clock.not_before(record.updated)  # another replica's clock may be ahead of this one's
        run.base = run.emitted = run.published = record.version
        run.blobs = any(has_blob(message) for message in task.history)
        run.hooked = True
        return run

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self, message: Message, metadata: Metadata | None, accepts: tuple[str, ...]) -> None:
        """Put the agent to work on `message`."""
        self.message = message
        self.metadata = metadata
        self.accepts = accepts
        self._stopping = None
        self._begun = False
        loop = self.loop
        self.started = loop.time()
        limit = self.service.limits.run_s
        self.deadline = None if limit is None else self.started + limit
        self.service.began(self)
        observer = self.service.observer
        context = None if observer is None else observer.begins(self)
        self.driver = loop.create_task(self._drive(Turn(self, message)), context=context)

    def resume(self, past: Past) -> None:
        """Put the agent to work again on what its server has died over."""
        self._emit_status(TaskState.WORKING, None, {RESUMED: past.times + 1})
        self._start_again(past)

    def _start_again(self, past: Past) -> None:
        self.past = past
        self._response_id = self._response = None
        self.resumed_from = None
        self.start(past.message, past.metadata, past.accepts)

    @property
    def resting(self) -> bool:
        return self.driver is None

    @property
    def idle(self) -> bool:
        return not self._writing and not self._pending and self._next is None and not self._keeping

    def silence(self) -> None:
        self._next = None
        self.service.lost(self)
        if self.driver is not asyncio.current_task():
            self._interrupt()

    @property
    def mail(self) -> int:
        """How many messages wait for the agent."""
        return len(self._inbox) + (self._next is not None)

    @property
    def has_mail(self) -> bool:
        return self._next is not None or bool(self._inbox)

    def let_go(self) -> None:
        self.service.forget(self)

    @property
    def waiting(self) -> bool:
        """Whether the agent waits for the caller."""
        return self._asked is not None

    async def _drive(self, turn: Turn) -> None:
        """Run the agent and make an end of its task, whatever it does."""
        self._begun = True
        try:
            if self.in_line and self._stopping is None:
                await self._wait_in_line()
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
        except BaseException:  # an agent's bug is not the server's, whatever it raises
            log.exception("agent %r failed in task %s", self.agent.name, self.task_id)
            self._end(TaskState.FAILED, _NEUTRAL)
        finally:
            self.driver = None
            self._ask_no_more()
            if self.past is not None:
                self._inbox[:0] = [(message, None, ()) for message in self.past.rest()]
                self.past = None
            if self._inbox and self._stopping is None and self.state is not None and not self.state.terminal:
                self._next = self._inbox.pop(0)  # it is done, but there is more for it
                self.resumed_from = self.status if self.state.interrupted else None
                if self.state.interrupted:
                    self._emit_status(TaskState.WORKING, None)
            self._flush()
            self.service.ended(self)
            self._wake_all()
            self.go_on()

    async def _wait_in_line(self) -> None:
        """Be a task that is SUBMITTED until there is room for the agent; the time does not count."""
        self.ensure_task()
        deadline, self.deadline = self.deadline, None
        if self.broken is None:
            await self.service.admitted(self)
        if deadline is not None:
            self.deadline = deadline + self.loop.time() - self.started
        if self.state is TaskState.SUBMITTED:
            self._emit_status(TaskState.WORKING, None)

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
                if self.answer is not None or (self.state is not None and self.state.terminal):
                    break
                try:
                    if not self.in_a_burst():
                        await self.let_out()
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
        """Let the event loop send what was emitted, when the agent has not waited for a while by itself."""
        if not self.in_a_burst():
            await self.let_out()

    def in_a_burst(self) -> bool:
        """Whether what was just emitted may wait for what comes in quick succession.

        With somebody listening, the first event of a run and every event behind a pause go out before the agent goes
        on (`let_out`); events in quick succession go out together, 16 at most.
        """
        now = time.perf_counter()
        began, self._burst_began = self._burst_began, now
        burst, self._burst = self._burst, self._burst + 1
        if burst == 0:
            return not self.cursors
        return now - began <= _BURST_S and burst % _BURST_EVENTS != 0 and self.broken is None

    async def let_out(self) -> None:
        """Wait until what was emitted is published, and those who follow have taken it."""
        if self.cursors:
            self._flush()
            said = self._said
            while self._kept < said and self.broken is None:
                await self.changed()
            await asyncio.sleep(0)  # the followers take it and write; with the next turn of the loop it is on its way
        await asyncio.sleep(0)
        self._burst_began = time.perf_counter()
        self._check_whole()

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
        elif isinstance(item, TaskState):
            self.give_status(item)
        elif type(item) is str and self._response_id is not None and not whole and self.past is None:
            if self._response is None:
                self._response = TextStream(self.task_id, self.context_id, self._response_id, None)
            self.give_chunk(self._response.chunk(item))
        else:
            several = isinstance(item, (list, tuple)) and bool(item) and all(isinstance(part, Part) for part in item)
            parts = parts_of(*item) if several else (part_of(item),)
            first = self._response_id is None
            if first:
                self._response_id = self._free_response_id()
            artifact = Artifact(self._response_id or "", parts, "response" if first else None)
            self.give_artifact(artifact, append=not first, last_chunk=whole)

    def _give_message(self, message: Message) -> None:
        if self.state is None:
            if message is not self._replied:
                message = replace(own_message(message), context_id=self.context_id, task_id=None)
            self.answer = checked(Event(message))
            self._keep(self.answer)
        else:
            self.give_status(TaskState.COMPLETED, message)

    def _keep(self, answer: Event) -> None:
        """Have a direct Message kept as what became of the caller's message, then tell it."""
        try:
            kept = None if self.key is None else self.service.store.replied(self.key, answer.json)
        except Exception as error:  # as _flush has it
            self._break(error)
            return
        if kept is None:
            self.reply = answer
            self._wake_all()
        else:
            self._keeping = True
            kept.add_done_callback(self._after_keeping)

    def _after_keeping(self, kept: asyncio.Future[Any]) -> None:
        self._keeping = False
        error = None if kept.cancelled() else kept.exception()
        if error is not None or kept.cancelled():
            self._break(error or StoreError("the write was abandoned"))
            return
        self.reply = self.answer
        self.service.replied(self)
        self._wake_all()

    def _free_response_id(self) -> str:
        """ "response", or "response-2" and so on where an earlier answer or the agent has used that."""
        if self.past is not None and (before := self.past.artifact_id("response")) is not None:
            return before
        used = set(self.fold.artifact_ids) if self.fold is not None else set()
        for item in self._pending:
            if isinstance(item, Event) and isinstance(item.value, TaskArtifactUpdateEvent):
                used.add(item.value.artifact.artifact_id)
        id_, count = "response", 1
        while id_ in used:
            count += 1
            id_ = f"response-{count}"
        return id_

    def give_artifact(
        self, artifact: Artifact, *, append: bool = False, last_chunk: bool = False, metadata: Metadata | None = None
    ) -> None:
        """Emit an artifact or a chunk of one; `metadata` is that of the event."""
        if not artifact.parts:
            raise InvalidAgentResponse(f"Artifact {artifact.artifact_id!r} has no parts.")
        if artifact.metadata is not None or not artifact.artifact_id:
            id_ = artifact.artifact_id or new_id()
            artifact = replace(artifact, artifact_id=id_, metadata=exact(artifact.metadata))
        if self.past is not None:
            told = self.past.retell(artifact, append)
            if told is None:
                return
            artifact, append = told
        if self.state is None:
            self._make_task(TaskState.WORKING)
        update = TaskArtifactUpdateEvent(self.task_id, self.context_id, artifact, append, last_chunk, exact(metadata))
        self._emit(checked(Event(update)))

    def give_status(self, state: TaskState, message: Message | None = None, metadata: Metadata | None = None) -> None:
        """Emit a status."""
        if state in (TaskState.SUBMITTED, TaskState.UNSPECIFIED):
            raise InvalidAgentResponse(f"An agent cannot put a task into {state.value}.")
        if state.interrupted and self.past is not None and self.past.more:
            return  # what it wanted to know is there
        self._make_task(state)
        if message is not None:
            message = replace(own_message(message), task_id=self.task_id, context_id=self.context_id)
        self._emit_status(state, message, exact(metadata))

    def _make_task(self, coming: TaskState) -> None:
        """Make the task if there is none yet: SUBMITTED with the caller's message, then WORKING unless that comes."""
        if self.answer is not None:
            raise InvalidAgentResponse("The agent has answered with a Message: there is no task to say more in.")
        if self.state is None:
            timestamp = self._submit()
            if coming is TaskState.WORKING or coming is TaskState.COMPLETED or coming.interrupted:
                status = TaskStatus(TaskState.WORKING, None, timestamp)
                self._emit(Event(TaskStatusUpdateEvent(self.task_id, self.context_id, status)))

    def begin(self) -> None:
        """Make the task, SUBMITTED, if there is none yet."""
        self._make_task(TaskState.SUBMITTED)

    @property
    def stopping(self) -> TaskState | None:
        """How the task is to end that the agent is being stopped for; None while nobody stops it."""
        return self._stopping

    def _submit(self) -> str:
        """Make the task; returns the timestamp at which."""
        assert self.message is not None
        self.updated, timestamp = self.service.clock.tick()
        message = self.message = placed(self.message, self.task_id, self.context_id)
        status = TaskStatus(TaskState.SUBMITTED, None, timestamp)
        metadata = self._task_metadata
        if self.agent.resumable and (kept := request_kept(self.caller, self.metadata, self.accepts)):
            metadata = {**(metadata or {}), **kept}
        task = Task(self.task_id, status, self.context_id, history=(message,), metadata=metadata)
        self.blobs = self.blobs or has_blob(message)
        self.fold = Fold(task)
        self.state = TaskState.SUBMITTED
        self.service.runs[self.scope, self.task_id] = self
        self._put(Event(without_blobs(task) if self.blobs else task))
        return timestamp

    def ensure_task(self) -> None:
        if self.state is None and self.answer is None and self.broken is None:
            self._make_task(TaskState.SUBMITTED if self.in_line else TaskState.WORKING)
            self._flush()

    def agent_message(self, parts: tuple[Part, ...], metadata: Metadata | None = None) -> Message:
        """A message of the agent in this task, or in this context while there is no task."""
        return message_from(parts, self.task_id if self.state is not None else None, self.context_id, metadata)

    def reply_with(self, parts: tuple[Part, ...], metadata: Metadata | None) -> Message:
        """A message of the agent that it may give as its answer."""
        self._replied = self.agent_message(parts, metadata)
        return self._replied

    async def ask(self, state: TaskState, parts: tuple[Part, ...]) -> Message:
        """Put the task into `state` with a question, and wait for the caller's message."""
        self._check_whole()
        if self.past is not None and (answer := self.past.answer(state)) is not None:
            return answer
        if self._inbox and state is TaskState.INPUT_REQUIRED:  # what came before authorizes nothing (§7.6.4)
            return self._inbox.pop(0)[0]
        if self._asked is not None:
            raise InvalidAgentResponse("The agent asks while a question of its own is still open.")
        self._make_task(state)
        loop = self.loop
        asked: asyncio.Future[Message] = loop.create_future()
        self._asked = asked
        self.service.paused(self)
        asked_at = loop.time()
        self._emit_status(state, self.agent_message(parts, asks(state) if self.agent.resumable else None))
        observer = self.service.observer
        if observer is not None:
            observer.rests(self)
        try:
            answer = await asked
        except BaseException:
            if self._stopping is None and self.broken is None and self.state is state and self._asked is asked:
                self._emit_status(TaskState.WORKING, None)  # the agent has given up waiting, and goes on
                if observer is not None:
                    observer.goes_on(self)
            raise
        else:
            if observer is not None:
                observer.goes_on(self)
            return answer
        finally:
            if self._asked is asked:
                self._ask_no_more()
            self._burst = 0
            if self.deadline is not None:
                self.deadline += loop.time() - asked_at  # the caller's time is not the agent's

    def _ask_no_more(self) -> None:
        if self._asked is not None:
            self._asked = None
            self.service.unpaused(self)

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
            raise TaskEnded(self.task_id, self.state.value, "it takes no more messages, begin another task")
        free = self._next is None and (self.driver is None or (self._asked is not None and not self._asked.done()))
        if not free:
            if self.agent.while_running == "refuse":
                raise UnsupportedOperation(
                    f"Task {self.task_id!r} is at work and its agent takes no message meanwhile. Wait until it asks.",
                    metadata={"taskId": self.task_id, "state": self.state.value},
                )
            if len(self._inbox) >= self.service.limits.queued_messages:
                raise Overloaded(f"{len(self._inbox)} messages wait for task {self.task_id!r} already.")
        if self.service.observer is not None:
            self.service.observer.heard(self)
        after = self.emitted
        message = placed(message, self.task_id, self.context_id)
        self.caller = caller
        self.blobs = self.blobs or has_blob(message)
        self._pending.append(Heard(message))
        self._said += 1
        if free:
            self.resumed_from = self.status if self.state.interrupted else None
            self._next = (message, metadata, accepts)
            self._emit_status(TaskState.WORKING, None)
        else:
            self._inbox.append((message, metadata, accepts))
        self._flush()
        return after

    def has_heard(self, message: Message, *, named: bool) -> bool:
        """Whether this message has been heard in this task; one to a task that its caller has `named` has no id."""
        assert self.fold is not None
        heard = [item.message for item in self._pending if isinstance(item, Heard)]
        said = [said for said in (*self.fold.task().history, *heard) if said.role is Role.USER]
        if named:
            return bool(said) and said[-1].parts == message.parts and not (self.state is None or self.state.interrupted)
        return any(same_message(message, other) for other in said)

    def lose(self, error: StoreError) -> None:
        """The task is not this process's any more: stop."""
        self._break(error)

    def go_on(self) -> None:
        if self._next is None or self.state is None:
            return
        heard, self._next = self._next, None
        if self.state.terminal or self.broken is not None:  # it was cancelled meanwhile
            self.let_go()
            return
        if self._asked is not None and not self._asked.done():
            self._asked.set_result(heard[0])
        elif self.driver is None and self.interrupted is not None:
            past, self.interrupted = self.interrupted, None
            past.answered(self.resumed_from.state if self.resumed_from else TaskState.INPUT_REQUIRED, heard[0])
            self._start_again(past)
        elif self.driver is None:
            self._response_id = self._response = None
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

    # --- ends ---------------------------------------------------------------------------------------------------------

    def _end_normally(self) -> None:
        if self.answer is not None:
            return
        if self.state is None:
            self._make_task(TaskState.COMPLETED)
        assert self.state is not None
        if self.past is not None and not self.state.terminal:
            for artifact in self.past.cut_short():
                self._emit(Event(TaskArtifactUpdateEvent(self.task_id, self.context_id, artifact, False, True)))
            if self.past.more:
                return  # there are messages for it yet
        if not self.state.terminal and not self.state.interrupted and not self._inbox:
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
        if self.broken is not None or self.answer is not None or (self.state is not None and self.state.terminal):
            return
        self._make_task(state)
        message = self.agent_message((Part(text=printable(words)),)) if words else None
        self._emit_status(state, message)

    def history_before(self, message: Message) -> tuple[Message, ...]:
        if self.fold is None:
            return ()
        heard = [item.message for item in self._pending if isinstance(item, Heard)]
        history = (*self.fold.task().history, *heard)
        for index in range(len(history) - 1, -1, -1):  # from the end: an id may stand there twice
            if history[index].message_id == message.message_id and history[index].role == message.role:
                return history[:index]
        return history

    async def context_tasks(self, limit: int) -> tuple[Task, ...]:
        tasks = await self.service.tasks_of_context(self.scope, self.context_id, limit + 1)
        return tuple(task for task in tasks if task.id != self.task_id)[:limit]
