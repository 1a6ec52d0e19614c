"""Our own server on a real socket, in the loop of the test, and ways to it over which things break."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager, contextmanager

import uvicorn

from tests.client.scripted import LIMIT_S, listening
from tieline import Agent, App, Peer, Recovery, app, connect
from tieline.client.peer import Connection

__all__ = ["TRANSPORTS", "cutting_proxy", "peer_of", "served"]

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
