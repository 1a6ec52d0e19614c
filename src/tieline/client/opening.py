"""From a reference to an agent to the ways that lead to it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from os import PathLike
from typing import Protocol, runtime_checkable

import msgspec
from multidict import CIMultiDict
from yarl import URL

from tieline.card import AgentCard, AgentInterface
from tieline.client.credentials import ClientCertificate, Credential
from tieline.client.direct import DirectTransport
from tieline.client.discovery import CardCache, FoundCard, card_urls, checked, find_card, read_card, without_user
from tieline.client.fitting import wanted
from tieline.client.http import Http, Verify, shown
from tieline.client.identity import Identity, certificate_of, identity_for
from tieline.client.jsonrpc import JsonRpcTransport
from tieline.client.origin import encrypted, origin_of, pinned
from tieline.client.rest import RestTransport
from tieline.client.route import Route, Way, choose, guesses, spoken_version
from tieline.client.transport import Timeouts, Transport
from tieline.client.verification import CardVerification, Trust, refusal, satisfies, unsigned, verified
from tieline.engine.agent import Agent
from tieline.engine.service import Service
from tieline.errors import CardNotFound, InternalError, InvalidCard
from tieline.stores import MemoryStore, StoreError
from tieline.types import encode
from tieline.wire import cards as forms
from tieline.wire.dialects import dialect_of
from tieline.wire.rest_forms import form_of
from tieline.wire.signing import SignatureState
from tieline.wire.v1 import V1

__all__ = [
    "HARMLESS_HEADERS",
    "Opened",
    "Options",
    "Publisher",
    "Reference",
    "check_reference",
    "in_order",
    "opened",
    "vouched_document",
    "vouched_for",
]


log = logging.getLogger("tieline.client")


@runtime_checkable
class Publisher(Protocol):
    """What publishes agents in this process: an App."""

    @property
    def services(self) -> Mapping[str, Service]: ...


Reference = str | PathLike[str] | AgentCard | Agent | Service | Publisher
"""An agent: "host:port", a URL, the URL or file of a card, a card, or an agent of this process."""


def check_reference(ref: object) -> None:
    """Raises TypeError for what is no Reference."""
    if not isinstance(ref, (str, PathLike, AgentCard, Agent, Service, Publisher)):
        raise TypeError(
            "a host, a URL, a card's file, an AgentCard, an Agent, a Service or an App is to be given, "
            f"and not a {type(ref).__name__}"
        )


class Options(msgspec.Struct, frozen=True):
    """How an agent is to be called. See `connect`."""

    transports: tuple[str, ...] | None
    version: str | None
    headers: Mapping[str, str]
    query: Mapping[str, str]
    cookies: Mapping[str, str]
    credentials: tuple[Credential, ...]
    trusted: frozenset[str]  # origins
    tenant: str | None
    timeouts: Timeouts
    verify: Verify
    cards: CardCache
    max_response_bytes: int
    max_event_bytes: int
    trust: Trust


class Opened(msgspec.Struct, frozen=True):
    """An agent that can be called."""

    card: AgentCard
    verification: CardVerification
    route: Route
    renew: Callable[[], Awaitable[tuple[AgentCard, CardVerification]]]  # the card, read again where it has expired
    take: Callable[[bytes, str], Awaitable[tuple[AgentCard, CardVerification]]]  # a card as it came, and where from
    close: Callable[[], Awaitable[None]]


async def opened(ref: Reference, options: Options) -> Opened:
    """Find the agent. Raises PeerError; ValueError when an App has several agents."""
    if isinstance(ref, (Agent, Service)) or (not isinstance(ref, (str, PathLike)) and isinstance(ref, Publisher)):
        return await _in_process(ref, options)
    headers = _headers(options)
    version = spoken_version(options.version)
    own: tuple[frozenset[str], str] | None = None
    if not isinstance(ref, AgentCard):
        ref, authorization = without_user(ref)
        if authorization is not None and "Authorization" not in headers:
            own = (options.trusted | {origin_of(card_urls(str(ref))[0]) or ""}, authorization)
    headers["A2A-Version"] = version or V1.version
    http = Http(
        headers=headers,
        own_authorization=own,
        timeouts=options.timeouts,
        verify=options.verify,
        trusted=options.trusted,
        certificate=certificate_of(options.credentials),
        max_response_bytes=options.max_response_bytes,
        max_event_bytes=options.max_event_bytes,
    )
    identity: Identity | None = None
    url: URL | None = None
    asked = headers.copy()  # what the card is asked for with
    try:
        if isinstance(ref, AgentCard):
            found = FoundCard(checked(ref, "hand"), encode(ref), "hand")
        else:
            if own is not None:
                asked["Authorization"] = own[1]
            found = await find_card(ref, http, asked, options.cards)
        card, verification = await _verified(found, options)
        document, url = found.document, found.url
        interfaces = choose(card, transports=options.transports, version=version, tenant=options.tenant)
        interfaces = _permitted(interfaces, card, url, options, own is not None)
        if options.credentials:
            http.identity = identity = _identity(card, interfaces, url, options)
        # Over gRPC the user in the reference goes with each call from the outset, unless the caller shows another one.
        metadata = headers if identity is not None and identity.uses_authorization else asked
        ways = _ways(http, interfaces, options, metadata)
        usable = [way.interface for way in ways]

        def guessed() -> list[Way]:
            return _ways(http, guesses(usable), options, metadata) if version is None else []  # what is named is kept

        route = Route(ways, guessed, wanted(card))
    except BaseException:
        await http.close()
        raise

    async def renew() -> tuple[AgentCard, CardVerification]:
        nonlocal card, verification, document
        if url is None:
            return card, verification
        found = await options.cards.get(http, url, asked)
        if found is None:
            raise CardNotFound(f"There is no agent card at {shown(url)} any more.")
        if found.document != document:
            card, verification = await _verified(found, options)
            document = found.document
        return card, verification

    async def take(document: bytes, where: str) -> tuple[AgentCard, CardVerification]:
        return await _verified(read_card(document, where, url or _url_of(where)), options)

    async def close() -> None:
        await route.close()
        await http.close()
        if identity is not None:
            await identity.close()

    return Opened(card, verification, route, renew, take, close)


def _url_of(where: str) -> URL | None:
    """An interface's URL; None for an address of gRPC."""
    return URL(where) if where.startswith(("http://", "https://")) else None


