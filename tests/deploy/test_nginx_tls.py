"""TLS that ends at nginx, with the file that is shipped: client certificates, what replicas hear of them, and gRPC."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import grpc
import pytest
import trustme

from tests.deploy.agents import Gate, Seen, echo, stepping
from tests.deploy.nginx import Nginx
from tests.deploy.test_nginx import BINDINGS, both, of_page
from tests.interop.processes import TIELINE, free_port, running
from tests.server.raw import Pairs, Wire, in_loop, serve
from tieline import Agent, Part, Task, TaskArtifactUpdateEvent, app, connect
from tieline.errors import InvalidPeerResponse, TaskNotFound
from tieline.server.grpc import GrpcServer
from tieline.wire import protobuf, protobuf03

FORGED: Pairs = [
    ("X-Client-Cert-Verify", "SUCCESS"),
    ("X-Client-Cert-Subject", "CN=admin"),
    ("X-CLIENT-CERT-SUBJECT", "CN=admin"),
    ("X-Client-Cert", "forged"),
    ("X_Client_Cert_Subject", "CN=admin"),
]
SUBJECT = "CN=caller,OU=agents,O=Example"


class Certificates:
    """Those of a proxy and of its callers, each of an authority of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.of_clients = trustme.CA()
        server = self.authority.issue_cert("127.0.0.1", "localhost")
        server.private_key_pem.write_to_path(folder / "server.key")
        for pem in server.cert_chain_pems:
            pem.write_to_path(folder / "server.pem", append=True)
        self.of_clients.cert_pem.write_to_path(folder / "clients-ca.pem")
        self.authority.cert_pem.write_to_path(folder / "authority.pem")
        self.caller = self.certificate(self.of_clients)

    def certificate(self, authority: trustme.CA) -> trustme.LeafCert:
        """One that says it is the caller's."""
        return authority.issue_cert(
            "caller.example", common_name="caller", organization_name="Example", organization_unit_name="agents"
        )

    def context(self, certificate: trustme.LeafCert | None) -> ssl.SSLContext:
        """TLS of a caller that has this certificate."""
        context = ssl.create_default_context(cafile=str(self.folder / "authority.pem"))
        if certificate is not None:
            certificate.configure_cert(context)
        return context


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@asynccontextmanager
async def behind(
    seen: Seen,
    certificates: Certificates,
    *,
    change: Callable[[str], str] = lambda text: text,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Nginx]:
    async with serve(seen, owner=seen.app, tls=tls) as port:
        with Nginx([port], file="nginx-tls.conf", tls=certificates.folder, change=change) as nginx:
            yield nginx


# --- client certificates ----------------------------------------------------------------------------------------------


@both
@in_loop
async def test_caller_with_a_certificate_is_served_and_the_replica_hears_whose_it_is(
    certificates: Certificates, binding: str
) -> None:
    gate = Gate()
    seen = Seen(app(stepping(gate), trust_forwarded=True))
    context = certificates.context(certificates.caller)
    async with (
        behind(seen, certificates) as nginx,
        connect(nginx.url, transport=binding, verify=context) as peer,
    ):
        assert {interface.url.rstrip("/") for interface in peer.card.supported_interfaces} == {nginx.url}
        pieces = []
        async for event in peer.stream("3"):
            if isinstance(event, TaskArtifactUpdateEvent):
                pieces.append(event.artifact.parts[0].text)
                gate.let()
        assert pieces == ["0 ", "1 ", "2 "]
        assert seen.last("x-client-cert-verify") == ["SUCCESS"]
        assert seen.last("x-client-cert-subject") == [SUBJECT]
        (sent,) = seen.last("x-client-cert")
        assert unquote(sent) == certificates.caller.cert_chain_pems[0].bytes().decode()


@pytest.mark.parametrize(
    ("authority", "says"),
    [(None, "400 No required SSL certificate was sent"), ("another", "400 The SSL certificate error")],
)
@in_loop
async def test_caller_without_a_certificate_or_with_one_of_another_authority_is_told_so(
    certificates: Certificates, authority: str | None, says: str
) -> None:
    seen = Seen(app(echo))
    certificate = None if authority is None else certificates.certificate(trustme.CA())
    async with behind(seen, certificates) as nginx:
        with pytest.raises(InvalidPeerResponse, match=f"answered HTTP 400 instead of an agent card: {says}"):
            await connect(nginx.url, verify=certificates.context(certificate))
    assert seen.headers == []


