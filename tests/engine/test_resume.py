"""Going on behind a Last-Event-ID: in a run, across a rest, after a restart, after the end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.engine.scene import CALLER, ask, in_loop, rest_of, says, serving, states, turns
from tests.stores.conftest import BACKENDS, FOR_EVER, SHARED
from tieline import Turn
from tieline.engine.service import Service
from tieline.errors import UnsupportedOperation
from tieline.stores.base import Store
from tieline.types import StreamEvent, SubscribeToTaskRequest, Task


# Those of one process: tests/replicas has what several share, where going on means going on elsewhere.
@pytest.fixture(params=[name for name in BACKENDS if name not in SHARED])
def store(request: pytest.FixtureRequest, tmp_path: Any) -> Store:
    return BACKENDS[request.param].make(tmp_path, FOR_EVER)


async def asks(turn: Turn) -> Any:
    for number in range(3):
        yield f"{number} "
    yield f"got {await turn.ask('Which?')}"
    yield f", {await turn.authorize('May I?')}"


async def behind(service: Service, task_id: str, number: int) -> list[tuple[int, StreamEvent]]:
    cursor = await service.subscribe_to_task(SubscribeToTaskRequest(task_id), CALLER, last_event_id=number)
    return await rest_of(cursor)


@in_loop
async def test_every_place_in_the_log_can_be_gone_on_from_while_the_task_runs(store: Store) -> None:
    async with serving(asks, store=store) as service:
        cursor = await service.send_streaming_message(says("begin"), CALLER)
        first = await rest_of(cursor)
        task = first[0][1]
        assert isinstance(task, Task)
        readers = [asyncio.ensure_future(behind(service, task.id, number)) for number in range(len(first) + 1)]
        await turns()
        await ask(service, "this", task_id=task.id)
        await ask(service, "yes", task_id=task.id)
        whole = await readers[0]
        assert whole[: len(first)] == first
        assert [number for number, _ in whole] == list(range(1, len(whole) + 1))
        for number, reader in enumerate(readers):
            assert await reader == whole[number:]
        assert service.runs == {}


@in_loop
async def test_every_place_in_the_log_can_be_gone_on_from_when_the_task_has_ended(store: Store) -> None:
    async with serving(asks, store=store) as service:
        first = await rest_of(await service.send_streaming_message(says("begin"), CALLER))
        task = first[0][1]
        assert isinstance(task, Task)
        watching = await service.subscribe_to_task(SubscribeToTaskRequest(task.id), CALLER, last_event_id=0)
        for text in ("this", "yes"):
            await ask(service, text, task_id=task.id)
        whole = await rest_of(watching)
        for number in range(len(whole)):
            assert await behind(service, task.id, number) == whole[number:]
        for number in (len(whole), len(whole) + 1, 2**63, 10**30):
            with pytest.raises(UnsupportedOperation):
                await behind(service, task.id, number)


@in_loop
async def test_a_place_before_a_restart_can_be_gone_on_from_behind_it(store: Store) -> None:
    """The run of the second service has only what came after; the rest is in the store."""
    async with serving(asks, store=store) as service:
        first = await rest_of(await service.send_streaming_message(says("begin"), CALLER))
        task = first[0][1]
        assert isinstance(task, Task)
        if hasattr(store, "path"):
            await service.close()
            await store.close()
            await store.open()
        again = Service(service.agent, store)
        await again.start()
        readers = [asyncio.ensure_future(behind(again, task.id, number)) for number in range(len(first) + 1)]
        await turns()
        answering = asyncio.ensure_future(ask(again, "one", task_id=task.id))
        assert (await answering).state.interrupted
        await ask(again, "two", task_id=task.id)
        await ask(again, "three", task_id=task.id)
        whole = await readers[0]
        assert whole[: len(first)] == first
        assert [number for number, _ in whole] == list(range(1, len(whole) + 1))
        assert states(whole)[-1] == "COMPLETED"
        for number, reader in enumerate(readers):
            assert await reader == whole[number:]
        assert again.runs == {}
        await again.close()


@in_loop
async def test_a_place_that_is_not_in_the_log_yet_begins_with_the_task(store: Store) -> None:
    async with serving(asks, store=store) as service:
        first = await rest_of(await service.send_streaming_message(says("begin"), CALLER))
        task = first[0][1]
        assert isinstance(task, Task)
        cursor = await service.subscribe_to_task(SubscribeToTaskRequest(task.id), CALLER, last_event_id=10**30)
        number, (event,) = cursor.take()
        assert number == len(first)
        assert isinstance(event.value, Task)
        cursor.close()
