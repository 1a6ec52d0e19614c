"""`serve`: the command in front of the server."""

from __future__ import annotations

import json
import math
import re
import signal
from pathlib import Path
from subprocess import Popen

import pytest

from tests.cli.running import Tieline
from tests.interop.processes import free_port
from tieline.cli.guarding import push_of
from tieline.cli.serve import serve

AGENTS = Path(__file__).with_name("agents.py")

HELLO = """
from tieline import Turn, agent, app

@agent(name="Hello there!", description="Greets.")
async def hello(turn: Turn):
    yield f"Hello, {turn.text}!"

@agent(name="Other", description="Another one.")
async def other(turn: Turn):
    return turn.reply("other")

made = app({"hello": hello})
both = {"a": hello, "b": other}
words = "no agent"
"""


def read_until(process: Popen[bytes], last: str) -> str:
    """stderr of a server up to the line that begins with `last`; the end of its output ends it, too."""
    assert process.stderr is not None
    told = ""
    for line in process.stderr:
        told += line.decode()
        if line.decode().startswith(last):
            break
    return told


def stop(process: Popen[bytes], number: int = signal.SIGTERM) -> tuple[str, str]:
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    return out.decode(), err.decode()


@pytest.fixture
def hello(bare: Tieline) -> Tieline:
    (bare.folder / "hello.py").write_text(HELLO)
    return bare


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_tells_its_urls_on_stderr_keeps_stdout_clean_and_ends_on_a_signal(hello: Tieline, number: int) -> None:
    port = free_port()
    process = hello.start("serve", "hello.py:hello", "--port", str(port))
    told = read_until(process, "Ctrl-C")
    url = f"http://127.0.0.1:{port}"
    store = next((hello.home / ".local/state/tieline").glob("hello-there-*.db"))
    assert told.splitlines() == [
        f"Serving {url}",
        f"  card   {url}/.well-known/agent-card.json",
        f"  tasks  sqlite:{store}",
        f'Try:  tieline send -a {url} "Hello"',
        "Ctrl-C stops it.",
    ]
    assert hello("send", "Ada", "-a", url).block("Text") == "Hello, Ada!"
    out, err = stop(process, number)
    assert (process.returncode, out) == (0, "")
    assert err.splitlines() == ["Stopping.", "Stopped."]
    assert store.exists()


def test_tasks_are_there_again_after_a_restart(hello: Tieline) -> None:
    port = str(free_port())
    words = ("serve", "hello.py:hello", "--port", port, "--store", "sqlite:kept/tasks.db")
    process = hello.start(*words)
    read_until(process, "Ctrl-C")
    task_id = hello("send", "Ada", "-a", f"127.0.0.1:{port}").fields["Task ID"]
    stop(process)
    process = hello.start(*words)
    read_until(process, "Ctrl-C")
    assert hello("task", "get", task_id, "-a", f"127.0.0.1:{port}").block("Text") == "Hello, Ada!"
    stop(process)
    assert (hello.folder / "kept/tasks.db").exists()


@pytest.mark.parametrize("target", ["hello.py", "hello.py:both", "hello:both", "hello.py:made"])
def test_several_agents_are_each_below_their_name(hello: Tieline, target: str) -> None:
    port = free_port()
    process = hello.start("serve", target, "--port", str(port))
    told = read_until(process, "Ctrl-C")
    names = {"hello.py": ["hello", "other"], "hello.py:made": ["hello"]}.get(target, ["a", "b"])
    for name in names:
        assert f"Serving http://127.0.0.1:{port}/{name}\n" in told
        assert hello("card", "get", "-a", f"http://127.0.0.1:{port}/{name}").code == 0
    stop(process)


