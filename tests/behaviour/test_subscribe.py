"""Subscribe to Task (A2A 1.0 §3.1.6), and going on behind a Last-Event-ID."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.behaviour.agents import ENDS, Puppet, begun, end, ended, hello, says
from tests.behaviour.harness import Json, eventually, refused, state_of, text_of
from tests.behaviour.serving import Serve, by_tenants, every_store, numbered, refuses_ended, stays_open, with_snapshot
from tieline import Message, Part, Role, TaskState, TaskStatus, Turn


def chunks(events: list[Json]) -> str:
    """The texts of the artifact updates among events."""
    return "".join(text_of(event["artifactUpdate"]["artifact"]) for event in events if "artifactUpdate" in event)


@with_snapshot
@every_store
@pytest.mark.requirement("subscribe.task-first", "subscribe.nothing-lost")
async def test_subscriber_joining_late_gets_snapshot_then_only_newer_events(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await begun(agent, puppet)
    act.tell("old ", {"n": 1}, says("half way"))

    async def is_half_way() -> bool:
        return "message" in (await agent.get(task["id"]))["status"]

    await eventually(is_half_way)
    stream = await agent.subscribe(task["id"])
    snapshot = (await stream.next())["task"]
    assert snapshot == await agent.get(task["id"])
    assert text_of(snapshot) == "old "
    assert text_of(snapshot["status"]["message"]) == "half way"
    act.tell("new")
    act.end()
    events = await stream.rest()
    assert chunks(events) == "new"
    assert [state_of(event) for event in events] == [None, "COMPLETED"]


@every_store
@pytest.mark.requirement("subscribe.nothing-lost", "events.same-on-every-stream")
async def test_nothing_falls_between_the_snapshot_and_the_events_behind_it(serve: Serve) -> None:
    pieces = [f"{number} " for number in range(300)]
    all_follow = asyncio.Event()

    async def talks(turn: Turn) -> Any:
        for number, piece in enumerate(pieces):
            yield piece
            await (all_follow.wait() if number == 250 else asyncio.sleep(0))

    agent = await serve(talks)
    task = await agent.task(configuration={"returnImmediately": True})

    following: list[str] = []

    async def follow() -> str:
        stream = await agent.subscribe(task["id"])
        following.append(task["id"])
        if len(following) == 10:
            all_follow.set()
        snapshot = (await stream.next())["task"]
        return text_of(snapshot) + chunks(await stream.rest())

    followers = []
    for _ in range(10):
        followers.append(asyncio.create_task(follow()))
        await agent.get(task["id"])  # so that they begin at different moments
    assert await asyncio.gather(*followers) == ["".join(pieces)] * 10


@every_store
@pytest.mark.requirement("subscribe.closes-at-terminal", "model.terminal-is-final")
@pytest.mark.parametrize("state", ENDS)
async def test_subscription_ends_with_its_task(serve: Serve, state: str) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await begun(agent, puppet)
    stream = await agent.subscribe(task["id"])
    await stream.next()
    await end(agent, task["id"], act, state)
    assert [state_of(event) for event in await stream.rest()] == [state]
    assert stream.closed


@stays_open
@every_store
@pytest.mark.requirement("subscribe.any-open-state", "subscribe.task-first", "stream.closes-at-input-required")
@pytest.mark.parametrize(
    ("question", "state"),
    [(Turn.ask, "INPUT_REQUIRED"), (Turn.authorize, "AUTH_REQUIRED")],
    ids=["input", "auth"],
)
async def test_task_that_waits_for_its_caller_can_be_subscribed_to_and_followed_to_its_end(
    serve: Serve, question: Any, state: str
) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await begun(agent, puppet)
    act.tell(lambda turn: question(turn, "What now?"))
    await agent.until(task["id"], state)
    stream = await agent.subscribe(task["id"])
    snapshot = (await stream.next())["task"]
    assert state_of(snapshot) == state
    await agent.send("go on", taskId=task["id"], configuration={"returnImmediately": True})
    act.tell(lambda turn: question(turn, "And now?"))
    await stream.until(state)  # a subscription stays open behind a question
    await agent.send("go on", taskId=task["id"], configuration={"returnImmediately": True})
    act.tell("done")
    act.end()
    assert [state_of(event) for event in await stream.rest()] == ["WORKING", None, "COMPLETED"]


@pytest.mark.requirement("subscribe.any-open-state", "subscribe.task-first")
async def test_working_task_whose_agent_has_said_nothing_yet_can_be_subscribed_to(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await begun(agent, puppet)
    stream = await agent.subscribe(task["id"])
    assert state_of(await stream.next()) == "WORKING"
    act.end()
    assert [state_of(event) for event in await stream.rest()] == ["COMPLETED"]


@stays_open
@every_store
@pytest.mark.requirement("subscribe.any-open-state")
async def test_resting_task_without_an_agent_at_work_can_be_followed_through_the_next_message(serve: Serve) -> None:
    async def asks_and_leaves(turn: Turn) -> Any:
        if turn.text == "begin":
            yield TaskStatus(TaskState.INPUT_REQUIRED, Message("q", Role.AGENT, (Part(text="Which one?"),)))
        else:
            yield f"You chose {turn.text}."

    agent = await serve(asks_and_leaves)
    task = await agent.task("begin")
    assert state_of(task) == "INPUT_REQUIRED"
    stream = await agent.subscribe(task["id"])
    assert (await stream.next())["task"] == task
    done = await agent.task("left", taskId=task["id"])
    assert state_of(done) == "COMPLETED"
    events = await stream.rest()
    assert chunks(events) == "You chose left."
    assert [state_of(event) for event in events] == ["WORKING", None, "COMPLETED"]


@refuses_ended
@every_store
@pytest.mark.requirement("subscribe.terminal-task-refused")
@pytest.mark.parametrize("state", ENDS)
async def test_subscribing_to_an_ended_task_is_refused_as_unsupported(serve: Serve, state: str) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task = await ended(agent, puppet, state)
    with refused("UnsupportedOperationError") as refusal:
        await agent.subscribe(task["id"])
    assert task["id"] in refusal.message


@by_tenants
@every_store
@pytest.mark.requirement("subscribe.unknown-task-refused")
async def test_subscribing_to_a_task_that_is_not_there_for_the_caller_is_refused(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    with refused("TaskNotFoundError"):
        await agent.subscribe("no-such-task")
    task, _ = await begun(agent, puppet, tenant="other")
    with refused("TaskNotFoundError"):
        await agent.subscribe(task["id"])


# --- Last-Event-ID ----------------------------------------------------------------------------------------------------


@numbered
@every_store
@pytest.mark.requirement("subscribe.nothing-lost")
async def test_reader_that_comes_back_with_its_last_event_goes_on_behind_it(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    first = await agent.stream()
    act = await puppet.next()
    act.tell("a")
    task_id = (await first.until("WORKING"))[0]["task"]["id"]
    await first.next()
    seen = first.ids[-1]
    assert seen is not None
    first.close()
    act.tell("b", "c")
    await agent.until(task_id, "WORKING")
    again = await agent.subscribe(task_id, last_event_id=seen)
    assert chunks([await again.next(), await again.next()]) == "bc"
    act.tell("d")
    act.end()
    events = await again.rest()
    assert chunks(events) == "d"
    assert again.ids == list(range(seen + 1, seen + 5))


@numbered
@every_store
@pytest.mark.requirement("subscribe.nothing-lost")
async def test_every_event_of_a_running_task_can_be_gone_on_from(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    first = await agent.stream()
    act = await puppet.next()
    act.tell("a", says("b"), {"c": 1})
    whole = [*await first.until("WORKING"), *[await first.next() for _ in range(3)]]
    for last in range(1, len(whole) + 1):
        again = await agent.subscribe(act.turn.task_id, last_event_id=last)
        assert [await again.next() for _ in whole[last:]] == whole[last:]
        assert again.ids == list(range(last + 1, len(whole) + 1))
        again.close()


@numbered
@every_store
async def test_reader_that_comes_back_after_the_end_gets_what_it_has_missed(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    first = await agent.stream()
    act = await puppet.next()
    act.tell("a", "b", "c")
    act.end()
    whole = await first.rest()
    task_id = whole[0]["task"]["id"]
    for last in range(1, len(whole)):
        again = await agent.subscribe(task_id, last_event_id=last)
        assert await again.rest() == whole[last:]
        assert again.ids == list(range(last + 1, len(whole) + 1))


@numbered
@every_store
@pytest.mark.requirement("subscribe.terminal-task-refused")
async def test_reader_that_has_seen_the_end_is_refused_when_it_comes_back(serve: Serve) -> None:
    agent = await serve(hello)
    stream = await agent.stream()
    task_id = (await stream.rest())[0]["task"]["id"]
    with refused("UnsupportedOperationError"):
        await agent.subscribe(task_id, last_event_id=stream.ids[-1])


@numbered
@every_store
async def test_last_event_of_a_time_before_the_agent_was_started_anew_is_gone_on_from(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    first = await agent.stream("begin")
    act = await puppet.next()
    act.tell("one", TaskStatus(TaskState.INPUT_REQUIRED))
    act.end()
    events = await first.rest()
    task_id = events[0]["task"]["id"]
    await act.stopped.wait()
    sending = asyncio.create_task(agent.task("go on", taskId=task_id))
    act = await puppet.next()
    act.tell("two")
    await agent.until(task_id, "WORKING")
    again = await agent.subscribe(task_id, last_event_id=2)
    act.end()
    missed = await again.rest()
    assert missed[: len(events) - 2] == events[2:]
    assert chunks(missed) == "onetwo"
    assert again.ids == list(range(3, 3 + len(missed)))
    await sending


@numbered
@pytest.mark.parametrize("last", [0, 999, 10**12])
@pytest.mark.requirement("subscribe.task-first")
async def test_last_event_that_cannot_be_is_answered_with_everything_there_is(serve: Serve, last: int) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await begun(agent, puppet)
    stream = await agent.subscribe(task["id"], last_event_id=last)
    assert list(await stream.next()) == ["task"]
    act.end()
    assert state_of((await stream.rest())[-1]) == "COMPLETED"
