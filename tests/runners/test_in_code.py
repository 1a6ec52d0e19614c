"""`from_executor` in a program: the agent that it makes, and its turns in this process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

import pytest
from a2a.helpers import new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentProvider,
    AgentSkill,
    Artifact,
    HTTPAuthSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
    TaskArtifactUpdateEvent,
)
from a2a.types import Task as OfficialTask
from a2a.types import TaskState as OfficialState
from a2a.types import TaskStatus as OfficialStatus

from tests.runners import executors
from tieline import Agent
from tieline.card import AgentInterface
from tieline.engine.cursor import Cursor
from tieline.engine.service import Limits, Service
from tieline.engine.turn import Caller
from tieline.event import Event
from tieline.runners.official import from_executor
from tieline.stores import Store
from tieline.stores.memory import MemoryStore
from tieline.stores.sqlite import SQLiteStore
from tieline.types import (
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    Task,
    TaskState,
)

T = TypeVar("T")
LIMIT_S = 30.0


def run(scenario: Coroutine[Any, Any, T]) -> T:
    async def limited() -> T:
        async with asyncio.timeout(LIMIT_S):
            return await scenario

    return asyncio.run(limited())


class Serving:
    """An agent's service, for one block."""

    def __init__(self, agent: Agent, store: Store | None = None, **limits: Any) -> None:
        self.service = Service(agent, store or MemoryStore(), limits=Limits(**limits))
        self._count = 0

    async def __aenter__(self) -> Serving:
        await self.service.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.service.close()
        await self.service.store.close()

    async def send(self, text: str = "x", *, wait: bool = True, caller: Caller | None = None, **fields: Any) -> Any:
        self._count += 1
        message = Message(f"m{self._count}", Role.USER, (Part(text),), **fields)
        configuration = SendMessageConfiguration(return_immediately=not wait)
        answer = await self.service.send_message(
            SendMessageRequest(message, configuration=configuration), caller or Caller()
        )
        return answer.value

    async def cancel(self, task: Task) -> Task:
        return (await self.service.cancel_task(CancelTaskRequest(task.id), Caller())).value

    async def get(self, task: Task) -> Task:
        return (await self.service.get_task(GetTaskRequest(task.id), Caller())).value


class Calling(AgentExecutor):
    """An executor made of a function."""

    def __init__(self, execute: Any, cancel: Any = None) -> None:
        self._execute = execute
        self._cancel = cancel

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        await self._execute(context, event_queue)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        if self._cancel is not None:
            await self._cancel(context, event_queue)


def updater(context: RequestContext, queue: EventQueue) -> TaskUpdater:
    assert context.task_id
    assert context.context_id
    return TaskUpdater(queue, context.task_id, context.context_id)


# --- what the agent is ------------------------------------------------------------------------------------------------


class LoudHTTPEchoAgentExecutor(executors.Echo):
    """Says it back.

    Louder.
    """


def test_without_a_card_the_class_describes_the_agent() -> None:
    agent = from_executor(LoudHTTPEchoAgentExecutor())
    assert (agent.name, agent.description, agent.version) == ("Loud HTTP echo", "Says it back.", "1.0.0")
    assert agent.streaming
    assert from_executor(executors.Rejecting()).description == "The agent Rejecting."  # not what a base class says
    named = from_executor(LoudHTTPEchoAgentExecutor(), name="E", description="d", version="3")
    assert (named.name, named.description, named.version) == ("E", "d", "3")


