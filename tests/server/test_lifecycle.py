"""An app's start, its limits and its end, as callers and frameworks see them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import pytest

import tieline
from tests.server.agents import asker, mixed, worker
from tests.server.raw import A2A_JSON, JSON, Pairs, Reply, Wire, asgi, in_loop, request, serve
from tieline import AgentExtension, App, Limits, Turn, agent


def sending(text: str) -> bytes:
    message = {"messageId": f"m-{text}", "role": "ROLE_USER", "parts": [{"text": text}]}
    return json.dumps({"message": message}).encode()


def calling(method: str, params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


class Lifespan:
    """A server's side of ASGI's lifespan protocol."""

    def __init__(self, app: App) -> None:
        self._to: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()
        self._from: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()
        self._task = asyncio.create_task(app({"type": "lifespan"}, self._to.get, self._from.put))  # type: ignore[arg-type]

    async def say(self, event: str) -> Mapping[str, Any]:
        self._to.put_nowait({"type": f"lifespan.{event}"})
        return await self._from.get()

    async def done(self) -> None:
        await self._task


# --- start and end ----------------------------------------------------------------------------------------------------


@in_loop
async def test_a_framework_that_passes_lifespan_events_gets_their_answers(tmp_path: Path) -> None:
    path = f"sqlite:{tmp_path / 'tasks.db'}"
    app = tieline.app(worker(), store=path)
    lifespan = Lifespan(app)
    assert (await lifespan.say("startup"))["type"] == "lifespan.startup.complete"
    task = (await asgi(app, "POST", "/message:send", sending("x"), A2A_JSON)).json()["task"]
    assert (await lifespan.say("shutdown"))["type"] == "lifespan.shutdown.complete"
    await lifespan.done()
    again = tieline.app(worker(), store=path)  # the file was let go
    assert (await asgi(again, "GET", f"/tasks/{task['id']}")).json() == task
    await again.close()


@pytest.mark.parametrize("why", ["in use", "no folder", "no database"])
@in_loop
async def test_a_store_that_cannot_be_opened_fails_the_start_with_a_reason_and_every_request_with_503(
    why: str, tmp_path: Path
) -> None:
    path = tmp_path / "tasks.db"
    first: App | None = None
    if why == "in use":
        first = tieline.app(worker(), store=f"sqlite:{path}")
        await first.start()
    elif why == "no folder":
        (tmp_path / "file").write_text("x")
        path = tmp_path / "file" / "tasks.db"
    else:
        path.write_bytes(b"this is no database, and long enough to be looked at as one" * 100)
    app = tieline.app(worker(), store=f"sqlite:{path}")
    lifespan = Lifespan(app)
    answer = await lifespan.say("startup")
    assert answer["type"] == "lifespan.startup.failed"
    assert str(path) in answer["message"] or "store" in answer["message"]
    await lifespan.done()
    for verb, at, body in (
        ("GET", "/tasks", b""),
        ("POST", "/", calling("ListTasks", {})),
        ("POST", "/message:send", b"{}"),
    ):
        reply = await asgi(app, verb, at, body, JSON)
        assert reply.status == 503
        assert int(reply.headers["retry-after"]) >= 1
        assert reply.json()["error"]["code"] == 503
        assert "sqlite" not in reply.body.decode().lower()
    if first is not None:
        await first.close()
        assert (await asgi(app, "GET", "/tasks")).status == 200  # it may be there later
        await app.close()


@pytest.mark.parametrize("binding", ["jsonrpc", "rest"])
@in_loop
async def test_a_draining_server_ends_its_streams_refuses_new_work_with_503_and_can_still_be_read(binding: str) -> None:
    app = tieline.app(mixed(), drain_s=0)
    async with serve(app) as port, Wire(port) as wire:
        if binding == "rest":
            await wire.write("POST", "/message:stream", sending("wait"), A2A_JSON)
        else:
            body = calling("SendStreamingMessage", json.loads(sending("wait")))
            await wire.write("POST", "/", body, JSON)
        await wire.head()
        frames = wire.frames()
        first = (await anext(frames)).data
        task_id = first.get("result", first)["task"]["id"]
        await app.drain()
        last = [frame async for frame in frames][-1].data
        status = last.get("result", last)["statusUpdate"]["status"]
        assert status["state"] == "TASK_STATE_FAILED"
        assert status["message"]["parts"][0]["text"]
        if binding == "rest":
            refused = await request(port, "POST", "/message:send", sending("x"), A2A_JSON)
        else:
            refused = await request(port, "POST", "/", calling("SendMessage", json.loads(sending("x"))), JSON)
        assert refused.status == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert "shutting down" in refused.json()["error"]["message"]
        assert (await request(port, "GET", f"/tasks/{task_id}")).json()["status"]["state"] == "TASK_STATE_FAILED"


@in_loop
async def test_a_drain_leaves_a_task_that_waits_for_its_caller_as_it_is(tmp_path: Path) -> None:
    path = f"sqlite:{tmp_path / 'tasks.db'}"
    app = tieline.app(asker(), store=path)
    async with serve(app) as port:
        task = (await request(port, "POST", "/message:send", sending("x"), A2A_JSON)).json()["task"]
        async with Wire(port) as wire:
            await wire.write("GET", f"/tasks/{task['id']}:subscribe")
            await wire.head()
            frames = wire.frames()
            await anext(frames)
            await app.drain()
            assert [frame async for frame in frames] == []  # the stream ends, the task does not
    again = tieline.app(asker(), store=path)
    assert (await asgi(again, "GET", f"/tasks/{task['id']}")).json()["status"] == task["status"]
    await again.close()


# --- limits -----------------------------------------------------------------------------------------------------------


async def refusals(port: int, text: str) -> list[Reply]:
    """The same send, over both bindings, at once and streamed."""
    params = json.loads(sending(text))
    return [
        await request(port, "POST", "/message:send", sending(text), A2A_JSON),
        await request(port, "POST", "/message:stream", sending(text), A2A_JSON),
        await request(port, "POST", "/", calling("SendMessage", params), JSON),
        await request(port, "POST", "/", calling("SendStreamingMessage", params), JSON),
    ]


@in_loop
async def test_more_work_than_the_limit_is_refused_with_503_and_when_to_come_back() -> None:
    app = tieline.app(mixed(), limits=Limits(concurrent_runs=1))
    async with serve(app) as port, Wire(port) as wire:
        await wire.write("POST", "/message:stream", sending("wait"), A2A_JSON)
        await wire.head()
        task_id = (await anext(wire.frames())).data["task"]["id"]
        for reply in await refusals(port, "x"):
            assert reply.status == 503
            assert int(reply.headers["retry-after"]) >= 1
            error = reply.json()["error"]
            assert error["code"] in (503, -32603)
            details = error.get("details", error.get("data"))
            assert [detail["reason"] for detail in details] == ["OVERLOADED"]
        assert (await request(port, "POST", f"/tasks/{task_id}:cancel")).status == 200
        assert (await request(port, "POST", "/message:send", sending("x"), A2A_JSON)).status == 200


# --- service parameters -----------------------------------------------------------------------------------------------


@agent(
    name="Named",
    description="Says which extensions were named.",
    extensions=[AgentExtension(f"https://x.example/{name}") for name in "abc"],
)
async def named(turn: Turn) -> AsyncGenerator[Any, None]:
    yield " ".join(uri[-1] for uri in turn.extensions)


@pytest.mark.requirement("jsonrpc.comma-separated", "rest.comma-separated")
@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], ""),
        ([("A2A-Extensions", "https://x.example/a")], "a"),
        ([("A2A-Extensions", "https://x.example/c, https://x.example/a,https://x.example/unknown")], "c a"),
        ([("a2a-extensions", "https://x.example/a"), ("A2A-EXTENSIONS", "https://x.example/b")], "a b"),
        ([("A2A-Extensions", ", ,")], ""),
    ],
)
@in_loop
async def test_extensions_are_named_in_one_header_by_commas_or_in_several(headers: Pairs, expected: str) -> None:
    async with serve(tieline.app(named)) as port:
        rest = await request(port, "POST", "/message:send", sending("x"), [*A2A_JSON, *headers])
        body = calling("SendMessage", json.loads(sending("x")))
        rpc = await request(port, "POST", "/", body, [*JSON, *headers])
    for task in (rest.json()["task"], rpc.json()["result"]["task"]):
        texts = [part["text"] for artifact in task.get("artifacts", []) for part in artifact["parts"]]
        assert "".join(texts) == expected
