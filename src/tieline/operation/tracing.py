"""Traces with OpenTelemetry: a span for each request, and one for each stretch of an agent's work (extra `telemetry`).

Spans hold names, ids, states and error classes; nothing that callers or agents have said.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from contextvars import Context, copy_context
from typing import Any, Final

try:
    from opentelemetry import context as otel
    from opentelemetry import trace
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise ImportError(f"Traces need: pip install 'tieline[telemetry]' ({error})") from error

from tieline import __version__
from tieline.errors import A2AError
from tieline.operation.requests import ObservedRequest, ObservedRun, at_work

__all__ = ["Exporting", "Tracing"]

_NAME: Final = "tieline"
_RPC_SYSTEMS: Final = {"jsonrpc": "jsonrpc", "grpc": "grpc", "rest": "http"}
_LAST_S: Final = 2.0
_propagator: Final = TraceContextTextMapPropagator()


class Tracing:
    """Begins and ends spans, with the TracerProvider of the program: the one that is set when the first one begins."""

    def __init__(self) -> None:
        self._tracer = trace.get_tracer(_NAME, __version__)

    # --- requests -----------------------------------------------------------------------------------------------------

    def request_begins(self, request: ObservedRequest, carried: Mapping[str, str]) -> object:
        """Begin the span of a request, in the trace that its headers name; what is given back ends it."""
        parent = _propagator.extract(carried) if "traceparent" in carried else None
        request.span = self._tracer.start_span(request.verb or "gRPC", parent, SpanKind.SERVER)
        return otel.attach(trace.set_span_in_context(request.span, parent))

    def request_ends(self, request: ObservedRequest, token: Any) -> None:
        """End the span of a request: what it was is known now."""
        otel.detach(token)
        span: Span = request.span
        if span.is_recording():
            _describe(span, request)
        span.end()

    # --- runs ---------------------------------------------------------------------------------------------------------

    def taken_up(self, carried: Mapping[str, str]) -> None:
        """What is done from here on, in this context, is part of the trace that these headers name."""
        if "traceparent" in carried:
            otel.attach(_propagator.extract(carried))

    def heard(self, run: ObservedRun) -> None:
        """What the message leads to that has come in belongs to the trace that the program is in."""
        run.parent = otel.get_current()

    def begins(self, run: ObservedRun) -> Context:
        """Begin the span of an agent's work; the context that the agent is to work in."""
        context = copy_context()
        context.run(self._begin, run)
        return context

    def goes_on(self, run: ObservedRun) -> None:
        """Begin a span in the context of an agent that is at work already."""
        self._begin(run)

    def _begin(self, run: ObservedRun) -> None:
        parent = run.parent if run.parent is not None else otel.get_current()
        attributes = {"a2a.agent.name": run.agent, "a2a.task.id": run.task, "a2a.context.id": run.context}
        links = [Link(run.before)] if run.before is not None else []
        run.span = self._tracer.start_span(f"run {run.agent}", parent, SpanKind.INTERNAL, attributes, links)
        run.parent = None
        otel.attach(trace.set_span_in_context(run.span, parent))
        at_work(run)

    def rests(self, run: ObservedRun, state: str, *, failed: bool) -> None:
        """End the span of an agent's work."""
        span, run.span = run.span, None
        if span is None:
            return
        span.set_attribute("a2a.task.state", state)
        if failed:
            span.set_status(Status(StatusCode.ERROR))
            span.set_attribute("error.type", state)
        run.before = span.get_span_context()
        span.end()


def _describe(span: Span, request: ObservedRequest) -> None:
    attributes: dict[str, Any] = {}
    if request.method:
        span.update_name(request.method)
        attributes["rpc.method"] = request.method
        attributes["rpc.system"] = _RPC_SYSTEMS.get(request.binding, request.binding)
        attributes["a2a.binding"] = request.binding
    if request.verb:
        attributes["http.request.method"] = request.verb
    more = {
        "http.response.status_code": request.status,
        "rpc.service": request.agent,
        "a2a.agent.name": request.agent,
        "a2a.dialect": request.dialect,
        "a2a.task.id": request.task,
        "a2a.context.id": request.context,
    }
    attributes |= {name: value for name, value in more.items() if value}
    error = request.error
    if error is not None:
        attributes["error.type"] = error.reason
        if request.binding == "jsonrpc":
            attributes["rpc.jsonrpc.error_code"] = error.rpc_code
    elif request.status is not None and request.status >= 500:
        attributes["error.type"] = str(request.status)
    if _is_ours(error, request.status):
        span.set_status(Status(StatusCode.ERROR))
    span.set_attributes(attributes)


def _is_ours(error: A2AError | None, status: int | None) -> bool:
    """Whether the fault is the server's, as those that a caller makes are no errors of it."""
    return error.http_status >= 500 if error is not None else status is not None and status >= 500


class Exporting:
    """Spans on their way to a collector, by OTLP over HTTP, as the OTEL_* variables say.

    A program that has set a TracerProvider of its own keeps it, and sends its spans itself.
    """

    def __init__(self, service_name: str) -> None:
        self._provider: Any = None
        if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            return
        try:
            from opentelemetry.sdk.resources import SERVICE_NAME, Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
        except ImportError as error:
            raise ImportError(f"Traces need: pip install 'tieline[telemetry]' ({error})") from error
        exporter: SpanExporter | None
        wanted = os.environ.get("OTEL_TRACES_EXPORTER", "otlp").strip() or "otlp"
        if wanted == "none":
            exporter = None
        elif wanted == "console":
            exporter = ConsoleSpanExporter(out=sys.stderr)
        elif wanted == "otlp":
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            exporter = OTLPSpanExporter()
        else:
            raise ValueError(f"OTEL_TRACES_EXPORTER is {wanted!r}: give otlp, console or none")
        named = os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
        resource = Resource.create({} if named else {SERVICE_NAME: service_name})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        if exporter is not None:
            self._provider.add_span_processor(BatchSpanProcessor(exporter))
        trace.set_tracer_provider(self._provider)

    def close(self) -> None:
        """Send what is left, for two seconds at the most. Blocks."""
        if self._provider is None:
            return
        # A collector that does not answer would hold it for half a minute.
        sending = threading.Thread(target=self._provider.shutdown, name="tieline-last-spans", daemon=True)
        sending.start()
        sending.join(_LAST_S)
