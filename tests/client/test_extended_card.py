"""The card for those who have authenticated: asked for with credentials, and used in place of the public one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.client.running import run
from tests.client.serving import by_way, served
from tieline import Agent, AgentSkill, App, CardCache, CardSigner, Peer, Turn, agent, app, connect
from tieline.client.credentials import Bearer
from tieline.errors import AuthenticationRequired, UnsupportedOperation
from tieline.server import auth
from tieline.server.auth.tokens import make_token, write_tokens
from tieline.signing_keys import new_private_key
from tieline.wire.signing import SignatureState

BINDINGS = {"jsonrpc": "JSONRPC", "rest": "HTTP+JSON"}


def agent_with(*skills: str, version: str = "1.0.0", extended: tuple[str, ...] = ("inside",)) -> Agent:
    def skill(id_: str) -> AgentSkill:
        return AgentSkill(id_, id_.title(), f"Does {id_}.", ("test",))

    @agent(
        name="Two cards",
        description="Tells more to those it knows.",
        version=version,
        skills=[skill(id_) for id_ in skills or ("outside",)],
        extended_skills=[skill(id_) for id_ in extended],
    )
    async def two_cards(turn: Turn) -> str:
        return turn.text

    return two_cards


def skills(card: Any) -> list[str]:
    return [skill.id for skill in card.skills]


class Kept:
    """A file of tokens, and one token of it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "tokens.jsonl"
        self.shown, token = make_token("ada")
        write_tokens(self.path, [token])
        self.credential = Bearer(self.shown)

    def app(self, published: Agent, **options: Any) -> App:
        return app(published, auth=auth.Auth(auth.BearerTokens(self.path)), **options)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


@pytest.mark.requirement("extended-card.returned", "extended-card.client-authenticates")
@pytest.mark.parametrize("way", ["jsonrpc-1.0", "rest-1.0", "grpc-1.0", "jsonrpc-0.3", "rest-0.3", "grpc-0.3"])
def test_extended_card_is_asked_for_with_credentials_and_takes_the_place_of_the_public_one(
    kept: Kept, way: str
) -> None:
    async def test() -> None:
        async with by_way(kept.app(agent_with()), way, credentials=[kept.credential]) as peer:
            assert skills(peer.card) == ["outside"]
            card = await peer.extended_card()
            assert skills(card) == ["outside", "inside"]
            assert peer.card == card
            assert await peer.ask("go on") == "go on"

    run(test())


@pytest.mark.requirement("extended-card.requires-authentication")
@pytest.mark.parametrize("way", ["jsonrpc-1.0", "rest-1.0", "grpc-1.0"])
def test_without_credentials_the_extended_card_is_refused_and_the_public_one_stays(kept: Kept, way: str) -> None:
    async def test() -> None:
        async with by_way(kept.app(agent_with()), way) as peer:
            with pytest.raises(AuthenticationRequired):
                await peer.extended_card()
            assert skills(peer.card) == ["outside"]

    run(test())


@pytest.mark.requirement("extended-card.caching-headers")
def test_headers_say_that_the_extended_card_is_its_readers_alone(kept: Kept) -> None:
    async def test() -> None:
        headers = {"Authorization": f"Bearer {kept.shown}", "A2A-Version": "1.0"}
        async with (
            served(kept.app(agent_with())) as url,
            aiohttp.ClientSession() as session,
            session.get(f"{url}/extendedAgentCard", headers=headers) as response,
        ):
            assert response.status == 200
            assert [skill["id"] for skill in (await response.json(content_type=None))["skills"]] == [
                "outside",
                "inside",
            ]
            assert response.headers["Cache-Control"] == "private, no-cache"

    run(test())


