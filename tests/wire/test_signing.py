"""Signing cards and checking signatures: what is verified, unverifiable and invalid (A2A 1.0 §8.4)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import subprocess
import sys
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.examples import CARD as SAMPLE
from tests.wire.strategies import FIXED
from tieline.signing_keys import ALGORITHMS, InvalidKey, PublicKey, new_private_key, public_keys
from tieline.wire.canonical import NotCanonical
from tieline.wire.signed import MOST_CARD_BYTES
from tieline.wire.signing import CardSigner, SignatureCheck, SignatureState, check_signatures

Json = dict[str, Any]
NOW_S = 1_800_000_000.0
CARD: Json = {name: item for name, item in SAMPLE.items() if name != "signatures"}
DOCUMENT = json.dumps(CARD, indent=2).encode()
KEYS = {algorithm: new_private_key(algorithm) for algorithm in ALGORITHMS}
VERIFIED, UNVERIFIABLE, INVALID = SignatureState.VERIFIED, SignatureState.UNVERIFIABLE, SignatureState.INVALID


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def check(document: bytes, *keys: PublicKey) -> list[SignatureCheck]:
    return list(check_signatures(document, keys, now_s=NOW_S))


def states(document: bytes, *keys: PublicKey) -> list[SignatureState]:
    return [each.state for each in check(document, *keys)]


def key_set(signer: CardSigner, **members: Any) -> bytes:
    (key,) = json.loads(signer.jwks)["keys"]
    return json.dumps({"keys": [{**key, **members}]}).encode()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_card_is_signed_and_verified_with_every_algorithm(algorithm: str) -> None:
    signer = CardSigner(KEYS[algorithm], algorithm=algorithm, key_id="k1", key_url="https://keys.example/jwks.json")
    signed = signer.sign(DOCUMENT)
    (signature,) = json.loads(signed)["signatures"]
    protected = json.loads(base64.urlsafe_b64decode(signature["protected"] + "=="))
    assert protected == {"alg": algorithm, "typ": "JOSE", "kid": "k1", "jku": "https://keys.example/jwks.json"}
    (told,) = check(signed, *public_keys(signer.jwks, "keys.json"))
    assert (told.state, told.key_id, told.key_source, told.algorithm) == (VERIFIED, "k1", "keys.json", algorithm)
    assert json.loads(told.document or b"") == CARD
    assert repr(signer) == f"CardSigner(key_id='k1', algorithm={algorithm!r})"


def test_without_a_name_the_key_has_that_of_its_thumbprint() -> None:
    signer = CardSigner(KEYS["ES256"])
    (key,) = json.loads(signer.jwks)["keys"]
    members = {name: key[name] for name in ("crv", "kty", "x", "y")}
    thumbprint = hashlib.sha256(json.dumps(members, sort_keys=True, separators=(",", ":")).encode()).digest()
    assert signer.key_id == key["kid"] == base64url(thumbprint)
    assert "d" not in key
    assert states(signer.sign(DOCUMENT), *public_keys(KEYS["ES256"], "key.pem")) == [VERIFIED]


def test_a_changed_card_is_invalid_and_one_by_an_unknown_key_is_unverifiable() -> None:
    signer = CardSigner(KEYS["EdDSA"], key_id="k1")
    known = public_keys(signer.jwks, "keys.json")
    signed = signer.sign(DOCUMENT)
    changed = json.dumps({**json.loads(signed), "name": "Another"}).encode()
    assert states(changed, *known) == [INVALID]
    assert states(signed) == [UNVERIFIABLE]
    other = public_keys(CardSigner(KEYS["ES256"], key_id="k2").jwks, "other.json")
    assert states(signed, *other) == [UNVERIFIABLE]
    assert states(signed, *other, *known) == [VERIFIED]
    impostor = CardSigner(new_private_key("EdDSA"), key_id="k1").sign(DOCUMENT)
    assert states(impostor, *known) == [INVALID], "another key under a known name"


def test_members_of_later_versions_are_signed_and_adding_one_is_seen() -> None:
    signer = CardSigner(KEYS["ES256"])
    known = public_keys(signer.jwks, "keys.json")
    later = {**CARD, "futureField": {"n": 1, "empty": []}}
    whole, rebuilt = check(signer.sign(json.dumps(later).encode()), *known)
    assert (whole.state, rebuilt.state) == (VERIFIED, VERIFIED)
    assert json.loads(whole.document or b"") == later
    assert json.loads(rebuilt.document or b"") == CARD, "what the reader of 1.0 has is vouched for alone"
    added = {**json.loads(signer.sign(DOCUMENT)), "url": "http://elsewhere.example/"}
    (told,) = check(json.dumps(added).encode(), *known)
    assert json.loads(told.document or b"") == CARD, "what was added is not vouched for"


def test_white_space_order_and_default_values_do_not_matter() -> None:
    signer = CardSigner(KEYS["ES256"])
    signed = json.loads(signer.sign(DOCUMENT))
    backwards = {name: signed[name] for name in reversed(list(signed))}
    backwards["securityRequirements"] = [*backwards.get("securityRequirements", [])]
    backwards["supportedInterfaces"] = [{**each, "tenant": ""} for each in backwards["supportedInterfaces"]]
    known = public_keys(signer.jwks, "keys.json")
    assert states(json.dumps(backwards, indent=4, ensure_ascii=True).encode(), *known) == [VERIFIED]


def test_a_card_has_several_signatures_and_signing_again_replaces_ones_own_alone() -> None:
    old, new = CardSigner(KEYS["RS256"], key_id="old"), CardSigner(KEYS["ES256"], key_id="new")
    both = new.sign(old.sign(DOCUMENT))
    known_old, known_new = public_keys(old.jwks, "old"), public_keys(new.jwks, "new")
    assert states(both, *known_old, *known_new) == [VERIFIED, VERIFIED]
    assert states(both, *known_new) == [UNVERIFIABLE, VERIFIED]
    again = old.sign(both)
    assert [each.key_id for each in check(again)] == ["new", "old"]
    assert states(again, *known_old, *known_new) == [VERIFIED, VERIFIED]


def test_a_card_does_not_get_more_signatures_than_anybody_would_check() -> None:
    document = DOCUMENT
    for number in range(9):
        document = CardSigner(KEYS["EdDSA"], key_id=f"k{number}").sign(document)
    assert states(document, *public_keys(KEYS["EdDSA"], "key.pem")) == [VERIFIED] * 9
    many = json.dumps({**CARD, "signatures": json.loads(document)["signatures"] * 4}).encode()
    with pytest.raises(NotCanonical, match="has 36 signatures already"):
        CardSigner(KEYS["ES256"]).sign(many)
    (told,) = check(many)
    assert (told.state, "more than 32" in told.reason) == (INVALID, True)
    with pytest.raises(NotCanonical, match="not an array"):
        CardSigner(KEYS["ES256"]).sign(json.dumps({**CARD, "signatures": {"a": 1}}).encode())


def test_a_card_that_nobody_would_check_is_not_signed() -> None:
    large = json.dumps({**CARD, "description": "a" * MOST_CARD_BYTES}).encode()
    with pytest.raises(NotCanonical, match="nobody here verifies more than 1048576"):
        CardSigner(KEYS["ES256"]).sign(large)


def forged(protected: Json, signature: bytes = b"", key: bytes | None = None) -> bytes:
    """A card with a signature whose header is chosen; by a shared secret where `key` is given."""
    head = base64url(json.dumps(protected).encode())
    if key is not None:
        body = base64url(json.dumps(CARD, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())
        signature = hmac.digest(key, f"{head}.{body}".encode(), "sha256")
    return json.dumps({**CARD, "signatures": [{"protected": head, "signature": base64url(signature or b"x")}]}).encode()


def test_none_and_shared_secrets_are_refused_whatever_key_they_name() -> None:
    signer = CardSigner(KEYS["RS256"], key_id="k1")
    known = public_keys(signer.jwks, "keys.json")
    private = load_pem_private_key(KEYS["RS256"], None)
    pem = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for told in (
        *check(forged({"alg": "none", "kid": "k1"}), *known),
        *check(forged({"alg": "HS256", "kid": "k1"}, key=pem), *known),
    ):
        assert told.state is INVALID
        assert "proves nothing" in told.reason


def test_the_algorithm_has_to_fit_the_key() -> None:
    signer = CardSigner(KEYS["ES256"], key_id="k1")
    known = public_keys(signer.jwks, "keys.json")
    (told,) = check(forged({"alg": "RS256", "kid": "k1"}), *known)
    assert (told.state, "does not fit" in told.reason) == (INVALID, True)
    (told,) = check(forged({"alg": "ES256K", "kid": "k1"}), *known)
    assert (told.state, "not known here" in told.reason) == (UNVERIFIABLE, True)
    pinned = public_keys(key_set(CardSigner(KEYS["RS256"], key_id="k2")), "keys.json")
    by_pss = CardSigner(KEYS["RS256"], key_id="k2", algorithm="PS256").sign(DOCUMENT)
    assert states(by_pss, *pinned) == [INVALID], "a JWK's alg is the only one that it is for"


@pytest.mark.requirement("signing.no-revoked-keys")
def test_keys_that_have_expired_are_revoked_or_are_for_something_else_verify_nothing() -> None:
    signer = CardSigner(KEYS["ES256"], key_id="k1")
    signed = signer.sign(DOCUMENT)
    for members in ({"exp": NOW_S - 1}, {"nbf": NOW_S + 1}):
        (told,) = check(signed, *public_keys(key_set(signer, **members), "keys.json"))
        assert (told.state, "not valid now" in told.reason) == (UNVERIFIABLE, True)
    assert states(signed, *public_keys(key_set(signer, exp=NOW_S + 1, nbf=0), "keys.json")) == [VERIFIED]
    assert states(signed, *public_keys(key_set(signer, exp=10**400), "keys.json")) == [VERIFIED]
    (told,) = check(signed, *public_keys(key_set(signer, nbf=10**400), "keys.json"))
    assert told.state is UNVERIFIABLE
    for odd in (
        {"use": "enc"},
        {"key_ops": ["encrypt"]},
        {"revoked": {"revoked_at": 1}},
        {"exp": "2020-01-01"},
        {"exp": True},
        {"nbf": [NOW_S + 1]},
    ):
        with pytest.raises(InvalidKey):
            public_keys(key_set(signer, **odd), "keys.json")


def test_a_key_without_a_name_is_tried_for_any_and_then_it_cannot_be_told_what_is_wrong() -> None:
    signer = CardSigner(KEYS["ES256"], key_id="production-1")
    unnamed = public_keys(KEYS["ES256"], "key.pem")
    signed = signer.sign(DOCUMENT)
    assert states(signed, *unnamed) == [VERIFIED]
    changed = signed.replace(b"GeoSpatial", b"Geospatial")
    (told,) = check(changed, *unnamed)
    assert told.state is UNVERIFIABLE
    assert "or the card was changed" in told.reason
    (nameless,) = json.loads(signed)["signatures"]
    assert nameless


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "no key in PEM"),
        (b"rubbish", "no key in PEM"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "no key in PEM"),
        (b"{", "no key in PEM"),
        (b'{"keys": []}', "no key in it"),
        (b'{"keys": [1]}', "no key in PEM"),
        (b'{"keys": {}}', "no key in PEM"),
        (b'{"kty": "oct", "k": "c2VjcmV0LXNlY3JldA"}', "kty is none of"),
        (b'{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}', "do not make a key"),
        (b'{"kty": "EC"}', "do not make a key"),
        (b'{"kty": "OKP", "crv": "Ed25519", "x": 7}', "do not make a key"),
        (b'{"kty": "RSA", "n": "AQAB", "e": "AQAB"}', "bits is not taken|do not make a key"),
        (json.dumps({"keys": [{"kty": "EC"}] * 65}).encode(), "more than 64"),
    ],
)
def test_what_is_no_key_is_refused_with_a_sentence(data: bytes, fault: str) -> None:
    with pytest.raises(InvalidKey, match=fault):
        public_keys(data, "keys")
    with pytest.raises(InvalidKey) as told:
        CardSigner(data)
    assert "c2VjcmV0" not in str(told.value)


def pem_of(key: Any, encryption: Any = None) -> bytes:
    pem: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption())
    return pem


def test_keys_of_other_kinds_are_refused() -> None:
    for key, fault in (
        (ec.generate_private_key(ec.SECP384R1()), "P-384"),
        (ed448.Ed448PrivateKey.generate(), "neither of an elliptic curve"),
        (rsa.generate_private_key(65537, 1024), "1024 bits"),
    ):
        with pytest.raises(InvalidKey, match=fault):
            CardSigner(pem_of(key))
    encrypted = pem_of(ec.generate_private_key(ec.SECP256R1()), BestAvailableEncryption(b"open sesame"))
    with pytest.raises(InvalidKey, match="encrypted"):
        CardSigner(encrypted)
    public = load_pem_private_key(KEYS["ES256"], None).public_key()
    with pytest.raises(InvalidKey, match="public key"):
        CardSigner(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    with pytest.raises(InvalidKey, match=r"RS256.*does not fit"):
        CardSigner(KEYS["ES256"], algorithm="RS256")


def test_one_key_of_a_set_is_chosen_by_its_id_and_a_jwk_says_its_own() -> None:
    members = []
    for name in ("a", "b"):
        key = ec.generate_private_key(ec.SECP256R1())
        numbers = key.private_numbers()
        x, y = numbers.public_numbers.x, numbers.public_numbers.y
        parts = {"d": numbers.private_value, "x": x, "y": y}
        jwk = {part: base64url(number.to_bytes(32, "big")) for part, number in parts.items()}
        members.append({"kty": "EC", "crv": "P-256", "kid": name, **jwk})
    keys = json.dumps({"keys": members}).encode()
    assert CardSigner(keys, key_id="b").key_id == "b"
    with pytest.raises(InvalidKey, match=r"2 keys in it.*'a', 'b'") as told:
        CardSigner(keys)
    assert members[0]["d"] not in str(told.value)
    one = CardSigner(json.dumps(members[0]).encode())
    assert one.key_id == "a"
    assert states(one.sign(DOCUMENT), *public_keys(keys, "keys.json")) == [VERIFIED]


def test_a_set_is_read_past_the_keys_that_are_not_known_here() -> None:
    signer = CardSigner(KEYS["ES256"], key_id="k1")
    (key,) = json.loads(signer.jwks)["keys"]
    mixed = {"keys": [{"kty": "AKP", "alg": "ML-DSA-44"}, {**key, "use": "enc"}, {"kty": "EC"}, key]}
    assert states(signer.sign(DOCUMENT), *public_keys(json.dumps(mixed).encode(), "keys.json")) == [VERIFIED]


@pytest.mark.parametrize("document", [b"[]", b"{", b'{"name":"a","name":"b"}', b'{"n":9007199254740993}'])
def test_what_has_no_canonical_form_is_neither_signed_nor_checked(document: bytes) -> None:
    with pytest.raises(NotCanonical):
        CardSigner(KEYS["ES256"]).sign(document)
    if document.startswith(b'{"n"'):
        document = document[:-1] + b',"signatures":[{"protected":"AA","signature":"AA"}]}'
    with pytest.raises(NotCanonical):
        check(document)


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SIGNER = CardSigner(KEYS["EdDSA"])
KNOWN = public_keys(SIGNER.jwks, "keys.json")


@FIXED
@given(st.dictionaries(names, st.none() | st.booleans() | names | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9)))
def test_any_object_that_is_signed_is_verified_and_any_change_of_a_text_is_seen(members: Json) -> None:
    card = {"x-seen": "before", **members}
    card.pop("signatures", None)
    signed = SIGNER.sign(json.dumps(card).encode())
    told = check(signed, *KNOWN)
    assert told
    assert {each.state for each in told} == {VERIFIED}
    assert states(json.dumps({**json.loads(signed), "x-seen": "after"}).encode(), *KNOWN) == (
        [VERIFIED] * len(told) if card["x-seen"] == "after" else [INVALID] * len(told)
    )


def test_checking_a_card_needs_no_extra() -> None:
    code = (
        "import sys\n"
        "sys.modules['joserfc'] = sys.modules['cryptography'] = None\n"
        "from tieline.wire.signing import CardSigner, check_signatures\n"
        "assert check_signatures(b'{}', (), now_s=0.0) == ()\n"
        "try:\n    CardSigner(b'')\nexcept ImportError as error:\n    assert \"'tieline[auth]'\" in str(error), error\n"
        "else:\n    raise SystemExit('no error')\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr


@FIXED
@given(st.sampled_from(ALGORITHMS), st.binary(max_size=600))
def test_whatever_stands_for_a_signature_is_invalid(algorithm: str, signature: bytes) -> None:
    known = public_keys(CardSigner(KEYS[algorithm], key_id="k1", algorithm=algorithm).jwks, "keys.json")
    assert states(forged({"alg": algorithm, "kid": "k1"}, signature), *known) == [INVALID]


@FIXED
@given(
    st.recursive(st.none() | st.booleans() | names | st.integers(), lambda x: st.lists(x) | st.dictionaries(names, x))
)
def test_whatever_stands_for_the_signatures_of_a_card_is_checked_without_an_error(signatures: Any) -> None:
    document = json.dumps({**CARD, "signatures": signatures}).encode()
    assert VERIFIED not in states(document, *KNOWN)
