"""Bearer tokens, by every dialect over every binding: what is shown decides, before anything else is looked at."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from tests.auth.asking import Answer, ask, fetch, operations_of
from tests.auth.tokens import Tokens, bearer
from tests.behaviour.agents import Puppet, begun, hello
from tests.behaviour.harness import Refused, Transport, eventually, message, state_of, text_of
from tests.behaviour.serving import Serve, over
from tests.server.raw import Wire
from tieline.server.auth import ApiKeys, Auth, BearerTokens


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    return Tokens(tmp_path)


def is_unauthenticated(answer: Answer, challenge: str = "Bearer") -> bool:
    """Whether it is the refusal that the binding has for it, and says how to authenticate (§7.4)."""
    if isinstance(answer.status, str):
        return answer.status == "UNAUTHENTICATED" and "grpc-status-details-bin" in answer.headers
    error = json.loads(answer.text)["error"] if '"error":' in answer.text else json.loads(answer.text)
    assert error["message"]
    return answer.status == 401 and answer.headers.get("www-authenticate") == challenge


@pytest.mark.requirement(
    "auth.invalid-credentials-rejected",
    "auth.challenge-included",
    "auth.scheme-named",
    "auth.every-request",
    "auth.codes",
    "auth.challenge-with-errors",
)
async def test_no_operation_works_without_credentials(serve: Serve, transport: str, tokens: Tokens) -> None:
    agent = await serve(hello, auth=Auth(BearerTokens(tokens.path)))
    for operation in operations_of(transport):
        answer = await ask(agent, operation)
        assert is_unauthenticated(answer), (operation, answer)


@pytest.mark.parametrize(
    "given",
    [
        "Bearer wrong",
        "Bearer",
        "Bearer ",
        "Bearer a b",
        "Basic YWRhOnB3",
        "Digest username=ada",
        "Bearer " + "x" * 5000,
        "Bearer a.b.c",
    ],
)
async def test_what_is_no_token_of_the_file_is_refused(
    serve: Serve, transport: str, tokens: Tokens, given: str
) -> None:
    tokens.add()
    agent = (await serve(hello, auth=Auth(BearerTokens(tokens.path)))).showing({"Authorization": given})
    challenge = 'Bearer error="invalid_token"' if given.startswith("Bearer ") else "Bearer"
    for operation in operations_of(transport)[:3]:
        answer = await ask(agent, operation)
        assert is_unauthenticated(answer, challenge if given != "Bearer " else "Bearer"), (operation, answer)


@over("jsonrpc", "rest", "rest-0.3", "jsonrpc-0.1")
async def test_odd_bytes_in_a_token_are_refused_as_any_wrong_one(serve: Serve, tokens: Tokens) -> None:
    agent = await serve(hello, auth=Auth(BearerTokens(tokens.path)))
    for odd in ("\xff\xfe", "\xe9" * 40, "'; DROP TABLE tasks; --", "%00", "{}", "\ttieline_x"):
        answer = await ask(agent.showing(bearer(odd)), "SendMessage", "")
        assert is_unauthenticated(answer, 'Bearer error="invalid_token"'), (odd, answer)


@pytest.mark.requirement("equivalence.authentication")
async def test_a_right_token_works_and_its_owner_finds_its_task_again(
    serve: Serve, transport: str, tokens: Tokens
) -> None:
    auth = Auth(BearerTokens(tokens.path))
    agent = (await serve(hello, auth=auth)).showing(bearer(tokens.add("ada")))
    task = await agent.task("Ada")
    assert text_of(task) == "Hello, Ada!"
    assert (await agent.get(task["id"]))["id"] == task["id"]
    events = await (await agent.stream("Grace")).rest()
    assert state_of(events[-1]) == "COMPLETED"


async def test_a_token_that_has_expired_is_refused(serve: Serve, transport: str, tokens: Tokens) -> None:
    shown = tokens.add(expired=True)
    agent = (await serve(hello, auth=Auth(BearerTokens(tokens.path)))).showing(bearer(shown))
    assert is_unauthenticated(await ask(agent, "SendMessage", ""), 'Bearer error="invalid_token"')


async def test_a_token_that_is_revoked_works_no_more_within_moments(
    serve: Serve, transport: str, tokens: Tokens
) -> None:
    puppet = Puppet()
    auth = Auth(BearerTokens(tokens.path))
    served = await serve(puppet, auth=auth)
    ada, bob = (served.showing(bearer(tokens.add(name))) for name in ("ada", "bob"))
    task, act = await begun(ada, puppet)
    stream = await ada.subscribe(task["id"])
    tokens.revoke("ada")

    async def is_refused() -> bool:
        return (await ask(ada, "GetTask", task["id"])).refused

    await eventually(is_refused)
    for operation in operations_of(transport):
        assert is_unauthenticated(await ask(ada, operation, task["id"]), 'Bearer error="invalid_token"'), operation
    stream.close()
    act.end()
    _, act = await begun(bob, puppet)  # the others are still there
    act.end()


async def test_stream_ends_when_its_token_is_revoked_and_others_and_the_task_go_on(
    serve: Serve, transport: str, tokens: Tokens
) -> None:
    puppet = Puppet()
    served = await serve(puppet, auth=Auth(ApiKeys(tokens.path), BearerTokens(tokens.path)))
    lost, kept = tokens.add("ada", note="lost"), {"X-API-Key": tokens.add("ada", note="kept")}
    by_lost, by_kept = served.showing(bearer(lost)), served.showing(kept)
    task, act = await begun(by_kept, puppet)
    ending, staying = await by_lost.subscribe(task["id"]), await by_kept.subscribe(task["id"])
    sent = await by_lost.stream("more")
    other = await puppet.next()
    tokens.keep(lambda token: token.note == "kept")
    for stream in (ending, sent):
        with pytest.raises(Refused) as refusal:
            await stream.rest()
        assert refusal.value.in_stream
        assert "valid no more" in refusal.value.message
    act.tell("a word")
    act.end()
    other.end()
    assert state_of((await staying.rest())[-1]) == "COMPLETED"
    assert text_of(await by_kept.get(task["id"])) == "a word"


@over("jsonrpc", "rest")
async def test_stream_ends_whose_token_is_revoked_while_its_request_is_on_its_way(
    serve: Serve, transport: str, tokens: Tokens
) -> None:
    puppet = Puppet()
    served = await serve(puppet, auth=Auth(BearerTokens(tokens.path)))
    eve, bob = served.showing(bearer(tokens.add("eve"))), served.showing(bearer(tokens.add("bob")))
    await begun(bob, puppet)
    _ = await bob.stream("follow")  # while there is one, changes are looked for
    await puppet.next()
    path, params = ("/message:stream", {}) if transport == "rest" else ("/", {"jsonrpc": "2.0", "id": 1})
    request = {"message": message("go")}
    body = request if transport == "rest" else {**params, "method": "SendStreamingMessage", "params": request}
    sent = json.dumps(body).encode()
    async with Wire(served.port) as wire:
        lines = [
            f"POST {served.root}{path} HTTP/1.1",
            f"Host: 127.0.0.1:{served.port}",
            "Content-Type: application/json",
            "A2A-Version: 1.0",
            f"Content-Length: {len(sent)}",
            *(f"{name}: {value}" for name, value in eve.credentials.items()),
        ]
        await wire.send("\r\n".join([*lines, "", ""]).encode() + sent[:-1])
        tokens.revoke("eve")
        await eventually(lambda: _is_refused(eve))
        await eventually(lambda: _has_looked(served))
        await wire.send(sent[-1:])
        assert (await wire.head())[0] == 200
        assert b"valid no more" in await wire.body()


@over("jsonrpc", "grpc")
async def test_stream_outlives_a_token_that_expires_whatever_else_is_revoked(
    serve: Serve, transport: str, tokens: Tokens
) -> None:
    puppet = Puppet()
    short, other = tokens.add("ada", lasts=timedelta(seconds=2)), tokens.add("eve")
    agent = (await serve(puppet, auth=Auth(BearerTokens(tokens.path)))).showing(bearer(short))
    _, act = await begun(agent, puppet)
    stream = await agent.stream("go")
    act2 = await puppet.next()

    async def is_over() -> bool:
        return (await ask(agent, "ListTasks")).refused

    await eventually(is_over)
    tokens.revoke("eve")
    await eventually(lambda: _is_refused(agent.showing(bearer(other))))
    await eventually(lambda: _has_looked(agent))
    act.end()
    act2.end()
    assert state_of((await stream.rest())[-1]) == "COMPLETED"
    followers = agent.app.followers
    assert followers is not None
    assert followers._open == {}
    assert followers._timer is None


async def _has_looked(agent: Transport) -> bool:
    """Whether all streams have been held against what is valid now."""
    followers, auth = agent.app.followers, agent.app.auth
    assert followers is not None
    assert auth is not None
    return followers._generation == auth.generation and followers._looking is None


async def _is_refused(agent: Transport) -> bool:
    return (await ask(agent, "ListTasks")).refused


@over("jsonrpc", "rest", "jsonrpc-0.3", "rest-0.3", "jsonrpc-0.1")
async def test_two_authorization_headers_are_refused_though_one_is_right(serve: Serve, tokens: Tokens) -> None:
    agent = await serve(hello, auth=Auth(BearerTokens(tokens.path)))
    right = tokens.add()
    for pair in ((right, "wrong"), ("wrong", right), (right, right)):
        headers = [("Authorization", f"Bearer {token}") for token in pair]
        answer = await ask(agent, "SendMessage", "", headers=headers)
        assert answer.status == 401, pair
        assert "more than one" in answer.text


@over("grpc", "grpc-0.3")
async def test_two_authorizations_in_metadata_are_refused(serve: Serve, tokens: Tokens) -> None:
    agent = await serve(hello, auth=Auth(BearerTokens(tokens.path)))
    right = tokens.add()
    agent = agent.showing({"authorization": f"Bearer {right}", "AUTHORIZATION": "Bearer wrong"})
    assert (await ask(agent, "SendMessage", "")).status == "UNAUTHENTICATED"


@over("jsonrpc")
async def test_a_file_that_is_taken_away_ends_all_tokens_and_one_that_is_broken_none(
    serve: Serve, tokens: Tokens, caplog: pytest.LogCaptureFixture
) -> None:
    agent = (await serve(hello, auth=Auth(BearerTokens(tokens.path)))).showing(bearer(tokens.add()))
    kept = tokens.path.read_bytes()

    async def says(status: int, logged: str = "") -> bool:
        return (await ask(agent, "SendMessage", "")).status == status and logged in caplog.text

    await eventually(lambda: says(200))
    tokens.path.write_bytes(b"{half")
    await eventually(lambda: says(200, "is no token"))
    tokens.path.unlink()
    await eventually(lambda: says(401))
    tokens.path.write_bytes(kept)
    await eventually(lambda: says(200))


async def status_of_a_head(agent: Transport, path: str) -> int | str:
    """Send a head that promises a large body, and nothing of that: the status that comes all the same."""
    headers = [("Content-Type", "application/json"), ("Content-Length", str(10**12))]
    return (await fetch(agent, "POST", path, headers)).status


@over("jsonrpc")
async def test_refusal_comes_before_a_body_is_sent(serve: Serve, tokens: Tokens) -> None:
    agent = await serve(hello, auth=Auth(BearerTokens(tokens.path)))
    for path in ("/", "/message:send", "/v1/message:send", "/tenant/message:send", "/nothing/here"):
        assert await status_of_a_head(agent, path) == 401
        assert await status_of_a_head(agent.showing(bearer("wrong")), path) == 401
    right = agent.showing(bearer(tokens.add()))
    await eventually(lambda: _works(right))
    assert await status_of_a_head(right, "/") == 413, "who is known is told what is wrong with the body"


async def _works(agent: Transport) -> bool:
    return (await ask(agent, "SendMessage", "")).status == 200


@over("jsonrpc")
async def test_card_and_preflight_need_no_credentials(serve: Serve, tokens: Tokens) -> None:
    agent = await serve(hello, auth=Auth(BearerTokens(tokens.path)), cors_origins=["https://page.example"])
    for path in ("/.well-known/agent-card.json", "/.well-known/agent.json"):
        for verb in ("GET", "HEAD"):
            assert (await fetch(agent, verb, path)).status == 200
    asked = [("Origin", "https://page.example"), ("Access-Control-Request-Method", "POST")]
    asked.append(("Access-Control-Request-Headers", "authorization"))
    for path in ("/", "/message:send", "/.well-known/agent-card.json"):
        answer = await fetch(agent, "OPTIONS", path, asked)
        assert answer.status == 204
        allowed = answer.headers["access-control-allow-headers"]
        assert allowed == "*" or "authorization" in allowed
    refused = await fetch(agent, "POST", "/", [asked[0], ("Content-Type", "application/json")], b"")
    assert refused.status == 401
    assert refused.headers["access-control-allow-origin"] == "https://page.example"


@over("jsonrpc")
async def test_nothing_of_a_wrong_token_is_logged_or_said(
    serve: Serve, tokens: Tokens, caplog: pytest.LogCaptureFixture
) -> None:
    agent = await serve(hello, auth=Auth(BearerTokens(tokens.path)))
    answer = await ask(agent.showing(bearer("tieline_secret-of-ada")), "SendMessage", "")
    assert answer.status == 401
    assert "secret" not in answer.text + str(answer.headers) + caplog.text
    assert "was refused" in caplog.text


@over("jsonrpc")
async def test_0_2_is_refused_in_the_same_way(serve: Serve, tokens: Tokens) -> None:
    right = tokens.add()
    old = (await serve(hello, auth=Auth(BearerTokens(tokens.path)))).over("jsonrpc-0.3")
    version = [("A2A-Version", "0.2")]
    assert (await ask(old, "SendMessage", "", headers=version)).status == 401
    assert (await ask(old.showing(bearer(right)), "SendMessage", "", headers=version)).status == 200
