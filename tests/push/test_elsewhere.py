"""Webhooks of tasks that another replica is at work on: set, dropped and told from any of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from tests.behaviour.agents import Puppet, asks, says
from tests.chaos.run import migrated
from tests.databases import postgres_server, redis_server
from tests.push.hooks import Hook, hook, push, status
from tests.push.receiving import OK
from tests.server.raw import in_loop
from tieline import Caller, TaskPushNotificationConfig, TaskState
from tieline.engine.service import Limits, Service
from tieline.errors import Overloaded
from tieline.ids import new_id
from tieline.stores import open_store
from tieline.stores.base import Keep
from tieline.types import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    Task,
)
from tieline.wire.payloads import payload_of

SCOPE = "0:/0:/"
ME = Caller()

both = pytest.mark.parametrize("database", ["postgres", "redis"])


@asynccontextmanager
async def two(
    database: str, puppet: Puppet, *, remembers: bool = True, **limits: Any
) -> AsyncIterator[tuple[Service, Service]]:
    """Two replicas of an agent that send push notifications; without `remembers` each message is a new one."""
    name = f"push_{new_id().replace('-', '')[:16]}"
    url = (postgres_server() if database == "postgres" else redis_server()).url(name)
    await migrated(url)
    stores = [open_store(url) for _ in range(2)]
    if not remembers:
        for store in stores:
            store.retention = replace(store.retention, messages=Keep(0))
    limited = Limits(lease_s=5, cancel_s=1, **limits)
    made = [Service(puppet.agent, store, push=push(), payloads=payload_of, limits=limited) for store in stores]
    try:
        for one in made:
            await one.start()
        for one in made:
            assert one.replica is not None
            await one.replica._beat()  # each knows of the other
        yield made[0], made[1]
    finally:
        for one in made:
            await one.close()
            assert one.webhooks is not None
            await one.webhooks._push.close()
            await one.store.close()


async def begun(at: Service, text: str, task_id: str | None = None, url: str | None = None) -> Task:
    message = Message(new_id(), Role.USER, (Part(text=text),), task_id=task_id)
    config = None if url is None else TaskPushNotificationConfig(url)
    asked = SendMessageConfiguration(task_push_notification_config=config, return_immediately=True)
    answer = await at.send_message(SendMessageRequest(message, configuration=asked), ME)
    assert isinstance(answer.value, Task)
    return answer.value


async def version(at: Service, task_id: str) -> int:
    record = await at.store.get(SCOPE, task_id)
    assert record is not None
    return record.version


async def check(at: Hook, service: Service, task_id: str, after: int) -> None:
    numbers = at.numbers()
    assert numbers == list(range(after + 1, await version(service, task_id) + 1))


@both
@in_loop
async def test_webhook_that_is_set_at_another_replica_hears_what_follows_and_one_that_is_dropped_there_does_not(
    database: str,
) -> None:
    puppet = Puppet()
    async with hook() as at, two(database, puppet) as (one, other):
        task = await begun(one, "go")
        act = await puppet.next()
        before = await version(one, task.id)
        config = TaskPushNotificationConfig(at.url, id="mine", task_id=task.id)
        await other.create_push_notification_config(config, ME)
        act.tell(says("one"))
        await at.until(lambda: len(at.told) == 1)
        assert [told.number for told in at.told] == [before + 1]
        await other.delete_push_notification_config(DeleteTaskPushNotificationConfigRequest(task.id, "mine"), ME)
        assert one.webhooks is not None
        while one.webhooks._deliveries:  # noqa: ASYNC110 - a letter is on its way
            await asyncio.sleep(0.01)
        act.tell(says("two"))
        act.end()
        driver = one.runs[SCOPE, task.id].driver
        assert driver is not None
        await driver
        assert len(at.posts) == 1


@both
@in_loop
async def test_task_that_goes_on_at_another_replica_is_told_in_order(database: str) -> None:
    puppet = Puppet()
    async with hook() as at, two(database, puppet) as (one, other):
        task = await begun(one, "go", url=at.url)
        act = await puppet.next()
        act.tell("so ", "far")
        act.tell(TaskState.INPUT_REQUIRED)
        act.end()
        await at.until_told("INPUT_REQUIRED")
        await begun(other, "on", task.id)
        act = await puppet.next()
        act.tell("and ", "on")
        act.end()
        await at.until_told("COMPLETED")
        await check(at, other, task.id, 0)
        assert len(at.told) == len(at.numbers())


@both
@in_loop
async def test_webhook_that_is_behind_while_its_task_goes_on_elsewhere_hears_all_of_it_in_order(
    database: str,
) -> None:
    puppet = Puppet()
    async with hook(lambda post: status(503)) as at, two(database, puppet) as (one, other):
        task = await begun(one, "go", url=at.url)
        act = await puppet.next()
        act.tell("so far", TaskState.INPUT_REQUIRED)
        act.end()
        await at.until(lambda: len(at.posts) > 2)
        await begun(other, "on", task.id)
        act = await puppet.next()
        act.tell("one ")
        at.answer = lambda post: OK
        await at.until(lambda: len(at.told) > 3)
        act.tell(says("half"), "two")
        act.end()
        await at.until_told("COMPLETED")
        await check(at, other, task.id, 0)


@both
@in_loop
async def test_cancel_at_another_replica_is_told(database: str) -> None:
    puppet = Puppet()
    async with hook() as at, two(database, puppet) as (one, other):
        task = await begun(one, "go", url=at.url)
        act = await puppet.next()
        act.tell(asks("Which?"))
        await at.until_told("INPUT_REQUIRED")
        await other.cancel_task(CancelTaskRequest(task.id), ME)
        await at.until_told("CANCELED")
        await check(at, one, task.id, 0)


@both
@in_loop
async def test_message_whose_call_is_cancelled_before_it_is_given_takes_its_webhook_back(database: str) -> None:
    puppet = Puppet()
    async with hook() as at, two(database, puppet) as (one, other):
        task = await begun(one, "go")
        act = await puppet.next()
        act.tell(TaskState.INPUT_REQUIRED)
        act.end()
        await one.runs[SCOPE, task.id].driver  # type: ignore[misc]
        for text, each in (("one", one), ("other", other)):
            sending = asyncio.ensure_future(begun(each, text, task.id, at.url))
            while not await one.store.webhooks(SCOPE, task.id):
                assert not sending.done()
            sending.cancel()
            await asyncio.wait([sending])
            assert each.webhooks is not None
            while each.webhooks._tasks:
                await asyncio.wait(each.webhooks._tasks)
            record = await one.store.get(SCOPE, task.id)
            assert record is not None
            said = [message.parts[0].text for message in (await one.stored(record)).history or ()]
            if text in said:
                return  # it was given in just that moment, and so its webhook stays
            assert await one.store.webhooks(SCOPE, task.id) == []


@both
@pytest.mark.parametrize("remembers", [True, False])
@in_loop
async def test_messages_that_come_at_once_with_webhooks_begin_no_more_agents_than_may_be_at_work(
    database: str, remembers: bool
) -> None:
    puppet = Puppet()
    async with hook() as at, two(database, puppet, remembers=remembers, concurrent_runs=1) as (one, _):
        sent = (begun(one, f"number {number}", url=at.url) for number in range(4))
        answers = await asyncio.gather(*sent, return_exceptions=True)
        assert [type(answer) for answer in answers].count(Overloaded) == 3, answers
        assert one.busy == 1
        (await puppet.next()).end()
        await at.until_told("COMPLETED")
