"""Server-Sent Events: bytes of a stream to events, and an event to bytes (WHATWG HTML §9.2; A2A 1.0 §9.4.2, §11.7).

Reading is incremental: `EventStream.feed` takes whatever the network gave and returns the events that it completed.
A chunk is worked on as a whole by the bytes methods, never byte by byte:

    line ends       LF, CRLF and CR are first made one, LF, so that the blank line that ends a frame is always b"\\n\\n"
    whole frames    one split of the chunk; the usual frame (an id and one data line) is then cut out by position
    a partial one   is kept in one buffer that only grows; only what is new is searched, so a frame costs linear time

Writing is one formatting of bytes: `frame` and `KEEP_ALIVE`.
"""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["EventStream", "EventTooLarge", "KEEP_ALIVE", "ServerSentEvent", "frame"]

KEEP_ALIVE: Final = b":\n\n"
"""A comment. Readers skip it; it keeps proxies and read time-outs from closing a stream that has nothing to say."""

_BOM: Final = b"\xef\xbb\xbf"
_MAX_RETRY_DIGITS: Final = 15  # 30,000 years of milliseconds; int() refuses digits by the thousand


class EventTooLarge(ValueError):
    """A frame of an event stream is larger than its reader takes. The stream cannot be read any further."""

    def __init__(self, max_event_bytes: int) -> None:
        super().__init__(f"The event stream holds an event of more than {max_event_bytes} bytes.")
        self.max_event_bytes = max_event_bytes


class ServerSentEvent(msgspec.Struct, frozen=True, gc=False):
    """One event of a stream."""

    event: str  # the type; "message" when the frame names none
    data: bytes  # the data lines joined by LF, as they came: UTF-8 is not checked here
    id: str | None  # the id in force after this frame, its own or an earlier one's; None: never set, or reset
    retry: int | None  # milliseconds to wait before reconnecting, if this very frame says so


class EventStream:
    """Reads one event stream, from its first byte to its last.

    `last_event_id` and `retry` are what a client needs to reconnect; give the former to the stream that goes on.

    A frame counts with all its lines, comments too, each with one byte for its line end.

    Raises (from `feed`):
        EventTooLarge: a frame has more than `max_event_bytes`, whether or not its end has been seen.
    """

    __slots__ = ("_after_cr", "_failure", "_head", "_held", "_max_event_bytes", "last_event_id", "retry")

    def __init__(self, *, last_event_id: str | None = None, max_event_bytes: int = 64 * 1024 * 1024) -> None:
        self.last_event_id = last_event_id  # of the last complete frame that had one; None: no id is in force
        self.retry: int | None = None  # milliseconds, the last that a complete frame gave
        self._max_event_bytes = max_event_bytes
        self._head: bytes | None = b""  # what may yet become a byte order mark; None once that is settled
        self._after_cr = False  # the last byte was CR: an LF that follows belongs to it
        self._held = bytearray()  # the frame that has no end yet, with LF line ends
        self._failure: EventTooLarge | None = None

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """Take the next bytes, cut anywhere; return the events that they complete.

        Raises:
            EventTooLarge: a frame is over the limit. Events that came before it are returned first: then the error
                rises from the next call. After it every call raises.
        """
        if self._failure is not None:
            raise self._failure
        if self._head is not None:
            data = self._without_byte_order_mark(data)
        if self._after_cr or b"\r" in data:
            data = self._with_lf_only(data)

        held = self._held
        if not held:
            blocks = data.split(b"\n\n")
        else:
            if held[-1] == 0x0A and data.startswith(b"\n"):  # the blank line was cut in two
                held.pop()
                rest = data[1:]
            else:
                end = data.find(b"\n\n")
                if end < 0:
                    held += data
                    if len(held) > self._max_event_bytes:
                        self._fail([])
                    return []
                held += memoryview(data)[:end]
                rest = data[end + 2 :]
            blocks = [bytes(held), *rest.split(b"\n\n")]
            held.clear()
        held += blocks.pop()

        events: list[ServerSentEvent] = []
        limit = self._max_event_bytes
        for block in blocks:
            if len(block) >= limit:  # the LF of its last line is one byte more
                return self._fail(events)
            event = self._read(block)
            if event is not None:
                events.append(event)
        if len(held) > limit:
            return self._fail(events)
        return events

    def close(self) -> bytes:
        """The stream has ended. Return the frame that has no end, which is no event (§9.2.6), or b"" if none.

        Its bytes have LF line ends. A stream that broke off within an event shows here; one that broke off between
        two events does not. A last frame over the limit has been dropped already and gives b"" too.
        """
        rest = bytes(self._held.strip(b"\n"))
        if self._head is not None:
            rest, self._head = self._head, None
        self._held.clear()
        return rest

    def _without_byte_order_mark(self, data: bytes) -> bytes:
        head = (self._head or b"") + data
        if len(head) < len(_BOM) and _BOM.startswith(head):
            self._head = head
            return b""
        self._head = None
        return head.removeprefix(_BOM)

    def _with_lf_only(self, data: bytes) -> bytes:
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if data.endswith(b"\r"):
            self._after_cr = True
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _fail(self, events: list[ServerSentEvent]) -> list[ServerSentEvent]:
        """Raise, unless there are events to hand out first."""
        self._failure = EventTooLarge(self._max_event_bytes)
        self._held.clear()
        if not events:
            raise self._failure
        return events

    def _read(self, block: bytes) -> ServerSentEvent | None:
        """Make an event of a frame without its blank line, or None if it has no data."""
        # Nearly every frame is "data: ..." or "id: ...\ndata: ...": these need no loop and no look at single bytes.
        lines = block.split(b"\n", 2)
        if len(lines) == 2 and lines[0][:4] == b"id: " and lines[1][:6] == b"data: ":
            number = lines[0][4:]
            if number.isalnum():
                self.last_event_id = number.decode()
                return ServerSentEvent("message", lines[1][6:], self.last_event_id, None)
        elif len(lines) == 1 and block[:6] == b"data: ":
            return ServerSentEvent("message", block[6:], self.last_event_id, None)
        return self._read_lines(block)

    def _read_lines(self, block: bytes) -> ServerSentEvent | None:
        """As `_read`, for frames with any fields in any order (§9.2.6)."""
        kind = b""
        data = bytearray()  # a list of lines would be many times the size of a frame that is all short lines
        retry: int | None = None
        start = 0
        while start < len(block):
            end = block.find(b"\n", start)
            if end < 0:
                end = len(block)
            colon = block.find(b":", start, end)
            if colon < 0:
                name, value = block[start:end], b""
            else:
                name = block[start:colon]
                value = block[colon + (2 if block.startswith(b" ", colon + 1, end) else 1) : end]
            start = end + 1
            if name == b"data":
                data += value
                data += b"\n"
            elif name == b"event":
                kind = value
            elif name == b"id":
                if b"\0" not in value:
                    self.last_event_id = value.decode("utf-8", "replace") or None
            elif name == b"retry" and value.isdigit() and len(value) <= _MAX_RETRY_DIGITS:
                self.retry = retry = int(value)
        if not data:
            return None
        del data[-1]
        return ServerSentEvent(kind.decode("utf-8", "replace") or "message", bytes(data), self.last_event_id, retry)


def frame(data: bytes, id: int | None = None) -> bytes:
    """Write an event. `data` has no line end in it, as compact JSON has none; `id` is the number of the event."""
    if id is None:
        return b"data: %b\n\n" % data
    return b"id: %d\ndata: %b\n\n" % (id, data)
