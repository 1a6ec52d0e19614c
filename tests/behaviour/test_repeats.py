"""A message that is sent again, because its answer was lost, has the outcome that it had (§3.3.1)."""

from __future__ import annotations

import asyncio

import pytest

from tests.behaviour.agents import Puppet, asks, hello, make_agent
from tests.behaviour.harness import message, refused, state_of, text_of
from tests.behaviour.serving import Serve, every_store, only_in
from tieline import Retention
from tieline.stores import MemoryStore
from tieline.stores.base import Keep

of_1_0 = only_in("1.0", why="the same in every version that has message ids")


@every_store
@only_in("1.0", "0.3", why="callers of 0.1 name tasks, and their messages have no ids")
@pytest.mark.requirement("send.repeated-message")
async def test_a_repeated_message_gives_the_first_task_and_starts_no_agent(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    again = message("once")
    first = asyncio.ensure_future(agent.send(again))
    act = await puppet.next()
    second = asyncio.ensure_future(agent.send(again))
    act.tell("done")
    act.end()
    one, other = await first, await second
    assert one == other
    assert await agent.send(again) == one
    assert puppet.runs == 1


@every_store
@of_1_0
@pytest.mark.requirement("send.repeated-message")
async def test_a_repeated_message_gives_the_first_reply(serve: Serve) -> None:
    runs = []

    async def replies(turn):  # type: ignore[no-untyped-def]
        runs.append(turn.text)
        return turn.reply(f"reply {len(runs)}")

    agent = await serve(make_agent(replies))
    again = message("hello")
    first = await agent.send(again)
    assert await agent.send(again) == first
    assert text_of(first["message"]) == "reply 1"
    events = await (await agent.stream(again)).rest()
    assert events == [first]
    assert runs == ["hello"]


@of_1_0
@pytest.mark.requirement("send.repeated-message")
async def test_a_repeated_stream_is_told_from_its_beginning(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    again = message("once")
    first = await agent.stream(again)
    act = await puppet.next()
    act.tell("one ", "two ")
    second = await agent.stream(again)
    act.tell("three")
    act.end()
    events = await first.rest()
    assert await second.rest() == events
    assert await (await agent.stream(again)).rest() == events
    assert state_of(events[-1]) == "COMPLETED"
    assert puppet.runs == 1


@of_1_0
@pytest.mark.requirement("send.repeated-message")
async def test_a_repeated_answer_is_heard_once(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task = asyncio.ensure_future(agent.send("begin"))
    act = await puppet.next()
    act.tell(asks("Which?"))
    id_ = (await task)["task"]["id"]
    answer = message("this", taskId=id_)
    first = asyncio.ensure_future(agent.send(answer))
    assert await act.results.get() == "this"
    second = asyncio.ensure_future(agent.send(answer))
    act.tell("done")
    act.end()
    one = (await first)["task"]
    assert (await second)["task"] == one
    assert (await agent.send(answer))["task"] == one
    assert [text_of(said) for said in one["history"]] == ["begin", "Which?", "this"]
    with refused("UnsupportedOperationError"):
        await agent.send(message("more", taskId=id_))


@of_1_0
async def test_an_id_that_is_used_for_something_else_is_another_message(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    ids = set()
    for text in ("one", "two"):
        sent = asyncio.ensure_future(agent.send(message(text, messageId="1")))
        act = await puppet.next()
        act.end()
        ids.add((await sent)["task"]["id"])
    assert len(ids) == 2


@of_1_0
async def test_where_no_message_is_remembered_one_that_comes_again_is_another_one(serve: Serve) -> None:
    agent = await serve(hello, store=MemoryStore(Retention(messages=Keep(ttl_s=0))))
    again = message("Ada", messageId="1")
    first, second = [(await agent.send(again))["task"] for _ in range(2)]
    assert first["id"] != second["id"]
    assert text_of(first) == text_of(second) == "Hello, Ada!"
