"""The smallest agent that holds a conversation.

tieline serve examples/hello.py
tieline send -a 127.0.0.1:8000 "Ada"
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from tieline import Turn, agent


@agent(name="Hello", description="Greets people.")
async def hello(turn: Turn) -> AsyncGenerator[str, None]:
    # A question is a line like any other: the task waits in INPUT_REQUIRED until the caller's next message.
    name = turn.text.strip() or (await turn.ask("Who are you?")).strip()
    yield f"Hello, {name}!"
