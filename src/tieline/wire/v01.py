"""A2A 0.1, and 0.2.0, which spoke the same: `tasks/send`. Pure, but for ids made where this dialect has none.

Callers name their tasks, parts say `type`, messages and artifacts have no id of their own. What 1.0 has and 0.1 has no
field for stands in the metadata of the object that it belongs to, under "tieline/<name>", and is taken out again on
reading. Only what a reader would not assume anyway is said:

    message      messageId, extensions, referenceTaskIds, role (unspecified); contextId and taskId when they are not
                 those of the task that it stands in
    artifact     artifactId, when it is neither its name, which no artifact before it has, nor "artifact-<index>"; in a
                 stream behind the first frame of an artifact its index is enough; extensions
    part         filename and mediaType of text and data; data that is no object is {"value": data}, and
                 "data_part_compat": true (without the prefix: others write it too)
    task, event  state: "rejected" is written as failed, "auth-required" as input-required
    event        contextId, when it is not the last one told; task: what a frame cannot say of the task that begins a
                 stream, {"sessionId", "history"}
    answer       answer: "message", when a message came of it and no task
    params       returnImmediately

A caller's own name that looks like one of these gets the prefix once more. An id that was made for a message that came
without one begins with "0.1/" and is not said: no speaker of 0.1 knows it. "tieline/dialect" is not said either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from tieline.errors import A2AError, InvalidParams, InvalidPeerResponse, TaskEnded, UnsupportedOperation
from tieline.event import Event, TextChunk
from tieline.ids import new_id
from tieline.types import (
    Artifact,
    AuthenticationInfo,
    CancelTaskRequest,
    Encoded,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksResponse,
    Message,
    Metadata,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SendMessageResponse,
    StreamEvent,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    Value,
    decode,
    encode,
)
from tieline.wire import lenient
from tieline.wire.dialect import EventEncoder, Json
from tieline.wire.methods import METHODS, Method
from tieline.wire.v1 import decode_result

__all__ = ["V01"]

T = TypeVar("T")

_OWN: Final = "tieline/"
_COMPAT: Final = "data_part_compat"
_DIALECT: Final = _OWN + "dialect"
_MADE: Final = "0.1/"
"""How an id begins that was made for a message that came without one."""

_MESSAGE: Final = "message"

_NAMES: Final = frozenset(
    (
        *("messageId", "contextId", "taskId", "role", "extensions", "referenceTaskIds", "artifactId"),
        *("filename", "mediaType", "state", "task", "answer", "returnImmediately", "empty"),
    )
)

_STATES: Final[dict[TaskState, str]] = {
    TaskState.UNSPECIFIED: "unknown",
    TaskState.SUBMITTED: "submitted",
    TaskState.WORKING: "working",
    TaskState.INPUT_REQUIRED: "input-required",
    TaskState.COMPLETED: "completed",
    TaskState.CANCELED: "canceled",
    TaskState.FAILED: "failed",
}
_READ: Final = {name: state for state, name in _STATES.items()}
_EXACT: Final = {TaskState.REJECTED: "rejected", TaskState.AUTH_REQUIRED: "auth-required"}
_NEAREST: Final = {TaskState.REJECTED: TaskState.FAILED, TaskState.AUTH_REQUIRED: TaskState.INPUT_REQUIRED}

_ZONE: Final = re.compile(r"(?:[Zz]|[+-]\d\d:?\d\d)$").search


# --- the shapes of 0.1 ------------------------------------------------------------------------------------------------


class _Shape(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """An object of 0.1. Members are in the order in which they are written."""


class _TextPart(_Shape, frozen=True, gc=False, tag_field="type", tag="text"):
    text: str
    metadata: Metadata | None = None


class _FileContent(_Shape, frozen=True, gc=False):
    name: str | None = None
    mime_type: str | None = None
    raw: bytes | None = msgspec.field(default=None, name="bytes")
    uri: str | None = None


class _FilePart(_Shape, frozen=True, gc=False, tag_field="type", tag="file"):
    file: _FileContent
    metadata: Metadata | None = None


class _DataPart(_Shape, frozen=True, gc=False, tag_field="type", tag="data"):
    data: Any
    metadata: Metadata | None = None


_Part = _TextPart | _FilePart | _DataPart


class _Message(_Shape, frozen=True, gc=False):
    role: str
    parts: tuple[_Part, ...]
    metadata: Metadata | None = None


class _Status(_Shape, frozen=True, gc=False):
    state: str
    message: _Message | None = None
    timestamp: str | None = None


class _Artifact(_Shape, frozen=True, gc=False):
    parts: tuple[_Part, ...]
    name: str | None = None
    description: str | None = None
    index: int | None = None  # None is 0
    append: bool | None = None
    last_chunk: bool | None = None
    metadata: Metadata | None = None


class _Task(_Shape, frozen=True, gc=False):
    id: str
    status: _Status
    session_id: str | None = None
    artifacts: tuple[_Artifact, ...] = ()
    history: tuple[_Message, ...] = ()
    metadata: Metadata | None = None


class _StatusFrame(_Shape, frozen=True, gc=False, omit_defaults=False):
    id: str
    status: _Status
    final: bool
    metadata: Metadata | msgspec.UnsetType = UNSET


class _ArtifactFrame(_Shape, frozen=True, gc=False):
    id: str
    artifact: _Artifact
    metadata: Metadata | None = None


class _Frame(_Shape, frozen=True, gc=False):
    """What a stream may carry: a status, an artifact, or a whole task."""

    id: str
    status: _Status | None = None
    artifact: _Artifact | None = None
    session_id: str | None = None
    artifacts: tuple[_Artifact, ...] | None = None
    history: tuple[_Message, ...] | None = None
    metadata: Metadata | None = None


class _Remainder(_Shape, frozen=True, gc=False):
    """What a frame has no field for of the task that begins a stream."""

    session_id: str | None = None
    history: tuple[_Message, ...] = ()


class _Authentication(_Shape, frozen=True, gc=False):
    schemes: tuple[str, ...]
    credentials: str | None = None


class _PushConfig(_Shape, frozen=True, gc=False):
    url: str
    token: str | None = None
    authentication: _Authentication | None = None
    id: str | None = None  # none in 0.1: a task has one webhook, which has the id of the task


class _TaskPushConfig(_Shape, frozen=True, gc=False):
    id: str
    push_notification_config: _PushConfig


class _SendParams(_Shape, frozen=True, gc=False):
    id: str
    message: _Message
    session_id: str | None = None
    accepted_output_modes: tuple[str, ...] = ()
    push_notification: _PushConfig | None = None
    history_length: int | None = None
    metadata: Metadata | None = None


class _IdParams(_Shape, frozen=True, gc=False):
    id: str
    history_length: int | None = None
    metadata: Metadata | None = None


# --- metadata ---------------------------------------------------------------------------------------------------------


def _with(metadata: Metadata | None, ours: Metadata, *, of_part: bool = False) -> Metadata | None:
    """Metadata as it is written: the peer's own, and what 0.1 has no field for."""
    if not metadata:
        if ours and metadata is not None:
            return {**ours, "tieline/empty": True}
        return ours or metadata
    if _marked(metadata, of_part):
        metadata = {_OWN + key if key.startswith(_OWN) or key == _COMPAT else key: v for key, v in metadata.items()}
    return {**metadata, **ours} if ours else metadata


