"""What an agent had done when its server died, for one that is started again (`@agent(resumable=True)`). Pure.

It is started with the message that its turn began with, and does everything again. What it asks is answered from the
history, in the order in which it was answered; what it says is held against what it had said: what is the same is not
told twice, what differs takes the place of the artifact. So straight-line code with `ask` goes on where it was.

What the log of a task does not say by itself stands in metadata, for resumable agents only: a question that was asked
by `ask` or `authorize` is marked, since a task that rests because its agent has returned is not one that waits in the
middle of it; and the task keeps what its first request carried beside the message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec.structs import replace

from tieline.engine.turn import Caller
from tieline.event import Event
from tieline.types import (
    Artifact,
    Message,
    Metadata,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
)

__all__ = ["Past", "RESUMED", "asks", "past_of", "request_kept", "waits_in_the_middle"]

_QUESTION: Final = "tieline/question"
RESUMED: Final = "tieline/resumed"
_REQUEST: Final = "tieline/request"


def asks(state: TaskState) -> Metadata:
    """The mark on a question that puts its task into `state` and has its agent wait."""
    return {_QUESTION: "authorization" if state is TaskState.AUTH_REQUIRED else "input"}


def request_kept(caller: Caller, metadata: Metadata | None, accepts: Sequence[str]) -> Metadata:
    """What a task keeps of the request that begins it; {} when that said nothing beside the message."""
    said: dict[str, Any] = {}
    if metadata:
        said["metadata"] = metadata
    if accepts:
        said["accepts"] = list(accepts)
    if caller.extensions:
        said["extensions"] = list(caller.extensions)
    return {_REQUEST: said} if said else {}


def waits_in_the_middle(task: Task) -> bool:
    """Whether the agent of a task that rests has asked, and not returned."""
    return task.state.interrupted and _mark(task.status.message) is not None


def _mark(message: Message | None) -> Any:
    if message is None or message.role is not Role.AGENT or message.metadata is None:
        return None
    return message.metadata.get(_QUESTION)


class Past:
    """What is behind an agent that does its turn again."""

    __slots__ = ("_answers", "_retold", "_said", "accepts", "extensions", "message", "metadata", "times")

    def __init__(
        self,
        message: Message,
        answers: list[tuple[TaskState, Message]],
        said: dict[str, Artifact],
        request: dict[str, Any],
        times: int,
    ) -> None:
        self.message = message  # the one that its turn began with
        self.metadata: Metadata | None = request.get("metadata")
        self.accepts = tuple(request.get("accepts", ()))
        self.extensions = tuple(request.get("extensions", ()))
        self.times = times  # how often it has been started again before
        self._answers = answers  # with the state in which the task was when they came
        self._said = said  # the artifacts of this turn as they stand, by id, that nobody has claimed yet
        self._retold: dict[str, _Retold] = {}

    @property
    def more(self) -> bool:
        """Whether there are answers that it has not asked for yet."""
        return bool(self._answers)

    def answered(self, state: TaskState, message: Message) -> None:
        """One more answer, to a question that put the task into `state`."""
        self._answers.append((state, message))

    def answer(self, state: TaskState) -> Message | None:
        """The next answer to what puts the task into `state`; None when there was none."""
        for index, (of, message) in enumerate(self._answers):
            if of is state:
                del self._answers[index]
                return message
        return None

    def rest(self) -> list[Message]:
        """The answers that it has not asked for, which are messages for its next turn then."""
        answers, self._answers = self._answers, []
        return [message for _, message in answers]

    def artifact_id(self, name: str) -> str | None:
        """The id that the next artifact of this name had before."""
        for id_, artifact in self._said.items():
            if artifact.name == name and id_ not in self._retold:
                return id_
        return None

    def retell(self, artifact: Artifact, append: bool) -> tuple[Artifact, bool] | None:
        """What is to be told of a piece of an artifact, and whether it is to be appended; None is nothing."""
        id_ = artifact.artifact_id
        retold = self._retold.get(id_)
        if retold is None or (not append and retold.same):
            said = self._said.get(id_)
            if said is None:
                return artifact, append
            retold = self._retold[id_] = _Retold(said)
        return retold.take(artifact, append)

    def cut_short(self) -> Iterator[Artifact]:
        """The artifacts that it has begun to say again and not brought as far as before, as it has said them now."""
        for retold in self._retold.values():
            if (short := retold.cut_short()) is not None:
                yield short


class _Retold:
    """An artifact that is said again: how far it is the same."""

    __slots__ = ("_at", "_offset", "_parts", "_said")

    def __init__(self, said: Artifact) -> None:
        self._said = said
        self._parts: tuple[Part, ...] | None = said.parts  # None: it goes its own way, or is said to its end
        self._at = 0  # how many parts have been said again
        self._offset = 0  # and how many characters of the next

    @property
    def same(self) -> bool:
        """Whether nothing new has been said yet."""
        return self._parts is not None

    def take(self, artifact: Artifact, append: bool) -> tuple[Artifact, bool] | None:
        old = self._parts
        if old is None:
            return artifact, append
        for index, part in enumerate(artifact.parts):
            left = self._match(part)
            if left is None:
                continue
            new = ((left, *artifact.parts[index + 1 :])) if left.text != "" else artifact.parts[index + 1 :]
            self._parts = None
            if self._at == len(old):  # all of it has been said, and there is more
                return replace(artifact, parts=tuple(new)), True
            head = replace(self._said, metadata=artifact.metadata or self._said.metadata)
            return replace(head, parts=(*self._before(old), *new)), False
        return None

    def _match(self, part: Part) -> Part | None:
        """Go over `part` where it is what was said; else what of it is new."""
        old = self._parts
        assert old is not None
        if self._at == len(old):
            return part
        was = old[self._at]
        if _plain(part) and _plain(was) and part.media_type == was.media_type:
            new, said = part.text or "", was.text or ""
            if said.startswith(new, self._offset):
                self._offset += len(new)
                if self._offset == len(said):
                    self._at, self._offset = self._at + 1, 0
                return None
            if self._at == len(old) - 1 and new.startswith(said[self._offset :]):
                rest = len(said) - self._offset
                self._at, self._offset = self._at + 1, 0
                return replace(part, text=new[rest:])
            return part
        if part == was and not self._offset:
            self._at += 1
            return None
        return part

    def _before(self, old: tuple[Part, ...]) -> tuple[Part, ...]:
        """What is the same."""
        whole = old[: self._at]
        return (
            (*whole, replace(old[self._at], text=(old[self._at].text or "")[: self._offset])) if self._offset else whole
        )

    def cut_short(self) -> Artifact | None:
        old = self._parts
        if old is None or self._at == len(old):
            return None
        self._parts = None
        return replace(self._said, parts=self._before(old))


def _plain(part: Part) -> bool:
    """Whether a part is text that joins text before it (fold.py)."""
    return part.text is not None and part.metadata is None and part.filename is None


def past_of(task: Task, events: Sequence[Event]) -> Past:
    """What is behind the agent of `task`, whose whole log is `events`."""
    history = task.history
    start = 0
    for index in range(1, len(history)):
        before = history[index - 1]
        if history[index].role is Role.USER and before.role is Role.AGENT and _mark(before) is None:
            start = index  # its agent had returned: this message began another turn
    answers = []
    for index in range(start + 1, len(history)):
        if history[index].role is Role.USER:
            of = _mark(history[index - 1])
            answers.append(
                (TaskState.AUTH_REQUIRED if of == "authorization" else TaskState.INPUT_REQUIRED, history[index])
            )
    ids: dict[str, None] = {}
    times = 0
    for event in events:
        value = event.value
        if isinstance(value, TaskArtifactUpdateEvent):
            ids[value.artifact.artifact_id] = None
        elif isinstance(value, TaskStatusUpdateEvent):
            times += RESUMED in (value.metadata or {})
            status = value.status
            if start and status.state.interrupted and status.message is not None and _mark(status.message) is None:
                ids.clear()
    said = {artifact.artifact_id: artifact for artifact in task.artifacts if artifact.artifact_id in ids}
    request = (task.metadata or {}).get(_REQUEST, {}) if start == 0 else {}
    return Past(history[start], answers, said, request if isinstance(request, dict) else {}, times)
