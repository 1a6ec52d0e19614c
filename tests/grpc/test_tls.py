"""TLS: our gRPC client in front of certificates that are good and bad."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

import tieline
from tests.grpc.serving import run, served
from tests.grpc.test_client import calling, said
from tests.server.agents import replier
from tieline.client.transport import NotServed
from tieline.types import Message
from tieline.wire.protobuf import RPCS, SERVICE

FOLDER = Path(__file__).parents[1] / "client" / "tls"
AUTHORITY = str(FOLDER / "authority.pem")


@asynccontextmanager
async def encrypted(certificate: str) -> AsyncIterator[int]:
    """A server that says "ok" to every message, over TLS; gives its port."""
    answer = RPCS["SendMessage"].write_answer(
        Message("a", tieline.Role.AGENT, (tieline.Part("ok"),)),
    )

    async def send(data: bytes, context: object) -> bytes:
        return answer

    server = grpc.aio.server()
    handlers = {"SendMessage": grpc.unary_unary_rpc_method_handler(send)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    pem = (FOLDER / certificate).read_bytes()
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(pem, pem)]))
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


def test_calls_go_over_tls_to_a_server_that_the_authority_vouches_for() -> None:
    async def check() -> None:
        async with (
            encrypted("this-machine.pem") as port,
            calling(f"https://127.0.0.1:{port}", verify=AUTHORITY) as peer,
        ):
            answer = await peer.send(said(), ())
            assert isinstance(answer, Message)
            assert answer.text == "ok"

    run(check())


@pytest.mark.parametrize(
    ("certificate", "verify", "words"),
    [
        ("this-machine.pem", True, "unable to get local issuer certificate"),
        ("another-host.pem", AUTHORITY, "Hostname Verification Check failed"),
    ],
)
def test_a_certificate_that_nobody_vouches_for_or_of_another_host_ends_the_search_for_a_way(
    certificate: str, verify: bool | str, words: str
) -> None:
    async def check() -> None:
        async with encrypted(certificate) as port, calling(f"https://127.0.0.1:{port}", verify=verify) as peer:
            with pytest.raises(NotServed, match=f"cannot be trusted: {words}") as caught:
                await peer.send(said(), ())
            assert caught.value.final

    run(check())


def test_tls_to_a_server_without_it_is_refused_and_the_other_way_round() -> None:
    async def check() -> None:
        async with served(replier()) as it, calling(f"https://{it.address}") as peer:
            with pytest.raises(NotServed, match="wrong version number") as caught:
                await peer.send(said(), ())
            assert caught.value.final
        async with encrypted("this-machine.pem") as port, calling(f"http://127.0.0.1:{port}") as peer:
            with pytest.raises(NotServed):
                await peer.send(said(), ())

    run(check())
