"""PostgreSQL and Redis for the rows that need them: servers of their own, which write to the disk as real ones do.

PostgreSQL as it comes: a commit is on the disk before it is told (fsync, synchronous_commit). Redis with `appendonly
yes` and `appendfsync everysec`: what was told survives its death, and is on the disk within a second or so. They run on
the core of the process that starts them, which is that of the load.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from typing import Literal

import pytest

from benchmarks.servers import ROOT, CannotRun
from tests.databases import DatabaseServer, PostgresServer, RedisServer

Database = Literal["PostgreSQL", "Redis"]


def start(database: Database, held: ExitStack) -> str | None:
    """The URL of an empty store in a server of its own, which ends with `held`; None, with a note, without the program.

    Raises CannotRun.
    """
    try:
        server: DatabaseServer = PostgresServer(safe=True) if database == "PostgreSQL" else RedisServer()
    except (pytest.skip.Exception, pytest.fail.Exception) as missing:
        print(f"note: {missing}; the rows of {database} are left out", file=sys.stderr)
        return None
    url = held.enter_context(server).url()
    command = [sys.executable, "-m", "tieline", "store", "migrate", url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise CannotRun(f"{' '.join(command[1:])} failed: {done.stderr}")
    return url