async def _verified(found: FoundCard, options: Options) -> tuple[AgentCard, CardVerification]:
    """What may be used of a card that was found, and whether it is signed. Raises CardNotVerified."""
    trust = options.trust
    if not found.card.signatures:
        return found.card, _as_required(unsigned(), trust, found.where)
    verification = await verified(found.document, found.url, trust, timeouts=options.timeouts, verify=options.verify)
    return vouched_for(found, verification), _as_required(verification, trust, found.where)


def _as_required(verification: CardVerification, trust: Trust, where: str) -> CardVerification:
    """Raises CardNotVerified where the caller insists; an invalid signature is warned of."""
    if not satisfies(verification, trust):
        raise refusal(verification, where)
    if verification.state is SignatureState.INVALID:
        log.warning("The agent card at %s has an invalid signature: %s", where, verification.reason)
    return verification


def vouched_document(found: FoundCard, verification: CardVerification) -> bytes:
    """The JSON of the card as `vouched_for` has it, with all its signatures; else as it was found."""
    document = verification.document
    if document is None:
        return found.document
    signatures = msgspec.json.decode(found.document)["signatures"]
    return encode({**msgspec.json.decode(document), "signatures": signatures})


def vouched_for(found: FoundCard, verification: CardVerification) -> AgentCard:
    """The card of a verified signature, without what it does not vouch for; else the card as it was found."""
    document = verification.document
    if document is None:
        return found.card
    card = checked(forms.read(document), found.where)
    return msgspec.structs.replace(card, signatures=found.card.signatures)


async def _in_process(ref: Agent | Service | Publisher, options: Options) -> Opened:
    store: MemoryStore | None = None
    if isinstance(ref, Agent):
        store = MemoryStore()
        service = Service(ref, store)
    elif isinstance(ref, Service):
        service = ref
    else:
        services = ref.services
        if len(services) != 1:
            names = ", ".join(repr(path) for path in services)
            raise ValueError(f"this app has several agents: connect to one of app.services: {names}")
        service = next(iter(services.values()))
    try:
        await service.start()
    except StoreError as error:
        raise InternalError(f"The store of this agent is not available: {error}") from error
    interface = AgentInterface(f"direct:{service.agent.name}", DirectTransport.name, V1.version, options.tenant)
    card = service.agent.card((interface,))
    verification = unsigned("An agent of this process has no signed card.")
    _as_required(verification, options.trust, interface.url)

    async def renew() -> tuple[AgentCard, CardVerification]:
        return card, verification

    async def take(document: bytes, where: str) -> tuple[AgentCard, CardVerification]:
        return read_card(document, where).card, verification

    async def close() -> None:
        if store is not None:  # the service is ours
            await service.close()
            await store.close()

    route = Route([Way(interface, DirectTransport(service, card, options.timeouts))])
    return Opened(card, verification, route, renew, take, close)


def _permitted(
    interfaces: tuple[AgentInterface, ...], card: AgentCard, url: URL | None, options: Options, named: bool
) -> tuple[AgentInterface, ...]:
    """Those that may have what the caller gives beside the message; `named`: a user is, in the reference.

    Raises:
        OriginNotTrusted, InvalidCard: there is something to be kept from all of them.
    """
    own = options.query or options.cookies or any(name.lower() not in HARMLESS_HEADERS for name in options.headers)
    if url is not None and url.scheme == "https" and own:
        untrusted = [each for each in interfaces if origin_of(each.url) not in options.trusted]
        if len(untrusted) == len(interfaces):
            interfaces = _encrypted(interfaces, card)
    if own or named or options.credentials:
        home = None if url is None else origin_of(url)
        secret = any(not isinstance(each, ClientCertificate) for each in options.credentials)
        interfaces = pinned(interfaces, home, options.trusted, secret=secret)
    return interfaces


