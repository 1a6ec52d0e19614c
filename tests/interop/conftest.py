"""What the tests with foreign peers share."""

from __future__ import annotations

import os

import pytest

from tests.interop.matrix_peers import missing


@pytest.fixture(scope="module")
def installed() -> None:
    """The peers are there, by `scripts/interop --install`; without them tests are skipped, or fail where required."""
    if absent := missing():
        reason = f"not installed: {', '.join(absent)}; run scripts/interop --install"
        if os.environ.get("TIELINE_INTEROP") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
