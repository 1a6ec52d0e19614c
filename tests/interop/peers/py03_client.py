# mypy: ignore-errors
# (written against a2a-sdk 0.3, while the type checker sees 1.x)
"""The official SDK a2a-sdk 0.3.26 as a caller of the matrix: `python py03_client.py URL BINDING [ROW ...]`."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.client.auth import AuthInterceptor, CredentialService
from a2a.client.errors import A2AClientHTTPError, A2AClientJSONRPCError
from a2a.client.middleware import ClientCallContext
from a2a.types import (
    DataPart,
    FilePart,
    FileWithBytes,
    FileWithUri,
    GetTaskPushNotificationConfigParams,
    Message,
    Part,
    PushNotificationConfig,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TextPart,
)

from tests.interop.peers.rows import Caller, Value, main

READ_LIMIT_S = 30.0
CODES = {
    -32001: "TaskNotFound",
    -32002: "TaskNotCancelable",
    -32004: "UnsupportedOperation",
    -32600: "InvalidRequest",
    -32602: "InvalidParams",
    -32603: "InternalError",
}


class OfficialCaller(Caller):
    def __init__(self, card: Any, streaming: Client, waiting: Client) -> None:
        self.read_card = card
        self.streaming = streaming
        self.waiting = waiting

    async def card(self) -> Value:
        card = self.read_card
        return {
            "name": card.name,
            "description": card.description,
            "streaming": card.capabilities.streaming,
            "skills": [skill.id for skill in card.skills],
        }

    async def send(self, parts: list[Value], *, task_id: str | None = None, context_id: str | None = None) -> Value:
        message = message_of(parts, task_id, context_id)
        (answer,) = [event async for event in self.waiting.send_message(message)]
        return neutral(answer)

    async def stream(self, parts: list[Value]) -> AsyncGenerator[Value, None]:
        async for event in self.streaming.send_message(message_of(parts)):
            yield neutral(event)

    async def subscribe(self, task_id: str) -> AsyncGenerator[Value, None]:
        async for event in self.streaming.resubscribe(TaskIdParams(id=task_id)):
            yield neutral(event)

    async def get(self, task_id: str) -> Value:
        return neutral(await self.waiting.get_task(TaskQueryParams(id=task_id)))

    async def cancel(self, task_id: str) -> Value:
        return neutral(await self.waiting.cancel_task(TaskIdParams(id=task_id)))

    async def set_webhook(self, task_id: str, id: str, url: str, token: str) -> str:
        config = PushNotificationConfig(id=id, url=url, token=token)
        made = await self.waiting.set_task_callback(
            TaskPushNotificationConfig(task_id=task_id, push_notification_config=config)
        )
        return made.push_notification_config.url

    async def get_webhook(self, task_id: str, id: str) -> str:
        params = GetTaskPushNotificationConfigParams(id=task_id, push_notification_config_id=id)
        return (await self.waiting.get_task_callback(params)).push_notification_config.url

    def name_of(self, error: Exception) -> str | None:
        if isinstance(error, A2AClientJSONRPCError):
            return CODES.get(error.error.code)
        if isinstance(error, A2AClientHTTPError):
            return f"HTTP {error.status_code}"
        if isinstance(error, grpc.aio.AioRpcError):
            return f"gRPC {error.code().name}"
        return None


def message_of(parts: list[Value], task_id: str | None = None, context_id: str | None = None) -> Message:
    return Message(
        message_id=str(uuid.uuid4()),
        role=Role.user,
        parts=[part_of(part) for part in parts],
        task_id=task_id,
        context_id=context_id,
    )


def part_of(given: Value) -> Part:
    if "text" in given:
        return Part(root=TextPart(text=given["text"]))
    if "data" in given:
        return Part(root=DataPart(data=given["data"]))
    names = {"name": given.get("name"), "mime_type": given.get("type")}
    if "raw" in given:
        return Part(root=FilePart(file=FileWithBytes(bytes=given["raw"], **names)))
    return Part(root=FilePart(file=FileWithUri(uri=given["url"], **names)))


def neutral(event: Any) -> Value:
    """An event; the client gives a pair of the task as it is and what has changed."""
    if isinstance(event, tuple):
        event = event[1] or event[0]
    if isinstance(event, Message):
        return {"kind": "message", "role": f"ROLE_{event.role.value.upper()}", "parts": shown(event.parts)}
    if isinstance(event, TaskArtifactUpdateEvent):
        ids = {"id": event.task_id, "context": event.context_id}
        return {"kind": "artifact", **ids, "name": event.artifact.name, "parts": shown(event.artifact.parts)}
    if isinstance(event, Task):
        artifacts = {one.name: shown(one.parts) for one in event.artifacts or []}
        ids = {"id": event.id, "context": event.context_id}
        return {"kind": "task", **ids, **status_of(event.status), "artifacts": artifacts}
    return {"kind": "status", "id": event.task_id, "context": event.context_id, **status_of(event.status)}


def status_of(status: Any) -> Value:
    parts = status.message.parts if status.message else []
    words = "\n".join(part["text"] for part in shown(parts))
    return {"state": status.state.value.upper().replace("-", "_"), "words": words}


def shown(parts: list[Part]) -> list[Value]:
    found: list[Value] = []
    for part in parts:
        root = part.root
        if isinstance(root, TextPart):
            found.append({"text": root.text})
        elif isinstance(root, DataPart):
            found.append({"data": root.data})
        else:
            names = {"name": root.file.name or None, "type": root.file.mime_type or None}
            is_raw = isinstance(root.file, FileWithBytes)
            found.append({**({"raw": root.file.bytes} if is_raw else {"url": root.file.uri}), **names})
    return found


class Wallet(CredentialService):
    """The token of the environment, for whichever scheme the card has."""

    async def get_credentials(self, security_scheme_name: str, context: ClientCallContext | None) -> str | None:
        return os.environ.get("INTEROP_TOKEN")


@asynccontextmanager
async def connect(url: str, binding: str) -> AsyncIterator[Caller]:
    async with httpx.AsyncClient(timeout=READ_LIMIT_S) as http:
        card = await A2ACardResolver(http, url).get_agent_card()

        def client(streaming: bool) -> Client:
            config = ClientConfig(
                streaming=streaming,
                httpx_client=http,
                grpc_channel_factory=grpc.aio.insecure_channel,
                supported_transports=[binding],
                use_client_preference=True,
            )
            return ClientFactory(config).create(card, interceptors=[AuthInterceptor(Wallet())])

        yield OfficialCaller(card, client(streaming=True), client(streaming=False))


if __name__ == "__main__":
    main(connect)