def _split(metadata: Metadata | None, *, of_part: bool = False) -> tuple[Metadata | None, Metadata]:
    """What `_with` has put together: the peer's own, and ours by name without the prefix."""
    if not metadata or not _marked(metadata, of_part):
        return metadata, {}
    own: Metadata = {}
    ours: Metadata = {}
    for key, value in metadata.items():
        name = key.removeprefix(_OWN)
        if len(name) == len(key):
            (ours if key == _COMPAT and of_part else own)[key] = value
        elif name in _NAMES:
            ours[name] = value
        else:
            own[name if name.startswith(_OWN) or name == _COMPAT else key] = value
    return (own if own or "empty" in ours else None), ours


def _marked(metadata: Metadata, of_part: bool) -> bool:
    """Whether there are names in it that may be ours, or look like it."""
    return (of_part and _COMPAT in metadata) or any(key.startswith(_OWN) for key in metadata)


def _text(ours: Metadata, name: str, other: str | None) -> str | None:
    """A text that is ours; `other` when it is not there, or nothing that we would write."""
    value = ours.get(name, other)
    return value if value is None or isinstance(value, str) else other


def _texts(ours: Metadata, name: str) -> tuple[str, ...]:
    value = ours.get(name, ())
    good = isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)
    return tuple(value) if good else ()


# --- 1.0 to 0.1 -------------------------------------------------------------------------------------------------------


def _written_part(part: Part) -> _Part:
    ours: Metadata = {}
    if part.raw is not None or part.url is not None:
        content = _FileContent(part.filename, part.media_type, part.raw, part.url)
        return _FilePart(content, _with(part.metadata, ours, of_part=True))
    if part.filename is not None:
        ours["tieline/filename"] = part.filename
    if part.media_type is not None:
        ours["tieline/mediaType"] = part.media_type
    if part.text is not None:
        return _TextPart(part.text, _with(part.metadata, ours, of_part=True))
    data = part.data
    if not isinstance(data, dict):
        data = {"value": data}
        ours[_COMPAT] = True
    return _DataPart(data, _with(part.metadata, ours, of_part=True))


