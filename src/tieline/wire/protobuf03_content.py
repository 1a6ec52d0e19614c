"""Parts, and all that has parts in it, in the protobuf of A2A 0.3: messages, tasks, events. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb
from msgspec import UNSET
from msgspec.structs import replace

from tieline.types import (
    Artifact,
    Message,
    Metadata,
    Part,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamEvent,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from tieline.wire.protobuf03_requests import no_tenant, read_push, write_history_length, write_push
from tieline.wire.protobuf_fields import (
    Fault,
    inside,
    into_field,
    read_all,
    read_metadata,
    read_role,
    read_state,
    read_struct,
    read_timestamp,
    required,
    role_number,
    state_number,
    write_all,
    write_metadata,
    write_struct,
    write_text,
    write_texts,
    write_timestamp,
)
from tieline.wire.v03_metadata import OF_DATA, OF_PART, WRAPPED, carried, carry, data_carried
from tieline.wire.v03_values import ENDS_STREAM

__all__ = ["Content"]

_FILENAME, _MEDIA_TYPE = "tieline/filename", "tieline/mediaType"
_REFERENCES: Final = "tieline/referenceTaskIds"
_PUSH_TASK: Final = "tieline/pushNotificationTaskId"
_WAITING: Final = pb.SendMessageConfiguration(blocking=True)
_OF_MESSAGE: Final = {_REFERENCES: list}
_OF_SEND: Final = {_PUSH_TASK: str}

_LEVELS: Final = 92  # below the object of a data part, which is one message deeper than in 1.0


class Content:
    """Parts, and all that has parts in it. `base64_files`: files are text in base64, as the Python SDK has them."""

    def __init__(self, *, base64_files: bool) -> None:
        self._base64_files = base64_files

    def _read_part(self, part: Any) -> Part:
        kind = part.WhichOneof("part")
        metadata = read_metadata(part)
        if kind == "text":
            metadata, extra = carried(metadata, OF_PART)
            return Part(part.text, metadata=metadata, filename=extra.get(_FILENAME), media_type=extra.get(_MEDIA_TYPE))
        if kind == "data":
            data, metadata, extra = data_carried(inside("data", read_struct, part.data.data), metadata)
            return Part(data=data, metadata=metadata, filename=extra.get(_FILENAME), media_type=extra.get(_MEDIA_TYPE))
        if kind == "file":
            file = part.file
            filename, media_type = file.name or None, file.mime_type or None
            which = file.WhichOneof("file")
            if which == "file_with_uri":
                return Part(url=file.file_with_uri, metadata=metadata, filename=filename, media_type=media_type)
            if which == "file_with_bytes":
                raw = file.file_with_bytes
                if self._base64_files:
                    raw = _from_base64(raw)
                return Part(raw=raw, metadata=metadata, filename=filename, media_type=media_type)
            raise Fault("file", "wants exactly one of fileWithUri or fileWithBytes, got 0")
        raise Fault("", "wants exactly one of text, file or data, got 0")

    def _write_part(self, into: Any, part: Part) -> None:
        if part.raw is not None or part.url is not None:
            file = into.file
            if part.raw is not None:
                raw = bytes(part.raw)
                file.file_with_bytes = base64.b64encode(raw) if self._base64_files else raw
            elif part.url is not None:
                write_text(file, "file_with_uri", part.url)
            if part.media_type:
                write_text(file, "mime_type", part.media_type)
            if part.filename:
                write_text(file, "name", part.filename)
            if part.metadata is not None:
                write_metadata(into, part.metadata)
            return
        extra: Metadata = {}
        if part.filename:
            extra[_FILENAME] = part.filename
        if part.media_type:
            extra[_MEDIA_TYPE] = part.media_type
        if part.data is UNSET:
            assert part.text is not None
            write_text(into, "text", part.text)
            _write_carrying(into, part.metadata, extra, OF_PART)
            return
        data = part.data
        if not isinstance(data, dict):
            data = {"value": data}
            extra[WRAPPED] = True
        into.data.SetInParent()
        try:
            write_struct(into.data.data, data, _LEVELS)
        except Fault as fault:
            raise (fault.within("data") if isinstance(part.data, dict) else _unwrapped(fault)) from None
        _write_carrying(into, part.metadata, extra, OF_DATA)

    def _read_message(self, message: Any) -> Message:
        metadata, extra = carried(read_metadata(message), _OF_MESSAGE)
        references = extra.get(_REFERENCES, [])
        if not all(isinstance(reference, str) for reference in references):
            raise Fault(f"metadata.{_REFERENCES}", "has to be a list of strings")
        return Message(
            message.message_id,
            read_role(message.role),
            read_all("parts", self._read_part, message.content),
            message.context_id or None,
            message.task_id or None,
            metadata,
            tuple(message.extensions),
            tuple(references),
        )

    def _write_message(self, into: Any, message: Message) -> None:
        into.SetInParent()
        write_text(into, "message_id", message.message_id)
        into.role = role_number(message.role)
        write_all("parts", self._write_part, into.content, message.parts)
        if message.context_id:
            write_text(into, "context_id", message.context_id)
        if message.task_id:
            write_text(into, "task_id", message.task_id)
        extra: Metadata = {_REFERENCES: list(message.reference_task_ids)} if message.reference_task_ids else {}
        _write_carrying(into, message.metadata, extra, _OF_MESSAGE)
        write_texts(into.extensions, message.extensions, "extensions")

    def _read_status(self, status: Any) -> TaskStatus:
        return TaskStatus(
            read_state(status.state),
            inside("message", self._read_message, status.update) if status.HasField("update") else None,
            inside("timestamp", read_timestamp, status.timestamp) if status.HasField("timestamp") else None,
        )

    def _write_status(self, into: Any, status: TaskStatus) -> None:
        into.SetInParent()
        into.state = state_number(status.state)
        if status.message is not None:
            into_field("message", self._write_message, into.update, status.message)
        if status.timestamp:
            into_field("timestamp", write_timestamp, into.timestamp, status.timestamp)

    def _read_artifact(self, artifact: Any) -> Artifact:
        return Artifact(
            artifact.artifact_id,
            read_all("parts", self._read_part, artifact.parts),
            artifact.name or None,
            artifact.description or None,
            read_metadata(artifact),
            tuple(artifact.extensions),
        )

    def _write_artifact(self, into: Any, artifact: Artifact) -> None:
        into.SetInParent()
        write_text(into, "artifact_id", artifact.artifact_id)
        write_all("parts", self._write_part, into.parts, artifact.parts)
        if artifact.name:
            write_text(into, "name", artifact.name)
        if artifact.description:
            write_text(into, "description", artifact.description)
        if artifact.metadata is not None:
            write_metadata(into, artifact.metadata)
        write_texts(into.extensions, artifact.extensions, "extensions")

    def read_task(self, task: Any) -> Task:
        """A task."""
        return Task(
            task.id,
            inside("status", self._read_status, required(task, "status")),
            task.context_id or None,
            read_all("artifacts", self._read_artifact, task.artifacts),
            read_all("history", self._read_message, task.history),
            read_metadata(task),
        )

    def write_task(self, into: Any, task: Task) -> None:
        """A task."""
        into.SetInParent()
        write_text(into, "id", task.id)
        into_field("status", self._write_status, into.status, task.status)
        if task.context_id:
            write_text(into, "context_id", task.context_id)
        write_all("artifacts", self._write_artifact, into.artifacts, task.artifacts)
        write_all("history", self._write_message, into.history, task.history)
        if task.metadata is not None:
            write_metadata(into, task.metadata)

    def read_answer(self, answer: Any) -> Task | Message:
        """What a SendMessageResponse holds."""
        which = answer.WhichOneof("payload")
        if which == "task":
            return inside("task", self.read_task, answer.task)
        if which == "msg":
            return inside("message", self._read_message, answer.msg)
        raise Fault("", "has to hold exactly one of task and message, it holds none")

    def write_answer(self, into: Any, answer: Task | Message) -> None:
        """A task or message into a SendMessageResponse, or a StreamResponse."""
        if isinstance(answer, Task):
            into_field("task", self.write_task, into.task, answer)
        else:
            into_field("message", self._write_message, into.msg, answer)

    def read_event(self, response: Any) -> StreamEvent | None:
        """What a StreamResponse holds; None when it is something that this version does not know."""
        which = response.WhichOneof("payload")
        if which is None:
            return None
        if which == "artifact_update":
            event = response.artifact_update
            artifact = inside("artifactUpdate.artifact", self._read_artifact, required(event, "artifact"))
            return TaskArtifactUpdateEvent(
                event.task_id, event.context_id, artifact, event.append, event.last_chunk, read_metadata(event)
            )
        if which == "status_update":
            event = response.status_update
            status = inside("statusUpdate.status", self._read_status, required(event, "status"))
            return TaskStatusUpdateEvent(event.task_id, event.context_id, status, read_metadata(event))
        return self.read_answer(response)

    def write_event(self, into: Any, event: StreamEvent, *, ends: bool = True) -> None:
        """An event into a StreamResponse. `ends`: the stream ends behind it, when it is such an event."""
        if isinstance(event, TaskArtifactUpdateEvent):
            update = into.artifact_update
            into_field("artifactUpdate.artifact", self._write_artifact, update.artifact, event.artifact)
            update.append, update.last_chunk = event.append, event.last_chunk
        elif isinstance(event, TaskStatusUpdateEvent):
            update = into.status_update
            into_field("statusUpdate.status", self._write_status, update.status, event.status)
            state = event.status.state
            update.final = state in ENDS_STREAM and (ends or state.terminal)  # or what it asks is answered already
        else:
            self.write_answer(into, event)
            return
        write_text(update, "task_id", event.task_id)
        write_text(update, "context_id", event.context_id)
        if event.metadata is not None:
            write_metadata(update, event.metadata)

    def write_passing_event(self, into: Any, event: StreamEvent) -> None:
        """An event, into a StreamResponse behind which more are to come."""
        self.write_event(into, event, ends=False)

    def read_send(self, request: Any) -> SendMessageRequest:
        """The request that sends a message."""
        metadata, extra = carried(read_metadata(request), _OF_SEND)
        given = request.configuration
        configuration = None
        if given != _WAITING:
            webhook = None
            if given.HasField("push_notification"):
                read = inside("configuration.pushNotificationConfig", read_push, given.push_notification)
                webhook = replace(read, task_id=extra.get(_PUSH_TASK))
            configuration = SendMessageConfiguration(
                tuple(given.accepted_output_modes), webhook, given.history_length or None, not given.blocking
            )
        if not request.HasField("request"):
            raise Fault("message", "is required")
        return SendMessageRequest(inside("message", self._read_message, request.request), None, configuration, metadata)

    def write_send(self, into: Any, request: SendMessageRequest) -> None:
        """The request that sends a message."""
        no_tenant(request)
        into_field("message", self._write_message, into.request, request.message)
        given = request.configuration
        configuration = into.configuration
        configuration.blocking = given is None or not given.return_immediately
        extra: Metadata = {}
        if given is not None:
            write_texts(configuration.accepted_output_modes, given.accepted_output_modes, "acceptedOutputModes")
            write_history_length(configuration, given.history_length)
            webhook = given.task_push_notification_config
            if webhook is not None:
                no_tenant(webhook)
                into_field("configuration", write_push, configuration.push_notification, webhook)
                if webhook.task_id:
                    extra[_PUSH_TASK] = webhook.task_id
        _write_carrying(into, request.metadata, extra, _OF_SEND)


def _write_carrying(into: Any, metadata: Metadata | None, extra: Metadata, names: Mapping[str, type]) -> None:
    whole = carry(metadata, extra, names)
    if whole is not None:
        write_metadata(into, whole)


def _unwrapped(fault: Fault) -> Fault:
    """A fault in a value that was put into {"value": it}."""
    fault.field = fault.field.removeprefix("value").removeprefix(".")
    return fault.within("data")


def _from_base64(text: bytes) -> bytes:
    """What is written in base64; what is none is a file as it stands."""
    try:
        raw = base64.b64decode(text, validate=True)
    except binascii.Error:
        return text
    return raw if base64.b64encode(raw) == text else text
