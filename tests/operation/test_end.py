"""The end of a server, step by step, as load balancers, callers and signals see it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.databases import redis_server
from tests.engine.scene import within
from tests.operation.serving import AGENT, Serving, call, fetch, sending, serving
from tieline.ids import new_id


async def unready(here: Serving) -> Any:
    """Wait until it is told that no requests should come any more."""
    while (found := await fetch(f"{here.ops}/readyz")).status != 503:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return found.json["checks"]


def states(stream: bytes) -> list[str]:
    """The states in a stream of events, in order."""
    found = []
    for line in stream.splitlines():
        if line.startswith(b"data: "):
            result = json.loads(line[6:])["result"]
            status = result.get("statusUpdate", result.get("task", {})).get("status")
            if status is not None:
                found.append(status["state"].removeprefix("TASK_STATE_"))
    return found


@within(60)
async def test_with_a_delay_requests_are_still_taken_while_load_balancers_hear_that_it_goes(tmp_path: Path) -> None:
    options = ("--drain-delay", "4s", "--drain", "10s", "--ops-port", "0", "--grpc-port", "0")
    async with serving(tmp_path, *options) as here, grpc.aio.insecure_channel(here.grpc) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        watching = health.Watch(health_pb2.HealthCheckRequest())
        assert (await watching.read()).status == health_pb2.HealthCheckResponse.SERVING
        stream = asyncio.create_task(call(here.url, "SendStreamingMessage", sending("work 6")))
        running = 0
        while not running:
            listed = await call(here.url, "ListTasks", {"status": "TASK_STATE_WORKING"})
            running = listed.json["result"]["totalSize"]
        here.signal(signal.SIGTERM)
        checks = await unready(here)
        assert checks == {"drain": "this server is shutting down", "store": "ok"}
        assert (await watching.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert (await fetch(f"{here.ops}/healthz")).status == 200
        taken = await call(here.url, "SendMessage", sending("hi"))
        assert taken.json["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        while (refused := await call(here.url, "SendMessage", sending("hi"))).status == 200:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert refused.status == 503  # the drain: agents at work may finish
        assert refused.headers["retry-after"].isdigit()
        assert (await fetch(f"{here.ops}/healthz")).status == 200
        assert states((await stream).body)[-1] == "COMPLETED"
        watching.cancel()
        assert await here.ended() == 0
    assert here.lines[-1] == "Stopped."


@within(60)
async def test_in_the_drain_the_process_is_healthy_and_unready_and_a_second_sigterm_changes_nothing(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, "--drain", "4s", "--ops-port", "0") as here:
        stream = asyncio.create_task(call(here.url, "SendStreamingMessage", sending("work 2")))
        stuck = await call(here.url, "SendMessage", sending("wait") | {"configuration": {"returnImmediately": True}})
        here.signal(signal.SIGTERM)
        await unready(here)
        here.signal(signal.SIGTERM)
        assert (await fetch(f"{here.ops}/healthz")).status == 200
        assert (await call(here.url, "SendMessage", sending("hi"))).status == 503
        read = await call(here.url, "GetTask", {"id": stuck.json["result"]["task"]["id"]})
        assert read.json["result"]["status"]["state"] == "TASK_STATE_WORKING"
        assert states((await stream).body)[-1] == "COMPLETED"
        assert await here.ended() == 0


@within(60)
async def test_a_second_ctrl_c_ends_the_delay_and_the_drain_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path, "--drain-delay", "1h", "--drain", "1h", "--ops-port", "0") as here:
        await call(here.url, "SendMessage", sending("wait") | {"configuration": {"returnImmediately": True}})
        here.signal(signal.SIGINT)
        await unready(here)
        here.signal(signal.SIGINT)
        assert await here.ended() == 0


@pytest.mark.parametrize("kind", ["postgresql", "redis"])
@within(60)
async def test_a_server_that_waits_for_its_database_ends_at_once_when_it_is_told_to(kind: str, tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        asked.set()
        await reader.read()
        writer.close()

    database = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = database.sockets[0].getsockname()[1]
    path = tmp_path / "worker.py"
    path.write_text(AGENT)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tieline", "serve", str(path), "--port", "0", "--log-format", "json"),
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "HOME": str(tmp_path), "TIELINE_STORE": f"{kind}://127.0.0.1:{port}/0"},
    )
    try:
        await asked.wait()
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(5):  # it would wait for ten seconds
            _, said = await process.communicate()
        assert process.returncode == 0
        assert b"ERROR" not in said
    finally:
        if process.returncode is None:
            process.kill()
        database.close()


@within(60)
async def test_a_server_that_is_told_to_end_before_it_can_serve_does_so(tmp_path: Path) -> None:
    source = "import pathlib, time\npathlib.Path('loading').touch()\ntime.sleep(60)\n"
    path = tmp_path / "worker.py"
    path.write_text(source + AGENT)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tieline", "serve", str(path), "--port", "0", "--store", "memory"),
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    while not (tmp_path / "loading").exists():  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(5):
        assert await process.wait() == 0


BLOCKING = """
import pathlib, time
from tieline import Turn, agent

