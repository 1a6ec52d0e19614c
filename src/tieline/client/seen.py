"""What a consumer has been given of a task, so that nothing is given twice. Pure: no I/O, no clock.

A stream may tell the same thing again: a snapshot of the task when it is taken up after a break, a last snapshot
before it closes (A2A 1.0 §11.7), a final artifact that repeats its chunks. `Seen.take` turns each event into what is
new in it:

    first Task                  as it is; its artifacts count as given
    a Task after that           updates: parts that were not given yet, a status that is another one
    artifact, append            as it is
    artifact, a repetition      what it holds beyond what was given, with `append`; nothing when that is nothing
    artifact, another content   as it is: it begins the artifact anew (§4.2.2)
    status, Message             as they are

and, in a stream that was taken up again (`resumed`):

    artifact, from its beginning    nothing while it repeats what was given; then what is beyond that, with `append`
    status, a repetition            nothing

Of what was given only lengths and checksums are kept (given.py), so a long stream costs no memory here; a replay is
kept as long as it is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tieline.client.given import Given
from tieline.errors import InvalidPeerResponse
from tieline.types import (
    Message,
    StreamEvent,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

__all__ = ["Seen"]

_SAID: Final = 1000
"""Messages of a status that are known again when they are repeated, the latest."""

_BEFORE_WORK: Final = (TaskState.SUBMITTED, TaskState.UNSPECIFIED)


class Seen:
    """A consumer's knowledge of one stream. `take` the events in order; `state` and `task_id` are as of the last."""

    __slots__ = ("_artifacts", "_resumed", "_said", "_status", "context_id", "message", "task_id")

    def __init__(self, task_id: str | None = None) -> None:
        self.task_id = task_id
        self.context_id: str | None = None
        self.message: Message | None = None  # the direct Message, when that is what came
        self._status: TaskStatus | None = None
        self._artifacts: dict[str, Given] | None = None  # None: nothing was given yet
        self._said: dict[int, None] = {}  # the messages of statuses, the latest last
        self._resumed = False

    @property
    def state(self) -> TaskState | None:
        """The task's state as far as it was told."""
        return None if self._status is None else self._status.state

    @property
    def over(self) -> bool:
        """Whether the task has ended, or the agent has replied without one."""
        return self.message is not None or (self._status is not None and self._status.state.terminal)

    @property
    def holds_back(self) -> bool:
        """Whether an artifact is being told again and has not come to where it was."""
        return any(given.holds_back for given in (self._artifacts or {}).values())

    def resumed(self) -> None:
        """What follows comes from another source, which may tell again what this one has told."""
        self._resumed = True
        for given in (self._artifacts or {}).values():
            given.resumed()

    def take(self, event: StreamEvent) -> Sequence[StreamEvent]:
        """What is new in `event`, as events.

        Raises InvalidPeerResponse when it is another task's.
        """
        if isinstance(event, Message):
            if self._artifacts is None:
                self.message = event
            return (event,)
        task_id = event.id if isinstance(event, Task) else event.task_id
        if self.task_id is not None and task_id != self.task_id:
            raise InvalidPeerResponse(f"The agent tells of task {task_id!r} in the stream of task {self.task_id!r}.")
        if isinstance(event, Task):
            return self._take_task(event)
        self.task_id = task_id
        self.context_id = event.context_id
        if self._artifacts is None:
            self._artifacts = {}
        if isinstance(event, TaskStatusUpdateEvent):
            return self._take_status(event)
        return self._take_artifact(event)

    def _take_task(self, task: Task) -> Sequence[StreamEvent]:
        self.task_id = task.id
        self.context_id = task.context_id
        if self._artifacts is None:
            self._artifacts = {artifact.artifact_id: Given(artifact) for artifact in task.artifacts}
            self._note(task.status)
            return (task,)
        context_id = task.context_id or ""
        news: list[StreamEvent] = []
        for artifact in task.artifacts:
            news += self._take_artifact(TaskArtifactUpdateEvent(task.id, context_id, artifact))
        news += self._settled(task.status)
        if self._is_news(task.status):
            news.append(TaskStatusUpdateEvent(task.id, context_id, task.status))
            self._note(task.status)
        return news

    def _take_status(self, event: TaskStatusUpdateEvent) -> Sequence[StreamEvent]:
        if not self._resumed:
            self._note(event.status)
            return (event,)
        news: list[StreamEvent] = [*self._settled(event.status)]
        if self._is_news(event.status) or event.metadata:
            self._note(event.status)
            news.append(event)
        return news

    def _note(self, status: TaskStatus) -> None:
        self._status = status
        if status.message is not None:
            self._said[_mark(status.message)] = None
            if len(self._said) > _SAID:
                del self._said[next(iter(self._said))]

    def _is_news(self, status: TaskStatus) -> bool:
        """Whether a status that may be a repetition says anything that was not said."""
        last = self._status
        if last is None:
            return True
        if status.state is not last.state:
            return status.state is not TaskState.SUBMITTED or last.state in _BEFORE_WORK
        # A snapshot may have lost the message, and a server may write the time anew: neither is news.
        return status.message is not None and _mark(status.message) not in self._said

    def _settled(self, status: TaskStatus) -> Sequence[StreamEvent]:
        """What was held back as a replay, when the task rests with that."""
        if not self._resumed or not (status.state.terminal or status.state is TaskState.INPUT_REQUIRED):
            return ()
        return [event for given in (self._artifacts or {}).values() for event in given.settle()]

    def _take_artifact(self, event: TaskArtifactUpdateEvent) -> Sequence[StreamEvent]:
        assert self._artifacts is not None
        artifact = event.artifact
        given = self._artifacts.get(artifact.artifact_id)
        if given is None:
            self._artifacts[artifact.artifact_id] = Given(artifact)
            return (event,)
        if self._resumed or not event.append:
            return given.take(event)
        given.add(artifact)
        return (event,)


def _mark(message: Message) -> int:
    """What a message is known again by."""
    return hash((message.message_id, *(part.text for part in message.parts)))
