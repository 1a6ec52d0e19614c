"""The interop matrix: Tieline and each foreign peer, as server and as client, over each binding, row by row.

    python -m tests.interop.matrix            (scripts/interop does that in the environment of the tests)

A column is a peer, its role and a binding. It is one run of a client against a server that is started once for all
bindings; matrix_expected.py judges what the client saw, and matrix_known.toml names the cells that stay red.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.interop.capture import Recorder
from tests.interop.matrix_expected import ROWS, Cell, expected, faults, offered
from tests.interop.matrix_known import ENTRIES, KNOWN, number_of
from tests.interop.matrix_peers import PEERS, install, missing
from tests.interop.processes import ROOT, TIELINE, free_port, running
from tieline.server.auth.tokens import make_token, write_tokens

__all__ = ["CELLS", "Columns", "Outcome", "known_table", "problem_of"]

CLIENT_LIMIT_S = 240.0
AGENT = ROOT / "tests" / "interop" / "peers" / "tieline_agent.py"
CALLER = [sys.executable, str(ROOT / "tests" / "interop" / "peers" / "tieline_client.py")]

Ports = tuple[int, int]  # of HTTP and gRPC

CELLS = [
    cell
    for peer in PEERS.values()
    for role in ("server", "client")
    for binding in peer.bindings
    for row in ROWS
    if offered(cell := Cell(peer.name, role, binding, row))
]


@dataclass(frozen=True)
class Outcome:
    """What came of a cell: no faults is green."""

    faults: list[str]
    saw: Any

    @property
    def green(self) -> bool:
        return not self.faults


class Columns:
    """Runs columns, each once, and keeps the servers that they need until it is closed.

    Commands find the modules of this folder by PYTHONPATH; nothing of Tieline is on it.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._stack = contextlib.ExitStack()
        self._urls: dict[str, str] = {}
        self._reports: dict[tuple[str, str, str, str], dict[str, Any]] = {}

    def close(self) -> None:
        self._stack.close()

    def outcome(self, cell: Cell) -> Outcome:
        """Run the cell's column where that has not been done, and judge the cell."""
        server = server_of(cell)
        column = (server, cell.peer, cell.role, cell.binding)
        if column not in self._reports:
            others = (replace(cell, row=row) for row in ROWS)
            rows = [other.row for other in others if offered(other) and server_of(other) == server]
            self._reports[column] = run_client(cell, self._url(server), self._place, rows)
        return judged(cell, self._reports[column])

    def _url(self, server: str) -> str:
        if server not in self._urls:
            self._urls[server] = self._stack.enter_context(serving(server, self._place, free_ports()))
        return self._urls[server]


def judged(cell: Cell, report: dict[str, Any]) -> Outcome:
    """The outcome of a cell in what its client printed."""
    told = report[cell.row]
    if "saw" in told:
        return Outcome(faults(expected(cell), told["saw"]), told["saw"])
    if "error" in told:
        return Outcome([f"error: {told['error']}"], told)
    return Outcome(["the client does not offer it"], told)


def server_of(cell: Cell) -> str:
    """The server that a cell's client calls: a peer's name, "tieline", or "guarded", which is the same with tokens."""
    if cell.role == "server":
        return cell.peer
    return "guarded" if cell.row == "bearer" else "tieline"


@contextlib.contextmanager
def serving(server: str, place: Path, ports: Ports) -> Iterator[str]:
    """A server of the matrix (`server_of`); gives its URL. The token of "guarded" is in the file `token` of `place`."""
    port, grpc_port = ports
    if server in ("tieline", "guarded"):
        command = [str(TIELINE), "serve", str(AGENT), "--store", "memory"]
        if server == "guarded":
            command += ["--auth", "bearer", "--tokens", str(with_token(place))]
        command += ["--push", "--push-loopback", "--port", str(port), "--grpc-port", str(grpc_port)]
    else:
        command = [*PEERS[server].server, str(port), str(grpc_port)]
    # `env` lets the program find the modules of this folder.
    command = ["env", f"PYTHONPATH={ROOT}", *command]
    with running(command, port, place / f"{server}.log"):
        yield f"http://127.0.0.1:{port}"


