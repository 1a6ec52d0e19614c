"""The log of a server: its forms, its levels, its lines about requests."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest

from tests.engine.scene import within
from tests.operation.serving import AGENT, call, fetch, sending, serving, until
from tieline.operation.logs import JsonFormatter, TextFormatter

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@within(60)
async def test_in_json_every_line_is_one_event_with_its_time_level_and_logger(tmp_path: Path) -> None:
    async with serving(tmp_path, "--log-format", "json", "--log-level", "info") as here:
        await call(here.url, "SendMessage", sending("fail in two\nlines"))
    assert len(here.events) >= 4
    for event in here.events:
        assert TIME.fullmatch(event["time"])
        assert event["level"] in ("INFO", "WARNING", "ERROR")
        assert event["logger"]
        assert event["message"]
    assert here.event(message="Serving.")["urls"] == [here.url]
    failed = here.event(level="ERROR")
    assert failed["agent"] == "Worker"
    assert failed["task"] in failed["message"]
    assert "ValueError: in two\nlines" in failed["exception"]
    assert here.having(message="Stopping.")
    assert here.events[-1]["message"] == "Stopped."
    assert not here.having(logger="tieline.access")  # that is asked for by itself
    assert here.out == b""


@within(60)
async def test_a_request_is_one_line_when_it_has_ended(tmp_path: Path) -> None:
    options = ("--log-format", "json", "--access-log", "--grpc-port", "0")
    async with serving(tmp_path, *options) as here:
        sent = await call(here.url, "SendMessage", sending("hi"))
        task = sent.json["result"]["task"]
        await fetch(f"{here.url}/tasks/{task['id']}?historyLength=0")
        await call(here.url, "SendStreamingMessage", sending("hi"))
        await call(here.url, "message/send", sending("x", kind="message"), {"A2A-Version": "0.3"})
        await call(here.url, "GetTask", {"id": "nobody\n\x1b[31m"})
        await fetch(f"{here.url}/.well-known/agent-card.json")
        await fetch(f"{here.url}/no%0Awhere?secret=1")
        await fetch(f"{here.url}/healthz")
        await fetch(f"{here.url}/readyz")
        lines = await until(lambda: found if len(found := here.having(logger="tieline.access")) >= 7 else None)
    for line in lines:
        assert line["client"] == "127.0.0.1"
        assert line["duration_ms"] > 0
        assert "?" not in line["message"]
    said, read, streamed, old, missed, card, nowhere = lines
    assert (said["method"], said["binding"], said["dialect"]) == ("SendMessage", "jsonrpc", "1.0")
    assert (said["agent"], said["task"], said["context"]) == ("Worker", task["id"], task["contextId"])
    assert (said["status"], said["verb"], said["path"]) == (200, "POST", "/")
    assert "error" not in said
    assert (read["method"], read["binding"], read["task"]) == ("GetTask", "rest", task["id"])
    assert streamed["method"] == "SendStreamingMessage"
    assert (old["dialect"], old["binding"]) == ("0.3", "jsonrpc")
    assert (missed["status"], missed["error"]) == (200, "TASK_NOT_FOUND")
    assert (card["method"], card["status"]) == ("GetAgentCard", 200)
    assert (nowhere["path"], nowhere["status"], nowhere["error"]) == ("/no%0Awhere", 404, "METHOD_NOT_FOUND")
    assert not any("probe" in line or "healthz" in line for line in here.lines)


@within(60)
async def test_calls_over_grpc_are_logged_as_those_over_http_are(tmp_path: Path) -> None:
    import grpc
    from a2a.types import a2a_pb2 as pb

    async with serving(tmp_path, "--log-format", "json", "--access-log", "--grpc-port", "0") as here:
        async with grpc.aio.insecure_channel(here.grpc) as channel:
            send = channel.unary_stream("/lf.a2a.v1.A2AService/SendStreamingMessage")
            message = pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text="hi")])
            async for _ in send(pb.SendMessageRequest(message=message).SerializeToString()):
                pass
            get = channel.unary_unary("/lf.a2a.v1.A2AService/GetTask")
            with pytest.raises(grpc.aio.AioRpcError):
                await get(pb.GetTaskRequest(id="nobody").SerializeToString())
        streamed, missed = await until(
            lambda: found if len(found := here.having(logger="tieline.access", binding="grpc")) == 2 else None
        )
    assert (streamed["method"], streamed["agent"], streamed["dialect"]) == ("SendStreamingMessage", "Worker", "1.0")
    assert streamed["task"]
    assert (missed["method"], missed["task"], missed["error"]) == ("GetTask", "nobody", "TASK_NOT_FOUND")
    assert streamed["client"] == missed["client"] == "127.0.0.1"


@within(60)
async def test_text_is_the_default_and_the_level_decides_what_is_said(tmp_path: Path) -> None:
    async with serving(tmp_path, "--access-log") as here:
        await call(here.url, "SendMessage", sending("hi"))
        line = await until(lambda: next((line for line in here.lines if "tieline.access" in line), None))
        assert re.fullmatch(r"INFO tieline\.access: POST / SendMessage OK \d+\.\d ms", line)
    quiet = tmp_path / "quiet"
    quiet.mkdir()
    async with serving(quiet, "--log-level", "error") as here:
        await call(here.url, "SendMessage", sending("hi"))
    assert not any(line.startswith(("INFO", "WARNING", "DEBUG")) for line in here.lines)


def record(message: str, *arguments: object, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("here", logging.ERROR, "file.py", 1, message, arguments, None)
    vars(made).update(extra)
    return made


def test_what_is_logged_cannot_forge_a_line_or_move_a_terminal() -> None:
    assert "\x1b" not in TextFormatter().format(record("path \x1b[31m red"))
    one = JsonFormatter().format(
        record('a "quoted"\nline \x1b \ud800 %s', "x", task="t\n1", duration_ms=1.5, method="")
    )
    assert "\n" not in one
    assert '"task":"t\\n1"' in one
    assert '"duration_ms":1.5' in one
    assert "method" not in one
    forged = TextFormatter().format(record("Task 'x'\nERROR tieline.server: all is lost\r\n\u2028x\u0085y"))
    assert [line for line in forged.splitlines() if not line.startswith("  ")] == ["ERROR here: Task 'x'"]
    for text in ("\x9b31m", "\x7f", "a\u0085b", "a\u2028b", "a\u202eb", "größe \x1b"):
        line = JsonFormatter().format(record(text, task=text))
        assert len(line.splitlines()) == 1
        assert line.isprintable()
        assert json.loads(line)["message"] == json.loads(line)["task"] == text


@within(60)
async def test_a_start_that_fails_is_an_event_and_tells_no_secret(tmp_path: Path) -> None:
    broken = "raise ValueError('no config\\nfor token=abcdef-secret')"
    async with serving(tmp_path, "--log-format", "json", source=broken) as here:
        assert await here.ended() == 1
    event = here.event(level="ERROR", logger="tieline.serve", error="TIELINE_ERR_CANNOT_SERVE")
    assert "cannot be loaded" in event["message"]
    async with serving(tmp_path, source=broken) as here:
        assert await here.ended() == 1
        assert "cannot be loaded" in here.lines[0]
        assert "abcdef-secret" not in "\n".join(here.lines)
    for options in (("--rate", "nan"), ("--workers", "2"), ("--ops-port", "0", "--auth", "bearer", "--tokens", "/no")):
        async with serving(tmp_path, "--log-format", "json", *options) as here:
            assert await here.ended() == 2
        assert here.event(level="ERROR", error="A2ACLI_ERR_USAGE")


@within(60)
async def test_what_ends_the_process_is_an_event(tmp_path: Path) -> None:
    source = "import tieline.server.serve as it\nit.uvicorn.Config = None\n"
    async with serving(tmp_path, "--log-format", "json", source=source + AGENT) as here:
        assert await here.ended() == 1
    assert "TypeError" in here.event(level="CRITICAL")["exception"]


def test_a_record_whose_arguments_do_not_fit_is_written_all_the_same() -> None:
    assert "two %s %s words" in JsonFormatter().format(record("two %s %s words", "one"))
