"""A2A 0.3 over REST: protobuf's JSON read and written, the forms told apart, errors as servers of 0.3 give them."""

from __future__ import annotations

import base64
import contextlib
import json
from typing import Any

import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb
from a2a.compat.v0_3 import conversions, proto_utils
from google.protobuf.json_format import MessageToDict, Parse, ParseDict
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.wire.strategies import FIXED, exactly, free_json
from tests.wire.v03_values import spoilt, values
from tieline.errors import (
    A2AError,
    ExtendedAgentCardNotConfigured,
    InternalError,
    InvalidParams,
    InvalidPeerResponse,
    InvalidRequest,
    MethodNotFound,
    ParseError,
    PushNotificationNotSupported,
    TaskNotCancelable,
    TaskNotFound,
    UnsupportedOperation,
    VersionNotSupported,
)
from tieline.event import Event, TextChunk
from tieline.types import (
    Artifact,
    AuthenticationInfo,
    CancelTaskRequest,
    Encoded,
    ListTaskPushNotificationConfigsResponse,
    ListTasksResponse,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamEvent,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    encode,
)
from tieline.wire.methods import METHODS, Method
from tieline.wire.v03 import V03
from tieline.wire.v03_rest import V03_REST, V03_REST_ONCE, V03_REST_TWICE, _V03Rest, spoken
from tieline.wire.v03_rest_errors import encode_error, read_error

SEND = METHODS["SendMessage"]
CREATE = METHODS["CreateTaskPushNotificationConfig"]
MESSAGE = {"messageId": "m-1", "role": "ROLE_USER", "content": [{"text": "hello"}]}
both = pytest.mark.parametrize("dialect", [V03_REST, V03_REST_TWICE], ids=["once", "twice"])


NAME = "tasks/t/pushNotificationConfigs/p"


def as_bytes(value: Any) -> bytes:
    return json.dumps(value).encode()


def sent(value: Any, dialect: _V03Rest = V03_REST) -> SendMessageRequest:
    request = dialect.read_params(SEND, as_bytes(value))
    assert isinstance(request, SendMessageRequest)
    return request


def told(event: StreamEvent, dialect: _V03Rest = V03_REST) -> Any:
    (json_,) = dialect.event_encoder()(Event(event))
    return json.loads(json_)


def read_event(value: Any) -> StreamEvent | None:
    return V03_REST.event_decoder()(as_bytes(value))


def canonical(value: Any) -> str:
    return exactly(json.loads(encode(value)))


# --- requests ---------------------------------------------------------------------------------------------------------


def test_a_message_is_read_as_protobuf_writes_it() -> None:
    body = {
        "message": {
            **MESSAGE,
            "contextId": "c",
            "taskId": "t",
            "metadata": {"k": 1},
            "extensions": ["urn:x"],
            "content": [
                {"text": "hi", "metadata": {"a": 1}},
                {"file": {"fileWithUri": "https://x/y", "mimeType": "a/b", "name": "y"}},
                {"data": {"data": {"data": {"n": 2**70}}}},
            ],
        },
        "configuration": {
            "acceptedOutputModes": ["text/plain"],
            "blocking": True,
            "historyLength": 2,
            "pushNotification": {"id": "p", "url": "u", "authentication": {"schemes": ["Bearer"]}},
        },
        "metadata": {"of": "request"},
    }
    parts = (
        Part("hi", metadata={"a": 1}),
        Part(url="https://x/y", filename="y", media_type="a/b"),
        Part(data={"data": {"n": 2**70}}),
    )
    message = Message("m-1", Role.USER, parts, "c", "t", {"k": 1}, ("urn:x",))
    push = TaskPushNotificationConfig("u", id="p", authentication=AuthenticationInfo("Bearer"))
    configuration = SendMessageConfiguration(("text/plain",), push, 2)
    assert sent(body) == SendMessageRequest(message, None, configuration, {"of": "request"})


@pytest.mark.parametrize("name", ["message", "request"])
def test_the_names_of_the_definition_itself_are_read(name: str) -> None:
    file = {"file_with_uri": "u", "mime_type": "a/b"}
    body = {
        name: {
            "message_id": "m",
            "context_id": "c",
            "role": "ROLE_USER",
            "content": [{"file": file}, {"data": {"data": {"snake_case": 1}}}],
            "metadata": {"user_id": 1},
        },
        "configuration": {"blocking": True, "push_notification": {"url": "u"}},
    }
    request = sent(body)
    parts = (Part(url="u", media_type="a/b"), Part(data={"snake_case": 1}))
    assert request.message == Message("m", Role.USER, parts, "c", metadata={"user_id": 1})
    assert request.configuration == SendMessageConfiguration((), TaskPushNotificationConfig("u"))


