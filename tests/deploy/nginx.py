"""nginx as it is shipped: a process of its own with the files of deploy/, in which only ports and paths are others.

    with Nginx([8001, 8002]) as nginx: nginx.url

Where nginx is not installed the tests that need it are skipped, and say what to install; with
TIELINE_DEPLOYMENT=required, as in CI, they fail instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import pytest

from tests.interop.processes import ROOT, free_port

__all__ = ["DEPLOY", "LoggedCall", "Nginx", "find", "located"]

DEPLOY = ROOT / "deploy"
_LIMIT_S = 20.0
_LOGGED = re.compile(r'\S+ "(?P<request>[^"]*)" (?P<status>\d+) \d+ [\d.]+ (?P<replicas>.*)')


def find(program: str) -> str:
    """Where a program is; skips the test, or fails it where it is required, when it is nowhere."""
    found = shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin:/opt/homebrew/bin")
    if found is not None:
        return found
    words = f"{program} is not installed: scripts/deployment --install brings it"
    if os.environ.get("TIELINE_DEPLOYMENT") == "required":
        pytest.fail(words)
    pytest.skip(words)


class LoggedCall(NamedTuple):
    """A line of nginx's log."""

    request: str  # verb and path
    status: int
    replicas: list[int]  # ports of those that it was passed to, in this order


def warnings_in(text: str) -> list[str]:
    """The lines that say something is wrong; not that later versions have another word for HTTP/2 than earlier ones."""
    found = [line for line in text.splitlines() if re.search(r"\[(warn|error|crit|alert|emerg)\]", line)]
    return [line for line in found if '"listen ... http2" directive is deprecated' not in line]


def located(text: str, folder: Path, tls: Path | None = None) -> str:
    """A file of deploy/ with the paths of this machine."""
    text = text.replace("/etc/nginx/nginx-proxy.conf", str(folder / "nginx-proxy.conf"))
    text = text.replace("/etc/nginx/tls", str(tls or folder)).replace("/tmp/nginx", str(folder / "nginx"))
    return text.replace("/dev/stdout", str(folder / "access.log")).replace("/dev/stderr", str(folder / "error.log"))


class Nginx:
    """deploy/nginx.conf, or `file`, in front of replicas on these ports of 127.0.0.1; one that is there alone is both.

    `change` is given the text of the file, with ports and paths as they are here, and gives what is to be used.
    """

    def __init__(
        self,
        replicas: Sequence[int],
        *,
        file: str = "nginx.conf",
        grpc: Sequence[int] = (),
        port: int | None = None,
        tls: Path | None = None,
        change: Callable[[str], str] = lambda text: text,
    ) -> None:
        self._program = find("nginx")
        self.port = port or free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="tieline-nginx-"))
        self.folder.chmod(0o755)  # its processes are another user's
        text = (DEPLOY / file).read_text()
        for name, ports in (("8000", replicas), ("50051", grpc or replicas)):
            for number, port in ((1, ports[0]), (2, ports[-1])):
                text = text.replace(f"agent-{number}:{name}", f"127.0.0.1:{port}")
        text = re.sub(r"listen (8080|8443)\b", f"listen 127.0.0.1:{self.port}", text)
        (self.folder / "nginx.conf").write_text(change(located(text, self.folder, tls)))
        proxy = located((DEPLOY / "nginx-proxy.conf").read_text(), self.folder, tls)
        (self.folder / "nginx-proxy.conf").write_text(change(proxy))
        scheme = "https" if "ssl_certificate " in text else "http"
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def check(self) -> None:
        """What `nginx -t` says of the files. Raises AssertionError when they are not right, or it warns."""
        words = [self._program, "-t", "-c", str(self.folder / "nginx.conf"), "-p", str(self.folder)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
        assert done.returncode == 0, done.stderr
        assert not warnings_in(done.stderr), done.stderr

    async def logged(self, count: int, request: str = "") -> list[LoggedCall]:
        """The calls with `request` in verb and path, when so many have ended: nginx notes one behind its answer."""
        async with asyncio.timeout(_LIMIT_S):
            while len(found := [call for call in self._log() if request in call.request]) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        return found

    def _log(self) -> list[LoggedCall]:
        found = []
        for line in (self.folder / "access.log").read_text().splitlines():
            match = _LOGGED.fullmatch(line)
            assert match is not None, line
            ports = [int(port) for port in re.findall(r":(\d+)", match["replicas"])]
            found.append(LoggedCall(match["request"], int(match["status"]), ports))
        return found

    def complaints(self) -> list[str]:
        """What it has warned of."""
        return warnings_in((self.folder / "error.log").read_text())

    def __enter__(self) -> Self:
        self.check()
        words = [self._program, "-c", str(self.folder / "nginx.conf"), "-p", str(self.folder), "-g", "daemon off;"]
        self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)
        until = time.monotonic() + _LIMIT_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return self
            if self._process.poll() is not None or time.monotonic() > until:
                self.__exit__(None, None, None)
                raise RuntimeError("nginx does not start")
            time.sleep(0.02)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self._process.wait(timeout=_LIMIT_S)
        shutil.rmtree(self.folder)