def _written_parts(parts: Sequence[Part]) -> tuple[_Part, ...]:
    return tuple([_written_part(part) for part in parts])


def _written_message(message: Message, task_id: str | None, context_id: str | None) -> _Message:
    """A message that stands in a task of that id and context."""
    ours: Metadata = {}
    if not message.message_id.startswith(_MADE):
        ours["tieline/messageId"] = message.message_id
    if message.context_id != context_id:
        ours["tieline/contextId"] = message.context_id
    if message.task_id != task_id:
        ours["tieline/taskId"] = message.task_id
    if message.extensions:
        ours["tieline/extensions"] = message.extensions
    if message.reference_task_ids:
        ours["tieline/referenceTaskIds"] = message.reference_task_ids
    if message.role is Role.UNSPECIFIED:
        ours["tieline/role"] = "unspecified"
    role = "user" if message.role is Role.USER else "agent"
    return _Message(role, _written_parts(message.parts), _with(message.metadata, ours))


def _written_status(status: TaskStatus, task_id: str, context_id: str | None) -> _Status:
    message = None if status.message is None else _written_message(status.message, task_id, context_id)
    return _Status(_STATES[_NEAREST.get(status.state, status.state)], message, status.timestamp)


def _written_artifact(
    artifact: Artifact,
    index: int,
    taken: Container[str],
    *,
    known: bool = False,
    append: bool = False,
    last_chunk: bool = False,
) -> _Artifact:
    """`taken`: the ids of artifacts that were written before. `known`: that of this one goes with its index already."""
    ours: Metadata = {}
    id_ = artifact.artifact_id
    if not known and id_ != _free(taken, artifact.name, f"artifact-{index}", index):
        ours["tieline/artifactId"] = artifact.artifact_id
    if artifact.extensions:
        ours["tieline/extensions"] = artifact.extensions
    return _Artifact(
        _written_parts(artifact.parts),
        artifact.name,
        artifact.description,
        index,
        append or None,
        last_chunk or None,
        _with(artifact.metadata, ours),
    )


def _written_artifacts(artifacts: Sequence[Artifact]) -> tuple[_Artifact, ...]:
    taken: set[str] = set()
    written = []
    for index, artifact in enumerate(artifacts):
        written.append(_written_artifact(artifact, index, taken))
        taken.add(artifact.artifact_id)
    return tuple(written)


def _written_task(task: Task) -> _Task:
    context_id = task.context_id
    return _Task(
        task.id,
        _written_status(task.status, task.id, context_id),
        context_id,
        _written_artifacts(task.artifacts),
        tuple([_written_message(message, task.id, context_id) for message in task.history]),
        _with(_told(task.metadata), _exact_state(task.status)),
    )


def _told(metadata: Metadata | None) -> Metadata | None:
    """A task's metadata without our own mark of its dialect."""
    if metadata and _DIALECT in metadata:
        return {key: value for key, value in metadata.items() if key != _DIALECT} or None
    return metadata


def _exact_state(status: TaskStatus) -> Metadata:
    state = _EXACT.get(status.state)
    return {} if state is None else {"tieline/state": state}


def _answered(message: Message, context_id: str | None) -> _Task:
    """A message that is the whole answer, as the completed task that 0.1 wants."""
    task_id = message.task_id or message.message_id
    status = _Status("completed", _written_message(message, task_id, context_id))
    return _Task(task_id, status, context_id, metadata={"tieline/answer": _MESSAGE})


def _written_config(config: TaskPushNotificationConfig) -> _PushConfig:
    authentication = None
    if config.authentication is not None:
        authentication = _Authentication((config.authentication.scheme,), config.authentication.credentials)
    id_ = config.id if config.id != config.task_id else None
    return _PushConfig(config.url, config.token, authentication, id_)


