"""The dialects before 1.0 at the same endpoint: requests and answers pass through translations of the suite's own.

What a test asks in the words of 1.0 is asked in those of the dialect. An operation that it does not have, such as
listing tasks, is asked in 1.0: a task begun in one dialect is there in every other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any, ClassVar, Final
from urllib.parse import quote

import grpc
from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb
from a2a.compat.v0_3 import a2a_v0_3_pb2_grpc

from tests.behaviour import in_01, in_03, raw_http
from tests.behaviour.harness import VERSION, Json, Stream, Transport, state_of
from tests.behaviour.over_grpc import Grpc, GrpcStream, json_of, message_of, metadata_of, refusal_of
from tests.behaviour.over_http import EventStream, rpc_result
from tests.behaviour.refusals import Refused
from tests.behaviour.shapes import TERMINAL

__all__ = ["Grpc03", "JsonRpc01", "JsonRpc03", "Rest03"]

_ids = count(1)
_CONFIGS: Final = ("CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig")

Read = Callable[[Json], tuple[Json, bool]]
"""Reads an event of a dialect: as 1.0 has it, and whether it says that it is the last one."""


class _Translated:
    """Reads the events of a dialect, and holds `final` against what comes."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._final = False

    def __call__(self, got: tuple[Json, int | None] | None) -> tuple[Json, int | None] | None:
        if got is None:
            return None
        assert not self._final, f"the stream went on behind its final event: {got}"
        event, self._final = self._read(got[0])
        ended = "statusUpdate" in event and f"TASK_STATE_{state_of(event)}" in TERMINAL
        assert self._final or not ended, f"an end is final: {got}"
        return event, got[1]


class _OldStream(EventStream):
    def __init__(
        self,
        response: raw_http.Response,
        rpc_id: int | None,
        read: Read,
        error_in_10: Callable[[Json], Json] = lambda given: given,
    ) -> None:
        super().__init__(response, rpc_id, error_in_10)
        self._translated = _Translated(read)

    async def _next(self) -> tuple[Json, int | None] | None:
        return self._translated(await super()._next())

    def _refusal_in(self, value: Json) -> Refused | None:
        return rest_refusal(value, None, in_stream=True) if "code" in value else None


class _Old(Transport):
    """What the dialects have in common."""

    version: ClassVar[str]

    async def _in_10(self, operation: str, params: Json, service: Mapping[str, str]) -> Json:
        return await self.over("direct").call(operation, params, service)

    def _headers(self, service: Mapping[str, str], last_event_id: int | None = None) -> list[tuple[str, str]]:
        """As peers of the time send them: a version only where it is asked for, extensions under their first name."""
        headers = [*self.credentials.items()]
        headers += [("X-A2A-Extensions", value) for name, value in service.items() if name == "A2A-Extensions"]
        if "A2A-Version" in service and service["A2A-Version"] != VERSION["A2A-Version"]:
            headers.append(("A2A-Version", service["A2A-Version"]))
        return headers if last_event_id is None else [*headers, ("Last-Event-ID", str(last_event_id))]


class _OldJsonRpc(_Old):
    methods: ClassVar[dict[str, str]]

    def _params(self, operation: str, params: Json) -> Json:
        raise NotImplementedError

    def _result(self, operation: str, result: Any) -> Json:
        raise NotImplementedError

    def _reader(self) -> Read:
        raise NotImplementedError

    def _error_in_10(self, answer: Json) -> Json:
        """A response with its error, if it is one, as 1.0 has it."""
        return answer

    async def call(self, operation: str, params: Json, service: Mapping[str, str] = VERSION) -> Json:
        if operation not in self.methods:
            return await self._in_10(operation, params, service)
        rpc_id, response = await self._request(operation, params, self._headers(service))
        body = await response.body()
        assert response.header("content-type") == "application/json"
        return self._result(operation, rpc_result(self._error_in_10(json.loads(body)), rpc_id, response))

    async def open(
        self, operation: str, params: Json, service: Mapping[str, str] = VERSION, last_event_id: int | None = None
    ) -> Stream:
        rpc_id, response = await self._request(operation, params, self._headers(service, last_event_id))
        # Clients of the time read nothing but an event stream: an error is the one event of one whose length is known.
        kind = response.header("content-type")
        if kind == "text/event-stream" and not response.header("content-length"):
            return _OldStream(response, rpc_id, self._reader(), self._error_in_10)
        body = (await response.body()).decode()
        assert kind == "text/event-stream"
        assert body.startswith("data: ")
        assert body.endswith("\n\n")
        rpc_result(self._error_in_10(json.loads(body.removeprefix("data: "))), rpc_id, response)
        raise AssertionError(f"{operation} has to answer with a stream or an error")

    async def _request(
        self, operation: str, params: Json, headers: Iterable[tuple[str, str]]
    ) -> tuple[int, raw_http.Response]:
        rpc_id = next(_ids)
        call = {"jsonrpc": "2.0", "id": rpc_id, "method": self.methods[operation]}
        body = json.dumps({**call, "params": self._params(operation, params)}).encode()
        sent = [("Content-Type", "application/json"), *headers]
        return rpc_id, await raw_http.request(self.port, "POST", f"{self.root}{self.agent}/", sent, body)


