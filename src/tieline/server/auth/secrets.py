"""Callers that show a secret of which the server has a hash: bearer tokens, API keys, names with passwords."""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Literal
from urllib.parse import parse_qsl

from tieline.card import APIKeySecurityScheme, HTTPAuthSecurityScheme, SecurityScheme
from tieline.server.auth.identity import Expired, Identity, Refused, Shown
from tieline.server.auth.tokens import Token, TokenFile, is_password

__all__ = ["ApiKeys", "BearerTokens", "Passwords", "bearer_of"]

_AT_ONCE: Final = 2  # passwords that are looked at


def bearer_of(shown: Shown) -> bytes | None:
    """The token in `Authorization: Bearer`."""
    return _authorization(shown, b"bearer")


def _authorization(shown: Shown, scheme: bytes) -> bytes | None:
    given = shown.headers.get(b"authorization")
    if given is None:
        return None
    if b"authorization" in shown.repeated:
        raise Refused("The request has more than one Authorization header.")
    name, _, value = given.partition(b" ")
    return value.strip() or None if name.lower() == scheme else None


def _identity(token: Token | None, words: str) -> Identity:
    """Whom a line of the file names. Raises Refused, with these words."""
    if token is None:
        raise Refused(words)
    if token.expired:
        raise Expired(words)
    until = None if token.expires is None else token.expires.timestamp()
    return Identity(token.principal, token.tenant, frozenset(token.scopes), until=until)


class _OfFile:
    """What all schemes do whose secrets are in a file. Raises ValueError when it cannot be read."""

    guessable = False

    def __init__(self, tokens: TokenFile | str | os.PathLike[str], name: str) -> None:
        self._tokens = tokens if isinstance(tokens, TokenFile) else TokenFile(tokens)
        self.name = name

    @property
    def generation(self) -> int:
        self._tokens.look()
        return self._tokens.generation


class BearerTokens(_OfFile):
    """`Authorization: Bearer TOKEN`, by a file of hashes (`tieline token create` writes it)."""

    def __init__(self, tokens: TokenFile | str | os.PathLike[str], *, name: str = "bearer") -> None:
        super().__init__(tokens, name)
        self.declared = SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme("Bearer"))
        self.challenge = "Bearer"

    def find(self, shown: Shown) -> bytes | None:
        return bearer_of(shown)

    def check(self, secret: bytes) -> Identity:
        return _identity(self._tokens.of_token(secret), "The bearer token is not known, or valid no more.")


class ApiKeys(_OfFile):
    """A key in a header, a query parameter or a cookie, by the same kind of file."""

    def __init__(
        self,
        keys: TokenFile | str | os.PathLike[str],
        *,
        location: Literal["header", "query", "cookie"] = "header",
        parameter: str = "X-API-Key",
        name: str = "api_key",
    ) -> None:
        super().__init__(keys, name)
        if location not in ("header", "query", "cookie"):
            raise ValueError(f"an API key is in a header, query or cookie, not in {location!r}")
        if not parameter.isascii() or not parameter.replace("-", "").replace("_", "").isalnum():
            raise ValueError(f"{parameter!r} cannot be the name of a {location}: take letters, digits, - and _")
        self._location = location
        self._parameter = parameter
        self._name = parameter.encode()
        self._header = self._name.lower()
        self.declared = SecurityScheme(api_key_security_scheme=APIKeySecurityScheme(location, parameter))
        self.challenge = f'ApiKey in="{location}", name="{parameter}"'

    def find(self, shown: Shown) -> bytes | None:
        if self._location == "header":
            if self._header in shown.repeated:
                raise Refused(f"The request has more than one {self._parameter} header.")
            return shown.headers.get(self._header) or None
        if self._location == "query":
            found = [value for key, value in parse_qsl(shown.query.decode("latin-1")) if key == self._parameter]
            if len(found) > 1:
                raise Refused(f"The request has more than one {self._parameter} in its query.")
            return found[0].encode() if found else None
        if b"cookie" in shown.repeated:
            raise Refused("The request has more than one Cookie header.")
        pairs = [pair.strip().partition(b"=") for pair in shown.headers.get(b"cookie", b"").split(b";")]
        values = [value for name, _, value in pairs if name == self._name]
        if len(values) > 1:
            raise Refused(f"The request has more than one {self._parameter} in its cookies.")
        return values[0].strip(b'"') or None if values else None

    def check(self, secret: bytes) -> Identity:
        return _identity(self._tokens.of_token(secret), "The API key is not known, or valid no more.")


class Passwords(_OfFile):
    """`Authorization: Basic`, a name with a password (RFC 7617), by the same kind of file."""

    guessable = True

    def __init__(self, passwords: TokenFile | str | os.PathLike[str], *, name: str = "basic") -> None:
        super().__init__(passwords, name)
        self.declared = SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme("Basic"))
        self.challenge = 'Basic realm="A2A", charset="UTF-8"'
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="tieline-passwords")

    def find(self, shown: Shown) -> bytes | None:
        return _authorization(shown, b"basic")

    async def check(self, secret: bytes) -> Identity:
        try:
            name, colon, password = base64.b64decode(secret, validate=True).partition(b":")
            principal = name.decode()
        except (binascii.Error, UnicodeDecodeError):
            raise Refused("The Authorization header is not Basic with a name and a password in base64.") from None
        if not colon:
            raise Refused("The Authorization header has no colon between name and password.")
        token = self._tokens.of_name(principal)
        # It takes its time, on purpose; in threads of its own, so that nothing else waits for who guesses.
        right = await asyncio.get_running_loop().run_in_executor(self._threads, is_password, token, password)
        return _identity(token if right else None, "Name or password is wrong.")
