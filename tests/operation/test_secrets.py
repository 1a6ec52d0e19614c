"""No secret is in anything that a server writes, whichever way it might get there."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.databases import PostgresServer
from tests.engine.scene import within
from tests.operation.collector import collecting
from tests.operation.serving import call, fetch, sending, serving
from tieline.operation.secrets import REDACTED, hide, hide_password_of, without_secrets
from tieline.stores.postgres import PostgresStore

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJib2IifQ.c2lnbmF0dXJlLW9mLWJvYg"

TAKEN_OUT = [
    ("Authorization: Bearer tok-1", "tok-1"),
    ("{'Authorization': 'Bearer tok-2', 'n': 1}", "tok-2"),
    ("[(b'authorization', b'Bearer tok-3'), (b'host', b'h')]", "tok-3"),
    ('{"headers": "{\\"Authorization\\": \\"Bearer tok-4\\"}"}', "tok-4"),
    ("proxy-authorization=Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
    ("sent bearer tok.5 and waited", "tok.5"),
    ("Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
    ("Cookie: a=crumb1; b=crumb2", "crumb2"),
    ("Set-Cookie: session=crumb3; HttpOnly", "crumb3"),
    ("x-api-key: key-1", "key-1"),
    ("api_key='key 2'", "key 2"),
    ('KeyError: {"apiKey": "key-3"}', "key-3"),
    ('{\\"password\\": \\"pass-0\\"}', "pass-0"),
    ("https://h/x?access_token=key-4&b=c", "key-4"),
    ("https://h/x?b=c&sig=key-5", "key-5"),
    ("client_secret=key-6", "key-6"),
    ("postgresql://u:p@ss-1@h/db", "p@ss-1"),
    ("connection to postgresql://u@h/db?password=pass-2&x=1 failed", "pass-2"),
    ("redis://:pass-3@h:6379/0", "pass-3"),
    ("host=h password=pass-4 user=u", "pass-4"),
    ("password = 'it\\'s pass-5'", "pass-5"),
    (f"token {JWT}", JWT),
    ("sk-ant-api03-abcdefghijklmnopqrstuv", "abcdefghijklmnopqrstuv"),
    ("sk_live_abcdefghijklmnopqrstuv", "abcdefghijklmnopqrstuv"),
    ("ghp_abcdefghijklmnopqrstuvwxyz0123", "abcdefghijklmnop"),
    ("github_pat_11ABCDEFG0abcdefghijkl_mnopq", "11ABCDEFG0"),
    ("glpat-abcdefghijklmnopqrst", "abcdefghijklmnopqrst"),
    ("xoxb-123456789-abcdef", "123456789"),
    ("AKIAIOSFODNN7EXAMPLE", "IOSFODNN7EXAMPLE"),
    ("AIzaSyA-abcdefghijklmnopqrstuvwxyz01234", "abcdefghijkl"),
    ("tieline_0123456789abcdefghijklmnopqrstuvwxyz_-ABCDE", "0123456789abcdef"),
    ("mytieline_0123456789abcdefghijklmnopqrstuvwxyz_-ABCDE", "0123456789abcdef"),
    ("hf_abcdefghijklmnopqrst", "abcdefghijklmnopqrst"),
    ("-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----", "MIIE"),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIE without an end", "MIIE"),
]

LEFT_IN = [
    "max_tokens: 4096, total tokens=3",
    "the token is invalid",
    "Bearer tokens are taken, basic information is not",
    "http://127.0.0.1:8000/path?pageSize=3&x=a@b",
    "postgresql://tieline@db.example/agents is not available",
    "task 4afabab9-b5ef-40aa-8d71-e84cf126ee0e cannot be stored: the disk is full",
    "password: None",
    "GET /tasks/one GetTask OK 2.0 ms",
]


@pytest.mark.parametrize(("text", "secret"), TAKEN_OUT)
def test_a_secret_is_taken_out_and_what_is_around_it_stays(text: str, secret: str) -> None:
    shown = without_secrets(f"before {text}\nbehind")
    assert secret not in shown
    assert REDACTED in shown
    assert shown.startswith("before ")
    if "without an end" not in text:
        assert shown.endswith("behind")


@pytest.mark.parametrize("text", LEFT_IN)
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_secrets(text) == text


def test_what_is_known_to_be_secret_is_taken_out_in_every_form() -> None:
    hide("a/known secret=1")
    hide_password_of("postgresql://u:p%40ss-word@h/db?x=1")
    for form in ("a/known secret=1", "a%2Fknown%20secret%3D1", "p%40ss-word", "p@ss-word"):
        assert without_secrets(f"is {form} here") == f"is {REDACTED} here"
    hide("")
    hide("abc")  # too short to be one: nothing would be left to read
    assert without_secrets("abcabc") == "abcabc"


@given(st.text(max_size=300))
def test_any_text_can_be_looked_through(text: str) -> None:
    assert isinstance(without_secrets(text), str)


@pytest.mark.parametrize(
    "piece",
    [
        "eyJ",
        "a",
        "://a",
        "authorization ",
        "bearer ",
        "password",
        '"',
        "\\'",
        "sk-",
        "pass= ",
        "x://a:",
        "-----BEGIN PRIVATE KEY-----",
    ],
)
def test_no_text_takes_long(piece: str) -> None:
    began = time.process_time()
    without_secrets(piece * (1_000_000 // len(piece)))
    assert time.process_time() - began < 2  # a text that is searched again from each of its places would take hours


AGENT = """
import logging
import os
import warnings

