"""Agents that are started again after a crash, in a server of one process; and what they say again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.engine.scene import CALLER, in_loop
from tests.replicas.scene import events_of, send, subscribe, task_of, text_of, until_state
from tieline import Artifact, Part, Turn, agent
from tieline.engine.service import Service
from tieline.engine.turn import Caller
from tieline.stores.base import StoreError
from tieline.stores.sqlite import SQLiteStore
from tieline.types import (
    GetTaskRequest,
    SendMessageConfiguration,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)


class Lives:
    """Runs an agent in one server after the other, each of which dies."""

    def __init__(self, path: Path, function: Callable[[Turn], Any], *, resumable: bool = True) -> None:
        self._path = path
        self._agent = agent(name="Lives", resumable=resumable)(function)

    async def begin(self) -> Service:
        """The next server."""
        service = Service(self._agent, SQLiteStore(self._path))
        await service.start()
        return service

    async def crash(self, service: Service) -> None:
        """End a server as `kill -9` does."""
        for run in list(service.runs.values()):
            run.lose(StoreError("the process has died"))
        await asyncio.sleep(0)
        await service.close()
        await service.store.close()


async def begun(service: Service, text: str = "go") -> str:
    """A task that is at work, by its id."""
    task = (await service.send_message(send(text, at_once=True), CALLER)).value
    assert isinstance(task, Task)
    return task.id


@in_loop
async def test_a_task_at_work_goes_on_after_a_restart_and_says_nothing_twice(tmp_path: Path) -> None:
    life = 0
    said = asyncio.Event()

    async def counts(turn: Turn) -> Any:
        for number in range(6):
            yield f"{number} "
            if life == 1 and number == 2:
                said.set()
                await asyncio.Event().wait()

    lives = Lives(tmp_path / "tasks.db", counts)
    life = 1
    first = await lives.begin()
    id_ = await begun(first)
    await said.wait()
    await lives.crash(first)
    life = 2
    second = await lives.begin()
    done = await until_state(second, id_, "COMPLETED")
    assert text_of(done) == "0 1 2 3 4 5 "
    events = await second.store.events("0:/0:/", id_, 0) or []
    pieces = [event.value for _, event in events if isinstance(event.value, TaskArtifactUpdateEvent)]
    assert "".join(part.text or "" for piece in pieces for part in piece.artifact.parts) == "0 1 2 3 4 5 "
    await lives.crash(second)


@in_loop
async def test_what_is_started_again_is_no_part_of_the_call_that_is_the_first_to_need_the_server(
    tmp_path: Path,
) -> None:
    call = ContextVar("call", default="none")
    began = asyncio.Event()

    async def says_where(turn: Turn) -> Any:
        if not began.is_set():
            began.set()
            await asyncio.Event().wait()
        yield call.get()

    lives = Lives(tmp_path / "tasks.db", says_where)
    first = await lives.begin()
    id_ = await begun(first)
    await began.wait()
    await lives.crash(first)
    token = call.set("another one's")
    second = await lives.begin()
    call.reset(token)
    assert text_of(await until_state(second, id_, "COMPLETED")) == "none"
    await lives.crash(second)


@in_loop
async def test_questions_that_were_answered_are_answered_from_history(tmp_path: Path) -> None:
    asked: list[str] = []

    async def interviews(turn: Turn) -> Any:
        answers = []
        for question in ("Name?", "Age?", "Town?"):
            asked.append(question)
            answers.append(await turn.ask(question))
        token = await turn.authorize("Allow it")
        yield ", ".join([*answers, token])

    lives = Lives(tmp_path / "tasks.db", interviews)
    id_ = ""
    for answer in ("go", "Ada", "36", "London", "granted"):
        service = await lives.begin()
        message = send(answer, task=id_ or None)
        task = (await service.send_message(message, CALLER)).value
        assert isinstance(task, Task)
        id_ = task.id
        await lives.crash(service)
    service = await lives.begin()
    done = await task_of(service, id_)
    assert (done.state, text_of(done)) == (TaskState.COMPLETED, "Ada, 36, London, granted")
    said = [message.text for message in done.history]
    assert said == ["go", "Name?", "Ada", "Age?", "36", "Town?", "London", "Allow it", "granted"]
    assert asked.count("Town?") == 3
    await lives.crash(service)


@in_loop
async def test_what_came_before_a_question_authorizes_nothing_after_a_restart_either(tmp_path: Path) -> None:
    life = 0
    waits = asyncio.Event()

    async def careful(turn: Turn) -> Any:
        if life == 1:
            waits.set()
            await asyncio.Event().wait()
        token = await turn.authorize("Allow it")
        yield f"{token} {await turn.ask('What else?')}"

    lives = Lives(tmp_path / "tasks.db", careful)
    life = 1
    first = await lives.begin()
    id_ = await begun(first)
    await waits.wait()
    await first.send_message(send("early", task=id_, at_once=True), CALLER)
    await lives.crash(first)
    life = 2
    second = await lives.begin()
    await until_state(second, id_, "AUTH_REQUIRED")
    await second.send_message(send("granted", task=id_), CALLER)
    assert text_of(await task_of(second, id_)) == "granted early"
    await lives.crash(second)


@in_loop
async def test_what_is_said_otherwise_takes_the_place_of_what_was_said(tmp_path: Path) -> None:
    life = 0
    said = asyncio.Event()

    async def wavers(turn: Turn) -> Any:
        yield "The same. "
        yield f"Life {life}. "
        yield Artifact("named", (Part(text=f"in life {life}"),), name="named")
        async with turn.artifact("file.txt") as out:
            await out.write("one ")
            await out.write("two " if life == 1 else "2 ")
        if life == 1:
            said.set()
            await asyncio.Event().wait()
        yield "The end."

    lives = Lives(tmp_path / "tasks.db", wavers)
    life = 1
    first = await lives.begin()
    id_ = await begun(first)
    await said.wait()
    before = await task_of(first, id_)
    await lives.crash(first)
    life = 2
    second = await lives.begin()
    done = await until_state(second, id_, "COMPLETED")
    texts = {artifact.name: "".join(part.text or "" for part in artifact.parts) for artifact in done.artifacts}
    assert texts == {"response": "The same. Life 2. The end.", "named": "in life 2", "file.txt": "one 2 "}
    assert [artifact.artifact_id for artifact in done.artifacts] == [one.artifact_id for one in before.artifacts]
    await lives.crash(second)


@in_loop
async def test_an_agent_that_had_returned_begins_another_turn_with_the_answer(tmp_path: Path) -> None:
    turns: list[str] = []

    async def returns(turn: Turn) -> Any:
        turns.append(turn.text)
        if turn.text == "go":
            yield TaskStatus(TaskState.INPUT_REQUIRED)
        else:
            yield f"got {turn.text}"

    lives = Lives(tmp_path / "tasks.db", returns)
    first = await lives.begin()
    task = (await first.send_message(send("go"), CALLER)).value
    assert isinstance(task, Task)
    await lives.crash(first)
    second = await lives.begin()
    done = (await second.send_message(send("this", task=task.id), CALLER)).value
    assert isinstance(done, Task)
    assert text_of(done) == "got this"
    assert turns == ["go", "this"]
    await lives.crash(second)


@in_loop
async def test_a_task_that_brings_its_server_down_again_and_again_is_given_up(tmp_path: Path) -> None:
    async def deadly(turn: Turn) -> Any:
        yield "begun"
        await asyncio.Event().wait()

    lives = Lives(tmp_path / "tasks.db", deadly)
    service = await lives.begin()
    id_ = await begun(service)
    for _ in range(4):
        await lives.crash(service)
        service = await lives.begin()
    task = await task_of(service, id_)
    assert task.state is TaskState.FAILED
    assert task.status.message is not None
    assert task.status.message.text == "The server stopped 4 times while this task was at work."
    await lives.crash(service)


@pytest.mark.parametrize("resumable", [True, False])
@in_loop
async def test_a_server_that_ends_in_good_order_leaves_what_can_go_on_and_ends_the_rest(
    tmp_path: Path, resumable: bool
) -> None:
    async def stays(turn: Turn) -> Any:
        yield "begun"
        if not turn._run.past:
            await asyncio.Event().wait()

    lives = Lives(tmp_path / "tasks.db", stays, resumable=resumable)
    service = await lives.begin()
    id_ = await begun(service)
    await service.close()
    await service.store.close()
    service = await lives.begin()
    await until_state(service, id_, "COMPLETED" if resumable else "FAILED")
    await service.close()
    await service.store.close()


@in_loop
async def test_the_request_is_there_again_with_what_it_said_beside_the_message(tmp_path: Path) -> None:
    life = 0
    there: list[Any] = []
    waits = asyncio.Event()

    async def looks(turn: Turn) -> Any:
        there.append((turn.text, turn.metadata, turn.accepts, turn.caller.principal, turn.caller.tenant))
        yield "looked"
        if life == 1:
            waits.set()
            await asyncio.Event().wait()

    lives = Lives(tmp_path / "tasks.db", looks)
    caller = Caller(principal="ann/1:x", tenant="acme: 7")
    configuration = SendMessageConfiguration(accepted_output_modes=("text/plain",), return_immediately=True)
    request = replace(send("look"), metadata={"k": [1, 2**70]}, configuration=configuration)
    life = 1
    first = await lives.begin()
    task = (await first.send_message(request, caller)).value
    assert isinstance(task, Task)
    await waits.wait()
    await lives.crash(first)
    life = 2
    second = await lives.begin()
    while (await second.get_task(GetTaskRequest(task.id), caller)).value.state is not TaskState.COMPLETED:  # noqa: ASYNC110 - asking is the only way to know
        await asyncio.sleep(0.01)
    assert there[0] == there[1]
    await lives.crash(second)


@in_loop
async def test_a_follower_hears_that_the_task_goes_on(tmp_path: Path) -> None:
    life = 0
    waits = asyncio.Event()

    async def steps(turn: Turn) -> Any:
        yield "a"
        waits.set()
        if life == 1:
            await asyncio.Event().wait()
        yield "b"

    lives = Lives(tmp_path / "tasks.db", steps)
    life = 1
    first = await lives.begin()
    seen = await events_of(
        await first.send_streaming_message(send("go"), CALLER),
        lambda event: isinstance(event, TaskArtifactUpdateEvent),
    )
    await waits.wait()
    await lives.crash(first)
    life = 2
    second = await lives.begin()
    await until_state(second, seen[0].id, "COMPLETED")
    rest = await events_of(await second.subscribe_to_task(subscribe(seen[0].id), CALLER, last_event_id=len(seen)))
    assert isinstance(rest[0], TaskStatusUpdateEvent)
    assert rest[0].metadata == {"tieline/resumed": 1}
    assert isinstance(rest[-1], TaskStatusUpdateEvent)
    pieces = [event for event in rest if isinstance(event, TaskArtifactUpdateEvent)]
    assert "".join(part.text or "" for piece in pieces for part in piece.artifact.parts) == "b"
    await lives.crash(second)
