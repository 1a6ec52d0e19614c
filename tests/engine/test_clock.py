"""Moments that only go up, and the timestamps that are made of them and read."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieline.engine.clock import Clock, parse_timestamp, timestamp

YEARS = st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))


@given(st.lists(st.integers(0, 4 * 10**18), min_size=1, max_size=30))
def test_every_tick_is_later_than_the_one_before_whatever_the_system_clock_does(readings: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock()
        ticks = []
        for reading in readings:
            patch.setattr(time, "time_ns", lambda reading=reading: reading)
            ticks.append(clock.tick())
        moments = [moment for moment, _ in ticks]
        assert moments == sorted(set(moments))
        for moment, text in ticks:
            assert text == timestamp(moment)


def test_a_clock_goes_on_behind_what_a_store_has_seen() -> None:
    clock = Clock()
    ahead = clock.tick()[0] + 3600 * 1_000_000
    clock.not_before(ahead)
    assert clock.tick()[0] == ahead + 1
    clock.not_before(0)
    assert clock.tick()[0] == ahead + 2


@pytest.mark.requirement("time.milliseconds", "time.only-z")
@given(st.integers(0, 253402300799 * 1_000_000))
def test_a_timestamp_is_rfc_3339_in_utc_with_milliseconds_and_is_read_as_its_moment(moment: int) -> None:
    text = timestamp(moment)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", text)
    assert parse_timestamp(text) == moment - moment % 1000


@pytest.mark.requirement("time.read-and-written")
@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:01.5Z", 1_500_000),
        ("1970-01-01T00:00:00.000001Z", 1),
        ("1970-01-01T00:00:00.123456789Z", 123_456),
        ("1970-01-01T00:00:00.1234567Z", 123_456),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T23:30:00.25-00:30", 250_000),
        ("2000-02-29T12:00:00Z", 951_825_600_000_000),
    ],
)
def test_a_timestamp_of_any_precision_and_offset_is_read_as_its_moment(text: str, micros: int) -> None:
    assert parse_timestamp(text) == micros


@pytest.mark.requirement("time.read-and-written")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "1970-01-01",
        "1970-01-01T00:00:00",
        "1970-02-30T00:00:00Z",
        "1970-01-01T25:00:00Z",
        "1970-01-01T00:61:00Z",
        "1970-01-01 00:00:00 UTC",
        "1970-01-01T00:00:00+25:00",
        "0",
        "1970-01-01T00:00:00Z ",
    ],
)
def test_what_is_no_timestamp_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_timestamp(text)
