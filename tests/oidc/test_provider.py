"""The provider is what it says: its tokens hold against its keys, and are wrong in the way that is asked for."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

import pytest
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from tests.oidc.issuing import MISBEHAVIOURS
from tests.oidc.provider import DEVICE_GRANT
from tests.oidc.running import OidcProvider


class Staying(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


opened = build_opener(ProxyHandler({}), Staying()).open


def asked(url: str, form: dict[str, str] | None = None, basic: str = "") -> tuple[int, Any]:
    headers = {"Authorization": f"Basic {base64.b64encode(basic.encode()).decode()}"} if basic else {}
    try:
        with opened(Request(url, urlencode(form).encode() if form else None, headers), timeout=30) as response:
            return response.status, json.load(response)
    except HTTPError as error:
        body = error.read()
        return error.code, error.headers["location"] if error.code == 302 else json.loads(body)


def claims(provider: OidcProvider, token: str) -> dict[str, Any]:
    """Raises JoseError where a careful reader would."""
    keys = KeySet.import_key_set(asked(provider.jwks_uri)[1])
    read = jwt.decode(token, keys, algorithms=["ES256", "RS256"])
    rules = jwt.JWTClaimsRegistry(
        iss={"essential": True, "value": provider.issuer}, aud={"essential": True, "value": "agents"}
    )
    rules.validate(read.claims)
    return dict(read.claims)


@pytest.mark.parametrize("alg", ["ES256", "RS256"])
def test_a_token_of_client_credentials_holds_against_the_published_keys(provider: OidcProvider, alg: str) -> None:
    provider.configure(alg=alg)
    form = {"grant_type": "client_credentials", "scope": "a b"}
    status, answer = asked(f"{provider.issuer}/token", form, "machine:machine-secret")
    assert (status, answer["token_type"], answer["expires_in"]) == (200, "Bearer", 300)
    assert claims(provider, answer["access_token"])["scope"] == "a b"
    assert provider.introspect(answer["access_token"])["active"]
    provider.revoke(answer["access_token"])
    assert not provider.introspect(answer["access_token"])["active"]


@pytest.mark.parametrize("wrong", MISBEHAVIOURS)
def test_a_token_that_is_to_be_wrong_is_refused_by_a_careful_reader(provider: OidcProvider, wrong: str) -> None:
    assert claims(provider, provider.mint())["sub"] == "ada"
    with pytest.raises((JoseError, ValueError)):
        claims(provider, provider.mint(wrong=wrong))
    provider.configure(misbehaviour=wrong)
    form = {"grant_type": "client_credentials"}
    _, answer = asked(f"{provider.issuer}/token", form, "machine:machine-secret")
    with pytest.raises((JoseError, ValueError)):
        claims(provider, answer["access_token"])


def test_keys_rotate_and_a_token_of_a_key_that_is_gone_does_not_hold(provider: OidcProvider) -> None:
    before = provider.mint()
    provider.rotate()
    assert claims(provider, before)
    assert claims(provider, provider.mint(key="retired"))
    provider.rotate(keep=False)
    with pytest.raises((JoseError, ValueError)):
        claims(provider, before)


def test_authorization_needs_the_verifier_of_its_challenge_and_refresh_tokens_are_good_once(
    provider: OidcProvider,
) -> None:
    verifier = "v" * 43
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    query = {"client_id": "desktop", "redirect_uri": "http://127.0.0.1:1/back", "response_type": "code", "state": "s"}
    query |= {"code_challenge": challenge, "code_challenge_method": "S256", "scope": "openid"}

    def code() -> str:
        status, location = asked(f"{provider.issuer}/authorize?{urlencode(query)}")
        assert status == 302
        assert parse_qs(urlsplit(location).query)["state"] == ["s"]
        return str(parse_qs(urlsplit(location).query)["code"][0])

    form = {"grant_type": "authorization_code", "client_id": "desktop", "redirect_uri": query["redirect_uri"]}
    wrong = asked(f"{provider.issuer}/token", {**form, "code": code(), "code_verifier": "w" * 43})
    assert (wrong[0], wrong[1]["error"]) == (400, "invalid_grant")
    status, answer = asked(f"{provider.issuer}/token", {**form, "code": code(), "code_verifier": verifier})
    assert status == 200
    assert answer["id_token"]
    refresh = {"grant_type": "refresh_token", "client_id": "desktop", "refresh_token": answer["refresh_token"]}
    status, renewed = asked(f"{provider.issuer}/token", refresh)
    assert status == 200
    assert asked(f"{provider.issuer}/token", refresh)[1]["error"] == "invalid_grant"
    assert not provider.introspect(renewed["access_token"])["active"], "a stolen refresh token ends the family"


def test_a_device_waits_for_its_user(provider: OidcProvider) -> None:
    provider.configure(slow_downs=1)
    _, device = asked(f"{provider.issuer}/device", {"client_id": "desktop", "scope": "a"})
    form = {"grant_type": DEVICE_GRANT, "client_id": "desktop", "device_code": device["device_code"]}

    def error() -> str:
        return str(asked(f"{provider.issuer}/token", form)[1].get("error"))

    assert [error(), error()] == ["slow_down", "authorization_pending"]
    provider.decide(device["user_code"], "denied")
    assert error() == "access_denied"
    provider.decide(device["user_code"])
    status, answer = asked(f"{provider.issuer}/token", form)
    assert (status, answer["scope"]) == (200, "a")
    assert provider.grants() == [DEVICE_GRANT] * 4
