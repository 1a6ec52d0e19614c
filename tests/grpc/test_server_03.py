"""The gRPC server of A2A 0.3, called by stubs of the official protobuf classes."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb
from a2a.types.a2a_pb2 import GetTaskRequest

from tests.behaviour.agents import Puppet, asks, says
from tests.grpc.serving import refused, run, said03, served
from tests.server.agents import asker, mixed, replier, worker
from tieline import AgentExtension


def test_a_message_without_a_word_on_blocking_waits_for_the_result() -> None:
    puppet = Puppet()

    async def check() -> None:
        async with served(worker()) as it:
            for configuration in (None, pb.SendMessageConfiguration(), pb.SendMessageConfiguration(blocking=True)):
                task = (await it.stub03.SendMessage(said03("it", configuration=configuration))).task
                assert task.status.state == pb.TASK_STATE_COMPLETED
                assert task.artifacts[0].parts[0].text == "did it"
        async with served(puppet) as it:
            at_once = pb.SendMessageConfiguration(accepted_output_modes=["text/plain"])
            task = (await it.stub03.SendMessage(said03(configuration=at_once))).task
            assert task.status.state in (pb.TASK_STATE_SUBMITTED, pb.TASK_STATE_WORKING)

    run(check())


def test_the_last_status_of_a_stream_is_final_and_no_other() -> None:
    async def check() -> None:
        async with served(worker()) as it:
            events = [event async for event in it.stub03.SendStreamingMessage(said03("it"))]
            assert events[0].HasField("task")
            finals = [event.status_update.final for event in events if event.HasField("status_update")]
            assert finals[-1]
            assert not any(finals[:-1])
        async with served(asker()) as it:
            events = [event async for event in it.stub03.SendStreamingMessage(said03("hello"))]
            assert events[-1].status_update.status.state == pb.TASK_STATE_INPUT_REQUIRED
            assert events[-1].status_update.final
        async with served(replier()) as it:
            events = [event async for event in it.stub03.SendStreamingMessage(said03("hello"))]
            assert [event.msg.content[0].text for event in events] == ["hello"]

    run(check())


def test_a_subscription_follows_until_the_agent_asks_and_gives_a_task_that_has_ended() -> None:
    puppet = Puppet()

    async def check() -> None:
        async with served(puppet) as it:
            at_once = pb.SendMessageConfiguration(history_length=1)
            task = (await it.stub03.SendMessage(said03(configuration=at_once))).task
            act = await puppet.next()
            name = f"tasks/{task.id}"
            call = it.stub03.TaskSubscription(pb.TaskSubscriptionRequest(name=name))
            assert (await call.read()).task.id == task.id
            act.tell(says("nearly"), lambda turn: turn.ask("What?"))
            states = []
            while (event := await call.read()) is not grpc.aio.EOF:
                states.append(event.status_update.status.state)
            assert states[-1] == pb.TASK_STATE_INPUT_REQUIRED
            cancelled = await it.stub03.CancelTask(pb.CancelTaskRequest(name=name))
            assert cancelled.status.state == pb.TASK_STATE_CANCELLED
            ended = [event async for event in it.stub03.TaskSubscription(pb.TaskSubscriptionRequest(name=name))]
            assert [event.task.status.state for event in ended] == [pb.TASK_STATE_CANCELLED]
            assert (await it.stub03.GetTask(pb.GetTaskRequest(name=name))).id == task.id

    run(check())


def test_final_comes_with_the_end_of_the_stream_also_where_a_question_was_answered_before_it_was_asked() -> None:
    puppet = Puppet()

    async def check() -> None:
        async with served(puppet) as it:
            streams = [it.stub03.SendStreamingMessage(said03("begin"))]
            task = (await streams[0].read()).task
            act = await puppet.next()
            streams.append(it.stub03.TaskSubscription(pb.TaskSubscriptionRequest(name=f"tasks/{task.id}")))
            assert (await streams[1].read()).task.id == task.id
            streams.append(it.stub03.SendStreamingMessage(said03("early", task_id=task.id)))
            assert (await streams[2].read()).task.id == task.id
            act.tell(says("nearly"), asks("What?"), says("thanks"), asks("And?"))
            for stream in streams:
                events = []
                while (event := await stream.read()) is not grpc.aio.EOF:
                    if event.HasField("status_update"):
                        events.append(event.status_update)
                assert [event.final for event in events] == [False] * (len(events) - 1) + [True]
                assert events[-1].status.state == pb.TASK_STATE_INPUT_REQUIRED

    run(check())


@pytest.mark.parametrize(
    ("method", "request_", "status", "name"),
    [
        ("GetTask", pb.GetTaskRequest(name="tasks/no"), "NOT_FOUND", "TaskNotFoundError"),
        ("GetTask", pb.GetTaskRequest(name="no"), "INVALID_ARGUMENT", "InvalidParamsError"),
        ("SendMessage", pb.SendMessageRequest(), "INVALID_ARGUMENT", "InvalidParamsError"),
        ("SendMessage", said03(task_id="no"), "NOT_FOUND", "TaskNotFoundError"),
        ("SendStreamingMessage", said03(task_id="no"), "NOT_FOUND", "TaskNotFoundError"),
        ("TaskSubscription", pb.TaskSubscriptionRequest(name="tasks/no"), "NOT_FOUND", "TaskNotFoundError"),
        (
            "GetTaskPushNotificationConfig",
            pb.GetTaskPushNotificationConfigRequest(name="tasks/t/pushNotificationConfigs/c"),
            "UNIMPLEMENTED",
            "PushNotificationNotSupportedError",
        ),
    ],
)
def test_a_refusal_has_the_status_of_0_3_and_the_name_of_the_error(
    method: str, request_: Any, status: str, name: str
) -> None:
    async def check() -> None:
        async with served(worker()) as it:
            refusal = await refused(getattr(it.stub03, method)(request_))
            assert refusal.status == status
            assert refusal.message.startswith(f"{name}: ")

    run(check())


def test_a_task_that_has_ended_cannot_be_cancelled() -> None:
    async def check() -> None:
        async with served(mixed()) as it:
            task = (await it.stub03.SendMessage(said03("work"))).task
            refusal = await refused(it.stub03.CancelTask(pb.CancelTaskRequest(name=f"tasks/{task.id}")))
            assert (refusal.status, refusal.reason) == ("FAILED_PRECONDITION", "TASK_NOT_CANCELABLE")

    run(check())


@pytest.mark.parametrize("grpc_url", [None, "agents.example:443"])
@pytest.mark.parametrize("public_url", [None, "https://agents.example/a/"])
def test_the_card_names_what_that_of_http_names(public_url: str | None, grpc_url: str | None) -> None:
    async def check() -> None:
        async with served(worker(), public_url=public_url, grpc_url=grpc_url) as it:
            card = await it.stub03.GetAgentCard(pb.GetAgentCardRequest())
            base = "" if public_url is None else public_url.rstrip("/")
            by_http = [] if public_url is None else [(base + "/", "JSONRPC"), (base, "HTTP+JSON")]
            named = [(each.url, each.transport) for each in card.additional_interfaces]
            assert named == [*by_http, (grpc_url or it.address, "GRPC")]
            assert (card.url, card.preferred_transport) == named[0]
            if public_url is not None:
                at_http = it.app.interfaces("", base)
                assert named == [(i.url, i.protocol_binding) for i in at_http if i.protocol_version == "0.3"]

    run(check())


def test_the_card_is_that_of_0_3_with_the_address_of_grpc() -> None:
    async def check() -> None:
        async with served(worker()) as it:
            card = await it.stub03.GetAgentCard(pb.GetAgentCardRequest())
            assert (card.name, card.protocol_version) == ("Worker", "0.3.0")
            assert (card.url, card.preferred_transport) == (it.address, "GRPC")
            assert card.capabilities.streaming
            assert not card.supports_authenticated_extended_card
            assert [skill.id for skill in card.skills] == ["worker"]

    run(check())


@pytest.mark.parametrize(
    ("version", "is_served"), [(None, True), ("0.3", True), ("0.3.0", True), ("1.0", False), ("0.2", False)]
)
def test_the_version_in_the_metadata_has_to_be_0_3_or_missing(version: str | None, is_served: bool) -> None:
    async def check() -> None:
        metadata = () if version is None else (("a2a-version", version),)
        async with served(replier(), strict=True) as it:
            call = it.stub03.SendMessage(said03("hello"), metadata=metadata)
            if is_served:
                assert (await call).msg.content[0].text == "hello"
            else:
                refusal = await refused(call)
                assert refusal.reason == "VERSION_NOT_SUPPORTED"
                assert refusal.metadata["supportedVersions"] == "0.3"

    run(check())


def test_extensions_are_named_in_the_header_of_0_3() -> None:
    async def check() -> None:
        async with served(replier(extensions=(AgentExtension("https://e/1", required=True),))) as it:
            refusal = await refused(it.stub03.SendMessage(said03()))
            assert refusal.message.startswith("ExtensionSupportRequiredError: ")
            metadata = (("x-a2a-extensions", "https://e/1"),)
            assert (await it.stub03.SendMessage(said03(), metadata=metadata)).HasField("msg")

    run(check())


def test_a_task_begun_in_one_version_is_read_and_answered_in_the_other() -> None:
    async def check() -> None:
        async with served(asker()) as it:
            asked = (await it.stub03.SendMessage(said03("hello"))).task
            from_1_0 = await it.stub.GetTask(GetTaskRequest(id=asked.id))
            assert from_1_0.status.message.parts[0].text == asked.status.update.content[0].text == "What?"
            ended = (await it.stub03.SendMessage(said03("this", task_id=asked.id))).task
            assert (await it.stub.GetTask(GetTaskRequest(id=asked.id))).artifacts[0].parts[0].text == "you said this"
            assert ended.status.state == pb.TASK_STATE_COMPLETED

    run(check())
