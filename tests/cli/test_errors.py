"""The error contract: the protocol's names for the protocol's errors, codes of our own for the rest, exit codes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.cli.running import Foreign, Tieline
from tests.client.scripted import card_of
from tieline.card import AgentInterface
from tieline.cli.errors import EXIT_CODES, CliError, from_exception
from tieline.errors import PeerTimeout
from tieline.types import encode

# A2A 1.0 §5.4
PROTOCOL = {
    -32001: "TaskNotFoundError",
    -32002: "TaskNotCancelableError",
    -32003: "PushNotificationNotSupportedError",
    -32004: "UnsupportedOperationError",
    -32005: "ContentTypeNotSupportedError",
    -32006: "InvalidAgentResponseError",
    -32007: "ExtendedAgentCardNotConfiguredError",
    -32008: "ExtensionSupportRequiredError",
    -32009: "VersionNotSupportedError",
}
# CLI specification, Appendix D
LOCAL = {
    "A2ACLI_ERR_USAGE": 2,
    "A2ACLI_ERR_CARD_NOT_FOUND": 3,
    "A2ACLI_ERR_CARD_INVALID": 1,
    "A2ACLI_ERR_UNREACHABLE": 3,
    "A2ACLI_ERR_CREDENTIALS_MISSING": 4,
    "A2ACLI_ERR_AUTH_FAILED": 4,
    "A2ACLI_ERR_TIMEOUT": 5,
    "A2ACLI_ERR_INTERNAL": 1,
}


def test_local_codes_and_their_exit_codes_are_those_of_the_specification() -> None:
    assert EXIT_CODES == LOCAL


@pytest.mark.parametrize("code", PROTOCOL)
def test_a_protocol_error_keeps_its_name_and_number(bare: Tieline, foreign: Foreign, code: int) -> None:
    agent = foreign.agent("error")
    failed = bare("send", "--text", str(code), "-o", "json", "-a", agent.ref)
    assert failed.code == 1
    assert failed.error["code"] == PROTOCOL[code]
    assert failed.error["a2aCode"] == code
    assert "So it is." in failed.error["message"]


def test_an_error_is_the_same_over_every_transport(tieline: Tieline) -> None:
    ended = tieline.begin("chunks").task_id
    for words in (("task", "get", "nothing"), ("task", "cancel", ended), ("send", "hi", "--task-id", ended)):
        over = [tieline(*words, "-o", "json", "--transport", name) for name in ("JSONRPC", "HTTP+JSON")]
        assert over[0].code == over[1].code == 1
        for key in ("code", "message", "a2aCode"):
            assert over[0].error[key] == over[1].error[key]


@pytest.mark.parametrize(
    ("ref", "code"),
    [
        ("http://127.0.0.1:9", "A2ACLI_ERR_UNREACHABLE"),
        ("https://agent.invalid", "A2ACLI_ERR_UNREACHABLE"),
        ("./missing.json", "A2ACLI_ERR_CARD_NOT_FOUND"),
        ("file:///no/such/card.json", "A2ACLI_ERR_CARD_NOT_FOUND"),
        ("ftp://agent.example", "A2ACLI_ERR_CARD_NOT_FOUND"),
        ("FOREIGN/no-card/x", "A2ACLI_ERR_CARD_NOT_FOUND"),
        ("FOREIGN/not-json/x", "A2ACLI_ERR_CARD_INVALID"),
        ("FOREIGN/only-grpc/x", "A2ACLI_ERR_CARD_INVALID"),
        ("FOREIGN/only-newer/x", "A2ACLI_ERR_CARD_INVALID"),
        ("FOREIGN/old/x", "A2ACLI_ERR_CARD_INVALID"),
        ("FOREIGN/guarded-card/x", "A2ACLI_ERR_CREDENTIALS_MISSING"),
    ],
)
def test_an_agent_that_cannot_be_had_is_told_by_its_code(bare: Tieline, foreign: Foreign, ref: str, code: str) -> None:
    failed = bare("send", "hi", "-o", "json", "-a", ref.replace("FOREIGN", foreign.url))
    assert failed.error["code"] == code
    assert failed.code == LOCAL[code]
    assert failed.error["a2aCode"] is None
    assert failed.error["hint"]


@pytest.mark.parametrize(
    "words",
    [
        ("no-such-command",),
        ("task", "no-such-command"),
        ("send", "hi", "--no-such-flag"),
        ("send", "hi", "--output", "yaml"),
        ("-o", "json", "--timeout", "soon", "send", "hi"),
        ("send", "hi", "--transport", "pigeon"),
        ("send", "hi", "--a2a-version", "latest"),
        ("send", "hi", "--svc-param", "no colon"),
        ("send", "hi", "--svc-param", "A2A-Version:0.3"),
        ("send", "hi", "--config", "missing.env"),
        ("send", "hi"),
        ("task", "get"),
        ("completion", "tcsh"),
        ("help", "no-such-command"),
    ],
)
def test_a_command_line_that_makes_no_sense_exits_2_with_one_error_object(
    bare: Tieline, words: tuple[str, ...]
) -> None:
    failed = bare(*words, env={"A2ACLI_OUTPUT": "json"})
    if "yaml" in words:
        assert failed.err.startswith("Error: --output:")
        assert (failed.out, failed.code) == ("", 2)
        return
    assert failed.code == 2
    assert failed.error["code"] == "A2ACLI_ERR_USAGE"


def test_no_command_at_all_shows_the_help_and_is_a_usage_error(bare: Tieline) -> None:
    for words in ((), ("task",)):
        shown = bare(*words)
        assert (shown.code, shown.out) == (2, "")
        assert shown.err.startswith("Usage: tieline")


def test_a_misspelt_command_is_met_with_the_right_one(bare: Tieline) -> None:
    assert "Did you mean 'send'?" in bare("sedn", "hi").err
    assert "Did you mean 'subscribe'?" in bare("task", "subscrib", "x").err


def test_hints_name_what_people_try_first(bare: Tieline) -> None:
    piped = bare("send", "-a", "127.0.0.1:9", stdin=b"hi")
    assert piped.code == 2
    assert piped.err.endswith(" Standard input is sent by: tieline send -\n")
    for words in (("send", "127.0.0.1:9", "hi"), ("card", "get", "127.0.0.1:9"), ("task", "get", "x", "127.0.0.1:9")):
        stray = bare(*words)
        assert stray.code == 2
        assert "-a HOST" in stray.err, words
    assert "-a HOST" not in bare("config", "show", "x").err


@pytest.mark.parametrize(
    ("has", "asked", "hint"),
    [
        (("0.1", "0.3"), (), "--a2a-version 0.1"),
        (("0.3", "0.1"), (), "--a2a-version 0.3"),
        (("0.3",), ("--a2a-version", "0.1"), "--a2a-version 0.3"),
        (("1.0",), ("--a2a-version", "0.3"), "--a2a-version 1.0"),
    ],
)
def test_a_version_that_the_card_has_not_is_met_with_the_first_that_it_has(
    bare: Tieline, has: tuple[str, ...], asked: tuple[str, ...], hint: str
) -> None:
    failed = bare("send", "hi", *asked, "-o", "json", "-a", card_file(bare, *has))
    assert failed.error["code"] == "A2ACLI_ERR_CARD_INVALID"
    assert failed.error["hint"].endswith(hint)
    assert ", ".join(f"JSONRPC {version}" for version in has) in failed.error["message"]


def test_a_message_that_went_nowhere_is_not_said_to_have_arrived(bare: Tieline) -> None:
    failed = bare("send", "hi", "-o", "json", "-a", card_file(bare, "1.0"))
    assert failed.error["code"] == "A2ACLI_ERR_UNREACHABLE"
    assert "may have it" not in failed.error["hint"]


def card_file(bare: Tieline, *versions: str) -> str:
    """A card of an agent that nobody serves, which speaks these versions."""
    card = card_of(("http://127.0.0.1:9/", "JSONRPC"))
    interfaces = tuple(AgentInterface("http://127.0.0.1:9/", "JSONRPC", version) for version in versions)
    file = bare.folder / "card.json"
    file.write_bytes(encode(replace(card, supported_interfaces=interfaces)))
    return str(file)


def test_text_errors_are_fields_on_stderr(bare: Tieline) -> None:
    failed = bare("send", "hi")
    assert failed.out == ""
    assert failed.err.splitlines() == [
        "Error: Which agent? No agent card is named.",
        "Code: A2ACLI_ERR_USAGE",
        "Hint: Give -a HOST, the URL of a card or a card file, or set A2ACLI_AGENT_CARD.",
    ]


def test_what_nobody_foresaw_is_an_internal_error() -> None:
    error = from_exception(RuntimeError("a surprise"))
    assert (error.code, error.exit_code) == ("A2ACLI_ERR_INTERNAL", 1)
    assert error.envelope == {
        "error": {
            "code": "A2ACLI_ERR_INTERNAL",
            "message": "RuntimeError: a surprise",
            "hint": "Run it again with --debug to see where.",
            "a2aCode": None,
        }
    }
    # A2ACLI_ERR_TIMEOUT is for --timeout alone.
    assert from_exception(PeerTimeout("slow")).code == "A2ACLI_ERR_UNREACHABLE"
    assert CliError("TIELINE_ERR_FILES", "no").exit_code == 1


def test_every_code_of_our_own_is_explained() -> None:
    root = Path(__file__).resolve().parents[2]
    sources = [path.read_text() for path in (root / "src/tieline/cli").glob("*.py")]
    used = {code for source in sources for code in re.findall(r'"(TIELINE_ERR_[A-Z_]+)"', source)}
    table = (root / "docs/cli.md").read_text()
    assert set(re.findall(r"`(TIELINE_ERR_[A-Z_]+)`", table)) == used


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("task", "get", "\udcff"), 3, "tieline task get '\\udcff'"),
        (("send", "hi", "--client-cert", "\udcff.pem"), 2, "\\udcff.pem"),
        (("card", "sign", "\udcff.json", "--key", "\udcff.pem"), 1, "\\udcff.pem cannot be read"),
    ],
)
def test_an_argument_that_is_no_text_is_told_as_json_and_not_by_a_traceback(
    bare: Tieline, words: tuple[str, ...], code: int, told: str
) -> None:
    where = () if words[0] == "card" else ("-a", "127.0.0.1:1")
    failed = bare(*words, *where, "-o", "json")
    assert (failed.code, failed.err) == (code, "")
    assert told in f"{failed.error['message']} {failed.error['hint']}"
