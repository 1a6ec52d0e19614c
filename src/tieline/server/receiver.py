"""The other end of push notifications: a webhook for a program, as an ASGI app and an iterator."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from tieline.engine.notification import NOTIFICATION_TOKEN, SIGNATURE
from tieline.errors import A2AError, MediaTypeNotSupported
from tieline.server.credentials import Credentials, Refused
from tieline.types import StreamEvent
from tieline.wire.headers import check_json
from tieline.wire.notifications import read_notification, task_of

__all__ = ["Notification", "WebhookReceiver"]

log = logging.getLogger("tieline.webhooks")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_SECRET_HEADERS: Final = frozenset(
    ("authorization", "proxy-authorization", "cookie", SIGNATURE.lower(), *map(str.lower, NOTIFICATION_TOKEN))
)
_ANSWER_S: Final = 8.0  # below the limits of senders: 10 to 30 seconds (A2A 1.0 §4.3.3)
_BODY_BYTES: Final = 16 * 1024 * 1024
_REMEMBER_S: Final = 24 * 3600.0
_REMEMBERED: Final = 100_000
_WAITING: Final = 1_000
_RETRY_S: Final = 5


class Notification(msgspec.Struct, frozen=True):
    """One notification (A2A 1.0 §4.3.3).

    `event`: what has happened, as values of 1.0: a Task, TaskStatusUpdateEvent, TaskArtifactUpdateEvent or Message.
    `task_id`: of which task, None for a message without one. `dialect`: the version of A2A that it was written in.
    `key`: by what it is known again when it comes twice, None where its sender gives nothing. `headers`: by lower-case
    name, without those that hold secrets.
    """

    task_id: str | None
    event: StreamEvent
    dialect: str
    key: str | None
    headers: dict[str, str]


class WebhookReceiver:
    """A webhook: an ASGI application, to run or to mount, that gives the notifications it is sent (A2A 1.0 §13.2).

        receiver = WebhookReceiver(token=secret)
        async with receiver.listening(port=9000) as url:    # or app.mount("/hook", receiver)
            async for notification in receiver: ...

    A sender hears 2xx when its notification was handed over: taken by an iterator, or by `handler`, whose return is
    awaited; a handler that raises is a 500, and the sender tries again. What was handed over and comes again is
    answered with 2xx and forgotten, where an Idempotency-Key, for the same task, or the id of a signature tells that it
    is the same.

    Args:
        handler: Takes each notification, several at a time; without it, iterate.
        token: The `token` of the webhook's configuration, or several of which any is right.
        bearer: The credentials of its authentication, where the scheme is Bearer; or several.
        basic: User and password, where the scheme is Basic.
        jwks: Signatures are wanted, too, by a key of this JWKS document or of the one at this URL (extra `auth`).
        audience: What `aud` of a signature has to be: the webhook's origin, for servers of ours.
        issuer: What `iss` has to be.
        anyone: Nothing of this is asked for.
        expects: Whether a notification for this task is wanted; others are refused with 403. None is any.
        answer_s: How long a sender waits for its notification to be taken by an iterator; it is kept for the iterator
            all the same.
        max_body_bytes: Longer notifications are refused with 413.
        waiting: How many may be there that nobody has taken, or that the handler is at work on; more are refused with
            503.
        remember_s: How long those that were handed over are known again; `remembered` of them at most.

    Raises ValueError when what is asked for makes no sense, or is nothing.
    """

    def __init__(
        self,
        handler: Callable[[Notification], Awaitable[None]] | None = None,
        *,
        token: str | Sequence[str] | None = None,
        bearer: str | Sequence[str] | None = None,
        basic: tuple[str, str] | None = None,
        jwks: str | dict[str, Any] | None = None,
        audience: str | None = None,
        issuer: str | None = None,
        anyone: bool = False,
        expects: Callable[[str | None], bool] | None = None,
        answer_s: float = _ANSWER_S,
        max_body_bytes: int = _BODY_BYTES,
        waiting: int = _WAITING,
        remember_s: float = _REMEMBER_S,
        remembered: int = _REMEMBERED,
    ) -> None:
        self._credentials = Credentials(
            token=token, bearer=bearer, basic=basic, jwks=jwks, audience=audience, issuer=issuer, anyone=anyone
        )
        self._handler = handler
        self._expects = expects
        self._answer_s = answer_s
        self._max_body_bytes = max_body_bytes
        self._most_waiting = waiting
        self._handed_over = _Remembered(remember_s, remembered)
        self._handing: set[asyncio.Future[None]] = set()  # what is not handed over yet
        self._under_way: dict[bytes, asyncio.Future[None]] = {}  # the same by their marks
        self._waiting: deque[tuple[Notification, asyncio.Future[None]]] = deque()
        self._arrived = asyncio.Event()
        self._closed = False

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":
            raise ValueError(f"a webhook speaks HTTP, not {scope['type']}")
        try:
            status = await self._receive(scope, receive)
        except Refused as error:
            await _answer(send, error.status, str(error), error.challenge)
        except A2AError as error:
            await _answer(send, error.http_status, error.message)
        except _Gone:
            pass
        else:
            await _answer(send, status, "")

    def __aiter__(self) -> AsyncIterator[Notification]:
        """Notifications as they come, until `close`. Several iterators share them: each is given once."""
        return self

    async def __anext__(self) -> Notification:
        while not self._waiting:
            if self._closed:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        notification, taken = self._waiting.popleft()
        if not taken.done():
            taken.set_result(None)
        return notification

    @asynccontextmanager
    async def listening(self, host: str = "127.0.0.1", port: int = 0) -> AsyncGenerator[str, None]:
        """Serve it until the block ends, and then end its iterators; gives its URL. Port 0 is any free one.

        Raises CannotServe when the address is taken or not allowed.
        """
        from tieline.server.listening import listening

        async with listening(self, host, port) as url:
            try:
                yield url
            finally:
                self.close()

    def close(self) -> None:
        """End the iterators, behind what is there already; what comes now is refused with 503."""
        self._closed = True
        self._arrived.set()

    # --- one notification ---------------------------------------------------------------------------------------------

    async def _receive(self, scope: Mapping[str, Any], receive: Receive) -> int:
        """Take one notification, and give the status for it. Raises Refused and A2AError."""
        if scope["method"] != "POST":
            raise Refused(405, "Notifications are sent with POST.")
        headers: dict[bytes, bytes] = dict(scope["headers"])
        self._credentials.check(headers)
        check_json(headers.get(b"content-type", b"none").decode("latin-1"))
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise MediaTypeNotSupported("The notification is compressed: send it without Content-Encoding.")
        body = await _body(headers, receive, self._max_body_bytes)
        signed = await self._credentials.check_signature(headers, body)
        event, dialect = read_notification(body)
        task_id = task_of(event)
        if signed is not None and signed.task_id is not None and signed.task_id != task_id:
            raise Refused(403, "The signature is for another task (taskId).")
        if self._expects is not None and not self._expects(task_id):
            raise Refused(403, "No notification is expected for this task.")
        # A header can be changed where a signature cannot, and a signature is made anew where a header is not.
        signature_id = signed.id if signed is not None else None
        key = headers.get(b"idempotency-key", b"").decode("latin-1").strip('" ') or signature_id
        marks = [_mark("key", f"{task_id!r} {key}")] if key else []  # two senders may both count from 1
        if signed is not None and signature_id:
            marks.append(_mark("jti", f"{signed.issuer} {signature_id}"))
        told = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}
        shown = {name: value for name, value in told.items() if name not in _SECRET_HEADERS}
        await self._hand_over(Notification(task_id, event, dialect, key, shown), marks)
        return 200

    async def _hand_over(self, notification: Notification, marks: Sequence[bytes]) -> None:
        """Return when it was handed over, now or before: one of its marks tells. Raises Refused."""
        for mark in marks:
            if mark in self._handed_over:
                return
            under_way = self._under_way.get(mark)
            if under_way is not None:
                await self._wait_for(under_way)
                return
        if self._closed or len(self._handing) >= self._most_waiting:
            raise Refused(503, "The webhook takes no more notifications now.")
        handing: asyncio.Future[None] = (
            asyncio.get_running_loop().create_future()
            if self._handler is None
            else asyncio.ensure_future(self._handled(self._handler, notification))
        )
        self._handing.add(handing)
        self._under_way.update(dict.fromkeys(marks, handing))
        handing.add_done_callback(lambda done: self._done(marks, done))
        if self._handler is None:
            self._waiting.append((notification, handing))
            self._arrived.set()
        await self._wait_for(handing)

    async def _handled(self, handler: Callable[[Notification], Awaitable[None]], notification: Notification) -> None:
        try:
            await handler(notification)
        except Exception:
            log.exception("A webhook's handler failed.")
            raise Refused(500, "The notification could not be taken.") from None

    async def _wait_for(self, handing: asyncio.Future[None]) -> None:
        done, _ = await asyncio.wait([handing], timeout=self._answer_s)
        if not done:
            raise Refused(503, "The notification is here, and has not been taken yet.")
        await handing

    def _done(self, marks: Sequence[bytes], handing: asyncio.Future[None]) -> None:
        self._handing.discard(handing)
        for mark in marks:
            self._under_way.pop(mark, None)
        if not handing.cancelled() and handing.exception() is None:
            for mark in marks:
                self._handed_over.add(mark)


def _mark(kind: str, text: str) -> bytes:
    return hashlib.sha256(f"{kind} {text}".encode()).digest()


class _Remembered:
    """Keys, each for a time, and the newest of them only."""

    def __init__(self, for_s: float, most: int) -> None:
        self._for_s = for_s
        self._most = most
        self._until: OrderedDict[bytes, float] = OrderedDict()

    def __contains__(self, key: bytes) -> bool:
        self._forget()
        return key in self._until

    def add(self, key: bytes) -> None:
        self._until[key] = asyncio.get_running_loop().time() + self._for_s
        self._until.move_to_end(key)
        self._forget()

    def _forget(self) -> None:
        now = asyncio.get_running_loop().time()
        until = self._until
        while until and (len(until) > self._most or next(iter(until.values())) <= now):
            until.popitem(last=False)


# --- HTTP -------------------------------------------------------------------------------------------------------------


class _Gone(Exception):
    """The sender has left before its notification was here."""


async def _body(headers: Mapping[bytes, bytes], receive: Receive, limit: int) -> bytes:
    """Raises Refused, 413, and _Gone."""
    length = headers.get(b"content-length", b"")
    too_large = Refused(413, f"The notification is larger than {limit} bytes.")
    if length.isdigit() and (len(length) > 15 or int(length) > limit):
        raise too_large
    chunks, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        chunk = message.get("body", b"")
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            raise too_large
        if not message.get("more_body", False):
            return b"".join(chunks)


async def _answer(send: Send, status: int, sentence: str, challenge: str | None = None) -> None:
    body = msgspec.json.encode({"error": sentence}) if sentence else b""
    headers = [(b"content-length", b"%d" % len(body))]
    if body:
        headers.append((b"content-type", b"application/json"))
    if challenge:
        headers.append((b"www-authenticate", challenge.encode()))
    if status == 405:
        headers.append((b"allow", b"POST"))
    if status == 503:
        headers.append((b"retry-after", b"%d" % _RETRY_S))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _live(receive: Receive, send: Send) -> None:
    """Lifespan events: there is nothing to begin and nothing to end."""
    while (message := await receive())["type"] != "lifespan.shutdown":
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
    await send({"type": "lifespan.shutdown.complete"})
