"""Where a bearer token or an API key goes: where the card's security schemes say (A2A 1.0 §4.5, CLI §12.1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tieline.card import AgentCard, SecurityScheme
from tieline.cli.text import describe_scheme

__all__ = ["Attached", "attach", "wanted"]


@dataclass
class Attached:
    """Credentials in the form in which they travel, and what could not be attached and why."""

    headers: dict[str, str] = field(default_factory=dict)
    query: dict[str, str] = field(default_factory=dict)
    cookies: dict[str, str] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.headers or self.query or self.cookies)


def attach(card: AgentCard, *, bearer: str | None, api_key: str | None) -> Attached:
    """Put the credentials where the card wants them.

    The first security requirement that they can meet decides; where none can be met, or none is declared, each goes to
    the declared schemes that take it. A card without any scheme gets the bearer token (there is one place for it), but
    no API key (there are many).
    """
    attached = Attached()
    for scheme in _chosen(card, bearer=bearer, api_key=api_key):
        if bearer is not None and _takes_bearer(scheme):
            attached.headers["Authorization"] = f"Bearer {bearer}"
        key = scheme.api_key_security_scheme
        if api_key is not None and key is not None:
            places = {"header": attached.headers, "query": attached.query, "cookie": attached.cookies}
            if key.location in places:
                places[key.location][key.name] = api_key
    sent = {*attached.headers.values(), *attached.query.values(), *attached.cookies.values()}
    if bearer is not None and not card.security_schemes:
        attached.headers["Authorization"] = f"Bearer {bearer}"
    elif bearer is not None and f"Bearer {bearer}" not in sent:
        attached.unused.append(
            "The bearer token was not sent: the agent's card declares no scheme that takes one, only "
            f"{_listed(card.security_schemes.values())}."
        )
    if api_key is not None and api_key not in sent:
        attached.unused.append(
            "The API key was not sent: the agent's card does not say where it goes. If you know, send it with "
            "--svc-param NAME:KEY."
        )
    return attached


def _chosen(card: AgentCard, *, bearer: str | None, api_key: str | None) -> list[SecurityScheme]:
    def met(scheme: SecurityScheme | None) -> bool:
        if scheme is None:
            return False
        return (bearer is not None and _takes_bearer(scheme)) or (
            api_key is not None and scheme.api_key_security_scheme is not None
        )

    for requirement in card.security_requirements:
        schemes = [card.security_schemes.get(name) for name in requirement.schemes]
        if schemes and all(met(scheme) for scheme in schemes):
            return [scheme for scheme in schemes if scheme is not None]
    return [scheme for scheme in card.security_schemes.values() if met(scheme)]


def _takes_bearer(scheme: SecurityScheme) -> bool:
    http = scheme.http_auth_security_scheme
    return (
        (http is not None and http.scheme.lower() == "bearer")
        or scheme.oauth2_security_scheme is not None
        or scheme.open_id_connect_security_scheme is not None
    )


def wanted(card: AgentCard | None, login: str) -> str:
    """What to give to an agent that asks for credentials, from its card. `login` is the command that signs in."""
    schemes = dict(card.security_schemes) if card is not None else {}
    if not schemes:
        return "Set A2ACLI_BEARER to a token, or A2ACLI_API_KEY to a key."
    ways = []
    if any(_has_login(scheme) for scheme in schemes.values()):
        ways.append(f"sign in with {login}")
    if any(_takes_bearer(scheme) for scheme in schemes.values()):
        ways.append("set A2ACLI_BEARER to a token (or give --bearer)")
    if any(scheme.api_key_security_scheme is not None for scheme in schemes.values()):
        ways.append("set A2ACLI_API_KEY to a key (or give --api-key)")
    if any(scheme.mtls_security_scheme is not None for scheme in schemes.values()):
        ways.append("give a client certificate with --client-cert and --client-key")
    way = f": {' or '.join(ways)}." if ways else ", which this command does not speak."
    return f"The agent takes {_listed(schemes.values())}{way}"


def _has_login(scheme: SecurityScheme) -> bool:
    http = scheme.http_auth_security_scheme
    return scheme.mtls_security_scheme is None and (http is None or http.scheme.lower() in ("basic", "bearer"))


def _listed(schemes: Iterable[SecurityScheme]) -> str:
    return " or ".join(describe_scheme(scheme) for scheme in schemes)
