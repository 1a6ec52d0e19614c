"""Configuration: flag, environment, local file, global file, default; and `config show`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.running import Foreign, Tieline
from tieline.cli.settings import SETTINGS, Settings


def show(tieline: Tieline, *words: str, **environment: str) -> dict[str, tuple[str, str]]:
    """What `config show` says: value and source by name."""
    told = tieline("config", "show", "-o", "json", *words, env=environment)
    assert told.code == 0, told.err
    return {row["name"]: (row["value"], row["source"]) for row in told.json["settings"]}


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_the_nearest_source_wins_and_config_show_names_it(bare: Tieline) -> None:
    assert show(bare)["timeout"] == ("no limit", "default")
    global_file = write(bare.home / ".config/a2a-cli/.env", "A2ACLI_TIMEOUT=4s\nA2ACLI_VERBOSE=yes\n")
    assert show(bare)["timeout"] == ("4s", f"A2ACLI_TIMEOUT in {global_file}")
    local_file = write(bare.folder / ".env", "A2ACLI_TIMEOUT=3s\nOTHER=1\n")
    assert show(bare)["timeout"] == ("3s", f"A2ACLI_TIMEOUT in {local_file}")
    assert show(bare)["verbose"] == ("true", f"A2ACLI_VERBOSE in {global_file}")
    assert show(bare, A2ACLI_TIMEOUT="2s")["timeout"] == ("2s", "A2ACLI_TIMEOUT")
    assert show(bare, "--timeout", "1s", A2ACLI_TIMEOUT="2s")["timeout"] == ("1s", "--timeout")
    given = write(bare.folder / "agent.env", "A2ACLI_TIMEOUT=5s\n")
    assert show(bare, "--config", "agent.env")["timeout"][0] == "5s"
    assert show(bare, A2ACLI_CONFIG=str(given))["timeout"][0] == "5s"
    assert show(bare, "--no-verbose")["verbose"] == ("false", "--verbose")


def test_the_local_file_is_found_from_a_folder_below(bare: Tieline) -> None:
    write(bare.folder / ".env", "A2ACLI_TIMEOUT=3s\n")
    below = bare.folder / "a" / "b"
    below.mkdir(parents=True)
    deeper = replace(bare, folder=below)
    assert show(deeper)["timeout"][0] == "3s"
    write(below.parent / ".env", "A2ACLI_POLL_INTERVAL=7s\n")
    assert show(deeper)["timeout"][0] == "no limit", "the nearest file, not all of them"
    assert show(deeper)["poll-interval"][0] == "7s"


def test_an_agents_own_file_brings_its_address_and_credentials(bare: Tieline, foreign: Foreign) -> None:
    agent = foreign.agent("bearer")
    write(bare.folder / "agent.env", f"A2ACLI_AGENT_CARD={agent.ref}\nA2ACLI_BEARER=open-sesame\n")
    sent = bare("send", "hi", "--config", "agent.env")
    assert sent.code == 0, sent.err
    assert sent.err.count("Warning") == 0
    assert "--config agent.env" in sent.fields["Next"]


@pytest.mark.parametrize("name", sorted(set(SETTINGS) - {"stream", "config", "trust"}))
def test_every_option_can_come_from_the_environment_and_from_a_file(name: str, tmp_path: Path) -> None:
    values = {
        "a2a-version": "1.0",
        "transport": "JSONRPC",
        "svc-param": "x:1",
        "insecure": "on",
        "require-signed-card": "on",
        "timeout": "1s",
        "poll-interval": "1s",
        "wait": "1",
        "async": "true",
        "metadata": '{"a": 1}',
        "output": "json",
        "verbose": "yes",
        "debug": "TRUE",
    }
    variable = "A2ACLI_" + name.upper().replace("-", "_")
    value = values.get(name, "something")
    home, folder = tmp_path / "home", tmp_path / "work"
    folder.mkdir()
    by_environment = Settings({}, {variable: value}, folder, home).resolve(name)
    assert by_environment.rank == 1
    assert Settings({}, {variable: ""}, folder, home).resolve(name).rank == 4, "an empty variable is none"
    write(folder / ".env", f"{variable}='{value}'\n")
    by_file = Settings({}, {}, folder, home).resolve(name)
    assert by_file.rank == 2
    assert by_file.value == by_environment.value


def test_whom_to_trust_with_credentials_is_no_matter_of_a_file(tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "work"
    folder.mkdir()
    origin = "https://other.example"
    assert Settings({}, {"A2ACLI_TRUST": f"{origin}:443, {origin}"}, folder, home)["trust"] == (origin,)
    write(folder / ".env", f"A2ACLI_TRUST={origin}\n")
    assert Settings({}, {}, folder, home)["trust"] == ()


def test_stream_comes_from_the_command_line_alone(bare: Tieline) -> None:
    write(bare.folder / ".env", "A2ACLI_STREAM=true\nA2ACLI_HELP=true\nA2ACLI_VERSION=true\n")
    told = bare("config", "show", env={"A2ACLI_STREAM": "true"})
    assert told.fields["stream"] == "false [default]"
    assert "A2ACLI_STREAM is no setting that a file can have" in told.err


def test_a_value_that_makes_no_sense_is_told_with_its_place(bare: Tieline) -> None:
    path = write(bare.folder / ".env", "A2ACLI_TIMEOUT=soon\n")
    failed = bare("send", "hi", "-o", "json", "-a", "http://127.0.0.1:9")
    assert failed.code == 2
    assert failed.error["message"].startswith(f"A2ACLI_TIMEOUT in {path}: 'soon' is not a duration")
    shown = bare("config", "show")
    assert shown.code == 0, "this is the command to find it with"
    assert f"timeout: (invalid) [A2ACLI_TIMEOUT in {path}]" in shown.out


def test_config_show_shows_no_secret_and_changes_nothing(bare: Tieline) -> None:
    path = write(bare.folder / ".env", "A2ACLI_BEARER=open-sesame\nA2ACLI_SVC_PARAM=x-key:open-sesame\n")
    before = path.read_bytes()
    for words in ((), ("-o", "json"), ("--debug", "--verbose")):
        told = bare("config", "show", *words, env={"A2ACLI_API_KEY": "open-sesame"})
        assert told.code == 0
        assert "open-sesame" not in told.out + told.err
        assert "[redacted]" in told.out
    assert path.read_bytes() == before
    assert [found for found in bare.home.rglob("*") if found.is_file()] == []


def test_credentials_that_others_can_read_are_warned_of(bare: Tieline, foreign: Foreign) -> None:
    agent = foreign.agent("bearer")
    path = write(bare.folder / ".env", f"A2ACLI_AGENT_CARD={agent.ref}\nA2ACLI_BEARER=open-sesame\n")
    path.chmod(0o644)
    for words in (("send", "hi"), ("config", "show")):
        run = bare(*words)
        assert run.code == 0
        assert f"{path} holds credentials and others can read it: chmod 600" in run.err


def test_a_file_cannot_carry_off_other_variables(bare: Tieline, foreign: Foreign) -> None:
    agent = foreign.agent("message")
    write(bare.folder / ".env", 'A2ACLI_METADATA=\'{"x": "${HOME}"}\'\n')
    assert bare("send", "hi", "-a", agent.ref).code == 0
    assert agent.calls[0]["params"]["metadata"] == {"x": "${HOME}"}


def test_a_file_that_somebody_else_put_into_a_shared_folder_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    write(shared / ".env", "A2ACLI_TIMEOUT=3s\n")
    shared.chmod(0o777)
    assert Settings({}, {}, shared, tmp_path)["timeout"] == 3.0
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    assert Settings({}, {}, shared, tmp_path)["timeout"] is None


def test_options_stand_before_a_command_or_behind_it(tieline: Tieline) -> None:
    agent = str(tieline.agent)
    tieline.agent = None
    for words in (
        ("-a", agent, "-o", "json", "task", "list", "--page-size", "1"),
        ("task", "-a", agent, "list", "-o", "json", "--page-size", "1"),
        ("task", "list", "--page-size", "1", "-a", agent, "-o", "json"),
    ):
        assert "totalSize" in tieline(*words).json, words
    assert "totalSize" in tieline("-o", "text", "task", "list", "-a", agent, "-o", "json").json, "the nearer one holds"
