"""Send Message and its configuration (A2A 1.0 §3.1.1, §3.2.2)."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from tests.behaviour.agents import ENDS, Puppet, asks, begun, end, ended, hello, make_agent
from tests.behaviour.harness import Transport, eventually, refused, state_of, text_of
from tests.behaviour.serving import Serve, by_tenants, direct_messages, every_store, stores
from tieline import Artifact, Limits, Message, Part, Turn

BLOCKING = [{}, {"configuration": {}}, {"configuration": {"returnImmediately": False}}]


async def replies(turn: Turn) -> Message:
    """Answers without a task."""
    return turn.reply(f"You said {turn.text}.")


@pytest.mark.requirement("send.task-or-message", "task.id-returned")
async def test_agent_that_works_answers_with_one_task(serve: Serve) -> None:
    agent = await serve(hello)
    answer = await agent.send("Ada")
    assert list(answer) == ["task"]
    assert state_of(answer) == "COMPLETED"
    assert text_of(answer["task"]) == "Hello, Ada!"
    assert (await agent.get(answer["task"]["id"])) == answer["task"]


@direct_messages
@pytest.mark.requirement("send.task-or-message")
async def test_agent_that_replies_answers_with_one_message_and_makes_no_task(serve: Serve) -> None:
    agent = await serve(replies)
    answer = await agent.send("hi")
    assert list(answer) == ["message"]
    assert text_of(answer["message"]) == "You said hi."
    assert (await agent.list())["totalSize"] == 0


@pytest.mark.requirement("send.media-type-refused", "validation.before-processing")
@pytest.mark.parametrize(
    "part",
    [
        {"raw": base64.b64encode(b"\x89PNG").decode(), "mediaType": "image/png"},
        {"url": "https://files.example/a.pdf", "mediaType": "application/pdf"},
        {"text": "<p>hi</p>", "mediaType": "text/html"},
        {"data": {"n": 1}},
    ],
    ids=["raw", "url", "text", "data"],
)
async def test_part_of_a_media_type_that_the_agent_does_not_take_is_refused(serve: Serve, part: Any) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    with refused("ContentTypeNotSupportedError") as refusal:
        await agent.send([{"text": "look at this"}, part])
    assert part.get("mediaType", "application/json") in refusal.message
    assert "text/plain" in refusal.message  # what it does take
    assert puppet.runs == 0
    assert (await agent.list())["totalSize"] == 0


@pytest.mark.requirement("send.task-or-message")
@pytest.mark.parametrize("media_type", ["image/png", "IMAGE/PNG", "image/svg+xml; charset=utf-8", "text/plain"])
async def test_part_of_a_media_type_that_the_agent_takes_is_served(serve: Serve, media_type: str) -> None:
    agent = await serve(make_agent(hello, input_modes=("text/plain", "image/*")))
    task = await agent.task([{"text": "Ada"}, {"raw": "AAAA", "mediaType": media_type}])
    assert state_of(task) == "COMPLETED"


@every_store
@pytest.mark.requirement("send.terminal-task-refused", "model.terminal-is-final")
@pytest.mark.parametrize("state", ENDS)
async def test_message_to_an_ended_task_is_refused_and_changes_nothing(serve: Serve, state: str) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task = await ended(agent, puppet, state)
    with refused("UnsupportedOperationError") as refusal:
        await agent.send("one more thing", taskId=task["id"], contextId=task["contextId"])
    assert task["id"] in refusal.message
    assert await agent.get(task["id"]) == task
    assert puppet.runs == 1


# --- execution mode ---------------------------------------------------------------------------------------------------


@pytest.mark.requirement("mode.blocking-waits", "mode.blocking-is-default", "send.task-or-message")
@pytest.mark.parametrize("fields", BLOCKING, ids=["unset", "empty", "false"])
@pytest.mark.parametrize("state", ENDS)
async def test_blocking_send_returns_only_when_its_task_has_ended(
    serve: Serve, state: str, fields: dict[str, Any]
) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    sending = asyncio.create_task(agent.task("go", **fields))
    act = await puppet.next()
    act.tell("a first chunk")
    await agent.until(act.turn.task_id, "WORKING")
    assert not sending.done()
    await end(agent, act.turn.task_id, act, state)
    task = await sending
    assert state_of(task) == state
    assert task["id"] == act.turn.task_id


@pytest.mark.requirement("mode.blocking-waits")
@pytest.mark.parametrize(
    ("question", "state"),
    [(Turn.ask, "INPUT_REQUIRED"), (Turn.authorize, "AUTH_REQUIRED")],
    ids=["input", "auth"],
)
async def test_blocking_send_returns_when_the_agent_asks(serve: Serve, question: Any, state: str) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    sending = asyncio.create_task(agent.task())
    act = await puppet.next()
    act.tell("so far", lambda turn: question(turn, "And now?"))
    task = await sending
    assert state_of(task) == state
    assert text_of(task["status"]["message"]) == "And now?"
    assert text_of(task) == "so far"


@every_store
@pytest.mark.requirement("mode.blocking-answer-complete", "content.results-in-artifacts")
async def test_answer_of_a_blocking_send_has_the_latest_status_and_all_artifacts(serve: Serve) -> None:
    async def works(turn: Turn) -> Any:
        await turn.status("reading")
        yield Artifact("a", (Part(text="first"),), "one")
        async with turn.artifact("two.csv", media_type="text/csv", artifact_id="b") as out:
            await out.write("x,y\n")
            await turn.status("writing")
            await out.write("1,2\n", last=True)
        yield {"rows": 1}
        await turn.complete("All done.")

    agent = await serve(works)
    task = await agent.task()
    assert state_of(task) == "COMPLETED"
    assert text_of(task["status"]["message"]) == "All done."
    assert [artifact.get("name") for artifact in task["artifacts"]] == ["one", "two.csv", "response"]
    assert [text_of(artifact) for artifact in task["artifacts"]] == ["first", "x,y\n1,2\n", ""]
    assert task["artifacts"][2]["parts"] == [{"data": {"rows": 1}}]
    assert await agent.get(task["id"]) == task


@every_store
@pytest.mark.requirement("mode.immediate-returns", "async.work-goes-on")
async def test_immediate_send_returns_a_task_in_progress_while_the_agent_works_on(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task = await agent.task(configuration={"returnImmediately": True})
    act = await puppet.next()
    assert state_of(task) in ("SUBMITTED", "WORKING")
    assert not act.stopped.is_set()
    act.tell("the result")
    act.end()
    done = await agent.until(task["id"], "COMPLETED")
    assert text_of(done) == "the result"
    assert done["contextId"] == task["contextId"]


@pytest.mark.requirement("async.work-goes-on", "get.current-state")
async def test_task_that_is_only_polled_is_seen_to_go_on_to_its_end(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await begun(agent, puppet)
    for text in ("a", "b", "c"):
        act.tell(text, lambda turn: turn.status("on it"))
        await act.results.get()
        act.tell(lambda turn: asyncio.sleep(0))  # behind this everything has been published
        await act.results.get()
        assert text_of(await agent.get(task["id"])).endswith(text)
    act.end()

    async def has_ended() -> bool:
        return state_of(await agent.get(task["id"])) == "COMPLETED"

    await eventually(has_ended)
    assert text_of(await agent.get(task["id"])) == "abc"


@direct_messages
@pytest.mark.requirement("mode.no-effect-on-message")
@pytest.mark.parametrize("immediately", [True, False])
async def test_direct_message_comes_in_either_mode(serve: Serve, immediately: bool) -> None:
    agent = await serve(replies)
    answer = await agent.send("hi", configuration={"returnImmediately": immediately})
    assert text_of(answer["message"]) == "You said hi."


@pytest.mark.requirement("mode.no-effect-on-stream")
async def test_streamed_send_that_is_to_return_immediately_still_delivers_every_update(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    stream = await agent.stream(configuration={"returnImmediately": True})
    act = await puppet.next()
    act.tell("a")
    await stream.until("WORKING")
    act.tell("b", "c")
    act.end()
    events = await stream.rest()
    assert [text_of(event["artifactUpdate"]["artifact"]) for event in events[:-1]] == ["a", "b", "c"]
    assert state_of(events[-1]) == "COMPLETED"


@pytest.mark.requirement("send.accepted-output-modes")
@pytest.mark.parametrize("modes", [["text/csv", "application/json"], []])
async def test_agent_learns_which_output_modes_the_caller_accepts(serve: Serve, modes: list[str]) -> None:
    async def tells(turn: Turn) -> Any:
        return list(turn.accepts)

    agent = await serve(tells)
    task = await agent.task(configuration={"acceptedOutputModes": modes})
    assert task["artifacts"][0]["parts"] == [{"data": modes}]


@pytest.mark.requirement("send.accepted-output-modes")
async def test_agent_that_was_started_anew_learns_the_output_modes_of_the_message_that_started_it(serve: Serve) -> None:
    async def tells(turn: Turn) -> Any:
        if turn.text == "more":
            yield list(turn.accepts)
        else:
            await turn.ask("More?")
            yield list(turn.accepts)

    agent = await serve(tells)
    task = await agent.task("begin", configuration={"acceptedOutputModes": ["text/csv"]})
    done = await agent.task("go on", taskId=task["id"], configuration={"acceptedOutputModes": ["text/csv"]})
    assert done["artifacts"][0]["parts"] == [{"data": ["text/csv"]}]


async def _heard(agent: Transport, task_id: str, messages: int) -> bool:
    return len((await agent.get(task_id))["history"]) == messages


# --- edges ------------------------------------------------------------------------------------------------------------


@by_tenants
@pytest.mark.requirement("send.task-or-message", "context.generated-is-returned")
async def test_empty_ids_are_ids_that_are_not_there(serve: Serve) -> None:
    agent = await serve(hello)
    task = await agent.task("Ada", taskId="", contextId="", tenant="")
    assert state_of(task) == "COMPLETED"
    assert task["contextId"]
    assert await agent.get(task["id"]) == task


@stores("sqlite")
async def test_file_of_ten_megabytes_is_taken_and_given_but_not_echoed(serve: Serve) -> None:
    size = 10 * 1024 * 1024
    sent = base64.b64encode(bytes(range(256)) * (size // 256)).decode()

    async def turns(turn: Turn) -> Any:
        raw = turn.files[0].raw or b""
        assert len(raw) == size
        yield Part(raw=raw[::-1], filename="turned.bin")

    agent = await serve(make_agent(turns, input_modes=("*/*",)))
    task = await agent.task({"raw": sent, "filename": "big.bin"})
    assert state_of(task) == "COMPLETED"
    assert task["history"][0]["parts"][0]["raw"] == ""
    assert base64.b64decode(task["artifacts"][0]["parts"][0]["raw"])[:256] == bytes(range(255, -1, -1))


# --- several messages -------------------------------------------------------------------------------------------------


async def test_message_for_a_task_at_work_is_queued_for_the_next_question_and_starts_no_second_run(
    serve: Serve,
) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await begun(agent, puppet)
    queued = await agent.task("blue", taskId=task["id"], configuration={"returnImmediately": True})
    assert state_of(queued) == "WORKING"
    assert [text_of(m) for m in queued["history"]] == ["go", "blue"]
    act.tell(asks("Which colour?"))
    assert await act.results.get() == "blue"
    act.end()
    done = await agent.until(task["id"], "COMPLETED")
    assert [text_of(m) for m in done["history"]] == ["go", "blue"]  # nobody had to be asked
    assert puppet.runs == 1


async def test_blocking_send_to_a_task_at_work_is_worked_on_and_returns_with_the_end_of_it(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await begun(agent, puppet)
    sending = asyncio.create_task(agent.task("hurry", taskId=task["id"]))
    await eventually(lambda: _heard(agent, task["id"], 2))
    act.end()  # without having asked: what came meanwhile starts it once more
    again = await puppet.next()
    assert again.turn.text == "hurry"
    assert not sending.done()
    again.end()
    done = await sending
    assert state_of(done) == "COMPLETED"
    assert [text_of(m) for m in done["history"]] == ["go", "hurry"]


async def test_message_for_a_task_at_work_is_refused_where_the_agent_says_so(serve: Serve) -> None:
    puppet = Puppet(while_running="refuse")
    agent = await serve(puppet)
    task, act = await begun(agent, puppet)
    with refused("UnsupportedOperationError"):
        await agent.send("hurry", taskId=task["id"])
    with refused("UnsupportedOperationError"):
        await agent.stream("hurry", taskId=task["id"])
    act.tell(asks("Which colour?"))
    await agent.until(task["id"], "INPUT_REQUIRED")
    sending = asyncio.create_task(agent.task("blue", taskId=task["id"]))  # an answer is no interruption
    assert await act.results.get() == "blue"
    act.end()
    assert [text_of(m) for m in (await sending)["history"]] == ["go", "Which colour?", "blue"]


async def test_two_answers_at_once_are_taken_one_after_the_other(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await begun(agent, puppet)
    act.tell(asks("First?"))
    await agent.until(task["id"], "INPUT_REQUIRED")
    sending = [asyncio.create_task(agent.task(text, taskId=task["id"])) for text in ("one", "two")]
    first = await act.results.get()
    await eventually(lambda: _heard(agent, task["id"], 4))
    act.tell(asks("Second?"))
    second = await act.results.get()
    assert {first, second} == {"one", "two"}
    act.end()
    for done in await asyncio.gather(*sending):
        assert state_of(done) == "COMPLETED"
    assert puppet.runs == 1


async def test_messages_beyond_the_queue_are_refused_until_there_is_room(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet, limits=Limits(queued_messages=2))
    task, act = await begun(agent, puppet)
    at_once = {"taskId": task["id"], "configuration": {"returnImmediately": True}}
    await agent.task("one", **at_once)
    await agent.task("two", **at_once)
    with refused("Overloaded"):
        await agent.task("three", **at_once)
    assert [text_of(m) for m in (await agent.get(task["id"]))["history"]] == ["go", "one", "two"]
    act.tell(asks("?"))
    assert await act.results.get() == "one"
    await agent.task("four", **at_once)
    act.tell(*[asks("?")] * 2)
    assert [await act.results.get(), await act.results.get()] == ["two", "four"]
    act.end()
    await agent.until(task["id"], "COMPLETED")
