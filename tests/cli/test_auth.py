"""Signing in and out: what is asked, where it is kept, who gets it, and that none of it is shown."""

from __future__ import annotations

import json
import os
import pty
import re
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import Result, Tieline, until
from tests.client.auth.agents import Guarded, GuardedAgent, guarded_running
from tests.client.auth.certificates import Authority
from tests.client.auth.guarded import SECRET
from tests.interop.processes import ROOT, TIELINE
from tests.oidc.running import OidcProvider, provider, provider_process

__all__ = ["guarded", "provider", "provider_process"]

HERE = Path(__file__).parent
MACHINE = {"TIELINE_SECRET": "machine-secret"}
BINDINGS = ("JSONRPC", "HTTP+JSON", "GRPC")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, provider_process: OidcProvider) -> Iterator[Guarded]:
    with guarded_running(tmp_path_factory.mktemp("guarded"), provider_process.issuer) as started:
        yield started


def file_of(tieline: Tieline) -> Path:
    return tieline.home / ".config" / "tieline" / "credentials.json"


def everything(tieline: Tieline) -> str:
    """All that is in the home and the working directory but the file of credentials."""
    files = [each for folder in (tieline.home, tieline.folder) for each in folder.rglob("*") if each.is_file()]
    return "".join(each.read_text(errors="replace") for each in files if each != file_of(tieline))


