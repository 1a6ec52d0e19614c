"""The protobuf definition of A2A 0.3 (package a2a.v1), as JSON. Pure.

A field that holds its default is absent, so all have one.
"""

from __future__ import annotations

from typing import Literal

from tieline.types import Metadata, Value
from tieline.wire.v03_schema import PushConfig

__all__ = [
    "Answer",
    "Artifact",
    "ArtifactUpdate",
    "Config",
    "Configs",
    "Configuration",
    "CreateConfig",
    "Data",
    "File",
    "Message",
    "Page",
    "Part",
    "RoleName",
    "SendRequest",
    "StateName",
    "Status",
    "StatusUpdate",
    "Task",
]


class File(Value, frozen=True, gc=False):
    """The content of a file. What the bytes are: v03_rest_files.py."""

    file_with_uri: str | None = None
    file_with_bytes: bytes | None = None
    mime_type: str | None = None
    name: str | None = None


class Data(Value, frozen=True, gc=False):
    """Data, which is an object."""

    data: Metadata | None = None


class Part(Value, frozen=True, gc=False):
    """Exactly one of text, file and data."""

    text: str | None = None
    file: File | None = None
    data: Data | None = None
    metadata: Metadata | None = None


RoleName = Literal["ROLE_UNSPECIFIED", "ROLE_USER", "ROLE_AGENT"]


class Message(Value, frozen=True, gc=False):
    """What user or agent say."""

    message_id: str = ""
    context_id: str = ""
    task_id: str = ""
    role: RoleName = "ROLE_UNSPECIFIED"
    content: tuple[Part, ...] = ()
    metadata: Metadata | None = None
    extensions: tuple[str, ...] = ()


StateName = Literal[
    "TASK_STATE_UNSPECIFIED",
    "TASK_STATE_SUBMITTED",
    "TASK_STATE_WORKING",
    "TASK_STATE_COMPLETED",
    "TASK_STATE_FAILED",
    "TASK_STATE_CANCELLED",
    "TASK_STATE_INPUT_REQUIRED",
    "TASK_STATE_REJECTED",
    "TASK_STATE_AUTH_REQUIRED",
]


class Status(Value, frozen=True, gc=False):
    """The state of a task at a moment."""

    state: StateName = "TASK_STATE_UNSPECIFIED"
    message: Message | None = None
    timestamp: str | None = None


class Artifact(Value, frozen=True, gc=False):
    """What an agent has made."""

    artifact_id: str = ""
    name: str | None = None
    description: str | None = None
    parts: tuple[Part, ...] = ()
    metadata: Metadata | None = None
    extensions: tuple[str, ...] = ()


class Task(Value, frozen=True, gc=False):
    """A task."""

    id: str
    status: Status
    context_id: str = ""
    artifacts: tuple[Artifact, ...] = ()
    history: tuple[Message, ...] = ()
    metadata: Metadata | None = None


class StatusUpdate(Value, frozen=True, gc=False):
    """An event: the status of a task. `final`: no event of the stream is behind it."""

    task_id: str
    status: Status
    context_id: str = ""
    final: bool = False
    metadata: Metadata | None = None


class ArtifactUpdate(Value, frozen=True, gc=False):
    """An event: an artifact, or a chunk of one."""

    task_id: str
    artifact: Artifact
    context_id: str = ""
    append: bool = False
    last_chunk: bool = False
    metadata: Metadata | None = None


class Answer(Value, frozen=True, gc=False):
    """SendMessageResponse and StreamResponse."""

    task: Task | None = None
    message: Message | None = None
    status_update: StatusUpdate | None = None
    artifact_update: ArtifactUpdate | None = None


class Configuration(Value, frozen=True, gc=False):
    """SendMessageConfiguration."""

    accepted_output_modes: tuple[str, ...] = ()
    push_notification: PushConfig | None = None
    history_length: int = 0  # messages; 0 is all
    blocking: bool = False


class SendRequest(Value, frozen=True, gc=False):
    """SendMessageRequest. Its field `request` is `message` in JSON."""

    message: Message
    configuration: Configuration | None = None
    metadata: Metadata | None = None


class Config(Value, frozen=True, gc=False):
    """TaskPushNotificationConfig. `name`: tasks/{id}/pushNotificationConfigs/{id}."""

    name: str = ""
    push_notification_config: PushConfig | None = None


class CreateConfig(Value, frozen=True, gc=False):
    """The request, or only what is to be created; `task_id` stands in the path."""

    parent: str = ""
    config_id: str = ""
    config: Config | None = None
    name: str | None = None
    push_notification_config: PushConfig | None = None
    task_id: str | None = None


class Configs(Value, frozen=True, gc=False):
    """ListTaskPushNotificationConfigResponse."""

    configs: tuple[Config, ...] = ()
    next_page_token: str | None = None


class Page(Value, frozen=True, gc=False, omit_defaults=False):
    """No message of 0.3, which has only the path: as in 1.0."""

    tasks: tuple[Task, ...]
    next_page_token: str
    page_size: int
    total_size: int
