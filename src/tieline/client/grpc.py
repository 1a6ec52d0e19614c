"""The gRPC binding (A2A 1.0 §10): calls over one channel, errors out of google.rpc.Status.

TLS or not: `https://` and `grpcs://` are encrypted, `http://` and `grpc://` are not; `host:port`, the form that cards
give, is encrypted on port 443 alone. Without a port it is 443 with TLS and 80 without.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeVar
from urllib.parse import urlsplit

try:
    import grpc
    from google.protobuf.message import DecodeError
    from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
    from google.rpc.status_pb2 import Status
except ImportError as error:
    raise ImportError(f"gRPC needs: pip install 'tieline[grpc]' ({error})") from error
from msgspec.structs import replace

from tieline import __version__
from tieline.card import AgentCard
from tieline.client.credentials import ClientCertificate
from tieline.client.http import Verify
from tieline.client.identity import Identity
from tieline.client.transport import Events, NotServed, Numbered, Timeouts
from tieline.errors import (
    ERROR_DOMAIN,
    A2AError,
    AuthenticationRequired,
    BodyTooLarge,
    ContentTypeNotSupported,
    CredentialsUnfit,
    ExtendedAgentCardNotConfigured,
    ExtensionSupportRequired,
    FieldViolation,
    InternalError,
    InvalidAgentResponse,
    InvalidParams,
    InvalidPeerResponse,
    InvalidRequest,
    MethodNotFound,
    Overloaded,
    ParseError,
    PeerTimeout,
    PermissionDenied,
    PushNotificationNotSupported,
    TaskNotCancelable,
    TaskNotFound,
    Unauthenticated,
    Unreachable,
    UnsupportedOperation,
    VersionNotSupported,
    error_for,
)
from tieline.operation.trace_context import carried
from tieline.types import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    encode,
)
from tieline.wire import protobuf, protobuf03
from tieline.wire.protobuf_rpcs import Rpc

__all__ = ["GrpcTransport"]

T = TypeVar("T")
_Metadata = tuple[tuple[str, str], ...]

_DETAILS_KEY: Final = "grpc-status-details-bin"
_CHALLENGE_KEY: Final = "www-authenticate"
_SHOWN_CHARS: Final = 300  # of what a status says
_KEY: Final = re.compile(r"[a-z0-9_.\-]+\Z")
_ASCII: Final = re.compile(r"[\x20-\x7e]*\Z")
_OF_HTTP: Final = frozenset(  # headers that are the business of HTTP, or are set here
    (
        *("a2a-version", "accept", "accept-encoding", "connection", "content-length", "content-type", "host"),
        *("keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "user-agent"),
    )
)
_PROBE: Final = "/grpc.health.v1.Health/Check"  # any answer to it, a refusal too, shows that the connection lives
_PROBE_S: Final = 5.0
_NO_CONNECTION: Final = "failed to connect to all addresses"
"""How grpcio begins to say that a call had no connection to go out by."""

_HANDSHAKE: Final = re.compile(r"OPENSSL_internal:([A-Z_]+)(?:: ([^:]+))?")

_BY_NAME: Final[dict[str, type[A2AError]]] = {
    error.name: error
    for error in (
        *(ParseError, InvalidRequest, MethodNotFound, InvalidParams, InternalError, TaskNotFound, TaskNotCancelable),
        *(PushNotificationNotSupported, UnsupportedOperation, ContentTypeNotSupported, InvalidAgentResponse),
        *(ExtendedAgentCardNotConfigured, ExtensionSupportRequired, VersionNotSupported),
    )
}
_NAMED: Final = re.compile(r"([A-Za-z]+Error): ?")
_NO_SUCH_METHOD: Final = re.compile(
    r"method not (?:found|implemented)|unknown (?:service|method)"
    r"|does not implement the (?:method|service)|http2 header",
    re.IGNORECASE,
).search
"""How gRPC servers, and proxies by their HTTP status, say that nothing of a call was carried out."""
_BY_STATUS: Final[dict[str, type[A2AError]]] = {
    "INVALID_ARGUMENT": InvalidParams,
    "OUT_OF_RANGE": InvalidParams,
    "NOT_FOUND": TaskNotFound,
    "FAILED_PRECONDITION": UnsupportedOperation,
    "UNIMPLEMENTED": UnsupportedOperation,
    "RESOURCE_EXHAUSTED": Overloaded,
}
"""What a status without details means; what is not here is InternalError."""


class GrpcTransport:
    """One agent's gRPC interface. See Transport. The channel is opened by the first call.

    `metadata` goes with each call, but for what is HTTP's own, and what `identity` shows. `verify` is True for the
    authorities of this system, or the file of others.

    Raises ValueError when `address` is none, when metadata cannot be sent, when `verify` is False (gRPC does not
    encrypt without checking who is there), and for a `certificate` whose key has a password.
    """

    name = "GRPC"

    def __init__(
        self,
        address: str,
        *,
        version: Literal["1.0", "0.3"] = "1.0",
        metadata: Mapping[str, str] | None = None,
        identity: Identity | None = None,
        certificate: ClientCertificate | None = None,
        timeouts: Timeouts,
        verify: Verify = True,
        max_response_bytes: int,
    ) -> None:
        self.target, self.tls = _target(address)  # HOST:PORT, as errors show it, and whether it is encrypted
        self._metadata = (("a2a-version", version), *_sendable(metadata or {}))
        self._old = version == protobuf03.VERSION
        self._extensions_key = "x-a2a-extensions" if self._old else "a2a-extensions"
        self._timeouts = timeouts
        self._verify = verify
        self._identity = identity
        self._certificate = certificate
        if certificate is not None and certificate.password is not None:
            raise ValueError("gRPC takes no password for the key of a client certificate: give a key without one")
        unchecked = verify is False or (isinstance(verify, ssl.SSLContext) and not verify.get_ca_certs())
        if self.tls and unchecked:
            raise ValueError("gRPC checks certificates always: give the file of the authority as `verify`")
        self._max_response_bytes = max_response_bytes
        spoken = protobuf03 if self._old else protobuf
        self._service = spoken.SERVICE
        self._rpcs = {rpc.operation: rpc for rpc in spoken.RPCS.values()}
        self._channel: Any = None
        self._calls: dict[str, Any] = {}
        self._leaving: set[asyncio.Future[None]] = set()
        self._closed = False

    async def send(self, request: SendMessageRequest, extensions: Sequence[str]) -> Task | Message:
        request, unheard = self._asking(request)
        answer: Task | Message = await self._call("SendMessage", request, extensions)
        return replace(answer, history=()) if unheard and isinstance(answer, Task) else answer

    async def get(self, request: GetTaskRequest, extensions: Sequence[str]) -> Task:
        unheard = self._old and request.history_length == 0  # which means all in 0.3
        if unheard:
            request = replace(request, history_length=1)
        answer: Task = await self._call("GetTask", request, extensions)
        return replace(answer, history=()) if unheard else answer

    async def list(self, request: ListTasksRequest, extensions: Sequence[str]) -> ListTasksResponse:
        answer: ListTasksResponse = await self._call("ListTasks", request, extensions)
        return answer

    async def cancel(self, request: CancelTaskRequest, extensions: Sequence[str]) -> Task:
        answer: Task = await self._call("CancelTask", request, extensions)
        return answer

    async def set_webhook(
        self, webhook: TaskPushNotificationConfig, extensions: Sequence[str]
    ) -> TaskPushNotificationConfig:
        answer: TaskPushNotificationConfig = await self._call("CreateTaskPushNotificationConfig", webhook, extensions)
        return answer

    async def get_webhook(
        self, request: GetTaskPushNotificationConfigRequest, extensions: Sequence[str]
    ) -> TaskPushNotificationConfig:
        answer: TaskPushNotificationConfig = await self._call("GetTaskPushNotificationConfig", request, extensions)
        return answer

    async def list_webhooks(
        self, request: ListTaskPushNotificationConfigsRequest, extensions: Sequence[str]
    ) -> ListTaskPushNotificationConfigsResponse:
        page: ListTaskPushNotificationConfigsResponse = await self._call(
            "ListTaskPushNotificationConfigs", request, extensions
        )
        return page

    async def delete_webhook(self, request: DeleteTaskPushNotificationConfigRequest, extensions: Sequence[str]) -> None:
        await self._call("DeleteTaskPushNotificationConfig", request, extensions)

    async def extended_card(self, request: GetExtendedAgentCardRequest, extensions: Sequence[str]) -> bytes:
        card: AgentCard = await self._call("GetExtendedAgentCard", request, extensions)
        return encode(card)

    async def open(
        self,
        request: SendMessageRequest | SubscribeToTaskRequest,
        extensions: Sequence[str],
        last_event_id: str | None = None,
    ) -> Events:
        """See Transport.open. gRPC numbers no events: a stream that is taken up again begins with the task."""
        rpc = self._rpc("SendStreamingMessage" if isinstance(request, SendMessageRequest) else "SubscribeToTask")
        unheard = False
        if isinstance(request, SendMessageRequest):
            request, unheard = self._asking(request)
        data = rpc.write_request(request)

        async def begun(metadata: _Metadata) -> Events:
            events = _GrpcEvents(self, rpc, self._calls[rpc.operation](data, metadata=metadata), unheard)
            try:
                await events.begin()
            except BaseException:
                await events.close()
                raise
            return events

        return await self._shown(begun, extensions)

    async def close(self) -> None:
        """Close the channel; calls that are under way end with Unreachable. Closing twice is allowed."""
        self._closed = True
        channel, self._channel = self._channel, None
        for leaving in self._leaving:
            leaving.cancel()
        if channel is not None:
            await channel.close()

    # --- calls --------------------------------------------------------------------------------------------------------

    def _rpc(self, operation: str) -> Rpc:
        rpc: Rpc | None = self._rpcs.get(operation)
        if rpc is None:
            raise UnsupportedOperation(f"A2A 0.3 has no {operation} over gRPC.")
        return rpc

    def _asking(self, request: SendMessageRequest) -> tuple[SendMessageRequest, bool]:
        """A request as it is sent, and whether it wants no history: 0.3 has no other word for that than 1."""
        configuration = request.configuration
        if not self._old or configuration is None or configuration.history_length != 0:
            return request, False
        return replace(request, configuration=replace(configuration, history_length=1)), True

    def _with(self, extensions: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """The metadata of a call (A2A 1.0 §10.2), with the trace that it is made in."""
        metadata = self._metadata
        if trace := carried():
            metadata = (*metadata, *trace.items())
        if not extensions:
            return metadata
        named = ",".join(extensions)
        if not _ASCII.match(named):
            raise InvalidParams("The URI of an extension has to be ASCII.")
        return (*metadata, (self._extensions_key, named))

    async def _call(self, operation: str, request: Any, extensions: Sequence[str]) -> Any:
        rpc = self._rpc(operation)
        data = rpc.write_request(request)

        async def called(metadata: _Metadata) -> Any:
            call = self._calls[operation](data, metadata=metadata, timeout=self._timeouts.answer_s)
            return rpc.read_answer(await self.outcome(call, operation))

        return await self._shown(called, extensions)

    async def _shown(self, call: Callable[[_Metadata], Awaitable[T]], extensions: Sequence[str]) -> T:
        """A call with the caller's credentials; once again when they were refused and can be replaced."""
        identity = self._identity
        metadata = self._with(extensions)
        if identity is None:
            await self._connect()
            return await call(metadata)
        own = await identity.headers()
        await self._connect()
        try:
            return await call((*metadata, *_shown_in(own)))
        except AuthenticationRequired as error:
            other = await identity.in_place_of(own) if error.status == 401 else None
            if other is None:
                raise
        return await call((*metadata, *_shown_in(other)))

    async def outcome(self, waiting: Awaitable[T], operation: str = "", *, begun: bool = False) -> T:
        """What a call gives. Raises the A2AError that its failure means; Unreachable when the peer was closed.

        `begun`: it is a stream that has given events.
        """
        try:
            return await waiting
        except grpc.aio.AioRpcError as error:
            raise self._failure(error, operation, begun=begun) from None
        except asyncio.CancelledError:
            if self._closed and not _is_cancelled():
                raise Unreachable("This peer is closed.") from None
            raise

    async def _connect(self) -> None:
        """Be sure of a connection.

        Raises NotServed when there is none: nothing has been sent.
        """
        channel = self._channel
        if channel is None:
            channel = self._opened()
        state = channel.get_state(try_to_connect=True)
        if state is grpc.ChannelConnectivity.READY:
            return
        try:
            async with asyncio.timeout(self._timeouts.connect_s):
                while state is not grpc.ChannelConnectivity.READY:
                    if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                        raise await self._not_connected(channel)
                    await channel.wait_for_state_change(state)
                    state = channel.get_state(try_to_connect=True)
        except TimeoutError:
            raise NotServed(PeerTimeout(f"No connection to {self.target} in time.")) from None
        except (grpc.aio.UsageError, asyncio.CancelledError):
            if self._closed and not _is_cancelled():
                raise NotServed(Unreachable("This peer is closed."), final=True) from None
            raise

    async def _not_connected(self, channel: Any) -> NotServed:
        """Why there is no connection: a call of no consequence is told. The next call begins with a channel of its own:
        this one would not try again at once.
        """
        reason = ""
        try:
            await channel.unary_unary(_PROBE)(b"", timeout=_PROBE_S)
        except grpc.aio.AioRpcError as error:
            reason = error.details() or ""
        if self._channel is channel:
            self._channel = None
            self._leave(channel)
        told = reason.rpartition(": ")[2].strip("()[]. ")[:_SHOWN_CHARS]
        if self.tls and re.search("handshake|certificate|hostname verification|SSL_", reason, re.IGNORECASE):
            # No other interface is tried: it might be one without TLS, to which somebody in between wants to move us.
            return NotServed(Unreachable(f"{self.target} cannot be trusted: {_tls_reason(reason, told)}."), final=True)
        return NotServed(Unreachable(f"No connection to {self.target}: {told or 'it failed'}."))

    def _opened(self) -> Any:
        if self._closed:
            raise NotServed(Unreachable("This peer is closed."), final=True)
        options = (
            ("grpc.max_receive_message_length", self._max_response_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.primary_user_agent", f"tieline/{__version__}"),
            ("grpc.use_local_subchannel_pool", 1),  # the failures of another channel are not this one's
        )
        if self.tls:
            own = () if self._certificate is None else _key_and_chain(self._certificate)
            credentials = grpc.ssl_channel_credentials(_authorities(self._verify), *own)
            channel = grpc.aio.secure_channel(self.target, credentials, options)
        else:
            channel = grpc.aio.insecure_channel(self.target, options)
        self._channel = channel
        for rpc in self._rpcs.values():
            make = channel.unary_stream if rpc.streaming else channel.unary_unary
            self._calls[rpc.operation] = make(f"/{self._service}/{rpc.name}")
        return channel

    def _leave(self, channel: Any) -> None:
        """Close a channel when the calls that it still has are over."""
        leaving = asyncio.ensure_future(channel.close(self._timeouts.answer_s))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)

    async def alive(self) -> bool:
        """Whether the connection still answers."""
        if self._channel is None:
            return False
        try:
            await self.outcome(self._channel.unary_unary(_PROBE)(b"", timeout=_PROBE_S))
        except (Unreachable, PeerTimeout):
            return False
        except NotServed as error:
            return error.answered
        except A2AError:
            return True
        return True

    # --- failures -----------------------------------------------------------------------------------------------------

    def _failure(self, error: Any, operation: str, *, begun: bool = False) -> A2AError | NotServed:
        """What the status of a failed call means."""
        code = error.code().name
        details = error.details() or ""
        told = _told(error)
        if isinstance(told, Unauthenticated | PermissionDenied):
            return AuthenticationRequired(
                f"{self.target} {'wants credentials' if told.http_status == 401 else 'refused the call'}: {told}",
                status=told.http_status,
                challenge=_challenge(error),
            )
        if told is not None:
            return told
        shown = details[:_SHOWN_CHARS]
        where = self.target
        if named := _named(details):
            return named
        if code == "UNIMPLEMENTED" and (begun or _NO_SUCH_METHOD(details)):
            # The word of the gRPC server, not of the agent: it knows no such method, and has carried out nothing.
            return NotServed(Unreachable(f"{where} does not serve {self._service}: {shown}"), answered=True)
        if code in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
            word = "wants credentials" if code == "UNAUTHENTICATED" else "refused the call"
            status = 401 if code == "UNAUTHENTICATED" else 403
            return AuthenticationRequired(
                f"{where} {word} ({code}): {shown}", status=status, challenge=_challenge(error)
            )
        if code == "DEADLINE_EXCEEDED":
            return PeerTimeout(f"{where} did not answer in time.")
        if code == "UNAVAILABLE" and details.startswith(_NO_CONNECTION):
            return NotServed(Unreachable(f"No connection to {where}: {shown}"))
        if code in ("UNAVAILABLE", "CANCELLED"):
            return Unreachable(f"The connection to {where} broke: {shown or code}.")
        if code == "RESOURCE_EXHAUSTED" and "larger than max" in details:
            if details.startswith("SERVER") or "CLIENT" not in details:
                return _as(BodyTooLarge, f"The request is larger than {where} takes: {shown}")
            return InvalidPeerResponse(f"The answer of {where} is larger than {self._max_response_bytes} bytes.")
        if code == "FAILED_PRECONDITION" and operation == "CancelTask":
            return _as(TaskNotCancelable, details)
        return _as(_BY_STATUS.get(code, InternalError), details or f"{where} answered {code}.")


