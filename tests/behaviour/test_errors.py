"""Errors: which, when, and what they say (A2A 1.0 §3.3.2)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.behaviour.agents import Puppet, begun, hello, make_agent
from tests.behaviour.direct import Direct
from tests.behaviour.harness import Json, Refused, Tenant, Transport, message, refused, state_of
from tests.behaviour.over_http import JsonRpc, Rest
from tests.behaviour.refusals import ERRORS
from tests.behaviour.serving import Serve, by_tenants, every_store, malformed, not_over, numbered, over, unknown_ids
from tieline import AgentExtension, Limits, Turn

Caller = Transport | Tenant

ON_A_TASK: dict[str, Callable[[Caller, str], Awaitable[Any]]] = {
    "get": lambda agent, task_id: agent.get(task_id),
    "get-history": lambda agent, task_id: agent.get(task_id, historyLength=1),
    "cancel": lambda agent, task_id: agent.cancel(task_id),
    "subscribe": lambda agent, task_id: agent.subscribe(task_id),
    "resume": lambda agent, task_id: agent.subscribe(task_id, last_event_id=1),
    "send": lambda agent, task_id: agent.send(message("go on", messageId="m"), taskId=task_id),
    "send-with-context": lambda agent, task_id: agent.send("go on", taskId=task_id, contextId="c"),
    "stream": lambda agent, task_id: agent.stream("go on", taskId=task_id),
}
"""Every operation on a task that the caller names."""
RESUME = pytest.param("resume", marks=numbered)
TYPES = "protobuf has no place for a value of a wrong type"


def no_protobuf(*values: Any) -> Any:
    """A parameter with a value that JSON can say and protobuf cannot."""
    return pytest.param(*values, marks=not_over("grpc", why=TYPES))


async def refusal_of(call: Awaitable[Any]) -> Refused:
    with pytest.raises(Refused) as caught:
        await call
    return caught.value


# --- resources --------------------------------------------------------------------------------------------------------


@by_tenants
@every_store
@pytest.mark.requirement(
    "resource.not-found",
    "resource.missing-like-forbidden",
    "authorization.existence-hidden",
    "errors.appropriate",
    "errors.actionable",
)
@pytest.mark.parametrize("operation", [*(name for name in ON_A_TASK if name != "resume"), RESUME])
@pytest.mark.parametrize("state", ["WORKING", "COMPLETED"])
async def test_task_of_somebody_else_looks_like_one_that_is_not_there(serve: Serve, operation: str, state: str) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await begun(agent, puppet, tenant="theirs", contextId="c")
    if state == "COMPLETED":
        act.end()
        await agent.until(task["id"], "COMPLETED", tenant="theirs")
    strangers: list[Caller] = [agent, agent.as_tenant("mine")]
    if isinstance(agent, Direct):
        strangers += [agent.as_principal("mallory"), agent.as_principal("mallory").as_tenant("theirs")]
    for stranger in strangers:
        forbidden = await refusal_of(ON_A_TASK[operation](stranger, task["id"]))
        missing = await refusal_of(ON_A_TASK[operation](stranger, "no-such-task"))
        forbidden.check("TaskNotFoundError")
        assert task["id"] in forbidden.message
        assert str(forbidden).replace(task["id"], "ID") == str(missing).replace("no-such-task", "ID")
    assert state_of(await agent.as_tenant("theirs").get(task["id"])) == state
    assert puppet.runs == 1


# --- validation -------------------------------------------------------------------------------------------------------


def without(name: str) -> Json:
    given = message("hello")
    del given[name]
    return given


async def call(agent: Transport, operation: str, params: Json) -> None:
    """An operation with params as they are, right or wrong."""
    if operation in ("SendStreamingMessage", "SubscribeToTask"):
        await agent.open(operation, params)
    else:
        await agent.call(operation, params)


MISSING: dict[str, tuple[Json, str]] = {
    "message": ({}, "message"),
    "messageId": ({"message": without("messageId")}, "message.messageId"),
    "role": ({"message": without("role")}, "message.role"),
    "parts": ({"message": without("parts")}, "message.parts"),
    "no parts": ({"message": message("hello", parts=[])}, "message.parts"),
    "content of a part": ({"message": message([{"text": "a"}, {"metadata": {}}])}, "message.parts[1]"),
    "empty messageId": ({"message": message("hello", messageId="")}, "message.messageId"),
    "unspecified role": ({"message": message("hello", role="ROLE_UNSPECIFIED")}, "message.role"),
}


@malformed
@pytest.mark.requirement(
    "validation.missing-fields",
    "validation.before-processing",
    "validation.names-parameter",
    "errors.appropriate",
    "errors.actionable",
    "model.message-fields",
)
@pytest.mark.parametrize("operation", ["SendMessage", "SendStreamingMessage"])
@pytest.mark.parametrize(("params", "field"), MISSING.values(), ids=list(MISSING))
async def test_send_that_lacks_a_required_field_is_refused_by_its_name(
    serve: Serve, operation: str, params: Json, field: str
) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    with refused("InvalidParamsError") as refusal:
        await call(agent, operation, params)
    assert field in refusal.violations
    assert field in refusal.message
    assert puppet.runs == 0
    assert (await agent.list())["totalSize"] == 0


@over("direct", "jsonrpc")
@pytest.mark.requirement("validation.missing-fields", "validation.names-parameter")
@pytest.mark.parametrize("operation", ["GetTask", "CancelTask", "SubscribeToTask"])
async def test_operation_on_a_task_that_names_none_is_refused(serve: Serve, operation: str) -> None:
    agent = await serve(hello)
    with refused("InvalidParamsError") as refusal:
        await call(agent, operation, {})
    assert "id" in refusal.violations


WRONG: dict[str, tuple[Json, str]] = {
    "message": ({"message": "hello"}, "message"),
    "message list": ({"message": [message("hello")]}, "message"),
    "messageId": ({"message": message("hello", messageId=5)}, "message.messageId"),
    "role": ({"message": message("hello", role="assistant")}, "message.role"),
    "role number": ({"message": message("hello", role=7)}, "message.role"),
    "parts": ({"message": message("hello", parts={"text": "hello"})}, "message.parts"),
    "part": ({"message": message("hello", parts=["hello"])}, "message.parts[0]"),
    "text": ({"message": message({"text": 5})}, "message.parts[0].text"),
    "raw": ({"message": message({"raw": "not base64!"})}, "message.parts[0].raw"),
    "url": ({"message": message({"url": ["a"]})}, "message.parts[0].url"),
    "two kinds": ({"message": message({"text": "a", "url": "b"})}, "message.parts[0]"),
    "metadata": ({"message": message("hello", metadata=[])}, "message.metadata"),
    "extensions": ({"message": message("hello", extensions="urn:x")}, "message.extensions"),
    "references": ({"message": message("hello", referenceTaskIds=[5])}, "message.referenceTaskIds[0]"),
    "configuration": ({"message": message("hello"), "configuration": "fast"}, "configuration"),
    "historyLength": (
        {"message": message("hello"), "configuration": {"historyLength": "many"}},
        "configuration.historyLength",
    ),
    "fraction": (
        {"message": message("hello"), "configuration": {"historyLength": 1.5}},
        "configuration.historyLength",
    ),
    "returnImmediately": (
        {"message": message("hello"), "configuration": {"returnImmediately": "yes"}},
        "configuration.returnImmediately",
    ),
    "modes": (
        {"message": message("hello"), "configuration": {"acceptedOutputModes": "text/plain"}},
        "configuration.acceptedOutputModes",
    ),
    "tenant": ({"message": message("hello"), "tenant": 5}, "tenant"),
}


@malformed
@not_over("grpc", why=TYPES)
@pytest.mark.requirement(
    "validation.wrong-types",
    "validation.before-processing",
    "validation.names-parameter",
    "errors.appropriate",
    "model.part-one-content",
)
@pytest.mark.parametrize("operation", ["SendMessage", "SendStreamingMessage"])
@pytest.mark.parametrize(("params", "field"), WRONG.values(), ids=list(WRONG))
async def test_send_with_a_field_of_a_wrong_type_is_refused_by_its_name(
    serve: Serve, operation: str, params: Json, field: str
) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    with refused("InvalidParamsError") as refusal:
        await call(agent, operation, params)
    assert list(refusal.violations) == [field]
    assert field in refusal.message
    assert puppet.runs == 0


@malformed
@pytest.mark.requirement("validation.wrong-types", "validation.out-of-range", "validation.names-parameter")
@pytest.mark.parametrize(
    ("operation", "params", "field"),
    [
        no_protobuf("GetTask", {"id": "t", "historyLength": "many"}, "historyLength"),
        no_protobuf("GetTask", {"id": "t", "historyLength": 1.5}, "historyLength"),
        ("GetTask", {"id": "t", "historyLength": -1}, "historyLength"),
        no_protobuf("ListTasks", {"pageSize": "many"}, "pageSize"),
        no_protobuf("ListTasks", {"status": "WORKING"}, "status"),
        no_protobuf("ListTasks", {"status": "TASK_STATE_DONE"}, "status"),
        no_protobuf("ListTasks", {"includeArtifacts": "perhaps"}, "includeArtifacts"),
        ("ListTasks", {"historyLength": -5}, "historyLength"),
        no_protobuf("ListTasks", {"statusTimestampAfter": "soon"}, "statusTimestampAfter"),
        ("ListTasks", {"pageToken": "a token of mine"}, "pageToken"),
        no_protobuf("CancelTask", {"id": "t", "metadata": "because"}, "metadata"),
    ],
    ids=lambda value: value if isinstance(value, str) else str(max(value.items())[1]),
)
async def test_reading_with_a_bad_parameter_is_refused_by_its_name(
    serve: Serve, operation: str, params: Json, field: str
) -> None:
    agent = await serve(hello)
    with refused("InvalidParamsError") as refusal:
        await call(agent, operation, params)
    assert list(refusal.violations) == [field]


@malformed
@pytest.mark.requirement("validation.says-what-is-valid", "errors.actionable")
@pytest.mark.parametrize(
    ("operation", "params", "words"),
    [
        ("ListTasks", {"pageSize": 0}, "between 1 and 100"),
        no_protobuf("ListTasks", {"statusTimestampAfter": "soon"}, "RFC 3339"),
        no_protobuf("ListTasks", {"status": "WORKING"}, "TASK_STATE_WORKING"),
        ("ListTasks", {"historyLength": -1}, "must not be negative"),
        no_protobuf("SendMessage", {"message": message("hello", role="user")}, "ROLE_USER"),
        ("SendMessage", {"message": message("hello", parts=[])}, "at least one part"),
        ("SendMessage", {"message": message([{"metadata": {}}])}, "exactly one of text, raw, url or data"),
        no_protobuf("SendMessage", {"message": message([{"text": 5}])}, "str"),
        no_protobuf("SendMessage", {"message": message([{"raw": "!"}])}, "base64"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_refusal_says_what_would_be_valid(serve: Serve, operation: str, params: Json, words: str) -> None:
    agent = await serve(hello)
    with refused("InvalidParamsError") as refusal:
        await call(agent, operation, params)
    ((_, description),) = refusal.violations.items()
    assert words in description


@every_store
@pytest.mark.requirement("validation.before-processing")
async def test_invalid_message_to_a_task_leaves_it_as_it_was(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await begun(agent, puppet)
    act.tell(lambda turn: turn.ask("Which one?"))
    before = await agent.until(task["id"], "INPUT_REQUIRED")
    faulty: list[Json] = [{"parts": []}, {"role": "ROLE_UNSPECIFIED"}, {"messageId": ""}]
    for bad in faulty:
        with refused("InvalidParamsError"):
            await agent.send(message("left", **bad), taskId=task["id"])
    with refused("ContentTypeNotSupportedError"):
        await agent.send({"data": 1}, taskId=task["id"])
    with refused("InvalidParamsError"):
        await agent.send("left", taskId=task["id"], configuration={"historyLength": -1})
    assert await agent.get(task["id"]) == before
    assert act.results.empty()


# --- systems ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("system.temporary-told-apart", "errors.actionable", "validation.before-processing")
async def test_too_much_load_is_told_as_something_that_passes(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet, limits=Limits(concurrent_runs=1))
    task, act = await begun(agent, puppet)
    for call_ in (agent.send, agent.stream):
        with refused("Overloaded") as refusal:
            await call_("me too")
        assert refusal.metadata["retryAfterSeconds"].isdigit()
        if isinstance(agent, JsonRpc | Rest):
            assert refusal.error.headers["retry-after"].isdigit()
    assert puppet.runs == 1
    assert state_of(await agent.get(task["id"])) == "WORKING"  # reading goes on
    act.end()
    await agent.until(task["id"], "COMPLETED")
    await begun(agent, puppet)  # it has passed


@pytest.mark.requirement("system.temporary-told-apart")
async def test_server_that_is_shutting_down_takes_no_new_work_and_says_so(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await begun(agent, puppet)
    act.tell(lambda turn: turn.ask("Which one?"))
    await agent.until(task["id"], "INPUT_REQUIRED")
    await agent.app.services[""].drain(0)
    for fields in ({}, {"taskId": task["id"]}):
        with refused("Unavailable") as refusal:
            await agent.send("go", **fields)
        assert "shutting down" in refusal.message
    assert state_of(await agent.get(task["id"])) == "INPUT_REQUIRED"


@pytest.mark.requirement("system.errors-logged")
async def test_fault_of_an_agent_is_logged_with_its_traceback(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    async def breaks(turn: Turn) -> Any:
        yield "so far"
        raise ZeroDivisionError("the secret cause")

    agent = await serve(make_agent(breaks, name="Breaker"))
    with caplog.at_level(logging.ERROR, "tieline"):
        task = await agent.task()
    assert state_of(task) == "FAILED"
    (record,) = caplog.records
    assert "Breaker" in record.getMessage()
    assert task["id"] in record.getMessage()
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ZeroDivisionError)


# --- form -------------------------------------------------------------------------------------------------------------


async def unhappy(agent: Transport) -> dict[str, Refused]:
    """One refusal of each kind that this agent can give, by the name of its error."""
    task_id = (await agent.task())["id"]
    configuration = {"taskPushNotificationConfig": {"url": "https://hooks.example/"}}
    picture = {"raw": "AAAA", "mediaType": "image/png"}
    return {
        "TaskNotFoundError": await refusal_of(agent.get("no-such-task")),
        "TaskNotCancelableError": await refusal_of(agent.cancel(task_id)),
        "PushNotificationNotSupportedError": await refusal_of(agent.send(configuration=configuration)),
        "UnsupportedOperationError": await refusal_of(agent.send("more", taskId=task_id)),
        "ContentTypeNotSupportedError": await refusal_of(agent.send(picture)),
        "InvalidParamsError": await refusal_of(agent.send(message("hello", parts=[]))),
    }


@pytest.mark.requirement("errors.code-and-message", "errors.appropriate", "errors.native-and-back")
async def test_every_error_has_its_code_and_a_sentence(serve: Serve) -> None:
    agent = await serve(hello)
    for name, refusal in (await unhappy(agent)).items():
        refusal.check(name)
        assert len(refusal.message) > 15
        assert refusal.message.endswith((".", "required"))
    required = await serve(make_agent(hello, extensions=[AgentExtension("urn:x", required=True)]))
    (await refusal_of(required.list())).check("ExtensionSupportRequiredError")


@over("jsonrpc", "rest", "grpc")
@pytest.mark.requirement("errors.details-typed", "errors.well-known-details")
async def test_details_of_errors_are_google_rpc_types_that_say_so(serve: Serve) -> None:
    agent = await serve(hello)
    for name, refusal in (await unhappy(agent)).items():
        types = [detail["@type"] for detail in refusal.details]
        assert len(types) == len(set(types))
        if name == "InvalidParamsError":
            assert "type.googleapis.com/google.rpc.BadRequest" in types
        else:
            assert types == ["type.googleapis.com/google.rpc.ErrorInfo"]
            (info,) = refusal.details
            assert info["reason"] == ERRORS[name][3]
            assert info["domain"] == "a2a-protocol.org"
            assert all(isinstance(value, str) for value in info.get("metadata", {}).values())


@pytest.mark.requirement("errors.native-and-back", "equivalence.errors")
async def test_errors_say_the_same_over_this_transport_as_in_the_process(serve: Serve) -> None:
    agent = await serve(hello)
    here, there = await unhappy(agent), await unhappy(agent.over("direct"))
    for name, refusal in here.items():
        assert refusal.violations == there[name].violations
        ours, theirs = ({k: v for k, v in r.metadata.items() if k != "taskId"} for r in (refusal, there[name]))
        assert ours == theirs
        if "taskId" not in refusal.metadata:
            assert refusal.message == there[name].message


@unknown_ids
@pytest.mark.requirement("errors.appropriate")
async def test_every_refusal_comes_at_once_even_while_agents_are_at_work(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await begun(agent, puppet)
    calls = [
        agent.get("no-such-task"),
        agent.send(message("hello", parts=[])),
        agent.stream("go on", taskId="no-such-task"),
        agent.extended_card(),
        agent.create_push_config(task["id"]),
        agent.list(pageSize=0),
    ]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Refused] * len(calls)
    act.end()
