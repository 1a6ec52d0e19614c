"""OAuth tokens: fetched, cached, renewed before they expire and once behind a 401, by one task however many want it."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

import pytest

from tests.client.auth.agents import Guarded
from tests.client.auth.test_choosing import every_binding, spoken
from tests.client.running import QUICK, run
from tests.client.scripted import Http, Script, Stream, scripted
from tests.client.tasks import status, task
from tests.oidc.running import OidcProvider
from tests.oidc.test_provider import asked
from tieline import ClientCredentials, OAuthToken, TaskState, connect
from tieline.client.credentials import TokenSet
from tieline.errors import AuthenticationRequired, AuthorizationFailed, Unreachable


def machine(provider: OidcProvider, **more: Any) -> ClientCredentials:
    given = {"issuer": provider.issuer, **more}
    return ClientCredentials(client_id="machine", client_secret="machine-secret", **given)


@every_binding
@pytest.mark.parametrize("scenario", ["machine", "metadata", "oidc"])
def test_client_credentials_give_a_token_once_for_all_calls(
    guarded: Guarded, provider: OidcProvider, transport: str, scenario: str
) -> None:
    run(spoken(guarded.agent(scenario).url, transport=transport, credentials=machine(provider)))
    assert provider.grants() == ["client_credentials"]
    assert provider.requests("/token")[0]["form"].get("scope") == ("call" if scenario == "machine" else None)


@every_binding
@pytest.mark.parametrize(("expires_in", "fetched"), [(0, 3), ("0", 3), (300, 1), ("", 1), ("soon", 1)])
def test_a_token_is_renewed_when_the_server_says_that_it_expires(
    guarded: Guarded, provider: OidcProvider, transport: str, expires_in: int | str, fetched: int
) -> None:
    async def test() -> None:
        provider.configure(expires_in=expires_in)
        async with connect(guarded.agent("machine").url, transport=transport, credentials=machine(provider)) as peer:
            for _ in range(3):
                await peer.list()
        assert provider.grants() == ["client_credentials"] * fetched

    run(test())


def test_a_token_is_stale_shortly_before_it_expires() -> None:
    assert not TokenSet("t", expires_at=1000.0, lifetime_s=300.0).stale(969.9)
    assert TokenSet("t", expires_at=1000.0, lifetime_s=300.0).stale(970.0)
    assert not TokenSet("t", expires_at=1000.0, lifetime_s=10.0).stale(998.9), "a short life is not spent on margins"
    assert TokenSet("t", expires_at=1000.0).stale(970.0)
    assert not TokenSet("t").stale(1e12)


@every_binding
def test_a_token_that_was_refused_is_replaced_once_for_calls_and_streams(
    guarded: Guarded, provider: OidcProvider, transport: str
) -> None:
    async def test() -> None:
        tokens: list[str] = []
        kept = Kept(tokens)
        credential = machine(provider, kept=kept)
        async with connect(guarded.agent("machine").url, transport=transport, credentials=credential) as peer:
            await peer.ask("one")
            for call in (lambda: peer.list(), lambda: peer.ask("two")):
                provider.revoke(tokens[-1])
                await call()
        assert len(tokens) == 3
        assert provider.grants() == ["client_credentials"] * 3

    run(test())


class Kept:
    """Tokens as somebody keeps them who only looks on."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens

    def load(self) -> TokenSet | None:
        return None

    def save(self, tokens: TokenSet) -> None:
        self._tokens.append(tokens.access_token)

    def held(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()


@every_binding
def test_an_agent_that_refuses_every_token_is_asked_twice_and_no_more(
    guarded: Guarded, provider: OidcProvider, transport: str
) -> None:
    async def test() -> None:
        agent = guarded.agent("bearer")  # which takes one that nobody issues
        provider.configure(misbehaviour="expired")
        async with connect(agent.url, transport=transport, credentials=machine(provider)) as peer:
            with pytest.raises(AuthenticationRequired):
                await peer.list()
        assert provider.grants() == ["client_credentials"] * 2
        if transport != "GRPC":
            assert len(agent.calls) == 2

    run(test())


def test_many_calls_at_once_fetch_one_token_and_replace_it_once(guarded: Guarded, provider: OidcProvider) -> None:
    async def test() -> None:
        tokens: list[str] = []
        credential = machine(provider, kept=Kept(tokens))
        async with connect(guarded.agent("machine").url, credentials=credential) as peer:
            await asyncio.gather(*[peer.list() for _ in range(20)])
            assert len(tokens) == 1
            provider.revoke(tokens[0])
            await asyncio.gather(*[peer.list() for _ in range(20)])
        assert len(tokens) == 2
        assert len(provider.grants()) == 2

    run(test())


def test_a_call_that_is_given_up_does_not_stop_the_renewal_for_the_others(
    guarded: Guarded, provider: OidcProvider
) -> None:
    async def test() -> None:
        async with connect(guarded.agent("machine").url, credentials=machine(provider)) as peer:
            calls = [asyncio.create_task(peer.list()) for _ in range(3)]
            await asyncio.sleep(0)
            calls[0].cancel()
            done = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(done[0], asyncio.CancelledError)
        assert not any(isinstance(each, BaseException) for each in done[1:])
        assert len(provider.grants()) == 1

    run(test())


@pytest.mark.parametrize("transport", ["JSONRPC", "HTTP+JSON"])
def test_a_stream_that_is_taken_up_again_shows_a_new_token_where_the_old_one_is_refused(
    provider: OidcProvider, transport: str
) -> None:
    async def test() -> None:
        script: Script = {
            "SendStreamingMessage": [Stream(task(), status(TaskState.WORKING), end="cut")],
            "SubscribeToTask": [Http(401), Stream(task(TaskState.WORKING), status(TaskState.COMPLETED))],
        }
        tokens: list[str] = []
        credential = machine(provider, kept=Kept(tokens))
        async with (
            scripted(transport, script) as agent,
            connect(agent.card, credentials=credential, recovery=QUICK) as peer,
        ):
            events = [event async for event in peer.stream("go")]
        assert events[-1].status.state is TaskState.COMPLETED  # type: ignore[union-attr]
        shown = [request.headers["authorization"] for request in agent.requests]
        assert shown == [f"Bearer {tokens[0]}"] * 2 + [f"Bearer {tokens[1]}"]

    run(test())


# --- tokens from elsewhere --------------------------------------------------------------------------------------------


def signed_in(provider: OidcProvider) -> OAuthToken:
    """Tokens of a user, as a program would have them that has signed in before."""
    _, device = asked(f"{provider.issuer}/device", {"client_id": "desktop"})
    provider.decide(device["user_code"])
    form = {"grant_type": "urn:ietf:params:oauth:grant-type:device_code", "client_id": "desktop"}
    _, answer = asked(f"{provider.issuer}/token", {**form, "device_code": device["device_code"]})
    return OAuthToken(
        client_id="desktop",
        token_url=f"{provider.issuer}/token",
        access_token=answer["access_token"],
        refresh_token=answer["refresh_token"],
        expires_at=0.0,
    )


def test_a_refresh_token_is_used_once_and_its_successor_afterwards(guarded: Guarded, provider: OidcProvider) -> None:
    async def test() -> None:
        credential = signed_in(provider)
        provider.configure(lifetime_s=0)
        async with connect(guarded.agent("open").url, credentials=credential) as peer:
            for _ in range(3):
                await peer.list()
        refreshes = [each["form"]["refresh_token"] for each in provider.requests("/token")[1:]]
        assert len(set(refreshes)) == 3

    run(test())


@pytest.mark.parametrize("rotate", [True, False])
def test_a_refresh_token_that_does_not_rotate_goes_on(guarded: Guarded, provider: OidcProvider, rotate: bool) -> None:
    credential = signed_in(provider)
    provider.configure(rotate_refresh=rotate)
    run(spoken(guarded.agent("device").url, credentials=credential))
    assert provider.grants()[1:] == ["refresh_token"]


def test_a_refresh_token_that_is_refused_is_an_error_that_names_the_reason_and_no_token(
    guarded: Guarded, provider: OidcProvider
) -> None:
    async def test() -> None:
        credential = signed_in(provider)
        provider.configure(refresh_refused=True)
        agent = guarded.agent("device")
        async with connect(agent.url, credentials=credential) as peer:
            with pytest.raises(AuthorizationFailed, match="invalid_grant") as refused:
                await peer.ask("hi")
        assert refused.value.code == "invalid_grant"
        assert credential.refresh_token is not None
        assert credential.refresh_token not in str(refused.value)
        assert agent.calls == []

    run(test())


# --- the authorization server fails -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"token_error": 500}, "answered HTTP 500 instead of a token"),
        ({"token_error": 302}, "answered HTTP 302 instead of a token"),
        ({"token_type": "DPoP"}, "of a type that is not spoken here"),
        ({"metadata": {"token_endpoint": None}}, "is not the discovery document"),
        ({"metadata": {"token_endpoint": "http://login.example/token"}}, "has to be https"),
        ({"issuer": "https://evil.example"}, "is that of https://evil.example, and not of http://127.0.0.1"),
    ],
)
def test_an_authorization_server_that_is_ill_or_lies_is_named_and_nothing_is_sent(
    guarded: Guarded, provider: OidcProvider, settings: dict[str, Any], words: str
) -> None:
    async def test() -> None:
        provider.configure(**settings)
        agent = guarded.agent("machine")
        async with connect(agent.url, credentials=machine(provider)) as peer:
            for call in (lambda: peer.ask("hi"), lambda: peer.send("hi")):
                with pytest.raises(AuthorizationFailed, match=words) as failed:
                    await call()
                assert "machine-secret" not in str(failed.value)
        assert agent.calls == []

    run(test())


