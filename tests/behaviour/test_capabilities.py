"""Operations and extensions that need what the card does not declare (A2A 1.0 §3.3.4, §4.6)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.behaviour.agents import Puppet, begun, hello, make_agent
from tests.behaviour.harness import Transport, refused, state_of
from tests.behaviour.serving import Serve
from tieline import AgentExtension, Turn

WANTED = "https://extensions.example/geolocation/v2"
OTHER = "https://extensions.example/citations/v1"

Call = Callable[[Transport, str], Awaitable[Any]]

CALLS: dict[str, Call] = {
    "send": lambda agent, task_id: agent.send(),
    "stream": lambda agent, task_id: agent.stream(),
    "get": lambda agent, task_id: agent.get(task_id),
    "list": lambda agent, task_id: agent.list(),
    "cancel": lambda agent, task_id: agent.cancel(task_id),
    "subscribe": lambda agent, task_id: agent.subscribe(task_id),
}


def named(*uris: str) -> dict[str, str]:
    """Service parameters with these extensions."""
    return {"A2A-Version": "1.0", "A2A-Extensions": ", ".join(uris)}


async def tells(turn: Turn) -> Any:
    """Says which extensions it was asked for."""
    yield list(turn.extensions)


# --- capabilities -----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("capability.push-operations-refused", "errors.appropriate")
@pytest.mark.parametrize("known", [True, False], ids=["known-task", "unknown-task"])
async def test_push_operations_are_refused_whether_or_not_the_task_exists(serve: Serve, known: bool) -> None:
    agent = await serve(hello)
    task_id = (await agent.task())["id"] if known else "no-such-task"
    with refused("PushNotificationNotSupportedError"):
        await agent.create_push_config(task_id)
    with refused("PushNotificationNotSupportedError"):
        await agent.get_push_config(task_id, "config")
    with refused("PushNotificationNotSupportedError"):
        await agent.list_push_configs(task_id)
    with refused("PushNotificationNotSupportedError"):
        await agent.delete_push_config(task_id, "config")
    assert not (await agent.card())["capabilities"].get("pushNotifications")


@pytest.mark.requirement("capability.inline-push-refused", "validation.before-processing")
async def test_send_with_a_push_configuration_is_refused_rather_than_served_without_it(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    configuration = {"taskPushNotificationConfig": {"url": "https://hooks.example/a2a"}}
    for call in (agent.send, agent.stream):
        with refused("PushNotificationNotSupportedError"):
            await call("go", configuration=configuration)
    assert puppet.runs == 0
    assert (await agent.list())["totalSize"] == 0


@pytest.mark.requirement("capability.stream-refused", "capability.subscribe-refused")
async def test_agent_that_does_not_stream_refuses_streams_and_does_the_rest(serve: Serve) -> None:
    puppet = Puppet(streaming=False)
    agent = await serve(puppet)
    assert not (await agent.card())["capabilities"].get("streaming")
    with refused("UnsupportedOperationError"):
        await agent.stream("go")
    assert puppet.runs == 0
    task, act = await begun(agent, puppet)
    with refused("UnsupportedOperationError"):
        await agent.subscribe(task["id"])
    with refused("UnsupportedOperationError"):
        await agent.subscribe("no-such-task")
    if agent.numbered:
        with refused("UnsupportedOperationError"):
            await agent.subscribe(task["id"], last_event_id=1)
    assert state_of(await agent.get(task["id"])) == "WORKING"
    assert state_of(await agent.cancel(task["id"])) == "CANCELED"
    assert act.cancelled


@pytest.mark.requirement("capability.extended-card-refused")
async def test_agent_without_an_extended_card_refuses_to_give_it(serve: Serve) -> None:
    agent = await serve(hello)
    assert not (await agent.card())["capabilities"].get("extendedAgentCard")
    with refused("UnsupportedOperationError"):
        await agent.extended_card()


# --- extensions -------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("capability.required-extension", "errors.actionable", "validation.before-processing")
@pytest.mark.parametrize("operation", CALLS)
async def test_request_without_a_required_extension_is_refused_and_told_which(serve: Serve, operation: str) -> None:
    puppet = Puppet(extensions=[AgentExtension(WANTED, required=True), AgentExtension(OTHER)])
    agent = await serve(puppet)
    task = await agent.task(service=named(WANTED), configuration={"returnImmediately": True})
    act = await puppet.next()
    with refused("ExtensionSupportRequiredError") as refusal:
        await CALLS[operation](agent, task["id"])
    assert WANTED in refusal.message
    assert OTHER not in refusal.message
    assert not act.stopped.is_set()
    assert puppet.runs == 1


@pytest.mark.requirement("capability.required-extension")
@pytest.mark.parametrize("uris", [(WANTED,), (OTHER, WANTED), (WANTED, "urn:unknown"), (WANTED, WANTED)])
async def test_request_that_declares_the_required_extension_is_served(serve: Serve, uris: tuple[str, ...]) -> None:
    agent = await serve(make_agent(tells, extensions=[AgentExtension(WANTED, required=True)]))
    task = await agent.task(service=named(*uris))
    assert task["artifacts"][0]["parts"] == [{"data": [WANTED]}]


@pytest.mark.requirement("extension.required-version-refused", "extension.no-fallback")
@pytest.mark.parametrize("uri", [WANTED.replace("v2", "v1"), WANTED.replace("v2", "v3"), WANTED + "/", WANTED[:-1]])
async def test_other_version_of_a_required_extension_is_refused_as_none(serve: Serve, uri: str) -> None:
    agent = await serve(make_agent(tells, extensions=[AgentExtension(WANTED, required=True)]))
    with refused("ExtensionSupportRequiredError"):
        await agent.send(service=named(uri))


@pytest.mark.requirement("extension.unknown-ignored", "extension.no-fallback")
async def test_extension_or_version_that_the_agent_does_not_speak_is_ignored(serve: Serve) -> None:
    agent = await serve(make_agent(tells, extensions=[AgentExtension(WANTED), AgentExtension(OTHER)]))
    newer, older, unknown = WANTED.replace("v2", "v3"), WANTED.replace("v2", "v1"), "urn:unknown"
    task = await agent.task(service=named(newer, OTHER, older, unknown))
    assert state_of(task) == "COMPLETED"
    assert task["artifacts"][0]["parts"] == [{"data": [OTHER]}]


@pytest.mark.requirement("params.values-keep-case", "extension.unknown-ignored")
async def test_extension_uri_in_another_case_is_another_extension(serve: Serve) -> None:
    agent = await serve(make_agent(tells, extensions=[AgentExtension(WANTED)]))
    task = await agent.task(service=named(WANTED.upper(), WANTED.replace("geo", "Geo")))
    assert task["artifacts"][0]["parts"] == [{"data": []}]
    required = await serve(make_agent(tells, extensions=[AgentExtension(WANTED, required=True)]))
    with refused("ExtensionSupportRequiredError"):
        await required.send(service=named(WANTED.upper()))
