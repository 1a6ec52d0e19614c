"""Authorization that an agent asks for in a task (A2A 1.0 §7.6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

import tieline
from tests.behaviour.agents import Puppet, begun, make_agent
from tests.behaviour.harness import Json, Transport, message, state_of, text_of
from tests.behaviour.serving import Serve
from tieline import Caller, Message, Part, Rejected, Role, Task, Turn
from tieline.types import SendMessageRequest

WHY = "Please allow me to read the calendar."


async def authorize(turn: Turn) -> str:
    return await turn.authorize(WHY)


async def waiting(agent: Transport, puppet: Puppet, **fields: Any) -> tuple[Json, Any]:
    """A task that waits for authorization."""
    task, act = await begun(agent, puppet, **fields)
    act.tell(authorize)
    return await agent.until(task["id"], "AUTH_REQUIRED"), act


@pytest.mark.requirement("in-task-auth.has-task", "in-task-auth.state", "in-task-auth.explained")
async def test_an_agent_that_would_have_replied_asks_for_authorization_in_a_task(serve: Serve) -> None:
    async def function(turn: Turn) -> Message:
        granted = await turn.authorize(WHY)
        return turn.reply(f"you said {granted}")

    agent = await serve(function)
    answer = await agent.send("go")
    assert set(answer) == {"task"}
    task = answer["task"]
    assert task["status"]["state"] == "TASK_STATE_AUTH_REQUIRED"
    asked = task["status"]["message"]
    assert (asked["role"], text_of(asked), asked["taskId"]) == ("ROLE_AGENT", WHY, task["id"])
    assert await agent.get(task["id"]) == task
    done = await agent.task("yes", taskId=task["id"])
    assert state_of(done) == "COMPLETED"
    assert text_of(done["status"]["message"]) == "you said yes"


@pytest.mark.requirement("in-task-auth.explained")
async def test_what_is_required_may_be_told_in_data_too(serve: Serve) -> None:
    async def function(turn: Turn) -> None:
        await turn.authorize(WHY, {"scopes": ["calendar.read"], "url": "https://auth.example"})

    agent = await serve(function)
    task = await agent.task("go")
    assert task["status"]["message"]["parts"] == [
        {"text": WHY},
        {"data": {"scopes": ["calendar.read"], "url": "https://auth.example"}},
    ]


@pytest.mark.requirement("in-task-auth.state")
async def test_listing_and_streaming_show_a_task_that_waits_for_authorization(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, _ = await waiting(agent, puppet)
    (listed,) = (await agent.list(status="TASK_STATE_AUTH_REQUIRED"))["tasks"]
    assert listed["id"] == task["id"]
    assert (await agent.list(status="TASK_STATE_INPUT_REQUIRED"))["totalSize"] == 0


@pytest.mark.requirement("in-task-auth.streams-stay-open")
async def test_streams_stay_open_while_a_task_waits_and_carry_what_follows(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    stream = await agent.stream("go")
    act = await puppet.next()
    act.tell(authorize)
    events = await stream.until("AUTH_REQUIRED")
    task_id = events[0]["task"]["id"]
    second = await agent.subscribe(task_id)
    assert state_of(await second.next()) == "AUTH_REQUIRED"
    act.tell("granted")  # comes when the answer does
    answering = asyncio.create_task(agent.task("yes", taskId=task_id))
    act.end()
    for each in (stream, second):
        rest = await each.rest()
        assert [state_of(event) for event in rest] == ["WORKING", None, "COMPLETED"]
        assert text_of(rest[1]["artifactUpdate"]["artifact"]) == "granted"
    assert state_of(await answering) == "COMPLETED"


@pytest.mark.requirement("in-task-auth.streams-stay-open")
async def test_an_agent_that_got_its_credential_elsewhere_goes_on_without_a_message(serve: Serve) -> None:
    arrived = asyncio.Event()

    async def function(turn: Turn) -> AsyncGenerator[Any, None]:
        asking = asyncio.create_task(authorize(turn))
        await arrived.wait()
        asking.cancel()
        await asyncio.wait([asking])
        await turn.status("The credential has come.")
        yield "went on"

    agent = await serve(function)
    stream = await agent.stream("go")
    await stream.until("AUTH_REQUIRED")
    arrived.set()
    rest = await stream.rest()
    assert state_of(rest[-1]) == "COMPLETED"
    assert "went on" in [text_of(event["artifactUpdate"]["artifact"]) for event in rest if "artifactUpdate" in event]


@pytest.mark.requirement("in-task-auth.takes-messages")
async def test_a_task_that_waits_takes_messages_to_negotiate_correct_and_refuse(serve: Serve) -> None:
    async def function(turn: Turn) -> AsyncGenerator[Any, None]:
        answer = await turn.authorize("May I read and write?")
        if answer != "yes":
            answer = await turn.authorize(f"May I {answer}?")
        if answer != "yes":
            raise Rejected("Then not.")
        yield "done"

    agent = await serve(function)
    for last, state in (("yes", "COMPLETED"), ("no", "REJECTED")):
        task = await agent.task("go")
        assert text_of(task["status"]["message"]) == "May I read and write?"
        task = await agent.task("only read", taskId=task["id"])
        assert state_of(task) == "AUTH_REQUIRED"
        assert text_of(task["status"]["message"]) == "May I only read?"
        ended = await agent.task(last, taskId=task["id"])
        assert state_of(ended) == state
        said = [text_of(each) for each in ended["history"]]
        assert said == ["go", "May I read and write?", "only read", "May I only read?", last]


@pytest.mark.requirement("in-task-auth.takes-messages")
async def test_a_task_that_waits_may_be_cancelled(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await waiting(agent, puppet)
    assert state_of(await agent.cancel(task["id"])) == "CANCELED"
    await act.stopped.wait()
    assert act.results.empty()


@pytest.mark.requirement("in-task-auth.state-grants-nothing")
async def test_what_stands_behind_the_request_waits_for_the_answer_whatever_else_is_asked(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await waiting(agent, puppet)
    other, other_act = await waiting(agent, puppet)
    await agent.get(task["id"])
    await agent.list()
    stream = await agent.subscribe(task["id"])
    await stream.next()
    stream.close()
    await agent.task("yes", taskId=other["id"], configuration={"returnImmediately": True})
    assert await other_act.results.get() == "yes"
    assert act.results.empty()  # the other task's answer is not this one's
    await agent.task("granted", taskId=task["id"], configuration={"returnImmediately": True})
    assert await act.results.get() == "granted"
    for each in (act, other_act):
        each.end()


@pytest.mark.requirement("in-task-auth.state-grants-nothing")
async def test_a_message_that_came_before_the_request_is_not_taken_as_its_answer(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await begun(agent, puppet)
    hurried = await agent.task("hurry up", taskId=task["id"], configuration={"returnImmediately": True})
    assert state_of(hurried) in ("SUBMITTED", "WORKING")
    act.tell(authorize)
    await agent.until(task["id"], "AUTH_REQUIRED")
    assert act.results.empty()
    await agent.task("granted", taskId=task["id"], configuration={"returnImmediately": True})
    assert await act.results.get() == "granted"
    act.end()


@pytest.mark.requirement("in-task-auth.grant-not-carried-over")
async def test_an_answered_request_does_not_answer_the_next_one(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await waiting(agent, puppet)
    act.tell(authorize, authorize)
    for answer in ("first", "second"):
        task = await agent.task(answer, taskId=task["id"])
        assert state_of(task) == "AUTH_REQUIRED"
        assert await act.results.get() == answer
        assert act.results.empty()
    ending = asyncio.create_task(agent.task("third", taskId=task["id"]))
    act.end()
    assert state_of(await ending) == "COMPLETED"
    assert await act.results.get() == "third"


@pytest.mark.requirement("in-task-auth.grant-not-carried-over")
async def test_the_same_message_sent_twice_grants_once(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await waiting(agent, puppet)
    act.tell(authorize)
    sent = message("granted", messageId="grant-1", taskId=task["id"])
    assert state_of(await agent.task(sent)) == "AUTH_REQUIRED"
    assert await act.results.get() == "granted"
    assert act.results.empty()


@pytest.mark.requirement("in-task-auth.passed-on")
async def test_an_agent_passes_its_callees_request_on_in_its_own_task(serve: Serve) -> None:
    async def callee(turn: Turn) -> AsyncGenerator[Any, None]:
        granted = await turn.authorize(WHY, {"scopes": ["calendar.read"]})
        yield f"read the calendar with {granted}"

    inner = tieline.app(make_agent(callee))
    await inner.start()
    service = inner.services[""]

    async def caller(turn: Turn) -> AsyncGenerator[Any, None]:
        async def send(text: str, task_id: str | None = None) -> Task:
            sent = Message("m", Role.USER, (Part(text=text),), task_id=task_id)
            answer = (await service.send_message(SendMessageRequest(sent), Caller())).value
            assert isinstance(answer, Task)
            return answer

        task = await send(turn.text)
        while task.state.interrupted:
            assert task.status.message is not None
            answer = await turn.authorize(*task.status.message.parts)
            task = await send(answer, task.id)
        yield task.text

    agent = await serve(caller)
    try:
        task = await agent.task("what is on today?")
        assert state_of(task) == "AUTH_REQUIRED"
        assert task["status"]["message"]["parts"] == [{"text": WHY}, {"data": {"scopes": ["calendar.read"]}}]
        done = await agent.task("key-1", taskId=task["id"])
        assert state_of(done) == "COMPLETED"
        assert text_of(done) == "read the calendar with key-1"
    finally:
        await inner.close()