def test_a_wrong_secret_and_a_client_that_may_not_are_told_by_the_servers_word(
    guarded: Guarded, provider: OidcProvider
) -> None:
    async def test() -> None:
        for client, secret, code in (("machine", "wrong", "invalid_client"), ("nobody", "nobody-secret", "unauth")):
            credential = ClientCredentials(client_id=client, client_secret=secret, issuer=provider.issuer)
            async with connect(guarded.agent("machine").url, credentials=credential) as peer:
                with pytest.raises(AuthorizationFailed, match=code):
                    await peer.ask("hi")

    run(test())


def test_an_authorization_server_that_is_away_means_that_nothing_was_sent(guarded: Guarded) -> None:
    async def test() -> None:
        agent = guarded.agent("machine")
        credential = ClientCredentials(client_id="m", client_secret="s", token_url="http://127.0.0.1:1/token")
        async with connect(agent.url, credentials=credential) as peer:
            with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1/token"):
                await peer.send("hi")
        assert agent.calls == []

    run(test())


def test_a_secret_with_signs_reaches_the_server_as_it_is_also_where_it_is_wanted_in_the_body(
    guarded: Guarded, provider: OidcProvider
) -> None:
    async def test() -> None:
        for methods in (["client_secret_basic"], ["client_secret_post"]):
            provider.configure(metadata={"token_endpoint_auth_methods_supported": methods})
            credential = ClientCredentials(
                client_id="website", client_secret="web-secret:with/signs%", issuer=provider.issuer
            )
            async with connect(guarded.agent("machine").url, credentials=credential) as peer:
                with pytest.raises(AuthorizationFailed, match="unauthorized_client"):  # and not invalid_client
                    await peer.ask("hi")
            assert ("client_secret" in provider.requests("/token")[-1]["form"]) is (methods == ["client_secret_post"])

    run(test())