def used(tieline: Tieline, agent: GuardedAgent, *words: str) -> None:
    """What was saved goes with every command, without another option."""
    for binding in BINDINGS:
        sent = tieline("send", "hello you", "--transport", binding, "-a", agent.url, "-o", "json", *words)
        assert sent.code == 0, sent.out + sent.err
        task_id = sent.json["task"]["id"]
        assert tieline("task", "get", task_id, "--transport", binding, "-a", agent.url, *words).code == 0
    assert tieline("task", "list", "-a", agent.url, *words).code == 0
    streamed = tieline("send", "hello you", "--stream", "-o", "json", "-a", agent.url, *words)
    assert streamed.lines[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


def by_machine(tieline: Tieline, provider: OidcProvider, agent: GuardedAgent, *words: str) -> Result:
    return tieline(
        *("auth", "login", "-a", agent.url, "--client-id", "machine", "--issuer", provider.issuer, *words), env=MACHINE
    )


# --- ways to sign in --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["environment", "file", "stdin"])
def test_client_credentials_are_kept_and_used_by_every_command(
    bare: Tieline, guarded: Guarded, provider: OidcProvider, source: str
) -> None:
    agent = guarded.agent("machine")
    words = ["auth", "login", "-a", agent.url, "--client-id", "machine", "--issuer", provider.issuer]
    (bare.folder / "secret").write_text("machine-secret\n")
    more = {"environment": [], "file": ["--secret-file", "secret"], "stdin": ["--secret-file", "-"]}[source]
    signed = bare(
        *words, *more, stdin=b"machine-secret\n" if source == "stdin" else b"", env=MACHINE if not more else {}
    )
    assert signed.code == 0, signed.err
    assert signed.fields["Signed in"] == "by client credentials as machine for scheme machine"
    assert signed.fields["Scopes"] == "call"
    assert signed.fields["Kept in"] == str(file_of(bare))
    assert ("secret holds a secret and others can read it: chmod 600 secret" in signed.err) is (source == "file")
    (bare.folder / "secret").unlink()
    used(bare, agent)
    assert provider.grants() == ["client_credentials"], "the token is kept, too"
    assert "machine-secret" not in signed.out + signed.err + everything(bare)


def test_a_token_that_expired_or_was_taken_back_is_fetched_anew_and_kept(
    bare: Tieline, guarded: Guarded, provider: OidcProvider
) -> None:
    agent = guarded.agent("machine")
    assert by_machine(bare, provider, agent).code == 0
    provider.revoke(token_of(bare))
    for _ in range(2):
        assert bare("send", "hi", "-a", agent.url).code == 0
    assert len(provider.grants()) == 2
    provider.configure(expires_in=0)
    provider.revoke(token_of(bare))
    for _ in range(2):
        assert bare("send", "hi", "-a", agent.url).code == 0
    assert len(provider.grants()) >= 4


def token_of(tieline: Tieline, name: str = "access_token") -> str:
    agents = json.loads(file_of(tieline).read_text())["agents"]
    (entry,) = agents.values()
    return str(entry["agent"]["logins"][0]["tokens"][name])


@pytest.mark.parametrize(("scenario", "words"), [("device", ()), ("oidc", ("--flow", "device-code"))])
def test_a_device_code_is_shown_and_what_comes_of_it_is_kept(
    bare: Tieline, guarded: Guarded, provider: OidcProvider, scenario: str, words: tuple[str, ...]
) -> None:
    provider.configure(device_interval_s=0)
    agent = guarded.agent(scenario)
    login = bare.start("auth", "login", "-a", agent.url, "--client-id", "desktop", "--trust", provider.issuer, *words)
    until(lambda: provider.decide(), "the device code")
    out, err = (stream.decode() for stream in login.communicate(timeout=60))
    assert login.returncode == 0, err
    assert re.search(rf"Open {provider.issuer}/activate and type the code [A-Z]{{4}}-[A-Z]{{4}}\n", err)
    assert "Signed in: by device code as desktop" in out
    assert ", then renewed" in out
    used(bare, agent)
    provider.revoke(token_of(bare))
    refused = bare("send", "hi", "-o", "json", "-a", agent.url)
    assert (refused.code, refused.error["code"]) == (4, "A2ACLI_ERR_AUTH_FAILED")
    assert refused.error["hint"] == f"Sign in again: tieline auth login -a {agent.url}"


def test_a_browser_is_opened_and_its_answer_heard(bare: Tieline, guarded: Guarded, provider: OidcProvider) -> None:
    agent = guarded.agent("browser")
    browser = f"{sys.executable} {HERE / 'visiting.py'} %s"
    words = ("auth", "login", "-a", agent.url, "--client-id", "desktop", "--trust", provider.issuer)
    signed = bare(*words, env={"BROWSER": browser})
    assert signed.code == 0, signed.err
    assert f"You sign in at {provider.issuer}." in signed.err
    assert signed.fields["Signed in"] == "by authorization code as desktop for scheme browser"
    used(bare, agent)
    assert provider.grants() == ["authorization_code"]


def test_a_provider_without_a_flow_for_devices_is_signed_in_to_with_a_browser(
    bare: Tieline, guarded: Guarded, provider: OidcProvider
) -> None:
    provider.configure(metadata={"device_authorization_endpoint": None})
    agent = guarded.agent("oidc")
    words = ("auth", "login", "-a", agent.url, "--client-id", "desktop", "--issuer", provider.issuer)
    signed = bare(*words, env={"BROWSER": f"{sys.executable} {HERE / 'visiting.py'} %s"})
    assert signed.code == 0, signed.err
    assert signed.fields["Signed in"] == "by authorization code as desktop for scheme oidc"
    assert signed.fields["Scopes"] == "openid"
    refused = bare(*words, "--flow", "device-code", "-o", "json")
    assert "no device authorization endpoint" in refused.error["message"]


def test_without_a_browser_the_address_is_shown(bare: Tieline, guarded: Guarded, provider: OidcProvider) -> None:
    agent = guarded.agent("browser")
    words = ("auth", "login", "-a", agent.url, "--client-id", "desktop", "--trust", provider.issuer, "--no-browser")
    login = bare.start(*words, env={"BROWSER": "false"})
    assert login.stderr is not None
    for line in iter(login.stderr.readline, b""):
        if line.startswith(b"Open "):
            browser = threading.Thread(target=visit, args=(line.decode().split()[1],))
            browser.start()
            break
    out, err = (stream.decode() for stream in login.communicate(timeout=60))
    browser.join()
    assert login.returncode == 0, err
    assert "by authorization code" in out


def visit(url: str) -> None:
    from urllib.request import ProxyHandler, build_opener

    build_opener(ProxyHandler({})).open(url, timeout=30).read()


@pytest.mark.parametrize(
    ("scenario", "words", "secret"),
    [
        ("header-key", (), SECRET),
        ("cookie-key", (), SECRET),
        ("bearer", (), SECRET),
        ("basic", ("--user", "ada"), "open sesame"),
        ("either", ("--flow", "api-key"), SECRET),
    ],
)
def test_keys_tokens_and_passwords_are_kept_and_used(
    bare: Tieline, guarded: Guarded, scenario: str, words: tuple[str, ...], secret: str
) -> None:
    agent = guarded.agent(scenario)
    signed = bare("auth", "login", "-a", agent.url, *words, "-o", "json", env={"TIELINE_SECRET": secret})
    assert signed.code == 0, signed.err
    used(bare, agent)
    shown = bare("auth", "status")
    told = bare("send", "hi", "--debug", "--verbose", "-a", agent.url)
    for run in (signed, shown, told):
        assert secret not in run.out + run.err
    assert secret not in everything(bare)


def test_schemes_that_are_wanted_together_are_all_signed_in_for(
    bare: Tieline, guarded: Guarded, provider: OidcProvider
) -> None:
    agent = guarded.agent("both")
    code, seen = at_a_terminal(
        bare,
        ("auth", "login", "-a", agent.url, "--client-id", "machine", "--issuer", provider.issuer),
        [("Secret of client machine: ", "machine-secret"), ("API key for the header X-Agent-Key: ", SECRET)],
    )
    assert code == 0, seen
    assert "machine-secret" not in seen
    assert SECRET not in seen
    used(bare, agent)


def test_what_only_the_card_names_is_asked_for_and_no_is_an_answer(
    bare: Tieline, guarded: Guarded, provider: OidcProvider
) -> None:
    agent = guarded.agent("machine")
    for answer, code in (("n", 4), ("y", 0)):
        ended, seen = at_a_terminal(
            bare,
            ("auth", "login", "-a", agent.url),
            [
                ("Client id: ", "machine"),
                ("Secret of client machine: ", "machine-secret"),
                (f"Do you trust {provider.issuer}? [y/N]: ", answer),
            ],
        )
        assert ended == code, seen
        assert "wants to have the client's secret go at" in seen
        assert len(provider.requests("/token")) == (answer == "y")


TAKES_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
"""Makes standard input the terminal that passwords are asked for at, and becomes the command."""


def at_a_terminal(tieline: Tieline, words: tuple[str, ...], answers: list[tuple[str, str]]) -> tuple[int, str]:
    """A run at a terminal: when a question is there, it is answered. The exit code, and all that was seen."""
    ours, theirs = pty.openpty()
    run = subprocess.Popen(
        [sys.executable, "-c", TAKES_TERMINAL, str(TIELINE), *words],
        cwd=tieline.folder,
        env=tieline._environment(None),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    seen = ""
    left = list(answers)
    timer = threading.Timer(60, run.kill)
    timer.start()
    try:
        while True:
            try:
                data = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not data:
                break
            seen += data.decode(errors="replace")
            if left and seen.endswith(left[0][0]):
                os.write(ours, f"{left.pop(0)[1]}\n".encode())
        code = run.wait()
    finally:
        timer.cancel()
        os.close(ours)
    assert not left, f"was not asked for {left[0][0]!r}: {seen}"
    return code, seen


# --- what cannot be ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "words", "told"),
    [
        ("open", (), "asks for no credentials"),
        ("machine", ("--flow", "basic"), "There is no way to sign in by basic: the card asks for machine (OAuth 2"),
        ("machine", ("--scheme", "other"), "for scheme 'other'"),
        ("digest", (), "the card asks for digest (HTTP Digest)"),
        ("mtls", (), "the card asks for mtls"),
        ("machine", (), "Client id? There is nobody to ask."),
        ("machine", ("--client-id", "machine"), "Secret of client machine? There is nobody to ask."),
        (
            "header-key",
            ("--secret-file", "missing"),
            "missing (--secret-file) cannot be read: No such file or directory",
        ),
        ("header-key", ("--secret-file", "empty"), "API key for the header X-Agent-Key: it is empty"),
        ("header-key", ("--secret-file", "odd"), "The key is empty, or has characters that no header can carry"),
        ("machine", ("--client-id", "m", "--secret-file", "some", "--issuer", "http://x.example"), "has to be https"),
    ],
)
def test_what_cannot_be_signed_in_with_is_said(
    bare: Tieline, guarded: Guarded, scenario: str, words: tuple[str, ...], told: str
) -> None:
    for name, text in (("empty", "\n"), ("odd", "sécret"), ("some", "secret")):
        (bare.folder / name).write_text(text)
    refused = bare("auth", "login", "-a", guarded.agent(scenario).url, *words)
    assert refused.code == 2, refused.err
    assert told in refused.err
    assert "Traceback" not in refused.err
    assert not file_of(bare).exists()


def test_no_option_takes_a_secret(bare: Tieline) -> None:
    shown = bare("auth", "login", "--help").out
    assert not re.search(r"--(secret|password|client-secret|token|key)\b(?!-)", shown)


def test_a_secret_does_not_go_where_only_the_card_says_when_nobody_can_be_asked(
    bare: Tieline, guarded: Guarded, provider: OidcProvider
) -> None:
    agent = guarded.agent("machine")
    refused = bare("auth", "login", "-a", agent.url, "--client-id", "machine", "-o", "json", env=MACHINE)
    assert refused.code == 1
    assert f"The secret would go to {provider.issuer}, which only the card names" in refused.error["message"]
    assert f"--trust {provider.issuer}" in refused.error["hint"]
    assert provider.requests() == []
    assert by_machine(bare, provider, agent).code == 0


def test_a_provider_that_refuses_is_told_with_its_word(bare: Tieline, guarded: Guarded, provider: OidcProvider) -> None:
    agent = guarded.agent("machine")
    words = ("auth", "login", "-a", agent.url, "--client-id", "machine", "--issuer", provider.issuer, "-o", "json")
    refused = bare(*words, env={"TIELINE_SECRET": "wrong-secret"})
    assert (refused.code, refused.error["code"]) == (4, "A2ACLI_ERR_AUTH_FAILED")
    assert "invalid_client" in refused.error["message"]
    assert "wrong-secret" not in refused.out + refused.err
    away = bare(*words[:-3], "http://127.0.0.1:1", "-o", "json", env=MACHINE)
    assert (away.code, away.error["code"]) == (3, "A2ACLI_ERR_UNREACHABLE")


# --- who gets it ------------------------------------------------------------------------------------------------------


def test_what_was_saved_for_one_agent_goes_to_no_other(bare: Tieline, guarded: Guarded, provider: OidcProvider) -> None:
    agent = guarded.agent("machine")
    assert by_machine(bare, provider, agent).code == 0
    elsewhere = agent.url.replace("127.0.0.1", "localhost")
    refused = bare("send", "hi", "-a", elsewhere, "-o", "json")
    assert refused.error["code"] == "A2ACLI_ERR_CREDENTIALS_MISSING"
    assert f"sign in with tieline auth login -a {elsewhere}" in refused.error["hint"]
    assert "authorization" not in agent.calls[-1]["headers"]


def test_a_card_that_has_moved_its_interface_does_not_get_what_was_saved(bare: Tieline, guarded: Guarded) -> None:
    bearer, moved = guarded.agent("bearer"), guarded.agent("moved")
    environment = {"TIELINE_SECRET": SECRET}
    assert bare("auth", "login", "-a", bearer.url, env=environment).code == 0
    refused = bare("send", "hi", "-a", moved.url, "--transport", "JSONRPC", "-o", "json")
    other = guarded.url.replace("127.0.0.1", "localhost")
    assert (refused.code, refused.error["code"]) == (1, "A2ACLI_ERR_CARD_INVALID")
    assert refused.error["message"] == (
        f"The card of {guarded.url} sends you to {other}: credentials do not go to another origin."
    )
    assert f"--trust {other}" in refused.error["hint"]
    assert moved.calls == []
    trusted = bare("send", "hi", "-a", moved.url, "--transport", "JSONRPC", "--trust", other)
    assert trusted.code == 0, trusted.err
    assert f"--trust {other}" in trusted.fields["Next"]
    assert bare("send", "hi", "-a", moved.url, "--transport", "JSONRPC", env={"A2ACLI_TRUST": other}).code == 0


def test_a_card_in_a_file_does_not_take_what_was_saved_to_another_of_its_interfaces(
    bare: Tieline, guarded: Guarded
) -> None:
    agent = guarded.agent("bearer")
    assert bare("auth", "login", "-a", agent.url, env={"TIELINE_SECRET": SECRET}).code == 0
    card = json.loads(bare("card", "get", "-o", "json", "-a", agent.url).out)
    home = card["supportedInterfaces"][0]
    away = {**home, "url": home["url"].replace("127.0.0.1", "localhost").replace("bearer", "open")}
    card["supportedInterfaces"] = [away, home]
    (bare.folder / "card.json").write_text(json.dumps(card))
    sent = bare("send", "hi", "-a", "card.json")
    assert sent.code == 0, sent.err
    assert {call["headers"]["host"].partition(":")[0] for call in agent.calls} == {"127.0.0.1"}


def test_a_redirect_takes_nothing_that_was_saved_along(bare: Tieline, guarded: Guarded) -> None:
    agent = guarded.agent("moved-on")
    assert bare("auth", "login", "-a", agent.url, env={"TIELINE_SECRET": SECRET}).code == 0
    for binding in ("JSONRPC", "HTTP+JSON"):
        refused = bare("send", "hi", "-a", agent.url, "--transport", binding, "-o", "json")
        assert "another origin" in refused.error["message"]
    assert {record["headers"]["host"].partition(":")[0] for record in agent.records} == {"127.0.0.1"}


def test_a_flag_or_variable_goes_before_what_was_saved(bare: Tieline, guarded: Guarded) -> None:
    agent = guarded.agent("bearer")
    assert bare("auth", "login", "-a", agent.url, env={"TIELINE_SECRET": "of the past".replace(" ", "-")}).code == 0
    assert bare("send", "hi", "-a", agent.url).code == 4
    assert bare("send", "hi", "--bearer", SECRET, "-a", agent.url).code == 0
    assert bare("send", "hi", "-a", agent.url, env={"A2ACLI_BEARER": SECRET}).code == 0


def test_what_was_saved_and_is_refused_is_told_with_the_way_back(bare: Tieline, guarded: Guarded) -> None:
    agent = guarded.agent("header-key")
    assert bare("auth", "login", "-a", agent.url, env={"TIELINE_SECRET": "stale-key"}).code == 0
    refused = bare("send", "hi", "-a", agent.url, "-o", "json")
    assert (refused.code, refused.error["code"]) == (4, "A2ACLI_ERR_AUTH_FAILED")
    assert f"Sign in again: tieline auth login -a {agent.url}" in refused.error["hint"]
    assert "stale-key" not in refused.out + refused.err


# --- where it is kept -------------------------------------------------------------------------------------------------


def test_the_file_and_its_folder_are_their_owners_alone(bare: Tieline, guarded: Guarded) -> None:
    before = os.umask(0)
    try:
        agent = guarded.agent("header-key")
        assert bare("auth", "login", "-a", agent.url, env={"TIELINE_SECRET": SECRET}).code == 0
    finally:
        os.umask(before)
    file = file_of(bare)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(each.stat().st_mode) == 0o600 for each in file.parent.iterdir())
    assert [each.suffix for each in file.parent.iterdir() if each != file] == [".lock"]


