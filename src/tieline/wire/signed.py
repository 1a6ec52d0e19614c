"""What the signatures of an agent card say, and what bytes they are over (A2A 1.0 §8.4).

A signature is over the card's canonical JSON without `signatures` and without members that have a default value
(§8.4.1). A card that is one document for readers of 0.3 and 1.0 has members that only some of them know, and a reader
that rebuilds a card from the members of 1.0 has lost the others: so there is more than one payload (`payloads`).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from tieline.wire.canonical import NotCanonical, canonical, load

__all__ = [
    "MOST_CARD_BYTES",
    "MOST_SIGNATURES",
    "Payload",
    "SignatureHeader",
    "from_base64url",
    "load_card",
    "payloads",
    "signature_headers",
]

Json = dict[str, Any]

MOST_CARD_BYTES: Final = 1024 * 1024
"""To be brought into its canonical forms, which takes a second for so much."""

MOST_SIGNATURES: Final = 32
"""That a card may have: each is work for who verifies it."""

_MOST_HEADER_BYTES: Final = 16 * 1024
_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]*")


class Payload(NamedTuple):
    """Bytes that a signature may be over. `card` is what of the card they vouch for: all of it that may be used."""

    name: str
    data: bytes
    card: Json


class SignatureHeader(msgspec.Struct, frozen=True):
    """One of a card's signatures, and what its protected header says. `fault`: why nobody can check it."""

    protected: str = ""  # as it came: it is part of what was signed
    signature: bytes = b""
    algorithm: str = ""
    key_id: str | None = None
    key_url: str | None = None  # `jku`
    fault: str = ""


def load_card(document: bytes) -> Json:
    """The card in a document, to be signed or verified.

    Raises:
        NotCanonical: it is no JSON object, or one that cannot be signed.
    """
    card = load(document.removeprefix(b"\xef\xbb\xbf"))
    if not isinstance(card, dict):
        raise NotCanonical("it is not a JSON object")
    return card


def payloads(card: Json) -> tuple[Payload, ...]:
    """What a signature of this card may be over, each once.

    | form | what |
    |---|---|
    | whole | the whole document without default values, with the members of other versions and of later ones |
    | 1.0 | the members that A2A 1.0 has: what is left where a reader rebuilds the card from them |
    | as written | the whole document, whatever its values |
    | without empty values | as 1.0, but without anything empty, as the official Python SDK signs |

    Raises:
        NotCanonical: the card has no canonical form.
    """
    body = {name: value for name, value in card.items() if name != "signatures"}
    now = _without_defaults(body, "AgentCard", unknown=False)
    forms = [
        Payload("whole", canonical(_without_defaults(body, "AgentCard", unknown=True)), body),
        Payload("1.0", canonical(now), now),
        Payload("as written", canonical(body), body),
        Payload("without empty values", canonical(_without_empty(now) or {}), now),
    ]
    if "supportedInterfaces" not in body:  # a card before 1.0: what 1.0 knows of it is not the card
        del forms[3], forms[1]
    found: dict[bytes, Payload] = {}
    for form in forms:  # where two are the same bytes, the one that vouches for more comes first
        found.setdefault(form.data, form)
    return tuple(found.values())


def signature_headers(card: Json) -> tuple[SignatureHeader, ...]:
    """The card's signatures, as far as they can be read; an empty tuple is a card without any."""
    signatures = card.get("signatures")
    if signatures is None or signatures == []:
        return ()
    if not isinstance(signatures, list):
        return (SignatureHeader(fault="signatures is not an array"),)
    if len(signatures) > MOST_SIGNATURES:
        return (SignatureHeader(fault=f"there are more than {MOST_SIGNATURES} signatures"),)
    return tuple(_read(signature) for signature in signatures)


def _read(signature: Any) -> SignatureHeader:
    if not isinstance(signature, dict):
        return SignatureHeader(fault="it is not an object")
    protected, value = signature.get("protected"), signature.get("signature")
    if not isinstance(protected, str) or not isinstance(value, str) or not protected or not value:
        return SignatureHeader(fault="protected and signature are not both there")
    raw, decoded = from_base64url(protected), from_base64url(value)
    if raw is None or decoded is None or len(raw) > _MOST_HEADER_BYTES:
        return SignatureHeader(fault="protected or signature is not base64url")
    try:
        header = load(raw)
    except NotCanonical as error:
        return SignatureHeader(fault=f"its protected header cannot be read: {error}")
    if not isinstance(header, dict) or not isinstance(header.get("alg"), str):
        return SignatureHeader(fault="its protected header names no alg")
    fault = ""
    for name in ("kid", "jku"):
        if not isinstance(header.get(name), str | None):
            fault = f"{name} in its protected header is not a string"
    if "crit" in header:  # RFC 7515 §4.1.11: what has to be understood, and is not, makes it invalid
        fault = "its protected header has crit, of which nothing is understood here"
    key_id, key_url = (header[name] if isinstance(header.get(name), str) else None for name in ("kid", "jku"))
    return SignatureHeader(protected, decoded, header["alg"], key_id, key_url, fault)


def from_base64url(text: str) -> bytes | None:
    """The bytes; None for what is no base64url without padding (RFC 7515 §2)."""
    if not _BASE64URL.fullmatch(text):
        return None
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error:
        return None


# --- default values ---------------------------------------------------------------------------------------------------


class _Field(NamedTuple):
    """A member of an object of 1.0. `kept`: also with a default value, as it is REQUIRED, `optional` or an object."""

    kept: bool
    message: str | None = None  # the kind of object that it is, or that is in it
    by_name: bool = False  # an object whose members are named by the card


_KEPT: Final = _Field(True)
_PLAIN: Final = _Field(False)


