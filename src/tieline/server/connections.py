"""Which connections a server of ours makes, and an end to those on which nobody gets on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import uvicorn

__all__ = ["WatchedServer", "close_slow", "protocol"]


class WatchedServer(uvicorn.Server):
    """uvicorn's server, which looks at its connections every second."""

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:
            close_slow(self.server_state.connections, asyncio.get_running_loop().time())
        return await super().on_tick(counter)


def protocol() -> type[asyncio.Protocol] | str:
    """How connections are served, as uvicorn is told: ours where httptools is there."""
    try:
        from tieline.server.protocol import Connection
    except ImportError:
        return "auto"
    return Connection


def close_slow(connections: Iterable[object], now: float) -> None:
    """Hang up on who has begun a request and does not come to the end of its head, or of its body."""
    for connection in list(connections):
        look = getattr(connection, "look", None)
        if look is not None:
            look(now)
