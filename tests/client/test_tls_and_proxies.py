"""HTTPS with certificates that are good and bad, and proxies that the environment names."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from tests.client.running import run
from tests.client.scripted import Answer, Http, Script, Stream, card_of, listening, scripted
from tests.client.serving import served
from tests.client.tasks import TASK, message, status, task
from tieline import TaskState, Turn, agent, app, connect
from tieline.errors import InvalidCard, Unreachable
from tieline.types import encode

FOLDER = Path(__file__).with_name("tls")
"""Keys and certificates of these tests alone: nobody trusts their authority, and they are good until 2124."""

AUTHORITY = str(FOLDER / "authority.pem")
BINDING = {"jsonrpc": "JSONRPC", "rest": "HTTP+JSON"}
both = pytest.mark.parametrize("transport", ["jsonrpc", "rest"])


def server_side(certificate: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(FOLDER / certificate)
    return context


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


# --- TLS --------------------------------------------------------------------------------------------------------------


@agent(name="Hello", description="Greets.")
async def hello(turn: Turn) -> str:
    return f"Hello, {turn.text}!"


@both
@pytest.mark.requirement("tls.encrypted")
def test_card_calls_and_streams_go_over_https(transport: str) -> None:
    async def test() -> None:
        async with (
            served(app(hello), certificate=str(FOLDER / "this-machine.pem")) as url,
            connect(url, transport=BINDING[transport], verify=AUTHORITY) as peer,
        ):
            assert peer.interface.url.startswith("https://")
            assert await peer.ask("Ada") == "Hello, Ada!"
            assert [event async for event in peer.stream("Ada")]
            assert (await peer.list()).total_size == 2

    run(test())


@both
@pytest.mark.requirement("tls.client-verifies-server")
@pytest.mark.parametrize(
    ("certificate", "verify", "words"),
    [
        ("this-machine.pem", True, "unable to get local issuer certificate"),
        ("another-host.pem", AUTHORITY, "IP address mismatch"),
    ],
)
def test_certificate_that_nobody_vouches_for_or_of_another_host_is_refused_for_card_and_calls(
    transport: str, certificate: str, verify: bool | str, words: str
) -> None:
    async def test() -> None:
        async with scripted(BINDING[transport], {}, tls=server_side(certificate)) as agent:
            with pytest.raises(Unreachable, match=words):
                await connect(agent.url, verify=verify)
            async with connect(agent.card, verify=verify) as peer:
                with pytest.raises(Unreachable, match=words):
                    await peer.send("secret")
                with pytest.raises(Unreachable, match=words):
                    await anext(peer.stream("secret"))

    run(test())


@both
def test_bad_certificate_does_not_move_the_client_to_an_interface_without_tls(transport: str) -> None:
    async def test() -> None:
        async with (
            scripted(BINDING[transport], {}, tls=server_side("this-machine.pem")) as safe,
            scripted("HTTP+JSON", {}) as bare,
        ):
            card = card_of((safe.url, BINDING[transport]), (bare.url, "HTTP+JSON"))
            async with connect(card) as peer:
                with pytest.raises(Unreachable, match="cannot be trusted"):
                    await peer.send("secret")
        assert bare.requests == []

    run(test())


@both
def test_what_an_encrypted_card_is_asked_for_with_is_not_sent_to_an_interface_without_tls(transport: str) -> None:
    async def test() -> None:
        reply = {"SendMessage": [Answer(message("hi"))]}
        async with (
            scripted(BINDING[transport], dict(reply), tls=server_side("this-machine.pem")) as safe,
            scripted(BINDING[transport], dict(reply)) as bare,
        ):
            only = Http(200, encode(bare.card))
            both_of_them = Http(200, encode(card_of((bare.url, BINDING[transport]), (safe.url, BINDING[transport]))))
            safe.script("card", only, both_of_them, only)
            url = safe.url.removesuffix("/agent")
            with pytest.raises(InvalidCard, match=f"names {bare.url}, which is not"):
                await connect(url, verify=AUTHORITY, headers={"Authorization": "Bearer secret"})
            async with connect(url, verify=AUTHORITY, query={"key": "secret"}) as peer:
                assert await peer.send("go") == message("hi")
            assert bare.requests == []
            async with connect(url, verify=AUTHORITY) as peer:  # nothing is to be kept from anybody
                assert await peer.send("go") == message("hi")
            assert len(bare.requests) == 1

    run(test())


@both
def test_verification_can_be_turned_off_or_given_a_context(transport: str) -> None:
    async def test() -> None:
        context = ssl.create_default_context(cafile=AUTHORITY)
        for verify in (False, context):
            async with (
                scripted(
                    BINDING[transport], {"SendMessage": [Answer(message("hi"))]}, tls=server_side("this-machine.pem")
                ) as agent,
                connect(agent.card, verify=verify) as peer,
            ):
                assert await peer.send("go") == message("hi")

    run(test())


@both
@pytest.mark.requirement("tls.modern")
def test_tls_before_1_2_is_refused_and_1_3_is_used_where_both_can(transport: str) -> None:
    async def test() -> None:
        old = server_side("this-machine.pem")
        with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        async with scripted(BINDING[transport], {}, tls=old) as agent, connect(agent.card, verify=AUTHORITY) as peer:
            with pytest.raises(Unreachable):
                await peer.get(TASK)

        versions = []
        answer = Http(404).data

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            versions.append(writer.get_extra_info("ssl_object").version())
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            writer.close()

        async with (
            listening(serve, tls=server_side("this-machine.pem")) as port,
            connect(
                card_of((f"https://127.0.0.1:{port}/", BINDING[transport])), verify=AUTHORITY, version="1.0"
            ) as peer,
        ):
            with pytest.raises(Unreachable):
                await peer.get(TASK)
        assert versions == ["TLSv1.3"]

    run(test())


def test_file_of_authorities_that_is_not_there_is_said_at_once() -> None:
    async def test() -> None:
        with pytest.raises(OSError, match="No such file"):
            await connect("https://agent.example", verify="/no/such/authority.pem")

    run(test())


# --- proxies ----------------------------------------------------------------------------------------------------------


class Proxy:
    """An HTTP proxy: notes the heads of requests, and passes them on."""

    def __init__(self, *, refuse: bytes | None = None) -> None:
        self.heads: list[str] = []
        self._refuse = refuse

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        self.heads.append(head)
        if self._refuse is not None:
            writer.write(self._refuse)
            writer.close()
            return
        verb, target, _ = head.split("\r\n")[0].split(" ")
        place = target if verb == "CONNECT" else target.removeprefix("http://").partition("/")[0]
        host, port = place.split(":")
        up_reader, up_writer = await asyncio.open_connection(host, int(port))
        if verb == "CONNECT":
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        else:
            up_writer.write(head.encode("latin-1"))
        ways = [asyncio.create_task(pass_on(*way)) for way in ((reader, up_writer), (up_reader, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.wait(ways)
            up_writer.close()
            writer.close()


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


@both
@pytest.mark.parametrize("secure", [False, True])
def test_proxy_of_the_environment_is_used_with_its_password_and_that_goes_nowhere_else(
    transport: str, secure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        proxy = Proxy()
        script: Script = {
            "SendMessage": [Answer(message("hi"))],
            "SendStreamingMessage": [Stream(task(), status(TaskState.COMPLETED))],
        }
        tls = server_side("this-machine.pem") if secure else None
        async with listening(proxy.serve) as port, scripted(BINDING[transport], script, tls=tls) as agent:
            monkeypatch.setenv("https_proxy" if secure else "http_proxy", f"http://me:s3cret@127.0.0.1:{port}")
            async with connect(agent.card, verify=AUTHORITY) as peer:
                assert await peer.send("go") == message("hi")
                assert len([event async for event in peer.stream("go")]) == 2
        (head,) = proxy.heads  # both calls went over one connection
        assert "Proxy-Authorization: Basic bWU6czNjcmV0" in head
        assert head.startswith("CONNECT " if secure else "POST http://")
        assert all(("proxy-authorization" in request.headers) is not secure for request in agent.requests)

    run(test())


def test_host_that_the_environment_excepts_is_reached_without_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        async with scripted("JSONRPC", {"GetTask": [Answer(task())]}) as agent, connect(agent.card) as peer:
            assert await peer.get(TASK) == task()

    run(test())


@pytest.mark.parametrize("address", ["http://127.0.0.1:1", "127.0.0.1:1", "socks5://127.0.0.1:1", "http://[bad"])
def test_proxy_that_cannot_be_used_is_named_as_the_reason(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        monkeypatch.setenv("all_proxy", address)
        async with connect(card_of(("http://agent.invalid/", "JSONRPC"))) as peer:
            with pytest.raises(Unreachable, match="proxy"):
                await peer.send("go")

    run(test())


@pytest.mark.parametrize("code", [403, 407, 502])
def test_proxy_that_refuses_a_tunnel_has_carried_nothing(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with listening(Proxy(refuse=Http(code).data).serve) as port:
            monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
            async with connect(card_of(("https://agent.invalid/", "JSONRPC"))) as peer:
                with pytest.raises(Unreachable, match=f"the proxy refused it \\(HTTP {code}\\)"):
                    await peer.send("go")

    run(test())
