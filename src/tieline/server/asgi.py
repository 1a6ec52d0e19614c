"""The ASGI app: HTTP to operations and back.

One request: `App.__call__` finds the agent by path, `Endpoint` reads the body up to its limit, checks version and
extensions and calls the operation; what comes back is bytes already. No router, no request object: this path is hot.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import msgspec

from tieline.card import OLD_WELL_KNOWN_PATH, WELL_KNOWN_PATH, AgentInterface
from tieline.engine.agent import Agent
from tieline.engine.cursor import Cursor
from tieline.engine.service import Limits, Service
from tieline.engine.turn import Caller
from tieline.errors import (
    A2AError,
    BodyTooLarge,
    InternalError,
    InvalidParams,
    InvalidRequest,
    MediaTypeNotSupported,
    MethodNotFound,
    MisdirectedRequest,
    OriginNotAllowed,
    Overloaded,
    ParseError,
    VersionNotSupported,
)
from tieline.server.cards import CardPage, http_interfaces
from tieline.server.streams import Receive, Send, Stream, Watch
from tieline.stores import Store, open_store
from tieline.stores.base import StoreError
from tieline.types import GetTaskRequest
from tieline.wire import dialects, jsonrpc, rest, rest_forms, sse
from tieline.wire.dialect import Dialect
from tieline.wire.dialects import VERSIONS
from tieline.wire.headers import check_json, event_number, extensions_of, version_in
from tieline.wire.methods import Method
from tieline.wire.mistakes import likely_mistake
from tieline.wire.v1 import V1

__all__ = ["App", "app"]

log = logging.getLogger("tieline.server")

Scope = MutableMapping[str, Any]
Headers = Mapping[bytes, bytes]

_JSON = (b"content-type", b"application/json")
_EVENT_STREAM = (b"content-type", b"text/event-stream")
_LONG = frozenset(("SendMessage", "CancelTask"))  # may wait for an agent
_HOSTS_SEEN = 16
_CARD_PATHS = (WELL_KNOWN_PATH, OLD_WELL_KNOWN_PATH)
_NOT_NAMES = frozenset(("/", "/.well-known", "/tasks", "/v1", "/subscribe"))
_CORS_HEADERS = b"content-type, authorization, a2a-version, a2a-extensions, last-event-id"


class _Gone(Exception):
    """The caller closed the connection before its request had arrived whole."""


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
    ) -> None:
        self.store = store
        self.old_at_once = old_at_once
        self.dialects = dialects.of_versions(versions)
        self.grpc_address: str | None = None  # HOST:PORT at which the same agents are served by gRPC, for their cards
        self._grpc_url = grpc_url
        self.drain_s = drain_s
        self.max_body_bytes = max_body_bytes
        self._keep_alive_s = keep_alive_s
        self.strict = strict
        self._allowed_hosts = None if allowed_hosts is None else frozenset(host.lower() for host in allowed_hosts)
        self._hosts_seen: set[bytes] = set()  # spellings that have been found allowed
        self._cors_origins = frozenset(origin.lower().rstrip("/") for origin in cors_origins)
        self._own_origin = "" if public_url is None else "/".join(public_url.lower().split("/")[:3])
        self._streams: set[Stream] = set()
        self.waiting: set[Watch] = set()  # requests that wait for an agent
        self._tick_s = min(0.25, keep_alive_s / 8)
        self._ticking: asyncio.TimerHandle | None = None  # one timer for all open requests
        self._ready = False
        self._only: Endpoint | None = None
        self._endpoints = {
            path: Endpoint(
                self,
                Service(agent, store, namespace=path.strip("/"), limits=limits),
                CardPage(
                    agent,
                    path,
                    public_url=public_url,
                    trust_forwarded=trust_forwarded,
                    interfaces=partial(self._interfaces, path),
                ),
            )
            for path, agent in agents.items()
        }
        if len(agents) == 1:
            self._only = self._endpoints.get("")

    @property
    def agents(self) -> dict[str, Agent]:
        """The agents by the path below this app that each is at: "" or "/name"."""
        return {path: endpoint.service.agent for path, endpoint in self._endpoints.items()}

    @property
    def services(self) -> dict[str, Service]:
        """The agents' services by path, for use without HTTP."""
        return {path: endpoint.service for path, endpoint in self._endpoints.items()}

    def _interfaces(self, path: str, base: str) -> list[AgentInterface]:
        """How the agent at `path` can be reached when its URL is `base`, the latest version first."""
        found = http_interfaces(base)
        address = self._grpc_url or self.grpc_address
        if address is not None:
            host, _, port = address.rpartition(":")
            if host in ("0.0.0.0", "[::]"):  # noqa: S104 - every address of this machine: that which the caller has found
                address = f"{urlsplit(base).hostname}:{port}"
            tenant = None if self._only is not None else path.strip("/") or None  # gRPC has no paths
            versions = ("1.0",) if tenant else ("1.0", "0.3")  # and 0.3 no tenants
            found += [AgentInterface(address, "GRPC", version, tenant) for version in versions]
        spoken = {dialect.version for dialect in self.dialects}
        found = [interface for interface in found if interface.protocol_version in spoken]
        if not found:  # readers of 0.1 find the root in agent.json; this is for who reads the card all the same
            found = [AgentInterface(f"{base}/", "JSONRPC", self.dialects[0].version)]
        return sorted(found, key=lambda interface: interface.protocol_version, reverse=True)

    async def start(self) -> None:
        """Open the store and end what an earlier process left at work. Raises StoreError."""
        for endpoint in self._endpoints.values():
            await endpoint.service.start()
        self._ready = True

    async def drain(self) -> None:
        """Refuse new work and let agents finish, at most for `drain_s` seconds; then end every open stream."""
        await asyncio.gather(*(endpoint.service.drain(self.drain_s) for endpoint in self._endpoints.values()))
        await asyncio.gather(*(endpoint.service.close() for endpoint in self._endpoints.values()))
        await asyncio.sleep(0)  # what the last events woke may send them
        for stream in list(self._streams):
            stream.cursor.close()

    async def close(self) -> None:
        """Stop the agents and let go of the store."""
        await asyncio.gather(*(endpoint.service.close() for endpoint in self._endpoints.values()))
        self._ready = False
        if self._ticking is not None:
            self._ticking.cancel()
            self._ticking = None
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
        if not self._ready:
            try:
                await self.start()
            except StoreError as error:
                log.error("%s", error)
                await _refuse(send, Overloaded("The store of this server is not available.", retry_after_s=5))
                return
        path: str = scope["path"]
        root: str = scope.get("root_path", "")
        if root and path.startswith(root) and path[len(root) : len(root) + 1] in ("", "/"):
            path = path[len(root) :]
        headers = dict(scope["headers"])
        if self._allowed_hosts is not None and not self._host_allowed(headers):
            await _refuse(send, _host_refused(headers))
            return
        endpoint = self._only
        if endpoint is None:
            first, slash, below = path[1:].partition("/")
            endpoint = self._endpoints.get("/" + first)
            if endpoint is None:
                endpoint = self._endpoints.get("")
                if endpoint is None:
                    await self._no_agent(send, path, root)
                    return
            else:
                path = slash + below
        if b"origin" in headers and path not in _CARD_PATHS and not self._origin_allowed(headers):
            await _refuse(send, _origin_refused(headers))
            return
        if self._cors_origins:
            send = self._with_cors(headers, send)
            preflight = scope["method"] == "OPTIONS" and b"access-control-request-method" in headers
            if preflight and path not in _CARD_PATHS:
                await _answer(send, 204, b"", [(b"allow", b"GET, POST, DELETE, OPTIONS")])
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
        await _refuse(send, error)

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
                    (
                        b"access-control-allow-headers",
                        b"content-type, authorization, a2a-version, a2a-extensions, last-event-id",
                    ),
                    (b"vary", b"origin"),
                ]
                given = [pair for pair in message["headers"] if pair[0] != b"access-control-allow-origin"]
                message = {**message, "headers": [*given, *allow]}
            await send(message)

        return send_with_cors


