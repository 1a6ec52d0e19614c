"""The output contract: two streams, two formats, and nothing for a terminal to obey."""

from __future__ import annotations

import json
import re
import unicodedata

import pytest

from tests.cli.running import Foreign, Result, Tieline

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def test_every_response_about_a_task_names_task_context_and_state_in_every_mode(tieline: Tieline) -> None:
    begun = tieline.begin("ask")
    task_id, context_id = begun.task_id, begun.context_id
    answers: list[Result] = []
    for words in (
        ("task", "get", task_id),
        ("task", "subscribe", task_id),
        ("task", "download", task_id),
        ("task", "cancel", task_id),
    ):
        for mode in ((), ("-o", "json"), ("-o", "json", "--stream")):
            answers.append(tieline(*words, *mode))
            assert answers[-1].code == 0, answers[-1].err
    listed = tieline("task", "list", "--context-id", context_id)
    for answer in (*answers, listed):
        assert task_id in answer.out
        assert context_id in answer.out
        assert "TASK_STATE_" in answer.out


def test_the_payload_is_on_stdout_and_everything_else_on_stderr(tieline: Tieline) -> None:
    for words in (("send", "ask"), ("send", "fail"), ("send", "chunks"), ("task", "get", "none"), ("send",)):
        run = tieline(*words, "-o", "json", "--debug")
        assert isinstance(run.json, dict), words
        assert "Warning" not in run.out
        assert "Waiting" not in run.out
    text = tieline("send", "fail")
    assert "Warning: the task ended TASK_STATE_FAILED." in text.err
    assert "Warning" not in text.out
    failed = tieline("task", "get", "none")
    assert failed.out == ""
    assert failed.err.splitlines()[:2] == [
        "Error: Task 'none' was not found: there is none, or it is not yours.",
        "Code: TaskNotFoundError",
    ]


def test_json_without_stream_is_one_document_even_where_configuration_says_stream(tieline: Tieline) -> None:
    (tieline.folder / ".env").write_text("A2ACLI_STREAM=true\nA2ACLI_OUTPUT=json\n")
    sent = tieline("send", "chunks", env={"A2ACLI_STREAM": "1"})
    assert list(sent.json) == ["task"]
    assert sent.out.count("\n") > 3


@pytest.mark.parametrize(
    ("words", "shape"),
    [
        (("send", "chunks"), {"task"}),
        (("send", "reply hi"), {"message"}),
        (("task", "get", "TASK"), {"id", "contextId", "status", "history"}),
        (("task", "cancel", "TASK"), {"id", "contextId", "status", "history"}),
        (("task", "list", "--page-size", "1"), {"tasks", "nextPageToken", "pageSize", "totalSize"}),
        (("card", "get"), {"name", "description", "supportedInterfaces", "version", "capabilities", "skills"}),
    ],
)
def test_each_command_emits_the_protocols_own_type(tieline: Tieline, words: tuple[str, ...], shape: set[str]) -> None:
    task_id = tieline.begin("ask").task_id
    document = tieline(*(task_id if word == "TASK" else word for word in words), "-o", "json").json
    assert shape <= set(document)
    assert not {"taskId", "task_id", "type", "kind"} & set(document)


@pytest.mark.parametrize("words", [("task", "get", "TASK"), ("task", "cancel", "TASK"), ("card", "get")])
def test_json_with_stream_is_one_line_where_there_is_one_thing_to_say(tieline: Tieline, words: tuple[str, ...]) -> None:
    task_id = tieline.begin("ask").task_id
    told = tieline(*(task_id if word == "TASK" else word for word in words), "-o", "json", "--stream")
    assert len(told.lines) == 1


def test_an_error_that_ends_a_stream_is_the_last_line(bare: Tieline, foreign: Foreign) -> None:
    agent = foreign.agent("breaks")
    broken = bare("send", "hi", "--stream", "-o", "json", "--poll-interval", "50ms", "-a", agent.ref)
    assert broken.code == 1
    assert [next(iter(line)) for line in broken.lines] == ["task", "error"]
    assert broken.lines[-1]["error"]["code"] == "TaskNotFoundError"


def test_text_from_an_agent_cannot_command_a_terminal_or_fake_a_field(tieline: Tieline, foreign: Foreign) -> None:
    for flags in ((), ("--stream",), ("--verbose",)):
        shown = tieline("send", "hostile", *flags)
        assert shown.code == 0
        assert not CONTROL.search(shown.out), flags
        assert "\\x1b[31m" in shown.out
    as_json = tieline("send", "hostile", "-o", "json")
    assert not CONTROL.search(as_json.out.replace("\u202e", ""))
    assert as_json.json["task"]["artifacts"][0]["parts"][0]["text"].startswith("red \x1b[31m bell \x07 c1 \x9b2J")
    chunks = tieline("send", "chunks")
    assert [value for label, value in chunks.all_fields if label == "State"] == ["TASK_STATE_COMPLETED"]


