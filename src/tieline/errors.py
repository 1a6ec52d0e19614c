"""Every error once: its JSON-RPC code, HTTP status, gRPC status, reason and sentence.

    A2AError
    ├── ParseError, InvalidRequest, MethodNotFound, InvalidParams      the caller's request is not well formed
    │   └── BodyTooLarge, MisdirectedRequest, OriginNotAllowed, ...    (each an InvalidRequest)
    ├── Unauthenticated, PermissionDenied                              the caller is not known, or may not do this
    ├── TaskNotFound, TaskNotCancelable, UnsupportedOperation, ...     the nine errors of A2A 1.0 §3.3.2
    │   ├── TaskEnded                                                  (an UnsupportedOperation)
    │   └── MediaTypeNotSupported                                      (a ContentTypeNotSupported of the HTTP header)
    ├── InternalError                                                  our fault; the cause is logged, never sent
    │   └── Unavailable                                                nothing was done, and it may pass; try later
    │       └── Overloaded                                             a limit of this server is reached
    │           └── RateLimited                                        a limit of this caller's
    └── PeerError                                                      raised by the client only
        ├── CardNotFound, InvalidCard                                  no agent card there, or not a usable one
        ├── CardNotVerified                                            no signature on it that can be believed
        ├── Unreachable                                                no connection, or none behind a gateway
        ├── PeerTimeout                                                a time limit ran out
        ├── InvalidPeerResponse                                        the remote broke the protocol
        ├── AuthenticationRequired                                     HTTP 401 or 403
        ├── CredentialsUnfit                                           not what the card asks for; nothing was sent
        ├── OriginNotTrusted                                           where credentials do not go; nothing was sent
        ├── AuthorizationFailed                                        there is no token to be had
        ├── TaskFailed                                                 the task ended without an answer
        └── TaskInDoubt                                                a stream broke and the task could not be read

    Rejected, Failed                                                   raised by an agent to end its task with words

The codes are those of A2A 1.0 §5.4; a test compares them with the specification's table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from tieline.types import Task

__all__ = [
    "A2AError",
    "AuthenticationRequired",
    "AuthorizationFailed",
    "BodyTooLarge",
    "CardNotFound",
    "CardNotVerified",
    "ContentTypeNotSupported",
    "CredentialsUnfit",
    "ExtendedAgentCardNotConfigured",
    "ExtensionSupportRequired",
    "Failed",
    "FieldViolation",
    "InternalError",
    "InvalidAgentResponse",
    "InvalidCard",
    "InvalidParams",
    "InvalidPeerResponse",
    "InvalidRequest",
    "MediaTypeNotSupported",
    "MethodNotFound",
    "MisdirectedRequest",
    "OriginNotAllowed",
    "OriginNotTrusted",
    "Overloaded",
    "ParseError",
    "PeerError",
    "PeerTimeout",
    "PermissionDenied",
    "PushNotificationNotSupported",
    "RateLimited",
    "Rejected",
    "TaskEnded",
    "TaskFailed",
    "TaskInDoubt",
    "TaskNotCancelable",
    "TaskNotFound",
    "Unauthenticated",
    "Unavailable",
    "Unreachable",
    "UnsupportedOperation",
    "VersionNotSupported",
    "error_for",
]

ERROR_DOMAIN = "a2a-protocol.org"
"""The `domain` of every google.rpc.ErrorInfo (A2A 1.0 §11.6)."""


class FieldViolation:
    """One bad field of a request: its path in JSON names (`message.parts[0].text`) and what is wrong with it."""

    __slots__ = ("description", "field")

    def __init__(self, field: str, description: str) -> None:
        self.field = field
        self.description = description

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FieldViolation) and (self.field, self.description) == (other.field, other.description)

    def __hash__(self) -> int:
        return hash((self.field, self.description))

    def __repr__(self) -> str:
        return f"FieldViolation({self.field!r}, {self.description!r})"


class A2AError(Exception):
    """An error of A2A, as it crosses the wire.

    `str(error)` is the sentence that the caller reads; without one of its own it is the first line of its class's
    docstring. `metadata` goes into google.rpc.ErrorInfo, `violations` into google.rpc.BadRequest.
    """

    name: ClassVar[str] = "InternalError"  # the specification's name for it
    rpc_code: ClassVar[int] = -32603
    http_status: ClassVar[int] = 500
    grpc_status: ClassVar[str] = "INTERNAL"
    reason: ClassVar[str] = "INTERNAL_ERROR"

    def __init__(
        self,
        message: str = "",
        *,
        metadata: Mapping[str, str] | None = None,
        violations: Iterable[FieldViolation] = (),
    ) -> None:
        super().__init__(message or (type(self).__doc__ or "").split("\n", 1)[0])
        self.metadata: dict[str, str] = dict(metadata or {})
        self.violations: tuple[FieldViolation, ...] = tuple(violations)

    @property
    def message(self) -> str:
        return str(self)


# --- the request is not well formed (JSON-RPC 2.0 §5.1, A2A 1.0 §9.5) -------------------------------------------------


class ParseError(A2AError):
    """Invalid JSON payload."""

    name, rpc_code, http_status, grpc_status, reason = "JSONParseError", -32700, 400, "INVALID_ARGUMENT", "PARSE_ERROR"


class InvalidRequest(A2AError):
    """Request payload validation error."""

    name, rpc_code, http_status = "InvalidRequestError", -32600, 400
    grpc_status, reason = "INVALID_ARGUMENT", "INVALID_REQUEST"


class BodyTooLarge(InvalidRequest):
    """The body of a request is larger than this server takes."""

    http_status, grpc_status, reason = 413, "RESOURCE_EXHAUSTED", "BODY_TOO_LARGE"

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(
            f"The request body is larger than {limit_bytes} bytes. Send large files as a url part, or raise the limit.",
            metadata={"limitBytes": str(limit_bytes)},
        )


class MisdirectedRequest(InvalidRequest):
    """The request names a host that this server does not answer for."""

    http_status, reason = 421, "MISDIRECTED_REQUEST"


class OriginNotAllowed(InvalidRequest):
    """The request comes from a web page that may not call this server."""

    http_status, grpc_status, reason = 403, "PERMISSION_DENIED", "ORIGIN_NOT_ALLOWED"


class MethodNotFound(A2AError):
    """The method does not exist."""

    name, rpc_code, http_status = "MethodNotFoundError", -32601, 404
    grpc_status, reason = "UNIMPLEMENTED", "METHOD_NOT_FOUND"


class InvalidParams(A2AError):
    """Invalid parameters."""

    name, rpc_code, http_status = "InvalidParamsError", -32602, 400
    grpc_status, reason = "INVALID_ARGUMENT", "INVALID_PARAMS"

    @classmethod
    def at(cls, field: str, description: str) -> InvalidParams:
        """The usual form: one bad field, named by its path."""
        return cls(f"{field}: {description}", violations=[FieldViolation(field, description)])


class InternalError(A2AError):
    """Internal error."""


class Unavailable(InternalError):
    """This server cannot do it now, and has not begun to.

    `retry_after_s`: in how many seconds it may be able to.
    """

    http_status, grpc_status, reason = 503, "UNAVAILABLE", "UNAVAILABLE"

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message, metadata={"retryAfterSeconds": str(retry_after_s)})
        self.retry_after_s = retry_after_s

    @classmethod
    def without_store(cls) -> Unavailable:
        """For what the store would have to be asked for, while it does not answer. The reason is for the log."""
        return cls("The store of this server is not available. Try again later.", retry_after_s=5)


class Overloaded(Unavailable):
    """A limit of this server is reached."""

    grpc_status, reason = "RESOURCE_EXHAUSTED", "OVERLOADED"


class RateLimited(Overloaded):
    """The caller has asked for more than it may have now (RFC 6585 §4)."""

    http_status, reason = 429, "RATE_LIMITED"


# --- the caller (A2A 1.0 §3.3.2, §7.4, §7.5): codes of those that JSON-RPC leaves to servers ----------------------


class Unauthenticated(A2AError):
    """The request does not show who calls.

    `challenges` are the values of WWW-Authenticate (RFC 9110 §11.6.1).
    """

    name, rpc_code, http_status = "UnauthenticatedError", -32000, 401
    grpc_status, reason = "UNAUTHENTICATED", "UNAUTHENTICATED"

    def __init__(self, message: str, *, challenges: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.challenges = challenges


class PermissionDenied(A2AError):
    """The caller is known, and may not do this.

    `challenges` as those of Unauthenticated.
    """

    name, rpc_code, http_status = "PermissionDeniedError", -32010, 403
    grpc_status, reason = "PERMISSION_DENIED", "PERMISSION_DENIED"

    def __init__(self, message: str, *, challenges: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.challenges = challenges

    @classmethod
    def for_scopes(cls, what: str, lacking: Iterable[str]) -> PermissionDenied:
        """`what` needs scopes that the caller has not (RFC 6750 §3.1)."""
        words = " ".join(lacking)
        return cls(
            f"{what} needs the scope {words}, which you do not have.",
            challenges=(f'Bearer error="insufficient_scope", scope="{words}"',),
        )


# --- A2A 1.0 §3.3.2, codes of §5.4 ------------------------------------------------------------------------------------


class TaskNotFound(A2AError):
    """No task with this id is visible to the caller (A2A 1.0 §3.3.2)."""

    name, rpc_code, http_status, grpc_status = "TaskNotFoundError", -32001, 404, "NOT_FOUND"
    reason = "TASK_NOT_FOUND"

    def __init__(self, task_id: str) -> None:
        super().__init__(
            f"Task {task_id!r} was not found: there is none, or it is not yours.", metadata={"taskId": task_id}
        )


class TaskNotCancelable(A2AError):
    """The task has ended and cannot be cancelled (A2A 1.0 §3.1.5)."""

    name, rpc_code, http_status = "TaskNotCancelableError", -32002, 400
    grpc_status, reason = "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"

    def __init__(self, task_id: str, state: str) -> None:
        super().__init__(
            f"Task {task_id!r} is {state} and cannot be cancelled.", metadata={"taskId": task_id, "state": state}
        )


class PushNotificationNotSupported(A2AError):
    """This agent sends no push notifications (A2A 1.0 §3.3.4)."""

    name, rpc_code, http_status = "PushNotificationNotSupportedError", -32003, 400
    grpc_status, reason = "FAILED_PRECONDITION", "PUSH_NOTIFICATION_NOT_SUPPORTED"


class UnsupportedOperation(A2AError):
    """This agent does not support the operation (A2A 1.0 §3.3.2)."""

    name, rpc_code, http_status = "UnsupportedOperationError", -32004, 400
    grpc_status, reason = "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"


class TaskEnded(UnsupportedOperation):
    """The task has ended: it takes no message and tells no more (A2A 1.0 §3.1.1, §3.1.6)."""

    def __init__(self, task_id: str, state: str, instead: str) -> None:
        super().__init__(
            f"Task {task_id!r} has ended ({state}): {instead}.", metadata={"taskId": task_id, "state": state}
        )


class ContentTypeNotSupported(A2AError):
    """A media type of the message is not accepted by this agent (A2A 1.0 §3.1.1)."""

    name, rpc_code, http_status = "ContentTypeNotSupportedError", -32005, 400
    grpc_status, reason = "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED"


class MediaTypeNotSupported(ContentTypeNotSupported):
    """The request's own Content-Type header is not JSON: refused before its body is read (RFC 9110 §15.5.16)."""

    http_status = 415


