"""Agents for behind a proxy: one that the test lets on step by step, one that takes and gives files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from typing import Any

from tieline import Agent, App, Part, Turn, agent

__all__ = ["Gate", "Seen", "echo", "stepping"]

Scope = MutableMapping[str, Any]
Step = Callable[[], Awaitable[MutableMapping[str, Any]]]
Told = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Gate:
    """What the agent waits for before each step."""

    def __init__(self) -> None:
        self._steps = asyncio.Semaphore(0)

    def let(self, steps: int = 1) -> None:
        for _ in range(steps):
            self._steps.release()

    async def wait(self) -> None:
        await self._steps.acquire()


def stepping(gate: Gate) -> Agent:
    """Says the numbers from 0 up to that of the message, and waits behind each of them."""

    @agent(name="Stepping", description="Counts as it is let.")
    async def count(turn: Turn) -> AsyncGenerator[str, None]:
        for number in range(int(turn.text)):
            yield f"{number} "
            await gate.wait()

    return count


@agent(
    name="Echo",
    description="Gives back what it is given.",
    input_modes=("text/plain", "application/octet-stream"),
    output_modes=("text/plain", "application/octet-stream"),
)
async def echo(turn: Turn) -> AsyncGenerator[Any, None]:
    for part in turn.parts:
        yield Part(raw=part.raw, media_type=part.media_type) if part.raw is not None else (part.text or "")


class Seen:
    """An app, and the headers with which it was called."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.headers: list[list[tuple[str, str]]] = []

    async def __call__(self, scope: Scope, receive: Step, send: Told) -> None:
        self.headers.append([(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]])
        await self.app(scope, receive, send)

    def last(self, name: str) -> list[str]:
        """The values of a header in the last call."""
        return [value for found, value in self.headers[-1] if found == name]
