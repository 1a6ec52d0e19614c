"""What `tieline auth login` has kept, as the other commands use it."""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final

from tieline.cli.errors import CliError, UsageFault
from tieline.cli.notes import Notes
from tieline.cli.settings import Settings
from tieline.client.credentials import ClientCertificate, Credential, TokenSet, TokensKept
from tieline.client.discovery import FoundCard
from tieline.client.http import tls_context
from tieline.client.origin import origin_of
from tieline.client.saved import SavedAgent, SavedCredentials, SavedFault

__all__ = ["CREDENTIALS", "KEY_VARIABLE", "Stored", "certificate_of", "fault", "open_saved", "origins_of"]

CREDENTIALS: Final = "TIELINE_ERR_CREDENTIALS"  # ours: what is saved cannot be read, or kept
KEY_VARIABLE: Final = "TIELINE_CLIENT_KEY_PASSWORD"


@dataclass(frozen=True)
class Stored:
    """The credentials that were saved for an agent, and the origin that they are for; none where there are none."""

    credentials: tuple[Credential, ...] = ()
    origin: str | None = None


def origins_of(found: FoundCard) -> list[str]:
    """The origins that an agent's credentials may be saved for: where its card came from, or, of a card in a file,
    where its interfaces are."""
    places = [str(found.url)] if found.url is not None else [each.url for each in found.card.supported_interfaces]
    return list(dict.fromkeys(origin for each in places if (origin := origin_of(each)) is not None))


def open_saved(found: FoundCard, notes: Notes) -> Stored:
    """What is saved for an agent. Raises CliError when it cannot be read."""
    saved = SavedCredentials()
    try:
        for origin in origins_of(found):
            agent = saved.load(origin)
            if agent is not None and agent.logins:
                return Stored(_credentials(saved, agent, notes), origin)
    except SavedFault as error:
        raise fault(error) from None
    return Stored()


def _credentials(saved: SavedCredentials, agent: SavedAgent, notes: Notes) -> tuple[Credential, ...]:
    for login in agent.logins:
        notes.redact.learn(login.secrets)
    return tuple(
        login.credential(_Noted(saved.kept(agent.origin, login.scheme), notes) if login.oauth else None)
        for login in agent.logins
    )


class _Noted:
    """Tokens that are kept, and taken out of whatever is told. What cannot be kept is still good for this run."""

    def __init__(self, kept: TokensKept, notes: Notes) -> None:
        self._kept = kept
        self._notes = notes

    def load(self) -> TokenSet | None:
        tokens = self._kept.load()
        if tokens is not None:
            self._notes.redact.learn(filter(None, (tokens.access_token, tokens.refresh_token)))
        return tokens

    def save(self, tokens: TokenSet) -> None:
        self._notes.redact.learn(filter(None, (tokens.access_token, tokens.refresh_token)))
        try:
            self._kept.save(tokens)
        except SavedFault as error:
            self._notes.warn(f"The renewed token could not be kept: {error}")

    def held(self) -> AbstractAsyncContextManager[None]:
        return self._kept.held()


def fault(error: SavedFault) -> CliError:
    """What cannot be read or kept, as the command reports it."""
    return CliError(CREDENTIALS, str(error))


def certificate_of(settings: Settings) -> ClientCertificate | None:
    """The client certificate of the settings. Raises UsageFault when it cannot be used."""
    certificate, key = settings.resolve("client-cert"), settings.resolve("client-key")
    if certificate.value is None:
        if key.value is not None:
            raise UsageFault(f"{key.source}: a key is of no use without --client-cert")
        return None
    found = ClientCertificate(
        os.path.expanduser(certificate.value),
        None if key.value is None else os.path.expanduser(key.value),
        os.environ.get(KEY_VARIABLE) or None,
    )
    try:
        tls_context(True, found)
    except OSError as error:
        raise UsageFault(f"{certificate.source}: {error.strerror or error}: {certificate.value}, or its key") from None
    except ValueError as error:
        raise UsageFault(
            f"{certificate.source}: {error}", hint=f"The password of a key is read from {KEY_VARIABLE}."
        ) from None
    return found
