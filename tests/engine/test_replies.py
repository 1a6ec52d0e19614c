"""Direct messages, and agents that say nothing for a while."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.engine.scene import CALLER, in_loop, rest_of, says, serving, states, turns
from tieline import Turn
from tieline.types import ListTasksRequest, Message, Task, TaskState


@in_loop
async def test_a_direct_message_leaves_no_task_no_run_and_nothing_in_the_store() -> None:
    async def replies(turn: Turn) -> Message:
        return turn.reply("hello")

    async with serving(replies) as service:
        for at_once in (False, True):
            answer = (await service.send_message(says("hi", at_once=at_once), CALLER)).value
            assert isinstance(answer, Message)
            assert (answer.text, answer.task_id) == ("hello", None)
        cursor = await service.send_streaming_message(says("hi"), CALLER)
        ((number, streamed),) = await rest_of(cursor)
        assert isinstance(streamed, Message)
        assert (number, streamed.text) == (0, "hello")
        assert service.runs == {}
        assert service.busy == 0
        assert (await service.list_tasks(ListTasksRequest(), CALLER)).total_size == 0


@pytest.mark.parametrize("streaming", [False, True])
@in_loop
async def test_a_direct_message_is_told_though_its_agent_takes_its_time_to_clean_up(streaming: bool) -> None:
    clean = asyncio.Event()

    async def replies(turn: Turn) -> Any:
        try:
            yield turn.reply("hello")
        finally:
            await clean.wait()

    async with serving(replies) as service:
        if streaming:
            cursor = await service.send_streaming_message(says("hi"), CALLER)
            ((_, answer),) = await rest_of(cursor)
        else:
            answer = (await service.send_message(says("hi"), CALLER)).value
        assert isinstance(answer, Message)
        assert service.busy == 1
        clean.set()
        await turns()
        assert service.busy == 0


@in_loop
async def test_what_an_agent_says_behind_its_direct_message_makes_no_task() -> None:
    async def replies(turn: Turn) -> Any:
        try:
            yield turn.reply("hello")
        finally:
            await turn.status("but one more thing")

    async with serving(replies) as service:
        answer = (await service.send_message(says("hi"), CALLER)).value
        assert isinstance(answer, Message)
        cursor = await service.send_streaming_message(says("hi"), CALLER)
        assert len(await rest_of(cursor)) == 1
        await turns()
        assert service.runs == {}
        assert (await service.list_tasks(ListTasksRequest(), CALLER)).total_size == 0


@in_loop
async def test_an_agent_that_has_been_silent_for_its_time_becomes_a_task_and_a_reply_then_ends_it() -> None:
    go_on = asyncio.Event()

    async def slow(turn: Turn) -> Message:
        await go_on.wait()
        return turn.reply("hello")

    async with serving(slow, task_after_s=0.0) as service:
        cursor = await service.send_streaming_message(says("hi"), CALLER)
        await cursor.wait()  # until the next tick
        _, events = cursor.take()
        assert isinstance(events[0].value, Task)
        go_on.set()
        ended = [event.value for event in events] + [event for _, event in await rest_of(cursor)]
        assert states([(0, event) for event in ended]) == ["SUBMITTED", "WORKING", "COMPLETED"]
        assert "hello" in str(ended[-1])


@in_loop
async def test_an_agent_that_says_nothing_at_all_completes_a_task_without_artifacts() -> None:
    async def silent(turn: Turn) -> None:
        return None

    async with serving(silent) as service:
        task = (await service.send_message(says("hi"), CALLER)).value
        assert isinstance(task, Task)
        assert (task.state, task.artifacts) == (TaskState.COMPLETED, ())
        cursor = await service.send_streaming_message(says("hi"), CALLER)
        assert states(await rest_of(cursor))[-1] == "COMPLETED"
        assert service.runs == {}


@in_loop
async def test_a_send_that_returns_at_once_while_the_agent_is_silent_makes_it_a_task() -> None:
    go_on = asyncio.Event()

    async def slow(turn: Turn) -> Message:
        await go_on.wait()
        return turn.reply("hello")

    async with serving(slow, task_after_s=None) as service:
        task = (await service.send_message(says("hi", at_once=True), CALLER)).value
        assert isinstance(task, Task)
        assert task.state is TaskState.WORKING
        assert [id_ for _, id_ in service.runs] == [task.id]
        go_on.set()
        await turns()
        assert service.runs == {}
