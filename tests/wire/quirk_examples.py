"""What peers write beside the canonical form: for each row of quirks.QUIRKS, what is given and what it is in 1.0."""

from __future__ import annotations

from typing import Any

from tieline.types import (
    Artifact,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
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
    SendMessageResponse,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskStatus,
    TaskStatusUpdateEvent,
)

__all__ = ["ASKED", "SAID", "SHOWN", "TASK", "TEXT", "WORKING"]

TEXT = {"text": "hi"}
ASKED = {"messageId": "m", "role": "ROLE_USER", "parts": [TEXT]}
SAID = {"messageId": "m", "role": "ROLE_AGENT", "parts": [TEXT]}
WORKING = {"state": "TASK_STATE_WORKING"}
TASK = {"id": "t", "contextId": "c", "status": WORKING}
STATUS = {"taskId": "t", "contextId": "c", "status": WORKING}
HOOK = {"url": "https://h", "taskId": "t"}


def part(given: dict[str, Any], meant: dict[str, Any]) -> tuple[type[Any], Any, Any]:
    return Part, given, meant


def sent(given: dict[str, Any], meant: dict[str, Any]) -> tuple[type[Any], Any, Any]:
    return SendMessageRequest, given, meant


def state(word: Any, meant: str) -> tuple[type[Any], Any, Any]:
    return TaskStatus, {"state": word}, {"state": meant}


