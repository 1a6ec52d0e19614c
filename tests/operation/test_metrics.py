"""Metrics as Prometheus reads them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import tieline
from tests.behaviour.failing_store import FailingStore
from tests.databases import redis_server
from tests.engine.scene import within
from tests.operation.serving import Serving, call, fetch, sending, serving
from tests.server.agents import worker
from tests.server.raw import A2A_JSON, asgi, in_loop
from tieline import Telemetry
from tieline.ids import new_id
from tieline.server.auth import Auth, BearerTokens
from tieline.server.ops import merged

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(page: str) -> Samples:
    """Every sample by its name and labels; a name with two heads, or a sample that is there twice, fails."""
    found: Samples = {}
    names = []
    for family in text_string_to_metric_families(page):
        names.append(family.name)
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found
            found[key] = sample.value
    assert len(names) == len(set(names))
    return found


def value(of: Samples, name: str, **labels: str) -> float:
    """The sum of the samples with these labels."""
    return sum(each for (found, given), each in of.items() if found == name and labels.items() <= dict(given).items())


async def scraped(here: Serving) -> Samples:
    return samples((await fetch(f"{here.ops or here.url}/metrics")).body.decode())


@within(60)
async def test_requests_runs_streams_events_and_the_store_are_counted(tmp_path: Path) -> None:
    async with serving(tmp_path, "--metrics", "--ops-port", "0") as here:
        await call(here.url, "SendMessage", sending("hi"))
        await call(here.url, "SendMessage", sending("fail"))
        await call(here.url, "SendMessage", sending("reply"))
        asked = await call(here.url, "SendMessage", sending("ask"))
        task_id = asked.json["result"]["task"]["id"]
        await call(here.url, "GetTask", {"id": "nobody"})
        await call(here.url, "Dance", {})
        await fetch(f"{here.url}/tasks/{task_id}")
        await call(here.url, "message/send", sending("x", kind="message"), {"A2A-Version": "0.3"})
        streaming = asyncio.create_task(call(here.url, "SendStreamingMessage", sending("wait")))
        while value(found := await scraped(here), "tieline_streams_open") != 1:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        requests = "tieline_requests_total"
        assert value(found, requests, method="SendMessage", dialect="1.0", binding="jsonrpc", code="OK") == 4
        assert value(found, requests, method="SendMessage", dialect="0.3") == 1
        assert value(found, requests, method="GetTask", code="TASK_NOT_FOUND", binding="jsonrpc") == 1
        assert value(found, requests, method="GetTask", code="OK", binding="rest") == 1
        assert value(found, requests, method="other", code="METHOD_NOT_FOUND") == 1
        assert value(found, "tieline_request_duration_seconds_count", method="SendMessage", dialect="1.0") == 4
        assert value(found, "tieline_request_duration_seconds_bucket", method="SendMessage", le="+Inf") == 5
        for state, count in {"COMPLETED": 2, "FAILED": 1, "MESSAGE": 1, "INPUT_REQUIRED": 1}.items():
            assert value(found, "tieline_runs_total", agent="Worker", state=state) == count
        assert value(found, "tieline_runs_now", agent="Worker", doing="working") == 1
        assert value(found, "tieline_runs_now", agent="Worker", doing="waiting") == 1
        assert value(found, "tieline_run_duration_seconds_count", agent="Worker") == 5
        assert value(found, "tieline_tasks_ended_total", state="TASK_STATE_COMPLETED") == 2
        assert value(found, "tieline_events_appended_total") > 8
        assert value(found, "tieline_store_duration_seconds_count", operation="append") >= 5
        assert value(found, "tieline_store_failures_total") == 0
        assert value(found, "process_resident_memory_bytes") > 1e6
        assert value(found, "tieline_info", version=tieline.__version__) == 1
        await call(here.url, "SendMessage", sending("Ada", taskId=task_id))
        assert value(await scraped(here), "tieline_runs_now", doing="waiting") == 0
        streaming.cancel()


@within(60)
async def test_no_label_grows_with_what_callers_say(tmp_path: Path) -> None:
    async with serving(tmp_path, "--metrics") as here:

        async def many(word: str) -> None:
            for number in range(5):
                mark = f"{word}{number}"
                await call(
                    here.url, "SendMessage", sending(mark, contextId=mark), {"Authorization": mark, "User-Agent": mark}
                )
                await call(here.url, "GetTask", {"id": mark})
                await call(here.url, f"Method-{mark}", {}, {"A2A-Version": f"{number}.9"})
                await fetch(f"{here.url}/tasks/{mark}")
                await fetch(f"{here.url}/{mark}", "POST")
                await fetch(f"{here.url}/tasks/{mark}", "DELETE")

        await many("first")
        before = set(await scraped(here))
        await many("second")
        page = (await fetch(f"{here.url}/metrics")).body.decode()
        assert set(samples(page)) == before
        assert "first" not in page


@in_loop
async def test_a_store_that_fails_is_counted() -> None:
    store = FailingStore("later")
    store.fails_append = lambda append: True
    app = tieline.app(worker(), store=store, telemetry=Telemetry(metrics=True))
    lost = await asgi(app, "POST", "/message:send", json.dumps(sending("x")).encode(), A2A_JSON)
    assert lost.status == 500
    store.reading_fails = True
    assert (await asgi(app, "GET", "/tasks", headers=A2A_JSON)).status == 503
    found = samples((await asgi(app, "GET", "/metrics")).body.decode())
    assert value(found, "tieline_store_failures_total", operation="append") == 1
    assert value(found, "tieline_store_failures_total", operation="list") == 1
    assert value(found, "tieline_events_appended_total") == 0
    assert value(found, "tieline_requests_total", method="ListTasks", code="UNAVAILABLE") == 1
    store.reading_fails = False
    await app.close()


@in_loop
async def test_an_app_in_a_server_of_yours_has_its_metrics_beside_it_and_none_unless_asked() -> None:
    app = tieline.app(worker(), telemetry=Telemetry(metrics=True))
    page = await asgi(app, "GET", "/metrics", headers=[("Accept", "application/openmetrics-text;version=1.0.0")])
    assert page.status == 200
    assert page.headers["content-type"].startswith("application/openmetrics-text")
    assert page.body.endswith(b"# EOF\n")
    assert app.observer is not None
    app.observer.pushed("delivered", 0.1)
    app.observer.pushed("given_up", 0.1)
    found = samples((await asgi(app, "GET", "/metrics")).body.decode())
    assert value(found, "tieline_push_deliveries_total", outcome="delivered") == 1
    assert value(found, "tieline_push_duration_seconds_count") == 2
    await app.close()
    quiet = tieline.app(worker())
    assert quiet.observer is None
    assert (await asgi(quiet, "GET", "/metrics")).status == 404
    await quiet.close()


@in_loop
async def test_what_an_app_tells_already_and_what_its_server_adds_come_together() -> None:
    app = tieline.app(worker(), telemetry=Telemetry(metrics=True))
    app.observe(Telemetry(access_log=True))
    app.observe(Telemetry())
    app.observe(Telemetry(metrics=True))
    await asgi(app, "POST", "/message:send", json.dumps(sending("x")).encode(), A2A_JSON)
    found = samples((await asgi(app, "GET", "/metrics")).body.decode())
    assert value(found, "tieline_requests_total", method="SendMessage") == 1
    assert value(found, "tieline_tasks_ended_total") == 1
    await app.close()


@within(60)
async def test_several_processes_are_told_of_at_one_port_each_with_its_number(tmp_path: Path) -> None:
    url = redis_server().url(f"m{new_id()[:8]}")
    async with serving(tmp_path, "--workers", "2", "--metrics", "--ops-port", "0", store=url) as here:
        ready = await fetch(f"{here.ops}/readyz")
        assert ready.json == {"status": "ready", "checks": {"drain": "ok", "worker 1": "ok", "worker 2": "ok"}}
        for _ in range(12):
            await call(here.url, "SendMessage", sending("hi"))
        found = await scraped(here)
        assert value(found, "tieline_requests_total", method="SendMessage") == 12
        assert {dict(labels).get("worker") for _, labels in found} == {"1", "2"}
        assert value(found, "process_open_fds", worker="1") > 0
        os.kill(here.children()[0], signal.SIGKILL)
        while (ready := await fetch(f"{here.ops}/readyz")).json["checks"].get("worker 1") == "ok":  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        assert ready.status == 200  # the other one answers
        while (await fetch(f"{here.ops}/readyz")).json["checks"]["worker 1"] != "ok":  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert (await fetch(f"{here.ops}/healthz")).status == 200
        found = await scraped(here)
        assert value(found, "process_open_fds", worker="1") > 0


@within(30)
async def test_metrics_of_several_processes_need_the_operators_port(tmp_path: Path) -> None:
    async with serving(tmp_path, "--workers", "2", "--metrics", store="redis://127.0.0.1:1") as here:
        assert await here.ended() == 2
        assert any("--metrics with --workers needs --ops-port" in line for line in here.lines)


@within(60)
async def test_where_callers_have_to_authenticate_metrics_are_at_the_operators_port_alone(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.touch(0o600)
    guard = ("--auth", "bearer", "--tokens", str(tokens), "--metrics")
    async with serving(tmp_path, *guard) as here:
        assert await here.ended() == 2
        assert any("--metrics with --auth needs --ops-port" in line for line in here.lines)
    async with serving(tmp_path, *guard, "--ops-port", "0") as here:
        assert (await call(here.url, "ListTasks", {})).status == 401
        assert (await fetch(f"{here.url}/metrics")).status == 401
        assert value(await scraped(here), "tieline_requests_total", code="UNAUTHENTICATED") >= 1
    app = tieline.app(worker(), telemetry=Telemetry(metrics=True), auth=Auth(BearerTokens(tokens)))
    assert (await asgi(app, "GET", "/metrics")).status == 401
    assert (await asgi(app, "GET", "/readyz")).status == 200
    await app.close()


def test_pages_of_several_processes_become_one() -> None:
    page = (
        "# HELP a_total Help with {braces}.\n# TYPE a_total counter\n"
        'a_total{x="1} 2"} 1.0\na_total 2.0\n# HELP b B.\n# TYPE b gauge\nb 3.0\n'
    )
    both = merged([("1", page), ("2", ""), ("3", page)])
    assert both.count("# HELP a_total ") == both.count("# TYPE b ") == 1
    found = samples(both)
    assert value(found, "a_total", worker="1") == value(found, "a_total", worker="3") == 3
    assert value(found, "a_total", worker="3", x="1} 2") == 1
    assert merged([]) == ""


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for module in ("tieline.operation.metrics", "tieline.operation.tracing"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    for module in ("prometheus_client", "opentelemetry"):
        monkeypatch.setitem(sys.modules, module, None)
    for wanted in (Telemetry(metrics=True), Telemetry(traces=True)):
        with pytest.raises(ImportError, match=r"pip install 'tieline\[telemetry\]'"):
            tieline.app(worker(), telemetry=wanted)
