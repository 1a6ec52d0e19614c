"""What a reference to an agent means: a file with a card, or the URLs where its card may be."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from urllib.request import url2pathname

from yarl import URL

from tieline.card import WELL_KNOWN_PATH
from tieline.errors import CardNotFound

__all__ = ["card_file", "card_urls"]

_OLD_WELL_KNOWN_PATH = "/.well-known/agent.json"
"""Where the card was before A2A 0.3; some servers have it only there."""


def card_file(ref: str) -> Path | None:
    """The file that a reference names; None when it is one to the network.

    `file:` URLs, paths that begin with /, ./, ../ or ~, and names of files that exist.
    """
    if ref.startswith("file:"):
        return Path(url2pathname(ref.removeprefix("file:").removeprefix("//")))
    if "://" in ref:
        return None
    if ref.startswith(("/", "./", "../", "~")):
        return Path(ref).expanduser()
    path = Path(ref)
    return path if path.is_file() else None


def card_urls(ref: str) -> tuple[URL, ...]:
    """Where to look for the card, in order: below the path, then below the origin, then at the URL itself.

    A URL that names a .json file, or is a well-known one, is the card's own. A host without a scheme is called by
    https, this machine and private networks by http.

    Raises:
        CardNotFound: not a reference to anything.
    """
    if not ref or ref != ref.strip() or any(character.isspace() for character in ref):
        raise CardNotFound(f"{ref!r} is not a host, URL or file.")
    try:
        url = URL(ref if "://" in ref else f"{_scheme(ref)}://{ref}")
        host, _ = url.host, url.port
    except ValueError:
        url, host = URL(), None
    if not host or url.scheme not in ("http", "https"):
        raise CardNotFound(f"{_without_query(ref)!r} is not an http or https URL, a host or a file.")
    url = url.with_fragment(None)
    if url.path.endswith(".json") or "/.well-known/" in url.path:
        return (url,)
    path = url.raw_path.rstrip("/")
    places = [path + WELL_KNOWN_PATH, WELL_KNOWN_PATH, path + _OLD_WELL_KNOWN_PATH, _OLD_WELL_KNOWN_PATH]
    found = [url.with_path(place, encoded=True) for place in dict.fromkeys(places)]
    return (*found, url) if path else tuple(found)


def _scheme(ref: str) -> str:
    """http for hosts of this machine and of private networks, where certificates are rare; else https."""
    authority = ref.partition("/")[0].rpartition("@")[2]
    host = authority.partition("]")[0].lstrip("[") if authority.startswith("[") else authority.partition(":")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "http" if "." not in host or host.endswith((".localhost", ".local", ".internal")) else "https"
    return "http" if address.is_private or address.is_loopback else "https"


def _without_query(ref: str) -> str:
    return ref.partition("?")[0].rpartition("@")[2]
