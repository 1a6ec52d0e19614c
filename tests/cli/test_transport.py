"""Which interface of a card is used, with which version and tenant."""

from __future__ import annotations

import json

import pytest

from tests.cli.running import Foreign, Tieline


def used(tieline: Tieline, *words: str) -> str:
    """The interface that a run used, as the debug log tells it."""
    run = tieline("task", "list", *words, "--debug")
    assert run.code == 0, run.err
    return run.err.partition("interface: ")[2].split(" ")[0]


def test_the_cards_order_decides_unless_the_caller_has_one(tieline: Tieline) -> None:
    card = tieline("card", "get", "-o", "json").json
    assert used(tieline) == "JSONRPC"
    turned = {**card, "supportedInterfaces": card["supportedInterfaces"][::-1]}
    (tieline.folder / "turned.json").write_text(json.dumps(turned))
    assert used(tieline, "-a", "turned.json") == "HTTP+JSON"
    assert used(tieline, "--transport", "HTTP+JSON") == "HTTP+JSON"
    assert used(tieline, "--transport", "GRPC", "--transport", "rest", "--transport", "JSONRPC") == "HTTP+JSON"
    assert used(tieline, "--transport", "grpc") == "JSONRPC", "none matches: the card's order"


def test_configured_transports_are_a_list_and_the_flag_replaces_it(tieline: Tieline) -> None:
    tieline.env["A2ACLI_TRANSPORT"] = "GRPC, HTTP+JSON"
    assert used(tieline) == "HTTP+JSON"
    assert used(tieline, "--transport", "JSONRPC") == "JSONRPC"


@pytest.mark.parametrize("scenario", ["grpc-first", "newer"])
def test_interfaces_that_are_not_spoken_here_are_passed_over(bare: Tieline, foreign: Foreign, scenario: str) -> None:
    agent = foreign.agent(scenario)
    assert bare("send", "hi", "-a", agent.ref).code == 0
    assert agent.calls[0]["headers"]["a2a-version"] == "1.0"


def test_the_tenant_of_the_interface_is_in_every_request_and_absent_without_one(
    bare: Tieline, foreign: Foreign
) -> None:
    for scenario, tenant in (("tenant", "acme"), ("message", None)):
        agent = foreign.agent(scenario)
        for words in (("send", "hi"), ("task", "get", "t"), ("task", "cancel", "t"), ("task", "list")):
            bare(*words, "-a", agent.ref)
        assert [call["params"].get("tenant") for call in agent.calls] == [tenant] * len(agent.calls)
        assert len(agent.calls) >= 4


def test_the_version_is_signalled_on_every_request_and_never_empty(bare: Tieline, foreign: Foreign) -> None:
    for words in ((), ("--a2a-version", "1.0")):
        agent = foreign.agent("polled")
        sent = bare("send", "hi", "--poll-interval", "50ms", *words, "-a", agent.ref)
        assert sent.code == 0
        assert {call["headers"]["a2a-version"] for call in agent.calls} == {"1.0"}


def test_a_version_that_is_not_spoken_is_refused_and_not_replaced(bare: Tieline, foreign: Foreign) -> None:
    agent = foreign.agent("message")
    for version in ("0.4", "1.7", "2.0"):
        refused = bare("send", "hi", "--a2a-version", version, "-o", "json", "-a", agent.ref)
        assert refused.code == 1
        assert refused.error["code"] == "VersionNotSupportedError"
        assert version in refused.error["message"]
        assert "1.0, 0.3" in refused.error["hint"]
    assert agent.records == []


@pytest.mark.parametrize(("scenario", "pinned"), [("message", "0.3"), ("message", "0.1"), ("old", "1.0")])
def test_a_version_that_the_card_does_not_offer_is_refused_and_not_replaced(
    bare: Tieline, foreign: Foreign, scenario: str, pinned: str
) -> None:
    agent = foreign.agent(scenario)
    refused = bare("send", "hi", "--a2a-version", pinned, "-o", "json", "-a", agent.ref)
    assert refused.code == 1
    assert refused.error["code"] == "A2ACLI_ERR_CARD_INVALID"
    assert f"in version {pinned}" in refused.error["message"]
    assert agent.calls == []


def test_an_agent_of_an_older_version_is_called_in_that_version(bare: Tieline, foreign: Foreign) -> None:
    for words in ((), ("--a2a-version", "0.3"), ("--a2a-version", "0.3.0")):
        agent = foreign.agent("old")
        sent = bare("send", "hi", *words, "-a", agent.ref)
        assert (sent.code, sent.block("Text")) == (0, "done"), sent.err
        assert [(call["method"], call["headers"]["a2a-version"]) for call in agent.calls] == [("message/send", "0.3")]


def test_an_agent_that_speaks_another_version_than_its_card_says_is_called_unless_the_caller_has_named_one(
    bare: Tieline, foreign: Foreign
) -> None:
    agent = foreign.agent("wrong-version")
    assert bare("send", "hi", "-a", agent.ref).block("Text") == "done"
    assert agent.methods == ["message/send", "SendMessage"]
    agent = foreign.agent("wrong-version")
    refused = bare("send", "hi", "--a2a-version", "0.3", "-o", "json", "-a", agent.ref)
    assert (refused.code, refused.error["code"], refused.error["a2aCode"]) == (1, "MethodNotFoundError", -32601)
    assert agent.methods == ["message/send"]


@pytest.mark.parametrize("version", ["1.0", "0.3", "0.1"])
def test_every_version_of_an_agent_of_ours_can_be_chosen(tieline: Tieline, version: str) -> None:
    sent = tieline("send", "reply hi", "--a2a-version", version, "--debug")
    assert (sent.code, "direct: hi" in sent.out) == (0, True), sent.err
    assert f"interface: JSONRPC {version}" in sent.err
