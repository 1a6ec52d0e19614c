"""The echo agent with tieline; its texts are those of official_sdk.py, and one more.

    ticks N      N chunks, one every TICK_S, each of them what the monotonic clock shows as it is said

tieline serve benchmarks/tieline_echo.py
"""

from __future__ import annotations

import asyncio
import time

from tieline import Message, Turn, agent

TICK_S = 0.02


@agent(name="Echo", description="Echoes.")
async def echo(turn: Turn) -> str | Message | None:
    text = turn.text
    if text.startswith("msg"):
        return turn.reply(text)
    if text.startswith("hang"):
        await turn.status()
        await asyncio.Event().wait()
    if text.startswith("ticks"):
        async with turn.artifact("clock") as out:
            for _ in range(int(text.split()[1])):
                await out.write(repr(time.monotonic()))
                await asyncio.sleep(TICK_S)
        return None
    if not text.startswith(("stream", "chunks")):
        return text
    chunks = int(text.split()[1]) if text.startswith("chunks") else 10
    async with turn.artifact("answer") as out:
        for number in range(chunks):
            await out.write(f"chunk {number} of the answer", last=number == chunks - 1)
    return None
