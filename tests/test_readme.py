"""What README.md shows is what happens: its Python is run, its commands are run, their output is compared.

The blocks are taken in their order, in one empty folder, as a reader would who follows the page:

- ```python is run, all in one namespace; `await` may stand at the top. A block whose first line is `# name.py` is also
  written to that file.
- ```console is a line `$ tieline ...` and below it what it prints. `tieline serve` is left running, the others have to
  succeed. What they print has the lines of the page in their order; there may be more between them. `...` in a line
  stands for anything; identifiers and times need not be the same. Of other commands only `cat` and `printf` are run.

Where the page has port 8000 or https://agent.example, the agent that the page has served last is called.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import os
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import tieline
from tests.interop.processes import ROOT, TIELINE, free_port, running

README = ROOT / "README.md"
BLOCK_LIMIT_S = 60.0

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_VARIABLE = (
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "ID"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT[\d:.]+Z"), "TIME"),
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str
    line: int  # of its first line in the page, from 1


def blocks_of(page: str) -> list[Block]:
    return [Block(m[1], m[2], page.count("\n", 0, m.start(2)) + 1) for m in _BLOCK.finditer(page)]


@dataclass
class Reader:
    """Somebody who does what a page says, in the folder where they are."""

    servers: contextlib.ExitStack
    names: dict[str, Any] = field(default_factory=lambda: {"tieline": tieline, "__name__": "readme"})
    port: int = 0  # of the agent that was served last
    ran: int = 0  # blocks and commands
    transcript: str = ""  # what the commands have printed

    def follow(self, page: str) -> None:
        """Do all of it. Raises AssertionError, or what a Python block raises, with the line of the page."""
        for block in blocks_of(page):
            if block.language == "python":
                self._run_python(block)
            elif block.language == "console":
                self._run_console(block)

    def _here(self, text: str) -> str:
        text = text.replace("https://agent.example", f"http://127.0.0.1:{self.port}")
        return re.sub(r"(?<=[: ])8000\b", str(self.port), text)

    def _run_python(self, block: Block) -> None:
        self.ran += 1
        if named := re.match(r"# ([\w./-]+\.py)\n", block.text):
            Path(named[1]).write_text(block.text)
        # The empty lines put the block where it stands in the page, so that a traceback names the page's line.
        source = "\n" * (block.line - 1) + self._here(block.text)
        code = compile(source, str(README), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        failure: list[BaseException] = []

        def run() -> None:
            try:
                result = eval(code, self.names)
                if inspect.iscoroutine(result):
                    asyncio.run(result)
            except BaseException as error:
                failure.append(error)

        # A thread of its own: there the block may call asyncio.run itself, and can be given up.
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(BLOCK_LIMIT_S)
        assert not thread.is_alive(), f"README.md:{block.line}: this has not ended after {BLOCK_LIMIT_S:g} s"
        if failure:
            raise failure[0]

    def _run_console(self, block: Block) -> None:
        for command, printed in commands_of(block.text):
            if command.startswith("tieline serve"):
                self.ran += 1
                actual = self._serve(command, len(printed))
            elif command.startswith(("tieline", "cat ", "printf ")):
                self.ran += 1
                actual = self._run(self._here(command), block)
            else:
                continue
            missing = first_missing([self._here(line) for line in printed], actual)
            assert missing is None, f"README.md:{block.line}: $ {command}\nprints no\n{missing}\nbut\n{actual}"

    def _serve(self, command: str, lines: int) -> str:
        """Start it; what it has printed when it answers."""
        self.port = free_port()
        words = shlex.split(command.partition(" #")[0])[1:]
        if "--port" not in words:
            words += ["--port", str(self.port)]
        if "--store" not in words:
            words += ["--store", "sqlite:readme.db"]  # not the one of whoever runs the tests
        words = [self._here(word) for word in words]
        log = Path(f"serve-{self.port}.log")
        self.servers.enter_context(running([TIELINE, *words], self.port, log, Path.cwd()))
        until = time.monotonic() + BLOCK_LIMIT_S
        while len(log.read_text().splitlines()) < lines and time.monotonic() < until:
            time.sleep(0.05)
        return log.read_text()

    def _run(self, command: str, block: Block) -> str:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("A2ACLI_")}
        environment["PATH"] = f"{TIELINE.parent}{os.pathsep}{environment['PATH']}"
        done = subprocess.run(
            ["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=BLOCK_LIMIT_S, check=False
        )
        self.transcript += f"$ {command}\n{done.stdout}"
        assert done.returncode == 0, f"README.md:{block.line}: $ {command}\nexits {done.returncode}:\n{done.stderr}"
        return done.stdout + done.stderr


def commands_of(text: str) -> list[tuple[str, list[str]]]:
    """The commands of a console block, each with the lines that it prints; a backslash goes on in the next line."""
    found: list[tuple[str, list[str]]] = []
    for line in text.replace("\\\n", "").splitlines():
        if line.startswith("$ "):
            found.append((line[2:].strip(), []))
        elif found:
            found[-1][1].append(line)
    return found


def first_missing(printed: list[str], actual: str) -> str | None:
    """The first line of `printed` that does not come in `actual` behind the one before it."""
    lines = iter([_constant(line) for line in actual.splitlines()])
    for line in printed:
        wanted = ".*".join(re.escape(piece.strip()) for piece in _constant(line).split("..."))
        if wanted and wanted != ".*" and not any(re.fullmatch(wanted, one) for one in lines):
            return line
    return None


def _constant(line: str) -> str:
    for pattern, name in _VARIABLE:
        line = pattern.sub(name, line)
    return line.strip()


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIELINE_TOKENS", str(tmp_path / "tokens.jsonl"))  # not those of whoever runs the tests
    monkeypatch.syspath_prepend(str(tmp_path))
    with contextlib.ExitStack() as servers:
        yield Reader(servers)
    for name in ("hello", "readme_hello"):
        sys.modules.pop(name, None)


def test_readme_does_what_it_says(reader: Reader) -> None:
    page = README.read_text(encoding="utf-8")
    reader.follow(page)
    languages = {block.language for block in blocks_of(page)}
    assert {"python", "console"} <= languages, "a README without an example of each is not shown to be right"
    assert reader.port, "the README serves no agent"
    assert reader.ran >= 4


SAMPLE = """
```python
# readme_hello.py
from tieline import Turn, agent

@agent(name="Hello", description="Greets people.")
async def hello(turn: Turn):
    yield f"Hello, {turn.text}!"
```
```console
$ tieline serve readme_hello.py       # on port 8000
Serving http://127.0.0.1:8000
$ tieline send -a 127.0.0.1:8000 "Ada"
Task ID: 3f0e1d2c-0000-4000-8000-000000000000
...
Hello, Ada!
$ rm -rf not-run
```
```python
async with tieline.connect("https://agent.example") as peer:
    assert await peer.ask("Grace") == "Hello, Grace!"
```
"""


def test_sample_page_is_followed_to_its_end(reader: Reader) -> None:
    reader.follow(SAMPLE)
    assert reader.ran == 4
    assert "Hello, Ada!" in reader.transcript


def test_output_that_is_not_as_shown_is_found(reader: Reader) -> None:
    with pytest.raises(AssertionError, match=r"prints no\s+Hello, Bob!"):
        reader.follow(SAMPLE.replace("Hello, Ada!", "Hello, Bob!"))


def test_python_that_fails_is_found_with_its_line(reader: Reader) -> None:
    page = "# A page\n\n```python\nx = 1\nassert x == 2\n```\n"
    with pytest.raises(AssertionError) as failure:
        reader.follow(page)
    assert failure.traceback[-1].lineno == 4  # counted from 0


def test_shown_lines_may_leave_out_what_varies() -> None:
    actual = "Task ID: 0a1b2c3d-0000-4000-8000-00000000000f\nState: WORKING\nTime: 2026-01-01T00:00:00.000Z\nend\n"
    assert first_missing(["Task ID: ffffffff-0000-4000-8000-000000000000", "...", "end"], actual) is None
    assert first_missing(["State: ...", "Time: 2020-02-02T00:00:00Z"], actual) is None
    assert first_missing(["end", "State: WORKING"], actual) == "State: WORKING"
