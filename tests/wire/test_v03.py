"""A2A 0.3 as a dialect: what is read and written, and that nothing is lost between it and 1.0."""

from __future__ import annotations

import base64
import contextlib
import json
from typing import Any

import msgspec
import pytest
from a2a.compat.v0_3 import conversions
from a2a.compat.v0_3 import types as official
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from tests.wire.strategies import FIXED, exactly, free_json
from tests.wire.v03_values import JSON_03, spoilt, values, without_empty
from tieline.errors import InvalidParams, InvalidPeerResponse
from tieline.event import Event, TextChunk
from tieline.types import (
    Artifact,
    AuthenticationInfo,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    Encoded,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksResponse,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamEvent,
    SubscribeToTaskRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    encode,
)
from tieline.wire.methods import METHODS
from tieline.wire.v03 import _V03, V03

SEND = METHODS["SendMessage"]
BIG = 2**70 + 1
TEXT = {"kind": "text", "text": "hello"}
MESSAGE = {"kind": "message", "messageId": "m-1", "role": "user", "parts": [TEXT]}
STATES = {
    "unknown": TaskState.UNSPECIFIED,
    "submitted": TaskState.SUBMITTED,
    "working": TaskState.WORKING,
    "input-required": TaskState.INPUT_REQUIRED,
    "completed": TaskState.COMPLETED,
    "canceled": TaskState.CANCELED,
    "failed": TaskState.FAILED,
    "rejected": TaskState.REJECTED,
    "auth-required": TaskState.AUTH_REQUIRED,
}


def as_bytes(value: Any) -> bytes:
    return json.dumps(value).encode()


def sent(value: Any, dialect: _V03 = V03) -> SendMessageRequest:
    request = dialect.read_params(SEND, as_bytes(value))
    assert isinstance(request, SendMessageRequest)
    return request


def read_part(part: Any) -> Part:
    return sent({"message": {**MESSAGE, "parts": [part]}}).message.parts[0]


def written_part(part: Part) -> Any:
    message = Message("m", Role.USER, (part,))
    return json.loads(V03.encode_answer(Encoded(Message, value=message)))["parts"][0]


def told(event: Event) -> bytes:
    (json_,) = V03.event_encoder()(event)
    return json_


def read_event(value: Any) -> StreamEvent | None:
    return V03.event_decoder()(as_bytes(value))


def canonical(value: Any) -> str:
    return exactly(json.loads(encode(value)))


# --- requests ---------------------------------------------------------------------------------------------------------


def test_a_message_is_read_as_the_values_of_1_0() -> None:
    request = sent(
        {
            "message": {
                **MESSAGE,
                "contextId": "c",
                "taskId": "t",
                "extensions": ["urn:x"],
                "referenceTaskIds": ["r"],
                "metadata": {"k": 1},
            },
            "configuration": {
                "blocking": False,
                "acceptedOutputModes": ["text/plain"],
                "historyLength": 0,
                "pushNotificationConfig": {
                    "url": "https://hook.example",
                    "id": "p",
                    "token": "secret",
                    "authentication": {"schemes": ["Bearer", "Basic"], "credentials": "x"},
                },
            },
            "metadata": {"of": "request"},
        }
    )
    message = Message("m-1", Role.USER, (Part("hello"),), "c", "t", {"k": 1}, ("urn:x",), ("r",))
    push = TaskPushNotificationConfig(
        "https://hook.example", id="p", token="secret", authentication=AuthenticationInfo("Bearer", "x")
    )
    configuration = SendMessageConfiguration(("text/plain",), push, 0, True)
    assert request == SendMessageRequest(message, None, configuration, {"of": "request"})


@pytest.mark.parametrize(
    ("configuration", "waits", "at_once"),
    [
        (None, True, False),
        (None, False, True),
        ({}, True, False),
        ({}, False, True),
        ({"blocking": None}, False, True),
        ({"blocking": True}, False, False),
        ({"blocking": False}, True, True),
        ({"accepted_output_modes": ["text"]}, False, True),
    ],
)
def test_blocking_when_unset_is_as_the_server_is_set(configuration: Any, waits: bool, at_once: bool) -> None:
    read = sent({"message": MESSAGE, "configuration": configuration}, _V03(waits=waits)).configuration
    assert (read is not None and read.return_immediately) is at_once


