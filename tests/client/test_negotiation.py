"""Which binding and version an agent is called in: as its card prefers, its caller pins, and its answers prove."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from tests.client.foreign import NEW, OLD, Foreign, card_01, card_03, card_10, foreign
from tests.client.running import QUICK, run
from tests.client.scripted import Http, Raw, card_of
from tests.client.tasks import artifact, artifact_update, message, task
from tieline import Part, Task, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent, Timeouts, connect
from tieline.card import AgentInterface
from tieline.client.route import Route, Way
from tieline.errors import (
    A2AError,
    InternalError,
    InvalidCard,
    InvalidParams,
    InvalidPeerResponse,
    InvalidRequest,
    MethodNotFound,
    PeerTimeout,
    TaskInDoubt,
    TaskNotFound,
    Unreachable,
    UnsupportedOperation,
    VersionNotSupported,
)
from tieline.wire import protobuf

ALL = ("JSONRPC 1.0", "JSONRPC 0.3", "JSONRPC 0.1", "HTTP+JSON 1.0", "HTTP+JSON 0.3")
SEND = {
    "JSONRPC 1.0": "SendMessage",
    "JSONRPC 0.3": "message/send",
    "JSONRPC 0.1": "tasks/send",
    "HTTP+JSON 1.0": "/message:send",
    "HTTP+JSON 0.3": "/v1/message:send",
}
STREAM = {
    "JSONRPC 1.0": "SendStreamingMessage",
    "JSONRPC 0.3": "message/stream",
    "JSONRPC 0.1": "tasks/sendSubscribe",
    "HTTP+JSON 1.0": "/message:stream",
    "HTTP+JSON 0.3": "/v1/message:stream",
}
GET = {
    "JSONRPC 1.0": "GetTask",
    "JSONRPC 0.3": "tasks/get",
    "JSONRPC 0.1": "tasks/get",
    "HTTP+JSON 1.0": "/tasks/t",
    "HTTP+JSON 0.3": "/v1/tasks/t",
}
every = pytest.mark.parametrize("word", ALL)


def place(agent: Foreign, word: str) -> tuple[str, str, str]:
    """One interface of the agent's, as a card of 1.0 lists it."""
    binding, version = word.split(" ")
    return (agent.url + ("/rpc" if binding == "JSONRPC" else "/rest"), binding, version)


def listing(agent: Foreign, *words: str, streaming: bool = False) -> None:
    """Give the agent a card with these interfaces."""
    agent.cards[NEW] = card_10(*(place(agent, word) for word in words), streaming=streaming)


def rpc_error(code: int, message: str = "no", status: int = 200) -> Http:
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    return Http(status, json.dumps(body).encode(), {"Content-Type": "application/json"})


# --- cards of every age -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [NEW, OLD])
@pytest.mark.parametrize(
    ("age", "spoken"),
    [
        ("1.0 JSON-RPC", "JSONRPC 1.0"),
        ("1.0 REST", "HTTP+JSON 1.0"),
        ("0.3 JSON-RPC", "JSONRPC 0.3"),
        ("0.3 REST", "HTTP+JSON 0.3"),
        ("0.2.6", "JSONRPC 0.3"),
        ("0.1", "JSONRPC 0.1"),
        ("joint", "JSONRPC 1.0"),
    ],
)
@pytest.mark.requirement("version.client-negotiates")
def test_an_agent_is_called_as_its_card_says_wherever_the_card_is(path: str, age: str, spoken: str) -> None:
    async def test() -> None:
        async with foreign(*(ALL if age == "joint" else [spoken])) as agent:
            rpc, rest = agent.url + "/rpc", agent.url + "/rest"
            agent.cards[path] = {
                "1.0 JSON-RPC": card_10((rpc, "JSONRPC", "1.0")),
                "1.0 REST": card_10((rest, "HTTP+JSON", "1.0")),
                "0.3 JSON-RPC": card_03(rpc, "JSONRPC", (rpc, "JSONRPC")),
                "0.3 REST": card_03(rest, "HTTP+JSON", (rest, "HTTP+JSON")),
                "0.2.6": card_03(rpc, None, version="0.2.6"),
                "0.1": card_01(rpc),
                "joint": {**card_03(rpc, "JSONRPC"), **card_10((rpc, "JSONRPC", "1.0"), (rpc, "JSONRPC", "0.3"))},
            }[age]
            async with connect(agent.url) as peer:
                for _ in range(2):
                    assert await peer.ask("hi") == spoken
                assert peer.transport == spoken.split(" ")[0]
        assert agent.calls == [SEND[spoken]] * 2
        assert agent.versions == [spoken.split(" ")[1]] * 2

    run(test())


