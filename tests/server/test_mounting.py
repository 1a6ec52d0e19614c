"""An app below a path of Starlette or FastAPI, and several agents in one app."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

import tieline
from tests.server.agents import asker, replier, worker
from tests.server.raw import A2A_JSON, JSON, Reply, Wire, asgi, in_loop, request, serve
from tieline import App

CARD = "/.well-known/agent-card.json"
MESSAGE = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}


def starlette(app: App, path: str) -> Any:
    async def home(_: Request) -> PlainTextResponse:
        return PlainTextResponse("home")

    return Starlette(routes=[Route("/", home), Mount(path, app)])


def fastapi(app: App, path: str) -> Any:
    outer = FastAPI()
    outer.mount(path, app)
    return outer


def nested(app: App, path: str) -> Any:
    first, _, rest = path[1:].partition("/")
    return Starlette(routes=[Mount(f"/{first}", Starlette(routes=[Mount(f"/{rest or 'x'}", app)]))])


def urls(reply: Reply) -> dict[str, str]:
    assert reply.status == 200, reply
    return {each["protocolBinding"]: each["url"] for each in reply.json()["supportedInterfaces"]}


async def rpc(port: int, path: str, method: str, params: Any) -> Any:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    reply = await request(port, "POST", path, body, JSON)
    assert reply.status == 200, reply
    return reply.json()


@pytest.mark.requirement("interface.accurate")
@pytest.mark.parametrize("mount", [starlette, fastapi, nested])
@in_loop
async def test_a_mounted_app_works_without_lifespan_events_and_its_card_names_the_mount(mount: Any) -> None:
    app = tieline.app(worker())
    async with serve(mount(app, "/agents/w"), owner=app) as port:
        base = f"http://127.0.0.1:{port}/agents/w"
        assert urls(await request(port, "GET", f"/agents/w{CARD}")) == {"JSONRPC": f"{base}/", "HTTP+JSON": base}
        answer = await rpc(port, "/agents/w/", "SendMessage", {"message": MESSAGE})
        task = answer["result"]["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        read = await request(port, "GET", f"/agents/w/tasks/{task['id']}")
        assert read.json() == task
        async with Wire(port) as wire:
            body = json.dumps({"message": {**MESSAGE, "messageId": "m-2"}}).encode()
            await wire.write("POST", "/agents/w/message:stream", body, A2A_JSON)
            await wire.head()
            frames = [frame async for frame in wire.frames()]
        assert frames[-1].data["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


@in_loop
async def test_an_app_may_be_mounted_at_the_root_or_at_a_path_that_needs_encoding() -> None:
    for mount, base in (("/", ""), ("/my agents", "/my%20agents")):
        app = tieline.app(worker())
        async with serve(Starlette(routes=[Mount(mount, app)]), owner=app) as port:
            declared = urls(await request(port, "GET", f"{base}{CARD}"))
            at = f"http://127.0.0.1:{port}{base}"
            assert declared == {"JSONRPC": f"{at}/", "HTTP+JSON": at}
            assert (await rpc(port, f"{base}/", "ListTasks", {}))["result"]["totalSize"] == 0
            reply = await request(port, "GET", f"{base}/tasks/a%2Fb%3Acancel")
            assert reply.json()["error"]["details"][0]["metadata"] == {"taskId": "a/b:cancel"}


@pytest.mark.parametrize("raw", [None, b"", b"/other"])
@in_loop
async def test_a_server_that_gives_no_raw_path_is_served_by_the_decoded_one(raw: bytes | None) -> None:
    app = tieline.app({"desk": worker()})
    reply = await asgi(app, "GET", "/desk/tasks/ä b", raw_path=raw)
    assert reply.json()["error"]["details"][0]["metadata"] == {"taskId": "ä b"}


@in_loop
async def test_a_mounted_app_leaves_the_rest_of_the_framework_alone() -> None:
    app = tieline.app(worker())
    async with serve(starlette(app, "/w"), owner=app) as port:
        assert (await request(port, "GET", "/")).body == b"home"
        assert (await request(port, "GET", CARD)).status == 404


@in_loop
async def test_many_first_requests_at_once_open_the_store_once() -> None:
    app = tieline.app(worker())
    async with serve(starlette(app, "/w"), owner=app) as port:
        async with Wire(port) as one, Wire(port) as other:
            for wire, id_ in ((one, "m-1"), (other, "m-2")):
                body = json.dumps({"message": {**MESSAGE, "messageId": id_}}).encode()
                await wire.write("POST", "/w/message:send", body, A2A_JSON)
            for wire in (one, other):
                status, _ = await wire.head()
                assert status == 200
                await wire.body()
        assert (await request(port, "GET", "/w/tasks")).json()["totalSize"] == 2


@pytest.mark.requirement("card.well-known-path", "interface.accurate")
@in_loop
async def test_several_agents_have_each_their_card_and_their_tasks() -> None:
    async with serve(tieline.app({"reply": replier(), "desk": worker(), "ask": asker()})) as port:
        for name, title in (("reply", "Replier"), ("desk", "Worker"), ("ask", "Asker")):
            reply = await request(port, "GET", f"/{name}{CARD}")
            assert reply.json()["name"] == title
            assert urls(reply)["HTTP+JSON"] == f"http://127.0.0.1:{port}/{name}"
        task = (await rpc(port, "/desk/", "SendMessage", {"message": MESSAGE}))["result"]["task"]
        assert (await request(port, "GET", f"/desk/tasks/{task['id']}")).status == 200
        assert (await request(port, "GET", f"/ask/tasks/{task['id']}")).status == 404
        assert (await rpc(port, "/ask/", "GetTask", {"id": task["id"]}))["error"]["code"] == -32001
        assert (await request(port, "GET", "/ask/tasks")).json()["totalSize"] == 0
        assert (await rpc(port, "/reply/", "SendMessage", {"message": {**MESSAGE, "taskId": task["id"]}}))["error"]


@pytest.mark.parametrize("path", ["/", CARD, "/nobody", "/nobody/", "/nobody/tasks", "/desks/tasks", "//desk/tasks"])
@in_loop
async def test_where_there_is_no_agent_the_answer_names_the_cards_of_those_that_are(path: str) -> None:
    app = tieline.app({"desk": worker(), "ask": asker()})
    for verb in ("GET", "POST"):
        reply = await asgi(app, verb, path, b"{}", JSON)
        assert reply.status == 404
        error = reply.json()["error"]
        assert (error["code"], error["status"]) == (404, "UNIMPLEMENTED")
        assert f"/desk{CARD}" in error["message"]
        assert f"/ask{CARD}" in error["message"]


@in_loop
async def test_below_a_root_path_the_cards_are_named_with_it() -> None:
    reply = await asgi(tieline.app({"desk": worker()}), "GET", "/all/x", root_path="/all")
    assert f"/all/desk{CARD}" in reply.json()["error"]["message"]


@pytest.mark.parametrize("name", ["a/b", "/", "", ".well-known", "tasks", "a\nb"])
def test_a_name_that_is_no_path_segment_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be an agent's name"):
        tieline.app({name: worker()})


def test_an_app_wants_an_agent_and_says_what_else_it_got() -> None:
    with pytest.raises(ValueError, match="no agent"):
        tieline.app({})
    with pytest.raises(TypeError, match=r"@tieline\.agent"):
        tieline.app({"w": lambda turn: turn})  # type: ignore[dict-item]


@in_loop
async def test_an_agents_name_may_need_percent_encoding() -> None:
    app = tieline.app({"my agent": worker()})
    async with serve(app) as port:
        reply = await request(port, "GET", f"/my%20agent{CARD}")
        base = f"http://127.0.0.1:{port}/my%20agent"
        assert urls(reply) == {"JSONRPC": f"{base}/", "HTTP+JSON": base}
        assert (await rpc(port, "/my%20agent/", "ListTasks", {}))["result"]["totalSize"] == 0


@in_loop
async def test_only_http_is_served() -> None:
    with pytest.raises(RuntimeError, match="HTTP"):
        await asgi(tieline.app(worker()), "GET", "/", type="websocket")
