"""What the command reports when it could not do its job: a code, a sentence, a hint, an exit code.

Two layers, never mixed (CLI specification §11.4): what the protocol names carries the protocol's name
(`TaskNotFoundError`); what happens before or beside a request carries a code of the specification's Appendix D.
What that does not know, because only this tool does it, has a code that begins with TIELINE_ERR_ and exits 1.
"""

from __future__ import annotations

import ssl
from typing import Any, Final

from tieline import errors as a2a

__all__ = [
    "AUTH_FAILED",
    "CARD_INVALID",
    "CARD_NOT_FOUND",
    "CARD_NOT_VERIFIED",
    "CREDENTIALS_MISSING",
    "EXIT_CODES",
    "INTERNAL",
    "TIMEOUT",
    "UNREACHABLE",
    "USAGE",
    "CliError",
    "UsageFault",
    "from_exception",
]

USAGE: Final = "A2ACLI_ERR_USAGE"
CARD_NOT_FOUND: Final = "A2ACLI_ERR_CARD_NOT_FOUND"
CARD_INVALID: Final = "A2ACLI_ERR_CARD_INVALID"
UNREACHABLE: Final = "A2ACLI_ERR_UNREACHABLE"
CREDENTIALS_MISSING: Final = "A2ACLI_ERR_CREDENTIALS_MISSING"
AUTH_FAILED: Final = "A2ACLI_ERR_AUTH_FAILED"
TIMEOUT: Final = "A2ACLI_ERR_TIMEOUT"
INTERNAL: Final = "A2ACLI_ERR_INTERNAL"
CARD_NOT_VERIFIED: Final = "TIELINE_ERR_CARD_NOT_VERIFIED"  # ours: the CLI specification knows of no signed cards

EXIT_CODES: Final = {
    USAGE: 2,
    CARD_NOT_FOUND: 3,
    CARD_INVALID: 1,
    UNREACHABLE: 3,
    CREDENTIALS_MISSING: 4,
    AUTH_FAILED: 4,
    TIMEOUT: 5,
    INTERNAL: 1,
}
"""The codes of Appendix D and their exit status. A protocol error exits 1."""

_REPEATED_AT_MOST = 2000  # characters of a remote's sentence that are repeated


class CliError(Exception):
    """The command failed. `str(error)` is the sentence; `code` says precisely what, `exit_code` coarsely.

    `a2a_code` is the protocol's number for it (A2A 1.0 §5.4), the same over every transport; None for our own errors.
    """

    def __init__(self, code: str, message: str, *, hint: str | None = None, a2a_code: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint
        self.a2a_code = a2a_code

    @property
    def exit_code(self) -> int:
        return EXIT_CODES.get(self.code, 1)

    @property
    def envelope(self) -> dict[str, Any]:
        """The error object of Appendix B."""
        return {"error": {"code": self.code, "message": str(self), "hint": self.hint, "a2aCode": self.a2a_code}}


class UsageFault(CliError):
    """The command line, or a setting behind it, makes no sense."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(USAGE, message, hint=hint)


def from_exception(error: Exception) -> CliError:
    """What went wrong as a CliError, without a hint where none can be given from the error alone."""
    if isinstance(error, CliError):
        return error
    message = str(error)[:_REPEATED_AT_MOST] or type(error).__name__
    if isinstance(error, a2a.PeerError):
        return CliError(*_local(error, message))
    if isinstance(error, a2a.A2AError):
        return CliError(error.name, message, hint=_protocol_hint(error), a2a_code=error.rpc_code)
    if isinstance(error, ssl.SSLError):
        return CliError(UNREACHABLE, message)
    if isinstance(error, OSError):
        named = f"{error.filename}: " if error.filename is not None else ""
        return CliError(INTERNAL, f"{named}{error.strerror}." if error.strerror else message)
    return CliError(INTERNAL, f"{type(error).__name__}: {message}", hint="Run it again with --debug to see where.")


def _local(error: a2a.PeerError, message: str) -> tuple[str, str]:
    if isinstance(error, a2a.CardNotFound):
        return CARD_NOT_FOUND, message
    if isinstance(error, a2a.InvalidCard):
        return CARD_INVALID, message
    if isinstance(error, a2a.CardNotVerified):
        return CARD_NOT_VERIFIED, message
    if isinstance(error, a2a.OriginNotTrusted):
        return CARD_INVALID, error.fault
    if isinstance(error, a2a.CredentialsUnfit):
        return CREDENTIALS_MISSING, message
    if isinstance(error, a2a.AuthenticationRequired | a2a.AuthorizationFailed):
        return AUTH_FAILED, message
    # A connection that gives nothing is one that was not reached: A2ACLI_ERR_TIMEOUT is for --timeout alone.
    if isinstance(error, a2a.Unreachable | a2a.PeerTimeout | a2a.TaskInDoubt):
        return UNREACHABLE, message
    return INTERNAL, message


def _protocol_hint(error: a2a.A2AError) -> str | None:
    if isinstance(error, a2a.VersionNotSupported) and (served := error.metadata.get("supportedVersions")):
        return f"The agent serves {served}: choose it with --a2a-version."
    if isinstance(error, a2a.ExtensionSupportRequired) and (uris := error.metadata.get("extensions")):
        return f"Name the extension: --svc-param 'A2A-Extensions:{uris}'."
    if isinstance(error, a2a.Unavailable):
        return f"The agent cannot do it now: try again in {error.retry_after_s} s."
    if isinstance(error, a2a.ContentTypeNotSupported):
        return "See what the agent takes with `tieline card get`, and name a part's type with --media-type."
    return None
