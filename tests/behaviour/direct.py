"""The service in this process, with requests and answers that pass through JSON at the edge."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from typing import Self

from tests.behaviour.harness import VERSION, Json, Stream, Transport, checked
from tests.behaviour.refusals import BAD_REQUEST, ERROR_INFO, Refused
from tieline import Caller
from tieline.card import AgentInterface
from tieline.engine.cursor import Cursor
from tieline.errors import A2AError
from tieline.types import encode
from tieline.wire.methods import METHODS
from tieline.wire.v1 import V1

__all__ = ["Direct"]


class Direct(Transport):
    """The service in this process; requests and answers pass through JSON at the edge."""

    name = "direct"
    principal = ""  # who calls, as a server that authenticates would have found out

    def as_principal(self, principal: str) -> Self:
        """The same agent called by somebody else."""
        other = self._beside(type(self), self.agent)
        other.principal = principal
        return other

    async def call(self, operation: str, params: Json, service: Mapping[str, str] = VERSION) -> Json:
        called = self.app.services[self.agent]
        try:
            request = V1.read_params(METHODS[operation], json.dumps(params).encode())
            caller = self._caller(service)
            if operation == "SendMessage":
                answer = V1.encode_answer(await called.send_message(request, caller))
            elif operation == "GetTask":
                answer = (await called.get_task(request, caller)).json
            elif operation == "ListTasks":
                answer = encode(await called.list_tasks(request, caller))
            elif operation == "CancelTask":
                answer = (await called.cancel_task(request, caller)).json
            elif operation == "GetExtendedAgentCard":
                answer = encode(self.app.cards[self.agent].extended_card("https://agents.example", caller))
            elif operation == "CreateTaskPushNotificationConfig":
                answer = encode(await called.create_push_notification_config(request, caller))
            elif operation == "GetTaskPushNotificationConfig":
                answer = encode(await called.get_push_notification_config(request, caller))
            elif operation == "ListTaskPushNotificationConfigs":
                answer = encode(await called.list_push_notification_configs(request, caller))
            else:
                assert operation == "DeleteTaskPushNotificationConfig"
                await called.delete_push_notification_config(request, caller)
                answer = b"{}"
        except A2AError as error:
            raise _refused_directly(error) from error
        result: Json = json.loads(answer)
        return result

    async def open(
        self, operation: str, params: Json, service: Mapping[str, str] = VERSION, last_event_id: int | None = None
    ) -> Stream:
        called = self.app.services[self.agent]
        try:
            request = V1.read_params(METHODS[operation], json.dumps(params).encode())
            caller = self._caller(service)
            if operation == "SendStreamingMessage":
                return _CursorStream(await called.send_streaming_message(request, caller))
            return _CursorStream(await called.subscribe_to_task(request, caller, last_event_id=last_event_id))
        except A2AError as error:
            raise _refused_directly(error) from error

    async def card(self) -> Json:
        """The card that the agent gives to who mounts it."""
        interface = AgentInterface("https://agents.example/", "JSONRPC", "1.0")
        return checked(
            json.loads(encode(self.app.agents[self.agent].card([interface], push=self.app.push is not None))),
            "AgentCard",
        )

    def _caller(self, service: Mapping[str, str]) -> Caller:
        named = service.get("A2A-Extensions", "")
        extensions = dict.fromkeys(uri.strip() for uri in named.split(",") if uri.strip())
        return Caller(self.principal, extensions=tuple(extensions))


class _CursorStream(Stream):
    def __init__(self, cursor: Cursor) -> None:
        super().__init__()
        self._cursor = cursor
        self._ready: deque[tuple[Json, int | None]] = deque()

    async def _next(self) -> tuple[Json, int | None] | None:
        cursor = self._cursor
        while not self._ready:
            first, events = cursor.take()
            if events:
                self._ready += [(json.loads(e.json), first + i if first else None) for i, e in enumerate(events)]
            elif cursor.ended:
                failure = cursor.failure
                cursor.close()
                if failure is not None:
                    raise _refused_directly(failure, in_stream=True)
                return None
            else:
                await cursor.wait()
        return self._ready.popleft()

    def close(self) -> None:
        self._cursor.close()


def _refused_directly(error: A2AError, *, in_stream: bool = False) -> Refused:
    info: Json = {"@type": ERROR_INFO, "reason": error.reason, "metadata": error.metadata}
    violations = [{"field": v.field, "description": v.description} for v in error.violations]
    details = [info]
    if violations:
        details.append({"@type": BAD_REQUEST, "fieldViolations": violations})
    return Refused(
        error.message, code=error.rpc_code, rpc_status=error.grpc_status, details=details, in_stream=in_stream
    )
