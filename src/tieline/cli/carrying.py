"""`tieline store export | import`: carry all tasks from one store into another, as lines of JSON (task_lines.py).

Neither holds more than some tasks at a time, however many there are.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

import click

from tieline.cli.errors import INTERNAL, CliError, UsageFault
from tieline.cli.files import FILES, replacing
from tieline.cli.notes import Notes
from tieline.cli.opened import VARIABLE, opened
from tieline.cli.options import PRESENTATION, Command
from tieline.cli.output import TextOutput
from tieline.cli.progress import bar, on_terminal
from tieline.cli.store import output_of
from tieline.cli.task_lines import HEAD, check_head, line_of, task_of

if TYPE_CHECKING:
    from tieline.stores import Store
    from tieline.stores.base import StoredTask

__all__ = ["export", "import_"]

BAD_LINE: Final = "TIELINE_ERR_IMPORT"  # ours: a line of a file is no task

_PIPE_CLOSED: Final = 141  # 128 + SIGPIPE
_BATCH_TASKS: Final = 100
_BATCH_BYTES: Final = 8 * 1024 * 1024


def _words_argument() -> click.Argument:
    return click.Argument(["words"], nargs=-1, metavar="[URL] FILE|-")


def _url_and_file(words: tuple[str, ...]) -> tuple[str, str]:
    """The store, of the environment where one word is given, and the file. Raises UsageFault."""
    url = os.environ.get(VARIABLE, "")
    if len(words) == 2:
        url = words[0]
    if not url or len(words) not in (1, 2):
        raise UsageFault(
            "Give the URL of a store, and a file.", hint=f"With {VARIABLE} set the file is enough; - is a pipe."
        )
    return url, words[-1]


# --- export ---------------------------------------------------------------------------------------------------------


class _Written(NamedTuple):
    tasks: int
    events: int


@click.command(
    "export",
    cls=Command,
    settings=PRESENTATION,
    params=[
        _words_argument(),
        click.Option(["--force"], is_flag=True, help="Overwrite the file if it is there."),
    ],
)
@click.pass_context
def export(context: click.Context, words: tuple[str, ...], force: bool) -> int:
    """Write all tasks with their logs to FILE, or to a pipe (-): JSON Lines, one of the format, then one for each task.

    A server may go on meanwhile where the store lets it (PostgreSQL, Redis): a task that changes is written as it was
    or as it is. The file is there when it is whole, and readable by you alone.
    """
    url, file = _url_and_file(words)
    if file == "-":
        return _export_to_pipe(context, url)
    from tieline.stores import shown

    out = output_of(context)
    path = Path(file)
    if path.exists() and not (force and path.is_file()):
        how = "Overwrite it with --force." if path.is_file() else "Give - and let your shell write there."
        raise CliError(FILES, f"{path} is there already, and nothing was written.", hint=how)
    with opened(context, url, made=False) as (runner, store), replacing(path, private=True) as target:
        written = _export(runner, store, target)
        target.flush()
        os.fsync(target.fileno())  # whoever has an export may do away with the store
    name = shown(url)
    out.document(
        {"store": name, "file": str(path), "tasks": written.tasks, "events": written.events},
        [("Store", name), ("File", str(path)), ("Tasks", str(written.tasks)), ("Events", str(written.events))],
    )
    return 0


def _export_to_pipe(context: click.Context, url: str) -> int:
    """stdout holds tasks alone: what else there is to say goes to stderr."""
    notes = Notes()
    if sys.stdout is None:
        raise CliError(INTERNAL, "There is nowhere to put the tasks: stdout is closed.")
    try:
        with opened(context, url, made=False) as (runner, store):
            written = _export(runner, store, sys.stdout.buffer)
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        with contextlib.suppress(OSError):
            sys.stdout.close()  # else the interpreter complains of it at its end
        return _PIPE_CLOSED
    except CliError as error:
        TextOutput(io.StringIO(), notes, verbose=False).error(error)
        return error.exit_code
    notes.line(f"Exported {written.tasks} tasks with {written.events} events.")
    return 0


def _export(runner: asyncio.Runner, store: Store, target: BinaryIO) -> _Written:
    total = sum(runner.run(store.stats()).states.values()) if on_terminal() else 0
    with bar("Exporting", total) as said:
        return runner.run(_write(store, target, said))


async def _write(store: Store, target: BinaryIO, said: Callable[[int, str], None]) -> _Written:
    tasks = events = 0
    target.write(HEAD)
    async for task in store.tasks():
        target.write(line_of(task))
        tasks += 1
        events += len(task.events)
        said(tasks, "")
        await asyncio.sleep(0)  # a store that never waits would keep Ctrl-C from being heard
    return _Written(tasks, events)


# --- import ---------------------------------------------------------------------------------------------------------


class _Batch(NamedTuple):
    """Tasks of lines that follow each other."""

    tasks: list[StoredTask]
    first: int  # number of its first line
    last: int
    end: int  # bytes of the file up to its end


class _BadLine(Exception):
    """A line that is no task."""

    def __init__(self, number: int, why: str, first: int) -> None:
        super().__init__(f"Line {number}: {why}.")
        self.first = first  # line of its batch


@click.command("import", cls=Command, settings=PRESENTATION, params=[_words_argument()])
@click.pass_context
def import_(context: click.Context, words: tuple[str, ...]) -> int:
    """Put the tasks of FILE, or of a pipe (-), into a store: what `tieline store export` has written.

    A task that is there already stays as it is, so an import that was broken off can be made again. Tasks that were at
    work are taken on by the servers of the store, as after a crash. A line that is no task ends the import: what stood
    some lines before it (100 at most) is not put in either.
    """
    from tieline.stores import shown
    from tieline.stores.base import StoreError

    url, file = _url_and_file(words)
    out = output_of(context)
    new = there = 0
    with _reading(file) as source:
        head = _first_line(source, file)
        size = os.fstat(source.fileno())
        length = size.st_size if stat.S_ISREG(size.st_mode) else None
        with opened(context, url, made=True) as (runner, store), bar("Importing", length) as said:
            try:
                for batch in _batches(source, file, len(head)):
                    try:
                        put = runner.run(store.put(batch.tasks))
                    except StoreError as error:
                        raise StoreError(f"Lines {batch.first} to {batch.last} cannot be put in: {error}") from error
                    new += put
                    there += len(batch.tasks) - put
                    said(batch.end, f"{new + there} tasks")
            except _BadLine as error:
                raise CliError(
                    BAD_LINE,
                    f"{error} Nothing from line {error.first} on was put in; before it {new} tasks were new,"
                    f" {there} there already.",
                    hint="Mend the line and import the file again: what is there stays as it is.",
                ) from None
    name = shown(url)
    out.document(
        {"store": name, "tasks": new + there, "new": new, "alreadyThere": there},
        [("Store", name), ("Tasks", str(new + there)), ("New", str(new)), ("Already there", str(there))],
    )
    return 0


@contextlib.contextmanager
def _reading(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        if sys.stdin is None:
            raise CliError(FILES, "There is nothing to read: stdin is closed.")
        yield sys.stdin.buffer
        return
    try:
        source = open(file, "rb")  # noqa: SIM115 - closed below; errors of the work are not this file's
    except OSError as error:
        raise CliError(FILES, f"{file} cannot be read: {error.strerror}.") from None
    with source:
        yield source


def _first_line(source: BinaryIO, file: str) -> bytes:
    """The line of the format, looked at before there is a store. Raises CliError."""
    line = _line(source, file)
    try:
        check_head(line)
    except ValueError as error:
        raise CliError(BAD_LINE, f"Line 1: {error}.", hint="tieline store export writes what is read here.") from None
    return line


def _line(source: BinaryIO, file: str) -> bytes:
    try:
        return source.readline()
    except OSError as error:
        raise CliError(FILES, f"{file} cannot be read: {error.strerror}.") from None


def _batches(source: BinaryIO, file: str, end: int) -> Iterator[_Batch]:
    """The tasks of the lines behind the first one, some at a time. Raises _BadLine and CliError."""
    tasks: list[StoredTask] = []
    number = first = 2
    size = 0
    while line := _line(source, file):
        end += len(line)
        size += len(line)
        try:
            tasks.append(task_of(line))
        except ValueError as error:
            raise _BadLine(number, str(error), first) from None
        if len(tasks) == _BATCH_TASKS or size > _BATCH_BYTES:
            yield _Batch(tasks, first, number, end)
            tasks, first, size = [], number + 1, 0
        number += 1
    if tasks:
        yield _Batch(tasks, first, number - 1, end)
