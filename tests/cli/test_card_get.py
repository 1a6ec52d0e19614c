"""`card get`: finding a card, showing it, checking it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.cli.running import Foreign, Tieline
from tests.interop.processes import TIELINE, free_port, running

TWO_CARDS = """
from tieline import AgentSkill, Turn, agent

@agent(
    name="Two cards",
    description="Tells more to those it knows.",
    extended_skills=[AgentSkill("inside", "Inside", "Does more.", ("test",))],
)
async def two_cards(turn: Turn):
    yield "hi"
"""


def test_card_get_shows_identity_capabilities_interfaces_security_and_skills(
    tieline: Tieline, foreign: Foreign
) -> None:
    shown = tieline("card", "get")
    assert shown.code == 0, shown.err
    assert shown.fields["Name"] == "Command test"
    assert shown.fields["Streaming"] == "yes"
    assert shown.fields["Push notifications"] == "no"
    assert shown.fields["Skill"] == "Command test (command-test)"
    interfaces = [value for label, value in shown.all_fields if label == "Interface"]
    assert [" ".join(interface.split(" ")[:2]) for interface in interfaces] == [
        "JSONRPC 1.0",
        "HTTP+JSON 1.0",
        "JSONRPC 0.3",
        "HTTP+JSON 0.3",
    ]
    guarded = tieline("card", "get", "-a", foreign.agent("header-key").ref)
    assert guarded.fields["Security scheme"] == "header-key: API key in the header 'X-Agent-Key'"
    assert guarded.fields["Security requirement"] == "header-key"


def test_a_card_is_found_from_a_host_a_url_a_card_url_a_path_and_a_file_url(tieline: Tieline, served: str) -> None:
    card_url = f"http://{served}/.well-known/agent-card.json"
    with urlopen(card_url, timeout=30) as response:
        (tieline.folder / "card.json").write_bytes(response.read())
    path = tieline.folder / "card.json"
    for ref in (served, f"http://{served}", f"http://{served}/", card_url, "card.json", str(path), path.as_uri()):
        shown = tieline("card", "get", "-a", ref)
        assert shown.code == 0, (ref, shown.err)
        assert shown.fields["Name"] == "Command test", ref
        assert shown.fields["Selected interface"].startswith("JSONRPC 1.0 at http://"), ref
    for ref in (served, "card.json"):
        assert tieline("send", "reply hi", "-a", ref).block("Text") == "direct: hi", ref


def test_the_card_as_json_is_the_document_that_the_agent_serves(bare: Tieline, foreign: Foreign) -> None:
    agent = foreign.agent("odd-card")
    card = bare("card", "get", "-o", "json", "-a", agent.ref).json
    with urlopen(f"{agent.ref}/.well-known/agent-card.json", timeout=30) as response:
        assert card == json.load(response)
    assert card["preferredTransport"] == "JSONRPC", "a field that A2A 1.0 does not know"


def test_an_unverified_signature_is_not_shown_as_verified(bare: Tieline, foreign: Foreign) -> None:
    assert bare("card", "get", "-a", foreign.agent("signed").ref).fields["Signatures"] == "1, unverifiable"
    assert bare("card", "get", "-a", foreign.agent("polled").ref).fields["Signatures"] == "none"


def test_validate_accepts_a_valid_card_and_names_fields_that_nobody_reads(bare: Tieline, foreign: Foreign) -> None:
    valid = bare("card", "get", "--validate", "-a", foreign.agent("polled").ref)
    assert (valid.code, valid.fields["Valid"], valid.err) == (0, "yes", "")
    odd = bare("card", "get", "--validate", "-a", foreign.agent("odd-card").ref)
    assert odd.code == 0
    assert odd.err == "Warning: skills[0].colour is no field of an agent card, and nobody reads it.\n"


def test_validate_takes_what_readers_of_older_versions_know(bare: Tieline, tieline: Tieline, served: str) -> None:
    for version in ("1.0", "0.3", "0.2", "0.1"):
        valid = tieline("card", "get", "--validate", "--a2a-version", version)
        assert (valid.code, valid.fields["Valid"], valid.err) == (0, "yes", ""), version
        assert valid.fields["Selected interface"].startswith(f"JSONRPC {'0.3' if version == '0.2' else version} at")
    with urlopen(f"http://{served}/.well-known/agent-card.json", timeout=30) as response:
        joint = response.read()
    assert b"preferredTransport" in joint
    assert b"supportedInterfaces" in joint
    (bare.folder / "joint.json").write_bytes(joint)
    assert bare("card", "get", "--validate", "-a", "joint.json").err == ""


def test_faults_that_bar_no_calls_are_warnings_unless_the_card_is_to_be_checked(
    bare: Tieline, foreign: Foreign
) -> None:
    agent = foreign.agent("no-skills")
    shown = bare("card", "get", "-a", agent.ref)
    assert shown.code == 0
    assert shown.err == (
        "Warning: The card is not valid A2A 1.0, but the agent can be called: skills: must not be empty.\n"
    )
    sent = bare("send", "hi", "-a", agent.ref)
    assert (sent.code, sent.block("Text"), sent.err) == (0, "done", "Waiting for task " + sent.err.split(" ")[-1])
    checked = bare("card", "get", "--validate", "-o", "json", "-a", agent.ref)
    assert (checked.code, checked.error["code"]) == (1, "A2ACLI_ERR_CARD_INVALID")
    assert "skills: must not be empty" in checked.error["message"]


@pytest.mark.parametrize(
    ("scenario", "fault"),
    [
        ("faulty-card", "defaultInputModes: Expected `array`, got `str`"),
        ("empty-card", "name: must not be empty; skills: must not be empty"),
        ("not-json", "it is not JSON"),
    ],
)
def test_validate_names_what_is_wrong_with_a_card(bare: Tieline, foreign: Foreign, scenario: str, fault: str) -> None:
    checked = bare("card", "get", "--validate", "-o", "json", "-a", foreign.agent(scenario).ref)
    assert checked.code == 1
    assert checked.error["code"] == "A2ACLI_ERR_CARD_INVALID"
    assert fault in checked.error["message"]


def test_an_invalid_card_is_refused_by_other_commands_with_a_hint_to_check_it(bare: Tieline, foreign: Foreign) -> None:
    refused = bare("send", "hi", "-o", "json", "-a", foreign.agent("faulty-card").ref)
    assert refused.code == 1
    assert refused.error["code"] == "A2ACLI_ERR_CARD_INVALID"
    assert "tieline card get --validate -a " in refused.error["hint"]


# --- the extended one -------------------------------------------------------------------------------------------------


@pytest.fixture
def guarded(bare: Tieline) -> Iterator[Tieline]:
    """The command, signed in to an agent that has a card for such callers. Its cards are signed by mine.pem."""
    (bare.folder / "two_cards.py").write_text(TWO_CARDS)
    for name in ("mine", "other"):
        assert bare("card", "keygen", f"{name}.pem", "--public", f"{name}.json").code == 0
    assert bare("token", "create", "ada", "--tokens", "t.jsonl", "--save", "ada.token").code == 0
    port = free_port()
    bare.agent = f"127.0.0.1:{port}"
    command: list[str | Path] = [
        *(TIELINE, "serve", bare.folder / "two_cards.py", "--port", str(port), "--store", "memory")
    ]
    command += ["--auth", "bearer", "--tokens", bare.folder / "t.jsonl", "--card-key", bare.folder / "mine.pem"]
    command += ["--public-url", f"http://{bare.agent}"]
    with running(command, port, bare.folder / "serve.log"):
        assert bare("auth", "login", "--secret-file", "ada.token").code == 0
        yield bare


def skills(card: dict[str, list[dict[str, str]]]) -> list[str]:
    return [skill["id"] for skill in card["skills"]]


def test_extended_card_is_shown_to_who_has_credentials_with_what_is_known_of_its_signatures(guarded: Tieline) -> None:
    public = guarded("card", "get", "-o", "json").json
    for transport in ("JSONRPC", "HTTP+JSON"):
        words = ("card", "get", "--extended", "--transport", transport, "--require-signed-card")
        extended = guarded(*words, "-o", "json")
        assert extended.code == 0, extended.err
        assert skills(extended.json) == [*skills(public), "inside"]
        told = guarded(*words)
        assert [value for label, value in told.all_fields if label == "Skill"][-1] == "Inside (inside)"
        assert told.fields["Signatures"].endswith(", verified")
        assert told.fields["Key from"] == f"http://{guarded.agent}/.well-known/jwks.json"
        assert told.fields["Selected interface"].startswith(f"{transport} 1.0 at ")
    assert guarded("card", "get", "--extended", "--card-keys", "mine.json", "--require-signed-card").code == 0
    strange = guarded("card", "get", "--extended", "--card-keys", "other.json")
    assert (strange.code, strange.fields["Signatures"].endswith(", unverifiable")) == (0, True), strange.err
    refused = guarded("card", "get", "--extended", "--card-keys", "other.json", "--require-signed-card", "-o", "json")
    assert refused.error["code"] == "TIELINE_ERR_CARD_NOT_VERIFIED"


def test_extended_card_that_is_not_there_or_not_for_the_caller_is_refused(guarded: Tieline, served: str) -> None:
    assert guarded("auth", "logout").code == 0
    refused = guarded("card", "get", "--extended", "-o", "json")
    assert (refused.code, refused.error["code"]) == (4, "A2ACLI_ERR_CREDENTIALS_MISSING")
    none = guarded("card", "get", "--extended", "-o", "json", "-a", served)
    assert (none.code, none.error["code"]) == (1, "UnsupportedOperationError")
    both = guarded("card", "get", "--extended", "--validate", "-o", "json")
    assert (both.code, both.error["code"]) == (2, "A2ACLI_ERR_USAGE")