def test_options_reach_the_server(hello: Tieline) -> None:
    port = free_port()
    words = (
        *("serve", "hello.py:hello", "--port", str(port), "--store", "memory", "--strict", "--max-body", "2k"),
        *("--public-url", "https://agents.example/hello", "--ttl", "1h", "--drain", "0", "--concurrent-runs", "7"),
        *("--run-seconds", "30s", "--allow-host", "agents.example", "--cors-origin", "https://page.example"),
    )
    process = hello.start(*words)
    told = read_until(process, "Ctrl-C")
    assert "Serving https://agents.example/hello\n" in told
    assert "  tasks  memory\n" in told
    card = hello("card", "get", "-o", "json", "-a", f"127.0.0.1:{port}").json
    assert {interface["url"].rstrip("/") for interface in card["supportedInterfaces"]} == {
        "https://agents.example/hello"
    }
    local = {**card, "supportedInterfaces": [{**card["supportedInterfaces"][0], "url": f"http://127.0.0.1:{port}/"}]}
    (hello.folder / "local.json").write_text(json.dumps(local))
    assert hello("send", "Ada", "-a", "local.json").code == 0
    too_large = hello("send", "x" * 3000, "-o", "json", "-a", "local.json")
    assert too_large.error["code"] == "InvalidRequestError"
    assert "larger than 2048 bytes" in too_large.error["message"]
    stop(process)


def test_agents_at_work_may_finish_within_the_drain(hello: Tieline) -> None:
    port = free_port()
    process = hello.start("serve", f"{AGENTS}:tester", "--port", str(port), "--store", "memory", "--drain", "200ms")
    read_until(process, "Ctrl-C")
    assert hello("send", "hold drain", "--async", "-a", f"127.0.0.1:{port}").code == 0
    _, err = stop(process)
    assert err.splitlines()[0] == (
        "Stopping: 1 agent is at work and may finish within 0.2 s. Ctrl-C again stops at once."
    )
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("missing.py",), "There is no file missing.py."),
        (("no_such_module:agent",), "There is no file or module 'no_such_module'."),
        (("hello.py:nothing",), "hello.py has no 'nothing'. Its agents: hello, other."),
        (("hello.py:words",), "words in hello.py is a str, not an agent."),
        (("broken.py",), "broken.py, line 1: ZeroDivisionError: division by zero"),
        (("hello.py:hello", "--host", "203.0.113.7"), "cannot be listened on"),
    ],
)
def test_what_cannot_be_served_is_told_in_one_sentence(hello: Tieline, words: tuple[str, ...], says: str) -> None:
    (hello.folder / "broken.py").write_text("1 / 0\n")
    failed = hello("-o", "json", "serve", *words, "--store", "memory")
    assert failed.code == 1
    assert failed.error["code"] == "TIELINE_ERR_CANNOT_SERVE"
    assert says in failed.error["message"]
    assert "Traceback" not in failed.err


@pytest.mark.parametrize(
    "words",
    [
        ("hello.py:hello", "--store", "mysql://x"),
        ("hello.py:hello", "--store", "postgresql://user:pass/word@host/database"),
        ("hello.py:hello", "--port", "70000"),
        ("hello.py:hello", "--max-body", "much"),
        ("hello.py:hello", "--drain", "soon"),
        ("hello.py:hello", "--ttl", "0"),
        ("hello.py:hello", "--public-url", "agents.example"),
        ("hello.py:made", "--store", "memory"),
        (),
    ],
)
def test_options_that_make_no_sense_are_usage_errors(hello: Tieline, words: tuple[str, ...]) -> None:
    refused = hello("-o", "json", "serve", *words)
    assert refused.code == 2
    assert refused.error["code"] == "A2ACLI_ERR_USAGE"


def test_a_second_server_on_the_same_store_is_refused_with_a_reason(hello: Tieline) -> None:
    first = hello.start("serve", "hello.py:hello", "--port", "0")
    read_until(first, "Ctrl-C")
    second = hello("-o", "json", "serve", "hello.py:hello", "--port", "0")
    assert second.code == 1
    assert re.search(r"hello-there-[0-9a-f]{8}\.db is in use", second.error["message"])
    stop(first)


