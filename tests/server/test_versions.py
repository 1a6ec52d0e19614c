"""The version of a request, and what strict mode asks beyond (A2A 1.0 §3.6)."""

from __future__ import annotations

import json
from typing import Any

import pytest

import tieline
from tests.server.agents import worker
from tests.server.raw import Pairs, Reply, asgi, in_loop

MESSAGE = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
SUPPORTED = {"/": "1.0, 0.3, 0.2, 0.1", "/message:send": "1.0, 0.3, 0.2"}  # REST began with 0.3


async def send(app: Any, path: str, headers: Pairs, query: str = "") -> Reply:
    """The same message by JSON-RPC ("/") or REST."""
    params: dict[str, Any] = {"message": MESSAGE}
    if path == "/":
        params = {"jsonrpc": "2.0", "id": "v", "method": "SendMessage", "params": params}
    return await asgi(app, "POST", path, json.dumps(params).encode(), headers, query_string=query.encode())


def refusal(reply: Reply) -> dict[str, str] | None:
    """The metadata of a VersionNotSupportedError; None when it is none."""
    answer = reply.json()
    if "error" not in answer:
        return None
    error = answer["error"]
    (info,) = [each for each in error.get("data", error.get("details")) if each["@type"].endswith("ErrorInfo")]
    assert info["reason"] == "VERSION_NOT_SUPPORTED"
    if "jsonrpc" in answer:
        assert (reply.status, error["code"], answer["id"]) == (200, -32009, "v")
    else:
        assert (reply.status, error["code"]) == (400, 400)
    metadata: dict[str, str] = info["metadata"]
    return metadata


both = pytest.mark.parametrize("path", ["/", "/message:send"])


@both
@in_loop
async def test_a_request_without_a_version_is_1_0_but_0_3_in_strict_mode(path: str) -> None:
    assert refusal(await send(tieline.app(worker()), path, [])) is None
    strict = tieline.app(worker(), strict=True)
    assert refusal(await send(strict, path, [])) == {"requestedVersion": "0.3", "supportedVersions": "1.0"}
    assert refusal(await send(strict, path, [("A2A-Version", "")])) == {
        "requestedVersion": "0.3",
        "supportedVersions": "1.0",
    }


@both
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("version", ["1.0", " 1.0 ", "1.0.1"])
@in_loop
async def test_1_0_is_served_with_any_patch_number(version: str, strict: bool, path: str) -> None:
    app = tieline.app(worker(), strict=strict)
    assert refusal(await send(app, path, [("A2A-Version", version)])) is None


@both
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("version", ["0.4", "0.4.0", "0.5", "1.1", "2.0", "1", "one", "\xff", "1.0, 0.3"])
@in_loop
async def test_another_version_is_refused_with_those_that_are_served(version: str, strict: bool, path: str) -> None:
    app = tieline.app(worker(), strict=strict)
    metadata = refusal(await send(app, path, [("A2A-Version", version)]))
    assert metadata == {"requestedVersion": version, "supportedVersions": SUPPORTED[path]}


@both
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("query", ["A2A-Version=1.0", "a2a-version=1.0&x=1", "x=1&A2A-Version=1%2E0"])
@in_loop
async def test_a_version_in_the_query_counts_where_no_header_has_one(query: str, strict: bool, path: str) -> None:
    app = tieline.app(worker(), strict=strict)
    assert refusal(await send(app, path, [], query)) is None
    other = query.replace("1.0", "0.9").replace("1%2E0", "0%2E9")
    assert refusal(await send(app, path, [], other)) == {
        "requestedVersion": "0.9",
        "supportedVersions": SUPPORTED[path],
    }
    assert refusal(await send(app, path, [("A2A-Version", "1.0")], other)) is None


@in_loop
async def test_a_version_is_refused_before_the_operation_is_looked_at() -> None:
    app = tieline.app(worker())
    body = b'{"jsonrpc":"2.0","id":"v","method":"message/send","params":{"x":5}}'
    assert refusal(await asgi(app, "POST", "/", body, [("A2A-Version", "0.4")])) is not None
    assert refusal(await asgi(app, "GET", "/extendedAgentCard", headers=[("A2A-Version", "0.4")])) is not None


@in_loop
async def test_the_card_is_there_for_every_version() -> None:
    for version in ("0.3", "1.0", "9.9"):
        app = tieline.app(worker(), strict=True)
        reply = await asgi(app, "GET", "/.well-known/agent-card.json", headers=[("A2A-Version", version)])
        assert reply.status == 200


OLD = {"kind": "message", "messageId": "m-1", "role": "user", "parts": [{"kind": "text", "text": "hello"}]}
OLDEST = {"id": "t-1", "message": {"role": "user", "parts": [{"type": "text", "text": "hello"}]}}
CALLS: dict[str, tuple[str, Any]] = {
    "1.0": ("SendMessage", {"message": MESSAGE}),
    "0.3": ("message/send", {"message": OLD}),
    "0.1": ("tasks/send", OLDEST),
}


@pytest.mark.parametrize("served", [("1.0",), ("0.3",), ("0.1",), ("1.0", "0.3"), ("0.2",)])
@in_loop
async def test_only_the_versions_that_were_chosen_are_served_and_named_in_the_card(served: tuple[str, ...]) -> None:
    app = tieline.app(worker(), versions=served)
    spoken = {"0.3" if version == "0.2" else version for version in served}
    for version, (method, given) in CALLS.items():
        for headers in ([("A2A-Version", version)], []):
            params = {**given, "id": f"t-{len(headers)}"} if version == "0.1" else given
            body = json.dumps({"jsonrpc": "2.0", "id": "v", "method": method, "params": params}).encode()
            metadata = refusal(await asgi(app, "POST", "/", body, headers))
            assert (metadata is None) == (version in spoken)
    card = (await asgi(app, "GET", "/.well-known/agent-card.json")).json()
    listed = {each["protocolVersion"] for each in card.get("supportedInterfaces", [])}
    assert listed == spoken
    assert ("additionalInterfaces" in card) == ("0.3" in spoken)


@pytest.mark.parametrize("served", [("2.0",), (), ("1.0", "latest")])
def test_versions_that_are_none_are_refused_at_start(served: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="version"):
        tieline.app(worker(), versions=served)
