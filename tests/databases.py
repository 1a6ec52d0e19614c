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
from typing import ClassVar, Self

import pytest

__all__ = ["DatabaseServer", "PostgresServer", "RedisServer", "postgres_server", "redis_server"]

_START_S = 30.0

# Waits until its input ends, which it does with the process that holds the other end, however that ends. Then it ends
# the server whose number is in the file $1 with the signal $2, and removes the folder $3.
_WATCH = """
cat >/dev/null
if read -r pid <"$1"; then
    kill -CONT "$pid"
    kill -s "$2" "$pid"
    tries=0
    while kill -0 "$pid" && [ "$tries" -lt 100 ]; do sleep 0.1; tries=$((tries + 1)); done
    kill -s KILL "$pid"
fi 2>/dev/null
rm -rf "$3"
"""
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
        self._watch = subprocess.Popen(
            ["sh", "-c", _WATCH, "sh", str(self._pid_file), self._last_signal.name[3:], str(self.folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        atexit.register(self.remove)
        try:
            self._make()
            self.start()
        except BaseException:
            self.remove()
            raise

    _last_signal: ClassVar[signal.Signals]
    """What ends it at once, without a rest."""

    _stop_signal: ClassVar[signal.Signals]
    """What ends it in good order, without waiting for its clients."""

    @property
    @abstractmethod
    def _pid_file(self) -> Path:
        """Where it notes the number of its process."""

    @abstractmethod
    def url(self, name: str = "tieline") -> str:
        """The address of a store of this name."""

    @abstractmethod
    def _make(self) -> None:
        """Make its folder ready."""

    @abstractmethod
    def _command(self) -> list[str]:
        """What runs it."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether it takes connections."""

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

    def stop(self) -> None:
        """End it in good order."""
        if self._process is not None:
            self._process.send_signal(self._stop_signal)
            self._process.wait(timeout=_START_S)
            self._process = None

    def kill(self) -> None:
        """End it with all its processes as a crash does."""
        if self._process is not None:
            self._signal_all(signal.SIGKILL)
            self._process.wait(timeout=_START_S)
            self._process = None
            self._pid_file.unlink(missing_ok=True)  # another process may get its number

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

    def _signal_all(self, number: signal.Signals) -> None:
        """To the server, then to those that it has started: stopped, it starts no more."""
        assert self._process is not None
        self._process.send_signal(number)
        found = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        for line in found.splitlines():
            pid, parent = (int(word) for word in line.split())
            if parent == self._process.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def remove(self) -> None:
        """End it and remove what it has left."""
        atexit.unregister(self.remove)
        assert self._watch.stdin is not None
        if self._process is not None and self._process.poll() is None:
            self.resume()
        self._watch.stdin.close()
        if self._process is not None:
            self._process.wait(timeout=_START_S)
            self._process = None
        self._watch.wait(timeout=_START_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


class PostgresServer(DatabaseServer):
    """PostgreSQL. `safe`: it writes to the disk before it says so, as a real one does."""

    _last_signal = signal.SIGQUIT
    _stop_signal = signal.SIGINT

    def __init__(self, *, safe: bool = False, options: tuple[str, ...] = ()) -> None:
        self._program = Path(_find("postgres")).resolve()  # its companions are where it really is
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

    @property
    def _pid_file(self) -> Path:
        return self.folder / "data" / "postmaster.pid"

    def url(self, name: str = "tieline") -> str:
        return f"postgresql://tester@127.0.0.1:{self.port}/postgres?schema={name}"

    def _make(self) -> None:
        if self._as:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        subprocess.run(
            [
                *(*self._as, str(self._program.with_name("initdb")), "-D", str(self.folder / "data")),
                *("-U", "tester", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"),
            ],
            check=True,
            capture_output=True,
            cwd=self.folder,
        )

    def _command(self) -> list[str]:
        options = [word for option in self._options for word in ("-c", option)]
        return [
            *(*self._as, str(self._program), "-D", str(self.folder / "data"), "-p", str(self.port), "-h", "127.0.0.1"),
            *("-c", f"unix_socket_directories={self.folder}", "-c", "max_connections=200"),
            *("-c", "dynamic_shared_memory_type=mmap", *options),  # which a crash leaves in its folder
        ]

    def _answers(self) -> bool:
        ready = self._program.with_name("pg_isready")
        return subprocess.run([ready, "-q", "-h", "127.0.0.1", "-p", str(self.port)], check=False).returncode == 0


class RedisServer(DatabaseServer):
    """Redis that keeps what it is told (appendonly)."""

    _last_signal = signal.SIGKILL
    _stop_signal = signal.SIGTERM

    def __init__(self, *options: str) -> None:
        self._program = _find("redis-server")
        self._options = options
        super().__init__()

    @property
    def _pid_file(self) -> Path:
        return self.folder / "redis.pid"

    def url(self, name: str = "tieline") -> str:
        return f"redis://127.0.0.1:{self.port}/0?prefix={name}"

    def _make(self) -> None:
        """It makes what it needs."""

    def _command(self) -> list[str]:
        return [
            *(self._program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)),
            *("--appendonly", "yes", "--appendfsync", "everysec", "--save", ""),
            *("--pidfile", str(self._pid_file), *self._options),
        ]

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
