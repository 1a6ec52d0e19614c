"""Agents that wait in line: the order, and what becomes of those who wait; what one caller may have at work."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.auth.tokens import Tokens, bearer
from tests.behaviour.agents import Puppet, asks, begun
from tests.behaviour.harness import Json, Transport, eventually, refused, state_of, text_of
from tests.behaviour.serving import Serve, over
from tieline import Limits
from tieline.server.auth import Auth, BearerTokens


async def begin(agent: Transport, content: str = "go", **fields: object) -> Json:
    return await agent.task(content, configuration={"returnImmediately": True}, **fields)


@pytest.fixture(params=["memory", "postgres"])
def store(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


async def test_tasks_wait_submitted_in_line_and_are_begun_in_the_order_in_which_they_came(
    serve: Serve, transport: str
) -> None:
    puppet = Puppet()
    agent = await serve(puppet, limits=Limits(concurrent_runs=1, queued_runs=3))
    first, act = await begun(agent, puppet)
    waiting = [await begin(agent, f"number {number}") for number in range(3)]
    assert [state_of(task) for task in waiting] == ["SUBMITTED"] * 3
    with refused("Overloaded") as refusal:
        await agent.send("one too many")
    assert "1 tasks are at work here already, and 3 wait" in refusal.message
    assert puppet.runs == 1
    for number, task in enumerate(waiting):
        act.end()
        act = await puppet.next()
        assert act.turn.text == f"number {number}"
        await agent.until(task["id"], "WORKING")
    act.end()
    await agent.until(waiting[-1]["id"], "COMPLETED")
    assert state_of(await agent.get(first["id"])) == "COMPLETED"


@over("jsonrpc")
async def test_agent_that_asks_leaves_its_place_to_the_next_in_line(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet, limits=Limits(concurrent_runs=1, queued_runs=2))
    asking, act = await begun(agent, puppet)
    second, third = await begin(agent, "second"), await begin(agent, "third")
    act.tell(asks("Which one?"))
    other = await puppet.next()
    assert other.turn.text == "second"
    assert state_of(await agent.get(third["id"])) == "SUBMITTED"
    sending = asyncio.create_task(agent.task("left", taskId=asking["id"]))
    assert await act.results.get() == "left", "answers need no place"
    other.end()
    await agent.until(second["id"], "COMPLETED")
    assert puppet.runs == 2, "the one that was answered has its place again"
    act.end()
    assert state_of(await sending) == "COMPLETED"
    (await puppet.next()).end()
    await agent.until(third["id"], "COMPLETED")


async def test_task_is_cancelled_while_it_waits_and_its_agent_never_begins(serve: Serve, transport: str) -> None:
    puppet = Puppet()
    agent = await serve(puppet, limits=Limits(concurrent_runs=1, queued_runs=2))
    _, act = await begun(agent, puppet)
    second, third = await begin(agent, "second"), await begin(agent, "third")
    assert state_of(await agent.cancel(second["id"])) == "CANCELED"
    fourth = await begin(agent, "fourth")  # its place is free again
    act.end()
    for task, text in ((third, "third"), (fourth, "fourth")):
        act = await puppet.next()
        assert act.turn.text == text
        act.end()
        await agent.until(task["id"], "COMPLETED")
    assert puppet.runs == 3


@over("jsonrpc")
async def test_all_who_wait_can_be_cancelled_at_once(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet, limits=Limits(concurrent_runs=1, queued_runs=8))
    first, act = await begun(agent, puppet)
    waiting = [await begin(agent) for _ in range(8)]
    act.end()  # at the same time as all are cancelled: the next one may have been called already
    ended = await asyncio.gather(*(agent.cancel(task["id"]) for task in waiting))
    assert {state_of(task) for task in ended} == {"CANCELED"}
    await agent.until(first["id"], "COMPLETED")
    service = agent.app.services[""]
    assert (service.busy, len(service._line), service._of_callers) == (0, 0, {})
    task = await begin(agent)
    while (act := await puppet.next()).stopped.is_set():
        pass  # one that had begun when it was cancelled
    act.end()
    await agent.until(task["id"], "COMPLETED")


@over("jsonrpc", "rest", "grpc")
async def test_message_to_a_task_that_waits_is_kept_for_its_agent(serve: Serve, transport: str) -> None:
    puppet = Puppet()
    agent = await serve(puppet, limits=Limits(concurrent_runs=1, queued_runs=1))
    _, act = await begun(agent, puppet)
    waiting = await begin(agent, "one")
    await begin(agent, "two", taskId=waiting["id"])
    assert state_of(await agent.get(waiting["id"])) == "SUBMITTED"
    act.end()
    act = await puppet.next()
    assert act.turn.text == "one"
    act.tell(asks("And?"))
    assert await act.results.get() == "two"
    act.end()
    await agent.until(waiting["id"], "COMPLETED")


@over("jsonrpc", "grpc", "rest-0.3")
async def test_stream_of_a_task_that_waits_tells_submitted_then_the_work(serve: Serve, transport: str) -> None:
    puppet = Puppet()
    agent = await serve(puppet, limits=Limits(concurrent_runs=1, queued_runs=1))
    _, act = await begun(agent, puppet)
    stream = await agent.stream("next")
    task = (await stream.next())["task"]
    assert state_of(task) == "SUBMITTED"
    following = await agent.subscribe(task["id"])
    act.end()
    act = await puppet.next()
    act.tell("a word")
    act.end()
    for events in (await stream.rest(), await following.rest()):
        states = [state_of(event) for event in events if state_of(event)]
        assert states[-2:] == ["WORKING", "COMPLETED"]


@over("jsonrpc")
async def test_waiting_does_not_use_up_the_time_that_an_agent_has(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet, limits=Limits(concurrent_runs=1, queued_runs=1, run_s=0.4))
    first, act = await begun(agent, puppet)
    second = await begin(agent)
    assert state_of(await _ended(agent, first["id"])) == "FAILED"  # it has used up its own
    act = await puppet.next()
    act.end()
    await agent.until(second["id"], "COMPLETED")


async def _ended(agent: Transport, task_id: str) -> Json:
    await eventually(lambda: _has_ended(agent, task_id))
    return await agent.get(task_id)


async def _has_ended(agent: Transport, task_id: str) -> bool:
    return state_of(await agent.get(task_id)) in ("COMPLETED", "FAILED", "CANCELED")


@over("jsonrpc", "grpc")
async def test_server_that_stops_begins_nobody_who_waits_and_says_so(serve: Serve, transport: str) -> None:
    puppet = Puppet()
    agent = await serve(puppet, limits=Limits(concurrent_runs=1, queued_runs=1), drain_s=5)
    first, act = await begun(agent, puppet)
    waiting = await begin(agent)
    service = agent.app.services[""]
    draining = asyncio.create_task(service.drain(5))
    await asyncio.sleep(0)
    act.end()
    await draining
    assert puppet.runs == 1
    await service.close()
    await service.start()
    assert state_of(await agent.get(first["id"])) == "COMPLETED"
    task = await agent.get(waiting["id"])
    assert state_of(task) == "FAILED"
    assert "server stopped" in text_of(task["status"]["message"])


@over("jsonrpc")
async def test_resumable_agent_that_waited_when_its_server_stopped_is_begun_by_the_next(serve: Serve) -> None:
    puppet = Puppet(resumable=True)
    agent = await serve(puppet, limits=Limits(concurrent_runs=1, queued_runs=2))
    first, _ = await begun(agent, puppet, "first")
    second, third = await begin(agent, "second"), await begin(agent, "third")
    await serve.shut_down(agent)
    agent = await serve.restart(agent)
    texts = []
    for _ in range(3):
        act = await puppet.next()
        texts.append(act.turn.text)
        assert agent.app.services[""].busy == 1
        act.end()
    assert sorted(texts) == ["first", "second", "third"]
    for task in (first, second, third):
        await agent.until(task["id"], "COMPLETED")


@over("jsonrpc")
async def test_many_who_come_at_the_same_moment_are_not_more_at_work_than_there_may_be(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet, limits=Limits(concurrent_runs=2, queued_runs=3))

    async def one() -> str:
        try:
            return str(state_of(await begin(agent)))
        except Exception as refusal:
            return str(getattr(refusal, "reason", refusal))

    came = await asyncio.gather(*(one() for _ in range(12)))
    service = agent.app.services[""]
    assert (service.busy, len(service._line)) == (2, 3)
    assert sorted(came) == ["OVERLOADED"] * 7 + ["SUBMITTED"] * 3 + ["WORKING"] * 2
    for _ in range(5):
        (await puppet.next()).end()
    await eventually(lambda: _idle(agent))


async def _idle(agent: Transport) -> bool:
    return agent.app.services[""].busy == 0


async def test_each_caller_may_have_so_many_at_work_whichever_tenants_it_names(
    serve: Serve, transport: str, tmp_path: Path
) -> None:
    tokens = Tokens(tmp_path)
    ada, bob = (bearer(tokens.add(name)) for name in ("ada", "bob"))
    puppet = Puppet()
    agent = await serve(puppet, auth=Auth(BearerTokens(tokens.path)), limits=Limits(runs_per_caller=1, queued_runs=5))
    by_ada, by_bob = agent.showing(ada), agent.showing(bob)
    first, act = await begun(by_ada, puppet)
    with refused("RateLimited") as refusal:
        await by_ada.send("one too many")
    assert "1 of your tasks are at work already" in refusal.message
    if transport in ("jsonrpc", "rest", "grpc"):
        with refused("RateLimited"):
            await by_ada.send("by another name", tenant="acme")
    _, other = await begun(by_bob, puppet)
    act.end()
    await by_ada.until(first["id"], "COMPLETED")
    asking, act = await begun(by_ada, puppet)
    act.tell(asks("Which one?"))
    await by_ada.until(asking["id"], "INPUT_REQUIRED")
    _, third = await begun(by_ada, puppet)  # who waits for the caller is not at work
    for each in (other, third):
        each.end()
    await by_ada.cancel(asking["id"])
    await eventually(lambda: _idle(agent))
    assert agent.app.services[""]._of_callers == {}


@over("jsonrpc")
async def test_nothing_is_counted_that_is_over_however_it_ended(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet, limits=Limits(runs_per_caller=2, concurrent_runs=1, queued_runs=1))
    for steps in ([], [RuntimeError("oops")], [asks("What?")], ["a word"]):
        task, act = await begun(agent, puppet)
        queued = await begin(agent)
        with refused("Overloaded"):
            await agent.send("too many")
        act.tell(*steps)
        if steps and callable(steps[0]):
            await agent.until(task["id"], "INPUT_REQUIRED")
            await agent.cancel(task["id"])
        else:
            act.end()
        (await puppet.next()).end()
        await agent.until(queued["id"], "COMPLETED")
        await eventually(lambda: _idle(agent))
        assert agent.app.services[""]._of_callers == {}
