"""The official SDK's gRPC clients (a2a-sdk 1.3.0: of 1.0, and of 0.3) calling our server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from a2a.client import ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb
from a2a.utils import errors as official
from google.protobuf import json_format

from tests.behaviour.agents import Puppet, make_agent, says
from tests.grpc.serving import run, said, served
from tests.server.agents import asker, mixed, worker
from tieline import Message, Turn

both = pytest.mark.parametrize("version", ["1.0", "0.3"])


@asynccontextmanager
async def official_client(address: str, version: str, *, streaming: bool = False) -> AsyncIterator[Any]:
    interface = pb.AgentInterface(url=address, protocol_binding="GRPC", protocol_version=version)
    card = pb.AgentCard(
        name="Tested", supported_interfaces=[interface], capabilities=pb.AgentCapabilities(streaming=True)
    )
    config = ClientConfig(
        streaming=streaming, grpc_channel_factory=grpc.aio.insecure_channel, supported_protocol_bindings=["GRPC"]
    )
    client = ClientFactory(config).create(card)
    try:
        yield client
    finally:
        await client.close()


async def given(answers: AsyncIterator[Any]) -> list[Any]:
    return [answer async for answer in answers]


async def task_of(client: Any, request: Any) -> Any:
    (answer,) = await given(client.send_message(request))
    assert answer.HasField("task")
    return answer.task


async def _echo(turn: Turn) -> Message:
    return turn.reply(*turn.parts)


@both
def test_a_task_is_sent_read_streamed_and_told_with_its_artifact(version: str) -> None:
    async def check() -> None:
        async with served(worker()) as it:
            async with official_client(it.address, version) as client:
                task = await task_of(client, said("it"))
                assert task.status.state == pb.TASK_STATE_COMPLETED
                assert task.artifacts[0].parts[0].text == "did it"
                assert (await client.get_task(pb.GetTaskRequest(id=task.id))).artifacts == task.artifacts
            async with official_client(it.address, version, streaming=True) as client:
                events = await given(client.send_message(said("it")))
                assert events[0].HasField("task")
                assert events[-1].status_update.status.state == pb.TASK_STATE_COMPLETED

    run(check())


@both
def test_files_data_and_unicode_come_back_as_they_were_sent(version: str) -> None:
    parts = [
        pb.Part(text="Grüße 😀"),
        pb.Part(raw=bytes(range(256)), filename="a.bin", media_type="application/octet-stream"),
        pb.Part(raw=b"plain text", filename="a.txt", media_type="text/plain"),
        pb.Part(raw=b"test", filename="b.txt", media_type="text/plain"),
        pb.Part(url="https://example.com/a", media_type="text/csv"),
        json_format.ParseDict({"data": {"n": [1, 1.5, None, 2**53]}}, pb.Part()),
        json_format.ParseDict({"data": [1, "x"]}, pb.Part()),
    ]

    async def check() -> None:
        agent = make_agent(_echo, input_modes=("*/*",))
        async with served(agent) as it, official_client(it.address, version) as client:
            (answer,) = await given(client.send_message(said(parts=parts)))
            assert list(answer.message.parts) == parts

    run(check())


@both
def test_a_question_is_asked_and_answered(version: str) -> None:
    async def check() -> None:
        async with served(asker()) as it, official_client(it.address, version) as client:
            asked = await task_of(client, said("hello"))
            assert asked.status.state == pb.TASK_STATE_INPUT_REQUIRED
            assert asked.status.message.parts[0].text == "What?"
            ended = await task_of(client, said("this", task_id=asked.id, context_id=asked.context_id))
            assert ended.artifacts[0].parts[0].text == "you said this"

    run(check())


@both
def test_a_task_is_followed_and_cancelled(version: str) -> None:
    puppet = Puppet()

    async def check() -> None:
        async with served(puppet) as it, official_client(it.address, version, streaming=True) as client:
            stream = client.send_message(said())
            task_id = (await anext(stream)).task.id
            act = await puppet.next()
            following = client.subscribe(pb.SubscribeToTaskRequest(id=task_id))
            assert (await anext(following)).task.id == task_id
            act.tell(says("nearly"))
            ended = await client.cancel_task(pb.CancelTaskRequest(id=task_id))
            assert ended.status.state == pb.TASK_STATE_CANCELED
            for events in (stream, following):
                last = (await given(events))[-1]
                assert last.status_update.status.state == pb.TASK_STATE_CANCELED

    run(check())


@both
def test_errors_are_raised_as_the_sdks_own_classes(version: str) -> None:
    async def check() -> None:
        async with served(mixed()) as it, official_client(it.address, version) as client:
            with pytest.raises(official.TaskNotFoundError):
                await client.get_task(pb.GetTaskRequest(id="no"))
            with pytest.raises(official.TaskNotFoundError):
                await given(client.send_message(said(task_id="no")))
            with pytest.raises(official.InvalidParamsError):
                await given(client.send_message(pb.SendMessageRequest(message=pb.Message(role=pb.ROLE_USER))))
            task = await task_of(client, said("work"))
            with pytest.raises(official.TaskNotCancelableError):
                await client.cancel_task(pb.CancelTaskRequest(id=task.id))
            with pytest.raises(official.PushNotificationNotSupportedError):
                await client.create_task_push_notification_config(
                    pb.TaskPushNotificationConfig(task_id=task.id, id="c", url="https://example.com")
                )

    run(check())


def test_tasks_are_listed_and_the_extended_card_is_told_to_be_absent() -> None:
    async def check() -> None:
        async with served(worker()) as it, official_client(it.address, "1.0") as client:
            task = await task_of(client, said("it"))
            page = await client.list_tasks(pb.ListTasksRequest(include_artifacts=True))
            assert list(page.tasks) == [task]
            assert (page.total_size, page.page_size) == (1, 50)

    run(check())
