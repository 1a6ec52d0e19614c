"""Streams that break: taken up again without a loss or a repetition, or else the task in doubt is named."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest

from tests.client.running import QUICK, run
from tests.client.scripted import Answer, Fault, Http, Raw, Script, Scripted, Step, Stream, any_request, scripted
from tests.client.tasks import CONTEXT, TASK, appended, artifact, artifact_update, message, status, task
from tieline import Message, Task, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent, Timeouts, connect
from tieline.client import following as following_module
from tieline.client.following import Following
from tieline.client.seen import Seen
from tieline.errors import (
    AuthenticationRequired,
    InternalError,
    InvalidPeerResponse,
    Overloaded,
    PeerTimeout,
    TaskInDoubt,
    TaskNotFound,
    Unreachable,
    UnsupportedOperation,
)
from tieline.types import StreamEvent
from tieline.wire import jsonrpc

WORKING, COMPLETED = TaskState.WORKING, TaskState.COMPLETED
ENDED = Fault(UnsupportedOperation("the task has ended"))

both = pytest.mark.parametrize("transport", ["jsonrpc", "rest"])
BINDING = {"jsonrpc": "JSONRPC", "rest": "HTTP+JSON"}


async def streamed(agent: Scripted, *, task_id: str | None = None, idle_s: float = 5.0) -> list[StreamEvent]:
    async with connect(agent.card, recovery=QUICK, timeouts=Timeouts(idle_s=idle_s)) as peer:
        return [event async for event in peer.stream("go", task_id=task_id)]


async def subscribed(agent: Scripted, last_event_id: int | None = None) -> list[StreamEvent]:
    async with connect(agent.card, recovery=QUICK) as peer:
        return [event async for event in peer.subscribe(TASK, last_event_id=last_event_id)]


async def all_into(events: list[StreamEvent], stream: AsyncIterator[StreamEvent]) -> None:
    """Read a stream to its end, or to its failure."""
    async for event in stream:
        events.append(event)  # noqa: PERF401 - kept when it fails


def in_frame(transport: str, event: bytes) -> bytes:
    """An event of any kind as it stands in the first call's stream."""
    data = jsonrpc.encode_result(b"1", event) if transport == "jsonrpc" else event
    return b"data: " + data + b"\n\n"


def text_of(events: Sequence[StreamEvent]) -> str:
    return "".join(e.artifact.text for e in events if isinstance(e, TaskArtifactUpdateEvent))


# --- the way back -----------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("end", ["clean", "cut", "reset"])
def test_stream_that_ends_too_early_goes_on_behind_the_last_number(transport: str, end: str) -> None:
    async def test() -> None:
        script: Script = {
            "SendStreamingMessage": [
                Stream(task(), status(WORKING), artifact_update("a", "one "), end=end, first=1)  # type: ignore[arg-type]
            ],
            "SubscribeToTask": [Stream(appended("a", "two"), status(COMPLETED), first=4)],
        }
        async with scripted(BINDING[transport], script) as agent:
            events = await streamed(agent)
        assert events == [
            task(),
            status(WORKING),
            artifact_update("a", "one "),
            appended("a", "two"),
            status(COMPLETED),
        ]
        assert agent.requests[1].headers["last-event-id"] == "3"

    run(test())


@both
@pytest.mark.parametrize("end", ["clean", "cut", "reset"])
def test_stream_without_numbers_goes_on_from_a_snapshot_without_repeating(transport: str, end: str) -> None:
    async def test() -> None:
        script: Script = {
            "SendStreamingMessage": [
                Stream(task(), status(WORKING), artifact_update("a", "one "), end=end)  # type: ignore[arg-type]
            ],
            "SubscribeToTask": [
                Stream(task(WORKING, artifact("a", "one two ")), appended("a", "three"), status(COMPLETED))
            ],
        }
        async with scripted(BINDING[transport], script) as agent:
            events = await streamed(agent)
        assert text_of(events) == "one two three"
        assert [type(e) for e in events].count(Task) == 1
        assert events[-1] == status(COMPLETED)
        assert "last-event-id" not in agent.requests[1].headers

    run(test())


@both
def test_task_that_ended_during_the_break_is_read_and_its_rest_is_given(transport: str) -> None:
    async def test() -> None:
        script: Script = {
            "SendStreamingMessage": [Stream(task(), artifact_update("a", "one "), end="cut")],
            "SubscribeToTask": [ENDED],
            "GetTask": [Answer(task(COMPLETED, artifact("a", "one two")))],
        }
        async with scripted(BINDING[transport], script) as agent:
            events = await streamed(agent)
        assert events[1:] == [artifact_update("a", "one "), appended("a", "two"), status(COMPLETED)]

    run(test())


@both
def test_subscription_that_is_refused_in_the_stream_itself_is_like_one_that_is_refused(transport: str) -> None:
    async def test() -> None:
        script: Script = {
            "SendStreamingMessage": [Stream(task(), artifact_update("a", "one "), end="cut")],
            "SubscribeToTask": [Stream(UnsupportedOperation("It has ended."))],
            "GetTask": [Answer(task(COMPLETED, artifact("a", "one two")))],
        }
        async with scripted(BINDING[transport], script) as agent:
            events = await streamed(agent)
        assert text_of(events) == "one two"
        assert agent.calls == ["SendStreamingMessage", "SubscribeToTask", "GetTask"]

    run(test())


