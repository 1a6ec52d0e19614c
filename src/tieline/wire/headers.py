"""Service parameters in HTTP headers (A2A 1.0 §3.2.6, §9.2, §11.2), and media types of bodies."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tieline.errors import MediaTypeNotSupported, VersionNotSupported

__all__ = ["check_json", "check_version", "event_number", "extensions_of"]

VERSIONS = ("1.0",)
"""The protocol versions that are served."""

_VERSION = re.compile(r"(\d+\.\d+)(?:\.\d+)?$")


def check_version(asked: str, *, strict: bool = False) -> str:
    """The served version that a request asks for; a patch number does not count (§3.6).

    A request that names none is served as 1.0, as many peers in the field name none; `strict` takes it for 0.3, as
    §3.6.2 has it.

    Raises:
        VersionNotSupported
    """
    if asked in VERSIONS:
        return asked
    if not asked and not strict:
        return VERSIONS[-1]
    match = _VERSION.match(asked)
    if match is None or match.group(1) not in VERSIONS:
        raise VersionNotSupported(asked or "0.3", VERSIONS)
    return match.group(1)


def extensions_of(values: Iterable[str]) -> tuple[str, ...]:
    """The URIs of one or more A2A-Extensions headers, each once, in order."""
    uris = (uri.strip() for value in values for uri in value.split(","))
    return tuple(dict.fromkeys(uri for uri in uris if uri))


def check_json(content_type: str) -> None:
    """Raises MediaTypeNotSupported unless the body is JSON, or says nothing of what it is.

    A web page can send text/plain to any server without asking it first; JSON it cannot.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type and media_type != "application/json" and not media_type.endswith("+json"):
        raise MediaTypeNotSupported(
            f"The request's Content-Type is {media_type}: send application/json or application/a2a+json.",
            metadata={"mediaType": media_type},
        )


def event_number(last_event_id: str | None) -> int | None:
    """The number in a Last-Event-ID; None where there is none that we could have given."""
    ours = last_event_id is not None and last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) < 19
    return int(last_event_id) if ours and last_event_id else None
