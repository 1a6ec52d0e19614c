"""What is left of tasks when a server stops and another one takes up its store."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.behaviour.agents import ENDS, Act, Puppet, asks, begun, ended, says
from tests.behaviour.harness import Json, Refused, Stream, Transport, eventually, refused, state_of, text_of
from tests.behaviour.serving import Serve, by_tenants, every_store, numbered, refuses_ended, stays_open, stores
from tieline import Message, Part, Role, TaskState, TaskStatus, Turn

sqlite = stores("sqlite")


async def after_a_crash(serve: Serve, agent: Transport, folder: Path) -> Transport:
    """The same agent on what the store's file held at this moment, as if the process had been killed now."""
    return await serve(agent.app.agents[""], store=f"sqlite:{_copied(folder, f'{agent.root[1:]}.db')}")


def _copied(folder: Path, name: str) -> Path:
    copy = folder / f"killed-{name}"
    for path in folder.glob(f"{name}*"):  # the file and what stands beside it, the write-ahead log
        if path.suffix != ".lock":
            shutil.copy(path, copy.with_name(f"killed-{path.name}"))
    return copy


async def cut_off(stream: Stream) -> list[Json]:
    """The events up to the end of a stream that the end of the server has ended. gRPC says so by a status."""
    events: list[Json] = []
    try:
        async for event in stream:
            events.append(event)  # noqa: PERF401 - an error comes behind them
    except Refused as refusal:
        check_cut_off(refusal)
    return events


def check_cut_off(refusal: Refused) -> None:
    assert (refusal.rpc_status, refusal.in_stream) == ("UNAVAILABLE", True)
    assert "shutting down" in refusal.message


async def said_half_way(agent: Transport, puppet: Puppet, **fields: Any) -> tuple[Json, Act]:
    """A task at work that has given and said something, all of it stored."""
    task, act = await begun(agent, puppet, **fields)
    act.tell("one ", {"n": 1}, says("half way"))

    async def is_half_way() -> bool:
        return (
            "message" in (await agent.get(task["id"], **{k: v for k, v in fields.items() if k == "tenant"}))["status"]
        )

    await eventually(is_half_way)
    return task, act