@both
def test_several_breaks_in_a_row_are_survived_as_long_as_each_brings_something(transport: str) -> None:
    async def test() -> None:
        told = [f"<{n}>" for n in range(12)]
        subscriptions = [
            Stream(task(WORKING, artifact("a", "".join(told[: n + 1]))), end="cut") for n in range(1, len(told))
        ]
        script: Script = {
            "SendStreamingMessage": [Stream(task(), artifact_update("a", told[0]), end="cut")],
            "SubscribeToTask": [*subscriptions, ENDED],
            "GetTask": [Answer(task(COMPLETED, artifact("a", "".join(told))))],
        }
        async with scripted(BINDING[transport], script) as agent:
            events = await streamed(agent)
        assert text_of(events) == "".join(told)
        assert len(events) == 1 + len(told) + 1 + 1  # the task, its chunks, working, completed

    run(test())


@both
def test_agent_that_does_not_answer_for_a_while_is_tried_again(transport: str) -> None:
    async def test() -> None:
        script: Script = {
            "SendStreamingMessage": [Stream(task(), artifact_update("a", "one"), end="reset", first=1)],
            "SubscribeToTask": [
                Http(502, b"bad gateway"),
                Raw(b""),
                Fault(Overloaded("later", retry_after_s=1)),
                Stream(status(COMPLETED), first=3),
            ],
            "GetTask": [Http(502, b"bad gateway")],
        }
        async with scripted(BINDING[transport], script) as agent:
            assert (await streamed(agent))[-1] == status(COMPLETED)

    run(test())


@both
def test_server_that_ignores_last_event_id_and_sends_a_snapshot_repeats_nothing(transport: str) -> None:
    async def test() -> None:
        script: Script = {
            "SendStreamingMessage": [Stream(task(), artifact_update("a", "one "), end="cut", first=7)],
            "SubscribeToTask": [Stream(task(COMPLETED, artifact("a", "one two")))],
        }
        async with scripted(BINDING[transport], script) as agent:
            assert text_of(await streamed(agent)) == "one two"

    run(test())


@both
def test_event_without_a_number_is_not_told_twice_by_going_on_behind_the_number_before_it(transport: str) -> None:
    async def test() -> None:
        binding = BINDING[transport]
        unnumbered = Stream(appended("a", "two"))
        first = Stream(task(), artifact_update("a", "one "), first=1, end="cut", then=unnumbered)
        script: Script = {
            "SendStreamingMessage": [first],
            "SubscribeToTask": [Stream(task(COMPLETED, artifact("a", "one two")))],
        }
        async with scripted(binding, script) as agent:
            assert text_of(await streamed(agent)) == "one two"
        assert "last-event-id" not in agent.requests[1].headers

    run(test())


@both
def test_server_that_goes_on_without_snapshot_or_numbers_has_its_task_read_at_the_end(transport: str) -> None:
    async def test() -> None:
        script: Script = {
            "SendStreamingMessage": [Stream(task(), artifact_update("a", "one "), end="cut")],
            "SubscribeToTask": [Stream(appended("a", "three"), status(COMPLETED))],
            "GetTask": [Answer(task(COMPLETED, artifact("a", "one two three")))],
        }
        async with scripted(BINDING[transport], script) as agent:
            events = await streamed(agent)
        assert events[-2:] == [artifact_update("a", "one two three"), status(COMPLETED)]  # begun anew, and whole
        assert events.count(status(COMPLETED)) == 1

    run(test())


@both
def test_task_that_cannot_be_read_at_the_end_of_such_a_stream_does_not_spoil_the_end(transport: str) -> None:
    async def test() -> None:
        script: Script = {
            "SendStreamingMessage": [Stream(task(), artifact_update("a", "one "), end="cut")],
            "SubscribeToTask": [Stream(appended("a", "three"), status(COMPLETED))],
            "GetTask": [Http(500)],
        }
        async with scripted(BINDING[transport], script) as agent:
            assert (await streamed(agent))[-2:] == [appended("a", "three"), status(COMPLETED)]

    run(test())


@both
def test_id_that_would_not_fit_a_header_is_not_sent_back(transport: str) -> None:
    async def test() -> None:
        long_id = b"id: " + b"9" * 5000 + b"\n"
        script: Script = {
            "SendStreamingMessage": [Stream(task(), long_id, status(WORKING), end="cut")],
            "SubscribeToTask": [Stream(task(COMPLETED))],
        }
        async with scripted(BINDING[transport], script) as agent:
            assert await streamed(agent) == [task(), status(WORKING), status(COMPLETED)]
        assert "last-event-id" not in agent.requests[1].headers

    run(test())


