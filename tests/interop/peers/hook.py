"""A webhook that remembers what it was told, for the callers in Python; hook.mjs is the same in JavaScript."""

from __future__ import annotations

import asyncio
import json
from types import TracebackType
from typing import Any

__all__ = ["Hook", "state_in"]

_LIMIT_S = 15.0


class Hook:
    """An HTTP server on 127.0.0.1, until the block ends."""

    def __init__(self) -> None:
        self.url = ""
        self._told: list[tuple[dict[str, str], Any]] = []
        self._news = asyncio.Event()

    async def __aenter__(self) -> Hook:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/hook"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()

    async def told(self, state: str) -> tuple[dict[str, str], Any]:
        """The headers, by lower-case name, and the JSON of the first notification that tells this state."""
        async with asyncio.timeout(_LIMIT_S):
            while True:
                for headers, body in self._told:
                    if state_in(body) == state:
                        return headers, body
                self._news.clear()
                await self._news.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode("latin-1").split("\r\n")[1:]
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
                body = await reader.readexactly(int(headers["content-length"]))
                self._told.append((headers, json.loads(body)))
                self._news.set()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def state_in(body: Any) -> str | None:
    """The state that a notification of any version tells: "COMPLETED"."""
    for value in (body.get("statusUpdate"), body.get("task"), body):
        if value is not None and "status" in value:
            return str(value["status"]["state"]).upper().removeprefix("TASK_STATE_").replace("-", "_")
    return None
