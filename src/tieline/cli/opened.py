"""The store that a URL names, for commands: opened and closed, its errors as the command's, without its password."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import click

from tieline.cli.errors import CliError, UsageFault
from tieline.cli.notes import Redactor
from tieline.cli.options import settings_of

if TYPE_CHECKING:
    from tieline.stores import Store

__all__ = ["IN_USE", "STORE", "STORES", "VARIABLE", "named", "named_store", "opened", "redactor_of", "store_argument"]

# Ours: the CLI specification knows of no stores.
STORE: Final = "TIELINE_ERR_STORE"
IN_USE: Final = "TIELINE_ERR_STORE_IN_USE"

VARIABLE: Final = "TIELINE_STORE"
STORES: Final = "memory|sqlite:PATH|postgresql://...|redis://..."
_ONE_OWNER: Final = (
    "A SQLite file belongs to one process: stop the server first. PostgreSQL and Redis can be looked at beside it."
)
_ADDRESS: Final = re.compile(
    r"([^@/?#]*@)?"  # user and password
    r"((\[[^@/?#\]]*\]|[^@/?#:,\[\]]*)(:\d*)?)(,(\[[^@/?#\]]*\]|[^@/?#:,\[\]]*)(:\d*)?)*"  # of PostgreSQL several
    r"([/?][^@#]*)?"
)
_QUOTED: Final = "Characters such as @ / ? # : in a password are written %40 %2F %3F %23 %3A."


def store_argument() -> click.Argument:
    """The store, else the one of the environment, where it does not stand in the process list."""
    return click.Argument(["url"], required=False, envvar=VARIABLE, metavar="[URL]")


def redactor_of(url: str) -> Redactor:
    """What takes the passwords of a store's URL out of texts."""
    redact = Redactor()
    if "://" not in url:
        return redact
    parts = urlsplit(url)
    secrets = [value for name, value in parse_qsl(parts.query) if "password" in name.lower()]
    if parts.password:
        secrets += [parts.password, unquote(parts.password)]
    redact.learn(secrets)
    return redact


def named_store(url: str) -> Store:
    """The store that a URL names, not opened yet. Raises UsageFault."""
    from tieline.stores import open_store

    kind, _, rest = url.partition("://")
    if rest and kind not in ("sqlite", "memory") and _ADDRESS.fullmatch(rest) is None:
        # Where it begins and ends cannot be told, and so not where the password is: nothing of it is repeated.
        raise UsageFault(f"What follows {kind}:// is no address of a store.", hint=_QUOTED)
    try:
        return open_store(url)
    except ValueError as error:
        raise UsageFault(redactor_of(url)(str(error))) from None


@contextmanager
def named(context: click.Context, url: str | None) -> Iterator[tuple[asyncio.Runner, Store]]:
    """The store, not opened yet, and what runs its calls; it is closed at the end.

    Between two calls Ctrl-C ends the command at once, also while it waits for a file.

    Raises:
        UsageFault: no store is named, or one that keeps nothing.
        CliError: the store cannot be used.
    """
    from tieline.stores import MemoryStore
    from tieline.stores.base import StoreError, StoreInUse

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    if settings_of(context)["debug"]:
        logging.getLogger("tieline").setLevel(logging.DEBUG)
    if not url:
        raise UsageFault(
            "Which store? No URL is given.",
            hint=f"Give sqlite:PATH, postgresql://... or redis://..., or set {VARIABLE}.",
        )
    store = named_store(url)
    if isinstance(store, MemoryStore):
        raise UsageFault("memory is forgotten with its server: there is nothing to look after.")
    try:
        with asyncio.Runner() as runner:
            try:
                yield runner, store
            finally:
                runner.run(store.close())
    except StoreInUse as error:
        said = str(error).partition(" Stop it")[0]  # what follows there is for a server
        raise CliError(IN_USE, said, hint=_ONE_OWNER) from None
    except StoreError as error:
        raise CliError(STORE, redactor_of(url)(str(error))) from error


@contextmanager
def opened(context: click.Context, url: str | None, *, made: bool) -> Iterator[tuple[asyncio.Runner, Store]]:
    """The store as `named` has it, open. This process is no replica of it: it takes on no tasks.

    Args:
        made: Whether a file that is not there is made.
    """
    from tieline.stores.sqlite import SQLiteStore

    with named(context, url) as (runner, store):
        if isinstance(store, SQLiteStore) and not made and not store.path.exists():
            raise CliError(STORE, f"There is no file {store.path}.")
        runner.run(store.open())
        yield runner, store
