"""Whose a task is: to everybody else, in every operation of every dialect, it is as if it were not there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.auth.asking import Answer, ask, fetch, operations_of
from tests.auth.tokens import Tokens, bearer
from tests.behaviour.agents import Act, Puppet, begun, hello, make_agent
from tests.behaviour.harness import Json, Transport, refused
from tests.behaviour.serving import Serve, by_tenants, over
from tieline import Turn
from tieline.engine.guard import Guard
from tieline.engine.push import Push
from tieline.ids import new_id
from tieline.server.auth import Auth, BearerTokens

OF_A_TASK = (
    "SendMessage",
    "SendStreamingMessage",
    "GetTask",
    "CancelTask",
    "SubscribeToTask",
    "CreateTaskPushNotificationConfig",
    "GetTaskPushNotificationConfig",
    "ListTaskPushNotificationConfigs",
    "DeleteTaskPushNotificationConfig",
)


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    return Tokens(tmp_path)


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def store(request: pytest.FixtureRequest) -> str:
    """Isolation is the store's work, too: each test here is run on every one."""
    name: str = request.param
    return name


async def puppet_of_ada(serve: Serve, tokens: Tokens, **options: Any) -> tuple[Transport, Transport, Json, Act]:
    """Ada with a task that is at work, and somebody else."""
    puppet = Puppet()
    ada, bob = tokens.add("ada"), tokens.add("bob")
    agent = await serve(puppet, auth=Auth(BearerTokens(tokens.path)), **options)
    task, act = await begun(agent.showing(bearer(ada)), puppet)
    return agent.showing(bearer(ada)), agent.showing(bearer(bob)), task, act


def same(answer: Answer, id_: str, other: Answer, other_id: str) -> bool:
    return answer.without(id_) == other.without(other_id)


@pytest.mark.requirement("scoping.every-operation")
async def test_task_of_another_caller_is_as_one_that_is_not_there(serve: Serve, transport: str, tokens: Tokens) -> None:
    ada, bob, task, act = await puppet_of_ada(serve, tokens)
    for operation in operations_of(transport):
        if operation not in OF_A_TASK or (transport == "jsonrpc-0.1" and operation.startswith("Send")):
            continue  # before 0.2.5 callers name their tasks: below
        absent = new_id()
        for headers in ((), [("Last-Event-ID", "1")], [("Last-Event-ID", "0")]):
            theirs = await ask(bob, operation, task["id"], headers=headers)
            assert theirs.refused, operation
            assert same(theirs, task["id"], await ask(bob, operation, absent, headers=headers), absent), operation
    assert (await ada.get(task["id"]))["status"]["state"] == "TASK_STATE_WORKING"
    act.end()
    await ada.until(task["id"], "COMPLETED")
    for operation in ("GetTask", "CancelTask", "SubscribeToTask"):
        absent = new_id()
        theirs = await ask(bob, operation, task["id"])
        assert same(theirs, task["id"], await ask(bob, operation, absent), absent), operation


@pytest.mark.requirement("scoping.every-operation")
async def test_webhook_of_another_caller_is_as_one_that_is_not_there(
    serve: Serve, transport: str, tokens: Tokens
) -> None:
    push = Push(guard=Guard(allow_loopback=True))
    ada, bob, task, act = await puppet_of_ada(serve, tokens, push=push)
    theirs, mine = ada.over("jsonrpc"), bob.over("jsonrpc")
    made = json.loads((await ask(theirs, "CreateTaskPushNotificationConfig", task["id"])).text)["result"]
    for operation in operations_of(transport):
        if "PushNotification" not in operation:
            continue
        absent = new_id()
        answer = await ask(bob, operation, task["id"], made["id"])
        assert answer.refused, operation
        other = await ask(bob, operation, absent, made["id"])
        assert same(answer, task["id"], other, absent), operation
    task_of_bob = await mine.task("mine", configuration={"returnImmediately": True})
    for operation in ("GetTaskPushNotificationConfig", "DeleteTaskPushNotificationConfig"):
        if operation in operations_of(transport) and transport != "jsonrpc-0.1":
            absent = new_id()
            answer = await ask(bob, operation, task_of_bob["id"], made["id"])
            assert same(answer, made["id"], await ask(bob, operation, task_of_bob["id"], absent), absent), operation
    kept = json.loads((await ask(theirs, "ListTaskPushNotificationConfigs", task["id"])).text)["result"]
    assert [each["id"] for each in kept["configs"]] == [made["id"]]
    await ask(theirs, "DeleteTaskPushNotificationConfig", task["id"], made["id"])
    act.end()
    await mine.cancel(task_of_bob["id"])


