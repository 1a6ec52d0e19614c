"""What a transport is: the operations of A2A 1.0 as one way to reach an agent carries them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tieline.errors import InvalidParams, PeerError
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
    Value,
    encode,
)

__all__ = ["Events", "NotServed", "OneEvent", "Transport", "encoded"]

Numbered = tuple[str | None, StreamEvent]
"""An event with the id that is in force after it; None where the server gives no ids."""


class NotServed(Exception):
    """An interface could not be reached, and nothing was sent that could have been carried out: try another one.

    Never leaves the client: `error` is what the caller gets when there is no other, or at once when it is `final`.
    """

    def __init__(self, error: PeerError, *, final: bool = False) -> None:
        super().__init__(str(error))
        self.error = error
        self.final = final


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
        """The protocol binding as in the card: "JSONRPC", "HTTP+JSON"; "direct" is in process."""
        ...

    async def send(self, request: SendMessageRequest, extensions: Sequence[str]) -> Task | Message: ...

    async def get(self, request: GetTaskRequest, extensions: Sequence[str]) -> Task: ...

    async def list(self, request: ListTasksRequest, extensions: Sequence[str]) -> ListTasksResponse: ...

    async def cancel(self, request: CancelTaskRequest, extensions: Sequence[str]) -> Task: ...

    async def open(
        self,
        request: SendMessageRequest | SubscribeToTaskRequest,
        extensions: Sequence[str],
        last_event_id: str | None = None,
    ) -> Events:
        """SendStreamingMessage or SubscribeToTask, by the type of `request`."""
        ...


class OneEvent:
    """A stream that turned out to be a single answer."""

    def __init__(self, event: StreamEvent) -> None:
        self._left: list[Numbered] = [(None, event)]

    async def read(self) -> Sequence[Numbered]:
        left, self._left = self._left, []
        return left

    async def close(self) -> None:
        self._left = []


def encoded(request: Value) -> bytes:
    """A request as JSON. Raises InvalidParams when it holds something that JSON has no form for."""
    try:
        return encode(request)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise InvalidParams(f"The request cannot be written as JSON: {error}") from None
