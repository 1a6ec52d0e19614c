"""Time as tasks tell it."""

from __future__ import annotations

import time
from datetime import UTC, datetime

__all__ = ["Clock", "parse_timestamp", "timestamp"]


class Clock:
    """Gives each status change a moment of its own: microseconds since 1970 that only go up, clock jumps or not."""

    __slots__ = ("_last", "_second", "_text")

    def __init__(self) -> None:
        self._last = 0
        self._second = -1
        self._text = ""

    def not_before(self, moment: int) -> None:
        """Go on behind `moment`: what a store has seen already."""
        self._last = max(self._last, moment)

    def tick(self) -> tuple[int, str]:
        """A new moment, as microseconds since 1970 and as a timestamp (A2A 1.0 §5.6.1)."""
        now = time.time_ns() // 1000
        if now <= self._last:
            now = self._last + 1
        self._last = now
        second, micro = divmod(now, 1_000_000)
        if second != self._second:
            self._second = second
            self._text = time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(second))
        return now, f"{self._text}{micro // 1000:03d}Z"


def timestamp(moment: int) -> str:
    """Microseconds since 1970 as an RFC 3339 timestamp in UTC with milliseconds."""
    second, micro = divmod(moment, 1_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(second))}.{micro // 1000:03d}Z"


def parse_timestamp(text: str) -> int:
    """An RFC 3339 timestamp as microseconds since 1970.

    Raises ValueError when it is none, or has no time zone.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a timestamp needs its time zone: end it with Z")
    delta = moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86400 + delta.seconds) * 1_000_000 + delta.microseconds
