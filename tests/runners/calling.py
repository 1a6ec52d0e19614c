"""The official SDK's client, and what it saw in a form in which two servers can be compared."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.types import Message, Part, Role, SendMessageRequest, StreamResponse, Task, TaskState
from google.protobuf.json_format import MessageToDict

T = TypeVar("T")

BINDINGS = ("JSONRPC", "HTTP+JSON")
LIMIT_S = 60.0


class Caller:
    """The SDK's clients for one agent and binding."""

    def __init__(self, streaming: Client, waiting: Client) -> None:
        self.streaming = streaming
        self.waiting = waiting

    async def send(self, *content: str | Part, **fields: Any) -> Any:
        """Send without streaming: the Task or Message in the answer."""
        (answer,) = [event async for event in self.waiting.send_message(request(*content, **fields))]
        return answer.task if answer.HasField("task") else answer.message

    def stream(self, *content: str | Part, **fields: Any) -> AsyncIterator[StreamResponse]:
        return self.streaming.send_message(request(*content, **fields))


@contextlib.asynccontextmanager
async def calling(url: str, binding: str) -> AsyncIterator[Caller]:
    async with httpx.AsyncClient(timeout=LIMIT_S, trust_env=False) as http:
        card = await A2ACardResolver(http, url).get_agent_card()

        def client(streaming: bool) -> Client:
            config = ClientConfig(streaming, False, http, None, [binding], use_client_preference=True)
            return ClientFactory(config).create(card)

        yield Caller(client(True), client(False))


def run(url: str, binding: str, scenario: Callable[[Caller], Awaitable[T]]) -> T:
    """What `scenario` gives, within a limit."""

    async def limited() -> T:
        async with asyncio.timeout(LIMIT_S), calling(url, binding) as caller:
            return await scenario(caller)

    return asyncio.run(limited())


def request(*content: str | Part, **fields: Any) -> SendMessageRequest:
    parts = [Part(text=item) if isinstance(item, str) else item for item in content]
    metadata = fields.pop("request_metadata", None)
    configuration = fields.pop("configuration", None)
    message = Message(message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=parts, **fields)
    return SendMessageRequest(message=message, metadata=metadata, configuration=configuration)


def state(task: Task) -> str:
    return str(TaskState.Name(task.status.state)).removeprefix("TASK_STATE_")


def words(task: Task) -> str:
    return "\n".join(part.text for part in task.status.message.parts)


def plain(event: StreamResponse) -> Any:
    """An event without ids and times that differ from call to call."""
    return _plain(MessageToDict(event))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        left_out = ("id", "taskId", "contextId", "messageId", "timestamp")
        return {key: _plain(item) for key, item in value.items() if key not in left_out}
    return [_plain(item) for item in value] if isinstance(value, list) else value