@refuses_ended
@every_store
@pytest.mark.requirement("get.current-state", "model.terminal-is-final")
async def test_ended_tasks_are_the_same_after_a_restart(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    before = [await ended(agent, puppet, state, contextId="c") for state in ENDS]
    listed = await agent.list(includeArtifacts=True)
    again = await serve.restart(agent)
    for task in before:
        assert await again.get(task["id"]) == task
        with refused("UnsupportedOperationError"):
            await again.send("more", taskId=task["id"])
        with refused("TaskNotCancelableError"):
            await again.cancel(task["id"])
        with refused("UnsupportedOperationError"):
            await again.subscribe(task["id"])
    assert await again.list(includeArtifacts=True) == listed
    newest = await ended(again, puppet, "COMPLETED")
    assert (await again.list(pageSize=1))["tasks"][0]["id"] == newest["id"]


@every_store
@pytest.mark.requirement("events.task-outlives-streams", "get.current-state")
async def test_task_at_work_when_the_server_stops_ends_failed_with_the_reason(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await said_half_way(agent, puppet)
    stream = await agent.subscribe(task["id"])
    await stream.next()
    again = await serve.restart(agent)
    assert act.cancelled
    done = await again.get(task["id"])
    assert (state_of(done), text_of(done)) == ("FAILED", "one ")
    assert "stopped" in text_of(done["status"]["message"])


@sqlite
async def test_followers_hear_how_their_task_ends_when_the_server_stops(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, _ = await begun(agent, puppet)
    asking, act = await begun(agent, puppet)
    act.tell(asks("Which one?"))
    await agent.until(asking["id"], "INPUT_REQUIRED")
    streams = [await agent.subscribe(task["id"]) for _ in range(3)]
    waiting = await agent.subscribe(asking["id"])
    for stream in (*streams, waiting):
        await stream.next()
    await serve.shut_down(agent)
    for stream in streams:
        assert [state_of(event) for event in await stream.rest()] == ["FAILED"]
    if agent.name != "direct":  # there it is the server that ends what does not end by itself
        assert await cut_off(waiting) == []


@sqlite
async def test_streams_of_resting_tasks_without_an_agent_at_work_end_when_the_server_stops(serve: Serve) -> None:
    async def asks_and_leaves(turn: Turn) -> Any:
        yield TaskStatus(TaskState.INPUT_REQUIRED, Message("q", Role.AGENT, (Part(text="Which one?"),)))

    agent = await serve(asks_and_leaves)
    task = await agent.task()
    http = agent.over("jsonrpc" if agent.name == "direct" else agent.name)
    stream = await http.subscribe(task["id"])
    await stream.next()
    await serve.shut_down(agent)
    assert await cut_off(stream) == []


@by_tenants
@sqlite
@pytest.mark.requirement("async.work-goes-on", "get.current-state", "model.task-states")
async def test_task_at_work_when_the_server_is_killed_does_not_say_working_for_ever(
    serve: Serve, tmp_path: Path
) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    working, _ = await said_half_way(agent, puppet)
    other, _ = await begun(agent, puppet, tenant="acme")
    again = await after_a_crash(serve, agent, tmp_path)
    done = await again.get(working["id"])
    assert (state_of(done), text_of(done)) == ("FAILED", "one ")
    assert done["artifacts"][0]["parts"][1] == {"data": {"n": 1}}
    assert text_of(done["status"]["message"])
    assert state_of(await again.as_tenant("acme").get(other["id"])) == "FAILED"
    assert [task["id"] for task in (await again.list())["tasks"]] == [working["id"]]
    with refused("UnsupportedOperationError"):
        await again.subscribe(working["id"])


@numbered
@sqlite
@pytest.mark.requirement("subscribe.nothing-lost")
async def test_reader_whose_server_was_killed_goes_on_behind_its_last_event(serve: Serve, tmp_path: Path) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    stream = await agent.stream()
    act = await puppet.next()
    act.tell("one", "two", says("three"), "four")
    seen = await stream.until("WORKING")
    seen += [await stream.next() for _ in range(4)]
    task_id = seen[0]["task"]["id"]
    again = await after_a_crash(serve, agent, tmp_path)
    for last in range(1, len(seen) + 1):
        missed = await again.subscribe(task_id, last_event_id=last)
        events = await missed.rest()
        assert events[:-1] == seen[last:]
        assert state_of(events[-1]) == "FAILED"
        assert missed.ids == list(range(last + 1, len(seen) + 2))


@stays_open
@every_store
@pytest.mark.requirement("turns.input-required-goes-on", "subscribe.any-open-state")
async def test_task_that_waits_for_its_caller_waits_on_after_a_restart_and_is_carried_on(serve: Serve) -> None:
    async def interviews(turn: Turn) -> Any:
        said = [m.text for m in turn.history]
        if "left" in (turn.text, *said):
            yield f"left, after {said}"
            return
        await turn.ask("Which one?")
        raise AssertionError("the server that asked is gone")

    agent = await serve(interviews)
    task = await agent.task("begin", contextId="c")
    again = await serve.restart(agent)
    assert await again.get(task["id"]) == task
    stream = await again.subscribe(task["id"])
    assert (await stream.next())["task"] == task
    done = await again.task("left", taskId=task["id"])
    assert state_of(done) == "COMPLETED"
    assert text_of(done) == "left, after ['begin', 'Which one?']"
    assert [text_of(m) for m in done["history"]] == ["begin", "Which one?", "left"]
    assert [state_of(event) for event in await stream.rest()] == ["WORKING", None, "COMPLETED"]


@sqlite
@pytest.mark.requirement("turns.input-required-goes-on")
async def test_task_that_waited_for_its_caller_when_the_server_was_killed_is_carried_on(
    serve: Serve, tmp_path: Path
) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await begun(agent, puppet)
    act.tell("before", asks("Which one?"))
    waiting = await agent.until(task["id"], "INPUT_REQUIRED")
    again = await after_a_crash(serve, agent, tmp_path)
    assert await again.get(task["id"]) == waiting
    stream = await again.stream("left", taskId=task["id"])
    act = await puppet.next()
    assert (act.turn.text, [m.text for m in act.turn.history]) == ("left", ["go", "Which one?"])
    act.tell("after")
    act.end()
    events = await stream.rest()
    assert state_of(events[-1]) == "COMPLETED"
    done = await again.get(task["id"])
    assert [text_of(artifact) for artifact in done["artifacts"]] == ["before", "after"]


@every_store
@pytest.mark.requirement("cancel.returns-updated-task")
async def test_task_that_waits_can_be_cancelled_after_a_restart(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await begun(agent, puppet)
    act.tell(asks("Which one?"))
    await agent.until(task["id"], "INPUT_REQUIRED")
    again = await serve.restart(agent)
    cancelled = await again.cancel(task["id"])
    assert state_of(cancelled) == "CANCELED"
    assert [text_of(m) for m in cancelled["history"]] == ["go", "Which one?"]


@numbered
@every_store
async def test_reader_goes_on_behind_its_last_event_after_a_restart(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    stream = await agent.stream()
    act = await puppet.next()
    act.tell("one", "two")
    act.end()
    whole = await stream.rest()
    again = await serve.restart(agent)
    missed = await again.subscribe(whole[0]["task"]["id"], last_event_id=2)
    assert await missed.rest() == whole[2:]


@by_tenants
@every_store
@pytest.mark.requirement("list.only-visible-tasks", "authorization.existence-hidden")
async def test_tenants_are_kept_apart_after_a_restart_too(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task = await ended(agent, puppet, "COMPLETED")
    again = await serve.restart(agent)
    with refused("TaskNotFoundError"):
        await again.as_tenant("acme").get(task["id"])
    assert (await again.as_tenant("acme").list())["totalSize"] == 0
    assert await again.get(task["id"]) == task


@every_store
@pytest.mark.requirement("list.newest-first", "list.cursor-pages")
async def test_page_token_given_before_a_restart_is_good_after_it(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    made = [(await ended(agent, puppet, "COMPLETED"))["id"] for _ in range(3)]
    page = await agent.list(pageSize=2)
    again = await serve.restart(agent)
    rest = await again.list(pageSize=2, pageToken=page["nextPageToken"])
    assert [task["id"] for task in (*page["tasks"], *rest["tasks"])] == made[::-1]
