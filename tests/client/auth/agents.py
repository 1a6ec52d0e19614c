"""The guarded agents as tests have them, one for each test."""

from __future__ import annotations

import contextlib
import json
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

from tests.interop.processes import ROOT, free_port, running

__all__ = ["Guarded", "GuardedAgent", "guarded_running"]

LIMIT_S = 30.0
_open = build_opener(ProxyHandler({})).open


@dataclass(frozen=True)
class Guarded:
    """The process of guarded.py."""

    url: str

    def agent(self, scenario: str) -> GuardedAgent:
        return GuardedAgent(self, scenario, uuid.uuid4().hex)


@dataclass(frozen=True)
class GuardedAgent:
    """One agent of it, that no other test uses."""

    server: Guarded
    scenario: str
    key: str

    @property
    def url(self) -> str:
        return f"{self.server.url}/{self.scenario}/{self.key}"

    @property
    def records(self) -> list[dict[str, Any]]:
        """The requests that came over HTTP, in order: card, path, headers, query."""
        return self.at(self.key)

    def at(self, key: str) -> list[dict[str, Any]]:
        """The requests that came for another key; those of "grpc" are of all tests."""
        with _open(f"{self.server.url}/records/{key}", timeout=LIMIT_S) as response:
            found: list[dict[str, Any]] = json.load(response)
        return found

    @property
    def calls(self) -> list[dict[str, Any]]:
        """Those that were calls."""
        return [record for record in self.records if not record["card"]]


@contextlib.contextmanager
def guarded_running(folder: Path, issuer: str, *tls: Path) -> Iterator[Guarded]:
    """The process until the end of the block. `tls`: certificate, key, and the authority of its clients."""
    port, grpc_port = free_port(), free_port()
    command = [sys.executable, "-m", "tests.client.auth.guarded", str(port), str(grpc_port), issuer, *map(str, tls)]
    with running(command, port, folder / "guarded.log", ROOT):
        yield Guarded(f"{'https' if tls else 'http'}://127.0.0.1:{port}")
