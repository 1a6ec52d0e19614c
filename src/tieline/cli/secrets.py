"""Secrets of webhooks: out of files, variables and standard input, never out of arguments, which others can read."""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path
from typing import Final

import click

from tieline.cli.errors import UsageFault
from tieline.cli.files import exposure
from tieline.cli.notes import Notes
from tieline.cli.settings import read_secret

__all__ = ["SECRET_OPTIONS", "read_secrets", "secret_options"]

SECRET_OPTIONS: Final = {
    "token": ("TIELINE_PUSH_TOKEN", "The token of the webhook's configuration"),
    "bearer": ("TIELINE_PUSH_BEARER", "The bearer token that the agent shows to the webhook"),
    "basic": ("TIELINE_PUSH_BASIC", "USER:PASSWORD that the agent shows to the webhook"),
}
"""By name: the variable, and what it is. The option is `--NAME-file`."""


def secret_options() -> list[click.Parameter]:
    """Options for all of them."""
    return [
        click.Option(
            [f"--{name}-file"],
            metavar="PATH",
            help=f"{what} is in this file; - asks for it, or reads standard input. Else {variable}.",
        )
        for name, (variable, what) in SECRET_OPTIONS.items()
    ]


def read_secrets(given: dict[str, str | None], notes: Notes) -> dict[str, str]:
    """The secrets that there are, by name. `given`: paths by option (`token_file`).

    Raises UsageFault when a file cannot be read, or has nothing in it that a header can carry.
    """
    if sum(path == "-" for path in given.values()) > 1:
        raise UsageFault("Standard input holds one secret: give the others as files or variables.")
    found = {}
    for name, (variable, what) in SECRET_OPTIONS.items():
        path = given[f"{name}_file"]
        text = os.environ.get(variable) if path is None else _read(path, what, notes)
        if not text:
            continue
        try:
            found[name] = read_secret(text)
        except ValueError as error:
            raise UsageFault(f"{variable if path is None else f'--{name}-file'}: {error}") from None
        if name == "basic" and ":" not in found[name]:
            raise UsageFault("The secret of basic has to be USER:PASSWORD.")
    if "bearer" in found and "basic" in found:
        raise UsageFault("An agent shows a webhook either a bearer token or a user and password.")
    notes.redact.learn(found.values())
    return found


def _read(path: str, what: str, notes: Notes) -> str:
    if path == "-":
        if sys.stdin.isatty():
            return getpass.getpass(f"{what}: ")
        return sys.stdin.readline()
    file = Path(path).expanduser()
    try:
        text = file.read_text(encoding="utf-8")
        exposed = exposure(file, "a secret")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageFault(f"{file} cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}.") from None
    if exposed is not None:
        notes.warn(exposed)
    if not text.strip():
        raise UsageFault(f"{file} is empty.")
    return text
