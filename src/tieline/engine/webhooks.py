"""The webhooks of one agent's tasks: the four operations on them (A2A 1.0 §3.1.7 to §3.1.10), and their delivery."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, cast

import msgspec
from msgspec.structs import replace

from tieline.engine.dead import DeadLetter, dead_letter
from tieline.engine.delivery import Delivery
from tieline.engine.letters import Rehook
from tieline.engine.log import TaskLog
from tieline.engine.notification import check_config
from tieline.engine.push import Payloads, Push
from tieline.errors import A2AError, InvalidParams, TaskNotFound
from tieline.ids import new_id
from tieline.stores.base import Record, SharedStore, StoreError, Webhook
from tieline.types import ListTaskPushNotificationConfigsResponse, TaskPushNotificationConfig, encode, load

if TYPE_CHECKING:
    from tieline.engine.tasks import Tasks
    from tieline.engine.writing import WrittenLog

__all__ = ["Webhooks"]

log = logging.getLogger("tieline.push")

_CLOSE_S: Final = 2.0
_LAST_S: Final = 1.0
_NOTE_S: Final = 0.1  # what a process that is killed may tell again
_STORE_AWAY_S: Final = 5.0
_ID_CHARACTERS: Final = 256
_DEAD: Final = 1000
_DEAD_AT_ALL: Final = 1_000_000


class Change(msgspec.Struct, frozen=True):
    """What the configuration of a message has made of a task's webhooks."""

    before: Webhook | None  # of the same id
    now: Webhook