@pytest.mark.requirement("interface.client-prefers-earlier")
def test_the_cards_order_decides_across_versions_and_bindings() -> None:
    async def test() -> None:
        for first in ALL:
            async with foreign(*ALL) as agent:
                listing(agent, first, *(word for word in ALL if word != first))
                async with connect(agent.url) as peer:
                    assert await peer.ask("hi") == first
            assert agent.calls == [SEND[first]]

    run(test())


@pytest.mark.requirement("interface.client-prefers-earlier")
def test_an_old_card_prefers_its_main_url_before_the_additional_ones() -> None:
    async def test() -> None:
        async with foreign(*ALL) as agent:
            rpc, rest = agent.url + "/rpc", agent.url + "/rest"
            agent.cards[NEW] = card_03(rest, "HTTP+JSON", (rpc, "JSONRPC"), (rest, "HTTP+JSON"))
            async with connect(agent.url) as peer:
                assert await peer.ask("hi") == "HTTP+JSON 0.3"
            async with connect(agent.url, transport=["JSONRPC", "HTTP+JSON"]) as peer:
                assert await peer.ask("hi") == "JSONRPC 0.3"

    run(test())


# --- pins -------------------------------------------------------------------------------------------------------------


@every
@pytest.mark.requirement("version.client-pins")
def test_a_pinned_binding_and_version_are_spoken_whatever_the_card_prefers(word: str) -> None:
    async def test() -> None:
        binding, version = word.split(" ")
        async with foreign(*ALL) as agent:
            listing(agent, *ALL)
            for pin in (version, f"{version}.0"):
                async with connect(agent.url, transport=binding, version=pin) as peer:
                    assert await peer.ask("hi") == word
                    await peer.get("t")
        assert agent.calls == [SEND[word], GET[word]] * 2
        assert agent.versions == [version] * 4

    run(test())


@every
@pytest.mark.requirement("version.client-pins")
def test_a_pin_that_the_card_does_not_offer_is_an_error_before_any_call(word: str) -> None:
    async def test() -> None:
        binding, version = word.split(" ")
        async with foreign(*ALL) as agent:
            others = [other for other in ALL if other.split(" ")[1] != version]
            listing(agent, *others)
            with pytest.raises(InvalidCard, match=f"in version {version}"):
                await connect(agent.url, version=version)
            listing(agent, *(other for other in ALL if other.split(" ")[0] != binding))
            with pytest.raises(InvalidCard, match="offers no interface that can be used of"):
                await connect(agent.url, transport=binding)
        assert agent.calls == []

    run(test())


REFUSALS = {
    "method not found": None,
    "version not supported": rpc_error(-32009),
    "invalid request": rpc_error(-32600, status=400),
    "not found": Http(404),
    "a page": Http(404, b"<h1>Not Found</h1>", {"Content-Type": "text/html"}),
}


@every
@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.requirement("version.client-pins")
def test_a_pinned_version_is_never_left_for_another_one(word: str, refusal: str) -> None:
    async def test() -> None:
        binding, version = word.split(" ")
        others = [other for other in ALL if other.split(" ")[1] != version]
        async with foreign(*others, refusal=REFUSALS[refusal]) as agent:
            listing(agent, word, *others)
            async with connect(agent.url, version=version, transport=binding) as peer:
                for ask in (peer.send, peer.ask):
                    with pytest.raises(A2AError) as told:
                        await ask("hi")
                    assert not isinstance(told.value, TaskInDoubt)
        assert agent.calls == [SEND[word]] * 2
        assert set(agent.versions) == {version}

    run(test())


