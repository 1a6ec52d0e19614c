"""What a transport is: the operations of A2A 1.0 as one way to reach an agent carries them, and how long they take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from tieline.errors import InvalidPeerResponse, PeerError
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
    TaskPushNotificationConfig,
)

__all__ = ["Events", "NotServed", "Numbered", "OneEvent", "Timeouts", "Transport"]

Numbered = tuple[str | None, StreamEvent]
"""An event with the id that is in force after it; None where the server gives no ids."""


class Timeouts(msgspec.Struct, frozen=True):
    """Seconds. Whatever runs out ends the call with PeerTimeout.

    A stream has no limit as a whole: one that is silent for `idle_s` (no event, no keep-alive comment) counts as broken
    and is taken up again.
    """

    connect_s: float = 10.0  # to a connection, TLS included
    answer_s: float | None = 600.0  # from the call to the end of its answer; a blocking send takes as long as its task
    idle_s: float = 60.0  # between two signs of life of a stream, its first included
    card_s: float = 10.0  # to the agent card, each place that it is looked for


class NotServed(Exception):
    """An interface could not be reached, and nothing was sent that could have been carried out: try another one.

    Never leaves the client: `error` is what the caller gets when there is no other, or at once when it is `final`.
    `answered`: somebody is there, but has no such place: another version may be spoken there.
    """

    def __init__(self, error: PeerError, *, final: bool = False, answered: bool = False) -> None:
        super().__init__(str(error))
        self.error = error
        self.final = final
        self.answered = answered


class Events(Protocol):
    """An open stream."""

    async def read(self) -> Sequence[Numbered]:
        """Wait for the next events and return all that are there; none is the clean end of the stream.

        Raises:
            Unreachable, PeerTimeout: the stream broke, or was silent for too long.
            A2AError: the agent reported an error in the stream; InvalidPeerResponse when what it sent is no event.
        """
        ...

    async def close(self) -> None:
        """Stop reading. Closing twice is allowed."""
        ...


class Transport(Protocol):
    """One way to reach one agent. `extensions` are the URIs that a call names.

    All raise the A2AError that the agent reports, PeerError otherwise, and NotServed.
    """

    @property
    def name(self) -> str:
        """The protocol binding as in the card: "JSONRPC", "HTTP+JSON", "GRPC"; "direct" is in process."""
        ...

    async def send(self, request: SendMessageRequest, extensions: Sequence[str]) -> Task | Message: ...

    async def get(self, request: GetTaskRequest, extensions: Sequence[str]) -> Task: ...

    async def list(self, request: ListTasksRequest, extensions: Sequence[str]) -> ListTasksResponse: ...

    async def cancel(self, request: CancelTaskRequest, extensions: Sequence[str]) -> Task: ...

    async def set_webhook(
        self, webhook: TaskPushNotificationConfig, extensions: Sequence[str]
    ) -> TaskPushNotificationConfig: ...

    async def get_webhook(
        self, request: GetTaskPushNotificationConfigRequest, extensions: Sequence[str]
    ) -> TaskPushNotificationConfig: ...

    async def list_webhooks(
        self, request: ListTaskPushNotificationConfigsRequest, extensions: Sequence[str]
    ) -> ListTaskPushNotificationConfigsResponse: ...

    async def delete_webhook(
        self, request: DeleteTaskPushNotificationConfigRequest, extensions: Sequence[str]
    ) -> None: ...

    async def extended_card(self, request: GetExtendedAgentCardRequest, extensions: Sequence[str]) -> bytes:
        """The card for those who have authenticated, as JSON of any version."""
        ...

    async def open(
        self,
        request: SendMessageRequest | SubscribeToTaskRequest,
        extensions: Sequence[str],
        last_event_id: str | None = None,
    ) -> Events:
        """SendStreamingMessage or SubscribeToTask, by the type of `request`."""
        ...

    async def close(self) -> None:
        """Close what is this transport's own. Closing twice is allowed."""
        ...


class OneEvent:
    """A stream that turned out to be a single answer; None is one that says nothing."""

    def __init__(self, event: StreamEvent | None) -> None:
        if event is None:
            raise InvalidPeerResponse("The answer to a stream is neither one nor an event.")
        self._left: list[Numbered] = [(None, event)]

    async def read(self) -> Sequence[Numbered]:
        left, self._left = self._left, []
        return left

    async def close(self) -> None:
        self._left = []