@pytest.mark.parametrize("fault", ["readable", "broken", "newer"])
def test_a_file_that_is_not_as_it_was_left_is_not_used_and_the_error_says_what_to_do(
    bare: Tieline, guarded: Guarded, fault: str
) -> None:
    agent = guarded.agent("header-key")
    assert bare("auth", "login", "-a", agent.url, env={"TIELINE_SECRET": SECRET}).code == 0
    file = file_of(bare)
    if fault == "readable":
        file.chmod(0o640)
    else:
        file.write_text('{"version": 99}' if fault == "newer" else f'{{"agents": "{SECRET}"')
    for words in (("send", "hi", "-a", agent.url), ("auth", "status"), ("auth", "logout", "-a", agent.url)):
        refused = bare(*words, "-o", "json")
        assert (refused.code, refused.error["code"]) == (1, "TIELINE_ERR_CREDENTIALS")
        assert str(file) in refused.error["message"]
        assert SECRET not in refused.out + refused.err
    if fault == "readable":
        assert f"chmod 600 {file}" in refused.error["message"]


def test_a_pipe_in_the_place_of_the_file_is_not_waited_for(bare: Tieline, guarded: Guarded) -> None:
    file = file_of(bare)
    file.parent.mkdir(parents=True, mode=0o700)
    os.mkfifo(file, 0o600)
    for words in (("send", "hi", "-a", guarded.agent("header-key").url), ("auth", "status")):
        refused = bare(*words)
        assert (refused.code, f"{file} is no file: remove it" in refused.err) == (1, True)


