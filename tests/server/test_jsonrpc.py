"""The JSON-RPC endpoint over HTTP (A2A 1.0 §9)."""

from __future__ import annotations

import json
from typing import Any

import pytest

import tieline
from tests.server.agents import asker, mixed, replier, worker
from tests.server.raw import JSON, Pairs, Reply, Wire, in_loop, request, serve
from tieline.stores.base import Page, Query
from tieline.stores.memory import MemoryStore

MESSAGE = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}


def envelope(method: str, params: Any = None, id_: Any = 1) -> bytes:
    call = {"jsonrpc": "2.0", "id": id_, "method": method}
    return json.dumps(call if params is None else {**call, "params": params}).encode()


async def call(port: int, method: str, params: Any = None, headers: Pairs | None = None, id_: Any = 1) -> Any:
    reply = await request(port, "POST", "/", envelope(method, params, id_), JSON if headers is None else headers)
    assert reply.headers["content-type"] == "application/json"
    answer = reply.json()
    assert answer["jsonrpc"] == "2.0"
    assert len({"result", "error"} & set(answer)) == 1
    return answer


def code(reply: Reply) -> int:
    found: int = reply.json()["error"]["code"]
    return found


# --- methods ----------------------------------------------------------------------------------------------------------

METHODS = [
    "SendMessage",
    "SendStreamingMessage",
    "GetTask",
    "ListTasks",
    "CancelTask",
    "SubscribeToTask",
    "CreateTaskPushNotificationConfig",
    "GetTaskPushNotificationConfig",
    "ListTaskPushNotificationConfigs",
    "DeleteTaskPushNotificationConfig",
    "GetExtendedAgentCard",
]


@pytest.mark.requirement("methods.jsonrpc")
@pytest.mark.parametrize("method", METHODS)
@in_loop
async def test_each_operation_has_its_method_also_when_the_agent_does_not_support_it(method: str) -> None:
    async with serve(tieline.app(worker(streaming=False))) as port:
        answer = await call(port, method, {})
    assert answer.get("error", {}).get("code") != -32601


@pytest.mark.requirement("methods.jsonrpc", "jsonrpc.method-not-found")
@pytest.mark.parametrize(
    "method",
    [
        "message/send",
        "tasks/get",
        "tasks/resubscribe",
        "sendMessage",
        "send_message",
        "SendMessage ",
        "",
        "x",
        "__init__",
    ],
)
@in_loop
async def test_names_of_other_versions_are_no_methods(method: str) -> None:
    async with serve(tieline.app(worker())) as port:
        answer = await call(port, method, {}, id_="a")
    assert answer["error"]["code"] == -32601
    assert answer["id"] == "a"
    assert repr(method) in answer["error"]["message"]


@pytest.mark.parametrize("path", ["/", ""])
@in_loop
async def test_the_endpoint_is_with_and_without_a_slash_at_its_end(path: str) -> None:
    async with serve(tieline.app({"w": worker()})) as port:
        reply = await request(port, "POST", f"/w{path}", envelope("ListTasks", {}), JSON)
    assert reply.json()["result"]["tasks"] == []


# --- results ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("jsonrpc.send-result", "jsonrpc.content-type")
@in_loop
async def test_a_send_answers_with_exactly_one_of_task_and_message() -> None:
    async with serve(tieline.app(replier())) as port:
        answer = await call(port, "SendMessage", {"message": MESSAGE})
        assert set(answer["result"]) == {"message"}
    async with serve(tieline.app(worker())) as port:
        answer = await call(port, "SendMessage", {"message": MESSAGE})
        assert set(answer["result"]) == {"task"}


