"""gRPC (A2A 1.0 §10) in front of the same services as HTTP, in the same process and event loop.

One call: `_Method` reads metadata and message, calls the operation and writes what it gives. Requests and answers cross
grpcio as bytes, so that each is converted once, by tieline.wire.
"""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, Final
from urllib.parse import unquote

try:
    import grpc
    from google.protobuf.any_pb2 import Any as AnyMessage
    from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
    from google.rpc.status_pb2 import Status
    from grpc_health.v1 import health_pb2
    from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
    from grpc_reflection.v1alpha import reflection
except ImportError as error:
    raise ImportError(f"gRPC needs: pip install 'tieline[grpc]' ({error})") from error
from msgspec.structs import replace

from tieline.engine.cursor import Cursor
from tieline.engine.service import Service
from tieline.engine.turn import Caller
from tieline.errors import (
    ERROR_DOMAIN,
    A2AError,
    InternalError,
    InvalidParams,
    InvalidRequest,
    PushNotificationNotSupported,
    Unavailable,
    UnsupportedOperation,
    VersionNotSupported,
)
from tieline.operation.observing import Observer
from tieline.operation.requests import ObservedRequest, named, refused
from tieline.server.asgi import App
from tieline.server.auth.identity import Shown
from tieline.server.auth.subject import subject_of_pem
from tieline.server.forwarded import forwarded_for
from tieline.server.grpc_health import GrpcHealth
from tieline.server.rates import counted
from tieline.server.tls import Tls
from tieline.wire import protobuf, protobuf03
from tieline.wire.headers import extensions_of
from tieline.wire.protobuf_rpcs import Rpc

__all__ = ["GrpcServer", "status_details"]

log = logging.getLogger("tieline.server")

_PEER = re.compile(r"ipv4:([0-9.]+):\d+$|ipv6:\[([0-9A-Fa-f:.]+)\]:\d+$")
_VERSION = re.compile(r"(\d+\.\d+)(?:\.\d+)?$")
_PLAIN_CALLER: Final = Caller()
_EXTENSIONS: Final = ("a2a-extensions", "x-a2a-extensions")
_END_S: Final = 0.5  # for streams and calls that the drain has ended to tell their callers
_KEEP_ALIVE_MS: Final = 30_000
_MESSAGE_BYTES: Final = 1500  # of an error's sentence: all that goes with a status has to fit 8 KiB of trailers
_DETAIL_CHARS: Final = 200
_DETAILS_BYTES: Final = 3000
_ABSENT_03: Final = (PushNotificationNotSupported, UnsupportedOperation)  # what servers of 0.3 call UNIMPLEMENTED


_Operation = Callable[[Service, Any, Caller], Awaitable[Any]]
"""What carries out a request: its answer as a value, or a Cursor."""


