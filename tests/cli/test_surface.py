"""The tool's own surface: help, version, completion, and the canonical spelling of every option."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

from tests.cli.running import LIMIT_S, Tieline
from tieline import __version__

# CLI specification §7.2
CANONICAL = (
    *("--a2a-version", "-a", "--agent-card", "--async", "--bearer", "--api-key", "--config", "--context-id"),
    *("--debug", "-h", "--help", "--insecure", "--metadata", "-o", "--output", "--poll-interval", "--timeout"),
    *("--stream", "--svc-param", "--task-id", "--transport", "--verbose", "-v", "--version", "--wait"),
)
COMMANDS = (
    *("card verify", "card sign", "card keygen"),
    *("send", "card get", "task get", "task list", "task cancel", "task subscribe", "task download"),
    *("config show", "completion", "serve", "help"),
    *("push listen", "push set", "push get", "push list", "push delete"),
    *("push dead", "push replay"),
    *("task push-config create", "task push-config get", "task push-config list", "task push-config delete"),
    *("auth login", "auth status", "auth logout"),
    *("store migrate", "store stats", "store prune", "store export", "store import"),
)
TOP = ("send", "task", "push", "card", "auth", "init", "serve", "store", "token", "config", "completion", "help")
# §6.5, as --help tells them
DEFAULTS = {
    "transport": "default: the first of the card that is spoken here",
    "wait": "default: on for send, off for task get",
    "output": "default: text",
    "verbose": "default: off",
    "a2a-version": "default: the highest that both sides speak, never below 1.0",
    "insecure": "default: off",
}


@pytest.mark.parametrize("flag", ["-v", "--version"])
def test_version_prints_the_tools_version(bare: Tieline, flag: str) -> None:
    for words in ((flag,), ("--debug", flag)):
        told = bare(*words)
        assert (told.code, told.out, told.err) == (0, f"tieline {__version__}\n", "")


def test_version_is_told_without_loading_the_command_line() -> None:
    code = (
        "import sys; sys.argv = ['tieline', '--version']\n"
        "from tieline.cli.main import main\n"
        "main()\n"
        "heavy = {'click', 'aiohttp', 'uvicorn', 'msgspec', 'asyncio', 'dotenv'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_is_the_same_by_flag_and_by_the_help_command(bare: Tieline, command: str) -> None:
    words = command.split()
    for flag in ("-h", "--help"):
        told = bare(*words, flag)
        assert told.code == 0
        assert told.out.startswith(f"Usage: tieline {command}")
        assert told.err == ""
    assert bare("help", *words).out == told.out


def test_help_shows_all_commands_and_every_canonical_option(bare: Tieline) -> None:
    told = bare("--help").out
    assert bare("help").out == told
    for name in TOP:
        assert re.search(rf"^  {name} ", told, re.MULTILINE), name
    for flag in CANONICAL:
        assert re.search(rf"(?<![\w-]){flag}(?![\w-])", told), flag


def test_help_shows_the_defaults_and_what_holds_in_their_place(bare: Tieline) -> None:
    told = " ".join(bare("help").out.split())
    for name, default in DEFAULTS.items():
        about = told.partition(f"--{name}")[2]
        assert default in about.partition("]")[0], name
    configured = " ".join(
        bare("send", "--help", env={"A2ACLI_OUTPUT": "json", "A2ACLI_BEARER": "open-sesame"}).out.split()
    )
    assert "default: text; now json, from A2ACLI_OUTPUT" in configured
    assert "now [redacted], from A2ACLI_BEARER" in configured
    assert "open-sesame" not in configured


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(bare: Tieline, shell: str) -> None:
    told = bare("completion", shell)
    assert told.code == 0
    assert "_TIELINE_COMPLETE" in told.out
    interpreter = shutil.which(shell)
    if interpreter is not None:
        check = subprocess.run(
            [interpreter, "-n"], input=told.out, text=True, capture_output=True, timeout=LIMIT_S, check=False
        )
        assert check.returncode == 0, check.stderr


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("tieline ", set(TOP)),
        ("tieline task ", {"get", "list", "cancel", "subscribe", "download", "push-config"}),
        ("tieline push ", {"listen", "set", "get", "list", "delete", "dead", "replay"}),
        ("tieline card ", {"get", "verify", "sign", "keygen"}),
        ("tieline auth ", {"login", "status", "logout"}),
        ("tieline store ", {"migrate", "stats", "prune", "export", "import"}),
        ("tieline task get --wa", {"--wait", "--watch"}),
        (
            "tieline send --no-",
            {"--no-wait", "--no-insecure", "--no-require-signed-card", "--no-verbose", "--no-debug"},
        ),
    ],
)
def test_completion_knows_commands_and_options(bare: Tieline, typed: str, expected: set[str]) -> None:
    words = typed.split(" ")
    told = bare(env={"_TIELINE_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)})
    assert told.code == 0, told.err
    assert {line.partition(",")[2] for line in told.out.splitlines()} == expected