@pytest.mark.requirement("jsonrpc.bare-results")
@in_loop
async def test_reading_and_cancelling_answer_with_the_bare_task_and_listing_with_the_page() -> None:
    async with serve(tieline.app(asker())) as port:
        task = (await call(port, "SendMessage", {"message": MESSAGE}))["result"]["task"]
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        assert (await call(port, "GetTask", {"id": task["id"]}))["result"]["id"] == task["id"]
        page = (await call(port, "ListTasks", {}))["result"]
        assert set(page) == {"tasks", "nextPageToken", "pageSize", "totalSize"}
        canceled = (await call(port, "CancelTask", {"id": task["id"]}))["result"]
        assert (canceled["id"], canceled["status"]["state"]) == (task["id"], "TASK_STATE_CANCELED")


@pytest.mark.requirement("jsonrpc.stream-frames", "jsonrpc.id-echoed")
@pytest.mark.parametrize("id_", [7, "seven", 1.5, None, 2**70])
@in_loop
async def test_each_frame_of_a_stream_is_a_response_with_the_id_of_its_request(id_: Any) -> None:
    async with serve(tieline.app(worker())) as port, Wire(port) as wire:
        await wire.write("POST", "/", envelope("SendStreamingMessage", {"message": MESSAGE}, id_), JSON)
        status, headers = await wire.head()
        assert (status, headers["content-type"]) == (200, "text/event-stream")
        frames = [frame async for frame in wire.frames()]
    kinds = []
    for frame in frames:
        assert set(frame.data) == {"jsonrpc", "id", "result"}
        assert (frame.data["jsonrpc"], frame.data["id"]) == ("2.0", id_)
        assert type(frame.data["id"]) is type(id_)
        (kind,) = frame.data["result"]
        kinds.append(kind)
    assert kinds[0] == "task"
    assert set(kinds[1:]) == {"statusUpdate", "artifactUpdate"}
    assert [frame.id for frame in frames] == [str(number) for number in range(1, len(frames) + 1)]


@pytest.mark.requirement("jsonrpc.stream-frames")
@in_loop
async def test_a_stream_is_not_to_be_kept_or_held_back() -> None:
    async with serve(tieline.app(worker())) as port, Wire(port) as wire:
        await wire.write("POST", "/", envelope("SendStreamingMessage", {"message": MESSAGE}), JSON)
        _, headers = await wire.head()
    assert headers["cache-control"] == "no-cache"
    assert headers["x-accel-buffering"] == "no"


@pytest.mark.requirement("jsonrpc.subscribe")
@in_loop
async def test_a_subscription_has_the_form_of_a_stream_and_its_refusal_is_a_plain_error() -> None:
    async with serve(tieline.app(asker())) as port, Wire(port) as wire:
        task = (await call(port, "SendMessage", {"message": MESSAGE}))["result"]["task"]
        await wire.write("POST", "/", envelope("SubscribeToTask", {"id": task["id"]}, "s"), JSON)
        _, headers = await wire.head()
        assert headers["content-type"] == "text/event-stream"
        frames = wire.frames()
        first = await anext(frames)
        assert (first.data["id"], first.data["result"]["task"]["id"]) == ("s", task["id"])
        await call(port, "CancelTask", {"id": task["id"]})
        last = [frame async for frame in frames][-1]
        assert last.data["result"]["statusUpdate"]["status"]["state"] == "TASK_STATE_CANCELED"
        for task_id, refusal in ((task["id"], -32004), ("unknown", -32001)):
            answer = await call(port, "SubscribeToTask", {"id": task_id}, id_="again")
            assert (answer["error"]["code"], answer["id"]) == (refusal, "again")


@pytest.mark.requirement("jsonrpc.extended-card-without-params")
@in_loop
async def test_the_extended_card_is_asked_for_without_params() -> None:
    async with serve(tieline.app(worker())) as port:
        answer = await call(port, "GetExtendedAgentCard")
    assert answer["error"]["code"] == -32004


