"""`tieline auth login | status | logout`: credentials for agents, kept for the other commands.

CLI specification §12.2.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import click

from tieline.cli.errors import UsageFault
from tieline.cli.options import PRESENTATION, Command, Group
from tieline.cli.session import Session, execute
from tieline.cli.signing_in import FLOWS, Wishes, sign_in
from tieline.cli.stored import fault, origins_of
from tieline.client.discovery import card_file, card_urls, without_user
from tieline.client.oauth import AuthorizationServer, Client, Endpoints
from tieline.client.origin import origin_of
from tieline.client.saved import Login, SavedAgent, SavedCredentials, SavedFault
from tieline.client.transport import NotServed
from tieline.errors import AuthorizationFailed

__all__ = ["auth", "login", "logout", "status"]

auth = Group(
    "auth",
    {
        "login": ("tieline.cli.auth", "login", "Sign in to an agent, as its card asks."),
        "status": ("tieline.cli.auth", "status", "Show which agents you are signed in to."),
        "logout": ("tieline.cli.auth", "logout", "Sign out of an agent."),
    },
    help="Sign in to agents, and out.",
)

_AGENT = ("agent-card", "a2a-version", "client-cert", "client-key", "insecure", "timeout", "trust")


@click.command(
    "login",
    cls=Command,
    settings=(*_AGENT, *PRESENTATION),
    params=[
        click.Option(["--flow"], type=click.Choice(FLOWS), help="How to sign in, where the card leaves a choice."),
        click.Option(["--scheme"], metavar="NAME", help="The card's security scheme to sign in for."),
        click.Option(
            ["--client-id"],
            metavar="ID",
            envvar="TIELINE_CLIENT_ID",
            show_envvar=True,
            help="OAuth: the id that this client is registered with at the authorization server.",
        ),
        click.Option(["--confidential"], is_flag=True, help="OAuth: the client has a secret, though a user signs in."),
        click.Option(["--issuer"], metavar="URL", help="OAuth: the authorization server, in place of the card's word."),
        click.Option(["--token-url"], metavar="URL", help="OAuth: its token endpoint, in place of the card's word."),
        click.Option(["--scope"], multiple=True, metavar="SCOPE", help="OAuth: what to ask for. Repeatable."),
        click.Option(["--resource"], metavar="URL", help="OAuth: the agent that the token is for (RFC 8707)."),
        click.Option(["--audience"], metavar="TEXT", help="OAuth: the same, for servers that call it so."),
        click.Option(["--user"], metavar="NAME", help="Basic: the user."),
        click.Option(
            ["--secret-file"],
            metavar="PATH|-",
            help="Read the secret (client secret, key, token, password) from a file or standard input. Else it is read"
            " from TIELINE_SECRET, or asked for.",
        ),
        click.Option(["--no-browser"], is_flag=True, help="Show the address to open instead of opening a browser."),
    ],
)
@click.pass_context
def login(context: click.Context, /, **given: Any) -> int:
    """Sign in to an agent by the first way that its card asks for and that is spoken here, and keep what comes of it.

    Device code, authorization code with a browser, client credentials, bearer token, API key, user and password. The
    other commands use it from then on, without more options. It is kept in the system's keyring, or in a file that only
    you can read.
    """
    wishes = Wishes(**{**given, "scope": tuple(given["scope"])})

    async def work(session: Session) -> None:
        found = await session.fetch()
        session.card = found.card
        origins = origins_of(found)
        if not origins:
            raise UsageFault("The card names no place that credentials could be for.")
        logins = await sign_in(session, found, wishes)
        saved = SavedCredentials()
        try:
            before = saved.load(origins[0])
            names = {each.scheme for each in logins}
            others = () if before is None else tuple(each for each in before.logins if each.scheme not in names)
            declared = found.card.security_schemes
            kept = tuple(each for each in others if each.scheme in declared)
            agent = SavedAgent(origins[0], found.card.name, (*kept, *logins))
            where = saved.save(agent)
        except SavedFault as error:
            raise fault(error) from None
        _show(session, [(agent, where)], {"agent": _told(agent, where)})

    return execute(context, work)


@click.command("status", cls=Command, settings=("agent-card", *PRESENTATION))
@click.pass_context
def status(context: click.Context) -> int:
    """Show which agents you are signed in to, how, and until when; with -a only that one. No secret is shown."""

    async def work(session: Session) -> None:
        saved = SavedCredentials()
        try:
            only = await _origins(session) if "agent-card" in session.settings.flags else saved.origins()
            found = [(agent, saved.where(origin)) for origin in only if (agent := saved.load(origin)) is not None]
        except SavedFault as error:
            raise fault(error) from None
        _show(session, found, {"agents": [_told(agent, where) for agent, where in found]})
        if not found:
            session.notes.line("You are not signed in.")

    return execute(context, work)


@click.command("logout", cls=Command, settings=("agent-card", "insecure", *PRESENTATION))
@click.pass_context
def logout(context: click.Context) -> int:
    """Sign out of an agent: tokens are taken back where the authorization server does that, and forgotten here."""

    async def work(session: Session) -> None:
        saved = SavedCredentials()
        rows: list[dict[str, Any]] = []
        try:
            for origin in await _origins(session):
                agent = _readable(session, saved, origin)
                revoked = 0
                for each in () if agent is None else agent.logins:
                    session.notes.redact.learn(each.secrets)
                    revoked += await _revoked(session, each)
                if saved.remove(origin):
                    rows.append({"origin": origin, "removed": True, "revoked": revoked})
        except SavedFault as error:
            raise fault(error) from None
        fields = [("Signed out", f"{row['origin']} ({row['revoked']} tokens taken back)") for row in rows]
        session.out.document({"agents": rows}, fields)
        if not rows:
            session.notes.line("You were not signed in.")

    return execute(context, work)


def _readable(session: Session, saved: SavedCredentials, origin: str) -> SavedAgent | None:
    """What is kept, or None with a warning: it can be forgotten all the same."""
    try:
        return saved.load(origin)
    except SavedFault as error:
        if origin not in saved.origins():  # the file itself is at fault
            raise
        session.notes.warn(f"What was saved cannot be read, and so not taken back: {error}")
        return None


async def _origins(session: Session) -> list[str]:
    """The origins that an agent's credentials may be kept for. The network is not asked."""
    ref, _ = without_user(session.ref)
    session.notes.redact.learn_reference(session.ref)
    if card_file(str(ref)) is not None:
        return origins_of(await session.fetch())
    origin = origin_of(card_urls(str(ref))[0])
    return [] if origin is None else [origin]


