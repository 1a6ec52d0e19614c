"""Callers and kills on replicas of one store, and what came of it."""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final

import aiohttp

import tieline
from tests.chaos import plan
from tests.chaos.agents import LEASE_S
from tests.chaos.callers import Callers
from tests.chaos.replicas import Balancer, Replica, Replicas, replicas_on
from tests.chaos.seen import Work
from tests.chaos.verdict import Death, Fault, judge
from tests.databases import DatabaseServer, PostgresServer, RedisServer
from tieline.stores import open_store
from tieline.stores.base import StoredTask

__all__ = ["SERVERS", "Outcome", "chaos", "main", "migrated"]

SERVERS: Final[dict[str, type[DatabaseServer]]] = {"postgres": PostgresServer, "redis": RedisServer}
GRACE_S: Final = 5.0
_LAST_S: Final = 60.0  # for the tasks that are at work when the kills are over
_SHOWN: Final = 5  # faults that are printed whole


@dataclass
class Outcome:
    """What came of it."""

    seed: int
    works: list[Work] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    said: list[str] = field(default_factory=list)  # by replicas, that they should not have to say
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        return bool(self.faults or self.said)

    def __str__(self) -> str:
        states: dict[str, int] = {}
        for work in self.works:
            state = "/".join(sorted(work.told_ends)) or "without an end"
            states[state] = states.get(state, 0) + 1
        longest = max((work.longest_s for work in self.works if work.plan.agent == "frail"), default=0.0)
        told = sum(len(subscriber.events) for work in self.works for subscriber in work.subscribers)
        lines = [
            f"{len(self.works)} tasks in {self.seconds:.0f} s, {len(self.deaths)} kills, {told} numbered events told;"
            f" longest silence {longest:.1f} s, of agents that do nothing again",
            "  ".join(f"{state} {count}" for state, count in sorted(states.items())),
        ]
        if self.failed:
            lines.append("kills: " + ", ".join(f"{d.replica} {d.began:.2f}-{d.ended:.2f} s" for d in self.deaths))
        for fault in self.faults[:_SHOWN]:
            lines += ["", f"FAULT in task {fault.name}", *(f"  - {words}" for words in fault.words)]
            lines += [f"    {line}" for line in fault.story]
        for fault in self.faults[_SHOWN:]:
            lines.append(f"FAULT in task {fault.name}: {'; '.join(fault.words)[:500]}")
        if self.said:
            lines += ["", "replicas said:", *self.said]
        if self.failed:
            lines.append(f"\n{len(self.faults)} tasks have faults. Again: --seed {self.seed}")
        return "\n".join(lines)


async def migrated(store: str) -> None:
    """Make the tables of a store that has any."""
    found = open_store(store)
    migrate = getattr(found, "migrate", None)
    if migrate is not None:
        await migrate()
    await found.close()


async def chaos(
    store: str, *, seed: int, tasks: int, kills: int, replicas: int = 3, grace_s: float = GRACE_S
) -> Outcome:
    """So many callers at once, each with one task behind the other, until so many replicas were killed."""
    outcome = Outcome(seed)
    await migrated(store)
    async with AsyncExitStack() as stack:
        alive = await stack.enter_async_context(replicas_on(store, replicas))
        session = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout())
        )
        balancer = Balancer(alive, random.Random(f"{seed} balancer"))
        await balancer.open()
        stack.push_async_callback(balancer.close)
        peers = {
            name: await stack.enter_async_context(tieline.connect(f"{balancer.url}/{name}"))
            for name in ("frail", "tough")
        }
        zero = time.monotonic()
        callers = Callers(alive, session, peers, grace_s=grace_s, zero=zero)
        over = asyncio.Event()

        async def lane(number: int) -> None:
            for count, task in enumerate(plan.tasks(seed, number, replicas)):
                if over.is_set():
                    return
                outcome.works.append(await callers.do(task, f"{number}.{count}"))

        lanes = [asyncio.ensure_future(lane(number)) for number in range(tasks)]
        for kill in plan.kills(seed, kills, replicas, LEASE_S):
            await asyncio.sleep(kill.wait_s)
            await _killed(alive.all[kill.replica], kill.down_s, zero, outcome.deaths)
        over.set()
        _, late = await asyncio.wait(lanes, timeout=_LAST_S)
        for one in late:
            one.cancel()
        await asyncio.wait(lanes)
        outcome.seconds = time.monotonic() - zero
        outcome.said += [f"a caller is not done {_LAST_S:g} s behind the last kill" for _ in late]
        outcome.said += _said(alive)
    outcome.faults = judge(outcome.works, await _stored(store), outcome.deaths)
    return outcome


async def _killed(replica: Replica, down_s: float, zero: float, deaths: list[Death]) -> None:
    began = time.monotonic() - zero
    await replica.kill()
    await asyncio.sleep(down_s)
    await replica.start()
    deaths.append(Death(replica.number, began, time.monotonic() - zero))


def _said(replicas: Replicas) -> list[str]:
    """What tells of a mistake in the program: tracebacks, and what asyncio finds abandoned."""
    found = []
    for replica in replicas.all:
        lines = list(replica.said)
        if any("Traceback" in line or "never retrieved" in line or "ERROR asyncio" in line for line in lines):
            found += [f"{replica.number}: {line}" for line in lines]
    return found


async def _stored(url: str) -> list[StoredTask]:
    store = open_store(url)
    await store.open()
    try:
        return [task async for task in store.tasks()]
    finally:
        await store.close()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__)
    parser.add_argument("--seed", type=int, help="what to do again; without it another one each time")
    parser.add_argument("--store", choices=sorted(SERVERS), help="without it both, one behind the other")
    parser.add_argument("--tasks", type=int, default=300, help="at once (300)")
    parser.add_argument("--kills", type=int, default=10, help="how often a replica is killed (10)")
    parser.add_argument("--replicas", type=int, default=3, help="how many there are (3)")
    parser.add_argument(
        "--grace",
        type=float,
        default=GRACE_S,
        metavar="SECONDS",
        help="what anything may take beside the lease; more on a machine with too much to do (5)",
    )
    given = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(1_000_000) if given.seed is None else given.seed
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    failed = False
    for kind in [given.store] if given.store else sorted(SERVERS):
        print(f"seed {seed}: {kind}, lease {LEASE_S:g} s, and {given.grace:g} s beside it", flush=True)
        with SERVERS[kind]() as server:
            outcome = asyncio.run(
                chaos(
                    server.url(),
                    seed=seed,
                    tasks=given.tasks,
                    kills=given.kills,
                    replicas=given.replicas,
                    grace_s=given.grace,
                )
            )
        print(outcome, flush=True)
        failed = failed or outcome.failed
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
