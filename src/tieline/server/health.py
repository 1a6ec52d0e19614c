"""Whether this process answers (/healthz), and whether it is to be sent requests (/readyz; gRPC's health likewise).

Probes come before everything else: they are answered for any host name and without credentials, and tell nothing but
which check has failed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from tieline.server.streams import Send
from tieline.stores.base import StoreError
from tieline.types import encode

if TYPE_CHECKING:
    from tieline.operation.metrics import Metrics
    from tieline.server.asgi import App

__all__ = [
    "HEALTH_PATH",
    "Looks",
    "METRICS_PATH",
    "PROBE_PATHS",
    "READY_PATH",
    "Readiness",
    "Ready",
    "answer_metrics",
    "answer_probe",
    "tell",
]

log = logging.getLogger("tieline.server")

HEALTH_PATH: Final = "/healthz"
READY_PATH: Final = "/readyz"
METRICS_PATH: Final = "/metrics"
PROBE_PATHS: Final = frozenset((HEALTH_PATH, READY_PATH))

_STORE_S: Final = 1.0  # within which a store has to answer
_FRESH_S: Final = 0.5  # so long an answer of the store counts: probes are no load
_OK: Final = "ok"
_HEALTHY: Final = b'{"status":"ok"}'


class Ready(msgspec.Struct, frozen=True):
    """What a look at a server has found."""

    checks: Mapping[str, str]  # by what was looked at: "ok", or what is wrong with it
    ready: bool  # whether it is to be sent requests

    @property
    def json(self) -> bytes:
        """The body of an answer."""
        return encode({"status": "ready" if self.ready else "not ready", "checks": self.checks})


class Looks(Protocol):
    """What can be asked whether it is ready."""

    async def look(self) -> Ready:
        """What there is to say now."""
        ...


class Readiness:
    """Looks whether an app can do its work. The store is asked once for all who ask at the same time."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._asking: asyncio.Task[str] | None = None  # a store that hangs is not asked again
        self._asked = float("-inf")  # loop time at which the store has answered
        self._said = _OK
        self._was_ready = True

    async def look(self) -> Ready:
        """What there is to say now; takes as long as the store may take at the most."""
        app = self._app
        checks = {"drain": "this server is shutting down" if app.leaving else _OK, "store": await self._store()}
        if app.store.shared:
            checks["replica"] = (
                _OK if app.is_heard else "this replica has not been able to say that it is alive for a lease"
            )
        found = Ready(checks, all(said == _OK for said in checks.values()))
        if found.ready is not self._was_ready:
            self._was_ready = found.ready
            if found.ready:
                log.info("ready")
            else:
                wrong = "; ".join(f"{name}: {said}" for name, said in checks.items() if said != _OK)
                log.warning("not ready: %s", wrong)
        return found

    async def _store(self) -> str:
        now = asyncio.get_running_loop().time
        if now() - self._asked < _FRESH_S:
            return self._said
        asking = self._asking
        if asking is None:
            asking = self._asking = asyncio.ensure_future(self._ask())
        await asyncio.wait([asking], timeout=_STORE_S)
        if not asking.done():
            return f"no answer within {_STORE_S:g} s"
        if self._asking is asking:
            self._asking = None
            self._said = asking.result()
            self._asked = now()
        return self._said

    async def _ask(self) -> str:
        app = self._app
        if app.leaving:
            return _OK  # and not to be opened any more
        try:
            await app.start()
            await app.store.get("", "")
        except StoreError as error:
            log.debug("the store was asked for readiness: %s", error)
            return "not available"
        except Exception:  # a store may be anybody's
            log.exception("the store could not be asked")
            return "not available"
        return _OK

    async def close(self) -> None:
        """Ask no more."""
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.cancel()
            await asyncio.wait([asking])


async def answer_probe(path: str, verb: str, looks: Looks, send: Send) -> None:
    """Answer a request for one of the PROBE_PATHS."""
    if verb not in ("GET", "HEAD"):
        await tell(send, verb, 405, b"", [(b"allow", b"GET, HEAD")])
    elif path == HEALTH_PATH:
        await tell(send, verb, 200, _HEALTHY)
    else:
        found = await looks.look()
        await tell(send, verb, 200 if found.ready else 503, found.json)


async def answer_metrics(verb: str, headers: Mapping[bytes, bytes], metrics: Metrics, send: Send) -> None:
    """Answer a request for METRICS_PATH."""
    if verb not in ("GET", "HEAD"):
        await tell(send, verb, 405, b"", [(b"allow", b"GET, HEAD")])
        return
    page, media_type = metrics.page(headers.get(b"accept", b"").decode("latin-1"))
    await tell(send, verb, 200, page, content_type=media_type.encode())


async def tell(
    send: Send,
    verb: str,
    status: int,
    body: bytes,
    more: list[tuple[bytes, bytes]] | None = None,
    content_type: bytes = b"application/json",
) -> None:
    """Send an answer that nobody may keep; one that says "not now" says when to ask again."""
    headers: list[tuple[bytes, Any]] = [
        (b"content-type", content_type),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        *(more or ()),
    ]
    if status == 503:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if verb == "HEAD" else body})
