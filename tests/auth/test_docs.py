"""docs/authentication.md does what it says."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.interop.processes import ROOT
from tests.test_readme import Reader

PAGE = ROOT / "docs" / "authentication.md"
HELLO = """
from tieline import Turn, agent

@agent(name="Hello", description="Greets people.")
async def hello(turn: Turn):
    yield f"Hello, {turn.text}!"
"""


def test_page_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    Path("hello.py").write_text(HELLO)
    with contextlib.ExitStack() as servers:
        reader = Reader(servers)
        reader.follow(PAGE.read_text(encoding="utf-8"))
        assert reader.ran == 10
        assert "Hello, Ada!" in reader.transcript
        assert Path("ada.token").stat().st_mode & 0o777 == 0o600
        assert Path("ada.token").read_text().strip() not in reader.transcript
