"""`tieline task download`: save what a task has produced (CLI specification §7.1).

Names come from an agent, and are taken for nothing more than a suggestion: see `safe_name`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, cast
from urllib.parse import urlsplit
from urllib.request import url2pathname

import aiohttp
import click
import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from tieline.cli import errors
from tieline.cli.errors import CliError, UsageFault
from tieline.cli.options import CONNECTION, PRESENTATION, Command
from tieline.cli.session import Session, execute
from tieline.cli.task import named_task, task_argument
from tieline.cli.text import joined_parts
from tieline.client.following import rests
from tieline.types import Artifact, Part, Task, encode

__all__ = ["download", "safe_name"]

FILES: Final = "TIELINE_ERR_FILES"  # ours: a file could not be written

_UNSAFE: Final = re.compile(r'[\x00-\x1f\x7f-\x9f<>:"|?*/\\\u202a-\u202e\u2066-\u2069]')
_DEVICES: Final = re.compile(r"(?i)(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)")
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


def safe_name(suggested: str | None, fallback: str) -> str:
    """A file name in one folder from what an agent suggests: the last step of a path, without anything that acts.

    Never empty, "." or "..", never hidden, no separators, no control characters, no device names of Windows.
    """
    for candidate in (suggested or "", fallback):
        last = re.split(r"[/\\]", candidate)[-1]
        name = _UNSAFE.sub("_", last).strip(" .\t")
        if not name:
            continue
        if _DEVICES.match(name):
            name = f"_{name}"
        while len(name.encode("utf-8", "replace")) > _LONGEST_NAME:
            stem, dot, ending = name.rpartition(".")
            name = f"{stem[:-1]}{dot}{ending}" if len(stem) > 1 and len(ending) < 20 else name[:-1]
        return name
    return "artifact"


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
    """Save a task's artifacts: files and texts as they are, data as JSON. Nothing that is there is overwritten."""
    wanted = named_task(context, task_id)
    target = folder.absolute()

    async def work(session: Session) -> None:
        session.task_id = wanted
        async with session.connect() as peer:
            found = await peer.get(wanted, history_length=0)
        artifacts = [a for a in found.artifacts if not names or a.name in names or a.artifact_id in names]
        if names and not artifacts:
            have = ", ".join(artifact.name or artifact.artifact_id for artifact in found.artifacts) or "none"
            raise UsageFault(f"The task has no artifact {' or '.join(names)}: it has {have}.")
        saved = await _save_all(session, artifacts, target, force=force, fetch=fetch)
        _report(session, replace(found, artifacts=tuple(saved)))

    return execute(context, work)


async def _save_all(
    session: Session, artifacts: list[Artifact], folder: Path, *, force: bool, fetch: bool
) -> list[Artifact]:
    """Write all parts; return the artifacts with each saved part as the URL of its file."""
    plan = list(_plan(artifacts))
    names = [name for _, _, name, part in plan if _is_written(part, fetch)]
    await asyncio.to_thread(_prepare, folder, names, force)
    done: dict[tuple[int, int], Part] = {}
    for at, index, name, part in plan:
        if not _is_written(part, fetch):
            session.notes.warn(f"not fetched: {part.url} (--fetch does, if you trust it)")
            continue
        path = folder / name
        if part.url is not None:
            size = await _fetch(part.url, path)
        else:
            content = _content(part)
            size = len(content)
            await asyncio.to_thread(_write, path, content)
        session.notes.debug(f"saved {size} bytes: {path}")
        done[at, index] = Part(url=path.as_uri(), filename=name, media_type=part.media_type, metadata=part.metadata)
    return [
        replace(a, parts=tuple(done.get((at, index), part) for index, part in enumerate(joined_parts(a))))
        for at, a in enumerate(artifacts)
    ]


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
    return part.url is None or fetch


def _plan(artifacts: list[Artifact]) -> Iterator[tuple[int, int, str, Part]]:
    """Each part with its place and a name of its own."""
    used: set[str] = set()
    for at, artifact in enumerate(artifacts):
        parts = joined_parts(artifact)
        for index, part in enumerate(parts):
            base = artifact.name or artifact.artifact_id
            name = safe_name(part.filename, base if len(parts) == 1 else f"{base}-{index + 1}")
            if part.filename is None and "." not in name:
                name += _ENDINGS.get(_type_of(part), ".bin")
            stem, dot, ending = name.partition(".")
            number = 1
            while name.lower() in used:
                number += 1
                name = f"{stem}-{number}{dot}{ending}"
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
    with _replacing(path) as out:
        out.write(content)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that becomes `path` when it is whole: never half of one, never through a link that stands there."""
    name: str | None = None
    try:
        with tempfile.NamedTemporaryFile(prefix=".tieline-", dir=path.parent, delete=False) as out:
            name = out.name
            yield cast("BinaryIO", out)
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
        name = None
    except OSError as error:
        raise CliError(FILES, f"{path} cannot be written: {error.strerror or error}.") from None
    finally:
        if name is not None:
            os.unlink(name)


def _umask() -> int:
    current = os.umask(0o077)
    os.umask(current)
    return current


async def _fetch(url: str, path: Path) -> int:
    """Save what is at a URL that the agent has given. No credential, cookie or header of ours goes there."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise CliError(FILES, f"{url} is not fetched: only http and https are.")
    size = 0
    try:
        async with (
            aiohttp.ClientSession(timeout=_FETCH_TIMEOUT, trust_env=True) as client,
            client.get(url) as response,
        ):
            if response.status != 200:
                raise CliError(errors.UNREACHABLE, f"{url} answered HTTP {response.status}.")
            with _replacing(path) as out:
                async for chunk in response.content.iter_chunked(1 << 16):
                    size += len(chunk)
                    if size > _MAX_FETCHED_BYTES:
                        raise CliError(FILES, f"{url} is larger than {_MAX_FETCHED_BYTES} bytes.")
                    out.write(chunk)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise CliError(errors.UNREACHABLE, f"{url} could not be fetched: {error or type(error).__name__}.") from None
    return size


def _report(session: Session, task: Task) -> None:
    """What was saved and where. The task as JSON names the files as its parts' URLs."""
    if session.as_json:
        session.out.task(task)
    else:
        fields = [("Task ID", task.id), ("Context ID", task.context_id or ""), ("State", task.state.value)]
        for artifact in task.artifacts:
            fields.append(("Artifact", artifact.name or artifact.artifact_id))
            for part in artifact.parts:
                saved = part.url is not None and part.url.startswith("file:")
                fields.append(("Saved" if saved else "Not saved", _told(part)))
        session.out.document({}, fields)
    if not task.artifacts:
        session.notes.warn("the task has no artifacts.")
    elif not rests(task.state):
        session.notes.warn(f"the task is still at work ({task.state.value}): there may be more to come.")


def _told(part: Part) -> str:
    url = part.url or ""
    if not url.startswith("file:"):
        return url
    return url2pathname(urlsplit(url).path)
