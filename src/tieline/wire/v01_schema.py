"""The JSON schema of A2A 0.1, as far as it is of operations. Pure."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from tieline.types import Metadata

__all__ = [
    "Artifact",
    "ArtifactFrame",
    "Authentication",
    "DataPart",
    "FileContent",
    "FilePart",
    "Frame",
    "IdParams",
    "Message",
    "Part",
    "PushConfig",
    "Remainder",
    "SendParams",
    "Shape",
    "Status",
    "StatusFrame",
    "Task",
    "TaskPushConfig",
    "TextPart",
]


class Shape(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """An object of 0.1. Members are in the order in which they are written."""


class TextPart(Shape, frozen=True, gc=False, tag_field="type", tag="text"):
    """Text."""

    text: str
    metadata: Metadata | None = None


class FileContent(Shape, frozen=True, gc=False):
    """The content of a file: bytes or `uri`."""

    name: str | None = None
    mime_type: str | None = None
    raw: bytes | None = msgspec.field(default=None, name="bytes")
    uri: str | None = None


class FilePart(Shape, frozen=True, gc=False, tag_field="type", tag="file"):
    """A file."""

    file: FileContent
    metadata: Metadata | None = None


class DataPart(Shape, frozen=True, gc=False, tag_field="type", tag="data"):
    """Data, which should be an object."""

    data: Any
    metadata: Metadata | None = None


Part = TextPart | FilePart | DataPart
"""Told apart by `type`."""


class Message(Shape, frozen=True, gc=False):
    """What user or agent say."""

    role: str
    parts: tuple[Part, ...]
    metadata: Metadata | None = None


class Status(Shape, frozen=True, gc=False):
    """The state of a task at a moment."""

    state: str
    message: Message | None = None
    timestamp: str | None = None


class Artifact(Shape, frozen=True, gc=False):
    """What an agent has made, or a chunk of it."""

    parts: tuple[Part, ...]
    name: str | None = None
    description: str | None = None
    index: int | None = None  # None is 0
    append: bool | None = None
    last_chunk: bool | None = None
    metadata: Metadata | None = None


class Task(Shape, frozen=True, gc=False):
    """A task."""

    id: str
    status: Status
    session_id: str | None = None
    artifacts: tuple[Artifact, ...] = ()
    history: tuple[Message, ...] = ()
    metadata: Metadata | None = None


class StatusFrame(Shape, frozen=True, gc=False, omit_defaults=False):
    """TaskStatusUpdateEvent. `final` is always said."""

    id: str
    status: Status
    final: bool
    metadata: Metadata | msgspec.UnsetType = UNSET


class ArtifactFrame(Shape, frozen=True, gc=False):
    """TaskArtifactUpdateEvent."""

    id: str
    artifact: Artifact
    metadata: Metadata | None = None


class Frame(Shape, frozen=True, gc=False):
    """What a stream may carry: a status, an artifact, or a whole task."""

    id: str
    status: Status | None = None
    artifact: Artifact | None = None
    session_id: str | None = None
    artifacts: tuple[Artifact, ...] | None = None
    history: tuple[Message, ...] | None = None
    metadata: Metadata | None = None


class Remainder(Shape, frozen=True, gc=False):
    """What a frame has no field for of the task that begins a stream."""

    session_id: str | None = None
    history: tuple[Message, ...] = ()


class Authentication(Shape, frozen=True, gc=False):
    """How an agent tells a webhook who it is."""

    schemes: tuple[str, ...]
    credentials: str | None = None


class PushConfig(Shape, frozen=True, gc=False):
    """A webhook."""

    url: str
    token: str | None = None
    authentication: Authentication | None = None
    id: str | None = None  # none in 0.1: a task has one webhook, which has the id of the task


class TaskPushConfig(Shape, frozen=True, gc=False):
    """A webhook, and whose it is."""

    id: str
    push_notification_config: PushConfig


class SendParams(Shape, frozen=True, gc=False):
    """TaskSendParams. The caller names the task."""

    id: str
    message: Message
    session_id: str | None = None
    accepted_output_modes: tuple[str, ...] = ()
    push_notification: PushConfig | None = None
    history_length: int | None = None
    metadata: Metadata | None = None


class IdParams(Shape, frozen=True, gc=False):
    """TaskIdParams and TaskQueryParams."""

    id: str
    history_length: int | None = None
    metadata: Metadata | None = None
