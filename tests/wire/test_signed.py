"""What a card's signature is over, and what its header says (A2A 1.0 §8.4)."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given

from tests.wire.examples import CARD
from tests.wire.schema import MESSAGES
from tests.wire.strategies import FIXED, wire_json
from tieline.wire.canonical import NotCanonical, canonical
from tieline.wire.signed import FIELDS, load_card, payloads, signature_headers

Json = dict[str, Any]


def of(card: Json) -> dict[str, bytes]:
    return {payload.name: payload.data for payload in payloads(card)}


def header(**members: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(members).encode()).rstrip(b"=").decode()


def test_the_table_of_fields_is_that_of_the_protocol() -> None:
    for message, fields in FIELDS.items():
        known = {field.json: field for field in MESSAGES[message]}
        assert set(fields) == set(known), message
        for name, ours in fields.items():
            field = known[name]
            inner = field.type.strip("[]{}")
            repeated = field.type != inner
            an_object = not repeated and (inner in MESSAGES or inner == "Struct")
            assert ours.kept == (field.required or field.optional or an_object), (message, name)
            assert ours.message == (inner if inner in MESSAGES else None), (message, name)
            assert ours.by_name == (field.type.startswith("{") and inner in MESSAGES), (message, name)


@pytest.mark.requirement("signing.field-presence", "signing.set-optional-included", "signing.required-included")
def test_default_values_are_left_out_as_the_specifications_example_has_it() -> None:
    card = {
        "name": "Example Agent",
        "description": "",
        "capabilities": {"streaming": False, "pushNotifications": False, "extensions": []},
        "skills": [],
        "supportedInterfaces": [],
    }
    assert of(card)["whole"].decode() == (
        '{"capabilities":{"pushNotifications":false,"streaming":false},"description":"","name":"Example Agent",'
        '"skills":[],"supportedInterfaces":[]}'
    )


@pytest.mark.requirement("signing.defaults-omitted")
def test_defaults_inside_are_left_out_where_they_are_neither_required_nor_optional() -> None:
    card = {
        **CARD,
        "documentationUrl": "",
        "provider": {"url": "", "organization": ""},
        "capabilities": {"extensions": [{"uri": "", "description": "", "required": False, "params": {}}]},
        "securitySchemes": {
            "m": {"mtlsSecurityScheme": {"description": ""}},
            "o": {
                "oauth2SecurityScheme": {
                    "flows": {"authorizationCode": {"scopes": {}, "pkceRequired": False, "refreshUrl": ""}},
                    "oauth2MetadataUrl": "",
                }
            },
        },
        "securityRequirements": [{"schemes": {"m": {"list": []}}}],
        "skills": [{"id": "", "name": "", "description": "", "tags": [], "examples": [], "inputModes": []}],
        "supportedInterfaces": [{"url": "", "protocolBinding": "", "protocolVersion": "", "tenant": ""}],
    }
    told = json.loads(of(card)["whole"])
    assert told["documentationUrl"] == ""
    assert told["provider"] == {"url": "", "organization": ""}
    assert told["capabilities"] == {"extensions": [{"params": {}}]}
    assert told["securitySchemes"] == {
        "m": {"mtlsSecurityScheme": {}},
        "o": {"oauth2SecurityScheme": {"flows": {"authorizationCode": {"scopes": {}}}}},
    }
    assert told["securityRequirements"] == [{"schemes": {"m": {}}}]
    assert told["skills"] == [{"id": "", "name": "", "description": "", "tags": []}]
    assert told["supportedInterfaces"] == [{"url": "", "protocolBinding": "", "protocolVersion": ""}]


@pytest.mark.requirement("signing.unset-optional-omitted")
@FIXED
@given(wire_json("AgentCard"))
def test_a_card_without_default_values_is_its_own_payload(card: Json) -> None:
    try:
        own = canonical({name: item for name, item in card.items() if name != "signatures"})
    except NotCanonical:
        with pytest.raises(NotCanonical):
            payloads(card)
        return
    assert next(iter(payloads(card))).data == own
    assert payloads(card)[0].name == "whole"


def test_members_that_are_not_known_here_are_part_of_the_whole_and_not_of_what_1_0_knows() -> None:
    forms = {payload.name: payload for payload in payloads({**CARD, "url": "http://old/", "later": {"a": []}})}
    assert b'"later":{"a":[]}' in forms["whole"].data
    assert b"later" not in forms["1.0"].data
    assert "url" not in forms["1.0"].card
    assert forms["whole"].card["url"] == "http://old/"
    assert set(of(CARD)) == {"whole"}, "one form where all are the same bytes"


def test_a_card_before_1_0_is_signed_as_a_whole_alone() -> None:
    card = {"name": "old", "url": "http://old/", "capabilities": {}, "skills": [], "security": []}
    assert set(of(card)) == {"whole"}


@pytest.mark.requirement("signing.signatures-excluded")
def test_the_card_is_what_is_signed_without_its_signatures() -> None:
    assert of({**CARD, "signatures": [{"protected": "a", "signature": "b"}]}) == of({**CARD, "signatures": []})


def test_what_a_signature_vouches_for_is_the_card_that_was_signed() -> None:
    for payload in payloads({**CARD, "iconUrl": "", "x": 1}):
        assert payload.data in [each.data for each in payloads(payload.card)]


@pytest.mark.parametrize("document", [b"[]", b"null", b'"x"', b"{", b'{"a":1,"a":1}', b"\xff"])
def test_what_is_no_card_cannot_be_signed(document: bytes) -> None:
    with pytest.raises(NotCanonical):
        load_card(document)


def test_the_header_of_a_signature_is_read() -> None:
    protected = header(alg="ES256", typ="JOSE", kid="key-1", jku="https://example.com/agent/jwks.json", more={})
    (told,) = signature_headers({"signatures": [{"protected": protected, "signature": "AQID", "header": {"kid": "2"}}]})
    assert (told.algorithm, told.key_id, told.key_url) == ("ES256", "key-1", "https://example.com/agent/jwks.json")
    assert (told.protected, told.signature, told.fault) == (protected, b"\x01\x02\x03", "")


@pytest.mark.parametrize(
    ("signature", "fault"),
    [
        ("text", "not an object"),
        ({"protected": header(alg="ES256")}, "not both there"),
        ({"protected": "", "signature": ""}, "not both there"),
        ({"protected": "a+b/", "signature": "AQID"}, "not base64url"),
        ({"protected": header(alg="ES256") + "==", "signature": "AQID"}, "not base64url"),
        ({"protected": header(alg="ES256"), "signature": "A"}, "not base64url"),
        ({"protected": "A" * 30_000, "signature": "AQID"}, "not base64url"),
        ({"protected": "AQID", "signature": "AQID"}, "cannot be read"),
        ({"protected": header(kid="a"), "signature": "AQID"}, "names no alg"),
        ({"protected": header(alg=1), "signature": "AQID"}, "names no alg"),
        ({"protected": header(alg="ES256", kid=1), "signature": "AQID"}, "kid in its protected header"),
        ({"protected": header(alg="ES256", jku=[]), "signature": "AQID"}, "jku in its protected header"),
        ({"protected": header(alg="ES256", crit=["b64"], b64=False), "signature": "AQID"}, "crit"),
    ],
)
def test_a_signature_that_nobody_can_check_says_why(signature: Any, fault: str) -> None:
    (told,) = signature_headers({"signatures": [signature]})
    assert fault in told.fault


def test_signatures_that_are_no_list_or_without_end_are_one_fault_and_none_are_none() -> None:
    assert (
        signature_headers({}) == signature_headers({"signatures": []}) == signature_headers({"signatures": None}) == ()
    )
    odd: Any
    for odd in ({}, "x", False, [{}] * 1000):
        (told,) = signature_headers({"signatures": odd})
        assert told.fault
