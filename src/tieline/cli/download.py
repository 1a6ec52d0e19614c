"""`tieline task download`: save what a task has produced (CLI specification §7.1).

Names come from an agent, and are taken for nothing more than a suggestion: see `safe_name`.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import aiohttp
import click
import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from tieline.cli import errors
from tieline.cli.errors import CliError, UsageFault
from tieline.cli.files import FILES, replacing
from tieline.cli.options import CONNECTION, PRESENTATION, Command
from tieline.cli.session import Session, execute
from tieline.cli.task import named_task, task_argument
from tieline.cli.text import joined_parts
from tieline.client.following import rests
from tieline.types import Artifact, Part, Task, encode

__all__ = ["download", "numbered", "safe_name"]

_UNSAFE: Final = re.compile(r'[\x00-\x1f\x7f-\x9f<>:"|?*/\\\u202a-\u202e\u2066-\u2069]')
_DEVICES: Final = re.compile(r"(?i)(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)")
_ACTING: Final = ("-", "~")  # at its beginning a name is an option, or a home, to a shell
_ENDING: Final = re.compile(r"(?:\.tar)?\.\w{1,10}$")
_LONGEST_NAME: Final = 200  # bytes; common file systems take 255
_ENDINGS: Final = {
    "text/plain": ".txt",
    "text/markdown": ".md",
    "text/csv": ".csv",
    "text/html": ".html",
    "application/json": ".json",
}
_MAX_FETCHED_BYTES: Final = 1 << 30
_FETCH_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=60)


_Saved = dict[tuple[int, int], Path]
"""The files of parts that were saved, by the places of artifact and part."""


def safe_name(suggested: str | None, fallback: str) -> str:
    """A file name in one folder from what an agent suggests: the last step of a path, without anything that acts.

    Never empty, "." or "..", never hidden, no separators, no control characters, no device names of Windows,
    no "-" or "~" at the beginning.
    """
    for candidate in (suggested or "", fallback):
        last = re.split(r"[/\\]", candidate)[-1]
        name = _UNSAFE.sub("_", last).strip(" .\t")
        if not name:
            continue
        if _DEVICES.match(name) or name.startswith(_ACTING):
            name = f"_{name}"
        while len(name.encode("utf-8", "replace")) > _LONGEST_NAME:
            stem, dot, ending = name.rpartition(".")
            name = f"{stem[:-1]}{dot}{ending}" if len(stem) > 1 and len(ending) < 20 else name[:-1]
        return name
    return "artifact"


def numbered(name: str, number: int) -> str:
    """`name` with a number before its ending."""
    ending = _ENDING.search(name)
    at = ending.start() if ending is not None and ending.start() else len(name)
    return f"{name[:at]}-{number}{name[at:]}"


@click.command(
    "download",
    cls=Command,
    settings=(*CONNECTION, "task-id", *PRESENTATION),
    params=[
        task_argument(),
        click.Option(
            ["folder", "-d", "--dir"],
            type=click.Path(file_okay=False, path_type=Path),
            default=Path(),
            metavar="FOLDER",
            help="Where to save; made when it is not there.  [default: the working directory]",
        ),
        click.Option(["names", "--artifact"], multiple=True, metavar="NAME|ID", help="Only this artifact. Repeatable."),
        click.Option(["--force"], is_flag=True, help="Overwrite files that are there."),
        click.Option(["--fetch"], is_flag=True, help="Fetch files that the agent gives as URLs, without credentials."),
    ],
)
@click.pass_context
def download(
    context: click.Context, task_id: str | None, folder: Path, names: tuple[str, ...], force: bool, fetch: bool
) -> int:
    """Save a task's artifacts: files and texts as they are, data as JSON. Nothing that is there is overwritten.

    A URL that cannot be fetched does not keep the rest from being saved; the exit code is 1 then.
    """
    complete = True
    wanted = named_task(context, task_id)
    target = folder.absolute()

    async def work(session: Session) -> None:
        nonlocal complete
        session.task_id = wanted
        async with session.connect() as peer:
            found = await peer.get(wanted, history_length=0)
        artifacts = [a for a in found.artifacts if not names or a.name in names or a.artifact_id in names]
        if names and not artifacts:
            have = ", ".join(artifact.name or artifact.artifact_id for artifact in found.artifacts) or "none"
            raise UsageFault(f"The task has no artifact {' or '.join(names)}: it has {have}.")
        saved, complete = await _save_all(session, artifacts, target, force=force, fetch=fetch)
        _report(session, found, artifacts, saved)

    return execute(context, work) or (0 if complete else 1)


async def _save_all(
    session: Session, artifacts: list[Artifact], folder: Path, *, force: bool, fetch: bool
) -> tuple[_Saved, bool]:
    """Write all parts; return those that were saved, and whether all that was to be fetched could be."""
    plan = list(_plan(artifacts))
    names = [name for _, _, name, part in plan if _is_written(part, fetch)]
    await asyncio.to_thread(_prepare, folder, names, force)
    saved: _Saved = {}
    complete = True
    for at, index, name, part in plan:
        if not _is_written(part, fetch):
            fetchable = _is_fetchable(part.url or "")
            why = "--fetch does, if you trust it" if fetchable else "only http and https are"
            session.notes.warn(f"not fetched: {part.url} ({why})")
            complete = complete and not fetch
            continue
        path = folder / name
        if part.url is not None:
            try:
                size = await _fetch(part.url, path)
            except CliError as error:
                session.notes.warn(f"not fetched: {error}")
                complete = False
                continue
        else:
            content = _content(part)
            size = len(content)
            await asyncio.to_thread(_write, path, content)
        session.notes.debug(f"saved {size} bytes: {path}")
        saved[at, index] = path
    return saved, complete


def _prepare(folder: Path, names: list[str], force: bool) -> None:
    """Make the folder, and look at all names before the first file is written: half a download helps nobody."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CliError(FILES, f"{folder} cannot be made: {error.strerror}.") from None
    taken = [str(folder / name) for name in names if os.path.lexists(folder / name)]
    if taken and not force:
        raise CliError(
            FILES,
            f"{', '.join(taken)}: there already, and nothing was written.",
            hint="Choose another folder with --dir, or overwrite with --force.",
        )