class _Writer:
    """Writes the events of one stream. An artifact's index is the order of its first appearance."""

    __slots__ = ("_around", "_context_id", "_indexes")

    def __init__(self) -> None:
        self._indexes: dict[str, int] = {}
        self._context_id: str | None = None  # the last one told
        self._around: dict[tuple[str, str | None], tuple[bytes, bytes]] = {}  # chunks of a text but for the text

    def __call__(self, event: Event, ends: bool = True, /) -> Sequence[bytes]:
        if isinstance(event, TextChunk):
            return (self._chunk(event),)
        value = event.value
        if isinstance(value, TaskArtifactUpdateEvent):
            return (self._artifact(value),)
        if isinstance(value, TaskStatusUpdateEvent):
            return (self._status(value, ends),)
        if isinstance(value, Task):
            return self._task(value, ends)
        answer = _answered(value, None)
        return (encode(_StatusFrame(answer.id, answer.status, True, answer.metadata or UNSET)),)

    def _chunk(self, chunk: TextChunk) -> bytes:
        around = self._around.get((chunk.artifact_id, chunk.media_type))
        if around is not None:
            return around[0] + encode(chunk.text) + around[1]
        update = chunk.value
        assert isinstance(update, TaskArtifactUpdateEvent)
        written = self._artifact(update)
        mark = new_id()
        marked = replace(update.artifact, parts=(Part(mark, media_type=chunk.media_type),))
        before, _, behind = self._artifact(replace(update, artifact=marked)).rpartition(encode(mark))
        self._around[chunk.artifact_id, chunk.media_type] = before, behind
        return written

    def _in_context(self, context_id: str | None) -> Metadata:
        if context_id == self._context_id:
            return {}
        self._context_id = context_id
        self._around.clear()
        return {"tieline/contextId": context_id}

    def _status(self, update: TaskStatusUpdateEvent, ends: bool) -> bytes:
        ours = {**_exact_state(update.status), **self._in_context(update.context_id)}
        status = _written_status(update.status, update.task_id, update.context_id)
        metadata = _with(update.metadata, ours)
        return encode(
            _StatusFrame(update.task_id, status, _final(update.status, ends), UNSET if metadata is None else metadata)
        )

    def _artifact(self, update: TaskArtifactUpdateEvent) -> bytes:
        artifact = update.artifact
        written = self._placed(artifact, append=update.append, last_chunk=update.last_chunk)
        metadata = _with(update.metadata, self._in_context(update.context_id))
        return encode(_ArtifactFrame(update.task_id, written, metadata))

    def _placed(self, artifact: Artifact, *, append: bool = False, last_chunk: bool = False) -> _Artifact:
        indexes = self._indexes
        known = artifact.artifact_id in indexes
        index = indexes[artifact.artifact_id] if known else len(indexes)
        written = _written_artifact(artifact, index, indexes, known=known, append=append, last_chunk=last_chunk)
        indexes[artifact.artifact_id] = index
        return written

    def _task(self, task: Task, ends: bool) -> Sequence[bytes]:
        """A status and a frame for each artifact; the status last where it is the final one."""
        self._context_id = task.context_id
        self._around.clear()
        history = tuple([_written_message(message, task.id, task.context_id) for message in task.history])
        head = _with(_told(task.metadata), {"tieline/task": _Remainder(task.context_id, history)})
        frames: list[_StatusFrame | _ArtifactFrame] = [
            _ArtifactFrame(task.id, self._placed(artifact)) for artifact in task.artifacts
        ]
        final = _final(task.status, ends)
        exact_ = _exact_state(task.status) or None
        status = _StatusFrame(task.id, _written_status(task.status, task.id, task.context_id), final, exact_ or UNSET)
        frames.insert(len(frames) if final else 0, status)
        frames[0] = replace(frames[0], metadata={**(head or {}), **(frames[0].metadata or {})})
        return [encode(frame) for frame in frames]


def _final(status: TaskStatus, ends: bool) -> bool:
    """Whether whoever sent the message waits for nothing more. AUTH_REQUIRED keeps a stream open (A2A 1.0 §7.6.1)."""
    return status.state.terminal or (ends and status.state is TaskState.INPUT_REQUIRED)


# --- 0.1 to 1.0 -------------------------------------------------------------------------------------------------------


def _read_part(part: _Part, path: str) -> Part:
    if isinstance(part, _TextPart):
        if part.metadata is None:
            return Part(part.text)
        read = Part(part.text, metadata=part.metadata)
    elif isinstance(part, _DataPart):
        read = Part(data=part.data, metadata=part.metadata)
    else:
        file = part.file
        url = file.uri or None if file.raw is not None else file.uri
        raw = file.raw or None if url is not None else file.raw
        if (raw is None) == (url is None):
            raise InvalidParams.at(f"{path}.file", "wants exactly one of bytes and uri")
        read = Part(raw=raw, url=url, metadata=part.metadata, filename=file.name, media_type=file.mime_type)
    return _restored_part(read)


def _restored_part(part: Part) -> Part:
    own, ours = _split(part.metadata, of_part=True)
    if own is part.metadata:
        return part
    data = part.data
    if _COMPAT in ours:
        if ours[_COMPAT] is True and isinstance(data, dict) and data.keys() == {"value"}:
            data = data["value"]
        else:
            own = {**(own or {}), _COMPAT: ours[_COMPAT]}
    return replace(
        part,
        data=data,
        metadata=own,
        filename=_text(ours, "filename", part.filename),
        media_type=_text(ours, "mediaType", part.media_type),
    )