def _scheme(**fields: _Field) -> dict[str, _Field]:
    return {"description": _PLAIN, **fields}


def _flow(**fields: _Field) -> dict[str, _Field]:
    return {"refreshUrl": _PLAIN, "scopes": _KEPT, **fields}


FIELDS: Final[Mapping[str, Mapping[str, _Field]]] = {
    "AgentCard": {
        **dict.fromkeys(
            (
                "name",
                "description",
                "version",
                "documentationUrl",
                "iconUrl",
                "defaultInputModes",
                "defaultOutputModes",
            ),
            _KEPT,
        ),
        "supportedInterfaces": _Field(True, "AgentInterface"),
        "provider": _Field(True, "AgentProvider"),
        "capabilities": _Field(True, "AgentCapabilities"),
        "securitySchemes": _Field(False, "SecurityScheme", by_name=True),
        "securityRequirements": _Field(False, "SecurityRequirement"),
        "skills": _Field(True, "AgentSkill"),
        "signatures": _Field(False, "AgentCardSignature"),
    },
    "AgentInterface": {"url": _KEPT, "protocolBinding": _KEPT, "tenant": _PLAIN, "protocolVersion": _KEPT},
    "AgentProvider": {"url": _KEPT, "organization": _KEPT},
    "AgentCapabilities": {
        "streaming": _KEPT,
        "pushNotifications": _KEPT,
        "extensions": _Field(False, "AgentExtension"),
        "extendedAgentCard": _KEPT,
    },
    "AgentExtension": {"uri": _PLAIN, "description": _PLAIN, "required": _PLAIN, "params": _KEPT},
    "AgentSkill": {
        **dict.fromkeys(("id", "name", "description", "tags"), _KEPT),
        **dict.fromkeys(("examples", "inputModes", "outputModes"), _PLAIN),
        "securityRequirements": _Field(False, "SecurityRequirement"),
    },
    "AgentCardSignature": {"protected": _KEPT, "signature": _KEPT, "header": _KEPT},
    "SecurityRequirement": {"schemes": _Field(False, "StringList", by_name=True)},
    "StringList": {"list": _PLAIN},
    "SecurityScheme": {
        "apiKeySecurityScheme": _Field(True, "APIKeySecurityScheme"),
        "httpAuthSecurityScheme": _Field(True, "HTTPAuthSecurityScheme"),
        "oauth2SecurityScheme": _Field(True, "OAuth2SecurityScheme"),
        "openIdConnectSecurityScheme": _Field(True, "OpenIdConnectSecurityScheme"),
        "mtlsSecurityScheme": _Field(True, "MutualTlsSecurityScheme"),
    },
    "APIKeySecurityScheme": _scheme(location=_KEPT, name=_KEPT),
    "HTTPAuthSecurityScheme": _scheme(scheme=_KEPT, bearerFormat=_PLAIN),
    "OAuth2SecurityScheme": _scheme(flows=_Field(True, "OAuthFlows"), oauth2MetadataUrl=_PLAIN),
    "OpenIdConnectSecurityScheme": _scheme(openIdConnectUrl=_KEPT),
    "MutualTlsSecurityScheme": _scheme(),
    "OAuthFlows": {
        "authorizationCode": _Field(True, "AuthorizationCodeOAuthFlow"),
        "clientCredentials": _Field(True, "ClientCredentialsOAuthFlow"),
        "implicit": _Field(True, "ImplicitOAuthFlow"),
        "password": _Field(True, "PasswordOAuthFlow"),
        "deviceCode": _Field(True, "DeviceCodeOAuthFlow"),
    },
    "AuthorizationCodeOAuthFlow": _flow(authorizationUrl=_KEPT, tokenUrl=_KEPT, pkceRequired=_PLAIN),
    "ClientCredentialsOAuthFlow": _flow(tokenUrl=_KEPT),
    "ImplicitOAuthFlow": _flow(authorizationUrl=_PLAIN, scopes=_PLAIN),
    "PasswordOAuthFlow": _flow(tokenUrl=_PLAIN, scopes=_PLAIN),
    "DeviceCodeOAuthFlow": _flow(deviceAuthorizationUrl=_KEPT, tokenUrl=_KEPT),
}
"""The objects in a card of A2A 1.0; a test compares them with the protocol's own definition."""


def _without_defaults(value: Any, message: str, *, unknown: bool) -> Any:
    """A copy of an object without default values (A2A 1.0 §8.4.1); `unknown`: with the members that 1.0 has not."""
    if not isinstance(value, dict):
        return value
    fields = FIELDS[message]
    out: Json = {}
    for name, item in value.items():
        field = fields.get(name)
        if field is None:
            if unknown:
                out[name] = item
        elif item is not None and (field.kept or item not in ("", [], {}, False, 0)):
            out[name] = item if field.message is None else _inside(item, field, unknown=unknown)
    return out


def _inside(item: Any, field: _Field, *, unknown: bool) -> Any:
    assert field.message is not None
    if isinstance(item, list):
        return [_without_defaults(each, field.message, unknown=unknown) for each in item]
    if field.by_name and isinstance(item, dict):
        return {name: _without_defaults(each, field.message, unknown=unknown) for name, each in item.items()}
    return _without_defaults(item, field.message, unknown=unknown)


def _without_empty(value: Any) -> Any:
    """A copy without empty strings, arrays and objects, nor what is empty without them; None is nothing left."""
    if isinstance(value, dict):
        members = {name: kept for name, item in value.items() if (kept := _without_empty(item)) is not None}
        return members or None
    if isinstance(value, list):
        return [kept for item in value if (kept := _without_empty(item)) is not None] or None
    return None if value == "" else value
