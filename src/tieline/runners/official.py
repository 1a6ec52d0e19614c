"""Executors of the official SDK as agents: an AgentExecutor of a2a-sdk 1.x runs here as it is.

    from_executor(executor, card=agent_card) -> Agent

Each turn calls `execute` with a RequestContext and an EventQueue of the SDK's own types. What the executor enqueues is
given to the run at once, in the executor's own step: there is no queue between.

    Task                      begins the task; one that comes later updates status and artifacts
    Message                   the answer, without a task; ends COMPLETED a task that is there already
    TaskStatusUpdateEvent     its status
    TaskArtifactUpdateEvent   an artifact or a chunk of one
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar

from msgspec.structs import replace

from tieline.card import AgentExtension, AgentProvider, AgentSkill
from tieline.engine.agent import Agent, slug_of
from tieline.errors import Failed, InvalidAgentResponse, Rejected
from tieline.types import Message, Metadata, Task, TaskArtifactUpdateEvent, TaskState, TaskStatus

try:
    from a2a.auth.user import User
    from a2a.server.agent_execution import RequestContext
    from a2a.server.context import ServerCallContext
    from a2a.server.events import EventQueue
    from a2a.types import a2a_pb2 as official
    from a2a.utils import errors as official_errors

    from tieline.wire.protobuf import (
        read_artifact_update,
        read_message,
        read_status_update,
        read_task,
        write_message,
        write_task,
    )
    from tieline.wire.protobuf_fields import Fault, read_struct, write_struct
except ImportError as error:
    raise ImportError(
        f"An AgentExecutor runs with the official SDK, version 1: pip install 'a2a-sdk>=1.0,<2' ({error})"
    ) from error

if TYPE_CHECKING:
    from tieline.engine.run import Run
    from tieline.engine.turn import Turn

__all__ = ["AgentExecutor", "from_executor"]

log = logging.getLogger("tieline.runners")

_FAILURES: Final = (official_errors.InternalError, official_errors.InvalidAgentResponseError)
T = TypeVar("T")


class AgentExecutor(Protocol):
    """The interface of the official SDK's AgentExecutor."""

    async def execute(self, context: Any, event_queue: Any) -> None:
        """Work on the message in `context`; what is enqueued goes to the caller."""

    async def cancel(self, context: Any, event_queue: Any) -> None:
        """Help to stop the task of `context`."""


def from_executor(
    executor: AgentExecutor,
    *,
    card: Any = None,
    name: str | None = None,
    description: str | None = None,
    version: str | None = None,
    while_running: Literal["queue", "refuse"] = "queue",
    task_after_s: float | None = None,
) -> Agent:
    """Make an agent of an executor of the official SDK.

    As on the SDK's own server, parts of any media type are let through to the executor.

    Args:
        executor: An object with `async execute(context, event_queue)` and `async cancel(context, event_queue)`.
        card: The SDK's AgentCard. It gives name, description, version, skills, modes, provider, extensions, URLs and
            whether callers may stream. Where the agent is found, and what it speaks, its mount says.
        name: Instead of the card's; without both, made of the class name.
        description: Instead of the card's; without both, the first line of the class's docstring.
        version: Instead of the card's; without both, "1.0.0".
        while_running: What happens to a message for a task that is at work, see `agent`.
        task_after_s: After so many silent seconds the turn becomes a task in state WORKING; None waits for the
            executor's first event, as the SDK does.

    Raises:
        ValueError: the card would not be valid.
    """
    told = official.AgentCard() if card is None else card
    kind = type(executor)
    name = name or told.name or _name_of(kind)
    doc = (kind.__dict__.get("__doc__") or "").strip()
    return _ExecutorAgent(
        _Bridge(executor),
        name=name,
        description=description or told.description or doc.partition("\n")[0] or f"The agent {name}.",
        version=version or told.version or "1.0.0",
        skills=[_skill(skill) for skill in told.skills],
        input_modes=tuple(told.default_input_modes) or ("text/plain",),
        output_modes=tuple(told.default_output_modes) or ("text/plain",),
        extensions=[_extension(extension) for extension in told.capabilities.extensions],
        streaming=card is None or told.capabilities.streaming,
        provider=_provider(told.provider),
        documentation_url=told.documentation_url or None,
        icon_url=told.icon_url or None,
        while_running=while_running,
        task_after_s=task_after_s,
    )


class _ExecutorAgent(Agent):
    def accepts(self, media_type: str) -> bool:
        """Executors look at media types themselves: the SDK's server checks none, and its cards say what they like."""
        return True


# --- running ----------------------------------------------------------------------------------------------------------


