"""Finding the card of an agent: the places, the rules of HTTP caching, and what is wrong with what is no card."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.client.running import run
from tests.client.scripted import Answer, Http, Raw, Script, Scripted, Step, card_of, scripted
from tests.client.tasks import message
from tieline import AgentCard, CardCache, Timeouts, connect
from tieline.client.discovery import fetch_card
from tieline.errors import (
    AuthenticationRequired,
    CardNotFound,
    InvalidCard,
    InvalidPeerResponse,
    OriginNotTrusted,
    PeerTimeout,
    Unreachable,
)
from tieline.types import encode

Json = dict[str, Any]

CARD = card_of(("http://127.0.0.1:1/rpc", "JSONRPC"))
PAGE = Http(200, encode(CARD), {"Content-Type": "application/json"})
NOT_HERE = Http(404, b"not found")

PATH_CARD = "/agent/.well-known/agent-card.json"
HOST_CARD = "/.well-known/agent-card.json"
OLD_PATH_CARD = "/agent/.well-known/agent.json"
OLD_HOST_CARD = "/.well-known/agent.json"


def host_of(agent: Scripted) -> str:
    return agent.url.removeprefix("http://").removesuffix("/agent")


async def card_at(ref: object, **options: Any) -> AgentCard:
    async with connect(ref, **options) as peer:  # type: ignore[arg-type]
        return peer.card


# --- where ------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("card.client-finds-well-known")
def test_card_of_a_host_is_at_its_well_known_path() -> None:
    async def test() -> None:
        async with scripted("JSONRPC", {"card": [PAGE, PAGE]}) as agent:
            assert await card_at(host_of(agent)) == CARD
            assert await card_at(f"http://{host_of(agent)}/") == CARD
        assert [request.target for request in agent.requests] == [HOST_CARD] * 2

    run(test())


@pytest.mark.parametrize("found_at", range(5))
def test_card_is_looked_for_below_the_path_then_at_the_host_then_at_the_old_paths_then_at_the_url(
    found_at: int,
) -> None:
    async def test() -> None:
        answers: list[Step] = [*[NOT_HERE] * found_at, PAGE]
        async with scripted("JSONRPC", {"card": answers[:4], "GET /agent": answers[4:]}) as agent:
            assert await card_at(agent.url) == CARD
        places = [PATH_CARD, HOST_CARD, OLD_PATH_CARD, OLD_HOST_CARD, "/agent"]
        assert [request.target for request in agent.requests] == places[: found_at + 1]

    run(test())


@pytest.mark.parametrize("path", ["/cards/mine.json", "/x/.well-known/agent-card.json", "/.well-known/agent.json"])
@pytest.mark.requirement("card.client-takes-configured")
def test_url_of_a_card_is_taken_as_it_is(path: str) -> None:
    async def test() -> None:
        async with scripted("JSONRPC", {"card": [PAGE, NOT_HERE]}) as agent:
            assert await card_at(f"http://{host_of(agent)}{path}?tenant=a") == CARD
            with pytest.raises(CardNotFound):
                await card_at(f"http://{host_of(agent)}{path}")
        assert [request.target for request in agent.requests] == [f"{path}?tenant=a", path]

    run(test())


@pytest.mark.requirement("card.client-takes-configured")
def test_card_can_be_a_file_a_file_url_a_path_or_a_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "my card.json"
    file.write_bytes(encode(CARD))
    (tmp_path / "plain").write_bytes(encode(CARD))
    monkeypatch.chdir(tmp_path)

    async def test() -> None:
        for ref in (str(file), file, file.as_uri(), "./my card.json", "my card.json", "plain", CARD):
            assert await card_at(ref) == CARD

    run(test())


@pytest.mark.parametrize("ref", ["/no/such/file.json", "file:///no/such/file.json", "./missing"])
def test_file_that_is_not_there_is_no_card(ref: str) -> None:
    with pytest.raises(CardNotFound, match="cannot be read"):
        run(card_at(ref))


@pytest.mark.parametrize("ref", ["", " ", "\0", "a b", "ftp://host/", "http://", "http://[bad/", "host:port:9", "a\nb"])
def test_reference_to_nothing_is_no_card(ref: str) -> None:
    with pytest.raises(CardNotFound):
        run(card_at(ref))


def test_host_without_a_card_says_where_it_was_looked_for() -> None:
    async def test() -> None:
        async with scripted("JSONRPC", {"card": [NOT_HERE, Http(405)]}) as agent:
            with pytest.raises(CardNotFound, match=r"agent-card\.json, http.*agent\.json"):
                await card_at(host_of(agent))

    run(test())


def test_page_that_answers_everything_with_html_is_no_card_but_does_not_hide_one() -> None:
    async def test() -> None:
        html = Http(200, b"<!doctype html><title>Hello</title>")
        async with scripted("JSONRPC", {"card": [html, PAGE, html, html, html, html], "GET /agent": [html]}) as agent:
            assert await card_at(agent.url) == CARD
            with pytest.raises(InvalidCard, match="not JSON"):
                await card_at(agent.url)

    run(test())


def test_card_that_is_led_elsewhere_on_its_host_is_followed_but_not_to_another() -> None:
    async def test() -> None:
        async with scripted("JSONRPC", {}) as other:
            moved = Http(302, b"", {"Location": "/cards/one.json"})
            away = Http(302, b"", {"Location": other.url})
            async with scripted("JSONRPC", {"card": [moved, PAGE, away]}) as agent:
                assert await card_at(host_of(agent)) == CARD
                with pytest.raises(InvalidPeerResponse, match="another origin"):
                    await card_at(host_of(agent))
        assert [request.target for request in agent.requests] == [HOST_CARD, "/cards/one.json", HOST_CARD]

    run(test())


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (Http(401, b"", {"WWW-Authenticate": "Bearer"}), AuthenticationRequired),
        (Http(403), AuthenticationRequired),
        (Http(500, b"oops"), InvalidPeerResponse),
        (Raw(b""), Unreachable),
        (Raw(b"junk\r\n\r\n"), InvalidPeerResponse),
        (Raw(b"", end="hang"), PeerTimeout),
    ],
)
def test_server_that_cannot_tell_is_not_taken_for_one_without_a_card(step: Step, error: type[Exception]) -> None:
    async def test() -> None:
        steps = [step] * 2 if step == Raw(b"") else [step]  # a GET whose connection breaks is sent once more
        async with scripted("JSONRPC", {"card": steps}) as agent:
            with pytest.raises(error):
                await card_at(agent.url, timeouts=Timeouts(card_s=0.05))

    run(test())


def test_host_that_refuses_connections_is_unreachable() -> None:
    async def test() -> None:
        async with scripted("JSONRPC", {}) as agent:
            host = host_of(agent)
        with pytest.raises(Unreachable, match="No connection"):
            await card_at(host)

    run(test())


# --- what is wrong with it --------------------------------------------------------------------------------------------


def broken(**changes: object) -> bytes:
    return encode({**msgspec.json.decode(encode(CARD)), **changes})


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{}", "name: is required"),
        (b"[]", "not valid"),
        (b"null", "not valid"),
        (b'{"error": "no such page"}', "name: is required"),
        (b'{"name": "Nowhere"}', "supportedInterfaces: is required"),
        (b"\xff", "not JSON"),
        (broken(name=""), "name: must not be empty"),
        (broken(capabilities=7), "capabilities: "),
        (
            broken(supportedInterfaces=[{"url": "x", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]),
            "absolute",
        ),
        (broken(supportedInterfaces=[{"url": "http://h"}]), "protocolBinding: is required"),
        (
            broken(
                supportedInterfaces=[{"url": "http://h:bad/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]
            ),
            "no URL",
        ),
        (
            broken(supportedInterfaces=[{"url": "http://h", "protocolBinding": "GRPC", "protocolVersion": "2.0"}]),
            "it has GRPC 2.0",
        ),
    ],
)
@pytest.mark.requirement("card.required-fields", over=("jsonrpc", "rest"))
def test_invalid_card_says_what_is_wrong_with_which_field(tmp_path: Path, body: bytes, words: str) -> None:
    file = tmp_path / "card.json"
    file.write_bytes(body)
    with pytest.raises(InvalidCard, match=words.replace(".", r"\.")):
        run(card_at(file))


def test_all_faults_of_a_card_are_told_at_once_and_one_by_one(tmp_path: Path) -> None:
    file = tmp_path / "card.json"
    file.write_bytes(broken(name="", version="", skills=[]))
    with pytest.raises(InvalidCard) as caught:
        run(card_at(file))
    assert [violation.field for violation in caught.value.violations] == ["name", "version", "skills"]


def test_invalid_card_value_is_refused_like_any_other() -> None:
    with pytest.raises(InvalidCard, match="name: must not be empty"):
        run(card_at(msgspec.structs.replace(CARD, name="")))


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"skills": []}, "skills: must not be empty"),
        ({"description": ""}, "description: must not be empty"),
        ({"version": None}, "version: must not be empty"),
        ({"skills": [{"id": "a", "name": "A"}]}, "skills[0].tags: must not be empty"),
        ({"defaultOutputModes": []}, "defaultOutputModes: must not be empty"),
        ({"provider": {"organization": "A"}}, "provider.url: must not be empty"),
        ({"securityRequirements": [{"schemes": {"x": {}}}]}, "securityRequirements: 'x' is not in securitySchemes"),
    ],
)
def test_card_with_a_fault_that_bars_no_call_is_used_and_its_faults_are_told(
    tmp_path: Path, changes: Json, fault: str
) -> None:
    file = tmp_path / "card.json"
    file.write_bytes(broken(**changes))

    async def test() -> None:
        found = await fetch_card(file)
        assert fault in found.faults
        assert found.card.supported_interfaces == CARD.supported_interfaces
        assert found.document == file.read_bytes()
        async with connect(file) as peer:
            assert peer.card == found.card

    run(test())


def test_card_without_a_fault_has_none_to_tell(tmp_path: Path) -> None:
    file = tmp_path / "card.json"
    file.write_bytes(encode(CARD))
    assert run(fetch_card(file)).faults == ()


def test_interface_that_leads_nowhere_does_not_take_the_others_with_it(tmp_path: Path) -> None:
    file = tmp_path / "card.json"
    good = {"url": "http://h/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    file.write_bytes(broken(supportedInterfaces=[{**good, "url": "/rpc"}, good, {**good, "url": ""}]))
    found = run(fetch_card(file))
    assert [interface.url for interface in found.card.supported_interfaces] == ["http://h/rpc"]
    told = {fault.partition(":")[0] for fault in found.faults}
    assert told == {"supportedInterfaces[0].url", "supportedInterfaces[2].url"}


# --- cards of every version -------------------------------------------------------------------------------------------

OF_VERSION: dict[str, Json] = {
    "0.1": {
        "name": "Old",
        "url": "http://h/a/",
        "version": "1",
        "capabilities": {"streaming": True},
        "authentication": {"schemes": ["Bearer"]},
        "skills": [{"id": "a", "name": "A"}],
    },
    "0.2": {
        "protocolVersion": "0.2.6",
        "name": "Old",
        "description": "d",
        "url": "http://h/a/",
        "version": "1",
        "capabilities": {},
        "defaultInputModes": ["text"],
        "defaultOutputModes": ["text"],
        "skills": [],
    },
    "0.3": {
        "protocol_version": "0.3.0",
        "name": "Old",
        "url": "http://h/b",
        "preferred_transport": "http_json",
        "additional_interfaces": [{"url": "http://h/a/", "transport": "JSON-RPC"}],
        "skills": [],
    },
}


@pytest.mark.parametrize(
    ("version", "interfaces"),
    [
        ("0.1", [("JSONRPC", "0.1"), ("JSONRPC", "0.3")]),
        ("0.2", [("JSONRPC", "0.3")]),
        ("0.3", [("HTTP+JSON", "0.3"), ("JSONRPC", "0.3")]),
    ],
)
def test_card_of_an_older_version_at_the_old_path_is_read_with_what_its_agent_speaks(
    version: str, interfaces: list[tuple[str, str]]
) -> None:
    async def test() -> None:
        document = json.dumps(OF_VERSION[version]).encode()
        page = Http(200, document, {"Content-Type": "application/json"})
        async with scripted("JSONRPC", {"card": [NOT_HERE, NOT_HERE, page]}) as agent:
            found = await fetch_card(agent.url)
        assert agent.requests[-1].target == OLD_PATH_CARD
        assert found.document == document
        told = [(each.protocol_binding, each.protocol_version) for each in found.card.supported_interfaces]
        assert told == interfaces

    run(test())


def test_card_is_asked_for_in_the_latest_version_that_is_spoken() -> None:
    async def test() -> None:
        async with scripted("JSONRPC", {"card": [PAGE]}) as agent:
            await fetch_card(agent.url)
        assert agent.requests[0].headers["a2a-version"] == "1.0"

    run(test())


@pytest.mark.parametrize("body", [b"{}", b"[]", b"<!doctype html>", b"", b'{"status": "ok"}', b'"card"'])
def test_page_that_is_no_card_is_passed_over_and_told_of_when_there_is_none(body: bytes) -> None:
    async def test() -> None:
        other = Http(200, body, {"Content-Type": "application/json"})
        async with scripted(
            "JSONRPC", {"card": [other, PAGE, other, *[NOT_HERE] * 3], "GET /agent": [NOT_HERE]}
        ) as agent:
            assert await card_at(agent.url) == CARD
            with pytest.raises(InvalidCard, match=r"agent/\.well-known/agent-card\.json"):
                await card_at(agent.url)

    run(test())


# --- caching ----------------------------------------------------------------------------------------------------------


class Clock:
    """Seconds, set by the test."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def page(name: str = "Scripted", **headers: str) -> Http:
    body = encode(msgspec.structs.replace(CARD, name=name))
    return Http(200, body, {key.replace("_", "-"): value for key, value in headers.items()})


