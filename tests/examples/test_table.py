"""examples/table.py: what it answers, what it asks, and its words for input that it cannot use."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from examples.table import QUESTIONS, STEP_ROWS, TOP_VALUES, table
from tests.examples.calls import Agent, answer_of, artifact, run
from tieline import Part, Task, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent
from tieline.types import encode

SALES = b"name,amount,net amount\nAda,10,8\nGrace,2.5,2\nEdsger,10,n/a\nBarbara,,7\n"


def words_of(task: Task) -> str:
    return task.status.message.text if task.status.message else ""


def one_answer(*content: str | bytes | Part) -> Task:
    """The task after one message."""

    async def scenario() -> Task:
        async with Agent(table) as agent:
            return await agent.send(*content)

    return run(scenario())


def refused(*content: str | bytes | Part) -> str:
    """The agent's words after it has rejected one message."""
    task = one_answer(*content)
    assert task.state is TaskState.REJECTED, task
    assert not task.artifacts
    return words_of(task)


# --- answers ----------------------------------------------------------------------------------------------------------


def test_file_and_column_give_data_a_csv_file_and_a_sentence() -> None:
    task = one_answer("What about the amount?", SALES)
    assert task.state is TaskState.COMPLETED
    assert answer_of(task) == {
        "column": "amount",
        "rows": 4,
        "count": 3,
        "sum": 22.5,
        "mean": 7.5,
        "min": 2.5,
        "max": 10,
        "distinct": 3,
        "empty": 1,
        "skipped": 0,
        "problems": [],
    }
    values = artifact(task, "values.csv").parts
    assert [(part.text, part.media_type) for part in values] == [("value,count\n10,2\n2.5,1\n,1\n", "text/csv")]
    assert words_of(task) == "amount: 3 numbers in 4 rows, mean 7.5."


@pytest.mark.parametrize(
    "content",
    [
        (Part(raw=b"a,b\n1,2\n", media_type="application/octet-stream"), "b"),
        (Part(raw=b"a,b\n1,2\n"), "b"),
        ("b", Part(raw=b"\xef\xbb\xbfa,b\r\n1,2\r\n", media_type="text/csv; charset=utf-8")),
        ("a,b\n1,2\n", "b"),
        ("b", Part(text="a;b\n1;2", media_type="text/csv")),
        ("b", b"\n\na\tb\n1\t2\n\n"),
        ("b", b"a,b\r1,2\r"),
    ],
    ids=[
        "octets",
        "no-type",
        "bom-and-crlf",
        "pasted",
        "pasted-semicolons",
        "blank-lines-and-tabs",
        "carriage-returns",
    ],
)
def test_table_is_found_however_it_is_sent(content: tuple[str | Part | bytes, ...]) -> None:
    answer = answer_of(one_answer(*content))
    assert (answer["column"], answer["rows"], answer["sum"]) == ("b", 1, 2)


def test_quoted_cells_hold_commas_quotes_and_line_breaks() -> None:
    task = one_answer("note", b'note,n\n"one\nor, ""two""",1\nplain,2\n')
    assert answer_of(task)["rows"] == 2
    lines = list(csv.reader(io.StringIO(artifact(task, "values.csv").text)))
    assert lines == [["value", "count"], ['one\nor, "two"', "1"], ["plain", "1"]]


def test_longest_name_in_the_words_is_meant_whatever_its_case() -> None:
    assert answer_of(one_answer("the NET Amount, please", SALES))["column"] == "net amount"


def test_names_in_any_script_are_found() -> None:
    assert answer_of(one_answer("そして 金額 は", "名前,金額\nあ,5\n".encode()))["sum"] == 5
    assert answer_of(one_answer("Größe", "GRÖSSE,größe\n1,2\n".encode()))["sum"] == 2


def test_cells_that_are_no_numbers_and_ragged_rows_are_reported_not_hidden() -> None:
    task = one_answer("n", b"n,x\n1,a\nmany,b\nNaN,c\n2\n3,d,e\n1e999,f\n4,g\n")
    answer = answer_of(task)
    assert (answer["rows"], answer["count"], answer["sum"], answer["skipped"]) == (7, 2, 5, 5)
    assert answer["problems"] == [
        "line 3: 'many' is not a number",
        "line 4: 'NaN' is not a number",
        "line 5 has 1 cells, the header has 2",
        "line 6 has 3 cells, the header has 2",
        "line 7: '1e999' is not a number",
    ]


def test_column_without_numbers_has_null_where_numbers_would_be() -> None:
    answer = answer_of(one_answer("name", SALES))
    assert (answer["count"], answer["sum"], answer["mean"], answer["min"], answer["max"]) == (0, None, None, None, None)
    assert answer["distinct"] == 4


def test_table_without_rows_is_answered_with_zero() -> None:
    answer = answer_of(one_answer("b", b"a,b\n"))
    assert (answer["rows"], answer["count"], answer["mean"]) == (0, 0, None)


def test_sums_are_exact_and_integers_stay_integers() -> None:
    answer = answer_of(one_answer("n", b"n\n9007199254740993\n18446744073709551615\n"))
    assert answer["min"] == 9007199254740993
    assert answer["sum"] == 18455751272964292608
    assert b'"sum":18455751272964292608' in encode(answer)
    assert answer_of(one_answer("n", b"n\n" + b"0.1\n" * 10))["sum"] == 1


def test_most_frequent_values_come_first_and_not_too_many_of_them() -> None:
    content = "id\n" + "".join(f"{number}\n" for number in range(TOP_VALUES + 10)) + "7\n"
    lines = artifact(one_answer("id", content.encode()), "values.csv").text.splitlines()
    assert lines[:3] == ["value,count", "7,2", "0,1"]
    assert len(lines) == 1 + TOP_VALUES


