"""Signatures of webhooks: a JWT that says which server sent which body, for receivers who hold no secret.

The shape is that of the samples and guides of A2A: a Bearer token with `request_body_sha256`, whose public key is
found at /.well-known/jwks.json of the server.
"""

from __future__ import annotations

import hashlib
import time
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any, Final

import msgspec

from tieline.engine.guard import target_of
from tieline.signing_keys import InvalidKey, PrivateKey
from tieline.types import encode

__all__ = ["Signer"]

_VALID_S: Final = 300  # the samples of A2A refuse what is older than five minutes


class Signer:
    """Signs the bodies of webhooks with a private key.

    `issuer`: who the receivers know the server as, its public URL. Signing with EC takes a sixth of the time of RSA.
    """

    def __init__(self, key: PrivateKey, issuer: str) -> None:
        self.issuer = issuer
        self._key = key
        self._header = _base64url(encode({"alg": key.algorithm, "kid": key.key_id}))

    def __repr__(self) -> str:
        return f"Signer(issuer={self.issuer!r}, kid={self._key.key_id!r})"

    @classmethod
    def from_file(cls, path: str | Path, issuer: str) -> Signer:
        """A signer with the private key in a file: PEM without a password, a JWK, whose `kid` is kept, or a set of one.

        The key is of P-256, Ed25519, or RSA of 2048 bits at least. Raises ValueError, or OSError, with a sentence that
        shows nothing of the file's content.
        """
        try:
            return cls(PrivateKey(Path(path).read_bytes()), issuer)
        except InvalidKey as error:
            raise ValueError(f"{path} cannot sign webhooks: {error}") from None

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
        signed = self._header + b"." + _base64url(encode(claims))
        return (signed + b"." + _base64url(self._key.sign(signed))).decode("ascii")

    def public_keys(self) -> dict[str, Any]:
        """The JWKS document (RFC 7517 §5) for /.well-known/jwks.json: the public key alone."""
        document: dict[str, Any] = msgspec.json.decode(self._key.jwks)
        return document


def _base64url(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")