class InvalidAgentResponse(A2AError):
    """The agent gave something that is not a valid answer (A2A 1.0 §3.3.2)."""

    name, rpc_code, http_status = "InvalidAgentResponseError", -32006, 500
    grpc_status, reason = "INTERNAL", "INVALID_AGENT_RESPONSE"


class ExtendedAgentCardNotConfigured(A2AError):
    """This agent has no extended card (A2A 1.0 §3.1.11)."""

    name, rpc_code, http_status = "ExtendedAgentCardNotConfiguredError", -32007, 400
    grpc_status, reason = "FAILED_PRECONDITION", "EXTENDED_AGENT_CARD_NOT_CONFIGURED"


class ExtensionSupportRequired(A2AError):
    """The agent requires an extension that the request does not name (A2A 1.0 §3.3.4)."""

    name, rpc_code, http_status = "ExtensionSupportRequiredError", -32008, 400
    grpc_status, reason = "FAILED_PRECONDITION", "EXTENSION_SUPPORT_REQUIRED"

    def __init__(self, uris: Iterable[str] = ()) -> None:
        named = ", ".join(sorted(uris))
        super().__init__(
            f"This agent requires the extension {named}: name it in the A2A-Extensions header.",
            metadata={"extensions": named},
        )


class VersionNotSupported(A2AError):
    """The protocol version of the request is not served here (A2A 1.0 §3.6.2)."""

    name, rpc_code, http_status = "VersionNotSupportedError", -32009, 400
    grpc_status, reason = "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED"

    def __init__(self, asked: str = "", supported: Iterable[str] = ()) -> None:
        served = ", ".join(supported)
        super().__init__(
            f"A2A version {asked!r} is not served here; send A2A-Version: {served}.",
            metadata={"requestedVersion": asked, "supportedVersions": served},
        )

    @classmethod
    def unsaid(cls, what: str, supported: Iterable[str]) -> VersionNotSupported:
        """For a request that names no version, and so speaks 0.3, but asks for what 0.3 has not."""
        error = cls("0.3", supported)
        error.args = (
            f"A request without A2A-Version is one of 0.3, which has no {what}:"
            f" send A2A-Version: {', '.join(supported)}.",
        )
        return error


