"""Answers with any damage: nothing but errors of ours may come out, and nothing may hang."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.client.running import QUICK, run
from tests.client.scripted import Http, Raw, Script, Stream, any_request, scripted
from tests.client.tasks import TASK, appended, artifact, artifact_update, message, status, task
from tieline import TaskState, Timeouts, connect
from tieline.errors import A2AError
from tieline.types import SendMessageResponse, encode
from tieline.wire import jsonrpc

BINDING = {"jsonrpc": "JSONRPC", "rest": "HTTP+JSON"}
both = pytest.mark.parametrize("transport", ["jsonrpc", "rest"])
few = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TIMEOUTS = Timeouts(answer_s=0.1, idle_s=0.1)

NOISE = st.one_of(
    st.binary(min_size=1, max_size=6),
    st.sampled_from(
        [
            b"\r\n",
            b"\n\n",
            b"\0",
            b"{",
            b"[",
            b'"',
            b"null",
            b"-1",
            b"1e999",
            b"\xff",
            b"\\ud800",
            b"HTTP/1.1 200 OK\r\n\r\n",
        ]
    ),
)
DAMAGE = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 20), NOISE), max_size=3)
HEADERS = st.sampled_from(
    [
        b"Content-Type: text/event-stream; charset=nonsense",
        b"Content-Type: \xff/\xff",
        b"Content-Type: ;;;=",
        b"Content-Encoding: br",
        b"Content-Encoding: deflate",
        b"Content-Length: -1",
        b"Content-Length: 99999999999999999999",
        b"Transfer-Encoding: chunked",
        b"Location: ///",
        b"WWW-Authenticate: \xff",
        b"Set-Cookie: a=\x01",
        b"Retry-After: never",
        b"Connection: close",
    ]
)
STATUSES = st.sampled_from([100, 101, 199, 200, 204, 206, 301, 304, 307, 401, 404, 418, 429, 500, 503, 599, 999])


def damaged(data: bytes, damage: list[tuple[float, int, bytes]]) -> bytes:
    """`data` with pieces cut out and noise put in."""
    for place, cut, noise in damage:
        at = int(place * len(data))
        data = data[:at] + noise + data[at + cut :]
    return data


async def only_our_errors(transport: str, answer: Raw) -> None:
    """Make every kind of call and have it answered so; whatever is wrong with that is an A2AError."""
    operations = ("SendMessage", "SendStreamingMessage", "SubscribeToTask", "GetTask", "ListTasks", "CancelTask")
    script: Script = {operation: [answer] * 40 for operation in operations}
    async with scripted(BINDING[transport], script) as agent:
        agent.patient = True
        async with connect(agent.card, recovery=QUICK, timeouts=TIMEOUTS) as peer:

            async def streamed() -> None:
                [event async for event in peer.stream("go")]

            async def listed() -> None:
                [t async for t in peer.list_all()]

            calls: list[Callable[[], object]] = [
                lambda: peer.send("go"),
                streamed,
                lambda: peer.get(TASK),
                listed,
                lambda: peer.cancel(TASK),
            ]
            for call in calls:
                try:
                    await call()  # type: ignore[misc]
                except A2AError as error:
                    assert str(error).encode("utf-8")  # noqa: PT017 - any of them may come, or none


@both
@few
@given(damage=DAMAGE, status_code=STATUSES)
def test_damaged_json_gives_only_errors_of_ours(
    transport: str, damage: list[tuple[float, int, bytes]], status_code: int
) -> None:
    body = encode(SendMessageResponse(task=task(TaskState.COMPLETED, artifact("a", "text"))))
    if transport == "jsonrpc":
        body = jsonrpc.encode_result(b"1", body)
    answer = Http(status_code, damaged(body, damage), {"Content-Type": "application/json"})
    run(only_our_errors(transport, Raw(answer.data, end="cut")))


@both
@few
@given(damage=DAMAGE, header=HEADERS, status_code=STATUSES)
def test_damaged_http_gives_only_errors_of_ours(
    transport: str, damage: list[tuple[float, int, bytes]], header: bytes, status_code: int
) -> None:
    body = encode(message("hi"))
    head = b"HTTP/1.1 %d X\r\n%b\r\nContent-Length: %d\r\n\r\n" % (status_code, header, len(body))
    run(only_our_errors(transport, Raw(damaged(head + body, damage), end="cut")))


@both
@few
@given(damage=DAMAGE)
def test_damaged_stream_gives_only_errors_of_ours(transport: str, damage: list[tuple[float, int, bytes]]) -> None:
    async def test() -> None:
        events = Stream(task(), artifact_update("a", "one"), appended("a", "two"), status(TaskState.COMPLETED), first=1)
        async with scripted(BINDING[transport], {}) as agent:
            whole = agent.stream_bytes(events, any_request(transport))
        await only_our_errors(transport, Raw(damaged(whole, damage), end="cut"))

    run(test())
