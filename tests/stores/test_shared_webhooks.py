"""Webhooks in stores that several processes use at once: who delivers which, and who takes over from the dead."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from msgspec.structs import replace

from tests.engine.scene import in_loop
from tests.stores.conftest import SharedPlace
from tests.stores.test_shared import two
from tests.stores.test_webhooks import LIMIT, Task, failed, give_up, hook, noted, of
from tests.stores.writing import COMPLETED, Ticks, Written, write
from tieline.stores.base import SharedStore, Webhook


async def set_mine(store: SharedStore, webhook: Webhook) -> Webhook:
    """Set a webhook that this replica delivers."""
    mine = replace(webhook, owner=store.replica)
    assert await store.set_webhook(mine, LIMIT)
    return mine


async def owners(store: SharedStore, task: Written | Task) -> dict[str, str]:
    """Who delivers which webhook of a task."""
    return {one.id: one.owner for one in await of(store, task)}


async def taken(store: SharedStore, prefix: str = "", limit: int = 100) -> list[Webhook]:
    """All that there is to take."""
    found: list[Webhook] = []
    while some := await store.take_webhooks(prefix, limit):
        assert len(some) <= limit
        found += some
    return found


@in_loop
async def test_a_webhook_is_of_the_replica_that_sets_it_as_its_own_else_nobodys(shared_place: SharedPlace) -> None:
    async with two(shared_place) as (one, other):
        await set_mine(one, hook(Task(), "mine"))
        await one.set_webhook(hook(Task(), "nobody's"), LIMIT)
        await one.set_webhook(hook(Task(), "another's", owner=other.replica), LIMIT)
        assert await owners(other, Task()) == {"mine": one.replica, "nobody's": "", "another's": ""}


@in_loop
async def test_what_a_living_replica_delivers_is_not_claimed_and_the_rest_is(shared_place: SharedPlace) -> None:
    async with two(shared_place) as (one, other), shared_place.another() as dead:
        await set_mine(one, hook(Task(), "one's"))
        await set_mine(other, hook(Task(), "other's"))
        await set_mine(dead, hook(Task(), "dead one's"))  # which has never said that it is alive
        await other.set_webhook(hook(Task(), "nobody's"), LIMIT)
        await give_up(one, await set_mine(one, hook(Task(), "given up")), 9)
        for _ in range(2):
            claimed = await other.claim_webhooks("0:/0:/", "t")
            assert {(webhook.id, webhook.owner) for webhook in claimed} == {
                (name, other.replica) for name in ("other's", "dead one's", "nobody's")
            }
        assert [webhook.id for webhook in await one.claim_webhooks("0:/0:/", "t")] == ["one's"]
        assert (await owners(one, Task()))["given up"] == ""


@in_loop
async def test_who_takes_over_goes_on_with_the_streak_of_failures(shared_place: SharedPlace) -> None:
    async with two(shared_place) as (one, other):
        task = Written(Ticks())
        await write(one, task.make())
        webhook = await set_mine(one, hook(task))
        one.failing(webhook, 0, 50)
        one.release_webhook(webhook)
        await of(one, task)
        (found,) = await other.take_webhooks("")
        assert found == replace(webhook, owner=other.replica, failing=50)
        await failed(other, found, 0, 70)
        assert await of(one, task) == [found]


@in_loop
async def test_of_several_that_claim_at_once_each_webhook_goes_to_one(shared_place: SharedPlace) -> None:
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(shared_place.first())]
        stores += [await stack.enter_async_context(shared_place.another()) for _ in range(4)]
        await asyncio.gather(*(store.beat() for store in stores))
        for number in range(20):
            task = Task(task_id=f"{number}")
            names = {"a", "b", "c"}
            await asyncio.gather(*(stores[0].set_webhook(hook(task, name), LIMIT) for name in names))
            claimed = await asyncio.gather(*(store.claim_webhooks(task.scope, task.task_id) for store in stores))
            assert sorted(webhook.id for some in claimed for webhook in some) == sorted(names)
            for store, some in zip(stores, claimed, strict=True):
                assert {webhook.owner for webhook in some} <= {store.replica}


@in_loop
async def test_each_webhook_of_a_dead_replica_goes_to_one_of_those_that_take_at_once(shared_place: SharedPlace) -> None:
    async with shared_place.first() as dead, shared_place.another() as one, shared_place.another() as other:
        beats = (await dead.beat())[dead.replica]
        await asyncio.gather(one.beat(), other.beat())
        ticks = Ticks()
        tasks = [Written(ticks) for _ in range(300)]
        await asyncio.gather(*(write(dead, task.make()) for task in tasks))
        await asyncio.gather(*(set_mine(dead, hook(task)) for task in tasks))
        assert not await one.take_webhooks("")
        assert await one.bury(dead.replica, beats)
        found = await asyncio.gather(taken(one, limit=7), taken(other, limit=50), taken(one, limit=30))
        assert sorted(webhook.task_id for some in found for webhook in some) == sorted(task.task_id for task in tasks)
        for store, some in zip((one, other, one), found, strict=True):
            assert {webhook.owner for webhook in some} <= {store.replica}
            for webhook in some[::40]:
                assert list(await dead.webhooks(webhook.scope, webhook.task_id)) == [webhook]


@in_loop
async def test_one_that_takes_again_gets_only_what_it_does_not_have(shared_place: SharedPlace) -> None:
    async with two(shared_place) as (one, other):
        task = Written(Ticks())
        await write(one, task.make())
        await set_mine(one, hook(task, "a"))
        await one.set_webhook(hook(task, "b"), LIMIT)
        assert [webhook.id for webhook in await one.take_webhooks("")] == ["b"]
        assert not await one.take_webhooks("")
        assert not await other.take_webhooks("")


@in_loop
async def test_a_webhook_that_was_released_is_nobodys_behind_what_was_noted_of_it(shared_place: SharedPlace) -> None:
    async with two(shared_place) as (one, other):
        task = Written(Ticks())
        await write(one, task.make(), task.chunks("a"))
        webhook = await set_mine(one, hook(task))
        writing = one.delivered(webhook, 2)
        one.release_webhook(webhook)
        assert await of(one, task) == [replace(webhook, owner="", after=2)]
        (found,) = await other.take_webhooks("")
        assert (found.owner, found.after) == (other.replica, 2)
        if writing is not None:
            await writing
        one.release_webhook(found)  # which is another one's
        assert await of(one, task) == [found]
        new = await set_mine(other, hook(task, created=77))
        other.release_webhook(found)  # which was replaced
        assert await of(other, task) == [new]


@in_loop
async def test_a_webhook_that_was_released_can_be_had_by_who_hears_of_it(shared_place: SharedPlace) -> None:
    async with two(shared_place) as (one, _):
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        reader = shared_place.made()
        reader.listen(heard.put_nowait, lambda: None)
        await reader.open()
        try:
            await reader.beat()
            for number in range(30):
                webhook = await set_mine(one, hook(Task(task_id=f"{number}")))
                one.release_webhook(webhook)
                one.post(reader.replica, [b"yours"])
                await heard.get()
                assert len(await reader.claim_webhooks(webhook.scope, webhook.task_id)) == 1
        finally:
            await reader.close()


@in_loop
async def test_what_was_delivered_to_the_end_of_an_ended_task_is_not_looked_for(shared_place: SharedPlace) -> None:
    async with two(shared_place) as (one, other):
        ticks = Ticks()
        ended, late, short = (Written(ticks) for _ in range(3))
        for task in (ended, late, short):
            await write(one, task.make())
        webhooks = [await set_mine(one, hook(task)) for task in (ended, late, short)]
        for task in (ended, late, short):
            await write(one, task.go(COMPLETED))
        await noted(one, webhooks[0], 3)
        await noted(one, webhooks[2], 2)
        await other.bury(one.replica, (await one.beat())[one.replica])
        assert sorted(webhook.task_id for webhook in await taken(other)) == sorted([late.task_id, short.task_id])
        assert [webhook.after for webhook in await of(other, ended)] == [3]
        again = await set_mine(other, hook(ended, created=5, after=3))
        other.release_webhook(again)
        assert not await one.take_webhooks("")
        await other.set_webhook(hook(ended, created=6, after=2), LIMIT)
        await one.beat()
        assert [webhook.task_id for webhook in await one.take_webhooks("")] == [ended.task_id]


@in_loop
async def test_a_webhook_that_is_replaced_under_delivery_is_of_who_has_replaced_it(shared_place: SharedPlace) -> None:
    async with two(shared_place) as (one, other):
        task = Written(Ticks())
        await write(one, task.make(), task.chunks("a"))
        old = await set_mine(one, hook(task))
        new = await set_mine(other, hook(task, created=99, after=1, config=b"{}"))
        await noted(one, old, 3)
        await give_up(one, old, 9)
        one.release_webhook(old)
        assert await of(one, task) == [new]
        assert not await one.take_webhooks("")
        assert not await one.claim_webhooks(task.scope, task.task_id)


@in_loop
async def test_who_does_not_deliver_a_webhook_any_more_cannot_give_it_up(shared_place: SharedPlace) -> None:
    async with two(shared_place) as (one, other):
        task = Written(Ticks())
        await write(one, task.make())
        webhook = await set_mine(one, hook(task))
        await other.bury(one.replica, (await one.beat())[one.replica])
        (found,) = await other.take_webhooks("")
        await give_up(one, webhook, 9)
        assert await of(one, task) == [found]
        await noted(one, webhook, 1)  # it was delivered all the same
        assert await of(one, task) == [replace(found, after=1)]
        await give_up(other, found, 9)
        (dead,) = await one.dead_webhooks("")
        assert (dead.owner, dead.dead) == ("", 9)
        assert not await one.take_webhooks("")
        assert not await one.claim_webhooks(task.scope, task.task_id)
        assert await one.revive_webhook(task.scope, task.task_id, "h")
        (revived,) = await one.take_webhooks("")
        assert (revived.owner, revived.dead, revived.after) == (one.replica, None, 1)


@in_loop
async def test_webhooks_that_several_replicas_set_at_once_are_no_more_than_the_limit(shared_place: SharedPlace) -> None:
    async with two(shared_place) as (one, other):
        kept = await asyncio.gather(
            *(store.set_webhook(hook(Task(), f"{store.replica}{n}"), 3) for n in range(5) for store in (one, other))
        )
        assert sum(kept) == 3
        assert len(await of(one, Task())) == 3


@in_loop
async def test_what_several_replicas_note_at_once_is_the_furthest(shared_place: SharedPlace) -> None:
    async with two(shared_place) as (one, other):
        webhooks = [hook(Task(task_id=f"{number}")) for number in range(30)]
        await asyncio.gather(*(one.set_webhook(webhook, LIMIT) for webhook in webhooks))
        for round_ in range(1, 4):
            notes = [noted(one, webhook, 10 * round_) for webhook in webhooks]
            notes += [noted(other, webhook, 10 * round_ + 5) for webhook in reversed(webhooks)]
            await asyncio.gather(*notes)
            for webhook in webhooks:
                assert [found.after for found in await other.webhooks(webhook.scope, webhook.task_id)] == [
                    10 * round_ + 5
                ]


@in_loop
async def test_while_replicas_come_and_go_no_webhook_is_ever_with_two(shared_place: SharedPlace) -> None:
    """Whatever they do at once: take, claim, let go, and join just then."""
    async with shared_place.first() as first:
        task = Written(Ticks())
        await write(first, task.make())
        for number in range(9):
            await first.set_webhook(hook(task, f"{number}"), LIMIT)
        held: dict[str, str] = {}
        got = 0

        async def live(seed: int) -> None:
            nonlocal got
            for round_ in range(4):
                async with shared_place.another() as store:
                    await store.beat()
                    for step in range(12):
                        if (seed + round_ + step) % 3:
                            mine = await store.take_webhooks("", 3)
                        else:
                            mine = await store.claim_webhooks(task.scope, task.task_id)
                        for webhook in mine:
                            assert held.setdefault(webhook.id, store.replica) == store.replica
                        await asyncio.sleep(0)
                        got += len(mine)
                        for webhook in mine:
                            del held[webhook.id]
                            store.release_webhook(webhook)

        await asyncio.gather(*(live(seed) for seed in range(8)))
        assert got > 100
        assert not held
        assert set((await owners(first, task)).values()) == {""}
