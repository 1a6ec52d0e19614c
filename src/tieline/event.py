"""An event of a task's log in the forms that it is wanted in: as a value, as JSON, and as other dialects write it."""

from __future__ import annotations

from tieline.types import (
    Message,
    StreamEvent,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatusUpdateEvent,
    encode,
    load,
)

__all__ = ["Event", "TextChunk"]

_FIELDS: dict[type, bytes] = {
    Task: b'{"task":',
    Message: b'{"message":',
    TaskStatusUpdateEvent: b'{"statusUpdate":',
    TaskArtifactUpdateEvent: b'{"artifactUpdate":',
}


class Event:
    """One event of a log: its value and its canonical JSON (a StreamResponse), each made once, when first wanted.

    `told` is its JSON in another dialect, kept by whoever made it (wire/) for all followers of that dialect.
    """

    __slots__ = ("_json", "_value", "told")

    def __init__(self, value: StreamEvent | None = None, json: bytes | None = None) -> None:
        self._value = value
        self._json = json
        self.told: tuple[object, bytes] | None = None  # who made it, and what

    @property
    def value(self) -> StreamEvent:
        if self._value is None:
            assert self._json is not None
            self._value = load(self._json, StreamResponse).event
        return self._value

    @property
    def json(self) -> bytes:
        if self._json is None:
            value = self._value
            self._json = _FIELDS[type(value)] + encode(value) + b"}"
        return self._json


class TextChunk(Event):
    """The next piece of an artifact's text: what streams of words are made of, with nothing made for it but bytes."""

    __slots__ = ("artifact_id", "media_type", "text")

    def __init__(self, json: bytes, artifact_id: str, text: str, media_type: str | None) -> None:
        self._value = None
        self._json = json
        self.told = None
        self.artifact_id = artifact_id
        self.text = text
        self.media_type = media_type
