"""The JSON schema of A2A 0.3, as far as it is of operations. Pure.

null is an absent field: there are peers that write all of them.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from tieline.types import Metadata, Value

__all__ = [
    "Artifact",
    "ArtifactUpdate",
    "Authentication",
    "Configuration",
    "DataPart",
    "Event",
    "File",
    "FilePart",
    "Message",
    "NoParams",
    "Page",
    "Part",
    "PushConfig",
    "SendParams",
    "State",
    "Status",
    "StatusUpdate",
    "Task",
    "TaskParams",
    "TaskPushConfig",
    "TextPart",
]


class TextPart(Value, frozen=True, gc=False, tag_field="kind", tag="text"):
    """Text."""

    text: str
    metadata: Metadata | None = None


class File(Value, frozen=True, gc=False):
    """The content of a file: `raw` or `uri`."""

    raw: bytes | None = msgspec.field(default=None, name="bytes")
    uri: str | None = None
    mime_type: str | None = None
    name: str | None = None


class FilePart(Value, frozen=True, gc=False, tag_field="kind", tag="file"):
    """A file."""

    file: File
    metadata: Metadata | None = None


class DataPart(Value, frozen=True, gc=False, tag_field="kind", tag="data"):
    """Data, which is an object."""

    data: dict[str, Any]
    metadata: Metadata | None = None


Part = TextPart | FilePart | DataPart
"""Told apart by `kind`."""


class Message(Value, frozen=True, gc=False, tag_field="kind", tag="message"):
    """What user or agent say."""

    message_id: str
    role: Literal["user", "agent"]
    parts: tuple[Part, ...]
    context_id: str | None = None
    task_id: str | None = None
    metadata: Metadata | None = None
    extensions: tuple[str, ...] | None = None
    reference_task_ids: tuple[str, ...] | None = None


State = Literal[
    "unknown",
    "submitted",
    "working",
    "completed",
    "failed",
    "canceled",
    "input-required",
    "rejected",
    "auth-required",
]


class Status(Value, frozen=True, gc=False):
    """The state of a task at a moment."""

    state: State
    message: Message | None = None
    timestamp: str | None = None


class Artifact(Value, frozen=True, gc=False):
    """What an agent has made."""

    artifact_id: str
    parts: tuple[Part, ...]
    name: str | None = None
    description: str | None = None
    metadata: Metadata | None = None
    extensions: tuple[str, ...] | None = None


class Task(Value, frozen=True, gc=False, tag_field="kind", tag="task"):
    """A task."""

    id: str
    context_id: str
    status: Status
    artifacts: tuple[Artifact, ...] | None = None
    history: tuple[Message, ...] | None = None
    metadata: Metadata | None = None


class StatusUpdate(Value, frozen=True, gc=False, tag_field="kind", tag="status-update"):
    """An event: the status of a task. `final`: no event of the stream is behind it."""

    task_id: str
    context_id: str
    status: Status
    final: bool
    metadata: Metadata | None = None


class ArtifactUpdate(Value, frozen=True, gc=False, tag_field="kind", tag="artifact-update"):
    """An event: an artifact, or a chunk of one."""

    task_id: str
    context_id: str
    artifact: Artifact
    append: bool | None = None
    last_chunk: bool | None = None
    metadata: Metadata | None = None


Event = Task | Message | StatusUpdate | ArtifactUpdate
"""What a stream carries, told apart by `kind`."""


class Authentication(Value, frozen=True, gc=False):
    """How an agent tells a webhook who it is."""

    schemes: tuple[str, ...] | None = None
    credentials: str | None = None


class PushConfig(Value, frozen=True, gc=False):
    """A webhook."""

    url: str
    id: str | None = None
    token: str | None = None
    authentication: Authentication | None = None


class TaskPushConfig(Value, frozen=True, gc=False):
    """A webhook, and whose it is."""

    task_id: str
    push_notification_config: PushConfig
    metadata: Metadata | None = None  # not of 0.3: where a tenant is carried


class Configuration(Value, frozen=True, gc=False):
    """MessageSendConfiguration. `blocking`: the answer is wanted when the task rests."""

    blocking: bool | None = None
    accepted_output_modes: tuple[str, ...] | None = None
    push_notification_config: PushConfig | None = None
    history_length: int | None = None


class SendParams(Value, frozen=True, gc=False):
    """MessageSendParams."""

    message: Message
    configuration: Configuration | None = None
    metadata: Metadata | None = None


class TaskParams(Value, frozen=True, gc=False):
    """TaskIdParams, TaskQueryParams and the params of push configurations: an id and what goes with it."""

    id: str
    history_length: int | None = None
    push_notification_config_id: str | None = None
    metadata: Metadata | None = None


class NoParams(Value, frozen=True, gc=False):
    """What operations without params have."""

    metadata: Metadata | None = None


class Page(Value, frozen=True, gc=False):
    """A page of tasks; 0.3 has none: as in 1.0."""

    tasks: tuple[Task, ...]
    next_page_token: str
    page_size: int
    total_size: int
