"""What engine tests begin with: a loop with a time limit, a service around an agent, requests, and reading."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, ParamSpec

from tests.engine.gated import GatedStore
from tieline import agent
from tieline.engine.agent import AgentFunction
from tieline.engine.cursor import Cursor
from tieline.engine.service import Limits, Service
from tieline.engine.turn import Caller
from tieline.ids import new_id
from tieline.stores.base import Store
from tieline.stores.memory import MemoryStore
from tieline.types import (
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamEvent,
    Task,
    TaskStatusUpdateEvent,
)

CALLER = Caller()
LIMIT_S = 20.0

P = ParamSpec("P")


def within(limit_s: float) -> Callable[[Callable[P, Coroutine[Any, Any, None]]], Callable[P, None]]:
    """Run an async test in a loop of its own, for at most `limit_s` seconds."""

    def decorate(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
        @wraps(test)
        def limited(*args: P.args, **kwargs: P.kwargs) -> None:
            async def bounded() -> None:
                async with asyncio.timeout(limit_s):
                    await test(*args, **kwargs)

            asyncio.run(bounded())

        return limited

    return decorate


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an async test in a loop of its own, for at most `LIMIT_S` seconds."""
    return within(LIMIT_S)(test)


@asynccontextmanager
async def serving(
    function: AgentFunction, *, store: Store | None = None, limits: Limits | None = None, **options: Any
) -> AsyncIterator[Service]:
    """A started service around `function`, closed at the end."""
    kept = store or MemoryStore()
    made = agent(name="Scene", description="An agent of a test.", input_modes=("*/*",), **options)(function)
    service = Service(made, kept, limits=limits or Limits(cancel_s=2.0))
    await service.start()
    try:
        yield service
    finally:
        if isinstance(kept, GatedStore):
            kept.let_go()
        await service.close()
        await kept.close()


def says(
    text: str,
    *,
    task_id: str | None = None,
    at_once: bool = False,
    references: tuple[str, ...] = (),
    context_id: str | None = None,
) -> SendMessageRequest:
    """A request with one text part; `at_once` is returnImmediately."""
    message = Message(new_id(), Role.USER, (Part(text=text),), context_id, task_id, reference_task_ids=references)
    return SendMessageRequest(message, configuration=SendMessageConfiguration(return_immediately=at_once))


async def ask(service: Service, text: str, **options: Any) -> Task:
    """Send `text` and return the task that answers."""
    answer = (await service.send_message(says(text, **options), CALLER)).value
    assert isinstance(answer, Task)
    return answer


async def rest_of(cursor: Cursor) -> list[tuple[int, StreamEvent]]:
    """All that a cursor has still to give, with the numbers, up to its end; the cursor is closed then."""
    found: list[tuple[int, StreamEvent]] = []
    while True:
        number, events = cursor.take()
        found += [(number + index if number else 0, event.value) for index, event in enumerate(events)]
        if not events:
            if cursor.ended:
                break
            await cursor.wait()
    cursor.close()
    return found


async def next_of(cursor: Cursor) -> list[StreamEvent]:
    """What a cursor has ready, waiting for it if there is nothing."""
    while True:
        _, events = cursor.take()
        if events:
            return [event.value for event in events]
        if cursor.ended:
            return []
        await cursor.wait()


async def turns(count: int = 20) -> None:
    """Let everything that is ready go on for `count` turns of the loop."""
    for _ in range(count):
        await asyncio.sleep(0)


def states(events: list[tuple[int, StreamEvent]]) -> list[str]:
    """The states that a stream told, in order, without their prefix."""
    told = [event for _, event in events if isinstance(event, (Task, TaskStatusUpdateEvent))]
    return [event.status.state.value.removeprefix("TASK_STATE_") for event in told]
