"""A task begun over one transport, in one version of the protocol, and carried on over every other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.behaviour.agents import ENDS, Puppet, asks, begun, end, ended
from tests.behaviour.harness import Json, Transport, state_of, text_of
from tests.behaviour.serving import TRANSPORTS, Serve, over, version_of


def every(agent: Transport) -> list[tuple[Transport, dict[str, str]]]:
    """The agent over each transport, with the service parameters that name its version: tasks/get is several ones'."""
    return [(agent.over(name), {"A2A-Version": version_of(name)}) for name in TRANSPORTS]


def told(task: Json) -> Json:
    """A task without the mark that says in which version it was begun."""
    return {name: value for name, value in task.items() if name != "metadata"}


@pytest.mark.parametrize("state", ENDS)
async def test_task_begun_over_one_transport_is_the_same_over_every_other(serve: Serve, state: str) -> None:
    puppet = Puppet()
    agent = await serve(puppet, by_grpc=True)
    task, act = await begun(agent, puppet)
    act.tell("so far", asks("Which one?"))
    asked = await agent.until(task["id"], "INPUT_REQUIRED")
    for other, service in every(agent):
        assert told(await other.get(task["id"], service=service)) == told(asked)
    await agent.send("left", taskId=task["id"], configuration={"returnImmediately": True})
    done = await end(agent, task["id"], act, state)
    for other, service in every(agent):
        assert told(await other.get(task["id"], service=service)) == told(done)


@over("grpc-0.3", "jsonrpc-0.1")
@pytest.mark.parametrize("state", ENDS)
async def test_subscriber_to_an_ended_task_is_given_the_task_where_older_peers_expect_it(
    serve: Serve, state: str
) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task = await ended(agent, puppet, state)
    stream = await agent.subscribe(task["id"])
    assert [told(event["task"]) for event in await stream.rest()] == [told(task)]


@pytest.mark.parametrize("name", TRANSPORTS)
async def test_question_is_answered_over_another_transport_than_the_one_that_it_was_asked_over(
    serve: Serve, name: str
) -> None:
    puppet = Puppet()
    agent = await serve(puppet, by_grpc=True)
    task, act = await begun(agent, puppet)
    act.tell(asks("Which one?"))
    await agent.until(task["id"], "INPUT_REQUIRED")
    sending = asyncio.create_task(agent.over(name).task("left", taskId=task["id"]))
    assert await act.results.get() == "left"
    act.tell("the left one")
    act.end()
    done = await sending
    assert (done["id"], done["contextId"], state_of(done)) == (task["id"], task["contextId"], "COMPLETED")
    assert [text_of(m) for m in done["history"]] == ["go", "Which one?", "left"]
    assert told(await agent.get(task["id"])) == told(done)


@pytest.mark.parametrize("name", TRANSPORTS)
async def test_task_is_followed_and_cancelled_over_another_transport_than_it_was_begun_over(
    serve: Serve, name: str
) -> None:
    puppet = Puppet()
    agent = await serve(puppet, by_grpc=True)
    task, act = await begun(agent, puppet)
    other, service = next(pair for pair in every(agent) if pair[0].name == name)
    stream = await other.subscribe(task["id"], service=service)
    snapshot: Any = (await stream.next())["task"]
    assert (snapshot["id"], state_of(snapshot)) == (task["id"], "WORKING")
    act.tell("a chunk")
    assert text_of((await stream.next())["artifactUpdate"]["artifact"]) == "a chunk"
    cancelled = await other.cancel(task["id"], service=service)
    assert (state_of(cancelled), text_of(cancelled)) == ("CANCELED", "a chunk")
    assert [state_of(event) for event in await stream.rest()] == ["CANCELED"]
    assert told(await agent.get(task["id"])) == told(cancelled)
