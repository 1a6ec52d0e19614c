"""The events of one stream of 0.1, written and read. Both remember what the stream has said before. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from tieline.errors import InvalidParams, InvalidPeerResponse
from tieline.event import Event, TextChunk
from tieline.ids import new_id
from tieline.types import (
    Artifact,
    Message,
    Metadata,
    Part,
    StreamEvent,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    decode,
    encode,
)
from tieline.wire import lenient
from tieline.wire import v01_schema as schema
from tieline.wire.dialect import Json
from tieline.wire.v01_metadata import joined, split, text_of, unmarked
from tieline.wire.v01_values import (
    MESSAGE,
    answered,
    exact_state,
    free_id,
    key_of,
    read_artifact,
    read_message,
    read_status,
    read_task,
    restored_artifact,
    restored_message,
    restored_status,
    restored_task,
    written_artifact,
    written_message,
    written_status,
)
from tieline.wire.v1 import decode_result

__all__ = ["Reader", "Writer"]

# --- written ----------------------------------------------------------------------------------------------------------


class Writer:
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
        answer = answered(value, None)
        return (encode(schema.StatusFrame(answer.id, answer.status, True, answer.metadata or UNSET)),)

    def _chunk(self, chunk: TextChunk) -> bytes:
        """A chunk of text: behind the first one of an artifact, only the text of the frame is made anew."""
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
        """What has to be said of a context: nothing when it is the last one told."""
        if context_id == self._context_id:
            return {}
        self._context_id = context_id
        self._around.clear()
        return {"tieline/contextId": context_id}

    def _status(self, update: TaskStatusUpdateEvent, ends: bool) -> bytes:
        ours = {**exact_state(update.status), **self._in_context(update.context_id)}
        status = written_status(update.status, update.task_id, update.context_id)
        metadata = joined(update.metadata, ours)
        final = _final(update.status, ends)
        return encode(schema.StatusFrame(update.task_id, status, final, UNSET if metadata is None else metadata))

    def _artifact(self, update: TaskArtifactUpdateEvent) -> bytes:
        artifact = update.artifact
        written = self._placed(artifact, append=update.append, last_chunk=update.last_chunk)
        metadata = joined(update.metadata, self._in_context(update.context_id))
        return encode(schema.ArtifactFrame(update.task_id, written, metadata))

    def _placed(self, artifact: Artifact, *, append: bool = False, last_chunk: bool = False) -> schema.Artifact:
        indexes = self._indexes
        known = artifact.artifact_id in indexes
        index = indexes[artifact.artifact_id] if known else len(indexes)
        written = written_artifact(artifact, index, indexes, known=known, append=append, last_chunk=last_chunk)
        indexes[artifact.artifact_id] = index
        return written

    def _task(self, task: Task, ends: bool) -> Sequence[bytes]:
        """A status and a frame for each artifact; the status last where it is the final one."""
        self._context_id = task.context_id
        self._around.clear()
        history = tuple([written_message(message, task.id, task.context_id) for message in task.history])
        head = joined(unmarked(task.metadata), {"tieline/task": schema.Remainder(task.context_id, history)})
        frames: list[schema.StatusFrame | schema.ArtifactFrame] = [
            schema.ArtifactFrame(task.id, self._placed(artifact)) for artifact in task.artifacts
        ]
        final = _final(task.status, ends)
        written = written_status(task.status, task.id, task.context_id)
        status = schema.StatusFrame(task.id, written, final, exact_state(task.status) or UNSET)
        frames.insert(len(frames) if final else 0, status)
        frames[0] = replace(frames[0], metadata={**(head or {}), **(frames[0].metadata or {})})
        return [encode(frame) for frame in frames]


def _final(status: TaskStatus, ends: bool) -> bool:
    """Whether whoever sent the message waits for nothing more. AUTH_REQUIRED keeps a stream open (A2A 1.0 §7.6.1)."""
    return status.state.terminal or (ends and status.state is TaskState.INPUT_REQUIRED)


# --- read -------------------------------------------------------------------------------------------------------------


class Reader:
    """Reads the events of one stream. An artifact that does not say its id has that of the last one called the same."""

    __slots__ = ("_context_id", "_ids")

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}  # artifact ids by what artifacts are called without one
        self._context_id: str | None = None

    def __call__(self, data: Json) -> StreamEvent | None:
        try:
            return self._event(decode(data, schema.Frame))
        except (InvalidParams, InvalidPeerResponse, msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            members = decode_result(data, dict[str, msgspec.Raw])
            if members and members.keys().isdisjoint(_TELLING):
                return None
            try:
                return self._odd_event(lenient.read_result(data, StreamResponse).event)
            except ValueError as error:
                raise InvalidPeerResponse(f"The stream event {error}.") from None

    def _event(self, frame: schema.Frame) -> StreamEvent:
        own, ours = split(frame.metadata)
        status, artifact = frame.status, frame.artifact
        if status is not None and status.message is not None and ours.get("answer") == MESSAGE:
            return read_message(status.message, frame.id, None, "status.message")
        if status is not None and (frame.session_id, frame.artifacts, frame.history) != (None, None, None):
            return self._whole(frame, status)
        head = _remainder(ours.get("task"))
        self._context_id = text_of(ours, "contextId", self._context_id) if head is None else head.session_id
        context_id = self._context_id or ""
        if artifact is not None:
            called = key_of(artifact)
            id_ = self._ids.get(called)
            if id_ is None:
                id_ = free_id(self._ids.values(), artifact.name, called, artifact.index or 0)
            read = read_artifact(artifact, id_, "artifact")
            self._ids[called] = read.artifact_id
            if head is not None:
                return _begun(frame.id, TaskStatus(TaskState.WORKING), (read,), head, own)
            append, last_chunk = bool(artifact.append), bool(artifact.last_chunk)
            return TaskArtifactUpdateEvent(frame.id, context_id, read, append, last_chunk, own)
        if status is None:
            raise InvalidPeerResponse("The stream event has neither status nor artifact.")
        now = read_status(status, frame.id, self._context_id, ours)
        if head is not None:
            return _begun(frame.id, now, (), head, own)
        return TaskStatusUpdateEvent(frame.id, context_id, now, own)

    def _whole(self, frame: schema.Frame, status: schema.Status) -> Task:
        artifacts = frame.artifacts or ()
        task = read_task(
            schema.Task(frame.id, status, frame.session_id, artifacts, frame.history or (), frame.metadata)
        )
        self._context_id = task.context_id
        for place, artifact in enumerate(artifacts):
            self._ids[key_of(artifact, place)] = task.artifacts[place].artifact_id
        return task

    def _odd_event(self, event: StreamEvent) -> StreamEvent:
        """An event in a shape that is not of 0.1, as it was meant."""
        if isinstance(event, Message):
            return restored_message(event)
        if isinstance(event, Task):
            self._context_id = event.context_id
            return restored_task(event)
        self._context_id = event.context_id or self._context_id
        own, ours = split(event.metadata)
        event = replace(event, context_id=self._context_id or "", metadata=own)
        if isinstance(event, TaskStatusUpdateEvent):
            return replace(event, status=restored_status(event.status, ours))
        name = event.artifact.artifact_id
        read = restored_artifact(replace(event.artifact, artifact_id=self._ids.get(name, name)))
        self._ids[name] = read.artifact_id
        return replace(event, artifact=read)


_TELLING: Final = frozenset(
    (
        *("id", "taskId", "task_id", "kind", "type", "status", "artifact", "role", "parts", "result"),
        *("task", "message", "msg", "statusUpdate", "artifactUpdate", "status_update", "artifact_update"),
    )
)
"""Members that what a stream carries may be known by; an object with none of them is of a kind that is not known."""


def _remainder(told: Any) -> schema.Remainder | None:
    """What "tieline/task" says; None when that is nothing that we would write."""
    try:
        return None if told is None else msgspec.convert(told, schema.Remainder)
    except msgspec.ValidationError:
        return None


def _begun(
    task_id: str, status: TaskStatus, artifacts: tuple[Artifact, ...], head: schema.Remainder, metadata: Metadata | None
) -> Task:
    """The task that begins a stream, out of its first frame."""
    history = [read_message(m, task_id, head.session_id, f"history[{n}]") for n, m in enumerate(head.history)]
    return Task(task_id, status, head.session_id, artifacts, tuple(history), metadata)
