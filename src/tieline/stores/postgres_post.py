"""Letters between replicas over LISTEN and NOTIFY.

A notification takes text of less than 8,000 bytes: small letters go in one together, in base64; a large one is put into
a table, and its number goes. Notifying takes a lock at its commit that others wait for, so a turn's letters go at once,
and not in the transactions that write.
"""

from __future__ import annotations

import asyncio
import binascii
import contextlib
import logging
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Iterable
from hashlib import blake2b
from itertools import groupby
from typing import Final

import psycopg

from tieline.stores.base import StoreError
from tieline.stores.outbox import Outbox
from tieline.stores.patience import said
from tieline.stores.postgres_link import Connection, Link, fetch, limited, quietly_closed
from tieline.stores.postgres_schema import Statements

__all__ = ["Post"]

log = logging.getLogger("tieline.stores")

_PAYLOAD_BYTES: Final = 5700  # of letters: base64 makes 7,600 of them
_PORTION: Final = 300  # large letters whose numbers, of up to 19 digits, go in one notification
_PORTION_BYTES: Final = 16 * 1024 * 1024
_PAUSES_S: Final = (0.05, 0.2, 0.5, 1.0)
_LOOK_S: Final = 10.0  # a connection that is quiet for so long is asked whether it is there


class Post(Outbox):
    """What one replica sends and hears."""

    def __init__(
        self,
        link: Link,
        statements: Statements,
        schema: str,
        replica: str,
        before: Callable[[], Awaitable[object]],
    ) -> None:
        super().__init__(before)
        self._link = link
        self._sql = statements
        self._schema = schema
        self._replica = replica
        self._listening: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Begin to listen. Raises StoreError."""
        if self._listening is None:
            connection = await self._link.patience.retried(lambda attempt: self._subscribed())
            self._listening = asyncio.ensure_future(self._listen(connection))

    async def close(self) -> None:
        """Send what is there, and listen no more."""
        await self.sent()
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
            self._listening = None

    # --- sending ------------------------------------------------------------------------------------------------------

    async def _deliver(self, letters: dict[str, list[bytes]]) -> None:
        await self._link.use(lambda connection: self._notify(connection, letters))

    async def _notify(self, connection: Connection, outbox: dict[str, list[bytes]]) -> None:
        channels: list[str] = []
        payloads: list[str] = []
        for replica, letters in outbox.items():
            for large, some in groupby(letters, lambda letter: len(letter) > _PAYLOAD_BYTES):
                if large:
                    made = [await self._put(connection, replica, part) for part in _portions(some)]
                else:
                    made = _payloads(some)
                payloads += made
                channels += [_channel(self._schema, replica)] * len(made)
        await fetch(
            connection,
            "SELECT count(pg_notify(channel, payload)), set_config('synchronous_commit', 'off', true)"
            " FROM unnest(%b::text[], %b::text[]) AS n(channel, payload)",
            (channels, payloads),
        )

    async def _put(self, connection: Connection, replica: str, letters: list[bytes]) -> str:
        """Put letters into their table; returns the payload that tells of them."""
        rows = await fetch(connection, self._sql.put_letters, (replica, letters))
        return "@" + ",".join([str(row[0]) for row in rows])

    # --- listening ----------------------------------------------------------------------------------------------------

    async def _subscribed(self) -> Connection:
        """A connection on which this replica's letters arrive."""
        connection = await self._link.connect()
        try:
            async with limited(connection, self._link.limit_s):
                await connection.execute(f'LISTEN "{_channel(self._schema, self._replica)}"'.encode())
        except BaseException:
            await quietly_closed(connection)
            raise
        return connection

    async def _listen(self, connection: Connection | None) -> None:
        """Hear for as long as this store is open."""
        failed = 0  # how often in a row
        try:
            while True:
                try:
                    if connection is None:
                        connection = await self._subscribed()
                        log.info("%s tells of letters again", self._link.shown)
                        _call(self._gap)
                    failed = 0
                    while True:
                        async for notice in connection.notifies(timeout=_LOOK_S):
                            await self._take(notice.payload)
                        async with limited(connection, self._link.limit_s):
                            await connection.execute("SELECT 1")
                except (psycopg.Error, OSError, TimeoutError, StoreError) as error:
                    if not failed:
                        log.warning("%s does not tell of letters for now: %s", self._link.shown, said(error))
                    if connection is not None:
                        await quietly_closed(connection)
                    connection = None
                    await asyncio.sleep(_PAUSES_S[min(failed, len(_PAUSES_S) - 1)])
                    failed += 1
        finally:
            if connection is not None:
                with contextlib.suppress(asyncio.CancelledError):
                    await quietly_closed(connection)

    async def _take(self, payload: str) -> None:
        if payload.startswith("@"):
            numbers = [int(number) for number in payload[1:].split(",") if number.isascii() and number.isdigit()]
            rows = await self._link.query(self._sql.take_letters, (numbers,))
            letters = [body for _, body in sorted(rows)]
            if len(letters) < len(numbers):  # taken with an answer that was lost, or too late
                _call(self._gap)
        else:
            letters = _letters(payload)
        for letter in letters:
            _call(self._heard, letter)


def _call(told: Callable[..., object], *letter: bytes) -> None:
    """Tell; who is told must not stop the others from hearing."""
    try:
        told(*letter)
    except Exception:
        log.exception("a letter could not be taken")


def _portions(letters: Iterable[bytes]) -> list[list[bytes]]:
    """Large letters, as many together as go in one statement, and their numbers in one notification."""
    portions: list[list[bytes]] = []
    room = 0
    for letter in letters:
        if not portions or len(letter) > room or len(portions[-1]) >= _PORTION:
            portions.append([])
            room = _PORTION_BYTES
        portions[-1].append(letter)
        room -= len(letter)
    return portions


def _channel(schema: str, replica: str) -> str:
    return "tieline_" + blake2b(f"{schema} {replica}".encode(), digest_size=16).hexdigest()


def _payloads(letters: Iterable[bytes]) -> list[str]:
    """Letters as few payloads: each letter with its length before it."""
    packed: list[bytearray] = []
    for letter in letters:
        piece = len(letter).to_bytes(2, "big") + letter
        if not packed or len(packed[-1]) + len(piece) > _PAYLOAD_BYTES + 2:
            packed.append(bytearray())
        packed[-1] += piece
    return [b64encode(piece).decode() for piece in packed]


def _letters(payload: str) -> list[bytes]:
    """The letters of a payload; what is none is passed over."""
    try:
        packed = b64decode(payload, validate=True)
    except binascii.Error:
        return []
    letters = []
    at = 0
    while at + 2 <= len(packed):
        end = at + 2 + int.from_bytes(packed[at : at + 2], "big")
        letters.append(packed[at + 2 : end])
        at = end
    return letters
