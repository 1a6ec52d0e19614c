"""HTTP+JSON (A2A 1.0 §11): paths and queries to requests and back, errors as google.rpc.Status. Pure."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlencode

import msgspec

from tieline.errors import A2AError, InvalidParams, InvalidRequest, MethodNotFound, ParseError
from tieline.types import Value, encode, violation
from tieline.wire.body import check_depth
from tieline.wire.details import details_of, error_from_details
from tieline.wire.dialect import Dialect
from tieline.wire.methods import METHODS, Method
from tieline.wire.mistakes import likely_mistake

__all__ = [
    "MEDIA_TYPE",
    "VerbNotAllowed",
    "encode_error",
    "encode_request",
    "is_error",
    "read_error",
    "read_request",
    "route",
]

MEDIA_TYPE: Final = "application/a2a+json"


class VerbNotAllowed(MethodNotFound):
    """The path is there, the HTTP method is not; `allowed` are those that are."""

    http_status = 405

    def __init__(self, verb: str, path: str, allowed: tuple[str, ...], more: str = "") -> None:
        super().__init__(f"{verb} is not allowed on {path}: use {' or '.join(allowed)}.{more and ' ' + more + '.'}")
        self.allowed = allowed


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/:]+)", re.escape(path)) + "$")


_ROUTES: Final = [(_pattern(method.path), method) for method in METHODS.values()]
_FIXED: Final = {
    (verb, method.path): method for method in METHODS.values() if "{" not in method.path for verb in method.verbs
}
_NO_FIELDS: Final[dict[str, str]] = {}
_NO_TENANTS: Final = ("", "v1")  # below the second stand the operations of 0.3


def route(verb: str, path: str, *, tenants: bool = True) -> tuple[Method, dict[str, str]]:
    """The operation at a path (as it was sent) below the agent's URL, and the fields that stand in the path.

    With `tenants`, the first segment of a path that is none may name a tenant: `/{tenant}/message:send`.

    Raises:
        MethodNotFound: no operation has this path.
        VerbNotAllowed: one has, with another HTTP method.
    """
    fixed = _FIXED.get((verb, path))
    if fixed is not None:
        return fixed, _NO_FIELDS
    allowed: list[str] = []
    for pattern, method in _ROUTES:
        match = pattern.match(path)
        if match is None:
            continue
        if verb in method.verbs:
            return method, {name: unquote(value) for name, value in match.groupdict().items()}
        allowed += method.verbs
    if allowed:
        raise VerbNotAllowed(verb, path, tuple(allowed))
    tenant, slash, below = path[1:].partition("/")
    if not (tenants and slash) or tenant in _NO_TENANTS:
        raise MethodNotFound(f"There is no operation at {path}.")
    try:
        method, fields = route(verb, "/" + below, tenants=False)
    except VerbNotAllowed as error:
        raise VerbNotAllowed(verb, path, error.allowed) from None
    except MethodNotFound:
        raise MethodNotFound(f"There is no operation at {path}.") from None
    return method, {**fields, "tenant": unquote(tenant)}


def read_request(dialect: Dialect, method: Method, fields: dict[str, str], query: str, body: bytes) -> Any:
    """The request of an operation from path, query and body.

    Raises:
        ParseError, InvalidRequest: the body is not a JSON object, or nests too deep.
        InvalidParams: with the path of the bad field.
    """
    if method.body and (body or not fields):
        check_depth(body)
        try:
            if fields:
                return _read_merged(dialect, method, fields, body)
            return dialect.read_params(method, body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise ParseError(f"The body is not valid JSON: {error}") from None
    values: dict[str, Any] = dict(parse_qsl(query, keep_blank_values=True))
    values = {_camel(name): value for name, value in values.items() if value != ""}
    values.update(fields)
    try:
        return msgspec.convert(values, method.request, strict=False)
    except msgspec.ValidationError as error:
        if dialect.has_final:  # an older one has other words
            return dialect.read_params(method, encode(values))
        raise likely_mistake(encode(values), violation(error), dialect.version) from None


def _camel(name: str) -> str:
    """A name of the query as the request has it: protobuf's own names are read, too."""
    first, *more = name.split("_")
    return first + "".join(word.capitalize() for word in more) if first else name


def _read_merged(dialect: Dialect, method: Method, fields: dict[str, str], body: bytes) -> Any:
    """A body whose request has fields in the path: those win."""
    value = msgspec.json.decode(body)
    if not isinstance(value, dict):
        raise InvalidRequest("The body must be a JSON object.")
    value.update(fields)
    return dialect.read_params(method, encode(value))


def encode_error(error: A2AError) -> bytes:
    """google.rpc.Status as JSON (§11.6)."""
    status = {"code": error.http_status, "status": error.grpc_status, "message": error.message}
    return encode({"error": {**status, "details": details_of(error)}})


class _Status(msgspec.Struct, frozen=True, gc=False):
    message: str = ""
    details: Any = None


class _HasError(msgspec.Struct, frozen=True, gc=False):
    error: dict[str, msgspec.Raw] | None = None


_read_has_error = msgspec.json.Decoder(_HasError).decode


def is_error(body: bytes) -> bool:
    """Whether a body is an error as 1.0 has it, rather than that of a gateway, or no error."""
    try:
        return _read_has_error(body).error is not None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False


class _StatusBody(msgspec.Struct, frozen=True, gc=False):
    error: _Status


_read_status = msgspec.json.Decoder(_StatusBody).decode
_CODE_OF_STATUS: Final = {400: -32602, 404: -32601, 405: -32601}


def read_error(status: int, body: bytes) -> A2AError:
    """The error in a response, as its class; by the HTTP status alone where the body says nothing."""
    try:
        error = _read_status(body).error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return error_from_details(
            None, rpc_code=_CODE_OF_STATUS.get(status), message=f"The agent answered HTTP {status}."
        )
    return error_from_details(error.details, rpc_code=_CODE_OF_STATUS.get(status), message=error.message)


def encode_request(method: Method, request: Value) -> tuple[str, str, bytes | None]:
    """A request as HTTP method, path with query, and body."""
    fields = msgspec.json.decode(encode(request))
    names = re.findall(r"\{(\w+)\}", method.path)
    path = method.path
    for name in names:
        value = fields.pop(name, "")
        if not value:
            raise InvalidParams.at(name, "must not be empty")
        path = path.replace("{" + name + "}", quote(str(value), safe=""))
    if method.body:
        return method.verbs[0], path, encode(fields if names else request)
    query = urlencode({name: _query_value(value) for name, value in fields.items()})
    return method.verbs[0], f"{path}?{query}" if query else path, None


def _query_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
