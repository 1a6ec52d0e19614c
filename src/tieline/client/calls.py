"""The operations on one agent by whichever way leads to it: tenant, extensions, doubt and recovery are seen to here."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from tieline.card import AgentCard
from tieline.client.following import Following
from tieline.client.opening import Opened
from tieline.client.route import Way
from tieline.client.seen import Seen
from tieline.client.timeouts import Recovery
from tieline.client.transport import Events
from tieline.errors import ExtensionSupportRequired, InvalidParams, TaskInDoubt, Unreachable, UnsupportedOperation
from tieline.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageRequest,
    StreamEvent,
    SubscribeToTaskRequest,
    Task,
)

__all__ = ["Calls"]

R = TypeVar("R", SendMessageRequest, GetTaskRequest, ListTasksRequest, CancelTaskRequest, SubscribeToTaskRequest)


class Calls:
    """What a Peer does its work with. `named` are the extensions of a call, as `extensions` gives them."""

    def __init__(self, found: Opened, extensions: Sequence[str], recovery: Recovery) -> None:
        self.route = found.route
        self.recovery = recovery
        self.closed = False
        self._found = found
        self._extensions = _checked_uris(extensions)
        self._take_card(found.card)

    def _take_card(self, card: AgentCard) -> None:
        self.card = card
        self.streams = bool(card.capabilities.streaming)
        self._required = frozenset(e.uri for e in card.capabilities.extensions if e.required)

    async def renew_card(self) -> AgentCard:
        """The card, asked for again where it has expired."""
        self._take_card(await self._found.renew())
        return self.card

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
        named = _checked_uris((*self._extensions, *more)) if more else self._extensions
        if self._required and not self._required.issubset(named):
            raise ExtensionSupportRequired(self._required.difference(named))
        return named

    def check_streaming(self) -> None:
        """Raises UnsupportedOperation where the card does not say that the agent streams (A2A 1.0 §3.3.4)."""
        if not self.streams:
            raise UnsupportedOperation(f"The card of {self.card.name!r} says that this agent does not stream.")

    async def send(self, request: SendMessageRequest, named: tuple[str, ...]) -> Task | Message:
        """SendMessage. Raises TaskInDoubt when the connection breaks behind the request."""

        async def call(way: Way) -> Task | Message:
            try:
                return await way.transport.send(_addressed(request, way), named)
            except Unreachable as error:
                raise _in_doubt(request, error) from error

        return await self.route.call(call)

    async def stream(self, request: SendMessageRequest, named: tuple[str, ...]) -> AsyncGenerator[StreamEvent, None]:
        """SendStreamingMessage, taken up again when it breaks."""
        self.check_streaming()

        async def call(way: Way) -> Events:
            try:
                return await way.transport.open(_addressed(request, way), named)
            except Unreachable as error:
                raise _in_doubt(request, error) from error

        events = self.followed(await self.route.call(call), Seen(), named, until_input=True)
        try:
            async for event in events:
                yield event
        except TaskInDoubt as error:
            if error.task_id is None and request.message.task_id is not None:
                raise _in_doubt(request, error) from error
            raise
        finally:
            await events.aclose()

    def followed(
        self, opened: Events, seen: Seen, named: tuple[str, ...], *, until_input: bool, last_event_id: str | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        """An open stream to its end, over breaks. See Following."""
        following = Following(
            seen,
            subscribe=(lambda task_id, after: self.subscribe(task_id, after, named)) if self.streams else None,
            read_task=lambda task_id: self.get(GetTaskRequest(task_id), named),
            recovery=self.recovery,
            closed=lambda: self.closed,
            until_input=until_input,
            last_event_id=last_event_id,
        )
        return following.events(opened)

    async def subscribe(self, task_id: str, last_event_id: str | None, named: tuple[str, ...]) -> Events:
        """SubscribeToTask, just opened."""

        def call(way: Way) -> Awaitable[Events]:
            return way.transport.open(_addressed(SubscribeToTaskRequest(task_id), way), named, last_event_id)

        return await self.route.call(call)

    async def get(self, request: GetTaskRequest, named: tuple[str, ...]) -> Task:
        """GetTask."""
        return await self.route.call(lambda way: way.transport.get(_addressed(request, way), named))

    async def list(self, request: ListTasksRequest, named: tuple[str, ...]) -> ListTasksResponse:
        """ListTasks."""
        return await self.route.call(lambda way: way.transport.list(_addressed(request, way), named))

    async def cancel(self, request: CancelTaskRequest, named: tuple[str, ...]) -> Task:
        """CancelTask."""
        return await self.route.call(lambda way: way.transport.cancel(_addressed(request, way), named))


def _addressed(request: R, way: Way) -> R:
    """`request` with exactly the tenant of the interface that it goes to (A2A 1.0 §8.3.2)."""
    tenant = way.interface.tenant
    return request if tenant is None else replace(request, tenant=tenant)


def _in_doubt(request: SendMessageRequest, error: Exception) -> TaskInDoubt:
    message = request.message
    return TaskInDoubt(
        f"The message may have arrived, or not. {error}", task_id=message.task_id, context_id=message.context_id
    )


def _checked_uris(uris: Sequence[str]) -> tuple[str, ...]:
    """Each URI once. Raises InvalidParams for one that would not stay one in a header."""
    for uri in uris:
        if not uri or any(character in uri for character in "\r\n\0, "):
            raise InvalidParams.at("extensions", f"{uri!r} is not the URI of an extension")
    return tuple(dict.fromkeys(uris))
