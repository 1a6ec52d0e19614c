"""Webhooks of a task, set by our client at servers of others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from tests.client.running import run
from tests.client.scripted import Answer, Http, Script, Scripted, Stream, card_of, scripted
from tests.client.serving import WAYS, by_way
from tests.client.tasks import task
from tests.push.official import official_server
from tieline import AuthenticationInfo, Peer, Task, TaskPushNotificationConfig, TaskState, Turn, agent, app, connect
from tieline.card import AgentCapabilities
from tieline.engine.guard import Guard
from tieline.engine.push import Push
from tieline.errors import InvalidPeerResponse, PushNotificationNotSupported, TaskNotFound, UnsupportedOperation

COMPLETED = TaskState.COMPLETED
URL = "http://127.0.0.1:9/hook"
OFFICIAL = {way: spoken for way, spoken in WAYS.items() if spoken[1] != "0.1"}
every = pytest.mark.parametrize("way", list(OFFICIAL))


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with official_server(tmp_path_factory.mktemp("official")) as port:
        yield port


def peer_at(port: int, way: str) -> Any:
    binding, version = OFFICIAL[way]
    return connect(f"127.0.0.1:{port}", transport=binding, version=version)


async def begun(peer: Peer, **options: Any) -> Task:
    task = await peer.send("go", **options)
    assert isinstance(task, Task)
    return task


@every
def test_webhooks_are_set_read_listed_and_deleted_at_the_official_server(port: int, way: str) -> None:
    async def test() -> None:
        async with peer_at(port, way) as peer:
            assert (peer.transport, peer.interface.protocol_version) == OFFICIAL[way]
            task = await begun(peer)
            assert await peer.list_webhooks(task.id) == ()
            given = TaskPushNotificationConfig(
                URL, id="c1", token="tok", authentication=AuthenticationInfo("Bearer", "abc")
            )
            first = await peer.set_webhook(task.id, given)
            assert (first.id, first.task_id, first.url, first.token) == ("c1", task.id, URL, "tok")
            plain = await peer.set_webhook(task.id, URL + "/plain")
            assert plain.id
            read = await peer.get_webhook(task.id, "c1")
            assert (read.url, read.token) == (URL, "tok")
            assert read.authentication is not None
            assert read.authentication.scheme == "Bearer"
            assert (await peer.get_webhook(task.id)).url == URL + "/plain"
            assert {webhook.id for webhook in await peer.list_webhooks(task.id)} == {"c1", plain.id}
            if way == "rest-0.3":  # which this server has no way to delete by
                with pytest.raises(TaskNotFound):
                    await peer.delete_webhook(task.id, "c1")
                return
            await peer.delete_webhook(task.id, "c1")
            await peer.delete_webhook(task.id)
            assert await peer.list_webhooks(task.id) == ()

    run(test())


@every
def test_webhook_that_comes_with_a_message_is_set(port: int, way: str) -> None:
    async def test() -> None:
        async with peer_at(port, way) as peer:
            task = await begun(peer, webhook=TaskPushNotificationConfig(URL, id="inline", token="tok"))
            (webhook,) = await peer.list_webhooks(task.id)
            assert (webhook.id, webhook.url, webhook.token) == ("inline", URL, "tok")
            streamed = [event async for event in peer.stream("go", webhook=URL)]
            assert isinstance(streamed[0], Task)
            assert [webhook.url for webhook in await peer.list_webhooks(streamed[0].id)] == [URL]

    run(test())


@every
def test_webhook_of_a_task_that_is_not_there_is_not_found(port: int, way: str) -> None:
    async def test() -> None:
        async with peer_at(port, way) as peer:
            task = await begun(peer)
            for call in (
                peer.set_webhook("no-such", URL),
                peer.get_webhook(task.id, "no-such"),
                peer.list_webhooks("no-such"),
                peer.delete_webhook("no-such", "c1"),
            ):
                with pytest.raises(TaskNotFound):
                    await call

    run(test())


@every
def test_webhook_that_is_set_without_an_id_is_read_replaced_and_deleted_without_one(way: str) -> None:
    @agent(name="Asker", description="Asks.")
    async def asker(turn: Turn) -> None:
        await turn.ask("Which?")

    async def test() -> None:
        async with by_way(app(asker, push=Push(guard=Guard(allow_loopback=True))), way) as peer:
            task = await begun(peer)
            await peer.set_webhook(task.id, TaskPushNotificationConfig(URL, id="other"))
            await peer.set_webhook(task.id, URL + "/first")
            await peer.set_webhook(task.id, URL + "/second")
            assert (await peer.get_webhook(task.id)).url == URL + "/second"
            assert {webhook.url for webhook in await peer.list_webhooks(task.id)} == {URL, URL + "/second"}
            await peer.delete_webhook(task.id)
            assert [webhook.id for webhook in await peer.list_webhooks(task.id)] == ["other"]

    run(test())


# --- what goes out, and odd answers -----------------------------------------------------------------------------------


def pushing(agent: Scripted, version: str = "1.0") -> Any:
    card = card_of((agent.url, agent.binding), version=version)
    return connect(replace(card, capabilities=AgentCapabilities(streaming=True, push_notifications=True)))


def result(value: Any) -> Http:
    return Http(200, json.dumps({"jsonrpc": "2.0", "id": None, "result": value}).encode())


OLD_CONFIG = {"url": URL, "token": "tok", "authentication": {"schemes": ["bearer"], "credentials": "abc"}}
GIVEN = TaskPushNotificationConfig(URL, token="tok", authentication=AuthenticationInfo("bearer", "abc"))


def test_0_1_sets_and_gets_a_webhook_and_has_no_list_and_no_deletion() -> None:
    async def test() -> None:
        answer = result({"id": "t", "pushNotificationConfig": OLD_CONFIG})
        script = {"tasks/pushNotification/set": [answer], "tasks/pushNotification/get": [answer]}
        async with scripted("JSONRPC", script) as agent, pushing(agent, "0.1") as peer:
            for webhook in (await peer.set_webhook("t", GIVEN), await peer.get_webhook("t")):
                assert (webhook.url, webhook.token, webhook.task_id) == (URL, "tok", "t")
                assert webhook.authentication == AuthenticationInfo("bearer", "abc")
            assert [request.params for request in agent.requests] == [
                {"id": "t", "pushNotificationConfig": OLD_CONFIG},
                {"id": "t"},
            ]
            for call in (peer.list_webhooks("t"), peer.delete_webhook("t")):
                with pytest.raises(UnsupportedOperation, match=r"A2A 0\.1 has no"):
                    await call

    run(test())


def test_webhook_of_0_3_over_rest_goes_out_in_the_form_of_its_definition() -> None:
    async def test() -> None:
        answer = Http(
            200,
            json.dumps({"name": "tasks/t/pushNotificationConfigs/c", "pushNotificationConfig": {"url": URL}}).encode(),
        )
        script = {"POST /agent/v1/tasks/t/pushNotificationConfigs": [answer]}
        async with scripted("HTTP+JSON", script) as agent, pushing(agent, "0.3") as peer:
            webhook = await peer.set_webhook("t", TaskPushNotificationConfig(URL, id="c", token="tok"))
            assert (webhook.url, webhook.id, webhook.task_id) == (URL, "c", "t")
            assert agent.requests[0].json == {
                "parent": "tasks/t",
                "configId": "c",
                "config": {
                    "name": "tasks/t/pushNotificationConfigs/c",
                    "pushNotificationConfig": {"url": URL, "id": "c", "token": "tok"},
                },
            }

    run(test())


@pytest.mark.parametrize(
    ("binding", "answer"),
    [
        ("JSONRPC", result(None)),
        ("JSONRPC", result({})),
        ("JSONRPC", Http(200, b'{"jsonrpc":"2.0","id":1}')),
        ("HTTP+JSON", Http(200, b"{}")),
        ("HTTP+JSON", Http(204)),
        ("HTTP+JSON", Http(200)),
    ],
)
def test_every_way_to_say_that_a_webhook_is_gone_is_understood(binding: str, answer: Http) -> None:
    async def test() -> None:
        script = {"DeleteTaskPushNotificationConfig": [answer]}
        async with scripted(binding, script) as agent, pushing(agent) as peer:
            await peer.delete_webhook("t", "c")
            assert agent.calls == ["DeleteTaskPushNotificationConfig"]

    run(test())


@pytest.mark.parametrize(
    ("binding", "answer", "error"),
    [
        ("JSONRPC", Http(200, b'{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"no"}}'), TaskNotFound),
        ("JSONRPC", Http(200, b"<html>"), InvalidPeerResponse),
        ("JSONRPC", Http(500, b'{"jsonrpc":"2.0","id":1}'), InvalidPeerResponse),
        ("HTTP+JSON", Http(500, b"oops"), InvalidPeerResponse),
    ],
)
def test_what_is_no_answer_to_a_deletion_is_an_error(binding: str, answer: Http, error: type[Exception]) -> None:
    async def test() -> None:
        script = {"DeleteTaskPushNotificationConfig": [answer]}
        async with scripted(binding, script) as agent, pushing(agent) as peer:
            with pytest.raises(error):
                await peer.delete_webhook("t", "c")

    run(test())


def test_pages_of_webhooks_are_read_to_the_last_and_not_in_circles() -> None:
    async def test() -> None:
        def page(number: int, token: str) -> Http:
            return result({"configs": [{"url": f"{URL}/{number}", "taskId": "t"}], "nextPageToken": token})

        script = {"ListTaskPushNotificationConfigs": [page(1, "a"), page(2, ""), page(1, "a"), page(1, "a")]}
        async with scripted("JSONRPC", script) as agent, pushing(agent) as peer:
            assert [webhook.url for webhook in await peer.list_webhooks("t")] == [f"{URL}/1", f"{URL}/2"]
            assert agent.requests[1].params["pageToken"] == "a"
            with pytest.raises(InvalidPeerResponse, match="again and again"):
                await peer.list_webhooks("t")

    run(test())


def test_agent_whose_card_does_not_push_is_sent_no_webhook() -> None:
    async def test() -> None:
        async with scripted("JSONRPC", {}) as agent, connect(agent.card) as peer:
            for call in (
                peer.set_webhook("t", URL),
                peer.get_webhook("t"),
                peer.list_webhooks("t"),
                peer.delete_webhook("t"),
                peer.send("go", webhook=URL),
            ):
                with pytest.raises(PushNotificationNotSupported, match="sends no push notifications"):
                    await call
            with pytest.raises(PushNotificationNotSupported):
                peer.stream("go", webhook=URL)
            assert agent.calls == []

    run(test())


@pytest.mark.requirement("send.push-config-without-task-id")
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
def test_webhook_that_goes_with_a_message_names_no_task(binding: str) -> None:
    async def test() -> None:
        script: Script = {"SendMessage": [Answer(task())], "SendStreamingMessage": [Stream(task(COMPLETED))]}
        async with scripted(binding, script) as agent, pushing(agent) as peer:
            webhook = TaskPushNotificationConfig(URL, id="c", task_id="other", token="tok")
            await peer.send("go", webhook=webhook)
            assert [event async for event in peer.stream("go", webhook=webhook)]
            for request in agent.requests:
                sent = request.params["configuration"]["taskPushNotificationConfig"]
                assert sent == {"url": URL, "id": "c", "token": "tok"}

    run(test())
