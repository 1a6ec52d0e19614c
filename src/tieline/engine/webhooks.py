"""The webhooks of one agent's tasks: the four operations on them (A2A 1.0 §3.1.7 to §3.1.10), and their delivery."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from weakref import WeakValueDictionary

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

__all__ = ["Change", "Webhooks"]

T = TypeVar("T")

log = logging.getLogger("tieline.push")

_CLOSE_S: Final = 2.0
_LAST_S: Final = 1.0
_NOTE_S: Final = 0.1  # what a process that is killed may tell again
_STORE_AWAY_S: Final = 5.0
_ID_CHARACTERS: Final = 256
_DEAD: Final = 1000
_DEAD_AT_ALL: Final = 1_000_000


class Change:
    """What a configuration has made of a task's webhooks."""

    __slots__ = ("before", "now", "over", "refused")

    def __init__(self, before: Webhook | None, now: Webhook, over: Change | None = None) -> None:
        self.before = before  # of the same id
        self.now = now
        self.over = over  # what `before` has come by, where its message had not been given yet
        self.refused = False

    @property
    def key(self) -> tuple[str, str, str, int]:
        return self.now.scope, self.now.task_id, self.now.id, self.now.created

    def without(self) -> Webhook | None:
        """What would be there if its message had not come."""
        return self.over.without() if self.over is not None and self.over.refused else self.before


