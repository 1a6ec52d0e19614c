"""Anything at all over a real socket: never a 5xx, a hang or a traceback, always a well-formed answer with the id.

One server and one connection serve all examples of a test; every answer is read within LIMIT_S.
"""

from __future__ import annotations

import asyncio
import copy
import json
import logging
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tieline
from tests.server.raw import A2A_JSON, JSON, Pairs, Reply, Wire, serve
from tests.server.test_jsonrpc import METHODS
from tests.wire.examples import SENDS
from tests.wire.strategies import FIXED, free_json
from tieline import Turn, agent

LIMIT_S = 5.0
MANY = settings(FIXED, max_examples=250)
CODES = {-32700, -32600, -32601, -32602, *range(-32009, -32000)}


@agent(name="Echo", description="Gives every part back.", input_modes=("*/*",))
async def echo(turn: Turn) -> AsyncGenerator[Any, None]:
    for part in turn.parts:
        yield part


class Target:
    """A server with a connection to it, used from one synchronous example after another."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self.app = tieline.app(echo)
        self.port = self._runner.run(self._stack.enter_async_context(serve(self.app)))
        self._wire: Wire | None = None

    def close(self) -> None:
        async def close() -> None:
            if self._wire is not None:
                self._wire.abort()
            await self._stack.aclose()

        self._runner.run(close())
        self._runner.close()

    def ask(self, verb: str, path: str, body: bytes | None = None, headers: Pairs | None = None) -> Reply:
        """The answer; an AssertionError when none comes in time, or the connection ends instead."""

        async def ask() -> Reply:
            if self._wire is None:
                self._wire = await Wire(self.port).__aenter__()
            async with asyncio.timeout(LIMIT_S):
                return await self._wire.request(verb, path, body, headers)

        try:
            reply = self._runner.run(ask())
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError) as error:
            raise AssertionError(f"no answer to {verb} {path} {body!r}: {error!r}") from error
        if reply.headers.get("connection") == "close" and self._wire is not None:
            self._wire.abort()
            self._wire = None
        return reply


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    target = Target()
    yield target
    target.close()


@pytest.fixture(autouse=True)
def without_tracebacks(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    records = [record for when in ("setup", "call") for record in caplog.get_records(when)]
    assert [record.getMessage() for record in records if record.exc_info or record.levelno >= logging.ERROR] == []


# --- what a well-formed answer is -------------------------------------------------------------------------------------


def check_rpc_answer(answer: Any) -> None:
    assert set(answer) in ({"jsonrpc", "id", "result"}, {"jsonrpc", "id", "error"})
    assert answer["jsonrpc"] == "2.0"
    if "error" in answer:
        error = answer["error"]
        assert error["code"] in CODES
        assert isinstance(error["message"], str)
        assert error["message"]
        assert all(isinstance(detail["@type"], str) for detail in error.get("data", []))


def rpc(reply: Reply) -> list[Any]:
    """The answers in a reply of the JSON-RPC endpoint: one, or those of a stream."""
    if reply.headers["content-type"] == "text/event-stream":
        assert reply.status == 200
        lines = reply.body.decode("utf-8").split("\n")
        answers = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    else:
        assert reply.status in (200, 413, 415)
        assert reply.headers["content-type"] == "application/json"
        answers = [reply.json()]
    for answer in answers:
        check_rpc_answer(answer)
    return answers


def check_rest(reply: Reply) -> None:
    assert reply.status < 500, reply
    if reply.headers.get("content-type") == "text/event-stream":
        assert reply.status == 200
        return
    assert reply.headers["content-type"] in ("application/a2a+json", "application/json")
    answer = reply.json()
    if reply.status != 200:
        assert set(answer) == {"error"}
        assert answer["error"]["code"] == reply.status
        assert answer["error"]["message"]
        assert all(isinstance(detail["@type"], str) for detail in answer["error"]["details"])


def strict_json(body: bytes) -> Any:
    """What a body says, read by another parser; ValueError when it is not JSON."""

    def refuse(word: str) -> None:
        raise ValueError(word)

    return json.loads(body.decode("utf-8"), parse_constant=refuse)


def check_id(body: bytes, answers: Sequence[Any]) -> None:
    """Whoever can read the id of a request gets it back; null is right only where there was none to be read."""
    try:
        value = strict_json(body)
        id_ = value.get("id")
        json.dumps(id_, ensure_ascii=False).encode()  # a lone surrogate is JSON to Python only
    except (ValueError, AttributeError, RecursionError):
        return
    if isinstance(id_, (bool, dict, list)):
        id_ = None
    for answer in answers:
        unread = answer["id"] is None and answer.get("error", {}).get("code") == -32700
        assert unread or (answer["id"], type(answer["id"])) == (id_, type(id_))


# --- bending valid requests -------------------------------------------------------------------------------------------

ENVELOPES: list[Any] = [
    *({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": "t", "taskId": "t"}} for method in METHODS),
    *({"jsonrpc": "2.0", "id": "a", "method": "SendMessage", "params": params} for params in SENDS.values()),
    *({"jsonrpc": "2.0", "id": 2.5, "method": "SendStreamingMessage", "params": params} for params in SENDS.values()),
    {
        "jsonrpc": "2.0",
        "id": None,
        "method": "ListTasks",
        "params": {
            "contextId": "c",
            "status": "TASK_STATE_WORKING",
            "pageSize": 5,
            "pageToken": "MTcw",
            "historyLength": 1,
            "statusTimestampAfter": "2025-10-28T10:30:00.000Z",
            "includeArtifacts": True,
        },
    },
]

ODD: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        -1,
        1.5,
        2**31,
        2**63,
        2**64,
        -(2**63) - 1,
        10**40,
        1e308,
        "",
        "x",
        "\x00",
        "😀",
        "x" * 10_000,
        [],
        [[]],
        {},
        {"a": 1},
        [None],
        "ROLE_USER",
        "9999-99-99T99:99:99Z",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
    ]
)


def spots(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values inside a JSON value."""
    found = [at] if at else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += spots(item, (*at, key))
    return found


