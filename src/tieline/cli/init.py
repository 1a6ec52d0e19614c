"""`tieline init`: write a small agent project that runs, and whose tests pass."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
from collections.abc import Mapping
from importlib import metadata, resources
from pathlib import Path
from typing import Final

import click

from tieline import __version__
from tieline.cli.errors import CliError, UsageFault
from tieline.cli.files import FILES
from tieline.cli.notes import Notes
from tieline.cli.options import PRESENTATION, Command, settings_of
from tieline.cli.output import open_output
from tieline.engine.agent import slug_of

__all__ = ["init"]

_TEMPLATES: Final = {
    "agent.py": "agent.py.in",
    "tests/test_agent.py": "tests/test_agent.py.in",
    "pyproject.toml": "pyproject.toml.in",
    "README.md": "README.md.in",
    "Dockerfile": "Dockerfile.in",
    ".gitignore": "gitignore.in",
    ".env.example": "env.example.in",
}
_LONGEST_NAME: Final = 64  # characters
_NEEDED: Final = ("tieline", "pytest", "hatchling")  # what the project is installed with
_PROJECT_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_MARKDOWN: Final = re.compile(r"([\\`*_\[\]<>#&])")


@click.command(
    "init",
    cls=Command,
    settings=PRESENTATION,
    params=[
        click.Argument(["directory"], required=False, default=".", metavar="[DIRECTORY]"),
        click.Option(["--name"], metavar="NAME", help="The agent's name.  [default: made of the directory's]"),
    ],
)
@click.pass_context
def init(context: click.Context, directory: str, name: str | None) -> int:
    """Write a small agent project into DIRECTORY, which is made if it is not there: an agent, tests, a Dockerfile.

    Nothing is overwritten: where one of its files is there already, nothing is written.
    """
    settings = settings_of(context)
    settings.check_flags()
    out = open_output(settings["output"], Notes(), stream=settings["stream"], verbose=settings["verbose"])
    if not directory:
        raise UsageFault("DIRECTORY is empty.", hint="The directory at hand is a dot: tieline init .")
    folder = Path(directory)
    name = _name_of(folder) if name is None else _checked(name.strip(), "--name")
    project = slug_of(name)
    _write(folder, _filled(name, project))
    out.document(
        {"directory": str(folder.resolve()), "name": name, "project": project, "files": list(_TEMPLATES)},
        [("Project", str(folder.resolve())), ("Agent", name), ("Files", ", ".join(_TEMPLATES))],
    )
    go = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(_as_argument(directory))} && "
    out.next("Install", f"{go}pip install -e '.[test]'")
    out.next("Test", "pytest")
    out.next("Serve", "tieline serve agent.py")
    out.next("Send", 'tieline send -a 127.0.0.1:8000 "the cat and the dog"')
    return 0


def _as_argument(directory: str) -> str:
    """A directory as commands take it for one, and not for an option."""
    return f"./{directory}" if directory.startswith("-") else directory


def _taken() -> frozenset[str]:
    """The projects that this one is installed with, and what these need in turn: it cannot be called so."""
    found: set[str] = set()
    waiting = list(_NEEDED)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found:
            continue
        found.add(name)
        with contextlib.suppress(metadata.PackageNotFoundError):
            for need in metadata.requires(name) or ():
                known = _PROJECT_NAME.match(need)
                if known is not None and (name == "tieline" or "extra ==" not in need):
                    waiting.append(known[0])
    return frozenset(found)


def _name_of(folder: Path) -> str:
    """A name made of the directory's: `word-count` is "Word count". Raises UsageFault."""
    words = re.sub(r"[-_.\s]+", " ", folder.resolve().name).strip()
    return _checked(words[:1].upper() + words[1:], "The directory's name")


def _checked(name: str, where: str) -> str:
    """`name`, if it can be the name of an agent and, as a slug, of a project. Raises UsageFault."""
    fault = ""
    if not any(character.isalnum() for character in name):
        fault = "has to have a letter or digit"
    elif not name.isprintable():
        fault = "has characters that cannot be printed"
    elif len(name) > _LONGEST_NAME:
        fault = f"has {len(name)} characters, {_LONGEST_NAME} at most can be"
    elif slug_of(name) in _taken():
        fault = f"makes a project called {slug_of(name)!r}, and that is what it is to be installed with"
    if fault:
        raise UsageFault(f"{where} {fault}.", hint='Name the agent with --name, such as --name "Word count".')
    return name


def _filled(name: str, project: str) -> dict[str, bytes]:
    """The files, by their path in the project."""
    quoted = json.dumps(name)  # a literal of Python and of TOML alike
    about = json.dumps(f"The A2A agent {name}.")
    marks = {
        "@NAME@": quoted,
        "@ABOUT@": about,
        "@TITLE@": _MARKDOWN.sub(r"\\\1", name),
        "@PROJECT@": project,
        "@VERSION@": __version__,
    }
    pattern = re.compile("|".join(marks))  # all at once: a name may look like a mark
    folder = resources.files("tieline.cli") / "templates"
    return {
        path: pattern.sub(lambda mark: marks[mark.group()], (folder / template).read_text("utf-8")).encode()
        for path, template in _TEMPLATES.items()
    }


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write all of the files, or none. Raises CliError when one of them is there, or cannot be written."""
    there = [path for path in files if os.path.lexists(folder / path)]
    if there:
        is_are = "is" if len(there) == 1 else "are"
        raise CliError(
            FILES,
            f"{', '.join(there)} {is_are} in {folder} already. Nothing was written.",
            hint="Name a new directory: tieline init DIRECTORY",
        )
    made: list[Path] = []
    path = folder
    try:
        for name, content in files.items():
            path = folder / name
            for parent in [each for each in reversed(path.parents) if not each.exists()]:
                parent.mkdir()
                made.append(parent)
            with path.open("xb") as out:
                made.append(path)
                out.write(content)
    except OSError as error:
        for each in reversed(made):
            with contextlib.suppress(OSError):
                each.rmdir() if each.is_dir() else each.unlink()
        raise CliError(FILES, f"{path} cannot be written: {error.strerror or error}.") from None
