"""`tieline serve --grpc-port` as a process: what it prints, how it ends, and what it says when it cannot serve."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import grpc
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2_grpc
from a2a.compat.v0_3.a2a_v0_3_pb2 import GetAgentCardRequest

from tests.grpc.serving import run
from tests.grpc.test_client import calling, said, task_of, told
from tieline.errors import Unreachable
from tieline.types import GetTaskRequest, Message, SubscribeToTaskRequest, Task, TaskState

AGENT = """
import asyncio
from tieline import Turn, agent, app

@agent(name="Hello", description="Greets, asks or waits.")
async def hello(turn: Turn):
    if turn.text == "ask":
        yield await turn.ask("What?")
    if turn.text == "wait":
        await turn.status("waiting")
        await asyncio.Event().wait()
    yield f"Hello, {turn.text}!"

@agent(name="Other", description="Another one.")
async def other(turn: Turn):
    return turn.reply("other")

made = app(hello)
both = {"a": hello, "b": other}
"""

LIMIT_S = 60


class Serving(NamedTuple):
    process: subprocess.Popen[str]
    told: list[str]  # lines of stderr until it was ready
    grpc: str
    url: str


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}


def command(folder: Path, target: str, *options: str) -> list[str]:
    (folder / "agents.py").write_text(AGENT)
    return [sys.executable, "-m", "tieline", "serve", f"agents.py:{target}", "--port", "0", *options]


@contextmanager
def serving(folder: Path, target: str, *options: str) -> Iterator[Serving]:
    words = command(folder, target, "--grpc-port", "0", *options)
    with subprocess.Popen(words, cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        told = []
        try:
            for line in process.stderr:
                told.append(line.rstrip("\n"))
                if line.startswith("Ctrl-C"):
                    break
            text = "\n".join(told)
            address = re.search(r"^  grpc   (.+)$", text, re.MULTILINE)
            url = re.search(r"^Serving (.+)$", text, re.MULTILINE)
            assert address, text
            assert url, text
            yield Serving(process, told, address.group(1), url.group(1))
        finally:
            process.kill()


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Stop it as a service manager does; its code, and what it has said."""
    process.send_signal(signal.SIGTERM)
    _, said_last = process.communicate(timeout=LIMIT_S)
    return process.returncode, said_last


def test_the_address_of_grpc_is_printed_and_serves_the_tasks_that_http_serves(tmp_path: Path) -> None:
    async def check(address: str) -> None:
        async with calling(address) as peer:
            task = await task_of(peer.send(said("Ada"), ()))
            assert task.text == "Hello, Ada!"
        async with calling(address, "0.3") as peer:
            assert (await peer.get(GetTaskRequest(task.id), ())).text == "Hello, Ada!"

    with serving(tmp_path, "hello", "--store", f"sqlite:{tmp_path / 'tasks.db'}") as it:
        lines = [line.split()[0] for line in it.told]
        assert lines == ["Serving", "card", "grpc", "tasks", "Try:", "Ctrl-C"]
        assert it.grpc.startswith("127.0.0.1:")
        run(check(it.grpc))
        assert ended(it.process) == (0, "Stopping.\nStopped.\n")


def test_the_card_of_0_3_names_the_same_places_by_grpc_as_by_http(tmp_path: Path) -> None:
    async def places(address: str) -> list[tuple[str, str]]:
        async with grpc.aio.insecure_channel(address) as channel:
            stub: Any = a2a_v0_3_pb2_grpc.A2AServiceStub
            card = await stub(channel).GetAgentCard(GetAgentCardRequest())
            return [(each.url, each.transport) for each in card.additional_interfaces]

    with serving(tmp_path, "hello") as it:
        found = run(places(it.grpc))
        with urlopen(f"{it.url}/.well-known/agent-card.json?A2A-Version=0.3", timeout=LIMIT_S) as answer:
            card = json.load(answer)
        assert found == [(each["url"], each["transport"]) for each in card["additionalInterfaces"]]
        assert {binding for _, binding in found} == {"JSONRPC", "HTTP+JSON", "GRPC"}


@pytest.mark.parametrize("word", ["ask", "wait"])
def test_open_streams_of_grpc_end_with_the_server(tmp_path: Path, word: str) -> None:
    async def check(it: Serving) -> str:
        async with calling(it.grpc) as peer:
            events = await peer.open(said(word), ())
            first = (await events.read())[0][1]
            assert isinstance(first, Task)
            following = await peer.open(SubscribeToTaskRequest(first.id), ())
            reading = asyncio.ensure_future(told(following))
            assert len(await following_state(events, word)) > 0
            _, said_last = await asyncio.to_thread(ended, it.process)
            if word == "wait":
                assert getattr((await reading)[-1], "status").state is TaskState.FAILED  # noqa: B009
            else:
                with pytest.raises(Unreachable, match="shutting down"):  # the task goes on: that is no end
                    await reading
            return said_last

    with serving(tmp_path, "hello", "--store", "memory", "--drain", "0") as it:
        assert run(check(it)).endswith("Stopped.\n")
        assert it.process.returncode == 0


async def following_state(events: object, word: str) -> list[object]:
    """Read a stream until its agent asks, or waits."""
    wanted = TaskState.INPUT_REQUIRED if word == "ask" else TaskState.WORKING
    seen: list[object] = []
    while True:
        for _, event in await events.read():  # type: ignore[attr-defined]
            seen.append(event)
            if getattr(event, "status", None) is not None and event.status.state is wanted:
                return seen


def test_an_app_is_served_as_it_is_made_and_several_agents_by_their_tenants(tmp_path: Path) -> None:
    async def check(address: str, tenant: str | None) -> None:
        async with calling(address) as peer:
            request = said("x")
            if tenant:
                request = type(request)(request.message, tenant=tenant)
            answer = await peer.send(request, ())
            assert isinstance(answer, Message) == (tenant == "b")

    with serving(tmp_path, "made") as it:
        run(check(it.grpc, None))
    with serving(tmp_path, "both", "--store", "memory") as it:
        run(check(it.grpc, "a"))
        run(check(it.grpc, "b"))


def failed(folder: Path, words: list[str], **more: str) -> str:
    done = subprocess.run(
        words, cwd=folder, env={**environment(), **more}, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode != 0
    assert done.stdout == ""
    return done.stderr


def test_a_port_that_is_taken_is_told_in_a_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        words = command(tmp_path, "hello", "--grpc-port", str(port), "--store", "memory")
        assert failed(tmp_path, words).splitlines()[0] == (
            f"Error: 127.0.0.1:{port} cannot be listened on for gRPC: Address already in use."
            " Choose another one with --grpc-port."
        )


@pytest.mark.parametrize("package", ["grpc", "a2a", "grpc_health", "grpc_reflection"])
def test_without_the_extra_it_is_named(tmp_path: Path, package: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules[{package!r}] = None\n")
    words = command(tmp_path, "hello", "--grpc-port", "0", "--store", "memory")
    told = failed(tmp_path, words, PYTHONPATH=str(tmp_path))
    assert "gRPC needs: pip install 'tieline[grpc]'" in told
    assert "Traceback" not in told
