"""The puppet on Tieline: `tieline serve tests/interop/peers/tieline_agent.py`. What it does is said in puppet.py."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator
from typing import Any

from tests.interop.peers.puppet import DESCRIPTION, FILES, NAME, SKILL, TICK_S, WAIT_LIMIT_S
from tieline import AgentSkill, Artifact, Failed, Part, Rejected, Turn, agent

released: dict[str, asyncio.Event] = {}


@agent(
    name=NAME,
    description=DESCRIPTION,
    skills=(AgentSkill(id=SKILL, name=NAME, description=DESCRIPTION, tags=("test",)),),
    input_modes=("*/*",),
    output_modes=("text/plain", "application/json", "*/*"),
)
async def puppet(turn: Turn) -> AsyncGenerator[Any, None]:
    word, _, argument = (turn.parts[0].text or "").partition(" ")
    if word == "message":
        yield turn.reply(f"heard: {argument}")
        return
    if word == "release":
        released.setdefault(argument, asyncio.Event()).set()
        yield turn.reply("released")
        return
    if word == "ask":
        colour = await turn.ask("Which colour?")
        yield Artifact("result", (Part(text=f"colour: {colour}"),), "result")
        return
    await turn.status()
    match word:
        case "task":
            yield Artifact("result", (Part(text=f"done: {argument}"),), "result")
            await turn.complete("finished")
        case "fail":
            raise Failed(argument)
        case "hold":
            await wait(turn, asyncio.Event())
        case "stream":
            async with turn.artifact("count", artifact_id="count") as out:
                await out.write("1 ")
                await wait(turn, released.setdefault(argument, asyncio.Event()))
                for number in range(2, 6):
                    await out.write(f"{number} ", last=number == 5)
        case "files":
            yield Artifact("files", tuple(part_of(given) for given in FILES), "files")
        case "echo":
            yield Artifact("echo", turn.parts[1:], "echo")
        case "describe":
            seen = (
                f"{part.url or (part.raw or b'').hex()} {part.filename} {part.media_type}" for part in turn.parts[1:]
            )
            yield Artifact("seen", tuple(Part(text=f"{line}\n") for line in seen), "seen")
        case "numbers":
            text = Part(text=json.dumps(turn.data, sort_keys=True))
            yield Artifact("numbers", (Part(data=turn.data), text), "numbers")
        case _:
            raise Rejected(f"What is {word!r}?")


async def wait(turn: Turn, event: asyncio.Event) -> None:
    async with asyncio.timeout(WAIT_LIMIT_S):
        while not event.is_set():
            await turn.status("waiting")
            try:
                await asyncio.wait_for(event.wait(), TICK_S)
            except TimeoutError:
                continue


def part_of(given: dict[str, Any]) -> Part:
    raw = base64.b64decode(given["raw"]) if "raw" in given else None
    return Part(raw=raw, url=given.get("url"), filename=given["name"], media_type=given["type"])
