"""Push notifications: the four operations, and what webhooks are sent (A2A 1.0 §3.1.7 to §3.1.10, §4.3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.behaviour import in_01, in_03
from tests.behaviour.agents import Act, Puppet, asks, begun, hello, says
from tests.behaviour.harness import Json, Transport, checked, eventually, message, refused, state_of, text_of
from tests.behaviour.serving import Serve, every_store, malformed, not_over, only_in, version_of
from tests.push.hooks import Hook, Told, flaky, push, status
from tests.push.receiving import OK, receiver
from tests.wire.v01_schema import faults as faults_in_01
from tieline import TaskState, Turn

AT_ONCE = {"returnImmediately": True}
AUTHENTICATION = {"scheme": "Bearer", "credentials": "s3cret-of-the-hook"}

one_webhook = not_over("0.1", why="a task has one webhook")
no_list = not_over("0.1", why="webhooks are neither listed nor deleted")
no_message = not_over("0.1", why="every answer is a task")


@pytest.fixture
def hook(loop: asyncio.Runner) -> Iterator[Hook]:
    """A webhook on this machine."""
    listening = Hook()
    serving = receiver(listening.take)

    async def begin() -> None:
        listening.port = (await anext(at)).port

    async def served() -> AsyncIterator[Any]:
        async with serving as receiving:
            yield receiving

    at = served()
    loop.run(begin())
    yield listening
    loop.run(anext(at, None))


def inline(hook: Hook, path: str = "", **fields: Any) -> Json:
    """A configuration of a message that names a webhook."""
    return {**AT_ONCE, "taskPushNotificationConfig": {"url": hook.url_of(path), **fields}}


async def hooked(agent: Transport, puppet: Puppet, hook: Hook, **fields: Any) -> tuple[Json, Act]:
    """A task at work, with an inline webhook."""
    task = await agent.task("go", configuration=inline(hook, **fields))
    return task, await puppet.next()


def older(agent: Transport) -> bool:
    return version_of(agent.name) != "1.0"


async def logged(agent: Transport, task_id: str) -> list[Json]:
    """The events of a task, as its stream has them."""
    import json

    (scope,) = {scope for scope, each in agent.app.services[agent.agent].runs if each == task_id} or {"0:/0:/"}
    events = await agent.app.store.events(scope, task_id, 0)
    assert events is not None
    assert [number for number, _ in events] == list(range(1, len(events) + 1))
    return [json.loads(event.json) for _, event in events]


async def check_told(agent: Transport, told: list[Told], events: list[Json], after: int = 0) -> None:
    """Assert that a webhook was told of all events behind `after`, in order, in the form of its version."""
    version = version_of(agent.name)
    assert {one.post.headers["content-type"] for one in told} == {
        "application/a2a+json" if version == "1.0" else "application/json"
    }
    by_number: dict[int, Json] = {}
    for one in told:
        assert one.number not in by_number or by_number[one.number] == one.body, "a repeated one is the same"
        by_number[one.number] = one.body
    assert list(by_number) == sorted(by_number)
    if version == "1.0":
        assert by_number == {number: event for number, event in enumerate(events, 1) if number > after}
        for body in by_number.values():
            checked(body, "StreamResponse")
        return
    states = [number for number, event in enumerate(events, 1) if number > after and "artifactUpdate" not in event]
    assert list(by_number) == states
    for number, body in by_number.items():
        if version == "0.1":
            assert not list(faults_in_01("Task", body))
            read = in_01.task(body)
        else:
            read = in_03.SCHEMA.task(body)
        checked(read, "Task")
        assert state_of(read) == state_of(events[number - 1])
        texts = (data["artifact"] for event in events[:number] for data in [event.get("artifactUpdate")] if data)
        assert text_of(read) == "".join(text_of(artifact) for artifact in texts)


# --- the four operations ----------------------------------------------------------------------------------------------


@pytest.mark.requirement(
    *("push.create-assigns-id", "push.create-establishes-webhook", "push.get-returns-details", "push.config-fields"),
    *("push.plain-http-for-every-binding", "push.payload", "push.delivered-at-least-once", "push.credentials-sent"),
    "push.authentication-fields",
)
async def test_created_configuration_has_an_id_is_read_as_it_was_set_and_its_webhook_hears_what_follows(
    serve: Serve, hook: Hook
) -> None:
    puppet = Puppet()
    agent = await serve(puppet, push=push())
    assert (await agent.card())["capabilities"]["pushNotifications"] is True
    task, act = await begun(agent, puppet)
    before = len(await logged(agent, task["id"]))
    created = await agent.create_push_config(task["id"], url=hook.url, token="t0ken", authentication=AUTHENTICATION)
    assert created["id"]
    assert (created["url"], created["token"], created["authentication"]) == (hook.url, "t0ken", AUTHENTICATION)
    assert await agent.get_push_config(task["id"], created["id"]) == created
    act.tell("one ", "two ", says("half of it"), "three")
    act.end()
    told = await hook.until_told("COMPLETED")
    await check_told(agent, told, await logged(agent, task["id"]), before)
    for one in told:
        assert (one.task_id, one.id) == (task["id"], created["id"])
        assert one.post.headers["authorization"] == "Bearer s3cret-of-the-hook"
        assert one.post.headers["x-a2a-notification-token"] == "t0ken"


@one_webhook
@pytest.mark.requirement("push.list-returns-all", "push.create-establishes-webhook")
async def test_each_of_several_webhooks_of_a_task_hears_everything(serve: Serve, hook: Hook) -> None:
    puppet = Puppet()
    agent = await serve(puppet, push=push())
    task, act = await begun(agent, puppet)
    before = len(await logged(agent, task["id"]))
    made = [await agent.create_push_config(task["id"], url=hook.url_of(each), id=each) for each in ("a", "b", "c")]
    assert await agent.list_push_configs(task["id"]) == made
    act.tell("one ", "two")
    act.end()
    for each in ("a", "b", "c"):
        told = await hook.until_told("COMPLETED", each)
        await check_told(agent, told, await logged(agent, task["id"]), before)


@one_webhook
@pytest.mark.requirement("push.create-assigns-id", "push.list-returns-all")
@only_in("1.0", why="before, a configuration without an id is the task's only one")
async def test_two_configurations_without_ids_get_two(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet, push=push(guard=None))
    task, act = await begun(agent, puppet)
    one, other = [await agent.create_push_config(task["id"]) for _ in range(2)]
    assert one["id"] != other["id"]
    assert await agent.list_push_configs(task["id"]) == [one, other]
    act.end()
    await agent.until(task["id"], "COMPLETED")


async def test_configuration_of_the_same_id_is_replaced_and_the_old_webhook_hears_nothing_more(
    serve: Serve, hook: Hook
) -> None:
    puppet = Puppet()
    agent = await serve(puppet, push=push())
    task, act = await begun(agent, puppet)
    first = await agent.create_push_config(task["id"], url=hook.url_of("old"))
    act.tell(says("one"))
    await hook.until(lambda: len(hook.of("old")) == 1)
    before = len(await logged(agent, task["id"]))
    second = await agent.create_push_config(task["id"], url=hook.url_of("new"), id=first["id"])
    assert second["id"] == first["id"]
    assert (await agent.get_push_config(task["id"], first["id"]))["url"] == hook.url_of("new")
    act.tell(says("two"))
    act.end()
    told = await hook.until_told("COMPLETED", "new")
    await check_told(agent, told, await logged(agent, task["id"]), before)
    assert len(hook.of("old")) == 1


async def test_configuration_that_is_created_again_as_it_is_goes_on_where_it_is(serve: Serve, hook: Hook) -> None:
    puppet = Puppet()
    agent = await serve(puppet, push=push())
    task, act = await begun(agent, puppet)
    before = len(await logged(agent, task["id"]))
    hook.answer = lambda post: status(503)
    created = await agent.create_push_config(task["id"], url=hook.url)
    act.tell(says("one"), says("two"))
    await hook.until(lambda: len(hook.posts) > 1)
    assert await agent.create_push_config(task["id"], url=hook.url, id=created["id"]) == created
    hook.answer = lambda post: OK
    act.end()
    told = await hook.until_told("COMPLETED")
    await check_told(agent, told, await logged(agent, task["id"]), before)


@no_list
@pytest.mark.requirement("push.delete-is-permanent", "push.delete-idempotent", "push.get-missing-refused")
async def test_deleted_configuration_is_gone_for_good_and_its_webhook_hears_nothing_more(
    serve: Serve, hook: Hook
) -> None:
    puppet = Puppet()
    agent = await serve(puppet, push=push())
    task, act = await begun(agent, puppet)
    gone = await agent.create_push_config(task["id"], url=hook.url_of("gone"), id="gone")
    stays = await agent.create_push_config(task["id"], url=hook.url_of("stays"), id="stays")
    act.tell(says("one"))
    await hook.until(lambda: bool(hook.of("gone") and hook.of("stays")))
    for _ in range(2):
        await agent.delete_push_config(task["id"], gone["id"])
    with refused("TaskNotFoundError"):
        await agent.get_push_config(task["id"], gone["id"])
    assert await agent.list_push_configs(task["id"]) == [stays]
    act.tell(says("two"))
    act.end()
    await hook.until_told("COMPLETED", "stays")
    assert len(hook.of("gone")) == 1


@no_list
async def test_only_configuration_of_a_task_is_read_and_deleted_by_the_id_of_the_task(serve: Serve, hook: Hook) -> None:
    puppet = Puppet()
    agent = await serve(puppet, push=push())
    task, act = await hooked(agent, puppet, hook, path="gone")
    (there,) = await agent.list_push_configs(task["id"])
    assert await agent.get_push_config(task["id"], task["id"]) == there
    for _ in range(2):
        await agent.delete_push_config(task["id"], task["id"])
        assert await agent.list_push_configs(task["id"]) == []
    heard = len(hook.posts)
    stays = [
        await agent.create_push_config(task["id"], url=hook.url_of(name), id=name) for name in ("stays", "stays-too")
    ]
    await agent.delete_push_config(task["id"], task["id"])
    assert await agent.list_push_configs(task["id"]) == stays, "it is not known which one is meant"
    act.tell(says("two"))
    act.end()
    await hook.until_told("COMPLETED", "stays")
    assert len(hook.of("gone")) <= heard + 1  # one was under way
    assert all(told.number < hook.of("stays")[0].number for told in hook.of("gone"))


@no_list
async def test_configuration_that_is_deleted_while_its_webhook_fails_is_not_tried_again(
    serve: Serve, hook: Hook
) -> None:
    puppet = Puppet()
    agent = await serve(puppet, push=push())
    hook.answer = lambda post: OK if post.target == "/stays" else status(500)
    task, act = await hooked(agent, puppet, hook, path="fails", id="fails")
    await agent.create_push_config(task["id"], url=hook.url_of("stays"), id="stays")
    await hook.until(lambda: len(hook.posts) > 2)
    await agent.delete_push_config(task["id"], "fails")
    tried = len([post for post in hook.posts if post.target == "/fails"])
    act.end()
    await hook.until_told("COMPLETED", "stays")
    assert len([post for post in hook.posts if post.target == "/fails"]) <= tried + 1  # one was under way


@pytest.mark.requirement(
    *("push.create-unknown-task-refused", "push.get-missing-refused", "push.list-unknown-task-refused"),
    "push.delete-unknown-task-refused",
)
async def test_operations_on_a_task_that_is_not_there_are_refused(serve: Serve) -> None:
    agent = await serve(hello, push=push())
    with refused("TaskNotFoundError"):
        await agent.create_push_config("no-such-task")
    with refused("TaskNotFoundError"):
        await agent.get_push_config("no-such-task", "config")
    with refused("TaskNotFoundError"):
        await agent.list_push_configs("no-such-task")
    with refused("TaskNotFoundError"):
        await agent.delete_push_config("no-such-task", "config")
    task = await agent.task()
    with refused("TaskNotFoundError"):
        await agent.get_push_config(task["id"], "no-such-config")


@pytest.mark.requirement("push.config-persists")
async def test_configuration_outlives_the_end_of_its_task_and_a_restart(serve: Serve, hook: Hook) -> None:
    puppet = Puppet()
    agent = await serve(puppet, push=push())
    task, act = await begun(agent, puppet)
    created = await agent.create_push_config(task["id"], url=hook.url)
    act.end()
    await hook.until_told("COMPLETED")
    assert await agent.get_push_config(task["id"], created["id"]) == created
    again = await serve.restart(agent)
    assert await again.get_push_config(task["id"], created["id"]) == created


@one_webhook
async def test_eleventh_configuration_of_a_task_is_refused_and_one_of_the_ten_can_be_replaced(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet, push=push())
    task, act = await begun(agent, puppet)
    for number in range(10):
        await agent.create_push_config(task["id"], url="http://127.0.0.1:9/", id=f"id-{number}")
    with refused("InvalidParamsError") as refusal:
        await agent.create_push_config(task["id"], url="http://127.0.0.1:9/", id="one-more")
    assert "10 webhooks" in refusal.message + str(refusal.violations)
    await agent.create_push_config(task["id"], url="http://127.0.0.1:9/other", id="id-3")
    assert len(await agent.list_push_configs(task["id"])) == 10
    act.end()
    await agent.until(task["id"], "COMPLETED")


@malformed
@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"url": "ftp://hooks.example/"}, "url"),
        ({"url": "https://169.254.169.254/latest"}, "url"),
        ({"url": "https://user:secret@hooks.example/"}, "url"),
        ({"url": "https://10.0.0.7/"}, "url"),
        ({"url": "http://hooks.example/\r\nX-Injected: 1"}, "url"),
        ({"token": "a\r\nX-Injected: 1"}, "token"),
        ({"authentication": {"scheme": "Bearer\r\nX: 1", "credentials": "c"}}, "authentication.scheme"),
        ({"authentication": {"scheme": "Bearer", "credentials": "c\nX: 1"}}, "authentication.credentials"),
        ({"id": "a\nb"}, "id"),
    ],
)
async def test_configuration_that_cannot_be_called_is_refused_with_the_path_of_its_field(
    serve: Serve, fields: Json, field: str
) -> None:
    puppet = Puppet()
    agent = await serve(puppet, push=push())
    task, act = await begun(agent, puppet)
    with refused("InvalidParamsError") as refusal:
        await agent.create_push_config(task["id"], **fields)
    assert list(refusal.violations) == [field]
    config = {"url": "https://hooks.example/a2a", **fields}
    for call in (agent.send, agent.stream):
        with refused("InvalidParamsError") as refusal:
            await call("go", configuration={"taskPushNotificationConfig": config})
        assert list(refusal.violations) == [f"configuration.taskPushNotificationConfig.{field}"]
    assert "secret" not in f"{refusal.message} {refusal.violations}"
    assert await agent.list_push_configs(task["id"]) == []
    assert puppet.runs == 1
    act.end()
    await agent.until(task["id"], "COMPLETED")


# --- with a message ---------------------------------------------------------------------------------------------------


@every_store
@pytest.mark.requirement(
    *("push.delivered-at-least-once", "push.payload", "push.plain-http-for-every-binding", "push.credentials-sent"),
    "mode.no-effect-on-push",
)
@pytest.mark.parametrize("at_once", [True, False], ids=["at-once", "when-it-rests"])
async def test_webhook_of_a_message_hears_its_task_from_the_first_event_on(
    serve: Serve, hook: Hook, at_once: bool
) -> None:
    puppet = Puppet()
    agent = await serve(puppet, push=push())
    configuration = {**inline(hook, authentication=AUTHENTICATION), "returnImmediately": at_once}
    sending = asyncio.ensure_future(agent.task("go", configuration=configuration))
    act = await puppet.next()
    act.tell("one ", "two ", says("soon"), "three")
    act.end()
    task = await sending
    told = await hook.until_told("COMPLETED")
    await check_told(agent, told, await logged(agent, task["id"]))
    assert {one.post.headers["authorization"] for one in told} == {"Bearer s3cret-of-the-hook"}
    config_id = told[0].id
    assert (await agent.get_push_config(task["id"], config_id))["url"] == hook.url


async def test_webhook_of_a_stream_hears_the_same_as_the_stream(serve: Serve, hook: Hook) -> None:
    puppet = Puppet()
    agent = await serve(puppet, push=push())
    stream = await agent.stream("go", configuration=inline(hook))
    act = await puppet.next()
    act.tell("one ", "two ", "three")
    act.end()
    events = await stream.rest()
    told = await hook.until_told("COMPLETED")
    await check_told(agent, told, await logged(agent, told[0].task_id))
    if not older(agent):
        assert [one.body for one in told] == events


async def test_webhook_of_a_follow_up_hears_what_follows_it(serve: Serve, hook: Hook) -> None:
    puppet = Puppet()
    agent = await serve(puppet, push=push())
    sending = asyncio.ensure_future(agent.task("go"))
    act = await puppet.next()
    act.tell(asks("Which?"))
    task = await sending
    before = len(await logged(agent, task["id"]))
    await agent.task("that", taskId=task["id"], configuration=inline(hook))
    act.tell("so ", "be it")
    act.end()
    told = await hook.until_told("COMPLETED")
    await check_told(agent, told, await logged(agent, task["id"]), before)


@no_message
@every_store
async def test_answer_that_is_a_message_leaves_no_webhook_behind(serve: Serve, hook: Hook) -> None:
    async def replies(turn: Turn) -> Any:
        return turn.reply("Hello")

    agent = await serve(replies, push=push())
    answer = await agent.send("hi", configuration=inline(hook))
    assert "message" in answer

    async def none_is_left() -> bool:
        return (await agent.app.store.stats()).webhooks == 0

    await eventually(none_is_left)
    assert hook.posts == []


@every_store
async def test_message_that_comes_again_makes_no_second_webhook(serve: Serve, hook: Hook) -> None:
    puppet = Puppet()
    agent = await serve(puppet, push=push())
    sent = message("go")
    task_id = {"taskId": "named-by-its-caller"} if version_of(agent.name) == "0.1" else {}
    task = await agent.task(sent, configuration=inline(hook), **task_id)
    act = await puppet.next()
    again = await agent.task(sent, configuration=inline(hook), **task_id)
    assert again["id"] == task["id"]
    act.tell("one ", "two")
    act.end()
    await hook.until_told("COMPLETED")
    again = await agent.task(sent, configuration=inline(hook), **task_id) if not task_id else again
    told = hook.of("")
    assert len({one.id for one in told}) == 1
    assert len(told) == len({one.number for one in told}), "nothing failed: nothing comes twice"
    await check_told(agent, told, await logged(agent, task["id"]))

    async def one_is_left() -> bool:
        return (await agent.app.store.stats()).webhooks == 1

    await eventually(one_is_left)
    assert puppet.runs == 1


@not_over("0.1", why="a message to a task has no id")
async def test_follow_up_that_comes_again_goes_on_with_its_webhook_where_it_is(serve: Serve, hook: Hook) -> None:
    puppet = Puppet()
    agent = await serve(puppet, push=push())
    sending = asyncio.ensure_future(agent.task("go"))
    act = await puppet.next()
    act.tell(asks("Which?"))
    task = await sending
    before = len(await logged(agent, task["id"]))
    hook.answer = lambda post: status(503)
    follow_up = message("that", taskId=task["id"])
    await agent.task(follow_up, configuration=inline(hook))
    act.tell(says("one"))
    await hook.until(lambda: len(hook.posts) > 1)
    await agent.task(follow_up, configuration=inline(hook))
    hook.answer = lambda post: OK
    act.end()
    told = await hook.until_told("COMPLETED")
    await check_told(agent, told, await logged(agent, task["id"]), before)
    assert len({one.id for one in told}) == 1


@no_list
async def test_message_that_is_refused_leaves_no_webhook_behind(serve: Serve, hook: Hook) -> None:
    puppet = Puppet()
    agent = await serve(puppet, push=push())
    task, act = await begun(agent, puppet)
    with refused("InvalidParamsError"):
        await agent.send("more", taskId=task["id"], contextId="another-context", configuration=inline(hook))
    act.end()
    await agent.until(task["id"], "COMPLETED")
    with refused("UnsupportedOperationError"):
        await agent.send("more", taskId=task["id"], configuration=inline(hook))
    assert await agent.list_push_configs(task["id"]) == []
    assert hook.posts == []


@not_over("0.1", why="a task has one webhook")
async def test_message_that_is_refused_leaves_the_webhook_that_was_there_as_it_was(serve: Serve, hook: Hook) -> None:
    puppet = Puppet()
    agent = await serve(puppet, push=push())
    task, act = await begun(agent, puppet)
    before = len(await logged(agent, task["id"]))
    there = await agent.create_push_config(task["id"], url=hook.url_of("there"), id="mine")
    with refused("InvalidParamsError"):
        await agent.send(
            "more", taskId=task["id"], contextId="another-context", configuration=inline(hook, "new", id="mine")
        )
    assert await agent.list_push_configs(task["id"]) == [there]
    act.tell(says("one"))
    act.end()
    told = await hook.until_told("COMPLETED", "there")
    await check_told(agent, told, await logged(agent, task["id"]), before)
    assert hook.of("new") == []


# --- along the life of a task -----------------------------------------------------------------------------------------


async def test_webhook_of_a_resting_task_hears_the_follow_up(serve: Serve, hook: Hook) -> None:
    puppet = Puppet()
    agent = await serve(puppet, push=push())
    sending = asyncio.ensure_future(agent.task("go"))
    act = await puppet.next()
    act.tell(TaskState.INPUT_REQUIRED)
    act.end()
    task = await sending
    before = len(await logged(agent, task["id"]))
    await agent.create_push_config(task["id"], url=hook.url)
    await agent.task("on", taskId=task["id"], configuration=AT_ONCE)
    act = await puppet.next()
    act.tell("done")
    act.end()
    told = await hook.until_told("COMPLETED")
    await check_told(agent, told, await logged(agent, task["id"]), before)


@not_over("0.3", "0.1", why="a subscription ends when the agent asks")
async def test_resting_task_with_a_webhook_and_a_subscriber_holds_up_nobody(serve: Serve, hook: Hook) -> None:
    puppet = Puppet()
    agent = await serve(puppet, push=push())
    task, act = await hooked(agent, puppet, hook)
    stream = await agent.subscribe(task["id"])
    act.tell(TaskState.INPUT_REQUIRED)
    act.end()
    await hook.until_told("INPUT_REQUIRED")
    await stream.until("INPUT_REQUIRED")
    await agent.task("on", taskId=task["id"], configuration=AT_ONCE)
    act = await puppet.next()
    act.tell("done")
    act.end()
    told = await hook.until_told("COMPLETED")
    await check_told(agent, told, await logged(agent, task["id"]))
    await stream.until("COMPLETED")


async def test_webhook_of_a_task_that_has_ended_is_kept_and_hears_nothing(serve: Serve, hook: Hook) -> None:
    agent = await serve(hello, push=push())
    task = await agent.task("Ada")
    created = await agent.create_push_config(task["id"], url=hook.url)
    assert await agent.get_push_config(task["id"], created["id"]) == created
    assert hook.posts == []


async def test_cancelling_a_resting_task_is_told(serve: Serve, hook: Hook) -> None:
    puppet = Puppet()
    agent = await serve(puppet, push=push())
    sending = asyncio.ensure_future(agent.task("go"))
    act = await puppet.next()
    act.tell(asks("Which?"))
    task = await sending
    before = len(await logged(agent, task["id"]))
    await agent.create_push_config(task["id"], url=hook.url)
    await agent.cancel(task["id"])
    told = await hook.until_told("CANCELED")
    await check_told(agent, told, await logged(agent, task["id"]), before)


@every_store
async def test_follow_up_behind_a_restart_is_told(serve: Serve, hook: Hook) -> None:
    puppet = Puppet()
    agent = await serve(puppet, push=push())
    sending = asyncio.ensure_future(agent.task("go", configuration={**inline(hook), "returnImmediately": False}))
    act = await puppet.next()
    act.tell(TaskState.INPUT_REQUIRED)
    act.end()
    task = await sending
    await hook.until_told("INPUT_REQUIRED")
    agent = await serve.restart(agent)
    await agent.task("on", taskId=task["id"], configuration=AT_ONCE)
    act = await puppet.next()
    act.tell("done")
    act.end()
    told = await hook.until_told("COMPLETED")
    await check_told(agent, told, await logged(agent, task["id"]))


@every_store
async def test_what_was_not_delivered_before_a_restart_is_delivered_behind_it(serve: Serve, hook: Hook) -> None:
    puppet = Puppet()
    agent = await serve(puppet, push=push())
    hook.answer = lambda post: status(503)
    task, act = await hooked(agent, puppet, hook)
    stream = await agent.subscribe(task["id"])
    act.tell("one ", "two")
    act.end()
    await stream.until("COMPLETED")
    await hook.until(lambda: len(hook.posts) > 1)
    agent = await serve.restart(agent)
    hook.answer = lambda post: OK
    told = await hook.until_told("COMPLETED")
    await check_told(agent, told, await logged(agent, task["id"]))


@every_store
@pytest.mark.requirement("push-security.retries")
@pytest.mark.parametrize("seed", [1, 2])
async def test_webhook_that_fails_nine_times_of_ten_hears_every_event_in_order(
    serve: Serve, hook: Hook, seed: int
) -> None:
    puppet = Puppet()
    agent = await serve(puppet, push=push(first_pause_s=0.001, longest_pause_s=0.004, timeout_s=0.3))
    hook.answer = flaky(seed)
    task, act = await hooked(agent, puppet, hook)
    for number in range(10):
        act.tell(f"{number} ", says(f"said {number}"))
    act.end()
    told = await hook.until_told("COMPLETED")
    await check_told(agent, told, await logged(agent, task["id"]))
    assert len(hook.posts) > len(told)


# --- whose ------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("push.get-missing-refused")
@only_in("1.0", why="a caller has no tenant before")
@not_over("grpc", why="the tenant names the agent")
async def test_webhooks_of_another_tenant_are_not_there(serve: Serve, hook: Hook) -> None:
    puppet = Puppet()
    agent = await serve(puppet, push=push())
    theirs = await agent.as_tenant("theirs").task("go", configuration=AT_ONCE)
    act = await puppet.next()
    config = await agent.call(
        "CreateTaskPushNotificationConfig", {"taskId": theirs["id"], "tenant": "theirs", "url": hook.url, "id": "x"}
    )
    assert config["id"] == "x"
    for call in (
        agent.create_push_config(theirs["id"], url=hook.url),
        agent.get_push_config(theirs["id"], "x"),
        agent.list_push_configs(theirs["id"]),
        agent.delete_push_config(theirs["id"], "x"),
    ):
        with refused("TaskNotFoundError"):
            await call
    with refused("TaskNotFoundError"):
        await agent.send("more", taskId=theirs["id"], configuration=inline(hook))
    act.end()
    told = await hook.until_told("COMPLETED")
    assert {one.id for one in told} == {"x"}
