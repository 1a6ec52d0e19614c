"""What the ways to authenticate have in common: what a request shows, and whom it shows to be calling."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, Protocol

import msgspec

from tieline.card import SecurityScheme

__all__ = ["Expired", "Identity", "Refused", "Scheme", "Shown", "Together"]


class Refused(Exception):
    """What a request shows is not valid. The sentence is for the caller, and holds nothing of what was shown."""


class Expired(Refused):
    """It was valid, and its time is over; nobody has revoked it."""


class Shown(msgspec.Struct, frozen=True):
    """What a request shows of its caller. Names of headers are in small letters."""

    headers: Mapping[bytes, bytes]
    query: bytes = b""
    certificate: str | None = None  # subject of the one that TLS has verified, as in RFC 4514: CN=ada,O=Example
    peer: str = ""  # address of whoever has opened the connection: the caller, or a proxy
    address: str = ""  # of the caller, as far as proxies that are trusted say so
    repeated: frozenset[bytes] = frozenset()  # headers that came more than once

    def __repr__(self) -> str:
        return f"<Shown from {self.peer or 'nowhere'}>"  # and nothing of what is secret


class Identity(msgspec.Struct, frozen=True):
    """Who calls, as the server has found out."""

    principal: str  # owns what it makes; the same string for the same caller, always
    tenant: str = ""  # "" may name any tenant in its requests, and has its own tasks in each
    scopes: frozenset[str] = frozenset()
    claims: Mapping[str, Any] = {}  # of a JWT
    until: float | None = None  # seconds since 1970 at which it has to be shown to be valid anew


class Scheme(Protocol):
    """One way to authenticate."""

    @property
    def name(self) -> str:
        """What the card calls it in `securitySchemes`."""
        ...

    @property
    def declared(self) -> SecurityScheme:
        """What the card says of it (A2A 1.0 §4.5)."""
        ...

    @property
    def challenge(self) -> str:
        """What `WWW-Authenticate` says of it (RFC 9110 §11.6.1); "" is nothing."""
        ...

    @property
    def guessable(self) -> bool:
        """Whether people choose what is shown, so that trying has to be slow."""
        ...

    @property
    def generation(self) -> int:
        """Another number whenever what was found valid may be so no more."""
        ...

    def find(self, shown: Shown) -> bytes | None:
        """What a request shows for this scheme; None is nothing. Raises Refused when it cannot be read."""
        ...

    def check(self, secret: bytes) -> Identity | Awaitable[Identity]:
        """Whose it is. Raises Refused."""
        ...


class Together:
    """Schemes that are needed at the same time; the first one tells who calls, all of them what it may do."""

    def __init__(self, first: Scheme, *others: Scheme) -> None:
        self.schemes = (first, *others)