# --- questions --------------------------------------------------------------------------------------------------------


def test_column_that_no_word_names_is_asked_for_by_naming_the_columns() -> None:
    async def scenario() -> None:
        async with Agent(table) as agent:
            task = await agent.send(SALES)
            assert task.state is TaskState.INPUT_REQUIRED
            assert words_of(task) == "I need one column. Which of these: name, amount, net amount?"
            task = await agent.send("amount", task=task)
            assert task.state is TaskState.COMPLETED
            assert answer_of(task)["column"] == "amount"

    run(scenario())


def test_answer_is_understood_by_a_server_that_was_started_again_meanwhile(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = f"sqlite:{tmp_path / 'tasks.db'}"
        async with Agent(table, store) as agent:
            task = await agent.send("name or amount?", SALES)
        async with Agent(table, store) as agent:
            again = await agent.send("colour", task=task)
            assert words_of(again).startswith("I need one column. Which of these")
        async with Agent(table, store) as agent:
            done = await agent.send("amount", task=task)
            assert (done.id, done.state) == (task.id, TaskState.COMPLETED)
            assert answer_of(done)["sum"] == 22.5

    run(scenario())


def test_answer_that_names_no_column_or_two_is_asked_again_and_then_rejected() -> None:
    async def scenario() -> None:
        async with Agent(table) as agent:
            task = await agent.send("name or amount?", SALES)
            for answer in ("colour", "name and amount", "none")[: QUESTIONS - 1]:
                assert task.state is TaskState.INPUT_REQUIRED
                task = await agent.send(answer, task=task)
                assert f"in {answer!r}" in words_of(task)
            task = await agent.send("none", task=task)
            assert task.state is TaskState.REJECTED
            assert words_of(task) == "No answer named one column. The columns are: name, amount, net amount."

    run(scenario())


def test_question_about_a_very_wide_table_stays_short() -> None:
    header = ",".join(f"column{number}" for number in range(5_000))
    task = one_answer(f"{header}\n".encode() + b"1\n")
    assert task.state is TaskState.INPUT_REQUIRED
    assert words_of(task).endswith("column19, ...?")


# --- progress and cancel ----------------------------------------------------------------------------------------------


def test_progress_then_data_then_the_file_in_chunks_are_streamed() -> None:
    async def scenario() -> None:
        content = b"n\n" + b"".join(b"%d\n" % number for number in range(2 * STEP_ROWS))
        async with Agent(table) as agent:
            events = [event async for event in agent.stream("n", content)]
        told = [event.status.message for event in events if isinstance(event, TaskStatusUpdateEvent)]
        words = [message.text for message in told if message]
        assert words[0] == "Reading the column n."
        assert [text.split(" %")[0][:17] for text in words[1:3]] == ["Read 10,000 rows,", "Read 20,000 rows,"]
        assert words[-1] == "n: 20,000 numbers in 20,000 rows, mean 9999.5."
        chunks = [event for event in events if isinstance(event, TaskArtifactUpdateEvent)]
        assert json.loads(encode(chunks[0].artifact.parts[0].data))["rows"] == 2 * STEP_ROWS
        file = chunks[1:]
        assert len(file) > 10
        assert [chunk.append for chunk in file] == [False] + [True] * (len(file) - 1)
        assert [chunk.last_chunk for chunk in file] == [False] * (len(file) - 1) + [True]

    run(scenario())


def test_cancel_stops_the_reading() -> None:
    async def scenario() -> None:
        content = b"n\n" + b"1\n" * (50 * STEP_ROWS)
        async with Agent(table) as agent:
            rows = 0
            async for event in agent.stream("n", content):
                if isinstance(event, TaskStatusUpdateEvent) and event.status.message:
                    rows += "rows" in event.status.message.text
                    if rows == 1:
                        canceled = await agent.cancel(event.task_id)
                assert not isinstance(event, TaskArtifactUpdateEvent)
            assert canceled.state is TaskState.CANCELED
            assert 1 <= rows < 50
            assert not agent.service.busy

    run(scenario())


# --- input that cannot be used ----------------------------------------------------------------------------------------


def test_message_without_a_table_says_what_to_send() -> None:
    assert refused("amount") == "There is no table: send a CSV file, or paste CSV with its header line as text."


def test_two_tables_are_not_guessed_between() -> None:
    assert refused("n", b"n\n1\n", b"n\n2\n") == "There are 2 tables: send one at a time."


def test_url_is_not_fetched() -> None:
    words = refused("n", Part(url="https://example.com/t.csv", media_type="text/csv"))
    assert words == "This agent does not fetch URLs: send the content of the file."


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf", b" , ,\n1,2,3\n"])
def test_empty_table_says_what_a_table_begins_with(content: bytes) -> None:
    assert refused("n", content) == "The table is empty: its first line has to name the columns."


def test_other_encodings_are_named_as_such() -> None:
    assert "not UTF-8, near line 1" in refused("n", "näme,n\n".encode("latin-1"))
    assert "not UTF-8" in refused("n", "name,n\n".encode("utf-16"))
    late = b"n\n" + b"1\n" * 50_000 + b"\xff\n"
    assert "not UTF-8, near line" in refused("n", late)


def test_malformed_csv_is_refused_with_its_line() -> None:
    assert refused("n", b'n\n1\n"2\n3\n').startswith("The table is not CSV in line 4: unexpected end of data")
    assert refused("n", b'n\n"1"2\n').startswith("The table is not CSV in line 2:")
    assert "field larger than field limit" in refused("n", b"n\n" + b"x" * 200_000)


def test_two_columns_of_one_name_are_not_guessed_between() -> None:
    assert refused("n", b"n,n\n1,2\n") == "Several columns are called 'n': give them different names."