@pytest.mark.requirement("version.client-pins")
def test_a_pinned_version_goes_to_the_next_binding_of_the_same_version_alone() -> None:
    async def test() -> None:
        async with foreign("JSONRPC 1.0", "HTTP+JSON 0.3") as agent:
            listing(agent, "JSONRPC 0.3", "JSONRPC 1.0", "HTTP+JSON 0.3")
            async with connect(agent.url, version="0.3") as peer:
                assert await peer.ask("hi") == "HTTP+JSON 0.3"
        assert agent.calls == ["message/send", "/v1/message:send"]

    run(test())


# --- cards that are wrong ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listed", "spoken", "asked"),
    [
        ("JSONRPC 1.0", "JSONRPC 0.3", ["SendMessage", "message/send"]),
        ("JSONRPC 1.0", "JSONRPC 0.1", ["SendMessage", "message/send", "tasks/send"]),
        ("JSONRPC 0.3", "JSONRPC 1.0", ["message/send", "SendMessage"]),
        ("JSONRPC 0.3", "JSONRPC 0.1", ["message/send", "SendMessage", "tasks/send"]),
        ("JSONRPC 0.1", "JSONRPC 0.3", ["tasks/send", "SendMessage", "message/send"]),
        ("HTTP+JSON 1.0", "HTTP+JSON 0.3", ["/message:send", "/v1/message:send"]),
        ("HTTP+JSON 0.3", "HTTP+JSON 1.0", ["/v1/message:send", "/message:send"]),
    ],
)
@pytest.mark.parametrize("refusal", REFUSALS)
def test_an_agent_that_speaks_another_version_than_its_card_says_is_found_out_once(
    listed: str, spoken: str, asked: list[str], refusal: str
) -> None:
    if listed.startswith("HTTP") and refusal in ("version not supported", "invalid request"):
        return  # an envelope of JSON-RPC is no answer of REST's

    async def test() -> None:
        async with foreign(spoken, refusal=REFUSALS[refusal]) as agent:
            listing(agent, listed)
            async with connect(agent.url) as peer:
                assert await peer.ask("hi") == spoken
                assert agent.calls == asked
                assert await peer.ask("again") == spoken
                await peer.get("t")
                assert peer.interface.protocol_version == spoken.split(" ")[1]
        assert agent.calls == [*asked, SEND[spoken], GET[spoken]]

    run(test())


def test_404_at_one_binding_leads_to_the_next_one_and_stays_there() -> None:
    async def test() -> None:
        async with foreign("HTTP+JSON 1.0", refusal=Http(404)) as agent:
            listing(agent, "JSONRPC 1.0", "HTTP+JSON 1.0")
            async with connect(agent.url) as peer:
                assert [await peer.ask("hi"), await peer.ask("hi")] == ["HTTP+JSON 1.0"] * 2
                assert peer.transport == "HTTP+JSON"
        assert agent.calls == ["SendMessage", "/message:send", "/message:send"]

    run(test())


def test_what_an_agent_that_speaks_nothing_says_is_told_as_it_came() -> None:
    async def test() -> None:
        async with foreign() as agent:
            listing(agent, "JSONRPC 1.0")
            async with connect(agent.url) as peer:
                with pytest.raises(MethodNotFound, match="Method not found"):
                    await peer.send("hi")
            assert agent.calls == ["SendMessage", "message/send", "tasks/send"]
        async with foreign(refusal=Http(404)) as agent:
            listing(agent, "HTTP+JSON 0.3")
            async with connect(agent.url) as peer:
                with pytest.raises(Unreachable, match=r"There is no agent at .*/v1/message:send"):
                    await peer.send("hi")
            assert agent.calls == ["/v1/message:send", "/message:send"]

    run(test())


