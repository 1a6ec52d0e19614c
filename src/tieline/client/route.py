"""The ways to one agent, the best first, and the change to the next one when the first cannot be reached."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from tieline.card import AgentInterface
from tieline.client.transport import NotServed, Transport
from tieline.errors import Unreachable

__all__ = ["Route", "Way"]

T = TypeVar("T")


class Way:
    """An interface and the transport that speaks it."""

    __slots__ = ("interface", "transport")

    def __init__(self, interface: AgentInterface, transport: Transport) -> None:
        self.interface = interface
        self.transport = transport


class Route:
    """At least one way; `way` is the one in use."""

    def __init__(self, ways: Sequence[Way]) -> None:
        self._ways = tuple(ways)
        self.way = self._ways[0]

    async def call(self, call: Callable[[Way], Awaitable[T]]) -> T:
        """`call` by the way in use, else by the others in their order; what works is used from then on.

        Another way is tried only after NotServed: nothing was sent then that could have been carried out.

        Raises:
            PeerError: what the only way said; Unreachable with all of them where there are several.
        """
        used = self.way
        try:
            return await call(used)
        except NotServed as failure:
            if failure.final or len(self._ways) == 1:
                raise failure.error from None
            failures = [(used, failure)]
        for way in self._ways:
            if way is used:
                continue
            try:
                result = await call(way)
            except NotServed as failure:
                if failure.final:
                    raise failure.error from None
                failures.append((way, failure))
            else:
                self.way = way
                return result
        told = " ".join(f"{way.interface.protocol_binding}: {failure}" for way, failure in failures)
        raise Unreachable(f"None of the agent's interfaces can be reached. {told}")
