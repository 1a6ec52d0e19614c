"""HTTP+JSON: paths, queries and errors (A2A 1.0 §5.3, §11)."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.schema import MESSAGES
from tests.wire.strategies import FIXED, minimal, wire_json
from tieline.errors import (
    A2AError,
    BodyTooLarge,
    InternalError,
    InvalidAgentResponse,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    Overloaded,
    ParseError,
    TaskNotFound,
    UnsupportedOperation,
)
from tieline.types import GetTaskRequest, ListTasksRequest, TaskState, decode, encode
from tieline.wire import rest
from tieline.wire.methods import METHODS
from tieline.wire.v1 import V1

TABLE = """
SendMessage                       POST    /message:send
SendStreamingMessage              POST    /message:stream
GetTask                           GET     /tasks/{id}
ListTasks                         GET     /tasks
CancelTask                        POST    /tasks/{id}:cancel
SubscribeToTask                   POST    /tasks/{id}:subscribe
CreateTaskPushNotificationConfig  POST    /tasks/{id}/pushNotificationConfigs
GetTaskPushNotificationConfig     GET     /tasks/{id}/pushNotificationConfigs/{configId}
ListTaskPushNotificationConfigs   GET     /tasks/{id}/pushNotificationConfigs
DeleteTaskPushNotificationConfig  DELETE  /tasks/{id}/pushNotificationConfigs/{configId}
GetExtendedAgentCard              GET     /extendedAgentCard
"""
"""§5.3."""

OPERATIONS = [tuple(line.split()) for line in TABLE.strip().splitlines()]
by_operation = pytest.mark.parametrize(("name", "verb", "path"), OPERATIONS, ids=[row[0] for row in OPERATIONS])


def as_bytes(value: Any) -> bytes:
    return json.dumps(value).encode()


def fields_of(error: InvalidParams) -> list[str]:
    return [violation.field for violation in error.violations]


def query(text: str, name: str = "ListTasks", **fields: str) -> Any:
    return rest.read_request(V1, METHODS[name], fields, text, b"")


# --- paths ------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("methods.jsonrpc", "methods.rest")
def test_the_operations_are_those_of_the_specification() -> None:
    assert list(METHODS) == [row[0] for row in OPERATIONS]


@pytest.mark.requirement("methods.rest")
@by_operation
def test_each_operation_is_at_its_path(name: str, verb: str, path: str) -> None:
    asked = path.replace("{id}", "task-1").replace("{configId}", "config-1")
    method, fields = rest.route(verb, asked)
    assert method.name == name
    if "{configId}" in path:
        assert fields == {"taskId": "task-1", "id": "config-1"}
    elif "pushNotificationConfigs" in path:
        assert fields == {"taskId": "task-1"}
    else:
        assert fields == ({"id": "task-1"} if "{id}" in path else {})


@by_operation
def test_another_verb_at_its_path_is_told_those_that_are_allowed(name: str, verb: str, path: str) -> None:
    asked = path.replace("{id}", "task-1").replace("{configId}", "config-1")
    allowed = {row[1] for row in OPERATIONS if row[2] == path} | ({"GET"} if ":subscribe" in path else set())
    for other in {"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"} - allowed:
        with pytest.raises(rest.VerbNotAllowed) as caught:
            rest.route(other, asked)
        assert set(caught.value.allowed) == allowed
        assert caught.value.http_status == 405


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/task",
        "/tasks/",
        "/tasks/a/b",
        "/tasks/a:other",
        "/tasks/:cancel",
        "/tasks//pushNotificationConfigs",
        "/tasks/a/pushNotificationConfigs/",
        "/tasks/a/pushNotificationConfigs/b/c",
        "/message",
        "/message:other",
        "/message:sendx",
        "/v1/message:send",
        "/MESSAGE:SEND",
        "/extendedagentcard",
        "/tasks?x=1",
        "/message/send",
        "/\x00",
        "/tasks/" + "/" * 10_000,
    ],
)
def test_a_path_that_is_none_is_not_found(path: str) -> None:
    for verb in ("GET", "POST"):
        with pytest.raises(MethodNotFound) as caught:
            rest.route(verb, path)
        assert caught.value.http_status == 404


@pytest.mark.requirement("rest.query-encoded")
@pytest.mark.parametrize(
    "id_", ["a", "task-1", "ä漢", "a.b~c_d", "a b", "a+b", "%41", "?", "#", "x\n", "0", "a/b", "a:b", "a:cancel", "%2F"]
)
def test_an_id_may_hold_any_character_when_it_is_encoded(id_: str) -> None:
    encoded = quote(id_, safe="")
    for path, name in ((f"/tasks/{encoded}", "GetTask"), (f"/tasks/{encoded}:cancel", "CancelTask")):
        method, fields = rest.route("GET" if name == "GetTask" else "POST", path)
        assert (method.name, fields) == (name, {"id": id_})


# --- queries ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("rest.query-camel-case", "rest.query-types", "rest.params-outside-body")
def test_every_kind_of_value_is_read_from_a_query() -> None:
    text = (
        "contextId=c-1&status=TASK_STATE_WORKING&pageSize=50&pageToken=cursor&historyLength=0"
        "&includeArtifacts=true&statusTimestampAfter=2025-11-09T10%3A30%3A00Z&tenant=t"
    )
    assert query(text) == ListTasksRequest(
        "t", "c-1", TaskState.WORKING, 50, "cursor", 0, "2025-11-09T10:30:00Z", include_artifacts=True
    )
    assert query("historyLength=10", "GetTask", id="t") == GetTaskRequest("t", history_length=10)


@pytest.mark.requirement("rest.query-types")
@pytest.mark.parametrize(("text", "value"), [("true", True), ("false", False)])
def test_booleans_are_true_and_false(text: str, value: bool) -> None:
    assert query(f"includeArtifacts={text}").include_artifacts is value


@pytest.mark.requirement("rest.query-types")
@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("includeArtifacts=yes", "includeArtifacts"),
        ("includeArtifacts=2", "includeArtifacts"),
        ("pageSize=x", "pageSize"),
        ("pageSize=1.5", "pageSize"),
        ("pageSize=0x10", "pageSize"),
        ("pageSize=1_0", "pageSize"),
        ("pageSize=%D9%A3", "pageSize"),
        ("historyLength=true", "historyLength"),
        ("historyLength=" + "9" * 5000, "historyLength"),
        ("status=working", "status"),
        ("status=TASK_STATE_RUNNING", "status"),
    ],
)
def test_a_value_of_a_wrong_type_is_refused_by_its_name(text: str, field: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        query(text)
    assert fields_of(caught.value) == [field]


@pytest.mark.requirement("rest.query-encoded")
@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        ("a%20b", "a b"),
        ("a+b", "a b"),
        ("a%2Bb", "a+b"),
        ("%C3%A4%E6%BC%A2", "ä漢"),
        ("a%26b%3Dc", "a&b=c"),
        ("%2525", "%25"),
        ("a%2Fb%3Ac", "a/b:c"),
    ],
)
def test_values_in_a_query_are_percent_decoded(encoded: str, value: str) -> None:
    assert query(f"contextId={encoded}").context_id == value


@pytest.mark.parametrize("word", ["null", "true", "1", "1.0", "[]", "{}"])
def test_a_string_in_a_query_stays_a_string_whatever_it_says(word: str) -> None:
    request = query(f"contextId={word}&pageToken={word}&tenant={word}")
    assert (request.context_id, request.page_token, request.tenant) == (word, word, word)


def test_an_empty_value_in_a_query_is_an_absent_one() -> None:
    assert query("contextId=&status=&pageSize=&includeArtifacts=&pageToken") == ListTasksRequest()


def test_unknown_names_in_a_query_are_ignored() -> None:
    assert query("A2A-Version=1.0&x=1&pageSize=5&utm_source=a") == ListTasksRequest(page_size=5)


def test_a_field_of_the_path_cannot_be_covered_by_the_query_or_the_body() -> None:
    assert query("id=other&historyLength=1", "GetTask", id="t") == GetTaskRequest("t", history_length=1)
    cancel = METHODS["CancelTask"]
    request = rest.read_request(V1, cancel, {"id": "t"}, "id=other", b'{"id":"other","metadata":{"a":1}}')
    assert (request.id, request.metadata) == ("t", {"a": 1})


@FIXED
@given(st.text(alphabet=st.characters(max_codepoint=255), max_size=40))
def test_any_query_is_read_or_refused(text: str) -> None:
    for name, fields in (("ListTasks", {}), ("GetTask", {"id": "t"}), ("SubscribeToTask", {"id": "t"})):
        try:
            rest.read_request(V1, METHODS[name], fields, text, b"")
        except InvalidParams as error:
            refusal = error
            assert refusal.violations


# --- bodies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["SendMessage", "CancelTask", "CreateTaskPushNotificationConfig"])
@pytest.mark.parametrize("body", [b"{", b"hello", b"\xff", b'{"a":NaN}', b'{"a":"\\ud800"}', b"{}{}"])
def test_a_body_that_is_not_json_is_a_parse_error(name: str, body: bytes) -> None:
    with pytest.raises(ParseError):
        rest.read_request(V1, METHODS[name], {} if name == "SendMessage" else {"id": "t"}, "", body)


@pytest.mark.parametrize("name", ["SendMessage", "CancelTask", "CreateTaskPushNotificationConfig"])
@pytest.mark.parametrize("body", [b"null", b"[]", b"5", b'"x"', b"true"])
def test_a_body_that_is_no_object_is_refused(name: str, body: bytes) -> None:
    with pytest.raises((InvalidRequest, InvalidParams)) as caught:
        rest.read_request(V1, METHODS[name], {} if name == "SendMessage" else {"id": "t"}, "", body)
    assert caught.value.http_status == 400


@pytest.mark.parametrize("name", ["SendMessage", "CancelTask"])
@pytest.mark.parametrize("levels", [101, 100_000])
def test_a_body_that_nests_too_deep_is_refused(name: str, levels: int) -> None:
    with pytest.raises(InvalidRequest):
        rest.read_request(V1, METHODS[name], {} if name == "SendMessage" else {"id": "t"}, "", b'{"a":' + b"[" * levels)


def test_an_empty_body_lacks_the_message_but_is_enough_for_a_cancel() -> None:
    with pytest.raises(A2AError) as caught:
        rest.read_request(V1, METHODS["SendMessage"], {}, "", b"")
    assert caught.value.http_status == 400
    assert rest.read_request(V1, METHODS["CancelTask"], {"id": "t"}, "", b"").id == "t"


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**40])
def test_long_integers_of_a_body_stay_integers_beside_fields_of_the_path(number: int) -> None:
    request = rest.read_request(V1, METHODS["CancelTask"], {"id": "t"}, "", as_bytes({"metadata": {"n": number}}))
    assert json.loads(encode(request)) == {"id": "t", "metadata": {"n": number}}


@FIXED
@given(st.binary(max_size=60))
def test_any_body_is_read_or_refused(body: bytes) -> None:
    for name, fields in (("SendMessage", {}), ("CancelTask", {"id": "t"})):
        try:
            rest.read_request(V1, METHODS[name], fields, "", body)
        except A2AError as error:
            refusal = error
            assert refusal.http_status == 400


# --- what a client writes is what a server reads ----------------------------------------------------------------------


@pytest.mark.requirement("rest.query-encoded", "rest.nested-by-post")
@pytest.mark.parametrize("name", list(METHODS))
def test_a_request_that_is_written_is_read_again(name: str) -> None:
    method = METHODS[name]

    @FIXED
    @given(wire_json(method.request.__name__))
    def check(wire: dict[str, Any]) -> None:
        in_path = [field for field in ("id", "taskId") if "{" + field + "}" in method.path]
        wire = {**wire, **{field: wire.get(field) or "x" for field in in_path}}
        # An empty value in a query is an absent one, so empty and absent are the same there.
        if not method.body:
            wire = {field: value for field, value in wire.items() if value != ""}
        request = decode(as_bytes(wire), method.request)
        verb, target, body = rest.encode_request(method, request)
        assert target.isascii()
        path, _, text = target.partition("?")
        found, fields = rest.route(verb, path)
        assert found is method
        assert rest.read_request(V1, method, fields, text, body or b"") == request
        assert (body is not None) == method.body
        if verb in ("GET", "DELETE"):
            assert body is None

    check()


@pytest.mark.requirement("rest.nested-by-post")
def test_only_operations_without_nested_objects_use_a_query() -> None:
    for name, verb, _ in OPERATIONS:
        nested = [field for field in MESSAGES[METHODS[name].request.__name__] if field.type[0].isupper()]
        objects = [field for field in nested if field.type not in ("TaskState", "Role", "Timestamp")]
        assert not objects or verb == "POST", name


def test_a_request_without_an_id_for_its_path_is_refused_before_it_is_sent() -> None:
    with pytest.raises(InvalidParams) as caught:
        rest.encode_request(METHODS["GetTask"], GetTaskRequest(""))
    assert fields_of(caught.value) == ["id"]


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("rest.error-body", "rest.details-typed", "rest.error-info", "rest.bad-request")
def test_an_error_is_a_google_rpc_status() -> None:
    answer = json.loads(rest.encode_error(InvalidParams.at("pageSize", "must be between 1 and 100, got 150")))
    assert set(answer) == {"error"}
    error = answer["error"]
    assert (error["code"], error["status"]) == (400, "INVALID_ARGUMENT")
    assert error["message"] == "pageSize: must be between 1 and 100, got 150"
    assert {
        "@type": "type.googleapis.com/google.rpc.BadRequest",
        "fieldViolations": [{"field": "pageSize", "description": "must be between 1 and 100, got 150"}],
    } in error["details"]
    answer = json.loads(rest.encode_error(UnsupportedOperation("no")))
    assert answer["error"]["details"] == [
        {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "UNSUPPORTED_OPERATION",
            "domain": "a2a-protocol.org",
        }
    ]


@pytest.mark.parametrize(
    "error",
    [
        InvalidParams.at("a.b[0]", "is wrong"),
        InvalidRequest("no"),
        ParseError("no"),
        MethodNotFound("no"),
        InternalError("no"),
        Overloaded("busy", retry_after_s=9),
        BodyTooLarge(10),
        TaskNotFound("t"),
        UnsupportedOperation("no", metadata={"a": "b"}),
        InvalidAgentResponse("no"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_that_is_written_is_read_again(error: A2AError) -> None:
    told = rest.read_error(error.http_status, rest.encode_error(error))
    assert type(told) is type(error)
    assert (str(told), told.metadata, told.violations) == (str(error), error.metadata, error.violations)


@pytest.mark.parametrize("status", [400, 404, 405, 413, 418, 500, 502, 503, 299])
@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"error":5}', b'{"detail":"x"}', b"\xff", b"[" * 100_000])
def test_an_answer_that_says_nothing_is_an_error_with_its_status_in_the_sentence(status: int, body: bytes) -> None:
    error = rest.read_error(status, body)
    assert str(status) in str(error)


@pytest.mark.parametrize("details", [None, 5, "x", {}, [5], [{"@type": 1}], [{"@type": "x", "reason": "y"}]])
def test_details_that_nobody_knows_do_not_hide_the_message(details: Any) -> None:
    body = {"error": {"code": 404, "message": "gone", "details": details}}
    assert str(rest.read_error(404, as_bytes(body))) == "gone"


def test_every_message_that_a_query_carries_has_only_values_that_it_can() -> None:
    for method in METHODS.values():
        if not method.body:
            assert minimal(method.request.__name__) is not None
            kinds = {field.type for field in MESSAGES[method.request.__name__]}
            assert kinds <= {"string", "int32", "bool", "TaskState", "Timestamp"}
