"""Values of 1.0 out of those of 0.3's protobuf definition (`..._in`), and as those (Writer). Pure.

Parts go by way of 0.3's schema (v03_values.py). The definition is narrower than that: what it has no field for is
carried as metadata, too. Parsers of it refuse unknown fields, so nothing but its own fields is written.
"""

from __future__ import annotations

import re
from typing import Any, Final

from msgspec.structs import replace

from tieline.types import (
    Artifact,
    ListTaskPushNotificationConfigsResponse,
    ListTasksResponse,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamEvent,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from tieline.wire import v03_rest_schema as schema
from tieline.wire.v03_metadata import NOTHING, OF_MESSAGE, OF_SEND, TENANT, carried, carry, present
from tieline.wire.v03_rest_files import file_in, file_out
from tieline.wire.v03_schema import DataPart, TextPart
from tieline.wire.v03_values import ENDS_STREAM, part_in, part_out, push_in, push_out

__all__ = [
    "Writer",
    "config_in",
    "config_out",
    "configs_in",
    "configs_out",
    "create_in",
    "create_out",
    "event_in",
    "page_in",
    "send_in",
    "task_in",
]

_OF_MESSAGE: Final = {**OF_MESSAGE, "tieline/referenceTaskIds": list}
_OF_SEND: Final = {**OF_SEND, "tieline/historyLength": int}
_CANCELLED: Final = "TASK_STATE_CANCELLED"

# --- to 1.0 -----------------------------------------------------------------------------------------------------------

_STATES: Final[dict[str, TaskState]] = {**{s.value: s for s in TaskState}, _CANCELLED: TaskState.CANCELED}
_ROLES: Final[dict[str, Role]] = {role.value: role for role in Role}


def _part_in(part: schema.Part) -> Part:
    """Raises ValueError for a part that holds nothing, or two things."""
    if (part.text is not None) + (part.file is not None) + (part.data is not None) != 1:
        raise ValueError("wants exactly one of text, file and data")
    if part.text is not None:
        return part_in(TextPart(part.text, part.metadata))
    if part.file is not None:
        return part_in(file_in(part.file, part.metadata))
    assert part.data is not None
    return part_in(DataPart(part.data.data or {}, part.metadata))


def _message_in(message: schema.Message) -> Message:
    metadata, extra = carried(message.metadata, _OF_MESSAGE)
    referenced = extra.get("tieline/referenceTaskIds", ())
    return Message(
        message.message_id,
        _ROLES[message.role],
        tuple([_part_in(part) for part in message.content]),
        message.context_id or None,
        message.task_id or None,
        metadata,
        message.extensions,
        tuple([str(id_) for id_ in referenced]),
    )


def _status_in(status: schema.Status) -> TaskStatus:
    message = _message_in(status.message) if status.message else None
    return TaskStatus(_STATES[status.state], message, status.timestamp)


def _artifact_in(artifact: schema.Artifact) -> Artifact:
    return Artifact(
        artifact.artifact_id,
        tuple([_part_in(part) for part in artifact.parts]),
        artifact.name,
        artifact.description,
        artifact.metadata,
        artifact.extensions,
    )


def task_in(task: schema.Task) -> Task:
    """A task of the definition as one of 1.0."""
    return Task(
        task.id,
        _status_in(task.status),
        task.context_id or None,
        tuple([_artifact_in(artifact) for artifact in task.artifacts]),
        tuple([_message_in(message) for message in task.history]),
        task.metadata,
    )


def page_in(page: schema.Page) -> ListTasksResponse:
    """A page of tasks."""
    return ListTasksResponse(
        tuple([task_in(task) for task in page.tasks]), page.next_page_token, page.page_size, page.total_size
    )


def event_in(answer: schema.Answer) -> StreamEvent:
    """What an answer or a stream holds. Raises ValueError when it is nothing, or more than one thing."""
    found = [e for e in (answer.task, answer.message, answer.status_update, answer.artifact_update) if e is not None]
    if len(found) != 1:
        raise ValueError(f"wants exactly one event, got {len(found)}")
    event = found[0]
    if isinstance(event, schema.Task):
        return task_in(event)
    if isinstance(event, schema.Message):
        return _message_in(event)
    if isinstance(event, schema.StatusUpdate):
        return TaskStatusUpdateEvent(event.task_id, event.context_id, _status_in(event.status), event.metadata)
    return TaskArtifactUpdateEvent(
        event.task_id,
        event.context_id,
        _artifact_in(event.artifact),
        event.append,
        event.last_chunk,
        event.metadata,
    )


_WAITING: Final = schema.Configuration(blocking=True)


def send_in(request: schema.SendRequest) -> SendMessageRequest:
    """The request that sends a message."""
    metadata, extra = carried(request.metadata, _OF_SEND)
    given = request.configuration or schema.Configuration()
    configuration = None
    if given != _WAITING or "tieline/historyLength" in extra:
        push, of_push = given.push_notification, extra.get("tieline/pushNotificationConfig", NOTHING)
        configuration = SendMessageConfiguration(
            given.accepted_output_modes,
            push_in(push, of_push.get("taskId"), of_push.get("tenant")) if push else None,
            extra.get("tieline/historyLength", given.history_length or None),
            not given.blocking,
        )
    return SendMessageRequest(_message_in(request.message), extra.get(TENANT), configuration, metadata)


_NAME: Final = re.compile(r"tasks/(.+?)(?:/pushNotificationConfigs(?:/(.*))?)?", re.DOTALL).fullmatch


def _task_id(name: str | None) -> str | None:
    match = _NAME(name or "")
    return match.group(1) if match else None


def config_in(config: schema.Config) -> TaskPushNotificationConfig:
    """A webhook, whose id may stand in its name alone. Raises ValueError when there is none in it."""
    read = _unnamed(config)
    match = _NAME(config.name or "")
    return read if read.id or match is None else replace(read, id=match.group(2) or None)


def _unnamed(config: schema.Config) -> TaskPushNotificationConfig:
    if config.push_notification_config is None:
        raise ValueError("wants a pushNotificationConfig")
    return push_in(config.push_notification_config, _task_id(config.name), None)


def configs_in(page: schema.Configs) -> ListTaskPushNotificationConfigsResponse:
    """The webhooks of a task. Raises ValueError when one is empty."""
    return ListTaskPushNotificationConfigsResponse(
        tuple([config_in(config) for config in page.configs]), page.next_page_token
    )


def create_in(request: schema.CreateConfig) -> TaskPushNotificationConfig:
    """A webhook that is to be made. Raises ValueError when there is none in it."""
    config = request.config or schema.Config(push_notification_config=request.push_notification_config)
    made = _unnamed(config)
    task_id = request.task_id or _task_id(request.parent) or _task_id(request.name) or made.task_id
    return replace(made, task_id=task_id, id=made.id or request.config_id or None)


# --- from 1.0 ---------------------------------------------------------------------------------------------------------

_STATE_NAMES: Final[dict[TaskState, Any]] = {**{s: s.value for s in TaskState}, TaskState.CANCELED: _CANCELLED}
_ROLE_NAMES: Final[dict[Role, Any]] = {role: role.value for role in Role}


class Writer:
    """Values of 1.0 as those of the protobuf definition. `twice`: files as base64 of base64."""

    def __init__(self, twice: bool) -> None:
        self._twice = twice

    def _part(self, part: Part) -> schema.Part:
        older = part_out(part)
        if isinstance(older, TextPart):
            return schema.Part(older.text, metadata=older.metadata)
        if isinstance(older, DataPart):
            return schema.Part(data=schema.Data(older.data), metadata=older.metadata)
        return file_out(older, self._twice)

    def _message(self, message: Message) -> schema.Message:
        referenced = message.reference_task_ids
        extra = {"tieline/referenceTaskIds": list(referenced)} if referenced else NOTHING
        return schema.Message(
            message.message_id,
            message.context_id or "",
            message.task_id or "",
            _ROLE_NAMES[message.role],
            tuple([self._part(part) for part in message.parts]),
            carry(message.metadata, extra, _OF_MESSAGE),
            message.extensions,
        )

    def _status(self, status: TaskStatus) -> schema.Status:
        message = self._message(status.message) if status.message else None
        return schema.Status(_STATE_NAMES[status.state], message, status.timestamp)

    def _artifact(self, artifact: Artifact) -> schema.Artifact:
        return schema.Artifact(
            artifact.artifact_id,
            artifact.name,
            artifact.description,
            tuple([self._part(part) for part in artifact.parts]),
            artifact.metadata,
            artifact.extensions,
        )

    def task(self, task: Task) -> schema.Task:
        """A task."""
        return schema.Task(
            task.id,
            self._status(task.status),
            task.context_id or "",
            tuple([self._artifact(artifact) for artifact in task.artifacts]),
            tuple([self._message(message) for message in task.history]),
            task.metadata,
        )

    def page(self, page: ListTasksResponse) -> schema.Page:
        """A page of tasks."""
        return schema.Page(
            tuple([self.task(task) for task in page.tasks]), page.next_page_token, page.page_size, page.total_size
        )

    def event(self, event: StreamEvent) -> schema.Answer:
        """What an answer or a stream holds."""
        if isinstance(event, TaskArtifactUpdateEvent):
            update = schema.ArtifactUpdate(
                event.task_id,
                self._artifact(event.artifact),
                event.context_id,
                event.append,
                event.last_chunk,
                event.metadata,
            )
            return schema.Answer(artifact_update=update)
        if isinstance(event, TaskStatusUpdateEvent):
            status, ends = self._status(event.status), event.status.state in ENDS_STREAM
            return schema.Answer(
                status_update=schema.StatusUpdate(event.task_id, status, event.context_id, ends, event.metadata)
            )
        if isinstance(event, Task):
            return schema.Answer(self.task(event))
        return schema.Answer(message=self._message(event))

    def send(self, request: SendMessageRequest) -> schema.SendRequest:
        """The request that sends a message."""
        extra = present({TENANT: request.tenant})
        given = request.configuration or SendMessageConfiguration()
        push = given.task_push_notification_config
        of_push = present({"taskId": push.task_id, "tenant": push.tenant}) if push else None
        if of_push:
            extra["tieline/pushNotificationConfig"] = of_push
        if given.history_length == 0:
            extra["tieline/historyLength"] = 0
        configuration = schema.Configuration(
            given.accepted_output_modes,
            push_out(push) if push else None,
            given.history_length or 0,
            not given.return_immediately,
        )
        return schema.SendRequest(
            self._message(request.message), configuration, carry(request.metadata, extra, _OF_SEND)
        )


def config_out(config: TaskPushNotificationConfig) -> schema.Config:
    """A webhook of 1.0 as one of the definition."""
    task_id = config.task_id or ""
    return schema.Config(f"tasks/{task_id}/pushNotificationConfigs/{config.id or task_id}", push_out(config))


def configs_out(page: ListTaskPushNotificationConfigsResponse) -> schema.Configs:
    """The webhooks of a task."""
    return schema.Configs(tuple([config_out(config) for config in page.configs]), page.next_page_token)


def create_out(config: TaskPushNotificationConfig) -> schema.CreateConfig:
    """The request that makes a webhook."""
    written = config_out(config)
    return schema.CreateConfig(f"tasks/{config.task_id or ''}", written.name.rpartition("/")[2], written)
