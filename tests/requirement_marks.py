"""A pytest plugin: tests say which requirements they show.

    @pytest.mark.requirement("send.terminal-task-refused", "stream.terminal-task-refused")

A test that is parametrized by `transport` shows a row on the transport it runs over; any other test shows it on every
transport of the row, or on those that the marker names: `@pytest.mark.requirement("get.idempotent", over=("rest",))`.
Ids that the registry does not have, and transports that a row does not have, stop the collection.

The markers that tests/behaviour chooses stores and transports by are registered here, too: they have to be known before
any of its modules is read.

`--requirements-json FILE` writes `{"shown": {id: {transport: [test id, ...]}}}` of all collected tests.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from tests.requirements import OLDER, TRANSPORTS, Requirement, Transport, load

MARKER = "requirement"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("requirements").addoption(
        "--requirements-json",
        metavar="FILE",
        type=Path,
        help="write which collected tests show which requirements",
    )


_OF_BEHAVIOUR = (
    "stores(*names): the stores that a test of tests/behaviour is run on",
    "not_over(*transports, why): transports, or versions of the protocol, where a test makes no sense",
    "only_in(*versions, why): the versions of the protocol where a test makes sense",
)


def pytest_configure(config: pytest.Config) -> None:
    for line in _OF_BEHAVIOUR:
        config.addinivalue_line("markers", line)
    config.addinivalue_line(
        "markers",
        f"{MARKER}(*ids, over=()): the rows of tests/requirements.toml that this test shows; over: only on these"
        " transports",
    )


# First, so that a test which -k or -m leaves out is still checked and counted.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    rows = {row.id: row for row in load()}
    shown: dict[str, dict[str, list[str]]] = {}
    faults: list[str] = []
    for item in items:
        for marker in item.iter_markers(MARKER):
            try:
                shows = shown_by(rows, marker.args, transport=_transport(item), **marker.kwargs)
            except (TypeError, ValueError) as error:
                faults.append(f"{item.nodeid}: {error}")
                continue
            for requirement_id, transports in shows.items():
                for transport in transports:
                    tests = shown.setdefault(requirement_id, {}).setdefault(transport, [])
                    if item.nodeid not in tests:
                        tests.append(item.nodeid)
    if faults:
        raise pytest.UsageError("wrong requirement markers:\n" + "\n".join(sorted(set(faults))))
    target: Path | None = config.getoption("--requirements-json")
    if target is not None:
        target.write_text(json.dumps({"shown": shown}, indent=1, sort_keys=True), encoding="utf-8")


def shown_by(
    rows: Mapping[str, Requirement],
    ids: Iterable[object],
    *,
    transport: object = None,
    over: Iterable[str] = (),
) -> dict[str, tuple[Transport, ...]]:
    """Return for each id of a marker the transports on which its test shows it.

    `transport` is the one that the test runs over, None when it is not parametrized by one. A row that does not have
    to be shown on it is not shown by this run of the test: one test over all transports may carry rows of fewer.

    Raises:
        ValueError: an id or a transport that is not there, or a transport in `over` that the row does not have.
    """
    if transport is not None and transport not in (*TRANSPORTS, *OLDER):
        raise ValueError(f"transport {transport!r} is none of {TRANSPORTS}")
    if isinstance(over, str):
        raise ValueError(f"over is a tuple of transports, not {over!r}")
    wanted = tuple(over)
    shows: dict[str, tuple[Transport, ...]] = {}
    for requirement_id in ids:
        row = rows.get(requirement_id) if isinstance(requirement_id, str) else None
        if row is None:
            raise ValueError(f"there is no requirement {requirement_id!r}")
        strange = [name for name in wanted if name not in row.over]
        if strange:
            raise ValueError(f"{row.id} is not to be shown over {', '.join(strange)}, only over {', '.join(row.over)}")
        shows[row.id] = tuple(name for name in row.over if (not wanted or name in wanted) and transport in (None, name))
    if not shows:
        raise ValueError("the marker names no requirement")
    return shows


def _transport(item: pytest.Item) -> object:
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get("transport")
