"""Which connections a server of ours makes, and an end to those on which nobody gets on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

__all__ = ["close_slow", "protocol"]


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
