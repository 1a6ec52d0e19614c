"""`task get`, `task list`, `task cancel`, `task subscribe`."""

from __future__ import annotations

import json

import pytest

from tests.cli.running import Foreign, Tieline

TRANSPORTS = ("JSONRPC", "HTTP+JSON")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_get_shows_state_and_every_artifact(tieline: Tieline, transport: str) -> None:
    task_id = tieline.begin("files").task_id
    got = tieline("task", "get", task_id, "--transport", transport)
    assert got.code == 0, got.err
    assert got.fields["Task ID"] == task_id
    assert got.fields["State"] == "TASK_STATE_COMPLETED"
    names = [value for label, value in got.all_fields if label == "Artifact"]
    assert names == ["report.csv", "notes", "numbers", "photo", "link"]
    files = [value for label, value in got.all_fields if label in ("File", "Media type", "Size", "URL")]
    assert files == [
        *("report.csv", "text/csv", "8 bytes"),
        *("../../../etc/photo.png", "image/png", "256 bytes"),
        *("a.pdf", "application/pdf", "https://files.example/a.pdf"),
    ]
    assert got.block("Text") == "first second"
    assert json.loads(got.block("Data")) == {"big": 12345678901234567890123, "none": None, "float": 1.0}
    as_json = tieline("task", "get", task_id, "-o", "json", "--transport", transport).json
    assert as_json["id"] == task_id
    assert [artifact["name"] for artifact in as_json["artifacts"]] == names


def test_the_task_may_be_named_by_flag_or_environment_but_not_twice(tieline: Tieline) -> None:
    task_id = tieline.begin("chunks").task_id
    assert tieline("task", "get", "--task-id", task_id).fields["Task ID"] == task_id
    assert tieline("task", "get", env={"A2ACLI_TASK_ID": task_id}).fields["Task ID"] == task_id
    assert tieline("task", "get", task_id, env={"A2ACLI_TASK_ID": "other"}).fields["Task ID"] == task_id
    for words in ((task_id, "--task-id", "other"), ()):
        assert tieline("task", "get", *words).code == 2


def test_history_is_as_long_as_was_asked_for(tieline: Tieline) -> None:
    task_id = tieline.begin("ask").task_id
    tieline.begin("Ada", task_id=task_id)

    def history(*words: str) -> list[str]:
        task = tieline("task", "get", task_id, "-o", "json", *words).json
        return [message["parts"][0]["text"] for message in task.get("history", [])]

    assert history() == ["ask", "Who are you?", "Ada"]
    assert history("--history", "1") == ["Ada"]
    assert history("--history", "0") == []
    assert tieline("task", "get", task_id, "--history", "-1").code == 2


def test_history_that_was_asked_for_is_shown_as_text_too(tieline: Tieline) -> None:
    task_id = tieline.begin("ask").task_id
    tieline.begin("Ada", task_id=task_id)
    shown = tieline("task", "get", task_id, "--history", "2")
    assert [value for label, value in shown.all_fields if label == "History"] == ["ROLE_AGENT", "ROLE_USER"]
    assert "History" not in tieline("task", "get", task_id).fields


def test_cancel_reports_the_resulting_state_and_cancelling_twice_is_cancelling(tieline: Tieline) -> None:
    task_id = tieline.begin("hold cancel").task_id
    for _ in range(2):
        canceled = tieline("task", "cancel", task_id)
        assert canceled.code == 0, canceled.err
        assert canceled.fields["Task ID"] == task_id
        assert canceled.fields["State"] == "TASK_STATE_CANCELED"
    assert tieline("task", "cancel", task_id, "-o", "json").json["status"]["state"] == "TASK_STATE_CANCELED"


def test_cancelling_a_completed_task_is_the_protocols_error(tieline: Tieline) -> None:
    task_id = tieline.begin("chunks").task_id
    refused = tieline("task", "cancel", task_id, "-o", "json")
    assert refused.code == 1
    assert refused.error["code"] == "TaskNotCancelableError"
    assert refused.error["a2aCode"] == -32002


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_list_filters_by_state_and_context_and_goes_page_by_page(tieline: Tieline, transport: str) -> None:
    context = tieline.begin("chunks").context_id
    for word in ("chunks", "reject", "chunks"):
        tieline.begin(word, context_id=context)
    over = ("--transport", transport, "--context-id", context)

    def states(*words: str) -> list[str]:
        listed = tieline("task", "list", *over, *words, "-o", "json")
        assert listed.code == 0, listed.out
        return [task["status"]["state"].removeprefix("TASK_STATE_") for task in listed.json["tasks"]]

    assert states() == ["COMPLETED", "REJECTED", "COMPLETED", "COMPLETED"]
    for spelling in ("REJECTED", "rejected", "TASK_STATE_REJECTED"):
        assert states("--status", spelling) == ["REJECTED"]
    assert states("--since", "2100-01-01T00:00:00Z") == []
    first = tieline("task", "list", *over, "--page-size", "3")
    assert first.fields["Tasks"] == "3 of 4"
    command = first.fields["Next"].split()
    assert command[:3] == ["tieline", "task", "list"]
    second = tieline(*command[1:])
    assert second.code == 0, second.err
    assert second.fields["Tasks"] == "1 of 4"
    assert "Next" not in second.fields
    assert len(states("--page-size", "1", "--all")) == 4


