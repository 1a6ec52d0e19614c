"""What others run as agents of ours: each kind has a module, imported when one of its kind is met."""

from __future__ import annotations

import inspect
from typing import Any

__all__ = ["is_executor", "is_official_card"]


def is_executor(value: Any) -> bool:
    """Whether `value`, an object or a class, has the interface of the official SDK's AgentExecutor.

    That is `async execute(context, event_queue)` and `async cancel(context, event_queue)`; the SDK is not imported.
    """
    of = value if inspect.isclass(value) else type(value)
    if inspect.isabstract(of):
        return False
    return _takes_a_turn(getattr(of, "execute", None)) and _takes_a_turn(getattr(of, "cancel", None))


def is_official_card(value: Any) -> bool:
    """Whether `value` is an AgentCard of the official SDK: the protobuf message of A2A 1.0."""
    descriptor = getattr(type(value), "DESCRIPTOR", None)
    return getattr(descriptor, "full_name", None) == "lf.a2a.v1.AgentCard"


def _takes_a_turn(method: Any) -> bool:
    """Whether it is an async method over a context and a queue."""
    if not inspect.iscoroutinefunction(method):
        return False
    try:
        inspect.signature(method).bind(None, None, None)
    except TypeError:
        return False
    return True