@in_loop
async def test_forged_certificate_headers_are_replaced_by_what_tls_has_checked(certificates: Certificates) -> None:
    seen = Seen(app(echo))
    context = certificates.context(certificates.caller)
    async with behind(seen, certificates) as nginx, Wire(nginx.port, tls=context) as wire:
        assert (await wire.request("GET", "/.well-known/agent-card.json", headers=FORGED)).status == 200
    given = [(name, value) for name, value in seen.headers[-1] if "client" in name]
    assert sorted(name for name, _ in given) == ["x-client-cert", "x-client-cert-subject", "x-client-cert-verify"]
    assert seen.last("x-client-cert-subject") == [SUBJECT]
    assert "forged" not in seen.last("x-client-cert")


@in_loop
async def test_where_certificates_are_optional_a_caller_without_one_has_no_subject_whatever_it_sends(
    certificates: Certificates,
) -> None:
    def lax(text: str) -> str:
        return text.replace("ssl_verify_client on", "ssl_verify_client optional")

    seen = Seen(app(echo))
    async with behind(seen, certificates, change=lax) as nginx:
        async with Wire(nginx.port, tls=certificates.context(None)) as wire:
            answer = await wire.request("GET", "/.well-known/agent-card.json", headers=FORGED)
        assert answer.status == 200
        assert [(name, value) for name, value in seen.headers[-1] if "client" in name] == [
            ("x-client-cert-verify", "NONE")
        ]
        async with Wire(nginx.port, tls=certificates.context(certificates.caller)) as wire:
            await wire.request("GET", "/.well-known/agent-card.json", headers=FORGED)
        assert seen.last("x-client-cert-subject") == [SUBJECT]
        with pytest.raises(InvalidPeerResponse, match="The SSL certificate error"):
            await connect(nginx.url, verify=certificates.context(certificates.certificate(trustme.CA())))


@in_loop
async def test_replica_that_takes_calls_of_its_proxy_alone_is_reached_over_tls_with_the_proxys_certificate(
    certificates: Certificates,
) -> None:
    folder = certificates.folder
    inside = trustme.CA()
    inside.cert_pem.write_to_path(folder / "replicas-ca.pem")
    proxy = inside.issue_cert("proxy.internal")
    proxy.private_key_pem.write_to_path(folder / "proxy.key")
    proxy.cert_chain_pems[0].write_to_path(folder / "proxy.pem")
    replica = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "replicas-ca.pem"))
    replica.verify_mode = ssl.CERT_REQUIRED
    inside.issue_cert("agent.internal").configure_cert(replica)
    lines = of_page("TLS to the replicas").replace("/etc/nginx/tls", str(folder))

    def change(text: str) -> str:
        return re.sub(r"proxy_pass http://tieline;\n", lines, text)

    seen = Seen(app(echo, trust_forwarded=True))
    context = certificates.context(certificates.caller)
    async with behind(seen, certificates, change=change, tls=replica) as nginx:
        for binding in BINDINGS:
            async with connect(nginx.url, transport=binding, verify=context) as peer:
                assert await peer.ask("Ada") == "Ada"
        assert seen.last("x-client-cert-subject") == [SUBJECT]
    # One that shows no certificate is not let in by the replica.
    bare: Callable[[str], str] = lambda text: text.replace("http://tieline", "https://tieline")  # noqa: E731
    async with behind(seen, certificates, change=bare, tls=replica) as nginx:
        with pytest.raises(InvalidPeerResponse, match="502 Bad Gateway"):
            await connect(nginx.url, verify=context)


# --- gRPC -------------------------------------------------------------------------------------------------------------


class Recorded:
    """A gRPC server that notes the metadata of calls and answers nothing."""

    def __init__(self) -> None:
        self.metadata: list[list[tuple[str, Any]]] = []

    async def call(self, request: bytes, context: Any) -> bytes:
        self.metadata.append([(name, value) for name, value in context.invocation_metadata()])
        return b""

    async def start(self) -> tuple[Any, int]:
        server = grpc.aio.server()
        call = grpc.unary_unary_rpc_method_handler(self.call)
        for name in (protobuf.SERVICE, protobuf03.SERVICE):
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, {"GetTask": call}),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        return server, port


