"""Everything that goes to stderr: warnings, the identifiers of a task that is awaited, progress, the debug log.

Secrets are taken out here, whatever the verbosity: nothing of the command writes to stderr by another way
(CLI specification §11.1, §12.1).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterable
from typing import Final, TextIO
from urllib.parse import quote, quote_plus, urlsplit

from tieline.cli.settings import REDACTED

__all__ = ["Notes", "Redactor", "printable"]

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_SENSITIVE: Final = re.compile(
    r"(?im)^([<>*\s]*(?:proxy-)?(?:authorization|cookie|set-cookie|[\w-]*(?:api-?key|token|secret|password)[\w-]*)\s*:\s*)"
    r"(?!\[redacted\]$)\S.*$"
)
_FRAMES: Final = "|/-\\"
_REDRAW_S: Final = 0.1


def printable(text: str) -> str:
    """Text from elsewhere without terminal control sequences: control characters are shown as escapes.

    Line feeds and tabs stay. Marks that turn the direction of text are control characters here, too: they can make a
    line show something else than it says.
    """
    if text.isprintable():
        return text
    return _CONTROL.sub(lambda match: _escape(match.group()), text.replace("\r\n", "\n"))


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


class Redactor:
    """Takes the secrets it knows out of text, in the forms in which they cross the wire, and header lines by name."""

    def __init__(self) -> None:
        self._forms: list[str] = []

    def learn(self, secrets: Iterable[str]) -> None:
        for secret in secrets:
            # A value of one or two characters is no secret, and taking it out would leave nothing readable.
            if len(secret) > 2:
                forms = {secret, quote(secret, safe=""), quote(secret), quote_plus(secret), json.dumps(secret)[1:-1]}
                self._forms = sorted({*self._forms, *forms}, key=len, reverse=True)

    def learn_reference(self, ref: str) -> None:
        """The password in a reference such as `https://user:password@host`, or without the scheme."""
        try:
            password = urlsplit(ref if "://" in ref else f"//{ref}").password
        except ValueError:
            return
        if password:
            self.learn([password])

    def __call__(self, text: str) -> str:
        for form in self._forms:
            text = text.replace(form, REDACTED)
        return _SENSITIVE.sub(rf"\g<1>{REDACTED}", text)


class Notes:
    """Lines on stderr, and on a terminal one line of progress that is rewritten."""

    def __init__(self, stream: TextIO | None = None, *, debugging: bool = False) -> None:
        self.redact = Redactor()
        self.debugging = debugging
        self._stream = stream or sys.stderr or open(os.devnull, "w")  # noqa: SIM115 - as long as the process
        self._lively = self._stream.isatty()
        self._awaited = ""  # what the progress line says; "" is none
        self._shown = ""  # the progress line as it stands there
        self._frame = 0
        self._began = time.monotonic()

    def line(self, text: str) -> None:
        self._clear()
        self._write(printable(self.redact(text)) + "\n")

    def warn(self, text: str) -> None:
        self.line(f"Warning: {text}")

    def debug(self, text: str) -> None:
        """An entry of the debug log, with the seconds since the start; nothing unless --debug."""
        if self.debugging:
            self.line(f"[{time.monotonic() - self._began:8.3f}] {text}")

    def progress(self, text: str) -> None:
        """Say from now on that this is awaited; "" is the end of waiting."""
        self._awaited = text
        if not text:
            self._clear()

    async def animate(self) -> None:
        """Redraw the progress line until cancelled. Does nothing where stderr is no terminal (§11.1)."""
        while self._lively:
            if self._awaited:
                self._draw()
            await asyncio.sleep(_REDRAW_S)

    def _draw(self) -> None:
        self._frame += 1
        line = printable(self.redact(self._awaited)).replace("\n", " ")
        width = max(20, shutil.get_terminal_size().columns - 1)
        shown = f"{_FRAMES[self._frame % len(_FRAMES)]} {time.monotonic() - self._began:.0f}s  {line}"[:width]
        self._write(f"\r{shown}{' ' * max(0, len(self._shown) - len(shown))}")
        self._shown = shown

    def _clear(self) -> None:
        """Take the progress line away, before something else is written."""
        if self._shown:
            self._write(f"\r{' ' * len(self._shown)}\r")
            self._shown = ""

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError, UnicodeEncodeError):  # a stderr that has gone takes nothing from the result
            return
