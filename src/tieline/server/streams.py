"""Server-Sent Events out of a cursor."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from tieline.engine.cursor import Cursor
from tieline.errors import A2AError
from tieline.event import Event
from tieline.operation.requests import refused
from tieline.wire import sse
from tieline.wire.dialect import Dialect, EventEncoder
from tieline.wire.v1 import V1

__all__ = ["Stream", "Watch"]

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", b"text/event-stream"),
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),  # nginx would hold events back
    ],
}
_WATCH_S = 1.0  # a request that is open for so long begins to watch whether its caller is still there


class Watch:
    """Notices that the caller of an open request has gone, and says so once.

    To be made when the body has been read: what the server gives after it is the caller's departure.
    """

    __slots__ = ("_began", "_on_gone", "_receive", "_waiting", "gone")

    def __init__(self, receive: Receive, on_gone: Callable[[], object]) -> None:
        self.gone = False
        self._receive = receive
        self._on_gone = on_gone
        self._began: float | None = None  # loop time of the first look
        self._waiting: asyncio.Task[None] | None = None

    def look(self, now: float) -> None:
        """Called now and then; begins to watch when the request has been open for a while."""
        if self._began is None:
            self._began = now
        elif self._waiting is None and now - self._began > _WATCH_S:
            self._waiting = asyncio.ensure_future(self._wait())

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        self._on_gone()

    def end(self) -> None:
        """The request is answered."""
        if self._waiting is not None:
            self._waiting.cancel()


class Stream:
    """A response that is a stream: a cursor, and how its events are framed.

    `before` and `behind` go around the JSON of each event; an error that breaks the stream off is one frame more.
    """

    __slots__ = ("_before", "_behind", "_encode", "_encode_error", "_numbered", "_quiet_since", "_watch", "cursor")

    def __init__(
        self,
        cursor: Cursor,
        encode_error: Callable[[A2AError], bytes],
        before: bytes = b"",
        behind: bytes = b"",
        *,
        dialect: Dialect = V1,
    ) -> None:
        self.cursor = cursor
        self._encode = dialect.event_encoder()
        self._numbered = dialect.resumes
        self._encode_error = encode_error
        self._before = before
        self._behind = behind + b"\n\n"
        self._watch: Watch | None = None
        self._quiet_since: float | None = None  # loop time since which it waits for news

    def look(self, now: float, quiet_s: float) -> None:
        """Called now and then; rouses a stream that has been quiet for `quiet_s` seconds."""
        if self._watch is not None:
            self._watch.look(now)
        if self._quiet_since is not None and now - self._quiet_since > quiet_s:
            self.cursor.nudge()

    def _translated(self, number: int, events: Sequence[Event], encode: EventEncoder) -> list[bytes]:
        """Events as frames of a dialect in which one may be none or several: the last of several has the number."""
        before, behind = self._before, self._behind
        last = number + len(events) - 1 if self.cursor.ended and not self.cursor.cut else -1
        frames = []
        for n, event in enumerate(events, number):
            told = encode(event, n == last)
            if number and self._numbered and len(told) == 1:
                frames.append(b"id: %d\ndata: %b%b%b" % (n, before, told[0], behind))
                continue
            frames += [b"data: %b%b%b" % (before, json, behind) for json in told]
            if told and number and self._numbered:
                frames[-1] = b"id: %d\n%b" % (n, frames[-1])
        return frames

    async def send(self, receive: Receive, send: Send) -> None:
        """Send what the cursor gives until it ends or its caller has gone; events that are ready go out together."""
        cursor = self.cursor
        watch = self._watch = Watch(receive, cursor.close)
        time = asyncio.get_running_loop().time
        try:
            if not cursor.ready:
                await asyncio.sleep(0)  # an agent that has something to say at once goes out with the headers
            await send(_START)
            while True:
                number, events = cursor.take()
                if events:
                    before, behind = self._before, self._behind
                    if self._encode is not None:
                        frames = self._translated(number, events, self._encode)
                    elif number:
                        frames = [
                            b"id: %d\ndata: %b%b%b" % (n, before, event.json, behind)
                            for n, event in enumerate(events, number)
                        ]
                    else:
                        frames = [b"data: %b%b%b" % (before, event.json, behind) for event in events]
                    del events
                    await send({"type": "http.response.body", "body": b"".join(frames), "more_body": True})
                    del frames
                elif cursor.ended:
                    break
                else:
                    self._quiet_since = time()
                    news = await cursor.wait()
                    self._quiet_since = None
                    if not news:
                        await send({"type": "http.response.body", "body": sse.KEEP_ALIVE, "more_body": True})
            if cursor.failure is not None:
                refused(cursor.failure)
                frame = sse.frame(self._encode_error(cursor.failure))
                await send({"type": "http.response.body", "body": frame, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            cursor.close()
            watch.end()
