"""Signatures of webhooks, verified with the keys that their sender has published (JWKS)."""

from __future__ import annotations

import hashlib
import hmac
import time
from typing import Any, Final

try:
    from joserfc import jws, jwt
    from joserfc.errors import JoseError

    from tieline.server.keys import PublicKeys
except ImportError as error:  # pragma: no cover
    raise ImportError(f"signatures need the extra `auth`: pip install 'tieline[auth]' ({error})") from error

__all__ = ["NotSigned", "Signed", "Verifier"]

_ALGORITHMS: Final = ("RS256", "ES256", "EdDSA", "PS256", "RS384", "ES384", "PS384", "RS512", "ES512", "PS512")
_AGE_S: Final = 300.0
_SKEW_S: Final = 60.0
_TOKEN_CHARACTERS: Final = 16_384


class NotSigned(Exception):
    """A signature lacks something or is not valid; the sentence says what. `forbidden`: valid, but not for this."""

    def __init__(self, sentence: str, *, forbidden: bool = False) -> None:
        super().__init__(sentence)
        self.forbidden = forbidden


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
        self._keys = PublicKeys(url=keys) if isinstance(keys, str) else PublicKeys(document=keys)

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
        for key in await self._keys.for_header(header):
            try:
                claims = jwt.decode(token, key, algorithms=list(_ALGORITHMS)).claims
                break
            except (JoseError, ValueError, TypeError, KeyError):
                continue
        else:
            raise NotSigned("The signature is not valid, or by a key that is not published.")
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


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
