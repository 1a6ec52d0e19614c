"""Agents that fail: their tasks end FAILED with words for the caller, and nothing of what went wrong gets out."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.behaviour.agents import Puppet, begun, hello
from tests.behaviour.harness import Json, Transport, state_of, text_of
from tests.behaviour.serving import Serve, every_store
from tieline import Artifact, Failed, Message, Part, Rejected, Role, TaskState, TaskStatus, Turn

SECRET = "the-secret-cause"


class Home(BaseException):
    """An exception beside Exception, as test tools and other loops raise them."""


def recursive() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


async def fails_well(agent: Transport, *, given: str = "") -> Json:
    """Assert that a streamed send and a blocking one end FAILED in neutral words; the task of the latter."""
    stream = await agent.stream()
    events = await stream.rest()
    assert state_of(events[-1]) == "FAILED"
    assert stream.closed
    task = await agent.task()
    for shown in (task, await agent.get(task["id"])):
        assert state_of(shown) == "FAILED"
        words = text_of(shown["status"]["message"])
        assert len(words) > 10
        assert SECRET not in json.dumps(shown)
        assert "Traceback" not in words
        assert "Error" not in words
        assert text_of(shown) == given
    assert SECRET not in json.dumps(events)
    return task


@pytest.fixture(autouse=True)
def _logs_stay_out_of_the_way(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "tieline")


# --- exceptions -------------------------------------------------------------------------------------------------------


@every_store
@pytest.mark.requirement("errors.appropriate", "stream.closes-at-terminal", "model.terminal-is-final")
@pytest.mark.parametrize(
    "error",
    [
        ValueError(SECRET),
        KeyError(SECRET),
        StopIteration(SECRET),
        TimeoutError(SECRET),
        asyncio.CancelledError(SECRET),
        ExceptionGroup(SECRET, [ValueError(SECRET)]),
        SystemExit(SECRET),
        SystemExit(3),
        Home(SECRET),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("moment", ["at-once", "later"])
async def test_agent_that_raises_ends_its_task_failed_in_neutral_words(
    serve: Serve, error: BaseException, moment: str
) -> None:
    async def raises(turn: Turn) -> Any:
        if moment == "later":
            yield "so far"
            await asyncio.sleep(0)
        raise error
        yield

    agent = await serve(raises)
    await fails_well(agent, given="so far" if moment == "later" else "")


@pytest.mark.requirement("errors.appropriate")
async def test_agent_function_that_raises_ends_its_task_failed(serve: Serve) -> None:
    async def raises(turn: Turn) -> str:
        await asyncio.sleep(0)
        raise ZeroDivisionError(SECRET)

    await fails_well(await serve(raises))


@pytest.mark.requirement("errors.appropriate")
async def test_agent_that_fails_while_it_cleans_up_ends_its_task_failed(serve: Serve) -> None:
    async def raises(turn: Turn) -> Any:
        try:
            yield "so far"
        finally:
            raise OSError(SECRET)

    await fails_well(await serve(raises), given="so far")


@pytest.mark.requirement("cancel.returns-updated-task")
async def test_agent_that_raises_when_it_is_cancelled_fails_and_the_cancel_says_so(serve: Serve) -> None:
    async def raises(turn: Turn) -> Any:
        yield "so far"
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError(SECRET) from None

    agent = await serve(raises)
    stream = await agent.stream()
    task_id = (await stream.until("WORKING"))[0]["task"]["id"]
    await stream.next()
    outcome = (await asyncio.gather(agent.cancel(task_id), return_exceptions=True))[0]
    task = await agent.get(task_id)
    assert state_of(task) in ("CANCELED", "FAILED")
    assert SECRET not in json.dumps(task)
    assert SECRET not in str(outcome)
    events = await stream.rest()
    assert [state_of(event) for event in events] == [state_of(task)]


@every_store
@pytest.mark.parametrize(("error", "state"), [(Failed, "FAILED"), (Rejected, "REJECTED")])
@pytest.mark.parametrize("words", ["The file has no columns.", "", "\ud800 lone \x00"], ids=["words", "none", "odd"])
async def test_agent_that_gives_up_says_why_in_its_own_words(
    serve: Serve, error: type[Exception], state: str, words: str
) -> None:
    async def gives_up(turn: Turn) -> Any:
        yield "so far"
        raise error(words)

    agent = await serve(gives_up)
    task = await agent.task()
    assert (state_of(task), text_of(task)) == (state, "so far")
    said = text_of(task["status"]["message"])
    assert said == words or words.startswith("\ud800") or (not words and said)
    assert await agent.get(task["id"]) == task


@pytest.mark.requirement("send.task-or-message")
async def test_agent_that_rejects_at_once_makes_a_rejected_task(serve: Serve) -> None:
    async def rejects(turn: Turn) -> str:
        raise Rejected("Not on Sundays.")

    agent = await serve(rejects)
    task = await agent.task()
    assert (state_of(task), text_of(task["status"]["message"])) == ("REJECTED", "Not on Sundays.")


# --- answers that are none --------------------------------------------------------------------------------------------

GARBAGE: dict[str, Any] = {
    "an object": object(),
    "a number": 5,
    "a float": 1.5,
    "a set": {1},
    "a class": ValueError,
    "a coroutine's function": hello,
    "data that is no JSON": {"when": object()},
    "data with itself inside": {"me": recursive()},
    "data with a NaN": {"n": float("nan")},
    "data with an infinity": [float("inf")],
    "data with keys that are no strings": {("a", 1): 2},
    "text that is no Unicode": "\ud800",
    "data that is no Unicode": {"a": "\ud800"},
    "an artifact without parts": Artifact("a", ()),
    "an artifact with garbage": Artifact("a", (object(),)),  # type: ignore[arg-type]
    "a message without parts": Message("m", Role.AGENT, ()),
    "a status message without parts": TaskStatus(TaskState.WORKING, Message("m", Role.AGENT, ())),
    "a status without a state": TaskStatus("DONE"),  # type: ignore[arg-type]
    "metadata that is no JSON": Part(text="a", metadata={"n": object()}),
}


@pytest.mark.requirement("errors.appropriate", "model.same-in-every-binding")
@pytest.mark.parametrize("given", GARBAGE.values(), ids=list(GARBAGE))
async def test_answer_that_is_none_ends_the_task_failed_and_nothing_hangs(serve: Serve, given: Any) -> None:
    async def yields(turn: Turn) -> AsyncIterator[Any]:
        yield "so far"
        yield given
        yield "not reached"

    async def returns(turn: Turn) -> Any:
        return given

    for function, text in ((yields, "so far"), (returns, "")):
        agent = await serve(function)
        await fails_well(agent, given=text)


@pytest.mark.requirement("model.artifact-fields", "model.artifact-id-unique")
async def test_artifact_that_an_agent_gives_without_an_id_gets_one(serve: Serve) -> None:
    async def gives(turn: Turn) -> Any:
        yield Artifact("", (Part(text="one"),))
        yield Artifact("", (Part(text="two"),))

    agent = await serve(gives)
    task = await agent.task()
    assert [text_of(artifact) for artifact in task["artifacts"]] == ["one", "two"]


@every_store
async def test_next_task_of_an_agent_that_has_failed_is_none_the_worse(serve: Serve) -> None:
    async def moody(turn: Turn) -> Any:
        if turn.text == "fail":
            raise RuntimeError(SECRET)
        yield "fine"

    agent = await serve(moody)
    outcomes = await asyncio.gather(*(agent.task(text) for text in ("fail", "go", "fail", "go")))
    assert [state_of(task) for task in outcomes] == ["FAILED", "COMPLETED"] * 2


async def test_question_asked_while_another_is_open_fails_the_task_and_hangs_nobody(serve: Serve) -> None:
    async def asks_twice(turn: Turn) -> Any:
        async with asyncio.TaskGroup() as group:
            group.create_task(turn.ask("One?"))
            group.create_task(turn.ask("Two?"))

    agent = await serve(asks_twice)
    task = await agent.task()
    assert state_of(await agent.until(task["id"], "FAILED")) == "FAILED"


@pytest.mark.parametrize("question", [Turn.ask, Turn.authorize], ids=["input", "auth"])
async def test_agent_that_takes_its_question_back_and_leaves_at_once_waits_for_its_caller(
    serve: Serve, question: Any
) -> None:
    leave, left = asyncio.Event(), asyncio.Event()

    async def leaves(turn: Turn) -> str | None:
        if turn.text != "go":
            return "thanks"
        asked = asyncio.ensure_future(question(turn, "May I?"))
        await leave.wait()
        asked.cancel()
        left.set()
        return None

    agent = await serve(leaves)
    task = await agent.task("go")
    assert state_of(task) in ("INPUT_REQUIRED", "AUTH_REQUIRED")
    leave.set()
    await left.wait()
    done = await agent.task("yes", taskId=task["id"])
    assert (state_of(done), text_of(done)) == ("COMPLETED", "thanks")


async def test_agent_that_closes_its_own_loop_of_yields_early_completes(serve: Serve) -> None:
    async def stops(turn: Turn) -> Any:
        for number in range(3):
            if number == 2:
                return
            yield str(number)

    agent = await serve(stops)
    task = await agent.task()
    assert (state_of(task), text_of(task)) == ("COMPLETED", "01")


async def test_puppet_that_fails_after_a_question_fails_behind_the_answer(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await begun(agent, puppet)
    act.tell(lambda turn: turn.ask("Which one?"), ValueError(SECRET))
    await agent.until(task["id"], "INPUT_REQUIRED")
    done = await agent.task("left", taskId=task["id"])
    assert state_of(done) == "FAILED"
    assert [text_of(m) for m in done["history"]] == ["go", "Which one?", "left"]
