"""What is not used is not loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIMIT_S = 60.0


@pytest.mark.parametrize(
    ("module", "without"),
    [
        ("tieline.engine.guard", ("aiohttp", "joserfc", "cryptography", "asyncio")),
        ("tieline.engine.notification", ("aiohttp", "joserfc", "cryptography")),
        ("tieline.engine.sender", ("aiohttp", "joserfc", "cryptography", "uvicorn")),
        ("tieline.server.receiver", ("aiohttp", "joserfc", "cryptography", "uvicorn")),
        ("tieline.server.asgi", ("aiohttp", "joserfc", "cryptography")),
        ("tieline.cli.push", ("joserfc", "cryptography", "uvicorn")),
    ],
)
def test_module_is_imported_without_what_it_may_never_need(module: str, without: tuple[str, ...]) -> None:
    code = f"import sys, {module}; loaded = set({without!r}) & set(sys.modules); assert not loaded, loaded"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("module", ["tieline.engine.signer", "tieline.server.jwks"])
def test_extra_that_is_missing_is_named(module: str) -> None:
    code = f"import sys; sys.modules['joserfc'] = None\nimport {module}"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert run.returncode == 1
    assert "signatures need the extra `auth`: pip install 'tieline[auth]'" in run.stderr
