"""Whether a card is signed by somebody who is known: its keys found, its signatures checked (A2A 1.0 §8.4.3).

Keys are those that the caller names, by file or URL. Where none are named, a signature may name them itself (`jku`), at
the origin that the card came from: that says that the card is its host's, unchanged, and no more. Everywhere else
`jku` is what a stranger says, and counts only for hosts that the caller has named.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from yarl import URL

from tieline.client.http import Http, Verify, shown
from tieline.client.origin import is_this_machine
from tieline.client.transport import NotServed, Timeouts
from tieline.errors import A2AError, CardNotVerified
from tieline.wire.canonical import NotCanonical
from tieline.wire.signed import MOST_CARD_BYTES, SignatureHeader, load_card, signature_headers
from tieline.wire.signing import SignatureCheck, SignatureState, check_signatures

if TYPE_CHECKING:
    from tieline.signing_keys import PublicKey

__all__ = ["CardVerification", "KeySource", "Trust", "refusal", "satisfies", "unsigned", "verified"]

_MOST_KEY_BYTES: Final = 256 * 1024
_MOST_KEY_URLS: Final = 4  # that the signatures of one card may name

KeySource = str | PathLike[str]
"""Where keys are: an https URL of a JWK set, or a file with a JWK set, a JWK, or a key in PEM."""


class Trust(msgspec.Struct, frozen=True):
    """Whose signatures are believed. See `connect`."""

    keys: tuple[KeySource, ...] = ()
    key_hosts: frozenset[str] = frozenset()
    required: bool = False

    @classmethod
    def of(cls, keys: KeySource | Sequence[KeySource], key_hosts: Iterable[str], required: bool) -> Trust:
        """Raises TypeError and ValueError for what is neither a file nor a URL that may be believed."""
        several = (keys,) if isinstance(keys, str | PathLike) else tuple(keys)
        for source in several:
            if not isinstance(source, str | PathLike):
                raise TypeError(f"card keys are files or URLs, and not a {type(source).__name__}")
            if (url := _url(source)) is not None and (fault := _unsafe(url)):
                raise ValueError(f"the card keys at {shown(url)} cannot be used: {fault}")
        hosts = (key_hosts,) if isinstance(key_hosts, str) else key_hosts
        return cls(several, frozenset(host.lower() for host in hosts), required)


class CardVerification(msgspec.Struct, frozen=True):
    """Whether a card is what somebody known has signed.

    `state` is "verified", "unverifiable" (by a key that is not known here), "invalid" (the card was changed, or the
    signature is none) or "absent" (not signed). One verified signature is enough; `signatures` tells of each.
    """

    state: SignatureState
    reason: str  # a sentence
    key_id: str | None = None
    key_source: str | None = None  # the file or URL that the key is from
    algorithm: str | None = None
    signatures: tuple[SignatureCheck, ...] = ()

    @property
    def document(self) -> bytes | None:
        """The JSON that the verified signatures vouch for; members of the card that are not in it are nobody's word."""
        found = [each.document for each in self.signatures if each.document is not None]
        return max(found, key=len, default=None)


def unsigned(reason: str = "The card is not signed.") -> CardVerification:
    """What is said of a card without a signature."""
    return CardVerification(SignatureState.ABSENT, reason)


def satisfies(verification: CardVerification, trust: Trust) -> bool:
    """Whether the card is as signed as the caller insists."""
    return verification.state is SignatureState.VERIFIED or not trust.required


def refusal(verification: CardVerification, where: str) -> CardNotVerified:
    """Why the card at `where` is refused."""
    return CardNotVerified(f"The agent card at {where} is {_WORDS[verification.state]}: {verification.reason}")


_WORDS: Final = {
    SignatureState.VERIFIED: "verified",
    SignatureState.UNVERIFIABLE: "signed by nobody who is known here",
    SignatureState.INVALID: "not what its signature says",
    SignatureState.ABSENT: "not signed, and has to be",
}


async def verified(
    document: bytes, home: URL | None, trust: Trust, *, timeouts: Timeouts, verify: Verify = True
) -> CardVerification:
    """Check the signatures of the card in `document`; `home` is the URL that it came from.

    Keys are fetched without credentials, within the time limit for cards. Those that cannot be fetched are as good as
    not known.

    Raises:
        ValueError, OSError: a file that the caller named has no keys in it, or cannot be read.
    """
    if len(document) > MOST_CARD_BYTES:
        reason = f"It is too large to be checked: {len(document)} bytes, and {MOST_CARD_BYTES} at most are."
        return CardVerification(SignatureState.UNVERIFIABLE, reason)
    try:
        headers = signature_headers(load_card(document))
    except NotCanonical as error:
        return CardVerification(SignatureState.INVALID, f"It has no canonical form to be signed: {error}.")
    if not headers:
        return unsigned()
    urls, strange = _key_urls(headers, home, trust)
    keys: list[PublicKey] = []
    notes: list[str] = []
    if trust.keys or urls:
        try:
            keys, notes = await _keys(trust.keys, urls, timeouts, verify)
        except ImportError as error:
            return CardVerification(SignatureState.UNVERIFIABLE, f"It cannot be checked here: {error}.")
    notes += [f"The keys that it names, at {where}, are not believed: {why}." for where, why in strange.items()]
    try:
        # In a thread: the canonical forms of a large card take long to make.
        checks = await asyncio.to_thread(check_signatures, document, keys, now_s=time.time())
    except NotCanonical as error:
        return CardVerification(SignatureState.INVALID, f"It has no canonical form to be signed: {error}.")
    return _together(checks, notes)