from tieline import agent

@agent(name="Leaky", description="Says too much.")
async def leaky(turn):
    log = logging.getLogger("leaky")
    log.error("calling with %s", {"Authorization": "Bearer S3CRET-logged"})
    log.debug("connecting to %s", "amqp://user:S3CRET-broker@mq/")
    log.error("tried %s", os.environ["PGPASSWORD"])
    warnings.warn("old call of https://api.example/?api_key=S3CRET-warned")
    try:
        raise KeyError(turn.metadata)
    except KeyError:
        raise ValueError("upstream refused 'Bearer S3CRET-raised' and JWT_HERE, password=S3CRET-argument")
""".replace("JWT_HERE", JWT)

SECRETS = ("S3CRET", JWT, JWT.rpartition(".")[2])


@pytest.mark.parametrize("form", ["text", "json"])
@within(120)
async def test_nothing_that_a_server_writes_has_a_secret_in_it(form: str, tmp_path: Path) -> None:
    with PostgresServer() as server, collecting() as collector:
        url = server.url("secrets")
        store = PostgresStore(url)
        await store.migrate()
        await store.close()
        scheme, _, rest = url.partition("://")
        user, _, where = rest.rpartition("@")
        secret_url = f"{scheme}://{(user or 'postgres').partition(':')[0]}:S3CRET-database@{where}"
        environment = collector.environment | {
            "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20S3CRET-collector",
            "PGPASSWORD": "S3CRET-of-the-environment",
        }
        options = (
            "--log-format",
            form,
            "--log-level",
            "debug",
            "--access-log",
            "--otel",
            "--metrics",
            "--ops-port",
            "0",
        )
        async with serving(tmp_path, *options, source=AGENT, env=environment, store=secret_url) as here:
            await here.ready()
            headers = {"Authorization": "Bearer S3CRET-caller", "X-Api-Key": "S3CRET-key", "Cookie": "c=S3CRET-cookie"}
            params: dict[str, Any] = sending("my pin is S3CRET-text")
            params["metadata"] = {"credentials": {"api_key": "S3CRET-metadata"}}
            sent = await call(f"{here.url}/?access_token=S3CRET-query", "SendMessage", params, headers)
            assert sent.json["result"]["task"]["status"]["state"] == "TASK_STATE_FAILED"
            await fetch(f"{here.url}/tasks?pageToken=S3CRET-page&token=S3CRET-token", headers=headers)
            await fetch(f"{here.url}/nowhere?token=S3CRET-nowhere", "POST", {"password": "S3CRET-body"}, headers)
            metrics = (await fetch(f"{here.ops}/metrics")).body.decode()
            server.stop()
            assert (await call(here.url, "GetTask", {"id": "x"}, headers)).status == 503
            await asyncio.to_thread(collector.wait, lambda span: span.name == "GetTask")
        written = "\n".join(here.lines) + here.out.decode() + metrics
        if form == "json":
            assert here.events
            assert here.having(logger="leaky", level="ERROR")
            assert "ValueError" in here.event(logger="tieline.engine", message=_failed(here.events))["exception"]
            assert here.having(logger="py.warnings")
            assert here.having(logger="tieline.access", method="GetTask", status=503)
        assert "leaky" in written
        assert REDACTED in written
        for secret in SECRETS:
            for place in (written, *(body.decode("latin-1") for body in collector.bodies)):
                assert secret not in place, place[max(0, place.index(secret) - 200) :][:400]
        assert any("S3CRET" in headers.get("authorization", "") for headers in collector.headers)  # where it belongs


def _failed(events: list[dict[str, Any]]) -> str:
    return next(str(event["message"]) for event in events if "failed in task" in event["message"])
