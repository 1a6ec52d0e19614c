"""Signatures of webhooks: a JWT that says which server sent which body, for receivers who hold no secret.

The shape is that of the samples and guides of A2A: a Bearer token with `request_body_sha256`, whose public key is
found at /.well-known/jwks.json of the server.
"""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any, Final

from tieline.engine.guard import target_of

try:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from joserfc import jwt
    from joserfc.errors import JoseError
    from joserfc.jwk import ECKey, RSAKey
except ImportError as error:  # pragma: no cover
    raise ImportError(f"Signed webhooks need: pip install 'tieline[auth]' ({error})") from error

__all__ = ["Signer"]

_VALID_S: Final = 300  # the samples of A2A refuse what is older than five minutes
_LEAST_RSA_BITS: Final = 2048
_ALGORITHMS: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
_CURVES: Final = frozenset(("secp256r1", "secp384r1", "secp521r1"))
_WANTED: Final = "an RSA key of 2048 bits or more, or an EC key on P-256, P-384 or P-521"


class Signer:
    """Signs the bodies of webhooks with a private key.

    `issuer`: who the receivers know the server as, its public URL. Signing with EC takes a sixth of the time of RSA.
    """

    def __init__(self, key: RSAKey | ECKey, issuer: str) -> None:
        self.issuer = issuer
        self._key = key
        self._kid = key.kid or key.thumbprint()
        self._algorithm = "RS256" if isinstance(key, RSAKey) else _ALGORITHMS[key.curve_name]
        self._header = {"alg": self._algorithm, "kid": self._kid}

    def __repr__(self) -> str:
        return f"Signer(issuer={self.issuer!r}, kid={self._kid!r})"

    @classmethod
    def from_file(cls, path: str | Path, issuer: str) -> Signer:
        """A signer with the private key in a file, PEM without a password, or a JWK, whose `kid` is kept.

        Raises ValueError, or OSError, with a sentence that shows nothing of the file's content.
        """
        data = Path(path).read_bytes()
        try:
            key = _read_jwk(data) if data.lstrip().startswith(b"{") else _read_pem(data)
        except (ValueError, TypeError, KeyError, JoseError):
            key = None
        if key is None:
            raise ValueError(f"{path} has no private key to sign with: {_WANTED}, as PEM without a password or as JWK")
        return cls(key, issuer)

    def sign(self, body: bytes, *, url: str, task_id: str, key: str) -> str:
        """A JWT for one POST of `body` to `url`, valid for five minutes from now.

        `url`: one that a Guard has allowed; its origin is the audience. `key`: the notification's
        (notification.idempotency_key), which is its `jti`, the same whenever it is tried again.
        """
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": target_of(url).origin,
            "iat": now,
            "exp": now + _VALID_S,
            "jti": key.strip('"'),
            "taskId": task_id,
            "request_body_sha256": hashlib.sha256(body).hexdigest(),
        }
        return jwt.encode(self._header, claims, self._key, algorithms=[self._algorithm])

    def public_keys(self) -> dict[str, Any]:
        """The JWKS document (RFC 7517 §5) for /.well-known/jwks.json: the public key alone."""
        public = {name: value for name, value in self._key.as_dict(private=False).items() if name != "key_ops"}
        return {"keys": [{**public, "kid": self._kid, "use": "sig", "alg": self._algorithm}]}


def _read_jwk(data: bytes) -> RSAKey | ECKey | None:
    read = json.loads(data)
    key: RSAKey | ECKey
    if read.get("kty") == "RSA":
        key = RSAKey.import_key(read)
    elif read.get("kty") == "EC":
        key = ECKey.import_key(read)
    else:
        return None
    return key if key.is_private and _is_strong(key.raw_value) else None


def _read_pem(data: bytes) -> RSAKey | ECKey | None:
    read = load_pem_private_key(data, password=None)
    if not _is_strong(read):
        return None
    if isinstance(read, RSAPrivateKey):
        return RSAKey.import_key(read)
    return ECKey.import_key(read) if isinstance(read, EllipticCurvePrivateKey) else None


def _is_strong(key: object) -> bool:
    if isinstance(key, RSAPrivateKey):
        return key.key_size >= _LEAST_RSA_BITS
    return isinstance(key, EllipticCurvePrivateKey) and key.curve.name in _CURVES