class Webhooks:
    """The webhooks of one agent's tasks."""

    def __init__(self, service: Tasks, push: Push, payloads: Payloads) -> None:
        self.service = service
        self.payloads = payloads
        self._push = push
        self._deliveries: dict[tuple[str, str], dict[str, Delivery]] = {}  # by scope and task id, then by its own id
        self._tasks: set[asyncio.Task[None]] = set()
        self._readings: set[_Reading] = set()
        self._come_on: set[Delivery] = set()  # those of which the store does not know yet how far they have come
        self._noting: asyncio.TimerHandle | None = None
        self._taking = False
        self._closed = False

    # --- life ---------------------------------------------------------------------------------------------------------

    async def take(self) -> None:
        """Deliver what nobody delivers. Raises StoreError."""
        if self._taking or self._closed:
            return
        self._taking = True
        store = self.service.store
        try:
            while True:
                with self._reading() as reading:
                    found = await store.take_webhooks(self.service.scope_prefix)
                    self._begin_all(found, reading)
                if not found or not store.shared:
                    break
        finally:
            self._taking = False

    def open(self) -> None:
        """Deliver from now on, also behind a `close`."""
        self._closed = False

    async def close(self) -> None:
        """Let deliveries under way finish for a moment, then stop; whoever comes next goes on with them."""
        self._closed = True
        deliveries = [each for some in self._deliveries.values() for each in some.values()]
        under_way = [each.task for each in deliveries if not each.waiting]
        if under_way:
            await asyncio.wait(under_way, timeout=_CLOSE_S)
        for each in deliveries:
            each.finish()
        if late := [each.task for each in deliveries if not each.waiting and not each.task.done()]:
            await asyncio.wait(late, timeout=_LAST_S)
        if self._noting is not None:
            self._noting.cancel()
            self._noting = None
        self._come_on.clear()  # each notes for itself when it ends
        left = [*self._tasks, *(each.task for each in deliveries)]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)

    @contextmanager
    def _reading(self) -> Iterator[_Reading]:
        """Watch the webhooks while the store is asked for some: what it answers may be old by then."""
        reading = _Reading()
        self._readings.add(reading)
        try:
            yield reading
        finally:
            self._readings.discard(reading)

    def _has_changed(self, scope: str, task_id: str, id_: str) -> None:
        for reading in self._readings:
            reading.changed.add((scope, task_id, id_))

    def _begin_all(self, found: Iterable[Webhook], reading: _Reading) -> None:
        for webhook in found:
            if (webhook.scope, webhook.task_id, webhook.id) not in reading.changed:
                self.begin(webhook)

    def begin(self, webhook: Webhook, run: TaskLog | None = None) -> None:
        """Deliver a webhook from now on; `run` is its task's, where that is not known to the service yet."""
        if self._closed:
            return
        some = self._deliveries.setdefault((webhook.scope, webhook.task_id), {})
        before = some.get(webhook.id)
        if before is not None:
            if before.webhook.created == webhook.created and not before.over:
                return
            before.stop()
        if run is not None:
            run.streamed = True  # its log is needed behind its end
        try:
            some[webhook.id] = Delivery(self, self._push, webhook, run)
        except (msgspec.MsgspecError, A2AError):  # another version of tieline may have written it
            log.error("webhook %s of task %s cannot be read", webhook.id, webhook.task_id)
            if not some:
                del self._deliveries[webhook.scope, webhook.task_id]

    def ended(self, delivery: Delivery) -> None:
        """A delivery is over, for now."""
        self._come_on.discard(delivery)
        some = self._deliveries.get(delivery.key, {})
        current = some.get(delivery.webhook.id, delivery)
        if current is delivery:
            some.pop(delivery.webhook.id, None)
            if not some:
                self._deliveries.pop(delivery.key, None)
            run = self.service.runs.get(delivery.key)
            if run is not None:
                run.hooked = True  # what it says later is to be delivered
        elif current.webhook.created == delivery.webhook.created:
            return  # the same one is being delivered anew
        store = self.service.store
        if store.shared:
            cast(SharedStore, store).release_webhook(delivery.webhook)

    def note_later(self, delivery: Delivery) -> None:
        """Have the store know how far a delivery has come, in a moment: all together, in one write."""
        self._come_on.add(delivery)
        if self._noting is None:
            self._noting = asyncio.get_running_loop().call_later(_NOTE_S, self._note)

    def _note(self) -> None:
        self._noting = None
        come_on, self._come_on = self._come_on, set()
        for delivery in come_on:
            delivery.note()

    # --- what happens to tasks ----------------------------------------------------------------------------------------

    def published(self, run: WrittenLog) -> None:
        """A run that goes on with a stored task has published something: its webhooks are delivered from here."""
        run.hooked = False
        run.streamed = True
        self._do(self._claim(run.scope, run.task_id))

    def _do(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _until_stored(self, task_id: str, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Do something with the store, however often it has to be tried."""
        while not self._closed:
            try:
                await work()
                return
            except StoreError as error:
                log.error("the webhooks of task %s have to wait for the store: %s", task_id, error)
                await asyncio.sleep(_STORE_AWAY_S)

    async def _claim(self, scope: str, task_id: str) -> None:
        async def claimed() -> None:
            with self._reading() as reading:
                self._begin_all(await self.service.store.claim_webhooks(scope, task_id), reading)

        await self._until_stored(task_id, claimed)

    async def changed(self, scope: str, task_id: str) -> None:
        """Another replica has set or dropped a webhook of a task, or may own what was this one's."""
        await self._until_stored(task_id, lambda: self._look(scope, task_id))

    async def _look(self, scope: str, task_id: str) -> None:
        store = self.service.store
        with self._reading() as reading:
            if self.service.runs.get((scope, task_id)) is not None:
                self._begin_all(await store.claim_webhooks(scope, task_id), reading)
            there = {webhook.id: webhook for webhook in await store.webhooks(scope, task_id)}
        me = cast(SharedStore, store).replica if store.shared else ""
        for id_, delivery in list(self._deliveries.get((scope, task_id), {}).items()):
            now = there.get(id_)
            if (scope, task_id, id_) in reading.changed:
                continue
            if now is None or now.created != delivery.webhook.created or now.dead is not None or now.owner != me:
                delivery.stop()

    async def check_owned(self) -> None:
        """This replica was taken for dead, or was not told of changes: see which webhooks are still its own."""
        for scope, task_id in list(self._deliveries):
            await self.changed(scope, task_id)

    # --- operations ---------------------------------------------------------------------------------------------------

    def checked(self, config: TaskPushNotificationConfig, field: str = "") -> None:
        """Check that a configuration can be called. Raises InvalidParams."""
        prefix = f"{field}." if field else ""
        if not config.url:
            raise InvalidParams.at(f"{prefix}url", "must not be empty")
        try:
            self._push.guard.check(config.url)
        except ValueError as error:
            raise InvalidParams.at(f"{prefix}url", str(error)) from None
        try:
            check_config(config)
        except ValueError as error:
            name, _, words = str(error).partition(" ")
            raise InvalidParams.at(prefix + name, words) from None
        if config.id and (len(config.id) > _ID_CHARACTERS or not config.id.isprintable()):
            raise InvalidParams.at(f"{prefix}id", f"must be printable and have at most {_ID_CHARACTERS} characters")

    async def set_first(
        self, scope: str, task_id: str, config: TaskPushNotificationConfig, version: str, message_id: str
    ) -> Webhook:
        """Keep the webhook that came with the message a task is to be made of. Raises InvalidParams, StoreError."""
        config = _named_by(message_id, config, version)
        webhook = self._made(scope, task_id, config, version, 0, mine=True)
        before = await self._there(webhook)
        if before is not None and before.config == webhook.config:
            return before  # the message came before
        await self._set(webhook)
        return webhook

    async def set_with(
        self, scope: str, found: TaskLog | Record, config: TaskPushNotificationConfig, version: str, message_id: str
    ) -> Change:
        """Keep the webhook that comes with a message to a task. Raises InvalidParams, StoreError, InternalError."""
        return await self._create(scope, found, _named_by(message_id, config, version), version)

    async def take_back(self, change: Change) -> None:
        """The message that a webhook has come with was refused. Raises StoreError."""
        now, before = change.now, change.before
        if before is now:
            return
        if before is None:
            await self.delete(now.scope, now.task_id, now.id)
            return
        self._has_changed(now.scope, now.task_id, now.id)
        if await self.service.store.set_webhook(before, self._push.webhooks_per_task):
            self._has_changed(now.scope, now.task_id, now.id)
            delivery = self._deliveries.get((now.scope, now.task_id), {}).get(now.id)
            if delivery is not None:
                delivery.stop()
            await self._claim(now.scope, now.task_id)
            self._tell_others(now.scope, now.task_id)

    async def create(
        self, scope: str, found: TaskLog | Record, config: TaskPushNotificationConfig, version: str
    ) -> TaskPushNotificationConfig:
        """Tell a webhook of what happens to a task from now on. One that is there as it is stays, with what it has to
        be told yet: a caller that has heard no answer may create it again.

        Raises InvalidParams, StoreError, InternalError.
        """
        change = await self._create(scope, found, config, version)
        return load(change.now.config, TaskPushNotificationConfig)

    async def _create(
        self, scope: str, found: TaskLog | Record, config: TaskPushNotificationConfig, version: str
    ) -> Change:
        if isinstance(found, TaskLog):
            await found.readable()
            after, task_id = found.published, found.task_id
        else:
            after, task_id = found.version, found.task_id
        store, runs = self.service.store, self.service.runs
        mine = not store.shared or (scope, task_id) in runs
        webhook = self._made(scope, task_id, config, version, after, mine=mine)
        before = await self._there(webhook) if config.id or version != "1.0" else None
        if before is not None and before.dead is None and before.config == webhook.config:
            return Change(before, before)
        await self._set(webhook)
        if mine:
            self.begin(webhook, runs.get((scope, task_id)))
        elif (scope, task_id) in runs:
            await self._claim(scope, task_id)
        else:
            self._tell_others(scope, task_id)
        return Change(before, webhook)

    async def _there(self, webhook: Webhook) -> Webhook | None:
        """The one of the same id that is there already. Raises StoreError."""
        there = await self.service.store.webhooks(webhook.scope, webhook.task_id)
        return next((each for each in there if each.id == webhook.id), None)

    def _made(
        self, scope: str, task_id: str, config: TaskPushNotificationConfig, version: str, after: int, *, mine: bool
    ) -> Webhook:
        # Before 1.0 a configuration without an id was the task's only one.
        id_ = config.id or (new_id() if version == "1.0" else task_id)
        config = replace(config, id=id_, task_id=task_id)
        created, _ = self.service.clock.tick()
        store = self.service.store
        owner = cast(SharedStore, store).replica if store.shared and mine else ""
        return Webhook(scope, task_id, id_, encode(config), version, after, created, owner)

    async def _set(self, webhook: Webhook) -> None:
        limit = self._push.webhooks_per_task
        self._has_changed(webhook.scope, webhook.task_id, webhook.id)
        if not await self.service.store.set_webhook(webhook, limit):
            raise InvalidParams.at("taskId", f"task {webhook.task_id!r} has {limit} webhooks already: delete one")
        self._has_changed(webhook.scope, webhook.task_id, webhook.id)

    def _tell_others(self, scope: str, task_id: str) -> None:
        """Another replica may be at work on the task, or deliver what has changed."""
        replica = self.service.replica
        if replica is not None:
            replica.tell_all(Rehook(scope, task_id))

    async def get(self, scope: str, task_id: str, id_: str) -> TaskPushNotificationConfig:
        """Raises TaskNotFound, StoreError."""
        there = await self.service.store.webhooks(scope, task_id)
        for webhook in there:
            if webhook.id == id_:
                return load(webhook.config, TaskPushNotificationConfig)
        if id_ == task_id and there:  # callers of 0.1 and 0.2 know no ids: they mean the task's only one
            return load(there[-1].config, TaskPushNotificationConfig)
        raise WebhookNotFound(task_id, id_)

    async def list(self, scope: str, task_id: str) -> ListTaskPushNotificationConfigsResponse:
        """Raises StoreError."""
        there = await self.service.store.webhooks(scope, task_id)
        return ListTaskPushNotificationConfigsResponse(
            tuple(load(webhook.config, TaskPushNotificationConfig) for webhook in there)
        )

    async def delete(self, scope: str, task_id: str, id_: str) -> None:
        """Deliver no more. Of one that is not there nothing is said (§3.1.10). Raises StoreError."""
        self._stop(scope, task_id, id_)
        try:
            await self.service.store.drop_webhook(scope, task_id, id_)
        except StoreError:
            self._do(self._claim(scope, task_id))  # it is there yet
            raise
        self._stop(scope, task_id, id_)  # it may have been taken up while the store was at it
        self._tell_others(scope, task_id)

    def _stop(self, scope: str, task_id: str, id_: str) -> None:
        self._has_changed(scope, task_id, id_)
        delivery = self._deliveries.get((scope, task_id), {}).get(id_)
        if delivery is not None:
            delivery.stop()

    def begin_with(
        self,
        scope: str,
        task_id: str,
        config: TaskPushNotificationConfig,
        version: str,
        message_id: str,
        run: TaskLog,
    ) -> None:
        """Keep and deliver a webhook of a run that has begun already."""

        async def kept() -> None:
            try:
                self.begin(await self.set_first(scope, task_id, config, version, message_id), run)
            except InvalidParams as error:
                log.warning("a webhook of task %s is not kept: %s", task_id, error)

        self._do(self._until_stored(task_id, kept))

    def forget_soon(self, webhook: Webhook) -> None:
        """Keep no webhook of a message that was heard before, or is refused."""
        self._do(self._until_stored(webhook.task_id, lambda: self.forget(webhook)))

    async def forget(self, webhook: Webhook) -> None:
        """Keep no webhook of a message that no task has come of. Raises StoreError."""
        await self.service.store.drop_webhook(webhook.scope, webhook.task_id, webhook.id)

    # --- dead letters -------------------------------------------------------------------------------------------------

    async def dead(self, limit: int = _DEAD) -> tuple[DeadLetter, ...]:
        """The webhooks that were given up, the last first; at most `limit`. Raises StoreError."""
        return tuple(dead_letter(webhook) for webhook in await self._dead(limit))

    async def _dead(self, limit: int) -> Iterable[Webhook]:
        return await self.service.store.dead_webhooks(self.service.scope_prefix, limit)

    async def replay(self, task_id: str | None = None, id_: str | None = None) -> int:
        """Deliver again what was given up, from where it was; returns how many webhooks that are.

        `task_id`: those of this task alone, `id_`: of these the one of this id. Raises StoreError.
        """
        store = self.service.store
        revived = 0
        for webhook in await self._dead(_DEAD_AT_ALL):
            if task_id not in (None, webhook.task_id) or id_ not in (None, webhook.id):
                continue
            if await store.revive_webhook(webhook.scope, webhook.task_id, webhook.id):
                revived += 1
                await self._claim(webhook.scope, webhook.task_id)
        return revived


class _Reading:
    """A question to the store, and which webhooks were set or dropped since it was put."""

    __slots__ = ("changed",)

    def __init__(self) -> None:
        self.changed: set[tuple[str, str, str]] = set()


def _named_by(message_id: str, config: TaskPushNotificationConfig, version: str) -> TaskPushNotificationConfig:
    """A configuration that comes with a message, with an id: the same one when the message comes once more."""
    if config.id or version != "1.0" or not message_id:
        return config
    return replace(config, id=hashlib.blake2b(message_id.encode(), digest_size=16).hexdigest())


class WebhookNotFound(TaskNotFound):
    """A task has no webhook of this id (A2A 1.0 §3.1.8)."""

    def __init__(self, task_id: str, id_: str) -> None:
        super().__init__(task_id)
        self.args = (f"Task {task_id!r} has no push notification configuration {id_!r}.",)
        self.metadata["pushNotificationConfigId"] = id_
