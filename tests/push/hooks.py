"""A webhook that remembers what it was told, and fails as often as a test wants it to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from tests.push.receiving import OK, Post, receiver
from tieline.engine.guard import Guard
from tieline.engine.push import Push

__all__ = ["Hook", "Told", "flaky", "hook", "push", "state_of", "status"]

Json = dict[str, Any]
Answer = Callable[[Post], bytes | None]

LIMIT_S: Final = 30.0
"""No test waits longer than this for a webhook."""


def status(code: int, *headers: bytes) -> bytes:
    """An answer without a body."""
    return b"\r\n".join((b"HTTP/1.1 %d Said" % code, b"Content-Length: 0", *headers, b"", b""))


def push(**settings: Any) -> Push:
    """Push to this machine, with pauses that a test can wait for."""
    pauses = {"first_pause_s": 0.01, "longest_pause_s": 0.04}
    return Push(**{"guard": Guard(allow_loopback=True), **pauses, **settings})


def flaky(seed: int, of_ten: int = 9) -> Answer:
    """A receiver that fails so many times of ten, each time in another way; one failure of some forty is silence."""
    random = Random(seed)
    quick = (
        status(500),
        status(503, b"Retry-After: 0"),
        status(404),
        status(307, b"Location: http://127.0.0.1:1/"),
        None,
        b"This is not HTTP.\r\n\r\n",
    )
    failures = (*quick * 6, b"")
    return lambda post: random.choice(failures) if random.random() * 10 < of_ten else OK


class Told(NamedTuple):
    """One notification that was acknowledged."""

    task_id: str
    id: str  # of the configuration
    number: int  # of the event
    body: Json
    post: Post


class Hook:
    """`told` are the notifications that it has acknowledged, in the order in which they came."""

    def __init__(self) -> None:
        self.answer: Answer = lambda post: OK
        self.posts: list[Post] = []
        self.told: list[Told] = []
        self.port = 0
        self._news = asyncio.Event()

    @property
    def url(self) -> str:
        return self.url_of("")

    def url_of(self, path: str) -> str:
        """One of several webhooks here."""
        return f"http://127.0.0.1:{self.port}/{path}"

    def take(self, post: Post) -> bytes | None:
        answer = self.answer(post)
        self.posts.append(post)
        if answer is not None and answer.startswith(b"HTTP/1.1 200 OK\r\nContent-Length:"):
            self.told.append(_told(post))
        self._news.set()
        return answer

    def of(self, path: str) -> list[Told]:
        """What one of several webhooks was told."""
        return [told for told in self.told if told.post.target == f"/{path}"]

    def numbers(self, path: str = "") -> list[int]:
        """The numbers of the events that it was told of, each where it came first: one that came again is left out."""
        return list(dict.fromkeys(told.number for told in self.of(path)))

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for notifications until it holds."""
        async with asyncio.timeout(LIMIT_S):
            while not holds():
                self._news.clear()
                await self._news.wait()

    async def until_told(self, state: str, path: str = "") -> list[Told]:
        """Wait until it was told of a state ("COMPLETED", in any version); returns what it was told."""
        await self.until(lambda: any(state_of(told.body) == state for told in self.of(path)))
        return self.of(path)


def state_of(body: Json) -> str | None:
    """The state that a notification tells, in whatever version; None for what tells none."""
    value = body.get("task") or body.get("statusUpdate") or body
    told = value.get("status")
    return None if told is None else str(told["state"]).removeprefix("TASK_STATE_").replace("-", "_").upper()


def _told(post: Post) -> Told:
    key = post.headers["idempotency-key"]
    assert key.startswith('"')
    assert key.endswith('"')
    task_id, id_, number = key[1:-1].split("/")
    return Told(unquote(task_id), unquote(id_), int(number), json.loads(post.body), post)


@asynccontextmanager
async def hook(answer: Answer | None = None, *, port: int = 0) -> AsyncGenerator[Hook, None]:
    """A webhook on this machine."""
    listening = Hook()
    if answer is not None:
        listening.answer = answer
    async with receiver(listening.take, port=port) as at:
        listening.port = at.port
        yield listening
