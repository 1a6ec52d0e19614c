"""Running a test's coroutine: every wait has a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["QUICK", "run"]

from tests.client.scripted import LIMIT_S
from tieline import Recovery

T = TypeVar("T")

QUICK = Recovery(attempts=4, first_pause_s=0.001, longest_pause_s=0.002)
"""Takes a broken stream up again as always, without making a test wait."""


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    async def limited() -> T:
        async with asyncio.timeout(LIMIT_S * 2):
            return await coroutine

    return asyncio.run(limited())
