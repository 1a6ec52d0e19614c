"""What `tieline serve` tells its operator: the form of its log, and what its options and environment switch on."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from urllib.parse import unquote

import click

from tieline.cli.amounts import read_seconds
from tieline.cli.errors import CliError, UsageFault
from tieline.cli.notes import Notes

if TYPE_CHECKING:
    from tieline.operation.observing import Telemetry

__all__ = ["Lines", "LoggedLines", "NotedLines", "log_failure", "operating_options", "set_up", "telemetry_of"]

C = TypeVar("C", bound=Callable[..., Any])

_LEVELS: Final = ("debug", "info", "warning", "error")
_SWITCHES: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_EXPORTER")
_HEADERS: Final = ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS")

log = logging.getLogger("tieline.serve")


def operating_options(command: C) -> C:
    """The options of a server that are its operator's."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS: Final = (
    click.option(
        "--drain-delay",
        default="0s",
        show_default=True,
        callback=read_seconds,
        metavar="SECONDS",
        help="How long requests are still taken behind SIGTERM, while /readyz says 503 already.",
    ),
    click.option(
        "--ops-port",
        type=click.IntRange(0, 65535),
        metavar="PORT",
        help="Serve /healthz, /readyz and /metrics on this port, and not beside the agents; 0 is a free one.",
    ),
    click.option(
        "--ops-host",
        default="127.0.0.1",
        show_default=True,
        metavar="ADDRESS",
        help="Address of --ops-port.",
    ),
    click.option("--metrics", is_flag=True, help="Serve /metrics for Prometheus."),
    click.option(
        "--otel",
        is_flag=True,
        help="Send traces by OTLP, as the OTEL_* variables say.  [default: if one of them names where]",
    ),
    click.option(
        "--log-format",
        type=click.Choice(("text", "json")),
        default="text",
        show_default=True,
        help="Form of what goes to stderr; json is one object a line.",
    ),
    click.option(
        "--log-level",
        type=click.Choice(_LEVELS, case_sensitive=False),
        default="warning",
        show_default=True,
        help="The least that is logged.",
    ),
    click.option("--access-log", is_flag=True, help="Log each request when it has ended."),
)


class Lines(Protocol):
    """Where the server says how it is."""

    def line(self, text: str) -> None:
        """Say one thing."""
        ...

    def warning(self, text: str) -> None:
        """Say one thing that is not as it should be."""
        ...

    def serving(self, lines: list[str], **fields: Any) -> None:
        """Say that requests are answered: `lines` for people, `fields` for programs."""
        ...


class NotedLines:
    """Lines for people."""

    def __init__(self) -> None:
        self._notes = Notes()

    def line(self, text: str) -> None:
        """See Lines.line."""
        self._notes.line(text)

    def warning(self, text: str) -> None:
        """See Lines.warning."""
        self._notes.line(text)

    def serving(self, lines: list[str], **fields: Any) -> None:
        """See Lines.serving."""
        for line in lines:
            self._notes.line(line)


class LoggedLines:
    """Records of the log, whatever its level: logger "tieline.serve"."""

    def __init__(self) -> None:
        log.setLevel(logging.INFO)

    def line(self, text: str) -> None:
        """See Lines.line."""
        log.info("%s", text)

    def warning(self, text: str) -> None:
        """See Lines.warning."""
        log.warning("%s", text)

    def serving(self, lines: list[str], **fields: Any) -> None:
        """See Lines.serving."""
        log.info("Serving.", extra=fields)


def set_up(options: Mapping[str, Any], *, debug: bool) -> Lines:
    """Begin the log; returns where else the server says how it is. What is known to be secret is kept out of it."""
    from tieline.operation.logs import set_up_logs
    from tieline.operation.secrets import hide, hide_password_of

    set_up_logs(options["log_format"], "debug" if debug else options["log_level"], access=options["access_log"])
    if options["store"]:
        hide_password_of(options["store"])
    hide(os.environ.get("PGPASSWORD", ""))  # of PostgreSQL, where it is not in the URL
    for name in _HEADERS:
        for pair in os.environ.get(name, "").split(","):
            value = unquote(pair.partition("=")[2].strip())
            hide(value)
            hide(value.rpartition(" ")[2])
    return LoggedLines() if options["log_format"] == "json" else NotedLines()


def log_failure(error: CliError) -> None:
    """Say in a log of JSON why the server could not begin, or why its command line makes no sense."""
    from tieline.operation.logs import set_up_logs

    set_up_logs("json", "info", access=False)
    log.error("%s", f"{error} {error.hint}" if error.hint else str(error), extra={"error": error.code})


def telemetry_of(options: Mapping[str, Any]) -> Telemetry:
    """What the options and the OTEL_* variables switch on. Raises UsageFault for what would be everybody's to read."""
    if options["metrics"] and options["auth"] and options["ops_port"] is None:
        raise UsageFault("--metrics with --auth needs --ops-port: beside the agents everybody could read them.")
    from tieline.operation.observing import Telemetry

    return Telemetry(
        traces=options["otel"] or _named_by_environment(),
        metrics=options["metrics"],
        access_log=options["access_log"],
        log_context=options["log_format"] == "json",
    )


def _named_by_environment() -> bool:
    """Whether the environment says where traces go. Where what that needs is not installed, that is said once."""
    given = [os.environ[name].strip() for name in _SWITCHES if os.environ.get(name, "").strip()]
    if not given or "none" in given or os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    try:
        import opentelemetry.exporter.otlp.proto.http
        import opentelemetry.sdk.trace  # noqa: F401
    except ImportError:
        log.warning("the OTEL_* variables ask for traces, which need: pip install 'tieline[telemetry]'")
        return False
    return True
