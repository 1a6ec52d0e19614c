"""The parts of a message from the command line, in the order in which they were written (CLI specification §10.2)."""

from __future__ import annotations

import mimetypes
import sys
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

from tieline.cli.errors import UsageFault
from tieline.types import Part, exact

__all__ = ["build_parts"]

_STDIN: Final = "-"
_BINARY: Final = "application/octet-stream"


def build_parts(given: Sequence[tuple[str, str]]) -> tuple[Part, ...]:
    """Parts of `(kind, value)` pairs; a kind is text, input, file, data or media-type.

    `input` is the text that stands without a flag, `-` for standard input. A media type belongs to the part in front
    of it.

    Raises:
        UsageFault: a file cannot be read, data is not JSON, a media type stands alone, or there is no part.
    """
    parts: list[Part] = []
    typed = True  # the part in front has its type, or there is none
    stdin_used = False
    for kind, value in given:
        if kind == "media-type":
            if typed:
                raise UsageFault("--media-type belongs behind the --text, --file or --data that it describes.")
            parts[-1] = msgspec.structs.replace(parts[-1], media_type=_media_type(value))
            typed = True
            continue
        if value == _STDIN and kind in ("input", "data"):
            if stdin_used:
                raise UsageFault("Standard input can be read once.")
            stdin_used = True
        parts.append(_PARTS[kind](value))
        typed = kind == "input"
    if not parts:
        hint = 'Give a text, as in: tieline send "Hello" (or --text, --file, --data).'
        if sys.stdin is not None and not sys.stdin.isatty():
            hint += " Standard input is sent by: tieline send -"
        raise UsageFault("There is nothing to send.", hint=hint)
    return tuple(parts)


def _text(value: str) -> Part:
    return Part(text=value)


def _input(value: str) -> Part:
    if value != _STDIN:
        return Part(text=value)
    try:
        return Part(text=_stdin().decode())
    except UnicodeDecodeError as error:
        raise UsageFault(f"Standard input is not UTF-8 text: {error}.", hint="Send bytes with --file.") from None


def _stdin() -> bytes:
    if sys.stdin is None:
        raise UsageFault("Standard input is closed: there is nothing to read.")
    return sys.stdin.buffer.read()


def _file(value: str) -> Part:
    if value.lower().startswith(("http://", "https://")):
        name = PurePosixPath(unquote(urlsplit(value).path)).name or None
        return Part(url=value, filename=name, media_type=mimetypes.guess_type(name)[0] if name else None)
    path = Path(value)
    raw = _read(path, "--file")
    return Part(raw=raw, filename=path.name, media_type=_guess(path.name, raw))


def _data(value: str) -> Part:
    source = "standard input" if value == _STDIN else value
    raw = _stdin() if value == _STDIN else _read(Path(value), "--data")
    try:
        decoded: Any = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageFault(f"--data: {source} is not JSON: {error}.") from None
    return Part(data=exact(decoded))


_PARTS: Final = {"text": _text, "input": _input, "file": _file, "data": _data}


def _read(path: Path, flag: str) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        hint = None
        if flag == "--data" and str(path)[:1] in ("{", "["):
            hint = "--data takes a file: to send JSON from the command line, pipe it into --data -"
        raise UsageFault(f"{flag}: {path} cannot be read: {reason}.", hint=hint) from None


def _guess(name: str, raw: bytes) -> str:
    """By the name's ending, else by whether the bytes are text."""
    known, encoding = mimetypes.guess_type(name)
    if known and encoding is None:
        return known
    if known:  # report.csv.gz is not a CSV file
        return _BINARY
    try:
        raw.decode()
    except UnicodeDecodeError:
        return _BINARY
    return "text/plain" if b"\0" not in raw else _BINARY


def _media_type(value: str) -> str:
    name = value.strip()
    head, slash, tail = name.partition("/")
    if not (head and slash and tail) or not name.isprintable() or " " in head:
        raise UsageFault(f"--media-type: {value!r} is not a media type such as text/csv.")
    return name
