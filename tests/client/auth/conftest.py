"""The provider and the guarded agents, one process each for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.auth.agents import Guarded, guarded_running
from tests.oidc.running import OidcProvider, provider, provider_process

__all__ = ["guarded", "provider", "provider_process"]


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory, provider_process: OidcProvider) -> Iterator[Guarded]:
    with guarded_running(tmp_path_factory.mktemp("guarded"), provider_process.issuer) as started:
        yield started
