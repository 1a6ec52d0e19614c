"""The agent card as a value, and what is wrong with one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from tests.wire.examples import CARD
from tests.wire.schema import MESSAGES
from tests.wire.strategies import FIXED, minimal, wire_json
from tieline import AgentExtension, AgentProvider, AgentSkill, Turn, agent
from tieline.card import AgentCard, AgentInterface, OAuthFlows, SecurityScheme, check_card
from tieline.errors import InvalidParams
from tieline.types import decode, encode


def read(wire: dict[str, Any]) -> AgentCard:
    return decode(json.dumps(wire).encode(), AgentCard)


def with_value(wire: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """`wire` with one value replaced; a path is names and numbers joined by dots."""
    copy: dict[str, Any] = json.loads(json.dumps(wire))
    *way, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    at: Any = copy
    for step in way:
        at = at[step]
    at[last] = value
    return copy


async def function(turn: Turn) -> str:
    """Does things."""
    return turn.text


HERE = [AgentInterface("https://agents.example/", "JSONRPC", "1.0")]


def test_the_sample_of_the_specification_has_no_fault() -> None:
    assert check_card(read(CARD)) == []


@pytest.mark.requirement("fields.required-arrays-filled")
@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("name", "", "name"),
        ("description", "", "description"),
        ("version", "", "version"),
        ("supportedInterfaces", [], "supportedInterfaces"),
        ("supportedInterfaces.1.url", "", "supportedInterfaces[1].url"),
        ("supportedInterfaces.0.protocolBinding", "", "supportedInterfaces[0].protocolBinding"),
        ("supportedInterfaces.2.protocolVersion", "", "supportedInterfaces[2].protocolVersion"),
        ("defaultInputModes", [], "defaultInputModes"),
        ("defaultOutputModes", [], "defaultOutputModes"),
        ("skills", [], "skills"),
        ("skills.1.id", "", "skills[1].id"),
        ("skills.0.name", "", "skills[0].name"),
        ("skills.0.description", "", "skills[0].description"),
        ("skills.1.tags", [], "skills[1].tags"),
    ],
)
def test_a_required_field_that_is_empty_is_a_fault_named_by_its_path(path: str, value: Any, named: str) -> None:
    faults = check_card(read(with_value(CARD, path, value)))
    assert [fault for fault in faults if fault.startswith(f"{named}: must not be empty")], faults


@pytest.mark.parametrize(
    "url",
    [
        "/a2a",
        "agent.example",
        "ftp://agent.example",
        "//agent.example/",
        "httpx://a",
        "http:/a",
        "http:a",
    ],
)
@pytest.mark.parametrize("index", [0, 2])
def test_an_http_interface_has_to_have_an_absolute_http_url(url: str, index: int) -> None:
    faults = check_card(read(with_value(CARD, f"supportedInterfaces.{index}.url", url)))
    assert [fault for fault in faults if fault.startswith(f"supportedInterfaces[{index}].url")], faults


def test_the_scheme_of_a_url_is_the_same_in_any_case() -> None:
    assert check_card(read(with_value(CARD, "supportedInterfaces.0.url", "HTTPS://agent.example/a2a"))) == []


def test_other_bindings_may_have_urls_of_their_own() -> None:
    wire = with_value(CARD, "supportedInterfaces.1.url", "grpc.agent.example:443")
    assert check_card(read(wire)) == []
    wire = with_value(CARD, "supportedInterfaces.1", minimal("AgentInterface") | {"url": "wss://a/b"})
    assert check_card(read(wire)) == []


def test_a_skill_id_that_is_used_twice_is_a_fault() -> None:
    (fault,) = check_card(read(with_value(CARD, "skills.1.id", "route-optimizer-traffic")))
    assert "route-optimizer-traffic" in fault


@pytest.mark.parametrize("path", ["securityRequirements", "skills.0.securityRequirements"])
def test_a_security_requirement_has_to_name_a_declared_scheme(path: str) -> None:
    (fault,) = check_card(read(with_value(CARD, path, [{"schemes": {"other": {}}}])))
    assert "other" in fault
    assert check_card(read(with_value(CARD, path, [{"schemes": {"google": {}}}]))) == []


@pytest.mark.parametrize("name", ["OAuthFlows", "SecurityScheme"])
def test_of_security_schemes_and_flows_there_is_exactly_one(name: str) -> None:
    struct: Any = {"OAuthFlows": OAuthFlows, "SecurityScheme": SecurityScheme}[name]
    first, second = (field for field in MESSAGES[name][:2])
    for wire in ({}, {first.json: minimal(first.type), second.json: minimal(second.type)}):
        with pytest.raises(InvalidParams, match="exactly one of") as caught:
            decode(json.dumps(wire).encode(), struct)
        assert first.json in str(caught.value)
        assert second.json in str(caught.value)
    with pytest.raises(ValueError, match="exactly one of"):
        struct()


@FIXED
@given(wire_json("AgentCard"))
def test_checking_any_card_that_reads_gives_sentences_with_paths(wire: dict[str, Any]) -> None:
    for fault in check_card(read(wire)):
        path, _, words = fault.partition(": ")
        assert path
        assert words


# --- the card that an agent makes -------------------------------------------------------------------------------------


def test_an_agents_card_says_what_was_declared() -> None:
    skill = AgentSkill("sum", "Sum", "Adds numbers.", ("math",), ("1 + 1",), ("text/csv",))
    made = agent(
        name="Table",
        description="Reads tables.",
        version="2.1.0",
        skills=[skill],
        input_modes=["text/plain", "text/csv"],
        output_modes=["application/json"],
        extensions=[AgentExtension("https://x.example/v1", "An extension", True, {"a": 1})],
        streaming=False,
        provider=AgentProvider("https://p.example", "P"),
        documentation_url="https://d.example",
        icon_url="https://i.example/i.png",
    )(function)
    assert json.loads(encode(made.card(HERE))) == {
        "name": "Table",
        "description": "Reads tables.",
        "supportedInterfaces": [
            {"url": "https://agents.example/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        ],
        "version": "2.1.0",
        "capabilities": {
            "streaming": False,
            "pushNotifications": False,
            "extensions": [
                {"uri": "https://x.example/v1", "description": "An extension", "required": True, "params": {"a": 1}}
            ],
            "extendedAgentCard": False,
        },
        "defaultInputModes": ["text/plain", "text/csv"],
        "defaultOutputModes": ["application/json"],
        "skills": [
            {
                "id": "sum",
                "name": "Sum",
                "description": "Adds numbers.",
                "tags": ["math"],
                "examples": ["1 + 1"],
                "inputModes": ["text/csv"],
            }
        ],
        "provider": {"url": "https://p.example", "organization": "P"},
        "documentationUrl": "https://d.example",
        "iconUrl": "https://i.example/i.png",
    }


def test_an_agent_with_nothing_declared_has_a_card_without_fault() -> None:
    assert check_card(agent(function).card(HERE)) == []
    card = agent(function).card(HERE)
    assert (card.name, card.description, card.version) == ("Function", "Does things.", "1.0.0")
    assert [skill.id for skill in card.skills] == ["function"]


@pytest.mark.parametrize(
    "options",
    [
        {"input_modes": []},
        {"output_modes": []},
        {"version": ""},
        {"skills": [AgentSkill("", "n", "d", ("t",))]},
        {"skills": [AgentSkill("a", "n", "d", ())]},
        {"skills": [AgentSkill("a", "n", "d", ("t",)), AgentSkill("a", "m", "d", ("t",))]},
    ],
)
def test_an_agent_whose_card_would_have_a_fault_is_refused_when_it_is_made(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="the card of agent"):
        agent(**options)(function)
