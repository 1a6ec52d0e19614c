"""Writing to stores in tests: tasks that tick, and the outcome of each append by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import cast

from tieline.event import Event
from tieline.ids import new_id
from tieline.stores.base import Append, SharedStore, Store, StoreError
from tieline.types import (
    Artifact,
    Part,
    StreamEvent,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    encode,
)

WORKING, COMPLETED = TaskState.WORKING, TaskState.COMPLETED


class Ticks:
    """Moments for `updated`: unique and increasing, as a service's clock gives them."""

    def __init__(self, at: int = 1_000_000) -> None:
        self.at = at

    def next(self, step: int = 1) -> int:
        self.at += step
        return self.at


class Written:
    """One task as a run writes it: each method gives the next append and counts it as made."""

    def __init__(
        self, ticks: Ticks, scope: str = "0:/0:/", context_id: str = "c", task_id: str = "", state: TaskState = WORKING
    ) -> None:
        self.ticks = ticks
        self.scope = scope
        self.context_id = context_id
        self.task_id = task_id or new_id()
        self.state = TaskState.SUBMITTED
        self.updated = ticks.next()
        self.log: list[bytes] = []  # the events as JSON
        self.first_state = state
        self.snapshot = b""
        self.snapshot_version = 0

    def task(self, state: TaskState, padding: int = 0) -> Task:
        artifacts = (Artifact("a", (Part(text="x" * padding),)),) if padding else ()
        return Task(self.task_id, TaskStatus(state), self.context_id, artifacts)

    def make(self) -> Append:
        """The append that makes the task: it, and its first status."""
        task = self.task(TaskState.SUBMITTED)
        return self.append([task, self.status(self.first_state)], self.first_state)

    def status(self, state: TaskState) -> TaskStatusUpdateEvent:
        return TaskStatusUpdateEvent(self.task_id, self.context_id, TaskStatus(state))

    def chunk(self, text: str = "chunk") -> TaskArtifactUpdateEvent:
        return TaskArtifactUpdateEvent(self.task_id, self.context_id, Artifact("a", (Part(text=text),)), append=True)

    def go(self, state: TaskState, *, padding: int = 0, streamed: bool = False, step: int = 1) -> Append:
        """A change of state; its snapshot has `padding` bytes more."""
        self.updated = self.ticks.next(step)
        return self.append([self.status(state)], state, padding=padding, streamed=streamed)

    def chunks(self, *texts: str) -> Append:
        """Chunks that leave state, time and snapshot as they are."""
        return self.append([self.chunk(text) for text in texts], self.state)

    def append(
        self, events: list[StreamEvent], state: TaskState, *, padding: int = 0, streamed: bool = False
    ) -> Append:
        made = not self.log
        snapshot = encode(self.task(state, padding)) if made or state is not WORKING else None
        after = len(self.log)
        wrapped = [Event(event) for event in events]
        self.log += [event.json for event in wrapped]
        self.state = state
        if snapshot is not None:
            self.snapshot, self.snapshot_version = snapshot, len(self.log)
        return Append(
            self.scope,
            self.task_id,
            self.context_id,
            after,
            wrapped,
            state,
            self.updated,
            snapshot,
            streamed,
        )


async def outcomes(store: Store, appends: Iterable[Append]) -> list[StoreError | None]:
    """Append all in one turn of the loop; what became of each: None is written."""
    begun: list[asyncio.Future[object] | StoreError | None] = []
    keys = []
    for append in appends:
        keys.append((append.scope, append.task_id))
        try:
            begun.append(store.append(append))
        except StoreError as error:
            begun.append(error)
    futures = {future for future in begun if isinstance(future, asyncio.Future)}
    if futures:
        await asyncio.wait(futures)
    return [_outcome(one, key) for one, key in zip(begun, keys, strict=True)]


def _outcome(begun: asyncio.Future[object] | StoreError | None, key: tuple[str, str]) -> StoreError | None:
    found = begun.exception() if isinstance(begun, asyncio.Future) else begun
    failures = getattr(found, "failures", None)  # others of the same batch failed, perhaps not this one
    if failures is not None:
        found = failures.get(key)
    assert found is None or isinstance(found, StoreError), repr(found)
    return found


async def adopt(store: Store, *tasks: Written) -> None:
    """Become the owner of tasks that were written by the store before this one."""
    if store.shared:
        for task in tasks:
            record = await store.get(task.scope, task.task_id)
            assert record is not None
            assert await cast(SharedStore, store).claim(task.scope, task.task_id, record.owner) is not None


async def write(store: Store, *appends: Append) -> None:
    """Append one behind the other, each durable before the next."""
    for append in appends:
        (error,) = await outcomes(store, [append])
        if error is not None:
            raise error
