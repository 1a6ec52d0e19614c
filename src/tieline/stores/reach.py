"""How far a webhook has come: notes of it may come late and in any order, and what is known never goes back."""

from __future__ import annotations

from typing import Final

__all__ = ["NOWHERE", "Reach", "further"]

Reach = tuple[int, int | None]
"""Up to which number all has been delivered, and since when what is behind that fails; None: not known to fail."""

NOWHERE: Final[Reach] = (0, None)
"""What tells nothing new."""


def further(known: Reach | None, told: Reach) -> Reach:
    """What is known of a webhook when this is told of it, too: a streak of failures ends where the number goes up."""
    if known is None or told[0] > known[0]:
        return told
    return told if told[0] == known[0] and known[1] is None else known
