"""What 1.0 has and 0.1 has no field for: in the metadata of the object that it belongs to. Pure.

It stands there under "tieline/<name>", and is taken out again on reading. Only what a reader would not assume anyway is
said:

    message      messageId, extensions, referenceTaskIds, role (unspecified); contextId and taskId when they are not
                 those of the task that it stands in
    artifact     artifactId, when it is neither its name, which no artifact before it has, nor "artifact-<index>"; in a
                 stream behind the first frame of an artifact its index is enough; extensions
    part         filename and mediaType of text and data; data that is no object is {"value": data}, and
                 "data_part_compat": true (without the prefix: others write it too)
    task, event  state: "rejected" is written as failed, "auth-required" as input-required
    event        contextId, when it is not the last one told; task: what a frame cannot say of the task that begins a
                 stream, {"sessionId", "history"}
    answer       answer: "message", when a message came of it and no task
    params       returnImmediately

A caller's own name that looks like one of these gets the prefix once more. An id that was made for a message that came
without one begins with "0.1/" and is not said: no speaker of 0.1 knows it. "tieline/dialect" is not said either.
"""

from __future__ import annotations

from typing import Final

from tieline.types import Metadata

__all__ = ["COMPAT", "DIALECT", "joined", "split", "text_of", "texts_of", "unmarked"]

_OWN: Final = "tieline/"

COMPAT: Final = "data_part_compat"
"""Of a part: its data is no object and stands in {"value": it}. Without the prefix, as others write it, too."""

DIALECT: Final = _OWN + "dialect"
"""Of a task: the dialect that it was begun in. Never told to a peer."""

_NAMES: Final = frozenset(
    (
        *("messageId", "contextId", "taskId", "role", "extensions", "referenceTaskIds", "artifactId"),
        *("filename", "mediaType", "state", "task", "answer", "returnImmediately", "empty"),
    )
)


def joined(metadata: Metadata | None, ours: Metadata, *, of_part: bool = False) -> Metadata | None:
    """Metadata as it is written: the peer's own, and what 0.1 has no field for."""
    if not metadata:
        if ours and metadata is not None:
            return {**ours, "tieline/empty": True}
        return ours or metadata
    if _marked(metadata, of_part):
        metadata = {_OWN + key if key.startswith(_OWN) or key == COMPAT else key: v for key, v in metadata.items()}
    return {**metadata, **ours} if ours else metadata


def split(metadata: Metadata | None, *, of_part: bool = False) -> tuple[Metadata | None, Metadata]:
    """What `joined` has put together: the peer's own, and ours by name without the prefix."""
    if not metadata or not _marked(metadata, of_part):
        return metadata, {}
    own: Metadata = {}
    ours: Metadata = {}
    for key, value in metadata.items():
        name = key.removeprefix(_OWN)
        if len(name) == len(key):
            (ours if key == COMPAT and of_part else own)[key] = value
        elif name in _NAMES:
            ours[name] = value
        else:
            own[name if name.startswith(_OWN) or name == COMPAT else key] = value
    return (own if own or "empty" in ours else None), ours


def _marked(metadata: Metadata, of_part: bool) -> bool:
    """Whether there are names in it that may be ours, or look like it."""
    return (of_part and COMPAT in metadata) or any(key.startswith(_OWN) for key in metadata)


def text_of(ours: Metadata, name: str, other: str | None) -> str | None:
    """A text that is ours; `other` when it is not there, or nothing that we would write."""
    value = ours.get(name, other)
    return value if value is None or isinstance(value, str) else other


def texts_of(ours: Metadata, name: str) -> tuple[str, ...]:
    """Texts that are ours; none when they are nothing that we would write."""
    value = ours.get(name, ())
    good = isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)
    return tuple(value) if good else ()


def unmarked(metadata: Metadata | None) -> Metadata | None:
    """A task's metadata without the mark of the dialect that it was begun in."""
    if metadata and DIALECT in metadata:
        return {key: value for key, value in metadata.items() if key != DIALECT} or None
    return metadata
