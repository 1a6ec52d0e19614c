"""Our gRPC client: against our own server in both versions, and against servers that misbehave."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import grpc
import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import error_details_pb2, status_pb2

from tests.behaviour.agents import Puppet, make_agent, says
from tests.grpc.serving import eventually, run, served
from tests.interop.processes import free_port
from tests.server.agents import asker, replier, worker
from tieline import AgentExtension, Turn
from tieline.client.grpc import GrpcTransport
from tieline.client.transport import Events, NotServed, Timeouts
from tieline.errors import (
    A2AError,
    AuthenticationRequired,
    BodyTooLarge,
    InternalError,
    InvalidParams,
    InvalidPeerResponse,
    Overloaded,
    PeerTimeout,
    TaskNotCancelable,
    TaskNotFound,
    Unreachable,
    UnsupportedOperation,
    VersionNotSupported,
)
from tieline.ids import new_id
from tieline.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamEvent,
    SubscribeToTaskRequest,
    Task,
    TaskState,
    TaskStatusUpdateEvent,
)

Version = Literal["1.0", "0.3"]
both = pytest.mark.parametrize("version", ["1.0", "0.3"])


def said(
    *parts: Part | str, configuration: SendMessageConfiguration | None = None, **fields: Any
) -> SendMessageRequest:
    made = tuple(Part(part) if isinstance(part, str) else part for part in parts or ("hi",))
    return SendMessageRequest(Message(new_id(), Role.USER, made, **fields), configuration=configuration)


@asynccontextmanager
async def calling(address: str, version: Version = "1.0", **options: Any) -> AsyncIterator[GrpcTransport]:
    """A transport, closed at the end."""
    given = {"timeouts": Timeouts(answer_s=10, connect_s=5), "max_response_bytes": 64 << 20, **options}
    transport = GrpcTransport(address, version=version, **given)
    try:
        yield transport
    finally:
        await transport.close()


async def told(events: Events) -> list[StreamEvent]:
    """All events to the end."""
    given: list[StreamEvent] = []
    while batch := await events.read():
        assert all(id_ is None for id_, _ in batch)
        given += [event for _, event in batch]
    return given


async def task_of(answer: Awaitable[Task | Message]) -> Task:
    task = await answer
    assert isinstance(task, Task)
    return task


@both
def test_messages_tasks_and_streams_come_as_the_agent_made_them(version: Version) -> None:
    async def check() -> None:
        async with served(replier()) as it, calling(it.address, version) as peer:
            answer = await peer.send(said("Grüße 😀"), ())
            assert isinstance(answer, Message)
            assert (answer.text, answer.role) == ("Grüße 😀", Role.AGENT)
            assert [type(event) for event in await told(await peer.open(said(), ()))] == [Message]
        async with served(worker()) as it, calling(it.address, version) as peer:
            task = await task_of(peer.send(said("it"), ()))
            assert (task.text, task.state) == ("did it", TaskState.COMPLETED)
            events = await told(await peer.open(said("it"), ()))
            assert isinstance(events[0], Task)
            assert isinstance(events[-1], TaskStatusUpdateEvent)
            assert events[-1].status.state is TaskState.COMPLETED
            assert await peer.get(GetTaskRequest(task.id), ()) == task

    run(check())


async def _echo(turn: Turn) -> Message:
    return turn.reply(*turn.parts)


@both
def test_parts_of_every_kind_come_back_as_they_were_sent(version: Version) -> None:
    parts = (
        Part("text", media_type="text/markdown", filename="a.md", metadata={"k": [1, None]}),
        Part(raw=bytes(range(256)), media_type="image/png", filename="a.png"),
        Part(raw=b"dGVzdA==", media_type="text/plain"),
        Part(url="https://example.com/a", media_type="text/csv"),
        Part(data={"n": [2**53, -1, 1.5, True, None, "é"]}),
        Part(data=None),
        Part(data=[1, {"a": {}}]),
        Part(""),
    )

    async def check() -> None:
        agent = make_agent(_echo, input_modes=("*/*",))
        async with served(agent) as it, calling(it.address, version) as peer:
            answer = await peer.send(said(*parts), ())
            assert isinstance(answer, Message)
            assert answer.parts == parts

    run(check())


@both
def test_a_question_is_answered_and_a_stream_of_0_3_ends_with_it_when_it_is_taken_up_again(version: Version) -> None:
    async def check() -> None:
        async with served(asker()) as it, calling(it.address, version) as peer:
            events = await told(await peer.open(said("hello"), ()))
            first, last = events[0], events[-1]
            assert isinstance(first, Task)
            assert isinstance(last, TaskStatusUpdateEvent)
            assert last.status.state is TaskState.INPUT_REQUIRED
            following = await peer.open(SubscribeToTaskRequest(first.id), ())
            assert isinstance((await following.read())[0][1], Task)
            if version == "0.3":
                assert await following.read() == ()
            await following.close()
            task = await task_of(peer.send(said("this", task_id=first.id), ()))
            assert task.text == "you said this"

    run(check())


@both
def test_a_task_is_followed_cancelled_and_can_then_be_cancelled_no_more(version: Version) -> None:
    puppet = Puppet()

    async def check() -> None:
        async with served(puppet) as it, calling(it.address, version) as peer:
            at_once = SendMessageConfiguration(return_immediately=True)
            task = await task_of(peer.send(said(configuration=at_once), ()))
            act = await puppet.next()
            events = await peer.open(SubscribeToTaskRequest(task.id), ())
            act.tell(says("nearly"))
            assert isinstance((await events.read())[0][1], Task)
            cancelled = await peer.cancel(CancelTaskRequest(task.id), ())
            assert cancelled.state is TaskState.CANCELED
            assert act.cancelled
            last = (await told(events))[-1]
            assert isinstance(last, TaskStatusUpdateEvent)
            assert last.status.state is TaskState.CANCELED
            with pytest.raises(TaskNotCancelable):
                await peer.cancel(CancelTaskRequest(task.id), ())

    run(check())


def test_tasks_are_listed_in_1_0_and_0_3_has_no_such_call() -> None:
    async def check() -> None:
        async with served(worker()) as it:
            async with calling(it.address) as peer:
                task = await task_of(peer.send(said(), ()))
                page = await peer.list(ListTasksRequest(page_size=3, include_artifacts=True), ())
                assert (page.tasks, page.page_size, page.total_size, page.next_page_token) == ((task,), 3, 1, "")
            async with calling(it.address, "0.3") as peer:
                with pytest.raises(UnsupportedOperation, match="ListTasks"):
                    await peer.list(ListTasksRequest(), ())

    run(check())


@both
def test_a_task_that_has_ended_is_told_by_0_3_and_refused_by_1_0_when_it_is_followed(version: Version) -> None:
    async def check() -> None:
        async with served(worker()) as it, calling(it.address, version) as peer:
            task = await task_of(peer.send(said(), ()))
            if version == "0.3":
                assert await told(await peer.open(SubscribeToTaskRequest(task.id), ())) == [task]
            else:
                with pytest.raises(UnsupportedOperation):
                    await peer.open(SubscribeToTaskRequest(task.id), ())

    run(check())


@both
@pytest.mark.parametrize("length", [0, 1, 2, None])
def test_as_much_history_comes_as_was_asked_for(version: Version, length: int | None) -> None:
    async def check() -> None:
        async with served(asker()) as it, calling(it.address, version) as peer:
            asked = await task_of(peer.send(said("a"), ()))
            configuration = SendMessageConfiguration(history_length=length)
            ended = await task_of(peer.send(said("b", task_id=asked.id, configuration=configuration), ()))
            wanted = 3 if length is None else length
            assert len(ended.history) == wanted
            assert len((await peer.get(GetTaskRequest(asked.id, history_length=length), ())).history) == wanted
            events = await told(await peer.open(said("c", configuration=configuration), ()))
            assert isinstance(events[0], Task)
            assert len(events[0].history) == (1 if length is None else min(1, length))

    run(check())


@both
def test_what_the_agent_refuses_is_raised_as_its_class_with_all_that_it_says(version: Version) -> None:
    async def check() -> None:
        async with served(worker()) as it, calling(it.address, version) as peer:
            for call in (
                lambda: peer.get(GetTaskRequest("no"), ()),
                lambda: peer.open(SubscribeToTaskRequest("no"), ()),
                lambda: peer.send(said(task_id="no"), ()),
                lambda: peer.open(said(task_id="no"), ()),
            ):
                with pytest.raises(TaskNotFound) as caught:
                    await call()
                assert caught.value.metadata == {"taskId": "no"}
            request = SendMessageRequest(Message("", Role.USER, (Part("x"),)))
            with pytest.raises(InvalidParams) as invalid:
                await peer.send(request, ())
            assert [violation.field for violation in invalid.value.violations] == ["message.messageId"]
            assert not it.server.open

    run(check())


def test_a_request_that_cannot_be_carried_exactly_is_refused_before_anything_is_sent() -> None:
    async def check() -> None:
        for version in ("1.0", "0.3"):
            async with calling("127.0.0.1:1", version) as peer:
                with pytest.raises(InvalidParams, match=r"message\.parts\[0\]\.data\.n"):
                    await peer.send(said(Part(data={"n": 2**63 - 1})), ())
                with pytest.raises(InvalidParams):
                    await peer.open(said(Part(data=float("nan"))), ())

    run(check())


@both
def test_extensions_and_headers_of_the_caller_go_as_metadata(version: Version) -> None:
    seen: list[dict[str, str]] = []

    async def check() -> None:
        headers = {"Authorization": "Bearer x", "X-Trace": "1", "User-Agent": "mine", "A2A-Version": "9", "Host": "h"}
        async with recording(seen) as address, calling(address, version, metadata=headers) as peer:
            with pytest.raises(A2AError):
                await peer.send(said(), ("https://e/1", "https://e/2"))
        extension = AgentExtension("https://e/1", required=True)
        agent = replier(extensions=(extension,))
        async with served(agent) as it, calling(it.address, version) as peer:
            assert isinstance(await peer.send(said(), ("https://e/1",)), Message)

    run(check())
    sent = seen[0]
    key = "a2a-extensions" if version == "1.0" else "x-a2a-extensions"
    assert sent[key] == "https://e/1,https://e/2"
    assert (sent["authorization"], sent["x-trace"], sent["a2a-version"]) == ("Bearer x", "1", version)
    assert sent["user-agent"].startswith("tieline/")
    assert "host" not in sent


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({"A key": "x"}, "'A key'"),
        ({"X": "line\nbreak"}, "header X"),
        ({"X": "é"}, "header X"),
        ({"x-bin": "x"}, "x-bin"),
    ],
)
def test_headers_that_grpc_cannot_send_are_refused_without_showing_their_value(
    headers: dict[str, str], told: str
) -> None:
    with pytest.raises(ValueError, match=told) as caught:
        GrpcTransport("h:1", metadata=headers, timeouts=Timeouts(), max_response_bytes=1)
    assert "line" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "target", "tls"),
    [
        ("agent.example.com:443", "agent.example.com:443", True),
        ("agent.example.com:50051", "agent.example.com:50051", False),
        ("127.0.0.1:443", "127.0.0.1:443", True),
        ("https://agent.example.com", "agent.example.com:443", True),
        ("https://agent.example.com:50051/", "agent.example.com:50051", True),
        ("grpcs://agent.example.com:50051", "agent.example.com:50051", True),
        ("http://agent.example.com:443", "agent.example.com:443", False),
        ("grpc://localhost:50051", "localhost:50051", False),
        ("[::1]:50051", "[::1]:50051", False),
        ("localhost", "localhost:80", False),
    ],
)
def test_tls_is_chosen_by_scheme_or_by_port(address: str, target: str, tls: bool) -> None:
    transport = GrpcTransport(address, timeouts=Timeouts(), max_response_bytes=1)
    assert (transport.target, transport.tls) == (target, tls)


@pytest.mark.parametrize("address", ["", "ftp://h:1", "h:1/path", "h:1?x", "h:x", "https://"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"address|[Pp]ort"):
        GrpcTransport(address, timeouts=Timeouts(), max_response_bytes=1)


def test_without_the_check_of_certificates_there_is_no_tls() -> None:
    for verify in (False, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)):
        with pytest.raises(ValueError, match="authority"):
            GrpcTransport("https://h", timeouts=Timeouts(), max_response_bytes=1, verify=verify)


# --- no connection, and connections that break ------------------------------------------------------------------------


def test_without_a_connection_nothing_was_sent_and_the_next_call_finds_a_server_that_has_come() -> None:
    async def check() -> None:
        port = free_port()
        async with calling(f"127.0.0.1:{port}") as peer:
            for _ in range(3):
                with pytest.raises(NotServed, match="Connection refused") as caught:
                    await peer.send(said(), ())
                assert isinstance(caught.value.error, Unreachable)
                assert not caught.value.final
            async with served(replier()) as it:
                again = await it.server.start("127.0.0.1", port)
                assert again == port
                assert isinstance(await peer.send(said(), ()), Message)

    run(check())


def test_a_host_that_does_not_exist_is_told() -> None:
    async def check() -> None:
        async with calling("nothing.invalid:1") as peer:
            with pytest.raises(NotServed, match=r"nothing\.invalid:1"):
                await peer.get(GetTaskRequest("t"), ())

    run(check())


def test_a_server_that_does_not_shake_hands_runs_out_the_time_for_a_connection() -> None:
    async def check() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:  # nobody accepts
            port = listening.getsockname()[1]
            async with calling(f"127.0.0.1:{port}", timeouts=Timeouts(connect_s=0.2)) as peer:
                with pytest.raises(NotServed) as caught:
                    await peer.get(GetTaskRequest("t"), ())
                assert isinstance(caught.value.error, PeerTimeout)

    run(check())


def test_a_server_without_the_service_was_sent_nothing_that_it_could_carry_out() -> None:
    async def check() -> None:
        server = grpc.aio.server()
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with calling(f"127.0.0.1:{port}", "0.3") as peer:
            with pytest.raises(NotServed, match=r"a2a\.v1\.A2AService"):
                await peer.send(said(), ())
            with pytest.raises(NotServed):
                await peer.open(said(), ())
        await server.stop(None)

    run(check())


def test_closing_ends_what_is_under_way_and_refuses_what_comes_after() -> None:
    puppet = Puppet()

    async def check() -> None:
        async with served(puppet) as it, calling(it.address) as peer:
            events = await peer.open(said(), ())
            act = await puppet.next()
            act.tell(says("on it"))
            reading = asyncio.ensure_future(told(events))
            sending = asyncio.ensure_future(peer.send(said(), ()))
            await puppet.next()
            await peer.close()
            for waiting in (reading, sending):
                with pytest.raises(Unreachable, match="closed"):
                    await waiting
            with pytest.raises(NotServed) as caught:
                await peer.get(GetTaskRequest("t"), ())
            assert caught.value.final

    run(check())


def test_a_stream_that_is_closed_is_ended_at_the_server_and_reads_as_over() -> None:
    puppet = Puppet()

    async def check() -> None:
        async with served(puppet) as it, calling(it.address) as peer:
            events = await peer.open(said(), ())
            await events.close()
            await events.close()
            assert await events.read() in ((), [])
            await eventually(lambda: not it.server.open)

    run(check())


def test_a_read_that_is_cancelled_loses_no_event() -> None:
    puppet = Puppet()

    async def check() -> None:
        async with served(puppet) as it, calling(it.address) as peer:
            events = await peer.open(said(), ())
            act = await puppet.next()
            first = (await events.read())[0][1]
            assert isinstance(first, Task)
            while True:
                try:
                    async with asyncio.timeout(0.05):
                        await events.read()
                except TimeoutError:
                    break
            act.tell("a", "b")
            act.end()
            rest = await told(events)
            assert isinstance(rest[-1], TaskStatusUpdateEvent)
            task = await peer.get(GetTaskRequest(first.id), ())
            assert task.text == "ab"

    run(check())


def test_a_silent_stream_lives_as_long_as_its_connection_answers() -> None:
    puppet = Puppet()

    async def check() -> None:
        async with served(puppet) as it, calling(it.address, timeouts=Timeouts(idle_s=0.02)) as peer:
            events = await peer.open(said(), ())
            act = await puppet.next()
            reading = asyncio.ensure_future(told(events))
            done, _ = await asyncio.wait((reading,), timeout=0.5)
            assert not done
            act.end()
            assert await reading

    run(check())


def test_a_call_that_is_not_answered_in_time_is_given_up() -> None:
    puppet = Puppet()

    async def check() -> None:
        async with served(puppet) as it, calling(it.address, timeouts=Timeouts(answer_s=0.2)) as peer:
            with pytest.raises(PeerTimeout):
                await peer.send(said(), ())

    run(check())


def test_a_server_that_goes_away_breaks_its_streams() -> None:
    puppet = Puppet()

    async def check() -> None:
        async with served(puppet) as it, calling(it.address) as peer:
            events = await peer.open(said(), ())
            await events.read()
            reading = asyncio.ensure_future(told(events))
            await it.server._server.stop(None)
            with pytest.raises(Unreachable):
                await reading

    run(check())


# --- what servers say -------------------------------------------------------------------------------------------------


Handler = Callable[[Any, Any], Awaitable[bytes]]


@asynccontextmanager
async def scripted(handler: Handler, *, stream: bool = False) -> AsyncIterator[str]:
    """A server whose every method is `handler`; gives its address."""
    server = grpc.aio.server()
    make = grpc.unary_stream_rpc_method_handler if stream else grpc.unary_unary_rpc_method_handler

    class Everything(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: Any) -> Any:
            return make(handler)

    server.add_generic_rpc_handlers((Everything(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


@asynccontextmanager
async def recording(seen: list[dict[str, str]]) -> AsyncIterator[str]:
    """A server that notes the metadata of its calls and refuses them."""

    async def handler(data: bytes, context: Any) -> bytes:
        seen.append({key: str(value) for key, value in context.invocation_metadata()})
        await context.abort(grpc.StatusCode.INTERNAL, "no")
        return b""

    async with scripted(handler) as address:
        yield address


@pytest.mark.parametrize(
    ("code", "details", "error"),
    [
        ("INVALID_ARGUMENT", "bad", InvalidParams),
        ("NOT_FOUND", "gone", TaskNotFound),
        ("FAILED_PRECONDITION", "no", UnsupportedOperation),
        ("RESOURCE_EXHAUSTED", "later", Overloaded),
        ("RESOURCE_EXHAUSTED", "SERVER: Received message larger than max (9 vs. 5)", BodyTooLarge),
        ("INTERNAL", "oh", InternalError),
        ("UNKNOWN", "Unexpected <class 'KeyError'>", InternalError),
        ("UNAUTHENTICATED", "who?", AuthenticationRequired),
        ("PERMISSION_DENIED", "not you", AuthenticationRequired),
        ("UNAVAILABLE", "going", Unreachable),
        ("CANCELLED", "", Unreachable),
        ("UNIMPLEMENTED", "TaskNotCancelableError: it has ended", TaskNotCancelable),
        ("UNIMPLEMENTED", "UnsupportedOperationError: no", UnsupportedOperation),
        ("NOT_FOUND", "TaskNotFoundError: none", TaskNotFound),
        ("FAILED_PRECONDITION", "VersionNotSupportedError: no", VersionNotSupported),
    ],
)
def test_a_status_without_details_is_raised_as_what_it_means(code: str, details: str, error: type[A2AError]) -> None:
    async def check() -> None:
        async def handler(data: bytes, context: Any) -> bytes:
            await context.abort(getattr(grpc.StatusCode, code), details)
            return b""

        async with scripted(handler) as address, calling(address) as peer:
            with pytest.raises(error) as caught:
                await peer.get(GetTaskRequest("t"), ())
            assert type(caught.value) is error
            assert details.partition("Error: ")[2][:20] in str(caught.value)

    run(check())


def test_details_count_more_than_the_status_and_those_of_other_domains_do_not() -> None:
    async def check(domain: str, reason: str) -> A2AError:
        async def handler(data: bytes, context: Any) -> bytes:
            status = status_pb2.Status(code=5, message="told")
            for detail in (
                error_details_pb2.DebugInfo(detail="x"),
                error_details_pb2.ErrorInfo(reason=reason, domain=domain, metadata={"k": "v"}),
                error_details_pb2.BadRequest(field_violations=[{"field": "id", "description": "bad"}]),
            ):
                packed = AnyMessage()
                packed.Pack(detail)
                status.details.append(packed)
            trailing = (("grpc-status-details-bin", status.SerializeToString()),)
            await context.abort(grpc.StatusCode.NOT_FOUND, "other words", trailing)
            return b""

        async with scripted(handler) as address, calling(address) as peer:
            with pytest.raises(A2AError) as caught:
                await peer.get(GetTaskRequest("t"), ())
            return caught.value

    error = run(check("a2a-protocol.org", "TASK_NOT_CANCELABLE"))
    assert type(error) is TaskNotCancelable
    assert (str(error), error.metadata) == ("told", {"k": "v"})
    assert [violation.field for violation in error.violations] == ["id"]
    error = run(check("example.com", "TASK_NOT_CANCELABLE"))
    assert type(error) is InvalidParams
    error = run(check("a2a-protocol.org", "OF_A_LATER_VERSION"))
    assert type(error) is InvalidParams


@pytest.mark.parametrize("answer", [b"", b"\xff\xff", pb.Task(id="t").SerializeToString()])
def test_an_answer_that_is_none_is_the_peers_fault(answer: bytes) -> None:
    async def check() -> None:
        async def handler(data: bytes, context: Any) -> bytes:
            return answer

        async with scripted(handler) as address, calling(address) as peer:
            with pytest.raises(InvalidPeerResponse):
                await peer.get(GetTaskRequest("t"), ())

    run(check())


def test_an_answer_larger_than_the_limit_is_the_peers_fault() -> None:
    async def check() -> None:
        async with served(replier()) as it, calling(it.address, max_response_bytes=1000) as peer:
            with pytest.raises(InvalidPeerResponse, match="1000 bytes"):
                await peer.send(said("x" * 2000), ())

    run(check())


def test_an_event_that_is_unknown_is_passed_over_and_one_that_is_broken_is_the_peers_fault() -> None:
    async def check() -> None:
        async def handler(data: bytes, context: Any) -> None:
            await context.write(b"")
            await context.write(pb.StreamResponse(message=pb.Message(message_id="a")).SerializeToString())
            await context.write(pb.StreamResponse(message=pb.Message(role=9)).SerializeToString())  # type: ignore[arg-type]

        async with scripted(handler, stream=True) as address, calling(address) as peer:  # type: ignore[arg-type]
            events = await peer.open(said(), ())
            event = (await events.read())[0][1]
            assert isinstance(event, Message)
            assert event.message_id == "a"
            with pytest.raises(InvalidPeerResponse, match=r"message\.role"):
                await events.read()
            await events.close()

    run(check())


def test_an_error_in_the_middle_of_a_stream_is_raised_behind_the_events_before_it() -> None:
    async def check() -> None:
        async def handler(data: bytes, context: Any) -> None:
            await context.write(pb.StreamResponse(message=pb.Message(message_id="a")).SerializeToString())
            await context.abort(grpc.StatusCode.INTERNAL, "broken")

        async with scripted(handler, stream=True) as address, calling(address) as peer:  # type: ignore[arg-type]
            events = await peer.open(said(), ())
            assert await events.read()
            with pytest.raises(InternalError, match="broken"):
                await events.read()
            assert await events.read() in ((), [])

    run(check())
