"""/healthz, /readyz and gRPC's health service: who gets through to them, and what they say."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import grpc
import pytest
from a2a.types import a2a_pb2 as pb
from grpc_health.v1 import health_pb2, health_pb2_grpc

import tieline
from tests.behaviour.failing_store import FailingStore
from tests.databases import PostgresServer, RedisServer, redis_server
from tests.engine.scene import within
from tests.grpc.serving import served
from tests.interop.processes import free_port
from tests.operation.serving import call, fetch, sending, serving, until
from tests.server.agents import worker
from tests.server.raw import JSON, asgi, in_loop, request, serve
from tieline.ids import new_id
from tieline.server.loading import CannotServe
from tieline.server.serve import begin_to_listen, bind
from tieline.stores.base import Record
from tieline.stores.postgres import PostgresStore

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Hanging(FailingStore):
    """A store that does not answer while `hangs` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs = False
        self.asked = 0

    async def get(self, scope: str, task_id: str) -> Record | None:
        self.asked += 1
        while self.hangs:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return await super().get(scope, task_id)


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
@in_loop
async def test_probes_are_answered_for_any_host_and_open_nothing_else(path: str) -> None:
    app = tieline.app(worker(), allowed_hosts=("localhost",))
    async with serve(app) as port:
        for host in ("10.1.2.3:8000", "[fe80::1]", "", "evil.example"):
            probed = await request(port, "GET", path, None, [("Host", host)])
            assert probed.status == 200
            assert probed.headers["cache-control"] == "no-store"
            assert probed.headers["content-type"] == "application/json"
            for other in ("/", "/tasks", "/metrics", path + "/", "/.well-known/agent-card.json"):
                assert (await request(port, "GET", other, None, [("Host", host)])).status == 421
        head = await request(port, "HEAD", path)
        assert (head.status, head.body) == (200, b"")
        assert int(head.headers["content-length"]) == len((await request(port, "GET", path)).body)
        refused = await request(port, "POST", path, b"{}", JSON)
        assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")


@in_loop
async def test_a_store_that_fails_makes_a_server_unready_and_not_unhealthy() -> None:
    store = FailingStore()
    app = tieline.app(worker(), store=store)
    assert (await asgi(app, "GET", "/readyz")).json() == {"status": "ready", "checks": {"drain": "ok", "store": "ok"}}
    store.reading_fails = True

    async def becomes(status: int) -> Any:
        while (found := await asgi(app, "GET", "/readyz")).status != status:  # noqa: ASYNC110 - an answer counts 0.5 s
            await asyncio.sleep(0.02)
        return found

    unready = await becomes(503)
    assert unready.json() == {"status": "not ready", "checks": {"drain": "ok", "store": "not available"}}
    assert unready.headers["retry-after"].isdigit()
    assert (await asgi(app, "HEAD", "/readyz")).status == 503
    assert (await asgi(app, "GET", "/healthz")).json() == {"status": "ok"}
    store.reading_fails = False
    await becomes(200)
    await app.close()


@in_loop
async def test_a_store_that_hangs_makes_a_server_unready_within_a_second_and_is_asked_once_for_all() -> None:
    store = Hanging()
    app = tieline.app(worker(), store=store)
    assert (await asgi(app, "GET", "/readyz")).status == 200
    store.hangs = True
    asked = store.asked
    while (found := await asgi(app, "GET", "/readyz")).status == 200:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    assert found.json()["checks"]["store"] == "no answer within 1 s"
    many = await asyncio.gather(*(asgi(app, "GET", "/readyz") for _ in range(20)))
    assert {reply.status for reply in many} == {503}
    assert store.asked == asked + 1
    store.hangs = False
    while (await asgi(app, "GET", "/readyz")).status != 200:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    await app.close()