class _Bridge:
    """The function of such an agent."""

    def __init__(self, executor: AgentExecutor) -> None:
        self._executor = executor

    async def __call__(self, turn: Turn) -> None:
        run = turn._run
        before = await _task_before(run, turn.message)
        call_context = _call_context(turn)
        events = _Events(run, before)
        context = RequestContext(
            call_context,
            _to_official(official.SendMessageRequest, _write_request, turn),
            task_id=turn.task_id,
            context_id=turn.context_id,
            task=events.before,
            related_tasks=[_task_to_official(task) for task in turn.references],
        )
        # A task of its own: `cancel` is called while it still runs, as the SDK does.
        work = asyncio.create_task(_contained(self._executor.execute(context, events)))
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError:
            await self._stop(run, call_context, events, work)
            raise
        finally:
            events.close_now()
        try:
            work.result()
        except official_errors.A2AError as error:
            raise _ending(error) from error
        if events.fault is not None:
            raise events.fault

    async def _stop(self, run: Run, call_context: Any, events: _Events, work: asyncio.Task[None]) -> None:
        """Stop the executor; the end that it then tells is told when it has stopped."""
        canceled = run.stopping is TaskState.CANCELED
        events.hold_the_end()
        try:
            if canceled:
                await self._ask_to_cancel(run, call_context, events)
        finally:
            work.cancel()
            await asyncio.wait([work])
            events.close_now()
        if not work.cancelled() and (error := work.exception()) is not None:
            log.warning("executor of task %s failed while it was stopped", run.task_id, exc_info=error)
        if events.end is not None and (canceled or events.end[0] is not TaskState.CANCELED):
            run.give_status(*events.end)

    async def _ask_to_cancel(self, run: Run, call_context: Any, events: _Events) -> None:
        context = RequestContext(
            call_context,
            task_id=run.task_id,
            context_id=run.context_id,
            task=None if run.fold is None else _task_to_official(run.task()),
        )
        try:
            async with asyncio.timeout(run.service.limits.cancel_s / 2):
                await _contained(self._executor.cancel(context, events))
        except (NotImplementedError, official_errors.UnsupportedOperationError):
            log.debug("executor of task %s has no way to cancel: its execute is cancelled", run.task_id)
        except Exception:  # the executor's bug; its execute is cancelled all the same
            log.exception("cancel of the executor failed in task %s", run.task_id)


async def _contained(work: Awaitable[None]) -> None:
    """An executor that raises what would end the process ends its own task instead."""
    try:
        await work
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"the executor raised {type(error).__name__}") from error


class _Events(EventQueue):
    """The EventQueue of one call: what is put in is with the run before `enqueue_event` returns."""

    def __init__(self, run: Run, before: Task | None) -> None:
        self.before = None if before is None else _task_to_official(before)
        self.fault: InvalidAgentResponse | None = None
        self.end: tuple[TaskState, Message | None, Metadata | None] | None = None
        self._run = run
        self._closed = False
        self._holding = False
        self._told = None if before is None else _task_to_official(before)  # the executor may change `before`
        self._artifact_ids = {artifact.artifact_id for artifact in before.artifacts} if before is not None else set()

    async def enqueue_event(self, event: Any) -> None:
        """Tell the caller. An event behind the end of the task, or of `execute`, is left out, with a line in the log.

        Raises InvalidAgentResponse for what cannot be told; the task ends FAILED then.
        """
        run = self._run
        over = run.reply is not None or self.end is not None or (run.state is not None and run.state.terminal)
        if self._closed or over or self.fault is not None:
            why = "the task has ended" if over else "the call of the executor is over"
            log.warning("a %s of the executor is left out in task %s: %s", type(event).__name__, run.task_id, why)
            return
        try:
            self._give(event)
        except Fault as error:
            self.fault = InvalidAgentResponse(f"The {type(event).__name__} is not valid: {error.field}: {error}")
            raise self.fault from None
        except InvalidAgentResponse as error:
            self.fault = error
            raise
        await run.pace()

    async def close(self, immediate: bool = False) -> None:
        """Take no more events."""
        self._closed = True

    def is_closed(self) -> bool:
        """Whether events are left out."""
        return self._closed

    def close_now(self) -> None:
        """The call is over."""
        self._closed = True

    def hold_the_end(self) -> None:
        """Keep the end that the executor tells in `end`: it is still at work."""
        self._holding = True

    def _give(self, event: Any) -> None:
        if isinstance(event, official.TaskArtifactUpdateEvent):
            self._check_place(event.task_id, event.context_id)
            self._give_artifact(read_artifact_update(event))
        elif isinstance(event, official.TaskStatusUpdateEvent):
            self._check_place(event.task_id, event.context_id)
            update = read_status_update(event)
            self._give_status(update.status, update.metadata)
        elif isinstance(event, official.Message):
            message = read_message(event)
            if self._run.state is None:
                self._run.give(message)
            else:
                self._give_status(TaskStatus(TaskState.COMPLETED, message), None)
        elif isinstance(event, official.Task):
            self._check_place(event.id, event.context_id)
            if event != self._told:  # one that it was shown and puts back says nothing
                self._give_task(read_task(event))
        else:
            raise InvalidAgentResponse(f"A {type(event).__name__} is not an event of the official SDK.")

    def _check_place(self, task_id: str, context_id: str) -> None:
        run = self._run
        if task_id and task_id != run.task_id:
            raise InvalidAgentResponse(f"The event is for task {task_id!r}; the executor works on {run.task_id!r}.")
        if context_id and context_id != run.context_id:
            raise InvalidAgentResponse(f"The event is for context {context_id!r}; the task is in {run.context_id!r}.")

    def _give_task(self, task: Task) -> None:
        if self._run.state is None:
            self._run.begin()
        for artifact in task.artifacts:
            self._give_artifact(TaskArtifactUpdateEvent(task.id, "", artifact, last_chunk=True))
        if task.status.message is not None or task.state is not self._run.state:
            self._give_status(task.status, None)

    def _give_status(self, status: TaskStatus, metadata: Metadata | None) -> None:
        run, state, message = self._run, status.state, status.message
        if message is not None and not message.parts:
            message = None
        if state in (TaskState.SUBMITTED, TaskState.UNSPECIFIED):
            if run.state is None:
                run.begin()
            if message is None and metadata is None:
                return
            state = TaskState.WORKING  # words are told as they are; no task goes back to SUBMITTED
        if state.terminal and self._holding:
            self.end = state, message, metadata
        else:
            run.give_status(state, message, metadata)

    def _give_artifact(self, update: TaskArtifactUpdateEvent) -> None:
        run, artifact, append = self._run, update.artifact, update.append
        if not artifact.parts:
            log.warning("artifact %r of task %s has no parts: it is left out", artifact.artifact_id, run.task_id)
            return
        if append and artifact.artifact_id not in self._artifact_ids:
            append = False  # the first chunk: there is nothing to put it behind
        self._artifact_ids.add(artifact.artifact_id)
        run.give_artifact(artifact, append=append, last_chunk=update.last_chunk, metadata=update.metadata)


