"""The operations of A2A 1.0 §3.1 for one agent, whatever transport they came by. Owns all runs.

Every refusal is raised before anything is begun: a transport that has got a Cursor may send its headers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import Context
from functools import partial
from typing import TypeVar, cast

from msgspec.structs import replace

from tieline.engine.agent import Agent
from tieline.engine.clock import parse_timestamp
from tieline.engine.content import with_history
from tieline.engine.cursor import Cursor
from tieline.engine.letters import Answer, Cancel, Hear, Question, Wait, refusal, refused
from tieline.engine.log import TaskLog
from tieline.engine.push import Payloads, Push
from tieline.engine.remote import Remote
from tieline.engine.replica import Gone, Replica
from tieline.engine.requests import (
    check_extensions,
    check_history_length,
    check_message,
    check_named,
    from_page_token,
    message_key,
    page_token,
    same_message,
    task_key,
)
from tieline.engine.run import Run
from tieline.engine.tasks import Limits
from tieline.engine.turn import Caller
from tieline.engine.upkeep import Upkeep
from tieline.engine.webhooks import Change, Webhooks
from tieline.errors import (
    A2AError,
    InternalError,
    InvalidParams,
    Overloaded,
    PushNotificationNotSupported,
    RateLimited,
    TaskEnded,
    TaskNotCancelable,
    TaskNotFound,
    Unavailable,
    UnsupportedOperation,
)
from tieline.event import Event
from tieline.ids import new_id
from tieline.stores.base import Outcome, Query, Record, SharedStore, Store, StoreError
from tieline.types import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    Encoded,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    Metadata,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)

__all__ = ["Limits", "Service"]

log = logging.getLogger("tieline.engine")

_CLOSE_S = 2.0
_ASK_S = 20.0

T = TypeVar("T")


class Service(Upkeep):
    """One agent's tasks: the eleven operations.

    `namespace` keeps agents apart that share a store.
    """

    def __init__(
        self,
        agent: Agent,
        store: Store,
        *,
        namespace: str = "",
        limits: Limits | None = None,
        push: Push | None = None,
        payloads: Payloads | None = None,
    ) -> None:
        """`push` and `payloads`: how push notifications are sent; None: it sends none."""
        super().__init__(agent, store, namespace=namespace, limits=limits)
        if push is not None and payloads is not None:
            self.webhooks = Webhooks(self, push, payloads)
        self._starting: asyncio.Task[None] | None = None
        self._remembers = True  # messages, so that one which comes again has the outcome of the first
        self._hearing: dict[tuple[str, str], list[asyncio.Future[None]]] = {}  # see _deciding

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store and put an end to what an earlier process has left at work. Called before the first use."""
        if self._ready:
            return
        if self._starting is None:
            # In a context of its own: what lives on is no part of the call that is the first to need the service.
            self._starting = asyncio.create_task(self._start(), context=Context())
        try:
            await asyncio.shield(self._starting)
        finally:
            if self._starting is not None and self._starting.done():
                self._starting = None

    async def _start(self) -> None:
        if self.store.shared:
            replica = Replica.of(cast(SharedStore, self.store), self.limits.lease_s)
            self.clock.not_before(await replica.join(self))
            self.replica = replica
        else:
            self.clock.not_before(await self.store.open())
        self._draining = False
        self._remembers = self.store.retention.messages.ttl_s != 0
        if self.webhooks is not None:
            self.webhooks.open()
        try:
            await self.adopt()
        except StoreError:
            if self.replica is not None:
                await self.replica.leave(self)
            raise
        self._ready = True
        self._prune_later()

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
        if self._starting is not None:
            await asyncio.wait([self._starting])
        await self._stop_upkeep()
        active = list(self._active)
        stays = self.agent.resumable
        ends = [TaskState.UNSPECIFIED if run.waiting or (stays and run.state) else TaskState.FAILED for run in active]
        grace_s = min(self.limits.cancel_s, _CLOSE_S)
        await asyncio.gather(*(run.stop(end, grace_s) for run, end in zip(active, ends, strict=True)))
        for run in list(self.runs.values()):
            try:
                await run.written()
            except InternalError:
                log.error("task %s could not be stored before the end", run.task_id)
            if self.replica is not None:
                self._release(run)
        if self.webhooks is not None:
            await self.webhooks.close()
        if self.replica is not None:
            await self.replica.leave(self)

    # --- operations ---------------------------------------------------------------------------------------------------

    async def send_message(
        self, request: SendMessageRequest, caller: Caller, *, new_task: Metadata | None = None
    ) -> Encoded[Task] | Encoded[Message]:
        """A2A 1.0 §3.1.1. Waits until the task rests or ends, unless `return_immediately`.

        Before A2A 0.2.5 callers named their tasks: with `new_task`, a task id that this caller has none of begins a
        task of that id, with this metadata, and there is always a task.

        Raises:
            InvalidParams, ContentTypeNotSupported, ExtensionSupportRequired, PushNotificationNotSupported,
            TaskNotFound, UnsupportedOperation, Unavailable: nothing was begun.
            InternalError: the task could not be stored.
        """
        while True:
            run, after = await self._begin(request, caller, new_task)
            try:
                return await self._answer_to(request, run, after)
            except InternalError:
                if not isinstance(run, TaskLog) or not run.moved:
                    raise  # else another replica has taken the task over: what was not heard here is heard there

    async def _answer_to(
        self, request: SendMessageRequest, run: TaskLog | Record | Event, after: int
    ) -> Encoded[Task] | Encoded[Message]:
        """What `send_message` answers, when its message has begun or reached `run`."""
        configuration = request.configuration
        history_length = None if configuration is None else configuration.history_length
        if isinstance(run, (Record, Event)):  # it was heard before, and this is what came of it
            return await self._ended(run, history_length)
        if after or run.base:
            with self._held(run):
                try:
                    await run.written()
                finally:
                    run.go_on()
                if configuration is not None and configuration.return_immediately:
                    await self._first_moment(run)
                else:
                    await run.settled(after)
                return await self._answer(run, history_length)
        if configuration is not None and configuration.return_immediately:
            await self._first_moment(run)
            await run.told()
        else:
            await run.settled(0)
        return await self._answer(run, history_length)

    async def send_streaming_message(
        self, request: SendMessageRequest, caller: Caller, *, new_task: Metadata | None = None
    ) -> Cursor:
        """A2A 1.0 §3.1.2. The stream begins with the task, or is one Message; otherwise as `send_message`."""
        self._check_streaming()
        while True:
            run, after = await self._begin(request, caller, new_task)
            try:
                return await self._stream_of(request, run, after)
            except InternalError:
                if not isinstance(run, TaskLog) or not run.moved:
                    raise  # else as in `send_message`

    async def _stream_of(self, request: SendMessageRequest, run: TaskLog | Record | Event, after: int) -> Cursor:
        """The stream that a message opens that has begun or reached `run`."""
        history_length = request.configuration.history_length if request.configuration is not None else None
        if isinstance(run, (Record, Event)):
            return await self._ended_stream(run, history_length)
        if after == 0 and not run.base:
            return Cursor(run, 0, until_input=True, history_length=history_length)
        with self._held(run):
            try:
                await run.written()
                await run.readable()
                if after == 0:  # it was heard before: its stream is told once more
                    return await self._resume(run, 0, until_input=True)
                # No await until the cursor is taken: an event between them would be lost.
                return self._from_snapshot(run, until_input=True, history_length=history_length)
            finally:
                run.go_on()

    async def get_task(self, request: GetTaskRequest, caller: Caller) -> Encoded[Task]:
        """A2A 1.0 §3.1.3. Raises TaskNotFound, InvalidParams."""
        check_extensions(self.agent, caller)
        check_history_length(request.history_length, "historyLength")
        scope = self._scope(caller, request.tenant)
        found = await self._found(request.id, scope)
        if isinstance(found, Record) and self._is_lost(found) and not self._hands_on:
            living = await self._living(request.id, scope)
            found = living if isinstance(living, Run) else await self._found(request.id, scope)
        if isinstance(found, Record):
            return self._shown(await self._encoded(found), request.history_length, None)
        if found.published == 0 and found.broken is None:  # it is being made: nobody can know of it yet
            raise TaskNotFound(request.id)
        await found.readable()
        return self._shown(found.snapshot(), request.history_length, found.blobs)

    async def list_tasks(self, request: ListTasksRequest, caller: Caller) -> ListTasksResponse:
        """A2A 1.0 §3.1.4. Raises InvalidParams."""
        check_extensions(self.agent, caller)
        check_history_length(request.history_length, "historyLength")
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
            from_page_token(request.page_token) if request.page_token else None,
        )
        page = await self._read(self.store.list(query))
        tasks = []
        for record in page.records:
            task = await self._task_of(record)
            if not request.include_artifacts:
                task = replace(task, artifacts=())
            tasks.append(with_history(task, request.history_length))
        last = page.records[-1] if page.more else None
        token = "" if last is None else page_token((last.updated, last.task_id))
        return ListTasksResponse(tuple(tasks), token, size, page.total)

    async def cancel_task(self, request: CancelTaskRequest, caller: Caller) -> Encoded[Task]:
        """A2A 1.0 §3.1.5. Answers when the agent has stopped; one that does not stop is shown as it is.

        Raises TaskNotFound, TaskNotCancelable.
        """
        check_extensions(self.agent, caller)
        scope = self._scope(caller, request.tenant)
        while True:
            run = await self._living(request.id, scope)
            if isinstance(run, Record):
                raise TaskNotCancelable(request.id, run.state.value)
            with self._held(run):
                if isinstance(run, Run):
                    try:
                        await run.cancel()
                    except InternalError:
                        if run.moved:
                            continue
                        raise
                elif await self._ask(run, Cancel()) is None:
                    continue
                await run.readable()
                return self._shown(run.snapshot(), None, run.blobs)

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
        check_extensions(self.agent, caller)
        scope = self._scope(caller, request.tenant)
        found = await self._living(request.id, scope)
        if isinstance(found, TaskLog):
            with self._held(found):
                await found.readable()
                if not found.closed and last_event_id is not None and last_event_id <= found.published:
                    return await self._resume(found, last_event_id, until_input)
                if not found.closed:
                    return self._from_snapshot(found, until_input=until_input)
            found = await self._living(request.id, scope)  # it ended while its last write was under way
        if isinstance(found, TaskLog) and found.broken is not None:
            raise found.broken
        ended = found.state if isinstance(found, Record) else found.task().state
        missed = None if last_event_id is None else await self._missed(scope, request.id, last_event_id)
        if missed:
            return Cursor(None, 0, head=[event for _, event in missed], first=missed[0][0])
        if even_ended:
            task = await self.get_task(GetTaskRequest(request.id, request.tenant), caller)
            return Cursor(None, 0, head=[Event(task.value)])
        raise TaskEnded(request.id, ended.value, "read the task instead")

    async def create_push_notification_config(
        self, request: TaskPushNotificationConfig, caller: Caller
    ) -> TaskPushNotificationConfig:
        """A2A 1.0 §3.1.7: what happens to the task from now on is sent there. One of the same id is replaced.

        Raises PushNotificationNotSupported, TaskNotFound, InvalidParams.
        """
        hooks, scope, found = await self._hooked(request.task_id, request.tenant, caller)
        hooks.checked(request)
        return await self._read(hooks.create(scope, found, request, caller.version))

    async def get_push_notification_config(
        self, request: GetTaskPushNotificationConfigRequest, caller: Caller
    ) -> TaskPushNotificationConfig:
        """A2A 1.0 §3.1.8. Raises PushNotificationNotSupported, TaskNotFound."""
        hooks, scope, _ = await self._hooked(request.task_id, request.tenant, caller)
        return await self._read(hooks.get(scope, request.task_id, request.id))

    async def list_push_notification_configs(
        self, request: ListTaskPushNotificationConfigsRequest, caller: Caller
    ) -> ListTaskPushNotificationConfigsResponse:
        """A2A 1.0 §3.1.9: all of them. Raises PushNotificationNotSupported, TaskNotFound."""
        hooks, scope, _ = await self._hooked(request.task_id, request.tenant, caller)
        return await self._read(hooks.list(scope, request.task_id))

    async def delete_push_notification_config(
        self, request: DeleteTaskPushNotificationConfigRequest, caller: Caller
    ) -> None:
        """A2A 1.0 §3.1.10; deleting twice is allowed. Raises PushNotificationNotSupported, TaskNotFound."""
        hooks, scope, _ = await self._hooked(request.task_id, request.tenant, caller)
        await self._read(hooks.delete(scope, request.task_id, request.id))

    def _hooks(self, instead: str = "stream, subscribe or poll.") -> Webhooks:
        if self.webhooks is None:
            raise PushNotificationNotSupported(f"This agent sends no push notifications: {instead}")
        return self.webhooks

    async def _hooked(
        self, task_id: str | None, tenant: str | None, caller: Caller
    ) -> tuple[Webhooks, str, Run | Record]:
        """What an operation on webhooks needs: those of the agent, the scope, and what there is of the task."""
        hooks = self._hooks()
        check_extensions(self.agent, caller)
        if not task_id:
            raise InvalidParams.at("taskId", "must not be empty")
        scope = self._scope(caller, tenant)
        found = await self._found(task_id, scope)
        if isinstance(found, Run) and found.published == 0 and found.broken is None:
            raise TaskNotFound(task_id)  # as `get_task` has it
        return hooks, scope, found

    # --- beginning ----------------------------------------------------------------------------------------------------

    async def _begin(
        self, request: SendMessageRequest, caller: Caller, new_task: Metadata | None
    ) -> tuple[TaskLog | Record | Event, int]:
        """The log of the task that takes the message, and the event behind which its consequences stand.

        Of a message that was heard before: the log of what came of it, the record of its task that has ended, or the
        Message that answered it.
        """
        check_message(self.agent, request, caller)
        message = request.message
        configuration = request.configuration
        if configuration is not None and configuration.task_push_notification_config is not None:
            hooks = self._hooks("leave the webhook out.")
            hooks.checked(configuration.task_push_notification_config, "configuration.taskPushNotificationConfig")
        accepts = configuration.accepted_output_modes if configuration is not None else ()
        scope = self._scope(caller, request.tenant)
        references = await self._references(scope, message) if message.reference_task_ids else ()
        if message.task_id:
            try:
                return await self._tell(request, caller, scope, accepts, references, named=new_task is not None)
            except TaskNotFound:
                if new_task is None:
                    raise
            check_named(message.task_id)
            key, task_id = task_key(scope, message.task_id), message.task_id
        else:
            key, task_id = message_key(scope, message), ""
        self._check_room(caller, starts=True)
        task_id = task_id or new_id()
        inline = None if configuration is None else configuration.task_push_notification_config
        hooked: Change | None = None
        if inline is not None and self.webhooks is not None:
            first = self.webhooks.set_first(scope, task_id, inline, caller.version, message.message_id)
            hooked = await self._read(first)
        begins = False
        try:
            heard = self.store.hear(key, task_id, self._age.now()) if self._remembers else None
            if isinstance(heard, asyncio.Future):
                heard = await self._to_begin(scope, task_id, heard)
            if heard is None or self._draining:  # others may have come meanwhile; sent again, it is begun then
                self._check_room(caller, starts=True)
            if heard is not None:
                again = await self._heard_before(heard, key, scope)
                if again is not None:
                    begins = heard.task_id == task_id
                    return again
                self._check_room(caller, starts=True)
            begins = heard is None or heard.task_id == task_id
        finally:
            if hooked is not None and self.webhooks is not None and not begins:
                self.webhooks.take_back_soon(hooked)  # nothing may be waited for here
        if heard is not None:
            task_id = heard.task_id
        run = Run(self, scope, caller, task_id, message.context_id or new_id(), new_task)
        run.key = key if self._remembers else None
        run.references = references
        run.start(message, request.metadata, accepts)
        if inline is not None and self.webhooks is not None:
            if hooked is not None and hooked.now.task_id == task_id:
                self.webhooks.begin(hooked.now, run)
            else:  # the message was heard before under another id
                self.webhooks.begin_with(scope, task_id, inline, caller.version, message.message_id, run)
        if new_task is not None:
            run.ensure_task()
        return run, 0

    async def _tell(
        self,
        request: SendMessageRequest,
        caller: Caller,
        scope: str,
        accepts: tuple[str, ...],
        references: tuple[Task, ...],
        *,
        named: bool,
    ) -> tuple[TaskLog | Record, int]:
        """Give a message to the task that it names. Raises TaskNotFound and what `Run.hear` does."""
        message = request.message
        inline = None if request.configuration is None else request.configuration.task_push_notification_config
        if inline is None or self.webhooks is None:
            return await self._give(request, caller, scope, accepts, references, named=named)
        there = await self._found(message.task_id or "", scope)
        give = partial(self._give, request, caller, scope, accepts, references, named=named)
        # No await behind this, as `_give` has it.
        return await self._read(self.webhooks.set_with(scope, there, inline, caller.version, message.message_id, give))

    async def _give(
        self,
        request: SendMessageRequest,
        caller: Caller,
        scope: str,
        accepts: tuple[str, ...],
        references: tuple[Task, ...],
        *,
        named: bool,
    ) -> tuple[TaskLog | Record, int]:
        message = request.message
        task_id = message.task_id or ""
        while True:
            # No await behind this: a run that nobody holds may be let go.
            found = await self._living(task_id, scope)
            if message.context_id and message.context_id != found.context_id:
                if isinstance(found, TaskLog):
                    self.forget(found)
                raise InvalidParams.at("message.contextId", f"is not the context of task {task_id!r}")
            if isinstance(found, Record):
                if not _in_history(message, await self.stored(found), named=named):
                    ended = found.state.value
                    raise TaskEnded(task_id, ended, "it takes no more messages, begin another task")
                return found, 0
            if isinstance(found, Run):
                return found, self._hear(found, message, caller, request.metadata, accepts, references, named=named)
            found.held += 1
            answer: Answer | None = None
            try:
                trace = {} if self.observer is None else self.observer.carried()
                answer = await self._ask(found, Hear.of(message, caller, request.metadata, accepts, named, trace))
            finally:
                found.held -= 1
                if answer is None:
                    self.forget(found)
            if answer is not None:  # no await from here to who holds it next, or it would be let go
                return found, answer.after

    def _hear(
        self,
        run: Run,
        message: Message,
        caller: Caller,
        metadata: Metadata | None,
        accepts: tuple[str, ...],
        references: tuple[Task, ...],
        *,
        named: bool,
    ) -> int:
        """Have a run of this process take a message; returns the event behind which its consequences stand."""
        try:
            if run.has_heard(message, named=named):
                return 1
            self._check_room(caller, starts=run.driver is None)
            after = run.hear(message, caller, metadata, accepts)
        except A2AError:
            self.forget(run)
            raise
        run.references = references or run.references
        return after

    @contextmanager
    def _deciding(self, scope: str, task_id: str) -> Iterator[None]:
        """Meanwhile it is not known yet whether a message is begun here.

        Whoever asks what has come of it waits: there is no run yet, and there may be one the next moment.
        """
        decided: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        undecided = self._hearing.setdefault((scope, task_id), [])
        undecided.append(decided)
        try:
            yield
        finally:
            undecided.remove(decided)
            if not undecided:
                self._hearing.pop((scope, task_id), None)
            decided.set_result(None)

    async def _to_begin(self, scope: str, task_id: str, asking: Awaitable[T]) -> T:
        """What the store says of a message that this replica may have to begin."""
        with self._deciding(scope, task_id):
            return await self._read(asking)

    async def _heard_before(
        self, heard: Outcome, key: bytes, scope: str
    ) -> tuple[TaskLog | Record | Event, int] | None:
        """What came of a message that was heard before; None when nothing did, and it is this replica's to begin.

        With None it is to be begun before anything is waited for: nobody else knows yet that it is.
        """
        waited = ""  # the replica that has said what has come of it, which was nothing
        while True:
            if heard.reply is not None:
                return Event(json=heard.reply), 0
            task_id = heard.task_id
            mine = self.replica is None or heard.replica == self.replica.id
            with self._deciding(scope, task_id) if mine else nullcontext():
                if (here := self._begun_here(scope, task_id)) is not None:
                    return here, 0
                try:
                    return await self._living(task_id, scope), 0
                except TaskNotFound:
                    pass
                if (here := self._begun_here(scope, task_id)) is not None:
                    return here, 0
            if self.replica is None or mine:
                return None  # its agent was stopped before it had said anything
            if waited != heard.replica and await self.replica.is_alive(heard.replica):
                waited = heard.replica
                with suppress(Gone):
                    await self.replica.ask(heard.replica, (scope, task_id), Wait(), limit_s=None)
            elif await self._to_begin(scope, task_id, cast(SharedStore, self.store).claim_message(key, heard.replica)):
                here = self._begun_here(scope, task_id)
                return None if here is None else (here, 0)
            else:
                waited = ""
            told = self.store.hear(key, task_id, self._age.now())
            again = await self._to_begin(scope, task_id, told) if isinstance(told, asyncio.Future) else told
            if again is None:
                return None
            heard = again

    def _begun_here(self, scope: str, task_id: str) -> Run | None:
        """The run of a message that has no task yet, or of a task."""
        return self._quiet_run(task_id, scope) or self._run(task_id, scope)

    # --- what belongs to other replicas -------------------------------------------------------------------------------

    async def _ask(self, remote: Remote, what: Hear | Cancel) -> Answer | None:
        """Have the replica that is at work on a task do something with it; None: it is not there (any more).

        Raises what it refuses with.
        """
        assert self.replica is not None
        try:
            answer = await self.replica.ask(
                remote.owner, (remote.scope, remote.task_id), what, limit_s=self.limits.cancel_s + _ASK_S
            )
        except Gone:
            remote.look()
            await remote.readable()
            return None
        if answer.error is not None:
            raise refused(answer.error)
        return answer

    async def answer(self, question: Question) -> Answer:
        """Do what another replica's caller wants of a task that is at work here."""
        scope, task_id, what = question.scope, question.task_id, question.what
        after = 0
        try:
            if isinstance(what, Wait):
                while undecided := self._hearing.get((scope, task_id)):
                    await asyncio.wait(list(undecided))
                run = self._begun_here(scope, task_id)
                if run is not None:
                    await run.told()
                return Answer(scope, task_id, question.number)
            heard = what.read() if isinstance(what, Hear) else None
            if isinstance(what, Hear) and self.observer is not None:
                self.observer.taken_up(what.trace)
            references: tuple[Task, ...] = ()
            if heard is not None and heard[0].reference_task_ids:
                references = await self._references(scope, heard[0])
            found = await self._living(task_id, scope)
            if isinstance(found, Record):
                if heard is None or isinstance(what, Cancel):
                    raise TaskNotCancelable(task_id, found.state.value)
                if not _in_history(heard[0], await self.stored(found), named=what.named):
                    raise TaskEnded(task_id, found.state.value, "it takes no more messages, begin another task")
            elif isinstance(found, Remote):
                self.forget(found)
                return Answer(scope, task_id, question.number, elsewhere=True)
            elif heard is None or isinstance(what, Cancel):
                with self._held(found):
                    await found.cancel()
            else:
                message, caller, metadata = heard
                after = self._hear(found, message, caller, metadata, what.accepts, references, named=what.named)
                try:
                    await found.written()
                finally:
                    found.go_on()
        except A2AError as error:
            return Answer(scope, task_id, question.number, error=refusal(error))
        return Answer(scope, task_id, question.number, after)

    def _check_streaming(self) -> None:
        if not self.agent.streaming:
            raise UnsupportedOperation("This agent does not stream: use SendMessage and GetTask.")

    def _check_room(self, caller: Caller, *, starts: bool) -> None:
        """Raises Overloaded when there is no room for another agent; RateLimited when there is none for this caller."""
        if self._draining:
            raise Unavailable("This server is shutting down.", retry_after_s=5)
        limits = self.limits
        if starts and self.busy >= limits.concurrent_runs and len(self._line) >= limits.queued_runs:
            waiting = f", and {len(self._line)} wait" if self._line else ""
            raise Overloaded(f"{self.busy} tasks are at work here already{waiting}: the limit of this server.")
        if starts and limits.runs_per_caller is not None:
            count = self._of_callers[self._whose(caller)]
            if count >= limits.runs_per_caller:
                raise RateLimited(f"{count} of your tasks are at work already, as many as you may have.")

    async def _first_moment(self, run: TaskLog) -> None:
        """Give an agent the chance to reply at once; else it is a task."""
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        run.ensure_task()

    async def _answer(self, run: TaskLog, history_length: int | None) -> Encoded[Task] | Encoded[Message]:
        reply = run.reply
        if reply is not None:
            return _as_message(reply)
        await run.readable()
        return self._shown(run.snapshot(), history_length, run.blobs)

    async def _resume(self, run: TaskLog, after: int, until_input: bool) -> Cursor:
        if after >= run.base:
            return Cursor(run, after, until_input=until_input)
        base = run.base
        missed = await self._missed(run.scope, run.task_id, after)
        head = [event for number, event in missed or () if number <= base]
        if len(head) != base - after:
            await run.readable()
            return self._from_snapshot(run, until_input=until_input)
        return Cursor(run, base, head=head, first=after + 1, until_input=until_input)

    def _from_snapshot(self, run: TaskLog, *, until_input: bool = False, history_length: int | None = None) -> Cursor:
        task = run.task()
        event = Event(with_history(task, history_length))
        if (
            until_input and task.state is TaskState.INPUT_REQUIRED and not run.has_mail
        ):  # it has asked again: all is told
            return Cursor(None, 0, head=[event], first=run.published)
        return Cursor(run, run.published, head=[event], first=run.published, until_input=until_input)

    async def _ended_stream(self, outcome: Record | Event, history_length: int | None) -> Cursor:
        """What came of a message that was heard before, as the stream that it was, where its log is kept."""
        if isinstance(outcome, Record) and (told := await self._missed(outcome.scope, outcome.task_id, 0)):
            return Cursor(None, 0, head=[event for _, event in told], first=told[0][0])
        answer = await self._ended(outcome, history_length)
        return Cursor(None, 0, head=[Event(answer.value)])

    async def _ended(self, outcome: Record | Event, history_length: int | None) -> Encoded[Task] | Encoded[Message]:
        """What came of a message that was heard before."""
        if isinstance(outcome, Event):
            return _as_message(outcome)
        return self._shown(await self._encoded(outcome), history_length, None)


def _as_message(reply: Event) -> Encoded[Message]:
    assert isinstance(reply.value, Message)
    return Encoded(Message, json=reply.json[len(b'{"message":') : -1], value=reply.value)


def _in_history(message: Message, task: Task, *, named: bool) -> bool:
    """Whether a task that has ended has heard a message: it comes once more, as its answer was lost."""
    return not named and any(same_message(message, heard) for heard in task.history)
