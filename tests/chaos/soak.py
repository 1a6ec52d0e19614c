"""Replicas at half of the load that they can carry, for as long as is wanted: what they hold must not grow."""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Final

import aiohttp

import tieline
from tests.chaos import plan
from tests.chaos.callers import Callers
from tests.chaos.measures import Held, held, slope
from tests.chaos.replicas import Balancer, Replicas, replicas_on
from tests.chaos.run import SERVERS, migrated
from tieline.stores import open_store

__all__ = ["main"]

_FULL_S: Final = 60.0  # for finding the full load, of which the first third is not counted
_LANES: Final = 200  # callers that find it, each with one task behind the other
_MOST: Final = 400  # tasks at once, when the replicas do not keep up
_EVERY_S: Final = 10.0  # between two looks
_QUIET_S: Final = 20.0  # until all has ended when nobody begins anything any more
_GRACE_S: Final = 30.0
_WARM: Final = 0.25  # of the time: memory is not judged by it
_GROWTH: Final = 0.04  # of the memory, over the time in which it is judged; noise is below that


@dataclass(frozen=True)
class Look:
    """What there was at one moment."""

    at: float  # seconds since the load is steady
    done: int  # tasks up to now
    open: int  # tasks in the store that have not ended
    held: Sequence[Held]  # by each replica


