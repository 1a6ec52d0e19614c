"""Executors of the official SDK in the styles that people write them in. Nothing of ours is imported here.

tieline serve tests/runners/executors.py         serves each below its name
python tests/runners/executors.py PORT           does the same on the SDK's own server
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

from a2a.helpers import new_data_part, new_task_from_user_message, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import (
    Artifact,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from a2a.utils.errors import InvalidParamsError, UnsupportedOperationError


class Style(AgentExecutor):
    async def begin(self, context: RequestContext, event_queue: EventQueue) -> TaskUpdater:
        """The task, if it is not there, and what updates it."""
        task = context.current_task
        if task is None:
            assert context.message is not None
            task = new_task_from_user_message(context.message)
            await event_queue.enqueue_event(task)
        return TaskUpdater(event_queue, task.id, task.context_id)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id
        assert context.context_id
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def words(updater: TaskUpdater, text: str) -> Message:
    return updater.new_agent_message([new_text_part(text)])


class Echo(Style):
    """Gives back what it was sent, part by part."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        updater = await self.begin(context, event_queue)
        await updater.start_work()
        assert context.message is not None
        await updater.add_artifact(list(context.message.parts), "echo", "echo", {"from": "Echo"})
        await updater.complete(words(updater, context.get_user_input()))


class Chunks(Style):
    """Streams words as chunks of one artifact, and a second artifact at once."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        updater = await self.begin(context, event_queue)
        said = context.get_user_input().split()
        await updater.start_work(words(updater, f"{len(said)} words"))
        for number, word in enumerate(said):
            last = number == len(said) - 1
            await updater.add_artifact([new_text_part(word)], "words", "words", append=number > 0, last_chunk=last)
            await asyncio.sleep(0)
        await event_queue.enqueue_event(
            TaskArtifactUpdateEvent(
                task_id=updater.task_id,
                context_id=updater.context_id,
                artifact=Artifact(artifact_id="file", name="n.txt", parts=[Part(raw=b"\0\xff", filename="n.txt")]),
                last_chunk=True,
                metadata={"why": "at the end"},
            )
        )
        await updater.update_status(TaskState.TASK_STATE_COMPLETED, metadata={"took": 1})


class Asking(Style):
    """Asks for what is missing, and looks in the task for what it has asked."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        updater = await self.begin(context, event_queue)
        task = context.current_task
        if task is None or task.status.state != TaskState.TASK_STATE_INPUT_REQUIRED:
            await updater.requires_input(words(updater, "Which colour?"))
            return
        asked = task.status.message.parts[0].text
        first = task.history[0].parts[0].text
        await updater.start_work()
        await updater.complete(words(updater, f"{first}: {asked} {context.get_user_input()}"))


class Authorizing(Style):
    """Wants a credential, and a second message that says it is there."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        updater = await self.begin(context, event_queue)
        task = context.current_task
        if task is None or task.status.state != TaskState.TASK_STATE_AUTH_REQUIRED:
            await updater.requires_auth(words(updater, "Sign in first."))
            return
        await updater.complete(words(updater, "You are in."))


class Replying(AgentExecutor):
    """Answers with a message alone."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        reply = new_text_message(f"You said {context.get_user_input()}.", context_id=context.context_id)
        await event_queue.enqueue_event(reply)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise UnsupportedOperationError


class Waiting(Style):
    """Works until it is cancelled; `cancel` tells the end, and how far `execute` was then."""

    def __init__(self) -> None:
        self.at_work: set[str] = set()

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        updater = await self.begin(context, event_queue)
        self.at_work.add(updater.task_id)
        try:
            await updater.start_work(words(updater, "Waiting."))
            await asyncio.Event().wait()
        finally:
            self.at_work.discard(updater.task_id)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.current_task is not None
        updater = TaskUpdater(event_queue, context.current_task.id, context.current_task.context_id)
        at_work = "at work" if updater.task_id in self.at_work else "not at work"
        await updater.cancel(words(updater, f"Cancelled while {at_work}."))


class Stubborn(Waiting):
    """Has no way to cancel."""

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError("cancel is not supported")


class Finishing(Waiting):
    """Cleans up when it is cancelled, with words, and ends as it likes."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        updater = await self.begin(context, event_queue)
        await updater.start_work()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await updater.start_work(words(updater, "Cleaning up."))
            raise

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Leaves the end to the server."""


class Failing(Style):
    """Raises what has nothing to do with the protocol."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        updater = await self.begin(context, event_queue)
        await updater.start_work()
        raise RuntimeError("the password is swordfish")


class Refusing(Style):
    """Raises an error of the protocol before it says anything."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise InvalidParamsError("A colour is needed.")


class Rejecting(Style):
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        updater = await self.begin(context, event_queue)
        await updater.reject(words(updater, "Not today."))


