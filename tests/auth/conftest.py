"""The fixtures of tests/behaviour over everything that goes over a wire, and an OpenID provider."""

from __future__ import annotations

import pytest

from tests.behaviour.conftest import loop, pytest_pyfunc_call, serve, store, switchboard
from tests.oidc.running import provider, provider_process

__all__ = [
    "loop",
    "provider",
    "provider_process",
    "pytest_pyfunc_call",
    "serve",
    "store",
    "switchboard",
    "transport",
]


@pytest.fixture(params=["jsonrpc", "rest", "grpc", "jsonrpc-0.3", "rest-0.3", "grpc-0.3", "jsonrpc-0.1"])
def transport(request: pytest.FixtureRequest) -> str:
    """How the test calls; `@over("rest")` limits it."""
    name: str = request.param
    return name
