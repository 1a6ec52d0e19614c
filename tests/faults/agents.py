"""What the processes of these tests serve: one agent that does what its message says."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from tieline import Turn, agent

PAUSE_S = 0.02  # between two pieces of a talk: a stream is long enough to be in the middle of it
RELEASED = asyncio.Event()


@agent(
    name="Does as told", description="talk N, ask, authorize, hold, big N BYTES, cling, block, say TEXT, release, spin."
)
async def told(turn: Turn) -> Any:
    word, *rest = turn.text.split()
    if word == "talk":  # N pieces with a pause behind each
        for number in range(int(rest[0])):
            yield f"{number} "
            await asyncio.sleep(PAUSE_S)
    elif word == "ask":
        yield f"got {await turn.ask('Which?')}"
    elif word == "authorize":
        yield f"got {await turn.authorize('May I?')}"
    elif word == "hold":  # until the release
        yield "held"
        await RELEASED.wait()
        yield ", released"
    elif word == "big":  # N pieces of BYTES behind the release
        yield "begun"
        await RELEASED.wait()
        for number in range(int(rest[0])):
            yield f"{number} ".ljust(int(rest[1]), ".")
    elif word == "cling":  # whatever is done to it
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue
    elif word == "block":  # a thread that nothing can stop
        await asyncio.to_thread(threading.Event().wait)
    elif word == "release":
        RELEASED.set()
        yield "done"
    else:
        yield f"{turn.text}, after {len(turn.history)} messages"