async def _revoked(session: Session, kept: Login) -> int:
    """Take tokens back; how many were."""
    tokens = kept.tokens
    if tokens is None or not kept.revocation_url:
        return 0
    server = AuthorizationServer(verify=not session.settings["insecure"])
    endpoints = Endpoints(kept.token_url, revocation_url=kept.revocation_url, secret_in_body=kept.secret_in_body)
    count = 0
    try:
        for kind, token in (("refresh_token", tokens.refresh_token), ("access_token", tokens.access_token)):
            if token is not None:
                await server.revoke(endpoints, Client(kept.client_id, kept.secret or None), token, kind)
                count += 1
    except NotServed as error:
        session.notes.warn(f"A token could not be taken back; it is good until it expires. {error}")
    except AuthorizationFailed as error:
        session.notes.warn(f"A token was not taken back; it is good until it expires. {error}")
    finally:
        await server.close()
    return count


# --- what is shown ----------------------------------------------------------------------------------------------------


def _show(session: Session, found: Iterable[tuple[SavedAgent, str]], document: dict[str, Any]) -> None:
    fields: list[tuple[str, str]] = []
    for agent, where in found:
        fields += [("Agent", agent.name), ("Origin", agent.origin)]
        for each in agent.logins:
            fields += _fields(each)
        fields.append(("Kept in", where))
    session.out.document(document, fields)


def _fields(kept: Login) -> list[tuple[str, str]]:
    who = kept.user or kept.client_id
    named = f" for scheme {kept.scheme}" if kept.scheme else ""
    rows = [("Signed in", f"by {kept.kind.replace('-', ' ')}{f' as {who}' if who else ''}{named}")]
    told = _login_told(kept)
    if told["scopes"]:
        rows.append(("Scopes", " ".join(told["scopes"])))
    if told["expiresAt"] is not None:
        rows.append(("Token until", f"{told['expiresAt']}{', then renewed' if told['renewable'] else ''}"))
    return rows


def _told(agent: SavedAgent, where: str) -> dict[str, Any]:
    return {
        "origin": agent.origin,
        "name": agent.name,
        "keptIn": where,
        "logins": [_login_told(each) for each in agent.logins],
    }


def _login_told(kept: Login) -> dict[str, Any]:
    """What may be seen of a login."""
    tokens = kept.tokens
    expires = None if tokens is None or tokens.expires_at is None else datetime.fromtimestamp(tokens.expires_at, UTC)
    return {
        "scheme": kept.scheme or None,
        "kind": kept.kind,
        "user": kept.user or None,
        "clientId": kept.client_id or None,
        "scopes": list(tokens.scopes if tokens is not None and tokens.scopes else kept.scopes),
        "expiresAt": None if expires is None else expires.isoformat(timespec="seconds").replace("+00:00", "Z"),
        "renewable": kept.kind == "client-credentials" or (tokens is not None and tokens.refresh_token is not None),
    }
