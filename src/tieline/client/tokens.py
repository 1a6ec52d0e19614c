"""One OAuth token at a time: fetched when it is first wanted, kept until shortly before it expires, renewed by one task
however many calls want it.

Where tokens come from is decided here, too: from the authorization server that the user has named, or from the card's
as far as it is at the card's own origin or trusted by name. A client's secret goes to no server that the card alone
names: a card could name one of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Final, NamedTuple

import msgspec
from yarl import URL

from tieline.client.browser_flow import authorized_by_browser
from tieline.client.credentials import (
    AuthorizationCode,
    ClientCredentials,
    DeviceCode,
    OAuthCredential,
    OAuthToken,
    TokenSet,
)
from tieline.client.device_flow import authorized_by_device
from tieline.client.fitting import Fit
from tieline.client.oauth import AuthorizationServer, Client, Endpoints
from tieline.client.origin import origin_of
from tieline.errors import AuthorizationFailed, OriginNotTrusted

__all__ = ["TokenSource", "endpoints_of", "obtained"]

_CLOSING_S: Final = 5.0
"""How long a renewal that is under way has to end: a refresh token that was used and not answered is lost."""


class TokenSource:
    """The token of one OAuth credential for one agent.

    Args:
        server: What talks to authorization servers; it is closed with this.
        met: The credential and the scheme that it meets.
        home: The origins of the agent's card.
        trusted: Those that the user has named.
        clock: Seconds since the epoch.
    """

    def __init__(
        self,
        server: AuthorizationServer,
        met: Fit,
        *,
        home: frozenset[str],
        trusted: frozenset[str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        assert isinstance(met.credential, OAuthCredential)
        self._server = server
        self._met = met
        self._credential: OAuthCredential = met.credential
        self._home = home
        self._trusted = trusted
        self._clock = clock
        self._endpoints: Endpoints | None = None
        self._held = _given(self._credential)
        self._renewing: asyncio.Task[TokenSet] | None = None

    async def token(self) -> str:
        """A token that holds.

        Raises:
            AuthorizationFailed, OriginNotTrusted: there is none to be had.
            NotServed: the authorization server cannot be reached; nothing was sent to the agent.
        """
        held = self._held
        if held is not None and not held.stale(self._clock()):
            return held.access_token
        return (await self._renewed(None if held is None else held.access_token)).access_token

    async def in_place_of(self, refused: str) -> str | None:
        """Another token than `refused`, fetched where it has to be; None is none. Raises as `token` does."""
        held = self._held
        if held is None or held.access_token == refused:
            if isinstance(self._credential, OAuthToken) and (held is None or held.refresh_token is None):
                return None
            held = await self._renewed(refused)
        return held.access_token if held.access_token != refused else None

    async def close(self) -> None:
        """Let a renewal that is under way come to its end, and close the connections."""
        renewing, held = self._renewing, self._held
        if renewing is not None:
            user = isinstance(self._credential, AuthorizationCode | DeviceCode) and (
                held is None or not held.refresh_token
            )
            await asyncio.wait(
                (renewing,), timeout=0 if user else _CLOSING_S
            )  # a user may take longer than anybody waits
            renewing.cancel()
        await self._server.close()

    async def _renewed(self, refused: str | None) -> TokenSet:
        if self._renewing is None:
            self._renewing = asyncio.create_task(self._renew(refused))
            self._renewing.add_done_callback(self._ended)
        return await asyncio.shield(self._renewing)  # a caller that gives up does not stop it for the others

    def _ended(self, renewing: asyncio.Task[TokenSet]) -> None:
        self._renewing = None
        if not renewing.cancelled():
            renewing.exception()  # those who wait have it

    async def _renew(self, refused: str | None) -> TokenSet:
        kept = self._credential.kept
        async with kept.held() if kept is not None else nullcontext():
            held = self._held
            if kept is not None and (found := kept.load()) is not None:
                held = found  # another process may have renewed it
                if found.access_token != refused and not found.stale(self._clock()):
                    self._held = found
                    return found
            fresh = self._held = await self._fetched(held)
            if kept is not None:
                kept.save(fresh)
            return fresh

    async def _fetched(self, held: TokenSet | None) -> TokenSet:
        if self._endpoints is None:
            self._endpoints = await endpoints_of(self._server, self._met, home=self._home, trusted=self._trusted)
        credential = self._credential
        if held is not None and held.refresh_token is not None:
            client = Client(credential.client_id, credential.client_secret)
            form = {
                "grant_type": "refresh_token",
                "refresh_token": held.refresh_token,
                "resource": credential.resource,
                "audience": credential.audience,
            }
            try:
                fresh = await self._server.tokens(self._endpoints, client, form)
            except AuthorizationFailed as error:
                if error.code != "invalid_grant" or isinstance(credential, OAuthToken):
                    raise
            else:  # what it does not say is as it was (RFC 6749 §6)
                return msgspec.structs.replace(
                    fresh, refresh_token=fresh.refresh_token or held.refresh_token, scopes=fresh.scopes or held.scopes
                )
        return await obtained(self._server, self._endpoints, self._met)


def _given(credential: OAuthCredential) -> TokenSet | None:
    """The tokens that a credential begins with."""
    if not isinstance(credential, OAuthToken):
        return None
    return TokenSet(credential.access_token, credential.expires_at, credential.refresh_token, credential.scopes)


async def obtained(server: AuthorizationServer, endpoints: Endpoints, met: Fit) -> TokenSet:
    """Tokens of a new sign-in. Raises AuthorizationFailed and NotServed."""
    credential = met.credential
    assert isinstance(credential, OAuthCredential)
    scopes = _scopes(met, endpoints)
    asked = {"scope": scopes, "resource": credential.resource, "audience": credential.audience}
    if isinstance(credential, ClientCredentials):
        client = Client(credential.client_id, credential.client_secret)
        return await server.tokens(endpoints, client, {"grant_type": "client_credentials", **asked})
    if isinstance(credential, AuthorizationCode):
        return await authorized_by_browser(server, endpoints, credential, asked)
    if isinstance(credential, DeviceCode):
        return await authorized_by_device(server, endpoints, credential, asked)
    raise AuthorizationFailed("The token has expired, or was refused, and there is no refresh token.")


def _scopes(met: Fit, endpoints: Endpoints) -> str | None:
    """What is asked for: the caller's word, else what the card requires."""
    credential = met.credential
    assert isinstance(credential, OAuthCredential)
    scopes = list(credential.scopes or met.scopes)
    if not credential.scopes and isinstance(credential, AuthorizationCode | DeviceCode):
        if met.scheme is not None and met.scheme.open_id_connect_security_scheme is not None:
            scopes.append("openid")
        if "offline_access" in endpoints.scopes_supported:  # else there would be no refresh token
            scopes.append("offline_access")
    return " ".join(dict.fromkeys(scopes)) or None


