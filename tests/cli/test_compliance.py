"""The compliance registry is complete, and says nothing that no test shows."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
DOCUMENT = HERE.parents[1] / "docs" / "cli.md"
ROWS: list[dict[str, Any]] = tomllib.loads((HERE / "requirements.toml").read_text(encoding="utf-8"))["requirement"]

# The numbers in the specification's own registry (compliance document §3).
TIER_1, TIER_2 = 39, 15
NOT_BUILT = {
    "A2ACLI_CONFORM_001",
}


def names_in(name: str) -> set[str]:
    tree = ast.parse((HERE / name).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_every_row_of_tiers_1_and_2_is_in_the_registry_once() -> None:
    ids = [row["id"] for row in ROWS]
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"A2ACLI_[A-Z]+(_[A-Z]+)*_\d{3}", id_) for id_ in ids)
    assert sum(row["tier"] == 1 for row in ROWS) == TIER_1
    assert sum(row["tier"] == 2 for row in ROWS) == TIER_2


def test_tier_1_is_complete_and_what_is_missing_of_tier_2_is_said() -> None:
    statuses = {row["id"]: row.get("status", "pass") for row in ROWS}
    assert {id_ for id_, status in statuses.items() if status == "fail"} == NOT_BUILT
    assert {id_ for id_, status in statuses.items() if status == "na"} == {"A2ACLI_SKILL_001", "A2ACLI_SKILL_002"}
    assert all(row["tier"] == 2 for row in ROWS if row["id"] in NOT_BUILT)


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_a_row_has_tests_that_are_there_or_a_reason(row: dict[str, Any]) -> None:
    assert set(row) <= {"id", "tier", "section", "text", "tests", "status", "note"}
    assert row["text"].endswith(".")
    if row.get("status", "pass") != "pass":
        assert row["note"]
        assert "tests" not in row
        return
    assert row["tests"], "shown by nothing"
    for test in row["tests"]:
        file, _, name = test.partition("::")
        assert name in names_in(file), f"there is no {test}"


def test_the_document_tells_every_row_with_its_status() -> None:
    told = dict(
        re.findall(r"^\| `(A2ACLI_(?!ERR_)\w+)` \| (\w[\w ]*) \|", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    )
    words = {"pass": "pass", "na": "not applicable", "fail": "not built"}
    assert told == {row["id"]: words[row.get("status", "pass")] for row in ROWS}