async def names(ref: str, cards: CardCache, *times: float, clock: Clock, **options: Any) -> list[str]:
    """The card's name at each of these times."""
    found = []
    for now in times:
        clock.now = now
        found.append((await card_at(ref, cards=cards, **options)).name)
    return found


@pytest.mark.requirement("cache.client-honours", "cache.standard-http")
def test_card_is_used_while_it_is_fresh_and_no_longer() -> None:
    async def test() -> None:
        clock = Clock()
        pages: list[Step] = [page("one", Cache_Control="public, max-age=60"), page("two")]
        async with scripted("JSONRPC", {"card": pages}) as agent:
            found = await names(host_of(agent), CardCache(clock=clock), 0, 59.9, 60, clock=clock)
        assert found == ["one", "one", "two"]

    run(test())


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Cache_Control": "no-store, max-age=60"},
        {"Cache_Control": "no-cache, max-age=60"},
        {"Cache_Control": "max-age=0"},
        {"Cache_Control": "max-age=60", "Age": "60"},
        {"Cache_Control": "s-maxage=60"},
    ],
)
def test_card_that_may_not_be_kept_is_asked_for_each_time(headers: dict[str, str]) -> None:
    async def test() -> None:
        clock = Clock()
        pages: list[Step] = [page("one", **headers), page("two", **headers)]
        async with scripted("JSONRPC", {"card": pages}) as agent:
            assert await names(host_of(agent), CardCache(clock=clock), 0, 1, clock=clock) == ["one", "two"]

    run(test())


