"""One agent's URLs: JSON-RPC at its root, REST below it, its card.

A request's body is read up to its limit, its dialect told, its operation called; what comes back is bytes already. No
router, no request object: this path is hot.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from tieline.card import JWKS_PATH, OLD_WELL_KNOWN_PATH, WELL_KNOWN_PATH
from tieline.engine.cursor import Cursor
from tieline.engine.service import Service
from tieline.engine.turn import Caller
from tieline.errors import (
    A2AError,
    BodyTooLarge,
    InternalError,
    InvalidRequest,
    MediaTypeNotSupported,
    ParseError,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
)
from tieline.operation.requests import called, named, refused
from tieline.server.auth.identity import Shown
from tieline.server.cards import CardPage
from tieline.server.rates import counted
from tieline.server.streams import Receive, Send, Stream, Watch
from tieline.types import GetTaskRequest
from tieline.wire import dialects, jsonrpc, rest, rest_forms, sse
from tieline.wire.dialect import Dialect
from tieline.wire.headers import check_json, event_number, extensions_of, version_in
from tieline.wire.methods import METHODS, Method
from tieline.wire.v1 import V1

if TYPE_CHECKING:
    from tieline.server.asgi import App

__all__ = ["CARD_PATHS", "Endpoint", "Headers", "Scope", "refuse", "respond"]

log = logging.getLogger("tieline.server")

Scope = MutableMapping[str, Any]
Headers = Mapping[bytes, bytes]

CARD_PATHS = (WELL_KNOWN_PATH, OLD_WELL_KNOWN_PATH, JWKS_PATH)

_JSON = (b"content-type", b"application/json")
_EVENT_STREAM = (b"content-type", b"text/event-stream")
_LONG = frozenset(("SendMessage", "CancelTask"))  # may wait for an agent
_OF_HTTP = frozenset((401, 403, 413, 415, 429, 503))  # statuses that JSON-RPC's answers have, too


class _Gone(Exception):
    """The caller closed the connection before its request had arrived whole."""


class Endpoint:
    """One agent's URLs: JSON-RPC at its root, REST below it, its card."""

    def __init__(self, owner: App, service: Service, card: CardPage) -> None:
        self.service = service
        self._app = owner
        self._card = card
        self._max_body_bytes = owner.max_body_bytes
        self._auth = owner.auth
        self._meter = owner.meter
        self._followers = owner.followers
        self._guarded = self._auth is not None or self._meter is not None
        self._serves_v1 = V1 in owner.dialects
        self._unary: dict[str, Callable[[Dialect, Any, Caller], Awaitable[bytes]]] = {
            "SendMessage": self._send_message,
            "GetTask": self._get_task,
            "ListTasks": self._list_tasks,
            "CancelTask": self._cancel_task,
            "CreateTaskPushNotificationConfig": self._create_config,
            "GetTaskPushNotificationConfig": self._get_config,
            "ListTaskPushNotificationConfigs": self._list_configs,
            "DeleteTaskPushNotificationConfig": self._delete_config,
        }

    async def handle(self, scope: Scope, headers: Headers, path: str, receive: Receive, send: Send) -> Stream | None:
        """Answer a request; a stream is given back to be sent."""
        if path == "/" or path == "" or path == jsonrpc.OLD_STREAM_PATH:
            if scope["method"] == "POST":
                caller = _PLAIN_CALLER
                if self._guarded:
                    try:
                        caller = await self._admitted(scope, headers)
                    except Exception as error:  # before the body is read
                        await self._refuse_jsonrpc(send, jsonrpc.NULL, _theirs_or_ours(error), V1)
                        return None
                stream = await self._jsonrpc(scope, headers, caller, receive, send)
                if stream is not None and self._followers is not None:
                    self._followers.add(stream.cursor, caller, _shown(scope, headers))
                return stream
            await refuse(
                send, rest.VerbNotAllowed(scope["method"], path or "/", ("POST",), "The card is at " + WELL_KNOWN_PATH)
            )
            return None
        if path in CARD_PATHS and (path != JWKS_PATH or self._card.has_keys):
            if path == JWKS_PATH:
                await self._card.answer_keys(scope, headers, send)
                return None
            await self._card.answer(scope, headers, send, old=path == OLD_WELL_KNOWN_PATH)
            return None
        caller = _PLAIN_CALLER
        if self._guarded:
            try:
                caller = await self._admitted(scope, headers)
            except Exception as error:  # before the body is read
                await refuse(send, _theirs_or_ours(error), self._form(scope, headers, path))
                return None
        stream = await self._rest(scope, headers, path, caller, receive, send)
        if stream is not None and self._followers is not None:
            self._followers.add(stream.cursor, caller, _shown(scope, headers))
        return stream

    async def _admitted(self, scope: Scope, headers: Headers) -> Caller:
        """Who calls, if it may call now. Raises Unauthenticated, RateLimited, Overloaded."""
        caller = _PLAIN_CALLER
        auth = self._auth
        if auth is not None:
            known = auth.known(headers) if len(headers) == len(scope["headers"]) else None
            if known is None:
                found = auth.caller(_shown(scope, headers))
                known = found if isinstance(found, Caller) else await found
            caller = known
        if self._meter is not None:
            self._meter.request(counted(caller, _address(scope)))
        return caller

    def _check_permitted(self, scope: Scope, caller: Caller, method: Method) -> None:
        """Check that the caller may do this. Raises PermissionDenied, RateLimited."""
        if self._auth is not None:
            self._auth.permit(caller, method.name)
        if self._meter is not None:
            self._meter.operation(counted(caller, _address(scope)), method.name)

    # --- JSON-RPC -----------------------------------------------------------------------------------------------------

    async def _jsonrpc(
        self, scope: Scope, headers: Headers, who: Caller, receive: Receive, send: Send
    ) -> Stream | None:
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
            if headers.get(b"a2a-version") != b"1.0" or not self._serves_v1:
                dialect = await self._spoken(scope, headers, who, call)
            method = dialect.methods.get(call.method)
            if method is None:
                raise dialects.method_not_found(dialect, call.method)
            observed = self._app.observer is not None
            if observed:
                called("jsonrpc", method.name, dialect.version, self.service.agent.name)
            caller = self._caller(scope, headers, who, dialect)
            if self._guarded:
                self._check_permitted(scope, caller, method)
            request = dialect.read_params(method, call.params)
            if observed:
                named(request)
            operation = self._unary.get(method.name)
            if operation is None and method is _EXTENDED_CARD:
                operation = partial(self._extended_card, scope, headers)
            if operation is not None:
                answer = operation(dialect, request, caller)
                result = await (self._watched(answer, receive) if method.name in _LONG else answer)
                await respond(send, 200, jsonrpc.encode_result(id_, result))
                return None
            cursor = await self._open(dialect, method, request, caller, headers)
            before = b'{"jsonrpc":"2.0","id":' + id_ + b',"result":'
            refuse = partial(_rpc_error, id_, dialect=dialect)
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
        refused(error)
        # JSON-RPC answers with status 200; what is refused before or beside it says so to proxies, too.
        status = error.http_status if error.http_status in _OF_HTTP else 200
        body = _rpc_error(id_, error, dialect)
        if dialect.has_final and method is not None and method.streaming:
            # Clients of these versions read nothing but an event stream where they have asked for one.
            await respond(send, status, sse.frame(body), _headers_of(error), content_type=_EVENT_STREAM)
            return
        await respond(send, status, body, _headers_of(error))

    async def _spoken(self, scope: Scope, headers: Headers, who: Caller, call: jsonrpc.Call) -> Dialect:
        """The dialect of a request that does not plainly say 1.0. Raises VersionNotSupported."""
        app = self._app
        version = _version(scope, headers)
        dialect = dialects.spoken(version, call.method, served=app.dialects, strict=app.strict)
        if not version and call.method in dialects.SHARED and app.serves_named_tasks:
            dialect = await self._dialect_of_task(dialect, call, self._caller(scope, headers, who, dialect))
        return dialects.at_once(dialect) if app.old_at_once else dialect

    async def _dialect_of_task(self, default: Dialect, call: jsonrpc.Call, caller: Caller) -> Dialect:
        """Of a method that several dialects have and a request without a version: that which the task was begun in."""
        try:
            task_id = default.read_params(default.methods[call.method], call.params).id
            task = await self.service.get_task(GetTaskRequest(task_id), caller)
        except A2AError:
            return default  # the operation itself says what is wrong
        begun = dialects.begun_in(task, default)
        return begun if begun in self._app.dialects else default

    # --- REST ---------------------------------------------------------------------------------------------------------

    async def _rest(
        self, scope: Scope, headers: Headers, path: str, who: Caller, receive: Receive, send: Send
    ) -> Stream | None:
        form = rest_forms.V1_FORM
        try:
            raw_path = _raw_path(scope, path)
            if (
                headers.get(b"a2a-version") != b"1.0"
                or not self._serves_v1
                or raw_path.startswith(rest_forms.OLD_PREFIX)
            ):
                app = self._app
                form, raw_path = rest_forms.spoken(
                    _version(scope, headers), raw_path, served=app.dialects, strict=app.strict
                )
            method, fields = rest.route(scope["method"], raw_path, tenants=form is rest_forms.V1_FORM)
            body = b""
            if scope["method"] == "POST":
                content_type = headers.get(b"content-type")
                if content_type is not None:
                    check_json(content_type.decode("latin-1"))
                body = await self._body(headers, receive)
            dialect = form.dialect(body, headers.get(b"user-agent", b""))
            observed = self._app.observer is not None
            if observed:
                called("rest", method.name, dialect.version, self.service.agent.name)
            caller = self._caller(scope, headers, who, dialect)
            if self._guarded:
                self._check_permitted(scope, caller, method)
            query = scope["query_string"].decode("latin-1")
            request = rest.read_request(dialect, method, fields, query, body)
            if observed:
                named(request)
            operation = self._unary.get(method.name)
            if operation is None and method is _EXTENDED_CARD:
                operation = partial(self._extended_card, scope, headers)
            if operation is not None:
                answer = operation(dialect, request, caller)
                result = await (self._watched(answer, receive) if method.name in _LONG else answer)
                extra = _OWN if method is _EXTENDED_CARD else ()
                await respond(send, 200, result, extra, content_type=form.content_type)
                return None
            cursor = await self._open(dialect, method, request, caller, headers)
            return Stream(cursor, lambda error: form.encode_error(error)[1], dialect=dialect)
        except _Gone:
            return None
        except A2AError as error:
            await refuse(send, error, form)
        except Exception as error:  # the boundary of a request: what is not an A2AError is our fault
            await refuse(send, _ours(error), form)
        return None

    def _form(self, scope: Scope, headers: Headers, path: str) -> rest_forms.RestForm:
        """How a refusal is written to a caller of which no more is known than the head of its request."""
        app = self._app
        try:
            return rest_forms.spoken(
                _version(scope, headers), _raw_path(scope, path), served=app.dialects, strict=app.strict
            )[0]
        except A2AError:
            return rest_forms.V1_FORM

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

    async def _create_config(self, dialect: Dialect, request: Any, caller: Caller) -> bytes:
        return dialect.encode_config(await self.service.create_push_notification_config(request, caller))

    async def _get_config(self, dialect: Dialect, request: Any, caller: Caller) -> bytes:
        return dialect.encode_config(await self.service.get_push_notification_config(request, caller))

    async def _list_configs(self, dialect: Dialect, request: Any, caller: Caller) -> bytes:
        return dialect.encode_configs(await self.service.list_push_notification_configs(request, caller))

    async def _delete_config(self, dialect: Dialect, request: Any, caller: Caller) -> bytes:
        await self.service.delete_push_notification_config(request, caller)
        return dialect.encode_deleted()

    async def _extended_card(
        self, scope: Scope, headers: Headers, dialect: Dialect, request: Any, caller: Caller
    ) -> bytes:
        return self._card.extended(self._card.base_url(scope, headers), caller, dialect.version)

    async def _open(self, dialect: Dialect, method: Method, request: Any, caller: Caller, headers: Headers) -> Cursor:
        if method.name == "SendStreamingMessage":
            return await self.service.send_streaming_message(request, caller, new_task=dialect.new_task)
        last_event_id = headers.get(b"last-event-id") if dialect.resumes else None
        number = event_number(last_event_id.decode("latin-1")) if last_event_id else None
        return await self.service.subscribe_to_task(
            request,
            caller,
            last_event_id=number,
            until_input=dialect.has_final,
            even_ended=dialect.shows_ended,
        )

    # --- parts of a request -------------------------------------------------------------------------------------------

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        """The body.

        Raises BodyTooLarge as soon as it is known to be, MediaTypeNotSupported when it is compressed, _Gone when its
        sender has left.
        """
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise MediaTypeNotSupported("The request's body is compressed: send it without Content-Encoding.")
        limit = self._max_body_bytes
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

    def _caller(self, scope: Scope, headers: Headers, who: Caller, dialect: Dialect) -> Caller:
        """Who calls, in which version and with which extensions."""
        if b"a2a-extensions" not in headers and b"x-a2a-extensions" not in headers:
            return who if dialect is V1 else replace(who, version=dialect.version)
        extensions = extensions_of(
            value.decode("latin-1") for name, value in scope["headers"] if name in _EXTENSION_HEADERS
        )
        return replace(who, version=dialect.version, extensions=extensions)