def with_token(place: Path) -> Path:
    """A file of tokens with one token in it; the token itself is in the file `token`."""
    tokens = place / "tokens.jsonl"
    shown, token = make_token("interop")
    write_tokens(tokens, [token])
    (place / "token").write_text(shown)
    return tokens


def free_ports() -> Ports:
    return free_port(), free_port()


def client_command(cell: Cell) -> list[str]:
    return CALLER if cell.role == "server" else PEERS[cell.peer].client


def run_client(cell: Cell, url: str, place: Path, words: Sequence[str] = ()) -> dict[str, Any]:
    """What the client of the cell's column reports; `words` are rows, or another call (see peers/rows.py).

    Raises:
        AssertionError: it failed as a program; with the end of its output.
    """
    command = [*client_command(cell), url, cell.binding, *words]
    log = place / f"{cell.peer}-{cell.role}-{cell.binding.replace('+', '-')}.log"
    with log.open("wb") as errors:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=quiet_environment() | shown_token(place, words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            timeout=CLIENT_LIMIT_S,
            check=False,
        )
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise AssertionError(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout.decode()}{log.read_text()}"
        ) from None
    return report


def shown_token(place: Path, rows: Sequence[str]) -> dict[str, str]:
    """What a client finds the token in, where one is wanted."""
    return {"INTEROP_TOKEN": (place / "token").read_text()} if "bearer" in rows else {}


def quiet_environment() -> dict[str, str]:
    """Ours with PYTHONPATH, and without a proxy: it would be asked for 127.0.0.1."""
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return {**kept, "PYTHONPATH": str(ROOT)}


# --- the command ------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str]) -> int:
    """Print the matrix; 0 when every cell is green or known to be red, 1 when not, 2 when it could not be made."""
    parser = argparse.ArgumentParser(
        prog="scripts/interop",
        description="Run Tieline and the foreign peers against each other and print which cells are green.",
    )
    parser.add_argument("--install", action="store_true", help="install the peers into .interop/ and end")
    parser.add_argument("--markdown", action="store_true", help="print the table for docs/interop.md")
    parser.add_argument("--peer", action="append", choices=PEERS, help="only this peer; may be repeated")
    parser.add_argument("--capture", metavar="CELL", help="show the bytes of one cell: peer/role/binding/row")
    options = parser.parse_args(arguments)
    if options.install:
        install()
        return 0
    if absent := missing():
        print(f"scripts/interop: {', '.join(absent)} not installed; run scripts/interop --install", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="tieline-interop-") as place:
        if options.capture:
            return capture(options.capture, Path(place))
        return show([cell for cell in CELLS if not options.peer or cell.peer in options.peer], Path(place), options)


def show(cells: list[Cell], place: Path, options: argparse.Namespace) -> int:
    columns = Columns(place)
    outcomes: dict[Cell, Outcome] = {}
    try:
        for cell in cells:
            outcomes[cell] = columns.outcome(cell)
    finally:
        columns.close()
    print(table(outcomes, markdown=options.markdown))
    problems: dict[str, list[Cell]] = {}
    for cell, outcome in outcomes.items():
        if problem := problem_of(cell, outcome):
            problems.setdefault(problem, []).append(cell)
    for problem, found in problems.items():
        print(f"\n{', '.join(map(str, found))}\n{problem}", file=sys.stderr)
    unexpected = sum(map(len, problems.values()))
    green = sum(outcome.green for outcome in outcomes.values())
    red = len(outcomes) - green
    print(f"{green} green, {red} red, {unexpected} unexpected", file=sys.stderr)
    return 1 if unexpected else 0