def test_labels_are_the_same_every_time_and_one_field_is_one_line(tieline: Tieline) -> None:
    runs = [tieline("send", "files") for _ in range(2)]
    labels = [[label for label, _ in run.all_fields] for run in runs]
    assert labels[0] == labels[1]
    held = tieline("task", "get", tieline.begin("hold labels").task_id)
    assert held.block("Message") == "holding\nthe line"


def test_output_does_not_change_with_the_environment_that_it_runs_in(tieline: Tieline) -> None:
    task_id = tieline.begin("files").task_id
    plain = tieline("task", "get", task_id)
    for environment in ({"TERM": "xterm-256color", "FORCE_COLOR": "1"}, {"COLUMNS": "20"}, {"LC_ALL": "C"}):
        assert tieline("task", "get", task_id, env=environment).out == plain.out


def test_a_stdout_that_cannot_show_a_letter_shows_its_number(tieline: Tieline) -> None:
    shown = tieline("send", "reply ä → ok", env={"PYTHONIOENCODING": "ascii"})
    assert shown.code == 0
    assert shown.block("Text") == "direct: \\xe4 \\u2192 ok"
    as_json = tieline("send", "reply ä → ok", "-o", "json", env={"PYTHONIOENCODING": "ascii"})
    assert as_json.json["message"]["parts"] == [{"text": "direct: ä → ok"}]


def test_verbose_shows_what_was_sent_and_every_part_of_what_came_back(tieline: Tieline) -> None:
    concise = tieline("send", "files")
    verbose = tieline("send", "files", "--verbose")
    assert verbose.code == 0
    labels = {label for label, _ in verbose.all_fields}
    assert {"Sent", "Artifact ID", "Updated", "History", "Role"} <= labels
    assert not {"Sent", "Artifact ID", "Updated", "History"} & {label for label, _ in concise.all_fields}
    assert verbose.out.count("File: report.csv") == 2, "both chunks, as they were received"


def test_a_reader_that_stops_reading_is_no_failure_worth_a_traceback(tieline: Tieline) -> None:
    process = tieline.start("send", "files", "--stream", "-o", "json")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait(60) in (0, 141)
    assert "Traceback" not in errors
    assert "BrokenPipe" not in errors


@pytest.mark.parametrize("where", [">&-", ">/dev/full"])
@pytest.mark.parametrize(
    "words",
    [
        ("send", "reply x"),
        ("send", "reply x", "-o", "json"),
        ("send", "chunks", "--stream", "-o", "json"),
        ("task", "get", "no-such-task", "-o", "json"),
        ("send", "too", "much", "-o", "json"),
        ("completion", "bash"),
        ("--version",),
    ],
)
def test_a_stdout_that_takes_nothing_is_told_in_a_sentence(
    tieline: Tieline, words: tuple[str, ...], where: str
) -> None:
    if words[0] in ("completion", "--version"):
        tieline.agent = None
    failed = tieline.redirected(where, *words)
    assert failed.code == (2 if "much" in words and where == ">&-" else 1), failed.err
    assert failed.err.startswith("Error: ")
    for noise in ("Traceback", "Exception ignored", "Errno"):
        assert noise not in failed.err


def test_a_closed_stdout_is_told_before_anything_is_sent(bare: Tieline, foreign: Foreign) -> None:
    agent = foreign.agent("message")
    failed = bare.redirected(">&-", "send", "hi", "-a", agent.ref)
    assert "stdout is closed" in failed.err
    assert agent.records == []


def test_closed_stdin_and_stderr_are_no_failure_worth_a_traceback(tieline: Tieline) -> None:
    assert tieline.redirected("2>&-", "send", "reply x", "-o", "json").json["message"]
    refused = tieline.redirected("<&-", "send", "-")
    assert refused.code == 2
    assert refused.err.startswith("Error: Standard input is closed")


@pytest.mark.parametrize("word", ["fail", "reject", "ask", "authorize", "chunks"])
@pytest.mark.parametrize("flags", [(), ("--stream", "-o", "json")], ids=["text", "jsonl"])
def test_the_exit_code_says_whether_the_command_worked_not_what_the_agent_decided(
    tieline: Tieline, word: str, flags: tuple[str, ...]
) -> None:
    sent = tieline("send", word, *flags)
    assert sent.code == 0
    assert ("Warning" in sent.err) == (word != "chunks")
    if word in ("ask", "authorize"):
        found = re.search(r"--task-id (\S+)", sent.out + sent.err)
        assert found
        assert tieline("task", "get", found.group(1)).code == 0


def test_letters_of_every_script_pass_through(tieline: Tieline) -> None:
    words = "Grüße 你好 мир 🙂 e\u0301"
    assert tieline("send", f"reply {words}").block("Text") == f"direct: {words}"
    told = json.loads(tieline("send", f"reply {words}", "-o", "json").out)["message"]["parts"][0]["text"]
    assert unicodedata.normalize("NFC", told) == unicodedata.normalize("NFC", f"direct: {words}")
