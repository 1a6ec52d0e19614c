"""One webhook on its way through its task's log: each event is delivered before the next one is looked at.

The events come from the run while it is at work here, or from what follows it, and from the store else. When all that
there is has been delivered and nobody is at work on the task, the delivery is over; the webhook stays, and whoever
goes on with the task takes it up again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from tieline.engine.fold import Fold
from tieline.engine.log import TaskLog
from tieline.engine.notification import idempotency_key, notification_headers
from tieline.engine.observer import PushOutcome
from tieline.engine.remote import Remote
from tieline.errors import InternalError
from tieline.event import Event, TextChunk
from tieline.stores.base import Record, StoreError, Webhook
from tieline.stores.reach import Reach
from tieline.types import Task, TaskPushNotificationConfig, TaskStatusUpdateEvent, load

if TYPE_CHECKING:
    from tieline.engine.push import Push
    from tieline.engine.webhooks import Webhooks

__all__ = ["Delivery"]

log = logging.getLogger("tieline.push")

_STORE_AWAY_S: Final = 5.0
_AHEAD: Final = 32  # events, about, that are read at once
_GONE: Final = 410
_FAULT: Final = "The notification could not be made. The server's operator finds the reason in the log."


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
        self._failing = webhook.failing  # since when what is behind `_after` fails, by the service's clock
        self._ahead: deque[tuple[int, Event]] = deque()  # those behind `_after` that have been read already
        self._log: TaskLog | None = None
        self._fold: Fold | None = None  # the task behind `_after`, where the payload wants it
        self._noting: asyncio.Future[Any] | None = None
        self._told = self._reach  # how far the store has been told that it has come
        self._noted = self._reach  # how far the store has said that it knows
        self._over = False
        self._ended = False
        self._follow(run)
        self.task = asyncio.ensure_future(self._run())
        self.task.add_done_callback(lambda _: self._end())  # one that is stopped before its first step runs nothing

    @property
    def key(self) -> tuple[str, str]:
        return self.webhook.scope, self.webhook.task_id

    @property
    def over(self) -> bool:
        """Whether it has been told to deliver no more."""
        return self._over

    @property
    def _reach(self) -> Reach:
        return self._after, self._failing

    def finish(self) -> None:
        """Deliver no more behind what is under way."""
        self._over = True

    def stop(self) -> None:
        """Deliver no more."""
        self._over = True
        self.task.cancel()

    async def _run(self) -> None:
        try:
            while not self._over:
                try:
                    if not await self._go_on():
                        return
                except (StoreError, InternalError) as error:
                    self._ahead.clear()
                    log.error("webhook %s of task %s waits for the store: %s", self.webhook.id, self.key[1], error)
                    await self._pause(_STORE_AWAY_S)
        except Exception:  # a delivery is not to take others with it, and not to stop without a trace
            log.exception("webhook %s of task %s: the delivery has failed", self.webhook.id, self.key[1])
            await self._give_up(0, _FAULT)
        finally:
            self._end()

    async def _go_on(self) -> bool:
        """Deliver the next event. False: there is none for now, or the webhook was given up.

        Raises StoreError, InternalError.
        """
        if not self._ahead:
            found = await self._behind()
            if found is None:
                await self._note()
                return self._has_more()  # no await from here to the end: what comes later is taken up anew
            self._ahead.extend(found)
        return await self._deliver(*self._ahead.popleft())

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        if self._told != self._reach:
            self._try_to_note()
        self._follow(None)
        self._webhooks.ended(self)

    # --- what there is to tell ----------------------------------------------------------------------------------------

    def _follow(self, current: TaskLog | None) -> None:
        """Take events from this log from now on. One that follows another replica goes when nobody holds it."""
        before, self._log = self._log, current
        if current is not before:
            if isinstance(current, Remote):
                current.held += 1
            if isinstance(before, Remote):
                before.held -= 1
                self._service.forget(before)

    async def _behind(self) -> Sequence[tuple[int, Event]] | None:
        """Some events behind what was delivered; waits for them while the task is at work. None: that is all for now.

        Raises StoreError, InternalError.
        """
        service = self._service
        while True:
            current = self._log or service.runs.get(self.key)
            if current is not None:
                self._follow(current)
                if current.base <= self._after < current.published:
                    begin = self._after - current.base
                    return list(enumerate(islice(current.events, begin, begin + _AHEAD), self._after + 1))
                if current.published <= self._after and not _is_through(current):
                    await self._changed(current)
                    continue
                if current.reply is not None and not current.published:
                    await self._webhooks.forget(self.webhook)  # there is no task
                    return None
                self._follow(None)
                if self._after == current.published and current.closed and current.broken is None:
                    return None
            found = await service.store.events(*self.key, self._after, limit=_AHEAD)
            if found and found[0][0] == self._after + 1:
                return found
            record = await service.store.get(*self.key)
            if record is None:
                return None
            run = service.runs.get(self.key)
            if record.version > self._after:
                if run is None:
                    log.warning("task %s: what was said is not kept any more, its webhook gets the task", self.key[1])
                return [(record.version, await self._whole(record))]
            if run is not None:
                if _is_through(run) and run.published <= self._after:
                    return None
                continue
            following = await self._followed(record)
            if following is None:
                return None
            self._follow(following)

    async def _whole(self, record: Record) -> Event:
        """The task in place of what was said, which is not kept any more. Raises InternalError."""
        return Event(await self._service.stored(record))

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
        """Deliver an event, however often it has to be tried. False: the webhook was given up, or is dropped.

        Raises StoreError, InternalError.
        """
        if self._payload.wants_task:
            number, event = await self._fold_in(number, event)
        body = self._payload.body(event, self._folded)
        if body is None:
            self._after = number
            return True
        push = self._push
        loop = asyncio.get_running_loop()
        key = idempotency_key(self.webhook.task_id, self.webhook.id, number)
        failed = 0
        since = loop.time() - self._failing_s()
        while not self._over:
            began = loop.time()
            sent = await push.sender.post(self._config.url, self._headers(key, body), body)
            took_s = loop.time() - began
            if sent.delivered:
                self._observe("delivered", took_s)
                self._after, self._failing = number, None
                self._webhooks.note_later(self)
                return True
            failed += 1
            if self._failing is None:
                self._failing = self._service.clock.tick()[0]
            if self._noted != self._reach:
                self._webhooks.note_later(self)
            # What is known here is in the store, too, and this may take long.
            self._follow(None)
            self._ahead.clear()
            left_s = since + push.give_up_s - loop.time()
            if sent.status == _GONE or left_s <= 0:
                self._observe("given_up", took_s)
                await self._give_up(failed, sent.detail)
                return False
            self._observe("retried", took_s)
            log.info("webhook %s of task %s: %s Trying again.", self.webhook.id, self.key[1], sent.detail)
            await self._pause(min(push.pause_s(failed, sent.retry_after_s), left_s))
        return False

    def _failing_s(self) -> float:
        """How long what comes next has failed already, here or elsewhere: a restart is not to begin that anew.

        Where the clock has jumped it is from nothing up to as long as anything is tried; one more try is always made.
        """
        if self._failing is None:
            return 0.0
        seconds = (self._service.clock.tick()[0] - self._failing) / 1_000_000
        return min(max(seconds, 0.0), self._push.give_up_s)

    def _observe(self, outcome: PushOutcome, seconds: float) -> None:
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

    def note(self) -> None:
        """Have the store know how far it has come; while that is on its way, more may come together."""
        if not self._ended and self._noting is None and self._noted != self._reach:
            self._try_to_note()

    def _try_to_note(self) -> None:
        try:
            self._tell_store()
        except StoreError as error:
            log.error("webhook %s of task %s: %s", self.webhook.id, self.key[1], error)

    def _tell_store(self) -> None:
        """Begin to have the store know how far it has come. Raises StoreError."""
        store, (after, failing) = self._service.store, self._reach
        if failing is None:
            noting = store.delivered(self.webhook, after)
        else:
            noting = store.failing(self.webhook, after, failing)
        self._told = after, failing
        if noting is None:
            self._noted = self._told
        else:
            self._noting = noting
            noting.add_done_callback(partial(self._after_noting, self._told))

    def _after_noting(self, told: Reach, noting: asyncio.Future[Any]) -> None:
        if self._noting is noting:
            self._noting = None
        if noting.cancelled() or noting.exception() is not None:
            if self._told == told:
                self._told = self._noted  # it is noted with the next one, or at the end
            return
        self._noted = told
        if self._noted != self._reach and not self._ended:
            self._webhooks.note_later(self)

    async def _note(self) -> None:
        """Have the store know how far it has come. Raises StoreError."""
        while self._noted != self._reach:
            if self._noting is None:
                self._tell_store()
            if self._noting is not None:
                await asyncio.shield(self._noting)
                await asyncio.sleep(0)  # `_after_noting` is called in the next turn of the loop

    def _has_more(self) -> bool:
        run = self._service.runs.get(self.key)
        return run is not None and run.broken is None and run.published > self._after

    # --- the task behind an event -------------------------------------------------------------------------------------

    async def _fold_in(self, number: int, event: Event) -> tuple[int, Event]:
        """Have `_fold` be the task behind an event; returns the event, or the task where its log is not kept any more.

        Raises StoreError, InternalError.
        """
        value = event.value
        if isinstance(value, Task):
            self._fold = Fold(value)
            return number, event
        if isinstance(value, TaskStatusUpdateEvent) and (value.status.state.terminal or value.status.state.interrupted):
            # No event tells what callers have said meanwhile; where a task rests it is stored with all of that.
            record = await self._service.store.get(*self.key)
            if record is not None and record.version == number:
                self._fold = Fold(await self._service.stored(record))
                return number, event
        if self._fold is None and not await self._fold_before(number):
            record = await self._service.store.get(*self.key)
            if record is None:
                raise StoreError("the task is gone")
            self._ahead.clear()
            event = await self._whole(record)
            self._fold = Fold(await self._service.stored(record))
            return record.version, event
        fold = self._fold
        assert fold is not None
        if isinstance(event, TextChunk):
            fold.add_text(event)
        else:
            fold.add(value)
        return number, event

    async def _fold_before(self, number: int) -> bool:
        """Have `_fold` be the task before an event, from its log. False: it is not kept any more. Raises StoreError."""
        read = 0
        fold: Fold | None = None
        while read < number - 1:
            events = await self._service.store.events(*self.key, read, limit=_AHEAD)
            if not events or events[0][0] != read + 1:
                return False
            for read, event in events:
                value = event.value
                if read >= number:
                    break
                if isinstance(value, Task):
                    fold = Fold(value)
                elif fold is None:
                    return False
                else:
                    fold.add(value)
        self._fold = fold
        return fold is not None

    def _folded(self) -> Task:
        assert self._fold is not None
        return self._fold.task()


def _is_through(current: TaskLog) -> bool:
    """Whether nothing will follow what is published here for now."""
    return current.closed or (current.resting and current.idle and not current.has_mail)
