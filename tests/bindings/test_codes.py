"""Error codes on the wire, against the table of the specification (A2A 1.0 §5.4)."""

from __future__ import annotations

import json

import pytest

import tieline
from tests.server.agents import worker
from tests.server.raw import JSON, in_loop, request, serve
from tests.test_errors import BY_NAME, MAPPED
from tieline.errors import A2AError, ExtensionSupportRequired, TaskNotCancelable, TaskNotFound, VersionNotSupported
from tieline.stores.base import Page, Query
from tieline.stores.memory import MemoryStore

ROWS = {
    "TaskNotFoundError": "codes.task-not-found",
    "TaskNotCancelableError": "codes.task-not-cancelable",
    "PushNotificationNotSupportedError": "codes.push-not-supported",
    "UnsupportedOperationError": "codes.unsupported-operation",
    "ContentTypeNotSupportedError": "codes.content-type-not-supported",
    "InvalidAgentResponseError": "codes.invalid-agent-response",
    "ExtendedAgentCardNotConfiguredError": "codes.extended-card-not-configured",
    "ExtensionSupportRequiredError": "codes.extension-support-required",
    "VersionNotSupportedError": "codes.version-not-supported",
}


class Refusing(MemoryStore):
    """A store in which every list ends in one error: whichever error an operation raises is told by its own codes."""

    def __init__(self, error: A2AError) -> None:
        super().__init__()
        self._error = error

    async def list(self, query: Query) -> Page:
        raise self._error


def made(name: str) -> A2AError:
    whole = {
        "TaskNotFoundError": TaskNotFound("t"),
        "TaskNotCancelableError": TaskNotCancelable("t", "TASK_STATE_COMPLETED"),
        "ExtensionSupportRequiredError": ExtensionSupportRequired(["https://x.example/v1"]),
        "VersionNotSupportedError": VersionNotSupported("0.5", ["1.0"]),
    }
    return whole[name] if name in whole else BY_NAME[name]()


def test_every_error_of_the_table_is_looked_at() -> None:
    assert list(ROWS) == [row[0] for row in MAPPED]


@pytest.mark.parametrize(
    ("name", "code", "grpc", "http"),
    [pytest.param(*row, id=row[0], marks=pytest.mark.requirement(ROWS[row[0]])) for row in MAPPED],
)
@in_loop
async def test_an_error_has_its_code_in_json_rpc_and_its_status_in_http(
    name: str, code: int, grpc: str, http: int
) -> None:
    error = made(name)
    async with serve(tieline.app(worker(), store=Refusing(error))) as port:
        call = b'{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{}}'
        rpc = await request(port, "POST", "/", call, JSON)
        rest = await request(port, "GET", "/tasks")
    assert rpc.status == 200
    told = rpc.json()["error"]
    assert (told["code"], told["message"]) == (code, str(error))
    assert rest.status == http
    status = rest.json()["error"]
    assert (status["code"], status["status"], status["message"]) == (http, grpc, str(error))
    assert status["details"] == told["data"]
    (info,) = told["data"]
    assert info == {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": error.reason,
        "domain": "a2a-protocol.org",
        **({"metadata": error.metadata} if error.metadata else {}),
    }
    assert json.dumps(info["reason"]).isupper()
