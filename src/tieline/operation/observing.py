"""Looks on while requests are answered and agents are at work, and tells the log, the traces and the metrics."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextvars import Context, copy_context
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from tieline.engine.observer import PushOutcome
from tieline.operation.logs import ACCESS
from tieline.operation.requests import ObservedRequest, ObservedRun, at_work, current_request, serving, serving_no_more
from tieline.operation.trace_context import carried, current_ids
from tieline.types import TaskState

if TYPE_CHECKING:
    from tieline.engine.run import Run
    from tieline.operation.metrics import Metrics
    from tieline.operation.tracing import Tracing

__all__ = ["Observer", "Telemetry"]

_access: Final = logging.getLogger(ACCESS)
_CARD_PATHS: Final = ("/.well-known/agent-card.json", "/.well-known/agent.json")
_CARD: Final = "GetAgentCard"
_CANCELLED: Final = "CANCELLED"
_BROKEN: Final = "INTERNAL_ERROR"
_PARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(?:-[\x20-\x7e]{0,400})?")
_STATE_CHARACTERS: Final = 512
_STATE_MEMBERS: Final = 32

Asgi = Callable[..., Awaitable[None]]
T = TypeVar("T")


class Telemetry(msgspec.Struct, frozen=True):
    """What an app tells of itself. What is off costs nothing."""

    traces: bool = False  # spans, by the TracerProvider that the program has set (extra `telemetry`)
    metrics: bool = False  # for Prometheus, at /metrics (extra `telemetry`)
    access_log: bool = False  # a line for each request: logger "tieline.access", level INFO
    log_context: bool = False  # JsonFormatter names request, agent and task on whatever is logged meanwhile

    @property
    def any(self) -> bool:
        """Whether anything is on."""
        return self.traces or self.metrics or self.access_log or self.log_context

    def with_(self, other: Telemetry) -> Telemetry:
        """What either of two wants."""
        return Telemetry(
            self.traces or other.traces,
            self.metrics or other.metrics,
            self.access_log or other.access_log,
            self.log_context or other.log_context,
        )


class Observer:
    """An app's: see EngineObserver for what the engine tells."""

    def __init__(self, *, tracing: Tracing | None, metrics: Metrics | None, access_log: bool) -> None:
        self.metrics = metrics
        self._tracing = tracing
        self._access_log = access_log

    # --- requests -----------------------------------------------------------------------------------------------------

    async def http(
        self,
        app: Asgi,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        """Have `app` answer a request over HTTP."""
        client = scope.get("client")
        request = ObservedRequest(
            perf_counter(),
            verb=scope["method"],
            path=scope["path"],
            client=str(client[0]) if client else "",
        )

        async def noted(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                request.status = message["status"]
            await send(message)

        trace: Mapping[str, str] = {}
        if self._tracing is not None:
            trace = _trace_of((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"])
        await self._watch(request, trace, app(scope, receive, noted))

    async def rpc(
        self,
        request: ObservedRequest,
        metadata: Iterable[tuple[str, Any]],
        answer: Awaitable[T],
    ) -> T:
        """Answer a call over gRPC."""
        return await self._watch(request, _trace_of(metadata) if self._tracing is not None else {}, answer)

    async def _watch(self, request: ObservedRequest, trace: Mapping[str, str], answer: Awaitable[T]) -> T:
        serves = serving(request)
        token = None if self._tracing is None else self._tracing.request_begins(request, trace)
        try:
            return await answer
        except asyncio.CancelledError:
            request.outcome = _CANCELLED
            raise
        except Exception:
            request.outcome = _BROKEN
            raise
        finally:
            self._ended(request)
            if self._tracing is not None:
                self._tracing.request_ends(request, token)
            serving_no_more(serves)

    def _ended(self, request: ObservedRequest) -> None:
        seconds = perf_counter() - request.began
        request.settle()
        if not request.method and request.path.endswith(_CARD_PATHS):
            request.method = _CARD
        code = _code(request)
        if self.metrics is not None:
            self.metrics.request(request.method or "other", request.dialect, request.binding or "http", code, seconds)
        if self._access_log:
            fields = request.fields()
            what = f"{request.verb} {fields['path']}" if request.verb else "gRPC"
            method = f" {request.method}" if request.method else ""
            _access.info(
                "%s%s %s %.1f ms",
                *(what, method, code if request.status in (None, 200) else f"{request.status} {code}", seconds * 1000),
                extra={
                    "status": request.status,
                    "error": None if code == "OK" else code,
                    "duration_ms": round(seconds * 1000, 3),
                    "trace_ids": current_ids(),
                },
            )

    # --- agents at work -----------------------------------------------------------------------------------------------

    def carried(self) -> Mapping[str, str]:
        """See EngineObserver.carried."""
        return {} if self._tracing is None else carried()

    def taken_up(self, carried: Mapping[str, str]) -> None:
        """See EngineObserver.taken_up."""
        if self._tracing is not None:
            self._tracing.taken_up(carried)

    def heard(self, run: Run) -> None:
        """See EngineObserver.heard."""
        if self._tracing is not None:
            self._tracing.heard(self._observed(run))

    def begins(self, run: Run) -> Context:
        """See EngineObserver.begins."""
        observed = self._observed(run)
        observed.began = perf_counter()
        request = current_request()
        if request is not None:
            request.run = run
        if self._tracing is not None:
            return self._tracing.begins(observed)
        context = copy_context()
        context.run(at_work, observed)
        return context

    def goes_on(self, run: Run) -> None:
        """See EngineObserver.goes_on."""
        observed = self._observed(run)
        observed.began = perf_counter()
        if self._tracing is not None:
            self._tracing.goes_on(observed)

    def rests(self, run: Run) -> None:
        """See EngineObserver.rests."""
        observed = self._observed(run)
        began, observed.began = observed.began, None
        if began is None:
            return  # it was waiting already
        state = _state(run)
        if self._tracing is not None:
            self._tracing.rests(observed, state, failed=run.state is TaskState.FAILED)
        if self.metrics is not None:
            self.metrics.run(observed.agent, state, perf_counter() - began)

    def pushed(self, outcome: PushOutcome, seconds: float) -> None:
        """See EngineObserver.pushed."""
        if self.metrics is not None:
            self.metrics.pushed(outcome, seconds)

    def _observed(self, run: Run) -> ObservedRun:
        observed: ObservedRun | None = run.observed
        if observed is None:
            observed = run.observed = ObservedRun(run.agent.name, run.task_id, run.context_id)
        return observed


def _trace_of(headers: Iterable[tuple[str, Any]]) -> Mapping[str, str]:
    """What headers say of the trace that they come from; {} where that makes no sense (W3C Trace Context, §3.2, §3.3).

    There is one traceparent; several headers of tracestate are one list. A list that is too long is left out, which
    the specification allows; OpenTelemetry would log of each that a caller sends.
    """
    parent = ""
    states = []
    for name, value in headers:
        if name == "traceparent":
            if parent or not _PARENT.fullmatch(value):
                return {}
            parent = value
        elif name == "tracestate" and value.strip():
            states.append(value)
    if not parent:
        return {}
    state = ",".join(states)
    if not state or len(state) > _STATE_CHARACTERS or state.count(",") >= _STATE_MEMBERS:
        return {"traceparent": parent}
    return {"traceparent": parent, "tracestate": state}


def _code(request: ObservedRequest) -> str:
    """How a request has ended, in a word."""
    if request.error is not None:
        return request.error.reason
    if request.outcome or request.binding == "grpc":
        return request.outcome or "OK"
    if request.status is None:
        return _CANCELLED
    return "OK" if request.status < 400 else f"HTTP_{request.status}"


def _state(run: Run) -> str:
    """The state that an agent has left its task in."""
    if run.broken is not None:
        return "LOST"
    if run.state is None:
        return "MESSAGE" if run.answer is not None else "NOTHING"
    return run.state.value.removeprefix("TASK_STATE_")
