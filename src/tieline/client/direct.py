"""A transport without a network: an agent of this process, called through its service.

Requests and results pass through their JSON form, so that both sides see what they would see over HTTP, and share
nothing that one of them could change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from tieline.card import AgentCard
from tieline.client.transport import Events, Numbered, Timeouts
from tieline.engine.cursor import Cursor
from tieline.engine.service import Service
from tieline.engine.turn import Caller
from tieline.errors import InternalError, PeerTimeout
from tieline.stores import StoreError
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
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    Value,
    decode,
    encode,
)
from tieline.wire.headers import event_number
from tieline.wire.v1 import V1, encoded

__all__ = ["DirectTransport"]

T = TypeVar("T")
V = TypeVar("V", bound=Value)

_decode_event = V1.event_decoder()


class DirectTransport:
    """One agent's service. See Transport."""

    name = "direct"

    def __init__(self, service: Service, card: AgentCard, timeouts: Timeouts) -> None:
        self._service = service
        self._card = card
        self._timeouts = timeouts

    async def send(self, request: SendMessageRequest, extensions: Sequence[str]) -> Task | Message:
        answer = await self._limited(self._service.send_message(_copied(request), _caller(extensions)))
        return V1.decode_answer(V1.encode_answer(answer))

    async def get(self, request: GetTaskRequest, extensions: Sequence[str]) -> Task:
        answer = await self._limited(self._service.get_task(_copied(request), _caller(extensions)))
        return V1.decode_task(answer.json)

    async def list(self, request: ListTasksRequest, extensions: Sequence[str]) -> ListTasksResponse:
        answer = await self._limited(self._service.list_tasks(_copied(request), _caller(extensions)))
        return V1.decode_page(V1.encode_page(answer))

    async def cancel(self, request: CancelTaskRequest, extensions: Sequence[str]) -> Task:
        answer = await self._limited(self._service.cancel_task(_copied(request), _caller(extensions)))
        return V1.decode_task(answer.json)

    async def set_webhook(
        self, webhook: TaskPushNotificationConfig, extensions: Sequence[str]
    ) -> TaskPushNotificationConfig:
        setting = self._service.create_push_notification_config(_copied(webhook), _caller(extensions))
        return V1.decode_config(V1.encode_config(await self._limited(setting)))

    async def get_webhook(
        self, request: GetTaskPushNotificationConfigRequest, extensions: Sequence[str]
    ) -> TaskPushNotificationConfig:
        reading = self._service.get_push_notification_config(_copied(request), _caller(extensions))
        return V1.decode_config(V1.encode_config(await self._limited(reading)))

    async def list_webhooks(
        self, request: ListTaskPushNotificationConfigsRequest, extensions: Sequence[str]
    ) -> ListTaskPushNotificationConfigsResponse:
        listing = self._service.list_push_notification_configs(_copied(request), _caller(extensions))
        return V1.decode_configs(V1.encode_configs(await self._limited(listing)))

    async def delete_webhook(self, request: DeleteTaskPushNotificationConfigRequest, extensions: Sequence[str]) -> None:
        await self._limited(self._service.delete_push_notification_config(_copied(request), _caller(extensions)))

    async def extended_card(self, request: GetExtendedAgentCardRequest, extensions: Sequence[str]) -> bytes:
        return encode(self._service.agent.extended_card(self._card, _caller(extensions)))

    async def open(
        self,
        request: SendMessageRequest | SubscribeToTaskRequest,
        extensions: Sequence[str],
        last_event_id: str | None = None,
    ) -> Events:
        caller = _caller(extensions)
        if isinstance(request, SendMessageRequest):
            opening = self._service.send_streaming_message(_copied(request), caller)
        else:
            number = event_number(last_event_id)
            opening = self._service.subscribe_to_task(_copied(request), caller, last_event_id=number)
        return _CursorEvents(await self._limited(opening))

    async def close(self) -> None:
        """See Transport.close: the service is its owner's."""

    async def _limited(self, call: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._timeouts.answer_s) as limit:
                return await call
        except StoreError as error:
            raise InternalError(f"The store of this agent is not available: {error}") from error
        except TimeoutError:
            if not limit.expired():
                raise
            raise PeerTimeout(f"The agent {self._service.agent.name!r} did not answer in time.") from None


class _CursorEvents:
    """A subscriber's place in a task's log, as a stream."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor

    async def read(self) -> Sequence[Numbered]:
        """See Events.read."""
        cursor = self._cursor
        while True:
            number, events = cursor.take()
            if events:
                read = [(n, _decode_event(event.json)) for n, event in enumerate(events, number)]
                return [(str(n) if number else None, event) for n, event in read if event is not None]
            if cursor.failure is not None:
                raise cursor.failure
            if cursor.ended:
                return ()
            await cursor.wait()

    async def close(self) -> None:
        """See Events.close."""
        self._cursor.close()


def _copied(request: V) -> V:
    return decode(encoded(request), type(request))


def _caller(extensions: Sequence[str]) -> Caller:
    return Caller(extensions=tuple(extensions))
