"""Measure tieline against the floor and the official SDK, and print the table. `scripts/bench` runs this.

Each round takes every work in turn, and in it one contestant after the other, each time in a fresh process: what
slows the machine for a while slows them all. The table shows medians over the rounds; a ratio is taken within each
round, and the median of these is shown.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.guarded import GUARDED_WORKS
from benchmarks.load import require_tools
from benchmarks.push import PUSH_WORKS
from benchmarks.raw import WrongAnswer
from benchmarks.servers import CONTESTANTS, CannotRun, allow_many_files, take_cores
from benchmarks.shared_stores import SHARED_WORKS
from benchmarks.works import WORKS, Row, Settings, Work

ALL_WORKS = (*WORKS, *GUARDED_WORKS, *PUSH_WORKS, *SHARED_WORKS)
HEADINGS = ("work", *CONTESTANTS, "of the floor", "times a2a-sdk", "bar")


@dataclass(frozen=True)
class Line:
    """A finished row. A figure or ratio is None where there is nothing to measure or to compare."""

    row: Row
    figures: Mapping[str, float | None]
    of_floor: float | None
    times_sdk: float | None

    def below(self) -> list[str]:
        """The bars that were measured and not reached, in words."""
        row, ours = self.row, self.figures["tieline"]
        missed = []
        if row.of_floor is not None and self.of_floor is not None and self.of_floor < row.of_floor:
            missed.append(f"{_ratio(self.of_floor)} of the floor, at least {row.of_floor:g}")
        if row.times_sdk is not None and self.times_sdk is not None and self.times_sdk < row.times_sdk:
            missed.append(f"{_ratio(self.times_sdk)} times a2a-sdk, at least {row.times_sdk:g}")
        if row.at_least is not None and ours is not None and ours < row.at_least:
            missed.append(f"{_figure(ours, row.unit)}, at least {_figure(row.at_least, row.unit)}")
        if row.at_most is not None and ours is not None and ours > row.at_most:
            missed.append(f"{_figure(ours, row.unit)}, at most {_figure(row.at_most, row.unit)}")
        return missed

    def cells(self) -> list[str]:
        row = self.row
        bars = []
        if row.of_floor is not None:
            bars.append(f"≥ {row.of_floor:g} of the floor")
        if row.times_sdk is not None:
            bars.append(f"≥ {row.times_sdk:g} times")
        if row.at_least is not None:
            bars.append(f"≥ {_figure(row.at_least, row.unit)}")
        if row.at_most is not None:
            bars.append(f"≤ {_figure(row.at_most, row.unit)}")
        bar = ", ".join(bars) + (" (below)" if self.below() else "")
        figures = [_figure(self.figures[name], row.unit) for name in CONTESTANTS]
        return [row.name, *figures, _ratio(self.of_floor), _ratio(self.times_sdk), bar]


def measure(works: Sequence[Work], settings: Settings, rounds: int) -> list[Line]:
    """Take all rounds; say on stderr what is done. A row that nothing could be measured for is left out."""
    taken: dict[str, list[dict[str, float]]] = {row.name: [] for work in works for row in work.rows}
    for number in range(1, rounds + 1):
        for work in works:
            for name, figures in work.measure(settings).items():
                taken[name].append(figures)
                shown = ", ".join(f"{contestant} {figure:,.3g}" for contestant, figure in figures.items())
                print(f"round {number}/{rounds}  {name}: {shown}", file=sys.stderr, flush=True)
    return [line(row, taken[row.name]) for work in works for row in work.rows if any(taken[row.name])]


def line(row: Row, rounds: Sequence[Mapping[str, float]]) -> Line:
    """Medians over the rounds, and medians of the ratios within each."""

    def ratio(other: str) -> float | None:
        if row.unit == "ratio":
            return None
        pairs = [(figures["tieline"], figures[other]) for figures in rounds if {"tieline", other} <= figures.keys()]
        if not pairs:
            return None
        return statistics.median(
            ours / theirs if row.more_is_better else theirs / max(ours, 1e-9) for ours, theirs in pairs
        )

    figures = {
        name: statistics.median(values) if (values := [taken[name] for taken in rounds if name in taken]) else None
        for name in CONTESTANTS
    }
    return Line(row, figures, ratio("floor"), ratio("a2a-sdk"))


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    number = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return number + {"ratio": "", "/s": "/s"}.get(unit, " " + unit)


def _ratio(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def table(lines: Sequence[Line], *, markdown: bool) -> str:
    """The lines under their headings; figures are right-aligned."""
    grid = [list(HEADINGS), *(one.cells() for one in lines)]
    widths = [max(len(row[column]) for row in grid) for column in range(len(HEADINGS))]
    last = len(HEADINGS) - 1

    def cells(row: Sequence[str]) -> list[str]:
        return [
            text.ljust(width) if column in (0, last) else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ]

    if not markdown:
        return "\n".join("  ".join(cells(row)).rstrip() for row in grid)
    rule = ["-" * width if column in (0, last) else "-" * (width - 1) + ":" for column, width in enumerate(widths)]
    return "\n".join("| " + " | ".join(cells(row)) + " |" for row in [grid[0], rule, *grid[1:]])


def circumstances(settings: Settings, rounds: int) -> str:
    """The machine, the versions and the amount of load, as one sentence."""
    info = Path("/proc/cpuinfo").read_text()
    models = [text.partition(":")[2].strip() for text in info.splitlines() if text.startswith("model name")]
    model = models[0] if models else platform.machine()
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("a2a-sdk", "uvicorn", "uvloop"))
    return (
        f"{model}, one core for the server and one for the load; Python {platform.python_version()}, {versions}; "
        f"medians of {rounds} rounds, {settings.seconds:g} s of load each."
    )


def main() -> int:
    """Return the exit code: 0, 1 below a bar with --check, 2 if it cannot run or an answer was wrong."""
    names = [work.name for work in ALL_WORKS]
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measure tieline and print the table.")
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--seconds", type=float, default=4, help="of load, for each figure (default 4)")
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help="one of " + ", ".join(names))
    parser.add_argument("--servers", default=",".join(CONTESTANTS), help="which to measure (default all, by commas)")
    parser.add_argument("--check", action="store_true", help="exit 1 if a bar is not reached")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    arguments = parser.parse_args()
    contestants = arguments.servers.split(",")
    if arguments.rounds < 1 or arguments.seconds < 1 or not set(contestants) <= set(CONTESTANTS):
        parser.error("--rounds and --seconds are at least 1, --servers takes " + ",".join(CONTESTANTS))

    if arguments.check and set(contestants) != set(CONTESTANTS):
        parser.error("--check needs all of --servers")

    works = [work for work in ALL_WORKS if not arguments.only or work.name in arguments.only]
    try:
        require_tools()
        allow_many_files()
        settings = Settings(take_cores(), arguments.seconds, contestants)
        lines = measure(works, settings, arguments.rounds)
    except (CannotRun, WrongAnswer) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    print(table(lines, markdown=arguments.markdown))
    print()
    print(circumstances(settings, arguments.rounds))
    missed = [f"below the bar: {one.row.name}: {words}" for one in lines for words in one.below()]
    if arguments.check and missed:
        print("\n".join(missed), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
