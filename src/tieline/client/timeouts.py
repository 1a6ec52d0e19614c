"""How long a call may take, and how often a broken stream is taken up again."""

from __future__ import annotations

import msgspec

__all__ = ["Recovery", "Timeouts"]


class Timeouts(msgspec.Struct, frozen=True):
    """Seconds. Whatever runs out ends the call with PeerTimeout.

    A stream has no limit as a whole: one that is silent for `idle_s` (no event, no keep-alive comment) counts as broken
    and is taken up again.
    """

    connect_s: float = 10.0  # to a connection, TLS included
    answer_s: float | None = 600.0  # from the call to the end of its answer; a blocking send takes as long as its task
    idle_s: float = 120.0  # between two signs of life of a stream, its first included
    card_s: float = 10.0  # to the agent card, each place that it is looked for


class Recovery(msgspec.Struct, frozen=True):
    """How a broken stream is taken up again: at once, then after pauses that double."""

    attempts: int = 8  # in a row that bring nothing new; after them the task is in doubt
    first_pause_s: float = 0.2
    longest_pause_s: float = 5.0

    def pause_s(self, failures: int) -> float:
        """The pause before the next attempt, when `failures` in a row have brought nothing."""
        if failures == 0:
            return 0.0
        return min(self.longest_pause_s, self.first_pause_s * 2.0 ** min(failures - 1, 32))