def test_two_projects_with_an_agent_of_one_name_do_not_share_their_tasks(hello: Tieline) -> None:
    other = hello.folder / "other"
    other.mkdir()
    (other / "hello.py").write_text(HELLO)
    servers = [hello.start("serve", name, "--port", "0") for name in ("hello.py", "other/hello.py")]
    for server in servers:
        read_until(server, "Ctrl-C")
    for server in servers:
        stop(server)
    assert len(list((hello.home / ".local/state/tieline").glob("*.db"))) == 2


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("nope.py",), "TIELINE_ERR_CANNOT_SERVE", "There is no file nope.py."),
        (("hello.py:hello", "--auth", "nothing"), "A2ACLI_ERR_USAGE", "--auth nothing: write bearer, "),
        (("hello.py:hello", "--metrics", "--auth", "bearer"), "A2ACLI_ERR_USAGE", "--metrics with --auth needs"),
        (("hello.py:hello", "--prot", "1"), "A2ACLI_ERR_USAGE", "No such option '--prot'."),
        (("hello.py:hello", "--port", "x"), "A2ACLI_ERR_USAGE", "Invalid value for '--port'"),
        (("hello.py", "--workers", "2", "--store", "memory"), "A2ACLI_ERR_USAGE", "--workers needs a store"),
    ],
)
def test_why_nothing_is_served_is_a_line_of_the_log_where_that_is_json(
    hello: Tieline, words: tuple[str, ...], code: str, message: str
) -> None:
    for log_format in (("--log-format", "json"), ("--log-format=json",)):
        failed = hello("serve", *words, *log_format)
        assert (failed.code, failed.out) == (1 if code == "TIELINE_ERR_CANNOT_SERVE" else 2, "")
        (line,) = failed.err.splitlines()
        event = json.loads(line)
        assert (event["level"], event["logger"], event["error"]) == ("ERROR", "tieline.serve", code)
        assert event["message"].startswith(message)


def test_why_nothing_is_served_is_told_as_the_result_where_that_is_asked_for(hello: Tieline) -> None:
    assert hello("serve", "nope.py").err.startswith("Error: There is no file nope.py.\n")
    told = hello("-o", "json", "serve", "nope.py", "--log-format", "json")
    assert told.error["code"] == "TIELINE_ERR_CANNOT_SERVE"


@pytest.mark.parametrize(("given", "seconds"), [((), 24 * 3600), (("1h",), 3600), (("none",), math.inf)])
def test_webhooks_are_given_up_when_it_was_said_and_never_where_none_was(
    given: tuple[str, ...], seconds: float
) -> None:
    words = ["hello.py", "--push", *(f"--push-give-up={text}" for text in given)]
    push = push_of(serve.make_context("serve", words).params, None)
    assert push is not None
    assert push.give_up_s == seconds


@pytest.mark.parametrize(
    "words", [("--push-host", "x.example"), ("--push-private",), ("--push-loopback",), ("--push-give-up", "24h")]
)
def test_options_that_say_more_of_push_are_refused_without_it(hello: Tieline, words: tuple[str, ...]) -> None:
    refused = hello("serve", "hello.py:hello", *words)
    assert refused.code == 2
    assert f"{words[0]} says more of --push" in refused.err


@pytest.mark.parametrize("option", ["--push-key", "--card-key"])
def test_key_that_others_can_read_is_warned_of(hello: Tieline, option: str) -> None:
    assert hello("card", "keygen", "key.pem").code == 0
    words = ("serve", "hello.py:hello", "--store", "memory", "--port", "0", "--push", option, "key.pem")
    for mode, warned in ((0o600, False), (0o640, True)):
        (hello.folder / "key.pem").chmod(mode)
        process = hello.start(*words, "--public-url", "https://agents.example")
        told = read_until(process, "Ctrl-C")
        stop(process)
        assert ("key.pem holds a private key and others can read it: chmod 600 key.pem" in told) is warned, told
