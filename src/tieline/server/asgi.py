"""The ASGI app: HTTP to operations and back.

`App.__call__` finds the agent by path; its endpoint (endpoint.py) does the rest.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from tieline.card import JWKS_PATH, WELL_KNOWN_PATH, AgentInterface
from tieline.engine.addresses import is_loopback
from tieline.engine.agent import Agent
from tieline.engine.cursor import Cursor
from tieline.engine.push import Push
from tieline.engine.service import Limits, Service
from tieline.errors import (
    MethodNotFound,
    MisdirectedRequest,
    OriginNotAllowed,
    Unavailable,
)
from tieline.operation.observing import Observer, Telemetry
from tieline.server.auth.auth import Auth
from tieline.server.auth.followers import Followers
from tieline.server.cards import CardPage, http_interfaces
from tieline.server.endpoint import CARD_PATHS, Endpoint, Headers, Scope, refuse, respond
from tieline.server.forwarded import forwarded_for
from tieline.server.health import METRICS_PATH, PROBE_PATHS, Readiness, answer_metrics, answer_probe
from tieline.server.rates import Meter, Rates
from tieline.server.streams import Receive, Send, Stream, Watch
from tieline.stores import Store, open_store
from tieline.stores.base import StoreError
from tieline.wire import dialects
from tieline.wire.dialects import VERSIONS
from tieline.wire.payloads import payload_of

if TYPE_CHECKING:
    from tieline.operation.metrics import Now
    from tieline.wire.signing import CardSigner

__all__ = ["App", "app"]

log = logging.getLogger("tieline.server")

_HOSTS_SEEN = 16
_GRPC_URL = re.compile(r"(?:(?:https?|grpcs?)://)?(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?/?")
_NOT_NAMES = frozenset(("/", "/.", "/..", "/.well-known", "/tasks", "/v1", "/subscribe"))
_CORS_HEADERS = b"content-type, authorization, x-api-key, a2a-version, a2a-extensions, x-a2a-extensions, last-event-id"
_OPERATION = frozenset((*PROBE_PATHS, METRICS_PATH))
_OBSERVED = "tieline.observed"  # in the scope of a request: the app that it is observed for


class App:
    """One or more agents as an ASGI application. Made by `tieline.app`.

    Runs by itself or mounted below a path. The store is opened at startup, or with the first request where a framework
    does not pass lifespan events to what it mounts.
    """

    def __init__(
        self,
        agents: Mapping[str, Agent],
        store: Store,
        *,
        public_url: str | None = None,
        trust_forwarded: bool = False,
        allowed_hosts: Iterable[str] | None = None,
        cors_origins: Iterable[str] = (),
        max_body_bytes: int = 64 * 1024 * 1024,
        keep_alive_s: float = 4.0,
        versions: Iterable[str] = VERSIONS,
        strict: bool = False,
        old_at_once: bool = False,
        grpc_url: str | None = None,
        drain_s: float = 5.0,
        limits: Limits | None = None,
        auth: Auth | None = None,
        rates: Rates | None = None,
        push: Push | None = None,
        card_signer: CardSigner | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._allowed_hosts = None if allowed_hosts is None else frozenset(host.lower() for host in allowed_hosts)
        here = self._allowed_hosts is not None and all(map(is_loopback, self._allowed_hosts)) and not trust_forwarded
        if card_signer is not None and public_url is None and not here:
            # Who asks chooses the host and its port: a signed card that sends callers there is what they would want.
            raise ValueError(
                "signed cards need a public_url: the URLs in them would otherwise be whatever a request names"
                " (hosts allowed are not of this machine alone)"
            )
        self.store = store
        self.push = push
        self.auth = auth
        self.followers = None if auth is None else Followers(auth)
        self.meter = None if rates is None else Meter(rates)
        self._signs = card_signer is not None or (push is not None and push.signer is not None)
        self.old_at_once = old_at_once
        self.dialects = dialects.of_versions(versions)
        self.serves_named_tasks = any(dialect.new_task is not None for dialect in self.dialects)
        self.grpc_address: str | None = None  # HOST:PORT at which the same agents are served by gRPC, for their cards
        self.grpc_encrypted = False
        if grpc_url is not None and not _GRPC_URL.fullmatch(grpc_url):
            raise ValueError(f"grpc_url has to be HOST:PORT or a URL without a path, not {grpc_url!r}")
        self._grpc_url = grpc_url
        self.drain_s = drain_s
        self.max_body_bytes = max_body_bytes
        self._keep_alive_s = keep_alive_s
        self.strict = strict
        self._hosts_seen: set[bytes] = set()  # spellings that have been found allowed
        self._cors_headers = _CORS_HEADERS + b"".join(
            b", " + name for name in (auth.headers if auth is not None else ())
        )
        self.trusts_proxy = trust_forwarded
        self._cors_origins = frozenset(origin.lower().rstrip("/") for origin in cors_origins)
        self._public_url = None if public_url is None else public_url.rstrip("/")
        self._own_origin = "" if public_url is None else "/".join(public_url.lower().split("/")[:3])
        self._streams: set[Stream] = set()
        self.waiting: set[Watch] = set()  # requests that wait for an agent
        self._tick_s = min(0.25, keep_alive_s / 8)
        self._ticking: asyncio.TimerHandle | None = None  # one timer for all open requests
        self._ready = False
        self.leaving = False  # it still takes requests, but is to be sent none any more
        self.readiness = Readiness(self)
        self.probed = True  # on this app's own URLs
        self._only: Endpoint | None = None
        self.cards = {
            path: CardPage(
                agent,
                path,
                public_url=public_url,
                trust_forwarded=trust_forwarded,
                interfaces=partial(self.interfaces, path),
                auth=auth,
                push=push,
                signer=card_signer,
            )
            for path, agent in agents.items()
        }
        self._endpoints = {
            path: Endpoint(
                self,
                Service(
                    agent,
                    store,
                    namespace=path.strip("/"),
                    limits=limits,
                    push=push,
                    payloads=payload_of,
                ),
                self.cards[path],
            )
            for path, agent in agents.items()
        }
        if len(agents) == 1:
            self._only = self._endpoints.get("")
        self.observer: Observer | None = None
        self._telemetry = Telemetry()
        self._plain_store = store  # without the stopwatch that metrics put around it
        self.calls: set[Cursor] = set()  # streams over gRPC
        if telemetry is not None:
            self.observe(telemetry)

    def observe(self, telemetry: Telemetry) -> None:
        """Have this app tell of itself from now on, beside what it does already. To be called before it is started.

        Raises ImportError when the extra `telemetry` is not installed.
        """
        if not telemetry.any:
            return
        telemetry = self._telemetry = self._telemetry.with_(telemetry)
        tracing = metrics = None
        if telemetry.traces:
            from tieline.operation.tracing import Tracing

            tracing = Tracing()
        if telemetry.metrics:
            from tieline.operation.measured import MeasuredStore
            from tieline.operation.metrics import Metrics

            metrics = Metrics(self._now, lambda: len(self._streams) + len(self.calls))
            self.store = cast(Store, MeasuredStore(self._plain_store, metrics))
        self.observer = Observer(tracing=tracing, metrics=metrics, access_log=telemetry.access_log)
        for endpoint in self._endpoints.values():
            endpoint.service.store = self.store
            endpoint.service.observer = self.observer

    def _now(self) -> Iterator[Now]:
        """What metrics say of the agents when they are asked for."""
        from tieline.operation.metrics import Now

        for service in self.services.values():
            mail = sum(run.mail for run in service.runs.values())
            yield Now(service.agent.name, service.busy, service.waiting, service.in_line, mail, len(service.remotes))

    @property
    def agents(self) -> dict[str, Agent]:
        """The agents by the path below this app that each is at: "" or "/name"."""
        return {path: endpoint.service.agent for path, endpoint in self._endpoints.items()}

    @property
    def services(self) -> dict[str, Service]:
        """The agents' services by path, for use without HTTP."""
        return {path: endpoint.service for path, endpoint in self._endpoints.items()}

    def interfaces(self, path: str, base: str | None) -> list[AgentInterface]:
        """How the agent at `path` can be reached when its URL is `base`, the latest version first.

        Without a `base` it is that of `public_url`, and where there is none the agent is reached by gRPC alone.
        """
        if base is None and self._public_url is not None:
            base = self._public_url + path
        found = [] if base is None else http_interfaces(base)
        if self.grpc_address is not None:
            address = self._grpc_url or self.grpc_address
            host, _, port = address.rpartition(":")
            if base is not None and host in ("0.0.0.0", "[::]"):  # noqa: S104 - every address of this machine: that which the caller has found
                address = f"{urlsplit(base).hostname}:{port}"
            if self.grpc_encrypted and self._grpc_url is None:
                address = f"https://{address}"  # a bare HOST:PORT is taken for one without encryption
            tenant = None if self._only is not None else path.strip("/") or None  # gRPC has no paths
            versions = ("1.0",) if tenant else ("1.0", "0.3")  # and 0.3 no tenants
            found += [AgentInterface(address, "GRPC", version, tenant) for version in versions]
        spoken = {dialect.version for dialect in self.dialects}
        found = [interface for interface in found if interface.protocol_version in spoken]
        if not found and base is not None:
            # Readers of 0.1 find the root in agent.json; this is for who reads the card all the same.
            found = [AgentInterface(f"{base}/", "JSONRPC", self.dialects[0].version)]
        return sorted(found, key=lambda interface: interface.protocol_version, reverse=True)

    async def start(self) -> None:
        """Open the store and end what an earlier process left at work. Raises StoreError."""
        if self._ready:
            return
        for endpoint in self._endpoints.values():
            await endpoint.service.start()
        self._ready = True
        self.leaving = False

    @property
    def is_heard(self) -> bool:
        """Whether the other replicas of a shared store take this process for alive."""
        replicas = (endpoint.service.replica for endpoint in self._endpoints.values())
        return all(replica is not None and replica.is_heard for replica in replicas)

    def leave(self) -> None:
        """Say to who asks for readiness that this server is about to go. Requests are taken all the same."""
        self.leaving = True

    async def drain(self) -> None:
        """Refuse new work and let agents finish, at most for `drain_s` seconds; then end every open stream."""
        self.leaving = True
        await asyncio.gather(*(endpoint.service.drain(self.drain_s) for endpoint in self._endpoints.values()))
        await asyncio.gather(*(endpoint.service.close() for endpoint in self._endpoints.values()))
        await asyncio.sleep(0)  # what the last events woke may send them
        for stream in list(self._streams):
            stream.cursor.close()

    async def close(self) -> None:
        """Stop the agents and let go of the store."""
        await self.readiness.close()
        await asyncio.gather(*(endpoint.service.close() for endpoint in self._endpoints.values()))
        self._ready = False
        if self._ticking is not None:
            self._ticking.cancel()
            self._ticking = None
        if self.push is not None:
            await self.push.close()
        await self.store.close()

    def tick(self) -> None:
        """Look after open requests from now on, while there are any."""
        if self._ticking is None:
            self._ticking = asyncio.get_running_loop().call_later(self._tick_s, self._tick)

    def _tick(self) -> None:
        now = asyncio.get_running_loop().time()
        for stream in self._streams:
            stream.look(now, self._keep_alive_s - self._tick_s)
        for watch in self.waiting:
            watch.look(now)
        self._ticking = None
        if self._streams or self.waiting:
            self.tick()

    # --- ASGI ---------------------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "lifespan":
            await self._lifespan(receive, send)
            return
        if kind != "http":
            raise RuntimeError(f"tieline serves HTTP, not {kind}")
        if self.trusts_proxy and (address := forwarded_for(_forwarding(scope))) is not None:
            scope["client"] = (address, 0)
        if self.observer is not None and scope.get(_OBSERVED) is not self and not self._is_operation(scope):
            scope[_OBSERVED] = self
            await self.observer.http(self, scope, receive, send)
            return
        path: str = scope["path"]
        root: str = scope.get("root_path", "")
        if root and path.startswith(root) and path[len(root) : len(root) + 1] in ("", "/"):
            path = path[len(root) :]
        if path in PROBE_PATHS and self.probed:
            await answer_probe(path, scope["method"], self.readiness, send)
            return
        if not self._ready:
            try:
                await self.start()
            except StoreError as error:
                log.error("%s", error)
                await refuse(send, Unavailable.without_store())
                return
        headers = dict(scope["headers"])
        if self._allowed_hosts is not None and not self._host_allowed(headers):
            await refuse(send, _host_refused(headers))
            return
        if self.observer is not None and path == METRICS_PATH and self._tells_metrics:
            assert self.observer.metrics is not None
            await answer_metrics(scope["method"], headers, self.observer.metrics, send)
            return
        endpoint = self._only
        if endpoint is None:
            first, slash, below = path[1:].partition("/")
            endpoint = self._endpoints.get("/" + first)
            if endpoint is None:
                endpoint = self._endpoints.get("")
                if endpoint is None and path == JWKS_PATH and self._signs:
                    endpoint = next(iter(self._endpoints.values()))  # they have the same keys
                if endpoint is None:
                    await self._no_agent(send, path, root)
                    return
            else:
                path = slash + below
        if b"origin" in headers and path not in CARD_PATHS and not self._origin_allowed(headers):
            await refuse(send, _origin_refused(headers))
            return
        if self._cors_origins:
            send = self._with_cors(headers, send)
            preflight = scope["method"] == "OPTIONS" and b"access-control-request-method" in headers
            if preflight and path not in CARD_PATHS:
                await respond(send, 204, b"", [(b"allow", b"GET, POST, DELETE, OPTIONS")])
                return
        stream = await endpoint.handle(scope, headers, path, receive, send)
        if stream is not None:
            del headers  # an idle stream keeps nothing of its request
            self._streams.add(stream)
            self.tick()
            try:
                await stream.send(receive, send)
            finally:
                self._streams.discard(stream)
                if self.followers is not None:
                    self.followers.discard(stream.cursor)

    @property
    def _tells_metrics(self) -> bool:
        """Whether there are metrics here: beside agents that are not everybody's they would be everybody's."""
        return self.probed and self.auth is None and self.observer is not None and self.observer.metrics is not None

    def _is_operation(self, scope: Scope) -> bool:
        """Whether a request is an operator's, of which nobody needs to be told."""
        return self.probed and scope["path"].removeprefix(scope.get("root_path", "")) in _OPERATION

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self.start()
                except StoreError as error:
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    def _host_allowed(self, headers: Headers) -> bool:
        assert self._allowed_hosts is not None
        sent = headers.get(b"host", b"")
        if sent in self._hosts_seen:
            return True
        host = sent.decode("latin-1").lower()
        name = host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
        if name not in self._allowed_hosts:
            return False
        if len(self._hosts_seen) < _HOSTS_SEEN:
            self._hosts_seen.add(sent)
        return True

    def _origin_allowed(self, headers: Headers) -> bool:
        """Whether a web page of this origin may call: one of our own, or one that was named.

        A page can send a plain POST anywhere without asking; the browser then says where it comes from.
        """
        origin = headers[b"origin"].decode("latin-1").lower()
        if "*" in self._cors_origins or origin in self._cors_origins or origin == self._own_origin:
            return True
        return origin.partition("://")[2] == headers.get(b"host", b"").decode("latin-1").lower()

    async def _no_agent(self, send: Send, path: str, root: str) -> None:
        cards = ", ".join(f"{root}{at}{WELL_KNOWN_PATH}" for at in sorted(self._endpoints))
        error = MethodNotFound(f"There is no agent at {path}. The agents here have their cards at {cards}.")
        await refuse(send, error)

    def _with_cors(self, headers: Headers, send: Send) -> Send:
        origin = headers.get(b"origin")
        allowed = origin is not None and (
            "*" in self._cors_origins or origin.decode("latin-1").lower() in self._cors_origins
        )

        async def send_with_cors(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                if not allowed:
                    await send({**message, "headers": [*message["headers"], (b"vary", b"origin")]})
                    return
                allow = [
                    (b"access-control-allow-origin", origin),
                    (b"access-control-allow-methods", b"GET, POST, DELETE, OPTIONS"),
                    (b"access-control-allow-headers", self._cors_headers),
                    (b"access-control-expose-headers", b"www-authenticate, retry-after"),
                    (b"vary", b"origin"),
                ]
                given = [pair for pair in message["headers"] if pair[0] != b"access-control-allow-origin"]
                message = {**message, "headers": [*given, *allow]}
            await send(message)

        return send_with_cors


def _origin_refused(headers: Headers) -> OriginNotAllowed:
    origin = headers.get(b"origin", b"").decode("latin-1")
    return OriginNotAllowed(f"Web pages of {origin} may not call this server. Allow them with --cors-origin.")


def _host_refused(headers: Headers) -> MisdirectedRequest:
    host = headers.get(b"host", b"").decode("latin-1")
    return MisdirectedRequest(
        f"This server does not answer for the host {host!r}. Behind a proxy, start it with --public-url."
    )


def _forwarding(scope: Scope) -> Iterator[str]:
    return (value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for")


def app(
    agents: Agent | Mapping[str, Agent],
    *,
    store: str | Store = "memory",
    public_url: str | None = None,
    trust_forwarded: bool = False,
    allowed_hosts: Iterable[str] | None = None,
    cors_origins: Iterable[str] = (),
    max_body_bytes: int = 64 * 1024 * 1024,
    keep_alive_s: float = 4.0,
    versions: Iterable[str] = VERSIONS,
    strict: bool = False,
    old_at_once: bool = False,
    grpc_url: str | None = None,
    drain_s: float = 5.0,
    limits: Limits | None = None,
    auth: Auth | None = None,
    rates: Rates | None = None,
    push: Push | None = None,
    card_signer: CardSigner | None = None,
    telemetry: Telemetry | None = None,
) -> App:
    """Make an ASGI application of one agent, or of several by name: each is at its name's path, with its card below it.

    Args:
        agents: An agent, or a mapping from names (one path segment each) to agents.
        store: "memory", "sqlite:PATH", or a Store.
        public_url: Where callers reach this app, for the card; without it, it is taken from the request.
        trust_forwarded: Believe a proxy in X-Forwarded-Host, -Proto and -Prefix for the card's URLs, and in
            X-Forwarded-For, of which the last address counts, for who calls without a name.
        allowed_hosts: Host names to answer for; None is any.
        cors_origins: Origins of web pages that may call; "*" is any. The card may be read from anywhere.
        max_body_bytes: Larger requests are refused with 413.
        keep_alive_s: A stream without news sends a comment this often; many clients give up one that is silent for 5 s.
        versions: Which versions of A2A to serve, "1.0", "0.3", "0.2" or "0.1"; the cards tell of them.
        strict: Refuse requests of 1.0 without A2A-Version.
        old_at_once: Answer `message/send` of A2A 0.3 that says nothing of `blocking` at once, not when the task rests.
        grpc_url: What the cards say of gRPC, where it is served (`serve`) behind a proxy; else HOST:PORT.
        drain_s: How long a shutdown waits for agents at work.
        limits: What each agent may use.
        auth: Who may call; None is everybody who reaches it. The card may be read by all.
        rates: How much each caller may ask for.
        push: That the agents send push notifications, and how; None: they do not.
        card_signer: Signs the cards; the public key is served at `/.well-known/jwks.json`, which the signatures name
            unless the signer has another `key_url`. Wants a `public_url`, or `allowed_hosts` of this machine alone.
        telemetry: What the app tells of itself: traces, metrics, a log of requests. None is nothing.

    Raises:
        ImportError: the extra `telemetry` is wanted and not installed.
        ValueError: a name is not a path segment, `store` names no store, `versions` what is no version, `grpc_url`
            no place, or a `card_signer` would sign for any host.
    """
    named = {"": agents} if isinstance(agents, Agent) else {f"/{name}": agent for name, agent in agents.items()}
    for path, agent in named.items():
        if not isinstance(agent, Agent):
            raise TypeError(f"{agent!r} is not an agent: decorate its function with @tieline.agent")
        if path in _OPERATION:
            raise ValueError(f"{path[1:]!r} cannot be an agent's name: that is where a server tells how it is")
        if path and (path.count("/") > 1 or path in _NOT_NAMES or not path[1:].isprintable()):
            raise ValueError(f"{path[1:]!r} cannot be an agent's name: it has to be one path segment")
    if not named:
        raise ValueError("there is no agent to serve")
    return App(
        named,
        open_store(store),
        public_url=public_url,
        trust_forwarded=trust_forwarded,
        allowed_hosts=allowed_hosts,
        cors_origins=cors_origins,
        max_body_bytes=max_body_bytes,
        keep_alive_s=keep_alive_s,
        versions=versions,
        strict=strict,
        old_at_once=old_at_once,
        grpc_url=grpc_url,
        drain_s=drain_s,
        limits=limits,
        auth=auth,
        rates=rates,
        push=push,
        card_signer=card_signer,
        telemetry=telemetry,
    )
