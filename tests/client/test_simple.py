"""`send_text` and `discover_agent_card`: whatever the server does, what comes back is a value."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.client.running import run
from tests.client.scripted import Http, Raw, Request, card_of, listening, read_request
from tests.client.serving import served
from tieline import CardResult, SendResult, SentTask, Turn, agent, app, discover_agent_card, send_text
from tieline.types import encode

CARD = encode(card_of(("http://127.0.0.1:1/", "JSONRPC")))


class Recorded:
    """A server that gives every request the same bytes, and what it was asked."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[Request] = []

    @property
    def json(self) -> Any:
        (request,) = self.requests
        return request.json


@asynccontextmanager
async def giving(step: Raw | Http) -> AsyncIterator[Recorded]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (request := await read_request(reader)) is not None:
            recorded.requests.append(request)
            writer.write(step.data)
            await writer.drain()
            if isinstance(step, Raw):
                if step.end == "reset":
                    writer.transport.abort()
                elif step.end == "hang":
                    await reader.read()
                return

    async with listening(serve) as port:
        recorded = Recorded(f"http://127.0.0.1:{port}")
        yield recorded


def answered(step: Raw | Http, text: str = "hi", **options: Any) -> SendResult:
    """What `send_text` makes of an answer; it was asked for once."""

    async def test() -> SendResult:
        async with giving(step) as server:
            result = await send_text(server.url, text, **options)
        assert len(server.requests) == 1, "one attempt"
        return result

    return run(test())


def rpc(result: object, *, status: int = 200, id_: object = 1) -> Http:
    return Http(status, json.dumps({"jsonrpc": "2.0", "id": id_, "result": result}).encode())


def rpc_error(code: int, message: str, *, status: int = 200) -> Http:
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message, "data": {"x": 1}}}
    return Http(status, json.dumps(body).encode(), {"Content-Type": "application/json"})


def said(*parts: object) -> dict[str, object]:
    return {"kind": "message", "messageId": "m", "role": "agent", "parts": list(parts)}


def text_part(text: str) -> dict[str, str]:
    return {"kind": "text", "text": text}


# --- what goes out ----------------------------------------------------------------------------------------------------


def test_a_text_is_one_message_send_of_0_3_with_ids_of_its_own_and_the_token() -> None:
    async def test() -> None:
        seen = []
        for _ in range(2):
            async with giving(rpc(said(text_part("ok")))) as server:
                assert await send_text(server.url, "héllo\n\u2028", token="t0ken") == SendResult(text="ok")
            call = server.json
            assert (call["jsonrpc"], call["method"]) == ("2.0", "message/send")
            message = call["params"]["message"]
            assert (message["kind"], message["role"]) == ("message", "user")
            assert message["parts"] == [text_part("héllo\n\u2028")]
            seen += [call["id"], message["messageId"]]
            (request,) = server.requests
            assert (request.verb, request.target) == ("POST", "/")
            assert request.headers["content-type"] == "application/json"
            assert request.headers["authorization"] == "Bearer t0ken"
        assert len(set(seen)) == 4, "request and message ids are unique"
        assert all(isinstance(each, str) and each for each in seen)

    run(test())


@pytest.mark.parametrize(
    ("below", "target"),
    [("", "/"), ("/", "/"), ("///", "/"), ("/agents/t-1", "/agents/t-1/"), ("/agents/a%2Fb//", "/agents/a%2Fb/")],
)
def test_slashes_at_the_end_of_the_endpoint_do_not_count_and_the_post_goes_behind_one(below: str, target: str) -> None:
    async def test() -> None:
        async with giving(rpc(said(text_part("ok")))) as server:
            assert (await send_text(server.url + below, "hi")).ok
            assert "authorization" not in server.requests[0].headers
            await discover_agent_card(server.url + below)
        assert [request.target for request in server.requests] == [target, f"{target}.well-known/agent-card.json"]

    run(test())


@pytest.mark.parametrize("text", ["", " ", "\n\t"])
def test_empty_text_fails_before_anything_is_sent(text: str) -> None:
    async def test() -> None:
        async with giving(rpc(said(text_part("ok")))) as server:
            result = await send_text(server.url, text)
        assert result == SendResult(error="message text is empty")
        assert not result.ok
        assert server.requests == []

    run(test())


