"""Each operation of each dialect as its callers write it, and what comes back as it stands: nothing is translated."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import grpc

from tests.behaviour import over_grpc, over_http, over_older, raw_http
from tests.behaviour.harness import Json, Transport, message
from tests.behaviour.raw_http import Response

__all__ = ["OPERATIONS", "Answer", "ask", "fetch", "operations_of"]

OPERATIONS: Final = (
    "SendMessage",
    "SendStreamingMessage",
    "GetTask",
    "ListTasks",
    "CancelTask",
    "SubscribeToTask",
    "CreateTaskPushNotificationConfig",
    "GetTaskPushNotificationConfig",
    "ListTaskPushNotificationConfigs",
    "DeleteTaskPushNotificationConfig",
    "GetExtendedAgentCard",
)
_STREAMS: Final = ("SendStreamingMessage", "SubscribeToTask")


class Answer(NamedTuple):
    """What came back. `status`: of HTTP, or the name of the code of gRPC ("OK")."""

    status: int | str
    headers: dict[str, str]  # of HTTP by lower-case name, those of one name joined by commas; of gRPC the trailers
    text: str  # the body, or of gRPC the sentence; of a stream "" when it has opened

    def without(self, *ids: str) -> tuple[int | str, str]:
        """What it says but for these ids, and the times and ids that no two answers share."""
        text = self.text
        for id_ in ids:
            text = text.replace(id_, "ID")
        return self.status, re.sub(r'"id":\d+|"timestamp":"[^"]*"', "", text)

    @property
    def refused(self) -> bool:
        return self.status not in (200, "OK") or '"error":' in self.text


def operations_of(transport: str) -> Sequence[str]:
    """The operations that a dialect has of its own."""
    kind = Transport.kinds[transport]
    table: Any = {
        over_older.Grpc03: over_older._REQUESTS,
        over_older.Rest03: over_older.Rest03.paths,
        over_older.JsonRpc03: over_older.JsonRpc03.methods,
        over_older.JsonRpc01: over_older.JsonRpc01.methods,
    }.get(kind, OPERATIONS)
    return [operation for operation in OPERATIONS if operation in table]


def params_of(operation: str, task_id: str, config_id: str, fields: Json) -> Json:
    """The request of an operation on a task, in the names of 1.0."""
    if operation in ("SendMessage", "SendStreamingMessage"):
        own = {name: fields[name] for name in ("contextId", "referenceTaskIds") if name in fields}
        left = {name: value for name, value in fields.items() if name not in own}
        return {"message": message("go on", **({"taskId": task_id} if task_id else {}), **own), **left}
    if operation in ("ListTasks", "GetExtendedAgentCard"):
        return fields
    if "PushNotification" not in operation:
        return {"id": task_id, **fields}
    params = {"taskId": task_id, **fields}
    if operation.startswith("Create"):
        return {"url": "http://127.0.0.1:9/never-called", **params}
    return params if operation.startswith("List") else {**params, "id": config_id}


async def ask(
    agent: Transport,
    operation: str,
    task_id: str = "some-task",
    config_id: str = "some-config",
    *,
    headers: Sequence[tuple[str, str]] = (),
    **fields: Any,
) -> Answer:
    """Call an operation on a task; a stream is closed as soon as it has opened.

    `headers` are added to the agent's credentials. Requests of 1.0 say so.
    """
    params = params_of(operation, task_id, config_id, fields)
    if isinstance(agent, over_grpc.Grpc):
        return await _ask_grpc(agent, operation, params, headers)
    if isinstance(agent, over_http.JsonRpc):
        _, response = await agent._request(operation, params, [("A2A-Version", "1.0"), *headers])
    elif isinstance(agent, over_http.Rest):
        response = await agent._request(operation, params, [("A2A-Version", "1.0"), *headers])
    elif isinstance(agent, over_older._OldJsonRpc):
        _, response = await agent._request(operation, params, [*agent._headers({}), *headers])
    else:
        assert isinstance(agent, over_older.Rest03)
        response = await agent._request(operation, params, [*agent._headers({}), *headers])
    return await answer_of(response)


async def fetch(
    agent: Transport, verb: str, path: str, headers: Sequence[tuple[str, str]] = (), body: bytes | None = None
) -> Answer:
    """A request to a path below the app, with the agent's credentials and these headers alone."""
    sent = [*agent.credentials.items(), *headers]
    response = await raw_http.request(agent.port, verb, f"{agent.root}{path}", sent, body)
    if verb == "HEAD" or response.status in (204, 304):
        response.close()
        return Answer(response.status, dict(response.headers), "")
    return await answer_of(response)


async def answer_of(response: Response) -> Answer:
    given: dict[str, str] = {}
    for name, value in response.headers:
        given[name] = f"{given[name]}, {value}" if name in given else value
    if "content-length" not in given and given.get("content-type") == "text/event-stream":
        response.close()
        return Answer(response.status, given, "")
    return Answer(response.status, given, (await response.body()).decode())


async def _ask_grpc(agent: over_grpc.Grpc, operation: str, params: Json, headers: Sequence[tuple[str, str]]) -> Answer:
    more = {name.lower(): value for name, value in headers}
    service = more if isinstance(agent, over_older.Grpc03) else {"A2A-Version": "1.0", **more}
    showing = agent.showing({**agent.credentials, **more})
    call = showing._call(operation, params, service)
    try:
        if operation in _STREAMS:
            opened = over_grpc.GrpcStream(call, over_grpc.refusal_of)
            first = opened._first
            assert first is not None
            await first
            opened.close()
            return Answer("OK", {}, "")
        return Answer("OK", {}, str(await call))
    except grpc.aio.AioRpcError as error:
        trailers = {key: str(value) for key, value in error.trailing_metadata() or ()}
        return Answer(error.code().name, trailers, error.details() or "")