# --- raised by the client ---------------------------------------------------------------------------------------------


class PeerError(A2AError):
    """A call to a remote agent did not succeed for a reason outside the protocol."""

    name, reason = "PeerError", "PEER_ERROR"


class CardNotFound(PeerError):
    """No agent card was found."""

    reason = "CARD_NOT_FOUND"


class InvalidCard(PeerError):
    """The agent card is malformed or offers no interface that this client speaks."""

    reason = "INVALID_CARD"


class CardNotVerified(PeerError):
    """A signed card was required, and this one is not signed, or not by anybody known."""

    reason = "CARD_NOT_VERIFIED"


class Unreachable(PeerError):
    """The agent could not be reached."""

    reason = "UNREACHABLE"


class PeerTimeout(PeerError):
    """The agent did not answer in time."""

    reason = "TIMEOUT"


class InvalidPeerResponse(PeerError):
    """The agent's answer does not follow the protocol."""

    reason = "INVALID_PEER_RESPONSE"


class AuthenticationRequired(PeerError):
    """The agent refused the credentials, or wants some. `status` is 401 or 403; `challenge` its WWW-Authenticate."""

    reason = "UNAUTHENTICATED"

    def __init__(self, message: str, *, status: int = 401, challenge: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.challenge = challenge


class CredentialsUnfit(PeerError):
    """The credentials are not those that the agent's card asks for; nothing was sent."""

    reason = "CREDENTIALS_UNFIT"


class OriginNotTrusted(PeerError):
    """Credentials would have left the origin that they are for; nothing was sent.

    `origin` is where they would go, `fault` the message without what a program can do about it.
    """

    reason = "ORIGIN_NOT_TRUSTED"

    def __init__(self, fault: str, remedy: str = "", *, origin: str) -> None:
        super().__init__(f"{fault} {remedy}".rstrip(), metadata={"origin": origin})
        self.fault = fault
        self.origin = origin


class AuthorizationFailed(PeerError):
    """No token could be had. `code` is the authorization server's own (RFC 6749 §5.2), such as "invalid_grant"."""

    reason = "AUTHORIZATION_FAILED"

    def __init__(self, message: str, *, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class TaskInDoubt(PeerError):
    """The connection broke and what became of the task could not be read. `task_id` is None if none was told yet."""

    reason = "TASK_IN_DOUBT"

    def __init__(self, message: str, *, task_id: str | None, context_id: str | None = None) -> None:
        super().__init__(message, metadata={"taskId": task_id} if task_id else {})
        self.task_id = task_id
        self.context_id = context_id


class TaskFailed(PeerError):
    """A task that an answer was awaited of ended FAILED, REJECTED or CANCELED; `task` is how it ended."""

    reason = "TASK_FAILED"

    def __init__(self, message: str, *, task: Task) -> None:
        super().__init__(message, metadata={"taskId": task.id})
        self.task = task


# --- raised by an agent -----------------------------------------------------------------------------------------------


class Rejected(Exception):
    """Raise in an agent to refuse the task: it ends REJECTED and the caller reads the words."""


class Failed(Exception):
    """Raise in an agent to give up: the task ends FAILED and the caller reads the words."""


_WIRE_ERRORS: tuple[type[A2AError], ...] = (
    ParseError,
    InvalidRequest,
    MethodNotFound,
    InvalidParams,
    InternalError,
    Unauthenticated,
    PermissionDenied,
    TaskNotFound,
    TaskNotCancelable,
    PushNotificationNotSupported,
    UnsupportedOperation,
    ContentTypeNotSupported,
    InvalidAgentResponse,
    ExtendedAgentCardNotConfigured,
    ExtensionSupportRequired,
    VersionNotSupported,
)
# The codes of these two are ours: other servers have other errors under them, and only the reason tells.
_BY_CODE: dict[int, type[A2AError]] = {
    cls.rpc_code: cls for cls in _WIRE_ERRORS if cls not in (Unauthenticated, PermissionDenied)
}
_BY_REASON: dict[str, type[A2AError]] = {cls.reason: cls for cls in _WIRE_ERRORS}
_BY_REASON |= {cls.reason: cls for cls in (BodyTooLarge, MisdirectedRequest, OriginNotAllowed)}
_BY_REASON |= {cls.reason: cls for cls in (Unavailable, Overloaded, RateLimited)}


def error_for(
    *,
    rpc_code: int | None = None,
    reason: str | None = None,
    message: str = "",
    metadata: Mapping[str, str] | None = None,
    violations: Iterable[FieldViolation] = (),
) -> A2AError:
    """The error that a peer reported, as its class: found by `reason` first, else by JSON-RPC code, else A2AError.

    The peer's own sentence is kept as the message.
    """
    cls: type[A2AError] = _BY_REASON.get(reason or "") or _BY_CODE.get(rpc_code or 0) or A2AError
    error: A2AError = cls.__new__(cls)
    A2AError.__init__(error, message, metadata=metadata, violations=violations)
    if isinstance(error, Unauthenticated | PermissionDenied):
        error.challenges = ()
    if isinstance(error, Unavailable):
        seconds = error.metadata.get("retryAfterSeconds", "")
        error.retry_after_s = int(seconds) if seconds.isascii() and seconds.isdigit() and len(seconds) < 7 else 1
    return error