_USED: Final[dict[type[OAuthCredential], tuple[str, ...]]] = {
    AuthorizationCode: ("token_url", "authorization_url"),
    DeviceCode: ("token_url", "device_authorization_url"),
}
"""The endpoints that a sign-in uses, beside the token endpoint."""


class _Named(NamedTuple):
    """Where a card's scheme says that tokens are to be had."""

    token_url: str | None = None
    authorization_url: str | None = None
    device_authorization_url: str | None = None
    metadata_url: str | None = None


async def endpoints_of(
    server: AuthorizationServer, met: Fit, *, home: frozenset[str], trusted: frozenset[str]
) -> Endpoints:
    """Where the tokens of a credential are to be had.

    Raises:
        OriginNotTrusted: the card names a server that may not have what would go there.
        AuthorizationFailed: nobody names a server, or it cannot be asked.
        NotServed: it cannot be reached.
    """
    credential = met.credential
    assert isinstance(credential, OAuthCredential)
    own_authorization = getattr(credential, "authorization_url", None)
    own_device = getattr(credential, "device_authorization_url", None)
    if credential.issuer is not None:
        found = await server.discover(credential.issuer)
        return msgspec.structs.replace(
            found,
            token_url=credential.token_url or found.token_url,
            authorization_url=own_authorization or found.authorization_url,
            device_authorization_url=own_device or found.device_authorization_url,
            secret_in_body=credential.secret_in_body or found.secret_in_body,
        )
    card = _named(met)
    own = [url for url in (credential.token_url, own_authorization, own_device) if url is not None]
    named = trusted.union(origin for url in own if (origin := origin_of(url)) is not None)
    token_url = credential.token_url or card.token_url
    if token_url is None or (credential.token_url is None and card.metadata_url is not None):
        if card.metadata_url is None:
            raise AuthorizationFailed("Nobody says where tokens are to be had: give issuer=... or token_url=...")
        _check((card.metadata_url,), credential, home, named)
        found = await server.read_metadata(card.metadata_url)
        found = msgspec.structs.replace(
            found,
            authorization_url=own_authorization or found.authorization_url,
            device_authorization_url=own_device or found.device_authorization_url,
            secret_in_body=credential.secret_in_body or found.secret_in_body,
        )
        if origin_of(card.metadata_url) in named:
            return found  # its word is that of a server which the user has named
    else:
        found = Endpoints(
            token_url,
            own_authorization or card.authorization_url,
            own_device or card.device_authorization_url,
            secret_in_body=credential.secret_in_body,
        )
    names = _USED.get(type(credential), ("token_url",))
    used_urls = [url for name in names if (url := getattr(found, name)) is not None]
    one_server = len(set(map(origin_of, used_urls))) <= 1
    _check([url for url in used_urls if url not in own], credential, home if one_server else frozenset(), named)
    return found


