"""Bodies of any size, in any pieces."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest

import tieline
from tests.server.agents import mixed, worker
from tests.server.raw import A2A_JSON, JSON, Pairs, Reply, Wire, asgi, in_loop, request, serve

DEFAULT_LIMIT = 64 * 1024 * 1024
CHUNKED = ("Transfer-Encoding", "chunked")
LIST = b'{"jsonrpc":"2.0","id":"list","method":"ListTasks","params":{}}'


def padded(size: int) -> bytes:
    """A JSON-RPC request of so many bytes."""
    return LIST + b" " * (size - len(LIST))


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def check_refusal(reply: Reply, path: str, limit: int) -> None:
    assert reply.status == 413
    error = reply.json()["error"]
    details = error["data"] if path == "/" else error["details"]
    assert error["code"] == (-32600 if path == "/" else 413)
    assert details[0]["metadata"] == {"limitBytes": str(limit)}
    assert str(limit) in error["message"]


@pytest.mark.parametrize("path", ["/", "/message:send", "/message:stream", "/tasks/t:cancel"])
@pytest.mark.parametrize("length", [DEFAULT_LIMIT + 1, 10**15, 10**16, 10**30])
@in_loop
async def test_a_length_above_the_limit_is_refused_before_the_body_is_sent(path: str, length: int) -> None:
    async with serve(tieline.app(worker())) as port, Wire(port) as wire:
        await wire.write("POST", path, None, [*JSON, ("Content-Length", str(length))])
        try:
            status, headers = await wire.head()
        except asyncio.IncompleteReadError as error:
            assert length > 2**63, "only the HTTP parser may refuse a length without words"
            assert error.partial == b""  # noqa: PT017
            return
        reply = Reply(status, headers, await wire.body())
    if length < 2**63 or reply.status != 400:
        check_refusal(reply, path, DEFAULT_LIMIT)


@pytest.mark.parametrize("path", ["/", "/message:send"])
@in_loop
async def test_a_chunked_body_is_refused_when_it_passes_64_megabytes(path: str) -> None:
    async with serve(tieline.app(worker())) as port, Wire(port) as wire:
        await wire.write("POST", path, None, [*JSON, CHUNKED])
        piece = chunk(b" " * (1 << 20))

        async def send() -> None:
            for _ in range(66):
                await wire.send(piece)

        sending = asyncio.create_task(send())
        status, headers = await wire.head()
        reply = Reply(status, headers, await wire.body())
        sending.cancel()
        await asyncio.wait([sending])
    check_refusal(reply, path, DEFAULT_LIMIT)


@pytest.mark.parametrize("chunked", [True, False])
@in_loop
async def test_the_limit_is_inclusive(chunked: bool) -> None:
    headers: Pairs = [*JSON, CHUNKED] if chunked else JSON
    async with serve(tieline.app(worker(), max_body_bytes=1000)) as port:
        for size, status in ((999, 200), (1000, 200), (1001, 413), (5000, 413)):
            body = padded(size)
            async with Wire(port) as wire:
                sent = chunk(body[:300]) + chunk(body[300:]) + b"0\r\n\r\n" if chunked else body
                reply = await wire.request("POST", "/", sent, headers)
            assert reply.status == status
            if status == 413:
                check_refusal(reply, "/", 1000)
            else:
                assert reply.json()["result"]["totalSize"] == 0


@pytest.mark.parametrize("size", [1, 7, 62, 1000])
@in_loop
async def test_a_body_may_come_in_pieces_of_any_size(size: int) -> None:
    pieces = [LIST[at : at + size] for at in range(0, len(LIST), size)]
    async with serve(tieline.app(worker())) as port, Wire(port) as wire:
        await wire.write("POST", "/", None, [*JSON, CHUNKED])
        for piece in pieces:
            await wire.send(chunk(piece))
            await asyncio.sleep(0)
        await wire.send(b"0\r\n\r\n")
        status, headers = await wire.head()
        assert Reply(status, headers, await wire.body()).json()["id"] == "list"


@pytest.mark.parametrize("length", ["0", "", "-1", "x", "1e3", " 5", "+5", "\xb2", "9" * 5000])
@in_loop
async def test_a_content_length_that_is_none_does_not_count(length: str) -> None:
    """As a server in front may pass it: what counts is the body that comes."""
    headers = [("Content-Type", "application/json"), ("Content-Length", length)]
    reply = await asgi(tieline.app(worker()), "POST", "/", LIST, headers)
    assert reply.status in (200, 413)
    assert "error" in reply.json() or reply.json()["result"]["totalSize"] == 0


@in_loop
async def test_a_file_of_10_megabytes_is_taken_and_not_echoed_unless_history_is_asked_for() -> None:
    file = base64.b64encode(bytes(10 << 20)).decode()
    parts = [{"text": "work"}, {"raw": file, "mediaType": "application/octet-stream", "filename": "a.bin"}]
    message = {"messageId": "m", "role": "ROLE_USER", "parts": parts}
    async with serve(tieline.app(mixed())) as port:
        reply = await request(port, "POST", "/message:send", json.dumps({"message": message}).encode(), A2A_JSON)
        assert reply.status == 200
        assert len(reply.body) < 10_000
        task = reply.json()["task"]
        assert len((await request(port, "GET", f"/tasks/{task['id']}")).body) < 10_000
        whole = await request(port, "GET", f"/tasks/{task['id']}?historyLength=10")
        assert whole.json()["history"][0]["parts"][1]["raw"] == file


@in_loop
async def test_the_connection_is_of_use_again_behind_a_refusal_or_is_closed() -> None:
    async with serve(tieline.app(worker(), max_body_bytes=100)) as port, Wire(port) as wire:
        reply = await wire.request("POST", "/", padded(5000), JSON)
        assert reply.status == 413
        try:
            again = await wire.request("POST", "/", LIST, JSON)
        except (asyncio.IncompleteReadError, ConnectionError):
            return  # closed: what was left of the body cannot be taken for a request
        assert again.json()["id"] == "list"


@pytest.mark.parametrize(
    "head",
    [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "NOT HTTP\r\n\r\n",
        "POST /%ff%00 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
        "GET /tasks?\xff=%zz HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /../../etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://other/tasks HTTP/1.1\r\nHost: a\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /tasks HTTP/1.0\r\n\r\n",
        "HEAD /tasks HTTP/1.1\r\nHost: a\r\n\r\n",
        "\x00" * 100 + "\r\n\r\n",
    ],
)
@pytest.mark.parametrize("http", ["httptools", "h11"])
@in_loop
async def test_a_request_that_is_hardly_http_never_gets_a_500(
    http: str, head: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(tieline.app(worker()), http=http) as port:
        async with Wire(port) as wire:
            await wire.send(head.encode("latin-1"))
            wire.writer.write_eof()
            answer = await wire.reader.read(1 << 16)
        first = answer.split(b"\r\n", 1)[0]
        assert not answer or first.split(b" ")[1][:1] in (b"2", b"4"), first
        assert (await request(port, "GET", "/tasks")).status == 200
    assert "Traceback" not in caplog.text
    assert "Exception in ASGI" not in caplog.text
