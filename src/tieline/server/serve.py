"""Serving an app as a process: uvicorn, the socket, signals and the drain at the end."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import uvicorn

from tieline.engine.addresses import is_loopback
from tieline.engine.agent import Agent, slug_of
from tieline.engine.push import Push
from tieline.engine.service import Limits
from tieline.operation.observing import Telemetry
from tieline.server.asgi import App, app
from tieline.server.auth.auth import Auth
from tieline.server.auth.certificate import ClientCertificates
from tieline.server.connections import WatchedServer, protocol
from tieline.server.loading import CannotServe
from tieline.server.rates import Rates
from tieline.server.tls import Tls
from tieline.stores import Store
from tieline.stores.base import StoreError
from tieline.wire.dialects import VERSIONS

if TYPE_CHECKING:
    from tieline.server.grpc import GrpcServer
    from tieline.wire.signing import CardSigner

__all__ = ["begin_to_listen", "bind", "http_url", "serve"]

_BACKLOG = 2048  # connections that wait to be taken
_FORCED_S = 0.5
_STUCK_S = 10.0  # behind the drain: what ends by itself has ended by then
_KEEP_ALIVE_S = 75  # longer than clients' pools keep a connection, or a request now and then meets a closing one


def serve(
    target: Agent | Mapping[str, Agent] | App,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    grpc_port: int | None = None,
    store: str | Store = "memory",
    public_url: str | None = None,
    trust_forwarded: bool = False,
    allowed_hosts: Iterable[str] = (),
    cors_origins: Iterable[str] = (),
    versions: Iterable[str] = VERSIONS,
    strict: bool = False,
    old_at_once: bool = False,
    grpc_url: str | None = None,
    drain_s: float = 5.0,
    max_body_bytes: int = 64 * 1024 * 1024,
    limits: Limits | None = None,
    card_signer: CardSigner | None = None,
    on_ready: Callable[[Sequence[str]], None] | None = None,
    on_grpc: Callable[[str], None] | None = None,
    on_drain: Callable[[int], None] | None = None,
    leave_s: float | None = None,
    listening: socket.socket | None = None,
    auth: Auth | None = None,
    rates: Rates | None = None,
    push: Push | None = None,
    tls: Tls | None = None,
    telemetry: Telemetry | None = None,
    ops_port: int | None = None,
    ops_host: str = "127.0.0.1",
    ops_link: socket.socket | None = None,
    on_ops: Callable[[str], None] | None = None,
    drain_delay_s: float = 0.0,
) -> None:
    """Serve until SIGINT or SIGTERM, then drain: new work is refused, agents at work may finish for `drain_s` seconds.

    On a loopback address only loopback host names are answered for, beside `public_url`'s and `allowed_hosts`, so that
    no web page reaches the agents by a name of its own that resolves to this machine.

    Args:
        target: What to serve; an App is served as it is made, without the options that make one.
        port: 0 is any free one.
        grpc_port: Where gRPC is served, too; 0 is any free port, None is no gRPC.
        on_ready: Called with the URLs of the agents once requests are answered.
        on_grpc: Called with HOST:PORT of gRPC, before `on_ready`.
        on_drain: Called with the number of agents at work when the drain begins.
        leave_s: End the process this long behind the shutdown, though an agent that ignores its cancellation, or a
            thread of one, still holds on to it; and ten seconds behind the drain, though one keeps the event loop from
            going on: then stderr shows where, and the exit code is 1. None waits for them.
        listening: A socket that is bound already, which other processes may listen on, too, and so on `grpc_port`.
        auth: Who may call; None is everybody who reaches it.
        rates: How much each caller may ask for.
        push: That the agents send push notifications, and how; None: they do not.
        tls: The certificate to serve with; None is plain HTTP, for this machine or behind a proxy.
        telemetry: What the server tells of itself. Traces go where the OTEL_* variables say, unless the program has
            set a TracerProvider.
        ops_port: Serve /healthz, /readyz and /metrics there, on `ops_host`, and no more beside the agents; 0 is any
            free port.
        ops_link: A socket on which a watching process asks for what would be told on such a port.
        on_ops: Called with the URL of the operator's port, before `on_ready`.
        drain_delay_s: How long requests are still taken behind the signal, while /readyz says that they should not
            come any more: so long load balancers may need to hear of it.

    Raises:
        CannotServe: an address is taken or not allowed, the store cannot be opened, or what gRPC needs is missing.
        ValueError: an option makes no sense.
    """
    if isinstance(target, App):
        application = target
    else:
        application = app(
            target,
            store=store,
            public_url=public_url,
            trust_forwarded=trust_forwarded,
            allowed_hosts=_hosts(host, public_url, allowed_hosts, trust_forwarded),
            cors_origins=cors_origins,
            max_body_bytes=max_body_bytes,
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
        )
    _check_certificates(application.auth, tls)
    if grpc_port is not None and not {"1.0", "0.3"} & {dialect.version for dialect in application.dialects}:
        raise CannotServe("gRPC began with A2A 0.3: serve that version or 1.0, too, or leave gRPC out.")
    exporting = None
    if telemetry is not None:
        try:
            application.observe(telemetry)
            if telemetry.traces:
                from tieline.operation.tracing import Exporting

                exporting = Exporting(_service_name(application))
        except ImportError as error:
            raise CannotServe(str(error)) from None
    shares = listening is not None
    grpc = None if grpc_port is None else _Grpc(application, host, grpc_port, public_url, on_grpc, shares, tls)
    if listening is None:
        listening = bind(host, port)
    ops = None
    if ops_port is not None or ops_link is not None:
        application.probed = False
        ops = _Ops(application, None if ops_port is None else bind(ops_host, ops_port, "--ops-port"), ops_link, on_ops)
    config = uvicorn.Config(
        application,
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # the app reads them itself
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=5,
        lifespan="on",
        ws="none",
        http=protocol(),
        **(tls.of_uvicorn() if tls is not None else {}),
    )
    actual_port = listening.getsockname()[1]
    base = (
        public_url.rstrip("/")
        if public_url
        else f"{'http' if tls is None else 'https'}://{_in_url(host)}:{actual_port}"
    )
    server = _Server(config, application, grpc, ops, base, on_ready, on_drain, leave_s, drain_delay_s)
    try:
        server.run(sockets=[listening])
    finally:
        listening.close()
        if exporting is not None:
            exporting.close()
    if server.failure is not None:
        raise CannotServe(str(server.failure)) from server.failure


class _Grpc:
    """The gRPC server beside the HTTP server, and where it is found. Raises CannotServe."""

    def __init__(
        self,
        application: App,
        host: str,
        port: int,
        public_url: str | None,
        on_ready: Callable[[str], None] | None,
        shares: bool,
        tls: Tls | None,
    ) -> None:
        try:
            from tieline.server.grpc import GrpcServer
        except ImportError as error:
            raise CannotServe(str(error)) from None
        self.server: GrpcServer = GrpcServer(application)
        self._app = application
        self._host = host
        self._port = port
        self._public_host = urlsplit(public_url).hostname if public_url else None
        self._on_ready = on_ready
        self._shares = shares
        self._tls = tls

    async def start(self, http_url: str) -> None:
        """Listen, and have the card say so. Raises CannotServe and StoreError."""
        try:
            port = await self.server.start(
                self._host, self._port, http_url=http_url, share_port=self._shares, tls=self._tls
            )
        except OSError as error:
            raise CannotServe(f"{error}. Choose another one with --grpc-port.") from None
        if self._public_host is not None:
            self._app.grpc_address = f"{_in_url(self._public_host)}:{port}"
        if self._on_ready is not None:
            self._on_ready(self._app.grpc_address or "")


class _Ops:
    """What the operator is told beside the agents' port."""

    def __init__(
        self,
        application: App,
        listening: socket.socket | None,
        link: socket.socket | None,
        on_ready: Callable[[str], None] | None,
    ) -> None:
        from tieline.server.ops import AppPages, OpsServer, answer_parent

        self._listening = listening
        self._link = link
        self._on_ready = on_ready
        self._pages = AppPages(application)
        self._server = OpsServer(self._pages)
        self._answer_parent = answer_parent
        self._answering: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to answer; before the agents do, so that a slow start is seen as one."""
        if self._link is not None:
            self._answering = asyncio.ensure_future(self._answer_parent(self._link, self._pages))
        if self._listening is not None:
            begin_to_listen(self._listening, "--ops-port")
            await self._server.start(self._listening)
            if self._on_ready is not None:
                host, port = self._listening.getsockname()[:2]
                self._on_ready(http_url(host, port))

    async def stop(self) -> None:
        """Answer no more."""
        await self._server.stop()
        if self._answering is not None:
            self._answering.cancel()


class _Server(WatchedServer):
    """uvicorn's server, with our start before its own and our drain before its shutdown."""

    def __init__(
        self,
        config: uvicorn.Config,
        application: App,
        grpc: _Grpc | None,
        ops: _Ops | None,
        url: str,
        on_ready: Callable[[Sequence[str]], None] | None,
        on_drain: Callable[[int], None] | None,
        leave_s: float | None,
        drain_delay_s: float,
    ) -> None:
        super().__init__(config)
        self.failure: StoreError | CannotServe | None = None
        self._app = application
        self._grpc = grpc
        self._ops = ops
        self._url = url  # of the app, without a slash at the end
        self._on_ready = on_ready
        self._on_drain = on_drain
        self._leave_s = leave_s
        self._drain_delay_s = drain_delay_s

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGINT and SIGTERM, and count that as the normal end it is: uvicorn would raise them once more."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end; though an agent keeps the event loop from going on, the process ends, and shows where it is."""
        if not self.should_exit and self._leave_s is not None and sys.__stderr__ is not None:
            stuck_s = self._drain_delay_s + self._app.drain_s + _STUCK_S
            faulthandler.dump_traceback_later(stuck_s, exit=True, file=sys.__stderr__)
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            if self._ops is not None:
                await self._ops.start()
            if not await self._opened():
                self._leave_in(self._leave_s)
                return
            for each in sockets or ():
                begin_to_listen(each)
            if self._grpc is not None:
                await self._grpc.start(self._url)
        except StoreError as error:
            self.failure = error
        except CannotServe as error:
            self.failure = error
            await self._app.close()
        if self.failure is not None:
            if self._ops is not None:
                await self._ops.stop()
            self.should_exit = True  # and there is no shutdown of what has not started
            return
        await super().startup(sockets)
        gc.collect()
        gc.freeze()  # what is there now lives as long as the process: the collector need not look at it again
        if self._on_ready is not None and self.started:
            self._on_ready([self._url + path for path in self._app.agents])

    async def _opened(self) -> bool:
        """Open the app, for as long as no signal comes: a store that does not answer may be waited for for long."""
        opening = asyncio.ensure_future(self._app.start())
        while not opening.done() and not self.should_exit:
            await asyncio.wait([opening], timeout=0.1)
        if not opening.done():
            opening.cancel()
            return False
        await opening
        return True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.leave()
        if self._grpc is not None:
            await self._grpc.server.leave()
        until = asyncio.get_running_loop().time() + self._drain_delay_s
        while (left := until - asyncio.get_running_loop().time()) > 0 and not self.force_exit:  # noqa: ASYNC110 - a signal sets it
            await asyncio.sleep(min(left, 0.1))  # requests are answered meanwhile
        busy = sum(service.busy for service in self._app.services.values())
        drain = asyncio.ensure_future(self._app.drain())
        await asyncio.sleep(0)  # new work is refused from here on
        if self._on_drain is not None:
            self._on_drain(busy)
        while not drain.done() and not self.force_exit:
            await asyncio.wait([drain], timeout=0.1)
        drain.cancel()
        if self.force_exit:
            self._leave_in(_FORCED_S)
        if self._grpc is not None:
            await self._grpc.server.stop()
        await super().shutdown(sockets)
        if self._ops is not None:
            await self._ops.stop()
        self._leave_in(self._leave_s)

    def _leave_in(self, seconds: float | None) -> None:
        """End the process then, if it has not ended by itself: everything that has to be kept is stored."""
        if self._leave_s is not None and seconds is not None:
            timer = threading.Timer(seconds, os._exit, (0,))
            timer.daemon = True
            timer.start()


