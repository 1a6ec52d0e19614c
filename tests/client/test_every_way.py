"""A Peer and a server of ours over every binding in every version of it: the same calls, the same answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.client.agents import obeys
from tests.client.running import run
from tests.client.scripted import card_of
from tests.client.serving import PATIENT, WAYS, by_way, cutting_proxy, served
from tieline import (
    Agent,
    Artifact,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
    Turn,
    agent,
    app,
    connect,
)
from tieline.errors import (
    PeerTimeout,
    TaskFailed,
    TaskNotCancelable,
    TaskNotFound,
    UnsupportedOperation,
)

every = pytest.mark.parametrize("way", list(WAYS))
WITHOUT_LIST = ("jsonrpc-0.3", "jsonrpc-0.1", "grpc-0.3")


@every
def test_ask_gives_the_answer_with_its_task_and_the_task_can_be_read(way: str) -> None:
    async def test() -> None:
        async with by_way(obeys, way) as peer:
            reply = await peer.ask("Ada ☃ 😀")
            assert (reply, reply.state) == ("Hello, Ada ☃ 😀!", TaskState.COMPLETED)
            assert reply.task is not None
            found = await peer.get(reply.task.id)
            assert (found.text, found.state, found.context_id) == (str(reply), reply.state, reply.context_id)
            assert [message.role for message in found.history] == [Role.USER]
            assert (await peer.get(reply.task.id, history_length=1)).history[-1].text == "Ada ☃ 😀"

    run(test())


@every
def test_an_answer_that_is_a_message_is_one_but_in_0_1_where_all_is_a_task(way: str) -> None:
    async def test() -> None:
        async with by_way(obeys, way) as peer:
            answer = await peer.send("reply")
            if way == "jsonrpc-0.1":
                assert isinstance(answer, Task)
                assert (answer.state, answer.text) == (TaskState.COMPLETED, "a reply")
                assert answer.status.message is not None
                assert (answer.status.message.text, answer.status.message.role) == ("a reply", Role.AGENT)
                assert await peer.ask("reply") == "a reply"
                return
            assert isinstance(answer, Message)
            assert (answer.text, answer.role) == ("a reply", Role.AGENT)
            reply = await peer.ask("reply")
            assert (reply, reply.task) == ("a reply", None)

    run(test())


@every
def test_a_question_is_asked_and_answered_in_the_same_task(way: str) -> None:
    async def test() -> None:
        async with by_way(obeys, way) as peer:
            question = await peer.ask("ask")
            assert (question, question.state) == ("Who are you?", TaskState.INPUT_REQUIRED)
            answer = await peer.ask("Ada", after=question)
            assert (answer, answer.state) == ("Hello, Ada!", TaskState.COMPLETED)
            assert answer.task_id == question.task_id
            assert (await peer.wait(question.task_id or "")).state is TaskState.COMPLETED
            said = [message.text for message in (await peer.get(answer.task_id or "")).history]
            assert said == ["ask", "Who are you?", "Ada"]
            later = await peer.ask("Bob", after=answer)
            assert (later.context_id, later.task_id == answer.task_id) == (answer.context_id, False)

    run(test())


@every
def test_an_authorization_is_asked_for_and_told_from_a_question(way: str) -> None:
    async def test() -> None:
        async with by_way(obeys, way) as peer:
            asked = await peer.ask("authorize")
            assert (asked, asked.state) == ("May I?", TaskState.AUTH_REQUIRED)
            assert await peer.ask("yes", after=asked) == "done"

    run(test())


@every
def test_a_stream_begins_with_the_task_and_tells_all_to_the_end(way: str) -> None:
    async def test() -> None:
        async with by_way(obeys, way) as peer:
            events = [event async for event in peer.stream("count 50")]
            assert isinstance(events[0], Task)
            assert isinstance(events[-1], TaskStatusUpdateEvent)
            assert events[-1].status.state is TaskState.COMPLETED
            words = "".join(e.artifact.text for e in events if isinstance(e, TaskArtifactUpdateEvent))
            begun = "".join(artifact.text for artifact in events[0].artifacts)
            assert begun + words == "".join(f"<{number}>" for number in range(50))
            assert len(events) > 2

    run(test())


@every
def test_a_task_at_work_can_be_followed_by_another_and_cancelled(way: str) -> None:
    async def test() -> None:
        async with by_way(obeys, way) as peer:
            stream = peer.stream("hang")
            begun = await anext(stream)
            assert isinstance(begun, Task)
            following = peer.subscribe(begun.id)
            first = await anext(following)
            assert (first.id if isinstance(first, Task) else first.task_id) == begun.id
            with pytest.raises(PeerTimeout, match="still at work"):
                await peer.wait(begun.id, timeout_s=0.05)
            assert (await peer.cancel(begun.id)).state is TaskState.CANCELED
            for events in (stream, following):
                last = [event async for event in events][-1]
                assert isinstance(last, TaskStatusUpdateEvent)
                assert last.status.state is TaskState.CANCELED
            assert (await peer.wait(begun.id)).state is TaskState.CANCELED

    run(test())


@every
def test_errors_are_the_same_whatever_carries_them(way: str) -> None:
    async def test() -> None:
        async with by_way(obeys, way) as peer:
            for call in (peer.get("no-such"), peer.cancel("no-such"), anext(peer.subscribe("no-such"))):
                with pytest.raises(TaskNotFound):
                    await call
            ended = await peer.ask("Ada")
            with pytest.raises(TaskNotCancelable):
                await peer.cancel(ended.task_id or "")
            with pytest.raises(UnsupportedOperation):
                await peer.send("more", task_id=ended.task_id)
            for word, state in (("fail", TaskState.FAILED), ("reject", TaskState.REJECTED)):
                with pytest.raises(TaskFailed, match=state.value.removeprefix("TASK_STATE_")) as failed:
                    await peer.ask(word)
                assert failed.value.task.state is state

    run(test())


PARTS = (
    Part("echo these"),
    Part("*x*", media_type="text/markdown", filename="x.md"),
    Part(raw=bytes(range(256)), filename="all.bin", media_type="application/octet-stream"),
    Part(raw=b"SGVsbG8=", media_type="text/plain"),
    Part(url="https://files.example/a?b=1", media_type="image/png"),
    Part(data={"n": 2**53 - 1, "f": 0.1, "none": None, "list": [1, "two", {}]}),
    Part(data=[1, None]),
    Part("words", metadata={"of": "part"}),
)


@every
def test_files_data_and_their_names_go_both_ways_unchanged(way: str) -> None:
    async def test() -> None:
        async with by_way(obeys, way) as peer:
            answer = await peer.send(PARTS, metadata={"a": {"b": 1}})
            assert isinstance(answer, Task)
            (artifact,) = answer.artifacts
            assert artifact == Artifact("echo", PARTS, "Echo", metadata={"a": {"b": 1}}, extensions=("u:x",))
            assert answer.history[0].parts == PARTS

    run(test())


@pytest.mark.parametrize("way", [way for way in WAYS if not way.startswith("grpc")])
def test_integers_of_any_size_stay_what_they_are(way: str) -> None:
    async def test() -> None:
        async with by_way(obeys, way) as peer:
            answer = await peer.send(["echo", {"n": 10**40, "m": -(2**63) - 1}])
            assert isinstance(answer, Task)
            assert answer.artifacts[0].parts[1].data == {"n": 10**40, "m": -(2**63) - 1}

    run(test())


@every
def test_lists_of_tasks_are_read_where_the_version_has_them_and_refused_where_not(way: str) -> None:
    async def test() -> None:
        async with by_way(obeys, way) as peer:
            asked = [(await peer.ask(f"n{number}")).task_id for number in range(3)]
            if way in WITHOUT_LIST:
                with pytest.raises(UnsupportedOperation, match=r"ListTasks"):
                    await peer.list()
                with pytest.raises(UnsupportedOperation):
                    [task async for task in peer.list_all()]
                return
            assert {task.id for task in (await peer.list()).tasks} == set(asked)
            assert [task.id async for task in peer.list_all(page_size=2)] == asked[::-1]

    run(test())


@every
def test_a_task_that_is_not_waited_for_is_waited_for_later(way: str) -> None:
    gates: list[asyncio.Event] = []

    @agent(name="Slow", description="Waits to be let go.")
    async def slow(turn: Turn) -> Any:
        await turn.status("at work")
        await gates[0].wait()
        return "done"

    async def test() -> None:
        gates.append(asyncio.Event())
        async with by_way(slow, way) as peer:
            begun = await peer.send("go", return_immediately=True)
            assert isinstance(begun, Task)
            assert not begun.state.terminal
            waiting = asyncio.create_task(peer.wait(begun.id))
            gates[0].set()
            assert (await waiting).text == "done"

    run(test())


def quiet() -> Agent:
    @agent(name="Quiet", description="Does not stream.", streaming=False)
    async def made(turn: Turn) -> Any:
        if turn.text == "ask":
            return await turn.ask("Which?")
        await turn.status("at work")
        return f"did {turn.text}"

    return made


@every
def test_an_agent_that_does_not_stream_is_asked_all_the_same_and_streams_are_refused_unsent(way: str) -> None:
    async def test() -> None:
        async with by_way(quiet(), way) as peer:
            assert await peer.ask("it", poll_s=0.01) == "did it"
            question = await peer.ask("ask", poll_s=0.01)
            assert question == "Which?"
            assert await peer.ask("this", after=question, poll_s=0.01) == "this"
            for events in (peer.stream("it"), peer.subscribe(question.task_id or "")):
                with pytest.raises(UnsupportedOperation, match="does not stream"):
                    await anext(events)

    run(test())


@pytest.mark.parametrize("way", [way for way in WAYS if not way.startswith("grpc")])
def test_a_task_that_one_way_began_goes_on_by_every_other(way: str) -> None:
    async def test() -> None:
        async with by_way(obeys, "jsonrpc-1.0") as peer:
            url = peer.interface.url
            question = await peer.ask("ask")
            binding, version = WAYS[way]
            async with connect(url, transport=binding, version=version) as other:
                assert (await other.get(question.task_id or "")).state is TaskState.INPUT_REQUIRED
                assert await other.ask("Ada", after=question) == "Hello, Ada!"
            assert (await peer.get(question.task_id or "")).text == "Hello, Ada!"

    run(test())


@pytest.mark.parametrize("way", ["jsonrpc-0.3", "rest-0.3", "jsonrpc-0.1"])
@pytest.mark.parametrize("after_bytes", [4000, 9000])
def test_a_stream_that_breaks_all_the_time_gives_every_chunk_once_in_old_versions_too(
    way: str, after_bytes: int
) -> None:
    async def test() -> None:
        binding, version = WAYS[way]
        async with served(app(obeys)) as url, cutting_proxy(url, after_bytes=after_bytes) as broken:
            base = broken + ("/" if binding == "JSONRPC" else "")
            card = card_of((base, binding), version=version)
            async with connect(card, recovery=PATIENT, version=version) as peer:
                events = [event async for event in peer.stream("count 200")]
        told = [artifact.text for event in events if isinstance(event, Task) for artifact in event.artifacts]
        told += [event.artifact.text for event in events if isinstance(event, TaskArtifactUpdateEvent)]
        assert "".join(told) == "".join(f"<{number}>" for number in range(200))
        last = events[-1]
        assert isinstance(last, Task | TaskStatusUpdateEvent)
        assert last.status.state is TaskState.COMPLETED

    run(test())
