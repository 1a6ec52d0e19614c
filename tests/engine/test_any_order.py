"""Calls, agents and writes in any order: whatever the interleaving, the invariants of the engine hold.

Agents do what the example tells them, the store writes when the example says so, and callers come and go between.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.gated import GatedStore
from tests.engine.scene import CALLER, LIMIT_S, says, serving, turns
from tieline import Answer, Failed, Limits, TaskStatus, Turn
from tieline.engine.cursor import Cursor
from tieline.engine.service import Service
from tieline.errors import InternalError, Overloaded, TaskNotCancelable, TaskNotFound, UnsupportedOperation
from tieline.stores.base import Append, StoreError
from tieline.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    SubscribeToTaskRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
)

SCOPE = "0:/0:/"
REFUSALS = (UnsupportedOperation, TaskNotCancelable, TaskNotFound, Overloaded)

index = st.sampled_from([0, 0, 0, 1])
modes = st.sampled_from(["blocking", "at once", "stream"])
actions = st.one_of(
    st.tuples(st.just("agent"), index, st.sampled_from(["chunk", "burst", "status", "ask", "ask", "authorize"])),
    st.tuples(st.just("agent"), index, st.sampled_from(["rest", "rest", "done", "fail", "complete"])),
    st.tuples(st.just("agent"), index, st.sampled_from(["give up", "all at once"])),
    st.tuples(st.just("follow"), index, modes),
    st.tuples(st.just("follow"), index, modes),
    st.tuples(st.just("cancel"), index),
    st.tuples(st.just("subscribe"), index, st.none() | st.integers(0, 12)),
    st.tuples(st.just("read"), index),
    st.tuples(st.just("leave"), st.integers(0, 3)),
    st.tuples(st.just("abandon"), st.integers(0, 5)),
    st.tuples(st.just("release"), st.integers(1, 3)),
    st.tuples(st.just("release"), st.integers(1, 3)),
    st.tuples(st.just("send"), modes),
    st.tuples(st.just("slow reads"), st.sampled_from([None, "request", "answer"])),
    st.tuples(st.just("let read"), st.integers(1, 3)),
)
pauses = st.sampled_from([0, 0, 0, 1, 2, 3, 5, 20])  # turns of the loop behind an action
examples = st.lists(st.tuples(actions, pauses), min_size=5, max_size=40)
failing = st.one_of(actions, actions, actions, actions, st.just(("break the store",)))
failing_examples = st.lists(st.tuples(failing, pauses), min_size=5, max_size=40)


class Reader:
    """A subscriber that checks each event in the moment in which it gets it."""

    def __init__(self, scene: Scene, cursor: Cursor) -> None:
        self.scene = scene
        self.cursor = cursor
        self.told: list[tuple[int, bytes]] = []
        self.task = asyncio.ensure_future(self.read())

    async def read(self) -> None:
        cursor = self.cursor
        while True:
            number, events = cursor.take()
            for at, event in enumerate(events, number):
                self.check(at, event.json, event.value)
                self.told.append((at, event.json))
            if not events:
                if cursor.ended:
                    break
                await cursor.wait()
        cursor.close()

    def check(self, number: int, json: bytes, value: Any) -> None:
        if isinstance(value, Message):
            assert not self.told
            return
        task_id = value.id if isinstance(value, Task) else value.task_id
        log = self.scene.logs[task_id]
        assert number <= len(log), "told before it was stored"
        if self.told:
            assert number == self.told[-1][0] + 1, "an event is missing, or came twice"
        if isinstance(value, Task) and number > 1:
            assert not self.told, "a task in the middle of a stream"
            assert text_in(value) == text_of(log[:number])
        else:
            assert json == log[number - 1].json, "not what is stored under this number"


def text_in(task: Task) -> str:
    return "".join(artifact.text for artifact in task.artifacts)


def text_of(log: list[Any]) -> str:
    chunks = [event.value.artifact for event in log if isinstance(event.value, TaskArtifactUpdateEvent)]
    return "".join(chunk.text for chunk in chunks)


class Scene:
    """A service, its gated store, the calls that are on their way, and what agents are to do."""

    def __init__(self, *, writes_at_once: bool) -> None:
        self.store = GatedStore()
        self.store.open_gate = writes_at_once
        self.store.when_stored = self.stored
        self.service: Service
        self.logs: dict[str, list[Any]] = defaultdict(list)
        self.commands: list[asyncio.Queue[str]] = []
        self.task_ids: dict[int, str] = {}
        self.at_work: dict[str, int] = defaultdict(int)
        self.calls: list[asyncio.Task[Any]] = []
        self.readers: list[Reader] = []
        self.failures = 0

    async def agent(self, turn: Turn) -> Any:
        number = int(turn.context_id)
        self.task_ids[number] = turn.task_id
        self.at_work[turn.task_id] += 1
        assert self.at_work[turn.task_id] == 1, "two agents work on one task"
        commands = self.commands[number]
        try:
            while True:
                match await commands.get():
                    case "chunk":
                        yield "x"
                    case "burst":
                        for _ in range(20):
                            yield "y"
                    case "status":
                        await turn.status("on it")
                    case "ask":
                        yield f"<{await turn.ask('Which?')}>"
                    case "authorize":
                        yield f"<{await turn.authorize('May I?')}>"
                    case "give up":
                        try:
                            async with asyncio.timeout(0.0):
                                answer = await turn.ask("Quick?")
                        except TimeoutError:
                            answer = Answer(turn.message)
                        yield f"<{answer}>"
                    case "all at once":
                        async with asyncio.TaskGroup() as group:
                            for text in "abc":
                                group.create_task(turn.status(text))
                    case "rest":
                        yield TaskStatus(TaskState.INPUT_REQUIRED, turn.reply("Well?"))
                        return
                    case "complete":
                        await turn.complete("bye")
                    case "fail":
                        raise Failed("no")
                    case "done":
                        return
        except asyncio.CancelledError:
            await turn.status("cleaning up")
            raise
        finally:
            self.at_work[turn.task_id] -= 1

    def known(self, number: int) -> str | None:
        """The id of a task that a caller may have been told of."""
        task_id = self.task_ids.get(number)
        return task_id if task_id is not None and self.logs.get(task_id) else None

    def stored(self, append: Append) -> None:
        assert len(self.logs[append.task_id]) == append.after
        self.logs[append.task_id] += append.events

    def call(self, coroutine: Any) -> None:
        call = asyncio.ensure_future(coroutine)
        call.add_done_callback(lambda done: done.cancelled() or done.exception())  # looked at by `check`
        self.calls.append(call)

    async def stream(self, opening: Callable[[], Awaitable[Cursor]]) -> None:
        cursor = await opening()
        self.readers.append(Reader(self, cursor))

    def send(self, mode: str, number: int, task_id: str | None = None) -> None:
        references = tuple(self.task_ids.values())[:1] if len(self.calls) % 3 == 0 else ()
        request = says("go", task_id=task_id, context_id=str(number), at_once=mode == "at once", references=references)
        if mode == "stream":
            self.call(self.stream(partial(self.service.send_streaming_message, request, CALLER)))
        else:
            self.call(self.answered(request, mode))

    async def answered(self, request: Any, mode: str) -> None:
        task = (await self.service.send_message(request, CALLER)).value
        assert isinstance(task, Task)
        if mode == "blocking":
            assert task.state.terminal or task.state.interrupted, f"a blocking send answered with {task.state}"
        assert text_in(task) in [text_of(self.logs[task.id][:end]) for end in range(len(self.logs[task.id]) + 1)]

    async def cancelled(self, task_id: str) -> None:
        task = (await self.service.cancel_task(CancelTaskRequest(task_id), CALLER)).value
        if task.state is TaskState.CANCELED:
            assert not self.at_work[task_id], "CANCELED was told while the agent was at work"

    async def read(self, task_id: str) -> None:
        task = (await self.service.get_task(GetTaskRequest(task_id), CALLER)).value
        log = self.logs[task_id]
        assert text_in(task) in [text_of(log[:end]) for end in range(len(log) + 1)]
        await self.service.list_tasks(ListTasksRequest(), CALLER)

    async def do(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("send", mode):
                if len(self.commands) < 2:
                    self.commands.append(asyncio.Queue())
                    self.send(mode, len(self.commands) - 1)
            case ("agent", number, command):
                if number < len(self.commands):
                    self.commands[number].put_nowait(command)
            case ("follow", number, mode):
                if task_id := self.known(number):
                    self.send(mode, number, task_id)
            case ("cancel", number):
                if task_id := self.known(number):
                    self.call(self.cancelled(task_id))
            case ("subscribe", number, last):
                if task_id := self.known(number):
                    request = SubscribeToTaskRequest(task_id)
                    self.call(self.stream(partial(self.service.subscribe_to_task, request, CALLER, last_event_id=last)))
            case ("leave", number):
                if number < len(self.readers):
                    self.readers[number].task.cancel()
                    self.readers[number].cursor.close()
            case ("abandon", number):
                if number < len(self.calls):
                    self.calls[number].cancel()
            case ("read", number):
                if task_id := self.known(number):
                    self.call(self.read(task_id))
            case ("release", count):
                for _ in range(min(count, len(self.store.held))):
                    self.store.release()
            case ("slow reads", what):
                self.store.reads_wait = what == "request"
                self.store.answers_wait = what == "answer"
            case ("let read", count):
                for _ in range(count):
                    self.store.let_read()
            case ("break the store",):
                if self.store.held:
                    self.failures += 1
                    self.store.fail(StoreError("full"))

    async def finish(self) -> None:
        """Bring everything to its end: agents are done, questions answered, writes written, callers gone."""
        quiet = 0
        self.store.reads_wait = self.store.answers_wait = False
        while self.store.reading:
            self.store.let_read()
        while quiet < 30:
            for number, commands in enumerate(self.commands):
                if commands.empty():
                    commands.put_nowait("done")
                task_id = self.task_ids.get(number)
                run = next((run for (_, id_), run in self.service.runs.items() if id_ == task_id), None)
                if run is not None and run.waiting and run.published:
                    self.send("blocking", number, task_id)
            while self.store.held:
                quiet = 0
                self.store.release()
            await asyncio.sleep(0)
            quiet += 1
        for task_id in self.task_ids.values():  # those that rest without an agent
            record = await self.store.inner.get(SCOPE, task_id)
            if record is not None and not record.state.terminal:
                assert record.state.interrupted or self.failures, f"{record.state} for ever"
                self.call(self.cancelled(task_id))
        await self.settle()

    async def settle(self) -> None:
        """Write what is to be written until the loop has nothing to do: on a busy machine agents take more turns."""
        for turn in range(2000):
            while self.store.held:
                self.store.release()
            await asyncio.sleep(0)
            if turn > 30 and not self.service.busy and all(call.done() for call in self.calls):
                break

    async def check(self) -> None:
        for call in self.calls:
            assert call.done(), f"a call hangs: {call}"
            error = None if call.cancelled() else call.exception()
            if isinstance(error, REFUSALS):
                continue
            if isinstance(error, (InternalError, StoreError)):
                assert self.failures, f"{error!r} though no write has failed"
            elif error is not None:
                raise error
        for reader in self.readers:
            assert reader.task.done(), "a stream hangs"
            if not reader.task.cancelled():
                reader.task.result()
        assert self.service.busy == 0
        assert self.service.runs == {}
        assert not any(self.at_work.values())
        for task_id, log in self.logs.items():
            ends = [
                event
                for event in log
                if isinstance(event.value, TaskStatusUpdateEvent) and event.value.status.state.terminal
            ]
            assert ends == log[-1:], "not ended, or something follows the end"
            record = await self.store.inner.get(SCOPE, task_id)
            assert record is not None
            assert record.version == record.snapshot_version == len(log)


async def play(
    example: list[tuple[tuple[Any, ...], int]], *, writes_at_once: bool = False, while_running: str = "queue"
) -> None:
    scene = Scene(writes_at_once=writes_at_once)
    limits = Limits(cancel_s=0.05, queued_messages=3)
    async with (
        asyncio.timeout(LIMIT_S),
        serving(
            scene.agent, store=scene.store, limits=limits, task_after_s=None, while_running=while_running
        ) as scene.service,
    ):
        await scene.do(("send", "stream"))
        for action, pause in example:
            await scene.do(action)
            await turns(pause)
        await scene.finish()
        await scene.check()


@pytest.mark.requirement("events.in-order", "events.same-on-every-stream", "model.terminal-is-final", over=("direct",))
@given(examples, st.booleans(), st.sampled_from(["queue", "queue", "refuse"]))
@settings(deadline=None, max_examples=200)
def test_whatever_the_order_of_calls_agents_and_writes_the_invariants_hold(
    example: list[tuple[tuple[Any, ...], int]], writes_at_once: bool, while_running: str
) -> None:
    asyncio.run(play(example, writes_at_once=writes_at_once, while_running=while_running))


@given(failing_examples)
@settings(deadline=None, max_examples=200)
def test_whatever_write_fails_nothing_hangs_and_nothing_is_left_behind(
    example: list[tuple[tuple[Any, ...], int]],
) -> None:
    asyncio.run(play(example))