def test_a_message_out_of_the_schema_without_blocking_returns_as_the_server_is_set() -> None:
    misspelt = {"message": {**MESSAGE, "parts": [{"type": "text", "text": "hello"}]}}
    waiting, at_once = sent(misspelt), sent(misspelt, _V03(waits=False))
    assert waiting.configuration is None
    assert at_once.configuration == SendMessageConfiguration(return_immediately=True)
    assert waiting.message == at_once.message == Message("m-1", Role.USER, (Part("hello"),))


def test_names_in_snake_case_are_read_also_where_nothing_is_missing_without_them() -> None:
    message = {"message_id": "m", "context_id": "c", "role": "user", "parts": [TEXT], "metadata": {"user_id": 1}}
    request = sent({"message": message, "configuration": {"history_length": 3, "accepted_output_modes": ["a/b"]}})
    assert request.message == Message("m", Role.USER, (Part("hello"),), "c", metadata={"user_id": 1})
    assert request.configuration == SendMessageConfiguration(("a/b",), None, 3)


@pytest.mark.parametrize("name", ["taskId", "contextId", "metadata", "extensions", "referenceTaskIds"])
def test_null_is_an_absent_field(name: str) -> None:
    assert sent({"message": {**MESSAGE, name: None}}).message == sent({"message": MESSAGE}).message


@pytest.mark.parametrize(
    ("part", "value"),
    [
        (TEXT, Part("hello")),
        ({"kind": "text", "text": ""}, Part("")),
        ({**TEXT, "metadata": {"a": 1}}, Part("hello", metadata={"a": 1})),
        (
            {"kind": "file", "file": {"bytes": "aGk=", "mimeType": "text/plain", "name": "a.txt"}},
            Part(raw=b"hi", filename="a.txt", media_type="text/plain"),
        ),
        ({"kind": "file", "file": {"uri": "https://x/y", "mimeType": None}}, Part(url="https://x/y")),
        ({"kind": "data", "data": {"n": BIG, "none": None}}, Part(data={"n": BIG, "none": None})),
        ({"kind": "data", "data": {"value": 1}}, Part(data={"value": 1})),
    ],
)
def test_parts_are_read_and_written(part: Any, value: Part) -> None:
    assert read_part(part) == value
    assert without_empty(written_part(value)) == without_empty(part)


@pytest.mark.parametrize("data", [None, True, 5, 1.5, BIG, "text", [], [1, None], [{"a": 1}]])
def test_data_that_is_no_object_is_wrapped_as_the_official_sdk_does(data: Any) -> None:
    written = written_part(Part(data=data))
    assert written == {"kind": "data", "data": {"value": data}, "metadata": {"data_part_compat": True}}
    assert read_part(written) == Part(data=data)
    core = conversions.to_core_part(official.Part.model_validate(written))
    assert core.data.WhichOneof("kind") in ("null_value", "bool_value", "number_value", "string_value", "list_value")


def test_an_object_with_the_mark_of_a_wrapped_value_stays_an_object() -> None:
    part = Part(data={"value": 1}, metadata={"data_part_compat": True, "own": 2})
    assert read_part(written_part(part)) == part


@pytest.mark.parametrize(
    ("part", "metadata"),
    [
        (Part("x", filename="f", media_type="a/b"), {"tieline/filename": "f", "tieline/mediaType": "a/b"}),
        (Part("x", metadata={"own": 1}, media_type="a/b"), {"own": 1, "tieline/mediaType": "a/b"}),
        (Part(data={"k": 1}, filename="d.json"), {"tieline/filename": "d.json"}),
        (
            Part("x", metadata={"tieline/filename": "own"}, filename="f"),
            {"tieline/metadata": {"tieline/filename": "own"}, "tieline/filename": "f"},
        ),
        (Part("x", metadata={}, filename="f"), {"tieline/metadata": {}, "tieline/filename": "f"}),
    ],
)
def test_what_a_part_has_no_field_for_is_carried_as_metadata(part: Part, metadata: Any) -> None:
    written = written_part(part)
    assert written["metadata"] == metadata
    assert read_part(written) == part


