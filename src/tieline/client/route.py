"""The ways to one agent: which interfaces of its card, in which order (A2A 1.0 §8.3.2), and the change to the next."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from typing import Final, NamedTuple, TypeVar

from msgspec.structs import replace

from tieline.card import AgentCard, AgentInterface
from tieline.client.transport import NotServed, Transport
from tieline.errors import (
    A2AError,
    AuthenticationRequired,
    InvalidCard,
    InvalidRequest,
    MethodNotFound,
    ParseError,
    Unreachable,
    UnsupportedOperation,
    VersionNotSupported,
    error_for,
)
from tieline.wire.dialects import DIALECTS, VERSIONS, dialect_of
from tieline.wire.rest_forms import form_of

__all__ = ["BINDINGS", "Route", "Way", "choose", "guesses", "spoken_version"]

T = TypeVar("T")

BINDINGS: Final = ("JSONRPC", "HTTP+JSON", "GRPC")
"""The protocol bindings that this client speaks."""

_ALIASES: Final = {"JSON-RPC": "JSONRPC", "REST": "HTTP+JSON", "HTTP_JSON": "HTTP+JSON"}
_GRPC_VERSIONS: Final = ("1.0", "0.3")
_PATCH = re.compile(r"(\d+\.\d+)\.\d+$")


def spoken_version(version: str | None) -> str | None:
    """The version that the caller wants, without a patch number (§3.6); None is any.

    Raises VersionNotSupported when this client does not speak it: no other one is used instead.
    """
    if version is None:
        return None
    plain = "0.1" if version == "0.2.0" else _PATCH.sub(r"\1", version)  # 0.2.0 spoke tasks/send
    if plain not in VERSIONS:
        spoken = ", ".join(VERSIONS)
        raise error_for(
            reason=VersionNotSupported.reason,
            message=f"This client does not speak version {version!r} of A2A, but {spoken}.",
            metadata={"requestedVersion": version, "supportedVersions": spoken},
        )
    return plain


def choose(
    card: AgentCard, *, transports: Sequence[str] | None = None, version: str | None = None, tenant: str | None = None
) -> tuple[AgentInterface, ...]:
    """The interfaces to use, the best first: those of the card in its order that this client speaks.

    `transports` is the caller's own order and leaves out what it does not name. With a `tenant`, interfaces of other
    tenants are left out, and one that names none is used with it. gRPC counts where it is installed.

    Raises:
        InvalidCard: none is left.
    """
    usable = [
        interface
        for interface in card.supported_interfaces
        if _spoken(interface)
        and (version is None or _same_dialect(interface.protocol_version, version))
        and (not tenant or not interface.tenant or interface.tenant == tenant)
    ]
    if transports is not None:
        wanted = [_ALIASES.get(name.upper(), name.upper()) for name in transports]
        order = {name: place for place, name in reversed(list(enumerate(wanted)))}
        usable = [interface for interface in usable if interface.protocol_binding in order]
        usable.sort(key=lambda interface: order[interface.protocol_binding])
    if not usable:
        offered = ", ".join(map(_named, card.supported_interfaces)) or "none"
        asked = f" of {', '.join(transports)}" if transports is not None else ""
        asked += f" in version {version}" if version is not None else ""
        asked += f" for tenant {tenant!r}" if tenant else ""
        install = " gRPC needs: pip install 'tieline[grpc]'." if "GRPC" in offered and not _has_grpc() else ""
        raise InvalidCard(
            f"The card of {card.name!r} offers no interface that can be used{asked}: it has {offered};"
            f" this client speaks {', '.join(BINDINGS)} in version {', '.join(VERSIONS)}."
            f"{install}"
        )
    return tuple(usable)


def guesses(listed: Sequence[AgentInterface]) -> tuple[AgentInterface, ...]:
    """What a server may speak at the same URLs when its card names the wrong version: for when that has shown."""
    known = {(each.url, each.protocol_binding, dialect_of(each.protocol_version)) for each in listed}
    others = [
        (replace(each, protocol_version=dialect.version), dialect)
        for each in listed
        if each.protocol_binding != "GRPC"
        for dialect in DIALECTS
    ]
    found = [it for it, dialect in others if _spoken(it) and (it.url, it.protocol_binding, dialect) not in known]
    return tuple(dict.fromkeys(found))


def _named(interface: AgentInterface) -> str:
    of = f" of tenant {interface.tenant!r}" if interface.tenant else ""
    return f"{interface.protocol_binding} {interface.protocol_version}{of}"


def _spoken(interface: AgentInterface) -> bool:
    binding, version = interface.protocol_binding, interface.protocol_version
    dialect = dialect_of(version)
    if dialect is None:
        return False
    if binding == "GRPC":
        return dialect.version in _GRPC_VERSIONS and _has_grpc()
    return binding == "JSONRPC" or (binding == "HTTP+JSON" and form_of(dialect.version) is not None)


def _same_dialect(version: str, other: str) -> bool:
    return dialect_of(version) is dialect_of(other)


@cache
def _has_grpc() -> bool:
    """Whether all that gRPC needs is here: an old a2a-sdk beside grpcio is not enough."""
    try:
        import tieline.client.grpc  # noqa: F401
    except ImportError:
        return False
    return True


class Way(NamedTuple):
    """An interface and the transport that speaks it."""

    interface: AgentInterface
    transport: Transport


class Route:
    """At least one way; `way` is the one in use.

    `guessed` makes the ways to try when the card shows to be wrong about what is spoken, before anything has worked.
    `wanted` is what the card asks its callers to show, for who has shown nothing.
    """

    def __init__(self, ways: Sequence[Way], guessed: Callable[[], Sequence[Way]] = tuple, wanted: str = "") -> None:
        self._ways = tuple(ways)
        self._guessed = guessed
        self._wanted = wanted
        self._guesses: tuple[Way, ...] | None = None  # made when they are first wanted
        self._works = False
        self.way = self._ways[0]

    async def close(self) -> None:
        """Close the transports. Closing twice is allowed."""
        for way in self._ways:
            await way.transport.close()

    async def call(self, call: Callable[[Way], Awaitable[T]]) -> T:
        """`call` by the way in use, else by the others in their order; what works is used from then on.

        Another way is tried only when nothing was sent that could have been carried out: no connection, or an answer
        that proves that another version or binding is spoken there. A way that another call finds meanwhile counts.

        Raises:
            A2AError: what the only way said; Unreachable with all of them where there are several.
        """
        failures: list[tuple[Way, Failure]] = []
        tried: list[Way] = []
        while (way := self._next(tried, failures)) is not None:
            tried.append(way)
            works, guessed = self._works, not _among(self._ways, way)
            try:
                result = await call(way)
            except (NotServed, A2AError) as failure:
                if guessed and isinstance(failure, UnsupportedOperation):
                    continue  # the version has no such operation; nothing need have been sent
                if isinstance(failure, AuthenticationRequired) and self._wanted:
                    failure.add_note(f"The card asks for {self._wanted}: give it as credentials=...")
                _pass_over(failure, works)
                if not guessed:
                    failures.append((way, failure))
            else:
                self.way = way
                self._works = True
                if not _among(self._ways, way):
                    self._ways = (way, *self._ways)
                return result
        raise _told(failures) from None

    def _next(self, tried: Sequence[Way], failures: Sequence[tuple[Way, Failure]]) -> Way | None:
        """The way to try next: what the card lists, then what a card may have meant that is wrong."""
        for way in (self.way, *self._ways):
            if not _among(tried, way):
                return way
        if self._works or not any(_answered(failure) for _, failure in failures):
            return None
        if self._guesses is None:
            self._guesses = tuple(self._guessed())
        return next((way for way in self._guesses if not _among(tried, way)), None)


def _among(ways: Sequence[Way], way: Way) -> bool:
    return any(each is way for each in ways)


def _pass_over(failure: Failure, works: bool) -> None:
    """Raise what ends a call; returns where the next way may be tried. `works`: something had worked by then."""
    if isinstance(failure, NotServed):
        if failure.final:
            raise failure.error from None
    elif type(failure) not in _NOT_SPOKEN and (works or type(failure) not in _NOT_UNDERSTOOD):
        raise failure


Failure = NotServed | A2AError

_NOT_SPOKEN: Final = (MethodNotFound, VersionNotSupported)
_NOT_UNDERSTOOD: Final = (ParseError, InvalidRequest)  # some servers answer so to a method that they do not know


def _answered(failure: Failure) -> bool:
    """Whether somebody is there, but does not speak what was spoken."""
    return not isinstance(failure, NotServed) or failure.answered


def _told(failures: Sequence[tuple[Way, Failure]]) -> A2AError:
    """What the caller hears when no way has led to the agent."""
    for _, failure in failures:
        if isinstance(failure, A2AError):  # the agent is there, and says so itself
            return failure
        if len(failures) == 1:
            return failure.error
    told = " ".join(f"{way.interface.protocol_binding}: {failure}" for way, failure in failures)
    return Unreachable(f"None of the agent's interfaces can be reached. {told}")
