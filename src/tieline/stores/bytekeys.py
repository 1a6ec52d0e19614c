"""Callers' texts as keys of a database: any Unicode, any length."""

from __future__ import annotations

from hashlib import blake2b

__all__ = ["digest", "packed", "unpacked"]


def packed(text: str) -> bytes:
    """Text of a caller's as bytes: not every database takes NUL and lone surrogates in its own texts."""
    return text.encode("utf-8", "surrogatepass")


def unpacked(data: bytes) -> str:
    """What `packed` has made bytes of."""
    return data.decode("utf-8", "surrogatepass")


def digest(*texts: bytes) -> bytes:
    """16 bytes that stand for texts of any length, in their order."""
    made = blake2b(digest_size=16)
    for text in texts:
        made.update(len(text).to_bytes(8, "big") + text)
    return made.digest()
