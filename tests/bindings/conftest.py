"""The fixtures of tests/behaviour: one loop, one HTTP server, `serve` over each transport that JSON goes over."""

from __future__ import annotations

import pytest

from tests.behaviour.conftest import loop, pytest_pyfunc_call, serve, store, switchboard

__all__ = ["loop", "pytest_pyfunc_call", "serve", "store", "switchboard", "transport"]


@pytest.fixture(params=["direct", "jsonrpc", "rest"])
def transport(request: pytest.FixtureRequest) -> str:
    """How the test calls; `@over("rest")` limits it."""
    name: str = request.param
    return name
