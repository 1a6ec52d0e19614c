"""Callers that show a token which somebody else has signed: a JWT (RFC 7519), by known keys or by OpenID Connect."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from tieline.card import HTTPAuthSecurityScheme, OpenIdConnectSecurityScheme, SecurityScheme
from tieline.errors import Unavailable
from tieline.server.auth.identity import Expired, Identity, Refused, Shown
from tieline.server.auth.secrets import bearer_of

__all__ = ["Jwt", "OpenIdConnect"]

log = logging.getLogger("tieline.server")

ALGORITHMS: Final = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
    "Ed25519",
)
_CHARS: Final = 16 * 1024
_OLDEST_S: Final = 300.0  # a token that was found valid is looked at anew behind this


class Jwt:
    """`Authorization: Bearer` with a JWT of `issuer`, for `audience`, signed by a key of a JWKS.

    The caller's principal is `<issuer>#<sub>`; its scopes are those of the claims `scope` or `scp`.
    """

    def __init__(
        self,
        issuer: str,
        *,
        audience: str,
        jwks: str,
        tenant_claim: str | None = None,
        skew_s: float = 60.0,
        algorithms: Iterable[str] = ALGORITHMS,
        name: str = "jwt",
    ) -> None:
        """
        Args:
            jwks: A https URL (of this machine: http, too), or the path of a file.
            tenant_claim: The claim that says for which tenant the caller may call; one without it is refused.
            skew_s: By how much the issuer's clock may differ from this one's.

        Raises:
            ValueError: it makes no sense, or the file holds no keys.
            ImportError: tieline[auth] is not installed.
        """
        self._begin(issuer, audience, tenant_claim, skew_s, algorithms, name)
        self.declared = SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme("Bearer", bearer_format="JWT"))
        keys = _keys_module()
        self._keys = keys.PublicKeys(url=jwks) if "://" in jwks else keys.PublicKeys(file=Path(jwks))

    def _begin(
        self,
        issuer: str,
        audience: str,
        tenant_claim: str | None,
        skew_s: float,
        algorithms: Iterable[str],
        name: str,
    ) -> None:
        if not issuer or not audience:
            raise ValueError("name an issuer and an audience: a token for another service must not work here")
        self.name = name
        self._issuer = issuer
        self._audience = audience
        self._tenant_claim = tenant_claim
        self._skew_s = skew_s
        self._algorithms = list(algorithms)
        if unknown := set(self._algorithms) - set(ALGORITHMS):
            raise ValueError(f"tokens of others are not checked with {', '.join(sorted(unknown))}")
        self.challenge = "Bearer"
        self.guessable = False

    @property
    def generation(self) -> int:
        found: int = self._keys.generation
        return found

    def find(self, shown: Shown) -> bytes | None:
        token = bearer_of(shown)
        return token if token is not None and token.count(b".") == 2 else None

    async def check(self, secret: bytes) -> Identity:
        if len(secret) > _CHARS:
            raise Refused("The token is too long.")
        keys = _keys_module()
        try:
            claims = await self._verified(secret)
        except keys.KeysUnavailable as error:
            log.error("tokens of %s cannot be checked: %s", self._issuer, error)
            wait_s = math.ceil(self._keys.again_s)
            raise Unavailable("Tokens cannot be checked at the moment.", retry_after_s=wait_s) from None
        return self._identity(claims)

    async def _verified(self, token: bytes) -> dict[str, Any]:
        """The claims of a token whose signature is right. Raises Refused, KeysUnavailable."""
        from joserfc import jws, jwt
        from joserfc.errors import JoseError

        try:
            header = jws.extract_compact(token).headers()
        except (JoseError, ValueError, TypeError, RecursionError):
            raise Refused("The token is not a JWT.") from None
        if header.get("alg") not in self._algorithms:
            raise Refused("The token is signed in a way that is not accepted here.")
        if "crit" in header:
            raise Refused("The token wants something understood that is not known here (crit).")
        for once_more in (True, False):
            for key in await self._keys.for_header(header):
                try:
                    return dict(jwt.decode(token, key, algorithms=self._algorithms).claims)
                except (JoseError, ValueError, TypeError, RecursionError):
                    continue
            if not once_more or not await self._keys.changed():
                break
        raise Refused("The token's signature is not by a key of its issuer.")

    def _identity(self, claims: dict[str, Any]) -> Identity:
        now = time.time()
        if claims.get("iss") != self._issuer:
            raise Refused("The token is of another issuer.")
        audience = claims.get("aud")
        if audience != self._audience and not (isinstance(audience, list) and self._audience in audience):
            raise Refused("The token is for another audience.")
        expires = _time(claims.get("exp"))
        if expires is None:
            raise Refused("The token does not say when it expires.")
        if expires + self._skew_s <= now:
            raise Expired("The token has expired.")
        for claim in ("nbf", "iat"):
            if claims.get(claim) is None:
                continue
            at = _time(claims[claim])
            if at is None or at - self._skew_s > now:
                raise Refused("The token is not valid yet.")
        subject = claims.get("sub")
        if not isinstance(subject, str) or not subject or not subject.isprintable():
            raise Refused("The token does not say whose it is (sub).")
        tenant: Any = ""
        if self._tenant_claim is not None:
            tenant = claims.get(self._tenant_claim)
            if not isinstance(tenant, str) or not tenant or not tenant.isprintable():
                raise Refused(f"The token does not say for which tenant it is ({self._tenant_claim}).")
        try:
            msgspec.json.encode(claims)
        except (UnicodeEncodeError, msgspec.MsgspecError):
            raise Refused("The token's claims are not text in Unicode.") from None
        until = min(expires + self._skew_s, now + _OLDEST_S)
        return Identity(f"{self._issuer}#{subject}", tenant, _scopes(claims), claims, until)


class OpenIdConnect(Jwt):
    """The same by an issuer that OpenID Connect Discovery knows: its keys and its card entry come from its document."""

    def __init__(
        self,
        issuer: str,
        *,
        audience: str,
        tenant_claim: str | None = None,
        skew_s: float = 60.0,
        algorithms: Iterable[str] = ALGORITHMS,
        name: str = "oidc",
    ) -> None:
        """As `Jwt`. Raises ValueError, ImportError."""
        self._begin(issuer, audience, tenant_claim, skew_s, algorithms, name)
        keys = _keys_module()
        if not keys.is_safe_url(issuer):
            raise ValueError(f"an issuer is reached by https (by http on this machine alone), not at {issuer}")
        self._document = issuer.rstrip("/") + "/.well-known/openid-configuration"
        self.declared = SecurityScheme(open_id_connect_security_scheme=OpenIdConnectSecurityScheme(self._document))
        self._keys = keys.PublicKeys(url=self._jwks_url)

    async def _jwks_url(self) -> str:
        keys = _keys_module()
        document = await keys.fetched_json(self._document)
        if document.get("issuer") != self._issuer:
            raise keys.KeysUnavailable(f"{self._document} is of another issuer")
        url = document.get("jwks_uri")
        if not isinstance(url, str) or not keys.is_safe_url(url):
            raise keys.KeysUnavailable(f"{self._document} names no safe jwks_uri")
        return url


def _keys_module() -> Any:
    """tieline.server.keys, which needs joserfc. Raises ImportError."""
    try:
        from tieline.server import keys
    except ImportError as error:
        raise ImportError(f"Tokens that others sign need: pip install 'tieline[auth]' ({error})") from None
    return keys


def _time(value: Any) -> float | None:
    """A NumericDate (RFC 7519 §2); None when it is none."""
    fits = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15
    return float(value) if fits else None


def _scopes(claims: dict[str, Any]) -> frozenset[str]:
    found: set[str] = set()
    for name in ("scope", "scp"):
        given = claims.get(name)
        if isinstance(given, str):
            found.update(given.split())
        elif isinstance(given, list):
            found.update(scope for scope in given if isinstance(scope, str))
    return frozenset(found)
