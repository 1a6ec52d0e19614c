"""Waiting for a task until it ends or needs its caller: by its stream, and by polling where there is none (§9.3)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Final

from msgspec.structs import replace

from tieline.cli.session import Session
from tieline.client.following import rests
from tieline.client.peer import Peer
from tieline.engine.fold import Fold, NotAllowed
from tieline.errors import A2AError, InvalidPeerResponse, PeerTimeout, TaskInDoubt, Unavailable, Unreachable
from tieline.types import (
    Message,
    StreamEvent,
    Task,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

__all__ = ["Told", "follow", "poll", "settle"]

_FAILURES: Final = 5  # readings in a row that may fail before the wait is given up
_SAME: Final = 4  # readings without news before they get rarer
_RARER: Final = 1.5
_RAREST_S: Final = 30.0
_FIRST_LOOK_S: Final = 0.2
_PASSING: Final = (Unreachable, PeerTimeout, InvalidPeerResponse, Unavailable, TaskInDoubt)
"""Errors that another attempt may not meet."""


class Told:
    """What a stream has told so far: a direct message, or a task as its events make it. `failure` is what broke it."""

    def __init__(self) -> None:
        self.failure: A2AError | None = None
        self.message: Message | None = None
        self.last: StreamEvent | None = None
        self._fold: Fold | None = None

    def take(self, event: StreamEvent) -> None:
        self.last = event
        if isinstance(event, Message):
            self.message = event
            return
        if isinstance(event, Task):
            self._fold = Fold(event)
            return
        if self._fold is None:
            self._fold = Fold(Task(event.task_id, TaskStatus(TaskState.UNSPECIFIED), event.context_id))
        try:
            self._fold.apply(event)
        except NotAllowed:
            # The agent's way through the states is its own affair; what it says last is what it is asked for anyway.
            return

    @property
    def task(self) -> Task | None:
        return None if self._fold is None else self._fold.task()

    def ends_with(self, state: TaskState) -> bool:
        """Whether the last event alone tells that this is the task's state."""
        return isinstance(self.last, Task | TaskStatusUpdateEvent) and self.last.status.state is state


async def follow(session: Session, events: AsyncGenerator[StreamEvent, None], *, snapshot_rests: bool = False) -> Told:
    """Show every event, where that is wanted, until the stream ends or breaks, or the task rests.

    Behind a `send` a snapshot that rests is no end: a task that was just answered may still be shown as waiting for
    the answer. `snapshot_rests` makes it one.
    """
    told = Told()
    try:
        async with contextlib.aclosing(events):
            async for event in events:
                told.take(event)
                if session.live:
                    session.out.event(event)
                if isinstance(event, Message):
                    continue
                session.told(event.id if isinstance(event, Task) else event.task_id)
                if isinstance(event, Task | TaskStatusUpdateEvent):
                    said = event.status.message.text if event.status.message is not None else ""
                    session.awaiting(event.status.state, said)
                    if rests(event.status.state) and (snapshot_rests or isinstance(event, TaskStatusUpdateEvent)):
                        break
    except A2AError as error:
        told.failure = error
    return told


async def settle(session: Session, peer: Peer, told: Told) -> Task | Message:
    """What a stream has come to, once it is over: read from the agent, polled for where the stream ended too early.

    Raises what the stream failed with, when nothing is known that could be waited for.
    """
    session.awaited()
    task = told.task
    if task is None:
        if told.message is not None:
            return told.message
        raise told.failure or InvalidPeerResponse("The agent ended the stream without an answer.")
    if told.failure is not None:
        session.notes.debug(f"the stream failed, polling instead: {told.failure}")
    if not rests(task.state):
        task = await poll(session, peer, task, first_s=0.0)
    else:
        try:
            task = await peer.get(task.id)
        except A2AError as error:
            # An agent may forget what it has finished; its events have told the same.
            session.notes.debug(f"the finished task could not be read, its events are shown: {error}")
    if session.live and not told.ends_with(task.state):
        session.out.event(replace(task, history=()))  # the last line has to tell how the task stands (Appendix B)
    return task


async def poll(
    session: Session,
    peer: Peer,
    task: Task,
    *,
    first_s: float = _FIRST_LOOK_S,
    history_length: int | None = None,
    changed: Callable[[Task], None] | None = None,
) -> Task:
    """Read the task again and again until it rests: every --poll-interval, rarer when nothing changes.

    Readings that fail for a passing reason are repeated a few times. `changed` is called with each one that is news.

    Raises:
        A2AError: the task cannot be read.
    """
    interval_s: float = session.settings["poll-interval"]
    pause_s = min(first_s, interval_s)
    same = failures = 0
    while not rests(task.state):
        session.awaiting(task.state, task.status.message.text if task.status.message is not None else "")
        await asyncio.sleep(pause_s)
        pause_s = min(interval_s * _RARER ** max(0, same - _SAME), max(interval_s, _RAREST_S))
        try:
            seen = await peer.get(task.id, history_length=0)
        except _PASSING as error:
            failures += 1
            if failures > _FAILURES:
                raise
            session.notes.debug(f"the task could not be read ({failures} of {_FAILURES}), trying again: {error}")
            pause_s = min(interval_s * 2.0**failures, max(interval_s, _RAREST_S))
            continue
        failures = 0
        news = seen.status != task.status or seen.artifacts != task.artifacts
        same = 0 if news else same + 1
        task = seen
        if news and changed is not None and not rests(task.state):
            changed(task)
    session.awaited()
    return await peer.get(task.id, history_length=history_length)
