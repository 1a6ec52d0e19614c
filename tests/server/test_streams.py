"""Streams over a socket: callers that go away, keep-alive comments, reconnects with hostile numbers."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

import tieline
from tests.server.agents import asker, worker
from tests.server.raw import A2A_JSON, JSON, Frame, Reply, Wire, in_loop, request, serve
from tieline import Agent, App, Turn, agent

MESSAGE = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
BODY = json.dumps({"message": MESSAGE}).encode()


class Gate:
    """An agent that says that it has begun, and goes on when it is let."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.let = asyncio.Event()
        self.done = asyncio.Event()

        @agent(name="Gate", description="Waits to be let.")
        async def function(turn: Turn) -> AsyncGenerator[Any, None]:
            await turn.status("begun")
            self.begun.set()
            await self.let.wait()
            yield "done"
            self.done.set()

        self.agent: Agent = function


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something that is known by asking only; the test's own limit is the limit."""
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def ended(port: int) -> Any:
    """The one task there, when it has ended."""
    while True:
        (task,) = (await request(port, "GET", "/tasks?includeArtifacts=true")).json()["tasks"]
        if task["status"]["state"] == "TASK_STATE_COMPLETED":
            return task
        await asyncio.sleep(0.01)


def open_streams(app: App) -> int:
    return len(app._streams)