class _GrpcEvents:
    """An open server stream. The first event is read by `begin`, for a refusal takes its place.

    `unheard`: its task is given without history.
    """

    def __init__(self, transport: GrpcTransport, rpc: Rpc, call: Any, unheard: bool) -> None:
        self._transport = transport
        self._read = rpc.read_answer
        self._call = call
        self._unheard = unheard
        self._first: bytes | None = None
        self._reading: asyncio.Task[Any] | None = None
        self._over = False
        self._begun = False

    async def begin(self) -> None:
        """Wait for the first event, or the refusal. Raises as Transport.open does."""
        self._first = await self._next()
        self._begun = True

    async def read(self) -> Sequence[Numbered]:
        """See Events.read."""
        while True:
            if self._first is not None:
                data, self._first = self._first, None
            else:
                following = await self._next()
                if following is None:
                    return ()
                data = following
            event = self._read(data)
            if self._unheard and isinstance(event, Task):
                event = replace(event, history=())
            if event is not None:
                return [(None, event)]

    async def _next(self) -> bytes | None:
        """The next message; None at the end."""
        if self._over:
            return None
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._message())
        while not (await asyncio.wait((self._reading,), timeout=self._transport._timeouts.idle_s))[0]:
            if not await self._transport.alive():
                await self.close()
                raise PeerTimeout(f"The stream of {self._transport.target} was silent for too long.")
        reading, self._reading = self._reading, None
        if reading.cancelled():
            raise Unreachable("The stream was closed.")
        self._over = True  # unless there is a message
        try:
            message: bytes | None = reading.result()
        except NotServed as error:
            if self._begun:  # the call was served all the same
                raise error.error from None
            raise
        self._over = message is None
        return message

    async def _message(self) -> bytes | None:
        message: Any = await self._transport.outcome(self._call.read(), begun=self._begun)
        return None if message is grpc.aio.EOF else bytes(message)

    async def close(self) -> None:
        """See Events.close."""
        self._over = True
        self._first = None
        self._call.cancel()
        if self._reading is not None:
            self._reading.cancel()
            self._reading.add_done_callback(_forget)


