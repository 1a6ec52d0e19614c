"""The contestants as processes, each pinned to one core, with the load on another. Linux only (taskset, /proc)."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import raw

ROOT = Path(__file__).resolve().parent.parent
CONTESTANTS = ("floor", "a2a-sdk", "tieline")
START_LIMIT_S = 60.0


class CannotRun(Exception):
    """Something that the benchmark needs is missing or does not start."""


@dataclass(frozen=True)
class Cores:
    server: int
    load: int


@dataclass(frozen=True)
class Server:
    """A server that answers."""

    name: str
    pid: int
    port: int
    path: str  # where it speaks JSON-RPC
    grpc_port: int | None = None  # where it speaks gRPC, if it has been asked to

    @property
    def resident_kb(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 1024

    @property
    def processor_s(self) -> float:
        """Processor time that it has used so far."""
        return processor_s(self.pid)


def processor_s(pid: int) -> float:
    """Processor time that a process has used so far, all its threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def take_cores() -> Cores:
    """Choose two cores and put this process, and so every load it starts, on the second."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        raise CannotRun("Two cores are needed: one for the server, one for the load.")
    cores = Cores(*allowed[:2])
    os.sched_setaffinity(0, {cores.load})
    return cores


def allow_many_files() -> None:
    """As many open sockets as the system lets us have; child processes inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def command(name: str, port: int, store: str, grpc_port: int | None = None, options: Sequence[str] = ()) -> list[str]:
    """How `name` is started; `options` are more of tieline's. The official SDK's server has an environment instead."""
    if name == "tieline":
        tieline = str(Path(sys.executable).with_name("tieline"))
        grpc = [] if grpc_port is None else ["--grpc-port", str(grpc_port)]
        return [tieline, "serve", "benchmarks/tieline_echo.py", "--store", store, "--port", str(port), *grpc, *options]
    module = {"floor": "benchmarks.floor:app", "a2a-sdk": "benchmarks.official_sdk:app"}[name]
    speed = ["--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "warning"]
    return [sys.executable, "-m", "uvicorn", module, *speed, "--port", str(port)]


@contextmanager
def serving(
    name: str,
    cores: Cores,
    *,
    store: str = "memory",
    grpc: bool = False,
    environment: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> Iterator[Server]:
    """Start a contestant; it answers when the block begins and is killed when it ends.

    `store`: "memory"; "sqlite" is a new file; else the URL of a database. `grpc`: it serves gRPC beside HTTP.
    `options`: more of `tieline serve`'s.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        if store == "sqlite":
            store = f"sqlite:{folder}/tasks.db"
        port, grpc_port = _free_ports(2)
        for_grpc = {"GRPC_PORT": str(grpc_port)} if grpc else {}
        with open(f"{folder}/log", "w+b") as log:
            process = subprocess.Popen(
                ["taskset", "-c", str(cores.server), *command(name, port, store, grpc_port if grpc else None, options)],
                cwd=ROOT,
                env={
                    **os.environ,
                    "STORE": store,
                    "PORT": str(port),
                    "XDG_STATE_HOME": folder,
                    **for_grpc,
                    **(environment or {}),
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            try:
                path = asyncio.run(_wait_until_it_answers(process, port))
                yield Server(name, process.pid, port, path, grpc_port if grpc else None)
            except BaseException:
                log.seek(0)
                sys.stderr.write(log.read()[-4000:].decode("utf-8", "replace"))
                raise
            finally:
                process.kill()
                process.wait()


def start_to_first_answer(name: str, cores: Cores) -> float:
    """Seconds from starting the process to its first right answer to a message."""
    started = time.perf_counter()
    with serving(name, cores) as server:
        asyncio.run(_once(server))
        return time.perf_counter() - started


async def _once(server: Server) -> None:
    connection = await raw.Connection.open(server.port)
    await raw.send_message(connection, server.path, "msg first")
    connection.close()


async def _wait_until_it_answers(process: subprocess.Popen[bytes], port: int) -> str:
    deadline = time.monotonic() + START_LIMIT_S
    while True:
        try:
            connection = await raw.Connection.open(port)
        except OSError:
            if process.poll() is not None:
                raise CannotRun(f"{process.args!r} ended with {process.returncode} before it listened.") from None
            if time.monotonic() > deadline:
                raise CannotRun(f"{process.args!r} does not listen after {START_LIMIT_S:.0f} s.") from None
            await asyncio.sleep(0.005)
        else:
            path = await raw.find_rpc_path(connection)
            connection.close()
            return path


def _free_ports(count: int) -> list[int]:
    """Different ones."""
    with ExitStack() as held:
        listeners = [held.enter_context(socket.socket()) for _ in range(count)]
        for listener in listeners:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in listeners]