@agent(name="Blocker", description="Blocks.")
async def blocker(turn: Turn) -> str:
    pathlib.Path(turn.text).touch()
    time.sleep(120)
    return "awake"
"""


@within(90)
async def test_an_agent_that_blocks_the_process_does_not_keep_it_from_ending_and_is_shown(tmp_path: Path) -> None:
    async with serving(tmp_path, "--drain", "0s", source=BLOCKING) as here:
        blocked = tmp_path / "blocked"
        asking = asyncio.create_task(call(here.url, "SendMessage", sending(str(blocked))))
        while not blocked.exists():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        here.signal(signal.SIGTERM)
        async with asyncio.timeout(40):
            assert await here.ended() == 1
        with pytest.raises(aiohttp.ClientError):
            await asking
        assert [line for line in here.lines if "worker.py" in line and "in blocker" in line]


@within(60)
async def test_without_a_port_of_its_own_readiness_is_told_beside_the_agents_to_the_end(tmp_path: Path) -> None:
    async with serving(tmp_path, "--drain-delay", "2s") as here, aiohttp.ClientSession() as session:
        async with session.get(f"{here.url}/readyz", headers={"Host": "10.0.0.7"}) as response:
            assert response.status == 200
        here.signal(signal.SIGTERM)
        while True:
            async with session.get(f"{here.url}/readyz", headers={"Host": "10.0.0.7"}) as response:
                if response.status == 503:
                    assert response.headers["retry-after"].isdigit()
                    break
        async with session.get(f"{here.url}/healthz") as response:
            assert response.status == 200
        assert await here.ended() == 0


@within(90)
async def test_several_processes_go_together_and_say_so_at_one_port(tmp_path: Path) -> None:
    url = redis_server().url(f"e{new_id()[:8]}")
    options = ("--workers", "2", "--drain-delay", "3s", "--drain", "5s", "--ops-port", "0", "--log-format", "json")
    async with serving(tmp_path, *options, store=url) as here:
        stream = asyncio.create_task(call(here.url, "SendStreamingMessage", sending("work 4")))
        running = 0
        while not running:
            listed = await call(here.url, "ListTasks", {"status": "TASK_STATE_WORKING"})
            running = listed.json["result"]["totalSize"]
        here.signal(signal.SIGTERM)
        checks = await unready(here)
        assert checks["drain"] == "this server is shutting down"
        assert (await fetch(f"{here.ops}/healthz")).status == 200
        taken = await call(here.url, "SendMessage", sending("hi"))
        assert taken.json["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        assert states((await stream).body)[-1] == "COMPLETED"
        assert await here.ended() == 0
    assert here.events[-1]["message"] == "Stopped."
