"""A task that another replica is at work on, followed from here: its events are read from the store that both share."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tieline.engine.fold import Fold
from tieline.engine.log import TaskLog
from tieline.errors import InternalError, TaskNotFound, Unavailable
from tieline.event import Event
from tieline.stores.base import Record, StoreError
from tieline.types import Task, TaskState, TaskStatusUpdateEvent

if TYPE_CHECKING:
    from tieline.engine.tasks import Tasks

__all__ = ["Remote"]

log = logging.getLogger("tieline.engine")


class Remote(TaskLog):
    """One task of another replica's, for those who follow it here.

    One reader at a time goes to the store; who wants to be up to date waits for one that has begun since.
    """

    __slots__ = ("_read_up_to", "_reader", "_wanted", "_whole", "heard_at", "owner")

    def __init__(self, service: Tasks, record: Record, task: Task) -> None:
        super().__init__(service, record.scope, record.task_id, record.context_id)
        self.owner = record.owner  # the replica that is at work on it, as far as is known; "" is none
        self.heard_at = self.loop.time()  # when there was news last, or it was asked for
        self._wanted = 0  # readings that were asked for
        self._read_up_to = 0  # those of them that are done
        self._whole = False  # whether the next reading has to read the task, too
        self._reader: asyncio.Task[None] | None = None
        self.base = self.published = record.version
        self._seat(task, record.version)

    def _seat(self, task: Task, version: int) -> None:
        """The task is `task` at `version`."""
        self.fold = Fold(task)
        self._snapshot = None
        if task.state.terminal or task.state.interrupted:
            self.rest = version

    @property
    def resting(self) -> bool:
        return False

    @property
    def idle(self) -> bool:
        return True

    @property
    def closed(self) -> bool:
        return self.broken is not None or (self.fold is not None and self.fold.state.terminal)

    @property
    def has_mail(self) -> bool:
        return False

    def ensure_task(self) -> None:
        """It is one."""

    async def written(self) -> None:
        """What is known here is stored."""

    def go_on(self) -> None:
        """The replica that is at work on it does that."""

    async def readable(self) -> None:
        """Wait until the task is known as it stands in the store now. Raises InternalError, TaskNotFound."""
        self._whole = True
        self.news()
        wanted = self._wanted
        while self._read_up_to < wanted and self.broken is None:
            await self.changed()
        if self.broken is not None:
            raise self.broken

    def news(self) -> None:
        """There may be events that are not known here: read them."""
        self.heard_at = self.loop.time()
        self._wanted += 1
        if self._reader is None and self.broken is None:
            self._reader = asyncio.ensure_future(self._read())

    def look(self) -> None:
        """Find out who is at work on it now, and what there is of it."""
        self._whole = True
        self.news()

    async def _read(self) -> None:
        try:
            while self._read_up_to < self._wanted and self.broken is None:
                wanted = self._wanted
                whole, self._whole = self._whole, False
                await (self._read_task() if whole else self._read_events(None))
                self._read_up_to = wanted
                self._wake(self._waiters)
        except StoreError as error:
            self._give_up(Unavailable.without_store(), error)
        except InternalError as error:
            self._give_up(error, error)
        except Exception as error:  # what cannot be read must not leave those waiting who follow it
            log.exception("task %s cannot be read", self.task_id)
            self._give_up(InternalError("The task cannot be read. Its operator finds the reason in the log."), error)
        finally:
            self._reader = None
            self.service.forget(self)

    def _give_up(self, told: InternalError | TaskNotFound, error: BaseException) -> None:
        if isinstance(told, InternalError):
            log.error("task %s cannot be followed: %s", self.task_id, error)
        self.broken = told
        self._wake_all()

    async def _read_events(self, up_to: int | None) -> None:
        """Publish what is behind; with `up_to`, no more than that."""
        found = await self.service.store.events(self.scope, self.task_id, self.published)
        events = [(number, event) for number, event in found or () if up_to is None or number <= up_to]
        if not events:
            if up_to is None and found is None:
                self._whole = True  # the log is gone: the task may be, too
                self._wanted += 1
            return
        if events[0][0] != self.published + 1:
            return  # what is between is not kept any more
        rest = self.rest
        told: list[Event] = []
        for number, event in events:
            value = event.value
            told.append(event)
            if isinstance(value, TaskStatusUpdateEvent):
                state = value.status.state
                if state.terminal or state.interrupted:
                    rest = number
                if state is TaskState.INPUT_REQUIRED:
                    self.inputs = (*self.inputs, number)
        self._take_in(told, None, rest)

    async def _read_task(self) -> None:
        """Read the task itself: its history has what no event tells, and its record who is at work on it."""
        record = await self.service.store.get(self.scope, self.task_id)
        if record is None:
            self._give_up(TaskNotFound(self.task_id), TaskNotFound(self.task_id))
            return
        if record.version > self.published:
            await self._read_events(record.version)
        task = await self.service.stored(record)
        if record.version < self.published:
            return  # an answer that is older than what is known
        if record.version > self.published:
            gone = InternalError("What was said meanwhile is not kept any more. Read the task, or subscribe again.")
            self._give_up(gone, gone)
            return
        self._seat(task, record.version)
        if self.owner != record.owner:
            self.owner = record.owner
            if self.service.replica is not None and not self.closed:
                self.service.replica.follow(self)
        if self._rests:
            self._wake(self._settlers)
