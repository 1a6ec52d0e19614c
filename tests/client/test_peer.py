"""A Peer and an agent of ours, over every transport: the same calls, the same answers."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.client.agents import obeys
from tests.client.running import run
from tests.client.serving import PATIENT, cutting_proxy, peer_of, served
from tieline import (
    AgentExtension,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
    Timeouts,
    Turn,
    agent,
    app,
    connect,
)
from tieline.errors import (
    ExtensionSupportRequired,
    InvalidParams,
    PeerTimeout,
    TaskFailed,
    TaskNotCancelable,
    TaskNotFound,
    UnsupportedOperation,
    VersionNotSupported,
)

every = pytest.mark.parametrize("transport", ["direct", "jsonrpc", "rest"])


# --- asking -----------------------------------------------------------------------------------------------------------


@every
def test_ask_gives_the_text_of_the_answer_with_the_task_beside_it(transport: str) -> None:
    async def test() -> None:
        async with peer_of(obeys, transport) as peer:
            reply = await peer.ask("Ada")
            assert (reply, reply.state) == ("Hello, Ada!", TaskState.COMPLETED)
            assert reply.task is not None
            assert reply.task == await peer.get(reply.task.id)

    run(test())


@every
def test_ask_gives_a_direct_message_too(transport: str) -> None:
    async def test() -> None:
        async with peer_of(obeys, transport) as peer:
            reply = await peer.ask("reply")
            assert (reply, reply.task, reply.state) == ("a reply", None, None)
            assert reply.message is not None
            assert reply.message.role is Role.AGENT

    run(test())


@every
@pytest.mark.requirement("turns.client-answers-the-task", "context.opaque-to-client")
def test_question_back_is_a_reply_and_its_answer_goes_to_the_same_task_and_context(transport: str) -> None:
    async def test() -> None:
        async with peer_of(obeys, transport) as peer:
            question = await peer.ask("ask")
            assert (question, question.state) == ("Who are you?", TaskState.INPUT_REQUIRED)
            answer = await peer.ask("Ada", after=question)
            assert answer == "Hello, Ada!"
            assert (answer.task_id, answer.context_id) == (question.task_id, question.context_id)

    run(test())


@every
def test_follow_up_to_a_finished_task_is_a_new_task_in_the_same_context(transport: str) -> None:
    async def test() -> None:
        async with peer_of(obeys, transport) as peer:
            first = await peer.ask("Ada")
            second = await peer.ask("seen", after=first)
            assert second.data["context"] == first.context_id == second.context_id
            assert second.task_id != first.task_id
            assert first.task is not None
            assert (await peer.ask("seen", after=first.task)).context_id == first.context_id

    run(test())


@every
def test_ask_stops_where_an_authorization_is_awaited(transport: str) -> None:
    async def test() -> None:
        async with peer_of(obeys, transport) as peer:
            waits = await peer.ask("authorize")
            assert (waits, waits.state) == ("May I?", TaskState.AUTH_REQUIRED)
            assert await peer.ask("yes", after=waits) == "done"

    run(test())


@every
@pytest.mark.parametrize(
    ("text", "state", "words"),
    [("fail", TaskState.FAILED, "It broke."), ("reject", TaskState.REJECTED, "Not this.")],
)
def test_task_that_ends_without_an_answer_is_raised_by_ask_but_not_by_send(
    transport: str, text: str, state: TaskState, words: str
) -> None:
    async def test() -> None:
        async with peer_of(obeys, transport) as peer:
            with pytest.raises(TaskFailed, match=words) as caught:
                await peer.ask(text)
            assert caught.value.task.state is state
            sent = await peer.send(text)
            assert isinstance(sent, Task)
            assert sent.state is state

    run(test())


@every
def test_words_that_close_a_task_are_its_answer_where_there_is_no_artifact(transport: str) -> None:
    async def test() -> None:
        async with peer_of(obeys, transport) as peer:
            assert await peer.ask("close") == "All done."

    run(test())


@every
def test_ask_follows_an_agent_that_does_not_stream_to_its_end(transport: str) -> None:
    go_on = asyncio.Event()

    @agent(name="Slow", description="Takes its time.", streaming=False)
    async def slow(turn: Turn) -> str:
        await turn.status("thinking")
        await go_on.wait()
        return "at last"

    async def test() -> None:
        async with peer_of(slow, transport) as peer:
            begun = await peer.send("go", return_immediately=True)
            assert isinstance(begun, Task)
            assert not begun.state.terminal
            waiting = asyncio.ensure_future(peer.wait(begun.id, poll_s=0.001))
            asked = asyncio.ensure_future(peer.ask("go"))
            await peer.get(begun.id)
            go_on.set()
            assert (await waiting).text == "at last"
            assert await asked == "at last"

    run(test())


@every
@pytest.mark.requirement("content.client-needs-no-history")
def test_ask_needs_no_history(transport: str) -> None:
    async def test() -> None:
        async with peer_of(obeys, transport) as peer:
            sent = await peer.send("Ada", history_length=0)
            assert isinstance(sent, Task)
            assert (sent.history, sent.text) == ((), "Hello, Ada!")

    run(test())


# --- what is carried --------------------------------------------------------------------------------------------------

PARTS = (
    Part(text="echo ☃", metadata={"a": None, "n": 2**70, "f": 1.5, "deep": [{"x": []}]}),
    Part(raw=bytes(range(256)), filename="f.bin", media_type="application/octet-stream"),
    Part(url="https://x.test/f", media_type="text/csv"),
    Part(data={"null": None, "int": 1, "float": 1.5, "list": [1, "2"], "true": True, "": {}}),
    Part(data=None),
    Part(data=[]),
    Part(data=2**64),
    Part(data=""),
)


@every
@pytest.mark.requirement(
    "metadata.any-json",
    "model.same-in-every-binding",
    "model.part-one-content",
    "model.part-data-any-json",
    "model.part-media-type",
    "extension.data-kept",
)
def test_parts_and_metadata_of_every_kind_come_back_as_they_were_sent(transport: str) -> None:
    async def test() -> None:
        metadata: dict[str, Any] = {"https://x.test/e": {"null": None, "int": 10**30, "list": [[]]}}
        async with peer_of(obeys, transport) as peer:
            reply = await peer.ask(PARTS, metadata=metadata)
            assert reply.task is not None
            assert reply.parts == PARTS
            (echo,) = reply.task.artifacts
            assert (echo.name, echo.metadata, echo.extensions) == ("Echo", metadata, ("u:x",))

    run(test())


@every
@pytest.mark.requirement("model.part-raw-base64", over=("jsonrpc", "rest"))
def test_file_of_ten_megabytes_goes_there_and_back(transport: str) -> None:
    async def test() -> None:
        content = bytes(range(256)) * 40_000
        async with peer_of(obeys, transport) as peer:
            reply = await peer.ask([Part(text="echo"), Part(raw=content)])
            assert reply.files[0].raw == content

    run(test())


@every
@pytest.mark.requirement("turns.client-sends-references", "extension.client-opts-in")
def test_agent_sees_references_output_modes_and_extensions(transport: str) -> None:
    async def test() -> None:
        async with peer_of(obeys, transport, extensions=["u:a"]) as peer:
            first = await peer.ask("Ada")
            seen = await peer.ask(
                "seen",
                reference_task_ids=[first.task_id or ""],
                accepted_output_modes=["text/plain"],
                extensions=["u:b"],
            )
            assert seen.data["references"] == [first.task_id]
            assert seen.data["accepts"] == ["text/plain"]
            assert seen.data["extensions"] == ["u:a", "u:b"]

    run(test())


@every
@pytest.mark.requirement("context.client-invents-none", "task.client-names-existing")
def test_first_message_names_no_context_and_no_task(transport: str) -> None:
    @agent(name="Looks", description="Says what the message named.")
    async def looks(turn: Turn) -> Message:
        return turn.reply(f"{turn.message.context_id} {turn.message.task_id}")

    async def test() -> None:
        async with peer_of(looks, transport) as peer:
            assert await peer.ask("go") == "None None"
            assert await peer.ask("go", context_id="mine") == "mine None"

    run(test())


@every
def test_caller_and_agent_share_nothing_that_one_of_them_could_change(transport: str) -> None:
    kept: list[Any] = []

    @agent(name="Keeps", description="Keeps what it was given.")
    async def keeps(turn: Turn) -> dict[str, Any]:
        kept.append(turn.data)
        answer = {"n": [1]}
        kept.append(answer)
        return answer

    async def test() -> None:
        given = {"a": [1]}
        async with peer_of(keeps, transport) as peer:
            reply = await peer.ask([Part(text="x"), given])
            given["a"].append(2)
            reply.data["n"].append(2)
        assert kept == [{"a": [1]}, {"n": [1]}]

    keeps.accepted_types = frozenset(("*/*",))
    run(test())


# --- streaming --------------------------------------------------------------------------------------------------------


@every
@pytest.mark.requirement("rest.stream-order", "events.never-reordered")
def test_stream_gives_the_task_then_every_chunk_in_order_then_the_end(transport: str) -> None:
    async def test() -> None:
        async with peer_of(obeys, transport) as peer:
            events = [event async for event in peer.stream("count 500")]
        first, *updates, last = events
        assert isinstance(first, Task)
        chunks = [event for event in updates if isinstance(event, TaskArtifactUpdateEvent)]
        assert [chunk.artifact.text for chunk in chunks] == [f"<{n}>" for n in range(500)]
        assert isinstance(last, TaskStatusUpdateEvent)
        assert last.status.state is TaskState.COMPLETED

    run(test())


@every
def test_stream_of_a_direct_message_is_that_message(transport: str) -> None:
    async def test() -> None:
        async with peer_of(obeys, transport) as peer:
            (event,) = [event async for event in peer.stream("reply")]
        assert isinstance(event, Message)

    run(test())


@every
def test_stream_left_in_the_middle_can_be_taken_up_by_subscription(transport: str) -> None:
    go_on = asyncio.Event()

    @agent(name="Two", description="Says two things.")
    async def two(turn: Turn) -> AsyncGenerator[str, None]:
        yield "one "
        await go_on.wait()
        yield "two"

    async def test() -> None:
        async with peer_of(two, transport) as peer:
            task_id = ""
            async for event in peer.stream("go"):
                if isinstance(event, Task):
                    task_id = event.id
                if isinstance(event, TaskArtifactUpdateEvent):
                    break
            events = peer.subscribe(task_id)
            first = await anext(events)
            assert isinstance(first, Task)
            assert first.text == "one "
            go_on.set()
            rest = [event async for event in events]
            assert "".join(e.artifact.text for e in rest if isinstance(e, TaskArtifactUpdateEvent)) == "two"
            with pytest.raises(UnsupportedOperation):
                await anext(peer.subscribe(task_id))
            again = [event async for event in peer.subscribe(task_id, last_event_id=3)]
            assert again == rest

    run(test())


@every
@pytest.mark.requirement("in-task-auth.client-keeps-watching")
def test_subscription_to_a_task_that_waits_for_authorization_sees_it_go_on(transport: str) -> None:
    async def test() -> None:
        async with peer_of(obeys, transport) as peer:
            waits = await peer.ask("authorize")
            events = peer.subscribe(waits.task_id or "")
            first = await anext(events)
            assert isinstance(first, Task)
            assert first.state is TaskState.AUTH_REQUIRED
            await peer.send("yes", task_id=waits.task_id)
            states = [e.status.state async for e in events if isinstance(e, TaskStatusUpdateEvent)]
            assert states == [TaskState.WORKING, TaskState.COMPLETED]

    run(test())


@pytest.mark.parametrize("transport", ["jsonrpc", "rest"])
@pytest.mark.parametrize("after_bytes", [1500, 2500, 7000])
@pytest.mark.requirement("content.client-survives-lost-messages", "model.artifact-append", over=("jsonrpc", "rest"))
def test_stream_over_connections_that_break_all_the_time_gives_every_chunk_once(
    transport: str, after_bytes: int
) -> None:
    async def test() -> None:
        async with served(app(obeys)) as url:
            async with connect(url) as plain:
                card = plain.card
            async with cutting_proxy(url, after_bytes=after_bytes) as broken:
                urls = [
                    type(i)(i.url.replace(url, broken), i.protocol_binding, i.protocol_version)
                    for i in card.supported_interfaces
                    if i.protocol_binding == {"jsonrpc": "JSONRPC", "rest": "HTTP+JSON"}[transport]
                ]
                card = msgspec.structs.replace(card, supported_interfaces=tuple(urls))
                async with connect(card, recovery=PATIENT) as peer:
                    events = [event async for event in peer.stream("count 200")]
        text = "".join(e.artifact.text for e in events if isinstance(e, TaskArtifactUpdateEvent))
        assert text == "".join(f"<{n}>" for n in range(200))
        assert [type(event) for event in events].count(Task) == 1
        assert isinstance(events[-1], TaskStatusUpdateEvent)

    run(test())


# --- tasks ------------------------------------------------------------------------------------------------------------


@every
@pytest.mark.requirement("list.client-stops-at-empty-token")
def test_tasks_can_be_read_listed_and_filtered(transport: str) -> None:
    async def test() -> None:
        async with peer_of(obeys, transport) as peer:
            begun = datetime.now(UTC)
            replies = [await peer.ask(f"n{n}") for n in range(5)]
            waits = await peer.ask("ask")
            ids = [reply.task_id for reply in (*replies, waits)]
            assert [t.id async for t in peer.list_all(page_size=2)] == ids[::-1]
            page = await peer.list(page_size=2)
            assert (len(page.tasks), page.total_size, page.page_size) == (2, 6, 2)
            assert [t.id async for t in peer.list_all(status=TaskState.INPUT_REQUIRED)] == [waits.task_id]
            assert [t.id async for t in peer.list_all(context_id=waits.context_id)] == [waits.task_id]
            assert len([t async for t in peer.list_all(status_timestamp_after=begun)]) == 6
            assert [t async for t in peer.list_all(status_timestamp_after="2099-01-01T00:00:00Z")] == []
            with_artifacts = [t async for t in peer.list_all(include_artifacts=True, history_length=0)]
            assert {t.text for t in with_artifacts[1:]} == {f"Hello, n{n}!" for n in range(5)}
            assert with_artifacts[0].history == ()
            with pytest.raises(InvalidParams):
                await peer.list(page_size=0)
            with pytest.raises(TaskNotFound):
                await peer.get("no such task")

    run(test())


@every
def test_task_can_be_cancelled_once(transport: str) -> None:
    async def test() -> None:
        async with peer_of(obeys, transport) as peer:
            begun = await peer.send("hang", return_immediately=True)
            assert isinstance(begun, Task)
            asked = asyncio.ensure_future(peer.wait(begun.id))
            await peer.get(begun.id)
            assert (await peer.cancel(begun.id)).state is TaskState.CANCELED
            assert (await asked).state is TaskState.CANCELED
            with pytest.raises(TaskNotCancelable):
                await peer.cancel(begun.id)
            with pytest.raises(TaskNotFound):
                await peer.cancel("no such task")

    run(test())


@every
@pytest.mark.parametrize("task_id", ["../../x", "a/b", "a b", "ü", "%2F", "x:cancel", "?a=b", "a\nb"])
def test_task_id_of_any_form_is_not_found_and_nothing_else(transport: str, task_id: str) -> None:
    async def test() -> None:
        async with peer_of(obeys, transport) as peer:
            with pytest.raises((TaskNotFound, InvalidParams)):
                await peer.get(task_id)

    run(test())


@every
def test_waiting_ends_when_the_agent_asks(transport: str) -> None:
    async def test() -> None:
        async with peer_of(obeys, transport) as peer:
            begun = await peer.send("ask", return_immediately=True)
            assert isinstance(begun, Task)
            assert (await peer.wait(begun.id)).state is TaskState.INPUT_REQUIRED
            hanging = await peer.send("hang", return_immediately=True)
            assert isinstance(hanging, Task)
            with pytest.raises(PeerTimeout):
                await peer.wait(hanging.id, timeout_s=0.05)

    run(test())


@every
def test_send_that_takes_too_long_is_a_time_out(transport: str) -> None:
    async def test() -> None:
        async with peer_of(obeys, transport, timeouts=Timeouts(answer_s=0.05)) as peer:
            with pytest.raises(PeerTimeout):
                await peer.send("hang")

    run(test())


# --- extensions, versions, references ---------------------------------------------------------------------------------


@every
@pytest.mark.requirement("extension.client-heeds-required")
def test_extension_that_the_card_requires_has_to_be_named_before_anything_is_sent(transport: str) -> None:
    calls: list[str] = []

    @agent(name="Strict", description="Wants it.", extensions=(AgentExtension("u:needed", required=True),))
    async def strict(turn: Turn) -> str:
        calls.append(turn.text)
        return "ok"

    async def test() -> None:
        async with peer_of(strict, transport) as peer:
            for call in (peer.send("a"), peer.ask("b"), peer.get("t"), peer.list(), peer.cancel("t")):
                with pytest.raises(ExtensionSupportRequired, match="u:needed"):
                    await call
            with pytest.raises(ExtensionSupportRequired):
                peer.stream("c")
            assert calls == []
            assert await peer.ask("d", extensions=["u:needed"]) == "ok"
        async with peer_of(strict, transport, extensions=["u:needed"]) as peer:
            assert await peer.ask("e") == "ok"

    run(test())


@every
@pytest.mark.requirement("capability.client-checks-card")
def test_agent_that_does_not_stream_is_asked_without_streaming(transport: str) -> None:
    @agent(name="Plain", description="Does not stream.", streaming=False)
    async def plain(turn: Turn) -> str:
        return "ok"

    async def test() -> None:
        async with peer_of(plain, transport) as peer:
            assert await peer.ask("go") == "ok"
            with pytest.raises(UnsupportedOperation, match="does not stream"):
                await anext(peer.stream("go"))

    run(test())


@pytest.mark.parametrize("transport", ["jsonrpc", "rest"])
@pytest.mark.requirement("version.client-negotiates", "version.client-pins")
def test_version_is_negotiated_or_set_and_never_another_one(transport: str) -> None:
    async def test() -> None:
        async with peer_of(obeys, transport, version="1.0") as peer:
            assert peer.interface.protocol_version == "1.0"
            assert await peer.ask("Ada") == "Hello, Ada!"
        async with peer_of(obeys, transport, version="0.3") as peer:
            assert peer.interface.protocol_version.startswith("0.3")
            assert await peer.ask("Ada") == "Hello, Ada!"
        with pytest.raises(VersionNotSupported):
            async with peer_of(obeys, transport, version="2.0"):
                pass

    run(test())


def test_app_and_service_of_this_process_are_called_without_a_network() -> None:
    async def test() -> None:
        one = app(obeys)
        async with connect(one) as peer:
            assert (peer.transport, peer.card.name) == ("direct", "Tested")
            reply = await peer.ask("Ada")
        async with connect(one.services[""]) as peer:
            assert (await peer.get(reply.task_id or "")).text == "Hello, Ada!"
            assert (await peer.refresh_card()).name == "Tested"
        await one.close()

        several = app({"a": obeys, "b": obeys})
        with pytest.raises(ValueError, match="'/a', '/b'"):
            await connect(several)
        async with connect(several.services["/b"]) as peer:
            assert await peer.ask("Ada") == "Hello, Ada!"
        await several.close()

    run(test())


def test_tenant_of_the_callers_keeps_its_tasks_apart() -> None:
    async def test() -> None:
        async with served(app(obeys)) as url:
            for ref, transport in ((url, "JSONRPC"), (url, "HTTP+JSON")):
                async with (
                    connect(ref, transport=transport, tenant="a") as mine,
                    connect(ref, transport=transport, tenant="b") as other,
                ):
                    reply = await mine.ask("Ada")
                    assert (await mine.get(reply.task_id or "")).id == reply.task_id
                    with pytest.raises(TaskNotFound):
                        await other.get(reply.task_id or "")

    run(test())


def test_one_of_several_agents_of_a_host_is_found_by_its_path() -> None:
    @agent(name="Other", description="Another one.")
    async def other(turn: Turn) -> str:
        return "other"

    async def test() -> None:
        async with served(app({"one": obeys, "other": other})) as url:
            async with connect(f"{url}/other") as peer:
                assert (peer.card.name, await peer.ask("x")) == ("Other", "other")
            async with connect(f"{url}/one/") as peer:
                assert await peer.ask("Ada") == "Hello, Ada!"

    run(test())


def test_many_calls_and_streams_at_once_go_through_one_peer() -> None:
    async def test() -> None:
        async with peer_of(obeys, "jsonrpc") as peer:

            async def stream(number: int) -> int:
                return len([event async for event in peer.stream(f"count {number}")])

            counts = await asyncio.gather(*(stream(n % 7) for n in range(100)))
            assert counts == [3 + n % 7 for n in range(100)]
            texts = await asyncio.gather(*(peer.ask(f"n{n}") for n in range(100)))
            assert texts == [f"Hello, n{n}!" for n in range(100)]

    run(test())


def test_importing_the_package_does_not_import_the_http_client() -> None:
    code = "import sys, tieline; assert not {'aiohttp', 'yarl', 'ssl'} & set(sys.modules), 'imported'"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=Path(__file__).parent)
