"""The page an agent's card is on (A2A 1.0 §8.2, §8.6): the right public URL, and the rules of HTTP caching."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from email.utils import formatdate, parsedate_to_datetime
from time import time
from typing import Any
from urllib.parse import quote

from tieline.card import AgentInterface
from tieline.engine.agent import Agent
from tieline.types import encode
from tieline.wire.v1 import V1

__all__ = ["CardPage"]

_MAX_AGE_S = 300
_HOST = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?$")
_PATH_CHARACTERS = "/:@!$&'()*+,;=~-._"
_KEPT = 64  # bodies for different hosts; the host is the caller's to choose, so there is an end


class CardPage:
    """One agent's card. Its URLs are `public_url`'s where that is set, else those that the request came to."""

    def __init__(self, agent: Agent, path: str, *, public_url: str | None, trust_forwarded: bool) -> None:
        if public_url is not None and not public_url.startswith(("http://", "https://")):
            raise ValueError(f"public_url has to be an http or https URL, not {public_url!r}")
        self._agent = agent
        self._path = quote(path, safe=_PATH_CHARACTERS)
        self._public_url = None if public_url is None else public_url.rstrip("/")
        self._trust_forwarded = trust_forwarded
        self._vary = b"Host, X-Forwarded-Host, X-Forwarded-Proto, X-Forwarded-Prefix" if trust_forwarded else b"Host"
        self._modified = int(time())
        self._pages: dict[str, tuple[bytes, bytes]] = {}  # by base URL: body, ETag

    async def answer(
        self,
        scope: MutableMapping[str, Any],
        headers: Mapping[bytes, bytes],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
        *,
        old: bool = False,
    ) -> None:
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
        body, etag = self._page(self.base_url(scope, headers))
        common += [
            (b"etag", etag),
            (b"last-modified", formatdate(self._modified, usegmt=True).encode()),
            (b"vary", self._vary),
        ]
        if self._unchanged(headers, etag):
            await _send(send, 304, common, b"")
            return
        common += [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
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

    def _page(self, base: str) -> tuple[bytes, bytes]:
        page = self._pages.get(base)
        if page is None:
            version = V1.version
            interfaces = [AgentInterface(f"{base}/", "JSONRPC", version), AgentInterface(base, "HTTP+JSON", version)]
            body = encode(self._agent.card(interfaces))
            page = (body, b'"%b"' % hashlib.sha256(body).hexdigest()[:32].encode())
            if len(self._pages) >= _KEPT:
                self._pages.pop(next(iter(self._pages)))
            self._pages[base] = page
        return page

    def _unchanged(self, headers: Mapping[bytes, bytes], etag: bytes) -> bool:
        given = headers.get(b"if-none-match")
        if given is not None:
            tags = [tag.strip().removeprefix(b"W/") for tag in given.split(b",")]
            return etag in tags or b"*" in tags
        since = headers.get(b"if-modified-since")
        if since is None:
            return False
        try:
            return parsedate_to_datetime(since.decode("latin-1")).timestamp() >= self._modified
        except (ValueError, OverflowError):
            return False


async def _send(
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    status: int,
    headers: list[tuple[bytes, bytes]],
    body: bytes,
) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