async def _task_before(run: Run, message: Message) -> Task | None:
    """The task as it was when `message` came: what it asked still stands in its status. None when there is none yet."""
    if run.fold is None:
        return None
    await run.written()
    history = run.history_before(message)
    if not history and run.resumed_from is None:
        return None  # its caller has named it, so that it is there with its first message
    task = run.task()
    status = run.resumed_from or task.status
    if status.message is not None and history and history[-1].message_id == status.message.message_id:
        history = history[:-1]
    return replace(task, status=status, history=history)


class _Caller(User):
    def __init__(self, principal: str) -> None:
        self._principal = principal

    @property
    def is_authenticated(self) -> bool:
        return bool(self._principal)

    @property
    def user_name(self) -> str:
        return self._principal


def _call_context(turn: Turn) -> Any:
    caller = turn.caller
    headers = {"a2a-version": caller.version}
    if caller.extensions:
        headers["a2a-extensions"] = ", ".join(caller.extensions)
    return ServerCallContext(
        state={"headers": headers},
        user=_Caller(caller.principal),
        tenant=caller.tenant,
        requested_extensions=set(caller.extensions),
    )


def _ending(error: Exception) -> Rejected | Failed:
    """How a task ends whose executor raised an error of the protocol: with its words, which are for the caller."""
    if isinstance(error, _FAILURES):
        log.error("the executor failed: %s", error, exc_info=error)
        return Failed(str(error))
    return Rejected(str(error))


# --- the card ---------------------------------------------------------------------------------------------------------


def _name_of(kind: type) -> str:
    """A class name as words, without what says only that it is an executor."""
    bare = re.sub(r"(?:_?Agent)?_?Executor$", "", kind.__name__).strip("_") or kind.__name__
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_+", " ", bare).split()
    return " ".join(words[:1] + [word if word.isupper() else word.lower() for word in words[1:]])


def _skill(skill: Any) -> AgentSkill:
    """Security requirements are left out, as the schemes are: what is asked for is the server's business."""
    id_ = skill.id or slug_of(skill.name)
    name = skill.name or id_
    return AgentSkill(
        id_,
        name,
        skill.description or name,
        tuple(skill.tags) or (slug_of(id_),),
        tuple(skill.examples),
        tuple(skill.input_modes),
        tuple(skill.output_modes),
    )


def _extension(extension: Any) -> AgentExtension:
    params = read_struct(extension.params) if extension.HasField("params") else None
    return AgentExtension(extension.uri, extension.description or None, extension.required, params)


def _provider(provider: Any) -> AgentProvider | None:
    return AgentProvider(provider.url, provider.organization) if provider.url and provider.organization else None


# --- values -----------------------------------------------------------------------------------------------------------


def _to_official(kind: Any, write: Callable[[Any, T], None], value: T) -> Any:
    """A value as a message of the SDK. Raises Rejected for what protobuf would change."""
    message = kind()
    try:
        write(message, value)
    except Fault as fault:
        raise Rejected(
            f"The agent cannot be shown {fault.field} as it is: its SDK keeps numbers as doubles and JSON at most"
            " 100 levels deep. Send such values as text."
        ) from None
    return message


def _write_request(into: Any, turn: Turn) -> None:
    try:
        write_message(into.message, turn.message)
    except Fault as fault:
        raise fault.within("message") from None
    into.configuration.accepted_output_modes.extend(turn.accepts)
    metadata = turn._run.metadata
    if metadata is not None:
        try:
            write_struct(into.metadata, metadata)
        except Fault as fault:
            raise fault.within("metadata") from None


def _task_to_official(task: Task) -> Any:
    return _to_official(official.Task, write_task, task)