HARMLESS_HEADERS = frozenset(("accept-language", "traceparent", "tracestate", "user-agent", "x-request-id"))
"""Headers that may go wherever a card says; all others may be credentials."""


def _identity(card: AgentCard, interfaces: Sequence[AgentInterface], url: URL | None, options: Options) -> Identity:
    """Raises CredentialsUnfit; ValueError where the caller says twice who it is."""
    places = [each.url for each in interfaces] if url is None else [str(url)]
    home = frozenset(origin for each in places if (origin := origin_of(each)) is not None)
    found = identity_for(card, options.credentials, home=home, trusted=options.trusted, verify=options.verify)
    if found.uses_authorization and any(name.lower() == "authorization" for name in options.headers):
        raise ValueError("credentials and an Authorization header exclude each other")
    return found


def _encrypted(interfaces: Sequence[AgentInterface], card: AgentCard) -> tuple[AgentInterface, ...]:
    """The interfaces that may be told what an encrypted card was asked for with. Raises InvalidCard for none."""
    safe = tuple(each for each in interfaces if encrypted(each.url))
    if not safe:
        raise InvalidCard(
            f"The card of {card.name!r} came encrypted and names {shown(interfaces[0].url)}, which is not: headers,"
            " cookies and query keys are not sent there. Give that interface in an AgentCard if you trust it."
        )
    return safe


def _ways(http: Http, interfaces: Sequence[AgentInterface], options: Options, metadata: Mapping[str, str]) -> list[Way]:
    """The ways by these interfaces; `metadata` is for gRPC. Raises InvalidCard where none of them can be called."""
    ways: list[Way] = []
    fault: InvalidCard | None = None
    for interface in interfaces:
        try:
            transport = _transport(http, interface, options, metadata)
        except InvalidCard as error:
            fault = fault or error
        else:
            ways.append(Way(_with_tenant(interface, options.tenant), transport))
    if fault is not None and not ways:
        raise fault
    return ways


def _transport(http: Http, interface: AgentInterface, options: Options, metadata: Mapping[str, str]) -> Transport:
    dialect = dialect_of(interface.protocol_version)
    assert dialect is not None, "choose takes no other"
    if interface.protocol_binding == "GRPC":
        if options.query or (http.identity is not None and http.identity.query):
            raise InvalidCard(
                "The card names a gRPC interface, and gRPC has no query: its keys, such as credentials, would be lost."
            )
        return _grpc_transport(interface.url, dialect.version, options, metadata, http.identity)
    try:
        url = URL(interface.url).with_user(None).extend_query(options.query)
    except ValueError:
        raise InvalidCard(f"The card names an interface at {shown(interface.url)}, which is no URL.") from None
    if interface.protocol_binding == "JSONRPC":
        return JsonRpcTransport(http, url, dialect)
    form = form_of(dialect.version)
    assert form is not None, "choose takes no other"
    return RestTransport(http, url, form)


def _grpc_transport(
    address: str, version: str, options: Options, metadata: Mapping[str, str], identity: Identity | None
) -> Transport:
    from tieline.client.grpc import GrpcTransport

    try:
        return GrpcTransport(
            address,
            version="0.3" if version == "0.3" else "1.0",
            metadata=metadata,
            identity=identity,
            certificate=certificate_of(options.credentials),
            timeouts=options.timeouts,
            verify=options.verify,
            max_response_bytes=options.max_response_bytes,
        )
    except ValueError as error:
        raise InvalidCard(f"The card names a gRPC interface that cannot be called: {error}.") from None


def _with_tenant(interface: AgentInterface, tenant: str | None) -> AgentInterface:
    """The card's own tenant is sent as it stands (A2A 1.0 §8.3.2); the caller's where the card names none."""
    return interface if interface.tenant or not tenant else msgspec.structs.replace(interface, tenant=tenant)


def _headers(options: Options) -> CIMultiDict[str]:
    """What every request carries. Raises ValueError for what cannot be sent, never showing a value."""
    headers: CIMultiDict[str] = CIMultiDict()
    for name, value in options.headers.items():
        if not name or not name.isascii() or any(character in name for character in "\r\n\0: "):
            raise ValueError(f"{name!r} is not the name of a header")
        if any(character in value for character in "\r\n\0"):
            raise ValueError(f"the value of header {name} has a line break or a null byte in it")
        headers[name] = value
    for name, value in options.cookies.items():
        if not name or any(character in name + value for character in "\r\n\0; ,") or "=" in name:
            raise ValueError(f"the cookie {name!r} has a character that a cookie cannot have")
    if options.cookies:
        cookies = [f"{name}={value}" for name, value in options.cookies.items()]
        headers["Cookie"] = "; ".join([*headers.getall("Cookie", []), *cookies])
    return headers


def in_order(transports: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """The caller's preference: one binding or several, the best first; None is the card's order."""
    if transports is None:
        return None
    return (transports,) if isinstance(transports, str) else tuple(transports)
