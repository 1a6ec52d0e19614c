"""From 1.0 to 0.1 and back nothing is lost, whatever it is; and what anybody sends is a value or a documented error."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import cycle
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.wire.schema import struct_of
from tests.wire.strategies import FIXED, exactly, free_json, wire_json
from tests.wire.v01_schema import faults
from tieline.engine.content import TextStream
from tieline.engine.fold import Fold
from tieline.errors import InvalidParams, InvalidPeerResponse
from tieline.event import Event
from tieline.types import (
    Encoded,
    Message,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamEvent,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatusUpdateEvent,
    Value,
    decode,
    encode,
    own_copy,
)
from tieline.wire.methods import METHODS
from tieline.wire.v01 import V01

_OURS = st.sampled_from(
    (
        *(
            "tieline/messageId",
            "tieline/state",
            "tieline/task",
            "tieline/answer",
            "tieline/empty",
            "tieline/artifactId",
        ),
        *("tieline/tieline/messageId", "tieline/contextId", "tieline/filename", "tieline/other", "data_part_compat"),
        *("tieline/data_part_compat", "tieline/", "value"),
    )
)
"""Names in metadata that are ours, or look like them."""

_metadata = st.none() | st.dictionaries(
    _OURS | st.text(max_size=4), st.sampled_from((True, "rejected", "message", None, 1)) | free_json, max_size=3
)


def values(name: str) -> st.SearchStrategy[Any]:
    """Values of a message of 1.0, half of them with metadata that looks like ours."""
    made = wire_json(name).map(lambda wire: decode(json.dumps(wire).encode(), struct_of(name)))
    return made | st.builds(_with_metadata, made, st.lists(_metadata, min_size=1, max_size=4).map(cycle))


def _with_metadata(value: Any, metadata: Iterator[Any]) -> Any:
    """The value with the metadata of all that is in it replaced, in turn."""
    if isinstance(value, tuple):
        return tuple(_with_metadata(item, metadata) for item in value)
    if not isinstance(value, Value):
        return value
    names = [name for name in value.__struct_fields__ if name not in ("metadata", "data")]
    changed = {name: _with_metadata(getattr(value, name), metadata) for name in names}
    if "metadata" in value.__struct_fields__:
        changed["metadata"] = next(metadata)
    return own_copy(replace(value, **changed))


def same(one: Value, other: Value) -> None:
    assert exactly(json.loads(encode(other))) == exactly(json.loads(encode(one)))


def valid(type_: str, data: bytes, *more: str) -> None:
    assert list(faults(type_, json.loads(data), more=frozenset(more))) == []


@FIXED
@given(values("Task"))
def test_a_task_comes_back_as_it_was(task: Task) -> None:
    data = V01.encode_task(Encoded(Task, value=task))
    valid("Task", data)
    same(task, V01.decode_task(data))
    assert V01.encode_answer(Encoded(Task, value=task)) == data
    answer = V01.decode_answer(data)
    assert isinstance(answer, Task)
    same(task, answer)


@FIXED
@given(values("Message"))
def test_a_message_that_is_an_answer_comes_back_as_it_was(message: Message) -> None:
    data = V01.encode_answer(Encoded(Message, value=message))
    valid("Task", data)
    answer = V01.decode_answer(data)
    assert isinstance(answer, Message)
    same(message, answer)


@FIXED
@given(values("Message"))
def test_a_message_that_is_sent_comes_as_it_was_into_the_task_that_it_names(message: Message) -> None:
    method = METHODS["SendMessage"]
    request = SendMessageRequest(message)
    data = V01.encode_params(method, request)
    valid("TaskSendParams", data)
    came = V01.read_params(method, data).message
    if message.task_id:
        assert came.task_id == message.task_id
    if message.context_id:
        assert came.context_id == message.context_id
    same(replace(message, task_id=None, context_id=None), replace(came, task_id=None, context_id=None))


@FIXED
@given(values("SendMessageRequest"))
def test_a_request_comes_back_as_it_was_but_for_what_its_caller_has_to_name(request: SendMessageRequest) -> None:
    method = METHODS["SendMessage"]
    request = replace(request, tenant=None)
    data = V01.encode_params(method, request)
    valid("TaskSendParams", data, "acceptedOutputModes", "id")
    came = V01.read_params(method, data)
    assert exactly(came.metadata) == exactly(request.metadata)
    one, other = (item.configuration or SendMessageConfiguration() for item in (request, came))
    webhook, came_webhook = one.task_push_notification_config, other.task_push_notification_config
    same(replace(one, task_push_notification_config=None), replace(other, task_push_notification_config=None))
    assert (webhook is None) == (came_webhook is None)
    if webhook is not None and came_webhook is not None:
        assert (came_webhook.url, came_webhook.authentication) == (webhook.url, webhook.authentication)


@FIXED
@given(values("TaskPushNotificationConfig"))
def test_a_webhook_comes_back_as_it_was_with_the_id_of_its_task_for_one_without(
    config: TaskPushNotificationConfig,
) -> None:
    config = replace(config, tenant=None, task_id=config.task_id or "t", token=config.token or None)
    data = V01.encode_config(config)
    valid("TaskPushNotificationConfig", data, "id")
    assert V01.decode_config(data) == replace(config, id=config.id or config.task_id)


# --- streams ----------------------------------------------------------------------------------------------------------

_ids = st.sampled_from(("artifact-0", "artifact-1", "artifact-5", "report", ""))
_artifacts = st.builds(lambda artifact, id_: replace(artifact, artifact_id=id_), values("Artifact"), _ids)


@st.composite
def streams(draw: st.DrawFn) -> list[Event]:
    """A stream as the engine makes them: the task, then what happens to it until it ends."""
    task = draw(values("Task"))
    found = {artifact.artifact_id: artifact for artifact in draw(st.lists(_artifacts, max_size=3))}
    task = replace(task, artifacts=tuple(found.values()), context_id=draw(st.sampled_from(("", "s", task.context_id))))
    if draw(st.booleans()):
        task = replace(task, status=replace(task.status, state=TaskState.WORKING))
    context_id = task.context_id or ""
    events = [Event(task)]
    if task.state.terminal:
        return events
    texts: dict[str, TextStream] = {}
    for kind in draw(st.lists(st.sampled_from(("status", "artifact", "text", "text")), max_size=6)):
        metadata = draw(_metadata)
        if kind == "status":
            status = draw(values("TaskStatus"))
            events.append(Event(TaskStatusUpdateEvent(task.id, context_id, status, metadata)))
            if status.state.terminal:
                break
        elif kind == "artifact":
            artifact = draw(_artifacts)
            append, last_chunk = draw(st.booleans()), draw(st.booleans())
            events.append(Event(TaskArtifactUpdateEvent(task.id, context_id, artifact, append, last_chunk, metadata)))
        else:
            id_ = draw(_ids)
            media_type = draw(st.sampled_from((None, "text/html", "")))
            text = texts.setdefault(f"{id_} {media_type}", TextStream(task.id, context_id, id_, media_type))
            events.append(text.chunk(draw(st.text(max_size=4))))
    return events


def told_again(events: Sequence[Event]) -> list[StreamEvent]:
    """The events of a stream as the other end of 0.1 has them."""
    write, read = V01.event_encoder(), V01.event_decoder()
    again = []
    for event in events:
        for frame in write(event):
            valid("TaskArtifactUpdateEvent" if "artifact" in json.loads(frame) else "TaskStatusUpdateEvent", frame)
            value = read(frame)
            assert value is not None
            again.append(value)
    return again


def folded(events: Sequence[StreamEvent]) -> Task:
    task, *rest = events
    assert isinstance(task, Task)
    fold = Fold(task)
    for event in rest:
        fold.add(event)
    return fold.task()


@FIXED
@given(streams())
def test_a_stream_makes_the_same_task_at_both_ends(events: list[Event]) -> None:
    same(folded([event.value for event in events]), folded(told_again(events)))


@FIXED
@given(streams())
def test_what_follows_the_task_comes_back_event_by_event(events: list[Event]) -> None:
    count = len(told_again(events[:1]))
    rest = told_again(events)[count:]
    assert len(rest) == len(events) - 1
    for event, other in zip(events[1:], rest, strict=True):
        same(event.value, other)


_EVENTS = ("Task", "Message", "TaskStatusUpdateEvent", "TaskArtifactUpdateEvent")


@FIXED
@given(st.lists(st.one_of([values(name) for name in _EVENTS]), max_size=4))
def test_events_of_any_kind_in_any_order_can_be_written_and_read(events: list[StreamEvent]) -> None:
    told_again([Event(event) for event in events])


# --- what anybody sends -----------------------------------------------------------------------------------------------

_PARTS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(("text", "file", "data", "video", 1)),
            "kind": st.sampled_from(("text", "file", "data", None)),
            "text": free_json,
            "file": free_json | st.dictionaries(st.sampled_from(("name", "mimeType", "bytes", "uri")), free_json),
            "data": free_json,
            "metadata": free_json | _metadata,
        },
    ),
    max_size=3,
)
_MESSAGES = st.fixed_dictionaries(
    {},
    optional={"role": st.sampled_from(("user", "agent", "x", 1)), "parts": _PARTS | free_json, "metadata": _metadata},
)
_STATUSES = st.fixed_dictionaries(
    {},
    optional={
        "state": st.sampled_from(("working", "completed", "input_required", "Canceled", "nowhere", 3)),
        "message": _MESSAGES | free_json,
        "timestamp": st.sampled_from(("2025-01-01T00:00:00", "now", 1)),
    },
)
_ARTIFACTS = st.fixed_dictionaries(
    {},
    optional={
        "parts": _PARTS | free_json,
        "index": st.integers() | free_json,
        "name": free_json,
        "append": free_json,
        "metadata": free_json | _metadata,
    },
)
_ANYTHING = free_json | st.fixed_dictionaries(
    {},
    optional={
        "id": st.text(max_size=4) | free_json,
        "sessionId": st.text(max_size=4) | free_json,
        "message": _MESSAGES | free_json,
        "status": _STATUSES | free_json,
        "artifact": _ARTIFACTS | free_json,
        "artifacts": st.lists(_ARTIFACTS, max_size=3) | free_json,
        "history": st.lists(_MESSAGES, max_size=3) | free_json,
        "historyLength": free_json,
        "acceptedOutputModes": free_json,
        "pushNotification": free_json | st.dictionaries(st.sampled_from(("url", "token", "authentication")), free_json),
        "pushNotificationConfig": free_json,
        "final": free_json,
        "kind": free_json,
        "metadata": free_json | _metadata,
    },
)
"""JSON that is like an object of 0.1 here and there."""


@FIXED
@given(_ANYTHING, st.sampled_from(sorted(V01.names)))
def test_params_of_any_shape_are_a_request_or_refused(params: Any, name: str) -> None:
    method = METHODS[name]
    with suppress(InvalidParams):
        assert isinstance(V01.read_params(method, json.dumps(params).encode()), method.request)


@FIXED
@given(_ANYTHING)
def test_an_answer_of_any_shape_is_a_value_or_the_fault_of_the_peer(told: Any) -> None:
    data = json.dumps(told).encode()
    for read in (V01.decode_answer, V01.decode_task, V01.decode_config):
        with suppress(InvalidPeerResponse):
            assert isinstance(read(data), (Task, Message, TaskPushNotificationConfig))


@FIXED
@given(st.lists(_ANYTHING, max_size=4))
def test_events_of_any_shape_are_values_passed_over_or_the_fault_of_the_peer(told: list[Any]) -> None:
    read = V01.event_decoder()
    for item in told:
        with suppress(InvalidPeerResponse):
            event = read(json.dumps(item).encode())
            assert event is None or encode(event)
