"""What a caller says, as a message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from tieline.errors import InvalidParams
from tieline.ids import new_id
from tieline.types import Message, Part, Role

__all__ = ["Content", "message_of"]

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
