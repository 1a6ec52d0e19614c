"""Lists of tasks while they change: in order, each once, none lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.engine.scene import CALLER, in_loop, says, serving, turns
from tests.engine.test_bursts import STORES
from tieline import Turn
from tieline.engine.service import Service
from tieline.stores.base import Store
from tieline.types import ListTasksRequest, Task


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return STORES[request.param](tmp_path)


async def pages(service: Service, size: int) -> list[list[Task]]:
    found: list[list[Task]] = []
    token = None
    while token != "":
        page = await service.list_tasks(ListTasksRequest(page_size=size, page_token=token), CALLER)
        found.append(list(page.tasks))
        token = page.next_page_token
    return found


@pytest.mark.requirement("list.newest-first", "list.cursor-pages", over=("direct",))
@in_loop
async def test_tasks_that_change_in_one_turn_of_the_loop_are_listed_in_the_order_of_their_status(store: Store) -> None:
    """An agent that ends at once is written before one that began a moment earlier and goes on."""

    async def works(turn: Turn) -> Any:
        if turn.text == "end":
            return "done"
        await turn.status("working")
        return await turn.ask("Which?")

    async with serving(works, store=store) as service:
        sent = [
            asyncio.ensure_future(service.send_message(says(text), CALLER))
            for text in ("stay", "end", "stay", "end", "end", "stay", "end")
        ]
        await asyncio.wait(sent)
        await turns()
        listed = [task for page in await pages(service, 100) for task in page]
        assert len(listed) == 7
        stamps = [(record.updated, record.task_id) for record in await all_records(service)]
        assert stamps == sorted(stamps, reverse=True)
        for size in (1, 2, 3):
            assert [task.id for page in await pages(service, size) for task in page] == [task.id for task in listed]


async def all_records(service: Service) -> list[Any]:
    from tieline.stores.base import Query

    return (await service.store.list(Query("0:/0:/", 100))).records


@pytest.mark.requirement("list.filter-timestamp", over=("direct",))
@in_loop
async def test_tasks_since_a_moment_are_all_found_though_they_were_written_out_of_turn(store: Store) -> None:
    async def works(turn: Turn) -> Any:
        if turn.text == "end":
            return "done"
        await turn.status("working")
        return await turn.ask("Which?")

    async with serving(works, store=store) as service:
        sent = [asyncio.ensure_future(service.send_message(says(text), CALLER)) for text in ("stay", "end") * 5]
        await asyncio.wait(sent)
        await turns()
        from tieline.stores.base import Query

        records = await all_records(service)
        for record in records:
            page = await store.list(Query("0:/0:/", 100, since=record.updated))
            wanted = {one.task_id for one in records if one.updated >= record.updated}
            assert {one.task_id for one in page.records} == wanted
            assert page.total == len(wanted)
