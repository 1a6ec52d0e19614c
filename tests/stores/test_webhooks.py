"""Webhooks: where a task's events are sent to, how far that has come, and what was given up."""

from __future__ import annotations

import asyncio

import msgspec
from msgspec.structs import replace

from tests.engine.scene import in_loop
from tests.stores.conftest import Place
from tests.stores.writing import COMPLETED, Ticks, Written, outcomes, write
from tieline.stores.base import Retention, Store, Webhook
from tieline.types import TaskState

S = 1_000_000
DAY = 24 * 3600 * S
LIMIT = 10
ASKS = TaskState.INPUT_REQUIRED


def hook(task: Written | Task, id: str = "h", **fields: object) -> Webhook:
    """A webhook of a task, as it is set."""
    config = b'{"id":"%s","url":"https://hooks.example/\xc3\xa9","token":"secret"}' % id.encode()
    return replace(Webhook(task.scope, task.task_id, id, config, "1.0", after=0, created=1_000_000), **fields)


class Task(msgspec.Struct, frozen=True):
    """A task that is not in the store."""

    scope: str = "0:/0:/"
    task_id: str = "t"


async def of(store: Store, task: Written | Task) -> list[Webhook]:
    return list(await store.webhooks(task.scope, task.task_id))


async def noted(store: Store, webhook: Webhook, after: int) -> None:
    """Note how far a webhook has come, durably."""
    if (writing := store.delivered(webhook, after)) is not None:
        await writing


async def failed(store: Store, webhook: Webhook, after: int, at: int) -> None:
    """Note since when a webhook fails, durably."""
    if (writing := store.failing(webhook, after, at)) is not None:
        await writing


async def give_up(store: Store, webhook: Webhook, at: int, after: int = 0, failed: int = 3) -> None:
    await store.give_up_webhook(webhook, after, failed, at, "it does not answer")


# --- keeping ----------------------------------------------------------------------------------------------------------


@in_loop
async def test_a_webhook_is_kept_as_it_was_set(place: Place) -> None:
    async with place.opened() as store:
        task = Written(Ticks())
        await write(store, task.make())
        webhook = hook(task, after=2, version="0.3", created=1_764_500_000_123_456, failing=1_764_500_000_123_457)
        assert await store.set_webhook(webhook, LIMIT)
        assert await of(store, task) == [webhook]
        assert await of(store, Task(task.scope, "another")) == []


@in_loop
async def test_webhooks_of_a_task_are_listed_the_oldest_first(place: Place) -> None:
    async with place.opened() as store:
        made = [hook(Task(), name, created=at) for name, at in (("b", 5), ("z", 3), ("a", 5), ("é", 4), ("B", 5))]
        for webhook in made:
            assert await store.set_webhook(webhook, LIMIT)
        assert [one.id for one in await of(store, Task())] == ["z", "é", "B", "a", "b"]


@in_loop
async def test_a_webhook_takes_the_place_of_the_one_of_its_id(place: Place) -> None:
    async with place.opened() as store:
        old, other = hook(Task(), "a", created=1), hook(Task(), "b", created=2)
        new = hook(Task(), "a", created=3, config=b"{}", after=7, version="0.2")
        for webhook in (old, other):
            assert await store.set_webhook(webhook, LIMIT)
        await give_up(store, old, 100)
        assert await store.set_webhook(new, LIMIT)
        assert await of(store, Task()) == [other, new]
        assert not await store.dead_webhooks("")
        assert (await store.stats()).webhooks == 2


@in_loop
async def test_a_task_has_no_more_webhooks_than_the_limit(place: Place) -> None:
    async with place.opened() as store:
        for number in range(3):
            assert await store.set_webhook(hook(Task(), f"{number}"), 3)
        before = await of(store, Task())
        assert not await store.set_webhook(hook(Task(), "3"), 3)
        assert await of(store, Task()) == before
        assert await store.set_webhook(hook(Task(), "3"), 4)
        assert await store.set_webhook(hook(Task(), "1", created=5), 4), "it takes the place of one"
        assert not await store.set_webhook(hook(Task(), "1", created=6), 3)
        assert await store.set_webhook(hook(Task(task_id="u")), 1), "another task"
        assert await store.set_webhook(hook(Task(scope="x")), 1), "another scope"
        assert not await store.set_webhook(hook(Task(task_id="v")), 0)


