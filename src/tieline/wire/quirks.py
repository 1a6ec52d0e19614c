"""Values of 1.0 out of JSON in whatever shape peers of any version are known to write them. Pure.

QUIRKS is all of it: one row for each habit, with the function that reads it. `read` brings JSON to the canonical form
by these rows, from the outside in, and then makes the values of it as types.py does. It is the slow way: a dialect
tries its own typed decoder first.

A row acts only where the field of 1.0 is missing or is not one that 1.0 allows, so what is valid in 1.0 is never read
as something else. What stands in `data` and `metadata` is the peer's own and is left alone.

Requests and results differ: a result that lacks a list or an id is still of use, a request that does is refused, as its
sender can be told.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeVar, Union, get_args, get_origin

import msgspec

from tieline.errors import InvalidParams
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
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SendMessageResponse,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    Value,
    _has_long_number,
    _protojson,
    own_copy,
    violation,
)

__all__ = ["QUIRKS", "Quirk", "read"]

T = TypeVar("T")

FILENAME, MEDIA_TYPE = "tieline/filename", "tieline/mediaType"
"""Metadata of a part whose older form has no field for them."""


class _Object(dict[str, Any]):
    """A JSON object on its way to the canonical form of `type_`, and what its members were called when it came."""

    __slots__ = ("at", "doc", "given", "refused", "root", "tag", "type_")

    def __init__(self, value: dict[str, Any], type_: type[Any], doc: _Document, *, root: bool = False) -> None:
        super().__init__(value)
        self.type_: Any = type_
        self.doc = doc
        self.root = root  # the whole document, or what was wrapped in it
        self.at = ""  # where it stood inside of what stands here in the canonical form
        self.given: dict[str, str] = {}  # canonical name: path as given; "^" in front: beside this object, not in it
        self.tag: str | None = None  # what `kind` or `type` said
        self.refused: tuple[str, str] | None = None  # the member for which nothing can be made of it, and why

    def move(self, old: str, new: str) -> None:
        self[new] = self.pop(old)
        self.given[new] = self.given.pop(old, old)

    def lift(self, name: str) -> None:
        """Put the members of an inner object here, where there is none of that name."""
        for inner, item in self.pop(name).items():
            if inner not in self:
                self[inner] = item
                self.given[inner] = f"{name}.{inner}"

    def within(self, name: str) -> _Object:
        """The inner object in place of this one."""
        inner = _Object(self[name], self.type_, self.doc, root=self.root)
        inner.at = f"{self.at}.{name}" if self.at else name
        return inner

    def inner(self, name: str, type_: type[Any]) -> _Object | None:
        """A member that is an object, as one of `type_`."""
        item = self.get(name)
        if type(item) is dict:
            item = self[name] = _Object(item, type_, self.doc)
        return item if isinstance(item, _Object) else None


class _Document:
    """What is known of all of a document: who wrote it, as far as its shape tells."""

    __slots__ = ("first", "protobuf", "request")

    def __init__(self, *, request: bool, protobuf: bool) -> None:
        self.request = request
        self.protobuf = protobuf  # it is protobuf's JSON of 0.3
        self.first = False  # it is a request of 0.1


Step = Callable[[_Object], _Object]


class Quirk(msgspec.Struct, frozen=True):
    """One habit of peers. `step` reads it in objects of `where`; None: types.py does, or it is an unknown field."""

    name: str
    where: tuple[type[Any], ...]
    written: str
    read_as: str
    step: Step | None = None


# --- what the rows do -------------------------------------------------------------------------------------------------


def _renamed(new: str, *olds: str, of: type | tuple[type, ...] = object) -> Step:
    """A member under another name, if its value is an `of`."""

    def step(value: _Object) -> _Object:
        for old in olds:
            if new not in value and isinstance(value.get(old), of) and old in value:
                value.move(old, new)
        return value

    return step


def _result(value: _Object) -> _Object:
    wrapped = value.root and not value.doc.request and isinstance(value.get("result"), dict)
    return value.within("result") if wrapped and ("jsonrpc" in value or len(value) == 1) else value


def _member(value: _Object) -> _Object:
    """A task or message where only it is wanted, in the wrapper of an answer."""
    names, own = (("task",), ("id", "status")) if value.type_ is Task else (("message", "msg"), ("parts", "content"))
    for name in names:
        if value.root and isinstance(value.get(name), dict) and not any(known in value for known in own):
            return value.within(name)
    return value


_KINDS: Final = {
    "task": "task",
    "message": "message",
    "statusupdate": "statusUpdate",
    "artifactupdate": "artifactUpdate",
}


def _bare(value: _Object) -> _Object:
    if any(isinstance(value.get(name), dict) for name in _KINDS.values()):
        return value
    tag = value.get("kind", value.get("type"))
    name = _KINDS.get(_letters(tag).lower()) if isinstance(tag, str) else None
    name = name or _shape(value)
    if name is None:
        return value
    outer = _Object({name: dict(value)}, value.type_, value.doc)
    outer.at, outer.given[name] = value.at, ""
    return outer


def _shape(value: _Object) -> str | None:
    """Which event an object without a wrapper and a `kind` is."""
    if isinstance(value.get("artifact"), dict):
        return "artifactUpdate"
    if "status" in value and ("id" in value or "taskId" in value):
        if "id" not in value or "final" in value:
            return "statusUpdate"
        whole = any(name in value for name in ("contextId", "sessionId", "artifacts", "history"))
        return "task" if whole or value.type_ is SendMessageResponse else "statusUpdate"
    if "role" in value or isinstance(value.get("parts"), list):
        return "message"
    return None


_NAME: Final = re.compile(r"tasks/(.+?)(?:/pushNotificationConfigs(?:/(.*))?)?$", re.DOTALL).match


def _resource(value: _Object) -> _Object:
    """`name` or `parent`, a path of ids: that of the task and that of the webhook."""
    task_id = "taskId" if "task_id" in value.type_.__struct_fields__ else "id"
    for name in ("name", "parent"):
        path = value.get(name)
        match = _NAME(path) if isinstance(path, str) else None
        if match:
            for id_, found in ((task_id, match.group(1)), ("id", match.group(2))):
                if found and id_ not in value:
                    value[id_] = found
                    value.given[id_] = name
    return value


def _id_of_task(value: _Object) -> _Object:
    """0.1 to 0.3: `id` is the task's where 1.0 says `taskId`."""
    if "taskId" not in value and "id" in value:
        value.move("id", "taskId")
    return value


