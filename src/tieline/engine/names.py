"""What the names of webhooks' hosts mean: asked of DNS, kept for a moment, asked once for all who ask at a time."""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from tieline.engine.addresses import Address, read_address

__all__ = ["Names", "NoAddress", "Resolve"]

Resolve = Callable[[str], Awaitable[Sequence[str]]]
"""All addresses of a host name, as text. Raises OSError when there is none."""

_KEPT_NAMES: Final = 4096


class NoAddress(OSError):
    """A name has no address that can be read, or none was told in time."""


class Names:
    """`resolve`: who is asked, None is the system. `limit_s`: for one question. `kept_s`: how long an answer holds."""

    def __init__(self, resolve: Resolve | None, *, limit_s: float, kept_s: float) -> None:
        self._resolve = resolve or _system_addresses
        self._limit_s = limit_s
        self._kept_s = kept_s
        self._known: OrderedDict[str, tuple[float, tuple[Address, ...]]] = OrderedDict()
        self._asked: dict[str, asyncio.Task[tuple[Address, ...]]] = {}

    async def of(self, host: str) -> tuple[Address, ...]:
        """All addresses of a name. Raises NoAddress, also when this is closed meanwhile."""
        known = self._known.get(host)
        if known is not None and known[0] > asyncio.get_running_loop().time():
            return known[1]
        asked = self._asked.get(host)
        if asked is None:
            asked = self._asked[host] = asyncio.create_task(self._ask(host))
            asked.add_done_callback(lambda task: self._told(host, task))
        await asyncio.wait([asked])
        if asked.cancelled():
            raise NoAddress(host)
        return asked.result()

    def close(self) -> None:
        """Ask for nothing any more."""
        for asked in self._asked.values():
            asked.cancel()

    async def _ask(self, host: str) -> tuple[Address, ...]:
        try:
            async with asyncio.timeout(self._limit_s):
                texts = await self._resolve(host)
        except (OSError, UnicodeError) as error:  # TimeoutError is one
            raise NoAddress(host) from error
        addresses = tuple(dict.fromkeys(read_address(text) for text in texts))
        if not addresses or None in addresses:
            raise NoAddress(host)
        return tuple(address for address in addresses if address is not None)

    def _told(self, host: str, task: asyncio.Task[tuple[Address, ...]]) -> None:
        self._asked.pop(host, None)
        if task.cancelled() or task.exception() is not None:
            return
        self._known[host] = (task.get_loop().time() + self._kept_s, task.result())
        self._known.move_to_end(host)
        while len(self._known) > _KEPT_NAMES:
            self._known.popitem(last=False)


async def _system_addresses(host: str) -> Sequence[str]:
    infos = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(info[4][0]) for info in infos]
