"""`push set | get | list | delete`, and the same as `task push-config`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.running import Foreign, Result, Tieline
from tests.push.official import official_server

URL = "http://127.0.0.1:9/hook"
HERE = ("-a",)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with official_server(tmp_path_factory.mktemp("official")) as port:
        yield port


@pytest.fixture
def asking(bare: Tieline, port: int) -> Tieline:
    """The command, with the official server as its agent."""
    bare.agent = f"127.0.0.1:{port}"
    return bare


def begun(command: Tieline) -> str:
    sent = command("send", "go", "-o", "json")
    assert sent.code == 0, sent.err
    return str(sent.json["task"]["id"])


def secret(command: Tieline, name: str, text: str) -> str:
    path = command.folder / name
    path.touch(mode=0o600)
    path.write_text(text + "\n")
    return str(path)


@pytest.mark.parametrize("transport", ["JSONRPC", "HTTP+JSON", "GRPC"])
@pytest.mark.parametrize(("group", "create"), [(("push",), "set"), (("task", "push-config"), "create")])
def test_webhook_is_set_shown_listed_and_deleted(
    asking: Tieline, transport: str, group: tuple[str, ...], create: str
) -> None:
    def run(*words: str) -> Result:
        told = asking(*group, *words, "--transport", transport)
        assert told.code == 0, told.err
        return told

    task_id = begun(asking)
    token, bearer = secret(asking, "token", "tok-secret"), secret(asking, "bearer", "bear-secret")
    given = ("--url", URL, "--id", "c1", "--token-file", token, "--bearer-file", bearer)
    fields = run(create, "--task", task_id, *given).fields
    assert fields == {
        "Task ID": task_id,
        "Webhook ID": "c1",
        "URL": URL,
        "Token": "[redacted]",
        "Authentication": "Bearer [redacted]",
    }
    as_json = run("get", task_id, "--id", "c1", "-o", "json").json
    assert (as_json["url"], as_json["token"]) == (URL, "tok-secret")
    assert as_json["authentication"] == {"scheme": "Bearer", "credentials": "bear-secret"}
    run(create, task_id, "--url", URL + "/2")
    assert run("list", task_id).fields["Webhooks"] == "2"
    assert {each["url"] for each in run("list", task_id, "-o", "json").json["configs"]} == {URL, URL + "/2"}
    assert len(run("list", task_id, "-o", "json", "--stream").lines) == 2
    assert run("delete", task_id, "--id", "c1").fields == {"Deleted": "c1"}
    assert run("delete", task_id, "-o", "json").json == {}
    assert run("list", task_id).fields == {"Webhooks": "0"}


def test_secrets_stand_in_no_diagnostics_and_cannot_be_given_as_arguments(asking: Tieline) -> None:
    task_id = begun(asking)
    env = {"TIELINE_PUSH_TOKEN": "tok-secret", "TIELINE_PUSH_BASIC": "user:pass-secret"}
    for transport in ("JSONRPC", "HTTP+JSON"):
        words = ("push", "set", task_id, "--url", URL, "--debug", "--verbose", "--transport", transport)
        told = asking(*words, env=env)
        assert told.code == 0, told.err
        assert "CreateTaskPushNotificationConfig" in told.err or "pushNotificationConfigs" in told.err
        assert "secret" not in told.err
        assert "secret" not in told.out
    shown = asking("push", "get", task_id, "--debug")  # without knowing the secrets beforehand
    assert shown.code == 0, shown.err
    assert "secret" not in shown.err
    assert asking("push", "set", task_id, "--url", URL, "--token", "tok-secret").code == 2


def test_secret_on_standard_input_is_read(asking: Tieline) -> None:
    task_id = begun(asking)
    words = ("push", "set", task_id, "--url", URL, "--token-file", "-", "-o", "json")
    assert asking(*words, stdin=b"tok-1\n").json["token"] == "tok-1"


@pytest.mark.parametrize(
    "words",
    [
        ("set", "t"),
        ("set", "--url", URL),
        ("get",),
        ("set", "t", "--url", URL, "--token-file", "no-such"),
        ("set", "t", "--task-id", "other", "--url", URL),
    ],
)
def test_what_is_missing_is_a_usage_error(asking: Tieline, words: tuple[str, ...]) -> None:
    refused = asking("push", *words, "-o", "json")
    assert refused.code == 2
    assert refused.error["code"] == "A2ACLI_ERR_USAGE"


def test_errors_are_the_protocols(asking: Tieline, bare: Tieline, foreign: Foreign) -> None:
    refused = asking("push", "list", "no-such", "-o", "json")
    assert (refused.code, refused.error["code"], refused.error["a2aCode"]) == (1, "TaskNotFoundError", -32001)
    agent = foreign.agent("polled")
    for words in (("set", "t", "--url", URL), ("get", "t"), ("list", "t"), ("delete", "t")):
        refused = bare("push", *words, "-o", "json", "-a", agent.ref)
        assert refused.code == 1
        assert refused.error["code"] == "PushNotificationNotSupportedError"
        assert refused.error["a2aCode"] == -32003
    assert agent.calls == []