def _any_config(value: _Object) -> _Object:
    if value.type_ is GetTaskPushNotificationConfigRequest and "taskId" in value:
        value.setdefault("id", "")
    return value


def _config_request(value: _Object) -> _Object:
    if "url" not in value and isinstance(value.get("config"), dict):
        if "configId" in value and "id" not in value:
            value.move("configId", "id")
        value.lift("config")
    return value


def _nested_config(value: _Object) -> _Object:
    name = "pushNotificationConfig"
    if "url" not in value and isinstance(value.get(name), dict):
        _id_of_task(value)
        value.lift(name)
    return value


def _schemes(value: _Object) -> _Object:
    how = value.get("authentication")
    if isinstance(how, dict) and "scheme" not in how and isinstance(how.get("schemes"), list):
        schemes = how["schemes"]
        if schemes:
            inner = value["authentication"] = _Object(how, dict, value.doc)
            inner["scheme"] = schemes[0]
            inner.given["scheme"] = "schemes[0]"
        elif how.get("credentials"):
            how["scheme"] = "Bearer"
        else:
            del value["authentication"]
    return value


def _blocking(value: _Object) -> _Object:
    if "returnImmediately" not in value and isinstance(value.get("blocking"), bool):
        value["returnImmediately"] = not value.pop("blocking")
        value.given["returnImmediately"] = "blocking"
    return value