@asynccontextmanager
async def replaced(kept: Kept, binding: str, now: list[float]) -> AsyncIterator[tuple[Peer, list[App]]]:
    """A peer of an agent whose server is replaced: the last app of the list answers. `now`: the time of the client."""
    apps = [kept.app(agent_with())]

    async def current(scope: Any, receive: Any, send: Any) -> None:
        await apps[-1](scope, receive, send)

    published: Any = current
    cache = CardCache(clock=lambda: now[-1])
    async with (
        served(published) as url,
        connect(url, transport=binding, credentials=[kept.credential], cards=cache) as peer,
    ):
        yield peer, apps


@pytest.mark.requirement("extended-card.replaces-cached-card")
@pytest.mark.parametrize("transport", BINDINGS)
def test_extended_card_is_used_until_the_version_of_the_public_one_changes(kept: Kept, transport: str) -> None:
    async def test() -> None:
        now = [0.0]
        async with replaced(kept, BINDINGS[transport], now) as (peer, apps):
            await peer.extended_card()
            now.append(1e6)
            assert skills(await peer.refresh_card()) == ["outside", "inside"]
            apps.append(kept.app(agent_with("new", version="2.0.0", extended=("deep",))))
            now.append(2e6)
            assert skills(await peer.refresh_card()) == ["new", "deep"]
            apps.append(kept.app(agent_with("newest", version="3.0.0", extended=())))
            now.append(3e6)
            assert skills(await peer.refresh_card()) == ["newest"]

    run(test())


@pytest.mark.requirement("capability.extended-card-not-configured")
@pytest.mark.parametrize("transport", BINDINGS)
def test_no_agent_declares_an_extended_card_that_it_has_not(kept: Kept, transport: str) -> None:
    async def test() -> None:
        for extended in (("inside",), ()):
            async with (
                served(kept.app(agent_with(extended=extended))) as url,
                connect(url, transport=BINDINGS[transport], credentials=[kept.credential]) as peer,
            ):
                assert peer.card.capabilities.extended_agent_card is bool(extended)
                if extended:
                    await peer.extended_card()
                else:
                    with pytest.raises(UnsupportedOperation, match="says that there is no extended one"):
                        await peer.extended_card()

    run(test())


@pytest.mark.parametrize("way", ["jsonrpc-1.0", "rest-1.0", "grpc-1.0", "jsonrpc-0.3"])
def test_extended_card_of_a_signed_one_is_signed_too_and_one_that_is_not_is_refused_where_that_is_wanted(
    kept: Kept, tmp_path: Path, way: str
) -> None:
    async def test() -> None:
        signer = CardSigner(new_private_key(), key_id="k1")
        keys = tmp_path / "keys.json"
        keys.write_bytes(signer.jwks)
        wanted: dict[str, Any] = {"credentials": [kept.credential], "card_keys": [keys], "require_signed_card": True}
        async with by_way(
            kept.app(agent_with(), card_signer=signer, allowed_hosts=["127.0.0.1"]), way, **wanted
        ) as peer:
            assert skills(await peer.extended_card()) == ["outside", "inside"]
            assert peer.card_verification.state == "verified"

    run(test())


def test_agent_of_this_process_gives_its_extended_card() -> None:
    async def test() -> None:
        async with connect(agent_with()) as peer:
            assert skills(await peer.extended_card()) == ["outside", "inside"]

    run(test())


@pytest.mark.parametrize("transport", BINDINGS)
def test_extended_card_beside_one_that_was_given_by_hand_is_verified_by_the_keys_where_it_came_from(
    kept: Kept, transport: str
) -> None:
    async def test() -> None:
        signed = kept.app(agent_with(), card_signer=CardSigner(new_private_key()), allowed_hosts=["127.0.0.1"])
        async with served(signed) as url:
            async with connect(url, credentials=[kept.credential]) as peer:
                card = peer.card
            async with connect(card, transport=BINDINGS[transport], credentials=[kept.credential]) as peer:
                await peer.extended_card()
                assert peer.card_verification.state is SignatureState.VERIFIED, peer.card_verification.reason

    run(test())
