"""By what a webhook knows that a notification comes from the agent that it was given to."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tieline.engine.notification import NOTIFICATION_TOKEN, SIGNATURE

if TYPE_CHECKING:
    from tieline.server.jwks import Signed

__all__ = ["Credentials", "Refused"]

_TOKENS: Final = tuple(name.lower().encode() for name in NOTIFICATION_TOKEN)
_SIGNATURE: Final = SIGNATURE.lower().encode()


class Refused(Exception):
    """A notification is not taken: an HTTP status, and a sentence for its sender."""

    def __init__(self, status: int, sentence: str, challenge: str | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.challenge = challenge


class Credentials:
    """What senders have to show: all that is given here, and of several tokens any one. See WebhookReceiver.

    Raises ValueError when nothing is asked for, or when two things are that only one header has room for.
    """

    def __init__(
        self,
        *,
        token: str | Sequence[str] | None = None,
        bearer: str | Sequence[str] | None = None,
        basic: tuple[str, str] | None = None,
        jwks: str | dict[str, Any] | None = None,
        audience: str | None = None,
        issuer: str | None = None,
        anyone: bool = False,
    ) -> None:
        self._tokens = _secrets("token", token)
        self._bearers = _secrets("bearer", bearer)
        self._basic = None if basic is None else ":".join(basic).encode()
        if self._bearers and self._basic is not None:
            raise ValueError("a notification has one Authorization header: ask for bearer or for basic")
        if jwks is None and (audience is not None or issuer is not None):
            raise ValueError("audience and issuer are those of signatures: give the sender's jwks, too")
        self._verifier = None
        if jwks is not None:
            from tieline.server.jwks import Verifier

            self._verifier = Verifier(jwks, audience=audience, issuer=issuer)
        asked = bool(self._tokens or self._bearers or self._basic is not None or self._verifier is not None)
        if asked is anyone:
            raise ValueError(
                "say how senders show who they are, by token, bearer, basic or jwks; or anyone=True, and nothing of it"
            )

    def __repr__(self) -> str:
        return "Credentials(...)"

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """See that the secrets are right, in a time that says nothing about them. Raises Refused, 401."""
        authorization = headers.get(b"authorization", b"")
        scheme, _, given = authorization.partition(b" ")
        scheme, given = scheme.lower(), given.strip()
        if self._tokens:
            shown = next((headers[name] for name in _TOKENS if name in headers), None)
            if shown is None and scheme == b"bearer" and not self._bearers:
                shown = given  # as servers of 0.1 send it
            _compare("notification token", shown, self._tokens, "Bearer")
        if self._bearers:
            _compare("bearer token", given if scheme == b"bearer" else None, self._bearers, "Bearer")
        if self._basic is not None:
            _compare("user and password", _decoded(given) if scheme == b"basic" else None, (self._basic,), "Basic")

    async def check_signature(self, headers: Mapping[bytes, bytes], body: bytes) -> Signed | None:
        """What the signature says, where one is asked for. Raises Refused: 401, 403, or 503 without the keys."""
        if self._verifier is None:
            return None
        from tieline.server.jwks import NotSigned
        from tieline.server.keys import KeysUnavailable

        token = headers.get(_SIGNATURE)
        if token is None:
            scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
            token = given.strip() if scheme.lower() == b"bearer" and not self._bearers else None
        if not token:
            raise Refused(401, "The notification is not signed.", "Bearer")
        try:
            return await self._verifier.verify(token.decode("latin-1"), body)
        except NotSigned as error:
            raise Refused(403 if error.forbidden else 401, str(error), None if error.forbidden else "Bearer") from None
        except KeysUnavailable:
            raise Refused(503, "The keys that signatures are verified with cannot be read now.") from None


def _secrets(name: str, given: str | Sequence[str] | None) -> tuple[bytes, ...]:
    secrets = () if given is None else (given,) if isinstance(given, str) else tuple(given)
    if given is not None and (not secrets or not all(secrets)):
        raise ValueError(f"{name} is empty")
    return tuple(secret.encode() for secret in secrets)


def _compare(what: str, shown: bytes | None, right: Sequence[bytes], scheme: str) -> None:
    challenge = f'{scheme} realm="webhook"'
    if shown is None:
        raise Refused(401, f"The notification has no {what}.", challenge)
    found = False
    for secret in right:  # all of them, whichever it is
        found |= hmac.compare_digest(shown, secret)
    if not found:
        raise Refused(401, f"The notification has a wrong {what}.", challenge)


def _decoded(credentials: bytes) -> bytes:
    try:
        return base64.b64decode(credentials, validate=True)
    except (binascii.Error, ValueError):
        return b""
