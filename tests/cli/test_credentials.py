"""Credentials: where they go, who never gets them, and that they are not shown."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.cli.running import Foreign, Peer, Tieline
from tests.interop.processes import ROOT, free_port, running

SECRET = "open-sesame"
SCHEMES = ("bearer", "oauth", "header-key", "query-key", "cookie-key")


def flag_for(scenario: str) -> str:
    return "--api-key" if scenario.endswith("-key") else "--bearer"


def variable_for(scenario: str) -> str:
    return "A2ACLI_API_KEY" if scenario.endswith("-key") else "A2ACLI_BEARER"


def carries(record: dict[str, object]) -> bool:
    return SECRET in str(record)


@pytest.mark.parametrize("scenario", SCHEMES)
def test_a_credential_goes_where_the_card_says_by_flag_and_by_environment(
    bare: Tieline, foreign: Foreign, scenario: str
) -> None:
    agent = foreign.agent(scenario)
    for words, environment in (((flag_for(scenario), SECRET), {}), ((), {variable_for(scenario): SECRET})):
        sent = bare("send", "hi", *words, "-a", agent.ref, env=environment)
        assert sent.code == 0, sent.err
        assert SECRET not in sent.out + sent.err
    assert all(carries(call) for call in agent.calls)


@pytest.mark.parametrize("scenario", SCHEMES)
def test_the_flag_goes_before_the_environment(bare: Tieline, foreign: Foreign, scenario: str) -> None:
    agent = foreign.agent(scenario)
    words = ("send", "hi", flag_for(scenario), SECRET, "-a", agent.ref)
    assert bare(*words, env={variable_for(scenario): "wrong"}).code == 0


@pytest.mark.parametrize("scenario", SCHEMES)
def test_missing_and_refused_credentials_are_told_apart_and_the_hint_says_what_to_give(
    bare: Tieline, foreign: Foreign, scenario: str
) -> None:
    agent = foreign.agent(scenario)
    missing = bare("send", "hi", "-o", "json", "-a", agent.ref)
    assert missing.code == 4
    assert missing.error["code"] == "A2ACLI_ERR_CREDENTIALS_MISSING"
    assert variable_for(scenario) in missing.error["hint"]
    refused = bare("send", "hi", flag_for(scenario), "wrong-secret", "-o", "json", "-a", agent.ref)
    assert refused.code == 4
    assert refused.error["code"] == "A2ACLI_ERR_AUTH_FAILED"
    assert "wrong-secret" not in refused.out + refused.err


def test_two_schemes_that_are_wanted_together_are_both_met(bare: Tieline, foreign: Foreign) -> None:
    agent = foreign.agent("two-schemes")
    assert bare("send", "hi", "--bearer", "token-1", "--api-key", "key-2", "-a", agent.ref).code == 0
    headers = agent.calls[0]["headers"]
    assert (headers["authorization"], headers["x-agent-key"]) == ("Bearer token-1", "key-2")


def test_no_credential_is_presented_to_the_page_of_the_card(bare: Tieline, foreign: Foreign) -> None:
    for scenario in (*SCHEMES, "guarded-card"):
        agent = foreign.agent(scenario)
        bare("send", "hi", "--bearer", SECRET, "--api-key", SECRET, "--svc-param", f"x-key:{SECRET}", "-a", agent.ref)
        pages = [record for record in agent.records if not record["body"]]
        assert pages
        assert not any(carries(page) for page in pages), scenario


@pytest.mark.parametrize("scheme", ["http://", ""])
def test_user_and_password_of_the_reference_go_with_card_and_calls_and_are_never_shown(
    bare: Tieline, foreign: Foreign, scheme: str
) -> None:
    agent = foreign.agent("message")
    ref = agent.ref.replace("http://", f"{scheme}ada:{SECRET}@")
    sent = bare("send", "hi", "--debug", "--verbose", "-a", ref)
    assert sent.code == 0, sent.err
    basic = f"Basic {base64.b64encode(f'ada:{SECRET}'.encode()).decode()}"
    assert [record["headers"].get("authorization") for record in agent.records] == [basic, basic]
    missing = bare("task", "get", "x", "-a", ref.replace("/message/", "/error/"), "-o", "json")
    assert SECRET not in sent.out + sent.err + missing.out + missing.err
    assert basic not in sent.out + sent.err


@pytest.mark.parametrize("how", ["--bearer", "reference", "--svc-param", "--api-key"])
def test_credentials_do_not_go_to_another_origin_than_the_cards(bare: Tieline, foreign: Foreign, how: str) -> None:
    agent = foreign.agent("elsewhere")
    words = {"--bearer": (how, SECRET), "--svc-param": (how, f"Cookie:a={SECRET}")}.get(how, ())
    if how == "--api-key":
        agent = foreign.agent("keyed-elsewhere")
        words = (how, SECRET)
    ref = agent.ref.replace("http://", f"http://ada:{SECRET}@") if how == "reference" else agent.ref
    refused = bare("send", "hi", *words, "-o", "json", "-a", ref)
    assert refused.code == 1, refused.out
    assert refused.error["code"] == "A2ACLI_ERR_CARD_INVALID"
    assert f"The card of {foreign.url} sends you to http://localhost:" in refused.error["message"]
    assert agent.calls == []
    assert bare("send", "hi", "-a", agent.ref).code == 0, "without credentials it goes where the card says"
    (bare.folder / "card.json").write_text(bare("card", "get", "-o", "json", "-a", agent.ref).out)
    if how != "reference":
        assert bare("send", "hi", *words, "-a", "card.json").code == 0, "a card of one's own is trusted"


def test_a_credential_that_no_declared_scheme_takes_is_not_sent_and_that_is_said(
    bare: Tieline, foreign: Foreign
) -> None:
    keyed, plain = foreign.agent("header-key"), foreign.agent("message")
    for agent, flag, words in (
        (keyed, "--bearer", "The bearer token was not sent"),
        (plain, "--api-key", "The API key was not sent"),
    ):
        run = bare("send", "hi", flag, SECRET, "-a", agent.ref)
        assert words in run.err
        assert not any(carries(record) for record in agent.records)
    # For a bearer token there is one place, declared or not.
    assert bare("send", "hi", "--bearer", SECRET, "-a", plain.ref).code == 0
    assert plain.calls[-1]["headers"]["authorization"] == f"Bearer {SECRET}"


def test_service_parameters_are_headers_and_extensions_are_named(bare: Tieline, foreign: Foreign) -> None:
    agent = foreign.agent("message")
    sent = bare(
        *("send", "hi", "--svc-param", "x-trace-id:abc:123", "--svc-param", "X-Other: two words"),
        *("--svc-param", "A2A-Extensions:https://one.example/v1,https://two.example/v1", "-a", agent.ref),
    )
    assert sent.code == 0, sent.err
    headers = agent.calls[0]["headers"]
    assert headers["x-trace-id"] == "abc:123"
    assert headers["x-other"] == "two words"
    assert headers["a2a-extensions"].replace(" ", "") == "https://one.example/v1,https://two.example/v1"
    assert "metadata" not in agent.calls[0]["params"]


def test_help_names_the_risk_of_credential_flags_and_none_for_service_parameters(bare: Tieline) -> None:
    shown = " ".join(bare("send", "--help").out.split())
    assert "Other users see flags in the process list, and the shell keeps them: prefer A2ACLI_BEARER" in shown
    assert "prefer A2ACLI_API_KEY" in shown
    about = shown.partition("--svc-param")[2].partition(" --")[0]
    assert "auth" not in about.lower()
    assert "credential" not in about.lower()


@pytest.mark.parametrize("scenario", SCHEMES)
def test_debug_shows_the_wire_and_no_secret_however_much_is_asked_for(
    bare: Tieline, foreign: Foreign, scenario: str
) -> None:
    agent = foreign.agent(scenario)
    told = bare(
        *("send", "hello there", flag_for(scenario), SECRET, "--svc-param", "x-session:s3cr3t-param"),
        *("--debug", "--verbose", "-a", agent.ref),
    )
    assert told.code == 0, told.err
    assert '"method":"SendMessage"' in told.err, "the request's body"
    assert "hello there" in told.err
    assert "TASK_STATE_COMPLETED" in told.err, "the response's body"
    assert "a2a-version: 1.0" in told.err.lower(), "the request's headers"
    assert "[redacted]" in told.err
    for secret in (SECRET, "s3cr3t-param"):
        assert secret not in told.out + told.err


def test_a_secret_that_the_agent_repeats_is_taken_out_of_errors_and_logs(bare: Tieline, foreign: Foreign) -> None:
    agent = foreign.agent("message")
    told = bare("send", f"my token is {SECRET}", "--bearer", SECRET, "--debug", "-a", agent.ref)
    assert told.code == 0
    assert SECRET not in told.err


def test_a_password_in_a_url_reaches_the_agent_and_no_output(bare: Tieline, foreign: Foreign) -> None:
    agent = foreign.agent("polled")
    ref = agent.ref.replace("http://", "http://ada:hunter2@")
    sent = bare("send", "hi", "--poll-interval", "50ms", "--debug", "-a", ref)
    assert sent.code == 0, sent.err
    assert agent.calls[0]["headers"]["authorization"].startswith("Basic ")
    assert "hunter2" not in sent.out + sent.err


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Foreign]:
    """The scripted peer over TLS, with a certificate that nobody has signed."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = self_signed(folder)
    port = free_port()
    command: list[str | Path] = [
        sys.executable,
        Path(__file__).with_name("foreign.py"),
        str(port),
        str(certificate),
        str(key),
    ]
    with running(command, port, folder / "tls.log", ROOT):
        yield Foreign(f"https://127.0.0.1:{port}")