class JsonRpc03(_OldJsonRpc):
    """0.3 over JSON-RPC."""

    name = "jsonrpc-0.3"
    version = "0.3"
    methods: ClassVar = {
        "SendMessage": "message/send",
        "SendStreamingMessage": "message/stream",
        "GetTask": "tasks/get",
        "CancelTask": "tasks/cancel",
        "SubscribeToTask": "tasks/resubscribe",
        "CreateTaskPushNotificationConfig": "tasks/pushNotificationConfig/set",
        "GetTaskPushNotificationConfig": "tasks/pushNotificationConfig/get",
        "ListTaskPushNotificationConfigs": "tasks/pushNotificationConfig/list",
        "DeleteTaskPushNotificationConfig": "tasks/pushNotificationConfig/delete",
        "GetExtendedAgentCard": "agent/getAuthenticatedExtendedCard",
    }

    def _params(self, operation: str, params: Json) -> Json:
        if operation in ("SendMessage", "SendStreamingMessage"):
            return in_03.SCHEMA.send(params)
        if operation == "CreateTaskPushNotificationConfig":
            return {"taskId": params["taskId"], "pushNotificationConfig": in_03.push(params)}
        if "PushNotification" in operation:
            config = {"pushNotificationConfigId": params["id"]} if "id" in params else {}
            return {"id": params["taskId"], **config}
        return params

    def _result(self, operation: str, result: Any) -> Json:
        if operation == "SendMessage":
            return in_03.SCHEMA.answer(result)
        if operation == "DeleteTaskPushNotificationConfig":
            assert result is None
            return {}
        if operation == "ListTaskPushNotificationConfigs":
            return {"configs": [in_03.task_config_to_10(config) for config in result]}
        return in_03.task_config_to_10(result) if operation in _CONFIGS else in_03.SCHEMA.task(result)

    def _reader(self) -> Read:
        return in_03.SCHEMA.event


class JsonRpc01(_OldJsonRpc):
    """0.1 over JSON-RPC."""

    name = "jsonrpc-0.1"
    version = "0.1"
    numbered = False
    methods: ClassVar = {
        "SendMessage": "tasks/send",
        "SendStreamingMessage": "tasks/sendSubscribe",
        "GetTask": "tasks/get",
        "CancelTask": "tasks/cancel",
        "SubscribeToTask": "tasks/resubscribe",
        "CreateTaskPushNotificationConfig": "tasks/pushNotification/set",
        "GetTaskPushNotificationConfig": "tasks/pushNotification/get",
    }

    def _params(self, operation: str, params: Json) -> Json:
        if operation in ("SendMessage", "SendStreamingMessage"):
            return in_01.send(params)
        if operation == "CreateTaskPushNotificationConfig":
            return {"id": params["taskId"], "pushNotificationConfig": in_03.push(params)}
        if operation == "GetTaskPushNotificationConfig":
            return {"id": params["taskId"]}
        return params

    def _result(self, operation: str, result: Any) -> Json:
        if operation == "SendMessage":
            return in_01.answer(result)
        return in_01.task_config(result) if operation in _CONFIGS else in_01.task(result)

    def _reader(self) -> Read:
        return in_01.Events().read

    def _error_in_10(self, answer: Json) -> Json:
        if "error" not in answer:
            return answer
        error = dict(answer["error"])
        if isinstance(error["data"], dict):
            ((name, error["data"]),) = error["data"].items()
            assert name == "details"
        else:  # nothing tells 0.1 from 0.3 where both have the method, and the task could not be read
            assert error["code"] in (-32001, -32004, -32008, -32603)
        # 0.1 has one error for all that cannot be done to a task that has ended.
        if (error["code"], error["data"][0]["reason"]) == (-32002, "UNSUPPORTED_OPERATION"):
            error["code"] = -32004
        return {**answer, "error": error}


