"""Counting what a prune drops."""

from __future__ import annotations

from tieline.stores.base import Pruned
from tieline.types import TaskState

__all__ = ["Tally"]


class Tally:
    """What has been dropped so far."""

    __slots__ = ("bytes", "logs", "messages", "states")

    def __init__(self) -> None:
        self.bytes = 0
        self.logs = 0
        self.messages = 0
        self.states: dict[TaskState, int] = {}

    def task(self, state: TaskState, size: int) -> None:
        """A task that had ended so, of `size` bytes."""
        self.states[state] = self.states.get(state, 0) + 1
        self.bytes += size

    def pruned(self) -> Pruned:
        return Pruned(sum(self.states.values()), self.bytes, dict(self.states), self.logs, self.messages)
