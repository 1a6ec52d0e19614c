"""The trace that the program is in, where it uses OpenTelemetry: carried to the agents that it calls, named in its log.

A program that traces has loaded OpenTelemetry's API. Where it has not there is no trace, and nothing is loaded here.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

__all__ = ["carried", "current_ids"]

_TRACE: Final = "opentelemetry.trace"
_NOTHING: Final[Mapping[str, str]] = {}


def carried() -> Mapping[str, str]:
    """The headers of W3C Trace Context (`traceparent`, `tracestate`) for a call that is made now; {} without a trace.

    Baggage is not carried: it may hold what other agents are not to know.
    """
    if _TRACE not in sys.modules:
        return _NOTHING
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers)
    return headers


def current_ids() -> tuple[str, str] | None:
    """The ids of the trace and the span that the program is in, as hex; None without a trace."""
    trace = sys.modules.get(_TRACE)
    if trace is None:
        return None
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"
