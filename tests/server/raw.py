"""Calls without any client of ours: bytes on a socket, or an ASGI scope by hand.

`serve` puts an ASGI app on a port of this event loop, `Wire` is one connection to it, `asgi` calls an app without any
server.
"""

from __future__ import annotations

import asyncio
import functools
import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, ParamSpec

import uvicorn
from uvicorn.server import ServerState

from tieline.server.asgi import App

LIMIT_S = 20.0
P = ParamSpec("P")
Pairs = list[tuple[str, str]]
JSON: Pairs = [("Content-Type", "application/json"), ("A2A-Version", "1.0")]
A2A_JSON: Pairs = [("Content-Type", "application/a2a+json"), ("A2A-Version", "1.0")]


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an async test in an event loop of its own, for LIMIT_S at most."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def limited() -> None:
            async with asyncio.timeout(LIMIT_S):
                await test(*args, **kwargs)

        asyncio.run(limited())

    return run


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]  # by lower-case name, those of one name joined by commas
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body.decode("utf-8"))


class Frame(NamedTuple):
    """One frame of an event stream; `comment` is None or the text of a comment, which has no data."""

    id: str | None
    data: Any
    comment: str | None = None


@asynccontextmanager
async def serve(
    asgi_app: Any, *, owner: App | None = None, tls: ssl.SSLContext | None = None, http: Any = "httptools"
) -> AsyncGenerator[int, None]:
    """Serve on a free port of 127.0.0.1, without lifespan events; `owner` is closed at the end (the app, if it is one).

    The protocol of uvicorn is used without its server, whose shutdown takes a tenth of a second.
    """
    config = uvicorn.Config(asgi_app, http=http, lifespan="off", log_config=None, access_log=False)
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: config.http_protocol_class(config=config, server_state=state, app_state={}),  # type: ignore[call-arg]
        "127.0.0.1",
        0,
        ssl=tls,
    )
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for connection in list(state.connections):
            connection.transport.abort()
        if state.tasks:
            await asyncio.wait(list(state.tasks), timeout=5)
        app = owner if owner is not None else asgi_app
        if isinstance(app, App):
            await app.close()


class Wire:
    """One HTTP/1.1 connection, kept alive between requests."""

    def __init__(self, port: int, *, tls: ssl.SSLContext | None = None) -> None:
        self._port = port
        self._tls = tls
        self._left: int | None = None  # bytes of the body; None is chunked

    async def __aenter__(self) -> Wire:
        self.reader, self.writer = await asyncio.open_connection(
            "127.0.0.1", self._port, ssl=self._tls, server_hostname="localhost" if self._tls else None, limit=1 << 26
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.abort()

    def abort(self) -> None:
        self.writer.transport.abort()

    async def request(self, verb: str, path: str, body: bytes | None = None, headers: Pairs | None = None) -> Reply:
        await self.write(verb, path, body, headers)
        status, given = await self.head()
        return Reply(status, given, b"" if verb == "HEAD" or status in (204, 304) else await self.body())

    async def write(self, verb: str, path: str, body: bytes | None = None, headers: Pairs | None = None) -> None:
        """Send a request, with a length unless the headers say how the body comes."""
        pairs = [] if headers is None else list(headers)
        names = {name.lower() for name, _ in pairs}
        if "host" not in names:
            pairs.insert(0, ("Host", f"127.0.0.1:{self._port}"))
        if body is not None and not names & {"content-length", "transfer-encoding"}:
            pairs.append(("Content-Length", str(len(body))))
        lines = "".join(f"{name}: {value}\r\n" for name, value in pairs)
        await self.send(f"{verb} {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + (body or b""))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self) -> tuple[int, dict[str, str]]:
        raw = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = raw.rstrip("\r\n").split("\r\n")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            name, value = name.lower(), value.strip()
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        self._left = (
            None if "chunked" in headers.get("transfer-encoding", "") else int(headers.get("content-length", 0))
        )
        return int(first.split(" ")[1]), headers

    async def body(self) -> bytes:
        return b"".join([piece async for piece in self.pieces()])

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body in the pieces that the server has written."""
        if self._left is not None:
            yield await self.reader.readexactly(self._left)
            return
        while True:
            size = int(await self.reader.readline(), 16)
            piece = await self.reader.readexactly(size + 2)
            if size == 0:
                return
            yield piece[:-2]

    async def frames(self) -> AsyncIterator[Frame]:
        """The frames of an event stream."""
        rest = b""
        async for piece in self.pieces():
            *whole, rest = (rest + piece).split(b"\n\n")
            for text in whole:
                yield _frame(text.decode("utf-8"))
        assert rest == b"", f"half a frame at the end of the stream: {rest!r}"


def _frame(text: str) -> Frame:
    id_: str | None = None
    data: list[str] = []
    for line in text.split("\n"):
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "":
            return Frame(None, None, value)
        if name == "id":
            id_ = value
        elif name == "data":
            data.append(value)
    return Frame(id_, json.loads("\n".join(data)))


async def request(port: int, verb: str, path: str, body: bytes | None = None, headers: Pairs | None = None) -> Reply:
    """One request on a connection of its own."""
    async with Wire(port) as wire:
        return await wire.request(verb, path, body, headers)


async def asgi(app: Any, verb: str, path: str, body: bytes = b"", headers: Pairs | None = None, **scope: Any) -> Reply:
    """Call an ASGI app without a server, with any `scope`; its body is whole when this returns."""
    sent: list[Mapping[str, Any]] = []
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    full = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": "http",
        "method": verb,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "server": ("127.0.0.1", 80),
        "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers or []],
        **scope,
    }

    async def receive() -> Mapping[str, Any]:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: Mapping[str, Any]) -> None:
        sent.append(message)

    await app(full, receive, send)
    start, *bodies = sent
    given: dict[str, str] = {}
    for name, value in start["headers"]:
        key, text = name.decode("latin-1"), value.decode("latin-1")
        given[key] = f"{given[key]}, {text}" if key in given else text
    return Reply(start["status"], given, b"".join(message["body"] for message in bodies))
