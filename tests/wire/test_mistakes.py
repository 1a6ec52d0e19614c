"""A refused request is told what it probably did wrong: each row by an example, and nothing by chance raises."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from tests.wire.quirk_examples import ASKED, SHOWN, TEXT
from tests.wire.strategies import FIXED, free_json
from tieline.errors import InvalidParams
from tieline.types import (
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTasksRequest,
    SendMessageRequest,
    TaskPushNotificationConfig,
    decode,
)
from tieline.wire.lenient import read
from tieline.wire.methods import METHODS
from tieline.wire.mistakes import MISTAKES, TOLD, likely_mistake

BARE = {"messageId": "m", "role": "ROLE_USER"}


def sent(*parts: Any) -> dict[str, Any]:
    return {"message": ASKED | {"parts": list(parts)}}


SAID: dict[str, list[tuple[str, type[Any], Any, str]]] = {
    "envelope": [
        (
            "1.0",
            SendMessageRequest,
            {"jsonrpc": "2.0", "method": "SendMessage", "params": {"message": ASKED}},
            "params has `jsonrpc` and `params`; 1.0 wants what is in its `params`, and no second envelope",
        ),
    ],
    "message-as-params": [
        ("1.0", SendMessageRequest, ASKED, "params has `parts`; 1.0 wants that in `message`"),
        ("0.3", SendMessageRequest, ASKED, "params has `parts`; 0.3 wants that in `message`"),
    ],
    "no-message": [
        (
            "1.0",
            SendMessageRequest,
            {"id": "t"},
            "params has `id`; 1.0 wants `message` to send one; GetTask reads a task by its `id`",
        ),
        (
            "0.3",
            SendMessageRequest,
            {"id": "t"},
            "params has `id`; 0.3 wants `message` to send one; tasks/get reads a task by its `id`",
        ),
    ],
    "tasks-send": [
        (
            "1.0",
            SendMessageRequest,
            {"id": "t", "message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]}},
            "params has `id` and `message`; 1.0 wants `message.taskId`; `id` beside the message is tasks/send of 0.1",
        ),
    ],
    "session": [
        (
            "1.0",
            SendMessageRequest,
            {"sessionId": "s", "message": {"role": "user", "parts": []}},
            "params has `sessionId` and `message`; 1.0 wants `message.contextId`; `sessionId` is tasks/send of 0.1",
        ),
    ],
    "request": [("1.0", SendMessageRequest, {"request": ASKED}, "params has `request`; 1.0 wants `message`")],
    "resource-name": [
        (
            "1.0",
            GetTaskRequest,
            {"name": "tasks/t"},
            "params has `name`; 1.0 wants the ids alone; paths of ids are protobuf's JSON of 0.3",
        ),
    ],
    "nested-webhook": [
        (
            "1.0",
            TaskPushNotificationConfig,
            {"taskId": "t", "pushNotificationConfig": {"url": "u"}},
            "params has `pushNotificationConfig`; 1.0 wants its `url`, `token` and `authentication` beside `taskId`",
        ),
    ],
    "webhook-id": [
        (
            "1.0",
            GetTaskPushNotificationConfigRequest,
            {"id": "t", "pushNotificationConfigId": "c"},
            "params has `pushNotificationConfigId`; 1.0 wants `taskId` for the task and `id` for the webhook",
        ),
    ],
    "task-id": [
        (
            "1.0",
            GetTaskPushNotificationConfigRequest,
            {"id": "t"},
            "params has `id`; 1.0 wants `taskId` for the task",
        ),
    ],
    "id-of-task": [("1.0", GetTaskRequest, {"taskId": "t"}, "params has `taskId`; 1.0 wants `id`")],
    "status-word": [
        (
            "1.0",
            ListTasksRequest,
            {"status": "working"},
            "params has `status` 'working'; 1.0 wants TASK_STATE_... (TASK_STATE_WORKING)",
        ),
    ],
    "schemes": [
        (
            "1.0",
            TaskPushNotificationConfig,
            {"taskId": "t", "url": "u", "authentication": {"schemes": ["Bearer"]}},
            "params has `authentication.schemes`; 1.0 wants `authentication.scheme`, one string",
        ),
        (
            "1.0",
            SendMessageRequest,
            {
                "message": ASKED,
                "configuration": {
                    "taskPushNotificationConfig": {"url": "u", "authentication": {"schemes": ["Bearer"]}}
                },
            },
            "configuration.taskPushNotificationConfig has `authentication.schemes`; 1.0 wants `authentication.scheme`,"
            " one string",
        ),
    ],
    "message-string": [
        (
            "1.0",
            SendMessageRequest,
            {"message": "hi"},
            'message is a string; 1.0 wants an object: {"messageId", "role", "parts": [{"text": ...}]}',
        ),
        (
            "0.1",
            SendMessageRequest,
            {"id": "t", "message": "hi"},
            'message is a string; 0.1 wants an object: {"role", "parts": [{"type": "text", "text": ...}]}',
        ),
    ],
    "content": [
        (
            "1.0",
            SendMessageRequest,
            {"message": BARE | {"content": [TEXT]}},
            "message has `content`; 1.0 wants `parts`",
        ),
    ],
    "content-string": [
        (
            "0.3",
            SendMessageRequest,
            {"message": BARE | {"content": "hi"}},
            "message has `content`; 0.3 wants `parts`, a list",
        ),
    ],
    "text-in-message": [
        (
            "1.0",
            SendMessageRequest,
            {"message": BARE | {"text": "hi"}},
            'message has `text`; 1.0 wants `parts`: [{"text": ...}]',
        ),
    ],
    "role-word": [
        (
            "1.0",
            SendMessageRequest,
            {"message": ASKED | {"role": "user"}},
            "message has `role` 'user'; 1.0 wants ROLE_USER or ROLE_AGENT",
        ),
    ],
    "role-other": [
        (
            "0.3",
            SendMessageRequest,
            {"message": ASKED | {"role": "assistant"}},
            "message has `role` 'assistant'; 0.3 wants user or agent",
        ),
        (
            "0.3",
            SendMessageRequest,
            {"message": ASKED | {"role": "x" * 99}},
            f"message has `role` '{'x' * 32}...'; 0.3 wants user or agent",
        ),
    ],
    "message-id": [
        (
            "1.0",
            SendMessageRequest,
            {"message": {"id": "m", "role": "ROLE_USER", "parts": [TEXT]}},
            "message has `id`; 1.0 wants `messageId`",
        ),
    ],
    "part-string": [
        ("1.0", SendMessageRequest, sent("hi"), 'message.parts[0] is a string; 1.0 wants {"text": ...}'),
        (
            "0.3",
            SendMessageRequest,
            sent("hi"),
            'message.parts[0] is a string; 0.3 wants {"kind": "text", "text": ...}',
        ),
    ],
    "part-root": [
        (
            "1.0",
            SendMessageRequest,
            sent(TEXT, {"root": {"kind": "text", "text": "hi"}}),
            "message.parts[1] has `root`; 1.0 wants what is in it",
        ),
    ],
    "part-file": [
        (
            "1.0",
            SendMessageRequest,
            sent({"kind": "file", "file": {"uri": "u"}}),
            "message.parts[0] has `file`; 1.0 wants `raw` (base64) or `url`, with `mediaType` and `filename`",
        ),
    ],
    "part-tag": [
        (
            "1.0",
            SendMessageRequest,
            sent({"type": "text", "content": "hi"}),
            "message.parts[0] has `type`; 1.0 wants text, raw, url or data",
        ),
        (
            "0.3",
            SendMessageRequest,
            sent({"kind": "text", "content": "hi"}),
            "message.parts[0] has `kind`; 0.3 wants text, file or data beside it",
        ),
    ],
    "part-many": [
        (
            "1.0",
            SendMessageRequest,
            sent({"text": "hi", "data": {}}),
            "message.parts[0] has `text` and `data`; 1.0 wants one of text, raw, url or data in each part",
        ),
    ],
}

EXAMPLES = [(name, index) for name in SAID for index in range(len(SAID[name]))]


def as_bytes(value: Any) -> bytes:
    return json.dumps(value).encode()


def refusal(wire: Any, type_: type[Any], version: str) -> InvalidParams:
    """The error of a server that was asked in that version."""
    with pytest.raises(InvalidParams) as caught:
        decode(as_bytes(wire), type_) if version == "1.0" else read(as_bytes(wire), type_)
    return caught.value


def test_every_row_has_an_example_and_every_example_a_row() -> None:
    names = [mistake.name for mistake in MISTAKES]
    assert len(names) == len(set(names))
    assert set(names) == set(SAID)


@pytest.mark.parametrize(("name", "index"), EXAMPLES, ids=[f"{name}-{index}" for name, index in EXAMPLES])
def test_a_refused_request_is_told_its_likely_mistake(name: str, index: int) -> None:
    version, type_, wire, sentence = SAID[name][index]
    error = refusal(wire, type_, version)
    told = likely_mistake(as_bytes(wire), error, version)
    assert type(told) is InvalidParams
    assert str(told).startswith(f"{error}. Likely mistake: ")
    assert f"{sentence}." in str(told)
    assert told.violations == error.violations


def test_what_concerns_the_refused_field_is_told_first() -> None:
    wire = {"id": "t", "message": ASKED | {"role": "user", "parts": [{"kind": "file", "file": {}}]}}
    error = InvalidParams.at("message.parts[0]", "wants exactly one of text, raw, url or data, got 0")
    told = str(likely_mistake(as_bytes(wire), error, "1.0")).partition("Likely mistake: ")[2]
    assert [told.index(sentence) for sentence in ("message has `role`", "message.parts[0] has", "params has `id`")] == (
        sorted(told.index(sentence) for sentence in ("message has `role`", "message.parts[0] has", "params has `id`"))
    )


def test_a_request_with_many_mistakes_is_told_a_few() -> None:
    wire = sent(*["hi"] * 100)
    told = str(likely_mistake(as_bytes(wire), refusal(wire, SendMessageRequest, "1.0"), "1.0"))
    assert told.count("is a string") == TOLD


@pytest.mark.parametrize(
    ("version", "wanted"),
    [("1.0", "1.0"), ("0.3", "0.3"), ("0.3.0", "0.3"), ("0.2.6", "0.3"), ("0.2.0", "0.1"), ("0.1", "0.1"), ("", "1.0")],
)
def test_the_mistake_is_told_in_terms_of_the_version_that_is_spoken(version: str, wanted: str) -> None:
    wire = sent("hi")
    told = likely_mistake(as_bytes(wire), InvalidParams.at("message.parts[0]", "is bad"), version)
    assert f"; {wanted} wants " in str(told)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"null", b"[]", b"{}", b"[" * 50_000, b"1e999"], ids=repr)
def test_an_error_that_is_not_understood_stays_as_it_is(data: bytes) -> None:
    error = InvalidParams.at("message", "is bad")
    assert likely_mistake(data, error, "1.0") is error


def test_a_right_request_that_is_refused_for_another_reason_is_not_told_any_mistake() -> None:
    error = InvalidParams.at("historyLength", "must not be negative")
    wire = {"message": ASKED, "configuration": {"historyLength": -1}}
    assert likely_mistake(as_bytes(wire), error, "1.0") is error


@pytest.mark.parametrize("version", ["1.0", "0.3", "0.1"])
def test_any_json_and_any_error_give_an_error(version: str) -> None:
    @FIXED
    @given(free_json)
    def check(wire: Any) -> None:
        for error in (InvalidParams("?"), InvalidParams.at("message", "is required"), InvalidParams.at("id", "is bad")):
            told = likely_mistake(as_bytes(wire), error, version)
            assert told.violations == error.violations

    check()


def test_whatever_peers_write_in_requests_is_told_of_where_it_is_refused_in_1_0() -> None:
    requests = {method.request for method in METHODS.values()}
    untold = {"message.id", "names", "null"}  # a field that is not there tells nothing
    refused, silent = 0, []
    for name, examples in SHOWN.items():
        for type_, wire, _ in examples:
            if type_ in requests and name not in untold:
                try:
                    decode(as_bytes(wire), type_)
                except InvalidParams as error:
                    refused += 1
                    if likely_mistake(as_bytes(wire), error, "1.0") is error:
                        silent.append((name, wire))
    assert refused > 10
    assert silent == []