SHOWN: dict[str, list[tuple[type[Any], Any, Any]]] = {
    "names": [
        part({"text": "hi", "media_type": "text/plain"}, {"text": "hi", "mediaType": "text/plain"}),
        (
            Message,
            {"message_id": "m", "role": "ROLE_USER", "parts": [TEXT], "context_id": "c"},
            ASKED | {"contextId": "c"},
        ),
        (
            StreamResponse,
            {"status_update": {"task_id": "t", "context_id": "c", "status": WORKING}},
            {"statusUpdate": STATUS},
        ),
    ],
    "null": [
        (Task, TASK | {"artifacts": None, "history": None, "metadata": None}, TASK),
        part({"data": None, "metadata": None}, {"data": None}),
    ],
    "unknown-fields": [
        (Message, SAID | {"kind": "message"}, SAID),
        (TaskStatusUpdateEvent, STATUS | {"kind": "status-update", "final": True}, STATUS),
    ],
    "result": [
        (Task, {"jsonrpc": "2.0", "id": 1, "result": TASK}, TASK),
        (StreamResponse, {"result": TASK | {"kind": "task"}}, {"task": TASK}),
        (SendMessageResponse, {"result": {"message": SAID}}, {"message": SAID}),
    ],
    "empty": [
        (Message, ASKED | {"contextId": "", "taskId": ""}, ASKED),
        (Task, {"id": "t", "contextId": "", "status": WORKING | {"timestamp": ""}}, {"id": "t", "status": WORKING}),
        part({"text": "", "filename": "", "mediaType": ""}, {"text": ""}),
    ],
    "integers": [
        (GetTaskRequest, {"id": "t", "historyLength": "10"}, {"id": "t", "historyLength": 10}),
        (ListTasksRequest, {"pageSize": 5.0}, {"pageSize": 5}),
    ],
    "msg": [
        (StreamResponse, {"msg": SAID}, {"message": SAID}),
        (SendMessageResponse, {"msg": SAID}, {"message": SAID}),
    ],
    "bare": [
        (StreamResponse, TASK | {"kind": "task"}, {"task": TASK}),
        (StreamResponse, SAID | {"kind": "message"}, {"message": SAID}),
        (StreamResponse, STATUS | {"kind": "status-update", "final": False}, {"statusUpdate": STATUS}),
        (StreamResponse, STATUS | {"type": "status_update"}, {"statusUpdate": STATUS}),
        (
            StreamResponse,
            {"kind": "artifact-update", "taskId": "t", "contextId": "c", "artifact": {"artifactId": "a", "parts": []}},
            {"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": {"artifactId": "a", "parts": []}}},
        ),
        (StreamResponse, TASK, {"task": TASK}),
        (StreamResponse, {"id": "t", "status": WORKING, "history": []}, {"task": {"id": "t", "status": WORKING}}),
        (StreamResponse, STATUS, {"statusUpdate": STATUS}),
        (StreamResponse, SAID, {"message": SAID}),
        (SendMessageResponse, {"id": "t", "status": WORKING}, {"task": {"id": "t", "status": WORKING}}),
        (SendMessageResponse, SAID, {"message": SAID}),
    ],
    "wrapped": [(Task, {"task": TASK}, TASK), (Message, {"message": SAID}, SAID), (Message, {"msg": SAID}, SAID)],
    "event.taskId": [
        (TaskStatusUpdateEvent, {"id": "t", "contextId": "c", "status": WORKING, "final": False}, STATUS),
        (
            StreamResponse,
            {"id": "t", "contextId": "c", "artifact": {"artifactId": "a", "parts": []}},
            {"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": {"artifactId": "a", "parts": []}}},
        ),
    ],
    "sessionId": [
        (Task, {"id": "t", "sessionId": "c", "status": WORKING}, TASK),
        (TaskStatusUpdateEvent, {"id": "t", "sessionId": "c", "status": WORKING}, STATUS),
    ],
    "event.contextId": [
        (StreamResponse, {"id": "t", "status": WORKING, "final": True}, {"statusUpdate": STATUS | {"contextId": ""}})
    ],
    "event.chunk": [
        (
            TaskArtifactUpdateEvent,
            {
                "taskId": "t",
                "contextId": "c",
                "artifact": {"index": 2, "append": True, "lastChunk": True, "parts": [TEXT]},
            },
            {
                "taskId": "t",
                "contextId": "c",
                "artifact": {"artifactId": "artifact-2", "parts": [TEXT]},
                "append": True,
                "lastChunk": True,
            },
        ),
        (
            TaskArtifactUpdateEvent,
            {"taskId": "t", "contextId": "c", "index": 3, "last_chunk": True, "artifact": {"parts": [TEXT]}},
            {
                "taskId": "t",
                "contextId": "c",
                "artifact": {"artifactId": "artifact-3", "parts": [TEXT]},
                "lastChunk": True,
            },
        ),
    ],
    "task.id": [(Task, {"taskId": "t", "contextId": "c", "status": WORKING}, TASK)],
    "status.string": [
        (Task, TASK | {"status": "working"}, TASK),
        (TaskStatusUpdateEvent, STATUS | {"status": "working"}, STATUS),
    ],
    "artifacts.ids": [
        (
            Task,
            TASK | {"artifacts": [{"parts": [TEXT]}, {"parts": [TEXT]}]},
            TASK
            | {
                "artifacts": [
                    {"artifactId": "artifact-0", "parts": [TEXT]},
                    {"artifactId": "artifact-1", "parts": [TEXT]},
                ]
            },
        )
    ],
    "artifact.id": [
        (Artifact, {"index": 4, "parts": [TEXT]}, {"artifactId": "artifact-4", "parts": [TEXT]}),
        (Artifact, {"name": "n", "parts": [TEXT]}, {"artifactId": "artifact-0", "name": "n", "parts": [TEXT]}),
    ],
    "artifact.parts": [(Artifact, {"artifactId": "a"}, {"artifactId": "a", "parts": []})],
    "status.update": [(TaskStatus, WORKING | {"update": SAID}, WORKING | {"message": SAID})],
    "status.text": [
        (TaskStatus, WORKING | {"message": "hi"}, WORKING | {"message": SAID | {"messageId": ""}}),
        (TaskStatus, WORKING | {"message": ""}, WORKING),
    ],
    "status.zone": [
        (
            TaskStatus,
            WORKING | {"timestamp": "2025-04-17T17:47:09.680794"},
            WORKING | {"timestamp": "2025-04-17T17:47:09.680794Z"},
        ),
        (
            TaskStatus,
            WORKING | {"timestamp": "2025-04-17T17:47:09+02:00"},
            WORKING | {"timestamp": "2025-04-17T17:47:09+02:00"},
        ),
    ],
    "status.role": [
        (TaskStatus, WORKING | {"message": {"messageId": "m", "parts": [TEXT]}}, WORKING | {"message": SAID})
    ],
    "state.words": [
        state("working", "TASK_STATE_WORKING"),
        state("Submitted", "TASK_STATE_SUBMITTED"),
        *(
            state(word, "TASK_STATE_INPUT_REQUIRED")
            for word in ("input-required", "input_required", "inputRequired", "INPUT-REQUIRED", "Input Required")
        ),
        state("auth-required", "TASK_STATE_AUTH_REQUIRED"),
        state("task_state_failed", "TASK_STATE_FAILED"),
        (ListTasksRequest, {"status": "completed"}, {"status": "TASK_STATE_COMPLETED"}),
    ],
    "state.cancelled": [
        state("cancelled", "TASK_STATE_CANCELED"),
        state("TASK_STATE_CANCELLED", "TASK_STATE_CANCELED"),
        (ListTasksRequest, {"status": "Cancelled"}, {"status": "TASK_STATE_CANCELED"}),
    ],
    "state.unknown": [state("unknown", "TASK_STATE_UNSPECIFIED")],
    "state.any": [(ListTasksRequest, {"status": ""}, {})],
    "enum.numbers": [state(6, "TASK_STATE_INPUT_REQUIRED"), (Message, ASKED | {"role": 1}, ASKED)],
    "message.content": [
        (Message, {"messageId": "m", "role": "ROLE_USER", "content": [TEXT]}, ASKED),
        sent({"message": {"messageId": "m", "role": "ROLE_USER", "content": [TEXT]}}, {"message": ASKED}),
    ],
    "message.parts": [(Message, {"messageId": "m", "role": "agent"}, SAID | {"parts": []})],
    "message.id": [
        (Message, {"role": "ROLE_USER", "parts": [TEXT]}, ASKED | {"messageId": ""}),
        sent(
            {"id": "t", "message": {"role": "user", "parts": [TEXT]}},
            {"message": ASKED | {"messageId": "", "taskId": "t"}},
        ),
    ],
    "role.words": [
        *((Message, ASKED | {"role": word}, ASKED) for word in ("user", "USER", "User", "role_user")),
        *((Message, SAID | {"role": word}, SAID) for word in ("agent", "Agent")),
    ],
    "part.root": [part({"root": {"kind": "text", "text": "hi"}}, TEXT)],
    "part.tag": [
        part({"kind": "text", "text": "hi"}, TEXT),
        part({"type": "text", "text": "hi"}, TEXT),
        part({"kind": "data", "data": {"data": {"n": 1}}}, {"data": {"data": {"n": 1}}}),
        (Message, SAID | {"parts": [{"type": "markdown", "text": "hi"}]}, SAID),
        part({"kind": "text", "text": "hi", "metadata": {"tieline/filename": "a"}}, {"text": "hi", "filename": "a"}),
    ],
    "part.file": [
        part(
            {
                "kind": "file",
                "file": {"bytes": "aGk=", "mimeType": "text/plain", "name": "a.txt"},
                "metadata": {"k": 1},
            },
            {"raw": "aGk=", "mediaType": "text/plain", "filename": "a.txt", "metadata": {"k": 1}},
        ),
        part(
            {"type": "file", "file": {"uri": "https://f", "mediaType": "text/plain"}},
            {"url": "https://f", "mediaType": "text/plain"},
        ),
        part({"file": {"fileWithBytes": "aGk=", "mimeType": "a/b"}}, {"raw": "aGk=", "mediaType": "a/b"}),
        part({"file": {"file_with_uri": "https://f", "mime_type": "a/b"}}, {"url": "https://f", "mediaType": "a/b"}),
        part({"kind": "file", "file": {"bytes": "", "uri": "https://f"}}, {"url": "https://f"}),
        part({"kind": "file", "file": {"bytes": None, "uri": "https://f", "name": None}}, {"url": "https://f"}),
    ],
    "part.bytes": [
        part({"type": "file", "bytes": "aGk=", "mimeType": "a/b"}, {"raw": "aGk=", "mediaType": "a/b"}),
        part({"kind": "file", "uri": "https://f"}, {"url": "https://f"}),
    ],
    "part.base64": [
        part({"raw": "_-8"}, {"raw": "/+8="}),
        part({"kind": "file", "file": {"bytes": "_-8"}}, {"raw": "/+8="}),
    ],
    "part.mimeType": [part({"text": "hi", "mimeType": "text/plain"}, {"text": "hi", "mediaType": "text/plain"})],
    "part.name": [part({"url": "https://f", "name": "a.txt"}, {"url": "https://f", "filename": "a.txt"})],
    "part.empty": [
        part({"text": "", "url": "https://f"}, {"url": "https://f"}),
        part({"text": "hi", "data": None}, TEXT),
        part({"text": "", "raw": "", "data": {"n": 1}}, {"data": {"n": 1}}),
    ],
    "part.data": [
        sent(
            {"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"data": {"data": {"n": 1}}}]}},
            {"message": ASKED | {"parts": [{"data": {"n": 1}}]}},
        )
    ],
    "part.value": [
        part({"kind": "data", "data": {"value": [1]}, "metadata": {"data_part_compat": True}}, {"data": [1]}),
        part(
            {"kind": "data", "data": {"value": None}, "metadata": {"data_part_compat": True, "k": 1}},
            {"data": None, "metadata": {"k": 1}},
        ),
    ],
    "part.metadata": [
        part(
            {"type": "text", "text": "hi", "metadata": {"tieline/filename": "a", "tieline/mediaType": "b/c", "k": 1}},
            {"text": "hi", "filename": "a", "mediaType": "b/c", "metadata": {"k": 1}},
        )
    ],
    "send.request": [sent({"request": ASKED}, {"message": ASKED})],
    "send.ids": [
        sent({"id": "t", "sessionId": "c", "message": ASKED}, {"message": ASKED | {"taskId": "t", "contextId": "c"}})
    ],
    "send.configuration": [
        sent(
            {"message": ASKED, "historyLength": 3, "acceptedOutputModes": ["a/b"], "pushNotification": {"url": "u"}},
            {
                "message": ASKED,
                "configuration": {
                    "historyLength": 3,
                    "acceptedOutputModes": ["a/b"],
                    "taskPushNotificationConfig": {"url": "u"},
                },
            },
        )
    ],
    "configuration.blocking": [
        (SendMessageConfiguration, {"blocking": False}, {"returnImmediately": True}),
        (SendMessageConfiguration, {"blocking": True}, {}),
        (SendMessageConfiguration, {"blocking": True, "returnImmediately": True}, {"returnImmediately": True}),
    ],
    "configuration.push": [
        (
            SendMessageConfiguration,
            {name: {"url": "u", "id": "i", "authentication": {"schemes": ["Bearer"], "credentials": "x"}}},
            {
                "taskPushNotificationConfig": {
                    "url": "u",
                    "id": "i",
                    "authentication": {"scheme": "Bearer", "credentials": "x"},
                }
            },
        )
        for name in ("pushNotificationConfig", "pushNotification", "push_notification")
    ],
    "request.name": [
        *(
            (type_, {"name": "tasks/t"}, {"id": "t"})
            for type_ in (GetTaskRequest, CancelTaskRequest, SubscribeToTaskRequest)
        ),
        *(
            (type_, {"name": "tasks/t/pushNotificationConfigs/c"}, {"taskId": "t", "id": "c"})
            for type_ in (GetTaskPushNotificationConfigRequest, DeleteTaskPushNotificationConfigRequest)
        ),
        (ListTaskPushNotificationConfigsRequest, {"parent": "tasks/t"}, {"taskId": "t"}),
        (
            TaskPushNotificationConfig,
            {"name": "tasks/t/pushNotificationConfigs/c", "pushNotificationConfig": {"url": "https://h"}},
            HOOK | {"id": "c"},
        ),
    ],
    "request.taskId": [(GetTaskRequest, {"taskId": "t"}, {"id": "t"})],
    "config.task": [
        (ListTaskPushNotificationConfigsRequest, {"id": "t"}, {"taskId": "t"}),
        (
            DeleteTaskPushNotificationConfigRequest,
            {"id": "t", "pushNotificationConfigId": "c"},
            {"taskId": "t", "id": "c"},
        ),
    ],
    "config.id": [
        (
            GetTaskPushNotificationConfigRequest,
            {"id": "t", "pushNotificationConfigId": "c", "metadata": {}},
            {"taskId": "t", "id": "c"},
        )
    ],
    "config.any": [(GetTaskPushNotificationConfigRequest, {"id": "t"}, {"taskId": "t", "id": ""})],
    "config.create": [
        (
            TaskPushNotificationConfig,
            {"parent": "tasks/t", "configId": "c", "config": {"pushNotificationConfig": {"url": "https://h"}}},
            HOOK | {"id": "c"},
        ),
        (
            TaskPushNotificationConfig,
            {"config": {"name": "tasks/t/pushNotificationConfigs/c", "pushNotificationConfig": {"url": "https://h"}}},
            HOOK | {"id": "c"},
        ),
    ],
    "config.nested": [
        (
            TaskPushNotificationConfig,
            {"taskId": "t", "pushNotificationConfig": {"url": "https://h", "id": "c"}},
            HOOK | {"id": "c"},
        ),
        (
            TaskPushNotificationConfig,
            {"id": "t", "pushNotificationConfig": {"url": "https://h", "token": "x"}},
            HOOK | {"token": "x"},
        ),
        (
            ListTaskPushNotificationConfigsResponse,
            {"configs": [{"taskId": "t", "pushNotificationConfig": {"url": "https://h"}}]},
            {"configs": [HOOK]},
        ),
    ],
    "config.schemes": [
        (TaskPushNotificationConfig, HOOK | {"authentication": given}, HOOK | meant)
        for given, meant in (
            ({"schemes": ["Basic", "Bearer"]}, {"authentication": {"scheme": "Basic"}}),
            ({"schemes": [], "credentials": "x"}, {"authentication": {"scheme": "Bearer", "credentials": "x"}}),
            ({"schemes": []}, {}),
        )
    ],
    "list.bare": [
        (ListTaskPushNotificationConfigsResponse, [HOOK], {"configs": [HOOK]}),
        (ListTasksResponse, [TASK], {"tasks": [TASK], "nextPageToken": "", "pageSize": 1, "totalSize": 1}),
    ],
    "list.tasks": [
        (
            ListTasksResponse,
            {"nextPageToken": "", "pageSize": 5, "totalSize": 0},
            {"tasks": [], "nextPageToken": "", "pageSize": 5, "totalSize": 0},
        )
    ],
    "list.counts": [
        (ListTasksResponse, {"tasks": [TASK]}, {"tasks": [TASK], "nextPageToken": "", "pageSize": 1, "totalSize": 1})
    ],
}
