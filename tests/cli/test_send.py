"""`send`: starting and continuing an interaction, waiting or not, streaming or not."""

from __future__ import annotations

import json
import re

import pytest

from tests.cli.running import Foreign, Tieline

TRANSPORTS = ("JSONRPC", "HTTP+JSON")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_send_starts_a_task_and_waits_for_its_end(tieline: Tieline, transport: str) -> None:
    sent = tieline("send", "chunks", "--transport", transport)
    assert sent.code == 0, sent.err
    assert sent.fields["State"] == "TASK_STATE_COMPLETED"
    assert sent.fields["Artifact"] == "response"
    assert sent.block("Text") == "one two\n\nState: three"
    as_json = tieline("send", "chunks", "-o", "json", "--transport", transport).json
    assert list(as_json) == ["task"]
    assert as_json["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert as_json["task"]["artifacts"][0]["parts"] == [{"text": "one two\n\nState: three"}]


def test_async_returns_the_identifiers_at_once_and_wait_takes_a_configured_async_back(tieline: Tieline) -> None:
    for flag in ("--async", "--return-immediately", "--no-wait"):
        begun = tieline("send", f"hold send-{flag}", flag)
        assert begun.code == 0
        assert begun.fields["Task ID"]
        assert begun.fields["Context ID"]
        assert begun.fields["State"] == "TASK_STATE_WORKING"
        assert begun.fields["Next"].startswith(f"tieline task get {begun.fields['Task ID']} --wait")
    asynchronous = {"A2ACLI_ASYNC": "true"}
    begun = tieline("send", "hold send-env", env=asynchronous)
    assert begun.fields["State"] == "TASK_STATE_WORKING"
    for flag in ("--wait", "--watch"):
        assert tieline("send", "chunks", flag, env=asynchronous).fields["State"] == "TASK_STATE_COMPLETED"


def test_async_as_json_is_a_result_with_task_and_context(tieline: Tieline) -> None:
    begun = tieline("send", "hold send-json", "--async", "-o", "json").json
    assert begun["task"]["id"]
    assert begun["task"]["contextId"]


def test_async_and_wait_or_stream_exclude_each_other(tieline: Tieline) -> None:
    for other in ("--wait", "--stream"):
        refused = tieline("send", "chunks", "--async", other, "-o", "json")
        assert refused.code == 2
        assert refused.error["code"] == "A2ACLI_ERR_USAGE"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_stream_shows_events_as_they_happen(tieline: Tieline, transport: str) -> None:
    name = f"stream-{transport}"
    process = tieline.start("send", f"hold {name}", "--stream", "-o", "json", "--transport", transport)
    assert process.stdout is not None
    events = []
    for line in process.stdout:
        events.append(json.loads(line))
        if "artifactUpdate" in events[-1]:
            break
    assert process.poll() is None, "the chunk was shown while the agent was still at work"
    tieline.begin(f"release {name}")
    rest, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    events += [json.loads(line) for line in rest.splitlines()]
    assert all(len(event) == 1 for event in events)
    assert next(iter(events[0])) == "task"
    texts = [part["text"] for e in events if "artifactUpdate" in e for part in e["artifactUpdate"]["artifact"]["parts"]]
    assert "".join(texts) == "before and after"
    last = events[-1]["statusUpdate"]
    assert last["taskId"] == events[0]["task"]["id"]
    assert last["contextId"] == events[0]["task"]["contextId"]
    assert last["status"]["state"] == "TASK_STATE_COMPLETED"


def test_streamed_text_grows_in_one_block_and_ends_with_identifiers_and_state(tieline: Tieline) -> None:
    streamed = tieline("send", "chunks", "--stream")
    assert streamed.code == 0
    assert streamed.out.count("Text:\n") == 1
    assert streamed.block("Text") == "one two\n\nState: three"
    labels = [label for label, _ in streamed.all_fields]
    assert labels[-4:] == ["Task ID", "Context ID", "State", "Next"]
    assert streamed.fields["State"] == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize("scenario", ["polled", "stubborn"])
def test_stream_falls_back_where_the_agent_does_not_stream(bare: Tieline, foreign: Foreign, scenario: str) -> None:
    agent = foreign.agent(scenario)
    streamed = bare("send", "hi", "--stream", "-o", "json", "--poll-interval", "50ms", "-a", agent.ref)
    assert streamed.code == 0, streamed.err
    assert all(list(event) == ["task"] for event in streamed.lines)
    assert streamed.lines[-1]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert streamed.lines[-1]["task"]["id"] == ("task-" + agent.key)
    if scenario == "polled":
        assert "SendStreamingMessage" not in agent.methods, "the card said so"


@pytest.mark.parametrize("flags", [(), ("--stream",)], ids=["wait", "stream"])
@pytest.mark.parametrize("scenario", ["message", "one-message"])
def test_an_answer_without_a_task_is_a_clean_end(
    bare: Tieline, foreign: Foreign, scenario: str, flags: tuple[str, ...]
) -> None:
    agent = foreign.agent(scenario)
    answered = bare("send", "hi", *flags, "-a", agent.ref)
    assert (answered.code, answered.err) == (0, "")
    assert answered.block("Text") == "Just words."
    as_json = bare("send", "hi", *flags, "-o", "json", "-a", agent.ref)
    assert as_json.json == {"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "Just words."}]}}


def test_an_interaction_goes_on_in_its_context_as_a_new_task(tieline: Tieline) -> None:
    first = tieline("send", "chunks").fields
    assert first["Next"] == (f'tieline send --context-id {first["Context ID"]} -a {tieline.agent} "<message>"')
    second = tieline("send", "chunks", "--context-id", first["Context ID"]).fields
    assert second["Context ID"] == first["Context ID"]
    assert second["Task ID"] != first["Task ID"]


@pytest.mark.parametrize("with_context", [False, True])
def test_a_task_that_asked_goes_on_with_the_answer_by_the_printed_command(tieline: Tieline, with_context: bool) -> None:
    asked = tieline("send", "ask")
    assert asked.code == 0
    assert asked.fields["State"] == "TASK_STATE_INPUT_REQUIRED"
    assert asked.block("Message") == "Who are you?"
    assert "Warning: the task waits for your answer" in asked.err
    task_id = asked.fields["Task ID"]
    resume = asked.fields["Next"]
    assert resume == f'tieline send --task-id {task_id} -a {tieline.agent} "<reply>"'
    context = ["--context-id", asked.fields["Context ID"]] if with_context else []
    answered = tieline("send", "--task-id", task_id, *context, "Ada")
    assert answered.code == 0, answered.err
    assert answered.fields["Task ID"] == task_id
    assert answered.fields["State"] == "TASK_STATE_COMPLETED"
    assert answered.block("Text") == "Hello, Ada!"


@pytest.mark.parametrize("flags", [(), ("--stream",), ("--async",)], ids=["wait", "stream", "async"])
def test_a_refused_task_id_fails_and_begins_no_other_task(tieline: Tieline, flags: tuple[str, ...]) -> None:
    ended, waiting = tieline.begin("chunks"), tieline.begin("ask")
    before = tieline("task", "list", "-o", "json").json["totalSize"]
    for words, name in (
        (("--task-id", "no-such-task"), "TaskNotFoundError"),
        (("--task-id", ended.task_id), "UnsupportedOperationError"),
        (("--task-id", waiting.task_id, "--context-id", ended.context_id), "InvalidParamsError"),
    ):
        refused = tieline("send", "hi", *words, *flags, "-o", "json")
        assert refused.code == 1, words
        error = json.loads(refused.out)["error"]
        assert error["code"] == name
        assert "--debug" in error["hint"]
    assert tieline("task", "list", "-o", "json").json["totalSize"] == before


def test_no_identifier_of_the_server_is_invented_or_kept_between_runs(bare: Tieline, foreign: Foreign) -> None:
    agent = foreign.agent("message")
    for _ in range(2):
        assert bare("send", "hi", "-a", agent.ref).code == 0
    first, second = (call["params"]["message"] for call in agent.calls)
    for message in (first, second):
        assert set(message) == {"messageId", "role", "parts"}
    assert first["messageId"] != second["messageId"]
    assert [path for path in bare.home.rglob("*") if path.is_file()] == []
    assert list(bare.folder.iterdir()) == []


def test_there_is_no_way_to_resume_from_memory(tieline: Tieline) -> None:
    assert tieline("send", "chunks").code == 0
    refused = tieline("send", "--continue", "hi", "-o", "json")
    assert refused.code == 2
    assert refused.error["code"] == "A2ACLI_ERR_USAGE"


def test_metadata_accepted_types_references_and_message_id_reach_the_agent(bare: Tieline, foreign: Foreign) -> None:
    agent = foreign.agent("message")
    sent = bare(
        *("send", "hi", "--metadata", '{"n": 12345678901234567890123, "deep": {"x": [null]}}'),
        *("--accept", "text/csv", "--accept", "image/png", "--reference-task", "t1", "--message-id", "mine"),
        *("-a", agent.ref),
    )
    assert sent.code == 0, sent.err
    params = agent.calls[0]["params"]
    assert params["metadata"] == {"n": 12345678901234567890123, "deep": {"x": [None]}}
    assert params["configuration"]["acceptedOutputModes"] == ["text/csv", "image/png"]
    assert params["message"]["referenceTaskIds"] == ["t1"]
    assert params["message"]["messageId"] == "mine"


def test_metadata_that_is_no_object_is_a_usage_error(tieline: Tieline) -> None:
    for wrong in ("[1]", "{", "1"):
        refused = tieline("send", "hi", "--metadata", wrong, "-o", "json")
        assert refused.code == 2, wrong
        assert re.search("metadata", refused.error["message"])
