"""Single calls over HTTP: what goes out, what comes back, and every way in which an agent can answer badly."""

from __future__ import annotations

import asyncio
import gzip
import socket
import traceback
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
import msgspec
import pytest

from tests.client.running import QUICK, run
from tests.client.scripted import (
    LIMIT_S,
    Answer,
    Fault,
    Http,
    Raw,
    Request,
    Script,
    Scripted,
    Step,
    Stream,
    card_of,
    listening,
    read_request,
    scripted,
)
from tests.client.tasks import CONTEXT, TASK, appended, artifact, artifact_update, message, status, task
from tieline import Message, Part, Peer, Role, TaskState, Timeouts, connect
from tieline.errors import (
    A2AError,
    AuthenticationRequired,
    BodyTooLarge,
    CardNotFound,
    ContentTypeNotSupported,
    ExtendedAgentCardNotConfigured,
    ExtensionSupportRequired,
    InternalError,
    InvalidAgentResponse,
    InvalidCard,
    InvalidParams,
    InvalidPeerResponse,
    InvalidRequest,
    MethodNotFound,
    Overloaded,
    ParseError,
    PeerError,
    PeerTimeout,
    PushNotificationNotSupported,
    TaskInDoubt,
    TaskNotCancelable,
    TaskNotFound,
    Unreachable,
    UnsupportedOperation,
    VersionNotSupported,
)
from tieline.types import ListTasksResponse, SendMessageResponse, StreamEvent, decode, encode
from tieline.wire import jsonrpc, rest

BINDING = {"jsonrpc": "JSONRPC", "rest": "HTTP+JSON"}
both = pytest.mark.parametrize("transport", ["jsonrpc", "rest"])
COMPLETED = TaskState.COMPLETED
NO_TASKS = ListTasksResponse((), "", 50, 0)


