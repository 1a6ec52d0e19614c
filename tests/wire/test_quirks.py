"""What peers write beside the canonical form: each row of the table by an example, and everything else by chance."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.quirk_examples import ASKED, SAID, SHOWN, TASK, TEXT, WORKING
from tests.wire.schema import MESSAGES, struct_of
from tests.wire.strategies import FIXED, exactly, free_json, wire_json
from tieline.errors import InvalidParams
from tieline.types import (
    Artifact,
    ListTasksResponse,
    Message,
    Part,
    SendMessageRequest,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    decode,
    encode,
)
from tieline.wire import lenient
from tieline.wire.lenient import read
from tieline.wire.methods import METHODS
from tieline.wire.quirks import QUIRKS, Quirk

DOCS = Path(__file__).parents[2] / "docs" / "tolerance.md"

READ = sorted(
    {method.request.__name__ for method in METHODS.values()}
    | {"Task", "Message", "Artifact", "TaskStatus", "Part", "StreamResponse", "SendMessageResponse"}
    | {"ListTasksResponse", "TaskPushNotificationConfig", "ListTaskPushNotificationConfigsResponse"}
    | {"TaskStatusUpdateEvent", "TaskArtifactUpdateEvent", "SendMessageConfiguration"}
)

EXAMPLES = [(name, index) for name in SHOWN for index in range(len(SHOWN[name]))]


def as_bytes(value: Any) -> bytes:
    return json.dumps(value).encode()


def refusal(given: Any, type_: type[Any], **options: Any) -> str:
    with pytest.raises(InvalidParams) as caught:
        read(as_bytes(given), type_, **options)
    (bad,) = caught.value.violations
    return bad.field


# --- the table --------------------------------------------------------------------------------------------------------


def test_every_row_has_an_example_and_every_example_a_row() -> None:
    names = [quirk.name for quirk in QUIRKS]
    assert len(names) == len(set(names))
    assert set(names) == set(SHOWN)


@pytest.mark.parametrize(("name", "index"), EXAMPLES, ids=[f"{name}-{index}" for name, index in EXAMPLES])
def test_what_peers_write_is_read_as_the_table_says(name: str, index: int) -> None:
    type_, given_, meant = SHOWN[name][index]
    assert read(as_bytes(given_), type_) == decode(as_bytes(meant), type_)


@pytest.mark.parametrize("row", [quirk for quirk in QUIRKS if quirk.step], ids=lambda row: row.name)
def test_no_row_can_be_left_out(row: Quirk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lenient, "QUIRKS", tuple(quirk for quirk in QUIRKS if quirk is not row))
    lenient._steps.cache_clear()
    try:
        lost = 0
        for type_, given_, meant in SHOWN[row.name]:
            try:
                lost += read(as_bytes(given_), type_) != decode(as_bytes(meant), type_)
            except InvalidParams:
                lost += 1
        assert lost
    finally:
        lenient._steps.cache_clear()


def test_users_are_told_every_row_in_the_words_of_the_table() -> None:
    page = DOCS.read_text()
    rows = dict(re.findall(r"^\| (.+) \| (.+) \|$", page, re.MULTILINE))
    for quirk in QUIRKS:
        assert rows.get(quirk.written.replace("|", r"\|")) == quirk.read_as.replace("|", r"\|"), quirk.name


# --- what is valid stays what it is -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", READ)
def test_canonical_values_are_read_as_the_types_read_them(name: str) -> None:
    type_ = struct_of(name)

    @FIXED
    @given(wire_json(name))
    def check(wire: dict[str, Any]) -> None:
        data = as_bytes(wire)
        value = read(data, type_)
        assert value == decode(data, type_)
        assert exactly(json.loads(encode(value))) == exactly(wire)

    check()


@pytest.mark.parametrize(
    "given_",
    [
        {"data": {"data": {"n": 1}}},
        {"data": {"value": 1}, "metadata": {"data_part_compat": True}},
        {"text": "hi", "metadata": {"tieline/filename": "a", "tieline/mediaType": "b/c"}},
        {"data": {"root": {"text": "x"}, "kind": "text", "mime_type": None, "state": 3}},
        {"data": None},
        {"text": ""},
        {"url": ""},
    ],
    ids=json.dumps,
)
def test_a_valid_part_of_1_0_that_looks_like_another_is_left_alone(given_: dict[str, Any]) -> None:
    assert read(as_bytes(given_), Part) == decode(as_bytes(given_), Part)
    sent_ = {"message": ASKED | {"parts": [given_]}}
    assert read(as_bytes(sent_), SendMessageRequest) == decode(as_bytes(sent_), SendMessageRequest)


def test_a_document_that_is_known_to_be_protobufs_has_its_data_in_data() -> None:
    given_ = {"artifactId": "a", "parts": [{"data": {"data": {"n": 1}}}, {"kind": "data", "data": {"data": 1}}]}
    assert [p.data for p in read(as_bytes(given_), Artifact).parts] == [{"data": {"n": 1}}, {"data": 1}]
    assert [p.data for p in read(as_bytes(given_), Artifact, protobuf=True).parts] == [{"n": 1}, {"data": 1}]


def test_protobufs_data_is_known_from_a_message_elsewhere_in_the_document() -> None:
    history = [{"messageId": "m", "role": "ROLE_USER", "content": [TEXT]}]
    task = TASK | {"history": history, "artifacts": [{"artifactId": "a", "parts": [{"data": {"data": {"n": 1}}}]}]}
    assert read(as_bytes({"task": task}), StreamResponse).event == decode(
        as_bytes(TASK | {"history": [ASKED], "artifacts": [{"artifactId": "a", "parts": [{"data": {"n": 1}}]}]}), Task
    )


@pytest.mark.parametrize("given_", [{}, {"heartbeat": {"n": 1}}, {"kind": "weather"}, {"text": "x"}])
def test_an_event_of_no_known_kind_holds_nothing(given_: dict[str, Any]) -> None:
    assert read(as_bytes(given_), StreamResponse) == StreamResponse()


def test_integers_of_any_size_stay_what_they_are() -> None:
    number = 2**80 + 1
    given_ = {"kind": "data", "data": {"n": number, "deep": [{"n": -number}]}, "metadata": {"n": number}}
    value = read(as_bytes(given_), Part)
    assert json.loads(encode(value)) == {"data": given_["data"], "metadata": given_["metadata"]}


def test_names_in_the_peers_own_json_are_never_changed() -> None:
    own = {"snake_name": None, "kind": "x", "parts": [{"type": "text"}], "state": 2, "role": "user", "mimeType": ""}
    given_ = SAID | {"kind": "message", "parts": [{"kind": "data", "data": own, "metadata": own}], "metadata": own}
    value = read(as_bytes(given_), Message)
    assert (value.metadata, value.parts[0].data, value.parts[0].metadata) == (own, own, own)


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_", "field"),
    [
        ({"message": {"kind": "message"}}, "message.messageId"),
        ({"message": {"role": "user", "parts": [TEXT]}}, "message.messageId"),
        ({"message": {"messageId": "m", "parts": [TEXT]}}, "message.role"),
        ({"message": {"messageId": "m", "role": "user"}}, "message.parts"),
        ({"message": {"messageId": "m", "role": "robot", "parts": [TEXT]}}, "message.role"),
        ({"message": {"parts": "invalid"}}, "message.parts"),
        ({"message": ASKED | {"parts": [{"type": "unsupported_type", "text": "x"}]}}, "message.parts[0].type"),
        ({"message": ASKED | {"parts": [TEXT, {"kind": "file", "file": {"bytes": 5}}]}}, "message.parts[1].file.bytes"),
        ({"message": ASKED | {"parts": [{"root": {"kind": "text", "text": 5}}]}}, "message.parts[0].root.text"),
        ({"message": ASKED | {"parts": [{"kind": "text"}]}}, "message.parts[0]"),
        ({"message": ASKED | {"parts": [{"kind": "file", "file": {"bytes": "aGk=", "uri": "u"}}]}}, "message.parts[0]"),
        ({"request": ASKED | {"contextId": 5}}, "request.contextId"),
        ({"id": 5, "message": ASKED}, "id"),
        ({"id": "t", "message": ASKED, "historyLength": "many"}, "historyLength"),
        ({"message": ASKED, "configuration": {"pushNotificationConfig": 5}}, "configuration.pushNotificationConfig"),
        ({}, "message"),
        ([], "params"),
        (None, "params"),
    ],
    ids=str,
)
def test_a_bad_request_is_refused_by_the_path_that_its_sender_wrote(given_: Any, field: str) -> None:
    assert refusal(given_, SendMessageRequest) == field


@pytest.mark.parametrize(
    ("type_", "given_", "field"),
    [
        (StreamResponse, {"kind": "task", "id": "t", "status": {"state": "bogus"}}, "result.status.state"),
        (StreamResponse, {"kind": "task", "id": "t", "status": "bogus"}, "result.status"),
        (StreamResponse, {"result": {"kind": "task", "id": 5, "status": WORKING}}, "result.result.id"),
        (StreamResponse, {"msg": SAID | {"parts": [5]}}, "result.msg.parts[0]"),
        (Task, {"id": "t", "sessionId": 5, "status": WORKING}, "result.sessionId"),
        (TaskArtifactUpdateEvent, {"id": "t", "artifact": {"parts": [], "append": 5}}, "result.artifact.append"),
        (ListTasksResponse, [{"id": 5}], "result[0].id"),
        (
            TaskPushNotificationConfig,
            {"id": "t", "pushNotificationConfig": {"url": "u", "authentication": {"schemes": [5]}}},
            "result.pushNotificationConfig.authentication.schemes[0]",
        ),
    ],
    ids=str,
)
def test_a_bad_answer_is_refused_by_the_path_that_its_sender_wrote(type_: type[Any], given_: Any, field: str) -> None:
    assert refusal(given_, type_, root="result") == field


@pytest.mark.parametrize("data", [b"", b"{", b'"\xff"', b'{"a":}', b"nope", b'{"text":"\\ud800"}'], ids=repr)
def test_what_is_no_json_is_told_so(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError) as caught:
        read(data, Part)
    assert not isinstance(caught.value, msgspec.ValidationError)


@pytest.mark.parametrize("data", [b"1e999", b'{"data":' + b"9" * 5000 + b"}", b"[" * 50_000 + b"]" * 50_000])
def test_numbers_and_depths_that_nobody_can_hold_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidParams):
        read(data, Part)


# --- anything at all --------------------------------------------------------------------------------------------------

OLD: dict[str, Any] = {
    "0.3 send": {
        "message": {
            "kind": "message",
            "messageId": "m",
            "role": "user",
            "parts": [
                {"kind": "text", "text": "a"},
                {"kind": "file", "file": {"bytes": "aGk=", "mimeType": "a/b", "name": "n"}},
                {"kind": "data", "data": {"value": 1}, "metadata": {"data_part_compat": True}},
            ],
        },
        "configuration": {
            "blocking": False,
            "pushNotificationConfig": {"url": "u", "authentication": {"schemes": ["Bearer"]}},
        },
    },
    "0.1 send": {
        "id": "t",
        "sessionId": "s",
        "message": {"role": "user", "parts": [{"type": "text", "text": "a"}]},
        "historyLength": 1,
        "pushNotification": {"url": "u"},
    },
    "protobuf send": {
        "request": {"messageId": "m", "role": "ROLE_USER", "content": [{"data": {"data": {"n": 1}}}]},
        "configuration": {"blocking": True},
    },
    "0.3 task": {
        "kind": "task",
        "id": "t",
        "contextId": "c",
        "status": {"state": "input-required", "message": {"kind": "message", "role": "agent", "parts": []}},
        "artifacts": [{"artifactId": "a", "parts": [{"root": {"kind": "text", "text": "x"}}]}],
        "history": [],
    },
    "0.1 task": {
        "id": "t",
        "sessionId": "s",
        "status": {"state": "unknown", "message": "x"},
        "artifacts": [{"index": 0, "append": True, "parts": [{"type": "text", "text": "x"}]}, {"parts": []}],
    },
    "0.1 artifact": {"id": "t", "artifact": {"index": 0, "lastChunk": True, "parts": [{"type": "text", "text": "x"}]}},
    "0.3 status": {
        "kind": "status-update",
        "taskId": "t",
        "contextId": "c",
        "status": {"state": "working"},
        "final": True,
    },
    "protobuf event": {"msg": {"messageId": "m", "role": 2, "content": [{"file": {"fileWithUri": "u"}}]}},
    "0.3 config": {"taskId": "t", "pushNotificationConfig": {"url": "u", "id": "i", "authentication": {"schemes": []}}},
    "protobuf config": {"parent": "tasks/t", "configId": "c", "config": {"pushNotificationConfig": {"url": "u"}}},
    "wrapped": {"jsonrpc": "2.0", "result": {"tasks": [{"taskId": "t", "status": "working"}]}},
}


def _names(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value) | set().union(*map(_names, value.values()))
    return set().union(*map(_names, value)) if isinstance(value, list) else set()


NAMES = sorted(_names(list(OLD.values())) | {field.json for fields in MESSAGES.values() for field in fields} | {"uri"})
names = st.sampled_from(NAMES) | st.text(max_size=4)
known_json: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1, 3)
    | st.sampled_from(["", "t", "task", "user", "working", "tasks/t", "eA"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=20,
)


def read_or_refused(wire: Any, type_: type[Any]) -> None:
    """Reads it. Nothing but InvalidParams may escape, and what is read can be written and read again."""
    try:
        value = read(as_bytes(wire), type_)
    except InvalidParams:
        return
    assert isinstance(value, type_)
    assert read(encode(value), type_) == decode(encode(value), type_)


@pytest.mark.parametrize("name", READ)
def test_any_json_is_read_or_refused(name: str) -> None:
    @FIXED
    @given(free_json | known_json)
    def check(wire: Any) -> None:
        read_or_refused(wire, struct_of(name))

    check()


@st.composite
def _mutated(draw: st.DrawFn, value: Any) -> Any:
    """The document with some members renamed, left out, or holding something else."""
    if draw(st.integers(0, 11)) == 0:
        return draw(known_json)
    if isinstance(value, list):
        return [draw(_mutated(item)) for item in value if draw(st.integers(0, 9))]
    if isinstance(value, dict):
        kept = {name: item for name, item in value.items() if draw(st.integers(0, 9))}
        return {(name if draw(st.integers(0, 9)) else draw(names)): draw(_mutated(item)) for name, item in kept.items()}
    return value


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("document", sorted(OLD))
def test_a_document_with_faults_is_read_or_refused(name: str, document: str) -> None:
    @FIXED
    @given(_mutated(OLD[document]))
    def check(wire: Any) -> None:
        read_or_refused(wire, struct_of(name))

    check()
