"""Steps for requests, webhooks and pages of a list. Pure."""

from __future__ import annotations

import re
from typing import Final

from tieline.types import GetTaskPushNotificationConfigRequest, Message, SendMessageConfiguration
from tieline.wire.quirks_document import JsonObject, id_of_task

__all__ = [
    "any_config",
    "blocking",
    "config_request",
    "counts",
    "first_configuration",
    "first_ids",
    "nested_config",
    "resource",
    "schemes",
]

# --- messages that are sent -------------------------------------------------------------------------------------------


def first_ids(value: JsonObject) -> JsonObject:
    """0.1: the caller names the task and the session beside the message."""
    message = value.inner("message", Message)
    if message is not None:
        value.doc.first = "messageId" not in message and ("id" in value or "sessionId" in value)
        for name, id_ in (("id", "taskId"), ("sessionId", "contextId")):
            if name in value and not message.get(id_):
                message[id_] = value.pop(name)
                message.given[id_] = f"^{name}"
    return value


def first_configuration(value: JsonObject) -> JsonObject:
    """0.1: what is now in `configuration` stands beside the message."""
    moved = [
        name for name in ("acceptedOutputModes", "historyLength", "pushNotification", "pushNotificationConfig")
        if name in value
    ]  # fmt: skip
    if moved and isinstance(value.setdefault("configuration", {}), dict):
        configuration = value.inner("configuration", SendMessageConfiguration)
        assert configuration is not None
        for name in moved:
            if name not in configuration:
                configuration[name] = value.pop(name)
                configuration.given[name] = f"^{name}"
    return value


def blocking(value: JsonObject) -> JsonObject:
    """0.2 and 0.3 say the opposite of `returnImmediately`."""
    if "returnImmediately" not in value and isinstance(value.get("blocking"), bool):
        value["returnImmediately"] = not value.pop("blocking")
        value.given["returnImmediately"] = "blocking"
    return value


# --- requests about a task or a webhook -------------------------------------------------------------------------------

_NAME: Final = re.compile(r"tasks/(.+?)(?:/pushNotificationConfigs(?:/(.*))?)?$", re.DOTALL).match


def resource(value: JsonObject) -> JsonObject:
    """`name` or `parent`, a path of ids: that of the task and that of the webhook."""
    task_id = "taskId" if "task_id" in value.type_.__struct_fields__ else "id"
    for name in ("name", "parent"):
        path = value.get(name)
        match = _NAME(path) if isinstance(path, str) else None
        if match:
            for id_, found in ((task_id, match.group(1)), ("id", match.group(2))):
                if found and id_ not in value:
                    value[id_] = found
                    value.given[id_] = name
    return value


def any_config(value: JsonObject) -> JsonObject:
    """Before 1.0 a webhook could be asked for by its task alone."""
    if value.type_ is GetTaskPushNotificationConfigRequest and "taskId" in value:
        value.setdefault("id", "")
    return value


# --- webhooks ---------------------------------------------------------------------------------------------------------


def config_request(value: JsonObject) -> JsonObject:
    """Protobuf's request of 0.3: the webhook is in `config`, its id beside it."""
    if "url" not in value and isinstance(value.get("config"), dict):
        if "configId" in value and "id" not in value:
            value.move("configId", "id")
        value.lift("config")
    return value


def nested_config(value: JsonObject) -> JsonObject:
    """0.1 to 0.3: the webhook is inside, its task beside it."""
    name = "pushNotificationConfig"
    if "url" not in value and isinstance(value.get(name), dict):
        id_of_task(value)
        value.lift(name)
    return value


def schemes(value: JsonObject) -> JsonObject:
    """0.1 to 0.3: a list of schemes. 1.0 has one, which has to be there."""
    how = value.get("authentication")
    if isinstance(how, dict) and "scheme" not in how and isinstance(how.get("schemes"), list):
        given = how["schemes"]
        if given:
            inner = value["authentication"] = JsonObject(how, dict, value.doc)
            inner["scheme"] = given[0]
            inner.given["scheme"] = "schemes[0]"
        elif how.get("credentials"):
            how["scheme"] = "Bearer"
        else:
            del value["authentication"]
    return value


# --- pages ------------------------------------------------------------------------------------------------------------


def counts(value: JsonObject) -> JsonObject:
    """A page that does not say how much there is holds all."""
    count = len(value["tasks"]) if isinstance(value.get("tasks"), list) else 0
    for name, default in (("nextPageToken", ""), ("pageSize", count), ("totalSize", count)):
        value.setdefault(name, default)
    return value
