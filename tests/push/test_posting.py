"""What a connection to a webhook takes for an answer, and when another POST may go over it. Over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.server.raw import in_loop
from tieline.engine.posting import Answer, Ended, NotHttp, PostConnection, connect

HERE = IPv4Address("127.0.0.1")
LIMIT_S = 20.0
REQUEST = b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

Told = Callable[[asyncio.StreamWriter], None]


@asynccontextmanager
async def connection(
    *pieces: bytes, ends: bool = False, at_once: bytes = b""
) -> AsyncGenerator[tuple[PostConnection, asyncio.Event], None]:
    """A connection whose other end answers each request with these pieces, and ends it then, or does not.

    `at_once`: what comes unasked. The event is set when the other end finds the connection ended.
    """
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(at_once)
            while await reader.readuntil(b"\r\n\r\n"):
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                    if len(pieces) > 1:
                        await asyncio.sleep(0)
                if ends:
                    break
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            gone.set()
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    made = await connect([HERE], server.sockets[0].getsockname()[1])
    try:
        async with asyncio.timeout(LIMIT_S):
            yield made, gone
    finally:
        made.close()
        server.close()


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        (OK, True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True),
        (b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", True),
        (b"HTTP/1.1 100 Continue\r\nRetry-After: 9\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", True),
        (b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n" + OK, True),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nab", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nab", False),
    ],
)
@in_loop
async def test_answer_is_read_to_its_end_however_it_is_cut(answer: bytes, kept: bool) -> None:
    for pieces in ((answer,), [bytes([byte]) for byte in answer], (answer[:-1], answer[-1:])):
        async with connection(*pieces) as (made, _):
            told = await made.post(REQUEST)
            assert 200 <= told.status < 300
            assert told.headers == {}
            assert made.open is kept
            if kept:
                assert await made.post(REQUEST) == told


@in_loop
async def test_answer_without_a_length_ends_with_its_connection() -> None:
    async with connection(b"HTTP/1.1 500 Oh\r\nRETRY-AFTER: 3\r\nRetry-After: 4\r\n\r\nsome words", ends=True) as (
        made,
        _,
    ):
        assert await made.post(REQUEST) == Answer(500, {"retry-after": "3"})
        assert not made.open


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\n\r\n",  # it has no end
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n" + b"x" * 200_000,
    ],
)
@in_loop
async def test_answer_whose_body_is_late_or_long_counts_and_costs_its_connection(answer: bytes) -> None:
    async with connection(answer) as (made, gone):
        assert (await made.post(REQUEST)).status == 200
        assert not made.open
        await gone.wait()


@in_loop
async def test_second_answer_to_one_request_is_no_answer_to_the_next() -> None:
    async with connection(OK + b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n") as (made, _):
        assert (await made.post(REQUEST)).status == 200
        assert not made.open
        with pytest.raises(Ended):
            await made.post(REQUEST)


@in_loop
async def test_connection_over_which_something_comes_unasked_is_ended() -> None:
    async with connection(OK, at_once=b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n") as (made, gone):
        await gone.wait()
        assert not made.open


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 000 No\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 099 No\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000,
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
@in_loop
async def test_what_is_not_an_answer_ends_the_connection(answer: bytes) -> None:
    async with connection(answer) as (made, gone):
        with pytest.raises(NotHttp):
            await made.post(REQUEST)
        await gone.wait()


@in_loop
async def test_connection_that_ends_in_a_head_has_told_nothing() -> None:
    for answer in (b"", b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"):
        async with connection(answer, ends=True) as (made, _):
            with pytest.raises(Ended):
                await made.post(REQUEST)


@in_loop
async def test_call_that_is_cancelled_ends_its_connection() -> None:
    async with connection(b"HTTP/1.1 200") as (made, gone):
        call = asyncio.create_task(made.post(REQUEST))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await gone.wait()


@in_loop
async def test_nobody_at_any_address_is_an_os_error() -> None:
    with pytest.raises(ConnectionRefusedError):
        await connect([IPv6Address("::1"), HERE], 1)


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=6), st.booleans())
def test_whatever_comes_is_an_answer_or_one_of_two_errors(pieces: list[bytes], begins_well: bool) -> None:
    class Transport(asyncio.Transport):
        def write(self, data: object) -> None:
            """Nobody reads it."""

        def abort(self) -> None:
            """Nothing is open."""

    async def told() -> None:
        made = PostConnection(HERE)
        made.connection_made(Transport())
        call = asyncio.create_task(made.post(REQUEST))
        await asyncio.sleep(0)
        for piece in [b"HTTP/1.1 200 OK\r\n", *pieces] if begins_well else pieces:
            made.data_received(piece)
        made.connection_lost(None)
        with suppress(Ended, NotHttp):
            assert (await call).status
        assert not made.open

    asyncio.run(told())
