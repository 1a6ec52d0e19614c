"""Cells of the matrix that a fault of the peer keeps red, each with what was seen on the wire: matrix_known.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop.matrix_expected import Cell

__all__ = ["ENTRIES", "KNOWN", "Known", "number_of"]


@dataclass(frozen=True)
class Known:
    """Why cells are red. It is asserted: each has to be red, and in this way.

    Every fault of the cell has to have one of `faults` in it. `capture` is an excerpt of the bytes, `>` from the client
    and `<` from the server, `...` for what was left out; `scripts/interop --capture CELL` shows all of them.
    """

    cells: tuple[Cell, ...]
    faults: tuple[str, ...]
    why: str
    capture: str


def _read() -> Iterator[Known]:
    with Path(__file__).with_suffix(".toml").open("rb") as file:
        document: dict[str, list[dict[str, Any]]] = tomllib.load(file)
    for entry in document["known"]:
        cells = tuple(cell for name in entry["cells"] for cell in _cells(name))
        yield Known(cells, tuple(entry["faults"]), " ".join(entry["why"].split()), entry["capture"].strip())


def _cells(name: str) -> Iterator[Cell]:
    """The cells that a name stands for: "js10/client/JSONRPC|GRPC/integers" is two."""
    peer, role, bindings, row = name.split("/")
    for binding in bindings.split("|"):
        yield Cell(peer, role, binding, row)


ENTRIES = tuple(_read())
KNOWN = {cell: entry for entry in ENTRIES for cell in entry.cells}


def number_of(cell: Cell) -> int:
    """The number of the note on a cell that is known to be red, from 1."""
    return ENTRIES.index(KNOWN[cell]) + 1
