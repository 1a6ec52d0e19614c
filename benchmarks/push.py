"""What webhooks cost the streams of their tasks: 20 of 100 events a second each, with a webhook each, and without.

    python -m benchmarks.push [--tasks 20] [--rate 100] [--seconds 3] [--rounds 3]

The server runs on one core; whoever reads the streams and the webhooks on another. An event carries the time at which
the agent gave it; its latency is what passes until the stream has it, and "webhooks behind" until its webhook has it.
In each round the three take turns: without webhooks, with webhooks that answer, and with webhooks that never do; the
next one begins when all has been told. "told a second" counts from the first notification of a round to its last. The
store is SQLite, as `tieline serve` has it.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import re
import socket
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import ClassVar, Final, cast

import uvloop

import tieline
from tieline import Limits, TaskArtifactUpdateEvent, TaskPushNotificationConfig, Turn, agent
from tieline.engine.guard import Guard
from tieline.engine.push import Push

_KINDS: Final = ("without", "answering", "silent")
_TOTAL_S: Final = 60.0
_TOLD: Final = re.compile(rb"(\d{9,}) ")  # in a notification: when the agent gave the text


@agent(name="Ticker", description="Says the time so many times a second.")
async def ticker(turn: Turn) -> AsyncGenerator[str, None]:
    count, rate = (int(word) for word in turn.text.split())
    began = time.monotonic()
    for number in range(count):
        await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
        yield f"{time.monotonic_ns()} "


def _serve(port: int, folder: str) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    push = Push(guard=Guard(allow_loopback=True))
    app = tieline.app(ticker, store=f"sqlite:{folder}/tasks.db", push=push, limits=Limits())
    import uvicorn

    uvicorn.run(app, port=port, log_level="warning", access_log=False, loop="uvloop", http="httptools")


class _Webhook(asyncio.Protocol):
    """Answers each notification, or none."""

    told: ClassVar[list[tuple[float, float]]] = []  # when, in seconds, and how long after the event, in milliseconds

    def __init__(self, silent: bool) -> None:
        self._silent = silent
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
            if not self._silent:
                now = time.monotonic_ns()
                for given in _TOLD.findall(body):
                    _Webhook.told.append((now / 1e9, (now - int(given)) / 1e6))
                self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


async def _round(url: str, hook: str | None, tasks: int, rate: int, count: int) -> tuple[list[float], float]:
    """Latencies of all events in milliseconds, and events a second."""
    latencies: list[float] = []
    async with tieline.connect(url) as peer:

        async def one(number: int) -> None:
            webhook = None if hook is None else TaskPushNotificationConfig(f"{hook}{number}")
            async for event in peer.stream(f"{count} {rate}", webhook=webhook):
                now = time.monotonic_ns()
                if isinstance(event, TaskArtifactUpdateEvent):
                    words = (event.artifact.parts[0].text or "").split()
                    latencies.extend((now - int(word)) / 1e6 for word in words)

        began = time.monotonic()
        await asyncio.gather(*[one(number) for number in range(tasks)])
        took = time.monotonic() - began
    if len(latencies) != tasks * count:
        raise RuntimeError(f"{tasks * count} events were to come, not {len(latencies)}")
    return latencies, len(latencies) / took


async def _measure(port: int, tasks: int, rate: int, seconds: float, rounds: int) -> None:
    url = f"http://127.0.0.1:{port}"
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(_TOTAL_S):
        while True:
            try:
                await loop.create_connection(asyncio.Protocol, "127.0.0.1", port)
                break
            except OSError:
                await asyncio.sleep(0.05)
    hooks: dict[str, str | None] = {"without": None}
    for kind in _KINDS[1:]:
        server = await loop.create_server(partial(_Webhook, kind == "silent"), "127.0.0.1", 0)
        hooks[kind] = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    count = int(rate * seconds)
    await _round(url, None, 2, rate, 20)
    figures: dict[str, list[tuple[float, float, float]]] = {kind: [] for kind in _KINDS}
    behind: list[tuple[float, float, float]] = []
    for _ in range(rounds):
        for kind in _KINDS:
            latencies, events = await _round(url, hooks[kind], tasks, rate, count)
            figures[kind].append((*_cuts(latencies), events))
            if kind == "answering":
                async with asyncio.timeout(_TOTAL_S):
                    while len(_Webhook.told) < tasks * count:  # noqa: ASYNC110 - it is known by asking only
                        await asyncio.sleep(0.05)
                when, late = zip(*_Webhook.told, strict=True)
                behind.append((*_cuts(late), len(when) / (max(when) - min(when))))
                _Webhook.told.clear()
    print(f"{tasks} tasks of {rate} events a second each; medians of {rounds} rounds\n")
    print("| webhooks | p50, ms | p99, ms | events a second | p50, times | p99, times |")
    print("|---|---|---|---|---|---|")
    for kind, found in figures.items():
        p50, p99, events = (statistics.median(each[index] for each in found) for index in range(3))
        times = [
            statistics.median(one[index] / base[index] for one, base in zip(found, figures["without"], strict=True))
            for index in range(2)
        ]
        print(f"| {kind} | {p50:.2f} | {p99:.2f} | {events:,.0f} | {times[0]:.2f} | {times[1]:.2f} |")
    p50, p99, told = (statistics.median(each[index] for each in behind) for index in range(3))
    print(f"\nwebhooks behind: p50 {p50:.2f} ms, p99 {p99:.2f} ms; told a second: {told:,.0f}")


def _cuts(values: Sequence[float]) -> tuple[float, float]:
    """The median and the 99th of a hundred."""
    return statistics.median(values), statistics.quantiles(values, n=100)[98]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--rate", type=int, default=100, help="events a second of each task")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long a task takes")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        server = multiprocessing.get_context("spawn").Process(target=_serve, args=(port, folder), daemon=True)
        server.start()
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        try:
            uvloop.run(_measure(port, given.tasks, given.rate, given.seconds, given.rounds))
        finally:
            server.kill()
            server.join()


if __name__ == "__main__":
    main()
