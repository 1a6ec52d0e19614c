"""Time as tasks tell it."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

__all__ = ["Clock", "SteadyClock", "parse_timestamp", "timestamp"]

_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)\Z", re.ASCII)


class Clock:
    """Gives each status change a moment of its own: microseconds since 1970 that only go up, clock jumps or not."""

    __slots__ = ("_last", "_milli", "_second", "_text")

    def __init__(self) -> None:
        self._last = 0
        self._milli = -1  # the millisecond that `_text` says
        self._second = ""
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
        milli = now // 1000
        if milli != self._milli:
            if milli // 1000 != self._milli // 1000:
                self._second = time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(milli // 1000))
            self._milli = milli
            self._text = f"{self._second}{milli % 1000:03d}Z"
        return now, self._text


class SteadyClock:
    """The time that has gone by since this was made, on top of what the clock said then: it does not jump with it.

    What is old is told by this one: a clock set forward by a year must not make everything a year old.
    """

    __slots__ = ("_began", "_moment")

    def __init__(self) -> None:
        self._moment = time.time_ns() // 1000
        self._began = time.monotonic_ns() // 1000

    def now(self) -> int:
        """Microseconds since 1970."""
        return self._moment + time.monotonic_ns() // 1000 - self._began


def timestamp(moment: int) -> str:
    """Microseconds since 1970 as an RFC 3339 timestamp in UTC with milliseconds."""
    second, micro = divmod(moment, 1_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(second))}.{micro // 1000:03d}Z"


def parse_timestamp(text: str) -> int:
    """An RFC 3339 timestamp as microseconds since 1970.

    Raises ValueError when it is none.
    """
    if _RFC_3339.match(text) is None:
        raise ValueError("it looks like 2025-10-28T10:30:00.000Z")
    try:
        text = text.replace(":60", ":59")  # a leap second, which datetime does not know
        delta = datetime.fromisoformat(text).astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    except OverflowError:
        raise ValueError("it is out of range") from None
    return (delta.days * 86400 + delta.seconds) * 1_000_000 + delta.microseconds
