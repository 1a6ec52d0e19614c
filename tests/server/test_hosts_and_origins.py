"""Who may ask: host names, and web pages of other origins (CORS)."""

from __future__ import annotations

import json

import pytest

import tieline
from tests.server.agents import worker
from tests.server.raw import A2A_JSON, JSON, Pairs, Reply, asgi, in_loop, request, serve

CARD = "/.well-known/agent-card.json"
LIST = b'{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{}}'
PREFLIGHT: Pairs = [
    ("Access-Control-Request-Method", "POST"),
    ("Access-Control-Request-Headers", "content-type,a2a-version,a2a-extensions,authorization,last-event-id"),
]


def names(reply: Reply, header: str) -> set[str]:
    return {name.strip().lower() for name in reply.headers.get(header, "").split(",") if name.strip()}


# --- hosts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["agents.example", "agents.example:8443", "AGENTS.example", "[::1]", "[::1]:80"])
@in_loop
async def test_a_host_that_is_allowed_is_answered_with_any_port_in_any_case(host: str) -> None:
    app = tieline.app(worker(), allowed_hosts=["Agents.Example", "[::1]"])
    assert (await asgi(app, "POST", "/", LIST, [*JSON, ("Host", host)])).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "agents.example.evil", "xagents.example", "", "[::2]", "agents.example@evil", "agents"]
)
@pytest.mark.parametrize("path", ["/", CARD, "/tasks"])
@in_loop
async def test_another_host_is_refused_everywhere(path: str, host: str) -> None:
    app = tieline.app(worker(), allowed_hosts=["agents.example", "[::1]"])
    verb = "POST" if path == "/" else "GET"
    reply = await asgi(app, verb, path, LIST, [*JSON, ("Host", host)])
    assert reply.status == 421
    assert reply.json()["error"]["code"] == 421
    assert "--public-url" in reply.json()["error"]["message"]


@in_loop
async def test_a_request_without_a_host_is_refused_where_hosts_are_named() -> None:
    app = tieline.app(worker(), allowed_hosts=["agents.example"])
    assert (await asgi(app, "GET", "/tasks")).status == 421
    assert (await asgi(tieline.app(worker()), "GET", "/tasks")).status == 200


# --- origins ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("origins", [(), ("https://app.example",)])
@in_loop
async def test_the_card_may_be_read_by_any_web_page(origins: tuple[str, ...]) -> None:
    app = tieline.app(worker(), cors_origins=origins)
    for origin in ("https://app.example", "https://other.example"):
        asked = [("Origin", origin), ("Host", "a")]
        reply = await asgi(app, "GET", CARD, headers=asked)
        assert reply.headers["access-control-allow-origin"] in ("*", origin)
        preflight = await asgi(app, "OPTIONS", CARD, headers=[*asked, ("Access-Control-Request-Method", "GET")])
        assert preflight.status == 204
        assert preflight.headers["access-control-allow-origin"] in ("*", origin)
        assert "get" in names(preflight, "access-control-allow-methods")


@in_loop
async def test_without_a_setting_no_web_page_may_call() -> None:
    app = tieline.app(worker())
    for verb, path, headers in (("POST", "/", JSON), ("GET", "/tasks", []), ("OPTIONS", "/", PREFLIGHT)):
        reply = await asgi(app, verb, path, LIST, [*headers, ("Origin", "https://app.example")])
        assert "access-control-allow-origin" not in reply.headers


@pytest.mark.parametrize("path", ["/", "/message:send", "/tasks", "/tasks/t:cancel"])
@pytest.mark.parametrize("setting", ["https://app.example", "*"])
@in_loop
async def test_an_origin_that_may_call_is_let_through_its_preflight_and_its_call(setting: str, path: str) -> None:
    app = tieline.app(worker(), cors_origins=[setting])
    origin = ("Origin", "https://app.example")
    preflight = await asgi(app, "OPTIONS", path, headers=[*PREFLIGHT, origin])
    assert preflight.status == 204
    assert preflight.headers["access-control-allow-origin"] in ("https://app.example", "*")
    assert {"get", "post", "delete"} <= names(preflight, "access-control-allow-methods")
    assert {"content-type", "authorization", "a2a-version", "a2a-extensions", "last-event-id"} <= names(
        preflight, "access-control-allow-headers"
    )
    for verb, at, body in (("POST", "/", LIST), ("GET", "/tasks", b""), ("GET", "/nothing", b"")):
        reply = await asgi(app, verb, at, body, [*JSON, origin])
        assert reply.headers["access-control-allow-origin"] in ("https://app.example", "*")
        assert reply.headers["access-control-allow-origin"] == "*" or "origin" in names(reply, "vary")


@in_loop
async def test_another_origin_is_not_let_through() -> None:
    app = tieline.app(worker(), cors_origins=["https://app.example"])
    for origin in ("https://evil.example", "https://app.example.evil", "http://app.example", "null", ""):
        preflight = await asgi(app, "OPTIONS", "/", headers=[*PREFLIGHT, ("Origin", origin)])
        assert "access-control-allow-origin" not in preflight.headers
        reply = await asgi(app, "POST", "/", LIST, [*JSON, ("Origin", origin)])
        assert "access-control-allow-origin" not in reply.headers


@pytest.mark.parametrize("setting", ["https://app.example", "*"])
@in_loop
async def test_a_call_from_no_web_page_gets_no_headers_for_one_but_caches_are_told(setting: str) -> None:
    app = tieline.app(worker(), cors_origins=[setting])
    reply = await asgi(app, "GET", "/tasks")
    assert reply.status == 200
    assert reply.headers.get("access-control-allow-origin", "*") == "*"


@in_loop
async def test_a_stream_has_the_headers_too() -> None:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
    body = json.dumps({"message": message}).encode()
    async with serve(tieline.app(worker(), cors_origins=["https://app.example"])) as port:
        headers = [*A2A_JSON, ("Origin", "https://app.example")]
        reply = await request(port, "POST", "/message:stream", body, headers)
    assert reply.headers["access-control-allow-origin"] == "https://app.example"
    assert reply.body.startswith(b"id: 1\n")


@in_loop
async def test_a_card_is_not_kept_for_one_origin_and_given_to_another() -> None:
    app = tieline.app(worker(), cors_origins=["https://app.example"])
    reply = await asgi(app, "GET", CARD, headers=[("Origin", "https://app.example"), ("Host", "a")])
    assert reply.headers["access-control-allow-origin"] == "*" or "origin" in names(reply, "vary")
    assert "host" in names(reply, "vary")


@pytest.mark.parametrize("path", ["/", "/message:send"])
@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://agents.example.evil", "http://agents.example:81"]
)
@in_loop
async def test_a_page_of_another_origin_makes_no_call_even_where_the_browser_does_not_ask_first(
    path: str, origin: str
) -> None:
    runs: list[str] = []

    @tieline.agent(name="Noted")
    async def noted(turn: tieline.Turn) -> str:
        runs.append(turn.text)
        return "done"

    app = tieline.app(noted)
    for sent, status in ((origin, 403), ("http://agents.example", 200), (None, 200)):
        message = {"messageId": f"m of {sent}", "role": "ROLE_USER", "parts": [{"text": "go"}]}
        body = json.dumps(
            {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}, "message": message}
        )
        headers = [("Host", "agents.example"), *([("Origin", sent)] if sent else [])]
        reply = await asgi(app, "POST", path, body.encode(), headers)
        assert reply.status == status
    assert runs == ["go", "go"]
