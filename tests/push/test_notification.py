"""The headers of a webhook's POST, and its signature."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from joserfc import jwk, jwt

from tieline.engine.notification import authorization, check_config, idempotency_key, notification_headers
from tieline.engine.signer import Signer
from tieline.types import AuthenticationInfo, TaskPushNotificationConfig

URL = "https://hooks.example:8443/a2a?x=1"


def config(token: str | None = None, scheme: str | None = None, credentials: str | None = None) -> Any:
    authentication = None if scheme is None else AuthenticationInfo(scheme, credentials)
    return TaskPushNotificationConfig(URL, None, "c1", "t1", token, authentication)


# --- headers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheme", "credentials", "header"),
    [
        ("Bearer", "abc", "Bearer abc"),
        ("bearer", "abc", "Bearer abc"),
        ("Basic", "dTpw", "Basic dTpw"),
        ("BASIC", "u:p", "Basic dTpw"),
        ("ApiKey", "abc", "ApiKey abc"),
        ("Bearer", None, None),
        ("Bearer", "", None),
        (None, None, None),
    ],
)
def test_authorization_is_the_scheme_and_the_credentials(
    scheme: str | None, credentials: str | None, header: str | None
) -> None:
    assert authorization(config(None, scheme, credentials).authentication) == header


def test_headers_of_1_0_carry_credentials_token_and_key() -> None:
    assert notification_headers(config("tok", "Bearer", "abc"), '"t/c/1"') == {
        "Content-Type": "application/a2a+json",
        "Idempotency-Key": '"t/c/1"',
        "Authorization": "Bearer abc",
        "X-A2A-Notification-Token": "tok",
        "A2A-Notification-Token": "tok",
    }
    assert notification_headers(config(), '"t/c/1"') == {
        "Content-Type": "application/a2a+json",
        "Idempotency-Key": '"t/c/1"',
    }


def test_token_alone_is_a_bearer_token_where_receivers_expect_it() -> None:
    def of(given: TaskPushNotificationConfig) -> str | None:
        headers = notification_headers(given, '"k"', media_type="application/json", token_is_bearer=True)
        assert headers["Content-Type"] == "application/json"
        return headers.get("Authorization")

    assert of(config("tok")) == "Bearer tok"
    assert of(config("tok", "Bearer")) == "Bearer tok"
    assert of(config("tok", "Basic", "dTpw")) == "Basic dTpw"
    assert of(config()) is None


def test_signature_is_the_bearer_token_unless_the_receiver_has_given_credentials() -> None:
    alone = notification_headers(config("tok", "Bearer"), '"k"', signature="a.b.c")
    assert alone["Authorization"] == "Bearer a.b.c"
    assert "X-A2A-Signature" not in alone
    beside = notification_headers(config(None, "Bearer", "abc"), '"k"', signature="a.b.c")
    assert (beside["Authorization"], beside["X-A2A-Signature"]) == ("Bearer abc", "a.b.c")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (config("a\r\nX: 1"), "token has to be of visible ASCII"),
        (config("a\0"), "token has to be of visible ASCII"),
        (config(" a"), "token has to be of visible ASCII"),
        (config("x" * 4097), "token has to be at most 4096"),
        (config(None, "Bearer", "a\nb"), "authentication.credentials has to be of visible ASCII"),
        (config(None, "Bearer", "\u00fc"), "authentication.credentials has to be of visible ASCII"),
        (config(None, "Bearer a", "b"), "authentication.scheme has to be the name"),
        (config(None, "Bearer\r\nX: 1", "b"), "authentication.scheme has to be the name"),
        (config(None, "", "b"), "authentication.scheme has to be the name"),
    ],
)
def test_credentials_that_no_header_can_hold_are_refused_and_not_repeated(
    given: TaskPushNotificationConfig, words: str
) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        check_config(given)
    assert "X: 1" not in str(caught.value)
    check_config(config("t o k", "ApiKey", "abc"))
    check_config(config(None, "", None))


def test_key_is_the_same_for_the_same_event_and_differs_for_any_other() -> None:
    assert idempotency_key("t1", "c1", 7) == '"t1/c1/7"'
    assert idempotency_key("a/b", "c", 1) != idempotency_key("a", "b/c", 1)
    assert idempotency_key('"\r\n\u00fc', "c", 1) == '"%22%0D%0A%C3%BC/c/1"'


def test_secrets_of_a_configuration_are_not_in_its_repr() -> None:
    shown = repr(config("tok-secret", "Bearer", "cred-secret"))
    assert "secret" not in shown
    assert URL in shown
    assert "Bearer" in shown


# --- signatures -------------------------------------------------------------------------------------------------------

BODY = b'{"statusUpdate":{}}'


def written(path: Path, key: Any, *, as_jwk: bool) -> Path:
    path.write_bytes(json.dumps(key.as_dict(private=True)).encode() if as_jwk else key.as_pem(private=True))
    return path


KEYS: list[tuple[Any, Any, str]] = [
    ("RSA", 2048, "RS256"),
    ("EC", "P-256", "ES256"),
    ("OKP", "Ed25519", "EdDSA"),
]


@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")
@pytest.mark.parametrize("as_jwk", [True, False])
@pytest.mark.parametrize(("kind", "size", "algorithm"), KEYS)
def test_signature_is_verified_with_the_published_key_and_names_body_receiver_and_task(
    tmp_path: Path, kind: Any, size: Any, algorithm: str, as_jwk: bool
) -> None:
    path = written(tmp_path / "key", jwk.generate_key(kind, size), as_jwk=as_jwk)
    signer = Signer.from_file(path, "https://agents.example")
    token = signer.sign(BODY, url=URL, task_id="t1", key='"t1/c1/7"')
    published = json.loads(json.dumps(signer.public_keys()))
    read = jwt.decode(token, jwk.KeySet.import_key_set(published), algorithms=[algorithm])
    assert read.header["kid"] == published["keys"][0]["kid"]
    assert published["keys"][0]["alg"] == algorithm
    claims = read.claims
    assert claims["exp"] - claims["iat"] == 300
    assert {name: claims[name] for name in ("iss", "aud", "jti", "taskId", "request_body_sha256")} == {
        "iss": "https://agents.example",
        "aud": "https://hooks.example:8443",
        "jti": "t1/c1/7",
        "taskId": "t1",
        "request_body_sha256": hashlib.sha256(BODY).hexdigest(),
    }


@pytest.mark.parametrize(("kind", "size", "algorithm"), KEYS[:2])
def test_nothing_private_is_published_or_shown(tmp_path: Path, kind: Any, size: Any, algorithm: str) -> None:
    key = jwk.generate_key(kind, size)
    signer = Signer.from_file(written(tmp_path / "key", key, as_jwk=True), "https://agents.example")
    private = set(key.as_dict(private=True)) - set(key.as_dict(private=False))
    assert private
    assert not private & set(signer.public_keys()["keys"][0])
    assert str(key.as_dict(private=True)["d"]) not in repr(signer)


def test_audience_is_the_origin_as_everybody_writes_it(tmp_path: Path) -> None:
    key = jwk.generate_key("EC", "P-256")
    signer = Signer.from_file(written(tmp_path / "key", key, as_jwk=True), "https://agents.example")
    for url in ("https://hooks.example/a", "https://HOOKS.example:443/a?b=c", "https://hooks.example"):
        claims = jwt.decode(signer.sign(BODY, url=url, task_id="t", key="k"), key).claims
        assert claims["aud"] == "https://hooks.example"


def test_kid_of_a_jwk_is_kept(tmp_path: Path) -> None:
    key = jwk.generate_key("EC", "P-256", parameters={"kid": "2026-11"})
    signer = Signer.from_file(written(tmp_path / "key", key, as_jwk=True), "https://agents.example")
    assert signer.public_keys()["keys"][0]["kid"] == "2026-11"


def test_file_without_a_strong_private_key_is_refused_without_showing_it(tmp_path: Path) -> None:
    public = jwk.generate_key("EC", "P-256")
    files = {
        "nothing": b"",
        "words": b"my secret words",
        "json": b'{"kty": "EC", "secret": 1}',
        "shared": b'{"kty": "oct", "k": "c2VjcmV0"}',
        "public": public.as_pem(private=False),
        "public.jwk": json.dumps(public.as_dict(private=False)).encode(),
        "weak": generate_private_key(65537, 1024).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        "other curve": jwk.generate_key("EC", "P-384").as_pem(private=True),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ValueError, match=" cannot sign webhooks: ") as caught:
            Signer.from_file(tmp_path / name, "https://agents.example")
        assert "secret" not in str(caught.value).replace(str(tmp_path), "")
