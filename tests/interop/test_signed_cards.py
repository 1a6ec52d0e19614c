"""Signed cards over HTTP: ours read by the official Python client, those of an official server read by us."""

from __future__ import annotations

import json

import httpx
import pytest
from a2a.client import A2ACardResolver
from a2a.client.errors import AgentCardResolutionError
from a2a.server.routes import create_agent_card_routes
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from a2a.utils.signing import InvalidSignaturesError, create_agent_card_signer, create_signature_verifier
from jwt import PyJWK, PyJWKClient
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

import tieline
from tests.server.agents import worker
from tests.server.raw import in_loop, serve
from tieline import CardSigner
from tieline.errors import CardNotVerified
from tieline.signing_keys import new_private_key

PRIVATE = new_private_key()
SIGNER = CardSigner(PRIVATE, key_id="k1")


@in_loop
async def test_the_official_client_verifies_the_card_that_we_serve_by_the_keys_that_we_serve() -> None:
    application = tieline.app(worker(), allowed_hosts=["127.0.0.1"], card_signer=SIGNER)
    async with serve(application) as port, httpx.AsyncClient() as http:
        keys = (await http.get(f"http://127.0.0.1:{port}/.well-known/jwks.json")).json()
        found = PyJWKClient("https://unused.example").match_kid([PyJWK(key) for key in keys["keys"]], "k1")
        assert found is not None
        named: list[tuple[str | None, str | None]] = []

        def key_of(kid: str | None, jku: str | None) -> PyJWK:
            named.append((kid, jku))
            return found

        resolver = A2ACardResolver(http, f"http://127.0.0.1:{port}")
        card = await resolver.get_agent_card(signature_verifier=create_signature_verifier(key_of, ["ES256"]))
        assert card.name == "Worker"
        assert set(named) == {("k1", f"http://127.0.0.1:{port}/.well-known/jwks.json")}
        wrong = create_signature_verifier(
            lambda kid, jku: PyJWK(json.loads(CardSigner(new_private_key()).jwks)["keys"][0]), ["ES256"]
        )
        with pytest.raises((InvalidSignaturesError, AgentCardResolutionError)):
            await resolver.get_agent_card(signature_verifier=wrong)


@in_loop
async def test_we_verify_the_card_that_an_official_server_has_signed() -> None:
    card = AgentCard(
        name="Theirs",
        description="Signed by the official SDK.",
        version="1.0.0",
        capabilities=AgentCapabilities(streaming=False),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="s", name="S", description="Does s.", tags=["t"])],
        supported_interfaces=[
            AgentInterface(protocol_binding="JSONRPC", protocol_version="0.3", url="http://127.0.0.1:1")
        ],
    )
    create_agent_card_signer(PRIVATE.decode(), {"alg": "ES256", "kid": "k1", "jku": None, "typ": "JOSE"})(card)

    async def keys(request: object) -> Response:
        return Response(SIGNER.jwks, media_type="application/json")

    routes = [*create_agent_card_routes(card), Route("/keys", keys)]
    async with serve(Starlette(routes=routes)) as port:
        url = f"http://127.0.0.1:{port}"
        async with tieline.connect(url, card_keys=f"{url}/keys", require_signed_card=True) as peer:
            assert peer.card.name == "Theirs"
            assert (peer.card_verification.state, peer.card_verification.key_source) == ("verified", f"{url}/keys")
        card.description = "Changed."
        with pytest.raises(CardNotVerified, match="not what its signature says"):
            await tieline.connect(url, card_keys=f"{url}/keys", require_signed_card=True)