@pytest.mark.requirement("cache.client-revalidates", "cache.standard-http")
def test_expired_card_is_asked_for_with_what_the_server_gave_and_kept_when_unchanged() -> None:
    async def test() -> None:
        clock = Clock()
        since = "Wed, 21 Oct 2015 07:28:00 GMT"
        pages: list[Step] = [
            page("one", Cache_Control="max-age=60", ETag='"v1"', Last_Modified=since),
            Http(304, b"", {"Cache-Control": "max-age=10"}),
            page("two", ETag='"v2"'),
            Http(304),
        ]
        async with scripted("JSONRPC", {"card": pages}) as agent:
            found = await names(host_of(agent), CardCache(clock=clock), 0, 60, 69, 70, 71, clock=clock)
        assert found == ["one", "one", "one", "two", "two"]
        asked = [
            (request.headers.get("if-none-match"), request.headers.get("if-modified-since"))
            for request in agent.requests
        ]
        assert asked == [(None, None), ('"v1"', since), ('"v1"', since), ('"v2"', None)]

    run(test())


def test_card_for_one_credential_is_not_used_for_another() -> None:
    async def test() -> None:
        clock = Clock()
        pages: list[Step] = [page("for a", Cache_Control="max-age=60"), page("for b")]
        async with scripted("JSONRPC", {"card": pages}) as agent:
            cards = CardCache(clock=clock)
            found = []
            for token in ("a", "b"):
                headers = {"Authorization": token}
                trust = "http://127.0.0.1:1"
                found += await names(host_of(agent), cards, 0, clock=clock, headers=headers, trust=trust)
        assert found == ["for a", "for b"]

    run(test())


