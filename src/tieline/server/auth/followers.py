"""Streams that are open: they end when what their callers have shown is revoked."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from tieline.engine.cursor import Cursor
from tieline.engine.turn import Caller
from tieline.errors import Unauthenticated
from tieline.server.auth.auth import Auth
from tieline.server.auth.identity import Shown

__all__ = ["Followers"]

log = logging.getLogger("tieline.server")

_LOOK_S: Final = 0.5


class Followers:
    """Who follows tasks, and by what they were let in."""

    def __init__(self, auth: Auth) -> None:
        self._auth = auth
        self._open: dict[Cursor, tuple[Caller, Shown]] = {}
        self._generation = auth.generation
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None

    def add(self, cursor: Cursor, caller: Caller, shown: Shown) -> None:
        """Have a stream end when its caller's credentials are revoked. One that they expire for goes on."""
        self._open[cursor] = (caller, shown)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def discard(self, cursor: Cursor) -> None:
        """A stream has ended."""
        self._open.pop(cursor, None)
        if not self._open and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look)
        generation = self._auth.generation
        if generation != self._generation and self._looking is None:
            self._generation = generation
            self._looking = asyncio.ensure_future(self._look_at_all())

    async def _look_at_all(self) -> None:
        try:
            for cursor, (caller, shown) in list(self._open.items()):
                if cursor in self._open and not await self._auth.lets_in_still(caller, shown):
                    log.warning("a stream of caller %r is ended: what it has shown is revoked", caller.principal)
                    cursor.close(Unauthenticated("What you have shown is valid no more."))
        finally:
            self._looking = None
