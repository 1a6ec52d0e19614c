"""The authorization code flow of a program on the user's machine: a browser, PKCE, and a port of 127.0.0.1 that hears
the answer (RFC 6749 §4.1, RFC 7636, RFC 8252).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
import webbrowser
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qs, urlsplit

from yarl import URL

from tieline.client.credentials import AuthorizationCode, TokenSet
from tieline.client.http import shown
from tieline.client.oauth import AuthorizationServer, Client, Endpoints, check_endpoint
from tieline.client.transport import NotServed
from tieline.errors import AuthorizationFailed

__all__ = ["authorized_by_browser"]

_PATH: Final = "/callback"
_HEAD_BYTES: Final = 16 * 1024
_READ_S: Final = 10.0
_DONE: Final = "You are signed in. You can close this window."
_REFUSED: Final = "You are not signed in. You can close this window."
_ELSE: Final = "There is nothing here."


async def authorized_by_browser(
    server: AuthorizationServer,
    endpoints: Endpoints,
    credential: AuthorizationCode,
    asked: Mapping[str, str | None],
) -> TokenSet:
    """Have the user sign in. `asked` are scope, resource and audience.

    Raises:
        AuthorizationFailed: the user refused, or did not come back in time, or the server did not give a token, or
            could not be reached for it.
    """
    if endpoints.authorization_url is None:
        raise AuthorizationFailed("The authorization server has no authorization endpoint for a browser.")
    check_endpoint(endpoints.authorization_url, "the authorization endpoint")
    if not endpoints.speaks_pkce:
        raise AuthorizationFailed(
            f"{shown(endpoints.authorization_url)}: this server does not speak PKCE with S256, so that others could use"
            " its answer."
        )
    verifier = secrets.token_urlsafe(64)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    listener = _Listener(endpoints, secrets.token_urlsafe(24))
    redirect_uri = await listener.open(credential.redirect_port)
    try:
        query = {
            "response_type": "code",
            "client_id": credential.client_id,
            "redirect_uri": redirect_uri,
            "state": listener.state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            **{name: value for name, value in asked.items() if value is not None},
        }
        url = str(URL(endpoints.authorization_url).update_query(query))
        if credential.open_url is not None:
            credential.open_url(url)
        else:
            await asyncio.to_thread(webbrowser.open, url)
        try:
            async with asyncio.timeout(credential.wait_s):
                code = await listener.code()
        except TimeoutError:
            raise AuthorizationFailed(f"Nobody has signed in within {credential.wait_s:g} s.") from None
    finally:
        await listener.close()
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri, "code_verifier": verifier}
    form |= {name: value for name, value in asked.items() if name in ("resource", "audience") and value is not None}
    try:
        return await server.tokens(endpoints, Client(credential.client_id, credential.client_secret), form)
    except NotServed as error:  # the code is used up, or lost: nothing but a new sign-in helps
        raise AuthorizationFailed(f"The sign-in gave no token: sign in again. {error}") from None


class _Listener:
    """Hears one answer with the right state; whatever else comes gets a 404 and changes nothing."""

    def __init__(self, endpoints: Endpoints, state: str) -> None:
        self.state = state
        self._endpoints = endpoints
        self._answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._server: asyncio.Server | None = None
        self._silent: set[asyncio.StreamWriter] = set()  # connections that have not said anything

    async def open(self, port: int) -> str:
        """Listen; give the redirect URI. Raises AuthorizationFailed."""
        try:
            self._server = await asyncio.start_server(self._heard, "127.0.0.1", port, limit=_HEAD_BYTES)
        except OSError as error:
            raise AuthorizationFailed(f"Port {port} of 127.0.0.1 cannot be listened on: {error.strerror}.") from None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}{_PATH}"

    async def code(self) -> str:
        return await self._answer

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            for writer in self._silent:  # browsers open some that they may need
                writer.transport.abort()
            await self._server.wait_closed()
        self._answer.cancel()

    async def _heard(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._silent.add(writer)
        try:
            async with asyncio.timeout(_READ_S):
                head = await reader.readuntil(b"\r\n\r\n")
            self._silent.discard(writer)
            status, words, outcome = self._read(head.split(b"\r\n", 1)[0].decode("latin-1"))
            writer.write(_page(status, words))
            await writer.drain()
            if outcome is not None and not self._answer.done():
                if isinstance(outcome, str):
                    self._answer.set_result(outcome)
                else:
                    self._answer.set_exception(outcome)
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass  # whoever it was has said nothing
        finally:
            self._silent.discard(writer)
            writer.close()

    def _read(self, line: str) -> tuple[int, str, str | AuthorizationFailed | None]:
        """What a request line means: how it is answered, and the code, or why there is none, when it is the answer."""
        verb, _, rest = line.partition(" ")
        try:
            target = urlsplit(rest.partition(" ")[0])
            fields = parse_qs(target.query, keep_blank_values=True, max_num_fields=50)
        except ValueError:
            return 404, _ELSE, None
        told = {name: values[0] for name, values in fields.items() if len(values) == 1}
        right = hmac.compare_digest(told.get("state", "").encode("utf-8", "replace"), self.state.encode())
        if verb != "GET" or target.path != _PATH or not right:
            return 404, _ELSE, None
        issuer, named = self._endpoints.issuer, told.get("iss")
        if issuer is not None and (named != issuer if named is not None else self._endpoints.tells_issuer):
            # RFC 9207 §2.4: an answer of another server is one of an attack.
            return 400, _REFUSED, AuthorizationFailed("The answer to the sign-in comes from another issuer.")
        if (code := told.get("code")) and "error" not in fields:
            return 200, _DONE, code
        error = "".join(filter(str.isprintable, told.get("error", "it gave no code")))[:100]
        return 200, _REFUSED, AuthorizationFailed(f"The sign-in was refused: {error}.", code=error)


def _page(status: int, words: str) -> bytes:
    body = f"<!doctype html><meta charset=utf-8><title>Tieline</title><p>{words}</p>".encode()
    reason = {200: "OK", 400: "Bad Request", 404: "Not Found"}[status]
    head = (
        f"HTTP/1.1 {status} {reason}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
