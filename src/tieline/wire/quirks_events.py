"""Steps for answers and events: which of them it is, and what they say of their task. Pure."""

from __future__ import annotations

from typing import Final

from tieline.types import Artifact, SendMessageResponse, Task
from tieline.wire.quirks_document import JsonObject, letters

__all__ = ["bare", "chunk", "member", "no_context", "result"]


def result(value: JsonObject) -> JsonObject:
    """A result in its envelope of JSON-RPC, or in the one member `result`."""
    wrapped = value.root and not value.doc.request and isinstance(value.get("result"), dict)
    return value.within("result") if wrapped and ("jsonrpc" in value or len(value) == 1) else value


def member(value: JsonObject) -> JsonObject:
    """A task or message where only it is wanted, in the wrapper of an answer."""
    names, own = (("task",), ("id", "status")) if value.type_ is Task else (("message", "msg"), ("parts", "content"))
    for name in names:
        if value.root and isinstance(value.get(name), dict) and not any(known in value for known in own):
            return value.within(name)
    return value


_KINDS: Final = {
    "task": "task",
    "message": "message",
    "statusupdate": "statusUpdate",
    "artifactupdate": "artifactUpdate",
}


def bare(value: JsonObject) -> JsonObject:
    """An answer or event without its wrapper: by its tag, else by its shape."""
    if any(isinstance(value.get(name), dict) for name in _KINDS.values()):
        return value
    tag = value.get("kind", value.get("type"))
    name = _KINDS.get(letters(tag).lower()) if isinstance(tag, str) else None
    name = name or _shape(value)
    if name is None:
        return value
    outer = JsonObject({name: dict(value)}, value.type_, value.doc)
    outer.at, outer.given[name] = value.at, ""
    return outer


def _shape(value: JsonObject) -> str | None:
    """Which event an object without a wrapper and a `kind` is."""
    if isinstance(value.get("artifact"), dict):
        return "artifactUpdate"
    if "status" in value and ("id" in value or "taskId" in value):
        if "id" not in value or "final" in value:
            return "statusUpdate"
        whole = any(name in value for name in ("contextId", "sessionId", "artifacts", "history"))
        return "task" if whole or value.type_ is SendMessageResponse else "statusUpdate"
    if "role" in value or isinstance(value.get("parts"), list):
        return "message"
    return None


def no_context(value: JsonObject) -> JsonObject:
    """0.1 does not say the context of an event."""
    value.setdefault("contextId", "")
    return value


def chunk(value: JsonObject) -> JsonObject:
    """0.1: what kind of chunk it is stands in the artifact."""
    artifact = value.inner("artifact", Artifact)
    if artifact is not None:
        if type(value.get("index")) is int:
            artifact.setdefault("index", value["index"])
        for name in ("append", "lastChunk"):
            if name not in value and name in artifact:
                value[name] = artifact.pop(name)
                value.given[name] = f"artifact.{name}"
    return value