@in_loop
async def test_webhooks_that_are_set_at_once_are_no_more_than_the_limit(place: Place) -> None:
    async with place.opened() as store:
        kept = await asyncio.gather(*(store.set_webhook(hook(Task(), f"{number}"), 3) for number in range(12)))
        assert sum(kept) == 3
        assert len(await of(store, Task())) == 3


@in_loop
async def test_a_webhook_that_was_dropped_is_gone(place: Place) -> None:
    async with place.opened() as store:
        for name in ("a", "b"):
            await store.set_webhook(hook(Task(), name), LIMIT)
        assert not await store.drop_webhook("0:/0:/", "t", "c")
        assert not await store.drop_webhook("0:/0:/", "u", "a")
        assert not await store.drop_webhook("another scope", "t", "a")
        assert await store.drop_webhook("0:/0:/", "t", "a")
        assert not await store.drop_webhook("0:/0:/", "t", "a")
        assert [one.id for one in await of(store, Task())] == ["b"]
        assert (await store.stats()).webhooks == 1


@in_loop
async def test_texts_of_a_webhook_may_be_anything_and_are_told_apart(place: Place) -> None:
    async with place.opened() as store:
        texts = ["", "a", "a:b", "é\U0001f600", "%_*", "x" * 10_000, "'; --"]
        for number, text in enumerate(texts):
            webhook = hook(Task(task_id=text), "h" + text, config=bytes(range(256)) * 40, created=number + 1)
            assert await store.set_webhook(webhook, LIMIT)
        for number, text in enumerate(texts):
            webhook = hook(Task(task_id=text), "h" + text, config=bytes(range(256)) * 40, created=number + 1)
            assert await of(store, Task(task_id=text)) == [webhook]


@in_loop
async def test_a_webhook_shows_no_credentials(place: Place) -> None:
    async with place.opened() as store:
        await store.set_webhook(hook(Task(), config=b"secret", reason="secret"), LIMIT)
        (found,) = await of(store, Task())
        assert found.config == b"secret"
        assert "secret" not in f"{found} {found!r} {[found]}"
        assert "'h' of task 't'" in repr(found)


# --- how far it has come ----------------------------------------------------------------------------------------------


@in_loop
async def test_what_was_delivered_is_noted_and_never_goes_back(place: Place) -> None:
    async with place.opened() as store:
        webhook, other = hook(Task(), "a"), hook(Task(), "b")
        for one in (webhook, other):
            await store.set_webhook(one, LIMIT)
        for after, found in ((3, 3), (2, 3), (9, 9)):
            await noted(store, webhook, after)
            assert await of(store, Task()) == [replace(webhook, after=found), other]


@in_loop
async def test_a_read_in_the_turn_of_a_note_sees_it(place: Place) -> None:
    async with place.opened() as store:
        webhooks = [hook(Task(task_id=f"{number}")) for number in range(100)]
        await asyncio.gather(*(store.set_webhook(webhook, LIMIT) for webhook in webhooks))
        begun = [store.delivered(webhook, 5) for webhook in webhooks]
        begun += [store.delivered(webhook, 4) for webhook in webhooks]
        for webhook in webhooks:
            assert [one.after for one in await store.webhooks(webhook.scope, webhook.task_id)] == [5]
        await asyncio.gather(*(one for one in begun if one is not None))


@in_loop
async def test_a_note_in_a_turn_with_appends_is_written_whatever_becomes_of_them(place: Place) -> None:
    async with place.opened() as store:
        ticks = Ticks()
        task, stale = Written(ticks), Written(ticks)
        await write(store, task.make(), stale.make())
        webhook = hook(task)
        await store.set_webhook(webhook, LIMIT)
        for after, good in ((1, True), (2, False)):
            append = stale.chunks("x")
            append.after = 77
            writing = store.delivered(webhook, after)
            errors = await outcomes(store, [append, *([task.chunks("a")] if good else [])])
            assert [error is None for error in errors] == [False, *([True] if good else [])]
            if writing is not None:
                await writing
            assert [one.after for one in await of(store, task)] == [after]


@in_loop
async def test_a_note_of_what_was_dropped_or_replaced_changes_nothing(place: Place) -> None:
    async with place.opened() as store:
        old, new = hook(Task(), created=1, after=1), hook(Task(), created=2, after=4)
        await store.set_webhook(old, LIMIT)
        await store.set_webhook(new, LIMIT)
        await noted(store, old, 9)
        await give_up(store, old, 9)
        assert await of(store, Task()) == [new]
        both = [store.delivered(old, 9), store.delivered(new, 5)]
        await asyncio.gather(*(one for one in both if one is not None))
        assert await of(store, Task()) == [replace(new, after=5)]
        await store.drop_webhook("0:/0:/", "t", "h")
        await noted(store, new, 9)
        await give_up(store, new, 9)
        assert await of(store, Task()) == []


