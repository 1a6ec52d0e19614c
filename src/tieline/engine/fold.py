"""Folding events into a task, and the table of allowed transitions. Pure: no clock, no identifiers, no I/O.

A task is its log: the snapshot is what the events, folded in order, make of it. `fold` is the definition;
`Fold` does the same for a long log without copying what is already there (n chunks cost O(n), not O(n²)).

Rules:
- the first terminal state wins; nothing follows it;
- the message of a status that asked something (INPUT_REQUIRED, AUTH_REQUIRED) joins the history when the next status
  arrives, so that the exchange can be read there; what was said on the way (WORKING) does not, or the history of a
  chatty task would grow without end;
- an artifact update with `append` puts its parts behind those of the artifact with the same id; a plain text part
  directly behind a plain text part of the same media type continues it, so the chunks of one text are one text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, cast

from msgspec.structs import replace

from tieline.event import TextChunk
from tieline.types import (
    Artifact,
    Message,
    Part,
    StreamEvent,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
)

__all__ = ["Fold", "NotAllowed", "TRANSITIONS", "fold", "may_follow"]

_ENDS: Final = frozenset(state for state in TaskState if state.terminal)
_RUNNING: Final = frozenset((TaskState.WORKING, TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED)) | _ENDS

TRANSITIONS: Final[dict[TaskState, frozenset[TaskState]]] = {
    TaskState.SUBMITTED: _RUNNING,
    TaskState.WORKING: _RUNNING,
    TaskState.INPUT_REQUIRED: _RUNNING,
    TaskState.AUTH_REQUIRED: _RUNNING,
    TaskState.UNSPECIFIED: _RUNNING,  # a foreign server may begin there; we never write it
    **dict.fromkeys(_ENDS, frozenset[TaskState]()),
}
"""What may follow a state. A state may follow itself, so that an agent can say more about it."""


class NotAllowed(ValueError):
    """An event that cannot follow what the task already is."""


def may_follow(state: TaskState, event: StreamEvent) -> None:
    """Check `event` against the table.

    Raises:
        NotAllowed: the task has ended, or the table does not allow the new state.
    """
    if state.terminal:
        raise NotAllowed(f"nothing can follow {state.value}")
    if isinstance(event, TaskStatusUpdateEvent):
        if event.status.state not in TRANSITIONS[state]:
            raise NotAllowed(f"{event.status.state.value} cannot follow {state.value}")
    elif not isinstance(event, TaskArtifactUpdateEvent):
        raise NotAllowed(f"a {type(event).__name__} is not an update of a task")


def fold(task: Task, event: StreamEvent) -> Task:
    """`task` as it is after `event`.

    Raises:
        NotAllowed: see `may_follow`.
    """
    state = Fold(task)
    state.apply(event)
    return state.task()


class _OpenArtifact:
    """An artifact that chunks are still arriving for: parts in a list, a text that is growing in pieces."""

    def __init__(self, artifact: Artifact) -> None:
        self.head = artifact
        self.parts: list[Part] = list(artifact.parts)
        self._pieces: list[str] = []  # continue the last part's text

    def append(self, artifact: Artifact) -> None:
        for part in artifact.parts:
            last = self.parts[-1] if self.parts else None
            if last is not None and _continues(part, last):
                self._pieces.append(part.text or "")
            else:
                self._close_text()
                self.parts.append(part)
        head = self.head
        renamed = artifact.name is not None and artifact.name != head.name
        if renamed or artifact.description is not None or artifact.metadata is not None or artifact.extensions:
            self.head = replace(
                head,
                name=artifact.name or head.name,
                description=artifact.description or head.description,
                metadata={**(head.metadata or {}), **artifact.metadata} if artifact.metadata else head.metadata,
                extensions=head.extensions + tuple(e for e in artifact.extensions if e not in head.extensions),
            )

    def goes_on(self, chunk: TextChunk) -> bool:
        """Take `chunk` if it is the next piece of the text that is open."""
        if not self._pieces or self.parts[-1].media_type != chunk.media_type:
            return False  # a text is open when it has pieces, and it is plain then
        self._pieces.append(chunk.text)
        return True

    def _close_text(self) -> None:
        if self._pieces:
            last = self.parts[-1]
            self.parts[-1] = replace(last, text=(last.text or "") + "".join(self._pieces))
            self._pieces = []

    def artifact(self) -> Artifact:
        self._close_text()
        return replace(self.head, parts=tuple(self.parts))


def _continues(part: Part, last: Part) -> bool:
    """Whether `part` is the next piece of the text that `last` is."""
    return (
        part.text is not None
        and last.text is not None
        and part.media_type == last.media_type
        and part.metadata is None
        and last.metadata is None
        and part.filename is None
        and last.filename is None
    )


class Fold:
    """A task that events are being folded into.

    `apply` is O(size of the event); `task()` gives a frozen snapshot that later events do not alter, and costs
    O(what changed since the last one).
    """

    __slots__ = ("_artifacts", "_context_id", "_history", "_id", "_metadata", "_open", "_snapshot", "status")

    def __init__(self, task: Task) -> None:
        self.status = task.status
        self._id = task.id
        self._context_id = task.context_id
        self._history = task.history
        self._metadata = task.metadata
        self._artifacts: dict[str, Artifact] = {artifact.artifact_id: artifact for artifact in task.artifacts}
        self._open: dict[str, _OpenArtifact] = {}
        self._snapshot: Task | None = task

    @property
    def state(self) -> TaskState:
        return self.status.state

    @property
    def artifact_ids(self) -> Iterable[str]:
        """The ids of the artifacts so far."""
        return self._artifacts.keys()

    def apply(self, event: StreamEvent) -> None:
        """Fold one event in.

        Raises:
            NotAllowed: see `may_follow`; nothing has changed then.
        """
        may_follow(self.status.state, event)
        self.add(event)

    def add(self, event: StreamEvent) -> None:
        """Fold in an event that `may_follow` has let pass."""
        self._snapshot = None
        if isinstance(event, TaskArtifactUpdateEvent):
            self._add_artifact(event.artifact, event.append)
        elif isinstance(event, TaskStatusUpdateEvent):
            status = self.status
            if status.message is not None and status.state.interrupted:
                self._history = (*self._history, status.message)
            self.status = event.status

    def add_text(self, chunk: TextChunk) -> None:
        """Fold in the next piece of a text: `add` of its value, without making that."""
        self._snapshot = None
        growing = self._open.get(chunk.artifact_id)
        if growing is None or not growing.goes_on(chunk):
            self._add_artifact(cast(TaskArtifactUpdateEvent, chunk.value).artifact, append=True)

    def add_message(self, message: Message) -> None:
        """Put a message of the caller into the history, behind the question that it answers."""
        self._snapshot = None
        status = self.status
        if status.state.interrupted and status.message is not None:
            self._history = (*self._history, status.message, message)
            self.status = replace(status, message=None)
        else:
            self._history = (*self._history, message)

    def _add_artifact(self, artifact: Artifact, append: bool) -> None:
        id_ = artifact.artifact_id
        if append:
            growing = self._open.get(id_)
            if growing is None and (current := self._artifacts.get(id_)) is not None:
                growing = self._open[id_] = _OpenArtifact(current)
            if growing is not None:
                growing.append(artifact)
                return
        self._open.pop(id_, None)
        self._artifacts[id_] = artifact

    def task(self) -> Task:
        """The task as it is now."""
        if self._snapshot is None:
            for id_, growing in self._open.items():
                self._artifacts[id_] = growing.artifact()
            self._open.clear()
            artifacts = tuple(self._artifacts.values())
            self._snapshot = Task(self._id, self.status, self._context_id, artifacts, self._history, self._metadata)
        return self._snapshot