def test_a_folder_that_others_can_write_to_is_not_used(bare: Tieline, guarded: Guarded) -> None:
    folder = file_of(bare).parent
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    refused = bare("auth", "login", "-a", guarded.agent("header-key").url, env={"TIELINE_SECRET": SECRET})
    assert refused.code == 1
    assert f"chmod 700 {folder}" in refused.err


def in_keyring(tieline: Tieline) -> dict[str, str]:
    tieline.env = {
        "PYTHON_KEYRING_BACKEND": "tests.cli.file_keyring.FileKeyring",
        "PYTHONPATH": str(ROOT),
        "TIELINE_TEST_KEYRING": str(tieline.home / "keyring.json"),
    }
    return tieline.env


def test_a_keyring_is_used_where_there_is_one_and_the_file_only_says_so(bare: Tieline, guarded: Guarded) -> None:
    in_keyring(bare)
    agent = guarded.agent("header-key")
    signed = bare("auth", "login", "-a", agent.url, env={"TIELINE_SECRET": SECRET})
    assert signed.code == 0, signed.err
    assert signed.fields["Kept in"] == "Test keyring"
    assert json.loads(file_of(bare).read_text())["agents"] == {guarded.url: {"keyring": True}}
    assert bare("send", "hi", "-a", agent.url).code == 0
    assert bare("auth", "status").fields["Kept in"] == "Test keyring"
    (bare.home / "locked").touch()
    refused = bare("send", "hi", "-a", agent.url, "-o", "json")
    assert refused.error["code"] == "TIELINE_ERR_CREDENTIALS"
    assert "KeyringLocked" in refused.error["message"]
    (bare.home / "locked").unlink()
    assert bare("auth", "logout", "-a", agent.url).code == 0
    assert json.loads((bare.home / "keyring.json").read_text()) == {}
    assert json.loads(file_of(bare).read_text())["agents"] == {}


