"""Starts runs of the command as forks of a process that has imported it: each is a process, at a tenth of the time.

Reads a JSON object a line from stdin (`words`, `folder`, `environment`, `limit_s`, `files` for the three
streams) and writes the exit code of each run as a line, negative where a signal ended it. Needs `os.fork`.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from typing import Any

import dotenv  # noqa: F401 - the command imports it late

import tieline.cli.auth
import tieline.cli.card
import tieline.cli.carrying
import tieline.cli.completion
import tieline.cli.config
import tieline.cli.download
import tieline.cli.push
import tieline.cli.send
import tieline.cli.serve
import tieline.cli.signing
import tieline.cli.store
import tieline.signing_keys
import tieline.stores.postgres
import tieline.stores.redis
import tieline.stores.sqlite  # noqa: F401 - commands, stores and what signs are imported when they are used
from tieline.cli.main import main


def become(order: dict[str, Any]) -> None:
    """Make this process the one that a shell would have started."""
    signal.alarm(order["limit_s"])
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    for number, path in enumerate(order["files"]):
        opened = os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(opened, number)
        os.close(opened)
    # As the interpreter makes them where the locale is UTF-8.
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    sys.argv = ["tieline", *order["words"]]


def serve() -> None:
    gc.freeze()  # what is imported is not looked through, and copied, by each run at its end
    for line in iter(sys.stdin.readline, ""):
        child = os.fork()
        if child == 0:
            become(json.loads(line))
            sys.exit(main())
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve()
