"""Our own server, guarded by a provider: the client signs in as its card asks, over every binding."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.auth.test_choosing import every_binding, spoken
from tests.client.auth.test_tokens import Kept
from tests.client.running import run
from tests.interop.processes import ROOT, TIELINE, free_port, running
from tests.oidc.running import OidcProvider
from tieline import ApiKey, Bearer, ClientCredentials, connect
from tieline.errors import A2AError, AuthenticationRequired, CredentialsUnfit, Unauthenticated, error_for

AGENT = """
from tieline import Turn, agent


@agent(name="Echo", description="Says it again.", task_after_s=None)
async def echo(turn: Turn):
    if turn.text == "authorize":
        yield f"allowed: {await turn.authorize('May I?')}"
    else:
        yield turn.text
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, provider_process: OidcProvider) -> Iterator[str]:
    """`tieline serve --auth oidc:ISSUER`, with gRPC; gives its URL."""
    folder = tmp_path_factory.mktemp("ours")
    (folder / "echo.py").write_text(AGENT)
    port, grpc_port = free_port(), free_port()
    command: list[str | Path] = [
        TIELINE,
        "serve",
        folder / "echo.py",
        "--port",
        str(port),
        "--grpc-port",
        str(grpc_port),
    ]
    command += ["--store", "memory", "--auth", f"oidc:{provider_process.issuer}", "--audience", "agents"]
    with running(command, port, folder / "serve.log", ROOT):
        yield f"http://127.0.0.1:{port}"


def machine(provider: OidcProvider, tokens: list[str]) -> ClientCredentials:
    return ClientCredentials(
        client_id="machine", client_secret="machine-secret", issuer=provider.issuer, kept=Kept(tokens)
    )


@every_binding
def test_our_server_is_signed_in_to(served: str, provider: OidcProvider, transport: str) -> None:
    tokens: list[str] = []
    run(spoken(served, transport=transport, credentials=machine(provider, tokens)))
    assert len(tokens) == 1
    run(spoken(served, transport=transport, credentials=Bearer(provider.mint())))


@every_binding
@pytest.mark.parametrize("wrong", ["wrong_audience", "expired", "not_yet", "alg_none", "key_swapped"])
def test_a_bad_token_is_refused_and_fetched_anew_once(
    served: str, provider: OidcProvider, transport: str, wrong: str
) -> None:
    async def test() -> None:
        tokens: list[str] = []
        provider.configure(misbehaviour=wrong)
        async with connect(served, transport=transport, credentials=machine(provider, tokens)) as peer:
            with pytest.raises(AuthenticationRequired) as refused:
                await peer.ask("hi")
            assert refused.value.status == 401
            provider.configure(misbehaviour="")
            assert await peer.ask("hi") == "hi"
            assert [event async for event in peer.stream("hi")]
        assert len(tokens) == 3

    run(test())


@every_binding
def test_an_authorization_in_the_middle_of_a_task_is_asked_and_answered(
    served: str, provider: OidcProvider, transport: str
) -> None:
    async def test() -> None:
        async with connect(served, transport=transport, credentials=machine(provider, [])) as peer:
            asked = await peer.ask("authorize")
            assert asked == "May I?"
            assert await peer.ask("yes", after=asked) == "allowed: yes"

    run(test())


@every_binding
def test_without_a_token_the_error_says_what_is_wanted(served: str, provider: OidcProvider, transport: str) -> None:
    async def test() -> None:
        async with connect(served, transport=transport) as peer:
            with pytest.raises(AuthenticationRequired) as refused:
                await peer.ask("hi")
            assert refused.value.status == 401
            assert "ClientCredentials(client_id=" in refused.value.__notes__[0]
        with pytest.raises(CredentialsUnfit, match="Bearer"):
            await connect(served, credentials=ApiKey("k"))

    run(test())


def test_another_servers_error_under_our_code_is_not_taken_for_a_want_of_credentials() -> None:
    error = error_for(rpc_code=-32000, message="The database is away.")
    assert type(error) is A2AError
    assert type(error_for(rpc_code=-32000, reason="UNAUTHENTICATED", message="Who?")) is Unauthenticated
