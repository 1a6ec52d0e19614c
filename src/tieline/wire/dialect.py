"""What a dialect is: one version of A2A as JSON, for servers and clients. Pure.

Inside the program there are only the values of 1.0 (types.py). A dialect reads what a peer of its version has written
as those values, and writes them as that version has them. dialects.py has the table of all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from tieline.errors import A2AError
from tieline.event import Event
from tieline.types import (
    Encoded,
    ListTaskPushNotificationConfigsResponse,
    ListTasksResponse,
    Message,
    Metadata,
    StreamEvent,
    Task,
    TaskPushNotificationConfig,
    Value,
)
from tieline.wire.methods import Method

__all__ = ["Dialect", "EventEncoder", "Json"]

Json = bytes | msgspec.Raw


class EventEncoder(Protocol):
    """Writes an event; `ends`: it is the last one of its stream."""

    def __call__(self, event: Event, ends: bool = True, /) -> Sequence[bytes]: ...


class Dialect(Protocol):
    """One version of A2A. Methods are those of 1.0 (methods.py), whatever the dialect calls them."""

    @property
    def version(self) -> str:
        """Major.Minor: what a card says, and a client sends as A2A-Version."""
        ...

    @property
    def versions(self) -> tuple[str, ...]:
        """All versions, Major.Minor, that it is spoken in."""
        ...

    @property
    def methods(self) -> Mapping[str, Method]:
        """The operations by the names that JSON-RPC has for them."""
        ...

    @property
    def names(self) -> Mapping[str, str]:
        """The JSON-RPC names of the operations that it has, by their names in 1.0."""
        ...

    @property
    def codes(self) -> Mapping[type[A2AError], int]:
        """JSON-RPC codes of errors that are not those of 1.0."""
        ...

    @property
    def data_in_object(self) -> bool:
        """Whether the `data` of a JSON-RPC error has to be an object."""
        ...

    @property
    def new_task(self) -> Metadata | None:
        """Metadata for a task whose id the caller has made, where callers name tasks; None where they do not."""
        ...

    @property
    def has_final(self) -> bool:
        """Whether events say that a stream is over (`final`): a subscription, too, then ends when the agent asks."""
        ...

    @property
    def shows_ended(self) -> bool:
        """Whether a subscription to a task that has ended is answered with the task, instead of an error."""
        ...

    @property
    def resumes(self) -> bool:
        """Whether events are numbered, so that a stream can go on behind one (Last-Event-ID)."""
        ...

    # --- a server -----------------------------------------------------------------------------------------------------

    def read_params(self, method: Method, params: Json) -> Any:
        """The request of an operation: a `method.request`.

        Raises:
            InvalidParams: with the path of the bad field.
            msgspec.DecodeError: not JSON.
        """
        ...

    def encode_answer(self, answer: Encoded[Task] | Encoded[Message]) -> bytes:
        """What a message has come to."""
        ...

    def encode_task(self, task: Encoded[Task]) -> bytes: ...

    def encode_page(self, page: ListTasksResponse) -> bytes: ...

    def encode_config(self, config: TaskPushNotificationConfig) -> bytes: ...

    def encode_configs(self, configs: ListTaskPushNotificationConfigsResponse) -> bytes: ...

    def encode_deleted(self) -> bytes:
        """What the deletion of a webhook is answered with."""
        ...

    def event_encoder(self) -> EventEncoder | None:
        """What writes the events of one stream, in their order; None: they are written as `Event.json`."""
        ...

    # --- a client -----------------------------------------------------------------------------------------------------

    def encode_params(self, method: Method, request: Value) -> bytes:
        """The params of an operation.

        Raises:
            InvalidParams: the dialect cannot say it, or JSON cannot.
        """
        ...

    def decode_answer(self, data: Json) -> Task | Message:
        """What a message has come to. Raises InvalidPeerResponse, as all below do."""
        ...

    def decode_task(self, data: Json) -> Task: ...

    def decode_page(self, data: Json) -> ListTasksResponse: ...

    def decode_config(self, data: Json) -> TaskPushNotificationConfig: ...

    def decode_configs(self, data: Json) -> ListTaskPushNotificationConfigsResponse: ...

    def event_decoder(self) -> Callable[[Json], StreamEvent | None]:
        """What reads the events of one stream, in their order; None is one to be passed over."""
        ...
