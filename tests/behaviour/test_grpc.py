"""What the gRPC binding has to itself (A2A 1.0 §10): its service, metadata, statuses and streams, at both ends."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message as Protobuf
from google.rpc import error_details_pb2, status_pb2

from tests.behaviour.agents import Puppet, begun, ended, hello, make_agent
from tests.behaviour.harness import Json, Refused, Transport, message, refused
from tests.behaviour.over_grpc import message_of
from tests.behaviour.refusals import ERRORS
from tests.behaviour.serving import Serve, over
from tieline import AgentExtension, Part, Turn
from tieline.client.grpc import GrpcTransport
from tieline.client.transport import Timeouts
from tieline.errors import UnsupportedOperation
from tieline.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
)

by_grpc = over("grpc")

SERVICE: Final = "/lf.a2a.v1.A2AService/"
METHODS: Final[dict[str, tuple[Any, Any]]] = {
    "SendMessage": (pb.SendMessageRequest, pb.SendMessageResponse),
    "SendStreamingMessage": (pb.SendMessageRequest, pb.StreamResponse),
    "GetTask": (pb.GetTaskRequest, pb.Task),
    "ListTasks": (pb.ListTasksRequest, pb.ListTasksResponse),
    "CancelTask": (pb.CancelTaskRequest, pb.Task),
    "SubscribeToTask": (pb.SubscribeToTaskRequest, pb.StreamResponse),
    "CreateTaskPushNotificationConfig": (pb.TaskPushNotificationConfig, pb.TaskPushNotificationConfig),
    "GetTaskPushNotificationConfig": (pb.GetTaskPushNotificationConfigRequest, pb.TaskPushNotificationConfig),
    "ListTaskPushNotificationConfigs": (
        pb.ListTaskPushNotificationConfigsRequest,
        pb.ListTaskPushNotificationConfigsResponse,
    ),
    "DeleteTaskPushNotificationConfig": (pb.DeleteTaskPushNotificationConfigRequest, Empty),
    "GetExtendedAgentCard": (pb.GetExtendedAgentCardRequest, pb.AgentCard),
}
"""Request and answer of each method of the normative definition (§5.3, §10.3)."""
STREAMING: Final = ("SendStreamingMessage", "SubscribeToTask")


async def raw_call(agent: Transport, method: str, request: Protobuf, metadata: Any = ()) -> list[bytes]:
    """The answers of a method that is called by its path, as bytes. Raises AioRpcError."""
    kind = agent.by_grpc.channel.unary_stream if method in STREAMING else agent.by_grpc.channel.unary_unary
    call = kind(SERVICE + method)(request.SerializeToString(), metadata=metadata)
    return [data async for data in call] if method in STREAMING else [await call]


async def failure(agent: Transport, method: str, request: Protobuf, metadata: Any = ()) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await raw_call(agent, method, request, metadata)
    return caught.value


# --- the service ------------------------------------------------------------------------------------------------------


@by_grpc
@pytest.mark.requirement("methods.grpc", "grpc.service")
async def test_every_method_of_the_definition_is_there_and_answers_with_its_message(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await begun(agent, puppet)
    named, config = {"id": task["id"]}, {"taskId": task["id"], "id": "c"}
    for method, params in {"GetTask": named, "ListTasks": {}, "CancelTask": named}.items():
        (data,) = await raw_call(agent, method, message_of(params, METHODS[method][0]))
        assert METHODS[method][1].FromString(data).ByteSize() == len(data)
    assert act.cancelled
    refusals: dict[str, tuple[Json, str]] = {
        "SendStreamingMessage": ({"message": message("go on", taskId="no-such-task")}, "NOT_FOUND"),
        "SubscribeToTask": ({"id": "no-such-task"}, "NOT_FOUND"),
        "CreateTaskPushNotificationConfig": ({**config, "url": "https://hooks.example/"}, "FAILED_PRECONDITION"),
        "GetTaskPushNotificationConfig": (config, "FAILED_PRECONDITION"),
        "ListTaskPushNotificationConfigs": ({"taskId": task["id"]}, "FAILED_PRECONDITION"),
        "DeleteTaskPushNotificationConfig": (config, "FAILED_PRECONDITION"),
        "GetExtendedAgentCard": ({}, "FAILED_PRECONDITION"),
    }
    for method, (asked, status) in refusals.items():
        assert (await failure(agent, method, message_of(asked, METHODS[method][0]))).code().name == status
    sending = asyncio.create_task(
        raw_call(agent, "SendMessage", message_of({"message": message()}, pb.SendMessageRequest))
    )
    (await puppet.next()).end()
    (data,) = await sending
    assert pb.SendMessageResponse.FromString(data).WhichOneof("payload") == "task"


@by_grpc
@pytest.mark.requirement("grpc.service")
async def test_method_that_the_definition_does_not_have_is_not_implemented(serve: Serve) -> None:
    agent = await serve(hello)
    assert (await failure(agent, "SendMassage", pb.SendMessageRequest())).code().name == "UNIMPLEMENTED"


@by_grpc
@pytest.mark.requirement("grpc.streaming")
@pytest.mark.parametrize("method", STREAMING)
async def test_stream_is_a_server_streaming_call_of_stream_responses(serve: Serve, method: str) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await begun(agent, puppet)
    params: Json = {"id": task["id"]} if method == "SubscribeToTask" else {"message": message()}
    call = agent.by_grpc.channel.unary_stream(SERVICE + method)(
        message_of(params, METHODS[method][0]).SerializeToString()
    )
    if method == "SendStreamingMessage":
        act = await puppet.next()
        act.tell("a chunk")
    read = [await call.read()]
    act.tell("another chunk")
    act.end()
    while (data := await call.read()) is not grpc.aio.EOF:
        read.append(data)
    kinds = [pb.StreamResponse.FromString(data).WhichOneof("payload") for data in read]
    assert kinds[0] == "task"
    assert set(kinds[1:]) <= {"status_update", "artifact_update"}
    assert kinds[-1] == "status_update"


# --- metadata ---------------------------------------------------------------------------------------------------------


async def tells(turn: Turn) -> Any:
    """Says how it was called."""
    yield [turn.caller.version, list(turn.extensions)]


@by_grpc
@pytest.mark.requirement("grpc.params-extracted", "grpc.comma-separated")
@pytest.mark.parametrize(
    "metadata",
    [
        (("a2a-version", "1.0"), ("a2a-extensions", "urn:a,urn:b")),
        (("a2a-version", "1.0.3"), ("a2a-extensions", " urn:a , urn:b,")),
        (("a2a-version", "1.0"), ("a2a-extensions", "urn:a"), ("a2a-extensions", "urn:b")),
    ],
    ids=["one-entry", "spaces", "two-entries"],
)
async def test_service_parameters_are_taken_from_metadata(serve: Serve, metadata: Any) -> None:
    agent = await serve(
        make_agent(tells, extensions=[AgentExtension("urn:a", required=True), AgentExtension("urn:b")]), strict=True
    )
    (data,) = await raw_call(agent, "SendMessage", message_of({"message": message()}, pb.SendMessageRequest), metadata)
    part = pb.SendMessageResponse.FromString(data).task.artifacts[0].parts[0].data
    version, extensions = part.list_value.values
    assert version.string_value == "1.0"
    assert [uri.string_value for uri in extensions.list_value.values] == ["urn:a", "urn:b"]


@by_grpc
@pytest.mark.requirement("grpc.params-validated")
async def test_service_parameters_are_checked_before_anything_is_done(serve: Serve) -> None:
    puppet = Puppet(extensions=[AgentExtension("urn:a", required=True)])
    agent = await serve(puppet)
    with refused("VersionNotSupportedError"):
        await agent.send(service={"A2A-Version": "9.1", "A2A-Extensions": "urn:a"})
    with refused("ExtensionSupportRequiredError"):
        await agent.send(service={"A2A-Version": "1.0"})
    assert puppet.runs == 0


# --- statuses ---------------------------------------------------------------------------------------------------------


@by_grpc
@pytest.mark.requirement("codes.grpc", "grpc.status", "grpc.error-info")
async def test_every_error_is_a_status_with_its_code_sentence_and_details(serve: Serve) -> None:
    agent = await serve(hello)
    task_id = (await agent.task())["id"]
    required = await serve(make_agent(hello, extensions=[AgentExtension("urn:x", required=True)]))
    picture, config = {"raw": "AAAA", "mediaType": "image/png"}, {"taskId": task_id, "id": "c"}
    calls: dict[str, tuple[Transport, str, Any, str]] = {
        "TaskNotFoundError": (agent, "GetTask", {"id": "no-such-task"}, "1.0"),
        "TaskNotCancelableError": (agent, "CancelTask", {"id": task_id}, "1.0"),
        "PushNotificationNotSupportedError": (agent, "GetTaskPushNotificationConfig", config, "1.0"),
        "UnsupportedOperationError": (agent, "SendMessage", {"message": message("more", taskId=task_id)}, "1.0"),
        "ContentTypeNotSupportedError": (agent, "SendMessage", {"message": message(picture)}, "1.0"),
        "ExtensionSupportRequiredError": (required, "ListTasks", {}, "1.0"),
        "VersionNotSupportedError": (agent, "ListTasks", {}, "7.0"),
        "InvalidParamsError": (agent, "SendMessage", {"message": message("hello", parts=[])}, "1.0"),
    }
    for name, (called, method, params, version) in calls.items():
        _, _, code, reason = ERRORS[name]
        error = await failure(called, method, message_of(params, METHODS[method][0]), (("a2a-version", version),))
        assert (error.code().name, bool(error.details())) == (code, True)
        (packed,) = [value for key, value in error.trailing_metadata() or () if key == "grpc-status-details-bin"]
        status = status_pb2.Status.FromString(packed)
        assert (status.code, status.message) == (error.code().value[0], error.details())
        info = error_details_pb2.ErrorInfo()
        assert status.details[0].Unpack(info)
        assert (info.reason, info.domain) == (reason, "a2a-protocol.org")


@by_grpc
@pytest.mark.requirement("grpc.subscribe-terminal-refused", "codes.grpc")
async def test_subscribing_to_an_ended_task_fails_with_the_status_of_an_unsupported_operation(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task = await ended(agent, puppet, "COMPLETED")
    error = await failure(agent, "SubscribeToTask", pb.SubscribeToTaskRequest(id=task["id"]))
    assert error.code().name == ERRORS["UnsupportedOperationError"][2]


# --- numbers ----------------------------------------------------------------------------------------------------------


@by_grpc
@pytest.mark.requirement("grpc.status")
@pytest.mark.parametrize("number", [2**53 + 1, -(2**53) - 1, 10**30])
async def test_integer_that_no_double_holds_is_an_error_and_never_rounded(serve: Serve, number: int) -> None:
    async def gives(turn: Turn) -> Any:
        yield "before"
        yield {"n": number}

    agent = await serve(gives)
    with pytest.raises(Refused) as caught:
        await agent.send()
    assert caught.value.rpc_status == "FAILED_PRECONDITION"
    assert caught.value.reason == "UNSUPPORTED_OPERATION"
    assert "parts[1]" in caught.value.message
    listed = (await agent.over("jsonrpc").list(includeArtifacts=True))["tasks"]
    assert listed[0]["artifacts"][0]["parts"] == [{"text": "before"}, {"data": {"n": number}}]


@by_grpc
@pytest.mark.parametrize("number", [0, -1, 2**53, -(2**53), 2**62, 1.5, -0.25])
async def test_number_that_a_double_holds_comes_out_as_the_agent_gave_it(serve: Serve, number: float) -> None:
    seen: list[Any] = []

    async def echoes(turn: Turn) -> Any:
        seen.append(turn.parts[0].data)
        yield Part(data=turn.parts[0].data)

    agent = await serve(make_agent(echoes, input_modes=("*/*",)))
    task = await agent.task({"data": number})
    assert repr(seen) == repr([number])  # an integer is one again
    assert task["artifacts"][0]["parts"] == [{"data": number}]


# --- our client -------------------------------------------------------------------------------------------------------


class Recorder:
    """A server that keeps what it is called with and answers with nothing in particular."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Protobuf, dict[str, str]]] = []

    @asynccontextmanager
    async def serving(self) -> Any:
        server = grpc.aio.server()
        handlers = {name: self._handler(name) for name in METHODS}
        name = SERVICE.strip("/")
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            await server.stop(None)

    def _handler(self, name: str) -> Any:
        request, answer = METHODS[name]
        task = pb.Task(id="t", context_id="c", status=pb.TaskStatus(state=pb.TASK_STATE_COMPLETED))
        made = task if answer is pb.Task else answer(task=task) if name.startswith(("Send", "Subscribe")) else answer()

        def keep(data: bytes, context: Any) -> None:
            metadata = [(key, value) for key, value in context.invocation_metadata() if key.startswith("a2a-")]
            assert len({key for key, _ in metadata}) == len(metadata), "one entry for each parameter"
            self.calls.append((name, request.FromString(data), dict(metadata)))

        async def once(data: bytes, context: Any) -> bytes:
            keep(data, context)
            return bytes(made.SerializeToString())

        async def stream(data: bytes, context: Any) -> None:
            keep(data, context)
            await context.write(made.SerializeToString())

        if name in STREAMING:
            return grpc.unary_stream_rpc_method_handler(stream)
        return grpc.unary_unary_rpc_method_handler(once)