def test_connections_share_no_cache_unless_they_are_given_one() -> None:
    async def test() -> None:
        fresh: list[Step] = [page("one", Cache_Control="max-age=60"), page("two", Cache_Control="max-age=60")]
        async with scripted("JSONRPC", {"card": fresh}) as agent:
            assert [(await card_at(host_of(agent))).name for _ in range(2)] == ["one", "two"]

    run(test())


def test_cache_forgets_the_oldest_card_beyond_its_limit() -> None:
    async def test() -> None:
        clock = Clock()
        pages: list[Step] = [page(f"{n}", Cache_Control="max-age=60") for n in range(4)]
        async with scripted("JSONRPC", {"card": pages}) as agent:
            cards = CardCache(clock=clock, kept=2)
            urls = [f"http://{host_of(agent)}/{n}.json" for n in range(3)]
            found = [(await card_at(url, cards=cards)).name for url in [*urls, urls[2], urls[0]]]
        assert found == ["0", "1", "2", "2", "3"]

    run(test())


@pytest.mark.requirement("cache.client-revalidates")
def test_peer_reads_its_card_again_once_it_has_expired() -> None:
    async def test() -> None:
        clock = Clock()
        pages: list[Step] = [
            page("one", Cache_Control="max-age=60", ETag='"v1"'),
            Http(304, b"", {"Cache-Control": "max-age=60"}),
            page("two"),
            Http(404),
            Http(401),
            Raw(b""),
            Raw(b""),  # a GET whose connection breaks is sent once more
        ]
        async with (
            scripted("JSONRPC", {"card": pages}) as agent,
            connect(host_of(agent), cards=CardCache(clock=clock)) as peer,
        ):
            seen = []
            for now in (0, 59, 60, 121):
                clock.now = 1000.0 + now
                seen.append((await peer.refresh_card()).name)
            assert seen == ["one", "one", "one", "two"]
            assert peer.card.name == "two"
            for error in (CardNotFound, AuthenticationRequired, Unreachable):
                with pytest.raises(error):
                    await peer.refresh_card()

    run(test())


