"""Running the command as its users do: a process, with a home and a working directory of its own.

Most runs are forks of one process that has imported everything (see launcher.py): what takes the time is the start of
Python and the imports. What a test begins and goes on beside, and runs in an environment that Python itself reads, are
started as the installed command.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from tests.interop.processes import TIELINE

__all__ = ["Begun", "Foreign", "Launcher", "Result", "Tieline", "until"]

LIMIT_S = 60.0
POLL_S = 0.05

OURS = ("A2ACLI_", "_TIELINE_", "COMP_", "TIELINE_")
"""How variables begin that only the command reads: in an environment without others Python would start the same."""


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """stdout as the one document that it has to be."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """stdout as JSON Lines."""
        assert self.out.endswith("\n"), self.out
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> dict[str, Any]:
        """The error object, as the only document on stdout."""
        envelope = self.json
        assert set(envelope) == {"error"}, envelope
        error: dict[str, Any] = envelope["error"]
        assert set(error) == {"code", "message", "hint", "a2aCode"}
        return error

    @property
    def fields(self) -> dict[str, str]:
        """The fields of text output outside of blocks; of a label that is there twice, the last."""
        return dict(self.all_fields)

    @property
    def all_fields(self) -> list[tuple[str, str]]:
        """All fields in order. Fails when a line is neither a field nor part of a block."""
        found: list[tuple[str, str]] = []
        block: list[str] | None = None
        for line in self.out.splitlines():
            if block is not None:
                if line == "":
                    block = None
                else:
                    assert line.startswith("  "), f"{line!r} is inside a block and not indented"
                continue
            if line == "":
                continue
            match = re.fullmatch(r"([A-Za-z][A-Za-z0-9 -]*):(?: (.+))?", line)
            assert match, f"{line!r} is neither a field nor the head of a block"
            if match.group(2) is None:
                block = []
            else:
                found.append((match.group(1), match.group(2)))
        assert block is None, "a block is not closed"
        return found

    def block(self, label: str) -> str:
        """The content of the last block with this label, without its indentation."""
        lines = self.out.splitlines()
        starts = [index for index, line in enumerate(lines) if line == f"{label}:"]
        assert starts, f"there is no block {label!r} in:\n{self.out}"
        content = []
        for line in lines[starts[-1] + 1 :]:
            if line == "":
                break
            content.append(line[2:])
        return "\n".join(content)


@dataclass(frozen=True)
class Begun:
    """A task that a test begins with."""

    task_id: str
    context_id: str


class Launcher:
    """The process of launcher.py: runs the command again and again, one at a time."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._files = [Path(self._folder.name, name) for name in ("stdin", "stdout", "stderr")]
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("launcher.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, words: Sequence[str], stdin: bytes, folder: Path, environment: Mapping[str, str]) -> Result:
        """One run; a signal ends it at the limit."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._files[0].write_bytes(stdin)
        order = {"words": words, "folder": str(folder), "environment": environment, "limit_s": int(LIMIT_S)}
        self._process.stdin.write(json.dumps({**order, "files": [str(path) for path in self._files]}) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        return Result(code, self._files[1].read_bytes().decode(), self._files[2].read_bytes().decode())

    def close(self) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()
        self._folder.cleanup()


@dataclass
class Tieline:
    """The command. `env` is added to an environment without any A2ACLI_ variable."""

    home: Path
    folder: Path
    launcher: Launcher | None  # None: each run is the installed command
    agent: str | None = None  # given as -a
    env: dict[str, str] = field(default_factory=dict)

    def __call__(self, *words: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Result:
        if self.launcher is not None and all(name.startswith(OURS) for name in {**self.env, **(env or {})}):
            return self.launcher.run(self._command(words)[1:], stdin, self.folder, self._environment(env))
        run = subprocess.run(
            self._command(words),
            input=stdin,
            cwd=self.folder,
            env=self._environment(env),
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
        )
        return Result(run.returncode, run.stdout.decode(), run.stderr.decode())

    def start(
        self, *words: str, env: Mapping[str, str] | None = None, stderr: int = subprocess.PIPE
    ) -> subprocess.Popen[bytes]:
        """Begin a run that the test goes on beside; it has to be waited for."""
        return subprocess.Popen(
            self._command(words),
            cwd=self.folder,
            env=self._environment(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )

    def redirected(self, where: str, *words: str) -> Result:
        """A run whose streams a shell redirects, as in `>&-`."""
        run = subprocess.run(
            ["sh", "-c", f'exec "$@" {where}', "sh", *self._command(words)],
            cwd=self.folder,
            env=self._environment(None),
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
        )
        return Result(run.returncode, run.stdout.decode(), run.stderr.decode())

    def begin(self, text: str, *, task_id: str | None = None, context_id: str | None = None) -> Begun:
        """Say something to the agent by hand, as what a test begins with; answers when the task rests or is at work."""
        message = {"messageId": uuid.uuid4().hex, "role": "ROLE_USER", "parts": [{"text": text}]}
        message |= {"taskId": task_id} if task_id else {}
        message |= {"contextId": context_id} if context_id else {}
        at_once = {"returnImmediately": text.startswith("hold")}
        call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage"}
        call["params"] = {"message": message, "configuration": at_once}
        headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
        request = Request(f"http://{self.agent}/", json.dumps(call).encode(), headers)
        with urlopen(request, timeout=LIMIT_S) as response:
            result = json.load(response)["result"]
        task = result.get("task", {})
        return Begun(task.get("id", ""), task.get("contextId", ""))

    def _command(self, words: Sequence[str]) -> list[str]:
        agent = ["-a", self.agent] if self.agent is not None and "-a" not in words else []
        return [str(TIELINE), *words, *agent]

    def _environment(self, more: Mapping[str, str] | None) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("A2ACLI_", "TIELINE_", "XDG_")) and not name.lower().endswith("_proxy")
        }
        own = {
            "HOME": str(self.home),
            "PYTHONUNBUFFERED": "1",
            "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
        }
        return {**kept, **own, **self.env, **(more or {})}


@dataclass(frozen=True)
class Foreign:
    """The scripted peer of foreign.py."""

    url: str

    def agent(self, scenario: str) -> Peer:
        return Peer(self, scenario, uuid.uuid4().hex)


@dataclass(frozen=True)
class Peer:
    """One agent of it, that no other test uses."""

    server: Foreign
    scenario: str
    key: str

    @property
    def ref(self) -> str:
        return f"{self.server.url}/{self.scenario}/{self.key}"

    @property
    def task_id(self) -> str:
        return f"task-{self.key}"

    @property
    def records(self) -> list[dict[str, Any]]:
        """The requests that came, the fetch of the card included."""
        with urlopen(f"{self.server.url}/records/{self.key}", timeout=LIMIT_S) as response:
            found: list[dict[str, Any]] = json.load(response)
        return found

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The JSON-RPC requests that came, each with its headers as `headers`."""
        return [
            {**json.loads(record["body"]), "headers": record["headers"], "query": record["query"]}
            for record in self.records
            if record["body"]
        ]

    @property
    def methods(self) -> list[str]:
        return [call["method"] for call in self.calls]


def until(holds: Any, what: str) -> None:
    """Look until `holds()` is true, within the limit."""
    end = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < end, f"waited {LIMIT_S:g} s for {what}"
        time.sleep(POLL_S)
