"""The operations of A2A 1.0 §3.1 for one agent, whatever transport they came by. Owns all runs.

Every refusal is raised before anything is begun: a transport that has got a Cursor may send its headers.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from tieline.engine.agent import Agent
from tieline.engine.clock import Clock, parse_timestamp
from tieline.engine.content import with_history
from tieline.engine.cursor import Cursor
from tieline.engine.fold import Fold
from tieline.engine.run import Run
from tieline.engine.turn import Caller
from tieline.errors import (
    A2AError,
    ContentTypeNotSupported,
    ExtensionSupportRequired,
    InternalError,
    InvalidParams,
    Overloaded,
    PushNotificationNotSupported,
    TaskEnded,
    TaskNotCancelable,
    TaskNotFound,
    UnsupportedOperation,
)
from tieline.event import Event
from tieline.ids import new_id
from tieline.stores.base import Query, Record, Store, StoreError
from tieline.types import (
    CancelTaskRequest,
    Encoded,
    GetTaskRequest,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    Metadata,
    Part,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskState,
    load,
)

__all__ = ["Limits", "Service"]

log = logging.getLogger("tieline.engine")

T = TypeVar("T")

_TICK_S = 0.25
_PRUNE_S = 60.0
_CLOSE_S = 2.0
_LOST_S = 5.0
_REFERENCES = 20
_NAME_CHARACTERS = 256


class Limits(msgspec.Struct, frozen=True):
    """What one agent may use of its server. None is no limit."""

    run_s: float | None = 24 * 3600  # seconds an agent may work on a message; waiting for the caller does not count
    concurrent_runs: int = 20_000  # agents at work at the same time; those that wait for their caller do not count
    queued_messages: int = 16  # messages that wait for one task whose agent is at work
    cancel_s: float = 10.0  # seconds a cancel waits for the agent to stop; the end of the server waits 2 at most


class _Reading:
    """A question to the store about a task that has no run."""

    __slots__ = ("stale", "task_id")

    def __init__(self, task_id: str) -> None:
        self.task_id = task_id
        self.stale = False


class Service:
    """One agent's tasks: the eleven operations.

    `namespace` keeps agents apart that share a store.
    """

    def __init__(self, agent: Agent, store: Store, *, namespace: str = "", limits: Limits | None = None) -> None:
        self.agent = agent
        self.store = store
        self.limits = limits or Limits()
        self.clock = Clock()
        self.runs: dict[tuple[str, str], Run] = {}  # by scope and task id: at work, waiting, or followed
        self._active: dict[Run, None] = {}  # those with an agent at work or waiting, in the order of their start
        self.waiting = 0  # how many of those wait for their caller
        self._quiet: dict[Run, None] = {}  # those that have said nothing yet
        self._readings: set[_Reading] = set()
        self._lost: set[tuple[str, str]] = set()  # task id and scope of what a failing store has left at work
        self._finding: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None
        self._scope_prefix = f"{len(namespace)}:{namespace}/"
        self._anonymous = self._scope_prefix + "0:/"
        self._starting: asyncio.Task[None] | None = None
        self._ready = False
        self._draining = False
        self._ticking: asyncio.TimerHandle | None = None
        self._pruning: asyncio.Task[None] | None = None
        self._prune_timer: asyncio.TimerHandle | None = None

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store and put an end to what an earlier process has left at work. Called before the first use."""
        if self._ready:
            return
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._start())
        try:
            await asyncio.shield(self._starting)
        finally:
            if self._starting is not None and self._starting.done():
                self._starting = None

    async def _start(self) -> None:
        self.clock.not_before(await self.store.open())
        for record in await self.store.unfinished(self._scope_prefix):
            try:
                task = await self._stored(record)
                await self._end_orphan(record, task, "The server stopped while this task was at work.")
            except InternalError as error:
                raise StoreError(f"task {record.task_id}, left at work earlier, cannot be ended: {error}") from error
        self._ready = True
        self._prune_later()

    async def _end_orphan(self, record: Record, task: Task, words: str) -> None:
        """End a stored task that says it is at work, but has no run: nobody would ever end it.

        Raises InternalError when that cannot be stored.
        """
        run = self.runs[record.scope, record.task_id] = Run.revive(self, Caller(), record, task)
        run.fail(words)
        try:
            await run.written()
        finally:
            self.forget(run)

    @property
    def busy(self) -> int:
        """How many agents are at work (waiting ones do not count)."""
        return len(self._active) - self.waiting

    async def drain(self, timeout_s: float) -> None:
        """Take no new work and let the agents that are at it finish, at most for `timeout_s`."""
        self._draining = True
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        while self.busy and (left := until - loop.time()) > 0:
            drivers = [run.driver for run in self._active if run.driver is not None and not run.waiting]
            await asyncio.wait(drivers, timeout=min(left, 0.2), return_when=asyncio.FIRST_COMPLETED)

    async def close(self) -> None:
        """Stop every agent: tasks at work end FAILED with a reason, those that wait for their caller stay so."""
        self._draining = True
        if not self._ready:
            return
        self._ready = False
        if self._prune_timer is not None:
            self._prune_timer.cancel()
        if self._ticking is not None:
            self._ticking.cancel()
        if self._finding is not None:
            self._finding.cancel()
        for task in (self._pruning, self._starting, self._ending):
            if task is not None:
                await asyncio.wait([task])
        active = list(self._active)
        ends = [TaskState.UNSPECIFIED if run.waiting else TaskState.FAILED for run in active]
        grace_s = min(self.limits.cancel_s, _CLOSE_S)
        await asyncio.gather(*(run.stop(end, grace_s) for run, end in zip(active, ends, strict=True)))
        for run in list(self.runs.values()):
            try:
                await run.written()
            except InternalError:
                log.error("task %s could not be stored before the end", run.task_id)

    # --- operations ---------------------------------------------------------------------------------------------------

    async def send_message(
        self, request: SendMessageRequest, caller: Caller, *, new_task: Metadata | None = None
    ) -> Encoded[Task] | Encoded[Message]:
        """A2A 1.0 §3.1.1. Waits until the task rests or ends, unless `return_immediately`.

        Before A2A 0.2.5 callers named their tasks: with `new_task`, a task id that this caller has none of begins a
        task of that id, with this metadata, and there is always a task.

        Raises:
            InvalidParams, ContentTypeNotSupported, ExtensionSupportRequired, PushNotificationNotSupported,
            TaskNotFound, UnsupportedOperation, Overloaded: nothing was begun.
            InternalError: the task could not be stored.
        """
        run, after = await self._begin(request, caller, new_task)
        if after:
            try:
                await run.written()
            finally:
                run.go_on()
        configuration = request.configuration
        history_length = None
        if configuration is not None:
            history_length = configuration.history_length
            if configuration.return_immediately:
                await self._first_moment(run)
                await run.told()
                return await self._answer(run, history_length)
        await run.settled(after)
        return await self._answer(run, history_length)

    async def send_streaming_message(
        self, request: SendMessageRequest, caller: Caller, *, new_task: Metadata | None = None
    ) -> Cursor:
        """A2A 1.0 §3.1.2. The stream begins with the task, or is one Message; otherwise as `send_message`."""
        self._check_streaming()
        run, after = await self._begin(request, caller, new_task)
        history_length = request.configuration.history_length if request.configuration is not None else None
        if after == 0:
            return Cursor(run, 0, until_input=True, history_length=history_length)
        try:
            await run.written()
            await run.readable()
            # No await until the cursor is taken: an event between them would be lost.
            return self._from_snapshot(run, until_input=True, history_length=history_length)
        finally:
            run.go_on()

    async def get_task(self, request: GetTaskRequest, caller: Caller) -> Encoded[Task]:
        """A2A 1.0 §3.1.3. Raises TaskNotFound, InvalidParams."""
        self._check_extensions(caller)
        _check_history_length(request.history_length, "historyLength")
        scope = self._scope(caller, request.tenant)
        found = await self._found(request.id, scope)
        if isinstance(found, Record) and not (found.state.terminal or found.state.interrupted):
            found = await self._living(request.id, scope)
        if isinstance(found, Record):
            return self._shown(await self._encoded(found), request.history_length, None)
        if found.published == 0 and found.broken is None:  # it is being made: nobody can know of it yet
            raise TaskNotFound(request.id)
        await found.readable()
        return self._shown(found.snapshot(), request.history_length, found.blobs)

    async def list_tasks(self, request: ListTasksRequest, caller: Caller) -> ListTasksResponse:
        """A2A 1.0 §3.1.4. Raises InvalidParams."""
        self._check_extensions(caller)
        _check_history_length(request.history_length, "historyLength")
        size = 50 if request.page_size is None else request.page_size
        if not 1 <= size <= 100:
            raise InvalidParams.at("pageSize", f"must be between 1 and 100, got {size}")
        since = None
        if request.status_timestamp_after:
            try:
                since = parse_timestamp(request.status_timestamp_after)
            except ValueError as error:
                raise InvalidParams.at("statusTimestampAfter", f"must be an RFC 3339 timestamp: {error}") from None
        state = None if request.status is TaskState.UNSPECIFIED else request.status
        query = Query(
            self._scope(caller, request.tenant),
            size,
            request.context_id or None,
            state,
            since,
            _from_page_token(request.page_token) if request.page_token else None,
        )
        page = await self._read(self.store.list(query))
        tasks = []
        for record in page.records:
            task = await self._task_of(record)
            if not request.include_artifacts:
                task = replace(task, artifacts=())
            tasks.append(with_history(task, request.history_length))
        token = _page_token(page.records[-1].updated) if page.more else ""
        return ListTasksResponse(tuple(tasks), token, size, page.total)

    async def cancel_task(self, request: CancelTaskRequest, caller: Caller) -> Encoded[Task]:
        """A2A 1.0 §3.1.5. Answers when the agent has stopped; one that does not stop is shown as it is.

        Raises TaskNotFound, TaskNotCancelable.
        """
        self._check_extensions(caller)
        run = await self._living(request.id, self._scope(caller, request.tenant))
        if isinstance(run, Record):
            raise TaskNotCancelable(request.id, run.state.value)
        try:
            await run.cancel()
            await run.readable()
            return self._shown(run.snapshot(), None, run.blobs)
        finally:
            self.forget(run)

    async def subscribe_to_task(
        self,
        request: SubscribeToTaskRequest,
        caller: Caller,
        *,
        last_event_id: int | None = None,
        until_input: bool = False,
        even_ended: bool = False,
    ) -> Cursor:
        """A2A 1.0 §3.1.6: the task as it is, then what happens, until it ends; with `until_input` until it asks, too.

        With `even_ended` a task that has ended is shown instead of refused.

        With the number of the last event that the caller has seen, the stream goes on behind it instead, even when
        the task has ended meanwhile.

        Raises TaskNotFound; UnsupportedOperation when it has ended.
        """
        self._check_streaming()
        self._check_extensions(caller)
        scope = self._scope(caller, request.tenant)
        found = await self._living(request.id, scope)
        if isinstance(found, Run):
            with self._held(found):
                await found.readable()
                if not found.closed and last_event_id is not None and last_event_id <= found.published:
                    return await self._resume(found, last_event_id, until_input)
                if not found.closed:
                    return self._from_snapshot(found, until_input=until_input)
            found = await self._living(request.id, scope)  # it ended while its last write was under way
        if isinstance(found, Run) and found.broken is not None:
            raise found.broken
        ended = found.state or TaskState.UNSPECIFIED
        missed = None if last_event_id is None else await self._missed(scope, request.id, last_event_id)
        if missed:
            return Cursor(None, 0, head=[event for _, event in missed], first=missed[0][0])
        if even_ended:
            task = await self.get_task(GetTaskRequest(request.id, request.tenant), caller)
            return Cursor(None, 0, head=[Event(task.value)])
        raise TaskEnded(request.id, ended.value, "read the task instead")

    async def create_push_notification_config(self) -> None:
        """A2A 1.0 §3.1.7. Raises PushNotificationNotSupported."""
        raise PushNotificationNotSupported("This agent sends no push notifications: stream, subscribe or poll.")

    get_push_notification_config = create_push_notification_config
    list_push_notification_configs = create_push_notification_config
    delete_push_notification_config = create_push_notification_config

    async def get_extended_agent_card(self) -> None:
        """A2A 1.0 §3.1.11. Raises UnsupportedOperation."""
        raise UnsupportedOperation("This agent has no extended card; its public card is all there is.")

    # --- beginning ----------------------------------------------------------------------------------------------------

    async def _begin(self, request: SendMessageRequest, caller: Caller, new_task: Metadata | None) -> tuple[Run, int]:
        """The run that takes the message, and the event behind which its consequences stand."""
        self._check_message(request, caller)
        message = request.message
        configuration = request.configuration
        accepts = configuration.accepted_output_modes if configuration is not None else ()
        scope = self._scope(caller, request.tenant)
        references = await self._references(scope, message) if message.reference_task_ids else ()
        if message.task_id:
            # No await behind this: a run that nobody holds may be let go, and a task that is not there is made once.
            try:
                run = await self._living(message.task_id, scope)
            except TaskNotFound:
                if new_task is None:
                    raise
                return self._begin_named(request, caller, scope, new_task), 0
            ended = run.state if isinstance(run, Record) else None
            if message.context_id and message.context_id != run.context_id:
                if isinstance(run, Run):
                    self.forget(run)
                raise InvalidParams.at("message.contextId", f"is not the context of task {message.task_id!r}")
            if isinstance(run, Record):
                assert ended is not None
                raise TaskEnded(message.task_id, ended.value, "it takes no more messages, begin another task")
            try:
                self._check_room(starts=run.driver is None)
                after = run.hear(message, caller, request.metadata, accepts)
            except A2AError:
                self.forget(run)
                raise
            run.references = references or run.references
            return run, after
        self._check_room(starts=True)
        run = Run(self, scope, caller, new_id(), message.context_id or new_id())
        run.references = references
        run.start(message, request.metadata, accepts)
        return run, 0

    def _begin_named(self, request: SendMessageRequest, caller: Caller, scope: str, metadata: Metadata) -> Run:
        """A run whose task has the id that the caller has given it, and is there at once."""
        message = request.message
        task_id = message.task_id or ""
        if len(task_id) > _NAME_CHARACTERS or not task_id.isprintable():
            raise InvalidParams.at("id", f"must be printable and have at most {_NAME_CHARACTERS} characters")
        self._check_room(starts=True)
        accepts = request.configuration.accepted_output_modes if request.configuration is not None else ()
        run = Run(self, scope, caller, task_id, message.context_id or new_id(), metadata)
        run.start(message, request.metadata, accepts)
        run.ensure_task()
        return run

    def _check_message(self, request: SendMessageRequest, caller: Caller) -> None:
        message = request.message
        self._check_extensions(caller)
        if not message.message_id:
            raise InvalidParams.at("message.messageId", "must not be empty")
        if message.role is not Role.USER:
            raise InvalidParams.at("message.role", "must be ROLE_USER")
        if not message.parts:
            raise InvalidParams.at("message.parts", "at least one part is required")
        configuration = request.configuration
        if configuration is not None:
            _check_history_length(configuration.history_length, "configuration.historyLength")
            if configuration.task_push_notification_config is not None:
                raise PushNotificationNotSupported("This agent sends no push notifications: leave the webhook out.")
        for index, part in enumerate(message.parts):
            media_type = _media_type(part)
            if media_type is not None and not self.agent.accepts(media_type):
                accepted = ", ".join(sorted(self.agent.accepted_types))
                raise ContentTypeNotSupported(
                    f"message.parts[{index}] is {media_type}; this agent takes {accepted}.",
                    metadata={"mediaType": media_type, "supported": accepted},
                )

    def _check_extensions(self, caller: Caller) -> None:
        required = self.agent.required_extensions
        if required and not required.issubset(caller.extensions):
            raise ExtensionSupportRequired(required.difference(caller.extensions))

    def _check_streaming(self) -> None:
        if not self.agent.streaming:
            raise UnsupportedOperation("This agent does not stream: use SendMessage and GetTask.")

    def _check_room(self, *, starts: bool) -> None:
        if self._draining:
            raise Overloaded("This server is shutting down.", retry_after_s=5)
        if starts and self.busy >= self.limits.concurrent_runs:
            raise Overloaded(f"{self.busy} tasks are at work here already, the limit of this server.")

    async def _first_moment(self, run: Run) -> None:
        """Give an agent the chance to reply at once; else it is a task."""
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        run.ensure_task()

    async def _answer(self, run: Run, history_length: int | None) -> Encoded[Task] | Encoded[Message]:
        reply = run.reply
        if reply is not None:
            assert isinstance(reply.value, Message)
            return Encoded(Message, json=reply.json[len(b'{"message":') : -1], value=reply.value)
        await run.readable()
        return self._shown(run.snapshot(), history_length, run.blobs)

    # --- reading ------------------------------------------------------------------------------------------------------

    def _scope(self, caller: Caller, tenant: str | None) -> str:
        name = tenant or caller.tenant
        if not name and not caller.principal:
            return self._anonymous
        return f"{self._scope_prefix}{len(name)}:{name}/{caller.principal}"

    def _run(self, task_id: str, scope: str) -> Run | None:
        return self.runs.get((scope, task_id))

    async def _found(self, task_id: str, scope: str) -> Run | Record:
        """A task's run, else its record as it stands now.

        Raises TaskNotFound; InvalidParams for an empty id.
        """
        if not task_id:
            raise InvalidParams.at("id", "must not be empty")
        while True:
            run = self._run(task_id, scope)
            if run is not None:
                return run
            with self._reading(task_id) as reading:
                record = await self._read(self.store.get(scope, task_id))
                if reading.stale or self._run(task_id, scope) is not None:
                    continue
            if record is None:
                raise TaskNotFound(task_id)
            return record

    async def _living(self, task_id: str, scope: str) -> Run | Record:
        """The run of a task that has not ended, made if need be; its record if it has.

        A task that says it is at work but has no run was left so by a failing store: it is ended first.

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
            with self._reading(task_id) as reading:
                task = await self._stored(found)
                if reading.stale or self._run(task_id, scope) is not None:
                    continue
            if found.state.interrupted:
                run = self.runs[scope, task_id] = Run.revive(self, Caller(), found, task)
                return run
            await self._end_orphan(found, task, "The server lost track of this task when its store failed.")

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

    @contextmanager
    def _held(self, run: Run) -> Iterator[None]:
        """Keep a run from being let go."""
        run.cursors += 1
        try:
            yield
        finally:
            run.cursors -= 1
            self.forget(run)

    async def _resume(self, run: Run, after: int, until_input: bool) -> Cursor:
        if after >= run.base:
            return Cursor(run, after, until_input=until_input)
        base = run.base
        missed = await self._missed(run.scope, run.task_id, after)
        head = [event for number, event in missed or () if number <= base]
        if len(head) != base - after:
            await run.readable()
            return self._from_snapshot(run, until_input=until_input)
        return Cursor(run, base, head=head, first=after + 1, until_input=until_input)

    def _from_snapshot(self, run: Run, *, until_input: bool = False, history_length: int | None = None) -> Cursor:
        task = run.task()
        event = Event(with_history(task, history_length))
        if (
            until_input and task.state is TaskState.INPUT_REQUIRED and not run.has_mail
        ):  # it has asked again: all is told
            return Cursor(None, 0, head=[event], first=run.published)
        return Cursor(run, run.published, head=[event], first=run.published, until_input=until_input)

    async def _task_of(self, record: Record) -> Task:
        """A record's task: of its run where there is one, else its snapshot with the events behind it folded in."""
        run = self._run(record.task_id, record.scope)
        if run is not None and run.published:
            await run.readable()
            return run.task()
        return await self._stored(record)

    async def _read(self, reading: Awaitable[T]) -> T:
        """What a store gives. Raises InternalError when it cannot; the reason is for the log."""
        try:
            return await reading
        except StoreError as error:
            log.error("%s", error)
            raise InternalError("The store of this server is not available. Try again later.") from error

    async def _stored(self, record: Record) -> Task:
        """A record's snapshot with the events behind it folded in."""
        task = load(record.snapshot, Task)
        if record.version == record.snapshot_version:
            return task
        fold = Fold(task)
        for _, event in (
            await self._read(self.store.events(record.scope, record.task_id, record.snapshot_version)) or ()
        ):
            fold.apply(event.value)
        return fold.task()

    async def _encoded(self, record: Record) -> Encoded[Task]:
        if record.version == record.snapshot_version:
            return Encoded(Task, json=record.snapshot)
        return Encoded(Task, value=await self._task_of(record))

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

    # --- what runs tell -----------------------------------------------------------------------------------------------

    def began(self, run: Run) -> None:
        """A run's agent has been put to work."""
        self._active[run] = None
        if run.state is None:
            self._quiet[run] = None
        if self._ticking is None:
            self._ticking = run.loop.call_later(_TICK_S, self._tick)

    def ended(self, run: Run) -> None:
        """A run's agent is done."""
        self._active.pop(run, None)
        self._quiet.pop(run, None)
        self.forget(run)

    def lost(self, run: Run) -> None:
        """A run whose store has failed: its task is ended when the store takes writes again."""
        if run.published:
            self._lost.add((run.task_id, run.scope))
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
                    if isinstance(found, Run):
                        self.forget(found)
        self._ending = None
        if self._lost and self._finding is None:
            self._finding = asyncio.get_running_loop().call_later(_LOST_S, self._find_lost)

    def forget(self, run: Run) -> None:
        """Let go of a run that nobody needs."""
        key = (run.scope, run.task_id)
        if run.driver is None and run.cursors == 0 and run.idle and self.runs.get(key) is run:
            del self.runs[key]
            for reading in self._readings:
                if reading.task_id == run.task_id:
                    reading.stale = True

    def _tick(self) -> None:
        """Look after time limits and quiet agents, while any agent is at work."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        after = self.agent.task_after_s
        for run in list(self._quiet):
            if run.state is not None or run.reply is not None:
                del self._quiet[run]
            elif after is None or now - run.started < after:
                break
            else:
                run.ensure_task()
        for run in list(self._active):
            if run.deadline is not None and now > run.deadline and not run.waiting:
                run.expire()
        self._ticking = loop.call_later(_TICK_S, self._tick) if self._active else None

    def _prune_later(self) -> None:
        self._prune_timer = asyncio.get_running_loop().call_later(_PRUNE_S, self._begin_prune)

    def _begin_prune(self) -> None:
        self._pruning = asyncio.ensure_future(self._prune())

    async def _prune(self) -> None:
        try:
            dropped = await self.store.prune(self.clock.tick()[0])
            if dropped.tasks:
                log.info("dropped %d ended tasks, %d bytes", dropped.tasks, dropped.bytes)
        except StoreError as error:
            log.error("ended tasks cannot be dropped: %s", error)
        finally:
            self._pruning = None
            if self._ready:
                self._prune_later()


def _media_type(part: Part) -> str | None:
    """What a part is, as far as it says; None is unknown."""
    if part.media_type:
        return part.media_type
    if part.text is not None:
        return "text/plain"
    return None if part.raw is not None or part.url is not None else "application/json"


def _check_history_length(length: int | None, field: str) -> None:
    if length is not None and length < 0:
        raise InvalidParams.at(field, f"must not be negative, got {length}")


def _page_token(updated: int) -> str:
    return base64.urlsafe_b64encode(str(updated).encode()).decode().rstrip("=")


def _from_page_token(token: str) -> int:
    try:
        text = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        if not text.isdigit() or len(text) > 18:
            raise ValueError
        return int(text)
    except (ValueError, binascii.Error):
        raise InvalidParams.at("pageToken", "is not a token that this server has given") from None
