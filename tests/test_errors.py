"""Every error against the tables of the specification (A2A 1.0 §5.4, §9.5, §11.6)."""

from __future__ import annotations

import re

import pytest

from tieline import errors
from tieline.errors import (
    A2AError,
    AuthenticationRequired,
    AuthorizationFailed,
    BodyTooLarge,
    ExtensionSupportRequired,
    Failed,
    FieldViolation,
    InvalidParams,
    MediaTypeNotSupported,
    OriginNotTrusted,
    Overloaded,
    PeerError,
    PermissionDenied,
    RateLimited,
    Rejected,
    TaskEnded,
    TaskFailed,
    TaskInDoubt,
    TaskNotCancelable,
    TaskNotFound,
    Unauthenticated,
    Unavailable,
    VersionNotSupported,
    error_for,
)
from tieline.types import Task, TaskState, TaskStatus

MAPPINGS = """
| A2A Error Type                        | JSON-RPC Code | gRPC Status           | HTTP Status                 |
| :------------------------------------ | :------------ | :-------------------- | :-------------------------- |
| `TaskNotFoundError`                   | `-32001`      | `NOT_FOUND`           | `404 Not Found`             |
| `TaskNotCancelableError`              | `-32002`      | `FAILED_PRECONDITION` | `400 Bad Request`           |
| `PushNotificationNotSupportedError`   | `-32003`      | `FAILED_PRECONDITION` | `400 Bad Request`           |
| `UnsupportedOperationError`           | `-32004`      | `FAILED_PRECONDITION` | `400 Bad Request`           |
| `ContentTypeNotSupportedError`        | `-32005`      | `INVALID_ARGUMENT`    | `400 Bad Request`           |
| `InvalidAgentResponseError`           | `-32006`      | `INTERNAL`            | `500 Internal Server Error` |
| `ExtendedAgentCardNotConfiguredError` | `-32007`      | `FAILED_PRECONDITION` | `400 Bad Request`           |
| `ExtensionSupportRequiredError`       | `-32008`      | `FAILED_PRECONDITION` | `400 Bad Request`           |
| `VersionNotSupportedError`            | `-32009`      | `FAILED_PRECONDITION` | `400 Bad Request`           |
"""
"""The table of §5.4, as it stands there."""

STANDARD = """
| JSON-RPC Error Code | Error Name            | Standard Message                   |
| :------------------ | :-------------------- | :--------------------------------- |
| `-32700`            | `JSONParseError`      | "Invalid JSON payload"             |
| `-32600`            | `InvalidRequestError` | "Request payload validation error" |
| `-32601`            | `MethodNotFoundError` | "Method not found"                 |
| `-32602`            | `InvalidParamsError`  | "Invalid parameters"               |
| `-32603`            | `InternalError`       | "Internal error"                   |
"""
"""The table of §9.5, without its descriptions."""


def rows(table: str) -> list[list[str]]:
    lines = table.strip().splitlines()[2:]
    return [[cell.strip().strip('`"') for cell in line.strip("|").split("|")] for line in lines]


def classes(root: type[A2AError] = A2AError) -> list[type[A2AError]]:
    found: list[type[A2AError]] = []
    for cls in root.__subclasses__():
        if cls.__module__ == "tieline.errors":
            found += [cls, *classes(cls)]
    return found


BY_NAME = {cls.name: cls for cls in reversed(classes()) if not issubclass(cls, PeerError)}
MAPPED = [(name, int(code), grpc, int(http.split()[0])) for name, code, grpc, http in rows(MAPPINGS)]


@pytest.mark.parametrize(("name", "code", "grpc", "http"), MAPPED, ids=[row[0] for row in MAPPED])
def test_an_error_has_the_codes_of_the_specifications_table(name: str, code: int, grpc: str, http: int) -> None:
    cls = BY_NAME[name]
    assert (cls.rpc_code, cls.grpc_status, cls.http_status) == (code, grpc, http)


@pytest.mark.parametrize("row", MAPPED, ids=[row[0] for row in MAPPED])
def test_its_reason_is_its_name_in_upper_snake_case_without_error(row: tuple[str, int, str, int]) -> None:
    words = re.findall(r"[A-Z][a-z]+", row[0].removesuffix("Error"))
    assert BY_NAME[row[0]].reason == "_".join(words).upper()


@pytest.mark.parametrize(("code", "name", "sentence"), rows(STANDARD), ids=[row[1] for row in rows(STANDARD)])
def test_an_error_of_json_rpc_has_its_code_and_a_sentence(code: str, name: str, sentence: str) -> None:
    cls = A2AError if name == "InternalError" else BY_NAME[name]
    assert cls.rpc_code == int(code)
    assert str(cls()), sentence


def test_no_two_errors_share_a_name_or_a_code_but_a_class_and_its_own_kinds() -> None:
    base: dict[int, type[A2AError]] = {}
    for cls in classes():
        if issubclass(cls, PeerError):
            continue
        if cls.rpc_code in base:
            assert issubclass(cls, base[cls.rpc_code]), f"{cls.__name__} has the code of {base[cls.rpc_code].__name__}"
        else:
            base[cls.rpc_code] = cls
    assert len({cls.reason for cls in classes()}) >= len(base)


def test_every_error_is_exported_in_order() -> None:
    assert {cls.__name__ for cls in classes()} <= set(errors.__all__)
    assert sorted(errors.__all__, key=lambda name: (name == "error_for", name)) == errors.__all__


