"""The headers of a webhook's POST: what proves to the receiver who sends, and which notification it is. Pure."""

from __future__ import annotations

import base64
import re
from functools import lru_cache
from typing import Final
from urllib.parse import quote

from tieline.types import AuthenticationInfo, TaskPushNotificationConfig

__all__ = [
    "HEADER_VALUE",
    "NOTIFICATION_TOKEN",
    "SIGNATURE",
    "authorization",
    "check_config",
    "idempotency_key",
    "notification_headers",
]

NOTIFICATION_TOKEN: Final = ("X-A2A-Notification-Token", "A2A-Notification-Token")
"""The headers with a configuration's token: as the official SDKs for Python and JavaScript, and for Go, name it."""

SIGNATURE: Final = "X-A2A-Signature"
"""The header with a signature where the configuration's own credentials are in Authorization."""

_CREDENTIALS_CHARACTERS: Final = 4096
_SCHEME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}\Z")
HEADER_VALUE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?\Z")
"""What a header of a notification may hold: visible ASCII, and spaces between."""

_SPELT: Final = {"bearer": "Bearer", "basic": "Basic", "digest": "Digest"}


def check_config(config: TaskPushNotificationConfig) -> None:
    """See that a configuration's credentials can stand in headers. Its URL is for a Guard to check.

    Raises ValueError with a sentence that begins with the name of the field; it repeats no credential.
    """
    _check("token", config.token)
    given = config.authentication
    if given is not None and (given.scheme or given.credentials):  # an empty list of schemes (0.3) asks for nothing
        if not _SCHEME.match(given.scheme):
            raise ValueError("authentication.scheme has to be the name of an HTTP authentication scheme, as Bearer is")
        _check("authentication.credentials", given.credentials)


def _check(field: str, value: str | None) -> None:
    if not value:
        return
    if len(value) > _CREDENTIALS_CHARACTERS:
        raise ValueError(f"{field} has to be at most {_CREDENTIALS_CHARACTERS} characters long")
    if not HEADER_VALUE.match(value):
        raise ValueError(f"{field} has to be of visible ASCII characters, without spaces at its ends and line breaks")


def authorization(authentication: AuthenticationInfo | None) -> str | None:
    """The Authorization header that a configuration asks for (A2A 1.0 §4.3.3); None where it gives no credentials.

    Credentials of Basic that hold a colon are `user:password` as they are, and are encoded.
    """
    if authentication is None or not authentication.credentials:
        return None
    scheme, credentials = authentication.scheme.lower(), authentication.credentials
    if scheme == "basic" and ":" in credentials:
        credentials = base64.b64encode(credentials.encode()).decode("ascii")
    return f"{_SPELT.get(scheme, authentication.scheme)} {credentials}"


def idempotency_key(task_id: str, config_id: str, number: int) -> str:
    """What a receiver knows a notification again by: the task, the configuration and the event's number in the task.

    It is a string of a structured header, quotes included; ids are percent-encoded, as callers may choose any.
    """
    return f'"{_quoted(task_id)}/{_quoted(config_id)}/{number}"'


@lru_cache(maxsize=4096)
def _quoted(id_: str) -> str:
    return quote(id_, safe="")


def notification_headers(
    config: TaskPushNotificationConfig,
    key: str,
    *,
    media_type: str = "application/a2a+json",
    token_is_bearer: bool = False,
    signature: str | None = None,
) -> dict[str, str]:
    """The headers of one POST to a webhook.

    `key`: see idempotency_key. `media_type`: application/a2a+json in 1.0 (§4.3.3), application/json in older dialects.
    `token_is_bearer`: a token without other credentials is sent as those of Bearer, which receivers of 0.1 expect.
    `signature`: a signed JWT (signer.py); it is sent as Bearer, unless the configuration has credentials of its own,
    then as X-A2A-Signature. The configuration has to be one that `check_config` has taken.
    """
    headers = {"Content-Type": media_type, "Idempotency-Key": key}
    own = authorization(config.authentication)
    token = config.token
    if own is None and token and token_is_bearer:
        own = f"Bearer {token}"
    if own is None and signature:
        own, signature = f"Bearer {signature}", None
    if own is not None:
        headers["Authorization"] = own
    if token:
        for name in NOTIFICATION_TOKEN:
            headers[name] = token
    if signature:
        headers[SIGNATURE] = signature
    return headers