@over("jsonrpc-0.1")
async def test_two_callers_who_name_a_task_alike_have_one_each(serve: Serve, tokens: Tokens) -> None:
    ada, bob, task, act = await puppet_of_ada(serve, tokens)
    answer = await ask(bob, "GetTask", task["id"])
    assert answer.refused
    mine = await bob.call(
        "SendMessage", {"message": _named(task["id"])} | {"configuration": {"returnImmediately": True}}
    )
    assert mine["task"]["id"] == task["id"]
    assert [part["text"] for part in mine["task"]["history"][0]["parts"]] == ["mine"]
    assert [part["text"] for part in (await ada.get(task["id"]))["history"][0]["parts"]] == ["go"]
    act.end()
    await bob.cancel(task["id"])


def _named(task_id: str) -> Json:
    return {"messageId": new_id(), "role": "ROLE_USER", "parts": [{"text": "mine"}], "taskId": task_id}


@pytest.mark.requirement("list.authorization-scope")
@over("jsonrpc", "rest", "grpc")
async def test_lists_contexts_references_and_page_tokens_show_nothing_of_another_caller(
    serve: Serve, transport: str, tokens: Tokens
) -> None:
    seen: list[list[str]] = []

    async def looks(turn: Turn) -> str:
        seen.append([task.id for task in turn.references])
        return "done"

    ada, bob = tokens.add("ada"), tokens.add("bob")
    agent = await serve(make_agent(looks), auth=Auth(BearerTokens(tokens.path)))
    by_ada, by_bob = agent.showing(bearer(ada)), agent.showing(bearer(bob))
    tasks = [await by_ada.task() for _ in range(3)]
    page = await by_ada.list(pageSize=1)
    assert page["nextPageToken"]

    assert (await by_bob.list())["tasks"] == []
    assert (await by_bob.list(contextId=tasks[0]["contextId"]))["tasks"] == []
    behind = await by_bob.list(pageSize=1, pageToken=page["nextPageToken"])
    assert (behind["tasks"], behind["totalSize"]) == ([], 0)

    await by_bob.task(referenceTaskIds=[tasks[0]["id"], new_id()])
    assert seen[-1] == []
    joined = await by_bob.task(contextId=tasks[0]["contextId"])  # any name of a context may be used by anybody
    assert [task["id"] for task in (await by_bob.list(contextId=joined["contextId"]))["tasks"]] == [joined["id"]]
    assert len((await by_ada.list(contextId=joined["contextId"]))["tasks"]) == 1


@over("jsonrpc")
async def test_message_of_another_caller_sent_again_gets_nothing_of_its_task(serve: Serve, tokens: Tokens) -> None:
    ada, bob = tokens.add("ada"), tokens.add("bob")
    agent = await serve(hello, auth=Auth(BearerTokens(tokens.path)))
    message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "the same"}]}
    first = await agent.showing(bearer(ada)).task(message)
    assert (await agent.showing(bearer(ada)).task(message))["id"] == first["id"]
    assert (await agent.showing(bearer(bob)).task(message))["id"] != first["id"]


@by_tenants
@over("jsonrpc", "rest", "grpc")
async def test_task_of_another_tenant_is_as_one_that_is_not_there(serve: Serve, transport: str, tokens: Tokens) -> None:
    puppet = Puppet()
    token = tokens.add("ada")  # it may name any tenant, and has its own tasks in each
    agent = (await serve(puppet, auth=Auth(BearerTokens(tokens.path)))).showing(bearer(token))
    task, act = await begun(agent, puppet, tenant="acme")
    for tenant in ("other", ""):
        fields: dict[str, Any] = {"tenant": tenant} if tenant else {}
        for operation in OF_A_TASK:
            absent = new_id()
            theirs = await ask(agent, operation, task["id"], **fields)
            assert theirs.refused, operation
            assert same(theirs, task["id"], await ask(agent, operation, absent, **fields), absent), operation
        assert (await agent.list(**fields))["tasks"] == []
    assert (await agent.get(task["id"], tenant="acme"))["id"] == task["id"]
    act.end()


