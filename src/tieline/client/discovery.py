"""From a reference to an agent's card: where it may be, and how it is fetched and kept (A2A 1.0 §8.2, §8.6.2)."""

from __future__ import annotations

import ipaddress
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Final
from urllib.request import url2pathname

import msgspec
from yarl import URL

from tieline.card import OLD_WELL_KNOWN_PATH, WELL_KNOWN_PATH, AgentCard, bars_calls, check_card
from tieline.client.credentials import ClientCertificate
from tieline.client.http import Http, Verify, basic_authorization, check_authentication, shown
from tieline.client.transport import NotServed, Timeouts
from tieline.errors import CardNotFound, InvalidCard, InvalidParams, InvalidPeerResponse
from tieline.wire import cards as forms
from tieline.wire.dialects import DIALECTS

__all__ = [
    "CardCache",
    "FoundCard",
    "card_file",
    "card_urls",
    "checked",
    "fetch_card",
    "find_card",
    "read_card",
    "without_user",
]

_MAX_AGE = re.compile(r'(?:^|[\s,])max-age\s*=\s*"?(\d{1,9})"?', re.IGNORECASE)
_NOT_HERE: Final = frozenset((404, 405, 406, 410))
_KEPT: Final = 256
_MAX_CARD_BYTES: Final = 16 * 1024 * 1024


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
    if not ref or ref != ref.strip() or any(character.isspace() or not character.isprintable() for character in ref):
        raise CardNotFound(f"{_without_query(ref)!r} is not a host, URL or file.")
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
    places = [path + WELL_KNOWN_PATH, WELL_KNOWN_PATH, path + OLD_WELL_KNOWN_PATH, OLD_WELL_KNOWN_PATH]
    found = [url.with_path(place, encoded=True) for place in dict.fromkeys(places)]
    return (*found, url) if path else tuple(found)


def without_user(ref: str | PathLike[str]) -> tuple[str | PathLike[str], str | None]:
    """A reference without user and password, and these as an Authorization header.

    Raises:
        CardNotFound: they cannot be read.
    """
    if not isinstance(ref, str) or card_file(ref) is not None:
        return ref, None
    scheme, separator, rest = ref.rpartition("://")
    user, at, _ = rest.partition("/")[0].rpartition("@")
    if not at:
        return ref, None
    try:
        authorization = basic_authorization(URL(f"http://{user}@host/"))
    except ValueError:
        raise CardNotFound("The user and password in the URL cannot be read: write % and @ as %25 and %40.") from None
    return f"{scheme}{separator}{rest[len(user) + 1 :]}", authorization


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


class FoundCard(msgspec.Struct, frozen=True):
    """A usable agent card of any version, as it was found."""

    card: AgentCard
    document: bytes  # the JSON as it came: a signature covers members, too, that AgentCard has not (A2A 1.0 §8.4.1)
    where: str  # its URL without user, password and query, or the path of its file
    url: URL | None = None  # to ask for it again; None is a file
    authorization: str | None = None  # user and password in the reference: the agent gets them, too
    faults: tuple[str, ...] = ()  # what A2A 1.0 wants and the card has not; none of it bars calls


class _Kept(msgspec.Struct):
    found: FoundCard
    fresh_until: float
    etag: str
    modified: str


