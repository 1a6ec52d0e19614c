"""An event stream over HTTP as events of A2A."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tieline.client.http import HttpStream
from tieline.client.transport import Numbered
from tieline.errors import A2AError, InvalidPeerResponse
from tieline.types import StreamEvent
from tieline.wire.sse import EventStream, EventTooLarge

__all__ = ["SseEvents"]


class SseEvents:
    """Reads server-sent events; `decode` makes an event of the data of one, or raises the error that it reports."""

    __slots__ = ("_decode", "_failure", "_frames", "_stream")

    def __init__(
        self,
        stream: HttpStream,
        decode: Callable[[bytes], StreamEvent],
        *,
        last_event_id: str | None,
        max_event_bytes: int,
    ) -> None:
        self._stream = stream
        self._decode = decode
        self._frames = EventStream(last_event_id=last_event_id, max_event_bytes=max_event_bytes)
        self._failure: A2AError | None = None

    async def read(self) -> Sequence[Numbered]:
        """See Events.read."""
        if self._failure is not None:
            raise self._failure
        while True:
            data = await self._stream.read()
            events: list[Numbered] = []
            try:
                for frame in self._frames.feed(data):
                    if frame.data:
                        events.append((frame.id, self._decode(frame.data)))  # noqa: PERF401 - kept when one fails
            except EventTooLarge as error:
                self._fail(InvalidPeerResponse(str(error)), events)
            except A2AError as error:
                self._fail(error, events)
            if events or not data:
                return events

    def _fail(self, error: A2AError, events: list[Numbered]) -> None:
        """Raise, unless there are events to hand out first."""
        self._failure = error
        self._stream.close()
        if not events:
            raise error

    async def close(self) -> None:
        """See Events.close."""
        self._stream.close()
