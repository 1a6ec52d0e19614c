"""What a caller has to see of the puppet (peers/puppet.py) in each row of the matrix (peers/rows.py).

An expectation is a value of JSON in which a set stands for any of its members, and ERROR for any error at all: an older
protocol does not say which. `faults` compares; what a row saw beyond its expectation does not matter.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.interop.matrix_peers import GRPC, PEERS, REST
from tests.interop.peers.puppet import DESCRIPTION, FILES, NAME, SKILL, described
from tests.interop.peers.rows import BIG, DATA, FILES_SENT, TEXT, TOKEN

__all__ = ["ROWS", "Cell", "expected", "faults", "offered"]


@dataclass(frozen=True, order=True)
class Cell:
    """One field of the matrix. `role` is what the peer is, "server" or "client"; Tieline is the other."""

    peer: str
    role: str
    binding: str
    row: str

    def __str__(self) -> str:
        return "/".join((self.peer, self.role, self.binding, self.row))


class _Error:
    def __repr__(self) -> str:
        return "an error"


ERROR = _Error()

DONE = {"kind": "task", "state": "COMPLETED", "words": "finished", "artifacts": {"result": "done: hello"}}
FIVE = ["1 ", "2 ", "3 ", "4 ", "5 "]
NUMBERS = json.dumps({"big": BIG, "negative": -BIG, "small": 7}, sort_keys=True)

ROWS: dict[str, Any] = {
    "card": {"name": NAME, "description": DESCRIPTION, "streaming": True, "skills": [SKILL]},
    "message": {"kind": "message", "role": "ROLE_AGENT", "text": "heard: hello"},
    "task": {"ended": DONE, "read": DONE},
    "blocking": DONE,
    "fail": {"kind": "task", "state": "FAILED", "words": "No paper."},
    "stream": {"released at": "1 ", "chunks": FIVE, "last": "COMPLETED", "read": {"count": "".join(FIVE)}},
    "question": {
        "asked": {"state": "INPUT_REQUIRED", "words": "Which colour?"},
        "answered": {"state": "COMPLETED", "artifacts": {"result": "colour: green 🟢"}},
        "same task": True,
        "same context": True,
        "streamed": "INPUT_REQUIRED",
    },
    "cancel": {"answer": "CANCELED", "stream": "CANCELED", "read": "CANCELED"},
    "resubscribe": {"before": FIVE[:1], "after": FIVE[1:], "last": "COMPLETED"},
    "files": {"from the agent": FILES, "at the agent": "".join(map(described, FILES_SENT))},
    "unicode": {"echo": [{"text": TEXT}]},
    "data": {"echo": [{"data": DATA}]},
    "integers": {"at the agent": NUMBERS, "back here": NUMBERS},
    "push": {"made": True, "read": True, "left": ["hook"], "told": "COMPLETED", "token": TOKEN},
    "unknown_task": None,
    "ended_task": None,
    "bearer": {"kind": "message", "role": "ROLE_AGENT", "text": "heard: hello"},
}

# Of REST and gRPC the 0.3 client of Python shows the status alone, and before 1.0 nothing said which status belongs to
# which error: these are what its own server and one of 1.0 give.
STATUSES = {
    REST: {"TaskNotFound": {"HTTP 404"}, "TaskNotCancelable": {"HTTP 409", "HTTP 400"}},
    GRPC: {
        "TaskNotFound": {"gRPC NOT_FOUND"},
        "TaskNotCancelable": {"gRPC FAILED_PRECONDITION", "gRPC UNIMPLEMENTED"},
    },
}
CALLS_OF_FASTA2A = {"get", "send"}
NOT_OF_FASTA2A = {"server": {"message", "push"}, "client": {"cancel", "resubscribe", "push", "bearer"}}
NO_TOKENS = {("py03", REST), ("py03", GRPC)}


def offered(cell: Cell) -> bool:
    """Whether the peer has what the row needs.

    fasta2a gives no Message, has no webhooks, and its client cannot cancel, follow or show a token. py03's
    client calls its interceptors, which show tokens, over JSON-RPC alone. Servers of SDKs check none by themselves.
    """
    if cell.row == "bearer" and (cell.role == "server" or (cell.peer, cell.binding) in NO_TOKENS):
        return False
    return cell.peer != "fasta2a" or cell.row not in NOT_OF_FASTA2A[cell.role]


def expected(cell: Cell) -> Any:
    """What the caller has to see in this cell."""
    version = PEERS[cell.peer].version
    if cell.row == "card" and cell.role == "server":
        spoken = {"spoken": f"{cell.binding} {version}", "spoken when nothing is asked for": f"JSONRPC {version}"}
        return {**ROWS["card"], **spoken, "said": "heard: hello"}
    if cell.row == "push" and (cell.peer, cell.role) == ("py03", "client"):
        return {**ROWS["push"], "left": "not offered"}
    if cell.row not in ("unknown_task", "ended_task"):
        return ROWS[cell.row]
    old = version == "0.3"

    def error(name: str) -> dict[str, Any]:
        names: Any = {name}
        if (cell.peer, cell.role) == ("py03", "client"):
            names = STATUSES.get(cell.binding, {}).get(name, names)
        return {"error": names}

    refusal = {"error": ERROR} if old else error("UnsupportedOperation")
    if cell.row == "unknown_task":
        calls = dict.fromkeys(("get", "send", "cancel", "subscribe"), error("TaskNotFound"))
    else:
        calls = {"send": refusal, "cancel": error("TaskNotCancelable"), "subscribe": refusal}
        if old:
            del calls["subscribe"]  # 0.3 says nothing of it: peers refuse, or give the task and end the stream
    if (cell.peer, cell.role) == ("fasta2a", "client"):
        return {call: value for call, value in calls.items() if call in CALLS_OF_FASTA2A}
    return calls


def faults(expectation: Any, saw: Any, where: str = "") -> list[str]:
    """Where `saw` is not as expected, in words; none when it is."""
    if expectation is ERROR:
        return [f"{where}: no error"] if saw is None else []
    if isinstance(expectation, set):
        return [] if saw in expectation else [f"{where}: {_shown(saw)}, not {' or '.join(sorted(expectation))}"]
    if isinstance(expectation, dict) and isinstance(saw, dict):
        found = []
        for key, value in expectation.items():
            place = f"{where}.{key}" if where else key
            found += faults(value, saw[key], place) if key in saw else [f"{place}: is not there"]
        return found
    if isinstance(expectation, list) and isinstance(saw, list) and len(expectation) == len(saw):
        return [
            fault
            for index, (value, seen) in enumerate(zip(expectation, saw, strict=True))
            for fault in faults(value, seen, f"{where}[{index}]")
        ]
    return [] if expectation == saw else [f"{where}: {_shown(saw)}, not {_shown(expectation)}"]


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:200]}…"
