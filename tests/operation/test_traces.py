"""Traces as a collector receives them, from servers that are processes of their own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import grpc
import pytest
from a2a.types import a2a_pb2 as pb

from tests.databases import redis_server
from tests.engine.scene import within
from tests.operation.collector import Collector, Span, collecting
from tests.operation.serving import call, fetch, sending, serving
from tests.server.raw import JSON, Wire
from tieline.ids import new_id

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
CARRIED = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=value"}

LEADER = """
import os

import tieline
from tieline import Turn, agent

@agent(name="Leader", description="Has another one do it.")
async def leader(turn: Turn):
    async with tieline.connect(os.environ["PEER"], **({"transport": "GRPC"} if turn.text == "grpc" else {})) as peer:
        yield await peer.ask("echo this")
"""


async def spans(collector: Collector, name: str, count: int = 1) -> list[Span]:
    return await asyncio.to_thread(collector.wait, lambda span: span.name == name, count)


async def span(collector: Collector, name: str) -> Span:
    (found,) = await spans(collector, name)
    return found


@pytest.mark.parametrize("binding", ["jsonrpc", "rest", "grpc"])
@within(60)
async def test_a_request_is_a_span_in_the_trace_of_its_caller_and_its_run_a_span_below_it(
    binding: str, tmp_path: Path
) -> None:
    with collecting() as collector:
        async with serving(tmp_path, "--otel", "--grpc-port", "0", env=collector.environment) as here:
            task_id = ""
            if binding == "jsonrpc":
                sent = await call(here.url, "SendMessage", sending("hi"), CARRIED)
                task_id = sent.json["result"]["task"]["id"]
            elif binding == "rest":
                sent = await fetch(f"{here.url}/message:send", "POST", sending("hi"), CARRIED)
                task_id = sent.json["task"]["id"]
            else:
                message = pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text="hi")])
                async with grpc.aio.insecure_channel(here.grpc) as channel:
                    send = channel.unary_unary("/lf.a2a.v1.A2AService/SendMessage")
                    request = pb.SendMessageRequest(message=message).SerializeToString()
                    answer = await send(request, metadata=tuple(CARRIED.items()))
                task_id = pb.SendMessageResponse.FromString(answer).task.id
            asked = await span(collector, "SendMessage")
            ran = await span(collector, "run Worker")
            assert (asked.kind, asked.trace, asked.parent, asked.failed) == ("SERVER", TRACE, PARENT, False)
            assert (ran.kind, ran.trace, ran.parent) == ("INTERNAL", TRACE, asked.id)
            assert asked.service == "worker"
            assert asked.attributes["rpc.method"] == "SendMessage"
            assert asked.attributes["rpc.system"] == {"rest": "http"}.get(binding, binding)
            assert (asked.attributes["a2a.binding"], asked.attributes["a2a.dialect"]) == (binding, "1.0")
            for each in (asked, ran):
                assert each.attributes["a2a.task.id"] == task_id
                assert each.attributes["a2a.agent.name"] == "Worker"
                assert each.attributes["a2a.context.id"]
            assert ran.attributes["a2a.task.state"] == "COMPLETED"


@within(60)
async def test_trace_contexts_that_make_no_sense_begin_a_trace_of_their_own_and_are_no_news(tmp_path: Path) -> None:
    parent = ("traceparent", CARRIED["traceparent"])
    none = [
        [("traceparent", "00-0-0-00")],
        [("traceparent", parent[1].replace(TRACE, "0" * 32))],
        [("traceparent", parent[1].upper())],
        [("traceparent", "f" + "f" + parent[1][2:])],
        [("traceparent", "00-" + "x" * 30_000)],
        [parent, parent],
        [parent, ("traceparent", parent[1].replace(TRACE, TRACE[::-1]))],
        [("tracestate", "vendor=value")],
    ]
    some = [
        ([parent, ("tracestate", "a=1"), ("tracestate", "b=2")], "a=1,b=2"),
        ([parent, ("tracestate", ",".join(f"k{number}=v" for number in range(33)))], ""),
        ([parent, ("tracestate", "k=" + "v" * 20_000)], ""),
        ([parent, ("tracestate", "")], ""),
        ([("traceparent", parent[1][:-2] + "00")], None),  # which says that nobody keeps it
    ]
    with collecting() as collector:
        async with serving(tmp_path, "--otel", "--log-format", "json", env=collector.environment) as here:
            port = int(here.url.rpartition(":")[2])
            for headers in [*none, *(headers for headers, _ in some)]:
                body = json.dumps(
                    {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": sending("hi")}
                ).encode()
                async with Wire(port) as wire:
                    sent = await wire.request("POST", "/", body, [*JSON, *headers])
                    assert "result" in sent.json(), headers
            kept = [state for _, state in some if state is not None]
            found = await spans(collector, "SendMessage", len(none) + len(kept))
        assert not here.having(level="WARNING")
    own, theirs = found[: len(none)], found[len(none) :]
    assert len({each.trace for each in own}) == len(none)
    assert TRACE not in {each.trace for each in own}
    assert all(each.parent == "" for each in own)
    assert {each.trace for each in theirs} == {TRACE}
    assert [each.state for each in theirs] == kept


@within(60)
async def test_an_agent_that_asks_ends_its_span_and_goes_on_in_one_below_the_answer(tmp_path: Path) -> None:
    with collecting() as collector:
        async with serving(tmp_path, env=collector.environment) as here:  # the variable alone switches it on
            sent = await call(here.url, "SendMessage", sending("ask"))
            task = sent.json["result"]["task"]
            first = await span(collector, "run Worker")
            assert first.attributes["a2a.task.state"] == "INPUT_REQUIRED"
            await call(here.url, "SendMessage", sending("Ada", taskId=task["id"]), CARRIED)
            first, second = await spans(collector, "run Worker", 2)
            _, answered = await spans(collector, "SendMessage", 2)
            assert (answered.trace, second.trace, second.parent) == (TRACE, TRACE, answered.id)
            assert second.links == (first.id,)
            assert second.attributes["a2a.task.state"] == "COMPLETED"


@within(90)
async def test_an_answer_that_comes_to_another_replica_has_the_run_that_goes_on_below_it(tmp_path: Path) -> None:
    store = redis_server().url(f"t{new_id()[:8]}")
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
    with collecting() as collector:
        async with (
            serving(tmp_path / "one", "--otel", env=collector.environment, store=store) as one,
            serving(tmp_path / "other", "--otel", env=collector.environment, store=store) as other,
        ):
            sent = await call(one.url, "SendMessage", sending("ask"))
            task = sent.json["result"]["task"]
            await span(collector, "run Worker")
            answered = await call(other.url, "SendMessage", sending("Ada", taskId=task["id"]), CARRIED)
            assert answered.json["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
            first, second = await spans(collector, "run Worker", 2)
            (asked,) = [each for each in await spans(collector, "SendMessage", 2) if each.trace == TRACE]
            assert (second.trace, second.parent, second.links) == (TRACE, asked.id, (first.id,))
            assert first.trace != TRACE


@within(60)
async def test_the_task_of_a_request_about_a_webhook_is_the_webhooks_task(tmp_path: Path) -> None:
    with collecting() as collector:
        async with serving(tmp_path, "--otel", env=collector.environment) as here:
            await call(here.url, "GetTaskPushNotificationConfig", {"taskId": "the-task", "id": "the-webhook"})
            found = await span(collector, "GetTaskPushNotificationConfig")
            assert found.attributes["a2a.task.id"] == "the-task"


@within(60)
async def test_what_callers_name_is_cut_off_where_it_is_long(tmp_path: Path) -> None:
    long = "x" * 10_000
    with collecting() as collector:
        async with serving(tmp_path, "--otel", env=collector.environment) as here:
            await call(here.url, "SendMessage", sending("hi", contextId=long))
            await call(here.url, "GetTask", {"id": long})
            for name, key in (("SendMessage", "context"), ("run Worker", "context"), ("GetTask", "task")):
                assert (await span(collector, name)).attributes[f"a2a.{key}.id"] == long[:200]


@within(60)
async def test_a_stream_is_one_span_that_lasts_as_long_as_it_is_open(tmp_path: Path) -> None:
    with collecting() as collector:
        async with serving(tmp_path, "--otel", env=collector.environment) as here:
            streamed = await call(here.url, "SendStreamingMessage", sending("hi"))
            assert streamed.body.count(b"data: ") >= 3
            asked = await span(collector, "SendStreamingMessage")
            assert (asked.failed, asked.attributes["http.response.status_code"]) == (False, 200)


@within(60)
async def test_the_fault_of_a_caller_is_no_error_of_the_server_and_that_of_an_agent_is_one_of_its_run(
    tmp_path: Path,
) -> None:
    with collecting() as collector:
        async with serving(tmp_path, "--otel", env=collector.environment) as here:
            await call(here.url, "GetTask", {"id": "nobody"})
            await call(here.url, "SendMessage", sending("fail secretly"))
            await call(here.url, "Dance", {})
            missed = await span(collector, "GetTask")
            assert (missed.attributes["error.type"], missed.failed) == ("TASK_NOT_FOUND", False)
            assert missed.attributes["rpc.jsonrpc.error_code"] == -32001
            ran = await span(collector, "run Worker")
            assert (ran.failed, ran.attributes["a2a.task.state"]) == (True, "FAILED")
            assert not (await span(collector, "SendMessage")).failed
            assert (await span(collector, "POST")).attributes["error.type"] == "METHOD_NOT_FOUND"
            assert not any(b"secretly" in body for body in collector.bodies)


@pytest.mark.parametrize("binding", ["jsonrpc", "grpc"])
@within(60)
async def test_a_delegated_call_is_below_the_run_that_makes_it(binding: str, tmp_path: Path) -> None:
    with collecting() as collector:
        environment = collector.environment
        for folder in ("leader", "worker"):
            (tmp_path / folder).mkdir()
        async with serving(tmp_path / "worker", "--otel", "--grpc-port", "0", env=environment) as worker:
            environment |= {"PEER": worker.url, "OTEL_SERVICE_NAME": "leader-of-all"}
            async with serving(tmp_path / "leader", "--otel", source=LEADER, env=environment) as leader:
                word = "grpc" if binding == "grpc" else "http"
                sent = await call(leader.url, "SendMessage", sending(word), CARRIED)
                assert sent.json["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED", leader.lines
            led = await span(collector, "run Leader")
            ran = await span(collector, "run Worker")
            assert {led.trace, ran.trace} == {TRACE}
            (below,) = [each for each in collector.spans if each.id == ran.parent]
            assert (below.kind, below.parent, below.service) == ("SERVER", led.id, "worker")
            assert below.attributes["a2a.binding"] == binding
            assert led.service == "leader-of-all"


@within(60)
async def test_a_program_that_has_set_a_provider_of_its_own_keeps_it(tmp_path: Path) -> None:
    source = """
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

