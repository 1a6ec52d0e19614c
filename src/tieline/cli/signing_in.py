"""How `tieline auth login` gets credentials: which way the card asks for, what it needs to know, and from whom."""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

import click

from tieline.card import AgentCard, SecurityScheme
from tieline.cli.errors import UsageFault
from tieline.cli.files import exposure
from tieline.cli.session import Session
from tieline.cli.stored import origins_of
from tieline.cli.text import describe_scheme
from tieline.client.credentials import (
    ApiKey,
    AuthorizationCode,
    Basic,
    Bearer,
    ClientCredentials,
    DeviceCode,
    DevicePrompt,
    OAuthCredential,
)
from tieline.client.discovery import FoundCard
from tieline.client.fitting import Fit
from tieline.client.oauth import AuthorizationServer, Endpoints
from tieline.client.origin import origin_of
from tieline.client.saved import Kind, Login
from tieline.client.tokens import endpoints_of, obtained
from tieline.client.transport import NotServed
from tieline.errors import AuthorizationFailed, OriginNotTrusted

__all__ = ["FLOWS", "SECRET_VARIABLE", "Wishes", "sign_in"]

FLOWS: Final = ("device-code", "authorization-code", "client-credentials", "bearer", "api-key", "basic")
SECRET_VARIABLE: Final = "TIELINE_SECRET"  # noqa: S105 - where one is, and none
_MAX_SECRET_BYTES: Final = 64 * 1024


@dataclass(frozen=True)
class Wishes:
    """The options of `login`."""

    flow: str | None = None
    scheme: str | None = None
    client_id: str | None = None
    confidential: bool = False
    issuer: str | None = None
    token_url: str | None = None
    scope: tuple[str, ...] = ()
    resource: str | None = None
    audience: str | None = None
    user: str | None = None
    secret_file: str | None = None
    no_browser: bool = False


@dataclass(frozen=True)
class _Step:
    """One login that is needed."""

    kind: Kind
    name: str = ""
    scheme: SecurityScheme | None = None
    scopes: tuple[str, ...] = ()


async def sign_in(session: Session, found: FoundCard, wishes: Wishes) -> tuple[Login, ...]:
    """All logins that the card asks for together.

    Raises:
        UsageFault: the card asks for nothing of what is wished, or something has to be said that nobody can be asked.
        AuthorizationFailed, OriginNotTrusted: the authorization server gives no token, or may not be asked.
    """
    steps = _steps(found.card, wishes)
    secrets = _Secrets(session, wishes)
    return tuple([await _signed_in(session, found, step, wishes, secrets) for step in steps])


# --- which way --------------------------------------------------------------------------------------------------------


def _steps(card: AgentCard, wishes: Wishes) -> list[_Step]:
    """The first of the card's alternatives that can be done, and is what is wished."""
    schemes = card.security_schemes
    if not schemes:
        if wishes.flow is None:
            raise UsageFault(
                f"The card of {card.name!r} asks for no credentials.",
                hint="If the agent wants some all the same, say which: --flow bearer, or another.",
            )
        return [_Step(cast("Kind", wishes.flow))]
    groups = [
        {name: scopes.list for name, scopes in requirement.schemes.items() if name in schemes}
        for requirement in card.security_requirements
        if requirement.schemes
    ]
    for group in groups or [{name: ()} for name in schemes]:
        found = [_step(name, schemes[name], scopes, wishes) for name, scopes in group.items()]
        steps = [step for step in found if isinstance(step, _Step)]
        named = wishes.scheme is None or wishes.scheme in group
        flown = wishes.flow is None or any(step.kind == wishes.flow for step in steps)
        if steps and None not in found and named and flown:
            return steps
    asked = ", or ".join(
        " together with ".join(f"{name} ({describe_scheme(schemes[name])})" for name in group)
        for group in groups or [{name: ()} for name in schemes]
    )
    wished = f" by {wishes.flow}" if wishes.flow else ""
    wished += f" for scheme {wishes.scheme!r}" if wishes.scheme else ""
    raise UsageFault(f"There is no way to sign in{wished}: the card asks for {asked}.")


def _step(name: str, scheme: SecurityScheme, scopes: tuple[str, ...], wishes: Wishes) -> _Step | str | None:
    """How a scheme is met; "" needs no login, None cannot be."""
    kinds = tuple(_kinds(scheme, wishes))
    if scheme.mtls_security_scheme is not None:
        return ""
    if not kinds:
        return None
    kind = wishes.flow if wishes.flow in kinds else kinds[0]
    return _Step(cast("Kind", kind), name, scheme, scopes)


