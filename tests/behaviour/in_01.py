"""Between the JSON of 1.0 and that of 0.1, which has no ids of messages and artifacts, and tasks that callers name.

Written from the schema of 0.1, and the table of what is carried as metadata in docs/dialects.md. Reading is strict: a
field that 0.1 does not have is a fault.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import uuid4

from tests.behaviour.in_03 import SCHEMA, left_over, push, push_to_10, state_to_10

__all__ = ["Events", "answer", "message_to", "send", "task", "task_config"]

Json = dict[str, Any]

_OWN: Final = "tieline/"
_CARRIED: Final = ("messageId", "extensions", "referenceTaskIds")


def _kinds_as_types(part: Json) -> Json:
    return {"type" if name == "kind" else name: value for name, value in part.items()}


def _types_as_kinds(part: Json) -> Json:
    return {"kind" if name == "type" else name: value for name, value in part.items()}


def _split(metadata: Json | None) -> tuple[Json, Json]:
    """Metadata as a field to be added, and what it carries by name."""
    own = {name: value for name, value in (metadata or {}).items() if not name.startswith(_OWN)}
    carried = {name.removeprefix(_OWN): value for name, value in (metadata or {}).items() if name.startswith(_OWN)}
    return ({"metadata": own} if own else {}), carried


# --- to 0.1 -----------------------------------------------------------------------------------------------------------


def message_to(message: Json) -> Json:
    """A message of a request; its task and session stand beside it."""
    given = {name: value for name, value in message.items() if name not in ("taskId", "contextId")}
    metadata = given.pop("metadata", {})
    for name in _CARRIED:
        if name in given:
            metadata = {**metadata, _OWN + name: given.pop(name)}
    role = given.pop("role").removeprefix("ROLE_").lower()
    parts = [_kinds_as_types(SCHEMA.part(part)) for part in given.pop("parts")]
    left_over(given, "a message of 1.0")
    return {"role": role, "parts": parts, "metadata": metadata}


def send(request: Json) -> Json:
    """TaskSendParams. A message without a task begins one that its caller names."""
    given = dict(request)
    message = given.pop("message")
    written: Json = {"id": message.get("taskId") or str(uuid4()), "message": message_to(message)}
    if message.get("contextId"):
        written["sessionId"] = message["contextId"]
    metadata = given.pop("metadata", {})
    asked = dict(given.pop("configuration", {}))
    for name in ("acceptedOutputModes", "historyLength"):
        if name in asked:
            written[name] = asked.pop(name)
    if "taskPushNotificationConfig" in asked:
        written["pushNotification"] = push(asked.pop("taskPushNotificationConfig"))
    if asked.pop("returnImmediately", False):
        metadata = {**metadata, "tieline/returnImmediately": True}
    left_over(asked, "a configuration of 1.0")
    left_over(given, "a request of 1.0")
    return {**written, "metadata": metadata} if metadata else written


# --- to 1.0 -----------------------------------------------------------------------------------------------------------


def _message(message: Json, task_id: str, context_id: str | None) -> Json:
    given = dict(message)
    own, carried = _split(given.pop("metadata", None))
    read = {
        "messageId": carried.pop("messageId", "unsaid"),
        "role": f"ROLE_{given.pop('role').upper()}",
        "parts": [SCHEMA.part_to_10(_types_as_kinds(part)) for part in given.pop("parts")],
        "taskId": carried.pop("taskId", task_id),
        "contextId": carried.pop("contextId", context_id),
        **carried,
        **own,
    }
    left_over(given, "a message of 0.1")
    return {name: value for name, value in read.items() if value is not None}


def _status(status: Json, state: str | None, task_id: str, context_id: str | None) -> Json:
    """`state`: the one that is meant, where 0.1 has no name for it."""
    given = dict(status)
    read: Json = {"state": state_to_10(state or given["state"])}
    del given["state"]
    if "message" in given:
        read["message"] = _message(given.pop("message"), task_id, context_id)
    if "timestamp" in given:
        read["timestamp"] = given.pop("timestamp")
    left_over(given, "a status of 0.1")
    return read


def _artifact(artifact: Json, ids: dict[int, str]) -> tuple[Json, Json]:
    """An artifact, and what is said of it as a chunk. `ids`: those that are known, by index."""
    given = dict(artifact)
    own, carried = _split(given.pop("metadata", None))
    index = given.pop("index")
    chunk: Json = {name: given.pop(name) for name in ("append", "lastChunk") if name in given}
    name = given.get("name")
    if index not in ids:
        ids[index] = carried.pop("artifactId", name if name and name not in ids.values() else f"artifact-{index}")
    read: Json = {
        "artifactId": ids[index],
        "parts": [SCHEMA.part_to_10(_types_as_kinds(part)) for part in given.pop("parts")],
        **{each: given.pop(each) for each in ("name", "description") if each in given},
        **carried,
        **own,
    }
    left_over(given, "an artifact of 0.1")
    return read, chunk


def task(task: Json) -> Json:
    """A task, as 1.0 has it."""
    given = dict(task)
    own, carried = _split(given.pop("metadata", None))
    id_, context_id = given.pop("id"), given.pop("sessionId", None)
    status = _status(given.pop("status"), carried.pop("state", None), id_, context_id)
    read: Json = {"id": id_, "contextId": context_id, "status": status, **own}
    if "artifacts" in given:
        ids: dict[int, str] = {}
        read["artifacts"] = [_artifact(artifact, ids)[0] for artifact in given.pop("artifacts")]
    if "history" in given:
        read["history"] = [_message(message, id_, context_id) for message in given.pop("history")]
    left_over(carried, "what a task of 0.1 carries")
    left_over(given, "a task of 0.1")
    return read


def answer(answer: Json) -> Json:
    """What tasks/send gives, as 1.0 has it."""
    if answer.get("metadata", {}).get("tieline/answer") == "message":
        return {"message": _message(answer["status"]["message"], answer["id"], answer.get("sessionId"))}
    return {"task": task(answer)}


def task_config(config: Json) -> Json:
    """TaskPushNotificationConfig, as 1.0 has it: the webhook of a task has the task's id where it has none."""
    given = dict(config)
    task_id = given.pop("id")
    read = push_to_10(given.pop("pushNotificationConfig"), task_id)
    left_over(given, "a task's webhook of 0.1")
    return {"id": task_id, **read}


