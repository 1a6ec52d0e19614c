"""A server of the official SDK (a2a-sdk 1.3.0) that pushes, in 1.0 and 0.3, over JSON-RPC, REST and gRPC.

    python official_server.py PORT GRPC_PORT

It works until its caller sends another message to the task, so that webhooks can be set meanwhile. Nothing of ours is
imported here.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import grpc
import httpx
import uvicorn
from a2a.compat.v0_3 import a2a_v0_3_pb2_grpc
from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler
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
from a2a.types import a2a_pb2 as pb
from a2a.types import a2a_pb2_grpc
from starlette.applications import Starlette
from starlette.routing import BaseRoute


class Asking(AgentExecutor):
    """Asks once, and is done when it is answered."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        message, task = context.message, context.current_task
        assert message is not None
        assert context.task_id
        assert context.context_id
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        if task is None:
            status = pb.TaskStatus(state=pb.TASK_STATE_SUBMITTED)
            status.timestamp.GetCurrentTime()
            made = pb.Task(id=context.task_id, context_id=context.context_id, status=status, history=[message])
            await event_queue.enqueue_event(made)
            await updater.requires_input(updater.new_agent_message([pb.Part(text="What?")]))
            return
        await updater.add_artifact([pb.Part(text=f"did {context.get_user_input()}")], name="response")
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id
        assert context.context_id
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


async def main(port: int, grpc_port: int) -> None:
    url, bindings = f"http://127.0.0.1:{port}", []
    for version in ("1.0", "0.3"):
        for binding, place in (
            ("JSONRPC", f"{url}/rpc"),
            ("HTTP+JSON", f"{url}/rest"),
            ("GRPC", f"127.0.0.1:{grpc_port}"),
        ):
            bindings.append(pb.AgentInterface(url=place, protocol_binding=binding, protocol_version=version))
    card = pb.AgentCard(
        name="Asking",
        description="Asks, and does what it is told.",
        version="1.0.0",
        capabilities=pb.AgentCapabilities(streaming=True, push_notifications=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[pb.AgentSkill(id="ask", name="Ask", description="Asks.", tags=["ask"])],
        supported_interfaces=bindings,
    )
    configs = InMemoryPushNotificationConfigStore()
    handler = DefaultRequestHandler(
        agent_executor=Asking(),
        task_store=InMemoryTaskStore(),
        agent_card=card,
        push_config_store=configs,
        push_sender=BasePushNotificationSender(httpx.AsyncClient(), configs),
    )
    server = grpc.aio.server()
    add: Any = a2a_pb2_grpc.add_A2AServiceServicer_to_server
    add(GrpcHandler(handler), server)
    add_03: Any = a2a_v0_3_pb2_grpc.add_A2AServiceServicer_to_server
    add_03(CompatGrpcHandler(handler), server)
    server.add_insecure_port(f"127.0.0.1:{grpc_port}")
    await server.start()
    routes: list[BaseRoute] = [*create_agent_card_routes(card)]
    routes += create_jsonrpc_routes(handler, rpc_url="/rpc", enable_v0_3_compat=True)
    routes += create_rest_routes(handler, path_prefix="/rest", enable_v0_3_compat=True)
    config = uvicorn.Config(Starlette(routes=routes), host="127.0.0.1", port=port, timeout_graceful_shutdown=1)
    await uvicorn.Server(config).serve()
    await server.stop(None)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
