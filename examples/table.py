"""Summarizes a column of a CSV table: its numbers as data, its most frequent values as a CSV file.

    tieline serve examples/table.py
    tieline send -a 127.0.0.1:8000 --file sales.csv "amount"

The table is a file part, or CSV pasted as text of several lines. Who names no column is asked for it.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from tieline import AgentSkill, Part, Rejected, Role, Turn, agent

STEP_ROWS = 10_000  # between two words about progress; some ten milliseconds of work
QUESTIONS = 3  # asked for the column before giving up
LISTED = 20  # columns named in a question, lines in a chunk of the artifact
PROBLEMS = 5  # reported in words; the others are counted
TOP_VALUES = 1_000  # lines of the CSV artifact
LIMIT = Decimal(10) ** 30  # a cell beyond it is an identifier, not an amount, and would spoil every sum

SKILL = AgentSkill(
    id="summarize-column",
    name="Summarize a column",
    description="Count, sum, mean, minimum and maximum of a column of a CSV table, and its most frequent values.",
    tags=("csv", "table", "statistics"),
    examples=("Summarize the column amount.",),
)


@agent(
    name="Table",
    description="Summarizes a column of a CSV table.",
    skills=(SKILL,),
    # Clients that do not know a file's type say application/octet-stream; what is no CSV is refused in words below.
    input_modes=("text/csv", "text/plain", "application/octet-stream"),
    output_modes=("application/json", "text/csv", "text/plain"),
)
async def table(turn: Turn) -> AsyncGenerator[dict[str, Any], None]:
    # Not of this message alone: when the server was restarted while a question was open, the answer to it begins the
    # agent anew, and the table stands in the history.
    heard = [message for message in (*turn.history, turn.message) if message.role is Role.USER]
    found = table_in([part for message in heard for part in message.parts])
    words = " ".join(part.text for part in turn.parts if part is not found and part.text)
    content = (found.text or "").encode() if found.raw is None else found.raw
    first_line = content[:4096].lstrip().partition(b"\n")[0]
    delimiter = max(",;\t", key=lambda mark: first_line.count(mark.encode()))
    # Decoded while being read, so that a large table is in memory once; -sig: spreadsheets like to begin with a BOM.
    source = io.BytesIO(content)
    rows = csv.reader(io.TextIOWrapper(source, "utf-8-sig", newline=""), delimiter=delimiter, strict=True)
    try:
        header = [name.strip() for name in next((row for row in rows if row), [])]
        if not any(header):
            raise Rejected("The table is empty: its first line has to name the columns.")
        column = await choose(turn, words, header)
        summary = Summary(column, header.index(column), len(header))

        await turn.status(f"Reading the column {column}.")
        for number, row in enumerate(rows, start=1):
            summary.add(row, rows.line_num)
            if number % STEP_ROWS == 0:
                # Not only a courtesy: other callers are served, and a cancel arrives, where an agent awaits.
                await turn.status(f"Read {number:,} rows, {100 * source.tell() // len(content)} %.")
    except UnicodeDecodeError:
        raise Rejected(f"The table is not UTF-8, near line {rows.line_num + 1}: save it as CSV UTF-8.") from None
    except csv.Error as error:
        raise Rejected(f"The table is not CSV in line {rows.line_num}: {error}.") from None

    yield summary.data()
    lines = [("value", "count"), *summary.values.most_common(TOP_VALUES)]
    async with turn.artifact("values.csv", media_type="text/csv") as out:
        for start in range(0, len(lines), LISTED):
            await out.write(as_csv(lines[start : start + LISTED]), last=start + LISTED >= len(lines))
    await turn.complete(summary.sentence())


def table_in(parts: Sequence[Part]) -> Part:
    """The one table among the parts: a file, or pasted text. Raises Rejected."""
    tables = [part for part in parts if part.raw is not None or part.url is not None]
    tables = tables or [part for part in parts if part.text is not None and is_pasted_table(part.text, part.media_type)]
    if not tables:
        raise Rejected("There is no table: send a CSV file, or paste CSV with its header line as text.")
    if len(tables) > 1:
        raise Rejected(f"There are {len(tables)} tables: send one at a time.")
    if tables[0].url is not None:
        raise Rejected("This agent does not fetch URLs: send the content of the file.")
    return tables[0]


def is_pasted_table(text: str, media_type: str | None) -> bool:
    return (media_type or "").startswith("text/csv") or "\n" in text.strip()


async def choose(turn: Turn, words: str, header: Sequence[str]) -> str:
    """The one column that `words` name, or else the caller when asked. Raises Rejected."""
    names = ", ".join(filter(None, header[:LISTED])) + (", ..." if len(header) > LISTED else "")
    asked = 0
    while len(named := columns_in(words, header)) != 1:
        if asked == QUESTIONS:
            raise Rejected(f"No answer named one column. The columns are: {names}.")
        asked += 1
        hint = "I need one column" if asked == 1 else f"I cannot find one column in {words[:50]!r}"
        words = await turn.ask(f"{hint}. Which of these: {names}?")
    if header.count(named[0]) > 1:
        raise Rejected(f"Several columns are called {named[0]!r}: give them different names.")
    return named[0]


def columns_in(words: str, header: Sequence[str]) -> list[str]:
    """The columns whose names stand in `words`, whatever the case; "net price" is not also a mention of "price"."""
    found = []
    for name in sorted({name for name in header if name}, key=len, reverse=True):
        rest = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "\n", words, flags=re.IGNORECASE)
        if rest != words:
            found.append(name)
            words = rest
    return found


class Summary:
    """What is known of a column after some of its rows."""

    def __init__(self, column: str, index: int, width: int) -> None:
        self.column = column
        self.rows = self.numbers = self.empty = self.skipped = 0
        self.total = Decimal(0)
        self.least: Decimal | None = None
        self.greatest: Decimal | None = None
        self.values: Counter[str] = Counter()
        self.problems: list[str] = []
        self._index = index
        self._width = width

    def add(self, row: Sequence[str], line: int) -> None:
        """Take in a row that ends in `line` of the file."""
        if not row:
            return  # a blank line
        self.rows += 1
        if len(row) != self._width:
            # Its cells may stand in the wrong columns. One bad row of a thousand is to be told, not to spoil the rest.
            self._skip(f"line {line} has {len(row)} cells, the header has {self._width}")
            return
        cell = row[self._index].strip()
        self.values[cell] += 1
        if not cell:
            self.empty += 1
        elif (value := number_in(cell)) is None:
            self._skip(f"line {line}: {cell[:50]!r} is not a number")
        else:
            self.numbers += 1
            self.total += value
            self.least = value if self.least is None else min(self.least, value)
            self.greatest = value if self.greatest is None else max(self.greatest, value)

    def _skip(self, problem: str) -> None:
        self.skipped += 1
        if len(self.problems) < PROBLEMS:
            self.problems.append(problem)

    @property
    def mean(self) -> Decimal | None:
        return self.total / self.numbers if self.numbers else None

    def data(self) -> dict[str, Any]:
        """The summary as JSON. Numbers are null where the column has none."""
        return {
            "column": self.column,
            "rows": self.rows,
            "count": self.numbers,
            "sum": as_json(self.total) if self.numbers else None,
            "mean": as_json(self.mean),
            "min": as_json(self.least),
            "max": as_json(self.greatest),
            "distinct": len(self.values),
            "empty": self.empty,
            "skipped": self.skipped,
            "problems": self.problems,  # the first ones
        }

    def sentence(self) -> str:
        told = f"mean {as_json(self.mean)}" if self.numbers else f"{len(self.values):,} different values"
        return f"{self.column}: {self.numbers:,} numbers in {self.rows:,} rows, {told}."


def number_in(cell: str) -> Decimal | None:
    """The cell as a number, exactly (a float would round 2**53 + 1); None when it is none."""
    try:
        value = Decimal(cell)
        return value if abs(value) < LIMIT else None
    except InvalidOperation:  # not a number, or one that is called NaN and cannot be compared
        return None


def as_json(value: Decimal | None) -> int | float | None:
    if value is None:
        return None
    return int(value) if value == value.to_integral_value() else float(value)


def as_csv(lines: Sequence[tuple[str, Any]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(lines)
    return out.getvalue()
