"""What goes over the wire, for those who look for a fault: logger "tieline.client", level DEBUG.

Values that may be secret are not shown: of headers and query parameters only those that the protocol itself makes.
Bodies are shown as they are, up to a length.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Final

from yarl import URL

__all__ = ["SHOWN_HEADERS", "SHOWN_QUERY", "log_data", "log_request", "log_response", "logging_wire"]

_log = logging.getLogger("tieline.client")

_SHOWN_BYTES: Final = 16 * 1024
_REDACTED: Final = "[redacted]"
SHOWN_HEADERS: Final = frozenset(
    (
        "a2a-version",
        "a2a-extensions",
        "accept",
        "age",
        "allow",
        "cache-control",
        "content-encoding",
        "content-length",
        "content-type",
        "date",
        "etag",
        "if-modified-since",
        "if-none-match",
        "last-event-id",
        "last-modified",
        "retry-after",
        "server",
        "transfer-encoding",
        "user-agent",
        "vary",
        "www-authenticate",
    )
)
_SECRET_MEMBER: Final = re.compile(rb'("(?:token|credentials)"\s*:\s*)"(?:[^"\\]|\\.)*(?:"|\Z)', re.DOTALL)
"""What a webhook is to be told by (A2A 1.0 §4.3), in JSON that may be cut off."""

SHOWN_QUERY: Final = frozenset(
    (
        "contextId",
        "historyLength",
        "includeArtifacts",
        "pageSize",
        "pageToken",
        "status",
        "statusTimestampAfter",
        "tenant",
    )
)


def logging_wire() -> bool:
    """Whether anybody wants to see it."""
    return _log.isEnabledFor(logging.DEBUG)


def log_request(verb: str, url: URL, headers: Mapping[str, str], body: bytes | None) -> None:
    """A request that is about to be sent."""
    _log.debug("--> %s %s%s%s", verb, _url(url), _headers(headers), _body(body or b""))


def log_response(status: int, headers: Mapping[str, str]) -> None:
    """The head of a response."""
    _log.debug("<-- HTTP %d%s", status, _headers(headers))


def log_data(data: bytes) -> None:
    """A body, or the next piece of a stream."""
    _log.debug("<-- %d bytes%s", len(data), _body(data))


def _url(url: URL) -> str:
    plain = url.with_user(None).with_fragment(None)
    pairs = [(name, value if name in SHOWN_QUERY else _REDACTED) for name, value in plain.query.items()]
    query = "&".join(f"{name}={value}" for name, value in pairs)
    return f"{plain.with_query(None)}{f'?{query}' if query else ''}"


def _headers(headers: Mapping[str, str]) -> str:
    lines = [f"{name}: {value if name.lower() in SHOWN_HEADERS else _REDACTED}" for name, value in headers.items()]
    return "".join(f"\n    {line}" for line in lines)


def _body(body: bytes) -> str:
    if not body:
        return ""
    more = f" ... ({len(body)} bytes)" if len(body) > _SHOWN_BYTES else ""
    shown = _SECRET_MEMBER.sub(rb'\1"' + _REDACTED.encode() + b'"', body[:_SHOWN_BYTES])
    return "\n    " + shown.decode("utf-8", "replace").rstrip() + more