# --- what comes back --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (said(text_part("delivered to Build (codex)")), "delivered to Build (codex)"),
        (said(text_part("one"), {"kind": "data", "data": {}}, text_part("two")), "one\ntwo"),
        (said(text_part("one"), {"kind": "hologram", "text": "no"}, 7, {"kind": "text"}, text_part("")), "one\n"),
        (said({"type": "text", "text": "old"}, {"text": "new"}), "old\nnew"),
        ({"messageId": "m", "role": "agent", "parts": [text_part("bare")]}, "bare"),
        ({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "wrapped"}]}}, "wrapped"),
    ],
)
def test_all_text_parts_of_a_message_are_the_text(result: object, text: str) -> None:
    got = answered(rpc(result))
    assert got == SendResult(text=text)
    assert got.ok


@pytest.mark.parametrize(
    ("result", "state"),
    [
        ({"kind": "task", "id": "t", "contextId": "c", "status": {"state": "working"}}, "working"),
        ({"kind": "task", "id": "t", "status": {"state": "on-holiday"}}, "on-holiday"),
        ({"kind": "task", "id": "t"}, "unknown"),
        ({"kind": "task", "id": "t", "status": {"state": None}}, "unknown"),
        ({"kind": "task", "id": "t", "status": "working"}, "unknown"),
        ({"id": "t", "contextId": "c", "status": {"state": "input-required"}}, "input-required"),
        ({"task": {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}}, "completed"),
    ],
)
def test_a_task_is_its_id_and_state(result: object, state: str) -> None:
    got = answered(rpc(result))
    assert got == SendResult(task=SentTask("t", state))
    assert got.ok


@pytest.mark.parametrize(
    "result",
    [
        None,
        7,
        "hello",
        [],
        {},
        said(),
        said({"kind": "data", "data": {"text": "no"}}),
        {"kind": "message"},
        {"kind": "message", "parts": {"text": "no"}},
        {"kind": "task"},
        {"kind": "task", "id": 7},
        {"kind": "poem"},
    ],
)
def test_a_result_without_text_says_so(result: object) -> None:
    assert answered(rpc(result)) == SendResult(error="response contained no text parts")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"ok",
        b"<html></html>",
        b"[]",
        b"null",
        b"[" * 100_000,
        b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * 100_000,
        b"\xff",
        b"{}",
        b'{"ok":true}',
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"2.0","id":1,"error":"unauthorized"}',
        b'{"jsonrpc":"2.0","id":1,"error":{"message":"no code"}}',
        b'{"jsonrpc":"1.0","result":{"kind":"message","parts":[{"kind":"text","text":"x"}]}}',
        b'{"result":{"kind":"message","parts":[{"kind":"text","text":"x"}]}}',
        b'{"jsonrpc":"2.0","result":{"kind":"message","parts":[{"kind":"text","text":"x"}]}',
    ],
)
def test_a_success_that_is_no_json_rpc_says_so(body: bytes) -> None:
    for status in (200, 202):
        assert answered(Http(status, body)) == SendResult(error="invalid JSON-RPC response")


@pytest.mark.parametrize("status", [200, 400, 401, 404, 500])
def test_an_error_of_json_rpc_is_told_whatever_the_http_status(status: int) -> None:
    words = "addressed agent node not found"
    got = answered(rpc_error(-32602, words, status=status))
    assert got == SendResult(error=f"RPC error -32602: {words}")
    assert not got.ok


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 413, 500, 503])
@pytest.mark.parametrize(
    "body", [b"", b'{"ok": false, "error": "unauthorized"}', b"<h1>No</h1>", b'{"error": {"code": 1}}']
)
def test_another_http_status_is_told_as_it_is(status: int, body: bytes) -> None:
    assert answered(Http(status, body)) == SendResult(error=f"HTTP {status}")


def test_a_result_with_a_failed_status_is_no_success() -> None:
    assert answered(rpc(said(text_part("x")), status=500)) == SendResult(error="HTTP 500")


