"""Signing agent cards, and what becomes of the signatures that a card has (A2A 1.0 §8.4, RFC 7515).

The keys are those of signing_keys.py. This module does not load it, so that a card without a signature, and one that
nobody has keys for, need no extra.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

from tieline.types import encode
from tieline.wire.canonical import NotCanonical
from tieline.wire.signed import (
    MOST_CARD_BYTES,
    MOST_SIGNATURES,
    SignatureHeader,
    load_card,
    payloads,
    signature_headers,
)

if TYPE_CHECKING:
    from tieline.signing_keys import PrivateKey, PublicKey

__all__ = ["CardSigner", "SignatureCheck", "SignatureState", "check_signatures"]

_REFUSED: Final = frozenset(("none", "HS256", "HS384", "HS512"))
_KNOWN: Final = frozenset(("ES256", "EdDSA", "Ed25519", "RS256", "PS256"))
_MOST_TRIED: Final = 8  # keys for one signature: what they cost is somebody else's choice
_SIGNED: Final = frozenset(("whole", "1.0", "without empty values"))


class SignatureState(StrEnum):
    """What became of a signature, or of all of a card's together."""

    VERIFIED = "verified"  # by a known key, over this card
    UNVERIFIABLE = "unverifiable"  # by a key, or in a way, that is not known here
    INVALID = "invalid"  # not over this card, or none at all
    ABSENT = "absent"  # the card is not signed


class SignatureCheck(msgspec.Struct, frozen=True):
    """One signature of a card and what became of it."""

    state: SignatureState
    reason: str  # a sentence
    key_id: str | None = None
    key_source: str | None = None  # the file or URL that the key is from
    algorithm: str | None = None
    document: bytes | None = None  # the JSON that a verified signature vouches for; what else there was is nobody's


class CardSigner:
    """Signs agent cards with a private key: `tieline.app(agent, card_signer=CardSigner(path.read_bytes()))`.

    Args:
        key: The private key, as PEM (not encrypted), a JWK or a JWK set: P-256, Ed25519, or RSA of 2048 bits at least.
        key_id: The signatures' `kid`, and which key of a set is meant; None is the JWK's own, else its RFC 7638
            thumbprint.
        algorithm: "ES256", "EdDSA", "RS256" or "PS256", where the key leaves a choice: RSA signs by RS256 else.
        key_url: The signatures' `jku`, where others find the public key. None is what `sign` is told.

    Raises:
        ValueError: that is no such key.
        ImportError: the extra `auth` is not installed.
    """

    def __init__(
        self, key: bytes, *, key_id: str | None = None, algorithm: str | None = None, key_url: str | None = None
    ) -> None:
        from tieline.signing_keys import PrivateKey

        self._key: PrivateKey = PrivateKey(key, key_id=key_id, algorithm=algorithm)
        self.key_url = key_url

    def __repr__(self) -> str:
        return f"CardSigner(key_id={self.key_id!r}, algorithm={self.algorithm!r})"

    @property
    def key_id(self) -> str:
        """The signatures' `kid`."""
        return self._key.key_id

    @property
    def algorithm(self) -> str:
        """The signatures' `alg`."""
        return self._key.algorithm

    @property
    def jwks(self) -> bytes:
        """The public key as a JSON Web Key set (RFC 7517 §5), for those who verify."""
        return self._key.jwks

    def sign(self, document: bytes, *, key_url: str | None = None) -> bytes:
        """The card in `document`, with a signature for each form that verifiers may look at (`payloads`).

        Signatures by other keys stay; those with this one's id are replaced. `key_url` is the `jku` where the signer
        has none.

        Raises:
            NotCanonical: it is no card, or one that cannot be signed.
        """
        card = load_card(document)
        others = card.pop("signatures", None) or []
        if not isinstance(others, list):
            raise NotCanonical("its signatures are not an array")
        if len(others) > MOST_SIGNATURES - len(_SIGNED):
            raise NotCanonical(f"it has {len(others)} signatures already, and may have {MOST_SIGNATURES}")
        headers = signature_headers({"signatures": others})
        kept = [each for each, header in zip(others, headers, strict=True) if header.key_id != self.key_id]
        url = self.key_url or key_url
        protected = _base64url(
            encode({"alg": self.algorithm, "typ": "JOSE", "kid": self.key_id} | ({"jku": url} if url else {}))
        )
        for form in payloads(card):
            if form.name in _SIGNED:
                signature = self._key.sign(_signing_input(protected, form.data))
                kept.append({"protected": protected, "signature": _base64url(signature)})
        signed = json.dumps({**card, "signatures": kept}, ensure_ascii=False, separators=(",", ":")).encode()
        if len(signed) > MOST_CARD_BYTES:
            raise NotCanonical(f"it has {len(signed)} bytes, and nobody here verifies more than {MOST_CARD_BYTES}")
        return signed


def check_signatures(document: bytes, keys: Sequence[PublicKey], *, now_s: float) -> tuple[SignatureCheck, ...]:
    """What becomes of each signature of the card in `document`, in their order; a card without any has none.

    `now_s`: seconds since 1970, for keys that expire.

    Raises:
        NotCanonical: it is no card.
    """
    card = load_card(document)
    headers = signature_headers(card)
    if not headers:
        return ()
    forms = [(_base64url(form.data), form.card) for form in payloads(card)]
    checks = []
    for header in headers:
        state, reason, key, form = _check(header, [data for data, _ in forms], keys, now_s)
        checks.append(
            SignatureCheck(
                state,
                reason,
                header.key_id,
                None if key is None else key.source,
                header.algorithm or None,
                None if form is None else json.dumps(forms[form][1], ensure_ascii=False).encode(),
            )
        )
    return tuple(checks)


def _check(
    header: SignatureHeader, forms: Sequence[str], keys: Sequence[PublicKey], now_s: float
) -> tuple[SignatureState, str, PublicKey | None, int | None]:
    """What became of a signature and why, the key that was meant, and the form that it is over."""
    invalid, unverifiable = SignatureState.INVALID, SignatureState.UNVERIFIABLE
    algorithm = header.algorithm
    name = "a key that it does not name" if header.key_id is None else f"the key {header.key_id[:80]!r}"
    if header.fault:
        return invalid, f"It is no signature: {header.fault}.", None, None
    if algorithm in _REFUSED:
        return invalid, f"It is no signature: alg {algorithm} proves nothing about a card.", None, None
    if algorithm not in _KNOWN:
        return unverifiable, f"Its alg {algorithm[:20]!r} is not known here.", None, None
    named = [key for key in keys if key.is_named(header.key_id)]
    meant = named or [key for key in keys if key.key_id is None or header.key_id is None]
    valid = [key for key in meant if key.is_valid(now_s)]
    if named and not valid:
        return unverifiable, f"It is by {name}, which is not valid now.", named[0], None
    fitting = [key for key in valid if algorithm in key.algorithms]
    if named and not fitting:
        return invalid, f"It is no signature: its alg {algorithm} does not fit {name}.", named[0], None
    for key in fitting[:_MOST_TRIED]:
        for index, data in enumerate(forms):
            if key.verifies(algorithm, f"{header.protected}.{data}".encode(), header.signature):
                return SignatureState.VERIFIED, f"It is by {name}.", key, index
    if named:
        return (
            invalid,
            f"The signature by {name} does not fit: the card was changed, or another key signed it.",
            named[0],
            None,
        )
    tried = ", or the card was changed" if fitting else ""
    return unverifiable, f"It is by {name}, which is not known here{tried}.", None, None


def _signing_input(protected: str, data: bytes) -> bytes:
    return f"{protected}.{_base64url(data)}".encode()


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