@contextmanager
def refused_port() -> Iterator[int]:
    """A port that refuses connections, and that nobody else gets meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


async def got(transport: str, *steps: Step, **options: Any) -> object:
    """What GetTask gives, or raises, when it is answered so."""
    async with (
        scripted(BINDING[transport], {"GetTask": steps}) as agent,
        connect(agent.card, **options) as peer,
    ):
        return await peer.get(TASK)


async def sent(transport: str, *steps: Step, **options: Any) -> object:
    """What SendMessage gives, or raises, when it is answered so."""
    async with (
        scripted(BINDING[transport], {"SendMessage": steps}) as agent,
        connect(agent.card, **options) as peer,
    ):
        return await peer.send("go")


# --- connections that are used again ----------------------------------------------------------------------------------


@both
def test_connection_that_was_closed_since_the_last_call_leaves_no_message_in_doubt(transport: str) -> None:
    async def test() -> None:
        result = encode(SendMessageResponse(message=message("hi")))

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            request = await read_request(reader)
            if request is not None:
                body = result
                if transport == "jsonrpc":
                    body = jsonrpc.encode_result(encode(request.json["id"]), result)
                writer.write(Http(200, body).data)  # and it does not say that it closes
                received.append(request)

        received: list[Request] = []
        async with listening(serve) as port:
            card = card_of((f"http://127.0.0.1:{port}", BINDING[transport]))
            async with connect(card, query={"key": "SECRET"}) as peer:
                for _ in range(12):
                    assert await peer.send("go") == message("hi")
        ids = [request.params["message"]["messageId"] for request in received]
        assert (len(ids), len(set(ids))) == (12, 12)

    run(test())


@pytest.mark.parametrize("raised", ["Can not write request body for http://h/?key=SECRET", "http://u:SECRET@h broke"])
def test_words_of_the_http_library_that_name_a_url_are_not_repeated(
    monkeypatch: pytest.MonkeyPatch, raised: str
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise aiohttp.ClientOSError(None, raised)

    async def test() -> None:
        async with connect(card_of(("http://127.0.0.1:1", "JSONRPC")), query={"key": "SECRET"}) as peer:
            with pytest.raises(TaskInDoubt, match="broke: it was closed") as caught:
                await peer.send("go")
        assert "SECRET" not in str(caught.value)

    monkeypatch.setattr(aiohttp.ClientSession, "request", broken)
    run(test())


@pytest.mark.parametrize(
    "refused",
    [
        ("127.0.0.1:1/path", "GRPC"),
        ("http://u:SECRET@127.0.0.1:1/?key=SECRET", "GRPC"),
        ("http://u:SECRET@127.0.0.1:99999999/?key=SECRET", "JSONRPC"),
    ],
)
def test_interface_that_cannot_be_called_does_not_bar_the_others_and_tells_no_secret(refused: tuple[str, str]) -> None:
    async def test() -> None:
        async with scripted("JSONRPC", {"SendMessage": [Answer(message("hi"))]}) as agent:
            for places in ([refused, (agent.url, "JSONRPC")], [(agent.url, "JSONRPC"), refused]):
                agent.script("SendMessage", Answer(message("hi")))
                async with connect(card_of(*places)) as peer:
                    assert await peer.send("go") == message("hi")
        with pytest.raises(InvalidCard) as caught:
            await connect(card_of(refused))
        assert "SECRET" not in str(caught.value)

    run(test())


def test_header_that_grpc_cannot_carry_leaves_the_other_interfaces() -> None:
    async def test() -> None:
        async with scripted("JSONRPC", {"SendMessage": [Answer(message("hi"))]}) as agent:
            card = card_of((agent.url, "JSONRPC"), ("127.0.0.1:1", "GRPC"))
            async with connect(card, headers={"X-Trace-Bin": "1"}) as peer:
                assert await peer.send("go") == message("hi")

    run(test())


@both
def test_request_that_is_too_large_for_the_agent_is_told_as_that(transport: str) -> None:
    async def test() -> None:
        with pytest.raises(BodyTooLarge, match=r"larger than http://\S+ takes \(HTTP 413\)"):
            await sent(transport, Http(413, b"<!DOCTYPE html>", {"Content-Type": "text/html"}))

    run(test())


def test_rest_error_with_a_status_of_success_is_that_error() -> None:
    async def test() -> None:
        error = rest.encode_error(TaskNotFound(TASK))
        with pytest.raises(TaskNotFound):
            await got("rest", Http(200, error))
        with pytest.raises(TaskNotFound):
            await sent("rest", Http(200, error))

    run(test())


def test_one_text_is_one_media_type_and_one_extension() -> None:
    async def test() -> None:
        async with (
            scripted("JSONRPC", {"SendMessage": [Answer(message("hi"))]}) as agent,
            connect(agent.card, extensions="urn:a") as peer,
        ):
            await peer.send("go", accepted_output_modes="text/plain", extensions="urn:b")
        assert agent.requests[0].headers["a2a-extensions"] == "urn:a,urn:b"
        assert agent.requests[0].params["configuration"]["acceptedOutputModes"] == ["text/plain"]

    run(test())


@pytest.mark.parametrize("host", ["a..b", ".", "a" * 300, "a" * 70 + ".example"])
def test_host_name_that_can_be_none_is_an_agent_that_cannot_be_reached(host: str) -> None:
    async def test() -> None:
        with pytest.raises(Unreachable, match="No connection to"):
            await connect(f"http://{host}:1/")
        async with (
            scripted("JSONRPC", {"SendMessage": [Answer(message("hi"))]}) as agent,
            connect(card_of((f"http://{host}:1/", "JSONRPC"), (agent.url, "JSONRPC"))) as peer,
        ):
            assert await peer.send("go") == message("hi")

    run(test())


@pytest.mark.parametrize("streaming", [True, False])
def test_conversation_with_an_agent_of_0_1_that_does_not_repeat_the_session_goes_on(streaming: bool) -> None:
    async def test() -> None:
        def told(state: str) -> bytes:
            return b'{"jsonrpc":"2.0","result":{"id":"t","status":{"state":"' + state.encode() + b'"}}}'

        asks, ends = told("input-required"), told("completed")
        script: Script = {"tasks/send": [Http(200, asks), Http(200, ends), Http(200, ends)]}
        if streaming:
            script = {"tasks/sendSubscribe": [Stream(b"data: " + data + b"\n\n") for data in (asks, ends, ends)]}
            script = {**script, "tasks/get": [Http(200, data) for data in (asks, ends, ends)]}
        async with scripted("JSONRPC", script, streaming=streaming) as agent:
            card = card_of((agent.url, "JSONRPC"), streaming=streaming, version="0.1")
            async with connect(card) as peer:
                reply = await peer.ask("go")
                for _ in range(2):
                    reply = await peer.ask("on", after=reply)
        sessions = [request.params["sessionId"] for request in agent.requests if b"message" in request.body]
        assert (len(sessions), len(set(sessions)), reply.context_id) == (3, 1, sessions[0])

    run(test())


# --- what ask makes of streams, and of polling ------------------------------------------------------------------------


@both
@pytest.mark.parametrize("read", [Fault(TaskNotFound(TASK)), Answer(task(COMPLETED))])
def test_ask_keeps_what_a_stream_has_told_that_does_not_begin_with_a_task(transport: str, read: Step) -> None:
    async def test() -> None:
        script: Script = {
            "SendStreamingMessage": [
                Stream(artifact_update("a", "the "), appended("a", "answer"), status(COMPLETED)),
                Stream(status(TaskState.WORKING), status(COMPLETED, "the answer")),
            ],
            "GetTask": [read, read],
        }
        async with scripted(BINDING[transport], script) as agent, connect(agent.card) as peer:
            for _ in range(2):
                reply = await peer.ask("go")
                assert (reply, reply.state, reply.task_id) == ("the answer", COMPLETED, TASK)

    run(test())


@both
def test_ask_reads_the_task_whose_stream_has_told_only_its_end(transport: str) -> None:
    async def test() -> None:
        script: Script = {
            "SendStreamingMessage": [Stream(status(COMPLETED))],
            "GetTask": [Answer(task(COMPLETED, artifact("a", "the answer")))],
        }
        async with scripted(BINDING[transport], script) as agent, connect(agent.card) as peer:
            assert await peer.ask("go") == "the answer"

    run(test())


@both
@pytest.mark.parametrize("refusal", [Fault(UnsupportedOperation("no stream")), Fault(MethodNotFound("no stream"))])
def test_ask_sends_to_an_agent_that_refuses_to_stream_though_its_card_says_that_it_does(
    transport: str, refusal: Step
) -> None:
    async def test() -> None:
        script: Script = {
            "SendStreamingMessage": [refusal],
            "SendMessage": [Answer(task(COMPLETED, artifact("a", "the answer")))],
        }
        async with scripted(BINDING[transport], script) as agent, connect(agent.card, version="1.0") as peer:
            assert await peer.ask("go") == "the answer"

    run(test())


@both
def test_ask_looks_on_at_a_task_that_cannot_be_read_for_a_while(transport: str) -> None:
    async def test() -> None:
        garbage = Http(200, b"garbage")
        down = Http(503, b"", {"Retry-After": "1"})
        script: Script = {
            "SendMessage": [Answer(task(TaskState.WORKING))],
            "GetTask": [down, garbage, Fault(InternalError("oops")), Answer(task(COMPLETED, artifact("a", "done")))],
        }
        async with (
            scripted(BINDING[transport], script, streaming=False) as agent,
            connect(agent.card, recovery=QUICK) as peer,
        ):
            assert await peer.ask("go", poll_s=0.001) == "done"

    run(test())


@both
def test_ask_names_the_task_that_cannot_be_read_any_more(transport: str) -> None:
    async def test() -> None:
        script: Script = {
            "SendMessage": [Answer(task(TaskState.WORKING))],
            "GetTask": [Http(502)] * (QUICK.attempts + 1),
        }
        async with (
            scripted(BINDING[transport], script, streaming=False) as agent,
            connect(agent.card, recovery=QUICK) as peer,
        ):
            with pytest.raises(TaskInDoubt) as caught:
                await peer.ask("go", poll_s=0.001)
        assert caught.value.task_id == TASK

    run(test())


# --- what goes out ----------------------------------------------------------------------------------------------------


async def everything(peer: Peer) -> None:
    """One call of each kind."""
    await peer.send("go")
    [event async for event in peer.stream("go")]
    [event async for event in peer.subscribe(TASK)]
    await peer.get(TASK)
    await peer.list()
    await peer.cancel(TASK)


EVERYTHING: Script = {
    "SendMessage": [Answer(message("hi"))],
    "SendStreamingMessage": [Stream(message("hi"))],
    "SubscribeToTask": [Stream(task(COMPLETED))],
    "GetTask": [Answer(task())],
    "ListTasks": [Answer(NO_TASKS)],
    "CancelTask": [Answer(task(TaskState.CANCELED))],
}


async def requests_of_everything(transport: str, **options: Any) -> Scripted:
    async with (
        scripted(BINDING[transport], EVERYTHING) as agent,
        connect(agent.card, **options) as peer,
    ):
        await everything(peer)
    assert agent.calls == list(EVERYTHING)
    return agent


@both
@pytest.mark.requirement(
    "version.client-sends-header",
    "version.client-sends-no-patch",
    "extension.client-opts-in",
    "params.names-prefixed",
    "jsonrpc.client-sends-headers",
    "rest.client-sends-headers",
    "jsonrpc.comma-separated",
    "rest.comma-separated",
)
def test_every_request_names_version_and_extensions_in_its_headers(transport: str) -> None:
    async def test() -> None:
        agent = await requests_of_everything(transport, extensions=("https://x.test/a", "https://x.test/b"))
        for request in agent.requests:
            assert request.headers["a2a-version"] == "1.0"
            assert request.headers["a2a-extensions"] == "https://x.test/a,https://x.test/b"

    run(test())


@both
def test_version_with_a_patch_number_is_sent_without_it(transport: str) -> None:
    async def test() -> None:
        agent = await requests_of_everything(transport, version="1.0.1")
        assert {request.headers["a2a-version"] for request in agent.requests} == {"1.0"}

    run(test())


@both
def test_headers_cookies_and_query_of_the_caller_are_in_every_request(transport: str) -> None:
    async def test() -> None:
        agent = await requests_of_everything(
            transport,
            headers={"Authorization": "Bearer t", "user-agent": "mine", "a2a-version": "9.9"},
            cookies={"session": "c1"},
            query={"key": "k&1"},
        )
        for request in agent.requests:
            assert request.headers["authorization"] == "Bearer t"
            assert request.headers["user-agent"] == "mine"
            assert request.headers["a2a-version"] == "1.0"
            assert request.headers["cookie"] == "session=c1"
            assert "key=k%261" in request.target.partition("?")[2]

    run(test())


@pytest.mark.requirement("jsonrpc.content-type", "jsonrpc.client-request-form", "methods.jsonrpc")
def test_json_rpc_requests_have_the_form_of_the_binding() -> None:
    async def test() -> None:
        agent = await requests_of_everything("jsonrpc")
        assert [request.json["method"] for request in agent.requests] == list(EVERYTHING)
        for request in agent.requests:
            assert (request.verb, request.target) == ("POST", "/agent")
            assert request.headers["content-type"] == "application/json"
            assert set(request.json) == {"jsonrpc", "id", "method", "params"}
            assert request.json["jsonrpc"] == "2.0"
        ids = [request.json["id"] for request in agent.requests]
        assert len(set(ids)) == len(ids)

    run(test())


@pytest.mark.requirement("methods.rest", "rest.client-content-type", "rest.params-outside-body", "rest.nested-by-post")
def test_rest_requests_have_the_form_of_the_binding() -> None:
    async def test() -> None:
        agent = await requests_of_everything("rest")
        assert [(request.verb, request.target) for request in agent.requests] == [
            ("POST", "/agent/message:send"),
            ("POST", "/agent/message:stream"),
            ("POST", f"/agent/tasks/{TASK}:subscribe"),
            ("GET", f"/agent/tasks/{TASK}"),
            ("GET", "/agent/tasks"),
            ("POST", f"/agent/tasks/{TASK}:cancel"),
        ]
        for request in agent.requests:
            if request.body:
                assert request.headers["content-type"] == "application/a2a+json"
            else:
                assert "content-type" not in request.headers

    run(test())


@pytest.mark.requirement("rest.query-camel-case", "rest.query-types", "rest.query-encoded")
def test_rest_query_has_names_in_camel_case_and_encoded_values() -> None:
    async def test() -> None:
        async with scripted("HTTP+JSON", {"ListTasks": [Answer(NO_TASKS)]}) as agent, connect(agent.card) as peer:
            await peer.list(
                context_id="a b&c=ü",
                status=TaskState.WORKING,
                page_size=7,
                history_length=0,
                status_timestamp_after="2026-01-02T03:04:05Z",
                include_artifacts=True,
            )
        assert agent.requests[0].target == (
            "/agent/tasks?contextId=a+b%26c%3D%C3%BC&status=TASK_STATE_WORKING&pageSize=7&historyLength=0"
            "&statusTimestampAfter=2026-01-02T03%3A04%3A05Z&includeArtifacts=true"
        )

    run(test())


@both
@pytest.mark.requirement("task.client-names-existing", "context.client-invents-none", "interface.client-omits-tenant")
def test_message_of_plain_text_names_no_task_context_or_tenant(transport: str) -> None:
    async def test() -> None:
        async with (
            scripted(BINDING[transport], {"SendMessage": [Answer(message("hi"))]}) as agent,
            connect(agent.card) as peer,
        ):
            await peer.send("go")
        params = agent.requests[0].params
        assert set(params) == {"message"}
        assert params["message"].pop("messageId")
        assert params["message"] == {"role": "ROLE_USER", "parts": [{"text": "go"}]}

    run(test())


@both
@pytest.mark.requirement("turns.client-sends-references", "json.camel-case", "json.enum-names", "model.role-of-sender")
def test_everything_that_a_send_can_carry_arrives(transport: str) -> None:
    async def test() -> None:
        async with (
            scripted(BINDING[transport], {"SendMessage": [Answer(message("hi"))]}) as agent,
            connect(agent.card) as peer,
        ):
            await peer.send(
                ["text", b"\0\xff", {"n": None}, Part(url="https://x.test/f", media_type="text/csv", filename="f.csv")],
                task_id=TASK,
                context_id=CONTEXT,
                metadata={"big": 2**70, "null": None, "f": 1.5},
                accepted_output_modes=["text/plain"],
                history_length=0,
                return_immediately=True,
                reference_task_ids=["t0"],
                extensions=["https://x.test/a"],
            )
        assert agent.requests[0].headers["a2a-extensions"] == "https://x.test/a"
        params = agent.requests[0].params
        del params["message"]["messageId"]
        assert params == {
            "message": {
                "role": "ROLE_USER",
                "parts": [
                    {"text": "text"},
                    {"raw": "AP8="},
                    {"data": {"n": None}},
                    {"url": "https://x.test/f", "mediaType": "text/csv", "filename": "f.csv"},
                ],
                "taskId": TASK,
                "contextId": CONTEXT,
                "referenceTaskIds": ["t0"],
            },
            "configuration": {"acceptedOutputModes": ["text/plain"], "historyLength": 0, "returnImmediately": True},
            "metadata": {"big": 2**70, "null": None, "f": 1.5},
        }

    run(test())


@both
def test_whole_message_of_the_callers_is_sent_as_it_is(transport: str) -> None:
    async def test() -> None:
        own = Message("m-1", Role.USER, (Part(text="go"),), "own context", metadata={"a": [1]}, extensions=("u:x",))
        async with (
            scripted(BINDING[transport], {"SendMessage": [Answer(message("hi"))]}) as agent,
            connect(agent.card) as peer,
        ):
            await peer.send(own, task_id=TASK, context_id=CONTEXT)
        told = decode(encode(agent.requests[0].params["message"]), Message)
        assert told == msgspec.structs.replace(own, task_id=TASK)

    run(test())


@pytest.mark.parametrize("content", [[], [1], 3.5, [["nested"]]])
def test_content_that_is_none_is_refused_before_a_call(content: object) -> None:
    async def test() -> None:
        async with scripted("JSONRPC", {}) as agent, connect(agent.card) as peer:
            with pytest.raises(InvalidParams, match="message\\.parts"):
                await peer.send(content)  # type: ignore[arg-type]

    run(test())


@both
@pytest.mark.parametrize("value", [object(), {1: 2, "a": object()}, "\ud800"])
def test_content_that_json_has_no_form_for_is_refused_before_a_call(transport: str, value: object) -> None:
    async def test() -> None:
        async with scripted(BINDING[transport], {}) as agent, connect(agent.card) as peer:
            with pytest.raises(InvalidParams, match="cannot be written as JSON"):
                await peer.send({"value": value})
            with pytest.raises(InvalidParams, match="cannot be written as JSON"):
                await peer.cancel(TASK, metadata={"value": value})

    run(test())


@pytest.mark.parametrize("uri", ["", "a b", "a,b", "a\r\nX-Other: 1"])
def test_extension_that_would_not_stay_one_uri_is_refused(uri: str) -> None:
    async def test() -> None:
        async with scripted("JSONRPC", {}) as agent, connect(agent.card) as peer:
            with pytest.raises(InvalidParams, match="extensions"):
                await peer.get(TASK, extensions=[uri])

    run(test())


@pytest.mark.parametrize("headers", [{"X\r\nY": "s3cret"}, {"X": "s3cret\r\nY: 1"}, {"X ": "s3cret"}, {"": "s3cret"}])
def test_header_that_cannot_be_sent_is_refused_without_showing_its_value(headers: dict[str, str]) -> None:
    async def test() -> None:
        with pytest.raises(ValueError, match="header") as caught:
            await connect(card_of(("http://127.0.0.1:1", "JSONRPC")), headers=headers)
        assert "s3cret" not in str(caught.value)

    run(test())


def test_cookie_that_would_become_two_is_refused() -> None:
    async def test() -> None:
        with pytest.raises(ValueError, match="cookie"):
            await connect(card_of(("http://127.0.0.1:1", "JSONRPC")), cookies={"a": "1; b=2"})

    run(test())


@both
def test_request_of_many_megabytes_is_sent(transport: str) -> None:
    async def test() -> None:
        async with (
            scripted(BINDING[transport], {"SendMessage": [Answer(message("hi"))]}) as agent,
            connect(agent.card) as peer,
        ):
            await peer.send(b"x" * 3_000_000)
        assert len(agent.requests[0].params["message"]["parts"][0]["raw"]) == 4_000_000

    run(test())


# --- what comes back --------------------------------------------------------------------------------------------------


@both
@pytest.mark.requirement("fields.client-ignores-unknown")
def test_fields_that_nobody_knows_are_ignored(transport: str) -> None:
    async def test() -> None:
        whole = msgspec.json.decode(encode(task(COMPLETED)))
        whole["kind"] = "task"
        whole["status"]["novelty"] = {"deep": [1]}
        body: object = whole if transport == "rest" else {"jsonrpc": "2.0", "id": 1, "result": whole, "x": 1}
        assert await got(transport, Http(200, encode(body))) == task(COMPLETED)

    run(test())


@both
@pytest.mark.requirement("fields.client-refuses-missing")
def test_answer_without_a_required_field_is_the_peers_fault_and_names_it(transport: str) -> None:
    async def test() -> None:
        whole = msgspec.json.decode(encode(task(COMPLETED)))
        del whole["status"]["state"]
        body: object = whole if transport == "rest" else {"jsonrpc": "2.0", "id": 1, "result": whole}
        with pytest.raises(InvalidPeerResponse, match=r"status\.state: is required"):
            await got(transport, Http(200, encode(body)))

    run(test())


@both
def test_answer_with_gzip_is_read(transport: str) -> None:
    async def test() -> None:
        body: object = task() if transport == "rest" else {"jsonrpc": "2.0", "id": 1, "result": task()}
        packed = Http(200, gzip.compress(encode(body)), {"Content-Encoding": "gzip"})
        assert await got(transport, packed) == task()

    run(test())


@both
def test_json_rpc_or_rest_answer_of_type_text_plain_is_read(transport: str) -> None:
    async def test() -> None:
        assert await got(transport, Answer(task(), content_type="text/plain")) == task()

    run(test())


ERRORS = [
    TaskNotFound(TASK),
    TaskNotCancelable(TASK, "TASK_STATE_COMPLETED"),
    PushNotificationNotSupported("p"),
    UnsupportedOperation("u"),
    ContentTypeNotSupported("c", metadata={"mediaType": "x/y"}),
    InvalidAgentResponse("r"),
    ExtendedAgentCardNotConfigured("e"),
    ExtensionSupportRequired(["https://x.test/a"]),
    VersionNotSupported("9.9", ["1.0"]),
    InvalidParams.at("message.parts[0]", "is bad"),
    InternalError("i"),
    Overloaded("o", retry_after_s=7),
    BodyTooLarge(3),
]


@both
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.requirement(
    "errors.native-and-back",
    "codes.task-not-found",
    "codes.task-not-cancelable",
    "codes.push-not-supported",
    "codes.unsupported-operation",
    "codes.content-type-not-supported",
    "codes.invalid-agent-response",
    "codes.extended-card-not-configured",
    "codes.extension-support-required",
    "codes.version-not-supported",
)
def test_error_of_the_agents_is_raised_as_what_it_is(transport: str, error: A2AError) -> None:
    async def test() -> None:
        for outcome in (got(transport, Fault(error), version="1.0"), sent(transport, Fault(error), version="1.0")):
            with pytest.raises(type(error)) as caught:
                await outcome
            assert (str(caught.value), caught.value.metadata) == (str(error), error.metadata)
            assert caught.value.violations == error.violations

    run(test())


@pytest.mark.parametrize("error", [ParseError("p"), InvalidRequest("r"), MethodNotFound("m")])
def test_json_rpcs_own_errors_are_raised_as_what_they_are(error: A2AError) -> None:
    async def test() -> None:
        with pytest.raises(type(error), match=str(error)):
            await got("jsonrpc", Fault(error), version="1.0")

    run(test())


@pytest.mark.parametrize("status_code", [400, 404, 500, 503])
def test_json_rpc_error_counts_whatever_http_status_it_comes_with(status_code: int) -> None:
    async def test() -> None:
        body = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"no such task"}}'
        with pytest.raises(TaskNotFound, match="no such task"):
            await got("jsonrpc", Http(status_code, body))

    run(test())


def test_rest_answer_404_without_details_is_about_the_task() -> None:
    async def test() -> None:
        body = b'{"error":{"code":404,"status":"NOT_FOUND","message":"never heard of it"}}'
        with pytest.raises(TaskNotFound, match="never heard of it"):
            await got("rest", Http(404, body))

    run(test())


def test_rest_answer_404_without_a_body_is_about_the_task_once_the_interface_has_answered() -> None:
    async def test() -> None:
        script: Script = {"GetTask": [Http(404), Answer(task()), Http(404, b"<h1>Not Found</h1>")]}
        async with scripted("HTTP+JSON", script) as agent, connect(agent.card, version="1.0") as peer:
            with pytest.raises(Unreachable):
                await peer.get(TASK)
            await peer.get(TASK)
            with pytest.raises(TaskNotFound, match=TASK):
                await peer.get(TASK)

    run(test())


@both
@pytest.mark.parametrize("code", [401, 403])
def test_refused_credentials_are_told_with_the_challenge(transport: str, code: int) -> None:
    async def test() -> None:
        refused = Http(code, b"{}", {"WWW-Authenticate": 'Bearer realm="agents"'})
        for outcome in (got(transport, refused), sent(transport, refused)):
            with pytest.raises(AuthenticationRequired) as caught:
                await outcome
            assert (caught.value.status, caught.value.challenge) == (code, 'Bearer realm="agents"')

    run(test())


@both
@pytest.mark.parametrize(
    ("challenge", "wants"),
    [
        (" , Bearer realm=x", ": it asks for Bearer."),
        ("Bearer", ": it asks for Bearer."),
        (",,,", "."),
        ("\u00e9", "."),
        ("\x85\x9b31m, Bearer", "."),
        ("B" * 1000, "."),
    ],
)
def test_a_challenge_that_is_none_is_not_repeated(transport: str, challenge: str, wants: str) -> None:
    async def test() -> None:
        head = f"HTTP/1.1 401 No\r\nContent-Length: 0\r\nWWW-Authenticate: {challenge}\r\n\r\n".encode("latin-1")
        with pytest.raises(AuthenticationRequired) as caught:
            await got(transport, Raw(head))
        assert str(caught.value).endswith(f"wants credentials (HTTP 401){wants}")
        assert caught.value.challenge.encode("utf-8")

    run(test())


@both
def test_bytes_of_a_header_that_are_no_utf_8_are_told_as_latin_1(
    transport: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        for status_, header, told in (
            (500, "Content-Type: text/\u00e9", "HTTP 500 (text/\u00e9): x"),
            (429, "Retry-After: \u00e9", "at \u00e9."),
        ):
            for encoding in ("latin-1", "utf-8"):
                head = f"HTTP/1.1 {status_} No\r\nContent-Length: 1\r\n{header}\r\n\r\nx".encode(encoding)
                with pytest.raises(InvalidPeerResponse) as caught:
                    await got(transport, Raw(head))
                assert told in str(caught.value)

    with caplog.at_level("DEBUG", logger="tieline.client"):
        run(test())
    assert caplog.text.encode("utf-8")


BAD_ANSWERS: dict[str, Step] = {
    "empty": Http(200),
    "no JSON": Http(200, b"<html>hello</html>"),
    "a list": Http(200, b"[]"),
    "a number": Http(200, b"7"),
    "deep": Http(200, b"[" * 100_000),
    "no UTF-8": Http(200, b'{"result":"\xff"}'),
    "neither result nor error": Http(200, b'{"jsonrpc":"2.0","id":1}'),
    "no content": Http(204),
    "an error without a body": Http(500),
    "a page of a gateway": Http(502, b"<h1>Bad Gateway</h1>"),
    "busy": Http(503, b"try later"),
    "a gateway's JSON": Http(500, b'{"message":"boom"}'),
    "no HTTP": Raw(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"),
    "a bad header": Raw(b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n"),
    "bad gzip": Http(200, b"no gzip", {"Content-Encoding": "gzip"}),
    "see other, but not where": Http(303),
}


@both
@pytest.mark.parametrize("name", BAD_ANSWERS)
def test_answer_that_is_none_is_an_error_of_ours_for_every_call(transport: str, name: str) -> None:
    async def test() -> None:
        answer = BAD_ANSWERS[name]
        script: Script = {operation: [answer] for operation in EVERYTHING}
        async with scripted(BINDING[transport], script) as agent, connect(agent.card, recovery=QUICK) as peer:
            calls: list[Awaitable[object]] = [
                peer.send("go"),
                peer.get(TASK),
                peer.cancel(TASK),
                anext(peer.stream("go")),
                anext(peer.subscribe(TASK)),
            ]
            if (transport, name) == ("rest", "neither result nor error"):
                # Protobuf leaves out what is empty, so that any object may be a page without tasks.
                assert (await peer.list()).tasks == ()
            else:
                calls.append(peer.list())
            for call in calls:
                with pytest.raises((InvalidPeerResponse, Unreachable, TaskInDoubt)):
                    await call

    run(test())


@both
@pytest.mark.requirement("stream.exactly-one-payload")
@pytest.mark.parametrize("held", [{}, {"task": task(), "message": message("hi")}])
def test_answer_to_a_send_holds_exactly_one_of_task_and_message(transport: str, held: dict[str, object]) -> None:
    async def test() -> None:
        body: object = held if transport == "rest" else {"jsonrpc": "2.0", "id": 1, "result": held}
        with pytest.raises(InvalidPeerResponse, match="exactly one"):
            await sent(transport, Http(200, encode(body)))

    run(test())


@both
def test_answer_over_the_limit_is_refused(transport: str) -> None:
    async def test() -> None:
        large = Answer(task(COMPLETED, artifact("a", "x" * 100_000)))
        with pytest.raises(InvalidPeerResponse, match="larger than 50000 bytes"):
            await got(transport, large, max_response_bytes=50_000)
        assert await got(transport, large, max_response_bytes=110_000) == large.value

    run(test())


@both
def test_packed_answer_counts_by_its_unpacked_size(transport: str) -> None:
    async def test() -> None:
        bomb = Http(200, gzip.compress(b" " * 5_000_000), {"Content-Encoding": "gzip"})
        with pytest.raises(InvalidPeerResponse, match="larger than 1000000 bytes"):
            await got(transport, bomb, max_response_bytes=1_000_000)

    run(test())


# --- time -------------------------------------------------------------------------------------------------------------

SILENCE: dict[str, Step] = {
    "nothing": Raw(b"", end="hang"),
    "half a head": Raw(b"HTTP/1.1 200 OK\r\nContent-", end="hang"),
    "half a body": Raw(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"jsonrpc', end="hang"),
}


@both
@pytest.mark.parametrize("name", SILENCE)
def test_answer_that_does_not_come_is_a_time_out_for_every_call(transport: str, name: str) -> None:
    async def test() -> None:
        timeouts = Timeouts(answer_s=0.05, idle_s=0.05)
        script: Script = {operation: [SILENCE[name]] for operation in EVERYTHING}
        async with scripted(BINDING[transport], script) as agent, connect(agent.card, timeouts=timeouts) as peer:
            for call in (
                peer.send("go"),
                peer.get(TASK),
                peer.list(),
                peer.cancel(TASK),
                anext(peer.stream("go")),
                anext(peer.subscribe(TASK)),
            ):
                with pytest.raises(PeerTimeout):
                    await call

    run(test())


def test_waiting_for_a_task_can_be_limited() -> None:
    async def test() -> None:
        steps = [Answer(task(TaskState.WORKING)) for _ in range(100)]
        async with scripted("JSONRPC", {"GetTask": steps}, streaming=False) as agent, connect(agent.card) as peer:
            with pytest.raises(PeerTimeout, match="still at work"):
                await peer.wait(TASK, poll_s=0.001, timeout_s=0.05)

    run(test())


# --- other interfaces -------------------------------------------------------------------------------------------------


@both
def test_agent_that_refuses_connections_is_unreachable(transport: str) -> None:
    async def test() -> None:
        with refused_port() as port:
            async with connect(card_of((f"http://127.0.0.1:{port}/", BINDING[transport]))) as peer:
                for call in (peer.send("go"), peer.get(TASK), anext(peer.stream("go"))):
                    with pytest.raises(Unreachable, match="Connection refused"):
                        await call

    run(test())


def test_host_that_does_not_exist_is_unreachable() -> None:
    async def test() -> None:
        async with connect(card_of(("http://no-such-host.invalid/", "JSONRPC"))) as peer:
            with pytest.raises(Unreachable, match=r"no-such-host\.invalid"):
                await peer.get(TASK)

    run(test())


@both
@pytest.mark.requirement("interface.client-falls-back")
def test_interface_that_cannot_be_reached_is_left_for_the_next_one_and_for_good(transport: str) -> None:
    async def test() -> None:
        other = "HTTP+JSON" if transport == "jsonrpc" else "JSONRPC"
        with refused_port() as port:
            script: Script = {"SendMessage": [Answer(message("hi"))], "GetTask": [Answer(task())]}
            async with scripted(BINDING[transport], script) as agent:
                card = card_of((f"http://127.0.0.1:{port}/", other), (agent.url, BINDING[transport]))
                async with connect(card) as peer:
                    assert peer.transport == other
                    assert await peer.send("go") == message("hi")
                    assert peer.transport == BINDING[transport]
                    assert peer.interface == card.supported_interfaces[1]
                    assert await peer.get(TASK) == task()

    run(test())


@both
@pytest.mark.parametrize("missing", [Http(404, b"not found"), Http(405), Http(404, b'{"detail":"Not Found"}')])
@pytest.mark.requirement("interface.client-falls-back")
def test_interface_that_is_not_there_is_left_for_the_next_one(transport: str, missing: Http) -> None:
    async def test() -> None:
        other = "HTTP+JSON" if transport == "jsonrpc" else "JSONRPC"
        async with (
            scripted(other, {"SendStreamingMessage": [missing]}) as first,
            scripted(BINDING[transport], {"SendStreamingMessage": [Stream(message("hi"))]}) as second,
        ):
            card = card_of((first.url, other), (second.url, BINDING[transport]))
            async with connect(card) as peer:
                assert [event async for event in peer.stream("go")] == [message("hi")]

    run(test())


@both
def test_no_other_interface_is_tried_once_something_may_have_been_carried_out(transport: str) -> None:
    async def test() -> None:
        steps: list[Step] = [Raw(b""), Raw(b"", end="reset"), Http(500), Http(503, b"x"), Fault(InternalError("no"))]
        for step in steps:
            async with (
                scripted(BINDING[transport], {"SendMessage": [step]}) as first,
                scripted("HTTP+JSON", {}) as second,
            ):
                card = card_of((first.url, BINDING[transport]), (second.url, "HTTP+JSON"))
                async with connect(card) as peer:
                    with pytest.raises((TaskInDoubt, InvalidPeerResponse, InternalError)):
                        await peer.send("go")
                assert second.calls == []

    run(test())


def test_agent_that_none_of_its_interfaces_reach_is_unreachable_with_all_reasons() -> None:
    async def test() -> None:
        with refused_port() as port:
            async with scripted("JSONRPC", {"GetTask": [Http(404)]}) as agent:
                card = card_of((agent.url, "JSONRPC"), (f"http://127.0.0.1:{port}/x", "HTTP+JSON"))
                async with connect(card, version="1.0") as peer:
                    with pytest.raises(Unreachable, match=r"JSONRPC: .*404.*HTTP\+JSON: .*refused"):
                        await peer.get(TASK)

    run(test())


@both
@pytest.mark.requirement("interface.client-uses-its-url", "interface.client-sends-tenant")
def test_requests_go_to_the_interfaces_url_with_its_tenant(transport: str) -> None:
    async def test() -> None:
        async with scripted(BINDING[transport], EVERYTHING) as agent:
            interface = msgspec.structs.replace(agent.card.supported_interfaces[0], tenant="acme")
            card = msgspec.structs.replace(agent.card, supported_interfaces=(interface,))
            async with connect(card) as peer:
                await everything(peer)
        for request in agent.requests:
            assert request.target.startswith("/agent")
            assert tenant_of(request) == "acme"

    run(test())


@both
def test_tenant_of_the_callers_is_sent_where_the_card_names_none(transport: str) -> None:
    async def test() -> None:
        agent = await requests_of_everything(transport, tenant="mine")
        assert {tenant_of(request) for request in agent.requests} == {"mine"}

    run(test())


def tenant_of(request: Request) -> object:
    if request.body:
        return request.params.get("tenant")
    return dict(pair.split("=") for pair in request.target.partition("?")[2].split("&")).get("tenant")


# --- redirects --------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("code", [307, 308])
def test_call_that_is_led_elsewhere_on_the_same_origin_follows_with_its_body(transport: str, code: int) -> None:
    async def test() -> None:
        script: Script = {"SendMessage": [Http(code, b"", {"Location": "?moved=1"}), Answer(message("hi"))]}
        async with scripted(BINDING[transport], script) as agent, connect(agent.card) as peer:
            assert await peer.send("go") == message("hi")
        assert agent.requests[1].target.endswith("?moved=1")
        assert agent.requests[0].body == agent.requests[1].body

    run(test())


@both
@pytest.mark.parametrize("code", [301, 302, 303])
def test_redirect_that_would_turn_a_call_into_a_get_is_not_followed(transport: str, code: int) -> None:
    async def test() -> None:
        with pytest.raises(InvalidPeerResponse, match="would lose it"):
            await sent(transport, Http(code, b"", {"Location": "?moved=1"}))

    run(test())


@both
@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_redirect_to_another_origin_is_not_followed(transport: str, code: int) -> None:
    async def test() -> None:
        async with scripted("JSONRPC", {}) as other:
            away = Http(code, b"", {"Location": other.url})
            for outcome in (sent(transport, away), got(transport, away)):
                with pytest.raises(InvalidPeerResponse, match="another origin"):
                    await outcome
        assert other.requests == []

    run(test())


@pytest.mark.parametrize("location", ["http://[bad", "ftp://127.0.0.1/x", "//evil.invalid/x"])
def test_redirect_to_nowhere_is_not_followed(location: str) -> None:
    async def test() -> None:
        with pytest.raises(InvalidPeerResponse, match="redirects"):
            await got("rest", Http(307, b"", {"Location": location}))

    run(test())


def test_redirects_in_a_circle_end() -> None:
    async def test() -> None:
        with pytest.raises(InvalidPeerResponse, match="redirects more than 5 times"):
            await got("rest", *[Http(307, b"", {"Location": "?again"}) for _ in range(6)])

    run(test())


# --- secrets ----------------------------------------------------------------------------------------------------------


@both
def test_no_error_shows_a_header_a_password_or_a_query(transport: str) -> None:
    async def test() -> None:
        steps: list[Step] = [
            Http(401, b"", {"WWW-Authenticate": "Bearer"}),
            Http(404),
            Http(500),
            Http(307, b"", {"Location": "http://127.0.0.1:1/"}),
            Raw(b"garbage\r\n\r\n"),
            Raw(b""),
            Raw(b"", end="hang"),
        ]
        for step in steps:
            async with scripted(BINDING[transport], {"SendMessage": [step]}) as agent:
                url = agent.url.replace("://", "://user:s3cret@") + "?key=s3cret"
                async with connect(
                    card_of((url, BINDING[transport])),
                    headers={"Authorization": "Bearer s3cret"},
                    version="1.0",
                    query={"token": "s3cret"},
                    cookies={"c": "s3cret"},
                    timeouts=Timeouts(answer_s=0.05),
                ) as peer:
                    with pytest.raises(A2AError) as caught:
                        await peer.send("go")
            assert "s3cret" not in "".join(traceback.format_exception(caught.value))
            assert "s3cret" not in repr(caught.value.metadata)

    run(test())


@both
def test_log_of_the_wire_shows_messages_and_no_secret(transport: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        script: Script = {
            "SendMessage": [Answer(message("an answer"))],
            "SendStreamingMessage": [Stream(message("a streamed answer"))],
            "ListTasks": [Answer(NO_TASKS)],
        }
        async with scripted(BINDING[transport], script) as agent:
            url = agent.url.replace("://", "://user:s3cret@")
            async with connect(
                card_of((url, BINDING[transport])),
                headers={"Authorization": "Bearer s3cret", "X-Own": "s3cret"},
                query={"token": "s3cret"},
                cookies={"c": "s3cret"},
            ) as peer:
                with caplog.at_level("DEBUG", "tieline.client"):
                    await peer.send("a question " + "x" * 20_000)
                    [event async for event in peer.stream("go")]
                    await peer.list(context_id="my context")
        for words in ("a question", "an answer", "a streamed answer", "A2A-Version: 1.0", "my context"):
            assert words in caplog.text
        assert "Authorization: [redacted]" in caplog.text
        assert "s3cret" not in caplog.text
        assert len(caplog.text) < 25_000

    run(test())


def test_user_and_password_of_a_reference_become_the_authorization() -> None:
    async def test() -> None:
        async with scripted("JSONRPC", {"card": [Http(404)] * 4, "GET /agent": [Http(404)]}) as agent:
            url = agent.url.replace("://", "://us%40er:pa%3Ass@")
            with pytest.raises(CardNotFound) as caught:
                await connect(url)
        assert agent.requests[0].headers["authorization"] == "Basic dXNAZXI6cGE6c3M="
        assert agent.url in str(caught.value)
        assert "@" not in str(caught.value)

    run(test())


# --- answers that take several calls ----------------------------------------------------------------------------------


@both
def test_submitted_task_is_no_answer_and_is_followed_to_its_end(transport: str) -> None:
    async def test() -> None:
        script: Script = {
            "SendMessage": [Answer(task(TaskState.SUBMITTED))],
            "GetTask": [Answer(task(TaskState.SUBMITTED)), Answer(task(COMPLETED, artifact("a", "done")))],
        }
        async with scripted(BINDING[transport], script, streaming=False) as agent, connect(agent.card) as peer:
            assert await peer.ask("go", poll_s=0.001) == "done"

    run(test())


@both
def test_stream_that_does_not_tell_its_task_whole_has_the_task_read_for_the_answer(transport: str) -> None:
    async def test() -> None:
        whole = task(COMPLETED, artifact("a", "all of it"))
        late: list[StreamEvent] = [task(), status(COMPLETED), artifact_update("a", "too late")]
        script: Script = {
            "SendStreamingMessage": [Stream(artifact_update("a", "it"), status(COMPLETED)), Stream(*late)],
            "GetTask": [Answer(whole), Answer(whole)],
        }
        async with scripted(BINDING[transport], script) as agent, connect(agent.card) as peer:
            assert [(await peer.ask("go")).task for _ in range(2)] == [whole, whole]

    run(test())


@both
def test_message_in_the_middle_of_a_task_is_not_taken_for_its_answer(transport: str) -> None:
    async def test() -> None:
        stream = Stream(task(), message("just a moment"), artifact_update("a", "done"), status(COMPLETED))
        async with (
            scripted(BINDING[transport], {"SendStreamingMessage": [stream]}) as agent,
            connect(agent.card) as peer,
        ):
            assert await peer.ask("go") == "done"

    run(test())


# --- waiting and lists ------------------------------------------------------------------------------------------------


@both
def test_wait_polls_an_agent_that_does_not_stream(transport: str) -> None:
    async def test() -> None:
        steps: list[Step] = [Answer(task(TaskState.SUBMITTED)), Raw(b""), Raw(b""), Raw(b"")]
        steps += [Answer(task(TaskState.WORKING)), Answer(task(TaskState.INPUT_REQUIRED))]
        async with (
            scripted(BINDING[transport], {"GetTask": steps}, streaming=False) as agent,
            connect(agent.card) as peer,
        ):
            assert await peer.wait(TASK, poll_s=0.001) == task(TaskState.INPUT_REQUIRED)

    run(test())


@both
def test_wait_subscribes_where_the_card_allows_it(transport: str) -> None:
    async def test() -> None:
        script: Script = {
            "GetTask": [Answer(task(TaskState.WORKING)), Answer(task(COMPLETED))],
            "SubscribeToTask": [Stream(task(TaskState.WORKING), status(COMPLETED))],
        }
        async with scripted(BINDING[transport], script) as agent, connect(agent.card) as peer:
            assert await peer.wait(TASK, poll_s=60) == task(COMPLETED)

    run(test())


@both
def test_wait_goes_on_by_polling_where_a_subscription_is_refused(transport: str) -> None:
    async def test() -> None:
        script: Script = {
            "GetTask": [Answer(task(TaskState.WORKING)), Answer(task(COMPLETED))],
            "SubscribeToTask": [Fault(UnsupportedOperation("no"))],
        }
        async with scripted(BINDING[transport], script) as agent, connect(agent.card) as peer:
            assert await peer.wait(TASK, poll_s=0.001) == task(COMPLETED)

    run(test())


@both
def test_task_that_cannot_be_read_any_more_while_waiting_is_in_doubt(transport: str) -> None:
    async def test() -> None:
        steps: list[Step] = [Answer(task(TaskState.WORKING)), *[Raw(b"") for _ in range(2 * QUICK.attempts + 2)]]
        async with (
            scripted(BINDING[transport], {"GetTask": steps}, streaming=False) as agent,
            connect(agent.card, recovery=QUICK) as peer,
        ):
            with pytest.raises(TaskInDoubt) as caught:
                await peer.wait(TASK, poll_s=0.001)
        assert caught.value.task_id == TASK

    run(test())


@both
def test_wait_ends_at_once_when_its_peer_is_closed(transport: str) -> None:
    async def test() -> None:
        script: Script = {
            "GetTask": [Answer(task(TaskState.WORKING))],
            "SubscribeToTask": [Stream(task(TaskState.WORKING), end="hang")],
        }
        async with scripted(BINDING[transport], script) as agent:
            peer = await connect(agent.card)
            waiting = asyncio.create_task(peer.wait(TASK, poll_s=LIMIT_S))
            while agent.calls[-1:] != ["SubscribeToTask"]:  # noqa: ASYNC110 - the server tells nobody what it gets
                await asyncio.sleep(0)
            await peer.close()
            with pytest.raises(Unreachable, match="closed"):
                await waiting

    run(test())


@both
@pytest.mark.requirement("list.client-stops-at-empty-token")
def test_list_goes_on_to_the_empty_token_over_empty_pages(transport: str) -> None:
    async def test() -> None:
        pages = [
            ListTasksResponse((task(),), "p2", 1, 3),
            ListTasksResponse((), "p3", 1, 3),
            ListTasksResponse((task(COMPLETED),), "", 1, 3),
        ]
        async with (
            scripted(BINDING[transport], {"ListTasks": [Answer(page) for page in pages]}) as agent,
            connect(agent.card) as peer,
        ):
            assert [t async for t in peer.list_all(page_size=1)] == [task(), task(COMPLETED)]

    run(test())


@both
@pytest.mark.parametrize("tokens", [["same", "same"], ["one", "two", "one"]])
def test_list_that_gives_pages_again_and_again_ends(transport: str, tokens: list[str]) -> None:
    async def test() -> None:
        pages = [Answer(ListTasksResponse((task(),), token, 1, 3)) for token in tokens]
        async with scripted(BINDING[transport], {"ListTasks": pages}) as agent, connect(agent.card) as peer:
            with pytest.raises(InvalidPeerResponse, match="again and again"):
                [t async for t in peer.list_all()]

    run(test())


@pytest.mark.parametrize("id_", [b"7", b'"7"', b'"other"'])
def test_json_rpc_result_of_another_call_is_not_taken_for_this_ones(id_: bytes) -> None:
    async def test() -> None:
        body = jsonrpc.encode_result(id_, encode(task()))
        with pytest.raises(InvalidPeerResponse, match="to another call"):
            await got("jsonrpc", Http(200, body, {"Content-Type": "application/json"}))
        frame = b"data: " + jsonrpc.encode_result(id_, b'{"task":' + encode(task()) + b"}") + b"\n\n"
        async with (
            scripted("JSONRPC", {"SendStreamingMessage": [Stream(frame)]}) as agent,
            connect(agent.card) as peer,
        ):
            with pytest.raises(InvalidPeerResponse, match="to another call"):
                [event async for event in peer.stream("go")]

    run(test())


@pytest.mark.parametrize("member", [b'"id":"1",', b'"id":null,', b""])
def test_json_rpc_answer_with_its_id_as_a_string_or_without_one_is_its_calls(member: bytes) -> None:
    async def test() -> None:
        answer = b'{"jsonrpc":"2.0",' + member + b'"result":' + encode(task()) + b"}"
        assert await got("jsonrpc", Http(200, answer)) == task()
        event = b'{"jsonrpc":"2.0",' + member + b'"result":{"task":' + encode(task(COMPLETED)) + b"}}"
        async with (
            scripted("JSONRPC", {"SendStreamingMessage": [Stream(b"data: " + event + b"\n\n")]}) as agent,
            connect(agent.card) as peer,
        ):
            assert [event async for event in peer.stream("go")] == [task(COMPLETED)]

    run(test())


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (b'"boom"', A2AError, "boom"),
        (b'{"code":"-32001","message":"not here"}', TaskNotFound, "not here"),
        (b'{"code":-32001.0,"message":"not here"}', TaskNotFound, "not here"),
        (b'{"code":-32603,"message":null}', InternalError, "-32603"),
        (b'{"code":"E_FAIL","message":"boom"}', A2AError, "boom"),
        (b'{"message":{"de":"kaputt"}}', A2AError, "kaputt"),
    ],
)
def test_json_rpc_error_in_a_form_of_its_own_keeps_what_it_says(error: bytes, kind: type[A2AError], words: str) -> None:
    async def test() -> None:
        with pytest.raises(kind, match=words) as caught:
            await got("jsonrpc", Http(200, b'{"jsonrpc":"2.0","id":1,"error":' + error + b"}"))
        assert type(caught.value) is kind

    run(test())


@pytest.mark.parametrize("error", [b"7", b"[]", b"{}", b'""', b"true"])
def test_json_rpc_error_that_says_nothing_is_the_peers_fault(error: bytes) -> None:
    async def test() -> None:
        with pytest.raises(A2AError):
            await got("jsonrpc", Http(200, b'{"jsonrpc":"2.0","id":1,"error":' + error + b"}"))

    run(test())


@both
def test_json_behind_a_byte_order_mark_is_json(transport: str) -> None:
    async def test() -> None:
        result = encode(task())
        body = jsonrpc.encode_result(b"1", result) if transport == "jsonrpc" else result
        assert await got(transport, Http(200, b"\xef\xbb\xbf" + body)) == task()

    run(test())


def test_json_rpc_error_that_could_not_name_its_call_is_raised_as_what_it_is() -> None:
    async def test() -> None:
        with pytest.raises(ParseError):
            await got("jsonrpc", Http(200, jsonrpc.encode_error(b"null", ParseError("no"))), version="1.0")

    run(test())


@both
@pytest.mark.parametrize(
    ("code", "error"), [(200, InvalidPeerResponse), (500, InvalidPeerResponse), (502, Unreachable)]
)
def test_page_instead_of_json_is_told_with_its_url_status_and_type(
    transport: str, code: int, error: type[PeerError]
) -> None:
    async def test() -> None:
        page = Http(code, b"<html>Welcome</html>", {"Content-Type": "text/html; charset=utf-8"})
        with pytest.raises(error, match=rf"http://127\S+ answered HTTP {code} \(text/html\).*Welcome"):
            await got(transport, page)

    run(test())


@both
@pytest.mark.parametrize("code", [502, 504])
def test_message_that_a_gateway_has_no_answer_to_may_have_arrived_and_is_not_sent_again(
    transport: str, code: int
) -> None:
    async def test() -> None:
        page = Http(code, b"<h1>Gateway</h1>", {"Content-Type": "text/html"})
        script: Script = {"SendMessage": [page], "SendStreamingMessage": [page]}
        async with scripted(BINDING[transport], script) as agent, connect(agent.card, recovery=QUICK) as peer:
            calls: tuple[Awaitable[object], ...] = (peer.send("go"), anext(peer.stream("go", context_id="c")))
            for call, context in zip(calls, (None, "c"), strict=True):
                with pytest.raises(TaskInDoubt, match=f"may have arrived, or not.*HTTP {code}") as doubt:
                    await call
                assert doubt.value.context_id == context
            assert agent.calls == ["SendMessage", "SendStreamingMessage"]

    run(test())


@both
@pytest.mark.parametrize(("given", "told"), [("17", "in 17 s"), ("Fri, 01 Jan 2027 00:00:00 GMT", "Fri, 01 Jan 2027")])
def test_agent_that_is_asked_too_often_says_when_to_try_again(transport: str, given: str, told: str) -> None:
    async def test() -> None:
        with pytest.raises(InvalidPeerResponse, match=rf"HTTP 429.*try again.*{told}"):
            await got(transport, Http(429, b"", {"Retry-After": given}))

    run(test())
