"""What an OpenID provider signs with, and what it signs: keys that rotate, and tokens right or wrong at will."""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Mapping
from typing import Any, Final

from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

__all__ = ["Keys", "MISBEHAVIOURS", "claims_of", "unsigned"]

Json = dict[str, Any]

MISBEHAVIOURS: Final = ("wrong_audience", "wrong_issuer", "expired", "not_yet", "alg_none", "key_swapped")
"""How a provider's tokens can be wrong, by name."""

_FAR_S: Final = 3600


class Keys:
    """A key of each algorithm in force, those that were, and one that was never published."""

    def __init__(self) -> None:
        self._generation = 0
        self._current: dict[str, ECKey | RSAKey] = {}
        self._retired: dict[str, ECKey | RSAKey] = {}
        self._foreign = _made("foreign")
        self.rotate()

    def rotate(self, *, keep: bool = True) -> None:
        """Sign with new keys from now on; those before stay published, or (not `keep`) are gone."""
        self._generation += 1
        self._retired = self._current if keep else {}
        self._current = _made(str(self._generation))

    @property
    def published(self) -> Json:
        """The JWKS document."""
        keys = [*self._current.values(), *self._retired.values()]
        return {"keys": [key.as_dict(private=False) for key in keys]}

    def sign(self, claims: Mapping[str, Any], *, alg: str, key: str = "current", header: Json | None = None) -> str:
        """A JWT. `key`: current, retired, foreign, or swapped (a foreign key under the name of the current one).

        Raises ValueError for a key that is none of these, or not there.
        """
        if alg == "none":
            return unsigned(claims, header)
        current = self._current.get(alg)
        chosen = {"current": current, "retired": self._retired.get(alg), "foreign": self._foreign.get(alg)}
        chosen["swapped"] = chosen["foreign"]
        signing = chosen.get(key)
        if signing is None or current is None:
            raise ValueError(f"there is no {key} key for {alg}")
        kid = current.kid if key == "swapped" else signing.kid
        whole = {"alg": alg, "kid": kid, "typ": "at+jwt", **(header or {})}
        return jwt.encode({k: v for k, v in whole.items() if v is not None}, dict(claims), signing, algorithms=[alg])


def _made(generation: str) -> dict[str, ECKey | RSAKey]:
    return {
        "ES256": ECKey.generate_key("P-256", {"kid": f"es256-{generation}", "alg": "ES256", "use": "sig"}),
        "RS256": RSAKey.generate_key(2048, {"kid": f"rs256-{generation}", "alg": "RS256", "use": "sig"}),
    }


def unsigned(claims: Mapping[str, Any], header: Json | None = None) -> str:
    """A token that claims to need no signature."""
    pieces = ({"alg": "none", "typ": "JWT", **(header or {})}, dict(claims))
    encoded = [base64.urlsafe_b64encode(json.dumps(piece).encode()).rstrip(b"=").decode() for piece in pieces]
    return ".".join((*encoded, ""))


def claims_of(
    issuer: str, audience: str | list[str], subject: str, *, lifetime_s: float, wrong: str = "", **more: Any
) -> Json:
    """The claims of a token that begins now; `wrong` is one of MISBEHAVIOURS."""
    now = int(time.time())
    claims: Json = {
        "iss": issuer,
        "aud": audience,
        "sub": subject,
        "iat": now,
        "nbf": now,
        "exp": now + int(lifetime_s),
        "jti": secrets.token_hex(8),
        **more,
    }
    changes: Mapping[str, Json] = {
        "wrong_audience": {"aud": "somebody-else"},
        "wrong_issuer": {"iss": "https://issuer.invalid"},
        "expired": {"iat": now - 2 * _FAR_S, "nbf": now - 2 * _FAR_S, "exp": now - _FAR_S},
        "not_yet": {"nbf": now + _FAR_S, "exp": now + 2 * _FAR_S},
    }
    return {**claims, **changes.get(wrong, {})}
