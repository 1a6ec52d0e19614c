"""The official SDK's client against examples/table.py under `tieline serve`, each a real process.

official_client.py has the scenarios: it says what the client saw, and each test here says what that has to be. The SDK
reads all JSON into protobuf values, so every number of a data part arrives as a float.
"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.processes import ROOT, served_by_tieline, start

CLIENT_LIMIT_S = 300.0
SALES_SUMMARY = {"column": "amount", "rows": 3, "count": 3, "sum": 22.5, "mean": 7.5, "min": 2.5, "max": 10}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served_by_tieline("examples/table.py", tmp_path_factory.mktemp("table")) as url:
        yield url


@pytest.fixture(scope="module", params=["JSONRPC", "HTTP+JSON"])
def report(url: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the official client saw over one binding, by scenario."""
    output = tmp_path_factory.mktemp("client") / "report.json"
    with output.open("wb") as file:
        process = start([sys.executable, ROOT / "tests/interop/official_client.py", url, request.param], file)
        try:
            status = process.wait(CLIENT_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
    assert status == 0, output.read_text()
    return {"binding": request.param, **json.loads(output.read_text())}


def saw(report: dict[str, Any], scenario: str) -> Any:
    seen = report[scenario]
    if isinstance(seen, dict) and "failed" in seen:
        pytest.fail(seen["failed"])
    return seen


def state(task: dict[str, Any]) -> str:
    return str(task["status"]["state"]).removeprefix("TASK_STATE_")


def words(task: dict[str, Any]) -> str:
    return str(task["status"]["message"]["parts"][0]["text"])


def data(task: dict[str, Any]) -> dict[str, Any]:
    (artifact,) = (one for one in task["artifacts"] if one["name"] == "response")
    return dict(artifact["parts"][0]["data"])


def values(task: dict[str, Any]) -> list[list[str]]:
    (artifact,) = (one for one in task["artifacts"] if one["name"] == "values.csv")
    assert {part["mediaType"] for part in artifact["parts"]} == {"text/csv"}
    return list(csv.reader(io.StringIO("".join(part["text"] for part in artifact["parts"]))))


def kinds(events: list[dict[str, Any]]) -> list[str]:
    """The events of a stream in short: the state of a task or status, "artifact" or "+" for a first or later chunk."""
    found = []
    for event in events:
        ((kind, value),) = event.items()
        if kind == "artifactUpdate":
            found.append("+" if value.get("append") else "artifact")
        else:
            found.append(f"{'task ' if kind == 'task' else ''}{state(value)}")
    return found


def progress(events: list[dict[str, Any]]) -> list[str]:
    statuses = [event["statusUpdate"] for event in events if "statusUpdate" in event]
    return [words(status) for status in statuses if "message" in status["status"]]


def test_card_names_both_bindings_at_the_address_that_was_called(report: dict[str, Any], url: str) -> None:
    card = saw(report, "card")
    assert card["name"] == "Table"
    interfaces = [(one["protocolBinding"], one["protocolVersion"]) for one in card["supportedInterfaces"]]
    assert interfaces[:2] == [("JSONRPC", "1.0"), ("HTTP+JSON", "1.0")]
    assert {one["url"].rstrip("/") for one in card["supportedInterfaces"]} == {url}


def test_file_and_column_give_data_and_a_csv_file(report: dict[str, Any]) -> None:
    task = saw(report, "file_and_column")
    assert state(task) == "COMPLETED"
    assert {key: data(task)[key] for key in SALES_SUMMARY} == SALES_SUMMARY
    assert values(task) == [["value", "count"], ["10", "2"], ["2.5", "1"]]
    assert words(task) == "amount: 3 numbers in 3 rows, mean 7.5."


def test_pasted_table_gives_the_same(report: dict[str, Any]) -> None:
    assert data(saw(report, "pasted_table")) == data(saw(report, "file_and_column"))


@pytest.mark.parametrize("scenario", ["question_and_answer", "answer_by_task_id_alone"])
def test_question_is_answered_in_the_same_task_and_context(report: dict[str, Any], scenario: str) -> None:
    asked, answered = saw(report, scenario)
    assert state(asked) == "INPUT_REQUIRED"
    assert words(asked) == "I need one column. Which of these: name, amount?"
    assert (answered["id"], answered["contextId"]) == (asked["id"], asked["contextId"])
    assert state(answered) == "COMPLETED"
    assert data(answered)["sum"] == 22.5
    roles = [message["role"] for message in answered["history"]]
    assert roles == ["ROLE_USER", "ROLE_AGENT", "ROLE_USER"]


def test_answer_in_another_context_is_refused_and_the_question_stays(report: dict[str, Any]) -> None:
    refusal, task = saw(report, "answer_with_a_foreign_context")
    assert refusal["error"] == "InvalidParamsError"
    assert state(task) == "INPUT_REQUIRED"


def test_stream_has_the_task_then_progress_then_data_and_the_file_in_chunks(report: dict[str, Any]) -> None:
    events = saw(report, "stream")
    seen = kinds(events)
    first_artifact = seen.index("artifact")
    assert seen[0] == "task SUBMITTED"
    assert set(seen[1:first_artifact]) == {"WORKING"}
    assert seen[first_artifact : first_artifact + 3] == ["artifact", "artifact", "+"]
    assert seen[-1] == "COMPLETED"
    assert progress(events)[:2] == ["Reading the column n.", "Read 10,000 rows, 45 %."]
    file = [event["artifactUpdate"] for event in events if "artifactUpdate" in event][1:]
    assert [chunk.get("lastChunk", False) for chunk in file] == [False] * (len(file) - 1) + [True]
    lines = "".join(chunk["artifact"]["parts"][0]["text"] for chunk in file).splitlines()
    assert lines == ["value,count", *(f"{number},1" for number in range(1_000))]


def test_stream_closes_at_the_question_and_the_answer_streams_on(report: dict[str, Any]) -> None:
    asked, answered = saw(report, "streamed_question")
    assert kinds(asked) == ["task SUBMITTED", "WORKING", "INPUT_REQUIRED"]
    assert kinds(answered)[0].startswith("task ")
    last = answered[-1].get("statusUpdate") or answered[-1]["task"]  # a quick agent is done when the stream opens
    assert state(last) == "COMPLETED"
    assert answered[0]["task"]["id"] == asked[0]["task"]["id"]


def test_cancel_at_the_question_ends_the_task(report: dict[str, Any]) -> None:
    canceled, read = saw(report, "cancel_at_the_question")
    assert state(canceled) == state(read) == "CANCELED"


def test_cancel_at_work_stops_the_agent_and_ends_its_stream(report: dict[str, Any]) -> None:
    canceled, events = saw(report, "cancel_at_work")
    assert state(canceled) == "CANCELED"
    seen = kinds(events)
    assert seen[-1] == "CANCELED"
    assert "artifact" not in seen
    assert not any("100 %" in line for line in progress(events))


def test_subscription_after_a_break_begins_with_the_task_as_it_is_and_goes_on(report: dict[str, Any]) -> None:
    before, after = saw(report, "subscribe_after_a_break")
    assert progress(before)[-1].startswith("Read 10,000 rows")
    assert kinds(after)[0] == "task WORKING"
    assert after[0]["task"]["id"] == before[0]["task"]["id"]
    told = [_rows(line) for line in (words(after[0]["task"]), *progress(after))]
    assert told == list(range(told[0], told[0] + 10_000 * len(told), 10_000))  # none missing, none twice
    assert kinds(after)[-1] == "CANCELED"


def _rows(line: str) -> int:
    return int(line.split()[1].replace(",", ""))


def test_subscription_to_a_question_stays_open_until_the_task_has_ended(report: dict[str, Any]) -> None:
    answered, events = saw(report, "subscribe_to_a_question")
    assert state(answered) == "COMPLETED"
    assert kinds(events) == ["task INPUT_REQUIRED", "WORKING", "WORKING", "artifact", "artifact", "COMPLETED"]


def test_list_has_the_tasks_of_a_context_in_pages_the_last_changed_first(report: dict[str, Any]) -> None:
    seen = saw(report, "listing")
    one, two, three = seen["sent"]
    assert [task["id"] for task in seen["first"]["tasks"]] == [three, two]
    assert [task["id"] for task in seen["second"]["tasks"]] == [one]
    assert (seen["first"]["totalSize"], seen["first"]["pageSize"]) == (3, 2)
    assert not seen["second"].get("nextPageToken")
    assert [task["id"] for task in seen["waiting"]["tasks"]] == [three]
    assert not any("artifacts" in task for task in seen["first"]["tasks"])
    full = seen["with artifacts"]["tasks"]
    assert [len(task.get("artifacts", ())) for task in full] == [0, 2, 2]
    assert not any("history" in task for task in full)


def test_caller_that_does_not_wait_gets_the_task_at_once_and_finds_it_later(report: dict[str, Any]) -> None:
    told, later, at_work, canceled = saw(report, "return_immediately")
    assert state(told) in ("SUBMITTED", "WORKING", "INPUT_REQUIRED")  # as far as the agent has come by then
    assert (later["id"], state(later)) == (told["id"], "INPUT_REQUIRED")
    assert state(at_work) in ("SUBMITTED", "WORKING")
    assert state(canceled) == "CANCELED"


def test_history_is_as_long_as_asked_for(report: dict[str, Any]) -> None:
    seen = saw(report, "history")
    whole = [message["messageId"] for message in seen["all"]["history"]]
    assert len(whole) == 3
    assert "history" not in seen["0"]
    assert [message["messageId"] for message in seen["1"]["history"]] == whole[-1:]
    assert [message["messageId"] for message in seen["100"]["history"]] == whole
    assert "history" not in seen["sent with 0"]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("get unknown", "TaskNotFoundError"),
        ("cancel unknown", "TaskNotFoundError"),
        ("subscribe unknown", "TaskNotFoundError"),
        ("send unknown", "TaskNotFoundError"),
        ("stream unknown", "TaskNotFoundError"),
        ("cancel finished", "TaskNotCancelableError"),
        ("subscribe finished", "UnsupportedOperationError"),
        ("send finished", "UnsupportedOperationError"),
        ("stream finished", "UnsupportedOperationError"),
        ("media type", "ContentTypeNotSupportedError"),
        ("push", "PushNotificationNotSupportedError"),
        ("no parts", "InvalidParamsError"),
        ("page size", "InvalidParamsError"),
        ("page token", "InvalidParamsError"),
        ("history length", "InvalidParamsError"),
    ],
)
def test_refusal_reaches_the_official_client_as_its_own_error_class(
    report: dict[str, Any], call: str, error: str
) -> None:
    seen = saw(report, "errors")[call]
    assert seen["error"] == error, seen
    assert "HTTP" not in seen["words"]  # our sentence, not one that the client made of the status


