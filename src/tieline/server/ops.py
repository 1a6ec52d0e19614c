"""The operator's own port: /healthz, /readyz and /metrics apart from the agents, which are then not asked there.

One process tells of itself. With several the one that watches them has the port, asks each of them over a pair of
sockets, and tells of all: the metrics of each with a label that says which it is of.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, MutableMapping
from typing import Any, Final, Protocol

import uvicorn
from uvicorn.server import ServerState

from tieline.server.asgi import App
from tieline.server.health import METRICS_PATH, PROBE_PATHS, Ready, answer_probe, tell
from tieline.server.streams import Receive, Send

__all__ = ["AppPages", "OpsServer", "Pages", "WorkerLink", "WorkersPages", "answer_parent", "merged"]

_ANSWER_S: Final = 2.0  # within which a worker has to answer
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_READY: Final = "ready"
_METRICS: Final = "metrics"


class Pages(Protocol):
    """What is told on the port."""

    async def look(self) -> Ready:
        """What /readyz says."""
        ...

    async def metrics(self, accept: str) -> tuple[bytes, str] | None:
        """What /metrics says and its media type; None where there are none."""
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

    async def start(self, listening: socket.socket) -> None:
        """Answer what comes to this socket."""
        config = uvicorn.Config(self, lifespan="off", log_config=None, access_log=False, server_header=False)
        config.load()
        protocol: Any = config.http_protocol_class
        self._server = await asyncio.get_running_loop().create_server(
            lambda: protocol(config=config, server_state=self._state, app_state={}), sock=listening
        )

    async def stop(self) -> None:
        """Close the port. Stopping twice is allowed."""
        server, self._server = self._server, None
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
            page = await self._pages.metrics(headers.get(b"accept", b"").decode("latin-1"))
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
    try:
        while line := await reader.readline():
            what, _, number = line.decode().partition(" ")
            if what == _READY:
                found = await pages.look()
                body = b"" if found.ready else found.json
            else:
                page = await pages.metrics("")
                body = b"" if page is None else page[0]
            writer.write(b"%d %d\n" % (int(number), len(body)) + body)
            await writer.drain()
    except ConnectionError:
        pass  # it was closed while something was to be answered
    finally:
        writer.close()


class WorkerLink:
    """The watching process's end of a link to one worker. Made by `over`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._number = 0
        self._asked: dict[int, asyncio.Future[bytes]] = {}
        self._writer = writer
        self._reading = asyncio.ensure_future(self._read(reader))
        self._gone = False

    @classmethod
    async def over(cls, link: socket.socket) -> WorkerLink:
        """That end, which is one of a pair of sockets and this one's from here on."""
        return cls(*await asyncio.open_connection(sock=link))

    async def ready(self) -> str:
        """Whether the worker is to be sent requests: "ok", or what is wrong."""
        answer = await self._ask(_READY)
        if answer is None:
            return "no answer"
        return "ok" if not answer else "not ready"

    async def metrics(self) -> str:
        """The worker's metrics; "" when there are none, or it does not answer."""
        return (await self._ask(_METRICS) or b"").decode()

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
        """Ready while one of them is: the others' requests go to it."""
        links = sorted(self._links.items())
        found = await asyncio.gather(*(link.ready() for _, link in links))
        leaving = self._ending.is_set()
        checks = {"drain": "this server is shutting down" if leaving else "ok"}
        checks |= {f"worker {number}": said for (number, _), said in zip(links, found, strict=True)}
        return Ready(checks, not leaving and "ok" in found)

    async def metrics(self, accept: str) -> tuple[bytes, str] | None:
        """Those of all, each with the label `worker`."""
        links = sorted(self._links.items())
        pages = await asyncio.gather(*(link.metrics() for _, link in links))
        page = merged((str(number), page) for (number, _), page in zip(links, pages, strict=True))
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
