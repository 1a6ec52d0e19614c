"""Cards as bytes: each version's form, read by the official readers of that version; each quirk, shown by example."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from a2a.client import ClientConfig, ClientFactory
from a2a.client.card_resolver import parse_agent_card
from a2a.compat.v0_3 import types as v03
from google.protobuf.json_format import ParseDict
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.wire.examples import CARD as SAMPLE
from tests.wire.schema import Field
from tests.wire.strategies import FIXED, free_json, rewritten, wire_json
from tieline.card import (
    AgentCapabilities,
    AgentCard,
    AgentCardSignature,
    AgentExtension,
    AgentInterface,
    AgentProvider,
    AgentSkill,
    APIKeySecurityScheme,
    AuthorizationCodeOAuthFlow,
    DeviceCodeOAuthFlow,
    HTTPAuthSecurityScheme,
    MutualTlsSecurityScheme,
    OAuth2SecurityScheme,
    OAuthFlows,
    OpenIdConnectSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
    check_card,
)
from tieline.errors import InvalidParams
from tieline.types import decode, encode
from tieline.wire.cards import JOINT, OLDEST, QUIRKS, form_of, lacking, read, write

Json = dict[str, Any]

DOCS = Path(__file__).parents[2] / "docs" / "cards.md"
BASE = "https://agents.example/a"
INTERFACES = (
    AgentInterface(f"{BASE}/", "JSONRPC", "1.0"),
    AgentInterface(BASE, "HTTP+JSON", "1.0"),
    AgentInterface("agents.example:50051", "GRPC", "1.0"),
    AgentInterface(f"{BASE}/", "JSONRPC", "0.3"),
    AgentInterface(BASE, "HTTP+JSON", "0.3"),
    AgentInterface("agents.example:50051", "GRPC", "0.3"),
)


def oauth(**flow: Any) -> SecurityScheme:
    return SecurityScheme(oauth2_security_scheme=OAuth2SecurityScheme(OAuthFlows(**flow), "How.", f"{BASE}/meta"))


SCHEMES = {
    "my_key": SecurityScheme(api_key_security_scheme=APIKeySecurityScheme("header", "X-Key", "A key.")),
    "token": SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme("Bearer", bearer_format="JWT")),
    "web": oauth(
        authorization_code=AuthorizationCodeOAuthFlow(f"{BASE}/au", f"{BASE}/to", {"read_all": "Reads."}, None, True)
    ),
    "device": oauth(device_code=DeviceCodeOAuthFlow(f"{BASE}/de", f"{BASE}/to", {"read_all": "Reads."})),
    "id": SecurityScheme(open_id_connect_security_scheme=OpenIdConnectSecurityScheme(f"{BASE}/oid")),
    "tls": SecurityScheme(mtls_security_scheme=MutualTlsSecurityScheme("A certificate.")),
}
CARD = AgentCard(
    name="Both",
    description="Speaks old and new.",
    supported_interfaces=INTERFACES,
    version="2.1.0",
    capabilities=AgentCapabilities(
        streaming=True,
        push_notifications=False,
        extensions=(AgentExtension("https://x.example/v1", "X", True, {"a_b": [None, 2**70]}),),
        extended_agent_card=True,
    ),
    default_input_modes=("text/plain", "image/png"),
    default_output_modes=("text/plain",),
    skills=(
        AgentSkill("s", "S", "Does s.", ("t",), ("Do s.",), ("text/csv",)),
        AgentSkill("r", "R", "Does r.", ("t",), security_requirements=(SecurityRequirement({"my_key": StringList()}),)),
    ),
    provider=AgentProvider("https://p.example", "P"),
    documentation_url="https://d.example",
    icon_url="https://i.example/i.png",
    security_schemes=SCHEMES,
    security_requirements=(
        SecurityRequirement({"my_key": StringList(), "web": StringList(("read_all",))}),
        SecurityRequirement({"token": StringList()}),
    ),
    signatures=(AgentCardSignature("cHJvdGVjdGVk", "c2ln", {"k_y": 1}),),
)
PLAIN = msgspec.structs.replace(
    CARD, security_schemes={}, security_requirements=(), skills=CARD.skills[:1], signatures=()
)


def written(form: str, card: AgentCard = CARD) -> Json:
    value: Json = json.loads(write(card, form))
    return value


def named(card: AgentCard) -> list[tuple[str, str]]:
    return [(each.protocol_binding, each.protocol_version) for each in card.supported_interfaces]


def of_version(version: str) -> tuple[AgentInterface, ...]:
    return tuple(each for each in INTERFACES if each.protocol_version == version)


# --- one body for 0.3 and 1.0 -----------------------------------------------------------------------------------------


def test_the_joint_card_is_read_by_us_as_the_card_that_it_was_made_of() -> None:
    assert read(write(CARD)) == CARD


def test_the_joint_card_has_every_member_of_the_card_of_each_version() -> None:
    joint = written(JOINT)
    for form in ("1.0", "0.3"):
        for name, value in written(form).items():
            if name in ("capabilities", "securitySchemes", "skills"):
                continue
            assert joint[name] == value, name
    assert joint["capabilities"] == written("0.3")["capabilities"] | written("1.0")["capabilities"]
    for name, scheme in written("0.3")["securitySchemes"].items():
        assert joint["securitySchemes"][name] == scheme | written("1.0")["securitySchemes"][name]


@pytest.mark.parametrize("form", [JOINT, "0.3", "0.2", OLDEST])
def test_the_reader_of_0_3_takes_the_card_and_finds_the_interfaces_of_0_3(form: str) -> None:
    card: Any = v03.AgentCard.model_validate_json(write(CARD, form))
    assert (card.url, card.preferred_transport) == (f"{BASE}/", "JSONRPC")
    assert [(each.transport, each.url) for each in card.additional_interfaces or ()] == [
        (each.protocol_binding, each.url) for each in of_version("0.3")
    ]
    assert card.supports_authenticated_extended_card is True
    assert card.capabilities.streaming is True
    assert card.capabilities.state_transition_history is False
    assert [skill.id for skill in card.skills] == ["s", "r"]
    assert card.security == [{"my_key": [], "web": ["read_all"]}, {"token": []}]


@pytest.mark.parametrize("form", [JOINT, "0.3"])
def test_the_reader_of_0_3_knows_every_scheme_by_its_type(form: str) -> None:
    card: Any = v03.AgentCard.model_validate_json(write(CARD, form))
    schemes = {name: scheme.root for name, scheme in (card.security_schemes or {}).items()}
    assert {name: type(scheme).__name__ for name, scheme in schemes.items()} == {
        "my_key": "APIKeySecurityScheme",
        "token": "HTTPAuthSecurityScheme",
        "web": "OAuth2SecurityScheme",
        "device": "HTTPAuthSecurityScheme",
        "id": "OpenIdConnectSecurityScheme",
        "tls": "MutualTLSSecurityScheme",
    }
    assert (schemes["my_key"].in_.value, schemes["my_key"].name) == ("header", "X-Key")
    assert (schemes["token"].scheme, schemes["token"].bearer_format) == ("Bearer", "JWT")
    assert schemes["web"].flows.authorization_code.scopes == {"read_all": "Reads."}
    assert schemes["device"].scheme == "Bearer"
    assert schemes["id"].open_id_connect_url == f"{BASE}/oid"
    assert card.skills[1].security == [{"my_key": []}]


@pytest.mark.parametrize("form", [JOINT, "1.0"])
def test_the_reader_of_1_0_takes_the_card_and_finds_every_interface(form: str) -> None:
    card = parse_agent_card(written(form))
    assert [(i.url, i.protocol_binding, i.protocol_version) for i in card.supported_interfaces] == [
        (i.url, i.protocol_binding, i.protocol_version) for i in INTERFACES
    ]
    assert card.capabilities.extended_agent_card is True
    assert card.security_schemes["my_key"].api_key_security_scheme.location == "header"
    assert card.security_schemes["token"].http_auth_security_scheme.bearer_format == "JWT"
    assert card.security_schemes["web"].oauth2_security_scheme.flows.authorization_code.token_url == f"{BASE}/to"
    assert card.security_schemes["tls"].WhichOneof("scheme") == "mtls_security_scheme"
    assert list(card.security_requirements[0].schemes["web"].list) == ["read_all"]
    assert "my_key" in card.skills[1].security_requirements[0].schemes


def test_the_reader_of_1_0_that_knows_nothing_older_takes_the_joint_card() -> None:
    type_ = type(parse_agent_card(written("1.0", PLAIN)))
    assert ParseDict(written(JOINT), type_(), ignore_unknown_fields=True) == ParseDict(written("1.0"), type_())


@pytest.mark.parametrize(
    ("form", "binding", "transport", "url"),
    [
        (JOINT, "JSONRPC", "JsonRpcTransport", f"{BASE}/"),
        (JOINT, "HTTP+JSON", "RestTransport", BASE),
        ("1.0", "JSONRPC", "JsonRpcTransport", f"{BASE}/"),
        ("0.3", "JSONRPC", "CompatJsonRpcTransport", f"{BASE}/"),
        ("0.3", "HTTP+JSON", "CompatRestTransport", BASE),
        (OLDEST, "JSONRPC", "CompatJsonRpcTransport", f"{BASE}/"),
        (OLDEST, "HTTP+JSON", "CompatRestTransport", BASE),
    ],
)
def test_the_official_client_chooses_the_latest_version_that_the_card_names(
    form: str, binding: str, transport: str, url: str
) -> None:
    factory = ClientFactory(ClientConfig(supported_protocol_bindings=[binding]))
    client: Any = factory.create(parse_agent_card(written(form)))
    chosen = client._transport
    assert (type(chosen).__name__, chosen.url) == (transport, url)


# --- a card of one version --------------------------------------------------------------------------------------------


def test_the_card_of_1_0_has_nothing_of_0_3() -> None:
    assert write(CARD, "1.0") == encode(CARD)


def test_the_card_of_0_3_has_nothing_of_1_0() -> None:
    card = written("0.3")
    taken = v03.AgentCard.model_validate(card).model_dump(mode="json", by_alias=True, exclude_none=True)
    taken["capabilities"]["extensions"][0]["params"] = card["capabilities"]["extensions"][0]["params"]
    assert taken == card, "its reader knows every member"
    assert read(json.dumps(card).encode()).supported_interfaces == of_version("0.3")


def test_only_what_0_3_cannot_say_is_lost_on_the_way_there_and_back() -> None:
    back = read(write(CARD, "0.3"))
    web = oauth(authorization_code=AuthorizationCodeOAuthFlow(f"{BASE}/au", f"{BASE}/to", {"read_all": "Reads."}))
    device = SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme("Bearer", "How."))
    capabilities = msgspec.structs.replace(CARD.capabilities, extended_agent_card=True)
    assert back == msgspec.structs.replace(
        CARD,
        supported_interfaces=of_version("0.3"),
        security_schemes={**SCHEMES, "web": web, "device": device},
        capabilities=capabilities,
    )


def test_the_card_for_the_oldest_readers_has_one_url_for_json_rpc_and_words_for_authentication() -> None:
    card = written(OLDEST)
    assert card["url"] == f"{BASE}/"
    assert card["authentication"] == {"schemes": ["ApiKey", "Bearer"]}
    assert card["capabilities"]["stateTransitionHistory"] is False
    assert card["skills"][0] == {
        "id": "s", "name": "S", "description": "Does s.", "tags": ["t"],
        "examples": ["Do s."], "inputModes": ["text/csv"],
    }  # fmt: skip
    assert "tls" not in card["securitySchemes"], "readers of 0.2.6 take no card with a scheme that they do not know"
    assert "signatures" not in card


def test_the_card_of_0_1_has_the_members_of_0_1_alone() -> None:
    card = written("0.1")
    assert sorted(card) == [
        "authentication", "capabilities", "defaultInputModes", "defaultOutputModes", "description",
        "documentationUrl", "name", "provider", "skills", "url", "version",
    ]  # fmt: skip
    assert sorted(card["capabilities"]) == ["pushNotifications", "stateTransitionHistory", "streaming"]
    assert named(read(json.dumps(card).encode())) == [("JSONRPC", "0.1"), ("JSONRPC", "0.3")]


def test_an_open_agent_says_nothing_of_authentication() -> None:
    assert "authentication" not in written("0.1", PLAIN)
    assert "authentication" not in written(OLDEST, PLAIN)
    assert "securitySchemes" not in written(OLDEST, PLAIN)


def test_the_card_of_0_2_names_its_version_and_agent_json_one_that_later_readers_take() -> None:
    assert written("0.2")["protocolVersion"] == "0.2.6"
    assert written(OLDEST)["protocolVersion"] == "0.3.0"
    assert "authentication" not in written("0.2")


def test_old_readers_of_an_agent_that_prefers_rest_are_shown_its_json_rpc() -> None:
    turned = msgspec.structs.replace(CARD, supported_interfaces=(INTERFACES[4], INTERFACES[3]))
    assert written("0.3", turned)["preferredTransport"] == "HTTP+JSON"
    assert (written(OLDEST, turned)["preferredTransport"], written(OLDEST, turned)["url"]) == ("JSONRPC", f"{BASE}/")


def test_an_agent_of_0_1_alone_has_the_card_of_0_1_for_all_old_readers() -> None:
    oldest = msgspec.structs.replace(PLAIN, supported_interfaces=(AgentInterface(f"{BASE}/", "JSONRPC", "0.1"),))
    for form in (OLDEST, "0.2", "0.1"):
        assert "protocolVersion" not in written(form, oldest)
        assert written(form, oldest)["url"] == f"{BASE}/"


def test_without_interfaces_of_0_3_the_joint_card_is_that_of_1_0() -> None:
    card = msgspec.structs.replace(CARD, supported_interfaces=of_version("1.0"))
    assert write(card) == write(card, "1.0") == encode(card)


def test_large_integers_and_nulls_in_parameters_stay_what_they_are_in_every_form() -> None:
    for form in (JOINT, "1.0", "0.3", "0.2", OLDEST):
        assert f'"params":{{"a_b":[null,{2**70}]}}'.encode() in write(CARD, form)


@pytest.mark.parametrize(
    ("changes", "form", "fault"),
    [
        ({"supported_interfaces": of_version("1.0")}, "0.3", "supportedInterfaces: readers of 0.3 need an interface"),
        ({"supported_interfaces": of_version("1.0")}, OLDEST, "supportedInterfaces: readers before 0.3 need a JSONRPC"),
        ({"supported_interfaces": INTERFACES[4:5]}, "0.1", "supportedInterfaces: readers before 0.3 need a JSONRPC"),
        (
            {"supported_interfaces": (AgentInterface(BASE, "JSONRPC", "0.3", "acme"),)},
            JOINT,
            "supportedInterfaces: the tenant 'acme' cannot be told",
        ),
        (
            {"capabilities": AgentCapabilities(extensions=(AgentExtension(""),))},
            "0.3",
            "capabilities.extensions[0].uri: must not be empty",
        ),
    ],
)
def test_a_card_that_a_version_cannot_have_is_not_written_and_the_reason_named(
    changes: Json, form: str, fault: str
) -> None:
    card = msgspec.structs.replace(PLAIN, **changes)
    assert lacking(card, form)[0].startswith(fault)
    with pytest.raises(ValueError, match=r"supportedInterfaces|uri") as caught:
        write(card, form)
    assert fault in str(caught.value)
    assert lacking(card, "1.0") == []


@pytest.mark.parametrize(
    ("asked", "form"),
    [
        ("1.0", "1.0"), ("1.0.3", "1.0"), ("0.3", "0.3"), ("0.3.0", "0.3"), ("0.2.6", "0.2"), ("0.2", "0.2"),
        ("0.1.0", "0.1"), ("", None), ("1.1", None), ("2.0", None), ("v1.0", None), ("1", None), ("1.0\n", None),
    ],
)  # fmt: skip
def test_a_reader_that_names_a_version_has_its_form(asked: str, form: str | None) -> None:
    assert form_of(asked) == form


# --- quirks -----------------------------------------------------------------------------------------------------------

OLD: Json = {
    "protocolVersion": "0.3.0",
    "name": "Old",
    "description": "d",
    "url": f"{BASE}/",
    "version": "1",
    "capabilities": {"streaming": True},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "s", "name": "S", "description": "d", "tags": ["t"]}],
}
NEW: Json = {
    **{name: value for name, value in OLD.items() if name not in ("url", "protocolVersion")},
    "supportedInterfaces": [{"url": f"{BASE}/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
}
RPC = [(f"{BASE}/", "JSONRPC", "1.0")]


def without(card: Json, *names: str) -> Json:
    return {name: value for name, value in card.items() if name not in names}


def interfaces_of(card: AgentCard) -> list[tuple[str, str, str]]:
    return [(each.url, each.protocol_binding, each.protocol_version) for each in card.supported_interfaces]


def scheme(**members: Any) -> Json:
    return NEW | {"securitySchemes": {"x": members}}


def listed(**members: Any) -> Json:
    return NEW | {"supportedInterfaces": [{"url": BASE, "protocolBinding": "JSONRPC", **members}]}


BEARER = SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme("Bearer"))
IMPLICIT = {"implicit": {"authorizationUrl": "u", "scopes": {}}}
CODE = {"authorizationUrl": "https://a.example", "tokenUrl": "https://t.example"}

SHOWN: dict[str, list[tuple[Json, str, Any]]] = {
    # row: cards, what of the value is looked at, and what it is
    "snake_case names": [
        (
            {
                "protocol_version": "0.3.0", "name": "Old", "url": BASE, "preferred_transport": "JSONRPC",
                "additional_interfaces": [{"url": f"{BASE}/r", "transport": "HTTP+JSON"}],
            },
            "interfaces", [(BASE, "JSONRPC", "0.3"), (f"{BASE}/r", "HTTP+JSON", "0.3")],
        ),
        (NEW | {"capabilities": {"push_notifications": True}}, "capabilities.push_notifications", True),
        (
            NEW | {"security_schemes": {"my_x": {"http_auth_security_scheme": {"scheme": "Bearer"}}}},
            "security_schemes", {"my_x": BEARER},
        ),
        (
            NEW | {"capabilities": {"extensions": [{"uri": "u", "params": {"a_b": {"c_d": None}}}]}},
            "capabilities.extensions", (AgentExtension("u", params={"a_b": {"c_d": None}}),),
        ),
        (OLD | {"security": [{"my_x": ["read_all"]}]}, "security_requirements",
         (SecurityRequirement({"my_x": StringList(("read_all",))}),)),
        (OLD | {"security": [{"schemes": {"my_x": {"list": []}}}]}, "security_requirements",
         (SecurityRequirement({"my_x": StringList()}),)),
    ],
    "null, and empty strings where nothing is to be told": [
        (NEW | {"provider": None, "signatures": None, "url": None}, "provider", None),
        (NEW | {"documentationUrl": "", "iconUrl": ""}, "documentation_url", None),
        (NEW | {"url": "", "preferredTransport": "", "protocolVersion": ""}, "interfaces", RPC),
        (listed(protocolVersion="1.0", tenant=""), "supported_interfaces",
         (AgentInterface(BASE, "JSONRPC", "1.0"),)),
    ],
    "an interface has transport for protocolBinding": [
        (NEW | {"supportedInterfaces": [{"url": BASE, "transport": "GRPC"}]}, "interfaces", [(BASE, "GRPC", "1.0")]),
    ],
    "no protocolVersion in a card of one URL": [
        (without(OLD, "protocolVersion"), "versions", ["0.3", "0.1"]),
        (without(OLD, "protocolVersion") | {"authentication": {"schemes": ["Bearer"]}}, "versions", ["0.1", "0.3"]),
        (without(OLD, "protocolVersion") | {"preferredTransport": "JSONRPC"}, "versions", ["0.3"]),
        (without(OLD, "protocolVersion") | {"securitySchemes": {}}, "versions", ["0.3"]),
        (without(OLD, "protocolVersion") | {"capabilities": {"extensions": []}}, "versions", ["0.3"]),
        (without(OLD, "protocolVersion") | {"authentication": {"schemes": []}, "security": []}, "versions",
         ["0.3", "0.1"]),
        (without(OLD, "protocolVersion") | {"supportedInterfaces": []}, "versions", ["0.3", "0.1"]),
        (without(OLD, "protocolVersion") | {"preferredTransport": "GRPC"}, "versions", ["0.3"]),
    ],
    "url, preferredTransport and additionalInterfaces": [
        (OLD, "interfaces", [(f"{BASE}/", "JSONRPC", "0.3")]),
        (OLD | {"preferredTransport": "HTTP+JSON"}, "interfaces", [(f"{BASE}/", "HTTP+JSON", "0.3")]),
        (OLD | {"protocolVersion": "1.0"}, "interfaces", RPC),
        (
            OLD | {"preferredTransport": "GRPC", "additionalInterfaces": [{"url": BASE, "transport": "JSONRPC"}]},
            "interfaces", [(f"{BASE}/", "GRPC", "0.3"), (BASE, "JSONRPC", "0.3")],
        ),
        (NEW | {"url": BASE, "protocolVersion": "0.3.0"}, "interfaces", [*RPC, (BASE, "JSONRPC", "0.3")]),
        (NEW | {"url": f"{BASE}/old", "additionalInterfaces": [{"url": BASE, "transport": "GRPC"}]}, "interfaces",
         RPC),
        (listed(), "interfaces", [(BASE, "JSONRPC", "1.0")]),
    ],
    "bindings in another spelling": [
        (OLD | {"preferredTransport": spelled}, "bindings", [binding])
        for spelled, binding in [
            ("jsonrpc", "JSONRPC"), ("JSON-RPC", "JSONRPC"), ("json_rpc", "JSONRPC"), ("JSON-RPC 2.0", "JSONRPC"),
            ("http_json", "HTTP+JSON"), ("Http+Json", "HTTP+JSON"), ("HTTP/JSON", "HTTP+JSON"), ("REST", "HTTP+JSON"),
            ("http", "HTTP+JSON"), ("grpc", "GRPC"), ("gRPC", "GRPC"), ("https://b.example/x", "https://b.example/x"),
        ]
    ],
    "versions with a patch number, a v, or before 0.3": [
        *(
            (listed(protocolVersion=told), "versions", versions)
            for told, versions in [
                ("1.0.0", ["1.0"]), ("v1.0", ["1.0"]), ("1", ["1.0"]), ("1.0-rc", ["1.0"]), ("0.3.0", ["0.3"]),
                ("0.3", ["0.3"]), ("V0.3.0", ["0.3"]), ("0.2.6", ["0.3"]), ("0.2.5", ["0.3"]), ("0.2.1", ["0.3"]),
                ("0.2.0", ["0.3", "0.1"]), ("0.2", ["0.3", "0.1"]), ("0.1", ["0.1"]), ("0.1.0", ["0.1"]),
                ("1.1", ["1.1"]), ("2.0.1", ["2.0"]), ("latest", ["latest"]), ("1.0.x", ["1.0.x"]),
            ]
        ),
        (OLD | {"protocolVersion": "0.2.0", "preferredTransport": "REST"}, "versions", ["0.3"]),
    ],
    "one interface twice": [
        (
            OLD | {"additionalInterfaces": [
                {"url": BASE, "transport": "JSONRPC"}, {"url": BASE, "transport": "HTTP+JSON"}]},
            "bindings", ["JSONRPC", "HTTP+JSON"],
        ),
        (NEW | {"url": BASE, "protocolVersion": "1.0"}, "interfaces", RPC),
        (
            NEW | {"supportedInterfaces": [
                {"url": BASE, "protocolBinding": "JSONRPC", "protocolVersion": "1.0", "tenant": tenant}
                for tenant in ("a", "b", "a")]},
            "supported_interfaces",
            (AgentInterface(BASE, "JSONRPC", "1.0", "a"), AgentInterface(BASE, "JSONRPC", "1.0", "b")),
        ),
    ],
    "security schemes by type": [
        (scheme(type="http", scheme="Bearer"), "security_schemes", {"x": BEARER}),
        (scheme(type="apiKey", **{"in": "Header"}, name="K"), "security_schemes",
         {"x": SecurityScheme(api_key_security_scheme=APIKeySecurityScheme("header", "K"))}),
        (scheme(type="apiKey", in_="cookie", name="K"), "security_schemes",
         {"x": SecurityScheme(api_key_security_scheme=APIKeySecurityScheme("cookie", "K"))}),
        (scheme(type="apikey", location="query", name="K"), "security_schemes",
         {"x": SecurityScheme(api_key_security_scheme=APIKeySecurityScheme("query", "K"))}),
        (scheme(type="openIdConnect", openIdConnectUrl="u"), "security_schemes",
         {"x": SecurityScheme(open_id_connect_security_scheme=OpenIdConnectSecurityScheme("u"))}),
        (scheme(type="mutualTLS"), "security_schemes",
         {"x": SecurityScheme(mtls_security_scheme=MutualTlsSecurityScheme())}),
        (scheme(type="apiKey", httpAuthSecurityScheme={"scheme": "Bearer"}), "security_schemes", {"x": BEARER}),
    ],
    "several flows in one OAuth scheme, or no scopes": [
        (scheme(type="oauth2", flows={**IMPLICIT, "authorizationCode": CODE}), "security_schemes",
         {"x": SecurityScheme(oauth2_security_scheme=OAuth2SecurityScheme(OAuthFlows(
             authorization_code=AuthorizationCodeOAuthFlow("https://a.example", "https://t.example", {}))))}),
        (scheme(oauth2SecurityScheme={"flows": {"implicit": None, "authorizationCode": CODE}}), "security_schemes",
         {"x": SecurityScheme(oauth2_security_scheme=OAuth2SecurityScheme(OAuthFlows(
             authorization_code=AuthorizationCodeOAuthFlow("https://a.example", "https://t.example", {}))))}),
    ],
    "security schemes that cannot be read": [
        (scheme(type="kerberos"), "security_schemes", {}),
        (scheme(type="oauth2", flows={}), "security_schemes", {}),
        (scheme(httpAuthSecurityScheme={}), "security_schemes", {}),
        (NEW | {"securitySchemes": {"x": "Bearer", "y": {"type": "http", "scheme": "Bearer"}}}, "security_schemes",
         {"y": BEARER}),
    ],
    "security as plain objects and lists": [
        (OLD | {"security": [{"x": ["a"], "y": []}]}, "security_requirements",
         (SecurityRequirement({"x": StringList(("a",)), "y": StringList()}),)),
        (NEW | {"securityRequirements": [{"schemes": {"x": ["a"]}}]}, "security_requirements",
         (SecurityRequirement({"x": StringList(("a",))}),)),
        (NEW | {"securityRequirements": [{"schemes": {"x": {}}}], "security": [{"x": ["a"]}]},
         "security_requirements", (SecurityRequirement({"x": StringList()}),)),
        (OLD | {"skills": [{"id": "s", "name": "S", "security": [{"x": []}]}]}, "skills.0.security_requirements",
         (SecurityRequirement({"x": StringList()}),)),
    ],
    "authentication of 0.1": [
        (OLD | {"authentication": {"schemes": ["Bearer"]}}, "security_schemes", {"Bearer": BEARER}),
        (OLD | {"authentication": {"schemes": ["oauth2"]}}, "security_schemes", {"oauth2": BEARER}),
        (OLD | {"authentication": {"schemes": ["Bearer", "Basic"]}}, "security_requirements",
         (SecurityRequirement({"Bearer": StringList()}), SecurityRequirement({"Basic": StringList()}))),
        (OLD | {"authentication": {"schemes": ["public"], "credentials": "c"}}, "security_requirements", ()),
        (scheme(type="http", scheme="Bearer") | {"authentication": {"schemes": ["Basic"]}}, "security_schemes",
         {"x": BEARER}),
    ],
    "no capabilities": [(without(OLD, "capabilities"), "capabilities", AgentCapabilities())],
    "whether there is an extended card, at the top": [
        (OLD | {"supportsAuthenticatedExtendedCard": True}, "capabilities.extended_agent_card", True),
        (NEW | {"supportsExtendedAgentCard": True}, "capabilities.extended_agent_card", True),
        (OLD | {"supportsAuthenticatedExtendedCard": True, "capabilities": {"extendedAgentCard": False}},
         "capabilities.extended_agent_card", False),
    ],
    "no modes, or text for text/plain": [
        (without(OLD, "defaultInputModes", "defaultOutputModes"), "default_input_modes", ("text/plain",)),
        (OLD | {"defaultOutputModes": ["text", "image/png"]}, "default_output_modes", ("text/plain", "image/png")),
        (OLD | {"skills": [{"id": "s", "name": "S", "inputModes": ["text"]}]}, "skills.0.input_modes",
         ("text/plain",)),
    ],
    "no description or version": [
        (without(OLD, "description", "version"), "description", ""),
        (without(NEW, "description", "version"), "version", ""),
    ],
    "no skills, or skills without id, name, description or tags": [
        (without(OLD, "skills"), "skills", ()),
        (OLD | {"skills": [{"id": "s", "name": "S"}]}, "skills", (AgentSkill("s", "S", "", ()),)),
        (OLD | {"skills": [{"name": "S"}, {"id": "t"}, {}]}, "skills",
         (AgentSkill("S", "S", "", ()), AgentSkill("t", "t", "", ()), AgentSkill("skill-3", "skill-3", "", ()))),
    ],
    "a provider without url or organization": [
        (OLD | {"provider": {"organization": "P"}}, "provider", AgentProvider("", "P")),
        (OLD | {"provider": {"url": "https://p.example"}}, "provider", AgentProvider("https://p.example", "")),
        (OLD | {"provider": {"organization": "", "url": ""}}, "provider", None),
    ],
}  # fmt: skip


def looked_at(card: AgentCard, path: str) -> Any:
    if path == "interfaces":
        return interfaces_of(card)
    if path == "versions":
        return [each.protocol_version for each in card.supported_interfaces]
    if path == "bindings":
        return [each.protocol_binding for each in card.supported_interfaces]
    value: Any = card
    for step in path.split("."):
        value = value[int(step)] if step.isdigit() else getattr(value, step)
    return value


def test_every_quirk_has_an_example_and_a_line_in_the_documentation_and_every_example_a_quirk() -> None:
    assert list(SHOWN) == [quirk.name for quirk in QUIRKS]
    text = DOCS.read_text()
    assert [quirk.name for quirk in QUIRKS if f"| {quirk.name} |" not in text] == []


@pytest.mark.parametrize(("name", "index"), [(name, index) for name in SHOWN for index in range(len(SHOWN[name]))])
def test_a_quirk_is_read_as_what_it_means(name: str, index: int) -> None:
    given_card, path, expected = SHOWN[name][index]
    assert looked_at(read(json.dumps(given_card).encode()), path) == expected


@pytest.mark.parametrize("name", SHOWN)
def test_each_quirk_is_needed_for_one_of_its_examples(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its row, an example is refused or read as something else."""
    monkeypatch.setattr("tieline.wire.cards.QUIRKS", tuple(quirk for quirk in QUIRKS if quirk.name != name))

    def outcome(card: Json, path: str) -> Any:
        try:
            return looked_at(read(json.dumps(card).encode()), path)
        except (InvalidParams, KeyError):
            return InvalidParams

    assert any(outcome(card, path) != expected for card, path, expected in SHOWN[name])


