"""The ways to one agent: which interfaces of its card, in which order (A2A 1.0 §8.3.2), and the change to the next."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from tieline.card import AgentCard, AgentInterface
from tieline.client.transport import NotServed, Transport
from tieline.errors import InvalidCard, Unreachable, VersionNotSupported

__all__ = ["BINDINGS", "Route", "Way", "choose", "spoken_version"]

T = TypeVar("T")

BINDINGS: Final = ("JSONRPC", "HTTP+JSON")
"""The protocol bindings that this client speaks."""

VERSIONS: Final = ("1.0",)
"""The protocol versions that this client speaks, Major.Minor."""

_ALIASES: Final = {"JSON-RPC": "JSONRPC", "REST": "HTTP+JSON", "HTTP_JSON": "HTTP+JSON"}
_PATCH = re.compile(r"(\d+\.\d+)\.\d+$")


def spoken_version(version: str | None) -> str | None:
    """The version that the caller wants, without a patch number (§3.6); None is any.

    Raises VersionNotSupported when this client does not speak it: no other one is used instead.
    """
    if version is None:
        return None
    plain = _PATCH.sub(r"\1", version)
    if plain not in VERSIONS:
        raise VersionNotSupported(version, VERSIONS)
    return plain


def choose(
    card: AgentCard, *, transports: Sequence[str] | None = None, version: str | None = None, tenant: str | None = None
) -> tuple[AgentInterface, ...]:
    """The interfaces to use, the best first: those of the card in its order that this client speaks.

    `transports` is the caller's own order and leaves out what it does not name. With a `tenant`, interfaces of other
    tenants are left out, and one that names none is used with it.

    Raises:
        InvalidCard: none is left.
    """
    spoken = VERSIONS if version is None else (version,)
    usable = [
        interface
        for interface in card.supported_interfaces
        if interface.protocol_binding in BINDINGS
        and _PATCH.sub(r"\1", interface.protocol_version) in spoken
        and (not tenant or not interface.tenant or interface.tenant == tenant)
    ]
    if transports is not None:
        wanted = [_ALIASES.get(name.upper(), name.upper()) for name in transports]
        order = {name: place for place, name in reversed(list(enumerate(wanted)))}
        usable = [interface for interface in usable if interface.protocol_binding in order]
        usable.sort(key=lambda interface: order[interface.protocol_binding])
    if not usable:
        offered = ", ".join(f"{i.protocol_binding} {i.protocol_version}" for i in card.supported_interfaces) or "none"
        asked = f" of {', '.join(transports)}" if transports is not None else ""
        raise InvalidCard(
            f"The card of {card.name!r} offers no interface that can be used{asked}: it has {offered};"
            f" this client speaks {', '.join(BINDINGS)} in version {', '.join(spoken)}."
        )
    return tuple(usable)


class Way(NamedTuple):
    """An interface and the transport that speaks it."""

    interface: AgentInterface
    transport: Transport


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