@pytest.mark.parametrize(
    ("configuration", "at_once"),
    [
        (None, True),
        ({}, True),
        ({"acceptedOutputModes": ["a/b"]}, True),
        ({"blocking": False}, True),
        ({"blocking": True}, False),
    ],
)
@pytest.mark.parametrize("content", [{"text": "hello"}, {"kind": "text", "text": "hello"}])
def test_blocking_that_is_absent_is_false_as_protobuf_leaves_false_out(
    configuration: Any, at_once: bool, content: Any
) -> None:
    body = {"message": {**MESSAGE, "content": [content]}, "configuration": configuration}
    read = sent(body).configuration
    assert (read is not None and read.return_immediately) is at_once


def test_a_history_of_no_messages_is_carried_as_0_is_all_in_protobuf() -> None:
    request = SendMessageRequest(
        Message("m", Role.USER, (Part("x"),)), None, SendMessageConfiguration(history_length=0)
    )
    body = json.loads(V03_REST.encode_params(SEND, request))
    assert body["configuration"] == {"blocking": True}
    assert sent(body) == request
    assert sent({"message": MESSAGE, "configuration": {"historyLength": 0}}).configuration == SendMessageConfiguration(
        return_immediately=True
    )


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "message"),
        ({"message": {**MESSAGE, "content": [5]}}, "message.content[0]"),
        ({"message": {**MESSAGE, "role": "ROLE_ROBOT"}}, "message.role"),
        ({"message": {**MESSAGE, "messageId": 5}}, "message.messageId"),
        ({"message": {**MESSAGE, "content": [{}]}}, "message.content[0]"),
    ],
)
def test_a_bad_body_is_refused_with_the_path_as_it_was_written(body: Any, field: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        sent(body)
    assert refused.value.violations[0].field == field


def test_a_message_in_the_form_of_the_schema_is_read_too() -> None:
    message = {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "x"}]}
    assert sent({"message": message}).message == Message("m", Role.USER, (Part("x"),))


@pytest.mark.parametrize(
    "body",
    [
        {"parent": "tasks/t", "configId": "p", "config": {"name": NAME, "pushNotificationConfig": {"url": "u"}}},
        {"parent": "tasks/t", "config_id": "p", "config": {"push_notification_config": {"url": "u"}}},
        {"name": NAME, "pushNotificationConfig": {"id": "p", "url": "u", "authentication": None}},
        {"config": {"taskId": "t", "pushNotificationConfig": {"id": "p", "url": "u"}}, "taskId": "t"},
        {"taskId": "t", "pushNotificationConfig": {"id": "p", "url": "u"}},
        {"taskId": "t", "id": "p", "url": "u"},
    ],
)  # fmt: skip
def test_a_webhook_is_read_in_every_form_that_clients_send(body: Any) -> None:
    assert V03_REST.read_params(CREATE, as_bytes(body)) == TaskPushNotificationConfig("u", id="p", task_id="t")


def test_the_task_in_the_path_wins_over_the_one_in_the_body() -> None:
    body = {"parent": "tasks/other", "config": {"pushNotificationConfig": {"url": "u"}}, "taskId": "t"}
    assert V03_REST.read_params(CREATE, as_bytes(body)).task_id == "t"


def test_a_cancel_is_read_from_the_path_and_the_body() -> None:
    body = as_bytes({"name": "tasks/t", "id": "t"})
    assert V03_REST.read_params(METHODS["CancelTask"], body) == CancelTaskRequest("t")


@pytest.mark.parametrize("method", METHODS.values(), ids=list(METHODS))
@FIXED
@given(st.data())
def test_any_json_is_a_request_or_invalid_params(method: Method, data: st.DataObject) -> None:
    body = as_bytes(data.draw(spoilt("MessageSendParams") | free_json))
    with contextlib.suppress(InvalidParams):
        assert isinstance(V03_REST.read_params(method, body), method.request)
    assert spoken(body) in (V03, V03_REST, V03_REST_TWICE)


