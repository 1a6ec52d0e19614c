"""The agent card over HTTP: where it is, which URLs it names, and how it is cached (A2A 1.0 §8)."""

from __future__ import annotations

from email.utils import formatdate, parsedate_to_datetime
from typing import Any

import pytest

import tieline
from tests.server.agents import replier, worker
from tests.server.raw import JSON, Pairs, Reply, asgi, in_loop, request, serve
from tieline import AgentSkill
from tieline.wire.dialects import DIALECTS

CARD = "/.well-known/agent-card.json"


def urls(reply: Reply) -> dict[str, str]:
    """The URLs of a card, by binding."""
    assert reply.status == 200, reply
    return {each["protocolBinding"]: each["url"] for each in reply.json()["supportedInterfaces"]}


async def card(app: Any, headers: Pairs | None = None, **scope: Any) -> Reply:
    """The card page by an ASGI call; `Host` is agents.example unless the headers name one."""
    named = [("Host", "agents.example")] if headers is None else headers
    return await asgi(app, "GET", scope.pop("path", CARD), headers=named, **scope)


# --- where it is ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("card.available", "card.well-known-path", over=("jsonrpc", "rest"))
@in_loop
async def test_the_card_is_at_its_well_known_path_as_json() -> None:
    async with serve(tieline.app(worker())) as port:
        reply = await request(port, "GET", CARD)
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json"
    assert int(reply.headers["content-length"]) == len(reply.body)
    assert reply.json()["name"] == "Worker"


@in_loop
async def test_head_gives_the_headers_of_get_without_its_body() -> None:
    async with serve(tieline.app(worker())) as port:
        head = await request(port, "HEAD", CARD)
        get = await request(port, "GET", CARD)
    assert (head.status, head.body) == (200, b"")
    assert {**head.headers, "date": ""} == {**get.headers, "date": ""}


@pytest.mark.parametrize("verb", ["POST", "PUT", "DELETE", "PATCH"])
@in_loop
async def test_other_verbs_are_refused_with_those_that_are_allowed(verb: str) -> None:
    reply = await asgi(tieline.app(worker()), verb, CARD, b"{}")
    assert reply.status == 405
    assert reply.headers["allow"] == "GET, HEAD, OPTIONS"


@in_loop
async def test_a_query_behind_the_path_changes_nothing() -> None:
    async with serve(tieline.app(worker())) as port:
        assert (await request(port, "GET", f"{CARD}?x=1")).status == 200


# --- what it promises -------------------------------------------------------------------------------------------------


@pytest.mark.requirement(
    "card.declares-every-protocol", "card.protocols-properly-declared", "interface.preference-order"
)
@in_loop
async def test_the_card_declares_json_rpc_and_rest_of_each_dialect_the_latest_first_and_nothing_else() -> None:
    declared = (await card(tieline.app(worker()))).json()["supportedInterfaces"]
    versions = [dialect.version for dialect in DIALECTS if dialect.version != "0.1"]
    assert [(each["protocolBinding"], each["protocolVersion"]) for each in declared] == [
        (binding, version) for version in versions for binding in ("JSONRPC", "HTTP+JSON")
    ]
    assert versions[0] == "1.0"


@pytest.mark.requirement("interface.accurate")
@in_loop
async def test_every_declared_interface_speaks_its_protocol_at_its_url() -> None:
    async with serve(tieline.app({"one": replier(), "two": worker()})) as port:
        for name in ("one", "two"):
            declared = urls(await request(port, "GET", f"/{name}{CARD}"))
            for url in declared.values():
                assert url.startswith(f"http://127.0.0.1:{port}/{name}")
            root = declared["JSONRPC"].removeprefix(f"http://127.0.0.1:{port}")
            body = b'{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{}}'
            answer = (await request(port, "POST", root, body, JSON)).json()
            assert answer["result"]["totalSize"] == 0
            base = declared["HTTP+JSON"].removeprefix(f"http://127.0.0.1:{port}")
            assert (await request(port, "GET", f"{base}/tasks")).json()["totalSize"] == 0


@pytest.mark.parametrize("streaming", [True, False])
@in_loop
async def test_the_card_says_whether_the_agent_streams(streaming: bool) -> None:
    reply = await card(tieline.app(worker(streaming=streaming)), [("Host", "a"), ("A2A-Version", "1.0")])
    assert reply.json()["capabilities"] == {
        "streaming": streaming,
        "pushNotifications": False,
        "extendedAgentCard": False,
    }


# --- the public URL ---------------------------------------------------------------------------------------------------


