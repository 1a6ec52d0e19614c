"""Where the driver of a database is not installed, that is said, and nothing else suffers."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
sys.modules["{driver}"] = None  # as if it were not installed
from tieline.stores import open_store
open_store("memory")
try:
    open_store("{url}")
except ValueError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("driver", "url", "extra"),
    [("psycopg", "postgresql://host/database", "postgres"), ("redis", "redis://host", "redis")],
)
def test_a_driver_that_is_missing_is_named_with_the_extra_that_brings_it(driver: str, url: str, extra: str) -> None:
    program = PROGRAM.format(driver=driver, url=url)
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert f"pip install 'tieline[{extra}]'" in said.stdout