def test_what_a_keyring_does_not_take_is_kept_in_the_file(bare: Tieline, guarded: Guarded) -> None:
    in_keyring(bare)
    agent = guarded.agent("header-key")
    assert bare("auth", "login", "-a", agent.url, env={"TIELINE_SECRET": SECRET}).code == 0
    signed = bare("auth", "login", "-a", agent.url, env={"TIELINE_SECRET": "long" * 2000})
    assert signed.fields["Kept in"] == str(file_of(bare))
    assert json.loads((bare.home / "keyring.json").read_text()) == {}, "what it had before is not left behind"


def test_commands_without_saved_credentials_load_no_keyring_and_make_no_file(bare: Tieline, guarded: Guarded) -> None:
    bare.env = {"PYTHON_KEYRING_BACKEND": "no.such.backend"}
    assert bare("send", "hi", "-a", guarded.agent("open").url).code == 0
    assert bare("auth", "status").code == 0
    assert not file_of(bare).parent.exists()


def test_processes_that_renew_at_once_use_a_refresh_token_once(
    bare: Tieline, guarded: Guarded, provider: OidcProvider
) -> None:
    provider.configure(device_interval_s=0)
    agent = guarded.agent("device")
    login = bare.start("auth", "login", "-a", agent.url, "--client-id", "desktop", "--trust", provider.issuer)
    until(lambda: provider.decide(), "the device code")
    login.communicate(timeout=60)
    file = file_of(bare)
    kept = json.loads(file.read_text())
    (entry,) = kept["agents"].values()
    entry["agent"]["logins"][0]["tokens"]["expires_at"] = 0.0
    file.write_text(json.dumps(kept))
    bare.launcher = None
    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(lambda _: bare("task", "list", "-a", agent.url), range(4)))
    assert [run.code for run in runs] == [0] * 4, [run.err for run in runs]
    assert provider.grants().count("refresh_token") == 1


