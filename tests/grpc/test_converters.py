"""Values of A2A 1.0 to protobuf and back."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf import json_format, struct_pb2, timestamp_pb2
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.wire.strategies import FIXED, minimal, wire_json
from tieline.card import AgentCard
from tieline.errors import InvalidParams, InvalidPeerResponse, ParseError, UnsupportedOperation
from tieline.types import (
    Artifact,
    GetTaskRequest,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SendMessageResponse,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    decode,
    encode,
)
from tieline.wire.methods import METHODS
from tieline.wire.protobuf import RPCS, SERVICE

_EXACT = 2**53


def inexact(value: Any) -> bool:
    """Whether there is an integer in JSON that is no double."""
    if isinstance(value, dict):
        return any(inexact(item) for item in value.values())
    if isinstance(value, list):
        return any(inexact(item) for item in value)
    return isinstance(value, int) and not isinstance(value, bool) and int(float(value)) != value


def message(*parts: Part, **fields: Any) -> Message:
    return Message("m", Role.USER, parts or (Part("hi"),), **fields)


def carried(value: Any) -> Any:
    """A JSON value there and back in a data part."""
    rpc = RPCS["SendMessage"]
    request = SendMessageRequest(message(Part(data=value)))
    return rpc.read_request(rpc.write_request(request)).message.parts[0].data


def told(task: Task) -> Any:
    return RPCS["GetTask"].read_answer(RPCS["GetTask"].write_answer(task))


REQUESTS = [name for name in RPCS if name not in ("SendMessage", "GetExtendedAgentCard")]


@FIXED
@given(wire_json("SendMessageRequest"))
def test_a_message_comes_back_as_it_was_or_is_refused_for_an_integer_that_is_no_double(wire: dict[str, Any]) -> None:
    rpc = RPCS["SendMessage"]
    request = decode(json.dumps(wire).encode(), SendMessageRequest)
    webhook = wire.get("configuration", {}).get("taskPushNotificationConfig")
    try:
        data = rpc.write_request(request)
    except InvalidParams:
        assert inexact(wire)
        return
    assert not inexact(wire)
    assert rpc.read_request(data) == request
    assert webhook is None or rpc.read_request(data).configuration.task_push_notification_config.url == webhook["url"]


@pytest.mark.parametrize(
    ("name", "type_", "rpc"),
    [
        ("Task", Task, "GetTask"),
        ("AgentCard", AgentCard, "GetExtendedAgentCard"),
        ("ListTasksResponse", ListTasksResponse, "ListTasks"),
        ("TaskPushNotificationConfig", TaskPushNotificationConfig, "CreateTaskPushNotificationConfig"),
    ],
)
def test_an_answer_comes_back_as_it_was_or_is_refused_for_an_integer_that_is_no_double(
    name: str, type_: type[Any], rpc: str
) -> None:
    @FIXED
    @given(wire_json(name))
    def check(wire: dict[str, Any]) -> None:
        value = decode(json.dumps(wire).encode(), type_)
        try:
            data = RPCS[rpc].write_answer(value)
        except UnsupportedOperation:
            assert inexact(wire)
            return
        assert not inexact(wire)
        if name == "TaskPushNotificationConfig" and not wire["url"]:
            return
        assert RPCS[rpc].read_answer(data) == value

    check()


@FIXED
@given(wire_json("StreamResponse"))
def test_events_come_back_as_they_were(wire: dict[str, Any]) -> None:
    event = decode(json.dumps(wire).encode(), StreamResponse).event
    rpc = RPCS["SendStreamingMessage"]
    if not inexact(wire):
        assert rpc.read_answer(rpc.write_answer(event)) == event
        assert RPCS["SubscribeToTask"].write_answer(event) == rpc.write_answer(event)


@FIXED
@given(wire_json("StreamResponse"))
def test_what_is_written_is_what_the_official_json_mapping_makes_of_the_same_json(wire: dict[str, Any]) -> None:
    if inexact(wire):
        return
    event = decode(json.dumps(wire).encode(), StreamResponse).event
    official = json_format.ParseDict(wire, pb.StreamResponse())
    assert pb.StreamResponse.FromString(RPCS["SendStreamingMessage"].write_answer(event)) == official


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_come_back_as_they_were(name: str) -> None:
    rpc = RPCS[name]
    type_ = METHODS[name].request
    for whole in (False, True):
        request = decode(json.dumps(minimal(type_.__name__, whole=whole)).encode(), type_)
        assert rpc.read_request(rpc.write_request(request)) == request


def test_there_is_an_rpc_for_every_operation_and_none_beside() -> None:
    assert set(RPCS) == set(METHODS)
    described = pb.DESCRIPTOR.services_by_name["A2AService"]
    assert described.full_name == SERVICE
    assert {method.name for method in described.methods} == set(RPCS)
    streams = {method.name for method in described.methods if method.server_streaming}
    assert {name for name, rpc in RPCS.items() if rpc.streaming} == streams


@pytest.mark.parametrize("number", [0, 1, -1, _EXACT, -_EXACT, 2**60, -(2**63), 1.5, -2.25e-300, 1e300, True, False])
def test_numbers_that_are_doubles_come_back_as_the_same_numbers(number: float) -> None:
    assert carried(number) == number
    assert isinstance(carried(number), type(number))


@pytest.mark.parametrize("number", [_EXACT + 1, -_EXACT - 1, 2**63 - 1, 10**400, 10**30 + 1])
def test_an_integer_that_is_no_double_is_refused_by_name_before_anything_is_sent(number: int) -> None:
    request = SendMessageRequest(message(Part("hi"), Part(data={"list": [1, {"n": number}]})))
    with pytest.raises(InvalidParams, match="double") as caught:
        RPCS["SendMessage"].write_request(request)
    assert [violation.field for violation in caught.value.violations] == ["message.parts[1].data.list[1].n"]
    assert "JSON-RPC" in str(caught.value)


def test_a_task_with_an_integer_that_is_no_double_is_refused_with_its_id_and_the_field() -> None:
    artifact = Artifact("a", (Part(data=_EXACT + 1),))
    task = Task("t", TaskStatus(TaskState.COMPLETED), artifacts=(Artifact("0", (Part("x"),)), artifact))
    with pytest.raises(UnsupportedOperation, match=r"artifacts\[1\]\.parts\[0\]\.data: 9007199254740993") as caught:
        RPCS["GetTask"].write_answer(task)
    assert caught.value.metadata == {"field": "artifacts[1].parts[0].data", "taskId": "t"}
    with pytest.raises(UnsupportedOperation) as caught:
        RPCS["SubscribeToTask"].write_answer(TaskArtifactUpdateEvent("t", "c", artifact))
    assert caught.value.metadata == {"field": "artifactUpdate.artifact.parts[0].data", "taskId": "t"}


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_does_not_have_are_refused_both_ways(number: float) -> None:
    with pytest.raises(InvalidParams, match="not a JSON value"):
        RPCS["SendMessage"].write_request(SendMessageRequest(message(Part(data=[number]))))
    part = pb.Part(data=struct_pb2.Value(number_value=number))
    sent = pb.SendMessageRequest(message=pb.Message(message_id="m", role=pb.ROLE_USER, parts=[part]))
    with pytest.raises(InvalidParams, match="not a JSON value") as caught:
        RPCS["SendMessage"].read_request(sent.SerializeToString())
    assert caught.value.violations[0].field == "message.parts[0].data"


@pytest.mark.parametrize(
    "value", [None, "", [], {}, {"": None}, [None, [], {}], {"a": {"b": [1, "x", True, None]}}, "\0é😀"]
)
def test_empty_and_null_values_stay_what_they_are(value: Any) -> None:
    assert carried(value) == value
    assert type(carried(value)) is type(value)


def test_null_data_is_not_absent_data_and_empty_metadata_is_not_absent_metadata() -> None:
    rpc = RPCS["SendMessage"]
    for request in (
        SendMessageRequest(message(Part(data=None), Part(""), Part(raw=b""), metadata={}), metadata={"n": None}),
        SendMessageRequest(message(Part(url="")), configuration=SendMessageConfiguration()),
        SendMessageRequest(message(Part(data={})), configuration=SendMessageConfiguration(history_length=0)),
    ):
        assert rpc.read_request(rpc.write_request(request)) == request


def test_values_that_are_more_than_json_are_written_as_the_json_that_they_are() -> None:
    assert carried({1: b"x", "state": TaskState.WORKING, "part": Part("p")}) == {
        "1": "eA==",
        "state": "TASK_STATE_WORKING",
        "part": {"text": "p"},
    }
    with pytest.raises(InvalidParams, match=r"message\.parts\[0\]\.data: is not a JSON value"):
        carried(object())


def test_json_as_deep_as_protobuf_takes_it_passes_and_deeper_is_refused() -> None:
    rpc = RPCS["GetTask"]

    def nested(depth: int, *, lists: bool) -> Task:
        value: Any = "x"
        for _ in range(depth):
            value = [value] if lists else {"a": value}
        word = Message("m", Role.AGENT, (Part(data=value),))
        return Task("t", TaskStatus(TaskState.WORKING, word))

    for lists in (False, True):
        deepest = next(depth for depth in range(1, 101) if _refused(nested(depth + 1, lists=lists)))
        assert deepest >= 30
        assert rpc.read_answer(rpc.write_answer(nested(deepest, lists=lists))) == nested(deepest, lists=lists)
        answer = RPCS["SendMessage"]
        told_task = nested(deepest, lists=lists)
        assert answer.read_answer(answer.write_answer(told_task)) == told_task


def _refused(task: Task) -> bool:
    try:
        RPCS["GetTask"].write_answer(task)
    except UnsupportedOperation as error:
        return "nests too deep" in str(error)
    return False


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("2025-01-01T00:00:00Z", "2025-01-01T00:00:00.000Z"),
        ("2025-01-01T00:00:00.1Z", "2025-01-01T00:00:00.100Z"),
        ("2025-01-01T02:00:00.123+02:00", "2025-01-01T00:00:00.123Z"),
        ("2025-01-01T00:00:00.123456Z", "2025-01-01T00:00:00.123456Z"),
        ("2025-01-01T00:00:00.123456789Z", "2025-01-01T00:00:00.123456789Z"),
        ("1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.999Z"),
        ("0001-01-01T00:00:00.000Z", "0001-01-01T00:00:00.000Z"),
        ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
    ],
)
def test_timestamps_are_read_in_utc_with_milliseconds_or_as_many_digits_as_they_have(text: str, read: str) -> None:
    task = Task("t", TaskStatus(TaskState.WORKING, timestamp=text))
    assert told(task).status.timestamp == read


@pytest.mark.parametrize(
    "text", ["yesterday", "2025-01-01T00:00:00", "2025-13-01T00:00:00Z", "0001-01-01T00:00:00+01:00"]
)
def test_what_is_no_timestamp_is_refused_by_its_field(text: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        RPCS["ListTasks"].write_request(ListTasksRequest(status_timestamp_after=text))
    assert caught.value.violations[0].field == "statusTimestampAfter"
    with pytest.raises(UnsupportedOperation, match=r"status\.timestamp"):
        RPCS["GetTask"].write_answer(Task("t", TaskStatus(TaskState.WORKING, timestamp=text)))


def test_a_timestamp_out_of_range_is_refused_when_it_is_read() -> None:
    status = pb.TaskStatus(state=pb.TASK_STATE_WORKING, timestamp=timestamp_pb2.Timestamp(seconds=2**62))
    with pytest.raises(InvalidPeerResponse, match=r"status\.timestamp"):
        RPCS["GetTask"].read_answer(pb.Task(id="t", status=status).SerializeToString())


def _sent(**fields: Any) -> pb.SendMessageRequest:
    given = {"message_id": "m", "role": pb.ROLE_USER, "parts": [pb.Part(text="x")], **fields}
    return pb.SendMessageRequest(message=pb.Message(**given))


@pytest.mark.parametrize(
    ("rpc", "request_", "field"),
    [
        ("SendMessage", pb.SendMessageRequest(), "message"),
        ("SendMessage", _sent(parts=[pb.Part(text="x"), pb.Part(filename="f")]), "message.parts[1]"),
        ("SendMessage", _sent(role=9), "message.role"),
        ("GetTask", pb.GetTaskRequest(), "id"),
        ("CancelTask", pb.CancelTaskRequest(), "id"),
        ("SubscribeToTask", pb.SubscribeToTaskRequest(), "id"),
        ("ListTasks", pb.ListTasksRequest(status=77), "status"),  # type: ignore[arg-type]
        ("CreateTaskPushNotificationConfig", pb.TaskPushNotificationConfig(task_id="t"), "url"),
        ("GetTaskPushNotificationConfig", pb.GetTaskPushNotificationConfigRequest(task_id="t"), "id"),
        ("DeleteTaskPushNotificationConfig", pb.DeleteTaskPushNotificationConfigRequest(id="t"), "taskId"),
    ],
)
def test_a_request_with_a_bad_or_missing_field_is_refused_by_the_name_of_the_field(
    rpc: str, request_: Any, field: str
) -> None:
    with pytest.raises(InvalidParams) as caught:
        RPCS[rpc].read_request(request_.SerializeToString())
    assert [violation.field for violation in caught.value.violations] == [field]


def test_bytes_that_are_no_message_are_a_parse_error_in_a_request_and_the_peers_fault_in_an_answer() -> None:
    with pytest.raises(ParseError):
        RPCS["GetTask"].read_request(b"\xff\xff\xff")
    with pytest.raises(InvalidPeerResponse):
        RPCS["GetTask"].read_answer(b"\xff\xff\xff")


@FIXED
@given(st.binary(max_size=64))
def test_of_any_bytes_at_all_only_documented_errors_come(data: bytes) -> None:
    for rpc in RPCS.values():
        with contextlib.suppress(InvalidParams, ParseError):
            rpc.read_request(data)
        with contextlib.suppress(InvalidPeerResponse):
            rpc.read_answer(data)


def test_an_answer_of_neither_task_nor_message_is_refused_and_an_unknown_event_passed_over() -> None:
    with pytest.raises(InvalidPeerResponse, match="it holds none"):
        RPCS["SendMessage"].read_answer(b"")
    assert RPCS["SendStreamingMessage"].read_answer(b"") is None
    task = pb.Task(id="t", status=pb.TaskStatus(), history=[pb.Message(role=5)])  # type: ignore[arg-type]
    with pytest.raises(InvalidPeerResponse, match=r"history\[0\]\.role"):
        RPCS["GetTask"].read_answer(task.SerializeToString())
    with pytest.raises(InvalidPeerResponse, match=r"task\.status: is required"):
        RPCS["SendMessage"].read_answer(pb.SendMessageResponse(task=pb.Task(id="t")).SerializeToString())


def test_what_cannot_be_utf_8_or_32_bits_is_refused() -> None:
    for request in (
        SendMessageRequest(message(Part("\ud800"))),
        SendMessageRequest(message(Part(data={"\ud800": 1}))),
        SendMessageRequest(message(extensions=("\ud800",))),
    ):
        with pytest.raises(InvalidParams, match="UTF-8"):
            RPCS["SendMessage"].write_request(request)
    with pytest.raises(InvalidParams, match="32 bits"):
        RPCS["GetTask"].write_request(GetTaskRequest("t", history_length=2**40))


def test_a_large_file_is_carried_as_its_bytes() -> None:
    raw = bytes(range(256)) * 4096
    rpc = RPCS["SendMessage"]
    data = rpc.write_request(SendMessageRequest(message(Part(raw=raw, filename="a.bin"))))
    assert len(data) < len(raw) + 100
    assert rpc.read_request(data).message.parts[0].raw == raw


def test_a_direct_message_and_a_task_are_told_apart_in_the_answer_to_send_message() -> None:
    rpc = RPCS["SendMessage"]
    for answer in (message(), replace(told(Task("t", TaskStatus(TaskState.WORKING))), context_id="c")):
        assert rpc.read_answer(rpc.write_answer(answer)) == answer
        wire = json_format.MessageToDict(pb.SendMessageResponse.FromString(rpc.write_answer(answer)))
        response = decode(json.dumps(wire).encode(), SendMessageResponse)
        assert encode(response.task or response.message) == encode(answer)