def _read_parts(parts: Sequence[_Part], path: str) -> tuple[Part, ...]:
    return tuple([_read_part(part, f"{path}.parts[{index}]") for index, part in enumerate(parts)])


def _read_role(role: str, path: str) -> Role:
    if role == "user":
        return Role.USER
    if role == "agent":
        return Role.AGENT
    raise InvalidParams.at(f"{path}.role", f"Invalid enum value {role!r}, must be one of user, agent")


def _read_message(
    message: _Message, task_id: str | None, context_id: str | None, path: str, message_id: str | None = None
) -> Message:
    """A message that stands in a task of that id and context; without an id, `message_id` or one made of its content.

    The same words in the same task have the same id then, wherever they are read.
    """
    role = _read_role(message.role, path)
    parts = _read_parts(message.parts, path)
    if message.metadata is None and message_id:
        return Message(message_id, role, parts, context_id, task_id)
    return _restored_message(Message(message_id or "", role, parts, context_id, task_id, message.metadata))


def _restored_message(message: Message) -> Message:
    own, ours = _split(message.metadata)
    id_ = _text(ours, "messageId", message.message_id or None)
    return Message(
        _made_id(message) if id_ is None else id_,
        Role.UNSPECIFIED if ours.get("role") == "unspecified" else message.role,
        message.parts,
        _text(ours, "contextId", message.context_id),
        _text(ours, "taskId", message.task_id),
        own,
        _texts(ours, "extensions") or message.extensions,
        _texts(ours, "referenceTaskIds") or message.reference_task_ids,
    )


def _made_id(message: Message) -> str:
    content = encode((message.task_id, message.role, message.parts))
    return _MADE + blake2b(content, digest_size=16).hexdigest()


def _read_status(status: _Status, task_id: str, context_id: str | None, ours: Metadata) -> TaskStatus:
    """`ours`: what the metadata of its task or event says."""
    state = _READ.get(status.state)
    if state is None:
        raise InvalidParams.at(
            "status.state", f"Invalid enum value {status.state!r}, must be one of {', '.join(_READ)}"
        )
    message = None
    if status.message is not None:
        message = _read_message(status.message, task_id, context_id, "status.message")
    return TaskStatus(_exact(state, ours), message, _with_zone(status.timestamp))


def _exact(state: TaskState, ours: Metadata) -> TaskState:
    """The state that was meant: 0.1 has no name for some."""
    return next(
        (meant for meant, name in _EXACT.items() if ours.get("state") == name and _NEAREST[meant] is state), state
    )


def _with_zone(timestamp: str | None) -> str | None:
    """A time without a zone is taken for UTC: servers of the time wrote such."""
    if timestamp is None or "T" not in timestamp or _ZONE(timestamp):
        return timestamp
    return timestamp + "Z"


def _read_artifact(artifact: _Artifact, id_: str, path: str) -> Artifact:
    """`id_`: what it is called when it does not say so."""
    own, ours = _split(artifact.metadata)
    called = _text(ours, "artifactId", None)
    return Artifact(
        id_ if called is None else called,
        _read_parts(artifact.parts, path),
        artifact.name,
        artifact.description,
        own,
        _texts(ours, "extensions"),
    )


def _called(artifact: _Artifact, place: int = 0) -> str:
    """What tells an artifact from the others that have no id, as quirks.py has it."""
    if artifact.index is not None:
        return f"artifact-{artifact.index}"
    return artifact.name or f"artifact-{place}"


def _free(taken: Container[str], name: str | None, called: str, place: int) -> str:
    """The id of an artifact that does not say it: its name, if no other has that, else what it is called."""
    if name and name not in taken:
        return name
    while called in taken:
        called = f"{called}-{place}"
    return called


def _read_artifacts(artifacts: Sequence[_Artifact]) -> tuple[Artifact, ...]:
    taken: set[str] = set()
    read = []
    for place, artifact in enumerate(artifacts):
        id_ = _free(taken, artifact.name, _called(artifact, place), place)
        found = _read_artifact(artifact, id_, f"artifacts[{place}]")
        taken.add(found.artifact_id)
        read.append(found)
    return tuple(read)


def _read_task(task: _Task) -> Task:
    own, ours = _split(task.metadata)
    context_id = task.session_id
    history = [_read_message(m, task.id, context_id, f"history[{place}]") for place, m in enumerate(task.history)]
    return Task(
        task.id,
        _read_status(task.status, task.id, context_id, ours),
        context_id,
        _read_artifacts(task.artifacts),
        tuple(history),
        own,
    )


def _restored_task(task: Task) -> Task:
    """A task that was read by another way, with what its metadata says of it."""
    own, ours = _split(task.metadata)
    return replace(
        task,
        status=_restored_status(task.status, ours),
        artifacts=tuple([_restored_artifact(artifact) for artifact in task.artifacts]),
        history=tuple([_restored_whole(message) for message in task.history]),
        metadata=own,
    )