# --- status and logout ------------------------------------------------------------------------------------------------


def test_status_shows_who_is_signed_in_where_and_until_when(
    bare: Tieline, guarded: Guarded, provider: OidcProvider
) -> None:
    nobody = bare("auth", "status", "-o", "json")
    assert (nobody.code, nobody.json) == (0, {"agents": []})
    assert "You are not signed in." in nobody.err
    agent = guarded.agent("machine")
    assert by_machine(bare, provider, agent).code == 0
    (told,) = bare("auth", "status", "-o", "json").json["agents"]
    (login,) = told.pop("logins")
    assert told == {"origin": guarded.url, "name": "Guarded machine", "keptIn": str(file_of(bare))}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", login.pop("expiresAt"))
    expected: dict[str, Any] = {"scheme": "machine", "kind": "client-credentials", "user": None}
    assert login == {**expected, "clientId": "machine", "scopes": ["call"], "renewable": True}
    assert bare("auth", "status", "-a", agent.url).fields["Origin"] == guarded.url
    other = bare("auth", "status", "-a", "https://other.example", "-o", "json")
    assert other.json == {"agents": []}
    for run in (bare("auth", "status"), bare("auth", "status", "--debug", "--verbose")):
        assert token_of(bare) not in run.out + run.err


def test_logout_takes_tokens_back_and_forgets_them(bare: Tieline, guarded: Guarded, provider: OidcProvider) -> None:
    agent = guarded.agent("machine")
    assert by_machine(bare, provider, agent).code == 0
    token = token_of(bare)
    assert provider.introspect(token)["active"]
    out = bare("auth", "logout", "-a", agent.url, "-o", "json")
    assert out.json == {"agents": [{"origin": guarded.url, "removed": True, "revoked": 1}]}
    assert not provider.introspect(token)["active"]
    assert token not in file_of(bare).read_text()
    assert bare("send", "hi", "-a", agent.url).code == 4
    again = bare("auth", "logout", "-a", agent.url)
    assert again.code == 0
    assert "You were not signed in." in again.err
    unnamed = bare("auth", "logout", "-o", "json")
    assert unnamed.error["code"] == "A2ACLI_ERR_USAGE"


