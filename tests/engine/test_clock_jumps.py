"""A clock that is set forward or back while a server runs: nothing is lost, nothing goes out of order."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.engine.scene import CALLER, in_loop
from tests.replicas.scene import send, task_of
from tieline import Turn, agent
from tieline.engine.service import Service
from tieline.stores.base import Keep, Retention
from tieline.stores.sqlite import SQLiteStore
from tieline.types import ListTasksRequest, Task, TaskState

YEAR_NS = 365 * 24 * 3600 * 10**9
DAY = Retention(ttl_s=24 * 3600, logs=Keep(24 * 3600), messages=Keep(24 * 3600))


@agent(name="Echo")
async def echo(turn: Turn) -> Any:
    """Says what it is told."""
    yield turn.text


@pytest.mark.parametrize("jump_ns", [YEAR_NS, -YEAR_NS])
@in_loop
async def test_a_jump_makes_nothing_old_and_nothing_stand_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_ns: int
) -> None:
    store = SQLiteStore(tmp_path / "tasks.db", DAY)
    service = Service(echo, store)
    await service.start()
    message = send("before", id_="m-1")
    before = (await service.send_message(message, CALLER)).value
    assert isinstance(before, Task)

    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + jump_ns)
    after = (await service.send_message(send("after"), CALLER)).value
    assert isinstance(after, Task)
    assert after.state is TaskState.COMPLETED
    await service._prune()

    assert await task_of(service, before.id) == before
    assert (await service.send_message(message, CALLER)).value == before
    assert len(await store.events("0:/0:/", before.id, 0) or ()) == 4
    listed = await service.list_tasks(ListTasksRequest(), CALLER)
    assert [task.id for task in listed.tasks] == [after.id, before.id]
    await service.close()
    await store.close()
