"""Server-Sent Events out of a cursor."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from tieline.engine.cursor import Cursor
from tieline.errors import A2AError
from tieline.wire import sse

__all__ = ["Stream"]

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
_IDLE_S = 1.0  # a stream that has had nothing to say for so long begins to watch whether its caller is still there


class Stream:
    """A response that is a stream: a cursor, and how its events are framed.

    `before` and `behind` go around the JSON of each event; an error that breaks the stream off is one frame more.
    """

    __slots__ = ("_before", "_behind", "_encode_error", "_patience_s", "_quiet_since", "cursor")

    def __init__(
        self, cursor: Cursor, encode_error: Callable[[A2AError], bytes], before: bytes = b"", behind: bytes = b""
    ) -> None:
        self.cursor = cursor
        self._encode_error = encode_error
        self._before = before
        self._behind = behind + b"\n\n"
        self._patience_s = _IDLE_S
        self._quiet_since: float | None = None  # loop time since which it waits for news

    def look(self, now: float, tick_s: float) -> None:
        """Rouse a stream that has been quiet for as long as it may be; called every `tick_s` seconds."""
        if self._quiet_since is not None and now - self._quiet_since > self._patience_s - tick_s:
            self.cursor.nudge()

    async def send(self, receive: Receive, send: Send, keep_alive_s: float) -> None:
        """Send what the cursor gives until it ends or its caller has gone; events that are ready go out together."""
        time = asyncio.get_running_loop().time
        cursor = self.cursor
        gone: asyncio.Task[None] | None = None
        try:
            await send(_START)
            while True:
                number, events = cursor.take()
                if events:
                    before, behind = self._before, self._behind
                    if number:
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
                    if news:
                        continue
                    if gone is None:
                        gone = asyncio.ensure_future(_until_gone(receive))
                        gone.add_done_callback(lambda _: cursor.close())
                        self._patience_s = keep_alive_s - _IDLE_S if keep_alive_s > 2 * _IDLE_S else keep_alive_s
                    else:
                        self._patience_s = keep_alive_s
                        await send({"type": "http.response.body", "body": sse.KEEP_ALIVE, "more_body": True})
            if cursor.failure is not None:
                frame = sse.frame(self._encode_error(cursor.failure))
                await send({"type": "http.response.body", "body": frame, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            cursor.close()
            if gone is not None:
                gone.cancel()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
