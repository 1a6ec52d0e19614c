"""What webhooks cost: the streams of their tasks, and the sender.

Streams: 20 tasks of 100 events a second each, on SQLite, as `tieline serve` has it. An event carries the time at which
the agent gave it. Webhooks answer at once, or never; the server without any takes its turn before and behind them.

Sender: POSTs of one notification to four webhooks, 32 at once, as tieline sends them and as the official SDK does
(httpx), each on the server's core; whoever reads streams and answers webhooks is on that of the load.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import re
import socket
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, ClassVar, Final, cast

import uvloop

import tieline
from benchmarks.servers import CannotRun
from benchmarks.works import Figures, Row, Settings, Work
from tieline import Limits, TaskArtifactUpdateEvent, TaskPushNotificationConfig, Turn, agent
from tieline.engine.guard import Guard
from tieline.engine.notification import idempotency_key, notification_headers
from tieline.engine.push import Push
from tieline.engine.sender import Sender
from tieline.types import AuthenticationInfo

TASKS: Final = 20
A_SECOND: Final = 100  # events of each

STREAMS = f"{TASKS} streams of {A_SECOND} events a second with webhooks, to without"
TOLD = f"notifications a second of {TASKS * A_SECOND:,} events, while they stream"
BEHIND = "from said to its webhook"
WITHOUT, WITH, SILENT = (f"from said to streamed, {kind} webhooks" for kind in ("without", "with", "with silent"))
POSTS = "POSTs to webhooks"

_LIMIT_S: Final = 60.0
_SAID: Final = re.compile(rb"(\d{9,}) ")  # in a notification: when the agent has said the text
_ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
_SPAWN: Final = multiprocessing.get_context("spawn")


class _Webhook(asyncio.Protocol):
    """Answers each notification, or none; keeps when each came, and how long behind what it tells of (nanoseconds)."""

    told: ClassVar[list[tuple[int, int]]] = []

    def __init__(self, answers: bool) -> None:
        self._answers = answers
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            length = int(self._data[:end].lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            if len(self._data) < end + 4 + length:
                return
            body, self._data = self._data[end + 4 : end + 4 + length], self._data[end + 4 + length :]
            if self._answers:
                now = time.monotonic_ns()
                self.told.extend((now, now - int(said)) for said in _SAID.findall(body))
                self._transport.write(_ANSWER)


async def _webhooks(count: int, answers: bool) -> list[int]:
    """The ports of so many webhooks."""
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(partial(_Webhook, answers), "127.0.0.1", 0) for _ in range(count)]
    return [server.sockets[0].getsockname()[1] for server in servers]


# --- streams ----------------------------------------------------------------------------------------------------------


@agent(name="Ticker", description="Says the time so many times a second.")
async def ticker(turn: Turn) -> AsyncGenerator[str, None]:
    began = time.monotonic()
    for number in range(int(turn.text)):
        await asyncio.sleep(max(0.0, began + number / A_SECOND - time.monotonic()))
        yield f"{time.monotonic_ns()} "


def _serve(port: int, folder: str, core: int) -> None:
    import uvicorn

    os.sched_setaffinity(0, {core})
    push = Push(guard=Guard(allow_loopback=True))
    app = tieline.app(ticker, store=f"sqlite:{folder}/tasks.db", push=push, limits=Limits())
    uvicorn.run(app, port=port, log_level="warning", access_log=False, loop="uvloop", http="httptools")


def _streams(settings: Settings) -> Figures:
    if "tieline" not in settings.contestants:
        return {}
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        server = _SPAWN.Process(target=_serve, args=(port, folder, settings.cores.server), daemon=True)
        server.start()
        try:
            return {row: {"tieline": figure} for row, figure in uvloop.run(_take_turns(port, settings)).items()}
        finally:
            server.kill()
            server.join()


async def _take_turns(port: int, settings: Settings) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(_LIMIT_S):
        while True:
            try:
                await loop.create_connection(asyncio.Protocol, "127.0.0.1", port)
                break
            except OSError:
                await asyncio.sleep(0.05)
    url, count = f"http://127.0.0.1:{port}", int(A_SECOND * settings.seconds)
    (answering,), (silent,) = await _webhooks(1, answers=True), await _webhooks(1, answers=False)
    await _round(url, None, 20)  # a warm-up

    before = await _round(url, None, count)
    _Webhook.told.clear()
    told = await _round(url, answering, count)
    async with asyncio.timeout(_LIMIT_S):
        while len(_Webhook.told) < TASKS * count:  # noqa: ASYNC110 - it is known by asking only
            await asyncio.sleep(0.05)
    when, behind = zip(*_Webhook.told, strict=True)
    not_told = await _round(url, silent, count)
    after = await _round(url, None, count)

    return {
        STREAMS: 2 * told[1] / (before[1] + after[1]),
        TOLD: (len(when) - 1) / (max(when) - min(when)) * 1e9,
        WITHOUT: statistics.median([*before[0], *after[0]]),
        WITH: statistics.median(told[0]),
        SILENT: statistics.median(not_told[0]),
        BEHIND: statistics.median(behind) / 1e6,
    }


async def _round(url: str, webhook: int | None, count: int) -> tuple[list[float], float]:
    """Milliseconds from said to streamed, of each event, and events a second."""
    taken: list[float] = []
    async with tieline.connect(url) as peer:

        async def one(number: int) -> None:
            config = None
            if webhook is not None:
                config = TaskPushNotificationConfig(f"http://127.0.0.1:{webhook}/{number}")
            async for event in peer.stream(str(count), webhook=config):
                now = time.monotonic_ns()
                if isinstance(event, TaskArtifactUpdateEvent):
                    said = (event.artifact.parts[0].text or "").split()
                    taken.extend((now - int(each)) / 1e6 for each in said)

        began = time.monotonic()
        await asyncio.gather(*[one(number) for number in range(TASKS)])
        took = time.monotonic() - began
    if len(taken) != TASKS * count:
        raise CannotRun(f"{TASKS * count} events were to come, not {len(taken)}")
    return taken, len(taken) / took


# --- the sender -------------------------------------------------------------------------------------------------------

_HOOKS, _AT_ONCE = 4, 32
_EVENT = {"statusUpdate": {"taskId": "t" * 32, "contextId": "c" * 32, "status": {"state": "TASK_STATE_WORKING"}}}

_Post = Callable[[str, int], Awaitable[bool]]


def _posts(settings: Settings) -> Figures:
    figures: dict[str, float] = {}
    for name, sending in (("a2a-sdk", _by_httpx), ("tieline", _by_tieline)):
        if name in settings.contestants:
            figures[name] = uvloop.run(_load(sending, settings))
    return {POSTS: figures}


_Sending = Callable[[list[str], float], Coroutine[Any, Any, float]]


async def _load(sending: _Sending, settings: Settings) -> float:
    """POSTs a second of a sender in a process of its own."""
    urls = [f"http://127.0.0.1:{port}/hook" for port in await _webhooks(_HOOKS, answers=True)]
    here, there = multiprocessing.Pipe()
    process = _SPAWN.Process(target=_send, args=(sending, urls, settings, there), daemon=True)
    process.start()
    there.close()
    try:
        return await asyncio.to_thread(here.recv)
    except EOFError:
        raise CannotRun("a sender has failed") from None
    finally:
        process.join()


def _send(sending: _Sending, urls: list[str], settings: Settings, there: Connection) -> None:
    os.sched_setaffinity(0, {settings.cores.server})
    there.send(uvloop.run(sending(urls, settings.seconds)))


async def _posts_a_second(post: _Post, urls: list[str], seconds: float) -> float:
    done = 0
    began = time.perf_counter()

    async def caller(number: int) -> None:
        nonlocal done
        while time.perf_counter() < began + seconds:
            done += 1
            if not await post(urls[number % len(urls)], done):
                raise CannotRun("a webhook was not reached")

    await asyncio.gather(*[caller(number) for number in range(_AT_ONCE)])
    return done / (time.perf_counter() - began)


async def _by_tieline(urls: Sequence[str], seconds: float) -> float:
    sender = Sender(Guard(allow_loopback=True), at_once=_AT_ONCE, at_once_per_host=_AT_ONCE)
    body = json.dumps(_EVENT).encode()

    async def post(url: str, number: int) -> bool:
        config = TaskPushNotificationConfig(url, token="token", authentication=AuthenticationInfo("Bearer", "secret"))
        sent = await sender.post(url, notification_headers(config, idempotency_key("t", "c", number)), body)
        return sent.delivered

    try:
        return await _posts_a_second(post, list(urls), seconds)
    finally:
        await sender.close()


async def _by_httpx(urls: Sequence[str], seconds: float) -> float:
    import httpx

    async with httpx.AsyncClient() as client:

        async def post(url: str, number: int) -> bool:
            headers = {"X-A2A-Notification-Token": "token", "Authorization": "Bearer secret"}
            return (await client.post(url, json=_EVENT, headers=headers)).is_success

        return await _posts_a_second(post, list(urls), seconds)


PUSH_WORKS = (
    Work(
        "push",
        (
            Row(STREAMS, "ratio", at_least=0.95),
            Row(TOLD, "/s", at_least=0.95 * TASKS * A_SECOND),
            Row(WITHOUT, "ms"),
            Row(WITH, "ms"),
            Row(SILENT, "ms"),
            Row(BEHIND, "ms"),
        ),
        _streams,
    ),
    Work("webhooks", (Row(POSTS, "/s", times_sdk=3),), _posts),
)
