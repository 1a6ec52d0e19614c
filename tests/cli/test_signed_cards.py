"""`card sign`, `verify` and `keygen`; what other commands say of signatures; and `serve --card-key`."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.cli.running import Foreign, Tieline
from tests.interop.processes import TIELINE, free_port, running

AGENTS = Path(__file__).with_name("agents.py")
NOT_VERIFIED = "TIELINE_ERR_CARD_NOT_VERIFIED"


@pytest.fixture
def keyed(bare: Tieline) -> Tieline:
    """The command in a folder with two keys and a card that the first of them has signed."""
    for name in ("mine", "other"):
        made = bare("card", "keygen", f"{name}.pem", "--public", f"{name}.json", "--kid", name)
        assert made.code == 0, made.err
    (bare.folder / "card.json").write_text(json.dumps(CARD))
    (bare.folder / "twice.json").write_text(json.dumps(CARD)[:-1] + ', "name": "Another"}')
    signed = bare("card", "sign", "card.json", "--key", "mine.pem", "--kid", "mine", "--out", "signed.json")
    assert (signed.code, signed.fields) == (0, {"Card": "signed.json", "Signed by": "key 'mine' (ES256)"})
    return bare


CARD: dict[str, Any] = {
    "name": "Signed",
    "description": "In a file.",
    "supportedInterfaces": [{"url": "http://127.0.0.1:9/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
    "version": "1",
    "capabilities": {"streaming": True},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "s", "name": "S", "description": "Does s.", "tags": ["t"]}],
    "futureField": {"kept": [1.0, "é"]},
}


def change(tieline: Tieline, **members: Any) -> None:
    """changed.json is signed.json with other members."""
    card = json.loads((tieline.folder / "signed.json").read_text())
    (tieline.folder / "changed.json").write_text(json.dumps({**card, **members}))


# --- in files ---------------------------------------------------------------------------------------------------------


def test_a_key_is_made_that_only_its_owner_can_read_and_never_overwritten(bare: Tieline) -> None:
    made = bare("card", "keygen", "key.pem", "--public", "keys.json", "-o", "json")
    assert made.code == 0, made.err
    path = bare.folder / "key.pem"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().startswith("-----BEGIN PRIVATE KEY-----")
    (public,) = json.loads((bare.folder / "keys.json").read_text())["keys"]
    assert made.json == {"key": "key.pem", "keyId": public["kid"], "algorithm": "ES256", "public": "keys.json"}
    assert "d" not in public
    before = path.read_bytes()
    again = bare("card", "keygen", "key.pem")
    assert (again.code, "not overwritten" in again.err) == (2, True)
    assert path.read_bytes() == before


def test_a_public_key_is_never_overwritten_and_a_key_is_made_with_it_or_not_at_all(bare: Tieline) -> None:
    assert bare("card", "keygen", "old.pem", "--public", "keys.json").code == 0
    before = (bare.folder / "keys.json").read_bytes()
    for public, code, told in (
        ("keys.json", 2, "keys.json is there already"),
        ("no/keys.json", 1, "cannot be written"),
    ):
        refused = bare("card", "keygen", "new.pem", "--public", public)
        assert (refused.code, told in refused.err) == (code, True)
        assert not (bare.folder / "new.pem").exists()
    assert (bare.folder / "keys.json").read_bytes() == before
    refused = bare("card", "keygen", "no/new.pem", "--public", "new.json")
    assert (refused.code, (bare.folder / "new.json").exists()) == (1, False)


@pytest.mark.parametrize("algorithm", ["ES256", "EdDSA", "RS256", "PS256"])
def test_a_card_is_signed_and_verified_with_every_algorithm(bare: Tieline, algorithm: str) -> None:
    assert bare("card", "keygen", "key.pem", "--alg", algorithm).code == 0
    words = ("card", "sign", "-", "--key", "key.pem", "--jku", "https://keys.example/jwks.json", "--alg", algorithm)
    signed = bare(*words, stdin=json.dumps(CARD).encode())
    assert signed.code == 0, signed.err
    assert {**signed.json, "signatures": None} == {**CARD, "signatures": None}
    (bare.folder / "signed.json").write_text(signed.out)
    told = bare("card", "verify", "signed.json", "--keys", "key.pem", "--require")
    assert (told.code, told.fields["State"]) == (0, "verified"), told.err
    assert told.fields["Key from"] == "key.pem"
    assert algorithm in told.fields["Signed by"]


def test_verify_tells_of_each_signature_as_json(keyed: Tieline) -> None:
    assert keyed("card", "sign", "signed.json", "--key", "other.pem", "--kid", "other", "--out", "both.json").code == 0
    told = keyed("card", "verify", "both.json", "--keys", "other.json", "-o", "json")
    assert told.code == 0, told.err
    assert {name: told.json[name] for name in ("card", "state", "keyId", "keySource", "algorithm")} == {
        "card": "both.json",
        "state": "verified",
        "keyId": "other",
        "keySource": "other.json",
        "algorithm": "ES256",
    }
    states = {(each["keyId"], each["state"]) for each in told.json["signatures"]}
    assert states == {("mine", "unverifiable"), ("other", "verified")}


def test_verify_fails_for_a_changed_card_and_for_others_only_where_it_is_required(keyed: Tieline) -> None:
    change(keyed, description="Another.")
    changed = keyed("card", "verify", "changed.json", "--keys", "mine.json")
    assert (changed.code, changed.fields["State"]) == (1, "invalid")
    assert f"Code: {NOT_VERIFIED}" in changed.err
    assert keyed("card", "verify", "changed.json", "--keys", "mine.json", "-o", "json").error["code"] == NOT_VERIFIED
    for card, state in (("signed.json", "unverifiable"), ("card.json", "absent")):
        told = keyed("card", "verify", card, "--keys", "other.json")
        assert (told.code, told.fields["State"]) == (0, state)
        required = keyed("card", "verify", card, "--keys", "other.json", "--require")
        assert (required.code, required.fields["State"]) == (1, state)
        assert keyed("card", "verify", card, "--require", "-o", "json").error["code"] == NOT_VERIFIED


def test_get_shows_what_became_of_the_signatures_and_warns_of_one_that_is_invalid(keyed: Tieline) -> None:
    verified = keyed("card", "get", "-a", "signed.json", "--card-keys", "mine.json")
    assert verified.fields["Signatures"] == "2, verified"
    assert (verified.fields["Signed by"], verified.fields["Key from"]) == ("key 'mine' (ES256)", "mine.json")
    assert verified.err == ""
    change(keyed, version="2")
    changed = keyed("card", "get", "-a", "changed.json", env={"A2ACLI_CARD_KEYS": "mine.json"})
    assert (changed.code, changed.fields["Signatures"]) == (0, "2, invalid")
    assert changed.err.startswith("Warning: The card has an invalid signature: ")
    assert changed.err.count("Warning") == 1
    required = keyed("card", "get", "-a", "changed.json", "--card-keys", "mine.json", "--require-signed-card")
    assert (required.code, required.out) == (1, "")


def test_members_that_nobody_has_signed_are_not_used(keyed: Tieline) -> None:
    change(keyed, iconUrl="http://elsewhere.example/")
    assert keyed("card", "get", "-a", "changed.json", "--card-keys", "mine.json").fields["Signatures"] == "2, invalid"
    change(keyed, url="http://elsewhere.example/", protocolVersion="0.3.0")
    added = keyed("card", "get", "-a", "changed.json", "--card-keys", "mine.json")
    assert added.fields["Signatures"] == "2, verified"
    assert "elsewhere" not in added.out
    for words in (("--card-keys", "mine.json"), ("--card-keys", "mine.json", "--require-signed-card")):
        document = keyed("card", "get", "-a", "changed.json", *words, "-o", "json")
        assert document.code == 0, document.err
        assert "elsewhere" not in document.out
        assert (document.json["name"], "futureField" in document.json) == ("Signed", False)
    (keyed.folder / "kept.json").write_text(document.out)
    assert keyed("card", "verify", "kept.json", "--keys", "mine.json", "--require").code == 0
    as_it_is = keyed("card", "get", "-a", "changed.json", "--card-keys", "other.json", "-o", "json")
    assert as_it_is.json["url"] == "http://elsewhere.example/"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("sign", "card.json"), 2, "Missing option '--key'"),
        (("sign", "card.json", "--key", "missing.pem"), 1, "The key missing.pem cannot be read: No such file"),
        (("sign", "card.json", "--key", "card.json"), 2, "card.json cannot sign cards: its kty is none of"),
        (("sign", "card.json", "--key", "mine.json"), 2, "mine.json cannot sign cards: it is a public key"),
        (("sign", "card.json", "--key", "mine.pem", "--alg", "RS256"), 2, "'RS256' does not fit this key"),
        (("sign", "card.json", "--key", "mine.pem", "--jku", "keys"), 2, "'keys' is no URL of keys"),
        (("sign", "missing.json", "--key", "mine.pem"), 1, "missing.json cannot be read: No such file"),
        (("sign", "mine.pem", "--key", "mine.pem"), 1, "mine.pem is not an agent card: it is not JSON"),
        (("sign", "mine.json", "--key", "mine.pem"), 1, "mine.json is not a valid agent card: "),
        (
            ("sign", "twice.json", "--key", "mine.pem"),
            1,
            "twice.json cannot be signed: an object has the member 'name'",
        ),
        (("sign", "card.json", "--key", "mine.pem", "--out", "no/where.json"), 1, "no/where.json cannot be written"),
        (("verify", "signed.json", "--keys", "card.json"), 2, "card.json has no keys for signatures"),
        (("verify", "signed.json", "--keys", "missing.json"), 1, "missing.json: No such file"),
        (("verify", "signed.json", "--keys", "http://keys.example/x"), 2, "it has to be https"),
        (("verify",), 2, "Which agent?"),
        (("verify", "missing.json"), 3, "missing.json"),
        (("keygen", "no/where.pem"), 1, "no/where.pem cannot be written"),
        (("keygen", "new.pem", "--alg", "HS256"), 2, "'HS256' is not one of"),
    ],
)
def test_mistakes_are_told_in_a_sentence(keyed: Tieline, words: tuple[str, ...], code: int, told: str) -> None:
    failed = keyed("card", *words)
    assert (failed.code, failed.out) == (code, ""), failed.err
    assert told in failed.err
    assert "Traceback" not in failed.err


def test_a_private_key_that_others_can_read_is_warned_of(keyed: Tieline) -> None:
    (keyed.folder / "mine.pem").chmod(0o640)
    signed = keyed("card", "sign", "card.json", "--key", "mine.pem")
    assert signed.code == 0
    assert signed.err == "Warning: mine.pem holds a private key and others can read it: chmod 600 mine.pem\n"
    assert "holds a private key" not in keyed("card", "sign", "card.json", "--key", "mine.json").err


# --- over the network -------------------------------------------------------------------------------------------------


@pytest.fixture
def signing_server(keyed: Tieline) -> Iterator[str]:
    """host:port of a server that signs its card with mine.pem."""
    port = free_port()
    command: list[str | Path] = [TIELINE, "serve", f"{AGENTS}:tester", "--port", str(port), "--store", "memory"]
    command += ["--card-key", keyed.folder / "mine.pem", "--card-key-id", "mine", "--drain", "0"]
    with running(command, port, keyed.folder / "serve.log"):
        yield f"127.0.0.1:{port}"


def test_a_served_card_is_signed_and_verified_by_the_key_at_its_origin(keyed: Tieline, signing_server: str) -> None:
    told = keyed("card", "verify", signing_server, "--require")
    assert (told.code, told.fields["State"]) == (0, "verified"), told.err
    assert told.fields["Key from"] == f"http://{signing_server}/.well-known/jwks.json"
    with urlopen(f"http://{signing_server}/.well-known/jwks.json", timeout=30) as response:
        assert json.load(response) == json.loads((keyed.folder / "mine.json").read_text())
    sent = keyed("send", "reply hi", "-a", signing_server, "--card-keys", "mine.json", "--require-signed-card")
    assert (sent.code, sent.block("Text"), sent.err) == (0, "direct: hi", "")


def test_commands_refuse_an_agent_that_is_not_signed_as_is_required_before_they_call_it(
    keyed: Tieline, signing_server: str, foreign: Foreign
) -> None:
    words = ("send", "hi", "-o", "json", "--require-signed-card")
    refused = keyed(*words, "-a", signing_server, "--card-keys", "other.json")
    assert (refused.code, refused.error["code"]) == (1, NOT_VERIFIED)
    assert refused.error["hint"] == (
        "See what is known of its signatures: tieline card verify"
        f" -a {signing_server} --card-keys other.json --require-signed-card"
    )
    agent = foreign.agent("polled")
    refused = keyed(*words, "-a", agent.ref)
    assert (refused.code, refused.error["code"]) == (1, NOT_VERIFIED)
    assert agent.calls == []


def test_what_comes_next_insists_on_the_same(keyed: Tieline, signing_server: str) -> None:
    sent = keyed("send", "hi", "-a", signing_server, "--card-keys", "mine.json", "--require-signed-card")
    assert "--card-keys mine.json --require-signed-card" in sent.fields["Next"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--card-key", "missing.pem"), "The key missing.pem cannot be read"),
        (("--card-key", "mine.json"), "it is a public key"),
        (("--card-key", "missing.pem", "--workers", "2"), "The key missing.pem cannot be read"),
        (("--card-key-id", "a"), "name it with --card-key"),
        (("--card-key", "mine.pem", "--host", "0.0.0.0"), "signed cards need a public_url"),
    ],
)
def test_serve_refuses_a_key_that_cannot_sign(keyed: Tieline, options: tuple[str, ...], told: str) -> None:
    failed = keyed("serve", f"{AGENTS}:tester", "--port", "0", "--store", "memory", *options)
    assert (failed.code in (1, 2), told in failed.err) == (True, True), failed.err
