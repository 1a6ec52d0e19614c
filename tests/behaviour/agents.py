"""Agents whose tests decide when they go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from tests.behaviour.harness import Json, Transport
from tieline import Agent, Failed, Rejected, Turn, agent

__all__ = ["ENDS", "Act", "Puppet", "asks", "begun", "end", "ended", "hello", "make_agent", "says"]

Step = Callable[[Turn], Awaitable[Any]]


def make_agent(function: Any, **options: Any) -> Agent:
    """`@agent` with a name and a description that no test looks at."""
    made = agent(**{"name": "Tested", "description": "An agent under test.", **options})(function)
    assert isinstance(made, Agent)
    return made


async def hello(turn: Turn) -> str:
    """The least agent: one text, one artifact."""
    return f"Hello, {turn.text}!"


def says(text: str) -> Step:
    """A step: a status in state WORKING with these words."""
    return lambda turn: turn.status(text)


def asks(text: str) -> Step:
    """A step: a question to the caller; its answer is put into `act.results`."""
    return lambda turn: turn.ask(text)


class Act:
    """One run of a puppet, from `Puppet.next`.

    What it is told it does, one after the other: a coroutine function is called with the turn (`act.results` holds what
    it gave), an exception is raised, anything else is yielded.
    """

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.results: asyncio.Queue[Any] = asyncio.Queue()
        self.stopped = asyncio.Event()  # the agent has come to its end, of whatever kind
        self.cancelled = False  # by a cancellation
        self._steps: asyncio.Queue[Any] = asyncio.Queue()

    def tell(self, *steps: Step | BaseException | Any) -> None:
        """Have these steps done next."""
        for step in steps:
            self._steps.put_nowait(step)

    def end(self) -> None:
        """Have the agent return."""
        self.tell(_END)

    async def play(self) -> AsyncGenerator[Any, None]:
        try:
            while (step := await self._steps.get()) is not _END:
                if isinstance(step, BaseException):
                    raise step
                if callable(step):
                    self.results.put_nowait(await step(self.turn))
                else:
                    yield step
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        finally:
            self.stopped.set()


_END = object()


class Puppet:
    """An agent that does what its test tells it: `act = await puppet.next(); act.tell("a chunk"); act.end()`."""

    def __init__(self, **options: Any) -> None:
        self._acts: asyncio.Queue[Act] = asyncio.Queue()
        self.runs = 0  # how often it was started
        self.agent = make_agent(self._run, **options)

    async def _run(self, turn: Turn) -> AsyncGenerator[Any, None]:
        self.runs += 1
        act = Act(turn)
        self._acts.put_nowait(act)
        async for item in act.play():
            yield item

    async def next(self) -> Act:
        """The next run, when it has been started."""
        return await self._acts.get()


ENDS = ("COMPLETED", "FAILED", "CANCELED", "REJECTED")
"""The terminal states."""


async def begun(agent: Transport, puppet: Puppet, content: str = "go", **fields: Any) -> tuple[Json, Act]:
    """A task whose agent is at work, in state WORKING."""
    task = await agent.task(content, configuration={"returnImmediately": True}, **fields)
    return task, await puppet.next()


async def end(agent: Transport, task_id: str, act: Act, state: str) -> Json:
    """Bring a task that is at work to its end in `state`."""
    if state == "CANCELED":
        return await agent.cancel(task_id)
    if state == "COMPLETED":
        act.end()
    else:
        act.tell({"FAILED": Failed, "REJECTED": Rejected}[state]("It has to be so."))
    return await agent.until(task_id, state)


async def ended(agent: Transport, puppet: Puppet, state: str, **fields: Any) -> Json:
    """A task that has ended in `state`."""
    task, act = await begun(agent, puppet, **fields)
    return await end(agent, task["id"], act, state)
