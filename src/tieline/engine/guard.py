"""Which URLs a webhook may have: what a server is asked to call must not be what only the server can reach. Pure.

A caller names the URL, and the server calls it from inside its own network (A2A 1.0 §13.2). So by default a webhook is
https, and every address of its host is public. Two checks do it: `check` when a webhook is set, without DNS, and
`refusal` for the addresses that its name has at the moment of each delivery (sender.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final
from urllib.parse import quote, urlsplit

import msgspec
from msgspec.structs import force_setattr

from tieline.engine.addresses import Address, Kind, is_loopback, kind_of, read_address

__all__ = ["Guard", "Target", "target_of"]

_URL_CHARACTERS: Final = 4096
_SCHEMES: Final = {"https": 443, "http": 80}
_HOST: Final = re.compile(
    r"(?=.{1,253}\Z)(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\Z"
)
_NUMBER: Final = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)\Z")
_VISIBLE_ASCII: Final = "".join(map(chr, range(0x21, 0x7F)))


class Target(msgspec.Struct, frozen=True):
    """Where a URL leads. `host`: in lower case, an IPv6 address without brackets; `path`: with its query."""

    scheme: str
    host: str
    port: int
    path: str
    address: Address | None  # where the host is an address, and no name

    @property
    def origin(self) -> str:
        """Scheme, host, and port where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if self.port == _SCHEMES[self.scheme] else f":{self.port}")


class Guard(msgspec.Struct, frozen=True):
    """Which URLs a webhook may have (A2A 1.0 §13.2).

    `allow_private` opens the addresses of private networks, `allow_loopback` those of this machine; plain http is
    allowed to what they open. Link-local addresses, where clouds keep credentials, and reserved ones are never
    allowed. `allowed`: the only hosts there are, as `example.com`, `*.example.com` (the names below it), an address, or
    one of these with `:port`; empty is every host. It opens no private address by itself.

    Raises ValueError for an entry of `allowed` that is no host.
    """

    allow_private: bool = False
    allow_loopback: bool = False
    allowed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "allowed", tuple(self.allowed))  # a list may have been given; what is hashed is a tuple
        for entry in self.allowed:
            _read_entry(entry)

    def check(self, url: str) -> Target:
        """Where a webhook's URL leads, as far as can be told without DNS.

        Raises ValueError with a sentence for the caller, which begins with a verb ("has to be ...").
        """
        return _checked(self, url)

    def refusal(self, target: Target, addresses: Iterable[Address]) -> str | None:
        """Why a target must not be called at these addresses, which are all that its host has; None when it may be.

        One that is refused refuses all: a name is not half trusted. The sentence names no address, as the caller may
        not learn what names mean inside this network.
        """
        reason = self.not_listed(target)
        if reason is not None:
            return reason
        none = True
        for address in addresses:
            none = False
            kind = kind_of(address)
            if not self.opens(kind) and kind is not Kind.PUBLIC:
                return _is_not_public(kind)
            if kind is Kind.PUBLIC and target.scheme == "http":
                return "has to be an https URL: its host is at a public address"
        return "has a host without an address" if none else None

    def opens(self, kind: Kind) -> bool:
        """Whether addresses that are not public are allowed for their kind."""
        return (kind is Kind.PRIVATE and self.allow_private) or (kind is Kind.LOOPBACK and self.allow_loopback)

    def not_listed(self, target: Target) -> str | None:
        """Why a target is not among the hosts there are; None when it is."""
        if not self.allowed or any(_matches(_read_entry(entry), target) for entry in self.allowed):
            return None
        return "has a host that is not among those allowed here"


@lru_cache(maxsize=1024)
def _checked(guard: Guard, url: str) -> Target:
    target = target_of(url)
    if target.scheme == "http" and not (guard.allow_private or guard.allow_loopback):
        raise ValueError("has to be an https URL")
    if target.address is not None:
        reason = guard.refusal(target, (target.address,))
    else:
        reason = guard.not_listed(target)
        if reason is None and not guard.allow_loopback and is_loopback(target.host):
            reason = _is_not_public(Kind.LOOPBACK)
    if reason is not None:
        raise ValueError(reason)
    return target


def _is_not_public(kind: Kind) -> str:
    return f"has a host at {'an' if kind.value[0] in 'aeiou' else 'a'} {kind.value} address, which is not allowed here"


@lru_cache(maxsize=1024)
def target_of(url: str) -> Target:
    """Where a URL leads, read so strictly that every other reader of it comes to the same host.

    Raises ValueError with a sentence that begins with a verb.
    """
    if len(url) > _URL_CHARACTERS:
        raise ValueError(f"has to be at most {_URL_CHARACTERS} characters long")
    if not url.isprintable() or " " in url or "\\" in url:
        raise ValueError("has to be a URL without spaces, control characters and backslashes")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError("has to be a URL with a host, and a port from 1 to 65535 where it has one") from None
    if parts.scheme not in _SCHEMES:
        raise ValueError("has to be an https URL")
    if "@" in parts.netloc:
        raise ValueError("has to be a URL without a user name and password: give them as authentication")
    if port == 0 or parts.netloc.endswith(":"):
        raise ValueError("has to have a port from 1 to 65535, or none")
    host, address = _read_host(parts.hostname or "", bracketed="[" in parts.netloc)
    path = quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe=_VISIBLE_ASCII)
    return Target(parts.scheme, host, port or _SCHEMES[parts.scheme], path, address)


def _read_host(host: str, *, bracketed: bool) -> tuple[str, Address | None]:
    """A host name, or an address. Raises ValueError."""
    if not host:
        raise ValueError("has to be a URL with a host")
    if bracketed:
        address = read_address(host)
        if address is None or address.version != 6 or "%" in host:
            raise ValueError("has to have an IPv6 address between the brackets, without a zone")
        return str(address), address
    if not host.isascii():
        raise ValueError("has to have a host in ASCII: an international name as it is in DNS, xn--...")
    if host.endswith("."):
        raise ValueError("has to have a host without a dot at the end")
    if _NUMBER.match(host.rpartition(".")[2]):
        # Resolvers take 127.1, 0x7f000001, 017700000001 and 2130706433 for addresses, too.
        address = read_address(host)
        if address is None:
            raise ValueError("has to have an address as four decimal numbers, without leading zeros")
        return host, address
    if not _HOST.match(host):
        raise ValueError("has to have a host of letters, digits, hyphens and dots")
    return host, None


# --- the list of those allowed ----------------------------------------------------------------------------------------


class _Entry(msgspec.Struct, frozen=True):
    host: str
    below: bool  # the names below it, not itself
    port: int | None


@lru_cache(maxsize=1024)
def _read_entry(entry: str) -> _Entry:
    """An entry of the list. Raises ValueError."""
    below = entry.startswith("*.")
    try:
        text = entry[2:] if below else entry
        if text.count(":") > 1 and "[" not in text:
            text = f"[{text}]"
        if any(mark in text for mark in "/?#@\\"):
            raise ValueError
        parts = urlsplit(f"//{text.lower()}")
        host, address = _read_host(parts.hostname or "", bracketed="[" in text)
        if (below and address is not None) or parts.port == 0:
            raise ValueError
        return _Entry(host, below, parts.port)
    except ValueError:
        raise ValueError(
            f"{entry!r} is no host: hosts are allowed as example.com, *.example.com or example.com:8443"
        ) from None


def _matches(entry: _Entry, target: Target) -> bool:
    if entry.port is not None and entry.port != target.port:
        return False
    return target.host.endswith(f".{entry.host}") if entry.below else target.host == entry.host
