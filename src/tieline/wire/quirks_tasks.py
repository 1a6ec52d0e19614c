"""Steps for tasks and what they are made of: states, messages, artifacts. Pure."""

from __future__ import annotations

import re
from typing import Any, Final

from tieline.types import ListTasksRequest, Message, Role, TaskState, TaskStatus
from tieline.wire.quirks_document import JsonObject, letters

__all__ = [
    "any_state",
    "artifact_id",
    "artifact_ids",
    "cancelled",
    "no_message_id",
    "role",
    "state",
    "string_message",
    "string_status",
    "unknown",
    "word_of_agent",
    "zone",
]

# --- states -----------------------------------------------------------------------------------------------------------

_STATES: Final = {
    letters(state.removeprefix(prefix)): state.value for prefix in ("", "TASK_STATE_") for state in TaskState
}


def _word(value: JsonObject) -> tuple[str, str]:
    """The member that holds the state of an object, and the letters that it consists of."""
    name = "status" if value.type_ is ListTasksRequest else "state"
    word = value.get(name)
    return name, letters(word) if isinstance(word, str) else ""


def state(value: JsonObject) -> JsonObject:
    """A state in any case, with or without its prefix."""
    name, word = _word(value)
    if word in _STATES:
        value[name] = _STATES[word]
    return value


def cancelled(value: JsonObject) -> JsonObject:
    """The other spelling, which protobuf's definition of 0.3 has."""
    name, word = _word(value)
    if word.removeprefix("TASKSTATE") == "CANCELLED":
        value[name] = TaskState.CANCELED.value
    return value


def unknown(value: JsonObject) -> JsonObject:
    """What 0.1 to 0.3 call a state that is not known."""
    name, word = _word(value)
    if word.removeprefix("TASKSTATE") == "UNKNOWN":
        value[name] = TaskState.UNSPECIFIED.value
    return value


def any_state(value: JsonObject) -> JsonObject:
    """A list request that does not ask for a state."""
    if value.get("status") == "":
        del value["status"]
    return value


# --- statuses ---------------------------------------------------------------------------------------------------------


def string_status(value: JsonObject) -> JsonObject:
    """A status that is the state alone."""
    if isinstance(value.get("status"), str):
        status = value["status"] = JsonObject({"state": value["status"]}, TaskStatus, value.doc)
        status.given["state"] = ""
    return value


def string_message(value: JsonObject) -> JsonObject:
    """A status message that is the words alone."""
    text = value.get("message")
    if isinstance(text, str):
        if not text:
            del value["message"]
            return value
        message = value["message"] = JsonObject({"messageId": "", "role": Role.AGENT.value}, Message, value.doc)
        message["parts"] = [{"text": text}]
    return value


_UNZONED: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?", re.ASCII).fullmatch


def zone(value: JsonObject) -> JsonObject:
    """A moment without a zone is in UTC."""
    moment = value.get("timestamp")
    if isinstance(moment, str) and _UNZONED(moment):
        value["timestamp"] = f"{moment}Z"
    return value


def word_of_agent(value: JsonObject) -> JsonObject:
    """What a status says is said by the agent."""
    message = value.inner("message", Message)
    if message is not None and "role" not in message:
        message["role"] = Role.AGENT.value
    return value


# --- messages ---------------------------------------------------------------------------------------------------------

_ROLES: Final = {letters(role): role.value for role in Role} | {"USER": Role.USER.value, "AGENT": Role.AGENT.value}


def role(value: JsonObject) -> JsonObject:
    """A role in any case, with or without its prefix."""
    word = value.get("role")
    if isinstance(word, str):
        value["role"] = _ROLES.get(letters(word), word)
    return value


def no_message_id(value: JsonObject) -> JsonObject:
    """0.1 has no ids of messages, and a result is of use without."""
    if not value.doc.request or value.doc.first:
        value.setdefault("messageId", "")
    return value


# --- artifacts --------------------------------------------------------------------------------------------------------


def _index(artifact: dict[str, Any]) -> int:
    index = artifact.get("index")
    return index if type(index) is int else 0


def artifact_ids(value: JsonObject) -> JsonObject:
    """The artifacts of a task get the ids that their events have; where these are not told apart, by their place."""
    artifacts = value.get("artifacts")
    if isinstance(artifacts, list):
        unnamed = [artifact for artifact in artifacts if isinstance(artifact, dict) and "artifactId" not in artifact]
        indexes = [_index(artifact) for artifact in unnamed]
        if len(set(indexes)) < len(indexes):  # nobody has counted them
            indexes = list(range(len(indexes)))
        for artifact, index in zip(unnamed, indexes, strict=True):
            artifact["artifactId"] = f"artifact-{index}"
    return value


def artifact_id(value: JsonObject) -> JsonObject:
    """0.1 tells artifacts apart by their index."""
    value.setdefault("artifactId", f"artifact-{_index(value)}")
    return value
