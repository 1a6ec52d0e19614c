"""A task's log as this process knows it: what is published of it, what that folds into, and who waits for more.

A follower is the number of the last event it has seen (cursor.py). Events come from an agent at work here (writing.py,
run.py), or from the store, where another replica is at work on the task (remote.py).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from tieline.engine.fold import Fold
from tieline.errors import A2AError
from tieline.event import Event, TextChunk
from tieline.types import Encoded, Task, encode

if TYPE_CHECKING:
    from tieline.engine.tasks import Tasks

__all__ = ["TaskLog"]


class TaskLog(ABC):
    """The log of one task, with what it folds into.

    `fold` is the task as published, but while a write that carries a snapshot is under way (`_ahead`): who wants the
    task then waits for that one write.
    """

    __slots__ = (
        "_ahead",
        "_readers",
        "_settlers",
        "_snapshot",
        "_waiters",
        "base",
        "blobs",
        "broken",
        "context_id",
        "cursors",
        "events",
        "fold",
        "held",
        "inputs",
        "loop",
        "moved",
        "published",
        "reply",
        "rest",
        "scope",
        "service",
        "streamed",
        "task_id",
    )

    def __init__(self, service: Tasks, scope: str, task_id: str, context_id: str) -> None:
        self.service = service
        self.loop = asyncio.get_running_loop()  # asked for once: asking costs a system call
        self.scope = scope
        self.task_id = task_id
        self.context_id = context_id
        self.fold: Fold | None = None  # None while there is no task
        self.base = 0  # number of the last event that is not in `events`
        self.published = 0
        self.events: list[Event] = []  # published ones behind `base`
        self.inputs: tuple[int, ...] = ()  # numbers of the events in state INPUT_REQUIRED
        self.rest = 0  # number of the last published event that put the task to rest or ended it
        self.reply: Event | None = None  # a direct Message, instead of a task
        self.broken: A2AError | None = None  # nothing more can be told
        self.moved = False  # broken, as another replica goes on with it: who followed it here can do so there
        self.streamed = False  # somebody follows or has followed it
        self.cursors = 0  # followers
        self.held = 0  # who needs it for a moment
        self.blobs = False  # the history has long files of the caller's
        self._ahead = False
        self._readers = 0  # wait for the write that the fold is ahead by
        self._snapshot: bytes | None = None  # of `published`
        self._waiters: list[asyncio.Future[Any]] = []  # want every event
        self._settlers: list[asyncio.Future[Any]] = []  # want to know when it rests

    # --- what those below it add --------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def resting(self) -> bool:
        """Whether no agent is at work that could say more."""

    @property
    @abstractmethod
    def idle(self) -> bool:
        """Whether nothing is on its way to the store or to the agent."""

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether no event will follow those published, as far as is known here."""

    @property
    @abstractmethod
    def has_mail(self) -> bool:
        """Whether messages wait for the agent."""

    @abstractmethod
    def ensure_task(self) -> None:
        """Make a quiet run a task, WORKING."""

    @abstractmethod
    async def written(self) -> None:
        """Wait until all that has been said and heard up to now is stored. Raises InternalError if it could not be."""

    @abstractmethod
    def go_on(self) -> None:
        """Give the agent the message that it has been sent."""

    # --- publishing ---------------------------------------------------------------------------------------------------

    def _take_in(self, events: list[Event], snapshot: bytes | None, rest: int) -> None:
        """These are published: they follow what was, fold into `snapshot`, and `rest` is the last that rests."""
        if self._ahead:
            self._ahead = False
        else:
            fold = self.fold
            assert fold is not None
            for event in events:
                if isinstance(event, TextChunk):
                    fold.add_text(event)
                else:
                    fold.add(event.value)
        self._snapshot = snapshot
        self.events += events
        self.published += len(events)
        if rest <= self.published:
            self.rest = rest
        if self._settlers and self._rests:
            self._wake(self._settlers)
        if self._waiters:
            self._wake(self._waiters)

    @staticmethod
    def _wake(futures: list[asyncio.Future[Any]]) -> None:
        for future in futures:
            if not future.done():
                future.set_result(None)
        futures.clear()

    def _wake_all(self) -> None:
        if self._settlers:
            self._wake(self._settlers)
        if self._waiters:
            self._wake(self._waiters)

    # --- waiting and reading ------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Let everyone who waits for news look again."""
        self._wake(self._waiters)

    async def changed(self) -> None:
        """Wait for news."""
        future = self.waiter()
        try:
            await future
        finally:
            if future.cancelled():
                self.forget_waiter(future)

    def waiter(self) -> asyncio.Future[Any]:
        """A future that is done with the next news."""
        future = self.loop.create_future()
        self._waiters.append(future)
        return future

    def forget_waiter(self, future: asyncio.Future[Any]) -> None:
        """Keep no place for one who waits no more."""
        if future in self._waiters:
            self._waiters.remove(future)

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for news of it."""
        return bool(self.cursors or self._waiters or self._settlers)

    async def settled(self, after: int) -> None:
        """Wait until the task rests or ends behind event `after`, or the agent has replied.

        Raises InternalError when the task could not be stored.
        """
        while not (self._rests and self.rest > after) and self.reply is None and self.broken is None:
            if self.resting and self.idle:
                break
            future = self.loop.create_future()
            self._settlers.append(future)
            try:
                await future
            finally:
                if future.cancelled() and future in self._settlers:
                    self._settlers.remove(future)
        if self.broken is not None:
            raise self.broken

    @property
    def _rests(self) -> bool:
        """Whether the task, as published, rests or has ended."""
        if self._ahead or self.fold is None:
            return False
        state = self.fold.state
        return state.terminal or state.interrupted

    async def told(self) -> None:
        """Wait until the task is stored, or the agent has replied, or nothing can come any more."""
        while self.published == 0 and self.reply is None and self.broken is None and not (self.resting and self.idle):
            await self.changed()
        if self.broken is not None:
            raise self.broken

    async def readable(self) -> None:
        """Wait while the fold is ahead of what is published: at most for one write."""
        while self._ahead and self.broken is None:
            self._readers += 1
            try:
                await self.changed()
            finally:
                self._readers -= 1
        if self.broken is not None:
            raise self.broken

    def task(self) -> Task:
        """The task as published. Call `readable` before, with no await between."""
        assert self.fold is not None
        return self.fold.task()

    def snapshot(self) -> Encoded[Task]:
        """The task as published, encoded at most once for each state that it is in."""
        if self._snapshot is None:
            self._snapshot = encode(self.task())
        return Encoded(Task, json=self._snapshot, value=self.task())
