"""Load in processes of their own: wrk and calls of gRPC against a server, and a client library against the floor."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.raw import WrongAnswer
from benchmarks.servers import ROOT, CannotRun, Cores, Server

SCRIPT = Path(__file__).with_name("wrk.lua")


def require_tools() -> None:
    for tool, package in (("wrk", "wrk"), ("taskset", "util-linux")):
        if shutil.which(tool) is None:
            raise CannotRun(f"{tool} is missing. On Debian or Ubuntu: apt-get install {package}")


def wrk(
    server: Server,
    body: bytes,
    want: tuple[str, ...],
    *,
    connections: int,
    seconds: float,
    cores: Cores,
    version: str | None = "1.0",
    authorization: str | None = None,
) -> float:
    """Right answers a second. A wrong or lost one raises WrongAnswer. `version` is that of A2A-Version; None: none."""
    before = server.processor_s
    done = subprocess.run(
        [
            *("taskset", "-c", str(cores.load)),
            *("wrk", "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--timeout", "60s"),
            *("-s", str(SCRIPT), f"http://127.0.0.1:{server.port}{server.path}"),
        ],
        env={
            **os.environ,
            "BODY": body.decode(),
            "WANT": "\n".join(want),
            "ACCEPT": "application/json, text/event-stream",
            **({} if version is None else {"VERSION": version}),
            **({} if authorization is None else {"AUTHORIZATION": authorization}),
        },
        capture_output=True,
        text=True,
        timeout=seconds + 120,
    )
    line = next((line for line in done.stdout.splitlines() if line.startswith("JSON ")), None)
    if line is None:
        raise CannotRun(f"wrk failed: {done.stdout}{done.stderr}")
    totals = json.loads(line.removeprefix("JSON "))
    if totals["bad"] or totals["lost"] or not totals["good"]:
        raise WrongAnswer(f"{server.name} under load: {totals} {done.stderr.strip()}")
    busy = (server.processor_s - before) / totals["seconds"]
    if busy < 0.9:
        # Other work on its core, or waiting of its own: for a disk, for timers.
        print(f"note: {server.name} had its core for {busy:.0%} of the time only", file=sys.stderr)
    return float(totals["good"]) / float(totals["seconds"])


def grpc(server: Server, kind: str, *, at_once: int, seconds: float, cores: Cores) -> float:
    """Right answers a second of gRPC; `kind` is message, task or stream. A wrong or lost one raises WrongAnswer."""
    arguments = [f"127.0.0.1:{server.grpc_port}", str(server.pid), kind, str(at_once), str(seconds)]
    done = subprocess.run(
        ["taskset", "-c", str(cores.load), sys.executable, "-m", "benchmarks.grpc_load", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds + 120,
    )
    if done.returncode:
        raise WrongAnswer(f"{server.name} under load of gRPC, {kind}: {done.stderr[-4000:]}")
    found = json.loads(done.stdout)
    if found["server_busy"] < 0.9:
        note = f"note: {server.name} had its core for {found['server_busy']:.0%} of the time only"
        if found["busy"] > 0.9:
            note += "; the load was the limit, it may be faster than shown"
        print(note, file=sys.stderr)
    return float(found["a_second"])


def client(name: str, server: Server, kind: str, *, at_once: int, seconds: float, cores: Cores) -> float:
    """Right answers a second that the client library `name` gets from `server`; `kind` is message or stream."""
    arguments = [name, f"http://127.0.0.1:{server.port}", kind, str(at_once), str(seconds)]
    done = subprocess.run(
        ["taskset", "-c", str(cores.load), sys.executable, "-m", "benchmarks.client_load", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds + 120,
    )
    if done.returncode:
        raise WrongAnswer(f"The client of {name}, {kind}: {done.stderr[-4000:]}")
    found = json.loads(done.stdout)
    if found["busy"] < 0.8:
        print(f"note: the client of {name} waited for the server; it may be faster than shown", file=sys.stderr)
    return float(found["a_second"])
