"""How many webhooks are called a second, by tieline's sender and as the official SDK calls them (a2a-sdk, httpx).

    python -m benchmarks.webhooks [--seconds 3] [--at-once 32] [--hooks 4]

Each sender runs on one core, the webhooks on another; they answer 200 without a body. Rounds take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from typing import cast

import uvloop

from tieline.engine.guard import Guard
from tieline.engine.notification import idempotency_key, notification_headers
from tieline.engine.sender import Sender
from tieline.types import AuthenticationInfo, TaskPushNotificationConfig

_EVENT = {"statusUpdate": {"taskId": "t" * 32, "contextId": "c" * 32, "status": {"state": "TASK_STATE_WORKING"}}}
_ROUNDS = 3


class _Webhook(asyncio.Protocol):
    """Answers each request of a connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._data = b""

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            head = self._data[:end].lower()
            length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
            if len(self._data) < end + 4 + length:
                return
            self._data = self._data[end + 4 + length :]
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


def _webhooks(count: int, told: Connection) -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        servers = [await loop.create_server(_Webhook, "127.0.0.1", 0) for _ in range(count)]
        told.send([server.sockets[0].getsockname()[1] for server in servers])
        await asyncio.Event().wait()

    uvloop.run(serve())


Post = Callable[[str, int], Awaitable[bool]]


async def _posts_a_second(post: Post, urls: list[str], at_once: int, seconds: float) -> float:
    done = 0
    end = time.perf_counter() + seconds

    async def caller(number: int) -> None:
        nonlocal done
        while time.perf_counter() < end:
            done += 1
            if not await post(urls[number % len(urls)], done):
                raise RuntimeError("a webhook was not reached")

    await asyncio.gather(*[caller(number) for number in range(at_once)])
    return done / seconds


async def _by_tieline(urls: list[str], at_once: int, seconds: float) -> float:
    sender = Sender(Guard(allow_loopback=True), at_once=at_once, at_once_per_host=at_once)
    body = json.dumps(_EVENT).encode()

    async def post(url: str, number: int) -> bool:
        config = TaskPushNotificationConfig(url, token="token", authentication=AuthenticationInfo("Bearer", "secret"))
        sent = await sender.post(url, notification_headers(config, idempotency_key("t", "c", number)), body)
        return sent.delivered

    try:
        return await _posts_a_second(post, urls, at_once, seconds)
    finally:
        await sender.close()


async def _by_httpx(urls: list[str], at_once: int, seconds: float) -> float:
    import httpx

    async with httpx.AsyncClient() as client:

        async def post(url: str, number: int) -> bool:
            headers = {"X-A2A-Notification-Token": "token", "Authorization": "Bearer secret"}
            return (await client.post(url, json=_EVENT, headers=headers)).is_success

        return await _posts_a_second(post, urls, at_once, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--at-once", type=int, default=32)
    parser.add_argument("--hooks", type=int, default=4, help="webhooks at different ports")
    given = parser.parse_args()
    here, there = multiprocessing.Pipe()
    webhooks = multiprocessing.get_context("spawn").Process(target=_webhooks, args=(given.hooks, there), daemon=True)
    webhooks.start()
    ports = here.recv()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    figures: dict[str, list[float]] = {"tieline": [], "httpx, as a2a-sdk": []}
    for _ in range(_ROUNDS):
        for name, measure, host in (
            ("tieline", _by_tieline, "localhost"),
            ("httpx, as a2a-sdk", _by_httpx, "127.0.0.1"),
        ):
            urls = [f"http://{host}:{port}/hook" for port in ports]
            figures[name].append(uvloop.run(measure(urls, given.at_once, given.seconds)))
    webhooks.kill()
    ours, theirs = (statistics.median(found) for found in figures.values())
    print(f"| {'sender':<18} | posts a second |")
    print("|---|---|")
    for name, found in figures.items():
        print(f"| {name:<18} | {statistics.median(found):>14,.0f} |")
    print(f"\n{ours / theirs:.1f} times as many")


if __name__ == "__main__":
    main()
