"""Timestamps (A2A 1.0 §5.6.1)."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.behaviour.harness import refused
from tests.behaviour.serving import Serve, over
from tieline import TaskState, TaskStatus, Turn

WRITTEN = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def timestamps(value: Any) -> Iterator[Any]:
    """Every timestamp in a result."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "timestamp":
                yield item
            else:
                yield from timestamps(item)
    elif isinstance(value, list):
        for item in value:
            yield from timestamps(item)


async def with_its_own_clock(turn: Turn) -> AsyncGenerator[Any, None]:
    """Says when, in another zone."""
    yield TaskStatus(TaskState.WORKING, timestamp="2001-02-03T04:05:06+07:00")
    yield await turn.ask("And?")


@pytest.mark.requirement("time.iso-8601-utc", "time.milliseconds", "time.only-z")
async def test_every_timestamp_is_in_utc_with_milliseconds_and_z_and_tells_the_time(serve: Serve) -> None:
    agent = await serve(with_its_own_clock)
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    events = [await anext(stream := await agent.stream("x"))]
    events += await stream.until("INPUT_REQUIRED")
    task_id = events[0]["task"]["id"]
    answers = [
        *events,
        await agent.get(task_id),
        await agent.list(),
        await agent.cancel(task_id),
        await agent.task("x", configuration={"returnImmediately": True}),
    ]
    found = list(timestamps(answers))
    assert len(found) >= len(answers)
    assert all(isinstance(each, str) and WRITTEN.fullmatch(each) for each in found)
    moments = [datetime.fromisoformat(each) for each in found]
    assert all(before <= moment <= datetime.now(UTC) + timedelta(seconds=1) for moment in moments)
    times = [datetime.fromisoformat(each) for each in timestamps(events)]
    assert times == sorted(times)


def digits(moment: datetime, count: int) -> str:
    """A moment with `count` digits of a fraction."""
    text = moment.strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f"{moment.microsecond:06d}000"[:count]
    return f"{text}.{fraction}Z" if count else f"{text}Z"


@pytest.mark.requirement("time.read-and-written", "time.iso-8601-utc")
@pytest.mark.parametrize("count", range(10))
async def test_a_timestamp_with_up_to_nine_digits_is_the_instant_that_it_is(serve: Serve, count: int) -> None:
    agent = await serve(with_its_own_clock)
    task = await agent.task("x")
    told = datetime.fromisoformat(task["status"]["timestamp"])

    async def listed(after: str) -> int:
        size: int = (await agent.list(statusTimestampAfter=after))["totalSize"]
        return size

    assert await listed(digits(told, count)) == 1  # cut off, so no later than the task's own
    assert await listed(digits(told - timedelta(seconds=1), count)) == 1
    assert await listed(digits(told + timedelta(seconds=1, milliseconds=1), count)) == 0


@pytest.mark.requirement("time.read-and-written")
async def test_a_filter_tells_milliseconds_apart(serve: Serve) -> None:
    agent = await serve(with_its_own_clock)
    task = await agent.task("x")
    told = datetime.fromisoformat(task["status"]["timestamp"])
    assert (await agent.list(statusTimestampAfter=digits(told + timedelta(milliseconds=1), 3)))["totalSize"] == 0


@pytest.mark.requirement("time.read-and-written")
@pytest.mark.parametrize("zone", ["+00:00", "-00:00", "+05:30", "-12:00", "+23:59"])
async def test_a_timestamp_with_an_offset_is_read_as_the_instant_that_it_is(serve: Serve, zone: str) -> None:
    agent = await serve(with_its_own_clock)
    task = await agent.task("x")
    told = datetime.fromisoformat(task["status"]["timestamp"])
    offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[4:])) * (-1 if zone[0] == "-" else 1)
    for moved, size in ((timedelta(0), 1), (timedelta(milliseconds=1), 0)):
        local = (told + moved + offset).strftime("%Y-%m-%dT%H:%M:%S.%f") + zone
        assert (await agent.list(statusTimestampAfter=local))["totalSize"] == size


@pytest.mark.requirement("time.read-and-written")
@pytest.mark.parametrize(
    "text",
    [
        "yesterday",
        "2025",
        "2025-10-28",
        "2025-10-28T10:30:00",
        "2025-13-01T00:00:00Z",
        "2025-02-30T00:00:00Z",
        "2025-10-28T25:00:00Z",
        "2025-10-28T10:61:00Z",
        "2025-10-28T10:30:61Z",
        "2025-10-28T10:30:00.Z",
        "2025-10-28T10:30:00+25:00",
        "2025-10-28T10:30:00Z ",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
        "10000-01-01T00:00:00Z",
        "1761647400",
        "2025-10-28T10:30:00.1234567890123Z",
        "\uff12025-10-28T10:30:00Z",
        "\u0000",
    ],
)
async def test_an_impossible_timestamp_is_refused_by_the_name_of_its_field(serve: Serve, text: str) -> None:
    agent = await serve(with_its_own_clock)
    with refused("InvalidParamsError") as refusal:
        await agent.list(statusTimestampAfter=text)
    assert list(refusal.violations) == ["statusTimestampAfter"]


@pytest.mark.requirement("time.read-and-written")
@pytest.mark.parametrize(
    "text", ["0001-01-01T00:00:00Z", "1969-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59.999999999Z"]
)
async def test_the_first_and_the_last_timestamp_are_read(serve: Serve, text: str) -> None:
    agent = await serve(with_its_own_clock)
    await agent.task("x")
    assert (await agent.list(statusTimestampAfter=text))["totalSize"] == (0 if text.startswith("9999") else 1)


@over("jsonrpc", "direct")
@pytest.mark.parametrize("value", [5, 1.5, True, {}, ["2025-10-28T10:30:00Z"]])
async def test_a_timestamp_that_is_no_string_is_refused(serve: Serve, value: Any) -> None:
    agent = await serve(with_its_own_clock)
    with refused("InvalidParamsError") as refusal:
        await agent.list(statusTimestampAfter=value)
    assert list(refusal.violations) == ["statusTimestampAfter"]