def _forget(reading: asyncio.Task[Any]) -> None:
    """Nobody asks any more how a read has ended."""
    if not reading.cancelled():
        reading.exception()


def _tls_reason(reason: str, told: str) -> str:
    """What grpcio says of a handshake, without the names of its own layers."""
    match = _HANDSHAKE.search(reason)
    if match is None:
        return told
    return match.group(2) if match.group(1) == "CERTIFICATE_VERIFY_FAILED" else match.group(1).lower().replace("_", " ")


def _is_cancelled() -> bool:
    """Whether the task that runs is being cancelled, rather than what it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _told(error: Any) -> A2AError | None:
    """The error in a google.rpc.Status, as its class (A2A 1.0 §10.6); None when there is none of A2A's."""
    packed = next((value for key, value in error.trailing_metadata() or () if key == _DETAILS_KEY), None)
    if packed is None:
        return None
    reason: str | None = None
    metadata: dict[str, str] = {}
    violations: list[FieldViolation] = []
    try:
        status = Status.FromString(packed)
        for detail in status.details:
            if detail.Is(ErrorInfo.DESCRIPTOR):
                info = ErrorInfo.FromString(detail.value)
                if info.domain in ("", ERROR_DOMAIN):
                    reason, metadata = info.reason, dict(info.metadata)
            elif detail.Is(BadRequest.DESCRIPTOR):
                violations += [
                    FieldViolation(violation.field, violation.description)
                    for violation in BadRequest.FromString(detail.value).field_violations
                ]
    except DecodeError:
        return None
    message = status.message or error.details() or ""
    if reason:
        found = error_for(reason=reason, message=message, metadata=metadata, violations=violations)
        if type(found) is not A2AError:
            return found
    if violations:
        return InvalidParams(message, violations=violations)
    return None