def test_a_message_with_parts_and_no_content_is_read_as_it_was_meant() -> None:
    message = {"messageId": "x", "role": "ROLE_USER", "parts": [{"text": "a"}, {"data": {"k": 1}}]}
    request = sent({"message": message})
    assert request.message.parts == (Part(text="a"), Part(data={"k": 1}))
    assert request.message.role is Role.USER


# --- files ------------------------------------------------------------------------------------------------------------


def file_sent(raw: bytes, mime_type: str, dialect: _V03Rest) -> tuple[Any, Part]:
    part = Part(raw=raw, media_type=mime_type)
    request = SendMessageRequest(Message("m", Role.USER, (part,)))
    body = json.loads(dialect.encode_params(SEND, request))
    return body["message"]["content"][0], sent(body).message.parts[0]


FILES = [b"", b"hi", b"test", b"deadbeef", b"\x89PNG\r\n", b"aGVsbG8=", bytes(range(256)), b"\xff\xfe\xfd"]


@both
@pytest.mark.parametrize("raw", FILES)
@pytest.mark.parametrize("mime_type", ["image/png", "text/plain", "application/json"])
def test_a_file_comes_back_whatever_is_in_it(raw: bytes, mime_type: str, dialect: _V03Rest) -> None:
    written, read = file_sent(raw, mime_type, dialect)
    once = base64.b64decode(written["file"]["fileWithBytes"])
    assert once == (base64.b64encode(raw) if dialect is V03_REST_TWICE else raw)
    assert read == Part(raw=raw, media_type=mime_type)


@pytest.mark.parametrize("mime_type", [None, "image/png", "text/plain; charset=utf-8"])
def test_a_file_is_read_from_either_sdk(mime_type: str | None) -> None:
    raw = "größer".encode() if mime_type and "text" in mime_type else b"\x00\x01\xffxyz"
    once = base64.b64encode(raw).decode()
    twice = base64.b64encode(once.encode()).decode()
    for field in (once, twice):
        part = {"file": {"fileWithBytes": field, "mimeType": mime_type}}
        assert sent({"message": {**MESSAGE, "content": [part]}}).message.parts[0].raw == raw


@pytest.mark.parametrize("mime_type", ["text/plain", "application/json", "application/ld+json"])
def test_text_that_only_looks_like_base64_stays_as_it_is(mime_type: str) -> None:
    digest = b"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    part = {"file": {"fileWithBytes": base64.b64encode(digest).decode(), "mimeType": mime_type}}
    assert sent({"message": {**MESSAGE, "content": [part]}}).message.parts[0].raw == digest


def test_who_sends_a_file_is_answered_as_it_was_encoded() -> None:
    once = base64.b64encode(b"\x00\x01").decode()
    twice = base64.b64encode(once.encode()).decode()
    for field, dialect in ((once, V03_REST), (twice, V03_REST_TWICE)):
        body = {"message": {**MESSAGE, "content": [{"text": "x"}, {"file": {"fileWithBytes": field}}]}}
        assert spoken(as_bytes(body)) is dialect


def test_who_sends_no_file_is_answered_as_its_sdk_reads_them() -> None:
    twice = base64.b64encode(base64.b64encode(b"\x00\x01")).decode()
    with_file = as_bytes({"message": {**MESSAGE, "content": [{"file": {"fileWithBytes": twice}}]}})
    for body in (b"", as_bytes({"message": MESSAGE})):
        assert spoken(body) is V03_REST
        assert spoken(body, b"node") is V03_REST_ONCE
        assert spoken(body, b"python-httpx/0.28.1") is V03_REST_TWICE
    assert spoken(with_file, b"node") is V03_REST_ONCE
    assert spoken(with_file, b"python-httpx/0.28.1") is V03_REST_TWICE


@pytest.mark.parametrize("raw", FILES[1:])
def test_a_file_of_who_encodes_once_is_never_taken_for_base64(raw: bytes) -> None:
    part = {"file": {"fileWithBytes": base64.b64encode(raw).decode(), "mimeType": "application/octet-stream"}}
    request = sent({"message": {**MESSAGE, "content": [part]}}, V03_REST_ONCE)
    assert request.message.parts == (Part(raw=raw, media_type="application/octet-stream"),)


