"""The echo agent on the official SDK (a2a-sdk 1.3.0), as its own samples build a server.

The text says what is wanted:

    msg ...      a Message
    stream ...   10 chunks of one artifact between submitted, working and completed: 13 events
    chunks N     the same with N chunks
    hang ...     submitted, working, then nothing
    other        a task with one artifact, to completed

STORE is "memory" (when unset), "sqlite:PATH", or "postgresql://..." without regard to what stands behind a "?"; PORT is
the port that the card names. With SQLITE_WAL set, SQLite syncs the disk as seldom as tieline's does. Without it, it is
as the SDK leaves it: a journal, synced with each commit.
With GRPC_PORT set, gRPC is served there by the same process and event loop, as `tieline serve --grpc-port` does it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskStore, TaskUpdater
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
from starlette.applications import Starlette

logging.disable(logging.INFO)


class Echo(AgentExecutor):
    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id
        assert context.context_id
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        message = context.message
        assert message is not None
        assert context.task_id
        assert context.context_id
        text = message.parts[0].text
        if text.startswith("msg"):
            reply = Message(
                message_id=str(uuid.uuid4()),
                role=Role.ROLE_AGENT,
                context_id=context.context_id,
                parts=[Part(text=text)],
            )
            await event_queue.enqueue_event(reply)
            return
        status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
        status.timestamp.GetCurrentTime()
        await event_queue.enqueue_event(
            Task(id=context.task_id, context_id=context.context_id, status=status, history=[message])
        )
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        if text.startswith("hang"):
            await asyncio.Event().wait()
        if text.startswith(("stream", "chunks")):
            chunks = int(text.split()[1]) if text.startswith("chunks") else 10
            for number in range(chunks):
                await updater.add_artifact(
                    [Part(text=f"chunk {number} of the answer")],
                    artifact_id="answer",
                    append=number > 0,
                    last_chunk=number == chunks - 1,
                )
        else:
            await updater.add_artifact([Part(text=text)], name="response", last_chunk=True)
        await updater.complete()


def task_store() -> TaskStore:
    store = os.environ.get("STORE", "memory")
    if store == "memory":
        return InMemoryTaskStore()
    from a2a.server.tasks import DatabaseTaskStore
    from sqlalchemy import event
    from sqlalchemy.ext.asyncio import create_async_engine

    if store.startswith("postgresql:"):
        return DatabaseTaskStore(
            create_async_engine("postgresql+asyncpg:" + store.removeprefix("postgresql:").partition("?")[0])
        )
    engine = create_async_engine("sqlite+aiosqlite:///" + store.removeprefix("sqlite:"))
    if os.environ.get("SQLITE_WAL"):

        @event.listens_for(engine.sync_engine, "connect")
        def use_wal(connection: Any, record: object) -> None:
            cursor = connection.cursor()
            cursor.execute("PRAGMA journal_mode=WAL")
            cursor.execute("PRAGMA synchronous=NORMAL")
            cursor.close()

    return DatabaseTaskStore(engine)


card = AgentCard(
    name="Echo",
    description="Echoes.",
    version="1.0.0",
    capabilities=AgentCapabilities(streaming=True),
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[AgentSkill(id="echo", name="Echo", description="Echoes.", tags=["echo"])],
    supported_interfaces=[
        AgentInterface(
            protocol_binding="JSONRPC",
            protocol_version="1.0",
            url=f"http://127.0.0.1:{os.environ.get('PORT', '8000')}/",
        )
    ],
)
handler = DefaultRequestHandler(agent_executor=Echo(), task_store=task_store(), agent_card=card)


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    port = os.environ.get("GRPC_PORT")
    if port is None:
        yield
        return
    import grpc
    from a2a.server.request_handlers import GrpcHandler
    from a2a.types import a2a_pb2_grpc

    card.supported_interfaces.append(
        AgentInterface(protocol_binding="GRPC", protocol_version="1.0", url=f"127.0.0.1:{port}")
    )
    server = grpc.aio.server()
    add: Callable[..., None] = a2a_pb2_grpc.add_A2AServiceServicer_to_server
    add(GrpcHandler(handler), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    yield
    await server.stop(None)


app = Starlette(
    routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, rpc_url="/")], lifespan=lifespan
)
