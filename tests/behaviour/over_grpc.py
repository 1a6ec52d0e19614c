"""gRPC over a real socket, by the stubs of the official package; protobuf's own JSON stands for the messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import grpc
from a2a.types import a2a_pb2 as pb
from a2a.types import a2a_pb2_grpc
from google.protobuf import json_format
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from tests.behaviour.harness import VERSION, Json, Stream, Transport
from tests.behaviour.refusals import Refused

__all__ = ["Grpc", "GrpcStream", "json_of", "message_of", "metadata_of", "refusal_of"]

_DETAILS: Final = "grpc-status-details-bin"
_SILENT_S: Final = 0.05
"""A stream that has neither said anything nor been refused in this time is taken to be open."""

_REQUESTS: Final[dict[str, Any]] = {
    "SendMessage": pb.SendMessageRequest,
    "SendStreamingMessage": pb.SendMessageRequest,
    "GetTask": pb.GetTaskRequest,
    "ListTasks": pb.ListTasksRequest,
    "CancelTask": pb.CancelTaskRequest,
    "SubscribeToTask": pb.SubscribeToTaskRequest,
    "CreateTaskPushNotificationConfig": pb.TaskPushNotificationConfig,
    "GetTaskPushNotificationConfig": pb.GetTaskPushNotificationConfigRequest,
    "ListTaskPushNotificationConfigs": pb.ListTaskPushNotificationConfigsRequest,
    "DeleteTaskPushNotificationConfig": pb.DeleteTaskPushNotificationConfigRequest,
    "GetExtendedAgentCard": pb.GetExtendedAgentCardRequest,
}
_EMPTY_PAGE: Final[Json] = {"tasks": [], "nextPageToken": "", "pageSize": 0, "totalSize": 0}
"""What protobuf does not write: in JSON these are required, in protobuf their default is the same as absent."""


def message_of(value: Json, kind: Any) -> Message:
    """A protobuf message of its JSON. What protobuf has no place for is a fault of the test that sends it."""
    try:
        parsed: Message = json_format.ParseDict(value, kind())
    except json_format.ParseError as error:
        raise AssertionError(f"protobuf cannot carry this, the test needs not_over('grpc'): {error}") from error
    return parsed


def json_of(message: Message) -> Json:
    """The JSON of a protobuf message, its times written with milliseconds."""
    value: Json = json_format.MessageToDict(message)
    tasks = value.get("tasks", [value.get("task", value.get("statusUpdate", value))])
    for task in tasks:
        status = task.get("status")
        if isinstance(status, dict) and len(status.get("timestamp", "")) == len("2025-01-01T00:00:00Z"):
            status["timestamp"] = status["timestamp"].replace("Z", ".000Z")
    return value


def _with_doubles(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_doubles(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_doubles(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def metadata_of(service: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Service parameters as metadata (§10.2)."""
    return tuple((name.lower(), value) for name, value in service.items())


def refusal_of(error: grpc.aio.AioRpcError) -> Refused:
    """What a status says (§10.6): its code and sentence, and the google.rpc.Status beside it, which has to agree."""
    packed = [value for key, value in error.trailing_metadata() or () if key == _DETAILS]
    if error.code() is grpc.StatusCode.UNAVAILABLE and not packed:  # the transport's own: there is nobody any more
        return Refused(error.details() or "", rpc_status="UNAVAILABLE")
    assert len(packed) == 1, f"an error has its details in one {_DETAILS}: {error}"
    status = status_pb2.Status.FromString(packed[0])
    assert (status.code, status.message) == (error.code().value[0], error.details())
    assert error_details_pb2.DESCRIPTOR  # the types that details are of
    details = [json_format.MessageToDict(detail) for detail in status.details]
    return Refused(error.details() or "", rpc_status=error.code().name, details=details)


Refusal = Callable[[grpc.aio.AioRpcError], Refused]


class GrpcStream(Stream):
    """The messages of a server-streaming call."""

    def __init__(self, call: Any, refusal: Refusal) -> None:
        super().__init__()
        self._refusal = refusal
        self._call = call
        self._first: asyncio.Future[Any] | None = asyncio.ensure_future(call.read())
        self._ended = False

    async def opened(self) -> None:
        """Wait until the call is answered by a stream. Raises Refused.

        gRPC tells a call that has been refused from a stream that has opened and is silent only by its status.
        """
        assert self._first is not None
        await self._call.initial_metadata()
        await asyncio.wait([self._first], timeout=_SILENT_S)
        if self._first.done() and (error := self._first.exception()) is not None:
            assert isinstance(error, grpc.aio.AioRpcError)
            raise self._refusal(error) from error

    async def _next(self) -> tuple[Json, int | None] | None:
        if self._ended:
            return None
        first, self._first = self._first, None
        try:
            message = await (self._call.read() if first is None else first)
        except grpc.aio.AioRpcError as error:
            self._ended = True
            refusal = self._refusal(error)
            refusal.in_stream = True
            raise refusal from error
        if message is grpc.aio.EOF:
            self._ended = True
            return None
        return json_of(message), None

    def close(self) -> None:
        self._call.cancel()


class Grpc(Transport):
    """gRPC (§10). An agent of several is named by the tenant of the request."""

    name = "grpc"
    numbered = False

    def same(self, one: Any, other: Any) -> bool:
        """Every number of protobuf's JSON is a double."""
        return super().same(_with_doubles(one), _with_doubles(other))

    async def call(self, operation: str, params: Json, service: Mapping[str, str] = VERSION) -> Json:
        try:
            answer = json_of(await self._call(operation, params, service))
        except grpc.aio.AioRpcError as error:
            raise refusal_of(error) from error
        return {**_EMPTY_PAGE, **answer} if operation == "ListTasks" else answer

    async def open(
        self, operation: str, params: Json, service: Mapping[str, str] = VERSION, last_event_id: int | None = None
    ) -> Stream:
        assert last_event_id is None, "gRPC numbers no events"
        stream = GrpcStream(self._call(operation, params, service), refusal_of)
        await stream.opened()
        return stream

    def _call(self, operation: str, params: Json, service: Mapping[str, str]) -> Any:
        if self.agent:
            assert "tenant" not in params
            params = {**params, "tenant": self.agent.removeprefix("/")}
        request = message_of(params, _REQUESTS[operation])
        stub = a2a_pb2_grpc.A2AServiceStub(self.by_grpc.channel)  # type: ignore[no-untyped-call]
        return getattr(stub, operation)(request, metadata=metadata_of({**self.credentials, **service}))