def test_a_byte_order_mark_before_a_card_is_passed_over() -> None:
    assert read(b"\xef\xbb\xbf" + json.dumps(NEW).encode()) == read(json.dumps(NEW).encode())


# --- what is read as it stands, and what is no card -------------------------------------------------------------------


def test_the_sample_of_the_specification_is_read_as_it_stands() -> None:
    document = json.dumps(SAMPLE).encode()
    assert read(document) == decode(document, AgentCard)
    assert check_card(read(document)) == []


def plain(message: str, field: Field, value: Any) -> dict[str, Any]:
    """A field as a careful server writes it: interfaces that can be called, nothing that is empty."""
    if field.json == "supportedInterfaces":
        value = SAMPLE["supportedInterfaces"]
    if value == "":
        return {field.json: "x"}
    return {field.json: value}


@FIXED
@given(wire_json("AgentCard"))
def test_any_card_of_1_0_is_read_as_it_stands(wire: Json) -> None:
    document = json.dumps(rewritten("AgentCard", wire, plain)).encode()
    assert read(document) == decode(document, AgentCard)


@FIXED
@given(wire_json("AgentCard"))
def test_any_card_comes_back_from_the_joint_form_as_it_was(wire: Json) -> None:
    card = decode(json.dumps(rewritten("AgentCard", wire, plain)).encode(), AgentCard)
    card = msgspec.structs.replace(card, supported_interfaces=INTERFACES)
    assume(not lacking(card, JOINT))
    assert read(write(card)) == card