def test_rejection_is_a_task_with_words_not_an_error(report: dict[str, Any]) -> None:
    task = saw(report, "rejection")
    assert state(task) == "REJECTED"
    assert words(task).startswith("There is no table: send a CSV file")


def test_every_script_survives_the_way_there_and_back(report: dict[str, Any]) -> None:
    amounts, names = saw(report, "unicode")
    assert data(amounts)["column"] == "金額 💴"
    assert words(amounts) == "金額 💴: 2 numbers in 2 rows, mean 6."
    assert values(names) == [["value", "count"], ["あだ", "1"], ["🦊", "1"]]
    file = amounts["history"][0]["parts"][1]
    assert file["filename"] == "売上 №1.csv"


def test_large_integers_are_exact_in_text_but_the_official_client_rounds_them_in_data(report: dict[str, Any]) -> None:
    task = saw(report, "large_integers")
    assert values(task)[1:] == [["9007199254740993", "1"], ["9007199254740995", "1"]]
    # We write the integer; the SDK reads a data part into google.protobuf.Value, whose only number is a double.
    assert data(task)["min"] == 9007199254740992.0


def test_large_file_is_read_in_full_and_not_echoed(report: dict[str, Any]) -> None:
    for task in saw(report, "large_file"):
        assert data(task)["rows"] == 500_000
        file = task["history"][0]["parts"][1]
        assert (file["raw"], file["metadata"]) == ("", {"omittedBytes": 1_000_002})


def test_no_scenario_is_left_without_a_test(report: dict[str, Any]) -> None:
    source = Path(__file__).read_text()
    assert [name for name in report if name != "binding" and f'"{name}"' not in source] == []