def test_card_describes_the_agent_but_for_where_it_is_and_who_is_let_in() -> None:
    bearer = SecurityRequirement(schemes={"bearer": StringList()})
    card = AgentCard(
        name="Echo",
        description="Echoes.",
        version="7",
        documentation_url="https://example.com/docs",
        icon_url="https://example.com/icon",
        provider=AgentProvider(url="https://example.com", organization="Example"),
        capabilities=AgentCapabilities(
            streaming=False,
            push_notifications=True,
            extensions=[AgentExtension(uri="https://example.com/x", description="X", params={"n": 1})],
        ),
        default_input_modes=["text"],
        default_output_modes=["application/json"],
        skills=[
            AgentSkill(id="a", name="A", description="Does a.", tags=["t"], examples=["e"], input_modes=["image/png"]),
            AgentSkill(id="b c", security_requirements=[bearer]),
        ],
        security_schemes={"bearer": SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme(scheme="bearer"))},
        security_requirements=[bearer],
    )
    ours = from_executor(executors.echo, card=card).card([AgentInterface("http://here/", "JSONRPC", "1.0")])
    assert (ours.name, ours.description, ours.version) == ("Echo", "Echoes.", "7")
    assert (ours.documentation_url, ours.icon_url) == ("https://example.com/docs", "https://example.com/icon")
    assert ours.provider is not None
    assert ours.provider.organization == "Example"
    assert (ours.capabilities.streaming, ours.capabilities.push_notifications) == (False, False)
    assert [(x.uri, x.description, x.params) for x in ours.capabilities.extensions] == [
        ("https://example.com/x", "X", {"n": 1})
    ]
    assert (ours.default_input_modes, ours.default_output_modes) == (("text",), ("application/json",))
    assert [(s.id, s.name, s.description, s.tags, s.examples, s.input_modes) for s in ours.skills] == [
        ("a", "A", "Does a.", ("t",), ("e",), ("image/png",)),
        ("b c", "b c", "b c", ("b-c",), (), ()),
    ]
    assert [interface.url for interface in ours.supported_interfaces] == ["http://here/"]
    assert ours.security_requirements == ()


def test_media_types_are_the_executors_business() -> None:
    """As on the SDK's server: cards say "text" where they mean "text/plain"."""
    agent = from_executor(executors.echo, card=AgentCard(name="E", default_input_modes=["text"]))

    async def scenario() -> Task:
        async with Serving(agent) as serving:
            task: Task = await serving.send("hi")
            return task

    assert run(scenario()).text == "hi"


# --- its turns --------------------------------------------------------------------------------------------------------


def test_caller_is_the_user_of_the_call() -> None:
    async def scenario() -> Any:
        async with Serving(from_executor(executors.reporting)) as serving:
            caller = Caller("ada", "acme", extensions=("https://example.com/x",))
            return (await serving.send(caller=caller)).artifacts[0].parts[0].data

    report = run(scenario())
    assert (report["user"], report["authenticated"], report["tenant"]) == ("ada", True, "acme")
    assert report["extensions"] == ["https://example.com/x"]


def test_quiet_executor_keeps_its_choice_between_message_and_task() -> None:
    """It may think for long before it answers with a message, as on the SDK's server."""
    go_on = asyncio.Event()

    async def execute(context: RequestContext, queue: EventQueue) -> None:
        await go_on.wait()
        await queue.enqueue_event(new_text_message("at last"))

    async def scenario() -> tuple[Any, Any]:
        async with Serving(from_executor(Calling(execute))) as serving:
            answer = asyncio.ensure_future(serving.send())
            immediate = await serving.send(wait=False)  # its caller wants a task: the words then end it
            go_on.set()
            reply = await answer
            return reply, await serving.get(immediate)

    reply, task = run(scenario())
    assert isinstance(reply, Message)
    assert reply.text == "at last"
    assert (task.state, task.text) == (TaskState.COMPLETED, "at last")


def test_first_event_may_be_any() -> None:
    async def artifact(context: RequestContext, queue: EventQueue) -> None:
        # A chunk of what is not there yet is its first one; a chunk without parts is nothing.
        await updater(context, queue).add_artifact([new_text_part("a")], "a", append=True)
        await updater(context, queue).add_artifact([], "a", append=True, last_chunk=True)
        event = TaskArtifactUpdateEvent(artifact=Artifact(artifact_id="b", parts=[new_text_part("b")]))
        event.metadata.update({"k": 1})
        await queue.enqueue_event(event)

    async def submitted(context: RequestContext, queue: EventQueue) -> None:
        await updater(context, queue).submit()
        await updater(context, queue).submit(new_text_message("soon"))
        await updater(context, queue).complete()

    async def scenario(execute: Any) -> Any:
        async with Serving(from_executor(Calling(execute))) as serving:
            message = Message("m", Role.USER, (Part("x"),))
            cursor = await serving.service.send_streaming_message(SendMessageRequest(message), Caller())
            return [event.value async for event in events_of(cursor)]

    task, working, one, other, done = run(scenario(artifact))
    assert (task.state, working.status.state, done.status.state) == (
        TaskState.SUBMITTED,
        TaskState.WORKING,
        TaskState.COMPLETED,
    )
    assert [(update.artifact.text, update.append, update.metadata) for update in (one, other)] == [
        ("a", False, None),
        ("b", False, {"k": 1}),
    ]
    assert other.task_id == task.id
    task, told, done = run(scenario(submitted))
    assert task.state is TaskState.SUBMITTED
    assert (told.status.state, told.status.message.text) == (TaskState.WORKING, "soon")
    assert done.status.state is TaskState.COMPLETED