ODD = st.sampled_from([*OLD, *NEW, "security", "securitySchemes", "provider", "authentication", "additionalInterfaces"])


@FIXED
@given(st.sampled_from([OLD, NEW]), st.dictionaries(ODD, free_json, max_size=4))
def test_any_json_is_a_card_or_refused_with_a_path(card: Json, changes: Json) -> None:
    document = json.dumps(card | changes).encode()
    try:
        assert read(document).name
    except InvalidParams as error:
        refused = error
    else:
        return
    assert all(violation.field for violation in refused.violations)
    assert refused.violations


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (b"{}", "name"),
        (b"[]", "params"),
        (b"null", "params"),
        (json.dumps(without(OLD, "name")).encode(), "name"),
        (json.dumps(without(OLD, "url")).encode(), "supportedInterfaces"),
        (json.dumps(OLD | {"url": 7}).encode(), "supportedInterfaces[0].url"),
        (json.dumps(OLD | {"skills": {}}).encode(), "skills"),
        (json.dumps(OLD | {"skills": ["s"]}).encode(), "skills[0]"),
        (json.dumps(OLD | {"capabilities": []}).encode(), "capabilities"),
        (json.dumps(OLD | {"defaultInputModes": "text/plain"}).encode(), "defaultInputModes"),
        (json.dumps(NEW | {"supportedInterfaces": [{"url": BASE}]}).encode(), "supportedInterfaces[0].protocolBinding"),
        (json.dumps(NEW | {"supportedInterfaces": {}}).encode(), "supportedInterfaces"),
    ],
)
def test_what_is_no_card_is_refused_with_the_field_that_is_wrong(document: bytes, field: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        read(document)
    assert [violation.field for violation in caught.value.violations] == [field]


@pytest.mark.parametrize("document", [b"", b"<html>", b"\xff", b"{", b'{"name":'])
def test_what_is_not_json_is_told_apart(document: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        read(document)


def test_json_that_is_too_deep_is_refused() -> None:
    with pytest.raises(RecursionError):
        read(b'{"a":' * 100_000 + b"1" + b"}" * 100_000)
