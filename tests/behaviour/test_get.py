"""Get Task (A2A 1.0 §3.1.3, §3.3.1)."""

from __future__ import annotations

import pytest

from tests.behaviour.agents import ENDS, Puppet, asks, begun, ended, hello, says
from tests.behaviour.harness import eventually, refused, state_of, text_of
from tests.behaviour.serving import Serve, by_tenants, every_store, not_over


@every_store
@pytest.mark.requirement("get.current-state", "get.idempotent")
async def test_task_is_read_as_it_is_now_while_it_goes_on(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await begun(agent, puppet)
    assert [text_of(m) for m in task["history"]] == ["go"]
    assert "artifacts" not in task

    act.tell("one ", says("half way"))

    async def is_half_way() -> bool:
        return "message" in (await agent.get(task["id"]))["status"]

    await eventually(is_half_way)
    now = await agent.get(task["id"])
    assert (state_of(now), text_of(now), text_of(now["status"]["message"])) == ("WORKING", "one ", "half way")
    assert await agent.get(task["id"]) == now

    act.tell("two", asks("More?"))
    now = await agent.until(task["id"], "INPUT_REQUIRED")
    assert (text_of(now), text_of(now["status"]["message"])) == ("one two", "More?")

    await agent.send("no", taskId=task["id"], configuration={"returnImmediately": True})
    act.end()
    now = await agent.until(task["id"], "COMPLETED")
    assert [text_of(m) for m in now["history"]] == ["go", "More?", "no"]
    assert text_of(now) == "one two"
    assert await agent.get(task["id"]) == now


@every_store
@pytest.mark.requirement("get.current-state", "model.task-states")
@pytest.mark.parametrize("state", ENDS)
async def test_ended_task_is_read_in_the_state_in_which_it_ended(serve: Serve, state: str) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task = await ended(agent, puppet, state)
    assert state_of(task) == state
    assert await agent.get(task["id"]) == task


@every_store
@pytest.mark.requirement("get.idempotent")
async def test_reading_changes_nothing(serve: Serve) -> None:
    agent = await serve(hello)
    task = await agent.task()
    await agent.task()
    listed = await agent.list(includeArtifacts=True)
    for _ in range(3):
        assert await agent.get(task["id"]) == task
        assert await agent.list(includeArtifacts=True) == listed


@every_store
@pytest.mark.requirement("get.unknown-task-refused", "resource.not-found")
@pytest.mark.parametrize(
    "task_id",
    [
        *("no-such-task", "00000000-0000-4000-8000-000000000000", "ä ö?&#%", "a:cancel", "x" * 5000),
        pytest.param("a/b", marks=not_over("grpc-0.3", why="a slash parts the names of resources")),
    ],
)
async def test_task_that_is_not_there_is_not_found(serve: Serve, task_id: str) -> None:
    agent = await serve(hello)
    with refused("TaskNotFoundError"):
        await agent.get(task_id)


@by_tenants
@every_store
@pytest.mark.requirement("get.unknown-task-refused", "resource.not-found")
async def test_task_of_another_tenant_is_not_found(serve: Serve) -> None:
    agent = await serve(hello)
    task = await agent.as_tenant("one").task()
    assert await agent.as_tenant("one").get(task["id"]) == task
    with refused("TaskNotFoundError"):
        await agent.as_tenant("two").get(task["id"])
    with refused("TaskNotFoundError"):
        await agent.get(task["id"])
