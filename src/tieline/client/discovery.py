"""Finding and reading an agent's card (A2A 1.0 §8.2), with the rules of HTTP caching (§8.6.2)."""

from __future__ import annotations

import json
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec
from yarl import URL

from tieline.card import AgentCard, check_card
from tieline.client.http import Answer, Http, check_authentication, shown
from tieline.client.references import card_urls
from tieline.client.transport import NotServed
from tieline.errors import CardNotFound, InvalidCard, InvalidParams, InvalidPeerResponse
from tieline.types import decode

__all__ = ["CardCache", "checked", "find_card", "read_card", "read_card_file"]

_MAX_AGE = re.compile(r'(?:^|[\s,])max-age\s*=\s*"?(\d{1,9})"?', re.IGNORECASE)
_NOT_HERE: Final = frozenset((404, 405, 406, 410))
_KEPT: Final = 256


class _Kept(msgspec.Struct):
    card: AgentCard
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

    async def get(self, http: Http, url: URL, headers: Mapping[str, str]) -> AgentCard | Answer:
        """The card at a URL; the answer as it is where that is no success.

        Raises:
            InvalidCard: it is not a card, or not a valid one.
            PeerError, NotServed: as Http.card does.
        """
        key = (str(url), frozenset(headers.items()))
        kept = self._cards.get(key)
        asking = {"Accept": "application/json"}
        if kept is not None:
            if self._clock() < kept.fresh_until:
                return kept.card
            if kept.etag:
                asking["If-None-Match"] = kept.etag
            if kept.modified:
                asking["If-Modified-Since"] = kept.modified
        answer = await http.card(url, asking)
        if answer.status == 304 and kept is not None:
            kept.fresh_until = self._clock() + _fresh_s(answer.headers)
            return kept.card
        if answer.status != 200:
            self._cards.pop(key, None)
            return answer
        card = read_card(answer.body, answer.url)
        self._keep(key, card, answer.headers)
        return card

    def _keep(self, key: tuple[str, frozenset[tuple[str, str]]], card: AgentCard, headers: Mapping[str, str]) -> None:
        self._cards.pop(key, None)
        if "no-store" in headers.get("cache-control", "").lower():
            return
        etag, modified = headers.get("etag", ""), headers.get("last-modified", "")
        fresh_s = _fresh_s(headers)
        if fresh_s or etag or modified:
            self._cards[key] = _Kept(card, self._clock() + fresh_s, etag, modified)
            if len(self._cards) > self._limit:
                self._cards.popitem(last=False)


async def find_card(http: Http, ref: str, headers: Mapping[str, str], cache: CardCache) -> tuple[AgentCard, URL]:
    """The card that a reference leads to, and where it was: the first of the places that has one.

    Raises:
        CardNotFound: none of them has.
        InvalidCard: one has something else, and none a valid card.
        AuthenticationRequired, Unreachable, PeerTimeout, InvalidPeerResponse: the server could not tell.
    """
    fault: InvalidCard | None = None
    looked: list[str] = []
    for url in card_urls(ref):
        try:
            found = await cache.get(http, url, headers)
        except InvalidCard as error:
            fault = fault or error
            continue
        except NotServed as error:
            raise error.error from None
        if isinstance(found, AgentCard):
            return found, url
        check_authentication(found)
        if found.status not in _NOT_HERE:
            raise InvalidPeerResponse(f"{found.url} answered HTTP {found.status} instead of an agent card.")
        looked.append(shown(url))
    if fault is not None:
        raise fault
    raise CardNotFound(f"There is no agent card at {', '.join(looked)}.")


def read_card_file(path: Path) -> AgentCard:
    """The card in a file. Raises CardNotFound when it cannot be read, InvalidCard when it holds no valid one."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CardNotFound(f"The card file {str(path)!r} cannot be read: {error.strerror or error}.") from None
    return read_card(data, str(path))


def read_card(data: bytes, where: str) -> AgentCard:
    """A valid card from JSON.

    Raises:
        InvalidCard: with what is wrong, each fault with the path of its field; `violations` has them one by one.
    """
    try:
        card = decode(data, AgentCard)
    except InvalidParams as error:
        old = _version_of_old_card(data)
        words = f"it is a card of A2A {old}, and this client speaks 1.0" if old else str(error)
        raise InvalidCard(f"The agent card at {where} is not valid: {words}.", violations=error.violations) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise InvalidCard(f"What is at {where} is not an agent card: it is not JSON.") from None
    return checked(card, where)


def checked(card: AgentCard, where: str) -> AgentCard:
    """`card`, when nothing is wrong with it. Raises InvalidCard."""
    faults = check_card(card)
    if faults:
        violations = [InvalidParams.at(*fault.split(": ", 1)).violations[0] for fault in faults]
        raise InvalidCard(f"The agent card at {where} is not valid: {'; '.join(faults)}.", violations=violations)
    return card


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


def _version_of_old_card(data: bytes) -> str | None:
    """The version that a card of A2A before 1.0 names; None when it is none."""
    try:
        card = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(card, dict) or "supportedInterfaces" in card or not isinstance(card.get("url"), str):
        return None
    return str(card.get("protocolVersion") or "0.2")
