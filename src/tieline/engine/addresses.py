"""What an IP address is for: the whole internet, one network, one machine, or none of these. Pure.

The names are those that people know the ranges by; the ranges are IANA's special-purpose registries. What holds an
IPv4 address inside itself (mapped, 6to4, NAT64) is what that one is.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

__all__ = ["Kind", "is_loopback", "kind_of", "read_address"]

Address = IPv4Address | IPv6Address


class Kind(Enum):
    """What an address is for. The value is the word for it in a sentence."""

    PUBLIC = "public"
    PRIVATE = "private"  # RFC 1918, shared by carriers (100.64.0.0/10), unique local (fc00::/7)
    LOOPBACK = "loopback"
    LINK_LOCAL = "link-local"  # among them 169.254.169.254, where clouds keep the credentials of a machine
    MULTICAST = "multicast"
    UNSPECIFIED = "unspecified"
    RESERVED = "reserved"


_LOOPBACK_NAMES: Final = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")
_PRIVATE_4: Final = tuple(map(ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")))
_RESERVED_4: Final = tuple(map(ip_network, ("0.0.0.0/8", "192.0.0.0/24", "192.88.99.0/24", "198.18.0.0/15")))
_UNIQUE_LOCAL: Final = IPv6Network("fc00::/7")
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_RESERVED_6: Final = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "3fff::/20")))
_IPV4_BITS: Final = 0xFFFFFFFF


def is_loopback(host: str) -> bool:
    """Whether a host is this machine by its very name: `localhost`, one below it, or an address, also in brackets."""
    if host.lower() in _LOOPBACK_NAMES or host.lower().endswith(".localhost"):
        return True
    address = read_address(host.removeprefix("[").removesuffix("]"))
    return address is not None and kind_of(address) is Kind.LOOPBACK


def read_address(text: str) -> Address | None:
    """The address that is written, in the one way that everybody reads alike; None where it is none."""
    try:
        return ip_address(text)
    except ValueError:
        return None


@lru_cache(maxsize=4096)
def kind_of(address: Address) -> Kind:
    """What an address is for."""
    return _kind_of_4(address) if isinstance(address, IPv4Address) else _kind_of_6(address)


def _kind_of_4(address: IPv4Address) -> Kind:
    if address.is_unspecified:
        return Kind.UNSPECIFIED
    if address.is_loopback:
        return Kind.LOOPBACK
    if address.is_link_local:
        return Kind.LINK_LOCAL
    if address.is_multicast:
        return Kind.MULTICAST
    if any(address in network for network in _PRIVATE_4):
        return Kind.PRIVATE
    if address.is_reserved or not address.is_global or any(address in network for network in _RESERVED_4):
        return Kind.RESERVED
    return Kind.PUBLIC


def _kind_of_6(address: IPv6Address) -> Kind:
    if address.ipv4_mapped is not None:
        return _kind_of_4(address.ipv4_mapped)
    if address.is_unspecified:
        return Kind.UNSPECIFIED
    if address.is_loopback:
        return Kind.LOOPBACK
    if address.is_link_local or address.scope_id is not None:
        return Kind.LINK_LOCAL
    if address.is_multicast:
        return Kind.MULTICAST
    if address in _UNIQUE_LOCAL:
        return Kind.PRIVATE
    inside = IPv4Address(int(address) & _IPV4_BITS) if address in _NAT64 else address.sixtofour
    if inside is not None:
        # A translator on the way may lead anywhere in its own network: what is not public inside is not opened by
        # a permission for private addresses here.
        return Kind.PUBLIC if _kind_of_4(inside) is Kind.PUBLIC else Kind.RESERVED
    if address not in _GLOBAL_UNICAST or any(address in network for network in _RESERVED_6):
        return Kind.RESERVED
    return Kind.PUBLIC if address.is_global else Kind.RESERVED
