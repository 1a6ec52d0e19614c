"""What a process holds, as Linux tells it from outside: memory, files, connections, threads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Held", "held", "slope"]

_ESTABLISHED = "01"


@dataclass(frozen=True)
class Held:
    """What a process holds."""

    memory_kib: int  # resident
    files: int  # without connections to the database
    connections: int  # to the database
    threads: int


def held(pid: int, database_port: int) -> Held:
    """What the process `pid` holds now. Raises OSError when it is gone."""
    process = Path("/proc") / str(pid)
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines() if ":" in line)
    files = []
    for file in os.listdir(process / "fd"):
        with suppress(FileNotFoundError):  # it was closed just now
            files.append(os.readlink(process / "fd" / file))
    to_database = {
        f"socket:[{inode}]"
        for net in ("tcp", "tcp6")
        for inode in _connected((process / "net" / net).read_text(), database_port)
    }
    connections = sum(file in to_database for file in files)
    return Held(int(status["VmRSS"].split()[0]), len(files) - connections, connections, int(status["Threads"]))


def _connected(table: str, port: int) -> list[str]:
    """The inodes of the sockets of a table that are connected to `port` of another."""
    rows = [line.split() for line in table.splitlines()[1:]]
    return [row[9] for row in rows if row[3] == _ESTABLISHED and int(row[2].rpartition(":")[2], 16) == port]


def slope(points: Sequence[tuple[float, float]]) -> float:
    """By how much the second of each pair grows with the first, by least squares; 0 for less than two points."""
    count = len(points)
    if count < 2:
        return 0.0
    middle_x, middle_y = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    square = sum((x - middle_x) ** 2 for x, _ in points)
    return 0.0 if square == 0 else sum((x - middle_x) * (y - middle_y) for x, y in points) / square
