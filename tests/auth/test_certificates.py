"""Callers that show a certificate: to the server itself, by HTTP and gRPC, or to a proxy that is trusted."""

from __future__ import annotations

import datetime
import json
import ssl
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPSConnection, RemoteDisconnected
from pathlib import Path
from typing import Any

import grpc
import pytest
from a2a.types import a2a_pb2 as pb
from a2a.types import a2a_pb2_grpc
from cryptography.x509.oid import NameOID

import tieline
from tests.auth.asking import ask, fetch
from tests.auth.certificates import Authority, Names, Pair
from tests.auth.processes import served
from tests.auth.tokens import Tokens, bearer
from tests.behaviour.agents import hello
from tests.behaviour.harness import message
from tests.behaviour.serving import Serve, over
from tieline import Turn, agent
from tieline.server.auth import Auth, BearerTokens, ClientCertificates, Together
from tieline.server.auth.subject import subject_of
from tieline.server.serve import serve as serve_app

LIMIT_S = 20.0
SUBJECTS: list[tuple[Names | str, str]] = [
    ("ada", "CN=ada"),
    (
        [(NameOID.COUNTRY_NAME, "DE"), (NameOID.ORGANIZATION_NAME, "Ex, Inc."), (NameOID.COMMON_NAME, "ada")],
        r"CN=ada,O=Ex\, Inc.,C=DE",
    ),
    ([(NameOID.COMMON_NAME, "Ada Löwe €")], "CN=Ada Löwe €"),
    ([(NameOID.COMMON_NAME, " #x ")], r"CN=\ #x\ "),
    ([(NameOID.COMMON_NAME, '#a"b\\c;d<e>+f=g')], r"CN=\#a\"b\\c\;d\<e\>\+f=g"),
    ([(NameOID.COMMON_NAME, "ada,O=Other")], r"CN=ada\,O=Other"),
    ([(NameOID.ORGANIZATION_NAME, "Other"), (NameOID.COMMON_NAME, "ada")], "CN=ada,O=Other"),
    (
        [(NameOID.DOMAIN_COMPONENT, "example"), (NameOID.USER_ID, "7"), (NameOID.SERIAL_NUMBER, "42")],
        "2.5.4.5=#13023432,UID=7,DC=example",
    ),
    ([[(NameOID.ORGANIZATION_NAME, "X"), (NameOID.COMMON_NAME, "ada")]], "O=X+CN=ada"),
    ([(NameOID.EMAIL_ADDRESS, "a@b.example")], "1.2.840.113549.1.9.1=#160b6140622e6578616d706c65"),
    ([(NameOID.COMMON_NAME, "%61da")], "CN=%61da"),
]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mtls")


@pytest.fixture(scope="module")
def ports(authority: Authority, folder: Path) -> Iterator[tuple[int, int]]:
    """An agent that asks its callers for certificates, by HTTP and gRPC."""
    pair = authority.issue("server")
    tls = ["--tls-cert", pair.certificate, "--tls-key", pair.key, "--tls-client-ca", authority.certificate]
    with served(folder, "--auth", "mtls", *map(str, tls), grpc=True) as (port, by_grpc, _):
        yield port, by_grpc