@in_loop
async def test_streak_of_failures_is_told_from_its_first_one_until_more_was_delivered(place: Place) -> None:
    async with place.opened() as store:
        webhook, other = hook(Task(), "a", after=2), hook(Task(), "b", after=2)
        for one in (webhook, other):
            await store.set_webhook(one, LIMIT)
        for after, at, found in (
            (2, 50, (2, 50)),
            (2, 60, (2, 50)),
            (2, 40, (2, 50)),
            (2, None, (2, 50)),  # nothing new was delivered
            (1, 30, (2, 50)),
            (3, 70, (3, 70)),  # what it failed with was delivered, and the next one fails
            (3, None, (3, 70)),
            (4, None, (4, None)),
            (3, 80, (4, None)),  # comes late
            (4, 90, (4, 90)),
        ):
            await (noted(store, webhook, after) if at is None else failed(store, webhook, after, at))
            expected = replace(webhook, after=found[0], failing=found[1])
            assert await of(store, Task()) == [expected, other]
        assert [one.failing for one in await store.claim_webhooks("0:/0:/", "t")] == [90, None]


@in_loop
async def test_notes_of_one_turn_are_written_as_if_each_were_written_alone(place: Place) -> None:
    async with place.opened() as store:
        webhook = hook(Task())
        await store.set_webhook(webhook, LIMIT)
        for notes, found in (
            ([(1, None), (1, 50), (1, 60)], (1, 50)),
            ([(1, 70), (2, None)], (2, None)),
            ([(3, 80), (2, 90)], (3, 80)),
            ([(4, None), (3, 85)], (4, None)),
        ):
            begun = [
                store.delivered(webhook, after) if at is None else store.failing(webhook, after, at)
                for after, at in notes
            ]
            assert await of(store, Task()) == [replace(webhook, after=found[0], failing=found[1])]
            await asyncio.gather(*(one for one in begun if one is not None))


@in_loop
async def test_failure_of_what_was_dropped_or_replaced_changes_nothing(place: Place) -> None:
    async with place.opened() as store:
        old, new = hook(Task(), created=1), hook(Task(), created=2)
        await store.set_webhook(old, LIMIT)
        await failed(store, old, 0, 50)
        await store.set_webhook(new, LIMIT)
        await failed(store, old, 0, 60)
        assert await of(store, Task()) == [new]
        await store.drop_webhook("0:/0:/", "t", "h")
        await failed(store, new, 0, 70)
        assert await of(store, Task()) == []


@in_loop
async def test_what_is_behind_the_log_is_taken_and_what_is_not_stays(place: Place) -> None:
    async with place.opened() as store:
        ticks = Ticks()
        behind, level, ended, waits = (Written(ticks) for _ in range(4))
        await write(store, behind.make(), level.make(), ended.make(), ended.go(COMPLETED), waits.make(), waits.go(ASKS))
        for task, after in ((behind, 1), (level, 2), (ended, 2), (waits, 0)):
            await store.set_webhook(hook(task, after=after), LIMIT)
        await store.set_webhook(hook(behind, "dead"), LIMIT)
        await give_up(store, hook(behind, "dead"), 9)
        await store.set_webhook(hook(Task()), LIMIT)  # its task is not there
        taken = await store.take_webhooks("")
        assert sorted(one.task_id for one in taken) == sorted(task.task_id for task in (behind, ended, waits))
        assert {one.id for one in taken} == {"h"}
        for one in taken:
            assert one in await store.webhooks(one.scope, one.task_id)


@in_loop
async def test_only_webhooks_of_scopes_with_the_prefix_are_taken_and_told(place: Place) -> None:
    scopes = ["a%/1", "a%/2", "a_/1", "A%/1", "a", "é/1"]
    async with place.opened() as store:
        ticks = Ticks()
        for scope in scopes:
            task = Written(ticks, scope=scope)
            await write(store, task.make())
            for name in ("alive", "dead"):
                await store.set_webhook(hook(task, name), LIMIT)
            await give_up(store, hook(task, "dead"), ticks.next())
        for prefix in ("a%/", "é/", "a_", "none", "A"):
            fitting = {scope for scope in scopes if scope.startswith(prefix)}
            assert {one.scope for one in await store.take_webhooks(prefix)} == fitting
            assert {one.scope for one in await store.dead_webhooks(prefix)} == fitting


