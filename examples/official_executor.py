"""An executor of the official SDK (a2a-sdk 1.x), as one has it: it summarizes text, and asks for it when there is none.

tieline serve examples/official_executor.py
tieline send -a 127.0.0.1:8000 "some words to count"

python examples/official_executor.py serves the same on the SDK's own server (it needs a2a-sdk[http-server]).
"""

from __future__ import annotations

from a2a.helpers import new_data_part, new_task_from_user_message, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, TaskState


class WordCountExecutor(AgentExecutor):
    """Counts words."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        text = context.get_user_input()
        if text == "hello":  # an answer without a task
            await event_queue.enqueue_event(new_text_message("Hello!", context_id=context.context_id))
            return
        assert context.message is not None
        task = context.current_task
        if task is None:
            task = new_task_from_user_message(context.message)
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        if task.status.state != TaskState.TASK_STATE_INPUT_REQUIRED and not text.strip(" ?"):
            question = updater.new_agent_message([new_text_part("What shall I count?")])
            await updater.requires_input(question)  # the next message calls execute once more
            return
        await updater.start_work(updater.new_agent_message([new_text_part("Counting.")]))
        words = text.split()
        for number, word in enumerate(words):
            chunk = [new_text_part(f"{number + 1} {word}\n")]
            await updater.add_artifact(
                chunk, "numbered", "words", append=number > 0, last_chunk=number + 1 == len(words)
            )
        await updater.add_artifact(
            [new_data_part({"words": len(words), "letters": sum(map(len, words))})], name="count"
        )
        await updater.complete(updater.new_agent_message([new_text_part(f"{len(words)} words.")]))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id
        assert context.context_id
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.cancel(updater.new_agent_message([new_text_part("Stopped counting.")]))


agent_card = AgentCard(
    name="Word count",
    description="Counts the words of a text.",
    version="2.1.0",
    capabilities=AgentCapabilities(streaming=True),
    supported_interfaces=[
        AgentInterface(url="http://127.0.0.1:9000/", protocol_binding="JSONRPC", protocol_version="1.0")
    ],
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain", "application/json"],
    skills=[AgentSkill(id="count", name="Count", description="Counts words.", tags=["text"], examples=["count these"])],
)

executor = WordCountExecutor()


if __name__ == "__main__":
    import uvicorn
    from a2a.server.request_handlers import DefaultRequestHandler
    from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
    from a2a.server.tasks import InMemoryTaskStore
    from starlette.applications import Starlette

    handler = DefaultRequestHandler(executor, InMemoryTaskStore(), agent_card)
    routes = [*create_agent_card_routes(agent_card), *create_jsonrpc_routes(handler, "/")]
    uvicorn.run(Starlette(routes=routes), port=9000)