@pytest.mark.parametrize(
    "step",
    [
        Raw(b""),
        Raw(b"", end="reset"),
        Raw(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"),
        Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"),
        Raw(b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n"),
        Http(200, b"no gzip", {"Content-Encoding": "gzip"}),
    ],
    ids=["closed", "reset", "not HTTP", "cut", "bad header", "bad gzip"],
)
def test_a_transport_that_fails_is_told_with_its_reason_and_without_the_token(step: Raw | Http) -> None:
    got = answered(step, token="s3cret")
    assert got.error is not None
    assert got.error.startswith("A2A request failed: ")
    assert len(got.error) > len("A2A request failed: ")
    assert "s3cret" not in got.error
    assert (got.text, got.task, got.ok) == (None, None, False)


@pytest.mark.parametrize(
    "step", [Raw(b"", end="hang"), Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", end="hang")]
)
def test_an_answer_that_does_not_come_in_time_is_a_failure(step: Raw) -> None:
    assert answered(step, timeout_s=0.05) == SendResult(error="A2A request failed: no answer within 0.05 s")


def test_nobody_at_home_is_a_failure() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        got = run(send_text(url, "hi"))
        card = run(discover_agent_card(url))
    assert got.error == f"A2A request failed: No connection to {url}/: Connection refused"
    assert card.error == (
        f"agent card request failed: No connection to {url}/.well-known/agent-card.json: Connection refused"
    )


@pytest.mark.parametrize(
    "endpoint", ["", "127.0.0.1:8000", "ftp://127.0.0.1", "http://", "http://h:bad/", "http://[bad", "file:///x", "x y"]
)
def test_what_is_no_endpoint_is_a_failure(endpoint: str) -> None:
    reason = "the endpoint is not an http or https URL"
    assert run(send_text(endpoint, "hi")) == SendResult(error=f"A2A request failed: {reason}")
    assert run(discover_agent_card(endpoint)) == CardResult(error=f"agent card request failed: {reason}")


@pytest.mark.parametrize("token", ["a\r\nX: y", "a\0", "é"])
def test_a_token_that_no_header_can_carry_is_a_failure_that_does_not_show_it(token: str) -> None:
    got = run(send_text("http://127.0.0.1:1", "hi", token=token))
    assert got.error == "A2A request failed: the token has characters that no header can carry"


def test_text_that_is_no_unicode_is_a_failure() -> None:
    got = run(send_text("http://127.0.0.1:1", "\ud800"))
    assert got.error is not None
    assert got.error.startswith("A2A request failed: ")


def test_an_answer_that_is_too_large_is_a_failure() -> None:
    got = answered(rpc(said(text_part("x" * (17 * 1024 * 1024)))))
    assert got.error is not None
    assert "larger than" in got.error


def test_user_and_password_of_the_endpoint_are_credentials_and_a_token_goes_before_them() -> None:
    async def test() -> None:
        async with giving(rpc(said(text_part("ok")))) as server:
            url = server.url.replace("://", "://me:pw@")
            await send_text(url, "hi")
            await send_text(url, "hi", token="t")
        assert [request.headers["authorization"] for request in server.requests] == ["Basic bWU6cHc=", "Bearer t"]

    run(test())


def test_results_cannot_be_changed() -> None:
    for value, name in ((SendResult(text="x"), "text"), (SentTask("t", "working"), "state"), (CardResult(), "card")):
        with pytest.raises(AttributeError):
            setattr(value, name, "other")


def test_cancelling_the_caller_ends_the_call() -> None:
    async def test() -> None:
        async with giving(Raw(b"", end="hang")) as server:
            call = asyncio.create_task(send_text(server.url, "hi"))
            while not server.requests:  # noqa: ASYNC110  # nobody tells it
                await asyncio.sleep(0.005)
            call.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await call
            assert call.cancelled()

    run(test())


# --- cards ------------------------------------------------------------------------------------------------------------


def discovered(step: Raw | Http, **options: Any) -> CardResult:
    async def test() -> CardResult:
        async with giving(step) as server:
            result = await discover_agent_card(server.url, **options)
        assert {(each.verb, each.target) for each in server.requests} == {("GET", "/.well-known/agent-card.json")}
        return result

    return run(test())


def test_a_card_of_1_0_is_found() -> None:
    found = discovered(Http(200, CARD))
    assert found.ok
    assert found.card is not None
    assert found.card.name == "Scripted"


def test_a_card_of_a_terminal_agent_is_found() -> None:
    document = {
        "protocolVersion": "0.3.0",
        "name": "Terminals",
        "description": "All terminals.",
        "url": "http://127.0.0.1:41234/",
        "preferredTransport": "JSONRPC",
        "version": "1.0.0",
        "capabilities": {"streaming": False},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "t-1", "name": "Build", "description": "codex agent session", "tags": ["terminal", "codex"]}],
    }
    found = discovered(Http(200, json.dumps(document).encode()))
    assert found.card is not None
    assert [skill.name for skill in found.card.skills] == ["Build"]
    assert found.card.supported_interfaces[0].url == "http://127.0.0.1:41234/"


@pytest.mark.parametrize("status", [301, 401, 404, 500])
def test_another_http_status_than_success_is_told_for_a_card(status: int) -> None:
    assert discovered(Http(status, CARD)) == CardResult(error=f"HTTP {status}")


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff", b"{", b"[" * 100_000])
def test_a_card_that_is_no_json_says_so(body: bytes) -> None:
    assert discovered(Http(200, body)) == CardResult(error="invalid JSON from agent card")


@pytest.mark.parametrize("body", [b"[]", b"null", b"7", b"{}", b'{"name": 7}', b'{"name": "", "url": "http://h"}'])
def test_json_that_is_no_card_says_so(body: bytes) -> None:
    assert discovered(Http(200, body)) == CardResult(error="invalid agent card")


@pytest.mark.parametrize("step", [Raw(b""), Raw(b"", end="reset"), Raw(b"", end="hang")])
def test_a_card_that_does_not_come_is_told_with_the_reason(step: Raw) -> None:
    found = discovered(step, timeout_s=0.05 if step.end == "hang" else 15.0, token="s3cret")
    assert found.error is not None
    assert found.error.startswith("agent card request failed: ")
    assert "s3cret" not in found.error


# --- a server of ours -------------------------------------------------------------------------------------------------


@agent(name="Terminal", description="Answers, works or asks.")
async def terminal(turn: Turn) -> AsyncGenerator[Any, None]:
    match turn.text:
        case "work":
            yield "done"
        case "ask":
            yield await turn.ask("Which?")
        case _:
            yield turn.reply("delivered to ", turn.text)


def test_a_server_of_ours_answers_with_a_text_or_a_task_and_shows_its_card() -> None:
    async def test() -> None:
        async with served(app(terminal)) as url:
            found = await discover_agent_card(url)
            assert found.card is not None
            assert found.card.name == "Terminal"
            assert await send_text(url, "Build") == SendResult(text="delivered to \nBuild")
            for text, state in (("work", "completed"), ("ask", "input-required")):
                got = await send_text(url, text)
                assert got.task is not None
                assert (got.task.state, got.text, got.error) == (state, None, None)
            assert (await send_text(f"{url}/nowhere", "hi")).error == "HTTP 404"
            assert (await discover_agent_card(f"{url}/nowhere")).error == "HTTP 404"

    run(test())


@pytest.mark.parametrize("host", ["a..b", ".", "a" * 300])
def test_host_name_that_can_be_none_is_an_error_and_nothing_is_raised(host: str) -> None:
    async def test() -> None:
        sent = await send_text(f"http://{host}:1/", "hi")
        assert (sent.error or "").startswith("A2A request failed: No connection to")
        found = await discover_agent_card(f"http://{host}:1/")
        assert (found.error or "").startswith("agent card request failed: No connection to")

    run(test())


@pytest.mark.parametrize(("status", "place"), [(302, "/login"), (307, "http://127.0.0.1:1/"), (307, "http://[bad")])
def test_a_redirect_that_is_not_followed_is_its_status(status: int, place: str) -> None:
    redirect = Http(status, b"moved", {"Location": place})
    assert answered(redirect) == SendResult(error=f"HTTP {status}")

    async def test() -> CardResult:
        async with giving(Http(status, b"moved", {"Location": "http://127.0.0.1:1/"})) as server:
            return await discover_agent_card(server.url)

    assert run(test()) == CardResult(error=f"HTTP {status}")


@pytest.mark.parametrize(
    ("endpoint", "text", "token"), [(None, "hi", None), (5, "hi", None), ("http://127.0.0.1:1", "hi", 5)]
)
def test_arguments_of_another_type_are_an_error_and_nothing_is_raised(endpoint: Any, text: str, token: Any) -> None:
    async def test() -> None:
        assert ((await send_text(endpoint, text, token=token)).error or "").startswith("A2A request failed: the ")
        found = await discover_agent_card(endpoint, token=token)
        assert (found.error or "").startswith("agent card request failed: the ")
        assert await send_text("http://127.0.0.1:1", None) == SendResult(error="message text is empty")  # type: ignore[arg-type]

    run(test())


def test_an_empty_token_is_none() -> None:
    async def test() -> None:
        async with giving(rpc({"kind": "Message", "parts": [{"kind": "text", "text": "hello"}]})) as server:
            assert await send_text(server.url, "hi", token="") == SendResult(text="hello")
        assert "authorization" not in server.requests[0].headers

    run(test())
