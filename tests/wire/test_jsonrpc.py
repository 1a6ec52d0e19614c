"""JSON-RPC envelopes: what is a request, what is not and why, and answers (A2A 1.0 §9.3, §9.5)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.strategies import FIXED, exactly, free_json
from tieline.errors import (
    A2AError,
    InvalidAgentResponse,
    InvalidParams,
    InvalidPeerResponse,
    InvalidRequest,
    ParseError,
    TaskNotFound,
)
from tieline.wire import jsonrpc

GOOD = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "t"}}
INVALID, PARSE, PARAMS = InvalidRequest, ParseError, InvalidParams


def as_bytes(value: Any) -> bytes:
    return json.dumps(value).encode()


def without(name: str) -> bytes:
    return as_bytes({key: value for key, value in GOOD.items() if key != name})


def changed(**values: Any) -> bytes:
    return as_bytes({**GOOD, **values})


def malformed(body: bytes) -> jsonrpc.Malformed:
    with pytest.raises(jsonrpc.Malformed) as caught:
        jsonrpc.read_call(body)
    written = jsonrpc.encode_error(caught.value.id, caught.value.error).decode("utf-8")
    answer = json.loads(written, parse_int=str)  # Python itself reads no integer of more than 4300 digits
    assert set(answer) == {"jsonrpc", "id", "error"}
    return caught.value


BODIES: dict[str, tuple[bytes, type[A2AError], bytes]] = {
    # not JSON
    "empty": (b"", PARSE, b"null"),
    "blank": (b" \r\n\t", PARSE, b"null"),
    "text": (b"hello", PARSE, b"null"),
    "cut off": (as_bytes(GOOD)[:-1], PARSE, b"null"),
    "more behind": (as_bytes(GOOD) + b"{}", PARSE, b"null"),
    "a comma at the end": (b'{"jsonrpc":"2.0","id":1,"method":"GetTask",}', PARSE, b"null"),
    "single quotes": (b"{'jsonrpc':'2.0'}", PARSE, b"null"),
    "a byte order mark": (b"\xef\xbb\xbf" + as_bytes(GOOD), PARSE, b"null"),
    "utf-16": (json.dumps(GOOD).encode("utf-16"), PARSE, b"null"),
    "a null byte": (b'{"jsonrpc":"2.0","id":1,\0"method":"GetTask"}', PARSE, b"null"),
    "a raw line feed in a string": (b'{"jsonrpc":"2.0","id":"a\nb","method":"GetTask"}', PARSE, b"null"),
    "NaN as id": (b'{"jsonrpc":"2.0","id":NaN,"method":"GetTask"}', PARSE, b"null"),
    "Infinity in params": (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":Infinity}}', PARSE, b"null"),
    "minus Infinity": (b'{"jsonrpc":"2.0","id":-Infinity,"method":"GetTask"}', PARSE, b"null"),
    "a leading zero": (b'{"jsonrpc":"2.0","id":01,"method":"GetTask"}', PARSE, b"null"),
    "invalid UTF-8 in the method": (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', PARSE, b"null"),
    "invalid UTF-8 in the id": (b'{"jsonrpc":"2.0","id":"\xff","method":"GetTask"}', PARSE, b"null"),
    "half of a character in the id": (b'{"jsonrpc":"2.0","id":"\xe2\x82","method":"GetTask"}', PARSE, b"null"),
    "a lone surrogate in the id": (b'{"jsonrpc":"2.0","id":"\\ud800","method":"GetTask"}', PARSE, b"null"),
    "a lone surrogate in the method": (b'{"jsonrpc":"2.0","id":1,"method":"\\udfff"}', PARSE, b"null"),
    # no request
    "null": (b"null", INVALID, b"null"),
    "a number": (b"17", INVALID, b"null"),
    "a string": (b'"GetTask"', INVALID, b"null"),
    "true": (b"true", INVALID, b"null"),
    "a batch": (as_bytes([GOOD]), INVALID, b"null"),
    "an empty batch": (b"[]", INVALID, b"null"),
    "an empty object": (b"{}", INVALID, b"null"),
    "no jsonrpc": (without("jsonrpc"), INVALID, b"1"),
    "jsonrpc 1.0": (changed(jsonrpc="1.0"), INVALID, b"1"),
    "jsonrpc 2": (changed(jsonrpc=2), INVALID, b"1"),
    "jsonrpc 2.0 as a number": (b'{"jsonrpc":2.0,"id":"a","method":"GetTask"}', INVALID, b'"a"'),
    "jsonrpc null": (changed(jsonrpc=None), INVALID, b"1"),
    "no method": (without("method"), INVALID, b"1"),
    "method null": (changed(method=None), INVALID, b"1"),
    "method 5": (changed(method=5), INVALID, b"1"),
    "method in a list": (changed(method=["GetTask"]), INVALID, b"1"),
    "id true": (changed(id=True), INVALID, b"null"),
    "id false": (changed(id=False), INVALID, b"null"),
    "id in a list": (changed(id=[1]), INVALID, b"null"),
    "id in an object": (changed(id={"a": 1}), INVALID, b"null"),
    "id true and no jsonrpc": (b'{"id":true,"method":"GetTask"}', INVALID, b"null"),
    "a long id and no jsonrpc": (b'{"id":1180591620717411303424,"method":"x"}', INVALID, b"1180591620717411303424"),
    "a fraction as id and no jsonrpc": (b'{"id":1.5,"method":"x"}', INVALID, b"1.5"),
    "a huge number in params and no jsonrpc": (b'{"id":1,"method":"x","params":{"a":1e999}}', INVALID, b"1"),
    "a huge integer in params and no jsonrpc": (
        b'{"id":"a","method":"x","params":{"a":' + b"1" * 5000 + b"}}",
        INVALID,
        b'"a"',
    ),
    "a huge integer as id and no jsonrpc": (b'{"id":' + b"1" * 5000 + b',"method":"x"}', INVALID, b"1" * 5000),
    "a huge id and jsonrpc 1.0": (b'{"jsonrpc":"1.0","id":1e999,"method":"x"}', INVALID, b"1e999"),
    # wrong params
    "params in a list": (changed(params=[1]), PARAMS, b"1"),
    "params a string": (changed(params="x"), PARAMS, b"1"),
    "params a number": (changed(params=0), PARAMS, b"1"),
    "params true": (changed(params=True), PARAMS, b"1"),
}


@pytest.mark.requirement("jsonrpc.server-refuses-other-forms", "jsonrpc.parse-error", "jsonrpc.invalid-request")
@pytest.mark.parametrize("case", BODIES)
def test_what_is_no_request_is_refused_with_the_code_for_it_and_the_id_if_there_is_one(case: str) -> None:
    body, error, id_ = BODIES[case]
    refusal = malformed(body)
    assert type(refusal.error) is error
    assert refusal.id == id_


@pytest.mark.requirement("jsonrpc.id-echoed")
@pytest.mark.parametrize(
    "id_",
    [
        b"1",
        b"0",
        b"-1",
        b"1.0",
        b"1e5",
        b"-0.0",
        b'"1"',
        b'""',
        b'"a\\u00e9\\n\\""',
        '"ä漢😀"'.encode(),
        b'"\\ud83d\\ude00"',
        b"null",
        b"12345678901234567890123",
        b"1" * 5000,
        b"1e999",
        b'"' + b"x" * 100_000 + b'"',
    ],
    ids=lambda id_: id_[:24].decode(),
)
def test_an_id_is_kept_as_the_bytes_that_it_came_in(id_: bytes) -> None:
    call = jsonrpc.read_call(b'{"jsonrpc":"2.0", "id" : ' + id_ + b' ,"method":"GetTask"}')
    assert call.id == id_
    for answer in (jsonrpc.encode_result(id_, b"{}"), jsonrpc.encode_error(id_, TaskNotFound("t"))):
        assert b'"id":' + id_ + b"," in answer


def test_a_request_without_an_id_is_answered_with_null() -> None:
    assert jsonrpc.read_call(without("id")).id == b"null"


@pytest.mark.requirement("jsonrpc.extended-card-without-params")
@pytest.mark.parametrize("body", [without("params"), changed(params=None), changed(params={})])
def test_params_may_be_absent_null_or_empty(body: bytes) -> None:
    call = jsonrpc.read_call(body)
    assert json.loads(bytes(call.params)) == {}


def test_of_a_key_that_stands_there_twice_the_last_one_counts() -> None:
    body = b'{"jsonrpc":"1.0","jsonrpc":"2.0","id":1,"id":2,"method":"x","method":"GetTask","params":[],"params":{}}'
    call = jsonrpc.read_call(body)
    assert (call.id, call.method, bytes(call.params)) == (b"2", "GetTask", b"{}")


def test_fields_beside_those_of_a_request_are_ignored() -> None:
    body = changed(auth={"a": [1]}, result=5, error=None)
    assert jsonrpc.read_call(body).method == "GetTask"


def nested(depth: int) -> bytes:
    """A request whose params nest `depth` levels in all."""
    inner = depth - 2
    return b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":' + b"[" * inner + b"]" * inner + b"}}"


def test_100_levels_are_read_and_101_are_refused() -> None:
    assert jsonrpc.read_call(nested(100)).id == b"1"
    assert isinstance(malformed(nested(101)).error, InvalidRequest)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":'])
def test_100_000_levels_are_refused_not_followed(opening: bytes) -> None:
    error = malformed(opening * 100_000).error
    assert isinstance(error, (InvalidRequest, ParseError))


def test_brackets_in_a_string_are_no_depth() -> None:
    text = '[{"' * 1000
    call = jsonrpc.read_call(changed(params={"text": text}))
    assert json.loads(bytes(call.params)) == {"text": text}


@FIXED
@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_malformed(body: bytes) -> None:
    try:
        jsonrpc.read_call(body)
    except jsonrpc.Malformed as error:
        refusal = error
        assert refusal.error.rpc_code in (-32700, -32600, -32602)
        json.loads(jsonrpc.encode_error(refusal.id, refusal.error).decode("utf-8"))


@FIXED
@given(free_json)
def test_any_json_is_a_request_or_malformed(value: Any) -> None:
    try:
        jsonrpc.read_call(as_bytes(value))
    except jsonrpc.Malformed as error:
        refusal = error
        assert isinstance(refusal.error, (InvalidRequest, InvalidParams))


@FIXED
@given(
    st.sampled_from([None, "2.0", "1.0", 2]),
    st.none() | st.text(max_size=5) | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    free_json,
    free_json,
)
def test_any_member_may_be_wrong_and_the_id_is_still_echoed(version: Any, id_: Any, method: Any, params: Any) -> None:
    body = {"jsonrpc": version, "id": id_, "method": method, "params": params}
    try:
        echoed = jsonrpc.read_call(as_bytes(body)).id
    except jsonrpc.Malformed as error:
        echoed = error.id
    assert exactly(json.loads(echoed)) == exactly(id_)


# --- calls and answers ------------------------------------------------------------------------------------------------


@FIXED
@given(st.integers(-(2**53), 2**53) | st.text(max_size=8), st.text(max_size=8), free_json)
def test_a_call_that_is_written_is_read_again(id_: int | str, method: str, value: Any) -> None:
    call = jsonrpc.read_call(jsonrpc.encode_call(id_, method, as_bytes({"a": value})))
    assert (json.loads(call.id), call.method) == (id_, method)
    assert exactly(json.loads(bytes(call.params))) == exactly({"a": value})


@FIXED
@given(free_json)
def test_a_result_that_is_written_is_read_again(value: Any) -> None:
    result = jsonrpc.read_result(jsonrpc.encode_result(b"7", as_bytes(value)))
    assert exactly(json.loads(bytes(result))) == exactly(value)


@FIXED
@given(st.text(max_size=20), st.text(max_size=20), st.dictionaries(st.text(max_size=5), st.text(max_size=5)))
def test_an_error_that_is_written_is_raised_again(field: str, words: str, metadata: dict[str, str]) -> None:
    sent = InvalidParams(words, metadata=metadata, violations=InvalidParams.at(field, words).violations)
    with pytest.raises(InvalidParams) as caught:
        jsonrpc.read_result(jsonrpc.encode_error(b'"x"', sent))
    assert str(caught.value) == str(sent)
    assert caught.value.violations == sent.violations
    assert caught.value.metadata == sent.metadata


@pytest.mark.requirement("jsonrpc.error-object", "jsonrpc.details-typed")
@pytest.mark.parametrize("error", [ParseError("x"), InvalidAgentResponse(), TaskNotFound("t"), A2AError("odd")])
def test_an_error_is_code_message_and_typed_details(error: A2AError) -> None:
    answer = json.loads(jsonrpc.encode_error(b"1", error))
    assert answer["error"]["code"] == error.rpc_code
    assert answer["error"]["message"] == str(error)
    assert all("@type" in detail for detail in answer["error"].get("data", []))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"null",
        b"{}",
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"2.0","id":1,"error":5}',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":"x"}}',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":5}}',
        b'{"jsonrpc":"2.0","id":1,"error":null}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
    ids=lambda body: body[:30].decode("latin-1"),
)
def test_what_is_no_answer_is_an_invalid_peer_response(body: bytes) -> None:
    with pytest.raises(InvalidPeerResponse):
        jsonrpc.read_result(body)


@pytest.mark.parametrize("data", [None, 5, "x", {}, [], [5], [{}], [{"@type": "other"}], [{"@type": 5}]])
def test_details_that_nobody_knows_do_not_hide_the_error(data: Any) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32001, "message": "gone", "data": data}}
    with pytest.raises(TaskNotFound, match="gone"):
        jsonrpc.read_result(as_bytes(body))


@pytest.mark.parametrize("violations", [None, 5, "x", [5], [{}], [{"field": 5}], {"field": "a"}])
def test_violations_of_a_wrong_form_do_not_hide_the_error(violations: Any) -> None:
    data = [{"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": violations}]
    body = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "bad", "data": data}}
    with pytest.raises(InvalidParams, match="bad"):
        jsonrpc.read_result(as_bytes(body))


@pytest.mark.parametrize("metadata", [None, 5, [1], {"a": None}, {"a": {"b": 1}}])
@pytest.mark.parametrize("reason", [None, 5, "TASK_NOT_FOUND", {"a": 1}])
def test_an_error_info_of_a_wrong_form_does_not_hide_the_error(reason: Any, metadata: Any) -> None:
    data = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "metadata": metadata}]
    body = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32001, "message": "gone", "data": data}}
    with pytest.raises(TaskNotFound, match="gone"):
        jsonrpc.read_result(as_bytes(body))