def _kinds(scheme: SecurityScheme, wishes: Wishes) -> Iterator[str]:
    """The ways to meet a scheme, the card's own first."""
    if scheme.api_key_security_scheme is not None:
        yield "api-key"
    elif (http := scheme.http_auth_security_scheme) is not None:
        if http.scheme.lower() == "basic":
            yield "basic"
        elif http.scheme.lower() == "bearer":
            yield "bearer"
            if wishes.issuer is not None:
                yield from ("device-code", "authorization-code", "client-credentials")
    elif scheme.open_id_connect_security_scheme is not None:
        yield from ("device-code", "authorization-code", "client-credentials", "bearer")
    elif (oauth2 := scheme.oauth2_security_scheme) is not None:
        flows = oauth2.flows
        if flows.device_code is not None:
            yield "device-code"
        if flows.authorization_code is not None:
            yield "authorization-code"
        if flows.client_credentials is not None:
            yield "client-credentials"
        if wishes.issuer is not None or oauth2.oauth2_metadata_url is not None:
            yield from ("device-code", "authorization-code", "client-credentials")
        yield "bearer"


# --- one login --------------------------------------------------------------------------------------------------------


async def _signed_in(session: Session, found: FoundCard, step: _Step, wishes: Wishes, secrets: _Secrets) -> Login:
    try:
        if step.kind == "api-key":
            key = None if step.scheme is None else step.scheme.api_key_security_scheme
            if key is None:
                raise UsageFault("The card does not say where an API key goes: give it with --svc-param NAME:KEY.")
            secret = secrets.ask(f"API key for the {key.location} {key.name}")
            return Login("api-key", step.name, ApiKey(secret).key)
        if step.kind == "bearer":
            return Login("bearer", step.name, Bearer(secrets.ask("Bearer token")).token)
        if step.kind == "basic":
            user = wishes.user or _asked(session, "User", "--user")
            made = Basic(user, secrets.ask(f"Password of {user}"))
            return Login("basic", step.name, made.password, made.user)
        return await _by_oauth(session, found, step, wishes, secrets)
    except ValueError as error:
        raise UsageFault(f"{str(error)[0].upper()}{str(error)[1:]}.") from None


async def _by_oauth(session: Session, found: FoundCard, step: _Step, wishes: Wishes, secrets: _Secrets) -> Login:
    client_id = wishes.client_id or _asked(session, "Client id", "--client-id")
    confidential = step.kind == "client-credentials" or wishes.confidential
    secret = secrets.ask(f"Secret of client {client_id}") if confidential else None
    credential = _credential(session, step, wishes, client_id, secret)
    met = Fit(credential, step.scheme, step.name, step.scopes)
    server = AuthorizationServer(verify=not session.settings["insecure"])
    try:
        endpoints = await _endpoints(session, found, server, met)
        if _goes_by_browser_instead(step, wishes, endpoints):
            step = replace(step, kind="authorization-code")
            credential = _credential(session, step, wishes, client_id, secret)
            met = Fit(credential, step.scheme, step.name, step.scopes)
        if step.kind == "authorization-code" and endpoints.authorization_url is not None:
            session.notes.line(f"You sign in at {origin_of(endpoints.authorization_url)}.")
        tokens = await obtained(server, endpoints, met)
    except NotServed as error:
        raise error.error from None
    finally:
        await server.close()
    session.notes.redact.learn(filter(None, (tokens.access_token, tokens.refresh_token)))
    return Login(
        step.kind,
        step.name,
        secret or "",
        client_id=client_id,
        token_url=endpoints.token_url,
        revocation_url=endpoints.revocation_url or "",
        secret_in_body=endpoints.secret_in_body,
        scopes=credential.scopes or step.scopes,
        resource=wishes.resource or "",
        audience=wishes.audience or "",
        tokens=tokens,
    )


def _goes_by_browser_instead(step: _Step, wishes: Wishes, endpoints: Endpoints) -> bool:
    """Whether a server that the card names without a flow has none for devices, and one for browsers."""
    chosen = step.kind == "device-code" and wishes.flow is None
    return chosen and endpoints.device_authorization_url is None and endpoints.authorization_url is not None


