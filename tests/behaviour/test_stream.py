"""Send Streaming Message and the delivery of events (A2A 1.0 §3.1.2, §3.2.3, §3.5.2)."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import threading
import time
from typing import Any

import pytest

from tests.behaviour.agents import ENDS, Act, Puppet, asks, begun, end, ended, hello, make_agent, says
from tests.behaviour.harness import Json, Transport, data, message, refused, state_of, text_of
from tests.behaviour.serving import (
    LIMIT_S,
    Serve,
    by_tenants,
    direct_messages,
    every_store,
    malformed,
    not_over,
    over,
    with_snapshot,
)
from tieline import Artifact, Message, Part, Role, TaskState, TaskStatus, Turn


def chunk(event: Json) -> str:
    """The text of an artifact update."""
    return text_of(event["artifactUpdate"]["artifact"])


async def streamed(agent: Transport, puppet: Puppet) -> tuple[Any, Act]:
    """An open stream of a new task, and the agent that is at work on it."""
    stream = await agent.stream("go")
    return stream, await puppet.next()


# --- opening ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("stream.opens-while-agent-runs")
async def test_stream_opens_before_the_agent_has_said_anything_and_is_read_while_it_works(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    stream, act = await streamed(agent, puppet)  # it has opened
    act.tell("a first chunk")
    assert state_of(await stream.next()) == "SUBMITTED"
    assert not act.stopped.is_set()
    act.end()
    await stream.rest()


@direct_messages
@pytest.mark.requirement("stream.message-only", "stream.exactly-one-payload")
async def test_direct_answer_makes_a_stream_of_one_message(serve: Serve) -> None:
    async def replies(turn: Turn) -> Message:
        return turn.reply(f"You said {turn.text}.")

    agent = await serve(replies)
    stream = await agent.stream("hi")
    events = await stream.rest()
    assert [list(event) for event in events] == [["message"]]
    assert text_of(events[0]["message"]) == "You said hi."
    assert (await agent.list())["totalSize"] == 0


@pytest.mark.requirement("stream.media-type-refused")
async def test_streamed_part_of_a_media_type_that_the_agent_does_not_take_is_refused(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    with refused("ContentTypeNotSupportedError"):
        await agent.stream({"raw": base64.b64encode(b"\x89PNG").decode(), "mediaType": "image/png"})
    assert puppet.runs == 0


@every_store
@pytest.mark.requirement("stream.terminal-task-refused")
@pytest.mark.parametrize("state", ENDS)
async def test_streamed_message_to_an_ended_task_is_refused_instead_of_a_stream(serve: Serve, state: str) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task = await ended(agent, puppet, state)
    with refused("UnsupportedOperationError"):
        await agent.stream("one more thing", taskId=task["id"])
    assert puppet.runs == 1


@by_tenants
@every_store
@pytest.mark.requirement("stream.unknown-task-refused")
async def test_streamed_message_to_a_task_that_is_not_there_is_refused_instead_of_a_stream(serve: Serve) -> None:
    agent = await serve(hello)
    with refused("TaskNotFoundError"):
        await agent.stream("go on", taskId="no-such-task")
    others = await agent.as_tenant("other").task()
    with refused("TaskNotFoundError"):
        await agent.stream("go on", taskId=others["id"])


@malformed
@pytest.mark.requirement("validation.before-processing")
@pytest.mark.parametrize(
    "bad",
    [
        {"parts": []},
        {"messageId": ""},
        {"role": "ROLE_UNSPECIFIED"},
        {"parts": [{}]},
        pytest.param({"role": "user"}, marks=not_over("grpc", why="protobuf knows no such role")),
        pytest.param(
            {"parts": [{"text": "a", "url": "https://files.example/b"}]},
            marks=not_over("grpc", why="a union of protobuf holds one"),
        ),
    ],
    ids=["no-parts", "no-id", "no-role", "empty-part", "role-of-0.3", "two-in-one"],
)
async def test_invalid_message_is_refused_instead_of_a_stream(serve: Serve, bad: Json) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    with refused("InvalidParamsError"):
        await agent.stream(message("hello", **bad))
    assert puppet.runs == 0


# --- what it carries --------------------------------------------------------------------------------------------------


async def rich(turn: Turn) -> Any:
    """Says everything that can be said on the way."""
    await turn.status("reading", metadata={"page": 1})
    yield "some text"
    yield {"rows": [1, 2]}
    yield Part(raw=b"\x00\x01", filename="a.bin", media_type="application/octet-stream")
    yield Artifact("given-id", (Part(url="https://files.example/a"),), "a link", "See there.", {"k": 1}, ("urn:x",))
    async with turn.artifact("b.txt") as out:
        await out.write("b")
        await out.write("c", last=True)
    await turn.complete("done")


@pytest.mark.requirement("stream.task-first", "stream.updates-after-task", "stream.exactly-one-payload")
async def test_stream_begins_with_the_task_and_goes_on_with_updates_of_it(serve: Serve) -> None:
    agent = await serve(rich)
    events = await (await agent.stream("go")).rest()
    assert all(len(event) == 1 for event in events)
    assert list(events[0]) == ["task"]
    task = events[0]["task"]
    assert state_of(task) in ("SUBMITTED", "WORKING")
    assert [text_of(m) for m in task["history"]] == ["go"]
    kinds = {kind for event in events[1:] for kind in event}
    assert kinds == {"statusUpdate", "artifactUpdate"}
    assert {data(event)["taskId"] for event in events[1:]} == {task["id"]}
    assert {data(event)["contextId"] for event in events[1:]} == {task["contextId"]}


@pytest.mark.requirement("stream.closes-at-terminal", "model.terminal-is-final")
@pytest.mark.parametrize("state", ENDS)
async def test_stream_closes_when_its_task_ends(serve: Serve, state: str) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    stream, act = await streamed(agent, puppet)
    act.tell("so far")
    await stream.until("WORKING")
    await end(agent, act.turn.task_id, act, state)
    events = await stream.rest()
    assert [state_of(event) for event in events] == [None, state]
    assert stream.closed


@pytest.mark.requirement("stream.closes-at-input-required")
async def test_stream_closes_when_the_agent_wants_input(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    stream, act = await streamed(agent, puppet)
    act.tell(asks("Which one?"))
    events = await stream.rest()
    assert state_of(events[-1]) == "INPUT_REQUIRED"
    assert text_of(events[-1]["statusUpdate"]["status"]["message"]) == "Which one?"
    assert not act.stopped.is_set()


async def test_stream_stays_open_while_an_authorization_is_waited_for(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    stream, act = await streamed(agent, puppet)
    act.tell(lambda turn: turn.authorize("Sign in, please."))
    task_id = (await stream.until("AUTH_REQUIRED"))[0]["task"]["id"]
    await agent.send("signed in", taskId=task_id, configuration={"returnImmediately": True})
    assert await act.results.get() == "signed in"
    act.tell("thanks")
    act.end()
    events = await stream.rest()
    assert [state_of(event) for event in events] == ["WORKING", None, "COMPLETED"]


@pytest.mark.requirement("in-task-auth.out-of-band")
async def test_agent_that_got_its_credential_elsewhere_goes_on_without_a_message(serve: Serve) -> None:
    granted = asyncio.Event()

    async def waits(turn: Turn) -> str:
        asked = asyncio.ensure_future(turn.authorize("Sign in at https://books.example, please."))
        elsewhere = asyncio.ensure_future(granted.wait())
        await asyncio.wait((asked, elsewhere), return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        await asyncio.wait((asked,))
        return "paid"

    agent = await serve(make_agent(waits))
    stream = await agent.stream("go")
    await stream.until("AUTH_REQUIRED")
    granted.set()
    events = await stream.rest()
    assert state_of(events[-1]) == "COMPLETED"
    assert [text_of(e["artifactUpdate"]["artifact"]) for e in events if "artifactUpdate" in e] == ["paid"]


@with_snapshot
@every_store
@pytest.mark.requirement("turns.input-required-goes-on", "stream.task-first", "stream.closes-at-terminal")
async def test_streamed_answer_begins_with_the_task_that_it_answers(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    first, act = await streamed(agent, puppet)
    act.tell("before", asks("Which one?"))
    task_id = (await first.rest())[0]["task"]["id"]
    answer = await agent.stream("the left one", taskId=task_id)
    task = (await answer.next())["task"]
    assert state_of(task) == "WORKING"
    assert text_of(task) == "before"
    assert [text_of(m) for m in task["history"]] == ["go", "Which one?", "the left one"]
    act.tell("after")
    act.end()
    events = await answer.rest()
    assert [state_of(event) for event in events] == [None, "COMPLETED"]
    assert chunk(events[0]) == "after"


@pytest.mark.requirement("stream.closes-at-input-required")
async def test_streamed_answer_closes_at_the_next_question_not_at_the_one_it_answers(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    first, act = await streamed(agent, puppet)
    act.tell(asks("First?"), asks("Second?"))
    task_id = (await first.rest())[0]["task"]["id"]
    events = await (await agent.stream("one", taskId=task_id)).rest()
    assert [state_of(event) for event in events] == ["WORKING", "INPUT_REQUIRED"]
    assert text_of(events[-1]["statusUpdate"]["status"]["message"]) == "Second?"
    assert not act.stopped.is_set()


@pytest.mark.requirement("stream.progress-at-once")
async def test_each_event_reaches_the_caller_before_the_agent_makes_the_next(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    stream, act = await streamed(agent, puppet)
    act.tell("0")
    await stream.until("WORKING")
    assert chunk(await stream.next()) == "0"
    for number in range(1, 20):
        act.tell(str(number))
        assert chunk(await stream.next()) == str(number)
        act.tell(says(f"at {number}"))
        event = await stream.next()
        assert text_of(event["statusUpdate"]["status"]["message"]) == f"at {number}"
    assert not act.stopped.is_set()


@over("jsonrpc", "rest")
@pytest.mark.requirement("stream.progress-at-once")
async def test_event_is_on_its_way_before_an_agent_that_never_waits_goes_on(serve: Serve) -> None:
    seen = [threading.Event() for _ in range(5)]
    in_time: list[bool] = []

    async def hogs_the_loop(turn: Turn) -> Any:
        for number, event in enumerate(seen):
            until = time.perf_counter() + 0.003  # work, with no await in it
            while time.perf_counter() < until:
                pass
            yield f"<{number}>"
            in_time.append(event.wait(LIMIT_S / 4))  # stands still until a reader elsewhere has seen it

    def read(response: http.client.HTTPResponse) -> None:
        for line in response:
            for number, event in enumerate(seen):
                if f"<{number}>".encode() in line:
                    event.set()

    agent = await serve(hogs_the_loop)

    def call() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", agent.port, timeout=LIMIT_S)
        params: Json = {"message": message("go")}
        if agent.name == "jsonrpc":
            params = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": params}
        path = "/" if agent.name == "jsonrpc" else "/message:stream"
        headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
        connection.request("POST", agent.root + path, json.dumps(params), headers)
        read(connection.getresponse())
        connection.close()

    await asyncio.get_running_loop().run_in_executor(None, call)
    assert in_time == [True] * 5


async def test_status_messages_with_the_same_id_are_both_delivered(serve: Serve) -> None:
    async def repeats(turn: Turn) -> Any:
        for text in ("one", "two"):
            yield TaskStatus(TaskState.WORKING, Message("same", Role.AGENT, (Part(text=text),)))

    agent = await serve(repeats)
    events = await (await agent.stream()).rest()
    said = [event["statusUpdate"]["status"].get("message") for event in events[1:]]
    assert [text_of(m) for m in said if m] == ["one", "two"]


# --- order ------------------------------------------------------------------------------------------------------------


@every_store
@pytest.mark.requirement("events.in-order", "events.never-reordered")
async def test_events_come_in_the_order_in_which_they_were_made(serve: Serve) -> None:
    async def counts(turn: Turn) -> Any:
        for number in range(400):
            if number % 7 == 0:
                await turn.status(str(number))
            elif number % 11 == 0:
                yield {"n": number}
            else:
                yield str(number)
            if number % 50 == 0:
                await asyncio.sleep(0)

    agent = await serve(counts)
    stream = await agent.stream()
    events = await stream.rest()
    seen = []
    for event in events[2:-1]:  # behind the task and WORKING, before COMPLETED
        if "statusUpdate" in event:
            seen.append(int(text_of(event["statusUpdate"]["status"]["message"])))
        else:
            (part,) = event["artifactUpdate"]["artifact"]["parts"]
            seen.append(int(part["text"]) if "text" in part else part["data"]["n"])
    assert seen == list(range(400))
    if agent.numbered:
        assert stream.ids == list(range(1, len(events) + 1))


@pytest.mark.requirement("events.never-reordered", "events.to-every-stream")
async def test_reader_that_reads_nothing_until_the_end_still_gets_everything_in_order(serve: Serve) -> None:
    size, pieces = 20_000, 500  # 10 MB: more than sockets hold

    async def floods(turn: Turn) -> Any:
        for number in range(pieces):
            yield Artifact(f"a{number}", (Part(text=f"{number} " + "x" * size),))
            await asyncio.sleep(0)

    agent = await serve(floods)
    slow = await agent.stream()
    task_id = (await slow.next())["task"]["id"]
    await agent.until(task_id, "COMPLETED")  # it slows nobody
    events = await slow.rest()
    numbers = [int(chunk(event).split(" ")[0]) for event in events if "artifactUpdate" in event]
    assert numbers == list(range(pieces))
    assert state_of(events[-1]) == "COMPLETED"


@with_snapshot
@every_store
@pytest.mark.requirement("events.to-every-stream", "events.same-on-every-stream")
async def test_many_streams_of_one_task_get_the_same_events_in_the_same_order(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    first, act = await streamed(agent, puppet)
    act.tell("begin")
    await first.until("WORKING")
    await first.next()
    streams = [await agent.subscribe(act.turn.task_id) for _ in range(20)]
    for stream in streams:
        task = (await stream.next())["task"]
        assert text_of(task) == "begin"
    for number in range(30):
        act.tell(str(number), says(str(number)))
    act.end()
    expected = await first.rest()
    assert len(expected) == 61
    for stream in streams:
        assert await stream.rest() == expected
        assert stream.ids[1:] == first.ids[-61:]
        assert stream.closed


@pytest.mark.requirement("events.to-every-stream", "equivalence.results")
async def test_streams_over_every_transport_get_the_same_events(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet, by_grpc=True)
    first, act = await streamed(agent, puppet)
    act.tell("begin")
    await first.until("WORKING")
    await first.next()
    streams = [await agent.over(name).subscribe(act.turn.task_id) for name in ("direct", "jsonrpc", "rest", "grpc")]
    snapshots = [await stream.next() for stream in streams]
    assert snapshots == [snapshots[0]] * 4
    act.tell("more", {"n": 1})
    act.end()
    expected = await first.rest()
    for stream in streams:
        assert await stream.rest() == expected


@with_snapshot
@pytest.mark.requirement("events.closing-one-leaves-others")
async def test_closing_one_stream_disturbs_no_other(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    first, act = await streamed(agent, puppet)
    act.tell("a")
    await first.until("WORKING")
    second, third = [await agent.subscribe(act.turn.task_id) for _ in range(2)]
    await second.next()
    await third.next()
    first.close()
    act.tell("b")
    assert chunk(await second.next()) == "b"
    second.close()
    act.tell("c")
    act.end()
    assert [chunk(event) for event in (await third.rest())[:-1]] == ["b", "c"]


# --- callers that go away ---------------------------------------------------------------------------------------------


@every_store
@pytest.mark.requirement("events.task-outlives-streams", "async.work-goes-on")
async def test_agent_runs_on_when_its_only_caller_breaks_off_and_the_result_is_kept(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    stream, act = await streamed(agent, puppet)
    act.tell("before")
    await stream.until("WORKING")
    stream.close()
    for number in range(50):
        act.tell(f" {number}", lambda turn: asyncio.sleep(0))
    act.end()
    await act.stopped.wait()
    assert not act.cancelled
    task = await agent.until(act.turn.task_id, "COMPLETED")
    assert text_of(task) == "before " + " ".join(map(str, range(50)))


@pytest.mark.requirement("events.task-outlives-streams")
async def test_agent_runs_on_when_its_caller_breaks_off_before_it_has_said_anything(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    stream, act = await streamed(agent, puppet)
    stream.close()
    act.tell("nobody listens")
    act.end()
    await act.stopped.wait()
    assert not act.cancelled
    task = await agent.until(act.turn.task_id, "COMPLETED")
    assert text_of(task) == "nobody listens"


@pytest.mark.requirement("events.task-outlives-streams")
async def test_agent_runs_on_when_the_caller_of_a_blocking_send_goes_away(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    sending = asyncio.create_task(agent.send("go"))
    act = await puppet.next()
    act.tell("so far")
    await agent.until(act.turn.task_id, "WORKING")
    sending.cancel()
    await asyncio.wait([sending])
    act.tell(", and on")
    act.end()
    task = await agent.until(act.turn.task_id, "COMPLETED")
    assert text_of(task) == "so far, and on"


@every_store
@pytest.mark.requirement("subscribe.closes-at-terminal", "events.task-outlives-streams")
async def test_caller_that_breaks_off_and_subscribes_again_sees_the_end_and_the_stream_closes(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    stream, act = await streamed(agent, puppet)
    act.tell("a")
    task_id = (await stream.next())["task"]["id"]
    stream.close()
    again = await agent.subscribe(task_id)
    await again.next()
    act.tell("b")
    act.end()
    events = await again.rest()
    assert state_of(events[-1]) == "COMPLETED"
    assert again.closed


@with_snapshot
async def test_many_callers_that_come_and_go_leave_the_task_alone(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await begun(agent, puppet)
    for number in range(25):
        stream = await agent.subscribe(task["id"])
        await stream.next()
        act.tell(str(number))
        assert chunk(await stream.next()) == str(number)
        stream.close()
    act.end()
    done = await agent.until(task["id"], "COMPLETED")
    assert text_of(done) == "".join(map(str, range(25)))