@both
def test_silent_stream_is_taken_up_again_without_counting_as_a_failure(transport: str) -> None:
    async def test() -> None:
        silent = [Stream(task(WORKING), end="hang") for _ in range(QUICK.attempts + 2)]
        script: Script = {
            "SendStreamingMessage": [Stream(task(), status(WORKING), end="hang")],
            "SubscribeToTask": [*silent, Stream(task(COMPLETED))],
        }
        async with scripted(BINDING[transport], script) as agent:
            assert await streamed(agent, idle_s=0.05) == [task(), status(WORKING), status(COMPLETED)]

    run(test())


@both
@pytest.mark.requirement("capability.client-checks-card")
def test_agent_without_streaming_in_its_card_is_not_streamed_from(transport: str) -> None:
    async def test() -> None:
        async with scripted(BINDING[transport], {}, streaming=False) as agent:
            with pytest.raises(UnsupportedOperation, match="does not stream"):
                await streamed(agent)
            with pytest.raises(UnsupportedOperation, match="does not stream"):
                await subscribed(agent)

    run(test())


# --- where a stream may end -------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("state", [s for s in TaskState if s.terminal])
def test_stream_cut_behind_a_terminal_state_has_ended(transport: str, state: TaskState) -> None:
    async def test() -> None:
        script: Script = {"SendStreamingMessage": [Stream(task(), status(state), end="reset")]}
        async with scripted(BINDING[transport], script) as agent:
            assert await streamed(agent) == [task(), status(state)]

    run(test())


@both
@pytest.mark.parametrize("state", [TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED])
def test_stream_closed_while_the_agent_waits_for_its_caller_has_ended(transport: str, state: TaskState) -> None:
    async def test() -> None:
        script: Script = {"SendStreamingMessage": [Stream(task(), status(state, "Well?"))]}
        async with scripted(BINDING[transport], script) as agent:
            assert await streamed(agent) == [task(), status(state, "Well?")]

    run(test())


@both
@pytest.mark.requirement("in-task-auth.client-keeps-watching")
def test_stream_broken_while_authorization_is_awaited_is_taken_up_again(transport: str) -> None:
    async def test() -> None:
        waits = status(TaskState.AUTH_REQUIRED, "Allow it?")
        script: Script = {
            "SendStreamingMessage": [Stream(task(), waits, end="cut", first=1)],
            "SubscribeToTask": [Stream(status(WORKING), status(COMPLETED), first=3)],
        }
        async with scripted(BINDING[transport], script) as agent:
            assert await streamed(agent) == [task(), waits, status(WORKING), status(COMPLETED)]

    run(test())


@both
def test_message_stream_taken_up_again_ends_when_the_agent_asks_though_the_subscription_stays_open(
    transport: str,
) -> None:
    async def test() -> None:
        script: Script = {
            "SendStreamingMessage": [Stream(task(), status(WORKING), end="cut", first=1)],
            "SubscribeToTask": [Stream(status(TaskState.INPUT_REQUIRED, "Well?"), end="hang", first=3)],
        }
        async with scripted(BINDING[transport], script) as agent:
            assert (await streamed(agent))[-1] == status(TaskState.INPUT_REQUIRED, "Well?")

    run(test())


@both
@pytest.mark.parametrize(
    "told",
    [
        (task(), status(COMPLETED)),
        (task(), status(TaskState.INPUT_REQUIRED, "Well?")),
        (task(TaskState.INPUT_REQUIRED),),
    ],
)
def test_server_that_never_closes_a_finished_stream_holds_nobody_up(
    transport: str, told: tuple[StreamEvent, ...]
) -> None:
    async def test() -> None:
        script: Script = {"SendStreamingMessage": [Stream(*told, b":\n\n", end="hang")]}
        async with scripted(BINDING[transport], script) as agent:
            assert await streamed(agent, idle_s=60) == list(told)

    run(test())


@both
def test_question_in_a_follow_up_ends_its_stream_that_the_server_leaves_open(transport: str) -> None:
    async def test() -> None:
        told: list[StreamEvent] = [
            task(TaskState.INPUT_REQUIRED),
            status(WORKING),
            status(TaskState.INPUT_REQUIRED, "And?"),
        ]
        script: Script = {"SendStreamingMessage": [Stream(*told, end="hang")]}
        async with scripted(BINDING[transport], script) as agent:
            assert await streamed(agent, task_id=TASK, idle_s=60) == told

    run(test())