@st.composite
def bent_json(draw: st.DrawFn, values: Sequence[Any]) -> Any:
    """A valid request with up to three values replaced, removed, renamed, doubled or wrapped."""
    value = copy.deepcopy(draw(st.sampled_from(values)))
    for _ in range(draw(st.integers(1, 3))):
        paths = spots(value)
        if not paths:
            break
        *way, last = draw(st.sampled_from(paths))
        holder = value
        for step in way:
            holder = holder[step]
        match draw(st.sampled_from(["replace", "replace", "anything", "remove", "rename", "double", "wrap"])):
            case "replace":
                holder[last] = copy.deepcopy(draw(ODD))
            case "anything":
                holder[last] = draw(free_json)
            case "remove":
                del holder[last]
            case "rename" if isinstance(holder, dict):
                holder[draw(st.sampled_from([str(last).upper(), f"{last}_", "kind", "parts", "data", "raw"]))] = (
                    holder.pop(last)
                )
            case "double" if isinstance(holder, list):
                holder.append(copy.deepcopy(holder[last]))
            case _:
                holder[last] = [holder[last]] if draw(st.booleans()) else {"value": holder[last]}
    return value


@st.composite
def bent_bytes(draw: st.DrawFn, values: Sequence[Any]) -> bytes:
    """The JSON of a valid request with bits flipped, or bytes cut off, put in, doubled or changed."""
    body = json.dumps(draw(st.sampled_from(values)), ensure_ascii=False).encode()
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(body)))
        end = min(len(body), at + draw(st.integers(1, 12)))
        match draw(st.sampled_from(["flip", "cut", "remove", "insert", "double", "token"])):
            case "flip" if at < len(body):
                body = body[:at] + bytes([body[at] ^ (1 << draw(st.integers(0, 7)))]) + body[at + 1 :]
            case "cut":
                body = body[:at]
            case "remove":
                body = body[:at] + body[end:]
            case "insert":
                body = body[:at] + draw(st.binary(min_size=1, max_size=8)) + body[at:]
            case "double":
                body = body[:end] + body[at:]
            case _:
                odd = [b"NaN", b"-Infinity", b"1e999", b'"\\ud800"', b"\xff", b"{", b"]", b",", b"9" * 5000, b"null"]
                body = body[:at] + draw(st.sampled_from(odd)) + body[end:]
    return body


REQUESTS = [envelope["params"] for envelope in ENVELOPES]
BODIES = [
    "/message:send",
    "/message:stream",
    "/tasks/t:cancel",
    "/tasks/t:subscribe",
    "/tasks/t/pushNotificationConfigs",
]


@pytest.mark.requirement("jsonrpc.id-echoed", "jsonrpc.server-refuses-other-forms", "jsonrpc.error-object")
def test_any_bytes_get_a_json_rpc_answer(target: Target) -> None:
    @MANY
    @given(st.binary(max_size=300))
    def check(body: bytes) -> None:
        check_id(body, rpc(target.ask("POST", "/", body, JSON)))

    check()


@pytest.mark.requirement("jsonrpc.id-echoed", "jsonrpc.server-refuses-other-forms")
def test_any_json_gets_a_json_rpc_answer_that_is_no_parse_error(target: Target) -> None:
    @MANY
    @given(free_json | st.fixed_dictionaries({"id": free_json}, optional={"jsonrpc": free_json, "method": free_json}))
    def check(value: Any) -> None:
        body = json.dumps(value).encode()
        (answer,) = rpc(target.ask("POST", "/", body, JSON))
        assert answer["error"]["code"] == -32600
        check_id(body, [answer])

    check()


