"""The provider as tests have it: started, stopped, told how to be, and asked for any token.

from tests.oidc.running import provider, provider_process  # noqa: F401 - in a conftest: both are fixtures

def test_something(provider: OidcProvider) -> None:
    token = provider.mint(scope="agents.call")
    provider.configure(misbehaviour="wrong_audience")
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from tests.interop.processes import ROOT, free_port, running
from tests.oidc.issuing import claims_of

__all__ = ["OidcProvider", "provider", "provider_process", "provider_running"]

LIMIT_S = 30.0
_open = build_opener(ProxyHandler({})).open  # whatever the environment says


@dataclass(frozen=True)
class OidcProvider:
    """A provider that runs. `issuer` is its URL, without a slash at the end."""

    issuer: str

    @property
    def discovery_url(self) -> str:
        return f"{self.issuer}/.well-known/openid-configuration"

    @property
    def jwks_uri(self) -> str:
        return f"{self.issuer}/jwks"

    def reset(self) -> None:
        """Settings as at the start, and nothing issued; keys stay."""
        self._control("reset")

    def configure(self, **settings: Any) -> None:
        """Change settings (provider.SETTINGS), such as `misbehaviour`, `lifetime_s`, `alg`."""
        self._control("configure", **settings)

    def rotate(self, *, keep: bool = True) -> None:
        """New keys; those before stay published, or are gone at once."""
        self._control("rotate", keep=keep)

    def mint(
        self,
        *,
        subject: str = "ada",
        audience: str | list[str] = "agents",
        scope: str = "",
        lifetime_s: float = 300,
        alg: str = "ES256",
        key: str = "current",
        header: dict[str, Any] | None = None,
        wrong: str = "",
        without: tuple[str, ...] = (),
        **claims: Any,
    ) -> str:
        """Any token: claims are replaced by `claims` and left out by `without`.

        `alg`: ES256, RS256 or none. `key`: current, retired, foreign or swapped. `wrong`: one of
        issuing.MISBEHAVIOURS.
        """
        whole = claims_of(self.issuer, audience, subject, lifetime_s=lifetime_s, wrong=wrong, scope=scope)
        chosen = {name: value for name, value in {**whole, **claims}.items() if name not in without}
        alg = "none" if wrong == "alg_none" else alg
        key = "swapped" if wrong == "key_swapped" else key
        token: str = self._control("mint", claims=chosen, alg=alg, key=key, header=header)["token"]
        return token

    def decide(self, user_code: str = "", state: str = "approved") -> bool:
        """What the user does with a device code: approved, denied or expired; "" is every one. False: there is none."""
        return bool(self._control("decide", user_code=user_code, state=state)["found"])

    def revoke(self, token: str) -> None:
        """Take a token back, and all that came of the same consent."""
        self._control("revoke", token=token)

    def requests(self, path: str = "") -> list[dict[str, Any]]:
        """What was asked since the reset, in order: path, form (or query), authorization; introspection left out."""
        found: list[dict[str, Any]] = self._control("requests")
        return [each for each in found if path in ("", each["path"])]

    def grants(self) -> list[str]:
        """The grant types that the token endpoint was asked for, in order."""
        return [each["form"].get("grant_type", "") for each in self.requests("/token")]

    def introspect(self, token: str) -> dict[str, Any]:
        """What the provider says of an access token that it has issued."""
        request = Request(f"{self.issuer}/introspect", f"token={token}".encode())
        with _open(request, timeout=LIMIT_S) as response:
            told: dict[str, Any] = json.load(response)
        return told

    def _control(self, what: str, **given: Any) -> Any:
        headers = {"Content-Type": "application/json"}
        request = Request(f"{self.issuer}/control/{what}", json.dumps(given).encode(), headers)
        try:
            with _open(request, timeout=LIMIT_S) as response:
                return json.load(response)
        except HTTPError as error:
            raise ValueError(error.read().decode()) from None


@contextlib.contextmanager
def provider_running(folder: Path) -> Iterator[OidcProvider]:
    """A provider process until the end of the block; its log is in `folder`."""
    port = free_port()
    with running([sys.executable, "-m", "tests.oidc.provider", str(port)], port, folder / "oidc.log", ROOT):
        yield OidcProvider(f"http://127.0.0.1:{port}")


@pytest.fixture(scope="session")
def provider_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OidcProvider]:
    """One process for all tests."""
    with provider_running(tmp_path_factory.mktemp("oidc")) as started:
        yield started


@pytest.fixture
def provider(provider_process: OidcProvider) -> OidcProvider:
    """The provider, as if it had just been started."""
    provider_process.reset()
    return provider_process
