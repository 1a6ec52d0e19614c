"""Where credentials may go: to the origin that an agent's card came from, and to those that are trusted by name.

An origin is a scheme, a host and a port (RFC 6454). An address of gRPC is one, too: `HOST:PORT` counts as `http://`, or
as `https://` on port 443, as it is called.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import urlsplit

from yarl import URL

from tieline.card import AgentInterface
from tieline.errors import OriginNotTrusted

__all__ = [
    "crosses_in_clear",
    "encrypted",
    "is_this_machine",
    "origin_of",
    "pinned",
    "trusted_origins",
]

_AS_HTTP: Final = {"http": "http", "https": "https", "grpc": "http", "grpcs": "https"}


def encrypted(url: str) -> bool:
    """Whether requests to `url` are encrypted. HOST:PORT is an address of gRPC, which encrypts at port 443."""
    scheme, separator, _ = url.partition("://")
    return scheme.lower() in ("https", "grpcs") if separator else url.endswith(":443")


def crosses_in_clear(url: str) -> bool:
    """Whether a request to `url` can be read on its way: one that is not encrypted, to another machine."""
    if encrypted(url):
        return False
    try:
        host = urlsplit(url if "://" in url else f"//{url}").hostname
    except ValueError:
        return True
    return not is_this_machine(host or "")


def is_this_machine(host: str) -> bool:
    """Whether a host is the loopback interface, by name or by address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def origin_of(url: str | URL) -> str | None:
    """The origin of a URL, or of an address of gRPC, in the one form that can be compared; None when it has none."""
    scheme, separator, rest = str(url).partition("://")
    if not separator:
        scheme, rest = ("https" if encrypted(scheme) else "http"), scheme
    as_http = _AS_HTTP.get(scheme.lower())
    if as_http is None:
        return None
    try:
        found = URL(f"{as_http}://{rest}").origin()
        return str(found.with_port(None) if found.is_default_port() else found)
    except ValueError:
        return None


def trusted_origins(trust: str | Iterable[str]) -> frozenset[str]:
    """Origins that a user has named.

    Raises:
        ValueError: one is no origin, or more than one.
    """
    found = set()
    for text in (trust,) if isinstance(trust, str) else trust:
        scheme, separator, _ = text.partition("://")
        origin = origin_of(text) if separator and scheme.lower() in _AS_HTTP else None
        if origin is None or "*" in text or "@" in text or text.rstrip("/").count("/") != 2:
            raise ValueError(f"{text.rpartition('@')[2]!r} is not an origin: write https://HOST or https://HOST:PORT")
        found.add(origin)
    return frozenset(found)


def pinned(
    interfaces: Sequence[AgentInterface], home: str | None, trusted: frozenset[str], *, secret: bool
) -> tuple[AgentInterface, ...]:
    """Those interfaces that may have credentials, in their order.

    Args:
        interfaces: At least one.
        home: The origin that the card came from; None where the caller has vouched for it: then each is at home.
        trusted: See `trusted_origins`.
        secret: Whether an unencrypted connection to another machine counts as one that may not.

    Raises:
        OriginNotTrusted: none is left.
    """
    kept = tuple(each for each in interfaces if _may(each, home, trusted, secret=secret))
    if kept:
        return kept
    first = interfaces[0]
    name = origin_of(first.url)
    if name is None:
        raise OriginNotTrusted(
            f"The card names {first.url[:200]!r}, which is no URL: nothing was sent there.", origin=""
        )
    remedy = f'If they should, trust it by name: trust=("{name}",).'
    if home is not None and not _at_home(first, home):
        raise OriginNotTrusted(
            f"The card of {home} sends you to {name}: credentials do not go to another origin.", remedy, origin=name
        )
    raise OriginNotTrusted(
        f"Credentials would go to {name} unencrypted, where others can read them.", remedy, origin=name
    )


def _may(interface: AgentInterface, home: str | None, trusted: frozenset[str], *, secret: bool) -> bool:
    if origin_of(interface.url) in trusted:
        return True
    if secret and crosses_in_clear(interface.url):
        return False
    return home is None or _at_home(interface, home)


def _at_home(interface: AgentInterface, home: str) -> bool:
    """Whether an interface is at the card's origin; gRPC, whose port is always another one, at its host, and not with
    less protection."""
    origin = origin_of(interface.url)
    if origin is None or interface.protocol_binding != "GRPC":
        return origin == home
    host, own = URL(origin).host, URL(home).host
    here = host == own or (is_this_machine(host or "") and is_this_machine(own or ""))
    return here and (encrypted(origin) or not encrypted(home))
