"""A subscriber: a number in a task's log."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tieline.engine.content import with_history
from tieline.errors import A2AError
from tieline.event import Event
from tieline.types import Task

if TYPE_CHECKING:
    from tieline.engine.log import TaskLog

__all__ = ["Cursor"]


class Cursor:
    """What one subscriber has still to see of a task.

    `take` gives all that is there, `wait` waits for more, `ended` says that nothing will come. There is no queue: a
    subscriber that does not read costs its place in the log, and finds everything when it reads again.
    """

    __slots__ = (
        "_begin",
        "_closed",
        "_first",
        "_head",
        "_history_length",
        "_number",
        "_run",
        "_until_input",
        "_waiter",
        "_why",
    )

    def __init__(
        self,
        run: TaskLog | None,
        number: int,
        *,
        head: list[Event] | None = None,
        first: int = 0,
        until_input: bool = False,
        history_length: int | None = None,
    ) -> None:
        """Follow `run` behind event `number`; before that, give the events `head`, the first of which has `first`.

        `until_input`: end when the agent wants the caller's input (A2A 1.0 §11.7), not only when the task ends.
        `history_length`: how much history the task at the head of the stream shows (§3.2.4).
        """
        self._run = run
        self._number = number
        self._begin = number
        self._head = head
        self._first = first
        self._until_input = until_input
        self._history_length = history_length
        self._closed = False
        self._why: A2AError | None = None
        self._waiter: asyncio.Future[bool | None] | None = None
        if run is not None:
            run.cursors += 1
            run.streamed = True

    def take(self) -> tuple[int, list[Event]]:
        """The events that are ready, in order, and the number of the first; 0 as number is an event without one."""
        if self._head is not None:
            head, self._head = self._head, None
            return self._first, head
        run = self._run
        if run is None:
            return 0, []
        if run.reply is not None and run.published == 0:
            if self._number == 0:
                self._number = 1
                return 0, [run.reply]
            return 0, []
        first = self._number + 1
        events = run.events[self._number - run.base :]
        if self._until_input:
            for number in run.inputs:
                if self._begin < number < first + len(events):  # the agent asks: that is the end for who has sent
                    events = events[: number - first + 1]
                    self._closed = True
                    break
        self._number += len(events)
        if first == 1 and events and self._history_length is not None and isinstance(events[0].value, Task):
            events[0] = Event(with_history(events[0].value, self._history_length))
        return first, events

    @property
    def ended(self) -> bool:
        """Whether all has been taken and nothing will come."""
        if self._closed:
            return True
        run = self._run
        if self._head is not None:
            return False
        if run is None:
            return True
        if run.reply is not None and run.published == 0:
            return self._number > 0
        return run.closed and self._number >= run.published

    @property
    def failure(self) -> A2AError | None:
        """Why the stream broke off, when it did; None where it was cut."""
        run = self._run
        return self._why if run is None or run.moved else run.broken

    @property
    def cut(self) -> bool:
        """Whether it ends before its task does, without a failure: another replica has taken the task over.

        Who subscribes again finds it where it is.
        """
        return self._run is not None and self._run.moved

    @property
    def ready(self) -> bool:
        """Whether there is something to take, or nothing will come."""
        run = self._run
        return self._head is not None or run is None or run.published > self._number or self.ended

    async def wait(self) -> bool:
        """Wait until there is something to take, or the end; False when `nudge` came first."""
        run = self._run
        if run is None or self.ready:
            return True
        waiter = self._waiter = run.waiter()
        news = False
        try:
            news = await waiter is None
        finally:
            self._waiter = None
            if not news:
                run.forget_waiter(waiter)
        return news

    def nudge(self) -> None:
        """Let `wait` return, without news."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(False)

    def close(self, why: A2AError | None = None) -> None:
        """Stop following, and let go who waits; `why` is told as a failure. Closing twice is allowed."""
        self._closed = True
        self._why = why or self._why
        run, self._run = self._run, None
        if run is not None:
            run.cursors -= 1
            run.wake()
            run.service.forget(run)