@pytest.mark.requirement("jsonrpc.id-echoed", "jsonrpc.server-refuses-other-forms", "jsonrpc.invalid-params")
def test_a_valid_json_rpc_request_with_values_bent_gets_an_answer_that_is_no_parse_error(target: Target) -> None:
    @MANY
    @given(bent_json(ENVELOPES))
    def check(value: Any) -> None:
        body = json.dumps(value).encode()
        answers = rpc(target.ask("POST", "/", body, JSON))
        check_id(body, answers)
        assert all(answer.get("error", {}).get("code") != -32700 for answer in answers)

    check()


@pytest.mark.requirement("jsonrpc.id-echoed", "jsonrpc.server-refuses-other-forms")
def test_a_valid_json_rpc_request_with_bytes_bent_gets_an_answer(target: Target) -> None:
    @MANY
    @given(bent_bytes(ENVELOPES))
    def check(body: bytes) -> None:
        check_id(body, rpc(target.ask("POST", "/", body, JSON)))

    check()


@pytest.mark.requirement("rest.error-body", "rest.details-typed")
def test_any_body_gets_a_rest_answer(target: Target) -> None:
    @MANY
    @given(st.sampled_from(BODIES), st.binary(max_size=300) | free_json.map(lambda value: json.dumps(value).encode()))
    def check(path: str, body: bytes) -> None:
        check_rest(target.ask("POST", path, body, A2A_JSON))

    check()


@pytest.mark.requirement("rest.error-body", "rest.details-typed")
def test_a_valid_rest_request_that_was_bent_gets_an_answer(target: Target) -> None:
    bent = bent_json(REQUESTS).map(lambda value: json.dumps(value).encode()) | bent_bytes(REQUESTS)

    @MANY
    @given(st.sampled_from(BODIES), bent)
    def check(path: str, body: bytes) -> None:
        check_rest(target.ask("POST", path, body, A2A_JSON))

    check()


_VERBS = st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
_LINE = st.text(alphabet=st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=30)
_PIECES = [
    "/",
    "tasks",
    "t",
    ":cancel",
    ":subscribe",
    "%2F",
    "%3A",
    "%00",
    "%ff",
    "..",
    "message:send",
    "%",
    "?",
    "=",
    "&",
]
_QUERIES = ["pageSize=", "historyLength=", "status=", "pageToken=", "includeArtifacts=", "statusTimestampAfter="]


@pytest.mark.requirement("rest.error-body")
def test_any_verb_path_and_query_get_a_rest_answer(target: Target) -> None:
    pieces = st.lists(st.sampled_from(_PIECES) | _LINE, max_size=8).map(lambda found: "/" + "".join(found))

    @MANY
    @given(_VERBS, pieces.map(lambda path: path.replace("#", "")))
    def check(verb: str, path: str) -> None:
        reply = target.ask(verb, path, b"{}" if verb == "POST" else None, A2A_JSON)
        if verb == "POST" and path.partition("?")[0] == "/":
            rpc(reply)
        else:
            check_rest(reply)

    check()


@pytest.mark.requirement("rest.query-types", "rest.error-body")
def test_any_value_in_a_query_gets_a_rest_answer(target: Target) -> None:
    values = _LINE | st.sampled_from(
        ["1" * 5000, "-1", "1e5", "%ff", "%00", "MTcw", "null", "true", "2025-10-28T10:30:00Z"]
    )

    @MANY
    @given(st.lists(st.tuples(st.sampled_from(_QUERIES), values), max_size=4))
    def check(pairs: list[tuple[str, str]]) -> None:
        query = "&".join(name + value.replace("#", "") for name, value in pairs)
        check_rest(target.ask("GET", f"/tasks?{query}"))
        check_rest(target.ask("GET", f"/tasks/t?{query}"))

    check()


_NAMES = [
    "A2A-Version",
    "A2A-Extensions",
    "Content-Type",
    "Accept",
    "Last-Event-ID",
    "If-None-Match",
    "If-Modified-Since",
    "X-Forwarded-Host",
    "Origin",
    "Access-Control-Request-Method",
    "Cookie",
    "Authorization",
]


def test_any_header_gets_an_answer(target: Target) -> None:
    line = st.text(
        alphabet=st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=40
    )

    @MANY
    @given(st.lists(st.tuples(st.sampled_from(_NAMES), line), max_size=5))
    def check(headers: Pairs) -> None:
        body = json.dumps(ENVELOPES[0]).encode()
        called = target.ask("POST", "/", body, headers)
        if called.status == 403:  # the page of another origin is refused before it is asked what it wants
            assert "ORIGIN_NOT_ALLOWED" in called.body.decode()
        else:
            rpc(called)
        check_rest(target.ask("GET", "/tasks", None, headers))
        assert target.ask("GET", "/.well-known/agent-card.json", None, headers).status in (200, 304)

    check()


def test_behind_all_that_nothing_is_left_running(target: Target) -> None:
    reply = target.ask("GET", "/tasks?pageSize=1")
    assert reply.status == 200
    service = target.app.services[""]
    assert service.busy == 0
    assert len(service.runs) == 0
    assert len(target.app._streams) == 0
