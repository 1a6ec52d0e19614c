"""The operations of A2A 1.0 and what each binding calls them (§5.3)."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tieline.types import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
)

__all__ = ["METHODS", "Method"]


class Method(msgspec.Struct, frozen=True):
    """One operation. `path`: its REST path with `{fields}` of the request; `verbs`: HTTP methods, the usual first."""

    name: str
    request: type[Any]
    verbs: tuple[str, ...]
    path: str
    streaming: bool = False
    body: bool = False  # REST: the request is the body


METHODS: Final[dict[str, Method]] = {
    method.name: method
    for method in (
        Method("SendMessage", SendMessageRequest, ("POST",), "/message:send", body=True),
        Method("SendStreamingMessage", SendMessageRequest, ("POST",), "/message:stream", streaming=True, body=True),
        Method("GetTask", GetTaskRequest, ("GET",), "/tasks/{id}"),
        Method("ListTasks", ListTasksRequest, ("GET",), "/tasks"),
        Method("CancelTask", CancelTaskRequest, ("POST",), "/tasks/{id}:cancel", body=True),
        Method("SubscribeToTask", SubscribeToTaskRequest, ("POST", "GET"), "/tasks/{id}:subscribe", streaming=True),
        Method(
            "CreateTaskPushNotificationConfig",
            TaskPushNotificationConfig,
            ("POST",),
            "/tasks/{taskId}/pushNotificationConfigs",
            body=True,
        ),
        Method(
            "GetTaskPushNotificationConfig",
            GetTaskPushNotificationConfigRequest,
            ("GET",),
            "/tasks/{taskId}/pushNotificationConfigs/{id}",
        ),
        Method(
            "ListTaskPushNotificationConfigs",
            ListTaskPushNotificationConfigsRequest,
            ("GET",),
            "/tasks/{taskId}/pushNotificationConfigs",
        ),
        Method(
            "DeleteTaskPushNotificationConfig",
            DeleteTaskPushNotificationConfigRequest,
            ("DELETE",),
            "/tasks/{taskId}/pushNotificationConfigs/{id}",
        ),
        Method("GetExtendedAgentCard", GetExtendedAgentCardRequest, ("GET",), "/extendedAgentCard"),
    )
}
