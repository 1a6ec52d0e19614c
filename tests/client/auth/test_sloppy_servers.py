"""Authorization servers that do not answer by the letter, or say more than they should."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote_plus

import pytest
from yarl import URL

from tests.client.running import run
from tests.client.scripted import LIMIT_S, Http, Raw, Scripted, Step, card_of, scripted
from tieline import AuthorizationCode, DeviceCode, DevicePrompt, connect
from tieline.client.credentials import TokenSet
from tieline.client.device_flow import authorized_by_device, next_interval_s
from tieline.client.http import basic_value
from tieline.client.oauth import AuthorizationServer, Client, Endpoints
from tieline.client.transport import NotServed
from tieline.errors import AuthorizationFailed

SECRET = "client+secret/with=signs"
TOKEN: dict[str, Any] = {"access_token": "fresh", "token_type": "Bearer", "expires_in": 3600}
PENDING = {"error": "authorization_pending"}


def said(value: Any, status: int = 200) -> Http:
    return Http(status, json.dumps(value).encode(), {"Content-Type": "application/json"})


@asynccontextmanager
async def login(
    *tokens: Step, device: Step | None = None
) -> AsyncIterator[tuple[Scripted, AuthorizationServer, Endpoints]]:
    """A server whose token endpoint gives these answers, and what asks it."""
    script: dict[str, list[Step]] = {"POST /token": list(tokens)}
    if device is not None:
        script["POST /device"] = [device]
    async with scripted("JSONRPC", script) as answering:
        answering.binding = "HTTP+JSON"  # operations are named by their path
        base = answering.url.removesuffix("/agent")
        server = AuthorizationServer()
        try:
            yield answering, server, Endpoints(f"{base}/token", f"{base}/authorize", f"{base}/device")
        finally:
            await server.close()


# --- what a refusal looks like ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (said({"error": "invalid_grant"}, 200), "invalid_grant"),
        (said({"error": "invalid_grant", "error_description": None}, 400), "invalid_grant"),
        (said({"error": "invalid_grant", "error_description": {"text": "no"}}, 401), "invalid_grant"),
        (Http(503, b"<html>"), "temporarily_unavailable"),
        (Http(429, b""), "temporarily_unavailable"),
        (Http(404, b"<html>"), ""),
    ],
)
def test_the_word_of_a_server_is_heard_whatever_stands_around_it(answer: Http, code: str) -> None:
    async def test() -> None:
        async with login(answer) as (_, server, endpoints):
            with pytest.raises(AuthorizationFailed) as failed:
                await server.tokens(endpoints, Client("desktop"), {"grant_type": "refresh_token"})
            assert failed.value.code == code

    run(test())


@pytest.mark.parametrize("error", [None, ""])
def test_an_empty_error_beside_a_token_is_none(error: str | None) -> None:
    async def test() -> None:
        async with login(said({**TOKEN, "error": error})) as (_, server, endpoints):
            tokens = await server.tokens(endpoints, Client("desktop"), {"grant_type": "refresh_token"})
            assert tokens.access_token == "fresh"

    run(test())


@pytest.mark.parametrize("client", [Client("desktop", SECRET), Client("desktop")], ids=["confidential", "public"])
@pytest.mark.parametrize("way", ["refusal", "status line"])
def test_what_a_server_repeats_of_secrets_is_in_no_error(client: Client, way: str) -> None:
    form = {"grant_type": "x", "code": "one/time", "code_verifier": "proof", "refresh_token": "old+token"}
    secrets = ["one/time", "proof", "old+token"]
    if client.secret is not None:
        secrets += [client.secret, basic_value("desktop", quote_plus(client.secret)).removeprefix("Basic ")]
    secrets += [quote_plus(secret) for secret in secrets]
    words = "; ".join(secrets)

    async def test() -> None:
        refusal = said({"error": f"bad {secrets[0]}", "error_description": words}, 400)
        broken = Raw(f"HELLO {words}\r\n\r\n".encode())
        async with login(refusal if way == "refusal" else broken) as (_, server, endpoints):
            with pytest.raises((AuthorizationFailed, NotServed)) as failed:
                await server.tokens(endpoints, client, form)
            assert "[redacted]" in str(failed.value)
            assert [secret for secret in secrets if secret in str(failed.value)] == []

    run(test())


# --- device code ------------------------------------------------------------------------------------------------------


def device(**more: Any) -> dict[str, Any]:
    page = {"device_code": "d", "user_code": "ABCD", "verification_uri": "https://login.example/activate"}
    return {**page, "expires_in": 60, "interval": 1, **more}


async def by_device(*tokens: Step, page: dict[str, Any]) -> tuple[TokenSet, list[float], list[DevicePrompt]]:
    """What comes of a sign-in, the pauses that were made, and what the user was shown."""
    pauses: list[float] = []
    shown: list[DevicePrompt] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    async with login(*tokens, device=said(page)) as (_, server, endpoints):
        credential = DeviceCode(client_id="desktop", show=shown.append)
        return await authorized_by_device(server, endpoints, credential, {}, pause=pause), pauses, shown


def test_a_server_that_says_pending_with_200_is_asked_again() -> None:
    async def test() -> None:
        _, pauses, _ = await by_device(
            said(PENDING), said({**PENDING, "error_description": None}, 400), said(TOKEN), page=device()
        )
        assert pauses == [1.0, 1.0, 1.0]

    run(test())


def test_a_server_that_is_busy_for_a_while_does_not_end_a_sign_in() -> None:
    async def test() -> None:
        _, pauses, _ = await by_device(Http(503, b"<html>"), Http(429, b""), Raw(b""), said(TOKEN), page=device())
        assert pauses == [1.0, 2.0, 4.0, 8.0]

    run(test())


def test_a_pause_that_was_asked_for_never_becomes_shorter() -> None:
    assert next_interval_s(120.0, "slow_down") == 125.0
    assert next_interval_s(120.0, "temporarily_unavailable") == 120.0

    async def test() -> None:
        _, pauses, _ = await by_device(Raw(b""), Http(503, b""), said(TOKEN), page=device(interval=120))
        assert pauses == [120.0, 120.0, 120.0]

    run(test())


def test_a_token_endpoint_that_stays_away_ends_the_sign_in_and_the_code_is_shown_once() -> None:
    async def test() -> None:
        shown: list[DevicePrompt] = []
        async with login(*[Raw(b"")] * 5, device=said(device())) as (_, server, endpoints):
            credential = DeviceCode(client_id="desktop", show=shown.append)
            with pytest.raises(AuthorizationFailed, match=r"gave no token: sign in again\. The connection to .* broke"):
                await authorized_by_device(server, endpoints, credential, {}, pause=lambda _: asyncio.sleep(0))
        assert len(shown) == 1

    run(test())


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ({"verification_uri": "http://login.example/activate"}, r"http://login\.example/activate, has to be https"),
        ({"verification_uri": f"https://login.example/{'a' * 3000}"}, "names no page"),
        ({"user_code": "A" * 1000}, "no code that a user can type"),
        ({"user_code": "A\x1b[2J"}, "no code that a user can type"),
        ({"user_code": ""}, "no code that a user can type"),
    ],
)
def test_a_user_is_shown_only_what_can_be_opened_and_typed(page: dict[str, Any], words: str) -> None:
    async def test() -> None:
        with pytest.raises(AuthorizationFailed, match=words):
            await by_device(page=device(**page))

    run(test())


def test_an_address_with_the_code_in_it_is_not_shown_where_others_could_read_it() -> None:
    async def test() -> None:
        _, _, (prompt,) = await by_device(
            said(TOKEN), page=device(verification_uri_complete="http://login.example/activate?user_code=ABCD")
        )
        assert prompt == DevicePrompt("https://login.example/activate", "ABCD", None, 60.0)

    run(test())


# --- a browser --------------------------------------------------------------------------------------------------------


async def answered(url: str, target: str) -> str:
    """The status line of what the listener behind a sign-in answers. `target` may name its {path} and {state}."""
    query = URL(url).query
    back = URL(query["redirect_uri"])
    reader, writer = await asyncio.open_connection("127.0.0.1", back.port)
    writer.write(f"GET {target.format(path=back.path, state=query['state'])} HTTP/1.1\r\n\r\n".encode())
    async with asyncio.timeout(LIMIT_S):
        head = await reader.read(1000)
    writer.close()
    return head.split(b"\r\n")[0].decode()


def test_a_sign_in_whose_code_is_lost_is_not_begun_again_unasked() -> None:
    async def test() -> None:
        opened: list[str] = []
        visits: list[asyncio.Task[str]] = []

        def open_url(url: str) -> None:
            opened.append(url)
            visits.append(asyncio.get_running_loop().create_task(answered(url, "{path}?code=c&state={state}")))

        async with login(Raw(b""), Raw(b"")) as (answering, _, endpoints):
            credential = AuthorizationCode(
                client_id="desktop",
                token_url=endpoints.token_url,
                authorization_url=endpoints.authorization_url,
                open_url=open_url,
            )
            async with connect(card_of(("http://127.0.0.1:1/rpc", "JSONRPC")), credentials=credential) as peer:
                with pytest.raises(AuthorizationFailed, match="sign in again"):
                    await peer.ask("hi")
            assert len(answering.requests) == 1
        assert len(opened) == 1
        await asyncio.gather(*visits)

    run(test())


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://[", "404 Not Found"),
        ("{path}?" + "a&" * 60, "404 Not Found"),
        ("{path}?code=c&state=wrong&error=access_denied", "404 Not Found"),
    ],
)
def test_what_cannot_be_the_answer_is_answered_and_the_answer_is_still_heard(target: str, status: str) -> None:
    async def test() -> None:
        visits: list[asyncio.Task[list[str]]] = []

        async def visit(url: str) -> list[str]:
            return [await answered(url, target), await answered(url, "{path}?code=c&state={state}")]

        async with login(said(TOKEN)) as (_, _, endpoints):
            credential = AuthorizationCode(
                client_id="desktop",
                token_url=endpoints.token_url,
                authorization_url=endpoints.authorization_url,
                open_url=lambda url: visits.append(asyncio.get_running_loop().create_task(visit(url))),
            )
            async with connect(card_of(("http://127.0.0.1:1/rpc", "JSONRPC")), credentials=credential) as peer:
                with pytest.raises(Exception, match="No connection to"):  # signed in: the agent is who is not there
                    await peer.ask("hi")
            assert await visits[0] == [f"HTTP/1.1 {status}", "HTTP/1.1 200 OK"]

    run(test())


def test_an_answer_that_is_an_error_and_a_code_is_an_error() -> None:
    async def test() -> None:
        visits: list[asyncio.Task[str]] = []
        target = "{path}?code=c&error=access_denied&state={state}"
        async with login() as (answering, _, endpoints):
            credential = AuthorizationCode(
                client_id="desktop",
                token_url=endpoints.token_url,
                authorization_url=endpoints.authorization_url,
                open_url=lambda url: visits.append(asyncio.get_running_loop().create_task(answered(url, target))),
            )
            async with connect(card_of(("http://127.0.0.1:1/rpc", "JSONRPC")), credentials=credential) as peer:
                with pytest.raises(AuthorizationFailed, match="access_denied"):
                    await peer.ask("hi")
            assert answering.requests == []
            await visits[0]

    run(test())
