"""What the specification shows is read, and written again as it stands there."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from tests.wire.examples import CARD, ENVELOPES, ERRORS, LACKING, RESULTS, SENDS
from tests.wire.schema import struct_of
from tests.wire.strategies import exactly
from tieline.card import AgentCard, check_card
from tieline.errors import A2AError, InvalidParams, TaskNotFound
from tieline.types import SendMessageRequest, decode, encode
from tieline.wire import jsonrpc, rest
from tieline.wire.methods import METHODS
from tieline.wire.v1 import V1


def as_bytes(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode()


@pytest.mark.parametrize("section", sorted(SENDS))
def test_a_message_of_the_specification_is_read_and_written_again(section: str) -> None:
    wire = SENDS[section]
    request = decode(as_bytes(wire), SendMessageRequest)
    assert exactly(json.loads(encode(request))) == exactly(wire)
    envelope = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": wire}
    call = jsonrpc.read_call(as_bytes(envelope))
    assert (call.id, call.method) == (b"1", "SendMessage")
    assert V1.read_params(METHODS[call.method], call.params) == request
    method, fields = rest.route("POST", "/message:send")
    assert rest.read_request(V1, method, fields, "", as_bytes(wire)) == request


@pytest.mark.requirement("fields.server-refuses-missing")
@pytest.mark.parametrize("section", sorted(LACKING))
def test_a_message_of_the_specification_that_lacks_a_field_is_refused_by_its_path(section: str) -> None:
    wire, path = LACKING[section]
    with pytest.raises(InvalidParams) as caught:
        decode(as_bytes(wire), SendMessageRequest)
    assert [violation.field for violation in caught.value.violations] == [path]


@pytest.mark.parametrize("section", sorted(ENVELOPES))
def test_a_json_rpc_request_of_the_specification_is_read(section: str) -> None:
    envelope, expected = ENVELOPES[section]
    call = jsonrpc.read_call(as_bytes(envelope))
    assert call.id == str(envelope["id"]).encode()
    method = METHODS[call.method]
    assert V1.read_params(method, call.params) == method.request(**expected)


@pytest.mark.parametrize("section", sorted(RESULTS))
def test_an_answer_of_the_specification_is_read_and_written_again(section: str) -> None:
    name, wire = RESULTS[section]
    value = decode(as_bytes(wire), struct_of(name))
    assert exactly(json.loads(encode(value))) == exactly(wire)


def test_the_sample_card_is_read_written_again_and_has_no_fault() -> None:
    card = decode(as_bytes(CARD), AgentCard)
    assert exactly(json.loads(encode(card))) == exactly(CARD)
    assert check_card(card) == []


@pytest.mark.requirement("jsonrpc.error-object", "jsonrpc.bad-request", "jsonrpc.details-typed")
def test_a_validation_error_has_the_form_that_the_specification_shows() -> None:
    shown = copy.deepcopy(ERRORS["9.5 validation"])
    error = InvalidParams(
        "Invalid parameters", violations=InvalidParams.at("message.parts", "At least one part is required").violations
    )
    written = json.loads(jsonrpc.encode_error(b"1", error))
    (bad_request,) = shown["error"].pop("data")
    assert bad_request in written["error"].pop("data")
    assert written == shown


@pytest.mark.requirement("jsonrpc.error-object", "jsonrpc.error-info", "jsonrpc.details-typed")
def test_an_a2a_error_has_the_form_that_the_specification_shows_in_json_rpc() -> None:
    shown = ERRORS["9.5 task"]
    error = TaskNotFound("nonexistent-task-id")
    error.args = (shown["error"]["message"],)
    error.metadata["timestamp"] = "2025-11-09T10:30:00.000Z"
    assert json.loads(jsonrpc.encode_error(b"2", error)) == shown


@pytest.mark.requirement("rest.error-body", "rest.error-info", "rest.details-typed")
def test_an_a2a_error_has_the_form_that_the_specification_shows_in_rest() -> None:
    shown = ERRORS["11.6"]
    error = TaskNotFound("task-123")
    error.args = (shown["error"]["message"],)
    error.metadata["timestamp"] = "2025-11-09T10:30:00.000Z"
    assert json.loads(rest.encode_error(error)) == shown


@pytest.mark.parametrize("section", sorted(ERRORS))
def test_an_error_of_the_specification_is_read_as_its_class(section: str) -> None:
    shown = ERRORS[section]
    error: A2AError
    if "jsonrpc" in shown:
        with pytest.raises(A2AError) as caught:
            jsonrpc.read_result(as_bytes(shown))
        error = caught.value
    else:
        error = rest.read_error(404, as_bytes(shown))
    assert str(error) == shown["error"]["message"]
    if section == "9.5 validation":
        assert isinstance(error, InvalidParams)
        assert [(violation.field, violation.description) for violation in error.violations] == [
            ("message.parts", "At least one part is required")
        ]
    else:
        assert isinstance(error, TaskNotFound)
        assert error.metadata["timestamp"] == "2025-11-09T10:30:00.000Z"
