"""Send Message (A2A 1.0 §3.1.1, §3.2.2)."""

from __future__ import annotations

import pytest

from tests.behaviour.agents import hello
from tests.behaviour.conftest import Serve
from tests.behaviour.harness import state_of, text_of


@pytest.mark.requirement("send.task-or-message")
async def test_agent_that_works_answers_with_one_task(serve: Serve) -> None:
    agent = await serve(hello)
    answer = await agent.send("Ada")
    assert list(answer) == ["task"]
    assert state_of(answer) == "COMPLETED"
    assert text_of(answer["task"]) == "Hello, Ada!"
