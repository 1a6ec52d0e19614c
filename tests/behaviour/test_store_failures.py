"""What callers see when the store fails: a prompt error, nothing that hangs, and an agent that is stopped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from tests.behaviour.agents import Puppet, asks, begun, hello
from tests.behaviour.failing_store import FailingStore, How
from tests.behaviour.harness import Json, Refused, Stream, eventually, refused, state_of, text_of
from tests.behaviour.serving import Serve, direct_messages, not_over, refuses_ended, with_snapshot
from tieline import Message, Turn

stored_first = not_over("0.1", why="a task that its caller names is stored before its agent starts")
either_way = pytest.mark.parametrize("how", ["at-once", "later"])


@pytest.fixture(autouse=True)
def _failures_are_logged_but_never_told(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.ERROR, "tieline"):
        yield
    assert any("secret path" in record.getMessage() for record in caplog.get_records("call"))


async def broken_off(opening: Stream | Awaitable[Stream]) -> list[Json]:
    """The events of a stream up to the error that ends it.

    Where it ends before its first event, gRPC cannot tell it from one that has never opened.
    """
    events: list[Json] = []
    try:
        stream = opening if isinstance(opening, Stream) else await opening
    except Refused as refusal:
        check(refusal)
        return events
    try:
        async for event in stream:
            events.append(event)  # noqa: PERF401 - an error comes behind them
    except Refused as refusal:
        check(refusal)
        assert await stream.rest() == []  # it is the last thing that the stream says
        return events
    raise AssertionError(f"the stream ended as if nothing had happened, behind {events}")


def check(refusal: Refused) -> None:
    """That a refusal tells of a failure here, and nothing of its cause."""
    refusal.in_stream = False  # the stream had been opened before the store failed
    refusal.check("InternalError")
    assert "secret" not in str(refusal)


@stored_first
@either_way
@pytest.mark.requirement("errors.appropriate", "system.errors-logged")
@pytest.mark.parametrize("immediately", [True, False])
async def test_send_whose_task_cannot_be_made_gets_an_error_and_the_agent_stops(
    serve: Serve, how: How, immediately: bool
) -> None:
    puppet = Puppet()
    store = FailingStore(how)
    store.fails_append = lambda append: True
    agent = await serve(puppet, store=store)
    sending = asyncio.create_task(agent.send(configuration={"returnImmediately": immediately}))
    act = await puppet.next()
    act.tell("a first chunk")
    with refused("InternalError") as refusal:
        await sending
    assert "secret" not in refusal.message
    await act.stopped.wait()
    store.fails_append = lambda append: False
    assert (await agent.list())["totalSize"] == 0
    task, act = await begun(agent, puppet)  # the next one is served
    act.end()
    await agent.until(task["id"], "COMPLETED")


@stored_first
@either_way
@pytest.mark.requirement("errors.appropriate", "system.errors-logged")
async def test_stream_whose_task_cannot_be_made_ends_with_an_error(serve: Serve, how: How) -> None:
    puppet = Puppet()
    store = FailingStore(how)
    store.fails_append = lambda append: True
    agent = await serve(puppet, store=store)
    stream = await agent.stream()
    act = await puppet.next()
    act.tell("a first chunk")
    assert await broken_off(stream) == []
    await act.stopped.wait()


@with_snapshot
@either_way
@pytest.mark.requirement("errors.appropriate", "events.to-every-stream")
async def test_every_follower_of_a_task_hears_at_once_that_it_cannot_be_stored_any_more(serve: Serve, how: How) -> None:
    puppet = Puppet()
    store = FailingStore(how)
    agent = await serve(puppet, store=store)
    first = await agent.stream()
    act = await puppet.next()
    act.tell("stored")
    await first.until("WORKING")
    await first.next()
    second = await agent.subscribe(act.turn.task_id)
    await second.next()
    waiting = asyncio.create_task(agent.send("and?", taskId=act.turn.task_id))

    async def is_heard() -> bool:
        return len((await agent.get(act.turn.task_id))["history"]) == 2

    await eventually(is_heard)
    store.fails_append = lambda append: True
    act.tell("not stored")
    assert await broken_off(first) == []  # what was not stored is told to nobody
    assert await broken_off(second) == []
    with pytest.raises(Refused) as caught:
        await waiting
    check(caught.value)
    await act.stopped.wait()
    assert store.failures >= 1


@either_way
@pytest.mark.requirement("errors.appropriate")
async def test_end_that_cannot_be_stored_is_told_to_nobody(serve: Serve, how: How) -> None:
    store = FailingStore(how)
    store.fails_append = lambda append: append.state.terminal
    agent = await serve(hello, store=store)
    events = await broken_off(agent.stream())
    assert "COMPLETED" not in {state_of(event) for event in events}
    with refused("InternalError"):
        await agent.send()


@refuses_ended
@either_way
@pytest.mark.requirement("errors.appropriate", "async.work-goes-on")
async def test_task_that_could_not_be_stored_to_its_end_does_not_say_working_for_ever(serve: Serve, how: How) -> None:
    puppet = Puppet()
    store = FailingStore(how)
    agent = await serve(puppet, store=store)
    task, act = await begun(agent, puppet)
    store.fails_append = lambda append: store.failures == 0  # once
    act.tell("lost")
    await act.stopped.wait()
    done = await agent.until(task["id"], "FAILED")
    assert text_of(done["status"]["message"])
    with refused("UnsupportedOperationError"):
        await agent.subscribe(task["id"])


@either_way
@pytest.mark.requirement("errors.appropriate")
async def test_answer_that_cannot_be_stored_gets_an_error(serve: Serve, how: How) -> None:
    puppet = Puppet()
    store = FailingStore(how)
    agent = await serve(puppet, store=store)
    task, act = await begun(agent, puppet)
    act.tell(asks("Which one?"), "went on")
    await agent.until(task["id"], "INPUT_REQUIRED")
    store.fails_append = lambda append: True
    with refused("InternalError"):
        await agent.send("left", taskId=task["id"])
    await act.stopped.wait()


@either_way
@pytest.mark.requirement("errors.appropriate")
async def test_streamed_answer_that_cannot_be_stored_is_refused_before_its_stream(serve: Serve, how: How) -> None:
    puppet = Puppet()
    store = FailingStore(how)
    agent = await serve(puppet, store=store)
    task, act = await begun(agent, puppet)
    act.tell(asks("Which one?"), "went on")
    await agent.until(task["id"], "INPUT_REQUIRED")
    store.fails_append = lambda append: True
    with refused("InternalError"):
        await agent.stream("left", taskId=task["id"])
    await act.stopped.wait()


@either_way
@pytest.mark.requirement("errors.appropriate")
async def test_cancel_that_cannot_be_stored_gets_an_error_though_the_agent_has_stopped(serve: Serve, how: How) -> None:
    puppet = Puppet()
    store = FailingStore(how)
    agent = await serve(puppet, store=store)
    task, act = await begun(agent, puppet)
    store.fails_append = lambda append: True
    with refused("InternalError"):
        await agent.cancel(task["id"])
    assert act.stopped.is_set()


@pytest.mark.requirement("errors.appropriate", "system.errors-logged")
async def test_reading_from_a_store_that_fails_gets_an_error_on_every_operation(serve: Serve) -> None:
    store = FailingStore()
    agent = await serve(hello, store=store)
    task = await agent.task()
    store.reading_fails = True
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: agent.get(task["id"]),
        lambda: agent.list(),
        lambda: agent.cancel(task["id"]),
        lambda: agent.subscribe(task["id"]),
        lambda: agent.send("more", taskId=task["id"]),
        lambda: agent.stream("more", taskId=task["id"]),
        lambda: agent.send("compare", referenceTaskIds=[task["id"]]),
    ]
    if agent.numbered:
        calls.append(lambda: agent.subscribe(task["id"], last_event_id=1))
    for call in calls:
        with refused("Unavailable") as refusal:
            await call()
        assert "secret" not in refusal.message
    store.reading_fails = False
    assert await agent.get(task["id"]) == task


@direct_messages
async def test_direct_answer_needs_no_store(serve: Serve) -> None:
    async def replies(turn: Turn) -> Message:
        return turn.reply("hi")

    store = FailingStore()
    store.fails_append = lambda append: True
    agent = await serve(replies, store=store)
    assert text_of((await agent.send())["message"]) == "hi"
    logging.getLogger("tieline").error("secret path")  # nothing has failed here: the fixture wants its word


@either_way
@pytest.mark.requirement("errors.appropriate")
async def test_failure_of_one_task_leaves_the_others_alone(serve: Serve, how: How) -> None:
    puppet = Puppet()
    store = FailingStore(how)
    agent = await serve(puppet, store=store)
    (one, act), (two, other) = await begun(agent, puppet), await begun(agent, puppet)
    store.fails_append = lambda append: append.task_id == one["id"]
    act.tell("lost")
    other.tell("kept")
    await act.stopped.wait()
    other.end()
    done: Any = await agent.until(two["id"], "COMPLETED")
    assert text_of(done) == "kept"
