"""The card for readers of each version: at agent-card.json and agent.json, by A2A-Version, and checked at start."""

from __future__ import annotations

from typing import Any

import pytest
from a2a.client.card_resolver import parse_agent_card
from a2a.compat.v0_3 import types as v03

import tieline
from tests.server.agents import worker
from tests.server.raw import Pairs, Reply, asgi, in_loop, request, serve
from tieline import Agent, AgentExtension
from tieline.card import AgentInterface
from tieline.client.discovery import fetch_card
from tieline.server.cards import CardPage, Interfaces
from tieline.wire.cards import read

CARD, OLD_CARD = "/.well-known/agent-card.json", "/.well-known/agent.json"
BASE = "http://agents.example"


def mounted(*versions: str, tenant: str | None = None) -> Interfaces:
    """JSON-RPC and REST of these versions; 0.1 has JSON-RPC alone."""

    def at(base: str | None) -> list[AgentInterface]:
        assert base is not None
        found = []
        for version in versions:
            found.append(AgentInterface(f"{base}/", "JSONRPC", version, tenant))
            if version != "0.1":
                found.append(AgentInterface(base, "HTTP+JSON", version, tenant))
        return found

    return at


def page(interfaces: Interfaces | None = None, agent: Agent | None = None, public_url: str | None = None) -> CardPage:
    return CardPage(
        agent or worker(),
        "",
        public_url=public_url,
        trust_forwarded=False,
        interfaces=interfaces or mounted("1.0", "0.3"),
    )


async def asked(card_page: CardPage, path: str, version: str = "", host: str = "agents.example", **scope: Any) -> Reply:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await card_page.answer(scope, dict(scope["headers"]), send, old=path == OLD_CARD)

    headers: Pairs = [("Host", host), *([("A2A-Version", version)] if version else [])]
    return await asgi(app, "GET", path, headers=headers, **scope)


def form_of(reply: Reply) -> str:
    """Which version's card it is, by the members that it has."""
    assert reply.status == 200, reply
    card = reply.json()
    if "supportedInterfaces" in card:
        return "0.3 and 1.0" if "url" in card else "1.0"
    return {"0.3.0": "0.3", "0.2.6": "0.2"}[card["protocolVersion"]] if "protocolVersion" in card else "0.1"


# --- which form -------------------------------------------------------------------------------------------------------

NAMED = [("1.0", "1.0"), ("1.0.0", "1.0"), ("0.3", "0.3"), ("0.3.0", "0.3"), ("0.2.6", "0.2"), ("0.1", "0.1")]


@pytest.mark.parametrize("path", [CARD, OLD_CARD])
@pytest.mark.parametrize(("version", "form"), NAMED)
@in_loop
async def test_a_reader_that_names_its_version_gets_its_form_at_both_places(version: str, form: str, path: str) -> None:
    by_header = await asked(page(), path, version)
    by_query = await asked(page(), path, query_string=f"x=1&a2a-version={version}".encode())
    assert form_of(by_header) == form
    assert by_header.body == by_query.body
    assert by_header.headers["etag"] == by_query.headers["etag"]


@pytest.mark.parametrize("version", ["", "2.0", "0.9", "x", "1.0,0.3", "\xff"])
@in_loop
async def test_a_reader_that_names_none_or_one_that_is_not_mounted_gets_the_body_for_many(version: str) -> None:
    assert form_of(await asked(page(), CARD, version)) == "0.3 and 1.0"
    assert form_of(await asked(page(), OLD_CARD, version)) == "0.3"
    assert form_of(await asked(page(mounted("1.0")), CARD, version or "0.3")) == "1.0"
    assert form_of(await asked(page(mounted("1.0")), OLD_CARD, version or "0.3")) == "1.0"


@in_loop
async def test_the_body_for_many_is_read_by_the_readers_of_both_versions() -> None:
    reply = await asked(page(), CARD)
    old = v03.AgentCard.model_validate_json(reply.body)
    assert (old.url, old.preferred_transport) == (f"{BASE}/", "JSONRPC")
    assert [(each.transport, each.url) for each in old.additional_interfaces or ()] == [
        ("JSONRPC", f"{BASE}/"),
        ("HTTP+JSON", BASE),
    ]
    new = parse_agent_card(reply.json())
    assert [(each.protocol_binding, each.protocol_version) for each in new.supported_interfaces] == [
        ("JSONRPC", "1.0"),
        ("HTTP+JSON", "1.0"),
        ("JSONRPC", "0.3"),
        ("HTTP+JSON", "0.3"),
    ]
    assert read(reply.body) == worker().card(mounted("1.0", "0.3")(BASE))


@in_loop
async def test_agent_json_is_read_by_all_readers_before_1_0() -> None:
    reply = await asked(page(), OLD_CARD)
    assert v03.AgentCard.model_validate_json(reply.body).url == f"{BASE}/"
    assert reply.json()["capabilities"] == {
        "streaming": True,
        "pushNotifications": False,
        "stateTransitionHistory": False,
    }


