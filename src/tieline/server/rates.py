"""How much one caller may ask for: requests a second, messages a day. Counted in each process by itself."""

from __future__ import annotations

import ipaddress
import math
from collections import OrderedDict
from time import monotonic
from typing import Final

import msgspec

from tieline.engine.turn import Caller
from tieline.errors import RateLimited

__all__ = ["Meter", "Rates", "counted", "place"]

_DAY_S: Final = 86_400.0
_KNOWN: Final = 50_000  # callers that are counted; beyond that, those that have not called for longest are forgotten
_LEAST: Final = 1e-6  # of each of the limits: a request in twelve days, which is a long time to be told to wait
_MOST: Final = 1e9
_MESSAGES: Final = frozenset(("SendMessage", "SendStreamingMessage"))


class Rates(msgspec.Struct, frozen=True):
    """What each caller may ask for: who has authenticated, else an address. None is no limit.

    `requests_per_s` is a mean; `burst` so many may come at once (None: those of two seconds). `messages_per_day`: new
    and further messages within 24 hours of the first.
    """

    requests_per_s: float | None = None
    burst: int | None = None
    messages_per_day: int | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and not _LEAST <= value <= _MOST:
                raise ValueError(f"{name} has to be a number from {_LEAST:g} to {_MOST:g}, not {value:g}")


class _Count:
    """What one caller has used."""

    __slots__ = ("at", "day_ends", "left", "messages")

    def __init__(self, now: float, left: float) -> None:
        self.at = now
        self.left = left  # requests that it may send at once, as of `at`
        self.day_ends = now + _DAY_S
        self.messages = 0


def counted(caller: Caller, address: str) -> str:
    """By what a caller's requests are counted."""
    return f"{len(caller.tenant)}:{caller.tenant}/{caller.principal}" if caller.principal else place(address)


def place(address: str) -> str:
    """An address as it is counted: of IPv6 the network, for who has one address there has 2**64 of them."""
    if ":" not in address:
        return address
    try:
        found = ipaddress.IPv6Address(address)
    except ValueError:
        return address
    mapped = found.ipv4_mapped
    return str(mapped) if mapped is not None else str(ipaddress.IPv6Network((int(found) >> 64 << 64, 64)))


class Meter:
    """Counts callers' requests."""

    def __init__(self, rates: Rates) -> None:
        self._rates = rates
        per_s = rates.requests_per_s
        self._burst = float(rates.burst or (1 if per_s is None else max(1, math.ceil(2 * per_s))))
        self._counts: OrderedDict[str, _Count] = OrderedDict()  # a dict takes long to find its first key

    def request(self, caller: str, words: str = "") -> None:
        """Count a request. Raises RateLimited, with the seconds until there is room for one."""
        per_s = self._rates.requests_per_s
        if per_s is None:
            return
        now = monotonic()
        count = self._count(caller, now)
        left = min(self._burst, count.left + (now - count.at) * per_s)
        count.at = now
        if left < 1:
            count.left = left
            wait_s = max(1, math.ceil((1 - left) / per_s))
            raise RateLimited(words or f"You may send {per_s:g} requests a second.", retry_after_s=wait_s)
        count.left = left - 1

    def give_back(self, caller: str) -> None:
        """Have a request that was counted not count."""
        count = self._counts.get(caller)
        if count is not None:
            count.left = min(self._burst, count.left + 1)

    def operation(self, caller: str, operation: str) -> None:
        """Count an operation. Raises RateLimited, with the seconds until the day is over."""
        limit = self._rates.messages_per_day
        if limit is None or operation not in _MESSAGES:
            return
        now = monotonic()
        count = self._count(caller, now)
        if now >= count.day_ends:
            count.day_ends, count.messages = now + _DAY_S, 0
        if count.messages >= limit:
            wait_s = max(1, math.ceil(count.day_ends - now))
            raise RateLimited(f"You may send {limit} messages a day, and have done so.", retry_after_s=wait_s)
        count.messages += 1

    def _count(self, caller: str, now: float) -> _Count:
        counts = self._counts
        count = counts.get(caller)
        if count is None:
            if len(counts) >= _KNOWN:
                counts.popitem(last=False)
            count = counts[caller] = _Count(now, self._burst)
        else:
            counts.move_to_end(caller)  # who has called for longest ago comes first
        return count
