"""How much one caller may ask for: requests a second, messages a day, wrong passwords a minute."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest

from tests.auth.asking import Answer, ask, fetch
from tests.auth.tokens import Tokens, bearer
from tests.behaviour.agents import hello
from tests.behaviour.harness import Transport, eventually, refused
from tests.behaviour.serving import Serve, over
from tieline.engine.turn import Caller
from tieline.errors import RateLimited
from tieline.server.auth import Auth, BearerTokens, Passwords
from tieline.server.forwarded import forwarded_for
from tieline.server.rates import Meter, Rates, counted, place

SLOW = 0.01  # requests a second: none of a test is given back


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    return Tokens(tmp_path)


def is_limited(answer: Answer) -> bool:
    if isinstance(answer.status, str):
        told = _details(answer)
        return (
            answer.status == "RESOURCE_EXHAUSTED" and b"retryAfterSeconds" in told and b"google.rpc.RetryInfo" in told
        )
    return answer.status == 429 and int(answer.headers["retry-after"]) > 0 and "retryAfterSeconds" in answer.text


def _details(answer: Answer) -> bytes:
    return answer.headers["grpc-status-details-bin"].encode("latin-1", "replace")


async def test_each_caller_has_its_own_rate(serve: Serve, transport: str, tokens: Tokens) -> None:
    ada, bob = (bearer(tokens.add(name)) for name in ("ada", "bob"))
    rates = Rates(requests_per_s=SLOW, burst=3)
    agent = await serve(hello, auth=Auth(BearerTokens(tokens.path)), rates=rates)
    for _ in range(3):
        assert not (await ask(agent.showing(ada), "SendMessage", "")).refused
    for operation in ("SendMessage", "GetTask", "CancelTask"):
        assert is_limited(await ask(agent.showing(ada), operation)), operation
    assert not (await ask(agent.showing(bob), "SendMessage", "")).refused


@over("jsonrpc", "rest", "grpc")
async def test_requests_that_their_caller_may_not_make_are_counted(
    serve: Serve, transport: str, tokens: Tokens
) -> None:
    auth = Auth(BearerTokens(tokens.path), scopes={"CancelTask": "admin"})
    agent = (await serve(hello, auth=auth, rates=Rates(requests_per_s=SLOW, burst=2))).showing(bearer(tokens.add()))
    for _ in range(2):
        assert (await ask(agent, "CancelTask")).status in (403, "PERMISSION_DENIED")
    assert is_limited(await ask(agent, "CancelTask"))


async def test_callers_without_a_name_are_counted_by_their_address(serve: Serve, transport: str) -> None:
    agent = await serve(hello, rates=Rates(requests_per_s=SLOW, burst=2))
    for _ in range(2):
        assert not (await ask(agent, "SendMessage", "")).refused
    answer = await ask(agent, "SendMessage", "")
    assert is_limited(answer)
    assert "0.01 requests a second" in answer.text


async def test_callers_behind_a_proxy_that_is_trusted_are_counted_by_what_it_says(serve: Serve, transport: str) -> None:
    rates = Rates(requests_per_s=SLOW, burst=2)
    trusting = await serve(hello, rates=rates, trust_forwarded=True)
    name = "x-forwarded-for" if "grpc" in transport else "X-Forwarded-For"
    for address in ("203.0.113.1", "203.0.113.2, 203.0.113.3", "2001:db8::1", "2001:db8:0:1::1"):
        for _ in range(2):
            assert not (await ask(trusting, "SendMessage", "", headers=[(name, address)])).refused
        # What a caller has written in front of what the proxy adds is not believed.
        made_up = f"198.51.100.7, {address.rpartition(', ')[2]}"
        assert is_limited(await ask(trusting, "SendMessage", "", headers=[(name, made_up)]))


@over("grpc", "grpc-0.3")
async def test_what_callers_say_of_themselves_is_not_believed_where_no_proxy_is_trusted(
    serve: Serve, transport: str
) -> None:
    agent = await serve(hello, rates=Rates(requests_per_s=SLOW, burst=2))
    for number in range(2):
        headers = [("x-forwarded-for", f"203.0.113.{number}")]
        assert not (await ask(agent, "SendMessage", "", headers=headers)).refused
    assert is_limited(await ask(agent, "SendMessage", "", headers=[("x-forwarded-for", "203.0.113.9")]))


@pytest.mark.parametrize(
    ("values", "address"),
    [
        ([], None),
        ([""], None),
        (["unknown"], None),
        (["203.0.113.1, "], None),
        (["203.0.113.1"], "203.0.113.1"),
        (["203.0.113.1:5000"], "203.0.113.1"),
        (["[2001:db8::1]:5000"], "2001:db8::1"),
        (["[2001:db8::1]"], "2001:db8::1"),
        (["2001:DB8:0::1"], "2001:db8::1"),
        (["9.9.9.9", "203.0.113.1,203.0.113.2"], "203.0.113.2"),
        (["203.0.113.1\nX"], None),
    ],
)
def test_address_is_the_last_that_a_proxy_has_added(values: list[str], address: str | None) -> None:
    assert forwarded_for(values) == address


@over("jsonrpc", "rest", "grpc")
async def test_messages_of_a_day_are_limited_and_reading_is_not(serve: Serve, transport: str, tokens: Tokens) -> None:
    ada = bearer(tokens.add("ada"))
    agent = (await serve(hello, auth=Auth(BearerTokens(tokens.path)), rates=Rates(messages_per_day=2))).showing(ada)
    task = await agent.task()
    await (await agent.stream()).rest()
    with refused("RateLimited") as refusal:
        await agent.send()
    assert "2 messages a day" in refusal.message
    assert int(refusal.metadata["retryAfterSeconds"]) > 80_000
    assert (await agent.get(task["id"]))["id"] == task["id"]
    if transport == "jsonrpc":
        for old in ("jsonrpc-0.3", "jsonrpc-0.1", "rest-0.3"):
            assert is_limited(await ask(agent.over(old), "SendMessage", "")), old


@over("jsonrpc")
async def test_card_is_not_counted_nor_are_those_who_are_refused_for_who_they_are(serve: Serve, tokens: Tokens) -> None:
    ada = bearer(tokens.add("ada"))
    rates = Rates(requests_per_s=SLOW, burst=1)
    agent = await serve(hello, auth=Auth(BearerTokens(tokens.path)), rates=rates)
    for _ in range(5):
        assert (await fetch(agent, "GET", "/.well-known/agent-card.json")).status == 200
        assert (await ask(agent, "SendMessage", "")).status == 401
    assert (await ask(agent.showing(ada), "SendMessage", "")).status == 200
    assert (await ask(agent.showing(ada), "SendMessage", "")).status == 429


@over("jsonrpc")
async def test_room_comes_back_with_time(serve: Serve) -> None:
    agent = await serve(hello, rates=Rates(requests_per_s=20, burst=1))
    statuses = {(await ask(agent, "SendMessage", "")).status for _ in range(5)}
    assert 200 in statuses
    await eventually(lambda: _works(agent))


def test_address_of_ipv6_is_counted_by_its_network_and_one_of_ipv4_in_it_as_that() -> None:
    assert place("2001:db8:1:2:3:4:5:6") == place("2001:db8:1:2::1") == "2001:db8:1:2::/64"
    assert place("2001:db8:1:3::1") != place("2001:db8:1:2::1")
    assert place("::ffff:192.0.2.1") == place("192.0.2.1") == "192.0.2.1"
    assert [place(odd) for odd in ("", "unix:", "testclient", "fe80::1%eth0")][:3] == ["", "unix:", "testclient"]


def test_no_two_callers_are_counted_as_one() -> None:
    callers = [Caller("b/c", "a"), Caller("c", "a/b"), Caller("a/b/c"), Caller("b", "a"), Caller("2:a/b")]
    assert len({counted(caller, "192.0.2.1") for caller in callers}) == len(callers)
    assert counted(Caller(), "192.0.2.1") == "192.0.2.1"


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf"), 1e-300, 1e308])
def test_rate_that_makes_no_sense_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="requests_per_s has to be a number from"):
        Rates(requests_per_s=rate)


def test_who_is_forgotten_is_who_has_called_for_longest_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tieline.server.rates._KNOWN", 3)
    meter = Meter(Rates(requests_per_s=SLOW, burst=1))
    meter.request("ada")
    for other in ("b", "c"):
        meter.request(other)
    with pytest.raises(RateLimited):
        meter.request("ada")  # and so it is the last who has called
    meter.request("d")
    with pytest.raises(RateLimited):
        meter.request("ada")


def basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


@over("jsonrpc", "grpc")
async def test_passwords_cannot_be_tried_out_not_even_all_at_once(serve: Serve, transport: str, tokens: Tokens) -> None:
    tokens.add_password("ada", "right")
    token = tokens.add("key")
    agent = await serve(hello, auth=Auth(Passwords(tokens.path), BearerTokens(tokens.path), failures_per_minute=3))
    assert not (await ask(agent.showing(basic("ada", "right")), "SendMessage", "")).refused

    async def tried(number: int) -> Answer:
        return await ask(agent.showing(basic("ada", f"wrong {number}")), "SendMessage", "")

    answers = await asyncio.gather(*(tried(number) for number in range(8)))
    assert sum(answer.status in (401, "UNAUTHENTICATED") for answer in answers) == 3
    assert sum(is_limited(answer) for answer in answers) == 5
    assert not (await ask(agent.showing(basic("ada", "right")), "SendMessage", "")).refused, "it was known before"
    assert not (await ask(agent.showing(bearer(token)), "SendMessage", "")).refused, "what cannot be guessed may come"


@over("jsonrpc")
async def test_wrong_tokens_from_an_address_lock_nobody_out_who_has_a_right_one(serve: Serve, tokens: Tokens) -> None:
    right = bearer(tokens.add())
    agent = await serve(hello, auth=Auth(BearerTokens(tokens.path), failures_per_minute=2))
    for _ in range(10):
        assert (await ask(agent.showing(bearer("wrong")), "SendMessage", "")).status == 401
    assert await _works(agent.showing(right))


async def _works(agent: Transport) -> bool:
    return not (await ask(agent, "SendMessage", "")).refused
