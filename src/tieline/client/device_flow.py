"""The device code flow: the user signs in on any device, and this one asks until that is done (RFC 8628)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from tieline.client.credentials import DeviceCode, DevicePrompt, TokenSet
from tieline.client.http import shown
from tieline.client.oauth import AuthorizationServer, Client, Endpoints
from tieline.client.origin import crosses_in_clear
from tieline.client.transport import NotServed
from tieline.errors import AuthorizationFailed

__all__ = ["authorized_by_device", "next_interval_s"]

_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
_SLOWER_S: Final = 5.0  # RFC 8628 §3.5
_SHORTEST_S: Final = 0.05
_LONGEST_S: Final = 60.0
_UNREACHABLE_AT_MOST: Final = 5  # in a row
_MOST_CODE_CHARS: Final = 100
_MOST_URL_CHARS: Final = 2000


class _Device(msgspec.Struct, frozen=True):
    """RFC 8628 §3.2. Some servers call the URI a URL."""

    device_code: str
    user_code: str
    expires_in: float
    verification_uri: str = ""
    verification_url: str = ""
    verification_uri_complete: str | None = None
    interval: float = 5.0


def next_interval_s(interval_s: float, error: str) -> float | None:
    """The pause before the next look after an error of the token endpoint; None is the end of it."""
    if error == "authorization_pending":
        return interval_s
    if error == "slow_down":
        return interval_s + _SLOWER_S
    if error == "temporarily_unavailable":
        return _slower(interval_s)
    return None


def _slower(interval_s: float) -> float:
    """The pause after an endpoint could not answer (RFC 8628 §3.5). Never a shorter one than it has asked for."""
    return max(interval_s, min(interval_s * 2, _LONGEST_S))


async def authorized_by_device(
    server: AuthorizationServer,
    endpoints: Endpoints,
    credential: DeviceCode,
    asked: Mapping[str, str | None],
    *,
    pause: Callable[[float], Awaitable[Any]] = asyncio.sleep,
) -> TokenSet:
    """Have the user sign in. `asked` are scope, resource and audience.

    Raises:
        AuthorizationFailed: the user refused, or did not come in time, or the server has no such flow.
        NotServed: it cannot be reached.
    """
    if endpoints.device_authorization_url is None:
        raise AuthorizationFailed("The authorization server has no device authorization endpoint.")
    client = Client(credential.client_id, credential.client_secret)
    told = await server.ask(endpoints.device_authorization_url, endpoints, client, asked)
    try:
        device = msgspec.convert(told, _Device, strict=False)
    except msgspec.ValidationError:
        raise AuthorizationFailed("The device authorization endpoint did not answer with a code.") from None
    url = device.verification_uri or device.verification_url
    complete = device.verification_uri_complete
    if not _is_page(url):
        raise AuthorizationFailed("The device authorization endpoint names no page for the user.")
    if not device.user_code.isprintable() or not 0 < len(device.user_code) <= _MOST_CODE_CHARS:
        raise AuthorizationFailed("The device authorization endpoint gave no code that a user can type.")
    if crosses_in_clear(url):
        raise AuthorizationFailed(
            f"The page to sign in at, {shown(url)}, has to be https: others could read what is typed."
        )
    if complete is not None and (not _is_page(complete) or crosses_in_clear(complete)):
        complete = None
    credential.show(DevicePrompt(url, device.user_code, complete, device.expires_in))
    form = {"grant_type": _GRANT, "device_code": device.device_code}
    try:
        async with asyncio.timeout(device.expires_in):
            return await _polled(server, endpoints, client, form, max(device.interval, _SHORTEST_S), pause)
    except TimeoutError:
        raise AuthorizationFailed("Nobody has signed in before the code expired.", code="expired_token") from None


def _is_page(url: str) -> bool:
    return url.startswith(("https://", "http://")) and url.isprintable() and len(url) <= _MOST_URL_CHARS


async def _polled(
    server: AuthorizationServer,
    endpoints: Endpoints,
    client: Client,
    form: Mapping[str, str | None],
    interval_s: float,
    pause: Callable[[float], Awaitable[Any]],
) -> TokenSet:
    lost = 0
    while True:
        await pause(interval_s)
        try:
            return await server.tokens(endpoints, client, form)
        except NotServed as error:
            lost += 1
            if lost >= _UNREACHABLE_AT_MOST:
                raise AuthorizationFailed(f"The sign-in gave no token: sign in again. {error}") from None
            interval_s = _slower(interval_s)
        except AuthorizationFailed as error:
            following = next_interval_s(interval_s, error.code)
            if following is None:
                raise _ended(error) from None
            interval_s, lost = following, 0


def _ended(error: AuthorizationFailed) -> AuthorizationFailed:
    words = {"access_denied": "The sign-in was refused by its user.", "expired_token": "The code has expired."}
    return AuthorizationFailed(words.get(error.code, str(error)), code=error.code)