def _check_certificates(auth: Auth | None, tls: Tls | None) -> None:
    """Raises ValueError when certificates of callers are wanted, and nobody asks for any."""
    wanted = [] if auth is None else [each for each in auth.schemes.values() if isinstance(each, ClientCertificates)]
    asked = tls is not None and tls.client_ca is not None
    if any(each.header is None for each in wanted) and not asked:
        raise ValueError(
            "callers are to show certificates: give a tls with a client_ca (--tls-client-ca), or the header of a proxy"
            " (--auth mtls:HEADER)"
        )


def bind(host: str, port: int, option: str = "--port") -> socket.socket:
    """A socket for this address, which `option` has given. Raises CannotServe."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        raise _no_address(host, port, option, error) from None
    listening.set_inheritable(True)
    return listening


def begin_to_listen(listening: socket.socket, option: str = "--port") -> None:
    """Take connections at what `bind` has given. Raises CannotServe.

    An address may be bound twice as long as nobody listens there: another server, or another port of this one, may
    have been quicker. Event loops do not all tell of it.
    """
    try:
        listening.listen(_BACKLOG)
    except OSError as error:
        host, port = listening.getsockname()[:2]
        raise _no_address(host, port, option, error) from None


def _no_address(host: str, port: int, option: str, error: Exception) -> CannotServe:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return CannotServe(f"{host}:{port} cannot be listened on: {reason}. Choose another one with {option}.")


def _hosts(host: str, public_url: str | None, allowed: Iterable[str], trust_forwarded: bool) -> frozenset[str] | None:
    """The host names to answer for; None is any."""
    named = set(allowed)
    if not named and (trust_forwarded or not is_loopback(host)):
        return None
    if public_url is not None and (name := urlsplit(public_url).hostname):
        named.add(name)
    return frozenset({*named, "localhost", "127.0.0.1", "[::1]", _in_url(host).lower()})


def _service_name(application: App) -> str:
    """What traces call the server, unless OTEL_SERVICE_NAME does: the agent's name where there is one agent."""
    agents = list(application.agents.values())
    return slug_of(agents[0].name) if len(agents) == 1 else "tieline"


def http_url(host: str, port: int) -> str:
    """The URL of what listens there."""
    return f"http://{_in_url(host)}:{port}"


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
