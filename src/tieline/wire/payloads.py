"""What webhooks are sent, in each version (A2A 1.0 §4.3.3). Pure.

In 1.0 a notification is an event, as a stream has it. Before, it is the task: as it is made and at each change of its
status, with the artifacts that there are by then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from tieline.event import Event
from tieline.types import Encoded, Task, TaskArtifactUpdateEvent
from tieline.wire.dialect import Dialect
from tieline.wire.dialects import DIALECTS, dialect_of
from tieline.wire.rest import MEDIA_TYPE
from tieline.wire.v1 import V1

__all__ = ["VersionPayload", "payload_of"]


class VersionPayload(msgspec.Struct, frozen=True):
    """The notifications of one version."""

    dialect: Dialect
    media_type: str
    wants_task: bool
    token_is_bearer: bool  # in 0.1 a configuration has no other credentials

    def body(self, event: Event, task: Callable[[], Task]) -> bytes | None:
        """The body that tells of an event; `task` gives the task as it is behind it. None: it is not told."""
        if not self.wants_task:
            return event.json
        if isinstance(event.value, TaskArtifactUpdateEvent):
            return None
        return self.dialect.encode_task(Encoded(Task, value=task()))


_ALL: Final = {
    dialect.version: VersionPayload(
        dialect,
        MEDIA_TYPE if dialect is V1 else "application/json",
        dialect is not V1,
        dialect.version in ("0.1", "0.2"),
    )
    for dialect in DIALECTS
}


def payload_of(version: str) -> VersionPayload:
    """Those of a version of A2A, or of the dialect that it is spoken in."""
    found = _ALL.get(version)
    if found is None:
        dialect = dialect_of(version)
        found = _ALL[V1.version if dialect is None else dialect.version]
    return found
