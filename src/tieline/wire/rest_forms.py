"""The forms of HTTP+JSON: where each version has its paths, and how it writes bodies and errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from tieline.errors import A2AError, VersionNotSupported
from tieline.wire import dialects, rest, v03_rest, v03_rest_errors
from tieline.wire.dialect import Dialect
from tieline.wire.methods import METHODS
from tieline.wire.v1 import V1

__all__ = ["OLD_PREFIX", "RestForm", "V03_FORM", "V1_FORM", "form_of", "spoken"]

OLD_PREFIX: Final = "/v1/"
"""Before A2A 1.0 the operations stood below this."""


class RestForm(msgspec.Struct, frozen=True):
    """How one version is spoken over REST."""

    version: str
    prefix: str  # before the paths of the operations
    dialect: Callable[[bytes, bytes], Dialect]  # of a request with this body and User-Agent
    encode_error: Callable[[A2AError], tuple[int, bytes]]  # HTTP status and body
    is_error: Callable[[bytes], bool]  # whether a body is an error of A2A
    read_error: Callable[[int, bytes], A2AError]  # by HTTP status, 0 is unknown, and body
    media_type: str
    verbs: Mapping[str, str]  # HTTP methods of operations, where a client has to use another than 1.0's
    paths: Mapping[str, str]  # behind the prefix, of operations that have another path than in 1.0

    @property
    def content_type(self) -> tuple[bytes, bytes]:
        """As a header of ASGI's."""
        return (b"content-type", self.media_type.encode())


V1_FORM: Final = RestForm(
    "1.0",
    "",
    lambda body, user_agent: V1,
    lambda error: (error.http_status, rest.encode_error(error)),
    rest.is_error,
    rest.read_error,
    rest.MEDIA_TYPE,
    {},
    {},
)
V03_FORM: Final = RestForm(
    "0.3",
    "/v1",
    v03_rest.spoken,
    v03_rest_errors.encode_error,
    v03_rest_errors.is_error,
    v03_rest_errors.read_error,
    v03_rest.MEDIA_TYPE,
    {"SubscribeToTask": "GET"},  # some servers take no other
    {"GetExtendedAgentCard": "/card"},
)

_PATHS_OF_NOW: Final = {path: METHODS[name].path for name, path in V03_FORM.paths.items()}
_FORMS: Final = {form.version: form for form in (V1_FORM, V03_FORM)}


def form_of(version: str) -> RestForm | None:
    """The form of a dialect's version; None when it has none."""
    return _FORMS.get(version)


def spoken(
    version: str, path: str, *, served: Sequence[Dialect] = dialects.DIALECTS, strict: bool = False
) -> tuple[RestForm, str]:
    """The form of a request and its path in 1.0: told by the version that it names, else by its path.

    Raises VersionNotSupported.
    """
    old = path.startswith(OLD_PREFIX)
    if not version and not old and strict:
        raise VersionNotSupported.unsaid(path, V1.versions)
    asked = version or ("0.3" if old else "1.0")
    dialect = dialects.dialect_of(asked)
    form = _FORMS.get(dialect.version) if dialect in served and dialect is not None else None
    if form is None:
        raise VersionNotSupported(asked, dialects.versions_of(each for each in served if each.version in _FORMS))
    if form is V1_FORM or not old:
        return form, path
    short = path[len(form.prefix) :]
    return form, _PATHS_OF_NOW.get(short, short)
