"""Serving agents for tests: one HTTP server for the whole suite, an app of its own for each agent of a test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from itertools import count
from pathlib import Path
from typing import Any, Final

import grpc
import pytest

import tieline
from tests.behaviour.agents import Puppet, make_agent
from tests.behaviour.direct import Direct
from tests.behaviour.failing_store import FailingStore
from tests.behaviour.harness import GrpcEnd, Transport
from tests.behaviour.over_grpc import Grpc
from tests.behaviour.over_http import JsonRpc, Rest
from tests.behaviour.over_older import Grpc03, JsonRpc01, JsonRpc03, Rest03
from tests.databases import postgres_server, redis_server
from tieline import Agent, App
from tieline.server.grpc import GrpcServer
from tieline.stores import Store
from tieline.stores.postgres import PostgresStore

__all__ = [
    "LIMIT_S",
    "TRANSPORTS",
    "Serve",
    "Switchboard",
    "by_tenants",
    "direct_messages",
    "every_store",
    "malformed",
    "no_zero",
    "not_over",
    "numbered",
    "only_in",
    "over",
    "refuses_ended",
    "runs_over",
    "stays_open",
    "stores",
    "unknown_ids",
    "version_of",
    "with_snapshot",
]

LIMIT_S = 10.0
"""No test waits longer than this for anything."""

_KINDS: Final = (Direct, JsonRpc, Rest, Grpc, JsonRpc03, Rest03, Grpc03, JsonRpc01)
TRANSPORTS: Final = tuple(kind.name for kind in _KINDS)
"""What a test is run over that does not say otherwise."""


def version_of(transport: str) -> str:
    """The version of the protocol that a transport speaks."""
    return transport.partition("-")[2] or "1.0"


def stores(*names: str) -> pytest.MarkDecorator:
    """Marks a test that is run on these stores."""
    return pytest.mark.stores(*names)


every_store = stores("memory", "sqlite", "postgres", "redis")
"""Marks a test that is run on each store; on those of a server over JSON-RPC alone."""


def over(*transports: str) -> pytest.MarkDecorator:
    """Marks a test that is run over these transports only."""
    return pytest.mark.parametrize("transport", transports)


def not_over(*transports: str, why: str) -> pytest.MarkDecorator:
    """Marks a test, or one parameter of it, that makes no sense over some transports.

    They are named each ("rest-0.3"), by their binding ("grpc": in any version) or by their version ("0.1": over any).
    """
    return pytest.mark.not_over(*transports, why=why)


def only_in(*versions: str, why: str) -> pytest.MarkDecorator:
    """Marks a test, or one parameter of it, that makes sense in these versions of the protocol only."""
    return pytest.mark.only_in(*versions, why=why)


def runs_over(transport: str, marks: Iterable[pytest.Mark]) -> bool:
    """Whether a test with these marks is run over a transport."""
    version = version_of(transport)
    names = {transport, transport.partition("-")[0], version}
    return not any(
        (mark.name == "not_over" and names.intersection(mark.args))
        or (mark.name == "only_in" and version not in mark.args)
        for mark in marks
    )


by_tenants = only_in("1.0", why="a caller has no tenant before")
stays_open = only_in("1.0", why="before, a subscription ends when the agent asks")
malformed = only_in("1.0", why="what is wrong with a request is said in the names of 1.0")
with_snapshot = not_over("0.1", why="the task that begins a stream is told in several events")
unknown_ids = not_over("0.1", why="a message with an unknown task id begins a task of that id")
direct_messages = not_over("0.1", why="every answer is a task")
refuses_ended = not_over("grpc-0.3", "0.1", why="who subscribes to a task that has ended is given the task")
no_zero = not_over("grpc-0.3", why="a history length of 0 is all of it")
numbered = not_over("grpc", "0.1", why="no event has a number")
"""Reasons that several tests have for not being run over all transports."""

_numbers = count(1)
_OPTIONS: Final = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


class Switchboard:
    """An ASGI application of many: "/t7/..." goes to the app that is mounted at "/t7"."""

    def __init__(self) -> None:
        self.apps: dict[str, App] = {}
        self.port = 0

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        root = "/" + scope["path"].split("/")[1]
        await self.apps[root]({**scope, "root_path": root}, receive, send)


class Serve:
    """Serves agents for one test: `await serve(agent)` gives a Transport that calls it."""

    def __init__(self, switchboard: Switchboard, transport: str, store: str, folder: Path) -> None:
        self._switchboard = switchboard
        self._kind = {kind.name: kind for kind in _KINDS}[transport]
        self._store = store
        self._folder = folder
        self._served: list[Transport] = []
        self._options: dict[Transport, dict[str, Any]] = {}
        self._grpc: dict[Transport, GrpcServer] = {}

    async def __call__(
        self, agent: Agent | Puppet | Any, *, store: str | Store | None = None, by_grpc: bool = False, **options: Any
    ) -> Transport:
        """Serve an agent, a puppet, an agent's function, or several of them by name (the answer calls the first).

        It can be called over each transport, but over gRPC only if the test is run over it, or `by_grpc`.
        `options` are those of `tieline.app`.
        """
        named = agent if isinstance(agent, Mapping) else None
        made = {name: _made(each) for name, each in named.items()} if named else _made(agent)
        root = f"/t{next(_numbers)}"
        if store is None:
            store = await self._new_store(root[1:])
        app = tieline.app(made, store=store, **options)
        await app.start()
        self._switchboard.apps[root] = app
        end = server = None
        if by_grpc or issubclass(self._kind, Grpc):
            server = GrpcServer(app)
            address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
            end = GrpcEnd(address, grpc.aio.insecure_channel(address, options=_OPTIONS))
        first = f"/{next(iter(named))}" if named else ""
        transport = self._kind(app, self._switchboard.port, root, first, end)
        self._served.append(transport)
        self._options[transport] = {"agent": made, "store": store, "by_grpc": by_grpc, **options}
        if server is not None:
            self._grpc[transport] = server
        return transport

    async def _new_store(self, name: str) -> str:
        """Where an app of this name keeps its tasks: nothing is there yet."""
        if self._store == "sqlite":
            return f"sqlite:{self._folder / name}.db"
        if self._store == "postgres":
            url = postgres_server().url(f"behaviour_{name}")
            store = PostgresStore(url)
            await store.migrate()
            await store.close()
            return url
        if self._store == "redis":
            return redis_server().url(f"behaviour_{name}")
        return self._store

    async def shut_down(self, transport: Transport) -> None:
        """What a process that is told to go does: agents that are at work get no time, streams come to their end."""
        transport.app.drain_s = 0
        await transport.app.drain()
        if transport in self._grpc:
            await self._grpc[transport].stop()

    async def restart(self, transport: Transport) -> Transport:
        """Stop the server of an agent and serve it again from the same store."""
        await self._stop(transport)
        options = self._options[transport]
        # A memory store outlives its app; another one is opened again.
        kept = (
            options["store"] if isinstance(options["store"], str) and ":" in options["store"] else transport.app.store
        )
        return await self(**{**options, "store": kept})

    async def _stop(self, transport: Transport) -> None:
        self._served.remove(transport)
        transport.close()
        await transport.app.close()
        if transport in self._grpc:
            await self._grpc.pop(transport).stop()
            await transport.by_grpc.channel.close()
        del self._switchboard.apps[transport.root]

    async def close(self) -> None:
        """Stop everything; what is still at work then is a fault."""
        for transport in list(self._served):
            transport.close()
            if isinstance(transport.app.store, FailingStore):
                transport.app.store.release()  # a test that has failed may have left it holding
            transport.app.drain_s = 0
            await transport.app.drain()
            await self._stop(transport)


def _made(agent: Agent | Puppet | Any) -> Agent:
    return agent.agent if isinstance(agent, Puppet) else agent if isinstance(agent, Agent) else make_agent(agent)
