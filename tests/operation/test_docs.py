"""docs/operating.md says what is so: its commands work, its options and metrics are there, and all of them are told."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.engine.scene import within
from tests.operation.serving import fetch, serving
from tieline.operation.logs import FIELDS
from tieline.operation.metrics import Metrics

ROOT = Path(__file__).parents[2]
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
PAGE = (ROOT / "docs" / "operating.md").read_text()


def commands() -> Iterator[str]:
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL):
        yield from (line for line in block.splitlines() if line.startswith("tieline serve"))


@pytest.mark.parametrize("command", list(commands()))
@within(60)
async def test_a_command_of_the_page_serves(command: str, tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "hello.py", tmp_path)
    _, _, _, *options = shlex.split(command)
    source = (ROOT / "examples" / "hello.py").read_text()
    options = ["0" if option == "9090" else option for option in options]  # that port may be taken
    async with serving(tmp_path, *options, source=source) as here:
        await here.ready()
        assert (await fetch(f"{here.ops or here.url}/readyz")).status == 200


def test_every_option_of_the_page_is_one_and_every_one_of_the_operators_is_told() -> None:
    command = [sys.executable, "-m", "tieline", "serve", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    told = set(OPTION.findall(PAGE))
    assert told <= set(OPTION.findall(shown))
    ours = "--drain-delay --ops-port --ops-host --metrics --otel --log-format --log-level --access-log"
    assert set(ours.split()) <= told


def test_every_metric_is_told_and_every_one_that_is_told_is_there() -> None:
    page, _ = Metrics(lambda: (), lambda: 0).page("")
    there = {family.name.removesuffix("_total") for family in text_string_to_metric_families(page.decode())}
    first_cells = "".join(re.findall(r"^\| .*? \|", PAGE, re.MULTILINE))
    told = {name.removesuffix("_total") for name in re.findall(r"`(tieline_\w+)`", first_cells)}
    assert told == {name for name in there if name.startswith("tieline_") and not name.endswith("_created")}


def test_every_field_of_the_log_is_told() -> None:
    own = {"urls", "grpc", "ops", "store"}  # of the one event that says where it serves
    assert all(f"`{name}`" in PAGE for name in set(FIELDS) - own)