@pytest.mark.parametrize("service", [protobuf.SERVICE, protobuf03.SERVICE])
@in_loop
async def test_grpc_calls_carry_the_subject_of_the_certificate_and_no_forged_one(
    certificates: Certificates, service: str
) -> None:
    recorded = Recorded()
    server, port = await recorded.start()
    try:
        with Nginx([free_port()], file="nginx-tls.conf", grpc=[port], tls=certificates.folder) as nginx:
            credentials = grpc.ssl_channel_credentials(
                certificates.authority.cert_pem.bytes(),
                certificates.caller.private_key_pem.bytes(),
                certificates.caller.cert_chain_pems[0].bytes(),
            )
            async with grpc.aio.secure_channel(f"127.0.0.1:{nginx.port}", credentials) as channel:
                forged = tuple((name.lower(), value) for name, value in FORGED)
                await channel.unary_unary(f"/{service}/GetTask")(b"", metadata=forged)
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await channel.unary_unary("/grpc.health.v1.Health/Check")(b"")
                assert refused.value.code() is not grpc.StatusCode.OK
    finally:
        await server.stop(0)
    (metadata,) = recorded.metadata
    given = {name: value for name, value in metadata if "client" in name}
    assert given.keys() == {"x-client-cert-verify", "x-client-cert-subject", "x-client-cert"}
    assert given["x-client-cert-subject"] == SUBJECT
    assert unquote(given["x-client-cert"]).startswith("-----BEGIN CERTIFICATE")


@asynccontextmanager
async def open_to_all(agent: Agent, certificates: Certificates) -> AsyncIterator[str]:
    """An agent by HTTP and gRPC behind one port of nginx, which asks for no certificates; gives its URL."""

    def change(text: str) -> str:
        return re.sub(r"ssl_(client_certificate|verify_client) [^;]*;", "", text)

    port = free_port()
    url = f"https://127.0.0.1:{port}"
    application = app(agent, public_url=url, grpc_url=url)
    server = GrpcServer(application)
    grpc_port = await server.start("127.0.0.1", 0)
    options: Any = {"file": "nginx-tls.conf", "tls": certificates.folder, "change": change}
    try:
        async with serve(application) as http_port:
            with Nginx([http_port], grpc=[grpc_port], port=port, **options):
                yield url
    finally:
        await server.stop()


@in_loop
async def test_grpc_and_http_are_at_one_port_and_events_of_each_come_one_by_one(certificates: Certificates) -> None:
    gate = Gate()
    authority = str(certificates.folder / "authority.pem")
    async with open_to_all(stepping(gate), certificates) as url:
        for transport in ("GRPC", *BINDINGS):
            async with connect(url, transport=transport, verify=authority) as peer:
                assert peer.transport == transport
                pieces = []
                async for event in peer.stream("3"):
                    if isinstance(event, TaskArtifactUpdateEvent):
                        pieces.append(event.artifact.parts[0].text)
                        gate.let()
                assert pieces == ["0 ", "1 ", "2 "]


@in_loop
async def test_file_of_ten_megabytes_goes_both_ways_over_grpc_and_tls(certificates: Certificates) -> None:
    content = os.urandom(10_000_000)
    authority = str(certificates.folder / "authority.pem")
    async with open_to_all(echo, certificates) as url:
        for transport in ("GRPC", *BINDINGS):
            async with connect(url, transport=transport, verify=authority) as peer:
                answer = await peer.send(Part(raw=content, media_type="application/octet-stream"), history_length=0)
                assert isinstance(answer, Task)
                assert b"".join(part.raw or b"" for each in answer.artifacts for part in each.parts) == content


# --- who the caller is, from its certificate to its tasks -------------------------------------------------------------


WHO = """
from tieline import Turn, agent


@agent(name="Who", description="Says who calls.")
async def who(turn: Turn):
    yield turn.caller.principal
"""


@both
@in_loop
async def test_certificate_shown_to_the_proxy_says_whose_tasks_they_are_and_a_forged_header_does_not(
    certificates: Certificates, binding: str, tmp_path: Path
) -> None:
    (tmp_path / "who.py").write_text(WHO)
    port = free_port()
    options = ("--port", str(port), "--store", "memory", "--trust-proxy", "--auth", "mtls:X-Client-Cert-Subject")
    other = certificates.of_clients.issue_cert("other.example", common_name="other")
    with (
        running([TIELINE, "serve", tmp_path / "who.py", *options], port, tmp_path / "who.log"),
        Nginx([port], file="nginx-tls.conf", tls=certificates.folder) as nginx,
    ):
        context = certificates.context(certificates.caller)
        async with connect(nginx.url, transport=binding, verify=context) as peer:
            assert peer.card.security_schemes["mtls"].mtls_security_scheme is not None
            task = await peer.send("hello")
            assert isinstance(task, Task)
            assert task.artifacts[0].parts[0].text == f"cert:{SUBJECT}"
        forged = {"X-Client-Cert-Subject": SUBJECT}
        context = certificates.context(other)
        async with connect(nginx.url, transport=binding, verify=context, headers=forged) as peer:
            with pytest.raises(TaskNotFound):
                await peer.get(task.id)
            assert (await peer.ask("hello")).startswith("cert:CN=other,")
