"""Our own server on a real socket, in the loop of the test, and ways to it over which things break."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn

from tests.client.scripted import LIMIT_S, listening
from tieline import Agent, App, Peer, Recovery, app, connect
from tieline.client.peer import Connection
from tieline.server.grpc import GrpcServer

__all__ = ["TRANSPORTS", "WAYS", "by_way", "cutting_proxy", "peer_of", "served"]

TRANSPORTS = {"direct": None, "jsonrpc": "JSONRPC", "rest": "HTTP+JSON"}


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.leave = asyncio.Event()

    async def main_loop(self) -> None:
        """Without ticks: a test is not to wait for the next one."""
        await self.leave.wait()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave Ctrl-C to pytest."""
        yield


@asynccontextmanager
async def served(application: App, *, certificate: str | None = None) -> AsyncIterator[str]:
    """Serve an app until the block ends; gives its URL."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        config = uvicorn.Config(
            application, log_config=None, access_log=False, ssl_certfile=certificate, timeout_graceful_shutdown=0
        )
        server = _Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield f"{'https' if certificate else 'http'}://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            server.leave.set()
            async with asyncio.timeout(LIMIT_S):
                await serving


@asynccontextmanager
async def peer_of(agent: Agent, transport: str, **options: object) -> AsyncIterator[Peer]:
    """An agent behind one of the transports."""
    connection: Connection
    if transport == "direct":
        async with connect(agent, **options) as peer:  # type: ignore[arg-type]
            yield peer
        return
    async with served(app(agent)) as url:
        connection = connect(url, transport=TRANSPORTS[transport], **options)  # type: ignore[arg-type]
        async with connection as peer:
            yield peer


@asynccontextmanager
async def cutting_proxy(url: str, *, after_bytes: int) -> AsyncIterator[str]:
    """A way to a server that breaks each connection once so many bytes have come back over it; gives its URL."""
    host, port = url.removeprefix("http://").split(":")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(host, int(port))
        upwards = asyncio.create_task(_copy(reader, up_writer))
        try:
            left = after_bytes
            while left > 0 and (data := await up_reader.read(left)):
                left -= len(data)
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            upwards.cancel()
            await asyncio.wait([upwards])
            up_writer.close()
            writer.close()

    async with listening(serve) as own_port:
        yield f"http://127.0.0.1:{own_port}"


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


PATIENT = Recovery(attempts=1000, first_pause_s=0.001, longest_pause_s=0.001)
"""For connections that break all the time."""


WAYS: Mapping[str, tuple[str, str]] = {
    "jsonrpc-1.0": ("JSONRPC", "1.0"),
    "rest-1.0": ("HTTP+JSON", "1.0"),
    "grpc-1.0": ("GRPC", "1.0"),
    "jsonrpc-0.3": ("JSONRPC", "0.3"),
    "rest-0.3": ("HTTP+JSON", "0.3"),
    "grpc-0.3": ("GRPC", "0.3"),
    "jsonrpc-0.1": ("JSONRPC", "0.1"),
}
"""Every binding in every version that there is of it."""


@asynccontextmanager
async def by_way(published: Agent | App, way: str, **options: Any) -> AsyncIterator[Peer]:
    """An agent on a real socket, called in one binding and version."""
    binding, version = WAYS[way]
    application = published if isinstance(published, App) else app(published)
    async with (
        served(application) as url,
        _grpc(application, binding == "GRPC"),
        connect(url, transport=binding, version=version, **options) as peer,
    ):
        assert peer.transport == binding
        assert peer.interface.protocol_version == version
        yield peer


@asynccontextmanager
async def _grpc(application: App, wanted: bool) -> AsyncIterator[None]:
    """gRPC beside HTTP, as `tieline serve --grpc-port` has it."""
    if not wanted:
        yield
        return
    server = GrpcServer(application)
    application.grpc_address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
    try:
        yield
    finally:
        await server.stop()