def _named(met: Fit) -> _Named:
    scheme = met.scheme
    if scheme is None:
        return _Named()
    if scheme.open_id_connect_security_scheme is not None:
        return _Named(metadata_url=scheme.open_id_connect_security_scheme.open_id_connect_url)
    oauth2 = scheme.oauth2_security_scheme
    if oauth2 is None:
        return _Named()
    credential, flows, metadata_url = met.credential, oauth2.flows, oauth2.oauth2_metadata_url
    if isinstance(credential, ClientCredentials) and flows.client_credentials is not None:
        return _Named(flows.client_credentials.token_url)
    if isinstance(credential, AuthorizationCode) and flows.authorization_code is not None:
        flow = flows.authorization_code
        return _Named(flow.token_url, flow.authorization_url, metadata_url=metadata_url)
    if isinstance(credential, DeviceCode) and flows.device_code is not None:
        device = flows.device_code
        return _Named(device.token_url, None, device.device_authorization_url)
    return _Named(metadata_url=metadata_url)


def _check(urls: Sequence[str], credential: OAuthCredential, home: frozenset[str], named: frozenset[str]) -> None:
    """Whether the servers that a card names may be asked.

    Without a secret the card's own origin may (`home`): what it learns there is good for itself alone. Not where the
    user is sent to one server and the code to another, which could use it up at the first (RFC 9207 §1).
    """
    for url in urls:
        origin = origin_of(url)
        if origin is None:
            raise AuthorizationFailed("The card names an authorization server that is no URL.")
        if origin in named or (credential.client_secret is None and origin in home):
            continue
        what = "The secret" if credential.client_secret is not None else "The sign-in"
        raise OriginNotTrusted(
            f"{what} would go to {origin}, which only the card names.",
            f'If it should, give token_url="{URL(url).with_query(None)}" or issuer=...,'
            f' or trust it by name: trust=("{origin}",).',
            origin=origin,
        )
