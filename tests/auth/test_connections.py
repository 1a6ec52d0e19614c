"""Heads and bodies that are too large, too many, too deep or too slow; pipelines with something wrong in them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import tieline
from tests.auth.tokens import Tokens
from tests.interop.processes import free_port, running
from tests.server.agents import mixed, worker
from tests.server.raw import JSON, Wire, in_loop, serve
from tieline.server.asgi import App
from tieline.server.auth import Auth, BearerTokens
from tieline.server.connections import close_slow
from tieline.server.listening import listening
from tieline.server.protocol import Connection

SEND = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "SendMessage",
    "params": {"message": {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}},
}
BODY = json.dumps(SEND).encode()


class Impatient(Connection):
    """With limits of tenths of seconds. Every connection is remembered."""

    head_s = 0.2
    body_s = 0.2
    linger_s = 0.2
    body_bytes_per_s = 10_000
    made: list[Impatient] = []

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.made.append(self)


@asynccontextmanager
async def served(app: App) -> AsyncIterator[int]:
    """The app by our connections, which are looked at as the server does."""
    Impatient.made.clear()

    async def look() -> None:
        while True:
            await asyncio.sleep(0.02)
            close_slow(Impatient.made, asyncio.get_running_loop().time())

    async with serve(app, http=Impatient) as port:
        looking = asyncio.ensure_future(look())
        try:
            yield port
        finally:
            looking.cancel()


async def rest_of(wire: Wire) -> bytes:
    """All that still comes, to the end of the connection."""
    try:
        return await wire.reader.read()
    except ConnectionError:
        return b""


def head(*lines: str, port: int = 1) -> bytes:
    return ("\r\n".join(["POST / HTTP/1.1", f"Host: 127.0.0.1:{port}", *lines, "", ""])).encode()


@in_loop
async def test_connection_on_which_nothing_comes_is_closed() -> None:
    async with served(tieline.app(worker())) as port, Wire(port) as wire:
        answer = await rest_of(wire)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"0.2 seconds" in answer


@in_loop
async def test_head_that_comes_slowly_is_cut_off_however_steadily_it_comes() -> None:
    async with served(tieline.app(worker())) as port, Wire(port) as wire:
        await wire.send(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n")

        async def drip() -> None:
            while True:
                await wire.send(b"X-More: 1\r\n")
                await asyncio.sleep(0.03)

        dripping = asyncio.ensure_future(drip())
        answer = await rest_of(wire)
        dripping.cancel()
        await asyncio.wait([dripping])
        assert answer.startswith(b"HTTP/1.1 408 ")


@in_loop
async def test_body_that_comes_slowly_is_cut_off_and_one_that_comes_steadily_is_not() -> None:
    async with served(tieline.app(worker())) as port:
        async with Wire(port) as wire:
            await wire.send(head("Content-Type: application/json", "Content-Length: 100000"))
            for _ in range(5):
                await wire.send(b" ")
            answer = await rest_of(wire)
            assert answer.startswith(b"HTTP/1.1 408 ")
            assert b"10000 bytes a second" in answer
        async with Wire(port) as wire:
            padded = BODY + b" " * 20_000
            await wire.send(head("Content-Type: application/json", f"Content-Length: {len(padded)}"))
            for start in range(0, len(padded), 1000):  # for longer than any limit would allow if nothing came
                await wire.send(padded[start : start + 1000])
                await asyncio.sleep(0.02)
            assert (await wire.head())[0] == 200


@pytest.mark.parametrize("piece", [b"a: " + b"b" * 1000 + b"\r\n", b"b" * 1000], ids=["many", "one"])
@in_loop
async def test_trailers_without_an_end_are_cut_off(piece: bytes) -> None:
    async with served(tieline.app(worker())) as port, Wire(port) as wire:
        await wire.send(head("Content-Type: application/json", "Transfer-Encoding: chunked"))
        await wire.send(b"2\r\n{}\r\n0\r\nx: y" + (b"\r\n" if piece.endswith(b"\n") else b""))
        taken = 0
        with contextlib.suppress(ConnectionError):
            while taken < 50_000_000:
                await wire.send(piece)
                taken += len(piece)
        assert taken < 50_000_000


@in_loop
async def test_body_of_many_small_chunks_with_a_trailer_behind_it_is_taken() -> None:
    chunks = b"".join(b"1;of=one\r\n%c\r\n" % byte for byte in BODY + b" " * 40_000)
    async with served(tieline.app(mixed())) as port, Wire(port) as wire:
        await wire.send(head("Content-Type: application/json", "A2A-Version: 1.0", "Transfer-Encoding: chunked"))
        await wire.send(chunks + b"0\r\nX-Trailer: of no account\r\n\r\n")
        assert (await wire.head())[0] == 200


@in_loop
async def test_agent_that_is_slow_is_not_taken_for_a_slow_caller_nor_is_an_idle_connection() -> None:
    async with served(tieline.app(mixed())) as port, Wire(port) as wire:
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "wait"}]}
        body = json.dumps({**SEND, "method": "SendStreamingMessage", "params": {"message": message}}).encode()
        await wire.write("POST", "/", body, JSON)
        assert (await wire.head())[0] == 200
        frames = wire.frames()
        await anext(frames)
        async with Wire(port) as other:
            for _ in range(3):
                assert (await other.request("GET", "/tasks", headers=JSON)).status == 200
                await asyncio.sleep(0.3)
        assert not wire.reader.at_eof()


@pytest.mark.parametrize("count", [1, 10, 40, 200])
@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "in pieces"])
@in_loop
async def test_head_of_too_many_bytes_is_refused_however_it_comes(count: int, at_once: bool) -> None:
    size = Connection.head_bytes // count + 100
    lines = [f"X-H{number}: {'x' * size}" for number in range(count)]
    async with served(tieline.app(worker())) as port, Wire(port) as wire:
        whole = head(*lines, "Content-Length: 0")
        step = len(whole) if at_once else 10_000
        for start in range(0, len(whole), step):
            wire.writer.write(whole[start : start + step])
            await asyncio.sleep(0)
        answer = await rest_of(wire)
        assert answer.startswith(b"HTTP/1.1 431 ") or answer == b"", answer[:100]
        assert Impatient.made[-1].cycle is None, "the app was never called"


@in_loop
async def test_target_that_is_too_long_and_headers_that_are_too_many_are_refused() -> None:
    async with served(tieline.app(worker())) as port:
        async with Wire(port) as wire:
            await wire.send(b"GET /tasks/" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert (await rest_of(wire))[:13] in (b"HTTP/1.1 431 ", b"HTTP/1.1 400 ", b"")
            assert Impatient.made[-1].cycle is None
        async with Wire(port) as wire:
            await wire.send(head(*(f"X-H{number}: 1" for number in range(300)), "Content-Length: 0"))
            answer = await rest_of(wire)
            assert answer.startswith(b"HTTP/1.1 431 ")
            assert b"more than 256 headers" in answer
        async with Wire(port) as wire:
            many = [("X-H", str(number)) for number in range(200)]
            assert (await wire.request("GET", "/tasks", headers=[*JSON, *many])).status == 200


@in_loop
async def test_answers_of_a_pipeline_are_each_for_its_own_request_when_a_later_one_is_refused() -> None:
    async with served(tieline.app(worker())) as port:
        good = head("Content-Type: application/json", "A2A-Version: 1.0", f"Content-Length: {len(BODY)}") + BODY
        for bad in (
            head(*(f"X-H{number}: 1" for number in range(300)), "Content-Length: 0"),
            b"NONSENSE\r\n\r\n",
            head("Content-Length: 1", "Content-Length: 2"),
            head("Transfer-Encoding: chunked", "Content-Length: 4") + b"0\r\n\r\n",
        ):
            async with Wire(port) as wire:
                await wire.send(good + bad)
                answer = await rest_of(wire)
                first = answer[: answer.find(b"\r\n")]
                assert first in (b"", b"HTTP/1.1 200 OK"), answer
            async with Wire(port) as wire:
                await wire.send(good)
                assert (await wire.head())[0] == 200
                await wire.body()
                await wire.send(bad)
                answer = await rest_of(wire)
                assert answer[:11] == b"HTTP/1.1 43" or answer[:11] == b"HTTP/1.1 40", answer


@in_loop
async def test_requests_of_a_pipeline_are_each_authenticated(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    token = tokens.add()
    async with served(tieline.app(worker(), auth=Auth(BearerTokens(tokens.path)))) as port, Wire(port) as wire:
        plain = ["Content-Type: application/json", "A2A-Version: 1.0", f"Content-Length: {len(BODY)}"]
        known = head(*plain, f"Authorization: Bearer {token}") + BODY
        unknown = head(*plain) + BODY
        await wire.send(known + unknown + known + unknown)
        statuses = []
        for _ in range(4):
            statuses.append((await wire.head())[0])
            await wire.body()
        assert statuses == [200, 401, 200, 401]


@in_loop
async def test_who_was_refused_and_goes_on_sending_is_hung_up_on_without_a_second_answer(tmp_path: Path) -> None:
    auth = Auth(BearerTokens(Tokens(tmp_path).path))
    async with served(tieline.app(worker(), auth=auth)) as port, Wire(port) as wire:
        await wire.send(head("Content-Type: application/json", "Content-Length: 1000000000000"))
        assert (await wire.head())[0] == 401
        await wire.body()

        async def flood() -> None:
            while True:
                await wire.send(b" " * 65536)
                await asyncio.sleep(0.01)

        flooding = asyncio.ensure_future(flood())
        assert await rest_of(wire) == b""
        flooding.cancel()
        await asyncio.wait([flooding])


@in_loop
async def test_deep_json_is_refused_in_each_place_where_it_may_stand() -> None:
    async with served(tieline.app(worker())) as port:
        for depth in (101, 5_000, 200_000):
            deep = b"[" * depth + b"]" * depth
            for body in (
                deep,
                b'{"a":' * depth + b"1" + b"}" * depth,
                b'{"jsonrpc":"2.0","id":' + deep + b',"method":"SendMessage","params":{}}',
                b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":' + deep + b"}",
                BODY.replace(b'"text": "hello"', b'"data": ' + deep),
                BODY.replace(b'"messageId"', b'"metadata": {"x": ' + deep + b'}, "messageId"'),
                b"[" * depth,
            ):
                async with Wire(port) as wire:
                    answer = await wire.request("POST", "/", body, JSON)
                    assert answer.status == 200
                    assert answer.json()["error"]["code"] in (-32700, -32600, -32602), (depth, body[:60])
        async with Wire(port) as wire:
            assert (await wire.request("POST", "/", BODY, JSON)).json()["result"]


@in_loop
async def test_upgrade_to_a_websocket_is_not_taken() -> None:
    async with served(tieline.app(worker())) as port, Wire(port) as wire:
        upgrade = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Key", "x" * 24)]
        answer = await wire.request("GET", "/tasks", headers=[*JSON, *upgrade])
        assert answer.status != 101


@in_loop
async def test_request_that_offers_another_protocol_is_answered_with_its_body_however_it_comes() -> None:
    offer = ("Connection: keep-alive, Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")
    plain = ("Content-Type: application/json", "A2A-Version: 1.0")
    sized = head(*plain, *offer, f"Content-Length: {len(BODY)}")
    chunked = head(*plain, *offer, "Transfer-Encoding: chunked") + b"%x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n"
    async with served(tieline.app(worker())) as port:
        for pieces in (
            [sized + BODY],
            [sized, BODY],
            [sized[:40], sized[40:] + BODY[:9], BODY[9:]],
            [chunked],
            [chunked[:-20], chunked[-20:]],
            [sized + BODY + chunked],
        ):
            async with Wire(port) as wire:
                for piece in pieces:
                    await wire.send(piece)
                    await asyncio.sleep(0)
                for _ in range(2 if len(pieces) == 1 and len(pieces[0]) > len(chunked) + 100 else 1):
                    assert (await wire.head())[0] == 200
                    assert "result" in json.loads(await wire.body()), pieces
                # The connection goes on as it was.
                assert (await wire.request("POST", "/", BODY, JSON)).json()["result"]


@in_loop
async def test_body_behind_an_offer_of_another_protocol_is_no_request_of_its_own() -> None:
    hidden = b"GET /tasks HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    async with served(tieline.app(worker())) as port:
        for pieces in ([hidden], [hidden[:10], hidden[10:]], [b"", hidden]):
            async with Wire(port) as wire:
                await wire.send(
                    head("Connection: upgrade, close", "Upgrade: h2c", f"Content-Length: {len(hidden)}") + pieces[0]
                )
                for piece in pieces[1:]:
                    await wire.send(piece)
                answer = await rest_of(wire)
                assert answer.count(b"HTTP/1.1") == 1, answer
                assert b"-32700" in answer


@in_loop
async def test_limits_of_heads_hold_where_another_protocol_is_offered() -> None:
    offer = ("Connection: upgrade", "Upgrade: h2c")
    async with served(tieline.app(worker())) as port:
        for lines in ([f"X-H{number}: 1" for number in range(300)], ["X-H: " + "x" * 70_000]):
            async with Wire(port) as wire:
                await wire.send(head(*offer, *lines))
                assert (await rest_of(wire)).startswith(b"HTTP/1.1 431 ")
        async with Wire(port) as wire:
            await wire.send(b"CONNECT / HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n")
            assert (await wire.head())[0] == 405


@in_loop
async def test_receiver_of_webhooks_has_the_limits_of_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "head_s", 0.3)

    async def nothing(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("no request has come")

    async with listening(nothing, "127.0.0.1", 0) as url:
        port = int(url.rstrip("/").rpartition(":")[2])
        async with Wire(port) as wire:
            await wire.send(b"POST / HTTP/1.1\r\nX-H: ")
            assert (await rest_of(wire)).startswith(b"HTTP/1.1 408 ")
        async with Wire(port) as wire:
            await wire.send(b"POST / HTTP/1.1\r\nX-H: " + b"x" * 100_000)
            assert (await rest_of(wire)).startswith(b"HTTP/1.1 431 ")


def test_server_of_the_command_looks_at_its_connections(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "impatient.py").write_text(
        "import tieline\n"
        "from tieline.server.protocol import Connection\n"
        "from tieline.server.serve import serve\n"
        "@tieline.agent(name='Hello', description='Greets.')\n"
        "async def hello(turn: tieline.Turn): return 'Hello!'\n"
        "Connection.head_s = 0.3\n"
        f"serve(hello, port={port})\n"
    )
    with running([sys.executable, tmp_path / "impatient.py"], port, tmp_path / "log"):

        @in_loop
        async def slow() -> None:
            async with Wire(port) as wire:
                await wire.send(b"POST / HTTP/1.1\r\n")
                assert (await rest_of(wire)).startswith(b"HTTP/1.1 408 ")

        slow()
