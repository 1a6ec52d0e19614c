"""Values of 1.0 out of those of 0.3 (`..._in`), and as those of 0.3 (`..._out`). Pure."""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET

from tieline.errors import InvalidParams
from tieline.types import (
    Artifact,
    AuthenticationInfo,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksResponse,
    Message,
    Metadata,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamEvent,
    SubscribeToTaskRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    Value,
)
from tieline.wire import v03_schema as schema
from tieline.wire.v03_metadata import (
    NOTHING,
    OF_CONFIG,
    OF_DATA,
    OF_LIST,
    OF_MESSAGE,
    OF_PARAMS,
    OF_PART,
    OF_SEND,
    TENANT,
    WRAPPED,
    carried,
    carry,
    data_carried,
    present,
)

__all__ = [
    "ENDS_STREAM",
    "answer_in",
    "config_in",
    "config_out",
    "configs_in",
    "configs_out",
    "event_in",
    "event_out",
    "message_in",
    "message_out",
    "no_params_in",
    "page_in",
    "page_out",
    "params_in",
    "params_out",
    "part_in",
    "part_out",
    "push_in",
    "push_out",
    "send_in",
    "send_out",
    "task_in",
    "task_out",
]

# --- 0.3 to 1.0 -------------------------------------------------------------------------------------------------------

_STATES: Final = {
    "unknown": TaskState.UNSPECIFIED,
    "submitted": TaskState.SUBMITTED,
    "working": TaskState.WORKING,
    "completed": TaskState.COMPLETED,
    "failed": TaskState.FAILED,
    "canceled": TaskState.CANCELED,
    "input-required": TaskState.INPUT_REQUIRED,
    "rejected": TaskState.REJECTED,
    "auth-required": TaskState.AUTH_REQUIRED,
}
_ROLES: Final = {"user": Role.USER, "agent": Role.AGENT}


def part_in(part: schema.Part) -> Part:
    """A part of 0.3 as one of 1.0. Raises ValueError for a file with neither bytes nor uri, or with both."""
    metadata = part.metadata
    if type(part) is schema.TextPart:
        if metadata is None:
            return Part(part.text)
        metadata, extra = carried(metadata, OF_PART)
        return Part(
            part.text,
            metadata=metadata,
            filename=extra.get("tieline/filename"),
            media_type=extra.get("tieline/mediaType"),
        )
    if type(part) is schema.FilePart:
        file = part.file
        return Part(raw=file.raw, url=file.uri, metadata=metadata, filename=file.name, media_type=file.mime_type)
    assert type(part) is schema.DataPart
    data, metadata, extra = data_carried(part.data, metadata)
    return Part(
        data=data,
        metadata=metadata,
        filename=extra.get("tieline/filename"),
        media_type=extra.get("tieline/mediaType"),
    )


def message_in(message: schema.Message) -> Message:
    """A message of 0.3 as one of 1.0."""
    metadata = message.metadata
    role = _ROLES[message.role]
    if metadata:
        metadata, extra = carried(metadata, OF_MESSAGE)
        if "tieline/role" in extra:
            role = Role.UNSPECIFIED
    return Message(
        message.message_id,
        role,
        tuple([part_in(part) for part in message.parts]),
        message.context_id or None,
        message.task_id or None,
        metadata,
        message.extensions or (),
        message.reference_task_ids or (),
    )


def _status_in(status: schema.Status) -> TaskStatus:
    message = status.message
    return TaskStatus(_STATES[status.state], message_in(message) if message else None, status.timestamp)


def _artifact_in(artifact: schema.Artifact) -> Artifact:
    return Artifact(
        artifact.artifact_id,
        tuple([part_in(part) for part in artifact.parts]),
        artifact.name,
        artifact.description,
        artifact.metadata,
        artifact.extensions or (),
    )


def task_in(task: schema.Task) -> Task:
    """A task of 0.3 as one of 1.0."""
    return Task(
        task.id,
        _status_in(task.status),
        task.context_id or None,
        tuple([_artifact_in(artifact) for artifact in task.artifacts or ()]),
        tuple([message_in(message) for message in task.history or ()]),
        task.metadata,
    )


def event_in(event: schema.Event) -> StreamEvent:
    """An event of 0.3 as one of 1.0."""
    if type(event) is schema.ArtifactUpdate:
        return TaskArtifactUpdateEvent(
            event.task_id,
            event.context_id,
            _artifact_in(event.artifact),
            bool(event.append),
            bool(event.last_chunk),
            event.metadata,
        )
    if type(event) is schema.StatusUpdate:
        return TaskStatusUpdateEvent(event.task_id, event.context_id, _status_in(event.status), event.metadata)
    return answer_in(event)  # type: ignore[arg-type]


def answer_in(answer: schema.Task | schema.Message) -> Task | Message:
    """What a message has come to."""
    return task_in(answer) if type(answer) is schema.Task else message_in(answer)  # type: ignore[arg-type]


