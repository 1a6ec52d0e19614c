"""What callers do and which replicas are killed, all of it from one seed. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Literal

__all__ = ["Kill", "Task", "kills", "tasks"]

Way = Literal["raw", "client", "poll"]


@dataclass(frozen=True)
class Task:
    """One task, from the caller's side. Replicas are the numbers of those that it turns to first."""

    agent: Literal["frail", "tough"]
    asks: bool
    chunks: int  # before the question, and as many behind it
    pause_ms: int
    way: Way  # an event stream read as bytes, tieline's client, or SendMessage with returnImmediately and GetTask
    twice: bool  # the message is sent to two replicas at once; raw only
    watched: bool  # somebody else subscribes, too; raw only
    cancel_behind: int | None  # cancelled behind this many events; raw only
    replicas: tuple[int, ...]  # in the order in which it needs them

    @property
    def words(self) -> str:
        return f"{'ask' if self.asks else 'talk'} {self.chunks} {self.pause_ms}"

    @property
    def answer(self) -> str:
        return f"answer {self.chunks} {self.pause_ms}"

    @property
    def text(self) -> str:
        """The whole of what the agent has said when it has done everything."""
        before = "".join(f"{number} " for number in range(self.chunks))
        if not self.asks:
            return before
        return f"{before}answered {''.join(f'{number} ' for number in range(self.chunks, 2 * self.chunks))}"


@dataclass(frozen=True)
class Kill:
    """One replica is killed, and started again."""

    wait_s: float  # before it
    replica: int
    down_s: float  # before it is started again


def tasks(seed: int, lane: int, replicas: int) -> Iterator[Task]:
    """What one caller does, one task behind the other; without end."""
    random = Random(f"{seed} tasks {lane}")
    while True:
        way: Way = random.choices(("raw", "client", "poll"), (7, 2, 1))[0]
        raw = way == "raw"
        asks = random.random() < 0.3
        chunks = random.randint(3, 15 if asks else 30)
        cancel_behind = random.randint(1, chunks) if raw and random.random() < 0.15 else None
        yield Task(
            agent=random.choice(("frail", "tough")),
            asks=asks,
            chunks=chunks,
            pause_ms=random.choice((0, 100, 300, 600)),
            way=way,
            twice=raw and random.random() < 0.2,
            watched=raw and random.random() < 0.3,
            cancel_behind=cancel_behind,
            replicas=tuple(random.randrange(replicas) for _ in range(8)),
        )


def kills(seed: int, count: int, replicas: int, lease_s: float) -> list[Kill]:
    """The kills, in order. Some replicas are back before they are missed, some long after."""
    random = Random(f"{seed} kills")
    return [
        Kill(
            wait_s=random.uniform(1.0, lease_s),
            replica=random.randrange(replicas),
            down_s=random.choice((0.0, random.uniform(0.5, lease_s), lease_s + random.uniform(0.5, 3.0))),
        )
        for _ in range(count)
    ]