class CardCache:
    """Cards by URL and the headers they were asked for with, each as long as its server allows.

    A fresh card is used without a request; one that has expired is asked for with If-None-Match or If-Modified-Since
    and kept on a 304. A server that says nothing about caching is asked each time. Give one cache to several `connect`
    calls to share what they know. `clock` gives seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, kept: int = _KEPT) -> None:
        self._clock = clock
        self._limit = kept
        self._cards: OrderedDict[tuple[str, frozenset[tuple[str, str]]], _Kept] = OrderedDict()

    async def get(self, http: Http, url: URL, headers: Mapping[str, str]) -> FoundCard | None:
        """The card at a URL; None when nothing is there. `headers` are those of `http`.

        Raises:
            InvalidCard: it is not a card, or not a valid one.
            AuthenticationRequired, Unreachable, PeerTimeout, InvalidPeerResponse: the server could not tell.
        """
        key = (str(url), frozenset(headers.items()))
        kept = self._cards.get(key)
        asking = {"Accept": "application/json"}
        if kept is not None:
            if self._clock() < kept.fresh_until:
                return kept.found
            if kept.etag:
                asking["If-None-Match"] = kept.etag
            if kept.modified:
                asking["If-Modified-Since"] = kept.modified
        try:
            answer = await http.card(url, asking)
        except NotServed as error:
            raise error.error from None
        if answer.status == 304 and kept is not None:
            kept.fresh_until = self._clock() + _fresh_s(answer.headers)
            return kept.found
        self._cards.pop(key, None)
        if answer.status != 200:
            check_authentication(answer)
            if answer.status not in _NOT_HERE:
                says = f": {answer.excerpt}" if answer.body else "."
                raise InvalidPeerResponse(f"{answer.url} answered HTTP {answer.status} instead of an agent card{says}")
            return None
        found = read_card(answer.body, answer.url, url)
        self._keep(key, found, answer.headers)
        return found

    def _keep(self, key: tuple[str, frozenset[tuple[str, str]]], found: FoundCard, headers: Mapping[str, str]) -> None:
        if "no-store" in headers.get("cache-control", "").lower():
            return
        etag, modified = headers.get("etag", ""), headers.get("last-modified", "")
        fresh_s = _fresh_s(headers)
        if fresh_s or etag or modified:
            self._cards[key] = _Kept(found, self._clock() + fresh_s, etag, modified)
            if len(self._cards) > self._limit:
                self._cards.popitem(last=False)


async def fetch_card(
    ref: str | PathLike[str],
    *,
    verify: Verify = True,
    certificate: ClientCertificate | None = None,
    version: str | None = None,
) -> FoundCard:
    """Find and read an agent's card, as `connect` does. No credentials are sent but those in `ref` itself.

    `version` is told to the server, which may have a card of its own for it; `certificate` is shown in the TLS
    handshake.

    Raises:
        CardNotFound, InvalidCard: there is none, or no valid one.
        AuthenticationRequired, Unreachable, PeerTimeout, InvalidPeerResponse: the server could not tell.
    """
    ref, authorization = without_user(ref)
    headers = {"A2A-Version": version or DIALECTS[0].version}
    if authorization is not None:
        headers["Authorization"] = authorization
    limit = _MAX_CARD_BYTES
    http = Http(
        headers=headers,
        timeouts=Timeouts(),
        verify=verify,
        certificate=certificate,
        max_response_bytes=limit,
        max_event_bytes=limit,
    )
    try:
        found = await find_card(ref, http, headers, CardCache())
    finally:
        await http.close()
    return msgspec.structs.replace(found, authorization=authorization)


async def find_card(ref: str | PathLike[str], http: Http, headers: Mapping[str, str], cache: CardCache) -> FoundCard:
    """The card that a reference (`without_user`) leads to: the first of the places that has one. See `fetch_card`."""
    path = card_file(ref) if isinstance(ref, str) else Path(fspath(ref))
    if path is not None:
        try:
            document = path.read_bytes()
        except OSError as error:
            raise CardNotFound(f"The card file {str(path)!r} cannot be read: {error.strerror or error}.") from None
        return read_card(document, str(path))
    fault: InvalidCard | None = None
    urls = card_urls(str(ref))
    for url in urls:
        try:
            found = await cache.get(http, url, headers)
        except InvalidCard as error:
            fault = fault or error
            continue
        if found is not None:
            return found
    raise fault or CardNotFound(f"There is no agent card at {', '.join(map(shown, urls))}.")


def read_card(document: bytes, where: str, url: URL | None = None) -> FoundCard:
    """A usable card from JSON.

    Raises:
        InvalidCard: with what is wrong, each fault with the path of its field; `violations` has them one by one.
    """
    try:
        card = forms.read(document)
    except InvalidParams as error:
        raise InvalidCard(f"The agent card at {where} is not valid: {error}.", violations=error.violations) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise InvalidCard(f"What is at {where} is not an agent card: it is not JSON.") from None
    return FoundCard(checked(card, where), document, where, url, faults=tuple(check_card(card)))


_OF_INTERFACE = re.compile(r"supportedInterfaces\[(\d+)\]")


def checked(card: AgentCard, where: str) -> AgentCard:
    """`card`, when an agent can be called with it; interfaces that lead nowhere are left out.

    Raises:
        InvalidCard: with all faults, also those that alone do not bar calls (`bars_calls`).
    """
    faults = sorted(check_card(card), key=lambda fault: not bars_calls(fault))  # what bars calls comes first
    barring = [fault for fault in faults if bars_calls(fault)]
    broken = {int(match.group(1)) for fault in barring if (match := _OF_INTERFACE.match(fault))}
    sound = tuple(each for index, each in enumerate(card.supported_interfaces) if index not in broken)
    if sound and all(_OF_INTERFACE.match(fault) for fault in barring):
        return msgspec.structs.replace(card, supported_interfaces=sound) if broken else card
    violations = [InvalidParams.at(*fault.split(": ", 1)).violations[0] for fault in faults]
    raise InvalidCard(f"The agent card at {where} is not valid: {'; '.join(faults)}.", violations=violations)


def _fresh_s(headers: Mapping[str, str]) -> float:
    """How long a response may be used without asking again (RFC 9111 §4.2), as far as Cache-Control says."""
    control = headers.get("cache-control", "")
    if "no-cache" in control.lower() or "no-store" in control.lower():
        return 0.0
    match = _MAX_AGE.search(control)
    if match is None:
        return 0.0
    age = headers.get("age", "")
    return max(0.0, float(match.group(1)) - (float(age) if age.isdigit() and len(age) < 10 else 0.0))