def push_in(config: schema.PushConfig, task_id: str | None, tenant: str | None) -> TaskPushNotificationConfig:
    """A webhook of 0.3 as one of 1.0; task and tenant stand beside it in 0.3."""
    given = config.authentication
    authentication = AuthenticationInfo(given.schemes[0] if given.schemes else "", given.credentials) if given else None
    return TaskPushNotificationConfig(config.url, tenant, config.id, task_id, config.token, authentication)


def config_in(config: schema.TaskPushConfig) -> TaskPushNotificationConfig:
    """A webhook of a task."""
    _, extra = carried(config.metadata, OF_CONFIG)
    return push_in(config.push_notification_config, config.task_id or None, extra.get(TENANT))


def configs_in(configs: tuple[schema.TaskPushConfig, ...]) -> ListTaskPushNotificationConfigsResponse:
    """The webhooks of a task; the last one carries what more there is."""
    _, extra = carried(configs[-1].metadata, OF_CONFIG) if configs else (None, NOTHING)
    return ListTaskPushNotificationConfigsResponse(
        tuple([config_in(config) for config in configs]), extra.get("tieline/nextPageToken")
    )


def page_in(page: schema.Page) -> ListTasksResponse:
    """A page of tasks."""
    return ListTasksResponse(
        tuple([task_in(task) for task in page.tasks]), page.next_page_token, page.page_size, page.total_size
    )


def send_in(params: schema.SendParams, waits: bool) -> SendMessageRequest:
    """The params of a message. `waits`: what `blocking` is where it is not said."""
    metadata, extra = carried(params.metadata, OF_SEND)
    given = params.configuration
    configuration = None if waits or given else SendMessageConfiguration(return_immediately=True)
    if given:
        push = given.push_notification_config
        of_push = extra.get("tieline/pushNotificationConfig", NOTHING)
        configuration = SendMessageConfiguration(
            given.accepted_output_modes or (),
            push_in(push, _text(of_push.get("taskId")), _text(of_push.get("tenant"))) if push else None,
            given.history_length,
            not (waits if given.blocking is None else given.blocking),
        )
    return SendMessageRequest(message_in(params.message), extra.get(TENANT), configuration, metadata)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def no_params_in(params: schema.NoParams) -> GetExtendedAgentCardRequest:
    """The params of the one request that has none."""
    _, extra = carried(params.metadata, OF_PARAMS)
    return GetExtendedAgentCardRequest(extra.get(TENANT))


def params_in(params: schema.TaskParams, request: type[Any]) -> Value:
    """Params that are about a task, as a `request`. Raises InvalidParams."""
    names = OF_LIST if request is ListTaskPushNotificationConfigsRequest else OF_PARAMS
    metadata, extra = carried(params.metadata, names)
    tenant = extra.get(TENANT)
    if request is GetTaskRequest:
        return GetTaskRequest(params.id, tenant, params.history_length)
    if request is CancelTaskRequest:
        return CancelTaskRequest(params.id, tenant, metadata)
    if request is SubscribeToTaskRequest:
        return SubscribeToTaskRequest(params.id, tenant)
    if request is ListTaskPushNotificationConfigsRequest:
        size, token = extra.get("tieline/pageSize"), extra.get("tieline/pageToken")
        return ListTaskPushNotificationConfigsRequest(params.id, tenant, size, token)
    if request is GetTaskPushNotificationConfigRequest:  # one set without an id has that of its task
        return GetTaskPushNotificationConfigRequest(params.id, params.push_notification_config_id or params.id, tenant)
    if not params.push_notification_config_id:
        raise InvalidParams.at("pushNotificationConfigId", "is required")
    return DeleteTaskPushNotificationConfigRequest(params.id, params.push_notification_config_id, tenant)


# --- 1.0 to 0.3 -------------------------------------------------------------------------------------------------------

_STATE_NAMES: Final[dict[TaskState, Any]] = {state: name for name, state in _STATES.items()}
ENDS_STREAM: Final = frozenset(state for state in TaskState if state.terminal or state is TaskState.INPUT_REQUIRED)
"""States behind which a stream says no more: `final`."""


def part_out(part: Part) -> schema.Part:
    """A part of 1.0 as one of 0.3."""
    metadata = part.metadata
    if part.raw is not None or part.url is not None:
        return schema.FilePart(schema.File(part.raw, part.url, part.media_type, part.filename), metadata)
    extra: Metadata = NOTHING
    if part.filename is not None or part.media_type is not None:
        extra = present({"tieline/filename": part.filename, "tieline/mediaType": part.media_type})
    if part.data is UNSET:
        assert part.text is not None
        if metadata is not None or extra:
            metadata = carry(metadata, extra, OF_PART)
        return schema.TextPart(part.text, metadata)
    data = part.data
    if not isinstance(data, dict):
        data, extra = {"value": data}, {**extra, WRAPPED: True}
    return schema.DataPart(data, carry(metadata, extra, OF_DATA))


