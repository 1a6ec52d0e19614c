"""What was given of one artifact. Pure: no I/O, no clock.

Only lengths and checksums are kept. How a text is cut into parts does not count: a server may keep chunks apart or
join them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from tieline.types import Artifact, Metadata, Part, TaskArtifactUpdateEvent

__all__ = ["Given"]

_Kind = tuple[Any, ...]
_TEXT = "text"


class Given:
    """What was given of one artifact: runs of text and other parts, each as a kind, a length and a checksum."""

    __slots__ = ("_head", "_may_replay", "_replay", "kinds", "lengths", "sums")

    def __init__(self, artifact: Artifact) -> None:
        self._may_replay = False
        self._replay: _Replay | None = None
        self._begin(artifact)

    def _begin(self, artifact: Artifact) -> None:
        self._head: tuple[str | None, str | None, Metadata, frozenset[str]] = (None, None, {}, frozenset())
        self.kinds: list[_Kind] = []
        self.lengths: list[int] = []
        self.sums: list[int] = []
        self.add(artifact)

    def resumed(self) -> None:
        """The stream was taken up again: it may tell the artifact from its beginning, piece by piece."""
        self._may_replay = True
        self._replay = None

    def take(self, event: TaskArtifactUpdateEvent) -> Sequence[TaskArtifactUpdateEvent]:
        """What is new in `event`. A replay is held back until it is beyond what was given, or shows to be none."""
        replay = self._replay
        if event.append:
            if replay is None:
                self._may_replay = False  # it goes on where it was
                self.add(event.artifact)
                return (event,)
            replay.add(event)
        elif self._may_replay:
            replay = _Replay(event)
        if replay is None:
            return self._take_whole(event)
        if replay.is_within(self):
            self._replay = replay
            return ()
        if replay is self._replay:
            event = replay.whole()
            self._may_replay = False
        self._replay = None
        return self._take_whole(event)

    @property
    def holds_back(self) -> bool:
        """Whether a replay is under way that has not told all that was given."""
        return self._replay is not None

    def settle(self) -> Sequence[TaskArtifactUpdateEvent]:
        """The task rests: what was held back as a replay and is shorter than what was given is another content."""
        replay, self._replay = self._replay, None
        return () if replay is None else self._take_whole(replay.whole())

    def _take_whole(self, event: TaskArtifactUpdateEvent) -> Sequence[TaskArtifactUpdateEvent]:
        artifact = event.artifact
        rest = self.rest_of(artifact.parts)
        if rest is None:
            self._begin(artifact)
            return (event,)
        news = replace(artifact, parts=tuple(rest))
        if not rest and not self.head_differs(artifact):
            return ()
        self.add(news)
        return (replace(event, artifact=news, append=True),)

    def add(self, artifact: Artifact) -> None:
        """Parts were given behind those before."""
        for part in artifact.parts:
            text = part.text
            if text is None:
                self.kinds.append(_kind(part))
                self.lengths.append(0)
                self.sums.append(_checksum(part))
            elif text:
                kind = (_TEXT, part.media_type, part.filename, part.metadata)
                if not self.kinds or self.kinds[-1] != kind:
                    self.kinds.append(kind)
                    self.lengths.append(0)
                    self.sums.append(0)
                self.lengths[-1] += len(text)
                self.sums[-1] = crc32(_bytes(text), self.sums[-1])
        if artifact.name or artifact.description or artifact.metadata or artifact.extensions:
            self._head = self._merged(artifact)

    def _merged(self, artifact: Artifact) -> tuple[str | None, str | None, Metadata, frozenset[str]]:
        name, description, metadata, extensions = self._head
        return (
            artifact.name or name,
            artifact.description or description,
            {**metadata, **(artifact.metadata or {})},
            extensions.union(artifact.extensions),
        )

    def head_differs(self, artifact: Artifact) -> bool:
        """Whether name, description, metadata or extensions say anything new."""
        return self._merged(artifact) != self._head

    def headed(self, artifact: Artifact, parts: tuple[Part, ...]) -> Artifact:
        """`artifact` with these parts, and with all that was said of it."""
        name, description, metadata, extensions = self._merged(artifact)
        return replace(
            artifact,
            parts=parts,
            name=name,
            description=description,
            metadata=metadata or artifact.metadata,
            extensions=tuple(sorted(extensions)),
        )

    def has_run_of(self, other: Given, index: int) -> bool:
        """Whether the run at `index` is the same in both."""
        return (
            self.kinds[index] == other.kinds[index]
            and self.lengths[index] == other.lengths[index]
            and self.sums[index] == other.sums[index]
        )

    def rest_of(self, parts: Sequence[Part]) -> list[Part] | None:
        """The parts behind what was given, when `parts` begin with it; None when they do not."""
        runs = _runs(parts)
        count = len(self.kinds)
        if len(runs) < count:
            return None
        rest: list[Part] = []
        for index in range(count):
            kind, part, pieces = runs[index]
            if kind != self.kinds[index]:
                return None
            if kind[0] != _TEXT:
                if _checksum(part) != self.sums[index]:
                    return None
                continue
            text = "".join(pieces)
            length = self.lengths[index]
            if len(text) < length or crc32(_bytes(text[:length])) != self.sums[index]:
                return None
            if len(text) > length:
                if index < count - 1:
                    return None
                rest.append(replace(part, text=text[length:]))
        rest += [_joined(part, pieces) for _, part, pieces in runs[count:]]
        return rest


def _runs(parts: Sequence[Part]) -> list[tuple[_Kind, Part, list[str]]]:
    """Parts with neighbouring texts of one kind joined: kind, first part, and the texts of a run."""
    runs: list[tuple[_Kind, Part, list[str]]] = []
    for part in parts:
        text = part.text
        if text is None:
            runs.append((_kind(part), part, []))
        elif text:
            kind = (_TEXT, part.media_type, part.filename, part.metadata)
            if runs and runs[-1][0] == kind:
                runs[-1][2].append(text)
            else:
                runs.append((kind, part, [text]))
    return runs


def _joined(part: Part, pieces: list[str]) -> Part:
    """A run as one part."""
    return replace(part, text="".join(pieces)) if pieces else part


def _kind(part: Part) -> _Kind:
    return (part.kind, part.media_type, part.filename, part.metadata)


def _checksum(part: Part) -> int:
    if part.raw is not None:
        return crc32(part.raw)
    if part.data is not UNSET:  # in sorted form: a server may give the members of an object in another order
        return crc32(msgspec.json.encode(part.data, order="sorted", enc_hook=str))
    return crc32(_bytes(part.url or ""))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


class _Replay:
    """An artifact as it is told again from its beginning; its parts are kept until it is clear what it is."""

    __slots__ = ("_compared", "_event", "_parts", "_told")

    def __init__(self, event: TaskArtifactUpdateEvent) -> None:
        self._event = event
        self._parts = list(event.artifact.parts)
        self._told = Given(event.artifact)
        self._compared = 0  # runs that are whole, and the same in both

    def add(self, event: TaskArtifactUpdateEvent) -> None:
        self._event = event
        self._parts += event.artifact.parts
        self._told.add(event.artifact)

    def is_within(self, given: Given) -> bool:
        """Whether this may be the beginning of what was given, and is not all of it. Texts are compared when whole."""
        told = self._told
        last = len(told.kinds) - 1
        if last < 0:
            return bool(given.kinds)
        if last >= len(given.kinds) or told.kinds[last] != given.kinds[last]:
            return False
        while self._compared < last:
            if not told.has_run_of(given, self._compared):
                return False
            self._compared += 1
        if told.lengths[last] < given.lengths[last]:
            return True
        return last < len(given.kinds) - 1 and told.has_run_of(given, last)

    def whole(self) -> TaskArtifactUpdateEvent:
        """All of it so far as one artifact that begins anew."""
        event = self._event
        parts = tuple(_joined(part, pieces) for _, part, pieces in _runs(self._parts))
        return replace(event, artifact=self._told.headed(event.artifact, parts), append=False)
