"""examples/interview.py."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import tieline
from examples.interview import QUESTIONS, interview
from tests.examples.calls import Agent, run
from tests.faults.process import Server
from tieline import Role, Task, TaskState

FILE = Path(__file__).resolve().parents[2] / "examples" / "interview.py"
TOLD = "Ada does mathematics, and likes this about it: it is never late"


def test_who_answers_three_questions_reads_what_they_said() -> None:
    async def scenario() -> None:
        async with Agent(interview) as agent:
            task = await agent.send("Hello")
            for answer in ("Ada", "mathematics", "it is never late"):
                assert task.state is TaskState.INPUT_REQUIRED
                task = await agent.send(answer, task=task)
            assert (task.state, task.text) == (TaskState.COMPLETED, TOLD)

    run(scenario())


def test_an_interview_goes_on_in_the_next_server_whenever_one_is_killed(tmp_path: Path) -> None:
    async def scenario() -> None:
        task: Task | None = None
        for answer in ("Hello", "Ada", "mathematics", "it is never late"):
            async with serving(tmp_path) as url, tieline.connect(url) as peer:
                rested = await peer.send(answer, task_id=task.id if task else None)
                assert isinstance(rested, Task)
                task = rested
        assert task is not None
        assert (task.state, task.text) == (TaskState.COMPLETED, TOLD)
        assert [message.text for message in task.history if message.role is Role.AGENT] == list(QUESTIONS)

    run(scenario())


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[str]:
    """The URL of a process that serves the example and is killed at the end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tieline", "serve", str(FILE), "--port", "0", "--store", f"sqlite:{folder}/tasks.db"),
        stderr=asyncio.subprocess.PIPE,
    )
    server = Server(process)
    try:
        yield (await server.says(r"Serving (\S+)"))[1]
    finally:
        await server.kill()
