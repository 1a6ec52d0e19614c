"""The puppet (puppet.py) on the server of the official SDK a2a-sdk 1.3.0, built as its own samples build one.

python py10_server.py PORT GRPC_PORT
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from typing import Any

import grpc
import httpx
import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import (
    BasePushNotificationSender,
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
    TaskUpdater,
)
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Message,
    Part,
    Role,
    Task,
    TaskState,
    TaskStatus,
)
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server
from google.protobuf.json_format import MessageToDict, ParseDict
from starlette.applications import Starlette
from starlette.routing import BaseRoute

from tests.interop.peers.puppet import DESCRIPTION, NAME, SKILL, Puppet, Stage


class OfficialStage(Stage):
    def __init__(self, context: RequestContext, queue: EventQueue) -> None:
        assert context.message is not None
        assert context.task_id
        assert context.context_id
        self.message = context.message
        self.parts = [given(part) for part in context.message.parts]
        self.task = context.current_task
        self.answers = self.task is not None
        self.queue = queue
        self.updater = TaskUpdater(queue, context.task_id, context.context_id)

    async def reply(self, text: str) -> None:
        context_id = self.updater.context_id
        message = Message(message_id=str(uuid.uuid4()), role=Role.ROLE_AGENT, context_id=context_id)
        message.parts.append(Part(text=text))
        await self.queue.enqueue_event(message)

    async def begin(self) -> None:
        if self.task is None:
            task = Task(id=self.updater.task_id, context_id=self.updater.context_id, history=[self.message])
            task.status.CopyFrom(TaskStatus(state=TaskState.TASK_STATE_SUBMITTED))
            await self.queue.enqueue_event(task)

    async def status(self, state: str, words: str = "") -> None:
        message = self.updater.new_agent_message([Part(text=words)]) if words else None
        await self.updater.update_status(TaskState.Value(f"TASK_STATE_{state}"), message)

    async def artifact(
        self, name: str, parts: list[dict[str, Any]], *, append: bool = False, last: bool = True
    ) -> None:
        content = [part_of(part) for part in parts]
        await self.updater.add_artifact(content, artifact_id=name, name=name, append=append, last_chunk=last)


def given(part: Part) -> dict[str, Any]:
    found = MessageToDict(part)
    names = {"filename": "name", "mediaType": "type"}
    return {names.get(key, key): value for key, value in found.items()}


def part_of(part: dict[str, Any]) -> Part:
    names = {"name": "filename", "type": "mediaType"}
    made: Part = ParseDict({names.get(key, key): value for key, value in part.items()}, Part())
    return made


class Executor(AgentExecutor):
    def __init__(self) -> None:
        self.puppet = Puppet()

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        await self.puppet.run(OfficialStage(context, event_queue))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id
        assert context.context_id
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


async def main(port: int, grpc_port: int) -> None:
    url = f"http://127.0.0.1:{port}"
    card = AgentCard(
        name=NAME,
        description=DESCRIPTION,
        version="1.0.0",
        capabilities=AgentCapabilities(streaming=True, push_notifications=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id=SKILL, name=NAME, description=DESCRIPTION, tags=["test"])],
        supported_interfaces=[
            AgentInterface(protocol_binding="JSONRPC", protocol_version="1.0", url=f"{url}/rpc"),
            AgentInterface(protocol_binding="HTTP+JSON", protocol_version="1.0", url=f"{url}/rest"),
            AgentInterface(protocol_binding="GRPC", protocol_version="1.0", url=f"127.0.0.1:{grpc_port}"),
        ],
    )
    configs = InMemoryPushNotificationConfigStore()
    handler = DefaultRequestHandler(
        agent_executor=Executor(),
        task_store=InMemoryTaskStore(),
        agent_card=card,
        push_config_store=configs,
        push_sender=BasePushNotificationSender(httpx.AsyncClient(), configs),
    )
    routes: list[BaseRoute] = [*create_agent_card_routes(card), *create_jsonrpc_routes(handler, rpc_url="/rpc")]
    routes += create_rest_routes(handler, path_prefix="/rest")
    server = grpc.aio.server()
    add_A2AServiceServicer_to_server(GrpcHandler(handler), server)  # type: ignore[no-untyped-call]
    server.add_insecure_port(f"127.0.0.1:{grpc_port}")
    await server.start()
    # Its streams to callers that are gone stay open: uvicorn would wait for them for ever.
    config = uvicorn.Config(
        Starlette(routes=routes), host="127.0.0.1", port=port, timeout_graceful_shutdown=1, log_level="warning"
    )
    await uvicorn.Server(config).serve()
    await server.stop(0)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
