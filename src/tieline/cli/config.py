"""`tieline config show`: what holds, and where it comes from (CLI specification §8.3). Reads, and never writes."""

from __future__ import annotations

from typing import Any

import click

from tieline.cli.errors import CliError
from tieline.cli.notes import Notes
from tieline.cli.options import Command, Group, settings_of
from tieline.cli.output import open_output
from tieline.cli.settings import GLOBAL_FILE, SETTINGS, Settings, tell

__all__ = ["config", "show"]

config = Group(
    "config",
    {"show": ("tieline.cli.config", "show", "Show the settings that hold, and where each comes from.")},
    help="Look at the configuration.",
)


@click.command("show", cls=Command, settings=tuple(SETTINGS))
@click.pass_context
def show(context: click.Context) -> int:
    """Show each setting's value and its source: a flag, an environment variable, a file, or the default.

    To change one, set its variable (A2ACLI_ and the flag's name) or write it into a .env file; this command changes
    nothing. Credentials are not shown.
    """
    settings = settings_of(context)
    notes = Notes()
    out = open_output(settings["output"], notes, stream=settings["stream"], verbose=False)
    rows = [_row(settings, name) for name in SETTINGS]
    files = _files(settings, notes)
    fields = [(str(row["name"]), f"{row['value']} [{row['source']}]") for row in rows]
    fields += [(f"{file['kind']} file", str(file["path"] or "none")) for file in files]
    out.document({"settings": rows, "files": files}, fields)
    for row in rows:
        if row["error"]:
            notes.warn(str(row["error"]))
    return 0


def _row(settings: Settings, name: str) -> dict[str, Any]:
    """One setting. One that makes no sense is shown as such: this is the command to find it with."""
    try:
        resolved = settings.resolve(name)
    except CliError as error:
        return {"name": name, "value": "(invalid)", "source": str(error).partition(": ")[0], "error": str(error)}
    return {"name": name, "value": tell(resolved), "source": resolved.source, "error": None}


def _files(settings: Settings, notes: Notes) -> list[dict[str, Any]]:
    files: list[dict[str, Any]] = []
    for kind, file in (("Local", settings.local_file), ("Global", settings.global_file)):
        files.append({"kind": kind, "path": None if file is None else str(file.path)})
        if file is None:
            continue
        for name in file.unknown:
            notes.warn(f"{file.path}: {name} is no setting that a file can have.")
        if (exposure := file.exposure) is not None:
            notes.warn(exposure)
    if files[1]["path"] is None:
        notes.line(f"A global file would be ~/{GLOBAL_FILE.as_posix()}.")
    return files