def _first_ids(value: _Object) -> _Object:
    """0.1: the caller names the task and the session beside the message."""
    message = value.inner("message", Message)
    if message is not None:
        value.doc.first = "messageId" not in message and ("id" in value or "sessionId" in value)
        for name, id_ in (("id", "taskId"), ("sessionId", "contextId")):
            if name in value and not message.get(id_):
                message[id_] = value.pop(name)
                message.given[id_] = f"^{name}"
    return value


def _first_configuration(value: _Object) -> _Object:
    moved = [
        name for name in ("acceptedOutputModes", "historyLength", "pushNotification", "pushNotificationConfig")
        if name in value
    ]  # fmt: skip
    if moved and isinstance(value.setdefault("configuration", {}), dict):
        configuration = value.inner("configuration", SendMessageConfiguration)
        assert configuration is not None
        for name in moved:
            if name not in configuration:
                configuration[name] = value.pop(name)
                configuration.given[name] = f"^{name}"
    return value


def _letters(text: str) -> str:
    return re.sub(r"[^A-Z]", "", text.upper()) if text.isascii() else ""


_STATES: Final = {
    _letters(state.removeprefix(prefix)): state.value for prefix in ("", "TASK_STATE_") for state in TaskState
}


def _state(value: _Object) -> _Object:
    name = "status" if value.type_ is ListTasksRequest else "state"
    word = value.get(name)
    if isinstance(word, str):
        value[name] = _STATES.get(_letters(word), word)
    return value


def _cancelled(value: _Object) -> _Object:
    name = "status" if value.type_ is ListTasksRequest else "state"
    word = value.get(name)
    if isinstance(word, str) and _letters(word).removeprefix("TASKSTATE") == "CANCELLED":
        value[name] = TaskState.CANCELED.value
    return value


def _unknown(value: _Object) -> _Object:
    name = "status" if value.type_ is ListTasksRequest else "state"
    word = value.get(name)
    if isinstance(word, str) and _letters(word).removeprefix("TASKSTATE") == "UNKNOWN":
        value[name] = TaskState.UNSPECIFIED.value
    return value


def _any_state(value: _Object) -> _Object:
    if value.get("status") == "":
        del value["status"]
    return value


_ROLES: Final = {_letters(role): role.value for role in Role} | {"USER": Role.USER.value, "AGENT": Role.AGENT.value}


def _role(value: _Object) -> _Object:
    role = value.get("role")
    if isinstance(role, str):
        value["role"] = _ROLES.get(_letters(role), role)
    return value


def _word_of_agent(value: _Object) -> _Object:
    message = value.inner("message", Message)
    if message is not None and "role" not in message:
        message["role"] = Role.AGENT.value
    return value


def _string_message(value: _Object) -> _Object:
    text = value.get("message")
    if isinstance(text, str):
        if not text:
            del value["message"]
            return value
        message = value["message"] = _Object({"messageId": "", "role": Role.AGENT.value}, Message, value.doc)
        message["parts"] = [{"text": text}]
    return value


def _string_status(value: _Object) -> _Object:
    if isinstance(value.get("status"), str):
        status = value["status"] = _Object({"state": value["status"]}, TaskStatus, value.doc)
        status.given["state"] = ""
    return value


_UNZONED: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?", re.ASCII).fullmatch


def _zone(value: _Object) -> _Object:
    moment = value.get("timestamp")
    if isinstance(moment, str) and _UNZONED(moment):
        value["timestamp"] = f"{moment}Z"
    return value


def _no_message_id(value: _Object) -> _Object:
    if not value.doc.request or value.doc.first:
        value.setdefault("messageId", "")
    return value


def _no_list(name: str) -> Step:
    def step(value: _Object) -> _Object:
        if not value.doc.request and name not in value and "content" not in value:
            value[name] = []
        return value

    return step


