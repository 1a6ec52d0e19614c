"""What a caller shows to an agent, as values: `connect(url, credentials=Bearer(token))`.

The card says which of them are wanted, and where they go (A2A 1.0 §4.5, §7.3); see fitting.py. Secrets are in no repr.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar, Final, Protocol
from urllib.parse import urlsplit

import msgspec

from tieline.client.origin import is_this_machine

__all__ = [
    "ApiKey",
    "AuthorizationCode",
    "Basic",
    "Bearer",
    "ClientCertificate",
    "ClientCredentials",
    "Credential",
    "DeviceCode",
    "DevicePrompt",
    "OAuthCredential",
    "OAuthToken",
    "TokenSet",
    "TokensKept",
    "check_token_url",
]

_HIDDEN: Final = "***"


class Credential(msgspec.Struct, frozen=True):
    """Something to show. `scheme` is the name in the card's securitySchemes that it is for; None is any that takes it.

    All raise ValueError for what cannot be sent, never showing a secret.
    """

    _secret: ClassVar[frozenset[str]] = frozenset()

    def __repr__(self) -> str:
        told = [
            f"{name}={_HIDDEN if name in self._secret and value else repr(value)}"
            for name in self.__struct_fields__
            if (value := getattr(self, name)) is not None and value != ()
        ]
        return f"{type(self).__name__}({', '.join(told)})"


class Bearer(Credential, frozen=True):
    """A token that you have: for HTTP Bearer, OAuth 2 and OpenID Connect schemes."""

    _secret = frozenset(("token",))

    token: str
    scheme: str | None = None

    def __post_init__(self) -> None:
        _check_sendable("the token", self.token)


class ApiKey(Credential, frozen=True):
    """A key, sent in the header, query parameter or cookie that the card names; `header` where it names none."""

    _secret = frozenset(("key",))

    key: str
    scheme: str | None = None
    header: str | None = None

    def __post_init__(self) -> None:
        _check_sendable("the key", self.key)
        if self.header is not None and not self.header.replace("-", "").replace("_", "").isalnum():
            raise ValueError(f"{self.header!r} is not the name of a header")


class Basic(Credential, frozen=True):
    """A user and a password, for HTTP Basic."""

    _secret = frozenset(("password",))

    user: str
    password: str
    scheme: str | None = None

    def __post_init__(self) -> None:
        if ":" in self.user or not self.user.isprintable() or not self.password.isprintable():
            raise ValueError(
                "a user without a colon, and a user and a password of printable characters are to be given"
            )


class ClientCertificate(Credential, frozen=True):
    """A certificate and its key, PEM files, shown in the TLS handshake (mutual TLS). One file may hold both."""

    _secret = frozenset(("password",))

    certificate: str
    key: str | None = None
    password: str | None = None  # of the key
    scheme: str | None = None


class TokenSet(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a token endpoint has given (RFC 6749 §5.1)."""

    access_token: str
    expires_at: float | None = None  # seconds since the epoch; None is not said
    refresh_token: str | None = None
    scopes: tuple[str, ...] = ()
    lifetime_s: float | None = None  # as it was told

    def __repr__(self) -> str:
        return f"TokenSet(access_token={_HIDDEN}, expires_at={self.expires_at}, scopes={self.scopes})"

    def stale(self, now: float) -> bool:
        """Whether it has expired, or will before a call is sure to have arrived."""
        if self.expires_at is None:
            return False
        margin_s = _MARGIN_S if self.lifetime_s is None else min(_MARGIN_S, self.lifetime_s / 10)
        return now >= self.expires_at - margin_s


_MARGIN_S: Final = 30.0


class TokensKept(Protocol):
    """Where tokens outlive a process. `held` is entered around a renewal, so that two processes do not both do one."""

    def load(self) -> TokenSet | None: ...

    def save(self, tokens: TokenSet) -> None: ...

    def held(self) -> AbstractAsyncContextManager[None]: ...


