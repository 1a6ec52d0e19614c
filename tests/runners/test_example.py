"""examples/official_executor.py, under `tieline serve` and with the official SDK's own handler."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore
from google.protobuf.json_format import MessageToDict

from examples.official_executor import agent_card, executor
from tests.interop.processes import served_by_tieline
from tests.runners.calling import Caller, request, run, state, words


def test_example_counts_under_both(tmp_path: Path) -> None:
    async def under_tieline(caller: Caller) -> Any:
        asked = await caller.send("?")
        return await caller.send("hello"), asked, await caller.send("three little words", task_id=asked.id)

    async def under_the_sdk() -> Any:
        handler = DefaultRequestHandler(executor, InMemoryTaskStore(), agent_card)

        async def send(text: str, **fields: Any) -> Any:
            return await handler.on_message_send(request(text, **fields), ServerCallContext())

        asked = await send("?")
        answers = await send("hello"), asked, await send("three little words", task_id=asked.id)
        await handler.aclose()
        return answers

    with served_by_tieline("examples/official_executor.py", tmp_path) as url:
        ours = run(url, "JSONRPC", under_tieline)
    for hello, asked, counted in (ours, asyncio.run(under_the_sdk())):
        assert hello.parts[0].text == "Hello!"
        assert words(asked) == "What shall I count?"
        assert (state(counted), words(counted)) == ("COMPLETED", "3 words.")
        assert "".join(part.text for part in counted.artifacts[0].parts) == "1 three\n2 little\n3 words\n"
        assert MessageToDict(counted.artifacts[1].parts[0].data) == {"words": 3, "letters": 16}