_PLAIN_CALLER = Caller()
_EXTENDED_CARD = METHODS["GetExtendedAgentCard"]
_OWN = ((b"cache-control", b"private, no-cache"),)  # what is for one caller (A2A 1.0 §13.3)
_FORWARDING = (b"x-forwarded-for", b"forwarded")
_EXTENSION_HEADERS = (b"a2a-extensions", b"x-a2a-extensions")  # the second is that of 0.3


def _version(scope: Scope, headers: Headers) -> str:
    """The version that a request names, in a header or the query; "" when it names none."""
    asked = headers.get(b"a2a-version")
    return version_in(scope["query_string"]) if asked is None else asked.decode("latin-1").strip()


def _raw_path(scope: Scope, path: str) -> str:
    """`path` as it was sent, with its percent signs: an encoded slash is part of an id, not of the path."""
    raw: bytes = scope.get("raw_path") or b""
    if b"%" not in raw:
        return path
    above = scope["path"][: -len(path)].count("/")
    return "/" + "/".join(raw.decode("latin-1").partition("?")[0].split("/")[above + 1 :])


def _theirs_or_ours(error: Exception) -> A2AError:
    return error if isinstance(error, A2AError) else _ours(error)


def _ours(error: Exception) -> A2AError:
    """What the caller hears of a fault that is not its own."""
    if isinstance(error, msgspec.DecodeError | UnicodeDecodeError):
        return ParseError(f"The body is not valid JSON: {error}")
    if isinstance(error, RecursionError):
        return InvalidRequest("The request nests too deep.")
    log.exception("a request failed", exc_info=error)
    return InternalError("Internal error. The server's operator finds the reason in the log.")


