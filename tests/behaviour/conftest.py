"""One event loop and one HTTP server for the suite; each test mounts its own app below a path of its own.

A test is a coroutine function. It asks for `serve`, and is then run over each transport:

    async def test_agent_greets(serve: Serve) -> None:
        agent = await serve(hello)
        assert text_of(await agent.task("Ada")) == "Hello, Ada!"

`@every_store` runs it on all stores, `@over("rest")` only over REST, `@not_over("grpc", why=...)` everywhere else, and
`@only_in("1.0", why=...)` not over the transports of older versions.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import socket
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from tests.behaviour.serving import LIMIT_S, TRANSPORTS, Serve, Switchboard, runs_over, version_of


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
def loop(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    """The loop that all tests of this suite, their servers and their agents run in.

    Errors that nobody has waited for are no matter while tests fail, which leave such things behind; else they are a
    fault of what is tested.
    """
    unheard: list[str] = []

    def note(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        unheard.append(f"{context['message']}: {context.get('exception')!r}")

    with asyncio.Runner() as runner:
        runner.get_loop().set_exception_handler(note)
        yield runner
        gc.collect()
        assert request.session.testsfailed or not unheard, unheard


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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test over each transport and on each store that its marks leave."""
    if "transport" not in metafunc.fixturenames:
        return
    marks = list(metafunc.definition.iter_markers())
    if any("transport" in _names(mark) for mark in marks if mark.name == "parametrize"):
        names = None
    else:
        names = [name for name in TRANSPORTS if runs_over(name, marks)]
    stores = metafunc.definition.get_closest_marker("stores")
    if names is None or stores is None:
        if stores is not None:
            metafunc.parametrize("store", stores.args)
        if names is not None:
            metafunc.parametrize("transport", names)
        return
    pairs = [(name, store) for name in names for store in stores.args if _fit(name, store, stores.args)]
    metafunc.parametrize(("transport", "store"), pairs, ids=[f"{name}-{store}" for name, store in pairs])


def _fit(transport: str, store: str, stores: tuple[str, ...]) -> bool:
    """Whether a test is run over this transport on this store.

    What a dialect says does not come from the store: one is enough. What a store on a server does does not come from
    the transport.
    """
    if version_of(transport) != "1.0":
        return store == stores[0]
    return store not in ("postgres", "redis") or transport == "jsonrpc"


def _names(mark: pytest.Mark) -> list[str]:
    names = mark.args[0]
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, None, None]:
    """Leave out what a single parameter of a test is not run over."""
    items[:] = [
        item
        for item in items
        if not isinstance(item, pytest.Function)
        or not hasattr(item, "callspec")
        or runs_over(str(item.callspec.params.get("transport")), item.iter_markers())
    ]
    yield


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


@pytest.fixture
def store() -> str:
    """Which store `serve` uses; `@every_store` sets it."""
    return "memory"


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
