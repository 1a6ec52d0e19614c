"""Letters between replicas over Redis: a stream for each reader, which waits for what comes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

from tieline.stores.outbox import Outbox
from tieline.stores.patience import said
from tieline.stores.redis_link import Link, RedisError

__all__ = ["Post"]

log = logging.getLogger("tieline.stores")

_BLOCK_S: Final = 5
_LETTERS: Final = 100_000  # at most that wait for one reader: with more, they are dropped, and it is told of a gap
_KEPT_S: Final = 120  # a stream that nobody writes to any more is forgotten then
_PAUSE_S: Final = 0.2
_AT_ONCE: Final = 1000


class Post(Outbox):
    """What one replica sends and hears."""

    def __init__(self, link: Link, replica: str, ready: Callable[[], Awaitable[None]]) -> None:
        super().__init__(ready)
        self._link = link
        self._key = link.key("i:", replica.encode())
        self._client: Any = None
        self._listening: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begin to listen."""
        if self._listening is None:
            self._client = self._link.client(_BLOCK_S + self._link.limit_s, 1)
            self._listening = asyncio.ensure_future(self._listen())

    async def close(self) -> None:
        """Send what is there, and listen no more."""
        await self.sent()
        if self._listening is not None:
            # A cancellation that comes together with an answer is lost within redis-py: it is said until it is heard.
            while not self._listening.done():
                self._listening.cancel()
                await asyncio.wait([self._listening], timeout=_PAUSE_S)
            self._listening = None
            with contextlib.suppress(RedisError, OSError):
                await self._client.aclose()
                await self._client.connection_pool.disconnect()

    # --- sending ------------------------------------------------------------------------------------------------------

    async def _deliver(self, letters: dict[str, list[bytes]]) -> None:
        scripts = [("post", (replica, _LETTERS, _KEPT_S, *some)) for replica, some in letters.items() if some]
        await self._link.retried(partial(self._put, scripts))

    async def _put(self, scripts: Sequence[tuple[str, Sequence[Any]]], attempt: int) -> None:
        await self._link.run_all(scripts)  # what was sent twice is read twice

    # --- listening ----------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Hear for as long as this store is open."""
        first = ("XREAD", "COUNT", _AT_ONCE, "STREAMS", self._key, 0)  # tells at once that the line is there again
        read = (*first[:3], "BLOCK", _BLOCK_S * 1000, *first[3:])
        strike: list[tuple[Any, ...]] = []  # off what has been heard
        broken = False
        while True:
            try:
                *_, found = await self._link.all_of([*strike, first if broken else read], self._client)
            except (RedisError, OSError, TimeoutError) as error:
                if not broken:
                    log.warning("%s does not tell of letters for now: %s", self._link.shown, said(error))
                broken = True
                await asyncio.sleep(_PAUSE_S)
                continue
            if broken:
                broken = False
                self.lost()
            strike = []
            for number, fields in found[0][1] if found else ():
                strike = [("XTRIM", self._key, "MINID", _behind(number))]
                if b"g" in fields:
                    self.lost()
                elif b"b" in fields:
                    self._take(fields[b"b"])

    def lost(self) -> None:
        """Letters for this replica may be lost."""
        try:
            self._gap()
        except Exception:  # as in _take
            log.exception("a gap between letters could not be told")

    def _take(self, letter: bytes) -> None:
        try:
            self._heard(letter)
        except Exception:  # who hears must not stop the others from hearing
            log.exception("a letter could not be taken")


def _behind(number: bytes) -> str:
    """The first number of an entry behind this one."""
    moment, _, count = number.decode().partition("-")
    return f"{moment}-{int(count) + 1}"
