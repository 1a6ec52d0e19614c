"""The executors of executors.py, served by `tieline serve` and by the official SDK, each a real process."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.interop.processes import ROOT, free_port, running, served_by_tieline
from tests.runners.calling import BINDINGS


@pytest.fixture(scope="package")
def tieline_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served_by_tieline("tests/runners/executors.py", tmp_path_factory.mktemp("tieline")) as url:
        yield url


@pytest.fixture(scope="package")
def official_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    log = tmp_path_factory.mktemp("official") / "serve.log"
    with running([sys.executable, ROOT / "tests/runners/executors.py", str(port)], port, log):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(params=BINDINGS)
def binding(request: pytest.FixtureRequest) -> str:
    return str(request.param)
