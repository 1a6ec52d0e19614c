"""Cells of the matrix that a fault of the peer keeps red, each with what was seen on the wire."""

from __future__ import annotations

from dataclasses import dataclass

from tests.interop.matrix_expected import Cell

__all__ = ["KNOWN", "Known"]


@dataclass(frozen=True)
class Known:
    """Why a cell is red. It is asserted: the cell has to be red, and in this way.

    `fault` has to be found among the faults of the cell; `capture` is an excerpt of the bytes, which
    `scripts/interop --capture CELL` shows again.
    """

    cells: tuple[Cell, ...]
    fault: str
    why: str
    capture: str


ENTRIES: tuple[Known, ...] = ()

KNOWN: dict[Cell, Known] = {cell: entry for entry in ENTRIES for cell in entry.cells}