_STATUS: Final = {
    -32000: 401,
    -32010: 403,
    -32001: 404,
    -32002: 409,
    -32003: 501,
    -32004: 501,
    -32005: 415,
    -32006: 502,
    -32007: 404,
    -32008: 400,
    -32602: 400,
    -32603: 500,
}
"""HTTP status of an error: 0.3 says nothing of it, its official packages do."""
_PASSING: Final = {"OVERLOADED": 503, "UNAVAILABLE": 503, "RATE_LIMITED": 429}


def rest_refusal(answer: Json, status: int | None, *, in_stream: bool = False) -> Refused:
    """An error of 0.3 over REST."""
    given = dict(answer)
    code, message, details = given.pop("code"), given.pop("message"), given.pop("data")
    assert isinstance(given.pop("type"), str)
    in_03.left_over(given, "an error")
    refusal = Refused(message, code=code, details=details, in_stream=in_stream)
    assert status in (None, _PASSING.get(refusal.reason or "", _STATUS[code]))
    return refusal


class Rest03(_Old):
    """0.3 over REST."""

    name = "rest-0.3"
    version = "0.3"
    paths: ClassVar = {
        "SendMessage": ("POST", "/v1/message:send"),
        "SendStreamingMessage": ("POST", "/v1/message:stream"),
        "GetTask": ("GET", "/v1/tasks/{id}"),
        "CancelTask": ("POST", "/v1/tasks/{id}:cancel"),
        "SubscribeToTask": ("POST", "/v1/tasks/{id}:subscribe"),
        "CreateTaskPushNotificationConfig": ("POST", "/v1/tasks/{taskId}/pushNotificationConfigs"),
        "GetTaskPushNotificationConfig": ("GET", "/v1/tasks/{taskId}/pushNotificationConfigs/{id}"),
        "ListTaskPushNotificationConfigs": ("GET", "/v1/tasks/{taskId}/pushNotificationConfigs"),
        "DeleteTaskPushNotificationConfig": ("DELETE", "/v1/tasks/{taskId}/pushNotificationConfigs/{id}"),
        "GetExtendedAgentCard": ("GET", "/v1/card"),
    }

    async def call(self, operation: str, params: Json, service: Mapping[str, str] = VERSION) -> Json:
        if operation not in self.paths:
            return await self._in_10(operation, params, service)
        response = await self._request(operation, params, self._headers(service))
        answer = json.loads(await response.body())
        assert response.header("content-type") == "application/json"
        if response.status != 200:
            raise rest_refusal(answer, response.status)
        return _of_protobuf(in_03.PROTOBUF, operation, answer)

    async def open(
        self, operation: str, params: Json, service: Mapping[str, str] = VERSION, last_event_id: int | None = None
    ) -> Stream:
        response = await self._request(operation, params, self._headers(service, last_event_id))
        if response.status != 200:
            raise rest_refusal(json.loads(await response.body()), response.status)
        assert response.header("content-type") == "text/event-stream"
        return _OldStream(response, None, in_03.PROTOBUF.event)

    async def _request(self, operation: str, params: Json, headers: Iterable[tuple[str, str]]) -> raw_http.Response:
        verb, path = self.paths[operation]
        left = dict(params)
        for name in ("id", "taskId"):
            if f"{{{name}}}" in path:
                path = path.replace(f"{{{name}}}", quote(str(left.pop(name)), safe=""))
        target = self.root + self.agent + path
        body: Json | None = None
        if verb == "POST":
            body = left
            if operation in ("SendMessage", "SendStreamingMessage"):
                body = in_03.PROTOBUF.send(left)
            elif operation == "CreateTaskPushNotificationConfig":
                body = {"configId": left.get("id", ""), "config": {"pushNotificationConfig": in_03.push(left)}}
        elif left:
            assert list(left) == ["historyLength"]
            target += f"?historyLength={left['historyLength']}"
        sent = [("Content-Type", "application/json"), *headers] if body is not None else headers
        data = None if body is None else json.dumps(body).encode()
        return await raw_http.request(self.port, verb, target, sent, data)


