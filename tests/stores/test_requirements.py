"""The list of what stores have to hold is complete: each row is shown on all the stores that it names."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.stores.conftest import BACKENDS, DURABLE, SHARED

HERE = Path(__file__).parent
ROWS: list[dict[str, Any]] = tomllib.loads((HERE / "requirements.toml").read_text(encoding="utf-8"))["requirement"]
SUITE = (
    *("log", "list", "messages", "webhooks", "retention", "retention_by_kind", "carrying"),
    *("shared", "shared_webhooks"),
)
STORES = {"every": list(BACKENDS), "durable": DURABLE, "shared": SHARED}

# What a test asks for says which stores it is run on.
FIXTURES = {
    "place": "every",
    "source": "every",
    "target": "every",
    "places": "every",
    "durable_place": "durable",
    "shared_place": "shared",
    "database": "shared",
}


@cache
def names_in(file: str) -> dict[str, set[str]]:
    """The tests of a file with what they ask for."""
    tree = ast.parse((HERE / file).read_text(encoding="utf-8"))
    return {
        node.name: {argument.arg for argument in node.args.args}
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def test_there_are_four_stores() -> None:
    assert STORES == {
        "every": ["memory", "sqlite", "postgres", "redis"],
        "durable": ["sqlite", "postgres", "redis"],
        "shared": ["postgres", "redis"],
    }


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_a_row_is_shown_on_all_the_stores_that_it_names(row: dict[str, Any]) -> None:
    assert set(row) == {"id", "on", "text", "tests"}
    assert row["text"].endswith(".")
    assert row["tests"], "shown by nothing"
    for test in row["tests"]:
        file, _, name = test.partition("::")
        assert name in names_in(file), f"there is no {test}"
        run_on = {kind for argument, kind in FIXTURES.items() if argument in names_in(file)[name]}
        assert run_on, f"{test} is not run on several stores"
        assert all(set(STORES[row["on"]]) <= set(STORES[kind]) for kind in run_on), f"{test} is not run on all of them"


def test_every_test_of_the_suite_stands_in_one_row() -> None:
    named = [test for row in ROWS for test in row["tests"]]
    assert len(named) == len(set(named))
    there = {f"test_{file}.py::{name}" for file in SUITE for name in names_in(f"test_{file}.py")}
    assert there == set(named)
