"""Field presence over the wire (A2A 1.0 §5.5, §5.7)."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest

from tests.behaviour.agents import Puppet, begun, make_agent
from tests.behaviour.harness import Json, message, refused
from tests.behaviour.serving import Serve, over
from tests.wire.schema import ENUMS, MESSAGES
from tieline import Turn


async def chatty(turn: Turn) -> AsyncGenerator[Any, None]:
    """Uses most of what there is, with values that look like absent ones."""
    await turn.status("", metadata={})
    yield ""
    yield {}
    yield None or []
    async with turn.artifact("file.txt", media_type="text/plain", description="") as out:
        await out.write("", last=True)
    answer = await turn.ask("")
    yield answer


def faults(value: Any, name: str, at: str = "$") -> Iterator[str]:
    """What of a JSON value is not as the protocol's table has it, absent required fields above all."""
    fields = {field.json: field for field in MESSAGES[name]}
    yield from (
        f"{at}.{field.json} is missing" for field in fields.values() if field.required and field.json not in value
    )
    if any(field.one_of for field in fields.values()):
        given = [field.json for field in fields.values() if field.one_of and field.json in value]
        if len(given) != 1:
            yield f"{at} has {given}"
    for key, item in value.items():
        if key not in fields:
            yield f"{at}.{key} is unknown"
            continue
        type_ = fields[key].type
        if (
            fields[key].required
            and type_.startswith("[")
            and not item
            and (name, key) != ("ListTasksResponse", "tasks")
        ):
            yield f"{at}.{key} is empty"
        inner = type_.strip("[]")
        items = item if type_.startswith("[") else [item]
        for index, each in enumerate(items):
            if inner in MESSAGES:
                yield from faults(each, inner, f"{at}.{key}[{index}]")
            elif inner in ENUMS and each not in ENUMS[inner]:
                yield f"{at}.{key} is {each!r}"


@pytest.mark.requirement(
    "fields.required-present", "fields.required-arrays-filled", "json.camel-case", "json.enum-names"
)
async def test_every_answer_has_its_required_fields_in_camel_case_though_their_values_are_empty(serve: Serve) -> None:
    agent = await serve(chatty)
    stream = await agent.stream("x")
    events = await stream.until("INPUT_REQUIRED")
    task_id = events[0]["task"]["id"]
    answers: list[tuple[str, Json]] = [("StreamResponse", event) for event in events]
    answers.append(("SendMessageResponse", await agent.send("y", taskId=task_id)))
    answers.append(("Task", await agent.get(task_id)))
    answers.append(("Task", await agent.get(task_id, historyLength=0)))
    answers.append(("ListTasksResponse", await agent.list(includeArtifacts=True)))
    answers.append(("ListTasksResponse", await agent.list(contextId="none")))
    answers.append(("AgentCard", await agent.card()))
    assert [fault for name, answer in answers for fault in faults(answer, name)] == []