class OAuthCredential(Credential, frozen=True, kw_only=True):
    """What all OAuth 2 credentials have.

    Args:
        client_id: As it was registered with the authorization server.
        client_secret: Of a confidential client.
        issuer: The authorization server; its discovery document has all its URLs, and the card's do not count.
        token_url: Its token endpoint, in place of `issuer`. https, or this machine.
        scopes: What to ask for; () is what the card says.
        resource: The agent that the token is for (RFC 8707), where the server wants it told.
        audience: The same for servers that call it so.
        secret_in_body: Show the client's secret in the form, not as HTTP Basic; a discovery document says it by itself.
        scheme: See Credential.
        kept: Where tokens outlive this process.
    """

    _secret = frozenset(("client_secret", "access_token", "refresh_token", "kept"))

    client_id: str
    client_secret: str | None = None
    issuer: str | None = None
    token_url: str | None = None
    scopes: tuple[str, ...] = ()
    resource: str | None = None
    audience: str | None = None
    secret_in_body: bool = False
    scheme: str | None = None
    kept: TokensKept | None = None

    def __post_init__(self) -> None:
        if isinstance(self.scopes, str):
            raise ValueError("scopes are a tuple of texts")
        for name in ("client_id", "client_secret", "scopes", "resource", "audience", "refresh_token"):
            if not _can_be_sent(getattr(self, name, None)):
                raise ValueError(f"{name} has characters that are no text")
        for name in ("issuer", "token_url", "authorization_url", "device_authorization_url", "revocation_url"):
            if (url := getattr(self, name, None)) is not None:
                check_token_url(url, name)


class ClientCredentials(OAuthCredential, frozen=True, kw_only=True):
    """A program that signs in by itself (RFC 6749 §4.4).

    The secret goes to `issuer` or `token_url`, or to the card's own token URL where `trust` names its origin, and to no
    other place.
    """

    client_secret: str


class AuthorizationCode(OAuthCredential, frozen=True, kw_only=True):
    """A user who signs in with a browser on this machine, with PKCE (RFC 8252, RFC 7636).

    `open_url` is called with the URL to open; None is the system's browser. The answer comes to a port of 127.0.0.1:
    `redirect_port` where one is registered, else any.
    """

    authorization_url: str | None = None
    open_url: Callable[[str], Any] | None = None
    redirect_port: int = 0
    wait_s: float = 300.0


class DevicePrompt(msgspec.Struct, frozen=True):
    """What a user is asked to do: open `url` on any device and type `code`, or open `complete_url`."""

    url: str
    code: str
    complete_url: str | None
    expires_s: float


class DeviceCode(OAuthCredential, frozen=True, kw_only=True):
    """A user who signs in on another device (RFC 8628). `show` is called with a DevicePrompt."""

    show: Callable[[DevicePrompt], Any]
    device_authorization_url: str | None = None


class OAuthToken(OAuthCredential, frozen=True, kw_only=True):
    """Tokens that you have from elsewhere, refreshed at `issuer` or `token_url` when they expire (RFC 6749 §6)."""

    access_token: str
    refresh_token: str | None = None
    expires_at: float | None = None  # seconds since the epoch

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_sendable("the token", self.access_token)
        if self.refresh_token is not None and self.issuer is None and self.token_url is None:
            raise ValueError("a refresh token needs the issuer or token_url that it is good for")


def _can_be_sent(value: str | tuple[str, ...] | None) -> bool:
    """Whether it is text: lone surrogates, as they come from arguments that are none, are not."""
    try:
        "".join(value or ()).encode()
    except UnicodeEncodeError:
        return False
    return True


def check_token_url(url: str, what: str) -> None:
    """Raises ValueError for a URL that no secret may go to: it has to be https, or on this machine."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ValueError(f"{what} is not a URL") from None
    if not host or parts.username is not None or parts.fragment:
        raise ValueError(f"{what} is not an https URL without user and fragment")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_this_machine(host)):
        raise ValueError(f"{what} has to be https: {parts.scheme}://{host} would let others read what is sent")


def _check_sendable(what: str, value: str) -> None:
    if not value or not value.isascii() or not value.isprintable() or value != value.strip():
        raise ValueError(f"{what} is empty, or has characters that no header can carry")