def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing was logged that an operator would have to look at."""
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


# --- callers that go away ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/message:stream", "/message:send"])
@in_loop
async def test_an_agent_runs_on_when_its_caller_goes_away(path: str, caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate()
    async with serve(tieline.app(gate.agent)) as port:
        async with Wire(port) as wire:
            await wire.write("POST", path, BODY, A2A_JSON)
            await gate.begun.wait()
        gate.let.set()
        await gate.done.wait()
        task = await ended(port)
    assert task["artifacts"][0]["parts"] == [{"text": "done"}]
    quiet(caplog)


@in_loop
async def test_a_stream_whose_reader_has_gone_is_let_go_though_nothing_happens(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate = Gate()
    app = tieline.app(gate.agent)
    async with serve(app) as port:
        async with Wire(port) as wire:
            await wire.write("POST", "/message:stream", BODY, A2A_JSON)
            await wire.head()
            await anext(wire.frames())
            assert open_streams(app) == 1
        await until(lambda: open_streams(app) == 0)
        gate.let.set()
        await ended(port)
    quiet(caplog)


@in_loop
async def test_one_reader_that_goes_away_does_not_take_the_stream_from_another() -> None:
    gate = Gate()
    async with serve(tieline.app(gate.agent)) as port, Wire(port) as stays:
        await stays.write("POST", "/message:stream", BODY, A2A_JSON)
        await stays.head()
        frames = stays.frames()
        task_id = (await anext(frames)).data["task"]["id"]
        async with Wire(port) as goes:
            await goes.write("GET", f"/tasks/{task_id}:subscribe")
            await goes.head()
            await anext(goes.frames())
        gate.let.set()
        last = [frame async for frame in frames][-1]
    assert last.data["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize("head", [b"", b"POST /message:send HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{"])
@pytest.mark.parametrize("target", ["/message:send", "/"])
@in_loop
async def test_a_caller_that_goes_away_before_its_request_is_whole_begins_nothing(
    target: str, head: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    async with serve(tieline.app(gate.agent)) as port:
        async with Wire(port) as wire:
            await wire.send(head.replace(b"/message:send", target.encode()))
        assert (await request(port, "GET", "/tasks")).json()["totalSize"] == 0
        assert not gate.begun.is_set()
    quiet(caplog)


@in_loop
async def test_requests_on_one_connection_are_answered_one_after_the_other_also_behind_a_stream() -> None:
    async with serve(tieline.app(worker())) as port, Wire(port) as wire:
        for _ in range(3):
            await wire.write("POST", "/message:stream", BODY, A2A_JSON)
            await wire.head()
            assert [frame async for frame in wire.frames()]
            assert (await wire.request("GET", "/tasks")).status == 200
            assert (await wire.request("POST", "/", b"{", JSON)).status == 200


# --- keep-alive -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/message:stream"])
@in_loop
async def test_a_stream_without_news_sends_comments_and_then_its_news(path: str) -> None:
    gate = Gate()
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": MESSAGE}}
    body = json.dumps(call).encode() if path == "/" else BODY
    async with serve(tieline.app(gate.agent, keep_alive_s=0.02)) as port, Wire(port) as wire:
        await wire.write("POST", path, body, JSON)
        await wire.head()
        got: list[Frame] = []
        async for frame in wire.frames():
            got.append(frame)
            if sum(each.comment is not None for each in got) == 3:
                gate.let.set()
    comments = [frame for frame in got if frame.comment is not None]
    assert len(comments) >= 3
    assert all(frame.id is None and frame.data is None for frame in comments)
    numbers = [int(frame.id) for frame in got if frame.id is not None]
    assert numbers == list(range(1, len(numbers) + 1))
    assert got[-1].comment is None


# --- going on where a stream broke off --------------------------------------------------------------------------------


def numbers_of(reply: Reply) -> list[int]:
    lines = reply.body.decode().splitlines()
    return [int(line.removeprefix("id: ")) for line in lines if line.startswith("id: ")]


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize(
    "number", ["", "x", "-1", "1.5", "0x1", "99", "9" * 19, "9" * 20, "9" * 400, "9" * 5000, "\xb2", "1 2", "null"]
)
@in_loop
async def test_a_number_that_was_never_given_is_as_good_as_none(
    number: str, store: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = "memory" if store == "memory" else f"sqlite:{tmp_path / 'tasks.db'}"
    async with serve(tieline.app(asker(), store=path)) as port:
        task = (await request(port, "POST", "/message:send", BODY, A2A_JSON)).json()["task"]
        async with Wire(port) as wire:
            await wire.write("GET", f"/tasks/{task['id']}:subscribe", None, [("Last-Event-ID", number)])
            status, headers = await wire.head()
            assert (status, headers["content-type"]) == (200, "text/event-stream")
            first = await anext(wire.frames())
            assert first.data["task"]["id"] == task["id"]
        cancel = await request(port, "POST", f"/tasks/{task['id']}:cancel")
        assert cancel.status == 200
        headers_of_end = [("Last-Event-ID", number)]
        reply = await request(port, "GET", f"/tasks/{task['id']}:subscribe", headers=headers_of_end)
        assert reply.status == 400
        assert reply.json()["error"]["details"][0]["reason"] == "UNSUPPORTED_OPERATION"
    quiet(caplog)


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@in_loop
async def test_a_reader_goes_on_behind_the_last_event_that_it_has_seen_also_when_the_task_has_ended(
    store: str, tmp_path: Path
) -> None:
    path = "memory" if store == "memory" else f"sqlite:{tmp_path / 'tasks.db'}"
    async with serve(tieline.app(worker(), store=path)) as port:
        whole = await request(port, "POST", "/message:stream", BODY, A2A_JSON)
        numbers = numbers_of(whole)
        first = json.loads(whole.body.decode().splitlines()[1].removeprefix("data: "))
        target = f"/tasks/{first['task']['id']}:subscribe"
        for seen in numbers[:-1]:
            reply = await request(port, "GET", target, headers=[("Last-Event-ID", str(seen))])
            assert reply.headers["content-type"] == "text/event-stream"
            assert numbers_of(reply) == numbers[seen:]
            assert whole.body.endswith(reply.body)
        reply = await request(port, "GET", target, headers=[("Last-Event-ID", str(numbers[-1]))])
        assert reply.json()["error"]["details"][0]["reason"] == "UNSUPPORTED_OPERATION"
