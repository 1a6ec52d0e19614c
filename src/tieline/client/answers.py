"""Following what a message has begun until there is an answer."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from tieline.client.calls import Calls
from tieline.client.seen import Seen
from tieline.engine.fold import Fold, NotAllowed
from tieline.errors import (
    MethodNotFound,
    PeerTimeout,
    TaskInDoubt,
    TaskNotFound,
    Unreachable,
    UnsupportedOperation,
)
from tieline.types import GetTaskRequest, Message, SendMessageRequest, Task, TaskState, TaskStatusUpdateEvent

__all__ = ["at_rest", "streamed_answer", "wait"]

_LONGEST_POLL_S = 30.0


def at_rest(task: Task) -> bool:
    """Whether a task has ended or waits for its caller: anything else is no answer, an unknown state too."""
    return task.status.state.terminal or task.status.state.interrupted


async def streamed_answer(calls: Calls, request: SendMessageRequest, named: tuple[str, ...]) -> Task | Message:
    """What the stream of a message comes to. A task that its events do not tell whole is read."""
    fold: Fold | None = None
    whole = True
    task_id = ""
    async with aclosing(calls.stream(request, named)) as events:
        async for event in events:
            if isinstance(event, Message):
                if not task_id:
                    return event
                continue
            if isinstance(event, Task):
                fold = Fold(event)
                task_id = event.id
                continue
            task_id = event.task_id
            if fold is None:
                whole = False
            else:
                try:
                    fold.apply(event)
                except NotAllowed:
                    whole = False
            if isinstance(event, TaskStatusUpdateEvent) and event.status.state is TaskState.AUTH_REQUIRED:
                break  # the stream stays open, but the next move is the caller's
    if fold is not None and whole:
        return fold.task()
    return await calls.get(GetTaskRequest(task_id), named)


async def wait(calls: Calls, task_id: str, poll_s: float, named: tuple[str, ...]) -> Task:
    """The task once it rests or has ended: by subscription where the card allows it, else by polling.

    Raises:
        TaskNotFound; TaskInDoubt: it could be read at first, and then no more.
    """
    request = GetTaskRequest(task_id)
    task = await calls.get(request, named)
    if at_rest(task):
        return task
    pause = 0.0 if calls.streams and await _followed_to_rest(calls, task_id, named) else poll_s
    failures = 0
    while True:
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, max(poll_s, _LONGEST_POLL_S)) or poll_s
        try:
            task = await calls.get(request, named)
            failures = 0
        except (Unreachable, PeerTimeout) as error:
            failures += 1
            if failures > calls.recovery.attempts:
                raise TaskInDoubt(f"Task {task_id!r} cannot be read any more. {error}", task_id=task_id) from error
        if at_rest(task):
            return task


async def _followed_to_rest(calls: Calls, task_id: str, named: tuple[str, ...]) -> bool:
    """Follow a task until it rests or ends; False when it cannot be followed."""
    try:
        opened = await calls.subscribe(task_id, None, named)
    except (UnsupportedOperation, MethodNotFound, TaskNotFound, Unreachable, PeerTimeout):
        return False
    async with aclosing(calls.followed(opened, Seen(task_id), named, until_input=True)) as events:
        async for event in events:
            if isinstance(event, (Task, TaskStatusUpdateEvent)) and (
                event.status.state.terminal or event.status.state.interrupted
            ):
                break
    return True
