"""Between the JSON of 1.0 and that of 0.3: of its schema (`kind`), and of its protobuf definition.

Written from the schema and the protobuf definition of 0.3, and the table of what is carried as metadata in
docs/dialects.md. Reading is strict: a field that 0.3 does not have is a fault.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any, Final

__all__ = [
    "PROTOBUF",
    "PYTHON",
    "SCHEMA",
    "Form",
    "left_over",
    "named_config_to_10",
    "push",
    "push_to_10",
    "state_to_10",
    "task_config_to_10",
]

Json = dict[str, Any]

_WRAPPED: Final = "data_part_compat"
_CARRIED: Final = ("filename", "mediaType")
_STATES: Final = {"canceled": "CANCELED", "input-required": "INPUT_REQUIRED", "auth-required": "AUTH_REQUIRED"}


def left_over(value: Json, what: str) -> None:
    """Assert that all fields have been read."""
    assert not value, f"{what} has no field {', '.join(value)}: {value!r}"


def state_to_10(state: str) -> str:
    """A state as 1.0 names it."""
    assert state == state.lower()
    return "TASK_STATE_" + _STATES.get(state, state.upper())


def _moved(given: Json, *names: str) -> Json:
    """Take fields out of a value, those that are there."""
    return {name: given.pop(name) for name in names if name in given}


class Form:
    """How 0.3 writes its values: `kinds`, in the schema's way, else in protobuf's.

    `twice`: bytes hold base64 text, which the official Python package writes and reads over gRPC.
    """

    def __init__(self, *, kinds: bool, twice: bool = False) -> None:
        self._kinds = kinds
        self._twice = twice

    # --- to 0.3 -------------------------------------------------------------------------------------------------------

    def part(self, part: Json) -> Json:
        given = dict(part)
        metadata = given.pop("metadata", None)
        if "raw" in given or "url" in given:
            written = self._file(given)
        elif "text" in given:
            written = {"kind": "text", "text": given.pop("text")}
        else:
            data = given.pop("data")
            if not isinstance(data, dict):
                data, metadata = {"value": data}, {**(metadata or {}), _WRAPPED: True}
            written = {"kind": "data", "data": data if self._kinds else {"data": data}}
        if carried := {f"tieline/{name}": value for name, value in _moved(given, *_CARRIED).items()}:
            metadata = {**(metadata or {}), **carried}
        left_over(given, "a part of 1.0")
        if not self._kinds:
            del written["kind"]
        return written if metadata is None else {**written, "metadata": metadata}

    def _file(self, given: Json) -> Json:
        file = {"name": given.pop("filename", None), "mimeType": given.pop("mediaType", None)}
        if "url" in given:
            file["uri" if self._kinds else "fileWithUri"] = given.pop("url")
        else:
            raw = given.pop("raw")
            file["bytes" if self._kinds else "fileWithBytes"] = b64encode(raw.encode()).decode() if self._twice else raw
        return {"kind": "file", "file": {name: value for name, value in file.items() if value is not None}}

    def message(self, message: Json) -> Json:
        given = dict(message)
        parts = [self.part(part) for part in given.pop("parts")]
        if self._kinds:
            return {"kind": "message", "role": given.pop("role").removeprefix("ROLE_").lower(), "parts": parts, **given}
        if "referenceTaskIds" in given:
            referenced = given.pop("referenceTaskIds")
            given["metadata"] = {**given.get("metadata", {}), "tieline/referenceTaskIds": referenced}
        return {"content": parts, **given}

    def send(self, request: Json) -> Json:
        """MessageSendParams."""
        given = dict(request)
        written: Json = {"message": self.message(given.pop("message"))}
        metadata = given.pop("metadata", None)
        if (configuration := given.pop("configuration", None)) is not None:
            asked = dict(configuration)
            settings = _moved(asked, "acceptedOutputModes", "historyLength")
            if "taskPushNotificationConfig" in asked:
                name = "pushNotificationConfig" if self._kinds else "pushNotification"
                settings[name] = push(asked.pop("taskPushNotificationConfig"))
            if "returnImmediately" in asked:
                settings["blocking"] = not asked.pop("returnImmediately")
            if not self._kinds and settings.get("historyLength") == 0:
                metadata = {**(metadata or {}), "tieline/historyLength": settings.pop("historyLength")}
            left_over(asked, "a configuration of 1.0")
            written["configuration"] = settings
        if not self._kinds:  # protobuf does not tell an absent boolean from false
            written["configuration"] = {"blocking": True, **written.get("configuration", {})}
        left_over(given, "a request of 1.0")
        return written if metadata is None else {**written, "metadata": metadata}

    # --- to 1.0 -------------------------------------------------------------------------------------------------------

    def _kind(self, given: Json, kind: str) -> None:
        if self._kinds:
            assert given.pop("kind") == kind

    def part_to_10(self, part: Json) -> Json:
        given = dict(part)
        metadata = given.pop("metadata", None)
        carried = {name: metadata[f"tieline/{name}"] for name in _CARRIED if metadata and f"tieline/{name}" in metadata}
        read: Json
        if "file" in given:
            self._kind(given, "file")
            file = given.pop("file")
            read = self._file_to_10(file, metadata or {})
        elif "text" in given:
            self._kind(given, "text")
            read = {"text": given.pop("text"), **carried}
        else:
            self._kind(given, "data")
            data = given.pop("data")
            data = data if self._kinds else data["data"]
            assert isinstance(data, dict)
            if (metadata or {}).get(_WRAPPED) is True:
                assert list(data) == ["value"]
                data = data["value"]
            read = {"data": data, **carried}
        left_over(given, "a part of 0.3")
        own = {k: v for k, v in (metadata or {}).items() if not k.startswith("tieline/") and k != _WRAPPED}
        return {**read, "metadata": own} if own or metadata == {} else read

    def _file_to_10(self, file: Json, metadata: Json) -> Json:
        given = dict(file)
        read: Json = {}
        for name, ours in (("name", "filename"), ("mimeType", "mediaType")):
            if name in given:
                read[ours] = given.pop(name)
        if self._kinds:
            for name, ours in (("bytes", "raw"), ("uri", "url")):
                if name in given:
                    read[ours] = given.pop(name)
        elif "fileWithUri" in given:
            read["url"] = given.pop("fileWithUri")
        else:
            raw = given.pop("fileWithBytes")
            read["raw"] = b64decode(raw).decode() if metadata.get("tieline/base64", self._twice) is True else raw
        left_over(given, "a file of 0.3")
        assert ("raw" in read) != ("url" in read)
        return read

    def message_to_10(self, message: Json) -> Json:
        given = dict(message)
        self._kind(given, "message")
        role = given.pop("role")
        assert role in (("user", "agent") if self._kinds else ("ROLE_USER", "ROLE_AGENT"))
        read = _moved(given, "messageId", "contextId", "taskId", "metadata", "extensions", "referenceTaskIds")
        read["role"] = f"ROLE_{role.upper()}" if self._kinds else role
        read["parts"] = [self.part_to_10(part) for part in given.pop("parts" if self._kinds else "content")]
        if "tieline/referenceTaskIds" in read.get("metadata", {}):
            own = dict(read.pop("metadata"))
            read["referenceTaskIds"] = own.pop("tieline/referenceTaskIds")
            if own:
                read["metadata"] = own
        left_over(given, "a message of 0.3")
        return read

    def status_to_10(self, status: Json) -> Json:
        given = dict(status)
        state = given.pop("state")
        read = {"state": state_to_10(state) if self._kinds else state.replace("CANCELLED", "CANCELED")}
        if "message" in given:
            read["message"] = self.message_to_10(given.pop("message"))
        read |= _moved(given, "timestamp")
        left_over(given, "a status of 0.3")
        return read

    def artifact_to_10(self, artifact: Json) -> Json:
        given = dict(artifact)
        read = _moved(given, "artifactId", "name", "description", "metadata", "extensions")
        read["parts"] = [self.part_to_10(part) for part in given.pop("parts")]
        left_over(given, "an artifact of 0.3")
        return read

    def task(self, task: Json) -> Json:
        """A task, as 1.0 has it."""
        given = dict(task)
        self._kind(given, "task")
        read = {**_moved(given, "id", "contextId", "metadata"), "status": self.status_to_10(given.pop("status"))}
        members: tuple[tuple[str, Callable[[Json], Json]], ...] = (
            ("artifacts", self.artifact_to_10),
            ("history", self.message_to_10),
        )
        for name, read_one in members:
            if name in given:
                read[name] = [read_one(item) for item in given.pop(name)]
        left_over(given, "a task of 0.3")
        return read

    def answer(self, answer: Json) -> Json:
        """What SendMessage gives, as 1.0 has it."""
        event, final = self.event(answer)
        assert not final
        assert not event.keys() & {"statusUpdate", "artifactUpdate"}
        return event

    def event(self, event: Json) -> tuple[Json, bool]:
        """An event of a stream, as 1.0 has it, and whether it is the last one."""
        if self._kinds:
            name, given = _EVENTS[event["kind"]], dict(event)
        else:
            ((name, payload),) = event.items()
            given = dict(payload)
        if name == "task":
            return {"task": self.task(given)}, False
        if name == "message":
            return {"message": self.message_to_10(given)}, False
        given.pop("kind", None)
        read = _moved(given, "taskId", "contextId", "metadata")
        final = False
        if name == "statusUpdate":
            read["status"] = self.status_to_10(given.pop("status"))
            final = given.pop("final") if self._kinds else given.pop("final", False)
        else:
            read["artifact"] = self.artifact_to_10(given.pop("artifact"))
            read |= _moved(given, "append", "lastChunk")
        left_over(given, f"a {name} of 0.3")
        return {name: read}, final


# --- webhooks, which are the same in both ----------------------------------------------------------------------------


def push(config: Json) -> Json:
    """PushNotificationConfig; its task stands beside it."""
    written = {name: value for name, value in config.items() if name not in ("taskId", "authentication")}
    if "authentication" in config:
        given = dict(config["authentication"])
        written["authentication"] = {"schemes": [given.pop("scheme")], **given}
    return written


def push_to_10(config: Json, task_id: str) -> Json:
    """A webhook, as 1.0 has it."""
    given = dict(config)
    read: Json = {"taskId": task_id, **_moved(given, "id", "url", "token")}
    if "authentication" in given:
        asked = dict(given.pop("authentication"))
        (scheme,) = asked.pop("schemes")
        read["authentication"] = {"scheme": scheme, **_moved(asked, "credentials")}
        left_over(asked, "an authentication of 0.3")
    left_over(given, "a webhook of 0.3")
    return read


def task_config_to_10(config: Json) -> Json:
    """TaskPushNotificationConfig of the schema, as 1.0 has it."""
    given = dict(config)
    read = push_to_10(given.pop("pushNotificationConfig"), given.pop("taskId"))
    left_over(given, "a task's webhook of 0.3")
    return read


def named_config_to_10(config: Json) -> Json:
    """TaskPushNotificationConfig of the protobuf definition, which has a name, as 1.0 has it."""
    given = dict(config)
    tasks, task_id, configs, id_ = given.pop("name").split("/")
    assert (tasks, configs) == ("tasks", "pushNotificationConfigs")
    read = push_to_10(given.pop("pushNotificationConfig"), task_id)
    left_over(given, "a task's webhook of 0.3")
    assert read.get("id", id_) == id_
    return {**read, "id": id_}


_EVENTS: Final = {
    "task": "task",
    "message": "message",
    "status-update": "statusUpdate",
    "artifact-update": "artifactUpdate",
}

SCHEMA: Final = Form(kinds=True)
"""As JSON-RPC has it."""
PROTOBUF: Final = Form(kinds=False)
"""As REST has it in the field."""
PYTHON: Final = Form(kinds=False, twice=True)
"""As gRPC has it between official Python packages."""
