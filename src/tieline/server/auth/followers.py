"""Streams that are open: they end when what their callers have shown is revoked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
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
        self._new: list[Cursor] = []  # of these, those that have not been looked at yet
        self._generation = auth.generation
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None

    def add(self, cursor: Cursor, caller: Caller, shown: Shown) -> None:
        """Have a stream end when its caller's credentials are revoked. One that they expire for goes on."""
        self._open[cursor] = (caller, shown)
        self._new.append(cursor)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def discard(self, cursor: Cursor) -> None:
        """A stream has ended."""
        self._open.pop(cursor, None)
        if not self._open and self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._new.clear()

    def _look(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look)
        if self._looking is not None:
            return
        # Also at the new ones: what has let one in may have been revoked before its request had come whole.
        cursors, self._new = self._new, []
        generation = self._auth.generation
        if generation != self._generation:
            self._generation = generation
            cursors = list(self._open)
        if cursors:
            self._looking = asyncio.ensure_future(self._look_at(cursors))

    async def _look_at(self, cursors: Sequence[Cursor]) -> None:
        try:
            for cursor in cursors:
                if cursor not in self._open:
                    continue
                caller, shown = self._open[cursor]
                if not await self._auth.lets_in_still(caller, shown):
                    log.warning("a stream of caller %r is ended: what it has shown is revoked", caller.principal)
                    cursor.close(Unauthenticated("What you have shown is valid no more."))
        finally:
            self._looking = None
