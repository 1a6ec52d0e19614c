"""`tieline serve` as a process, with what it has said."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.interop.processes import TIELINE, free_port, running

__all__ = ["AGENT", "served"]

AGENT = """
from tieline import Turn, agent

@agent(name="Who", description="Says who calls.")
async def who(turn: Turn):
    if turn.text == "wait":
        await turn.ask("What?")
    yield f"{turn.caller.principal} in {turn.caller.tenant!r}"
"""


@contextlib.contextmanager
def served(folder: Path, *words: str, agent: str = AGENT, grpc: bool = False) -> Iterator[tuple[int, int, Path]]:
    """The ports of HTTP and gRPC of an agent that is served with these options, and the log."""
    (folder / "who.py").write_text(agent)
    port, by_grpc = free_port(), free_port() if grpc else 0
    log = folder / f"serve-{port}.log"
    options = ["--port", str(port), "--store", "memory", *(("--grpc-port", str(by_grpc)) if grpc else ())]
    with running([TIELINE, "serve", "who.py", *options, *words], port, log, folder):
        yield port, by_grpc, log