async def events_of(cursor: Cursor) -> AsyncIterator[Event]:
    with contextlib.closing(cursor):
        while True:
            _, events = cursor.take()
            for event in events:
                yield event
            if cursor.ended:
                return
            await cursor.wait()


def test_later_task_says_what_has_changed_and_an_echo_of_the_shown_one_nothing() -> None:
    async def execute(context: RequestContext, queue: EventQueue) -> None:
        shown = context.current_task
        if shown is None:
            await updater(context, queue).requires_input(new_text_message("Well?"))
            return
        assert shown.status.state == OfficialState.TASK_STATE_INPUT_REQUIRED
        await queue.enqueue_event(shown)  # it would ask again
        task = OfficialTask(id=context.task_id, context_id=context.context_id)
        task.status.CopyFrom(OfficialStatus(state=OfficialState.TASK_STATE_WORKING))
        await queue.enqueue_event(task)
        task.artifacts.append(Artifact(artifact_id="a", parts=[new_text_part("result")]))
        task.status.state = OfficialState.TASK_STATE_COMPLETED
        await queue.enqueue_event(task)

    async def scenario() -> Task:
        async with Serving(from_executor(Calling(execute))) as serving:
            asked = await serving.send()
            assert (asked.state, asked.text) == (TaskState.INPUT_REQUIRED, "Well?")
            done: Task = await serving.send("go on", task_id=asked.id)
            return done

    task = run(scenario())
    assert (task.state, task.text) == (TaskState.COMPLETED, "result")
    assert [message.text for message in task.history] == ["x", "Well?", "go on"]


def test_question_is_answered_behind_a_restart(tmp_path: Any) -> None:
    async def scenario() -> tuple[Task, Task]:
        path = str(tmp_path / "tasks.db")
        async with Serving(from_executor(executors.Asking()), SQLiteStore(path)) as serving:
            asked: Task = await serving.send("paint it")
        async with Serving(from_executor(executors.Asking()), SQLiteStore(path)) as serving:
            return asked, await serving.send("blue", task_id=asked.id)

    asked, answered = run(scenario())
    assert asked.state is TaskState.INPUT_REQUIRED
    assert (answered.state, answered.text) == (TaskState.COMPLETED, "paint it: Which colour? blue")


def test_message_that_comes_while_the_executor_works_calls_it_again() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    seen: list[tuple[str, str | None]] = []
    ids: list[Any] = []

    async def execute(context: RequestContext, queue: EventQueue) -> None:
        task = context.current_task
        ids.append(context.task_id)
        seen.append((context.get_user_input(), task and OfficialState.Name(task.status.state)))
        await updater(context, queue).start_work()
        begun.set()
        await go_on.wait()

    async def scenario() -> Task:
        async with Serving(from_executor(Calling(execute))) as serving:
            first = asyncio.ensure_future(serving.send("one"))
            await begun.wait()
            await serving.send("two", wait=False, task_id=ids[0])
            go_on.set()
            task: Task = await first
            return task

    assert run(scenario()).state is TaskState.COMPLETED
    assert ids[0] == ids[1]
    assert seen == [("one", None), ("two", "TASK_STATE_WORKING")]


# --- cancelling and ending --------------------------------------------------------------------------------------------


def test_canceled_is_told_when_execute_has_stopped() -> None:
    begun, stopped = asyncio.Event(), []

    async def execute(context: RequestContext, queue: EventQueue) -> None:
        await updater(context, queue).start_work()
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            (run_,) = serving_runs()
            stopped.append(run_.state)

    async def cancel(context: RequestContext, queue: EventQueue) -> None:
        await updater(context, queue).cancel(new_text_message("stopped"))

    def serving_runs() -> list[Any]:
        return list(current[0].service.runs.values())

    current: list[Serving] = []

    async def scenario() -> Task:
        async with Serving(from_executor(Calling(execute, cancel))) as serving:
            current.append(serving)
            task = await serving.send(wait=False)
            await begun.wait()
            return await serving.cancel(task)

    task = run(scenario())
    assert (task.state, task.text) == (TaskState.CANCELED, "stopped")
    assert stopped == [TaskState.WORKING]


