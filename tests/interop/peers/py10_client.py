"""The official SDK a2a-sdk 1.3.0 as a caller of the matrix: `python py10_client.py URL BINDING [ROW ...]`."""

from __future__ import annotations

import base64
import json
import os
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import httpx
from a2a.client import A2ACardResolver, Client, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.auth import AuthInterceptor, CredentialService
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
)
from a2a.utils.errors import A2AError
from google.protobuf.json_format import MessageToDict, ParseDict

from tests.interop.peers.rows import Caller, Value, main

READ_LIMIT_S = 30.0


class OfficialCaller(Caller):
    def __init__(self, card: AgentCard, streaming: Client, waiting: Client) -> None:
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
        request = request_of(parts, task_id, context_id)
        (answer,) = [event async for event in self.waiting.send_message(request)]
        return neutral(answer)

    async def stream(self, parts: list[Value]) -> AsyncGenerator[Value, None]:
        async for event in self.streaming.send_message(request_of(parts)):
            yield neutral(event)

    async def subscribe(self, task_id: str) -> AsyncGenerator[Value, None]:
        async for event in self.streaming.subscribe(SubscribeToTaskRequest(id=task_id)):
            yield neutral(event)

    async def get(self, task_id: str) -> Value:
        return task_of(await self.waiting.get_task(GetTaskRequest(id=task_id)))

    async def cancel(self, task_id: str) -> Value:
        return task_of(await self.waiting.cancel_task(CancelTaskRequest(id=task_id)))

    async def set_webhook(self, task_id: str, id: str, url: str, token: str) -> str:
        config = TaskPushNotificationConfig(task_id=task_id, id=id, url=url, token=token)
        made = await self.waiting.create_task_push_notification_config(config)
        return str(made.url)

    async def get_webhook(self, task_id: str, id: str) -> str:
        request = GetTaskPushNotificationConfigRequest(task_id=task_id, id=id)
        return str((await self.waiting.get_task_push_notification_config(request)).url)

    async def list_webhooks(self, task_id: str) -> list[str]:
        request = ListTaskPushNotificationConfigsRequest(task_id=task_id)
        page = await self.waiting.list_task_push_notification_configs(request)
        return [config.id for config in page.configs]

    async def delete_webhook(self, task_id: str, id: str) -> None:
        request = DeleteTaskPushNotificationConfigRequest(task_id=task_id, id=id)
        await self.waiting.delete_task_push_notification_config(request)

    def name_of(self, error: Exception) -> str | None:
        return type(error).__name__.removesuffix("Error") if isinstance(error, A2AError) else None


def request_of(parts: list[Value], task_id: str | None = None, context_id: str | None = None) -> SendMessageRequest:
    message = Message(message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=[part_of(part) for part in parts])
    message.task_id = task_id or ""
    message.context_id = context_id or ""
    return SendMessageRequest(message=message)


def part_of(given: Value) -> Part:
    names = {"name": "filename", "type": "mediaType"}
    part: Part = ParseDict({names.get(key, key): value for key, value in given.items()}, Part())
    return part


def neutral(event: StreamResponse) -> Value:
    kind = event.WhichOneof("payload")
    if kind == "task":
        return task_of(event.task)
    if kind == "message":
        return {"kind": "message", "role": Role.Name(event.message.role), "parts": shown(event.message.parts)}
    if kind == "artifact_update":
        update = event.artifact_update
        ids = {"id": update.task_id, "context": update.context_id}
        return {"kind": "artifact", **ids, "name": update.artifact.name, "parts": shown(update.artifact.parts)}
    status = event.status_update
    return {"kind": "status", "id": status.task_id, "context": status.context_id, **status_of(status.status)}


def task_of(task: Task) -> Value:
    artifacts = {one.name: shown(one.parts) for one in task.artifacts}
    return {
        "kind": "task",
        "id": task.id,
        "context": task.context_id,
        **status_of(task.status),
        "artifacts": artifacts,
    }


def status_of(status: TaskStatus) -> Value:
    words = "\n".join(part.text for part in status.message.parts)
    return {"state": TaskState.Name(status.state).removeprefix("TASK_STATE_"), "words": words}


def shown(parts: Any) -> list[Value]:
    found: list[Value] = []
    for part in parts:
        kind = part.WhichOneof("content")
        file = {"name": part.filename or None, "type": part.media_type or None}
        if kind == "raw":
            found.append({"raw": base64.b64encode(part.raw).decode(), **file})
        elif kind == "url":
            found.append({"url": part.url, **file})
        elif kind == "data":
            found.append({"data": json.loads(json.dumps(MessageToDict(part.data)))})
        else:
            found.append({"text": part.text})
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
                streaming, False, http, grpc.aio.insecure_channel, [binding], use_client_preference=True
            )
            return ClientFactory(config).create(card, [AuthInterceptor(Wallet())])

        yield OfficialCaller(card, client(streaming=True), client(streaming=False))


if __name__ == "__main__":
    main(connect)
