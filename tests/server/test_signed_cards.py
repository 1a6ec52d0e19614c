"""Cards that are signed: every body of them, the page of keys, and what is never signed (A2A 1.0 §8.4)."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from typing import Any

import pytest

import tieline
from tests.server.agents import replier, worker
from tests.server.raw import Pairs, Reply, asgi, in_loop, request, serve
from tieline import AgentExtension, App, CardSigner
from tieline.signing_keys import new_private_key, public_keys
from tieline.wire.signing import SignatureState, check_signatures

CARD, OLD_CARD = "/.well-known/agent-card.json", "/.well-known/agent.json"
KEYS = "/.well-known/jwks.json"
SIGNER = CardSigner(new_private_key(), key_id="k1")
HOST: Pairs = [("Host", "agents.example")]


def signed_app(agents: Any, signer: CardSigner = SIGNER, **options: Any) -> App:
    return tieline.app(agents, card_signer=signer, **({"public_url": "https://agents.example"} | options))


def states(reply: Reply, keys: bytes = SIGNER.jwks) -> set[SignatureState]:
    assert reply.status == 200, reply
    return {each.state for each in check_signatures(reply.body, public_keys(keys, "keys"), now_s=0.0)}


def header(reply: Reply) -> dict[str, Any]:
    (protected,) = {signature["protected"] for signature in reply.json()["signatures"]}
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(protected + "=="))
    return found


@pytest.mark.requirement("signing.header-alg", "signing.header-typ", "signing.header-kid", "signing.jws-fields")
@pytest.mark.parametrize("path", [CARD, OLD_CARD])
@pytest.mark.parametrize("version", ["", "1.0", "0.3", "0.2", "0.1", "9.9"])
@in_loop
async def test_every_body_of_the_card_is_signed_by_the_key_that_it_serves(path: str, version: str) -> None:
    async with serve(signed_app(worker())) as port:
        card = await request(port, "GET", path, headers=[("A2A-Version", version)] if version else [])
        keys = await request(port, "GET", KEYS)
    assert (keys.status, keys.headers["content-type"]) == (200, "application/jwk-set+json")
    assert keys.body == SIGNER.jwks
    assert states(card, keys.body) == {SignatureState.VERIFIED}
    jku = "https://agents.example/.well-known/jwks.json"
    assert header(card) == {"alg": "ES256", "typ": "JOSE", "kid": "k1", "jku": jku}


@in_loop
async def test_a_signed_card_is_the_card_and_its_signatures() -> None:
    plain = await asgi(tieline.app(worker(), public_url="https://agents.example"), "GET", CARD, headers=HOST)
    signed = (await asgi(signed_app(worker()), "GET", CARD, headers=HOST)).json()
    assert signed.pop("signatures")
    assert signed == plain.json()


@in_loop
async def test_each_host_that_is_answered_for_has_a_card_and_a_key_of_its_own() -> None:
    app = signed_app(worker(), public_url=None, allowed_hosts=["localhost", "127.0.0.1"])
    for host in ("localhost", "127.0.0.1:9000"):
        reply = await asgi(app, "GET", CARD, headers=[("Host", host)])
        assert states(reply) == {SignatureState.VERIFIED}
        assert header(reply)["jku"] == f"http://{host}/.well-known/jwks.json"
        assert reply.json()["supportedInterfaces"][0]["url"] == f"http://{host}/"
    assert (await asgi(app, "GET", CARD, headers=[("Host", "evil.example")])).status == 421


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"trust_forwarded": True},
        {"allowed_hosts": ["localhost"], "trust_forwarded": True},
        {"allowed_hosts": ["localhost", "a.example"]},  # at whatever port a request names
    ],
)
def test_cards_are_not_signed_where_any_request_could_choose_the_place_in_them(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="public_url"):
        signed_app(worker(), **({"public_url": None} | options))


@in_loop
async def test_several_agents_share_the_key_which_is_below_each_and_at_the_root() -> None:
    app = signed_app({"a": worker(), "b": replier()})
    for path in ("/a", "/b"):
        card = await asgi(app, "GET", path + CARD, headers=HOST)
        assert states(card) == {SignatureState.VERIFIED}
        assert header(card)["jku"] == f"https://agents.example{path}{KEYS}"
        assert (await asgi(app, "GET", path + KEYS, headers=HOST)).body == SIGNER.jwks
    assert (await asgi(app, "GET", KEYS, headers=HOST)).body == SIGNER.jwks


@in_loop
async def test_the_signers_own_key_url_is_named_where_it_has_one() -> None:
    signer = CardSigner(new_private_key("EdDSA"), key_url="https://keys.example/all.json")
    reply = await asgi(signed_app(worker(), signer), "GET", CARD, headers=HOST)
    assert header(reply)["jku"] == "https://keys.example/all.json"


@in_loop
async def test_a_body_is_signed_once_and_its_tag_is_the_same_in_every_process_that_has_the_key() -> None:
    first, second = signed_app(worker()), signed_app(worker())
    one = await asgi(first, "GET", CARD, headers=HOST)
    assert (await asgi(first, "GET", CARD, headers=HOST)).body == one.body
    other = await asgi(second, "GET", CARD, headers=HOST)
    assert other.body != one.body
    tag = one.headers["etag"]
    assert tag == other.headers["etag"]
    assert tag.startswith('W/"')
    for asked in (tag, tag.removeprefix("W/"), f'"x", {tag}', "*"):
        again = await asgi(second, "GET", CARD, headers=[*HOST, ("If-None-Match", asked)])
        assert (again.status, again.body) == (304, b"")
    rotated = signed_app(worker(), CardSigner(new_private_key(), key_id="k2"))
    assert (await asgi(rotated, "GET", CARD, headers=HOST)).headers["etag"] != tag


@in_loop
async def test_the_page_of_keys_is_cached_open_to_web_pages_and_read_only() -> None:
    app = signed_app(worker())
    page = await asgi(app, "GET", KEYS, headers=[*HOST, ("Origin", "https://elsewhere.example")])
    assert page.headers["access-control-allow-origin"] == "*"
    assert page.headers["cache-control"] == "public, max-age=300"
    assert "vary" not in page.headers
    again = await asgi(app, "GET", KEYS, headers=[*HOST, ("If-None-Match", page.headers["etag"])])
    assert (again.status, again.body) == (304, b"")
    head = await asgi(app, "HEAD", KEYS, headers=HOST)
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(len(page.body)))
    refused = await asgi(app, "POST", KEYS, b"{}", headers=HOST)
    assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD, OPTIONS")


@in_loop
async def test_without_a_signer_there_is_neither_a_signature_nor_a_page_of_keys() -> None:
    for agents in (worker(), {"a": worker()}):
        app = tieline.app(agents)
        assert (await asgi(app, "GET", KEYS, headers=HOST)).status == 404
    assert "signatures" not in (await asgi(tieline.app(worker()), "GET", CARD, headers=HOST)).json()


def test_a_card_that_has_no_canonical_form_is_an_error_at_the_start() -> None:
    odd = AgentExtension("https://x.example", params={"n": 2**53 + 1})
    with pytest.raises(ValueError, match=r"agent 'Worker' cannot be signed: an integer is no double"):
        signed_app(worker(extensions=[odd]))


def test_serving_cards_that_are_not_signed_loads_nothing_to_sign_with() -> None:
    code = "import sys, tieline; tieline.app; tieline.serve; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert not {"joserfc", "tieline.wire.signing", "tieline.wire.signed"} & {*done.stdout.split()}
