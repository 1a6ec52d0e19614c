"""The operations on one agent by whichever way leads to it, and what they come to when they are followed to their end.

Tenant, extensions, doubt and recovery are seen to here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TypeVar

from msgspec.structs import replace

from tieline.card import AgentCard
from tieline.client.following import PASSING, Following, Recovery, rests
from tieline.client.opening import Opened
from tieline.client.route import Way
from tieline.client.seen import Seen
from tieline.client.transport import Events, NotServed
from tieline.client.verification import CardVerification
from tieline.engine.fold import Fold, NotAllowed
from tieline.errors import (
    A2AError,
    ExtensionSupportRequired,
    InvalidParams,
    MethodNotFound,
    PushNotificationNotSupported,
    TaskInDoubt,
    TaskNotFound,
    Unreachable,
    UnsupportedOperation,
)
from tieline.ids import new_id
from tieline.types import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageRequest,
    StreamEvent,
    SubscribeToTaskRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    Value,
)
from tieline.wire.dialects import dialect_of
from tieline.wire.v01 import V01

__all__ = ["Calls", "streamed_answer", "wait"]

_LONGEST_POLL_S = 30.0

A = TypeVar("A", Task, Message, Task | Message)
R = TypeVar("R", bound=Value)


class Calls:
    """What a Peer does its work with. `named` are the extensions of a call, as `extensions` gives them."""

    def __init__(self, found: Opened, extensions: Sequence[str], recovery: Recovery) -> None:
        self.route = found.route
        self.recovery = recovery
        self.closed = False
        self._found = found
        self._extensions = _checked_uris(extensions)
        self._extended: str | None = None  # the version of the public card beside which the extended one was read
        self._take_card(found.card, found.verification)

    def _take_card(self, card: AgentCard, verification: CardVerification) -> None:
        self.card = card
        self.card_verification = verification
        self.streams = bool(card.capabilities.streaming)
        self._required = frozenset(e.uri for e in card.capabilities.extensions if e.required)

    async def renew_card(self) -> AgentCard:
        """The card, asked for again where it has expired; an extended one stays while the public one's version does."""
        card, verification = await self._found.renew()
        if self._extended is not None:
            if card.version == self._extended:
                return self.card
            self._extended = None
            if card.capabilities.extended_agent_card:
                self._take_card(card, verification)
                return await self.extended_card(self.extensions(()))
        self._take_card(card, verification)
        return self.card

    async def extended_card(self, named: tuple[str, ...]) -> AgentCard:
        """GetExtendedAgentCard. What it gives is the card from then on (A2A 1.0 §3.1.11)."""
        public = self.card
        if not public.capabilities.extended_agent_card:
            raise UnsupportedOperation(f"The card of {public.name!r} says that there is no extended one.")
        request = GetExtendedAgentCardRequest()
        way_taken = ""

        async def call(way: Way) -> bytes:
            nonlocal way_taken
            way_taken = way.interface.url
            return await way.transport.extended_card(_addressed(request, way), named)

        document = await self.route.call(call)
        card, verification = await self._found.take(document, way_taken)
        self._take_card(card, verification)
        self._extended = public.version
        return card

    async def close(self) -> None:
        """Close all connections."""
        self.closed = True
        await self._found.close()

    def extensions(self, more: Sequence[str]) -> tuple[str, ...]:
        """All extensions that a call names.

        Raises:
            ExtensionSupportRequired: the card requires one that is not among them (A2A 1.0 §4.4.4).
            InvalidParams: what is given is no URI.
        """
        named = _checked_uris((*self._extensions, *_checked_uris(more))) if more else self._extensions
        if self._required and not self._required.issubset(named):
            raise ExtensionSupportRequired(self._required.difference(named))
        return named

    async def send(self, request: SendMessageRequest, named: tuple[str, ...]) -> Task | Message:
        """SendMessage. Raises TaskInDoubt when the connection breaks behind the request."""
        request = self.in_session(request)

        async def call(way: Way) -> Task | Message:
            try:
                return await way.transport.send(_addressed(request, way), named)
            except Unreachable as error:
                raise _in_doubt(request, error) from error

        return _in_context(await self.route.call(call), request)

    def in_session(self, request: SendMessageRequest) -> SendMessageRequest:
        """`request` in a context of its own, where callers make these: answers of 0.1 need not repeat them."""
        message = request.message
        if message.context_id or message.task_id or dialect_of(self.route.way.interface.protocol_version) is not V01:
            return request
        return replace(request, message=replace(message, context_id=new_id()))

    def stream(self, request: SendMessageRequest, named: tuple[str, ...]) -> AsyncGenerator[StreamEvent, None]:
        """SendStreamingMessage to its end, over breaks. See Following."""

        async def call(way: Way) -> Events:
            try:
                return await way.transport.open(_addressed(request, way), named)
            except Unreachable as error:
                raise _in_doubt(request, error) from error

        following = self._following(Seen(), named, until_input=True, message=request.message)
        return following.events(lambda: self._opened(call))

    def subscribe(
        self, task_id: str, named: tuple[str, ...], *, until_input: bool, last_event_id: str | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        """SubscribeToTask to its end, over breaks. See Following."""
        following = self._following(Seen(task_id), named, until_input=until_input, last_event_id=last_event_id)
        return following.events(lambda: self._opened(_subscription(task_id, last_event_id, named)))

    async def _opened(self, call: Callable[[Way], Awaitable[Events]]) -> Events:
        """Raises UnsupportedOperation where the card does not say that the agent streams (A2A 1.0 §3.3.4)."""
        if not self.streams:
            raise UnsupportedOperation(f"The card of {self.card.name!r} says that this agent does not stream.")
        return await self.route.call(call)

    def _following(
        self,
        seen: Seen,
        named: tuple[str, ...],
        *,
        until_input: bool,
        message: Message | None = None,
        last_event_id: str | None = None,
    ) -> Following:
        return Following(
            seen,
            subscribe=lambda task_id, after: self.route.call(_resumption(task_id, after, named)),
            read_task=lambda task_id: self.get(GetTaskRequest(task_id), named),
            recovery=self.recovery,
            closed=lambda: self.closed,
            until_input=until_input,
            message=message,
            last_event_id=last_event_id,
        )

    def get(self, request: GetTaskRequest, named: tuple[str, ...]) -> Awaitable[Task]:
        """GetTask."""
        return self.route.call(lambda way: way.transport.get(_addressed(request, way), named))

    def list(self, request: ListTasksRequest, named: tuple[str, ...]) -> Awaitable[ListTasksResponse]:
        """ListTasks."""
        return self.route.call(lambda way: way.transport.list(_addressed(request, way), named))

    def cancel(self, request: CancelTaskRequest, named: tuple[str, ...]) -> Awaitable[Task]:
        """CancelTask."""
        return self.route.call(lambda way: way.transport.cancel(_addressed(request, way), named))

    # --- webhooks -----------------------------------------------------------------------------------------------------

    def check_pushes(self) -> None:
        """Raises PushNotificationNotSupported where the card does not say that the agent pushes (A2A 1.0 §3.3.4)."""
        if not self.card.capabilities.push_notifications:
            raise PushNotificationNotSupported(
                f"The card of {self.card.name!r} says that this agent sends no push notifications."
            )

    async def set_webhook(
        self, webhook: TaskPushNotificationConfig, named: tuple[str, ...]
    ) -> TaskPushNotificationConfig:
        """CreateTaskPushNotificationConfig."""
        self.check_pushes()
        return await self.route.call(lambda way: way.transport.set_webhook(_addressed(webhook, way), named))

    async def get_webhook(
        self, request: GetTaskPushNotificationConfigRequest, named: tuple[str, ...]
    ) -> TaskPushNotificationConfig:
        """GetTaskPushNotificationConfig."""
        self.check_pushes()
        return await self.route.call(lambda way: way.transport.get_webhook(_addressed(request, way), named))

    async def list_webhooks(
        self, request: ListTaskPushNotificationConfigsRequest, named: tuple[str, ...]
    ) -> ListTaskPushNotificationConfigsResponse:
        """ListTaskPushNotificationConfigs."""
        self.check_pushes()
        return await self.route.call(lambda way: way.transport.list_webhooks(_addressed(request, way), named))

    async def delete_webhook(self, request: DeleteTaskPushNotificationConfigRequest, named: tuple[str, ...]) -> None:
        """DeleteTaskPushNotificationConfig."""
        self.check_pushes()
        await self.route.call(lambda way: way.transport.delete_webhook(_addressed(request, way), named))


def _subscription(
    task_id: str, last_event_id: str | None, named: tuple[str, ...]
) -> Callable[[Way], Awaitable[Events]]:
    return lambda way: way.transport.open(_addressed(SubscribeToTaskRequest(task_id), way), named, last_event_id)


def _resumption(task_id: str, last_event_id: str | None, named: tuple[str, ...]) -> Callable[[Way], Awaitable[Events]]:
    """As `_subscription`, where the agent has told of the task: it is there, and what is not is the operation."""
    subscription = _subscription(task_id, last_event_id, named)

    async def call(way: Way) -> Events:
        try:
            return await subscription(way)
        except NotServed as error:
            if not error.answered:
                raise
            raise UnsupportedOperation(f"The agent does not let its tasks be subscribed to. {error}") from None

    return call


def _addressed(request: R, way: Way) -> R:
    """`request` with exactly the tenant of the interface that it goes to (A2A 1.0 §8.3.2)."""
    tenant = way.interface.tenant
    return request if tenant is None else replace(request, tenant=tenant)  # every request has one


def _in_doubt(request: SendMessageRequest, error: Exception) -> TaskInDoubt:
    message = request.message
    return TaskInDoubt(
        f"The message may have arrived, or not. {error}", task_id=message.task_id, context_id=message.context_id
    )


def _in_context(answer: A, request: SendMessageRequest) -> A:
    """An answer that names no context is in that of its message."""
    context_id = request.message.context_id
    return answer if answer.context_id or not context_id else replace(answer, context_id=context_id)


def _checked_uris(uris: Sequence[str]) -> tuple[str, ...]:
    """Each URI once. Raises InvalidParams for one that would not stay one in a header."""
    if isinstance(uris, str):
        uris = (uris,)
    for uri in uris:
        if not uri or any(character in uri for character in "\r\n\0, "):
            raise InvalidParams.at("extensions", f"{uri!r} is not the URI of an extension")
    return tuple(dict.fromkeys(uris))


async def streamed_answer(calls: Calls, request: SendMessageRequest, named: tuple[str, ...]) -> Task | Message:
    """What the stream of a message comes to. A task that its events do not tell whole is read.

    An agent that refuses to stream, whatever its card says, is sent the message: nothing was carried out.
    """
    request = calls.in_session(request)
    fold: Fold | None = None
    whole = True
    try:
        async with aclosing(calls.stream(request, named)) as events:
            async for event in events:
                if isinstance(event, Message):
                    if fold is None:
                        return _in_context(event, request)
                    continue
                if isinstance(event, Task):
                    fold = Fold(event)
                    continue
                if fold is None:
                    whole = False
                    fold = Fold(_begun_with(event))
                try:
                    fold.apply(event)
                except NotAllowed:
                    whole = False
                if isinstance(event, TaskStatusUpdateEvent) and event.status.state is TaskState.AUTH_REQUIRED:
                    break  # the stream stays open, but the next move is the caller's
    except (UnsupportedOperation, MethodNotFound, Unreachable):
        if fold is not None or calls.closed:
            raise
    if fold is None:
        return await calls.send(request, named)
    told = _in_context(fold.task(), request)
    if whole:
        return told
    try:
        task = await calls.get(GetTaskRequest(told.id), named)
    except A2AError:  # some servers do not keep what has ended
        if not rests(told.state):
            raise
        return told
    return _with_what_was_told(_in_context(task, request), told)


def _begun_with(event: TaskStatusUpdateEvent | TaskArtifactUpdateEvent) -> Task:
    """The task that a stream tells of which does not begin with one."""
    status = event.status if isinstance(event, TaskStatusUpdateEvent) else TaskStatus(TaskState.UNSPECIFIED)
    return Task(event.task_id, status, event.context_id)


def _with_what_was_told(task: Task, told: Task) -> Task:
    """A task that was read, and what its events have told that its server does not keep."""
    status, artifacts = task.status, task.artifacts
    if status.message is None and status.state is told.state:
        status = replace(status, message=told.status.message)
    return replace(task, status=status, artifacts=artifacts or told.artifacts)


async def wait(calls: Calls, task_id: str, poll_s: float, named: tuple[str, ...], *, task: Task | None = None) -> Task:
    """The task once it rests or has ended: by subscription where the card allows it, else by polling.

    `task`: as it was told, where it was.

    Raises:
        TaskNotFound; TaskInDoubt: it could be read at first, or was told, and then no more.
    """
    request = GetTaskRequest(task_id)
    failures = 0
    if task is None:
        task = await calls.get(request, named)
        if rests(task.state):
            return task
    pause = 0.0 if calls.streams and await _followed_to_rest(calls, task_id, named) else poll_s
    while True:
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, max(poll_s, _LONGEST_POLL_S)) or poll_s
        try:
            task = await calls.get(request, named)
            failures = 0
        except PASSING as error:
            if calls.closed:
                raise
            failures += 1
            if failures > calls.recovery.attempts:
                raise TaskInDoubt(f"Task {task_id!r} cannot be read any more. {error}", task_id=task_id) from error
        if rests(task.state):
            return task


async def _followed_to_rest(calls: Calls, task_id: str, named: tuple[str, ...]) -> bool:
    """Follow a task until it rests or ends; False when it cannot be followed."""
    try:
        async with aclosing(calls.subscribe(task_id, named, until_input=True)) as events:
            async for event in events:
                if isinstance(event, (Task, TaskStatusUpdateEvent)) and rests(event.status.state):
                    break
    except (UnsupportedOperation, MethodNotFound, TaskNotFound, *PASSING):
        if calls.closed:
            raise
        return False
    return True