class Events:
    """Reads the events of one stream: the first one is the task that it is of, as far as it says."""

    def __init__(self) -> None:
        self._ids: dict[int, str] = {}
        self._context_id: str | None = None

    def read(self, event: Json) -> tuple[Json, bool]:
        """An event, as 1.0 has it, and whether it is the last one."""
        given = dict(event)
        own, carried = _split(given.pop("metadata", None))
        id_ = given.pop("id")
        head = carried.pop("task", None)
        self._context_id = carried.pop("contextId", head["sessionId"] if head else self._context_id)
        if "artifact" in given:
            artifact, chunk = _artifact(given.pop("artifact"), self._ids)
            left_over(given, "an artifact event of 0.1")
            left_over(carried, "what an artifact event of 0.1 carries")
            assert head is None
            return {
                "artifactUpdate": {"taskId": id_, "contextId": self._context_id, "artifact": artifact, **chunk, **own}
            }, False
        final = given.pop("final")
        status = given.pop("status")
        left_over(given, "a status event of 0.1")
        if carried.pop("answer", None) == "message":
            return {"message": _message(status["message"], id_, self._context_id)}, final
        read = _status(status, carried.pop("state", None), id_, self._context_id)
        left_over(carried, "what a status event of 0.1 carries")
        if head is None:
            return {"statusUpdate": {"taskId": id_, "contextId": self._context_id, "status": read, **own}}, final
        history = [_message(message, id_, self._context_id) for message in head.get("history", ())]
        begun = {"id": id_, "contextId": self._context_id, "status": read, **own}
        return {"task": {**begun, "history": history} if history else begun}, final
