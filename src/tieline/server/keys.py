"""The public keys of who issues tokens: a JWKS (RFC 7517), fetched, kept, and fetched anew when it may have changed."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

import aiohttp
from cryptography.exceptions import UnsupportedAlgorithm
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, KeySet, OKPKey, RSAKey

__all__ = ["KeysUnavailable", "PublicKeys", "fetched_json", "is_safe_url"]

log = logging.getLogger("tieline.server")

_FETCH_S: Final = 10.0
_BYTES: Final = 1024 * 1024
_OLD_S: Final = 600.0  # a key that its issuer has withdrawn is believed for so long at most
_STALE_S: Final = 24 * 3600.0  # keys stay in use for so long when they cannot be fetched anew
_LEAST_RSA_BITS: Final = 2048
_PUBLIC: Final = ("RSA", "EC", "OKP")

_Key = RSAKey | ECKey | OKPKey


class KeysUnavailable(Exception):
    """The keys cannot be had now. The sentence is for the operator."""


def is_safe_url(url: str) -> bool:
    """Whether what is fetched from there can be believed: https, or this machine."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme == "https" or (
        parts.scheme == "http" and (parts.hostname or "") in ("localhost", "127.0.0.1", "::1")
    )


async def fetched_json(url: str) -> dict[str, Any]:
    """A JSON object from a URL; redirects are not followed. Raises KeysUnavailable."""
    try:
        timeout = aiohttp.ClientTimeout(total=_FETCH_S)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, allow_redirects=False, headers={"accept": "application/json"}) as response,
        ):
            if response.status != 200:
                raise KeysUnavailable(f"{url} answers HTTP {response.status}")
            body = await response.content.read(_BYTES + 1)
            while not response.content.at_eof() and len(body) <= _BYTES:
                body += await response.content.read(_BYTES + 1 - len(body))
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        raise KeysUnavailable(f"{url} cannot be read: {error or type(error).__name__}") from error
    if len(body) > _BYTES:
        raise KeysUnavailable(f"{url} is larger than {_BYTES} bytes")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise KeysUnavailable(f"{url} is not JSON") from error
    if not isinstance(found, dict):
        raise KeysUnavailable(f"{url} is not a JSON object")
    return found