def _restored_status(status: TaskStatus, ours: Metadata) -> TaskStatus:
    message = None if status.message is None else _restored_whole(status.message)
    return TaskStatus(_exact(status.state, ours), message, _with_zone(status.timestamp))


def _restored_whole(message: Message) -> Message:
    return _restored_message(replace(message, parts=tuple([_restored_part(part) for part in message.parts])))


def _restored_artifact(artifact: Artifact) -> Artifact:
    own, ours = _split(artifact.metadata)
    called = _text(ours, "artifactId", None)
    return replace(
        artifact,
        artifact_id=artifact.artifact_id if called is None else called,
        parts=tuple([_restored_part(part) for part in artifact.parts]),
        metadata=own,
        extensions=_texts(ours, "extensions") or artifact.extensions,
    )


def _read_config(config: _PushConfig, task_id: str) -> TaskPushNotificationConfig:
    """A webhook of a task. Of several schemes the first is taken; 1.0 has one."""
    authentication = None
    if config.authentication is not None and config.authentication.schemes:
        authentication = AuthenticationInfo(config.authentication.schemes[0], config.authentication.credentials)
    return TaskPushNotificationConfig(
        config.url, None, config.id or task_id, task_id, config.token or None, authentication
    )


class _Reader:
    """Reads the events of one stream. An artifact that does not say its id has that of the last one called the same."""

    __slots__ = ("_context_id", "_ids")

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}  # artifact ids by what artifacts are called without one
        self._context_id: str | None = None

    def __call__(self, data: Json) -> StreamEvent | None:
        try:
            return self._event(decode_result(data, _Frame))
        except (InvalidParams, InvalidPeerResponse):
            members = decode_result(data, dict[str, msgspec.Raw])
            if members and members.keys().isdisjoint(_TELLING):
                return None
            try:
                return self._odd_event(lenient.read_result(data, StreamResponse).event)
            except ValueError as error:
                raise InvalidPeerResponse(f"The stream event {error}.") from None

    def _event(self, frame: _Frame) -> StreamEvent:
        own, ours = _split(frame.metadata)
        status, artifact = frame.status, frame.artifact
        if status is not None and status.message is not None and ours.get("answer") == _MESSAGE:
            return _read_message(status.message, frame.id, None, "status.message")
        if status is not None and (frame.session_id, frame.artifacts, frame.history) != (None, None, None):
            return self._whole(frame, status)
        head = _remainder(ours.get("task"))
        self._context_id = _text(ours, "contextId", self._context_id) if head is None else head.session_id
        context_id = self._context_id or ""
        if artifact is not None:
            called = _called(artifact)
            id_ = self._ids.get(called)
            if id_ is None:
                id_ = _free(self._ids.values(), artifact.name, called, artifact.index or 0)
            read = _read_artifact(artifact, id_, "artifact")
            self._ids[called] = read.artifact_id
            if head is not None:
                return _begun(frame.id, TaskStatus(TaskState.WORKING), (read,), head, own)
            append, last_chunk = bool(artifact.append), bool(artifact.last_chunk)
            return TaskArtifactUpdateEvent(frame.id, context_id, read, append, last_chunk, own)
        if status is None:
            raise InvalidPeerResponse("The stream event has neither status nor artifact.")
        now = _read_status(status, frame.id, self._context_id, ours)
        if head is not None:
            return _begun(frame.id, now, (), head, own)
        return TaskStatusUpdateEvent(frame.id, context_id, now, own)

    def _whole(self, frame: _Frame, status: _Status) -> Task:
        artifacts = frame.artifacts or ()
        task = _read_task(_Task(frame.id, status, frame.session_id, artifacts, frame.history or (), frame.metadata))
        self._context_id = task.context_id
        for place, artifact in enumerate(artifacts):
            self._ids[_called(artifact, place)] = task.artifacts[place].artifact_id
        return task

    def _odd_event(self, event: StreamEvent) -> StreamEvent:
        if isinstance(event, Message):
            return _restored_whole(event)
        if isinstance(event, Task):
            self._context_id = event.context_id
            return _restored_task(event)
        self._context_id = event.context_id or self._context_id
        own, ours = _split(event.metadata)
        event = replace(event, context_id=self._context_id or "", metadata=own)
        if isinstance(event, TaskStatusUpdateEvent):
            return replace(event, status=_restored_status(event.status, ours))
        name = event.artifact.artifact_id
        read = _restored_artifact(replace(event.artifact, artifact_id=self._ids.get(name, name)))
        self._ids[name] = read.artifact_id
        return replace(event, artifact=read)


