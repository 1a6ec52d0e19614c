"""How many bytes a store keeps or writes for a chunk of a stream, as a process of its own.

    python -m benchmarks.chunk_bytes STORE LONG SHORT

A chunk is 100 characters of text, and each is said when the one before it is stored and told, as the words of a model
come: none shares a write with another. Counted are the chunks behind the first; making the task and its artifact, and
ending it, which writes the snapshot, are left out. As many are said in streams of SHORT as in one of LONG.
Prints a JSON object: `long` and `short`, bytes a chunk.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from tieline import Turn, agent
from tieline.engine.cursor import Cursor
from tieline.engine.service import Limits, Service
from tieline.engine.turn import Caller
from tieline.event import Event
from tieline.ids import new_id
from tieline.stores import open_store
from tieline.types import Message, Part, Role, SendMessageRequest

CHUNK = "0123456789" * 10
LIMIT_S = 300.0


def counter(store: str) -> Callable[[], int]:
    """What counts the bytes of `store` so far."""
    if store == "memory":
        tracemalloc.start()
        return _held
    if store.startswith("sqlite:"):
        return _written
    address = store.partition("?")[0]
    if store.startswith("redis:"):
        import redis

        client = redis.Redis.from_url(address)

        def appended() -> int:
            """Bytes of the append-only file, with those that are on their way to it."""
            info = client.info("persistence")
            assert isinstance(info, dict)
            return int(info["aof_current_size"]) + int(info["aof_buffer_length"])

        return appended
    import psycopg

    connection = psycopg.connect(address, autocommit=True)

    def logged() -> int:
        """Bytes of the write-ahead log."""
        row = connection.execute("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')").fetchone()
        assert row is not None
        return int(row[0])

    return logged


def _held() -> int:
    """Bytes of all objects: the store's, and those of the task at work."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def _written() -> int:
    """Bytes that this process has written to files: the write-ahead log, and what goes from it into the database."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["wchar"])


class Reader:
    """Reads a stream, and holds nothing of it."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._number = 0  # of the last event that has come

    async def up_to_first_chunk(self) -> None:
        """Wait until a chunk is stored and told."""
        events: list[Event] = []
        while not any(event.json.startswith(b'{"artifactUpdate"') for event in events):
            events = await self._more()

    async def one_more(self) -> None:
        """Wait until one event more is stored and told."""
        before = self._number
        await self._more()
        if self._number != before + 1:
            raise RuntimeError(f"event {before} is followed by {self._number}, so that chunks have shared a write")

    async def _more(self) -> list[Event]:
        await self._cursor.wait()
        first, events = self._cursor.take()
        self._number = first + len(events) - 1
        return events

    async def to_the_end(self) -> None:
        while not self._cursor.ended:
            await self._cursor.wait()
            self._cursor.take()
        self._cursor.close()


async def measure(where: str, long: int, short: int) -> dict[str, float]:
    """Bytes a chunk in one stream of `long` chunks, and in streams of `short`."""
    turns: asyncio.Queue[bool] = asyncio.Queue()  # whether there is one more chunk to say

    @agent(name="Words", description="Says a chunk when it is told to.")
    async def words(turn: Turn) -> None:
        async with turn.artifact("answer") as out:
            while await turns.get():
                await out.write(CHUNK)

    store = open_store(where)
    service = Service(words, store, limits=Limits(lease_s=120))  # so that it seldom says that it is alive meanwhile
    count = counter(where)

    async def stream(chunks: int) -> int:
        message = Message(new_id(), Role.USER, (Part("hello"),))
        reader = Reader(await service.send_streaming_message(SendMessageRequest(message), Caller()))
        turns.put_nowait(True)
        await reader.up_to_first_chunk()
        before = count()
        for _ in range(chunks):
            turns.put_nowait(True)
            await reader.one_more()
        found = count() - before
        turns.put_nowait(False)
        await reader.to_the_end()
        return found

    async with asyncio.timeout(LIMIT_S):
        await service.start()
        await stream(short)  # pages, tables and byte code that are made once
        of_short = sum([await stream(short) for _ in range(long // short)])
        of_long = await stream(long)
        await service.close()
        await store.close()
    return {"long": of_long / long, "short": of_short / (long // short * short)}


if __name__ == "__main__":
    _, where, long, short = sys.argv
    print(json.dumps(asyncio.run(measure(where, int(long), int(short)))))
