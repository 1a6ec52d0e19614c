"""QUIRKS: what peers of any version are known to write beside the canonical form. Pure.

One row for each habit, with the step that brings it to the form of 1.0; lenient.py reads a document by them. The steps
are in quirks_parts.py, quirks_tasks.py, quirks_events.py and quirks_requests.py.

A row acts only where the field of 1.0 is missing or is not one that 1.0 allows, so what is valid in 1.0 is never read
as something else. What stands in `data` and `metadata` is the peer's own and is left alone.

Requests and results differ: a result that lacks a list or an id is still of use, a request that does is refused, as its
sender can be told.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

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
    Value,
)
from tieline.wire import quirks_events as events
from tieline.wire import quirks_parts as parts
from tieline.wire import quirks_requests as requests
from tieline.wire import quirks_tasks as tasks
from tieline.wire.quirks_document import Step, id_of_task, no_empty, no_list, renamed

__all__ = ["QUIRKS", "Quirk"]


class Quirk(msgspec.Struct, frozen=True):
    """One habit of peers. `step` reads it in objects of `where`; None: types.py does, or it is an unknown field."""

    name: str
    where: tuple[type[Any], ...]
    written: str
    read_as: str
    step: Step | None = None


_EVENTS: Final = (TaskStatusUpdateEvent, TaskArtifactUpdateEvent)
_OF_TASK: Final = (GetTaskRequest, CancelTaskRequest, SubscribeToTaskRequest)
_OF_CONFIG: Final = (
    GetTaskPushNotificationConfigRequest,
    DeleteTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
)
_STATED: Final = (TaskStatus, ListTasksRequest)

QUIRKS: Final[tuple[Quirk, ...]] = (
    # anything
    Quirk("names", (Value,), "`context_id`, `mime_type`: names in snake_case", "the name in camelCase"),
    Quirk("null", (Value,), "`null` for what is absent", "absent; in `data` it is a value"),
    Quirk("unknown-fields", (Value,), "`kind` of an object, `final` of an event, other fields of no use", "ignored"),
    Quirk("result", (Value,), '`{"result": {...}}` inside a result', "what is in it", events.result),
    Quirk("empty", (Value,), '`""` in an optional string: `contextId`, `taskId`, `name`, ...', "absent", no_empty),
    Quirk("integers", (Value,), '`"10"`, `10.0` as a count: `historyLength`, `pageSize`', "the integer"),
    # answers and events
    Quirk(
        "msg",
        (StreamResponse, SendMessageResponse),
        '`{"msg": {...}}` (protobuf, 0.3)',
        "`message`",
        renamed("message", "msg", of=dict),
    ),
    Quirk(
        "bare",
        (StreamResponse, SendMessageResponse),
        "an answer or event without its wrapper, with `kind` (0.2, 0.3), `type` or neither (0.1)",
        "by its tag, else by its members; in a stream `{id, status}` and no more is a status",
        events.bare,
    ),
    Quirk(
        "wrapped",
        (Task, Message),
        '`{"task": {...}}`, `{"message": {...}}` where only the task or message is wanted',
        "what is in it",
        events.member,
    ),
    Quirk("event.taskId", _EVENTS, "`id` of an event (0.1)", "`taskId`", id_of_task),
    Quirk(
        "sessionId", (Task, Message, *_EVENTS), "`sessionId` (0.1)", "`contextId`", renamed("contextId", "sessionId")
    ),
    Quirk("event.contextId", _EVENTS, "an event without `contextId` (0.1)", '`""`', events.no_context),
    Quirk(
        "event.chunk",
        (TaskArtifactUpdateEvent,),
        "`append`, `lastChunk` in the artifact, `index` beside it (0.1)",
        "those of the event",
        events.chunk,
    ),
    # tasks
    Quirk("task.id", (Task,), "`taskId` of a task", "`id`", renamed("id", "taskId", of=str)),
    Quirk("status.string", (Task, *_EVENTS), '`"status": "working"`', "its state", tasks.string_status),
    Quirk(
        "artifacts.ids",
        (Task,),
        "several artifacts without `artifactId` (0.1)",
        "`artifact-{index}`; where two would have one, by their places in the list",
        tasks.artifact_ids,
    ),
    Quirk(
        "artifact.id",
        (Artifact,),
        "an artifact without `artifactId` (0.1)",
        "`artifact-{index}`, without an index `artifact-0`",
        tasks.artifact_id,
    ),
    Quirk("artifact.parts", (Artifact,), "a result's artifact without `parts`", "`[]`", no_list("parts")),
    Quirk(
        "status.update", (TaskStatus,), "`update` (protobuf, 0.3)", "`message`", renamed("message", "update", of=dict)
    ),
    Quirk(
        "status.text",
        (TaskStatus,),
        '`"message": "words"` in a status',
        "a message of the agent with one text",
        tasks.string_message,
    ),
    Quirk("status.zone", (TaskStatus,), "a `timestamp` without a zone", "in UTC", tasks.zone),
    Quirk("status.role", (TaskStatus,), "a status message without `role`", "`ROLE_AGENT`", tasks.word_of_agent),
    Quirk(
        "state.words",
        _STATED,
        "`working`, `Working`, `input-required`, `input_required`, `inputRequired`, `INPUT-REQUIRED`",
        "`TASK_STATE_...`",
        tasks.state,
    ),
    Quirk("state.cancelled", _STATED, "`cancelled`, `TASK_STATE_CANCELLED`", "`TASK_STATE_CANCELED`", tasks.cancelled),
    Quirk("state.unknown", _STATED, "`unknown` (0.1 to 0.3)", "`TASK_STATE_UNSPECIFIED`", tasks.unknown),
    Quirk("state.any", (ListTasksRequest,), '`"status": ""` in a list request', "absent: any state", tasks.any_state),
    Quirk("enum.numbers", (Value,), "the number of a state or role in protobuf", "its name"),
    # messages
    Quirk("message.content", (Message,), "`content` (protobuf, 0.3)", "`parts`", renamed("parts", "content", of=list)),
    Quirk("message.parts", (Message,), "a result's message without `parts`", "`[]`", no_list("parts")),
    Quirk(
        "message.id",
        (Message,),
        "a message without `messageId`, in a result or a request of 0.1",
        '`""`',
        tasks.no_message_id,
    ),
    Quirk("role.words", (Message,), "`user`, `agent`, `USER`, `Agent`", "`ROLE_USER`, `ROLE_AGENT`", tasks.role),
    # parts
    Quirk("part.root", (Part,), '`{"root": {...}}` around a part', "what is in it", parts.root),
    Quirk(
        "part.tag",
        (Part,),
        "`kind` (0.2, 0.3), `type` (0.1) or neither",
        "by what the part holds; a tag that is none of text, file and data is refused in a request",
        parts.tag,
    ),
    Quirk(
        "part.file",
        (Part,),
        "`file: {bytes|uri, mimeType, name}` (0.1 to 0.3), `file: {fileWithBytes|fileWithUri, ...}` (protobuf, 0.3)",
        "`raw` or `url`, `mediaType`, `filename`",
        parts.file,
    ),
    Quirk("part.bytes", (Part,), "`bytes`, `fileWithBytes`; `uri`, `fileWithUri`", "`raw`; `url`", parts.bytes_or_uri),
    Quirk("part.base64", (Part,), "base64 in the URL alphabet, or without padding", "the bytes"),
    Quirk("part.mimeType", (Part,), "`mimeType`", "`mediaType`", renamed("mediaType", "mimeType")),
    Quirk("part.name", (Part,), "`name` of a file", "`filename`", parts.file_name),
    Quirk(
        "part.empty", (Part,), '`""` or `"data": null` beside the content that is there', "absent", parts.one_content
    ),
    Quirk(
        "part.data",
        (Part,),
        '`{"data": {"data": {...}}}` in a document that is protobuf\'s JSON of 0.3, and no other',
        "the inner `data`",
        parts.data_part,
    ),
    Quirk(
        "part.value",
        (Part,),
        '`{"value": x}` with `data_part_compat: true` in the metadata of a part with a tag: data that is no object',
        "`x`",
        parts.compat,
    ),
    Quirk(
        "part.metadata",
        (Part,),
        f"`{parts.FILENAME}`, `{parts.MEDIA_TYPE}` in the metadata of a part with a tag",
        "`filename`, `mediaType`",
        parts.own_metadata,
    ),
    # requests
    Quirk(
        "send.request",
        (SendMessageRequest,),
        "`request` (protobuf, 0.3)",
        "`message`",
        renamed("message", "request", of=dict),
    ),
    Quirk(
        "send.ids",
        (SendMessageRequest,),
        "`id` and `sessionId` beside the message (0.1)",
        "`taskId` and `contextId` of the message",
        requests.first_ids,
    ),
    Quirk(
        "send.configuration",
        (SendMessageRequest,),
        "`acceptedOutputModes`, `historyLength`, `pushNotification` beside the message (0.1)",
        "those of `configuration`",
        requests.first_configuration,
    ),
    Quirk(
        "configuration.blocking",
        (SendMessageConfiguration,),
        "`blocking` (0.2, 0.3)",
        "`returnImmediately`, the other way round",
        requests.blocking,
    ),
    Quirk(
        "configuration.push",
        (SendMessageConfiguration,),
        "`pushNotificationConfig` (0.2, 0.3), `pushNotification` (protobuf, 0.3)",
        "`taskPushNotificationConfig`",
        renamed("taskPushNotificationConfig", "pushNotificationConfig", "pushNotification"),
    ),
    Quirk(
        "config.create",
        (TaskPushNotificationConfig,),
        "`{parent, configId, config: {...}}` (protobuf, 0.3)",
        "the webhook in `config`",
        requests.config_request,
    ),
    Quirk(
        "request.name",
        (*_OF_TASK, *_OF_CONFIG, TaskPushNotificationConfig),
        "`name`, `parent`: `tasks/{id}`, `tasks/{id}/pushNotificationConfigs/{id}` (protobuf, 0.3)",
        "the ids in it",
        requests.resource,
    ),
    Quirk("request.taskId", _OF_TASK, "`taskId`", "`id`", renamed("id", "taskId")),
    Quirk("config.task", _OF_CONFIG, "`id` for the task's (0.1 to 0.3)", "`taskId`", id_of_task),
    Quirk(
        "config.id",
        _OF_CONFIG,
        "`pushNotificationConfigId` (0.2, 0.3)",
        "`id`",
        renamed("id", "pushNotificationConfigId"),
    ),
    Quirk(
        "config.any",
        (GetTaskPushNotificationConfigRequest,),
        "a webhook asked for by its task alone (0.1 to 0.3)",
        '`id` is `""`',
        requests.any_config,
    ),
    Quirk(
        "config.nested",
        (TaskPushNotificationConfig,),
        "`{taskId, pushNotificationConfig: {...}}` (0.2, 0.3), `{id, pushNotificationConfig: {...}}` (0.1)",
        "one object",
        requests.nested_config,
    ),
    Quirk(
        "config.schemes",
        (TaskPushNotificationConfig,),
        "`schemes` of its authentication, a list (0.1 to 0.3)",
        "`scheme`: the first; of none, `Bearer` if there are credentials, else no authentication",
        requests.schemes,
    ),
    # lists
    Quirk("list.bare", (ListTasksResponse, ListTaskPushNotificationConfigsResponse), "a list, bare", "a page"),
    Quirk("list.tasks", (ListTasksResponse,), "a page without `tasks`", "`[]`", no_list("tasks")),
    Quirk(
        "list.counts",
        (ListTasksResponse,),
        "a page without its counts or token",
        'what is there; `""`',
        requests.counts,
    ),
)
"""All that is read beside the canonical form, in the order in which the rows of one type are tried."""