def _challenge(error: Any) -> str:
    """What a refusal asks for, as WWW-Authenticate has it over HTTP."""
    told = (value for key, value in error.trailing_metadata() or () if key == _CHALLENGE_KEY and isinstance(value, str))
    return ", ".join(told)


def _named(details: str) -> A2AError | None:
    """The error that a status names in its words, as servers of 0.3 do: "TaskNotFoundError: ..."."""
    match = _NAMED.match(details)
    class_ = _BY_NAME.get(match.group(1)) if match else None
    return None if class_ is None or match is None else _as(class_, details[match.end() :] or match.group(1))


def _as(class_: type[A2AError], message: str) -> A2AError:
    return error_for(reason=class_.reason, message=message)


def _target(address: str) -> tuple[str, bool]:
    """HOST:PORT, and whether it is TLS. Raises ValueError."""
    scheme, separator, rest = address.partition("://")
    if not separator:
        scheme, rest = "", address
    if scheme.lower() not in ("", "http", "https", "grpc", "grpcs"):
        raise ValueError(
            f"{_shown(address)} is no address of gRPC: give HOST:PORT, http://HOST:PORT or https://HOST:PORT"
        )
    try:
        parts = urlsplit(f"//{rest}")
    except ValueError:  # which may show the password
        raise ValueError(f"{_shown(address)} is no address of gRPC: it has to be a host and a port") from None
    if not parts.hostname or parts.query or parts.path not in ("", "/"):
        raise ValueError(f"{_shown(address)} is no address of gRPC: it has to be a host and a port")
    port = parts.port
    tls = scheme.lower() in ("https", "grpcs") or (not scheme and port == 443)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{port or (443 if tls else 80)}", tls


