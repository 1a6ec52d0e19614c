"""Error answers: the specification's table of them, and how a test expects one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

__all__ = ["BAD_REQUEST", "ERRORS", "ERROR_INFO", "Refused", "refused"]

Json = dict[str, Any]

ERRORS: Final[dict[str, tuple[int, int, str, str]]] = {
    "JSONParseError": (-32700, 400, "INVALID_ARGUMENT", "PARSE_ERROR"),
    "InvalidRequestError": (-32600, 400, "INVALID_ARGUMENT", "INVALID_REQUEST"),
    "MethodNotFoundError": (-32601, 404, "UNIMPLEMENTED", "METHOD_NOT_FOUND"),
    "InvalidParamsError": (-32602, 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
    "InternalError": (-32603, 500, "INTERNAL", "INTERNAL_ERROR"),
    "Overloaded": (-32603, 503, "RESOURCE_EXHAUSTED", "OVERLOADED"),  # our own: an InternalError that may pass
    "Unavailable": (-32603, 503, "UNAVAILABLE", "UNAVAILABLE"),  # likewise
    "TaskNotFoundError": (-32001, 404, "NOT_FOUND", "TASK_NOT_FOUND"),
    "TaskNotCancelableError": (-32002, 400, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"),
    "PushNotificationNotSupportedError": (-32003, 400, "FAILED_PRECONDITION", "PUSH_NOTIFICATION_NOT_SUPPORTED"),
    "UnsupportedOperationError": (-32004, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
    "ContentTypeNotSupportedError": (-32005, 400, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED"),
    "InvalidAgentResponseError": (-32006, 500, "INTERNAL", "INVALID_AGENT_RESPONSE"),
    "ExtendedAgentCardNotConfiguredError": (-32007, 400, "FAILED_PRECONDITION", "EXTENDED_AGENT_CARD_NOT_CONFIGURED"),
    "ExtensionSupportRequiredError": (-32008, 400, "FAILED_PRECONDITION", "EXTENSION_SUPPORT_REQUIRED"),
    "VersionNotSupportedError": (-32009, 400, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED"),
    "Unauthenticated": (-32000, 401, "UNAUTHENTICATED", "UNAUTHENTICATED"),
    "PermissionDenied": (-32010, 403, "PERMISSION_DENIED", "PERMISSION_DENIED"),
    "RateLimited": (-32603, 429, "RESOURCE_EXHAUSTED", "RATE_LIMITED"),
}
"""JSON-RPC code, HTTP status, google.rpc status and ErrorInfo reason of each error (§3.3.2, §5.4, §9.5, §11.6)."""

PASSING: Final = ("Overloaded", "Unavailable", "RateLimited")
_BESIDE: Final = (*PASSING, "Unauthenticated", "PermissionDenied")
"""What JSON-RPC tells by the HTTP status, too."""

ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
BAD_REQUEST = "type.googleapis.com/google.rpc.BadRequest"


class Refused(Exception):
    """An error answer. Codes that a transport does not have are None."""

    def __init__(
        self,
        message: str,
        *,
        code: int | None = None,  # JSON-RPC
        status: int | None = None,  # HTTP
        rpc_status: str | None = None,  # google.rpc.Status.status
        details: Iterable[Json] = (),
        in_stream: bool = False,  # it came as an event of a stream that had been opened
        headers: Iterable[tuple[str, str]] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.status = status
        self.rpc_status = rpc_status
        self.details = list(details)
        self.in_stream = in_stream
        self.headers = dict(headers)

    def __str__(self) -> str:
        return f"{self.code} {self.status} {self.rpc_status} {self.reason} {self.message!r} {self.details}"

    def _detail(self, type_: str) -> Json:
        return next((detail for detail in self.details if detail.get("@type") == type_), {})

    @property
    def reason(self) -> str | None:
        """Of its ErrorInfo; None when it has none."""
        reason: str | None = self._detail(ERROR_INFO).get("reason")
        return reason

    @property
    def metadata(self) -> dict[str, str]:
        """Of its ErrorInfo."""
        metadata: dict[str, str] = self._detail(ERROR_INFO).get("metadata", {})
        return metadata

    @property
    def violations(self) -> dict[str, str]:
        """What its BadRequest says of each bad field."""
        return {v["field"]: v["description"] for v in self._detail(BAD_REQUEST).get("fieldViolations", ())}

    def check(self, name: str) -> None:
        """Assert that this is the error `name`, in each form that its transport gives it."""
        code, status, rpc_status, reason = ERRORS[name]
        assert self.code in (code, None), f"not {name}: {self}"
        assert self.rpc_status in (rpc_status, None), f"not {name}: {self}"
        # Over JSON-RPC HTTP has no say, but that a server with too much to do tells proxies so.
        over_http = status if self.code is None or name in _BESIDE else 200
        assert self.status in (over_http, None), f"not {name}: {self}"
        plain = code <= -32600 and name not in _BESIDE  # JSON-RPC's own errors need no ErrorInfo
        assert self.reason == reason or (plain and self.reason is None), f"not {name}: {self}"
        assert self.message, "an error has to say something to people"
        assert not self.in_stream, "a refusal has to come before the stream"


@contextmanager
def refused(name: str) -> Iterator[Refusal]:
    """Expect the error `name`; what it said is there behind the block."""
    refusal = Refusal()
    with pytest.raises(Refused) as caught:
        yield refusal
    refusal.error = caught.value
    refusal.error.check(name)


class Refusal:
    """What `refused` has caught."""

    error: Refused

    @property
    def message(self) -> str:
        return self.error.message

    @property
    def metadata(self) -> dict[str, str]:
        return self.error.metadata

    @property
    def violations(self) -> dict[str, str]:
        return self.error.violations
