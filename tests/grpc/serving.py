"""Our gRPC server on a real socket, in the loop of the test, and raw stubs to call it with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

import grpc
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb03
from a2a.compat.v0_3 import a2a_v0_3_pb2_grpc
from a2a.types import a2a_pb2 as pb
from a2a.types import a2a_pb2_grpc
from google.rpc import error_details_pb2, status_pb2

import tieline
from tests.behaviour.agents import Puppet
from tieline import Agent, App
from tieline.ids import new_id
from tieline.server.grpc import GrpcServer

__all__ = ["LIMIT_S", "Refusal", "Served", "eventually", "refused", "run", "said", "said03", "served"]

LIMIT_S = 20.0
"""No test waits longer than this for anything."""

T = TypeVar("T")

_STUB: Any = a2a_pb2_grpc.A2AServiceStub
_STUB_03: Any = a2a_v0_3_pb2_grpc.A2AServiceStub


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine to its end, within the limit."""

    async def limited() -> T:
        async with asyncio.timeout(LIMIT_S):
            return await coroutine

    return asyncio.run(limited())


class Served(NamedTuple):
    app: App
    server: GrpcServer
    port: int
    channel: Any
    stub: Any  # of A2A 1.0
    stub03: Any

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@asynccontextmanager
async def served(agent: Agent | Puppet | dict[str, Agent], **options: Any) -> AsyncIterator[Served]:
    """Serve an agent by gRPC until the block ends. `options` are those of `tieline.app`."""
    made = agent.agent if isinstance(agent, Puppet) else agent
    app = tieline.app(made, **{"drain_s": 0, **options})
    server = GrpcServer(app)
    port = await server.start("127.0.0.1", 0)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            yield Served(app, server, port, channel, _STUB(channel), _STUB_03(channel))
        finally:
            await app.drain()
            await server.stop()
            await app.close()


def said(text: str = "hi", *, parts: Any = None, configuration: Any = None, **fields: Any) -> pb.SendMessageRequest:
    """A request of 1.0 with a message of the user."""
    message = pb.Message(message_id=new_id(), role=pb.ROLE_USER, parts=parts or [pb.Part(text=text)], **fields)
    return pb.SendMessageRequest(message=message, configuration=configuration)


def said03(text: str = "hi", *, parts: Any = None, configuration: Any = None, **fields: Any) -> pb03.SendMessageRequest:
    """A request of 0.3 with a message of the user."""
    message = pb03.Message(message_id=new_id(), role=pb03.ROLE_USER, content=parts or [pb03.Part(text=text)], **fields)
    return pb03.SendMessageRequest(request=message, configuration=configuration)


class Refusal(NamedTuple):
    """What a failed call says."""

    status: str
    message: str
    reason: str
    metadata: dict[str, str]
    violations: list[tuple[str, str]]


async def refused(call: Any) -> Refusal:
    """The refusal of a call, unary or a stream that has given nothing."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await (call.read() if hasattr(call, "read") else call)
    error = caught.value
    packed = next(value for key, value in error.trailing_metadata() if key == "grpc-status-details-bin")
    status = status_pb2.Status.FromString(packed)
    info = error_details_pb2.ErrorInfo()
    bad = error_details_pb2.BadRequest()
    retry = error_details_pb2.RetryInfo()
    for detail in status.details:
        assert detail.Unpack(info) or detail.Unpack(bad) or detail.Unpack(retry)
    assert retry.retry_delay.seconds == int(info.metadata.get("retryAfterSeconds", "0"))
    assert status.code == error.code().value[0]
    assert status.message == error.details()
    assert info.domain == "a2a-protocol.org"
    violations = [(each.field, each.description) for each in bad.field_violations]
    return Refusal(error.code().name, error.details(), info.reason, dict(info.metadata), violations)


async def eventually(condition: Any) -> None:
    """Wait until `condition()` holds; the limit is that of the test."""
    while not condition():  # noqa: ASYNC110  # nobody tells it
        await asyncio.sleep(0.005)
