"""The operator's own port: /healthz, /readyz and /metrics apart from the agents, which are then not asked there.

One process tells of itself. With several the one that watches them has the port, asks each of them over a pair of
sockets, and tells of all: the metrics of each with a label that says which it is of.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterable, MutableMapping
from typing import Any, Final, Protocol, Self

import uvicorn
from uvicorn.server import ServerState

from tieline.server.asgi import App
from tieline.server.connections import close_slow, protocol
from tieline.server.health import METRICS_PATH, PROBE_PATHS, Ready, answer_probe, tell
from tieline.server.streams import Receive, Send

__all__ = ["AppPages", "NoAnswer", "OpsServer", "Pages", "WorkerLink", "WorkersPages", "answer_parent", "merged"]

log = logging.getLogger("tieline.server")

_ANSWER_S: Final = 2.0  # within which a worker has to answer
_OTHERS_S: Final = 0.1  # that is waited for the others once one is ready: probes have a second
_LOOK_S: Final = 1.0  # between two looks at who does not get on
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_READY: Final = "ready"
_METRICS: Final = "metrics"


class NoAnswer(Exception):
    """None of the workers has answered."""


class Pages(Protocol):
    """What is told on the port."""

    async def look(self) -> Ready:
        """What /readyz says."""
        ...

    async def metrics(self, accept: str) -> tuple[bytes, str] | None:
        """What /metrics says and its media type; None where there are none. Raises NoAnswer."""
        ...


class AppPages:
    """Those of one process."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def look(self) -> Ready:
        """See Pages.look."""
        return await self._app.readiness.look()

    async def metrics(self, accept: str) -> tuple[bytes, str] | None:
        """See Pages.metrics."""
        observer = self._app.observer
        return None if observer is None or observer.metrics is None else observer.metrics.page(accept)


class OpsServer:
    """Serves Pages at a port of their own, in the event loop that `start` is called in."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._state = ServerState()
        self._server: asyncio.Server | None = None
        self._looking: asyncio.Task[None] | None = None

    async def start(self, listening: socket.socket) -> None:
        """Answer what comes to this socket."""
        config = uvicorn.Config(
            self, lifespan="off", log_config=None, access_log=False, server_header=False, ws="none", http=protocol()
        )
        config.load()
        connection: Any = config.http_protocol_class
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: connection(config=config, server_state=self._state, app_state={}), sock=listening
        )
        self._looking = loop.create_task(self._look())

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            close_slow(self._state.connections, asyncio.get_running_loop().time())

    async def stop(self) -> None:
        """Close the port. Stopping twice is allowed."""
        server, self._server = self._server, None
        if self._looking is not None:
            self._looking.cancel()
        if server is not None:
            server.close()
            for connection in list(self._state.connections):
                connection.shutdown()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"the operator's port serves HTTP, not {scope['type']}")
        path, verb = scope["path"], scope["method"]
        if path in PROBE_PATHS:
            await answer_probe(path, verb, self._pages, send)
            return
        headers = dict(scope["headers"])
        page = None
        if path == METRICS_PATH:
            try:
                page = await self._pages.metrics(headers.get(b"accept", b"").decode("latin-1"))
            except NoAnswer:
                await tell(send, verb, 503, b"No worker answers.\n", content_type=b"text/plain")
                return
        if page is None:
            known = ", ".join((*sorted(PROBE_PATHS), METRICS_PATH))
            await tell(send, verb, 404, f"Here are {known}.\n".encode(), content_type=b"text/plain")
        elif verb not in ("GET", "HEAD"):
            await tell(send, verb, 405, b"", [(b"allow", b"GET, HEAD")])
        else:
            await tell(send, verb, 200, page[0], content_type=page[1].encode())


# --- a worker and the process that watches it -------------------------------------------------------------------------


async def answer_parent(link: socket.socket, pages: Pages) -> None:
    """Answer what the watching process asks over `link`, until that end is closed."""
    reader, writer = await asyncio.open_connection(sock=link)
    answering: set[asyncio.Task[None]] = set()  # all at once: a store that hangs holds up one who asks for readiness
    try:
        while line := await reader.readline():
            what, _, number = line.decode().partition(" ")
            task = asyncio.ensure_future(_answer(writer, pages, what, int(number)))
            answering.add(task)
            task.add_done_callback(answering.discard)
    finally:
        for task in answering:
            task.cancel()
        writer.close()


async def _answer(writer: asyncio.StreamWriter, pages: Pages, what: str, number: int) -> None:
    try:
        if what == _READY:
            found = await pages.look()
            body = b"" if found.ready else found.json
        else:
            page = await pages.metrics("")
            body = b"" if page is None else page[0]
        writer.write(b"%d %d\n" % (number, len(body)) + body)
        await writer.drain()
    except ConnectionError:
        pass  # the parent is gone, and so is this process in a moment
    except Exception:  # what a store or a collector of metrics raises must not end the link
        log.exception("the operator's port could not be told of this worker")


class WorkerLink:
    """The watching process's end of a link to one worker. Made by `over`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.begun = False  # whether the worker has said that it answers requests
        self._number = 0
        self._asked: dict[int, asyncio.Future[bytes]] = {}
        self._writer = writer
        self._gone = False
        self._reading = asyncio.ensure_future(self._read(reader))

    @classmethod
    async def over(cls, link: socket.socket) -> Self:
        """That end, which is one of a pair of sockets and this one's from here on."""
        return cls(*await asyncio.open_connection(sock=link))

    async def ready(self) -> str:
        """Whether the worker is to be sent requests: "ok", or what is wrong."""
        if not self.begun:
            return "starting"
        answer = await self._ask(_READY)
        if answer is None:
            return "no answer"
        return "ok" if not answer else "not ready"

    async def metrics(self) -> str | None:
        """The worker's metrics; "" when there are none, None when it does not answer."""
        answer = await self._ask(_METRICS) if self.begun else None
        return None if answer is None else answer.decode()

    async def _ask(self, what: str) -> bytes | None:
        if self._gone:
            return None
        self._number += 1
        number = self._number
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            self._writer.write(f"{what} {number}\n".encode())
            async with asyncio.timeout(_ANSWER_S):
                return await answer
        except (TimeoutError, OSError):
            return None
        finally:
            del self._asked[number]

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                number, length = map(int, line.split())
                body = await reader.readexactly(length)
                if (answer := self._asked.get(number)) is not None and not answer.done():
                    answer.set_result(body)
        except (OSError, asyncio.IncompleteReadError):
            pass  # it has died
        self._gone = True  # another worker has another link
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(ConnectionResetError())

    def close(self) -> None:
        """The worker is gone."""
        self._reading.cancel()
        self._writer.close()