provider = TracerProvider(resource=Resource.create({"service.name": "its-own"}))
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)

from tieline import agent

@agent(name="Worker", description="Works.")
async def worker(turn):
    with trace.get_tracer("mine").start_as_current_span("inside"):
        yield "done"
"""
    with collecting() as collector:
        async with serving(tmp_path, "--otel", source=source, env=collector.environment) as here:
            await call(here.url, "SendMessage", sending("hi"))
            asked = await span(collector, "SendMessage")
            inside = await span(collector, "inside")
            assert (asked.service, inside.service) == ("its-own", "its-own")
            assert inside.parent == (await span(collector, "run Worker")).id
            assert len([each for each in collector.spans if each.name == "SendMessage"]) == 1


@within(60)
async def test_the_last_spans_are_sent_at_the_end_and_a_collector_that_is_away_holds_nobody_up(tmp_path: Path) -> None:
    with collecting() as collector:
        late = collector.environment | {"OTEL_BSP_SCHEDULE_DELAY": "60000"}
        async with serving(tmp_path, "--otel", env=late) as here:
            await call(here.url, "SendMessage", sending("hi"))
        await span(collector, "SendMessage")
    async with serving(tmp_path, "--otel", env=late) as here:  # nobody is there any more
        sent = await call(here.url, "SendMessage", sending("hi"))
        assert sent.status == 200
        here.process.terminate()
        assert await here.ended() == 0


@within(60)
async def test_traces_are_off_where_the_environment_says_so(tmp_path: Path) -> None:
    with collecting() as collector:
        off = collector.environment | {"OTEL_TRACES_EXPORTER": "none"}
        async with serving(tmp_path, env=off) as here:
            await call(here.url, "SendMessage", sending("hi"))
        async with serving(tmp_path, env=collector.environment | {"OTEL_SDK_DISABLED": "true"}) as here:
            await call(here.url, "SendMessage", sending("hi"))
        assert collector.spans == []
