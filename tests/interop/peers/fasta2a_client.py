# mypy: ignore-errors
# (fasta2a is not installed where the type checker runs)
"""The client of fasta2a 2.1.1 as a caller of the matrix: `python fasta2a_client.py URL JSONRPC [ROW ...]`.

It sends, streams and reads; it has no call to cancel or to follow a task.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from fasta2a.client import A2AClient

from tests.interop.peers.rows import Caller, Value, main

READ_LIMIT_S = 30.0
CODES = {
    -32001: "TaskNotFound",
    -32002: "TaskNotCancelable",
    -32004: "UnsupportedOperation",
    -32602: "InvalidParams",
}


class Refused(Exception):
    """The `error` of a response, which this client returns and does not raise."""


class FastCaller(Caller):
    def __init__(self, client: A2AClient) -> None:
        self.client = client

    async def card(self) -> Value:
        card = self.client.agent_card
        return {
            "name": card["name"],
            "description": card["description"],
            "streaming": card["capabilities"]["streaming"],
            "skills": [skill["id"] for skill in card["skills"]],
        }

    async def send(self, parts: list[Value], *, task_id: str | None = None, context_id: str | None = None) -> Value:
        return neutral(result_of(await self.client.send_message(message_of(parts, task_id, context_id))))

    async def stream(self, parts: list[Value]) -> AsyncGenerator[Value, None]:
        async for response in self.client.stream_message(message_of(parts)):
            yield neutral(result_of(response))

    async def get(self, task_id: str) -> Value:
        return neutral({"task": result_of(await self.client.get_task(task_id))})

    def name_of(self, error: Exception) -> str | None:
        return CODES.get(error.args[0].get("code")) if isinstance(error, Refused) else None


def result_of(response: Any) -> Any:
    if "error" in response:
        raise Refused(response["error"])
    return response["result"]


def message_of(parts: list[Value], task_id: str | None = None, context_id: str | None = None) -> Any:
    ids = {key: value for key, value in (("task_id", task_id), ("context_id", context_id)) if value}
    return {"role": "user", "message_id": str(uuid.uuid4()), "parts": [part_of(part) for part in parts], **ids}


def part_of(part: Value) -> Value:
    names = {"name": "filename", "type": "media_type"}
    return {names.get(key, key): value for key, value in part.items()}


def neutral(result: Any) -> Value:
    if "message" in result:
        message = result["message"]
        return {"kind": "message", "role": f"ROLE_{message['role'].upper()}", "parts": shown(message["parts"])}
    if "artifact_update" in result:
        update = result["artifact_update"]
        ids = {"id": update["task_id"], "context": update["context_id"]}
        return {
            "kind": "artifact",
            **ids,
            "name": update["artifact"].get("name"),
            "parts": shown(update["artifact"]["parts"]),
        }
    if "status_update" in result:
        update = result["status_update"]
        return {
            "kind": "status",
            "id": update["task_id"],
            "context": update["context_id"],
            **status_of(update["status"]),
        }
    task = result["task"]
    artifacts = {one.get("name"): shown(one["parts"]) for one in task.get("artifacts", [])}
    ids = {"id": task["id"], "context": task["context_id"]}
    return {"kind": "task", **ids, **status_of(task["status"]), "artifacts": artifacts}


def status_of(status: Any) -> Value:
    parts = status["message"]["parts"] if "message" in status else []
    words = "\n".join(part.get("text", "") for part in parts)
    return {"state": status["state"].upper().replace("-", "_"), "words": words}


def shown(parts: list[Any]) -> list[Value]:
    found = []
    for part in parts:
        if "text" in part or "data" in part:
            found.append({key: part[key] for key in ("text", "data") if key in part})
        else:
            content = {key: part[key] for key in ("raw", "url") if key in part}
            found.append({**content, "name": part.get("filename"), "type": part.get("media_type")})
    return found


@asynccontextmanager
async def connect(url: str, binding: str) -> AsyncIterator[Caller]:
    async with httpx.AsyncClient(timeout=READ_LIMIT_S) as http:
        yield FastCaller(A2AClient(url, http, fetch_card=True))


if __name__ == "__main__":
    main(connect)
