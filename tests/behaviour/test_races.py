"""Calls that meet: several answers, a cancel and an answer, followers that come at every moment."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.behaviour.agents import Puppet, asks, begun, make_agent
from tests.behaviour.failing_store import FailingStore
from tests.behaviour.harness import Json, Refused, Stream, Transport, data, eventually, state_of, text_of
from tests.behaviour.serving import Serve, every_store, stays_open, with_snapshot
from tieline import Artifact, Message, Part, Role, TaskState, TaskStatus, Turn

NOT_CANCELABLE = "TaskNotCancelableError"
RESTS = TaskStatus(TaskState.INPUT_REQUIRED, Message("q", Role.AGENT, (Part(text="Which one?"),)))


def folded(log: list[Json]) -> tuple[str | None, dict[str, str]]:
    """State and artifacts (their texts) that a log of events makes, by the rules of §4.2."""
    state: str | None = None
    texts: dict[str, str] = {}
    for event in log:
        state = state_of(event) or state
        if "artifactUpdate" in event:
            update = event["artifactUpdate"]
            id_ = update["artifact"]["artifactId"]
            texts[id_] = (texts.get(id_, "") if update.get("append") else "") + text_of(update["artifact"])
    return state, texts


def shown(task: Json) -> tuple[str | None, dict[str, str]]:
    """State and artifacts of a task, as `folded` has them."""
    return state_of(task), {artifact["artifactId"]: text_of(artifact) for artifact in task.get("artifacts", ())}


def check_follower(stream: Stream, events: list[Json], log: list[Json]) -> None:
    """That a follower has seen the task as it was at its first event, and every event behind that once."""
    first = stream.ids[0]
    if first is None:  # the transport has no numbers; to its end there were as many
        first = len(log) - len(events) + 1
        assert stream.ids == [None] * len(events)
    else:
        assert stream.ids[1:] == list(range(first + 1, first + len(events)))
    assert shown(events[0]["task"]) == folded(log[:first])
    assert events[1:] == log[first : first + len(events) - 1]


# --- several answers --------------------------------------------------------------------------------------------------


@every_store
@pytest.mark.requirement("turns.input-required-goes-on")
async def test_two_answers_at_once_to_a_task_without_an_agent_at_work_start_it_once(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await begun(agent, puppet)
    act.tell(RESTS)
    act.end()
    await agent.until(task["id"], "INPUT_REQUIRED")
    await act.stopped.wait()
    sending = [asyncio.create_task(agent.task(text, taskId=task["id"])) for text in ("one", "two")]
    act = await puppet.next()

    async def are_heard() -> bool:
        return len((await agent.get(task["id"]))["history"]) == 4

    await eventually(are_heard)
    act.tell(asks("And?"))
    assert {act.turn.text, await act.results.get()} == {"one", "two"}
    act.end()
    for done in await asyncio.gather(*sending):
        assert state_of(done) == "COMPLETED"
    assert puppet.runs == 2


@every_store
@pytest.mark.requirement("turns.input-required-goes-on", "mode.blocking-waits")
async def test_answer_that_comes_before_the_agent_that_asked_has_left_is_not_lost(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await begun(agent, puppet)
    act.tell(RESTS)
    await agent.until(task["id"], "INPUT_REQUIRED")
    sending = asyncio.create_task(agent.task("left", taskId=task["id"]))

    async def is_heard() -> bool:
        return len((await agent.get(task["id"]))["history"]) == 3

    await eventually(is_heard)
    act.end()  # it never asks: it goes, and would be started anew by an answer
    act = await puppet.next()
    assert act.turn.text == "left"
    act.end()
    done = await sending
    assert state_of(done) == "COMPLETED"
    assert [text_of(m) for m in done["history"]] == ["go", "Which one?", "left"]


@every_store
@pytest.mark.requirement("turns.input-required-goes-on", "stream.closes-at-terminal")
async def test_streamed_answer_that_comes_before_the_agent_that_asked_has_left_shows_what_comes_of_it(
    serve: Serve,
) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await begun(agent, puppet)
    act.tell(RESTS)
    await agent.until(task["id"], "INPUT_REQUIRED")
    stream = await agent.stream("left", taskId=task["id"])
    act.end()
    act = await puppet.next()
    act.tell("You chose the left one.")
    act.end()
    events = await stream.rest()
    assert [text_of(m) for m in events[0]["task"]["history"]][-1] == "left"
    assert "You chose the left one." in [
        text_of(e["artifactUpdate"]["artifact"]) for e in events if "artifactUpdate" in e
    ]
    assert state_of(events[-1]) == "COMPLETED"


@pytest.mark.requirement("turns.input-required-goes-on")
async def test_agent_may_give_up_waiting_for_an_answer(serve: Serve) -> None:
    async def impatient(turn: Turn) -> Any:
        try:
            async with asyncio.timeout(0.001):
                await turn.ask("Which one?")
        except TimeoutError:
            yield "the usual one"

    agent = await serve(impatient)
    task = await agent.task()
    done = await agent.until(task["id"], "COMPLETED")
    assert text_of(done) == "the usual one"
    assert [text_of(m) for m in done["history"]] == ["hello", "Which one?"]


@pytest.mark.requirement("turns.input-required-goes-on")
async def test_answer_that_is_being_stored_when_the_agent_gives_up_waiting_is_there_when_it_asks_again(
    serve: Serve,
) -> None:
    waiting: list[asyncio.Timeout] = []
    may_ask = asyncio.Event()

    async def asks_again(turn: Turn) -> Any:
        try:
            async with asyncio.timeout(None) as scope:
                waiting.append(scope)
                yield await turn.ask("First?")
        except TimeoutError:
            await may_ask.wait()
            yield await turn.ask("Second?")

    store = FailingStore("later")
    agent = await serve(asks_again, store=store)
    task = await agent.task()
    assert state_of(task) == "INPUT_REQUIRED"
    store.holds = True
    sending = asyncio.create_task(agent.task("left", taskId=task["id"]))

    async def is_being_stored() -> bool:
        return bool(store.held)

    await eventually(is_being_stored)
    waiting[0].reschedule(0)  # the time for the answer is up
    while not waiting[0].expired():  # noqa: ASYNC110 - nobody is told when it is
        await asyncio.sleep(0)
    store.release()
    await asyncio.sleep(0)
    may_ask.set()
    done = await sending
    if state_of(done) != "COMPLETED":  # it has rested meanwhile
        done = await agent.until(task["id"], "COMPLETED")
    assert text_of(done) == "left"


@every_store
async def test_answer_with_the_id_of_an_earlier_message_is_an_answer_like_any_other(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await begun(agent, puppet)
    first = task["history"][0]
    act.tell(RESTS)
    act.end()
    await agent.until(task["id"], "INPUT_REQUIRED")
    await act.stopped.wait()
    answer = {"messageId": first["messageId"], "role": "ROLE_USER", "parts": [{"text": "left"}]}
    sending = asyncio.create_task(agent.task(answer, taskId=task["id"]))
    act = await puppet.next()
    assert [m.text for m in act.turn.history] == ["go", "Which one?"]
    act.end()
    assert [text_of(m) for m in (await sending)["history"]] == ["go", "Which one?", "left"]


# --- cancels ----------------------------------------------------------------------------------------------------------


@every_store
@pytest.mark.requirement("cancel.idempotent", "model.terminal-is-final", "errors.appropriate")
async def test_cancel_and_answer_at_once_leave_one_end_and_no_caller_without_an_answer(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    for first in ("cancel", "answer"):
        task, act = await begun(agent, puppet)
        act.tell(asks("Which one?"))
        act.end()
        await agent.until(task["id"], "INPUT_REQUIRED")
        calls = {"cancel": agent.cancel(task["id"]), "answer": agent.task("left", taskId=task["id"])}
        order = sorted(calls, key=lambda name: name != first)
        outcomes = await asyncio.gather(*(calls[name] for name in order), return_exceptions=True)
        done = await agent.get(task["id"])
        assert state_of(done) in ("CANCELED", "COMPLETED")
        for name, outcome in zip(order, outcomes, strict=True):
            if isinstance(outcome, Refused):
                outcome.check("TaskNotCancelableError" if name == "cancel" else "UnsupportedOperationError")
            else:
                assert outcome == done
        await act.stopped.wait()


@every_store
@pytest.mark.requirement("cancel.returns-updated-task", "mode.immediate-returns")
async def test_task_can_be_cancelled_the_moment_it_is_told(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    for _ in range(10):
        task = await agent.task(configuration={"returnImmediately": True})
        cancelled = await agent.cancel(task["id"])
        assert state_of(cancelled) == "CANCELED"
        assert (await puppet.next()).stopped.is_set()
        assert await agent.get(task["id"]) == cancelled


@every_store
@pytest.mark.requirement("cancel.returns-updated-task", "model.terminal-is-final")
async def test_cancel_at_the_moment_of_completion_tells_the_truth(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    for turns_of_the_loop in range(12):
        task, act = await begun(agent, puppet)
        act.end()
        for _ in range(turns_of_the_loop):
            await asyncio.sleep(0)
        try:
            told = await agent.cancel(task["id"])
        except Refused as refusal:
            refusal.check("TaskNotCancelableError")
            assert state_of(await agent.get(task["id"])) == "COMPLETED"
        else:
            assert state_of(told) == "CANCELED"
            assert await agent.get(task["id"]) == told


# --- followers --------------------------------------------------------------------------------------------------------


@stays_open
@every_store
@pytest.mark.requirement("subscribe.nothing-lost", "subscribe.task-first", "events.same-on-every-stream")
async def test_followers_that_come_while_a_task_asks_and_goes_on_miss_nothing(serve: Serve) -> None:
    async def interviews(turn: Turn) -> Any:
        for number in range(15):
            yield f"{number} "
            yield Artifact(f"a{number % 3}", (Part(text=f"draft {number}"),))
            await turn.status(f"at {number}")
            await turn.ask(f"{number}?")
            yield "after "

    agent = await serve(interviews)
    task = await agent.task("begin")
    whole = await (agent if agent.numbered else agent.over("direct")).subscribe(task["id"], last_event_id=1)
    following: list[asyncio.Task[tuple[Stream, list[Json]]]] = []

    async def follow() -> tuple[Stream, list[Json]]:
        stream = await agent.subscribe(task["id"])
        return stream, await stream.rest()

    while state_of(task) != "COMPLETED":
        following.append(asyncio.create_task(follow()))
        answering = asyncio.create_task(agent.task("go on", taskId=task["id"]))
        following.append(asyncio.create_task(follow()))
        await asyncio.sleep(0)
        following.append(asyncio.create_task(follow()))
        task = await answering
    log: list[Json] = [{"task": {**task, "status": {"state": "TASK_STATE_SUBMITTED"}}}, *await whole.rest()]
    for outcome in await asyncio.gather(*following, return_exceptions=True):
        if isinstance(outcome, Refused):  # it came behind the end
            outcome.check("UnsupportedOperationError")
        else:
            assert not isinstance(outcome, BaseException)
            check_follower(*outcome, log)
    assert shown(task) == folded(log)


async def erratic(turn: Turn) -> Any:
    """Does what the numbers in its message say, one after the other."""
    for step in map(int, turn.text.split()):
        if step == 0:
            await asyncio.sleep(0)
        elif step == 1:
            await turn.status("working")
        elif step == 2:
            await turn.ask("What now?")
        elif step == 3:
            yield Artifact("a", (Part(text=f"{random.random()}"),))
        elif step == 4:
            raise RuntimeError("as told")
        else:
            yield f"{step} "


@with_snapshot
@every_store
@pytest.mark.requirement(
    "subscribe.nothing-lost",
    "events.in-order",
    "events.same-on-every-stream",
    "events.task-outlives-streams",
    "model.terminal-is-final",
    "list.newest-first",
)
@pytest.mark.parametrize("seed", range(5))
async def test_many_tasks_with_callers_that_come_and_go_at_random_keep_every_promise(serve: Serve, seed: int) -> None:
    chance = random.Random(seed)
    agent = await serve(make_agent(erratic, task_after_s=None))
    seen: list[tuple[str, Stream, list[Json]]] = []

    async def follow(task_id: str) -> None:
        stream = await agent.subscribe(task_id)
        events = [await stream.next()]
        patience = chance.randrange(30)
        async for event in stream:
            events.append(event)
            if len(events) > patience:
                stream.close()
                break
        seen.append((task_id, stream, events))

    async def use(agent: Transport) -> str:
        steps = " ".join(str(chance.choice((0, 0, 1, 2, 3, 5, 6, 7, 8, 9))) for _ in range(chance.randrange(5, 30)))
        text = steps + (" 4" if chance.random() < 0.2 else "")
        task = await agent.task(text, configuration={"returnImmediately": True})
        followers = [asyncio.create_task(follow(task["id"])) for _ in range(chance.randrange(3))]
        while task["status"]["state"] in ("TASK_STATE_WORKING", "TASK_STATE_INPUT_REQUIRED"):
            try:
                if chance.random() < 0.05:
                    task = await agent.cancel(task["id"])
                elif state_of(task) == "INPUT_REQUIRED" or chance.random() < 0.1:
                    immediately = {"returnImmediately": chance.random() < 0.5}
                    task = await agent.task("5", taskId=task["id"], configuration=immediately)
                else:
                    task = await agent.get(task["id"])
            except Refused as refusal:  # it has ended meanwhile
                refusal.check(
                    "UnsupportedOperationError" if refusal.reason != "TASK_NOT_CANCELABLE" else NOT_CANCELABLE
                )
                task = await agent.get(task["id"])
            if chance.random() < 0.2:
                followers.append(asyncio.create_task(follow(task["id"])))
            await asyncio.sleep(0)
        for outcome in await asyncio.gather(*followers, return_exceptions=True):
            if isinstance(outcome, Refused):
                outcome.check("UnsupportedOperationError")
            elif outcome is not None:
                raise outcome
        assert await agent.get(task["id"]) == task
        task_id: str = task["id"]
        return task_id

    ids = await asyncio.gather(*(use(agent) for _ in range(12)))
    tasks = (await agent.list(includeArtifacts=True))["tasks"]
    assert {task["id"] for task in tasks} == set(ids)
    times = [task["status"]["timestamp"] for task in tasks]
    assert times == sorted(times, reverse=True)
    logs: dict[str, dict[int, Json]] = {}
    for task_id, stream, events in (
        seen if agent.numbered else ()
    ):  # what one follower saw of an event, every other saw, too
        assert stream.ids[0] is not None
        assert stream.ids == list(range(stream.ids[0], stream.ids[0] + len(events)))
        for number, event in zip(stream.ids[1:], events[1:], strict=True):
            assert number is not None
            assert data(event)["taskId"] == task_id
            assert logs.setdefault(task_id, {}).setdefault(number, event) == event