@pytest.mark.parametrize("scenario", ["machine", "metadata"])
def test_a_secret_goes_into_the_form_where_its_owner_says_so_though_the_server_names_other_ways(
    guarded: Guarded, provider: OidcProvider, scenario: str
) -> None:
    named: dict[str, Any] = {"issuer": None} if scenario == "metadata" else {}
    credential = machine(provider, secret_in_body=True, **named)
    run(spoken(guarded.agent(scenario).url, credentials=credential, trust=provider.issuer))
    assert provider.requests("/token")[0]["form"]["client_secret"] == "machine-secret"


def test_a_server_without_pkce_gives_tokens_to_programs(guarded: Guarded, provider: OidcProvider) -> None:
    provider.configure(metadata={"code_challenge_methods_supported": ["plain"]})
    run(spoken(guarded.agent("machine").url, credentials=machine(provider)))


def test_a_token_that_cannot_be_kept_is_used_all_the_same_by_the_next_call(
    guarded: Guarded, provider: OidcProvider
) -> None:
    class Full(Kept):
        def save(self, tokens: TokenSet) -> None:
            raise OSError("the disk is full")

    async def test() -> None:
        credential = machine(provider, kept=Full([]))
        async with connect(guarded.agent("machine").url, credentials=credential) as peer:
            with pytest.raises(OSError, match="disk"):
                await peer.list()
            await peer.list()
        assert len(provider.grants()) == 1

    run(test())


def test_nothing_of_tokens_is_logged(
    guarded: Guarded, provider: OidcProvider, caplog: pytest.LogCaptureFixture
) -> None:
    tokens: list[str] = []
    with caplog.at_level("DEBUG", "tieline"):
        run(spoken(guarded.agent("machine").url, credentials=machine(provider, kept=Kept(tokens))))
    assert "SendStreamingMessage" in caplog.text
    for secret in ("machine-secret", tokens[0]):
        assert secret not in caplog.text


def test_resource_and_audience_are_told_where_they_are_given(guarded: Guarded, provider: OidcProvider) -> None:
    credential = machine(provider, resource="https://agents.example", audience="agents", scopes=("a", "b"))
    run(spoken(guarded.agent("machine").url, credentials=credential))
    form = provider.requests("/token")[0]["form"]
    assert (form["resource"], form["audience"], form["scope"]) == ("https://agents.example", "agents", "a b")
