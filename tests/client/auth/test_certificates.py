"""Mutual TLS: a client certificate is shown to agents that ask for one, over every binding."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.auth.agents import Guarded, guarded_running
from tests.client.auth.certificates import Authority
from tests.client.auth.guarded import SECRET
from tests.client.auth.test_choosing import every_binding, spoken
from tests.client.running import run
from tests.oidc.running import OidcProvider
from tieline import Bearer, ClientCertificate, connect
from tieline.errors import InvalidCard, Unreachable


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("mtls"), "authority")


@pytest.fixture(scope="module")
def mutual(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory, provider_process: OidcProvider
) -> Iterator[Guarded]:
    """The guarded agents behind TLS that wants a certificate of `authority`."""
    folder = tmp_path_factory.mktemp("mutual")
    tls = (*authority.certificate("server"), authority.path)
    with guarded_running(folder, provider_process.issuer, *tls) as started:
        yield started


@pytest.fixture(scope="module")
def client(authority: Authority) -> tuple[str, str]:
    certificate, key = authority.certificate("client")
    return str(certificate), str(key)


@every_binding
def test_a_certificate_is_shown(mutual: Guarded, authority: Authority, client: tuple[str, str], transport: str) -> None:
    verify = str(authority.path)
    shown = ClientCertificate(*client)
    run(spoken(mutual.agent("mtls").url, transport=transport, credentials=shown, verify=verify))


@every_binding
def test_a_certificate_goes_with_other_credentials(
    mutual: Guarded, authority: Authority, client: tuple[str, str], transport: str
) -> None:
    shown = (Bearer(SECRET), ClientCertificate(*client))
    run(spoken(mutual.agent("bearer").url, transport=transport, credentials=shown, verify=str(authority.path)))


def test_one_file_may_hold_the_certificate_and_its_key(
    mutual: Guarded, authority: Authority, client: tuple[str, str], tmp_path: Path
) -> None:
    whole = tmp_path / "whole.pem"
    whole.write_text("".join(Path(part).read_text() for part in client))
    for transport in ("JSONRPC", "GRPC"):
        shown = ClientCertificate(str(whole))
        run(spoken(mutual.agent("mtls").url, transport=transport, credentials=shown, verify=str(authority.path)))


def test_a_key_with_a_password_is_opened_with_it_and_never_asked_for(mutual: Guarded, authority: Authority) -> None:
    certificate, key = map(str, authority.certificate("locked", "open sesame"))
    url, verify = mutual.agent("mtls").url, str(authority.path)
    run(spoken(url, transport="JSONRPC", credentials=ClientCertificate(certificate, key, "open sesame"), verify=verify))
    for password in (None, "wrong"):
        with pytest.raises(ValueError, match="the key needs its password if it has one") as refused:
            run(spoken(url, credentials=ClientCertificate(certificate, key, password), verify=verify))
        assert "wrong" not in str(refused.value)
    locked = ClientCertificate(certificate, key, "open sesame")
    with pytest.raises(InvalidCard, match="gRPC takes no password"):
        run(spoken(url, transport="GRPC", credentials=locked, verify=verify))


def test_without_a_certificate_or_with_one_of_another_authority_there_is_no_connection(
    mutual: Guarded, authority: Authority, tmp_path: Path
) -> None:
    strange = ClientCertificate(*map(str, Authority(tmp_path, "strange").certificate("stranger")))
    for credentials in ((), strange):
        with pytest.raises(Unreachable):
            run(spoken(mutual.agent("mtls").url, credentials=credentials, verify=str(authority.path)))


@pytest.mark.parametrize(
    ("files", "error", "words"),
    [
        (("no-such.pem", None), OSError, "No such file"),
        (("client.pem", None), ValueError, "cannot be used"),
        (("client.pem", "authority.pem"), ValueError, "cannot be used"),
    ],
)
def test_what_is_no_certificate_is_said_at_once(
    authority: Authority,
    client: tuple[str, str],
    files: tuple[str, str | None],
    error: type[Exception],
    words: str,
) -> None:
    folder = authority.path.parent
    certificate, key = (None if name is None else str(folder / name) for name in files)
    assert certificate is not None

    async def test() -> None:
        with pytest.raises(error, match=words):
            await connect("https://127.0.0.1:1", credentials=ClientCertificate(certificate, key))

    run(test())


def test_one_certificate_can_be_shown_and_none_beside_a_context(client: tuple[str, str]) -> None:
    async def test(words: str, **options: Any) -> None:
        with pytest.raises(ValueError, match=words):
            await connect("https://127.0.0.1:1", **options)

    shown = ClientCertificate(*client)
    run(test("one client certificate", credentials=(shown, shown)))
    run(test("loaded into the SSLContext", credentials=shown, verify=ssl.create_default_context()))
