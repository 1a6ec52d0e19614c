"""Whether a card is signed by somebody who is known: what `connect` says of it, and where keys come from."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.client.agents import obeys
from tests.client.running import run
from tests.client.scripted import Http, Raw, Script, Scripted, card_of, scripted
from tests.client.serving import served
from tieline import CardCache, CardSigner, Timeouts, app, connect
from tieline.client.verification import CardVerification
from tieline.errors import CardNotVerified
from tieline.signing_keys import new_private_key
from tieline.types import encode

SIGNER = CardSigner(new_private_key(), key_id="k1")
OTHER = CardSigner(new_private_key("EdDSA"), key_id="k2")
LOOPBACK = ["127.0.0.1"]
KEYS = "/keys"


def page(body: bytes, kind: str = "application/json", **headers: str) -> Http:
    return Http(200, body, {"Content-Type": kind, **headers})


def card(signer: CardSigner | None = SIGNER, key_url: str | None = None, **changes: Any) -> bytes:
    """A card of an agent that is nowhere; `changes` are made behind its signing."""
    document = encode(card_of(("http://127.0.0.1:1/rpc", "JSONRPC")))
    if signer is not None:
        document = signer.sign(document, key_url=key_url)
    return json.dumps({**json.loads(document), **changes}).encode()


@asynccontextmanager
async def host_of(*cards: bytes, keys: list[Http] | None = None) -> AsyncIterator[Scripted]:
    """A host with these cards, one after the other, and answers for keys."""
    script: Script = {"card": [page(each) for each in cards], f"GET {KEYS}": keys or []}
    async with scripted("JSONRPC", script) as agent:
        yield agent


def origin(agent: Scripted) -> str:
    return agent.url.removesuffix("/agent")


async def told(ref: Any, **options: Any) -> CardVerification:
    async with connect(ref, **options) as peer:
        return peer.card_verification


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    path.write_bytes(SIGNER.jwks)
    return path


@pytest.mark.requirement("signing.client-extracts", "signing.client-finds-key", "signing.client-canonicalizes")
def test_the_card_of_our_own_server_is_verified_by_the_key_that_it_names_at_its_origin() -> None:
    async def test() -> None:
        application = app(obeys, allowed_hosts=LOOPBACK, card_signer=SIGNER)
        async with served(application) as url, connect(url, require_signed_card=True) as peer:
            verification = peer.card_verification
            assert verification.state == "verified"
            assert (verification.key_id, verification.algorithm) == ("k1", "ES256")
            assert verification.key_source == f"{url}/.well-known/jwks.json"
            assert str(await peer.ask("hi")) == "Hello, hi!"
            assert peer.card.signatures

    run(test())


@pytest.mark.parametrize("version", ["1.0", "0.3", "0.2", "0.1"])
def test_the_card_of_each_version_is_verified(version: str, keys: Path) -> None:
    async def test() -> None:
        async with served(app(obeys, allowed_hosts=LOOPBACK, card_signer=SIGNER)) as url:
            verification = await told(url, version=version, card_keys=keys, require_signed_card=True)
            assert (verification.state, verification.key_source) == ("verified", str(keys))

    run(test())


def test_a_card_without_a_signature_is_absent_and_costs_no_request() -> None:
    async def test() -> None:
        async with host_of(card(None)) as agent:
            verification = await told(agent.url)
            assert (verification.state, verification.key_id, verification.signatures) == ("absent", None, ())
            assert len(agent.requests) == 1

    run(test())


def test_keys_are_taken_from_files_of_every_form_and_from_a_url(tmp_path: Path, keys: Path) -> None:
    pem = tmp_path / "key.pem"
    pem.write_bytes(new_private_key())
    jwk = tmp_path / "jwk.json"
    jwk.write_text(json.dumps(json.loads(SIGNER.jwks)["keys"][0]))

    async def test() -> None:
        async with host_of(card(), card(), card(), card(), keys=[page(SIGNER.jwks)]) as agent:
            for source in (keys, str(jwk), [pem, keys]):
                assert (await told(agent.url, card_keys=source)).state == "verified"
            url = f"{origin(agent)}{KEYS}"
            secret = {
                "headers": {"Authorization": "Bearer secret"},
                "trust": "http://127.0.0.1:1",
            }  # where the card leads
            verification = await told(agent.url, card_keys=url, **secret)
            assert (verification.state, verification.key_source) == ("verified", url)
            asked = next(request for request in agent.requests if request.target == KEYS)
            assert "authorization" not in asked.headers

    run(test())


@pytest.mark.requirement("signing.client-verifies")
def test_an_unknown_key_is_unverifiable_and_a_changed_card_invalid(
    keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with host_of(card(OTHER), card(name="Changed")) as agent:
            unknown = await told(agent.url, card_keys=keys)
            assert (unknown.state, unknown.key_id, unknown.key_source) == ("unverifiable", "k2", None)
            assert "'k2', which is not known here" in unknown.reason
            assert not caplog.records
            changed = await told(agent.url, card_keys=keys)
            assert (changed.state, changed.key_id, changed.key_source) == ("invalid", "k1", str(keys))

    with caplog.at_level(logging.WARNING, "tieline.client"):
        run(test())
    assert "invalid signature" in caplog.text


def test_one_verified_signature_is_enough_and_each_is_told_of(keys: Path) -> None:
    async def test() -> None:
        document = OTHER.sign(card())
        async with host_of(document) as agent:
            verification = await told(agent.url, card_keys=keys)
            assert verification.state == "verified"
            assert [(each.key_id, each.state) for each in verification.signatures] == [
                ("k1", "verified"),
                ("k2", "unverifiable"),
            ]

    run(test())


@pytest.mark.requirement("signing.client-wants-one")
@pytest.mark.parametrize(
    "document", [card(None), card(OTHER), card(name="Changed")], ids=["absent", "unknown", "changed"]
)
def test_who_insists_is_refused_before_any_call(document: bytes, keys: Path) -> None:
    async def test() -> None:
        async with host_of(document) as agent:
            with pytest.raises(
                CardNotVerified, match=r"not signed, and has to be|nobody who is known|not what its signature says"
            ):
                await told(agent.url, card_keys=keys, require_signed_card=True)
            assert [request.target for request in agent.requests] == ["/agent/.well-known/agent-card.json"]

    run(test())


def test_what_is_not_vouched_for_is_not_used(keys: Path) -> None:
    async def test() -> None:
        old: Any = {"url": "http://elsewhere.example/", "protocolVersion": "0.3.0", "preferredTransport": "JSONRPC"}
        async with host_of(card(**old)) as agent, connect(agent.url, card_keys=keys) as peer:
            assert peer.card_verification.state == "verified"
            assert [each.url for each in peer.card.supported_interfaces] == ["http://127.0.0.1:1/rpc"]

    run(test())


# --- jku --------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("signing.keys-over-https")
@pytest.mark.parametrize(
    ("key_url", "why"),
    [
        ("https://keys.example/jwks.json", "it is not the card's own origin"),
        ("http://keys.example/jwks.json", "anybody on the way could change them: it has to be https"),
        ("http://127.0.0.1:1/jwks.json", "it is not the card's own origin"),
        ("https://user:open-sesame@keys.example/", "there is a user or password in it"),
        ("ftp://127.0.0.1/x", "it is no https URL"),
        ("file:///etc/passwd", "it is no https URL"),
        ("not a url", "it is no https URL"),
        ("http://[bad/", "it is no https URL"),
    ],
)
def test_keys_that_a_signature_names_elsewhere_are_not_fetched(key_url: str, why: str) -> None:
    async def test() -> None:
        async with host_of(card(SIGNER, key_url)) as agent:
            verification = await told(agent.url)
            assert verification.state == "unverifiable"
            assert f"are not believed: {why}." in verification.reason
            assert "open-sesame" not in verification.reason
            assert len(agent.requests) == 1

    run(test())


def test_keys_of_a_host_that_was_named_are_believed(tmp_path: Path) -> None:
    keys = tmp_path / "other.json"
    keys.write_bytes(OTHER.jwks)

    async def test() -> None:
        async with host_of(keys=[page(SIGNER.jwks)] * 2) as other:
            document = card(SIGNER, f"{origin(other)}{KEYS}".replace("127.0.0.1", "localhost"))
            async with host_of(*[document] * 4) as agent:
                assert (await told(agent.url)).state == "unverifiable"
                assert (await told(agent.url, card_key_hosts=["LOCALHOST"])).state == "verified"
                authority = origin(other).removeprefix("http://").replace("127.0.0.1", "localhost")
                assert (await told(agent.url, card_key_hosts=[authority], card_keys=keys)).state == "verified"
                assert (await told(agent.url, card_keys=keys)).state == "unverifiable"

    run(test())


def test_keys_at_the_cards_origin_do_not_count_where_keys_were_given(keys: Path) -> None:
    async def test() -> None:
        script: Script = {f"GET {KEYS}": [page(OTHER.jwks)]}
        async with scripted("JSONRPC", script) as agent:
            document = card(OTHER, f"{origin(agent)}{KEYS}")
            agent.script("card", page(document))
            assert (await told(agent.url, card_keys=keys)).state == "unverifiable"
            assert len(agent.requests) == 1

    run(test())


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (Http(404, b"no"), "HTTP 404"),
        (page(b"<html>"), "no key in PEM"),
        (page(b'{"keys": []}'), "no key in it"),
        (page(b"{" + b" " * 300_000 + b"}"), "larger than 262144 bytes"),
        (Http(302, b"", {"Location": "https://elsewhere.example/keys"}), "another origin"),
    ],
)
def test_keys_that_cannot_be_had_are_not_known_and_the_reason_is_told(answer: Http, fault: str) -> None:
    async def test() -> None:
        async with scripted("JSONRPC", {f"GET {KEYS}": [answer]}) as agent:
            url = f"{origin(agent)}{KEYS}"
            async with host_of(card()) as other:
                verification = await told(other.url, card_keys=url)
            assert verification.state == "unverifiable"
            assert f"The keys at {url} cannot be had: " in verification.reason
            assert fault in verification.reason

    run(test())


def test_keys_that_do_not_come_in_time_are_not_known() -> None:
    async def test() -> None:
        async with scripted("JSONRPC", {f"GET {KEYS}": [Raw(b"HTTP/1.1 200 OK\r\n", "hang")]}) as agent:
            async with host_of(card()) as other:
                url = f"{origin(agent)}{KEYS}"
                verification = await told(other.url, card_keys=url, timeouts=Timeouts(card_s=0.2))
            assert "did not answer in time" in verification.reason

    run(test())


@pytest.mark.parametrize(
    "url", ["http://keys.example/x", "ftp://keys.example/x", "https://u:p@keys.example/x", "https:///x"]
)
def test_a_url_for_keys_that_nobody_could_rely_on_is_an_error_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="cannot be used") as error:
        connect("agent.example", card_keys=url)
    assert "u:p" not in str(error.value)
    with pytest.raises(TypeError):
        connect("agent.example", card_keys=[7])  # type: ignore[list-item]


def test_a_file_without_keys_is_an_error_that_names_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with host_of(card(), card()) as agent:
            with pytest.raises(OSError, match="missing"):
                await told(agent.url, card_keys=tmp_path / "missing.json")
            (tmp_path / "odd.json").write_text("{}")
            with pytest.raises(ValueError, match=r"odd\.json has no keys for signatures"):
                await told(agent.url, card_keys=tmp_path / "odd.json")

    run(test())


# --- other references, and renewal ------------------------------------------------------------------------------------


def test_a_file_and_a_value_are_verified_by_the_keys_that_are_given(tmp_path: Path, keys: Path) -> None:
    file = tmp_path / "card.json"
    file.write_bytes(card())

    async def test() -> None:
        assert (await told(file, card_keys=keys, require_signed_card=True)).state == "verified"
        async with connect(file) as peer:
            assert peer.card_verification.state == "unverifiable"
            value = peer.card
        assert (await told(value, card_keys=keys, require_signed_card=True)).state == "verified"
        assert (await told(value)).state == "unverifiable"

    run(test())


def test_an_agent_of_this_process_is_not_signed() -> None:
    async def test() -> None:
        assert (await told(obeys)).state == "absent"
        with pytest.raises(CardNotVerified):
            await told(obeys, require_signed_card=True)

    run(test())


def test_a_renewed_card_is_verified_again(keys: Path) -> None:
    async def test() -> None:
        changing = host_of(card(), card(version="2"), card())
        async with changing as agent, connect(agent.url, card_keys=keys, cards=CardCache()) as peer:
            assert peer.card_verification.state == "verified"
            await peer.refresh_card()
            assert peer.card_verification.state == "invalid"
            await peer.refresh_card()
            assert peer.card_verification.state == "verified"
        losing = host_of(card(), card(None))
        async with losing as agent, connect(agent.url, card_keys=keys, require_signed_card=True) as peer:
            with pytest.raises(CardNotVerified):
                await peer.refresh_card()

    run(test())


def test_a_card_without_end_is_not_checked(keys: Path) -> None:
    async def test() -> None:
        async with host_of(card(extra="x" * 1024 * 1024)) as agent:
            verification = await told(agent.url, card_keys=keys)
            assert (verification.state, "too large to be checked" in verification.reason) == ("unverifiable", True)

    run(test())


def test_a_member_that_is_there_twice_makes_a_signed_card_invalid(keys: Path) -> None:
    async def test() -> None:
        twice = card()[:-1] + b',"name":"Other"}'
        async with host_of(twice) as agent:
            verification = await told(agent.url, card_keys=keys)
            assert (verification.state, "'name' twice" in verification.reason) == ("invalid", True)

    run(test())


def test_without_the_extra_a_signed_card_is_unverifiable_and_says_what_to_install(tmp_path: Path, keys: Path) -> None:
    file = tmp_path / "card.json"
    file.write_bytes(card())
    code = (
        "import asyncio, sys\n"
        "sys.modules['joserfc'] = None\n"
        "import tieline\n"
        "async def main():\n"
        f"    async with tieline.connect({str(file)!r}, card_keys={str(keys)!r}) as peer:\n"
        "        print(peer.card_verification.state, peer.card_verification.reason)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("unverifiable It cannot be checked here: signatures need the extra `auth`")


def test_calling_an_agent_whose_card_is_not_signed_loads_no_cryptography() -> None:
    code = "import sys, tieline; tieline.connect; tieline.CardSigner; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert not {"joserfc", "cryptography"} & {*done.stdout.split()}


def test_keys_come_over_https_by_the_authorities_that_the_connection_trusts() -> None:
    async def test() -> None:
        application = app(obeys, allowed_hosts=LOOPBACK, card_signer=SIGNER)
        tls = Path(__file__).with_name("tls")
        authority = str(tls / "authority.pem")
        async with served(application, certificate=str(tls / "this-machine.pem")) as url:
            verification = await told(url, verify=authority, require_signed_card=True)
            assert verification.key_source == f"{url}/.well-known/jwks.json"
            async with host_of(card(SIGNER)) as agent:
                untrusted = await told(agent.url, card_keys=f"{url}/.well-known/jwks.json")
                assert (untrusted.state, "cannot be trusted" in untrusted.reason) == ("unverifiable", True)

    run(test())
