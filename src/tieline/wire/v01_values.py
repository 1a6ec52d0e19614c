"""Values of 1.0 as those of 0.1 (`written_...`), and out of those of 0.1 (`read_...`). Pure.

`restored_...`: values of 1.0 that were read out of a shape that is not of 0.1 (lenient.py), with what their metadata
says of them.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from hashlib import blake2b
from typing import Final

from msgspec.structs import replace

from tieline.errors import InvalidParams
from tieline.types import (
    Artifact,
    AuthenticationInfo,
    Message,
    Metadata,
    Part,
    Role,
    Task,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    encode,
)
from tieline.wire import v01_schema as schema
from tieline.wire.v01_metadata import COMPAT, joined, split, text_of, texts_of, unmarked

__all__ = [
    "MADE",
    "MESSAGE",
    "answered",
    "exact_state",
    "free_id",
    "key_of",
    "read_artifact",
    "read_config",
    "read_message",
    "read_status",
    "read_task",
    "restored_artifact",
    "restored_message",
    "restored_status",
    "restored_task",
    "written_artifact",
    "written_config",
    "written_message",
    "written_status",
    "written_task",
]

MADE: Final = "0.1/"
"""How an id begins that was made for a message that came without one."""

MESSAGE: Final = "message"
"""What "tieline/answer" says."""

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


def key_of(artifact: schema.Artifact, place: int = 0) -> str:
    """What tells an artifact from the others that do not say their id, as quirks.py has it."""
    if artifact.index is not None:
        return f"artifact-{artifact.index}"
    return artifact.name or f"artifact-{place}"


def free_id(taken: Container[str], name: str | None, called: str, place: int) -> str:
    """The id of an artifact that does not say it: its name, if no other has that, else what it is called."""
    if name and name not in taken:
        return name
    while called in taken:
        called = f"{called}-{place}"
    return called


# --- 1.0 to 0.1 -------------------------------------------------------------------------------------------------------


def _written_part(part: Part) -> schema.Part:
    ours: Metadata = {}
    if part.raw is not None or part.url is not None:
        content = schema.FileContent(part.filename, part.media_type, part.raw, part.url)
        return schema.FilePart(content, joined(part.metadata, ours, of_part=True))
    if part.filename is not None:
        ours["tieline/filename"] = part.filename
    if part.media_type is not None:
        ours["tieline/mediaType"] = part.media_type
    if part.text is not None:
        return schema.TextPart(part.text, joined(part.metadata, ours, of_part=True))
    data = part.data
    if not isinstance(data, dict):
        data = {"value": data}
        ours[COMPAT] = True
    return schema.DataPart(data, joined(part.metadata, ours, of_part=True))


def _written_parts(parts: Sequence[Part]) -> tuple[schema.Part, ...]:
    return tuple([_written_part(part) for part in parts])


def written_message(message: Message, task_id: str | None, context_id: str | None) -> schema.Message:
    """A message that stands in a task of that id and context."""
    ours: Metadata = {}
    if not message.message_id.startswith(MADE):
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
    return schema.Message(role, _written_parts(message.parts), joined(message.metadata, ours))


def written_status(status: TaskStatus, task_id: str, context_id: str | None) -> schema.Status:
    """A status of a task of that id and context."""
    message = None if status.message is None else written_message(status.message, task_id, context_id)
    return schema.Status(_STATES[_NEAREST.get(status.state, status.state)], message, status.timestamp)


def exact_state(status: TaskStatus) -> Metadata:
    """What the metadata of a task or event says of a state that 0.1 has no name for."""
    state = _EXACT.get(status.state)
    return {} if state is None else {"tieline/state": state}


def written_artifact(
    artifact: Artifact,
    index: int,
    taken: Container[str],
    *,
    known: bool = False,
    append: bool = False,
    last_chunk: bool = False,
) -> schema.Artifact:
    """An artifact, or a chunk of it.

    `taken`: the ids of artifacts that were written before. `known`: that of this one goes with its index already.
    """
    ours: Metadata = {}
    id_ = artifact.artifact_id
    if not known and id_ != free_id(taken, artifact.name, f"artifact-{index}", index):
        ours["tieline/artifactId"] = artifact.artifact_id
    if artifact.extensions:
        ours["tieline/extensions"] = artifact.extensions
    return schema.Artifact(
        _written_parts(artifact.parts),
        artifact.name,
        artifact.description,
        index,
        append or None,
        last_chunk or None,
        joined(artifact.metadata, ours),
    )


def _written_artifacts(artifacts: Sequence[Artifact]) -> tuple[schema.Artifact, ...]:
    taken: set[str] = set()
    written = []
    for index, artifact in enumerate(artifacts):
        written.append(written_artifact(artifact, index, taken))
        taken.add(artifact.artifact_id)
    return tuple(written)


def written_task(task: Task) -> schema.Task:
    """A task."""
    context_id = task.context_id
    return schema.Task(
        task.id,
        written_status(task.status, task.id, context_id),
        context_id,
        _written_artifacts(task.artifacts),
        tuple([written_message(message, task.id, context_id) for message in task.history]),
        joined(unmarked(task.metadata), exact_state(task.status)),
    )


def answered(message: Message, context_id: str | None) -> schema.Task:
    """A message that is the whole answer, as the completed task that 0.1 wants."""
    task_id = message.task_id or message.message_id
    status = schema.Status("completed", written_message(message, task_id, context_id))
    return schema.Task(task_id, status, context_id, metadata={"tieline/answer": MESSAGE})


def written_config(config: TaskPushNotificationConfig) -> schema.PushConfig:
    """A webhook. Its id is said when it is not that of its task."""
    authentication = None
    if config.authentication is not None:
        authentication = schema.Authentication((config.authentication.scheme,), config.authentication.credentials)
    id_ = config.id if config.id != config.task_id else None
    return schema.PushConfig(config.url, config.token, authentication, id_)


# --- 0.1 to 1.0 -------------------------------------------------------------------------------------------------------


def _read_part(part: schema.Part, path: str) -> Part:
    if isinstance(part, schema.TextPart):
        if part.metadata is None:
            return Part(part.text)
        read = Part(part.text, metadata=part.metadata)
    elif isinstance(part, schema.DataPart):
        read = Part(data=part.data, metadata=part.metadata)
    else:
        file = part.file
        url = file.uri or None if file.raw is not None else file.uri
        raw = file.raw or None if url is not None else file.raw
        if (raw is None) == (url is None):
            raise InvalidParams.at(f"{path}.file", "wants exactly one of bytes and uri")
        read = Part(raw=raw, url=url, metadata=part.metadata, filename=file.name, media_type=file.mime_type)
    return _restored_part(read)


def _read_parts(parts: Sequence[schema.Part], path: str) -> tuple[Part, ...]:
    return tuple([_read_part(part, f"{path}.parts[{index}]") for index, part in enumerate(parts)])


def _read_role(role: str, path: str) -> Role:
    if role == "user":
        return Role.USER
    if role == "agent":
        return Role.AGENT
    raise InvalidParams.at(f"{path}.role", f"Invalid enum value {role!r}, must be one of user, agent")


def read_message(
    message: schema.Message, task_id: str | None, context_id: str | None, path: str, message_id: str | None = None
) -> Message:
    """A message that stands in a task of that id and context; without an id, `message_id` or one made of its content.

    The same words in the same task have the same id then, wherever they are read. Raises InvalidParams.
    """
    role = _read_role(message.role, path)
    parts = _read_parts(message.parts, path)
    if message.metadata is None and message_id:
        return Message(message_id, role, parts, context_id, task_id)
    return _with_own(Message(message_id or "", role, parts, context_id, task_id, message.metadata))


def read_status(status: schema.Status, task_id: str, context_id: str | None, ours: Metadata) -> TaskStatus:
    """A status. `ours`: what the metadata of its task or event says. Raises InvalidParams."""
    state = _READ.get(status.state)
    if state is None:
        raise InvalidParams.at(
            "status.state", f"Invalid enum value {status.state!r}, must be one of {', '.join(_READ)}"
        )
    message = None
    if status.message is not None:
        message = read_message(status.message, task_id, context_id, "status.message")
    return TaskStatus(_exact(state, ours), message, _with_zone(status.timestamp))


def _exact(state: TaskState, ours: Metadata) -> TaskState:
    """The state that was meant: 0.1 has no name for some."""
    return next(
        (meant for meant, name in _EXACT.items() if ours.get("state") == name and _NEAREST[meant] is state), state
    )


_ZONE: Final = re.compile(r"(?:[Zz]|[+-]\d\d:?\d\d)$").search


def _with_zone(timestamp: str | None) -> str | None:
    """A time without a zone is taken for UTC: servers of the time wrote such."""
    if timestamp is None or "T" not in timestamp or _ZONE(timestamp):
        return timestamp
    return timestamp + "Z"


def read_artifact(artifact: schema.Artifact, id_: str, path: str) -> Artifact:
    """An artifact. `id_`: its id when it does not say one. Raises InvalidParams."""
    own, ours = split(artifact.metadata)
    called = text_of(ours, "artifactId", None)
    return Artifact(
        id_ if called is None else called,
        _read_parts(artifact.parts, path),
        artifact.name,
        artifact.description,
        own,
        texts_of(ours, "extensions"),
    )


def _read_artifacts(artifacts: Sequence[schema.Artifact]) -> tuple[Artifact, ...]:
    taken: set[str] = set()
    read = []
    for place, artifact in enumerate(artifacts):
        id_ = free_id(taken, artifact.name, key_of(artifact, place), place)
        found = read_artifact(artifact, id_, f"artifacts[{place}]")
        taken.add(found.artifact_id)
        read.append(found)
    return tuple(read)


def read_task(task: schema.Task) -> Task:
    """A task. Raises InvalidParams."""
    own, ours = split(task.metadata)
    context_id = task.session_id
    history = [read_message(m, task.id, context_id, f"history[{place}]") for place, m in enumerate(task.history)]
    return Task(
        task.id,
        read_status(task.status, task.id, context_id, ours),
        context_id,
        _read_artifacts(task.artifacts),
        tuple(history),
        own,
    )


def read_config(config: schema.PushConfig, task_id: str) -> TaskPushNotificationConfig:
    """A webhook of a task. Of several schemes the first is taken; 1.0 has one."""
    authentication = None
    if config.authentication is not None and config.authentication.schemes:
        authentication = AuthenticationInfo(config.authentication.schemes[0], config.authentication.credentials)
    return TaskPushNotificationConfig(
        config.url, None, config.id or task_id, task_id, config.token or None, authentication
    )


# --- what was read by another way -------------------------------------------------------------------------------------


def _restored_part(part: Part) -> Part:
    own, ours = split(part.metadata, of_part=True)
    if own is part.metadata:
        return part
    data = part.data
    if COMPAT in ours:
        if ours[COMPAT] is True and isinstance(data, dict) and data.keys() == {"value"}:
            data = data["value"]
        else:
            own = {**(own or {}), COMPAT: ours[COMPAT]}
    return replace(
        part,
        data=data,
        metadata=own,
        filename=text_of(ours, "filename", part.filename),
        media_type=text_of(ours, "mediaType", part.media_type),
    )


def _with_own(message: Message) -> Message:
    """A message with what its metadata says of it; without an id, with one made of its content. Parts stay."""
    own, ours = split(message.metadata)
    id_ = text_of(ours, "messageId", message.message_id or None)
    return Message(
        _made_id(message) if id_ is None else id_,
        Role.UNSPECIFIED if ours.get("role") == "unspecified" else message.role,
        message.parts,
        text_of(ours, "contextId", message.context_id),
        text_of(ours, "taskId", message.task_id),
        own,
        texts_of(ours, "extensions") or message.extensions,
        texts_of(ours, "referenceTaskIds") or message.reference_task_ids,
    )


def _made_id(message: Message) -> str:
    content = encode((message.task_id, message.role, message.parts))
    return MADE + blake2b(content, digest_size=16).hexdigest()


def restored_message(message: Message) -> Message:
    """A message that was read by another way, with what its metadata says of it."""
    return _with_own(replace(message, parts=tuple([_restored_part(part) for part in message.parts])))


def restored_status(status: TaskStatus, ours: Metadata) -> TaskStatus:
    """A status that was read by another way; `ours`: what the metadata of its task or event says."""
    message = None if status.message is None else restored_message(status.message)
    return TaskStatus(_exact(status.state, ours), message, _with_zone(status.timestamp))


def restored_artifact(artifact: Artifact) -> Artifact:
    """An artifact that was read by another way, with what its metadata says of it."""
    own, ours = split(artifact.metadata)
    called = text_of(ours, "artifactId", None)
    return replace(
        artifact,
        artifact_id=artifact.artifact_id if called is None else called,
        parts=tuple([_restored_part(part) for part in artifact.parts]),
        metadata=own,
        extensions=texts_of(ours, "extensions") or artifact.extensions,
    )


def restored_task(task: Task) -> Task:
    """A task that was read by another way, with what its metadata says of it."""
    own, ours = split(task.metadata)
    return replace(
        task,
        status=restored_status(task.status, ours),
        artifacts=tuple([restored_artifact(artifact) for artifact in task.artifacts]),
        history=tuple([restored_message(message) for message in task.history]),
        metadata=own,
    )
