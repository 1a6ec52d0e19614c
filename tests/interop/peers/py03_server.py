# mypy: ignore-errors
# (written against a2a-sdk 0.3, while the type checker sees 1.x)
"""The puppet (puppet.py) on the server of the official SDK a2a-sdk 0.3.26, built as its own samples build one.

python py03_server.py PORT GRPC_PORT
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from typing import Any

import grpc
import httpx
import uvicorn
from a2a.grpc.a2a_pb2_grpc import add_A2AServiceServicer_to_server
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.apps import A2ARESTFastAPIApplication, A2AStarletteApplication
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
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
    DataPart,
    FilePart,
    FileWithBytes,
    FileWithUri,
    Message,
    Part,
    Role,
    Task,
    TaskState,
    TaskStatus,
    TextPart,
)

from tests.interop.peers.puppet import DESCRIPTION, NAME, SKILL, Puppet, Stage


class OfficialStage(Stage):
    def __init__(self, context: RequestContext, queue: EventQueue) -> None:
        self.message = context.message
        self.parts = [given(part) for part in context.message.parts]
        self.task = context.current_task
        self.answers = self.task is not None
        self.queue = queue
        self.updater = TaskUpdater(queue, context.task_id, context.context_id)

    async def reply(self, text: str) -> None:
        parts = [Part(root=TextPart(text=text))]
        context_id = self.updater.context_id
        message = Message(message_id=str(uuid.uuid4()), role=Role.agent, parts=parts, context_id=context_id)
        await self.queue.enqueue_event(message)

    async def begin(self) -> None:
        if self.task is None:
            status = TaskStatus(state=TaskState.submitted)
            ids = {"id": self.updater.task_id, "context_id": self.updater.context_id}
            await self.queue.enqueue_event(Task(**ids, status=status, history=[self.message]))

    async def status(self, state: str, words: str = "") -> None:
        message = self.updater.new_agent_message([Part(root=TextPart(text=words))]) if words else None
        final = state in ("COMPLETED", "FAILED", "REJECTED", "INPUT_REQUIRED")
        await self.updater.update_status(TaskState(state.lower().replace("_", "-")), message, final=final)

    async def artifact(
        self, name: str, parts: list[dict[str, Any]], *, append: bool = False, last: bool = True
    ) -> None:
        content = [part_of(part) for part in parts]
        await self.updater.add_artifact(content, artifact_id=name, name=name, append=append, last_chunk=last)


def given(part: Part) -> dict[str, Any]:
    root = part.root
    if isinstance(root, TextPart):
        return {"text": root.text}
    if isinstance(root, DataPart):
        return {"data": root.data}
    content = {"raw": root.file.bytes} if isinstance(root.file, FileWithBytes) else {"url": root.file.uri}
    return {**content, "name": root.file.name, "type": root.file.mime_type}


def part_of(part: dict[str, Any]) -> Part:
    if "text" in part:
        return Part(root=TextPart(text=part["text"]))
    if "data" in part:
        return Part(root=DataPart(data=part["data"]))
    names = {"name": part["name"], "mime_type": part["type"]}
    if "raw" in part:
        return Part(root=FilePart(file=FileWithBytes(bytes=part["raw"], **names)))
    return Part(root=FilePart(file=FileWithUri(uri=part["url"], **names)))


class Executor(AgentExecutor):
    def __init__(self) -> None:
        self.puppet = Puppet()

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        try:
            await self.puppet.run(OfficialStage(context, event_queue))
        except asyncio.CancelledError:
            # `cancel` is given a queue of its own, which those who watch do not see.
            await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()
            await event_queue.close()
            raise

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


async def main(port: int, grpc_port: int) -> None:
    url = f"http://127.0.0.1:{port}"
    card = AgentCard(
        name=NAME,
        description=DESCRIPTION,
        version="1.0.0",
        url=f"{url}/rpc",
        preferred_transport="JSONRPC",
        additional_interfaces=[
            AgentInterface(transport="HTTP+JSON", url=f"{url}/rest"),
            AgentInterface(transport="GRPC", url=f"127.0.0.1:{grpc_port}"),
        ],
        capabilities=AgentCapabilities(streaming=True, push_notifications=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id=SKILL, name=NAME, description=DESCRIPTION, tags=["test"])],
    )
    configs = InMemoryPushNotificationConfigStore()
    handler = DefaultRequestHandler(
        agent_executor=Executor(),
        task_store=InMemoryTaskStore(),
        push_config_store=configs,
        push_sender=BasePushNotificationSender(httpx.AsyncClient(), configs),
    )
    app = A2AStarletteApplication(agent_card=card, http_handler=handler).build(rpc_url="/rpc")
    app.mount("/rest", A2ARESTFastAPIApplication(agent_card=card, http_handler=handler).build())
    server = grpc.aio.server()
    add_A2AServiceServicer_to_server(GrpcHandler(card, handler), server)
    server.add_insecure_port(f"127.0.0.1:{grpc_port}")
    await server.start()
    config = uvicorn.Config(app, host="127.0.0.1", port=port, timeout_graceful_shutdown=1, log_level="warning")
    await uvicorn.Server(config).serve()
    await server.stop(0)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