def test_a_method_that_is_missing_is_no_reason_to_guess_once_something_has_worked() -> None:
    async def test() -> None:
        for code in (-32601, -32600, -32700, -32009):
            async with foreign(*ALL) as agent:
                listing(agent, "JSONRPC 1.0")
                async with connect(agent.url) as peer:
                    assert await peer.ask("hi") == "JSONRPC 1.0"
                    agent.override = lambda call, code=code: rpc_error(code)  # type: ignore[misc]
                    with pytest.raises(A2AError) as told:
                        await peer.get("t")
                    assert told.value.rpc_code == code
            assert agent.calls == ["SendMessage", "GetTask"]

    run(test())


@pytest.mark.parametrize("code", [-32001, -32602, -32603, -32004, -32000])
def test_an_error_that_proves_no_mismatch_is_no_reason_to_guess(code: int) -> None:
    async def test() -> None:
        async with foreign(*ALL, override=lambda call: rpc_error(code)) as agent:
            listing(agent, "JSONRPC 1.0", "JSONRPC 0.3", "HTTP+JSON 1.0")
            async with connect(agent.url) as peer:
                with pytest.raises(A2AError):
                    await peer.send("hi")
        assert agent.calls == ["SendMessage"]

    run(test())


IN_DOUBT: dict[str, tuple[Http | Raw, type[A2AError]]] = {
    "closed": (Raw(b""), TaskInDoubt),
    "reset": (Raw(b"", end="reset"), TaskInDoubt),
    "cut": (Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"), TaskInDoubt),
    "silent": (Raw(b"", end="hang"), PeerTimeout),
    "failed": (Http(500), InvalidPeerResponse),
    "no answer": (Http(200, b"<html>"), InvalidPeerResponse),
    "internal error": (rpc_error(-32603), InternalError),
}


@pytest.mark.parametrize("end", IN_DOUBT)
def test_a_message_that_may_have_been_carried_out_is_not_sent_in_another_way(end: str) -> None:
    step, error = IN_DOUBT[end]

    async def test() -> None:
        for streaming in (False, True):
            async with foreign(*ALL, override=lambda call: step) as agent:
                listing(agent, "JSONRPC 0.3", "JSONRPC 1.0", "HTTP+JSON 0.3", streaming=streaming)
                async with connect(agent.url, recovery=QUICK, timeouts=Timeouts(answer_s=0.1, idle_s=0.1)) as peer:
                    with pytest.raises(error):
                        await peer.ask("hi")
            assert agent.calls == ["message/stream" if streaming else "message/send"]

    run(test())


@pytest.mark.parametrize("end", IN_DOUBT)
def test_a_guess_that_may_have_been_carried_out_is_the_last_one(end: str) -> None:
    step, error = IN_DOUBT[end]

    async def test() -> None:
        def override(call: str) -> Http | Raw | None:
            return step if call == "message/send" else None

        async with foreign("JSONRPC 0.1", override=override) as agent:
            listing(agent, "JSONRPC 1.0")
            async with connect(agent.url, timeouts=Timeouts(answer_s=0.1)) as peer:
                with pytest.raises(error):
                    await peer.send("hi")
        assert agent.calls == ["SendMessage", "message/send"]

    run(test())


def test_an_error_that_a_guess_is_answered_is_the_agents_word() -> None:
    async def test() -> None:
        for code, error in ((-32001, TaskNotFound), (-32602, InvalidParams)):

            def override(call: str, code: int = code) -> Http | None:
                return rpc_error(code) if call == "tasks/get" else None

            async with foreign("JSONRPC 0.3", override=override) as agent:
                listing(agent, "JSONRPC 1.0")
                async with connect(agent.url) as peer:
                    with pytest.raises(error):
                        await peer.get("t")
            assert agent.calls == ["GetTask", "tasks/get"]

    run(test())


def test_what_no_guess_can_say_is_refused_in_the_words_of_the_first_answer() -> None:
    async def test() -> None:
        async with foreign("JSONRPC 0.3") as agent:
            listing(agent, "JSONRPC 1.0")
            async with connect(agent.url) as peer:
                with pytest.raises(MethodNotFound):
                    await peer.list()
                assert agent.calls == ["ListTasks"], "neither 0.3 nor 0.1 has lists over JSON-RPC"
                assert await peer.ask("hi") == "JSONRPC 0.3"
                with pytest.raises(UnsupportedOperation, match=r"0\.3 has no ListTasks"):
                    await peer.list()

    run(test())


# --- what is said in each ---------------------------------------------------------------------------------------------


@every
@pytest.mark.requirement("version.client-sends-header")
def test_every_request_names_its_version_and_extensions_as_that_version_does(word: str) -> None:
    async def test() -> None:
        version = word.split(" ")[1]
        async with foreign(word) as agent:
            listing(agent, word, streaming=True)
            async with connect(agent.url, extensions=["u:a"]) as peer:
                await peer.send("hi", extensions=["u:b"])
                [event async for event in peer.stream("hi")]
                await peer.get("t")
        assert agent.calls == [SEND[word], STREAM[word], GET[word]]
        assert agent.versions == [version] * 3
        told = [request.headers.get("x-a2a-extensions") for request in agent.requests]
        assert [request.headers["a2a-extensions"] for request in agent.requests] == ["u:a,u:b", "u:a", "u:a"]
        assert told == (["u:a,u:b", "u:a", "u:a"] if version == "0.3" else [None] * 3)
        for request in agent.requests:
            if request.verb == "POST":
                assert request.headers["content-type"] == (
                    "application/a2a+json" if word == "HTTP+JSON 1.0" else "application/json"
                )

    run(test())


@every
def test_ask_streams_where_the_card_allows_it_and_nowhere_else(word: str) -> None:
    async def test() -> None:
        for streaming in (True, False):
            async with foreign(word) as agent:
                listing(agent, word, streaming=streaming)
                async with connect(agent.url) as peer:
                    assert await peer.ask("hi") == word
                    if not streaming:
                        with pytest.raises(UnsupportedOperation, match="does not stream"):
                            await anext(peer.stream("hi"))
            # A stream of 0.1 does not begin with the task, so that it is read behind it.
            read = [GET[word]] if streaming and word == "JSONRPC 0.1" else []
            assert agent.calls == [(STREAM if streaming else SEND)[word], *read]

    run(test())


@every
def test_ask_looks_again_until_the_task_rests_where_the_agent_does_not_stream(word: str) -> None:
    async def test() -> None:
        async with foreign(word, state="working") as agent:
            listing(agent, word)
            async with connect(agent.url) as peer:
                reply = await peer.ask("hi", poll_s=0.001)
                assert (reply, reply.state) == (word, TaskState.COMPLETED)
        assert agent.calls == [SEND[word], GET[word]]

    run(test())


@every
def test_json_where_a_stream_was_expected_is_the_answer(word: str) -> None:
    async def test() -> None:
        async with foreign(word, as_json=True) as agent:
            listing(agent, word, streaming=True)
            async with connect(agent.url) as peer:
                (event,) = [event async for event in peer.stream("hi")]
                assert isinstance(event, Task)
                assert (event.text, event.state) == (word, TaskState.COMPLETED)
        assert agent.calls == [STREAM[word]]

    run(test())


@every
def test_a_stream_in_a_version_that_is_not_spoken_leads_to_the_one_that_is(word: str) -> None:
    async def test() -> None:
        binding, version = word.split(" ")
        other = f"{binding} {'0.3' if version != '0.3' else '1.0'}"
        async with foreign(word) as agent:
            listing(agent, other, streaming=True)
            async with connect(agent.url) as peer:
                events = [event async for event in peer.stream("hi")]
                assert events
                assert await peer.ask("hi") == word
        streams = [call for call in agent.calls if call in STREAM.values()]
        assert streams[0] == STREAM[other]
        assert streams[-2:] == [STREAM[word]] * 2
        assert len(set(streams)) == len(streams) - 1, "each way is tried once"

    run(test())


def test_what_a_version_cannot_say_is_refused_before_anything_is_sent() -> None:
    async def test() -> None:
        async with foreign(*ALL) as agent:
            listing(agent, "JSONRPC 0.1")
            async with connect(agent.url, tenant="acme") as peer:
                with pytest.raises(InvalidParams, match="tenant"):
                    await peer.send("hi")
            async with connect(agent.url) as peer:
                with pytest.raises(UnsupportedOperation, match=r"0\.1 has no ListTasks"):
                    await peer.list()
        assert agent.calls == []

    run(test())


def test_a_version_that_nobody_speaks_is_refused_before_the_card_is_asked_for() -> None:
    async def test() -> None:
        with pytest.raises(VersionNotSupported, match=r"1\.0, 0\.3, 0\.2, 0\.1"):
            await connect("http://127.0.0.1:1", version="0.9")

    run(test())


def test_calls_that_come_together_find_the_same_way() -> None:
    async def test() -> None:
        async with foreign("JSONRPC 0.3") as agent:
            listing(agent, "JSONRPC 1.0")
            async with connect(agent.url) as peer:
                replies = await asyncio.gather(*(peer.ask(f"n{n}") for n in range(8)))
                assert replies == ["JSONRPC 0.3"] * 8
                before = len(agent.calls)
                assert await peer.ask(Part("one more")) == "JSONRPC 0.3"
                assert agent.calls[before:] == ["message/send"]

    run(test())


@pytest.mark.parametrize("refusal", [MethodNotFound("no"), VersionNotSupported("0.3"), InvalidRequest("what?")])
def test_call_that_is_refused_after_another_has_found_the_way_goes_that_way(refusal: A2AError) -> None:
    async def test() -> None:
        listed, meant = (Way(AgentInterface("http://h", "JSONRPC", v), None) for v in ("0.3", "1.0"))  # type: ignore[arg-type]
        made: list[Way] = []
        found = asyncio.Event()

        def guessed() -> list[Way]:
            made.append(meant)
            return [meant]

        async def at_once(way: Way) -> str:
            if way is listed:
                raise refusal
            return way.interface.protocol_version

        async def late(way: Way) -> str:
            if way is listed:
                await found.wait()
            return await at_once(way)

        route = Route([listed], guessed)
        waiting = [asyncio.ensure_future(route.call(late)) for _ in range(3)]
        await asyncio.sleep(0)
        assert await route.call(at_once) == "1.0"
        found.set()
        assert await asyncio.gather(*waiting) == ["1.0"] * 3
        assert (made, route.way) == ([meant], meant)

    run(test())


# --- gRPC -------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def grpc_without_a2a() -> AsyncIterator[str]:
    """HOST:PORT of a gRPC server that knows no A2A."""
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


@pytest.mark.parametrize("version", ["1.0", "0.3"])
@pytest.mark.parametrize("streaming", [True, False])
def test_grpc_that_is_not_there_or_knows_no_a2a_leads_to_the_next_interface(version: str, streaming: bool) -> None:
    async def test() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            nobody = f"127.0.0.1:{taken.getsockname()[1]}"
            async with grpc_without_a2a() as stranger, foreign(*ALL) as agent:
                for address in (nobody, stranger):
                    agent.cards[NEW] = card_10(
                        (address, "GRPC", version), place(agent, f"HTTP+JSON {version}"), streaming=streaming
                    )
                    for pin in (None, version):
                        async with connect(agent.url, version=pin) as peer:
                            assert peer.transport == "GRPC"
                            assert await peer.ask("hi") == f"HTTP+JSON {version}"
                            assert peer.transport == "HTTP+JSON"

    run(test())


def test_grpc_that_is_pinned_is_not_left() -> None:
    async def test() -> None:
        async with grpc_without_a2a() as stranger, foreign(*ALL) as agent:
            agent.cards[NEW] = card_10((stranger, "GRPC", "1.0"), *(place(agent, word) for word in ALL))
            async with connect(agent.url, transport="GRPC") as peer:
                with pytest.raises(A2AError):
                    await peer.ask("hi")
            with pytest.raises(InvalidCard, match=r"of GRPC"):
                await connect(agent.url, transport="GRPC", version="0.3")
        assert agent.calls == []

    run(test())


def grpc_server_of(**handlers: Any) -> grpc.aio.Server:
    """A gRPC server of A2A 1.0 that has these operations, each on bytes, and no other."""
    made = {
        name: grpc.unary_stream_rpc_method_handler(handler)
        if protobuf.RPCS[name].streaming
        else grpc.unary_unary_rpc_method_handler(handler)
        for name, handler in handlers.items()
    }
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(protobuf.SERVICE, made),))
    return server


