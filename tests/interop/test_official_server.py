"""Our client against an official SDK server (official_server.py), a real process, over both bindings.

The SDK keeps data parts in protobuf values, so every number of a data part arrives as a float.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

import tieline
from tests.interop.processes import ROOT, free_port, running
from tests.interop.proxy import CuttingProxy
from tieline import Artifact, Message, Part, Task, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent
from tieline.errors import (
    InvalidParams,
    TaskFailed,
    TaskNotCancelable,
    TaskNotFound,
    UnsupportedOperation,
)
from tieline.types import StreamEvent

LIMIT_S = 60.0
SALES = Part(raw=b"name,amount\nAda,10\nGrace,2.5\nEdsger,10\n", filename="sales.csv", media_type="text/csv")
BIG = Part(raw=b"n\n" + b"1\n" * 2_000_000, filename="big.csv", media_type="text/csv")  # seconds of work

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(coroutine, LIMIT_S))


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    port = free_port()
    command: list[str | Path] = [sys.executable, ROOT / "tests/interop/official_server.py", str(port)]
    with running(command, port, tmp_path_factory.mktemp("official") / "server.log"):
        yield port


@pytest.fixture(params=["JSONRPC", "HTTP+JSON"])
def binding(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def peers(port: int, binding: str) -> Peers:
    return Peers(port, binding)


class Peers:
    """Connections to the official server over one binding: `async with peers.connect() as peer`."""

    def __init__(self, port: int, binding: str) -> None:
        self.port = port
        self.binding = binding

    def connect(self, port: int | None = None) -> Any:
        return tieline.connect(f"127.0.0.1:{port or self.port}", transport=self.binding)


def state_of(answer: Task | Message) -> TaskState:
    assert isinstance(answer, Task), answer
    return answer.state


def artifact(task: Task, name: str) -> Artifact:
    (found,) = (one for one in task.artifacts if one.name == name)
    return found


def kinds(events: list[StreamEvent]) -> list[str]:
    """The events in short: the state of a task or status, "artifact" or "+" for a first or later chunk."""
    found = []
    for event in events:
        if isinstance(event, TaskArtifactUpdateEvent):
            found.append("+" if event.append else "artifact")
        elif isinstance(event, Message):
            found.append("message")
        else:
            found.append(f"{'task ' if isinstance(event, Task) else ''}{event.status.state.name}")
    return found


def words(event: StreamEvent) -> str:
    status = None if isinstance(event, (Message, TaskArtifactUpdateEvent)) else event.status
    return status.message.text if status and status.message else ""


# --- answers ----------------------------------------------------------------------------------------------------------


def test_card_is_found_and_the_binding_that_was_asked_for_is_used(peers: Peers) -> None:
    async def scenario() -> None:
        async with peers.connect() as peer:
            assert peer.card.name == "Table"
            assert peer.transport == peers.binding
            assert (
                peer.interface.url == f"http://127.0.0.1:{peers.port}/{'rpc' if peers.binding == 'JSONRPC' else 'rest'}"
            )

    run(scenario())


def test_file_and_column_give_text_data_and_the_task(peers: Peers) -> None:
    async def scenario() -> None:
        async with peers.connect() as peer:
            reply = await peer.ask(["sum of amount", SALES])
            assert reply.state is TaskState.COMPLETED
            assert reply.data == {"column": "amount", "rows": 3, "sum": 22.5, "large": 9007199254740992}
            assert reply == "value,count\n10,2\n2.5,1\n"  # the chunks of one artifact, without a seam
            assert reply.task is not None
            assert words(reply.task) == "amount: sum 22.5"

    run(scenario())


def test_direct_message_is_an_answer_without_a_task(peers: Peers) -> None:
    async def scenario() -> None:
        async with peers.connect() as peer:
            reply = await peer.ask("hello")
            assert (reply, reply.task) == ("Hello!", None)
            assert isinstance(await peer.send("hello"), Message)
            assert kinds([event async for event in peer.stream("hello")]) == ["message"]

    run(scenario())


def test_question_is_a_reply_and_the_answer_goes_to_its_task(peers: Peers) -> None:
    async def scenario() -> None:
        async with peers.connect() as peer:
            question = await peer.ask(SALES)
            assert question.state is TaskState.INPUT_REQUIRED
            assert question == "Which of these: name, amount?"
            reply = await peer.ask("the amount please", after=question)
            assert (reply.task_id, reply.context_id) == (question.task_id, question.context_id)
            assert reply.data["sum"] == 22.5
            assert reply.task is not None
            assert reply.task.status.message is not None
            assert reply.task.status.message.context_id == question.context_id

    run(scenario())


def test_stream_has_every_event_once_and_ends_with_the_task(peers: Peers) -> None:
    async def scenario() -> None:
        async with peers.connect() as peer:
            events = [event async for event in peer.stream(["amount", SALES])]
            assert kinds(events) == ["task SUBMITTED", "WORKING", "artifact", "artifact", "+", "+", "COMPLETED"]
            chunks = [event.artifact.text for event in events if isinstance(event, TaskArtifactUpdateEvent)]
            assert "".join(chunks) == "value,count\n10,2\n2.5,1\n"

    run(scenario())


def test_stream_ends_at_the_question_and_the_answer_streams_on(peers: Peers) -> None:
    async def scenario() -> None:
        async with peers.connect() as peer:
            asked = [event async for event in peer.stream(SALES)]
            assert kinds(asked) == ["task SUBMITTED", "WORKING", "INPUT_REQUIRED"]
            task = asked[0]
            assert isinstance(task, Task)
            answered = peer.stream("amount", task_id=task.id, context_id=task.context_id)
            seen = kinds([event async for event in answered])
            assert seen[-5:] == ["artifact", "artifact", "+", "+", "COMPLETED"]

    run(scenario())


def test_caller_that_does_not_wait_finds_the_end_later(peers: Peers) -> None:
    async def scenario() -> None:
        async with peers.connect() as peer:
            told = await peer.send(["amount", SALES], return_immediately=True)
            assert isinstance(told, Task)
            ended = await peer.wait(told.id, timeout_s=LIMIT_S)
            assert ended.state is TaskState.COMPLETED
            assert artifact(ended, "values.csv").text == "value,count\n10,2\n2.5,1\n"

    run(scenario())


def test_every_script_survives_the_way_there_and_back(peers: Peers) -> None:
    async def scenario() -> None:
        async with peers.connect() as peer:
            table = Part(raw="名前,金額\nあだ,5\n🦊,7\n".encode(), filename="売上 №1.csv", media_type="text/csv")
            reply = await peer.ask(["金額 は", table])
            assert reply.data["column"] == "金額"
            assert reply.task is not None
            assert reply.task.history[0].parts[1].filename == "売上 №1.csv"

    run(scenario())


def test_large_integers_are_rounded_by_the_official_server_before_we_see_them(peers: Peers) -> None:
    async def scenario() -> None:
        async with peers.connect() as peer:
            reply = await peer.ask(["amount", SALES])
            # The agent said 9007199254740993; google.protobuf.Value, its only way to data, has no number but a double.
            assert reply.data["large"] == 9007199254740992

    run(scenario())


# --- following --------------------------------------------------------------------------------------------------------


def test_subscription_after_a_break_begins_with_the_task_and_goes_on(peers: Peers) -> None:
    async def scenario() -> None:
        async with peers.connect() as peer:
            broken = peer.stream(["n", BIG])
            async for event in broken:
                task_id = event.id if isinstance(event, Task) else event.task_id
                if "Read 10000 rows" in words(event):
                    break
            await broken.aclose()
            after: list[StreamEvent] = []
            async for event in peer.subscribe(task_id):
                after.append(event)
                if len(after) == 3:
                    await peer.cancel(task_id)
            assert kinds(after)[:2] == ["task WORKING", "WORKING"]
            assert kinds(after)[-1] == "CANCELED"

    run(scenario())


def test_subscription_to_a_question_stays_open_until_the_task_has_ended(peers: Peers) -> None:
    async def scenario() -> None:
        async with peers.connect() as peer:
            question = await peer.ask(SALES)
            seen: list[StreamEvent] = []
            answering: asyncio.Task[Any] | None = None
            async for event in peer.subscribe(question.task_id):
                seen.append(event)
                if answering is None:
                    answering = asyncio.ensure_future(peer.ask("amount", after=question))
            assert answering is not None
            assert (await answering).data["sum"] == 22.5
            assert kinds(seen)[0] == "task INPUT_REQUIRED"
            assert kinds(seen)[-1] == "COMPLETED"

    run(scenario())


def test_stream_that_the_network_cuts_is_taken_up_again_with_every_piece_once(
    binding: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def scenario(port: int, public_port: int) -> None:
        content = Part(raw=b"n\n" + b"1\n2\n" * 200_000, media_type="text/csv")
        cuts = (b"Read 10000 rows", b"Read 50000 rows")
        async with CuttingProxy(public_port, port, cuts=cuts) as proxy:
            async with tieline.connect(f"127.0.0.1:{public_port}", transport=binding) as peer:
                events = [event async for event in peer.stream(["n", content])]
            assert proxy.cut >= 1  # a quick agent may be done before the second
        last = events[-1]
        assert isinstance(last, (Task, TaskStatusUpdateEvent))
        assert last.status.state is TaskState.COMPLETED
        texts: dict[str, str] = {}
        for event in events:
            for one in artifacts_of(event):
                texts[one.artifact_id] = texts.get(one.artifact_id, "") + one.text
        assert texts["values"] == "value,count\n1,200000\n2,200000\n"

    port, public_port = free_port(), free_port()
    command: list[str | Path] = [sys.executable, ROOT / "tests/interop/official_server.py", str(port), str(public_port)]
    with running(command, port, tmp_path_factory.mktemp("cut") / "server.log"):
        run(scenario(port, public_port))


def artifacts_of(event: StreamEvent) -> tuple[Artifact, ...]:
    if isinstance(event, Task):
        return event.artifacts
    return (event.artifact,) if isinstance(event, TaskArtifactUpdateEvent) else ()


# --- cancel and list --------------------------------------------------------------------------------------------------


def test_cancel_at_the_question_ends_the_task(peers: Peers) -> None:
    async def scenario() -> None:
        async with peers.connect() as peer:
            question = await peer.ask(SALES)
            assert (await peer.cancel(question.task_id)).state is TaskState.CANCELED
            assert (await peer.get(question.task_id)).state is TaskState.CANCELED

    run(scenario())


def test_cancel_at_work_ends_the_stream(peers: Peers) -> None:
    async def scenario() -> None:
        async with peers.connect() as peer:
            seen: list[StreamEvent] = []
            async for event in peer.stream(["n", BIG]):
                seen.append(event)
                if isinstance(event, TaskStatusUpdateEvent) and "Read 10000 rows" in words(event):
                    assert (await peer.cancel(event.task_id)).state is TaskState.CANCELED
            assert kinds(seen)[-1] == "CANCELED"
            assert "artifact" not in kinds(seen)

    run(scenario())


def test_list_has_the_tasks_of_a_context_in_pages(peers: Peers) -> None:
    async def scenario() -> None:
        async with peers.connect() as peer:
            context_id = f"context of {peers.binding}"
            sent = [await peer.send(["amount", SALES], context_id=context_id) for _ in range(2)]
            sent.append(await peer.send(SALES, context_id=context_id))
            ids = [task.id for task in sent if isinstance(task, Task)]
            page = await peer.list(context_id=context_id, page_size=2)
            assert [task.id for task in page.tasks] == [ids[2], ids[1]]
            assert page.total_size == 3
            assert [task.id async for task in peer.list_all(context_id=context_id, page_size=2)] == ids[::-1]
            waiting = await peer.list(context_id=context_id, status=TaskState.INPUT_REQUIRED)
            assert [task.id for task in waiting.tasks] == [ids[2]]
            full = await peer.list(context_id=context_id, include_artifacts=True)
            assert [len(task.artifacts) for task in full.tasks] == [0, 2, 2]

    run(scenario())


# --- errors -----------------------------------------------------------------------------------------------------------


def test_unknown_task_is_not_found_by_any_call(peers: Peers) -> None:
    async def scenario() -> None:
        async with peers.connect() as peer:
            with pytest.raises(TaskNotFound):
                await peer.get("no-such-task")
            with pytest.raises(TaskNotFound):
                await peer.cancel("no-such-task")
            with pytest.raises(TaskNotFound):
                await peer.send("amount", task_id="no-such-task")
            with pytest.raises(TaskNotFound):
                async for _ in peer.subscribe("no-such-task"):
                    pass
            with pytest.raises(TaskNotFound):
                async for _ in peer.stream("amount", task_id="no-such-task"):
                    pass

    run(scenario())


def test_finished_task_takes_nothing_more(peers: Peers) -> None:
    async def scenario() -> None:
        async with peers.connect() as peer:
            done = await peer.ask(["amount", SALES])
            with pytest.raises(TaskNotCancelable):
                await peer.cancel(done.task_id)
            with pytest.raises(UnsupportedOperation):
                async for _ in peer.subscribe(done.task_id):
                    pass
            with pytest.raises(UnsupportedOperation):
                await peer.send("name", task_id=done.task_id, context_id=done.context_id)

    run(scenario())


def test_rejection_is_raised_with_the_task_and_its_words(peers: Peers) -> None:
    async def scenario() -> None:
        async with peers.connect() as peer:
            with pytest.raises(TaskFailed, match="There is no table") as failure:
                await peer.ask("amount")
            assert failure.value.task.state is TaskState.REJECTED

    run(scenario())


def test_bad_parameters_are_named_as_such(peers: Peers) -> None:
    async def scenario() -> None:
        async with peers.connect() as peer:
            with pytest.raises(InvalidParams):
                await peer.list(page_size=1000)
            with pytest.raises(InvalidParams):
                await peer.list(page_token="nonsense")

    run(scenario())


# --- what the official server does otherwise ------------------------------------------------------------------------


def test_answer_by_task_id_alone_reaches_the_task_but_its_agent_is_told_another_context(peers: Peers) -> None:
    async def scenario() -> None:
        async with peers.connect() as peer:
            question = await peer.ask(SALES)
            answer = await peer.send("amount", task_id=question.task_id)
            assert state_of(answer) is TaskState.COMPLETED
            assert answer.context_id == question.context_id
            # A server must infer the context from the task (A2A 1.0 §3.4.3); the SDK makes a new one for the executor,
            # and all that it says from then on carries that. `after=`, as above, sends both and so is not concerned.
            assert isinstance(answer, Task)
            assert answer.status.message is not None
            assert answer.status.message.context_id != question.context_id

    run(scenario())


def test_media_type_that_its_card_does_not_name_is_taken(peers: Peers) -> None:
    async def scenario() -> None:
        async with peers.connect() as peer:
            assert "image/gif" not in peer.card.default_input_modes
            # ContentTypeNotSupported is due (A2A 1.0 §3.1.1), but the SDK passes the part on to the executor.
            assert await peer.ask(["?", Part(raw=b"one", media_type="image/gif")]) == "Which of these: one?"

    run(scenario())
