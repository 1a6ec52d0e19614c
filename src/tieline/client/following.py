"""A stream that is taken up again when it breaks, so that its consumer gets every piece once, or hears of the doubt.

    events ── break or early end ──> subscribe (with Last-Event-ID where the server numbers its events) ──> events
                                        └── refused: read the task, give what is missing ──> end, or try again

The task is read first, too, where another subscription might be no better than the last: it ended by itself, told
nothing, or told what may not be new; or what came was an error, or no event of A2A.

The end is a terminal state, a direct Message, or the agent's wait for its caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from tieline.client.seen import Seen
from tieline.client.transport import Events, Numbered
from tieline.errors import (
    A2AError,
    AuthenticationRequired,
    InternalError,
    InvalidPeerResponse,
    PeerTimeout,
    TaskInDoubt,
    Unavailable,
    Unreachable,
)
from tieline.types import Message, StreamEvent, Task, TaskState
from tieline.wire.sse import EventTooLarge

__all__ = ["Following", "PASSING", "Recovery", "rests"]

_LINGER_S: Final = 1.0
"""How long the server has to close a stream behind its last event: it may still send a snapshot, and a connection
whose stream was read to its end can be used again."""

_LONGEST_ID: Final = 1000
"""An id that is longer is not sent back: it would not fit a header."""

_EMPTY: Final = "The agent ended the stream too early."

PASSING: Final = (Unreachable, PeerTimeout, InvalidPeerResponse, InternalError)
"""Errors of an attempt that another one may not meet."""

_NO_REFUSAL: Final = (*PASSING, AuthenticationRequired)
"""Errors that do not say that the task cannot be subscribed to."""


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


def rests(state: TaskState) -> bool:
    """Whether waiting is over: the task has ended, or its caller has to act. A state that is not known is neither."""
    return state.terminal or state.interrupted


class Following:
    """One stream as its consumer sees it.

    `subscribe(task_id, last_event_id)` takes it up again, `read_task(task_id)` reads the task. `closed` says that the
    peer was closed: no use in trying again. `until_input`: the stream ends when the agent asks its caller (as
    SendStreamingMessage does), not only with the task. `message` is the one that begins the stream, if one does.
    """

    def __init__(
        self,
        seen: Seen,
        *,
        subscribe: Callable[[str, str | None], Awaitable[Events]],
        read_task: Callable[[str], Awaitable[Task]],
        recovery: Recovery,
        closed: Callable[[], bool],
        until_input: bool,
        message: Message | None,
        last_event_id: str | None,
    ) -> None:
        self._seen = seen
        self._subscribe = subscribe
        self._read_task = read_task
        self._recovery = recovery
        self._closed = closed
        self._until_input = until_input
        self._message = message
        self._last_event_id = last_event_id
        self._numbered = True  # the last event had an id of its own
        self._asked_behind: str | None = None  # the Last-Event-ID that the source was opened with
        self._failures = 0  # attempts in a row that brought nothing new
        self._resumed = False
        self._refused = False  # by the first event of what was to take the stream up again
        self._heard = False  # an event has come, of whichever source
        self._gap = False  # events may be missing, and only the task itself can tell
        self._look = False  # the task is to be read before it is subscribed to

    async def events(self, opening: Callable[[], Awaitable[Events]]) -> AsyncGenerator[StreamEvent, None]:
        """All events from the opening of the stream to its end, each once.

        Raises what `opening` does, and:
            TaskInDoubt: the stream broke and could not be taken up again; with the ids of the message, if it has any,
                when it broke before the task was told.
            A2AError: the agent reported an error in the stream, or broke the protocol.
        """
        seen = self._seen
        source = await opening()
        alive = self._last_event_id is not None  # the source has shown that it follows the task
        told = False  # the source has been read from
        some = False  # the source has told something
        answered = False  # all that came is the task as it was before it got this answer to its question
        try:
            while True:
                cut: A2AError | None = None
                batch: Sequence[Numbered] = ()
                try:
                    batch = await (_lingering(source) if self._may_be_over and not answered else source.read())
                except (Unreachable, PeerTimeout) as error:
                    cut = error
                except A2AError as error:
                    self._check(error, told)
                    cut = error
                answered = not self._heard and len(batch) == 1 and self._is_answered(batch[0][1])
                told = True
                for id_, event in batch:
                    if self._resumed:
                        if not alive and not isinstance(event, Task) and self._asked_behind is None:
                            self._gap = True
                        if self._ends(event) and (self._gap or seen.holds_back):
                            for news in await self._missing():
                                yield news
                            if seen.over:
                                break
                    alive = self._heard = True
                    self._note(id_)
                    for news in seen.take(event):
                        self._failures = int(self._gap)
                        yield news
                    if self._resumed and self._until_input and seen.state is TaskState.INPUT_REQUIRED:
                        return
                if batch:
                    some = True
                    continue
                if self._is_end(cut):
                    return
                await source.close()
                if alive and isinstance(cut, PeerTimeout):
                    self._failures = 0  # it lived, and had nothing to say
                if self._resumed and (cut is None or not some or (self._gap and not _interrupted(seen.state))):
                    self._look = True
                    if cut is None:
                        self._failures = max(self._failures, 1)
                if self._look and (task := await self._looked_at(cut)) is not None:
                    for news in self._caught_up(task):
                        yield news
                    if self._is_end(cut):
                        return
                while True:
                    again = await self._again(cut)
                    if not isinstance(again, Task):
                        source, told, some = again, False, False
                        alive = self._asked_behind is not None  # nothing need come until there is news
                        break
                    for news in self._caught_up(again):
                        yield news
                    if rests(again.state):
                        return
        finally:
            await source.close()

    @property
    def _may_be_over(self) -> bool:
        seen = self._seen
        return seen.over or (self._until_input and seen.state is TaskState.INPUT_REQUIRED)

    def _is_answered(self, event: StreamEvent) -> bool:
        """Whether the first event of a stream shows the task as it was when the stream's message came."""
        return self._message is not None and self._message.task_id is not None and isinstance(event, Task)

    def _check(self, error: A2AError, told: bool) -> None:
        """What an error in a source means for the stream. Raises it where it is the end."""
        if isinstance(error, InvalidPeerResponse):
            if not self._heard or isinstance(error.__cause__, EventTooLarge):
                raise error
            self._look = True  # the stream is of no use, and yet the task may do well
        elif told or not self._resumed or isinstance(error, _NO_REFUSAL):
            raise error
        else:
            self._refused = True  # some servers refuse a subscription in the stream itself

    def _ends(self, event: StreamEvent) -> bool:
        status = getattr(event, "status", None)
        if status is None:
            return False
        state: TaskState = status.state
        return state.terminal or (self._until_input and state is TaskState.INPUT_REQUIRED)

    def _note(self, id_: str | None) -> None:
        if id_ is not None:
            # The same id again is an event without one: going on behind it would tell that event twice.
            self._numbered = id_ != self._last_event_id and len(id_) <= _LONGEST_ID
            self._last_event_id = id_

    def _is_end(self, cut: A2AError | None) -> bool:
        """Whether the source has ended where a stream may end. Raises TaskInDoubt when no one can tell."""
        seen = self._seen
        if seen.over:
            return True
        state = seen.state
        if _interrupted(state):
            return cut is None or (self._until_input and state is TaskState.INPUT_REQUIRED)
        if seen.task_id is None:
            if isinstance(cut, PeerTimeout):
                raise cut
            message = self._message
            raise TaskInDoubt(
                f"The stream broke before the agent told of a task; the message may have arrived. {cut or _EMPTY}",
                task_id=None if message is None else message.task_id,
                context_id=None if message is None else message.context_id,
            )
        return False

    async def _looked_at(self, cut: A2AError | None) -> Task | None:
        """The task, where it tells what a subscription that goes on behind the last event would not."""
        self._look = False
        assert self._seen.task_id is not None
        with suppress(A2AError):  # it may be subscribed to all the same
            task = await self._read_task(self._seen.task_id)
            if not self._numbered or rests(task.state) or isinstance(cut, InvalidPeerResponse):
                return task
        return None

    def _caught_up(self, task: Task) -> Sequence[StreamEvent]:
        """What is new in a task that was read."""
        self._heard = True
        self._gap = False
        self._numbered = False  # events behind the last number have been told by the task itself
        news = self._seen.take(task)
        if news:
            self._failures = 1
        return news

    async def _again(self, cut: A2AError | None) -> Events | Task:
        """The next source, or the task where it cannot be subscribed to. Raises TaskInDoubt."""
        seen = self._seen
        task_id = seen.task_id
        assert task_id is not None
        last: A2AError | None = cut
        while self._failures <= self._recovery.attempts:
            if self._closed():
                raise Unreachable("This peer was closed.")
            pause = self._recovery.pause_s(self._failures)
            if isinstance(last, Unavailable):
                pause = max(pause, min(float(last.retry_after_s), self._recovery.longest_pause_s))
            if pause:
                await asyncio.sleep(pause)
            self._failures += 1
            self._resumed = True
            seen.resumed()
            try:
                if self._refused or (not self._heard and self._failures > 1):
                    self._refused = False  # some servers break a stream off where they mean a refusal
                    return await self._read_task(task_id)
                self._asked_behind = self._last_event_id if self._numbered else None
                try:
                    return await self._subscribe(task_id, self._asked_behind)
                except (Unreachable, PeerTimeout, AuthenticationRequired, Unavailable):
                    raise
                except (InvalidPeerResponse, InternalError):  # some servers fail where a task has ended
                    task = await self._read_task(task_id)
                    if not rests(task.state):
                        raise
                    return task
                except A2AError:  # it has ended, or cannot be subscribed to
                    return await self._read_task(task_id)
            except PASSING as error:
                last = error
            except A2AError as error:
                if not self._heard:
                    raise
                raise self._doubt(error) from error
        raise self._doubt(last) from last

    def _doubt(self, error: A2AError | None) -> TaskInDoubt:
        task_id, state = self._seen.task_id, self._seen.state
        known = f" It was {state.value} when last heard of." if state is not None else ""
        return TaskInDoubt(
            f"The stream of task {task_id!r} broke and could not be taken up again.{known} {error or _EMPTY}",
            task_id=task_id,
            context_id=self._seen.context_id,
        )

    async def _missing(self) -> Sequence[StreamEvent]:
        """What the task holds beyond what was given; nothing when it cannot be read."""
        self._gap = False
        assert self._seen.task_id is not None
        try:
            return self._seen.take(await self._read_task(self._seen.task_id))
        except A2AError:
            return ()


def _interrupted(state: TaskState | None) -> bool:
    return state is not None and state.interrupted


async def _lingering(source: Events) -> Sequence[Numbered]:
    try:
        async with asyncio.timeout(_LINGER_S):
            return await source.read()
    except (A2AError, TimeoutError):
        return ()  # all has been told
