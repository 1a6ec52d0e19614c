"""An agent that speaks some bindings and versions, and answers every other call as such servers do. Written by hand.

It says which one was spoken, so that a test sees what a client has chosen, and keeps what it was asked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.client.scripted import LIMIT_S, Http, Raw, Request, listening, read_request

__all__ = ["Foreign", "card_01", "card_03", "card_10", "foreign"]

Json = dict[str, Any]

NEW, OLD = "/.well-known/agent-card.json", "/.well-known/agent.json"

METHODS: Mapping[str, Sequence[str]] = {
    "SendMessage": ("1.0",),
    "SendStreamingMessage": ("1.0",),
    "GetTask": ("1.0",),
    "ListTasks": ("1.0",),
    "message/send": ("0.3",),
    "message/stream": ("0.3",),
    "tasks/send": ("0.1",),
    "tasks/sendSubscribe": ("0.1",),
    "tasks/get": ("0.3", "0.1"),
}
STREAMS = ("SendStreamingMessage", "message/stream", "tasks/sendSubscribe")
PATHS: Mapping[str, tuple[str, str]] = {
    "/message:send": ("1.0", "send"),
    "/message:stream": ("1.0", "stream"),
    "/tasks/t": ("1.0", "get"),
    "/v1/message:send": ("0.3", "send"),
    "/v1/message:stream": ("0.3", "stream"),
    "/v1/tasks/t": ("0.3", "get"),
}


@dataclass
class Foreign:
    """A server at work. `speaks` are such as "JSONRPC 0.3"; `cards` are by path."""

    speaks: Collection[str]
    refusal: Http | Raw | None = None  # to calls that it does not speak; None is -32601, or 404 without a body
    cards: dict[str, Json] = field(default_factory=dict)
    url: str = ""
    state: str = "completed"  # of tasks that are sent; they are completed when they are read
    as_json: bool = False  # streams are answered by one JSON document
    override: Callable[[str], Http | Raw | None] = lambda call: None  # what a call is answered instead
    requests: list[Request] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)  # methods, or paths of REST

    @property
    def versions(self) -> list[str | None]:
        """The A2A-Version of every call."""
        return [request.headers.get("a2a-version") for request in self.requests]

    def answer(self, request: Request) -> bytes | Raw:
        path = request.target.partition("?")[0]
        if "/.well-known/" in path:
            card = self.cards.get(path)
            return Http(404).data if card is None else Http(200, json.dumps(card).encode()).data
        self.requests.append(request)
        rpc = path == "/rpc"
        call = request.json["method"] if rpc else path.removeprefix("/rest")
        self.calls.append(call)
        instead = self.override(call)
        if instead is None:
            found = self._rpc(request, call) if rpc else self._rest(call)
            if found is not None:
                return found
            instead = self.refusal
        if instead is None:
            instead = _error(request.json["id"]) if rpc else Http(404)
        return instead if isinstance(instead, Raw) else instead.data

    def _rpc(self, request: Request, method: str) -> bytes | None:
        version = next((v for v in METHODS.get(method, ()) if f"JSONRPC {v}" in self.speaks), None)
        if version is None:
            return None
        id_, word = request.json["id"], f"JSONRPC {version}"
        if method == "ListTasks":
            result: Json = {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}
        elif version == "1.0":
            result = _task_10(word, "completed" if method == "GetTask" else self.state)
            result = result if method == "GetTask" else {"task": result}
        elif version == "0.3":
            result = _task_03(word, "completed" if method == "tasks/get" else self.state)
        else:
            named = request.json["params"]["id"]
            result = _task_01(word, named, "completed" if method == "tasks/get" else self.state)
        body = json.dumps({"jsonrpc": "2.0", "id": id_, "result": result}).encode()
        if method in STREAMS and not self.as_json:
            if version == "0.1":  # its streams tell events alone
                status = {"id": result["id"], "status": result["status"], "final": True}
                artifact = {"id": result["id"], "artifact": result["artifacts"][0]}
                return _sse(*({"jsonrpc": "2.0", "id": id_, "result": each} for each in (artifact, status)))
            return _sse({"jsonrpc": "2.0", "id": id_, "result": result})
        return Http(200, body, {"Content-Type": "application/json"}).data

    def _rest(self, path: str) -> bytes | None:
        version, what = PATHS.get(path, ("", ""))
        word = f"HTTP+JSON {version}"
        if word not in self.speaks:
            return None
        task = _task_10(word, "completed" if what == "get" else self.state)
        if version == "0.3":
            for artifact in task["artifacts"]:
                artifact["parts"] = [{"text": word}]
        result = task if what == "get" else {"task": task}
        if what == "stream" and not self.as_json:
            return _sse(result)
        return Http(200, json.dumps(result).encode(), {"Content-Type": "application/json"}).data


def _task_10(word: str, state: str) -> Json:
    name = "TASK_STATE_" + state.upper().replace("-", "_")
    artifacts = [{"artifactId": "a", "parts": [{"text": word}]}]
    return {"id": "t", "contextId": "c", "status": {"state": name}, "artifacts": artifacts}


def _task_03(word: str, state: str) -> Json:
    artifacts = [{"artifactId": "a", "parts": [{"kind": "text", "text": word}]}]
    return {"kind": "task", "id": "t", "contextId": "c", "status": {"state": state}, "artifacts": artifacts}


def _task_01(word: str, task_id: str, state: str) -> Json:
    artifacts = [{"index": 0, "parts": [{"type": "text", "text": word}]}]
    return {"id": task_id, "sessionId": "s", "status": {"state": state}, "artifacts": artifacts}


def _error(id_: Any) -> Http:
    body = {"jsonrpc": "2.0", "id": id_, "error": {"code": -32601, "message": "Method not found"}}
    return Http(200, json.dumps(body).encode(), {"Content-Type": "application/json"})


def _sse(*results: Json) -> bytes:
    data = "".join(f"data: {json.dumps(result)}\n\n" for result in results)
    return Http(200, data.encode(), {"Content-Type": "text/event-stream"}).data


_REST = {
    "description": "Written by hand.",
    "version": "1",
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "s", "name": "S", "description": "Does.", "tags": ["t"]}],
}


def card_10(*interfaces: tuple[str, str, str], streaming: bool = False) -> Json:
    """A card of 1.0: URLs, bindings and versions."""
    listed = [
        {"url": url, "protocolBinding": binding, "protocolVersion": version} for url, binding, version in interfaces
    ]
    return {**_REST, "name": "Foreign", "supportedInterfaces": listed, "capabilities": {"streaming": streaming}}


def card_03(
    url: str, preferred: str | None, *more: tuple[str, str], version: str | None = "0.3.0", streaming: bool = False
) -> Json:
    """A card of 0.3, and of 0.2.6 where nothing is preferred."""
    card: Json = {**_REST, "name": "Foreign", "url": url, "capabilities": {"streaming": streaming}}
    if version is not None:
        card["protocolVersion"] = version
    if preferred is not None:
        card["preferredTransport"] = preferred
    if more:
        card["additionalInterfaces"] = [{"url": at, "transport": binding} for at, binding in more]
    return card


def card_01(url: str, *, streaming: bool = False) -> Json:
    """A card of 0.1, which names no version."""
    capabilities = {"streaming": streaming, "pushNotifications": False, "stateTransitionHistory": False}
    return {**_REST, "name": "Foreign", "url": url, "capabilities": capabilities, "authentication": {"schemes": []}}


@asynccontextmanager
async def foreign(*speaks: str, **how: Any) -> AsyncIterator[Foreign]:
    """Serve until the block ends. JSON-RPC is at /rpc, REST below /rest."""
    agent = Foreign(speaks, **how)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (request := await read_request(reader)) is not None:
            answer = agent.answer(request)
            writer.write(answer.data if isinstance(answer, Raw) else answer)
            await writer.drain()
            if isinstance(answer, Raw):
                if answer.end == "reset":
                    writer.transport.abort()
                elif answer.end == "hang":
                    await reader.read()
                return

    async with listening(serve) as port:
        agent.url = f"http://127.0.0.1:{port}"
        async with asyncio.timeout(LIMIT_S):
            yield agent