@pytest.mark.requirement("interface.accurate")
@pytest.mark.parametrize("host", ["agents.example", "agents.example:8443", "[::1]:8000", "127.0.0.1:9"])
@in_loop
async def test_without_a_setting_the_urls_are_those_that_the_request_came_to(host: str) -> None:
    reply = await card(tieline.app(worker()), [("Host", host)], scheme="https")
    assert urls(reply) == {"JSONRPC": f"https://{host}/", "HTTP+JSON": f"https://{host}"}


@pytest.mark.parametrize(
    ("server", "base"),
    [(("10.0.0.5", 8080), "http://10.0.0.5:8080"), (("10.0.0.5", None), "http://10.0.0.5"), (None, "http://localhost")],
)
@in_loop
async def test_a_request_without_a_host_gets_the_address_of_the_server(server: Any, base: str) -> None:
    assert urls(await card(tieline.app(worker()), [], server=server))["JSONRPC"] == f"{base}/"


@pytest.mark.requirement("interface.accurate")
@pytest.mark.parametrize("public_url", ["https://agents.example/hello", "https://agents.example/hello/"])
@in_loop
async def test_a_public_url_is_what_callers_are_told_whatever_the_request_says(public_url: str) -> None:
    app = tieline.app(worker(), public_url=public_url)
    reply = await card(
        app, [("Host", "10.0.0.5"), ("X-Forwarded-Host", "evil.example")], root_path="/x", path=f"/x{CARD}"
    )
    assert urls(reply) == {"JSONRPC": "https://agents.example/hello/", "HTTP+JSON": "https://agents.example/hello"}


@in_loop
async def test_with_several_agents_each_is_below_the_public_url() -> None:
    app = tieline.app({"a": worker(), "b": worker()}, public_url="https://agents.example/all")
    reply = await card(app, path=f"/b{CARD}")
    assert urls(reply) == {"JSONRPC": "https://agents.example/all/b/", "HTTP+JSON": "https://agents.example/all/b"}


@pytest.mark.parametrize("public_url", ["agents.example", "/hello", "ftp://agents.example", ""])
def test_a_public_url_that_is_none_is_refused(public_url: str) -> None:
    with pytest.raises(ValueError, match="public_url"):
        tieline.app(worker(), public_url=public_url)


@pytest.mark.requirement("interface.accurate")
@in_loop
async def test_a_root_path_is_part_of_the_urls() -> None:
    reply = await card(tieline.app(worker()), root_path="/agents/w", path=f"/agents/w{CARD}")
    assert urls(reply) == {
        "JSONRPC": "http://agents.example/agents/w/",
        "HTTP+JSON": "http://agents.example/agents/w",
    }


@in_loop
async def test_a_root_path_that_the_server_has_cut_off_is_part_of_the_urls_all_the_same() -> None:
    reply = await card(tieline.app({"agents": worker()}), root_path="/agent", path=f"/agents{CARD}")
    assert urls(reply)["JSONRPC"] == "http://agents.example/agent/agents/"


FORWARDED = [
    ("Host", "10.0.0.5:8000"),
    ("X-Forwarded-Host", "agents.example, proxy.internal"),
    ("X-Forwarded-Proto", "https, http"),
    ("X-Forwarded-Prefix", "/a2a/"),
]


@pytest.mark.requirement("interface.accurate")
@in_loop
async def test_a_trusted_proxy_says_host_scheme_and_prefix() -> None:
    reply = await card(tieline.app(worker(), trust_forwarded=True), FORWARDED)
    assert urls(reply) == {"JSONRPC": "https://agents.example/a2a/", "HTTP+JSON": "https://agents.example/a2a"}


@in_loop
async def test_a_proxy_that_is_not_trusted_says_nothing() -> None:
    reply = await card(tieline.app(worker()), FORWARDED)
    assert urls(reply)["JSONRPC"] == "http://10.0.0.5:8000/"


@pytest.mark.parametrize(
    "host", ['a"b', "a</script>", "a b", "a/../x", "a?x=", "a#b", "a@b", "a:b:c", "[::1", "a:99999x"]
)
@pytest.mark.parametrize("header", ["Host", "X-Forwarded-Host"])
@in_loop
async def test_a_host_that_is_none_does_not_get_into_the_card(header: str, host: str) -> None:
    app = tieline.app(worker(), trust_forwarded=True)
    reply = await card(app, [("Host", "agents.example"), (header, host)])
    assert reply.status in (200, 400)
    if reply.status == 200:
        for url in urls(reply).values():
            assert url.rstrip("/") in ("http://agents.example", "http://127.0.0.1:80", "http://127.0.0.1")


