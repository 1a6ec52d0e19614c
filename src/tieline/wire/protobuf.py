"""A2A 1.0 in protobuf: the values of tieline.types to and from the messages of package lf.a2a.v1. Pure.

An rpc is described once for servers and clients, in `RPCS` by its name on the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

try:
    from a2a.types import a2a_pb2 as pb
    from google.protobuf.empty_pb2 import Empty
except ImportError as error:
    raise ImportError(f"gRPC needs: pip install 'tieline[grpc]' ({error})") from error

from tieline.card import AgentCard
from tieline.types import (
    Artifact,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    Part,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamEvent,
    SubscribeToTaskRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from tieline.wire.protobuf_fields import (
    Fault,
    inside,
    into_field,
    read_all,
    read_metadata,
    read_role,
    read_state,
    read_timestamp,
    read_value,
    required,
    role_number,
    state_number,
    write_all,
    write_count,
    write_metadata,
    write_text,
    write_texts,
    write_timestamp,
    write_value,
)
from tieline.wire.protobuf_rpcs import form_of, rpc, rpcs_by_name
from tieline.wire.protobuf_structs import reader_of, write_fields

__all__ = [
    "RPCS",
    "SERVICE",
    "VERSION",
    "read_artifact_update",
    "read_message",
    "read_status_update",
    "read_task",
    "write_message",
    "write_task",
]

SERVICE: Final = "lf.a2a.v1.A2AService"
VERSION: Final = "1.0"

# --- messages, tasks and their events: what is hot --------------------------------------------------------------------


def _read_part(part: Any) -> Part:
    kind = part.WhichOneof("content")
    metadata = read_metadata(part)
    filename, media_type = part.filename or None, part.media_type or None
    if kind == "text":
        return Part(part.text, metadata=metadata, filename=filename, media_type=media_type)
    if kind == "data":
        data = inside("data", read_value, part.data)
        return Part(data=data, metadata=metadata, filename=filename, media_type=media_type)
    if kind == "raw":
        return Part(raw=part.raw, metadata=metadata, filename=filename, media_type=media_type)
    if kind == "url":
        return Part(url=part.url, metadata=metadata, filename=filename, media_type=media_type)
    raise Fault("", "wants exactly one of text, raw, url or data, got 0")


def _write_part(into: Any, part: Part) -> None:
    text, raw = part.text, part.raw
    if text is not None:
        write_text(into, "text", text)
    elif raw is not None:
        into.raw = bytes(raw)
    elif part.url is not None:
        write_text(into, "url", part.url)
    else:
        try:
            write_value(into.data, part.data)
        except Fault as fault:
            raise fault.within("data") from None
    if part.metadata is not None:
        write_metadata(into, part.metadata)
    if part.filename:
        write_text(into, "filename", part.filename)
    if part.media_type:
        write_text(into, "media_type", part.media_type)


def read_message(message: Any) -> Message:
    """A message."""
    return Message(
        message.message_id,
        read_role(message.role),
        read_all("parts", _read_part, message.parts),
        message.context_id or None,
        message.task_id or None,
        read_metadata(message),
        tuple(message.extensions),
        tuple(message.reference_task_ids),
    )


def write_message(into: Any, message: Message) -> None:
    """A message."""
    into.SetInParent()
    write_text(into, "message_id", message.message_id)
    into.role = role_number(message.role)
    write_all("parts", _write_part, into.parts, message.parts)
    if message.context_id:
        write_text(into, "context_id", message.context_id)
    if message.task_id:
        write_text(into, "task_id", message.task_id)
    if message.metadata is not None:
        write_metadata(into, message.metadata)
    if message.extensions:
        write_texts(into.extensions, message.extensions, "extensions")
    if message.reference_task_ids:
        write_texts(into.reference_task_ids, message.reference_task_ids, "referenceTaskIds")


def _read_status(status: Any) -> TaskStatus:
    return TaskStatus(
        read_state(status.state),
        inside("message", read_message, status.message) if status.HasField("message") else None,
        inside("timestamp", read_timestamp, status.timestamp) if status.HasField("timestamp") else None,
    )


def _write_status(into: Any, status: TaskStatus) -> None:
    into.SetInParent()
    into.state = state_number(status.state)
    if status.message is not None:
        into_field("message", write_message, into.message, status.message)
    if status.timestamp:
        into_field("timestamp", write_timestamp, into.timestamp, status.timestamp)


def _read_artifact(artifact: Any) -> Artifact:
    return Artifact(
        artifact.artifact_id,
        read_all("parts", _read_part, artifact.parts),
        artifact.name or None,
        artifact.description or None,
        read_metadata(artifact),
        tuple(artifact.extensions),
    )


def _write_artifact(into: Any, artifact: Artifact) -> None:
    into.SetInParent()
    write_text(into, "artifact_id", artifact.artifact_id)
    write_all("parts", _write_part, into.parts, artifact.parts)
    if artifact.name:
        write_text(into, "name", artifact.name)
    if artifact.description:
        write_text(into, "description", artifact.description)
    if artifact.metadata is not None:
        write_metadata(into, artifact.metadata)
    if artifact.extensions:
        write_texts(into.extensions, artifact.extensions, "extensions")


def read_task(task: Any) -> Task:
    """A task."""
    return Task(
        task.id,
        inside("status", _read_status, required(task, "status")),
        task.context_id or None,
        read_all("artifacts", _read_artifact, task.artifacts),
        read_all("history", read_message, task.history),
        read_metadata(task),
    )


def write_task(into: Any, task: Task) -> None:
    """A task."""
    into.SetInParent()
    write_text(into, "id", task.id)
    into_field("status", _write_status, into.status, task.status)
    if task.context_id:
        write_text(into, "context_id", task.context_id)
    if task.artifacts:
        write_all("artifacts", _write_artifact, into.artifacts, task.artifacts)
    if task.history:
        write_all("history", write_message, into.history, task.history)
    if task.metadata is not None:
        write_metadata(into, task.metadata)


def read_status_update(event: Any) -> TaskStatusUpdateEvent:
    """An event: the status of a task."""
    status = inside("status", _read_status, required(event, "status"))
    return TaskStatusUpdateEvent(event.task_id, event.context_id, status, read_metadata(event))


def _write_status_update(into: Any, event: TaskStatusUpdateEvent) -> None:
    into.SetInParent()
    write_text(into, "task_id", event.task_id)
    write_text(into, "context_id", event.context_id)
    into_field("status", _write_status, into.status, event.status)
    if event.metadata is not None:
        write_metadata(into, event.metadata)


def read_artifact_update(event: Any) -> TaskArtifactUpdateEvent:
    """An event: an artifact, or a chunk of one."""
    artifact = inside("artifact", _read_artifact, required(event, "artifact"))
    return TaskArtifactUpdateEvent(
        event.task_id, event.context_id, artifact, event.append, event.last_chunk, read_metadata(event)
    )


def _write_artifact_update(into: Any, event: TaskArtifactUpdateEvent) -> None:
    into.SetInParent()
    write_text(into, "task_id", event.task_id)
    write_text(into, "context_id", event.context_id)
    into_field("artifact", _write_artifact, into.artifact, event.artifact)
    if event.append:
        into.append = True
    if event.last_chunk:
        into.last_chunk = True
    if event.metadata is not None:
        write_metadata(into, event.metadata)


_EVENTS: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "task": ("task", read_task),
    "message": ("message", read_message),
    "status_update": ("statusUpdate", read_status_update),
    "artifact_update": ("artifactUpdate", read_artifact_update),
}


def _read_answer(answer: Any) -> Task | Message:
    """What a SendMessageResponse holds."""
    name = answer.WhichOneof("payload")
    if name is None:
        raise Fault("", "has to hold exactly one of task and message, it holds none")
    read: Task | Message = inside(name, _EVENTS[name][1], getattr(answer, name))
    return read


def _write_answer(into: Any, answer: Task | Message) -> None:
    """A task or message into a SendMessageResponse."""
    if isinstance(answer, Task):
        into_field("task", write_task, into.task, answer)
    else:
        into_field("message", write_message, into.message, answer)


def _read_event(response: Any) -> StreamEvent | None:
    """What a StreamResponse holds; None when it is something that this version does not know (A2A 1.0 §5.7)."""
    name = response.WhichOneof("payload")
    if name is None:
        return None
    told, read = _EVENTS[name]
    event: StreamEvent = inside(told, read, getattr(response, name))
    return event


def _write_event(into: Any, event: StreamEvent) -> None:
    """An event into a StreamResponse."""
    if isinstance(event, TaskArtifactUpdateEvent):
        into_field("artifactUpdate", _write_artifact_update, into.artifact_update, event)
    elif isinstance(event, TaskStatusUpdateEvent):
        into_field("statusUpdate", _write_status_update, into.status_update, event)
    else:
        _write_answer(into, event)


# --- requests ---------------------------------------------------------------------------------------------------------


def _read_send(request: Any) -> SendMessageRequest:
    configuration = None
    if request.HasField("configuration"):
        configuration = inside("configuration", _read_configuration, request.configuration)
    return SendMessageRequest(
        inside("message", read_message, required(request, "message")),
        request.tenant or None,
        configuration,
        read_metadata(request),
    )


def _write_send(into: Any, request: SendMessageRequest) -> None:
    into_field("message", write_message, into.message, request.message)
    if request.tenant:
        write_text(into, "tenant", request.tenant)
    if request.configuration is not None:
        into_field("configuration", _write_configuration, into.configuration, request.configuration)
    if request.metadata is not None:
        write_metadata(into, request.metadata)


def _read_configuration(configuration: Any) -> SendMessageConfiguration:
    webhook = None
    if configuration.HasField("task_push_notification_config"):
        read = reader_of(TaskPushNotificationConfig)
        webhook = inside("taskPushNotificationConfig", read, configuration.task_push_notification_config)
    return SendMessageConfiguration(
        tuple(configuration.accepted_output_modes),
        webhook,
        configuration.history_length if configuration.HasField("history_length") else None,
        configuration.return_immediately,
    )


def _write_configuration(into: Any, configuration: SendMessageConfiguration) -> None:
    into.SetInParent()
    write_texts(into.accepted_output_modes, configuration.accepted_output_modes, "acceptedOutputModes")
    webhook = configuration.task_push_notification_config
    if webhook is not None:
        into_field("taskPushNotificationConfig", write_fields, into.task_push_notification_config, webhook)
    if configuration.history_length is not None:
        write_count(into, "history_length", configuration.history_length)
    if configuration.return_immediately:
        into.return_immediately = True


def _read_get(request: Any) -> GetTaskRequest:
    history_length = request.history_length if request.HasField("history_length") else None
    return GetTaskRequest(_id_of(request), request.tenant or None, history_length)


def _id_of(request: Any) -> str:
    if not request.id:
        raise Fault("id", "is required")
    id_: str = request.id
    return id_


# --- rpcs -------------------------------------------------------------------------------------------------------------


def _nothing(message: Any, value: object = None) -> None:
    """Empty: nothing to read or write."""


_SEND = (pb.SendMessageRequest, _read_send, _write_send)
_TASK = (pb.Task, read_task, write_task)
_EVENT = (pb.StreamResponse, _read_event, _write_event)
_WEBHOOK = form_of(pb.TaskPushNotificationConfig, TaskPushNotificationConfig, "url")


def _read_page(page: Any) -> ListTasksResponse:
    tasks = read_all("tasks", read_task, page.tasks)
    return ListTasksResponse(tasks, page.next_page_token, page.page_size, page.total_size)


def _write_page(into: Any, page: ListTasksResponse) -> None:
    write_all("tasks", write_task, into.tasks, page.tasks)
    write_text(into, "next_page_token", page.next_page_token)
    write_count(into, "page_size", page.page_size)
    write_count(into, "total_size", page.total_size)


RPCS: Final = rpcs_by_name(
    (
        rpc("SendMessage", _SEND, (pb.SendMessageResponse, _read_answer, _write_answer)),
        rpc("SendStreamingMessage", _SEND, _EVENT),
        rpc("GetTask", (pb.GetTaskRequest, _read_get, write_fields), _TASK),
        rpc(
            "ListTasks",
            form_of(pb.ListTasksRequest, ListTasksRequest),
            (pb.ListTasksResponse, _read_page, _write_page),
        ),
        rpc("CancelTask", form_of(pb.CancelTaskRequest, CancelTaskRequest, "id"), _TASK),
        rpc("SubscribeToTask", form_of(pb.SubscribeToTaskRequest, SubscribeToTaskRequest, "id"), _EVENT),
        rpc("CreateTaskPushNotificationConfig", _WEBHOOK, _WEBHOOK),
        rpc(
            "GetTaskPushNotificationConfig",
            form_of(pb.GetTaskPushNotificationConfigRequest, GetTaskPushNotificationConfigRequest, "task_id", "id"),
            _WEBHOOK,
        ),
        rpc(
            "ListTaskPushNotificationConfigs",
            form_of(pb.ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsRequest, "task_id"),
            form_of(pb.ListTaskPushNotificationConfigsResponse, ListTaskPushNotificationConfigsResponse),
        ),
        rpc(
            "DeleteTaskPushNotificationConfig",
            form_of(
                pb.DeleteTaskPushNotificationConfigRequest, DeleteTaskPushNotificationConfigRequest, "task_id", "id"
            ),
            (Empty, _nothing, _nothing),
        ),
        rpc(
            "GetExtendedAgentCard",
            form_of(pb.GetExtendedAgentCardRequest, GetExtendedAgentCardRequest),
            form_of(pb.AgentCard, AgentCard),
        ),
    )
)
"""The rpcs of A2A 1.0 §10.3."""
