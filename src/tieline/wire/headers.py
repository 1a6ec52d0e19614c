"""Service parameters in HTTP headers (A2A 1.0 §3.2.6, §9.2, §11.2), and media types of bodies."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import parse_qsl

from tieline.errors import MediaTypeNotSupported

__all__ = ["check_json", "event_number", "extensions_of", "version_in"]


def version_in(query: bytes) -> str:
    """The A2A-Version in a query (§3.6.1); "" when there is none."""
    pairs = parse_qsl(query.decode("latin-1")) if query else ()
    return next((value.strip() for name, value in pairs if name.lower() == "a2a-version"), "")


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
