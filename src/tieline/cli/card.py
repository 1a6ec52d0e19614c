"""`tieline card get`: show an agent's card, and check it (CLI specification §10.1). signing.py has its signatures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import click
import msgspec
from msgspec.inspect import DictType, StructType, Type, UnionType, VarTupleType, type_info

from tieline.card import AgentCard
from tieline.cli import errors
from tieline.cli.errors import CliError, UsageFault
from tieline.cli.options import CONNECTION, PRESENTATION, Command, Group
from tieline.cli.session import Session, execute, preferred
from tieline.cli.signing import signed_fields
from tieline.client.discovery import FoundCard
from tieline.client.opening import vouched_document
from tieline.client.route import choose, spoken_version
from tieline.errors import A2AError, InvalidCard
from tieline.types import encode

__all__ = ["card", "get"]

card = Group(
    "card",
    {
        "get": ("tieline.cli.card", "get", "Fetch and show an agent's card."),
        "verify": ("tieline.cli.signing", "verify", "Check the signatures of a card."),
        "sign": ("tieline.cli.signing", "sign", "Sign a card in a file."),
        "keygen": ("tieline.cli.signing", "keygen", "Make a key to sign cards with."),
    },
    help="Look at agents' cards, check their signatures, and sign your own.",
)


@click.command(
    "get",
    cls=Command,
    settings=(*CONNECTION, *PRESENTATION),
    params=[
        click.Option(["--validate"], is_flag=True, help="Check the card against the A2A 1.0 schema."),
        click.Option(["--extended"], is_flag=True, help="The card for callers who have authenticated."),
    ],
)
@click.pass_context
def get(context: click.Context, validate: bool, extended: bool) -> int:
    """Fetch an agent's card and show what it says: identity, capabilities, interfaces, security, skills.

    The card is fetched without credentials; with --extended they are used, and the agent shows what those may know who
    have authenticated.
    """
    if validate and extended:
        raise UsageFault("--validate is for the card that all may read: leave it out, or --extended.")

    async def work(session: Session) -> None:
        if extended:
            async with session.connect() as peer:
                card = await session.extended_card(peer)
            _show(session, card, encode(card))
            return
        found = await _validated(session) if validate else await session.fetch()
        session.card = found.card
        assert session.verification is not None
        valid = [("Valid", "yes")] if validate else []
        _show(session, found.card, vouched_document(found, session.verification), *valid)
        if validate:
            for name in _unknown(type_info(AgentCard), msgspec.json.decode(found.document), ""):
                session.notes.warn(f"{name} is no field of an agent card, and nobody reads it.")
        for fault in found.faults:
            session.notes.warn(f"The card is not valid A2A 1.0, but the agent can be called: {fault}.")

    return execute(context, work)


def _show(session: Session, card: AgentCard, document: bytes, *more: tuple[str, str]) -> None:
    """A card, and as text who has signed it, which interface is used, and `more`."""
    verification = session.verification
    assert verification is not None
    session.out.card(card, document, verification.state)
    if not session.as_json:
        session.out.document({}, [*signed_fields(verification), *_selected(session, card), *more])


async def _validated(session: Session) -> FoundCard:
    """The card. Raises CliError with everything that is wrong with it, also what bars no calls."""
    try:
        found = await session.fetch()
        if found.faults:
            raise InvalidCard(f"The agent card at {found.where} is not valid: {'; '.join(found.faults)}.")
    except InvalidCard as error:
        raise CliError(
            errors.CARD_INVALID, str(error), hint="The agent's author can correct it: A2A 1.0 §4.4.1."
        ) from None
    return found


def _selected(session: Session, card: AgentCard) -> list[tuple[str, str]]:
    """The interface that other commands would use with the same settings."""
    wanted = preferred(card, session.settings["transport"])
    try:
        first = choose(card, transports=wanted, version=spoken_version(session.version))[0]
    except A2AError as error:
        session.notes.warn(str(error))
        return []
    return [("Selected interface", f"{first.protocol_binding} {first.protocol_version} at {first.url}")]


_OLDER: Final = re.compile(
    r"(url|preferred_?transport|additional_?interfaces|protocol_?version|security|authentication"
    r"|supports_?authenticated_?extended_?card|capabilities\.state_?transition_?history|skills\[\d+\]\.security"
    r"|security_?schemes\.[^.]+\.(type|description|in|name|scheme|bearer_?format|flows|open_?id_?connect_?url"
    r"|oauth2_?metadata_?url))",
    re.IGNORECASE,
)
"""The paths of fields that only readers before A2A 1.0 know."""


def _unknown(type_: Type, value: Any, path: str) -> Iterator[str]:
    """The paths of fields in a decoded JSON value that no version of its type has."""
    if isinstance(type_, UnionType):
        for option in type_.types:
            if isinstance(option, StructType | DictType | VarTupleType):
                yield from _unknown(option, value, path)
    elif isinstance(type_, StructType) and isinstance(value, dict):
        fields = {field.encode_name: field.type for field in type_.fields}
        for name, item in value.items():
            camel = re.sub(r"_([a-z])", lambda match: match.group(1).upper(), name)
            if camel not in fields:
                if not _OLDER.fullmatch(path + name):
                    yield f"{path}{name}"
            else:
                yield from _unknown(fields[camel], item, f"{path}{name}.")
    elif isinstance(type_, DictType) and isinstance(value, dict):
        for name, item in value.items():
            yield from _unknown(type_.value_type, item, f"{path}{name}.")
    elif isinstance(type_, VarTupleType) and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unknown(type_.item_type, item, f"{path.rstrip('.')}[{index}].")
