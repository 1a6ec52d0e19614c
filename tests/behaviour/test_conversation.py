"""Contexts, task ids and conversations of several turns (A2A 1.0 §3.4)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.behaviour.agents import Puppet, asks, begun, hello
from tests.behaviour.harness import data, message, refused, state_of, text_of
from tests.behaviour.serving import Serve, by_tenants, direct_messages, every_store, not_over, unknown_ids
from tieline import Message, Part, Role, TaskState, TaskStatus, Turn


async def replies(turn: Turn) -> Message:
    return turn.reply(f"You said {turn.text}.")


# --- contexts ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("context.generated-is-returned")
async def test_context_of_the_agents_making_is_in_its_task_and_all_its_events(serve: Serve) -> None:
    agent = await serve(hello)
    first, second = await agent.task(), await agent.task()
    assert first["contextId"]
    assert first["contextId"] != second["contextId"]
    events = await (await agent.stream()).rest()
    contexts = {data(event)["contextId"] for event in events}
    assert len(contexts) == 1
    assert contexts.isdisjoint({first["contextId"], second["contextId"]})


@direct_messages
@pytest.mark.requirement("context.generated-is-returned", "model.agent-message-ids")
async def test_context_of_the_agents_making_is_in_its_direct_message(serve: Serve) -> None:
    agent = await serve(replies)
    first, second = [(await agent.send())["message"] for _ in range(2)]
    assert first["contextId"]
    assert first["contextId"] != second["contextId"]
    assert "taskId" not in first
    (event,) = await (await agent.stream()).rest()
    assert event["message"]["contextId"]
    assert "taskId" not in event["message"]


@every_store
@pytest.mark.requirement("context.never-replaced")
@pytest.mark.parametrize("context", ["mine", "ä/ö", "x" * 300, "0"])
async def test_context_of_the_callers_is_kept_in_task_events_and_messages(serve: Serve, context: str) -> None:
    agent = await serve(hello)
    task = await agent.task(contextId=context)
    assert task["contextId"] == context
    assert {m["contextId"] for m in task["history"]} == {context}
    assert (await agent.get(task["id"]))["contextId"] == context
    events = await (await agent.stream(contextId=context)).rest()
    assert {data(event)["contextId"] for event in events} == {context}


@direct_messages
@pytest.mark.requirement("context.never-replaced")
@pytest.mark.parametrize("context", ["mine", "ä/ö", "x" * 300, "0"])
async def test_context_of_the_callers_is_kept_in_a_direct_message(serve: Serve, context: str) -> None:
    agent = await serve(replies)
    assert (await agent.send(contextId=context))["message"]["contextId"] == context


@not_over("0.1", why="it is called sessionId")
@not_over("grpc", why="protobuf has no place for a value of a wrong type")
@pytest.mark.requirement("context.unacceptable-refused", "context.never-replaced")
@pytest.mark.parametrize("context", [5, {}, ["c"], True], ids=repr)
async def test_context_id_that_is_no_string_is_refused(serve: Serve, context: Any) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    with refused("InvalidParamsError") as refusal:
        await agent.send(contextId=context)
    assert "message.contextId" in refusal.violations
    with refused("InvalidParamsError"):
        await agent.stream(contextId=context)
    assert puppet.runs == 0


@every_store
@pytest.mark.requirement("context.one-conversation", "turns.agent-gets-context")
async def test_message_of_a_known_context_starts_a_new_task_that_knows_the_earlier_ones(serve: Serve) -> None:
    async def recalls(turn: Turn) -> Any:
        yield [task.history[0].text for task in await turn.context_tasks()]

    agent = await serve(recalls)
    first = await agent.task("one")
    second = await agent.task("two", contextId=first["contextId"])
    third = await agent.task("three", contextId=first["contextId"])
    await agent.task("elsewhere")
    assert len({task["id"] for task in (first, second, third)}) == 3
    assert {task["contextId"] for task in (first, second, third)} == {first["contextId"]}
    assert third["artifacts"][0]["parts"] == [{"data": ["two", "one"]}]
    listed = (await agent.list(contextId=first["contextId"]))["tasks"]
    assert [task["id"] for task in listed] == [third["id"], second["id"], first["id"]]


@by_tenants
@every_store
@pytest.mark.requirement("authorization.existence-hidden")
async def test_context_of_another_tenant_is_a_new_one_of_ones_own(serve: Serve) -> None:
    async def recalls(turn: Turn) -> Any:
        yield [task.id for task in await turn.context_tasks()]

    agent = await serve(recalls)
    await agent.as_tenant("one").task(contextId="same")
    task = await agent.as_tenant("two").task(contextId="same")
    assert task["artifacts"][0]["parts"] == [{"data": []}]
    assert (await agent.as_tenant("two").list(contextId="same"))["totalSize"] == 1


# --- task ids ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("task.id-unique", "task.id-returned")
async def test_tasks_made_at_the_same_time_have_ids_of_their_own(serve: Serve) -> None:
    agent = await serve(hello)
    other = await serve(hello)
    made = await asyncio.gather(*(one.task(str(number)) for number in range(50) for one in (agent, other)))
    assert len({task["id"] for task in made}) == 100
    for task in made[:4:2]:
        assert await agent.get(task["id"]) == task


@unknown_ids
@every_store
@pytest.mark.requirement("task.unknown-id-refused", "task.no-client-made-ids", "validation.before-processing")
async def test_task_id_of_the_callers_making_is_refused_and_makes_no_task(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    for call in (agent.send, agent.stream):
        with refused("TaskNotFoundError") as refusal:
            await call("begin", taskId="my-own-id")
        assert "my-own-id" in refusal.message
    with refused("TaskNotFoundError"):
        await agent.send("begin", taskId="my-own-id", contextId="mine")
    with refused("TaskNotFoundError"):
        await agent.get("my-own-id")
    assert (await agent.list())["totalSize"] == 0
    assert puppet.runs == 0


@unknown_ids
@pytest.mark.requirement("task.unknown-id-refused")
async def test_task_of_another_agent_is_unknown(serve: Serve) -> None:
    first, second = await serve(hello), await serve(hello)
    task = await first.task()
    with refused("TaskNotFoundError"):
        await second.send("go on", taskId=task["id"])


@not_over("grpc-0.3", why="one agent is served, as nothing names another")
@unknown_ids
@every_store
@pytest.mark.requirement("task.unknown-id-refused", "list.only-visible-tasks", "resource.not-found")
async def test_agents_on_one_host_keep_their_tasks_and_contexts_apart(serve: Serve) -> None:
    async def recalls(turn: Turn) -> Any:
        yield [task.id for task in await turn.context_tasks()]

    first = await serve({"one": recalls, "two": recalls})
    second = first.at("/two")
    task = await first.task(contextId="same")
    other = await second.task(contextId="same", referenceTaskIds=[task["id"]])
    assert other["artifacts"][0]["parts"] == [{"data": []}]
    for agent, mine, theirs in ((first, task, other), (second, other, task)):
        assert [listed["id"] for listed in (await agent.list())["tasks"]] == [mine["id"]]
        assert await agent.get(mine["id"]) == mine
        with refused("TaskNotFoundError"):
            await agent.get(theirs["id"])
        with refused("TaskNotFoundError"):
            await agent.send("go on", taskId=theirs["id"])
    assert (await first.card())["name"] == (await second.card())["name"] == "Tested"


# --- turns ------------------------------------------------------------------------------------------------------------


@every_store
@pytest.mark.requirement("turns.context-inferred", "turns.input-required-goes-on")
async def test_answer_with_a_task_id_alone_is_of_its_context(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await begun(agent, puppet, contextId="mine")
    act.tell(asks("Which one?"))
    await agent.until(task["id"], "INPUT_REQUIRED")
    sending = asyncio.create_task(agent.task("left", taskId=task["id"]))
    answer = await act.results.get()
    assert (answer, answer.message.context_id, answer.message.task_id) == ("left", "mine", task["id"])
    act.end()
    done = await sending
    assert (done["id"], done["contextId"]) == (task["id"], "mine")
    assert {m["contextId"] for m in done["history"]} == {"mine"}


@every_store
@pytest.mark.requirement("turns.mismatch-refused", "context.never-replaced", "context.unacceptable-refused")
async def test_message_whose_context_is_not_that_of_its_task_is_refused_and_changes_nothing(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await begun(agent, puppet, contextId="mine")
    act.tell(asks("Which one?"))
    before = await agent.until(task["id"], "INPUT_REQUIRED")
    for call in (agent.send, agent.stream):
        with refused("InvalidParamsError") as refusal:
            await call("left", taskId=task["id"], contextId="another")
        assert "message.contextId" in refusal.violations
    assert await agent.get(task["id"]) == before
    act.end()
    await agent.send("left", taskId=task["id"], contextId="mine")


@every_store
@pytest.mark.requirement("turns.mismatch-refused")
async def test_mismatch_is_refused_for_an_ended_task_too(serve: Serve) -> None:
    agent = await serve(hello)
    task = await agent.task(contextId="mine")
    with refused("InvalidParamsError"):
        await agent.send("more", taskId=task["id"], contextId="another")


@every_store
@pytest.mark.requirement("turns.input-required-goes-on", "mode.blocking-waits")
async def test_task_that_asks_goes_on_with_each_answer(serve: Serve) -> None:
    async def books(turn: Turn) -> Any:
        where = await turn.ask("Where to?")
        when = await turn.ask(f"When to {where}?")
        yield f"{where}, {when}"

    agent = await serve(books)
    task = await agent.task("Book a flight.")
    assert (state_of(task), text_of(task["status"]["message"])) == ("INPUT_REQUIRED", "Where to?")
    task = await agent.task("Rome", taskId=task["id"], contextId=task["contextId"])
    assert (state_of(task), text_of(task["status"]["message"])) == ("INPUT_REQUIRED", "When to Rome?")
    done = await agent.task("Monday", taskId=task["id"])
    assert (state_of(done), text_of(done)) == ("COMPLETED", "Rome, Monday")
    said = ["Book a flight.", "Where to?", "Rome", "When to Rome?", "Monday"]
    assert [text_of(m) for m in done["history"]] == said


@every_store
@pytest.mark.requirement("turns.input-required-goes-on")
async def test_agent_that_has_returned_with_a_question_is_started_anew_by_the_answer(serve: Serve) -> None:
    started = []

    async def asks_and_leaves(turn: Turn) -> Any:
        started.append(turn.text)
        if len(started) < 3:
            yield f"part {len(started)}"
            yield TaskStatus(TaskState.INPUT_REQUIRED, Message("q", Role.AGENT, (Part(text="More?"),)))
        else:
            await turn.complete("That is all.")

    agent = await serve(asks_and_leaves)
    task = await agent.task("begin")
    for text in ("more", "enough"):
        assert state_of(task) == "INPUT_REQUIRED"
        task = await agent.task(text, taskId=task["id"])
    assert state_of(task) == "COMPLETED"
    assert started == ["begin", "more", "enough"]
    assert [text_of(artifact) for artifact in task["artifacts"]] == ["part 1", "part 2"]
    assert [text_of(m) for m in task["history"]] == ["begin", "More?", "more", "More?", "enough"]


@by_tenants
@every_store
@pytest.mark.requirement("turns.agent-gets-references", "authorization.existence-hidden")
async def test_agent_reads_the_tasks_that_a_message_references_but_not_those_of_others(serve: Serve) -> None:
    async def compares(turn: Turn) -> Any:
        yield [[task.id, task.state.value, task.text] for task in turn.references]

    agent = await serve(compares)
    first, second = await agent.task("one"), await agent.task("two")
    foreign = await agent.as_tenant("other").task("three")
    ids = [second["id"], "no-such-task", foreign["id"], first["id"]]
    task = await agent.task("compare", referenceTaskIds=ids)
    expected = [[task["id"], "TASK_STATE_COMPLETED", ""] for task in (second, first)]
    assert task["artifacts"][0]["parts"] == [{"data": expected}]
    assert task["history"][0]["referenceTaskIds"] == ids


@pytest.mark.requirement("turns.agent-gets-references")
async def test_agent_that_was_asked_again_reads_the_tasks_that_the_answer_references(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    other = await agent.task(message("one"), configuration={"returnImmediately": True})
    (await puppet.next()).end()
    await agent.until(other["id"], "COMPLETED")
    task, act = await begun(agent, puppet)
    act.tell(asks("Which one do you mean?"))
    await agent.until(task["id"], "INPUT_REQUIRED")
    sending = asyncio.create_task(agent.task("this", taskId=task["id"], referenceTaskIds=[other["id"]]))
    await act.results.get()
    assert [task.id for task in act.turn.references] == [other["id"]]
    act.end()
    await sending
