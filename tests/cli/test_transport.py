"""Which interface of a card is used, with which version and tenant."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import Foreign, Result, Tieline
from tests.interop.processes import TIELINE, free_port, running


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


def test_an_agent_of_an_older_version_is_called_in_it_by_who_asks_for_it_and_by_nobody_else(
    bare: Tieline, foreign: Foreign
) -> None:
    agent = foreign.agent("old")
    refused = bare("send", "hi", "-o", "json", "-a", agent.ref)
    assert (refused.code, refused.error["code"]) == (1, "A2ACLI_ERR_CARD_INVALID")
    assert "--a2a-version 0.3" in refused.error["hint"]
    shown = bare("card", "get", "-a", agent.ref)
    assert shown.code == 0
    assert "Selected interface" not in shown.fields
    assert agent.calls == []
    for version in ("0.3", "0.3.0"):
        for env in ({}, {"A2ACLI_A2A_VERSION": version}):
            words = () if env else ("--a2a-version", version)
            agent = foreign.agent("old")
            sent = bare("send", "hi", *words, "-a", agent.ref, env=env)
            assert (sent.code, sent.block("Text")) == (0, "done"), sent.err
            told = [(call["method"], call["headers"]["a2a-version"]) for call in agent.calls]
            assert told == [("message/send", "0.3")]


def test_an_agent_that_speaks_another_version_than_its_card_says_is_not_called_in_it(
    bare: Tieline, foreign: Foreign
) -> None:
    agent = foreign.agent("wrong-version")
    refused = bare("send", "hi", "--a2a-version", "0.3", "-o", "json", "-a", agent.ref)
    assert (refused.code, refused.error["code"], refused.error["a2aCode"]) == (1, "MethodNotFoundError", -32601)
    assert agent.methods == ["message/send"]


@pytest.mark.parametrize("version", ["1.0", "0.3", "0.1"])
def test_every_version_of_an_agent_of_ours_can_be_chosen(tieline: Tieline, version: str) -> None:
    sent = tieline("send", "reply hi", "--a2a-version", version, "--debug")
    assert (sent.code, "direct: hi" in sent.out) == (0, True), sent.err
    assert f"interface: JSONRPC {version}" in sent.err


@pytest.fixture(scope="module")
def with_grpc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """host:port of our own server that serves gRPC, too."""
    port, grpc_port = free_port(), free_port()
    command: list[str | Path] = [TIELINE, "serve", f"{Path(__file__).parent / 'agents.py'}:tester"]
    command += ["--port", str(port), "--grpc-port", str(grpc_port), "--store", "memory", "--drain", "0"]
    with running(command, port, tmp_path_factory.mktemp("grpc") / "serve.log"):
        yield f"127.0.0.1:{port}"


@pytest.mark.parametrize("version", [None, "1.0", "0.3"])
def test_every_command_works_over_grpc(bare: Tieline, with_grpc: str, version: str | None) -> None:
    def run(*words: str) -> Result:
        pinned = ("--a2a-version", version) if version else ()
        return bare(*words, *pinned, "--transport", "GRPC", "--bearer", "open-sesame", "-a", with_grpc)

    sent = run("send", "reply hi", "--debug")
    assert (sent.code, sent.block("Text")) == (0, "direct: hi"), sent.err
    assert f"interface: GRPC {version or '1.0'} at 127.0.0.1:" in sent.err
    assert "open-sesame" not in sent.err
    asked = run("send", "ask")
    task_id = asked.fields["Task ID"]
    assert asked.fields["State"] == "TASK_STATE_INPUT_REQUIRED"
    assert "--transport GRPC" in asked.fields["Next"]
    assert run("task", "get", task_id).fields["Task ID"] == task_id
    assert run("send", "--task-id", task_id, "Ada", "--stream").code == 0
    assert run("task", "get", task_id).fields["State"] == "TASK_STATE_COMPLETED"
    waiting = run("send", "ask").fields["Task ID"]
    assert run("task", "cancel", waiting).fields["State"] == "TASK_STATE_CANCELED"
    listed = run("task", "list", "-o", "json")
    if version == "0.3":
        assert listed.error["code"] == "UnsupportedOperationError"
    else:
        assert {task["id"] for task in listed.json["tasks"]} >= {task_id, waiting}
    missing = run("task", "get", "no-such", "-o", "json")
    assert (missing.code, missing.error["code"], missing.error["a2aCode"]) == (1, "TaskNotFoundError", -32001)


def test_a_version_without_grpc_takes_the_next_transport(bare: Tieline, with_grpc: str) -> None:
    assert used_version(bare, with_grpc, "--a2a-version", "0.1", "--transport", "GRPC") == "JSONRPC 0.1"


def used_version(tieline: Tieline, agent: str, *words: str) -> str:
    run = tieline("send", "reply hi", *words, "-a", agent, "--debug")
    assert run.code == 0, run.err
    return " ".join(run.err.partition("interface: ")[2].split(" ")[:2])
