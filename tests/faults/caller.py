"""Callers on raw sockets: HTTP+JSON requests as bytes, event streams as numbered bytes. None of our client in them."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from tieline.ids import new_id

__all__ = ["Caller", "Told", "calling", "message"]


class Told(NamedTuple):
    """An event of a stream as it came: its number and the bytes of its data."""

    number: int
    data: bytes

    @property
    def value(self) -> Any:
        return json.loads(self.data)

    @property
    def state(self) -> str | None:
        """The state that it tells, without its prefix; None when it tells of an artifact."""
        value = self.value
        about = value.get("task") or value.get("statusUpdate")
        return None if about is None else str(about["status"]["state"]).removeprefix("TASK_STATE_")

    @property
    def text(self) -> str:
        """The text of an artifact update; "" for any other event."""
        update = self.value.get("artifactUpdate")
        return "" if update is None else "".join(part.get("text", "") for part in update["artifact"]["parts"])


def message(text: str, task_id: str | None = None, **configuration: Any) -> dict[str, Any]:
    """A SendMessageRequest in JSON."""
    about: dict[str, Any] = {"messageId": new_id(), "role": "ROLE_USER", "parts": [{"text": text}]}
    if task_id is not None:
        about["taskId"] = task_id
    return {"message": about, "configuration": configuration}


class Caller:
    """One connection of HTTP/1.1, kept alive between requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._rest = b""

    def leave(self) -> None:
        """Break the connection off."""
        self._writer.transport.abort()

    async def write(self, verb: str, path: str, value: Any = None, *headers: str) -> None:
        """Send a request."""
        body = b"" if value is None else json.dumps(value).encode()
        lines = [f"{verb} {path} HTTP/1.1", "Host: 127.0.0.1", "A2A-Version: 1.0", *headers]
        if value is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        self._writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await self._writer.drain()

    async def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers of an answer."""
        raw = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = raw.strip().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        return int(first.split(" ")[1]), headers

    async def request(self, verb: str, path: str, value: Any = None) -> tuple[int, Any]:
        """One request with an answer that is no stream: its status and its JSON."""
        await self.write(verb, path, value)
        status, headers = await self.head()
        return status, json.loads(await self._reader.readexactly(int(headers["content-length"])))

    async def send(self, text: str, task_id: str | None = None, **configuration: Any) -> Any:
        """SendMessage: the task that it answers with."""
        status, answer = await self.request("POST", "/message:send", message(text, task_id, **configuration))
        assert status == 200, answer
        return answer["task"]

    async def get(self, task_id: str) -> Any:
        """GetTask."""
        status, answer = await self.request("GET", f"/tasks/{task_id}")
        assert status == 200, answer
        return answer

    async def stream(self, text: str, task_id: str | None = None) -> None:
        """Open a stream by SendStreamingMessage; read it with `events`."""
        await self._open("POST", "/message:stream", message(text, task_id))

    async def subscribe(self, task_id: str, last_event_id: int | None = None) -> None:
        """Open a stream by SubscribeToTask; read it with `events`."""
        headers = [] if last_event_id is None else [f"Last-Event-ID: {last_event_id}"]
        await self._open("GET", f"/tasks/{task_id}:subscribe", None, *headers)

    async def _open(self, verb: str, path: str, value: Any, *headers: str) -> None:
        await self.write(verb, path, value, *headers)
        status, given = await self.head()
        assert status == 200
        assert given["content-type"] == "text/event-stream"

    async def next(self) -> Told:
        """The next event of the stream."""
        async for event in self.events():
            return event
        raise AssertionError("the stream has ended")

    async def events(self) -> AsyncIterator[Told]:
        """The events up to the end of the stream; comments are left out.

        Raises IncompleteReadError or ConnectionError when the stream is cut instead of ended.
        """
        while True:
            while b"\n\n" in self._rest:
                frame, self._rest = self._rest.split(b"\n\n", 1)
                if not frame.startswith(b":"):
                    fields = dict(line.split(b": ", 1) for line in frame.split(b"\n"))
                    yield Told(int(fields.get(b"id", b"0")), fields[b"data"])
            size = int(await self._line(), 16)
            self._rest += (await self._reader.readexactly(size + 2))[:-2]
            if size == 0:
                assert self._rest == b"", "half an event stands at the end"
                return

    async def _line(self) -> bytes:
        line = await self._reader.readline()
        if not line.endswith(b"\n"):
            raise asyncio.IncompleteReadError(line, None)
        return line

    async def all(self) -> list[Told]:
        """The events up to the end."""
        return [event async for event in self.events()]

    async def until_cut(self, events: list[Told]) -> None:
        """Put the events into `events` as they come, up to the end or to where the stream is cut."""
        try:
            async for event in self.events():
                events.append(event)  # noqa: PERF401 - those before the cut have to be there
        except (asyncio.IncompleteReadError, ConnectionError):
            pass


@asynccontextmanager
async def calling(port: int, receive_buffer: int | None = None) -> AsyncIterator[Caller]:
    """A connection to 127.0.0.1; `receive_buffer` is the size in bytes of what the system holds for it unread."""
    connection = socket.socket()
    if receive_buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=connection, limit=1 << 16)
    caller = Caller(reader, writer)
    try:
        yield caller
    finally:
        caller.leave()
