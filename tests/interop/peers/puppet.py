"""The puppet: what every server of the interop suite does, whatever it is built with.

The first word of a message's first part says what to do, the rest of that text is its argument ARG:

    message ARG     a Message: "heard: ARG"
    task ARG        WORKING; artifact "result" with the text "done: ARG"; COMPLETED with the words "finished"
    fail ARG        WORKING; FAILED with the words ARG
    stream KEY      artifact "count" in five chunks, "1 " to "5 ", then COMPLETED. Behind the first chunk it says
                    "waiting" (WORKING) every TICK_S until someone has sent "release KEY": so a caller that releases it
                    only when the first chunk is there shows that the stream is live, and one that joins late sees it
    release KEY     a Message: "released"
    ask             INPUT_REQUIRED with the words "Which colour?"; the task's next message, whatever it says, is the
                    answer: artifact "result" with the text "colour: ANSWER", then COMPLETED
    hold            says "waiting" (WORKING) every TICK_S until it is cancelled; CANCELED
    files           artifact "files": the bytes 0 to 255 as "bytes ü 🦊.bin" of type application/octet-stream, and
                    FILE_URL as "picture.png" of type image/png; COMPLETED
    echo            artifact "echo" with the message's other parts as they came; COMPLETED
    describe        artifact "seen" with a line of text for each of the other parts, which are files: the bytes in hex
                    or the URL, the name, the type; COMPLETED
    numbers         artifact "numbers": the data of the second part as it came, and behind it as text the JSON that the
                    agent makes of it, with sorted keys; COMPLETED

Here it is written once for the servers in Python; puppet.mjs is the same in JavaScript, tieline_agent.py on Tieline.
A server that knows no Message as an answer makes a task of it. Parts are dicts: {"text"}, {"data"}, or {"raw"} (base64)
or {"url"} with "name" and "type".
"""

from __future__ import annotations

import asyncio
import base64
import json
from abc import ABC, abstractmethod
from typing import Any

__all__ = ["DESCRIPTION", "FILES", "NAME", "SKILL", "TICK_S", "WAIT_LIMIT_S", "Puppet", "Stage", "described"]

NAME = "Puppet"
DESCRIPTION = "Does what it is told."
SKILL = "puppet"

FILE_URL = "https://files.example/a%20picture.png?size=1&name=%C3%BC"
FILES: list[dict[str, Any]] = [
    {
        "raw": base64.b64encode(bytes(range(256))).decode(),
        "name": "bytes ü 🦊.bin",
        "type": "application/octet-stream",
    },
    {"url": FILE_URL, "name": "picture.png", "type": "image/png"},
]

TICK_S = 0.1
WAIT_LIMIT_S = 10.0  # nobody waits for ever for a caller that is gone


class Stage(ABC):
    """One run of the puppet on some SDK: how it says things there."""

    parts: list[dict[str, Any]]  # of the message
    answers: bool = False  # the message answers the question of an earlier run of the same task

    @abstractmethod
    async def reply(self, text: str) -> None:
        """Answer with a Message."""

    @abstractmethod
    async def status(self, state: str, words: str = "") -> None:
        """Give a status: the specification's name of the state without its prefix, "WORKING"."""

    @abstractmethod
    async def artifact(
        self, name: str, parts: list[dict[str, Any]], *, append: bool = False, last: bool = True
    ) -> None:
        """Give an artifact, or a chunk of it; its name is its id."""

    @abstractmethod
    async def begin(self) -> None:
        """Make the task where there is none."""


def described(part: dict[str, Any]) -> str:
    content = base64.b64decode(part["raw"]).hex() if part.get("raw") is not None else part.get("url")
    return f"{content} {part.get('name')} {part.get('type')}\n"


class Puppet:
    """All runs of one server; `run` is called for each message."""

    def __init__(self) -> None:
        self._released: dict[str, asyncio.Event] = {}

    async def run(self, stage: Stage) -> None:
        text = str(stage.parts[0].get("text", ""))
        word, _, argument = text.partition(" ")
        if stage.answers:
            word, argument = "colour", text
        if word == "message":
            await stage.reply(f"heard: {argument}")
        elif word == "release":
            self._key(argument).set()
            await stage.reply("released")
        else:
            await stage.begin()
            await self._work(stage, word, argument)

    async def _work(self, stage: Stage, word: str, argument: str) -> None:
        if word == "ask":
            await stage.status("INPUT_REQUIRED", "Which colour?")
            return
        await stage.status("WORKING")
        if word == "task":
            await stage.artifact("result", [{"text": f"done: {argument}"}])
            await stage.status("COMPLETED", "finished")
            return
        if word == "fail":
            await stage.status("FAILED", argument)
            return
        if word == "hold":
            await self._wait(stage, asyncio.Event())
            return
        if word == "stream":
            await stage.artifact("count", [{"text": "1 "}], last=False)
            await self._wait(stage, self._key(argument))
            for number in range(2, 6):
                await stage.artifact("count", [{"text": f"{number} "}], append=True, last=number == 5)
        elif word == "colour":
            await stage.artifact("result", [{"text": f"colour: {argument}"}])
        elif word == "files":
            await stage.artifact("files", FILES)
        elif word == "echo":
            await stage.artifact("echo", stage.parts[1:])
        elif word == "describe":
            await stage.artifact("seen", [{"text": described(part)} for part in stage.parts[1:]])
        elif word == "numbers":
            heard = stage.parts[1]["data"]
            await stage.artifact("numbers", [{"data": heard}, {"text": json.dumps(heard, sort_keys=True)}])
        else:
            await stage.status("REJECTED", f"What is {word!r}?")
            return
        await stage.status("COMPLETED")

    async def _wait(self, stage: Stage, event: asyncio.Event) -> None:
        async with asyncio.timeout(WAIT_LIMIT_S):
            while not event.is_set():
                await stage.status("WORKING", "waiting")
                try:
                    await asyncio.wait_for(event.wait(), TICK_S)
                except TimeoutError:
                    continue

    def _key(self, key: str) -> asyncio.Event:
        return self._released.setdefault(key, asyncio.Event())
