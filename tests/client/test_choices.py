"""Which URLs a reference means, which interface of a card is taken, and what comes of a task as a reply. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import pytest

from tests.client.scripted import card_of
from tests.client.tasks import CONTEXT, TASK, artifact, message, status, task
from tieline import AgentCard, Artifact, Part, Recovery, Task, TaskState
from tieline.card import AgentInterface
from tieline.client.content import Reply, message_of, reply_of
from tieline.client.discovery import card_file, card_urls
from tieline.client.route import choose, guesses, spoken_version
from tieline.errors import InvalidCard, InvalidParams, TaskFailed, VersionNotSupported

WELL_KNOWN = "/.well-known/agent-card.json"
COMPLETED = TaskState.COMPLETED

# --- references -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ref", "first"),
    [
        ("agent.example", f"https://agent.example{WELL_KNOWN}"),
        ("agent.example:8443", f"https://agent.example:8443{WELL_KNOWN}"),
        ("agent.example/a/b/", f"https://agent.example/a/b{WELL_KNOWN}"),
        ("HTTPS://agent.example", f"https://agent.example{WELL_KNOWN}"),
        ("http://agent.example/x?y=1#z", f"http://agent.example/x{WELL_KNOWN}"),
        ("localhost", f"http://localhost{WELL_KNOWN}"),
        ("localhost:8000", f"http://localhost:8000{WELL_KNOWN}"),
        ("127.0.0.1:8000", f"http://127.0.0.1:8000{WELL_KNOWN}"),
        ("[::1]:8000", f"http://[::1]:8000{WELL_KNOWN}"),
        ("192.168.1.7", f"http://192.168.1.7{WELL_KNOWN}"),
        ("printer.local", f"http://printer.local{WELL_KNOWN}"),
        ("service:8000", f"http://service:8000{WELL_KNOWN}"),
        ("8.8.8.8", f"https://8.8.8.8{WELL_KNOWN}"),
        ("[2001:4860:4860::8888]", f"https://[2001:4860:4860::8888]{WELL_KNOWN}"),
        ("https://agent.example/a%2Fb", f"https://agent.example/a%2Fb{WELL_KNOWN}"),
        ("https://agent.example/card.json", "https://agent.example/card.json"),
    ],
)
def test_reference_means_first_of_all(ref: str, first: str) -> None:
    assert str(card_urls(ref)[0]) == first


def test_url_with_a_path_ends_with_the_url_itself_and_a_host_does_not() -> None:
    assert str(card_urls("https://agent.example/a?b=1")[-1]) == "https://agent.example/a?b=1"
    assert len(card_urls("agent.example")) == 2


@pytest.mark.parametrize("ref", ["agent.example", "https://agent.example/card.json", "localhost:8000", "no-such.json"])
def test_reference_to_the_network_is_no_file(ref: str) -> None:
    assert card_file(ref) is None


# --- interfaces -------------------------------------------------------------------------------------------------------


def offering(*interfaces: tuple[str, str] | tuple[str, str, str]) -> AgentCard:
    """A card with bindings and versions, each with a URL of its own; a third is the tenant."""
    made = tuple(
        AgentInterface(f"https://h/{n}", binding, version, tenant[0] if tenant else None)
        for n, (binding, version, *tenant) in enumerate(interfaces)
    )
    return msgspec.structs.replace(card_of(("https://h/", "JSONRPC")), supported_interfaces=made)


def urls(card: AgentCard, **how: object) -> list[str]:
    return [i.url.removeprefix("https://h/") for i in choose(card, **how)]  # type: ignore[arg-type]


@pytest.mark.requirement(
    "interface.client-takes-first-supported", "interface.client-prefers-earlier", "card.binding-names"
)
def test_interfaces_keep_the_cards_order_without_those_that_are_not_spoken() -> None:
    card = offering(
        ("GRPC", "0.1"),
        ("HTTP+JSON", "1.0"),
        ("JSONRPC", "0.3"),
        ("u:custom", "1.0"),
        ("HTTP+JSON", "0.1"),
        ("JSONRPC", "2.0"),
        ("GRPC", "1.0"),
        ("JSONRPC", "1.0"),
    )
    assert urls(card) == ["1", "2", "6", "7"]


@pytest.mark.parametrize(
    ("version", "expected"),
    [("1.0", ["0", "1", "2"]), ("0.3", ["3", "4", "5", "6"]), ("0.2", ["3", "4", "5", "6"]), ("0.1", ["7"])],
)
@pytest.mark.requirement("version.client-pins")
def test_version_of_the_callers_leaves_only_interfaces_that_speak_its_dialect(
    version: str, expected: list[str]
) -> None:
    card = offering(
        ("JSONRPC", "1.0"),
        ("HTTP+JSON", "1.0.1"),
        ("GRPC", "1.0"),
        ("JSONRPC", "0.3.0"),
        ("HTTP+JSON", "0.3"),
        ("GRPC", "0.3.0"),
        ("JSONRPC", "0.2.6"),
        ("JSONRPC", "0.1"),
    )
    assert urls(card, version=version) == expected


def test_guesses_are_the_other_dialects_at_the_same_places_the_latest_first() -> None:
    listed = choose(offering(("JSONRPC", "0.3"), ("HTTP+JSON", "0.3"), ("GRPC", "1.0")))
    made = [(guess.url[-1], guess.protocol_binding, guess.protocol_version) for guess in guesses(listed)]
    assert made == [("0", "JSONRPC", "1.0"), ("0", "JSONRPC", "0.1"), ("1", "HTTP+JSON", "1.0")]
    both = choose(offering(("JSONRPC", "1.0"), ("JSONRPC", "0.2.5")))
    assert [(guess.url[-1], guess.protocol_version) for guess in guesses(both)] == [
        ("0", "0.3"),
        ("0", "0.1"),
        ("1", "1.0"),
        ("1", "0.1"),
    ]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (["JSONRPC"], ["1", "2"]),
        (["jsonrpc", "http+json"], ["1", "2", "0"]),
        (["REST"], ["0"]),
        (["GRPC", "JSON-RPC"], ["1", "2"]),
        (["HTTP_JSON", "HTTP+JSON", "JSONRPC"], ["0", "1", "2"]),
    ],
)
@pytest.mark.requirement("version.client-negotiates")
def test_order_of_the_callers_goes_before_the_cards(wanted: Sequence[str], expected: list[str]) -> None:
    assert urls(offering(("HTTP+JSON", "1.0"), ("JSONRPC", "1.0"), ("JSONRPC", "1.0")), transports=wanted) == expected


@pytest.mark.requirement("version.client-ignores-patch")
def test_patch_number_in_a_card_does_not_matter() -> None:
    assert urls(offering(("JSONRPC", "1.0.7"), ("JSONRPC", "1.1"), ("JSONRPC", "1.0"))) == ["0", "2"]


@pytest.mark.requirement("version.client-pins")
@pytest.mark.parametrize("version", ["0.4", "2.0", "1", "", "one", "0.3.x"])
def test_version_that_is_not_spoken_is_refused_and_not_replaced_by_another(version: str) -> None:
    with pytest.raises(VersionNotSupported):
        spoken_version(version)


@pytest.mark.requirement("version.client-pins")
def test_version_that_the_card_does_not_offer_is_not_replaced_by_another() -> None:
    for offered, version in (("0.3", "1.0"), ("1.0", "0.3"), ("1.0", "0.1"), ("0.3", "0.1")):
        words = re.escape(f"can be used in version {version}: it has JSONRPC {offered}; this client speaks")
        with pytest.raises(InvalidCard, match=words):
            choose(offering(("JSONRPC", offered)), version=version)


def test_card_of_other_tenants_says_whose_it_is() -> None:
    words = r"can be used for tenant 'one': it has JSONRPC 1\.0 of tenant 'two'"
    with pytest.raises(InvalidCard, match=words):
        choose(offering(("JSONRPC", "1.0", "two")), tenant="one")


def test_card_without_a_binding_that_the_caller_wants_says_what_it_has() -> None:
    with pytest.raises(InvalidCard, match=r"can be used of GRPC: it has JSONRPC 1\.0"):
        choose(offering(("JSONRPC", "1.0")), transports=["GRPC"])


def test_tenant_chooses_among_interfaces_of_several_tenants() -> None:
    card = offering(("JSONRPC", "1.0", "a"), ("JSONRPC", "1.0", "b"), ("HTTP+JSON", "1.0"))
    assert urls(card, tenant="b") == ["1", "2"]
    assert urls(card) == ["0", "1", "2"]


# --- replies ----------------------------------------------------------------------------------------------------------


def test_reply_to_a_task_is_the_text_of_its_artifacts_with_all_the_rest() -> None:
    told = task(COMPLETED, artifact("a", "one"), Artifact("b", (Part(data={"n": 1}), Part(raw=b"x"))))
    reply = reply_of(told)
    assert (reply, reply.task, reply.message, reply.state) == ("one", told, None, COMPLETED)
    assert (reply.task_id, reply.context_id) == (TASK, CONTEXT)
    assert (reply.data, reply.files) == ({"n": 1}, (Part(raw=b"x"),))
    assert len(reply.parts) == 3


def test_text_that_stands_only_in_the_status_message_is_an_answer() -> None:
    reply = reply_of(Task(TASK, status(COMPLETED, "All done.").status, CONTEXT))
    assert (reply, reply.parts) == ("All done.", (Part(text="All done."),))


@pytest.mark.parametrize("state", [TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED])
def test_reply_of_a_task_that_waits_is_its_question_even_beside_artifacts(state: TaskState) -> None:
    reply = reply_of(Task(TASK, status(state, "Which?").status, CONTEXT, (artifact("a", "so far"),)))
    assert (reply, reply.state) == ("Which?", state)


def test_reply_without_a_task_is_the_message() -> None:
    reply = reply_of(message("hi"))
    assert (reply, reply.task, reply.state, reply.message) == ("hi", None, None, message("hi"))
    assert (reply.task_id, reply.context_id) == (None, None)


@pytest.mark.parametrize("state", [TaskState.FAILED, TaskState.REJECTED, TaskState.CANCELED])
def test_task_that_ended_without_an_answer_is_an_error_with_its_words_and_itself(state: TaskState) -> None:
    told = Task(TASK, status(state, "Because.").status, CONTEXT)
    with pytest.raises(TaskFailed, match=f"{state.value.removeprefix('TASK_STATE_')}: Because") as caught:
        reply_of(told)
    assert caught.value.task == told


def test_reply_that_holds_nothing_is_empty() -> None:
    reply = Reply("")
    assert (reply.parts, reply.files, reply.data, reply.task_id, reply.context_id) == ((), (), None, None, None)
    assert reply_of(task(COMPLETED)) == ""


def test_pauses_double_up_to_the_longest() -> None:
    recovery = Recovery(first_pause_s=0.5, longest_pause_s=3)
    assert [recovery.pause_s(n) for n in (0, 1, 2, 3, 4, 5, 1000)] == [0, 0.5, 1, 2, 3, 3, 3]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [1, {"a": float("-inf")}], {"a": b"x"}])
def test_data_that_json_would_change_is_refused(value: object) -> None:
    for content in ({"n": value}, Part(data=value), ["text", {"n": value}]):
        with pytest.raises(InvalidParams, match=r"message\.parts\[[01]\]\.data: .* cannot be sent as JSON"):
            message_of(content)  # type: ignore[arg-type]


def test_data_of_any_shape_that_json_has_is_taken() -> None:
    value = {"a": [1, 2.5, None, True, {"b": "c"}], "n": 2**80}
    assert message_of(value).parts == (Part(data=value),)