@in_loop
async def test_cards_for_many_hosts_do_not_pile_up() -> None:
    app = tieline.app(worker())
    pages: Any = next(iter(app._endpoints.values()))._card._pages
    for number in range(500):
        assert urls(await card(app, [("Host", f"h{number}.example")]))["JSONRPC"] == f"http://h{number}.example/"
    assert len(pages) <= 64


# --- caching ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("cache.cache-control", "cache.etag", "cache.standard-http")
@in_loop
async def test_the_card_is_served_with_what_caches_need() -> None:
    reply = await card(tieline.app(worker()))
    assert "max-age=" in reply.headers["cache-control"]
    assert reply.headers["etag"].startswith('"')
    assert reply.headers["etag"].endswith('"')
    assert parsedate_to_datetime(reply.headers["last-modified"]).tzinfo is not None
    assert reply.headers["vary"] == "Host, A2A-Version"


@in_loop
async def test_behind_a_trusted_proxy_caches_are_told_that_its_headers_count_too() -> None:
    reply = await card(tieline.app(worker(), trust_forwarded=True))
    varies = {name.strip().lower() for name in reply.headers["vary"].split(",")}
    assert varies == {"host", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-prefix", "a2a-version"}


@in_loop
async def test_with_a_public_url_a_cache_need_not_tell_hosts_apart() -> None:
    app = tieline.app(worker(), public_url="https://agents.example")
    one, other = await card(app, [("Host", "a")]), await card(app, [("Host", "b")])
    assert (one.body, one.headers["etag"]) == (other.body, other.headers["etag"])


@pytest.mark.requirement("cache.etag")
@in_loop
async def test_the_etag_changes_when_the_card_does_and_only_then() -> None:
    first = await card(tieline.app(worker()))
    again = await card(tieline.app(worker()))
    assert first.headers["etag"] == again.headers["etag"]
    others = [
        tieline.app(worker(version="2.0.0")),
        tieline.app(worker(skills=[AgentSkill("a", "A", "Does a.", ("t",))])),
        tieline.app(worker(), public_url="https://other.example"),
    ]
    tags = {(await card(app)).headers["etag"] for app in others}
    assert len(tags | {first.headers["etag"]}) == 4


@pytest.mark.requirement("cache.standard-http")
@pytest.mark.parametrize("form", ["{}", "W/{}", '"other", {}', "{},{}", "*", '"x",W/{}'])
@pytest.mark.parametrize("verb", ["GET", "HEAD"])
@in_loop
async def test_an_unchanged_card_is_not_sent_again(verb: str, form: str) -> None:
    async with serve(tieline.app(worker())) as port:
        etag = (await request(port, "GET", CARD)).headers["etag"]
        reply = await request(port, verb, CARD, headers=[("If-None-Match", form.replace("{}", etag))])
    assert (reply.status, reply.body) == (304, b"")
    assert reply.headers["etag"] == etag
    assert "max-age=" in reply.headers["cache-control"]
    assert "vary" in reply.headers


@pytest.mark.requirement("cache.standard-http")
@in_loop
async def test_a_card_that_was_not_changed_since_is_not_sent_again() -> None:
    async with serve(tieline.app(worker())) as port:
        modified = (await request(port, "GET", CARD)).headers["last-modified"]
        earlier = formatdate(parsedate_to_datetime(modified).timestamp() - 1, usegmt=True)
        assert (await request(port, "GET", CARD, headers=[("If-Modified-Since", modified)])).status == 304
        assert (await request(port, "GET", CARD, headers=[("If-Modified-Since", earlier)])).status == 200
        both = [("If-None-Match", '"other"'), ("If-Modified-Since", modified)]
        assert (await request(port, "GET", CARD, headers=both)).status == 200  # the tag counts alone (RFC 9110 §13.1.3)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "yesterday",
        "0",
        "Mon, 01 Jan 0001 00:00:00 -0000",
        "Mon, 99 Jan 2024 00:00:00 GMT",
        "Mon, 01 Jan 99999 00:00:00 GMT",
        "Mon, 01 Jan 2024 00:00:00 +99999999",
        "Mon, 01 Jan 2024 00:00:00",
        "1 " * 1000,
        "\xff",
    ],
)
@pytest.mark.parametrize("header", ["If-Modified-Since", "If-None-Match"])
@in_loop
async def test_a_condition_that_is_none_gets_the_card(header: str, value: str) -> None:
    reply = await card(tieline.app(worker()), [("Host", "a"), (header, value)])
    assert reply.status == 200
    assert reply.body
