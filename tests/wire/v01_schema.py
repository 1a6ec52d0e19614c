"""The objects of A2A 0.1 as its JSON schema has them, retyped, and a check of JSON against them.

One line a field: name, type, and `!` where it is required. A type in brackets is a list; `a|b` is any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final

__all__ = ["OBJECTS", "STATES", "faults"]

STATES: Final = ("submitted", "working", "input-required", "completed", "canceled", "failed", "unknown")

_TABLE = """
TextPart
    type "text" !
    text string !
    metadata object
FileContent
    name string
    mimeType string
    bytes string
    uri string
FilePart
    type "file" !
    file FileContent !
    metadata object
DataPart
    type "data" !
    data object !
    metadata object
Message
    role role !
    parts [TextPart|FilePart|DataPart] !
    metadata object
TaskStatus
    state state !
    message Message
    timestamp date-time
Artifact
    name string
    description string
    parts [TextPart|FilePart|DataPart] !
    index integer
    append boolean
    lastChunk boolean
    metadata object
Task
    id string !
    sessionId string
    status TaskStatus !
    artifacts [Artifact]
    history [Message]
    metadata object
TaskStatusUpdateEvent
    id string !
    status TaskStatus !
    final boolean
    metadata object
TaskArtifactUpdateEvent
    id string !
    artifact Artifact !
    metadata object
AuthenticationInfo
    schemes [string] !
    credentials string
PushNotificationConfig
    url string !
    token string
    authentication AuthenticationInfo
TaskPushNotificationConfig
    id string !
    pushNotificationConfig PushNotificationConfig !
TaskSendParams
    id string !
    sessionId string
    message Message !
    pushNotification PushNotificationConfig
    historyLength integer
    metadata object
TaskIdParams
    id string !
    metadata object
TaskQueryParams
    id string !
    historyLength integer
    metadata object
"""


def _read(table: str) -> dict[str, dict[str, tuple[str, bool]]]:
    objects: dict[str, dict[str, tuple[str, bool]]] = {}
    name = ""
    for line in table.strip().splitlines():
        if not line.startswith(" "):
            name = line
            objects[name] = {}
            continue
        field, type_, *mark = line.split()
        objects[name][field] = type_, bool(mark)
    return objects


OBJECTS: Final = _read(_TABLE)
"""Fields by object and name: type, and whether it is required."""


def _is_time(value: Any) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


_SCALARS: Final[dict[str, Callable[[Any], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: type(value) is int,
    "object": lambda value: isinstance(value, dict),
    "date-time": _is_time,
    "role": lambda value: value in ("user", "agent"),
    "state": lambda value: value in STATES,
}


def faults(type_: str, value: Any, *, path: str = "$", more: frozenset[str] = frozenset()) -> Iterator[str]:
    """What is wrong with `value` as a `type_`. A member that the schema has not is a fault, unless it is in `more`."""
    if type_.startswith("["):
        if not isinstance(value, list):
            yield f"{path} is no list"
            return
        for index, item in enumerate(value):
            yield from faults(type_[1:-1], item, path=f"{path}[{index}]", more=more)
    elif "|" in type_:
        found = [list(faults(option, value, path=path, more=more)) for option in type_.split("|")]
        if all(found):
            yield from min(found, key=len)
    elif type_.startswith('"'):
        if value != type_.strip('"'):
            yield f"{path} is not {type_}"
    elif type_ in _SCALARS:
        if not _SCALARS[type_](value):
            yield f"{path} is no {type_}"
    elif not isinstance(value, dict):
        yield f"{path} is no object"
    else:
        fields = OBJECTS[type_]
        yield from (f"{path}.{name} is missing" for name, (_, needed) in fields.items() if needed and name not in value)
        for name, item in value.items():
            if name in fields:
                yield from faults(fields[name][0], item, path=f"{path}.{name}", more=more)
            elif name not in more:
                yield f"{path}.{name} is not of the schema"
