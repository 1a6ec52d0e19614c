"""HTTP connections: uvicorn's, with limits on what comes before a body, and the certificate that a caller has shown."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tieline.server.auth.certificate import subject_of

__all__ = ["Connection"]

HEAD_BYTES: Final = 64 * 1024
HEAD_S: Final = 20.0
BODY_S: Final = 30.0  # and a second more for each BODY_BYTES_PER_S that have come
BODY_BYTES_PER_S: Final = 1024
_HEADERS: Final = 256
_FEW: Final = 24  # headers; with more than these their sizes are summed up


def _response(status: str, words: str) -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\n"
    return f"{head}content-length: {len(words)}\r\nconnection: close\r\n\r\n{words}".encode()


_TOO_LARGE: Final = _response("431 Request Header Fields Too Large", f"The headers have more than {HEAD_BYTES} bytes.")
_TOO_MANY: Final = _response("431 Request Header Fields Too Large", f"The request has more than {_HEADERS} headers.")
_TOO_SLOW: Final = _response("408 Request Timeout", f"The headers did not arrive within {HEAD_S:g} seconds.")
_BODY_TOO_SLOW: Final = _response(
    "408 Request Timeout", f"The body comes slower than {BODY_BYTES_PER_S} bytes a second."
)


class Connection(HttpToolsProtocol):
    """One connection. `head_since`: the loop's time since which the head of a request is waited for."""

    head_since: float | None = None
    body_since: float | None = None  # the same for the body
    _bytes = 0  # of the head, or the body, so far
    _refusal = b""
    _tls: Any = None  # what ASGI's extension for TLS says of the connection
    _peer: tuple[str, int] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.head_since = self.loop.time()
        self._peer = self.client
        ssl_object = transport.get_extra_info("ssl_object")
        if ssl_object is not None:
            certificate = ssl_object.getpeercert()
            self._tls = {"client_cert_name": subject_of(certificate) if certificate else None}

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.head_since is not None and self.parser is not None:  # there is more of it to come
            self._bytes += len(data)
            if self._bytes > HEAD_BYTES:
                self.refuse(_TOO_LARGE)
        elif self.body_since is not None:
            self._bytes += len(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["tieline.peer"] = self._peer  # type: ignore[typeddict-unknown-key]
        if self._tls is not None:
            self.scope["extensions"] = {"tls": self._tls}
        self._bytes = 0
        self.head_since = self.loop.time()

    def on_headers_complete(self) -> None:
        self.head_since = None
        if len(self.headers) > _FEW:
            size = sum(len(name) + len(value) for name, value in self.headers)
            self._refusal = _TOO_LARGE if size > HEAD_BYTES else _TOO_MANY if len(self.headers) > _HEADERS else b""
            if self._refusal:
                raise ValueError("the head of the request is too large")  # ends the parser, and comes to send_400
        super().on_headers_complete()
        self._bytes = 0
        self.body_since = self.loop.time()

    def on_message_complete(self) -> None:
        self.body_since = None
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if self._refusal:
            self.refuse(self._refusal)
        else:
            super().send_400_response(msg)

    def look(self, now: float) -> None:
        """Hang up on who has begun a connection or a request and does not get on with it."""
        if self.head_since is not None:
            if now - self.head_since > HEAD_S:
                self.refuse(_TOO_SLOW)
        elif (
            self.body_since is not None
            and now - self.body_since > BODY_S + self._bytes / BODY_BYTES_PER_S
            and not self.flow.read_paused  # else it is this server that is slow
        ):
            self.refuse(_BODY_TOO_SLOW)

    def refuse(self, response: bytes) -> None:
        """Answer with this and hang up."""
        if not self.transport.is_closing():
            cycle = self.cycle
            if cycle is None or cycle.response_complete or not cycle.response_started:
                self.transport.write(response)
            self.transport.close()