def test_grpc_stream_that_ends_as_not_implemented_in_the_middle_is_one_that_broke() -> None:
    async def stream(request: bytes, context: Any) -> AsyncIterator[bytes]:
        for event in (task(TaskState.WORKING), artifact_update("a", "one ")):
            yield protobuf.RPCS["SendStreamingMessage"].write_answer(event)
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "not here")

    async def get(request: bytes, context: Any) -> bytes:
        return protobuf.RPCS["GetTask"].write_answer(task(TaskState.COMPLETED, artifact("a", "one two")))

    async def test() -> None:
        server = grpc_server_of(SendStreamingMessage=stream, GetTask=get)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            card = card_of((f"127.0.0.1:{port}", "GRPC"))
            async with connect(card, recovery=QUICK) as peer:
                events = [event async for event in peer.stream("go")]
        finally:
            await server.stop(None)
        assert events[0] == task(TaskState.WORKING)
        assert "".join(e.artifact.text for e in events if isinstance(e, TaskArtifactUpdateEvent)) == "one two"
        assert isinstance(events[-1], TaskStatusUpdateEvent)
        assert events[-1].status.state is TaskState.COMPLETED

    run(test())


def test_what_a_grpc_agent_itself_calls_not_implemented_is_not_sent_another_way() -> None:
    carried_out: list[bytes] = []

    async def send(request: bytes, context: Any) -> bytes:
        carried_out.append(request)
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "streaming of x is not implemented")
        raise AssertionError

    async def stream(request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield await send(request, context)

    async def test() -> None:
        async with foreign(*ALL) as agent:
            server = grpc_server_of(SendMessage=send, SendStreamingMessage=stream)
            port = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            interfaces = ((f"127.0.0.1:{port}", "GRPC", "1.0"), place(agent, "JSONRPC 1.0"))
            agent.cards[NEW] = card_10(*interfaces, streaming=True)
            try:
                async with connect(agent.url) as peer:
                    with pytest.raises(UnsupportedOperation, match="streaming of x is not implemented"):
                        await peer.send("hi")
                    with pytest.raises(UnsupportedOperation, match="streaming of x is not implemented"):
                        [event async for event in peer.stream("hi")]
            finally:
                await server.stop(None)
            assert len(carried_out) == 2
            assert agent.calls == []

    run(test())


def test_grpc_server_that_has_gone_since_the_last_call_is_left_for_the_next_interface() -> None:
    async def send(request: bytes, context: Any) -> bytes:
        return protobuf.RPCS["SendMessage"].write_answer(message("by gRPC"))

    async def test() -> None:
        async with foreign(*ALL) as agent:
            server = grpc_server_of(SendMessage=send)
            port = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            agent.cards[NEW] = card_10((f"127.0.0.1:{port}", "GRPC", "1.0"), place(agent, "JSONRPC 1.0"))
            async with connect(agent.url) as peer:
                assert await peer.ask("hi") == "by gRPC"
                await server.stop(None)
                assert await peer.ask("hi") == "JSONRPC 1.0"
                assert peer.transport == "JSONRPC"

    run(test())
