"""Which dialects there are, and which of them is spoken."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from tieline.errors import MethodNotFound, VersionNotSupported
from tieline.types import Encoded, Task
from tieline.wire.dialect import Dialect
from tieline.wire.v01 import V01
from tieline.wire.v03 import V03, V03_AT_ONCE
from tieline.wire.v1 import V1

__all__ = [
    "DIALECTS",
    "SHARED",
    "VERSIONS",
    "at_once",
    "begun_in",
    "dialect_of",
    "method_not_found",
    "of_versions",
    "spoken",
    "versions_of",
]

DIALECTS: Final[tuple[Dialect, ...]] = (V1, V03, V01)
"""All of them, the latest first."""

VERSIONS: Final[tuple[str, ...]] = tuple(dict.fromkeys(v for dialect in DIALECTS for v in dialect.versions))
"""All versions that are spoken, Major.Minor, the latest first."""


SHARED: Final = frozenset(
    name for dialect in DIALECTS for name in dialect.methods if sum(name in other.methods for other in DIALECTS) > 1
)
"""JSON-RPC methods that several dialects have: which one is spoken has to be told by something else."""

_NAMING: Final = tuple((dialect, dialect.new_task) for dialect in DIALECTS if dialect.new_task is not None)
_SHOWN_CHARACTERS: Final = 80
_VERSION = re.compile(r"(\d+\.\d+)(?:\.\d+)?$", re.ASCII)


def spoken(asked: str, method: str, *, served: Sequence[Dialect] = DIALECTS, strict: bool = False) -> Dialect:
    """The dialect of a JSON-RPC request: of the version that it names, else the latest that has the method.

    A patch number does not count (A2A 1.0 §3.6), but that 0.2.0 is 0.1. A version that two dialects share is that of
    the one that has the method, the later one by default. `served` are those to choose from; `strict`: who names no
    version speaks 0.3 at most (§3.6.2).

    Raises:
        VersionNotSupported: the version is not served, or a method of 1.0 came without one and `strict`.
    """
    if asked:
        version = _major_minor(asked)
        of_version = [dialect for dialect in served if version in dialect.versions]
        if not of_version:
            raise VersionNotSupported(asked, versions_of(served))
        return next((dialect for dialect in of_version if method in dialect.methods), of_version[0])
    having = [dialect for dialect in DIALECTS if method in dialect.methods]
    if having and having[0] is V1 and strict:
        raise VersionNotSupported.unsaid(method, V1.versions)
    found = next((dialect for dialect in having if dialect in served), None)
    if found is None and having:
        raise VersionNotSupported(having[0].version, versions_of(served))
    return found or served[0]


def begun_in(task: Encoded[Task], default: Dialect) -> Dialect:
    """The dialect that a task was begun in, as its metadata tells."""
    for dialect, mark in _NAMING:
        (key,) = mark
        if key.encode() in task.json and (task.value.metadata or {}).get(key) == mark[key]:
            return dialect
    return default


def at_once(dialect: Dialect) -> Dialect:
    """The dialect, but a message that does not say `blocking` is answered at once instead of when its task rests."""
    return V03_AT_ONCE if dialect is V03 else dialect


def versions_of(served: Iterable[Dialect]) -> tuple[str, ...]:
    """The versions of some dialects, each once."""
    return tuple(dict.fromkeys(version for dialect in served for version in dialect.versions))


def of_versions(versions: Iterable[str]) -> tuple[Dialect, ...]:
    """The dialects of some versions, the latest first.

    Raises ValueError for one that is not spoken, or for none.
    """
    wanted = []
    for version in versions:
        dialect = dialect_of(version)
        if dialect is None:
            raise ValueError(f"{version!r} is not a version of A2A that is spoken here: {', '.join(VERSIONS)} are")
        wanted.append(dialect)
    if not wanted:
        raise ValueError("at least one version of A2A has to be served")
    return tuple(dialect for dialect in DIALECTS if dialect in wanted)


def dialect_of(version: str) -> Dialect | None:
    """The dialect of a version as a card writes it, "0.3" or "0.3.0"; None when it is not spoken."""
    plain = _major_minor(version)
    return next((dialect for dialect in DIALECTS if plain in dialect.versions), None)


def method_not_found(dialect: Dialect, method: str) -> MethodNotFound:
    """The error for a method that a dialect has not; it says which version has it."""
    other = next((each for each in DIALECTS if method in each.methods), None)
    hint = "" if other is None else f" A2A {other.version} has it: send A2A-Version: {other.version}."
    return MethodNotFound(f"There is no method {method[:_SHOWN_CHARACTERS]!r} in A2A {dialect.version}.{hint}")


def _major_minor(version: str) -> str | None:
    if version == "0.2.0":  # the one patch that counts: message/send came with the next
        return "0.1"
    match = _VERSION.match(version)
    return match.group(1) if match else None
