"""Callers that connect and vanish, in every way and in numbers: nothing of them stays in the process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

import tieline
from tests.engine.scene import within
from tests.faults.caller import Caller, calling, message
from tests.faults.process import LIMIT_S
from tests.server.raw import serve
from tieline import Turn, agent
from tieline.server.asgi import App

COUNT = 200
CHATTER_S = 0.05


class Scene:
    """An app with an agent whose tasks end when the test says so."""

    def __init__(self) -> None:
        self.finish = asyncio.Event()
        self.begun = 0

        @agent(name="Scene", description="chat, hold, ask or anything.")
        async def acts(turn: Turn) -> Any:
            self.begun += 1
            if turn.text == "chat":  # never silent for as long as a server would wait before it looks for its caller
                while not self.finish.is_set():
                    yield "on and on "
                    await asyncio.sleep(CHATTER_S)
            elif turn.text == "hold":
                yield "held"
                await self.finish.wait()
            elif turn.text == "ask":
                yield str(await turn.ask("Which?"))
            elif turn.text == "quiet":
                await self.finish.wait()
            else:
                yield "done"

        self.app: App = tieline.app(acts, keep_alive_s=0.2)
        (self.service,) = self.app.services.values()
        self.port = 0

    @property
    def at_work(self) -> int:
        return self.service.busy

    def left(self) -> dict[str, int]:
        """What there is beside agents at work."""
        return {
            "streams": len(self.app._streams),
            "cursors": sum(run.cursors for run in self.service.runs.values()),
            "runs": len(self.service.runs) - self.at_work,
            "tasks": len(asyncio.all_tasks()) - self.at_work,
        }


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    made = Scene()
    async with serve(made.app) as made.port:
        yield made


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what no event tells of, looking a hundred times a second; the test's own limit ends it."""
    while not condition():  # noqa: ASYNC110 - the app has no event for this, and needs none
        await asyncio.sleep(0.01)


Way = Callable[[Scene, Caller], Coroutine[Any, Any, None]]


async def says_nothing(here: Scene, caller: Caller) -> None:
    """Connects, and that is all."""


async def half_a_head(here: Scene, caller: Caller) -> None:
    caller._writer.write(b"POST /message:send HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Le")
    await asyncio.sleep(0)


async def half_a_body(here: Scene, caller: Caller) -> None:
    body = json.dumps(message("hold")).encode()
    head = b"POST /message:stream HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    caller._writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body[:20])
    await asyncio.sleep(0)


async def request_only(here: Scene, caller: Caller) -> None:
    """The whole request, and gone before the answer."""
    await caller.write("POST", "/message:stream", message("done"))


async def idle_stream(here: Scene, caller: Caller) -> None:
    await caller.stream("hold")
    await caller.next()


async def chatty_stream(here: Scene, caller: Caller) -> None:
    await caller.stream("chat")
    await caller.next()


async def quiet_stream(here: Scene, caller: Caller) -> None:
    """A stream whose agent has said nothing yet: there is no task."""
    await caller.stream("quiet")


async def blocking_send(here: Scene, caller: Caller) -> None:
    before = here.begun
    await caller.write("POST", "/message:send", message("hold"))
    await until(lambda: here.begun > before)


async def watched_question(here: Scene, caller: Caller) -> None:
    task = await caller.send("ask")
    await caller.subscribe(task["id"])
    await caller.next()
    async with calling(here.port) as other:
        await other.request("POST", f"/tasks/{task['id']}:cancel", {})


async def finished_stream(here: Scene, caller: Caller) -> None:
    await caller.stream("done")
    await caller.all()


WAYS = [
    says_nothing,
    half_a_head,
    half_a_body,
    request_only,
    idle_stream,
    chatty_stream,
    quiet_stream,
    blocking_send,
    watched_question,
    finished_stream,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@within(LIMIT_S)
async def test_clients_that_vanish_leave_no_stream_run_or_task_behind(way: Way) -> None:
    async with scene() as here:
        async with calling(here.port) as caller:  # the first use makes what stays: the store, a tick
            await caller.send("done")
        await until(lambda: not here.left()["runs"])
        before = here.left()

        async def come_and_go() -> None:
            async with calling(here.port) as caller:
                await way(here, caller)

        for _ in range(COUNT // len(WAYS) // 4):
            await asyncio.gather(*(come_and_go() for _ in range(4)))

        # The agents are still at work: nobody else may be.
        try:
            async with asyncio.timeout(5):
                await until(lambda: here.left() == {**before, "tasks": here.left()["tasks"]})
                await until(lambda: here.left()["tasks"] <= before["tasks"])
        except TimeoutError:
            pytest.fail(f"{here.left()} is left of what was {before}, with {here.at_work} agents at work")
        here.finish.set()
        await until(lambda: here.at_work == 0)
        await until(lambda: here.left() == before)
        assert here.service.runs == {}


@within(LIMIT_S)
async def test_two_hundred_clients_that_vanish_in_all_ways_at_once_leave_nothing_behind() -> None:
    async with scene() as here:
        async with calling(here.port) as caller:
            await caller.send("done")
        before = here.left()

        async def come_and_go(way: Way) -> None:
            async with calling(here.port) as caller:
                await way(here, caller)

        await asyncio.gather(*(come_and_go(WAYS[number % len(WAYS)]) for number in range(COUNT)))
        here.finish.set()
        await until(lambda: here.at_work == 0)
        await until(lambda: here.left() == before)
        assert here.service.runs == {}
