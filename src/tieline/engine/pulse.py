"""A second heart for a replica whose event loop is blocked."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import suppress
from typing import Final

from tieline.stores.base import SharedStore, StoreError

__all__ = ["Pulse"]

log = logging.getLogger("tieline.engine")

_STUCK_S: Final = 120.0  # an event loop that has stood still for so long is given up


class Pulse:
    """Says that this replica is alive while an agent blocks the event loop, from a thread.

    Without it, an agent that computes or waits without `await` for longer than the lease would cost its replica all
    its tasks. It does nothing while the loop beats by itself, and gives up when that stands still for too long.
    """

    def __init__(self, store: SharedStore, beat_s: float) -> None:
        self._store = store
        self._beat_s = beat_s
        self._felt = time.monotonic()
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None

    def felt(self) -> None:
        """The loop has beaten by itself."""
        self._felt = time.monotonic()

    def start(self) -> None:
        """Begin to watch the loop."""
        self._ends.clear()
        self.felt()
        self._thread = threading.Thread(target=self._run, name="tieline-pulse", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """End the thread; it may be in the middle of a beat."""
        self._ends.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.to_thread(thread.join, self._beat_s)

    def _run(self) -> None:
        while not self._ends.wait(self._beat_s / 2):
            if self._beat_s * 1.5 < time.monotonic() - self._felt < _STUCK_S:
                log.warning("the event loop or the store stands still: does an agent block without `await`?")
                asyncio.run(self._beat())

    async def _beat(self) -> None:
        """Beat until the loop does so again."""
        twin = self._store.twin()
        try:
            while not self._ends.is_set() and self._beat_s * 1.5 < time.monotonic() - self._felt < _STUCK_S:
                await twin.beat()
                await asyncio.sleep(self._beat_s / 2)
        except StoreError as error:
            log.error("this replica cannot say that it is alive: %s", error)
        except Exception:  # the thread has to be there the next time
            log.exception("this replica cannot say that it is alive")
        finally:
            with suppress(Exception):  # it is thrown away
                await twin.close()
