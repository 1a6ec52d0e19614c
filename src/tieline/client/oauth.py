"""Talking to an authorization server: finding it, asking it for tokens, taking them back.

Nothing of it is logged. What an authorization server says is repeated in errors as far as it names the fault: its code
and the beginning of its description, without the secrets that it was told.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote_plus, urlencode

import msgspec
from yarl import URL

from tieline.client.credentials import TokenSet, check_token_url
from tieline.client.http import Answer, Http, Verify, basic_value, shown
from tieline.client.origin import origin_of
from tieline.client.transport import NotServed, Timeouts
from tieline.errors import AuthorizationFailed, InvalidPeerResponse, PeerError

__all__ = ["AuthorizationServer", "Client", "Endpoints", "check_endpoint"]

_MAX_ANSWER_BYTES: Final = 1024 * 1024
_TIMEOUTS: Final = Timeouts(connect_s=10.0, answer_s=30.0, card_s=30.0)
_SAID_CHARS: Final = 200
_LONGEST_LIFE_S: Final = 10 * 365 * 86400.0
_SECRET_FIELDS: Final = frozenset(("code", "code_verifier", "device_code", "refresh_token", "token"))
_REDACTED: Final = "[redacted]"
_CODES: Final = frozenset(  # RFC 6749 §5.2, RFC 8628 §3.5, RFC 8707 §2
    (
        "access_denied",
        "authorization_pending",
        "expired_token",
        "invalid_client",
        "invalid_grant",
        "invalid_request",
        "invalid_scope",
        "invalid_target",
        "slow_down",
        "unauthorized_client",
        "unsupported_grant_type",
    )
)
_TEMPORARY: Final = "temporarily_unavailable"


class Client(msgspec.Struct, frozen=True):
    """Who asks for tokens. Without a secret it is a public client, which tells its id alone (RFC 6749 §2.1)."""

    id: str
    secret: str | None = None

    def __repr__(self) -> str:
        return f"Client({self.id!r})"


class Endpoints(msgspec.Struct, frozen=True):
    """Where an authorization server is asked for what. All are https, or on this machine."""

    token_url: str
    authorization_url: str | None = None
    device_authorization_url: str | None = None
    revocation_url: str | None = None
    issuer: str | None = None  # to be compared with the `iss` of an answer (RFC 9207)
    tells_issuer: bool = False  # its authorization answers always have an `iss`
    scopes_supported: tuple[str, ...] = ()
    secret_in_body: bool = False  # the client's secret goes into the form: the server takes it in no other way
    speaks_pkce: bool = True  # with S256; what a server does not say may be


class _Metadata(msgspec.Struct, frozen=True):
    """RFC 8414 §2, OpenID Connect Discovery §3."""

    issuer: str
    token_endpoint: str
    authorization_endpoint: str | None = None
    device_authorization_endpoint: str | None = None
    revocation_endpoint: str | None = None
    scopes_supported: tuple[str, ...] = ()
    token_endpoint_auth_methods_supported: tuple[str, ...] = ()
    code_challenge_methods_supported: tuple[str, ...] | None = None
    authorization_response_iss_parameter_supported: bool = False


class _TokenAnswer(msgspec.Struct, frozen=True):
    access_token: str
    token_type: str = "Bearer"  # noqa: S105 - a kind, not a token
    expires_in: float | str | None = None
    refresh_token: str | None = None
    scope: str | None = None


class _Refusal(msgspec.Struct, frozen=True):
    error: str
    error_description: Any = None  # some servers write null, or an object


_read_metadata = msgspec.json.Decoder(_Metadata).decode
_read_tokens = msgspec.json.Decoder(_TokenAnswer).decode
_read_refusal = msgspec.json.Decoder(_Refusal).decode
_UNREADABLE: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


class AuthorizationServer:
    """Authorization servers over HTTP. `clock` gives seconds since the epoch."""

    def __init__(self, *, verify: Verify = True, clock: Callable[[], float] = time.time) -> None:
        self._http = Http(
            headers={"Accept": "application/json"},
            timeouts=_TIMEOUTS,
            verify=verify,
            gives_redirects=True,
            logged=False,
            max_response_bytes=_MAX_ANSWER_BYTES,
            max_event_bytes=_MAX_ANSWER_BYTES,
        )
        self._clock = clock

    async def close(self) -> None:
        """Close all connections. Closing twice is allowed."""
        await self._http.close()

    async def discover(self, issuer: str) -> Endpoints:
        """The endpoints of an issuer that somebody trusts.

        Raises:
            AuthorizationFailed: it has no discovery document, or one of somebody else.
            NotServed: it cannot be reached.
        """
        check_endpoint(issuer, "the issuer")
        base = URL(issuer)
        path = base.raw_path.rstrip("/")
        places = (
            base.with_path(f"{path}/.well-known/openid-configuration", encoded=True),
            base.with_path(f"/.well-known/oauth-authorization-server{path}", encoded=True),
        )
        for place in places:
            answer = await self._get(place)
            if answer.status == 200:
                found = _metadata(answer)
                if found.issuer.rstrip("/") != issuer.rstrip("/"):
                    raise AuthorizationFailed(
                        f"The document at {answer.url} is that of {shown(found.issuer)}, and not of {shown(issuer)}."
                    )
                return _endpoints(found)
        raise AuthorizationFailed(f"{shown(issuer)} has no discovery document: there is none at {shown(places[0])}.")

    async def read_metadata(self, url: str) -> Endpoints:
        """The endpoints in the document at `url`, whose issuer has to be at the same origin.

        Raises:
            AuthorizationFailed, NotServed: as `discover`.
        """
        check_endpoint(url, "the metadata URL")
        answer = await self._get(URL(url))
        if answer.status != 200:
            raise AuthorizationFailed(f"There is no discovery document at {answer.url} (HTTP {answer.status}).")
        found = _metadata(answer)
        if origin_of(found.issuer) != origin_of(url):
            raise AuthorizationFailed(f"The document at {answer.url} is that of another issuer, {shown(found.issuer)}.")
        return _endpoints(found)

    async def tokens(self, endpoints: Endpoints, client: Client, form: Mapping[str, str | None]) -> TokenSet:
        """Ask the token endpoint; members of `form` that are None are left out.

        Raises:
            AuthorizationFailed: it refused; `code` says why.
            NotServed: it cannot be reached.
        """
        now = self._clock()
        answer = await self._post(endpoints.token_url, endpoints, client, form)
        _check_granted(answer, _secrets(client, form))
        try:
            told = _read_tokens(answer.body)
        except _UNREADABLE:
            raise AuthorizationFailed(f"{answer.url} answered without a token.") from None
        if told.token_type.lower() != "bearer":
            raise AuthorizationFailed(f"{answer.url} gave a token of a type that is not spoken here, not Bearer.")
        if not told.access_token or not told.access_token.isascii() or not told.access_token.isprintable():
            raise AuthorizationFailed(f"{answer.url} gave a token that no header can carry.")
        lifetime_s = _seconds(told.expires_in)
        return TokenSet(
            told.access_token,
            None if lifetime_s is None else now + lifetime_s,
            told.refresh_token or None,
            tuple((told.scope or form.get("scope") or "").split()),
            lifetime_s,
        )

    async def ask(self, url: str, endpoints: Endpoints, client: Client, form: Mapping[str, str | None]) -> Any:
        """The JSON that another endpoint of the server answers. Raises as `tokens` does."""
        answer = await self._post(url, endpoints, client, form)
        _check_granted(answer, _secrets(client, form))
        try:
            return msgspec.json.decode(answer.body)
        except _UNREADABLE:
            raise AuthorizationFailed(f"{answer.url} did not answer in JSON.") from None

    async def revoke(self, endpoints: Endpoints, client: Client, token: str, kind: str) -> None:
        """Take a token back (RFC 7009); nothing where the server has no place for it. Raises as `tokens` does.

        `kind`: refresh_token or access_token.
        """
        if endpoints.revocation_url is None:
            return
        form = {"token": token, "token_type_hint": kind}
        answer = await self._post(endpoints.revocation_url, endpoints, client, form)
        if answer.status >= 300:
            _check_granted(answer, _secrets(client, form))

    async def _get(self, url: URL) -> Answer:
        try:
            return await self._http.card(url, {})
        except PeerError as error:
            raise NotServed(error, final=True) from None
        except NotServed as error:
            raise NotServed(error.error, final=True) from None

    async def _post(self, url: str, endpoints: Endpoints, client: Client, form: Mapping[str, str | None]) -> Answer:
        """A form, with what shows who the client is (RFC 6749 §2.3.1). A redirect is not followed."""
        check_endpoint(url, "the endpoint")
        fields = {name: value for name, value in form.items() if value is not None}
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if client.secret is None:
            fields["client_id"] = client.id
        elif endpoints.secret_in_body:
            fields |= {"client_id": client.id, "client_secret": client.secret}
        else:
            headers["Authorization"] = basic_value(quote_plus(client.id), quote_plus(client.secret))
        try:
            return await self._http.answer("POST", URL(url), headers, urlencode(fields).encode(), follow=False)
        except InvalidPeerResponse as error:
            plain = InvalidPeerResponse(_without(str(error), _secrets(client, form)))
            raise NotServed(plain, final=True) from None
        except PeerError as error:
            raise NotServed(error, final=True) from None
        except NotServed as error:
            raise NotServed(error.error, final=True) from None


def check_endpoint(url: str, what: str) -> None:
    """Raises AuthorizationFailed for a URL that no user and no secret is sent to: it has to be https, or here."""
    try:
        check_token_url(url, what)
    except ValueError as error:
        raise AuthorizationFailed(f"The authorization server cannot be asked: {error}.") from None


def _metadata(answer: Answer) -> _Metadata:
    try:
        return _read_metadata(answer.body)
    except _UNREADABLE:
        raise AuthorizationFailed(
            f"What is at {answer.url} is not the discovery document of an authorization server."
        ) from None


def _endpoints(found: _Metadata) -> Endpoints:
    methods = found.token_endpoint_auth_methods_supported
    named = {
        "token_endpoint": found.token_endpoint,
        "authorization_endpoint": found.authorization_endpoint,
        "device_authorization_endpoint": found.device_authorization_endpoint,
        "revocation_endpoint": found.revocation_endpoint,
    }
    for name, url in named.items():
        if url is not None:
            check_endpoint(url, name)
    challenges = found.code_challenge_methods_supported
    return Endpoints(
        found.token_endpoint,
        found.authorization_endpoint,
        found.device_authorization_endpoint,
        found.revocation_endpoint,
        found.issuer,
        found.authorization_response_iss_parameter_supported,
        found.scopes_supported,
        bool(methods) and "client_secret_basic" not in methods and "client_secret_post" in methods,
        challenges is None or "S256" in challenges,
    )


def _check_granted(answer: Answer, secrets: Sequence[str]) -> None:
    """Raises AuthorizationFailed for a refusal, which some servers write with HTTP 200, too."""
    try:
        refusal = _read_refusal(answer.body)
    except _UNREADABLE:
        if answer.status == 200:
            return
        code = _TEMPORARY if answer.status == 429 or answer.status >= 500 else ""  # RFC 6749 §4.1.2.1 has the word
        raise AuthorizationFailed(
            f"{answer.url} answered HTTP {answer.status} instead of a token.", code=code
        ) from None
    if answer.status == 200 and not refusal.error:
        return
    # A word of the specifications is no secret, even where a short secret happens to be a part of it.
    code = refusal.error if refusal.error in _CODES else _plain(refusal.error, secrets)
    said = _plain(refusal.error_description, secrets) if isinstance(refusal.error_description, str) else ""
    raise AuthorizationFailed(f"{answer.url} refused: {code}{f' ({said})' if said else ''}.", code=code)


def _plain(text: str, secrets: Sequence[str]) -> str:
    printable = "".join(character for character in text if character.isprintable())
    return _without(printable, secrets)[:_SAID_CHARS].rstrip(".")


def _secrets(client: Client, form: Mapping[str, str | None]) -> tuple[str, ...]:
    """What a server was told that nobody else may see, in each way it was written; the longest first."""
    told = [value for name, value in form.items() if name in _SECRET_FIELDS and value]
    if client.secret:
        basic = basic_value(quote_plus(client.id), quote_plus(client.secret)).removeprefix("Basic ")
        told += [client.secret, basic]
    return tuple(sorted({form for secret in told for form in (secret, quote_plus(secret))}, key=len, reverse=True))


def _without(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, _REDACTED)
    return text


def _seconds(told: float | str | None) -> float | None:
    """`expires_in`, which some servers write as a text. None is not said."""
    try:
        seconds = float(told) if told is not None else None
    except ValueError:
        return None
    return seconds if seconds is not None and 0 <= seconds <= _LONGEST_LIFE_S else None