def _of_protobuf(form: in_03.Form, operation: str, answer: Json) -> Json:
    """An answer by the protobuf definition, as 1.0 has it."""
    if operation == "SendMessage":
        return form.answer(answer)
    if operation == "DeleteTaskPushNotificationConfig":
        return answer
    if operation == "ListTaskPushNotificationConfigs":
        configs = [in_03.named_config_to_10(config) for config in answer.get("configs", ())]
        return {**answer, "configs": configs}
    return in_03.named_config_to_10(answer) if operation in _CONFIGS else form.task(answer)


_REQUESTS: Final[dict[str, tuple[str, Any]]] = {
    "SendMessage": ("SendMessage", pb.SendMessageRequest),
    "SendStreamingMessage": ("SendStreamingMessage", pb.SendMessageRequest),
    "GetTask": ("GetTask", pb.GetTaskRequest),
    "CancelTask": ("CancelTask", pb.CancelTaskRequest),
    "SubscribeToTask": ("TaskSubscription", pb.TaskSubscriptionRequest),
    "CreateTaskPushNotificationConfig": (
        "CreateTaskPushNotificationConfig",
        pb.CreateTaskPushNotificationConfigRequest,
    ),
    "GetTaskPushNotificationConfig": ("GetTaskPushNotificationConfig", pb.GetTaskPushNotificationConfigRequest),
    "ListTaskPushNotificationConfigs": ("ListTaskPushNotificationConfig", pb.ListTaskPushNotificationConfigRequest),
    "DeleteTaskPushNotificationConfig": (
        "DeleteTaskPushNotificationConfig",
        pb.DeleteTaskPushNotificationConfigRequest,
    ),
}
_ABSENT: Final = ("PushNotificationNotSupportedError", "UnsupportedOperationError")


def _refusal_of_03(error: grpc.aio.AioRpcError) -> Refused:
    """An error of 0.3 over gRPC: its name stands before its sentence, and what is not there is not implemented."""
    refusal = refusal_of(error)
    if refusal.rpc_status == "UNAVAILABLE":
        return refusal
    name, _, refusal.message = refusal.message.partition(": ")
    assert name.endswith("Error")
    if name in _ABSENT:
        assert refusal.rpc_status == "UNIMPLEMENTED"
        refusal.rpc_status = None
    return refusal


class _OldGrpcStream(GrpcStream):
    def __init__(self, call: Any) -> None:
        super().__init__(call, _refusal_of_03)
        self._translated = _Translated(in_03.PYTHON.event)

    async def _next(self) -> tuple[Json, int | None] | None:
        return self._translated(await super()._next())


class Grpc03(Grpc):
    """0.3 over gRPC: resources have names."""

    name = "grpc-0.3"

    async def call(self, operation: str, params: Json, service: Mapping[str, str] = VERSION) -> Json:
        if operation not in _REQUESTS:
            return await self.over("direct").call(operation, params, service)
        try:
            answer = json_of(await self._call(operation, params, service))
        except grpc.aio.AioRpcError as error:
            raise _refusal_of_03(error) from error
        return _of_protobuf(in_03.PYTHON, operation, answer)

    async def open(
        self, operation: str, params: Json, service: Mapping[str, str] = VERSION, last_event_id: int | None = None
    ) -> Stream:
        assert last_event_id is None, "gRPC numbers no events"
        stream = _OldGrpcStream(self._call(operation, params, service))
        await stream.opened()
        return stream

    def _call(self, operation: str, params: Json, service: Mapping[str, str]) -> Any:
        method, kind = _REQUESTS[operation]
        request = message_of(self._request(operation, params), kind)
        extensions = {"X-A2A-Extensions": service["A2A-Extensions"]} if "A2A-Extensions" in service else {}
        stub = a2a_v0_3_pb2_grpc.A2AServiceStub(self.by_grpc.channel)  # type: ignore[no-untyped-call]
        return getattr(stub, method)(request, metadata=metadata_of({**self.credentials, **extensions}))

    def _request(self, operation: str, params: Json) -> Json:
        if operation in ("SendMessage", "SendStreamingMessage"):
            return in_03.PYTHON.send(params)
        left = dict(params)
        if "PushNotification" not in operation:
            return {"name": f"tasks/{left.pop('id')}", **left}
        task = f"tasks/{left.pop('taskId')}"
        if operation.startswith("Create"):
            id_ = left.get("id", "")
            return {"parent": task, "configId": id_, "config": {"pushNotificationConfig": in_03.push(left)}}
        if operation.startswith("List"):
            return {"parent": task}
        return {"name": f"{task}/pushNotificationConfigs/{left['id']}"}