# --- which form -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "dialect"),
    [
        ({"message": MESSAGE}, V03_REST),
        ({"request": {"message_id": "m", "role": "ROLE_USER", "content": []}}, V03_REST),
        ({"message": {"kind": "message", "messageId": "m", "role": "user", "parts": []}}, V03),
        ({"message": {"messageId": "m", "role": "user", "parts": []}}, V03),
        ({"message": {"messageId": "m", "parts": [{"kind": "text", "text": "x"}]}}, V03),
        ({"message": {**MESSAGE, "content": [{"data": {"data": {"kind": "message"}}}]}}, V03_REST),
        ({"name": "tasks/t"}, V03_REST),
        ({}, V03_REST),
        ([], V03_REST),
    ],
)
def test_the_form_of_an_answer_is_that_of_the_message(body: Any, dialect: Any) -> None:
    assert spoken(as_bytes(body)) is dialect


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 5000])
def test_a_body_that_is_not_json_is_answered_in_the_usual_form(body: bytes) -> None:
    assert spoken(body) is V03_REST


# --- answers and events -----------------------------------------------------------------------------------------------


def test_a_task_is_written_as_protobuf_writes_it() -> None:
    task = Task(
        "t",
        TaskStatus(TaskState.CANCELED, Message("s", Role.AGENT, (Part("bye"),)), "2025-01-01T00:00:00.000Z"),
        "c",
        (Artifact("a", (Part(data={"k": 1}),), "name"),),
        (Message("m", Role.USER, (Part("in"),), reference_task_ids=("r",)),),
    )
    expected = {
        "id": "t",
        "contextId": "c",
        "status": {
            "state": "TASK_STATE_CANCELLED",
            "message": {"messageId": "s", "role": "ROLE_AGENT", "content": [{"text": "bye"}]},
            "timestamp": "2025-01-01T00:00:00.000Z",
        },
        "artifacts": [{"artifactId": "a", "name": "name", "parts": [{"data": {"data": {"k": 1}}}]}],
        "history": [
            {
                "messageId": "m",
                "role": "ROLE_USER",
                "content": [{"text": "in"}],
                "metadata": {"tieline/referenceTaskIds": ["r"]},
            }
        ],
    }
    assert json.loads(V03_REST.encode_task(Encoded(Task, value=task))) == expected
    assert json.loads(V03_REST.encode_answer(Encoded(Task, value=task))) == {"task": expected}


@pytest.mark.parametrize("state", list(TaskState))
def test_final_is_said_of_what_ends_the_stream_of_who_sent(state: TaskState) -> None:
    written = told(TaskStatusUpdateEvent("t", "c", TaskStatus(state)))
    assert written["statusUpdate"].get("final", False) is (state.terminal or state is TaskState.INPUT_REQUIRED)


def test_a_chunk_of_text_is_the_same_as_in_1_0() -> None:
    value = TaskArtifactUpdateEvent("t", "c", Artifact("a", (Part("x"),)), append=True)
    chunk = TextChunk(Event(value).json, "a", "x", None)
    (written,) = V03_REST.event_encoder()(chunk)
    assert written is chunk.json
    assert json.loads(written) == told(value)


def test_each_form_makes_its_own_bytes_of_an_event_and_makes_them_once() -> None:
    event = Event(TaskArtifactUpdateEvent("t", "c", Artifact("a", (Part(raw=b"\x00\x01"),))))
    made = [dialect.event_encoder()(event)[0] for dialect in (V03, V03_REST, V03_REST_TWICE)]
    assert len(set(made)) == 3
    assert V03_REST_TWICE.event_encoder()(event)[0] is made[2]


@pytest.mark.parametrize(
    "answer",
    [
        {"task": {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}},
        {"task": {"id": "t", "context_id": "c", "status": {"state": "TASK_STATE_WORKING"}}},
        {"kind": "task", "id": "t", "contextId": "c", "status": {"state": "working"}},
        {"id": "t", "contextId": "c", "status": {"state": "working"}},
        {"task": {"kind": "task", "id": "t", "contextId": "c", "status": {"state": "working"}}},
    ],
)
def test_an_answer_is_read_in_every_form(answer: Any) -> None:
    assert V03_REST.decode_answer(as_bytes(answer)) == Task("t", TaskStatus(TaskState.WORKING), "c")


@pytest.mark.parametrize("name", ["message", "msg"])
def test_a_message_as_the_answer_is_read_by_both_its_names(name: str) -> None:
    answer = {name: {**MESSAGE, "role": "ROLE_AGENT"}}
    assert V03_REST.decode_answer(as_bytes(answer)) == Message("m-1", Role.AGENT, (Part("hello"),))


