"""An ASGI app that is served for as long as a block of the program lasts, beside what else its event loop does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn

from tieline.server.connections import WatchedServer, protocol
from tieline.server.serve import begin_to_listen, bind

__all__ = ["listening"]


@asynccontextmanager
async def listening(application: Any, host: str, port: int) -> AsyncGenerator[str, None]:
    """Serve `application` until the block ends; gives its URL. Port 0 is any free one.

    Raises CannotServe when the address is taken or not allowed.
    """
    socket = bind(host, port)
    begin_to_listen(socket)  # who comes from here on waits for the server, which is about to begin
    config = uvicorn.Config(
        application,
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        http=protocol(),
        timeout_graceful_shutdown=1,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[socket]))
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{socket.getsockname()[1]}/"
    finally:
        server.should_exit = True
        await serving
        socket.close()


class _Server(WatchedServer):
    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals to the program."""
        yield