@dataclass
class Soak:
    """What was seen."""

    seed: int
    full: float = 0.0  # tasks a second
    before: Sequence[Held] = ()  # before any call
    after: Look | None = None  # when all has ended and every caller has gone
    looks: list[Look] = field(default_factory=list)
    done: int = 0
    skipped: int = 0  # tasks that were not begun, as too many were at work
    wrong: list[str] = field(default_factory=list)  # what callers found

    def faults(self) -> list[str]:
        """What is wrong."""
        found = list(self.wrong)
        after = self.after
        assert after is not None
        if after.open:
            found.append(f"{after.open} tasks have not ended {_QUIET_S:g} s behind the last call")
        end = self.looks[-1].at if self.looks else 0.0
        judged = [look for look in self.looks if look.at >= end * _WARM]
        for number, (first, last) in enumerate(zip(self.before, after.held, strict=True)):
            growth = slope([(look.at, look.held[number].memory_kib) for look in judged]) * end * (1 - _WARM)
            if growth > last.memory_kib * _GROWTH:
                found.append(
                    f"the memory of replica {number} has grown by {growth:.0f} KiB in {end * (1 - _WARM):.0f} s"
                )
            if last.files > first.files:
                found.append(f"replica {number} holds {last.files} files, {first.files} before the first call")
            most = max((look.held[number].connections for look in self.looks[: len(self.looks) // 2]), default=0)
            if last.connections > max(most, first.connections):
                found.append(
                    f"replica {number} has {last.connections} connections to the database, {most} at most before"
                )
            most = max((look.held[number].threads for look in self.looks[: len(self.looks) // 2]), default=0)
            if last.threads > max(most, first.threads):
                found.append(f"replica {number} has {last.threads} threads, {most} at most before")
        return found

    def __str__(self) -> str:
        lines = ["    time  tasks done  not ended" + "  |  MiB  files  database  threads" * len(self.before)]
        for look in self.looks if self.after is None else [*self.looks, self.after]:
            each = "".join(
                f"  | {one.memory_kib / 1024:4.0f}  {one.files:5}  {one.connections:8}  {one.threads:7}"
                for one in look.held
            )
            lines.append(f"{look.at:6.0f} s  {look.done:10}  {look.open:9}{each}")
        if self.skipped:
            lines.append(f"{self.skipped} tasks were not begun, as {_MOST} were at work")
        return "\n".join(lines)


async def soak(kind: str, *, seed: int, minutes: float, replicas: int) -> Soak:
    """Find the full load, then keep up half of it."""
    found = Soak(seed)
    with SERVERS[kind]() as server:
        await migrated(server.url())
        async with replicas_on(server.url(), replicas) as alive, AsyncExitStack() as stack:
            store = open_store(server.url())
            await store.open()
            stack.push_async_callback(store.close)

            async def look(at: float) -> Look:
                states = (await store.stats()).states
                open_ = sum(count for state, count in states.items() if not state.terminal)
                return Look(at, found.done, open_, [held(replica.pid, server.port) for replica in alive.all])

            found.before = (await look(0.0)).held
            async with AsyncExitStack() as calling:
                callers = await _callers(alive, calling, seed)
                found.full = await _full_load(callers, found, replicas)
                print(f"full load: {found.full:.0f} tasks/s", flush=True)
                zero = time.monotonic()
                steady = asyncio.ensure_future(_steady(callers, found, replicas, minutes * 60))
                while not steady.done():
                    await asyncio.wait([steady], timeout=_EVERY_S)
                    if not steady.done():
                        found.looks.append(await look(time.monotonic() - zero))
                await steady
            until = time.monotonic() + _QUIET_S
            while True:  # connections that were closed are noticed a moment later
                found.after = await look(time.monotonic() - zero)
                quiet = not found.after.open and all(
                    one.files <= first.files for one, first in zip(found.after.held, found.before, strict=True)
                )
                if quiet or time.monotonic() > until:
                    return found
                await asyncio.sleep(0.5)


async def _callers(alive: Replicas, stack: AsyncExitStack, seed: int) -> Callers:
    session = await stack.enter_async_context(
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout())
    )
    balancer = Balancer(alive, random.Random(f"{seed} balancer"))
    await balancer.open()
    stack.push_async_callback(balancer.close)
    peers = {
        name: await stack.enter_async_context(tieline.connect(f"{balancer.url}/{name}")) for name in ("frail", "tough")
    }
    return Callers(alive, session, peers, grace_s=_GRACE_S, zero=time.monotonic())


async def _one(callers: Callers, task: plan.Task, name: str, found: Soak) -> None:
    work = await callers.do(replace(task, pause_ms=task.pause_ms // 10), name)
    found.done += 1
    found.wrong += [f"task {name} {work.task_id}: {fault}" for fault in work.faults]
    if not work.faults and work.told_ends - {"CANCELED"} not in (set(), {"COMPLETED"}):
        found.wrong.append(f"task {name} {work.task_id} has ended {work.told_ends}")


async def _full_load(callers: Callers, found: Soak, replicas: int) -> float:
    """Tasks a second when each caller begins the next as soon as it can."""
    over = asyncio.Event()

    async def lane(number: int) -> None:
        for count, task in enumerate(plan.tasks(found.seed, number, replicas)):
            if over.is_set():
                return
            await _one(callers, task, f"full.{number}.{count}", found)

    lanes = [asyncio.ensure_future(lane(number)) for number in range(_LANES)]
    await asyncio.sleep(_FULL_S / 3)
    done, began = found.done, time.monotonic()
    await asyncio.sleep(_FULL_S * 2 / 3)
    rate = (found.done - done) / (time.monotonic() - began)
    over.set()
    await asyncio.gather(*lanes)
    return rate


async def _steady(callers: Callers, found: Soak, replicas: int, seconds: float) -> None:
    """Begin half as many tasks a second as there could be, whether or not those before have ended."""
    pause_s = 2 / max(found.full, 1.0)
    began = time.monotonic()
    at_work: set[asyncio.Task[None]] = set()
    for count, task in enumerate(plan.tasks(found.seed, -1, replicas)):
        wait_s = began + count * pause_s - time.monotonic()
        if time.monotonic() - began > seconds:
            break
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        if len(at_work) >= _MOST:
            found.skipped += 1
            await asyncio.sleep(0)
            continue
        one = asyncio.ensure_future(_one(callers, task, f"steady.{count}", found))
        at_work.add(one)
        one.add_done_callback(at_work.discard)
    await asyncio.gather(*at_work)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="of half load, behind one of full load (10)")
    parser.add_argument("--store", choices=sorted(SERVERS), default="postgres", help="(postgres)")
    parser.add_argument("--replicas", type=int, choices=(1, 2), default=2, help="(2)")
    parser.add_argument("--seed", type=int, default=1, help="of the mixture of tasks (1)")
    given = parser.parse_args(arguments)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    found = asyncio.run(soak(given.store, seed=given.seed, minutes=given.minutes, replicas=given.replicas))
    print(found)
    faults = found.faults()
    for fault in faults[:50]:
        print(f"FAULT {fault}")
    print(f"{len(faults)} faults" if faults else "Nothing has grown and nothing is left.")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