class Told:
    """A source of events that the test lets out one by one."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[StreamEvent] = asyncio.Queue()

    async def read(self) -> Sequence[tuple[str | None, StreamEvent]]:
        return [(None, await self.events.get())]

    async def close(self) -> None:
        pass


def test_question_that_was_just_answered_is_not_taken_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(*_: object) -> Any:
        raise TaskNotFound(TASK)

    async def test() -> None:
        source = Told()

        async def opening() -> Told:
            return source

        following = Following(
            Seen(),
            subscribe=refused,
            read_task=refused,
            recovery=QUICK,
            closed=lambda: False,
            until_input=True,
            message=msgspec.structs.replace(message("blue"), task_id=TASK),
            last_event_id=None,
        )
        events = following.events(opening)
        source.events.put_nowait(task(TaskState.INPUT_REQUIRED))
        assert await anext(events) == task(TaskState.INPUT_REQUIRED)
        more = asyncio.ensure_future(anext(events))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not more.done()
        source.events.put_nowait(status(COMPLETED))
        assert await more == status(COMPLETED)
        assert [event async for event in events] == []

    monkeypatch.setattr(following_module, "_LINGER_S", 0.0)
    run(test())


@both
def test_direct_message_is_one_event_whatever_comes_behind_it(transport: str) -> None:
    async def test() -> None:
        script: Script = {"SendStreamingMessage": [Stream(message("hi"), end="reset")]}
        async with scripted(BINDING[transport], script) as agent:
            assert await streamed(agent) == [message("hi")]

    run(test())


@both
def test_subscription_that_breaks_while_the_agent_waits_goes_on(transport: str) -> None:
    async def test() -> None:
        waits = task(TaskState.INPUT_REQUIRED)
        script: Script = {
            "SubscribeToTask": [Stream(waits, end="cut", first=3), Stream(status(WORKING), status(COMPLETED), first=4)]
        }
        async with scripted(BINDING[transport], script) as agent:
            assert await subscribed(agent) == [waits, status(WORKING), status(COMPLETED)]

    run(test())


@both
def test_subscription_cut_before_its_first_event_still_shows_the_task_first(transport: str) -> None:
    async def test() -> None:
        script: Script = {"SubscribeToTask": [Stream(end="cut"), Stream(task(WORKING), status(COMPLETED))]}
        async with scripted(BINDING[transport], script) as agent:
            assert await subscribed(agent) == [task(WORKING), status(COMPLETED)]

    run(test())


@both
def test_subscription_behind_a_number_shows_no_snapshot(transport: str) -> None:
    async def test() -> None:
        script: Script = {"SubscribeToTask": [Stream(appended("a", "two"), status(COMPLETED), first=4)]}
        async with scripted(BINDING[transport], script) as agent:
            assert await subscribed(agent, 3) == [appended("a", "two"), status(COMPLETED)]
        assert agent.requests[0].headers["last-event-id"] == "3"

    run(test())


# --- doubt ------------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("end", ["clean", "cut", "reset"])
def test_stream_cut_before_the_agent_told_of_a_task_is_in_doubt_and_not_sent_again(transport: str, end: str) -> None:
    async def test() -> None:
        script: Script = {"SendStreamingMessage": [Stream(end=end)]}  # type: ignore[arg-type]
        async with scripted(BINDING[transport], script) as agent:
            with pytest.raises(TaskInDoubt) as caught:
                await streamed(agent)
        assert caught.value.task_id is None
        assert agent.calls == ["SendStreamingMessage"]

    run(test())


@both
@pytest.mark.parametrize("end", ["cut", "reset"])
def test_message_whose_connection_breaks_before_any_answer_is_in_doubt_and_not_sent_again(
    transport: str, end: str
) -> None:
    async def test() -> None:
        broken = Raw(b"", end=end)  # type: ignore[arg-type]
        script: Script = {"SendMessage": [broken], "SendStreamingMessage": [broken]}
        async with scripted(BINDING[transport], script) as agent, connect(agent.card, recovery=QUICK) as peer:
            with pytest.raises(TaskInDoubt) as sent:
                await peer.send("go")
            with pytest.raises(TaskInDoubt) as stream:
                await anext(peer.stream("go", task_id=TASK))
        assert sent.value.task_id is None
        assert stream.value.task_id == TASK
        assert agent.calls == ["SendMessage", "SendStreamingMessage"]

    run(test())


@both
def test_answer_to_a_known_task_that_is_cut_names_that_task(transport: str) -> None:
    async def test() -> None:
        async with scripted(BINDING[transport], {"SendStreamingMessage": [Stream(end="cut")]}) as agent:
            with pytest.raises(TaskInDoubt) as caught:
                await streamed(agent, task_id=TASK)
        assert caught.value.task_id == TASK

    run(test())


@both
def test_task_that_cannot_be_reached_again_is_named_after_a_bounded_number_of_attempts(transport: str) -> None:
    async def test() -> None:
        script: Script = {
            "SendStreamingMessage": [Stream(task(), status(WORKING), end="cut")],
            "SubscribeToTask": [Raw(b"") for _ in range(QUICK.attempts + 1)],
        }
        async with scripted(BINDING[transport], script) as agent:
            with pytest.raises(TaskInDoubt, match=r"'task-1'.*TASK_STATE_WORKING") as caught:
                await streamed(agent)
        assert (caught.value.task_id, caught.value.context_id) == (TASK, CONTEXT)
        assert agent.calls.count("SubscribeToTask") == QUICK.attempts + 1

    run(test())


@both
@pytest.mark.parametrize("told", [(), (task(WORKING),), (status(WORKING),), (task(WORKING), status(WORKING))])
def test_server_that_closes_every_subscription_without_news_is_not_asked_for_ever(
    transport: str, told: tuple[StreamEvent, ...]
) -> None:
    async def test() -> None:
        script: Script = {
            "SendStreamingMessage": [Stream(task(), status(WORKING))],
            "SubscribeToTask": [Stream(*told) for _ in range(QUICK.attempts + 1)],
            "GetTask": [Answer(task(WORKING)) for _ in range(QUICK.attempts + 1)],
        }
        events: list[StreamEvent] = []
        async with scripted(BINDING[transport], script) as agent, connect(agent.card, recovery=QUICK) as peer:
            stream = peer.stream("go")
            with pytest.raises(TaskInDoubt, match="ended the stream too early"):
                await all_into(events, stream)
        assert events == [task(), status(WORKING)]

    run(test())


@both
@pytest.mark.parametrize("told", [status(WORKING), artifact_update("a", "one "), appended("a", "two")])
def test_task_is_read_when_the_stream_that_was_to_go_on_with_it_ends_by_itself(
    transport: str, told: StreamEvent
) -> None:
    async def test() -> None:
        script: Script = {
            "SendStreamingMessage": [Stream(task(), status(WORKING), artifact_update("a", "one "))],
            "SubscribeToTask": [Stream(told)],
            "GetTask": [Answer(task(COMPLETED, artifact("a", "one two")))],
        }
        async with scripted(BINDING[transport], script) as agent:
            events = await streamed(agent)
        assert agent.calls == ["SendStreamingMessage", "SubscribeToTask", "GetTask"]
        assert events == [
            task(),
            status(WORKING),
            artifact_update("a", "one "),
            appended("a", "two"),
            status(COMPLETED),
        ]

    run(test())


@both
def test_task_is_read_when_it_cannot_be_told_whether_pieces_of_broken_streams_are_new(transport: str) -> None:
    async def test() -> None:
        script: Script = {
            "SendStreamingMessage": [Stream(task(), status(WORKING), artifact_update("a", "one "), end="cut")],
            "SubscribeToTask": [Stream(appended("a", "two"), end="cut")],
            "GetTask": [Answer(task(COMPLETED, artifact("a", "one two")))],
        }
        async with scripted(BINDING[transport], script) as agent:
            assert text_of(await streamed(agent)) == "one two"
        assert agent.calls == ["SendStreamingMessage", "SubscribeToTask", "GetTask"]

    run(test())


@both
@pytest.mark.parametrize(
    "answer",
    [
        Http(404),
        Http(405, b"Method Not Allowed"),
        Http(500, b"oops"),
        Fault(InternalError("oops")),
        Stream(end="cut"),
        Stream(b":\n\n", end="reset"),
        Stream(b"data: nothing\n\n"),
    ],
)
def test_task_that_ended_is_read_though_the_subscription_comes_to_nothing_in_any_way(
    transport: str, answer: Step
) -> None:
    async def test() -> None:
        script: Script = {
            "SendStreamingMessage": [Stream(task(), artifact_update("a", "one "), end="cut", first=1)],
            "SubscribeToTask": [answer],
            "GetTask": [Answer(task(COMPLETED, artifact("a", "one two")))],
        }
        async with scripted(BINDING[transport], script) as agent:
            events = await streamed(agent)
        assert events[1:] == [artifact_update("a", "one "), appended("a", "two"), status(COMPLETED)]
        assert agent.calls == ["SendStreamingMessage", "SubscribeToTask", "GetTask"]

    run(test())


@both
def test_task_that_cannot_be_read_is_subscribed_to_again_when_a_subscription_ends_by_itself(transport: str) -> None:
    async def test() -> None:
        script: Script = {
            "SendStreamingMessage": [Stream(task(), status(WORKING))],
            "SubscribeToTask": [Stream(task(WORKING)), Stream(task(COMPLETED))],
            "GetTask": [Fault(UnsupportedOperation("tasks are not kept"))],
        }
        async with scripted(BINDING[transport], script) as agent:
            assert await streamed(agent) == [task(), status(WORKING), status(COMPLETED)]

    run(test())


@both
def test_subscription_that_ends_by_itself_goes_on_behind_its_last_number_while_the_task_is_at_work(
    transport: str,
) -> None:
    async def test() -> None:
        script: Script = {
            "SendStreamingMessage": [Stream(task(), status(WORKING), first=1)],
            "SubscribeToTask": [
                Stream(artifact_update("a", "one "), first=3),
                Stream(appended("a", "two"), status(COMPLETED), first=4),
            ],
            "GetTask": [Answer(task(WORKING, artifact("a", "one two")))],
        }
        async with scripted(BINDING[transport], script) as agent:
            assert text_of(await streamed(agent)) == "one two"
        assert agent.requests[-1].headers["last-event-id"] == "3"

    run(test())


# --- told again from the beginning ------------------------------------------------------------------------------------

PIECES: Sequence[StreamEvent] = (artifact_update("a", "one "), appended("a", "two "))
REST: Sequence[StreamEvent] = (appended("a", "three"), status(COMPLETED))


@both
@pytest.mark.parametrize(
    "first",
    [(), (task(),), (task(), status(WORKING)), (task(WORKING, artifact("a", "one two ")),), (status(WORKING),)],
)
def test_replay_from_the_beginning_gives_only_what_is_beyond_what_was_given(
    transport: str, first: tuple[StreamEvent, ...]
) -> None:
    async def test() -> None:
        script: Script = {
            "SendStreamingMessage": [Stream(task(), status(WORKING), *PIECES, end="cut")],
            "SubscribeToTask": [Stream(*first, *PIECES, *REST)],
            "GetTask": [Answer(task(COMPLETED, artifact("a", "one two three")))],
        }
        async with scripted(BINDING[transport], script) as agent:
            agent.patient = True
            assert await streamed(agent) == [task(), status(WORKING), *PIECES, *REST]

    run(test())


@both
@pytest.mark.parametrize("kept", ["one two ", "one two three", "one "])
def test_task_is_read_that_ends_before_its_replay_has_come_to_what_was_given(transport: str, kept: str) -> None:
    async def test() -> None:
        script: Script = {
            "SendStreamingMessage": [Stream(task(), status(WORKING), *PIECES, end="cut")],
            "SubscribeToTask": [Stream(task(), PIECES[0], status(COMPLETED))],
            "GetTask": [Answer(task(COMPLETED, artifact("a", kept)))],
        }
        async with scripted(BINDING[transport], script) as agent:
            events = await streamed(agent)
        more = {
            "one two ": [],
            "one two three": [appended("a", "three")],
            "one ": [artifact_update("a", "one ")],  # it has lost a piece, or begun the artifact anew
        }[kept]
        assert events == [task(), status(WORKING), *PIECES, *more, status(COMPLETED)]

    run(test())


# --- what is no event of A2A ------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize(
    "frame",
    [
        b"event: ping\ndata: {}\n\n",
        b"event: ping\ndata: ping\n\n",
        b'event: heartbeat\ndata: {"time": 1}\n\n',
        b"data: ping\n\n",
        b"data: [DONE]\n\n",
        b"data: null\n\n",
        b'data: ""\n\n',
        b'data: {"jsonrpc":"2.0","id":1,"result":null}\n\n',
    ],
)
def test_frame_that_is_not_meant_as_an_event_is_passed_over(transport: str, frame: bytes) -> None:
    async def test() -> None:
        told = Stream(frame, task(), frame, artifact_update("a", "one"), frame, status(COMPLETED), frame)
        async with scripted(BINDING[transport], {"SendStreamingMessage": [told]}) as agent:
            assert await streamed(agent) == [task(), artifact_update("a", "one"), status(COMPLETED)]

    if transport == "rest" and b"jsonrpc" in frame:
        return
    run(test())


@both
def test_event_under_a_name_of_the_servers_own_is_an_event(transport: str) -> None:
    async def test() -> None:
        named = Stream(b"event: status\n", task(), b"event: status\n", status(COMPLETED))
        async with scripted(BINDING[transport], {"SendStreamingMessage": [named]}) as agent:
            assert await streamed(agent) == [task(), status(COMPLETED)]

    run(test())


@both
@pytest.mark.parametrize("frame", [b"data: garbage\n\n", b"data: [1]\n\n", b"event: notice\ndata: {}\n\n"])
def test_stream_of_nothing_but_what_is_no_event_is_the_peers_fault(transport: str, frame: bytes) -> None:
    async def test() -> None:
        async with scripted(BINDING[transport], {"SendStreamingMessage": [Stream(frame)]}) as agent:
            with pytest.raises(InvalidPeerResponse):
                await streamed(agent)

    run(test())


@both
@pytest.mark.parametrize(
    ("answer", "cause"), [(Http(401), AuthenticationRequired), (Fault(TaskNotFound(TASK)), TaskNotFound)]
)
def test_task_that_may_not_be_read_any_more_is_in_doubt_at_once(
    transport: str, answer: Http | Fault, cause: type[Exception]
) -> None:
    async def test() -> None:
        script: Script = {
            "SendStreamingMessage": [Stream(task(), end="cut")],
            "SubscribeToTask": [answer],
            "GetTask": [answer],
        }
        async with scripted(BINDING[transport], script) as agent:
            with pytest.raises(TaskInDoubt) as caught:
                await streamed(agent)
        assert caught.value.task_id == TASK
        assert isinstance(caught.value.__cause__, cause)

    run(test())


@both
def test_stream_that_never_begins_is_a_time_out(transport: str) -> None:
    async def test() -> None:
        async with scripted(BINDING[transport], {"SendStreamingMessage": [Stream(end="hang")]}) as agent:
            with pytest.raises(PeerTimeout):
                await streamed(agent, idle_s=0.05)

    run(test())


@both
def test_error_in_a_stream_is_raised_behind_the_events_before_it(transport: str) -> None:
    async def test() -> None:
        failure = InternalError("The task could not be stored.")
        script: Script = {"SendStreamingMessage": [Stream(task(), artifact_update("a", "one"), failure)]}
        async with scripted(BINDING[transport], script) as agent, connect(agent.card, recovery=QUICK) as peer:
            events = peer.stream("go")
            told = [await anext(events), await anext(events)]
            with pytest.raises(InternalError, match=r"The task could not be stored\."):
                await anext(events)
        assert told == [task(), artifact_update("a", "one")]

    run(test())


@both
@pytest.mark.parametrize("frame", [b"{garbage", b"{}", b'{"task":7}'])
@pytest.mark.requirement("stream.exactly-one-payload")
def test_event_that_cannot_be_read_is_the_peers_fault(transport: str, frame: bytes) -> None:
    async def test() -> None:
        async with scripted(
            BINDING[transport], {"SendStreamingMessage": [Stream(in_frame(transport, frame), task(COMPLETED))]}
        ) as agent:
            with pytest.raises(InvalidPeerResponse):
                await streamed(agent)

    run(test())


@both
@pytest.mark.parametrize("frame", [b"{garbage", b"{}", b'{"task":7}'])
def test_task_is_read_and_followed_on_when_one_of_its_events_cannot_be_read(transport: str, frame: bytes) -> None:
    async def test() -> None:
        script: Script = {
            "SendStreamingMessage": [Stream(task(), status(WORKING), in_frame(transport, frame), first=1)],
            "GetTask": [Answer(task(WORKING, artifact("a", "one ")))],
            "SubscribeToTask": [Stream(task(WORKING, artifact("a", "one two")), status(COMPLETED), first=4)],
        }
        async with scripted(BINDING[transport], script) as agent:
            events = await streamed(agent)
        assert agent.calls == ["SendStreamingMessage", "GetTask", "SubscribeToTask"]
        assert "last-event-id" not in agent.requests[-1].headers  # its text was told by the task itself
        assert (text_of(events), events[-1]) == ("one two", status(COMPLETED))

    run(test())


@both
def test_task_whose_events_can_never_be_read_is_in_doubt(transport: str) -> None:
    async def test() -> None:
        broken = in_frame(transport, b'{"task":7}')
        attempts = QUICK.attempts + 1
        script: Script = {
            "SendStreamingMessage": [Stream(task(), broken)],
            "SubscribeToTask": [Stream(broken) for _ in range(attempts)],
            "GetTask": [Answer(task()) for _ in range(attempts + 1)],
        }
        async with scripted(BINDING[transport], script) as agent:
            agent.patient = True  # the ids of the later calls are others
            with pytest.raises(TaskInDoubt, match=TASK):
                await streamed(agent)

    run(test())


@both
def test_event_over_the_limit_is_refused(transport: str) -> None:
    async def test() -> None:
        script: Script = {"SendStreamingMessage": [Stream(task(), artifact_update("a", "x" * 5000))]}
        async with (
            scripted(BINDING[transport], script) as agent,
            connect(agent.card, recovery=QUICK, max_event_bytes=4000) as peer,
        ):
            with pytest.raises(InvalidPeerResponse, match="more than 4000 bytes"):
                [event async for event in peer.stream("go")]

    run(test())


@both
def test_closing_the_peer_ends_its_streams(transport: str) -> None:
    async def test() -> None:
        async with scripted(BINDING[transport], {"SendStreamingMessage": [Stream(task(), end="hang")]}) as agent:
            peer = await connect(agent.card, recovery=QUICK)
            events = peer.stream("go")
            assert await anext(events) == task()
            rest = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0)
            await peer.close()
            with pytest.raises(Unreachable, match="closed"):
                await rest
            with pytest.raises(Unreachable, match="closed"):
                await peer.get(TASK)

    run(test())


@both
def test_consumer_that_leaves_in_mid_stream_closes_the_connection(transport: str) -> None:
    async def test() -> None:
        script: Script = {
            "SendStreamingMessage": [Stream(task(), status(WORKING), end="hang")],
            "GetTask": [Answer(task())],
        }
        async with scripted(BINDING[transport], script) as agent, connect(agent.card) as peer:
            async for event in peer.stream("go"):
                assert event == task()
                break
            assert await peer.get(TASK) == task()
        assert agent.connections == 2

    run(test())


@both
def test_stream_read_to_its_end_leaves_its_connection_for_the_next_call(transport: str) -> None:
    async def test() -> None:
        script: Script = {"SendStreamingMessage": [Stream(task(), status(COMPLETED))], "GetTask": [Answer(task())]}
        async with scripted(BINDING[transport], script) as agent, connect(agent.card) as peer:
            [event async for event in peer.stream("go")]
            await peer.get(TASK)
        assert agent.connections == 1

    run(test())


# --- the grammar of event streams -------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("pieces", [None, 1, 7])
def test_stream_in_any_pieces_with_any_line_ends_and_comments_is_read(
    transport: str, line_end: bytes, pieces: int | None
) -> None:
    async def test() -> None:
        comment = b": keep-alive" + line_end * 2
        events: list[StreamEvent | bytes] = [
            comment,
            task(),
            comment,
            artifact_update("a", "é"),
            comment,
            status(COMPLETED),
        ]
        script: Script = {"SendStreamingMessage": [Stream(*events, first=1, line_end=line_end, pieces=pieces)]}
        async with scripted(BINDING[transport], script) as agent:
            assert await streamed(agent) == [task(), artifact_update("a", "é"), status(COMPLETED)]

    run(test())


@both
def test_event_of_many_megabytes_is_read(transport: str) -> None:
    async def test() -> None:
        large = artifact_update("a", "x" * 8_000_000)
        async with scripted(
            BINDING[transport], {"SendStreamingMessage": [Stream(task(), large, status(COMPLETED))]}
        ) as agent:
            assert await streamed(agent) == [task(), large, status(COMPLETED)]

    run(test())


@both
def test_comments_keep_a_stream_alive(transport: str) -> None:
    async def test() -> None:
        comments = [b":\n\n"] * 40
        script: Script = {"SendStreamingMessage": [Stream(task(), *comments, status(COMPLETED), pieces=3)]}
        async with scripted(BINDING[transport], script) as agent:
            assert await streamed(agent, idle_s=2.0) == [task(), status(COMPLETED)]

    run(test())


@both
def test_single_json_answer_instead_of_a_stream_is_understood(transport: str) -> None:
    async def test() -> None:
        script: Script = {
            "SendStreamingMessage": [
                Answer(message("hi")),
                Answer(task(COMPLETED, artifact("a", "x")), content_type="text/plain"),
                Answer(task(WORKING)),
            ],
            "SubscribeToTask": [ENDED],
            "GetTask": [Answer(task(COMPLETED, artifact("a", "x")))],
        }
        async with scripted(BINDING[transport], script) as agent:
            assert await streamed(agent) == [message("hi")]
            assert await streamed(agent) == [task(COMPLETED, artifact("a", "x"))]
            assert await streamed(agent) == [task(WORKING), artifact_update("a", "x"), status(COMPLETED)]

    run(test())


@both
def test_json_error_instead_of_a_stream_is_raised(transport: str) -> None:
    async def test() -> None:
        script: Script = {"SendStreamingMessage": [Fault(TaskNotFound("gone"))]}
        async with scripted(BINDING[transport], script) as agent:
            with pytest.raises(TaskNotFound, match="gone"):
                await streamed(agent)

    run(test())


# --- cut at every byte ------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("numbered", [True, False])
def test_stream_cut_at_any_byte_gives_every_piece_once_or_says_what_is_in_doubt(transport: str, numbered: bool) -> None:
    async def test() -> None:
        events: list[StreamEvent] = [
            task(),
            status(WORKING),
            artifact_update("a", "one "),
            appended("a", "two "),
            status(COMPLETED),
        ]
        whole = Stream(*events, first=1 if numbered else None)
        async with scripted(BINDING[transport], {"SendStreamingMessage": [whole]}) as agent:
            length = len(agent.stream_bytes(whole, any_request(transport)))
        for cut in range(0, length, 3):
            await cut_at(cut, events, numbered, BINDING[transport])

    async def cut_at(cut: int, events: list[StreamEvent], numbered: bool, binding: str) -> None:
        first = 1 if numbered else None
        script: Script = {
            "SendStreamingMessage": [Stream(*events, first=first, cut_at=cut)],
            "SubscribeToTask": [Stream(task(COMPLETED, artifact("a", "one two ")))],
        }
        async with scripted(binding, script) as agent:
            told = await told_or_doubt(agent)
        if isinstance(told, TaskInDoubt):
            assert (told.task_id, agent.calls) == (None, ["SendStreamingMessage"])
            return
        assert (cut, text_of(told), told[0], told[-1]) == (cut, "one two ", task(), status(COMPLETED))
        assert not any(isinstance(event, Task | Message) for event in told[1:])
        assert [e.status.state for e in told if isinstance(e, TaskStatusUpdateEvent)].count(COMPLETED) == 1

    run(test())


async def told_or_doubt(agent: Scripted) -> list[StreamEvent] | TaskInDoubt:
    try:
        return await streamed(agent)
    except TaskInDoubt as doubt:
        return doubt


@both
def test_event_of_a_kind_that_nobody_knows_is_passed_over(transport: str) -> None:
    async def test() -> None:
        unknown = b'{"futureEvent":{"x":1}}'
        stream = Stream(task(WORKING), in_frame(transport, unknown), status(COMPLETED))
        async with (
            scripted(BINDING[transport], {"SendStreamingMessage": [stream]}) as agent,
            connect(agent.card) as peer,
        ):
            assert [event async for event in peer.stream("go")] == [task(WORKING), status(COMPLETED)]

    run(test())


@both
def test_event_of_another_task_is_the_peers_fault_and_both_are_named(transport: str) -> None:
    async def test() -> None:
        foreign = msgspec.structs.replace(status(COMPLETED), task_id="task-2")
        stream = Stream(task(WORKING), foreign)
        async with (
            scripted(BINDING[transport], {"SendStreamingMessage": [stream]}) as agent,
            connect(agent.card) as peer,
        ):
            events = peer.stream("go")
            assert await anext(events) == task(WORKING)
            with pytest.raises(InvalidPeerResponse, match=r"'task-2'.*'task-1'"):
                await anext(events)

    run(test())