def self_signed(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "certificate.pem", folder / "key.pem"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths


def test_certificates_are_verified_and_leaving_that_out_is_never_silent(bare: Tieline, encrypted: Foreign) -> None:
    agent = Peer(encrypted, "bearer", "tls")
    for environment in ({}, {"A2ACLI_INSECURE": "false"}):
        refused = bare("send", "hi", "-o", "json", "-a", agent.ref, env=environment)
        assert refused.code == 3
        assert refused.error["code"] == "A2ACLI_ERR_UNREACHABLE"
        assert "certificate" in refused.error["message"]
    insecure = bare("send", "hi", "--bearer", SECRET, "--insecure", "-a", agent.ref)
    assert insecure.code == 0, insecure.err
    assert "Warning: TLS certificates are not verified" in insecure.err
    assert "Warning: Credentials are sent over a connection whose certificate is not verified." in insecure.err
    taken_back = bare("send", "hi", "--no-insecure", "-a", agent.ref, env={"A2ACLI_INSECURE": "true"})
    assert taken_back.code == 3
    by_environment = bare("card", "get", "-a", agent.ref, env={"A2ACLI_INSECURE": "true"})
    assert by_environment.code == 0
    assert "Warning: TLS certificates are not verified" in by_environment.err


def test_an_agent_that_a_local_file_names_does_not_get_the_users_own_credential_unsaid(
    bare: Tieline, foreign: Foreign
) -> None:
    agent = foreign.agent("bearer")
    (bare.folder / ".env").write_text(f"A2ACLI_AGENT_CARD={agent.ref}\n")
    (bare.folder / ".env").chmod(0o600)
    sent = bare("send", "hi", env={"A2ACLI_BEARER": SECRET})
    assert sent.code == 0
    assert "names the agent, and it gets the credential of A2ACLI_BEARER" in sent.err
    assert SECRET not in sent.err