async def _keys(
    sources: Sequence[KeySource], urls: Sequence[URL], timeouts: Timeouts, verify: Verify
) -> tuple[list[PublicKey], list[str]]:
    """The keys in files and at URLs, and a sentence for each URL that gives none.

    Raises ImportError without the extra; ValueError and OSError for a file.
    """
    from tieline.signing_keys import public_keys

    keys: list[PublicKey] = []
    notes: list[str] = []
    named = [url for source in sources if (url := _url(source)) is not None]
    for path, data in _read(sources):
        try:
            keys += public_keys(data, str(path))
        except ValueError as error:
            raise ValueError(f"{path} has no keys for signatures: {error}") from None
    for url, found in await _fetched([*named, *urls], timeouts, verify):
        try:
            if isinstance(found, str):
                raise ValueError(found)
            keys += public_keys(found, shown(url))
        except ValueError as error:
            notes.append(f"The keys at {shown(url)} cannot be had: {str(error).rstrip('.')}.")
    return keys, notes


def _read(sources: Sequence[KeySource]) -> list[tuple[Path, bytes]]:
    """The files among the sources. Raises OSError."""
    paths = [Path(fspath(source)).expanduser() for source in sources if _url(source) is None]
    return [(path, path.read_bytes()) for path in paths]


def _together(checks: Sequence[SignatureCheck], notes: Sequence[str]) -> CardVerification:
    """One verified signature is enough, else an invalid one is what is told."""
    for state in (SignatureState.VERIFIED, SignatureState.INVALID, SignatureState.UNVERIFIABLE):
        found = [check for check in checks if check.state is state]
        if found:
            break
    best = max(found, key=lambda check: len(check.document or b""))
    reason = best.reason
    if best.state is SignatureState.UNVERIFIABLE:
        reason = " ".join([reason, *notes])
    return CardVerification(best.state, reason, best.key_id, best.key_source, best.algorithm, tuple(checks))


def _key_urls(headers: Sequence[SignatureHeader], home: URL | None, trust: Trust) -> tuple[list[URL], dict[str, str]]:
    """The URLs that the signatures name and that are believed; the others, as they are shown, and why they are not."""
    believed: dict[URL, None] = {}
    strange: dict[str, str] = {}
    for header in headers:
        if header.key_url is None or header.fault:
            continue
        url = _url(header.key_url)
        try:
            at_home = url is not None and home is not None and not trust.keys and url.origin() == home.origin()
        except ValueError:
            at_home = False
        fault = _unsafe(url or URL())
        if not fault and url is not None and not at_home and not {url.host, f"{url.host}:{url.port}"} & trust.key_hosts:
            fault = (
                "nobody here has named that host" if home is None or trust.keys else "it is not the card's own origin"
            )
        if fault or url is None:
            strange[shown(header.key_url)[:200]] = fault
        elif len(believed) < _MOST_KEY_URLS:
            believed[url] = None
    return list(believed), strange


async def _fetched(urls: Sequence[URL], timeouts: Timeouts, verify: Verify) -> list[tuple[URL, bytes | str]]:
    """What is at each URL, or a sentence that says why there is nothing."""
    if not urls:
        return []
    limit = _MOST_KEY_BYTES
    # Nothing of what the agent is called with is sent there: keys are public.
    http = Http(headers={}, timeouts=timeouts, verify=verify, max_response_bytes=limit, max_event_bytes=limit)

    async def fetch(url: URL) -> bytes | str:
        try:
            answer = await http.card(url, {"Accept": "application/jwk-set+json, application/json"})
        except NotServed as error:
            return str(error.error)
        except A2AError as error:
            return str(error)
        return answer.body if answer.status == 200 else f"HTTP {answer.status}"

    try:
        return list(zip(urls, await asyncio.gather(*map(fetch, urls)), strict=True))
    finally:
        await http.close()


def _url(source: KeySource) -> URL | None:
    """The URL that it is; None is a file."""
    if not isinstance(source, str) or "://" not in source or source.startswith("file:"):
        return None
    try:
        return URL(source).with_fragment(None)
    except ValueError:
        return URL()


def _unsafe(url: URL) -> str:
    """Why keys from there would not be worth anything; "" where they are."""
    if url.scheme not in ("http", "https") or not url.host:
        return "it is no https URL"
    if url.user is not None or url.password is not None:
        return "there is a user or password in it"
    if url.scheme == "http" and not is_this_machine(url.host):
        return "anybody on the way could change them: it has to be https"
    return ""