class PublicKeys:
    """Keys that tokens may be signed with: from a URL, which may be found out when it is needed first, or a file.

    `generation` changes with the keys.
    """

    again_s: ClassVar[float] = 10.0  # between two fetches that unknown keys, or an issuer that is away, bring about

    def __init__(
        self,
        *,
        url: str | Callable[[], Awaitable[str]] | None = None,
        file: Path | None = None,
        document: Any = None,
    ) -> None:
        """Raises ValueError when the URL is not safe, or the file or document holds no keys."""
        self.generation = 0
        self._url = url if url is None or callable(url) else _said(url)
        self._keys: dict[str, _Key] = {}  # by key id
        self._nameless: list[_Key] = []
        self._fetched = -_STALE_S * 2  # monotonic
        self._tried = -_STALE_S * 2
        self._fetching: asyncio.Task[None] | None = None
        if file is not None:
            try:
                self._take(json.loads(file.read_bytes()))
            except (OSError, ValueError, KeysUnavailable) as error:
                raise ValueError(f"{file} holds no JWKS: {error}") from None
        if document is not None:
            try:
                self._take(document)
            except KeysUnavailable as error:
                raise ValueError(f"the document is no JWKS: {error}") from None

    async def for_header(self, header: dict[str, Any]) -> list[_Key]:
        """The keys that a token with this header may be signed with; [] when there is none.

        Raises KeysUnavailable when none have been had for too long.
        """
        age_s = time.monotonic() - self._fetched
        if self._url is not None and age_s > _OLD_S and (age_s > _STALE_S or self._may_try):
            await self._refresh()
        found = self._named(header)
        if not found and self._url is not None and self._may_try:
            await self._refresh()  # the issuer may have a new key
            found = self._named(header)
        return found

    def _named(self, header: dict[str, Any]) -> list[_Key]:
        kid = header.get("kid")
        found = [*self._keys.values(), *self._nameless]
        if isinstance(kid, str):
            found = [self._keys[kid]] if kid in self._keys else self._nameless
        # A key that says for which algorithm it is serves no other (RFC 8725 §3.1).
        return [key for key in found if key.alg in (None, header.get("alg"))]

    @property
    def _may_try(self) -> bool:
        return time.monotonic() - self._tried >= self.again_s

    async def changed(self) -> bool:
        """Fetch the keys anew, if that has not been done a moment ago; whether they are other ones."""
        if self._url is None or not self._may_try:
            return False
        before = self.generation
        await self._refresh()
        return self.generation != before

    async def _refresh(self) -> None:
        if self._fetching is None:
            self._fetching = asyncio.ensure_future(self._fetch())
            self._fetching.add_done_callback(self._has_fetched)
        try:
            await asyncio.shield(self._fetching)
        except KeysUnavailable as error:
            if time.monotonic() - self._fetched > _STALE_S:
                raise
            log.warning("%s; the keys that were known before are used", error)

    def _has_fetched(self, fetching: asyncio.Task[None]) -> None:
        self._fetching = None
        if not fetching.cancelled():
            fetching.exception()  # those who wait have it; there may be none any more

    async def _fetch(self) -> None:
        assert self._url is not None
        if not self._may_try:
            raise KeysUnavailable("the keys could not be had a moment ago")
        self._tried = time.monotonic()
        self._take(await fetched_json(await self._url()))
        self._fetched = self._tried = time.monotonic()

    def _take(self, document: Any) -> None:
        """Use the keys of a JWKS: those that sign, that anybody may see, and that are long enough."""
        listed = document.get("keys") if isinstance(document, dict) else None
        if not isinstance(listed, list):
            raise KeysUnavailable("it has no `keys`")
        named: dict[str, _Key] = {}
        nameless: list[_Key] = []
        for raw in listed:
            kid = raw.get("kid") if isinstance(raw, dict) else None
            key = _usable(raw)
            if key is None:
                continue
            if isinstance(kid, str) and kid:
                named[kid] = key
            else:
                nameless.append(key)
        if not named and not nameless:
            raise KeysUnavailable("it has no public key that signs")
        if _prints(named, nameless) != _prints(self._keys, self._nameless):
            self.generation += 1
        self._keys, self._nameless = named, nameless


def _said(url: str) -> Callable[[], Awaitable[str]]:
    """A URL that is known already. Raises ValueError."""
    if not is_safe_url(url):
        raise ValueError(f"keys are fetched by https (by http from this machine alone), not from {url}")

    async def known() -> str:
        return url

    return known


def _usable(raw: Any) -> _Key | None:
    """A key of a JWKS, if tokens may be signed with it."""
    # A symmetric key, or a private one, in a public document is known to everybody.
    if not isinstance(raw, dict) or raw.get("kty") not in _PUBLIC or "d" in raw or raw.get("use", "sig") != "sig":
        return None
    try:
        (key,) = KeySet.import_key_set({"keys": [raw]}).keys
        if not isinstance(key, RSAKey | ECKey | OKPKey):
            return None
        bits = key.public_key.key_size if isinstance(key, RSAKey) else _LEAST_RSA_BITS
    except (JoseError, ValueError, TypeError, KeyError, AttributeError, OverflowError, UnsupportedAlgorithm) as error:
        log.warning("a key of a JWKS cannot be used: %s", type(error).__name__)
        return None
    if bits < _LEAST_RSA_BITS:
        log.warning("an RSA key of a JWKS is shorter than %d bits and not used", _LEAST_RSA_BITS)
        return None
    return key


def _prints(named: dict[str, _Key], nameless: list[_Key]) -> tuple[dict[str, str], list[str]]:
    """What tells one set of keys from another."""
    return {kid: key.thumbprint() for kid, key in named.items()}, sorted(key.thumbprint() for key in nameless)