def _counts(value: _Object) -> _Object:
    count = len(value["tasks"]) if isinstance(value.get("tasks"), list) else 0
    for name, default in (("nextPageToken", ""), ("pageSize", count), ("totalSize", count)):
        value.setdefault(name, default)
    return value


def _no_context(value: _Object) -> _Object:
    value.setdefault("contextId", "")
    return value


def _index(artifact: dict[str, Any]) -> int:
    index = artifact.get("index")
    return index if type(index) is int else 0


def _artifact_ids(value: _Object) -> _Object:
    """The artifacts of a task get the ids that their events have; where these are not told apart, by their place."""
    artifacts = value.get("artifacts")
    if isinstance(artifacts, list):
        unnamed = [artifact for artifact in artifacts if isinstance(artifact, dict) and "artifactId" not in artifact]
        indexes = [_index(artifact) for artifact in unnamed]
        if len(set(indexes)) < len(indexes):  # nobody has counted them
            indexes = list(range(len(indexes)))
        for artifact, index in zip(unnamed, indexes, strict=True):
            artifact["artifactId"] = f"artifact-{index}"
    return value


def _artifact_id(value: _Object) -> _Object:
    value.setdefault("artifactId", f"artifact-{_index(value)}")
    return value


def _chunk(value: _Object) -> _Object:
    artifact = value.inner("artifact", Artifact)
    if artifact is not None:
        if type(value.get("index")) is int:
            artifact.setdefault("index", value["index"])
        for name in ("append", "lastChunk"):
            if name not in value and name in artifact:
                value[name] = artifact.pop(name)
                value.given[name] = f"artifact.{name}"
    return value


def _file_name(value: _Object) -> _Object:
    if "filename" not in value and "name" in value and ("raw" in value or "url" in value):
        value.move("name", "filename")
    return value


_CONTENTS: Final = ("text", "raw", "url", "data")


def _empty(value: _Object) -> bool:
    return not any(name in value for name in _CONTENTS)


def _root(value: _Object) -> _Object:
    return value.within("root") if _empty(value) and isinstance(value.get("root"), dict) else value


def _tag(value: _Object) -> _Object:
    """Taken note of: a part that says what it is, is none of protobuf's."""
    for name in ("type", "kind"):
        if isinstance(value.get(name), str):
            value.tag = value[name]
            if value.doc.request and value.tag.lower() not in ("text", "file", "data", "raw", "url"):
                value.refused = (name, f"is {value.tag!r}, must be text, file or data")
                for content in (*_CONTENTS, "file"):
                    value.pop(content, None)
    return value


def _file(value: _Object) -> _Object:
    if _empty(value) and isinstance(value.get("file"), dict):
        value.lift("file")
    return value


def _bytes_or_uri(value: _Object) -> _Object:
    if not _empty(value):
        return value
    for new, olds in (("raw", ("bytes", "fileWithBytes")), ("url", ("uri", "fileWithUri"))):
        for old in olds:
            if old in value and new not in value:
                value.move(old, new)
    value.update(_protojson({"raw": value["raw"]}) if "raw" in value else {})  # its base64, as types.py has it
    return value


def _one_content(value: _Object) -> _Object:
    """Of text, raw and url, empty ones beside another are those that a writer did not leave out."""
    there = [name for name in _CONTENTS if name in value]
    if len(there) > 1 and "data" in value and value["data"] is None:
        del value["data"]
        there.remove("data")
    for name in there:
        if len(there) > 1 and name != "data" and value[name] == "" and any(value[other] != "" for other in there):
            del value[name]
            there = [other for other in there if other != name]
    return value


def _old(value: _Object) -> bool:
    return value.tag is not None or value.doc.protobuf


def _data_part(value: _Object) -> _Object:
    data = value.get("data")
    if value.doc.protobuf and value.tag is None and type(data) is dict and len(data) == 1 and "data" in data:
        value["data"] = data["data"]
    return value


