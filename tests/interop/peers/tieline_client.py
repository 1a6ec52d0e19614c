"""Tieline's own client as a caller of the matrix: `python tieline_client.py URL BINDING [ROW ...]`."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec import UNSET

import tieline
from tests.interop.peers.rows import Caller, Value, main
from tieline import Message, Part, Peer, Task, TaskArtifactUpdateEvent, TaskPushNotificationConfig, TaskStatus
from tieline.errors import A2AError
from tieline.types import StreamEvent


class TielineCaller(Caller):
    def __init__(self, url: str, peer: Peer) -> None:
        self.url = url
        self.peer = peer

    async def card(self) -> Value:
        card = self.peer.card
        async with tieline.connect(self.url) as unasked:
            said = await unasked.ask("message hello")
        return {
            "spoken": spoken(self.peer),
            "spoken when nothing is asked for": spoken(unasked),
            "said": str(said),
            "name": card.name,
            "description": card.description,
            "streaming": card.capabilities.streaming,
            "skills": [skill.id for skill in card.skills],
        }

    async def send(self, parts: list[Value], *, task_id: str | None = None, context_id: str | None = None) -> Value:
        return neutral(await self.peer.send(parts_of(parts), task_id=task_id, context_id=context_id))

    async def stream(self, parts: list[Value]) -> AsyncGenerator[Value, None]:
        async for event in self.peer.stream(parts_of(parts)):
            yield neutral(event)

    async def subscribe(self, task_id: str) -> AsyncGenerator[Value, None]:
        async for event in self.peer.subscribe(task_id):
            yield neutral(event)

    async def get(self, task_id: str) -> Value:
        return neutral(await self.peer.get(task_id))

    async def cancel(self, task_id: str) -> Value:
        return neutral(await self.peer.cancel(task_id))

    async def set_webhook(self, task_id: str, id: str, url: str, token: str) -> str:
        return (await self.peer.set_webhook(task_id, TaskPushNotificationConfig(url, id=id, token=token))).url

    async def get_webhook(self, task_id: str, id: str) -> str:
        return (await self.peer.get_webhook(task_id, id)).url

    async def list_webhooks(self, task_id: str) -> list[str]:
        return [webhook.id or "" for webhook in await self.peer.list_webhooks(task_id)]

    async def delete_webhook(self, task_id: str, id: str) -> None:
        await self.peer.delete_webhook(task_id, id)

    def name_of(self, error: Exception) -> str | None:
        return type(error).__name__ if isinstance(error, A2AError) else None


def spoken(peer: Peer) -> str:
    return f"{peer.transport} {peer.interface.protocol_version}"


def parts_of(parts: list[Value]) -> list[Part]:
    found = []
    for part in parts:
        raw = base64.b64decode(part["raw"]) if "raw" in part else None
        found.append(
            Part(
                text=part.get("text"),
                raw=raw,
                url=part.get("url"),
                data=part.get("data", UNSET),
                filename=part.get("name"),
                media_type=part.get("type"),
            )
        )
    return found


def neutral(event: StreamEvent) -> Value:
    if isinstance(event, Message):
        return {"kind": "message", "role": event.role.value, "parts": shown(event.parts)}
    if isinstance(event, TaskArtifactUpdateEvent):
        artifact = event.artifact
        ids = {"id": event.task_id, "context": event.context_id}
        return {"kind": "artifact", **ids, "name": artifact.name, "parts": shown(artifact.parts)}
    if isinstance(event, Task):
        artifacts = {one.name or one.artifact_id: shown(one.parts) for one in event.artifacts}
        ids = {"id": event.id, "context": event.context_id or ""}
        return {"kind": "task", **ids, **status_of(event.status), "artifacts": artifacts}
    return {"kind": "status", "id": event.task_id, "context": event.context_id, **status_of(event.status)}


def status_of(status: TaskStatus) -> Value:
    words = status.message.text if status.message is not None else ""
    return {"state": status.state.value.removeprefix("TASK_STATE_"), "words": words}


def shown(parts: tuple[Part, ...]) -> list[Value]:
    found: list[Value] = []
    for part in parts:
        file: dict[str, Any] = {"name": part.filename, "type": part.media_type}
        if part.text is not None:
            found.append({"text": part.text})
        elif part.raw is not None:
            found.append({"raw": base64.b64encode(part.raw).decode(), **file})
        elif part.url is not None:
            found.append({"url": part.url, **file})
        else:
            found.append({"data": part.data})
    return found


@asynccontextmanager
async def connect(url: str, binding: str) -> AsyncIterator[Caller]:
    async with tieline.connect(url, transport=binding) as peer:
        yield TielineCaller(url, peer)


if __name__ == "__main__":
    main(connect)
