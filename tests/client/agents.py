"""An agent of ours that does what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from tieline import Artifact, Failed, Rejected, Turn, agent

__all__ = ["obeys"]


@agent(name="Tested", description="Does what its message says.", input_modes=("*/*",))
async def obeys(turn: Turn) -> AsyncGenerator[Any, None]:
    match turn.text.partition(" ")[0]:
        case "reply":
            yield turn.reply("a reply", metadata={"of": turn.message.message_id})
        case "ask":
            answer = await turn.ask("Who are you?")
            yield f"Hello, {answer}!"
        case "authorize":
            await turn.authorize("May I?")
            yield "done"
        case "count":
            for number in range(int(turn.text.split()[1])):
                yield f"<{number}>"
                await asyncio.sleep(0)
        case "echo":
            yield Artifact("echo", turn.parts, "Echo", metadata=turn.metadata or None, extensions=("u:x",))
        case "fail":
            raise Failed("It broke.")
        case "reject":
            raise Rejected("Not this.")
        case "close":
            await turn.complete("All done.")
        case "hang":
            await turn.status("waiting")
            await asyncio.Event().wait()
        case "seen":
            yield {
                "context": turn.context_id,
                "references": [task.id for task in turn.references],
                "accepts": list(turn.accepts),
                "extensions": list(turn.caller.extensions),
                "tenant": turn.caller.tenant,
            }
        case _:
            yield f"Hello, {turn.text}!"
