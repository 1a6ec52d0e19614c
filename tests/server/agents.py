"""Agents for tests of the server: each does one thing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from tieline import Agent, Failed, Message, Rejected, Turn, agent


def replier(**options: Any) -> Agent:
    """Answers with a direct Message: the text it got."""

    @agent(name="Replier", description="Says it back.", **options)
    async def function(turn: Turn) -> Message:
        return turn.reply(turn.text or "nothing")

    return function


def worker(**options: Any) -> Agent:
    """Makes a task: says that it works, then writes two chunks of the text it got."""

    @agent(name="Worker", description="Works.", **options)
    async def function(turn: Turn) -> AsyncGenerator[Any, None]:
        await turn.status("working")
        yield "did "
        yield turn.text

    return function


def asker() -> Agent:
    """Asks a question, and says the answer back."""

    @agent(name="Asker", description="Asks.")
    async def function(turn: Turn) -> AsyncGenerator[Any, None]:
        yield f"you said {await turn.ask('What?')}"

    return function


def mixed() -> Agent:
    """Does what the text says: reply, work, ask, authorize, reject, fail, crash, invalid or wait."""

    @agent(name="Mixed", description="Does what it is told.", input_modes=("*/*",))
    async def function(turn: Turn) -> AsyncGenerator[Any, None]:
        match turn.text.partition(" ")[0]:
            case "reply":
                yield turn.reply("replied")
            case "ask":
                yield f"you said {await turn.ask('What?')}"
            case "authorize":
                yield f"you granted {await turn.authorize('Please allow it.')}"
            case "reject":
                raise Rejected("no")
            case "fail":
                raise Failed("cannot")
            case "crash":
                raise RuntimeError("secret detail")
            case "invalid":
                yield object()
            case "wait":
                await turn.status("waiting")
                await asyncio.Event().wait()
            case "echo":
                for part in turn.parts:
                    yield part
            case _:
                yield "worked"

    return function