def client_of(address: str, **options: Any) -> GrpcTransport:
    timeouts = Timeouts(answer_s=5, connect_s=5)
    return GrpcTransport(address, version="1.0", timeouts=timeouts, max_response_bytes=1 << 20, **options)


SAID: Final = SendMessageRequest(Message("m", Role.USER, (Part("hi"),)))


@pytest.mark.requirement(
    "methods.grpc", "grpc.service", "grpc.params-in-metadata", "grpc.comma-separated", "grpc.streaming"
)
async def test_client_calls_the_method_of_each_operation_with_its_parameters_in_metadata(loop: Any) -> None:
    recorder = Recorder()
    async with recorder.serving() as address:
        client = client_of(address)
        extensions = ("urn:a", "urn:b")
        task = await client.send(SAID, extensions)
        assert isinstance(task, Task)
        await client.get(GetTaskRequest("t"), extensions)
        await client.list(ListTasksRequest(), extensions)
        await client.cancel(CancelTaskRequest("t"), extensions)
        for opening in (SAID, SubscribeToTaskRequest("t")):
            events = await client.open(opening, extensions)
            ((_, event),) = await events.read()
            assert event == task
            await events.close()
        await client.close()
    assert [name for name, _, _ in recorder.calls] == [
        *("SendMessage", "GetTask", "ListTasks", "CancelTask"),
        *STREAMING,
    ]
    for _, _, metadata in recorder.calls:
        assert metadata["a2a-version"] == "1.0"
        assert [uri.strip() for uri in metadata["a2a-extensions"].split(",")] == ["urn:a", "urn:b"]


