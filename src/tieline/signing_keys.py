"""Keys that cards and webhooks are signed with, and cards verified: read from PEM, JWK and JWK sets (RFC 7517).

They are of elliptic curve P-256 (ES256), Ed25519 (EdDSA) or RSA (RS256, PS256). A signature by a shared secret says
nothing to those who do not have it, and one by `none` nothing at all: neither is made or believed.
"""

from __future__ import annotations

import warnings
from typing import Any, Final

import msgspec

try:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
    from joserfc.errors import JoseError
    from joserfc.jwk import ECKey, OKPKey, RSAKey
    from joserfc.jws import JWSRegistry
except ImportError as error:
    raise ImportError(f"signatures need the extra `auth`: pip install 'tieline[auth]' ({error})") from None

from tieline.types import encode

__all__ = ["ALGORITHMS", "InvalidKey", "PrivateKey", "PublicKey", "new_private_key", "public_keys"]

ALGORITHMS: Final = ("ES256", "EdDSA", "RS256", "PS256")
"""The values of `alg` that are written."""

_KINDS: Final = {  # by `kty` and `crv` of a JWK: what such a key signs by, the usual one first
    ("EC", "P-256"): ("ES256",),
    ("OKP", "Ed25519"): ("EdDSA", "Ed25519"),  # RFC 9864 has a new name for the same
    ("RSA", None): ("RS256", "PS256"),
}
_LEAST_RSA_BITS: Final = 2048
_MOST_RSA_BITS: Final = 4096  # a larger one is work for who verifies, and somebody else's choice
_NEW_RSA_BITS: Final = 3072
_MOST_KEYS: Final = 64
_LAST_S: Final = 1e18
_PUBLIC: Final = frozenset(("kty", "crv", "x", "y", "n", "e"))
_PRIVATE: Final = frozenset(("d", "p", "q", "dp", "dq", "qi"))
_TYPES: Final[dict[str, Any]] = {"EC": ECKey, "OKP": OKPKey, "RSA": RSAKey}
_NO_KEY: Final = "it is no key in PEM, no JWK and no JWK set"

_Key = ECKey | OKPKey | RSAKey
_Json = dict[str, Any]


class InvalidKey(ValueError):
    """This is no key to sign or verify with. The sentence says why, and shows nothing of the key."""


class PublicKey:
    """A key to verify with. `source`: where it is from, as users are told."""

    __slots__ = ("_key", "algorithms", "key_id", "not_after_s", "not_before_s", "source", "thumbprint")

    def __init__(self, key: _Key, source: str, member: _Json) -> None:
        self._key = key
        self.source = source
        self.key_id = _text(member, "kid")
        self.thumbprint = key.thumbprint()
        wanted = _text(member, "alg")  # the one that it is for (RFC 7517 §4.4)
        same = ("EdDSA", "Ed25519") if wanted in ("EdDSA", "Ed25519") else (wanted,)
        self.algorithms = tuple(name for name in _algorithms(key) if wanted is None or name in same)
        self.not_before_s = _seconds(member, "nbf") or 0.0
        self.not_after_s = _seconds(member, "exp")

    def is_named(self, key_id: str | None) -> bool:
        """Whether a signature with this `kid` is by this key, which has its RFC 7638 thumbprint for a name, too."""
        return key_id is not None and key_id in (self.key_id, self.thumbprint)

    def is_valid(self, now_s: float) -> bool:
        """Whether it may be used at this moment, in seconds since 1970."""
        return self.not_before_s <= now_s and (self.not_after_s is None or now_s < self.not_after_s)

    def verifies(self, algorithm: str, signed: bytes, signature: bytes) -> bool:
        """Whether this is a signature by this key; `algorithm` is one of its `algorithms`."""
        model = JWSRegistry.algorithms["EdDSA" if algorithm == "Ed25519" else algorithm]
        return bool(model.verify(signed, signature, self._key))


class PrivateKey:
    """A key to sign with, out of PEM (PKCS#8, SEC 1 or PKCS#1, not encrypted), a JWK or a JWK set.

    Args:
        data: What is in its file.
        key_id: Its name, and which key of a set is meant; None is the JWK's own, else its RFC 7638 thumbprint.
        algorithm: One of `ALGORITHMS`, where the key leaves a choice.

    Raises:
        InvalidKey: there is no private key in it, not one of the kinds above, or `algorithm` does not fit it.
    """

    __slots__ = ("_key", "algorithm", "key_id")

    def __init__(self, data: bytes, *, key_id: str | None = None, algorithm: str | None = None) -> None:
        member: _Json = {}
        if data.lstrip()[:1] == b"{":
            member = _one_of(_members(data), key_id)
            self._key = _from_jwk(member)
        else:
            self._key = _from_pem(data)
        if not self._key.is_private:
            raise InvalidKey("it is a public key: the private one is needed to sign")
        fitting = [name for name in _algorithms(self._key) if name in ALGORITHMS]
        wanted = algorithm or _text(member, "alg") or fitting[0]
        if wanted not in fitting:
            raise InvalidKey(f"{wanted[:20]!r} does not fit this key, which signs by {' or '.join(fitting)}")
        self.algorithm = wanted
        self.key_id = key_id or _text(member, "kid") or self._key.thumbprint()

    def sign(self, data: bytes) -> bytes:
        """The signature by `algorithm`, as JWS has it (RFC 7518 §3)."""
        return bytes(JWSRegistry.algorithms[self.algorithm].sign(data, self._key))

    @property
    def jwks(self) -> bytes:
        """The public key as a JWK set, for those who verify."""
        public = {name: value for name, value in self._key.as_dict(private=False).items() if name in _PUBLIC}
        return encode({"keys": [{**public, "kid": self.key_id, "use": "sig", "alg": self.algorithm}]})


