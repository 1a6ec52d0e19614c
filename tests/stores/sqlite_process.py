"""The SQLite store in tests: open for a block, and used by other processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tieline.stores.base import Retention
from tieline.stores.sqlite import SQLiteStore

__all__ = ["WAIT_S", "opened", "run_child"]

WAIT_S = 20.0  # for a process to end


@asynccontextmanager
async def opened(path: Path, retention: Retention | None = None) -> AsyncIterator[SQLiteStore]:
    store = SQLiteStore(path, retention or Retention())
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def run_child(script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own, to its end."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
