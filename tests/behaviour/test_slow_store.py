"""What callers see while the store takes its time: nothing that is not durable."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from tests.behaviour.agents import Puppet, asks, begun
from tests.behaviour.failing_store import FailingStore
from tests.behaviour.harness import Transport, eventually, state_of, text_of
from tests.behaviour.serving import Serve


async def not_before_it_is_stored(store: FailingStore, agent: Transport, call: Awaitable[Any]) -> Any:
    """What a call gives, once what it waits for has been held back for a while and was stored then."""
    waiting = asyncio.ensure_future(call)

    async def is_held() -> bool:
        return bool(store.held)

    await eventually(is_held)
    for _ in range(10):
        await agent.as_tenant("another").list()  # the server answers others meanwhile
    assert not waiting.done()
    store.release()
    return await waiting


@pytest.mark.requirement("events.to-every-stream", "get.current-state")
async def test_no_event_is_told_before_it_is_stored(serve: Serve) -> None:
    puppet = Puppet()
    store = FailingStore("later")
    agent = await serve(puppet, store=store)
    task, act = await begun(agent, puppet)
    first, second = [await agent.subscribe(task["id"]) for _ in range(2)]
    before = [(await stream.next())["task"] for stream in (first, second)]
    store.holds = True
    act.tell("a chunk")
    event = await not_before_it_is_stored(store, agent, first.next())
    assert text_of(event["artifactUpdate"]["artifact"]) == "a chunk"
    assert await second.next() == event
    assert before[0] == before[1]
    assert text_of(await agent.get(task["id"])) == "a chunk"
    act.end()
    await first.rest()


@pytest.mark.requirement("get.current-state")
async def test_task_is_read_as_it_is_stored_while_a_chunk_is_on_its_way(serve: Serve) -> None:
    puppet = Puppet()
    store = FailingStore("later")
    agent = await serve(puppet, store=store)
    task, act = await begun(agent, puppet)
    store.holds = True
    act.tell("a chunk")

    async def is_held() -> bool:
        return bool(store.held)

    await eventually(is_held)
    assert await agent.get(task["id"]) == task
    store.release()
    act.end()
    assert text_of(await agent.until(task["id"], "COMPLETED")) == "a chunk"


@pytest.mark.requirement("mode.blocking-waits", "mode.blocking-answer-complete")
@pytest.mark.parametrize("state", ["COMPLETED", "INPUT_REQUIRED"])
async def test_blocking_send_is_not_answered_before_its_end_is_stored(serve: Serve, state: str) -> None:
    puppet = Puppet()
    store = FailingStore("later")
    agent = await serve(puppet, store=store)
    sending = asyncio.create_task(agent.task())
    act = await puppet.next()
    act.tell("so far")
    await agent.until(act.turn.task_id, "WORKING")
    store.holds = True
    if state == "COMPLETED":
        act.end()
    else:
        act.tell(asks("Which one?"))
    task = await not_before_it_is_stored(store, agent, sending)
    assert (state_of(task), text_of(task)) == (state, "so far")


@pytest.mark.requirement("mode.immediate-returns", "task.id-returned")
async def test_immediate_send_is_not_answered_before_its_task_is_stored(serve: Serve) -> None:
    puppet = Puppet()
    store = FailingStore("later")
    agent = await serve(puppet, store=store)
    store.holds = True
    sending = agent.task(configuration={"returnImmediately": True})
    task = await not_before_it_is_stored(store, agent, sending)
    assert state_of(task) in ("SUBMITTED", "WORKING")
    assert [listed["id"] for listed in (await agent.list())["tasks"]] == [task["id"]]


@pytest.mark.requirement("cancel.returns-updated-task")
async def test_canceled_is_not_told_before_it_is_stored(serve: Serve) -> None:
    puppet = Puppet()
    store = FailingStore("later")
    agent = await serve(puppet, store=store)
    task, act = await begun(agent, puppet)
    store.holds = True
    cancelled = await not_before_it_is_stored(store, agent, agent.cancel(task["id"]))
    assert state_of(cancelled) == "CANCELED"
    assert act.cancelled


@pytest.mark.requirement("turns.input-required-goes-on", "stream.task-first")
async def test_streamed_answer_does_not_open_before_the_answer_is_stored(serve: Serve) -> None:
    puppet = Puppet()
    store = FailingStore("later")
    agent = await serve(puppet, store=store)
    task, act = await begun(agent, puppet)
    act.tell(asks("Which one?"))
    await agent.until(task["id"], "INPUT_REQUIRED")
    store.holds = True
    stream = await not_before_it_is_stored(store, agent, agent.stream("left", taskId=task["id"]))
    first = (await stream.next())["task"]
    assert [text_of(m) for m in first["history"]] == ["go", "Which one?", "left"]
    assert await act.results.get() == "left"
    act.end()
    assert state_of((await stream.rest())[-1]) == "COMPLETED"
