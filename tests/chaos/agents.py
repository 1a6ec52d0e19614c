"""What the replicas serve: one agent twice, as one that goes on after a crash and as one that does not.

Its message is "talk N PAUSE" or "ask N PAUSE": N numbered chunks, PAUSE milliseconds before each. The one that asks
waits then for "answer N PAUSE", says that it was answered, and goes on with N chunks more.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator

import tieline
from tieline import Turn, agent

LEASE_S = 5.0
STORE = "TIELINE_CHAOS_STORE"
"""The variable of the environment that names the store."""


async def speak(turn: Turn) -> AsyncGenerator[str, None]:
    word, count, pause = turn.text.split()
    chunks, pause_s = int(count), int(pause) / 1000
    if word != "answer":  # else the turn that asked has died with its replica, and this is what came of it
        for number in range(chunks):
            await asyncio.sleep(pause_s)
            yield f"{number} "
        if word == "talk":
            return
        await turn.ask("Shall I go on?")
    yield "answered "
    for number in range(chunks, 2 * chunks):
        await asyncio.sleep(pause_s)
        yield f"{number} "


frail = agent(name="Frail", description="Its tasks fail with their replica.")(speak)
tough = agent(name="Tough", description="Its tasks go on elsewhere.", resumable=True)(speak)

if STORE in os.environ:
    app = tieline.app(
        {"frail": frail, "tough": tough}, store=os.environ[STORE], limits=tieline.Limits(lease_s=LEASE_S), drain_s=2.0
    )