def test_a_status_message_is_read_by_its_name_in_the_definition() -> None:
    update = {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING", "update": MESSAGE}}
    event = read_event({"statusUpdate": update})
    assert isinstance(event, TaskStatusUpdateEvent)
    assert event.status.message is not None


def test_an_event_of_an_unknown_kind_is_passed_over() -> None:
    assert read_event({"novelty": {"id": "x"}}) is None


@pytest.mark.parametrize("body", [b"[]", b"{}", b"null", b"{", b"\xff", b'{"task":{}}', b"[" * 5000])
def test_an_answer_that_is_none_is_the_peers_fault(body: bytes) -> None:
    for decode in (V03_REST.decode_answer, V03_REST.decode_task, V03_REST.decode_config, V03_REST.event_decoder()):
        with pytest.raises(InvalidPeerResponse):
            decode(body)


# --- nothing is lost, and protobuf takes it ---------------------------------------------------------------------------


@both
@pytest.mark.parametrize("name", ["Task", "Message", "TaskStatusUpdateEvent", "TaskArtifactUpdateEvent"])
@FIXED
@given(st.data())
def test_what_1_0_can_say_comes_back(name: str, dialect: _V03Rest, data: st.DataObject) -> None:
    value = data.draw(values(name))
    (json_,) = dialect.event_encoder()(Event(value))
    back = V03_REST.event_decoder()(json_)
    assert back == value
    assert canonical(back) == canonical(value)
    if isinstance(value, Task):
        assert V03_REST.decode_task(dialect.encode_task(Encoded(Task, value=value))) == value


@both
@FIXED
@given(values("SendMessageRequest"))
def test_a_message_that_is_sent_comes_back_and_says_whether_it_waits(
    dialect: _V03Rest, value: SendMessageRequest
) -> None:
    body = dialect.encode_params(SEND, value)
    assert "configuration" in json.loads(body)
    back = V03_REST.read_params(SEND, body)
    plain = SendMessageConfiguration()
    assert (back.configuration or plain) == (value.configuration or plain)
    assert canonical(replace(back, configuration=None)) == canonical(replace(value, configuration=None))


@FIXED
@given(values("TaskPushNotificationConfig"))
def test_a_webhook_comes_back_but_for_its_tenant(value: TaskPushNotificationConfig) -> None:
    expected = TaskPushNotificationConfig(value.url, None, value.id, value.task_id, value.token, value.authentication)
    ours = V03_REST.read_params(CREATE, V03_REST.encode_params(CREATE, value))
    theirs = V03_REST.decode_config(V03_REST.encode_config(value))
    for read in (ours, theirs):
        if value.task_id is not None and "/pushNotificationConfigs" not in value.task_id:
            assert (read.task_id, read.id or value.id) == (value.task_id, value.id or read.id)
        assert (read.url, read.token, read.authentication) == (expected.url, expected.token, expected.authentication)
    page = ListTaskPushNotificationConfigsResponse((value,), "next")
    assert V03_REST.decode_configs(V03_REST.encode_configs(page)).next_page_token == "next"


@FIXED
@given(st.lists(values("Task"), max_size=2))
def test_a_page_of_tasks_comes_back(tasks: list[Task]) -> None:
    page = ListTasksResponse(tuple(tasks), "next", 50, 2)
    assert V03_REST.decode_page(V03_REST.encode_page(page)) == page


@both
@FIXED
@given(st.data())
def test_protobufs_own_parser_takes_every_field_that_is_written(dialect: _V03Rest, data: st.DataObject) -> None:
    events = ("Task", "Message", "TaskStatusUpdateEvent", "TaskArtifactUpdateEvent")
    event = data.draw(st.one_of([values(name) for name in events]))
    if not isinstance(event, Message):  # what is empty protobuf leaves out, and a task has an id
        event = replace(event, **{"id" if isinstance(event, Task) else "task_id": "t"})
    parsed = ParseDict(told(event, dialect), pb.StreamResponse())
    again = V03_REST.event_decoder()(json.dumps(MessageToDict(parsed)).encode())
    assert type(again) is type(event)
    request = data.draw(values("SendMessageRequest"))
    Parse(dialect.encode_params(SEND, request), pb.SendMessageRequest())
    config = data.draw(values("TaskPushNotificationConfig"))
    Parse(dialect.encode_config(config), pb.TaskPushNotificationConfig())
    Parse(dialect.encode_params(CREATE, config), pb.CreateTaskPushNotificationConfigRequest())


@pytest.mark.parametrize("raw", FILES[1:])
def test_a_file_is_for_the_official_sdk_what_it_is_for_us(raw: bytes) -> None:
    event = told(Message("m", Role.AGENT, (Part(raw=raw, filename="f", media_type="image/png"),)), V03_REST_TWICE)
    theirs = proto_utils.FromProto.message(ParseDict(event["message"], pb.Message()))
    core = conversions.to_core_message(theirs)
    assert (core.parts[0].raw, core.parts[0].filename) == (raw, "f")
    body = {"message": MessageToDict(proto_utils.ToProto.message(theirs))}
    assert sent(body).message.parts[0].raw == raw


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ParseError(), 400),
        (InvalidRequest(), 400),
        (MethodNotFound(), 404),
        (InvalidParams.at("message.parts", "is required"), 400),
        (InternalError(), 500),
        (TaskNotFound("t"), 404),
        (TaskNotCancelable("t", "completed"), 409),
        (PushNotificationNotSupported(), 501),
        (UnsupportedOperation(), 501),
        (ExtendedAgentCardNotConfigured(), 404),
        (VersionNotSupported("9.9", ["1.0", "0.3"]), 400),
    ],
)
def test_an_error_has_the_status_of_0_3_and_is_read_back_as_it_was(error: A2AError, status: int) -> None:
    given_status, body = encode_error(error)
    assert given_status == status
    told_ = json.loads(body)
    assert (told_["code"], told_["message"]) == (error.rpc_code, error.message)
    read = read_error(given_status, body)
    assert type(read) is type(error)
    assert (read.message, read.metadata, read.violations) == (error.message, error.metadata, error.violations)


