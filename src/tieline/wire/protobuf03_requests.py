"""Requests about a task, and webhooks, in the protobuf of A2A 0.3. Pure.

Tasks and webhooks have resource names: tasks/{id}, tasks/{id}/pushNotificationConfigs/{id}.
"""

from __future__ import annotations

import re
from typing import Any, Final

from msgspec.structs import replace

from tieline.types import (
    AuthenticationInfo,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
)
from tieline.wire.protobuf_fields import (
    Fault,
    inside,
    into_field,
    read_all,
    write_all,
    write_count,
    write_text,
    write_texts,
)

__all__ = [
    "no_tenant",
    "read_cancel",
    "read_config",
    "read_configs",
    "read_create",
    "read_delete_config",
    "read_get",
    "read_get_config",
    "read_list_configs",
    "read_push",
    "read_subscribe",
    "write_cancel",
    "write_config",
    "write_config_name",
    "write_configs",
    "write_create",
    "write_get",
    "write_history_length",
    "write_list_configs",
    "write_push",
    "write_task_name",
]

_TASK_NAME: Final = re.compile(r"tasks/(.+)\Z")
_CONFIG_NAME: Final = re.compile(r"tasks/(.+)/pushNotificationConfigs/([^/]+)\Z")


# --- names ------------------------------------------------------------------------------------------------------------


def no_tenant(request: Any) -> None:
    """Refuses a request, or a webhook, of a tenant."""
    if request.tenant:
        raise Fault("tenant", "A2A 0.3 has no tenants over gRPC")


def _task_id(name: str) -> str:
    match = _TASK_NAME.match(name)
    if match is None:
        raise Fault("name", "is required, as tasks/{id}" if not name else f"{name[:80]!r} is not tasks/{{id}}")
    return match.group(1)


def _config_id(name: str) -> tuple[str, str]:
    match = _CONFIG_NAME.match(name)
    if match is None:
        raise Fault("name", "is required, as tasks/{id}/pushNotificationConfigs/{id}")
    return match.group(1), match.group(2)


def _name_of(task_id: str) -> str:
    if not task_id or "/" in task_id:
        raise Fault("id", "has to be there, and without a slash, for A2A 0.3 over gRPC")
    return f"tasks/{task_id}"


def write_task_name(into: Any, request: Any) -> None:
    """A request that names a task and says no more."""
    no_tenant(request)
    write_text(into, "name", _name_of(request.id))


# --- requests about a task --------------------------------------------------------------------------------------------


def write_history_length(into: Any, length: int | None) -> None:
    """The messages of the history that are wanted. Refuses 0, which means all here."""
    if length == 0:
        raise Fault("historyLength", "0 means all in A2A 0.3 over gRPC: ask for 1")
    if length is not None:
        write_count(into, "history_length", length)


def read_get(request: Any) -> GetTaskRequest:
    """GetTask."""
    return GetTaskRequest(_task_id(request.name), None, request.history_length or None)


def write_get(into: Any, request: GetTaskRequest) -> None:
    """GetTask."""
    write_task_name(into, request)
    write_history_length(into, request.history_length)


def read_cancel(request: Any) -> CancelTaskRequest:
    """CancelTask."""
    return CancelTaskRequest(_task_id(request.name))


def write_cancel(into: Any, request: CancelTaskRequest) -> None:
    """CancelTask, which has no metadata here."""
    write_task_name(into, request)
    if request.metadata is not None:
        raise Fault("metadata", "A2A 0.3 has none for CancelTask over gRPC")


def read_subscribe(request: Any) -> SubscribeToTaskRequest:
    """TaskSubscription."""
    return SubscribeToTaskRequest(_task_id(request.name))


# --- webhooks ---------------------------------------------------------------------------------------------------------


def read_push(config: Any) -> TaskPushNotificationConfig:
    """A webhook; whose it is stands beside it."""
    if not config.url:
        raise Fault("url", "is required")
    authentication = None
    if config.HasField("authentication"):
        given = config.authentication
        authentication = AuthenticationInfo("".join(given.schemes[:1]), given.credentials or None)
    return TaskPushNotificationConfig(
        config.url, id=config.id or None, token=config.token or None, authentication=authentication
    )