@pytest.mark.parametrize("cls", classes(), ids=lambda cls: cls.__name__)
def test_every_error_says_in_a_sentence_what_is_wrong(cls: type[A2AError]) -> None:
    needs = {
        "BodyTooLarge": BodyTooLarge(10),
        "Overloaded": Overloaded("Too much to do."),
        "RateLimited": RateLimited("You may send 5 requests a second."),
        "Unauthenticated": Unauthenticated("Authentication is needed: bearer."),
        "PermissionDenied": PermissionDenied.for_scopes("SendMessage", ["tasks:write"]),
        "Unavailable": Unavailable("The store is away."),
        "TaskEnded": TaskEnded("t", "TASK_STATE_COMPLETED", "send a new message"),
        "TaskNotFound": TaskNotFound("t"),
        "TaskNotCancelable": TaskNotCancelable("t", "TASK_STATE_COMPLETED"),
        "AuthenticationRequired": AuthenticationRequired("The agent wants credentials."),
        "OriginNotTrusted": OriginNotTrusted("It is elsewhere.", origin="https://elsewhere.example"),
        "AuthorizationFailed": AuthorizationFailed("It was refused."),
        "TaskInDoubt": TaskInDoubt("The stream broke.", task_id="t"),
        "TaskFailed": TaskFailed("It failed.", task=Task("t", TaskStatus(TaskState.FAILED))),
    }
    error = needs[cls.__name__] if cls.__name__ in needs else cls()
    assert len(str(error)) > 8
    assert "\n" not in str(error)
    assert error.message == str(error)
    assert re.fullmatch(r"[A-Z_]+", error.reason)
    assert all(isinstance(value, str) for value in error.metadata.values())  # ErrorInfo.metadata is a map of strings
    assert 400 <= error.http_status < 600


def test_errors_name_what_they_are_about() -> None:
    assert TaskNotFound("t-1").metadata == {"taskId": "t-1"}
    assert TaskNotCancelable("t-1", "TASK_STATE_FAILED").metadata == {"taskId": "t-1", "state": "TASK_STATE_FAILED"}
    unsupported = VersionNotSupported("0.5", ("1.0", "0.3"))
    assert unsupported.metadata == {"requestedVersion": "0.5", "supportedVersions": "1.0, 0.3"}
    assert "1.0, 0.3" in str(unsupported)
    extensions = ExtensionSupportRequired({"https://b", "https://a"})
    assert extensions.metadata == {"extensions": "https://a, https://b"}
    assert BodyTooLarge(64).metadata == {"limitBytes": "64"}


def test_one_bad_field_is_named_in_the_sentence_and_in_the_violations() -> None:
    error = InvalidParams.at("message.parts", "at least one part is required")
    assert str(error) == "message.parts: at least one part is required"
    assert error.violations == (FieldViolation("message.parts", "at least one part is required"),)


@pytest.mark.parametrize("cls", [cls for cls in classes() if not issubclass(cls, PeerError)], ids=lambda c: c.__name__)
def test_an_error_that_a_peer_reports_comes_back_as_its_class(cls: type[A2AError]) -> None:
    told = error_for(reason=cls.reason, message="as the peer says", metadata={"k": "v"})
    assert isinstance(told, cls) or issubclass(cls, (MediaTypeNotSupported, TaskEnded))  # told as their own kind
    assert (str(told), told.metadata) == ("as the peer says", {"k": "v"})
    by_code = error_for(rpc_code=cls.rpc_code, message="as the peer says")
    if cls in (Unauthenticated, PermissionDenied):  # others have other errors under our codes for these
        assert type(by_code) is A2AError
        return
    assert by_code.rpc_code == cls.rpc_code
    assert issubclass(cls, type(by_code))


@pytest.mark.parametrize("cls", classes(), ids=lambda cls: cls.__name__)
def test_an_error_that_a_peer_says_nothing_of_speaks_of_no_field_of_ours(cls: type[A2AError]) -> None:
    assert "`" not in str(error_for(reason=cls.reason))


def test_the_reason_of_a_peer_counts_before_its_code() -> None:
    assert isinstance(error_for(reason="TASK_NOT_FOUND", rpc_code=-32603), TaskNotFound)
    assert isinstance(error_for(reason="SOMETHING_ELSE", rpc_code=-32001), TaskNotFound)


@pytest.mark.parametrize("code", [None, 0, -32099, 17])
def test_an_error_of_a_peer_that_nobody_knows_is_still_an_error(code: int | None) -> None:
    error = error_for(rpc_code=code, reason="ODD", message="odd")
    assert type(error) is A2AError
    assert str(error) == "odd"


@pytest.mark.parametrize(("told", "seconds"), [("7", 7), ("soon", 1), ("", 1), ("-3", 1), ("²", 1), ("9" * 5000, 1)])
def test_an_overload_of_a_peer_says_when_to_come_back(told: str, seconds: int) -> None:
    error = error_for(reason="OVERLOADED", message="busy", metadata={"retryAfterSeconds": told})
    assert isinstance(error, Overloaded)
    assert error.retry_after_s == seconds


def test_what_an_agent_raises_to_end_its_task_is_no_error_of_the_wire() -> None:
    assert not issubclass(Rejected, A2AError)
    assert not issubclass(Failed, A2AError)
