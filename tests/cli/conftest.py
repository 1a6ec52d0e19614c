"""The servers that the command talks to, once a session, and the command itself, once a test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import Foreign, Launcher, Tieline
from tests.interop.processes import ROOT, TIELINE, free_port, running

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """host:port of our own server with the agent of agents.py."""
    folder = tmp_path_factory.mktemp("served")
    port = free_port()
    command: list[str | Path] = [TIELINE, "serve", f"{HERE / 'agents.py'}:tester", "--port", str(port)]
    command += ["--store", "memory", "--drain", "0"]  # what the tests leave at work has nothing to finish
    with running(command, port, folder / "serve.log"):
        yield f"127.0.0.1:{port}"


@pytest.fixture(scope="session")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Foreign]:
    """The scripted peer of foreign.py."""
    folder = tmp_path_factory.mktemp("foreign")
    port = free_port()
    with running([sys.executable, HERE / "foreign.py", str(port)], port, folder / "foreign.log", ROOT):
        yield Foreign(f"http://127.0.0.1:{port}")


@pytest.fixture(scope="session")
def launcher() -> Iterator[Launcher | None]:
    """What makes runs cheap, on the system where forking a process with imported libraries is safe."""
    if sys.platform != "linux":
        yield None
        return
    started = Launcher()
    yield started
    started.close()


@pytest.fixture
def bare(tmp_path: Path, launcher: Launcher | None) -> Tieline:
    """The command, without an agent."""
    home, folder = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    folder.mkdir()
    return Tieline(home, folder, launcher)


@pytest.fixture
def tieline(bare: Tieline, served: str) -> Tieline:
    """The command, with our server as its agent."""
    bare.agent = served
    return bare
