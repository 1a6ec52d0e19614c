"""`kill -9`: what a caller was told is there after a restart, and no task says WORKING for ever."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.engine.scene import within
from tests.faults.caller import Told, calling
from tests.faults.process import LIMIT_S, serving

STREAMS = 200
PIECES = 400  # of a talk: far more than are told before the end comes
TOLD = 3000  # events that all callers together have got when it comes


@pytest.mark.requirement("async.work-goes-on", over=("rest",))
@within(LIMIT_S)
async def test_after_kill_9_in_the_middle_of_200_streams_nothing_that_was_told_is_missing(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'tasks.db'}"
    told: list[list[Told]] = [[] for _ in range(STREAMS)]
    named: list[str] = []  # by answers that came at once
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(store))
        callers = [await stack.enter_async_context(calling(server.port)) for _ in range(STREAMS)]
        await asyncio.gather(*(caller.stream(f"talk {PIECES}") for caller in callers))
        readers = [
            asyncio.ensure_future(caller.until_cut(events)) for caller, events in zip(callers, told, strict=True)
        ]
        other = await stack.enter_async_context(calling(server.port))
        ended = (await other.send("talk 2"))["id"]
        waiting = (await other.send("ask"))["id"]
        while not named or sum(map(len, told)) < TOLD:
            named.append((await other.send(f"talk {PIECES}", returnImmediately=True))["id"])
        await server.kill()
        await asyncio.gather(*readers)

    assert min(map(len, told)) >= 1
    assert named
    async with serving(store) as server, calling(server.port) as other:
        for events in told:
            task_id = events[0].value["task"]["id"]
            task = await other.get(task_id)
            assert task["status"]["state"] == "TASK_STATE_FAILED"
            assert "stopped" in task["status"]["message"]["parts"][0]["text"]
            async with calling(server.port) as reader:
                await reader.subscribe(task_id, last_event_id=0)
                log = await reader.all()
            assert [event.number for event in log] == list(range(1, len(log) + 1))
            assert log[: len(events)] == events, "an event that was told is not in the log"
            assert log[-1].state == "FAILED"
            assert "".join(event.text for event in log) == task["artifacts"][0]["parts"][0]["text"]
        for task_id in named:
            assert (await other.get(task_id))["status"]["state"] == "TASK_STATE_FAILED"
        assert (await other.get(ended))["status"]["state"] == "TASK_STATE_COMPLETED"
        assert (await other.get(waiting))["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        goes_on = await other.send("this", waiting)
        assert goes_on["status"]["state"] == "TASK_STATE_COMPLETED"
        assert goes_on["artifacts"][0]["parts"][0]["text"] == "this, after 2 messages"
        for state in ("WORKING", "SUBMITTED"):
            _, listed = await other.request("GET", f"/tasks?status=TASK_STATE_{state}")
            assert listed["totalSize"] == 0
        _, listed = await other.request("GET", "/tasks?pageSize=1")
        assert listed["totalSize"] == STREAMS + len(named) + 2


@within(LIMIT_S)
async def test_a_caller_goes_on_behind_the_event_that_it_saw_last_after_a_restart(tmp_path: Path) -> None:
    """Also where the task goes on: it waited for an authorization when the process was killed."""
    store = f"sqlite:{tmp_path / 'tasks.db'}"
    async with serving(store) as server, calling(server.port) as caller:
        await caller.stream("authorize")
        seen = [await caller.next()]
        while seen[-1].state != "AUTH_REQUIRED":
            seen.append(await caller.next())
        task_id = seen[0].value["task"]["id"]
        await server.kill()
    async with serving(store) as server, calling(server.port) as caller, calling(server.port) as other:
        await caller.subscribe(task_id, last_event_id=seen[1].number)
        assert await caller.next() == seen[2]
        assert (await other.send("yes", task_id))["status"]["state"] == "TASK_STATE_COMPLETED"
        rest = await caller.all()
        assert [event.number for event in rest] == list(range(seen[2].number + 1, seen[2].number + 1 + len(rest)))
        assert [event.state for event in rest if event.state] == ["WORKING", "COMPLETED"]
        assert "".join(event.text for event in rest) == "yes, after 2 messages"


@within(LIMIT_S)
async def test_a_restart_while_the_old_process_still_runs_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'tasks.db'}"
    async with serving(store) as server, calling(server.port) as caller:
        await caller.stream("hold")
        await caller.next()
        with pytest.raises(AssertionError, match=f"is in use by process {server.process.pid}"):
            async with serving(store):
                pass
        async with calling(server.port) as other:
            await other.send("release")
        assert (await caller.all())[-1].state == "COMPLETED"
