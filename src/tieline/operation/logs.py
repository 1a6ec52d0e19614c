"""The log of a server: one line an event, as text or as JSON, and never a secret in it."""

from __future__ import annotations

import logging
import re
import sys
import threading
import time
from types import TracebackType
from typing import Any, Final, Literal, TextIO

import msgspec

from tieline.operation.requests import current_fields
from tieline.operation.secrets import without_secrets
from tieline.operation.trace_context import current_ids

__all__ = ["ACCESS", "FIELDS", "JsonFormatter", "LogFormat", "TextFormatter", "set_up_logs"]

LogFormat = Literal["text", "json"]

ACCESS: Final = "tieline.access"
"""The logger of requests: one line each, when it has ended."""

FIELDS: Final = (
    *("agent", "task", "context", "method", "dialect", "binding", "verb", "path", "client", "status", "error"),
    *("duration_ms", "urls", "grpc", "ops", "store"),
)
"""What a record may say beside its message, given as `extra`."""

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_encode: Final = msgspec.json.Encoder(enc_hook=repr).encode
_SURROGATES: Final = re.compile(r"[\ud800-\udfff]")


class TextFormatter(logging.Formatter):
    """`LEVEL logger: message`, for people. Secrets and control characters are taken out; what has several lines goes on
    indented, so that what begins a line is a record.
    """

    def __init__(self) -> None:
        super().__init__("%(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return _printable(without_secrets(super().format(record))).replace("\n", "\n  ")


class JsonFormatter(logging.Formatter):
    """One JSON object a record, on one line: time (RFC 3339, UTC), level, logger, message, and what is known of FIELDS.

    A record written while a request is answered says which one; trace_id and span_id are there inside a trace. A
    traceback is in `exception`, as text. Secrets are taken out of every text.
    """

    def format(self, record: logging.LogRecord) -> str:
        millis = f"{int(record.msecs):03d}"
        event: dict[str, Any] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{millis}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": _text(_message(record)),
        }
        known = current_fields()
        given = vars(record)
        for name in FIELDS:
            value = given.get(name, known.get(name))
            if value is not None and value != "":
                event[name] = _text(value) if isinstance(value, str) else value
        ids = given.get("trace_ids") or current_ids()
        if ids is not None:
            event["trace_id"], event["span_id"] = ids
        trace = ""
        if record.exc_info:
            trace = self.formatException(record.exc_info)
        elif record.exc_text:
            trace = record.exc_text
        if record.stack_info:
            trace = f"{trace}\n{record.stack_info}" if trace else record.stack_info
        if trace:
            event["exception"] = _text(trace)
        line = _encode(event).decode()
        return line if line.isascii() and "\x7f" not in line else _CONTROL.sub(_in_json, line)


def _text(text: str) -> str:
    """Text that can be written: without secrets, and without halves of characters, which UTF-8 has no form for."""
    return _SURROGATES.sub("\ufffd", without_secrets(text))


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # a program's own record whose arguments do not fit: its words are better than none
        return str(record.msg)


def _in_json(match: re.Match[str]) -> str:
    """A character as JSON may write it: terminals and readers of lines obey some that JSON need not escape."""
    return f"\\u{ord(match.group()):04x}"


def _printable(text: str) -> str:
    """Text without control sequences: what comes from elsewhere must not make a terminal show something else."""
    return text if text.isprintable() else _CONTROL.sub(lambda match: ascii(match.group())[1:-1], text)


def set_up_logs(form: LogFormat, level: str, *, access: bool, stream: TextIO | None = None) -> None:
    """Have this process write its log to `stream` (stderr), from `level` on; with `access` requests, too.

    It replaces what was set up before: `tieline serve` owns its process.
    """
    root = logging.getLogger()
    for before in list(root.handlers):
        root.removeHandler(before)
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root.addHandler(handler)
    root.setLevel(level.upper())
    logging.getLogger(ACCESS).setLevel(logging.INFO if access else logging.CRITICAL)
    logging.captureWarnings(True)
    logging.raiseExceptions = False  # what the library prints of a record that it cannot write may hold secrets
    threading.excepthook = _thread_failed
    sys.excepthook = _process_failed


def _process_failed(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What ends the process is a record, too; an interruption is none."""
    if issubclass(kind, Exception):
        logging.getLogger("tieline.server").critical("the server failed", exc_info=(kind, error, trace))


def _thread_failed(failed: threading.ExceptHookArgs) -> None:
    if failed.exc_type is SystemExit or failed.exc_value is None:
        return
    name = failed.thread.name if failed.thread is not None else "?"
    trace = (failed.exc_type, failed.exc_value, failed.exc_traceback)
    logging.getLogger("tieline.server").error("the thread %s failed", name, exc_info=trace)
