"""One executor, two servers: the official SDK's own and Tieline give the same events and answers for the same calls.

Where they do not, the table in docs/official-sdk.md has a row, and a test here shows both sides.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from a2a.types import Message
from a2a.utils.errors import A2AError
from google.protobuf.json_format import MessageToDict

from tests.runners.calling import Caller, plain, run
from tests.runners.test_under_serve import cancelled_at_work

ALIKE = ("echo", "chunks", "asking", "replying", "rejecting", "spawning", "reporting")


async def streamed(caller: Caller) -> Any:
    return [plain(event) async for event in caller.stream("blue one two")]


async def sent(caller: Caller) -> Any:
    answer = await caller.send("blue one two")
    shown = MessageToDict(answer)
    shown.pop("history", None)  # the SDK keeps every word of progress there,
    shown.pop("metadata", None)  # and the metadata of every status here
    key = "message" if isinstance(answer, Message) else "task"
    return joined({key: shown})


async def conversed(caller: Caller) -> Any:
    """A question, streamed, and its answer; the first event of the answer's stream is looked at apart."""
    first = [event async for event in caller.stream("paint it")]
    task = first[0].task
    second = [event async for event in caller.stream("blue", task_id=task.id, context_id=task.context_id)]
    return [plain(event) for event in first], [plain(event) for event in second if not event.HasField("task")]


async def authorized(caller: Caller) -> Any:
    asked = await caller.send("open")
    answered = await caller.send("done", task_id=asked.id, context_id=asked.context_id)
    return [(task.status.state, task.status.message.parts[0].text) for task in (asked, answered)]


async def cancelled(caller: Caller) -> Any:
    canceled, seen = await cancelled_at_work(caller)
    return canceled.status.state, canceled.status.message.parts[0].text, [plain(event) for event in seen]


def joined(answer: Any) -> Any:
    """Ids and times left out, and a text that came in chunks as one: how parts are cut is the server's business."""
    task = answer.get("task")
    for artifact in task.get("artifacts", []) if task else []:
        texts = [part.pop("text") for part in artifact["parts"] if set(part) == {"text"}]
        if texts:
            artifact["parts"] = [part for part in artifact["parts"] if part] + [{"text": "".join(texts)}]
    return without_ids(answer)


def without_ids(value: Any) -> Any:
    if isinstance(value, dict):
        names = ("id", "taskId", "contextId", "messageId", "timestamp")
        return {key: without_ids(item) for key, item in value.items() if key not in names}
    return [without_ids(item) for item in value] if isinstance(value, list) else value


def both(
    tieline_url: str, official_url: str, name: str, binding: str, scenario: Callable[[Caller], Awaitable[Any]]
) -> tuple[Any, Any]:
    return run(f"{tieline_url}/{name}", binding, scenario), run(f"{official_url}/{name}", binding, scenario)


@pytest.mark.parametrize("name", ALIKE)
def test_streams_are_the_same(tieline_url: str, official_url: str, name: str, binding: str) -> None:
    ours, theirs = both(tieline_url, official_url, name, binding, streamed)
    assert ours
    assert ours == theirs


@pytest.mark.parametrize("name", [*ALIKE, "snapshots"])
def test_answers_are_the_same(tieline_url: str, official_url: str, name: str, binding: str) -> None:
    ours, theirs = both(tieline_url, official_url, name, binding, sent)
    assert ours == theirs


def test_conversations_are_the_same(tieline_url: str, official_url: str, binding: str) -> None:
    ours, theirs = both(tieline_url, official_url, "asking", binding, conversed)
    assert ours[1]
    assert ours == theirs


def test_authorizations_are_the_same(tieline_url: str, official_url: str, binding: str) -> None:
    ours, theirs = both(tieline_url, official_url, "authorizing", binding, authorized)
    assert ours == theirs


def test_cancels_are_the_same(tieline_url: str, official_url: str, binding: str) -> None:
    ours, theirs = both(tieline_url, official_url, "waiting", binding, cancelled)
    assert ours == theirs


# --- where they differ ------------------------------------------------------------------------------------------------


def test_difference_a_task_in_one_piece_is_streamed_in_steps(tieline_url: str, official_url: str) -> None:
    ours, theirs = both(tieline_url, official_url, "snapshots", "JSONRPC", streamed)
    assert [list(event) for event in theirs] == [["task"]]
    assert [list(event) for event in ours] == [["task"], ["artifactUpdate"], ["statusUpdate"]]
    assert ours[1]["artifactUpdate"]["artifact"] == theirs[0]["task"]["artifacts"][0]
    assert ours[2]["statusUpdate"]["status"] == theirs[0]["task"]["status"]


def test_difference_the_sdk_streams_what_comes_behind_the_end(tieline_url: str, official_url: str) -> None:
    ours, theirs = both(tieline_url, official_url, "talkative", "JSONRPC", streamed)
    assert ours == theirs[: len(ours)]
    assert [list(event) for event in theirs[len(ours) :]] == [["artifactUpdate"], ["statusUpdate"], ["statusUpdate"]]


def test_difference_the_sdk_leaves_a_forgotten_task_at_work(tieline_url: str, official_url: str) -> None:
    ours, theirs = both(tieline_url, official_url, "forgetful", "JSONRPC", streamed)
    assert ours[:-1] == theirs
    assert ours[-1] == {"statusUpdate": {"status": {"state": "TASK_STATE_COMPLETED"}}}


@pytest.mark.parametrize(("name", "words"), [("failing", "swordfish"), ("refusing", "colour"), ("astray", "another")])
def test_difference_the_sdk_tells_exceptions_as_errors_of_the_call(
    tieline_url: str, official_url: str, name: str, words: str
) -> None:
    with pytest.raises(A2AError, match=words):
        run(f"{official_url}/{name}", "JSONRPC", streamed)
    state = run(f"{tieline_url}/{name}", "JSONRPC", streamed)[-1]["statusUpdate"]["status"]["state"]
    assert state == ("TASK_STATE_REJECTED" if name == "refusing" else "TASK_STATE_FAILED")
