"""Which credentials the card asks for, and which of those given meet it (A2A 1.0 §4.5, §7.3). Pure: no I/O.

The first security requirement that all its schemes can be met of decides. A card that requires nothing gets what a
scheme of it takes; one without schemes gets what goes into an Authorization header, for which there is one place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import permutations

import msgspec

from tieline.card import AgentCard, SecurityRequirement, SecurityScheme
from tieline.client.credentials import (
    ApiKey,
    AuthorizationCode,
    Basic,
    Bearer,
    ClientCertificate,
    ClientCredentials,
    Credential,
    DeviceCode,
    OAuthCredential,
    OAuthToken,
)
from tieline.errors import CredentialsUnfit

__all__ = ["Fit", "fit", "wanted"]

_PLACES = ("header", "query", "cookie")


class Fit(msgspec.Struct, frozen=True):
    """A credential and the scheme that it meets; `scheme` is None where the card declares none."""

    credential: Credential
    scheme: SecurityScheme | None = None
    name: str = ""
    scopes: tuple[str, ...] = ()  # that the card asks for


def fit(card: AgentCard, credentials: Sequence[Credential]) -> tuple[Fit, ...]:
    """What of `credentials` goes where; a client certificate is always shown.

    Raises:
        CredentialsUnfit: they do not meet what the card asks for; the sentence says what that is, and how it is given.
    """
    given = [each for each in credentials if not isinstance(each, ClientCertificate)]
    shown = tuple(Fit(each) for each in credentials if isinstance(each, ClientCertificate))
    if not given:
        return shown
    if not card.security_schemes:
        return (*shown, *_undeclared(card, given))
    if card.security_requirements:
        met = [_met(card, requirement, credentials) for requirement in card.security_requirements]
    else:
        met = [_taken(card, given)]
    for found in met:
        used = tuple(each for each in found or () if not isinstance(each.credential, ClientCertificate))
        if used:
            return (*shown, *used)
    raise CredentialsUnfit(f"The credentials are not what {card.name!r} asks for: {wanted(card)}.")


def _undeclared(card: AgentCard, given: Sequence[Credential]) -> tuple[Fit, ...]:
    if any(isinstance(each, ApiKey) and each.header is None for each in given):
        raise CredentialsUnfit(f"The card of {card.name!r} does not say where a key goes: ApiKey(key, header=NAME).")
    if sum(_in_authorization(each) for each in given) > 1:
        raise CredentialsUnfit(f"The card of {card.name!r} declares no scheme: one of these credentials can be sent.")
    return tuple(map(Fit, given))


def _met(
    card: AgentCard, requirement: SecurityRequirement, credentials: Sequence[Credential]
) -> tuple[Fit, ...] | None:
    """All schemes of one requirement, each by a credential of its own; None when that cannot be."""
    names = list(requirement.schemes)
    schemes = [card.security_schemes.get(name) for name in names]
    if None in schemes or len(names) > len(credentials):
        return None
    for chosen in permutations(credentials, len(names)):
        found = tuple(
            Fit(credential, scheme, name, requirement.schemes[name].list)
            for credential, scheme, name in zip(chosen, schemes, names, strict=True)
            if scheme is not None and _takes(scheme, name, credential)
        )
        if len(found) == len(names) and sum(_in_authorization(each.credential) for each in found) <= 1:
            return found
    return None


def _taken(card: AgentCard, given: Sequence[Credential]) -> tuple[Fit, ...] | None:
    """Each credential by the first scheme that takes it; None when one is taken by none."""
    found: list[Fit] = []
    for credential in given:
        name = next((name for name, scheme in card.security_schemes.items() if _takes(scheme, name, credential)), None)
        if name is None:
            return None
        found.append(Fit(credential, card.security_schemes[name], name))
    return tuple(found) if sum(_in_authorization(each.credential) for each in found) <= 1 else None


def _in_authorization(credential: Credential) -> bool:
    return isinstance(credential, Bearer | Basic | OAuthCredential)


def _takes(scheme: SecurityScheme, name: str, credential: Credential) -> bool:
    """Whether a scheme can be met by a credential."""
    wants = getattr(credential, "scheme", None)
    if wants is not None and wants != name:
        return False
    if (key := scheme.api_key_security_scheme) is not None:
        return isinstance(credential, ApiKey) and key.location in _PLACES
    if scheme.mtls_security_scheme is not None:
        return isinstance(credential, ClientCertificate)
    if (http := scheme.http_auth_security_scheme) is not None:
        if http.scheme.lower() == "basic":
            return isinstance(credential, Basic)
        named = isinstance(credential, OAuthCredential) and (credential.issuer or credential.token_url)
        bearer = isinstance(credential, Bearer | OAuthToken) or named
        return bool(http.scheme.lower() == "bearer" and bearer)
    if isinstance(credential, Bearer | OAuthToken):
        return True
    if not isinstance(credential, OAuthCredential):
        return False
    if scheme.open_id_connect_security_scheme is not None or credential.issuer or credential.token_url:
        return True
    oauth2 = scheme.oauth2_security_scheme
    if oauth2 is None:
        return False
    if isinstance(credential, ClientCredentials):
        return oauth2.flows.client_credentials is not None or oauth2.oauth2_metadata_url is not None
    if isinstance(credential, AuthorizationCode):
        return oauth2.flows.authorization_code is not None or oauth2.oauth2_metadata_url is not None
    if isinstance(credential, DeviceCode):
        return oauth2.flows.device_code is not None or oauth2.oauth2_metadata_url is not None
    return False


def wanted(card: AgentCard) -> str:
    """What a card asks for, and how it is given; "" where it declares nothing."""
    schemes = card.security_schemes
    groups = [requirement.schemes for requirement in card.security_requirements if requirement.schemes]
    alternatives = [_together(schemes, group) for group in groups]
    if not groups:
        alternatives = [_way(scheme) for scheme in schemes.values()]
    return ", or ".join(dict.fromkeys(alternatives))


def _together(schemes: dict[str, SecurityScheme], names: Iterable[str]) -> str:
    return " together with ".join(_way(schemes[name]) if name in schemes else repr(name) for name in names)


def _way(scheme: SecurityScheme) -> str:
    if (key := scheme.api_key_security_scheme) is not None:
        return f"ApiKey(key) for the {key.location} {key.name!r}"
    if (http := scheme.http_auth_security_scheme) is not None:
        ways = {"bearer": "Bearer(token)", "basic": "Basic(user, password)"}
        return ways.get(http.scheme.lower(), f"HTTP {http.scheme}, which is not spoken here")
    if scheme.mtls_security_scheme is not None:
        return "ClientCertificate(certificate, key)"
    if (oidc := scheme.open_id_connect_security_scheme) is not None:
        return (
            f"Bearer(token), AuthorizationCode(client_id=...), DeviceCode(client_id=..., show=...) or"
            f" ClientCredentials(client_id=..., client_secret=..., issuer=...) of {oidc.open_id_connect_url}"
        )
    assert scheme.oauth2_security_scheme is not None
    flows = scheme.oauth2_security_scheme.flows
    if flows.client_credentials is not None:
        url = flows.client_credentials.token_url
        return f'ClientCredentials(client_id=..., client_secret=..., token_url="{url}")'
    if flows.authorization_code is not None:
        return "AuthorizationCode(client_id=...)"
    if flows.device_code is not None:
        return "DeviceCode(client_id=..., show=...)"
    return "Bearer(token)"