def names(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            if key not in ("data", "metadata"):
                yield from names(item)
    elif isinstance(value, list):
        for item in value:
            yield from names(item)


@pytest.mark.requirement("json.camel-case")
async def test_no_name_in_any_answer_is_in_another_case_and_free_form_names_are_left_alone(serve: Serve) -> None:
    agent = await serve(chatty)
    odd = {"snake_name": 1, "Title": {"x_y": None}}
    task = await agent.task([{"text": "x", "metadata": odd}], metadata=odd)
    answers = [task, await agent.list(), await agent.card()]
    assert all(re.fullmatch(r"[a-z][a-zA-Z0-9]*", name) for name in names(answers))
    assert task["history"][0]["parts"][0]["metadata"] == odd


@over("jsonrpc", "rest")
@pytest.mark.requirement("fields.server-ignores-unknown")
async def test_fields_that_nobody_knows_are_ignored_wherever_they_stand(serve: Serve) -> None:
    agent = await serve(chatty)
    unknown = {"kind": "x", "later": {"a": [1, None]}, "x-y": 1, "snake_case": True}
    sent = message([{"text": "x", **unknown}], **unknown)
    configuration = {"historyLength": 5, "blocking": True, **unknown}
    task = (await agent.call("SendMessage", {"message": sent, "configuration": configuration, **unknown}))["task"]
    (heard,) = [each for each in task["history"] if each["role"] == "ROLE_USER"]
    assert set(heard) == {"messageId", "role", "parts", "taskId", "contextId"}
    assert heard["parts"] == [{"text": "x"}]
    assert (await agent.call("GetTask", {"id": task["id"], "later": 1}))["id"] == task["id"]
    assert (await agent.call("ListTasks", {"later": "x"}))["totalSize"] == 1
    assert (await agent.call("CancelTask", {"id": task["id"], **unknown}))["id"] == task["id"]


@pytest.mark.requirement("fields.server-refuses-missing")
@pytest.mark.parametrize("field", ["messageId", "role", "parts"])
@pytest.mark.parametrize("how", ["absent", "null", "empty"])
async def test_a_message_without_a_required_field_is_refused_and_begins_nothing(
    serve: Serve, field: str, how: str
) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    sent = message("x")
    if how == "absent":
        del sent[field]
    else:
        sent[field] = None if how == "null" else {"messageId": "", "role": "ROLE_UNSPECIFIED", "parts": []}[field]
    with refused("InvalidParamsError") as refusal:
        await agent.call("SendMessage", {"message": sent})
    assert list(refusal.violations) == [f"message.{field}"]
    with refused("InvalidParamsError"):
        await agent.open("SendStreamingMessage", {"message": sent})
    assert puppet.runs == 0
    assert (await agent.list())["totalSize"] == 0


@pytest.mark.requirement("fields.server-refuses-missing")
@over("jsonrpc", "direct")
@pytest.mark.parametrize("operation", ["GetTask", "CancelTask"])
@pytest.mark.parametrize("params", [{}, {"id": None}])
async def test_a_read_or_cancel_without_an_id_is_refused(serve: Serve, operation: str, params: Json) -> None:
    agent = await serve(chatty)
    with refused("InvalidParamsError") as refusal:
        await agent.call(operation, params)
    assert list(refusal.violations) == ["id"]


@pytest.mark.requirement("fields.defaults-applied", "fields.presence-kept")
async def test_a_field_that_is_left_out_gets_its_default_and_zero_or_false_is_something_else(serve: Serve) -> None:
    agent = await serve(chatty)
    task = await agent.task("x")  # waits: returnImmediately is false
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert task["history"]  # historyLength is not 0
    assert "history" not in await agent.get(task["id"], historyLength=0)
    assert len((await agent.get(task["id"], historyLength=1))["history"]) == 1
    assert (await agent.get(task["id"]))["history"] == task["history"]
    page = await agent.list()
    assert page["pageSize"] == 50
    assert "artifacts" not in page["tasks"][0]
    assert "artifacts" not in (await agent.list(includeArtifacts=False))["tasks"][0]
    assert "artifacts" in (await agent.list(includeArtifacts=True))["tasks"][0]
    with refused("InvalidParamsError"):
        await agent.list(pageSize=0)
    assert "history" not in (await agent.list(historyLength=0))["tasks"][0]


@pytest.mark.requirement("fields.defaults-applied")
@pytest.mark.parametrize("configuration", [None, {}, {"returnImmediately": False}, {"returnImmediately": None}])
async def test_a_send_waits_unless_it_is_told_not_to(serve: Serve, configuration: Json | None) -> None:
    agent = await serve(chatty)
    fields = {} if configuration is None else {"configuration": configuration}
    assert (await agent.task("x", **fields))["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    puppet = Puppet()
    other = await serve(puppet)
    task, act = await begun(other, puppet)
    assert task["status"]["state"] in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
    act.end()


async def patient(turn: Turn) -> AsyncGenerator[Any, None]:
    """Takes what it gets."""
    yield await turn.ask("?")


@pytest.mark.requirement("fields.presence-kept")
async def test_what_a_caller_set_to_nothing_is_still_there_when_it_is_read_again(serve: Serve) -> None:
    agent = await serve(make_agent(patient, input_modes=("*/*",)))
    nothings: list[Any] = [None, False, 0, "", [], {}]
    parts: list[Json] = [{"text": ""}, {"raw": ""}, *({"data": nothing} for nothing in nothings)]
    parts.append({"url": "", "metadata": {"a": None, "b": {}, "c": []}})
    task = await agent.task(parts)
    for read in (task, await agent.get(task["id"]), (await agent.list())["tasks"][0]):
        assert read["history"][0]["parts"] == parts
