"""Metrics for Prometheus (extra `telemetry`). Labels take few values: no task, no caller, no path is one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

try:
    from prometheus_client import (
        CollectorRegistry,
        Counter,
        GCCollector,
        Histogram,
        PlatformCollector,
        ProcessCollector,
    )
    from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ImportError(f"Metrics need: pip install 'tieline[telemetry]' ({error})") from error
import msgspec

from tieline import __version__
from tieline.engine.observer import PushOutcome

__all__ = ["Metrics", "Now"]

_REQUEST_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_STORE_S: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_RUN_S: Final = (0.01, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14_400, 86_400)


class Now(msgspec.Struct, frozen=True):
    """What is read from one agent's service when the metrics are asked for."""

    agent: str
    working: int  # agents at work
    waiting: int  # agents that wait for their callers
    in_line: int  # agents that wait for others to finish
    mail: int  # messages that wait for an agent which is at work
    followed: int  # tasks of other replicas that are followed here


class Metrics:
    """The metrics of one app, in a registry of their own."""

    def __init__(self, now: Callable[[], Iterable[Now]], streams: Callable[[], int]) -> None:
        registry = self.registry = CollectorRegistry()
        self._requests = Counter(
            "tieline_requests",
            "Requests that have ended. `code` is OK, or the reason of the error that they ended with.",
            ("method", "dialect", "binding", "code"),
            registry=registry,
        )
        self._request_s = Histogram(
            "tieline_request_duration_seconds",
            "From the head of a request to the end of its answer; a stream lasts as long as it is open.",
            ("method", "dialect", "binding"),
            buckets=_REQUEST_S,
            registry=registry,
        )
        self._runs = Counter(
            "tieline_runs",
            "Stretches of agents' work that have ended, by the state in which they have left their task.",
            ("agent", "state"),
            registry=registry,
        )
        self._run_s = Histogram(
            "tieline_run_duration_seconds",
            "How long agents were at work until their task rested or ended.",
            ("agent",),
            buckets=_RUN_S,
            registry=registry,
        )
        self._tasks = Counter(
            "tieline_tasks_ended", "Tasks that this process has ended, by state.", ("state",), registry=registry
        )
        self._events = Counter("tieline_events_appended", "Events that were stored.", registry=registry)
        self._store_s = Histogram(
            "tieline_store_duration_seconds",
            "How long the store took.",
            ("operation",),
            buckets=_STORE_S,
            registry=registry,
        )
        self._store_failures = Counter(
            "tieline_store_failures", "What the store could not do.", ("operation",), registry=registry
        )
        self._pushes = Counter(
            "tieline_push_deliveries", "Attempts to deliver push notifications.", ("outcome",), registry=registry
        )
        self._push_s = Histogram(
            "tieline_push_duration_seconds",
            "How long attempts to deliver push notifications took.",
            buckets=_REQUEST_S,
            registry=registry,
        )
        registry.register(_Gauges(now, streams))
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)

    def request(self, method: str, dialect: str, binding: str, code: str, seconds: float) -> None:
        """A request has ended."""
        self._requests.labels(method, dialect, binding, code).inc()
        self._request_s.labels(method, dialect, binding).observe(seconds)

    def run(self, agent: str, state: str, seconds: float) -> None:
        """An agent has worked for a while, and left its task in this state."""
        self._runs.labels(agent, state).inc()
        self._run_s.labels(agent).observe(seconds)

    def stored(self, events: int, ended: str | None) -> None:
        """Events were stored; `ended` is the state that the last of them has ended their task with."""
        self._events.inc(events)
        if ended is not None:
            self._tasks.labels(ended).inc()

    def store(self, operation: str, seconds: float, *, failed: bool) -> None:
        """The store has done something, or could not."""
        self._store_s.labels(operation).observe(seconds)
        if failed:
            self._store_failures.labels(operation).inc()

    def pushed(self, outcome: PushOutcome, seconds: float) -> None:
        """See EngineObserver.pushed."""
        self._pushes.labels(outcome).inc()
        self._push_s.observe(seconds)

    def page(self, accept: str) -> tuple[bytes, str]:
        """All of it as Prometheus reads it, and its media type: OpenMetrics where that is accepted."""
        encode, media_type = choose_encoder(accept)
        return encode(self.registry), media_type


class _Gauges(Collector):
    """What is read when it is asked for."""

    def __init__(self, now: Callable[[], Iterable[Now]], streams: Callable[[], int]) -> None:
        self._now = now
        self._streams = streams

    def collect(self) -> Iterator[GaugeMetricFamily | InfoMetricFamily]:
        yield InfoMetricFamily("tieline", "The version that is running.", {"version": __version__})
        yield GaugeMetricFamily("tieline_streams_open", "Event streams that are open.", value=self._streams())
        runs = GaugeMetricFamily("tieline_runs_now", "Agents with a task, by what they do.", labels=("agent", "doing"))
        queued = GaugeMetricFamily(
            "tieline_messages_queued", "Messages that wait for an agent which is at work.", labels=("agent",)
        )
        followed = GaugeMetricFamily(
            "tieline_tasks_followed", "Tasks at work in other replicas that are followed here.", labels=("agent",)
        )
        for now in self._now():
            runs.add_metric((now.agent, "working"), now.working)
            runs.add_metric((now.agent, "waiting"), now.waiting)
            runs.add_metric((now.agent, "in_line"), now.in_line)
            queued.add_metric((now.agent,), now.mail)
            followed.add_metric((now.agent,), now.followed)
        yield from (runs, queued, followed)