class Forgetful(Style):
    """Returns without an end."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        updater = await self.begin(context, event_queue)
        await updater.start_work()
        await updater.add_artifact([new_text_part("all")], "all")


class Silent(Style):
    """Says nothing at all."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        return


class Talkative(Style):
    """Goes on behind its end."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        updater = await self.begin(context, event_queue)
        await updater.complete(words(updater, "Done."))
        await updater.add_artifact([new_text_part("late")], "late")
        for state in (TaskState.TASK_STATE_WORKING, TaskState.TASK_STATE_FAILED):
            status = TaskStatus(state=state)
            event = TaskStatusUpdateEvent(task_id=updater.task_id, context_id=updater.context_id, status=status)
            await event_queue.enqueue_event(event)


class Spawning(Style):
    """Lets tasks of its own tell what they find, in an order that is fixed by what they wait for."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        updater = await self.begin(context, event_queue)
        first = asyncio.Event()

        async def one() -> None:
            await updater.add_artifact([new_text_part("one")], "one")
            first.set()

        async def two() -> None:
            await first.wait()
            await updater.add_artifact([new_text_part("two")], "two")

        async with asyncio.TaskGroup() as group:
            group.create_task(two())
            group.create_task(one())
        await updater.complete()


class Snapshots(Style):
    """Tells all there is in one Task."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        message = new_text_message("All there.", role=Role.ROLE_AGENT)
        await event_queue.enqueue_event(
            Task(
                id=context.task_id,
                context_id=context.context_id,
                status=TaskStatus(state=TaskState.TASK_STATE_COMPLETED, message=message),
                artifacts=[Artifact(artifact_id="a", parts=[new_text_part("one")])],
                history=[context.message],
            )
        )


class Astray(Style):
    """Tells of a task that is not its own."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        updater = TaskUpdater(event_queue, "another", context.context_id or "")
        await self.begin(context, event_queue)
        with contextlib.suppress(Exception):
            await updater.start_work()
        await updater.complete()


class Reporting(Style):
    """Tells what its context holds."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        updater = await self.begin(context, event_queue)
        assert context.message is not None
        assert context.configuration is not None
        report = {
            "input": context.get_user_input(),
            "ids": [context.message.task_id == context.task_id, context.message.context_id == context.context_id],
            "current": context.current_task is not None,
            "related": sorted(task.artifacts[0].parts[0].data.struct_value["input"] for task in context.related_tasks),
            "metadata": context.metadata,
            "message metadata": dict(context.message.metadata),
            "user": context.call_context.user.user_name,
            "authenticated": context.call_context.user.is_authenticated,
            "tenant": context.tenant,
            "extensions": sorted(context.requested_extensions),
            "modes": list(context.configuration.accepted_output_modes),
        }
        await updater.add_artifact([new_data_part(report)], "report")
        await updater.complete()


echo, chunks, asking, authorizing, replying = Echo(), Chunks(), Asking(), Authorizing(), Replying()
waiting, stubborn, finishing = Waiting(), Stubborn(), Finishing()
failing, refusing, rejecting = Failing(), Refusing(), Rejecting()
forgetful, silent, talkative = Forgetful(), Silent(), Talkative()
spawning, snapshots, astray, reporting = Spawning(), Snapshots(), Astray(), Reporting()


def main(port: int) -> None:
    """Serve them on the SDK's own server."""
    import uvicorn
    from a2a.server.request_handlers import DefaultRequestHandler
    from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
    from a2a.server.tasks import InMemoryTaskStore
    from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
    from starlette.applications import Starlette
    from starlette.routing import BaseRoute, Mount

    mounts: list[BaseRoute] = []
    for name, executor in globals().copy().items():
        if isinstance(executor, AgentExecutor):
            url = f"http://127.0.0.1:{port}/{name}"
            card = AgentCard(
                name=name,
                description=name,
                version="1",
                capabilities=AgentCapabilities(streaming=True),
                default_input_modes=["text/plain"],
                default_output_modes=["text/plain"],
                skills=[AgentSkill(id=name, name=name, description=name, tags=[name])],
                supported_interfaces=[
                    AgentInterface(protocol_binding="JSONRPC", protocol_version="1.0", url=f"{url}/rpc"),
                    AgentInterface(protocol_binding="HTTP+JSON", protocol_version="1.0", url=f"{url}/rest"),
                ],
            )
            handler = DefaultRequestHandler(executor, InMemoryTaskStore(), card)
            routes: list[BaseRoute] = [*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/rpc")]
            mounts.append(Mount(f"/{name}", routes=[*routes, *create_rest_routes(handler, path_prefix="/rest")]))
    uvicorn.run(Starlette(routes=mounts), host="127.0.0.1", port=port, timeout_graceful_shutdown=1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
