"""JSON Web Tokens of a provider in a process of its own: what is signed, by whom, for whom, and for how long."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import ProxyHandler, build_opener

import pytest
from joserfc import jws, jwt
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from tests.auth.asking import ask, operations_of
from tests.auth.tokens import Tokens, bearer
from tests.behaviour.agents import make_agent
from tests.behaviour.harness import Json, Transport, eventually, refused
from tests.behaviour.serving import Serve, over
from tests.oidc.running import OidcProvider
from tieline import Turn
from tieline.server.auth import Auth, BearerTokens, Jwt, OpenIdConnect
from tieline.server.keys import PublicKeys, is_safe_url

INVALID = 'Bearer error="invalid_token"'
ISSUER = "https://issuer.example"


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are fetched anew as often as tests need them."""
    monkeypatch.setattr(PublicKeys, "again_s", 0.0)


async def _who(turn: Turn) -> str:
    return f"{turn.caller.principal} {' '.join(sorted(turn.caller.scopes))}".strip()


async def served(serve: Serve, auth: Auth) -> Transport:
    return await serve(make_agent(_who), auth=auth)


async def status(agent: Transport, token: str) -> int | str:
    return (await ask(agent.showing(bearer(token)), "SendMessage", "")).status


async def works(agent: Transport, token: str) -> bool:
    return await status(agent, token) in (200, "OK")


async def is_refused(agent: Transport, token: str) -> bool:
    return await status(agent, token) in (401, "UNAUTHENTICATED")


def of(provider: OidcProvider, **options: Any) -> Auth:
    return Auth(OpenIdConnect(provider.issuer, **{"audience": "agents", **options}))


async def test_a_token_of_the_provider_says_who_calls(serve: Serve, transport: str, provider: OidcProvider) -> None:
    agent = await served(serve, of(provider))
    for alg in ("ES256", "RS256"):
        task = await agent.showing(bearer(provider.mint(alg=alg, scope="a b", subject="ada"))).task("x")
        assert task["artifacts"][0]["parts"][0]["text"] == f"{provider.issuer}#ada a b"
    for operation in operations_of(transport):
        answer = await ask(agent.showing(bearer(provider.mint(wrong="alg_none"))), operation)
        assert answer.status in (401, "UNAUTHENTICATED")
        assert isinstance(answer.status, str) or answer.headers["www-authenticate"] == INVALID


WRONG: dict[str, Callable[[OidcProvider], str]] = {
    "alg none": lambda at: at.mint(wrong="alg_none"),
    "alg NONE": lambda at: _with_header(at.mint(), alg="NONE"),
    "no alg": lambda at: _with_header(at.mint(), alg=None),
    "another audience": lambda at: at.mint(wrong="wrong_audience"),
    "an audience that begins alike": lambda at: at.mint(audience="agents2"),
    "audiences without ours": lambda at: at.mint(audience=["a", "b"]),
    "no audience": lambda at: at.mint(without=("aud",)),
    "another issuer": lambda at: at.mint(wrong="wrong_issuer"),
    "an issuer with a slash more": lambda at: at.mint(iss=at.issuer + "/"),
    "no issuer": lambda at: at.mint(without=("iss",)),
    "expired": lambda at: at.mint(wrong="expired"),
    "expired by more than the clocks may differ": lambda at: at.mint(exp=int(time.time()) - 90),
    "not yet valid": lambda at: at.mint(wrong="not_yet"),
    "issued in the future": lambda at: at.mint(iat=int(time.time()) + 600),
    "no exp": lambda at: at.mint(without=("exp",)),
    "exp as text": lambda at: at.mint(exp="9999999999"),
    "exp is true": lambda at: at.mint(exp=True),
    "exp beyond all time": lambda at: at.mint(exp=10**400),
    "nbf as text": lambda at: at.mint(nbf="0"),
    "no sub": lambda at: at.mint(without=("sub",)),
    "an empty sub": lambda at: at.mint(subject=""),
    "a sub of another type": lambda at: at.mint(sub=7),
    "a sub with a line end": lambda at: at.mint(subject="ada\nbob"),
    "signed by a foreign key": lambda at: at.mint(key="foreign"),
    "signed by a foreign key of our key's name": lambda at: at.mint(wrong="key_swapped"),
    "crit": lambda at: _with_header(at.mint(), crit=["x"], x=1),
    "crit b64": lambda at: _with_header(at.mint(), crit=["b64"], b64=False),
    "HS256 with the public key": lambda at: _by_public_key(at),
    "RS256 by the name of a key for ES256": lambda at: _with_header(at.mint(alg="RS256"), kid=_kid(at.mint())),
    "too long": lambda at: at.mint(note="x" * 20_000),
    "a header that is deep": lambda at: _raw(b'{"alg":' + b"[" * 5000),
    "a header that is a list": lambda at: _raw(b"[]"),
    "a header that is text": lambda at: _raw(b'"x"'),
    "alg is a list": lambda at: _with_header(at.mint(), alg=["ES256"]),
    "kid is an object": lambda at: _with_header(at.mint(), kid={}),
    "no JSON": lambda at: _raw(b"\xff\xfe"),
    "no base64": lambda at: "a.b!.c",
    "three dots": lambda at: "..",
    "no signature": lambda at: at.mint().rpartition(".")[0] + ".",
    "a signature of another length": lambda at: at.mint() + "AAAA",
    "other claims under the signature": lambda at: _with_claims(at.mint(), sub="eve"),
}