@by_tenants
@over("jsonrpc", "rest", "grpc")
async def test_caller_of_one_tenant_may_name_no_other_and_needs_not_name_its_own(
    serve: Serve, transport: str, tokens: Tokens
) -> None:
    _, _, _, act = await puppet_of_ada(serve, tokens)
    act.end()
    puppet = Puppet()
    token = tokens.add("ada", tenant="acme")
    agent = (await serve(puppet, auth=Auth(BearerTokens(tokens.path)))).showing(bearer(token))
    task, act = await begun(agent, puppet)
    assert (await agent.get(task["id"], tenant="acme"))["id"] == task["id"]
    for operation in OF_A_TASK[:5]:
        answer = await ask(agent, operation, task["id"], tenant="other")
        assert answer.status in (403, "PERMISSION_DENIED"), (operation, answer)
    with refused("PermissionDenied"):
        await agent.list(tenant="other")
    act.end()


@by_tenants
@over("rest")
async def test_tenant_in_a_path_is_that_of_the_request_whatever_its_body_or_query_says(
    serve: Serve, tokens: Tokens
) -> None:
    token = tokens.add("ada", tenant="acme")
    agent = (await serve(hello, auth=Auth(BearerTokens(tokens.path)))).showing(bearer(token))
    version = [("A2A-Version", "1.0"), ("Content-Type", "application/a2a+json")]
    body = b'{"tenant": "acme", "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}}'
    assert (await fetch(agent, "POST", "/acme/message:send", version, body)).status == 200
    assert (await fetch(agent, "POST", "/other/message:send", version, body)).status == 403
    wrong = body.replace(b"acme", b"other")
    assert (await fetch(agent, "POST", "/acme/message:send", version, wrong)).status == 200, "the path wins"
    assert (await fetch(agent, "POST", "/message:send", version, wrong)).status == 403
    assert (await fetch(agent, "GET", "/other/tasks?tenant=acme", version)).status == 403
    assert (await fetch(agent, "GET", "/acme/tasks?tenant=other", version)).status == 200
    assert (await fetch(agent, "GET", "/tasks?tenant=other", version)).status == 403
    assert (await fetch(agent, "GET", "/acme%2f/tasks", version)).status == 403, "another tenant, by its name"
    assert (await fetch(agent, "GET", "/%61cme/tasks", version)).status == 200
    assert (await fetch(agent, "GET", "/acme/acme/tasks", version)).status == 404


TRICKS = (
    "..",
    "%2e%2e",
    "%2e%2e%2f%2e%2e",
    "..%2f..%2fetc%2fpasswd",
    "%00",
    "x%00y",
    "%ff%fe",
    "%2f",
    "%252e%252e",
    "%F0%9F%92%A9",
    "a%0d%0aX-Injected:%201",
    "x" * 30_000,
    "'%20OR%201=1--",
    "*",
    "%25",
)


@over("rest", "rest-0.3")
async def test_ids_that_play_tricks_with_paths_name_no_task_and_open_no_door(
    serve: Serve, transport: str, tokens: Tokens
) -> None:
    ada, bob, task, act = await puppet_of_ada(serve, tokens)
    prefix = "/v1" if transport == "rest-0.3" else ""
    version = [] if prefix else [("A2A-Version", "1.0")]
    for trick in (*TRICKS, f"{task['id']}%2f", f"%2e%2f{task['id']}", f"{task['id']}%00", f"..%2fada%2f{task['id']}"):
        for verb, path in (("GET", f"/tasks/{trick}"), ("POST", f"/tasks/{trick}:cancel")):
            for agent in (ada, bob):
                answer = await fetch(agent, verb, prefix + path, version, b"" if verb == "POST" else None)
                assert answer.status in (400, 404), (verb, trick, answer)
                assert "x-injected" not in answer.headers
            nobody = agent.showing({})
            assert (await fetch(nobody, verb, prefix + path, version, b"" if verb == "POST" else None)).status == 401
    for path in ("//tasks", "/tasks//", "/./tasks", "/tasks/../tasks", "/x/../tasks", "//", "/tasks;x=1"):
        assert (await fetch(bob.showing({}), "GET", prefix + path, version)).status == 401, path
        assert task["id"] not in (await fetch(bob, "GET", prefix + path, version)).text
    act.end()


@over("jsonrpc", "grpc", "jsonrpc-0.3", "grpc-0.3")
async def test_ids_that_play_tricks_in_requests_name_no_task(serve: Serve, transport: str, tokens: Tokens) -> None:
    ada, _, task, act = await puppet_of_ada(serve, tokens)
    for trick in ("..", "../ada", "\x00", f"{task['id']}\x00", "x" * 100_000, "💩", "0:/ada", f"ada/{task['id']}", "%"):
        answer = await ask(ada, "GetTask", trick)
        assert answer.refused, trick
        assert answer.status in (200, 400, 404, "NOT_FOUND", "INVALID_ARGUMENT"), (trick, answer)
    act.end()