class GrpcServer:
    """The gRPC server of an app: A2A 1.0 and 0.3. `start` it, `leave` when the app's drain begins, `stop` behind it.

    An app of one agent is served as it is. In one of agents by name, the `tenant` of a request names the agent, as the
    card tells; it is then no tenant for the agent. A2A 0.3 has no tenants, and serves one agent alone.

    The app is started with it; who has made the app closes it.
    """

    def __init__(self, app: App) -> None:
        self.open: set[Cursor] = app.calls  # of streams
        self.followers = app.followers
        self.stopping = False
        self._http_url: str | None = None
        self.observer = app.observer
        self._app = app
        self._strict = app.strict
        self._health = GrpcHealth(app.readiness)
        self._server: Any = None
        self._max_body_bytes = app.max_body_bytes
        services = app.services
        self._only = services.get("") if len(services) == 1 else None
        self._by_name = {path.strip("/"): service for path, service in services.items()}
        self._names: list[str] = []

    async def start(
        self,
        host: str,
        port: int,
        *,
        http_url: str | None = None,
        share_port: bool = False,
        tls: Tls | None = None,
    ) -> int:
        """Start the app and listen; the port that it is, where `port` is 0. The cards of the app then name it.

        `http_url`: where callers reach the app by HTTP, for the card that A2A 0.3 gives by gRPC; it is not needed where
        the app has a `public_url`. Without either that card names gRPC alone.
        `share_port`: other processes listen there, too, and each call goes to one of them.
        `tls`: the certificate to serve with; None is without encryption.

        Raises:
            OSError: the port is taken or not allowed.
            StoreError: the store of the app cannot be opened.
        """
        await self._app.start()
        self._http_url = http_url
        server = self._server = grpc.aio.server(
            options=(
                ("grpc.max_receive_message_length", self._max_body_bytes),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", int(share_port)),  # else a port that is taken is an error
                ("grpc.keepalive_time_ms", _KEEP_ALIVE_MS),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
            )
        )
        spoken = {dialect.version for dialect in self._app.dialects}
        if protobuf.VERSION in spoken:
            now = {**_OPERATIONS, "GetExtendedAgentCard": self._extended_card}
            self._serve(protobuf.SERVICE, protobuf.VERSION, now, protobuf.RPCS)
        if self._only is not None and protobuf03.VERSION in spoken:
            old = {**_OPERATIONS, "SubscribeToTask": _follow_03, "GetExtendedAgentCard": self._public_card}
            self._serve(protobuf03.SERVICE, protobuf03.VERSION, old, protobuf03.RPCS, protobuf03.RPCS_OF_PYTHON)
        add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection(
            (*self._names, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME), server
        )
        self._health.know(self._names)
        if not share_port:
            _check_free(host, port)
        try:
            address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            bound: int = (
                server.add_insecure_port(address) if tls is None else server.add_secure_port(address, tls.of_grpc())
            )
        except RuntimeError:
            bound = 0
        if not bound:
            raise OSError(f"{host}:{port} cannot be listened on for gRPC")
        await server.start()
        self._app.grpc_address = f"[{host}]:{bound}" if ":" in host else f"{host}:{bound}"
        self._app.grpc_encrypted = tls is not None
        return bound

    def _serve(
        self,
        name: str,
        version: str,
        operations: Mapping[str, _Operation],
        rpcs: Mapping[str, Rpc],
        of_python: Mapping[str, Rpc] | None = None,
    ) -> None:
        self._names.append(name)
        handlers = {}
        for rpc in rpcs.values():
            method = _Method(self, rpc, version, operations[rpc.operation], strict=self._strict)
            if of_python is not None:
                method.of_python = of_python[rpc.name]
            handlers[rpc.name] = method.handler
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))

    async def _public_card(self, service: Service, request: Any, caller: Caller) -> Any:
        """What 0.3 answers with where there is no extended card: the one that all may read."""
        if service.agent.extended_skills:
            return await self._extended_card(service, request, caller)
        return self._app.cards[""].card(self._http_url)

    async def _extended_card(self, service: Service, request: Any, caller: Caller) -> Any:
        path = next(path for path, each in self._app.services.items() if each is service)
        base = None if self._http_url is None else self._http_url + path
        return self._app.cards[path].extended_card(base, caller)

    def service(self, request: Any) -> tuple[Service, Any]:
        """The agent's service that a request is for, and the request as it is for it. Raises InvalidParams."""
        service = self._only
        if service is None:
            service = self._by_name.get(request.tenant or "")
            if service is None:
                names = ", ".join(sorted(self._by_name))
                raise InvalidParams.at("tenant", f"has to name an agent of this server: {names}")
            request = replace(request, tenant=None)
        if self.observer is not None:
            named(request, service.agent.name)
        return service, request

    async def admitted(self, context: Any, operation: str) -> Caller:
        """Who calls, if it may do this now. Raises Unauthenticated, PermissionDenied, RateLimited, Overloaded."""
        auth, meter = self._app.auth, self._app.meter
        caller = _PLAIN_CALLER
        if auth is not None:
            found = auth.caller(_shown(context, self.address(context)))
            caller = found if isinstance(found, Caller) else await found
        name = "" if meter is None else counted(caller, self.address(context))
        if meter is not None:
            meter.request(name)
        if auth is not None:
            auth.permit(caller, operation)
        if meter is not None:
            meter.operation(name, operation)
        return caller

    def address(self, context: Any) -> str:
        """Where a call comes from, as far as a proxy that is trusted says so."""
        if self._app.trusts_proxy:
            told = (str(value) for name, value in context.invocation_metadata() or () if name == "x-forwarded-for")
            if (address := forwarded_for(told)) is not None:
                return address
        return _address(context)

    async def leave(self) -> None:
        """Tell those who ask for the server's health that it is about to go."""
        await self._health.leave()

    async def stop(self) -> None:
        """End every stream, then the server. Calls that are still open after a moment are cut off."""
        self.stopping = True
        for cursor in self.open:
            cursor.nudge()  # what has been told is sent; then the stream ends
        if self._server is not None:
            await self._server.stop(_END_S)


