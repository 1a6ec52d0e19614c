"""Many at once, slow ones and lost ones: none of them costs another."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.engine.scene import within
from tests.faults.caller import Told, calling
from tests.faults.process import LIMIT_S, serving

IDLE = 1000
TASKS = 10_000
CONNECTIONS = 16


@pytest.fixture
def _many_files() -> Iterator[None]:
    """Leave to open the sockets of a crowd, here and in the processes that are started."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("_many_files")
@pytest.mark.requirement("events.to-every-stream", over=("rest",))
@within(LIMIT_S)
async def test_a_thousand_idle_streams_and_ten_thousand_tasks_share_one_process() -> None:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving("memory"))
        idle = [await stack.enter_async_context(calling(server.port)) for _ in range(IDLE)]
        for some in range(0, IDLE, 100):
            await asyncio.gather(*(caller.stream("hold") for caller in idle[some : some + 100]))
        for caller in idle:
            assert (await caller.next()).state == "SUBMITTED"

        async def work(count: int) -> None:
            async with calling(server.port) as caller:
                for _ in range(count):
                    task = await caller.send("say hello")
                    assert task["status"]["state"] == "TASK_STATE_COMPLETED"

        await asyncio.gather(*(work(TASKS // CONNECTIONS) for _ in range(CONNECTIONS)))
        async with calling(server.port) as other:
            _, listed = await other.request("GET", "/tasks?pageSize=1")
            assert listed["totalSize"] == IDLE + TASKS
            _, listed = await other.request("GET", "/tasks?pageSize=1&status=TASK_STATE_WORKING")
            assert listed["totalSize"] == IDLE
            await other.send("release")
        for caller in idle:
            events = await caller.all()
            assert events[-1].state == "COMPLETED"
            assert "".join(event.text for event in events) == "held, released"


@pytest.mark.requirement("events.same-on-every-stream", "events.never-reordered", over=("rest",))
@within(LIMIT_S)
async def test_a_subscriber_that_stops_reading_slows_nobody_and_loses_nothing(tmp_path: Path) -> None:
    pieces, size = 4000, 4096  # more than the buffers between two sockets hold
    async with (
        serving(f"sqlite:{tmp_path / 'tasks.db'}") as server,
        calling(server.port, receive_buffer=4096) as slow,
        calling(server.port) as quick,
        calling(server.port) as other,
    ):
        await slow.stream(f"big {pieces} {size}")
        seen = [await slow.next()]
        task_id = seen[0].value["task"]["id"]
        await quick.subscribe(task_id, last_event_id=0)
        following = asyncio.ensure_future(quick.all())
        await other.send("release")
        events = await following
        assert events[-1].state == "COMPLETED"
        for _ in range(50):
            assert (await other.send("say hello"))["status"]["state"] == "TASK_STATE_COMPLETED"
        seen += await slow.all()
        assert [event.number for event in seen] == list(range(1, len(seen) + 1))
        assert len(seen) == pieces + 4
        assert seen == events


@pytest.mark.requirement("events.closing-one-leaves-others", "events.to-every-stream", over=("rest",))
@within(LIMIT_S)
async def test_of_many_streams_of_one_task_those_that_stay_have_all_when_others_go() -> None:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving("memory"))
        first = await stack.enter_async_context(calling(server.port))
        await first.stream("talk 40")
        begin = await first.next()
        task_id = begin.value["task"]["id"]
        others = [await stack.enter_async_context(calling(server.port)) for _ in range(30)]
        for caller in others:
            await caller.subscribe(task_id, last_event_id=begin.number)
        read: list[list[Told]] = [[] for _ in others]
        for caller, events in zip(others, read, strict=True):
            events.append(await caller.next())
        for caller in others[::2]:
            caller.leave()
        whole = await first.all()
        assert whole[-1].state == "COMPLETED"
        for caller, events in list(zip(others, read, strict=True))[1::2]:
            assert events + await caller.all() == whole


@pytest.mark.requirement("events.task-outlives-streams", "async.work-goes-on", over=("rest",))
@within(LIMIT_S)
async def test_a_caller_that_goes_away_in_mid_stream_leaves_an_agent_that_runs_on_and_a_task_that_is_saved(
    tmp_path: Path,
) -> None:
    store = f"sqlite:{tmp_path / 'tasks.db'}"
    whole = "".join(f"{number} " for number in range(30))
    async with serving(store) as server:
        async with calling(server.port) as streaming:
            await streaming.stream("talk 30")
            seen = [await streaming.next()]
            task_id = seen[0].value["task"]["id"]
        async with calling(server.port) as blocking:
            await blocking.write("POST", "/message:send", {"message": _say("talk 30")})
            async with calling(server.port) as other:
                while (await other.request("GET", "/tasks"))[1]["totalSize"] < 2:
                    pass
        async with calling(server.port) as again:
            await again.subscribe(task_id, last_event_id=seen[-1].number)
            rest = await again.all()
            assert rest[-1].state == "COMPLETED"
            assert "".join(event.text for event in rest) == whole
            while (await again.request("GET", "/tasks?status=TASK_STATE_COMPLETED"))[1]["totalSize"] < 2:
                pass
        await server.kill()
    async with serving(store) as server, calling(server.port) as other:
        _, listed = await other.request("GET", "/tasks?includeArtifacts=true")
        assert [task["status"]["state"] for task in listed["tasks"]] == ["TASK_STATE_COMPLETED"] * 2
        assert [task["artifacts"][0]["parts"][0]["text"] for task in listed["tasks"]] == [whole] * 2


def _say(text: str) -> dict[str, object]:
    return {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}]}
