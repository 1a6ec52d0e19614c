"""Trying again what a server that is away for a moment could not do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tieline.stores.base import StoreError

__all__ = ["Patience", "said"]

T = TypeVar("T")

_PAUSES_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.0)


def said(error: BaseException) -> str:
    """An error as one line."""
    if isinstance(error, TimeoutError):
        return "it does not answer"
    return " ".join(str(error).split()) or type(error).__name__


class Patience:
    """How long a server is waited for, and which of its errors pass.

    Args:
        shown: The server's name for people, without a password.
        patience_s: How long what fails for what passes is tried again.
        faults: The errors of its driver, and of the system.
        passes: Whether what failed may succeed in a moment, perhaps on another connection.
        explained: An error in one line.
    """

    def __init__(
        self,
        shown: str,
        patience_s: float,
        faults: tuple[type[BaseException], ...],
        passes: Callable[[BaseException], bool],
        explained: Callable[[BaseException], str] = said,
    ) -> None:
        self.shown = shown
        self.patience_s = patience_s
        self._faults = faults
        self._passes = passes
        self._explained = explained

    async def retried(self, work: Callable[[int], Awaitable[T]]) -> T:
        """Do something, again with pauses while that may help. `work` is given how often it was tried before.

        Raises StoreError.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + self.patience_s
        attempt = 0
        while True:
            try:
                return await work(attempt)
            except self._faults as error:
                if not self._passes(error):
                    raise StoreError(f"{self.shown}: {self._explained(error)}") from error
                pause_s = _PAUSES_S[min(attempt, len(_PAUSES_S) - 1)]
                if loop.time() + pause_s > until:
                    reason = self._explained(error).rstrip(".")
                    raise StoreError(
                        f"{self.shown} cannot be used for {self.patience_s:g} s now: {reason}. Is the server up?"
                    ) from error
                await asyncio.sleep(pause_s)
                attempt += 1
