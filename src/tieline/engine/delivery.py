"""One webhook on its way through its task's log: each event is delivered before the next one is looked at.

The events come from the run while it is at work here, or from what follows it, and from the store else. When all that
there is has been delivered and nobody is at work on the task, the delivery is over; the webhook stays, and whoever
goes on with the task takes it up again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tieline.engine.fold import Fold
from tieline.engine.log import TaskLog
from tieline.engine.notification import idempotency_key, notification_headers
from tieline.engine.observer import PushOutcome
from tieline.errors import InternalError
from tieline.event import Event, TextChunk
from tieline.stores.base import Record, StoreError, Webhook
from tieline.types import Task, TaskPushNotificationConfig, load

if TYPE_CHECKING:
    from tieline.engine.push import Push
    from tieline.engine.webhooks import Webhooks

__all__ = ["Delivery"]

log = logging.getLogger("tieline.push")

_STORE_AWAY_S: Final = 5.0
_GONE: Final = 410


class Delivery:
    """The delivery of one webhook."""

    def __init__(self, webhooks: Webhooks, push: Push, webhook: Webhook, run: TaskLog | None = None) -> None:
        self.webhook = webhook
        self.waiting = False  # for news of the task, or until it tries once more
        self._webhooks = webhooks
        self._service = webhooks.service
        self._push = push
        self._config = load(webhook.config, TaskPushNotificationConfig)
        self._payload = webhooks.payloads(webhook.version)
        self._after = webhook.after
        self._log = run
        self._fold: Fold | None = None  # the task behind `_after`, where the payload wants it
        self._noting: asyncio.Future[Any] | None = None
        self._noted = webhook.after  # how far the store knows, or is being told, that it has come
        self._over = False
        self.task = asyncio.ensure_future(self._run())

    @property
    def key(self) -> tuple[str, str]:
        return self.webhook.scope, self.webhook.task_id

    def stop(self) -> None:
        """Deliver no more."""
        self._over = True
        self.task.cancel()

    async def _run(self) -> None:
        try:
            while not self._over:
                try:
                    events = await self._behind()
                    if events is None:
                        await self._note()
                        if self._has_more():  # no await from here to the end: what comes later is taken up anew
                            continue
                        break
                    for number, event in events:
                        if not await self._deliver(number, event):
                            return
                except (StoreError, InternalError) as error:
                    log.error("webhook %s of task %s waits for the store: %s", self.webhook.id, self.key[1], error)
                    await self._pause(_STORE_AWAY_S)
        except Exception:  # a delivery is not to take others with it
            log.exception("webhook %s of task %s: the delivery has failed", self.webhook.id, self.key[1])
        finally:
            self._note_soon()
            self._webhooks.ended(self)

    # --- what there is to tell ----------------------------------------------------------------------------------------

    async def _behind(self) -> Sequence[tuple[int, Event]] | None:
        """The events behind what was delivered; waits for some while the task is at work. None: that is all for now.

        Raises StoreError, InternalError.
        """
        service = self._service
        while True:
            current = self._log or service.runs.get(self.key)
            if current is not None:
                self._log = current
                if current.base <= self._after < current.published:
                    first = self._after + 1
                    return list(enumerate(current.events[self._after - current.base :], first))
                if current.published <= self._after and not _is_through(current):
                    await self._changed(current)
                    continue
                self._log = None
                if current.reply is not None and not current.published:
                    await self._webhooks.forget(self.webhook)  # there is no task
                    return None
                if self._after == current.published and current.closed and current.broken is None:
                    return None
            found = await service.store.events(*self.key, self._after)
            if found and found[0][0] == self._after + 1:
                return found
            record = await service.store.get(*self.key)
            if record is None:
                return None
            if record.version > self._after:
                if service.runs.get(self.key) is None:
                    log.warning("task %s: what was said is not kept any more, its webhook gets the task", self.key[1])
                task = await service.stored(record)
                self._fold = Fold(task)
                return [(record.version, Event(task))]
            if service.runs.get(self.key) is not None:
                continue
            following = await self._followed(record)
            if following is None:
                return None
            self._log = following

    async def _followed(self, record: Record) -> TaskLog | None:
        """What follows a task that another replica is at work on; None when nobody is."""
        if record.state.terminal or record.state.interrupted or not await self._service.is_elsewhere(record):
            return None
        return await self._service.following(record)

    async def _changed(self, current: TaskLog) -> None:
        self.waiting = True
        try:
            await current.changed()
        finally:
            self.waiting = False

    # --- telling ------------------------------------------------------------------------------------------------------

    async def _deliver(self, number: int, event: Event) -> bool:
        """Deliver an event, however often it has to be tried. False: the webhook was given up, or is dropped."""
        if self._payload.wants_task:
            await self._fold_in(number, event)
        body = self._payload.body(event, self._folded)
        if body is None:
            self._after = number
            return True
        push = self._push
        loop = asyncio.get_running_loop()
        key = idempotency_key(self.webhook.task_id, self.webhook.id, number)
        failed = 0
        since = loop.time()
        while not self._over:
            began = loop.time()
            sent = await push.sender.post(self._config.url, self._headers(key, body), body)
            took_s = loop.time() - began
            if sent.delivered:
                self._told("delivered", took_s)
                self._after = number
                self._note_soon()
                return True
            failed += 1
            self._log = None  # what it holds is in the store, too, and this may take long
            pause_s = push.pause_s(failed, sent.retry_after_s)
            if sent.status == _GONE or loop.time() + pause_s - since > push.give_up_s:
                self._told("given_up", took_s)
                await self._give_up(failed, sent.detail)
                return False
            self._told("retried", took_s)
            log.info("webhook %s of task %s: %s Trying again.", self.webhook.id, self.key[1], sent.detail)
            await self._pause(pause_s)
        return False

    def _told(self, outcome: PushOutcome, seconds: float) -> None:
        if self._service.observer is not None:
            self._service.observer.pushed(outcome, seconds)

    def _headers(self, key: str, body: bytes) -> dict[str, str]:
        signer = self._push.signer
        signature = None
        if signer is not None:
            signature = signer.sign(body, url=self._config.url, task_id=self.webhook.task_id, key=key)
        return notification_headers(
            self._config,
            key,
            media_type=self._payload.media_type,
            token_is_bearer=self._payload.token_is_bearer,
            signature=signature,
        )

    async def _pause(self, seconds: float) -> None:
        self.waiting = True
        try:
            await asyncio.sleep(seconds)
        finally:
            self.waiting = False

    async def _give_up(self, failed: int, reason: str) -> None:
        log.warning(
            "webhook %s of task %s is given up behind %d failures: %s", self.webhook.id, self.key[1], failed, reason
        )
        at = self._service.clock.tick()[0]
        while True:
            try:
                await self._service.store.give_up_webhook(self.webhook, self._after, failed, at, reason)
                return
            except StoreError as error:
                log.error("webhook %s of task %s waits for the store: %s", self.webhook.id, self.key[1], error)
                await self._pause(_STORE_AWAY_S)

    # --- how far it has come ------------------------------------------------------------------------------------------

    def _note_soon(self) -> None:
        """Have the store know how far it has come; while that is on its way, more may come together."""
        if self._noted >= self._after or (self._noting is not None and not self._noting.done()):
            return
        self._noted = self._after
        self._noting = self._service.store.delivered(self.webhook, self._after)
        if self._noting is not None:
            self._noting.add_done_callback(self._after_noting)

    def _after_noting(self, noting: asyncio.Future[Any]) -> None:
        if not noting.cancelled() and noting.exception() is None:
            self._note_soon()

    async def _note(self) -> None:
        """Have the store know how far it has come. Raises StoreError."""
        self._note_soon()
        while self._noting is not None and not self._noting.done():
            await asyncio.shield(self._noting)

    def _has_more(self) -> bool:
        run = self._service.runs.get(self.key)
        return run is not None and run.broken is None and run.published > self._after

    # --- the task behind an event -------------------------------------------------------------------------------------

    async def _fold_in(self, number: int, event: Event) -> None:
        value = event.value
        if isinstance(value, Task):
            self._fold = Fold(value)
            return
        if self._fold is None:
            self._fold = await self._fold_before(number)
        if isinstance(event, TextChunk):
            self._fold.add_text(event)
        else:
            self._fold.add(value)

    async def _fold_before(self, number: int) -> Fold:
        """The task before an event: folded from its log, else as it is now."""
        events = await self._service.store.events(*self.key, 0)
        if events and events[0][0] == 1 and isinstance(events[0][1].value, Task):
            fold = Fold(events[0][1].value)
            for each, event in events[1:]:
                if each >= number:
                    return fold
                fold.add(event.value)
            return fold
        record = await self._service.store.get(*self.key)
        if record is None:
            raise StoreError("the task is gone")
        return Fold(await self._service.stored(record))

    def _folded(self) -> Task:
        assert self._fold is not None
        return self._fold.task()


def _is_through(current: TaskLog) -> bool:
    """Whether nothing will follow what is published here for now."""
    return current.closed or (current.resting and current.idle and not current.has_mail)
