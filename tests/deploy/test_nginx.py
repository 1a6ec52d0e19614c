"""Behind nginx with the file that is shipped: cards, calls, streams, files, and what the proxy itself refuses."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from tests.deploy.agents import Gate, Seen, echo, stepping
from tests.deploy.nginx import Nginx
from tests.interop.processes import ROOT
from tests.server.raw import A2A_JSON, JSON, Pairs, Wire, in_loop, request, serve
from tieline import Limits, Part, Task, TaskArtifactUpdateEvent, Telemetry, app, connect
from tieline.errors import BodyTooLarge, Overloaded, TaskInDoubt

BINDINGS = ("JSONRPC", "HTTP+JSON")
both = pytest.mark.parametrize("binding", BINDINGS)
LARGE = 10_000_000
PAGE = ROOT / "docs" / "proxies.md"


@asynccontextmanager
async def behind(application: Any, **options: Any) -> AsyncIterator[Nginx]:
    """An app, and nginx in front of it."""
    owner = application.app if isinstance(application, Seen) else application
    async with serve(application, owner=owner) as port:
        with Nginx([port], **options) as nginx:
            yield nginx


def of_page(heading: str) -> str:
    """The nginx lines below a heading of the page about proxies."""
    match = re.search(rf"^##+ {heading}\n.*?^```nginx\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert match is not None, heading
    return match[1]


def stream_of(binding: str, text: str) -> tuple[str, bytes, Pairs]:
    """Path, body and headers of SendStreamingMessage."""
    params = {"message": {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": text}]}}
    if binding == "HTTP+JSON":
        return "/message:stream", json.dumps(params).encode(), A2A_JSON
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": params}
    return "/", json.dumps(call).encode(), JSON


def urls_of(card: dict[str, Any]) -> set[str]:
    return {interface["url"].rstrip("/") for interface in card["supportedInterfaces"]}


# --- cards ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"trust_forwarded": True}, {}])
@in_loop
async def test_card_names_the_address_that_the_caller_has_used(options: dict[str, Any]) -> None:
    async with behind(app(echo, **options)) as nginx:
        card = (await request(nginx.port, "GET", "/.well-known/agent-card.json")).json()
        assert urls_of(card) == {nginx.url}
        assert [call.status for call in await nginx.logged(1)] == [200]


@in_loop
async def test_card_names_the_public_url_whatever_the_proxy_is_called() -> None:
    async with behind(app(echo, public_url="https://agents.example/echo")) as nginx:
        card = (await request(nginx.port, "GET", "/.well-known/agent-card.json")).json()
        assert urls_of(card) == {"https://agents.example/echo"}


@in_loop
async def test_agent_below_a_path_is_found_called_and_followed_there() -> None:
    lines = of_page("Below a path")

    def change(text: str) -> str:
        include = re.search(r"include (\S+)nginx-proxy.conf", text)
        if include is None:
            return text
        return re.sub(r"location / \{.*?\}", lines.replace("/etc/nginx/", include[1]), text, flags=re.DOTALL)

    async with behind(app(echo, trust_forwarded=True), change=change) as nginx:
        url = f"{nginx.url}/agents/hello"
        card = (await request(nginx.port, "GET", "/agents/hello/.well-known/agent-card.json")).json()
        assert urls_of(card) == {url}
        for binding in BINDINGS:
            async with connect(url, transport=binding) as peer:
                assert await peer.ask("Ada") == "Ada"
                assert [event async for event in peer.stream("Grace")]
        assert (await request(nginx.port, "GET", "/tasks")).status == 404


@in_loop
async def test_headers_that_only_a_proxy_may_set_do_not_come_through_from_a_caller() -> None:
    seen = Seen(app(echo, trust_forwarded=True))
    forged: Pairs = [
        ("X-Forwarded-Host", "evil.example"),
        ("X-Forwarded-Proto", "gopher"),
        ("X-Forwarded-Prefix", "/evil"),
        ("X-Forwarded-Port", "1"),
        ("X-Forwarded-For", "192.0.2.1"),
        ("Forwarded", "for=192.0.2.1;host=evil.example"),
        ("X-Client-Cert-Verify", "SUCCESS"),
        ("X-Client-Cert-Subject", "CN=admin"),
        ("x-client-cert", "forged"),
        ("X_Client_Cert_Subject", "CN=admin"),
    ]
    async with behind(seen) as nginx:
        answer = await request(nginx.port, "GET", "/.well-known/agent-card.json", headers=forged)
        assert urls_of(answer.json()) == {nginx.url}
        assert seen.last("x-forwarded-for") == ["127.0.0.1"]
        assert not [name for name, _ in seen.headers[-1] if "client" in name]
        assert not any("evil" in value or "192.0.2.1" in value for _, value in seen.headers[-1])


@in_loop
async def test_metrics_beside_the_agents_are_not_for_callers() -> None:
    async with serve(app(echo, telemetry=Telemetry(metrics=True))) as port:
        with Nginx([port]) as nginx:
            assert (await request(port, "GET", "/metrics")).status == 200
            assert (await request(nginx.port, "GET", "/metrics")).status == 404


# --- calls and streams ------------------------------------------------------------------------------------------------


@both
@in_loop
async def test_tasks_are_begun_read_listed_and_cancelled_through_the_proxy(binding: str) -> None:
    gate = Gate()
    async with behind(app(stepping(gate))) as nginx, connect(nginx.url, transport=binding) as peer:
        task = await peer.send("3", return_immediately=True)
        assert isinstance(task, Task)
        assert (await peer.get(task.id)).id == task.id
        assert (await peer.list()).total_size == 1
        assert (await peer.cancel(task.id)).state.value == "TASK_STATE_CANCELED"


@both
@in_loop
async def test_each_event_arrives_while_the_agent_waits_for_it_to_be_seen(binding: str) -> None:
    gate = Gate()
    async with behind(app(stepping(gate))) as nginx, Wire(nginx.port) as wire:
        await wire.write("POST", *stream_of(binding, "5"))
        status, headers = await wire.head()
        assert (status, headers["content-type"]) == (200, "text/event-stream")
        seen = []
        async for frame in wire.frames():
            event = frame.data.get("result", frame.data)
            if "artifactUpdate" in event:
                seen += [part["text"] for part in event["artifactUpdate"]["artifact"]["parts"]]
                gate.let()  # the agent does not go on before this has arrived
        assert seen == ["0 ", "1 ", "2 ", "3 ", "4 "]


@both
@in_loop
async def test_second_proxy_in_front_of_the_first_passes_events_on_where_it_is_told_not_to_buffer(binding: str) -> None:
    def outer(text: str) -> str:
        # HTTP/1.0 is what nginx speaks where nothing is said: over it, answers are collected unless it is told not to.
        return text.replace("proxy_http_version 1.1;", "proxy_http_version 1.0; proxy_buffering off;")

    gate = Gate()
    async with behind(app(stepping(gate))) as inner:
        with Nginx([inner.port], change=outer) as nginx:
            async with connect(nginx.url, transport=binding) as peer:
                seen = 0
                async for event in peer.stream("3"):
                    if isinstance(event, TaskArtifactUpdateEvent):
                        seen += 1
                        gate.let()
                assert seen == 3


@both
@in_loop
async def test_idle_stream_is_kept_open_beyond_the_time_that_the_proxy_waits_for_a_byte(binding: str) -> None:
    gate = Gate()
    application = app(stepping(gate), keep_alive_s=0.25)

    def hasty(text: str) -> str:
        return text.replace("proxy_read_timeout 1h", "proxy_read_timeout 1s")

    async with behind(application, change=hasty) as nginx:
        path, body, headers = stream_of(binding, "1")
        unary = body.replace(b"SendStreamingMessage", b"SendMessage").replace(b"m-1", b"m-0")
        silent = await request(nginx.port, "POST", path.replace("stream", "send"), unary, headers)
        assert silent.status == 504  # so that the limit is really there
        gate.let()
        async with Wire(nginx.port) as wire:
            await wire.write("POST", path, body, headers)
            assert (await wire.head())[0] == 200
            comments = 0
            last: Any = None
            async for frame in wire.frames():
                if frame.comment is None:
                    last = frame.data.get("result", frame.data)
                    continue
                comments += 1
                if comments == 8:  # two seconds, twice what the proxy waits
                    gate.let()
            assert comments >= 8
            assert last["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


@both
@in_loop
async def test_caller_that_goes_away_is_noticed_behind_the_proxy_and_the_agent_works_on(binding: str) -> None:
    gate = Gate()
    application = app(stepping(gate), keep_alive_s=0.25)
    async with behind(application) as nginx, connect(nginx.url) as peer:
        async with Wire(nginx.port) as wire:
            await wire.write("POST", *stream_of(binding, "2"))
            await wire.head()
        await nginx.logged(1, "POST")
        gate.let(2)
        (task,) = (await peer.list()).tasks
        assert (await peer.wait(task.id)).state.value == "TASK_STATE_COMPLETED"


# --- files ------------------------------------------------------------------------------------------------------------


@both
@in_loop
async def test_file_of_ten_megabytes_goes_up_and_comes_down_whole(binding: str) -> None:
    content = os.urandom(LARGE)
    async with behind(app(echo)) as nginx, connect(nginx.url, transport=binding) as peer:
        answer = await peer.send(Part(raw=content, media_type="application/octet-stream"), history_length=0)
        assert isinstance(answer, Task)
        assert b"".join(part.raw or b"" for each in answer.artifacts for part in each.parts) == content
        events = [event async for event in peer.stream(Part(raw=content, media_type="application/octet-stream"))]
        pieces = [event for event in events if isinstance(event, TaskArtifactUpdateEvent)]
        assert b"".join(part.raw or b"" for each in pieces for part in each.artifact.parts) == content


# --- what the proxy refuses -------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("streams", [False, True])
@in_loop
async def test_request_that_is_too_large_for_the_proxy_is_told_as_that(binding: str, streams: bool) -> None:
    def small(text: str) -> str:
        return text.replace("client_max_body_size 64m", "client_max_body_size 1m")

    async with behind(app(echo), change=small) as nginx, connect(nginx.url, transport=binding) as peer:
        with pytest.raises(BodyTooLarge, match=r"larger than .* takes \(HTTP 413\)"):
            await called(peer, "x" * 3_000_000, streams)
        assert await peer.ask("Ada") == "Ada"


@both
@pytest.mark.parametrize("streams", [False, True])
@in_loop
async def test_replicas_that_are_away_are_told_as_the_proxys_502(binding: str, streams: bool) -> None:
    async with AsyncExitStack() as replica:
        port = await replica.enter_async_context(serve(app(echo)))
        with Nginx([port]) as nginx:
            async with connect(nginx.url, transport=binding) as peer:
                await replica.aclose()
                with pytest.raises(TaskInDoubt, match=r"answered HTTP 502 \(text/html\): 502 Bad Gateway$"):
                    await called(peer, "Ada", streams)
            assert [call.status for call in await nginx.logged(1, "POST")] == [502]


@both
@in_loop
async def test_answer_that_the_proxy_does_not_wait_for_is_told_as_its_504(binding: str) -> None:
    def hasty(text: str) -> str:
        return text.replace("proxy_read_timeout 1h", "proxy_read_timeout 300ms")

    gate = Gate()
    async with behind(app(stepping(gate)), change=hasty) as nginx, connect(nginx.url, transport=binding) as peer:
        with pytest.raises(TaskInDoubt, match=r"answered HTTP 504 \(text/html\): 504 Gateway Time-out$"):
            await peer.send("1")
        gate.let()


@both
@pytest.mark.parametrize("streams", [False, True])
@in_loop
async def test_replicas_that_are_full_say_so_themselves_however_often_they_are_asked(
    binding: str, streams: bool
) -> None:
    gate = Gate()
    full = app(stepping(gate), limits=Limits(concurrent_runs=1))
    async with behind(full) as nginx, connect(nginx.url, transport=binding) as peer:
        await peer.send("1", return_immediately=True)
        for _ in range(8):
            with pytest.raises(Overloaded) as refused:
                await called(peer, "1", streams)
            assert refused.value.retry_after_s > 0
        assert [call.status for call in await nginx.logged(9, "POST")] == [200] + 8 * [503]
        gate.let()


async def called(peer: Any, text: str, streams: bool) -> None:
    """One call, whole or as a stream."""
    if streams:
        async for _ in peer.stream(text):
            pass
    else:
        await peer.send(text)