def _check_free(host: str, port: int) -> None:
    """Raises OSError with the reason when an address cannot be listened on: grpcio would only print it."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen()
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise OSError(f"{host}:{port} cannot be listened on for gRPC: {reason}") from None


class _Method:
    """One rpc on the wire."""

    def __init__(self, server: GrpcServer, rpc: Rpc, version: str, operation: _Operation, *, strict: bool) -> None:
        self.of_python: Rpc | None = None  # for callers that are the official Python SDK, where it differs
        self._server = server
        self._rpc = rpc
        self._version = version
        self._old = version == protobuf03.VERSION
        self._nameless = not strict or self._old  # §3.6.2: a request without a version is one of 0.3
        self._call = operation
        make = grpc.unary_stream_rpc_method_handler if rpc.streaming else grpc.unary_unary_rpc_method_handler
        answer = self._stream if rpc.streaming else self._answer
        self.handler = make(answer if server.observer is None else self._observed(server.observer, answer))

    def _observed(self, observer: Observer, answer: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """`answer`, while somebody looks on."""

        async def observed(data: bytes, context: Any) -> Any:
            request = ObservedRequest(perf_counter(), binding="grpc", client=self._server.address(context))
            request.method = self._rpc.operation
            request.dialect = self._version
            return await observer.rpc(request, context.invocation_metadata() or (), answer(data, context))

        return observed

    async def _answer(self, data: bytes, context: Any) -> bytes:
        try:
            metadata = context.invocation_metadata()
            rpc = self._rpc if self.of_python is None or not _is_python(metadata) else self.of_python
            caller = self._caller(metadata, await self._server.admitted(context, rpc.operation))
            service, request = self._server.service(rpc.read_request(data))
            return rpc.write_answer(await self._call(service, request, caller))
        except A2AError as error:
            failure = error
        except Exception as error:  # the boundary of a request: what is not an A2AError is our fault
            failure = _ours(error)
        await self._abort(context, failure)
        raise AssertionError("unreachable")

    async def _stream(self, data: bytes, context: Any) -> None:
        try:
            metadata = context.invocation_metadata()
            rpc = self._rpc if self.of_python is None or not _is_python(metadata) else self.of_python
            caller = self._caller(metadata, await self._server.admitted(context, rpc.operation))
            service, request = self._server.service(rpc.read_request(data))
            cursor: Cursor = await self._call(service, request, caller)
        except A2AError as error:
            await self._abort(context, error)
            return
        except Exception as error:  # the boundary of a request: what is not an A2AError is our fault
            await self._abort(context, _ours(error))
            return
        opened, followers = self._server.open, self._server.followers
        opened.add(cursor)
        if followers is not None:
            followers.add(cursor, caller, _shown(context, self._server.address(context)))
        write_last, write_passing, write = rpc.write_answer, rpc.write_passing, context.write
        failure: A2AError | None = None
        left = ""  # why this server does not tell any more of a task that goes on
        try:
            await context.send_initial_metadata(())  # the stream is open, though nothing may come for a while
            while True:
                _, events = cursor.take()
                if events:
                    last = events[-1] if cursor.ended and not cursor.cut else None
                    for event in events:
                        await write((write_last if event is last else write_passing)(event.value))
                elif cursor.ended:
                    left = "The task goes on at another server" if cursor.cut else ""
                    break
                elif self._server.stopping:
                    left = "This server is shutting down"
                    break
                else:
                    await cursor.wait()
            failure = cursor.failure
        except A2AError as error:  # an event that gRPC cannot carry
            failure = error
        except Exception as error:
            failure = _ours(error)
        finally:
            cursor.close()
            opened.discard(cursor)
            if followers is not None:
                followers.discard(cursor)
        if failure is not None:
            await self._abort(context, failure)
        elif left:
            await context.abort(
                grpc.StatusCode.UNAVAILABLE,
                "This server is shutting down, or the task is elsewhere now: subscribe again.",
            )

    async def _abort(self, context: Any, error: A2AError) -> None:
        """End a call with an error (A2A 1.0 §10.6). Callers of 0.3 know it by the name in front of its sentence."""
        refused(error)
        status, message = error.grpc_status, error.message
        if self._old:
            status = "UNIMPLEMENTED" if isinstance(error, _ABSENT_03) else status
            message = f"{error.name}: {message}"
        code = getattr(grpc.StatusCode, status)
        message = _cut(message)
        details = status_details(error, code.value[0], message)
        await context.abort(code, message, (("grpc-status-details-bin", details),))

    def _caller(self, metadata: Sequence[tuple[str, Any]], who: Caller) -> Caller:
        """Who calls, in which version and with which extensions. Raises VersionNotSupported."""
        version = ""
        extensions: list[str] = []
        for name, value in metadata:
            if name == "a2a-version":
                version = value.strip()
            elif name in _EXTENSIONS:
                extensions.append(value)
        if version != self._version and (version or not self._nameless):
            match = _VERSION.match(version)
            if match is None or match.group(1) != self._version:
                raise VersionNotSupported(version or "0.3", (self._version,))
        if not extensions and self._version == who.version:
            return who
        return replace(who, version=self._version, extensions=extensions_of(extensions))


async def _send(service: Service, request: Any, caller: Caller) -> Any:
    return (await service.send_message(request, caller)).value


async def _send_streaming(service: Service, request: Any, caller: Caller) -> Cursor:
    return await service.send_streaming_message(request, caller)


async def _get(service: Service, request: Any, caller: Caller) -> Any:
    return (await service.get_task(request, caller)).value


async def _list(service: Service, request: Any, caller: Caller) -> Any:
    return await service.list_tasks(request, caller)


async def _cancel(service: Service, request: Any, caller: Caller) -> Any:
    return (await service.cancel_task(request, caller)).value


async def _subscribe(service: Service, request: Any, caller: Caller) -> Cursor:
    return await service.subscribe_to_task(request, caller)


async def _follow_03(service: Service, request: Any, caller: Caller) -> Cursor:
    """TaskSubscription: ends when the agent asks, too; of a task that has ended it gives the task."""
    return await service.subscribe_to_task(request, caller, until_input=True, even_ended=True)


async def _create_config(service: Service, request: Any, caller: Caller) -> Any:
    return await service.create_push_notification_config(request, caller)


async def _get_config(service: Service, request: Any, caller: Caller) -> Any:
    return await service.get_push_notification_config(request, caller)


async def _list_configs(service: Service, request: Any, caller: Caller) -> Any:
    return await service.list_push_notification_configs(request, caller)


async def _delete_config(service: Service, request: Any, caller: Caller) -> Any:
    return await service.delete_push_notification_config(request, caller)


_OPERATIONS: Final[dict[str, _Operation]] = {
    "SendMessage": _send,
    "SendStreamingMessage": _send_streaming,
    "GetTask": _get,
    "ListTasks": _list,
    "CancelTask": _cancel,
    "SubscribeToTask": _subscribe,
    "CreateTaskPushNotificationConfig": _create_config,
    "GetTaskPushNotificationConfig": _get_config,
    "ListTaskPushNotificationConfigs": _list_configs,
    "DeleteTaskPushNotificationConfig": _delete_config,
}


def _shown(context: Any, address: str) -> Shown:
    """What a call shows of its caller, who comes from `address`."""
    headers: dict[bytes, bytes] = {}
    repeated: set[bytes] = set()
    for name, value in context.invocation_metadata():
        key = name.encode()
        if key in headers:
            repeated.add(key)
        headers[key] = value if isinstance(value, bytes) else value.encode("utf-8", "replace")
    certificate = context.auth_context().get("x509_pem_cert")
    return Shown(
        headers,
        certificate=subject_of_pem(certificate[0].decode("ascii")) if certificate else None,
        peer=_address(context),
        address=address,
        repeated=frozenset(repeated),
    )


def _address(context: Any) -> str:
    found = _PEER.match(unquote(context.peer()))
    return "" if found is None else found.group(1) or found.group(2)


def _is_python(metadata: Sequence[tuple[str, Any]]) -> bool:
    return any(name == "user-agent" and value.startswith("grpc-python") for name, value in metadata)


def _ours(error: Exception) -> A2AError:
    """What the caller hears of a fault that is not its own."""
    if isinstance(error, RecursionError):
        return InvalidRequest("The request nests too deep.")
    log.exception("a request failed", exc_info=error)
    return InternalError("Internal error. The server's operator finds the reason in the log.")


def status_details(error: A2AError, code: int, message: str) -> bytes:
    """A google.rpc.Status for `grpc-status-details-bin`: ErrorInfo for every error, BadRequest for bad fields, and
    RetryInfo where it may be tried again: gRPC's Retry-After.
    """
    for chars in (None, _DETAIL_CHARS):
        status = Status(code=code, message=message)
        metadata = {key: _text(value)[:chars] for key, value in error.metadata.items()}
        _pack(status, ErrorInfo(reason=error.reason, domain=ERROR_DOMAIN, metadata=metadata))
        if isinstance(error, Unavailable):
            retry = RetryInfo()
            retry.retry_delay.seconds = error.retry_after_s
            _pack(status, retry)
        if error.violations:
            bad = BadRequest()
            for violation in error.violations[: None if chars is None else 3]:
                bad.field_violations.add(
                    field=_text(violation.field)[:chars], description=_text(violation.description)[:chars]
                )
            _pack(status, bad)
        if status.ByteSize() <= _DETAILS_BYTES:
            break
    data: bytes = status.SerializeToString()
    return data


def _pack(status: Any, detail: Any) -> None:
    packed = AnyMessage()
    packed.Pack(detail)
    status.details.append(packed)


def _text(text: str) -> str:
    """Text that can be written as UTF-8."""
    return text.encode("utf-8", "replace").decode()


def _cut(message: str) -> str:
    """A sentence that fits the trailers, in which every byte that is not printable ASCII takes three."""
    text = _text(message)
    size = 0
    for index, character in enumerate(text):
        size += 1 if " " <= character <= "~" else 3 * len(character.encode())
        if size > _MESSAGE_BYTES:
            return text[:index] + "…"
    return text