def test_logout_forgets_also_what_cannot_be_taken_back(bare: Tieline, guarded: Guarded, provider: OidcProvider) -> None:
    provider.configure(metadata={"revocation_endpoint": "http://127.0.0.1:1/revoke"})
    agent = guarded.agent("machine")
    assert by_machine(bare, provider, agent).code == 0
    out = bare("auth", "logout", "-a", agent.url)
    assert out.code == 0
    assert "A token could not be taken back; it is good until it expires." in out.err
    assert bare("auth", "status", "-o", "json").json == {"agents": []}


PROGRAM = """
import asyncio, sys, tieline

async def main():
    credentials = tieline.saved_credentials(sys.argv[1])
    print(credentials)
    async with tieline.connect(sys.argv[1], credentials=credentials) as peer:
        print(await peer.ask("from python"))

asyncio.run(main())
"""


def test_a_program_uses_what_the_command_has_saved(bare: Tieline, guarded: Guarded, provider: OidcProvider) -> None:
    agent = guarded.agent("machine")
    assert by_machine(bare, provider, agent).code == 0
    for _ in range(2):
        command = [sys.executable, "-c", PROGRAM, agent.url]
        environment = bare._environment(None)
        run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert "from python" in run.stdout, run.stderr
        assert "machine-secret" not in run.stdout
        assert token_of(bare) not in run.stdout
        provider.revoke(token_of(bare))
    assert bare("send", "hi", "-a", agent.url).code == 0
    assert len(provider.grants()) == 3, "what one process has renewed the next one uses"