@in_loop
async def test_the_living_ones_of_a_task_are_claimed(place: Place) -> None:
    async with place.opened() as store:
        for name, created in (("b", 1), ("dead", 2), ("a", 3)):
            await store.set_webhook(hook(Task(), name, created=created), LIMIT)
        await store.set_webhook(hook(Task(task_id="u")), LIMIT)
        await give_up(store, hook(Task(), "dead", created=2), 9)
        assert [one.id for one in await store.claim_webhooks("0:/0:/", "t")] == ["b", "a"]
        assert [one.id for one in await store.claim_webhooks("0:/0:/", "t")] == ["b", "a"]
        assert not await store.claim_webhooks("another scope", "t")
        assert not await store.claim_webhooks("0:/0:/", "none")


# --- dead letters -----------------------------------------------------------------------------------------------------


@in_loop
async def test_what_was_given_up_is_told_the_last_first(place: Place) -> None:
    async with place.opened() as store:
        for number in range(5):
            webhook = hook(Task(task_id=f"{number}"), after=1)
            await store.set_webhook(webhook, LIMIT)
            if number != 2:
                await store.give_up_webhook(webhook, number, 3 + number, 100 - number, f"reason {number}")
        dead = await store.dead_webhooks("")
        assert [one.task_id for one in dead] == ["0", "1", "3", "4"]
        assert [one.task_id for one in await store.dead_webhooks("", 2)] == ["0", "1"]
        last = replace(hook(Task(task_id="4")), after=4, failed=7, dead=96, reason="reason 4")
        assert dead[-1] == last
        assert await of(store, Task(task_id="4")) == [last]
        assert dead[0].after == 1, "it never goes back"
        stats = await store.stats()
        assert (stats.webhooks, stats.dead_webhooks) == (5, 4)


@in_loop
async def test_what_was_given_up_twice_is_dead_since_the_first_time(place: Place) -> None:
    async with place.opened() as store:
        await store.set_webhook(hook(Task()), LIMIT)
        await give_up(store, hook(Task()), 50, after=3)
        before = await of(store, Task())
        await give_up(store, hook(Task()), 60, after=9)
        assert await of(store, Task()) == before
        assert (await store.stats()).dead_webhooks == 1


@in_loop
async def test_a_dead_one_that_is_revived_goes_on_where_it_was(place: Place) -> None:
    async with place.opened() as store:
        task = Written(Ticks())
        await write(store, task.make(), task.chunks("a"), task.go(COMPLETED, streamed=True))
        webhook = hook(task)
        await store.set_webhook(webhook, LIMIT)
        assert not await store.revive_webhook(task.scope, task.task_id, "h"), "it is alive"
        assert not await store.revive_webhook(task.scope, task.task_id, "other")
        await failed(store, webhook, 2, 40)
        await give_up(store, webhook, 50, after=2)
        assert [(one.failing, one.dead) for one in await store.dead_webhooks("")] == [(40, 50)]
        assert not await store.take_webhooks("")
        assert await store.revive_webhook(task.scope, task.task_id, "h")
        assert not await store.revive_webhook(task.scope, task.task_id, "h")
        assert await of(store, task) == [replace(webhook, after=2)]
        assert not await store.dead_webhooks("")
        (taken,) = await store.take_webhooks("")
        assert (taken.id, taken.after) == ("h", 2)
        await failed(store, webhook, 2, 60)
        await give_up(store, webhook, 70, after=3)
        assert [(one.failing, one.dead) for one in await store.dead_webhooks("")] == [(None, 70)]
        assert await store.drop_webhook(task.scope, task.task_id, "h")
        assert not await store.dead_webhooks("")


# --- what becomes of them ---------------------------------------------------------------------------------------------


