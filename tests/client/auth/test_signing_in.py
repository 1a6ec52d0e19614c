"""Users sign in: by a browser on this machine, with PKCE, and by a code on another device."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest
from yarl import URL

from tests.client.auth.agents import Guarded
from tests.client.auth.test_choosing import every_binding, spoken
from tests.client.running import run
from tests.oidc.running import OidcProvider
from tests.oidc.test_provider import asked
from tieline import AuthorizationCode, DeviceCode, DevicePrompt, connect
from tieline.client.device_flow import authorized_by_device, next_interval_s
from tieline.client.oauth import AuthorizationServer
from tieline.errors import AuthorizationFailed


class Browser:
    """A browser that follows redirects at once. `urls` are those that it was told to open."""

    def __init__(self, *, instead: str = "") -> None:
        self.urls: list[URL] = []
        self.pages: list[tuple[int, str]] = []
        self._instead = instead  # what is put in the place of a member of the answer, NAME=VALUE
        self._visits: list[asyncio.Task[None]] = []

    def __call__(self, url: str) -> None:
        self.urls.append(URL(url))
        self._visits.append(asyncio.get_running_loop().create_task(self._visit(URL(url))))

    async def _visit(self, url: URL) -> None:
        async with aiohttp.ClientSession() as session:
            async with session.get(url, allow_redirects=False) as response:
                back = URL(response.headers["location"])
            if self._instead:
                name, _, value = self._instead.partition("=")
                query = {key: text for key, text in back.query.items() if key != name}
                back = back.with_query({**query, name: value} if value else query)
            async with session.get(back) as response:
                self.pages.append((response.status, await response.text()))


def by_browser(browser: Browser, **more: Any) -> AuthorizationCode:
    return AuthorizationCode(client_id="desktop", open_url=browser, **more)


@every_binding
@pytest.mark.parametrize("scenario", ["browser", "oidc"])
def test_a_user_signs_in_with_a_browser(
    guarded: Guarded, provider: OidcProvider, transport: str, scenario: str
) -> None:
    browser = Browser()
    agent = guarded.agent(scenario)
    run(spoken(agent.url, transport=transport, credentials=by_browser(browser), trust=provider.issuer))
    (url,) = browser.urls
    assert url.query["scope"] == ("call" if scenario == "browser" else "openid")
    assert browser.pages[0][0] == 200
    assert "You are signed in" in browser.pages[0][1]
    (form,) = [each["form"] for each in provider.requests("/token")]
    challenge = hashlib.sha256(form["code_verifier"].encode()).digest()
    assert url.query["code_challenge"] == base64.urlsafe_b64encode(challenge).rstrip(b"=").decode()
    assert url.query["code_challenge_method"] == "S256"
    assert form["redirect_uri"] == url.query["redirect_uri"]
    assert URL(form["redirect_uri"]).host == "127.0.0.1"
    assert len(form["code_verifier"]) >= 43


@pytest.mark.requirement("security.pkce")
def test_a_code_is_good_for_nothing_without_the_verifier_of_who_asked_for_it(
    guarded: Guarded, provider: OidcProvider
) -> None:
    browser = Browser()
    credential = by_browser(browser, issuer=provider.issuer)
    run(spoken(guarded.agent("browser").url, credentials=credential))
    (form,) = [each["form"] for each in provider.requests("/token")]
    (url,) = browser.urls
    assert url.query["code_challenge_method"] == "S256"
    assert form["code_verifier"] not in str(url)
    again = {**form, "code_verifier": "w" * 43}
    assert asked(f"{provider.issuer}/token", again)[1]["error"] == "invalid_grant"


def test_a_user_is_not_sent_to_a_server_without_pkce(guarded: Guarded, provider: OidcProvider) -> None:
    async def test() -> None:
        browser = Browser()
        provider.configure(metadata={"code_challenge_methods_supported": ["plain"]})
        credential = by_browser(browser, issuer=provider.issuer)
        async with connect(guarded.agent("browser").url, credentials=credential) as peer:
            with pytest.raises(AuthorizationFailed, match="does not speak PKCE with S256"):
                await peer.list()
        assert browser.urls == []

    run(test())


def test_connections_that_a_browser_only_holds_ready_are_not_waited_for(
    guarded: Guarded, provider: OidcProvider
) -> None:
    async def test() -> None:
        browser = Browser()
        spare: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

        async def visit(url: str) -> None:
            back = URL(URL(url).query["redirect_uri"])
            spare.append(await asyncio.open_connection(back.host, back.port))
            browser(url)

        visits: list[asyncio.Task[None]] = []
        credential = AuthorizationCode(
            client_id="desktop",
            issuer=provider.issuer,
            open_url=lambda url: visits.append(asyncio.get_running_loop().create_task(visit(url))),
        )
        async with connect(guarded.agent("browser").url, credentials=credential) as peer:
            await peer.list()
        ((reader, writer),) = spare
        async with asyncio.timeout(5):  # half of what the listener waits for a request
            assert await reader.read() == b""
        writer.close()

    run(test())


def test_a_confidential_client_shows_its_secret_to_the_token_endpoint_alone(
    guarded: Guarded, provider: OidcProvider
) -> None:
    browser = Browser()
    credential = AuthorizationCode(
        client_id="website", client_secret="web-secret:with/signs%", issuer=provider.issuer, open_url=browser
    )
    run(spoken(guarded.agent("browser").url, credentials=credential))
    assert "web-secret" not in str(browser.urls)


@pytest.mark.parametrize(
    ("instead", "words"),
    [
        ("iss=https://evil.example", "comes from another issuer"),
        ("iss=", "comes from another issuer"),
    ],
)
def test_an_answer_of_another_issuer_is_refused(
    guarded: Guarded, provider: OidcProvider, instead: str, words: str
) -> None:
    async def test() -> None:
        browser = Browser(instead=instead)
        credential = by_browser(browser, issuer=provider.issuer)
        async with connect(guarded.agent("browser").url, credentials=credential) as peer:
            with pytest.raises(AuthorizationFailed, match=words):
                await peer.ask("hi")
        assert provider.grants() == []

    run(test())


def test_an_answer_with_another_state_is_not_heard_and_the_right_one_still_is(
    guarded: Guarded, provider: OidcProvider
) -> None:
    async def test() -> None:
        forged = Browser(instead="state=forged")
        browser = Browser()

        async def both(url: str) -> None:
            await forged._visit(URL(url))
            await browser._visit(URL(url))

        visits: list[asyncio.Task[None]] = []
        credential = AuthorizationCode(
            client_id="desktop",
            issuer=provider.issuer,
            open_url=lambda url: visits.append(asyncio.get_running_loop().create_task(both(url))),
        )
        async with connect(guarded.agent("browser").url, credentials=credential) as peer:
            await peer.list()
        assert forged.pages[0][0] == 404
        assert browser.pages[0][0] == 200

    run(test())


def test_what_else_comes_to_the_listener_is_not_the_answer(guarded: Guarded, provider: OidcProvider) -> None:
    async def test() -> None:
        browser = Browser()
        visits: list[asyncio.Task[None]] = []

        async def noise(url: str) -> None:
            port = URL(URL(url).query["redirect_uri"]).port
            for data in (
                b"",
                b"\x16\x03\x01\r\n\r\n",
                b"GET /favicon.ico HTTP/1.1\r\n\r\n",
                b"A" * 40_000 + b"\r\n\r\n",
            ):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(data)
                writer.close()
            await browser._visit(URL(url))

        credential = AuthorizationCode(
            client_id="desktop",
            issuer=provider.issuer,
            open_url=lambda url: visits.append(asyncio.get_running_loop().create_task(noise(url))),
        )
        async with connect(guarded.agent("browser").url, credentials=credential) as peer:
            await peer.list()

    run(test())


def test_a_user_who_refuses_or_does_not_come_is_told_so(guarded: Guarded, provider: OidcProvider) -> None:
    async def test() -> None:
        provider.configure(consent="deny")
        browser = Browser()
        credential = by_browser(browser, issuer=provider.issuer)
        async with connect(guarded.agent("browser").url, credentials=credential) as peer:
            with pytest.raises(AuthorizationFailed, match="access_denied"):
                await peer.ask("hi")
        credential = AuthorizationCode(
            client_id="desktop", issuer=provider.issuer, open_url=lambda _: None, wait_s=0.05
        )
        async with connect(guarded.agent("browser").url, credentials=credential) as peer:
            with pytest.raises(AuthorizationFailed, match=r"Nobody has signed in within 0\.05 s"):
                await peer.ask("hi")

    run(test())


# --- device code ------------------------------------------------------------------------------------------------------


def by_device(provider: OidcProvider, prompts: list[DevicePrompt], state: str = "approved") -> DeviceCode:
    """The user decides as soon as the code is shown."""

    def show(prompt: DevicePrompt) -> None:
        prompts.append(prompt)
        provider.decide(prompt.code, state)

    return DeviceCode(client_id="desktop", show=show)


@every_binding
@pytest.mark.parametrize("scenario", ["device", "oidc"])
def test_a_user_signs_in_on_another_device(
    guarded: Guarded, provider: OidcProvider, transport: str, scenario: str
) -> None:
    provider.configure(device_interval_s=0)
    prompts: list[DevicePrompt] = []
    credential = by_device(provider, prompts)
    agent = guarded.agent(scenario)
    run(spoken(agent.url, transport=transport, credentials=credential, trust=provider.issuer))
    (prompt,) = prompts
    assert prompt.url == f"{provider.issuer}/activate"
    assert prompt.complete_url == f"{prompt.url}?user_code={prompt.code}"
    assert parse_qs(urlsplit(prompt.complete_url).query)["user_code"] == [prompt.code]


def test_the_device_asks_again_while_the_user_takes_time(provider: OidcProvider) -> None:
    async def test() -> None:
        provider.configure(device_interval_s=0)

        asked = 0

        async def pause(_: float) -> None:
            nonlocal asked
            asked += 1
            if asked == 4:
                provider.decide()

        server = AuthorizationServer()
        credential = DeviceCode(client_id="desktop", show=lambda _: None)
        endpoints = await server.discover(provider.issuer)
        tokens = await authorized_by_device(server, endpoints, credential, {"scope": "call"}, pause=pause)
        await server.close()
        assert provider.introspect(tokens.access_token)["active"]
        assert tokens.scopes == ("call",)
        assert len(provider.grants()) == 4

    run(test())


@pytest.mark.parametrize(("state", "words"), [("denied", "refused by its user"), ("expired", "has expired")])
def test_a_device_that_is_refused_or_late_is_told_so(
    guarded: Guarded, provider: OidcProvider, state: str, words: str
) -> None:
    async def test() -> None:
        provider.configure(device_interval_s=0)
        agent = guarded.agent("device")
        credential = by_device(provider, [], state)
        async with connect(agent.url, credentials=credential, trust=provider.issuer) as peer:
            with pytest.raises(AuthorizationFailed, match=words):
                await peer.ask("hi")
        assert agent.calls == []

    run(test())


def test_the_pause_grows_by_five_seconds_when_it_is_asked_for_and_other_errors_end_the_waiting() -> None:
    assert next_interval_s(5.0, "authorization_pending") == 5.0
    assert next_interval_s(5.0, "slow_down") == 10.0
    assert next_interval_s(58.0, "slow_down") == 63.0
    assert next_interval_s(5.0, "access_denied") is None
    assert next_interval_s(5.0, "") is None
