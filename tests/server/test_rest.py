"""The REST endpoints over HTTP (A2A 1.0 §11)."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

import tieline
from tests.server.agents import asker, replier, worker
from tests.server.raw import A2A_JSON, Pairs, Reply, Wire, in_loop, request, serve
from tests.wire.test_rest import OPERATIONS
from tieline.ids import new_id

MESSAGE = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}


def send(port: int, text: str = "hello", headers: Pairs | None = None, **more: Any) -> Any:
    message = {**MESSAGE, "messageId": new_id(), "parts": [{"text": text}], **more.pop("message", {})}
    body = json.dumps({"message": message, **more}).encode()
    return request(port, "POST", "/message:send", body, A2A_JSON if headers is None else headers)


def error_of(reply: Reply, status: int, reason: str) -> Any:
    """The error of a reply, after its form was checked (§11.6)."""
    assert reply.status == status, reply
    assert reply.headers["content-type"] == "application/a2a+json"
    answer = reply.json()
    assert set(answer) == {"error"}
    error = answer["error"]
    assert error["code"] == status
    assert error["message"]
    assert all(isinstance(detail["@type"], str) for detail in error["details"])
    infos = [each for each in error["details"] if each["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"]
    assert [info["reason"] for info in infos] == [reason]
    assert infos[0]["domain"] == "a2a-protocol.org"
    return error


def fields_of(error: Any) -> list[str]:
    (found,) = [each for each in error["details"] if each["@type"] == "type.googleapis.com/google.rpc.BadRequest"]
    return [violation["field"] for violation in found["fieldViolations"]]


# --- operations -------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("methods.rest")
@pytest.mark.parametrize(("name", "verb", "path"), OPERATIONS, ids=[row[0] for row in OPERATIONS])
@in_loop
async def test_each_operation_is_at_its_path_also_when_the_agent_does_not_support_it(
    name: str, verb: str, path: str
) -> None:
    asked = path.replace("{id}", "t").replace("{configId}", "c")
    async with serve(tieline.app(worker(streaming=False))) as port:
        reply = await request(port, verb, asked, b"{}" if verb == "POST" else None, A2A_JSON)
    if reply.status != 200:
        assert reply.json()["error"]["status"] != "UNIMPLEMENTED"


@pytest.mark.requirement("rest.bodies", "rest.server-content-type")
@in_loop
async def test_a_send_answers_with_one_of_task_and_message_and_a_read_with_the_bare_task() -> None:
    async with serve(tieline.app(replier())) as port:
        assert set((await send(port)).json()) == {"message"}
    async with serve(tieline.app(asker())) as port:
        sent = await send(port)
        assert sent.headers["content-type"] == "application/a2a+json"
        task = sent.json()["task"]
        read = await request(port, "GET", f"/tasks/{task['id']}")
        assert read.headers["content-type"] == "application/a2a+json"
        assert read.json() == task
        page = (await request(port, "GET", "/tasks")).json()
        assert set(page) == {"tasks", "nextPageToken", "pageSize", "totalSize"}
        canceled = (await request(port, "POST", f"/tasks/{task['id']}:cancel", b"{}", A2A_JSON)).json()
        assert (canceled["id"], canceled["status"]["state"]) == (task["id"], "TASK_STATE_CANCELED")


@pytest.mark.requirement("rest.bodies")
@pytest.mark.parametrize("body", [None, b"", b"{}", b'{"id":"other"}', b'{"metadata":{"why":"x"}}'])
@in_loop
async def test_a_cancel_needs_no_body(body: bytes | None) -> None:
    async with serve(tieline.app(asker())) as port:
        task = (await send(port)).json()["task"]
        reply = await request(port, "POST", f"/tasks/{task['id']}:cancel", body)
    assert reply.json()["status"]["state"] == "TASK_STATE_CANCELED"


@pytest.mark.requirement("rest.stream-frames", "rest.stream-order")
@in_loop
async def test_a_stream_is_server_sent_events_of_stream_responses_in_order() -> None:
    async with serve(tieline.app(worker())) as port, Wire(port) as wire:
        await wire.write("POST", "/message:stream", json.dumps({"message": MESSAGE}).encode(), A2A_JSON)
        status, headers = await wire.head()
        assert (status, headers["content-type"]) == (200, "text/event-stream")
        frames = [frame async for frame in wire.frames()]
    kinds = [next(iter(frame.data)) for frame in frames]
    assert all(len(frame.data) == 1 for frame in frames)
    assert kinds[0] == "task"
    assert set(kinds[1:]) == {"statusUpdate", "artifactUpdate"}
    assert frames[-1].data["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert [frame.id for frame in frames] == [str(number) for number in range(1, len(frames) + 1)]


@pytest.mark.requirement("rest.stream-order", "rest.stream-frames")
@in_loop
async def test_a_direct_answer_makes_a_stream_of_one_message() -> None:
    async with serve(tieline.app(replier())) as port, Wire(port) as wire:
        await wire.write("POST", "/message:stream", json.dumps({"message": MESSAGE}).encode(), A2A_JSON)
        await wire.head()
        (frame,) = [frame async for frame in wire.frames()]
    assert set(frame.data) == {"message"}


@pytest.mark.requirement("rest.stream-frames", "methods.rest")
@pytest.mark.parametrize("verb", ["POST", "GET"])
@in_loop
async def test_a_subscription_is_opened_by_post_and_by_get(verb: str) -> None:
    async with serve(tieline.app(asker())) as port, Wire(port) as wire:
        task = (await send(port)).json()["task"]
        await wire.write(verb, f"/tasks/{task['id']}:subscribe", b"{}" if verb == "POST" else None)
        status, headers = await wire.head()
        assert (status, headers["content-type"]) == (200, "text/event-stream")
        first = await anext(wire.frames())
        assert first.data["task"] == task


@pytest.mark.parametrize("body", [b"{", b"[]", b'"x"', b"\xff"])
@in_loop
async def test_a_body_that_is_no_object_is_refused_wherever_a_body_may_come(body: bytes) -> None:
    async with serve(tieline.app(asker())) as port:
        task = (await send(port)).json()["task"]
        for path in ("/message:send", "/message:stream", f"/tasks/{task['id']}:cancel"):
            assert (await request(port, "POST", path, body, A2A_JSON)).status == 400
        assert (await request(port, "GET", f"/tasks/{task['id']}")).json()["status"] == task["status"]


# --- paths and queries ------------------------------------------------------------------------------------------------


@pytest.mark.requirement("rest.query-encoded")
@pytest.mark.parametrize(
    "id_", ["a b", "a:b", "a/b", "a%2Fb", "a?b", "a#b", "ä漢", "a+b", "..", "tasks", "a:cancel", "%"]
)
@in_loop
async def test_an_id_in_a_path_is_percent_decoded_whatever_it_holds(id_: str) -> None:
    async with serve(tieline.app(worker())) as port:
        encoded = quote(id_, safe="")
        for verb, path in (("GET", ""), ("POST", ":cancel"), ("POST", ":subscribe"), ("GET", ":subscribe")):
            error = error_of(await request(port, verb, f"/tasks/{encoded}{path}"), 404, "TASK_NOT_FOUND")
            assert error["details"][0]["metadata"]["taskId"] == id_


@pytest.mark.requirement("rest.query-camel-case", "rest.query-types", "rest.params-outside-body")
@in_loop
async def test_lists_and_reads_take_their_parameters_from_the_query() -> None:
    async with serve(tieline.app(worker())) as port:
        first = (await send(port, message={"contextId": "c 1&2"})).json()["task"]
        await send(port, message={"contextId": "other"})

        async def ids(query: str) -> list[str]:
            reply = await request(port, "GET", f"/tasks?{query}")
            assert reply.status == 200, reply
            return [task["id"] for task in reply.json()["tasks"]]

        assert await ids("contextId=c%201%262") == [first["id"]]
        assert await ids("contextId=c+1%262") == [first["id"]]
        assert await ids("contextId=c") == []
        assert len(await ids("status=TASK_STATE_COMPLETED")) == 2
        assert await ids("status=TASK_STATE_WORKING") == []
        assert len(await ids("pageSize=1")) == 1
        assert len(await ids("statusTimestampAfter=2020-01-01T00:00:00Z")) == 2
        assert await ids("statusTimestampAfter=2120-01-01T00%3A00%3A00.123456789Z") == []
        reply = await request(port, "GET", "/tasks?includeArtifacts=true&historyLength=0")
        assert all("artifacts" in task and "history" not in task for task in reply.json()["tasks"])
        reply = await request(port, "GET", "/tasks?includeArtifacts=false")
        assert all("artifacts" not in task and "history" in task for task in reply.json()["tasks"])
        reply = await request(port, "GET", f"/tasks/{first['id']}?historyLength=0")
        assert "history" not in reply.json()


@pytest.mark.requirement("rest.query-types", "rest.bad-request")
@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("pageSize=0", "pageSize"),
        ("pageSize=150", "pageSize"),
        ("pageSize=ten", "pageSize"),
        ("historyLength=-5", "historyLength"),
        ("status=TASK_STATE_RUNNING", "status"),
        ("includeArtifacts=maybe", "includeArtifacts"),
        ("statusTimestampAfter=2025-13-01T00:00:00Z", "statusTimestampAfter"),
        ("statusTimestampAfter=2025-11-09T10:30:00", "statusTimestampAfter"),
        ("pageToken=base64-encoded-cursor-token", "pageToken"),
    ],
)
@in_loop
async def test_a_parameter_that_is_not_valid_is_refused_by_its_name(query: str, field: str) -> None:
    async with serve(tieline.app(worker())) as port:
        error = error_of(await request(port, "GET", f"/tasks?{query}"), 400, "INVALID_PARAMS")
    assert fields_of(error) == [field]


@pytest.mark.requirement("rest.params-outside-body")
@in_loop
async def test_a_body_of_a_get_or_delete_counts_for_nothing() -> None:
    async with serve(tieline.app(worker())) as port:
        await send(port)
        page = await request(port, "GET", "/tasks", b'{"pageSize":0}', A2A_JSON)
        assert page.json()["totalSize"] == 1
        reply = await request(port, "DELETE", "/tasks/t/pushNotificationConfigs/c", b"not JSON", A2A_JSON)
        error_of(reply, 400, "PUSH_NOTIFICATION_NOT_SUPPORTED")


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("rest.error-body", "rest.error-info", "rest.details-typed", "rest.server-content-type")
@in_loop
async def test_errors_have_the_form_of_the_specification() -> None:
    async with serve(tieline.app(worker(streaming=False))) as port:
        task = (await send(port)).json()["task"]
        get = await request(port, "GET", "/tasks/none")
        assert error_of(get, 404, "TASK_NOT_FOUND")["status"] == "NOT_FOUND"
        cancel = await request(port, "POST", f"/tasks/{task['id']}:cancel")
        assert error_of(cancel, 400, "TASK_NOT_CANCELABLE")["status"] == "FAILED_PRECONDITION"
        stream = await request(port, "POST", "/message:stream", json.dumps({"message": MESSAGE}).encode(), A2A_JSON)
        error_of(stream, 400, "UNSUPPORTED_OPERATION")
        error_of(await request(port, "GET", f"/tasks/{task['id']}:subscribe"), 400, "UNSUPPORTED_OPERATION")
        error_of(await request(port, "GET", "/extendedAgentCard"), 400, "UNSUPPORTED_OPERATION")
        error_of(await send(port, message={"taskId": task["id"]}), 400, "UNSUPPORTED_OPERATION")
        error_of(await send(port, message={"taskId": "none"}), 404, "TASK_NOT_FOUND")
        part = {"url": "https://a.example/x.png", "mediaType": "image/png"}
        error_of(await send(port, message={"parts": [part]}), 400, "CONTENT_TYPE_NOT_SUPPORTED")
        error_of(await send(port, headers=[("A2A-Version", "0.4")]), 400, "VERSION_NOT_SUPPORTED")


@pytest.mark.requirement("rest.bad-request", "rest.details-typed")
@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, ["message"]),
        ({"message": {**MESSAGE, "parts": []}}, ["message.parts"]),
        ({"message": {**MESSAGE, "parts": [{"text": "a"}, {"raw": "!"}]}}, ["message.parts[1].raw"]),
        ({"message": {**MESSAGE, "role": "ROLE_UNSPECIFIED"}}, ["message.role"]),
        ({"message": MESSAGE, "configuration": {"historyLength": "x"}}, ["configuration.historyLength"]),
    ],
)
@in_loop
async def test_a_body_that_is_not_valid_is_refused_with_the_fields_that_failed(body: Any, fields: list[str]) -> None:
    async with serve(tieline.app(worker())) as port:
        for path in ("/message:send", "/message:stream"):
            reply = await request(port, "POST", path, json.dumps(body).encode(), A2A_JSON)
            assert fields_of(error_of(reply, 400, "INVALID_PARAMS")) == fields


@in_loop
async def test_a_body_that_is_not_json_is_a_parse_error() -> None:
    async with serve(tieline.app(worker())) as port:
        for body in (b"", b"{", b"hello", b'{"message":NaN}', b'{"message":"\\ud800"}', b"\xff\xfe"):
            error_of(await request(port, "POST", "/message:send", body, A2A_JSON), 400, "PARSE_ERROR")


@pytest.mark.requirement("rest.server-content-type")
@pytest.mark.parametrize("path", ["/nothing", "/tasks/a/b/c", "/message:sending", "/.well-known/other"])
@in_loop
async def test_a_path_that_is_none_is_not_found(path: str) -> None:
    async with serve(tieline.app(worker())) as port:
        error = error_of(await request(port, "GET", path), 404, "METHOD_NOT_FOUND")
        assert path in error["message"]


@pytest.mark.parametrize(
    ("verb", "path", "allowed"),
    [
        ("GET", "/message:send", "POST"),
        ("PUT", "/tasks", "GET"),
        ("DELETE", "/tasks/t", "GET"),
        ("PATCH", "/tasks/t:subscribe", "POST, GET"),
        ("PUT", "/tasks/t/pushNotificationConfigs", "POST, GET"),
    ],
)
@in_loop
async def test_another_verb_is_refused_with_those_that_are_allowed(verb: str, path: str, allowed: str) -> None:
    async with serve(tieline.app(worker())) as port:
        reply = await request(port, verb, path)
    error_of(reply, 405, "METHOD_NOT_FOUND")
    assert reply.headers["allow"] == allowed


# --- headers ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("rest.server-reads-headers")
@pytest.mark.parametrize("name", ["A2A-Version", "a2a-version", "A2A-VERSION"])
@in_loop
async def test_names_of_service_parameters_are_read_in_any_case(name: str) -> None:
    async with serve(tieline.app(worker())) as port:
        reply = await request(port, "GET", "/tasks", headers=[(name, "0.5")])
        error = error_of(reply, 400, "VERSION_NOT_SUPPORTED")
        assert error["details"][0]["metadata"] == {"requestedVersion": "0.5", "supportedVersions": "1.0, 0.3, 0.2"}
        assert (await request(port, "GET", "/tasks", headers=[(name, "1.0")])).status == 200


@pytest.mark.requirement("rest.server-reads-headers")
@pytest.mark.parametrize("query", ["A2A-Version=0.5", "a2a-version=0.5", "x=1&A2A-Version=0%2E5"])
@in_loop
async def test_the_version_may_stand_in_the_query_too(query: str) -> None:
    async with serve(tieline.app(worker())) as port:
        error_of(await request(port, "GET", f"/tasks?{query}"), 400, "VERSION_NOT_SUPPORTED")
        reply = await request(port, "GET", f"/tasks?{query}", headers=[("A2A-Version", "1.0")])
        assert reply.status == 200  # the header counts first


@pytest.mark.parametrize(
    "content_type", ["application/json", "application/a2a+json", "Application/JSON;charset=utf-8", ""]
)
@in_loop
async def test_json_of_either_name_is_taken(content_type: str) -> None:
    async with serve(tieline.app(worker())) as port:
        assert (await send(port, headers=[("Content-Type", content_type)])).status == 200


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
@pytest.mark.parametrize("path", ["/message:send", "/message:stream", "/tasks/t:cancel", "/tasks/t:subscribe"])
@in_loop
async def test_another_content_type_is_refused_before_the_body_is_read(path: str, content_type: str) -> None:
    async with serve(tieline.app(worker())) as port, Wire(port) as wire:
        await wire.write("POST", path, None, [("Content-Type", content_type), ("Content-Length", "1000000")])
        status, headers = await wire.head()
        reply = Reply(status, headers, await wire.body())
    error = error_of(reply, 415, "CONTENT_TYPE_NOT_SUPPORTED")
    assert content_type in error["message"]
