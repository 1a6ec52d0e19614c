"""The process of official_server.py."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.interop.processes import free_port, running


@contextlib.contextmanager
def official_server(folder: Path) -> Iterator[int]:
    """The official SDK's server, until the end of the block; gives its port."""
    port, grpc_port = free_port(), free_port()
    command: list[str | Path] = [sys.executable, Path(__file__).with_name("official_server.py")]
    with running([*command, str(port), str(grpc_port)], port, folder / "server.log"):
        yield port