def _compat(value: _Object) -> _Object:
    metadata, data = value.get("metadata"), value.get("data")
    if type(metadata) is not dict or type(data) is not dict:
        return value
    if _old(value) and metadata.get("data_part_compat") is True and len(data) == 1 and "value" in data:
        value["data"] = data["value"]
        _without(value, metadata, "data_part_compat")
    return value


def _own_metadata(value: _Object) -> _Object:
    metadata = value.get("metadata")
    if _old(value) and type(metadata) is dict:
        for key, name in ((FILENAME, "filename"), (MEDIA_TYPE, "mediaType")):
            if isinstance(metadata.get(key), str):
                value.setdefault(name, metadata[key])
                _without(value, metadata, key)
    return value


def _without(value: _Object, metadata: dict[str, Any], key: str) -> None:
    del metadata[key]
    if not metadata:
        value.pop("metadata", None)


@lru_cache
def _optional_strings(type_: type[Any]) -> tuple[str, ...]:
    fields = msgspec.structs.fields(type_)
    names = tuple(field.encode_name for field in fields if field.type == Union[str, None])  # noqa: UP007
    return tuple(name for name in names if type_ is not Part or name not in _CONTENTS)


def _no_empty(value: _Object) -> _Object:
    for name in _optional_strings(value.type_):
        if value.get(name) == "":
            del value[name]
    return value


