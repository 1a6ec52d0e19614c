"""A bar on stderr for work that takes long. It holds counts alone, nothing that would have to be kept secret."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

__all__ = ["bar", "on_terminal"]


def on_terminal() -> bool:
    """Whether somebody sees a bar."""
    return sys.stderr is not None and sys.stderr.isatty()


@contextmanager
def bar(label: str, length: int | None = None) -> Iterator[Callable[[int, str], None]]:
    """A bar that is called with how far it is and a word on it; nothing where stderr is no terminal.

    `length` None: it is not known how far that has to go.
    """
    if not on_terminal():
        yield lambda at, said: None
        return
    steps = itertools.count() if length is None else range(length)
    with click.progressbar(
        steps,
        length=length,
        label=label,
        item_show_func=lambda said: str(said or ""),
        file=sys.stderr,
    ) as shown:
        yield lambda at, said: shown.update(at - shown.pos, said)  # type: ignore[arg-type] # a word, for a step