def by_http(port: int, context: ssl.SSLContext, text: str = "who?") -> str:
    """What the agent answers."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message(text)}}
    connection = HTTPSConnection("127.0.0.1", port, context=context, timeout=LIMIT_S)
    headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
    try:
        connection.request("POST", "/", json.dumps(call).encode(), headers)
        answer = json.load(connection.getresponse())
    finally:
        connection.close()
    text = answer["result"]["task"]["artifacts"][0]["parts"][0]["text"]
    return str(text)


def by_rpc(port: int, authority: Authority, shown: Pair | None) -> str:
    pair = (None, None) if shown is None else (shown.key.read_bytes(), shown.certificate.read_bytes())
    credentials = grpc.ssl_channel_credentials(authority.certificate.read_bytes(), *pair)
    with grpc.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
        stub = a2a_pb2_grpc.A2AServiceStub(channel)  # type: ignore[no-untyped-call]
        request = pb.SendMessageRequest(
            message=pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text="who?")])
        )
        answer: Any = stub.SendMessage(request, timeout=LIMIT_S, metadata=(("a2a-version", "1.0"),))
    return str(answer.task.artifacts[0].parts[0].text)


@pytest.mark.parametrize(("names", "subject"), SUBJECTS, ids=[subject for _, subject in SUBJECTS])
def test_subject_of_a_certificate_is_one_string_as_rfc_4514_has_it(
    authority: Authority, names: Names | str, subject: str
) -> None:
    pair = authority.issue(names)
    assert subject_of(ssl.PEM_cert_to_DER_cert(pair.certificate.read_text())) == subject


def test_no_two_of_these_subjects_are_the_same_string() -> None:
    assert len({subject for _, subject in SUBJECTS}) == len(SUBJECTS)


def test_what_is_no_certificate_has_no_subject(authority: Authority) -> None:
    der = ssl.PEM_cert_to_DER_cert(authority.issue("ada").certificate.read_text())
    for broken in (b"", b"\x30", b"\x30\x80", b"x" * 100, der[:-1], der[:50], der[4:], b"\x30\x84\xff\xff\xff\xff"):
        with pytest.raises(ValueError, match="no certificate"):
            subject_of(broken)


@pytest.mark.parametrize("number", [0, 1, 2, 5, 8])
def test_caller_is_the_same_by_http_and_by_grpc(ports: tuple[int, int], authority: Authority, number: int) -> None:
    names, subject = SUBJECTS[number]
    shown = authority.issue(names)
    said = f"cert:{subject} in ''"
    assert by_http(ports[0], authority.trusting(shown)) == said
    assert by_rpc(ports[1], authority, shown) == said


def untrusted(authority: Authority, folder: Path) -> dict[str, Callable[[], Pair | None]]:
    other = Authority(folder, "Others")
    same_name = Authority(folder, "Tests")
    return {
        "none": lambda: None,
        "of another authority": lambda: other.issue("ada"),
        "of an authority of the same name": lambda: same_name.issue("ada"),
        "expired": lambda: authority.issue("ada", lasts=datetime.timedelta(days=-1)),
    }


@pytest.mark.parametrize("kind", ["none", "of another authority", "of an authority of the same name", "expired"])
def test_who_shows_no_certificate_or_an_untrusted_one_never_reaches_the_agent(
    ports: tuple[int, int], authority: Authority, tmp_path: Path, kind: str
) -> None:
    shown = untrusted(authority, tmp_path)[kind]()
    with pytest.raises((ssl.SSLError, ConnectionError, RemoteDisconnected)):
        by_http(ports[0], authority.trusting(shown))
    with pytest.raises(grpc.RpcError) as refusal:
        by_rpc(ports[1], authority, shown)
    assert refusal.value.code() is grpc.StatusCode.UNAVAILABLE


def test_empty_subject_is_nobody(ports: tuple[int, int], authority: Authority) -> None:
    shown = authority.issue([])
    with pytest.raises(KeyError):  # an error instead of a result
        by_http(ports[0], authority.trusting(shown))
    with pytest.raises(grpc.RpcError) as refusal:
        by_rpc(ports[1], authority, shown)
    assert refusal.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_certificates_without_tls_are_refused_at_start(tmp_path: Path) -> None:
    @agent(name="Who", description="Says who calls.")
    async def who(turn: Turn) -> str:
        return turn.caller.principal

    with pytest.raises(ValueError, match=r"give a tls with a client_ca .* or the header of a proxy"):
        serve_app(who, port=0, auth=Auth(ClientCertificates()))
    with pytest.raises(ValueError, match="client_ca"):
        serve_app(tieline.app(who, auth=Auth(ClientCertificates())), port=0)


# --- by a proxy -------------------------------------------------------------------------------------------------------

HEADER = "X-Client-Subject"


@over("jsonrpc", "rest", "grpc", "jsonrpc-0.3", "jsonrpc-0.1")
async def test_subject_in_a_header_is_believed_from_a_proxy_that_is_trusted(serve: Serve, transport: str) -> None:
    agent = await serve(_who, auth=Auth(ClientCertificates(header=HEADER, proxies=["127.0.0.0/8"])))
    task = await agent.showing({HEADER: "CN=ada,O=Example"}).task("hello")
    assert task["artifacts"][0]["parts"][0]["text"] == "cert:CN=ada,O=Example"
    assert (await ask(agent, "SendMessage", "")).status in (401, "UNAUTHENTICATED")


async def _who(turn: Turn) -> str:
    return turn.caller.principal


@over("jsonrpc", "rest", "grpc", "jsonrpc-0.3", "jsonrpc-0.1")
async def test_subject_in_a_header_is_refused_from_anywhere_else(serve: Serve, transport: str) -> None:
    agent = await serve(hello, auth=Auth(ClientCertificates(header=HEADER, proxies=["10.0.0.0/8", "::1"])))
    answer = await ask(agent.showing({HEADER: "CN=ada"}), "SendMessage", "")
    assert answer.status in (401, "UNAUTHENTICATED")
    assert "not shown to a proxy that is trusted" in answer.text


@over("jsonrpc")
async def test_who_says_it_is_a_proxy_is_none(serve: Serve) -> None:
    auth = Auth(ClientCertificates(header=HEADER, proxies=["10.0.0.1"]))
    agent = (await serve(hello, auth=auth, trust_forwarded=True)).showing({HEADER: "CN=ada"})
    for forged in ("X-Forwarded-For", "Forwarded", "X-Real-IP"):
        answer = await ask(agent, "SendMessage", "", headers=[(forged, "10.0.0.1")])
        assert answer.status == 401, forged


def test_address_that_a_proxy_forwards_does_not_make_its_caller_a_proxy(tmp_path: Path) -> None:
    """`--trust-proxy` replaces the address of the connection, which alone says whether it is a proxy's."""
    with served(tmp_path, "--auth", f"mtls:{HEADER}", "--mtls-proxy", "10.0.0.1", "--trust-proxy") as (port, _, _):
        for forwarded in ("10.0.0.1", "10.0.0.1, 127.0.0.1"):
            status = _status(port, {HEADER: "CN=ada", "X-Forwarded-For": forwarded})
            assert status == 401, forwarded
    with served(tmp_path, "--auth", f"mtls:{HEADER}", "--trust-proxy") as (port, _, _):
        assert _status(port, {HEADER: "CN=ada", "X-Forwarded-For": "203.0.113.9"}) == 200


