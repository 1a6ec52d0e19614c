"""Tasks as lines of JSON, to carry from one store into another: one of the format, then one for each task.

    {"format":"tieline-tasks","version":1}
    {"scope":"...","id":"...","contextId":"...","state":"TASK_STATE_COMPLETED","updated":1785578400000000,"version":2,
     "snapshotVersion":2,"snapshot":{...},"events":[[1,{...}],[2,{...}]]}

`updated` is in microseconds since 1970, `snapshot` a Task of A2A 1.0, an event a StreamResponse with its number. Who is
at work on a task is not carried, nor what was answered to which message.
"""

from __future__ import annotations

import time
from typing import Final

import msgspec

from tieline.event import Event
from tieline.stores.base import Record, StoredTask
from tieline.types import StreamResponse, Task, TaskState, load

__all__ = ["HEAD", "check_head", "line_of", "task_of"]

_FORMAT: Final = "tieline-tasks"
_VERSION: Final = 1
_AHEAD_US: Final = 24 * 3600 * 1_000_000  # of this machine's clock


class _Head(msgspec.Struct):
    format: str
    version: int


class _Line(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    scope: str
    id: str
    context_id: str
    state: TaskState
    updated: int
    version: int
    snapshot_version: int
    snapshot: msgspec.Raw
    events: list[tuple[int, msgspec.Raw]]


HEAD: Final = msgspec.json.encode(_Head(_FORMAT, _VERSION)) + b"\n"
_decode: Final = msgspec.json.Decoder(_Line).decode


def line_of(task: StoredTask) -> bytes:
    """A task as a line."""
    record = task.record
    line = _Line(
        record.scope,
        record.task_id,
        record.context_id,
        record.state,
        record.updated,
        record.version,
        record.snapshot_version,
        msgspec.Raw(record.snapshot),
        [(number, msgspec.Raw(event.json)) for number, event in task.events],
    )
    return msgspec.json.encode(line) + b"\n"


def check_head(line: bytes) -> None:
    """Raises ValueError when a first line is not that of this format, or of a version that is not known here."""
    try:
        head = msgspec.json.decode(line, type=_Head)
    except ValueError:  # JSON that is none, or in which something is missing
        head = None
    if head is None or head.format != _FORMAT:
        raise ValueError("this is no export of tasks")
    if head.version != _VERSION:
        raise ValueError(f"the export has version {head.version}; this version of tieline reads {_VERSION}")


def task_of(line: bytes) -> StoredTask:
    """The task of a line. Raises ValueError with what is wrong with it."""
    try:
        read = _decode(line)
        task = load(bytes(read.snapshot), Task)
        for _, event in read.events:
            _ = load(bytes(event), StreamResponse).event  # raises ValueError when it is none
    except (ValueError, RecursionError) as error:  # msgspec's and those of Unicode are ValueErrors
        raise ValueError(str(error) or type(error).__name__) from None
    numbers = [number for number, _ in read.events]
    if (task.id, task.context_id or "") != (read.id, read.context_id):
        raise ValueError("the snapshot is of another task")
    if read.state is TaskState.UNSPECIFIED:
        raise ValueError("the task is in no state")
    if read.snapshot_version == read.version and task.state is not read.state:
        raise ValueError(f"the task is {read.state.value} and its snapshot {task.state.value}")
    if not 1 <= read.snapshot_version <= read.version:
        raise ValueError(f"the snapshot is of event {read.snapshot_version} of {read.version}")
    if numbers and (numbers[0] < 1 or numbers != list(range(numbers[0], read.version + 1))):
        raise ValueError(f"the events are not numbered up to {read.version} without a gap")
    if read.snapshot_version < read.version and (not numbers or numbers[0] > read.snapshot_version + 1):
        raise ValueError(f"events between the snapshot ({read.snapshot_version}) and the end are missing")
    if not 0 <= read.updated <= time.time_ns() // 1000 + _AHEAD_US:
        raise ValueError(f"updated ({read.updated}) is no moment of the past")
    record = Record(
        read.scope,
        read.id,
        read.context_id,
        read.state,
        read.updated,
        read.version,
        bytes(read.snapshot),
        read.snapshot_version,
    )
    return StoredTask(record, [(number, Event(json=bytes(event))) for number, event in read.events])
