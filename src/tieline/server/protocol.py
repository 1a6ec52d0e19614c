"""HTTP connections: uvicorn's, with limits on what comes before a body, and the certificate that a caller has shown."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, ClassVar, Final

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tieline.server.auth.subject import subject_of

__all__ = ["Connection"]

_FEW: Final = 24  # headers; with more than these their sizes are summed up
_SMALL: Final = 16 * 1024  # bytes that have come at once, or so far; with more than these, too
_INVALID: Final = "Invalid HTTP request received."


class Connection(HttpToolsProtocol):
    """One connection. `head_since`: the loop's time since which the head of a request is waited for; `body_since`: the
    same for its body.
    """

    # uvicorn's own fill the thirty names that instances of a class share: a few more would cost each a dict of its own.
    __slots__ = (
        "_answered",
        "_beside",
        "_bytes",
        "_had_body",
        "_now",
        "_peer",
        "_refusal",
        "_tls",
        "_upgrades",
        "_weighs",
        "body_since",
        "head_since",
    )

    head_bytes: ClassVar[int] = 64 * 1024  # the target of the request, names and values of its headers; its trailers
    head_count: ClassVar[int] = 256  # headers
    head_s: ClassVar[float] = 20.0
    body_s: ClassVar[float] = 30.0  # and a second more for each body_bytes_per_s that have come
    body_bytes_per_s: ClassVar[int] = 1024
    linger_s: ClassVar[float] = 5.0  # that a caller may go on to send a body when it has had its answer

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._now = 0.0  # the loop's time when data has come last
        self.head_since: float | None = None
        self.body_since: float | None = None
        self._answered: float | None = None  # when the answer to the request whose body is coming was complete
        self._bytes = 0  # of the head, or the body, so far
        self._beside = 0  # bytes that have come behind the last piece of the body: its trailers, above all
        self._had_body = False  # whether what has come last had some of the body in it
        self._weighs = False  # whether the head that is coming may be too large
        self._upgrades = False  # whether the head that has come offers another protocol
        self._refusal = ""
        self._tls: Any = None  # what ASGI's extension for TLS says of the connection
        self._peer: tuple[str, int] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.head_since = self.loop.time()
        self._peer = self.client
        ssl_object = transport.get_extra_info("ssl_object")
        if ssl_object is not None:
            certificate = ssl_object.getpeercert(binary_form=True)
            self._tls = {"client_cert_name": subject_of(certificate) if certificate else None}

    def data_received(self, data: bytes) -> None:
        self._now = self.loop.time()
        self._weighs = self._bytes + len(data) > _SMALL
        self._had_body = False
        self._unset_keepalive_if_required()
        self._parse(data)
        if self.head_since is not None and self.parser is not None:  # there is more of it to come
            self._bytes += len(data)
            if self._bytes > self.head_bytes:
                self._refuse_head(431, self._too_large)
        elif self.body_since is not None:
            self._bytes += len(data)
            self._beside = 0 if self._had_body else self._beside + len(data)
            if self._beside > self.head_bytes:
                self._refuse_body(431, f"What stands behind the body has more than {self.head_bytes} bytes.")

    def _parse(self, data: bytes) -> None:
        """Have the parser read on, through requests that offer to change the protocol.

        Such an offer may be ignored, and the request is answered as it stands (RFC 9110, section 7.8): clients of h2c
        make it with every first request, those with a body, too. The parser ends at such a head, and would take the
        body for the next request; so another one gets the head once more, without the offer.
        """
        while data:
            try:
                self.parser.feed_data(data)
                return
            except HttpParserError:
                self.logger.info(_INVALID)  # a caller's fault, and as many as it likes
                self.send_400_response(_INVALID)
                return
            except HttpParserUpgrade as stopped:
                data = data[stopped.args[0] :]
            if self._upgrades:
                self._upgrades = False
                version = self.parser.get_http_version().encode()
                data = _head(self.parser.get_method(), self.url, version, self.headers) + data
                self.parser = HttpRequestParser(self)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["tieline.peer"] = self._peer  # type: ignore[typeddict-unknown-key]
        if self._tls is not None:
            self.scope["extensions"] = {"tls": self._tls}
        self._bytes = 0
        self.head_since = self._now

    def on_headers_complete(self) -> None:
        self._upgrades = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if self._upgrades:
            return  # it comes again
        self.head_since = None
        if self._weighs or len(self.headers) > _FEW:
            size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
            if size > self.head_bytes:
                self._refusal = self._too_large
            elif len(self.headers) > self.head_count:
                self._refusal = f"The request has more than {self.head_count} headers."
            if self._refusal:
                raise ValueError(self._refusal)  # ends the parser, and comes to send_400_response
        super().on_headers_complete()
        self.headers = []  # trailers are no headers (RFC 9110 §6.5.1): those of the request are complete
        self._bytes = self._beside = 0
        self._answered = None
        self.body_since = self._now

    def on_body(self, body: bytes) -> None:
        self._had_body = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._upgrades:
            return
        self.body_since = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if self.body_since is not None:
            self._answered = self.loop.time()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        if self._refusal:
            self._refuse_head(431, self._refusal)
        else:
            self._refuse_head(400, msg)

    @property
    def _too_large(self) -> str:
        return f"The headers have more than {self.head_bytes} bytes."

    def look(self, now: float) -> None:
        """Hang up on who has begun a connection or a request and does not get on with it."""
        if self.head_since is not None:
            if now - self.head_since > self.head_s:
                self._refuse_head(408, f"The headers did not arrive within {self.head_s:g} seconds.")
        elif self.body_since is None:
            return
        elif self.cycle.response_complete:
            if self._answered is not None and now - self._answered > self.linger_s:
                self.transport.close()
        elif (
            now - self.body_since > self.body_s + self._bytes / self.body_bytes_per_s
            and not self.flow.read_paused  # else it is this server that is slow
        ):
            self._refuse_body(408, f"The body comes slower than {self.body_bytes_per_s} bytes a second.")

    def _refuse_head(self, status: int, words: str) -> None:
        self._refuse(status, words, self.cycle is not None and not self.cycle.response_complete)

    def _refuse_body(self, status: int, words: str) -> None:
        # An answer that is due to an earlier request, or has begun, is not to be taken for this one.
        self._refuse(status, words, self.cycle.response_started or bool(self.pipeline))

    def _refuse(self, status: int, words: str, answer_due: bool) -> None:
        """Answer and hang up; while another answer is due, hang up alone."""
        if self.transport.is_closing():
            return
        if not answer_due:
            self.transport.write(_response(_STATUS[status], words))
        self.transport.close()


def _head(method: bytes, target: bytes, version: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A request's head without an offer to change the protocol."""
    lines = [b"%s %s HTTP/%s\r\n" % (method, target, version)]
    for name, value in headers:
        if name == b"connection":
            value = b", ".join(token for token in map(bytes.strip, value.split(b",")) if token.lower() != b"upgrade")
        if name != b"upgrade":
            lines.append(b"%s: %s\r\n" % (name, value))
    return b"".join((*lines, b"\r\n"))


_STATUS: Final = {400: "400 Bad Request", 408: "408 Request Timeout", 431: "431 Request Header Fields Too Large"}


def _response(status: str, words: str) -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\n"
    return f"{head}content-length: {len(words)}\r\nconnection: close\r\n\r\n{words}".encode()