def test_a_streamed_list_is_one_task_a_line(tieline: Tieline) -> None:
    context = tieline.begin("files").context_id
    tieline.begin("chunks", context_id=context)
    words = ("task", "list", "--context-id", context, "--stream", "-o", "json")
    listed = tieline(*words)
    assert [task["status"]["state"] for task in listed.lines] == ["TASK_STATE_COMPLETED"] * 2
    assert all("artifacts" not in task for task in listed.lines)
    whole = tieline(*words, "--artifacts", "--page-size", "1", "--all")
    assert [len(task["artifacts"]) for task in whole.lines] == [1, 5]
    cut = tieline(*words, "--page-size", "1")
    assert len(cut.lines) == 1
    assert "There are more: tieline task list" in cut.err


@pytest.mark.parametrize("words", [("--status", "SLEEPING"), ("--since", "yesterday"), ("--page-size", "0")])
def test_filters_that_make_no_sense_are_usage_errors(tieline: Tieline, words: tuple[str, str]) -> None:
    refused = tieline("task", "list", *words, "-o", "json")
    assert refused.code == 2
    assert refused.error["code"] == "A2ACLI_ERR_USAGE"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_subscribe_begins_with_the_whole_task_and_follows_it_to_its_end(tieline: Tieline, transport: str) -> None:
    name = f"subscribe-{transport}"
    task_id = tieline.begin(f"hold {name}").task_id
    words = ("task", "subscribe", task_id, "-o", "json", "--transport", transport)
    streaming, waiting = tieline.start(*words, "--stream"), tieline.start(*words)
    assert streaming.stdout is not None
    assert waiting.stderr is not None
    assert waiting.stderr.readline().decode() == f"Waiting for task {task_id}\n"
    first = json.loads(streaming.stdout.readline())
    assert first["task"]["id"] == task_id
    assert first["task"]["artifacts"][0]["parts"] == [{"text": "before "}]
    tieline.begin(f"release {name}")
    rest, errors = streaming.communicate(timeout=60)
    assert streaming.returncode == 0, errors
    last = json.loads(rest.splitlines()[-1])
    assert last["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    document, errors = waiting.communicate(timeout=60)
    assert waiting.returncode == 0, errors
    task = json.loads(document)
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert task["artifacts"][0]["parts"] == [{"text": "before and after"}]


def test_subscribe_as_text_follows_live_and_ends_with_identifiers_and_state(tieline: Tieline) -> None:
    task_id = tieline.begin("hold subscribe-text").task_id
    process = tieline.start("task", "subscribe", task_id)
    assert process.stdout is not None
    assert process.stdout.readline().decode() == f"Task ID: {task_id}\n"
    tieline.begin("release subscribe-text")
    rest, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert rest.decode().splitlines()[-4].startswith("Task ID: ")
    assert rest.decode().splitlines()[-2] == "State: TASK_STATE_COMPLETED"


def test_subscribe_returns_where_the_task_waits_for_its_caller(tieline: Tieline) -> None:
    task_id = tieline.begin("ask").task_id
    followed = tieline("task", "subscribe", task_id)
    assert followed.code == 0, followed.err
    assert followed.fields["State"] == "TASK_STATE_INPUT_REQUIRED"
    assert followed.fields["Next"].startswith(f"tieline send --task-id {task_id}")


def test_subscribing_to_a_finished_task_is_the_protocols_error(tieline: Tieline) -> None:
    task_id = tieline.begin("chunks").task_id
    refused = tieline("task", "subscribe", task_id, "-o", "json")
    assert refused.code == 1
    assert refused.error["code"] == "UnsupportedOperationError"
    assert f"tieline task get {task_id}" in refused.error["hint"]


def test_an_agent_whose_card_offers_no_streaming_is_not_asked_to_stream(bare: Tieline, foreign: Foreign) -> None:
    agent = foreign.agent("polled")
    refused = bare("task", "subscribe", agent.task_id, "-o", "json", "-a", agent.ref)
    assert refused.code == 1
    assert refused.error["code"] == "UnsupportedOperationError"
    assert "task get" in refused.error["hint"]
    assert agent.calls == []
