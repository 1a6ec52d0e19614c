"""`tieline push listen`, as a process."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from joserfc import jwk

from tests.cli.running import LIMIT_S, Tieline
from tieline.engine.signer import Signer

EVENT = {"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}}
SAID = {"role": "ROLE_AGENT", "messageId": "m", "parts": [{"text": "two\nlines \x1b[31m"}]}


@pytest.fixture
def command(tmp_path: Path) -> Tieline:
    home, folder = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    folder.mkdir()
    return Tieline(home, folder, None)


class Listening(NamedTuple):
    """A listener at work."""

    process: subprocess.Popen[bytes]
    url: str

    def post(self, body: Any = EVENT, **headers: str) -> int:
        given = {
            "Content-Type": "application/json",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        try:
            with urlopen(Request(self.url, json.dumps(body).encode(), given), timeout=LIMIT_S) as response:
                return int(response.status)
        except HTTPError as error:
            return error.code

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode()


@contextlib.contextmanager
def listening(command: Tieline, *words: str, env: Mapping[str, str] | None = None) -> Iterator[Listening]:
    process = command.start("push", "listen", "--port", "0", *words, env=env)
    try:
        assert process.stderr is not None
        while not (said := process.stderr.readline().decode()).startswith("Listening at "):
            assert said, "it has ended"
        yield Listening(process, said.removeprefix("Listening at ").strip())
    finally:
        process.kill()
        process.communicate()


def secret(command: Tieline, name: str, text: str) -> str:
    path = command.folder / name
    path.touch(mode=0o600)
    path.write_text(text + "\n")
    return str(path)


def test_each_notification_is_a_line_before_its_sender_hears_that_it_was_taken(command: Tieline) -> None:
    with listening(command) as at:
        assert at.url.startswith("http://127.0.0.1:")
        assert at.post() == 200
        assert at.line() == "Status: t TASK_STATE_WORKING\n"
        said = {"statusUpdate": {**EVENT["statusUpdate"], "status": {"state": "TASK_STATE_FAILED", "message": SAID}}}
        assert at.post(said) == 200
        assert at.line() == "Status: t TASK_STATE_FAILED: two lines \\x1b[31m\n"
        artifact = {"artifactId": "a", "name": "out.csv", "parts": [{"text": "x,y"}]}
        assert at.post({"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": artifact}}) == 200
        assert at.line() == "Artifact: t out.csv: x,y\n"
        assert at.post({"kind": "task", "id": "old", "contextId": "c", "status": {"state": "completed"}}) == 200
        assert at.line() == "Task: old TASK_STATE_COMPLETED\n"
        assert at.post({"message": SAID}) == 200
        assert at.line() == "Message: (no task) two lines \\x1b[31m\n"


def test_json_is_one_event_of_1_0_a_line_whatever_dialect_came(command: Tieline) -> None:
    with listening(command, "-o", "json") as at:
        assert at.post() == 200
        assert json.loads(at.line()) == EVENT
        assert at.post({"id": "old", "sessionId": "c", "status": {"state": "completed"}}) == 200
        assert json.loads(at.line())["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


def test_secrets_come_from_files_variables_or_standard_input_and_are_asked_of_senders(command: Tieline) -> None:
    token, basic = secret(command, "token", "tok-1"), secret(command, "basic", "u:p")
    with listening(command, "--token-file", token, env={"TIELINE_PUSH_BEARER": "bear-1"}) as at:
        assert at.post() == 401
        assert at.post(X_A2A_Notification_Token="tok-1") == 401
        assert at.post(X_A2A_Notification_Token="tok-1", Authorization="Bearer bear-2") == 401
        assert at.post(X_A2A_Notification_Token="tok-1", Authorization="Bearer bear-1") == 200
    with listening(command, "--basic-file", basic) as at:
        assert at.post(Authorization="Basic dTpw") == 200
    ended = command("push", "listen", "--bearer-file", "-", "--token-file", "-")
    assert (ended.code, "Standard input holds one secret" in ended.err) == (2, True)


@contextlib.contextmanager
def published(document: dict[str, Any]) -> Iterator[str]:
    """A JWKS document at a URL of this machine."""

    class Keys(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Not a line of it."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Keys) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/.well-known/jwks.json"
        finally:
            server.shutdown()


def test_signatures_are_verified_with_the_keys_of_the_agent(command: Tieline) -> None:
    key = command.folder / "key.pem"
    key.write_bytes(jwk.generate_key("EC", "P-256").as_pem(private=True))
    signer = Signer.from_file(key, "https://agents.example")
    body = json.dumps(EVENT).encode()

    def signed(to: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {signer.sign(body, url=to, task_id='t', key='k')}"}

    with (
        published(signer.public_keys()) as url,
        listening(command, "--jwks", url, "--audience", "https://me.example") as at,
    ):
        assert at.post() == 401
        assert at.post(**signed("https://other.example/")) == 403
        assert at.post(**signed("https://me.example/hook")) == 200
        assert at.line() == "Status: t TASK_STATE_WORKING\n"


def test_on_this_machine_anybody_may_send_but_no_web_page_by_a_name_of_its_own(command: Tieline) -> None:
    with listening(command) as at:
        for host in ("evil.example", "evil.example:80", "localhost.evil.example", "[::2]:1", "[::1", "me@127.0.0.1"):
            assert at.post(Host=host) == 421, host
        for host in ("localhost:1", "LocalHost", "[::1]", "[::1]:8001", "127.0.0.1"):
            assert at.post(Host=host) == 200, host
        assert at.post(Content_Type="text/plain") == 415


def test_only_the_task_that_was_named_is_listened_to_and_the_count_ends_it(command: Tieline) -> None:
    with listening(command, "--task", "t", "--count", "2") as at:
        other = {"task": {"id": "other", "status": {"state": "TASK_STATE_WORKING"}}}
        assert [at.post(), at.post(other), at.post()] == [200, 403, 200]
        assert at.process.wait(LIMIT_S) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_the_normal_end(command: Tieline, number: signal.Signals) -> None:
    with listening(command) as at:
        at.process.send_signal(number)
        assert at.process.wait(LIMIT_S) == 0


def test_what_makes_no_sense_is_a_usage_error_and_a_taken_port_is_said(command: Tieline) -> None:
    empty = secret(command, "empty", "")
    for words, said in (
        (("--host", "0.0.0.0"), "can be reached by other machines"),
        (("--anyone", "--token-file", secret(command, "t", "tok")), "--anyone asks senders for nothing"),
        (("--token-file", "no-such"), "cannot be read"),
        (("--token-file", empty), "is empty"),
        (("--basic-file", secret(command, "b", "nocolon")), "USER:PASSWORD"),
        (("--audience", "https://me.example"), "give the sender's jwks"),
        (("--jwks", "http://agents.example/jwks.json"), "fetched by https"),
    ):
        ended = command("push", "listen", "--port", "0", *words)
        assert ended.code == 2, ended
        assert said in ended.err
        assert "Traceback" not in ended.err
    with listening(command) as at:
        port = at.url.rstrip("/").rpartition(":")[2]
        taken = command("push", "listen", "--port", port)
        assert taken.code == 1
        assert "Code: TIELINE_ERR_CANNOT_SERVE" in taken.err


def test_file_with_a_secret_that_others_can_read_is_warned_of_and_no_secret_is_printed(command: Tieline) -> None:
    path = command.folder / "open"
    path.write_text("tok-secret")
    path.chmod(0o644)
    process = command.start("push", "listen", "--port", "0", "--token-file", str(path), "--debug", "--verbose")
    assert process.stderr is not None
    said = process.stderr.readline().decode()
    assert "others can read it: chmod 600" in said
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=LIMIT_S)
    assert b"tok-secret" not in out + err