def test_integers_beyond_64_bits_stay_integers_when_they_are_read_and_written_again() -> None:
    request = sent({"message": {**MESSAGE, "metadata": {"n": BIG, "m": [-BIG]}}, "metadata": {"n": BIG}})
    assert str(BIG).encode() in encode(request)
    answer = V03.encode_answer(Encoded(Message, value=request.message))
    assert json.loads(answer)["metadata"] == {"n": BIG, "m": [-BIG]}
    assert json.loads(encode(V03.decode_answer(answer)))["metadata"] == {"n": BIG, "m": [-BIG]}


@pytest.mark.parametrize(
    ("name", "params", "request_"),
    [
        ("tasks/get", {"id": "t", "historyLength": 2, "metadata": {"a": 1}}, GetTaskRequest("t", None, 2)),
        ("tasks/get", {"id": "t", "history_length": 0}, GetTaskRequest("t", None, 0)),
        ("tasks/cancel", {"id": "t", "metadata": {"why": "x"}}, CancelTaskRequest("t", None, {"why": "x"})),
        ("tasks/resubscribe", {"id": "t"}, SubscribeToTaskRequest("t")),
        (
            "tasks/pushNotificationConfig/get",
            {"id": "t", "pushNotificationConfigId": "p"},
            GetTaskPushNotificationConfigRequest("t", "p"),
        ),
        ("tasks/pushNotificationConfig/get", {"id": "t"}, GetTaskPushNotificationConfigRequest("t", "t")),
        ("tasks/pushNotificationConfig/get", {"taskId": "t"}, GetTaskPushNotificationConfigRequest("t", "t")),
        ("tasks/pushNotificationConfig/list", {"id": "t"}, ListTaskPushNotificationConfigsRequest("t")),
        (
            "tasks/pushNotificationConfig/delete",
            {"id": "t", "pushNotificationConfigId": "p"},
            DeleteTaskPushNotificationConfigRequest("t", "p"),
        ),
        (
            "tasks/pushNotificationConfig/set",
            {"taskId": "t", "pushNotificationConfig": {"url": "u", "authentication": {"schemes": []}}},
            TaskPushNotificationConfig("u", task_id="t", authentication=AuthenticationInfo("")),
        ),
        ("agent/getAuthenticatedExtendedCard", {}, GetExtendedAgentCardRequest()),
    ],
)
def test_the_params_of_every_method_are_read(name: str, params: Any, request_: Any) -> None:
    method = V03.methods[name]
    assert V03.read_params(method, as_bytes(params)) == request_
    assert V03.read_params(method, msgspec.Raw(as_bytes(params))) == request_
    assert V03.names[method.name] == name


