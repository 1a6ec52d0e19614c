"""The fixtures of tests/behaviour: one loop, one HTTP server, `serve` over each transport."""

from __future__ import annotations

from tests.behaviour.conftest import loop, pytest_pyfunc_call, serve, store, switchboard, transport

__all__ = ["loop", "pytest_pyfunc_call", "serve", "store", "switchboard", "transport"]
