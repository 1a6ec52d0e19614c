"""The recorder behind `scripts/interop --capture`: everything passes, and what is shown is what was said."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tests.interop.capture import Recorder
from tests.interop.processes import free_port

LIMIT_S = 20.0


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


def test_of_binary_frames_the_texts_in_them_are_shown() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(20))
        writer.close()

    async def scenario() -> str:
        target, public = free_port(), free_port()
        async with await asyncio.start_server(echo, "127.0.0.1", target), Recorder({public: target}) as recorder:
            reader, writer = await asyncio.open_connection("127.0.0.1", public)
            writer.write(b"\x00\x00\x05hello\xff\xfe\x01\x02world\x00\x00\x00")
            await reader.readexactly(20)
            writer.close()
        return recorder.text()

    text = asyncio.run(asyncio.wait_for(scenario(), LIMIT_S))
    assert text.splitlines() == ["=== connection 1", "> hello · world", "< hello · world"]
