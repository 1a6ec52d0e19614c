"""Dead letters: webhooks that were given up, as an operator sees them. Pure."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from tieline.stores.base import Webhook
from tieline.types import TaskPushNotificationConfig, load

__all__ = ["DeadLetter", "dead_letter"]


class DeadLetter(msgspec.Struct, frozen=True):
    """A webhook that was given up; it holds no credentials.

    `id`: of its configuration. `url`: without its query. `after`: number of the last event that was delivered, or that
    was there before it; what is behind it was not. `failures`: in a row. `reason`: of the last one, a sentence. `at`:
    when it was given up, in microseconds since 1970.
    """

    task_id: str
    id: str
    url: str
    after: int
    failures: int
    reason: str
    at: int


def dead_letter(webhook: Webhook) -> DeadLetter:
    """What may be shown of a webhook that was given up."""
    return DeadLetter(
        webhook.task_id, webhook.id, _shown(webhook), webhook.after, webhook.failed, webhook.reason, webhook.dead or 0
    )


def _shown(webhook: Webhook) -> str:
    """The URL without what may be secret in it."""
    try:
        url = urlsplit(load(webhook.config, TaskPushNotificationConfig).url)
    except (msgspec.MsgspecError, ValueError):
        return ""
    return f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"
