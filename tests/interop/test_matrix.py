"""Every cell of the interop matrix, as a test: Tieline with each foreign peer, real processes on both sides.

The peers are installed by `scripts/interop --install`; without them the tests are skipped, or fail where
TIELINE_INTEROP=required is set.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.matrix import CELLS, Columns, known_table, problem_of
from tests.interop.matrix_expected import Cell
from tests.interop.matrix_known import KNOWN
from tests.interop.processes import ROOT


@pytest.fixture(scope="module")
def columns(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Columns]:
    columns = Columns(tmp_path_factory.mktemp("matrix"))
    yield columns
    columns.close()


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_cell_is_green_or_red_by_a_known_fault_of_the_peer(columns: Columns, cell: Cell) -> None:
    problem = problem_of(cell, columns.outcome(cell))
    assert problem is None, f"{cell}\n{problem}"


def test_every_known_fault_is_that_of_a_cell() -> None:
    assert set(KNOWN) <= set(CELLS)


def test_documentation_has_the_matrix_as_it_is_asserted_here() -> None:
    assert known_table() in (ROOT / "docs" / "interop.md").read_text()
