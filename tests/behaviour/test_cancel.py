"""Cancel Task (A2A 1.0 §3.1.5, §3.3.1)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.behaviour.agents import ENDS, Puppet, asks, begun, ended, hello
from tests.behaviour.harness import Refused, refused, state_of, text_of
from tests.behaviour.serving import Serve, by_tenants, direct_messages, every_store, not_over, stays_open, with_snapshot
from tieline import Limits, Message, Part, Role, TaskState, TaskStatus, Turn


@every_store
@pytest.mark.requirement("cancel.returns-updated-task", "get.current-state")
async def test_cancelled_task_comes_back_canceled_with_what_there_was_and_its_agent_has_stopped(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await begun(agent, puppet)
    stream = await agent.subscribe(task["id"])
    await stream.next()
    act.tell("so far")
    await stream.next()
    cancelled = await agent.cancel(task["id"])
    assert act.stopped.is_set()
    assert act.cancelled
    assert (cancelled["id"], state_of(cancelled), text_of(cancelled)) == (task["id"], "CANCELED", "so far")
    assert await agent.get(task["id"]) == cancelled
    assert [state_of(event) for event in await stream.rest()] == ["CANCELED"]


@with_snapshot
@pytest.mark.requirement("cancel.returns-updated-task")
async def test_canceled_is_told_only_after_the_agent_has_stopped(serve: Serve) -> None:
    started, may_stop = asyncio.Event(), asyncio.Event()

    async def cleans_up(turn: Turn) -> Any:
        yield "working"
        try:
            started.set()
            await asyncio.Event().wait()
        finally:
            await may_stop.wait()

    agent = await serve(cleans_up)
    task = await agent.task(configuration={"returnImmediately": True})
    await started.wait()
    stream = await agent.subscribe(task["id"])
    await stream.next()
    cancelling = asyncio.create_task(agent.cancel(task["id"]))
    for _ in range(20):
        assert state_of(await agent.get(task["id"])) == "WORKING"
    assert not cancelling.done()
    may_stop.set()
    assert state_of(await cancelling) == "CANCELED"
    assert [state_of(event) for event in await stream.rest()] == ["CANCELED"]


@pytest.mark.requirement("cancel.returns-updated-task")
async def test_agent_that_is_cancelled_may_still_say_and_give_something(serve: Serve) -> None:
    async def parting_words(turn: Turn) -> Any:
        try:
            yield "begun"
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            async with turn.artifact("rest.txt") as out:
                await out.write("what was left", last=True)
            raise

    agent = await serve(parting_words)
    stream = await agent.stream()
    task_id = (await stream.until("WORKING"))[0]["task"]["id"]
    await stream.next()
    cancelled = await agent.cancel(task_id)
    assert state_of(cancelled) == "CANCELED"
    assert text_of(cancelled) == "begunwhat was left"
    assert [state_of(event) for event in await stream.rest()] == [None, "CANCELED"]


@pytest.mark.requirement("cancel.returns-updated-task")
async def test_agent_that_ignores_its_cancellation_is_shown_as_it_is_and_ends_when_it_ends(serve: Serve) -> None:
    may_end = asyncio.Event()

    async def stubborn(turn: Turn) -> Any:
        yield "begun"
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                await turn.status("not now")

    agent = await serve(stubborn, limits=Limits(cancel_s=0.01))
    stream = await agent.stream()
    task_id = (await stream.until("WORKING"))[0]["task"]["id"]
    await stream.next()
    still = await agent.cancel(task_id)
    assert state_of(still) == "WORKING"
    assert text_of(still["status"]["message"]) == "not now"
    assert state_of(await agent.cancel(task_id)) == "WORKING"  # asking again does not hurt
    may_end.set()
    events = await stream.rest()
    assert state_of(events[-1]) == "CANCELED"  # it did not say that it had completed


@pytest.mark.requirement("cancel.terminal-task-refused", "model.terminal-is-final")
async def test_task_that_completes_while_it_is_being_cancelled_stays_completed(serve: Serve) -> None:
    async def finishes(turn: Turn) -> Any:
        yield "begun"
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await turn.complete("Done already.")

    agent = await serve(finishes)
    stream = await agent.stream()
    task_id = (await stream.until("WORKING"))[0]["task"]["id"]
    await stream.next()
    with refused("TaskNotCancelableError"):
        await agent.cancel(task_id)
    assert [state_of(event) for event in await stream.rest()] == ["COMPLETED"]
    assert state_of(await agent.get(task_id)) == "COMPLETED"


@every_store
@pytest.mark.requirement("cancel.terminal-task-refused", "model.terminal-is-final")
@pytest.mark.parametrize("state", ENDS)
async def test_ended_task_cannot_be_cancelled(serve: Serve, state: str) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task = await ended(agent, puppet, state)
    with refused("TaskNotCancelableError") as refusal:
        await agent.cancel(task["id"])
    assert task["id"] in refusal.message
    assert await agent.get(task["id"]) == task


@by_tenants
@every_store
@pytest.mark.requirement("cancel.unknown-task-refused", "resource.not-found")
async def test_task_that_is_not_there_for_the_caller_cannot_be_cancelled(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    with refused("TaskNotFoundError"):
        await agent.cancel("no-such-task")
    task, act = await begun(agent, puppet, tenant="other")
    with refused("TaskNotFoundError"):
        await agent.cancel(task["id"])
    assert not act.stopped.is_set()
    assert state_of(await agent.as_tenant("other").get(task["id"])) == "WORKING"


@every_store
@pytest.mark.requirement("cancel.idempotent")
async def test_cancelling_several_times_at_once_cancels_once(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await begun(agent, puppet)
    stream = await agent.subscribe(task["id"])
    await stream.next()
    outcomes = await asyncio.gather(*(agent.cancel(task["id"]) for _ in range(5)), return_exceptions=True)
    done = await agent.get(task["id"])
    assert state_of(done) == "CANCELED"
    assert done in outcomes
    for outcome in outcomes:
        if isinstance(outcome, Refused):  # it came behind the end
            outcome.check("TaskNotCancelableError")
        else:
            assert outcome == done
    assert [state_of(event) for event in await stream.rest()] == ["CANCELED"]
    assert act.cancelled


@every_store
@pytest.mark.requirement("cancel.idempotent")
async def test_cancelling_again_changes_nothing(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, _ = await begun(agent, puppet)
    cancelled = await agent.cancel(task["id"])
    for _ in range(2):
        with refused("TaskNotCancelableError"):
            await agent.cancel(task["id"])
        assert await agent.get(task["id"]) == cancelled


@every_store
@pytest.mark.requirement("cancel.returns-updated-task")
async def test_task_that_waits_for_its_caller_can_be_cancelled(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await begun(agent, puppet)
    act.tell(asks("Which one?"))
    await agent.until(task["id"], "INPUT_REQUIRED")
    cancelled = await agent.cancel(task["id"])
    assert state_of(cancelled) == "CANCELED"
    assert act.cancelled
    assert [text_of(m) for m in cancelled["history"]] == ["go", "Which one?"]


@stays_open
@every_store
@pytest.mark.requirement("cancel.returns-updated-task")
async def test_resting_task_without_an_agent_at_work_can_be_cancelled(serve: Serve) -> None:
    async def asks_and_leaves(turn: Turn) -> Any:
        yield TaskStatus(TaskState.INPUT_REQUIRED, Message("q", Role.AGENT, (Part(text="Which one?"),)))

    agent = await serve(asks_and_leaves)
    task = await agent.task()
    stream = await agent.subscribe(task["id"])
    await stream.next()
    assert state_of(await agent.cancel(task["id"])) == "CANCELED"
    assert [state_of(event) for event in await stream.rest()] == ["CANCELED"]
    with refused("UnsupportedOperationError"):
        await agent.send("the left one", taskId=task["id"])


@pytest.mark.requirement("cancel.returns-updated-task", "mode.blocking-waits")
async def test_caller_that_waits_for_a_task_hears_that_it_was_cancelled(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    sending = asyncio.create_task(agent.task())
    act = await puppet.next()
    act.tell("so far")
    await agent.until(act.turn.task_id, "WORKING")
    cancelled = await agent.cancel(act.turn.task_id)
    assert await sending == cancelled


@not_over("grpc-0.3", why="a cancel has no metadata")
@pytest.mark.requirement("cancel.returns-updated-task")
async def test_cancel_may_carry_metadata(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, _ = await begun(agent, puppet)
    assert state_of(await agent.cancel(task["id"], metadata={"reason": "changed my mind"})) == "CANCELED"


@direct_messages
@pytest.mark.requirement("cancel.terminal-task-refused")
async def test_direct_answer_leaves_nothing_to_cancel(serve: Serve) -> None:
    async def replies(turn: Turn) -> Message:
        return turn.reply("hi")

    agent = await serve(replies)
    await agent.send()
    assert (await agent.list())["totalSize"] == 0
    task = await (await serve(hello)).task()  # another agent's task is not there for this one
    with refused("TaskNotFoundError"):
        await agent.cancel(task["id"])
