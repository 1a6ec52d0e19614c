"""Whose request a proxy passes on."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

__all__ = ["forwarded_for"]

_WITH_PORT: Final = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::\d+)?|([0-9.]+):\d+")


def forwarded_for(values: Iterable[str]) -> str | None:
    """The address that the nearest proxy has seen, of all values of X-Forwarded-For; None where it says none.

    It is the last one: a proxy adds to what its caller has sent, which anybody may write.
    """
    last = ""
    for value in values:
        last = value
    last = last.rpartition(",")[2].strip()
    if (match := _WITH_PORT.fullmatch(last)) is not None:
        last = match[1] or match[2]
    try:
        return str(ipaddress.ip_address(last))
    except ValueError:
        return None
