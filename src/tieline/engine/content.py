"""What agents say, as values: made whole, checked while a fault is still the agent's, and shown without echoes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from tieline.errors import InvalidAgentResponse
from tieline.event import Event, TextChunk
from tieline.ids import new_id
from tieline.types import Artifact, Message, Metadata, Part, Role, Task, TaskArtifactUpdateEvent, encode, exact

__all__ = [
    "Content",
    "TextStream",
    "checked",
    "has_blob",
    "message_from",
    "own_message",
    "part_of",
    "parts_of",
    "placed",
    "printable",
    "with_history",
    "without_blobs",
]

BLOB_BYTES = 1024
"""A file of the caller's longer than this is not echoed to it unless it asks for history."""

Content = str | bytes | Part | Mapping[str, Any] | list[Any]
"""What becomes a part: text, bytes (a file), a Part as it is, or JSON data."""


def parts_of(*content: Content) -> tuple[Part, ...]:
    """Content as parts.

    Raises InvalidAgentResponse for what cannot be one, or when there is none.
    """
    if not content:
        raise InvalidAgentResponse("A message has to have at least one part.")
    return tuple(part_of(item) for item in content)


class TextStream:
    """Makes the events of an artifact's text behind its first piece: all are alike but for the text."""

    __slots__ = ("_artifact_id", "_before", "_behind", "_media_type")

    def __init__(self, task_id: str, context_id: str, artifact_id: str, media_type: str | None) -> None:
        self._artifact_id = artifact_id
        self._media_type = media_type
        mark = new_id()
        artifact = Artifact(artifact_id, (Part(mark, media_type=media_type),))
        event = Event(TaskArtifactUpdateEvent(task_id, context_id, artifact, append=True))
        self._before, _, self._behind = event.json.partition(encode(mark))

    def chunk(self, text: str) -> TextChunk:
        """The event that adds `text`. Raises InvalidAgentResponse when it cannot be written as UTF-8."""
        try:
            json = self._before + encode(text) + self._behind
        except ValueError as error:
            raise InvalidAgentResponse(f"The content cannot be written as JSON: {error}") from None
        return TextChunk(json, self._artifact_id, text, self._media_type)


def part_of(content: Content) -> Part:
    """One piece of content as a part; raises InvalidAgentResponse for what cannot be one."""
    if type(content) is str:
        return Part(content)
    try:
        return _part_of(content)
    except (ValueError, RecursionError) as error:
        raise InvalidAgentResponse(f"The content cannot be written as JSON: {error}") from None


def _part_of(content: Content) -> Part:
    if isinstance(content, str):
        return Part(text=str(content) if type(content) is not str else content)
    if isinstance(content, Part):
        if content.data is UNSET and content.metadata is None:
            return content
        data = UNSET if content.data is UNSET else exact(content.data)  # the agent may go on changing its own
        return msgspec.structs.replace(content, data=data, metadata=exact(content.metadata))
    if isinstance(content, (bytes, bytearray, memoryview)):
        return Part(raw=bytes(content))
    if isinstance(content, (Mapping, list)):
        return Part(data=exact(dict(content) if isinstance(content, Mapping) else content))
    raise InvalidAgentResponse(f"A {type(content).__name__} is not content: give str, bytes, a dict, a list or a Part.")


def message_from(parts: Sequence[Part], task_id: str | None, context_id: str, metadata: Metadata | None) -> Message:
    """A message of the agent."""
    return Message(new_id(), Role.AGENT, tuple(parts), context_id, task_id, exact(metadata))


def placed(message: Message, task_id: str, context_id: str) -> Message:
    """`message` in this task and context."""
    return Message(
        message.message_id,
        message.role,
        message.parts,
        context_id,
        task_id,
        message.metadata,
        message.extensions,
        message.reference_task_ids,
    )


def checked(event: Event) -> Event:
    """Encode an event that carries the agent's content now, where a failure is still the agent's.

    Raises InvalidAgentResponse when it is not JSON.
    """
    try:
        _ = event.json
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise InvalidAgentResponse(f"The content cannot be written as JSON: {error}") from error
    return event


def own_message(message: Message) -> Message:
    """A message that the agent has made as a message of the agent: with an id, and content that stays as it is.

    Raises InvalidAgentResponse when it has no parts.
    """
    if not message.parts:
        raise InvalidAgentResponse("A message has to have at least one part.")
    return replace(
        message,
        message_id=message.message_id or new_id(),
        role=Role.AGENT,
        parts=tuple(part_of(part) for part in message.parts),
        metadata=exact(message.metadata),
    )


def printable(words: str) -> str:
    """`words` with what UTF-8 cannot write replaced: an exception may say anything."""
    return words.encode("utf-8", "replace").decode("utf-8")


def has_blob(message: Message) -> bool:
    """Whether a message carries a file too long to be echoed."""
    return any(part.raw is not None and len(part.raw) > BLOB_BYTES for part in message.parts)


def without_blobs(task: Task) -> Task:
    """`task` with the caller's own long files emptied in its history: it has them already.

    The part stays, with its name and type, and says in its metadata how many bytes were left out.
    """
    return replace(task, history=tuple(_emptied(message) if has_blob(message) else message for message in task.history))


def with_history(task: Task, length: int | None) -> Task:
    """`task` with its last `length` messages; with all of them for None, without long files then (§3.2.4)."""
    if length is None:
        return without_blobs(task)
    return replace(task, history=task.history[-length:] if length else ())


def _emptied(message: Message) -> Message:
    parts = []
    for part in message.parts:
        if part.raw is not None and len(part.raw) > BLOB_BYTES:
            metadata = {**(part.metadata or {}), "omittedBytes": len(part.raw)}
            part = replace(part, raw=b"", metadata=metadata)
        parts.append(part)
    return replace(message, parts=tuple(parts))
