"""What a store remembers of messages: the first outcome of each."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tests.engine.scene import in_loop
from tests.stores.conftest import Place
from tests.stores.writing import COMPLETED, Ticks, Written, write
from tieline.stores.base import Append, Keep, Outcome, Retention, Store, VersionConflict

S = 1_000_000  # microseconds
REPLY = b'{"message":{"messageId":"r","role":"ROLE_AGENT","parts":[{"text":"two\\nlines"}]}}'


def key_of(number: int) -> bytes:
    """The key of a message; there are bytes in it that no text has."""
    return bytes([0, 255, 10, 39]) + number.to_bytes(12, "big")


async def hear(store: Store, number: int, task_id: str, at: int = S) -> Outcome | None:
    begun = store.hear(key_of(number), task_id, at)
    return await begun if isinstance(begun, asyncio.Future) else begun


async def reply(store: Store, number: int, words: bytes = REPLY) -> None:
    begun = store.replied(key_of(number), words)
    if begun is not None:
        await begun


def outcome(store: Store, task_id: str, words: bytes | None = None) -> Outcome:
    """What became of a message that this store has heard."""
    return Outcome(task_id, words, getattr(store, "replica", ""))


async def durable(store: Store) -> None:
    """Let something be durable, and with it what was heard before it."""
    await write(store, Written(Ticks()).make())


@in_loop
async def test_a_message_is_new_once_and_its_first_task_stays(place: Place) -> None:
    async with place.opened() as store:
        assert await hear(store, 1, "first") is None
        assert await hear(store, 2, "another") is None
        for task_id in ("second", "third"):
            assert await hear(store, 1, task_id) == outcome(store, "first")
        await durable(store)
        assert await hear(store, 1, "fourth") == outcome(store, "first")
        assert await hear(store, 2, "first") == outcome(store, "another")


@in_loop
async def test_of_a_message_that_comes_many_times_at_once_one_is_new(place: Place) -> None:
    async with place.opened() as store:
        heard = await asyncio.gather(*(hear(store, 1, f"task-{number}") for number in range(20)))
        assert heard == [None, *[outcome(store, "task-0")] * 19]


@in_loop
async def test_many_messages_of_one_turn_are_told_apart(place: Place) -> None:
    async with place.opened() as store:
        assert set(await asyncio.gather(*(hear(store, number, f"t{number}") for number in range(3000)))) == {None}
        again = await asyncio.gather(*(hear(store, number, "x") for number in range(3000)))
        assert again == [outcome(store, f"t{number}") for number in range(3000)]


@in_loop
async def test_what_answered_a_message_is_given_to_who_sends_it_again(place: Place) -> None:
    async with place.opened() as store:
        await hear(store, 1, "t1")
        await hear(store, 2, "t2")
        await reply(store, 1)
        assert await hear(store, 1, "x") == outcome(store, "t1", REPLY)
        assert await hear(store, 2, "x") == outcome(store, "t2")
        await durable(store)
        await reply(store, 2, b"{}")
        assert await hear(store, 2, "x") == outcome(store, "t2", b"{}")


@in_loop
async def test_an_answer_is_there_for_who_asks_in_the_turn_that_notes_it(place: Place) -> None:
    async with place.opened() as store:
        await hear(store, 1, "t1")
        await durable(store)
        _, again = await asyncio.gather(reply(store, 1), hear(store, 1, "x"))
        assert again in (outcome(store, "t1"), outcome(store, "t1", REPLY))
        assert await hear(store, 1, "x") == outcome(store, "t1", REPLY)


@in_loop
async def test_a_message_and_the_task_that_is_made_of_it_are_written_in_one_turn(place: Place) -> None:
    async with place.opened() as store:
        task = Written(Ticks())
        heard, _ = await asyncio.gather(hear(store, 1, task.task_id), write(store, task.make()))
        assert heard is None
        assert await store.get(task.scope, task.task_id) is not None
        assert await hear(store, 1, "x") == outcome(store, task.task_id)


@in_loop
async def test_outcomes_are_there_after_a_restart(durable_place: Place) -> None:
    async with durable_place.opened() as store:
        first = store
        await hear(store, 1, "t1")
        await reply(store, 1)
        await hear(store, 2, "t2")
        await durable(store)
    async with durable_place.reopened() as store:
        assert await hear(store, 1, "x") == outcome(first, "t1", REPLY)
        assert await hear(store, 2, "x") == outcome(first, "t2")
        await reply(store, 2, b"{}")
    async with durable_place.reopened() as store:
        assert await hear(store, 2, "x") == outcome(first, "t2", b"{}")


@in_loop
async def test_an_outcome_outlives_the_task(place: Place) -> None:
    async with place.opened(Retention(ttl_s=0)) as store:
        task = Written(Ticks())
        await hear(store, 1, task.task_id)
        await write(store, task.make(), task.go(COMPLETED))
        assert (await store.prune(task.updated + 1)).tasks == 1
        assert await hear(store, 1, "x") == outcome(store, task.task_id)


@in_loop
async def test_outcomes_are_forgotten_when_their_time_is_over_and_not_before(place: Place) -> None:
    async with place.opened(Retention(messages=Keep(ttl_s=60))) as store:
        for number in range(5):
            await hear(store, number, f"t{number}", at=S)
        await reply(store, 1)
        await durable(store)
        await store.prune(61 * S)
        assert (await store.stats()).messages == 5
        await hear(store, 9, "t9", at=62 * S)
        await durable(store)
        pruned = [await store.prune(now * S) for now in (63, 121)]  # a store may forget by halves
        assert await hear(store, 9, "x") == outcome(store, "t9")
        pruned.append(await store.prune(125 * S))
        assert sum(one.messages for one in pruned) >= 5
        assert all(one.bytes > 0 for one in pruned if one.messages)
        assert [await hear(store, number, "new", at=125 * S) for number in range(5)] == [None] * 5


@in_loop
async def test_over_the_limit_of_bytes_the_oldest_outcomes_are_forgotten(place: Place) -> None:
    async with place.opened(Retention(messages=Keep(max_bytes=100_000))) as store:
        for number in range(100):
            await hear(store, number, f"t{number}", at=S + number)
            await reply(store, number, b"x" * 10_000)
        await store.prune(2 * S)
        left = (await store.stats()).messages
        assert 1 <= left <= 10
        kept = [await hear(store, number, "new", at=3 * S) for number in range(99, -1, -1)][:left]
        assert kept == [outcome(store, f"t{number}", b"x" * 10_000) for number in range(99, 99 - left, -1)]


@in_loop
async def test_messages_are_counted(place: Place) -> None:
    async with place.opened() as store:
        assert (await store.stats()).messages == 0
        for number in range(3):
            await hear(store, number, "t")
        await hear(store, 1, "t")
        assert (await store.stats()).messages == 3


@in_loop
async def test_an_answer_that_goes_with_an_append_that_is_refused_is_kept_all_the_same(place: Place) -> None:
    async with place.opened() as store:
        task, other = Written(Ticks()), Written(Ticks(5_000_000))
        await write(store, task.make())
        assert await hear(store, 1, "t") is None
        stale = Append(task.scope, task.task_id, task.context_id, 7, [], task.state, 1, b"{}", False)
        refused: asyncio.Future[None] | None = None
        with suppress(VersionConflict):
            refused = store.append(stale)
        written = store.append(other.make())
        await reply(store, 1)
        await asyncio.wait([future for future in (refused, written) if future is not None] or [settled()])
        assert await hear(store, 1, "t-2") == outcome(store, "t", REPLY)
        assert await store.get(other.scope, other.task_id) is not None


def settled() -> asyncio.Future[None]:
    """What is done already."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    done.set_result(None)
    return done


@in_loop
async def test_who_gives_up_waiting_for_a_message_leaves_the_others_their_answer(place: Place) -> None:
    async with place.opened() as store:
        first = store.hear(key_of(1), "t-1", S)
        second = store.hear(key_of(1), "t-2", S)
        if isinstance(first, asyncio.Future):
            first.cancel()
        heard = await second if isinstance(second, asyncio.Future) else second
        assert heard == outcome(store, "t-1")
