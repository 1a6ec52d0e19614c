"""The card that an agent has, and the objects in it (A2A 1.0 §4.4, §4.5, §4.6.1)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.behaviour.agents import hello, make_agent
from tests.behaviour.harness import Json
from tests.behaviour.serving import Serve, only_in, over
from tests.behaviour.shapes import faults
from tieline import AgentCard, AgentExtension, AgentProvider, AgentSkill, agent
from tieline.card import (
    AgentCardSignature,
    APIKeySecurityScheme,
    AuthorizationCodeOAuthFlow,
    ClientCredentialsOAuthFlow,
    DeviceCodeOAuthFlow,
    HTTPAuthSecurityScheme,
    ImplicitOAuthFlow,
    MutualTlsSecurityScheme,
    OAuth2SecurityScheme,
    OAuthFlows,
    OpenIdConnectSecurityScheme,
    PasswordOAuthFlow,
    SecurityScheme,
)
from tieline.errors import InvalidParams
from tieline.types import decode, encode

pytestmark = only_in("1.0", why="the cards of older versions are shown in tests/wire and tests/server")

SKILL = AgentSkill("greet", "Greeting", "Says hello.", ("greeting", "social"), ("Greet Ada.",), ("text/plain",))


# --- the card of an agent ---------------------------------------------------------------------------------------------


@pytest.mark.requirement("card.required-fields")
async def test_card_of_an_agent_that_says_nothing_of_itself_has_all_that_is_required(serve: Serve) -> None:
    async def helpful(turn: Any) -> str:
        """Helps a little."""
        return "help"

    card = await (await serve(agent(helpful))).card()
    assert (card["name"], card["description"]) == ("Helpful", "Helps a little.")
    assert card["version"]
    assert card["defaultInputModes"] == card["defaultOutputModes"] == ["text/plain"]
    (skill,) = card["skills"]
    assert (skill["name"], skill["description"]) == ("Helpful", "Helps a little.")
    assert card["capabilities"]["streaming"] is True


@pytest.mark.requirement("card.required-fields")
async def test_card_says_everything_that_its_agent_was_given(serve: Serve) -> None:
    made = make_agent(
        hello,
        name="Greeter",
        description="Greets people.",
        version="2.1.0",
        skills=[SKILL],
        input_modes=["text/plain", "application/json"],
        output_modes=["text/markdown"],
        provider=AgentProvider("https://example.org", "Example"),
        documentation_url="https://example.org/docs",
        icon_url="https://example.org/icon.png",
        streaming=False,
    )
    card = await (await serve(made)).card()
    del card["supportedInterfaces"]
    assert card == {
        "name": "Greeter",
        "description": "Greets people.",
        "version": "2.1.0",
        "provider": {"url": "https://example.org", "organization": "Example"},
        "documentationUrl": "https://example.org/docs",
        "iconUrl": "https://example.org/icon.png",
        "capabilities": {"streaming": False, "pushNotifications": False, "extendedAgentCard": False},
        "defaultInputModes": ["text/plain", "application/json"],
        "defaultOutputModes": ["text/markdown"],
        "skills": [
            {
                "id": "greet",
                "name": "Greeting",
                "description": "Says hello.",
                "tags": ["greeting", "social"],
                "examples": ["Greet Ada."],
                "inputModes": ["text/plain"],
            }
        ],
    }


@pytest.mark.requirement("card.required-fields")
@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"version": ""}, "version"),
        ({"input_modes": ()}, "defaultInputModes"),
        ({"output_modes": ()}, "defaultOutputModes"),
        ({"skills": [AgentSkill("", "n", "d", ("t",))]}, "skills[0].id"),
        ({"skills": [AgentSkill("i", "n", "d", ())]}, "skills[0].tags"),
        ({"skills": [AgentSkill("i", "n", "", ("t",))]}, "skills[0].description"),
        ({"skills": [SKILL, SKILL]}, "skills"),
        ({"provider": AgentProvider("", "Example")}, "provider.url"),
        ({"provider": AgentProvider("https://example.org", "")}, "provider.organization"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_agent_whose_card_would_lack_something_cannot_be_made(options: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError) as caught:
        make_agent(hello, **options)
    assert field in str(caught.value)


CARD: Json = {
    "name": "n",
    "description": "d",
    "supportedInterfaces": [{"url": "https://a.example", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
    "provider": {"url": "https://p.example", "organization": "o"},
    "version": "1",
    "capabilities": {},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "i", "name": "n", "description": "d", "tags": ["t"]}],
    "signatures": [{"protected": "p", "signature": "s"}],
}
REQUIRED = [
    "name",
    "description",
    "supportedInterfaces",
    "version",
    "capabilities",
    "defaultInputModes",
    "defaultOutputModes",
    "skills",
    "provider.url",
    "provider.organization",
    "skills[0].id",
    "skills[0].name",
    "skills[0].description",
    "skills[0].tags",
    "supportedInterfaces[0].url",
    "supportedInterfaces[0].protocolBinding",
    "supportedInterfaces[0].protocolVersion",
    "signatures[0].protected",
    "signatures[0].signature",
]


@pytest.mark.requirement("card.required-fields")
@pytest.mark.parametrize("path", REQUIRED)
def test_card_that_lacks_a_required_field_is_no_card(path: str) -> None:
    lacking: Json = json.loads(json.dumps(CARD))
    *way, last = path.replace("[0]", ".0").split(".")
    owner: Any = lacking
    for step in way:
        owner = owner[int(step)] if step.isdigit() else owner[step]
    del owner[last]
    with pytest.raises(InvalidParams) as caught:
        decode(json.dumps(lacking).encode(), AgentCard)
    assert [violation.field for violation in caught.value.violations] == [path]
    assert encode(decode(json.dumps(CARD).encode(), AgentCard)) is not None


def test_card_comes_out_as_it_went_in() -> None:
    signed = decode(json.dumps(CARD).encode(), AgentCard)
    assert signed.signatures == (AgentCardSignature("p", "s"),)
    assert json.loads(encode(signed)) == CARD
    assert faults(CARD, "AgentCard") == []


# --- interfaces -------------------------------------------------------------------------------------------------------

http = over("jsonrpc", "rest")
"""Interfaces are where HTTP serves the agent."""


@http
@pytest.mark.requirement("card.interface-url-absolute", "card.binding-names")
async def test_interfaces_are_named_and_have_absolute_urls_where_the_agent_is(serve: Serve) -> None:
    served = await serve(hello)
    url = f"http://127.0.0.1:{served.port}{served.root}"
    assert (await served.card())["supportedInterfaces"] == [
        {"url": at, "protocolBinding": binding, "protocolVersion": version}
        for version in ("1.0", "0.3")
        for at, binding in ((f"{url}/", "JSONRPC"), (url, "HTTP+JSON"))
    ]


@http
@pytest.mark.requirement("card.interface-url-absolute")
@pytest.mark.parametrize("url", ["https://agents.example/greeter", "https://agents.example/greeter/"])
async def test_interfaces_of_an_agent_published_under_https_say_https(serve: Serve, url: str) -> None:
    served = await serve(hello, public_url=url)
    urls = {interface["url"].rstrip("/") for interface in (await served.card())["supportedInterfaces"]}
    assert urls == {"https://agents.example/greeter"}


@http
@pytest.mark.requirement("card.interface-url-absolute")
async def test_agent_cannot_be_published_under_a_url_that_is_not_absolute(serve: Serve) -> None:
    with pytest.raises(ValueError, match="public_url"):
        await serve(hello, public_url="/greeter")


# --- extensions -------------------------------------------------------------------------------------------------------


@http
@pytest.mark.requirement("extension.declared-in-card")
async def test_extensions_of_an_agent_are_in_its_card_with_whether_they_are_required(serve: Serve) -> None:
    extensions = [
        AgentExtension("https://extensions.example/a/v1", "The first.", required=True, params={"k": [1, None]}),
        AgentExtension("https://extensions.example/b/v2"),
    ]
    card = await (await serve(make_agent(hello, extensions=extensions))).card()
    first, second = card["capabilities"]["extensions"]
    assert first == {
        "uri": "https://extensions.example/a/v1",
        "description": "The first.",
        "required": True,
        "params": {"k": [1, None]},
    }
    assert second["uri"] == "https://extensions.example/b/v2"
    assert not second.get("required", False)


# --- security schemes -------------------------------------------------------------------------------------------------

URL = "https://auth.example"
FLOWS = {
    "authorizationCode": OAuthFlows(
        authorization_code=AuthorizationCodeOAuthFlow(f"{URL}/a", f"{URL}/t", {"s": "S."}, pkce_required=True)
    ),
    "clientCredentials": OAuthFlows(client_credentials=ClientCredentialsOAuthFlow(f"{URL}/t", {})),
    "implicit": OAuthFlows(implicit=ImplicitOAuthFlow(f"{URL}/a")),
    "password": OAuthFlows(password=PasswordOAuthFlow(f"{URL}/t")),
    "deviceCode": OAuthFlows(device_code=DeviceCodeOAuthFlow(f"{URL}/d", f"{URL}/t", {"s": "S."})),
}
SCHEMES = {
    "apiKeySecurityScheme": SecurityScheme(api_key_security_scheme=APIKeySecurityScheme("header", "X-Key")),
    "httpAuthSecurityScheme": SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme("Bearer")),
    "oauth2SecurityScheme": SecurityScheme(oauth2_security_scheme=OAuth2SecurityScheme(FLOWS["deviceCode"])),
    "openIdConnectSecurityScheme": SecurityScheme(
        open_id_connect_security_scheme=OpenIdConnectSecurityScheme(f"{URL}/.well-known/openid-configuration")
    ),
    "mtlsSecurityScheme": SecurityScheme(mtls_security_scheme=MutualTlsSecurityScheme()),
}


@pytest.mark.requirement("security.required-fields", "security.exactly-one")
@pytest.mark.parametrize("name", SCHEMES)
def test_security_scheme_has_its_kind_and_its_required_fields_on_the_wire(name: str) -> None:
    written = json.loads(encode(SCHEMES[name]))
    assert list(written) == [name]
    assert faults(written, "SecurityScheme") == []
    assert decode(encode(SCHEMES[name]), SecurityScheme) == SCHEMES[name]


@pytest.mark.requirement("security.required-fields", "security.exactly-one")
@pytest.mark.parametrize("name", FLOWS)
def test_oauth_flow_has_its_kind_and_its_required_fields_on_the_wire(name: str) -> None:
    written = json.loads(encode(FLOWS[name]))
    assert list(written) == [name]
    assert faults(written, "OAuthFlows") == []
    assert decode(encode(FLOWS[name]), OAuthFlows) == FLOWS[name]


@pytest.mark.requirement("security.required-fields")
@pytest.mark.parametrize(
    ("type_", "kind", "field"),
    [
        (SecurityScheme, "apiKeySecurityScheme", "location"),
        (SecurityScheme, "apiKeySecurityScheme", "name"),
        (SecurityScheme, "httpAuthSecurityScheme", "scheme"),
        (SecurityScheme, "oauth2SecurityScheme", "flows"),
        (SecurityScheme, "openIdConnectSecurityScheme", "openIdConnectUrl"),
        (OAuthFlows, "authorizationCode", "authorizationUrl"),
        (OAuthFlows, "authorizationCode", "tokenUrl"),
        (OAuthFlows, "authorizationCode", "scopes"),
        (OAuthFlows, "clientCredentials", "tokenUrl"),
        (OAuthFlows, "clientCredentials", "scopes"),
        (OAuthFlows, "deviceCode", "deviceAuthorizationUrl"),
        (OAuthFlows, "deviceCode", "tokenUrl"),
        (OAuthFlows, "deviceCode", "scopes"),
    ],
)
def test_security_scheme_that_lacks_a_required_field_is_none(type_: type[Any], kind: str, field: str) -> None:
    value = (SCHEMES if type_ is SecurityScheme else FLOWS)[kind]
    lacking = json.loads(encode(value))
    del lacking[kind][field]
    with pytest.raises(InvalidParams) as caught:
        decode(json.dumps(lacking).encode(), type_)
    assert [violation.field for violation in caught.value.violations] == [f"{kind}.{field}"]


@pytest.mark.requirement("security.exactly-one")
@pytest.mark.parametrize("type_", [SecurityScheme, OAuthFlows])
def test_security_scheme_of_no_kind_or_of_two_is_none(type_: type[Any]) -> None:
    with pytest.raises(InvalidParams):
        decode(b"{}", type_)
    values = SCHEMES if type_ is SecurityScheme else FLOWS
    first, second = [json.loads(encode(value)) for value in list(values.values())[:2]]
    with pytest.raises(InvalidParams):
        decode(json.dumps({**first, **second}).encode(), type_)
    with pytest.raises(ValueError):
        type_()
