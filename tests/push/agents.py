"""The agent that the servers of test_processes.py serve: it counts, in its own time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator

import tieline
from tieline import Limits, Turn, agent
from tieline.engine.guard import Guard
from tieline.engine.push import Push

STORE = "TIELINE_TEST_STORE"
GIVE_UP_S = "TIELINE_TEST_GIVE_UP_S"
EVENTS = 20


@agent(name="Counter", description="Counts.")
async def counter(turn: Turn) -> AsyncGenerator[str, None]:
    for number in range(EVENTS):
        await turn.status(f"{number} of {EVENTS}")
        yield f"{number} "
        await asyncio.sleep(0.05)


if STORE in os.environ:
    app = tieline.app(
        counter,
        store=os.environ[STORE],
        limits=Limits(lease_s=5),
        drain_s=0,
        push=Push(
            guard=Guard(allow_loopback=True),
            first_pause_s=0.01,
            longest_pause_s=0.04,
            timeout_s=0.5,
            give_up_s=float(os.environ.get(GIVE_UP_S, "60")),
        ),
    )