class Endpoint:
    """One agent's URLs: JSON-RPC at its root, REST below it, its card."""

    def __init__(self, owner: App, service: Service, card: CardPage) -> None:
        self.service = service
        self._app = owner
        self._card = card
        self.strict = owner.strict
        self.max_body_bytes = owner.max_body_bytes
        self._unary: dict[str, Callable[[Dialect, Any, Caller], Awaitable[bytes]]] = {
            "SendMessage": self._send_message,
            "GetTask": self._get_task,
            "ListTasks": self._list_tasks,
            "CancelTask": self._cancel_task,
        }
        self._absent: dict[str, Callable[[], Awaitable[None]]] = {
            "CreateTaskPushNotificationConfig": service.create_push_notification_config,
            "GetTaskPushNotificationConfig": service.get_push_notification_config,
            "ListTaskPushNotificationConfigs": service.list_push_notification_configs,
            "DeleteTaskPushNotificationConfig": service.delete_push_notification_config,
            "GetExtendedAgentCard": service.get_extended_agent_card,
        }

    async def handle(self, scope: Scope, headers: Headers, path: str, receive: Receive, send: Send) -> Stream | None:
        """Answer a request; a stream is given back to be sent."""
        if path == "/" or path == "" or path == jsonrpc.OLD_STREAM_PATH:
            if scope["method"] == "POST":
                return await self._jsonrpc(scope, headers, receive, send)
            await _refuse(
                send, rest.VerbNotAllowed(scope["method"], path or "/", ("POST",), "The card is at " + WELL_KNOWN_PATH)
            )
            return None
        if path in _CARD_PATHS:
            await self._card.answer(scope, headers, send, old=path == OLD_WELL_KNOWN_PATH)
            return None
        return await self._rest(scope, headers, path, receive, send)

    # --- JSON-RPC -----------------------------------------------------------------------------------------------------

    async def _jsonrpc(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> Stream | None:
        id_ = jsonrpc.NULL
        dialect: Dialect = V1
        method: Method | None = None
        try:
            content_type = headers.get(b"content-type")
            if content_type is not None and content_type != b"application/json":
                check_json(content_type.decode("latin-1"))
            body = await self._body(headers, receive)
            call = jsonrpc.read_call(body)
            id_ = call.id
            asked = headers.get(b"a2a-version")
            if asked != b"1.0":
                version = asked.decode("latin-1").strip() if asked is not None else version_in(scope["query_string"])
                dialect = dialects.spoken(version, call.method, strict=self.strict)
                if not version and call.method in dialects.SHARED:
                    method = dialect.methods[call.method]
                    dialect = await self._dialect_of_task(dialect, call, self._caller(scope, headers, dialect))
                self._check_served(dialect, version)
                if self._app.old_at_once:
                    dialect = dialects.at_once(dialect)
            elif V1 not in self._app.dialects:
                self._check_served(V1, "1.0")
            method = dialect.methods.get(call.method)
            if method is None:
                raise dialects.method_not_found(dialect, call.method)
            caller = self._caller(scope, headers, dialect)
            try:
                request = dialect.read_params(method, call.params)
            except InvalidParams as error:
                raise likely_mistake(call.params, error, dialect.version) from None
            operation = self._unary.get(method.name)
            if operation is not None:
                answer = operation(dialect, request, caller)
                result = await (self._watched(answer, receive) if method.name in _LONG else answer)
                await _answer(send, 200, jsonrpc.encode_result(id_, result))
                return None
            if not method.streaming:
                await self._absent[method.name]()
            cursor = await self._open(dialect, method, request, caller, headers)
            before = b'{"jsonrpc":"2.0","id":' + id_ + b',"result":'
            refuse = partial(jsonrpc.encode_error, id_, codes=dialect.codes)
            return Stream(cursor, refuse, before, b"}", dialect=dialect)
        except _Gone:
            return None
        except jsonrpc.Malformed as malformed:
            await self._refuse_jsonrpc(send, malformed.id, malformed.error, dialect)
        except A2AError as error:
            await self._refuse_jsonrpc(send, id_, error, dialect, method)
        except Exception as error:  # the boundary of a request: what is not an A2AError is our fault
            await self._refuse_jsonrpc(send, id_, _ours(error), dialect, method)
        return None

    async def _refuse_jsonrpc(
        self, send: Send, id_: bytes, error: A2AError, dialect: Dialect, method: Method | None = None
    ) -> None:
        # JSON-RPC answers with status 200; what is refused before or beside it says so to proxies, too.
        status = error.http_status if error.http_status in (413, 415, 503) else 200
        body = jsonrpc.encode_error(id_, error, codes=dialect.codes)
        if dialect.has_final and method is not None and method.streaming:
            # Clients of these versions read nothing but an event stream where they have asked for one.
            await _answer(send, status, sse.frame(body), _retry(error), content_type=_EVENT_STREAM)
            return
        await _answer(send, status, body, _retry(error))

    def _check_served(self, dialect: Dialect, asked: str) -> None:
        served = self._app.dialects
        if dialect not in served:
            raise VersionNotSupported(asked or dialect.version, [v for each in served for v in each.versions])

    async def _dialect_of_task(self, default: Dialect, call: jsonrpc.Call, caller: Caller) -> Dialect:
        """Of a method that several dialects have and a request without a version: that which the task was begun in."""
        try:
            task_id = default.read_params(default.methods[call.method], call.params).id
            task = await self.service.get_task(GetTaskRequest(task_id), caller)
        except A2AError:
            return default  # the operation itself says what is wrong
        return dialects.begun_in(task, default)

    # --- REST ---------------------------------------------------------------------------------------------------------

    async def _rest(self, scope: Scope, headers: Headers, path: str, receive: Receive, send: Send) -> Stream | None:
        form = rest_forms.V1_FORM
        try:
            raw_path = _raw_path(scope, path)
            asked = headers.get(b"a2a-version")
            if asked != b"1.0" or raw_path.startswith(rest_forms.OLD_PREFIX):
                version = asked.decode("latin-1").strip() if asked is not None else version_in(scope["query_string"])
                form, raw_path = rest_forms.spoken(version, raw_path, strict=self.strict)
                self._check_served(form.served, version)
            elif V1 not in self._app.dialects:
                self._check_served(V1, "1.0")
            method, fields = rest.route(scope["method"], raw_path)
            body = b""
            if scope["method"] == "POST":
                content_type = headers.get(b"content-type")
                if content_type is not None:
                    check_json(content_type.decode("latin-1"))
                body = await self._body(headers, receive)
            dialect = form.dialect(body, headers.get(b"user-agent", b""))
            caller = self._caller(scope, headers, dialect)
            if method.name in self._absent:
                await self._absent[method.name]()
            query = scope["query_string"].decode("latin-1")
            try:
                request = rest.read_request(dialect, method, fields, query, body)
            except InvalidParams as error:
                raise likely_mistake(body, error, form.version) from None
            operation = self._unary.get(method.name)
            if operation is not None:
                answer = operation(dialect, request, caller)
                result = await (self._watched(answer, receive) if method.name in _LONG else answer)
                await _answer(send, 200, result, content_type=form.content_type)
                return None
            cursor = await self._open(dialect, method, request, caller, headers)
            return Stream(cursor, lambda error: form.encode_error(error)[1], dialect=dialect)
        except _Gone:
            return None
        except A2AError as error:
            await _refuse(send, error, form)
        except Exception as error:  # the boundary of a request: what is not an A2AError is our fault
            await _refuse(send, _ours(error), form)
        return None

    async def _watched(self, answer: Awaitable[bytes], receive: Receive) -> bytes:
        """An answer that may be long in coming. Raises _Gone when its caller does not wait for it any more."""
        task = asyncio.current_task()
        assert task is not None
        watch = Watch(receive, task.cancel)
        app = self._app
        app.waiting.add(watch)
        app.tick()
        try:
            return await answer
        except asyncio.CancelledError:
            if watch.gone:
                raise _Gone from None
            raise
        finally:
            app.waiting.discard(watch)
            watch.end()

    # --- operations ---------------------------------------------------------------------------------------------------

    async def _send_message(self, dialect: Dialect, request: Any, caller: Caller) -> bytes:
        answer = await self.service.send_message(request, caller, new_task=dialect.new_task)
        return dialect.encode_answer(answer)

    async def _get_task(self, dialect: Dialect, request: Any, caller: Caller) -> bytes:
        return dialect.encode_task(await self.service.get_task(request, caller))

    async def _list_tasks(self, dialect: Dialect, request: Any, caller: Caller) -> bytes:
        return dialect.encode_page(await self.service.list_tasks(request, caller))

    async def _cancel_task(self, dialect: Dialect, request: Any, caller: Caller) -> bytes:
        return dialect.encode_task(await self.service.cancel_task(request, caller))

    async def _open(self, dialect: Dialect, method: Method, request: Any, caller: Caller, headers: Headers) -> Cursor:
        if method.name == "SendStreamingMessage":
            return await self.service.send_streaming_message(request, caller, new_task=dialect.new_task)
        last_event_id = headers.get(b"last-event-id") if dialect.resumes else None
        number = event_number(last_event_id.decode("latin-1")) if last_event_id else None
        return await self.service.subscribe_to_task(
            request, caller, last_event_id=number, until_input=dialect.has_final
        )

    # --- parts of a request -------------------------------------------------------------------------------------------

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        """The body.

        Raises BodyTooLarge as soon as it is known to be, MediaTypeNotSupported when it is compressed, _Gone when its
        sender has left.
        """
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise MediaTypeNotSupported("The request's body is compressed: send it without Content-Encoding.")
        limit = self.max_body_bytes
        length = headers.get(b"content-length", b"")
        if length.isdigit() and (len(length) > 15 or int(length) > limit):
            raise BodyTooLarge(limit)
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        body: bytes = message.get("body", b"")
        if not message.get("more_body", False):
            if len(body) > limit:
                raise BodyTooLarge(limit)
            return body
        chunks = [body]
        size = len(body)
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Gone
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > limit:
                raise BodyTooLarge(limit)
            chunks.append(chunk)
            if not message.get("more_body", False):
                return b"".join(chunks)

    def _caller(self, scope: Scope, headers: Headers, dialect: Dialect) -> Caller:
        """Who calls, in which version and with which extensions."""
        if b"a2a-extensions" not in headers and b"x-a2a-extensions" not in headers:
            return _PLAIN_CALLER if dialect is V1 else Caller(version=dialect.version)
        extensions = extensions_of(
            value.decode("latin-1") for name, value in scope["headers"] if name in _EXTENSION_HEADERS
        )
        return Caller(version=dialect.version, extensions=extensions)


_PLAIN_CALLER = Caller()
_EXTENSION_HEADERS = (b"a2a-extensions", b"x-a2a-extensions")  # the second is that of 0.3


def _raw_path(scope: Scope, path: str) -> str:
    """`path` as it was sent, with its percent signs: an encoded slash is part of an id, not of the path."""
    raw: bytes = scope.get("raw_path") or b""
    if b"%" not in raw:
        return path
    above = scope["path"][: -len(path)].count("/")
    return "/" + "/".join(raw.decode("latin-1").partition("?")[0].split("/")[above + 1 :])


def _ours(error: Exception) -> A2AError:
    """What the caller hears of a fault that is not its own."""
    if isinstance(error, msgspec.DecodeError | UnicodeDecodeError):
        return ParseError(f"The body is not valid JSON: {error}")
    if isinstance(error, RecursionError):
        return InvalidRequest("The request nests too deep.")
    log.exception("a request failed", exc_info=error)
    return InternalError("Internal error. The server's operator finds the reason in the log.")


def _origin_refused(headers: Headers) -> OriginNotAllowed:
    origin = headers.get(b"origin", b"").decode("latin-1")
    return OriginNotAllowed(f"Web pages of {origin} may not call this server. Allow them with --cors-origin.")


def _host_refused(headers: Headers) -> MisdirectedRequest:
    host = headers.get(b"host", b"").decode("latin-1")
    return MisdirectedRequest(
        f"This server does not answer for the host {host!r}. Behind a proxy, start it with --public-url."
    )


def _retry(error: A2AError) -> list[tuple[bytes, bytes]]:
    return [(b"retry-after", str(error.retry_after_s).encode())] if isinstance(error, Overloaded) else []


async def _refuse(send: Send, error: A2AError, form: rest_forms.RestForm = rest_forms.V1_FORM) -> None:
    """Answer with an error as REST has it (§11.6)."""
    extra = _retry(error)
    if isinstance(error, rest.VerbNotAllowed):
        extra = [(b"allow", ", ".join(error.allowed).encode())]
    status, body = form.encode_error(error)
    await _answer(send, status, body, extra, content_type=form.content_type)


async def _answer(
    send: Send,
    status: int,
    body: bytes,
    extra: Iterable[tuple[bytes, bytes]] = (),
    *,
    content_type: tuple[bytes, bytes] = _JSON,
) -> None:
    headers = [content_type, (b"content-length", b"%d" % len(body)), *extra]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


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
) -> App:
    """Make an ASGI application of one agent, or of several by name: each is at its name's path, with its card below it.

    Args:
        agents: An agent, or a mapping from names (one path segment each) to agents.
        store: "memory", "sqlite:PATH", or a Store.
        public_url: Where callers reach this app, for the card; without it, it is taken from the request.
        trust_forwarded: Believe X-Forwarded-Host and X-Forwarded-Prefix of a proxy for the card's URLs.
        allowed_hosts: Host names to answer for; None is any.
        cors_origins: Origins of web pages that may call; "*" is any. The card may be read from anywhere.
        max_body_bytes: Larger requests are refused with 413.
        keep_alive_s: A stream without news sends a comment this often; many clients give up one that is silent for 5 s.
        versions: Which versions of A2A to serve, "1.0", "0.3", "0.2" or "0.1"; the cards tell of them.
        strict: Refuse requests of 1.0 without A2A-Version.
        old_at_once: Answer messages of A2A before 1.0 that say nothing of `blocking` at once, not when the task rests.
        grpc_url: What the cards say of gRPC, where it is served (`serve`) behind a proxy; else HOST:PORT.
        drain_s: How long a shutdown waits for agents at work.
        limits: What each agent may use.

    Raises:
        ValueError: a name is not a path segment, `store` names no store, or `versions` what is no version.
    """
    named = {"": agents} if isinstance(agents, Agent) else {f"/{name}": agent for name, agent in agents.items()}
    for path, agent in named.items():
        if not isinstance(agent, Agent):
            raise TypeError(f"{agent!r} is not an agent: decorate its function with @tieline.agent")
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
    )
