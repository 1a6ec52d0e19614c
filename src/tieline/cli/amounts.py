"""Durations and sizes: as options take them, and as people are told them."""

from __future__ import annotations

import re
from typing import Final

import click

from tieline.cli.settings import read_duration

__all__ = ["read_lease", "read_limit", "read_seconds", "read_size", "seconds_of", "told_size"]

_SIZE: Final = re.compile(r"(\d+)\s*(k|m|g|t|)(?:i?b)?", re.IGNORECASE)
_FACTORS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def seconds_of(text: str) -> float | None:
    """Seconds in a duration, 0 among them; None for `none`. Raises ValueError."""
    return 0.0 if text.strip() in ("0", "0s") else read_duration(text)


def read_seconds(context: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """A duration as seconds; None for `none`, and for an option that is not given."""
    try:
        return None if value is None else seconds_of(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def read_limit(context: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """As `read_seconds`, and more than 0."""
    seconds = read_seconds(context, param, value)
    if seconds == 0:
        raise click.BadParameter("must be more than 0, or none")
    return seconds


def read_lease(context: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """As `read_seconds`, and 5 s at least."""
    from tieline.engine.replica import LEAST_LEASE_S

    seconds = read_seconds(context, param, value)
    if seconds is None or seconds < LEAST_LEASE_S:
        raise click.BadParameter(f"must be {LEAST_LEASE_S:g}s or more")
    return seconds


def read_size(context: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """A number of bytes, more than 0; None for an option that is not given."""
    if value is None:
        return None
    match = _SIZE.fullmatch(value.strip())
    if match is None or not int(match.group(1)):
        raise click.BadParameter(f"{value!r} is not a number of bytes, such as 1000000 or 64M")
    return int(match.group(1)) * _FACTORS[match.group(2).lower()]


def told_size(count: int) -> str:
    """A number of bytes for people: `812 bytes`, `1.4 MiB`."""
    if count < 1 << 10:
        return "1 byte" if count == 1 else f"{count} bytes"
    size, unit = count / (1 << 10), "KiB"
    for larger in ("MiB", "GiB", "TiB"):
        if size < 1 << 10:
            break
        size, unit = size / (1 << 10), larger
    return f"{size:.1f} {unit}"
