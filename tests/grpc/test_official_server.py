"""Our gRPC client calling the official SDK's servers (a2a-sdk 1.3.0: of 1.0, and of 0.3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2_grpc
from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import a2a_pb2 as pb
from a2a.types import a2a_pb2_grpc

from tests.grpc.serving import run
from tests.grpc.test_client import Version, both, calling, said, task_of, told
from tieline.errors import A2AError, InvalidParams, TaskNotCancelable, TaskNotFound
from tieline.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    SendMessageConfiguration,
    SubscribeToTaskRequest,
    Task,
    TaskState,
    TaskStatusUpdateEvent,
)


class Doing(AgentExecutor):
    """Does what the text says: echo (a message with the same parts), ask, wait; anything else is worked on."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        message, task = context.message, context.current_task
        assert message is not None
        assert context.task_id
        assert context.context_id
        word = context.get_user_input().partition("\n")[0]
        if word == "echo":
            reply = pb.Message(message_id="r", role=pb.ROLE_AGENT, parts=message.parts, context_id=context.context_id)
            await event_queue.enqueue_event(reply)
            return
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        if task is None:
            status = pb.TaskStatus(state=pb.TASK_STATE_SUBMITTED)
            status.timestamp.GetCurrentTime()
            made = pb.Task(id=context.task_id, context_id=context.context_id, status=status, history=[message])
            await event_queue.enqueue_event(made)
        await updater.start_work()
        if word == "ask":
            await updater.requires_input(updater.new_agent_message([pb.Part(text="What?")]))
            return
        if word == "wait":
            await asyncio.Event().wait()
        await updater.add_artifact([pb.Part(text=f"did {word}")], name="response")
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id
        assert context.context_id
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


@asynccontextmanager
async def official_server() -> AsyncIterator[str]:
    """Both versions on one port; gives its address."""
    card = pb.AgentCard(
        name="Official",
        description="Does what it is told.",
        version="1.0.0",
        capabilities=pb.AgentCapabilities(streaming=True),
        default_input_modes=["*/*"],
        default_output_modes=["*/*"],
        supported_interfaces=[
            pb.AgentInterface(url="127.0.0.1:1", protocol_binding="GRPC", protocol_version=version)
            for version in ("1.0", "0.3")
        ],
    )
    handler = DefaultRequestHandler(agent_executor=Doing(), task_store=InMemoryTaskStore(), agent_card=card)
    server = grpc.aio.server()
    add: Any = a2a_pb2_grpc.add_A2AServiceServicer_to_server
    add(GrpcHandler(handler), server)
    add_03: Any = a2a_v0_3_pb2_grpc.add_A2AServiceServicer_to_server
    add_03(CompatGrpcHandler(handler), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


@both
def test_tasks_are_sent_read_streamed_and_told_with_their_artifacts(version: Version) -> None:
    async def check() -> None:
        async with official_server() as address, calling(address, version) as peer:
            task = await task_of(peer.send(said("it"), ()))
            assert (task.text, task.state) == ("did it", TaskState.COMPLETED)
            assert (await peer.get(GetTaskRequest(task.id), ())).artifacts == task.artifacts
            events = await told(await peer.open(said("it"), ()))
            assert isinstance(events[0], Task)
            assert isinstance(events[-1], TaskStatusUpdateEvent)
            assert events[-1].status.state is TaskState.COMPLETED
            at_once = SendMessageConfiguration(return_immediately=True)
            begun = await task_of(peer.send(said("wait", configuration=at_once), ()))
            assert begun.state in (TaskState.SUBMITTED, TaskState.WORKING)

    run(check())


@both
def test_data_and_unicode_come_back_as_they_were_sent(version: Version) -> None:
    parts: tuple[Part, ...] = (Part("echo"), Part("Grüße 😀"), Part(url="https://example.com/a", media_type="text/csv"))
    parts += (Part(data={"n": [1.5, None, "x"]}), Part(data=[1, 2**53]))
    if version == "1.0":  # of 0.3 the SDK has files as base64 where their bytes belong
        parts += (Part(raw=bytes(range(256)), filename="a.bin", media_type="image/png"), Part(raw=b""))

    async def check() -> None:
        async with official_server() as address, calling(address, version) as peer:
            answer = await peer.send(said(*parts), ())
            assert isinstance(answer, Message)
            assert answer.parts == parts

    run(check())


@both
def test_a_question_is_asked_and_answered(version: Version) -> None:
    async def check() -> None:
        async with official_server() as address, calling(address, version) as peer:
            asked = await task_of(peer.send(said("ask"), ()))
            assert asked.state is TaskState.INPUT_REQUIRED
            assert asked.status.message is not None
            assert asked.status.message.text == "What?"
            ended = await task_of(peer.send(said("this", task_id=asked.id, context_id=asked.context_id), ()))
            assert ended.text == "did this"

    run(check())


@both
def test_a_task_is_followed_and_cancelled(version: Version) -> None:
    async def check() -> None:
        async with official_server() as address, calling(address, version) as peer:
            events = await peer.open(said("wait"), ())
            first = (await events.read())[0][1]
            assert isinstance(first, Task)
            following = await peer.open(SubscribeToTaskRequest(first.id), ())
            assert (await peer.cancel(CancelTaskRequest(first.id), ())).state is TaskState.CANCELED
            for each in (events, following):
                last = (await told(each))[-1]
                assert isinstance(last, Task | TaskStatusUpdateEvent)
                assert last.status.state is TaskState.CANCELED

    run(check())


@both
def test_errors_are_raised_as_their_classes(version: Version) -> None:
    async def check() -> None:
        async with official_server() as address, calling(address, version) as peer:
            with pytest.raises(TaskNotFound):
                await peer.get(GetTaskRequest("no"), ())
            with pytest.raises(TaskNotFound):
                await peer.send(said("x", task_id="no"), ())
            with pytest.raises(TaskNotFound):
                await peer.open(SubscribeToTaskRequest("no"), ())
            task = await task_of(peer.send(said("it"), ()))
            with pytest.raises(TaskNotCancelable):
                await peer.cancel(CancelTaskRequest(task.id), ())
            with pytest.raises(A2AError):
                await peer.send(said("again", task_id=task.id), ())

    run(check())


def test_tasks_are_listed_and_a_bad_page_is_refused_with_its_field() -> None:
    async def check() -> None:
        async with official_server() as address, calling(address) as peer:
            task = await task_of(peer.send(said("it"), ()))
            page = await peer.list(ListTasksRequest(include_artifacts=True, page_size=5), ())
            assert [each.id for each in page.tasks] == [task.id]
            with pytest.raises(InvalidParams):
                await peer.list(ListTasksRequest(page_size=1000), ())

    run(check())
