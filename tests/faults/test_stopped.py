"""SIGTERM: agents at work may finish, waiting ones stay as they are, streams end, and so does the process."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.engine.scene import within
from tests.faults.caller import calling, message
from tests.faults.process import LIMIT_S, serving

PIECES = 30


@pytest.mark.requirement("system.temporary-told-apart", over=("rest",))
@within(LIMIT_S)
async def test_sigterm_lets_agents_finish_keeps_what_waits_and_ends_every_stream(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'tasks.db'}"
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(store, "--drain", "20s"))
        talking = [await stack.enter_async_context(calling(server.port)) for _ in range(20)]
        await asyncio.gather(*(caller.stream(f"talk {PIECES}") for caller in talking))
        for caller in talking:
            await caller.next()
        other = await stack.enter_async_context(calling(server.port))
        waiting = [(await other.send("ask"))["id"] for _ in range(5)]
        watching = await stack.enter_async_context(calling(server.port))
        await watching.subscribe(waiting[0])
        blocking = await stack.enter_async_context(calling(server.port))
        answer = asyncio.ensure_future(blocking.send(f"talk {PIECES}"))
        while (await other.request("GET", "/tasks?status=TASK_STATE_WORKING&pageSize=1"))[1]["totalSize"] < 21:
            pass

        server.signal(signal.SIGTERM)
        await server.says(r"Stopping: 21 agents are at work")
        status, late = 200, 0
        while status == 200:  # the word may be out a moment before the door is shut
            status, refusal = await other.request("POST", "/message:send", message("say hello"))
            late += status == 200
        assert status == 503, refusal
        assert refusal["error"]["status"] == "UNAVAILABLE"

        for events in await asyncio.gather(*(caller.all() for caller in talking)):
            assert events[-1].state == "COMPLETED"
            assert "".join(event.text for event in events) == "".join(f"{number} " for number in range(PIECES))
        assert (await answer)["status"]["state"] == "TASK_STATE_COMPLETED"
        assert [event.state for event in await watching.all()] == ["INPUT_REQUIRED"]
        assert await server.ended() == 0

    async with serving(store) as server, calling(server.port) as other:
        _, listed = await other.request("GET", "/tasks?status=TASK_STATE_COMPLETED&pageSize=1")
        assert listed["totalSize"] == 21 + late
        for task_id in waiting:
            assert (await other.get(task_id))["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
            goes_on = await other.send("this", task_id)
            assert goes_on["status"]["state"] == "TASK_STATE_COMPLETED"
            texts = [one["parts"][0]["text"] for one in goes_on["history"]]
            assert texts == ["ask", "Which?", "this"]


@within(LIMIT_S)
async def test_an_agent_that_is_not_done_when_the_drain_is_over_ends_failed_and_its_callers_hear_why(
    tmp_path: Path,
) -> None:
    store = f"sqlite:{tmp_path / 'tasks.db'}"
    async with (
        serving(store, "--drain", "0.2s") as server,
        calling(server.port) as streaming,
        calling(server.port) as blocking,
    ):
        await streaming.stream("hold")
        task_id = (await streaming.next()).value["task"]["id"]
        answer = asyncio.ensure_future(blocking.send("hold"))
        async with calling(server.port) as other:
            while (await other.request("GET", "/tasks?status=TASK_STATE_WORKING"))[1]["totalSize"] < 2:
                pass
        server.signal(signal.SIGTERM)
        *_, last = await streaming.all()
        assert last.state == "FAILED"
        assert "server stopped" in last.data.decode()
        assert (await answer)["status"]["state"] == "TASK_STATE_FAILED"
        assert await server.ended() == 0
    async with serving(store) as server, calling(server.port) as other:
        task = await other.get(task_id)
        assert task["status"]["state"] == "TASK_STATE_FAILED"
        assert task["artifacts"][0]["parts"][0]["text"] == "held"


@within(LIMIT_S)
async def test_a_second_signal_ends_the_process_at_once_and_nothing_that_was_told_is_lost(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'tasks.db'}"
    async with serving(store, "--drain", "1h") as server, calling(server.port) as caller:
        await caller.stream("hold")
        first = await caller.next()
        server.signal(signal.SIGINT)
        await server.says(r"Stopping: 1 agent is at work")
        server.signal(signal.SIGINT)
        await server.ended()
    async with serving(store) as server, calling(server.port) as other:
        task = await other.get(first.value["task"]["id"])
        assert task["status"]["state"] == "TASK_STATE_FAILED"


@within(LIMIT_S)
async def test_a_server_without_work_stops_at_once_with_its_store_in_one_file(tmp_path: Path) -> None:
    async with serving(f"sqlite:{tmp_path / 'tasks.db'}", "--drain", "1h") as server, calling(server.port) as other:
        await other.send("say hello")
        server.signal(signal.SIGTERM)
        assert await server.ended() == 0
    assert not (tmp_path / "tasks.db-wal").exists()
    assert "Stopped." in server.said
    assert not [line for line in server.said if "Traceback" in line or "ERROR" in line]


@pytest.mark.parametrize("word", ["cling", "block"])
@within(LIMIT_S)
async def test_an_agent_that_ignores_its_cancellation_does_not_keep_the_process(word: str, tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'tasks.db'}"
    async with serving(store, "--drain", "0.2s") as server, calling(server.port) as caller:
        body = {**message(word), "configuration": {"returnImmediately": True}}
        status, sent = await caller.request("POST", "/message:send", body)
        assert status == 200
        server.signal(signal.SIGTERM)
        assert await server.ended() == 0
    async with serving(store) as server, calling(server.port) as caller:
        assert (await caller.get(sent["task"]["id"]))["status"]["state"] == "TASK_STATE_FAILED"
