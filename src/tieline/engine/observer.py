"""Who looks on while agents are at work: what the engine tells, where somebody wants to know."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import Context
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from tieline.engine.run import Run

__all__ = ["EngineObserver", "PushOutcome"]

PushOutcome = Literal["delivered", "retried", "given_up"]


class EngineObserver(Protocol):
    """Each stretch of an agent's work is told twice: when it begins, and when the task rests or has ended."""

    def carried(self) -> Mapping[str, str]:
        """What tells another replica, which is to do something of this call, what it belongs to."""
        ...

    def taken_up(self, carried: Mapping[str, str]) -> None:
        """What is done from here on, in this context, is part of a call to the replica that has `carried` this."""
        ...

    def heard(self, run: Run) -> None:
        """A message for the run's agent has come in; what it leads to belongs to the request that is being answered."""
        ...

    def begins(self, run: Run) -> Context:
        """The agent is about to be put to work: in the context that this returns."""
        ...

    def rests(self, run: Run) -> None:
        """The agent has done its work, or waits for its caller from here on: `run.state` says which."""
        ...

    def goes_on(self, run: Run) -> None:
        """The caller has answered; the agent goes on in the context that this is called in."""
        ...

    def pushed(self, outcome: PushOutcome, seconds: float) -> None:
        """A push notification was delivered, or was not and is tried again or given up; the attempt took `seconds`."""
        ...
