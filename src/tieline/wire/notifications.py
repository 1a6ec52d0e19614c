"""What a webhook is sent, in every dialect: an event of 1.0, a task or an event of 0.3, a task of 0.1. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from tieline.errors import InvalidPeerResponse, InvalidRequest, ParseError
from tieline.types import StreamEvent, Task
from tieline.wire.body import check_depth
from tieline.wire.dialect import Dialect, Json
from tieline.wire.v01 import V01
from tieline.wire.v03 import V03
from tieline.wire.v03_rest import V03_REST
from tieline.wire.v1 import V1

__all__ = ["read_notification", "task_of"]

_read_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_WRAPPED: Final = frozenset(
    ("task", "message", "statusUpdate", "artifactUpdate", "status_update", "artifact_update", "msg")
)


def read_notification(body: bytes) -> tuple[StreamEvent, str]:
    """The event that a webhook was sent, and the version of A2A whose form it has (A2A 1.0 §4.3.3).

    The form tells the dialect: media types and A2A-Version are missing or wrong with many senders. A JSON-RPC response
    around it, which some senders write, is taken off.

    Raises:
        ParseError: it is not JSON.
        InvalidRequest: it is nothing that A2A sends to webhooks.
    """
    check_depth(body)
    try:
        members = _read_members(body)
        if "jsonrpc" in members and "result" in members:
            return _read(members["result"], _read_members(members["result"]))
        return _read(body, members)
    except msgspec.ValidationError:
        raise InvalidRequest("The notification has to be a JSON object.") from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ParseError(f"The notification is not valid JSON: {error}") from None
    except InvalidPeerResponse as error:
        told = "; ".join(f"{bad.field.removeprefix('result.')} {bad.description}" for bad in error.violations)
        raise InvalidRequest(f"The notification is none of A2A{': ' + told if told else '.'}") from None


def task_of(event: StreamEvent) -> str | None:
    """The id of the task that an event is of; None for a message without one."""
    return event.id if isinstance(event, Task) else event.task_id


def _read(data: Json, members: Mapping[str, msgspec.Raw]) -> tuple[StreamEvent, str]:
    dialect = _dialect_of(members)
    event: StreamEvent | None
    if dialect is V01 and "status" in members and "final" not in members:
        event = V01.decode_task(data)
    else:
        event = dialect.event_decoder()(data)
    if event is None:
        raise InvalidRequest("The notification holds no task, message or update that is known here.")
    return event, dialect.version


def _dialect_of(members: Mapping[str, msgspec.Raw]) -> Dialect:
    """The dialect of a document, by what only that one has."""
    if "kind" in members:
        return V03
    held = next((bytes(members[name]) for name in _WRAPPED if name in members), None)
    if held is not None:
        return V03_REST if b'"final":' in held or (b'"content":' in held and b'"parts":' not in held) else V1
    if "id" in members and "contextId" not in members and b'"TASK_STATE_' not in bytes(members.get("status", b"")):
        return V01
    return V03  # which reads what lacks its kind
