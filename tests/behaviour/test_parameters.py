"""Metadata, service parameters and what extensions carry (A2A 1.0 §3.2.5, §3.2.6, §4.6.2)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.behaviour.agents import hello, make_agent
from tests.behaviour.harness import Json, Transport, message, refused, state_of
from tests.behaviour.over_grpc import Grpc
from tests.behaviour.serving import Serve, every_store, malformed, not_over, over
from tieline import AgentExtension, Artifact, Message, Part, Role, TaskState, TaskStatus, Turn
from tieline.types import encode

ANY_JSON: Json = {
    "text": 'a "quoted" line\nand \u00fc, \u4e2d, \U0001f600, \u0000',
    "empty": "",
    "null": None,
    "true": True,
    "false": False,
    "zero": 0,
    "negative": -17,
    "float": 1.5,
    "whole float": 2.0,
    "small": 1e-9,
    "list": [1, "two", None, [3.0, {"four": 4}], {}],
    "object": {"nested": {"deeper": {"null": None}}, "": "an empty key"},
    "snake_case": {"task_id": 1, "inner_list": [{"context_id": None}]},
    "camelCase": 1,
    "https://extensions.example/geo/v1": {"latitude": 37.7749},
    "data": 1,
    "metadata": {"raw": "not base64!"},
    "status": 3,
    "role": 1,
}
LARGE: Json = {
    "beyond double": 9007199254740993,
    "beyond 64 bits": 123456789012345678901234567890,
    "negative beyond 64 bits": -123456789012345678901234567890,
}
no_double = not_over("grpc", why="a number of protobuf's is a double")


def any_json(agent: Transport) -> Json:
    """Every kind of value that a transport can carry."""
    return ANY_JSON if isinstance(agent, Grpc) else {**ANY_JSON, **LARGE}


async def echoes_metadata(turn: Turn) -> Any:
    """Gives back what metadata it got, as data and as metadata of everything it can put some on."""
    given = turn.metadata
    await turn.status("here", metadata=given)
    yield Part(data=given, metadata=given)
    yield Artifact("a", (Part(text="a"),), metadata=given)
    yield TaskStatus(TaskState.WORKING, Message("m", Role.AGENT, (Part(text="m"),), metadata=given))
    async with turn.artifact("b", metadata=given) as out:
        await out.write("b", last=True)


@every_store
@pytest.mark.requirement("metadata.any-json", "model.part-data-any-json")
async def test_metadata_arrives_exactly_as_it_was_sent_both_ways(serve: Serve) -> None:
    agent = await serve(echoes_metadata)
    given = any_json(agent)
    sent = message([{"text": "hello", "metadata": given}], metadata=given)
    stream = await agent.stream(sent)
    events = await stream.rest()
    task = await agent.get(events[0]["task"]["id"])
    assert agent.same(task["history"][0]["metadata"], given)
    assert agent.same(task["history"][0]["parts"][0]["metadata"], given)
    response, whole, written = task["artifacts"]
    assert agent.same(response["parts"][0]["data"], given)
    assert agent.same(response["parts"][0]["metadata"], given)
    assert agent.same(whole["metadata"], given)
    assert agent.same(written["metadata"], given)
    updates = [event["statusUpdate"] for event in events if "statusUpdate" in event]
    assert any(agent.same(update.get("metadata"), given) for update in updates)
    said = [update["status"]["message"] for update in updates if "message" in update["status"]]
    assert any(agent.same(m.get("metadata"), given) for m in said)


@pytest.mark.requirement("metadata.any-json")
async def test_metadata_of_the_request_reaches_the_agent_above_that_of_the_message(serve: Serve) -> None:
    agent = await serve(echoes_metadata)
    given = any_json(agent)
    task = await agent.task(message("hello", metadata={"a": 1, "b": 1}), metadata={"b": given})
    assert agent.same(task["artifacts"][0]["parts"][0]["data"], {"a": 1, "b": given})


@every_store
@pytest.mark.requirement("model.part-data-any-json", "metadata.any-json")
@pytest.mark.parametrize(
    "value",
    [
        *(None, True, False, 0, -1, 2.0, "", "text", [], {}, [None], ANY_JSON),
        *(pytest.param(value, marks=no_double) for value in (2**70, LARGE)),
    ],
    ids=str,
)
async def test_data_of_a_part_is_any_json_value(serve: Serve, value: Any) -> None:
    async def echoes(turn: Turn) -> Any:
        yield Part(data=turn.parts[0].data)

    agent = await serve(make_agent(echoes, input_modes=("*/*",)))
    task = await agent.task({"data": value})
    for part in (task["artifacts"][0]["parts"][0], task["history"][0]["parts"][0]):
        assert list(part) == ["data"]
        assert agent.same(part["data"], value)
    assert await agent.get(task["id"]) == task


@not_over("0.1", why="what it lacks is added to the metadata")
@not_over("grpc", why="protobuf has no place for a value of a wrong type")
@pytest.mark.requirement("metadata.any-json", "validation.wrong-types")
@pytest.mark.parametrize("metadata", [[], "text", 5, True])
async def test_metadata_that_is_no_object_is_refused(serve: Serve, metadata: Any) -> None:
    agent = await serve(hello)
    with refused("InvalidParamsError") as refusal:
        await agent.send(message("hello", metadata=metadata))
    assert "message.metadata" in refusal.violations
    with refused("InvalidParamsError") as refusal:
        await agent.send("hello", metadata=metadata)
    assert "metadata" in refusal.violations


# --- service parameters -----------------------------------------------------------------------------------------------


@over("jsonrpc", "rest")
@pytest.mark.requirement("params.names-ignore-case")
@pytest.mark.parametrize(
    ("version", "extensions"),
    [("a2a-version", "a2a-extensions"), ("A2A-VERSION", "A2A-EXTENSIONS"), ("a2A-vErSiOn", "A2a-eXtensions")],
)
async def test_names_of_service_parameters_are_matched_in_any_case(serve: Serve, version: str, extensions: str) -> None:
    async def tells(turn: Turn) -> Any:
        yield [turn.caller.version, list(turn.extensions)]

    agent = await serve(make_agent(tells, extensions=[AgentExtension("urn:x", required=True)]), strict=True)
    task = await agent.task(service={version: "1.0", extensions: "urn:x"})
    assert task["artifacts"][0]["parts"] == [{"data": ["1.0", ["urn:x"]]}]


@over("jsonrpc", "rest", "grpc")
@pytest.mark.requirement("params.values-keep-case")
async def test_several_extensions_come_in_one_list_with_or_without_spaces(serve: Serve) -> None:
    async def tells(turn: Turn) -> Any:
        yield list(turn.extensions)

    uris = ["urn:x:a", "urn:x:B", "urn:x:c"]
    agent = await serve(make_agent(tells, extensions=[AgentExtension(uri) for uri in uris]))
    for given in ("urn:x:a,urn:x:B,urn:x:c", "urn:x:a , urn:x:B,   urn:x:c,", ",urn:x:a,,urn:x:B,urn:x:c,urn:x:a"):
        task = await agent.task(service={"A2A-Version": "1.0", "A2A-Extensions": given})
        assert task["artifacts"][0]["parts"] == [{"data": uris}]


# --- what extensions carry --------------------------------------------------------------------------------------------


@every_store
@pytest.mark.requirement("extension.data-kept")
async def test_extensions_and_their_metadata_on_messages_and_artifacts_reach_the_other_side(serve: Serve) -> None:
    uri = "https://extensions.example/geolocation/v1"
    place = {uri: {"latitude": 37.7749, "accuracy": 10.0}}

    async def echoes(turn: Turn) -> Any:
        seen = json.loads(encode(turn.message))
        yield {"extensions": seen["extensions"], "metadata": seen["metadata"]}
        yield Artifact("a", (Part(text="a"),), metadata=place, extensions=(uri,))
        yield TaskStatus(
            TaskState.WORKING, Message("m", Role.AGENT, (Part(text="m"),), metadata=place, extensions=(uri,))
        )
        yield TaskStatus(
            TaskState.COMPLETED, Message("e", Role.AGENT, (Part(text="e"),), metadata=place, extensions=(uri,))
        )

    agent = await serve(echoes)
    stream = await agent.stream(message("hello", extensions=[uri], metadata=place))
    events = await stream.rest()
    task = await agent.get(events[0]["task"]["id"])
    assert state_of(task) == "COMPLETED"
    response, artifact = task["artifacts"]
    assert agent.same(response["parts"][0]["data"], {"extensions": [uri], "metadata": place})
    told = [event["statusUpdate"]["status"].get("message") for event in events if "statusUpdate" in event]
    for value in (task["history"][0], artifact, task["status"]["message"], *filter(None, told)):
        assert value["extensions"] == [uri]
        assert agent.same(value["metadata"], place)


@malformed
@not_over("grpc", why="a field of protobuf has a number, and one that is not known no name")
async def test_fields_that_the_protocol_does_not_have_are_ignored(serve: Serve) -> None:
    agent = await serve(hello)
    task = await agent.task(message([{"text": "Ada", "colour": "red"}], mood="good"), colour={"red": [1]})
    assert state_of(task) == "COMPLETED"
    assert task["history"][0]["parts"] == [{"text": "Ada"}]
    assert "mood" not in task["history"][0]
