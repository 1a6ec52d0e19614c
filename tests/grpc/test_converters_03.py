"""Values of A2A 1.0 to the protobuf of 0.3 and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb
from google.protobuf import struct_pb2
from hypothesis import given
from msgspec.structs import replace

from tests.grpc.test_converters import inexact
from tests.wire.strategies import FIXED, minimal, wire_json
from tieline.card import AgentCard
from tieline.errors import InvalidParams, InvalidPeerResponse, UnsupportedOperation
from tieline.types import (
    Artifact,
    CancelTaskRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    decode,
)
from tieline.wire.methods import METHODS
from tieline.wire.protobuf03 import RPCS, RPCS_OF_PYTHON, SERVICE
from tieline.wire.protobuf_rpcs import Rpc

SEND = RPCS["SendMessage"]


def message(*parts: Part, **fields: Any) -> Message:
    return Message("m", Role.USER, parts or (Part("hi"),), **fields)


def written(part: Part) -> Any:
    """A part as 0.3 has it."""
    return pb.SendMessageRequest.FromString(SEND.write_request(SendMessageRequest(message(part)))).request.content[0]


def carried(part: Part) -> Part:
    back = SEND.read_request(SEND.write_request(SendMessageRequest(message(part))))
    assert isinstance(back, SendMessageRequest)
    return back.message.parts[0]


@FIXED
@given(wire_json("StreamResponse"))
def test_events_come_back_as_they_were_or_are_refused_for_an_integer_that_is_no_double(wire: dict[str, Any]) -> None:
    event = decode(json.dumps(wire).encode(), StreamResponse).event
    for rpc in (RPCS["SendStreamingMessage"], RPCS_OF_PYTHON["TaskSubscription"]):
        try:
            data = rpc.write_answer(event)
        except UnsupportedOperation:
            assert inexact(wire)
        else:
            assert rpc.read_answer(data) == event


@FIXED
@given(wire_json("SendMessageRequest"))
def test_a_message_comes_back_as_it_was_but_for_what_0_3_cannot_tell(wire: dict[str, Any]) -> None:
    wire.pop("tenant", None)
    configuration = wire.get("configuration", {})
    configuration.pop("taskPushNotificationConfig", None)
    if configuration.get("historyLength") == 0:
        del configuration["historyLength"]
    request = decode(json.dumps(wire).encode(), SendMessageRequest)
    if inexact(wire):
        with pytest.raises(InvalidParams):
            SEND.write_request(request)
        return
    back = SEND.read_request(SEND.write_request(request))
    assert replace(back, configuration=None) == replace(request, configuration=None)
    said = SendMessageConfiguration()
    assert (back.configuration or said) == (request.configuration or said)


@FIXED
@given(wire_json("AgentCard"))
def test_the_card_of_0_3_tells_what_the_card_of_1_0_tells(wire: dict[str, Any]) -> None:
    interfaces = [{"url": "host:1", "protocolBinding": "GRPC", "protocolVersion": "0.3"}]
    wire = {**wire, "supportedInterfaces": interfaces}
    wire = {name: value for name, value in wire.items() if value or name not in ("documentationUrl", "iconUrl")}
    card = decode(json.dumps(wire).encode(), AgentCard)
    if inexact(wire):
        return
    rpc = RPCS["GetAgentCard"]
    back = rpc.read_answer(rpc.write_answer(card))
    flows = ("deviceCode", "pkceRequired")  # came with 1.0
    if any(name in json.dumps(wire) for name in flows):
        return
    capabilities = card.capabilities
    assert back == replace(
        card,
        capabilities=replace(
            capabilities,
            streaming=bool(capabilities.streaming),
            push_notifications=bool(capabilities.push_notifications),
            extended_agent_card=bool(capabilities.extended_agent_card),
        ),
    )


def test_there_is_an_rpc_for_every_method_of_the_service() -> None:
    described = pb.DESCRIPTOR.services_by_name["A2AService"]
    assert described.full_name == SERVICE
    assert {method.name for method in described.methods} == set(RPCS) == set(RPCS_OF_PYTHON)
    assert {rpc.operation for rpc in RPCS.values()} == set(METHODS) - {"ListTasks"}


@pytest.mark.parametrize("name", [name for name in RPCS if name not in ("SendMessage", "SendStreamingMessage")])
def test_requests_come_back_as_they_were(name: str) -> None:
    rpc = RPCS[name]
    type_ = METHODS[rpc.operation].request
    wire = minimal(type_.__name__, whole=True)
    wire.pop("tenant", None)
    if type_ is CancelTaskRequest:
        wire.pop("metadata")
    request = decode(json.dumps(wire).encode(), type_)
    assert rpc.read_request(rpc.write_request(request)) == request


@pytest.mark.parametrize("value", [None, 5, "x", [1], {"value": 1}, {}, {"data_part_compat": True}])
def test_data_that_is_no_object_is_wrapped_and_marked_as_the_official_sdk_does(value: Any) -> None:
    part = Part(data=value, metadata={"mine": 1})
    assert carried(part) == part
    assert carried(Part(data=value)) == Part(data=value)
    wrapped = not isinstance(value, dict)
    assert ("data_part_compat" in written(part).metadata.fields) == wrapped
    assert set(written(part).data.data.fields) == ({"value"} if wrapped else set(value))


def test_name_and_type_of_text_and_data_are_carried_as_metadata_and_those_of_files_in_their_fields() -> None:
    for part in (
        Part("x", filename="a.txt", media_type="text/markdown"),
        Part("x", filename="a.txt", metadata={}),
        Part("x", media_type="text/html", metadata={"tieline/filename": "mine", "k": 1}),
        Part(data=[1], filename="a.json", media_type="application/json", metadata={"data_part_compat": "mine"}),
        Part(raw=b"\0\xff", filename="a.bin", media_type="application/octet-stream", metadata={"k": 1}),
        Part(url="https://example.com/a", filename="a", media_type="text/csv"),
    ):
        assert carried(part) == part
    text = written(Part("x", filename="a.txt", media_type="text/markdown"))
    assert dict(text.metadata) == {"tieline/filename": "a.txt", "tieline/mediaType": "text/markdown"}
    file = written(Part(raw=b"\0\xff", filename="a.bin", media_type="image/png")).file
    assert (file.file_with_bytes, file.name, file.mime_type) == (b"\0\xff", "a.bin", "image/png")


def test_files_are_text_in_base64_for_the_python_sdk_and_bytes_for_everybody_else() -> None:
    request = SendMessageRequest(message(Part(raw=b"\0\xff\x10")))
    rpc = RPCS_OF_PYTHON["SendMessage"]
    sent = pb.SendMessageRequest.FromString(rpc.write_request(request))
    assert sent.request.content[0].file.file_with_bytes == b"AP8Q"
    assert rpc.read_request(rpc.write_request(request)).message == request.message
    assert rpc.read_request(SEND.write_request(request)).message == request.message  # what is no base64 is bytes
    assert pb.SendMessageRequest.FromString(SEND.write_request(request)).request.content[0].file.file_with_bytes == (
        b"\0\xff\x10"
    )


@pytest.mark.parametrize("state", list(TaskState))
def test_status_updates_say_whether_they_are_the_last(state: TaskState) -> None:
    event = TaskStatusUpdateEvent("t", "c", TaskStatus(state))
    data = RPCS["SendStreamingMessage"].write_answer(event)
    update = pb.StreamResponse.FromString(data).status_update
    assert update.final == (state.terminal or state is TaskState.INPUT_REQUIRED)
    assert RPCS["SendStreamingMessage"].read_answer(data) == event


@pytest.mark.parametrize("rpc", ["SendStreamingMessage", "TaskSubscription"])
@pytest.mark.parametrize("rpcs", [RPCS, RPCS_OF_PYTHON])
def test_a_question_behind_which_the_stream_goes_on_is_not_the_last_event(rpcs: dict[str, Rpc], rpc: str) -> None:
    for state in TaskState:
        event = TaskStatusUpdateEvent("t", "c", TaskStatus(state))
        data = rpcs[rpc].write_passing(event)
        assert pb.StreamResponse.FromString(data).status_update.final == state.terminal
        assert rpcs[rpc].read_answer(data) == event


def test_only_a_request_that_says_blocking_waits() -> None:
    plain = pb.Message(message_id="m", role=pb.ROLE_USER, content=[pb.Part(text="x")])

    def read(configuration: Any) -> bool:
        request = pb.SendMessageRequest(request=plain, configuration=configuration)
        given = SEND.read_request(request.SerializeToString()).configuration
        return given is None or not given.return_immediately

    assert read(pb.SendMessageConfiguration(blocking=True))
    assert read(pb.SendMessageConfiguration(blocking=True, history_length=3))
    assert not read(None)
    assert not read(pb.SendMessageConfiguration())
    assert not read(pb.SendMessageConfiguration(blocking=False))
    assert not read(pb.SendMessageConfiguration(accepted_output_modes=["text/plain"]))


@pytest.mark.parametrize(
    "configuration",
    [
        None,
        SendMessageConfiguration(),
        SendMessageConfiguration(return_immediately=True),
        SendMessageConfiguration(("text/plain",), return_immediately=True, history_length=3),
        SendMessageConfiguration(
            task_push_notification_config=TaskPushNotificationConfig("https://example.com", id="c", task_id="t")
        ),
    ],
)
def test_how_an_answer_is_wanted_comes_back_as_it_was(configuration: SendMessageConfiguration | None) -> None:
    request = SendMessageRequest(message(), configuration=configuration, metadata={"k": 1})
    back = SEND.read_request(SEND.write_request(request))
    assert (back.configuration or SendMessageConfiguration()) == (configuration or SendMessageConfiguration())
    assert back.metadata == {"k": 1}
    sent = pb.SendMessageRequest.FromString(SEND.write_request(request))
    assert sent.configuration.blocking == (configuration is None or not configuration.return_immediately)


def test_the_tasks_that_a_message_refers_to_are_carried_as_metadata() -> None:
    request = SendMessageRequest(message(reference_task_ids=("a", "b"), metadata={"k": 1}, task_id="t", context_id="c"))
    assert SEND.read_request(SEND.write_request(request)).message == request.message


@pytest.mark.parametrize(
    ("rpc", "request_", "field"),
    [
        ("SendMessage", SendMessageRequest(message(), tenant="x"), "tenant"),
        ("GetTask", GetTaskRequest("t", "x"), "tenant"),
        ("GetTask", GetTaskRequest("t", history_length=0), "historyLength"),
        ("GetTask", GetTaskRequest("a/b"), "id"),
        ("GetTask", GetTaskRequest(""), "id"),
        ("CancelTask", CancelTaskRequest("t", metadata={}), "metadata"),
        ("TaskSubscription", SubscribeToTaskRequest("t", "x"), "tenant"),
        ("ListTaskPushNotificationConfig", ListTaskPushNotificationConfigsRequest("t", "x"), "tenant"),
    ],
)
def test_what_0_3_has_no_place_for_is_refused_by_its_name(rpc: str, request_: Any, field: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        RPCS[rpc].write_request(request_)
    assert [violation.field for violation in caught.value.violations] == [field]


@pytest.mark.parametrize(
    ("rpc", "request_", "field"),
    [
        ("SendMessage", pb.SendMessageRequest(), "message"),
        ("SendMessage", pb.SendMessageRequest(request=pb.Message(content=[pb.Part()])), "message.parts[0]"),
        (
            "SendMessage",
            pb.SendMessageRequest(request=pb.Message(content=[pb.Part(file=pb.FilePart(name="x"))])),
            "message.parts[0].file",
        ),
        ("SendMessage", pb.SendMessageRequest(request=pb.Message(role=9)), "message.role"),  # type: ignore[arg-type]
        ("GetTask", pb.GetTaskRequest(), "name"),
        ("GetTask", pb.GetTaskRequest(name="t"), "name"),
        ("CancelTask", pb.CancelTaskRequest(name="task/a"), "name"),
        ("GetTaskPushNotificationConfig", pb.GetTaskPushNotificationConfigRequest(name="tasks/t"), "name"),
    ],
)
def test_a_request_with_a_bad_or_missing_field_is_refused_by_the_name_of_the_field(
    rpc: str, request_: Any, field: str
) -> None:
    with pytest.raises(InvalidParams) as caught:
        RPCS[rpc].read_request(request_.SerializeToString())
    assert [violation.field for violation in caught.value.violations] == [field]


def test_references_that_are_no_list_of_strings_are_refused() -> None:
    metadata = struct_pb2.Struct()
    metadata["tieline/referenceTaskIds"] = [1]
    task = pb.Task(id="t", status=pb.TaskStatus(), history=[pb.Message(metadata=metadata)])
    with pytest.raises(InvalidPeerResponse, match="list of strings"):
        RPCS["GetTask"].read_answer(task.SerializeToString())


def test_an_integer_that_is_no_double_is_refused_at_the_place_that_it_has_in_1_0() -> None:
    artifact = Artifact("a", (Part(data=[2**53 + 1]),))
    with pytest.raises(UnsupportedOperation) as caught:
        RPCS["GetTask"].write_answer(Task("t", TaskStatus(TaskState.COMPLETED), artifacts=(artifact,)))
    assert caught.value.metadata == {"field": "artifacts[0].parts[0].data[0]", "taskId": "t"}
    with pytest.raises(UnsupportedOperation) as caught:
        RPCS["TaskSubscription"].write_answer(TaskArtifactUpdateEvent("t", "c", artifact))
    assert caught.value.metadata["field"] == "artifactUpdate.artifact.parts[0].data[0]"
