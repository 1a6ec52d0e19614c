"""One server and callers of every kind: who asks, who answers and who reads need not speak the same version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.interop.matrix import free_ports, run_client, serving
from tests.interop.matrix_expected import Cell
from tests.interop.matrix_peers import GRPC, JSONRPC, REST

CALLERS = [
    ("py03", JSONRPC),
    ("js10", GRPC),
    ("js03", REST),
    ("py10", REST),
    ("py03", GRPC),
    ("js03", JSONRPC),
]


@pytest.mark.usefixtures("installed")
def test_a_task_that_one_peer_began_is_answered_by_another_and_read_by_a_third(tmp_path: Path) -> None:
    def call(caller: tuple[str, str], url: str, *words: str) -> dict[str, Any]:
        peer, binding = caller
        saw: dict[str, Any] = run_client(Cell(peer, "client", binding, "mixed"), url, tmp_path, words)["saw"]
        return saw

    with serving("tieline", tmp_path, free_ports()) as url:
        asked = call(CALLERS[-1], url, "say", "ask")
        for caller, reader in zip(CALLERS, CALLERS[1:] + CALLERS[:1], strict=True):
            assert (asked["state"], asked["words"]) == ("INPUT_REQUIRED", "Which colour?")
            answered = call(caller, url, "say", f"as {caller[0]} likes", asked["id"], asked["context"])
            assert (answered["id"], answered["state"]) == (asked["id"], "COMPLETED")
            assert answered["artifacts"] == {"result": [{"text": f"colour: as {caller[0]} likes"}]}
            assert call(reader, url, "read", asked["id"]) == answered
            asked = call(caller, url, "say", "ask")
