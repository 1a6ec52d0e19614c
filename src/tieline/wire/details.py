"""google.rpc error details: what JSON-RPC carries in `error.data` and REST in `error.details` (A2A 1.0 §9.5, §11.6)."""

from __future__ import annotations

from typing import Any

from tieline.errors import ERROR_DOMAIN, A2AError, FieldViolation, error_for

__all__ = ["details_of", "error_from_details"]

_ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
_BAD_REQUEST = "type.googleapis.com/google.rpc.BadRequest"


def details_of(error: A2AError) -> list[dict[str, Any]]:
    """ErrorInfo for every error (readers of REST know an error by its reason), BadRequest for field violations."""
    info: dict[str, Any] = {"@type": _ERROR_INFO, "reason": error.reason, "domain": ERROR_DOMAIN}
    if error.metadata:
        info["metadata"] = error.metadata
    details = [info]
    if error.violations:
        violations = [{"field": v.field, "description": v.description} for v in error.violations]
        details.append({"@type": _BAD_REQUEST, "fieldViolations": violations})
    return details


def error_from_details(details: Any, *, rpc_code: int | None, message: str) -> A2AError:
    """The error that a peer describes, as its class; details of unknown types are passed over."""
    reason: str | None = None
    metadata: dict[str, str] = {}
    violations: list[FieldViolation] = []
    if isinstance(details, dict):
        details = details.get("details")  # as 0.1 has it, where data is an object
    for detail in details if isinstance(details, list) else ():
        if not isinstance(detail, dict):
            continue
        if detail.get("@type") == _ERROR_INFO and detail.get("domain", ERROR_DOMAIN) == ERROR_DOMAIN:
            reason = str(detail.get("reason", ""))
            given = detail.get("metadata")
            metadata = {str(k): str(v) for k, v in given.items()} if isinstance(given, dict) else {}
        elif detail.get("@type") == _BAD_REQUEST:
            given = detail.get("fieldViolations")
            for violation in given if isinstance(given, list) else ():
                if isinstance(violation, dict):
                    field, description = violation.get("field", ""), violation.get("description", "")
                    violations.append(FieldViolation(str(field), str(description)))
    return error_for(rpc_code=rpc_code, reason=reason, message=message, metadata=metadata, violations=violations)
