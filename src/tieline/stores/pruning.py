"""Counting what a prune drops."""

from __future__ import annotations

from typing import Final

from tieline.stores.base import Pruned
from tieline.types import TaskState

__all__ = ["TASKLESS_S", "Tally"]

TASKLESS_S: Final = 24 * 3600
"""How long, in seconds, a webhook waits for its task to be made."""


class Tally:
    """What has been dropped so far."""

    __slots__ = ("bytes", "logs", "messages", "states", "webhooks")

    def __init__(self) -> None:
        self.bytes = 0
        self.logs = 0
        self.messages = 0
        self.webhooks = 0
        self.states: dict[TaskState, int] = {}

    def task(self, state: TaskState, size: int) -> None:
        """A task that had ended so, of `size` bytes."""
        self.states[state] = self.states.get(state, 0) + 1
        self.bytes += size

    def pruned(self) -> Pruned:
        tasks = sum(self.states.values())
        return Pruned(tasks, self.bytes, dict(self.states), self.logs, self.messages, self.webhooks)
