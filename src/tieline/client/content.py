"""What a caller says, as a message, and what comes back, as a Reply."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from tieline.errors import InvalidParams, TaskFailed
from tieline.ids import new_id
from tieline.types import Message, Part, Role, Task, TaskState

__all__ = ["Content", "Reply", "message_of", "reply_of"]

Piece = str | bytes | Part | Mapping[str, Any]
Content = Piece | Message | Sequence[Piece]
"""What can be said: text, bytes (a file), a Part, a mapping (a data part), several of these, or a whole Message."""


def message_of(
    content: Content,
    *,
    task_id: str | None = None,
    context_id: str | None = None,
    reference_task_ids: Sequence[str] = (),
) -> Message:
    """Content as a message of the user's, with an id of its own.

    A Message is taken as it is, its role too; ids that it lacks are put in.

    Raises:
        InvalidParams: content that cannot be sent, or none at all.
    """
    if isinstance(content, Message):
        if task_id or context_id or reference_task_ids:
            return replace(
                content,
                task_id=content.task_id or task_id,
                context_id=content.context_id or context_id,
                reference_task_ids=content.reference_task_ids or tuple(reference_task_ids),
            )
        return content
    if isinstance(content, (str, bytes, Part, Mapping)):
        parts: tuple[Part, ...] = (_part(content),)
    elif isinstance(content, Iterable):
        parts = tuple(_part(piece) for piece in content)
        if not parts:
            raise InvalidParams.at("message.parts", "at least one part is required")
    else:
        parts = (_part(content),)
    for index, part in enumerate(parts):
        if part.data is not UNSET and (odd := _no_json(part.data)):
            raise InvalidParams.at(f"message.parts[{index}].data", f"{odd} cannot be sent as JSON")
    return Message(new_id(), Role.USER, parts, context_id, task_id, reference_task_ids=tuple(reference_task_ids))


def _part(piece: Piece) -> Part:
    if isinstance(piece, str):
        return Part(text=str(piece))
    if isinstance(piece, Part):
        return piece
    if isinstance(piece, (bytes, bytearray, memoryview)):
        return Part(raw=bytes(piece))
    if isinstance(piece, Mapping):
        return Part(data=dict(piece))
    raise InvalidParams.at("message.parts", f"a {type(piece).__name__} is no part: give str, bytes, a dict or a Part")


def _no_json(value: Any) -> str:
    """What in a value would become something else on the wire, without a word; "" is nothing."""
    if isinstance(value, float):
        return "" if isfinite(value) else str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"a {type(value).__name__}"
    if isinstance(value, Mapping):
        return next(filter(None, map(_no_json, value.values())), "")
    if isinstance(value, (list, tuple)):
        return next(filter(None, map(_no_json, value)), "")
    return ""


class Reply(str):
    """An agent's answer: a str, its text, with all the rest beside it.

    Exactly one of `task` and `message` is there. While a task waits for its caller, the text is the agent's question.
    """

    task: Task | None
    message: Message | None

    def __new__(cls, text: str, *, task: Task | None = None, message: Message | None = None) -> Reply:
        self = super().__new__(cls, text)
        self.task = task
        self.message = message
        return self

    @property
    def state(self) -> TaskState | None:
        """The task's state; None when the agent replied without a task."""
        return None if self.task is None else self.task.status.state

    @property
    def task_id(self) -> str | None:
        if self.task is not None:
            return self.task.id
        return None if self.message is None else self.message.task_id

    @property
    def context_id(self) -> str | None:
        if self.task is not None:
            return self.task.context_id
        return None if self.message is None else self.message.context_id

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of the message, or of all artifacts; of the status message where there is no artifact."""
        if self.message is not None:
            return self.message.parts
        if self.task is None:
            return ()
        parts = tuple(part for artifact in self.task.artifacts for part in artifact.parts)
        words = self.task.status.message
        return parts or (() if words is None else words.parts)

    @property
    def files(self) -> tuple[Part, ...]:
        """The parts with bytes or a URL."""
        return tuple(part for part in self.parts if part.raw is not None or part.url is not None)

    @property
    def data(self) -> Any:
        """The value of the first data part; None when there is none."""
        return next((part.data for part in self.parts if part.data is not UNSET), None)


def reply_of(answer: Task | Message) -> Reply:
    """A finished answer as a Reply.

    Raises:
        TaskFailed: the task ended FAILED, REJECTED or CANCELED.
    """
    if isinstance(answer, Message):
        return Reply(answer.text, message=answer)
    state = answer.status.state
    words = answer.status.message.text if answer.status.message is not None else ""
    if state.terminal and state is not TaskState.COMPLETED:
        ended = state.value.removeprefix("TASK_STATE_")
        raise TaskFailed(f"The task ended {ended}{f': {words}' if words else '.'}", task=answer)
    return Reply(words if state.interrupted and words else answer.text, task=answer)