@pytest.mark.parametrize(
    ("name", "params", "field"),
    [
        ("message/send", {}, "message"),
        ("message/send", {"message": {"kind": "message"}}, "message.messageId"),
        ("message/send", {"message": {**MESSAGE, "messageId": 5}}, "message.messageId"),
        ("message/send", {"message": {**MESSAGE, "role": "robot"}}, "message.role"),
        ("message/send", {"message": {**MESSAGE, "parts": "invalid"}}, "message.parts"),
        ("message/send", {"message": {**MESSAGE, "parts": [{"kind": "text", "text": 1}]}}, "message.parts[0].text"),
        ("message/send", {"message": MESSAGE, "configuration": {"historyLength": "x"}}, "configuration.historyLength"),
        ("tasks/get", {}, "id"),
        ("tasks/cancel", {"id": 1}, "id"),
        ("tasks/pushNotificationConfig/delete", {"id": "t"}, "pushNotificationConfigId"),
    ],
)
def test_bad_params_are_refused_with_the_path_as_it_was_written(name: str, params: Any, field: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        V03.read_params(V03.methods[name], as_bytes(params))
    assert refused.value.violations[0].field == field


@pytest.mark.parametrize(
    "part",
    [
        {},
        {"kind": "hologram", "text": "x"},
        {"type": "unsupported_type", "text": "x"},
        {"kind": "file", "file": {}},
        {"kind": "file", "file": {"bytes": "!!!"}},
        {"kind": "data"},
    ],
)
def test_a_part_that_is_none_is_refused_by_its_place(part: Any) -> None:
    with pytest.raises(InvalidParams) as refused:
        sent({"message": {**MESSAGE, "parts": [TEXT, part]}})
    assert refused.value.violations[0].field.startswith("message.parts[1]")


def test_params_that_are_not_json_are_told_from_params_that_are_wrong() -> None:
    with pytest.raises(msgspec.DecodeError) as broken:
        V03.read_params(SEND, b'{"message":')
    assert not isinstance(broken.value, msgspec.ValidationError)


@pytest.mark.parametrize("name", V03.methods)
@FIXED
@given(st.data())
def test_any_json_is_a_request_or_invalid_params(name: str, data: st.DataObject) -> None:
    method = V03.methods[name]
    params = as_bytes(data.draw(spoilt("MessageSendParams") | spoilt("TaskPushNotificationConfig") | free_json))
    with contextlib.suppress(InvalidParams):
        assert isinstance(V03.read_params(method, params), method.request)


# --- answers and events -----------------------------------------------------------------------------------------------


def test_a_task_is_written_bare_with_kinds() -> None:
    task = Task(
        "t",
        TaskStatus(TaskState.COMPLETED, Message("s", Role.AGENT, (Part("done"),)), "2025-01-01T00:00:00.000Z"),
        "c",
        (Artifact("a", (Part("out"),), "name", "words", {"k": 1}, ("urn:x",)),),
        (Message("m", Role.USER, (Part("in"),)),),
        {"own": True},
    )
    expected = {
        "kind": "task",
        "id": "t",
        "contextId": "c",
        "status": {
            "state": "completed",
            "message": {
                "kind": "message",
                "messageId": "s",
                "role": "agent",
                "parts": [{"kind": "text", "text": "done"}],
            },
            "timestamp": "2025-01-01T00:00:00.000Z",
        },
        "artifacts": [
            {
                "artifactId": "a",
                "parts": [{"kind": "text", "text": "out"}],
                "name": "name",
                "description": "words",
                "metadata": {"k": 1},
                "extensions": ["urn:x"],
            }
        ],
        "history": [{"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "in"}]}],
        "metadata": {"own": True},
    }
    assert json.loads(V03.encode_answer(Encoded(Task, value=task))) == expected
    assert json.loads(V03.encode_task(Encoded(Task, json=encode(task)))) == expected


def test_a_task_without_context_has_an_empty_one() -> None:
    written = json.loads(V03.encode_task(Encoded(Task, value=Task("t", TaskStatus(TaskState.WORKING)))))
    assert written["contextId"] == ""
    assert V03.decode_task(as_bytes(written)).context_id is None


@pytest.mark.parametrize(("name", "state"), STATES.items())
def test_every_state_has_its_name(name: str, state: TaskState) -> None:
    written = json.loads(V03.encode_task(Encoded(Task, value=Task("t", TaskStatus(state)))))
    assert written["status"] == {"state": name}
    assert V03.decode_task(as_bytes(written)).state is state


@pytest.mark.parametrize("state", list(TaskState))
def test_final_is_said_of_what_ends_the_stream_of_who_sent(state: TaskState) -> None:
    event = Event(TaskStatusUpdateEvent("t", "c", TaskStatus(state)))
    written = json.loads(told(event))
    assert written["kind"] == "status-update"
    assert written["final"] is (state.terminal or state is TaskState.INPUT_REQUIRED)


def test_the_bytes_of_an_event_are_made_once_for_all_who_follow() -> None:
    event = Event(TaskStatusUpdateEvent("t", "c", TaskStatus(TaskState.WORKING)))
    first = V03.event_encoder()(event)
    assert _V03(waits=False).event_encoder()(event)[0] is first[0]


def test_bytes_that_another_dialect_has_left_are_not_taken_for_its_own() -> None:
    event = Event(Message("m", Role.AGENT, (Part("x"),)))
    event.told = (object(), b"other")
    assert json.loads(told(event))["kind"] == "message"


@pytest.mark.parametrize("text", ["word", "", '"parts":[{', 'é\n\\"', "\u2028"])
@pytest.mark.parametrize("id_", ["a", 'x"parts":[{"', "é"])
def test_a_chunk_of_text_is_written_without_making_values(text: str, id_: str) -> None:
    value = TaskArtifactUpdateEvent(id_, id_, Artifact(id_, (Part(text),)), append=True)
    chunk = TextChunk(Event(value).json, id_, text, None)
    assert told(chunk) == told(Event(value))
    assert chunk._value is None


def test_a_chunk_of_text_with_a_media_type_carries_it() -> None:
    value = TaskArtifactUpdateEvent("t", "c", Artifact("a", (Part("x", media_type="text/markdown"),)), append=True)
    chunk = TextChunk(Event(value).json, "a", "x", "text/markdown")
    assert read_event(json.loads(told(chunk))) == value


@pytest.mark.parametrize("wrapped", [False, True])
def test_an_answer_is_read_bare_or_wrapped(wrapped: bool) -> None:
    task = {"kind": "task", "id": "t", "contextId": "c", "status": {"state": "working"}}
    read = V03.decode_answer(as_bytes({"task": task} if wrapped else task))
    assert read == Task("t", TaskStatus(TaskState.WORKING), "c")
    message = V03.decode_answer(as_bytes({"message": MESSAGE} if wrapped else MESSAGE))
    assert message == Message("m-1", Role.USER, (Part("hello"),))


def test_an_event_is_read_with_kind_and_in_its_wrapper_and_without_either() -> None:
    event = {"taskId": "t", "contextId": "c", "status": {"state": "completed"}, "final": True}
    expected = TaskStatusUpdateEvent("t", "c", TaskStatus(TaskState.COMPLETED))
    assert read_event({"kind": "status-update", **event}) == expected
    assert read_event({"statusUpdate": event}) == expected
    assert read_event(event) == expected


@pytest.mark.parametrize("event", [{"kind": "telemetry", "id": "t", "status": {"state": "working"}}, {"novelty": {}}])
def test_an_event_of_an_unknown_kind_is_passed_over(event: Any) -> None:
    assert read_event(event) is None


@pytest.mark.parametrize("body", [b"[]", b"{}", b"null", b'"x"', b"{", b"\xff", b"[" * 5000])
def test_an_answer_that_is_none_is_the_peers_fault(body: bytes) -> None:
    for decode in (V03.decode_answer, V03.decode_task, V03.decode_config, V03.event_decoder()):
        with pytest.raises(InvalidPeerResponse):
            decode(body)


def test_a_bad_field_of_an_answer_is_named_by_its_path() -> None:
    task = {"kind": "task", "id": "t", "contextId": "c", "status": {"state": "asleep"}}
    with pytest.raises(InvalidPeerResponse, match=r"result\.status\.state"):
        V03.decode_answer(as_bytes(task))


def test_webhooks_are_a_bare_list() -> None:
    configs = (
        TaskPushNotificationConfig("u", id="1", task_id="t"),
        TaskPushNotificationConfig("v", "tenant", "2", "t"),
    )
    for token in (None, "next"):
        response = ListTaskPushNotificationConfigsResponse(configs, token)
        written = json.loads(V03.encode_configs(response))
        assert [config["pushNotificationConfig"]["url"] for config in written] == ["u", "v"]
        assert V03.decode_configs(as_bytes(written)) == response
    assert V03.decode_configs(b"[]") == ListTaskPushNotificationConfigsResponse()


@pytest.mark.parametrize("name", ["Task", "Message", "TaskStatusUpdateEvent", "TaskArtifactUpdateEvent"])
@FIXED
@given(st.data())
def test_any_json_is_an_answer_or_the_peers_fault(name: str, data: st.DataObject) -> None:
    body = as_bytes(data.draw(spoilt(name) | free_json))
    for decode in (V03.decode_answer, V03.decode_task, V03.decode_page, V03.decode_configs, V03.event_decoder()):
        with contextlib.suppress(InvalidPeerResponse):
            decode(body)


# --- nothing is lost --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Task", "Message", "TaskStatusUpdateEvent", "TaskArtifactUpdateEvent"])
@FIXED
@given(st.data())
def test_what_1_0_can_say_comes_back_from_0_3(name: str, data: st.DataObject) -> None:
    value = data.draw(values(name))
    back = V03.event_decoder()(told(Event(value)))
    assert canonical(back) == canonical(value)
    assert back == value
    if isinstance(value, Task):
        assert V03.decode_answer(V03.encode_answer(Encoded(Task, value=value))) == value
    if isinstance(value, Message):
        assert V03.decode_answer(V03.encode_answer(Encoded(Message, value=value))) == value


@pytest.mark.parametrize("name", [method.name for method in V03.methods.values()])
@FIXED
@given(st.data())
def test_every_request_of_1_0_comes_back_from_0_3(name: str, data: st.DataObject) -> None:
    method = METHODS[name]
    value = data.draw(values(method.request.__name__).filter(lambda made: getattr(made, "id", None) != ""))
    if isinstance(value, TaskPushNotificationConfig):
        assert V03.decode_config(V03.encode_config(value)) == value
    read = V03.read_params(method, V03.encode_params(method, value))
    assert read == value
    assert canonical(read) == canonical(value)


@FIXED
@given(st.lists(values("Task"), max_size=2))
def test_a_page_of_tasks_comes_back(tasks: list[Task]) -> None:
    page = ListTasksResponse(tuple(tasks), "next", 50, 2)
    assert V03.decode_page(V03.encode_page(page)) == page


@pytest.mark.parametrize("name", JSON_03)
@FIXED
@given(st.data())
def test_what_0_3_can_say_comes_back_from_1_0(name: str, data: st.DataObject) -> None:
    given_ = data.draw(JSON_03[name])
    json_ = as_bytes(given_)
    if name == "MessageSendParams":
        written = V03.encode_params(SEND, V03.read_params(SEND, json_))
    elif name == "TaskPushNotificationConfig":
        written = V03.encode_config(V03.decode_config(json_))
    else:
        event = V03.event_decoder()(json_)
        assert event is not None
        written = told(Event(event))
    assert exactly(without_empty(json.loads(written))) == exactly(without_empty(given_))


# --- against the official types ---------------------------------------------------------------------------------------

_EVENT: TypeAdapter[Any] = TypeAdapter(
    official.Task | official.Message | official.TaskStatusUpdateEvent | official.TaskArtifactUpdateEvent
)


@pytest.mark.parametrize("name", ["Task", "Message", "TaskStatusUpdateEvent", "TaskArtifactUpdateEvent"])
@FIXED
@given(st.data())
def test_the_official_types_take_what_is_written_and_give_it_back(name: str, data: st.DataObject) -> None:
    value = data.draw(values(name))
    theirs = _EVENT.validate_json(told(Event(value)))
    assert type(theirs).__name__ == name
    assert V03.event_decoder()(theirs.model_dump_json().encode()) == value
    assert V03.event_decoder()(theirs.model_dump_json(exclude_none=False, by_alias=False).encode()) == value


@FIXED
@given(values("SendMessageRequest"))
def test_the_official_types_take_a_message_that_is_sent(value: SendMessageRequest) -> None:
    theirs = official.MessageSendParams.model_validate_json(V03.encode_params(SEND, value))
    assert V03.read_params(SEND, theirs.model_dump_json().encode()).message == value.message


@FIXED
@given(values("TaskPushNotificationConfig"))
def test_the_official_types_take_a_webhook(value: TaskPushNotificationConfig) -> None:
    theirs = official.TaskPushNotificationConfig.model_validate_json(V03.encode_config(value))
    assert theirs.push_notification_config.url == value.url


def test_a_file_is_for_the_official_sdk_what_it_is_for_us() -> None:
    written = written_part(Part(raw=b"\x00\xff", filename="a.bin", media_type="a/b"))
    core = conversions.to_core_part(official.Part.model_validate(written))
    assert (core.raw, core.filename, core.media_type) == (b"\x00\xff", "a.bin", "a/b")
    assert base64.b64decode(written["file"]["bytes"]) == b"\x00\xff"