def _status(port: int, headers: dict[str, str]) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    try:
        connection.request("GET", "/tasks", headers={"A2A-Version": "1.0", **headers})
        return connection.getresponse().status
    finally:
        connection.close()


@over("jsonrpc")
async def test_subjects_that_cannot_be_read_and_headers_that_come_twice_are_refused(serve: Serve) -> None:
    agent = await serve(_who, auth=Auth(ClientCertificates(header=HEADER)))
    for odd in ("\xff", "CN=\xe9", "CN=a\tb"):
        assert (await ask(agent.showing({HEADER: odd}), "SendMessage", "")).status == 401, odd
    twice = [(HEADER, "CN=ada"), (HEADER, "CN=eve")]
    assert (await ask(agent, "SendMessage", "", headers=twice)).status == 401
    same = await agent.showing({HEADER: "CN=%61da"}).task("hello")
    assert same["artifacts"][0]["parts"][0]["text"] == "cert:CN=%61da", "nothing is decoded: it would be ada's"


@over("jsonrpc")
async def test_certificate_and_token_together_are_both_needed_and_the_token_limits_the_tenant(
    serve: Serve, tmp_path: Path
) -> None:
    tokens = Tokens(tmp_path)
    token = tokens.add("key", tenant="acme", scopes=["more"])
    certificate = ClientCertificates(header=HEADER, scopes={"CN=ada": ["some"]})
    auth = Auth(Together(certificate, BearerTokens(tokens.path)), scopes={"ListTasks": ["some", "more"]})
    agent = await serve(_who, auth=auth)
    assert (await agent.card())["securityRequirements"] == [{"schemes": {"mtls": {}, "bearer": {}}}]
    for half in ({HEADER: "CN=ada"}, bearer(token)):
        assert (await ask(agent.showing(half), "GetTask")).status == 401
    whole = agent.showing({HEADER: "CN=ada", **bearer(token)})
    assert (await whole.task("x"))["artifacts"][0]["parts"][0]["text"] == "cert:CN=ada"
    assert (await whole.list(tenant="acme"))["totalSize"] == 1
    assert (await ask(whole, "ListTasks", tenant="other")).status == 403
    eve = agent.showing({HEADER: "CN=eve", **bearer(token)})
    answer = await ask(eve, "ListTasks")
    assert (answer.status, "some" in answer.text) == (403, True)
    assert (await fetch(agent, "GET", "/tasks", [("A2A-Version", "1.0")])).status == 401
