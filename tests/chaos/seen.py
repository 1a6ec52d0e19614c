"""What callers were told of one task, and what was wrong with it as they heard it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.plan import Task

__all__ = ["Subscriber", "Work", "state_of"]

_ENDS = ("COMPLETED", "FAILED", "CANCELED", "REJECTED")


def state_of(value: Any) -> str | None:
    """The state that an event or a task tells, without its prefix; None when it tells of an artifact."""
    about = value.get("task") or value.get("statusUpdate") or value
    status = about.get("status")
    return None if status is None else str(status["state"]).removeprefix("TASK_STATE_")


@dataclass
class Work:
    """One task as its callers saw it."""

    plan: Task
    name: str  # lane and number in it
    message_id: str
    answer_id: str
    began: float  # seconds since the start, as all times here
    ended: float = 0.0
    task_id: str | None = None
    subscribers: list[Subscriber] = field(default_factory=list)
    told_ends: set[str] = field(default_factory=set)  # terminal states that anyone was told
    texts: list[str] = field(default_factory=list)  # whole texts, by those who do not see numbers
    answered: bool = False  # the answer was acknowledged
    faults: list[str] = field(default_factory=list)
    journal: list[str] = field(default_factory=list)
    zero: float = 0.0  # the start, by the monotonic clock
    longest_s: float = 0.0  # the longest time without news while there should have been some

    def now(self) -> float:
        return time.monotonic() - self.zero

    def note(self, words: str) -> None:
        self.journal.append(f"{self.now():7.2f}  {words}")

    def fault(self, words: str) -> None:
        self.faults.append(words)
        self.note(f"FAULT {words}")

    def known_as(self, task_id: str) -> None:
        """The task has this id, as somebody was told."""
        if self.task_id is None:
            self.task_id = task_id
        elif self.task_id != task_id:
            self.fault(f"one message has made two tasks: {self.task_id} and {task_id}")

    def told(self, state: str | None) -> None:
        if state in _ENDS:
            self.told_ends.add(state)


class Subscriber:
    """One who follows the numbered events of a task, over several streams."""

    def __init__(self, work: Work, name: str) -> None:
        self.name = name
        self.work = work
        self.events: dict[int, Any] = {}  # by number; without snapshots
        self.last = 0
        self.state: str | None = None
        work.subscribers.append(self)

    @property
    def over(self) -> bool:
        return self.state in _ENDS

    def hear(self, number: int, data: bytes, *, first: bool, behind: int | None) -> None:
        """An event has come. `first`: of its stream, which was to go on behind event `behind` (None: a snapshot)."""
        value = json.loads(data)
        work = self.work
        if self.over:
            work.fault(f"{self.name} was told {number} {data[:200]!r} behind the end")
        task = value.get("task")
        if task is not None:
            work.known_as(task["id"])
        if first and behind is None and task is not None and number >= 1:
            if number == 1:
                self.events[1] = value  # the whole log is told
        elif number != self.last + 1:
            work.fault(f"{self.name} was told event {number} behind {self.last}: {data[:200]!r}")
        else:
            self.events[number] = value
        self.last = number
        state = state_of(value)
        if state is not None:
            self.state = state
            work.told(state)
