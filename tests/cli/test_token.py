"""`tieline token`, and the options of `tieline serve` that say who may call: what they write, show and refuse."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cli.running import Tieline
from tieline.server.auth.tokens import TokenFile, is_password, read_tokens

AGENT = """
from tieline import Turn, agent

@agent(name="Hello", description="Greets people.")
async def hello(turn: Turn):
    yield "Hello!"
"""


def file_of(tieline: Tieline) -> Path:
    return tieline.home / ".config" / "tieline" / "tokens.jsonl"


def test_token_is_shown_once_and_only_its_hash_is_kept(bare: Tieline) -> None:
    made = bare(
        "token", "create", "ada", "--scope", "a", "--scope", "b", "--tenant", "acme", "--note", "n", "-o", "json"
    )
    assert made.code == 0
    token = made.json["token"]
    kept = file_of(bare)
    assert token.startswith("tieline_")
    assert token not in kept.read_text()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    found = TokenFile(kept).of_token(token.encode())
    assert found is not None
    assert (found.principal, found.tenant, found.scopes, found.note) == ("ada", "acme", ("a", "b"), "n")
    for words in (["token", "list"], ["token", "list", "-o", "json"]):
        shown = bare(*words)
        assert "ada" in shown.out
        assert token not in shown.out
        assert found.hash not in shown.out


def test_tokens_are_listed_with_labels_that_stay_the_same(bare: Tieline) -> None:
    words = ("--scope", "a", "--scope", "b", "--tenant", "acme", "--note", "n")
    made = bare("token", "create", "ada@x.example", *words, "-o", "json").json
    assert bare("token", "create", "bob").code == 0
    first = {"Owner": "ada@x.example", "Id": made["id"], "Kind": "token", "Valid": "for ever", "Tenant": "acme"}
    shown = bare("token", "list").all_fields
    assert dict(shown[:7]) == {**first, "Scopes": "a b", "Note": "n"}
    assert [label for label, _ in shown[7:]] == ["Owner", "Id", "Kind", "Valid"]


def test_file_that_holds_no_tokens_is_named_as_it_is(bare: Tieline) -> None:
    (bare.folder / "MyTokens.jsonl").write_text("nothing\n")
    refused = bare("token", "list", "--tokens", "MyTokens.jsonl", "-o", "json")
    assert refused.error["code"] == "TIELINE_ERR_FILES"
    assert refused.error["message"] == ("Line 1 of MyTokens.jsonl is no token: make them with tieline token create.")


def test_token_goes_into_a_new_file_that_its_owner_alone_can_read(bare: Tieline) -> None:
    made = bare("token", "create", "ada", "--save", "ada.token")
    assert made.code == 0
    saved = bare.folder / "ada.token"
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    assert saved.read_text().strip() not in made.out + made.err
    assert TokenFile(file_of(bare)).of_token(saved.read_bytes().strip()) is not None
    again = bare("token", "create", "ada", "--save", "ada.token")
    assert again.code == 2
    assert "is there already" in again.err
    assert len(read_tokens(file_of(bare))) == 1, "what could not be handed over was not made"


def test_password_is_read_from_stdin_and_kept_so_that_nobody_can_read_it(bare: Tieline) -> None:
    made = bare("token", "create", "ada", "--password", "--lasts", "1h", stdin=b"open sesame\n")
    assert made.code == 0
    assert "sesame" not in made.out + made.err + file_of(bare).read_text()
    line = TokenFile(file_of(bare)).of_name("ada")
    assert is_password(line, b"open sesame")
    assert line is not None
    assert line.expires is not None
    assert bare("token", "create", "ada", "--password", stdin=b"other\n").code == 2
    assert bare("token", "create", "bob", "--password", stdin=b"\n").code == 2
    assert bare("token", "create", "bob", "--password", "--save", "x", stdin=b"pw\n").code == 2


def test_tokens_are_revoked_by_id_and_by_name(bare: Tieline) -> None:
    first, _, other = (bare("token", "create", name, "-o", "json").json for name in ("ada", "ada", "bob"))
    assert [each["id"] for each in bare("token", "revoke", first["id"], "-o", "json").json["revoked"]] == [first["id"]]
    unknown = bare("token", "revoke", "ada", "nobody")
    assert unknown.code == 2
    assert "nobody" in unknown.err
    assert bare("token", "revoke", "ada").code == 0
    assert [each["id"] for each in bare("token", "list", "-o", "json").json["tokens"]] == [other["id"]]


def test_what_is_made_at_the_same_time_is_all_kept(bare: Tieline) -> None:
    installed = Tieline(bare.home, bare.folder, None)
    with ThreadPoolExecutor(4) as pool:
        codes = list(pool.map(lambda number: installed("token", "create", f"name{number}").code, range(6)))
    assert codes == [0] * 6
    assert sorted(token.principal for token in read_tokens(file_of(bare))) == [f"name{number}" for number in range(6)]


@pytest.mark.parametrize("name", ["", "a b", "cert:CN=ada", "a/b", "-x", "ä", "x" * 129, "a\nb"])
def test_name_that_could_be_taken_for_somebody_else_is_refused(bare: Tieline, name: str) -> None:
    made = bare("token", "create", "--", name)
    assert made.code == 2
    assert "Traceback" not in made.err


def test_file_that_is_none_is_not_written_over(bare: Tieline) -> None:
    (bare.folder / "tokens").write_text("my notes\n")
    made = bare("token", "create", "ada", "--tokens", "tokens")
    assert made.code != 0
    assert "no token" in made.err
    assert (bare.folder / "tokens").read_text() == "my notes\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--auth", "bearer"], "tieline token create"),
        (["--auth", "oidc"], "write bearer, basic"),
        (["--auth", "nothing"], "write bearer, basic"),
        (["--auth", "oidc:https://login.example"], "--audience"),
        (["--auth", "oidc:http://login.example", "--audience", "a"], "https"),
        (["--auth", "jwt:https://i.example", "--audience", "a"], "--jwks"),
        (["--auth", "jwt:https://i.example", "--audience", "a", "--jwks", "absent.json"], "holds no JWKS"),
        (["--auth", "mtls"], "client_ca"),
        (["--auth", "mtls:X-Cert", "--mtls-proxy", "nowhere"], "nowhere"),
        (["--audience", "a"], "says more of --auth"),
        (["--scope", "SendMessage=x"], "says more of --auth"),
        (["--auth", "mtls:X-Cert", "--scope", "SendMessage"], "OPERATION=SCOPE"),
        (["--auth", "mtls:X-Cert", "--scope", "Sendmessage=x"], "there is no operation Sendmessage"),
        (["--tls-cert", "absent.pem"], "--tls-key"),
        (["--tls-cert", "absent.pem", "--tls-key", "absent.pem"], "there is no certificate at absent.pem"),
        (["--tls-cert", "hello.py", "--tls-key", "hello.py"], "are no certificate and its key"),
        (["--rate", "inf"], "has to be a number from"),
        (["--rate", "-1"], "has to be a number from"),
        (["--rate", "nan"], "has to be a number from"),
        (["--queued-runs", "-1"], "queued-runs"),
    ],
)
def test_server_whose_options_make_no_sense_says_what_is_wrong(bare: Tieline, options: list[str], words: str) -> None:
    (bare.folder / "hello.py").write_text(AGENT)
    run = bare("serve", "hello.py", "--port", "0", "--store", "memory", *options)
    assert run.code != 0
    assert words in run.err, run.err
    assert "Traceback" not in run.err
