"""Waiting: by polling, by streams that fail, within limits, and interrupted."""

from __future__ import annotations

import os
import pty
import select
import signal

import pytest

from tests.cli.running import LIMIT_S, Foreign, Tieline, until

QUICK = ("--poll-interval", "50ms")


@pytest.mark.parametrize("flags", [(), ("-o", "json")], ids=["text", "json"])
def test_get_reads_once_and_with_wait_until_the_task_rests(
    bare: Tieline, foreign: Foreign, flags: tuple[str, ...]
) -> None:
    once = foreign.agent("polled")
    assert "TASK_STATE_WORKING" in bare("task", "get", once.task_id, *flags, "-a", once.ref).out
    assert once.methods == ["GetTask"]
    waited = foreign.agent("polled")
    got = bare("task", "get", waited.task_id, "--wait", *QUICK, *flags, "-a", waited.ref)
    assert got.code == 0, got.err
    assert "TASK_STATE_COMPLETED" in got.out
    assert waited.methods == ["GetTask"] * 4  # three readings, and the whole task


def test_send_polls_where_the_card_offers_no_streaming(bare: Tieline, foreign: Foreign) -> None:
    agent = foreign.agent("polled")
    sent = bare("send", "hi", *QUICK, "-a", agent.ref)
    assert sent.code == 0, sent.err
    assert sent.fields["State"] == "TASK_STATE_COMPLETED"
    assert sent.block("Text") == "done"
    assert agent.methods == ["SendMessage", *["GetTask"] * 4]
    assert agent.calls[0]["params"]["configuration"]["returnImmediately"] is True


def test_polling_does_not_run_busy_and_gets_rarer_within_a_bound(bare: Tieline, foreign: Foreign) -> None:
    agent = foreign.agent("never")
    late = bare("task", "get", agent.task_id, "--wait", *QUICK, "--timeout", "2s", "-a", agent.ref)
    assert late.code == 5
    assert 3 <= len(agent.calls) <= 20, "40 readings fit in at an even interval, thousands without one"


def test_unspecified_is_neither_an_end_nor_a_question(bare: Tieline, foreign: Foreign) -> None:
    agent = foreign.agent("unspecified")
    first = bare("task", "get", agent.task_id, "-a", agent.ref)
    assert first.fields["State"] == "TASK_STATE_UNSPECIFIED"
    waited = bare("task", "get", agent.task_id, "--wait", *QUICK, "-a", agent.ref)
    assert waited.fields["State"] == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize("words", [("send", "hi"), ("task", "get", "TASK", "--wait")], ids=["send", "get"])
def test_waiting_stops_at_once_when_the_task_asks(bare: Tieline, foreign: Foreign, words: tuple[str, ...]) -> None:
    agent = foreign.agent("asking")
    asked = bare(*(agent.task_id if word == "TASK" else word for word in words), *QUICK, "-a", agent.ref)
    assert asked.code == 0, asked.err
    assert asked.fields["State"] == "TASK_STATE_INPUT_REQUIRED"
    assert asked.block("Message") == "Which one?"


@pytest.mark.parametrize("flags", [(), ("--stream",)], ids=["wait", "stream"])
@pytest.mark.parametrize(("word", "state"), [("ask", "INPUT_REQUIRED"), ("authorize", "AUTH_REQUIRED")])
def test_a_streamed_wait_stops_at_once_when_the_task_asks(
    tieline: Tieline, word: str, state: str, flags: tuple[str, ...]
) -> None:
    asked = tieline("send", word, *flags)
    assert asked.code == 0, asked.err
    assert asked.fields["State"] == f"TASK_STATE_{state}"
    assert asked.fields["Next"].startswith(f"tieline send --task-id {asked.fields['Task ID']}")
    assert f"({state})" in asked.err.replace("TASK_STATE_", "")
    as_json = tieline("send", word, *flags, "-o", "json")
    assert as_json.code == 0
    assert "tieline send --task-id " in as_json.err, "a program's log says how to go on, too"


def test_a_stream_that_is_cut_off_is_followed_to_the_end_by_polling(bare: Tieline, foreign: Foreign) -> None:
    agent = foreign.agent("cut")
    sent = bare("send", "hi", *QUICK, "-a", agent.ref)
    assert sent.code == 0, sent.err
    assert sent.fields["State"] == "TASK_STATE_COMPLETED"
    assert sent.block("Text") == "done"
    assert agent.methods[0] == "SendStreamingMessage"
    assert agent.methods[-1] == "GetTask"
    assert "SendMessage" not in agent.methods, "nothing is sent twice"


