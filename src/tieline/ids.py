"""Identifiers: random UUIDs (version 4) as strings."""

from __future__ import annotations

import os

__all__ = ["new_id"]

_POOL_IDS = 256
_pool = ""
_at = 0


def new_id() -> str:
    """A random UUID, as `str(uuid.uuid4())` gives it: 122 bits of the system's randomness, drawn many at a time."""
    global _pool, _at
    if _at == len(_pool):
        _pool, _at = os.urandom(16 * _POOL_IDS).hex(), 0
    h = _pool[_at : _at + 32]
    _at += 32
    return f"{h[:8]}-{h[8:12]}-4{h[13:16]}-{'89ab'[int(h[16], 16) & 3]}{h[17:20]}-{h[20:]}"


def _forget_pool() -> None:
    global _pool, _at
    _pool, _at = "", 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)  # parent and child must not draw the same identifiers
