"""A2A 0.1: what its speakers send is read, and what they are sent is what they know."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from tests.wire.v01_schema import faults
from tieline.errors import InvalidParams, InvalidPeerResponse, UnsupportedOperation
from tieline.event import Event
from tieline.types import (
    Artifact,
    AuthenticationInfo,
    CancelTaskRequest,
    Encoded,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from tieline.wire.methods import METHODS
from tieline.wire.v01 import V01

SEND = METHODS["SendMessage"]
NOON = "2025-05-01T12:00:00.000Z"
HELLO: dict[str, Any] = {"role": "user", "parts": [{"type": "text", "text": "hello"}]}
WORDS = Message("m-1", Role.AGENT, (Part("well"),), "s-1", "t-1")


def as_bytes(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode()


def read(method: str, params: Any) -> Any:
    return V01.read_params(METHODS[method], as_bytes(params))


def written(answer: Task | Message) -> Any:
    encoded = Encoded(Task, value=answer) if isinstance(answer, Task) else Encoded(Message, value=answer)
    return json.loads(V01.encode_answer(encoded))


def frames(*events: Any) -> list[Any]:
    encoder = V01.event_encoder()
    return [json.loads(frame) for event in events for frame in encoder(Event(event))]


def valid(type_: str, value: Any, *more: str) -> Any:
    assert list(faults(type_, value, more=frozenset(more))) == []
    return value


# --- requests ---------------------------------------------------------------------------------------------------------


def test_a_message_is_read_into_the_task_and_session_that_its_caller_has_named() -> None:
    request = read("SendMessage", {"id": "t-1", "sessionId": "s-1", "message": HELLO})
    message = request.message
    assert (message.task_id, message.context_id, message.role) == ("t-1", "s-1", Role.USER)
    assert message.parts == (Part("hello"),)
    assert message.message_id.startswith("0.1/")
    assert request == SendMessageRequest(message)


def test_two_messages_without_an_id_get_two() -> None:
    params = {"id": "t-1", "message": HELLO}
    assert read("SendMessage", params).message.message_id != read("SendMessage", params).message.message_id


def test_all_that_can_be_said_of_a_message_is_read() -> None:
    params = {
        "id": "t-1",
        "message": {**HELLO, "metadata": {"mood": "good"}},
        "acceptedOutputModes": ["text", "application/json"],
        "pushNotification": {
            "url": "https://caller.example/hook",
            "token": "secret",
            "authentication": {"schemes": ["Bearer", "Basic"], "credentials": "abc"},
        },
        "historyLength": 3,
        "metadata": {"trace": 7},
    }
    request = read("SendStreamingMessage", params)
    assert request.message.context_id is None
    assert request.message.metadata == {"mood": "good"}
    assert request.metadata == {"trace": 7}
    config = TaskPushNotificationConfig(
        "https://caller.example/hook", None, "t-1", "t-1", "secret", AuthenticationInfo("Bearer", "abc")
    )
    assert request.configuration == SendMessageConfiguration(("text", "application/json"), config, 3)


def test_parts_of_all_kinds_are_read() -> None:
    parts = [
        {"type": "text", "text": "see", "metadata": {"n": 1}},
        {"type": "file", "file": {"name": "a.csv", "mimeType": "text/csv", "bytes": "YSxi"}},
        {"type": "file", "file": {"uri": "https://caller.example/b"}},
        {"type": "file", "file": {"name": "empty", "bytes": ""}},
        {"type": "data", "data": {"big": 2**70, "none": None}},
    ]
    message = read("SendMessage", {"id": "t", "message": {"role": "user", "parts": parts}}).message
    assert message.parts == (
        Part("see", metadata={"n": 1}),
        Part(raw=b"a,b", filename="a.csv", media_type="text/csv"),
        Part(url="https://caller.example/b"),
        Part(raw=b"", filename="empty"),
        Part(data={"big": 2**70, "none": None}),
    )


def test_parts_of_the_dialects_behind_it_are_read_too() -> None:
    parts = [{"kind": "text", "text": "see"}, {"kind": "file", "file": {"name": "a", "mimeType": "a/b", "bytes": "YQ"}}]
    request = read("SendMessage", {"id": "t", "session_id": "s", "message": {"role": "USER", "parts": parts}})
    message = request.message
    assert (message.task_id, message.context_id) == ("t", "s")
    assert message.parts == (Part("see"), Part(raw=b"a", filename="a", media_type="a/b"))
    assert message.message_id.startswith("0.1/")


def test_an_empty_session_is_none() -> None:
    assert read("SendMessage", {"id": "t", "sessionId": "", "message": HELLO}).message.context_id is None


def test_the_task_of_a_message_is_the_one_that_is_named_whatever_its_metadata_says() -> None:
    metadata = {"tieline/taskId": "another", "tieline/contextId": "another", "tieline/messageId": "m-7"}
    message = read("SendMessage", {"id": "t", "sessionId": "s", "message": {**HELLO, "metadata": metadata}}).message
    assert (message.message_id, message.task_id, message.context_id) == ("m-7", "t", "s")
    assert message.metadata is None


def test_metadata_that_only_looks_like_ours_breaks_nothing() -> None:
    metadata = {"tieline/messageId": 5, "tieline/extensions": "x", "tieline/other": 1, "data_part_compat": "yes"}
    message = read("SendMessage", {"id": "t", "message": {**HELLO, "metadata": metadata}}).message
    assert message.message_id.startswith("0.1/")
    assert (message.extensions, message.metadata) == ((), {"tieline/other": 1, "data_part_compat": "yes"})


@pytest.mark.parametrize(
    ("params", "field", "words"),
    [
        ({}, "id", "is required"),
        ({"message": HELLO}, "id", "is required"),
        ({"id": "", "message": HELLO}, "id", "is required"),
        ({"message": {"role": "user", "parts": [{"kind": "text", "text": "x"}]}}, "id", "is required"),
        ({"id": 7, "message": HELLO}, "id", "Expected `str`"),
        ({"id": "t"}, "message", "is required"),
        ({"id": "t", "message": "hello"}, "message", "Expected `object`"),
        ({"id": "t", "message": {"role": "user"}}, "message.parts", "is required"),
        ({"id": "t", "message": {"role": "system", "parts": []}}, "message.role", "must be one of user, agent"),
        ({"id": "t", "message": {"role": "user", "parts": [{"type": "text"}]}}, "message.parts[0].text", "is required"),
        (
            {"id": "t", "message": {"role": "user", "parts": [{"type": "video"}]}},
            "message.parts[0].type",
            "must be text, file or data",
        ),
        (
            {"id": "t", "message": {"role": "user", "parts": [{"type": "file", "file": {"name": "a"}}]}},
            "message.parts[0].file",
            "exactly one of bytes and uri",
        ),
        (
            {
                "id": "t",
                "message": {"role": "user", "parts": [{"type": "file", "file": {"bytes": "YQ==", "uri": "u"}}]},
            },
            "message.parts[0].file",
            "exactly one of bytes and uri",
        ),
        ({"id": "t", "message": HELLO, "historyLength": "many"}, "historyLength", "Expected `int"),
    ],
)
def test_a_bad_request_is_refused_by_the_path_of_what_is_bad(params: Any, field: str, words: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        read("SendMessage", params)
    (violation,) = caught.value.violations
    assert (violation.field, words in violation.description) == (field, True), violation


def test_the_other_requests_are_read() -> None:
    assert read("GetTask", {"id": "t", "historyLength": 2, "metadata": {"a": 1}}) == GetTaskRequest("t", None, 2)
    assert read("CancelTask", {"id": "t", "metadata": {"a": 1}}) == CancelTaskRequest("t", None, {"a": 1})
    assert read("SubscribeToTask", {"id": "t", "historyLength": 1}) == SubscribeToTaskRequest("t")
    config = {"id": "t", "pushNotificationConfig": {"url": "https://caller.example/hook"}}
    assert read("CreateTaskPushNotificationConfig", config) == TaskPushNotificationConfig(
        "https://caller.example/hook", None, "t", "t"
    )
    assert read("GetTaskPushNotificationConfig", {"id": "t"}) == GetTaskPushNotificationConfigRequest("t", "t")


@pytest.mark.parametrize("name", sorted(V01.names))
def test_every_request_wants_the_id_of_its_task(name: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        read(name, {})
    assert [violation.field for violation in caught.value.violations] == ["id"]


def test_a_request_is_written_as_it_is_read() -> None:
    requests: list[tuple[str, str, Any]] = [
        ("GetTask", "TaskQueryParams", GetTaskRequest("t", None, 0)),
        ("CancelTask", "TaskIdParams", CancelTaskRequest("t", None, {"a": 1})),
        ("SubscribeToTask", "TaskQueryParams", SubscribeToTaskRequest("t")),
        ("GetTaskPushNotificationConfig", "TaskIdParams", GetTaskPushNotificationConfigRequest("t", "t")),
        (
            "CreateTaskPushNotificationConfig",
            "TaskPushNotificationConfig",
            TaskPushNotificationConfig("https://c.example", None, "t", "t", "x", AuthenticationInfo("Bearer", "c")),
        ),
    ]
    for name, shape, request in requests:
        params = V01.encode_params(METHODS[name], request)
        valid(shape, json.loads(params))
        assert V01.read_params(METHODS[name], params) == request


def test_the_first_message_of_a_caller_names_a_task_and_a_session() -> None:
    message = Message("m-1", Role.USER, (Part("hello"),))
    params = json.loads(V01.encode_params(SEND, SendMessageRequest(message)))
    valid("TaskSendParams", params)
    assert params["id"] == "m-1"
    assert params["sessionId"]
    assert params["message"] == {**HELLO, "metadata": {"tieline/messageId": "m-1"}}


def test_a_further_message_goes_to_its_task_and_names_no_other_session() -> None:
    message = Message("m-2", Role.USER, (Part("hello"),), None, "t-1")
    params = json.loads(V01.encode_params(SEND, SendMessageRequest(message)))
    assert (params["id"], "sessionId" in params) == ("t-1", False)


def test_how_a_message_is_to_be_handled_is_written() -> None:
    webhook = TaskPushNotificationConfig("https://c.example", token="x")
    request = SendMessageRequest(
        replace(WORDS, role=Role.USER), None, SendMessageConfiguration(("text",), webhook, 4, True), {"trace": 1}
    )
    params = json.loads(V01.encode_params(SEND, request))
    valid("TaskSendParams", params, "acceptedOutputModes")
    assert params["acceptedOutputModes"] == ["text"]
    assert params["pushNotification"] == {"url": "https://c.example", "token": "x"}
    assert params["historyLength"] == 4
    assert params["metadata"] == {"trace": 1, "tieline/returnImmediately": True}
    again = V01.read_params(SEND, as_bytes(params))
    assert again.configuration.return_immediately
    assert (again.metadata, again.message) == (request.metadata, request.message)


def test_what_0_1_has_no_word_for_is_refused_before_it_is_sent() -> None:
    with pytest.raises(UnsupportedOperation, match="ListTasks"):
        V01.encode_params(METHODS["ListTasks"], ListTasksRequest())
    with pytest.raises(InvalidParams, match="tenant"):
        V01.encode_params(METHODS["GetTask"], GetTaskRequest("t", "acme"))
    with pytest.raises(InvalidParams, match="JSON"):
        V01.encode_params(SEND, SendMessageRequest(replace(WORDS, metadata={"x": object()})))


# --- answers ----------------------------------------------------------------------------------------------------------


def test_a_small_answer_is_small() -> None:
    task = Task(
        "t-1",
        TaskStatus(TaskState.COMPLETED, None, NOON),
        "s-1",
        (Artifact("answer", (Part("done"),), "answer"), Artifact("artifact-1", (Part("indeed"),))),
        (read("SendMessage", {"id": "t-1", "sessionId": "s-1", "message": HELLO}).message,),
        {"tieline/dialect": "0.1"},
    )
    assert valid("Task", written(task)) == {
        "id": "t-1",
        "sessionId": "s-1",
        "status": {"state": "completed", "timestamp": NOON},
        "artifacts": [
            {"name": "answer", "parts": [{"type": "text", "text": "done"}], "index": 0},
            {"parts": [{"type": "text", "text": "indeed"}], "index": 1},
        ],
        "history": [HELLO],
    }


@pytest.mark.parametrize(
    ("state", "name", "metadata"),
    [
        (TaskState.UNSPECIFIED, "unknown", None),
        (TaskState.SUBMITTED, "submitted", None),
        (TaskState.WORKING, "working", None),
        (TaskState.INPUT_REQUIRED, "input-required", None),
        (TaskState.COMPLETED, "completed", None),
        (TaskState.CANCELED, "canceled", None),
        (TaskState.FAILED, "failed", None),
        (TaskState.REJECTED, "failed", {"tieline/state": "rejected"}),
        (TaskState.AUTH_REQUIRED, "input-required", {"tieline/state": "auth-required"}),
    ],
)
def test_every_state_has_a_name_of_0_1_and_is_read_as_itself(state: TaskState, name: str, metadata: Any) -> None:
    task = Task("t", TaskStatus(state))
    told = valid("Task", written(task))
    assert (told["status"]["state"], told.get("metadata")) == (name, metadata)
    assert V01.decode_task(as_bytes(told)) == task
    update = TaskStatusUpdateEvent("t", "", TaskStatus(state))
    (frame,) = frames(update)
    valid("TaskStatusUpdateEvent", frame)
    assert V01.event_decoder()(as_bytes(frame)) == update


def test_a_state_in_metadata_that_does_not_fit_the_state_is_not_believed() -> None:
    told = {"id": "t", "status": {"state": "working"}, "metadata": {"tieline/state": "rejected"}}
    assert V01.decode_task(as_bytes(told)).state is TaskState.WORKING


def test_what_0_1_has_no_field_for_is_metadata_of_where_it_belongs() -> None:
    message = Message("m", Role.AGENT, (Part("x", media_type="text/html"), Part(data=[1])), None, "other", {"own": 1})
    message = replace(message, extensions=("urn:x",), reference_task_ids=("t-0",))
    task = Task("t", TaskStatus(TaskState.WORKING, message), "s", (Artifact("report", (Part("y"),)),))
    told = valid("Task", written(task))
    assert told["status"]["message"] == {
        "role": "agent",
        "parts": [
            {"type": "text", "text": "x", "metadata": {"tieline/mediaType": "text/html"}},
            {"type": "data", "data": {"value": [1]}, "metadata": {"data_part_compat": True}},
        ],
        "metadata": {
            "own": 1,
            "tieline/messageId": "m",
            "tieline/contextId": None,
            "tieline/taskId": "other",
            "tieline/extensions": ["urn:x"],
            "tieline/referenceTaskIds": ["t-0"],
        },
    }
    assert told["artifacts"][0]["metadata"] == {"tieline/artifactId": "report"}
    assert V01.decode_task(as_bytes(told)) == task


def test_a_message_that_is_the_whole_answer_is_a_completed_task_and_is_read_as_the_message() -> None:
    told = valid("Task", written(WORDS))
    assert (told["id"], told["sessionId"], told["status"]["state"]) == ("t-1", "s-1", "completed")
    assert V01.decode_answer(as_bytes(told)) == WORDS
    alone = Message("m-1", Role.AGENT, (Part("well"),))
    assert written(alone)["id"] == "m-1"
    assert V01.decode_answer(as_bytes(written(alone))) == alone
    (frame,) = frames(WORDS)
    assert valid("TaskStatusUpdateEvent", frame)["final"] is True
    assert V01.event_decoder()(as_bytes(frame)) == WORDS


def test_a_webhook_is_written_with_the_id_of_its_task() -> None:
    config = TaskPushNotificationConfig("https://c.example", None, "t", "t", "x", AuthenticationInfo("Bearer"))
    told = json.loads(V01.encode_config(config))
    assert valid("TaskPushNotificationConfig", told) == {
        "id": "t",
        "pushNotificationConfig": {
            "url": "https://c.example",
            "token": "x",
            "authentication": {"schemes": ["Bearer"]},
        },
    }
    assert V01.decode_config(as_bytes(told)) == config
    other = replace(config, id="hook-2")
    assert V01.decode_config(V01.encode_config(other)) == other


# --- answers of others ------------------------------------------------------------------------------------------------


def test_an_answer_of_a_server_of_its_time_is_read() -> None:
    told = {
        "id": "t",
        "sessionId": "s",
        "status": {
            "state": "input-required",
            "timestamp": "2025-04-02T16:59:25.331844",
            "message": {"role": "agent", "parts": [{"type": "text", "text": "Which one?"}]},
        },
        "artifacts": [
            {"name": "a", "parts": [{"type": "text", "text": "1"}], "index": 0},
            {"name": "b", "parts": [{"type": "text", "text": "2"}], "index": 0},
        ],
        "history": [HELLO, HELLO],
        "metadata": None,
    }
    task = V01.decode_answer(as_bytes(told))
    assert isinstance(task, Task)
    assert (task.id, task.context_id, task.state) == ("t", "s", TaskState.INPUT_REQUIRED)
    assert task.status.time is not None
    assert task.status.time.tzinfo is not None
    question = task.status.message
    assert question is not None
    assert (question.text, question.task_id, question.context_id) == ("Which one?", "t", "s")
    assert [artifact.text for artifact in task.artifacts] == ["1", "2"]
    assert [artifact.artifact_id for artifact in task.artifacts] == ["a", "b"]
    assert V01.decode_answer(as_bytes(told)) == task  # what has no id has the same one whenever it is read


@pytest.mark.parametrize(
    "told",
    [
        {"id": "t", "status": {"state": "Completed"}, "artifacts": [{"parts": [{"kind": "text", "text": "x"}]}]},
        {"id": "t", "status": {"state": "completed"}, "artifacts": [{"index": 0, "parts": [{"text": "x"}]}]},
        {"task": {"id": "t", "status": {"state": "COMPLETED"}, "artifacts": [{"parts": [{"text": "x"}]}]}},
        {"kind": "task", "id": "t", "status": "completed", "artifacts": [{"parts": [{"type": "text", "text": "x"}]}]},
    ],
)
def test_an_answer_in_an_odd_shape_is_read_as_it_was_meant(told: Any) -> None:
    task = V01.decode_answer(as_bytes(told))
    assert isinstance(task, Task)
    assert (task.id, task.state, task.text) == ("t", TaskState.COMPLETED, "x")
    assert task.artifacts[0].artifact_id == "artifact-0"
    assert V01.decode_task(as_bytes(told)) == task


def test_our_metadata_is_taken_out_of_an_odd_shape_too() -> None:
    message = {
        "role": "agent",
        "parts": [{"kind": "data", "data": {"value": None}, "metadata": {"data_part_compat": True}}],
        "metadata": {"tieline/messageId": "m", "own": 1},
    }
    told = {"id": "t", "status": {"state": "FAILED", "message": message}, "metadata": {"tieline/state": "rejected"}}
    task = V01.decode_task(as_bytes(told))
    assert (task.state, task.metadata) == (TaskState.REJECTED, None)
    assert task.status.message is not None
    assert (task.status.message.message_id, task.status.message.metadata) == ("m", {"own": 1})
    assert task.status.message.parts == (Part(data=None),)


@pytest.mark.parametrize(
    "told", [b"", b"nonsense", b"[]", b"7", b"{}", b'{"id":"t"}', b'{"id":"t","status":{}}', b"\xff"]
)
def test_garbage_is_the_fault_of_the_peer(told: bytes) -> None:
    with pytest.raises(InvalidPeerResponse):
        V01.decode_answer(told)
    with pytest.raises(InvalidPeerResponse):
        V01.decode_task(told)
    with pytest.raises(InvalidPeerResponse):
        V01.decode_config(told)


# --- streams ----------------------------------------------------------------------------------------------------------


def artifact(id_: str, text: str, *, append: bool = False, last_chunk: bool = False) -> TaskArtifactUpdateEvent:
    return TaskArtifactUpdateEvent("t", "s", Artifact(id_, (Part(text),)), append, last_chunk)


def status(state: TaskState) -> TaskStatusUpdateEvent:
    return TaskStatusUpdateEvent("t", "s", TaskStatus(state, None, NOON))


def test_a_stream_is_statuses_and_artifacts_told_by_their_index() -> None:
    told = frames(
        Task("t", TaskStatus(TaskState.SUBMITTED, None, NOON), "s"),
        status(TaskState.WORKING),
        artifact("a", "one "),
        artifact("b", "other"),
        artifact("a", "two", append=True, last_chunk=True),
        status(TaskState.COMPLETED),
    )
    for frame in told:
        valid("TaskArtifactUpdateEvent" if "artifact" in frame else "TaskStatusUpdateEvent", frame)

    def chunk(text: str, index: int, **more: Any) -> Any:
        return {"id": "t", "artifact": {"parts": [{"type": "text", "text": text}], "index": index, **more}}

    assert told == [
        {
            "id": "t",
            "status": {"state": "submitted", "timestamp": NOON},
            "final": False,
            "metadata": {"tieline/task": {"sessionId": "s"}},
        },
        {"id": "t", "status": {"state": "working", "timestamp": NOON}, "final": False},
        chunk("one ", 0, metadata={"tieline/artifactId": "a"}),
        chunk("other", 1, metadata={"tieline/artifactId": "b"}),
        chunk("two", 0, append=True, lastChunk=True),
        {"id": "t", "status": {"state": "completed", "timestamp": NOON}, "final": True},
    ]


@pytest.mark.parametrize("state", list(TaskState))
def test_a_status_is_final_when_its_task_has_ended_or_asks_its_caller(state: TaskState) -> None:
    (frame,) = frames(status(state))
    assert frame["final"] is (state.terminal or state is TaskState.INPUT_REQUIRED)


def test_a_task_that_is_final_already_is_told_with_its_status_last() -> None:
    artifacts = (Artifact("a", (Part("1"),)), Artifact("b", (Part("2"),)))
    told = frames(Task("t", TaskStatus(TaskState.COMPLETED), "s", artifacts, (WORDS,)))
    assert [("artifact" in frame, frame.get("final")) for frame in told] == [(True, None), (True, None), (False, True)]


def test_a_task_that_begins_a_stream_gives_its_artifacts_their_indexes() -> None:
    artifacts = (Artifact("a", (Part("1"),)), Artifact("b", (Part("2"),)))
    told = frames(Task("t", TaskStatus(TaskState.WORKING), "s", artifacts), artifact("c", "3"), artifact("b", "4"))
    assert [frame["artifact"]["index"] for frame in told if "artifact" in frame] == [0, 1, 2, 1]


def test_a_stream_of_a_server_of_its_time_is_read() -> None:
    decode = V01.event_decoder()
    events = [
        decode(as_bytes(frame))
        for frame in (
            {"id": "t", "status": {"state": "working"}, "final": False},
            {"id": "t", "artifact": {"parts": [{"type": "text", "text": "a"}], "index": 0, "append": False}},
            {"id": "t", "artifact": {"parts": [{"kind": "text", "text": "b"}], "index": 0, "append": True}},
            {
                "id": "t",
                "artifact": {"name": "n", "parts": [{"type": "text", "text": "c"}], "index": 1, "lastChunk": True},
            },
            {"id": "t", "status": {"state": "completed", "message": None}, "final": True},
        )
    ]
    assert events == [
        TaskStatusUpdateEvent("t", "", TaskStatus(TaskState.WORKING)),
        TaskArtifactUpdateEvent("t", "", Artifact("artifact-0", (Part("a"),))),
        TaskArtifactUpdateEvent("t", "", Artifact("artifact-0", (Part("b"),)), append=True),
        TaskArtifactUpdateEvent("t", "", Artifact("n", (Part("c"),), "n"), last_chunk=True),
        TaskStatusUpdateEvent("t", "", TaskStatus(TaskState.COMPLETED)),
    ]


def test_artifacts_of_one_name_are_told_apart_by_their_index() -> None:
    artifacts: list[Any] = [{"name": "n", "parts": [], "index": index} for index in (0, 1)]
    artifacts.append({"name": "n", "parts": []})
    told = {"id": "t", "status": {"state": "working"}, "artifacts": artifacts}
    assert [artifact.artifact_id for artifact in V01.decode_task(as_bytes(told)).artifacts] == [
        "n",
        "artifact-1",
        "n-2",
    ]
    decode = V01.event_decoder()
    events = [decode(as_bytes({"id": "t", "artifact": artifact})) for artifact in (*artifacts[:2], *artifacts[:2])]
    ids = [event.artifact.artifact_id for event in events if isinstance(event, TaskArtifactUpdateEvent)]
    assert ids == ["n", "artifact-1", "n", "artifact-1"]


def test_a_whole_task_in_a_stream_is_a_task_and_names_the_artifacts_behind_it() -> None:
    decode = V01.event_decoder()
    told = written(Task("t", TaskStatus(TaskState.WORKING), "s", (Artifact("report", (Part("1"),)),)))
    task = decode(as_bytes(told))
    assert isinstance(task, Task)
    assert task.artifacts[0].artifact_id == "report"
    chunk = {"id": "t", "artifact": {"parts": [{"type": "text", "text": "2"}], "index": 0, "append": True}}
    assert decode(as_bytes(chunk)) == TaskArtifactUpdateEvent("t", "s", Artifact("report", (Part("2"),)), append=True)


def test_an_event_of_an_odd_shape_keeps_the_ids_of_the_stream() -> None:
    decode = V01.event_decoder()
    first, second = frames(artifact("report", "1"), artifact("report", "2", append=True))
    decode(as_bytes(first))
    second["artifact"]["parts"] = [{"kind": "text", "text": "2"}]
    assert decode(as_bytes(second)) == artifact("report", "2", append=True)


def test_an_event_of_a_kind_that_is_not_known_is_passed_over() -> None:
    assert V01.event_decoder()(b'{"heartbeat":true}') is None


@pytest.mark.parametrize("told", [b"", b"[]", b"{}", b"7", b'{"id":"t"}', b'{"id":"t","artifact":5}', b'{"status":{}}'])
def test_garbage_in_a_stream_is_the_fault_of_the_peer(told: bytes) -> None:
    with pytest.raises(InvalidPeerResponse):
        V01.event_decoder()(told)