async def fails_to_cancel(context: RequestContext, queue: EventQueue) -> None:
    raise KeyError(context.task_id)


async def hangs_in_cancel(context: RequestContext, queue: EventQueue) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("cancel", [fails_to_cancel, hangs_in_cancel])
def test_cancel_that_fails_or_hangs_does_not_keep_the_task(cancel: Any) -> None:
    begun = asyncio.Event()

    async def execute(context: RequestContext, queue: EventQueue) -> None:
        await updater(context, queue).start_work()
        begun.set()
        await asyncio.Event().wait()

    async def scenario() -> Task:
        async with Serving(from_executor(Calling(execute, cancel)), cancel_s=0.4) as serving:
            task = await serving.send(wait=False)
            await begun.wait()
            return await serving.cancel(task)

    assert run(scenario()).state is TaskState.CANCELED


def test_time_limit_and_the_end_of_the_server_do_not_count_as_cancels() -> None:
    cancels: list[str | None] = []

    async def execute(context: RequestContext, queue: EventQueue) -> None:
        own = updater(context, queue)
        await own.start_work()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await own.cancel()
            raise

    async def cancel(context: RequestContext, queue: EventQueue) -> None:
        cancels.append(context.task_id)

    async def scenario() -> Task:
        async with Serving(from_executor(Calling(execute, cancel)), run_s=0.01) as serving:
            task: Task = await serving.send()
            return task

    task = run(scenario())
    assert (task.state, task.text) == (TaskState.FAILED, "The agent took longer than 0.01 s.")
    assert cancels == []


def test_events_behind_the_call_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """The SDK's contract: the queue is not touched when `execute` has returned."""
    late: list[asyncio.Task[None]] = []
    over = asyncio.Event()

    async def execute(context: RequestContext, queue: EventQueue) -> None:
        own = updater(context, queue)
        await own.requires_input()

        async def complete() -> None:
            await over.wait()
            await own.complete()

        late.append(asyncio.create_task(complete()))

    async def scenario() -> Task:
        async with Serving(from_executor(Calling(execute))) as serving:
            task = await serving.send()
            over.set()
            await late[0]
            return await serving.get(task)

    assert run(scenario()).state is TaskState.INPUT_REQUIRED
    assert "left out" in caplog.text


def test_executor_in_a_hurry_streams_as_it_goes_and_lets_others_work() -> None:
    """It never waits for anything but the queue: its caller follows all the same."""
    told = 0
    behind: list[int] = []

    async def execute(context: RequestContext, queue: EventQueue) -> None:
        nonlocal told
        own = updater(context, queue)
        for told in range(1, 2001):
            await own.add_artifact([new_text_part("x")], "x", append=told > 1)

    async def scenario() -> int:
        async with Serving(from_executor(Calling(execute))) as serving:
            message = Message("m", Role.USER, (Part("x"),))
            cursor = await serving.service.send_streaming_message(SendMessageRequest(message), Caller())
            count = 0
            async for _ in events_of(cursor):
                count += 1
                behind.append(told)
            return count

    assert run(scenario()) == 2003
    assert len(set(behind)) > 20  # it was heard while it spoke


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt()])
def test_executor_that_would_end_the_process_fails_its_own_task_alone(raised: BaseException) -> None:
    async def execute(context: RequestContext, queue: EventQueue) -> None:
        raise raised

    async def scenario() -> Task:
        async with Serving(from_executor(Calling(execute))) as serving:
            failed: Task = await serving.send()
            return failed

    assert run(scenario()).state is TaskState.FAILED


def test_first_message_of_a_task_that_its_caller_has_named_finds_no_task() -> None:
    shown: list[object] = []

    async def execute(context: RequestContext, queue: EventQueue) -> None:
        shown.append(context.current_task)
        await updater(context, queue).complete(new_text_message("done"))

    async def scenario() -> None:
        async with Serving(from_executor(Calling(execute))) as serving:
            message = Message("m-1", Role.USER, (Part("x"),), task_id="named")
            answer = await serving.service.send_message(SendMessageRequest(message), Caller(), new_task={"k": "v"})
            assert isinstance(answer.value, Task)
            assert (answer.value.id, answer.value.state) == ("named", TaskState.COMPLETED)

    run(scenario())
    assert shown == [None]
