"""JSON bodies of requests before anything is made of them."""

from __future__ import annotations

import re
from itertools import accumulate

from tieline.errors import InvalidRequest

__all__ = ["MAX_DEPTH", "check_depth"]

MAX_DEPTH = 100
"""How deep JSON may nest: the limit of protobuf's own parsers. Far below where any recursion here would end."""

_OTHERS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_STEPS = bytes(1 if byte in b"[{" else 0 for byte in range(256))
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)


def check_depth(body: bytes) -> None:
    """Raises InvalidRequest when `body` nests deeper than MAX_DEPTH. Linear, and a few comparisons for small ones."""
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return
    if _depth(body) > MAX_DEPTH and _depth(_STRING.sub(b"", body)) > MAX_DEPTH:  # brackets inside strings are no depth
        raise InvalidRequest(f"The JSON nests deeper than {MAX_DEPTH} levels.")


def _depth(body: bytes) -> int:
    brackets = body.translate(_STEPS, _OTHERS)
    return max(accumulate(1 if step else -1 for step in brackets), default=0)
