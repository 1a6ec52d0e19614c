"""Credentials stay where they belong: no card and no redirect takes them to another origin."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from yarl import URL

from tests.client.auth.agents import Guarded
from tests.client.auth.guarded import SECRET
from tests.client.auth.test_choosing import spoken
from tests.client.auth.test_signing_in import Browser
from tests.client.running import run
from tests.client.scripted import Answer, Http, Script, card_of, scripted
from tests.client.tasks import message
from tests.oidc.running import OidcProvider
from tieline import ApiKey, AuthorizationCode, Bearer, ClientCredentials, DeviceCode, connect
from tieline.card import (
    AgentInterface,
    APIKeySecurityScheme,
    AuthorizationCodeOAuthFlow,
    ImplicitOAuthFlow,
    OAuth2SecurityScheme,
    OAuthFlows,
    OpenIdConnectSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)
from tieline.client.credentials import OAuthCredential
from tieline.client.fitting import Fit
from tieline.client.oauth import AuthorizationServer, Endpoints
from tieline.client.origin import crosses_in_clear, origin_of, pinned, trusted_origins
from tieline.client.tokens import endpoints_of
from tieline.errors import AuthorizationFailed, InvalidPeerResponse, OriginNotTrusted
from tieline.types import encode

both = pytest.mark.parametrize("transport", ["JSONRPC", "HTTP+JSON"])
GIVEN: list[dict[str, Any]] = [
    {"credentials": Bearer(SECRET)},
    {"headers": {"Authorization": f"Bearer {SECRET}"}},
    {"headers": {"X-Own": SECRET}},
    {"cookies": {"session": SECRET}},
    {"query": {"key": SECRET}},
]
given = pytest.mark.parametrize("options", GIVEN, ids=["bearer", "authorization", "header", "cookie", "query"])


def elsewhere(agent_url: str) -> str:
    return str(URL(agent_url.replace("127.0.0.1", "localhost")).origin())


@both
@given
def test_a_card_that_names_another_origin_gets_nothing_there_and_the_error_says_how_to_trust_it(
    guarded: Guarded, transport: str, options: dict[str, Any]
) -> None:
    async def test() -> None:
        agent = guarded.agent("moved")
        with pytest.raises(OriginNotTrusted) as refused:
            await connect(agent.url, transport=transport, **options)
        other = elsewhere(agent.url)
        assert refused.value.origin == other
        assert f'trust=("{other}",)' in str(refused.value)
        assert SECRET not in str(refused.value)
        assert agent.calls == []

    run(test())


@both
def test_an_origin_that_is_trusted_by_name_gets_credentials(guarded: Guarded, transport: str) -> None:
    agent = guarded.agent("moved")
    other = elsewhere(agent.url)
    run(spoken(agent.url, transport=transport, credentials=Bearer(SECRET), trust=(other,)))
    with pytest.raises(OriginNotTrusted):
        run(spoken(agent.url, transport=transport, credentials=Bearer(SECRET), trust="https://another.example"))


def test_a_card_that_names_another_origin_is_called_there_without_credentials(guarded: Guarded) -> None:
    async def test() -> None:
        agent = guarded.agent("moved")
        async with connect(agent.url) as peer:
            assert peer.interface.url.startswith(elsewhere(agent.url))

    run(test())


def test_among_interfaces_of_several_origins_only_those_at_home_are_used(guarded: Guarded) -> None:
    async def test() -> None:
        async with (
            scripted("JSONRPC", {}) as other,
            scripted("JSONRPC", {"SendMessage": [Answer(message("hi"))]}) as home,
        ):
            card = card_of((other.url, "JSONRPC"), (home.url, "JSONRPC"))
            home.script("card", Http(200, encode(card), {"Content-Type": "application/json"}))
            async with connect(home.url.removesuffix("/agent"), credentials=Bearer(SECRET)) as peer:
                assert peer.interface.url == home.url
                await peer.send("go")
        assert other.requests == []

    run(test())


# --- redirects --------------------------------------------------------------------------------------------------------


@both
@given
def test_a_redirect_to_another_origin_takes_nothing_along(
    guarded: Guarded, transport: str, options: dict[str, Any]
) -> None:
    async def test() -> None:
        agent = guarded.agent("moved-on")
        async with connect(agent.url, transport=transport, **options) as peer:
            for call in (peer.send("hi"), anext(peer.stream("hi")), peer.get("x")):
                with pytest.raises(InvalidPeerResponse, match="another origin") as refused:
                    await call
                assert SECRET not in str(refused.value)
        assert {record["headers"]["host"].partition(":")[0] for record in agent.records} == {"127.0.0.1"}

    run(test())


@both
def test_a_redirect_to_an_origin_that_is_trusted_by_name_is_followed_with_credentials(
    guarded: Guarded, transport: str
) -> None:
    agent = guarded.agent("moved-on")
    run(spoken(agent.url, transport=transport, credentials=Bearer(SECRET), trust=elsewhere(agent.url)))
    assert agent.calls[-1]["headers"]["host"].startswith("localhost:")


def test_a_user_and_password_in_a_redirect_are_not_shown_in_place_of_ones_own() -> None:
    async def test() -> None:
        async with scripted("JSONRPC", {}) as agent:
            there = str(URL(agent.url).with_user("someone").with_password("else"))
            agent.script("SendMessage", Http(307, b"", {"Location": f"{there}?moved=1"}), Answer(message("hi")))
            agent.script("SendMessage", Http(308, b"", {"Location": f"{there}?moved=1"}), Answer(message("hi")))
            async with connect(agent.card, credentials=Bearer(SECRET)) as peer:
                assert await peer.send("go") == message("hi")
            async with connect(agent.card) as peer:
                assert await peer.send("go") == message("hi")
            shown = [request.headers.get("authorization") for request in agent.requests]
            assert shown == [f"Bearer {SECRET}", f"Bearer {SECRET}", None, None]

    run(test())


def test_a_redirect_of_the_card_to_another_origin_is_refused_with_or_without_credentials() -> None:
    async def test() -> None:
        async with scripted("JSONRPC", {}) as other:
            away = Http(302, b"", {"Location": f"{other.url}/.well-known/agent-card.json"})
            async with scripted("JSONRPC", {"card": [away, away]}) as agent:
                for headers in ({}, {"Authorization": SECRET}):
                    with pytest.raises(InvalidPeerResponse, match="another origin"):
                        await connect(agent.url.removesuffix("/agent"), headers=headers)
        assert other.requests == []

    run(test())


@both
def test_a_key_in_the_query_goes_along_within_the_origin_and_is_in_no_error(transport: str) -> None:
    async def test() -> None:
        moved = Http(307, b"", {"Location": "?moved=1"})
        script: Script = {
            "SendMessage": [moved, Answer(message("hi")), Http(500, b"oops"), Http(307, b"", {"Location": "//x.y/"})]
        }
        async with scripted(transport, script) as agent:
            key = SecurityScheme(api_key_security_scheme=APIKeySecurityScheme("query", "key"))
            card = replace(agent.card, security_schemes={"key": key})
            async with connect(card, credentials=ApiKey(SECRET)) as peer:
                assert await peer.send("go") == message("hi")
                assert [request.target.partition("?")[2] for request in agent.requests] == [
                    f"key={SECRET}",
                    f"moved=1&key={SECRET}",
                ]
                for _ in range(2):
                    with pytest.raises(InvalidPeerResponse) as failed:
                        await peer.send("go")
                    assert SECRET not in str(failed.value)

    run(test())


# --- where tokens come from -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", ["machine", "metadata", "oidc"])
def test_a_clients_secret_goes_to_no_server_that_only_the_card_names(
    guarded: Guarded, provider: OidcProvider, scenario: str
) -> None:
    async def test() -> None:
        agent = guarded.agent(scenario)
        credential = ClientCredentials(client_id="machine", client_secret="machine-secret")
        async with connect(agent.url, credentials=credential) as peer:
            with pytest.raises(OriginNotTrusted) as refused:
                await peer.ask("hi")
        assert refused.value.origin == provider.issuer
        assert "The secret would go to" in str(refused.value)
        assert "token_url=" in str(refused.value)
        assert provider.requests() == []
        assert agent.calls == []

    run(test())


@pytest.mark.parametrize("scenario", ["machine", "metadata", "oidc"])
def test_a_clients_secret_goes_to_the_cards_server_when_that_is_trusted_by_name(
    guarded: Guarded, provider: OidcProvider, scenario: str
) -> None:
    credential = ClientCredentials(client_id="machine", client_secret="machine-secret")
    run(spoken(guarded.agent(scenario).url, credentials=credential, trust=provider.issuer))
    assert provider.grants() == ["client_credentials"]


def test_the_cards_own_origin_does_not_get_a_clients_secret_either(guarded: Guarded, provider: OidcProvider) -> None:
    async def test() -> None:
        agent = guarded.agent("machine")
        async with connect(agent.url) as peer:
            card = peer.card
        own = card.security_schemes["machine"]
        assert own.oauth2_security_scheme is not None
        flows = own.oauth2_security_scheme.flows
        assert flows.client_credentials is not None
        flow = replace(flows.client_credentials, token_url=f"{agent.url}/token")
        scheme = replace(
            own,
            oauth2_security_scheme=replace(own.oauth2_security_scheme, flows=replace(flows, client_credentials=flow)),
        )
        card = replace(card, security_schemes={"machine": scheme})
        credential = ClientCredentials(client_id="machine", client_secret="machine-secret")
        async with connect(card, credentials=credential) as peer:
            with pytest.raises(OriginNotTrusted):
                await peer.ask("hi")
        assert agent.calls == []

    run(test())


def test_a_user_is_sent_to_no_other_origin_to_sign_in_unless_it_is_trusted(
    guarded: Guarded, provider: OidcProvider
) -> None:
    async def test() -> None:
        shown: list[object] = []
        for scenario, credential in (
            ("browser", AuthorizationCode(client_id="desktop", open_url=shown.append)),
            ("oidc", AuthorizationCode(client_id="desktop", open_url=shown.append)),
            ("device", DeviceCode(client_id="desktop", show=shown.append)),
        ):
            async with connect(guarded.agent(scenario).url, credentials=credential) as peer:
                with pytest.raises(OriginNotTrusted, match="The sign-in would go to"):
                    await peer.ask("hi")
        assert shown == []
        assert provider.requests() == []

    run(test())


def test_a_card_that_sends_the_user_to_one_server_and_the_code_to_another_is_refused(
    guarded: Guarded, provider: OidcProvider
) -> None:
    async def test() -> None:
        browser = Browser()
        credential = AuthorizationCode(client_id="desktop", open_url=browser)
        agent = guarded.agent("mixed-up")
        async with connect(agent.url, credentials=credential, trust=elsewhere(provider.issuer)) as peer:
            with pytest.raises(OriginNotTrusted) as refused:
                await peer.ask("hi")
        assert refused.value.origin == provider.issuer
        assert browser.urls == []

    run(test())


def test_a_discovery_document_at_the_cards_origin_sends_the_user_and_the_code_to_no_other_server(
    provider: OidcProvider,
) -> None:
    async def test() -> None:
        home, away = provider.issuer, elsewhere(provider.issuer)
        scheme = SecurityScheme(
            open_id_connect_security_scheme=OpenIdConnectSecurityScheme(f"{home}/.well-known/openid-configuration")
        )
        server = AuthorizationServer()

        async def found(credential: OAuthCredential, *trusted: str) -> Endpoints:
            met = Fit(credential, scheme, "openid")
            return await endpoints_of(server, met, home=frozenset({home}), trusted=frozenset(trusted))

        browser = AuthorizationCode(client_id="desktop", open_url=print)
        device = DeviceCode(client_id="desktop", show=print)
        assert (await found(browser)).token_url == f"{home}/token"
        provider.configure(metadata={"authorization_endpoint": f"{away}/authorize", "token_endpoint": f"{away}/token"})
        for credential in (browser, device):
            with pytest.raises(OriginNotTrusted, match="The sign-in would go to"):
                await found(credential)
            assert (await found(credential, home)).token_url == f"{away}/token"
        provider.configure(metadata={"authorization_endpoint": f"{away}/authorize"})
        with pytest.raises(OriginNotTrusted):
            await found(browser)
        with pytest.raises(OriginNotTrusted) as refused:
            await found(browser, away)
        assert refused.value.origin == home
        await server.close()

    run(test())


def test_discovery_that_the_card_names_has_to_be_its_own_issuers(guarded: Guarded, provider: OidcProvider) -> None:
    async def test() -> None:
        provider.configure(issuer="https://login.example")
        credential = ClientCredentials(client_id="machine", client_secret="machine-secret")
        async with connect(guarded.agent("oidc").url, credentials=credential, trust=provider.issuer) as peer:
            with pytest.raises(AuthorizationFailed, match=r"that of another issuer, https://login\.example"):
                await peer.ask("hi")
        assert provider.grants() == []

    run(test())


@pytest.mark.requirement("security.oauth-metadata-over-tls")
def test_metadata_of_an_authorization_server_are_not_fetched_without_encryption(guarded: Guarded) -> None:
    async def test() -> None:
        async with connect(guarded.agent("oidc").url) as peer:
            card = peer.card
        url = "http://login.example/.well-known/openid-configuration"
        schemes = {
            "openid": SecurityScheme(open_id_connect_security_scheme=OpenIdConnectSecurityScheme(url)),
            "metadata": SecurityScheme(
                oauth2_security_scheme=OAuth2SecurityScheme(
                    OAuthFlows(implicit=ImplicitOAuthFlow()), oauth2_metadata_url=url
                )
            ),
        }
        for name, scheme in schemes.items():
            asking = replace(
                card,
                security_schemes={name: scheme},
                security_requirements=(SecurityRequirement({name: StringList()}),),
            )
            for credential in (
                ClientCredentials(client_id="machine", client_secret=SECRET),
                DeviceCode(client_id="desktop", show=print),
            ):
                async with connect(asking, credentials=credential, trust="http://login.example") as peer:
                    with pytest.raises(AuthorizationFailed, match=r"has to be https: http://login\.example"):
                        await peer.ask("hi")

    run(test())


def test_a_page_to_sign_in_at_is_not_opened_without_encryption(guarded: Guarded, provider: OidcProvider) -> None:
    async def test() -> None:
        browser = Browser()
        for url in ("http://login.example/authorize", "grpcs://login.example/authorize"):
            flow = AuthorizationCodeOAuthFlow(url, f"{provider.issuer}/token", {})
            scheme = SecurityScheme(oauth2_security_scheme=OAuth2SecurityScheme(OAuthFlows(authorization_code=flow)))
            async with connect(guarded.agent("browser").url) as peer:
                card = replace(peer.card, security_schemes={"browser": scheme})
            credential = AuthorizationCode(client_id="desktop", open_url=browser)
            trust = (provider.issuer, "http://login.example", "https://login.example")
            async with connect(card, credentials=credential, trust=trust) as peer:
                with pytest.raises(AuthorizationFailed, match="has to be https"):
                    await peer.ask("hi")
        assert browser.urls == []

    run(test())


def test_an_interface_that_is_no_url_cannot_be_trusted_and_the_error_does_not_say_so() -> None:
    interface = AgentInterface("http://127.0.0.1:1\\@evil.example/", "JSONRPC", "1.0")
    with pytest.raises(OriginNotTrusted, match="is no URL: nothing was sent") as refused:
        pinned((interface,), "http://127.0.0.1:1", frozenset(), secret=True)
    assert "trust" not in str(refused.value).replace("OriginNotTrusted", "")


@pytest.mark.parametrize(("url", "binding"), [("http://192.0.2.1/rpc", "JSONRPC"), ("192.0.2.1:50051", "GRPC")])
def test_credentials_do_not_go_to_another_machine_unencrypted(url: str, binding: str) -> None:
    async def test() -> None:
        for credential in (Bearer(SECRET), ApiKey(SECRET, header="X-Key")):
            with pytest.raises(OriginNotTrusted, match="unencrypted, where others can read them") as refused:
                await connect(card_of((url, binding)), credentials=credential)
            async with connect(card_of((url, binding)), credentials=credential, trust=refused.value.origin) as peer:
                assert peer.interface.url == url

    run(test())


def test_a_token_endpoint_that_redirects_does_not_take_the_secret_along(guarded: Guarded) -> None:
    async def test() -> None:
        async with scripted("JSONRPC", {}) as other:
            away = Http(307, b"", {"Location": other.url})
            async with scripted("JSONRPC", {"POST /token": [away]}) as server:
                server.binding = "HTTP+JSON"  # operations are named by their path
                token_url = f"{server.url.removesuffix('/agent')}/token"
                credential = ClientCredentials(client_id="m", client_secret=SECRET, token_url=token_url)
                async with connect(guarded.agent("machine").url, credentials=credential) as peer:
                    with pytest.raises(AuthorizationFailed, match="HTTP 307 instead of a token"):
                        await peer.ask("hi")
        assert other.requests == []

    run(test())


# --- what an origin is ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://Agents.Example/a?b#c", "https://agents.example"),
        ("https://agents.example:443/", "https://agents.example"),
        ("http://agents.example:443/", "http://agents.example:443"),
        ("agents.example:443", "https://agents.example"),
        ("agents.example:50051", "http://agents.example:50051"),
        ("grpcs://agents.example:50051", "https://agents.example:50051"),
        ("https://user:secret@agents.example", "https://agents.example"),
        ("https://[::1]:8443/x", "https://[::1]:8443"),
        ("ftp://agents.example", None),
        ("https://[bad", None),
        ("", None),
    ],
)
def test_the_origin_of_a_url_is_scheme_host_and_port(url: str, origin: str | None) -> None:
    assert origin_of(url) == origin


@pytest.mark.parametrize(
    "text",
    ["agents.example", "https://", "https://*.example", "https://a.example/path", "https://user:pw@a.example", "*", ""],
)
def test_what_is_no_origin_cannot_be_trusted(text: str) -> None:
    with pytest.raises(ValueError, match="is not an origin: write https://HOST") as refused:
        trusted_origins(text)
    assert "pw" not in str(refused.value)


def interface(url: str, binding: str = "JSONRPC") -> AgentInterface:
    return AgentInterface(url, binding, "1.0")


@pytest.mark.parametrize(
    ("card", "url", "binding", "may"),
    [
        ("https://a.example/card", "https://a.example/rpc", "JSONRPC", True),
        ("https://a.example", "https://a.example:8443/rpc", "JSONRPC", False),
        ("https://a.example", "http://a.example/rpc", "JSONRPC", False),
        ("https://a.example", "https://a.example.evil.example/rpc", "JSONRPC", False),
        ("http://a.example", "http://a.example/rpc", "JSONRPC", False),  # unencrypted, to another machine
        ("http://127.0.0.1:80", "http://127.0.0.1/rpc", "JSONRPC", True),
        ("http://127.0.0.1", "http://localhost/rpc", "JSONRPC", False),
        ("https://a.example", "a.example:443", "GRPC", True),
        ("https://a.example", "https://a.example:50051", "GRPC", True),
        ("https://a.example", "a.example:50051", "GRPC", False),
        ("http://a.example", "a.example:50051", "GRPC", False),
        ("https://a.example", "b.example:443", "GRPC", False),
        ("http://127.0.0.1:8000", "localhost:50051", "GRPC", True),
        (None, "https://b.example/rpc", "JSONRPC", True),
        (None, "http://b.example/rpc", "JSONRPC", False),
        (None, "http://127.0.0.1:1/rpc", "JSONRPC", True),
    ],
)
def test_which_interfaces_may_have_credentials(card: str | None, url: str, binding: str, may: bool) -> None:
    home = None if card is None else origin_of(card)
    if may:
        assert pinned([interface(url, binding)], home, frozenset(), secret=True)
        return
    with pytest.raises(OriginNotTrusted) as refused:
        pinned([interface(url, binding)], home, frozenset(), secret=True)
    trusted = trusted_origins(refused.value.origin)
    assert pinned([interface(url, binding)], home, trusted, secret=True), "what the error says helps"


def test_what_goes_to_another_machine_without_encryption_can_be_read() -> None:
    for url in ("http://10.0.0.5", "agents.example:50051", "grpc://agents.example", "http://[bad"):
        assert crosses_in_clear(url)
    for url in ("https://10.0.0.5", "agents.example:443", "http://127.0.0.1:1", "http://localhost", "[::1]:50051"):
        assert not crosses_in_clear(url)