@pytest.mark.parametrize(
    ("status", "body", "error", "message"),
    [
        (404, {"code": -32001, "message": "Task not found: t"}, TaskNotFound, "Task not found: t"),
        (400, {"code": -32003, "message": "no"}, PushNotificationNotSupported, "no"),
        (404, {"message": "Task not found"}, TaskNotFound, "Task not found"),
        (404, {"message": "Authenticated Extended Card is not configured"}, ExtendedAgentCardNotConfigured, None),
        (409, {"message": "Task cannot be canceled"}, TaskNotCancelable, "Task cannot be canceled"),
        (501, {"message": "Push Notification is not supported"}, PushNotificationNotSupported, None),
        (501, {"message": "This operation is not supported"}, UnsupportedOperation, None),
        (422, {"message": "Parameters are not valid"}, InvalidParams, None),
        (404, {"type": "TaskNotFoundError", "message": "x"}, TaskNotFound, "x"),
        (500, {"error": "UnsupportedOperationError", "message": "x"}, UnsupportedOperation, "x"),
        (400, {"error": {"code": -32602, "message": "bad"}}, InvalidParams, "bad"),
        (400, {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "bad"}}, InvalidParams, "bad"),
        (404, {"code": 5, "message": "gone", "details": []}, MethodNotFound, "gone"),
        (404, {"detail": "Not Found"}, MethodNotFound, "Not Found"),
        (500, {"message": "unknown exception"}, A2AError, "unknown exception"),
        (503, "busy", A2AError, "The agent answered HTTP 503."),
        (404, [], MethodNotFound, "The agent answered HTTP 404."),
    ],
)
def test_the_errors_of_other_servers_are_read(
    status: int, body: Any, error: type[A2AError], message: str | None
) -> None:
    read = read_error(status, as_bytes(body))
    assert type(read) is error
    assert message is None or read.message == message


def test_what_fastapi_says_of_a_field_is_a_violation() -> None:
    body = {"detail": [{"loc": ["body", "message", "parts"], "msg": "Field required", "type": "missing"}]}
    read = read_error(422, as_bytes(body))
    assert type(read) is InvalidParams
    assert [(v.field, v.description) for v in read.violations] == [("message.parts", "Field required")]
    assert read.message == "message.parts: Field required"


def test_an_error_of_google_rpc_is_read_by_its_reason() -> None:
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "TASK_NOT_FOUND",
        "domain": "a2a-protocol.org",
    }
    read = read_error(404, as_bytes({"error": {"code": 404, "message": "gone", "details": [info]}}))
    assert type(read) is TaskNotFound


@FIXED
@given(st.integers(0, 599), st.binary(max_size=20))
def test_any_body_is_some_error(status: int, body: bytes) -> None:
    assert isinstance(read_error(status, body), A2AError)
