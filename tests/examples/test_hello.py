"""examples/hello.py."""

from __future__ import annotations

from examples.hello import hello
from tests.examples.calls import Agent, run
from tieline import TaskState


def test_who_names_themselves_is_greeted() -> None:
    async def scenario() -> None:
        async with Agent(hello) as agent:
            task = await agent.send("Ada")
            assert (task.state, task.text) == (TaskState.COMPLETED, "Hello, Ada!")

    run(scenario())


def test_who_says_nothing_is_asked_first() -> None:
    async def scenario() -> None:
        async with Agent(hello) as agent:
            task = await agent.send(" ")
            assert task.state is TaskState.INPUT_REQUIRED
            assert task.status.message is not None
            assert task.status.message.text == "Who are you?"
            task = await agent.send("Grace", task=task)
            assert (task.state, task.text) == (TaskState.COMPLETED, "Hello, Grace!")

    run(scenario())
