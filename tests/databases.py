"""PostgreSQL and Redis for tests: servers of their own, in temporary folders, on free ports of the loopback.

`postgres_server()` and `redis_server()` give the one of the session, started when it is first asked for. A test that
stops or breaks a server starts one of its own: `with PostgresServer() as server`.

Where the programs are not installed the tests that need them are skipped, and say what to install; with
TIELINE_DATABASES=required, as in CI, they fail instead.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

__all__ = ["DatabaseServer", "PostgresServer", "RedisServer", "postgres_server", "redis_server"]

_START_S = 30.0
_PLACES = ("/usr/lib/postgresql/*/bin", "/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin")


def _find(program: str) -> str:
    """Where a program is; skips the test, or fails it where databases are required, when it is nowhere."""
    found = shutil.which(program)
    if found is not None:
        return found
    for place in _PLACES:
        for folder in sorted(Path("/").glob(place[1:]), reverse=True):
            if (folder / program).exists():
                return str(folder / program)
    words = f"{program} is not installed: scripts/databases --install brings PostgreSQL and Redis"
    if os.environ.get("TIELINE_DATABASES") == "required":
        pytest.fail(words)
    pytest.skip(words)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


class DatabaseServer(ABC):
    """A server of one's own. Its folder goes with it; stopped and started again it has what it had."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tieline-"))
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.remove)
        try:
            self._make()
            self.start()
        except BaseException:
            self.remove()
            raise

    @abstractmethod
    def _make(self) -> None:
        """Make its folder ready."""

    @abstractmethod
    def _command(self) -> list[str]:
        """What runs it."""

    @abstractmethod
    def _stop_signal(self) -> int:
        """What ends it in good order."""

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                self._command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        until = time.monotonic() + _START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{self._command()[0]} does not start: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)

    @abstractmethod
    def _answers(self) -> bool:
        """Whether it takes connections."""

    def stop(self) -> None:
        """End it in good order."""
        self._end(self._stop_signal())

    def kill(self) -> None:
        """End it as a crash does."""
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
        process.wait(timeout=_START_S)

    def restart(self) -> None:
        """Stop it and start it."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Let it stand still, with all its processes."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: int) -> None:
        assert self._process is not None
        found = subprocess.run(["ps", "-eo", "pid=,sess="], capture_output=True, text=True, check=True).stdout
        for line in found.splitlines():
            pid, session = (int(word) for word in line.split())
            if session == self._process.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def remove(self) -> None:
        """End it and remove what it has left."""
        atexit.unregister(self.remove)
        if self._process is not None:
            with contextlib.suppress(Exception):
                self.resume()
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


class PostgresServer(DatabaseServer):
    """PostgreSQL with a database `test`. `safe`: it writes to the disk before it says so, as a real one does."""

    def __init__(self, *, safe: bool = False, options: tuple[str, ...] = ()) -> None:
        self._program = _find("postgres")
        self._options = (*options, *(() if safe else ("fsync=off",)))
        # It does not run as root.
        self._as: list[str] = []
        if os.geteuid() == 0:
            names = [entry.pw_name for entry in pwd.getpwall()]
            user = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
            self._user = user
            self._as = [
                *("setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--inh-caps=-all")
            ]
        super().__init__()

    def url(self, schema: str = "tieline") -> str:
        """The address of a store."""
        return f"postgresql://tester@127.0.0.1:{self.port}/postgres?schema={schema}"

    def _make(self) -> None:
        if self._as:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        subprocess.run(
            [
                *(*self._as, str(Path(self._program).with_name("initdb")), "-D", str(self.folder / "data")),
                *("-U", "tester", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"),
            ],
            check=True,
            capture_output=True,
            cwd=self.folder,
        )

    def _command(self) -> list[str]:
        options = [word for option in self._options for word in ("-c", option)]
        return [
            *(*self._as, self._program, "-D", str(self.folder / "data"), "-p", str(self.port), "-h", "127.0.0.1"),
            *("-c", f"unix_socket_directories={self.folder}", "-c", "max_connections=200", *options),
        ]

    def _stop_signal(self) -> int:
        return signal.SIGINT  # "fast": it does not wait for its clients

    def _answers(self) -> bool:
        ready = Path(self._program).with_name("pg_isready")
        return subprocess.run([ready, "-q", "-h", "127.0.0.1", "-p", str(self.port)], check=False).returncode == 0


class RedisServer(DatabaseServer):
    """Redis that keeps what it is told (appendonly)."""

    def __init__(self, *options: str) -> None:
        self._program = _find("redis-server")
        self._options = options
        super().__init__()

    def url(self, prefix: str = "tieline") -> str:
        """The address of a store."""
        return f"redis://127.0.0.1:{self.port}/0?prefix={prefix}"

    def _make(self) -> None:
        """It makes what it needs."""

    def _command(self) -> list[str]:
        return [
            *(self._program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)),
            *("--appendonly", "yes", "--appendfsync", "everysec", "--save", "", *self._options),
        ]

    def _stop_signal(self) -> int:
        return signal.SIGTERM

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as one:
                one.sendall(b"PING\r\n")
                return one.recv(64).startswith(b"+PONG")
        except OSError:
            return False


@cache
def postgres_server() -> PostgresServer:
    """The one of this session."""
    return PostgresServer()


@cache
def redis_server() -> RedisServer:
    """The one of this session."""
    return RedisServer()