def _shown(address: str) -> str:
    """An address without user, password and query."""
    scheme, separator, rest = address.partition("?")[0].rpartition("://")
    return repr(scheme + separator + rest.rpartition("@")[2])


def _sendable(metadata: Mapping[str, str]) -> list[tuple[str, str]]:
    """Headers as metadata. Raises ValueError for what cannot be sent, never showing a value."""
    pairs = []
    for name, value in metadata.items():
        key = name.lower()
        if key in _OF_HTTP or key.startswith("grpc-"):
            continue
        if not _KEY.match(key) or key.endswith("-bin"):
            raise ValueError(f"{name!r} cannot be a key of gRPC metadata")
        if not _ASCII.match(value):
            raise ValueError(f"the value of header {name} has a character that gRPC metadata cannot have")
        pairs.append((key, value))
    return pairs


def _shown_in(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """Credentials as metadata. Raises CredentialsUnfit for those that have no place there."""
    try:
        pairs = _sendable(headers)
    except ValueError as error:
        raise CredentialsUnfit(f"The card's credentials cannot go over gRPC: {error}.") from None
    if len(pairs) != len(headers):
        raise CredentialsUnfit("The card wants a credential in a header that gRPC keeps for itself.")
    return pairs


def _key_and_chain(certificate: ClientCertificate) -> tuple[bytes, bytes]:
    """The key and the certificate as PEM. Raises OSError."""
    chain = Path(certificate.certificate).read_bytes()
    return chain if certificate.key is None else Path(certificate.key).read_bytes(), chain


def _authorities(verify: Verify) -> bytes | None:
    """The certificates to trust, as PEM; None is what grpcio brings. Raises OSError."""
    if isinstance(verify, str):
        return Path(verify).read_bytes()
    if isinstance(verify, ssl.SSLContext):
        return "".join(ssl.DER_cert_to_PEM_cert(der) for der in verify.get_ca_certs(binary_form=True)).encode()
    own = ssl.get_default_verify_paths().cafile
    return Path(own).read_bytes() if own else None