@by_grpc
@pytest.mark.requirement("codes.grpc")
async def test_client_reads_a_status_as_the_error_that_it_is(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task = await ended(agent, puppet, "COMPLETED")
    client = client_of(agent.by_grpc.address)
    with pytest.raises(UnsupportedOperation):
        await client.open(SubscribeToTaskRequest(task["id"]), ())
    await client.close()


CERTIFICATE: Final = Path(__file__).parents[1] / "client" / "tls" / "this-machine.pem"


@asynccontextmanager
async def encrypted(port: int) -> Any:
    """What stands in front of a server and ends TLS there; gives its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    context.set_alpn_protocols(["h2"])
    relaying: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind_reader, behind_writer = await asyncio.open_connection("127.0.0.1", port)
        for way in (pump(reader, behind_writer), pump(behind_reader, writer)):
            task = asyncio.create_task(way)
            relaying.add(task)
            task.add_done_callback(relaying.discard)

    server = await asyncio.start_server(relay, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in relaying:
            task.cancel()
        await asyncio.gather(*relaying, return_exceptions=True)


@by_grpc
@pytest.mark.requirement("grpc.tls")
async def test_calls_and_streams_go_over_tls_that_ends_in_front_of_the_server(serve: Serve) -> None:
    agent = await serve(hello)
    async with encrypted(int(agent.by_grpc.address.rpartition(":")[2])) as port:
        client = client_of(f"https://127.0.0.1:{port}", verify=str(CERTIFICATE.with_name("authority.pem")))
        task = await client.send(SAID, ())
        assert isinstance(task, Task)
        assert task.text == "Hello, hi!"
        events = await client.open(SAID, ())
        assert await events.read()
        await events.close()
        await client.close()
