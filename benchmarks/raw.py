"""A bare HTTP/1.1 client on asyncio streams, the requests of the benchmark, and what is a right answer to them.

Bare, so that its own cost stays small and no contestant's client is used to judge its server.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Literal, Self

DEADLINE_S = 120.0  # for any one exchange; the slowest here takes a few seconds
CARD_PATH = "/.well-known/agent-card.json"

_numbers = itertools.count(1)

Version = Literal["1.0", "0.3"]
"""Of A2A. A request of 0.3 carries no A2A-Version: its callers know of none."""


class WrongAnswer(Exception):
    """A server did not answer what the benchmark asks for."""


class Connection:
    """One kept-alive connection; one exchange at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: Version) -> None:
        self.version: Version = version
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int, version: Version = "1.0") -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 20), version)

    def close(self) -> None:
        self._writer.close()

    async def get(self, path: str) -> bytes:
        self._write("GET", path, b"", "application/json")
        return await self._answer()

    async def post(self, path: str, body: bytes, accept: str = "application/json") -> bytes:
        """The whole body of the answer; of a stream, when it has ended."""
        self._write("POST", path, body, accept)
        return await self._answer()

    async def post_until(self, path: str, body: bytes, text: bytes) -> None:
        """Open a stream and read until `text` has come. The stream stays open."""
        self._write("POST", path, body, "text/event-stream")
        async with asyncio.timeout(DEADLINE_S):
            await self._head()
            seen = b""
            while text not in seen:
                piece = await self._reader.read(1 << 16)
                if not piece:
                    raise WrongAnswer(f"The stream ended before {text!r}: {seen[:400]!r}")
                seen += piece

    async def events(self, path: str, body: bytes) -> AsyncGenerator[tuple[float, dict[str, Any]], None]:
        """Open a stream; give each event as it comes, with the time of the monotonic clock at which it came.

        A server that tears an event into pieces gives none that can be read.
        """
        self._write("POST", path, body, "text/event-stream")
        async with asyncio.timeout(DEADLINE_S):
            await self._head()
            while (line := await self._reader.readline()) != b"0\r\n":
                came = time.monotonic()
                if not line:
                    raise WrongAnswer("The connection was closed in the middle of a stream.")
                if line.startswith(b"data:"):
                    yield came, _result(line[5:])

    def _write(self, method: str, path: str, body: bytes, accept: str) -> None:
        version = "A2A-Version: 1.0\r\n" if self.version == "1.0" else ""
        self._writer.write(
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{version}Accept: {accept}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )

    async def _head(self) -> dict[str, str]:
        status, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        if status.split()[1] != "200":
            raise WrongAnswer(f"HTTP {status.split(' ', 1)[1]}: {await self._reader.read(400)!r}")
        return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}

    async def _answer(self) -> bytes:
        async with asyncio.timeout(DEADLINE_S):
            headers = await self._head()
            if "content-length" in headers:
                return await self._reader.readexactly(int(headers["content-length"]))
            # Taken from the socket as it comes and taken apart when it is whole: a stream's time is the server's.
            pieces: list[bytes] = []
            tail = b""
            while not tail.endswith(b"\r\n0\r\n\r\n"):
                piece = await self._reader.read(1 << 18)
                if not piece:
                    raise WrongAnswer("The connection was closed in the middle of an answer.")
                pieces.append(piece)
                tail = tail[-7:] + piece
        return _without_chunks(b"".join(pieces))


def _without_chunks(body: bytes) -> bytes:
    pieces: list[bytes] = []
    at = 0
    while True:
        end = body.index(b"\r\n", at)
        size = int(body[at:end], 16)
        if size == 0:
            return b"".join(pieces)
        pieces.append(body[end + 2 : end + 2 + size])
        at = end + 4 + size


def send(text: str, *, stream: bool = False, message_id: str | None = None, version: Version = "1.0") -> bytes:
    """The request for an echo of `text`. Each has a message id of its own."""
    id_ = message_id or f"00000000-0000-4000-9000-{next(_numbers):012d}"
    if version == "0.3":
        old = {"kind": "message", "messageId": id_, "role": "user", "parts": [{"kind": "text", "text": text}]}
        return _request("message/stream" if stream else "message/send", {"message": old})
    message = {"messageId": id_, "role": "ROLE_USER", "parts": [{"text": text}]}
    return _request("SendStreamingMessage" if stream else "SendMessage", {"message": message})


def get_task(task_id: str, version: Version = "1.0") -> bytes:
    return _request("GetTask" if version == "1.0" else "tasks/get", {"id": task_id})


def subscribe(task_id: str) -> bytes:
    return _request("SubscribeToTask", {"id": task_id})


def _request(method: str, params: dict[str, Any]) -> bytes:
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return json.dumps(request, separators=(",", ":")).encode()


def _result(body: bytes, version: Version = "1.0") -> dict[str, Any]:
    """The result, in the form of 1.0 where it is a message, a task or an event."""
    answer = json.loads(body)
    if not isinstance(answer.get("result"), dict):
        raise WrongAnswer(f"Not a result: {body[:400]!r}")
    result: dict[str, Any] = answer["result"]
    return result if version == "1.0" else _from_03(result)


