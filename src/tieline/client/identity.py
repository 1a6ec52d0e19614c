"""Who a caller is to one agent: what goes with each call, and what takes the place of a token that was refused."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tieline.card import AgentCard
from tieline.client.credentials import ApiKey, Basic, Bearer, ClientCertificate, Credential, OAuthCredential
from tieline.client.fitting import fit
from tieline.client.http import Verify, basic_value
from tieline.client.oauth import AuthorizationServer
from tieline.client.tokens import TokenSource
from tieline.client.wirelog import SHOWN_HEADERS, SHOWN_QUERY
from tieline.errors import CredentialsUnfit

__all__ = ["Identity", "certificate_of", "identity_for"]


class Identity:
    """The credentials of one caller for one agent, as they travel. `query` goes into the URL of a call."""

    def __init__(self, headers: Mapping[str, str], query: Mapping[str, str], tokens: TokenSource | None) -> None:
        self.query = dict(query)
        self._headers = dict(headers)
        self._tokens = tokens

    @property
    def uses_authorization(self) -> bool:
        """Whether an Authorization header is among what a call carries."""
        return self._tokens is not None or "Authorization" in self._headers

    async def headers(self) -> dict[str, str]:
        """What a call carries. Raises AuthorizationFailed, OriginNotTrusted and NotServed where a token is not had."""
        if self._tokens is None:
            return self._headers
        return {**self._headers, "Authorization": f"Bearer {await self._tokens.token()}"}

    async def in_place_of(self, refused: Mapping[str, str]) -> dict[str, str] | None:
        """What a call carries in place of headers that were refused; None is nothing else. Raises as `headers` does."""
        if self._tokens is None:
            return None
        token = await self._tokens.in_place_of(refused.get("Authorization", "").removeprefix("Bearer "))
        return None if token is None else {**self._headers, "Authorization": f"Bearer {token}"}

    async def close(self) -> None:
        """Close the connections to authorization servers. Closing twice is allowed."""
        if self._tokens is not None:
            await self._tokens.close()


def certificate_of(credentials: Sequence[Credential]) -> ClientCertificate | None:
    """The client certificate among credentials. Raises ValueError for several."""
    found = [each for each in credentials if isinstance(each, ClientCertificate)]
    if len(found) > 1:
        raise ValueError("one client certificate can be shown, not several")
    return found[0] if found else None


def identity_for(
    card: AgentCard,
    credentials: Sequence[Credential],
    *,
    home: frozenset[str],
    trusted: frozenset[str],
    verify: Verify,
) -> Identity:
    """What of `credentials` goes with calls to the agent of `card`, as the card asks.

    Raises:
        CredentialsUnfit: they do not meet what it asks for.
    """
    headers: dict[str, str] = {}
    query: dict[str, str] = {}
    tokens: TokenSource | None = None
    for met in fit(card, credentials):
        credential = met.credential
        if isinstance(credential, Bearer):
            headers["Authorization"] = f"Bearer {credential.token}"
        elif isinstance(credential, Basic):
            headers["Authorization"] = basic_value(credential.user, credential.password)
        elif isinstance(credential, ApiKey):
            key = None if met.scheme is None else met.scheme.api_key_security_scheme
            location, name = ("header", credential.header or "") if key is None else (key.location, key.name)
            _check_place(card, location, name)
            if location == "query":
                query[name] = credential.key
            elif location == "cookie":
                if any(character in credential.key for character in '; ,"\\'):
                    raise CredentialsUnfit(f"The key has a character that the cookie {name!r} cannot have.")
                headers["Cookie"] = "; ".join(filter(None, (headers.get("Cookie"), f"{name}={credential.key}")))
            else:
                headers[name] = credential.key
        elif isinstance(credential, OAuthCredential):
            tokens = TokenSource(AuthorizationServer(verify=verify), met, home=home, trusted=trusted)
    return Identity(headers, query, tokens)


def _check_place(card: AgentCard, location: str, name: str) -> None:
    """Raises CredentialsUnfit for a place that a card may not ask a key to be put in."""
    token = bool(name) if location == "query" else _NAME.fullmatch(name) is not None
    taken = (location == "header" and name.lower() in _TAKEN) or (location == "query" and name in SHOWN_QUERY)
    if not token or taken:
        raise CredentialsUnfit(
            f"The card of {card.name!r} wants an API key in the {location} {name!r}, which cannot be."
        )


_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TAKEN = SHOWN_HEADERS.union(("host", "connection", "expect", "proxy-authorization", "te", "trailer", "upgrade"))
"""Headers that the protocol has a use for: a card that puts a key there would have it in logs, too."""