@in_loop
async def test_webhooks_go_with_their_task(place: Place) -> None:
    async with place.opened(Retention(ttl_s=60)) as store:
        ticks = Ticks(2 * DAY)
        old, young, living = (Written(ticks) for _ in range(3))
        for task in (old, young, living):
            await write(store, task.make())
            for name in ("a", "b"):
                await store.set_webhook(hook(task, name, created=ticks.at), LIMIT)
        await store.set_webhook(hook(Task(old.scope + "x", old.task_id), created=ticks.at), LIMIT)
        await give_up(store, hook(old, "b", created=ticks.at), ticks.at)
        await give_up(store, (await of(store, old))[1], ticks.at)
        await write(store, old.go(COMPLETED), young.go(COMPLETED, step=30 * S))
        pruned = await store.prune(old.updated + 60 * S + 1)
        assert (pruned.tasks, pruned.webhooks) == (1, 0)
        assert await of(store, old) == []
        assert not await store.dead_webhooks("")
        for task in (young, living):
            assert [one.id for one in await of(store, task)] == ["a", "b"]
        assert len(await of(store, Task(old.scope + "x", old.task_id))) == 1
        stats = await store.stats()
        assert (stats.webhooks, stats.dead_webhooks) == (5, 0)


@in_loop
async def test_webhooks_go_with_a_task_that_goes_because_of_bytes(place: Place) -> None:
    async with place.opened(Retention(max_bytes=0)) as store:
        task = Written(Ticks())
        await write(store, task.make())
        await store.set_webhook(hook(task), LIMIT)
        await write(store, task.go(COMPLETED))
        await store.prune(task.updated + 1)
        assert await store.get(task.scope, task.task_id) is None
        assert await of(store, task) == []


@in_loop
async def test_a_webhook_whose_task_is_never_made_goes_after_a_day(place: Place) -> None:
    async with place.opened() as store:
        ticks = Ticks(5 * DAY)
        task = Written(ticks)
        await store.set_webhook(hook(task, created=DAY), LIMIT)
        for number in range(3):
            await store.set_webhook(hook(Task(), f"{number}", created=DAY + number), LIMIT)
        await give_up(store, hook(Task(), "0", created=DAY), DAY)
        assert (await store.prune(2 * DAY)).webhooks == 0
        assert len(await of(store, Task())) == 3
        assert (await store.prune(2 * DAY - 1)).webhooks == 0
        await write(store, task.make())
        assert (await store.prune(2 * DAY + 2)).webhooks == 2
        assert [one.id for one in await of(store, Task())] == ["2"]
        assert (await store.stats()).dead_webhooks == 0
        assert (await store.prune(9 * DAY)).webhooks == 1
        assert await of(store, Task()) == []
        assert await of(store, task) == [hook(task, created=DAY)]
        assert (await store.stats()).webhooks == 1


@in_loop
async def test_many_webhooks_whose_task_is_never_made_go_in_one_prune(place: Place) -> None:
    async with place.opened() as store:
        for some in range(0, 700, 50):
            await asyncio.gather(
                *(store.set_webhook(hook(Task(task_id=f"{number}")), LIMIT) for number in range(some, some + 50))
            )
        assert (await store.prune(2 * DAY)).webhooks == 700
        assert (await store.stats()).webhooks == 0


@in_loop
async def test_webhooks_are_not_carried_with_tasks(place: Place) -> None:
    async with place.opened() as store:
        task = Written(Ticks())
        await write(store, task.make())
        await store.set_webhook(hook(task), LIMIT)
        carried = [one async for one in store.tasks()]
        assert len(carried) == 1
        assert b"hooks.example" not in repr(carried).encode()
    async with place.opened() as store:
        await store.put(carried)
        assert await of(store, task) == []
        assert await store.set_webhook(hook(task), LIMIT)
        assert len(await store.take_webhooks("")) == 1


@in_loop
async def test_webhooks_are_there_after_a_restart(durable_place: Place) -> None:
    async with durable_place.opened() as store:
        task = Written(Ticks())
        await write(store, task.make())
        webhooks = [hook(task, name) for name in ("a", "b", "c", "d")]
        for webhook in webhooks:
            await store.set_webhook(webhook, LIMIT)
        await noted(store, webhooks[0], 1)
        await give_up(store, webhooks[1], 9)
        store.delivered(webhooks[2], 2)  # is written by the close
        store.failing(webhooks[3], 2, 7)
        before = [
            *(replace(webhooks[0], after=1), None, replace(webhooks[2], after=2)),
            replace(webhooks[3], after=2, failing=7),
        ]
        (before[1],) = await store.dead_webhooks("")
    async with durable_place.reopened() as store:
        assert await of(store, task) == before
        assert await store.dead_webhooks("") == [before[1]]
        assert [one.id for one in await store.take_webhooks("")] == ["a"]