# --- client certificates ----------------------------------------------------------------------------------------------


def test_a_client_certificate_is_shown_by_option_and_by_variable(
    bare: Tieline, tmp_path: Path, provider: OidcProvider
) -> None:
    authority = Authority(tmp_path, "authority")
    certificate, key = authority.certificate("client", "open sesame")
    with guarded_running(tmp_path, provider.issuer, *authority.certificate("server"), authority.path) as mutual:
        agent = mutual.agent("mtls")
        trusting = {"SSL_CERT_FILE": str(authority.path)}
        password = {"TIELINE_CLIENT_KEY_PASSWORD": "open sesame"}
        words = ("send", "hi", "--transport", "JSONRPC", "-a", agent.url)
        sent = bare(*words, "--client-cert", str(certificate), "--client-key", str(key), env={**trusting, **password})
        assert sent.code == 0, sent.err
        assert f"--client-cert {certificate} --client-key {key}" in sent.fields["Next"]
        named = {"A2ACLI_CLIENT_CERT": str(certificate), "A2ACLI_CLIENT_KEY": str(key)}
        assert bare(*words, env={**trusting, **password, **named}).code == 0
        assert bare(*words, env=trusting).code == 3
        locked = bare(*words, "-o", "json", env={**trusting, **named})
        assert (locked.code, locked.error["code"]) == (2, "A2ACLI_ERR_USAGE")
        assert "TIELINE_CLIENT_KEY_PASSWORD" in locked.error["hint"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--client-cert", "none.pem"), "--client-cert: No such file or directory: none.pem"),
        (("--client-key", "none.pem"), "--client-key: a key is of no use without --client-cert"),
        (("--client-cert", "text.pem"), "cannot be used"),
        (("--trust", "other.example"), "--trust: 'other.example' is not an origin"),
    ],
)
def test_what_is_no_certificate_or_origin_is_said_before_anything_is_sent(
    bare: Tieline, guarded: Guarded, words: tuple[str, ...], told: str
) -> None:
    (bare.folder / "text.pem").write_text("hello")
    agent = guarded.agent("open")
    refused = bare("send", "hi", "-a", agent.url, *words)
    assert refused.code == 2
    assert told in refused.err
    assert agent.records == []


# --- in the middle of a task ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("binding", BINDINGS)
def test_an_agents_need_of_an_authorization_is_a_question_that_can_be_answered(
    bare: Tieline, guarded: Guarded, binding: str
) -> None:
    agent = guarded.agent("bearer")
    assert bare("auth", "login", "-a", agent.url, env={"TIELINE_SECRET": SECRET}).code == 0
    asked = bare("send", "authorize", "--transport", binding, "-a", agent.url)
    assert asked.code == 0, asked.err
    assert asked.fields["State"] == "TASK_STATE_AUTH_REQUIRED"
    assert "Sign in at https://files.example" in asked.out
    assert "files.read" in asked.out
    following = asked.fields["Next"].split()
    assert following[:4] == ["tieline", "send", "--task-id", asked.fields["Task ID"]]
    assert asked.fields["Afterwards"].startswith(f"tieline task get {asked.fields['Task ID']} --wait")
    answered = bare(*following[1:-1], "it is done")
    assert answered.code == 0, answered.err
    assert answered.fields["State"] == "TASK_STATE_COMPLETED"
    assert answered.fields["Task ID"] == asked.fields["Task ID"]