def new_private_key(algorithm: str = "ES256") -> bytes:
    """A new private key as PEM (PKCS#8), to sign by one of `ALGORITHMS`."""
    key: _Key
    if algorithm == "ES256":
        key = ECKey.generate_key("P-256")
    elif algorithm == "EdDSA":
        key = OKPKey.generate_key("Ed25519")
    else:
        key = RSAKey.generate_key(_NEW_RSA_BITS)
    return key.as_pem(private=True)


def public_keys(data: bytes, source: str) -> tuple[PublicKey, ...]:
    """The keys to verify with in a JWK set, a JWK, or a PEM file with one public or private key.

    Keys of a set that are not for signatures, are revoked, or of a kind that is not known here, are passed over.

    Raises:
        InvalidKey: there is none.
    """
    if data.lstrip()[:1] != b"{":
        return (PublicKey(_from_pem(data), source, {}),)
    found: list[PublicKey] = []
    fault: InvalidKey | None = None
    for member in _members(data):
        try:
            _check_purpose(member)
            found.append(PublicKey(_from_jwk(member), source, member))
        except InvalidKey as error:
            fault = fault or error
    if not found:
        raise fault or InvalidKey("there is no key in it")
    return tuple(found)


def _algorithms(key: _Key) -> tuple[str, ...]:
    """What it can sign by. Raises InvalidKey for a key of another kind."""
    if isinstance(key, RSAKey):
        bits = key.raw_value.key_size
        if not _LEAST_RSA_BITS <= bits <= _MOST_RSA_BITS:
            raise InvalidKey(f"an RSA key of {bits} bits is not taken: {_LEAST_RSA_BITS} to {_MOST_RSA_BITS} are")
        return _KINDS["RSA", None]
    found = _KINDS.get((key.key_type, key.curve_name))
    if found is None:
        raise InvalidKey(f"a key of the curve {key.curve_name} is not taken: P-256 and Ed25519 are")
    return found


def _from_pem(data: bytes) -> _Key:
    try:
        if b"PRIVATE KEY" in data:
            native: object = load_pem_private_key(data, password=None)
        else:
            native = load_pem_public_key(data)
    except TypeError:
        raise InvalidKey("the private key is encrypted: decrypt it, into a file of mode 600") from None
    except (ValueError, UnsupportedAlgorithm):
        raise InvalidKey(_NO_KEY) from None
    if isinstance(native, EllipticCurvePrivateKey | EllipticCurvePublicKey):
        return _imported(ECKey, data)
    if isinstance(native, Ed25519PrivateKey | Ed25519PublicKey):
        return _imported(OKPKey, data)
    if isinstance(native, RSAPrivateKey | RSAPublicKey):
        return _imported(RSAKey, data)
    raise InvalidKey("the key is neither of an elliptic curve, nor Ed25519, nor RSA")


def _from_jwk(member: _Json) -> _Key:
    kind = _TYPES.get(str(member.get("kty")))
    if kind is None:
        raise InvalidKey("its kty is none of EC, OKP and RSA")
    return _imported(kind, {name: item for name, item in member.items() if name in _PUBLIC | _PRIVATE})


def _imported(kind: Any, value: Any) -> _Key:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what `_algorithms` refuses
            key: _Key = kind.import_key(value)
            _algorithms(key)
    except InvalidKey:
        raise
    except (JoseError, ValueError, TypeError, KeyError, AttributeError, OverflowError, UnsupportedAlgorithm):
        raise InvalidKey("its parts do not make a key") from None
    return key


def _members(data: bytes) -> list[_Json]:
    """The keys of a set, or the one that it is."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise InvalidKey(_NO_KEY) from None
    members = value.get("keys", [value]) if isinstance(value, dict) else None
    if not isinstance(members, list) or not all(isinstance(member, dict) for member in members):
        raise InvalidKey(_NO_KEY)
    if len(members) > _MOST_KEYS:
        raise InvalidKey(f"there are more than {_MOST_KEYS} keys in it")
    return members


def _one_of(members: list[_Json], key_id: str | None) -> _Json:
    """The private key that is meant."""
    private = [member for member in members if "d" in member] or members
    named = [member for member in private if member.get("kid") == key_id]
    if len(private) == 1:
        return private[0]
    if len(named) == 1:
        return named[0]
    names = ", ".join(sorted(repr(str(member["kid"])[:80]) for member in private if "kid" in member)) or "none"
    raise InvalidKey(f"there are {len(private)} keys in it: choose one by its id, of which there are: {names}")


def _check_purpose(member: _Json) -> None:
    operations = member.get("key_ops", ["verify"])
    if member.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        raise InvalidKey("the key is not for verifying signatures")
    if member.get("revoked"):
        raise InvalidKey("the key has been revoked")


def _text(member: _Json, name: str) -> str | None:
    value = member.get(name)
    return value if isinstance(value, str) and value else None


def _seconds(member: _Json, name: str) -> float | None:
    """A moment in seconds since 1970; None is not said. Raises InvalidKey for what is none."""
    value = member.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidKey(f"its {name} is no moment in seconds")
    return float(max(-_LAST_S, min(value, _LAST_S)))  # integers may be larger than any float