_TELLING: Final = frozenset(
    (
        *("id", "taskId", "task_id", "kind", "type", "status", "artifact", "role", "parts", "result"),
        *("task", "message", "msg", "statusUpdate", "artifactUpdate", "status_update", "artifact_update"),
    )
)
"""Members that what a stream carries may be known by; an object with none of them is of a kind that is not known."""


def _remainder(told: Any) -> _Remainder | None:
    """What "tieline/task" says; None when that is nothing that we would write."""
    try:
        return None if told is None else msgspec.convert(told, _Remainder)
    except msgspec.ValidationError:
        return None


def _begun(
    task_id: str, status: TaskStatus, artifacts: tuple[Artifact, ...], head: _Remainder, metadata: Metadata | None
) -> Task:
    """The task that begins a stream, out of its first frame."""
    history = [_read_message(m, task_id, head.session_id, f"history[{n}]") for n, m in enumerate(head.history)]
    return Task(task_id, status, head.session_id, artifacts, tuple(history), metadata)


# --- requests ---------------------------------------------------------------------------------------------------------


def _read_send(params: _SendParams) -> SendMessageRequest:
    own, ours = _split(params.metadata)
    now = ours.get("returnImmediately") is True
    length, modes, webhook = params.history_length, params.accepted_output_modes, params.push_notification
    configuration = None
    if modes or webhook is not None or length is not None or now:
        config = None if webhook is None else _read_config(webhook, params.id)
        configuration = SendMessageConfiguration(modes, config, length, now)
    message = _read_message(params.message, params.id, params.session_id, "message", _MADE + new_id())
    return SendMessageRequest(_in_task(message, params.id, params.session_id), None, configuration, own)


def _in_task(message: Message, task_id: str | None, context_id: str | None) -> Message:
    """The message of a request in the task and session that it names, whatever its metadata says."""
    task_id, context_id = _required(task_id), context_id or None
    if message.task_id == task_id and message.context_id == context_id:
        return message
    return replace(message, task_id=task_id, context_id=context_id)


def _read_odd(params: Json, request: type[Any], error: InvalidParams) -> Any:
    """A request in a shape that is not of 0.1, as it was meant; `error` is what 0.1 has to say of it."""
    members = msgspec.json.decode(params)
    if isinstance(members, dict) and "id" not in members:
        raise InvalidParams.at("id", "is required")
    try:
        read = lenient.read(params, request)
    except InvalidParams as other:
        unknown = other.violations and error.violations and "Invalid value" in error.violations[0].description
        raise other if unknown else error from None
    if not isinstance(read, SendMessageRequest):
        return read
    own, ours = _split(read.metadata)
    configuration = read.configuration
    if ours.get("returnImmediately") is True:
        configuration = replace(configuration or SendMessageConfiguration(), return_immediately=True)
    message = replace(read.message, message_id=read.message.message_id or _MADE + new_id())
    message = _in_task(_restored_whole(message), message.task_id, message.context_id)
    return SendMessageRequest(message, read.tenant, configuration, own)


def _written_send(request: SendMessageRequest) -> _SendParams:
    """The caller names the task: a first message's task has the id of the message, and a session of its own."""
    message = request.message
    task_id = message.task_id or message.message_id or new_id()
    context_id = message.context_id or (None if message.task_id else new_id())
    configuration = request.configuration or SendMessageConfiguration()
    webhook = configuration.task_push_notification_config
    return _SendParams(
        task_id,
        _written_message(replace(message, task_id=task_id, context_id=context_id), task_id, context_id),
        context_id,
        configuration.accepted_output_modes,
        None if webhook is None else _written_config(webhook),
        configuration.history_length,
        _with(request.metadata, {"tieline/returnImmediately": True} if configuration.return_immediately else {}),
    )


_METHODS: Final = {
    "tasks/send": METHODS["SendMessage"],
    "tasks/sendSubscribe": METHODS["SendStreamingMessage"],
    "tasks/get": METHODS["GetTask"],
    "tasks/cancel": METHODS["CancelTask"],
    "tasks/resubscribe": METHODS["SubscribeToTask"],
    "tasks/pushNotification/set": METHODS["CreateTaskPushNotificationConfig"],
    "tasks/pushNotification/get": METHODS["GetTaskPushNotificationConfig"],
}


