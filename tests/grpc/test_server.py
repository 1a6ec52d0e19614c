"""The gRPC server of A2A 1.0, called by stubs of the official protobuf classes."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf import json_format
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.behaviour.agents import Puppet, asks, make_agent, says
from tests.grpc.serving import Refusal, eventually, refused, run, said, served
from tests.server.agents import asker, mixed, replier, worker
from tieline import AgentExtension, Part, Turn
from tieline.engine.turn import Caller
from tieline.types import GetTaskRequest

STATES = pb.TaskState


async def events_of(call: Any) -> list[str]:
    return [event.WhichOneof("payload") async for event in call]


def test_a_message_is_answered_by_a_message_or_by_a_task() -> None:
    async def check() -> None:
        async with served(replier()) as it:
            answer = await it.stub.SendMessage(said("Grüße 😀"))
            assert answer.message.parts[0].text == "Grüße 😀"
            assert answer.message.role == pb.ROLE_AGENT
        async with served(worker()) as it:
            task = (await it.stub.SendMessage(said("it", context_id="c"))).task
            assert (task.context_id, task.status.state) == ("c", STATES.TASK_STATE_COMPLETED)
            assert task.artifacts[0].parts[0].text == "did it"
            assert task.status.timestamp.nanos % 1_000_000 == 0

    run(check())


def test_a_stream_gives_the_task_and_what_happens_and_ends_with_it() -> None:
    async def check() -> None:
        async with served(worker()) as it:
            call = it.stub.SendStreamingMessage(said("it"))
            given = [event async for event in call]
            assert given[0].WhichOneof("payload") == "task"
            assert given[-1].status_update.status.state == STATES.TASK_STATE_COMPLETED
            texts = [
                event.artifact_update.artifact.parts[0].text for event in given if event.HasField("artifact_update")
            ]
            assert "".join(texts) == "did it"
            assert not it.server.open
        async with served(replier()) as it:
            assert await events_of(it.stub.SendStreamingMessage(said())) == ["message"]

    run(check())


def test_a_question_is_answered_by_a_second_message_of_the_same_task() -> None:
    async def check() -> None:
        async with served(asker()) as it:
            asked = [event async for event in it.stub.SendStreamingMessage(said("hello"))]
            status = asked[-1].status_update.status
            assert status.state == STATES.TASK_STATE_INPUT_REQUIRED
            assert status.message.parts[0].text == "What?"
            answer = await it.stub.SendMessage(said("this", task_id=asked[0].task.id))
            assert answer.task.artifacts[0].parts[0].text == "you said this"
            assert len(answer.task.history) == 3

    run(check())


def test_a_task_is_read_listed_followed_and_cancelled() -> None:
    puppet = Puppet()

    async def check() -> None:
        async with served(puppet) as it:
            at_once = pb.SendMessageConfiguration(return_immediately=True)
            task = (await it.stub.SendMessage(said(configuration=at_once))).task
            act = await puppet.next()
            assert task.status.state == STATES.TASK_STATE_SUBMITTED or task.status.state == STATES.TASK_STATE_WORKING
            follower = it.stub.SubscribeToTask(pb.SubscribeToTaskRequest(id=task.id))
            assert (await follower.read()).task.id == task.id
            act.tell(says("nearly"))
            assert (await follower.read()).status_update.status.message.parts[0].text == "nearly"
            read = await it.stub.GetTask(pb.GetTaskRequest(id=task.id, history_length=0))
            assert (read.id, len(read.history)) == (task.id, 0)
            page = await it.stub.ListTasks(pb.ListTasksRequest(status=STATES.TASK_STATE_WORKING, page_size=5))
            assert [each.id for each in page.tasks] == [task.id]
            assert (page.page_size, page.total_size, page.next_page_token) == (5, 1, "")
            ended = await it.stub.CancelTask(pb.CancelTaskRequest(id=task.id))
            assert ended.status.state == STATES.TASK_STATE_CANCELED
            assert act.cancelled
            last = await follower.read()
            assert last.status_update.status.state == STATES.TASK_STATE_CANCELED
            assert await follower.read() is grpc.aio.EOF
            assert await follower.code() is grpc.StatusCode.OK

    run(check())


def test_a_task_begun_by_grpc_is_the_one_that_http_reads() -> None:
    async def check() -> None:
        async with served(mixed()) as it:
            sent = [pb.Part(text="echo"), pb.Part(raw=b"\0\xff", filename="a.bin", media_type="image/png")]
            sent.append(json_format.ParseDict({"data": {"n": [1, 1.5, None, 2**53]}}, pb.Part()))
            task = (await it.stub.SendMessage(said(parts=sent))).task
            service = it.app.services[""]
            kept = await service.get_task(GetTaskRequest(task.id), Caller())
            assert kept.value.artifacts[0].parts[1].raw == b"\0\xff"
            assert kept.value.artifacts[0].parts[2].data == {"n": [1, 1.5, None, 2**53]}
            assert list(task.artifacts[0].parts) == sent

    run(check())


@pytest.mark.parametrize(
    ("method", "request_", "status", "reason"),
    [
        ("GetTask", pb.GetTaskRequest(id="no"), "NOT_FOUND", "TASK_NOT_FOUND"),
        ("GetTask", pb.GetTaskRequest(), "INVALID_ARGUMENT", "INVALID_PARAMS"),
        ("CancelTask", pb.CancelTaskRequest(id="no"), "NOT_FOUND", "TASK_NOT_FOUND"),
        ("SubscribeToTask", pb.SubscribeToTaskRequest(id="no"), "NOT_FOUND", "TASK_NOT_FOUND"),
        ("ListTasks", pb.ListTasksRequest(page_size=101), "INVALID_ARGUMENT", "INVALID_PARAMS"),
        ("SendMessage", said(task_id="no"), "NOT_FOUND", "TASK_NOT_FOUND"),
        ("SendStreamingMessage", said(task_id="no"), "NOT_FOUND", "TASK_NOT_FOUND"),
        (
            "SendMessage",
            said(parts=[pb.Part(raw=b"x", media_type="image/png")]),
            "INVALID_ARGUMENT",
            "CONTENT_TYPE_NOT_SUPPORTED",
        ),
        (
            "CreateTaskPushNotificationConfig",
            pb.TaskPushNotificationConfig(task_id="t", url="https://example.com"),
            "FAILED_PRECONDITION",
            "PUSH_NOTIFICATION_NOT_SUPPORTED",
        ),
        (
            "GetTaskPushNotificationConfig",
            pb.GetTaskPushNotificationConfigRequest(task_id="t", id="c"),
            "FAILED_PRECONDITION",
            "PUSH_NOTIFICATION_NOT_SUPPORTED",
        ),
        (
            "ListTaskPushNotificationConfigs",
            pb.ListTaskPushNotificationConfigsRequest(task_id="t"),
            "FAILED_PRECONDITION",
            "PUSH_NOTIFICATION_NOT_SUPPORTED",
        ),
        (
            "DeleteTaskPushNotificationConfig",
            pb.DeleteTaskPushNotificationConfigRequest(task_id="t", id="c"),
            "FAILED_PRECONDITION",
            "PUSH_NOTIFICATION_NOT_SUPPORTED",
        ),
        ("GetExtendedAgentCard", pb.GetExtendedAgentCardRequest(), "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
    ],
)
def test_a_refusal_has_the_status_and_the_reason_of_the_specification(
    method: str, request_: Any, status: str, reason: str
) -> None:
    async def check() -> Refusal:
        async with served(worker()) as it:
            return await refused(getattr(it.stub, method)(request_))

    refusal = run(check())
    assert (refusal.status, refusal.reason) == (status, reason)


def test_a_refusal_names_the_bad_fields_and_carries_its_metadata() -> None:
    async def check() -> None:
        async with served(worker()) as it:
            no_parts = pb.SendMessageRequest(message=pb.Message(message_id="m", role=pb.ROLE_USER))
            refusal = await refused(it.stub.SendMessage(no_parts))
            assert refusal.violations == [("message.parts", "at least one part is required")]
            refusal = await refused(it.stub.SendMessage(said(parts=[pb.Part(text="x"), pb.Part(filename="f")])))
            assert [field for field, _ in refusal.violations] == ["message.parts[1]"]
            refusal = await refused(it.stub.SendMessage(pb.SendMessageRequest()))
            assert refusal.violations == [("message", "is required")]
            refusal = await refused(it.stub.GetTask(pb.GetTaskRequest(id="no")))
            assert refusal.metadata == {"taskId": "no"}
            task = (await it.stub.SendMessage(said())).task
            refusal = await refused(it.stub.CancelTask(pb.CancelTaskRequest(id=task.id)))
            assert refusal.status == "FAILED_PRECONDITION"
            assert refusal.reason == "TASK_NOT_CANCELABLE"
            refusal = await refused(it.stub.SubscribeToTask(pb.SubscribeToTaskRequest(id=task.id)))
            assert refusal.reason == "UNSUPPORTED_OPERATION"

    run(check())


@pytest.mark.parametrize("text", ["x" * 30_000, "é😀" * 10_000, "😀" * 400, "中" * 300, "\r\n%\0"])
def test_a_refusal_that_repeats_a_long_or_odd_text_still_arrives_whole(text: str) -> None:
    async def check() -> None:
        async with served(worker()) as it:
            refusal = await refused(it.stub.GetTask(pb.GetTaskRequest(id=text)))
            assert (refusal.status, refusal.reason) == ("NOT_FOUND", "TASK_NOT_FOUND")
            assert text.startswith(refusal.metadata["taskId"][:100])

    run(check())


def test_bytes_that_are_no_message_are_refused() -> None:
    async def check() -> None:
        async with served(worker()) as it:
            call = it.channel.unary_unary("/lf.a2a.v1.A2AService/GetTask")
            refusal = await refused(call(b"\xff\xff"))
            assert (refusal.status, refusal.reason) == ("INVALID_ARGUMENT", "PARSE_ERROR")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await it.channel.unary_unary("/lf.a2a.v1.A2AService/Nothing")(b"")
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED

    run(check())


def test_a_bug_of_the_agent_is_not_told_and_that_of_nobody_else() -> None:
    async def check() -> None:
        async with served(mixed()) as it:
            task = (await it.stub.SendMessage(said("crash"))).task
            assert task.status.state == STATES.TASK_STATE_FAILED
            assert "secret" not in str(task)
            rejected = (await it.stub.SendMessage(said("reject"))).task
            assert rejected.status.state == STATES.TASK_STATE_REJECTED

    run(check())


@pytest.mark.parametrize(
    ("version", "strict", "is_served"),
    [
        (None, False, True),
        (None, True, False),
        ("1.0", True, True),
        ("1.0.3", False, True),
        ("", False, True),
        ("0.3", False, False),
        ("2.0", False, False),
        ("x", False, False),
    ],
)
def test_the_version_in_the_metadata_has_to_be_1_0_or_missing(
    version: str | None, strict: bool, is_served: bool
) -> None:
    async def check() -> None:
        metadata = () if version is None else (("a2a-version", version),)
        async with served(replier(), strict=strict) as it:
            for call in (it.stub.SendMessage, it.stub.SendStreamingMessage):
                if is_served:
                    answer = call(said("hello"), metadata=metadata)
                    found = await (answer.read() if hasattr(answer, "read") else answer)
                    assert found.message.parts[0].text == "hello"
                else:
                    refusal = await refused(call(said(), metadata=metadata))
                    assert (refusal.status, refusal.reason) == ("FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED")
                    assert refusal.metadata["supportedVersions"] == "1.0"

    run(check())


@pytest.mark.parametrize("key", ["a2a-extensions", "x-a2a-extensions"])
def test_extensions_are_taken_from_the_metadata_and_required_ones_demanded(key: str) -> None:
    seen: list[tuple[str, ...]] = []

    async def tell(turn: Turn) -> Any:
        seen.append(turn.caller.extensions)
        return turn.reply("ok")

    agent = make_agent(tell, extensions=(AgentExtension("https://e/1", required=True),))

    async def check() -> None:
        async with served(agent) as it:
            refusal = await refused(it.stub.SendMessage(said()))
            assert refusal.reason == "EXTENSION_SUPPORT_REQUIRED"
            await it.stub.SendMessage(said(), metadata=((key, "https://e/1, https://e/2"), (key, "https://e/3")))

    run(check())
    assert seen == [("https://e/1", "https://e/2", "https://e/3")]


def test_a_caller_that_goes_away_ends_its_stream_and_not_the_task() -> None:
    puppet = Puppet()

    async def check() -> None:
        async with served(puppet) as it:
            call = it.stub.SendStreamingMessage(said())
            act = await puppet.next()
            act.tell(says("on it"))
            task_id = (await call.read()).task.id
            await eventually(lambda: len(it.server.open) == 1)
            call.cancel()
            await eventually(lambda: not it.server.open)
            waiting = asyncio.ensure_future(_answer(it.stub.SendMessage(said(task_id=task_id))))
            act.tell("done")
            act.end()
            waiting.cancel()
            await eventually(lambda: act.stopped.is_set())
            task = await it.stub.GetTask(pb.GetTaskRequest(id=task_id))
            assert task.artifacts[0].parts[0].text == "done"
            assert not act.cancelled

    run(check())


async def _answer(call: Any) -> Any:
    return await call


async def _code_of(call: Any) -> Any:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code()


def test_a_call_past_its_deadline_is_given_up_by_its_caller_and_the_agent_goes_on() -> None:
    puppet = Puppet()

    async def check() -> None:
        async with served(puppet) as it:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await it.stub.SendMessage(said(), timeout=0.2)
            assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            act = await puppet.next()
            act.tell("in the end")
            act.end()
            await act.stopped.wait()
            page = await it.stub.ListTasks(pb.ListTasksRequest(include_artifacts=True))
            assert page.tasks[0].artifacts[0].parts[0].text == "in the end"

    run(check())


def test_a_request_larger_than_the_limit_is_refused_and_one_as_large_is_not() -> None:
    async def check() -> None:
        async with served(replier(input_modes=("*/*",)), max_body_bytes=5000) as it:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await it.stub.SendMessage(said("x" * 5000))
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert (await it.stub.SendMessage(said("x" * 4900))).message.parts[0].text == "x" * 4900
        async with served(worker()) as it:
            text = "x" * (5 * 1024 * 1024)  # more than grpcio takes by itself
            call = it.channel.unary_unary("/lf.a2a.v1.A2AService/SendMessage")
            data = said(text).SerializeToString()
            refusal = await _code_of(call(data))  # of the caller's own limit: the server has taken it, and answered
            assert refusal is grpc.StatusCode.RESOURCE_EXHAUSTED
            page = await it.stub.ListTasks(pb.ListTasksRequest(history_length=0))
            assert page.total_size == 1

    run(check())


def test_an_answer_that_grpc_cannot_carry_exactly_is_refused_with_the_task_that_json_can_read() -> None:
    async def large(turn: Turn) -> Any:
        yield "before"
        yield Part(data={"big": 2**53 + 1})
        yield "after"

    async def check() -> None:
        async with served(make_agent(large)) as it:
            refusal = await refused(it.stub.SendMessage(said()))
            assert (refusal.status, refusal.reason) == ("FAILED_PRECONDITION", "UNSUPPORTED_OPERATION")
            assert refusal.metadata["field"] == "task.artifacts[0].parts[1].data.big"
            assert "JSON-RPC" in refusal.message
            kept = await it.app.services[""].get_task(GetTaskRequest(refusal.metadata["taskId"]), Caller())
            assert kept.value.artifacts[0].parts[1].data == {"big": 2**53 + 1}
            with pytest.raises(grpc.aio.AioRpcError, match="artifactUpdate"):
                await events_of(it.stub.SendStreamingMessage(said()))
            assert not it.server.open

    run(check())


def test_streams_end_when_the_server_is_drained_and_new_work_is_refused() -> None:
    async def check() -> None:
        async with served(asker()) as it:
            asked = (await it.stub.SendMessage(said())).task
            waiting = it.stub.SubscribeToTask(pb.SubscribeToTaskRequest(id=asked.id))
            assert (await waiting.read()).task.id == asked.id
            await it.server.leave()
            draining = asyncio.ensure_future(it.app.drain())
            await draining
            refusal = await refused(it.stub.SendMessage(said()))
            assert (refusal.status, refusal.reason) == ("UNAVAILABLE", "UNAVAILABLE")
            assert refusal.metadata["retryAfterSeconds"].isdigit()
            await it.server.stop()
            with pytest.raises(grpc.aio.AioRpcError):  # the task goes on: that is no end
                await waiting.read()
            assert await waiting.code() is grpc.StatusCode.UNAVAILABLE

    run(check())


def test_the_last_events_of_a_drained_agent_are_told() -> None:
    puppet = Puppet()

    async def check() -> None:
        async with served(puppet) as it:
            call = it.stub.SendStreamingMessage(said())
            act = await puppet.next()
            act.tell(says("working"))
            given = aiter(call)
            assert (await anext(given)).HasField("task")
            await it.app.drain()
            await it.server.stop()
            states = [event.status_update.status.state async for event in given]
            assert states[-1] == STATES.TASK_STATE_FAILED

    run(check())


@pytest.mark.parametrize("count", [1, 2])
def test_of_agents_with_names_the_tenant_names_the_one_that_is_called(count: int) -> None:
    async def check() -> None:
        agents = dict(list({"one": make_agent(_one), "two": make_agent(_two)}.items())[:count])
        async with served(agents) as it:
            for name in agents:
                request = said()
                request.tenant = name
                task = (await it.stub.SendMessage(request)).task
                assert task.artifacts[0].parts[0].text == name
                assert (await it.stub.GetTask(pb.GetTaskRequest(id=task.id, tenant=name))).id == task.id
            refusal = await refused(it.stub.GetTask(pb.GetTaskRequest(id="t")))
            assert refusal.violations == [("tenant", f"has to name an agent of this server: {', '.join(agents)}")]
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await it.channel.unary_unary("/a2a.v1.A2AService/GetTask")(b"")
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED

    run(check())


async def _one(turn: Turn) -> str:
    return "one"


async def _two(turn: Turn) -> str:
    return "two"


def test_reflection_names_the_services_and_health_tells_when_the_server_leaves() -> None:
    async def check() -> None:
        async with served(replier()) as it:
            stub = reflection_pb2_grpc.ServerReflectionStub(it.channel)
            asked = reflection_pb2.ServerReflectionRequest
            requests = [asked(list_services=""), asked(file_containing_symbol="lf.a2a.v1.A2AService")]
            answers = [answer async for answer in stub.ServerReflectionInfo(iter(requests))]
            names = {service.name for service in answers[0].list_services_response.service}
            assert {"lf.a2a.v1.A2AService", "a2a.v1.A2AService", "grpc.health.v1.Health"} <= names
            assert answers[1].file_descriptor_response.file_descriptor_proto
            health = health_pb2_grpc.HealthStub(it.channel)
            for service in ("", "lf.a2a.v1.A2AService", "a2a.v1.A2AService"):
                found = await health.Check(health_pb2.HealthCheckRequest(service=service))
                assert found.status == health_pb2.HealthCheckResponse.SERVING
            await it.server.leave()
            found = await health.Check(health_pb2.HealthCheckRequest())
            assert found.status == health_pb2.HealthCheckResponse.NOT_SERVING

    run(check())


def test_a_port_that_is_taken_is_told_with_the_reason() -> None:
    async def check() -> None:
        async with served(replier()) as it:
            with pytest.raises(OSError, match="Address already in use"):
                await it.server.start("127.0.0.1", it.port)

    run(check())


def test_many_callers_at_once_are_all_answered_with_what_they_said() -> None:
    async def check() -> None:
        async with served(worker()) as it:
            answers = await asyncio.gather(*(_answer(it.stub.SendMessage(said(str(n)))) for n in range(200)))
            assert [answer.task.artifacts[0].parts[0].text for answer in answers] == [f"did {n}" for n in range(200)]

    run(check())


def test_a_question_that_is_streamed_waits_for_nobody_after_it_was_asked() -> None:
    puppet = Puppet()

    async def check() -> None:
        async with served(puppet) as it:
            call = it.stub.SendStreamingMessage(said())
            act = await puppet.next()
            act.tell(asks("Which?"))
            states = [event.status_update.status.state async for event in call if event.HasField("status_update")]
            assert states[-1] == STATES.TASK_STATE_INPUT_REQUIRED

    run(check())
