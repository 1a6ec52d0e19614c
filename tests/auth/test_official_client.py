"""The client of the official SDK, with its own interceptor for credentials, against agents that ask for some."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.auth import AuthInterceptor, CredentialService
from a2a.types import GetTaskRequest, Message, Part, Role, SendMessageRequest, Task

from tests.auth.tokens import Tokens
from tests.behaviour.agents import hello
from tests.behaviour.serving import Serve, over
from tests.oidc.running import OidcProvider
from tieline.server.auth import ApiKeys, Auth, BearerTokens, OpenIdConnect


class Wallet(CredentialService):
    """Credentials by the name of the scheme."""

    def __init__(self, **credentials: str) -> None:
        self._credentials = credentials

    async def get_credentials(self, security_scheme_name: str, context: ClientCallContext | None) -> str | None:
        return self._credentials.get(security_scheme_name)


async def client_for(serve: Serve, auth: Auth, binding: str, http: httpx.AsyncClient, **credentials: str) -> Client:
    agent = await serve(hello, auth=auth, by_grpc=True)
    card = await A2ACardResolver(http, f"http://127.0.0.1:{agent.port}{agent.root}").get_agent_card()
    config = ClientConfig(True, False, http, grpc.aio.insecure_channel, [binding], use_client_preference=True)
    return ClientFactory(config).create(card, [AuthInterceptor(Wallet(**credentials))])


async def send(client: Client) -> Task:
    message = Message(message_id="m", role=Role.ROLE_USER, parts=[Part(text="Ada")])
    events = [event async for event in client.send_message(SendMessageRequest(message=message))]
    assert events[0].HasField("task"), events
    return await client.get_task(GetTaskRequest(id=events[0].task.id))


@over("jsonrpc")
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON", "GRPC"])
@pytest.mark.parametrize("scheme", ["bearer", "api_key", "oidc"])
async def test_official_client_shows_what_the_card_asks_for_and_gets_in(
    serve: Serve, provider: OidcProvider, tmp_path: Path, binding: str, scheme: str
) -> None:
    tokens = Tokens(tmp_path)
    made: dict[str, Any] = {
        "bearer": BearerTokens(tokens.path),
        "api_key": ApiKeys(tokens.path),
        "oidc": OpenIdConnect(provider.issuer, audience="agents"),
    }
    right = provider.mint() if scheme == "oidc" else tokens.add("ada")
    async with httpx.AsyncClient(timeout=30) as http:
        client = await client_for(serve, Auth(made[scheme]), binding, http, **{scheme: right})
        task = await send(client)
        assert task.artifacts[0].parts[0].text == "Hello, Ada!"
        await client.close()


@over("jsonrpc")
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON", "GRPC"])
async def test_official_client_without_a_credential_or_with_a_wrong_one_is_told_no(
    serve: Serve, tmp_path: Path, binding: str
) -> None:
    tokens = Tokens(tmp_path)
    for credentials in ({}, {"bearer": "wrong"}, {"other": tokens.add()}):
        async with httpx.AsyncClient(timeout=30) as http:
            client = await client_for(serve, Auth(BearerTokens(tokens.path)), binding, http, **credentials)
            with pytest.raises(Exception) as refusal:
                await send(client)
            told = f"{refusal.value!r} {refusal.value.__cause__!r}"
            assert "401" in told or "UNAUTHENTICATED" in told or "-32000" in told, told
            await client.close()