def problem_of(cell: Cell, outcome: Outcome) -> str | None:
    """What is not as it should be with a cell, in words; None when it is green, or red as it is known to be."""
    known = KNOWN.get(cell)
    listed = "\n".join(f"    {fault}" for fault in outcome.faults)
    if known is None:
        return None if outcome.green else f"  is red:\n{listed}"
    if outcome.green:
        return "  is green, but stands in matrix_known.toml: take it out there and in docs/interop.md."
    if not all(any(part in fault for part in known.faults) for fault in outcome.faults):
        return f"  is red, but not as matrix_known.toml says ({', '.join(known.faults)}):\n{listed}"
    return None


def table(outcomes: dict[Cell, Outcome], *, markdown: bool) -> str:
    """The matrix as text: a line for each peer, role and binding, a column for each row of the suite."""
    lines = [["peer", "as", "binding", *(row.replace("_", " ") for row in ROWS)]]
    for peer, role, binding in dict.fromkeys((cell.peer, cell.role, cell.binding) for cell in outcomes):
        marks = []
        for row in ROWS:
            outcome = outcomes.get(cell := Cell(peer, role, binding, row))
            if outcome is None:
                marks.append("-")
            elif outcome.green:
                marks.append("✓")
            else:
                marks.append("RED" if problem_of(cell, outcome) else f"[{number_of(cell)}]")
        lines.append([peer, role, binding, *marks])
    if markdown:
        rows = [f"| {' | '.join(line)} |" for line in lines]
        return "\n".join([rows[0], "|---" * len(lines[0]) + "|", *rows[1:], "", *notes()])
    widths = [max(len(line[index]) for line in lines) for index in range(len(lines[0]))]
    return "\n".join(
        "  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def notes() -> list[str]:
    """A note for each entry of matrix_known.toml, as Markdown."""
    lines = []
    for number, entry in enumerate(ENTRIES, start=1):
        lines += [f"**[{number}]** {_places(entry.cells)}. {entry.why}", "", "```"]
        lines += [*entry.capture.splitlines(), "```", ""]
    return lines[:-1]


def _places(cells: Sequence[Cell]) -> str:
    """Where a note stands: "py10 as server over JSONRPC, GRPC; ...: integers"."""
    found: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        found.setdefault((cell.peer, cell.role), []).append(cell.binding)
    places = "; ".join(
        f"{peer} as {role} over {', '.join(dict.fromkeys(bindings))}" for (peer, role), bindings in found.items()
    )
    return f"*{cells[0].row.replace('_', ' ')}*, {places}"


def known_table() -> str:
    """The matrix as it has to be, for docs/interop.md: every cell green but for those of matrix_known.toml."""
    outcomes = {cell: Outcome(list(KNOWN[cell].faults) if cell in KNOWN else [], None) for cell in CELLS}
    return table(outcomes, markdown=True)


def capture(name: str, place: Path) -> int:
    """Run one cell through a recorder and print what went over the wire, then what the client made of it."""
    cell = next((cell for cell in CELLS if str(cell) == name), None)
    if cell is None:
        print(f"scripts/interop: there is no cell {name!r}; one is {CELLS[0]}", file=sys.stderr)
        return 2
    server = server_of(cell)

    async def record() -> tuple[str, dict[str, Any]]:
        (port, grpc_port), (public, public_grpc) = free_ports(), free_ports()
        async with Recorder({public: port, public_grpc: grpc_port}) as recorder:
            with serving(server, place, (port, grpc_port)):
                url = f"http://127.0.0.1:{public}"
                report = await asyncio.to_thread(run_client, cell, url, place, [cell.row])
        return recorder.text(), report

    text, report = asyncio.run(record())
    print(text)
    outcome = judged(cell, report)
    print(f"--- {cell}: {'green' if outcome.green else 'red'}")
    print("\n".join(outcome.faults))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
