"""How a server sends push notifications: the settings of one App, and what all its agents share."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from tieline.engine.guard import Guard
from tieline.event import Event
from tieline.types import Task

if TYPE_CHECKING:
    from tieline.engine.sender import Sender
    from tieline.engine.signer import Signer

__all__ = ["Payload", "Payloads", "Push"]


class Payload(Protocol):
    """What the webhooks of one version of A2A are sent (§4.3.3)."""

    @property
    def media_type(self) -> str: ...

    @property
    def token_is_bearer(self) -> bool:
        """Whether a token without other credentials goes into Authorization."""
        ...

    @property
    def wants_task(self) -> bool:
        """Whether it tells the task as it is behind an event, instead of the event."""
        ...

    def body(self, event: Event, task: Callable[[], Task]) -> bytes | None:
        """The body that tells of an event; `task` gives the task as it is behind it. None: it is not told."""
        ...


Payloads = Callable[[str], Payload]
"""The payload of a version: "1.0", "0.3", "0.2" or "0.1"."""


class Push:
    """That an App's agents send push notifications (A2A 1.0 §4.3), and how.

    Every event of a task goes to each of its webhooks, in order and at least once, across restarts. A delivery that
    fails is tried again after `first_pause_s`, then after twice as long each time and `longest_pause_s` at most, with
    some chance in it, or when the receiver says (Retry-After). After `give_up_s` without success, or when the receiver
    answers 410 Gone, what is left becomes a dead letter (`tieline push dead`), which can be sent again.

    `guard` says which URLs may be called: by default https at public addresses. `signer` signs each notification.
    `timeout_s`: for one POST, from looking up the name to the answer; §4.3.3 recommends 10 to 30.
    """

    def __init__(
        self,
        *,
        guard: Guard | None = None,
        signer: Signer | None = None,
        first_pause_s: float = 1.0,
        longest_pause_s: float = 300.0,
        give_up_s: float = 24 * 3600.0,
        timeout_s: float = 15.0,
        webhooks_per_task: int = 10,
    ) -> None:
        """Raises ValueError."""
        if not 0 < first_pause_s <= longest_pause_s:
            raise ValueError(f"first_pause_s is more than 0 and at most longest_pause_s, not {first_pause_s:g}")
        if not give_up_s > 0 or not timeout_s > 0 or webhooks_per_task < 1:
            raise ValueError("give_up_s and timeout_s are more than 0, webhooks_per_task at least 1")
        self.guard = guard or Guard()
        self.signer = signer
        self.first_pause_s = first_pause_s
        self.longest_pause_s = longest_pause_s
        self.give_up_s = give_up_s
        self.timeout_s = timeout_s
        self.webhooks_per_task = webhooks_per_task
        self._sender: Sender | None = None

    @property
    def sender(self) -> Sender:
        """What makes the calls; made when it is needed first."""
        if self._sender is None:
            from tieline.engine.sender import Sender

            self._sender = Sender(self.guard, total_s=self.timeout_s)
        return self._sender

    def pause_s(self, failed: int, asked_s: float | None) -> float:
        """How long to wait behind so many failures in a row, when the receiver has asked for `asked_s`."""
        longest = min(self.longest_pause_s, self.first_pause_s * 2.0 ** min(failed - 1, 60))
        pause_s = longest * random.uniform(0.5, 1.0)  # noqa: S311 - so that many do not come back at once
        return pause_s if asked_s is None else max(pause_s, min(asked_s, self.give_up_s))

    async def close(self) -> None:
        """Close all connections."""
        sender, self._sender = self._sender, None
        if sender is not None:
            await sender.close()
