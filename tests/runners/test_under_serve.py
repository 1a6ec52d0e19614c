"""Executors under `tieline serve`, called by the official SDK's own client over JSON-RPC and HTTP+JSON."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from a2a.client.client import ClientCallContext
from a2a.helpers import new_data_part
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    Part,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    Task,
)
from google.protobuf.json_format import MessageToDict

from tests.runners.calling import Caller, plain, run, state, words


async def cancelled_at_work(caller: Caller) -> tuple[Task, list[StreamResponse]]:
    """Stream, and cancel when the executor says that it works: the answer to the cancel, and the stream."""
    seen: list[StreamResponse] = []
    cancel: asyncio.Future[Task] | None = None
    async for event in caller.stream("go"):
        seen.append(event)
        if cancel is None and event.HasField("status_update"):
            request = CancelTaskRequest(id=event.status_update.task_id)
            cancel = asyncio.ensure_future(caller.waiting.cancel_task(request))
    assert cancel is not None
    return await cancel, seen


def test_files_data_and_unicode_come_back_as_they_were(tieline_url: str, binding: str) -> None:
    sent = [
        Part(text="売上 💴 \u0000 \U0001f98a"),
        Part(raw=bytes(range(256)) * 4096, filename="№1.bin", media_type="application/octet-stream"),
        Part(url="https://example.com/ä?b=1", filename="b", media_type="image/png"),
        new_data_part({"n": 9007199254740992, "f": 0.1, "none": None, "list": [True, "x", {}]}),
        new_data_part(None),
        Part(text="with metadata", metadata={"k": [1.5, "v"]}),
    ]

    async def scenario(caller: Caller) -> Any:
        return await caller.send(*sent)

    task = run(f"{tieline_url}/echo", binding, scenario)
    assert state(task) == "COMPLETED"
    assert [MessageToDict(part) for part in task.artifacts[0].parts] == [MessageToDict(part) for part in sent]
    assert words(task) == f"{sent[0].text}\nwith metadata"


def test_chunks_are_streamed_one_by_one_and_joined_in_the_task(tieline_url: str, binding: str) -> None:
    async def scenario(caller: Caller) -> Any:
        events = [event async for event in caller.stream("one two three")]
        return events, await caller.waiting.get_task(GetTaskRequest(id=events[0].task.id))

    events, task = run(f"{tieline_url}/chunks", binding, scenario)
    updates = [event.artifact_update for event in events if event.HasField("artifact_update")]
    assert [(update.artifact.artifact_id, update.append, update.last_chunk) for update in updates] == [
        ("words", False, False),
        ("words", True, False),
        ("words", True, True),
        ("file", False, True),
    ]
    assert dict(updates[-1].metadata) == {"why": "at the end"}
    assert dict(events[-1].status_update.metadata) == {"took": 1}
    assert "".join(part.text for part in task.artifacts[0].parts) == "onetwothree"
    assert task.artifacts[1].parts[0].raw == b"\0\xff"


def test_question_is_answered_by_a_second_call_that_sees_what_was_asked(tieline_url: str, binding: str) -> None:
    async def scenario(caller: Caller) -> Any:
        asked = await caller.send("paint it")
        return asked, await caller.send("blue", task_id=asked.id, context_id=asked.context_id)

    asked, answered = run(f"{tieline_url}/asking", binding, scenario)
    assert (state(asked), words(asked)) == ("INPUT_REQUIRED", "Which colour?")
    assert (state(answered), words(answered)) == ("COMPLETED", "paint it: Which colour? blue")
    assert answered.id == asked.id
    assert [message.parts[0].text for message in answered.history] == ["paint it", "Which colour?", "blue"]


def test_authorization_is_seen_as_what_the_task_waited_for(tieline_url: str, binding: str) -> None:
    async def scenario(caller: Caller) -> Any:
        asked = await caller.send("open")
        return asked, await caller.send("done", task_id=asked.id)

    asked, answered = run(f"{tieline_url}/authorizing", binding, scenario)
    assert (state(asked), words(asked)) == ("AUTH_REQUIRED", "Sign in first.")
    assert (state(answered), words(answered)) == ("COMPLETED", "You are in.")


def test_answer_without_a_task_is_a_message(tieline_url: str, binding: str) -> None:
    async def scenario(caller: Caller) -> Any:
        return await caller.send("hi"), [event async for event in caller.stream("ho")]

    message, events = run(f"{tieline_url}/replying", binding, scenario)
    assert isinstance(message, Message)
    assert message.parts[0].text == "You said hi."
    assert [event.message.parts[0].text for event in events] == ["You said ho."]


def test_cancel_asks_the_executor_while_it_works_and_tells_its_words(tieline_url: str, binding: str) -> None:
    canceled, seen = run(f"{tieline_url}/waiting", binding, cancelled_at_work)
    assert (state(canceled), words(canceled)) == ("CANCELED", "Cancelled while at work.")
    assert [plain(event)["statusUpdate"]["status"]["state"] for event in seen[1:]] == [
        "TASK_STATE_WORKING",
        "TASK_STATE_CANCELED",
    ]


@pytest.mark.parametrize("name", ["stubborn", "finishing"])
def test_executor_that_does_not_tell_the_end_of_a_cancel_is_cancelled_all_the_same(
    tieline_url: str, binding: str, name: str
) -> None:
    canceled, seen = run(f"{tieline_url}/{name}", binding, cancelled_at_work)
    assert state(canceled) == "CANCELED"
    said = [part.text for event in seen for part in event.status_update.status.message.parts]
    assert said == (["Cleaning up."] if name == "finishing" else ["Waiting."])


def test_bug_of_an_executor_ends_the_task_without_telling_its_words(tieline_url: str, binding: str) -> None:
    async def scenario(caller: Caller) -> Any:
        return await caller.send("x")

    task = run(f"{tieline_url}/failing", binding, scenario)
    assert state(task) == "FAILED"
    assert "swordfish" not in str(task)


def test_error_of_the_protocol_is_told_to_the_caller(tieline_url: str, binding: str) -> None:
    async def scenario(caller: Caller) -> Any:
        return await caller.send("x")

    task = run(f"{tieline_url}/refusing", binding, scenario)
    assert (state(task), words(task)) == ("REJECTED", "A colour is needed.")


@pytest.mark.parametrize("name", ["forgetful", "silent"])
def test_executor_that_returns_without_an_end_has_completed(tieline_url: str, binding: str, name: str) -> None:
    async def scenario(caller: Caller) -> Any:
        return await caller.send("x")

    assert state(run(f"{tieline_url}/{name}", binding, scenario)) == "COMPLETED"


def test_what_comes_behind_the_end_is_left_out(tieline_url: str, binding: str) -> None:
    async def scenario(caller: Caller) -> Any:
        events = [event async for event in caller.stream("x")]
        return events, await caller.waiting.get_task(GetTaskRequest(id=events[0].task.id))

    events, task = run(f"{tieline_url}/talkative", binding, scenario)
    assert len(events) == 2
    assert (state(task), words(task), len(task.artifacts)) == ("COMPLETED", "Done.", 0)


def test_event_for_another_task_fails_the_task_even_if_the_executor_goes_on(tieline_url: str, binding: str) -> None:
    async def scenario(caller: Caller) -> Any:
        return await caller.send("x")

    assert state(run(f"{tieline_url}/astray", binding, scenario)) == "FAILED"


def test_context_tells_what_the_request_said(tieline_url: str, binding: str) -> None:
    extensions = ClientCallContext(service_parameters={"A2A-Extensions": "https://example.com/x"})

    async def scenario(caller: Caller) -> Any:
        before = await caller.send("first")
        configuration = SendMessageConfiguration(accepted_output_modes=["application/json"])
        message = Message(message_id="m", role="ROLE_USER", parts=[Part(text="a"), Part(text="b")])
        message.reference_task_ids.append(before.id)
        message.metadata.update({"of": "message"})
        request = SendMessageRequest(message=message, configuration=configuration)
        request.metadata.update({"of": "request", "n": 3})
        (answer,) = [event async for event in caller.waiting.send_message(request, context=extensions)]
        return MessageToDict(answer.task.artifacts[0].parts[0])["data"]

    assert run(f"{tieline_url}/reporting", binding, scenario) == {
        "input": "a\nb",
        "ids": [True, True],
        "current": False,
        "related": ["first"],
        "metadata": {"of": "request", "n": 3},
        "message metadata": {"of": "message"},
        "user": "",
        "authenticated": False,
        "tenant": "",
        "extensions": ["https://example.com/x"],
        "modes": ["application/json"],
    }


def test_integer_that_protobuf_would_round_is_refused_by_name(tieline_url: str) -> None:
    """The SDK's client cannot send one: other callers can."""

    def send(number: int) -> Any:
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}, {"data": {"n": number}}]}
        answer = httpx.post(f"{tieline_url}/echo/message:send", json={"message": message}, trust_env=False)
        return answer.raise_for_status().json()["task"]

    refused = send((1 << 53) + 1)
    assert refused["status"]["state"] == "TASK_STATE_REJECTED"
    assert "message.parts[1].data.n" in refused["status"]["message"]["parts"][0]["text"]
    for number in ((1 << 53) - 1, 1 << 60, -(1 << 53)):
        echoed = send(number)["artifacts"][0]["parts"][1]["data"]["n"]
        assert (echoed, type(echoed)) == (number, int)


def test_task_that_waits_is_answered_after_another_has_been_at_work(tieline_url: str, binding: str) -> None:
    async def scenario(caller: Caller) -> Any:
        asked = [await caller.send(f"paint {number}") for number in range(3)]
        answers = [caller.send("blue", task_id=task.id) for task in asked]
        return [words(task) for task in await asyncio.gather(*answers)]

    assert run(f"{tieline_url}/asking", binding, scenario) == [f"paint {n}: Which colour? blue" for n in range(3)]
