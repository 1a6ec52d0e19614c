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

Of what was given only lengths and checksums are kept, so a long stream costs no memory here. How a text is cut into
parts does not count: a server may keep chunks apart or join them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from tieline.errors import InvalidPeerResponse
from tieline.types import (
    Artifact,
    Message,
    Metadata,
    Part,
    StreamEvent,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

__all__ = ["Seen"]

_Kind = tuple[Any, ...]
_TEXT = "text"


class Seen:
    """A consumer's knowledge of one stream. `take` the events in order; `state` and `task_id` are as of the last."""

    __slots__ = ("_artifacts", "_status", "context_id", "message", "task_id")

    def __init__(self, task_id: str | None = None) -> None:
        self.task_id = task_id
        self.context_id: str | None = None
        self.message: Message | None = None  # the direct Message, when that is what came
        self._status: TaskStatus | None = None
        self._artifacts: dict[str, _Given] | None = None  # None: nothing was given yet

    @property
    def state(self) -> TaskState | None:
        """The task's state as far as it was told."""
        return None if self._status is None else self._status.state

    @property
    def over(self) -> bool:
        """Whether the task has ended, or the agent has replied without one."""
        return self.message is not None or (self._status is not None and self._status.state.terminal)

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
            self._status = event.status
            return (event,)
        return self._take_artifact(event)

    def _take_task(self, task: Task) -> Sequence[StreamEvent]:
        self.task_id = task.id
        self.context_id = task.context_id
        if self._artifacts is None:
            self._artifacts = {artifact.artifact_id: _Given(artifact) for artifact in task.artifacts}
            self._status = task.status
            return (task,)
        context_id = task.context_id or ""
        news: list[StreamEvent] = []
        for artifact in task.artifacts:
            news += self._take_artifact(TaskArtifactUpdateEvent(task.id, context_id, artifact))
        if self._is_news(task.status):
            news.append(TaskStatusUpdateEvent(task.id, context_id, task.status))
            self._status = task.status
        return news

    def _is_news(self, status: TaskStatus) -> bool:
        """Whether a snapshot's status says anything that the last one did not."""
        last = self._status
        if last is None or status.state is not last.state:
            return True
        # A snapshot may have lost the message, and a server may write the time anew: neither is news.
        return status.message is not None and not _same_message(status.message, last.message)

    def _take_artifact(self, event: TaskArtifactUpdateEvent) -> Sequence[StreamEvent]:
        assert self._artifacts is not None
        artifact = event.artifact
        given = self._artifacts.get(artifact.artifact_id)
        if given is None:
            self._artifacts[artifact.artifact_id] = _Given(artifact)
            return (event,)
        if event.append:
            given.add(artifact)
            return (event,)
        rest = given.rest_of(artifact.parts)
        if rest is None:
            self._artifacts[artifact.artifact_id] = _Given(artifact)
            return (event,)
        news = replace(artifact, parts=tuple(rest))
        if not rest and not given.head_differs(artifact):
            return ()
        given.add(news)
        return (replace(event, artifact=news, append=True),)


class _Given:
    """What was given of one artifact: runs of text and other parts, each as a kind, a length and a checksum."""

    __slots__ = ("_head", "_kinds", "_lengths", "_sums")

    def __init__(self, artifact: Artifact) -> None:
        self._head: tuple[str | None, str | None, Metadata, frozenset[str]] = (None, None, {}, frozenset())
        self._kinds: list[_Kind] = []
        self._lengths: list[int] = []
        self._sums: list[int] = []
        self.add(artifact)

    def add(self, artifact: Artifact) -> None:
        """Parts were given behind those before."""
        for part in artifact.parts:
            text = part.text
            if text is None:
                self._kinds.append(_kind(part))
                self._lengths.append(0)
                self._sums.append(_checksum(part))
            elif text:
                kind = (_TEXT, part.media_type, part.filename, part.metadata)
                if not self._kinds or self._kinds[-1] != kind:
                    self._kinds.append(kind)
                    self._lengths.append(0)
                    self._sums.append(0)
                self._lengths[-1] += len(text)
                self._sums[-1] = crc32(_bytes(text), self._sums[-1])
        if artifact.name or artifact.description or artifact.metadata or artifact.extensions:
            self._head = self._merged(artifact)

    def _merged(self, artifact: Artifact) -> tuple[str | None, str | None, Metadata, frozenset[str]]:
        name, description, metadata, extensions = self._head
        return (
            artifact.name or name,
            artifact.description or description,
            {**metadata, **(artifact.metadata or {})},
            extensions.union(artifact.extensions),
        )

    def head_differs(self, artifact: Artifact) -> bool:
        """Whether name, description, metadata or extensions say anything new."""
        return self._merged(artifact) != self._head

    def rest_of(self, parts: Sequence[Part]) -> list[Part] | None:
        """The parts behind what was given, when `parts` begin with it; None when they do not."""
        runs = _runs(parts)
        count = len(self._kinds)
        if len(runs) < count:
            return None
        rest: list[Part] = []
        for index in range(count):
            kind, part, pieces = runs[index]
            if kind != self._kinds[index]:
                return None
            if kind[0] != _TEXT:
                if _checksum(part) != self._sums[index]:
                    return None
                continue
            text = "".join(pieces)
            length = self._lengths[index]
            if len(text) < length or crc32(_bytes(text[:length])) != self._sums[index]:
                return None
            if len(text) > length:
                if index < count - 1:
                    return None
                rest.append(replace(part, text=text[length:]))
        for _, part, pieces in runs[count:]:
            rest.append(replace(part, text="".join(pieces)) if pieces else part)
        return rest


def _runs(parts: Sequence[Part]) -> list[tuple[_Kind, Part, list[str]]]:
    """Parts with neighbouring texts of one kind joined: kind, first part, and the texts of a run."""
    runs: list[tuple[_Kind, Part, list[str]]] = []
    for part in parts:
        text = part.text
        if text is None:
            runs.append((_kind(part), part, []))
        elif text:
            kind = (_TEXT, part.media_type, part.filename, part.metadata)
            if runs and runs[-1][0] == kind:
                runs[-1][2].append(text)
            else:
                runs.append((kind, part, [text]))
    return runs


def _kind(part: Part) -> _Kind:
    return (part.kind, part.media_type, part.filename, part.metadata)


def _checksum(part: Part) -> int:
    if part.raw is not None:
        return crc32(part.raw)
    if part.data is not UNSET:  # in sorted form: a server may give the members of an object in another order
        return crc32(msgspec.json.encode(part.data, order="sorted", enc_hook=str))
    return crc32(_bytes(part.url or ""))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _same_message(message: Message, other: Message | None) -> bool:
    return other is not None and message.message_id == other.message_id and message.parts == other.parts
