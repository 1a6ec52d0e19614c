"""One event loop and one HTTP server for the suite; each test mounts its own app below a path of its own.

A test is a coroutine function. It asks for `serve`, and is then run over each transport:

    async def test_agent_greets(serve: Serve) -> None:
        agent = await serve(hello)
        assert text_of(await agent.task("Ada")) == "Hello, Ada!"

`@both_stores` runs it on SQLite, too.
"""

from __future__ import annotations

import asyncio
import inspect
import socket
from collections.abc import Generator, Iterator, MutableMapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import uvicorn

import tieline
from tests.behaviour.agents import Puppet, make_agent
from tests.behaviour.harness import Direct, JsonRpc, Rest, Transport
from tieline import Agent, App
from tieline.stores import Store

LIMIT_S = 20.0
"""No test waits longer than this for anything."""

_numbers = count(1)


class Switchboard:
    """An ASGI application of many: "/t7/..." goes to the app that is mounted at "/t7"."""

    def __init__(self) -> None:
        self.apps: dict[str, App] = {}
        self.port = 0

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        root = "/" + scope["path"].split("/")[1]
        await self.apps[root]({**scope, "root_path": root}, receive, send)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave Ctrl-C to pytest."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()


@pytest.fixture(scope="session", autouse=True)
def loop() -> Iterator[asyncio.Runner]:
    """The loop that all tests of this suite, their servers and their agents run in."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="session")
def switchboard(loop: asyncio.Runner) -> Iterator[Switchboard]:
    """The one HTTP server."""
    board = Switchboard()
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    board.port = listener.getsockname()[1]
    config = uvicorn.Config(board, lifespan="off", log_config=None, log_level="warning", access_log=False)
    server = _Server(config)

    async def start() -> asyncio.Task[None]:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        async with asyncio.timeout(LIMIT_S):
            await server.listening.wait()
        return serving

    async def stop(serving: asyncio.Task[None]) -> None:
        server.should_exit = True
        await serving

    serving = loop.run(start())
    yield board
    loop.run(stop(serving))
    listener.close()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine function in the loop of the suite."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    given = {name: pyfuncitem.funcargs[name] for name in names}

    async def within_limit() -> None:
        async with asyncio.timeout(LIMIT_S):
            await pyfuncitem.obj(**given)

    runner = pyfuncitem.funcargs["loop"]
    assert isinstance(runner, asyncio.Runner)
    runner.run(within_limit())
    return True


@pytest.fixture(params=["direct", "jsonrpc", "rest"])
def transport(request: pytest.FixtureRequest) -> str:
    """How the test calls; `@over("rest")` limits it."""
    name: str = request.param
    return name


@pytest.fixture
def store() -> str:
    """Which store `serve` uses; `@both_stores` sets it."""
    return "memory"


class Serve:
    """Serves agents for one test: `await serve(agent)` gives a Transport that calls it."""

    def __init__(self, switchboard: Switchboard, transport: str, store: str, folder: Path) -> None:
        self._switchboard = switchboard
        self._kind = {kind.name: kind for kind in (Direct, JsonRpc, Rest)}[transport]
        self._store = store
        self._folder = folder
        self._served: list[Transport] = []
        self._options: dict[Transport, dict[str, Any]] = {}

    async def __call__(
        self, agent: Agent | Puppet | Any, *, store: str | Store | None = None, **options: Any
    ) -> Transport:
        """Serve an agent, a puppet or an agent's function; `options` are those of `tieline.app`."""
        made = agent.agent if isinstance(agent, Puppet) else agent if isinstance(agent, Agent) else make_agent(agent)
        root = f"/t{next(_numbers)}"
        if store is None:
            store = f"sqlite:{self._folder / root[1:]}.db" if self._store == "sqlite" else self._store
        app = tieline.app(made, store=store, **options)
        await app.start()
        self._switchboard.apps[root] = app
        transport = self._kind(app, self._switchboard.port, root)
        self._served.append(transport)
        self._options[transport] = {"agent": made, "store": store, **options}
        return transport

    async def restart(self, transport: Transport) -> Transport:
        """Stop the server of an agent and serve it again from the same store."""
        await self._stop(transport)
        options = self._options[transport]
        # A memory store outlives its app; a SQLite file is opened again.
        kept = (
            options["store"] if isinstance(options["store"], str) and ":" in options["store"] else transport.app.store
        )
        return await self(**{**options, "store": kept})

    async def _stop(self, transport: Transport) -> None:
        self._served.remove(transport)
        transport.close()
        await transport.app.close()
        del self._switchboard.apps[transport.root]

    async def close(self) -> None:
        """Stop everything; what is still at work then is a fault."""
        for transport in list(self._served):
            transport.close()
            transport.app.drain_s = 0
            await transport.app.drain()
            await self._stop(transport)


@pytest.fixture
def serve(
    loop: asyncio.Runner, switchboard: Switchboard, transport: str, store: str, tmp_path: Path
) -> Iterator[Serve]:
    """Serves agents over the transport that the test is run for."""
    serve = Serve(switchboard, transport, store, tmp_path)
    before = asyncio.all_tasks(loop.get_loop())
    yield serve

    async def close() -> None:
        async with asyncio.timeout(LIMIT_S):
            await serve.close()
            if left := asyncio.all_tasks() - before - {asyncio.current_task()}:
                await asyncio.wait(left)

    loop.run(close())
