"""Limits of a server, and tasks of agents that are silent for a while."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.behaviour.agents import Puppet, asks, begun, hello, make_agent
from tests.behaviour.harness import refused, state_of, text_of
from tests.behaviour.serving import Serve, direct_messages, every_store
from tieline import Limits, Message, Turn


@pytest.mark.requirement("stream.closes-at-terminal", "mode.blocking-waits")
async def test_agent_that_takes_too_long_is_stopped_and_its_task_ends_failed_with_the_reason(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet, limits=Limits(run_s=0.02))
    stream = await agent.stream()
    act = await puppet.next()
    act.tell("so far")
    events = await stream.rest()
    assert state_of(events[-1]) == "FAILED"
    assert "0.02 s" in text_of(events[-1]["statusUpdate"]["status"]["message"])
    assert act.cancelled
    task = await agent.get(events[0]["task"]["id"])
    assert (state_of(task), text_of(task)) == ("FAILED", "so far")


async def test_agent_that_takes_too_long_before_its_first_word_makes_a_failed_task(serve: Serve) -> None:
    puppet = Puppet(task_after_s=None)
    agent = await serve(puppet, limits=Limits(run_s=0.02))
    task = await agent.task()
    assert state_of(task) == "FAILED"
    assert (await puppet.next()).cancelled


async def test_time_that_the_caller_takes_to_answer_does_not_count(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet, limits=Limits(run_s=0.3))
    waiting, act = await begun(agent, puppet)
    act.tell(asks("Which one?"))
    await agent.until(waiting["id"], "INPUT_REQUIRED")
    slow = await agent.stream()  # begun later, and stopped by the limit while the first waits
    assert state_of((await slow.rest())[-1]) == "FAILED"
    assert state_of(await agent.get(waiting["id"])) == "INPUT_REQUIRED"
    sending = asyncio.create_task(agent.task("left", taskId=waiting["id"]))
    assert await act.results.get() == "left"
    act.end()
    assert state_of(await sending) == "COMPLETED"


async def test_tasks_that_wait_for_their_caller_leave_their_place_to_others(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet, limits=Limits(concurrent_runs=1))
    first, act = await begun(agent, puppet)
    act.tell(asks("Which one?"))
    await agent.until(first["id"], "INPUT_REQUIRED")
    second, other = await begun(agent, puppet)
    with refused("Overloaded"):
        await agent.send("one too many")
    other.end()
    await agent.until(second["id"], "COMPLETED")
    third, act = await begun(agent, puppet)
    act.end()
    await agent.until(third["id"], "COMPLETED")
    await agent.cancel(first["id"])


async def test_full_server_still_takes_the_answers_that_its_tasks_wait_for(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet, limits=Limits(concurrent_runs=1))
    task, act = await begun(agent, puppet)
    act.tell(asks("Which one?"))
    await agent.until(task["id"], "INPUT_REQUIRED")
    sending = asyncio.create_task(agent.task("left", taskId=task["id"]))
    assert await act.results.get() == "left"
    act.end()
    assert state_of(await sending) == "COMPLETED"


async def test_places_of_ended_tasks_are_free_again(serve: Serve) -> None:
    agent = await serve(hello, limits=Limits(concurrent_runs=1))
    for _ in range(5):
        assert state_of(await agent.task()) == "COMPLETED"


# --- silent agents ----------------------------------------------------------------------------------------------------


@every_store
@pytest.mark.requirement("stream.task-first", "get.current-state")
async def test_agent_that_is_silent_for_a_while_becomes_a_task_at_work(serve: Serve) -> None:
    puppet = Puppet(task_after_s=0.0)
    agent = await serve(puppet)
    stream = await agent.stream()
    act = await puppet.next()
    events = await stream.until("WORKING")
    assert [state_of(event) for event in events] == ["SUBMITTED", "WORKING"]
    task_id = events[0]["task"]["id"]
    assert task_id == act.turn.task_id
    assert state_of(await agent.get(task_id)) == "WORKING"
    assert [task["id"] for task in (await agent.list())["tasks"]] == [task_id]
    act.tell("at last")
    act.end()
    assert state_of((await stream.rest())[-1]) == "COMPLETED"


async def test_blocking_send_to_a_silent_agent_makes_a_task_that_others_can_follow_and_cancel(serve: Serve) -> None:
    puppet = Puppet(task_after_s=0.0)
    agent = await serve(puppet)
    sending = asyncio.create_task(agent.task())
    act = await puppet.next()
    await agent.until(act.turn.task_id, "WORKING")
    assert not sending.done()
    cancelled = await agent.cancel(act.turn.task_id)
    assert await sending == cancelled
    assert act.cancelled


@pytest.mark.requirement("send.task-or-message", "mode.blocking-answer-complete")
@pytest.mark.parametrize("streamed", [True, False])
async def test_reply_that_comes_when_there_is_a_task_already_ends_it_with_these_words(
    serve: Serve, streamed: bool
) -> None:
    may_reply = asyncio.Event()

    async def thinks(turn: Turn) -> Message:
        await may_reply.wait()
        return turn.reply("At last.", {"n": 1})

    agent = await serve(make_agent(thinks, task_after_s=0.0))
    stream = await agent.stream()
    sending = asyncio.create_task(agent.task())
    task_id = (await stream.until("WORKING"))[0]["task"]["id"]
    may_reply.set()
    if streamed:
        events: list[Any] = await stream.rest()
        assert [state_of(event) for event in events] == ["COMPLETED"]
        said = events[0]["statusUpdate"]["status"]["message"]
        assert (said["taskId"], said["parts"]) == (task_id, [{"text": "At last."}, {"data": {"n": 1}}])
    task = await sending
    assert state_of(task) == "COMPLETED"
    assert text_of(task["status"]["message"]) == "At last."
    assert await agent.get(task["id"]) == task


async def test_immediate_send_to_an_agent_that_will_reply_later_gets_a_task(serve: Serve) -> None:
    may_reply = asyncio.Event()

    async def thinks(turn: Turn) -> Message:
        await may_reply.wait()
        return turn.reply("At last.")

    agent = await serve(make_agent(thinks, task_after_s=None))
    task = await agent.task(configuration={"returnImmediately": True})
    assert state_of(task) == "WORKING"
    may_reply.set()
    done = await agent.until(task["id"], "COMPLETED")
    assert text_of(done["status"]["message"]) == "At last."


@direct_messages
async def test_agent_that_may_be_silent_for_ever_replies_with_a_message_however_long_it_takes(serve: Serve) -> None:
    may_reply = asyncio.Event()

    async def thinks(turn: Turn) -> Message:
        if turn.text == "wait":
            await may_reply.wait()
        return turn.reply("At last.")

    agent = await serve(make_agent(thinks, task_after_s=None))
    sending = asyncio.create_task(agent.send("wait"))
    for _ in range(20):
        assert text_of((await agent.send("go"))["message"]) == "At last."
    may_reply.set()
    assert text_of((await sending)["message"]) == "At last."
    assert (await agent.list())["totalSize"] == 0
