"""A collector of traces: a real HTTP server that takes OTLP and keeps the spans."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

__all__ = ["Collector", "Span", "collecting"]

LIMIT_S = 20.0


class Span(NamedTuple):
    """A span as it has arrived."""

    name: str
    kind: str
    trace: str  # as hex, as the other ids
    id: str
    parent: str  # "" is none
    attributes: Mapping[str, Any]
    failed: bool
    links: tuple[str, ...]  # spans
    service: str
    state: str = ""  # of the trace, as its caller gave it


class Collector:
    """The spans that have come, and the headers that they came with."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self.spans: list[Span] = []
        self.bodies: list[bytes] = []
        self.headers: list[Mapping[str, str]] = []
        self._changed = threading.Condition()

    @property
    def environment(self) -> dict[str, str]:
        """What tells a server to send its spans here, soon."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "50"}

    def take(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Keep what was sent."""
        request = ExportTraceServiceRequest.FromString(body)
        with self._changed:
            self.bodies.append(body)
            self.headers.append(headers)
            for resource in request.resource_spans:
                named = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
                for scope in resource.scope_spans:
                    self.spans += [_span(span, named.get("service.name", "")) for span in scope.spans]
            self._changed.notify_all()

    def wait(self, wanted: Callable[[Span], bool], count: int = 1) -> list[Span]:
        """The spans that are wanted, once there are so many. Blocks."""
        with self._changed:
            found: list[Span] = []

            def enough() -> bool:
                found[:] = [span for span in self.spans if wanted(span)]
                return len(found) >= count

            there = self._changed.wait_for(enough, LIMIT_S)
            assert there, "\n".join(map(str, self.spans))
            return found


def _span(span: Any, service: str) -> Span:
    attributes = {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in span.attributes}
    return Span(
        span.name,
        span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        attributes,
        span.status.code == span.status.STATUS_CODE_ERROR,
        tuple(link.span_id.hex() for link in span.links),
        service,
        span.trace_state,
    )


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on a free port."""

    class Taking(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            collector.take(body, dict(self.headers))
            self.send_response(200 if self.path == "/v1/traces" else 404)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Taking) as server:
        collector = Collector(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
