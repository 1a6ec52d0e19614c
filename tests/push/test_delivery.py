"""The delivery of webhooks by a service in this process: what goes wrong around it, and what it costs."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.behaviour.failing_store import FailingStore
from tests.push.hooks import Hook, hook, push, state_of, status
from tests.push.receiving import OK, Post, receiver
from tests.server.raw import in_loop
from tieline import Agent, Caller, TaskPushNotificationConfig, TaskState, Turn, agent
from tieline.engine import delivery, webhooks
from tieline.engine.delivery import Delivery
from tieline.engine.guard import Guard
from tieline.engine.push import Push
from tieline.engine.run import Run
from tieline.engine.sender import Sender
from tieline.engine.service import Service
from tieline.event import Event
from tieline.ids import new_id
from tieline.stores import MemoryStore, Store, open_store
from tieline.stores.base import Keep, Retention, StoreError, Webhook
from tieline.types import (
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    Task,
)
from tieline.wire.payloads import payload_of

SCOPE = "0:/0:/"
PATIENT = {"first_pause_s": 60, "longest_pause_s": 60}  # what has failed waits until its server is closed


@agent(name="Talker", description="Says so many words.")
async def talker(turn: Turn) -> AsyncGenerator[Any, None]:
    for number in range(int(turn.text)):
        yield f"{number} "


@agent(name="Asker", description="Asks twice.")
async def asker(turn: Turn) -> AsyncGenerator[Any, None]:
    yield f"{turn.text}? "
    yield TaskState.INPUT_REQUIRED if turn.text != "end" else TaskState.COMPLETED


@asynccontextmanager
async def service(agent: Agent, sends: Push, store: Store | None = None) -> AsyncIterator[Service]:
    made = Service(agent, store or open_store("memory"), push=sends, payloads=payload_of)
    await made.start()
    try:
        yield made
    finally:
        await made.close()
        await sends.close()


def request(text: str, url: str | None = None, task_id: str | None = None) -> SendMessageRequest:
    message = Message(new_id(), Role.USER, (Part(text=text),), task_id=task_id)
    config = None if url is None else TaskPushNotificationConfig(url)
    return SendMessageRequest(message, configuration=SendMessageConfiguration(task_push_notification_config=config))


async def told(
    made: Service, text: str, url: str | None = None, task_id: str | None = None, *, to: str = "1.0"
) -> Task:
    answer = await made.send_message(request(text, url, task_id), Caller(version=to))
    assert isinstance(answer.value, Task)
    return answer.value


async def holds(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for is known by asking only
        await asyncio.sleep(0.005)


def deliveries(made: Service) -> list[Any]:
    assert made.webhooks is not None
    return [each for some in made.webhooks._deliveries.values() for each in some.values()]


async def over(made: Service) -> None:
    """Wait until nothing is being delivered."""
    await holds(lambda: not deliveries(made))


async def tried(at: Hook, made: Service, before: int) -> None:
    """Wait for a POST behind the first so many, and until its delivery waits, or is over."""
    await at.until(lambda: len(at.posts) > before)
    await holds(lambda: all(each.waiting for each in deliveries(made)))


async def kept(made: Service, task_id: str) -> Webhook:
    (webhook,) = await made.store.webhooks(SCOPE, task_id)
    return webhook


# --- the store --------------------------------------------------------------------------------------------------------


class Forgetful(FailingStore):
    """Its writes of how far webhooks have come fail when its test says so."""

    noting_fails = False

    def delivered(self, webhook: Webhook, after: int) -> asyncio.Future[Any] | None:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.noting_fails:
            self.failures += 1
            future.set_exception(StoreError("the disk is full"))
        else:
            self.inner.delivered(webhook, after)
            future.set_result(None)
        return future

    def failing(self, webhook: Webhook, after: int, at: int) -> asyncio.Future[Any] | None:
        if self.noting_fails:
            self.failures += 1
            raise StoreError("the disk is full")
        return self.inner.failing(webhook, after, at)


@in_loop
async def test_store_that_is_away_for_a_while_costs_no_event() -> None:
    store = Forgetful()
    async with hook() as at, service(asker, push(), store) as made:
        delivery._STORE_AWAY_S = webhooks._STORE_AWAY_S = 0.02  # type: ignore[misc]
        try:
            task = await told(made, "one", at.url)
            await at.until(lambda: len(at.told) == 4)
            store.reading_fails = store.noting_fails = True
            failures = store.failures
            with pytest.raises(Exception, match="store"):
                await told(made, "two", None, task.id)
            store.reading_fails = False
            await told(made, "two", None, task.id)
            await at.until(lambda: len(at.told) > 4)
            store.noting_fails = False
            await told(made, "end", None, task.id)
            await at.until_told("COMPLETED")
            await over(made)
        finally:
            delivery._STORE_AWAY_S = webhooks._STORE_AWAY_S = 5.0  # type: ignore[misc]
        assert store.failures > failures
        numbers = at.numbers()
        assert numbers == list(range(1, len(numbers) + 1))
        assert (await kept(made, task.id)).after == numbers[-1]


@in_loop
async def test_webhook_that_another_version_has_written_does_not_keep_a_server_from_starting() -> None:
    store = open_store("memory")
    async with hook() as at:
        async with service(talker, push(), store) as made:
            task = await told(made, "3", at.url)
            await over(made)
            strange = Webhook(SCOPE, task.id, "strange", b'{"address": 7}', "1.0", 0, 1)
            await store.set_webhook(strange, 10)
        async with service(talker, push(), store) as made:
            await told(made, "4", at.url)
            await over(made)


@in_loop
async def test_service_that_is_started_again_delivers_again() -> None:
    store = open_store("memory")
    async with hook() as at:
        sends = push()
        made = Service(talker, store, push=sends, payloads=payload_of)
        for round_ in (1, 2):
            await made.start()
            await told(made, f"{round_}", at.url_of(f"{round_}"))
            await at.until_told("COMPLETED", f"{round_}")
            await made.close()
        await sends.close()


@in_loop
async def test_task_that_is_pruned_while_it_is_told_takes_its_webhook_along() -> None:
    store = MemoryStore(Retention(ttl_s=0.0, messages=Keep(0.0)))
    async with hook(lambda post: status(503)) as at, service(talker, push(), store) as made:
        await told(made, "3", at.url)
        await at.until(lambda: len(at.posts) > 1)
        await store.prune(2**62)
        at.answer = lambda post: OK
        await over(made)
        assert (await store.stats()).webhooks == 0


@pytest.mark.parametrize("version", ["1.0", "0.3"])
@in_loop
async def test_webhook_whose_log_is_not_kept_any_more_gets_the_task_instead(version: str) -> None:
    store = MemoryStore(replay_tasks=1)
    async with hook(lambda post: status(503)) as at, service(talker, push(), store) as made:
        task = await told(made, "5", at.url, to=version)
        await at.until(lambda: len(at.posts) > 1)
        await told(made, "6", at.url_of("other"), to=version)
        await told(made, "7", at.url_of("another"), to=version)
        at.answer = lambda post: OK
        await over(made)
        last = at.of("")[-1]
        assert state_of(last.body) == "COMPLETED"
        assert last.number == (await made.store.get(SCOPE, task.id)).version  # type: ignore[union-attr]
        assert "0 1 2 3 4 " in last.post.body.decode()


# --- giving up --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("push-security.backoff")
def test_pauses_double_up_to_the_longest_and_are_no_shorter_than_half() -> None:
    settings = Push(first_pause_s=1, longest_pause_s=20)
    for failed, longest in enumerate((1, 2, 4, 8, 16, 20, 20), start=1):
        pauses = [settings.pause_s(failed, None) for _ in range(50)]
        assert longest / 2 <= min(pauses) <= max(pauses) <= longest
    assert settings.pause_s(1, 30) == 30  # as the receiver asks


@in_loop
async def test_receiver_that_asks_for_more_patience_than_there_is_is_asked_once_more_at_the_end() -> None:
    async with hook(lambda post: status(503, b"Retry-After: 3600")) as at, service(talker, push(give_up_s=0.2)) as made:
        task = await told(made, "1", at.url)
        await over(made)
        assert len(at.posts) == 2
        webhook = await kept(made, task.id)
        assert (webhook.failed, webhook.after) == (2, 0)
        assert webhook.dead is not None
        assert made.webhooks is not None
        (letter,) = await made.webhooks.dead()
        assert (letter.task_id, letter.after, letter.url) == (task.id, 0, at.url)
        at.answer = lambda post: OK
        assert await made.webhooks.replay("another task") == 0
        assert await made.webhooks.replay(task.id) == 1
        told_ = await at.until_told("COMPLETED")
        assert [one.number for one in told_] == list(range(1, len(told_) + 1))
        assert await made.webhooks.dead() == ()


@in_loop
async def test_receiver_that_fails_for_long_is_given_up_though_no_server_lives_that_long(tmp_path: Path) -> None:
    store = open_store(f"sqlite:{tmp_path / 'tasks.db'}")
    async with hook(lambda post: status(503)) as at:
        async with service(talker, push(give_up_s=1, **PATIENT), store) as made:
            task = await told(made, "1", at.url)
            await tried(at, made, 0)
        while (await kept(made, task.id)).dead is None:
            before = len(at.posts)
            async with service(talker, push(give_up_s=1, **PATIENT), store) as made:
                await tried(at, made, before)
        async with service(talker, push(give_up_s=3600), store) as made:
            assert made.webhooks is not None
            assert await made.webhooks.replay(task.id) == 1
            before = len(at.posts)
            await at.until(lambda: len(at.posts) > before + 1)
            assert (await kept(made, task.id)).dead is None, "it is tried as long as a new one"
    await store.close()


@in_loop
async def test_what_was_delivered_ends_the_streak_of_failures() -> None:
    async with hook(lambda post: status(503)) as at, service(talker, push(), MemoryStore()) as made:
        task = await told(made, "2", at.url)
        while (await kept(made, task.id)).failing is None:  # noqa: ASYNC110 - it is noted in a moment
            await asyncio.sleep(0.005)
        at.answer = lambda post: OK
        await at.until_told("COMPLETED")
        await over(made)
        assert (await kept(made, task.id)).failing is None


@pytest.mark.parametrize("days", [-1000, 1000])
@in_loop
async def test_clock_that_has_jumped_costs_no_try(days: int) -> None:
    store = open_store("memory")
    async with hook(lambda post: status(503)) as at:
        async with service(talker, push(**PATIENT), store) as made:
            task = await told(made, "2", at.url)
            await tried(at, made, 0)
        failing = (await kept(made, task.id)).failing
        assert failing is not None
        await store.set_webhook(replace(await kept(made, task.id), failing=failing + days * 24 * 3600 * 1_000_000), 10)
        before = len(at.posts)
        async with service(talker, push(), store) as made:
            if days > 0:  # it was set back
                await at.until(lambda: len(at.posts) > before + 3)
                assert (await kept(made, task.id)).dead is None
            else:
                await over(made)
                assert len(at.posts) == before + 1
                assert made.webhooks is not None
                assert await made.webhooks.replay(task.id) == 1
            at.answer = lambda post: OK
            await at.until_told("COMPLETED")


@in_loop
async def test_store_that_is_away_when_a_receiver_begins_to_fail_holds_up_no_try_and_hears_of_it_later() -> None:
    store = Forgetful()
    store.noting_fails = True
    async with hook(lambda post: status(503)) as at, service(talker, push(), store) as made:
        task = await told(made, "2", at.url)
        await holds(lambda: store.failures > 1)
        before = len(at.posts)
        await at.until(lambda: len(at.posts) > before + 2)
        store.noting_fails = False
        while (await kept(made, task.id)).failing is None:  # noqa: ASYNC110 - with one of the next failures
            await asyncio.sleep(0.005)
        at.answer = lambda post: OK
        await at.until_told("COMPLETED")


@in_loop
async def test_notification_that_cannot_be_made_becomes_a_dead_letter_and_takes_nothing_with_it() -> None:
    class Broken:
        media_type, token_is_bearer, wants_task = "application/json", False, False

        def body(self, event: Event, task: Callable[[], Task]) -> bytes | None:
            raise RuntimeError("a bug")

    async with hook() as at:
        sends = push()
        made = Service(talker, open_store("memory"), push=sends, payloads=lambda version: Broken())
        await made.start()
        task = await told(made, "1", at.url)
        await over(made)
        assert "could not be made" in (await kept(made, task.id)).reason
        await made.close()
        await sends.close()


# --- races ------------------------------------------------------------------------------------------------------------


@in_loop
async def test_delivery_that_is_stopped_before_its_first_step_can_begin_again() -> None:
    async with hook() as at, service(talker, push()) as made:
        task = await told(made, "2")
        await made.store.set_webhook(Webhook(SCOPE, task.id, "w", b'{"url":"%s"}' % at.url.encode(), "1.0", 0, 7), 10)
        assert made.webhooks is not None
        webhook = await kept(made, task.id)
        made.webhooks.begin(webhook)
        deliveries(made)[0].stop()
        await over(made)
        made.webhooks.begin(webhook)
        await at.until(lambda: bool(at.posts))
        deliveries(made)[0].stop()
        made.webhooks.begin(webhook)
        await at.until_told("COMPLETED")
        await over(made)


@in_loop
async def test_webhook_that_is_dropped_while_the_store_is_asked_for_it_is_not_taken_up() -> None:
    class Slow(FailingStore):
        claimed: asyncio.Event
        go: asyncio.Event

        async def claim_webhooks(self, scope: str, task_id: str) -> Any:
            found = await self.inner.claim_webhooks(scope, task_id)
            self.claimed.set()
            await self.go.wait()
            return found

    store = Slow()
    store.claimed, store.go = asyncio.Event(), asyncio.Event()
    async with hook() as at, service(asker, push(), store) as made:
        task = await told(made, "one", at.url)
        await at.until(lambda: len(at.told) == 4)
        await over(made)
        answering = asyncio.ensure_future(told(made, "end", None, task.id))
        await store.claimed.wait()
        assert made.webhooks is not None
        await made.webhooks.delete(SCOPE, task.id, (await kept(made, task.id)).id)
        store.go.set()
        await answering
        await over(made)
        assert len(at.posts) == 4


class Deliberate(FailingStore):
    """Whatever has to do with webhooks and tasks takes it a few turns of the loop, before and behind what it does."""

    async def _turns(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    async def get(self, scope: str, task_id: str) -> Any:
        await self._turns()
        return await super().get(scope, task_id)

    async def webhooks(self, scope: str, task_id: str) -> Any:
        await self._turns()
        return await super().webhooks(scope, task_id)

    async def set_webhook(self, webhook: Webhook, limit: int) -> bool:
        await self._turns()
        kept = await super().set_webhook(webhook, limit)
        await self._turns()
        return kept

    async def drop_webhook(self, scope: str, task_id: str, id: str) -> bool:
        await self._turns()
        dropped = await super().drop_webhook(scope, task_id, id)
        await self._turns()
        return dropped

    def hear(self, key: bytes, task_id: str, at: int) -> Any:
        return asyncio.ensure_future(self._hear(key, task_id, at))

    async def _hear(self, key: bytes, task_id: str, at: int) -> Any:
        await self._turns()
        return self.inner.hear(key, task_id, at)


async def settled(made: Service) -> None:
    """Wait until what calls have left to be done with webhooks is done."""
    assert made.webhooks is not None
    while made.webhooks._tasks:
        await asyncio.wait(made.webhooks._tasks)


async def cancelled(sending: asyncio.Task[Any], turns: int) -> bool:
    """Let a call go on for so many turns of the loop, and cancel it. False: it was through."""
    for _ in range(turns):
        await asyncio.sleep(0)
    sending.cancel()
    await asyncio.wait([sending])
    return sending.cancelled()


def said(task: Task, message_id: str) -> bool:
    return any(message.message_id == message_id for message in task.history or ())


@in_loop
async def test_message_whose_call_is_cancelled_leaves_its_webhook_only_if_it_was_given() -> None:
    store = Deliberate()
    async with hook() as at, service(asker, push(), store) as made:
        task = await told(made, "one")
        outcomes = []
        for turns in range(40):
            sent = request(f"{turns}", at.url, task.id)
            sending = asyncio.ensure_future(made.send_message(sent, Caller()))
            was_cancelled = await cancelled(sending, turns)
            await settled(made)
            now = await made.get_task(GetTaskRequest(task.id), Caller())
            given = said(now.value, sent.message.message_id)
            there = await store.webhooks(SCOPE, task.id)
            assert bool(there) == given, f"behind {turns} turns"
            outcomes.append((was_cancelled, given))
            if given:
                break
        assert outcomes.count((True, False)) > 10, "it was cancelled at many places"
        assert outcomes[-1][1]


@in_loop
async def test_message_of_a_new_task_whose_call_is_cancelled_leaves_no_webhook_without_a_task() -> None:
    store = Deliberate()
    async with hook() as at, service(asker, push(), store) as made:
        before = 0
        for turns in range(40):
            sending = asyncio.ensure_future(made.send_message(request(f"{turns}", at.url), Caller()))
            await cancelled(sending, turns)
            await settled(made)
            await holds(lambda: not made.busy)
            stats = await store.stats()
            tasks = sum(stats.states.values())
            assert stats.webhooks == tasks, f"behind {turns} turns"
            before = turns if not tasks else before
        assert before > 5, "it was cancelled at many places"
        assert before < 39


@in_loop
async def test_message_that_is_sent_again_while_its_cancelled_call_is_undone_keeps_its_webhook() -> None:
    store = Deliberate()
    async with hook() as at, service(asker, push(), store) as made:
        for pause in range(12):
            for turns in range(4, 24, 2):
                task = await told(made, "one")
                sent = request("two", at.url, task.id)
                await cancelled(asyncio.ensure_future(made.send_message(sent, Caller())), turns)
                for _ in range(pause):
                    await asyncio.sleep(0)
                await made.send_message(sent, Caller())
                await settled(made)
                assert len(await store.webhooks(SCOPE, task.id)) == 1, f"behind {turns} turns and {pause}"


@in_loop
async def test_message_that_is_sent_twice_at_once_keeps_its_webhook_when_one_call_is_cancelled() -> None:
    store = Deliberate()
    async with hook() as at, service(asker, push(), store) as made:
        for turns in range(24):
            for first in (True, False):
                task = await told(made, "one")
                sent = request("two", at.url, task.id)
                calls = [asyncio.ensure_future(made.send_message(sent, Caller())) for _ in range(2)]
                await cancelled(calls[not first], turns)
                await calls[first]
                await settled(made)
                assert len(await store.webhooks(SCOPE, task.id)) == 1, f"behind {turns} turns, {first}"


@in_loop
async def test_call_that_is_cancelled_by_the_end_of_its_server_leaves_no_webhook() -> None:
    store = Deliberate()
    async with hook() as at:
        async with service(asker, push(), store) as made:
            task = await told(made, "one")
            sending = asyncio.ensure_future(made.send_message(request("two", at.url, task.id), Caller()))
            while not await store.inner.webhooks(SCOPE, task.id):  # noqa: ASYNC110 - what the store has tells
                await asyncio.sleep(0)
            assert await cancelled(sending, 0)
        assert await store.inner.webhooks(SCOPE, task.id) == []


@in_loop
async def test_close_notes_how_far_every_webhook_has_come() -> None:
    store = open_store("memory")
    async with hook() as at:
        async with service(talker, push(), store) as made:
            await told(made, "200", at.url)
            await at.until(lambda: len(at.told) > 20)
        before = len(at.told)
        async with service(talker, push(), store):
            told_ = await at.until_told("COMPLETED")
        assert [one.number for one in told_] == list(range(1, len(told_) + 1)), "each came once"
        assert before <= len(told_)


# --- costs ------------------------------------------------------------------------------------------------------------


@in_loop
async def test_slow_receiver_of_a_long_log_keeps_nothing_of_it_in_memory(tmp_path: Path) -> None:
    slow = push(first_pause_s=5, longest_pause_s=5)
    store = open_store(f"sqlite:{tmp_path / 'tasks.db'}")
    async with hook(lambda post: status(503)) as at, service(talker, slow, store) as made:
        await told(made, "5000", at.url)
        await at.until(lambda: bool(at.posts))
        await holds(lambda: all(each.waiting for each in deliveries(made)))
        gc.collect()
        (one,) = deliveries(made)
        kept = gc.get_objects()  # of other tests, too
        assert not [each for each in kept if isinstance(each, Delivery) and each.key == one.key and each is not one]
        assert not [each for each in kept if isinstance(each, Run) and each.task_id == one.webhook.task_id]
        assert not one._ahead
    await store.close()


@in_loop
async def test_receiver_that_streams_its_answer_for_ever_has_got_the_notification() -> None:
    def streams(post: Post) -> bytes:
        return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"

    async with receiver(streams) as at:
        sender = Sender(Guard(allow_loopback=True), total_s=8)
        sent = await sender.post(f"http://127.0.0.1:{at.port}/", {"Content-Type": "application/json"}, b"{}")
        assert sent.delivered
        assert len(at.posts) == 1
        await sender.close()


@in_loop
async def test_many_webhooks_of_a_receiver_that_does_not_answer_hold_up_no_other() -> None:
    def silent(post: Post) -> bytes:
        return b"" if post.target.startswith("/silent") else OK

    async with receiver(silent) as dead, hook() as at, service(talker, push()) as made:
        for number in range(300):
            await told(made, f"{number % 3 + 1}", f"http://127.0.0.1:{dead.port}/silent/{number}")
        await told(made, "7", at.url)
        told_ = await at.until_told("COMPLETED")
        assert [one.number for one in told_] == list(range(1, len(told_) + 1))
        for each in deliveries(made):
            each.stop()
        await over(made)


# --- what older versions are told -------------------------------------------------------------------------------------


@in_loop
async def test_task_of_an_older_payload_has_what_the_caller_has_said_meanwhile() -> None:
    async with hook() as at, service(asker, push()) as made:
        task = await told(made, "one", at.url, to="0.3")
        await told(made, "two", None, task.id, to="0.3")
        await told(made, "end", None, task.id, to="0.3")
        told_ = await at.until_told("COMPLETED")
        said = [message["parts"][0]["text"] for message in told_[-1].body["history"] if message["role"] == "user"]
        assert said == ["one", "two", "end"]