@in_loop
async def test_an_agent_without_json_rpc_has_no_card_for_readers_that_know_nothing_else() -> None:
    rest = page(lambda base: [AgentInterface(base or "", "HTTP+JSON", version) for version in ("1.0", "0.3")])
    assert form_of(await asked(rest, OLD_CARD)) == "0.3 and 1.0"
    assert form_of(await asked(rest, CARD, "0.3")) == "0.3"
    assert form_of(await asked(rest, CARD, "0.1")) == "0.3 and 1.0"


@in_loop
async def test_an_agent_of_the_oldest_version_alone_has_its_card_at_agent_json() -> None:
    reply = await asked(page(mounted("1.0", "0.1")), OLD_CARD)
    assert form_of(reply) == "0.1"
    assert reply.json()["url"] == f"{BASE}/"


# --- HTTP -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [CARD, OLD_CARD])
@in_loop
async def test_both_pages_have_what_caches_and_web_pages_need(path: str) -> None:
    async with serve(tieline.app({"one": worker(), "two": worker()})) as port:
        got = await request(port, "GET", f"/one{path}")
        head = await request(port, "HEAD", f"/one{path}")
        same = await request(port, "GET", f"/one{path}", headers=[("If-None-Match", got.headers["etag"])])
        preflight = await request(port, "OPTIONS", f"/one{path}")
        refused = await request(port, "POST", f"/one{path}", b"{}")
    assert (got.status, head.status, same.status, preflight.status, refused.status) == (200, 200, 304, 204, 405)
    assert {**head.headers, "date": ""} == {**got.headers, "date": ""}
    assert (head.body, same.body, preflight.body) == (b"", b"", b"")
    assert got.headers["content-type"] == "application/json"
    assert got.headers["vary"] == "Host, A2A-Version"
    assert "max-age=" in got.headers["cache-control"]
    assert "last-modified" in got.headers
    for reply in (got, same, preflight):
        assert reply.headers["access-control-allow-origin"] == "*"
    assert refused.headers["allow"] == "GET, HEAD, OPTIONS"


@in_loop
async def test_the_forms_of_one_card_have_each_its_own_etag() -> None:
    one = page()
    bodies = {(await asked(one, path, version)).body for path in (CARD, OLD_CARD) for version, _ in [("", ""), *NAMED]}
    tags = {
        (await asked(one, path, version)).headers["etag"]
        for path in (CARD, OLD_CARD)
        for version, _ in [("", ""), *NAMED]
    }
    assert len(tags) == len(bodies) >= 5


@in_loop
async def test_forms_and_hosts_together_do_not_pile_up() -> None:
    one = page()
    for number in range(100):
        for version, _ in NAMED:
            reply = await asked(one, CARD, version, f"h{number}.example")
            assert f"http://h{number}.example/".encode() in reply.body
    assert len(one._pages) <= 64


@pytest.mark.parametrize("path", [CARD, OLD_CARD])
@in_loop
async def test_both_pages_name_the_public_url_where_there_is_one(path: str) -> None:
    for version, _ in [("", ""), *NAMED]:
        reply = await asked(page(public_url="https://agents.example/hello/"), path, version)
        assert {each.url.rstrip("/") for each in read(reply.body).supported_interfaces} == {
            "https://agents.example/hello"
        }


@in_loop
async def test_our_own_client_finds_the_agent_at_either_page() -> None:
    async with serve(tieline.app(worker())) as port:
        for path in ("", CARD, OLD_CARD):
            found = await fetch_card(f"http://127.0.0.1:{port}{path}")
            assert found.card.name == "Worker"
            assert found.faults == ()
            first = found.card.supported_interfaces[0]
            assert (first.url, first.protocol_version) == (f"http://127.0.0.1:{port}/", "1.0")


# --- at start ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("interfaces", "options", "fault"),
    [
        (mounted("1.0", "0.3"), {"extensions": [AgentExtension("")]}, r"capabilities\.extensions\[0\]\.uri: must not"),
        (mounted("1.0", "0.3", tenant="acme"), {}, "supportedInterfaces: the tenant 'acme' cannot be told"),
        (mounted(), {}, "supportedInterfaces: must not be empty"),
        (lambda base: [AgentInterface("", "JSONRPC", "1.0")], {}, r"supportedInterfaces\[0\]\.url: must not be empty"),
    ],
)
def test_a_card_that_would_not_be_valid_in_a_mounted_version_is_an_error_at_start(
    interfaces: Interfaces, options: dict[str, Any], fault: str
) -> None:
    with pytest.raises(ValueError, match=fault) as caught:
        page(interfaces, worker(**options))
    assert "the card of agent 'Worker' would not be valid" in str(caught.value)


def test_what_one_version_lacks_is_no_fault_where_that_version_is_not_mounted() -> None:
    assert page(mounted("1.0", tenant="acme"), worker(extensions=[AgentExtension("")]))