# --- the table --------------------------------------------------------------------------------------------------------

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
    Quirk("result", (Value,), '`{"result": {...}}` inside a result', "what is in it", _result),
    Quirk("empty", (Value,), '`""` in an optional string: `contextId`, `taskId`, `name`, ...', "absent", _no_empty),
    Quirk("integers", (Value,), '`"10"`, `10.0` as a count: `historyLength`, `pageSize`', "the integer"),
    # answers and events
    Quirk(
        "msg",
        (StreamResponse, SendMessageResponse),
        '`{"msg": {...}}` (protobuf, 0.3)',
        "`message`",
        _renamed("message", "msg", of=dict),
    ),
    Quirk(
        "bare",
        (StreamResponse, SendMessageResponse),
        "an answer or event without its wrapper, with `kind` (0.2, 0.3), `type` or neither (0.1)",
        "by its tag, else by its members; in a stream `{id, status}` and no more is a status",
        _bare,
    ),
    Quirk(
        "wrapped",
        (Task, Message),
        '`{"task": {...}}`, `{"message": {...}}` where only the task or message is wanted',
        "what is in it",
        _member,
    ),
    Quirk("event.taskId", _EVENTS, "`id` of an event (0.1)", "`taskId`", _id_of_task),
    Quirk(
        "sessionId", (Task, Message, *_EVENTS), "`sessionId` (0.1)", "`contextId`", _renamed("contextId", "sessionId")
    ),
    Quirk("event.contextId", _EVENTS, "an event without `contextId` (0.1)", '`""`', _no_context),
    Quirk(
        "event.chunk",
        (TaskArtifactUpdateEvent,),
        "`append`, `lastChunk` in the artifact, `index` beside it (0.1)",
        "those of the event",
        _chunk,
    ),
    # tasks
    Quirk("task.id", (Task,), "`taskId` of a task", "`id`", _renamed("id", "taskId", of=str)),
    Quirk("status.string", (Task, *_EVENTS), '`"status": "working"`', "its state", _string_status),
    Quirk(
        "artifacts.ids",
        (Task,),
        "several artifacts without `artifactId` (0.1)",
        "`artifact-{index}`; where two would have one, by their places in the list",
        _artifact_ids,
    ),
    Quirk(
        "artifact.id",
        (Artifact,),
        "an artifact without `artifactId` (0.1)",
        "`artifact-{index}`, without an index `artifact-0`",
        _artifact_id,
    ),
    Quirk("artifact.parts", (Artifact,), "a result's artifact without `parts`", "`[]`", _no_list("parts")),
    Quirk(
        "status.update", (TaskStatus,), "`update` (protobuf, 0.3)", "`message`", _renamed("message", "update", of=dict)
    ),
    Quirk(
        "status.text",
        (TaskStatus,),
        '`"message": "words"` in a status',
        "a message of the agent with one text",
        _string_message,
    ),
    Quirk("status.zone", (TaskStatus,), "a `timestamp` without a zone", "in UTC", _zone),
    Quirk("status.role", (TaskStatus,), "a status message without `role`", "`ROLE_AGENT`", _word_of_agent),
    Quirk(
        "state.words",
        _STATED,
        "`working`, `Working`, `input-required`, `input_required`, `inputRequired`, `INPUT-REQUIRED`",
        "`TASK_STATE_...`",
        _state,
    ),
    Quirk("state.cancelled", _STATED, "`cancelled`, `TASK_STATE_CANCELLED`", "`TASK_STATE_CANCELED`", _cancelled),
    Quirk("state.unknown", _STATED, "`unknown` (0.1 to 0.3)", "`TASK_STATE_UNSPECIFIED`", _unknown),
    Quirk("state.any", (ListTasksRequest,), '`"status": ""` in a list request', "absent: any state", _any_state),
    Quirk("enum.numbers", (Value,), "the number of a state or role in protobuf", "its name"),
    # messages
    Quirk("message.content", (Message,), "`content` (protobuf, 0.3)", "`parts`", _renamed("parts", "content", of=list)),
    Quirk("message.parts", (Message,), "a result's message without `parts`", "`[]`", _no_list("parts")),
    Quirk(
        "message.id",
        (Message,),
        "a message without `messageId`, in a result or a request of 0.1",
        '`""`',
        _no_message_id,
    ),
    Quirk("role.words", (Message,), "`user`, `agent`, `USER`, `Agent`", "`ROLE_USER`, `ROLE_AGENT`", _role),
    # parts
    Quirk("part.root", (Part,), '`{"root": {...}}` around a part', "what is in it", _root),
    Quirk(
        "part.tag",
        (Part,),
        "`kind` (0.2, 0.3), `type` (0.1) or neither",
        "by what the part holds; a tag that is none of text, file and data is refused in a request",
        _tag,
    ),
    Quirk(
        "part.file",
        (Part,),
        "`file: {bytes|uri, mimeType, name}` (0.1 to 0.3), `file: {fileWithBytes|fileWithUri, ...}` (protobuf, 0.3)",
        "`raw` or `url`, `mediaType`, `filename`",
        _file,
    ),
    Quirk("part.bytes", (Part,), "`bytes`, `fileWithBytes`; `uri`, `fileWithUri`", "`raw`; `url`", _bytes_or_uri),
    Quirk("part.base64", (Part,), "base64 in the URL alphabet, or without padding", "the bytes"),
    Quirk("part.mimeType", (Part,), "`mimeType`", "`mediaType`", _renamed("mediaType", "mimeType")),
    Quirk("part.name", (Part,), "`name` of a file", "`filename`", _file_name),
    Quirk("part.empty", (Part,), '`""` or `"data": null` beside the content that is there', "absent", _one_content),
    Quirk(
        "part.data",
        (Part,),
        '`{"data": {"data": {...}}}` in a document that is protobuf\'s JSON of 0.3, and no other',
        "the inner `data`",
        _data_part,
    ),
    Quirk(
        "part.value",
        (Part,),
        '`{"value": x}` with `data_part_compat: true` in the metadata of a part with a tag: data that is no object',
        "`x`",
        _compat,
    ),
    Quirk(
        "part.metadata",
        (Part,),
        f"`{FILENAME}`, `{MEDIA_TYPE}` in the metadata of a part with a tag",
        "`filename`, `mediaType`",
        _own_metadata,
    ),
    # requests
    Quirk(
        "send.request",
        (SendMessageRequest,),
        "`request` (protobuf, 0.3)",
        "`message`",
        _renamed("message", "request", of=dict),
    ),
    Quirk(
        "send.ids",
        (SendMessageRequest,),
        "`id` and `sessionId` beside the message (0.1)",
        "`taskId` and `contextId` of the message",
        _first_ids,
    ),
    Quirk(
        "send.configuration",
        (SendMessageRequest,),
        "`acceptedOutputModes`, `historyLength`, `pushNotification` beside the message (0.1)",
        "those of `configuration`",
        _first_configuration,
    ),
    Quirk(
        "configuration.blocking",
        (SendMessageConfiguration,),
        "`blocking` (0.2, 0.3)",
        "`returnImmediately`, the other way round",
        _blocking,
    ),
    Quirk(
        "configuration.push",
        (SendMessageConfiguration,),
        "`pushNotificationConfig` (0.2, 0.3), `pushNotification` (protobuf, 0.3)",
        "`taskPushNotificationConfig`",
        _renamed("taskPushNotificationConfig", "pushNotificationConfig", "pushNotification"),
    ),
    Quirk(
        "config.create",
        (TaskPushNotificationConfig,),
        "`{parent, configId, config: {...}}` (protobuf, 0.3)",
        "the webhook in `config`",
        _config_request,
    ),
    Quirk(
        "request.name",
        (*_OF_TASK, *_OF_CONFIG, TaskPushNotificationConfig),
        "`name`, `parent`: `tasks/{id}`, `tasks/{id}/pushNotificationConfigs/{id}` (protobuf, 0.3)",
        "the ids in it",
        _resource,
    ),
    Quirk("request.taskId", _OF_TASK, "`taskId`", "`id`", _renamed("id", "taskId")),
    Quirk("config.task", _OF_CONFIG, "`id` for the task's (0.1 to 0.3)", "`taskId`", _id_of_task),
    Quirk(
        "config.id",
        _OF_CONFIG,
        "`pushNotificationConfigId` (0.2, 0.3)",
        "`id`",
        _renamed("id", "pushNotificationConfigId"),
    ),
    Quirk(
        "config.any",
        (GetTaskPushNotificationConfigRequest,),
        "a webhook asked for by its task alone (0.1 to 0.3)",
        '`id` is `""`',
        _any_config,
    ),
    Quirk(
        "config.nested",
        (TaskPushNotificationConfig,),
        "`{taskId, pushNotificationConfig: {...}}` (0.2, 0.3), `{id, pushNotificationConfig: {...}}` (0.1)",
        "one object",
        _nested_config,
    ),
    Quirk(
        "config.schemes",
        (TaskPushNotificationConfig,),
        "`schemes` of its authentication, a list (0.1 to 0.3)",
        "`scheme`: the first; of none, `Bearer` if there are credentials, else no authentication",
        _schemes,
    ),
    # lists
    Quirk("list.bare", (ListTasksResponse, ListTaskPushNotificationConfigsResponse), "a list, bare", "a page"),
    Quirk("list.tasks", (ListTasksResponse,), "a page without `tasks`", "`[]`", _no_list("tasks")),
    Quirk("list.counts", (ListTasksResponse,), "a page without its counts or token", 'what is there; `""`', _counts),
)
"""All that is read beside the canonical form, in the order in which the rows of one type are tried."""

