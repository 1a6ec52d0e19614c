"""Signed cards of ours and of the official Python SDK, each verified by the other."""

from __future__ import annotations

import json
from typing import Any

import pytest
from a2a.client.card_resolver import parse_agent_card
from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.types import AgentCard as OfficialCard
from a2a.utils.signing import InvalidSignaturesError, create_agent_card_signer, create_signature_verifier
from jwt import PyJWK
from msgspec.structs import replace

from tests.wire.test_cards import CARD, PLAIN, SCHEMES, oauth
from tieline.card import AgentCapabilities, AgentCard, AgentExtension, ClientCredentialsOAuthFlow
from tieline.signing_keys import ALGORITHMS, new_private_key, public_keys
from tieline.wire.cards import JOINT, read, write
from tieline.wire.signing import CardSigner, SignatureState, check_signatures

EXTENSION = AgentExtension("https://x.example/v1", "X", True, {"a": [None, 0.5, 2**53 - 1, "", {}], "é": 1e-7})
CAPABILITIES = AgentCapabilities(True, False, (EXTENSION,), False)
ALL = replace(CARD, capabilities=CAPABILITIES, signatures=())
# The official reader of a card for 0.3 and 1.0 takes the scheme of 0.3, which has no device code and no PKCE.
OLD_SCHEMES = {name: scheme for name, scheme in SCHEMES.items() if name != "device"} | {
    "web": oauth(client_credentials=ClientCredentialsOAuthFlow("https://a.example/to", {"read_all": "Reads."}))
}
CARDS = {
    "with security": replace(ALL, security_schemes=OLD_SCHEMES),
    "plain": replace(PLAIN, capabilities=CAPABILITIES),
}
FORMS = [
    *((card, form, name) for name, card in CARDS.items() for form in (JOINT, "1.0")),
    (ALL, "1.0", "all security"),
]
PRIVATE = {algorithm: new_private_key(algorithm) for algorithm in ALGORITHMS}


def their_verdict(document: bytes, signer: CardSigner) -> None:
    """Raises InvalidSignaturesError."""
    (key,) = json.loads(signer.jwks)["keys"]
    verify = create_signature_verifier(lambda kid, jku: PyJWK(key), [signer.algorithm])
    verify(parse_agent_card(json.loads(document)))


def signed_by_them(card: OfficialCard, algorithm: str) -> OfficialCard:
    header: Any = {"alg": algorithm, "kid": "theirs", "jku": None, "typ": "JOSE"}
    signed: OfficialCard = create_agent_card_signer(PRIVATE[algorithm].decode(), header)(card)
    return signed


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(("card", "form"), [each[:2] for each in FORMS], ids=[f"{each[2]} {each[1]}" for each in FORMS])
def test_our_signed_cards_are_verified_by_the_official_sdk(card: AgentCard, form: str, algorithm: str) -> None:
    signer = CardSigner(PRIVATE[algorithm], key_id="ours", algorithm=algorithm)
    document = signer.sign(write(card, form))
    their_verdict(document, signer)
    changed = json.loads(document) | {"description": "something else"}
    with pytest.raises(InvalidSignaturesError):
        their_verdict(json.dumps(changed).encode(), signer)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("card", CARDS.values(), ids=CARDS)
def test_cards_that_the_official_sdk_signs_are_verified_here_as_it_serves_them(card: AgentCard, algorithm: str) -> None:
    signed = signed_by_them(parse_agent_card(json.loads(write(card, "1.0"))), algorithm)
    keys = public_keys(CardSigner(PRIVATE[algorithm], key_id="theirs", algorithm=algorithm).jwks, "keys.json")
    served = json.dumps(agent_card_to_dict(signed)).encode()
    (told,) = check_signatures(served, keys, now_s=0.0)
    assert told.state is SignatureState.VERIFIED, told.reason
    assert told.document is not None
    assert read(told.document).supported_interfaces == card.supported_interfaces
    changed = json.dumps(json.loads(served) | {"description": "something else"}).encode()
    (told,) = check_signatures(changed, keys, now_s=0.0)
    assert told.state is SignatureState.INVALID


def test_members_that_the_official_sdk_adds_for_readers_of_0_3_are_not_vouched_for() -> None:
    signed = signed_by_them(parse_agent_card(json.loads(write(next(iter(CARDS.values())), "1.0"))), "ES256")
    keys = public_keys(CardSigner(PRIVATE["ES256"], key_id="theirs").jwks, "keys.json")
    served = agent_card_to_dict(signed) | {"url": "http://elsewhere.example/", "additionalInterfaces": []}
    (told,) = check_signatures(json.dumps(served).encode(), keys, now_s=0.0)
    assert told.state is SignatureState.VERIFIED
    assert b"elsewhere" not in (told.document or b"elsewhere")
