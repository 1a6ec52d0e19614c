"""Protocol versions of requests (A2A 1.0 §3.6)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.behaviour import raw_http
from tests.behaviour.agents import Puppet, begun, hello
from tests.behaviour.harness import Transport, message, refused, state_of, text_of
from tests.behaviour.over_http import JsonRpc, Rest
from tests.behaviour.serving import Serve, only_in, over

pytestmark = only_in("1.0", why="what a request of 1.0 says of its version")

wire = over("jsonrpc", "rest", "grpc")
"""Versions are a matter of headers and metadata."""
http = over("jsonrpc", "rest")
SERVED = {"jsonrpc": "1.0, 0.3, 0.2, 0.1", "rest": "1.0, 0.3, 0.2", "grpc": "1.0"}
"""What is named to a caller whose version is not served. 0.1 has no REST, and a gRPC service is one of a version."""


@wire
@pytest.mark.requirement("version.requested-semantics", "version.card-has-no-patch")
async def test_request_of_version_1_0_is_answered_in_it(serve: Serve) -> None:
    agent = await serve(hello, strict=True)
    answer = await agent.send("Ada", service={"A2A-Version": "1.0"})
    assert list(answer) == ["task"]  # 0.3 has no such field, and a kind instead
    assert answer["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert answer["task"]["history"][0]["role"] == "ROLE_USER"


@http
@pytest.mark.requirement("version.card-has-no-patch")
async def test_versions_in_the_card_have_no_patch_number(serve: Serve) -> None:
    agent = await serve(hello)
    versions = [interface["protocolVersion"] for interface in (await agent.card())["supportedInterfaces"]]
    assert list(dict.fromkeys(versions)) == ["1.0", "0.3"]  # the latest is preferred


@wire
@pytest.mark.requirement("version.server-ignores-patch", "version.requested-semantics")
@pytest.mark.parametrize("version", ["1.0.0", "1.0.1", "1.0.7", "1.0.99"])
async def test_patch_number_changes_nothing(serve: Serve, version: str) -> None:
    agent = await serve(hello, strict=True)
    assert text_of(await agent.task("Ada", service={"A2A-Version": version})) == "Hello, Ada!"


@wire
@pytest.mark.requirement("version.unsupported-refused", "version.card-has-no-patch", "errors.actionable")
@pytest.mark.parametrize("version", ["0.0", "0.4", "1.1", "2.0", "10.0", "1", "1.0beta", "latest", "1.0, 0.3"])
async def test_version_that_is_not_served_is_refused_and_those_that_are_named(serve: Serve, version: str) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await begun(agent, puppet)
    service = {"A2A-Version": version}
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: agent.send(service=service),
        lambda: agent.stream(service=service),
        lambda: agent.get(task["id"], service=service),
        lambda: agent.list(service=service),
        lambda: agent.subscribe(task["id"], service=service),
        lambda: agent.cancel(task["id"], service=service),
    ]
    for call in calls:
        with refused("VersionNotSupportedError") as refusal:
            await call()
        assert refusal.metadata == {"requestedVersion": version, "supportedVersions": SERVED[agent.name]}
        assert SERVED[agent.name] in refusal.message
        assert version in refusal.message
    assert puppet.runs == 1
    assert not act.stopped.is_set()


@wire
@pytest.mark.requirement("version.empty-means-0-3")
@pytest.mark.parametrize("service", [{}, {"A2A-Version": ""}], ids=["missing", "empty"])
async def test_strict_server_takes_a_missing_version_for_0_3_and_refuses_it(
    serve: Serve, service: dict[str, str]
) -> None:
    agent = await serve(hello, strict=True)
    calls: list[Callable[..., Awaitable[Any]]] = [agent.send, agent.stream, agent.list]
    for call in calls:
        with refused("VersionNotSupportedError") as refusal:
            await call(service=service)
        assert refusal.metadata == {"requestedVersion": "0.3", "supportedVersions": "1.0"}  # those that have the method


@wire
@pytest.mark.requirement("version.empty-means-0-3")
@pytest.mark.parametrize("service", [{}, {"A2A-Version": ""}], ids=["missing", "empty"])
async def test_other_servers_take_a_missing_version_for_1_0(serve: Serve, service: dict[str, str]) -> None:
    agent = await serve(hello)
    assert state_of(await agent.send(service=service)) == "COMPLETED"


@over("jsonrpc")
@pytest.mark.requirement("version.requested-semantics", "errors.actionable")
@pytest.mark.parametrize("version", ["0.3", "0.3.0", "0.2.6"])
async def test_version_that_has_no_such_method_is_told_which_one_has_it(serve: Serve, version: str) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    service = {"A2A-Version": version}
    calls: list[Callable[..., Awaitable[Any]]] = [agent.send, agent.list]
    for call in calls:
        with refused("MethodNotFoundError") as refusal:
            await call(service=service)
        assert "A2A-Version: 1.0" in refusal.message
    assert puppet.runs == 0


@over("rest")
@pytest.mark.requirement("version.requested-semantics")
@pytest.mark.parametrize("version", ["0.3", "0.2.6"])
async def test_path_that_two_versions_have_is_answered_in_the_one_that_is_asked_for(serve: Serve, version: str) -> None:
    agent = await serve(hello)
    task = await agent.task("Ada")
    path = f"{agent.root}/tasks/{task['id']}"
    response = await raw_http.request(agent.port, "GET", path, [("A2A-Version", version)])
    assert response.status == 200
    old = json.loads(await response.body())
    assert (old["id"], old["contextId"]) == (task["id"], task["contextId"])
    assert old != task


@http
@pytest.mark.requirement("version.query-parameter")
@pytest.mark.parametrize(("name", "version"), [("A2A-Version", "1.0"), ("a2a-version", "1.0.3")])
async def test_version_may_come_as_a_request_parameter(serve: Serve, name: str, version: str) -> None:
    agent = await serve(hello, strict=True)
    for query in (f"{name}={version}", f"x=1&{name}={version}"):
        status, body = await with_query(agent, query)
        assert (status, "error" in body) == (200, False)


@http
@pytest.mark.requirement("version.query-parameter")
async def test_version_in_a_request_parameter_may_be_percent_encoded(serve: Serve) -> None:
    agent = await serve(hello, strict=True)
    status, body = await with_query(agent, "A2A%2DVersion=1%2E0")
    assert (status, "error" in body) == (200, False)


@http
@pytest.mark.requirement("version.query-parameter", "version.unsupported-refused")
async def test_version_in_a_request_parameter_is_refused_where_it_is_not_served(serve: Serve) -> None:
    agent = await serve(hello)
    _, body = await with_query(agent, "A2A-Version=0.9")
    details = body["error"].get("data") or body["error"].get("details")
    assert details[0]["reason"] == "VERSION_NOT_SUPPORTED"


async def with_query(agent: Transport, query: str) -> tuple[int, Any]:
    """The answer to a request with a query and without a version header."""
    if isinstance(agent, Rest):
        response = await raw_http.request(agent.port, "GET", f"{agent.root}/tasks?{query}")
    else:
        assert isinstance(agent, JsonRpc)
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message("hi")}})
        headers = [("Content-Type", "application/json")]
        response = await raw_http.request(agent.port, "POST", f"{agent.root}/?{query}", headers, body.encode())
    return response.status, json.loads(await response.body())