_LISTS: Final[dict[type[Any], str]] = {ListTasksResponse: "tasks", ListTaskPushNotificationConfigsResponse: "configs"}


# --- reading ----------------------------------------------------------------------------------------------------------


def read(data: bytes | msgspec.Raw, type_: type[T], *, root: str = "", protobuf: bool = False) -> T:
    """A value of 1.0 out of JSON in whatever shape peers of any version are known to write it.

    `protobuf`: the document is known to be protobuf's JSON of 0.3 (REST of that version); else its shape tells.

    Raises:
        InvalidParams: with the path of the bad field behind `root`, in the names as they were given.
        msgspec.DecodeError: `data` is not JSON.
    """
    try:
        value = _protojson(msgspec.json.decode(data))
    except msgspec.ValidationError as error:  # a number out of range
        raise violation(error, root) from None
    except RecursionError:
        raise InvalidParams.at(root or "params", "nests too deeply") from None
    doc = _Document(request=type_ is SendMessageRequest, protobuf=protobuf or _is_protobuf(value))
    if type(value) is list and (name := _LISTS.get(type_)):
        value = _Object({name: value}, type_, doc)
        value.given[name] = ""
    value = _normal(value, type_, doc, root=True)
    try:
        made = msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        raise _as_given(violation(error), value, root) from None
    return own_copy(made) if _has_long_number(data) else made


