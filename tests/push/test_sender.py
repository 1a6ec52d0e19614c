"""POSTs to webhooks, over real sockets and a real DNS server."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.push.receiving import OK, Post, names, receiver
from tests.server.raw import in_loop
from tieline.engine.guard import Guard
from tieline.engine.push import Push
from tieline.engine.sender import Sender, Sent

TLS = Path(__file__).parents[1] / "client" / "tls"
HEADERS = {"Content-Type": "application/a2a+json", "Authorization": "Bearer secret"}
LOOPBACK = Guard(allow_loopback=True)


def server_side(certificate: str = "this-machine.pem") -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(TLS / certificate)
    return context


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=TLS / "authority.pem")


def answering(*parts: bytes) -> Callable[[Post], bytes]:
    return lambda post: b"\r\n".join((*parts, b"", b""))


@in_loop
async def test_post_carries_headers_and_body_and_the_connection_is_kept() -> None:
    async with receiver() as at:
        sender = Sender(LOOPBACK)
        url = f"http://127.0.0.1:{at.port}/hook?x=%41"
        assert [await sender.post(url, HEADERS, body) for body in (b"{}", b'{"task":1}')] == [Sent(200), Sent(200)]
        await sender.close()
        first, second = at.posts
        assert (first.target, first.body, second.body) == ("/hook?x=%41", b"{}", b'{"task":1}')
        assert first.headers["content-type"] == "application/a2a+json"
        assert first.headers["authorization"] == "Bearer secret"
        assert first.headers["host"] == f"127.0.0.1:{at.port}"
        assert first.headers["user-agent"].startswith("tieline/")
        assert "cookie" not in first.headers
        assert "accept-encoding" not in first.headers
        assert at.connections == 1


@in_loop
async def test_name_stays_the_host_and_the_server_name_of_tls_while_the_connection_goes_to_the_checked_address() -> (
    None
):
    async with receiver(tls=server_side()) as at, names(["127.0.0.1"]) as dns:
        sender = Sender(LOOPBACK, resolve=dns.resolve, tls=trusting())
        assert (await sender.post(f"https://localhost:{at.port}/", HEADERS, b"{}")).delivered
        await sender.close()
        assert at.posts[0].headers["host"] == f"localhost:{at.port}"
        assert at.names == ["localhost"]
        assert dns.asked == 1


@in_loop
async def test_certificate_of_another_host_or_of_an_unknown_authority_is_refused() -> None:
    async with receiver(tls=server_side("another-host.pem")) as at:
        for tls in (trusting(), None):
            sender = Sender(LOOPBACK, tls=tls)
            sent = await sender.post(f"https://127.0.0.1:{at.port}/", HEADERS, b"{}")
            await sender.close()
            assert sent == Sent(0, None, "The certificate of the webhook's host is not one to be trusted.")
        assert at.posts == []


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("push-security.urls-checked")
@in_loop
async def test_name_that_first_means_an_allowed_and_then_a_private_address_is_refused_from_then_on() -> None:
    here = ["127.0.0.1"]
    async with receiver() as at, names(here, here, ["10.0.0.1"]) as dns:
        sender = Sender(LOOPBACK, resolve=dns.resolve, resolved_s=0)
        url = f"http://rebinding.example:{at.port}/"
        assert (await sender.post(url, HEADERS, b"1")).delivered
        assert (await sender.post(url, HEADERS, b"2")).delivered
        refused = await sender.post(url, HEADERS, b"3")  # the connection is still there, and is not used
        await sender.close()
        assert refused.detail == ("The webhook's URL has a host at a private address, which is not allowed here.")
        assert [post.body for post in at.posts] == [b"1", b"2"]


@in_loop
async def test_connection_goes_to_the_address_that_was_checked_whatever_the_name_means_by_then() -> None:
    async with receiver() as at, names(["127.0.0.1"], ["10.0.0.1"]) as dns:
        sender = Sender(LOOPBACK, resolve=dns.resolve, resolved_s=0)
        assert (await sender.post(f"http://rebinding.example:{at.port}/", HEADERS, b"{}")).delivered
        await sender.close()
        assert dns.asked == 1


@in_loop
async def test_kept_connection_to_an_address_that_the_name_has_no_more_is_not_used() -> None:
    async with receiver() as at, names(["127.0.0.1"], ["127.0.0.2"]) as dns:
        sender = Sender(LOOPBACK, resolve=dns.resolve, resolved_s=0)
        url = f"http://moving.example:{at.port}/"
        assert (await sender.post(url, HEADERS, b"1")).delivered
        assert await sender.post(url, HEADERS, b"2") == Sent(0, None, "There was no connection to the webhook's host.")
        await sender.close()
        assert [post.body for post in at.posts] == [b"1"]


@in_loop
async def test_host_with_an_address_that_does_not_answer_is_reached_at_its_next_one() -> None:
    async with receiver() as at, names(["127.0.0.2", "127.0.0.1"]) as dns:
        sender = Sender(LOOPBACK, resolve=dns.resolve)
        assert (await sender.post(f"http://two.example:{at.port}/", HEADERS, b"{}")).delivered
        await sender.close()


@in_loop
async def test_name_with_one_address_among_several_that_is_not_allowed_is_refused() -> None:
    async with receiver() as at, names(["127.0.0.1", "169.254.169.254"]) as dns:
        sender = Sender(LOOPBACK, resolve=dns.resolve)
        sent = await sender.post(f"http://both.example:{at.port}/", HEADERS, b"{}")
        await sender.close()
        assert "link-local address" in sent.detail
        assert "169.254" not in sent.detail
        assert at.connections == 0


@pytest.mark.requirement("push-security.urls-checked")
@in_loop
async def test_public_name_at_a_private_address_is_refused_by_default() -> None:
    async with receiver(tls=server_side()) as at, names(["127.0.0.1"]) as dns:
        sender = Sender(resolve=dns.resolve, tls=trusting())
        sent = await sender.post(f"https://example.com:{at.port}/", HEADERS, b"{}")
        await sender.close()
        assert sent.detail == "The webhook's URL has a host at a loopback address, which is not allowed here."
        assert at.connections == 0


@in_loop
async def test_name_without_address_and_a_port_that_nobody_listens_on_are_told_apart() -> None:
    async with receiver() as at, names() as dns:
        port = at.port
        sender = Sender(LOOPBACK, resolve=dns.resolve)
        assert "no address in DNS" in (await sender.post("http://nowhere.example/", HEADERS, b"{}")).detail
    sent = await sender.post(f"http://127.0.0.1:{port}/", HEADERS, b"{}")
    await sender.close()
    assert sent == Sent(0, None, "There was no connection to the webhook's host.")


@in_loop
async def test_names_are_asked_for_once_by_all_who_want_them_at_the_same_time() -> None:
    async with receiver() as at, names(["127.0.0.1"]) as dns:
        sender = Sender(LOOPBACK, resolve=dns.resolve)
        url = f"http://one.example:{at.port}/"
        sent = await asyncio.gather(*[sender.post(url, HEADERS, b"{}") for _ in range(20)])
        await sender.close()
        assert all(each.delivered for each in sent)
        assert dns.asked == 1


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@in_loop
async def test_redirect_is_not_followed(status: int) -> None:
    async with receiver() as secret:
        location = f"Location: http://127.0.0.1:{secret.port}/".encode()
        async with receiver(answering(b"HTTP/1.1 %d Moved" % status, location, b"Content-Length: 0")) as at:
            sender = Sender(LOOPBACK)
            sent = await sender.post(f"http://127.0.0.1:{at.port}/", HEADERS, b"{}")
            await sender.close()
        assert sent == Sent(
            status, None, f"The webhook answered with a redirect ({status}); redirects are not followed."
        )
        assert not sent.delivered
        assert secret.connections == 0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ([b"Retry-After: 7"], 7.0),
        ([b"Retry-After: 99999999999999"], 86400.0),
        ([b"Retry-After: Sun, 06 Nov 1994 08:49:47 GMT", b"Date: Sun, 06 Nov 1994 08:49:37 GMT"], 10.0),
        ([b"Retry-After: Sun, 06 Nov 1994 08:49:37 GMT", b"Date: Sun, 06 Nov 1994 08:49:47 GMT"], 0.0),
        ([b"Retry-After: soon"], None),
        ([b"Retry-After: -1"], None),
        ([], None),
    ],
)
@in_loop
async def test_answer_that_asks_for_patience_says_how_much(headers: list[bytes], seconds: float | None) -> None:
    async with receiver(answering(b"HTTP/1.1 503 Busy", *headers, b"Content-Length: 0")) as at:
        sender = Sender(LOOPBACK)
        sent = await sender.post(f"http://127.0.0.1:{at.port}/", HEADERS, b"{}")
        await sender.close()
        assert sent == Sent(503, seconds, "The webhook answered with HTTP 503.")


@in_loop
async def test_short_answer_is_read_and_its_connection_kept_while_a_long_one_costs_its_connection() -> None:
    def answer(post: Post) -> bytes:
        length = int(post.body)
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length + b"x" * length

    async with receiver(answer) as at:
        sender = Sender(LOOPBACK)
        url = f"http://127.0.0.1:{at.port}/"
        for length in (b"10", b"65536", b"10000000", b"10"):
            assert (await sender.post(url, HEADERS, length)).status == 200
        await sender.close()
        assert [post.connection for post in at.posts] == [1, 1, 1, 2]


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n"]
)
@in_loop
async def test_answer_that_is_not_http_is_a_failure_with_nothing_of_it_in_the_sentence(answer: bytes) -> None:
    async with receiver(lambda post: answer) as at:
        sender = Sender(LOOPBACK)
        sent = await sender.post(f"http://127.0.0.1:{at.port}/", HEADERS, b"{}")
        await sender.close()
        assert sent == Sent(0, None, "What the webhook answered is not HTTP.")


@in_loop
async def test_kept_connection_that_was_closed_meanwhile_is_replaced_once() -> None:
    async with receiver() as at:
        sender = Sender(LOOPBACK)
        url = f"http://127.0.0.1:{at.port}/"
        assert (await sender.post(url, HEADERS, b"1")).delivered
        at.answer = lambda post: OK if post.connection == 2 else None
        assert (await sender.post(url, HEADERS, b"2")).delivered
        at.answer = lambda post: None
        sent = await sender.post(url, HEADERS, b"3")
        await sender.close()
        assert sent == Sent(0, None, "The webhook's host closed the connection without an answer.")
        assert [post.body for post in at.posts] == [b"1", b"2", b"2", b"3", b"3"]


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("push.delivery-timeout")
def test_time_limit_of_a_post_is_what_the_specification_recommends() -> None:
    assert 10 <= Push().timeout_s <= 30


@pytest.mark.requirement("push.delivery-timeout")
@in_loop
async def test_receiver_that_does_not_answer_is_given_up() -> None:
    async with receiver(lambda post: b"HTTP/1.1 200") as at:
        sender = Sender(LOOPBACK, total_s=0.2)
        sent = await sender.post(f"http://127.0.0.1:{at.port}/", HEADERS, b"{}")
        await sender.close()
        assert sent == Sent(0, None, "The webhook did not answer within 0.2 seconds.")


@in_loop
async def test_posts_to_a_slow_receiver_wait_for_each_other_and_hold_up_no_other_receiver() -> None:
    released = asyncio.Event()

    async with receiver() as slow, receiver() as quick:
        real = slow.serve

        async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await released.wait()
            await real(reader, writer)

        server = await asyncio.start_server(late, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        sender = Sender(LOOPBACK, at_once=3, at_once_per_host=2)
        waiting = [
            asyncio.create_task(sender.post(f"http://127.0.0.1:{port}/", HEADERS, str(n).encode())) for n in range(6)
        ]
        for _ in range(10):
            assert (await sender.post(f"http://127.0.0.1:{quick.port}/", HEADERS, b"{}")).delivered
        assert not any(task.done() for task in waiting)
        released.set()
        assert all(sent.delivered for sent in await asyncio.gather(*waiting))
        assert slow.most_open <= 2
        await sender.close()
        server.close()


@in_loop
async def test_proxy_of_the_environment_is_not_used() -> None:
    async with receiver() as proxy, receiver() as at:
        before = {name: os.environ.get(name) for name in ("http_proxy", "all_proxy", "no_proxy")}
        os.environ |= {"http_proxy": f"http://127.0.0.1:{proxy.port}", "all_proxy": f"http://127.0.0.1:{proxy.port}"}
        os.environ.pop("no_proxy", None)
        try:
            sender = Sender(LOOPBACK)
            assert (await sender.post(f"http://127.0.0.1:{at.port}/", HEADERS, b"{}")).delivered
            await sender.close()
        finally:
            for name, value in before.items():
                os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)
        assert proxy.connections == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Authorization", "Bearer a\r\nX-Injected: 1"),
        ("Authorization", "Bearer a\nb"),
        ("Authorization", "Bearer a\0"),
        ("Authorization", "Bearer a\x7f"),
        ("Authorization", "Bearer \u00fc"),
        ("Authorization", "Bearer a "),
        ("X-A2A-Notification-Token", ""),
        ("X: 1\r\nY", "1"),
        ("", "1"),
    ],
)
@in_loop
async def test_header_that_would_make_another_is_not_sent_and_not_repeated(name: str, value: str) -> None:
    async with receiver() as at:
        sender = Sender(LOOPBACK)
        sent = await sender.post(f"http://127.0.0.1:{at.port}/", {name: value}, b"{}")
        await sender.close()
        assert sent.status == 0
        assert sent.detail.startswith(("The header ", "A header "))
        assert "Injected" not in sent.detail
        assert at.connections == 0


@in_loop
async def test_url_that_the_guard_refuses_is_not_called_and_a_closed_sender_calls_nothing() -> None:
    async with receiver() as at:
        sender = Sender()
        url = f"http://127.0.0.1:{at.port}/"
        assert (await sender.post(url, HEADERS, b"{}")).detail == "The webhook's URL has to be an https URL."
        allowed = Sender(LOOPBACK)
        await allowed.close()
        assert not (await allowed.post(url, HEADERS, b"{}")).delivered
        assert at.connections == 0


@in_loop
async def test_what_is_under_way_when_the_sender_is_closed_ends_without_an_exception() -> None:
    came = asyncio.Event()

    def answer(post: Post) -> bytes:
        came.set()
        return b"HTTP/1.1 200"

    async with receiver(answer) as at, names(["127.0.0.1"]) as dns:
        sender = Sender(LOOPBACK, at_once_per_host=1, resolve=dns.resolve)
        posts = [asyncio.create_task(sender.post(f"http://127.0.0.1:{at.port}/", HEADERS, b"{}")) for _ in range(3)]
        await came.wait()
        posts.append(asyncio.create_task(sender.post(f"http://one.example:{at.port}/", HEADERS, b"{}")))
        await asyncio.sleep(0)  # it asks for the name
        await sender.close()
        await sender.close()
        assert await asyncio.gather(*posts) == [Sent(0, None, "The server is ending.")] * 4
        assert len(at.posts) == 1
