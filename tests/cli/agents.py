"""The agent that the command talks to in these tests, served by `tieline serve` as a process of its own.

The first word of a message says what to do. `hold NAME` works until `release NAME` comes, so that no test has to sleep.
"""

from __future__ import annotations

import asyncio
import base64
from collections import defaultdict

import msgspec

from tieline import Answer, Artifact, Failed, Part, Rejected, Turn, agent
from tieline.types import encode

GATES: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
BYTES = bytes(range(256))


@agent(name="Command test", description="Does what the first word says.", input_modes=("*/*",), task_after_s=None)
async def tester(turn: Turn):  # type: ignore[no-untyped-def]
    word, _, rest = turn.text.partition(" ")
    if word == "reply":
        yield turn.reply(f"direct: {rest}")
    elif word == "release":
        GATES[rest].set()
        yield turn.reply(f"released {rest}")
    elif word == "hold":
        await turn.status("holding\nthe line")
        yield "before "
        await GATES[rest].wait()
        yield "and after"
    elif word == "ask":
        name: Answer = await turn.ask("Who are you?")
        yield f"Hello, {name}!"
    elif word == "authorize":
        await turn.authorize("Sign in at https://login.example")
        yield "signed in"
    elif word == "fail":
        raise Failed("it broke")
    elif word == "reject":
        raise Rejected("not for me")
    elif word == "chunks":
        for chunk in ("one ", "two\n", "\n", "State: three"):
            yield chunk
    elif word == "hostile":
        yield "red \x1b[31m bell \x07 c1 \x9b2J over\rwritten \u202eesrever"
    elif word == "files":
        await files(turn)
    elif word == "links":
        for number, url in enumerate(rest.split()):
            yield Artifact(f"a{number}", (Part(url=url, filename=f"f{number}"),), name=f"link {number}")
        yield Artifact("last", (Part(text="last"), Part(text="{}", media_type="application/json")), name="last.txt")
    elif word == "link":
        async with turn.artifact("link") as out:
            await out.write(Part(url=rest, filename="fetched.json"))
    else:
        yield {"parts": [described(part) for part in turn.parts], "references": [t.id for t in turn.references]}


async def files(turn: Turn) -> None:
    async with turn.artifact("report.csv", media_type="text/csv") as out:
        await out.write(b"a,b\n")
        await out.write(b"1,2\n")
    async with turn.artifact("notes") as out:
        await out.write("first ")
        await out.write("second")
    async with turn.artifact("numbers") as out:
        await out.write({"big": 12345678901234567890123, "none": None, "float": 1.0})
    async with turn.artifact("photo", media_type="image/png") as out:
        await out.write(Part(raw=BYTES, filename="../../../etc/photo.png", media_type="image/png"))
    async with turn.artifact("link") as out:
        await out.write(Part(url="https://files.example/a.pdf", filename="a.pdf", media_type="application/pdf"))


def described(part: Part) -> dict[str, object]:
    """A part as the test reads it back."""
    value: dict[str, object] = msgspec.json.decode(encode(part))
    if part.raw is not None:
        value["raw"] = base64.b64encode(part.raw).decode()
    return value