def _rpc_error(id_: bytes, error: A2AError, dialect: Dialect) -> bytes:
    return jsonrpc.encode_error(id_, error, codes=dialect.codes, data_in_object=dialect.data_in_object)


def _headers_of(error: A2AError) -> list[tuple[bytes, bytes]]:
    """What a refusal says in headers: when to try again, and how to authenticate."""
    if isinstance(error, Unavailable):
        return [(b"retry-after", str(error.retry_after_s).encode())]
    if isinstance(error, Unauthenticated | PermissionDenied):
        return [(b"www-authenticate", challenge.encode("latin-1", "replace")) for challenge in error.challenges]
    return []


def _shown(scope: Scope, headers: Headers) -> Shown:
    """What a request shows of its caller."""
    tls = (scope.get("extensions") or {}).get("tls")
    sent = scope["headers"]
    repeated: frozenset[bytes] = frozenset()
    if len(headers) != len(sent):
        names = [name for name, _ in sent]
        repeated = frozenset(name for name in headers if names.count(name) > 1)
    peer = scope.get("tieline.peer")
    if peer is None and not any(name in headers for name in _FORWARDING):
        peer = scope.get("client")  # another server than ours, which may put there what such a header says
    return Shown(
        headers,
        scope["query_string"],
        None if tls is None else tls.get("client_cert_name"),
        peer[0] if peer else "",
        _address(scope),
        repeated,
    )


def _address(scope: Scope) -> str:
    """Where the request comes from, as far as proxies that are trusted say so."""
    client = scope.get("client")
    return client[0] if client else ""


async def refuse(send: Send, error: A2AError, form: rest_forms.RestForm = rest_forms.V1_FORM) -> None:
    """Answer with an error as REST has it (§11.6)."""
    refused(error)
    extra = _headers_of(error)
    if isinstance(error, rest.VerbNotAllowed):
        extra = [(b"allow", ", ".join(error.allowed).encode())]
    status, body = form.encode_error(error)
    await respond(send, status, body, extra, content_type=form.content_type)


async def respond(
    send: Send,
    status: int,
    body: bytes,
    extra: Iterable[tuple[bytes, bytes]] = (),
    *,
    content_type: tuple[bytes, bytes] = _JSON,
) -> None:
    """Send a whole response."""
    headers = [content_type, (b"content-length", b"%d" % len(body)), *extra]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