_NAMES_03 = {
    "message": "message",
    "task": "task",
    "status-update": "statusUpdate",
    "artifact-update": "artifactUpdate",
}
_ENDS_03 = ("completed", "failed", "canceled", "rejected", "input-required")


def _from_03(result: dict[str, Any]) -> dict[str, Any]:
    """A result of 0.3 as 1.0 has it; WrongAnswer for what 0.3 demands and it lacks."""
    kind = result.get("kind")
    require(kind in _NAMES_03, "Not of a kind that 0.3 has", result)
    artifacts = [result["artifact"]] if "artifact" in result else result.get("artifacts", [])
    parts = [part for artifact in artifacts for part in artifact["parts"]] + result.get("parts", [])
    require(all(part.get("kind") == "text" for part in parts), "Not parts of text as 0.3 has them", result)
    if kind == "message":
        result["role"] = "ROLE_" + result["role"].upper()
    if "status" in result:
        state = result["status"]["state"]
        if kind == "status-update":
            require(result.get("final") is (state in _ENDS_03), "Not final where it has to be", result)
        result["status"]["state"] = "TASK_STATE_" + state.upper()
    return {_NAMES_03[str(kind)]: result}


def require(right: bool, what: str, answer: object) -> None:
    if not right:
        raise WrongAnswer(f"{what}: {str(answer)[:600]}")


def check_message(body: bytes, text: str, version: Version = "1.0") -> None:
    result = _result(body, version)
    message = result.get("message", {})
    require(message.get("role") == "ROLE_AGENT", "Not a Message of the agent", result)
    require([part.get("text") for part in message["parts"]] == [text], "Not the text that was sent", result)


def check_task(task: dict[str, Any], text: str) -> str:
    """`task` is completed, with `text` as its one artifact. Return its id."""
    require(task.get("status", {}).get("state") == "TASK_STATE_COMPLETED", "Not completed", task)
    texts = [part.get("text") for artifact in task.get("artifacts", []) for part in artifact["parts"]]
    require(texts == [text], "Not the text that was sent", task)
    require(bool(task.get("id") and task.get("contextId")), "No ids", task)
    return str(task["id"])


def check_stream(body: bytes, chunks: int, version: Version = "1.0") -> None:
    """A stream of submitted, working, `chunks` chunks of one artifact, completed."""
    events = [_result(line[5:], version) for line in body.splitlines() if line.startswith(b"data:")]
    kinds = [next(iter(event)) for event in events]
    expected = ["task", "statusUpdate", *["artifactUpdate"] * chunks, "statusUpdate"]
    require(kinds == expected, f"Not the {chunks + 3} events of the stream", kinds)
    task, working, *artifacts, completed = (next(iter(event.values())) for event in events)
    states = [event["status"]["state"].removeprefix("TASK_STATE_") for event in (task, working, completed)]
    require(states == ["SUBMITTED", "WORKING", "COMPLETED"], "Not the states of the stream", states)
    texts = [part["text"] for event in artifacts for part in event["artifact"]["parts"]]
    require(texts == [f"chunk {number} of the answer" for number in range(chunks)], "Not the chunks", texts)
    ids = {event["artifact"]["artifactId"] for event in artifacts}
    require(len(ids) == 1, "Not one artifact", ids)
    appends = [event.get("append", False) for event in artifacts]
    require(appends == [False, *[True] * (chunks - 1)], "Not appended to the first chunk", appends)


async def find_rpc_path(connection: Connection) -> str:
    """Where the card says that JSON-RPC is spoken, as a path."""
    card = json.loads(await connection.get(CARD_PATH))
    for interface in card["supportedInterfaces"]:
        if interface["protocolBinding"] == "JSONRPC":
            return "/" + str(interface["url"]).partition("://")[2].partition("/")[2]
    raise WrongAnswer(f"The card offers no JSON-RPC: {card['supportedInterfaces']}")


async def send_message(connection: Connection, path: str, text: str) -> None:
    check_message(await connection.post(path, send(text, version=connection.version)), text, connection.version)


async def send_task(connection: Connection, path: str, text: str) -> str:
    """Return the id of the task."""
    version = connection.version
    return check_task(_result(await connection.post(path, send(text, version=version)), version).get("task", {}), text)


async def read_task(connection: Connection, path: str, task_id: str, text: str) -> None:
    version = connection.version
    result = _result(await connection.post(path, get_task(task_id, version)), version)
    found = check_task(result if version == "1.0" else result.get("task", {}), text)
    require(found == task_id, "Another task", found)


async def send_stream(connection: Connection, path: str, text: str, chunks: int) -> None:
    request = send(text, stream=True, version=connection.version)
    check_stream(await connection.post(path, request, "text/event-stream"), chunks, connection.version)


async def on_connections(
    port: int, connections: int, jobs: int, job: Callable[[Connection, int], Awaitable[object]]
) -> None:
    """Do `job` with the numbers below `jobs`, on so many connections at once."""
    numbers = iter(range(jobs))

    async def worker() -> None:
        connection = await Connection.open(port)
        try:
            for number in numbers:
                await job(connection, number)
        finally:
            connection.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(connections):
            group.create_task(worker())