def _is_written(part: Part, fetch: bool) -> bool:
    return part.url is None or (fetch and _is_fetchable(part.url))


def _is_fetchable(url: str) -> bool:
    return url.lower().startswith(("http://", "https://"))


def _plan(artifacts: list[Artifact]) -> Iterator[tuple[int, int, str, Part]]:
    """Each part with its place and a name of its own."""
    used: set[str] = set()
    for at, artifact in enumerate(artifacts):
        parts = joined_parts(artifact)
        for index, part in enumerate(parts):
            base = safe_name(artifact.name, artifact.artifact_id)
            name = safe_name(part.filename, base if len(parts) == 1 else numbered(base, index + 1))
            if part.filename is None and "." not in name:
                name += _ENDINGS.get(_type_of(part), ".bin")
            wanted, number = name, 1
            while name.lower() in used:
                number += 1
                name = numbered(wanted, number)
            used.add(name.lower())
            yield at, index, name, part


def _type_of(part: Part) -> str:
    if part.data is not UNSET:
        return "application/json"
    given = (part.media_type or "").partition(";")[0].strip().lower()
    return given or ("text/plain" if part.text is not None else "")


def _content(part: Part) -> bytes:
    if part.raw is not None:
        return part.raw
    if part.text is not None:
        return part.text.encode("utf-8", "surrogatepass")
    return msgspec.json.format(encode(part.data), indent=2) + b"\n"


def _write(path: Path, content: bytes) -> None:
    with replacing(path) as out:
        out.write(content)


async def _fetch(url: str, path: Path) -> int:
    """Save what is at a URL that the agent has given. No credential, cookie or header of ours goes there."""
    size = 0
    try:
        async with (
            aiohttp.ClientSession(timeout=_FETCH_TIMEOUT, trust_env=True) as client,
            client.get(url) as response,
        ):
            if response.status != 200:
                raise CliError(errors.UNREACHABLE, f"{url} answered HTTP {response.status}.")
            with replacing(path) as out:
                async for chunk in response.content.iter_chunked(1 << 16):
                    size += len(chunk)
                    if size > _MAX_FETCHED_BYTES:
                        raise CliError(FILES, f"{url} is larger than {_MAX_FETCHED_BYTES} bytes.")
                    out.write(chunk)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise CliError(errors.UNREACHABLE, f"{url} could not be fetched: {error or type(error).__name__}.") from None
    return size


def _report(session: Session, task: Task, artifacts: list[Artifact], saved: _Saved) -> None:
    """What was saved and where. The task as JSON names the files as its parts' URLs."""
    if session.as_json:
        told = [
            replace(a, parts=tuple(_told(part, saved.get((at, index))) for index, part in enumerate(joined_parts(a))))
            for at, a in enumerate(artifacts)
        ]
        session.out.task(replace(task, artifacts=tuple(told)))
    else:
        fields = [("Task ID", task.id), ("Context ID", task.context_id or ""), ("State", task.state.value)]
        for at, artifact in enumerate(artifacts):
            fields.append(("Artifact", artifact.name or artifact.artifact_id))
            for index, part in enumerate(joined_parts(artifact)):
                file = saved.get((at, index))
                fields.append(("Not saved", part.url or "") if file is None else ("Saved", str(file)))
        session.out.document({}, fields)
    if not artifacts:
        session.notes.warn("the task has no artifacts.")
    elif not rests(task.state):
        session.notes.warn(f"the task is still at work ({task.state.value}): there may be more to come.")


def _told(part: Part, file: Path | None) -> Part:
    """A part as the report has it: a saved one as the URL of its file, and nothing else as a URL of a file."""
    if file is not None:
        return Part(url=file.as_uri(), filename=file.name, media_type=part.media_type, metadata=part.metadata)
    url = part.url or ""
    return part if _is_fetchable(url) else replace(part, url=f"unsaved:{url}")
