"""Signatures of webhooks, verified with the keys that their sender has published (JWKS)."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp

from tieline.engine.addresses import Kind, kind_of, read_address

try:
    from joserfc import jws, jwt
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet
except ImportError as error:  # pragma: no cover
    raise ImportError(f"Signed webhooks need: pip install 'tieline[auth]' ({error})") from error

__all__ = ["KeysUnavailable", "NotSigned", "Signed", "Verifier"]

_ALGORITHMS: Final = ("RS256", "ES256", "PS256", "RS384", "ES384", "PS384", "RS512", "ES512", "PS512")
_KEYS_BYTES: Final = 256 * 1024
_FETCH_S: Final = 10.0
_KEPT_S: Final = 3600.0
_PAUSE_S: Final = 30.0  # between two fetches for keys that are not known
_PAUSE_AFTER_FAILURE_S: Final = 5.0
_AGE_S: Final = 300.0
_SKEW_S: Final = 60.0
_TOKEN_CHARACTERS: Final = 16_384


class NotSigned(Exception):
    """A signature lacks something or is not valid; the sentence says what. `forbidden`: valid, but not for this."""

    def __init__(self, sentence: str, *, forbidden: bool = False) -> None:
        super().__init__(sentence)
        self.forbidden = forbidden


class KeysUnavailable(Exception):
    """The keys cannot be read now."""


class Signed:
    """What a signature says. `task_id` and `id` are None where it does not."""

    __slots__ = ("id", "issuer", "task_id")

    def __init__(self, claims: dict[str, Any]) -> None:
        self.issuer = _text(claims.get("iss"))
        self.task_id = _text(claims.get("taskId"))
        self.id = _text(claims.get("jti"))


class Verifier:
    """Verifies the signatures of one sender's notifications.

    `keys`: the URL of its JWKS document, https unless it is on this machine, or the document itself. `audience`,
    `issuer`: what `aud` and `iss` have to be. A signature is taken for `max_age_s` seconds behind its `iat`.

    Raises ValueError when the URL is none to trust, or the document has no keys.
    """

    def __init__(
        self,
        keys: str | dict[str, Any],
        *,
        audience: str | None = None,
        issuer: str | None = None,
        max_age_s: float = _AGE_S,
    ) -> None:
        self._audience = None if audience is None else audience.rstrip("/")
        self._issuer = issuer
        self._max_age_s = max_age_s
        self._url = keys if isinstance(keys, str) else None
        self._keys = None if isinstance(keys, str) else _key_set(keys)
        self._until = 0.0 if self._url is not None else float("inf")
        self._fetched = float("-inf")
        self._fetching = asyncio.Lock()
        if self._url is not None:
            _check_url(self._url)

    async def verify(self, token: str, body: bytes) -> Signed:
        """What a signature of `body` says.

        Raises:
            NotSigned: it is not valid, too old, for somebody else, or of another body.
            KeysUnavailable: it cannot be told, as the keys cannot be read.
        """
        if len(token) > _TOKEN_CHARACTERS:
            raise NotSigned("The signature is too long.")
        try:
            header = jws.extract_compact(token.encode("ascii")).headers()
        except (JoseError, ValueError):
            raise NotSigned("The signature is not a JWT.") from None
        kid = header.get("kid")
        keys = await self._known(kid if isinstance(kid, str) else None)
        try:
            claims = jwt.decode(token, keys, algorithms=list(_ALGORITHMS)).claims
        except (JoseError, ValueError, TypeError, KeyError):
            raise NotSigned("The signature is not valid, or by a key that is not published.") from None
        self._check(claims, body)
        return Signed(claims)

    def _check(self, claims: dict[str, Any], body: bytes) -> None:
        now = time.time()
        made, until, since = (_number(claims.get(name)) for name in ("iat", "exp", "nbf"))
        if made is None:
            raise NotSigned("The signature does not say when it was made (iat).")
        if made > now + _SKEW_S or made < now - self._max_age_s:
            raise NotSigned(f"The signature was not made within the last {self._max_age_s:g} seconds (iat).")
        if (until is not None and until < now - _SKEW_S) or (since is not None and since > now + _SKEW_S):
            raise NotSigned("The signature has expired, or does not count yet.")
        digest = _text(claims.get("request_body_sha256")) or ""
        if not hmac.compare_digest(digest.lower().encode(), hashlib.sha256(body).hexdigest().encode()):
            raise NotSigned("The signature is not of this body (request_body_sha256).", forbidden=True)
        if self._issuer is not None and claims.get("iss") != self._issuer:
            raise NotSigned("The signature is by another sender (iss).", forbidden=True)
        meant = claims.get("aud")
        named = [str(each).rstrip("/") for each in (meant if isinstance(meant, list) else [meant])]
        if self._audience is not None and self._audience not in named:
            raise NotSigned("The signature is for another receiver (aud).", forbidden=True)

    async def _known(self, kid: str | None) -> KeySet:
        """The keys, fetched anew where they are old, or where `kid` is not among them. Raises KeysUnavailable."""
        if self._is_known(kid):
            assert self._keys is not None
            return self._keys
        async with self._fetching:
            now = time.monotonic()
            if not self._is_known(kid) and self._url is not None and now - self._fetched >= _PAUSE_S:
                self._fetched = now
                try:
                    self._keys = await _fetched(self._url)
                    self._until = now + _KEPT_S
                except KeysUnavailable:
                    self._fetched = now - _PAUSE_S + _PAUSE_AFTER_FAILURE_S
                    if self._keys is None:
                        raise
        if self._keys is None:
            raise KeysUnavailable("The keys of the sender cannot be read.")
        return self._keys

    def _is_known(self, kid: str | None) -> bool:
        if self._keys is None or time.monotonic() > self._until:
            return False
        return kid is None or any(key.kid == kid for key in self._keys.keys)


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    address = read_address(parts.hostname or "")
    here = parts.hostname == "localhost" or (address is not None and kind_of(address) is Kind.LOOPBACK)
    if parts.scheme != "https" and not (here and parts.scheme == "http"):
        raise ValueError(f"{url!r} is no URL to read keys from: it has to be https, or on this machine")


async def _fetched(url: str) -> KeySet:
    """Raises KeysUnavailable."""
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_FETCH_S), trust_env=True) as session,
            session.get(url, headers={"Accept": "application/json"}, allow_redirects=False) as response,
        ):
            if response.status != 200:
                raise KeysUnavailable(f"{url} answered HTTP {response.status}.")
            data = await response.content.read(_KEYS_BYTES + 1)
            while len(data) <= _KEYS_BYTES and (more := await response.content.read(_KEYS_BYTES)):
                data += more
    except (aiohttp.ClientError, OSError) as error:  # TimeoutError is one
        raise KeysUnavailable(f"{url} cannot be read: {error or 'it took too long'}") from error
    if len(data) > _KEYS_BYTES:
        raise KeysUnavailable(f"{url} is longer than {_KEYS_BYTES} bytes.")
    try:
        return _key_set(json.loads(data))
    except ValueError as error:
        raise KeysUnavailable(f"{url} holds no keys: {error}") from error


def _key_set(document: Any) -> KeySet:
    """The public keys of a JWKS document that are of a kind that is known. Raises ValueError."""
    listed = document.get("keys") if isinstance(document, dict) else None
    usable = (
        [key for key in listed if isinstance(key, dict) and key.get("kty") in ("RSA", "EC")]
        if isinstance(listed, list)
        else []
    )
    if not usable:
        raise ValueError("it has to be a JWKS document with an RSA or EC key")
    try:
        return KeySet.import_key_set({"keys": usable})
    except (JoseError, ValueError, TypeError, KeyError) as error:
        raise ValueError("a key in it is not valid") from error


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
