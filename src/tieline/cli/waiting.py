"""Waiting for a task until it ends or needs its caller: by its stream, and by polling where there is none (§9.3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

from tieline.cli.session import Session
from tieline.client.following import rests
from tieline.client.peer import Peer
from tieline.engine.fold import Fold, NotAllowed
from tieline.errors import A2AError, InvalidPeerResponse, Overloaded, PeerTimeout, TaskInDoubt, Unreachable
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
_PASSING: Final = (Unreachable, PeerTimeout, InvalidPeerResponse, Overloaded, TaskInDoubt)
"""Errors that another attempt may not meet."""


class Told:
    """What a stream has told so far: a direct message, or a task as its events make it."""

    def __init__(self) -> None:
        self.message: Message | None = None
        self._fold: Fold | None = None

    def take(self, event: StreamEvent) -> None:
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

    @property
    def state(self) -> TaskState | None:
        return None if self._fold is None else self._fold.state


async def follow(
    session: Session,
    events: AsyncIterator[StreamEvent],
    told: Told,
    given: Callable[[StreamEvent], None],
    *,
    snapshot_rests: bool = False,
) -> None:
    """Hand every event on, until the stream ends or the task rests.

    Behind a `send` a snapshot that rests is no end: a task that was just answered may still be shown as waiting for
    the answer. `snapshot_rests` makes it one.
    """
    async for event in events:
        told.take(event)
        given(event)
        if isinstance(event, Message):
            continue
        session.told(event.id if isinstance(event, Task) else event.task_id)
        if isinstance(event, Task | TaskStatusUpdateEvent):
            said = event.status.message.text if event.status.message is not None else ""
            session.awaiting(event.status.state, said)
            if rests(event.status.state) and (snapshot_rests or isinstance(event, TaskStatusUpdateEvent)):
                return


async def settle(session: Session, peer: Peer, told: Told, failure: A2AError | None) -> Task | Message:
    """What a stream has come to, once it is over: read from the agent, polled for where the stream ended too early.

    Raises `failure`, that of the stream, when nothing is known that could be waited for.
    """
    session.awaited()
    if told.message is not None and told.task is None:
        return told.message
    task = told.task
    if task is None:
        raise failure or InvalidPeerResponse("The agent ended the stream without an answer.")
    if failure is not None:
        session.notes.debug(f"the stream failed, polling instead: {failure}")
    if not rests(task.state):
        return await poll(session, peer, task, first_s=0.0)
    try:
        return await peer.get(task.id)
    except A2AError as error:
        # An agent may forget what it has finished; its events have told the same.
        session.notes.debug(f"the finished task could not be read, its events are shown: {error}")
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
