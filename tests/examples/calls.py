"""Calling an example agent in this process, through the operations of its service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

import tieline
from tieline.engine.service import Service
from tieline.engine.turn import Caller
from tieline.ids import new_id
from tieline.types import (
    Artifact,
    CancelTaskRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamEvent,
    Task,
)

__all__ = ["Agent", "answer_of", "artifact", "run"]

LIMIT_S = 60.0

T = TypeVar("T")
CALLER = Caller()


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """What `coroutine` returns; TimeoutError when it takes too long."""
    return asyncio.run(asyncio.wait_for(coroutine, LIMIT_S))


class Agent:
    """An agent in this process. `async with Agent(table) as agent: task = await agent.send("amount", file)`."""

    def __init__(self, agent: tieline.Agent, store: str = "memory") -> None:
        self._app = tieline.app(agent, store=store)

    async def __aenter__(self) -> Agent:
        await self._app.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._app.close()

    @property
    def service(self) -> Service:
        return self._app.services[""]

    async def send(self, *content: str | bytes | Part, task: Task | None = None) -> Task:
        """Send a message, on to `task` if one is given; the task as it rests or ends."""
        answer = (await self.service.send_message(_request(content, task), CALLER)).value
        assert isinstance(answer, Task)
        return answer

    async def stream(self, *content: str | bytes | Part) -> AsyncIterator[StreamEvent]:
        """Send a message and give the events as they come."""
        cursor = await self.service.send_streaming_message(_request(content, None), CALLER)
        try:
            while not cursor.ended:
                await cursor.wait()
                for event in cursor.take()[1]:
                    yield event.value
        finally:
            cursor.close()

    async def cancel(self, task_id: str) -> Task:
        return (await self.service.cancel_task(CancelTaskRequest(task_id), CALLER)).value


def _request(content: tuple[str | bytes | Part, ...], task: Task | None) -> SendMessageRequest:
    parts = tuple(_part(item) for item in content)
    return SendMessageRequest(Message(new_id(), Role.USER, parts, task_id=task.id if task else None))


def _part(content: str | bytes | Part) -> Part:
    if isinstance(content, Part):
        return content
    if isinstance(content, str):
        return Part(text=content)
    return Part(raw=content, filename="table.csv", media_type="text/csv")


def answer_of(task: Task) -> Any:
    """The data of the artifact "response"."""
    return artifact(task, "response").parts[0].data


def artifact(task: Task, name: str) -> Artifact:
    """The one artifact with this name."""
    (found,) = (one for one in task.artifacts if one.name == name)
    return found
