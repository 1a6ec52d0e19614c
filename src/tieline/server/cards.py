"""The pages an agent's card is on (A2A 1.0 §8.2, §8.6): each version's form, the right URL, the rules of caching."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from email.utils import formatdate, parsedate_to_datetime
from time import time
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote

import msgspec
from msgspec.structs import replace

from tieline.card import JWKS_PATH, AgentCard, AgentInterface, check_card
from tieline.engine.agent import Agent
from tieline.engine.push import Push
from tieline.engine.turn import Caller
from tieline.errors import UnsupportedOperation
from tieline.server.auth.auth import Auth
from tieline.wire import cards
from tieline.wire.dialects import DIALECTS

if TYPE_CHECKING:
    from tieline.wire.signing import CardSigner

__all__ = ["CardPage", "Interfaces", "http_interfaces"]

Interfaces = Callable[[str | None], Sequence[AgentInterface]]
"""Where an agent is mounted when its URL, without a slash at the end, is this one: in the order of preference."""

_MAX_AGE_S = 300
_HOST = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?$")
_PATH_CHARACTERS = "/:@!$&'()*+,;=~-._"
_KEPT = 64  # bodies for different hosts; the host is the caller's to choose, so there is an end


def http_interfaces(base: str) -> list[AgentInterface]:
    """What an App mounts: each dialect as JSON-RPC at the agent's root and as REST below it, the latest first.

    Those before 0.3 have no list of interfaces: their readers find the root in agent.json.
    """
    versions = [dialect.version for dialect in DIALECTS if dialect.version not in ("0.1", "0.2")]
    return [
        interface
        for version in versions
        for interface in (AgentInterface(f"{base}/", "JSONRPC", version), AgentInterface(base, "HTTP+JSON", version))
    ]


class CardPage:
    """One agent's card. Its URLs are `public_url`'s where that is set, else those that the request came to.

    At agent-card.json is one body for readers of 0.3 and 1.0, at agent.json one for those before; a reader that names
    its version (A2A-Version, as a header or in the query) gets that version's own form at both. With a `signer` each of
    these bodies is signed when it is first asked for, and the public key has a page of its own.

    Raises:
        ValueError: the card would not be valid in one of the versions that are mounted, or cannot be signed.
    """

    def __init__(
        self,
        agent: Agent,
        path: str,
        *,
        public_url: str | None,
        trust_forwarded: bool,
        interfaces: Interfaces,
        auth: Auth | None = None,
        push: Push | None = None,
        signer: CardSigner | None = None,
    ) -> None:
        if public_url is not None and not public_url.startswith(("http://", "https://")):
            raise ValueError(f"public_url has to be an http or https URL, not {public_url!r}")
        self._agent = agent
        self._path = quote(path, safe=_PATH_CHARACTERS)
        self._public_url = None if public_url is None else public_url.rstrip("/")
        self._trust_forwarded = trust_forwarded
        self._interfaces = interfaces
        self._auth = auth
        self._pushes = push is not None
        if agent.extended_skills and auth is None:
            raise ValueError(
                f"agent {agent.name!r} has skills for those who authenticate, and nothing here asks for that: give auth"
            )
        self._signer = signer
        self._keys = _keys_of(signer, push)
        varying = b"Host, X-Forwarded-Host, X-Forwarded-Proto, X-Forwarded-Prefix" if trust_forwarded else b"Host"
        self._vary = varying + b", A2A-Version"
        self._modified = int(time())
        self._forms = self._checked_forms()
        self._pages: dict[tuple[str, str], tuple[bytes, bytes]] = {}  # by base URL and form: body, ETag

    def _checked_forms(self) -> frozenset[str]:
        """The forms that the card has, by the versions of what is mounted."""
        base = self._public_url or "http://localhost"
        card = self.card(base)
        whole = replace(card, skills=(*card.skills, *self._agent.extended_skills))
        forms = {each.protocol_version for each in card.supported_interfaces} & {"1.0", "0.3"}
        mounted = {(each.protocol_binding, each.protocol_version) for each in card.supported_interfaces}
        if mounted & {("JSONRPC", "0.3"), ("JSONRPC", "0.1")}:  # readers before 0.3 know no other binding
            forms |= {"0.2", "0.1", cards.OLDEST}
        faults = [*check_card(whole), *(fault for form in sorted(forms) for fault in cards.lacking(card, form))]
        if faults:
            told = "; ".join(dict.fromkeys(faults))
            raise ValueError(f"the card of agent {self._agent.name!r} would not be valid: {told}")
        if self._signer is not None:
            try:
                self._signer.sign(cards.write(card))
            except ValueError as error:
                raise ValueError(f"the card of agent {self._agent.name!r} cannot be signed: {error}") from None
        return frozenset(forms)

    def card(self, base: str | None) -> AgentCard:
        """The card that all may read, of the agent at this URL: it says what is mounted, checked and sent here.

        Without `base` it is at `public_url`, and where there is none, reached by gRPC alone.
        """
        card = self._agent.card(self._interfaces(base), push=self._pushes)
        return card if self._auth is None else self._auth.told(card)

    def extended_card(self, base: str | None, caller: Caller) -> AgentCard:
        """The card for a caller who has authenticated (§3.1.11), signed where the public one is.

        Raises UnsupportedOperation.
        """
        card = self._extended(base, caller)
        if self._signer is None:
            return card
        signed = self._signer.sign(cards.write(card, "1.0"), key_url=None if base is None else base + JWKS_PATH)
        return replace(card, signatures=cards.read(signed).signatures)

    def extended(self, base: str, caller: Caller, version: str) -> bytes:
        """The same as a version of A2A writes it."""
        body = cards.write(self._extended(base, caller), version)
        return body if self._signer is None else self._signer.sign(body, key_url=base + JWKS_PATH)

    def _extended(self, base: str | None, caller: Caller) -> AgentCard:
        if not self._agent.extended_skills:
            raise UnsupportedOperation("This agent has no extended card; its public card is all there is.")
        return self._agent.extended_card(self.card(base), caller)

    async def answer(
        self,
        scope: MutableMapping[str, Any],
        headers: Mapping[bytes, bytes],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
        *,
        old: bool = False,
    ) -> None:
        """Answer a request for the page at agent-card.json, or with `old` for the one at agent.json."""

        def page() -> tuple[bytes, bytes]:
            return self._page(self.base_url(scope, headers), self._form(scope, headers, old=old))

        await self._give(page, b"application/json", scope, headers, send, ((b"vary", self._vary),))

    @property
    def has_keys(self) -> bool:
        """Whether there is a page of keys, as the card is signed."""
        return self._keys is not None

    async def answer_keys(
        self,
        scope: MutableMapping[str, Any],
        headers: Mapping[bytes, bytes],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        """Answer a request for the keys that the card is signed with (`has_keys`), a JSON Web Key set."""
        keys = self._keys
        assert keys is not None
        await self._give(lambda: (keys, b'"%b"' % _digest(keys)), b"application/jwk-set+json", scope, headers, send)

    async def _give(
        self,
        page: Callable[[], tuple[bytes, bytes]],
        media_type: bytes,
        scope: MutableMapping[str, Any],
        headers: Mapping[bytes, bytes],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
        more: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        """Answer with a body and its ETag, or say that it is unchanged."""
        verb = scope["method"]
        common = [
            (b"access-control-allow-origin", b"*"),
            (b"cache-control", b"public, max-age=%d" % _MAX_AGE_S),
        ]
        if verb == "OPTIONS":
            allow = [(b"access-control-allow-methods", b"GET, HEAD, OPTIONS"), (b"access-control-allow-headers", b"*")]
            await _send(send, 204, [*common, *allow], b"")
            return
        if verb not in ("GET", "HEAD"):
            await _send(send, 405, [(b"allow", b"GET, HEAD, OPTIONS")], b"")
            return
        body, etag = page()
        common += [(b"etag", etag), (b"last-modified", formatdate(self._modified, usegmt=True).encode()), *more]
        if self._unchanged(headers, etag):
            await _send(send, 304, common, b"")
            return
        common += [(b"content-type", media_type), (b"content-length", b"%d" % len(body))]
        await _send(send, 200, common, body if verb == "GET" else b"")

    def base_url(self, scope: MutableMapping[str, Any], headers: Mapping[bytes, bytes]) -> str:
        """The agent's URL without a slash at its end."""
        if self._public_url is not None:
            return self._public_url + self._path
        host = headers.get(b"host", b"").decode("latin-1")
        prefix: str = scope.get("root_path", "")
        scheme: str = scope.get("scheme", "http")
        if self._trust_forwarded:
            host = headers.get(b"x-forwarded-host", host.encode("latin-1")).decode("latin-1").split(",")[0].strip()
            scheme = headers.get(b"x-forwarded-proto", scheme.encode()).decode("latin-1").split(",")[0].strip()
            prefix = headers.get(b"x-forwarded-prefix", b"").decode("latin-1").rstrip("/") + prefix
        if not _HOST.match(host):
            server = scope.get("server") or ("localhost", None)
            host = f"{server[0]}:{server[1]}" if server[1] else str(server[0])
        return f"{scheme}://{host}{quote(prefix, safe=_PATH_CHARACTERS)}{self._path}"

    def _form(self, scope: MutableMapping[str, Any], headers: Mapping[bytes, bytes], *, old: bool) -> str:
        """The form for this reader; one that names a version that is not mounted is shown what is."""
        asked = headers.get(b"a2a-version", b"").decode("latin-1").strip()
        query: bytes = scope.get("query_string", b"")
        if not asked and query:
            pairs = parse_qsl(query.decode("latin-1"))
            asked = next((value.strip() for name, value in pairs if name.lower() == "a2a-version"), "")
        for form in (cards.form_of(asked), cards.OLDEST if old else None):
            if form in self._forms:
                return form
        return cards.JOINT

    def _page(self, base: str, form: str) -> tuple[bytes, bytes]:
        page = self._pages.get((base, form))
        if page is None:
            body = cards.write(self.card(base), form)
            if self._signer is None:
                page = (body, b'"%b"' % _digest(body))
            else:
                # Signatures differ from process to process and mean the same: hence the weak tag, of what is signed.
                tag = b'W/"%b"' % _digest(body + (self._keys or b""))
                page = (self._signer.sign(body, key_url=base + JWKS_PATH), tag)
            if len(self._pages) >= _KEPT:
                self._pages.pop(next(iter(self._pages)))
            self._pages[base, form] = page
        return page

    def _unchanged(self, headers: Mapping[bytes, bytes], etag: bytes) -> bool:
        given = headers.get(b"if-none-match")
        if given is not None:
            tags = [tag.strip().removeprefix(b"W/") for tag in given.split(b",")]
            return etag.removeprefix(b"W/") in tags or b"*" in tags
        since = headers.get(b"if-modified-since")
        if since is None:
            return False
        try:
            return parsedate_to_datetime(since.decode("latin-1")).timestamp() >= self._modified
        except (ValueError, OverflowError):
            return False


def _keys_of(signer: CardSigner | None, push: Push | None) -> bytes | None:
    """The public keys of all that this server signs, as a JSON Web Key set; None when it signs nothing."""
    if push is None or push.signer is None:
        return None if signer is None else signer.jwks
    keys = list(push.signer.public_keys()["keys"])
    if signer is not None:
        keys[:0] = msgspec.json.decode(signer.jwks)["keys"]
    return msgspec.json.encode({"keys": keys})


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest()[:32].encode()


async def _send(
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    status: int,
    headers: list[tuple[bytes, bytes]],
    body: bytes,
) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
