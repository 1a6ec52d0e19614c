"""Real processes for the interop tests: started, waited for within a limit, stopped, and heard when they fail."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

__all__ = ["ROOT", "TIELINE", "free_port", "running", "served_by_tieline"]

ROOT = Path(__file__).resolve().parents[2]
TIELINE = Path(sys.executable).with_name("tieline")

START_LIMIT_S = 60.0  # on a busy machine the official SDK alone takes seconds to be imported
STOP_LIMIT_S = 15.0
POLL_S = 0.05


def free_port() -> int:
    """A TCP port of 127.0.0.1 that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(
    command: Sequence[str | Path], port: int, log: Path, folder: Path = ROOT
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that listens on `port` of 127.0.0.1, until the end of the block; its output goes to `log`.

    Raises:
        AssertionError: it ended, or did not listen within the limit, or does not stop; with the end of its output.
    """
    with log.open("wb") as output:
        process = start(command, output, folder)
        try:
            _wait_for_port(process, port, log)
            yield process
        finally:
            process.terminate()
            try:
                process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise AssertionError(f"the process does not stop:\n{_tail(log)}") from None


def start(command: Sequence[str | Path], output: IO[bytes], folder: Path = ROOT) -> subprocess.Popen[bytes]:
    # Without a proxy: it would be asked for 127.0.0.1.
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return subprocess.Popen(
        [str(word) for word in command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
    )


@contextlib.contextmanager
def served_by_tieline(target: str, folder: Path) -> Iterator[str]:
    """`tieline serve target` on SQLite in `folder`; gives its URL."""
    port = free_port()
    command: list[str | Path] = [
        TIELINE,
        "serve",
        target,
        "--port",
        str(port),
        "--store",
        f"sqlite:{folder / 'tasks.db'}",
    ]
    with running(command, port, folder / "serve.log"):
        yield f"http://127.0.0.1:{port}"


def _wait_for_port(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + START_LIMIT_S
    while time.monotonic() < until:
        assert process.poll() is None, f"the process ended with {process.returncode}:\n{_tail(log)}"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(POLL_S)
    raise AssertionError(f"nothing listens on port {port} after {START_LIMIT_S:g} s:\n{_tail(log)}")


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-40:])