def _credential(session: Session, step: _Step, wishes: Wishes, client_id: str, secret: str | None) -> OAuthCredential:
    if step.kind == "client-credentials":
        return ClientCredentials(
            client_id=client_id,
            client_secret=secret or "",
            issuer=wishes.issuer,
            token_url=wishes.token_url,
            scopes=wishes.scope,
            resource=wishes.resource,
            audience=wishes.audience,
        )
    if step.kind == "device-code":
        return DeviceCode(
            client_id=client_id,
            client_secret=secret,
            issuer=wishes.issuer,
            token_url=wishes.token_url,
            scopes=wishes.scope,
            resource=wishes.resource,
            audience=wishes.audience,
            show=lambda prompt: _show_device(session, prompt),
        )
    return AuthorizationCode(
        client_id=client_id,
        client_secret=secret,
        issuer=wishes.issuer,
        token_url=wishes.token_url,
        scopes=wishes.scope,
        resource=wishes.resource,
        audience=wishes.audience,
        open_url=lambda url: _open(session, url, browser=not wishes.no_browser),
    )


async def _endpoints(session: Session, found: FoundCard, server: AuthorizationServer, met: Fit) -> Endpoints:
    """Where to sign in. What only the card names is asked of the user, where there is one."""
    trusted = frozenset(session.settings["trust"])
    while True:
        try:
            return await endpoints_of(server, met, home=frozenset(origins_of(found)), trusted=trusted)
        except OriginNotTrusted as error:
            if not _interactive():
                raise
            what = "the client's secret go" if _confidential(met) else "you sign in"
            session.notes.line(f"The card of {found.card.name} wants to have {what} at {error.origin}.")
            if not click.confirm(f"Do you trust {error.origin}?", default=False, err=True):
                raise AuthorizationFailed(f"{error.origin} is not trusted: nothing was sent there.") from None
            trusted |= {error.origin}


def _confidential(met: Fit) -> bool:
    return isinstance(met.credential, OAuthCredential) and met.credential.client_secret is not None


# --- what a user sees and says ----------------------------------------------------------------------------------------


def _show_device(session: Session, prompt: DevicePrompt) -> None:
    session.notes.line(f"Open {prompt.url} and type the code {prompt.code}")
    if prompt.complete_url is not None:
        session.notes.line(f"Or open {prompt.complete_url}")
    session.notes.progress("waiting for you to sign in")


def _open(session: Session, url: str, *, browser: bool) -> None:
    session.notes.line(f"Open {url}" if not browser else f"A browser opens. If it does not, open {url}")
    session.notes.progress("waiting for you to sign in")
    if browser:
        # A browser may take its time to start, and the listener has to hear it.
        asyncio.get_running_loop().run_in_executor(None, webbrowser.open, url)


def _interactive() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin is not None and sys.stdin.isatty()


def _asked(session: Session, what: str, flag: str) -> str:
    if not _interactive():
        raise UsageFault(f"{what}? There is nobody to ask.", hint=f"Give {flag}.")
    session.notes.progress("")
    return str(click.prompt(what, err=True)).strip()


class _Secrets:
    """Where secrets come from: --secret-file, the environment, or the user; never the command line."""

    def __init__(self, session: Session, wishes: Wishes) -> None:
        self._session = session
        self._path = wishes.secret_file
        self._used = False

    def ask(self, what: str) -> str:
        """Raises UsageFault when there is none."""
        given = not self._used and (self._path is not None or bool(os.environ.get(SECRET_VARIABLE)))
        secret = (self._read() if given else self._prompt(what)).strip()
        if not secret:
            raise UsageFault(f"{what}: it is empty.")
        self._session.notes.redact.learn([secret])
        return secret

    def _read(self) -> str:
        self._used = True  # one source holds one secret
        if self._path is None:
            return os.environ[SECRET_VARIABLE]
        try:
            if self._path == "-":
                data = sys.stdin.buffer.read(_MAX_SECRET_BYTES)
            else:
                path = Path(self._path).expanduser()
                with path.open("rb") as file:
                    data = file.read(_MAX_SECRET_BYTES)
                if (exposed := exposure(path, "a secret")) is not None:
                    self._session.notes.warn(exposed)
            return data.decode()
        except OSError as error:
            raise UsageFault(f"{self._path} (--secret-file) cannot be read: {error.strerror}.") from None
        except UnicodeDecodeError:
            raise UsageFault(f"{self._path} (--secret-file) is not text.") from None

    def _prompt(self, what: str) -> str:
        if not _interactive():
            raise UsageFault(
                f"{what}? There is nobody to ask.",
                hint=f"Give --secret-file PATH (or - for stdin), or set {SECRET_VARIABLE}.",
            )
        self._session.notes.progress("")
        return str(click.prompt(what, err=True, hide_input=True))
