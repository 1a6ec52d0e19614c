"""What examples/table.py does, built on the official SDK's server (a2a-sdk 1.3.0) as its own samples build one.

    python official_server.py PORT [PUBLIC_PORT]

The card names PUBLIC_PORT, for a proxy in between. Nothing of ours is imported here.
"""

from __future__ import annotations

import asyncio
import csv
import io
import sys
from collections import Counter

import uvicorn
from a2a.helpers import new_data_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
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
from starlette.routing import BaseRoute

STEP_ROWS = 10_000


class Table(AgentExecutor):
    """Asks for the column when the text names none, tells its progress, answers with data and a CSV file in chunks."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        message, task = context.message, context.current_task
        assert message is not None
        assert context.task_id
        assert context.context_id
        if context.get_user_input() == "hello":
            reply = Message(message_id="hello", role=Role.ROLE_AGENT, parts=[Part(text="Hello!")])
            reply.context_id = context.context_id
            await event_queue.enqueue_event(reply)
            return
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        if task is None:
            status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
            status.timestamp.GetCurrentTime()
            task = Task(id=context.task_id, context_id=context.context_id, status=status, history=[message])
            await event_queue.enqueue_event(task)
        await updater.start_work()
        said = [part for heard in (*task.history, message) for part in heard.parts]
        content = next((part.raw for part in said if part.raw), b"")
        if not content:
            await updater.reject(updater.new_agent_message([Part(text="There is no table.")]))
            return
        rows = csv.reader(io.StringIO(content.decode(), newline=""))
        header = next(rows)
        named = [name for name in header if name in context.get_user_input().split()]
        if not named:
            question = f"Which of these: {', '.join(header)}?"
            await updater.requires_input(updater.new_agent_message([Part(text=question)]))
            return
        column = header.index(named[0])
        total = 0.0
        values: Counter[str] = Counter()
        for number, row in enumerate(rows, start=1):
            values[row[column]] += 1
            total += float(row[column])
            if number % STEP_ROWS == 0:
                await updater.start_work(updater.new_agent_message([Part(text=f"Read {number} rows.")]))
                await asyncio.sleep(0)
        summary = {"column": named[0], "rows": values.total(), "sum": total, "large": 9007199254740993}
        await updater.add_artifact([new_data_part(summary)], name="response")
        lines = ["value,count\n", *(f"{value},{count}\n" for value, count in values.most_common(5))]
        for index, line in enumerate(lines):
            await updater.add_artifact(
                [Part(text=line, media_type="text/csv")],
                artifact_id="values",
                name="values.csv",
                append=index > 0,
                last_chunk=index == len(lines) - 1,
            )
        await updater.complete(updater.new_agent_message([Part(text=f"{named[0]}: sum {total:g}")]))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id
        assert context.context_id
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def main(port: int, public_port: int) -> None:
    url = f"http://127.0.0.1:{public_port}"
    card = AgentCard(
        name="Table",
        description="Summarizes a column of a CSV table.",
        version="1.0.0",
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/csv", "text/plain"],
        default_output_modes=["application/json", "text/csv"],
        skills=[AgentSkill(id="table", name="Table", description="Summarizes a column.", tags=["csv"])],
        supported_interfaces=[
            AgentInterface(protocol_binding="JSONRPC", protocol_version="1.0", url=f"{url}/rpc"),
            AgentInterface(protocol_binding="HTTP+JSON", protocol_version="1.0", url=f"{url}/rest"),
        ],
    )
    handler = DefaultRequestHandler(agent_executor=Table(), task_store=InMemoryTaskStore(), agent_card=card)
    routes: list[BaseRoute] = [*create_agent_card_routes(card), *create_jsonrpc_routes(handler, rpc_url="/rpc")]
    routes += create_rest_routes(handler, path_prefix="/rest")
    # Its streams to callers that are gone stay open: uvicorn would wait for them for ever.
    uvicorn.run(Starlette(routes=routes), host="127.0.0.1", port=port, timeout_graceful_shutdown=1)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[-1]))