class _V01:
    """See Dialect."""

    version = "0.1"
    versions = ("0.1", "0.2")  # of the 0.2 line, 0.2.0 only: which one is meant is told by the method
    methods: Mapping[str, Method] = _METHODS
    names: Mapping[str, str] = {method.name: name for name, method in _METHODS.items()}
    codes: Mapping[type[A2AError], int] = {TaskEnded: -32002}
    data_in_object = True
    new_task: Metadata | None = {_DIALECT: "0.1"}
    has_final = True
    resumes = False

    # --- a server -----------------------------------------------------------------------------------------------------

    def read_params(self, method: Method, params: Json) -> Any:
        request = method.request
        try:
            if request is SendMessageRequest:
                return _read_send(decode(params, _SendParams))
            if request is TaskPushNotificationConfig:
                read = decode(params, _TaskPushConfig)
                return _read_config(read.push_notification_config, _required(read.id))
            named = decode(params, _IdParams)
        except InvalidParams as error:
            return _read_odd(params, request, error)
        id_ = _required(named.id)
        if request is GetTaskRequest:
            return GetTaskRequest(id_, None, named.history_length)
        if request is CancelTaskRequest:
            return CancelTaskRequest(id_, None, named.metadata)
        if request is GetTaskPushNotificationConfigRequest:
            return GetTaskPushNotificationConfigRequest(id_, id_)
        return SubscribeToTaskRequest(id_)

    def encode_answer(self, answer: Encoded[Task] | Encoded[Message]) -> bytes:
        value = answer.value
        if isinstance(value, Message):
            return encode(_answered(value, value.context_id))
        return encode(_written_task(value))

    def encode_task(self, task: Encoded[Task]) -> bytes:
        return encode(_written_task(task.value))

    def encode_page(self, page: ListTasksResponse) -> bytes:
        raise _not_there("ListTasks")

    def encode_config(self, config: TaskPushNotificationConfig) -> bytes:
        return encode(_TaskPushConfig(config.task_id or "", _written_config(config)))

    def encode_configs(self, configs: ListTaskPushNotificationConfigsResponse) -> bytes:
        raise _not_there("ListTaskPushNotificationConfigs")

    def event_encoder(self) -> EventEncoder:
        return _Writer()

    # --- a client -----------------------------------------------------------------------------------------------------

    def encode_params(self, method: Method, request: Value) -> bytes:
        if method.name not in self.names:
            raise _not_there(method.name)
        if getattr(request, "tenant", None):
            raise InvalidParams.at("tenant", "cannot be said in A2A 0.1")
        if isinstance(request, SendMessageRequest):
            return _json(_written_send(request))
        if isinstance(request, TaskPushNotificationConfig):
            return _json(_TaskPushConfig(request.task_id or "", _written_config(request)))
        if isinstance(request, GetTaskPushNotificationConfigRequest):
            return _json(_IdParams(request.task_id))
        assert isinstance(request, (GetTaskRequest, CancelTaskRequest, SubscribeToTaskRequest))
        length = request.history_length if isinstance(request, GetTaskRequest) else None
        metadata = request.metadata if isinstance(request, CancelTaskRequest) else None
        return _json(_IdParams(request.id, length, metadata))

    def decode_answer(self, data: Json) -> Task | Message:
        try:
            task = decode_result(data, _Task)
            if task.status.message is not None and _split(task.metadata)[1].get("answer") == _MESSAGE:
                return _read_message(task.status.message, task.id, task.session_id, "status.message")
            return _read_task(task)
        except (InvalidParams, InvalidPeerResponse):
            response = lenient.read_result(data, SendMessageResponse)
            if response.task is not None:
                return _restored_task(response.task)
            if response.message is not None:
                return _restored_whole(response.message)
            raise InvalidPeerResponse("The answer is neither a task nor a message.") from None

    def decode_task(self, data: Json) -> Task:
        try:
            return _read_task(decode_result(data, _Task))
        except (InvalidParams, InvalidPeerResponse):
            return _restored_task(lenient.read_result(data, Task))

    def decode_page(self, data: Json) -> ListTasksResponse:
        raise _not_there("ListTasks")

    def decode_config(self, data: Json) -> TaskPushNotificationConfig:
        try:
            read = decode_result(data, _TaskPushConfig)
            return _read_config(read.push_notification_config, read.id)
        except InvalidPeerResponse:
            return lenient.read_result(data, TaskPushNotificationConfig)

    def decode_configs(self, data: Json) -> ListTaskPushNotificationConfigsResponse:
        raise _not_there("ListTaskPushNotificationConfigs")

    def event_decoder(self) -> Callable[[Json], StreamEvent | None]:
        return _Reader()


V01: Final = _V01()


def _required(id_: str | None) -> str:
    if not id_:
        raise InvalidParams.at("id", "is required")
    return id_


def _not_there(name: str) -> UnsupportedOperation:
    return UnsupportedOperation(f"A2A 0.1 has no {name}.")


def _json(params: _Shape) -> bytes:
    """Params as JSON. Raises InvalidParams when they hold something that JSON has no form for."""
    try:
        return encode(params)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise InvalidParams(f"The request cannot be written as JSON: {error}") from None