def _pieces(token: str) -> list[Any]:
    return [json.loads(base64.urlsafe_b64decode(piece + "==")) for piece in token.split(".")[:2]]


def _encoded(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def _raw(header: bytes) -> str:
    return f"{_encoded(header)}.{_encoded(b'{}')}.{_encoded(b'x' * 64)}"


def _kid(token: str) -> str:
    return str(_pieces(token)[0]["kid"])


def _with_header(token: str, **changes: Any) -> str:
    header = {k: v for k, v in {**_pieces(token)[0], **changes}.items() if v is not None}
    return ".".join([_encoded(json.dumps(header).encode()), *token.split(".")[1:]])


def _with_claims(token: str, **changes: Any) -> str:
    head, _, signature = token.split(".")
    return ".".join([head, _encoded(json.dumps({**_pieces(token)[1], **changes}).encode()), signature])


def _by_public_key(provider: OidcProvider) -> str:
    """Signed by HMAC with the public key as the secret: for who does not look at the algorithm."""
    with build_opener(ProxyHandler({})).open(provider.jwks_uri, timeout=30) as response:
        keys = json.load(response)["keys"]
    raw = next(key for key in keys if key["kty"] == "RSA")
    pem = RSAKey.import_key(raw).as_pem(private=False)
    header, claims = _pieces(provider.mint(alg="RS256"))
    signed = ".".join(_encoded(json.dumps(piece).encode()) for piece in ({**header, "alg": "HS256"}, claims))
    return f"{signed}.{_encoded(hmac.digest(pem, signed.encode(), hashlib.sha256))}"


@over("jsonrpc")
@pytest.mark.parametrize("kind", WRONG)
async def test_token_that_is_wrong_is_refused(serve: Serve, provider: OidcProvider, kind: str) -> None:
    agent = await served(serve, of(provider))
    answer = await ask(agent.showing(bearer(WRONG[kind](provider))), "SendMessage", "")
    assert (answer.status, answer.headers.get("www-authenticate")) == (401, INVALID), answer
    assert await works(agent, provider.mint()), "the next one is looked at for itself"


@over("jsonrpc", "grpc")
@pytest.mark.parametrize("kind", ["alg none", "another audience", "expired", "a header that is deep"])
async def test_wrong_token_is_refused_over_any_binding(
    serve: Serve, transport: str, provider: OidcProvider, kind: str
) -> None:
    assert await is_refused(await served(serve, of(provider)), WRONG[kind](provider))


@over("jsonrpc")
async def test_clocks_may_differ_by_the_skew(serve: Serve, provider: OidcProvider) -> None:
    now = int(time.time())
    agent = await served(serve, of(provider))
    assert await works(agent, provider.mint(exp=now - 20))
    assert await works(agent, provider.mint(nbf=now + 30, iat=now + 30))
    assert await works(agent, provider.mint(audience=["other", "agents"]))
    strict = await served(serve, of(provider, skew_s=0))
    assert await is_refused(strict, provider.mint(exp=now - 20))
    assert await is_refused(strict, provider.mint(nbf=now + 30))


@over("jsonrpc")
async def test_token_expires_though_it_was_found_valid(serve: Serve, provider: OidcProvider) -> None:
    agent = await served(serve, of(provider, skew_s=0))
    token = provider.mint(lifetime_s=2)
    assert await works(agent, token)
    await eventually(lambda: is_refused(agent, token))


@over("jsonrpc", "grpc")
async def test_new_key_is_found_without_a_restart_and_a_withdrawn_one_is_believed_no_more(
    serve: Serve, transport: str, provider: OidcProvider
) -> None:
    agent = await served(serve, of(provider))
    before = provider.mint()
    assert await works(agent, before)
    provider.rotate()
    assert await works(agent, provider.mint())
    assert await works(agent, before), "the key before is still published"
    provider.rotate(keep=False)
    assert await works(agent, provider.mint())
    assert await is_refused(agent, before), "a valid token of before was remembered, and is looked at once more"


@over("jsonrpc")
async def test_keys_are_not_fetched_more_often_than_they_may_be_whatever_is_sent(
    serve: Serve, provider: OidcProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PublicKeys, "again_s", 600.0)
    agent = await served(serve, of(provider))
    for number in range(20):
        assert await is_refused(agent, provider.mint(key="foreign", header={"kid": f"unknown-{number}"}))
    assert len(provider.requests("/jwks")) == 1
    assert await works(agent, provider.mint())


@over("jsonrpc")
async def test_document_of_another_issuer_and_one_with_an_unsafe_url_are_not_believed(
    serve: Serve, provider: OidcProvider
) -> None:
    agent = await served(serve, of(provider))
    for settings in (
        {"issuer": "https://issuer.invalid"},
        {"metadata": {"jwks_uri": "http://issuer.example/jwks"}},
        {"metadata": {"jwks_uri": "file:///etc/passwd"}},
        {"metadata": {"jwks_uri": "https://["}},
        {"metadata": {"jwks_uri": 7}},
        {"metadata": {"jwks_uri": None}},
    ):
        provider.reset()
        provider.configure(**settings)
        assert await status(agent, provider.mint()) == 503, settings
    provider.reset()
    assert await works(agent, provider.mint())


# --- keys from elsewhere ----------------------------------------------------------------------------------------------


class Jwks:
    """A server of keys, which a test changes and stops."""

    def __init__(self) -> None:
        self.body: bytes = b"{}"
        self.status = 200
        outer = self

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(outer.status)
                self.send_header("Content-Length", str(len(outer.body)))
                self.send_header("Location", "/elsewhere")
                self.end_headers()
                self.wfile.write(outer.body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.url = f"http://127.0.0.1:{self._server.server_port}/jwks"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def publish(self, *keys: Any) -> None:
        self.body = json.dumps({"keys": list(keys)}).encode()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def jwks() -> Any:
    server = Jwks()
    yield server
    server.stop()


def signed(key: Any, alg: str, **header: Any) -> str:
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": "agents", "sub": "ada", "exp": now + 300}
    return jwt.encode({"alg": alg, **header}, claims, key, algorithms=[alg])


def public(key: Any, **more: Any) -> dict[str, Any]:
    return {**key.as_dict(private=False), **more}


@over("jsonrpc", "rest", "grpc", "rest-0.3", "jsonrpc-0.1")
async def test_provider_that_is_away_is_503_until_it_is_back(serve: Serve, transport: str, jwks: Jwks) -> None:
    key = ECKey.generate_key("P-256")
    agent = await served(serve, Auth(Jwt(ISSUER, audience="agents", jwks=jwks.url)))
    token = signed(key, "ES256")
    for broken in (500, 302, 404, 200):  # the last is no set of keys
        jwks.status = broken
        answer = await ask(agent.showing(bearer(token)), "SendMessage", "")
        assert answer.status in (503, "UNAVAILABLE"), broken
        assert isinstance(answer.status, str) or answer.headers["retry-after"].isdigit()
    for body in (b"[" * 100_000, b"\xff", b'{"keys": 1}', b'{"keys": []}', b"[]", b" " * 2_000_000):
        jwks.body = body
        assert await status(agent, token) in (503, "UNAVAILABLE"), body[:20]
    jwks.publish(public(key))
    assert await works(agent, token)


@over("jsonrpc")
async def test_keys_that_are_known_stay_in_use_while_the_provider_is_away(
    serve: Serve, jwks: Jwks, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = ECKey.generate_key("P-256")
    jwks.publish(public(key, kid="one"))
    agent = await served(serve, Auth(Jwt(ISSUER, audience="agents", jwks=jwks.url)))
    assert await works(agent, signed(key, "ES256", kid="one"))
    monkeypatch.setattr("tieline.server.keys._OLD_S", 0.0)
    jwks.stop()
    assert await works(agent, signed(key, "ES256", kid="one", typ="at+jwt"))


def test_fetch_of_keys_that_nobody_waits_for_any_more_is_not_the_answer_to_who_comes_later(jwks: Jwks) -> None:
    jwks.publish(public(ECKey.generate_key("P-256"), kid="one"))

    async def test() -> None:
        asked, let = asyncio.Event(), asyncio.Event()

        async def find() -> str:
            asked.set()
            await let.wait()
            return jwks.url

        keys = PublicKeys(url=find)
        leaving = asyncio.ensure_future(keys.for_header({"kid": "one"}))
        await asked.wait()
        leaving.cancel()
        await asyncio.wait([leaving])
        jwks.status = 500
        fetching = keys._fetching
        assert fetching is not None
        let.set()
        await asyncio.wait([fetching])
        jwks.status = 200
        assert await keys.for_header({"kid": "one"})

    asyncio.run(asyncio.wait_for(test(), 20))


@over("jsonrpc")
async def test_key_that_is_swapped_under_its_name_is_found_and_the_one_before_ends(serve: Serve, jwks: Jwks) -> None:
    one, other = ECKey.generate_key("P-256"), ECKey.generate_key("P-256")
    jwks.publish(public(one, kid="a"))
    agent = await served(serve, Auth(Jwt(ISSUER, audience="agents", jwks=jwks.url)))
    before = signed(one, "ES256", kid="a")
    assert await works(agent, before)
    jwks.publish(public(other, kid="a"))
    assert await works(agent, signed(other, "ES256", kid="a"))
    assert await is_refused(agent, before)


@over("jsonrpc")
async def test_keys_that_change_their_names_are_other_keys(serve: Serve, jwks: Jwks) -> None:
    one, other = ECKey.generate_key("P-256"), ECKey.generate_key("P-256")
    jwks.publish(public(one, kid="a"), public(other, kid="b"))
    agent = await served(serve, Auth(Jwt(ISSUER, audience="agents", jwks=jwks.url)))
    before = signed(one, "ES256", kid="a")
    assert await works(agent, before)
    jwks.publish(public(one, kid="b"), public(other, kid="a"))
    assert await works(agent, signed(one, "ES256", kid="b"))
    assert await is_refused(agent, before)


@over("jsonrpc")
@pytest.mark.parametrize("claims", [{"sub": "\ud800"}, {"note": "\udfff"}, {"sub": "a\x00"}, {"deep": 0}])
async def test_claims_that_are_not_text_in_unicode_are_refused_though_they_are_signed(
    serve: Serve, jwks: Jwks, claims: Json
) -> None:
    key = ECKey.generate_key("P-256")
    jwks.publish(public(key))
    agent = await served(serve, Auth(Jwt(ISSUER, audience="agents", jwks=jwks.url)))
    whole = {"iss": ISSUER, "aud": "agents", "sub": "ada", "exp": int(time.time()) + 300, **claims}
    payload = json.dumps(whole).replace('"deep": 0', f'"deep": {"[" * 2000}{"]" * 2000}')
    assert await is_refused(agent, jws.serialize_compact({"alg": "ES256"}, payload.encode(), key))
    assert await is_refused(agent, jws.serialize_compact({"alg": "ES256"}, b"[" + payload.encode() + b"]", key))


@over("jsonrpc")
@pytest.mark.filterwarnings("ignore:Key size should be", "ignore:EdDSA is deprecated")
async def test_only_public_keys_that_sign_and_are_long_enough_are_used(serve: Serve, jwks: Jwks) -> None:
    good = ECKey.generate_key("P-256")
    secret, short = OctKey.generate_key(256), RSAKey.generate_key(1024, auto_kid=False)
    leaked, sealing = ECKey.generate_key("P-256"), RSAKey.generate_key(2048)
    edwards = OKPKey.generate_key("Ed25519")
    jwks.publish(
        public(good, kid="good"),
        {**secret.as_dict(private=True), "kid": "secret"},
        public(short, kid="short"),
        {**leaked.as_dict(private=True), "kid": "leaked"},
        public(sealing, kid="sealing", use="enc"),
        public(edwards, kid="edwards"),
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "broken"},
        {"kty": "RSA", "n": "!", "e": "AQAB"},
        {"kty": "EC"},
        {"kty": "EC", "crv": "P-512", "x": "AA", "y": "AA"},
        {"kty": ["EC"]},
        "no key",
        None,
        7,
    )
    agent = await served(serve, Auth(Jwt(ISSUER, audience="agents", jwks=jwks.url)))
    assert await works(agent, signed(good, "ES256", kid="good"))
    assert await works(agent, signed(edwards, "EdDSA", kid="edwards"))
    assert await is_refused(agent, signed(secret, "HS256", kid="secret"))
    assert await is_refused(agent, signed(short, "RS256", kid="short"))
    assert await is_refused(agent, signed(leaked, "ES256", kid="leaked"))
    assert await is_refused(agent, signed(sealing, "RS256", kid="sealing"))


@over("jsonrpc")
async def test_key_that_says_for_which_algorithm_it_is_serves_no_other(serve: Serve, jwks: Jwks) -> None:
    key = RSAKey.generate_key(2048)
    jwks.publish(public(key, kid="a", alg="RS256"))
    agent = await served(serve, Auth(Jwt(ISSUER, audience="agents", jwks=jwks.url)))
    assert await works(agent, signed(key, "RS256", kid="a"))
    assert await is_refused(agent, signed(key, "PS256", kid="a"))


@over("jsonrpc")
async def test_keys_of_a_file_are_used_and_tokens_with_and_without_a_name_of_a_key(
    serve: Serve, tmp_path: Path
) -> None:
    key, other = ECKey.generate_key("P-384"), ECKey.generate_key("P-256")
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": [public(key), public(other)]}))
    agent = await served(serve, Auth(Jwt(ISSUER, audience="agents", jwks=str(path))))
    assert await works(agent, signed(key, "ES384"))
    assert await works(agent, signed(other, "ES256", kid="any"))


@over("jsonrpc")
async def test_one_way_that_cannot_be_checked_now_does_not_shut_out_the_others(
    serve: Serve, jwks: Jwks, tmp_path: Path
) -> None:
    tokens = Tokens(tmp_path)
    right = tokens.add()
    auth = Auth(Jwt(ISSUER, audience="agents", jwks=jwks.url), BearerTokens(tokens.path))
    agent = await served(serve, auth)
    assert await works(agent, right)
    assert await status(agent, signed(ECKey.generate_key("P-256"), "ES256")) == 503
    key = ECKey.generate_key("P-256")
    jwks.publish(public(key))
    for _ in range(3):
        assert await works(agent, signed(key, "ES256"))


@over("jsonrpc", "rest", "grpc")
async def test_tenant_and_scopes_come_from_the_token(serve: Serve, transport: str, provider: OidcProvider) -> None:
    auth = Auth(
        OpenIdConnect(provider.issuer, audience="agents", tenant_claim="org"),
        scopes={"ListTasks": "tasks:read", "*": ()},
    )
    agent = await served(serve, auth)
    assert await is_refused(agent, provider.mint())
    assert await is_refused(agent, provider.mint(org=7))
    by_ada = agent.showing(bearer(provider.mint(org="acme", scp=["tasks:read"])))
    task = await by_ada.task("x")
    assert [each["id"] for each in (await by_ada.list(tenant="acme"))["tasks"]] == [task["id"]]
    with refused("PermissionDenied"):
        await by_ada.list(tenant="other")
    with refused("PermissionDenied") as refusal:
        await agent.showing(bearer(provider.mint(org="acme"))).list()
    assert "tasks:read" in refusal.message


def test_places_of_keys_that_could_not_be_believed_are_refused_at_start(tmp_path: Path) -> None:
    assert is_safe_url("https://a.example/jwks")
    for unsafe in (
        "http://a.example/jwks",
        "file:///x",
        "https",
        "",
        "http://[",
        "ftp://127.0.0.1",
        "http://localhost.evil",
    ):
        assert not is_safe_url(unsafe), unsafe
    with pytest.raises(ValueError, match="https"):
        Jwt(ISSUER, audience="a", jwks="http://a.example/jwks")
    with pytest.raises(ValueError, match="https"):
        OpenIdConnect("http://a.example", audience="a")
    with pytest.raises(ValueError, match="audience"):
        OpenIdConnect(ISSUER, audience="")
    with pytest.raises(ValueError, match="HS256"):
        OpenIdConnect(ISSUER, audience="a", algorithms=["HS256"])
    with pytest.raises(ValueError, match="none"):
        OpenIdConnect(ISSUER, audience="a", algorithms=["none"])
    (tmp_path / "no.json").write_text("{}")
    for path in ("no.json", "absent.json"):
        with pytest.raises(ValueError, match="holds no JWKS"):
            Jwt(ISSUER, audience="a", jwks=str(tmp_path / path))
