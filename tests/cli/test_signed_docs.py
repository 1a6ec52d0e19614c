"""What docs/signed-cards.md shows is what happens: its commands, in order."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from urllib.request import urlopen

from tests.cli.running import Tieline
from tests.interop.processes import TIELINE, free_port, running

PAGE = Path(__file__).resolve().parents[2] / "docs" / "signed-cards.md"
HELLO = """
from tieline import Turn, agent

@agent(name="Hello", description="Greets people.")
async def hello(turn: Turn):
    yield f"Hello, {turn.text}!"
"""


def test_the_commands_of_the_page_do_what_it_says(bare: Tieline) -> None:
    text = PAGE.read_text()
    commands = [shlex.split(line) for line in re.findall(r"^\$ tieline (.*)$", text, re.MULTILINE)]
    keygen, serve, sign, verify_file, verify, send = commands
    (bare.folder / "hello.py").write_text(HELLO)
    assert bare(*keygen).code == 0
    port = free_port()

    def here(words: list[str]) -> list[str]:
        return [word.replace("127.0.0.1:8000", f"127.0.0.1:{port}") for word in words]

    command: list[str | Path] = [TIELINE, *here(serve), "--port", str(port), "--store", "memory"]
    with running(command, port, bare.folder / "serve.log", bare.folder):
        with urlopen(f"http://127.0.0.1:{port}/.well-known/agent-card.json", timeout=30) as response:
            card = json.load(response)
        checked = bare(*here(verify))
        assert (checked.code, checked.fields["State"]) == (0, "verified"), checked.err
        sent = bare(*here(send))
        assert (sent.code, sent.block("Text")) == (0, "Hello, Ada!"), sent.err
    del card["signatures"]
    (bare.folder / "card.json").write_text(json.dumps(card))
    assert bare(*sign).code == 0
    shown = bare(*verify_file)
    assert shown.code == 0, shown.err
    told = text.split(f"$ tieline {shlex.join(verify_file)}\n")[1].split("```")[0]
    name = json.loads((bare.folder / "keys.json").read_text())["keys"][0]["kid"]
    assert shown.out.replace(name, "Z5Rz...") == told