@lru_cache
def _steps(type_: type[Any]) -> tuple[Step, ...]:
    return tuple(
        quirk.step for quirk in QUIRKS if quirk.step and any(issubclass(type_, where) for where in quirk.where)
    )


@lru_cache
def _inner(type_: type[Any]) -> tuple[tuple[str, type[Any], bool], ...]:
    """The fields that hold values: name on the wire, type, and whether it is a list of them."""
    found = []
    for field in msgspec.structs.fields(type_):
        for option in get_args(field.type) if get_origin(field.type) is not tuple else (field.type,):
            many = get_origin(option) is tuple
            option = get_args(option)[0] if many else option
            if isinstance(option, type) and issubclass(option, Value):
                found.append((field.encode_name, option, many))
        if isinstance(field.type, type) and issubclass(field.type, Value):
            found.append((field.encode_name, field.type, False))
    return tuple(found)


def _normal(value: Any, type_: type[Any], doc: _Document, *, root: bool = False) -> Any:
    """JSON in the canonical form of `type_`, as far as the table knows how."""
    if not isinstance(value, dict) or not issubclass(type_, Value):
        return value
    if not isinstance(value, _Object):
        value = _Object(value, type_, doc, root=root)
    value.type_ = type_
    for step in _steps(type_):
        value = step(value)
    for name, inner, many in _inner(type_):
        item = value.get(name)
        if many and isinstance(item, list):
            value[name] = [_normal(one, inner, doc) for one in item]
        elif item is not None and not many:
            value[name] = _normal(item, inner, doc)
    return value


_FREE: Final = frozenset(("data", "metadata"))


def _is_protobuf(value: Any) -> bool:
    """Whether a document has a name that only protobuf's JSON of 0.3 has."""
    if isinstance(value, list):
        return any(map(_is_protobuf, value))
    if not isinstance(value, dict):
        return False
    if isinstance(value.get("content"), list) and "role" in value and "parts" not in value and "kind" not in value:
        return True
    return any(_is_protobuf(item) for name, item in value.items() if name not in _FREE)


_SEGMENT: Final = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


def _as_given(error: InvalidParams, value: Any, root: str) -> InvalidParams:
    """The error with the path of the field as the document has it."""
    (bad,) = error.violations
    path = value.at if isinstance(value, _Object) else ""
    for index, name in _SEGMENT.findall("" if bad.field == "params" else bad.field):
        if index:
            value = value[int(index)] if isinstance(value, list) and int(index) < len(value) else None
            path += f"[{index}]"
        else:
            given = value.given.get(name, name) if isinstance(value, _Object) else name
            value = value.get(name) if isinstance(value, dict) else None
            if given.startswith("^"):
                path, given = path.rpartition(".")[0], given[1:]
            path = _joined(path, given)
        if isinstance(value, _Object):
            path = _joined(path, value.at)
    description = bad.description
    if isinstance(value, _Object) and value.refused:
        name, description = value.refused
        path = _joined(path, name)
    return InvalidParams.at(_joined(root, path) or "params", description)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path and name and not name.startswith("[") else path + name
