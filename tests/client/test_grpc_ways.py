"""gRPC among the interfaces of a card: what it shows in errors, and when another interface is taken in its place."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from pathlib import Path

import pytest

from tests.client.foreign import NEW, Foreign, card_10, foreign
from tests.client.running import run
from tests.client.scripted import card_of
from tests.client.test_negotiation import grpc_server_of
from tieline import Timeouts, connect
from tieline.errors import A2AError, InvalidCard

DEAD = "127.0.0.1:1"


def listing(agent: Foreign, address: str) -> None:
    """Give the agent a card that prefers gRPC at this address."""
    agent.cards[NEW] = card_10((address, "GRPC", "1.0"), (agent.url + "/rpc", "JSONRPC", "1.0"))


# --- secrets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_no_error_of_grpc_shows_the_user_or_password_of_the_card(scheme: str) -> None:
    async def refuse(data: bytes, context: object) -> bytes:
        raise RuntimeError

    async def silent(data: bytes, context: object) -> bytes:
        await asyncio.Event().wait()
        return b""

    async def test() -> None:
        errors: list[A2AError] = []
        for handler in (refuse, silent, None):
            server = grpc_server_of(**({} if handler is None else {"SendMessage": handler}))
            port = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            try:
                errors.append(await failing(f"{scheme}://user:s3cret@127.0.0.1:{port}"))
            finally:
                await server.stop(None)
        errors.append(await failing(f"{scheme}://user:s3cret@{DEAD}"))
        errors.append(await failing(f"{scheme}://user:s3cret@a\u2100b:1"))  # no host name: "a/c" in one character
        for error in errors:
            assert "s3cret" not in "".join(traceback.format_exception(error))
            assert "s3cret" not in repr(error.metadata)
        assert f"No connection to {DEAD}" in str(errors[-2])

    async def failing(address: str) -> A2AError:
        with pytest.raises(A2AError) as caught:
            async with connect(card_of((address, "GRPC")), timeouts=Timeouts(answer_s=0.5)) as peer:
                await peer.send("go")
        return caught.value

    run(test())


# --- other interfaces -------------------------------------------------------------------------------------------------


def test_grpc_is_passed_over_when_there_is_a_query() -> None:
    async def test() -> None:
        async with foreign("JSONRPC 1.0") as agent:
            listing(agent, DEAD)
            async with connect(agent.url, query={"key": "k"}) as peer:
                await peer.send("go")
                assert peer.transport == "JSONRPC"
            assert agent.requests[-1].target.endswith("?key=k")
            with pytest.raises(InvalidCard, match="gRPC has no query"):
                async with connect(agent.url, query={"key": "k"}, transport="GRPC"):
                    pass

    run(test())


CALL = """
import asyncio, json, sys
import a2a.types
import tieline
from tieline.errors import InvalidCard

async def main():
    async with tieline.connect(sys.argv[1]) as peer:
        await peer.send("go")
        used = peer.transport
    try:
        async with tieline.connect(sys.argv[1], transport="GRPC"):
            said = ""
    except InvalidCard as error:
        said = str(error)
    print(json.dumps([a2a.types.__file__, used, said]))

asyncio.run(main())
"""


def test_an_a2a_sdk_that_is_too_old_for_grpc_leads_to_the_next_interface(tmp_path: Path) -> None:
    old = tmp_path / "a2a"
    old.mkdir()
    (old / "__init__.py").touch()
    (old / "types.py").touch()  # a module without protobuf, as it was in 0.3

    async def test() -> None:
        async with foreign("JSONRPC 1.0") as agent:
            listing(agent, DEAD)
            environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
            called = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", CALL, agent.url), stdout=asyncio.subprocess.PIPE, env=environment
            )
            try:
                output, _ = await called.communicate()
            finally:
                if called.returncode is None:
                    called.kill()
                    await called.wait()
            module, used, said = json.loads(output)
            assert module == str(old / "types.py")
            assert used == "JSONRPC"
            assert "pip install 'tieline[grpc]'" in said

    run(test())