def test_readings_that_fail_for_a_moment_are_repeated(bare: Tieline, foreign: Foreign) -> None:
    agent = foreign.agent("flaky")
    sent = bare("send", "hi", *QUICK, "-a", agent.ref)
    assert sent.code == 0, sent.err
    assert sent.fields["State"] == "TASK_STATE_COMPLETED"


def test_a_finished_task_that_the_agent_forgets_is_shown_from_its_events(bare: Tieline, foreign: Foreign) -> None:
    agent = foreign.agent("forgets")
    sent = bare("send", "hi", "-a", agent.ref)
    assert sent.code == 0, sent.err
    assert sent.fields["State"] == "TASK_STATE_COMPLETED"
    assert sent.block("Text") == "all there was"


@pytest.mark.parametrize("word", ["send", "get"])
def test_a_timeout_is_reported_with_the_command_that_goes_on(bare: Tieline, foreign: Foreign, word: str) -> None:
    agent = foreign.agent("never")
    words = ("send", "hi") if word == "send" else ("task", "get", agent.task_id, "--wait")
    late = bare(*words, *QUICK, "--timeout", "500ms", "-o", "json", "-a", agent.ref)
    assert late.code == 5
    assert late.error["code"] == "A2ACLI_ERR_TIMEOUT"
    assert f"tieline task get {agent.task_id} --wait -a {agent.ref}" in late.error["hint"]


@pytest.mark.parametrize(
    "words",
    [("send", "hold interrupt-NAME"), ("send", "hold interrupt-NAME", "-o", "json")],
    ids=["text", "json"],
)
def test_an_interruption_loses_neither_the_task_nor_its_id(tieline: Tieline, words: tuple[str, ...]) -> None:
    process = tieline.start(*words)
    assert process.stderr is not None
    told = process.stderr.readline().decode()
    assert told.startswith("Waiting for task "), told
    task_id = told.split()[-1]
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == b""
    assert f"tieline task get {task_id} --wait -a {tieline.agent}" in errors.decode()
    assert "Traceback" not in errors.decode()
    assert tieline("task", "get", task_id).fields["State"] == "TASK_STATE_WORKING"


def test_an_interruption_before_the_task_is_named_says_how_to_send_the_same_message_again(
    bare: Tieline, foreign: Foreign
) -> None:
    agent = foreign.agent("silent")
    process = bare.start("send", "hi", "-a", agent.ref)
    until(lambda: agent.calls, "the message")
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out) == (130, b"")
    assert f"--message-id {agent.calls[0]['params']['message']['messageId']}\n" in errors.decode()


def test_an_agent_that_stays_silent_is_given_up_in_time(bare: Tieline, foreign: Foreign) -> None:
    agent = foreign.agent("silent")
    late = bare("send", "hi", "--timeout", "500ms", "-o", "json", "-a", agent.ref)
    assert late.code == 5
    assert late.error["code"] == "A2ACLI_ERR_TIMEOUT"
    assert "--message-id" in late.error["hint"]
    assert "agents that recognise it will not do the work twice; others will" in late.error["hint"]


def test_a_terminal_sees_what_is_awaited_on_stderr_and_a_pipe_does_not(tieline: Tieline) -> None:
    terminal, theirs = pty.openpty()
    process = tieline.start("send", "hold terminal", stderr=theirs)
    os.close(theirs)
    seen = b""
    while b"\r| " not in seen and b"\r/ " not in seen:
        ready, _, _ = select.select([terminal], [], [], LIMIT_S)
        assert ready, "the progress line was not shown"
        seen += os.read(terminal, 4096)
    assert b"working: holding the line" in seen
    assert b"\x1b" not in seen
    tieline.begin("release terminal")
    out, _ = process.communicate(timeout=LIMIT_S)
    os.close(terminal)
    assert process.returncode == 0
    assert b"\r" not in out
    assert out.startswith(b"Task ID: ")
    held = tieline("send", "hold pipe", "--timeout", "1s")
    assert "\r" not in held.err
    assert "holding" not in held.err


def test_durations_are_read_with_and_without_units(bare: Tieline, foreign: Foreign) -> None:
    agent = foreign.agent("message")
    for good in ("30", "30s", "5m", "250ms", "1.5h", "2d", "none"):
        assert bare("send", "hi", "--timeout", good, "-a", agent.ref).code == 0, good
    for flag, bad in (("--timeout", "soon"), ("--timeout", "0"), ("--timeout", "-1"), ("--poll-interval", "1ms")):
        refused = bare("send", "hi", flag, bad, "-o", "json", "-a", agent.ref)
        assert refused.code == 2, (flag, bad)
        assert refused.error["code"] == "A2ACLI_ERR_USAGE"
