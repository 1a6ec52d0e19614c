"""The recorder behind `scripts/interop --capture`: everything passes, and what is shown is what was said."""

from __future__ import annotations

import asyncio
import re
import tempfile
from contextlib import suppress
from pathlib import Path

from tests.interop.capture import Recorder
from tests.interop.matrix_peers import GRPC, PEERS
from tests.interop.processes import ROOT, free_port, running, start

LIMIT_S = 60.0


def test_what_both_sides_say_passes_unchanged_and_is_shown_with_its_direction() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"?")
        writer.write(b"HTTP/1.1 200 OK\r\nDate: today\r\n\r\nyou asked " + asked)
        await writer.drain()
        writer.write_eof()
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    async def scenario() -> tuple[bytes, str]:
        target, public = free_port(), free_port()
        async with await asyncio.start_server(answer, "127.0.0.1", target), Recorder({public: target}) as recorder:
            reader, writer = await asyncio.open_connection("127.0.0.1", public)
            writer.write("¿who?".encode())
            got = await reader.read()
            writer.close()
        return got, recorder.text()

    got, text = asyncio.run(asyncio.wait_for(scenario(), LIMIT_S))
    assert got == "HTTP/1.1 200 OK\r\nDate: today\r\n\r\nyou asked ¿who?".encode()
    assert text.splitlines() == ["=== connection 1", "> ¿who?", "< HTTP/1.1 200 OK", "< ", "< you asked ¿who?"]


def test_messages_over_grpc_are_shown_by_the_numbers_of_their_fields() -> None:
    """What the official SDK's server and its client say over gRPC, with what stands in the message."""
    ports, public = (free_port(), free_port()), (free_port(), free_port())
    command = [*PEERS["py10"].server, *map(str, ports)]

    async def scenario(place: Path) -> str:
        async with Recorder({public[0]: ports[0], public[1]: ports[1]}) as recorder:
            with running(["env", f"PYTHONPATH={ROOT}", *command], ports[0], place / "server.log"):
                client = [*PEERS["py10"].client, f"http://127.0.0.1:{public[0]}", GRPC, "message"]
                with (place / "client.log").open("wb") as output:
                    process = start(["env", f"PYTHONPATH={ROOT}", *client], output)
                    assert await asyncio.to_thread(process.wait, LIMIT_S) == 0
        return recorder.text()

    with tempfile.TemporaryDirectory() as place:
        text = asyncio.run(asyncio.wait_for(scenario(Path(place)), 2 * LIMIT_S))
    # SendMessageRequest.message (2) with role USER (4: 1) and a part (5) that has text (1); Message in the answer.
    assert re.search(r'^> \d+ \{2 \{1: "[0-9a-f-]{36}" 4: 1 5 \{1: "message hello"\}\}', text, re.MULTILINE)
    assert re.search(r'^< \d+ \{2 \{.*5 \{1: "heard: hello"\}', text, re.MULTILINE)
    assert "/lf.a2a.v1.A2AService/SendMessage" in text
