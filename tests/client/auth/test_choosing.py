"""The card chooses which credentials are shown and where they go, over every binding."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from tests.client.auth.agents import Guarded
from tests.client.auth.guarded import BASIC, SECRET
from tests.client.running import run
from tests.client.scripted import card_of
from tests.oidc.running import OidcProvider
from tieline import ApiKey, Basic, Bearer, ClientCredentials, DeviceCode, Task, connect
from tieline.card import APIKeySecurityScheme, SecurityScheme
from tieline.client.credentials import Credential
from tieline.client.fitting import fit
from tieline.errors import AuthenticationRequired, CredentialsUnfit, InvalidCard
from tieline.wire import cards

every_binding = pytest.mark.parametrize("transport", ["JSONRPC", "HTTP+JSON", "GRPC"])
FIXED: dict[str, Credential] = {
    "bearer": Bearer(SECRET),
    "basic": Basic("ada", "open sesame"),
    "header-key": ApiKey(SECRET),
    "query-key": ApiKey(SECRET),
    "cookie-key": ApiKey(SECRET),
}


async def spoken(url: str, **options: Any) -> None:
    """Every operation, streams among them."""
    async with connect(url, **options) as peer:
        assert (await peer.ask("one two")).strip() == "one two"
        events = [event async for event in peer.stream("three")]
        assert isinstance(events[0], Task)
        task = await peer.get(events[0].id)
        assert task.state.terminal
        assert task.id in [each.id for each in (await peer.list()).tasks]


@pytest.mark.requirement("auth.client-reads-schemes", "auth.client-sends-credentials")
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
def test_every_call_carries_the_credential_of_the_scheme_in_the_card(guarded: Guarded, binding: str) -> None:
    agent = guarded.agent("bearer")
    run(spoken(agent.url, transport=binding, credentials=FIXED["bearer"]))
    assert len(agent.calls) >= 4
    assert {call["headers"]["authorization"] for call in agent.calls} == {f"Bearer {SECRET}"}


@every_binding
def test_a_user_and_a_password_in_the_url_go_with_calls_however_they_are_made(guarded: Guarded, transport: str) -> None:
    agent = guarded.agent("basic")
    run(spoken(agent.url.replace("://", "://ada:open%20sesame@"), transport=transport))


@every_binding
@pytest.mark.parametrize("scenario", FIXED)
def test_a_credential_goes_where_the_card_says(guarded: Guarded, transport: str, scenario: str) -> None:
    agent = guarded.agent(scenario)
    if (transport, scenario) == ("GRPC", "query-key"):
        with pytest.raises(InvalidCard, match="gRPC has no query"):
            run(spoken(agent.url, transport=transport, credentials=FIXED[scenario]))
        return
    run(spoken(agent.url, transport=transport, credentials=FIXED[scenario]))
    assert [record for record in agent.records if record["card"] and SECRET in str(record)] == []


@every_binding
def test_a_call_without_credentials_says_what_the_card_wants(guarded: Guarded, transport: str) -> None:
    async def test() -> None:
        async with connect(guarded.agent("header-key").url, transport=transport) as peer:
            with pytest.raises(AuthenticationRequired) as refused:
                await peer.ask("hi")
            assert refused.value.status == 401
            assert "ApiKey(key) for the header 'X-Agent-Key'" in refused.value.__notes__[0]

    run(test())


@pytest.mark.parametrize(
    ("scenario", "given", "words"),
    [
        ("bearer", ApiKey("k"), r"Bearer\(token\)"),
        ("basic", Bearer("t"), r"Basic\(user, password\)"),
        ("digest", Bearer("t"), "HTTP Digest, which is not spoken here"),
        ("header-key", Bearer("t"), "ApiKey"),
        ("plain-both", Bearer("t"), r"Bearer\(token\) together with ApiKey\(key\) for the header 'X-Agent-Key'"),
        ("either", Bearer("t"), r"Basic\(user, password\), or ApiKey\(key\)"),
        ("machine", Basic("a", "b"), r"ClientCredentials\(client_id=\.\.\., .*/token"),
        ("device", Basic("a", "b"), r"DeviceCode\(client_id=\.\.\., show=\.\.\.\)"),
        ("browser", DeviceCode(client_id="desktop", show=print), r"AuthorizationCode\(client_id=\.\.\.\)"),
        ("open", ApiKey("k"), r"does not say where a key goes: ApiKey\(key, header=NAME\)"),
        ("header-key", ApiKey("k", scheme="another"), "ApiKey"),
    ],
)
def test_credentials_that_do_not_fit_are_refused_before_a_call_and_the_error_says_what_would(
    guarded: Guarded, scenario: str, given: Credential, words: str
) -> None:
    async def test() -> None:
        agent = guarded.agent(scenario)
        with pytest.raises(CredentialsUnfit, match=words):
            await connect(agent.url, credentials=given)
        assert agent.calls == []

    run(test())


def test_schemes_of_one_requirement_are_met_together_and_of_alternatives_one_is_enough(
    guarded: Guarded, provider: OidcProvider
) -> None:
    agent = guarded.agent("plain-both")
    run(spoken(agent.url, credentials=(ApiKey(SECRET), Bearer(SECRET))))
    assert agent.calls[0]["headers"]["x-agent-key"] == SECRET
    assert agent.calls[0]["headers"]["authorization"] == f"Bearer {SECRET}"
    agent = guarded.agent("both")
    machine = ClientCredentials(client_id="machine", client_secret="machine-secret", issuer=provider.issuer)
    run(spoken(agent.url, credentials=(machine, ApiKey(SECRET))))
    agent = guarded.agent("either")
    run(spoken(agent.url, credentials=(Bearer("not wanted"), ApiKey(SECRET))))
    assert "authorization" not in agent.calls[0]["headers"]
    run(spoken(agent.url, credentials=(ApiKey(SECRET), FIXED["basic"])))
    assert agent.calls[-1]["headers"]["authorization"] == BASIC, "the card's order holds"
    assert "x-agent-key" not in agent.calls[-1]["headers"]


def test_a_card_without_schemes_gets_what_there_is_one_place_for(guarded: Guarded) -> None:
    agent = guarded.agent("open")
    run(spoken(agent.url, credentials=Bearer(SECRET)))
    assert agent.calls[0]["headers"]["authorization"] == f"Bearer {SECRET}"
    run(spoken(agent.url, credentials=ApiKey(SECRET, header="X-Mine")))
    assert agent.calls[-1]["headers"]["x-mine"] == SECRET


@pytest.mark.parametrize("kind", ["0.3", "0.1"])
def test_cards_of_older_versions_choose_alike(kind: str) -> None:
    document: dict[str, Any] = {
        "name": "Old",
        "url": "https://old.example/",
        "version": "1",
        "capabilities": {},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [],
        "description": "Old.",
    }
    if kind == "0.3":
        document |= {
            "protocolVersion": "0.3.0",
            "securitySchemes": {
                "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
                "oauth": {
                    "type": "oauth2",
                    "flows": {"clientCredentials": {"tokenUrl": "https://login.example/t", "scopes": {"a": "b"}}},
                },
            },
            "security": [{"key": [], "oauth": ["a"]}],
        }
        machine = ClientCredentials(client_id="m", client_secret="s", issuer="https://login.example")
        both = fit(cards.read(json.dumps(document).encode()), (machine, ApiKey("k")))
        assert {(each.name, type(each.credential), each.scopes) for each in both} == {
            ("key", ApiKey, ()),
            ("oauth", ClientCredentials, ("a",)),
        }
        return
    document["authentication"] = {"schemes": ["Basic", "Bearer"]}
    (only,) = fit(cards.read(json.dumps(document).encode()), (Bearer("t"),))
    assert only.credential == Bearer("t")


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("header", "Host"),
        ("header", "Accept"),
        ("header", "User-Agent"),
        ("header", "Last-Event-ID"),
        ("header", "A2A-Extensions"),
        ("header", "Proxy-Authorization"),
        ("query", "tenant"),
        ("query", "pageToken"),
    ],
)
def test_a_key_is_not_put_where_the_protocol_has_something_and_logs_show_it(location: str, name: str) -> None:
    async def test() -> None:
        key = SecurityScheme(api_key_security_scheme=APIKeySecurityScheme(location, name))
        card = replace(card_of(("http://127.0.0.1:1/rpc", "JSONRPC")), security_schemes={"key": key})
        with pytest.raises(CredentialsUnfit, match=f"in the {location} '{name}', which cannot be") as refused:
            await connect(card, credentials=ApiKey(SECRET))
        assert SECRET not in str(refused.value)

    run(test())


def test_an_authorization_header_beside_credentials_that_use_it_is_a_mistake(guarded: Guarded) -> None:
    async def test() -> None:
        headers = {"authorization": "Bearer other"}
        with pytest.raises(ValueError, match="exclude each other"):
            await connect(guarded.agent("bearer").url, credentials=Bearer(SECRET), headers=headers)

    run(test())


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: Bearer("sp ace\n"), "characters that no header can carry"),
        (lambda: Bearer(""), "is empty"),
        (lambda: ApiKey("ä"), "characters that no header can carry"),
        (lambda: Basic("a:b", "c"), "a user without a colon"),
        (
            lambda: ClientCredentials(client_id="c", client_secret="sec", token_url="http://x.example/"),
            "has to be https",
        ),
        (lambda: ClientCredentials(client_id="c", client_secret="sec", issuer="ftp://x.example/"), "has to be https"),
        (
            lambda: ClientCredentials(client_id="c", client_secret="sec", issuer="https://u:sec@x.example"),
            "without user",
        ),
        (
            lambda: ClientCredentials(client_id="c", client_secret="sec\udcff"),
            "client_secret has characters that are no",
        ),
        (lambda: DeviceCode(client_id="\udcff", show=print), "client_id has characters that are no text"),
        (lambda: DeviceCode(client_id="c", scopes=("a", "\udcff"), show=print), "scopes has characters that are no"),
        (lambda: ClientCredentials(client_id="c", client_secret="sec", scopes="a b"), "a tuple"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_shown_is_refused_when_it_is_made_and_no_secret_is_told(made: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words) as refused:
        made()
    assert "sec" not in str(refused.value).replace("secret", "")


def test_no_secret_is_in_a_repr() -> None:
    for credential in (
        Bearer(SECRET),
        ApiKey(SECRET),
        Basic("ada", SECRET),
        ClientCredentials(client_id="machine", client_secret=SECRET, issuer="https://login.example"),
    ):
        assert SECRET not in repr(credential)
        assert SECRET not in f"{credential} {credential!s} {(credential,)}"
        assert "***" in repr(credential)