# --- ids --------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("jsonrpc.id-echoed")
@pytest.mark.parametrize("id_", ["1", "1.0", '"1"', '"\\u00e4\\n"', '""', "null", "-0", "1e2", "1" * 30])
@pytest.mark.parametrize("method", ["ListTasks", "GetTask", "nothing", "SendMessage"])
@in_loop
async def test_results_and_errors_have_the_id_as_it_was_written(method: str, id_: str) -> None:
    body = b'{"jsonrpc":"2.0","id":%s,"method":"%s","params":{}}' % (id_.encode(), method.encode())
    async with serve(tieline.app(worker())) as port:
        reply = await request(port, "POST", "/", body, JSON)
    assert b'"id":' + id_.encode() + b"," in reply.body
    reply.json()


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("jsonrpc.parse-error", "jsonrpc.invalid-request", "jsonrpc.invalid-params")
@pytest.mark.parametrize(
    ("body", "expected", "id_"),
    [
        (b"", -32700, None),
        (b"{", -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":NaN}}', -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"\xff"}}', -32700, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"\\ud800"}}', -32700, None),
        (b'{"jsonrpc":"2.0","id":"\xff","method":"GetTask"}', -32700, None),
        (b"[]", -32600, None),
        (b"[" + envelope("ListTasks", {}) + b"]", -32600, None),
        (b'"x"', -32600, None),
        (b'{"id":1,"method":"GetTask","params":{"id":"t"}}', -32600, 1),
        (b'{"id":1,"method":"GetTask","params":{"id":1e999}}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":{},"method":"GetTask"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":[]}', -32602, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":5}}', -32602, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"t","historyLength":1e999}}', -32602, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":' + b"[" * 97 + b"]" * 97 + b"}}", -32602, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":' + b"[" * 99 + b"]" * 99 + b"}}", -32600, None),
        (b"[" * 100_000, -32600, None),
    ],
)
@in_loop
async def test_a_malformed_request_gets_its_code_with_status_200(body: bytes, expected: int, id_: Any) -> None:
    async with serve(tieline.app(worker())) as port:
        reply = await request(port, "POST", "/", body, JSON)
    assert reply.status == 200
    answer = reply.json()
    assert answer["error"]["code"] == expected
    assert answer["id"] in (id_, None if expected == -32700 else id_)


@pytest.mark.requirement("jsonrpc.error-object", "jsonrpc.bad-request", "jsonrpc.details-typed")
@pytest.mark.parametrize(
    ("method", "params", "fields"),
    [
        ("SendMessage", {}, ["message"]),
        ("SendMessage", {"message": {**MESSAGE, "parts": []}}, ["message.parts"]),
        ("SendMessage", {"message": {**MESSAGE, "messageId": ""}}, ["message.messageId"]),
        ("SendMessage", {"message": {**MESSAGE, "role": "user"}}, ["message.role"]),
        ("SendMessage", {"message": {**MESSAGE, "parts": [{"text": "a"}, {}]}}, ["message.parts[1]"]),
        ("SendMessage", {"message": MESSAGE, "configuration": 5}, ["configuration"]),
        (
            "SendMessage",
            {"message": MESSAGE, "configuration": {"historyLength": -1}},
            ["configuration.historyLength"],
        ),
        ("GetTask", {}, ["id"]),
        ("GetTask", {"id": "t", "historyLength": -1}, ["historyLength"]),
        ("ListTasks", {"pageSize": 101}, ["pageSize"]),
        ("ListTasks", {"pageToken": "?"}, ["pageToken"]),
        ("ListTasks", {"statusTimestampAfter": "yesterday"}, ["statusTimestampAfter"]),
        ("CancelTask", {"id": None}, ["id"]),
        ("SubscribeToTask", {"id": ["t"]}, ["id"]),
    ],
)
@in_loop
async def test_params_that_are_not_valid_are_named_by_their_paths(method: str, params: Any, fields: list[str]) -> None:
    async with serve(tieline.app(worker())) as port:
        error = (await call(port, method, params))["error"]
    assert error["code"] == -32602
    assert isinstance(error["message"], str)
    assert all(isinstance(detail["@type"], str) for detail in error["data"])
    (bad_request,) = [each for each in error["data"] if each["@type"].endswith("/google.rpc.BadRequest")]
    assert [violation["field"] for violation in bad_request["fieldViolations"]] == fields
    assert all(violation["description"] for violation in bad_request["fieldViolations"])


@pytest.mark.requirement("jsonrpc.error-info", "jsonrpc.details-typed")
@in_loop
async def test_an_a2a_error_has_reason_and_domain() -> None:
    async with serve(tieline.app(worker())) as port:
        error = (await call(port, "GetTask", {"id": "no-such-task"}))["error"]
    (info,) = error["data"]
    assert info["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"
    assert (info["reason"], info["domain"]) == ("TASK_NOT_FOUND", "a2a-protocol.org")
    assert info["metadata"]["taskId"] == "no-such-task"


class Broken(MemoryStore):
    """A store with a bug in it."""

    async def list(self, query: Query) -> Page:
        raise ZeroDivisionError("secret detail")


@pytest.mark.requirement("jsonrpc.internal-error")
@in_loop
async def test_a_fault_of_ours_is_logged_and_answered_without_a_word_about_its_cause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serve(tieline.app(worker(), store=Broken())) as port:
        answer = await call(port, "ListTasks", {}, id_="x")
        rest = await request(port, "GET", "/tasks")
    assert answer["error"]["code"] == -32603
    assert answer["id"] == "x"
    assert rest.status == 500
    for said in (json.dumps(answer), rest.body.decode()):
        assert "secret" not in said
        assert "ZeroDivision" not in said
        assert "Traceback" not in said
    assert "secret detail" in caplog.text


@in_loop
async def test_an_agent_that_crashes_fails_its_task_without_a_word_about_the_cause() -> None:
    async with serve(tieline.app(mixed())) as port:
        message = {**MESSAGE, "parts": [{"text": "crash"}]}
        answer = await call(port, "SendMessage", {"message": message})
    assert answer["result"]["task"]["status"]["state"] == "TASK_STATE_FAILED"
    assert "secret" not in json.dumps(answer)


# --- headers ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("jsonrpc.server-reads-headers")
@pytest.mark.parametrize("name", ["A2A-Version", "a2a-version", "A2A-VERSION", "a2A-vErSiOn"])
@in_loop
async def test_names_of_service_parameters_are_read_in_any_case(name: str) -> None:
    async with serve(tieline.app(worker())) as port:
        refused = await call(port, "ListTasks", {}, [(name, "0.5")])
        assert refused["error"]["code"] == -32009
        assert refused["error"]["data"][0]["metadata"]["supportedVersions"] == "1.0, 0.3, 0.2, 0.1"
        assert "result" in await call(port, "ListTasks", {}, [(name, "1.0")])


@pytest.mark.requirement("jsonrpc.content-type")
@pytest.mark.parametrize(
    "content_type", ["application/json", "application/json; charset=utf-8", "application/a2a+json"]
)
@in_loop
async def test_json_is_taken_and_answered_as_application_json(content_type: str) -> None:
    async with serve(tieline.app(worker())) as port:
        assert "result" in await call(port, "ListTasks", {}, [("Content-Type", content_type)])
        assert "result" in await call(port, "ListTasks", {}, [])


@pytest.mark.requirement("jsonrpc.content-type")
@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
@in_loop
async def test_another_content_type_is_refused_before_the_body_is_read(content_type: str) -> None:
    async with serve(tieline.app(worker())) as port, Wire(port) as wire:
        length = [("Content-Type", content_type), ("Content-Length", "1000000")]
        await wire.write("POST", "/", None, length)
        status, headers = await wire.head()
        answer = json.loads(await wire.body())
    assert (status, headers["content-type"]) == (415, "application/json")
    assert answer["error"]["code"] == -32005
    assert answer["id"] is None
