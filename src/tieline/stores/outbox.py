"""Letters on their way to other replicas: those of one turn, and those written meanwhile, go together."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tieline.stores.base import StoreError

__all__ = ["Outbox"]


class Outbox(ABC):
    """The sending side of a replica's post, and whom to tell of what arrives.

    `before` is waited for before letters go: what they tell of has been done then.
    """

    def __init__(self, before: Callable[[], Awaitable[object]]) -> None:
        self._before = before
        self._heard: Callable[[bytes], object] = lambda letter: None
        self._gap: Callable[[], object] = lambda: None
        self._letters: dict[str, list[bytes]] = {}  # by replica
        self._posted: asyncio.Future[None] | None = None
        self._sending: asyncio.Task[None] | None = None

    @abstractmethod
    async def _deliver(self, letters: dict[str, list[bytes]]) -> None:
        """Give letters to the server, by reader and in order. Raises StoreError."""

    def listen(self, heard: Callable[[bytes], object], gap: Callable[[], object]) -> None:
        """Whom to tell of letters, and that some may be lost."""
        self._heard, self._gap = heard, gap

    def send(self, replica: str, letters: Sequence[bytes]) -> asyncio.Future[Any]:
        """Send with what else is sent in this turn; done when the server has it."""
        self._letters.setdefault(replica, []).extend(letters)
        if self._posted is None:
            self._posted = asyncio.get_running_loop().create_future()
        posted = self._posted
        if self._sending is None:
            self._sending = asyncio.ensure_future(self._send())
        return posted

    async def sent(self) -> None:
        """Wait until all that was sent has gone."""
        if self._sending is not None:
            await asyncio.wait([self._sending])

    async def _send(self) -> None:
        await asyncio.sleep(0)  # the rest of this turn
        try:
            while self._posted is not None:
                letters, self._letters = self._letters, {}
                posted, self._posted = self._posted, None
                try:
                    await self._before()
                    await self._deliver(letters)
                except StoreError as error:
                    _end(posted, error)
                except BaseException:
                    _end(posted, StoreError("the store was stopped in the middle of a delivery"))
                    raise
                else:
                    _end(posted, None)
        finally:
            self._sending = None
            if self._posted is not None:  # whatever has ended this must not leave the next ones waiting
                self._sending = asyncio.ensure_future(self._send())


def _end(posted: asyncio.Future[None], error: StoreError | None) -> None:
    """Tell who waits for letters to go; one of those may have given up."""
    if posted.done():
        return
    if error is None:
        posted.set_result(None)
    else:
        posted.set_exception(error)
        posted.exception()  # who waits for it hears of it all the same