def message_out(message: Message) -> schema.Message:
    """A message of 1.0 as one of 0.3."""
    metadata = message.metadata
    unspecified = message.role is Role.UNSPECIFIED
    if metadata is not None or unspecified:
        metadata = carry(metadata, {"tieline/role": message.role.value} if unspecified else NOTHING, OF_MESSAGE)
    return schema.Message(
        message.message_id,
        "user" if message.role is Role.USER else "agent",
        tuple([part_out(part) for part in message.parts]),
        message.context_id,
        message.task_id,
        metadata,
        message.extensions or None,
        message.reference_task_ids or None,
    )


def _status_out(status: TaskStatus) -> schema.Status:
    message = status.message
    return schema.Status(_STATE_NAMES[status.state], message_out(message) if message else None, status.timestamp)


def _artifact_out(artifact: Artifact) -> schema.Artifact:
    return schema.Artifact(
        artifact.artifact_id,
        tuple([part_out(part) for part in artifact.parts]),
        artifact.name,
        artifact.description,
        artifact.metadata,
        artifact.extensions or None,
    )


def task_out(task: Task) -> schema.Task:
    """A task of 1.0 as one of 0.3."""
    return schema.Task(
        task.id,
        task.context_id or "",
        _status_out(task.status),
        tuple([_artifact_out(artifact) for artifact in task.artifacts]) or None,
        tuple([message_out(message) for message in task.history]) or None,
        task.metadata,
    )


def page_out(page: ListTasksResponse) -> schema.Page:
    """A page of tasks."""
    return schema.Page(
        tuple([task_out(task) for task in page.tasks]), page.next_page_token, page.page_size, page.total_size
    )


def event_out(event: StreamEvent) -> schema.Event:
    """An event of 1.0 as one of 0.3."""
    if isinstance(event, TaskArtifactUpdateEvent):
        return schema.ArtifactUpdate(
            event.task_id,
            event.context_id,
            _artifact_out(event.artifact),
            event.append or None,
            event.last_chunk or None,
            event.metadata,
        )
    if isinstance(event, TaskStatusUpdateEvent):
        return schema.StatusUpdate(
            event.task_id,
            event.context_id,
            _status_out(event.status),
            event.status.state in ENDS_STREAM,
            event.metadata,
        )
    return task_out(event) if isinstance(event, Task) else message_out(event)


def push_out(config: TaskPushNotificationConfig) -> schema.PushConfig:
    """A webhook of 1.0 as one of 0.3."""
    given = config.authentication
    authentication = None
    if given:
        authentication = schema.Authentication((given.scheme,) if given.scheme else (), given.credentials)
    return schema.PushConfig(config.url, config.id, config.token, authentication)


def config_out(config: TaskPushNotificationConfig, next_page_token: str | None = None) -> schema.TaskPushConfig:
    """A webhook with its task. `next_page_token`: of a list of which it is the last."""
    extra = present({TENANT: config.tenant, "tieline/nextPageToken": next_page_token})
    return schema.TaskPushConfig(config.task_id or "", push_out(config), extra or None)


def configs_out(page: ListTaskPushNotificationConfigsResponse) -> list[schema.TaskPushConfig]:
    """The webhooks of a task; the last one carries what more there is."""
    written = [config_out(config) for config in page.configs]
    if written and page.next_page_token is not None:
        written[-1] = config_out(page.configs[-1], page.next_page_token)
    return written


def send_out(request: SendMessageRequest) -> schema.SendParams:
    """The params of a message."""
    extra = present({TENANT: request.tenant})
    given = request.configuration
    configuration = None
    if given:
        push = given.task_push_notification_config
        of_push = present({"taskId": push.task_id, "tenant": push.tenant}) if push else None
        if of_push:
            extra["tieline/pushNotificationConfig"] = of_push
        configuration = schema.Configuration(
            not given.return_immediately,
            given.accepted_output_modes or None,
            push_out(push) if push else None,
            given.history_length,
        )
    return schema.SendParams(message_out(request.message), configuration, carry(request.metadata, extra, OF_SEND))


def params_out(request: Any) -> Value:
    """The params of any other request."""
    extra = present({TENANT: request.tenant})
    if isinstance(request, GetExtendedAgentCardRequest):
        return schema.NoParams(extra or None)
    if isinstance(request, GetTaskRequest):
        return schema.TaskParams(request.id, request.history_length, metadata=extra or None)
    if isinstance(request, CancelTaskRequest):
        return schema.TaskParams(request.id, metadata=carry(request.metadata, extra, OF_PARAMS))
    if isinstance(request, SubscribeToTaskRequest):
        return schema.TaskParams(request.id, metadata=extra or None)
    if isinstance(request, ListTaskPushNotificationConfigsRequest):
        extra |= present({"tieline/pageSize": request.page_size, "tieline/pageToken": request.page_token})
        return schema.TaskParams(request.task_id, metadata=extra or None)
    return schema.TaskParams(request.task_id, push_notification_config_id=request.id, metadata=extra or None)
