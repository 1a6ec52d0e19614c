"""gRPC's health service: SERVING while the app is ready, as /readyz has it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

try:
    from grpc_health.v1 import health_pb2
    from grpc_health.v1.health import aio as health
except ImportError as error:
    raise ImportError(f"gRPC needs: pip install 'tieline[grpc]' ({error})") from error

from tieline.server.health import Readiness

__all__ = ["GrpcHealth"]

_LOOK_S: Final = 1.0  # between looks, while somebody watches


class GrpcHealth(health.HealthServicer):  # type: ignore[misc]  # grpcio has no types
    """The servicer of grpc.health.v1.Health. The app is looked at when somebody asks, and while somebody watches."""

    def __init__(self, readiness: Readiness) -> None:
        super().__init__()
        self._readiness = readiness
        self._names: list[str] = [""]
        self._watchers = 0
        self._looking: asyncio.Task[None] | None = None

    def know(self, names: Iterable[str]) -> None:
        """These are the services that may be asked for, beside "", the whole server."""
        self._names += names

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802 - the name of the rpc
        """How it is now."""
        await self._look()
        return await super().Check(request, context)

    async def Watch(self, request: Any, context: Any) -> None:  # noqa: N802
        """How it is, whenever that changes."""
        await self._look()
        self._watchers += 1
        if self._looking is None:
            self._looking = asyncio.ensure_future(self._keep_looking())
        try:
            await super().Watch(request, context)
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._looking.cancel()
                self._looking = None

    async def leave(self) -> None:
        """It is about to go: NOT_SERVING from here on."""
        await self.enter_graceful_shutdown()

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            await self._look()

    async def _look(self) -> None:
        status = health_pb2.HealthCheckResponse
        found = status.SERVING if (await self._readiness.look()).ready else status.NOT_SERVING
        for name in self._names:
            await self.set(name, found)