def write_push(into: Any, config: TaskPushNotificationConfig) -> None:
    """A webhook; whose it is stands beside it."""
    write_text(into, "url", config.url)
    if config.id:
        write_text(into, "id", config.id)
    if config.token:
        write_text(into, "token", config.token)
    if config.authentication is not None:
        into.authentication.SetInParent()
        if config.authentication.scheme:
            write_texts(into.authentication.schemes, (config.authentication.scheme,), "authentication.scheme")
        if config.authentication.credentials:
            write_text(into.authentication, "credentials", config.authentication.credentials)


def read_config(config: Any) -> TaskPushNotificationConfig:
    """A webhook of a task."""
    task_id, id_ = _config_id(config.name)
    read = inside("pushNotificationConfig", read_push, config.push_notification_config)
    return replace(read, task_id=task_id, id=read.id or id_)


def write_config(into: Any, config: TaskPushNotificationConfig) -> None:
    """A webhook of a task."""
    no_tenant(config)
    write_text(into, "name", f"{_name_of(config.task_id or '')}/pushNotificationConfigs/{_named(config)}")
    write_push(into.push_notification_config, config)


def _named(config: Any) -> str:
    """The id in a resource name: a webhook without one has that of its task."""
    return str(config.id or config.task_id)


def read_configs(page: Any) -> ListTaskPushNotificationConfigsResponse:
    """The webhooks of a task."""
    return ListTaskPushNotificationConfigsResponse(
        read_all("configs", read_config, page.configs), page.next_page_token or None
    )


def write_configs(into: Any, page: ListTaskPushNotificationConfigsResponse) -> None:
    """The webhooks of a task."""
    write_all("configs", write_config, into.configs, page.configs)
    if page.next_page_token:
        write_text(into, "next_page_token", page.next_page_token)


# --- requests about a webhook -----------------------------------------------------------------------------------------


def read_create(request: Any) -> TaskPushNotificationConfig:
    """CreateTaskPushNotificationConfig."""
    read = inside("config.pushNotificationConfig", read_push, request.config.push_notification_config)
    return replace(read, task_id=_task_id(request.parent), id=read.id or request.config_id or None)


def write_create(into: Any, config: TaskPushNotificationConfig) -> None:
    """CreateTaskPushNotificationConfig."""
    no_tenant(config)
    write_text(into, "parent", _name_of(config.task_id or ""))
    write_text(into, "config_id", _named(config))
    into_field("config", write_config, into.config, config)


def read_get_config(request: Any) -> GetTaskPushNotificationConfigRequest:
    """GetTaskPushNotificationConfig."""
    return GetTaskPushNotificationConfigRequest(*_config_id(request.name))


def read_delete_config(request: Any) -> DeleteTaskPushNotificationConfigRequest:
    """DeleteTaskPushNotificationConfig."""
    return DeleteTaskPushNotificationConfigRequest(*_config_id(request.name))


def write_config_name(into: Any, request: Any) -> None:
    """A request that names a webhook and says no more."""
    no_tenant(request)
    write_text(into, "name", f"{_name_of(request.task_id)}/pushNotificationConfigs/{request.id}")


def read_list_configs(request: Any) -> ListTaskPushNotificationConfigsRequest:
    """ListTaskPushNotificationConfig."""
    return ListTaskPushNotificationConfigsRequest(
        _task_id(request.parent), None, request.page_size or None, request.page_token or None
    )


def write_list_configs(into: Any, request: ListTaskPushNotificationConfigsRequest) -> None:
    """ListTaskPushNotificationConfig."""
    no_tenant(request)
    write_text(into, "parent", _name_of(request.task_id))
    if request.page_size:
        write_count(into, "page_size", request.page_size)
    if request.page_token:
        write_text(into, "page_token", request.page_token)