@in_loop
async def test_a_store_that_cannot_be_opened_is_unready_and_opened_when_it_can_be(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    first = tieline.app(worker(), store=f"sqlite:{path}")
    await first.start()
    app = tieline.app(worker(), store=f"sqlite:{path}")
    unready = await asgi(app, "GET", "/readyz")
    assert unready.status == 503
    assert str(tmp_path) not in unready.body.decode()
    assert (await asgi(app, "GET", "/healthz")).status == 200
    await first.close()
    while (await asgi(app, "GET", "/readyz")).status != 200:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    await app.close()


@in_loop
async def test_a_mounted_app_has_its_probes_below_its_own_path() -> None:
    app = tieline.app({"one": worker(), "two": worker()})
    reply = await asgi(app, "GET", "/agents/healthz", root_path="/agents")
    assert reply.status == 200
    await app.close()


@pytest.mark.parametrize("name", ["healthz", "readyz", "metrics"])
@within(30)
async def test_an_agent_cannot_have_the_name_of_a_probe(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"'{name}' cannot be an agent's name"):
        tieline.app({name: worker()})
    source = f"""
from tieline import agent

@agent(name="A")
async def {name}(turn):
    yield "a"

@agent(name="B")
async def other(turn):
    yield "b"
"""
    async with serving(tmp_path, source=source) as here:
        assert await here.ended() == 2
        assert f"'{name}' cannot be an agent's name" in "\n".join(here.lines)


@within(30)
async def test_grpc_tells_its_health_as_readiness_is_to_who_asks_and_to_who_watches() -> None:
    store = FailingStore()
    async with served(worker(), store=store) as it:
        health = health_pb2_grpc.HealthStub(it.channel)
        asks = health_pb2.HealthCheckRequest(service="lf.a2a.v1.A2AService")
        watching = health.Watch(asks)
        assert (await watching.read()).status == SERVING
        store.reading_fails = True
        assert (await watching.read()).status == NOT_SERVING
        assert (await health.Check(asks)).status == NOT_SERVING
        assert (await health.Check(health_pb2.HealthCheckRequest())).status == NOT_SERVING
        store.reading_fails = False
        assert (await watching.read()).status == SERVING
        await it.server.leave()
        assert (await watching.read()).status == NOT_SERVING
        watching.cancel()


async def unavailable(here: Any, task_id: str) -> None:
    """Assert how operations are refused while the store is away, by each protocol."""
    old_call = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": task_id}}
    by_rpc, by_rest, old, by_grpc = await asyncio.gather(
        call(here.url, "GetTask", {"id": task_id}),
        fetch(f"{here.url}/tasks/{task_id}"),
        fetch(here.url, "POST", old_call, {"A2A-Version": "0.3"}),
        _status_of_get(here.grpc, task_id),
    )
    assert (by_rpc.status, by_rpc.json["error"]["code"]) == (503, -32603)
    assert by_rpc.json["error"]["data"][0]["reason"] == "UNAVAILABLE"
    assert (by_rest.status, by_rest.json["error"]["status"]) == (503, "UNAVAILABLE")
    for reply in (by_rpc, by_rest, old):
        assert reply.status == 503
        assert int(reply.headers["retry-after"]) >= 1
        assert "again later" in reply.body.decode()
    assert by_grpc is grpc.StatusCode.UNAVAILABLE


async def _status_of_get(address: str, task_id: str) -> Any:
    async with grpc.aio.insecure_channel(address) as channel:
        get = channel.unary_unary("/lf.a2a.v1.A2AService/GetTask")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await get(pb.GetTaskRequest(id=task_id).SerializeToString(), timeout=30)
        return refused.value.code()


@pytest.mark.parametrize("database", ["redis", "postgres"])
@within(120)
async def test_while_a_shared_store_is_away_a_replica_is_unready_and_refuses_with_when_to_come_back(
    database: str, tmp_path: Path
) -> None:
    made = RedisServer if database == "redis" else PostgresServer
    with made() as server:
        url = server.url("health")
        if isinstance(server, PostgresServer):
            store = PostgresStore(url)
            await store.migrate()
            await store.close()
        async with serving(tmp_path, "--grpc-port", "0", "--ops-port", "0", "--lease", "5s", store=url) as here:
            checks = {"drain": "ok", "store": "ok", "replica": "ok"}
            assert (await fetch(f"{here.ops}/readyz")).json == {"status": "ready", "checks": checks}
            sent = await call(here.url, "SendMessage", sending("hello"))
            task_id = sent.json["result"]["task"]["id"]
            server.stop()

            async def becomes(status: int) -> Any:
                while (found := await fetch(f"{here.ops}/readyz")).status != status:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
                return found

            found = (await becomes(503)).json["checks"]
            assert found["store"] != "ok"
            assert (await fetch(f"{here.ops}/healthz")).status == 200
            await unavailable(here, task_id)
            while (await fetch(f"{here.ops}/readyz")).json["checks"]["replica"] == "ok":  # noqa: ASYNC110 - a lease long
                await asyncio.sleep(0.05)
            server.start()
            await becomes(200)
            assert (await call(here.url, "GetTask", {"id": task_id})).status == 200


@within(60)
async def test_with_a_port_of_its_own_the_operator_is_told_there_alone(tmp_path: Path) -> None:
    async with serving(tmp_path, "--ops-port", "0", "--metrics") as here:
        await here.ready()
        assert here.ops.startswith("http://127.0.0.1:")
        for path in ("/healthz", "/readyz", "/metrics"):
            assert (await fetch(here.ops + path)).status == 200
            assert (await fetch(here.ops + path, "HEAD")).body == b""
            assert (await fetch(here.ops + path, "POST")).status == 405
            assert (await fetch(here.url + path)).status == 404
        assert (await fetch(here.ops + "/")).status == 404
        assert (await fetch(here.ops + "/.well-known/agent-card.json")).status == 404
        assert (await fetch(here.url + "/.well-known/agent-card.json")).status == 200


@within(60)
async def test_workers_that_are_asked_for_several_things_at_once_tell_all_of_them_from_the_first_time_on(
    tmp_path: Path,
) -> None:
    url = redis_server().url(f"e{new_id()[:8]}")
    async with serving(tmp_path, "--ops-port", "0", "--metrics", "--workers", "2", store=url) as here:
        await here.ready()
        for _ in range(2):
            looks = (*["/readyz"] * 5, *["/metrics"] * 5)
            found = await asyncio.gather(*(fetch(here.ops + path) for path in looks))
            for answer in found[:5]:
                assert answer.json["checks"] == {"drain": "ok", "worker 1": "ok", "worker 2": "ok"}
            for answer in found[5:]:
                assert b'worker="1"' in answer.body
                assert b'worker="2"' in answer.body


@within(60)
async def test_an_operators_port_that_is_taken_is_told_in_a_sentence(tmp_path: Path) -> None:
    async with serving(tmp_path, "--ops-port", "0") as here:
        await here.ready()
        other = tmp_path / "other"
        other.mkdir()
        async with serving(other, "--ops-port", here.ops.rpartition(":")[2]) as second:
            assert await second.ended() != 0
            said = "\n".join(second.lines)
            assert "Choose another one with --ops-port" in said
            assert "Traceback" not in said


@within(60)
async def test_a_port_that_is_given_twice_is_told_in_a_sentence(tmp_path: Path) -> None:
    port = free_port()
    for options, advice in (
        (("--port", str(port), "--ops-port", str(port)), "--port"),
        (("--port", str(port), "--grpc-port", str(port)), "--grpc-port"),
    ):
        async with serving(tmp_path, *options) as here:
            assert await here.ended() == 1
            said = "\n".join(here.lines)
            assert f"Choose another one with {advice}." in said
            assert "Traceback" not in said
            assert "Serving" not in said


def test_an_address_that_another_has_taken_since_it_was_bound_is_told() -> None:
    with bind("127.0.0.1", 0) as slow:
        port = slow.getsockname()[1]
        with bind("127.0.0.1", port) as quick:
            begin_to_listen(quick)
            with pytest.raises(CannotServe, match=f"127.0.0.1:{port} cannot be listened on: .*--ops-port"):
                begin_to_listen(slow, "--ops-port")


@within(60)
async def test_what_is_off_is_not_loaded(tmp_path: Path) -> None:
    source = """
import sys

from tieline import agent

@agent(name="Modules", description="Says what is loaded.")
async def modules(turn):
    yield " ".join(sys.modules)
"""
    quiet = {name: "" for name in os.environ if name.startswith("OTEL_")}
    async with serving(tmp_path, source=source, env=quiet) as here:
        sent = await call(here.url, "SendMessage", sending("?"))
        loaded = set(sent.json["result"]["task"]["artifacts"][0]["parts"][0]["text"].split())
        assert "tieline.server.asgi" in loaded
        heavy = {"opentelemetry", "prometheus_client", "requests", "tieline.operation.tracing"}
        assert not loaded & (heavy | {"tieline.operation.metrics", "tieline.operation.measured", "tieline.server.ops"})
        await until(lambda: here.url)