class WorkersPages:
    """Those of several processes."""

    def __init__(self, links: dict[int, WorkerLink], ending: asyncio.Event) -> None:
        self._links = links  # by the number of the worker, from 1
        self._ending = ending

    async def look(self) -> Ready:
        """Ready while one of them is: the others' requests go to it. It does not wait long for these."""
        asked = {number: asyncio.ensure_future(link.ready()) for number, link in sorted(self._links.items())}
        try:
            for one in asyncio.as_completed(asked.values()):
                if await one == "ok":
                    await asyncio.wait(asked.values(), timeout=_OTHERS_S)
                    break
            found = {number: task.result() if task.done() else "no answer" for number, task in asked.items()}
        finally:
            for task in asked.values():
                task.cancel()
        leaving = self._ending.is_set()
        checks = {"drain": "this server is shutting down" if leaving else "ok"}
        checks |= {f"worker {number}": said for number, said in found.items()}
        return Ready(checks, not leaving and "ok" in found.values())

    async def metrics(self, accept: str) -> tuple[bytes, str] | None:
        """Those of all that answer, each with the label `worker`. Raises NoAnswer."""
        links = sorted(self._links.items())
        found = await asyncio.gather(*(link.metrics() for _, link in links))
        pages = {number: page for (number, _), page in zip(links, found, strict=True) if page is not None}
        if not pages:
            raise NoAnswer
        page = merged((str(number), page) for number, page in pages.items())
        return (page.encode(), _TEXT) if page else None


def merged(pages: Iterable[tuple[str, str]]) -> str:
    """Several processes' metrics as one page: each sample gets the label `worker`, and each name is there once."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for worker, page in pages:
        family = ""
        for line in page.splitlines():
            if line.startswith("# HELP "):
                family = line.split(" ", 3)[2]
                heads.setdefault(family, [])
                if not any(head.startswith("# HELP ") for head in heads[family]):
                    heads[family].append(line)
            elif line.startswith("# TYPE "):
                if not any(head.startswith("# TYPE ") for head in heads.setdefault(family, [])):
                    heads[family].append(line)
            elif line and not line.startswith("#"):
                name, brace, labels = line.partition("{")
                if brace and " " not in name:
                    line = f'{name}{{worker="{worker}",{labels}'
                else:
                    name, _, value = line.partition(" ")
                    line = f'{name}{{worker="{worker}"}} {value}'
                samples.setdefault(family, []).append(line)
    lines = [line for family, head in heads.items() for line in (*head, *samples.get(family, ()))]
    return "".join(f"{line}\n" for line in lines)
