"""What docs/grpc.md shows in Python is what happens."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import grpc
import pytest
from a2a.types import a2a_pb2_grpc
from a2a.types.a2a_pb2 import GetTaskRequest

from tests.grpc.serving import LIMIT_S, eventually, run, said

PAGE = Path(__file__).resolve().parents[2] / "docs" / "grpc.md"
STUB: Any = a2a_pb2_grpc.A2AServiceStub


def test_a_server_in_a_loop_of_its_own_keeps_its_tasks_in_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1
    printed: list[str] = []
    names: dict[str, Any] = {"__name__": "page", "print": printed.append}
    exec(compile(blocks[0], str(PAGE), "exec"), names)

    async def check() -> None:
        stop = asyncio.Event()
        serving = asyncio.ensure_future(names["main"](stop))
        await eventually(lambda: printed or serving.done())
        assert not serving.done(), serving.exception()
        address = printed[0].split()[-1]
        async with grpc.aio.insecure_channel(address) as channel:
            answer = await STUB(channel).SendMessage(said("Hello", context_id="c"))
            assert answer.task.artifacts[0].parts[0].text == "Hello"
            assert (await STUB(channel).GetTask(GetTaskRequest(id=answer.task.id))).id == answer.task.id
        stop.set()
        async with asyncio.timeout(LIMIT_S):
            await serving
        assert (tmp_path / "tasks.db").stat().st_size > 0

    run(check())
