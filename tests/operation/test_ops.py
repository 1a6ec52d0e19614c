"""What the process that watches several workers tells of them, while some are slow, starting or dead."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.databases import RedisServer, redis_server
from tests.engine.scene import within
from tests.operation.serving import call, fetch, sending, serving
from tests.server.raw import Wire
from tieline.ids import new_id
from tieline.server.health import Ready
from tieline.server.ops import NoAnswer, OpsServer, WorkerLink, WorkersPages, answer_parent
from tieline.server.protocol import Connection
from tieline.server.serve import bind

READY = Ready({"store": "ok"}, True)
UNREADY = Ready({"store": "not available"}, False)


class Told:
    """A worker's pages. It answers when it may."""

    def __init__(self, found: Ready = READY, *, silent: bool = False, fails: bool = False) -> None:
        self.found = found
        self.may = asyncio.Event()
        self.fails = fails
        self.looks = 0
        if not silent:
            self.may.set()

    async def look(self) -> Ready:
        self.looks += 1
        await self.may.wait()
        return self.found

    async def metrics(self, accept: str) -> tuple[bytes, str] | None:
        if self.fails:
            raise RuntimeError("a collector")
        return b"# TYPE a gauge\na 1.0\n", "text/plain"


@asynccontextmanager
async def linked(*workers: Told | None) -> AsyncIterator[WorkersPages]:
    """The pages of these workers; None is one that has been started, and answers nothing yet."""
    links: dict[int, WorkerLink] = {}
    answering = []
    theirs = []
    for number, worker in enumerate(workers, 1):
        one, other = socket.socketpair()
        links[number] = await WorkerLink.over(one)
        if worker is None:
            theirs.append(other)
        else:
            links[number].begun = True
            answering.append(asyncio.ensure_future(answer_parent(other, worker)))
    try:
        yield WorkersPages(links, asyncio.Event())
    finally:
        for link in links.values():
            link.close()
        for task in answering:
            task.cancel()
        await asyncio.gather(*answering, return_exceptions=True)
        for each in theirs:
            each.close()


@within(10)
async def test_a_worker_that_is_slow_or_starting_holds_up_no_probe_while_another_is_ready() -> None:
    slow = Told(silent=True)
    async with linked(slow, Told(), None) as pages, asyncio.timeout(1):
        found = await pages.look()
        assert found.ready
        assert found.checks == {"drain": "ok", "worker 1": "no answer", "worker 2": "ok", "worker 3": "starting"}


@within(10)
async def test_workers_that_are_all_unready_are_each_told() -> None:
    async with linked(Told(UNREADY), None) as pages:
        found = await pages.look()
        assert not found.ready
        assert found.checks == {"drain": "ok", "worker 1": "not ready", "worker 2": "starting"}


@within(10)
async def test_a_store_that_hangs_holds_up_no_metrics_and_no_second_probe() -> None:
    worker = Told(UNREADY, silent=True)
    async with linked(worker) as pages:
        probes = [asyncio.ensure_future(pages.look()) for _ in range(20)]
        page = await pages.metrics("")
        assert page is not None
        assert page[0] == b'# TYPE a gauge\na{worker="1"} 1.0\n'
        while worker.looks < 20:  # noqa: ASYNC110 - all are asked at the same time
            await asyncio.sleep(0)
        worker.may.set()
        assert {(await probe).checks["worker 1"] for probe in probes} == {"not ready"}


@within(10)
async def test_many_who_ask_a_new_worker_first_all_get_their_answer() -> None:
    async with linked(Told()) as pages:
        found = await asyncio.gather(*(pages.look() for _ in range(10)), *(pages.metrics("") for _ in range(10)))
        assert all(each is not None for each in found)


@within(10)
async def test_a_page_that_cannot_be_made_costs_no_other() -> None:
    async with linked(Told(fails=True)) as pages:
        scrape = asyncio.ensure_future(pages.metrics(""))
        assert (await pages.look()).ready
        scrape.cancel()


@within(10)
async def test_where_no_worker_answers_there_are_no_metrics_for_now() -> None:
    async with linked(None) as pages:
        try:
            await pages.metrics("")
        except NoAnswer:
            return
        raise AssertionError("there was an answer")


@within(30)
async def test_connections_of_the_operators_port_have_the_limits_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "head_s", 0.2)
    listening = bind("127.0.0.1", 0)
    port: int = listening.getsockname()[1]
    server = OpsServer(Told())
    await server.start(listening)
    try:
        for head, status in (
            (b"GET /healthz HTTP/1.1\r\nHost: x\r\n", b"HTTP/1.1 408 "),
            (b"", b"HTTP/1.1 408 "),
            (b"GET /healthz HTTP/1.1\r\nX-H: " + b"x" * 100_000, b"HTTP/1.1 431 "),
            (b"GET /healthz HTTP/1.1\r\nConnection: upgrade, close\r\nUpgrade: h2c\r\n\r\n", b"HTTP/1.1 200 "),
        ):
            async with Wire(port) as wire:
                await wire.send(head)
                assert (await wire.reader.read()).startswith(status), head[:40]
    finally:
        await server.stop()


@within(60)
async def test_a_worker_that_is_started_again_costs_no_readiness_and_its_death_is_a_warning(tmp_path: Path) -> None:
    url = redis_server().url(f"o{new_id()[:8]}")
    options = ("--workers", "2", "--metrics", "--ops-port", "0", "--log-format", "json")
    async with serving(tmp_path, *options, store=url) as here:
        await here.ready()
        os.kill(here.children()[0], signal.SIGKILL)
        said: set[str] = set()
        again = False
        while not again:
            found = await fetch(f"{here.ops}/readyz", limit_s=1)  # as a probe does
            checks = found.json["checks"]
            assert found.status == 200
            assert checks["worker 2"] == "ok"
            again = checks["worker 1"] == "ok" and "starting" in said
            said.add(checks["worker 1"])
        here.signal(signal.SIGTERM)
        assert await here.ended() == 0
    (event,) = here.having(level="WARNING", logger="tieline.serve")
    assert "has died (signal 9)" in event["message"]


@within(60)
async def test_workers_that_are_told_to_end_while_they_start_have_ended_as_they_should(tmp_path: Path) -> None:
    url = redis_server().url(f"o{new_id()[:8]}")
    async with serving(tmp_path, "--workers", "2", "--ops-port", "0", store=url) as here:
        await here.ready()
        (victim,) = here.children()[:1]
        os.kill(victim, signal.SIGKILL)
        while victim in (now := here.children()) or len(now) < 2:  # noqa: ASYNC110 - it is not ours to wait for
            await asyncio.sleep(0.005)
        here.signal(signal.SIGTERM)
        assert await here.ended() == 0


@within(60)
async def test_metrics_of_workers_whose_database_hangs_are_told(tmp_path: Path) -> None:
    with RedisServer() as database:
        async with serving(tmp_path, "--workers", "2", "--metrics", "--ops-port", "0", store=database.url()) as here:
            await call(here.url, "SendMessage", sending("hi"))
            database.pause()
            try:
                probes = [asyncio.ensure_future(fetch(f"{here.ops}/readyz")) for _ in range(8)]
                assert (await fetch(f"{here.ops}/metrics")).status == 200
                for probe in probes:
                    found = (await probe).json["checks"]
                    assert {found["worker 1"], found["worker 2"]} <= {"not ready", "ok"}
            finally:
                database.resume()