def test_card_that_was_given_is_not_read_again(tmp_path: Path) -> None:
    async def test() -> None:
        file = tmp_path / "card.json"
        file.write_bytes(encode(CARD))
        async with connect(file) as peer:
            file.unlink()
            assert await peer.refresh_card() == CARD

    run(test())


def test_await_and_async_with_both_give_a_peer_that_can_be_closed_twice() -> None:
    async def test() -> None:
        script: Script = {"SendMessage": [Answer(message("a")), Answer(message("b")), Answer(message("c"))]}
        async with scripted("JSONRPC", script) as agent:
            peer = await connect(agent.card)
            await peer.send("1")
            async with await connect(agent.card) as other:
                await other.send("2")
            async with connect(agent.card) as third:
                await third.send("3")
            await asyncio.gather(peer.close(), peer.close())
            await peer.close()

    run(test())


def test_user_and_password_of_a_reference_go_to_its_own_origin_and_to_no_other() -> None:
    async def test() -> None:
        async with scripted("JSONRPC", {"SendMessage": [Answer(message("hi"))] * 2}) as elsewhere:
            for interface, name in ((elsewhere.url, "away"), ("", "home")):
                async with scripted("JSONRPC", {"SendMessage": [Answer(message("hi"))]}) as agent:
                    card = card_of((interface or agent.url, "JSONRPC"))
                    agent.script("card", Http(200, encode(card), {"Content-Type": "application/json"}))
                    ref = f"http://ada:secret@{host_of(agent)}"
                    if interface:
                        with pytest.raises(OriginNotTrusted, match="do not go to another origin") as refused:
                            await connect(ref)
                        assert refused.value.origin in interface
                        assert elsewhere.requests == []
                        agent.script("card", Http(200, encode(card), {"Content-Type": "application/json"}))
                    async with connect(ref, trust=refused.value.origin if interface else ()) as peer:
                        await peer.send(name)
                    given = [request.headers.get("authorization") for request in agent.requests]
                    assert given == ["Basic YWRhOnNlY3JldA=="] * 2
            assert [request.headers.get("authorization") for request in elsewhere.requests] == [given[0]]

    run(test())


@pytest.mark.parametrize("ref", [None, 5, b"agent.example", ["agent.example"]])
def test_what_is_no_reference_is_a_type_error_that_says_what_is_one(ref: object) -> None:
    with pytest.raises(TypeError, match=r"a host, a URL, .* is to be given, and not a"):
        connect(ref)  # type: ignore[call-overload, arg-type, unused-ignore]


def test_silent_stream_counts_as_broken_after_a_minute_by_default() -> None:
    assert Timeouts().idle_s == 60