class Webhooks:
    """The webhooks of one agent's tasks."""

    def __init__(self, service: Tasks, push: Push, payloads: Payloads) -> None:
        self.service = service
        self.payloads = payloads
        self._push = push
        self._deliveries: dict[tuple[str, str], dict[str, Delivery]] = {}  # by scope and task id, then by its own id
        self._tasks: set[asyncio.Task[Any]] = set()
        self._open: dict[tuple[str, str, str, int], Change] = {}  # those whose messages are being given, or taken back
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()  # of tasks
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
        under_way = [*self._tasks, *(each.task for each in deliveries if not each.waiting)]
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
        while left:
            for task in left:
                task.cancel()
            await asyncio.wait(left)
            left = [*self._tasks]  # what has come of those

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

    def _do(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Do something that no call owns: it goes on when the call that has asked for it is cancelled."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _until_stored(self, task_id: str, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Do something with the store, however often it has to be tried; once, behind a `close`."""
        while True:
            try:
                await work()
                return
            except StoreError as error:
                log.error("the webhooks of task %s have to wait for the store: %s", task_id, error)
                if self._closed:
                    return
                await asyncio.sleep(_STORE_AWAY_S)

    async def _claim(self, scope: str, task_id: str) -> None:
        async def claimed() -> None:
            if self._closed:
                return  # whoever comes next takes them
            with self._reading() as reading:
                self._begin_all(await self.service.store.claim_webhooks(scope, task_id), reading)

        await self._until_stored(task_id, claimed)

    async def changed(self, scope: str, task_id: str) -> None:
        """Another replica has set or dropped a webhook of a task, or may own what was this one's."""
        await self._until_stored(task_id, lambda: self._look(scope, task_id))

    async def _look(self, scope: str, task_id: str) -> None:
        if self._closed:
            return
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
    ) -> Change:
        """Keep the webhook that came with the message a task is to be made of; none if the call is cancelled meanwhile.

        Raises InvalidParams, StoreError.
        """
        config = _named_by(message_id, config, version)
        setting = self._do(self._set_first(self._made(scope, task_id, config, version, 0, mine=True)))
        try:
            return await asyncio.shield(setting)
        except asyncio.CancelledError:
            self._do(self._take_back(setting))
            raise

    async def _set_first(self, webhook: Webhook) -> Change:
        before = await self._there(webhook)
        if before is not None and before.config == webhook.config:
            return Change(before, before)  # the message came before
        await self._set(webhook)
        return Change(before, webhook)

    async def set_with(
        self,
        scope: str,
        found: TaskLog | Record,
        config: TaskPushNotificationConfig,
        version: str,
        message_id: str,
        give: Callable[[], Awaitable[T]],
    ) -> T:
        """Keep the webhook that comes with a message to a task, and give the message.

        Where that is refused, or the call is cancelled, all becomes as it was before.

        Raises InvalidParams, StoreError, InternalError, and what `give` does.
        """
        config = _named_by(message_id, config, version)
        setting = self._do(self._create(scope, found, config, version, is_open=True))
        try:
            change = await asyncio.shield(setting)
            given = await give()
        except BaseException as error:  # a call that is cancelled at any await has not given it, either
            back = self._do(self._take_back(setting))
            if isinstance(error, A2AError):  # who is refused finds it so, unless the store takes long
                await asyncio.wait([back], timeout=_STORE_AWAY_S)
            raise
        self._open.pop(change.key, None)
        return given

    async def _take_back(self, setting: asyncio.Task[Change]) -> None:
        """The message that a webhook comes with was not given."""
        await asyncio.wait([setting])
        if not setting.cancelled() and setting.exception() is None:
            await self._take_change_back(setting.result())

    async def _take_change_back(self, change: Change) -> None:
        if change.before is change.now:
            return
        change.refused = True
        await self._until_stored(change.now.task_id, lambda: self._undo(change))
        self._open.pop(change.key, None)

    async def _undo(self, change: Change) -> None:
        """Raises StoreError."""
        now = change.now
        async with self._lock(now.scope, now.task_id):
            there = await self._there(now)
            if there is None or there.created != now.created:
                return  # it was dropped or replaced meanwhile
            before = change.without()
            if before is None:
                await self._drop(now.scope, now.task_id, now.id)
                return
            self._has_changed(now.scope, now.task_id, now.id)
            if await self.service.store.set_webhook(before, self._push.webhooks_per_task):
                self._has_changed(now.scope, now.task_id, now.id)
                delivery = self._deliveries.get((now.scope, now.task_id), {}).get(now.id)
                if delivery is not None:
                    delivery.stop()
                await self._claim(now.scope, now.task_id)
                self._tell_others(now.scope, now.task_id)

    def _lock(self, scope: str, task_id: str) -> asyncio.Lock:
        """What is held while a task's webhooks are read to be changed."""
        return self._locks.setdefault((scope, task_id), asyncio.Lock())

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
        self,
        scope: str,
        found: TaskLog | Record,
        config: TaskPushNotificationConfig,
        version: str,
        *,
        is_open: bool = False,
    ) -> Change:
        """Set a webhook; with `is_open` it may have to be taken back.

        Raises InvalidParams, StoreError, InternalError.
        """
        if isinstance(found, TaskLog):
            await found.readable()
            after, task_id = found.published, found.task_id
        else:
            after, task_id = found.version, found.task_id
        store, runs = self.service.store, self.service.runs
        mine = not store.shared or (scope, task_id) in runs
        webhook = self._made(scope, task_id, config, version, after, mine=mine)
        async with self._lock(scope, task_id):
            before = await self._there(webhook) if config.id or version != "1.0" else None
            over = None
            if before is not None and before.dead is None and before.config == webhook.config:
                over = self._open.get((scope, task_id, before.id, before.created))
                if over is None:
                    return Change(before, before)
                webhook = replace(webhook, after=before.after)  # the other one may be taken back
            await self._set(webhook)
            change = Change(before, webhook, over)
            if is_open:
                self._open[change.key] = change
            if mine:
                self.begin(webhook, runs.get((scope, task_id)))
            elif (scope, task_id) in runs:
                await self._claim(scope, task_id)
            else:
                self._tell_others(scope, task_id)
        return change

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
        if id_ == task_id and there:  # callers of 0.1 to 0.3 may know no id: they mean the task's only one
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
        if id_ == task_id:
            there = [webhook.id for webhook in await self.service.store.webhooks(scope, task_id)]
            if len(there) == 1:
                id_ = there[0]  # as `get` has it
        await self._drop(scope, task_id, id_)

    async def _drop(self, scope: str, task_id: str, id_: str) -> None:
        """Deliver one no more, and keep it no more. Raises StoreError."""
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
                first = await self.set_first(scope, task_id, config, version, message_id)
                self.begin(first.now, run)
            except InvalidParams as error:
                log.warning("a webhook of task %s is not kept: %s", task_id, error)

        self._do(self._until_stored(task_id, kept))

    def take_back_soon(self, change: Change) -> None:
        """Keep no webhook of a message that was heard before, or is refused."""
        self._do(self._take_change_back(change))

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
