"""The same request over direct, JSON-RPC and REST: the same result, the same events, the same error (A2A 1.0 §5.1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from tests.behaviour.agents import make_agent
from tests.behaviour.harness import Json, Refused, Transport, message
from tests.behaviour.serving import Serve
from tieline import AgentExtension, Artifact, Failed, Part, Rejected, Turn

TRANSPORTS = ("direct", "jsonrpc", "rest")

_OURS = {"id", "taskId", "contextId", "messageId", "artifactId"}


def comparable(value: Any) -> Any:
    """A result with what is new in each call replaced: ids by their order of appearance, timestamps by a word."""
    seen: dict[str, str] = {}

    def walk(item: Any) -> Any:
        if isinstance(item, list):
            return [walk(inner) for inner in item]
        if not isinstance(item, dict):
            return item
        out = {}
        for key in sorted(item):
            inner = item[key]
            if key in _OURS and isinstance(inner, str):
                out[key] = seen.setdefault(inner, f"id-{len(seen) + 1}")
            elif key in ("timestamp", "nextPageToken") and inner:
                out[key] = "some"
            else:
                out[key] = inner if key in ("data", "metadata") else walk(inner)
        return out

    return walk(value)


async def does_as_told(turn: Turn) -> AsyncGenerator[Any, None]:
    """Shows everything that an agent can give."""
    match turn.text:
        case "reply":
            yield turn.reply("hi", {"n": 2**70, "none": None}, metadata={"k": [1, None]})
        case "work":
            await turn.status("reading", metadata={"step": 1})
            yield "some "
            yield "text"
            yield {"rows": [1, 2.5, None, 2**70]}
            yield Part(raw=b"\x00\xff", media_type="application/octet-stream", filename="a.bin")
            async with turn.artifact("b.csv", media_type="text/csv", metadata={"m": True}) as out:
                await out.write("a,b\n")
                await out.write("1,2\n", last=True)
            yield Artifact("own-id", (Part(url="https://files.example/x", media_type="image/png"),), "x")
            await turn.complete("all done")
        case "ask":
            yield f"you said {await turn.ask('Which?', {'options': ['a', 'b']})}"
        case "authorize":
            yield f"you granted {await turn.authorize('Please allow it.')}"
        case "reject":
            raise Rejected("not that")
        case "fail":
            raise Failed("could not")
        case "crash":
            raise ZeroDivisionError
        case "wait":
            await turn.status("waiting")
            await asyncio.Event().wait()
        case _:
            for part in turn.parts:
                yield part


def agent() -> Any:
    return make_agent(does_as_told, input_modes=("*/*",))


ODD_PARTS = [
    {"text": "x", "metadata": {"a": {"b": [None, 1, 1.0, 2**64]}}, "mediaType": "text/plain", "filename": "x.txt"},
    {"data": None},
    {"data": [1, {"snake_name": None, "n": -(2**70)}]},
    {"raw": "", "filename": "empty"},
    {"url": "https://files.example/ä?x=1&y=2"},
]

Steps = Callable[[Transport], Awaitable[Any]]


async def follow_up(agent: Transport) -> Any:
    first = await agent.task("ask")
    second = await agent.task("b", taskId=first["id"])
    return [first, second, await agent.get(first["id"], historyLength=2), await agent.get(first["id"])]


async def cancelled(agent: Transport) -> Any:
    task = await agent.task("wait", configuration={"returnImmediately": True})
    return await agent.cancel(task["id"])


async def listed(agent: Transport) -> Any:
    for text in ("work", "ask", "reject"):
        await agent.send(text, contextId="shared")
    await agent.send("work")
    return [
        await agent.list(),
        await agent.list(contextId="shared", pageSize=2, includeArtifacts=True, historyLength=0),
        await agent.list(status="TASK_STATE_INPUT_REQUIRED"),
        await agent.list(statusTimestampAfter="2120-01-01T00:00:00Z"),
    ]


async def subscribed(agent: Transport) -> Any:
    task = await agent.task("authorize")
    stream = await agent.subscribe(task["id"])
    first = await stream.next()
    await agent.task("yes", taskId=task["id"])
    return [first, *await stream.rest()]


def sending(content: Any, **fields: Any) -> Steps:
    async def steps(agent: Transport) -> Any:
        return await agent.send(message(content, messageId="m-1"), **fields)

    return steps


def streaming(content: Any, **fields: Any) -> Steps:
    async def steps(agent: Transport) -> Any:
        return await (await agent.stream(message(content, messageId="m-1"), **fields)).rest()

    return steps


RESULTS: dict[str, Steps] = {
    **{f"send {word}": sending(word) for word in ("reply", "work", "ask", "authorize", "reject", "fail", "crash")},
    **{f"stream {word}": streaming(word) for word in ("reply", "work", "ask", "reject", "fail", "crash")},
    "send odd parts": sending(ODD_PARTS),
    "stream odd parts": streaming(ODD_PARTS),
    "send without history": sending("work", configuration={"historyLength": 0}),
    "send with metadata": sending("reply", metadata={"a": None}, configuration={"acceptedOutputModes": ["text/plain"]}),
    "follow up": follow_up,
    "cancel": cancelled,
    "list": listed,
    "subscribe": subscribed,
}


@pytest.mark.requirement("equivalence.results")
@pytest.mark.parametrize("case", RESULTS)
async def test_the_same_request_gets_the_same_result_over_every_binding(serve: Serve, case: str) -> None:
    here = await serve(agent())
    results = [comparable(await RESULTS[case](here))]
    for name in TRANSPORTS:
        other = await serve(agent())
        results.append(comparable(await RESULTS[case](other.over(name))))
    assert all(result == results[0] for result in results)


@pytest.mark.requirement("equivalence.results", "equivalence.operations")
async def test_a_task_made_over_one_binding_is_there_over_the_others(serve: Serve) -> None:
    here = await serve(agent())
    task = await here.task("ask")
    for name in TRANSPORTS:
        other = here.over(name)
        assert await other.get(task["id"]) == task
        listed = (await other.list())["tasks"]
        assert [each["id"] for each in listed] == [task["id"]]
        stream = await other.subscribe(task["id"])
        assert await stream.next() == {"task": task}
        stream.close()
    for name in TRANSPORTS:
        started = await here.task("ask")
        answered = await here.over(name).task("b", taskId=started["id"])
        assert answered["status"]["state"] == "TASK_STATE_COMPLETED"
        assert await here.get(started["id"]) == answered
        assert (await here.over(name).cancel((await here.task("ask"))["id"]))["status"][
            "state"
        ] == "TASK_STATE_CANCELED"


@pytest.mark.requirement("equivalence.results")
async def test_a_stream_of_one_binding_carries_what_comes_over_another(serve: Serve) -> None:
    here = await serve(agent())
    task = await here.task("ask")
    streams = [await here.over(name).subscribe(task["id"]) for name in TRANSPORTS]
    await here.task("b", taskId=task["id"])
    events = [await stream.rest() for stream in streams]
    assert events[0] == events[1] == events[2]
    assert [stream.ids for stream in streams] == [streams[0].ids] * 3


# --- errors -----------------------------------------------------------------------------------------------------------


async def refusal(call: Awaitable[Any]) -> Json:
    """An error as every binding tells it: reason, sentence, metadata and violations."""
    with pytest.raises(Refused) as caught:
        await call
    error = caught.value
    return {
        "reason": error.reason,
        "message": error.message,
        "metadata": error.metadata,
        "violations": error.violations,
        "in stream": error.in_stream,
    }


REFUSALS: dict[str, Steps] = {
    "an unknown task is read": lambda agent: agent.get("none"),
    "an unknown task is cancelled": lambda agent: agent.cancel("none"),
    "an unknown task is subscribed to": lambda agent: agent.subscribe("none"),
    "an unknown task is sent to": lambda agent: agent.send("x", taskId="none"),
    "an unknown task is streamed to": lambda agent: agent.stream("x", taskId="none"),
    "an odd id is read": lambda agent: agent.get("a/b:c?d=é %2F"),
    "an ended task is cancelled": lambda agent: agent.cancel("ENDED"),
    "an ended task is subscribed to": lambda agent: agent.subscribe("ENDED"),
    "an ended task is sent to": lambda agent: agent.send("x", taskId="ENDED"),
    "another context is named": lambda agent: agent.send("x", taskId="OPEN", contextId="other"),
    "nothing is sent": lambda agent: agent.call("SendMessage", {}),
    "nothing is streamed": lambda agent: agent.open("SendStreamingMessage", {}),
    "no parts are sent": lambda agent: agent.send(message([], messageId="m")),
    "an empty part is sent": lambda agent: agent.send([{"text": "a"}, {}]),
    "a part of two kinds is streamed": lambda agent: agent.stream([{"text": "a", "url": "b"}]),
    "a wrong role is sent": lambda agent: agent.send(message("x", role="user", messageId="m")),
    "no role is sent": lambda agent: agent.send(message("x", role="ROLE_UNSPECIFIED", messageId="m")),
    "no message id is sent": lambda agent: agent.send(message("x", messageId="")),
    "a text is a number": lambda agent: agent.send([{"text": 5}]),
    "bytes are not base64": lambda agent: agent.send([{"raw": "!"}]),
    "metadata is a list": lambda agent: agent.send("x", metadata=[1]),
    "a history length is negative": lambda agent: agent.get("OPEN", historyLength=-1),
    "a history length of a send is negative": lambda agent: agent.send("x", configuration={"historyLength": -1}),
    "a page is empty": lambda agent: agent.list(pageSize=0),
    "a page is too long": lambda agent: agent.list(pageSize=101),
    "a page token is foreign": lambda agent: agent.list(pageToken="token"),
    "a time is none": lambda agent: agent.list(statusTimestampAfter="yesterday"),
    "a state is none": lambda agent: agent.list(status="TASK_STATE_RUNNING"),
    "a webhook is created": lambda agent: agent.create_push_config("OPEN"),
    "a webhook is read": lambda agent: agent.get_push_config("OPEN", "c"),
    "webhooks are listed": lambda agent: agent.list_push_configs("OPEN"),
    "a webhook is removed": lambda agent: agent.delete_push_config("OPEN", "c"),
    "a webhook is sent along": lambda agent: agent.send(
        "x", configuration={"taskPushNotificationConfig": {"url": "https://a.example"}}
    ),
    "the extended card is read": lambda agent: agent.extended_card(),
}


class _Named:
    """A transport in whose requests ENDED and OPEN are the ids of two tasks."""

    def __init__(self, agent: Transport, ids: dict[str, str]) -> None:
        self._agent = agent
        self._ids = ids

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._agent, name)

        def call(*args: Any, **fields: Any) -> Any:
            given = [self._ids.get(arg, arg) if isinstance(arg, str) else arg for arg in args]
            named = {
                key: self._ids.get(value, value) if isinstance(value, str) else value for key, value in fields.items()
            }
            return operation(*given, **named)

        return call


@pytest.mark.requirement("equivalence.errors", "fields.server-refuses-missing")
@pytest.mark.parametrize("case", REFUSALS)
async def test_the_same_fault_gets_the_same_error_over_every_binding(serve: Serve, case: str) -> None:
    here = await serve(agent())
    ids = {"ENDED": (await here.task("work"))["id"], "OPEN": (await here.task("ask"))["id"]}
    mine = await refusal(REFUSALS[case](_Named(here, ids)))  # type: ignore[arg-type]
    for name in TRANSPORTS:
        assert await refusal(REFUSALS[case](_Named(here.over(name), ids))) == mine  # type: ignore[arg-type]
    assert mine["message"]
    assert not mine["in stream"]


@pytest.mark.requirement("equivalence.errors")
async def test_capabilities_that_are_missing_are_refused_alike(serve: Serve) -> None:
    limited = make_agent(
        does_as_told, streaming=False, extensions=[AgentExtension("https://x.example/v1", required=True)]
    )
    here = await serve(limited)
    named = {"A2A-Version": "1.0", "A2A-Extensions": "https://x.example/v1"}
    refusals: list[list[Json]] = []
    for name in (here.name, *TRANSPORTS):
        agent = here.over(name)
        refusals.append(
            [
                await refusal(agent.send("x")),
                await refusal(agent.list()),
                await refusal(agent.stream("x", service=named)),
                await refusal(agent.subscribe("none", service=named)),
                await refusal(agent.send([{"url": "https://a", "mediaType": "image/png"}], service=named)),
            ]
        )
    assert all(each == refusals[0] for each in refusals)
    assert [each["reason"] for each in refusals[0]] == [
        "EXTENSION_SUPPORT_REQUIRED",
        "EXTENSION_SUPPORT_REQUIRED",
        "UNSUPPORTED_OPERATION",
        "UNSUPPORTED_OPERATION",
        "CONTENT_TYPE_NOT_SUPPORTED",
    ]


@pytest.mark.requirement("equivalence.operations", "card.available")
async def test_every_binding_has_every_operation(serve: Serve) -> None:
    here = await serve(agent())
    task = await here.task("ask")
    operations: list[Awaitable[Any]] = [
        here.card(),
        here.send("reply"),
        here.stream("reply"),
        here.get(task["id"]),
        here.list(),
        here.subscribe(task["id"]),
        here.cancel(task["id"]),
    ]
    for operation in operations:
        assert await operation
    absent = [
        here.create_push_config("t"),
        here.get_push_config("t", "c"),
        here.list_push_configs("t"),
        here.delete_push_config("t", "c"),
        here.extended_card(),
    ]
    reasons = [(await refusal(each))["reason"] for each in absent]
    assert reasons == ["PUSH_NOTIFICATION_NOT_SUPPORTED"] * 4 + ["UNSUPPORTED_OPERATION"]
